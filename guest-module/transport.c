// SPDX-License-Identifier: GPL-2.0
/*
 * Calls and events over the shared memory of QEMU's ivshmem-doorbell device (docs/vmrpc.md).
 *
 * Nothing that the host writes is believed: words are read once and checked. A host that says what cannot be,
 * or that does not answer, is gone for good; a slot whose answer is missing is never used again, because the
 * host may still write into it.
 */
#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/sched/clock.h>
#include <linux/wait.h>

#include "transport.h"
#include "vmrpc.h"

#define DOORBELL 12
#define HOST_PEER 0
/* How long an answer may take. The host never waits for anybody in a call. */
#define ANSWER_LIMIT (10 * HZ)

static uint spin_us = 50;
module_param(spin_us, uint, 0644);
MODULE_PARM_DESC(spin_us, "microseconds that a caller spins for its answer before it sleeps");

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

	spinlock_t submit_lock;
	u32 submission_head;

	/* Also guards the table of sockets in sockets.c. */
	spinlock_t event_lock;
	u32 event_tail;
	/* Idle processors that look for events themselves. */
	u32 lookers;

	spinlock_t slot_lock;
	unsigned long free_slots;
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
	return !READ_ONCE(vm.is_gone) && READ_ONCE(*word_at(VMRPC_STATUS_AT)) == VMRPC_STATUS_SERVING;
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

static int take_slot(void)
{
	unsigned long flags;
	int slot;

	spin_lock_irqsave(&vm.slot_lock, flags);
	slot = vm.free_slots ? __ffs(vm.free_slots) : -1;
	if (slot >= 0)
		__clear_bit(slot, &vm.free_slots);
	spin_unlock_irqrestore(&vm.slot_lock, flags);
	return slot;
}

int vmrpc_begin(struct vmrpc_call *call, u32 op, u32 socket)
{
	u32 word;

	wait_event(vm.slot_free, (call->slot = take_slot()) >= 0 || !vmrpc_alive());
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

void vmrpc_put_address(struct vmrpc_call *call, const struct sockaddr_in *address)
{
	vmrpc_put(call, VMRPC_REQUEST_ADDRESS, 4);
	vmrpc_put(call, VMRPC_REQUEST_ADDRESS + 1, ntohs(address->sin_port));
	vmrpc_put(call, VMRPC_REQUEST_ADDRESS + 2, (__force u32)address->sin_addr.s_addr);
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
		call->slot = -1;
		return -ECONNRESET;
	}
	call->result = READ_ONCE(*slot_word(slot, VMRPC_RESPONSE_RESULT));
	call->length = READ_ONCE(*slot_word(slot, VMRPC_RESPONSE_LENGTH));
	call->flags = READ_ONCE(*slot_word(slot, VMRPC_RESPONSE_FLAGS));
	call->socket = READ_ONCE(*slot_word(slot, VMRPC_RESPONSE_SOCKET));
	memset(&call->address, 0, sizeof(call->address));
	if (READ_ONCE(*slot_word(slot, VMRPC_RESPONSE_ADDRESS)) == 4) {
		call->address.sin_family = AF_INET;
		call->address.sin_port = htons(READ_ONCE(*slot_word(slot, VMRPC_RESPONSE_ADDRESS + 1)));
		call->address.sin_addr.s_addr =
			(__force __be32)READ_ONCE(*slot_word(slot, VMRPC_RESPONSE_ADDRESS + 2));
	}
	if (call->result < -MAX_ERRNO || call->length > VMRPC_DATA_BYTES)
		call->result = -EIO;
	return call->result;
}

void vmrpc_end(struct vmrpc_call *call)
{
	unsigned long flags;

	if (call->slot < 0)
		return;
	WRITE_ONCE(*slot_word(call->slot, VMRPC_REQUEST_STATE), VMRPC_FREE);
	spin_lock_irqsave(&vm.slot_lock, flags);
	__set_bit(call->slot, &vm.free_slots);
	spin_unlock_irqrestore(&vm.slot_lock, flags);
	wake_up(&vm.slot_free);
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

/* Takes all events, and wants an interrupt for the next one unless somebody looks. Called with the lock. */
static void take_events(void)
{
	if (READ_ONCE(*word_at(VMRPC_STATUS_AT)) == VMRPC_STATUS_GONE)
		set_gone("the host has gone");
	while (!vm.is_gone) {
		WRITE_ONCE(*word_at(VMRPC_NEED_IRQ_AT), 0);
		drain();
		WRITE_ONCE(*word_at(VMRPC_NEED_IRQ_AT), !vm.lookers);
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
	WRITE_ONCE(*word_at(VMRPC_NEED_IRQ_AT), 0);
	vmrpc_unlock_events(flags);
}

void vmrpc_look_away(void)
{
	unsigned long flags = vmrpc_lock_events();

	vm.lookers--;
	take_events();
	vmrpc_unlock_events(flags);
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
	    READ_ONCE(*word_at(VMRPC_VERSION_AT)) == VMRPC_VERSION && vmrpc_alive())
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
	vm.free_slots = GENMASK(VMRPC_SLOTS - 1, 0);
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
	struct vmrpc_call call;
	int error = pci_register_driver(&driver);

	if (error)
		return error;
	error = -ENODEV;
	if (!vm.device)
		goto unregister;
	error = vmrpc_begin(&call, VMRPC_HELLO, 0);
	if (error)
		goto unregister;
	error = vmrpc_call(&call);
	vmrpc_end(&call);
	if (!error)
		return 0;
unregister:
	pci_unregister_driver(&driver);
	return error;
}

void vmrpc_stop(void)
{
	pci_unregister_driver(&driver);
}
