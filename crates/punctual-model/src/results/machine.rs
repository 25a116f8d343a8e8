//! What only a live run has: what disturbed the machine, and what enforcement did.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::blame::{Cause, CauseTime, add_time, sort_causes};
use crate::histogram::Histogram;

/// How many intervals [`Disturbance::intervals`] has at most.
pub(crate) const INTERVALS_MAX: usize = 1_000;

/// A time in which a processor was taken away from its pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DisturbedInterval {
    /// When it began, since the start of the run.
    pub from_ns: u64,
    /// When it ended.
    pub until_ns: u64,
    /// `standstill` or `other-thread`.
    pub cause: Cause,
    /// The thread, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// How a processor was taken away from its pool: the machine stood still, or threads that are no units had it
/// while a unit or the enforcer wanted it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Disturbance {
    /// How often.
    pub count: u64,
    /// How long together.
    pub time_ns: u64,
    /// How long at most at once.
    pub longest_ns: u64,
    /// By cause, the greatest first.
    pub causes: Vec<CauseTime>,
    /// The longest ones, at most a thousand, in order of time.
    pub intervals: Vec<DisturbedInterval>,
}

impl Disturbance {
    /// Of these intervals, in order of time, which do not overlap.
    pub fn of(mut intervals: Vec<DisturbedInterval>) -> Disturbance {
        let mut disturbance = Disturbance::default();
        for interval in &intervals {
            let time_ns = interval.length_ns();
            disturbance.count += 1;
            disturbance.time_ns += time_ns;
            disturbance.longest_ns = disturbance.longest_ns.max(time_ns);
            add_time(&mut disturbance.causes, interval.cause, interval.by.as_deref(), time_ns);
        }
        sort_causes(&mut disturbance.causes);
        intervals.sort_by_key(|interval| core::cmp::Reverse(interval.length_ns()));
        intervals.truncate(INTERVALS_MAX);
        intervals.sort_by_key(|interval| interval.from_ns);
        disturbance.intervals = intervals;
        disturbance
    }

    /// Adds another run's; the intervals stay those of this one.
    pub fn merge(&mut self, other: &Disturbance) {
        self.count += other.count;
        self.time_ns = self.time_ns.saturating_add(other.time_ns);
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        for CauseTime { cause, by, time_ns } in &other.causes {
            add_time(&mut self.causes, *cause, by.as_deref(), *time_ns);
        }
        sort_causes(&mut self.causes);
    }
}

impl DisturbedInterval {
    /// How long it was.
    pub fn length_ns(&self) -> u64 {
        self.until_ns.saturating_sub(self.from_ns)
    }
}

/// Jobs of a task that met a disturbance: a processor of their pool was taken away while they, or a job of
/// their guest for which they waited, were not finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DisturbedJobs {
    /// Those that were due within the run.
    pub due: u64,
    /// Of those, jobs that were not finished at their deadline.
    pub missed: u64,
}

/// What `/proc/stat` says of a processor, to ticks of 10 ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostTimes {
    /// Threads that are neither units nor enforcers executed.
    pub others_ns: u64,
    /// Interrupts and softirqs.
    pub interrupts_ns: u64,
    /// The hypervisor below had the processor though a thread wanted it.
    pub steal_ns: u64,
}

/// What enforcement of a pool did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Enforcement {
    /// Looks of its enforcers.
    pub looks: u64,
    /// Processor time of its enforcers, as long as the session lasted.
    pub enforcer_ns: u64,
    /// How long the session lasted, times the number of the pool's processors.
    pub session_ns: u64,
    /// How much longer than its budget a unit had run when that was noticed.
    pub overrun: Histogram,
    /// How long after its time a replenishment took effect.
    pub replenishment_lateness: Histogram,
    /// How much later than they were due looks came.
    pub look_lateness: Histogram,
    /// Time that the machine below took and the kernel charged to units; it was charged to no budget.
    pub stolen_ns: u64,
    /// How often an enforcer was stuck in a look and units lost their priorities meanwhile.
    pub demotions: u64,
    /// How often a vCPU without budget ran on because it held a lock of its VMM.
    #[serde(default)]
    pub graces: u64,
}

impl Enforcement {
    /// Adds what another run's did.
    pub fn merge(&mut self, other: &Enforcement) {
        self.looks += other.looks;
        self.enforcer_ns += other.enforcer_ns;
        self.session_ns += other.session_ns;
        self.overrun.merge(&other.overrun);
        self.replenishment_lateness.merge(&other.replenishment_lateness);
        self.look_lateness.merge(&other.look_lateness);
        self.stolen_ns += other.stolen_ns;
        self.demotions += other.demotions;
        self.graces += other.graces;
    }
}

/// What a vCPU of a live run was delivered, whether or not its guest reports anything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Delivery {
    /// Periods of its budget that passed; 0 where it has none.
    pub periods: u64,
    /// Those in which it got its whole budget, or did not want more.
    pub delivered: u64,
    /// The longest time without the processor while it was ready: without budget after it had run, and
    /// waiting after that.
    pub longest_without_ns: u64,
    /// How long it waited for the processor each time that it came to it, ready and allowed to run; several
    /// times between two looks count as their mean. Empty for a process of several threads.
    pub wait: Histogram,
}

impl Delivery {
    /// Adds what it was delivered in another run.
    pub fn merge(&mut self, other: &Delivery) {
        self.periods += other.periods;
        self.delivered += other.delivered;
        self.longest_without_ns = self.longest_without_ns.max(other.longest_without_ns);
        self.wait.merge(&other.wait);
    }
}

/// Late jobs of a run, by whether they met a disturbance of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Misses {
    /// Jobs due, and those that missed, of tasks for which it was measured.
    pub all: DisturbedJobs,
    /// Of those, the ones that met a disturbance.
    pub disturbed: DisturbedJobs,
}

impl Misses {
    /// Missed jobs that met no disturbance.
    pub fn ours(&self) -> u64 {
        self.all.missed.saturating_sub(self.disturbed.missed)
    }

    /// Jobs due that met no disturbance.
    pub fn ours_due(&self) -> u64 {
        self.all.due.saturating_sub(self.disturbed.due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disturbance_adds_up_its_intervals_and_keeps_the_longest() {
        let interval = |n: u64| DisturbedInterval {
            from_ns: n * 1000,
            until_ns: n * 1000 + n % 7 + 1,
            cause: if n.is_multiple_of(2) { Cause::Standstill } else { Cause::OtherThread },
            by: (n % 2 == 1).then(|| "spinner".to_owned()),
        };
        let many = 3 * INTERVALS_MAX as u64;
        let disturbance = Disturbance::of((0..many).map(interval).collect());
        assert_eq!((disturbance.count, disturbance.longest_ns), (many, 7));
        assert_eq!(disturbance.intervals.len(), INTERVALS_MAX);
        assert!(disturbance.intervals.iter().all(|interval| interval.length_ns() >= 5));
        assert!(disturbance.intervals.is_sorted_by_key(|interval| interval.from_ns));
        let times: u64 = disturbance.causes.iter().map(|cause| cause.time_ns).sum();
        assert_eq!((times, disturbance.causes.len()), (disturbance.time_ns, 2));
    }
}
