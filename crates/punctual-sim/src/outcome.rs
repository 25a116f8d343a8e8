//! The end of a run: what was measured.

use punctual_model::host::Parent;
use punctual_model::results::{
    self, DomainResult, JobStats, PoolResult, ProcessorResult, Results, Source, TaskResult, VcpuResult,
};
use punctual_model::trace::TraceSink;
use punctual_sched::{Account, Duration};

use crate::machine::Machine;

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
        self.check_ledger();
    }

    /// Jobs that were released, are not finished, and whose deadline has passed.
    fn count_overdue(&mut self, task: usize) {
        let state = &mut self.tasks[task];
        if state.stream.is_hog() {
            return;
        }
        let mut job = state.current;
        while job.number < state.head.number && state.stream.deadline(job) <= self.end {
            state.jobs.due += 1;
            state.jobs.missed += 1;
            job = state.stream.after(job);
        }
    }

    pub(crate) fn results(self) -> Results {
        let (by_pool, by_domain) = self.jobs_by_parent();
        let pools = by_pool.into_iter().enumerate().map(|(i, jobs)| self.pool_result(i, jobs)).collect();
        let domains =
            by_domain.into_iter().enumerate().map(|(i, jobs)| self.domain_result(i, jobs)).collect();
        let processors = (0..self.physical).map(|p| self.processor_result(p)).collect::<Vec<_>>();
        let vcpus = (0..self.vcpus.len()).map(|v| self.vcpu_result(v)).collect::<Vec<_>>();
        let decisions: u64 = self.procs.iter().map(|p| p.decisions).sum();
        let replenishments: u64 = (0..self.units.len()).map(|u| self.account(u).replenishments).sum();
        let host = self.host;
        let events = self.events + decisions + replenishments;
        let tasks = self.task_results();
        Results {
            format: results::FORMAT.into(),
            version: results::VERSION,
            program: concat!("punctual ", env!("CARGO_PKG_VERSION")).into(),
            source: Source::Simulation,
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
        }
    }

    fn account(&self, unit: usize) -> Account {
        let u = &self.units[unit];
        self.scheds[u.sched as usize].policy.account(u.id)
    }

    /// Tasks last: their recorders move out of the machine.
    fn task_results(self) -> Vec<TaskResult> {
        let first = self.vcpus.len();
        let host = self.host;
        let units = &self.units;
        self.tasks
            .into_iter()
            .enumerate()
            .map(|(i, state)| TaskResult {
                name: host.tasks[i].name.clone(),
                parent: parent_name(host, host.tasks[i].parent),
                jobs: state.jobs,
                cpu_time_ns: units[first + i].cpu_time.as_ns(),
                context_switches: units[first + i].context_switches,
                migrations: units[first + i].migrations,
            })
            .collect()
    }

    fn vcpu_result(&self, vcpu: usize) -> VcpuResult {
        let (unit, state, account) = (&self.units[vcpu], &self.vcpus[vcpu], self.account(vcpu));
        VcpuResult {
            name: self.host.vcpus[vcpu].name.clone(),
            cpu_time_ns: unit.cpu_time.as_ns(),
            idled_away_ns: state.idled_away.as_ns(),
            wakes: state.wakes,
            sleeps: state.sleeps,
            exhaustions: account.exhaustions,
            replenishments: account.replenishments,
            context_switches: unit.context_switches,
            migrations: unit.migrations,
            wake_latency: state.wake_latency.clone(),
        }
    }

    fn domain_result(&self, domain: usize, jobs: JobStats) -> DomainResult {
        let d = &self.host.domains[domain];
        let vcpus = || d.vcpus.clone();
        let inside = &self.scheds[self.host.pools.len() + domain];
        let procs = || inside.procs.iter().map(|&p| &self.procs[p as usize]);
        DomainResult {
            name: d.name.clone(),
            jobs,
            cpu_time_ns: vcpus().map(|v| self.units[v].cpu_time.as_ns()).sum(),
            decisions: procs().map(|p| p.decisions).sum(),
            context_switches: procs().map(|p| p.context_switches).sum(),
            migrations: inside.units.iter().map(|&u| self.units[u as usize].migrations).sum(),
            exhaustions: vcpus().map(|v| self.account(v).exhaustions).sum(),
            replenishments: vcpus().map(|v| self.account(v).replenishments).sum(),
        }
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

    fn pool_result(&self, pool: usize, jobs: JobStats) -> PoolResult {
        let sched = &self.scheds[pool];
        let procs = || sched.procs.iter().map(|&p| &self.procs[p as usize]);
        let accounts = || sched.units.iter().map(|&u| self.account(u as usize));
        let time = |f: fn(&crate::machine::Proc) -> Duration| procs().map(|p| f(p).as_ns()).sum();
        PoolResult {
            name: self.host.pools[pool].name.clone(),
            policy: sched.info.name.into(),
            processors: sched.procs.len(),
            jobs,
            busy_ns: time(|p| p.busy),
            idle_ns: time(|p| p.idle),
            overhead_ns: time(|p| p.overhead),
            decisions: procs().map(|p| p.decisions).sum(),
            context_switches: procs().map(|p| p.context_switches).sum(),
            migrations: sched.units.iter().map(|&u| self.units[u as usize].migrations).sum(),
            exhaustions: accounts().map(|a| a.exhaustions).sum(),
            replenishments: accounts().map(|a| a.replenishments).sum(),
        }
    }

    /// The jobs of all tasks under each pool, and of each domain's own tasks.
    fn jobs_by_parent(&self) -> (Vec<JobStats>, Vec<JobStats>) {
        let mut by_pool = vec![JobStats::default(); self.host.pools.len()];
        let mut by_domain = vec![JobStats::default(); self.host.domains.len()];
        for (task, state) in self.host.tasks.iter().zip(&self.tasks) {
            by_pool[self.host.pool_of(task.parent).0].merge(&state.jobs);
            if let Parent::Domain(domain) = task.parent {
                by_domain[domain.0].merge(&state.jobs);
            }
        }
        (by_pool, by_domain)
    }
}

fn parent_name(host: &punctual_model::Host, parent: Parent) -> String {
    match parent {
        Parent::Pool(pool) => host.pools[pool.0].name.clone(),
        Parent::Domain(domain) => host.domains[domain.0].name.clone(),
    }
}
