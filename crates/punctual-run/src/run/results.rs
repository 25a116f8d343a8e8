//! The last stage: everything is put back, and what was measured is put together.

use punctual_model::host::{Host, Parent, Pool, Vcpu};
use punctual_model::index::{PoolIx, TaskIx};
use punctual_model::results::{
    Enforcement, HostTimes, ProcessorTotals, Results, ResultsBuilder, SchedulerTotals, Source, TaskTotals,
    VcpuTotals,
};
use punctual_sched::Duration;

use super::blame::{self, Explained};
use super::error::{ChangeError, RunError};
use super::live_run::LiveRun;
use super::measure::{Measured, Measurement};
use super::trace::{self, Trace};
use punctual_enforce::notice::Notice;
use punctual_enforce::session::{LinuxScheduler, PoolReport, Report};
use punctual_linux::machine;
use punctual_linux::os::load::Load;
use punctual_vm::workload::flows::{self, Ends};

/// What a run measured and what it left.
#[derive(Debug)]
pub struct Measurements {
    /// As of a simulation; evidence of enforcement is in `report`.
    pub results: Results,
    /// What happened when, if [`crate::config::RunConfig::trace`] asked for it; of plain Linux, jobs only.
    pub trace: Trace,
    /// Enforcement and restoration.
    pub report: Report,
    /// What happened on the way: units that ended, for example.
    pub notices: Vec<Notice>,
    /// The changes that [`crate::config::RunConfig::apply`] asked for and that could not be made.
    pub unchanged: Vec<ChangeError>,
    /// Was it ended early? Then the results are of the time until then, and count the jobs that the guests
    /// had reported by then.
    pub stopped: bool,
}

impl Measured<'_> {
    /// Ends the session and reports.
    pub(super) fn finish(self) -> Result<Measurements, RunError> {
        let Measured { run, measurement } = self;
        let LiveRun { host, options, pools, session, domains, ends, unchanged } = run;
        let report = session.finish().map_err(RunError::of_session)?;
        // The session has ended their processes; this waits for them.
        drop(domains);
        // A run that was stopped is as long as it was.
        let host = Host { duration: measurement.length, ..host.clone() };
        let results = results(&host, options.config.linux, &pools, &report, &measurement, &ends);
        let trace = if options.config.trace {
            trace::trace(&host, &pools, &report, &measurement)
        } else {
            trace::Trace::new()
        };
        let Measurement { notices, stopped, .. } = measurement;
        Ok(Measurements { results, trace, report, notices, unchanged, stopped })
    }
}

fn results(
    host: &Host,
    linux: Option<LinuxScheduler>,
    pools: &[PoolIx],
    report: &Report,
    measurement: &Measurement,
    ends: &Ends,
) -> Results {
    let mut results = ResultsBuilder::new(host, Source::Live);
    results.machine(machine::description());
    results.events(report.pools.iter().map(|pool| pool.evidence.looks).sum());
    let used = pools.iter().zip(&report.pools);
    let explained = used.map(|(pool, done)| (*pool, blame::explain_pool(host, *pool, done, measurement)));
    let mut explained: Vec<(PoolIx, Option<Explained>)> = explained.collect();
    results.tasks(measurement.jobs.iter().zip(&measurement.executed).enumerate().map(
        |(task, (jobs, &cpu_time))| {
            let known = explained.iter_mut().flat_map(|(_, explained)| explained);
            let why = known.filter_map(|explained| explained.tasks.remove(&TaskIx(task))).next();
            let (blame, disturbed) = why.map(|why| (why.blame, why.disturbed)).unzip();
            TaskTotals { jobs: jobs.clone(), cpu_time, blame, disturbed, ..TaskTotals::default() }
        },
    ));
    results.verdicts(measurement.verdicts.iter().cloned());
    let mut vcpus: Vec<VcpuTotals> =
        host.vcpus.iter().map(|vcpu| vcpu_totals(&vcpu.name, report, measurement)).collect();
    for (name, of_unit) in report.pools.iter().flat_map(|done| blame::deliveries(host, done, measurement)) {
        if let Some(at) = host.vcpus.iter().position(|vcpu| vcpu.name == name) {
            // A vCPU whose thread was replaced was several units.
            vcpus[at].delivery.get_or_insert_default().merge(&of_unit);
        }
    }
    for (index, pool) in host.pools.iter().enumerate() {
        let ix = PoolIx(index);
        if let Some(linux) = linux {
            results.policy(ix, linux.name());
        }
        let done = pools.iter().position(|used| *used == ix).and_then(|at| report.pools.get(at));
        let enforcers = Enforcers::within_run(done, report.elapsed, host.duration);
        let units = units_of(host, ix, &vcpus);
        let mut pool_sum = pool_totals(host, pool, &units, &enforcers);
        let explained = explained.iter_mut().find(|(known, _)| *known == ix);
        let mut explained = explained.and_then(|(_, explained)| explained.take());
        let mut idle = Duration::ZERO;
        for (at, &processor) in pool.processors.iter().enumerate() {
            let mut totals = processor_totals(host, pool, at, &units, &enforcers);
            if let Some(explained) = &mut explained {
                let times = host_times(&mut totals, host.duration, &explained.loads[at]);
                results.host(processor, times, std::mem::take(&mut explained.disturbances[at]));
            }
            idle += totals.idle;
            results.processor(processor, &totals);
        }
        pool_sum.processors.idle = idle;
        results.pool(ix, &pool_sum);
        if let Some(done) = done.filter(|done| done.observations.is_some()) {
            results.enforcement(ix, enforcement(done, report.elapsed));
        }
    }
    results.vcpus(vcpus);
    let flows = flows::flow_results(host, ends, &measurement.flows);
    let chains = flows::chain_results(host, ends, &measurement.flows, &measurement.jobs);
    results.networks(Vec::new(), flows, chains);
    results.build()
}

/// What enforcement of a pool did in a session that was so long.
fn enforcement(done: &PoolReport, elapsed: Duration) -> Enforcement {
    Enforcement {
        looks: done.evidence.looks,
        enforcer_ns: done.cost.iter().copied().sum::<Duration>().as_ns(),
        session_ns: elapsed.as_ns().saturating_mul(done.processors.len() as u64),
        overrun: done.evidence.overrun.clone(),
        replenishment_lateness: done.evidence.replenishment_lateness.clone(),
        look_lateness: done.evidence.look_lateness.clone(),
        stolen_ns: done.evidence.stolen.as_ns(),
        demotions: done.demotions,
        graces: done.evidence.graces,
    }
}

/// What else a processor did while the tasks ran, by `/proc/stat`; `totals` is idle for what it says. Ticks
/// are coarse, the units' and enforcers' time is exact: the rest is others'.
fn host_times(totals: &mut ProcessorTotals, duration: Duration, load: &Load) -> HostTimes {
    let mut left_ns = duration.saturating_sub(totals.busy + totals.overhead).as_ns();
    let mut take = |ns: u64| {
        let taken = ns.min(left_ns);
        left_ns -= taken;
        taken
    };
    let (steal_ns, interrupts_ns, idle_ns) =
        (take(load.steal_ns), take(load.interrupts_ns), take(load.idle_ns));
    totals.idle = Duration::from_ns(idle_ns);
    HostTimes { others_ns: left_ns, interrupts_ns, steal_ns }
}

fn vcpu_totals(name: &str, report: &Report, measurement: &Measurement) -> VcpuTotals {
    let about = |notice: &&Notice| notice.unit() == Some(name);
    let (mut put_back, mut not_enforced) = (0, None);
    for notice in measurement.notices.iter().filter(about) {
        match notice {
            Notice::PutBack { times, .. } => put_back += times,
            Notice::Failed { error, .. } => not_enforced = Some(error.to_string()),
            // It has a thread again.
            Notice::Came { .. } => not_enforced = None,
            _ => {}
        }
    }
    // A vCPU whose thread was replaced has several times.
    let times = measurement.cpu_time.iter().filter(|(known, _)| known == name);
    let cpu_time = times.map(|(_, time)| *time).sum();
    match report.units.iter().find(|unit| unit.name == name) {
        None => VcpuTotals { cpu_time, put_back, not_enforced, ..VcpuTotals::default() },
        Some(unit) => VcpuTotals {
            cpu_time,
            idled_away: unit.idled_away,
            wakes: unit.wakes,
            sleeps: unit.sleeps,
            exhaustions: unit.exhaustions,
            replenishments: unit.replenishments,
            put_back,
            not_enforced,
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
