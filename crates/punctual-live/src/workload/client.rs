//! The host's side of the conversation with a guest program, in a VM or in a process.
//!
//! A guest may write anything, or nothing. Every call has a limit in time and memory, and what does not fit
//! is an error.

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

/// How long a guest may take for an answer that is no work, or for one after its work should be done. Long:
/// its vCPU may have a small share of a processor, or none while others calibrate.
const GRACE: Duration = Duration::from_secs(30);

/// Questions asked to find the distance of the clocks.
const CLOCK_QUESTIONS: usize = 9;

/// What went wrong with a guest.
#[derive(Debug)]
pub enum ClientError {
    /// It did not answer in time.
    Timeout {
        /// What it was asked for.
        doing: String,
        /// How long it had.
        limit: Duration,
    },
    /// It ended, or its channel failed.
    Channel(String),
    /// It answered something else than the protocol says.
    Protocol(String),
    /// It says that it cannot.
    Refused(String),
}

impl std::fmt::Display for ClientError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ClientError::Timeout { doing, limit } => {
                write!(f, "the guest did not answer within {} s ({doing})", limit.as_secs_f64())
            }
            ClientError::Channel(why) => write!(f, "{why}"),
            ClientError::Protocol(why) => write!(f, "{why}"),
            ClientError::Refused(why) => write!(f, "the guest cannot do it: {why}"),
        }
    }
}

impl std::error::Error for ClientError {}

/// What a run measured.
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

/// How far the tasks of a run are, as the guest told last; readable while somebody waits for its end.
#[derive(Debug)]
pub struct Progress {
    /// By task: jobs finished, and those of them that were late.
    tasks: Vec<(AtomicU64, AtomicU64)>,
}

impl Progress {
    pub(super) fn new(tasks: usize) -> Arc<Progress> {
        Arc::new(Progress { tasks: (0..tasks).map(|_| Default::default()).collect() })
    }

    pub(super) fn set(&self, told: &[TaskProgress]) {
        for ((finished, late), told) in self.tasks.iter().zip(told) {
            finished.store(told.finished, Ordering::Relaxed);
            late.store(told.late.min(told.finished), Ordering::Relaxed);
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
    channel: BufReader<Timed>,
    ready: Ready,
    /// The run that was begun: its length and its number of tasks.
    begun: Option<(u64, usize)>,
    progress: Arc<Progress>,
}

/// A socket from which one can read until a certain instant.
#[derive(Debug)]
struct Timed {
    socket: UnixStream,
    until: Instant,
}

impl Read for Timed {
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
        socket.set_write_timeout(Some(GRACE)).map_err(|error| ClientError::Channel(error.to_string()))?;
        let mut channel = BufReader::new(Timed { socket, until: Instant::now() + limit });
        let ready = match read(&mut channel, "to start", limit)? {
            Reply::Ready(ready) => ready,
            other => return Err(unexpected("to start", &other)),
        };
        if ready.protocol != protocol::VERSION {
            return Err(ClientError::Protocol(format!(
                "the guest program speaks version {} of the protocol, this is version {}: it was built from other \
                 sources",
                ready.protocol,
                protocol::VERSION
            )));
        }
        Ok(Client { channel, ready, begun: None, progress: Progress::new(0) })
    }

    /// What the guest said of itself.
    pub fn ready(&self) -> &Ready {
        &self.ready
    }

    /// Lets the guest find out how much work it does in a millisecond. Nobody else should want its processor
    /// meanwhile.
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
        run.check().map_err(|error| ClientError::Refused(error.to_string()))?;
        if self.begun.is_some() {
            return Err(ClientError::Protocol("a run was begun and is not finished".into()));
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
            return Err(ClientError::Protocol("no run was begun".into()));
        };
        let limit = limit + GRACE;
        self.channel.get_mut().until = Instant::now() + limit;
        let mut tasks = vec![TaskJobs::default(); count];
        loop {
            match read(&mut self.channel, DOING, limit)? {
                Reply::Progress { tasks } => self.progress.set(&tasks),
                Reply::Jobs { task, jobs } => add(&mut tasks, task, &jobs, duration_ns)?,
                Reply::Result(result) => {
                    let told = result.tasks.iter().map(|task| task.jobs);
                    if !told.eq(tasks.iter().map(|task| task.jobs.len() as u64)) {
                        return Err(ClientError::Protocol("the guest's result has lost jobs".into()));
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
        how.check().map_err(|error| ClientError::Refused(error.to_string()))?;
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
    /// When it cannot be told.
    pub fn quit(&mut self) -> Result<(), ClientError> {
        self.send(&Request::Quit {}, "to end")
    }

    fn send(&mut self, request: &Request, doing: &str) -> Result<(), ClientError> {
        protocol::send(&mut self.channel.get_mut().socket, request)
            .map_err(|error| ClientError::Channel(format!("the guest cannot be asked {doing}: {error}")))
    }

    fn ask(&mut self, request: &Request, doing: &str, limit: Duration) -> Result<Reply, ClientError> {
        self.send(request, doing)?;
        self.channel.get_mut().until = Instant::now() + limit;
        read(&mut self.channel, doing, limit)
    }
}

fn read(channel: &mut BufReader<Timed>, doing: &str, limit: Duration) -> Result<Reply, ClientError> {
    match protocol::receive(channel) {
        Ok(Reply::Error { message }) => Err(ClientError::Refused(message)),
        Ok(reply) => Ok(reply),
        Err(ReceiveError::Closed) => {
            Err(ClientError::Channel(format!("the guest program ended when it was asked {doing}")))
        }
        Err(ReceiveError::Malformed(why)) => {
            Err(ClientError::Protocol(format!("the guest does not speak the protocol: {why}")))
        }
        Err(ReceiveError::Io(error)) => match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
                Err(ClientError::Timeout { doing: doing.into(), limit })
            }
            _ => Err(ClientError::Channel(format!("the guest's channel failed: {error}"))),
        },
    }
}

fn unexpected(doing: &str, reply: &Reply) -> ClientError {
    let start: String = format!("{reply:?}").chars().take(80).collect();
    ClientError::Protocol(format!("the guest was asked {doing} and answered {start}"))
}

/// Adds jobs that the guest told of.
fn add(tasks: &mut [TaskJobs], task: usize, jobs: &[JobTimes], duration_ns: u64) -> Result<(), ClientError> {
    let total: usize = tasks.iter().map(|task| task.jobs.len()).sum();
    let count = tasks.len();
    let Some(known) = tasks.get_mut(task) else {
        return Err(ClientError::Protocol(format!("the guest tells of task {task}, but there are {count}")));
    };
    if total as u64 + jobs.len() as u64 > protocol::JOBS_MAX {
        return Err(ClientError::Protocol("the guest tells of more jobs than a run may have".into()));
    }
    for job in jobs {
        job.check(duration_ns).map_err(|error| ClientError::Protocol(error.to_string()))?;
        if known.jobs.last().is_some_and(|last| last.release_ns > job.release_ns) {
            return Err(ClientError::Protocol(format!("the jobs of task {task} are out of order")));
        }
        known.jobs.push(*job);
    }
    Ok(())
}
