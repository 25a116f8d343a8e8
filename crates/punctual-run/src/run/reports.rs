//! What guests report of their tasks. A thread for each guest waits for its report.

use std::sync::Arc;
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::Duration as StdDuration;

use punctual_guest::protocol;
use punctual_model::Host;
use punctual_model::index::{DomainIx, TaskIx};
use punctual_sched::{Duration, Instant};

use super::calibrate::Guest;
use super::clock::GuestClock;
use super::domain::RunningDomain;
use super::error::Error;
use punctual_vm::workload::{Client, ClientError, GuestMeasurement, JobCounter, Progress};

/// A guest that has got its tasks.
pub(super) struct BegunGuest<'d> {
    ix: DomainIx,
    domain: &'d str,
    tasks: &'d [(TaskIx, protocol::Task)],
    clock: GuestClock,
    client: &'d mut Client,
}

impl<'d> BegunGuest<'d> {
    /// Sends a domain's guest its tasks, which start at `start`. `None` where there is no guest, or no task,
    /// or the guest does not take them.
    pub(super) fn begin(
        host: &'d Host,
        running: &'d mut RunningDomain,
        guest: Option<Guest>,
        start: Instant,
        length: Duration,
    ) -> Result<Option<BegunGuest<'d>>, Error> {
        let RunningDomain { ix, process, tasks, network, failed, .. } = running;
        let domain = host.domains[ix.0].name.as_str();
        let Some(Guest { iterations_per_ms, clock }) =
            guest.filter(|_| !tasks.is_empty() || network.is_some())
        else {
            return Ok(None);
        };
        let Some(client) = process.client()? else { return Ok(None) };
        let requests: Vec<protocol::Task> = tasks.iter().map(|(_, task)| task.clone()).collect();
        let start = (start.as_ns(), clock.ahead_ns);
        if let Err(error) =
            client.begin(&requests, network.as_ref(), iterations_per_ms, start, length.as_ns())
        {
            *failed = Some(error);
            return Ok(None);
        }
        Ok(Some(BegunGuest { ix: *ix, domain, tasks, clock, client }))
    }

    /// Counts the guest's jobs while it runs: the domain's name and the counter.
    pub(super) fn counter(&self) -> (String, JobCounter) {
        let tasks = self.tasks.iter().map(|(_, task)| task);
        (self.domain.to_owned(), JobCounter::new(tasks, self.client.progress()))
    }

    /// Waits for the end of the run, for `limit` and the guest's grace at most.
    fn finish(self, limit: StdDuration) -> Result<GuestReport, ClientError> {
        let measurement = self.client.finish(limit)?;
        // A guest that is gone now has reported what it measured all the same.
        let later = GuestClock::read(self.client);
        Ok(GuestReport { measurement, clock_ppm: later.map_or(0, |later| self.clock.wrong_ppm(&later)) })
    }
}

/// What a guest reported.
pub(super) struct GuestReport {
    pub measurement: GuestMeasurement,
    /// By how many millionths its clock ran wrong.
    pub clock_ppm: i64,
}

/// A guest whose report is awaited.
struct Awaited<'scope, 'd> {
    ix: DomainIx,
    domain: &'d str,
    tasks: &'d [(TaskIx, protocol::Task)],
    progress: Arc<Progress>,
    thread: ScopedJoinHandle<'scope, Result<GuestReport, ClientError>>,
}

/// A report that came, or why none will.
pub(super) struct Arrived<'d> {
    pub ix: DomainIx,
    pub tasks: &'d [(TaskIx, protocol::Task)],
    /// The guest's reports during the run.
    pub progress: Arc<Progress>,
    pub report: Result<GuestReport, ClientError>,
}

/// The reports of all guests.
pub(super) struct Reports<'scope, 'd> {
    awaited: Vec<Awaited<'scope, 'd>>,
    /// In the order in which they came.
    arrived: Vec<Arrived<'d>>,
}

impl<'scope, 'd: 'scope> Reports<'scope, 'd> {
    /// Starts to wait for the guests, each for `limit` and its grace at most.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub(super) fn of(
        guests: Vec<BegunGuest<'d>>,
        limit: StdDuration,
        scope: &'scope Scope<'scope, '_>,
    ) -> Result<Self, Error> {
        let wait = |guest: BegunGuest<'d>| {
            let (ix, domain, tasks, progress) =
                (guest.ix, guest.domain, guest.tasks, guest.client.progress());
            let finish = move || guest.finish(limit);
            let thread = Builder::new().spawn_scoped(scope, finish).map_err(Error::NoThread)?;
            Ok(Awaited { ix, domain, tasks, progress, thread })
        };
        let awaited = guests.into_iter().map(wait).collect::<Result<_, Error>>()?;
        Ok(Reports { awaited, arrived: Vec::new() })
    }

    /// Takes the reports that have come.
    ///
    /// # Errors
    /// A thread that waited panicked.
    pub(super) fn collect(&mut self) -> Result<(), Error> {
        for awaited in self.awaited.extract_if(.., |awaited| awaited.thread.is_finished()) {
            self.arrived.push(awaited.join()?);
        }
        Ok(())
    }

    /// Were there any to wait for?
    pub(super) fn is_empty(&self) -> bool {
        self.awaited.is_empty() && self.arrived.is_empty()
    }

    /// Have all come?
    pub(super) fn are_complete(&self) -> bool {
        self.awaited.is_empty()
    }

    /// Waits for the rest; all of them in the order in which they came.
    ///
    /// # Errors
    /// A thread that waited panicked.
    pub(super) fn join(mut self) -> Result<Vec<Arrived<'d>>, Error> {
        for awaited in self.awaited {
            self.arrived.push(awaited.join()?);
        }
        Ok(self.arrived)
    }
}

impl<'d> Awaited<'_, 'd> {
    fn join(self) -> Result<Arrived<'d>, Error> {
        let Awaited { ix, domain, tasks, progress, thread } = self;
        match thread.join() {
            Ok(report) => Ok(Arrived { ix, tasks, progress, report }),
            Err(_) => Err(Error::Panicked { domain: domain.to_owned() }),
        }
    }
}
