//! Repeats measurements, stops them when asked to, and collects the distributions.

use std::io::{self, Read};
use std::thread::JoinHandle;
use std::time::{Duration as Time, Instant as Moment};

use punctual_model::Histogram;
use punctual_sched::Duration;

use super::measurement::{Id, Measurement, Skipped};
use super::sys;

/// The first samples pay for cold caches and pages; they do not count.
const WARM_UP: usize = 20;
/// More samples of one measurement say nothing new.
const SAMPLES_MAX: u64 = 200_000;
/// How many samples are taken between two checks of the time and of the request to stop.
const BATCH: usize = 8;

/// Why a calibration ended early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It was asked to.
    #[error("stopped")]
    Stopped,
    /// The system refused something.
    #[error(transparent)]
    Os(#[from] io::Error),
}

/// A calibration that goes on.
pub(super) struct Session<'a> {
    /// How long each measurement is repeated.
    pub each: Time,
    pub stop: &'a (dyn Fn() -> bool + Sync),
    pub progress: &'a (dyn Fn(usize) + Sync),
    pub done: usize,
    pub measurements: Vec<Measurement>,
    pub skipped: Vec<Skipped>,
}

impl Session<'_> {
    /// Repeats a sample, which is one or more times in ns, for a step's share of the time.
    ///
    /// # Errors
    /// Those of the sample, and [`Error::Stopped`].
    pub(super) fn repeat<const N: usize>(
        &mut self,
        mut sample: impl FnMut() -> io::Result<[u64; N]>,
    ) -> Result<[Histogram; N], Error> {
        for _ in 0..WARM_UP {
            sample()?;
        }
        let mut times: [Histogram; N] = std::array::from_fn(|_| Histogram::new());
        let start = Moment::now();
        while start.elapsed() < self.each && times[0].count() < SAMPLES_MAX {
            for _ in 0..BATCH {
                for (times, ns) in times.iter_mut().zip(sample()?) {
                    times.record(Duration::from_ns(ns));
                }
            }
            if (self.stop)() {
                return Err(Error::Stopped);
            }
        }
        self.done += 1;
        (self.progress)(self.done);
        Ok(times)
    }

    /// Keeps a distribution.
    pub(super) fn add(&mut self, id: Id, times: Histogram) {
        self.measurements.push(Measurement { id, times });
    }

    /// Notes that the system refuses a measurement.
    pub(super) fn skip(&mut self, id: Id, error: &io::Error) {
        let reason = match error.kind() {
            io::ErrorKind::PermissionDenied => {
                "real-time priorities are refused; `punctual doctor --explain privilege` says why".into()
            }
            _ => error.to_string(),
        };
        self.skipped.push(Skipped { id, reason });
    }
}

/// Threads that sleep until they are dropped. Their accounts are read and their priorities changed.
pub(super) struct Sleepers {
    tids: Vec<i32>,
    /// Closing it wakes them.
    wake: Option<io::PipeWriter>,
    threads: Vec<JoinHandle<()>>,
}

impl Sleepers {
    pub(super) fn start(count: usize) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        let mut sleepers = Sleepers { tids: Vec::new(), wake: Some(writer), threads: Vec::new() };
        for _ in 0..count {
            let mut until_closed = reader.try_clone()?;
            let (report, reported) = std::sync::mpsc::channel();
            let body = move || {
                // Fails when the starter has given up, which ends this thread as well.
                let _ = report.send(sys::own_tid());
                // Returns when the other end is closed; an error ends the thread as well.
                let _ = until_closed.read(&mut [0]);
            };
            sleepers.threads.push(std::thread::Builder::new().name("punctual-sleep".into()).spawn(body)?);
            sleepers.tids.push(reported.recv().map_err(io::Error::other)?);
        }
        Ok(sleepers)
    }

    pub(super) fn tids(&self) -> &[i32] {
        &self.tids
    }
}

impl Drop for Sleepers {
    fn drop(&mut self) {
        self.wake = None;
        for thread in self.threads.drain(..) {
            // A thread that panicked has ended, which is all that matters here.
            let _ = thread.join();
        }
    }
}
