// SPDX-License-Identifier: GPL-2.0-only
/* The rules on events that are told line by line, for tests: no kernel is needed.
 *
 * Numbers in lines of standard input: `w SLOT THREAD` watches, `s AT PROCESSOR FROM LEFT TO` is a switch
 * (LEFT: an `enum off` or `enum left`), `k AT PROCESSOR THREAD` a wake-up, `m SLOT WAIT UNTIL THRESHOLD` a
 * mark, `g TOLD_FROM TOLD_MAX BOUNDS...` the settings; `d` prints everything, and empties what is printed
 * once. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint32_t u32;
typedef uint64_t u64;
struct bpf_spin_lock {
	u32 val;
};
#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif
#define barrier_var(var) __asm__ volatile("" : "+r"(var))
#define __noinline __attribute__((noinline))

#include "rules.h"

#define THREADS 64
#define PROCESSORS 8
#define SUMS 65536

static struct settings set;
static struct thread threads[THREADS];
static struct mark marks[THREADS];
static struct processor processors[PROCESSORS];
static struct room only_room;
static u64 ran[THREADS][PROCESSORS];
static u32 here;
static u64 told;
static struct {
	u32 slot, occupant;
	u64 ns, name[NAME_WORDS];
} sums[SUMS];
static u32 sums_count;

static inline const volatile struct settings *settings(void)
{
	return &set;
}

static inline struct thread *thread_of(u32 slot)
{
	return slot < THREADS ? &threads[slot] : NULL;
}

static inline struct mark *mark_of(u32 slot)
{
	return slot < THREADS ? &marks[slot] : NULL;
}

static inline struct processor *processor_of(u32 number)
{
	return number < PROCESSORS ? &processors[number] : NULL;
}

static inline struct room *room(void)
{
	return &only_room;
}

static inline void lock(struct thread *thread)
{
	if (thread->lock.val++)
		abort();
}

static inline void unlock(struct thread *thread)
{
	if (--thread->lock.val)
		abort();
}

static inline void adds_run(u32 slot, u64 ns)
{
	ran[slot][here] += ns;
}

static inline void adds_wait(u32 slot, const struct step *step, u64 ns)
{
	u32 k;

	for (k = 0; k < sums_count && (sums[k].slot != slot || sums[k].occupant != step->occupant); k++)
		;
	if (k == SUMS)
		abort();
	if (k == sums_count) {
		sums_count++;
		sums[k].slot = slot;
		sums[k].occupant = step->occupant;
		sums[k].ns = 0;
		memcpy(sums[k].name, step->name, sizeof(sums[k].name));
	}
	sums[k].ns += ns;
}

static inline bool may_tell(u64 at)
{
	(void)at;
	return told++ < set.told_max;
}

static inline bool tells(const struct story *story)
{
	u32 k;

	printf("y %u %u %lu %lu %u %u %u", story->thread, story->wait, story->began, story->until, story->off,
	       story->was_woken, story->is_over);
	for (k = 0; k < story->count; k++)
		printf(" %lu %lu %u %u", story->steps[k].from, story->steps[k].until, story->steps[k].occupant,
		       story->steps[k].processor);
	printf("\n");
	return true;
}

static inline void walks(u32 count, struct pass *pass)
{
	u32 k;

	for (k = 0; k < count && !passes(k, pass); k++)
		;
}

static u32 slot_of(u32 id)
{
	u32 k;

	for (k = 0; k < THREADS; k++)
		if (id && threads[k].id == id)
			return k;
	return UNSEEN;
}

static void prints(void)
{
	u32 k, n;

	for (k = 0; k < THREADS; k++) {
		const struct thread *thread = &threads[k];

		if (!thread->id)
			continue;
		printf("t %u %u %u %u %u %lu %lu", thread->id, thread->state, thread->detail, thread->processor,
		       thread->wait, thread->began, thread->since);
		for (n = 0; n < OFFS; n++)
			printf(" %lu", thread->off[n]);
		for (n = 0; n < BUCKETS; n++)
			printf(" %lu", thread->latencies[n]);
		printf(" %lu %lu", thread->latency_sum, thread->latency_max);
		for (n = 0; n < PROCESSORS; n++)
			printf(" %lu", ran[k][n]);
		for (n = 0; n < thread->count; n++)
			printf(" %lu %lu %u %u", thread->steps[n].from, thread->steps[n].until,
			       thread->steps[n].occupant, thread->steps[n].processor);
		printf("\n");
	}
	for (k = 0; k < PROCESSORS; k++)
		printf("p %u %u %u\n", k, processors[k].is_seen, processors[k].occupant);
	for (k = 0; k < sums_count; k++)
		printf("u %u %u %lu\n", threads[sums[k].slot].id, sums[k].occupant, sums[k].ns);
	sums_count = 0;
	told = 0;
	printf(".\n");
	fflush(stdout);
}

static void happens(char what, const u64 *word)
{
	struct pass pass = { .at = word[0], .number = (u32)word[1], .occupant = (u32)word[2] };

	switch (what) {
	case 'w':
		threads[word[0]].id = (u32)word[1];
		break;
	case 's':
		here = pass.number;
		forgets_name();
		switches(&processors[here], &pass, slot_of(pass.occupant), (u32)word[3], slot_of((u32)word[4]),
			 (u32)word[4]);
		break;
	case 'k':
		if (slot_of((u32)word[2]) != UNSEEN)
			wakes(slot_of((u32)word[2]), (u32)word[1], word[0]);
		break;
	case 'm':
		marks[word[0]] = (struct mark){ .until = word[2], .wait = (u32)word[1], .threshold = word[3] };
		break;
	case 'g':
		set.told_from = word[0];
		set.told_max = word[1];
		memcpy(set.bounds, word + 2, sizeof(set.bounds));
		break;
	default:
		prints();
	}
}

int main(void)
{
	char line[512];

	while (fgets(line, sizeof(line), stdin)) {
		u64 word[16] = { 0 };
		char *at = line + 1;
		u32 k;

		for (k = 0; k < 16; k++)
			word[k] = strtoull(at, &at, 10);
		happens(line[0], word);
	}
	return 0;
}
