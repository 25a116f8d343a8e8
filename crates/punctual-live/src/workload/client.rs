//! The host's side of the conversation with a guest program, in a VM or in a process.
//!
//! A guest may write anything, or nothing. Every call has a limit in time and memory; an answer that does not
//! fit is an error.

use std::io::{self, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use punctual_guest::os::now_ns;
use punctual_guest::protocol::{
    self, Calibration, Cyclictest, JobTimes, Latencies, Ready, ReceiveError, Reply, Request, Run, Task,
    TaskProgress,
};

use super::error::{ChannelError, ClientError, ProtocolError};

/// How long a guest may take for an answer that is no work, or for one after its work should be done. Long:
/// its vCPU may have a small share of a processor, or none while others calibrate.
const GRACE: Duration = Duration::from_secs(30);

/// Questions asked to find the distance of the clocks.
const CLOCK_QUESTIONS: usize = 9;

/// What a guest measured in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestMeasurement {
    /// How long after the run's end the guest noticed it.
    pub overrun_ns: u64,
    /// By task, in the order of the run.
    pub tasks: Vec<TaskJobs>,
}

/// What one task of a run did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskJobs {
    /// Its jobs in order of release, unfinished ones too.
    pub jobs: Vec<JobTimes>,
    /// Processor time that its work takes by the calibration.
    pub executed_ns: u64,
}

/// How far the tasks of a run are by the guest's last report; readable while another thread waits for the
/// end.
#[derive(Debug)]
pub struct Progress {
    /// By task: jobs finished, and those of them that were late.
    tasks: Vec<(AtomicU64, AtomicU64)>,
}

impl Progress {
    pub(super) fn new(tasks: usize) -> Arc<Progress> {
        Arc::new(Progress { tasks: (0..tasks).map(|_| Default::default()).collect() })
    }

    pub(super) fn set(&self, reported: &[TaskProgress]) {
        for ((finished, late), reported) in self.tasks.iter().zip(reported) {
            finished.store(reported.finished, Ordering::Relaxed);
            late.store(reported.late.min(reported.finished), Ordering::Relaxed);
        }
    }

    /// By task of the run: jobs finished, and those of them that were late.
    pub fn tasks(&self) -> impl Iterator<Item = (u64, u64)> {
        self.tasks
            .iter()
            .map(|(finished, late)| (finished.load(Ordering::Relaxed), late.load(Ordering::Relaxed)))
    }
}

/// A conversation with one guest.
#[derive(Debug)]
pub struct Client {
    channel: BufReader<DeadlineReader>,
    ready: Ready,
    /// The run that was begun: its length and its number of tasks.
    begun: Option<(u64, usize)>,
    progress: Arc<Progress>,
}

/// A socket whose reads fail after a certain instant.
#[derive(Debug)]
struct DeadlineReader {
    socket: UnixStream,
    until: Instant,
}

impl Read for DeadlineReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.socket.set_read_timeout(Some(left))?;
        self.socket.read(buffer)
    }
}

impl Client {
    /// Waits for the guest at the other end to announce itself, for `limit` at most: a VM has to boot first.
    ///
    /// # Errors
    /// When it does not, or speaks another version of the protocol.
    pub fn connect(socket: UnixStream, limit: Duration) -> Result<Client, ClientError> {
        socket.set_write_timeout(Some(GRACE)).map_err(ChannelError::Failed)?;
        let mut channel = BufReader::new(DeadlineReader { socket, until: Instant::now() + limit });
        let ready = match read(&mut channel, "to start", limit)? {
            Reply::Ready(ready) => ready,
            other => return Err(unexpected("to start", &other)),
        };
        if ready.protocol != protocol::VERSION {
            return Err(ProtocolError::Version { guest: ready.protocol }.into());
        }
        Ok(Client { channel, ready, begun: None, progress: Progress::new(0) })
    }

    /// How the guest announced itself.
    pub fn ready(&self) -> &Ready {
        &self.ready
    }

    /// Lets the guest find out how much work it does in a millisecond. No other thread should want its
    /// processor meanwhile.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn calibrate(&mut self, duration: Duration) -> Result<Calibration, ClientError> {
        let duration_ns = duration.as_nanos() as u64;
        match self.ask(&Request::Calibrate { duration_ns }, "to calibrate", duration + GRACE)? {
            Reply::Calibrated(calibration) if calibration.iterations_per_ms > 0 => Ok(calibration),
            other => Err(unexpected("to calibrate", &other)),
        }
    }

    /// How far the guest's monotonic clock is ahead of ours, and how wrong that may be, both in ns. A process
    /// has our clock.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn clock_offset_ns(&mut self) -> Result<(i64, u64), ClientError> {
        let mut best = (0, u64::MAX);
        for _ in 0..CLOCK_QUESTIONS {
            let asked_ns = now_ns();
            let reply = self.ask(&Request::Clock {}, "what its clock says", GRACE)?;
            let answered_ns = now_ns();
            let Reply::Clock { now_ns: guest_ns } = reply else {
                return Err(unexpected("what its clock says", &reply));
            };
            // The clock was read between both instants; the middle is wrong by half of the distance at most.
            let (middle_ns, error_ns) = (asked_ns.midpoint(answered_ns), (answered_ns - asked_ns) / 2);
            if error_ns < best.1 {
                best = (guest_ns.min(i64::MAX as u64) as i64 - middle_ns as i64, error_ns);
            }
        }
        Ok(best)
    }

    /// Sends a task set that starts when *our* monotonic clock says `start_at_ns` (see
    /// [`punctual_guest::os::now_ns`]) and goes on for `duration_ns`. The call returns at once, so that other
    /// guests can begin at the same instant; [`Client::finish`] waits for the end.
    ///
    /// `offset_ns` is what [`Client::clock_offset_ns`] found.
    ///
    /// # Errors
    /// [`ClientError`]; a task set that the protocol does not allow too.
    pub fn begin(
        &mut self,
        tasks: &[Task],
        iterations_per_ms: u64,
        (start_at_ns, offset_ns): (u64, i64),
        duration_ns: u64,
    ) -> Result<(), ClientError> {
        let start_at_ns = start_at_ns.saturating_add_signed(offset_ns);
        let run = Run { start_at_ns, duration_ns, iterations_per_ms, tasks: tasks.to_vec() };
        run.check()?;
        if self.begun.is_some() {
            return Err(ProtocolError::Unfinished.into());
        }
        self.send(&Request::Run(run), "to run a task set")?;
        self.begun = Some((duration_ns, tasks.len()));
        self.progress = Progress::new(tasks.len());
        Ok(())
    }

    /// How far the run is that was begun; [`Client::finish`] keeps it up to date.
    pub fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    /// Waits for the end of the run that was begun, for `limit` and half a minute at most: `limit` is the
    /// time until the run should be over.
    ///
    /// # Errors
    /// [`ClientError`]; `Protocol` also when the guest's numbers contradict themselves.
    pub fn finish(&mut self, limit: Duration) -> Result<GuestMeasurement, ClientError> {
        const DOING: &str = "to run a task set";
        let Some((duration_ns, count)) = self.begun.take() else {
            return Err(ProtocolError::NotBegun.into());
        };
        let limit = limit + GRACE;
        self.channel.get_mut().until = Instant::now() + limit;
        let mut tasks = vec![TaskJobs::default(); count];
        loop {
            match read(&mut self.channel, DOING, limit)? {
                Reply::Progress { tasks } => self.progress.set(&tasks),
                Reply::Jobs { task, jobs } => add(&mut tasks, task, &jobs, duration_ns)?,
                Reply::Result(result) => {
                    let reported = result.tasks.iter().map(|task| task.jobs);
                    if !reported.eq(tasks.iter().map(|task| task.jobs.len() as u64)) {
                        return Err(ProtocolError::LostJobs.into());
                    }
                    for (task, totals) in tasks.iter_mut().zip(&result.tasks) {
                        task.executed_ns = totals.executed_ns;
                    }
                    return Ok(GuestMeasurement { overrun_ns: result.overrun_ns, tasks });
                }
                other => return Err(unexpected(DOING, &other)),
            }
        }
    }

    /// Runs cyclictest in the guest.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn cyclictest(&mut self, how: Cyclictest) -> Result<Latencies, ClientError> {
        how.check()?;
        let duration = Duration::from_micros(u64::from(how.interval_us) * u64::from(how.loops));
        // A late wake-up puts off all that follow.
        match self.ask(&Request::Cyclictest(how), "to run cyclictest", 3 * duration + GRACE)? {
            Reply::Cyclictest(latencies) => Ok(latencies),
            other => Err(unexpected("to run cyclictest", &other)),
        }
    }

    /// Asks the guest to end; does not wait for it.
    ///
    /// # Errors
    /// When its channel failed.
    pub fn quit(&mut self) -> Result<(), ClientError> {
        self.send(&Request::Quit {}, "to end")
    }

    fn send(&mut self, request: &Request, doing: &'static str) -> Result<(), ClientError> {
        protocol::send(&mut self.channel.get_mut().socket, request)
            .map_err(|source| ChannelError::Send { doing, source }.into())
    }

    fn ask(&mut self, request: &Request, doing: &'static str, limit: Duration) -> Result<Reply, ClientError> {
        self.send(request, doing)?;
        self.channel.get_mut().until = Instant::now() + limit;
        read(&mut self.channel, doing, limit)
    }
}

fn read(
    channel: &mut BufReader<DeadlineReader>,
    doing: &'static str,
    limit: Duration,
) -> Result<Reply, ClientError> {
    match protocol::receive(channel) {
        Ok(Reply::Error { message }) => Err(ClientError::Refused(message)),
        Ok(reply) => Ok(reply),
        Err(ReceiveError::Closed) => Err(ChannelError::Ended { doing }.into()),
        Err(ReceiveError::Malformed(why)) => Err(ProtocolError::Malformed(why).into()),
        Err(ReceiveError::Io(error)) => match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Err(ClientError::Timeout { doing, limit }),
            _ => Err(ChannelError::Failed(error).into()),
        },
    }
}

fn unexpected(doing: &'static str, reply: &Reply) -> ClientError {
    let start: String = format!("{reply:?}").chars().take(80).collect();
    ProtocolError::Unexpected { doing, reply: start }.into()
}

/// Adds jobs that the guest reported.
fn add(tasks: &mut [TaskJobs], task: usize, jobs: &[JobTimes], duration_ns: u64) -> Result<(), ClientError> {
    let total: usize = tasks.iter().map(|task| task.jobs.len()).sum();
    let count = tasks.len();
    let Some(known) = tasks.get_mut(task) else {
        return Err(ProtocolError::UnknownTask { task, tasks: count }.into());
    };
    if total as u64 + jobs.len() as u64 > protocol::JOBS_MAX {
        return Err(ProtocolError::TooManyJobs.into());
    }
    for job in jobs {
        job.check(duration_ns).map_err(ProtocolError::Job)?;
        if known.jobs.last().is_some_and(|last| last.release_ns > job.release_ns) {
            return Err(ProtocolError::Disorder { task }.into());
        }
        known.jobs.push(*job);
    }
    Ok(())
}
