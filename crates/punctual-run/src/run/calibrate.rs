//! The third stage: guests have measured their processor, one after the other, each alone on it.

use std::thread::Builder;
use std::time::Duration as StdDuration;

use punctual_guest::protocol;
use punctual_sched::Duration;

use super::clock::GuestClock;
use super::domain::RunningDomain;
use super::error::{Error, RunError};
use super::live_run::{LiveRun, join};
use super::start::Started;
use punctual_linux::os::sched::{self, Attributes};
use punctual_vm::workload::{ChannelError, Client};

/// How long a guest measures its processor, each of two times.
const CALIBRATION: StdDuration = StdDuration::from_millis(200);
/// How long a VM runs its tasks before it counts. What it does for the first time takes long: QEMU translates
/// it, pages and caches are cold, 50 to 80 ms of processor time in all for a translated guest, which a budget
/// of 5 % needs more than a second for.
const WARM_UP: Duration = Duration::from_ms(300);

/// A host whose guests know their speed.
pub(super) struct Calibrated<'a> {
    pub run: LiveRun<'a>,
    /// By domain; `None` where no guest program runs.
    pub guests: Vec<Option<Guest>>,
}

/// What was measured of a guest before the run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guest {
    /// Iterations of its work that take a millisecond.
    pub iterations_per_ms: u64,
    pub clock: GuestClock,
}

impl<'a> Started<'a> {
    /// Lets the guests measure their processors.
    pub(super) fn calibrate(self) -> Result<Calibrated<'a>, RunError> {
        let Started { mut run } = self;
        let guests = (0..run.domains.len()).map(|index| run.calibrate_or_give_up(index)).collect();
        match guests {
            Ok(guests) => Ok(Calibrated { run, guests }),
            Err(error) => Err(run.failed(error)),
        }
    }
}

impl LiveRun<'_> {
    /// A guest that does not do its work is given up; the others go on.
    fn calibrate_or_give_up(&mut self, index: usize) -> Result<Option<Guest>, Error> {
        if self.domains[index].failed.is_some() {
            return Ok(None);
        }
        match self.calibrate_domain(index) {
            Err(Error::Guest { source, .. }) if !(self.options.stop)() => {
                self.domains[index].failed = Some(source);
                Ok(None)
            }
            // Its threads are gone: the guest program has ended.
            Err(Error::Schedule { source, .. }) if source.raw_os_error() == Some(libc::ESRCH) => {
                self.domains[index].failed = Some(ChannelError::Ended { doing: "to calibrate" }.into());
                Ok(None)
            }
            other => other,
        }
    }

    fn calibrate_domain(&mut self, index: usize) -> Result<Option<Guest>, Error> {
        let LiveRun { host, options, session, domains, .. } = self;
        let RunningDomain { ix, process, vcpus, tasks, .. } = &mut domains[index];
        let described = &host.domains[ix.0];
        let name = described.name.as_str();
        let warms_up = process.is_vm() && !tasks.is_empty();
        let Some(client) = process.client()? else { return Ok(None) };
        options.step(&format!("calibrating {name}"));
        let threads: Vec<i32> = vcpus.iter().flatten().map(|threads| threads.identity().id).collect();
        // The domain is ours: how its threads were need not be written down.
        let processors = &host.pools[host.pool_of(described.parent).0].processors;
        for &thread in &threads {
            sched::set_affinity(thread, &processors[..1]).map_err(Error::schedule(name))?;
        }
        let tasks: Vec<protocol::Task> = tasks.iter().map(|(_, task)| task.clone()).collect();
        let warm_up = if warms_up { &tasks[..] } else { &[] };
        let guest = std::thread::scope(|scope| {
            let measuring = || measure(client, name, &threads, warm_up);
            let measuring = Builder::new().spawn_scoped(scope, measuring).map_err(Error::NoThread)?;
            join(measuring, name, session, options.stop)
        })?;
        Ok(Some(guest))
    }
}

/// Lets a guest measure its processor twice, with a run of the tasks `warm_up` in between, if any.
fn measure(
    client: &mut Client,
    domain: &str,
    threads: &[i32],
    warm_up: &[protocol::Task],
) -> Result<Guest, Error> {
    let guest_error = Error::guest(domain);
    let schedule = |attributes: &Attributes| {
        let set = threads.iter().try_for_each(|&thread| sched::set_attributes(thread, attributes));
        set.map_err(Error::schedule(domain))
    };
    // Above everything that the host runs there, so that the work of a millisecond is not measured too small.
    // Several vCPUs take turns: a guest may wait for one that is ready while another of its own spins.
    let alone = match threads.len() {
        0 | 1 => Attributes::fifo(1),
        _ => Attributes { nice: -20, ..Attributes::other() },
    };
    schedule(&alone)?;
    let first = client.calibrate(CALIBRATION).map_err(&guest_error)?.iterations_per_ms;
    if !warm_up.is_empty() {
        schedule(&Attributes::other())?;
        client.begin(warm_up, None, first, (0, 0), WARM_UP.as_ns()).map_err(&guest_error)?;
        client.finish(StdDuration::from_nanos(WARM_UP.as_ns())).map_err(&guest_error)?;
    }
    schedule(&alone)?;
    let second = client.calibrate(CALIBRATION).map_err(&guest_error)?.iterations_per_ms;
    let clock = GuestClock::read(client).map_err(&guest_error)?;
    // Everything that disturbs a calibration makes the processor look slower.
    Ok(Guest { iterations_per_ms: first.max(second), clock })
}
