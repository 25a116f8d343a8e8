//! The end of a run: what was measured.

use punctual_model::Host;
use punctual_model::host::{Domain, Parent, Pool, Task, Vcpu, Work};
use punctual_model::results::{
    self, DomainResult, JobStats, PoolResult, ProcessorResult, Results, Source, TaskResult, VcpuResult,
};
use punctual_model::trace::TraceSink;
use punctual_sched::Duration;

use crate::arrivals::Job;
use crate::machine::{Machine, Sched, TaskState, Unit, VcpuState};
use crate::min_tree::MinTree;

impl<T: TraceSink> Machine<'_, T> {
    /// Charges everything up to the end and counts the jobs that are overdue.
    pub(crate) fn finish(&mut self) {
        self.now = self.end;
        if T::ENABLED {
            self.flush_trace(self.end);
        }
        for proc in 0..self.procs.len() {
            self.charge(proc);
        }
        for task in 0..self.tasks.len() {
            self.count_overdue(task);
        }
        self.finish_networks();
        self.check_ledger();
    }

    /// Jobs that were released, are not finished, and whose deadline has passed.
    fn count_overdue(&mut self, task: usize) {
        let state = &mut self.tasks[task];
        if state.arrivals.is_hog() {
            return;
        }
        if matches!(self.host.tasks[task].work, Work::Served { .. }) {
            let overdue = self.net.overdue(task, |release| {
                let job = Job { number: 0, release };
                state.arrivals.deadline(job) <= self.end
            });
            state.jobs.due += overdue;
            state.jobs.missed += overdue;
            return;
        }
        let mut job = state.current;
        while job.number < state.head.number && state.arrivals.deadline(job) <= self.end {
            state.jobs.due += 1;
            state.jobs.missed += 1;
            job = state.arrivals.after(job);
        }
    }

    /// The results, part by part: the schedulers go before the distributions of domains and pools are added
    /// up, so that a large machine never holds both.
    pub(crate) fn results(mut self) -> Results {
        let host = self.host;
        let accounts: Vec<Refills> = (0..self.units.len()).map(|unit| self.refills(unit)).collect();
        let decisions: u64 = self.procs.iter().map(|p| p.decisions).sum();
        let events = self.events + decisions + accounts.iter().map(|a| a.replenishments).sum::<u64>();
        let totals: Vec<Totals> = self.scheds.iter().map(|s| self.totals(s, &accounts)).collect();
        let processors = (0..self.physical).map(|p| self.processor_result(p)).collect();
        self.scheds = Vec::new();
        self.procs = Vec::new();
        self.releases = MinTree::new(0);
        self.timers = MinTree::new(0);
        let (networks, flows) = (self.network_results(), self.flow_results());
        let chains = self.chain_results();
        let network_time = self.network_time();
        let tasks = self.task_results();
        let (by_pool, by_domain) = jobs_by_parent(host, &tasks);
        let (of_pools, of_guests) = totals.split_at(host.pools.len());
        let pools = by_pool.into_iter().zip(of_pools).zip(&host.pools);
        let pools = pools.map(|((jobs, totals), pool)| pool_result(pool, totals, jobs)).collect();
        let domains = by_domain.into_iter().zip(of_guests).zip(host.domains.iter().zip(network_time));
        let domains = domains.map(|((jobs, totals), (domain, network_time))| {
            let vcpus = domain.vcpus.clone();
            let result = domain_result(domain, totals, jobs, &self.units[vcpus.clone()], &accounts[vcpus]);
            DomainResult { network_ns: network_time.as_ns(), ..result }
        });
        let domains = domains.collect();
        let vcpus = self.vcpu_results(&accounts);
        drop((totals, accounts));
        Results {
            format: results::FORMAT.into(),
            version: results::VERSION,
            program: concat!("punctual ", env!("CARGO_PKG_VERSION")).into(),
            source: Source::Simulation,
            machine: None,
            host: host.name.clone(),
            seed: host.seed,
            runs: 1,
            duration_ns: host.duration.as_ns(),
            events,
            pools,
            processors,
            domains,
            vcpus,
            tasks,
            networks,
            flows,
            chains,
        }
    }

    fn refills(&self, unit: usize) -> Refills {
        let u = &self.units[unit];
        let account = self.scheds[u.sched as usize].policy.account(u.id);
        Refills { exhaustions: account.exhaustions, replenishments: account.replenishments }
    }

    /// What a scheduler's processors and units add up to.
    fn totals(&self, sched: &Sched, accounts: &[Refills]) -> Totals {
        let mut sum = Totals::default();
        for &proc in &sched.procs {
            let p = &self.procs[proc as usize];
            sum.busy += p.busy;
            sum.idle += p.idle;
            sum.overhead += p.overhead;
            sum.decisions += p.decisions;
            sum.context_switches += p.context_switches;
        }
        for &unit in &sched.units {
            sum.migrations += self.units[unit as usize].migrations;
            sum.exhaustions += accounts[unit as usize].exhaustions;
            sum.replenishments += accounts[unit as usize].replenishments;
        }
        sum
    }

    fn processor_result(&self, processor: usize) -> ProcessorResult {
        let p = &self.procs[processor];
        ProcessorResult {
            processor,
            pool: self.host.pools.get(p.sched as usize).map(|pool| pool.name.clone()),
            busy_ns: p.busy.as_ns(),
            idle_ns: p.idle.as_ns(),
            overhead_ns: p.overhead.as_ns(),
            decisions: p.decisions,
            context_switches: p.context_switches,
        }
    }

    fn vcpu_results(&mut self, accounts: &[Refills]) -> Vec<VcpuResult> {
        let states = std::mem::take(&mut self.vcpus).into_iter();
        let entries = states.zip(&self.host.vcpus).zip(&self.units).zip(accounts);
        let result = |(((state, vcpu), unit), account): (((VcpuState, &Vcpu), &Unit), &Refills)| VcpuResult {
            name: vcpu.name.clone(),
            cpu_time_ns: unit.charged.as_ns(),
            idled_away_ns: state.idled_away.as_ns(),
            wakes: state.wakes,
            sleeps: state.sleeps,
            exhaustions: account.exhaustions,
            replenishments: account.replenishments,
            context_switches: unit.context_switches,
            migrations: unit.migrations,
            wake_latency: state.wake_latency,
        };
        entries.map(result).collect()
    }

    fn task_results(&mut self) -> Vec<TaskResult> {
        let host = self.host;
        let units = &self.units[host.vcpus.len()..];
        let entries = std::mem::take(&mut self.tasks).into_iter().zip(&host.tasks).zip(units);
        let result = |((state, task), unit): ((TaskState, &Task), &Unit)| TaskResult {
            name: task.name.clone(),
            parent: parent_name(host, task.parent),
            jobs: state.jobs,
            cpu_time_ns: state.executed.as_ns(),
            context_switches: unit.context_switches,
            migrations: unit.migrations,
        };
        entries.map(result).collect()
    }
}

/// The jobs of all tasks under each pool, and of each domain's own tasks.
fn jobs_by_parent(host: &Host, tasks: &[TaskResult]) -> (Vec<JobStats>, Vec<JobStats>) {
    let mut by_pool = vec![JobStats::default(); host.pools.len()];
    let mut by_domain = vec![JobStats::default(); host.domains.len()];
    for (task, result) in host.tasks.iter().zip(tasks) {
        by_pool[host.pool_of(task.parent).0].merge(&result.jobs);
        if let Parent::Domain(domain) = task.parent {
            by_domain[domain.0].merge(&result.jobs);
        }
    }
    (by_pool, by_domain)
}

/// How often a unit ran out of budget and got some.
struct Refills {
    exhaustions: u64,
    replenishments: u64,
}

/// A scheduler's processors and units, added up.
#[derive(Default)]
struct Totals {
    busy: Duration,
    idle: Duration,
    overhead: Duration,
    decisions: u64,
    context_switches: u64,
    migrations: u64,
    exhaustions: u64,
    replenishments: u64,
}

fn pool_result(pool: &Pool, totals: &Totals, jobs: JobStats) -> PoolResult {
    PoolResult {
        name: pool.name.clone(),
        policy: pool.policy.info.name.into(),
        processors: pool.processors.len(),
        jobs,
        busy_ns: totals.busy.as_ns(),
        idle_ns: totals.idle.as_ns(),
        overhead_ns: totals.overhead.as_ns(),
        decisions: totals.decisions,
        context_switches: totals.context_switches,
        migrations: totals.migrations,
        exhaustions: totals.exhaustions,
        replenishments: totals.replenishments,
    }
}

/// `vcpus` and `accounts` are those of the domain's own vCPUs, `totals` of what its guest schedules.
fn domain_result(
    domain: &Domain,
    totals: &Totals,
    jobs: JobStats,
    vcpus: &[Unit],
    accounts: &[Refills],
) -> DomainResult {
    DomainResult {
        name: domain.name.clone(),
        jobs,
        cpu_time_ns: vcpus.iter().map(|vcpu| vcpu.charged.as_ns()).sum(),
        network_ns: 0,
        decisions: totals.decisions,
        context_switches: totals.context_switches,
        migrations: totals.migrations,
        exhaustions: accounts.iter().map(|a| a.exhaustions).sum(),
        replenishments: accounts.iter().map(|a| a.replenishments).sum(),
    }
}

fn parent_name(host: &Host, parent: Parent) -> String {
    match parent {
        Parent::Pool(pool) => host.pools[pool.0].name.clone(),
        Parent::Domain(domain) => host.domains[domain.0].name.clone(),
    }
}
