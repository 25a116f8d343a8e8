//! Credit: proportional share by credits, Xen's default scheduler for many years.
//!
//! Sources: Xen's `xen/common/sched/credit.c` (4.17) and `xen/common/sched_credit.c` (4.0); `vmm-io` s.3-4
//! (and its Table 1 for the switches). The option `rules` chooses whose defaults the others have: those of
//! today's Xen (`"xen"`), of Xen 4.0 (`"xen-4.0"`), which RT-Xen measured, or of the paper's text
//! (`"vmm-io"`).
//!
//! # Rules
//! - **State.** Each unit has credits and a state, BOOST before UNDER before OVER. Each processor has a run
//!   queue, FIFO within a state; with `sort`, units with more credits come first within a state (s.4.3). A
//!   waiting unit whose state a refill improves goes behind those that are in it already, one that becomes
//!   OVER before them, and one that is boosted no more keeps its place: Xen moves what is not OVER forward
//!   and keeps the order otherwise (`csched_runq_sort`, at the next tick of each processor; here at once).
//!   The home of a unit is the processor of its affinity with the fewest units when it is inserted.
//! - **Slice.** A unit that gets a processor keeps it for `slice`, unless it blocks or is preempted; then it
//!   goes behind the others in its state. In today's Xen `tick` follows `slice`: a third of it, or all of it
//!   below 3 ms, with a refill each slice (`__csched_set_tslice`).
//! - **Consumption.** With `charge = "tick"` (`vmm-io` s.3.1) it is sampled: at every `tick` the unit that is
//!   running (that ran up to the tick) pays `credits_per_tick`, and one that never runs at a tick never pays.
//!   With `"exact"` (Xen since 4.0.0, `burn_credits`) a unit pays for each nanosecond that it ran, at that
//!   rate; parts of a credit are carried over. A unit whose credits fall below zero is OVER.
//! - **Return.** Units that a tick has found running are *earning*. With `refill = "negative-sum"` (s.3.1)
//!   they get new credits when their credits add up to less than zero; with `"period"` (Xen) every
//!   `refill_ticks` ticks. A refill hands out the credits of `refill_ticks` ticks of every processor and the
//!   *deficit*, which is how far the sum was below zero after the last refill. Each unit gets a share in
//!   proportion to its weight: at most `refill_ticks` ticks' worth, plus its share of the deficit. What one
//!   unit may not take goes to those after it (`csched_acct`); who began to earn last comes first
//!   (`list_add`).
//! - **Bounds.** With `"period"` (Xen) a unit that a refill leaves with more than `refill_ticks` ticks' worth
//!   stops earning and keeps half of its credits, or none (`credits_kept`: Xen changed it with 4.1, since a
//!   unit that uses little flips between the two, and fell behind the others each time); no unit owes more
//!   than `refill_ticks` ticks' worth either. With `"negative-sum"` every unit starts with that much, and one
//!   that is asleep keeps that much at most and stops earning: the paper gives credits to all domains and
//!   names no bounds, but without a bound a sleeper would collect ever more. Busy units have none, since
//!   bounds distort shares (with Xen's, weights of 1:1:14 come out as 9:9:82 percent).
//! - **State changes.** The states are recomputed at a refill, UNDER from 0 credits on, which also ends
//!   boosts; with `"negative-sum"` a tick also turns its unit OVER as soon as its credits are negative, since
//!   otherwise hardly any would be at a refill.
//! - **Boost.** With `boost`, a unit that wakes while UNDER enters BOOST; the next tick that finds it running
//!   puts it back to UNDER.
//! - **Tickle.** A woken unit takes its home processor if that is idle, else any idle one (with `steal`),
//!   else, with `tickle`, it preempts its home's unit if that is in a worse state. Without `tickle` it waits
//!   until that processor schedules of itself (s.4.2). A change of state alone preempts no unit.
//! - **Ratelimit** (Xen since 4.2; 0 is off): a preempted unit first runs this long.
//! - **Steal.** A processor about to idle or to run an OVER unit first looks at the others, from its right
//!   neighbour on, for a waiting unit in a better state; taking it makes it the unit's home. The queue of an
//!   idle processor is left to it, and what it then leaves waiting is offered to the idle ones. Xen's load
//!   balancing by stealing has always been there; its choice of a better processor at ticks is not modelled.
//! - **Cap** (with `"period"` only: it limits credits per time). A unit with a cap earns at most that
//!   percentage of a processor; at a refill that leaves it below minus its cap it is parked until a refill
//!   leaves it with 0 credits or more. Leaving the park does not boost.
//! - **Ties** are first come, first served. New parameters take effect at once.
//!
//! A vCPU is a unit with a weight of its own; the description of a host shares a domain's weight among its
//! vCPUs. The event-channel fix of s.4.1 belongs to the driver domain, not to a scheduler. Ticks
//! stop while a processor idles and then begin at a multiple of `tick`, as in Xen (`csched_schedule`);
//! refills by period stop while no unit earns. With `ticks = "drifting"` the next tick or refill comes one
//! step after the last was handled, as in Xen (`NOW() + tick`), so a late timer moves all that follow; with
//! `"aligned"` all fall on multiples. `rt-xen` s.5.5 runs Credit at 1 ms: set `slice`, or `slice` and `tick`.

use alloc::collections::VecDeque;
use core::cmp::{Ordering, Reverse};

use crate::affinity::Affinities;
use crate::heap::IndexedHeap;
use crate::homes::Homes;
use crate::pairing::PairingHeaps;
use crate::prelude::*;
use crate::ranking::rank;
use crate::slots::Slots;

/// Its name in host files and on the command line.
pub const NAME: &str = "credit";

/// What the registry says about this policy.
pub const INFO: PolicyInfo = PolicyInfo {
    name: NAME,
    summary: "proportional share by credits with boost, tickle and sort; Xen's Credit",
    source: "Ongaro et al. VEE 2008 s.3-4, Table 1; Xen xen/common/sched/credit.c",
    unit_params: &[WEIGHT, CAP_PERCENT],
    options: &[
        RULES,
        SLICE,
        TICK,
        TICKS,
        CREDITS_PER_TICK,
        CHARGE,
        REFILL,
        REFILL_TICKS,
        CREDITS_KEPT,
        BOOST,
        TICKLE,
        SORT,
        RATELIMIT,
        STEAL,
    ],
    work_conservation: WorkConservation::WithinBudget,
    shared_queue: false,
    placement: Placement::Global,
    budgets: Budgets::None,
    sleep_matters: |_| true,
    has_timers: true,
    test: SchedulabilityTest::None(
        "no guarantee: Credit shares time by weight over its accounting periods and promises no amount \
         within any shorter interval",
    ),
    linux: OnLinux::without_budgets(
        LinuxClass::Fair,
        Some("Linux's fair class takes weights and caps, but not Credit's boost and slices"),
    ),
    xen: Some(XenScheduler::Credit),
    construct: |cpus, options| Ok(Box::new(Credit::new(cpus, Settings::new(options)?))),
};

/// The word of [`RULES`] for today's Xen.
pub const XEN: &str = "xen";

/// The word of [`RULES`] for Xen 4.0.
pub const XEN_4_0: &str = "xen-4.0";

/// The word of [`RULES`] for the text of `vmm-io`.
pub const VMM_IO: &str = "vmm-io";

/// The word of [`REFILL`] for the paper's rule: when all credits add up to less than zero.
pub const NEGATIVE_SUM: &str = "negative-sum";

/// The word of [`REFILL`] for Xen's rule: periodically.
pub const BY_PERIOD: &str = "period";

/// The word of [`CHARGE`] for sampling: who runs at a tick pays for all of it.
pub const AT_TICKS: &str = "tick";

/// The word of [`CHARGE`] for time stamps: each unit pays for what it ran.
pub const EXACT: &str = "exact";

/// The word of [`CREDITS_KEPT`] for half of them.
pub const HALF: &str = "half";

/// The word of [`CREDITS_KEPT`] for none.
pub const NO_CREDITS: &str = "none";

/// The word of [`TICKS`] for multiples of the tick.
pub const ALIGNED: &str = "aligned";

/// The word of [`TICKS`] for one tick after the last was handled.
pub const DRIFTING: &str = "drifting";

/// The parameter `weight`.
pub const WEIGHT: ParamInfo = ParamInfo {
    name: UnitParams::WEIGHT,
    kind: ParamKind::Count { min: 1, max: WEIGHT_MAX as u64 },
    default: Some(ParamDefault::Value(OptionValue::Count(WEIGHT_DEFAULT as u64))),
    help: "share in proportion to the others' weights",
};

/// The parameter `cap_percent`.
pub const CAP_PERCENT: ParamInfo = ParamInfo {
    name: UnitParams::CAP_PERCENT,
    kind: ParamKind::Count { min: 0, max: 100 },
    default: Some(ParamDefault::Value(OptionValue::Count(0))),
    help: "at most this much of one processor, with refill = \"period\"; 0: no limit",
};

/// The option `rules`.
pub const RULES: ParamInfo = ParamInfo {
    name: "rules",
    kind: ParamKind::Choice(&[XEN, XEN_4_0, VMM_IO]),
    default: Some(ParamDefault::Value(OptionValue::Word(XEN))),
    help: "whose defaults the other options have: today's Xen, Xen 4.0, or the paper of 2008",
};

/// The option `slice`.
pub const SLICE: ParamInfo = ParamInfo {
    name: "slice",
    kind: ParamKind::Duration,
    default: Some(ParamDefault::Value(OptionValue::Duration(Duration::from_ms(30)))),
    help: "how long a unit keeps the processor",
};

/// The option `tick`.
pub const TICK: ParamInfo = ParamInfo {
    name: "tick",
    kind: ParamKind::Duration,
    default: Some(ParamDefault::Words("a third of slice, all of it below 3ms; older rules: 10ms")),
    help: "how often the running unit is charged, or with charge = \"exact\" found to be earning",
};

/// The option `ticks`.
pub const TICKS: ParamInfo = ParamInfo {
    name: "ticks",
    kind: ParamKind::Choice(&[ALIGNED, DRIFTING]),
    default: Some(ParamDefault::Words("drifting; vmm-io: aligned")),
    help: "on multiples of tick, or one tick after the last was handled",
};

/// The option `credits_per_tick`.
pub const CREDITS_PER_TICK: ParamInfo = ParamInfo {
    name: "credits_per_tick",
    kind: ParamKind::Count { min: 1, max: 1_000_000 },
    default: Some(ParamDefault::Value(OptionValue::Count(100))),
    help: "what a unit pays for a tick",
};

/// The option `charge`.
pub const CHARGE: ParamInfo = ParamInfo {
    name: "charge",
    kind: ParamKind::Choice(&[AT_TICKS, EXACT]),
    default: Some(ParamDefault::Words("exact with refill = \"period\", else tick")),
    help: "a unit pays for what it ran, or when a tick finds it running",
};

/// The option `refill`.
pub const REFILL: ParamInfo = ParamInfo {
    name: "refill",
    kind: ParamKind::Choice(&[NEGATIVE_SUM, BY_PERIOD]),
    default: Some(ParamDefault::Words("period; vmm-io: negative-sum")),
    help: "new credits periodically, or when all add up to less than zero",
};

/// The option `refill_ticks`.
pub const REFILL_TICKS: ParamInfo = ParamInfo {
    name: "refill_ticks",
    kind: ParamKind::Count { min: 1, max: 1000 },
    default: Some(ParamDefault::Words("3, and 1 where tick is slice by default")),
    help: "ticks' worth of credits per refill and processor, and the period of refill = \"period\"",
};

/// The option `credits_kept`.
pub const CREDITS_KEPT: ParamInfo = ParamInfo {
    name: "credits_kept",
    kind: ParamKind::Choice(&[HALF, NO_CREDITS]),
    default: Some(ParamDefault::Words("half; xen-4.0: none")),
    help: "what a unit with too many keeps when it stops earning, with refill = \"period\"",
};

/// The option `boost`.
pub const BOOST: ParamInfo = ParamInfo {
    name: "boost",
    kind: ParamKind::Flag,
    default: Some(ParamDefault::Value(OptionValue::Flag(true))),
    help: "units that wake while UNDER go before all others until a tick finds them running",
};

/// The option `tickle`.
pub const TICKLE: ParamInfo = ParamInfo {
    name: "tickle",
    kind: ParamKind::Flag,
    default: Some(ParamDefault::Value(OptionValue::Flag(true))),
    help: "a woken unit in a better state preempts at once",
};

/// The option `sort`.
pub const SORT: ParamInfo = ParamInfo {
    name: "sort",
    kind: ParamKind::Flag,
    default: Some(ParamDefault::Value(OptionValue::Flag(false))),
    help: "order the run queue by credits within a state",
};

/// The option `ratelimit`.
pub const RATELIMIT: ParamInfo = ParamInfo {
    name: "ratelimit",
    kind: ParamKind::Duration,
    default: Some(ParamDefault::Words("1ms; older rules: 0")),
    help: "a unit is not preempted before it ran this long",
};

/// The option `steal`.
pub const STEAL: ParamInfo = ParamInfo {
    name: "steal",
    kind: ParamKind::Flag,
    default: Some(ParamDefault::Value(OptionValue::Flag(true))),
    help: "processors without work in a good state take it from others",
};

/// The weight of a unit for which none is given.
pub const WEIGHT_DEFAULT: u32 = 256;

/// Xen keeps weights in 16 bits; it also bounds every product below.
const WEIGHT_MAX: u32 = u16::MAX as u32;
const NONE: u32 = u32::MAX;

/// No unit owes more: it bounds the sum of as many units as there can be.
const CREDITS_MAX: i64 = i64::MAX >> 32;

/// What these options say of the slice and the ratelimit, the two that Xen can be told
/// (`XEN_SYSCTL_SCHEDOP_putinfo`).
pub fn slice_and_ratelimit(options: &Options) -> (Duration, Duration) {
    (options.duration(&SLICE), given_duration(options, &RATELIMIT, Rules::new(options).ratelimit))
}

/// A duration whose default depends on other options.
fn given_duration(options: &Options, option: &ParamInfo, default: Duration) -> Duration {
    match options.get(option.name) {
        Some(OptionValue::Duration(given)) => given,
        _ => default,
    }
}

/// The policy's options; see the module's rules.
#[derive(Clone, Debug)]
pub struct Settings {
    slice: Duration,
    tick: Duration,
    ticks_drift: bool,
    credits_per_tick: i64,
    charge_exactly: bool,
    by_period: bool,
    refill_ticks: i64,
    keep_half: bool,
    boost: bool,
    tickle: bool,
    sort: bool,
    ratelimit: Duration,
    steal: bool,
}

impl Settings {
    /// Reads the options.
    ///
    /// # Errors
    /// When `slice` or `tick` is zero.
    pub fn new(options: &Options) -> Result<Self, OptionError> {
        for option in [SLICE.name, TICK.name] {
            if options.get(option) == Some(OptionValue::Duration(Duration::ZERO)) {
                return Err(OptionError { option, expected: "longer than zero".into() });
            }
        }
        let rules = Rules::new(options);
        let word = |option: &ParamInfo, default| match options.get(option.name) {
            Some(OptionValue::Word(word)) => word,
            _ => default,
        };
        let by_period = word(&REFILL, rules.refill) == BY_PERIOD;
        let charge = word(&CHARGE, if by_period { EXACT } else { AT_TICKS });
        let refill_ticks = match options.get(REFILL_TICKS.name) {
            Some(OptionValue::Count(given)) => given,
            _ => rules.refill_ticks,
        };
        Ok(Settings {
            slice: options.duration(&SLICE),
            tick: given_duration(options, &TICK, rules.tick),
            ticks_drift: word(&TICKS, rules.ticks) == DRIFTING,
            credits_per_tick: options.count(&CREDITS_PER_TICK) as i64,
            charge_exactly: charge == EXACT,
            by_period,
            refill_ticks: refill_ticks as i64,
            keep_half: word(&CREDITS_KEPT, rules.credits_kept) == HALF,
            boost: options.flag(&BOOST),
            tickle: options.flag(&TICKLE),
            sort: options.flag(&SORT),
            ratelimit: given_duration(options, &RATELIMIT, rules.ratelimit),
            steal: options.flag(&STEAL),
        })
    }

    /// Credits of one processor for one refill; also the most a unit may have or owe.
    fn credits_per_refill(&self) -> i64 {
        self.credits_per_tick * self.refill_ticks
    }

    /// What a unit has at first.
    fn credits_at_first(&self) -> i64 {
        if self.by_period { 0 } else { self.credits_per_refill() }
    }

    /// What a unit keeps that stops earning with so many.
    fn credits_kept(&self, credits: i64) -> i64 {
        match self.by_period {
            true if self.keep_half => credits / 2,
            true => 0,
            false => self.credits_per_refill(),
        }
    }

    fn refill_period(&self) -> Duration {
        self.tick * self.refill_ticks as u64
    }

    /// When what is handled now and comes every `step` comes again.
    fn again(&self, now: Instant, step: Duration) -> Instant {
        if self.ticks_drift { now + step } else { next_multiple(now, step) }
    }
}

/// What [`RULES`] sets for options that are not given.
struct Rules {
    refill: &'static str,
    ticks: &'static str,
    credits_kept: &'static str,
    ratelimit: Duration,
    tick: Duration,
    refill_ticks: u64,
}

impl Rules {
    /// Ticks of a slice (`CSCHED_TICKS_PER_TSLICE`), and the tick of Xen while it followed no slice.
    const TICKS_PER_SLICE: u64 = 3;
    const TICK: Duration = Duration::from_ms(10);

    fn new(options: &Options) -> Self {
        let (is_xen, is_paper) = (options.word(&RULES) == XEN, options.word(&RULES) == VMM_IO);
        let slice = options.duration(&SLICE);
        let has_tick = options.get(TICK.name).is_some();
        let is_short = is_xen && !has_tick && slice < Duration::from_ms(Self::TICKS_PER_SLICE);
        let refill_ticks = if is_short { 1 } else { Self::TICKS_PER_SLICE };
        let of_slice = Duration::from_ns(slice.as_ns().div_ceil(refill_ticks));
        Rules {
            refill: if is_paper { NEGATIVE_SUM } else { BY_PERIOD },
            ticks: if is_paper { ALIGNED } else { DRIFTING },
            credits_kept: if options.word(&RULES) == XEN_4_0 { NO_CREDITS } else { HALF },
            ratelimit: if is_xen { Duration::from_ms(1) } else { Duration::ZERO },
            tick: if is_xen { of_slice } else { Self::TICK },
            refill_ticks,
        }
    }
}

/// In the order in which they run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
enum State {
    Boost,
    Under,
    #[default]
    Over,
}

/// State and with `sort` credits in one number, then its place among those: small, since heaps copy it.
type Key = (u64, Place);

/// Where a waiting unit stands in its state.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
struct Place {
    /// When it came into the state, counted in arrivals; negative where a refill made its state worse, since
    /// it stays before those whose state that is.
    since: i64,
    /// The same of its state before: a refill keeps the order of those that it moves together.
    before: i64,
}

impl Place {
    /// Behind all that have arrived.
    fn last(arrivals: u64) -> Self {
        Place { since: arrivals as i64, before: 0 }
    }
}

#[derive(Debug)]
struct CreditUnit {
    weight: u32,
    cap_percent: u32,
    credits: i64,
    /// What it ran and has not paid for, in nanoseconds times the credits of a tick: less than one credit.
    unpaid: u64,
    state: State,
    /// Index of its affinity.
    class: u32,
    home: CpuId,
    /// Processor that the last pick gave it, or `NONE`.
    cpu: u32,
    place: Place,
    slice_left: Duration,
    /// How long it has run since it got its processor.
    ran: Duration,
    /// Has it work? Set by `wake`, cleared by `sleep`, checked wherever it would be queued.
    awake: bool,
    /// Does it earn credits? Set by a tick that finds it running, cleared by a refill that leaves it with too
    /// many, checked by ticks.
    earning: bool,
    /// Is it over its cap? Set and cleared by refills (and when the cap is lifted), checked wherever it would
    /// be queued.
    parked: bool,
    /// Is it present? Cleared while its id is free.
    present: bool,
    exhaustions: u64,
    replenishments: u64,
}

#[derive(Clone, Debug)]
struct Processor {
    /// The unit that the last pick gave it, or `NONE`.
    unit: u32,
    /// Has that unit work, and is it not parked? Otherwise the processor idles or is about to pick.
    busy: bool,
    /// Shall the next pick end the slice? Set by `tickle`, cleared by the pick that does.
    preempt: bool,
    /// The unit for which it was called out of idleness, or `NONE`; set by `tickle`, cleared by `pick`.
    called_for: u32,
}

/// The policy; see the module's rules.
#[derive(Debug)]
pub struct Credit {
    settings: Settings,
    units: Slots<CreditUnit>,
    affinities: Affinities,
    /// One heap per affinity and home: `class * cpus + home`.
    queues: PairingHeaps<Key>,
    processors: Vec<Processor>,
    /// How many processors are not busy.
    idle: usize,
    /// How many units live on each processor.
    homes: Homes<u64>,
    arrivals: u64,
    /// How many refills there were, and how many arrivals before the last one.
    refills: i64,
    arrivals_refilled: u64,
    /// The earning units in the order of the next refill, their weights and credits added up.
    earning: VecDeque<UnitId>,
    earning_weight: i64,
    balance: i64,
    /// What they added up to after the last refill.
    balance_refilled: i64,
    /// Units that the next refill serves first; empty between refills.
    served_first: Vec<UnitId>,
    /// Next tick of each processor that is not idle; under `cpus`, the next refill by period.
    timers: IndexedHeap<Instant>,
}

/// `a / b` rounded up, for `a >= 0`, `b > 0`.
fn div_up(a: i64, b: i64) -> i64 {
    (a + b - 1) / b
}

/// The first multiple of `step` after `now`.
fn next_multiple(now: Instant, step: Duration) -> Instant {
    Instant::ZERO + step * (now.since(Instant::ZERO).div_floor(step) + 1)
}

/// The unit's [`WEIGHT`], checked.
pub(crate) fn weight(params: &UnitParams) -> Result<u32, ParamError> {
    let weight = params.weight.unwrap_or(WEIGHT_DEFAULT);
    require((1..=WEIGHT_MAX).contains(&weight), UnitParams::WEIGHT, || {
        alloc::format!("between 1 and {WEIGHT_MAX}").into()
    })?;
    Ok(weight)
}

fn validate(settings: &Settings, params: &UnitParams) -> Result<(u32, u32), ParamError> {
    let (weight, cap) = (weight(params)?, params.cap_percent.unwrap_or(0));
    require(cap <= 100, UnitParams::CAP_PERCENT, || "between 0 (no cap) and 100".into())?;
    require(cap == 0 || settings.by_period, UnitParams::CAP_PERCENT, || {
        "0 unless the policy's option is refill = \"period\"".into()
    })?;
    Ok((weight, cap))
}

impl Credit {
    /// A pool of `cpus` processors without units.
    pub fn new(cpus: usize, settings: Settings) -> Self {
        let idle = Processor { unit: NONE, busy: false, preempt: false, called_for: NONE };
        Credit {
            settings,
            units: Slots::new(),
            affinities: Affinities::new(cpus),
            queues: PairingHeaps::new(0),
            processors: alloc::vec![idle; cpus],
            idle: cpus,
            homes: Homes::new(cpus),
            arrivals: 0,
            refills: 0,
            arrivals_refilled: 0,
            earning: VecDeque::new(),
            earning_weight: 0,
            balance: 0,
            balance_refilled: 0,
            served_first: Vec::new(),
            timers: IndexedHeap::new(cpus + 1),
        }
    }

    fn cpus(&self) -> usize {
        self.processors.len()
    }

    fn join_class(&mut self, cpus: CpuSet) -> u32 {
        let class = self.affinities.join(cpus);
        self.queues.grow_heaps(self.affinities.len() * self.cpus());
        class
    }

    /// Puts the unit into its home's queue, or to its new place there.
    fn queue(&mut self, unit: UnitId) {
        let state = &self.units[unit.index()];
        let credits = if self.settings.sort { state.credits } else { 0 };
        let heap = state.class as usize * self.processors.len() + state.home.index();
        // Credits are far below 2^60.
        let rank = ((state.state as u64) << 62) + (1u64 << 61).wrapping_add_signed(-credits);
        self.queues.set(heap, unit.index(), (rank, state.place));
    }

    /// The unit joins its home's queue behind the others in its state.
    fn arrive(&mut self, unit: UnitId) {
        self.arrivals += 1;
        self.units[unit.index()].place = Place::last(self.arrivals);
        self.queue(unit);
    }

    /// The first unit in the queue of `home` that may run on `cpu`.
    #[inline]
    fn head(&self, home: CpuId, cpu: CpuId) -> Option<UnitId> {
        let mut best: Option<(usize, Key)> = None;
        for &class in self.affinities.serving(cpu) {
            let heap = class as usize * self.processors.len() + home.index();
            if let Some((id, &key)) = self.queues.peek(heap)
                && best.is_none_or(|(_, least)| key < least)
            {
                best = Some((id, key));
            }
        }
        best.map(|(id, _)| UnitId(id as u32))
    }

    /// A unit in a better state than `than` that waits for another processor.
    fn find_to_steal(&self, cpu: CpuId, than: Option<State>) -> Option<UnitId> {
        let (own, cpus) = (cpu.index(), self.cpus());
        for peer in (own + 1..cpus).chain(0..own) {
            // An idle processor with a queue is about to take from it.
            if !self.processors[peer].busy {
                continue;
            }
            if let Some(unit) = self.head(CpuId(peer as u32), cpu)
                && than.is_none_or(|state| self.units[unit.index()].state < state)
            {
                return Some(unit);
            }
        }
        None
    }

    /// Is `unit` a waiting unit in a better state than `than` that may run on `cpu`?
    fn waits_for(&self, unit: u32, cpu: CpuId, than: Option<State>) -> bool {
        if unit == NONE || !self.queues.contains(unit as usize) {
            return false;
        }
        let unit = &self.units[unit as usize];
        self.affinities.cpus(unit.class).contains(cpu) && than.is_none_or(|state| unit.state < state)
    }

    fn set_busy(&mut self, cpu: CpuId, busy: bool) {
        let processor = &mut self.processors[cpu.index()];
        self.idle = self.idle + usize::from(processor.busy) - usize::from(busy);
        processor.busy = busy;
    }

    /// The waiting unit asks for a processor.
    fn tickle(&mut self, unit: UnitId, resched: &mut CpuSet) {
        let state = &self.units[unit.index()];
        let home = &self.processors[state.home.index()];
        if !home.busy && home.called_for == NONE {
            self.call(state.home, unit, resched);
        } else if let Some(cpu) = self.idle_processor_for(unit) {
            self.call(cpu, unit, resched);
        } else if self.settings.tickle && home.busy && state.state < self.units[home.unit as usize].state {
            let home = state.home;
            self.processors[home.index()].preempt = true;
            resched.insert(home);
        }
    }

    fn call(&mut self, cpu: CpuId, unit: UnitId, resched: &mut CpuSet) {
        self.processors[cpu.index()].called_for = unit.0;
        resched.insert(cpu);
    }

    fn idle_processor_for(&self, unit: UnitId) -> Option<CpuId> {
        if self.idle == 0 || !self.settings.steal {
            return None;
        }
        let state = &self.units[unit.index()];
        let (home, cpus) = (state.home.index(), self.affinities.cpus(state.class));
        let others = (home + 1..self.cpus()).chain(0..home);
        others.map(|cpu| CpuId(cpu as u32)).find(|&cpu| {
            let processor = &self.processors[cpu.index()];
            !processor.busy && processor.called_for == NONE && cpus.contains(cpu)
        })
    }

    /// The unit has work and is not parked: it joins a queue, or goes on where it still is.
    fn start(&mut self, unit: UnitId, resched: &mut CpuSet) {
        match self.units[unit.index()].cpu {
            NONE => {
                self.arrive(unit);
                self.tickle(unit, resched);
            }
            cpu => {
                // Others left its queue to it while it was about to pick.
                self.set_busy(CpuId(cpu), true);
                self.offer(CpuId(cpu), resched);
            }
        }
    }

    /// The unit has no work any more or is parked.
    fn stop(&mut self, unit: UnitId, resched: &mut CpuSet) {
        match self.units[unit.index()].cpu {
            NONE => self.queues.remove(unit.index()),
            cpu => {
                self.set_busy(CpuId(cpu), false);
                resched.insert(CpuId(cpu));
            }
        }
    }

    /// How long the current unit of `cpu` may stay there, if it may.
    #[inline]
    fn hold(&self, cpu: CpuId) -> Option<Duration> {
        let processor = &self.processors[cpu.index()];
        if !processor.busy {
            return None;
        }
        let unit = &self.units[processor.unit as usize];
        if unit.home != cpu {
            return None;
        }
        let protected = self.settings.ratelimit.saturating_sub(unit.ran);
        let hold = if processor.preempt { protected } else { protected.max(unit.slice_left) };
        (!hold.is_zero()).then_some(hold)
    }

    /// Takes the current unit from `cpu`; returns it if it wants to go on.
    fn release(&mut self, cpu: CpuId) -> Option<UnitId> {
        let processor = &mut self.processors[cpu.index()];
        processor.preempt = false;
        let unit = core::mem::replace(&mut processor.unit, NONE);
        if unit == NONE {
            return None;
        }
        self.units[unit as usize].cpu = NONE;
        if !self.processors[cpu.index()].busy {
            return None;
        }
        self.set_busy(cpu, false);
        self.arrive(UnitId(unit));
        Some(UnitId(unit))
    }

    /// The next unit for `cpu`: from its own queue, or from another's if that holds a better state, if only
    /// the unit that it was called for.
    fn choose(&self, cpu: CpuId, called_for: u32) -> Option<UnitId> {
        let own = self.head(cpu, cpu);
        let state = own.map(|unit| self.units[unit.index()].state);
        if self.settings.steal && state.is_none_or(|state| state == State::Over) {
            let called = Some(called_for).filter(|&unit| self.waits_for(unit, cpu, state)).map(UnitId);
            let better = self.find_to_steal(cpu, state).or(called);
            if better.is_some() {
                return better;
            }
        }
        own
    }

    /// Gives `cpu` to the unit; `before` is the unit that just gave it up.
    fn give(&mut self, cpu: CpuId, unit: UnitId, before: Option<UnitId>) {
        self.queues.remove(unit.index());
        self.processors[cpu.index()].unit = unit.0;
        self.set_busy(cpu, true);
        let state = &mut self.units[unit.index()];
        if state.home != cpu {
            self.homes.leave(state.home, 1);
            self.homes.settle_on(cpu, 1);
            state.home = cpu;
        }
        state.cpu = cpu.0;
        state.slice_left = self.settings.slice;
        if before != Some(unit) {
            state.ran = Duration::ZERO;
        }
    }

    /// What waits in the queue of a busy `home` may find an idle processor elsewhere.
    fn offer(&mut self, home: CpuId, resched: &mut CpuSet) {
        if self.idle == 0 || !self.processors[home.index()].busy {
            return;
        }
        for at in 0..self.affinities.serving(home).len() {
            let class = self.affinities.serving(home)[at] as usize;
            if let Some((id, _)) = self.queues.peek(class * self.cpus() + home.index())
                && let Some(idle) = self.idle_processor_for(UnitId(id as u32))
            {
                self.call(idle, UnitId(id as u32), resched);
            }
        }
    }

    /// Ticks run while the processor does.
    fn arm_tick(&mut self, cpu: CpuId, now: Instant) {
        if self.processors[cpu.index()].unit == NONE {
            self.timers.remove(cpu.index());
        } else if !self.timers.contains(cpu.index()) {
            self.timers.set(cpu.index(), next_multiple(now, self.settings.tick));
        }
    }

    /// The unit that ran up to the tick pays.
    fn tick(&mut self, now: Instant, cpu: CpuId, resched: &mut CpuSet) {
        self.timers.set(cpu.index(), self.settings.again(now, self.settings.tick));
        let unit = self.processors[cpu.index()].unit;
        if unit == NONE {
            return;
        }
        self.start_earning(now, UnitId(unit));
        let state = &mut self.units[unit as usize];
        if state.state == State::Boost {
            state.state = State::Under;
        }
        if !self.settings.charge_exactly {
            state.credits -= self.settings.credits_per_tick;
            self.balance -= self.settings.credits_per_tick;
        }
        if self.settings.by_period {
            return;
        }
        if state.credits < 0 && state.state != State::Over {
            state.state = State::Over;
            state.exhaustions += 1;
        }
        if self.balance < 0 {
            self.refill(resched);
        }
    }

    /// The unit pays for what it ran, by time stamps.
    fn burn_credits(&mut self, unit: UnitId, ran: Duration) {
        let (rate, tick) = (self.settings.credits_per_tick as u64, self.settings.tick.as_ns());
        let state = &mut self.units[unit.index()];
        let due = ran.as_ns().checked_mul(rate).and_then(|due| due.checked_add(state.unpaid));
        let paid = match due {
            Some(due) => {
                state.unpaid = due % tick;
                due / tick
            }
            None => {
                let due = u128::from(ran.as_ns()) * u128::from(rate) + u128::from(state.unpaid);
                state.unpaid = (due % u128::from(tick)) as u64;
                (due / u128::from(tick)).min(CREDITS_MAX as u128) as u64
            }
        };
        let after = (state.credits - paid.min(CREDITS_MAX as u64) as i64).max(-CREDITS_MAX);
        if state.earning {
            self.balance -= state.credits - after;
        }
        state.credits = after;
    }

    fn start_earning(&mut self, now: Instant, unit: UnitId) {
        let state = &mut self.units[unit.index()];
        if core::mem::replace(&mut state.earning, true) {
            return;
        }
        self.earning.push_front(unit);
        self.earning_weight += i64::from(state.weight);
        self.balance += state.credits;
        let id = self.cpus();
        if self.settings.by_period && !self.timers.contains(id) {
            self.timers.set(id, next_multiple(now, self.settings.refill_period()));
        }
    }

    fn stop_earning(&mut self, unit: UnitId) {
        let state = &mut self.units[unit.index()];
        if core::mem::replace(&mut state.earning, false) {
            self.earning_weight -= i64::from(state.weight);
            self.balance -= state.credits;
        }
    }

    /// Hands out credits as Xen's `csched_acct`, with each unit as a domain of one vCPU.
    fn refill(&mut self, resched: &mut CpuSet) {
        // Newcomers of the state that a refill gives come behind those that are in it.
        self.arrivals += 1;
        self.refills += 1;
        let weights = self.earning_weight;
        let share = self.settings.credits_per_refill();
        let all = share * self.cpus() as i64;
        // No product below overflows, whatever is owed.
        let deficit = (-self.balance_refilled).min(i64::MAX / 4 / weights.max(1) - all).max(0);
        let mut total = all + deficit;
        let (mut weights_left, mut spare, mut kept, mut at_rest) = (weights, false, 0, 0);
        // Divided once for a row of units of the same weight: their weight, `total`, most and fair share.
        let mut divided = None;
        for at in 0..self.earning.len() {
            let unit = self.earning[at];
            let state = &self.units[unit.index()];
            let weight = i64::from(state.weight);
            weights_left -= weight;
            let known = divided.filter(|known: &(i64, i64, i64, i64)| (known.0, known.1) == (weight, total));
            let (_, _, mut most, fair) = known.unwrap_or_else(|| {
                let most = share + div_up(deficit * weight, weights);
                (weight, total, most, div_up(total * weight, weights))
            });
            divided = Some((weight, total, most, fair));
            if state.cap_percent > 0 {
                most = most.min(self.cap(state.cap_percent));
            }
            let full = fair >= most;
            if full && weights_left > 0 {
                total += div_up((fair - most) * weights, weights_left);
            }
            self.earn(unit, fair.min(most), resched);
            if self.units[unit.index()].earning {
                // What a full unit leaves over goes to those after it: next time it comes first.
                if full && spare {
                    self.served_first.push(unit);
                } else {
                    self.earning[kept] = unit;
                    kept += 1;
                }
            } else if self.settings.by_period {
                at_rest += self.units[unit.index()].credits;
            }
            spare |= !full;
        }
        self.earning.truncate(kept);
        for unit in self.served_first.drain(..) {
            self.earning.push_front(unit);
        }
        self.balance_refilled = self.balance + at_rest;
        self.arrivals_refilled = self.arrivals;
    }

    /// Credits per refill for this cap.
    fn cap(&self, percent: u32) -> i64 {
        div_up(i64::from(percent) * self.settings.credits_per_refill(), 100)
    }

    /// The unit gets its part of a refill.
    fn earn(&mut self, unit: UnitId, credits: i64, resched: &mut CpuSet) {
        let most = self.settings.credits_per_refill();
        let state = &mut self.units[unit.index()];
        state.replenishments += 1;
        state.credits += credits;
        self.balance += credits;
        let owed = -state.credits;
        let was = state.state;
        state.state = if owed > 0 { State::Over } else { State::Under };
        if was != State::Over && state.state == State::Over {
            state.exhaustions += 1;
        }
        let may_owe = if self.settings.by_period { most } else { i64::MAX };
        if owed > may_owe {
            state.credits = -may_owe;
            self.balance += owed - may_owe;
        } else if -owed > most && (self.settings.by_period || !state.awake) {
            self.stop_earning(unit);
            self.units[unit.index()].credits = self.settings.credits_kept(-owed);
        }
        let state = &self.units[unit.index()];
        let ends_boost = (was, state.state) == (State::Boost, State::Under);
        let is_elsewhere = self.settings.sort || (state.state != was && !ends_boost);
        if is_elsewhere && self.queues.contains(unit.index()) {
            self.move_to_state(unit, was);
        }
        let state = &self.units[unit.index()];
        if state.parked && owed <= 0 {
            self.unpark(unit, resched);
        } else if state.cap_percent > 0 && !state.parked && owed > self.cap(state.cap_percent) {
            self.park(unit, resched);
        }
    }

    /// The waiting unit, which was in state `was`, goes where it stands in the state that a refill gave it.
    fn move_to_state(&mut self, unit: UnitId, was: State) {
        /// More units than arrive from one refill to the next.
        const MANY: i64 = 1 << 24;
        let state = &mut self.units[unit.index()];
        match state.state.cmp(&was) {
            Ordering::Less => {
                state.place = Place { since: self.arrivals as i64, before: state.place.since };
            }
            Ordering::Equal => {}
            // Of those that get worse together, the better came first, then the earlier.
            Ordering::Greater => {
                let arrived = (state.place.since - self.arrivals_refilled as i64).clamp(0, MANY - 1);
                let since = was as i64 * MANY + arrived - self.refills * 2 * MANY;
                state.place = Place { since, before: 0 };
            }
        }
        self.queue(unit);
    }

    /// Where the unit stands on `cpu`. One that sleeps stands where its wake-up would put it: behind the
    /// others in its state, and UNDER becomes BOOST with `boost`. What runs gives way to a better state
    /// only, and without `tickle` to none.
    fn urgency(&self, cpu: CpuId, unit: UnitId) -> (bool, State, bool, Reverse<i64>, Place) {
        let state = &self.units[unit.index()];
        let runs = state.awake && state.cpu == cpu.0;
        let is_boosted = self.settings.boost && !state.awake && state.state == State::Under;
        let when_awake = if is_boosted { State::Boost } else { state.state };
        let credits = if self.settings.sort { state.credits } else { 0 };
        let place = if state.awake { state.place } else { Place::last(self.arrivals + 1) };
        (!runs || self.settings.tickle, when_awake, !runs, Reverse(credits), place)
    }

    fn park(&mut self, unit: UnitId, resched: &mut CpuSet) {
        self.units[unit.index()].parked = true;
        if self.units[unit.index()].awake {
            self.stop(unit, resched);
        }
    }

    fn unpark(&mut self, unit: UnitId, resched: &mut CpuSet) {
        self.units[unit.index()].parked = false;
        if self.units[unit.index()].awake {
            self.start(unit, resched);
        }
    }
}

impl Policy for Credit {
    fn insert(&mut self, _now: Instant, params: &UnitParams) -> Result<UnitId, ParamError> {
        let (weight, cap_percent) = validate(&self.settings, params)?;
        let cpus = allowed(self.cpus(), params.affinity.as_ref())?;
        let home = self.homes.settle(&cpus, 1);
        let state = CreditUnit {
            weight,
            cap_percent,
            credits: self.settings.credits_at_first(),
            unpaid: 0,
            state: State::Under,
            class: self.join_class(cpus),
            home,
            cpu: NONE,
            place: Place::default(),
            slice_left: Duration::ZERO,
            ran: Duration::ZERO,
            awake: false,
            earning: false,
            parked: false,
            present: true,
            exhaustions: 0,
            replenishments: 0,
        };
        let unit = self.units.insert(state);
        self.queues.grow(self.units.len());
        self.earning.reserve(self.units.len() - self.earning.len());
        self.served_first.reserve(self.units.len());
        Ok(unit)
    }

    fn remove(&mut self, _now: Instant, unit: UnitId, resched: &mut CpuSet) {
        self.stop_earning(unit);
        self.earning.retain(|&other| other != unit);
        self.stop(unit, resched);
        let state = &mut self.units[unit.index()];
        if state.cpu != NONE {
            self.processors[state.cpu as usize].unit = NONE;
        }
        state.cpu = NONE;
        state.present = false;
        self.homes.leave(state.home, 1);
        self.affinities.leave(state.class);
        self.units.remove(unit);
    }

    fn adjust(
        &mut self,
        _now: Instant,
        unit: UnitId,
        params: &UnitParams,
        resched: &mut CpuSet,
    ) -> Result<(), ParamError> {
        let (weight, cap_percent) = validate(&self.settings, params)?;
        let cpus = allowed(self.cpus(), params.affinity.as_ref())?;
        let state = &mut self.units[unit.index()];
        if state.earning {
            self.earning_weight += i64::from(weight) - i64::from(state.weight);
        }
        (state.weight, state.cap_percent) = (weight, cap_percent);
        let (old_class, old_home, parked) = (state.class, state.home, state.parked);
        let home = self.homes.resettle(old_home, 1, &cpus, 1);
        let class = self.join_class(cpus);
        self.affinities.leave(old_class);
        let state = &mut self.units[unit.index()];
        (state.class, state.home) = (class, home);
        if state.cpu != NONE && state.cpu != home.0 {
            resched.insert(CpuId(state.cpu));
        }
        if self.queues.contains(unit.index()) {
            self.queue(unit);
            self.tickle(unit, resched);
        }
        if parked && cap_percent == 0 {
            self.unpark(unit, resched);
        }
        Ok(())
    }

    #[inline(always)]
    fn wake(&mut self, _now: Instant, unit: UnitId, resched: &mut CpuSet) {
        let state = &mut self.units[unit.index()];
        if core::mem::replace(&mut state.awake, true) || state.parked {
            return;
        }
        if self.settings.boost && state.state == State::Under && state.cpu == NONE {
            state.state = State::Boost;
        }
        self.start(unit, resched);
    }

    #[inline(always)]
    fn sleep(&mut self, _now: Instant, unit: UnitId, resched: &mut CpuSet) {
        let state = &mut self.units[unit.index()];
        if core::mem::replace(&mut state.awake, false) && !state.parked {
            self.stop(unit, resched);
        }
    }

    #[inline(always)]
    fn charge(&mut self, _now: Instant, _cpu: CpuId, unit: UnitId, ran: Duration) {
        let state = &mut self.units[unit.index()];
        state.slice_left = state.slice_left.saturating_sub(ran);
        state.ran += ran;
        if self.settings.charge_exactly {
            self.burn_credits(unit, ran);
        }
    }

    #[inline(always)]
    fn pick(&mut self, now: Instant, cpu: CpuId, resched: &mut CpuSet) -> Slice {
        // A tick at this very instant is for the unit that ran up to it.
        if self.timers.key(cpu.index()).is_some_and(|at| at <= now) {
            self.tick(now, cpu, resched);
        }
        let called_for = core::mem::replace(&mut self.processors[cpu.index()].called_for, NONE);
        let mut until = self.hold(cpu).map(|hold| now + hold);
        if until.is_none() {
            let before = self.release(cpu);
            let mut from = cpu;
            if let Some(unit) = self.choose(cpu, called_for) {
                from = self.units[unit.index()].home;
                self.give(cpu, unit, before);
                until = Some(now + self.settings.slice);
            }
            self.arm_tick(cpu, now);
            if let Some(unit) = before
                && self.queues.contains(unit.index())
            {
                self.tickle(unit, resched);
            }
            self.offer(from, resched);
            if from != cpu {
                self.offer(cpu, resched);
            }
        }
        if called_for != NONE && self.queues.contains(called_for as usize) {
            self.tickle(UnitId(called_for), resched);
        }
        match until {
            Some(until) => Slice { run: Run::Unit(UnitId(self.processors[cpu.index()].unit)), until },
            None => Slice { run: Run::Idle, until: Instant::NEVER },
        }
    }

    /// The slice goes on: it is the VM's.
    fn yield_to(&mut self, now: Instant, cpu: CpuId, unit: UnitId, resched: &mut CpuSet) -> Option<Slice> {
        let state = &self.units[unit.index()];
        let is_here = state.home == cpu || self.settings.steal;
        if !is_here || !self.waits_for(unit.0, cpu, None) {
            return None;
        }
        let left = self.hold(cpu)?;
        let before = self.release(cpu)?;
        self.give(cpu, unit, None);
        self.units[unit.index()].slice_left = left;
        if let Some(idle) = self.idle_processor_for(before) {
            self.call(idle, before, resched);
        }
        Some(Slice { run: Run::Unit(unit), until: now + left })
    }

    #[inline(always)]
    fn next_timer(&self) -> Timer {
        match self.timers.peek() {
            Some((id, at)) => Timer { at, charge: (id < self.cpus()).then_some(CpuId(id as u32)) },
            None => Timer::NEVER,
        }
    }

    #[inline(always)]
    fn on_timer(&mut self, now: Instant, resched: &mut CpuSet) {
        let Some((id, at)) = self.timers.peek() else {
            return;
        };
        if at > now {
            return;
        }
        if id < self.cpus() {
            self.tick(now, CpuId(id as u32), resched);
            return;
        }
        self.refill(resched);
        if self.earning.is_empty() {
            self.timers.remove(id)
        } else {
            self.timers.set(id, self.settings.again(now, self.settings.refill_period()))
        }
    }

    fn ranking(&self, cpu: CpuId, out: &mut Vec<UnitId>) {
        let eligible = |unit: UnitId| {
            let state = &self.units[unit.index()];
            let here = if self.settings.steal {
                self.affinities.cpus(state.class).contains(cpu)
            } else {
                state.home == cpu
            };
            state.present && !state.parked && here
        };
        rank(out, self.units.len(), eligible, |unit| self.urgency(cpu, unit));
    }

    fn account(&self, unit: UnitId) -> Account {
        let state = &self.units[unit.index()];
        Account {
            left: state.parked.then_some(Duration::ZERO),
            may_overrun: !state.parked,
            home: (!self.settings.steal).then_some(state.home),
            exhaustions: state.exhaustions,
            replenishments: state.replenishments,
            ..Account::default()
        }
    }
}
