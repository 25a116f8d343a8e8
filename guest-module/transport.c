// SPDX-License-Identifier: GPL-2.0
/*
 * Calls and events over the shared memory of QEMU's ivshmem-doorbell device (docs/vmrpc.md).
 *
 * Nothing that the host writes is believed: words are read once and checked. A host that says what cannot be,
 * or that does not answer, has gone, and its sockets with it; a slot whose answer is missing is not used
 * again before another server says that it took over the memory, because the one before may still write into
 * it.
 */
#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/sched/clock.h>
#include <linux/timer.h>
#include <linux/version.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "transport.h"
#include "vmrpc.h"

#define DOORBELL 12
#define HOST_PEER 0
/* How long an answer may take. The host never waits for anybody in a call. */
#define ANSWER_LIMIT (10 * HZ)
#define ALL_SLOTS GENMASK(VMRPC_SLOTS - 1, 0)

static uint spin_us = 50;
module_param(spin_us, uint, 0644);
MODULE_PARM_DESC(spin_us, "microseconds that a caller spins for its answer before it sleeps");

static bool conventional;
module_param(conventional, bool, 0444);
MODULE_PARM_DESC(conventional, "an interrupt for each event, for comparison");

static ulong calls, sleeps, interrupts, doorbells, events;
module_param(calls, ulong, 0444);
module_param(sleeps, ulong, 0444);
module_param(interrupts, ulong, 0444);
module_param(doorbells, ulong, 0444);
module_param(events, ulong, 0444);

static struct {
	struct pci_dev *device;
	void *memory;
	void __iomem *registers;
	bool is_gone;
	/* The server's number that the host wrote, and ours, which changes when we have noticed. */
	u32 incarnation;
	u32 generation;
	struct work_struct start_again;

	spinlock_t submit_lock;
	u32 submission_head;

	/* Also guards the table of sockets in sockets.c. */
	spinlock_t event_lock;
	u32 event_tail;
	/* Idle processors that look for events themselves, and those that have halted. */
	bool idle_looks;
	u32 lookers;
	u32 halted;
	struct timer_list tick;

	spinlock_t slot_lock;
	unsigned long free_slots;
	/* Slots whose answers are missing. */
	unsigned long lost_slots;
	wait_queue_head_t slot_free;
	wait_queue_head_t slot_done[VMRPC_SLOTS];
} vm;

static u32 *word_at(u32 at)
{
	return vm.memory + at;
}

static u32 *slot_word(int slot, u32 word)
{
	return word_at(VMRPC_HEADERS_AT + slot * VMRPC_HEADER_BYTES + word * 4);
}

bool vmrpc_alive(void)
{
	return !READ_ONCE(vm.is_gone) && READ_ONCE(*word_at(VMRPC_STATUS_AT)) == VMRPC_STATUS_SERVING &&
	       READ_ONCE(*word_at(VMRPC_INCARNATION_AT)) == READ_ONCE(vm.incarnation);
}

u32 vmrpc_generation(void)
{
	return READ_ONCE(vm.generation);
}

u32 vmrpc_ready(u32 socket)
{
	return smp_load_acquire(word_at(VMRPC_READY_AT + socket * 4));
}

int vmrpc_take_error(u32 socket)
{
	u32 *word = word_at(VMRPC_ERROR_AT + socket * 4);
	u32 error = READ_ONCE(*word) ? xchg(word, 0) : 0;

	return error <= MAX_ERRNO ? error : EIO;
}

/* The caller holds the event lock. */
static void set_gone(const char *why)
{
	int slot;

	if (xchg(&vm.is_gone, true))
		return;
	pr_warn("punctual_sockets: %s; its sockets are reset\n", why);
	for (slot = 0; slot < VMRPC_SLOTS; slot++)
		wake_up_all(&vm.slot_done[slot]);
	wake_up_all(&vm.slot_free);
	vmrpc_on_gone();
}

/* A free slot for a socket of this generation, or -1. */
static int take_slot(u32 generation)
{
	unsigned long flags;
	int slot = -1;

	spin_lock_irqsave(&vm.slot_lock, flags);
	if (vm.free_slots && !vm.is_gone && generation == vm.generation) {
		slot = __ffs(vm.free_slots);
		__clear_bit(slot, &vm.free_slots);
	}
	spin_unlock_irqrestore(&vm.slot_lock, flags);
	return slot;
}

static void give_back(int slot, unsigned long *slots)
{
	unsigned long flags;

	spin_lock_irqsave(&vm.slot_lock, flags);
	__set_bit(slot, slots);
	spin_unlock_irqrestore(&vm.slot_lock, flags);
	wake_up(&vm.slot_free);
}

int vmrpc_begin(struct vmrpc_call *call, u32 op, u32 socket, u32 generation)
{
	u32 word;

	wait_event(vm.slot_free, (call->slot = take_slot(generation)) >= 0 || !vmrpc_alive() ||
				 generation != vmrpc_generation());
	if (call->slot < 0)
		return -ECONNRESET;
	for (word = VMRPC_REQUEST_WANT_EVENT; word <= VMRPC_REQUEST_ADDRESS; word++)
		vmrpc_put(call, word, 0);
	vmrpc_put(call, VMRPC_REQUEST_OP, op);
	vmrpc_put(call, VMRPC_REQUEST_SOCKET, socket);
	return 0;
}

void vmrpc_put(struct vmrpc_call *call, u32 word, u32 value)
{
	WRITE_ONCE(*slot_word(call->slot, word), value);
}

int vmrpc_address_bytes(const union vmrpc_address *address)
{
	return address->family == AF_INET6 ? sizeof(address->v6) : sizeof(address->v4);
}

void vmrpc_put_address(struct vmrpc_call *call, const union vmrpc_address *address)
{
	bool is_v6 = address->family == AF_INET6;
	const __be32 *words = is_v6 ? address->v6.sin6_addr.s6_addr32 : &address->v4.sin_addr.s_addr;
	int word;

	vmrpc_put(call, VMRPC_REQUEST_ADDRESS, is_v6 ? 6 : 4);
	vmrpc_put(call, VMRPC_REQUEST_ADDRESS + 1, ntohs(is_v6 ? address->v6.sin6_port : address->v4.sin_port));
	for (word = 0; word < (is_v6 ? 4 : 1); word++)
		vmrpc_put(call, VMRPC_REQUEST_ADDRESS + 2 + word, (__force u32)words[word]);
}

static void get_address(int slot, union vmrpc_address *address)
{
	u32 family = READ_ONCE(*slot_word(slot, VMRPC_RESPONSE_ADDRESS));
	__be16 port = htons(READ_ONCE(*slot_word(slot, VMRPC_RESPONSE_ADDRESS + 1)));
	__be32 words[4];
	int word;

	memset(address, 0, sizeof(*address));
	for (word = 0; word < 4; word++)
		words[word] = (__force __be32)READ_ONCE(*slot_word(slot, VMRPC_RESPONSE_ADDRESS + 2 + word));
	if (family == 4) {
		address->family = AF_INET;
		address->v4.sin_port = port;
		address->v4.sin_addr.s_addr = words[0];
	} else if (family == 6) {
		address->family = AF_INET6;
		address->v6.sin6_port = port;
		memcpy(&address->v6.sin6_addr, words, sizeof(words));
	}
}

void *vmrpc_data(struct vmrpc_call *call)
{
	return vm.memory + VMRPC_DATA_AT + call->slot * VMRPC_DATA_BYTES;
}

static bool is_done(int slot)
{
	return smp_load_acquire(slot_word(slot, VMRPC_REQUEST_STATE)) == VMRPC_DONE;
}

static void submit(int slot)
{
	unsigned long flags;

	smp_store_release(slot_word(slot, VMRPC_REQUEST_STATE), VMRPC_SUBMITTED);
	spin_lock_irqsave(&vm.submit_lock, flags);
	WRITE_ONCE(*word_at(VMRPC_SUBMISSIONS_AT + vm.submission_head % VMRPC_SUBMISSIONS * 4), slot);
	vm.submission_head++;
	smp_store_release(word_at(VMRPC_SUBMISSION_HEAD_AT), vm.submission_head);
	calls++;
	spin_unlock_irqrestore(&vm.submit_lock, flags);
	/* Either the host sees the submission before it sleeps, or we see that it sleeps. */
	smp_mb();
	if (READ_ONCE(*word_at(VMRPC_HOST_SLEEPING_AT))) {
		doorbells++;
		writel(HOST_PEER << 16, vm.registers + DOORBELL);
	}
}

/* Waits for the answer; false when there is none. */
static bool await(int slot)
{
	u64 end = local_clock() + spin_us * 1000ull;

	do {
		if (is_done(slot))
			return true;
		cpu_relax();
	} while (local_clock() < end);
	sleeps++;
	WRITE_ONCE(*slot_word(slot, VMRPC_REQUEST_WANT_EVENT), 1);
	/* Either the host sees that we sleep, or we see that it is done. */
	smp_mb();
	wait_event_timeout(vm.slot_done[slot], is_done(slot) || !vmrpc_alive(), ANSWER_LIMIT);
	return is_done(slot);
}

int vmrpc_call(struct vmrpc_call *call)
{
	int slot = call->slot;
	unsigned long flags;

	submit(slot);
	if (!await(slot)) {
		spin_lock_irqsave(&vm.event_lock, flags);
		set_gone("the host does not answer");
		spin_unlock_irqrestore(&vm.event_lock, flags);
		give_back(slot, &vm.lost_slots);
		call->slot = -1;
		return -ECONNRESET;
	}
	call->result = READ_ONCE(*slot_word(slot, VMRPC_RESPONSE_RESULT));
	call->length = READ_ONCE(*slot_word(slot, VMRPC_RESPONSE_LENGTH));
	call->flags = READ_ONCE(*slot_word(slot, VMRPC_RESPONSE_FLAGS));
	call->socket = READ_ONCE(*slot_word(slot, VMRPC_RESPONSE_SOCKET));
	get_address(slot, &call->address);
	if (call->result < -MAX_ERRNO || call->length > VMRPC_DATA_BYTES)
		call->result = -EIO;
	return call->result;
}

void vmrpc_end(struct vmrpc_call *call)
{
	if (call->slot < 0)
		return;
	WRITE_ONCE(*slot_word(call->slot, VMRPC_REQUEST_STATE), VMRPC_FREE);
	give_back(call->slot, &vm.free_slots);
}

unsigned long vmrpc_lock_events(void)
{
	unsigned long flags;

	spin_lock_irqsave(&vm.event_lock, flags);
	return flags;
}

void vmrpc_unlock_events(unsigned long flags)
{
	spin_unlock_irqrestore(&vm.event_lock, flags);
}

/* Takes what is in the event queue. The caller holds the lock. */
static void drain(void)
{
	u32 budget = VMRPC_EVENTS, index;

	while (smp_load_acquire(word_at(VMRPC_EVENT_HEAD_AT)) != vm.event_tail) {
		index = READ_ONCE(*word_at(VMRPC_EVENTS_AT + vm.event_tail % VMRPC_EVENTS * 4));
		vm.event_tail++;
		WRITE_ONCE(*word_at(VMRPC_EVENT_TAIL_AT), vm.event_tail);
		if (index >= VMRPC_SOCKETS + VMRPC_SLOTS || !budget--) {
			set_gone("the host's event queue is broken");
			return;
		}
		/* What the event is about is read after this, so the next change is an event of its own. */
		xchg(word_at(VMRPC_QUEUED_AT + index * 4), 0);
		events++;
		if (index >= VMRPC_SOCKETS)
			wake_up_all(&vm.slot_done[index - VMRPC_SOCKETS]);
		else
			vmrpc_on_event(index);
	}
}

bool vmrpc_has_event(void)
{
	return READ_ONCE(*word_at(VMRPC_EVENT_HEAD_AT)) != READ_ONCE(vm.event_tail) && !vm.is_gone;
}

bool vmrpc_is_conventional(void)
{
	return conventional;
}

/* Is an interrupt wanted for the next event? The caller holds the lock. */
static bool wants_interrupt(void)
{
	if (conventional)
		return true;
	return !vm.lookers && (vm.halted || !vm.idle_looks);
}

static void want_interrupt(bool does)
{
	WRITE_ONCE(*word_at(VMRPC_NEED_IRQ_AT), does || conventional);
}

/* Has the host gone, or another one taken its place? The caller holds the lock. */
static void look_at_host(void)
{
	if (READ_ONCE(*word_at(VMRPC_INCARNATION_AT)) != vm.incarnation) {
		set_gone("another server has begun");
		schedule_work(&vm.start_again);
	} else if (READ_ONCE(*word_at(VMRPC_STATUS_AT)) == VMRPC_STATUS_GONE) {
		set_gone("the host has gone");
	}
}

/* Takes all events, and says whether the next one needs an interrupt. The caller holds the lock. */
static void take_events(void)
{
	look_at_host();
	while (!vm.is_gone) {
		want_interrupt(false);
		drain();
		want_interrupt(wants_interrupt());
		/* Either the host sees that we want an interrupt, or we see its event. */
		smp_mb();
		if (!vmrpc_has_event())
			break;
	}
}

void vmrpc_take_events(void)
{
	unsigned long flags = vmrpc_lock_events();

	take_events();
	vmrpc_unlock_events(flags);
}

void vmrpc_look(void)
{
	unsigned long flags = vmrpc_lock_events();

	vm.lookers++;
	want_interrupt(false);
	vmrpc_unlock_events(flags);
}

void vmrpc_look_away(void)
{
	unsigned long flags = vmrpc_lock_events();

	vm.lookers--;
	take_events();
	vmrpc_unlock_events(flags);
}

void vmrpc_halt(void)
{
	unsigned long flags = vmrpc_lock_events();

	vm.halted++;
	take_events();
	vmrpc_unlock_events(flags);
}

void vmrpc_resume(void)
{
	unsigned long flags = vmrpc_lock_events();

	vm.halted--;
	take_events();
	vmrpc_unlock_events(flags);
}

/* A processor at work looks at its ticks: nobody waits longer because others do not let it be idle. */
static void on_tick(struct timer_list *unused)
{
	if (vmrpc_has_event())
		vmrpc_take_events();
	mod_timer(&vm.tick, jiffies + 1);
}

void vmrpc_idle_looks(bool does)
{
	unsigned long flags;

	if (does)
		mod_timer(&vm.tick, jiffies + 1);
	else
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0)
		timer_delete_sync(&vm.tick);
#else
		del_timer_sync(&vm.tick);
#endif
	flags = vmrpc_lock_events();
	vm.idle_looks = does;
	take_events();
	vmrpc_unlock_events(flags);
}

static bool all_slots_are_back(void)
{
	unsigned long flags;
	bool are;

	spin_lock_irqsave(&vm.slot_lock, flags);
	are = (vm.free_slots | vm.lost_slots) == ALL_SLOTS;
	spin_unlock_irqrestore(&vm.slot_lock, flags);
	return are;
}

static int say_hello(void)
{
	struct vmrpc_call call;
	int error = vmrpc_begin(&call, VMRPC_HELLO, 0, vmrpc_generation());

	if (error)
		return error;
	error = vmrpc_call(&call);
	vmrpc_end(&call);
	return error;
}

/* Another server has begun in this memory. The one before has ended, so all slots are ours again. */
static void start_again(struct work_struct *unused)
{
	unsigned long flags;
	u32 index;

	wait_event(vm.slot_free, all_slots_are_back());
	flags = vmrpc_lock_events();
	vm.incarnation = READ_ONCE(*word_at(VMRPC_INCARNATION_AT));
	vm.event_tail = READ_ONCE(*word_at(VMRPC_EVENT_HEAD_AT));
	WRITE_ONCE(*word_at(VMRPC_EVENT_TAIL_AT), vm.event_tail);
	for (index = 0; index < VMRPC_SOCKETS + VMRPC_SLOTS; index++)
		xchg(word_at(VMRPC_QUEUED_AT + index * 4), 0);
	spin_lock(&vm.slot_lock);
	vm.free_slots = ALL_SLOTS;
	vm.lost_slots = 0;
	vm.generation++;
	WRITE_ONCE(vm.is_gone, false);
	spin_unlock(&vm.slot_lock);
	take_events();
	vmrpc_unlock_events(flags);
	if (!say_hello())
		pr_info("punctual_sockets: new sockets are those of another server\n");
}

static irqreturn_t on_interrupt(int irq, void *unused)
{
	interrupts++;
	vmrpc_take_events();
	return IRQ_HANDLED;
}

static int check_memory(struct pci_dev *device)
{
	if (pci_resource_len(device, 2) < VMRPC_BYTES)
		return -ENODEV;
	vm.memory = memremap(pci_resource_start(device, 2), VMRPC_BYTES, MEMREMAP_WB);
	if (!vm.memory)
		return -ENOMEM;
	if (READ_ONCE(*word_at(VMRPC_MAGIC_AT)) == VMRPC_MAGIC &&
	    READ_ONCE(*word_at(VMRPC_VERSION_AT)) == VMRPC_VERSION &&
	    READ_ONCE(*word_at(VMRPC_STATUS_AT)) == VMRPC_STATUS_SERVING)
		return 0;
	memunmap(vm.memory);
	return -ENODEV;
}

static int probe(struct pci_dev *device, const struct pci_device_id *id)
{
	int slot, error;

	if (vm.device)
		return -EBUSY;
	spin_lock_init(&vm.submit_lock);
	spin_lock_init(&vm.event_lock);
	spin_lock_init(&vm.slot_lock);
	init_waitqueue_head(&vm.slot_free);
	for (slot = 0; slot < VMRPC_SLOTS; slot++)
		init_waitqueue_head(&vm.slot_done[slot]);
	INIT_WORK(&vm.start_again, start_again);
	timer_setup(&vm.tick, on_tick, TIMER_DEFERRABLE);
	vm.free_slots = ALL_SLOTS;
	error = pci_enable_device(device);
	if (error)
		return error;
	error = pci_request_regions(device, "punctual_sockets");
	if (error)
		goto disable;
	error = check_memory(device);
	if (error)
		goto release;
	vm.registers = pci_iomap(device, 0, 0);
	error = -ENOMEM;
	if (!vm.registers)
		goto unmap;
	pci_set_master(device);
	/* Go on where the module before this one left the memory. */
	vm.submission_head = READ_ONCE(*word_at(VMRPC_SUBMISSION_HEAD_AT));
	vm.event_tail = READ_ONCE(*word_at(VMRPC_EVENT_TAIL_AT));
	vm.incarnation = READ_ONCE(*word_at(VMRPC_INCARNATION_AT));
	error = pci_alloc_irq_vectors(device, 1, 1, PCI_IRQ_MSIX);
	if (error < 0)
		goto iounmap;
	error = request_irq(pci_irq_vector(device, 0), on_interrupt, 0, "punctual_sockets", &vm);
	if (error)
		goto vectors;
	vm.device = device;
	WRITE_ONCE(*word_at(VMRPC_NEED_IRQ_AT), 1);
	smp_mb();
	/* What came before we listened. */
	on_interrupt(0, NULL);
	return 0;
vectors:
	pci_free_irq_vectors(device);
iounmap:
	pci_iounmap(device, vm.registers);
unmap:
	memunmap(vm.memory);
release:
	pci_release_regions(device);
disable:
	pci_disable_device(device);
	return error;
}

static void remove(struct pci_dev *device)
{
	WRITE_ONCE(*word_at(VMRPC_NEED_IRQ_AT), 0);
	free_irq(pci_irq_vector(device, 0), &vm);
	cancel_work_sync(&vm.start_again);
	pci_free_irq_vectors(device);
	pci_iounmap(device, vm.registers);
	memunmap(vm.memory);
	pci_release_regions(device);
	pci_disable_device(device);
	vm.device = NULL;
}

static const struct pci_device_id devices[] = {
	{ PCI_DEVICE(PCI_VENDOR_ID_REDHAT_QUMRANET, 0x1110) },
	{}
};
MODULE_DEVICE_TABLE(pci, devices);

static struct pci_driver driver = {
	.name = "punctual_sockets",
	.id_table = devices,
	.probe = probe,
	.remove = remove,
	/* Sockets are open in it. */
	.driver.suppress_bind_attrs = true,
};

int vmrpc_start(void)
{
	int error = pci_register_driver(&driver);

	if (error)
		return error;
	error = vm.device ? say_hello() : -ENODEV;
	if (error)
		pci_unregister_driver(&driver);
	return error;
}

void vmrpc_stop(void)
{
	pci_unregister_driver(&driver);
}
