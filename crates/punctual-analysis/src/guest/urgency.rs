//! What delays a task under fixed priorities.

use std::cmp::Ordering;

use punctual_sched::Duration;

use crate::answer::{Refutation, Test};
use crate::demand::Demand;
use crate::findings::{Findings, Service};
use crate::guest::content::{Contender, Ranked};
use crate::guest::locks::{blocking, may_stop};
use crate::inputs::Inputs;
use crate::overhead::Decisions;
use crate::reason::Reason;
use crate::supply::Supply;

/// How urgent something is beside a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Urgency {
    More,
    /// Served in the order of arrival.
    Equal,
    Less,
}

impl Ranked {
    /// How urgent `self` is beside `other`: the first level at which they are different units decides.
    fn urgency(&self, other: &Ranked) -> Urgency {
        match self.first_difference(other).map(|difference| difference.order) {
            Some(Ordering::Less) => Urgency::More,
            Some(Ordering::Greater) => Urgency::Less,
            _ => Urgency::Equal,
        }
    }

    /// The outermost level at which another unit has the priority of this task's. Equals are served in the
    /// order of arrival, so there even less urgent tasks of the same vCPU delay the other vCPU, which then
    /// delays this task.
    fn shared_level(&self, all: &[Ranked]) -> Option<usize> {
        let differences = all.iter().filter_map(|other| self.first_difference(other));
        differences.filter(|difference| difference.order == Ordering::Equal).map(|at| at.level).min()
    }

    /// How urgent each of the others is beside this task, where less urgent ones of the same vCPU may delay
    /// it by way of another vCPU.
    fn rivals<'r>(&self, all: &'r [Ranked]) -> impl Iterator<Item = (&'r Ranked, Urgency)> {
        let shared = self.shared_level(all);
        all.iter().filter(|other| other.contender != self.contender).filter_map(move |other| {
            let difference = other.first_difference(self);
            let inside = |level| difference.as_ref().is_none_or(|difference| difference.level > level);
            match other.urgency(self) {
                Urgency::Less if shared.is_some_and(inside) => Some((other, Urgency::Equal)),
                Urgency::Less => None,
                urgency => Some((other, urgency)),
            }
        })
    }
}

#[derive(Default)]
pub(super) struct Delaying {
    /// More urgent tasks that release themselves.
    pub(super) urgent: Vec<Demand>,
    /// All that comes before the task, or may.
    pub(super) urgent_or_equal: Vec<(Contender, Demand)>,
    busy_loop: Option<Urgency>,
    /// A task whose packets come at any rate.
    has_unbounded: bool,
}

impl Delaying {
    /// What delays `task`, of all that is on its processor or in its supply.
    pub(super) fn of(inputs: Inputs<'_>, task: &Ranked, all: &[Ranked]) -> Self {
        let mut delaying = Delaying::default();
        for (other, urgency) in task.rivals(all) {
            match other.contender {
                Contender::Kernel(vcpu) => {
                    let work = inputs.kernel(vcpu).unwrap_or_default();
                    let demands = work.iter().map(|work| (other.contender, work.demand));
                    delaying.urgent_or_equal.extend(demands);
                }
                Contender::Task(task) => match inputs.demand(task) {
                    None if inputs.is_served(task) => delaying.has_unbounded = true,
                    None if delaying.busy_loop != Some(Urgency::More) => delaying.busy_loop = Some(urgency),
                    None => {}
                    Some(demand) => {
                        delaying.urgent_or_equal.push((other.contender, demand));
                        let is_sure = !inputs.is_served(task) && !may_stop(inputs, task);
                        if urgency == Urgency::More && is_sure {
                            delaying.urgent.push(demand);
                        }
                    }
                },
            }
        }
        delaying
    }

    /// Less urgent tasks take so much of a busy period, once.
    fn add_blocking(&mut self, task: Contender, longest: Duration) {
        if !longest.is_zero() {
            self.urgent_or_equal.push((task, Demand::implicit(longest, Duration::MAX)));
        }
    }

    pub(super) fn is_bounded(&self) -> bool {
        self.busy_loop.is_none() && !self.has_unbounded
    }

    pub(super) fn demands(&self) -> impl Iterator<Item = &Demand> {
        self.urgent_or_equal.iter().map(|(_, demand)| demand)
    }

    pub(super) fn service(&self, supply: Supply, costs: Decisions) -> Service {
        Service { supply, above: self.demands().copied().collect(), costs }
    }
}

/// What a task asks for and what delays it.
pub(super) struct Question {
    pub(super) demand: Demand,
    pub(super) delaying: Delaying,
}

/// The question that a test may answer for a task.
///
/// # Errors
/// The answer, where none of what is asked for has a bound.
pub(super) fn question(
    inputs: Inputs<'_>,
    ranked: &Ranked,
    all: &[Ranked],
    test: Test,
) -> Result<Question, Findings> {
    let mut found = Findings::default();
    let Some(task) = ranked.task() else { return Err(found) };
    let Some(demand) = inputs.demand(task) else {
        // Busy loops have no deadline.
        found.unknown(inputs, task, Reason::UnboundedPackets, test);
        return Err(found);
    };
    let mut delaying = Delaying::of(inputs, ranked, all);
    match delaying.busy_loop {
        Some(_) if inputs.is_served(task) => found.unknown(inputs, task, Reason::BusyLoop, test),
        Some(Urgency::More) => {
            let refutation = Refutation::synchronous(vec![task], demand.deadline);
            found.refuted(inputs, task, refutation, Test::BelowBusyLoop);
        }
        Some(_) => found.unknown(inputs, task, Reason::EqualBusyLoop, test),
        None if delaying.has_unbounded => {
            found.unknown(inputs, task, Reason::BelowUnboundedPackets, test);
        }
        None => match blocking(inputs, task) {
            Ok(longest) => {
                delaying.add_blocking(ranked.contender, longest);
                return Ok(Question { demand, delaying });
            }
            Err(reason) => found.unknown(inputs, task, reason, test),
        },
    }
    Err(found)
}
