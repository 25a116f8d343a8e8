// SPDX-License-Identifier: GPL-2.0-only
/*
 * A scheduler of Xen whose decisions are those of Punctual's policies (punctual.h).
 *
 * All processors of a cpupool have one lock, as in sched/rt.c. A processor of the policy is the one of Xen
 * with the same number; where units may run is said by their affinity, which is cut to the cpupool's.
 *
 * The scheduler has the number of RTDS, so that `xl sched-rtds` sets budget, period and extratime; units with
 * a shorter period are more urgent. `sched=punctual sched_punctual=POLICY[,option=value...]` on Xen's command
 * line chooses it and the policy; without the latter it is RTDS.
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
#include <xen/xmalloc.h>

#include "private.h"
#include "punctual.h"

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
static struct punctual_text policy_name, policy_options;

struct punctual_private {
    spinlock_t lock;
    struct punctual_pool *pool;
    /* The pool panicked: round robin. */
    bool parked;
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
    /* Counted for `dump`: the greatest step back of the clock from one decision to the next is theirs. */
    uint64_t picks, waits;
    s_time_t last_pick, step_back;
};

struct punctual_unit {
    struct list_head list;
    struct sched_unit *unit;
    /* NO_UNIT: the policy does not know it. */
    uint32_t number;
    s_time_t budget, period;
    bool extratime;
    /* The processor that picked it while another one was not done with it; -1: none. */
    int wanted_by;
};

/* Where a call that panics is left to. */
struct way_out {
    void *buffer[5];
    bool is_open;
};
static DEFINE_PER_CPU(struct way_out, way_out);

static inline struct punctual_private *private_of(const struct scheduler *ops)
{
    return ops->sched_data;
}

static inline struct punctual_unit *punctual_unit(const struct sched_unit *unit)
{
    return unit->priv;
}

/* ---- the library ------------------------------------------------------------------------------------- */

void punctual_panicked(const struct punctual_text *why)
{
    struct way_out *out = &this_cpu(way_out);

    printk(XENLOG_ERR "punctual: %s\n", why->bytes);
    if ( !out->is_open )
        panic("punctual: nowhere to go\n");
    out->is_open = false;
    __builtin_longjmp(out->buffer, 1);
}

/* Calls with the pool, unless it has panicked; returns whether `call` was done. */
#define CALL(prv, call) ({                                              \
    struct way_out *out_ = &this_cpu(way_out);                          \
    bool done_ = false;                                                 \
    if ( !(prv)->parked )                                               \
    {                                                                   \
        if ( __builtin_setjmp(out_->buffer) == 0 )                      \
        {                                                               \
            out_->is_open = true;                                       \
            barrier();                                                  \
            (call);                                                     \
            barrier();                                                  \
            this_cpu(way_out).is_open = false;                          \
            done_ = true;                                               \
        }                                                               \
        else                                                            \
            park(prv);                                                  \
    }                                                                   \
    done_;                                                              \
})

static void noinline park(struct punctual_private *prv)
{
    unsigned int cpu;

    printk(XENLOG_ERR "punctual: the pool is parked, round robin from now on\n");
    prv->parked = true;
    for_each_cpu ( cpu, &prv->cpus )
        cpu_raise_softirq(cpu, SCHEDULE_SOFTIRQ);
}

/* Does what an answer asks for. */
static void follow(struct punctual_private *prv, const struct punctual_answer *then)
{
    unsigned int word, cpu;

    for ( word = 0; word < ARRAY_SIZE(then->resched.words); word++ )
    {
        uint64_t left = then->resched.words[word];

        while ( left )
        {
            cpu = word * 64 + __builtin_ctzll(left);
            left &= left - 1;
            if ( cpu < nr_cpu_ids && cpumask_test_cpu(cpu, &prv->cpus) )
                cpu_raise_softirq(cpu, SCHEDULE_SOFTIRQ);
        }
    }
    if ( then->next_timer_ns == prv->timer_ns || !prv->has_timer )
        return;
    prv->timer_ns = then->next_timer_ns;
    if ( then->next_timer_ns == PUNCTUAL_NEVER )
        stop_timer(&prv->timer);
    else
        set_timer(&prv->timer, then->next_timer_ns);
}

static int noinline call_insert(struct punctual_private *prv, const struct punctual_params *params,
                                uint32_t *number, struct punctual_text *why, struct punctual_answer *then)
{
    volatile int rc = -1;

    return CALL(prv, rc = punctual_insert(prv->pool, NOW(), params, number, why, then)) ? rc : 1;
}

static int noinline call_adjust(struct punctual_private *prv, uint32_t number,
                                const struct punctual_params *params, struct punctual_text *why,
                                struct punctual_answer *then)
{
    volatile int rc = -1;

    return CALL(prv, rc = punctual_adjust(prv->pool, NOW(), number, params, why, then)) ? rc : 1;
}

static void noinline call_remove(struct punctual_private *prv, uint32_t number)
{
    struct punctual_answer then;

    if ( CALL(prv, punctual_remove(prv->pool, NOW(), number, &then)) )
        follow(prv, &then);
}

static void noinline call_wake(struct punctual_private *prv, uint32_t number)
{
    struct punctual_answer then;

    if ( CALL(prv, punctual_wake(prv->pool, NOW(), number, &then)) )
        follow(prv, &then);
}

static void noinline call_sleep(struct punctual_private *prv, uint32_t number)
{
    struct punctual_answer then;

    if ( CALL(prv, punctual_sleep(prv->pool, NOW(), number, &then)) )
        follow(prv, &then);
}

static bool noinline call_pick(struct punctual_private *prv, unsigned int cpu, s_time_t now,
                               struct punctual_slice *slice)
{
    struct punctual_answer then;

    if ( !CALL(prv, punctual_pick(prv->pool, now, cpu, slice, &then)) )
        return false;
    follow(prv, &then);
    return true;
}

static void noinline call_timer(struct punctual_private *prv)
{
    struct punctual_answer then;

    if ( CALL(prv, punctual_timer(prv->pool, NOW(), &then)) )
        follow(prv, &then);
}

/* ---- parameters -------------------------------------------------------------------------------------- */

/* The processors on which the unit may run; `hard` is its affinity. */
static void affinity_of(const struct punctual_private *prv, const cpumask_t *hard,
                        struct punctual_processors *processors)
{
    unsigned int cpu;
    bool any = false;

    memset(processors, 0, sizeof(*processors));
    for_each_cpu ( cpu, &prv->cpus )
        if ( cpumask_test_cpu(cpu, hard) )
        {
            processors->words[cpu / 64] |= 1ULL << (cpu % 64);
            any = true;
        }
    /* Xen breaks such an affinity in a moment. */
    if ( !any )
        for_each_cpu ( cpu, &prv->cpus )
            processors->words[cpu / 64] |= 1ULL << (cpu % 64);
}

static void params_of(const struct punctual_private *prv, const struct punctual_unit *svc,
                      const cpumask_t *hard, struct punctual_params *params)
{
    memset(params, 0, sizeof(*params));
    params->given = PUNCTUAL_BUDGET | PUNCTUAL_PERIOD | PUNCTUAL_PRIORITY | PUNCTUAL_EXTRATIME |
                    PUNCTUAL_AFFINITY;
    params->budget_ns = svc->budget;
    params->period_ns = svc->period;
    /* Rate monotonic. */
    params->priority = min_t(s_time_t, svc->period / MICROSECS(1), INT_MAX);
    params->extratime = svc->extratime;
    affinity_of(prv, hard, &params->affinity);
}

/* Under the lock. Not 0: the policy refused them, and the unit has those that it had. */
static int tell(struct punctual_private *prv, struct punctual_unit *svc, const cpumask_t *hard)
{
    struct punctual_params params;
    struct punctual_answer then;
    struct punctual_text why;
    int rc;

    if ( svc->number == NO_UNIT || prv->parked )
        return 0;
    params_of(prv, svc, hard, &params);
    rc = call_adjust(prv, svc->number, &params, &why, &then);
    if ( rc > 0 )
        return 0;
    if ( rc < 0 )
        printk(XENLOG_WARNING "punctual: %pv: %s\n", svc->unit->vcpu_list, why.bytes);
    follow(prv, &then);
    return rc;
}

/* Under the lock: tells the policy of processors that came or went. */
static void refresh(struct punctual_private *prv)
{
    struct punctual_unit *svc;
    struct punctual_slice slice;
    unsigned int cpu;

    if ( likely(!prv->cpus_changed) )
        return;
    prv->cpus_changed = false;
    if ( cpumask_empty(&prv->cpus) )
        return;
    list_for_each_entry ( svc, &prv->units, list )
        tell(prv, svc, svc->unit->cpu_hard_affinity);
    for ( cpu = 0; cpu < nr_cpu_ids; cpu++ )
        if ( !cpumask_test_cpu(cpu, &prv->cpus) )
            call_pick(prv, cpu, NOW(), &slice);
}

/* ---- round robin ------------------------------------------------------------------------------------- */

static struct sched_unit *next_in_turn(struct punctual_private *prv, unsigned int cpu,
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

    if ( comma )
    {
        *comma = 0;
        strlcpy(policy_options.bytes, comma + 1, sizeof(policy_options.bytes));
    }
    strlcpy(policy_name.bytes, opt_policy, sizeof(policy_name.bytes));
    return punctual_version() == PUNCTUAL_VERSION ? 0 : -EINVAL;
}

static struct punctual_pool *noinline create(struct punctual_private *prv)
{
    static unsigned int pools, paid;
    struct punctual_pool *volatile pool = NULL;
    struct punctual_text why = { };
    unsigned long flags;
    size_t bytes = punctual_pool_bytes(nr_cpu_ids, opt_units);

    if ( pools++ >= paid )
    {
        unsigned int order = get_order_from_bytes(bytes);
        void *memory = alloc_xenheap_pages(order, 0);

        if ( !memory )
            return NULL;
        paid++;
        local_irq_save(flags);
        punctual_give(memory, PAGE_SIZE << order);
        local_irq_restore(flags);
    }
    local_irq_save(flags);
    (void)CALL(prv, pool = punctual_create(&policy_name, &policy_options, nr_cpu_ids, opt_units, &why));
    local_irq_restore(flags);
    if ( !pool )
        printk(XENLOG_ERR "punctual: %s\n", why.bytes);
    return pool;
}

static int cf_check punctual_init(struct scheduler *ops)
{
    struct punctual_private *prv = xzalloc(struct punctual_private);

    if ( !prv )
        return -ENOMEM;
    spin_lock_init(&prv->lock);
    INIT_LIST_HEAD(&prv->units);
    prv->timer_ns = PUNCTUAL_NEVER;
    prv->numbers = opt_units;
    prv->by_number = xzalloc_array(struct punctual_unit *, prv->numbers);
    prv->pool = prv->by_number ? create(prv) : NULL;
    if ( !prv->pool )
    {
        xfree(prv->by_number);
        xfree(prv);
        return -EINVAL;
    }
    printk("punctual: policy %s %s, at most %u units\n", policy_name.bytes, policy_options.bytes, opt_units);
    ops->sched_data = prv;
    return 0;
}

static void cf_check punctual_deinit(struct scheduler *ops)
{
    struct punctual_private *prv = private_of(ops);
    unsigned long flags;

    ops->sched_data = NULL;
    local_irq_save(flags);
    if ( !prv->parked )
        punctual_destroy(prv->pool);
    local_irq_restore(flags);
    xfree(prv->by_number);
    xfree(prv);
}

static spinlock_t *cf_check punctual_switch_sched(struct scheduler *ops, unsigned int cpu, void *pdata,
                                                  void *vdata)
{
    struct punctual_private *prv = private_of(ops);

    if ( !prv->has_timer )
    {
        init_timer(&prv->timer, timer_handler, ops, cpu);
        prv->has_timer = true;
    }
    cpumask_set_cpu(cpu, &prv->cpus);
    prv->cpus_changed = true;
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
    }
}

static void cf_check punctual_deinit_pdata(const struct scheduler *ops, void *pcpu, int cpu)
{
    struct punctual_private *prv = private_of(ops);
    unsigned long flags;

    spin_lock_irqsave(&prv->lock, flags);
    cpumask_clear_cpu(cpu, &prv->cpus);
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
    svc->budget = DEFAULT_BUDGET;
    svc->period = DEFAULT_PERIOD;
    svc->extratime = true;
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
    params_of(prv, svc, unit->cpu_hard_affinity, &params);
    rc = call_insert(prv, &params, &svc->number, &why, &then);
    if ( rc < 0 )
    {
        /* Below all others, rather than not at all. */
        printk(XENLOG_WARNING "punctual: %pv is below all others: %s\n", unit->vcpu_list, why.bytes);
        params.given |= PUNCTUAL_BEST_EFFORT;
        params.best_effort = 1;
        rc = call_insert(prv, &params, &svc->number, &why, &then);
    }
    if ( rc < 0 || (rc == 0 && svc->number >= prv->numbers) )
    {
        printk(XENLOG_ERR "punctual: %pv: %s\n", unit->vcpu_list, why.bytes);
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
        call_sleep(prv, svc->number);
}

static void cf_check punctual_wake_unit(const struct scheduler *ops, struct sched_unit *unit)
{
    struct punctual_private *prv = private_of(ops);
    struct punctual_unit *svc = punctual_unit(unit);
    unsigned int cpu;

    if ( !unit_runnable(unit) )
        return;
    if ( prv->parked )
    {
        for_each_cpu ( cpu, &prv->cpus )
            if ( cpumask_test_cpu(cpu, unit->cpu_hard_affinity) && is_idle_unit(curr_on_cpu(cpu)) )
                cpu_raise_softirq(cpu, SCHEDULE_SOFTIRQ);
    }
    else if ( svc->number != NO_UNIT )
        call_wake(prv, svc->number);
}

static void cf_check punctual_context_saved(const struct scheduler *ops, struct sched_unit *unit)
{
    struct punctual_unit *svc = punctual_unit(unit);
    spinlock_t *lock;

    if ( is_idle_unit(unit) )
        return;
    lock = unit_schedule_lock_irq(unit);
    if ( svc->wanted_by >= 0 )
    {
        cpu_raise_softirq(svc->wanted_by, SCHEDULE_SOFTIRQ);
        svc->wanted_by = -1;
    }
    unit_schedule_unlock_irq(lock, unit);
}

/* What the policy gives to `cpu`; the idle unit if that cannot run here now. */
static struct sched_unit *decide(struct punctual_private *prv, unsigned int cpu, s_time_t now,
                                 struct sched_unit *current_unit, s_time_t *length)
{
    struct punctual_slice slice;
    struct punctual_unit *svc;

    for ( ; ; )
    {
        if ( !call_pick(prv, cpu, now, &slice) )
            return NULL;
        prv->picks++;
        *length = slice.until_ns == PUNCTUAL_NEVER ? -1 : (s_time_t)slice.until_ns - now;
        if ( slice.run != PUNCTUAL_UNIT || slice.unit >= prv->numbers )
            return sched_idle_unit(cpu);
        svc = prv->by_number[slice.unit];
        if ( !svc )
            return sched_idle_unit(cpu);
        if ( svc->unit != current_unit && svc->unit->is_running )
        {
            /* Another processor has yet to leave it. */
            prv->waits++;
            svc->wanted_by = cpu;
            return sched_idle_unit(cpu);
        }
        if ( unit_runnable_state(svc->unit) )
            return svc->unit;
        call_sleep(prv, svc->number);
    }
}

static void cf_check punctual_do_schedule(const struct scheduler *ops, struct sched_unit *current_unit,
                                          s_time_t now, bool tasklet_work_scheduled)
{
    struct punctual_private *prv = private_of(ops);
    unsigned int cpu = sched_get_resource_cpu(smp_processor_id());
    struct sched_unit *next = NULL;
    s_time_t length = -1;

    prv->step_back = max(prv->step_back, prv->last_pick - now);
    prv->last_pick = now;
    refresh(prv);
    if ( !is_idle_unit(current_unit) && punctual_unit(current_unit)->number != NO_UNIT &&
         !unit_runnable_state(current_unit) )
        call_sleep(prv, punctual_unit(current_unit)->number);
    if ( !prv->parked )
        next = decide(prv, cpu, now, current_unit, &length);
    if ( !next )
    {
        next = next_in_turn(prv, cpu, current_unit);
        length = is_idle_unit(next) ? -1 : PARKED_SLICE;
    }
    if ( tasklet_work_scheduled )
    {
        next = sched_idle_unit(cpu);
        length = -1;
    }
    next->migrated = false;
    if ( !is_idle_unit(next) && sched_unit_master(next) != cpu )
    {
        sched_set_res(next, get_sched_res(cpu));
        next->migrated = true;
    }
    current_unit->next_time = length;
    current_unit->next_task = next;
}

static void cf_check punctual_adjust_affinity(const struct scheduler *ops, struct sched_unit *unit,
                                              const cpumask_t *hard, const cpumask_t *soft)
{
    if ( hard )
        tell(private_of(ops), punctual_unit(unit), hard);
}

/* Under the lock: gives a unit other parameters, or leaves it as it is. */
static int set_params(struct punctual_private *prv, struct punctual_unit *svc, s_time_t budget,
                      s_time_t period, bool extratime)
{
    struct punctual_unit before = *svc;

    svc->budget = budget;
    svc->period = period;
    svc->extratime = extratime;
    if ( tell(prv, svc, svc->unit->cpu_hard_affinity) == 0 )
        return 0;
    svc->budget = before.budget;
    svc->period = before.period;
    svc->extratime = before.extratime;
    return -EINVAL;
}

static int adjust_vcpu(struct punctual_private *prv, struct domain *d, uint32_t cmd,
                       struct xen_domctl_schedparam_vcpu *vcpu)
{
    struct punctual_unit *svc;
    unsigned long flags;
    int rc = 0;

    if ( vcpu->vcpuid >= d->max_vcpus || !d->vcpu[vcpu->vcpuid] )
        return -EINVAL;
    svc = punctual_unit(d->vcpu[vcpu->vcpuid]->sched_unit);
    spin_lock_irqsave(&prv->lock, flags);
    if ( cmd == XEN_DOMCTL_SCHEDOP_getvcpuinfo )
    {
        vcpu->u.rtds.budget = svc->budget / MICROSECS(1);
        vcpu->u.rtds.period = svc->period / MICROSECS(1);
        vcpu->u.rtds.flags = svc->extratime ? XEN_DOMCTL_SCHEDRT_extra : 0;
    }
    else
        rc = set_params(prv, svc, MICROSECS(vcpu->u.rtds.budget), MICROSECS(vcpu->u.rtds.period),
                        vcpu->u.rtds.flags & XEN_DOMCTL_SCHEDRT_extra);
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
            rc = rc ?: set_params(prv, punctual_unit(unit), MICROSECS(op->u.rtds.budget),
                                  MICROSECS(op->u.rtds.period), punctual_unit(unit)->extratime);
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

static void cf_check punctual_dump(const struct scheduler *ops)
{
    struct punctual_private *prv = private_of(ops);
    struct punctual_account account;
    struct punctual_unit *svc;
    unsigned long flags;

    spin_lock_irqsave(&prv->lock, flags);
    printk("punctual: %s %s%s, %"PRIu64" picks, %"PRIu64" waits for a processor to leave a unit, "
           "the clock went back by %"PRI_stime" ns at most\n", policy_name.bytes, policy_options.bytes,
           prv->parked ? ", parked" : "", prv->picks, prv->waits, prv->step_back);
    list_for_each_entry ( svc, &prv->units, list )
    {
        printk("  %pv on %u: budget %"PRI_stime" period %"PRI_stime"%s", svc->unit->vcpu_list,
               sched_unit_master(svc->unit), svc->budget, svc->period, svc->extratime ? " extra" : "");
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
    .dump_settings = punctual_dump,
};

REGISTER_SCHEDULER(sched_punctual_def);
