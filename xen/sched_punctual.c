// SPDX-License-Identifier: GPL-2.0-only
/*
 * A scheduler of Xen whose decisions are those of Punctual's policies (punctual.h).
 *
 * All processors of a cpupool have one lock, as in sched/rt.c. A processor of the policy is the one of Xen
 * with the same number; where units may run is said by their affinity, which is cut to the cpupool's. Soft
 * affinity, which policies do not know, says which processor decides first (`ask_preferred`).
 *
 * The scheduler has the number of RTDS, so that `xl sched-rtds` sets budget, period and extratime; units with
 * a shorter period are more urgent unless their priority is set. `sched=punctual
 * sched_punctual=POLICY[,option=value...]` on Xen's command line chooses it and the policy that a cpupool
 * begins with; without the latter it is RTDS, and `off` leaves RTDS's number to Xen's own. Policies of
 * cpupools and all parameters of units are set by punctual_op.h.
 *
 * While Xen traces, every call of the library is a record (see `record`): what the policy was told and what
 * it said, complete, so that it can be replayed.
 *
 * If the library panics, the pool goes on in round robin, with slices of 10 ms, and says so.
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

#define DEFAULT_PERIOD MILLISECS(10)
#define DEFAULT_BUDGET MILLISECS(4)
#define PARKED_SLICE MILLISECS(10)
#define NO_UNIT (~0U)

static char __initdata opt_policy[sizeof(struct punctual_text)] = "rtds";
string_param("sched_punctual", opt_policy);

/* Units of a cpupool at most. */
static unsigned int __read_mostly opt_units = 256;
integer_param("sched_punctual_units", opt_units);

/* The policy and its options, as the command line has them. */
static struct punctual_text first_policy, first_options;

/* Pools that take of the library's memory, and those that it was given memory for. */
static unsigned int pools, paid;

struct punctual_private {
    spinlock_t lock;
    struct punctual_text policy, options;
    struct punctual_pool *pool;
    /* In traces: which pool, and its next record. */
    uint8_t id;
    uint32_t sequence;
    /* The pool panicked: round robin. */
    bool parked;
    /* The processor that is about to decide, and need not be asked to; NO_UNIT: none. */
    unsigned int deciding;
    /* A unit has or had a soft affinity; processors that are asked after the next decision for its sake. */
    bool is_soft;
    cpumask_t later;
    /* Processors of the cpupool; changed: units must be told. */
    cpumask_t cpus;
    bool cpus_changed;
    struct timer timer;
    bool has_timer;
    uint64_t timer_ns;
    struct list_head units;
    /* By number of the policy. */
    struct punctual_unit **by_number;
    unsigned int numbers;
    /* Counted for `dump`. */
    uint64_t picks, waits;
};

struct punctual_unit {
    struct list_head list;
    struct sched_unit *unit;
    /* NO_UNIT: the policy does not know it. */
    uint32_t number;
    /* As they were set: the affinity is the unit's own, and without a priority the period says it. */
    struct punctual_params params;
    /* The processor that picked it while another one was not done with it; -1: none. */
    int wanted_by;
};

static inline struct punctual_private *private_of(const struct scheduler *ops)
{
    return ops->sched_data;
}

static inline struct punctual_unit *punctual_unit(const struct sched_unit *unit)
{
    return unit->priv;
}

/* ---- traces ------------------------------------------------------------------------------------------ */

/*
 * Records of a trace, of the scheduler class and of number 7, which no scheduler of Xen has. Each is seven
 * words: the record's number in its pool, the time of the call in ns (two words, the low one first), the pool
 * (8 bits) and a unit or processor (24 bits), a value (two words) and another one. But for TEXT: chunk, pool
 * and unit or processor, and 20 bytes of the policy's name and options as on the command line.
 * crates/punctual-xen/src/record.rs reads them.
 */
enum record {
    RECORD_POOL = 1,    /* a pool begins; processors and, in the upper word, units at most */
    RECORD_TEXT = 2,
    RECORD_PARAM = 3,   /* before a unit's: bit of `given`, its value, for the affinity the word's index */
    RECORD_INSERT = 4,  /* the timer then; domain (16 bits) and vCPU */
    RECORD_ADJUST = 5,  /* the timer then; 1: it was refused */
    RECORD_REMOVE = 6,  /* this and those below: the timer then; the first 32 processors to decide */
    RECORD_WAKE = 7,
    RECORD_SLEEP = 8,
    RECORD_TIMER = 9,
    RECORD_PICK = 10,   /* until when; 2 bits of what runs, 30 bits of the unit */
    RECORD_PARKED = 11,
};
#define TRC_PUNCTUAL(event) (TRC_SCHED_CLASS | (7 << TRC_SCHED_ID_SHIFT) | (event))

/* Xen renamed it with 4.19. */
#ifdef TRACE_TIME
#define trace_with_time(event, bytes, data) trace_time(event, bytes, data)
#else
#define trace_with_time(event, bytes, data) __trace_var(event, true, bytes, data)
#endif

static void noinline write_record(struct punctual_private *prv, enum record event, s_time_t now, uint32_t who,
                                  uint64_t value, uint32_t more)
{
    uint32_t words[] = {
        prv->sequence++, now, (uint64_t)now >> 32, ((uint32_t)prv->id << 24) | (who & 0xffffff), value,
        value >> 32, more,
    };

    BUILD_BUG_ON(sizeof(words) > TRACE_EXTRA_MAX * sizeof(uint32_t));
    trace_with_time(TRC_PUNCTUAL(event), sizeof(words), words);
}

static inline void record(struct punctual_private *prv, enum record event, s_time_t now, uint32_t who,
                          uint64_t value, uint32_t more)
{
    if ( unlikely(tb_init_done) )
        write_record(prv, event, now, who, value, more);
}

/* ---- the library ------------------------------------------------------------------------------------- */

/* For the calls of a processor with the library. */
struct way_out {
    /* Where a call that panics is left to, see GUARD. Null: it is none of `CALL`. */
    void *stack;
    /* What the function is called with first. */
    const void *first;
};
static DEFINE_PER_CPU(struct way_out, way_out);

/* What no function of the library returns. */
#define PANICKED 1

/*
 * guarded_NAME(out, ...) calls punctual_NAME(out->first, ...), and returns PANICKED if that panics. It puts
 * the registers that a function must preserve on the stack and notes where they are: `leave` takes them from
 * there. With setjmp instead, the compiler would keep no variable of the caller in a register.
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

GUARD(create, const struct punctual_text *options, uint32_t cpus, uint32_t units, struct punctual_text *why);
GUARD(insert, uint64_t now_ns, const struct punctual_params *params, uint32_t *unit,
      struct punctual_text *why, struct punctual_answer *then);
GUARD(remove, uint64_t now_ns, uint32_t unit, struct punctual_answer *then);
GUARD(adjust, uint64_t now_ns, uint32_t unit, const struct punctual_params *params,
      struct punctual_text *why, struct punctual_answer *then);
GUARD(wake, uint64_t now_ns, uint32_t unit, struct punctual_answer *then);
GUARD(sleep, uint64_t now_ns, uint32_t unit, struct punctual_answer *then);
GUARD(pick, uint64_t now_ns, uint32_t cpu, struct punctual_slice *slice, struct punctual_answer *then);
GUARD(sleep_and_pick, uint64_t now_ns, uint32_t unit, uint32_t cpu, struct punctual_slice *slice,
      struct punctual_answer *then);
GUARD(timer, uint64_t now_ns, struct punctual_answer *then);

/* The call of this processor returns PANICKED. */
static void noreturn leave(struct way_out *out)
{
    void *stack = out->stack;

    BUILD_BUG_ON(offsetof(struct way_out, stack) != 0 || offsetof(struct way_out, first) != 8);
    out->stack = NULL;
    asm volatile ( "mov %0, %%rsp\n\t"
                   "pop %%r15; pop %%r14; pop %%r13; pop %%r12; pop %%rbp; pop %%rbx\n\t"
                   "mov %1, %%eax\n\t"
                   "jmp __x86_return_thunk"
                   :: "r" (stack), "i" (PANICKED) : "memory" );
    unreachable();
}

void punctual_panicked(const struct punctual_text *why)
{
    struct way_out *out = &this_cpu(way_out);

    printk(XENLOG_ERR "punctual: %s\n", why->bytes);
    if ( !out->stack )
        panic("punctual: nowhere to go\n");
    leave(out);
}

/* Calls punctual_NAME(pool, ...) with `pool` of `prv`. If that panics, or did before, it is PANICKED. */
#define CALL(prv, name, ...)                                            \
    (likely(!(prv)->parked) ? CALL_FIRST(prv, (prv)->pool, name, ##__VA_ARGS__) : PANICKED)
#define CALL_FIRST(prv, with, name, ...) ({                             \
    struct way_out *out_ = &this_cpu(way_out);                          \
    long rc_;                                                           \
    out_->first = (with);                                               \
    rc_ = guarded_##name(out_, ##__VA_ARGS__);                          \
    out_->stack = NULL;                                                 \
    if ( unlikely(rc_ == PANICKED) )                                    \
        park(prv);                                                      \
    rc_;                                                                \
})

static void noinline park(struct punctual_private *prv)
{
    unsigned int cpu;

    printk(XENLOG_ERR "punctual: the pool is parked, round robin from now on\n");
    prv->parked = true;
    if ( unlikely(tb_init_done) )
        write_record(prv, RECORD_PARKED, NOW(), 0, 0, 0);
    for_each_cpu ( cpu, &prv->cpus )
        cpu_raise_softirq(cpu, SCHEDULE_SOFTIRQ);
}

/* A processor that idles, on which the unit would rather run; nr_cpu_ids: none. */
static unsigned int preferred_cpu(const struct punctual_private *prv, const struct sched_unit *unit)
{
    unsigned int cpu;

    for_each_cpu ( cpu, unit->cpu_soft_affinity )
        if ( cpu != prv->deciding && cpumask_test_cpu(cpu, unit->cpu_hard_affinity) &&
             cpumask_test_cpu(cpu, &prv->cpus) && is_idle_unit(curr_on_cpu(cpu)) )
            return cpu;
    return nr_cpu_ids;
}

/*
 * Soft affinity. If processors are to decide, none of which a waiting unit prefers, and one that it prefers
 * idles, that one decides first, and they do afterwards. What each gets, the policy says. Returns whether it
 * was so.
 */
static bool noinline ask_preferred(struct punctual_private *prv, const struct punctual_answer *then)
{
    const struct punctual_unit *svc;
    cpumask_t asked;
    unsigned int cpu;
    bool any = false;

    cpumask_clear(&asked);
    for_each_cpu ( cpu, &prv->cpus )
        if ( cpu != prv->deciding && (then->resched.words[cpu / 64] >> (cpu % 64)) & 1 )
            __cpumask_set_cpu(cpu, &asked);
    if ( cpumask_empty(&asked) )
        return false;
    list_for_each_entry ( svc, &prv->units, list )
    {
        const struct sched_unit *unit = svc->unit;

        if ( !unit->soft_aff_effective || unit->is_running || !unit_runnable(unit) ||
             cpumask_intersects(&asked, unit->cpu_soft_affinity) )
            continue;
        cpu = preferred_cpu(prv, unit);
        if ( cpu >= nr_cpu_ids )
            continue;
        cpu_raise_softirq(cpu, SCHEDULE_SOFTIRQ);
        any = true;
    }
    if ( any )
        cpumask_or(&prv->later, &prv->later, &asked);
    return any;
}

static void noinline ask_later(struct punctual_private *prv)
{
    cpumask_raise_softirq(&prv->later, SCHEDULE_SOFTIRQ);
    cpumask_clear(&prv->later);
}

/* Asks 64 processors, from `first` on, as far as they are among `asked`, to decide. */
static void noinline ask(struct punctual_private *prv, unsigned int first, uint64_t asked)
{
    unsigned int cpu;

    for ( ; asked; asked &= asked - 1 )
    {
        cpu = first + __builtin_ctzll(asked);
        if ( cpu != prv->deciding && cpu < nr_cpu_ids && cpumask_test_cpu(cpu, &prv->cpus) )
            cpu_raise_softirq(cpu, SCHEDULE_SOFTIRQ);
    }
}

static void noinline ask_many(struct punctual_private *prv, const struct punctual_answer *then)
{
    unsigned int word;

    if ( prv->is_soft && ask_preferred(prv, then) )
        return;
    for ( word = 0; word <= (nr_cpu_ids - 1) / 64; word++ )
        ask(prv, word * 64, then->resched.words[word]);
}

/*
 * Does what an answer asks for. A timer that is set too early stays: it does nothing when it comes, and
 * costs less than to set it anew at each sleep and wake-up.
 */
static always_inline void follow(struct punctual_private *prv, const struct punctual_answer *then)
{
    if ( unlikely(prv->is_soft) || unlikely(nr_cpu_ids > 64) )
        ask_many(prv, then);
    else if ( then->resched.words[0] )
        ask(prv, 0, then->resched.words[0]);
    if ( then->next_timer_ns < prv->timer_ns && prv->has_timer )
    {
        prv->timer_ns = then->next_timer_ns;
        set_timer(&prv->timer, then->next_timer_ns);
    }
}

static inline void record_call(struct punctual_private *prv, enum record event, s_time_t now, uint32_t who,
                               const struct punctual_answer *then)
{
    record(prv, event, now, who, then->next_timer_ns, then->resched.words[0]);
}

static void record_text(struct punctual_private *prv, const char *text)
{
    struct {
        uint32_t chunk, who;
        char bytes[20];
    } words = { .who = (uint32_t)prv->id << 24 };

    BUILD_BUG_ON(sizeof(words) > TRACE_EXTRA_MAX * sizeof(uint32_t));
    for ( ; *text; words.chunk++ )
    {
        memset(words.bytes, 0, sizeof(words.bytes));
        memcpy(words.bytes, text, strnlen(text, sizeof(words.bytes)));
        text += strnlen(text, sizeof(words.bytes));
        trace_with_time(TRC_PUNCTUAL(RECORD_TEXT), sizeof(words), &words);
    }
}

static void record_pool(struct punctual_private *prv)
{
    if ( likely(!tb_init_done) )
        return;
    record(prv, RECORD_POOL, NOW(), 0, nr_cpu_ids | ((uint64_t)prv->numbers << 32), 0);
    record_text(prv, prv->policy.bytes);
    if ( prv->options.bytes[0] )
    {
        record_text(prv, ",");
        record_text(prv, prv->options.bytes);
    }
}

static void record_params(struct punctual_private *prv, s_time_t now, const struct punctual_params *params)
{
    const uint64_t values[] = {
        params->budget_ns, params->period_ns, params->deadline_ns, params->priority, params->weight,
        params->cap_percent, params->extratime, params->best_effort,
    };
    unsigned int i;

    if ( likely(!tb_init_done) )
        return;
    for ( i = 0; i < ARRAY_SIZE(values); i++ )
        if ( params->given & (1U << i) )
            record(prv, RECORD_PARAM, now, i, values[i], 0);
    for ( i = 0; i < ARRAY_SIZE(params->affinity.words); i++ )
        if ( params->affinity.words[i] )
            record(prv, RECORD_PARAM, now, 8, params->affinity.words[i], i);
}

/* As the function of the library, or PANICKED. */
static int noinline call_insert(struct punctual_private *prv, s_time_t now,
                                const struct punctual_params *params, const struct sched_unit *unit,
                                uint32_t *number, struct punctual_text *why, struct punctual_answer *then)
{
    int rc;

    record_params(prv, now, params);
    rc = CALL(prv, insert, now, params, number, why, then);
    if ( rc == PANICKED )
        return rc;
    record(prv, RECORD_INSERT, now, rc ? NO_UNIT : *number, then->next_timer_ns,
           ((uint32_t)unit->domain->domain_id << 16) | unit->unit_id);
    return rc;
}

static int noinline call_adjust(struct punctual_private *prv, uint32_t number,
                                const struct punctual_params *params, struct punctual_text *why,
                                struct punctual_answer *then)
{
    s_time_t now = NOW();
    int rc;

    record_params(prv, now, params);
    rc = CALL(prv, adjust, now, number, params, why, then);
    if ( rc == PANICKED )
        return rc;
    record(prv, RECORD_ADJUST, now, number, then->next_timer_ns, rc != 0);
    return rc;
}

static void noinline call_remove(struct punctual_private *prv, uint32_t number)
{
    struct punctual_answer then;
    s_time_t now = NOW();

    if ( CALL(prv, remove, now, number, &then) == PANICKED )
        return;
    record_call(prv, RECORD_REMOVE, now, number, &then);
    follow(prv, &then);
}

static void noinline call_wake(struct punctual_private *prv, uint32_t number)
{
    struct punctual_answer then;
    s_time_t now = NOW();

    if ( CALL(prv, wake, now, number, &then) == PANICKED )
        return;
    record_call(prv, RECORD_WAKE, now, number, &then);
    follow(prv, &then);
}

static void noinline call_sleep(struct punctual_private *prv, uint32_t number, s_time_t now)
{
    struct punctual_answer then;

    if ( CALL(prv, sleep, now, number, &then) == PANICKED )
        return;
    record_call(prv, RECORD_SLEEP, now, number, &then);
    follow(prv, &then);
}

/* For a processor that has left the cpupool. */
static void noinline call_pick(struct punctual_private *prv, unsigned int cpu, s_time_t now)
{
    struct punctual_slice slice;
    struct punctual_answer then;

    if ( CALL(prv, pick, now, cpu, &slice, &then) == PANICKED )
        return;
    record(prv, RECORD_PICK, now, cpu, slice.until_ns, (slice.run << 30) | slice.unit);
    follow(prv, &then);
}

/* The unit that ran on `cpu`, which is about to decide, has no more work. */
static void noinline call_sleep_before_pick(struct punctual_private *prv, uint32_t number, unsigned int cpu,
                                            s_time_t now)
{
    prv->deciding = cpu;
    call_sleep(prv, number, now);
    prv->deciding = NO_UNIT;
}

static void noinline call_timer(struct punctual_private *prv)
{
    struct punctual_answer then;
    s_time_t now = NOW();

    if ( CALL(prv, timer, now, &then) == PANICKED )
        return;
    record_call(prv, RECORD_TIMER, now, 0, &then);
    follow(prv, &then);
}

/* ---- parameters -------------------------------------------------------------------------------------- */

/*
 * Is a processor of the scheduler the cpupool's? One that comes is not yet, one that leaves is not any more:
 * core.c moves units away from the latter (`cpu_disable_scheduler`), and none may follow.
 */
static bool is_valid(unsigned int cpu)
{
    const struct cpupool *pool = get_sched_res(cpu)->cpupool;

    return pool && cpumask_test_cpu(cpu, pool->res_valid);
}

/* The processors on which the unit may run; `hard` is its affinity. */
static void affinity_of(const struct punctual_private *prv, const cpumask_t *hard,
                        struct punctual_processors *processors)
{
    unsigned int cpu, most;
    bool any = false;

    memset(processors, 0, sizeof(*processors));
    /* Xen breaks an affinity to none of its pool in a moment; a pool that ends has no processor. */
    for ( most = 0; most < 3 && !any; most++ )
        for_each_cpu ( cpu, &prv->cpus )
            if ( (most > 1 || is_valid(cpu)) && (most > 0 || cpumask_test_cpu(cpu, hard)) )
            {
                processors->words[cpu / 64] |= 1ULL << (cpu % 64);
                any = true;
            }
}

static void params_of(const struct punctual_private *prv, const struct punctual_unit *svc,
                      const cpumask_t *hard, struct punctual_params *params)
{
    *params = svc->params;
    params->given |= PUNCTUAL_PRIORITY | PUNCTUAL_AFFINITY;
    if ( !(svc->params.given & PUNCTUAL_PRIORITY) )
        /* Rate monotonic. */
        params->priority = min_t(uint64_t, svc->params.period_ns / MICROSECS(1), INT_MAX);
    affinity_of(prv, hard, &params->affinity);
}

/* Under the lock. Not 0: the policy refused them, says why, and the unit has those that it had. */
static int tell(struct punctual_private *prv, struct punctual_unit *svc, const cpumask_t *hard,
                struct punctual_text *why)
{
    struct punctual_params params;
    struct punctual_answer then;
    int rc;

    if ( svc->number == NO_UNIT || prv->parked )
        return 0;
    params_of(prv, svc, hard, &params);
    rc = call_adjust(prv, svc->number, &params, why, &then);
    if ( rc > 0 )
        return 0;
    follow(prv, &then);
    return rc;
}

/* The same, for a change that is none of domain 0's wishes. */
static void tell_or_warn(struct punctual_private *prv, struct punctual_unit *svc, const cpumask_t *hard)
{
    struct punctual_text why;

    if ( tell(prv, svc, hard, &why) )
        printk(XENLOG_WARNING "punctual: %pv: %s\n", svc->unit->vcpu_list, why.bytes);
}

/* Under the lock: tells the policy of processors that came or went. */
static void noinline tell_all(struct punctual_private *prv)
{
    struct punctual_unit *svc;
    unsigned int cpu;

    prv->cpus_changed = false;
    if ( cpumask_empty(&prv->cpus) )
        return;
    list_for_each_entry ( svc, &prv->units, list )
        tell_or_warn(prv, svc, svc->unit->cpu_hard_affinity);
    for ( cpu = 0; cpu < nr_cpu_ids; cpu++ )
        if ( !cpumask_test_cpu(cpu, &prv->cpus) )
            call_pick(prv, cpu, NOW());
        else if ( !is_valid(cpu) )
        {
            call_pick(prv, cpu, NOW());
            /* Nobody says when it becomes so. */
            prv->cpus_changed = true;
        }
}

static inline void refresh(struct punctual_private *prv)
{
    if ( unlikely(prv->cpus_changed) )
        tell_all(prv);
}

/* ---- round robin ------------------------------------------------------------------------------------- */

static struct sched_unit *noinline next_in_turn(struct punctual_private *prv, unsigned int cpu,
                                       struct sched_unit *current_unit)
{
    struct punctual_unit *svc;

    list_for_each_entry ( svc, &prv->units, list )
        if ( (svc->unit == current_unit || !svc->unit->is_running) &&
             cpumask_test_cpu(cpu, svc->unit->cpu_hard_affinity) && unit_runnable_state(svc->unit) )
        {
            list_move_tail(&svc->list, &prv->units);
            return svc->unit;
        }
    return sched_idle_unit(cpu);
}

/* ---- the table of a scheduler ------------------------------------------------------------------------ */

static void cf_check timer_handler(void *data)
{
    struct scheduler *ops = data;
    struct punctual_private *prv = private_of(ops);

    spin_lock_irq(&prv->lock);
    prv->timer_ns = PUNCTUAL_NEVER;
    refresh(prv);
    call_timer(prv);
    spin_unlock_irq(&prv->lock);
}

static int cf_check punctual_global_init(void)
{
    char *comma = strchr(opt_policy, ',');

    /* Xen goes on without this scheduler. */
    if ( !strcmp(opt_policy, "off") )
        return -ENODEV;
    if ( comma )
    {
        *comma = 0;
        strlcpy(first_options.bytes, comma + 1, sizeof(first_options.bytes));
    }
    strlcpy(first_policy.bytes, opt_policy, sizeof(first_policy.bytes));
    return punctual_version() == PUNCTUAL_VERSION ? 0 : -EINVAL;
}

static void give_back(struct punctual_private *prv)
{
    unsigned long flags;

    if ( !prv )
        return;
    local_irq_save(flags);
    /* What panicked keeps its memory. */
    if ( prv->pool && !prv->parked )
    {
        punctual_destroy(prv->pool);
        pools--;
    }
    local_irq_restore(flags);
    xfree(prv->by_number);
    xfree(prv);
}

/* A pool without units and processors; null: `why` it cannot be. */
static struct punctual_private *noinline create(const struct punctual_text *policy,
                                                const struct punctual_text *options,
                                                struct punctual_text *why)
{
    static uint8_t id;
    struct punctual_private *prv = xzalloc(struct punctual_private);
    size_t bytes = punctual_pool_bytes(nr_cpu_ids, opt_units);
    void *memory = NULL;
    unsigned long flags;
    long made;

    strlcpy(why->bytes, "no memory", sizeof(why->bytes));
    if ( !prv || !(prv->by_number = xzalloc_array(struct punctual_unit *, opt_units)) )
        goto fail;
    if ( pools >= paid )
    {
        memory = alloc_xenheap_pages(get_order_from_bytes(bytes), 0);
        if ( !memory )
            goto fail;
        paid++;
    }
    spin_lock_init(&prv->lock);
    INIT_LIST_HEAD(&prv->units);
    prv->timer_ns = PUNCTUAL_NEVER;
    prv->deciding = NO_UNIT;
    prv->numbers = opt_units;
    prv->id = id++;
    prv->policy = *policy;
    prv->options = *options;
    local_irq_save(flags);
    if ( memory )
        punctual_give(memory, PAGE_SIZE << get_order_from_bytes(bytes));
    made = CALL_FIRST(prv, policy, create, options, nr_cpu_ids, opt_units, why);
    if ( made != PANICKED )
        prv->pool = (struct punctual_pool *)made;
    local_irq_restore(flags);
    if ( !prv->pool )
        goto fail;
    pools++;
    why->bytes[0] = 0;
    return prv;

 fail:
    give_back(prv);
    return NULL;
}

static int cf_check punctual_init(struct scheduler *ops)
{
    struct punctual_text why;
    struct punctual_private *prv = create(&first_policy, &first_options, &why);

    if ( !prv )
    {
        printk(XENLOG_ERR "punctual: %s\n", why.bytes);
        return -EINVAL;
    }
    record_pool(prv);
    printk("punctual: policy %s %s, at most %u units\n", prv->policy.bytes, prv->options.bytes, opt_units);
    ops->sched_data = prv;
    return 0;
}

static void cf_check punctual_deinit(struct scheduler *ops)
{
    give_back(private_of(ops));
    ops->sched_data = NULL;
}

static spinlock_t *cf_check punctual_switch_sched(struct scheduler *ops, unsigned int cpu, void *pdata,
                                                  void *vdata)
{
    struct punctual_private *prv = private_of(ops);

    /*
     * Interrupts are off, and the lock that core.c holds is that of free processors, so that processors of
     * this pool may be deciding. They clear `cpus_changed` and then read `cpus`; without the pool's lock they
     * could read `cpus` as it was before, and clear the flag after it is set here.
     *
     * core.c takes two locks in the order of their addresses: that of free processors, which is in Xen's
     * image, is below all memory that is allocated, and so comes first there, too. Credit nests them alike.
     */
    spin_lock(&prv->lock);
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

static void leave_timer(struct punctual_private *prv, unsigned int cpu, const cpumask_t *left)
{
    unsigned int other = cpumask_cycle(cpu, left);

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

static void cf_check punctual_deinit_pdata(const struct scheduler *ops, void *pcpu, int cpu)
{
    struct punctual_private *prv = private_of(ops);
    unsigned long flags;

    spin_lock_irqsave(&prv->lock, flags);
    cpumask_clear_cpu(cpu, &prv->cpus);
    ask_later(prv);
    prv->cpus_changed = true;
    leave_timer(prv, cpu, &prv->cpus);
    refresh(prv);
    spin_unlock_irqrestore(&prv->lock, flags);
}

static void cf_check punctual_move_timers(const struct scheduler *ops, struct sched_resource *sr)
{
    struct punctual_private *prv = private_of(ops);
    unsigned long flags;

    spin_lock_irqsave(&prv->lock, flags);
    if ( prv->has_timer && !cpumask_test_cpu(prv->timer.cpu, sr->cpupool->res_valid) )
        leave_timer(prv, prv->timer.cpu, sr->cpupool->res_valid);
    spin_unlock_irqrestore(&prv->lock, flags);
}

static void *cf_check punctual_alloc_udata(const struct scheduler *ops, struct sched_unit *unit, void *dd)
{
    struct punctual_unit *svc = xzalloc(struct punctual_unit);

    if ( !svc )
        return NULL;
    INIT_LIST_HEAD(&svc->list);
    svc->unit = unit;
    svc->number = NO_UNIT;
    svc->params.given = PUNCTUAL_BUDGET | PUNCTUAL_PERIOD | PUNCTUAL_EXTRATIME;
    svc->params.budget_ns = DEFAULT_BUDGET;
    svc->params.period_ns = DEFAULT_PERIOD;
    svc->params.extratime = true;
    svc->wanted_by = -1;
    return svc;
}

static void cf_check punctual_free_udata(const struct scheduler *ops, void *priv)
{
    xfree(priv);
}

static struct sched_resource *pick_locked(const struct sched_unit *unit, unsigned int locked_cpu)
{
    cpumask_t *cpus = cpumask_scratch_cpu(locked_cpu);
    unsigned int cpu = sched_unit_master(unit);

    cpumask_and(cpus, cpupool_domain_master_cpumask(unit->domain), unit->cpu_hard_affinity);
    if ( !cpumask_test_cpu(cpu, cpus) )
        cpu = cpumask_cycle(cpu, cpus);
    return get_sched_res(cpu);
}

static struct sched_resource *cf_check punctual_pick_resource(const struct scheduler *ops,
                                                              const struct sched_unit *unit)
{
    return pick_locked(unit, unit->res->master_cpu);
}

static void cf_check punctual_insert_unit(const struct scheduler *ops, struct sched_unit *unit)
{
    struct punctual_private *prv = private_of(ops);
    struct punctual_unit *svc = punctual_unit(unit);
    struct punctual_params params;
    struct punctual_answer then;
    struct punctual_text why;
    spinlock_t *lock;
    unsigned int cpu = smp_processor_id();
    int rc;

    lock = pcpu_schedule_lock_irq(cpu);
    sched_set_res(unit, pick_locked(unit, cpu));
    pcpu_schedule_unlock_irq(lock, cpu);

    lock = unit_schedule_lock_irq(unit);
    refresh(prv);
    list_add_tail(&svc->list, &prv->units);
    prv->is_soft |= unit->soft_aff_effective;
    params_of(prv, svc, unit->cpu_hard_affinity, &params);
    rc = call_insert(prv, NOW(), &params, unit, &svc->number, &why, &then);
    if ( rc < 0 )
    {
        /* Below all others, rather than not at all. */
        printk(XENLOG_WARNING "punctual: %pv is below all others: %s\n", unit->vcpu_list, why.bytes);
        params.given |= PUNCTUAL_BEST_EFFORT;
        params.best_effort = 1;
        rc = call_insert(prv, NOW(), &params, unit, &svc->number, &why, &then);
    }
    if ( rc < 0 || (rc == 0 && svc->number >= prv->numbers) )
    {
        printk(XENLOG_ERR "punctual: %pv: %s\n", unit->vcpu_list,
               rc < 0 ? why.bytes : "a number beyond all others");
        svc->number = NO_UNIT;
        park(prv);
    }
    else if ( rc == 0 )
    {
        prv->by_number[svc->number] = svc;
        follow(prv, &then);
        if ( unit_runnable(unit) )
            call_wake(prv, svc->number);
    }
    unit_schedule_unlock_irq(lock, unit);
}

static void cf_check punctual_remove_unit(const struct scheduler *ops, struct sched_unit *unit)
{
    struct punctual_private *prv = private_of(ops);
    struct punctual_unit *svc = punctual_unit(unit);
    spinlock_t *lock = unit_schedule_lock_irq(unit);

    list_del_init(&svc->list);
    if ( svc->number != NO_UNIT )
    {
        prv->by_number[svc->number] = NULL;
        call_remove(prv, svc->number);
        svc->number = NO_UNIT;
    }
    unit_schedule_unlock_irq(lock, unit);
}

static void cf_check punctual_sleep_unit(const struct scheduler *ops, struct sched_unit *unit)
{
    struct punctual_private *prv = private_of(ops);
    struct punctual_unit *svc = punctual_unit(unit);

    /* One that runs is put to sleep by the decision that follows. */
    if ( curr_on_cpu(sched_unit_master(unit)) == unit )
        cpu_raise_softirq(sched_unit_master(unit), SCHEDULE_SOFTIRQ);
    else if ( svc->number != NO_UNIT )
        call_sleep(prv, svc->number, NOW());
}

/* In round robin. */
static void noinline ask_idle(const struct punctual_private *prv, const struct sched_unit *unit)
{
    unsigned int cpu;

    for_each_cpu ( cpu, &prv->cpus )
        if ( cpumask_test_cpu(cpu, unit->cpu_hard_affinity) && is_idle_unit(curr_on_cpu(cpu)) )
            cpu_raise_softirq(cpu, SCHEDULE_SOFTIRQ);
}

static void cf_check punctual_wake_unit(const struct scheduler *ops, struct sched_unit *unit)
{
    struct punctual_private *prv = private_of(ops);
    struct punctual_unit *svc = punctual_unit(unit);

    if ( !unit_runnable(unit) )
        return;
    if ( unlikely(prv->parked) )
        ask_idle(prv, unit);
    else if ( likely(svc->number != NO_UNIT) )
        call_wake(prv, svc->number);
}

static void cf_check punctual_context_saved(const struct scheduler *ops, struct sched_unit *unit)
{
    struct punctual_unit *svc = punctual_unit(unit);
    spinlock_t *lock;

    /* Xen has a barrier since the unit runs no more: who wants it from now on sees that. */
    if ( is_idle_unit(unit) || likely(svc->wanted_by < 0) )
        return;
    lock = unit_schedule_lock_irq(unit);
    if ( svc->wanted_by >= 0 )
    {
        cpu_raise_softirq(svc->wanted_by, SCHEDULE_SOFTIRQ);
        svc->wanted_by = -1;
    }
    unit_schedule_unlock_irq(lock, unit);
}

/* Has another processor yet to leave the unit? If so, `cpu` decides again when it has. */
static bool noinline must_wait(struct punctual_private *prv, struct punctual_unit *svc, unsigned int cpu)
{
    svc->wanted_by = cpu;
    /* Either it is seen here that the other one has left it, or there that it is wanted. */
    smp_mb();
    if ( svc->unit->is_running )
    {
        prv->waits++;
        return true;
    }
    svc->wanted_by = -1;
    return false;
}

/*
 * The unit that a slice gives to the processor of `sr`; the idle unit if that cannot run here now; NULL if it
 * has no more work, which the policy does not know yet.
 */
static always_inline struct sched_unit *unit_to_run(struct punctual_private *prv,
                                                    const struct punctual_slice *slice,
                                                    const struct sched_resource *sr,
                                                    const struct sched_unit *current_unit)
{
    struct punctual_unit *svc;
    struct sched_unit *unit;

    if ( slice->run != PUNCTUAL_UNIT || slice->unit >= prv->numbers )
        return sr->sched_unit_idle;
    svc = prv->by_number[slice->unit];
    if ( unlikely(!svc) )
        return sr->sched_unit_idle;
    unit = svc->unit;
    if ( unit != current_unit && unlikely(unit->is_running) && must_wait(prv, svc, sr->master_cpu) )
        return sr->sched_unit_idle;
    return likely(unit_runnable_state(unit)) ? unit : NULL;
}

/* The policy gave `slice` to a processor, but its unit has no more work; NULL: the pool panicked. */
static struct sched_unit *noinline decide_again(struct punctual_private *prv, const struct sched_resource *sr,
                                                s_time_t now, const struct sched_unit *current_unit,
                                                struct punctual_slice *slice)
{
    unsigned int cpu = sr->master_cpu;
    struct punctual_answer then;
    struct sched_unit *next;

    do {
        call_sleep_before_pick(prv, slice->unit, cpu, now);
        if ( CALL(prv, pick, now, cpu, slice, &then) == PANICKED )
            return NULL;
        record(prv, RECORD_PICK, now, cpu, slice->until_ns, (slice->run << 30) | slice->unit);
        follow(prv, &then);
        prv->picks++;
        next = unit_to_run(prv, slice, sr, current_unit);
    } while ( !next );
    return next;
}

/* `cpu` leaves the cpupool, and a unit that is elsewhere may not follow it: the policy is told. */
static struct sched_unit *noinline leave_pool(struct punctual_private *prv, unsigned int cpu)
{
    prv->cpus_changed = true;
    refresh(prv);
    return sched_idle_unit(cpu);
}

static void cf_check punctual_do_schedule(const struct scheduler *ops, struct sched_unit *current_unit,
                                          s_time_t now, bool tasklet_work_scheduled)
{
    struct punctual_private *prv = private_of(ops);
    struct sched_resource *sr = get_sched_res(smp_processor_id());
    unsigned int cpu = sr->master_cpu;
    struct sched_unit *next = NULL;
    struct punctual_slice slice;
    struct punctual_answer then;
    uint32_t asleep = NO_UNIT;

    refresh(prv);
    if ( !is_idle_unit(current_unit) && !unit_runnable(current_unit) )
    {
        asleep = punctual_unit(current_unit)->number;
        /* In a trace that is a record, and the decision another one; soft affinities follow each answer. */
        if ( unlikely(tb_init_done || prv->is_soft) && asleep != NO_UNIT )
        {
            call_sleep_before_pick(prv, asleep, cpu, now);
            asleep = NO_UNIT;
        }
    }
    if ( likely((asleep == NO_UNIT ? CALL(prv, pick, now, cpu, &slice, &then)
                                   : CALL(prv, sleep_and_pick, now, asleep, cpu, &slice, &then)) !=
                PANICKED) )
    {
        record(prv, RECORD_PICK, now, cpu, slice.until_ns, (slice.run << 30) | slice.unit);
        follow(prv, &then);
        prv->picks++;
        next = unit_to_run(prv, &slice, sr, current_unit);
        if ( unlikely(!next) )
            next = decide_again(prv, sr, now, current_unit, &slice);
    }
    if ( unlikely(prv->is_soft) )
        ask_later(prv);
    if ( unlikely(!next) )
    {
        next = next_in_turn(prv, cpu, current_unit);
        slice.until_ns = is_idle_unit(next) ? PUNCTUAL_NEVER : now + PARKED_SLICE;
    }
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
     * core.c writes to the unit that the idle one was followed by last when its processor leaves a cpupool
     * (`schedule_cpu_rm`), and that unit may be gone. So an idle unit that runs is followed by itself.
     */
    next->next_task = next;
    current_unit->next_time = slice.until_ns == PUNCTUAL_NEVER ? -1 : (s_time_t)slice.until_ns - now;
    current_unit->next_task = next;
}

static void cf_check punctual_adjust_affinity(const struct scheduler *ops, struct sched_unit *unit,
                                              const cpumask_t *hard, const cpumask_t *soft)
{
    if ( hard )
        tell_or_warn(private_of(ops), punctual_unit(unit), hard);
    if ( soft && !cpumask_subset(&private_of(ops)->cpus, soft) )
        private_of(ops)->is_soft = true;
}

/* Under the lock: gives a unit other parameters, or leaves it as it is. */
static int set_params(struct punctual_private *prv, struct punctual_unit *svc,
                      const struct punctual_params *params, struct punctual_text *why)
{
    struct punctual_params before = svc->params;

    svc->params = *params;
    if ( tell(prv, svc, svc->unit->cpu_hard_affinity, why) == 0 )
        return 0;
    svc->params = before;
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
        printk(XENLOG_WARNING "punctual: %pv: %s\n", svc->unit->vcpu_list, why.bytes);
    return rc;
}

static struct punctual_unit *unit_of(const struct domain *d, uint32_t vcpu)
{
    return vcpu < d->max_vcpus && d->vcpu[vcpu] ? punctual_unit(d->vcpu[vcpu]->sched_unit) : NULL;
}

static int adjust_vcpu(struct punctual_private *prv, struct domain *d, uint32_t cmd,
                       struct xen_domctl_schedparam_vcpu *vcpu)
{
    struct punctual_unit *svc = unit_of(d, vcpu->vcpuid);
    unsigned long flags;
    int rc = 0;

    if ( !svc )
        return -EINVAL;
    spin_lock_irqsave(&prv->lock, flags);
    if ( cmd == XEN_DOMCTL_SCHEDOP_getvcpuinfo )
    {
        vcpu->u.rtds.budget = svc->params.budget_ns / MICROSECS(1);
        vcpu->u.rtds.period = svc->params.period_ns / MICROSECS(1);
        vcpu->u.rtds.flags = svc->params.extratime ? XEN_DOMCTL_SCHEDRT_extra : 0;
    }
    else
        rc = set_rtds(prv, svc, &vcpu->u.rtds, vcpu->u.rtds.flags & XEN_DOMCTL_SCHEDRT_extra);
    spin_unlock_irqrestore(&prv->lock, flags);
    return rc;
}

/* As in sched/rt.c: what `xl sched-rtds` asks for. */
static int cf_check punctual_adjust_domain(const struct scheduler *ops, struct domain *d,
                                           struct xen_domctl_scheduler_op *op)
{
    struct punctual_private *prv = private_of(ops);
    struct xen_domctl_schedparam_vcpu vcpu;
    const struct sched_unit *unit;
    unsigned long flags;
    uint32_t index = 0;
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
            rc = rc ?: set_rtds(prv, punctual_unit(unit), &op->u.rtds, punctual_unit(unit)->params.extratime);
        spin_unlock_irqrestore(&prv->lock, flags);
        break;
    case XEN_DOMCTL_SCHEDOP_getvcpuinfo:
    case XEN_DOMCTL_SCHEDOP_putvcpuinfo:
        while ( !rc && index < op->u.v.nr_vcpus )
        {
            if ( copy_from_guest_offset(&vcpu, op->u.v.vcpus, index, 1) )
                return -EFAULT;
            rc = adjust_vcpu(prv, d, op->cmd, &vcpu);
            if ( !rc && op->cmd == XEN_DOMCTL_SCHEDOP_getvcpuinfo &&
                 copy_to_guest_offset(op->u.v.vcpus, index, &vcpu, 1) )
                rc = -EFAULT;
            /* As many as 64 are processed before others get a turn. */
            if ( !rc && ++index > 63 && hypercall_preempt_check() )
                break;
        }
        if ( !rc )
            op->u.v.nr_vcpus = index;
        break;
    }
    return rc;
}

/* ---- punctual_op.h ----------------------------------------------------------------------------------- */

typedef struct punctual_op punctual_op_t;
DEFINE_XEN_GUEST_HANDLE(punctual_op_t);

/* Under prv's lock: all units of `prv` come into `fresh` at `now`, with the parameters that they have. */
static int move_units(struct punctual_private *prv, struct punctual_private *fresh, s_time_t now,
                      struct punctual_text *why)
{
    struct punctual_unit *svc;
    struct punctual_params params;
    struct punctual_answer then;
    struct punctual_text refused;
    uint32_t number;
    int rc;

    record_pool(fresh);
    list_for_each_entry ( svc, &prv->units, list )
    {
        params_of(prv, svc, svc->unit->cpu_hard_affinity, &params);
        rc = call_insert(fresh, now, &params, svc->unit, &number, &refused, &then);
        if ( rc == 0 && number < fresh->numbers )
        {
            fresh->by_number[number] = svc;
            continue;
        }
        snprintf(why->bytes, sizeof(why->bytes), "%pv: %s", svc->unit->vcpu_list,
                 rc < 0 ? refused.bytes : "the policy failed");
        return -EINVAL;
    }
    return 0;
}

/* Under prv's lock: it has the policy of `fresh` from now on, and `fresh` what it had. */
static void exchange(struct punctual_private *prv, struct punctual_private *fresh)
{
    struct punctual_unit *svc;
    unsigned int number, cpu;

#define EXCHANGE(field) do {                    \
        typeof(prv->field) had_ = prv->field;   \
        prv->field = fresh->field;              \
        fresh->field = had_;                    \
    } while ( 0 )
    EXCHANGE(policy);
    EXCHANGE(options);
    EXCHANGE(pool);
    EXCHANGE(id);
    EXCHANGE(sequence);
    EXCHANGE(parked);
    EXCHANGE(by_number);
#undef EXCHANGE
    list_for_each_entry ( svc, &prv->units, list )
        svc->number = NO_UNIT;
    for ( number = 0; number < prv->numbers; number++ )
        if ( (svc = prv->by_number[number]) != NULL )
        {
            svc->number = number;
            if ( unit_runnable(svc->unit) )
                call_wake(prv, number);
        }
    /* What the policy has to do by itself, and when. */
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
    fresh = create(&op->policy, &op->options, &op->why);
    if ( !fresh )
        return -EINVAL;
    spin_lock_irqsave(&prv->lock, flags);
    op->now_ns = NOW();
    rc = move_units(prv, fresh, op->now_ns, &op->why);
    if ( rc == 0 )
        exchange(prv, fresh);
    spin_unlock_irqrestore(&prv->lock, flags);
    give_back(fresh);
    return rc;
}

static void get_unit(struct punctual_private *prv, struct punctual_unit *svc, struct punctual_op *op)
{
    params_of(prv, svc, svc->unit->cpu_hard_affinity, &op->params);
    memset(&op->account, 0xff, sizeof(op->account));
    if ( !prv->parked && svc->number != NO_UNIT )
        punctual_account(prv->pool, svc->number, &op->account);
}

/* `set` with what is given in `wish`. */
static void merge(struct punctual_params *set, const struct punctual_params *wish)
{
#define MERGE(bit, field) do { if ( wish->given & (bit) ) set->field = wish->field; } while ( 0 )
    MERGE(PUNCTUAL_BUDGET, budget_ns);
    MERGE(PUNCTUAL_PERIOD, period_ns);
    MERGE(PUNCTUAL_DEADLINE, deadline_ns);
    MERGE(PUNCTUAL_PRIORITY, priority);
    MERGE(PUNCTUAL_WEIGHT, weight);
    MERGE(PUNCTUAL_CAP, cap_percent);
    MERGE(PUNCTUAL_EXTRATIME, extratime);
    MERGE(PUNCTUAL_BEST_EFFORT, best_effort);
#undef MERGE
    set->given |= wish->given & ~PUNCTUAL_AFFINITY;
}

static int unit_op(struct punctual_private *prv, struct punctual_op *op)
{
    struct domain *d = rcu_lock_domain_by_id(op->domain);
    struct punctual_params params;
    struct punctual_unit *svc;
    unsigned long flags;
    int rc = -ESRCH;

    strlcpy(op->why.bytes, "no such vCPU in this cpupool", sizeof(op->why.bytes));
    if ( !d )
        return rc;
    svc = d->cpupool && private_of(d->cpupool->sched) == prv ? unit_of(d, op->vcpu) : NULL;
    if ( svc )
    {
        rc = 0;
        spin_lock_irqsave(&prv->lock, flags);
        if ( op->what == PUNCTUAL_OP_SET_UNIT )
        {
            params = svc->params;
            merge(&params, &op->params);
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
        strlcpy(op->why.bytes, "in debug builds alone", sizeof(op->why.bytes));
        return -EOPNOTSUPP;
    }
    spin_lock_irqsave(&prv->lock, flags);
    if ( !prv->parked )
        punctual_break(prv->pool);
    spin_unlock_irqrestore(&prv->lock, flags);
    return 0;
}

static int do_op(struct punctual_private *prv, struct punctual_op *op)
{
    struct punctual_unit *svc;
    unsigned long flags;

    memset(&op->why, 0, sizeof(op->why));
    op->now_ns = NOW();
    if ( op->version != PUNCTUAL_OP_VERSION )
    {
        snprintf(op->why.bytes, sizeof(op->why.bytes), "version %d is spoken", PUNCTUAL_OP_VERSION);
        return -EACCES;
    }
    switch ( op->what )
    {
    case PUNCTUAL_OP_GET_POOL:
        spin_lock_irqsave(&prv->lock, flags);
        op->policy = prv->policy;
        op->options = prv->options;
        op->parked = prv->parked;
        op->units = 0;
        list_for_each_entry ( svc, &prv->units, list )
            op->units++;
        spin_unlock_irqrestore(&prv->lock, flags);
        return 0;
    case PUNCTUAL_OP_SET_POOL:
        return set_pool(prv, op);
    case PUNCTUAL_OP_GET_UNIT:
    case PUNCTUAL_OP_SET_UNIT:
        return unit_op(prv, op);
    case PUNCTUAL_OP_BREAK:
        return break_pool(prv, op);
    }
    strlcpy(op->why.bytes, "there is no such operation", sizeof(op->why.bytes));
    return -EOPNOTSUPP;
}

static int cf_check punctual_adjust_global(const struct scheduler *ops,
                                           struct xen_sysctl_scheduler_op *sysctl)
{
    XEN_GUEST_HANDLE_PARAM(punctual_op_t) from =
        guest_handle_from_ptr(sysctl->u.sched_arinc653.schedule.p, punctual_op_t);
    struct punctual_op *op = xzalloc(struct punctual_op);
    int rc = -EFAULT;

    if ( !op )
        return -ENOMEM;
    if ( copy_from_guest(op, from, 1) == 0 )
    {
        rc = do_op(private_of(ops), op);
        if ( copy_to_guest(from, op, 1) )
            rc = -EFAULT;
    }
    xfree(op);
    return rc;
}

static void cf_check punctual_dump(const struct scheduler *ops)
{
    struct punctual_private *prv = private_of(ops);
    struct punctual_account account;
    struct punctual_unit *svc;
    unsigned long flags;
    size_t given, used;

    spin_lock_irqsave(&prv->lock, flags);
    punctual_memory(&given, &used);
    printk("punctual: all pools have %zu of %zu bytes\n", used, given);
    printk("punctual: %s %s%s, %"PRIu64" picks, %"PRIu64" waits for a processor to leave a unit\n",
           prv->policy.bytes, prv->options.bytes, prv->parked ? ", parked" : "", prv->picks, prv->waits);
    list_for_each_entry ( svc, &prv->units, list )
    {
        printk("  %pv on %u: budget %"PRIu64" period %"PRIu64"%s", svc->unit->vcpu_list,
               sched_unit_master(svc->unit), svc->params.budget_ns, svc->params.period_ns,
               svc->params.extratime ? " extra" : "");
        if ( !prv->parked && svc->number != NO_UNIT &&
             punctual_account(prv->pool, svc->number, &account) == PUNCTUAL_OK )
            printk(" left %"PRIu64" exhaustions %"PRIu64" replenishments %"PRIu64, account.left_ns,
                   account.exhaustions, account.replenishments);
        printk("\n");
    }
    spin_unlock_irqrestore(&prv->lock, flags);
}

static const struct scheduler sched_punctual_def = {
    .name = "Punctual",
    .opt_name = "punctual",
    .sched_id = XEN_SCHEDULER_RTDS,
    .global_init = punctual_global_init,
    .init = punctual_init,
    .deinit = punctual_deinit,
    .switch_sched = punctual_switch_sched,
    .deinit_pdata = punctual_deinit_pdata,
    .move_timers = punctual_move_timers,
    .alloc_udata = punctual_alloc_udata,
    .free_udata = punctual_free_udata,
    .insert_unit = punctual_insert_unit,
    .remove_unit = punctual_remove_unit,
    .sleep = punctual_sleep_unit,
    .wake = punctual_wake_unit,
    .context_saved = punctual_context_saved,
    .pick_resource = punctual_pick_resource,
    .do_schedule = punctual_do_schedule,
    .adjust = punctual_adjust_domain,
    .adjust_affinity = punctual_adjust_affinity,
    .adjust_global = punctual_adjust_global,
    .dump_settings = punctual_dump,
};

REGISTER_SCHEDULER(sched_punctual_def);
