/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Punctual's policies behind a C interface. This is version 3 of the contract.
 *
 * Locking. The caller serializes the calls with one pool, by a lock for each pool. punctual_create,
 * punctual_destroy and punctual_give may be called at any time, but with interrupts off: the library has a
 * lock of its own for its memory, and holds it for a constant time.
 *
 * Time. `now_ns` is a monotonic clock of the caller. The library treats an earlier time as the latest one
 * that it has seen. It accounts what units ran by itself, from the picks.
 *
 * Errors. Every pointer is null or valid for the call. A null pointer, an unknown number or a value that the
 * policy refuses is an error, and the call changes nothing.
 *
 * Answers. After a call with a `struct punctual_answer`, each processor in `resched` must pick, and the
 * caller calls punctual_timer at `next_timer_ns` at the latest. The library does not write words of
 * `resched` beyond the pool's processors. It may pick a unit that another processor is still executing; that
 * one must pick as well, and the caller waits until it has switched away.
 *
 * Limits. A decision (wake, sleep, pick, timer) takes at most 1 KiB of stack, any other call 4 KiB;
 * tests/contract.c measures both. A call does the work of the policy, and of the replenishments that became
 * due since the last call.
 *
 * Panics. The library calls nothing but punctual_panicked, when memory is used up or it finds a bug in
 * itself. That function must not return. The caller must neither use nor destroy the pool of that call
 * afterwards; other pools are not affected.
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

#define PUNCTUAL_VERSION 3
#define PUNCTUAL_CPUS_MAX 512
#define PUNCTUAL_NEVER (~(uint64_t)0)

enum punctual_result {
    PUNCTUAL_OK = 0,
    PUNCTUAL_INVALID = -1,      /* a null pointer, or text that is not UTF-8 */
    PUNCTUAL_CONFIG = -2,       /* no such policy, option, value or size */
    PUNCTUAL_PARAMETER = -3,    /* the policy refuses a parameter */
    PUNCTUAL_FULL = -4,         /* the pool has its maximum of units */
    PUNCTUAL_NO_UNIT = -5,
    PUNCTUAL_NO_PROCESSOR = -6,
};

struct punctual_pool;

/* Zero-terminated. */
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

/* Parameters of a unit. The policy has a default for those that are not `given`, or refuses the unit. */
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
    PUNCTUAL_VM = 1 << 9,
};

struct punctual_params {
    uint32_t given;
    uint32_t priority;          /* smaller is more urgent */
    uint64_t budget_ns;
    uint64_t period_ns;
    uint64_t deadline_ns;       /* relative */
    uint32_t weight;
    uint32_t cap_percent;       /* of one processor; 0: no cap */
    uint32_t extratime;
    uint32_t best_effort;       /* below all others; only its affinity counts */
    struct punctual_processors affinity;
    uint32_t vm;                /* less than 2^31; vCPUs of one VM take turns; read by punctual_insert */
    uint32_t reserved;          /* 0 */
};

enum punctual_run {
    PUNCTUAL_IDLE = 0,
    PUNCTUAL_UNIT = 1,
    PUNCTUAL_IDLE_FOR = 2,      /* nothing runs, and `unit` uses up its budget */
};

struct punctual_slice {
    uint32_t run;
    uint32_t unit;
    uint64_t until_ns;          /* the processor must pick again by then */
};

struct punctual_account {
    uint64_t left_ns;           /* all ones: the policy has no budgets */
    uint64_t deadline_ns;       /* absolute; all ones: none */
    uint64_t exhaustions;
    uint64_t replenishments;
};

uint32_t punctual_version(void);

/* Names of the policies, from index 0; false after the last one. */
bool punctual_policy(uint32_t index, struct punctual_text *name);

/* The most memory that a pool takes. */
size_t punctual_pool_bytes(uint32_t cpus, uint32_t units);

/* Gives memory to the library, which never returns it. */
void punctual_give(void *memory, size_t bytes);

/* Bytes that were given, and how many of these pools use. */
void punctual_memory(size_t *given, size_t *used);

/* `options` is "name=value,name=value" or empty. On error the result is null, and `why` has the reason. */
struct punctual_pool *punctual_create(const struct punctual_text *policy, const struct punctual_text *options,
                                      uint32_t cpus, uint32_t units, struct punctual_text *why);
void punctual_destroy(struct punctual_pool *pool);

/* Adds a unit, asleep, and numbers it; numbers of removed units are used again. On error, see `why`. */
int punctual_insert(struct punctual_pool *pool, uint64_t now_ns, const struct punctual_params *params,
                    uint32_t *unit, struct punctual_text *why, struct punctual_answer *answer);
int punctual_remove(struct punctual_pool *pool, uint64_t now_ns, uint32_t unit,
                    struct punctual_answer *answer);
int punctual_adjust(struct punctual_pool *pool, uint64_t now_ns, uint32_t unit,
                    const struct punctual_params *params, struct punctual_text *why,
                    struct punctual_answer *answer);

int punctual_wake(struct punctual_pool *pool, uint64_t now_ns, uint32_t unit, struct punctual_answer *answer);
int punctual_sleep(struct punctual_pool *pool, uint64_t now_ns, uint32_t unit,
                   struct punctual_answer *answer);

/* For policies of tasks: sets the absolute deadline of the unit's work. */
int punctual_deadline(struct punctual_pool *pool, uint64_t now_ns, uint32_t unit, uint64_t deadline_ns,
                      struct punctual_answer *answer);

int punctual_pick(struct punctual_pool *pool, uint64_t now_ns, uint32_t cpu, struct punctual_slice *slice,
                  struct punctual_answer *answer);

/* punctual_sleep and punctual_pick in one call, for a processor whose unit has no more work. */
int punctual_sleep_and_pick(struct punctual_pool *pool, uint64_t now_ns, uint32_t unit, uint32_t cpu,
                            struct punctual_slice *slice, struct punctual_answer *answer);
int punctual_timer(struct punctual_pool *pool, uint64_t now_ns, struct punctual_answer *answer);
int punctual_account(const struct punctual_pool *pool, uint32_t unit, struct punctual_account *account);

/* For tests of the caller: the policy panics at its next decision. */
void punctual_break(struct punctual_pool *pool);

/* The caller defines this one. */
void punctual_panicked(const struct punctual_text *why) __attribute__((__noreturn__));

#endif
