//! Deadlines that a simulation misses.

use std::collections::BTreeMap;

use punctual_analysis::{Answer, Answers, Pattern, Refutation, Test};
use punctual_model::Host;
use punctual_model::host::Work;
use punctual_model::index::TaskIx;
use punctual_sched::Duration;
use punctual_sim::simulate_observed;

use crate::misses::{Miss, Misses};
use crate::overload;
use crate::patterns::{Draws, budgets, move_one, patterns, released, separation};

/// So many of the longest period are simulated after the last first release. With ten, and 48 random patterns
/// instead of 12, `check examples/five-vms.toml` took 8.6 s of a processor unoptimised instead of 1.05 s.
const PERIODS: u64 = 4;

/// No simulation releases more jobs.
const JOBS_MAX: u64 = 50_000;

/// So many patterns are tried that change one first release of another one.
const MOVES_MAX: usize = 100;

/// They release no more jobs than this, together. `cargo run --release -p punctual-check --example verdicts
/// -- 500`, which checks 1,012 hosts, took 13.6 s of a processor with these patterns and 2.7 s without.
const MOVED_JOBS_MAX: u64 = 100_000;

/// Refutes those tasks about which nothing is known and that miss a deadline under one of the patterns.
pub(crate) fn refute(host: &Host, answers: &mut Answers) {
    let is_open = |task: &TaskIx| {
        let has_jobs = matches!(host.tasks[task.0].work, Work::Jobs { .. });
        has_jobs && matches!(answers.tasks[task].answer, Answer::Unknown(_))
    };
    let open: Vec<TaskIx> = answers.tasks.keys().copied().filter(is_open).collect();
    if open.is_empty() {
        return;
    }
    let mut search = Search { host, answers, open, nearest: BTreeMap::new(), jobs: 0 };
    for pattern in patterns(host) {
        search.attempt(pattern);
        if search.open.is_empty() {
            return;
        }
    }
    search.climb();
}

/// A search for patterns that miss.
struct Search<'h> {
    host: &'h Host,
    answers: &'h mut Answers,
    open: Vec<TaskIx>,
    /// By open task: the least time that a job had left, and the pattern in which it was so.
    nearest: BTreeMap<TaskIx, (Duration, Pattern)>,
    /// How many jobs ended in all simulations.
    jobs: u64,
}

impl Search<'_> {
    /// Refutes what the pattern refutes, and notes it where it comes nearer to a miss.
    fn attempt(&mut self, pattern: Pattern) {
        let misses = misses_under(self.host, &pattern);
        self.jobs += misses.jobs;
        self.open.retain(|task| {
            let Some(miss) = misses.first.get(task) else { return true };
            if let Some(of) = self.answers.tasks.get_mut(task) {
                of.answer = Answer::Refuted(refutation(*task, *miss, pattern.clone()));
                of.test = Test::Simulation;
            }
            false
        });
        for task in &self.open {
            let slack = misses.least_slack[task.0];
            if self.nearest.get(task).is_none_or(|(least, _)| slack <= *least) {
                self.nearest.insert(*task, (slack, pattern.clone()));
            }
        }
    }

    /// Tries patterns that differ in one first release from the one that came nearest to a miss of a task;
    /// one task after the other.
    fn climb(&mut self) {
        let budgets = budgets(self.host);
        let mut random = Draws { number: 1 << 32 };
        let before = self.jobs;
        for step in 0..MOVES_MAX {
            if self.open.is_empty() || self.jobs - before > MOVED_JOBS_MAX {
                return;
            }
            let task = self.open[step % self.open.len()];
            let Some((_, pattern)) = self.nearest.get(&task) else { return };
            let mut first = pattern.first_releases(self.host.tasks.len());
            move_one(self.host, &budgets, &mut random, &mut first);
            self.attempt(released(self.host, &first));
        }
    }
}

fn refutation(task: TaskIx, miss: Miss, pattern: Pattern) -> Refutation {
    Refutation {
        pattern,
        missed_by: miss.due,
        late_min: Some(miss.late_min),
        short: None,
        one_of: vec![task],
    }
}

/// What is missed in a simulation of the host under this pattern. A host that the simulator refuses misses
/// nothing.
fn misses_under(host: &Host, pattern: &Pattern) -> Misses {
    let mut host = pattern.apply(host);
    host.duration = horizon(&host, pattern);
    let mut misses = Misses::of(&host);
    if simulate_observed(&host, &mut misses).is_err() {
        misses.first.clear();
    }
    misses
}

/// How long to simulate.
fn horizon(host: &Host, pattern: &Pattern) -> Duration {
    let separations =
        || host.tasks.iter().filter(|task| task.deadline().is_some()).map(|t| separation(&t.work));
    let longest = separations().max().unwrap_or_default();
    let wanted = (longest * PERIODS).max(overload::of_tasks(host).unwrap_or_default());
    let wanted = pattern.last_first_release() + wanted;
    // As many jobs as there may be, however short the shortest period is.
    let per_s: u64 = separations().map(|each| 1_000_000_000 / each.as_ns().max(1) + 1).sum();
    wanted.min(Duration::from_ms(JOBS_MAX * 1_000 / per_s.max(1)).max(longest))
}

#[cfg(test)]
mod tests {
    use punctual_testkit::hosts::{exact, ms, pooled, task, vm};

    use super::*;

    #[test]
    fn a_simulation_lasts_four_of_the_longest_period_unless_there_are_too_many_jobs() {
        let mut host = pooled(1, ms(1), exact("fixed-priority"));
        let guest = vm(&mut host, Default::default());
        task(&mut host, guest, 1, ms(1), ms(20));
        assert_eq!(horizon(&host, &Pattern::Synchronous), ms(80));
        task(&mut host, guest, 2, Duration::from_ns(10), Duration::from_us(1));
        assert_eq!(horizon(&host, &Pattern::Synchronous), ms(49));
    }
}
