/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Punctual: a scheduler whose policy is a library.
 *
 * The library (punctual.h) holds servers, RTDS, SEDF, Credit and other
 * policies. This file connects them to Xen.
 */

#include <xen/cpu.h>
#include <xen/errno.h>
#include <xen/event.h>
#include <xen/guest_access.h>
#include <xen/lib.h>
#include <xen/mm.h>
#include <xen/param.h>
#include <xen/sched.h>
#include <xen/softirq.h>
#include <xen/time.h>
#include <xen/timer.h>
#include <xen/trace.h>
#include <xen/xmalloc.h>

#include "private.h"
#include "punctual_op.h"

/*
 * Design:
 *
 * Each cpupool has a pool of the library, which decides which unit runs on
 * which pCPU, and until when. This file is the mechanism around it:
 *
 * - it reports what happens to units (insert, remove, adjust, wake, sleep)
 *   and asks what a pCPU runs next (pick). The library accounts run time by
 *   itself, from the picks;
 * - most calls return an answer: the pCPUs that must reschedule, and the time
 *   at which the library must be called at the latest. apply() tickles the
 *   former and sets prv->timer to the latter.
 *
 * A pCPU has the same number in the library as in Xen. Hard affinity is one of
 * the parameters of a unit, limited to the pCPUs of the cpupool. Policies do
 * not know soft affinity; it only decides which of several pCPUs reschedules
 * first, see tickle_preferred().
 *
 * The scheduler has the ID of RTDS, so that an unmodified `xl sched-rtds` sets
 * budget, period and extratime. A unit without an explicit priority gets a
 * rate monotonic one. A sysctl (punctual_op.h) sets all parameters of a unit
 * and replaces the policy of a cpupool at run time.
 *
 * The command line options are sched=punctual and
 * sched_punctual=POLICY[,NAME=VALUE...], the policy that each cpupool starts
 * with (RTDS by default). sched_punctual=off leaves the ID to Xen's own RTDS.
 *
 * The library may panic. The call is then abandoned (see GUARD) and the policy
 * of that cpupool has failed: its units run round robin, in slices of
 * FALLBACK_SLICE, until the sysctl sets another policy.
 *
 * While Xen traces, each call is a record with all its arguments and its
 * answer, so that the calls can be replayed outside of Xen.
 *
 * Queue scheme:
 *
 * All queues that matter to a policy are inside the library. This file has
 * - prv->units: all units of the cpupool, in order of insertion. It is walked
 *   when pCPUs join or leave, when the policy is replaced, and for dumps. If
 *   the policy has failed, it is the round robin queue, and the unit that is
 *   picked goes to its tail;
 * - prv->by_number: the units that the library knows, by the number that it
 *   has given them.
 *
 * The library may pick a unit that another pCPU has not switched away from
 * yet. The pCPU that picked it then idles, and is tickled when the context of
 * the unit is saved, see must_wait().
 */

/*
 * Locking:
 *
 * - prv->lock
 *  + it is per-cpupool, and the schedule lock of all pCPUs in it;
 *  + protects everything in punctual_private and punctual_unit, and
 *    serializes the calls into the library with prv->pool;
 *  + the caller holds it for wake, sleep, do_schedule and adjust_affinity;
 *  + insert_unit, remove_unit, context_saved (only if a pCPU waits for the
 *    unit), switch_sched, deinit_pdata, move_timers, adjust, adjust_global,
 *    dump and the timer's handler take it.
 *
 * - sysctl_lock of Xen
 *  + serializes creation and destruction of pools, except at boot, and so
 *    protects nr_pools, nr_funded and next_trace_id.
 *
 * - the lock of the library's allocator
 *  + the library takes it in create, destroy, give and insert, for a constant
 *    time. It calls nothing while it holds it.
 *
 * Calling into the library:
 *  + interrupts are always off;
 *  + create, give and destroy need no prv->lock, since nobody else can reach
 *    the pool. version, pool_bytes and memory need no lock at all;
 *  + all others need prv->lock of the pool.
 *  The library calls nothing but punctual_panicked().
 *
 * Ordering:
 *  + switch_sched takes prv->lock while core.c holds the lock of free pCPUs.
 *    core.c orders two schedule locks by address, and that lock is part of
 *    Xen's image, which is below all allocated memory: the order is the same;
 *  + set_pool() takes prv->lock first and then that of the pool that it has
 *    created, which nobody else can reach. Nothing takes the locks of two
 *    cpupools;
 *  + the allocator's lock, and those of timers, traces and the console, may be
 *    taken while holding prv->lock, never the other way round.
 */

/*
 * Default parameters, those of RTDS. Units may use extratime.
 */
#define DEFAULT_PERIOD      MILLISECS(10)
#define DEFAULT_BUDGET      MILLISECS(4)

/* Time slice of the round robin after a policy has failed. */
#define FALLBACK_SLICE      MILLISECS(10)

/* No unit, and no pCPU. */
#define NONE                (~0U)

/*
 * sched_punctual: the initial policy, with its options.
 */
static char __initdata opt_policy[sizeof(struct punctual_text)] = "rtds";
string_param("sched_punctual", opt_policy);

/*
 * sched_punctual_units: how many units a cpupool has memory for.
 */
static unsigned int __read_mostly opt_units = 256;
integer_param("sched_punctual_units", opt_units);

/* opt_policy, split. */
static struct punctual_text initial_policy, initial_options;

/* Pools that exist, and pools that the library was given memory for. */
static unsigned int nr_pools, nr_funded;

/*
 * Flags and other state that several functions share
 *
 * All of it is in punctual_private, but waiting_cpu, which is in
 * punctual_unit. It is accessed with prv->lock held unless stated otherwise.
 */
/*
 * failed: Has the policy failed, so that units run round robin?
 * + Set in policy_failed(): the library panicked, or could not insert a unit.
 * + Cleared in exchange_policies(), when another policy takes over.
 * + Checked in CALL(), which does not call a failed policy, in
 *   punctual_wake_unit(), which tickles idle pCPUs instead, and in
 *   free_private(): the memory of a failed pool is never reused.
 */
/*
 * cpus_changed: Does the library need to learn that pCPUs joined or left?
 * + Set in punctual_switch_sched(), punctual_deinit_pdata() and leave_pool().
 * + Cleared in update_cpus(), unless a pCPU is still joining or leaving.
 * + Checked in refresh(), before a decision, the timer, and an insertion.
 */
/*
 * has_soft: Has any unit of the cpupool had a soft affinity?
 * + Set in punctual_insert_unit() and punctual_adjust_affinity().
 * + Never cleared.
 * + Checked in apply() and punctual_do_schedule().
 */
/*
 * deferred: The pCPUs to tickle after the next decision.
 * + Set in tickle_preferred(), for those that shall reschedule later than a
 *   pCPU that a unit prefers.
 * + Cleared, and they are tickled, in tickle_deferred(): after each decision
 *   and when a pCPU leaves.
 */
/*
 * picking_cpu: Which pCPU is about to pick, and needs no tickle? NONE: none.
 * + Set and cleared in call_sleep_before_pick().
 * + Checked in tickle(), tickle_preferred() and preferred_cpu().
 */
/*
 * has_timer: Is prv->timer initialized?
 * + Set in punctual_switch_sched(), for the first pCPU of the cpupool.
 * + Cleared in leave_timer(), when the last one leaves.
 * + Checked in apply() before the timer is set.
 */
/*
 * waiting_cpu: Which pCPU waits for another one to switch away from this unit?
 * -1: none.
 * + Set in must_wait(), which clears it again if the wait is over already.
 * + Checked in punctual_context_saved(), first without the lock, which then
 *   tickles the pCPU and clears it.
 */

/*
 * A cpupool
 */
struct punctual_private {
    spinlock_t lock;
    struct punctual_text policy;    /* name of the policy */
    struct punctual_text options;   /* its options, "name=value,name=value" */
    struct punctual_pool *pool;     /* of the library */
    uint8_t trace_id;               /* the pool in trace records */
    uint32_t trace_sequence;        /* the next trace record of the pool */
    bool failed;
    unsigned int picking_cpu;
    bool has_soft;
    cpumask_t deferred;
    cpumask_t cpus;                 /* pCPUs of the cpupool */
    bool cpus_changed;
    struct timer timer;             /* calls punctual_timer() */
    bool has_timer;
    uint64_t timer_ns;              /* when; PUNCTUAL_NEVER if it is not set */
    struct list_head units;         /* all units */
    struct punctual_unit **by_number;
    unsigned int max_units;         /* size of by_number */
    uint64_t nr_picks, nr_waits;    /* for dumps */
};

/*
 * A unit
 */
struct punctual_unit {
    struct list_head list;          /* on prv->units */
    struct sched_unit *unit;
    uint32_t number;                /* in the library; NONE if unknown there */
    /*
     * As they were set. The affinity is that of the sched_unit, and the
     * priority depends on the period until it is set.
     */
    struct punctual_params params;
    int waiting_cpu;
};

static inline struct punctual_private *
punctual_priv(const struct scheduler *ops)
{
    return ops->sched_data;
}

static inline struct punctual_unit *
punctual_unit(const struct sched_unit *unit)
{
    return unit->priv;
}

/*
 * Tracing
 *
 * Each record is seven words: its sequence number within the pool, the time of
 * the call in ns (two words, low one first), the pool (8 bits) and a unit or
 * pCPU (24 bits), a value (two words) and another one. TRC_PUNCTUAL_TEXT
 * differs: the number of the chunk, the pool as above, and 20 bytes of the
 * policy and its options, as on the command line.
 *
 * crates/punctual-xen/src/record.rs reads these records.
 */
/* No scheduler in public/trace.h has this number. */
#define TRC_SCHED_PUNCTUAL      7
/* A pool starts: number of pCPUs, and maximum of units in the upper word. */
#define TRC_PUNCTUAL_POOL       TRC_SCHED_CLASS_EVT(PUNCTUAL, 1)
#define TRC_PUNCTUAL_TEXT       TRC_SCHED_CLASS_EVT(PUNCTUAL, 2)
/*
 * A parameter of the INSERT or ADJUST that follows: its bit in `given`, its
 * value, and the index of the word if it is the affinity.
 */
#define TRC_PUNCTUAL_PARAM      TRC_SCHED_CLASS_EVT(PUNCTUAL, 3)
/* The timer in the answer; domain (16 bits) and unit. */
#define TRC_PUNCTUAL_INSERT     TRC_SCHED_CLASS_EVT(PUNCTUAL, 4)
/* The timer in the answer; 1 if the policy refused the parameters. */
#define TRC_PUNCTUAL_ADJUST     TRC_SCHED_CLASS_EVT(PUNCTUAL, 5)
/* The timer in the answer; the first 32 pCPUs that must reschedule. */
#define TRC_PUNCTUAL_REMOVE     TRC_SCHED_CLASS_EVT(PUNCTUAL, 6)
#define TRC_PUNCTUAL_WAKE       TRC_SCHED_CLASS_EVT(PUNCTUAL, 7)
#define TRC_PUNCTUAL_SLEEP      TRC_SCHED_CLASS_EVT(PUNCTUAL, 8)
#define TRC_PUNCTUAL_TIMER      TRC_SCHED_CLASS_EVT(PUNCTUAL, 9)
/* The end of the slice; what runs (2 bits) and the unit (30 bits). */
#define TRC_PUNCTUAL_PICK       TRC_SCHED_CLASS_EVT(PUNCTUAL, 10)
#define TRC_PUNCTUAL_FAILED     TRC_SCHED_CLASS_EVT(PUNCTUAL, 11)

/* Xen 4.19 renamed it. */
#ifdef TRACE_TIME
#define trace_with_time(event, bytes, data) trace_time(event, bytes, data)
#else
#define trace_with_time(event, bytes, data) \
    __trace_var(event, true, bytes, data)
#endif

static void noinline write_record(struct punctual_private *prv, uint32_t event,
                                  s_time_t now, uint32_t who, uint64_t value,
                                  uint32_t more)
{
    uint32_t words[] = {
        prv->trace_sequence++,
        now,
        (uint64_t)now >> 32,
        ((uint32_t)prv->trace_id << 24) | (who & 0xffffff),
        value,
        value >> 32,
        more,
    };

    BUILD_BUG_ON(sizeof(words) > TRACE_EXTRA_MAX * sizeof(uint32_t));
    trace_with_time(event, sizeof(words), words);
}

static inline void record(struct punctual_private *prv, uint32_t event,
                          s_time_t now, uint32_t who, uint64_t value,
                          uint32_t more)
{
    if ( unlikely(tb_init_done) )
        write_record(prv, event, now, who, value, more);
}

static inline void record_call(struct punctual_private *prv, uint32_t event,
                               s_time_t now, uint32_t who,
                               const struct punctual_answer *answer)
{
    record(prv, event, now, who, answer->next_timer_ns,
           answer->resched.words[0]);
}

static inline void record_pick(struct punctual_private *prv, s_time_t now,
                               unsigned int cpu,
                               const struct punctual_slice *slice)
{
    record(prv, TRC_PUNCTUAL_PICK, now, cpu, slice->until_ns,
           (slice->run << 30) | slice->unit);
}

static void record_text(struct punctual_private *prv, const char *text)
{
    struct {
        uint32_t chunk, who;
        char bytes[20];
    } words = { .who = (uint32_t)prv->trace_id << 24 };

    BUILD_BUG_ON(sizeof(words) > TRACE_EXTRA_MAX * sizeof(uint32_t));

    for ( ; *text; words.chunk++ )
    {
        memset(words.bytes, 0, sizeof(words.bytes));
        memcpy(words.bytes, text, strnlen(text, sizeof(words.bytes)));
        text += strnlen(text, sizeof(words.bytes));
        trace_with_time(TRC_PUNCTUAL_TEXT, sizeof(words), &words);
    }
}

static void record_pool(struct punctual_private *prv)
{
    if ( likely(!tb_init_done) )
        return;

    record(prv, TRC_PUNCTUAL_POOL, NOW(), 0,
           nr_cpu_ids | ((uint64_t)prv->max_units << 32), 0);
    record_text(prv, prv->policy.bytes);
    if ( prv->options.bytes[0] )
    {
        record_text(prv, ",");
        record_text(prv, prv->options.bytes);
    }
}

static void record_params(struct punctual_private *prv, s_time_t now,
                          const struct punctual_params *params)
{
    const uint64_t values[] = {
        params->budget_ns,
        params->period_ns,
        params->deadline_ns,
        params->priority,
        params->weight,
        params->cap_percent,
        params->extratime,
        params->best_effort,
    };
    unsigned int i;

    BUILD_BUG_ON(1U << ARRAY_SIZE(values) != PUNCTUAL_AFFINITY);

    if ( likely(!tb_init_done) )
        return;

    for ( i = 0; i < ARRAY_SIZE(values); i++ )
        if ( params->given & (1U << i) )
            record(prv, TRC_PUNCTUAL_PARAM, now, i, values[i], 0);

    for ( i = 0; i < ARRAY_SIZE(params->affinity.words); i++ )
        if ( params->affinity.words[i] )
            record(prv, TRC_PUNCTUAL_PARAM, now, ARRAY_SIZE(values),
                   params->affinity.words[i], i);
}

/*
 * Calls into the library
 */

/* What a pCPU needs to abandon its call into the library. */
struct way_out {
    /* Stack pointer of the call, see GUARD; NULL outside of CALL(). */
    void *stack;
    /* First argument of the library's function. */
    const void *first;
};
static DEFINE_PER_CPU(struct way_out, way_out);

/* Result of an abandoned call. No function of the library returns it. */
#define PANICKED 1

/*
 * guarded_NAME(out, ...) calls punctual_NAME(out->first, ...), and returns
 * PANICKED if that panics. It saves the callee-saved registers on the stack
 * and the stack pointer in *out; abandon_call() restores both. setjmp() would
 * keep the variables of all callers out of registers.
 */
#define GUARD(name, ...)                                                \
    long guarded_##name(struct way_out *out, ##__VA_ARGS__);            \
    asm ( ".pushsection .text, \"ax\", @progbits\n\t"                   \
          ".p2align 4, 0xcc\n\t"                                        \
          ".type guarded_" #name ", @function\n"                        \
          "guarded_" #name ":\n\t"                                      \
          "push %rbx; push %rbp; push %r12; push %r13\n\t"              \
          "push %r14; push %r15\n\t"                                    \
          "mov %rsp, (%rdi)\n\t"                                        \
          "mov 8(%rdi), %rdi\n\t"                                       \
          "call punctual_" #name "\n\t"                                 \
          "add $48, %rsp\n\t"                                           \
          "jmp __x86_return_thunk\n\t"                                  \
          ".size guarded_" #name ", . - guarded_" #name "\n\t"          \
          ".popsection" )

GUARD(create, const struct punctual_text *options, uint32_t cpus,
      uint32_t units, struct punctual_text *why);
GUARD(insert, uint64_t now_ns, const struct punctual_params *params,
      uint32_t *unit, struct punctual_text *why,
      struct punctual_answer *answer);
GUARD(remove, uint64_t now_ns, uint32_t unit, struct punctual_answer *answer);
GUARD(adjust, uint64_t now_ns, uint32_t unit,
      const struct punctual_params *params, struct punctual_text *why,
      struct punctual_answer *answer);
GUARD(wake, uint64_t now_ns, uint32_t unit, struct punctual_answer *answer);
GUARD(sleep, uint64_t now_ns, uint32_t unit, struct punctual_answer *answer);
GUARD(pick, uint64_t now_ns, uint32_t cpu, struct punctual_slice *slice,
      struct punctual_answer *answer);
GUARD(sleep_and_pick, uint64_t now_ns, uint32_t unit, uint32_t cpu,
      struct punctual_slice *slice, struct punctual_answer *answer);
GUARD(timer, uint64_t now_ns, struct punctual_answer *answer);

/* Returns PANICKED from the guarded call of this pCPU. */
static void noreturn abandon_call(struct way_out *out)
{
    void *stack = out->stack;

    BUILD_BUG_ON(offsetof(struct way_out, stack) != 0 ||
                 offsetof(struct way_out, first) != 8);

    out->stack = NULL;
    asm volatile ( "mov %0, %%rsp\n\t"
                   "pop %%r15; pop %%r14; pop %%r13\n\t"
                   "pop %%r12; pop %%rbp; pop %%rbx\n\t"
                   "mov %1, %%eax\n\t"
                   "jmp __x86_return_thunk"
                   :: "r" (stack), "i" (PANICKED) : "memory" );
    unreachable();
}

/* The library calls this when it panics. */
void punctual_panicked(const struct punctual_text *why)
{
    struct way_out *out = &this_cpu(way_out);

    printk(XENLOG_ERR "punctual: %s\n", why->bytes);
    if ( !out->stack )
        panic("punctual: the library panicked outside of a guarded call\n");

    abandon_call(out);
}

/*
 * CALL() calls punctual_NAME() with the pool of prv. The result is PANICKED if
 * that panics, or if the policy has failed before.
 *
 * CALL_FIRST() does so with another first argument, even if the policy has
 * failed, and without the lock.
 */
#define CALL(prv, name, ...) ({                                         \
    ASSERT(spin_is_locked(&(prv)->lock));                               \
    likely(!(prv)->failed)                                              \
    ? CALL_FIRST(prv, (prv)->pool, name, ##__VA_ARGS__) : PANICKED;     \
})

#define CALL_FIRST(prv, with, name, ...) ({                             \
    struct way_out *out_ = &this_cpu(way_out);                          \
    long rc_;                                                           \
                                                                        \
    ASSERT(!local_irq_is_enabled());                                    \
    ASSERT(!out_->stack);                                               \
    out_->first = (with);                                               \
    rc_ = guarded_##name(out_, ##__VA_ARGS__);                          \
    out_->stack = NULL;                                                 \
    if ( unlikely(rc_ == PANICKED) )                                    \
        policy_failed(prv);                                             \
    rc_;                                                                \
})

/* The units of the cpupool run round robin from now on. */
static void noinline policy_failed(struct punctual_private *prv)
{
    unsigned int cpu;

    printk(XENLOG_ERR
           "punctual: the pool's policy failed, round robin from now on\n");
    prv->failed = true;
    if ( unlikely(tb_init_done) )
        write_record(prv, TRC_PUNCTUAL_FAILED, NOW(), 0, 0, 0);
    for_each_cpu ( cpu, &prv->cpus )
        cpu_raise_softirq(cpu, SCHEDULE_SOFTIRQ);
}

/*
 * Answers of the library
 */

/* A pCPU that idles and that the unit prefers; nr_cpu_ids: none. */
static unsigned int preferred_cpu(const struct punctual_private *prv,
                                  const struct sched_unit *unit)
{
    unsigned int cpu;

    for_each_cpu ( cpu, unit->cpu_soft_affinity )
        if ( cpu != prv->picking_cpu &&
             cpumask_test_cpu(cpu, unit->cpu_hard_affinity) &&
             cpumask_test_cpu(cpu, &prv->cpus) &&
             is_idle_unit(curr_on_cpu(cpu)) )
            return cpu;

    return nr_cpu_ids;
}

/*
 * Soft affinity. If a waiting unit prefers none of the pCPUs that must
 * reschedule, but one that idles, then the latter reschedules first, and the
 * others are deferred until it has. The policy still decides what each of them
 * gets. Returns whether pCPUs were deferred.
 */
static bool noinline tickle_preferred(struct punctual_private *prv,
                                      const struct punctual_answer *answer)
{
    const struct punctual_unit *svc;
    cpumask_t cpus;
    unsigned int cpu;
    bool any = false;

    cpumask_clear(&cpus);
    for_each_cpu ( cpu, &prv->cpus )
        if ( cpu != prv->picking_cpu &&
             (answer->resched.words[cpu / 64] >> (cpu % 64)) & 1 )
            __cpumask_set_cpu(cpu, &cpus);
    if ( cpumask_empty(&cpus) )
        return false;

    list_for_each_entry ( svc, &prv->units, list )
    {
        const struct sched_unit *unit = svc->unit;

        if ( !unit->soft_aff_effective || unit->is_running ||
             !unit_runnable(unit) ||
             cpumask_intersects(&cpus, unit->cpu_soft_affinity) )
            continue;

        cpu = preferred_cpu(prv, unit);
        if ( cpu >= nr_cpu_ids )
            continue;

        cpu_raise_softirq(cpu, SCHEDULE_SOFTIRQ);
        any = true;
    }

    if ( any )
        cpumask_or(&prv->deferred, &prv->deferred, &cpus);

    return any;
}

static void noinline tickle_deferred(struct punctual_private *prv)
{
    ASSERT(spin_is_locked(&prv->lock));

    cpumask_raise_softirq(&prv->deferred, SCHEDULE_SOFTIRQ);
    cpumask_clear(&prv->deferred);
}

/*
 * Tickles the pCPUs of one word of an answer, whose bit 0 is pCPU first. The
 * library knows pCPUs of other cpupools, too: these never run a unit of it.
 */
static void noinline tickle(struct punctual_private *prv, unsigned int first,
                            uint64_t word)
{
    unsigned int cpu;

    for ( ; word; word &= word - 1 )
    {
        cpu = first + __builtin_ctzll(word);
        if ( cpu != prv->picking_cpu && cpu < nr_cpu_ids &&
             cpumask_test_cpu(cpu, &prv->cpus) )
            cpu_raise_softirq(cpu, SCHEDULE_SOFTIRQ);
    }
}

static void noinline tickle_many(struct punctual_private *prv,
                                 const struct punctual_answer *answer)
{
    unsigned int i;

    if ( prv->has_soft && tickle_preferred(prv, answer) )
        return;

    for ( i = 0; i <= (nr_cpu_ids - 1) / 64; i++ )
        tickle(prv, i * 64, answer->resched.words[i]);
}

/*
 * Tickles the pCPUs of an answer, and sets the timer. A timer that is set to
 * an earlier time is left alone: the library has nothing to do when it fires,
 * and that costs less than setting it at each sleep and wake-up.
 */
static always_inline void apply(struct punctual_private *prv,
                                const struct punctual_answer *answer)
{
    if ( unlikely(prv->has_soft) || unlikely(nr_cpu_ids > 64) )
        tickle_many(prv, answer);
    else if ( answer->resched.words[0] )
        tickle(prv, 0, answer->resched.words[0]);

    if ( answer->next_timer_ns < prv->timer_ns && prv->has_timer )
    {
        prv->timer_ns = answer->next_timer_ns;
        set_timer(&prv->timer, answer->next_timer_ns);
    }
}

/*
 * Calls that are recorded. Those that return a value return PANICKED or what
 * the library did, and leave the answer to the caller; the others apply it.
 */

static int noinline call_insert(struct punctual_private *prv, s_time_t now,
                                const struct punctual_params *params,
                                const struct sched_unit *unit,
                                uint32_t *number, struct punctual_text *why,
                                struct punctual_answer *answer)
{
    int rc;

    record_params(prv, now, params);
    rc = CALL(prv, insert, now, params, number, why, answer);
    if ( rc == PANICKED )
        return rc;
    record(prv, TRC_PUNCTUAL_INSERT, now, rc ? NONE : *number,
           answer->next_timer_ns,
           ((uint32_t)unit->domain->domain_id << 16) | unit->unit_id);

    return rc;
}

static int noinline call_adjust(struct punctual_private *prv, uint32_t number,
                                const struct punctual_params *params,
                                struct punctual_text *why,
                                struct punctual_answer *answer)
{
    s_time_t now = NOW();
    int rc;

    record_params(prv, now, params);
    rc = CALL(prv, adjust, now, number, params, why, answer);
    if ( rc == PANICKED )
        return rc;
    record(prv, TRC_PUNCTUAL_ADJUST, now, number, answer->next_timer_ns,
           rc != 0);

    return rc;
}

static void noinline call_remove(struct punctual_private *prv, uint32_t number)
{
    struct punctual_answer answer;
    s_time_t now = NOW();

    if ( CALL(prv, remove, now, number, &answer) == PANICKED )
        return;
    record_call(prv, TRC_PUNCTUAL_REMOVE, now, number, &answer);
    apply(prv, &answer);
}

static void noinline call_wake(struct punctual_private *prv, uint32_t number)
{
    struct punctual_answer answer;
    s_time_t now = NOW();

    if ( CALL(prv, wake, now, number, &answer) == PANICKED )
        return;
    record_call(prv, TRC_PUNCTUAL_WAKE, now, number, &answer);
    apply(prv, &answer);
}

static void noinline call_sleep(struct punctual_private *prv, uint32_t number,
                                s_time_t now)
{
    struct punctual_answer answer;

    if ( CALL(prv, sleep, now, number, &answer) == PANICKED )
        return;
    record_call(prv, TRC_PUNCTUAL_SLEEP, now, number, &answer);
    apply(prv, &answer);
}

/* The unit went to sleep on a pCPU that is about to pick. */
static void noinline call_sleep_before_pick(struct punctual_private *prv,
                                            uint32_t number, unsigned int cpu,
                                            s_time_t now)
{
    ASSERT(prv->picking_cpu == NONE);

    prv->picking_cpu = cpu;
    call_sleep(prv, number, now);
    prv->picking_cpu = NONE;
}

/* For a pCPU that is leaving the cpupool: it runs no unit from now on. */
static void noinline call_pick(struct punctual_private *prv, unsigned int cpu,
                               s_time_t now)
{
    struct punctual_slice slice;
    struct punctual_answer answer;

    if ( CALL(prv, pick, now, cpu, &slice, &answer) == PANICKED )
        return;
    record_pick(prv, now, cpu, &slice);
    apply(prv, &answer);
}

static void noinline call_timer(struct punctual_private *prv)
{
    struct punctual_answer answer;
    s_time_t now = NOW();

    if ( CALL(prv, timer, now, &answer) == PANICKED )
        return;
    record_call(prv, TRC_PUNCTUAL_TIMER, now, 0, &answer);
    apply(prv, &answer);
}

/*
 * Parameters of units, and pCPUs of the cpupool
 */

/*
 * May units run on this pCPU? Not yet if it is joining the cpupool, and not
 * any more if it is leaving: core.c has moved the units away from it then (see
 * cpu_disable_scheduler()), and no other may follow.
 */
static bool is_valid(unsigned int cpu)
{
    const struct cpupool *pool = get_sched_res(cpu)->cpupool;

    return pool && cpumask_test_cpu(cpu, pool->res_valid);
}

/*
 * Where a unit with this hard affinity may run. The library wants at least one
 * pCPU, so these are, in this order:
 * 0. those of its affinity;
 * 1. all valid ones: core.c is about to break the affinity;
 * 2. all that are left: the cpupool is ending.
 */
static void affinity_of(const struct punctual_private *prv,
                        const cpumask_t *hard,
                        struct punctual_processors *affinity)
{
    unsigned int cpu, attempt;
    bool any = false;

    memset(affinity, 0, sizeof(*affinity));
    for ( attempt = 0; attempt < 3 && !any; attempt++ )
        for_each_cpu ( cpu, &prv->cpus )
            if ( (attempt > 1 || is_valid(cpu)) &&
                 (attempt > 0 || cpumask_test_cpu(cpu, hard)) )
            {
                affinity->words[cpu / 64] |= 1ULL << (cpu % 64);
                any = true;
            }
}

/* The parameters as the library gets them. */
static void params_of(const struct punctual_private *prv,
                      const struct punctual_unit *svc, const cpumask_t *hard,
                      struct punctual_params *params)
{
    *params = svc->params;
    params->given |= PUNCTUAL_PRIORITY | PUNCTUAL_AFFINITY | PUNCTUAL_VM;
    /* vCPUs of a domain take turns on a pCPU. */
    params->vm = svc->unit->domain->domain_id;
    /* Rate monotonic. */
    if ( !(svc->params.given & PUNCTUAL_PRIORITY) )
        params->priority = min_t(uint64_t, INT_MAX,
                                 svc->params.period_ns / MICROSECS(1));
    affinity_of(prv, hard, &params->affinity);
}

/*
 * Passes the parameters of a unit to the library. Negative: the policy refused
 * them, why says why, and the unit keeps those that it had there.
 */
static int update_unit(struct punctual_private *prv, struct punctual_unit *svc,
                       const cpumask_t *hard, struct punctual_text *why)
{
    struct punctual_params params;
    struct punctual_answer answer;
    int rc;

    if ( svc->number == NONE || prv->failed )
        return 0;

    ASSERT(prv->by_number[svc->number] == svc);

    params_of(prv, svc, hard, &params);
    rc = call_adjust(prv, svc->number, &params, why, &answer);
    if ( rc == PANICKED )
        return 0;
    apply(prv, &answer);

    return rc;
}

/* The same for a change that the toolstack cannot take back. */
static void update_unit_or_warn(struct punctual_private *prv,
                                struct punctual_unit *svc,
                                const cpumask_t *hard)
{
    struct punctual_text why;

    if ( update_unit(prv, svc, hard, &why) )
        printk(XENLOG_WARNING "punctual: %pv: %s\n", svc->unit->vcpu_list,
               why.bytes);
}

/*
 * Passes on which pCPUs the cpupool has: as the affinity of all units, and by
 * a pick for each pCPU that runs no unit any more.
 */
static void noinline update_cpus(struct punctual_private *prv)
{
    struct punctual_unit *svc;
    unsigned int cpu;

    prv->cpus_changed = false;
    if ( cpumask_empty(&prv->cpus) )
        return;

    list_for_each_entry ( svc, &prv->units, list )
        update_unit_or_warn(prv, svc, svc->unit->cpu_hard_affinity);

    for ( cpu = 0; cpu < nr_cpu_ids; cpu++ )
        if ( !cpumask_test_cpu(cpu, &prv->cpus) )
            call_pick(prv, cpu, NOW());
        else if ( !is_valid(cpu) )
        {
            call_pick(prv, cpu, NOW());
            /* core.c has no hook for the moment when it becomes valid. */
            prv->cpus_changed = true;
        }
}

static inline void refresh(struct punctual_private *prv)
{
    if ( unlikely(prv->cpus_changed) )
        update_cpus(prv);
}

/*
 * Round robin, after the policy has failed: the first unit of prv->units that
 * can run here.
 */
static struct sched_unit *noinline
next_in_turn(struct punctual_private *prv, unsigned int cpu,
             struct sched_unit *current_unit)
{
    struct punctual_unit *svc;

    list_for_each_entry ( svc, &prv->units, list )
        if ( (svc->unit == current_unit || !svc->unit->is_running) &&
             cpumask_test_cpu(cpu, svc->unit->cpu_hard_affinity) &&
             unit_runnable_state(svc->unit) )
        {
            list_move_tail(&svc->list, &prv->units);
            return svc->unit;
        }

    return sched_idle_unit(cpu);
}

static void noinline tickle_idle(const struct punctual_private *prv,
                                 const struct sched_unit *unit)
{
    unsigned int cpu;

    for_each_cpu ( cpu, &prv->cpus )
        if ( cpumask_test_cpu(cpu, unit->cpu_hard_affinity) &&
             is_idle_unit(curr_on_cpu(cpu)) )
            cpu_raise_softirq(cpu, SCHEDULE_SOFTIRQ);
}

/*
 * Creation and destruction
 */

static void cf_check timer_handler(void *data)
{
    struct scheduler *ops = data;
    struct punctual_private *prv = punctual_priv(ops);

    spin_lock_irq(&prv->lock);
    prv->timer_ns = PUNCTUAL_NEVER;
    refresh(prv);
    call_timer(prv);
    spin_unlock_irq(&prv->lock);
}

static int cf_check punctual_global_init(void)
{
    char *comma = strchr(opt_policy, ',');

    /* Xen does without a scheduler whose initialization fails. */
    if ( !strcmp(opt_policy, "off") )
        return -ENODEV;

    if ( comma )
    {
        *comma = 0;
        strlcpy(initial_options.bytes, comma + 1,
                sizeof(initial_options.bytes));
    }
    strlcpy(initial_policy.bytes, opt_policy, sizeof(initial_policy.bytes));

    return punctual_version() == PUNCTUAL_VERSION ? 0 : -EINVAL;
}

static void free_private(struct punctual_private *prv)
{
    unsigned long flags;

    if ( !prv )
        return;

    local_irq_save(flags);
    /* The state of a pool that panicked is unknown: its memory is leaked. */
    if ( prv->pool && !prv->failed )
    {
        ASSERT(nr_pools);
        punctual_destroy(prv->pool);
        nr_pools--;
    }
    local_irq_restore(flags);

    xfree(prv->by_number);
    xfree(prv);
}

/* Creates the library's pool. It is NULL if that fails, and why says why. */
static void create_pool(struct punctual_private *prv, void *memory,
                        size_t bytes, struct punctual_text *why)
{
    unsigned long flags;
    long pool;

    local_irq_save(flags);
    if ( memory )
        punctual_give(memory, bytes);
    pool = CALL_FIRST(prv, &prv->policy, create, &prv->options, nr_cpu_ids,
                      opt_units, why);
    if ( pool != PANICKED )
        prv->pool = (struct punctual_pool *)pool;
    local_irq_restore(flags);
}

/* A cpupool without units and pCPUs. NULL if there is none; why says why. */
static struct punctual_private *noinline
alloc_private(const struct punctual_text *policy,
              const struct punctual_text *options, struct punctual_text *why)
{
    static uint8_t next_trace_id;
    struct punctual_private *prv = xzalloc(struct punctual_private);
    unsigned int order =
        get_order_from_bytes(punctual_pool_bytes(nr_cpu_ids, opt_units));
    void *memory = NULL;

    strlcpy(why->bytes, "no memory", sizeof(why->bytes));
    if ( !prv )
        return NULL;

    prv->by_number = xzalloc_array(struct punctual_unit *, opt_units);
    if ( !prv->by_number )
        goto fail;

    if ( nr_pools >= nr_funded )
    {
        memory = alloc_xenheap_pages(order, 0);
        if ( !memory )
            goto fail;
        nr_funded++;
    }

    spin_lock_init(&prv->lock);
    INIT_LIST_HEAD(&prv->units);
    prv->timer_ns = PUNCTUAL_NEVER;
    prv->picking_cpu = NONE;
    prv->max_units = opt_units;
    prv->trace_id = next_trace_id++;
    prv->policy = *policy;
    prv->options = *options;
    create_pool(prv, memory, PAGE_SIZE << order, why);
    if ( !prv->pool )
        goto fail;

    nr_pools++;
    why->bytes[0] = 0;

    return prv;

 fail:
    free_private(prv);
    return NULL;
}

static int cf_check punctual_init(struct scheduler *ops)
{
    struct punctual_text why;
    struct punctual_private *prv = alloc_private(&initial_policy,
                                                 &initial_options, &why);

    if ( !prv )
    {
        printk(XENLOG_ERR "punctual: %s\n", why.bytes);
        return -EINVAL;
    }

    record_pool(prv);
    printk("punctual: policy %s %s, at most %u units\n", prv->policy.bytes,
           prv->options.bytes, opt_units);
    ops->sched_data = prv;

    return 0;
}

static void cf_check punctual_deinit(struct scheduler *ops)
{
    struct punctual_private *prv = punctual_priv(ops);

    ASSERT(!prv || (list_empty(&prv->units) && cpumask_empty(&prv->cpus) &&
                    !prv->has_timer));

    free_private(prv);
    ops->sched_data = NULL;
}

/*
 * pCPUs of the cpupool
 */

static spinlock_t *cf_check
punctual_switch_sched(struct scheduler *ops, unsigned int cpu, void *pdata,
                      void *vdata)
{
    struct punctual_private *prv = punctual_priv(ops);

    /*
     * The caller holds the lock of free pCPUs, with interrupts off. The lock
     * of this cpupool is needed, too: its other pCPUs may be in refresh(),
     * which clears cpus_changed before it reads cpus. Ordering: see the top of
     * this file.
     */
    ASSERT(!local_irq_is_enabled());
    spin_lock(&prv->lock);

    ASSERT(!cpumask_test_cpu(cpu, &prv->cpus));
    if ( !prv->has_timer )
    {
        init_timer(&prv->timer, timer_handler, ops, cpu);
        prv->has_timer = true;
    }
    cpumask_set_cpu(cpu, &prv->cpus);
    prv->cpus_changed = true;

    spin_unlock(&prv->lock);

    sched_idle_unit(cpu)->priv = vdata;

    return &prv->lock;
}

/* If the timer is on this pCPU, moves it to another one, or ends it. */
static void leave_timer(struct punctual_private *prv, unsigned int cpu,
                        const cpumask_t *left)
{
    unsigned int other = cpumask_cycle(cpu, left);

    ASSERT(spin_is_locked(&prv->lock));

    if ( !prv->has_timer || prv->timer.cpu != cpu )
        return;

    if ( other < nr_cpu_ids && other != cpu )
        migrate_timer(&prv->timer, other);
    else
    {
        kill_timer(&prv->timer);
        prv->has_timer = false;
        prv->timer_ns = PUNCTUAL_NEVER;
    }
}

static void cf_check
punctual_deinit_pdata(const struct scheduler *ops, void *pcpu, int cpu)
{
    struct punctual_private *prv = punctual_priv(ops);
    unsigned long flags;

    spin_lock_irqsave(&prv->lock, flags);

    ASSERT(cpumask_test_cpu(cpu, &prv->cpus));
    cpumask_clear_cpu(cpu, &prv->cpus);
    tickle_deferred(prv);
    prv->cpus_changed = true;
    leave_timer(prv, cpu, &prv->cpus);
    refresh(prv);

    spin_unlock_irqrestore(&prv->lock, flags);
}

static void cf_check
punctual_move_timers(const struct scheduler *ops, struct sched_resource *sr)
{
    struct punctual_private *prv = punctual_priv(ops);
    const cpumask_t *valid = sr->cpupool->res_valid;
    unsigned long flags;

    spin_lock_irqsave(&prv->lock, flags);
    if ( prv->has_timer && !cpumask_test_cpu(prv->timer.cpu, valid) )
        leave_timer(prv, prv->timer.cpu, valid);
    spin_unlock_irqrestore(&prv->lock, flags);
}

/*
 * Units
 */

static void *cf_check
punctual_alloc_udata(const struct scheduler *ops, struct sched_unit *unit,
                     void *dd)
{
    struct punctual_unit *svc = xzalloc(struct punctual_unit);

    if ( !svc )
        return NULL;

    INIT_LIST_HEAD(&svc->list);
    svc->unit = unit;
    svc->number = NONE;
    svc->params.given = PUNCTUAL_BUDGET | PUNCTUAL_PERIOD | PUNCTUAL_EXTRATIME;
    svc->params.budget_ns = DEFAULT_BUDGET;
    svc->params.period_ns = DEFAULT_PERIOD;
    svc->params.extratime = true;
    svc->waiting_cpu = -1;

    return svc;
}

static void cf_check
punctual_free_udata(const struct scheduler *ops, void *priv)
{
    struct punctual_unit *svc = priv;

    ASSERT(!svc || (svc->number == NONE && list_empty(&svc->list)));
    xfree(svc);
}

/* Uses the scratch mask of a pCPU whose schedule lock is held. */
static struct sched_resource *
pick_locked(const struct sched_unit *unit, unsigned int locked_cpu)
{
    cpumask_t *cpus = cpumask_scratch_cpu(locked_cpu);
    unsigned int cpu = sched_unit_master(unit);

    cpumask_and(cpus, cpupool_domain_master_cpumask(unit->domain),
                unit->cpu_hard_affinity);
    if ( !cpumask_test_cpu(cpu, cpus) )
        cpu = cpumask_cycle(cpu, cpus);

    return get_sched_res(cpu);
}

static struct sched_resource *cf_check
punctual_pick_resource(const struct scheduler *ops,
                       const struct sched_unit *unit)
{
    return pick_locked(unit, unit->res->master_cpu);
}

/* Inserts a unit into the library; on failure the policy has failed. */
static void insert_locked(struct punctual_private *prv,
                          struct punctual_unit *svc)
{
    const struct sched_unit *unit = svc->unit;
    struct punctual_params params;
    struct punctual_answer answer;
    struct punctual_text why;
    int rc;

    params_of(prv, svc, unit->cpu_hard_affinity, &params);
    rc = call_insert(prv, NOW(), &params, unit, &svc->number, &why, &answer);
    if ( rc < 0 )
    {
        /* With the lowest priority, rather than not at all. */
        printk(XENLOG_WARNING "punctual: %pv is best effort: %s\n",
               unit->vcpu_list, why.bytes);
        params.given |= PUNCTUAL_BEST_EFFORT;
        params.best_effort = 1;
        rc = call_insert(prv, NOW(), &params, unit, &svc->number, &why,
                         &answer);
    }

    if ( rc == 0 && svc->number < prv->max_units )
    {
        ASSERT(!prv->by_number[svc->number]);
        prv->by_number[svc->number] = svc;
        apply(prv, &answer);
        if ( unit_runnable(unit) )
            call_wake(prv, svc->number);
        return;
    }

    svc->number = NONE;
    if ( rc == PANICKED )
        return;

    printk(XENLOG_ERR "punctual: %pv: %s\n", unit->vcpu_list,
           rc < 0 ? why.bytes : "its number is too large");
    policy_failed(prv);
}

static void cf_check
punctual_insert_unit(const struct scheduler *ops, struct sched_unit *unit)
{
    struct punctual_private *prv = punctual_priv(ops);
    struct punctual_unit *svc = punctual_unit(unit);
    unsigned int cpu = smp_processor_id();
    spinlock_t *lock;

    ASSERT(!is_idle_unit(unit));
    ASSERT(svc->number == NONE && list_empty(&svc->list));

    lock = pcpu_schedule_lock_irq(cpu);
    sched_set_res(unit, pick_locked(unit, cpu));
    pcpu_schedule_unlock_irq(lock, cpu);

    lock = unit_schedule_lock_irq(unit);
    ASSERT(lock == &prv->lock);

    refresh(prv);
    list_add_tail(&svc->list, &prv->units);
    prv->has_soft |= unit->soft_aff_effective;
    insert_locked(prv, svc);

    unit_schedule_unlock_irq(lock, unit);
}

static void cf_check
punctual_remove_unit(const struct scheduler *ops, struct sched_unit *unit)
{
    struct punctual_private *prv = punctual_priv(ops);
    struct punctual_unit *svc = punctual_unit(unit);
    spinlock_t *lock = unit_schedule_lock_irq(unit);

    ASSERT(lock == &prv->lock);

    list_del_init(&svc->list);
    if ( svc->number != NONE )
    {
        ASSERT(prv->by_number[svc->number] == svc);
        prv->by_number[svc->number] = NULL;
        call_remove(prv, svc->number);
        svc->number = NONE;
    }

    unit_schedule_unlock_irq(lock, unit);
}

static void cf_check
punctual_sleep_unit(const struct scheduler *ops, struct sched_unit *unit)
{
    struct punctual_private *prv = punctual_priv(ops);
    struct punctual_unit *svc = punctual_unit(unit);

    /* do_schedule() reports a unit that is running. */
    if ( curr_on_cpu(sched_unit_master(unit)) == unit )
        cpu_raise_softirq(sched_unit_master(unit), SCHEDULE_SOFTIRQ);
    else if ( svc->number != NONE )
        call_sleep(prv, svc->number, NOW());
}

static void cf_check
punctual_wake_unit(const struct scheduler *ops, struct sched_unit *unit)
{
    struct punctual_private *prv = punctual_priv(ops);
    struct punctual_unit *svc = punctual_unit(unit);

    if ( !unit_runnable(unit) )
        return;

    if ( unlikely(prv->failed) )
        tickle_idle(prv, unit);
    else if ( likely(svc->number != NONE) )
        call_wake(prv, svc->number);
}

static void cf_check
punctual_context_saved(const struct scheduler *ops, struct sched_unit *unit)
{
    struct punctual_unit *svc = punctual_unit(unit);
    spinlock_t *lock;

    /*
     * core.c has a barrier between clearing is_running and this call. So a
     * pCPU that sets waiting_cpu after it is read here sees that the unit does
     * not run any more.
     */
    if ( is_idle_unit(unit) || likely(svc->waiting_cpu < 0) )
        return;

    lock = unit_schedule_lock_irq(unit);
    if ( svc->waiting_cpu >= 0 )
    {
        cpu_raise_softirq(svc->waiting_cpu, SCHEDULE_SOFTIRQ);
        svc->waiting_cpu = -1;
    }
    unit_schedule_unlock_irq(lock, unit);
}

static void cf_check
punctual_adjust_affinity(const struct scheduler *ops, struct sched_unit *unit,
                         const cpumask_t *hard, const cpumask_t *soft)
{
    struct punctual_private *prv = punctual_priv(ops);

    /*
     * While core.c moves a domain to this cpupool, it holds the lock of the
     * old one. The library does not know the unit then, and is not called.
     */
    if ( hard )
        update_unit_or_warn(prv, punctual_unit(unit), hard);
    if ( soft && !cpumask_subset(&prv->cpus, soft) )
        prv->has_soft = true;
}

/*
 * Decisions
 */

/*
 * Has another pCPU yet to switch away from the unit? If so, this one is
 * tickled when it has.
 */
static bool noinline must_wait(struct punctual_private *prv,
                               struct punctual_unit *svc, unsigned int cpu)
{
    svc->waiting_cpu = cpu;
    /* Pairs with the barrier before punctual_context_saved(). */
    smp_mb();
    if ( svc->unit->is_running )
    {
        prv->nr_waits++;
        return true;
    }
    svc->waiting_cpu = -1;

    return false;
}

/*
 * The unit of a slice; the idle unit if it cannot run here at the moment; NULL
 * if it is not runnable, which the library does not know yet.
 */
static always_inline struct sched_unit *
unit_to_run(struct punctual_private *prv, const struct punctual_slice *slice,
            const struct sched_resource *sr,
            const struct sched_unit *current_unit)
{
    struct punctual_unit *svc;
    struct sched_unit *unit;

    if ( slice->run != PUNCTUAL_UNIT || slice->unit >= prv->max_units )
        return sr->sched_unit_idle;

    svc = prv->by_number[slice->unit];
    if ( unlikely(!svc) )
        return sr->sched_unit_idle;

    unit = svc->unit;
    if ( unit != current_unit && unlikely(unit->is_running) &&
         must_wait(prv, svc, sr->master_cpu) )
        return sr->sched_unit_idle;

    return likely(unit_runnable_state(unit)) ? unit : NULL;
}

/*
 * Picks again while the library picks units that are not runnable. NULL: the
 * policy has failed.
 */
static struct sched_unit *noinline
pick_again(struct punctual_private *prv, const struct sched_resource *sr,
           s_time_t now, const struct sched_unit *current_unit,
           struct punctual_slice *slice)
{
    unsigned int cpu = sr->master_cpu;
    struct punctual_answer answer;
    struct sched_unit *next;

    do {
        call_sleep_before_pick(prv, slice->unit, cpu, now);
        if ( CALL(prv, pick, now, cpu, slice, &answer) == PANICKED )
            return NULL;
        record_pick(prv, now, cpu, slice);
        apply(prv, &answer);
        prv->nr_picks++;
        next = unit_to_run(prv, slice, sr, current_unit);
    } while ( !next );

    return next;
}

/*
 * What the policy gives to a pCPU. asleep is the number of the unit that it
 * has run and that is not runnable any more, or NONE. NULL: the policy has
 * failed.
 */
static always_inline struct sched_unit *
pick_unit(struct punctual_private *prv, const struct sched_resource *sr,
          s_time_t now, const struct sched_unit *current_unit, uint32_t asleep,
          struct punctual_slice *slice)
{
    unsigned int cpu = sr->master_cpu;
    struct punctual_answer answer;
    struct sched_unit *next;
    long rc;

    /*
     * One call for both events is cheaper. But traces have a record for each,
     * and each answer may defer pCPUs for the sake of soft affinity.
     */
    if ( asleep != NONE && unlikely(tb_init_done || prv->has_soft) )
    {
        call_sleep_before_pick(prv, asleep, cpu, now);
        asleep = NONE;
    }

    if ( asleep == NONE )
        rc = CALL(prv, pick, now, cpu, slice, &answer);
    else
        rc = CALL(prv, sleep_and_pick, now, asleep, cpu, slice, &answer);
    if ( unlikely(rc == PANICKED) )
        return NULL;

    record_pick(prv, now, cpu, slice);
    apply(prv, &answer);
    prv->nr_picks++;
    next = unit_to_run(prv, slice, sr, current_unit);
    if ( unlikely(!next) )
        next = pick_again(prv, sr, now, current_unit, slice);

    return next;
}

/*
 * The pCPU is leaving the cpupool, and a unit of another pCPU may not move
 * there: the library learns it, and the pCPU idles.
 */
static struct sched_unit *noinline leave_pool(struct punctual_private *prv,
                                              unsigned int cpu)
{
    prv->cpus_changed = true;
    refresh(prv);

    return sched_idle_unit(cpu);
}

static void cf_check
punctual_do_schedule(const struct scheduler *ops,
                     struct sched_unit *current_unit, s_time_t now,
                     bool tasklet_work_scheduled)
{
    struct punctual_private *prv = punctual_priv(ops);
    struct sched_resource *sr = get_sched_res(smp_processor_id());
    unsigned int cpu = sr->master_cpu;
    struct sched_unit *next;
    struct punctual_slice slice;
    uint32_t asleep = NONE;

    ASSERT(spin_is_locked(&prv->lock));

    refresh(prv);
    if ( !is_idle_unit(current_unit) && !unit_runnable(current_unit) )
        asleep = punctual_unit(current_unit)->number;
    next = pick_unit(prv, sr, now, current_unit, asleep, &slice);
    if ( unlikely(prv->has_soft) )
        tickle_deferred(prv);

    if ( unlikely(!next) )
    {
        ASSERT(prv->failed);
        next = next_in_turn(prv, cpu, current_unit);
        slice.until_ns = is_idle_unit(next) ? PUNCTUAL_NEVER
                                            : now + FALLBACK_SLICE;
    }

    /* The idle unit runs tasklets. */
    if ( unlikely(tasklet_work_scheduled) )
    {
        next = sr->sched_unit_idle;
        slice.until_ns = PUNCTUAL_NEVER;
    }

    next->migrated = false;
    if ( unlikely(sched_unit_master(next) != cpu) && !is_idle_unit(next) )
    {
        if ( likely(is_valid(cpu)) )
        {
            sched_set_res(next, sr);
            next->migrated = true;
        }
        else
        {
            next = leave_pool(prv, cpu);
            slice.until_ns = PUNCTUAL_NEVER;
        }
    }

    /*
     * schedule_cpu_rm() writes to the unit that followed the idle unit last,
     * which may have been freed by then. So the idle unit, while it runs, is
     * followed by itself.
     */
    next->next_task = next;
    current_unit->next_time =
        slice.until_ns == PUNCTUAL_NEVER ? -1 : (s_time_t)slice.until_ns - now;
    current_unit->next_task = next;
}

/*
 * Domctl: what `xl sched-rtds` asks for, as in rt.c
 */

/* Gives a unit other parameters, or leaves it as it is; why says why. */
static int set_params(struct punctual_private *prv, struct punctual_unit *svc,
                      const struct punctual_params *params,
                      struct punctual_text *why)
{
    struct punctual_params old = svc->params;

    svc->params = *params;
    if ( update_unit(prv, svc, svc->unit->cpu_hard_affinity, why) == 0 )
        return 0;
    svc->params = old;

    return -EINVAL;
}

static int set_rtds(struct punctual_private *prv, struct punctual_unit *svc,
                    const struct xen_domctl_sched_rtds *rtds, bool extratime)
{
    struct punctual_params params = svc->params;
    struct punctual_text why;
    int rc;

    params.given |= PUNCTUAL_BUDGET | PUNCTUAL_PERIOD | PUNCTUAL_EXTRATIME;
    params.budget_ns = MICROSECS((uint64_t)rtds->budget);
    params.period_ns = MICROSECS((uint64_t)rtds->period);
    params.extratime = extratime;
    rc = set_params(prv, svc, &params, &why);
    if ( rc )
        printk(XENLOG_WARNING "punctual: %pv: %s\n", svc->unit->vcpu_list,
               why.bytes);

    return rc;
}

static struct punctual_unit *unit_of_vcpu(const struct domain *d,
                                          uint32_t vcpu)
{
    if ( vcpu >= d->max_vcpus || !d->vcpu[vcpu] )
        return NULL;

    return punctual_unit(d->vcpu[vcpu]->sched_unit);
}

static int adjust_vcpu(struct punctual_private *prv, struct domain *d,
                       uint32_t cmd, struct xen_domctl_schedparam_vcpu *vcpu)
{
    struct punctual_unit *svc = unit_of_vcpu(d, vcpu->vcpuid);
    unsigned long flags;
    int rc = 0;

    if ( !svc )
        return -EINVAL;

    spin_lock_irqsave(&prv->lock, flags);
    if ( cmd == XEN_DOMCTL_SCHEDOP_getvcpuinfo )
    {
        vcpu->u.rtds.budget = svc->params.budget_ns / MICROSECS(1);
        vcpu->u.rtds.period = svc->params.period_ns / MICROSECS(1);
        vcpu->u.rtds.flags = svc->params.extratime ? XEN_DOMCTL_SCHEDRT_extra
                                                   : 0;
    }
    else
        rc = set_rtds(prv, svc, &vcpu->u.rtds,
                      vcpu->u.rtds.flags & XEN_DOMCTL_SCHEDRT_extra);
    spin_unlock_irqrestore(&prv->lock, flags);

    return rc;
}

static int adjust_vcpus(struct punctual_private *prv, struct domain *d,
                        struct xen_domctl_scheduler_op *op)
{
    struct xen_domctl_schedparam_vcpu vcpu;
    uint32_t index = 0;
    int rc;

    while ( index < op->u.v.nr_vcpus )
    {
        if ( copy_from_guest_offset(&vcpu, op->u.v.vcpus, index, 1) )
            return -EFAULT;

        rc = adjust_vcpu(prv, d, op->cmd, &vcpu);
        if ( rc )
            return rc;

        if ( op->cmd == XEN_DOMCTL_SCHEDOP_getvcpuinfo &&
             copy_to_guest_offset(op->u.v.vcpus, index, &vcpu, 1) )
            return -EFAULT;

        /* At most 64 are processed without a check for preemption. */
        if ( ++index > 63 && hypercall_preempt_check() )
            break;
    }
    op->u.v.nr_vcpus = index;

    return 0;
}

static int cf_check
punctual_adjust_domain(const struct scheduler *ops, struct domain *d,
                       struct xen_domctl_scheduler_op *op)
{
    struct punctual_private *prv = punctual_priv(ops);
    const struct sched_unit *unit;
    unsigned long flags;
    int rc = 0;

    switch ( op->cmd )
    {
    case XEN_DOMCTL_SCHEDOP_getinfo:
        op->u.rtds.period = DEFAULT_PERIOD / MICROSECS(1);
        op->u.rtds.budget = DEFAULT_BUDGET / MICROSECS(1);
        break;

    case XEN_DOMCTL_SCHEDOP_putinfo:
        spin_lock_irqsave(&prv->lock, flags);
        for_each_sched_unit ( d, unit )
        {
            struct punctual_unit *svc = punctual_unit(unit);

            rc = rc ?: set_rtds(prv, svc, &op->u.rtds, svc->params.extratime);
        }
        spin_unlock_irqrestore(&prv->lock, flags);
        break;

    case XEN_DOMCTL_SCHEDOP_getvcpuinfo:
    case XEN_DOMCTL_SCHEDOP_putvcpuinfo:
        rc = adjust_vcpus(prv, d, op);
        break;
    }

    return rc;
}

/*
 * Sysctl: punctual_op.h
 */

typedef struct punctual_op punctual_op_t;
DEFINE_XEN_GUEST_HANDLE(punctual_op_t);

/* Inserts all units of prv into the pool of fresh, with their parameters. */
static int insert_units(struct punctual_private *prv,
                        struct punctual_private *fresh, s_time_t now,
                        struct punctual_text *why)
{
    struct punctual_unit *svc;
    struct punctual_params params;
    struct punctual_answer answer;
    struct punctual_text refused;
    uint32_t number;
    int rc;

    record_pool(fresh);
    list_for_each_entry ( svc, &prv->units, list )
    {
        params_of(prv, svc, svc->unit->cpu_hard_affinity, &params);
        rc = call_insert(fresh, now, &params, svc->unit, &number, &refused,
                         &answer);
        if ( rc == 0 && number < fresh->max_units )
        {
            ASSERT(!fresh->by_number[number]);
            fresh->by_number[number] = svc;
            continue;
        }

        snprintf(why->bytes, sizeof(why->bytes), "%pv: %s",
                 svc->unit->vcpu_list,
                 rc < 0 ? refused.bytes : "the policy failed");
        return -EINVAL;
    }

    return 0;
}

/* The cpupool gets the policy of fresh, and fresh what the cpupool had. */
static void exchange_policies(struct punctual_private *prv,
                              struct punctual_private *fresh)
{
    struct punctual_unit *svc;
    unsigned int number, cpu;

#define EXCHANGE(field) do {                    \
        typeof(prv->field) old_ = prv->field;   \
        prv->field = fresh->field;              \
        fresh->field = old_;                    \
    } while ( 0 )
    EXCHANGE(policy);
    EXCHANGE(options);
    EXCHANGE(pool);
    EXCHANGE(trace_id);
    EXCHANGE(trace_sequence);
    EXCHANGE(failed);
    EXCHANGE(by_number);
#undef EXCHANGE

    list_for_each_entry ( svc, &prv->units, list )
        svc->number = NONE;

    for ( number = 0; number < prv->max_units; number++ )
    {
        svc = prv->by_number[number];
        if ( !svc )
            continue;

        svc->number = number;
        if ( unit_runnable(svc->unit) )
            call_wake(prv, number);
    }

    /* The answer sets the timer. */
    call_timer(prv);
    for_each_cpu ( cpu, &prv->cpus )
        cpu_raise_softirq(cpu, SCHEDULE_SOFTIRQ);
}

static int set_pool(struct punctual_private *prv, struct punctual_op *op)
{
    struct punctual_private *fresh;
    unsigned long flags;
    int rc;

    op->policy.bytes[sizeof(op->policy.bytes) - 1] = 0;
    op->options.bytes[sizeof(op->options.bytes) - 1] = 0;
    fresh = alloc_private(&op->policy, &op->options, &op->why);
    if ( !fresh )
        return -EINVAL;

    spin_lock_irqsave(&prv->lock, flags);
    spin_lock(&fresh->lock);
    op->now_ns = NOW();
    rc = insert_units(prv, fresh, op->now_ns, &op->why);
    if ( rc == 0 )
        exchange_policies(prv, fresh);
    spin_unlock(&fresh->lock);
    spin_unlock_irqrestore(&prv->lock, flags);

    free_private(fresh);

    return rc;
}

static void get_pool(struct punctual_private *prv, struct punctual_op *op)
{
    const struct punctual_unit *svc;
    unsigned long flags;

    spin_lock_irqsave(&prv->lock, flags);
    op->policy = prv->policy;
    op->options = prv->options;
    op->failed = prv->failed;
    op->units = 0;
    list_for_each_entry ( svc, &prv->units, list )
        op->units++;
    spin_unlock_irqrestore(&prv->lock, flags);
}

/* False: the library has no account of the unit. */
static bool get_account(struct punctual_private *prv,
                        const struct punctual_unit *svc,
                        struct punctual_account *account)
{
    ASSERT(spin_is_locked(&prv->lock));

    return !prv->failed && svc->number != NONE &&
           punctual_account(prv->pool, svc->number, account) == PUNCTUAL_OK;
}

static void get_unit(struct punctual_private *prv, struct punctual_unit *svc,
                     struct punctual_op *op)
{
    params_of(prv, svc, svc->unit->cpu_hard_affinity, &op->params);
    if ( !get_account(prv, svc, &op->account) )
        memset(&op->account, 0xff, sizeof(op->account));
}

/* Sets those of the parameters that are given. */
static void merge_params(struct punctual_params *params,
                         const struct punctual_params *wanted)
{
#define MERGE(bit, field) do {              \
        if ( wanted->given & (bit) )        \
            params->field = wanted->field;  \
    } while ( 0 )
    MERGE(PUNCTUAL_BUDGET, budget_ns);
    MERGE(PUNCTUAL_PERIOD, period_ns);
    MERGE(PUNCTUAL_DEADLINE, deadline_ns);
    MERGE(PUNCTUAL_PRIORITY, priority);
    MERGE(PUNCTUAL_WEIGHT, weight);
    MERGE(PUNCTUAL_CAP, cap_percent);
    MERGE(PUNCTUAL_EXTRATIME, extratime);
    MERGE(PUNCTUAL_BEST_EFFORT, best_effort);
#undef MERGE
    params->given |= wanted->given & ~(PUNCTUAL_AFFINITY | PUNCTUAL_VM);
}

static int unit_op(struct punctual_private *prv, struct punctual_op *op)
{
    struct domain *d = rcu_lock_domain_by_id(op->domain);
    struct punctual_params params;
    struct punctual_unit *svc = NULL;
    unsigned long flags;
    int rc = -ESRCH;

    strlcpy(op->why.bytes, "no such vCPU in this cpupool",
            sizeof(op->why.bytes));
    if ( !d )
        return rc;

    if ( d->cpupool && punctual_priv(d->cpupool->sched) == prv )
        svc = unit_of_vcpu(d, op->vcpu);
    if ( svc )
    {
        rc = 0;
        spin_lock_irqsave(&prv->lock, flags);
        if ( op->what == PUNCTUAL_OP_SET_UNIT )
        {
            params = svc->params;
            merge_params(&params, &op->params);
            rc = set_params(prv, svc, &params, &op->why);
        }
        if ( rc == 0 )
            get_unit(prv, svc, op);
        spin_unlock_irqrestore(&prv->lock, flags);
    }
    rcu_unlock_domain(d);

    return rc;
}

static int break_pool(struct punctual_private *prv, struct punctual_op *op)
{
    unsigned long flags;

    if ( !IS_ENABLED(CONFIG_DEBUG) )
    {
        strlcpy(op->why.bytes, "only debug builds of Xen can do this",
                sizeof(op->why.bytes));
        return -EOPNOTSUPP;
    }

    spin_lock_irqsave(&prv->lock, flags);
    if ( !prv->failed )
        punctual_break(prv->pool);
    spin_unlock_irqrestore(&prv->lock, flags);

    return 0;
}

static int do_op(struct punctual_private *prv, struct punctual_op *op)
{
    memset(&op->why, 0, sizeof(op->why));
    op->now_ns = NOW();
    if ( op->version != PUNCTUAL_OP_VERSION )
    {
        snprintf(op->why.bytes, sizeof(op->why.bytes),
                 "this scheduler has version %d of the interface",
                 PUNCTUAL_OP_VERSION);
        return -EACCES;
    }

    switch ( op->what )
    {
    case PUNCTUAL_OP_GET_POOL:
        get_pool(prv, op);
        return 0;

    case PUNCTUAL_OP_SET_POOL:
        return set_pool(prv, op);

    case PUNCTUAL_OP_GET_UNIT:
    case PUNCTUAL_OP_SET_UNIT:
        return unit_op(prv, op);

    case PUNCTUAL_OP_BREAK:
        return break_pool(prv, op);
    }

    strlcpy(op->why.bytes, "unknown operation", sizeof(op->why.bytes));

    return -EOPNOTSUPP;
}

static int cf_check
punctual_adjust_global(const struct scheduler *ops,
                       struct xen_sysctl_scheduler_op *sysctl)
{
    XEN_GUEST_HANDLE_PARAM(punctual_op_t) arg =
        guest_handle_from_ptr(sysctl->u.sched_arinc653.schedule.p,
                              punctual_op_t);
    struct punctual_op *op = xzalloc(struct punctual_op);
    int rc = -EFAULT;

    if ( !op )
        return -ENOMEM;

    if ( copy_from_guest(op, arg, 1) == 0 )
    {
        rc = do_op(punctual_priv(ops), op);
        if ( copy_to_guest(arg, op, 1) )
            rc = -EFAULT;
    }
    xfree(op);

    return rc;
}

static void cf_check punctual_dump(const struct scheduler *ops)
{
    struct punctual_private *prv = punctual_priv(ops);
    const struct punctual_params *params;
    struct punctual_account account;
    const struct punctual_unit *svc;
    unsigned long flags;
    size_t given, used;

    spin_lock_irqsave(&prv->lock, flags);

    punctual_memory(&given, &used);
    printk("punctual: all pools have %zu of %zu bytes\n", used, given);
    printk("punctual: %s %s%s, %"PRIu64" picks, %"PRIu64" waits for a pCPU to switch away\n",
           prv->policy.bytes, prv->options.bytes,
           prv->failed ? ", failed" : "", prv->nr_picks, prv->nr_waits);
    list_for_each_entry ( svc, &prv->units, list )
    {
        params = &svc->params;
        printk("  %pv on %u: budget %"PRIu64" period %"PRIu64"%s",
               svc->unit->vcpu_list, sched_unit_master(svc->unit),
               params->budget_ns, params->period_ns,
               params->extratime ? " extra" : "");
        if ( get_account(prv, svc, &account) )
            printk(" left %"PRIu64" exhaustions %"PRIu64" replenishments %"PRIu64,
                   account.left_ns, account.exhaustions,
                   account.replenishments);
        printk("\n");
    }

    spin_unlock_irqrestore(&prv->lock, flags);
}

static const struct scheduler sched_punctual_def = {
    .name           = "Punctual",
    .opt_name       = "punctual",
    .sched_id       = XEN_SCHEDULER_RTDS,

    .global_init    = punctual_global_init,
    .init           = punctual_init,
    .deinit         = punctual_deinit,
    .switch_sched   = punctual_switch_sched,
    .deinit_pdata   = punctual_deinit_pdata,
    .move_timers    = punctual_move_timers,
    .alloc_udata    = punctual_alloc_udata,
    .free_udata     = punctual_free_udata,
    .insert_unit    = punctual_insert_unit,
    .remove_unit    = punctual_remove_unit,

    .sleep          = punctual_sleep_unit,
    .wake           = punctual_wake_unit,
    .context_saved  = punctual_context_saved,
    .pick_resource  = punctual_pick_resource,
    .do_schedule    = punctual_do_schedule,

    .adjust         = punctual_adjust_domain,
    .adjust_affinity = punctual_adjust_affinity,
    .adjust_global  = punctual_adjust_global,
    .dump_settings  = punctual_dump,
};

REGISTER_SCHEDULER(sched_punctual_def);
