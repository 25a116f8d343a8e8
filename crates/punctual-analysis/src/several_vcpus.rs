//! Tasks that may move between the vCPUs of a guest: response times when each vCPU executes only part of the
//! time.
//!
//! # Why not a published test as it is
//!
//! The multiprocessor periodic resource model (Shin, Easwaran, Lee, ECRTS 2008; Easwaran, Shin, Lee,
//! Real-Time Systems 2009) and the multi supply function (Bini, Buttazzo, Bertogna, RTAS 2009; Burmyakov,
//! Bini, Tovar, Real-Time Systems 2014) assume that the guest runs its most urgent jobs on whatever vCPUs
//! execute at that instant. A guest does not see which do. A job that has a vCPU stays there when the vCPU
//! stops, although another vCPU executes less urgent work, and a job that wakes may be sent to a vCPU that
//! stands still. This test is theirs, and the interference of Bertogna & Cirinei (RTSS 2007), plus the time
//! that a job loses in that way.
//!
//! # The guest
//!
//! A vCPU *asks* from the moment at which it gets a job, or is told to pick one, until it finds nothing to
//! do. It picks only while it executes, always the most urgent waiting job if that is strictly more urgent
//! than its own. A job that arrives tells one vCPU to pick: of those not yet told, an idle one or else the
//! one with the least urgent job, if that is less urgent. So of the vCPUs whose job, if any, is less urgent
//! than a waiting job J (call them *open*), as many have been told as there are waiting jobs up to J, or all
//! of them. This holds after arrivals, and picks keep it: an open vCPU that was told and picks takes one of
//! the waiting jobs, and one that is not open replaces a waiting job by its own.
//!
//! # The proof
//!
//! J has cost C; let it not be done R after its release. Of this time
//!
//! 1. it executes less than C, so at most C - 1 ns.
//! 2. It has a vCPU that stands still, or waits while at least as many open vCPUs have been told as jobs wait
//!    up to J (then those vCPUs stand still: one that executes picks). Call this time Z.
//! 3. Otherwise all open vCPUs have been told and stand still, and all others have jobs at least as urgent.
//!    Call this time B. Each of the m vCPUs asks all the time, and at least m other jobs that are as urgent
//!    or more are there.
//!
//! *Z.* Say that a vCPU that asks stands still for at most `delay` at a stretch ([`Supply::delay`]). A
//! waiting J for which enough vCPUs have been told is picked within `delay`, unless a more urgent job
//! arrives. When a vCPU picks J, no more urgent job waits; so J loses a vCPU only to a job that arrived while
//! J had it, or to one that this displaced. So each more urgent job that arrives makes J wait once more for a
//! vCPU that was told, or lose its vCPU; in the second case, J waits once more for one that was told and once
//! more on one that stands still. With n arrivals that is Z <= (2 + 2n) `delay`, and as C is served in pieces
//! of whole budgets, the gaps between these besides.
//!
//! *B.* While J is in it, m vCPUs either stand still or execute other jobs, each job on one of them at a
//! time. So for b = R - C - Z + 1 ns, m b is at most the work of others in the window plus the time for which
//! vCPUs that ask stand still, each job and each vCPU counted for at most b. And as m other jobs are there
//! all that time, m b is at most the time for which others are there, each counted for at most b. Where one
//! of these fails, J is done by R. (Both sides are zero at b = 0, and the right one is concave, so what fails
//! at b fails at every greater b: a smaller Z changes nothing. The time in Z is standstill that does not
//! occur in B; where at most m - 1 others reach b, that can be subtracted.)
//!
//! # Where vCPUs stand still together
//!
//! Z counts standstill again for each job that arrives, as if another vCPU stood still each time. But vCPUs
//! whose periods begin together have all of their budgets then. Let S be the longest time, in any window of
//! length R, for which some vCPU asks and stands still. In the rest of R every vCPU that asks executes, and
//! picks at once. So J executes then, for at most C - 1, or m others that are as urgent or more do, and all
//! of these are there: for at most b, with m b at most their work and at most the time for which they are
//! there, each counted for at most b. So J is done by the least R = C + S + b, the response time of Bertogna
//! & Cirinei with S besides.
//!
//! *S.* A vCPU that asks stands still for others, or because its budget is used up; the latter not before it
//! has executed for its whole budget in a period. Where vCPUs have periods that begin at the same instants,
//! that time is the end of each period, from the least of their budgets on, whichever of them stand still.
//! For others it is counted vCPU by vCPU ([`Kept`]).
//!
//! # Bounds of each other
//!
//! The bounds of the other tasks are taken for granted in this, which is sound as long as each of them is
//! derived: the first job that exceeded its bound would contradict the proof. A task for which none is found
//! counts as always there.

use std::collections::BTreeMap;

use punctual_sched::Duration;

use crate::demand::{Demand, NANOSECOND, fixed_point};
use crate::global_edf::waiting;
use crate::supply::Supply;

/// Guests with more tasks are not analysed: each task is compared with each, many times.
pub const TASKS_MAX: usize = 200;

/// Rounds of improvement.
const ROUNDS_MAX: usize = 16;

/// Steps of a response time; each adds at least a nanosecond.
const STEPS_MAX: u32 = 400;

/// What a vCPU gives to its guest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VcpuSupply {
    /// From any instant on, as long as it asks.
    pub supply: Supply,
    /// In each of its periods, the longest time for which it asks and stands still, however often it stops
    /// asking in between.
    pub still: Duration,
    /// The periods do not overlap. Above zero.
    pub period: Duration,
    pub kept: Kept,
}

/// What is known of the beginning of each period of a vCPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kept {
    /// The vCPU cannot have used its budget up so early in a period.
    pub budget: Duration,
    /// In that time, the longest for which it asks and stands still: for others.
    pub taken: Duration,
    /// Is `taken` the longest for which any vCPU of the guest with this period does so?
    pub is_for_all: bool,
    /// Do the periods of all vCPUs of the guest that have this length begin at the same instants?
    pub is_aligned: bool,
}

impl VcpuSupply {
    /// A processor of its own, of which others take at most `taken` in any `period`.
    pub(crate) fn alone(taken: Duration, period: Duration) -> Option<Self> {
        let budget = period.checked_sub(taken).filter(|budget| !budget.is_zero())?;
        let kept = Kept { budget: period, taken, is_for_all: false, is_aligned: true };
        Some(VcpuSupply { supply: Supply { delay: taken, budget, period }, still: taken, period, kept })
    }

    /// In any window of this length, the longest time for which it asks and stands still.
    fn still_within(&self, window: Duration) -> Duration {
        match self.period.checked_sub(self.still).filter(|rest| !rest.is_zero()) {
            // The end of one period and the start of the next may have all of theirs.
            Some(rest) => window - Supply::periodic(rest, self.period).bound(window),
            None => window,
        }
    }

    /// In any window of this length, the longest time for which it asks and stands still with budget left.
    fn taken_within(&self, window: Duration) -> Duration {
        let Kept { budget, taken, .. } = self.kept;
        // At the end of the first of its times, and at the start of the next one.
        in_turn(taken, self.period, window + budget.saturating_sub(taken)).min(window)
    }
}

/// In any window of this length, the longest time for which some vCPU may ask and stand still: S.
fn stopped_within(vcpus: &[VcpuSupply], window: Duration) -> Duration {
    let (aligned, others): (Vec<&VcpuSupply>, Vec<&VcpuSupply>) =
        vcpus.iter().partition(|vcpu| vcpu.kept.is_aligned);
    // By period, the least budget: later in that period some vCPU may have used its own up.
    let mut least: BTreeMap<Duration, Duration> = BTreeMap::new();
    for vcpu in &aligned {
        let budget = least.entry(vcpu.period).or_insert(vcpu.kept.budget);
        *budget = vcpu.kept.budget.min(*budget);
    }
    let unaligned = others.iter().map(|vcpu| (vcpu.period, vcpu.kept.budget));
    let periods = least.iter().map(|(period, budget)| (*period, *budget)).chain(unaligned);
    let used_up: Duration = periods.map(|(period, budget)| in_turn(period - budget, period, window)).sum();
    let is_for_all = least.len() == 1 && others.is_empty() && vcpus.iter().all(|of| of.kept.is_for_all);
    let taken = vcpus.iter().map(|vcpu| vcpu.taken_within(window));
    let taken = if is_for_all { taken.max().unwrap_or_default() } else { taken.sum() };
    (used_up + taken).min(window)
}

/// How the guest orders its jobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// By the task's priority; equal ones in the order of arrival.
    FixedPriority,
    /// By deadline.
    Edf,
}

/// A task of the guest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GuestTask {
    /// A smaller number is more urgent; not read under EDF.
    pub priority: u32,
    /// Without jitter; `None`: a busy loop, which under EDF is less urgent than every job.
    pub demand: Option<Demand>,
}

/// What the test finds out about a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// No response time is longer than `bound`, of which jobs may wait `still` for vCPUs that stand still, if
    /// no other task delays them.
    Bounded { bound: Duration, still: Duration },
    /// No bound up to the period; in a time as long as that a job may lose `lost` to vCPUs that stand still,
    /// all delays counted.
    Unbounded { lost: Duration },
    /// A busy loop, or a guest of too many tasks.
    None,
}

/// Bounds on the response times of the tasks of one guest, in their order.
pub fn response_times(order: Order, tasks: &[GuestTask], vcpus: &[VcpuSupply]) -> Vec<Outcome> {
    if tasks.len() > TASKS_MAX || vcpus.is_empty() {
        return vec![Outcome::None; tasks.len()];
    }
    // The last job is done when the next comes, so one at a time is there.
    let limit = |task: &GuestTask| task.demand.filter(|d| d.cost <= d.period).map(|d| d.period);
    let mut guest = Guest { order, tasks, vcpus, bounds: tasks.iter().map(limit).collect() };
    // Each round gives up at least one task.
    loop {
        let open = guest.improve();
        if open.is_empty() {
            break;
        }
        let is_given_up = |k: usize| guest.bounds[k].is_none() || open.contains(&k);
        guest.bounds =
            (0..tasks.len()).map(|k| if is_given_up(k) { None } else { limit(&tasks[k]) }).collect();
    }
    (0..tasks.len()).map(|k| guest.outcome(k)).collect()
}

struct Guest<'g> {
    order: Order,
    tasks: &'g [GuestTask],
    vcpus: &'g [VcpuSupply],
    /// Assumed bounds; `None`: the task may be there all the time.
    bounds: Vec<Option<Duration>>,
}

/// What another task may do in a window.
struct Other {
    work: Duration,
    there: Duration,
}

impl Guest<'_> {
    /// Lowers the bounds as far as they follow from each other. Those that do not follow.
    fn improve(&mut self) -> Vec<usize> {
        for _ in 0..ROUNDS_MAX {
            let (mut open, mut is_changed) = (Vec::new(), false);
            for k in 0..self.tasks.len() {
                let Some(assumed) = self.bounds[k] else { continue };
                match self.response(k, assumed) {
                    Some(bound) if bound < assumed => (self.bounds[k], is_changed) = (Some(bound), true),
                    Some(_) => {}
                    None => open.push(k),
                }
            }
            if !is_changed {
                return open;
            }
        }
        // Every bound must follow from the last ones.
        (0..self.tasks.len())
            .filter(|k| self.bounds[*k].is_some_and(|assumed| self.response(*k, assumed).is_none()))
            .collect()
    }

    fn outcome(&self, k: usize) -> Outcome {
        let Some(demand) = self.tasks[k].demand else { return Outcome::None };
        match self.bounds[k] {
            Some(bound) => Outcome::Bounded { bound, still: self.lost(&demand, 0, bound) },
            None => Outcome::Unbounded {
                lost: self.lost(&demand, self.arrivals(k, demand.period), demand.period),
            },
        }
    }

    /// The response time of the task at `k`, if it is at most `limit`.
    fn response(&self, k: usize, limit: Duration) -> Option<Duration> {
        let demand = self.tasks[k].demand?;
        let in_common = self.response_in_common(k, &demand, limit);
        let limit = in_common.unwrap_or(limit);
        self.response_of_parts(k, &demand, limit).or(in_common)
    }

    /// The same by what vCPUs execute at one time: C, S and b.
    fn response_in_common(&self, k: usize, demand: &Demand, limit: Duration) -> Option<Duration> {
        let processors = self.vcpus.len();
        bounded_fixed_point(demand.cost, limit, |window| {
            let alone = demand.cost + stopped_within(self.vcpus, window);
            if alone > limit {
                return Duration::MAX;
            }
            let others = self.others(k).filter_map(|i| self.other(i, k, window));
            let (work, there) = others.map(|other| (other.work, other.there)).unzip();
            alone + waiting(work, processors).min(waiting(there, processors))
        })
    }

    /// The same by the parts C, Z and B.
    fn response_of_parts(&self, k: usize, demand: &Demand, limit: Duration) -> Option<Duration> {
        bounded_fixed_point(demand.cost, limit, |window| {
            let lost = self.lost(demand, self.arrivals(k, window), window);
            let alone = demand.cost + lost;
            match limit.checked_sub(alone) {
                Some(room) => alone + self.blocked(k, window, lost, room),
                None => Duration::MAX,
            }
        })
    }

    /// How many jobs that are more urgent than one of `k` arrive within `window` of its release.
    fn arrivals(&self, k: usize, window: Duration) -> u64 {
        self.others(k).map(|i| self.arrivals_of(i, k, window)).fold(0, u64::saturating_add)
    }

    fn arrivals_of(&self, i: usize, k: usize, window: Duration) -> u64 {
        let (one, other) = (&self.tasks[k], &self.tasks[i]);
        match (self.order, other.demand) {
            (Order::FixedPriority, _) if other.priority >= one.priority => 0,
            (Order::FixedPriority, Some(demand)) => window.div_ceil(demand.period),
            (Order::FixedPriority, None) => 1,
            (Order::Edf, Some(demand)) => {
                let deadline = one.demand.map_or(Duration::ZERO, |own| own.deadline);
                window.min(deadline.saturating_sub(demand.deadline)).div_ceil(demand.period)
            }
            (Order::Edf, None) => 0,
        }
    }

    fn others(&self, k: usize) -> impl Iterator<Item = usize> + use<> {
        (0..self.tasks.len()).filter(move |i| *i != k)
    }

    /// The most that a job loses in the window because the vCPU that it has, or that was told to pick it,
    /// stands still: Z.
    fn lost(&self, demand: &Demand, arrivals: u64, window: Duration) -> Duration {
        let supplies = || self.vcpus.iter().map(|vcpu| &vcpu.supply);
        let delay = supplies().map(|supply| supply.delay).max().unwrap_or_default();
        let gap = supplies().map(|supply| supply.period - supply.budget).max().unwrap_or_default();
        let budget = supplies().map(|supply| supply.budget).min().unwrap_or(NANOSECOND);
        let pauses = delay * arrivals.saturating_mul(2).saturating_add(2);
        let gaps = if gap.is_zero() { Duration::ZERO } else { gap * (demand.cost.div_ceil(budget) - 1) };
        let still = self.vcpus.iter().map(|vcpu| vcpu.still_within(window)).sum();
        (pauses + gaps).min(still).min(stopped_within(self.vcpus, window))
    }

    /// The longest that others keep a job of `k` from having a vCPU within `window` of its release, if that
    /// is less than `room`: B.
    fn blocked(&self, k: usize, window: Duration, lost: Duration, room: Duration) -> Duration {
        let others: Vec<Other> = self.others(k).filter_map(|i| self.other(i, k, window)).collect();
        let still: Vec<Duration> = self.vcpus.iter().map(|vcpu| vcpu.still_within(window)).collect();
        let fails = |time| self.cannot_be_blocked(&others, &still, lost, time);
        // What fails at some time fails at every longer one.
        let (mut low, mut high) = (0, room.as_ns().saturating_add(1));
        if !fails(Duration::from_ns(high)) {
            return Duration::MAX;
        }
        while high - low > 1 {
            let middle = low.midpoint(high);
            if fails(Duration::from_ns(middle)) { high = middle } else { low = middle }
        }
        Duration::from_ns(high - 1)
    }

    /// Can a job surely not be blocked for this long?
    fn cannot_be_blocked(
        &self,
        others: &[Other],
        still: &[Duration],
        lost: Duration,
        time: Duration,
    ) -> bool {
        let capped = |all: &mut dyn Iterator<Item = Duration>| {
            all.fold(0u128, |sum, each| sum + u128::from(each.min(time).as_ns()))
        };
        let all = self.vcpus.len() as u128 * u128::from(time.as_ns());
        let there = capped(&mut others.iter().map(|other| other.there));
        let work = capped(&mut others.iter().map(|other| other.work));
        let in_vain = capped(&mut still.iter().copied());
        if all > there || all > work + in_vain {
            return true;
        }
        let whole: u128 = still.iter().map(|each| u128::from(each.as_ns())).sum();
        let reaching = others.iter().filter(|other| other.work > time).count();
        reaching < self.vcpus.len() && all + u128::from(lost.as_ns()) > work + whole
    }

    /// What task `i` may do within `window` of the release of a job of `k`, if it can come before it.
    fn other(&self, i: usize, k: usize, window: Duration) -> Option<Other> {
        let always = Other { work: Duration::MAX, there: Duration::MAX };
        let (one, other) = (&self.tasks[k], &self.tasks[i]);
        let Some(demand) = other.demand else {
            let is_urgent = self.order == Order::FixedPriority && other.priority <= one.priority;
            return is_urgent.then_some(always);
        };
        if self.order == Order::FixedPriority && other.priority > one.priority {
            return None;
        }
        let Some(bound) = self.bounds[i] else { return Some(always) };
        let mut found = Other {
            // The first job may be done as late as it can, the others as early (Bertogna, Cirinei, Lipari,
            // TPDS 2009, s. 4).
            work: in_turn(demand.cost, demand.period, window + (bound - demand.cost)).min(window),
            there: in_turn(bound, demand.period, window),
        };
        if let (Order::Edf, Some(own)) = (self.order, one.demand) {
            // Jobs that are due no later than this one: from the last of them backwards.
            let reach = (own.deadline + bound).saturating_sub(demand.deadline);
            found.work = found.work.min(in_turn(demand.cost, demand.period, reach));
            found.there = found.there.min(in_turn(bound, demand.period, reach));
        }
        Some(found)
    }
}

/// The fixed point, if [`STEPS_MAX`] steps reach it.
fn bounded_fixed_point(
    start: Duration,
    limit: Duration,
    step: impl Fn(Duration) -> Duration,
) -> Option<Duration> {
    let steps = std::cell::Cell::new(0);
    fixed_point(start, limit, |window| {
        steps.set(steps.get() + 1);
        if steps.get() > STEPS_MAX { Duration::MAX } else { step(window) }
    })
}

/// `each` at the start of every `period`, in a window of this length.
fn in_turn(each: Duration, period: Duration, window: Duration) -> Duration {
    each * window.div_floor(period) + each.min(window % period)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::global_fixed_priority;
    use crate::overhead::Decisions;
    use proptest::prelude::*;

    fn ns(n: u64) -> Duration {
        Duration::from_ns(n)
    }

    fn task(priority: u32, cost: u64, period: u64) -> GuestTask {
        GuestTask { priority, demand: Some(Demand::implicit(ns(cost), ns(period))) }
    }

    fn bounds(order: Order, tasks: &[GuestTask], vcpus: &[VcpuSupply]) -> Vec<Option<u64>> {
        let bound = |outcome| match outcome {
            Outcome::Bounded { bound, .. } => Some(bound.as_ns()),
            Outcome::Unbounded { .. } | Outcome::None => None,
        };
        response_times(order, tasks, vcpus).into_iter().map(bound).collect()
    }

    fn whole() -> VcpuSupply {
        VcpuSupply::alone(Duration::ZERO, ns(100)).expect("above zero")
    }

    /// 30 somewhere in every 50.
    fn half() -> VcpuSupply {
        let kept = Kept { budget: ns(30), taken: ns(30), is_for_all: false, is_aligned: false };
        VcpuSupply { supply: Supply::periodic(ns(30), ns(50)), still: ns(20), period: ns(50), kept }
    }

    /// A job waits once for a vCPU that was told to pick and once on another that has just stopped, each for
    /// at most 40, and for 20 more between its first budget and its second.
    #[test]
    fn a_job_alone_loses_two_delays_and_the_gaps_between_its_budgets() {
        let with = |cost| bounds(Order::FixedPriority, &[task(1, cost, 1_000)], &[half(), half()]);
        assert_eq!([with(30), with(31)], [[Some(30 + 80)], [Some(31 + 80 + 20)]]);
    }

    #[test]
    fn a_more_urgent_job_makes_a_job_lose_two_delays_more() {
        let vcpus = [half(), half()];
        let tasks = [task(1, 10, 1_000), task(2, 10, 1_000)];
        // Less than two others: there is always a vCPU for it.
        assert_eq!(bounds(Order::FixedPriority, &tasks, &vcpus), [Some(10 + 80), Some(10 + 160)]);
        // Jobs that arrive later are due later.
        assert_eq!(bounds(Order::Edf, &tasks, &vcpus), [Some(10 + 80), Some(10 + 80)]);
    }

    /// 30 at the start of every 50. Where all periods begin together a job waits for their end once, however
    /// many jobs make it change its vCPU; otherwise each vCPU may stand still at another time.
    #[test]
    fn vcpus_whose_periods_begin_together_stand_still_together() {
        let supply = Supply { delay: ns(20), budget: ns(30), period: ns(50) };
        let with = |is_aligned, taken| {
            let kept = Kept { budget: ns(30), taken: ns(taken), is_for_all: false, is_aligned };
            let vcpu = VcpuSupply { supply, still: ns(20), period: ns(50), kept };
            bounds(Order::FixedPriority, &[task(1, 10, 1_000), task(2, 10, 1_000)], &[vcpu, vcpu])
        };
        assert_eq!(with(true, 0), [Some(10 + 20), Some(10 + 20)]);
        assert_eq!(with(false, 0), [Some(10 + 40), Some(10 + 40)]);
        // Others take 1 of each in every period, at the end of one and at the start of the next.
        assert_eq!(with(true, 1), [Some(10 + 20 + 4), Some(10 + 20 + 4)]);
    }

    /// Under fixed priorities a more urgent busy loop has a vCPU of its own, a less urgent one none.
    #[test]
    fn a_busy_loop_takes_one_vcpu_from_those_below_it() {
        let looping = |priority| GuestTask { priority, demand: None };
        let with = |at| {
            bounds(
                Order::FixedPriority,
                &[task(2, 10, 100), task(3, 10, 100), looping(at)],
                &[whole(), whole()],
            )
        };
        assert_eq!(with(4), [Some(10), Some(10), None]);
        assert_eq!(with(1), [Some(10), Some(20), None]);
        assert_eq!(bounds(Order::Edf, &[task(2, 10, 100), looping(1)], &[whole()]), [Some(10), None]);
    }

    #[test]
    fn tasks_that_need_more_than_the_vcpus_have_no_bound() {
        let tasks = [task(1, 40, 50), task(2, 40, 50), task(3, 40, 50)];
        assert_eq!(bounds(Order::FixedPriority, &tasks, &[whole(), whole()])[2], None);
        assert!(bounds(Order::Edf, &tasks, &[half(), half()]).iter().all(Option::is_none));
    }

    proptest! {
        /// On whole processors the test is that of Bertogna & Cirinei.
        #[test]
        fn on_whole_processors_nothing_is_lost_to_the_published_test(
            tasks in prop::collection::vec((1u64..40, 40u64..200), 1..8), processors in 1usize..4,
        ) {
            let tasks: Vec<_> = (0..).zip(tasks).map(|(p, (cost, period))| task(p, cost, period)).collect();
            let ranked: Vec<_> = tasks.iter().map(|t| (t.priority, t.demand.expect("given"))).collect();
            let published =
                global_fixed_priority::response_times(&ranked, processors, &Decisions::default());
            let found = bounds(Order::FixedPriority, &tasks, &vec![whole(); processors]);
            for (published, found) in published.into_iter().zip(found) {
                if let Some(published) = published {
                    prop_assert!(found.is_some_and(|found| found <= published.as_ns()));
                }
            }
        }
    }
}
