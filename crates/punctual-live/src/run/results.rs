//! The last stage: everything is put back, and what was measured is put together.

use punctual_model::host::{Host, Parent, Pool, Vcpu};
use punctual_model::index::PoolIx;
use punctual_model::results::{
    ProcessorTotals, Results, ResultsBuilder, SchedulerTotals, Source, TaskTotals, VcpuTotals,
};
use punctual_sched::Duration;

use super::error::Error;
use super::measure::{Measured, Measurement};
use super::{LiveRun, Outcome};
use crate::machine;
use crate::session::{LinuxScheduler, PoolReport, Report};

impl Measured<'_> {
    /// Ends the session and reports.
    pub fn finish(self) -> Result<Outcome, Error> {
        let Measured { run, measurement } = self;
        let LiveRun { host, options, pools, session, domains, unchanged } = run;
        let report = session.finish()?;
        // The session has ended their processes; this waits for them.
        drop(domains);
        // A run that was stopped is as long as it was.
        let host = Host { duration: measurement.length, ..host.clone() };
        let results = results(&host, options.linux, &pools, &report, &measurement);
        let Measurement { notices, stopped, .. } = measurement;
        Ok(Outcome { results, report, notices, unchanged, stopped })
    }
}

fn results(
    host: &Host,
    linux: Option<LinuxScheduler>,
    pools: &[PoolIx],
    report: &Report,
    measurement: &Measurement,
) -> Results {
    let mut results = ResultsBuilder::new(host, Source::Live);
    results.machine(machine::description());
    results.events(report.pools.iter().map(|pool| pool.evidence.looks).sum());
    results.tasks(measurement.jobs.iter().zip(&measurement.executed).map(|(jobs, &cpu_time)| TaskTotals {
        jobs: jobs.clone(),
        cpu_time,
        ..TaskTotals::default()
    }));
    results.verdicts(measurement.verdicts.iter().cloned());
    let vcpus: Vec<VcpuTotals> =
        host.vcpus.iter().map(|vcpu| vcpu_totals(&vcpu.name, report, measurement)).collect();
    for (index, pool) in host.pools.iter().enumerate() {
        let ix = PoolIx(index);
        if let Some(linux) = linux {
            results.policy(ix, linux.name());
        }
        let done = pools.iter().position(|used| *used == ix).and_then(|at| report.pools.get(at));
        let enforcers = Enforcers::within_run(done, report.elapsed, host.duration);
        let units = units_of(host, ix, &vcpus);
        results.pool(ix, &pool_totals(host, pool, &units, &enforcers));
        for (at, &processor) in pool.processors.iter().enumerate() {
            results.processor(processor, &processor_totals(host, pool, at, &units, &enforcers));
        }
    }
    results.vcpus(vcpus);
    results.build()
}

fn vcpu_totals(name: &str, report: &Report, measurement: &Measurement) -> VcpuTotals {
    // A vCPU whose thread was replaced has several times.
    let times = measurement.cpu_time.iter().filter(|(known, _)| known == name);
    let cpu_time = times.map(|(_, time)| *time).sum();
    match report.units.iter().find(|unit| unit.name == name) {
        None => VcpuTotals { cpu_time, ..VcpuTotals::default() },
        Some(unit) => VcpuTotals {
            cpu_time,
            idled_away: unit.idled_away,
            wakes: unit.wakes,
            sleeps: unit.sleeps,
            exhaustions: unit.exhaustions,
            replenishments: unit.replenishments,
            ..VcpuTotals::default()
        },
    }
}

/// The vCPUs that are units of a pool.
fn units_of<'a>(host: &Host, pool: PoolIx, vcpus: &'a [VcpuTotals]) -> Vec<&'a VcpuTotals> {
    let is_of_pool = |vcpu: &Vcpu| host.pool_of(Parent::Domain(vcpu.domain)) == pool;
    host.vcpus.iter().zip(vcpus).filter(|(vcpu, _)| is_of_pool(vcpu)).map(|(_, totals)| totals).collect()
}

/// What the enforcers of a pool did while the tasks ran.
#[derive(Default)]
struct Enforcers {
    /// Processor time of each.
    costs: Vec<Duration>,
    decisions: u64,
}

impl Enforcers {
    /// The session is longer than the run: the run's share of what the enforcers did is what counts.
    fn within_run(report: Option<&PoolReport>, elapsed: Duration, run: Duration) -> Enforcers {
        let share = |amount: u64| {
            let elapsed_ns = u128::from(elapsed.as_ns().max(1));
            (u128::from(amount) * u128::from(run.as_ns()) / elapsed_ns) as u64
        };
        report.map_or_else(Enforcers::default, |report| Enforcers {
            costs: report.cost.iter().map(|cost| Duration::from_ns(share(cost.as_ns()))).collect(),
            decisions: share(report.decisions),
        })
    }
}

fn busy(units: &[&VcpuTotals]) -> Duration {
    units.iter().map(|unit| unit.cpu_time).sum()
}

fn pool_totals(host: &Host, pool: &Pool, units: &[&VcpuTotals], enforcers: &Enforcers) -> SchedulerTotals {
    let (busy, overhead) = (busy(units), enforcers.costs.iter().copied().sum::<Duration>());
    let capacity = host.duration * pool.processors.len() as u64;
    SchedulerTotals {
        processors: ProcessorTotals {
            busy,
            idle: capacity.saturating_sub(busy + overhead),
            overhead,
            decisions: enforcers.decisions,
            context_switches: 0,
        },
        migrations: 0,
        exhaustions: units.iter().map(|unit| unit.exhaustions).sum(),
        replenishments: units.iter().map(|unit| unit.replenishments).sum(),
    }
}

/// Of the pool's processor number `at`. On which processor of a pool a unit ran is not known with several:
/// shared evenly.
fn processor_totals(
    host: &Host,
    pool: &Pool,
    at: usize,
    units: &[&VcpuTotals],
    enforcers: &Enforcers,
) -> ProcessorTotals {
    let processors = pool.processors.len() as u64;
    let busy = (busy(units) / processors).min(host.duration);
    let overhead = enforcers.costs.get(at).copied().unwrap_or(Duration::ZERO);
    ProcessorTotals {
        busy,
        idle: host.duration.saturating_sub(busy + overhead),
        overhead,
        decisions: enforcers.decisions / processors,
        context_switches: 0,
    }
}
