// SPDX-License-Identifier: GPL-2.0-only
/*
 * Calls and events over the shared memory of QEMU's ivshmem-doorbell device (docs/vmrpc.md).
 *
 * The host is not trusted: every word that it writes is read once and checked. A host that violates the
 * protocol or does not answer counts as gone, and its sockets are reset. A slot without an answer stays
 * unused until another server takes over the memory, because the old server may still write into the slot.
 *
 * Locking: submit_lock guards the slots and the submission ring of a queue, event_lock its event queue and
 * the state of its CPUs. Both are taken with interrupts off and never nest, except that vmrpc_ops callbacks
 * and wake-ups run under event_lock.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/sched/clock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "transport.h"
#include "vmrpc.h"

#define DOORBELL 12
#define HOST_PEER 0
/* Limit on the wait for a response. A live server responds at once, because no call blocks in it. */
#define ANSWER_LIMIT (10 * HZ)
#define ALL_SLOTS GENMASK(VMRPC_QUEUE_SLOTS - 1, 0)

static uint spin_us = 50;
module_param(spin_us, uint, 0644);
MODULE_PARM_DESC(spin_us, "microseconds that a caller spins for the response before it sleeps");

static bool conventional;
module_param(conventional, bool, 0444);
MODULE_PARM_DESC(conventional, "raise an interrupt for each event, for comparison");

/*
 * State of one queue in shared memory. Each CPU has its own queue, so that no CPU waits for a lock whose
 * holder the host has preempted. CPUs beyond the number of queues share them.
 */
struct queue {
	/* Calls. */
	spinlock_t submit_lock;
	u32 submission_head;
	unsigned long free_slots;
	/* Slots that never received a response. */
	unsigned long lost_slots;
	wait_queue_head_t slot_free;

	/* Events. */
	spinlock_t event_lock;
	u32 event_tail;
	/* CPUs of this queue that are online, that poll for events, and that have halted. */
	u32 online;
	u32 pollers;
	u32 halted;

	/* Values of the module parameters of these names. */
	ulong calls, sleeps, interrupts, doorbells, events, idle_events;
} ____cacheline_aligned_in_smp;

static struct {
	const struct vmrpc_ops *ops;
	struct pci_dev *device;
	void *memory;
	void __iomem *registers;
	bool is_gone;
	/* The host's number of the current server, and the number that sockets carry. */
	u32 incarnation;
	u32 generation;
	struct work_struct reconnect;
	bool idle_polling;

	/* Queues in use: one for each interrupt vector. */
	u32 queue_count;
	struct queue queues[VMRPC_QUEUES];
	wait_queue_head_t slot_done[VMRPC_SLOTS];
} vm;

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

/* The queue of this CPU. A caller that migrates afterwards still holds a valid queue. */
static struct queue *this_queue(void)
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
	WRITE_ONCE(*word_at(VMRPC_HOME_AT + socket * 4), this_queue() - vm.queues);
	/* Order: either the host reads this home, or the caller reads the new ready word. */
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

static void set_host_gone(const char *why)
{
	u32 index;

	if (xchg(&vm.is_gone, true))
		return;
	pr_warn("%s; its sockets are reset\n", why);
	for (index = 0; index < VMRPC_SLOTS; index++)
		wake_up_all(&vm.slot_done[index]);
	for (index = 0; index < VMRPC_QUEUES; index++)
		wake_up_all(&vm.queues[index].slot_free);
	vm.ops->host_gone();
}

/* Takes a free slot for a socket of this generation; -1 when there is none. */
static int take_slot(struct queue *queue, u32 generation)
{
	unsigned long flags;
	int slot = -1;

	spin_lock_irqsave(&queue->submit_lock, flags);
	/* Pairs with the release in reconnect(): a new server is seen with its new generation. */
	if (queue->free_slots && !smp_load_acquire(&vm.is_gone) && generation == READ_ONCE(vm.generation)) {
		slot = __ffs(queue->free_slots);
		__clear_bit(slot, &queue->free_slots);
		slot += (queue - vm.queues) * VMRPC_QUEUE_SLOTS;
	}
	spin_unlock_irqrestore(&queue->submit_lock, flags);
	return slot;
}

/* Puts a slot into free_slots or lost_slots of its queue. */
static void release_slot(int slot, unsigned long *slots)
{
	struct queue *queue = queue_of(slot);
	unsigned long flags;

	spin_lock_irqsave(&queue->submit_lock, flags);
	/* A slot has one owner: it is in neither set while a call uses it. */
	WARN_ON_ONCE(test_bit(slot % VMRPC_QUEUE_SLOTS, &queue->free_slots) ||
		     test_bit(slot % VMRPC_QUEUE_SLOTS, &queue->lost_slots));
	__set_bit(slot % VMRPC_QUEUE_SLOTS, slots);
	spin_unlock_irqrestore(&queue->submit_lock, flags);
	wake_up(&queue->slot_free);
}

int vmrpc_begin(struct vmrpc_call *call, u32 op, u32 socket, u32 generation)
{
	struct queue *queue = this_queue();
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
	/* Order: either the host sees the submission before it sleeps, or this CPU sees host_sleeping. */
	smp_mb();
	is_host_asleep = READ_ONCE(*word_at(VMRPC_HOST_SLEEPING_AT));
	queue->calls++;
	queue->doorbells += is_host_asleep;
	spin_unlock_irqrestore(&queue->submit_lock, flags);
	if (is_host_asleep)
		writel(HOST_PEER << 16, vm.registers + DOORBELL);
}

/* Spins, then sleeps, until the response is there. Returns false when the host does not respond. */
static bool wait_for_response(int slot)
{
	u64 end = local_clock() + spin_us * 1000ull;
	unsigned long flags;
	struct queue *queue;

	do {
		if (is_done(slot))
			return true;
		cpu_relax();
	} while (local_clock() < end);
	queue = this_queue();
	spin_lock_irqsave(&queue->submit_lock, flags);
	queue->sleeps++;
	spin_unlock_irqrestore(&queue->submit_lock, flags);
	WRITE_ONCE(*slot_word(slot, VMRPC_REQUEST_WANT_EVENT), queue - vm.queues + 1);
	/* Order: either the host sees want_event, or this CPU sees the response. */
	smp_mb();
	wait_event_timeout(vm.slot_done[slot], is_done(slot) || !vmrpc_alive(), ANSWER_LIMIT);
	return is_done(slot);
}

int vmrpc_call(struct vmrpc_call *call)
{
	int slot = call->slot;

	submit(slot);
	if (!wait_for_response(slot)) {
		set_host_gone("the host does not answer");
		release_slot(slot, &queue_of(slot)->lost_slots);
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
	release_slot(call->slot, &queue_of(call->slot)->free_slots);
}

/* Processes the events in a queue. The budget bounds the loop against a host that adds events without end. */
static void drain(struct queue *queue)
{
	u32 budget = VMRPC_EVENTS, index, at;

	lockdep_assert_held(&queue->event_lock);
	while (smp_load_acquire(queue_word(queue, VMRPC_QUEUE_EVENT_HEAD)) != queue->event_tail) {
		at = VMRPC_QUEUE_EVENTS + queue->event_tail % VMRPC_EVENTS * 4;
		index = READ_ONCE(*queue_word(queue, at));
		queue->event_tail++;
		WRITE_ONCE(*queue_word(queue, VMRPC_QUEUE_EVENT_TAIL), queue->event_tail);
		if (index >= VMRPC_SOCKETS + VMRPC_SLOTS || !budget--) {
			set_host_gone("the host's event queue is broken");
			return;
		}
		/* Clear the bit before reading what changed, so that the next change queues a new event. */
		atomic_fetch_andnot(BIT(queue - vm.queues), (atomic_t *)word_at(VMRPC_QUEUED_AT + index * 4));
		queue->events++;
		if (index >= VMRPC_SOCKETS)
			wake_up_all(&vm.slot_done[index - VMRPC_SOCKETS]);
		else
			vm.ops->socket_event(index);
	}
}

static bool has_event(struct queue *queue)
{
	return READ_ONCE(*queue_word(queue, VMRPC_QUEUE_EVENT_HEAD)) != READ_ONCE(queue->event_tail) &&
	       !READ_ONCE(vm.is_gone);
}

bool vmrpc_has_event(void)
{
	return has_event(this_queue());
}

bool vmrpc_is_conventional(void)
{
	return conventional;
}

/* Does the next event of a queue need an interrupt? */
static bool needs_irq(struct queue *queue)
{
	lockdep_assert_held(&queue->event_lock);
	if (conventional || !vm.idle_polling || !queue->online)
		return true;
	return !queue->pollers && queue->halted;
}

static void set_need_irq(struct queue *queue, bool is_needed)
{
	WRITE_ONCE(*queue_word(queue, VMRPC_QUEUE_NEED_IRQ), is_needed || conventional);
}

/* Detects that the server has ended, or that another one has taken its place. */
static void check_host(void)
{
	if (READ_ONCE(*word_at(VMRPC_INCARNATION_AT)) != READ_ONCE(vm.incarnation)) {
		set_host_gone("another server has started");
		schedule_work(&vm.reconnect);
	} else if (READ_ONCE(*word_at(VMRPC_STATUS_AT)) == VMRPC_STATUS_GONE) {
		set_host_gone("the host has gone");
	}
}

/* Processes all events of a queue and updates need_irq. */
static void take_events(struct queue *queue)
{
	lockdep_assert_held(&queue->event_lock);
	check_host();
	while (!READ_ONCE(vm.is_gone)) {
		set_need_irq(queue, false);
		drain(queue);
		set_need_irq(queue, needs_irq(queue));
		/* Order: either the host sees need_irq, or this CPU sees the next event. */
		smp_mb();
		if (!has_event(queue))
			break;
	}
}

/* Changes the numbers of CPUs in each state, then processes all events. */
static void update_queue(struct queue *queue, int online, int pollers, int halted)
{
	unsigned long flags;

	spin_lock_irqsave(&queue->event_lock, flags);
	queue->online += online;
	queue->pollers += pollers;
	queue->halted += halted;
	WARN_ON_ONCE((s32)queue->online < 0 || (s32)queue->pollers < 0 || (s32)queue->halted < 0);
	take_events(queue);
	spin_unlock_irqrestore(&queue->event_lock, flags);
}

static void update_all_queues(void)
{
	u32 queue;

	for (queue = 0; queue < vm.queue_count; queue++)
		update_queue(&vm.queues[queue], 0, 0, 0);
}

void vmrpc_take_events(void)
{
	update_queue(this_queue(), 0, 0, 0);
}

void vmrpc_poll_begin(void)
{
	update_queue(this_queue(), 0, 1, 0);
}

void vmrpc_poll(void)
{
	struct queue *queue = this_queue();

	if (!has_event(queue))
		return;
	queue->idle_events++;
	update_queue(queue, 0, 0, 0);
}

void vmrpc_poll_end(void)
{
	update_queue(this_queue(), 0, -1, 0);
}

void vmrpc_halt_begin(void)
{
	update_queue(this_queue(), 0, 0, 1);
}

void vmrpc_halt_end(void)
{
	update_queue(this_queue(), 0, 0, -1);
}

void vmrpc_cpu_online(void)
{
	update_queue(this_queue(), 1, 0, 0);
}

void vmrpc_cpu_offline(void)
{
	update_queue(this_queue(), -1, 0, 0);
}

void vmrpc_set_idle_polling(bool is_on)
{
	WRITE_ONCE(vm.idle_polling, is_on);
	update_all_queues();
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

static int send_hello(void)
{
	struct vmrpc_call call;
	int error = vmrpc_begin(&call, VMRPC_HELLO, 0, vmrpc_generation());

	if (error)
		return error;
	error = vmrpc_call(&call);
	vmrpc_end(&call);
	return error;
}

/* Discards the old server's events and takes all slots back. */
static void reset_queue(struct queue *queue)
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

/* Connects to a new server. The old one has ended, so it no longer writes into any slot. */
static void reconnect(struct work_struct *unused)
{
	u32 index;

	/* The work may have been scheduled twice. */
	if (!READ_ONCE(vm.is_gone))
		return;
	while (!all_slots_are_back())
		msleep(1);
	WRITE_ONCE(vm.incarnation, READ_ONCE(*word_at(VMRPC_INCARNATION_AT)));
	for (index = 0; index < VMRPC_QUEUES; index++)
		reset_queue(&vm.queues[index]);
	for (index = 0; index < VMRPC_SOCKETS + VMRPC_SLOTS; index++)
		WRITE_ONCE(*word_at(VMRPC_QUEUED_AT + index * 4), 0);
	WRITE_ONCE(vm.generation, vm.generation + 1);
	/* Pairs with the acquire in take_slot(): a reader that sees the server sees its generation. */
	smp_store_release(&vm.is_gone, false);
	update_all_queues();
	if (!send_hello())
		pr_info("new sockets belong to a new server\n");
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

static void free_interrupts(struct pci_dev *device, u32 count)
{
	while (count--)
		free_irq(pci_irq_vector(device, count), &vm.queues[count]);
	pci_free_irq_vectors(device);
}

/* Requests one interrupt for each queue and binds it to the queue's CPUs. */
static int request_interrupts(struct pci_dev *device)
{
	u32 queue, cpu, most = min_t(u32, VMRPC_QUEUES, num_possible_cpus());
	cpumask_var_t cpus;
	int irq, error = 0, count = pci_alloc_irq_vectors(device, 1, most, PCI_IRQ_MSIX);

	if (count < 0)
		return count;
	if (!zalloc_cpumask_var(&cpus, GFP_KERNEL)) {
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
		cpumask_clear(cpus);
		for_each_online_cpu(cpu)
			if (cpu % count == queue)
				cpumask_set_cpu(cpu, cpus);
		/* Without that affinity another CPU handles the interrupt, which is slower but correct. */
		if (!cpumask_empty(cpus))
			irq_set_affinity(irq, cpus);
	}
	free_cpumask_var(cpus);
	return error;
}

/* Exchanges protocol versions, before anything else. */
static int check_version(void)
{
	u32 version = READ_ONCE(*word_at(VMRPC_VERSION_AT));

	if (READ_ONCE(*word_at(VMRPC_MAGIC_AT)) != VMRPC_MAGIC) {
		pr_err("the device's shared memory has no socket server\n");
		return -ENODEV;
	}
	WRITE_ONCE(*word_at(VMRPC_GUEST_VERSION_AT), VMRPC_VERSION);
	mb();
	writel(HOST_PEER << 16, vm.registers + DOORBELL);
	if (version == VMRPC_VERSION && pci_resource_len(vm.device, 2) >= VMRPC_BYTES)
		return READ_ONCE(*word_at(VMRPC_STATUS_AT)) == VMRPC_STATUS_SERVING ? 0 : -ENODEV;
	pr_err("the host's server speaks protocol version %u, this module version %u\n", version,
	       VMRPC_VERSION);
	return -EPROTONOSUPPORT;
}

static int map_memory(struct pci_dev *device)
{
	size_t bytes = min_t(resource_size_t, pci_resource_len(device, 2), VMRPC_BYTES);

	/* Enough for the words that every protocol version has. */
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

/* Continues from the counters that an earlier module left in the memory. */
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
	INIT_WORK(&vm.reconnect, reconnect);
}

static int probe(struct pci_dev *device, const struct pci_device_id *id)
{
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
	/* Events may have come before the interrupts were requested. */
	update_all_queues();
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
	cancel_work_sync(&vm.reconnect);
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
	/* Unbinding by sysfs would pull the memory away from open sockets. */
	.driver.suppress_bind_attrs = true,
};

int vmrpc_start(const struct vmrpc_ops *ops)
{
	int error;

	/* probe() may already call the ops. */
	vm.ops = ops;
	error = pci_register_driver(&driver);
	if (error)
		return error;
	error = vm.device ? send_hello() : -ENODEV;
	if (error)
		pci_unregister_driver(&driver);
	return error;
}

void vmrpc_stop(void)
{
	pci_unregister_driver(&driver);
}
