// SPDX-License-Identifier: GPL-2.0-only
/*
 * Calls and events over the shared memory of QEMU's ivshmem-doorbell device (docs/vmrpc.md).
 *
 * Nothing that the host writes is believed: words are read once and checked. A host that says what cannot be,
 * or that does not answer, has gone, and its sockets with it; a slot whose answer is missing is not used
 * again before another server says that it took over the memory, because the one before may still write into
 * it.
 */
#include <linux/cpuhotplug.h>
#include <linux/delay.h>
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
#define ALL_SLOTS GENMASK(VMRPC_QUEUE_SLOTS - 1, 0)

static uint spin_us = 50;
module_param(spin_us, uint, 0644);
MODULE_PARM_DESC(spin_us, "microseconds that a caller spins for its answer before it sleeps");

static bool conventional;
module_param(conventional, bool, 0444);
MODULE_PARM_DESC(conventional, "an interrupt for each event, for comparison");

/*
 * What stands in shared memory for each processor, and what belongs to it: nobody waits for a lock that a
 * processor holds which does not run. Processors beyond the queues share them.
 */
struct queue {
	/* Calls. */
	spinlock_t submit_lock;
	u32 submission_head;
	unsigned long free_slots;
	/* Slots whose answers are missing. */
	unsigned long lost_slots;
	wait_queue_head_t slot_free;

	/* Events. */
	spinlock_t event_lock;
	u32 event_tail;
	/* Its processors that are online, that look for events themselves, and that have halted. */
	u32 online;
	u32 lookers;
	u32 halted;

	/* Counted for the parameters of these names. */
	ulong calls, sleeps, interrupts, doorbells, events, idle_events;
} ____cacheline_aligned_in_smp;

static struct {
	struct pci_dev *device;
	void *memory;
	void __iomem *registers;
	bool is_gone;
	/* The server's number that the host wrote, and ours, which changes when we have noticed. */
	u32 incarnation;
	u32 generation;
	struct work_struct start_again;
	/* Idle processors look for events themselves. */
	bool idle_looks;
	/* The state of hotplug that follows processors meanwhile. */
	enum cpuhp_state hotplug;

	/* As many as there are processors and interrupts for them. */
	u32 queue_count;
	struct queue queues[VMRPC_QUEUES];
	wait_queue_head_t slot_done[VMRPC_SLOTS];
} vm;

static DEFINE_PER_CPU(struct timer_list, ticks);

/* The sum of a counter over all queues. */
static int get_count(char *buffer, const struct kernel_param *parameter)
{
	ulong sum = 0;
	u32 queue;

	for (queue = 0; queue < VMRPC_QUEUES; queue++)
		sum += READ_ONCE(*(ulong *)((char *)&vm.queues[queue] + (size_t)parameter->arg));
	return sysfs_emit(buffer, "%lu\n", sum);
}

static const struct kernel_param_ops count_ops = { .get = get_count };

module_param_cb(calls, &count_ops, (void *)offsetof(struct queue, calls), 0444);
module_param_cb(sleeps, &count_ops, (void *)offsetof(struct queue, sleeps), 0444);
module_param_cb(interrupts, &count_ops, (void *)offsetof(struct queue, interrupts), 0444);
module_param_cb(doorbells, &count_ops, (void *)offsetof(struct queue, doorbells), 0444);
module_param_cb(events, &count_ops, (void *)offsetof(struct queue, events), 0444);
module_param_cb(idle_events, &count_ops, (void *)offsetof(struct queue, idle_events), 0444);

static u32 *word_at(u32 at)
{
	return vm.memory + at;
}

static u32 *slot_word(int slot, u32 word)
{
	return word_at(VMRPC_HEADERS_AT + slot * VMRPC_HEADER_BYTES + word * 4);
}

static u32 *queue_word(struct queue *queue, u32 place)
{
	return word_at(VMRPC_QUEUES_AT + (queue - vm.queues) * VMRPC_QUEUE_BYTES + place);
}

/* That of the processor that runs this. Who may be moved to another one meanwhile still has a sound one. */
static struct queue *own_queue(void)
{
	return &vm.queues[raw_smp_processor_id() % vm.queue_count];
}

static struct queue *queue_of(int slot)
{
	return &vm.queues[slot / VMRPC_QUEUE_SLOTS];
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

void vmrpc_wait_here(u32 socket)
{
	WRITE_ONCE(*word_at(VMRPC_HOME_AT + socket * 4), own_queue() - vm.queues);
	/* Either the host sees who waits, or we see what the socket is ready for. */
	smp_mb();
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

static void set_gone(const char *why)
{
	u32 index;

	if (xchg(&vm.is_gone, true))
		return;
	pr_warn("punctual_sockets: %s; its sockets are reset\n", why);
	for (index = 0; index < VMRPC_SLOTS; index++)
		wake_up_all(&vm.slot_done[index]);
	for (index = 0; index < VMRPC_QUEUES; index++)
		wake_up_all(&vm.queues[index].slot_free);
	vmrpc_on_gone();
}

/* A free slot of a queue for a socket of this generation, or -1. */
static int take_slot(struct queue *queue, u32 generation)
{
	unsigned long flags;
	int slot = -1;

	spin_lock_irqsave(&queue->submit_lock, flags);
	/* A server that is there again has its new number. */
	if (queue->free_slots && !smp_load_acquire(&vm.is_gone) && generation == READ_ONCE(vm.generation)) {
		slot = __ffs(queue->free_slots);
		__clear_bit(slot, &queue->free_slots);
		slot += (queue - vm.queues) * VMRPC_QUEUE_SLOTS;
	}
	spin_unlock_irqrestore(&queue->submit_lock, flags);
	return slot;
}

/* Slots are free_slots or lost_slots of the slot's queue. */
static void give_back(int slot, unsigned long *slots)
{
	struct queue *queue = queue_of(slot);
	unsigned long flags;

	spin_lock_irqsave(&queue->submit_lock, flags);
	__set_bit(slot % VMRPC_QUEUE_SLOTS, slots);
	spin_unlock_irqrestore(&queue->submit_lock, flags);
	wake_up(&queue->slot_free);
}

int vmrpc_begin(struct vmrpc_call *call, u32 op, u32 socket, u32 generation)
{
	struct queue *queue = own_queue();
	u32 word;

	wait_event(queue->slot_free, (call->slot = take_slot(queue, generation)) >= 0 || !vmrpc_alive() ||
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
	struct queue *queue = queue_of(slot);
	unsigned long flags;
	bool is_host_asleep;
	u32 at;

	smp_store_release(slot_word(slot, VMRPC_REQUEST_STATE), VMRPC_SUBMITTED);
	spin_lock_irqsave(&queue->submit_lock, flags);
	at = VMRPC_QUEUE_SUBMISSIONS + queue->submission_head % VMRPC_QUEUE_SLOTS * 4;
	WRITE_ONCE(*queue_word(queue, at), slot);
	queue->submission_head++;
	smp_store_release(queue_word(queue, VMRPC_QUEUE_SUBMISSION_HEAD), queue->submission_head);
	/* Either the host sees the submission before it sleeps, or we see that it sleeps. */
	smp_mb();
	is_host_asleep = READ_ONCE(*word_at(VMRPC_HOST_SLEEPING_AT));
	queue->calls++;
	queue->doorbells += is_host_asleep;
	spin_unlock_irqrestore(&queue->submit_lock, flags);
	if (is_host_asleep)
		writel(HOST_PEER << 16, vm.registers + DOORBELL);
}

/* Waits for the answer; false when there is none. */
static bool await(int slot)
{
	u64 end = local_clock() + spin_us * 1000ull;
	unsigned long flags;
	struct queue *queue;

	do {
		if (is_done(slot))
			return true;
		cpu_relax();
	} while (local_clock() < end);
	queue = own_queue();
	spin_lock_irqsave(&queue->submit_lock, flags);
	queue->sleeps++;
	spin_unlock_irqrestore(&queue->submit_lock, flags);
	WRITE_ONCE(*slot_word(slot, VMRPC_REQUEST_WANT_EVENT), queue - vm.queues + 1);
	/* Either the host sees that we sleep, or we see that it is done. */
	smp_mb();
	wait_event_timeout(vm.slot_done[slot], is_done(slot) || !vmrpc_alive(), ANSWER_LIMIT);
	return is_done(slot);
}

int vmrpc_call(struct vmrpc_call *call)
{
	int slot = call->slot;

	submit(slot);
	if (!await(slot)) {
		set_gone("the host does not answer");
		give_back(slot, &queue_of(slot)->lost_slots);
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
	give_back(call->slot, &queue_of(call->slot)->free_slots);
}

/* Takes what is in an event queue. The caller holds its lock. */
static void drain(struct queue *queue)
{
	u32 budget = VMRPC_EVENTS, index, at;

	while (smp_load_acquire(queue_word(queue, VMRPC_QUEUE_EVENT_HEAD)) != queue->event_tail) {
		at = VMRPC_QUEUE_EVENTS + queue->event_tail % VMRPC_EVENTS * 4;
		index = READ_ONCE(*queue_word(queue, at));
		queue->event_tail++;
		WRITE_ONCE(*queue_word(queue, VMRPC_QUEUE_EVENT_TAIL), queue->event_tail);
		if (index >= VMRPC_SOCKETS + VMRPC_SLOTS || !budget--) {
			set_gone("the host's event queue is broken");
			return;
		}
		/* What the event is about is read after this, so the next change is an event of its own. */
		atomic_fetch_andnot(BIT(queue - vm.queues), (atomic_t *)word_at(VMRPC_QUEUED_AT + index * 4));
		queue->events++;
		if (index >= VMRPC_SOCKETS)
			wake_up_all(&vm.slot_done[index - VMRPC_SOCKETS]);
		else
			vmrpc_on_event(index);
	}
}

static bool has_event(struct queue *queue)
{
	return READ_ONCE(*queue_word(queue, VMRPC_QUEUE_EVENT_HEAD)) != READ_ONCE(queue->event_tail) &&
	       !READ_ONCE(vm.is_gone);
}

bool vmrpc_has_event(void)
{
	return has_event(own_queue());
}

bool vmrpc_is_conventional(void)
{
	return conventional;
}

/* Does the next event of a queue need an interrupt? The caller holds its lock. */
static bool wants_interrupt(struct queue *queue)
{
	if (conventional || !vm.idle_looks || !queue->online)
		return true;
	return !queue->lookers && queue->halted;
}

static void want_interrupt(struct queue *queue, bool does)
{
	WRITE_ONCE(*queue_word(queue, VMRPC_QUEUE_NEED_IRQ), does || conventional);
}

/* Has the host gone, or another one taken its place? */
static void look_at_host(void)
{
	if (READ_ONCE(*word_at(VMRPC_INCARNATION_AT)) != READ_ONCE(vm.incarnation)) {
		set_gone("another server has begun");
		schedule_work(&vm.start_again);
	} else if (READ_ONCE(*word_at(VMRPC_STATUS_AT)) == VMRPC_STATUS_GONE) {
		set_gone("the host has gone");
	}
}

/* Takes all events of a queue and says whether the next one needs an interrupt. The caller holds its lock. */
static void take_events(struct queue *queue)
{
	look_at_host();
	while (!READ_ONCE(vm.is_gone)) {
		want_interrupt(queue, false);
		drain(queue);
		want_interrupt(queue, wants_interrupt(queue));
		/* Either the host sees that we want an interrupt, or we see its event. */
		smp_mb();
		if (!has_event(queue))
			break;
	}
}

/* The same, after so many more of its processors are online, look for events, or have halted. */
static void change(struct queue *queue, int online, int lookers, int halted)
{
	unsigned long flags;

	spin_lock_irqsave(&queue->event_lock, flags);
	queue->online += online;
	queue->lookers += lookers;
	queue->halted += halted;
	take_events(queue);
	spin_unlock_irqrestore(&queue->event_lock, flags);
}

void vmrpc_take_events(void)
{
	change(own_queue(), 0, 0, 0);
}

void vmrpc_look(void)
{
	change(own_queue(), 0, 1, 0);
}

void vmrpc_look_again(void)
{
	struct queue *queue = own_queue();

	if (!has_event(queue))
		return;
	queue->idle_events++;
	change(queue, 0, 0, 0);
}

void vmrpc_look_away(void)
{
	change(own_queue(), 0, -1, 0);
}

void vmrpc_halt(void)
{
	change(own_queue(), 0, 0, 1);
}

void vmrpc_resume(void)
{
	change(own_queue(), 0, 0, -1);
}

/* A processor at work looks at its ticks: nobody waits longer because others do not let it be idle. */
static void on_tick(struct timer_list *tick)
{
	if (vmrpc_has_event())
		vmrpc_take_events();
	mod_timer(tick, jiffies + 1);
}

/* Both run on the processor that has come, or goes. The interrupt of one that has gone is another's. */
static int on_online(unsigned int processor)
{
	struct timer_list *tick = per_cpu_ptr(&ticks, processor);

	timer_setup(tick, on_tick, TIMER_DEFERRABLE | TIMER_PINNED);
	tick->expires = jiffies + 1;
	add_timer_on(tick, processor);
	change(own_queue(), 1, 0, 0);
	return 0;
}

static int on_offline(unsigned int processor)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0)
	timer_delete_sync(per_cpu_ptr(&ticks, processor));
#else
	del_timer_sync(per_cpu_ptr(&ticks, processor));
#endif
	change(own_queue(), -1, 0, 0);
	return 0;
}

int vmrpc_idle_looks(bool does)
{
	int state;
	u32 queue;

	if (does) {
		state = cpuhp_setup_state(CPUHP_AP_ONLINE_DYN, "punctual_sockets:online", on_online, on_offline);
		if (state < 0)
			return state;
		vm.hotplug = state;
	} else {
		cpuhp_remove_state(vm.hotplug);
	}
	WRITE_ONCE(vm.idle_looks, does);
	for (queue = 0; queue < vm.queue_count; queue++)
		change(&vm.queues[queue], 0, 0, 0);
	return 0;
}

static bool all_slots_are_back(void)
{
	unsigned long flags, back;
	u32 index;

	for (index = 0; index < VMRPC_QUEUES; index++) {
		spin_lock_irqsave(&vm.queues[index].submit_lock, flags);
		back = vm.queues[index].free_slots | vm.queues[index].lost_slots;
		spin_unlock_irqrestore(&vm.queues[index].submit_lock, flags);
		if (back != ALL_SLOTS)
			return false;
	}
	return true;
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

/* Forgets what was queued by the server before. */
static void empty(struct queue *queue)
{
	unsigned long flags;

	spin_lock_irqsave(&queue->event_lock, flags);
	queue->event_tail = READ_ONCE(*queue_word(queue, VMRPC_QUEUE_EVENT_HEAD));
	WRITE_ONCE(*queue_word(queue, VMRPC_QUEUE_EVENT_TAIL), queue->event_tail);
	spin_unlock_irqrestore(&queue->event_lock, flags);
	spin_lock_irqsave(&queue->submit_lock, flags);
	queue->free_slots = ALL_SLOTS;
	queue->lost_slots = 0;
	spin_unlock_irqrestore(&queue->submit_lock, flags);
}

/* Another server has begun in this memory. The one before has ended, so all slots are ours again. */
static void start_again(struct work_struct *unused)
{
	u32 index;

	/* It may have been scheduled twice. */
	if (!READ_ONCE(vm.is_gone))
		return;
	while (!all_slots_are_back())
		msleep(1);
	WRITE_ONCE(vm.incarnation, READ_ONCE(*word_at(VMRPC_INCARNATION_AT)));
	for (index = 0; index < VMRPC_QUEUES; index++)
		empty(&vm.queues[index]);
	for (index = 0; index < VMRPC_SOCKETS + VMRPC_SLOTS; index++)
		WRITE_ONCE(*word_at(VMRPC_QUEUED_AT + index * 4), 0);
	WRITE_ONCE(vm.generation, vm.generation + 1);
	/* Who sees that it is there sees its number. */
	smp_store_release(&vm.is_gone, false);
	for (index = 0; index < vm.queue_count; index++)
		change(&vm.queues[index], 0, 0, 0);
	if (!say_hello())
		pr_info("punctual_sockets: new sockets are those of another server\n");
}

static irqreturn_t on_interrupt(int irq, void *given)
{
	struct queue *queue = given;
	unsigned long flags;

	spin_lock_irqsave(&queue->event_lock, flags);
	queue->interrupts++;
	take_events(queue);
	spin_unlock_irqrestore(&queue->event_lock, flags);
	return IRQ_HANDLED;
}

/* Each queue has an interrupt, which its processors get. */
static void free_interrupts(struct pci_dev *device, u32 count)
{
	while (count--)
		free_irq(pci_irq_vector(device, count), &vm.queues[count]);
	pci_free_irq_vectors(device);
}

static int request_interrupts(struct pci_dev *device)
{
	u32 queue, processor, most = min_t(u32, VMRPC_QUEUES, num_possible_cpus());
	cpumask_var_t processors;
	int irq, error = 0, count = pci_alloc_irq_vectors(device, 1, most, PCI_IRQ_MSIX);

	if (count < 0)
		return count;
	if (!zalloc_cpumask_var(&processors, GFP_KERNEL)) {
		pci_free_irq_vectors(device);
		return -ENOMEM;
	}
	vm.queue_count = count;
	for (queue = 0; queue < count; queue++) {
		irq = pci_irq_vector(device, queue);
		error = request_irq(irq, on_interrupt, 0, "punctual_sockets", &vm.queues[queue]);
		if (error) {
			free_interrupts(device, queue);
			break;
		}
		cpumask_clear(processors);
		for_each_online_cpu(processor)
			if (processor % count == queue)
				cpumask_set_cpu(processor, processors);
		/* Where that cannot be, another processor takes them. */
		if (!cpumask_empty(processors))
			irq_set_affinity(irq, processors);
	}
	free_cpumask_var(processors);
	return error;
}

/* Both sides say which version they speak, before anything else. */
static int check_version(void)
{
	u32 version = READ_ONCE(*word_at(VMRPC_VERSION_AT));

	if (READ_ONCE(*word_at(VMRPC_MAGIC_AT)) != VMRPC_MAGIC) {
		pr_err("punctual_sockets: no server of sockets is behind the device\n");
		return -ENODEV;
	}
	WRITE_ONCE(*word_at(VMRPC_GUEST_VERSION_AT), VMRPC_VERSION);
	mb();
	writel(HOST_PEER << 16, vm.registers + DOORBELL);
	if (version == VMRPC_VERSION && pci_resource_len(vm.device, 2) >= VMRPC_BYTES)
		return READ_ONCE(*word_at(VMRPC_STATUS_AT)) == VMRPC_STATUS_SERVING ? 0 : -ENODEV;
	pr_err("punctual_sockets: the host's server speaks version %u, this module version %u\n", version,
	       VMRPC_VERSION);
	return -EPROTONOSUPPORT;
}

static int map_memory(struct pci_dev *device)
{
	size_t bytes = min_t(resource_size_t, pci_resource_len(device, 2), VMRPC_BYTES);

	/* The words about versions stand in any. */
	if (bytes < PAGE_SIZE)
		return -ENODEV;
	vm.memory = memremap(pci_resource_start(device, 2), bytes, MEMREMAP_WB);
	if (!vm.memory)
		return -ENOMEM;
	vm.registers = pci_iomap(device, 0, 0);
	if (vm.registers)
		return 0;
	memunmap(vm.memory);
	return -ENOMEM;
}

static void unmap_memory(struct pci_dev *device)
{
	pci_iounmap(device, vm.registers);
	memunmap(vm.memory);
}

/* Goes on where the module before this one left the memory. */
static void init_queues(void)
{
	struct queue *queue;
	u32 index;

	memset(vm.queues, 0, sizeof(vm.queues));
	for (index = 0; index < VMRPC_QUEUES; index++) {
		queue = &vm.queues[index];
		spin_lock_init(&queue->submit_lock);
		spin_lock_init(&queue->event_lock);
		init_waitqueue_head(&queue->slot_free);
		queue->free_slots = ALL_SLOTS;
		queue->submission_head = READ_ONCE(*queue_word(queue, VMRPC_QUEUE_SUBMISSION_HEAD));
		queue->event_tail = READ_ONCE(*queue_word(queue, VMRPC_QUEUE_EVENT_TAIL));
		WRITE_ONCE(*queue_word(queue, VMRPC_QUEUE_NEED_IRQ), 0);
	}
	for (index = 0; index < VMRPC_SLOTS; index++)
		init_waitqueue_head(&vm.slot_done[index]);
	vm.incarnation = READ_ONCE(*word_at(VMRPC_INCARNATION_AT));
	INIT_WORK(&vm.start_again, start_again);
}

static int probe(struct pci_dev *device, const struct pci_device_id *id)
{
	u32 queue;
	int error;

	if (vm.device)
		return -EBUSY;
	error = pci_enable_device(device);
	if (error)
		return error;
	error = pci_request_regions(device, "punctual_sockets");
	if (error)
		goto disable;
	error = map_memory(device);
	if (error)
		goto release;
	pci_set_master(device);
	vm.device = device;
	error = check_version();
	if (error)
		goto unmap;
	init_queues();
	error = request_interrupts(device);
	if (error)
		goto unmap;
	/* What came before we listened. */
	for (queue = 0; queue < vm.queue_count; queue++)
		change(&vm.queues[queue], 0, 0, 0);
	return 0;
unmap:
	vm.device = NULL;
	unmap_memory(device);
release:
	pci_release_regions(device);
disable:
	pci_disable_device(device);
	return error;
}

static void remove(struct pci_dev *device)
{
	u32 queue;

	for (queue = 0; queue < vm.queue_count; queue++)
		WRITE_ONCE(*queue_word(&vm.queues[queue], VMRPC_QUEUE_NEED_IRQ), 0);
	free_interrupts(device, vm.queue_count);
	cancel_work_sync(&vm.start_again);
	unmap_memory(device);
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
