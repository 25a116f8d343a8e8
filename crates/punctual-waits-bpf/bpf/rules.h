/* SPDX-License-Identifier: GPL-2.0-only */
/* What watched threads did and waited for: the rules of crates/punctual-service/src/waits/account.rs, as far
 * as a kernel needs them that loses no event (README.md).
 *
 * Who includes this has the settings and the maps, by the functions that are declared here, and calls
 * `switches` and `wakes` with the run queue of the processor locked. What a processor has is under that lock
 * alone. What a thread has is under its own lock as well: a thread that was moved runs while the processor
 * for which it waited goes through its queue. */
#ifndef PUNCTUAL_RULES_H
#define PUNCTUAL_RULES_H

/* As in src/interface.rs. */
#define STEPS_MAX 16
#define QUEUE_MAX 16
#define BUCKETS 8
#define UNSEEN (~0u)
#define NAME_WORDS 2

enum state { UNKNOWN, RUNNING, READY, OFF };
/* Why a thread is off. */
enum off { ASLEEP, BLOCKED, STOPPED, FROZEN, OFFS };
enum left { LEFT_READY = OFFS, LEFT_ENDED };

/* A part of a wait, behind one thread; 0 is an idle processor, UNSEEN: nobody knows. */
struct step {
	u64 from;
	u64 until;
	u32 occupant;
	u32 processor;
	u64 name[NAME_WORDS];
};

/* A wait or a part of it. */
struct story {
	u64 began;
	u64 until;
	u32 thread;
	u32 wait;
	/* Why it was off, and one; 0: it was ready. */
	u32 off;
	u32 was_woken;
	u32 is_over;
	u32 count;
	struct step steps[STEPS_MAX];
};

struct thread {
	struct bpf_spin_lock lock;
	u32 id;
	u32 state;
	/* Why it is off, or whether it was woken. */
	u32 detail;
	/* Where it runs, waits, or was last. */
	u32 processor;
	/* The number of what it does, which began then; up to when its time is accounted. */
	u32 wait;
	u64 began;
	u64 since;
	/* Its queue was full: nobody knows behind whom it waits. */
	u32 is_unqueued;
	/* Parts of this wait have been told. */
	u32 is_told;
	/* The longest wait that was told since then. */
	u64 told;
	u64 told_at;
	/* Sums. */
	u64 off[OFFS];
	u64 latencies[BUCKETS];
	u64 latency_sum;
	u64 latency_max;
	u32 count;
	u32 unused;
	struct step steps[STEPS_MAX];
};

/* What user space says of a thread. */
struct mark {
	/* It has counted this wait up to then. */
	u64 until;
	u32 wait;
	u32 unused;
	/* Longer waits are to be told. */
	u64 threshold;
};

/* What a processor has for an event: the name of who had the processor, and the wait that is over. */
struct room {
	u64 name[NAME_WORDS];
	struct story story;
};

struct waiting {
	u32 slot;
	u32 wait;
};
struct processor {
	u32 occupant;
	u32 is_seen;
	u32 count;
	u32 unused;
	struct waiting queue[QUEUE_MAX];
};

/* Waits of at least that are always to be told; upper bounds of the buckets of latencies, the last one has
 * the rest; so many parts of waits are told in a second of all threads. */
struct settings {
	u64 told_from;
	u64 bounds[BUCKETS - 1];
	u64 told_max;
};

struct pass;

static __always_inline const volatile struct settings *settings(void);
/* The maps. */
static __always_inline struct thread *thread_of(u32 slot);
static __always_inline struct mark *mark_of(u32 slot);
static __always_inline struct processor *processor_of(u32 number);
static __always_inline struct room *room(void);
static __always_inline void lock(struct thread *thread);
static __always_inline void unlock(struct thread *thread);
/* It had this processor for so long. */
static __always_inline void adds_run(u32 slot, u64 ns);
static __always_inline void adds_wait(u32 slot, const struct step *step, u64 ns);
/* Not yet more than `told_max` in this second? */
static __always_inline bool may_tell(u64 at);
/* Calls `passes` for each of the queue. */
static __always_inline void walks(u32 count, struct pass *pass);
/* False: there is no room. */
static __always_inline bool tells(const struct story *story);

/* Before `at` it waited behind `occupant`. With the lock. */
static __always_inline void append(struct thread *thread, u64 at, u32 occupant, const u64 *name)
{
	u32 count = thread->count;
	struct step *step;

	if (at <= thread->since)
		return;
	if (occupant == thread->id || thread->is_unqueued)
		occupant = UNSEEN;
	if (count < STEPS_MAX) {
		step = &thread->steps[count];
		step->from = thread->since;
		step->until = at;
		step->occupant = occupant;
		step->processor = thread->processor;
		step->name[0] = name[0];
		step->name[1] = name[1];
		thread->count = count + 1;
	}
	thread->since = at;
}

/* Copies the steps and empties them. With the lock. */
static __always_inline void takes_steps(struct story *story, struct thread *thread)
{
	story->began = thread->began;
	story->until = thread->since;
	story->thread = thread->id;
	story->wait = thread->wait;
	story->off = 0;
	story->was_woken = thread->detail;
	story->is_over = 0;
	story->count = thread->count;
	/* Most waits have a step or two. */
	if (thread->count <= 2)
		__builtin_memcpy(story->steps, thread->steps, 2 * sizeof(story->steps[0]));
	else
		__builtin_memcpy(story->steps, thread->steps, sizeof(story->steps));
	thread->count = 0;
}

/* Is a wait told? One that user space has begun to count is told until it ends. Of others those are told that
 * are long, that have more steps than there is room for, or that are longer than what user space keeps and
 * the longest of their thread in a second. */
static __always_inline bool is_told(struct thread *thread, const struct mark *mark, const struct story *story)
{
	u64 length = story->until - story->began;

	if (thread->is_told || (mark->wait == story->wait && mark->until))
		return true;
	if (story->until - thread->told_at >= 1000000000ULL)
		thread->told = 0;
	if (story->is_over && length < settings()->told_from &&
	    (length <= thread->told || length <= mark->threshold))
		return false;
	return may_tell(story->until);
}

static __always_inline void counts_latency(struct thread *thread, u64 ns)
{
	u32 bucket = 0, k;

	for (k = 0; k < BUCKETS - 1; k++)
		bucket += settings()->bounds[k] < ns;
	if (bucket < BUCKETS)
		thread->latencies[bucket]++;
	thread->latency_sum += ns;
	if (ns > thread->latency_max)
		thread->latency_max = ns;
}

/* Tells the wait in the room, or adds it up. Nobody else changes the thread's sums meanwhile: it is on this
 * processor, or waits for it. This and `ends` are functions of their own, so that the kernel checks them
 * once. */
__noinline int counts_story(u32 slot)
{
	struct thread *thread = thread_of(slot);
	struct mark *mark = mark_of(slot);
	struct room *mine = room();
	struct story *story;
	u32 k;

	if (!thread || !mark || !mine)
		return 0;
	story = &mine->story;
	if (is_told(thread, mark, story) && tells(story)) {
		thread->is_told = !story->is_over;
		if (story->until - story->began > thread->told) {
			thread->told = story->until - story->began;
			thread->told_at = story->until;
		}
		return 0;
	}
	for (k = 0; k < STEPS_MAX; k++) {
		const struct step *step = &story->steps[k];
		u64 from = step->from;

		if (k >= story->count)
			break;
		if (mark->wait == story->wait && mark->until > from)
			from = mark->until;
		if (step->until > from)
			adds_wait(slot, step, step->until - from);
	}
	if (story->is_over) {
		thread->is_told = 0;
		if (story->was_woken)
			counts_latency(thread, story->until - story->began);
	}
	return 0;
}

/* A thread was off until `at`, from `since` on as far as it is not counted. */
static __always_inline void counts_off(struct thread *thread, const struct mark *mark, struct story *story,
				       u32 off, u64 since, u64 at)
{
	if (off == ASLEEP || off >= OFFS || at <= since)
		return;
	if (is_told(thread, mark, story) && tells(story)) {
		thread->is_told = 0;
		return;
	}
	/* Linux 6.1 forgets above that it is less. */
	barrier_var(off);
	if (off < OFFS)
		thread->off[off] += at - since;
}

/* A thread that is off begins its story. With the lock. */
static __always_inline u32 takes_off(struct story *story, const struct thread *thread, u64 at)
{
	u32 off = thread->detail;

	story->began = thread->began;
	story->until = at;
	story->thread = thread->id;
	story->wait = thread->wait;
	story->off = off + 1;
	story->was_woken = 0;
	story->is_over = 1;
	story->count = 0;
	return off;
}

/* What a thread did is over at `at`; the occupant, whose name is in the room, had the processor before. It is
 * in a state from then on, with its detail in the upper half, on a processor. */
__noinline int ends(u32 slot, u64 at, u32 occupant, u32 state, u32 number)
{
	struct thread *thread = thread_of(slot);
	struct mark *mark = mark_of(slot);
	struct room *mine = room();
	u32 was, off = 0;
	u64 since;

	if (!thread || !mark || !mine)
		return 0;
	lock(thread);
	was = thread->state;
	since = thread->since;
	if (was == READY) {
		append(thread, at, occupant, mine->name);
		takes_steps(&mine->story, thread);
		mine->story.is_over = 1;
	} else if (was == OFF) {
		off = takes_off(&mine->story, thread, at);
		if (mark->wait == thread->wait && mark->until > since)
			since = mark->until;
	}
	thread->state = state & 0xffff;
	thread->detail = state >> 16;
	thread->processor = number;
	thread->wait++;
	thread->began = at;
	thread->since = at;
	thread->count = 0;
	thread->is_unqueued = 0;
	unlock(thread);
	if (was == RUNNING && at > since)
		adds_run(slot, at - since);
	else if (was == READY)
		counts_story(slot);
	else if (was == OFF)
		counts_off(thread, mark, &mine->story, off, since, at);
	return 0;
}

/* A walk through the queue of a processor. */
struct pass {
	u64 at;
	u32 number;
	u32 occupant;
	u32 kept;
	u32 unused;
};

/* The one at `index` of the queue waited behind the occupant up to now; those who wait no more leave it. */
static long passes(u64 index, struct pass *pass)
{
	struct processor *processor = processor_of(pass->number);
	struct room *mine = room();
	struct waiting waiting;
	struct thread *thread;
	bool is_full = false;
	u32 kept = pass->kept;

	if (!processor || !mine || index >= QUEUE_MAX || kept >= QUEUE_MAX)
		return 1;
	waiting = processor->queue[index];
	thread = thread_of(waiting.slot);
	if (!thread)
		return 0;
	lock(thread);
	if (thread->state != READY || thread->wait != waiting.wait) {
		unlock(thread);
		return 0;
	}
	append(thread, pass->at, pass->occupant, mine->name);
	if (thread->count >= STEPS_MAX) {
		takes_steps(&mine->story, thread);
		is_full = true;
	}
	unlock(thread);
	if (is_full)
		counts_story(waiting.slot);
	processor->queue[kept] = waiting;
	pass->kept = kept + 1;
	return 0;
}

static __always_inline void forgets_name(void)
{
	struct room *mine = room();

	if (mine)
		mine->name[0] = mine->name[1] = 0;
}

/* A thread is ready from now on, and waits for a processor. */
static __always_inline void waits(u32 slot, struct processor *processor, u32 number, bool was_woken, u64 at)
{
	struct thread *thread = thread_of(slot);
	u32 count = processor->count;

	forgets_name();
	ends(slot, at, UNSEEN, READY | (u32)was_woken << 16, number);
	if (!thread)
		return;
	if (count < QUEUE_MAX) {
		processor->queue[count].slot = slot;
		processor->queue[count].wait = thread->wait;
		processor->count = count + 1;
	} else {
		thread->is_unqueued = 1;
	}
}

/* It gets a processor, which `occupant` had. */
static __always_inline void comes(u32 slot, u32 number, u32 occupant, u64 at)
{
	struct thread *thread = thread_of(slot);
	struct processor *place;

	if (!thread)
		return;
	if (thread->state == READY && thread->processor != number) {
		/* It was moved: somebody else had the processor for which it waited. */
		place = processor_of(thread->processor);
		occupant = place && place->is_seen ? place->occupant : UNSEEN;
		forgets_name();
	}
	ends(slot, at, occupant, RUNNING, number);
}

/* The occupant, whose name is in the room, leaves a processor to another thread. Slots of threads that are
 * not watched are UNSEEN. */
static __always_inline void switches(struct processor *processor, struct pass *pass, u32 from_slot, u32 left,
				     u32 to_slot, u32 to)
{
	if (processor->count) {
		walks(processor->count, pass);
		processor->count = pass->kept;
	}
	if (to_slot != UNSEEN)
		comes(to_slot, pass->number, pass->occupant, pass->at);
	if (from_slot != UNSEEN) {
		if (left == LEFT_READY)
			waits(from_slot, processor, pass->number, false, pass->at);
		else
			ends(from_slot, pass->at, UNSEEN, left == LEFT_ENDED ? UNKNOWN : OFF | left << 16,
			     pass->number);
	}
	processor->occupant = to;
	processor->is_seen = 1;
}

/* It became ready for a processor. One that has a processor goes on. */
static __always_inline void wakes(u32 slot, u32 number, u64 at)
{
	struct thread *thread = thread_of(slot);
	struct processor *processor = processor_of(number);

	if (!thread || !processor || (thread->state != OFF && thread->state != UNKNOWN))
		return;
	if (processor->is_seen && processor->occupant == thread->id)
		return;
	waits(slot, processor, number, true, at);
}
#endif
