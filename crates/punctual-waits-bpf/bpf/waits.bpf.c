// SPDX-License-Identifier: GPL-2.0-only
/* Adds up in the kernel what the threads of VMs waited for (README.md, rules.h).
 *
 * User space puts a thread into a slot, and the slot into `watched`. A switch between threads that are not
 * there costs two lookups there, and one of the processor. */
#include "kernel.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "rules.h"

char _license[] SEC("license") = "GPL";

/* As in src/interface.rs. */
#define THREADS_MAX 4096
#define SUMS_MAX 32768

/* Set before it is loaded. */
const volatile struct settings set SEC(".rodata.settings") = { .told_max = 1 };

/* The table of sums that is added to. */
u32 generation SEC(".data.generation");

/* Parts of waits that were told in a second and since when, and how often something was not told or not added
 * up. */
struct run {
	u64 told_count;
	u64 told_since;
	u64 lost;
};
struct run run SEC(".data.run");

/* Whom a thread waited for, by its slot. */
struct pair {
	u32 slot;
	u32 occupant;
};
struct sum {
	u64 ns;
	u64 name[NAME_WORDS];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, THREADS_MAX);
	__type(key, u32);
	__type(value, u32);
} watched SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, THREADS_MAX);
	__type(key, u32);
	__type(value, struct thread);
} threads SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, THREADS_MAX);
	__type(key, u32);
	__type(value, struct mark);
} marks SEC(".maps");
/* As many as the machine has processors: set before it is loaded. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct processor);
} processors SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, THREADS_MAX);
	__type(key, u32);
	__type(value, u64);
} ran SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct room);
} rooms SEC(".maps");
/* How often a thread in a slot, a vCPU, left its guest because it spun. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, THREADS_MAX);
	__type(key, u32);
	__type(value, u64);
} spins SEC(".maps");
/* User space empties the one that is not added to. */
struct sums {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SUMS_MAX);
	__type(key, struct pair);
	__type(value, struct sum);
};
struct sums sums_even SEC(".maps"), sums_odd SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} stories SEC(".maps");

static __always_inline const volatile struct settings *settings(void)
{
	return &set;
}

static __always_inline struct thread *thread_of(u32 slot)
{
	return bpf_map_lookup_elem(&threads, &slot);
}

static __always_inline struct mark *mark_of(u32 slot)
{
	return bpf_map_lookup_elem(&marks, &slot);
}

static __always_inline struct processor *processor_of(u32 number)
{
	return bpf_map_lookup_elem(&processors, &number);
}

static __always_inline struct room *room(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&rooms, &zero);
}

static __always_inline void lock(struct thread *thread)
{
	bpf_spin_lock(&thread->lock);
}

static __always_inline void unlock(struct thread *thread)
{
	bpf_spin_unlock(&thread->lock);
}

static __always_inline void adds_run(u32 slot, u64 ns)
{
	u64 *sum = bpf_map_lookup_elem(&ran, &slot);

	if (sum)
		*sum += ns;
}

static __always_inline void adds_wait(u32 slot, const struct step *step, u64 ns)
{
	struct pair pair = { .slot = slot, .occupant = step->occupant };
	void *map = *(volatile u32 *)&generation & 1 ? (void *)&sums_odd : (void *)&sums_even;
	struct sum *known = bpf_map_lookup_elem(map, &pair), sum = { .ns = ns };

	if (known) {
		__sync_fetch_and_add(&known->ns, ns);
		return;
	}
	sum.name[0] = step->name[0];
	sum.name[1] = step->name[1];
	if (bpf_map_update_elem(map, &pair, &sum, BPF_NOEXIST))
		__sync_fetch_and_add(&run.lost, 1);
}

static __always_inline bool may_tell(u64 at)
{
	if (at - run.told_since >= 1000000000ULL) {
		run.told_since = at;
		run.told_count = 0;
	}
	return __sync_fetch_and_add(&run.told_count, 1) < set.told_max;
}

static __always_inline bool tells(const struct story *story)
{
	u32 count = story->count;
	u64 size;

	if (count > STEPS_MAX)
		return false;
	size = sizeof(*story) - sizeof(story->steps) + count * sizeof(struct step);
	if (!bpf_ringbuf_output(&stories, (void *)story, size, BPF_RB_NO_WAKEUP))
		return true;
	__sync_fetch_and_add(&run.lost, 1);
	return false;
}

static __always_inline void walks(u32 count, struct pass *pass)
{
	bpf_loop(count, passes, pass, 0);
}

static __always_inline u32 slot_of(u32 thread)
{
	u32 *slot = thread ? bpf_map_lookup_elem(&watched, &thread) : NULL;

	return slot ? *slot : UNSEEN;
}

/* How a thread leaves with this state (include/linux/sched.h): 0 is ready, 0x10, 0x20 and 0x80 have ended, 4
 * and 8 are stopped, 2 and 0x1000 sleep without signals unless 0x400 says that this is idleness, 0x8000 is
 * frozen. A cgroup of version 2 freezes by a trap (JOBCTL_TRAP_FREEZE in include/linux/sched/jobctl.h). */
static __always_inline u32 left_by(struct task_struct *from, bool preempt, u32 state)
{
	if (preempt || !state)
		return LEFT_READY;
	if (state & 0xb0)
		return LEFT_ENDED;
	if (state & 0x0c)
		return STOPPED;
	if ((state & 0x1002) && !(state & 0x400))
		return BLOCKED;
	return (state & 0x8000) || (from->jobctl & (1UL << 23)) ? FROZEN : ASLEEP;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *from, struct task_struct *to, u32 state)
{
	u32 number = bpf_get_smp_processor_id(), from_slot = slot_of(from->pid), to_slot = slot_of(to->pid);
	struct processor *processor = processor_of(number);
	struct pass pass = {};
	struct room *mine;

	if (!processor)
		return 0;
	if (from_slot == UNSEEN && to_slot == UNSEEN && !processor->count) {
		processor->occupant = to->pid;
		processor->is_seen = 1;
		return 0;
	}
	pass.at = bpf_ktime_get_ns();
	pass.number = number;
	pass.occupant = from->pid;
	mine = room();
	if (!mine)
		return 0;
	if (pass.occupant)
		bpf_probe_read_kernel(mine->name, sizeof(mine->name), from->comm);
	else
		forgets_name();
	switches(processor, &pass, from_slot, left_by(from, preempt, state), to_slot, to->pid);
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *p)
{
	u32 slot = slot_of(p->pid);

	if (slot != UNSEEN)
		wakes(slot, p->thread_info.cpu, bpf_ktime_get_ns());
	return 0;
}

/* KVM comes here when the processor stopped a vCPU that spins (a pause-loop exit), and looks for another vCPU
 * of the VM that can run instead (virt/kvm/kvm_main.c). It counts that nowhere. */
SEC("kprobe/kvm_vcpu_on_spin")
int on_spin(void *registers)
{
	u32 slot = slot_of((u32)bpf_get_current_pid_tgid());
	u64 *count = slot == UNSEEN ? NULL : bpf_map_lookup_elem(&spins, &slot);

	/* A slot has one thread, which runs here. */
	if (count)
		*count += 1;
	return 0;
}
