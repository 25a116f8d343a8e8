/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Punctual's policies behind a C interface: the contract of version 2.
 *
 * - Calls with one pool come one after the other: the caller has a lock for each pool. Those that make, end or
 *   give memory to pools may come at any time, with interrupts off: a lock of the library's own keeps them
 *   apart, and is held for a constant time.
 * - `now_ns` is a clock of the caller that does not go back; where it does all the same, time stands still.
 * - Every pointer is null or valid for the call. A null, an unknown number or a value that the policy refuses
 *   is an error, and nothing has changed.
 * - What units ran is reckoned here, from the picks: the caller charges nothing.
 * - After a call with an answer, each processor in `resched` must pick, and `punctual_timer` must be called at
 *   `next_timer_ns` at the latest. Words of `resched` beyond the pool's processors are left as they are.
 * - A unit that a processor picked may still be executing on another one, which must pick as well: it is the
 *   caller's part to wait for that.
 * - Stack: at most 1 KiB for a decision (wake, sleep, pick, timer), 4 KiB for other calls; tests/contract.c
 *   measures it. Work: that of the policy, and of replenishments due since the last call.
 * - The library calls `punctual_panicked` alone, if memory is used up or something in it is wrong. It must not
 *   return; the pool of the call, and no other, must not be used any more, nor ended.
 */
#ifndef PUNCTUAL_H
#define PUNCTUAL_H

#ifdef __XEN__
#include <xen/types.h>
#else
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#endif

#define PUNCTUAL_VERSION 2
#define PUNCTUAL_CPUS_MAX 512
#define PUNCTUAL_NEVER (~(uint64_t)0)

enum punctual_result {
    PUNCTUAL_OK = 0,
    PUNCTUAL_INVALID = -1,      /* a null, or a text that is no UTF-8 */
    PUNCTUAL_CONFIG = -2,       /* no such policy, option, value or size */
    PUNCTUAL_PARAMETER = -3,    /* the policy refuses a parameter */
    PUNCTUAL_FULL = -4,         /* as many units as the pool was made for */
    PUNCTUAL_NO_UNIT = -5,
    PUNCTUAL_NO_PROCESSOR = -6,
};

struct punctual_pool;

/* Ends with a zero. */
struct punctual_text {
    char bytes[256];
};

/* Processor 0 is bit 0 of the first word. */
struct punctual_processors {
    uint64_t words[PUNCTUAL_CPUS_MAX / 64];
};

struct punctual_answer {
    uint64_t next_timer_ns;
    struct punctual_processors resched;
};

/* Parameters of a unit; of those whose bit is not in `given` the policy has a default, or refuses the unit. */
enum punctual_given {
    PUNCTUAL_BUDGET = 1 << 0,
    PUNCTUAL_PERIOD = 1 << 1,
    PUNCTUAL_DEADLINE = 1 << 2,
    PUNCTUAL_PRIORITY = 1 << 3,
    PUNCTUAL_WEIGHT = 1 << 4,
    PUNCTUAL_CAP = 1 << 5,
    PUNCTUAL_EXTRATIME = 1 << 6,
    PUNCTUAL_BEST_EFFORT = 1 << 7,
    PUNCTUAL_AFFINITY = 1 << 8,
};

struct punctual_params {
    uint32_t given;
    uint32_t priority;          /* smaller is more urgent */
    uint64_t budget_ns;
    uint64_t period_ns;
    uint64_t deadline_ns;       /* relative */
    uint32_t weight;
    uint32_t cap_percent;       /* of a processor; 0: none */
    uint32_t extratime;
    uint32_t best_effort;       /* below all others; of its parameters the affinity counts alone */
    struct punctual_processors affinity;
};

enum punctual_run {
    PUNCTUAL_IDLE = 0,
    PUNCTUAL_UNIT = 1,
    PUNCTUAL_IDLE_FOR = 2,      /* nothing runs, and the budget of `unit` idles away */
};

struct punctual_slice {
    uint32_t run;
    uint32_t unit;
    uint64_t until_ns;          /* the processor must pick again then, at the latest */
};

struct punctual_account {
    uint64_t left_ns;           /* all ones: the policy keeps no budget */
    uint64_t deadline_ns;       /* absolute; all ones: none */
    uint64_t exhaustions;
    uint64_t replenishments;
};

uint32_t punctual_version(void);

/* The names of the policies, from 0 on; false after the last. */
bool punctual_policy(uint32_t index, struct punctual_text *name);

/* Memory that a pool takes at most, and memory for good. */
size_t punctual_pool_bytes(uint32_t cpus, uint32_t units);
void punctual_give(void *memory, size_t bytes);

/* Bytes that were given, and bytes of those that pools have now. */
void punctual_memory(size_t *given, size_t *used);

/* `options` is "name=value,name=value" or empty. Null, with the reason in `why`, if there is no such pool. */
struct punctual_pool *punctual_create(const struct punctual_text *policy, const struct punctual_text *options,
                                      uint32_t cpus, uint32_t units, struct punctual_text *why);
void punctual_destroy(struct punctual_pool *pool);

/* A unit comes, asleep, and is numbered; `why` says why not. Numbers of units that went come again. */
int punctual_insert(struct punctual_pool *pool, uint64_t now_ns, const struct punctual_params *params,
                    uint32_t *unit, struct punctual_text *why, struct punctual_answer *then);
int punctual_remove(struct punctual_pool *pool, uint64_t now_ns, uint32_t unit, struct punctual_answer *then);
int punctual_adjust(struct punctual_pool *pool, uint64_t now_ns, uint32_t unit,
                    const struct punctual_params *params, struct punctual_text *why,
                    struct punctual_answer *then);

int punctual_wake(struct punctual_pool *pool, uint64_t now_ns, uint32_t unit, struct punctual_answer *then);
int punctual_sleep(struct punctual_pool *pool, uint64_t now_ns, uint32_t unit, struct punctual_answer *then);

/* For policies of tasks: the unit's work is due then, an absolute time. */
int punctual_deadline(struct punctual_pool *pool, uint64_t now_ns, uint32_t unit, uint64_t deadline_ns,
                      struct punctual_answer *then);

int punctual_pick(struct punctual_pool *pool, uint64_t now_ns, uint32_t cpu, struct punctual_slice *slice,
                  struct punctual_answer *then);

/* punctual_sleep and punctual_pick, for a processor whose unit has no more work. */
int punctual_sleep_and_pick(struct punctual_pool *pool, uint64_t now_ns, uint32_t unit, uint32_t cpu,
                            struct punctual_slice *slice, struct punctual_answer *then);
int punctual_timer(struct punctual_pool *pool, uint64_t now_ns, struct punctual_answer *then);
int punctual_account(const struct punctual_pool *pool, uint32_t unit, struct punctual_account *account);

/* The policy panics at its next decision: to see what a caller does then. */
void punctual_break(struct punctual_pool *pool);

/* The caller's. */
void punctual_panicked(const struct punctual_text *why) __attribute__((__noreturn__));

#endif
