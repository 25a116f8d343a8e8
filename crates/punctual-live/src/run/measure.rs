//! The fifth stage: the tasks have run, all from one instant, and the guests have reported.

use std::sync::atomic::Ordering;
use std::time::Duration as StdDuration;

use punctual_guest::protocol;
use punctual_model::Host;
use punctual_model::host::{Vcpu, Work};
use punctual_model::index::{PoolIx, TaskIx};
use punctual_model::results::JobStats;
use punctual_sched::{Duration, Instant};

use super::clock;
use super::domain::RunningDomain;
use super::enforce::Enforced;
use super::error::Error;
use super::follow::FollowedDomain;
use super::reports::{Arrived, BegunGuest, Reports};
use super::{LiveRun, RunOptions, RunView};
use crate::enforcer::now;
use crate::notice::Notice;
use crate::session::{Session, UnitHandle};
use crate::workload::{self, GuestMeasurement, JobCounter};

/// From the last preparation to the first release, at least and at most.
const LEAD: [Duration; 2] = [Duration::from_ms(300), Duration::from_ms(3000)];
/// Processor time of a VM that makes ready for its tasks: threads, locked memory. A translated one with 3.75
/// % of a processor was ready up to 430 ms after the request, so it took 16 ms; the periodic server lets
/// budget idle away meanwhile.
const MAKING_READY: Duration = Duration::from_ms(40);
/// How long a program that ends may take from its channel's end to its own.
const LAST_WORDS: StdDuration = StdDuration::from_millis(100);
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
    /// By unit name: processor time within the run. A vCPU whose thread was replaced comes again.
    pub cpu_time: Vec<(String, Duration)>,
    pub notices: Vec<Notice>,
    pub stopped: bool,
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
    /// The time is over, and every guest has reported.
    Complete,
    /// A guest failed before that.
    GuestFailed,
    /// The user asked to stop.
    Stopped,
}

impl<'a> Enforced<'a> {
    /// Lets the guests run their tasks and waits for what they report.
    pub fn measure(self) -> Result<Measured<'a>, Error> {
        let Enforced { mut run, guests, units, followed } = self;
        let left = run.processors_left();
        let LiveRun { host, options, pools, session, domains, .. } = &mut run;
        let window = Window::from_now(host, domains);
        let mut begun = Vec::new();
        for (running, guest) in domains.iter_mut().zip(guests) {
            begun.extend(BegunGuest::begin(host, running, guest, window.start, host.duration)?);
        }
        (options.progress)(&format!("running for {}", host.duration));
        let counters = begun.iter().map(BegunGuest::counter).collect();
        let mut watch = Watch {
            host,
            options,
            pools,
            session,
            window,
            left: &left,
            units,
            followed,
            counters,
            notices: Vec::new(),
            used_at_start: None,
            used_at_end: None,
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
            if end.as_ref().is_ok_and(|end| *end == WatchEnd::GuestFailed) {
                // What ended by itself should have ended before the others are killed, so that the message
                // tells them apart.
                std::thread::sleep(LAST_WORDS);
            }
            if !end.as_ref().is_ok_and(|end| *end == WatchEnd::Complete) {
                // The threads that wait for guests end with them.
                watch.session.kill_children();
            }
            match end? {
                // No guest has results of half a run.
                WatchEnd::Stopped if !reports.is_empty() => Err(Error::Stopped),
                end => watch.into_measurement(reports.join(), end == WatchEnd::Stopped),
            }
        });
        match result {
            Ok(measurement) => Ok(Measured { run, measurement }),
            Err(error) => Err(with_last_words(error, &mut run)),
        }
    }
}

/// Adds to a guest's error how its domain ended.
fn with_last_words(mut error: Error, run: &mut LiveRun<'_>) -> Error {
    if let Error::Guest { domain, last_words, .. } = &mut error {
        let host = run.host;
        let failed = run.domains.iter_mut().find(|running| host.domains[running.ix.0].name == *domain);
        *last_words = failed.map(|running| running.process.last_words()).unwrap_or_default();
    }
    error
}

impl Window {
    /// The tasks start when every VM has made ready, out of the budget that it already has.
    fn from_now(host: &Host, domains: &[RunningDomain]) -> Window {
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
        let start = now() + lead;
        let limit = StdDuration::from_nanos((lead + host.duration).as_ns());
        Window { start, end: start + host.duration, limit }
    }
}

/// A run whose tasks are about to run.
struct Watch<'w, 'a> {
    host: &'a Host,
    options: &'w mut RunOptions<'a>,
    pools: &'w [PoolIx],
    session: &'w mut Session,
    window: Window,
    /// The processors that no pool has.
    left: &'w [usize],
    units: Vec<UnitHandle>,
    followed: Vec<FollowedDomain<'a>>,
    counters: Vec<(String, JobCounter)>,
    notices: Vec<Notice>,
    /// Processor time of the units in ns at the start and at the end of the tasks.
    used_at_start: Option<Vec<u64>>,
    used_at_end: Option<Vec<u64>>,
}

impl Watch<'_, '_> {
    /// Keeps the session alive until the tasks' time is over and all reports are there, or until there is a
    /// reason to end earlier.
    fn until_end<'s, 'd: 's>(&mut self, reports: &mut Reports<'s, 'd>) -> Result<WatchEnd, Error> {
        loop {
            self.notices.extend(self.session.poll()?);
            reports.collect();
            let time = now();
            let (has_begun, is_over) = (time >= self.window.start, time >= self.window.end);
            if has_begun && self.used_at_start.is_none() {
                self.used_at_start = Some(self.used());
            }
            if is_over && self.used_at_end.is_none() {
                self.used_at_end = Some(self.used());
                self.session.let_guests_report();
            }
            if is_over && reports.are_complete() {
                return Ok(WatchEnd::Complete);
            }
            if !is_over && reports.have_failed() {
                return Ok(WatchEnd::GuestFailed);
            }
            if (self.options.stop)() {
                self.used_at_end = self.used_at_end.take().or_else(|| Some(self.used()));
                return Ok(WatchEnd::Stopped);
            }
            if has_begun && !is_over {
                self.show(time.since(self.window.start));
                self.follow_threads()?;
            }
            std::thread::sleep(if is_over { REPORTING_INTERVAL } else { INTERVAL });
        }
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

    fn follow_threads(&mut self) -> Result<(), Error> {
        for domain in &mut self.followed {
            domain.add_newcomers(self.host, self.session, self.left, &mut self.units, &mut self.notices)?;
        }
        Ok(())
    }

    /// Puts what was measured together. A guest's failure ends the run; of several that guest is named whose
    /// threads ended, or that failed first.
    fn into_measurement(
        mut self,
        mut arrived: Vec<Arrived<'_>>,
        stopped: bool,
    ) -> Result<Measurement, Error> {
        arrived.sort_by_key(|arrived| !self.is_gone(arrived.domain));
        let mut measurement = Measurement {
            jobs: vec![JobStats::default(); self.host.tasks.len()],
            executed: vec![Duration::ZERO; self.host.tasks.len()],
            cpu_time: self.cpu_time(),
            notices: std::mem::take(&mut self.notices),
            stopped,
        };
        for Arrived { domain, tasks, report } in arrived {
            let report = report?;
            if report.clock_ppm.unsigned_abs() > clock::WRONG_MAX_PPM {
                let notice = Notice::WrongClock { domain: domain.to_owned(), ppm: report.clock_ppm };
                measurement.notices.push(notice);
            }
            measurement.add(self.host, tasks, &report.measurement);
        }
        Ok(measurement)
    }

    /// Did a unit of the domain end during the run?
    fn is_gone(&self, domain: &str) -> bool {
        let vcpus = self.host.vcpus.iter();
        let mut vcpus = vcpus.filter(|vcpu| self.host.domains[vcpu.domain.0].name == domain);
        vcpus.any(|vcpu| {
            self.notices.iter().any(|notice| matches!(notice, Notice::Gone { unit } if *unit == vcpu.name))
        })
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
    /// Adds what a guest measured of these tasks.
    fn add(&mut self, host: &Host, tasks: &[(TaskIx, protocol::Task)], measured: &GuestMeasurement) {
        for ((task, _), done) in tasks.iter().zip(&measured.tasks) {
            if let Work::Jobs { deadline, .. } = host.tasks[task.0].work {
                self.jobs[task.0] =
                    workload::tasks::job_stats(&done.jobs, deadline.as_ns(), host.duration.as_ns());
            }
            self.executed[task.0] = Duration::from_ns(done.executed_ns);
        }
    }
}
