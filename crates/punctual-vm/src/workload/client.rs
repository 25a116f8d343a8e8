//! The host's side of the conversation with a guest program, in a VM or in a process.
//!
//! A guest may write anything, or nothing. Every call has a limit in time and memory; an answer that does not
//! fit is an error.

use std::io::{self, BufReader};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use punctual_guest::os::now_ns;
use punctual_guest::protocol::{
    self, Calibration, Cyclictest, FlowReport, Latencies, Network, Ready, ReceiveError, Reply, Request, Run,
    Task, TaskProgress,
};

use super::checks::{RunChecks, TaskJobs};
use super::error::{ChannelError, ClientError, ProtocolError};
use punctual_linux::channel::{Channel, Stop};

/// How long a guest may take for an answer that is no work, or for one after its work should be done. Long:
/// its vCPU may have a small share of a processor, or none while others calibrate.
const GRACE: Duration = Duration::from_secs(30);

/// Questions asked to find the distance of the clocks.
const CLOCK_QUESTIONS: usize = 9;

/// Most bytes of an answer that is no report of a run: a line, and what may stand before it.
const ANSWER_BYTES_MAX: u64 = 2 * protocol::LINE_BYTES_MAX as u64;

/// What a guest measured in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestMeasurement {
    /// How long after the run's end the guest noticed it.
    pub overrun_ns: u64,
    /// By task, in the order of the run.
    pub tasks: Vec<TaskJobs>,
    /// Jobs that were due and that the guest did not report. The tasks' jobs include them as never started.
    pub untold: u64,
    /// What it sent and answered.
    pub flows: Vec<FlowReport>,
}

/// How far the tasks of a run are by the guest's last report; readable while another thread waits for the
/// end.
#[derive(Debug)]
pub struct Progress {
    /// By task: jobs finished, and those of them that were late.
    tasks: Vec<(AtomicU64, AtomicU64)>,
    /// When the guest last told, since the run's start.
    told_ns: AtomicU64,
    /// When it told the time before.
    told_before_ns: AtomicU64,
}

impl Progress {
    pub(super) fn new(tasks: usize) -> Arc<Progress> {
        let tasks = (0..tasks).map(|_| Default::default()).collect();
        Arc::new(Progress { tasks, told_ns: AtomicU64::new(0), told_before_ns: AtomicU64::new(0) })
    }

    pub(super) fn set(&self, reported: &[TaskProgress], told_ns: u64) {
        let before_ns = self.told_ns.swap(told_ns, Ordering::Relaxed);
        self.told_before_ns.store(before_ns, Ordering::Relaxed);
        for ((finished, late), reported) in self.tasks.iter().zip(reported) {
            finished.store(reported.finished, Ordering::Relaxed);
            late.store(reported.late.min(reported.finished), Ordering::Relaxed);
        }
    }

    /// When the guest last told, since the run's start; 0 if it never did.
    pub fn told_ns(&self) -> u64 {
        self.told_ns.load(Ordering::Relaxed)
    }

    /// The time since the run's start up to which the guest has reported every job that had finished. It is
    /// the time of the report before the last one: the guest counted for its last report some time before
    /// that report arrived.
    pub fn settled_ns(&self) -> u64 {
        self.told_before_ns.load(Ordering::Relaxed)
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
    channel: BufReader<Channel>,
    ready: Ready,
    begun: Option<Begun>,
    progress: Arc<Progress>,
}

/// A run that was begun.
#[derive(Debug)]
struct Begun {
    /// When it starts, by our clock.
    start_ns: u64,
    duration_ns: u64,
    tasks: Vec<Task>,
    /// The numbers of flows and chains that it has an end or a step of.
    owners: Vec<u16>,
}

impl Client {
    /// Waits for the guest at the other end to announce itself, for `limit` at most: a VM has to boot first.
    /// `stop` ends this and every later wait early.
    ///
    /// # Errors
    /// When it does not, or speaks another version of the protocol.
    pub fn connect(socket: UnixStream, limit: Duration, stop: Stop) -> Result<Client, ClientError> {
        let mut channel = BufReader::new(Channel::over(socket, stop));
        channel.get_mut().allow(limit, ANSWER_BYTES_MAX);
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
        let give_up = Instant::now() + GRACE;
        for _ in 0..CLOCK_QUESTIONS {
            let left = give_up.saturating_duration_since(Instant::now());
            let asked_ns = now_ns();
            let reply = self.ask(&Request::Clock {}, "what its clock says", left)?;
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

    /// Sends a task set, and what to send and answer meanwhile. Both start when *our* monotonic clock says
    /// `start_at_ns` (see [`punctual_guest::os::now_ns`]) and go on for `duration_ns`. The call returns at
    /// once, so that other guests can begin at the same instant; [`Client::finish`] waits for the end.
    ///
    /// `offset_ns` is what [`Client::clock_offset_ns`] found.
    ///
    /// # Errors
    /// [`ClientError`]; a task set that the protocol does not allow too.
    pub fn begin(
        &mut self,
        tasks: &[Task],
        network: Option<&Network>,
        iterations_per_ms: u64,
        (start_at_ns, offset_ns): (u64, i64),
        duration_ns: u64,
    ) -> Result<(), ClientError> {
        let guest_start_ns = start_at_ns.saturating_add_signed(offset_ns);
        let run = Run {
            start_at_ns: guest_start_ns,
            duration_ns,
            iterations_per_ms,
            tasks: tasks.to_vec(),
            network: network.cloned(),
        };
        run.check()?;
        if self.begun.is_some() {
            return Err(ProtocolError::Unfinished.into());
        }
        self.send(&Request::Run(run), "to run a task set")?;
        let start_ns = if start_at_ns == 0 { now_ns() } else { start_at_ns };
        let owners = network.map_or(Vec::new(), owners);
        self.begun = Some(Begun { start_ns, duration_ns, tasks: tasks.to_vec(), owners });
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
    /// [`ClientError`]; `Protocol` also when the guest's numbers contradict themselves, or the jobs that its
    /// tasks release.
    pub fn finish(&mut self, limit: Duration) -> Result<GuestMeasurement, ClientError> {
        const DOING: &str = "to run a task set";
        let Some(Begun { start_ns, duration_ns, tasks: begun, owners }) = self.begun.take() else {
            return Err(ProtocolError::NotBegun.into());
        };
        let limit = limit + GRACE;
        self.channel.get_mut().allow(limit, run_bytes_max(&begun, owners.len(), duration_ns));
        let mut checks = RunChecks::new(&begun, owners, duration_ns);
        loop {
            let reply = read(&mut self.channel, DOING, limit)?;
            let elapsed_ns = now_ns().saturating_sub(start_ns);
            match reply {
                Reply::Progress { tasks } => {
                    checks.progress(&tasks, elapsed_ns)?;
                    self.progress.set(&tasks, elapsed_ns);
                }
                Reply::Jobs { task, jobs } => checks.jobs(task, &jobs, elapsed_ns)?,
                Reply::Flow(report) => checks.flow(report, elapsed_ns)?,
                Reply::Result(result) => {
                    let (tasks, flows, untold) = checks.finish(&result, elapsed_ns)?;
                    return Ok(GuestMeasurement { overrun_ns: result.overrun_ns, tasks, untold, flows });
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
        let channel = self.channel.get_mut();
        channel.allow(GRACE, 0);
        protocol::send(channel, request).map_err(|source| ChannelError::Send { doing, source }.into())
    }

    fn ask(&mut self, request: &Request, doing: &'static str, limit: Duration) -> Result<Reply, ClientError> {
        self.send(request, doing)?;
        self.channel.get_mut().allow(limit, ANSWER_BYTES_MAX);
        read(&mut self.channel, doing, limit)
    }
}

fn read(
    channel: &mut BufReader<Channel>,
    doing: &'static str,
    limit: Duration,
) -> Result<Reply, ClientError> {
    match protocol::receive(channel) {
        Ok(Reply::Error { message }) => Err(ClientError::Refused(message)),
        Ok(reply) => Ok(reply),
        Err(ReceiveError::Closed) => Err(ChannelError::Ended { doing }.into()),
        Err(ReceiveError::Malformed(why)) => Err(ProtocolError::Malformed(why).into()),
        Err(ReceiveError::Io(error)) => match error.kind() {
            io::ErrorKind::TimedOut => Err(ClientError::Timeout { doing, limit }),
            io::ErrorKind::QuotaExceeded => Err(ProtocolError::Flood { doing }.into()),
            _ => Err(ChannelError::Failed(error).into()),
        },
    }
}

fn unexpected(doing: &'static str, reply: &Reply) -> ClientError {
    let start: String = format!("{reply:?}").chars().take(80).collect();
    ProtocolError::Unexpected { doing, reply: start }.into()
}

/// The numbers of the flows and chains of a guest, once each.
fn owners(network: &Network) -> Vec<u16> {
    let steps = network.steps.iter().map(|step| step.owner);
    let mut owners: Vec<u16> = network.flows.iter().map(|flow| flow.owner).chain(steps).collect();
    owners.sort_unstable();
    owners.dedup();
    owners
}

/// The most bytes that a guest needs to report a run of these tasks: a line a second on the way, then its
/// jobs.
fn run_bytes_max(tasks: &[Task], ends: usize, duration_ns: u64) -> u64 {
    /// Three numbers of at most 20 digits, brackets and commas.
    const JOB: u64 = 66;
    /// What stands around numbers in a line.
    const LINE: u64 = 64;
    /// Two numbers of a task, in a line on the way or in the last one.
    const TASK: u64 = 80;
    let count = tasks.len() as u64;
    let jobs: u64 = tasks.iter().map(|task| task.work.jobs_max(duration_ns)).sum();
    let lines = duration_ns / 1_000_000_000 + 60;
    let flows = ends as u64 * protocol::LINE_BYTES_MAX as u64;
    flows
        + jobs * JOB
        + (jobs / protocol::JOBS_PER_LINE as u64 + count) * LINE
        + lines * (LINE + count * TASK)
}
