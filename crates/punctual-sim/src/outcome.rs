//! The end of a run: what was measured.

use punctual_model::host::Work;
use punctual_model::index::{PoolIx, TaskIx};
use punctual_model::results::{
    ProcessorTotals, Results, ResultsBuilder, SchedulerTotals, Source, TaskTotals, VcpuTotals,
};

use punctual_sched::Instant;

use crate::arrivals::Job;
use crate::index::{ProcessorIx, UnitIx};
use crate::locks::Locks;
use crate::machine::{BudgetCounts, Machine, Proc, Sched, TaskState};
use crate::min_tree::MinTree;
use crate::observe::{Event, Observer};

impl<O: Observer> Machine<'_, O> {
    /// Charges everything up to the end and counts the jobs that are overdue.
    pub(crate) fn finish(&mut self) {
        self.now = self.end;
        self.notify(Event::Instant);
        for proc in 0..self.procs.len() {
            self.charge(ProcessorIx::new(proc));
        }
        for task in 0..self.tasks.len() {
            self.count_overdue(TaskIx(task));
        }
        self.finish_networks();
        for processor in 0..self.physical {
            let &Proc { busy, idle, overhead, .. } = &self.procs[processor];
            debug_assert_eq!(
                busy + idle + overhead,
                self.end.since(Instant::ZERO),
                "of processor {processor}"
            );
            let processor = ProcessorIx::new(processor);
            self.notify(Event::Accounted { processor, busy, idle, overhead });
        }
        self.notify(Event::End);
    }

    /// Jobs that were released, are not finished, and whose deadline has passed.
    fn count_overdue(&mut self, task: TaskIx) {
        let &TaskState { arrivals, current, head, .. } = &self.tasks[task.0];
        if arrivals.is_hog() {
            return;
        }
        let is_served = matches!(self.host.tasks[task.0].work, Work::Served { .. });
        let mut job = current;
        for waiting in 0.. {
            if is_served {
                // Released by packets, in the order of their arrival.
                let Some(release) = self.net.release_of(task, waiting) else { break };
                job = Job { number: current.number + waiting as u64, release };
            }
            if job.number >= head.number || arrivals.deadline(job) > self.end {
                break;
            }
            let jobs = &mut self.tasks[task.0].jobs;
            jobs.due += 1;
            jobs.missed += 1;
            self.notify(Event::Overdue { task, job: job.number, release: job.release });
            job = arrivals.after(job);
        }
    }

    /// The results. The machine's parts go one by one before the distributions of domains and pools are added
    /// up, so that a large machine never holds both.
    pub(crate) fn results(mut self) -> Results {
        let host = self.host;
        let budgets: Vec<BudgetCounts> =
            (0..self.units.len()).map(|unit| self.budget_counts(UnitIx::new(unit))).collect();
        let decisions: u64 = self.procs.iter().map(|p| p.decisions).sum();
        let events = self.events + decisions + budgets.iter().map(|b| b.replenishments).sum::<u64>();
        let mut results = ResultsBuilder::new(host, Source::Simulation);
        results.events(events);
        for (processor, state) in self.procs[..self.physical].iter().enumerate() {
            results.processor(processor, &processor_totals(state));
        }
        let (pools, guests) = self.scheds.split_at(host.pools.len());
        for (pool, sched) in pools.iter().enumerate() {
            results.pool(PoolIx(pool), &self.scheduler_totals(sched, &budgets));
        }
        results.guests(guests.iter().map(|sched| self.scheduler_totals(sched, &budgets)));
        results.network_times(self.network_times());
        self.scheds = Vec::new();
        self.procs = Vec::new();
        self.releases = MinTree::new(0);
        self.timers = MinTree::new(0);
        self.proc_events = MinTree::new(0);
        self.locks = Locks::default();
        results.networks(self.network_results(), self.flow_results(), self.chain_results());
        results.tasks(self.task_totals());
        results.vcpus(self.vcpu_totals(budgets));
        drop(self);
        results.build()
    }

    /// How often the unit ran out of budget and got some, under all policies so far.
    pub(crate) fn budget_counts(&self, unit: UnitIx) -> BudgetCounts {
        let u = &self.units[unit];
        let account = self.scheds[u.sched].policy.account(u.id);
        let before = self.changes.counted(u.sched, u.id);
        BudgetCounts {
            exhaustions: before.exhaustions + account.exhaustions,
            replenishments: before.replenishments + account.replenishments,
        }
    }

    /// What a scheduler's processors and units add up to.
    fn scheduler_totals(&self, sched: &Sched, budgets: &[BudgetCounts]) -> SchedulerTotals {
        let mut sum = SchedulerTotals::default();
        for &proc in &sched.procs {
            sum.processors.add(&processor_totals(&self.procs[proc.index()]));
        }
        for &unit in &sched.units {
            sum.migrations += self.units[unit.index()].migrations;
            sum.exhaustions += budgets[unit.index()].exhaustions;
            sum.replenishments += budgets[unit.index()].replenishments;
        }
        sum
    }

    fn task_totals(&mut self) -> impl Iterator<Item = TaskTotals> {
        let units = &self.units[self.host.vcpus.len()..];
        let smp = std::mem::take(&mut self.smp);
        let tasks = std::mem::take(&mut self.tasks).into_iter().zip(units).enumerate();
        tasks.map(move |(task, (state, unit))| TaskTotals {
            smp: smp.rounds(TaskIx(task), state.executed),
            jobs: state.jobs,
            cpu_time: state.executed,
            context_switches: unit.context_switches,
            migrations: unit.migrations,
            ..TaskTotals::default()
        })
    }

    fn vcpu_totals(&mut self, budgets: Vec<BudgetCounts>) -> impl Iterator<Item = VcpuTotals> {
        let states = std::mem::take(&mut self.vcpus).into_iter();
        states.zip(&self.units).zip(budgets).map(|((state, unit), budget)| VcpuTotals {
            cpu_time: state.charged,
            idled_away: state.idled_away,
            wakes: state.wakes,
            sleeps: state.sleeps,
            exhaustions: budget.exhaustions,
            replenishments: budget.replenishments,
            context_switches: unit.context_switches,
            migrations: unit.migrations,
            wake_latency: state.wake_latency,
            ..VcpuTotals::default()
        })
    }
}

fn processor_totals(p: &Proc) -> ProcessorTotals {
    ProcessorTotals {
        busy: p.busy,
        idle: p.idle,
        overhead: p.overhead,
        decisions: p.decisions,
        context_switches: p.context_switches,
    }
}
