//! What the tests find out, as values that the floors hand upwards.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use punctual_model::guarantees::Dominant;
use punctual_model::host::Work;
use punctual_model::index::{PoolIx, TaskIx, VcpuIx};
use punctual_sched::Duration;

use crate::answer::{Answer, Refutation, TaskAnswer, Test};
use crate::demand::{Demand, NANOSECOND, requested};
use crate::inputs::{Inputs, UnitIx};
use crate::overhead::Decisions;
use crate::reason::Reason;
use crate::several_vcpus::VcpuSupply;
use crate::supply::Supply;

/// How a vCPU gets its time, as its kernel sees it.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub(crate) supply: Supply,
    /// What is as urgent or more, in the same supply.
    pub(crate) above: Vec<Demand>,
    pub(crate) costs: Decisions,
}

impl Service {
    /// Nothing beside it in the supply.
    pub(crate) fn alone(supply: Supply) -> Self {
        Service { supply, above: Vec::new(), costs: Decisions::default() }
    }

    /// How long `work` takes at most, when it is in no longer than `window`.
    pub(crate) fn time(&self, work: Duration, window: Duration) -> Duration {
        self.supply.time_for(work + requested(&self.above, window) + self.costs.within(window))
    }
}

/// Does a unit surely get its budget in every period?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Delivery {
    Sure,
    /// Nothing of it is left to use; a greater one may be.
    TooSmall,
    /// Others may take its time, and no greater one changes that.
    Unsure,
}

/// The answer for the budget of a pool's unit.
#[derive(Clone, Debug)]
pub(crate) struct BudgetAnswer {
    pub(crate) period: Duration,
    pub(crate) delivery: Delivery,
    pub(crate) answer: Answer,
}

impl BudgetAnswer {
    /// `time`: from the start of a period to the end of the budget, or why it has no bound.
    pub(crate) fn new(period: Duration, time: Result<Duration, Reason>) -> Self {
        let (delivery, answer) = match time {
            Ok(bound) => (Delivery::Sure, Answer::Guaranteed { bound, slack: period - bound }),
            Err(reason @ (Reason::NothingLeft { .. } | Reason::BestEffort)) => {
                (Delivery::TooSmall, Answer::Unknown(reason))
            }
            Err(reason) => (Delivery::Unsure, Answer::Unknown(reason)),
        };
        BudgetAnswer { period, delivery, answer }
    }

    pub(crate) fn is_delivered(&self) -> bool {
        self.delivery == Delivery::Sure
    }

    /// The same, refuted: it is not delivered in its first period when all vCPUs are busy.
    pub(crate) fn refuted(self) -> Self {
        BudgetAnswer { answer: Answer::Refuted(Refutation::all_busy(self.period, None)), ..self }
    }
}

/// What the tests found out about a unit, a group of units, or a host.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    /// A task has one answer: that of the test which was asked first.
    pub(crate) tasks: BTreeMap<TaskIx, TaskAnswer>,
    /// Units without a budget have no entry.
    pub(crate) budgets: BTreeMap<UnitIx, BudgetAnswer>,
    /// vCPUs with kernel work. Without an entry nothing is known.
    pub(crate) services: BTreeMap<VcpuIx, Service>,
    /// vCPUs of domains that have several: what each gives to its guest, where that is known.
    pub(crate) supplies: BTreeMap<VcpuIx, VcpuSupply>,
    /// Tasks that packets release: a bound on the response time, whatever the deadline.
    pub(crate) served_times: BTreeMap<TaskIx, Duration>,
}

impl Findings {
    /// These, then the `later` ones.
    pub(crate) fn and(mut self, later: Findings) -> Self {
        if self.tasks.is_empty() {
            self.tasks = later.tasks;
        } else {
            later.tasks.into_iter().for_each(|(task, answer)| self.add(task, answer));
        }
        self.budgets.extend(later.budgets);
        self.services.extend(later.services);
        self.supplies.extend(later.supplies);
        self.served_times.extend(later.served_times);
        self
    }

    /// These, with the shorter bounds of `other` tests.
    pub(crate) fn improved_by(mut self, other: Findings) -> Self {
        for (task, answer) in other.tasks {
            let Answer::Guaranteed { bound, .. } = answer.answer else { continue };
            let known = self.tasks.get(&task).map(|known| &known.answer);
            if !matches!(known, Some(Answer::Guaranteed { bound: known, .. }) if *known <= bound) {
                self.tasks.insert(task, answer);
            }
        }
        self
    }

    /// These, with the guarantees of `other` tests for tasks about which nothing is known.
    pub(crate) fn completed_by(mut self, other: Findings) -> Self {
        for (task, answer) in other.tasks.into_iter().filter(|(_, of)| of.answer.is_guaranteed()) {
            let known = self.tasks.get(&task).map(|known| &known.answer);
            if matches!(known, None | Some(Answer::Unknown(_))) {
                self.tasks.insert(task, answer);
            }
        }
        self
    }

    fn add(&mut self, task: TaskIx, answer: TaskAnswer) {
        if let Entry::Vacant(entry) = self.tasks.entry(task) {
            entry.insert(answer);
        }
    }

    /// Adds the answer for a task. Busy loops have no deadline and no answer; a cost beyond the deadline
    /// needs no test.
    fn answer(
        &mut self,
        inputs: Inputs<'_>,
        task: TaskIx,
        answer: Answer,
        dominant: Option<Dominant>,
        test: Test,
    ) {
        let (cost, deadline) = match inputs.work(task) {
            Work::Jobs { cost, deadline, .. } => (cost.max.max(NANOSECOND), *deadline),
            // No packet need ever come.
            Work::Served { deadline, .. } => (Duration::ZERO, *deadline),
            Work::Hog { .. } => return,
        };
        let answer = if cost > deadline {
            let answer =
                Answer::Refuted(Refutation::synchronous(vec![task], deadline).late(Some(cost - deadline)));
            TaskAnswer { deadline, answer, dominant: None, test: Test::CostBeyondDeadline }
        } else {
            TaskAnswer { deadline, answer, dominant, test }
        };
        self.add(task, answer);
    }

    /// A bound on a task's response time. Within the deadline it is a guarantee.
    pub(crate) fn bounded(
        &mut self,
        inputs: Inputs<'_>,
        task: TaskIx,
        bound: Duration,
        dominant: Option<Dominant>,
        test: Test,
    ) {
        let deadline = inputs.demand(task).map_or(Duration::ZERO, |demand| demand.deadline);
        let answer = match deadline.checked_sub(bound) {
            Some(slack) => Answer::Guaranteed { bound, slack },
            None => Answer::Unknown(Reason::BeyondDeadline { bound, deadline }),
        };
        self.answer(inputs, task, answer, dominant, test);
    }

    pub(crate) fn refuted(&mut self, inputs: Inputs<'_>, task: TaskIx, refutation: Refutation, test: Test) {
        self.answer(inputs, task, Answer::Refuted(refutation), None, test);
    }

    pub(crate) fn unknown(&mut self, inputs: Inputs<'_>, task: TaskIx, reason: Reason, test: Test) {
        self.answer(inputs, task, Answer::Unknown(reason), None, test);
    }

    /// Nothing is known about any of these tasks.
    pub(crate) fn all_unknown(
        inputs: Inputs<'_>,
        tasks: impl IntoIterator<Item = TaskIx>,
        reason: Reason,
        test: Test,
    ) -> Self {
        let mut found = Findings::default();
        tasks.into_iter().for_each(|task| found.unknown(inputs, task, reason, test));
        found
    }

    /// Nothing is known about any task below these units.
    pub(crate) fn unknown_below(
        inputs: Inputs<'_>,
        units: impl IntoIterator<Item = UnitIx>,
        reason: Reason,
        test: Test,
    ) -> Self {
        let mut found = Findings::default();
        for unit in units {
            found.mark_unknown_below(inputs, unit, reason, test);
        }
        found
    }

    /// Nothing is known about these units of a pool: neither about their budgets, where its policy keeps any,
    /// nor about the tasks below them.
    pub(crate) fn unknown_units(
        inputs: Inputs<'_>,
        pool: PoolIx,
        units: impl IntoIterator<Item = UnitIx>,
        reason: Reason,
        test: Test,
    ) -> Self {
        let info = inputs.pool(pool).policy.info;
        let mut found = Findings::default();
        for unit in units {
            found.mark_unknown_below(inputs, unit, reason, test);
            let params = inputs.params(unit);
            let reserved = info.budget(params).and(info.period(params)).filter(|period| !period.is_zero());
            if let Some(period) = reserved {
                found.budgets.insert(unit, BudgetAnswer::new(period, Err(reason)));
            }
        }
        found
    }

    fn mark_unknown_below(&mut self, inputs: Inputs<'_>, unit: UnitIx, reason: Reason, test: Test) {
        match unit {
            UnitIx::Task(task) => self.unknown(inputs, task, reason, test),
            UnitIx::Vcpu(vcpu) => {
                for unit in inputs.units_beside(vcpu) {
                    self.mark_unknown_below(inputs, unit, reason, test);
                }
            }
        }
    }
}

/// The greatest of the parts of a response time, the first of equals.
pub(crate) fn greatest(parts: &[(Dominant, Duration)]) -> Option<Dominant> {
    parts.iter().rev().max_by_key(|(_, time)| *time).map(|(what, _)| *what)
}
