// SPDX-License-Identifier: GPL-2.0-only
/* One processor's units by rank, each as long as it has time left (README.md).
 *
 * A unit is a cgroup with whatever runs in it. User space gives each unit a key, by which units are ranked,
 * and a limit, an absolute amount of charged time: it may run while what it was charged is less. So a limit
 * that arrives late grants nothing twice, and no lock is shared with user space. Both are written to the half
 * of `orders` that is not live; `decide` makes it the live one.
 *
 * Where the policy can say them ahead of time, user space gives the next replenishments as well. They take
 * place here, and user space reads later when they did. What it decided about a unit before it knew of the
 * last one is not taken: it is told, and decides again.
 *
 * What changes the state runs with the run queue of the processor locked. The timer only asks for a decision. */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char _license[] SEC("license") = "GPL";

/* As in src/interface.rs. */
#define UNITS_MAX 64
#define QUEUE(unit) ((u64)(unit) + 1)
#define QUEUE_REST ((u64)UNITS_MAX + 1)
#define NEVER (~0ULL)
/* More is no limit. */
#define LEFT_MAX (1LL << 60)
/* A timer that fires so much too early, in ns, is set again. */
#define EARLY 1000
/* Bytes for what user space has not read yet. From a quarter on it is woken. */
#define EVENTS (1 << 18)
/* As the driver has it: a unit owes at most so many budgets. */
#define OWED_BUDGETS_MAX 4

enum { TOLD_EXHAUSTED = 1, TOLD_AWAKE, TOLD_ASLEEP, TOLD_EXIT, TOLD_REPLENISHED, TOLD_LATE };
/* What happens to a replenishment that is due while its unit has no work: the budget is lost, and lost by
 * every sleep, too; or it waits for the unit to wake up, with the periods as they were, or with one that begins
 * then. */
enum { ASLEEP_DISCARDS = 1, ASLEEP_WAITS = 2, ASLEEP_RESTARTS = 4 };

struct unit {
	/* What it was charged, and what of that it did not run: its budget idled away. */
	u64 used;
	u64 idled;
	u64 limit;
	/* When its budget comes back next; NEVER if user space says when. */
	u64 next;
	u32 replenished;
	u32 runnable;
	u32 is_exhausted;
	/* Was its replenishment due while it had no work? */
	u32 waits;
};
struct state {
	/* Since when the current unit, or the idling one, is not charged. */
	u64 since;
	s32 current_unit;
	s32 idling_unit;
	u32 exit_kind;
	/* Events that found no place. */
	u32 lost;
	struct unit units[UNITS_MAX];
	char exit_message[128];
};
struct decided {
	/* Less is more urgent. */
	u64 key;
	u64 limit;
	u64 next;
	u64 period;
	u64 budget;
	/* How often the budget had come back when this was decided. */
	u32 replenished;
	u32 asleep;
};
struct order {
	u32 count;
	/* Is the key of a unit its next replenishment? */
	u32 by_deadline;
	/* Does the budget of the most urgent unit idle away while it has no work? */
	u32 idles_away;
	/* Is user space to know at once when a unit used up its time, woke or fell asleep? */
	u32 wakes;
	/* Most urgent first. */
	u32 at[UNITS_MAX];
	struct decided of[UNITS_MAX];
};
struct told {
	u32 what;
	u32 unit;
	u64 at;
	u64 used;
	u64 idled;
	u64 limit;
	u64 next;
	u32 replenished;
	u32 runnable;
};

/* Set before it is loaded. */
const volatile struct {
	s32 processor;
	/* Does user space want to know of wake-ups and sleeps? */
	u32 tells_sleep;
} settings SEC(".rodata.settings") = { .processor = 1 };
#define processor (settings.processor)
#define tells_sleep (settings.tells_sleep)

struct state state SEC(".data.state");
struct order orders[2] SEC(".data.orders");
static u32 live, taken;
static u32 was_idle;
static u64 charged_at;
static u64 armed, due;
/* The earliest replenishment. */
static u64 next_due = NEVER;

struct processor_timer {
	struct bpf_timer timer;
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct processor_timer);
} timers SEC(".maps");
/* The number of the unit by the id of its cgroup. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4 * UNITS_MAX);
	__type(key, u64);
	__type(value, u32);
} groups SEC(".maps");
/* The unit as whose work a thread is counted, and one; 0 for none. */
struct counted {
	u32 unit;
};
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct counted);
} counts SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, EVENTS);
} events SEC(".maps");

s32 scx_bpf_create_dsq(u64 dsq_id, s32 node) __ksym;
void scx_bpf_dsq_insert(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) __ksym;
bool scx_bpf_dsq_move_to_local(u64 dsq_id) __ksym;
s32 scx_bpf_dsq_nr_queued(u64 dsq_id) __ksym;
void scx_bpf_kick_cpu(s32 cpu, u64 flags) __ksym;
s32 scx_bpf_task_cpu(const struct task_struct *p) __ksym;
s32 scx_bpf_select_cpu_dfl(struct task_struct *p, s32 prev_cpu, u64 wake_flags, bool *is_idle) __ksym;
/* Linux 6.19 and later. */
bool scx_bpf_task_set_slice(struct task_struct *p, u64 slice) __ksym __weak;

/* Writes down what happened to a unit. User space reads it when it looks, at least every 100 ms, or at
 * once. */
static __always_inline void tell(u32 what, u32 unit, u64 now, bool at_once)
{
	struct told *told = bpf_ringbuf_reserve(&events, sizeof(*told), 0);
	struct unit *of;

	if (!told) {
		state.lost++;
		return;
	}
	of = &state.units[unit < UNITS_MAX ? unit : 0];
	told->what = what;
	told->unit = unit;
	told->at = now;
	told->used = of->used;
	told->idled = of->idled;
	told->limit = of->limit;
	told->next = of->next;
	told->replenished = of->replenished;
	told->runnable = of->runnable;
	at_once |= bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) > EVENTS / 4;
	bpf_ringbuf_submit(told, at_once ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
}

static __always_inline void set_slice(struct task_struct *p, u64 slice)
{
	if (bpf_ksym_exists(scx_bpf_task_set_slice))
		scx_bpf_task_set_slice(p, slice);
	else
		p->scx.slice = slice;
}

static __always_inline s32 unit_of(struct task_struct *p)
{
	u64 id = p->cgroups->dfl_cgrp->kn->id;
	u32 *unit = bpf_map_lookup_elem(&groups, &id);

	return unit && *unit < UNITS_MAX ? (s32)*unit : -1;
}

/* Is it a thread of a unit, on the unit's processor? */
static __always_inline s32 unit_here(struct task_struct *p)
{
	return scx_bpf_task_cpu(p) == processor ? unit_of(p) : -1;
}

static __always_inline struct order *order_now(void)
{
	return &orders[taken & 1];
}

static __always_inline s64 left_of(u32 unit)
{
	if (unit >= UNITS_MAX)
		return 0;
	return (s64)(state.units[unit].limit - state.units[unit].used);
}

static __always_inline u64 key_of(u32 unit)
{
	if (unit >= UNITS_MAX)
		return NEVER;
	return order_now()->by_deadline ? state.units[unit].next : order_now()->of[unit].key;
}

/* Charges a unit, and tells once when its time is used up. */
static __always_inline void charge_unit(u32 unit, u64 ran, u64 now)
{
	struct unit *of;

	if (unit >= UNITS_MAX)
		return;
	of = &state.units[unit];
	of->used += ran;
	if (left_of(unit) > 0) {
		of->is_exhausted = 0;
	} else if (!of->is_exhausted) {
		of->is_exhausted = 1;
		tell(TOLD_EXHAUSTED, unit, now, order_now()->wakes);
	}
}

/* Charges what `p`, a thread of the current unit, ran since it was charged last. */
static __always_inline void charge(struct task_struct *p, u64 now)
{
	if (state.current_unit >= 0 && p) {
		u64 sum = p->se.sum_exec_runtime, ran = sum - charged_at;

		charged_at = sum;
		charge_unit(state.current_unit, ran, now);
	}
	state.since = now;
}

/* Charges the unit whose budget idles away. */
static __always_inline void charge_idling(u64 now)
{
	u32 unit = state.idling_unit;
	s64 left;
	u64 idled;

	if (unit >= UNITS_MAX)
		return;
	idled = now > state.since ? now - state.since : 0;
	left = left_of(unit);
	if (left <= 0)
		idled = 0;
	else if (idled > (u64)left)
		idled = left;
	state.since = now;
	state.units[unit].idled += idled;
	charge_unit(unit, idled, now);
}

/* The budget comes back that was due at `of->next`, before `now`: what the unit ran too much it owes. */
static __always_inline void replenish(u32 unit, struct unit *of, struct decided *by, u64 now)
{
	u64 period = by->period, late = now - of->next, base = of->limit, owed_max;

	if ((by->asleep & ASLEEP_DISCARDS) && !of->runnable) {
		if (left_of(unit) > 0)
			of->limit = of->used;
		of->next += period;
		/* The policy counts it, and takes it away. */
		of->replenished++;
		tell(TOLD_REPLENISHED, unit, now, order_now()->wakes);
		return;
	}
	if (base > of->used)
		base = of->used;
	owed_max = by->budget * OWED_BUDGETS_MAX;
	if (of->used - base > owed_max)
		base = of->used - owed_max;
	of->limit = base + by->budget;
	if (of->waits && (by->asleep & ASLEEP_RESTARTS))
		of->next = now + period;
	else
		of->next += late < period || !period ? period : (late / period + 1) * period;
	of->replenished++;
	of->waits = 0;
	if (left_of(unit) > 0)
		of->is_exhausted = 0;
	tell(TOLD_REPLENISHED, unit, now, order_now()->wakes);
}

/* Is a replenishment of the unit due? One that waits for it to wake up is told once. */
static __always_inline void replenish_if_due(u32 unit, u64 now)
{
	struct decided *by;
	struct unit *of;

	if (unit >= UNITS_MAX)
		return;
	of = &state.units[unit];
	by = &order_now()->of[unit];
	if (of->next == NEVER || of->next > now)
		return;
	if ((by->asleep & ASLEEP_WAITS) && !of->runnable) {
		if (!of->waits) {
			of->waits = 1;
			tell(TOLD_ASLEEP, unit, now, order_now()->wakes);
		}
		return;
	}
	replenish(unit, of, by, now);
}

/* Takes what user space decided, unless a budget came back meanwhile that it did not know of. */
static __always_inline void take_orders(u64 now)
{
	struct order *order;
	u32 k;

	taken = live;
	order = order_now();
	bpf_for(k, 0, order->count) {
		struct decided *by;
		struct unit *of;
		u32 unit;

		if (k >= UNITS_MAX)
			break;
		unit = order->at[k];
		if (unit >= UNITS_MAX)
			break;
		of = &state.units[unit];
		by = &order->of[unit];
		if (by->replenished != of->replenished) {
			tell(TOLD_LATE, unit, now, true);
			continue;
		}
		of->limit = by->limit;
		if (of->next != by->next)
			of->waits = 0;
		of->next = by->next;
	}
	next_due = 0;
}

/* Gives back the budgets that are due, and finds out when the next one is. */
static __noinline int replenish_all(u64 now)
{
	u64 first = NEVER;
	u32 k;

	if (taken != live)
		take_orders(now);
	if (now < next_due)
		return 0;
	bpf_for(k, 0, order_now()->count) {
		struct unit *of;
		u32 unit;

		if (k >= UNITS_MAX)
			break;
		unit = order_now()->at[k];
		if (unit >= UNITS_MAX)
			break;
		replenish_if_due(unit, now);
		of = &state.units[unit];
		if (!of->waits && of->next < first)
			first = of->next;
	}
	next_due = first;
	return 0;
}

/* A decision is due at `at`. With a run queue locked the kernel (7.0 and later) starts a timer by an allocation
 * and an interrupt to itself, so one that comes too early is left: it sets itself again. */
static __always_inline void arm(u64 at)
{
	struct processor_timer *of;
	u32 zero = 0;

	if (at > next_due)
		at = next_due;
	due = at;
	if (bpf_get_smp_processor_id() != processor) {
		/* A running thread was given this class from another processor, whose timer it would be. */
		scx_bpf_kick_cpu(processor, SCX_KICK_PREEMPT);
		return;
	}
	if (at == NEVER || (armed && at >= armed))
		return;
	of = bpf_map_lookup_elem(&timers, &zero);
	if (of && !bpf_timer_start(&of->timer, at, BPF_F_TIMER_ABS | BPF_F_TIMER_CPU_PIN))
		armed = at;
}

static __always_inline u64 end_of(u32 unit, u64 now)
{
	s64 left = left_of(unit);

	return left >= LEFT_MAX ? NEVER : now + (left > 0 ? (u64)left : 0);
}

static int on_timer(void *map, u32 *key, struct processor_timer *of)
{
	u64 now = bpf_ktime_get_ns(), at = due;

	armed = 0;
	if (at == NEVER)
		return 0;
	if (now + EARLY < at) {
		if (!bpf_timer_start(&of->timer, at, BPF_F_TIMER_ABS | BPF_F_TIMER_CPU_PIN))
			armed = at;
		return 0;
	}
	scx_bpf_kick_cpu(processor, SCX_KICK_PREEMPT);
	return 0;
}

SEC("struct_ops/select_cpu")
s32 BPF_PROG(select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	bool is_idle = false;

	if (unit_of(p) >= 0)
		return prev_cpu;
	return scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &is_idle);
}

SEC("struct_ops/enqueue")
void BPF_PROG(enqueue, struct task_struct *p, u64 enq_flags)
{
	s32 unit = unit_here(p);
	s64 left;

	if (unit < 0) {
		/* Of no unit: on the units' processor when none of them can run. */
		u64 queue = scx_bpf_task_cpu(p) == processor ? QUEUE_REST : SCX_DSQ_LOCAL;

		scx_bpf_dsq_insert(p, queue, SCX_SLICE_DFL, enq_flags);
		return;
	}
	left = left_of(unit);
	scx_bpf_dsq_insert(p, QUEUE(unit), left > 0 ? left : 1, enq_flags);
	if (left > 0 && state.current_unit >= 0 && key_of(unit) < key_of(state.current_unit))
		scx_bpf_kick_cpu(processor, SCX_KICK_PREEMPT);
}

/* The most urgent unit with time left that has work: one that waits, or `goes_on`; -1 for none. Where budgets
 * idle away, only the most urgent one with time left may run, which is in `idles` if it has no work. */
static __always_inline s32 choose(struct order *order, s32 goes_on, bool *waits, s32 *idles)
{
	s32 best = -1;
	u64 best_key = 0;
	u32 k;

	bpf_for(k, 0, order->count) {
		bool has_waiting;
		u32 unit;

		if (k >= UNITS_MAX)
			break;
		unit = order->at[k];
		if (unit >= UNITS_MAX)
			break;
		if (left_of(unit) <= 0 || (best >= 0 && key_of(unit) >= best_key))
			continue;
		has_waiting = scx_bpf_dsq_nr_queued(QUEUE(unit)) > 0;
		if (has_waiting || (s32)unit == goes_on) {
			best = unit;
			best_key = key_of(unit);
			*waits = has_waiting;
			if (!order->by_deadline)
				break;
		} else if (order->idles_away) {
			*idles = unit;
			break;
		}
	}
	return best;
}

SEC("struct_ops/dispatch")
void BPF_PROG(dispatch, s32 cpu, struct task_struct *prev)
{
	s32 goes_on = -1, unit, idles = -1;
	bool waits = false;
	u64 now;

	if (cpu != processor)
		return;
	now = bpf_ktime_get_ns();
	was_idle = !prev;
	charge_idling(now);
	state.idling_unit = -1;
	charge(prev, now);
	replenish_all(now);
	if (prev && (prev->scx.flags & SCX_TASK_QUEUED))
		goes_on = unit_of(prev);
	unit = choose(order_now(), goes_on, &waits, &idles);
	if (unit >= 0 && unit == goes_on && !waits) {
		set_slice(prev, left_of(unit));
		arm(end_of(unit, now));
		return;
	}
	/* running() does the rest. */
	if (unit >= 0 && scx_bpf_dsq_move_to_local(QUEUE(unit)))
		return;
	if (idles >= 0) {
		state.idling_unit = idles;
		state.since = now;
		arm(end_of(idles, now));
	} else {
		arm(NEVER);
	}
	scx_bpf_dsq_move_to_local(QUEUE_REST);
}

SEC("struct_ops/running")
void BPF_PROG(running, struct task_struct *p)
{
	s32 unit = unit_here(p);
	s64 left;
	u64 now;

	if (unit < 0 || unit >= UNITS_MAX)
		return;
	now = bpf_ktime_get_ns();
	charge_idling(now);
	state.idling_unit = -1;
	state.current_unit = unit;
	state.since = now;
	charged_at = p->se.sum_exec_runtime;
	/* After an idle processor the next scheduling skips the update of the run queue's clock (Linux 7.2), and
	 * the thread's time up to then would be nobody's. So there is one at once. */
	if (was_idle)
		scx_bpf_kick_cpu(processor, 0);
	was_idle = 0;
	charge_unit(unit, 0, now);
	left = left_of(unit);
	set_slice(p, left > 0 ? left : 1);
	arm(end_of(unit, now));
}

SEC("struct_ops/stopping")
void BPF_PROG(stopping, struct task_struct *p, bool runnable)
{
	s32 unit = unit_here(p);

	if (unit < 0 || unit != state.current_unit)
		return;
	charge(p, bpf_ktime_get_ns());
	/* Back to its queue, and not to the head of the processor's own. */
	if (runnable)
		set_slice(p, 0);
	state.current_unit = -1;
}

SEC("struct_ops/runnable")
void BPF_PROG(runnable, struct task_struct *p, u64 enq_flags)
{
	struct counted *counted = bpf_task_storage_get(&counts, p, 0, 0);
	s32 unit = unit_of(p);
	u64 now;

	if (!counted || unit < 0 || unit >= UNITS_MAX)
		return;
	counted->unit = unit + 1;
	if (__sync_fetch_and_add(&state.units[unit].runnable, 1))
		return;
	now = bpf_ktime_get_ns();
	if (tells_sleep)
		tell(TOLD_AWAKE, unit, now, order_now()->wakes);
	if (state.units[unit].waits) {
		replenish_if_due(unit, now);
		/* It has a next one again. */
		if (state.units[unit].next < next_due)
			next_due = state.units[unit].next;
	}
}

SEC("struct_ops/quiescent")
void BPF_PROG(quiescent, struct task_struct *p, u64 deq_flags)
{
	struct counted *counted = bpf_task_storage_get(&counts, p, 0, 0);
	u32 unit;

	if (!counted || !counted->unit)
		return;
	unit = counted->unit - 1;
	counted->unit = 0;
	if (unit >= UNITS_MAX || __sync_fetch_and_add(&state.units[unit].runnable, -1) != 1 || !tells_sleep)
		return;
	if ((order_now()->of[unit].asleep & ASLEEP_DISCARDS) && left_of(unit) > 0)
		state.units[unit].limit = state.units[unit].used;
	tell(TOLD_ASLEEP, unit, bpf_ktime_get_ns(), order_now()->wakes);
}

SEC("struct_ops/enable")
void BPF_PROG(enable, struct task_struct *p)
{
	bpf_task_storage_get(&counts, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
}

SEC("struct_ops.s/init")
s32 BPF_PROG(init)
{
	struct processor_timer *of;
	u32 zero = 0, k;
	s32 failed;

	of = bpf_map_lookup_elem(&timers, &zero);
	if (!of)
		return -1;
	bpf_for(k, 0, UNITS_MAX + 1) {
		failed = scx_bpf_create_dsq(QUEUE(k), -1);
		if (failed)
			return failed;
	}
	state.current_unit = -1;
	state.idling_unit = -1;
	bpf_timer_init(&of->timer, &timers, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&of->timer, on_timer);
	return 0;
}

SEC("struct_ops/exit")
void BPF_PROG(at_exit, struct scx_exit_info *info)
{
	bpf_probe_read_kernel_str(state.exit_message, sizeof(state.exit_message), info->msg);
	state.exit_kind = info->kind;
	tell(TOLD_EXIT, 0, bpf_ktime_get_ns(), true);
}

/* User space has written the other half of the orders. */
SEC("syscall")
int decide(void *context)
{
	live++;
	scx_bpf_kick_cpu(processor, SCX_KICK_PREEMPT);
	return 0;
}

SEC(".struct_ops.link")
struct sched_ext_ops punctual = {
	.select_cpu = (void *)select_cpu,
	.enqueue = (void *)enqueue,
	.dispatch = (void *)dispatch,
	.runnable = (void *)runnable,
	.running = (void *)running,
	.stopping = (void *)stopping,
	.quiescent = (void *)quiescent,
	.enable = (void *)enable,
	.init = (void *)init,
	.exit = (void *)at_exit,
	.flags = SCX_OPS_SWITCH_PARTIAL | SCX_OPS_ENQ_LAST,
	/* The longest that the kernel takes: a unit may wait for a budget. */
	.timeout_ms = 30000,
	.name = "punctual",
};
