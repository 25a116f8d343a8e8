//! The fifth stage: the tasks have run, all from one instant, and the guests have reported.

use std::sync::atomic::Ordering;
use std::time::Duration as StdDuration;

use punctual_guest::protocol::{self, FlowReport};
use punctual_model::Host;
use punctual_model::host::{Vcpu, Work};
use punctual_model::index::{DomainIx, PoolIx, TaskIx};
use punctual_model::results::{GuestFault, GuestVerdict, JobStats};
use punctual_model::text;
use punctual_sched::{Duration, Instant};

use super::calibrate::Guest;
use super::changes::Changes;
use super::clock;
use super::domain::{DomainProcess, RunningDomain};
use super::enforce::Enforced;
use super::error::{Error, RunError};
use super::follow::FollowedDomain;
use super::inputs::{ENDLESS, StageInputs};
use super::live_run::LiveRun;
use super::outside::Outside;
use super::reports::{Arrived, BegunGuest, GuestReport, Reports};
use crate::config::RunView;
use punctual_enforce::clock::now;
use punctual_enforce::notice::Notice;
use punctual_enforce::session::{Session, UnitHandle};
use punctual_vm::periods;
use punctual_vm::workload::{self, ClientError, JobCounter, TaskJobs};

/// From the last preparation to the first release, at least and at most.
const LEAD: [Duration; 2] = [Duration::from_ms(300), Duration::from_ms(3000)];
/// If it is longer until the periods of all servers begin together again, tasks do not wait for that.
const COMMON_PERIOD_MAX: Duration = Duration::from_secs(1);
/// Processor time of a VM that makes ready for its tasks: threads, locked memory. A translated one with 3.75
/// % of a processor was ready up to 430 ms after the request, so it took 16 ms; the periodic server lets
/// budget idle away meanwhile.
const MAKING_READY: Duration = Duration::from_ms(40);
/// Characters of a verdict's reason, parts of which guests write.
const REASON_CHARS_MAX: usize = 300;
/// How often the run is polled while tasks run, and after that, while guests report.
const INTERVAL: StdDuration = StdDuration::from_millis(50);
const REPORTING_INTERVAL: StdDuration = StdDuration::from_millis(10);

/// A host whose tasks have run.
pub(super) struct Measured<'a> {
    pub run: LiveRun<'a>,
    pub measurement: Measurement,
}

/// What was measured while tasks ran.
pub(super) struct Measurement {
    /// By task of the host.
    pub jobs: Vec<JobStats>,
    /// By task of the host: processor time.
    pub executed: Vec<Duration>,
    /// By domain of the host: why its jobs are not measured.
    pub verdicts: Vec<Option<GuestVerdict>>,
    /// By unit name: processor time within the run. A vCPU whose thread was replaced comes again.
    pub cpu_time: Vec<(String, Duration)>,
    /// The guests' reports of their tasks.
    pub told: Vec<Told>,
    /// What ends of flows and parts of chains did.
    pub flows: Vec<FlowReport>,
    /// When the tasks started.
    pub start: Instant,
    pub notices: Vec<Notice>,
    /// How long the tasks ran.
    pub length: Duration,
    pub stopped: bool,
}

/// A guest's report of its tasks, in the same order.
pub(super) struct Told {
    pub domain: DomainIx,
    pub tasks: Vec<(TaskIx, protocol::Task)>,
    pub jobs: Vec<TaskJobs>,
}

/// When the tasks run.
#[derive(Clone, Copy)]
struct Window {
    start: Instant,
    end: Instant,
    /// From now to the end.
    limit: StdDuration,
}

/// How watching the tasks ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WatchEnd {
    /// The time is over, and every guest has reported or failed.
    Complete,
    /// The user asked to stop.
    Stopped,
}

impl<'a> Enforced<'a> {
    /// Lets the guests run their tasks and waits for what they report.
    pub(super) fn measure(self) -> Result<Measured<'a>, RunError> {
        let Enforced { mut run, guests, units, begun, followed } = self;
        match run.measure(guests, units, begun, followed) {
            Ok(measurement) => Ok(Measured { run, measurement }),
            Err(error) => Err(run.failed(error)),
        }
    }
}

impl<'a> LiveRun<'a> {
    fn measure(
        &mut self,
        guests: Vec<Option<Guest>>,
        units: Vec<UnitHandle>,
        periods_begun: Instant,
        followed: Vec<FollowedDomain<'a>>,
    ) -> Result<Measurement, Error> {
        let run = self;
        let left = run.processors_left();
        let LiveRun { host, options, pools, session, domains, ends, .. } = run;
        let outside = Outside::of(host, ends, std::mem::take(&mut options.outside))?;
        let window = Window::from_now(host, domains, periods_begun);
        let outside = outside.start(window.start, host.duration).map_err(Error::NoThread)?;
        let has_programs = domains.iter().any(|domain| matches!(domain.process, DomainProcess::External));
        let mut begun = Vec::new();
        for (running, guest) in domains.iter_mut().zip(guests) {
            begun.extend(BegunGuest::begin(host, running, guest, window.start, host.duration)?);
        }
        options.step(&match host.duration {
            ENDLESS => "running until it is stopped".to_owned(),
            length => format!("running for {length}"),
        });
        let counters = begun.iter().map(BegunGuest::counter).collect();
        let mut watch = Watch {
            host,
            options,
            pools,
            changes: Changes::new(host, pools),
            session,
            window,
            left: &left,
            units,
            followed,
            has_programs,
            counters,
            notices: Vec::new(),
            used_at_start: None,
            used_at_end: None,
            length: host.duration,
        };
        let result = std::thread::scope(|scope| {
            let mut reports = match Reports::of(begun, window.limit, scope) {
                Ok(reports) => reports,
                Err(error) => {
                    // The threads that wait for guests end with them.
                    watch.session.kill_children();
                    return Err(error);
                }
            };
            let end = watch.until_end(&mut reports);
            if !end.as_ref().is_ok_and(|end| *end == WatchEnd::Complete) {
                // The threads that wait for guests end with them.
                watch.session.kill_children();
            }
            match end? {
                WatchEnd::Stopped if !watch.has_begun() && !reports.is_empty() => Err(Error::Stopped),
                end => Ok(watch.into_measurement(reports.join()?, end == WatchEnd::Stopped)),
            }
        });
        let told = outside.end();
        let (mut measurement, failures) = result?;
        measurement.flows.extend(told);
        for (ix, failed) in failures {
            run.domains[ix.0].failed.get_or_insert(failed);
        }
        run.judge_failed(&mut measurement);
        Ok(measurement)
    }

    /// Gives the domains that have failed their verdicts.
    fn judge_failed(&mut self, measurement: &mut Measurement) {
        for domain in &mut self.domains {
            if let Some(failed) = domain.failed.take() {
                measurement.judge(self.host, domain, &failed);
            }
        }
    }
}

impl Window {
    /// The tasks start when every VM has made ready, out of the budget that it already has.
    /// They start with a period of all servers if these began theirs together, as they do in simulation.
    fn from_now(host: &Host, domains: &[RunningDomain], periods_begun: Instant) -> Window {
        let of_vcpu = |vcpu: &Vcpu| match (vcpu.params.budget, vcpu.params.period) {
            (Some(budget), Some(period)) => {
                let ns = u128::from(MAKING_READY.as_ns()) * u128::from(period.as_ns())
                    / u128::from(budget.as_ns().max(1));
                Duration::from_ns(u64::try_from(ns).unwrap_or(u64::MAX))
            }
            _ => MAKING_READY,
        };
        let vms = domains.iter().filter(|running| running.process.is_vm());
        let vcpus = vms.flat_map(|running| &host.vcpus[host.domains[running.ix.0].vcpus.clone()]);
        let lead = vcpus.map(of_vcpu).max().unwrap_or(LEAD[0]).clamp(LEAD[0], LEAD[1]);
        let now = now();
        let start = match periods::common_ns(host, COMMON_PERIOD_MAX.as_ns()) {
            Some(common_ns) => {
                let ns = periods::next_ns(periods_begun.as_ns(), common_ns, (now + lead).as_ns());
                Instant::from_ns(ns)
            }
            None => now + lead,
        };
        let limit = StdDuration::from_nanos((start.since(now) + host.duration).as_ns());
        Window { start, end: start + host.duration, limit }
    }
}

/// A guest that is not asked any more, and why.
type Failure = (DomainIx, ClientError);

/// A run whose tasks are about to run.
struct Watch<'w, 'a> {
    host: &'a Host,
    options: &'w mut StageInputs<'a>,
    pools: &'w [PoolIx],
    changes: Changes<'w>,
    session: &'w mut Session,
    window: Window,
    /// The processors that no pool has.
    left: &'w [usize],
    units: Vec<UnitHandle>,
    followed: Vec<FollowedDomain<'a>>,
    /// Are there domains without a guest of ours?
    has_programs: bool,
    counters: Vec<(String, JobCounter)>,
    notices: Vec<Notice>,
    /// Processor time of the units in ns at the start and at the end of the tasks.
    used_at_start: Option<Vec<u64>>,
    used_at_end: Option<Vec<u64>>,
    /// How long the tasks have run, once that is over.
    length: Duration,
}

impl Watch<'_, '_> {
    /// Keeps the session alive until the tasks' time is over and all reports are there, or until there is a
    /// reason to end earlier.
    fn until_end<'s, 'd: 's>(&mut self, reports: &mut Reports<'s, 'd>) -> Result<WatchEnd, Error> {
        loop {
            for notice in self.session.poll()? {
                notice.add_to(&mut self.notices);
            }
            reports.collect()?;
            let time = now();
            let (has_begun, is_over) = (time >= self.window.start, time >= self.window.end);
            if has_begun && self.used_at_start.is_none() {
                self.used_at_start = Some(self.used());
            }
            if is_over && self.used_at_end.is_none() {
                self.used_at_end = Some(self.used());
                self.session.let_guests_report();
            }
            // First: guests are not waited for any more once the user wants an end.
            if (self.options.stop)() {
                self.used_at_end = self.used_at_end.take().or_else(|| Some(self.used()));
                self.length = time.since(self.window.start).min(self.host.duration);
                return Ok(WatchEnd::Stopped);
            }
            if is_over && reports.are_complete() {
                return Ok(WatchEnd::Complete);
            }
            if has_begun && !is_over && self.is_pointless(reports) {
                self.used_at_end = Some(self.used());
                self.length = time.since(self.window.start);
                return Ok(WatchEnd::Complete);
            }
            if has_begun && !is_over {
                self.carry_out_events(time.since(self.window.start));
                self.show(time.since(self.window.start));
                self.follow_threads()?;
            }
            std::thread::sleep(if is_over { REPORTING_INTERVAL } else { self.until_event(INTERVAL) });
        }
    }

    /// Has every guest failed, and nothing else runs?
    fn is_pointless(&self, reports: &Reports<'_, '_>) -> bool {
        !self.has_programs && !reports.is_empty() && reports.are_complete()
    }

    /// Have the tasks started?
    fn has_begun(&self) -> bool {
        self.used_at_start.is_some()
    }

    /// Processor time of the units so far, in ns.
    fn used(&self) -> Vec<u64> {
        self.units.iter().map(|unit| unit.counters.cpu_time_ns.load(Ordering::Relaxed)).collect()
    }

    /// Shows the run to the caller.
    fn show(&mut self, elapsed: Duration) {
        let counters = self.counters.iter_mut();
        let jobs: Vec<(String, workload::JobCounts)> =
            counters.map(|(name, counter)| (name.clone(), counter.jobs(elapsed.as_ns()))).collect();
        (self.options.watch)(&RunView {
            session: self.session,
            pools: self.pools,
            units: &self.units,
            jobs: &jobs,
            elapsed,
        });
    }

    fn carry_out_events(&mut self, elapsed: Duration) {
        while let Some(what) = self.changes.carry_out(elapsed, self.session, &self.units) {
            self.options.step(&what);
        }
    }

    /// The time until the next event of the host, at most `limit`.
    fn until_event(&self, limit: StdDuration) -> StdDuration {
        let Some(next) = self.changes.next() else { return limit };
        let left = (self.window.start + next).since(now());
        StdDuration::from_nanos(left.as_ns()).min(limit)
    }

    fn follow_threads(&mut self) -> Result<(), Error> {
        for domain in &mut self.followed {
            let now = (self.host, self.changes.done());
            domain.add_newcomers(now, self.session, self.left, &mut self.units, &mut self.notices)?;
        }
        Ok(())
    }

    /// Puts what was measured together; with it come the guests that failed.
    fn into_measurement(mut self, arrived: Vec<Arrived<'_>>, stopped: bool) -> (Measurement, Vec<Failure>) {
        let host = self.host;
        let mut measurement = Measurement {
            jobs: vec![JobStats::default(); host.tasks.len()],
            executed: vec![Duration::ZERO; host.tasks.len()],
            verdicts: vec![None; host.domains.len()],
            cpu_time: self.cpu_time(),
            told: Vec::new(),
            flows: Vec::new(),
            start: self.window.start,
            notices: std::mem::take(&mut self.notices),
            length: self.length,
            stopped,
        };
        let mut failures = Vec::new();
        for Arrived { ix, tasks, progress, report } in arrived {
            match report {
                Ok(report) => measurement.add_report(host, ix, tasks, report),
                // Guests are not asked any more when the user wants an end.
                Err(error) if stopped && error.fault() == GuestFault::Unresponsive => {
                    measurement.add_told(tasks, progress.tasks(), progress.told_ns());
                }
                Err(error) => {
                    if error.fault() == GuestFault::Unresponsive {
                        measurement.add_told(tasks, progress.tasks(), self.length.as_ns());
                    }
                    failures.push((ix, error));
                }
            }
        }
        (measurement, failures)
    }

    /// By unit, its processor time within the run.
    fn cpu_time(&mut self) -> Vec<(String, Duration)> {
        // A unit that came during the run had used nothing when the run began.
        let before = self.used_at_start.take().unwrap_or_default().into_iter().chain(std::iter::repeat(0));
        let after = self.used_at_end.take().unwrap_or_default();
        let time = |((unit, before), after): ((&UnitHandle, u64), u64)| {
            (unit.name.clone(), Duration::from_ns(after.saturating_sub(before)))
        };
        self.units.iter().zip(before).zip(after).map(time).collect()
    }
}

impl Measurement {
    /// Adds what a guest had reported of these tasks during the run, `elapsed_ns` after the start.
    fn add_told(
        &mut self,
        tasks: &[(TaskIx, protocol::Task)],
        told: impl Iterator<Item = (u64, u64)>,
        elapsed_ns: u64,
    ) {
        for ((ix, task), told) in tasks.iter().zip(told) {
            self.jobs[ix.0] = workload::tasks::stats_so_far(task, told, elapsed_ns);
        }
    }

    /// Adds the report of a domain's guest on these tasks.
    fn add_report(
        &mut self,
        host: &Host,
        ix: DomainIx,
        tasks: &[(TaskIx, protocol::Task)],
        report: GuestReport,
    ) {
        let GuestReport { measurement, clock_ppm } = report;
        for ((task, _), done) in tasks.iter().zip(&measurement.tasks) {
            if let Work::Jobs { deadline, .. } | Work::Served { deadline, .. } = host.tasks[task.0].work {
                self.jobs[task.0] =
                    workload::tasks::job_stats(&done.jobs, deadline.as_ns(), host.duration.as_ns());
            }
            self.executed[task.0] = Duration::from_ns(done.executed_ns);
        }
        let domain = &host.domains[ix.0].name;
        if clock_ppm.unsigned_abs() > clock::WRONG_MAX_PPM {
            self.notices.push(Notice::WrongClock { domain: domain.clone(), ppm: clock_ppm });
        }
        if measurement.untold > 0 {
            let reason = format!("it left out {} jobs that were due", measurement.untold);
            self.add_verdict(ix, domain, GuestFault::Unresponsive, reason, "");
        }
        self.flows.extend(measurement.flows);
        self.told.push(Told { domain: ix, tasks: tasks.to_vec(), jobs: measurement.tasks });
    }

    /// Adds the verdict on a domain whose guest failed. Jobs without a report were missed.
    fn judge(&mut self, host: &Host, running: &mut RunningDomain, failed: &ClientError) {
        let fault = failed.fault();
        for (ix, task) in &running.tasks {
            if self.jobs[ix.0].released == 0 {
                self.jobs[ix.0] = workload::tasks::stats_so_far(task, (0, 0), self.length.as_ns());
            }
        }
        let last_words = match fault {
            GuestFault::Unresponsive => running.process.last_words(),
            GuestFault::ProtocolViolation => String::new(),
        };
        let domain = &host.domains[running.ix.0].name;
        self.add_verdict(running.ix, domain, fault, failed.to_string(), &last_words);
    }

    fn add_verdict(
        &mut self,
        ix: DomainIx,
        domain: &str,
        fault: GuestFault,
        reason: String,
        last_words: &str,
    ) {
        let told: String = reason.chars().take(REASON_CHARS_MAX).collect();
        let reason = text::printable(&told).into_owned();
        self.verdicts[ix.0] = Some(GuestVerdict { fault, reason: reason.clone() });
        let reason = format!("{reason}{last_words}");
        self.notices.push(Notice::Guest { domain: domain.to_owned(), fault, reason });
    }
}
