//! A task set inside a VM: a thread for each task under `SCHED_FIFO`.
//!
//! As in S. Xi et al., "RT-Xen", EMSOFT 2011, s. 5.1: priorities by urgency (rate monotonic when the host
//! orders them so), work in calibrated iterations, a late job runs on and later ones queue up, times are kept
//! in locked memory. Releases are absolute sleeps. Nothing is printed or allocated during the run.
//!
//! The thread of flows has a priority above all tasks, because the simulator too handles packets ahead of
//! tasks. Where a storm begins in this guest, that thread always has work and runs in the fair class.
//!
//! Busy loops that are less urgent than every task with jobs run in the fair class, so that the guest's
//! kernel gets some processor time. A busy loop that is more urgent than a task with jobs is under
//! `SCHED_FIFO`.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use punctual_jobs::{Job, JobStream, cost_ns};

use crate::disturb::{self, STACK_BYTES, STOP_CHECK_ITERATIONS};
use crate::flows::engine::Engine;
use crate::flows::mailbox::Mailbox;
use crate::flows::{self, Done, DoneSender, Link};
use crate::log::{JobCounts, TaskLog};
use crate::os;
use crate::protocol::{FlowReport, Network, Run, Task, TaskProgress, Traffic, Work};
use crate::run::{self, Executed};
use crate::work;

/// Priority of the thread that ends the run: above every task.
const CONTROL_PRIORITY: i32 = 99;
/// Priority of the thread of flows.
const FLOWS_PRIORITY: i32 = 95;
/// Priority of the most urgent task. Each less urgent task has the next lower one, down to 1, which the rest
/// share.
const TASK_PRIORITY_MAX: i32 = 90;

/// Why a task set did not run.
#[derive(Debug)]
pub(crate) enum Error {
    /// The limit on locked memory is too low.
    LockMemory(io::Error),
    /// The `SCHED_FIFO` priority (0 for the fair class) is not permitted.
    Priority { priority: i32, error: io::Error },
    /// The thread that reports progress cannot be created.
    ProgressThread(io::Error),
    /// The thread of the task at that place cannot be created.
    TaskThread { task: usize, error: io::Error },
    /// The socket or the thread of flows cannot be created.
    Flows(io::Error),
    /// The thread of the task at that place ended before the run.
    TaskEnded { task: usize },
    /// A task's thread panicked during the run.
    TaskPanicked,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::LockMemory(error) => write!(
                f,
                "cannot lock memory: {error}; it takes root (CAP_IPC_LOCK) or a higher RLIMIT_MEMLOCK"
            ),
            Error::Priority { priority, error } => {
                write!(f, "cannot set SCHED_FIFO priority {priority}: {error}; it takes root (CAP_SYS_NICE)")
            }
            Error::ProgressThread(error) => {
                write!(f, "cannot start the thread that reports progress: {error}")
            }
            Error::TaskThread { task, error } => write!(f, "cannot start the thread of task {task}: {error}"),
            Error::Flows(error) => write!(f, "cannot send packets: {error}"),
            Error::TaskEnded { task } => write!(f, "the thread of task {task} ended before the run"),
            Error::TaskPanicked => write!(f, "a task's thread panicked"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::LockMemory(error)
            | Error::Priority { error, .. }
            | Error::ProgressThread(error)
            | Error::Flows(error)
            | Error::TaskThread { error, .. } => Some(error),
            Error::TaskEnded { .. } | Error::TaskPanicked => None,
        }
    }
}

/// A task's thread, ready to start.
struct TaskThread {
    /// Jobs that packets release.
    released: Arc<Mailbox<Job>>,
    /// Receives the run's start. The thread ends when this is dropped without one.
    start: mpsc::Sender<u64>,
    thread: JoinHandle<TaskLog>,
    counts: Arc<JobCounts>,
}

/// The context of a task's thread.
struct Context {
    work: Work,
    /// The task's place in the request.
    task: usize,
    /// Jobs that packets released.
    released: Arc<Mailbox<Job>>,
    /// Reports finished jobs to the thread of flows.
    done: Option<DoneSender>,
    duration_ns: u64,
    iterations_per_ms: u64,
    stop: Arc<AtomicBool>,
}

/// Runs a task set that [`Run::check`] accepted. `progress` is called about once a second, from a thread of
/// the fair class, which disturbs no task.
///
/// # Errors
/// Memory cannot be locked, or a thread cannot be created or put under `SCHED_FIFO`. Nothing has run then.
pub(crate) fn execute(
    run: &Run,
    progress: &mut (impl FnMut(Vec<TaskProgress>) + Send),
) -> Result<Executed, Error> {
    let stop = Arc::new(AtomicBool::new(false));
    let (sender, done) = flows::done_channel().map_err(Error::Flows)?;
    let sender: &dyn Fn() -> io::Result<DoneSender> = &sender;
    let (tasks, releases) = create_threads(run, &stop, run.network.as_ref().map(|_| sender))?;
    let flows = run.network.as_ref().map(|network| FlowsThread::create(run, network, done, releases, &stop));
    let flows = flows.transpose()?;
    let counts: Vec<Arc<JobCounts>> = tasks.iter().map(|task| Arc::clone(&task.counts)).collect();
    thread::scope(|scope| {
        let (end, ended) = mpsc::channel::<()>();
        let interval = Duration::from_nanos(run::progress_interval_ns(run.duration_ns));
        let report = move || {
            while ended.recv_timeout(interval) == Err(mpsc::RecvTimeoutError::Timeout) {
                progress(counts.iter().map(|counts| counts.progress()).collect());
            }
        };
        // A small stack, because the tasks wait while memory is locked: the usual 2 MiB take a translated
        // guest about 10 ms.
        let reporter = thread::Builder::new().name("progress".into()).stack_size(STACK_BYTES);
        reporter.spawn_scoped(scope, report).map_err(Error::ProgressThread)?;
        let executed = run_tasks(run, tasks, flows, &stop);
        drop(end);
        executed
    })
}

/// Runs the tasks to the end of the run. Always ends their threads and unlocks memory.
fn run_tasks(
    run: &Run,
    tasks: Vec<TaskThread>,
    flows: Option<FlowsThread>,
    stop: &AtomicBool,
) -> Result<Executed, Error> {
    let started = start_and_wait(run, &tasks, flows.as_ref());
    stop.store(true, Ordering::Relaxed);
    // The thread of flows ends first: no job is released to a task after that.
    let flows = flows.map_or(Ok(Vec::new()), FlowsThread::join);
    let logs = tasks.into_iter().map(TaskThread::join).collect::<Result<Vec<TaskLog>, Error>>();
    let back = set_priority(0);
    os::unlock_memory();
    let start_ns = started?;
    let ended_ns = os::now_ns() - start_ns;
    back?;
    Ok(Executed { logs: logs?, flows: flows?, ended_ns })
}

/// Starts the tasks and sleeps until the end of the run. Returns the instant of the run's start.
fn start_and_wait(run: &Run, tasks: &[TaskThread], flows: Option<&FlowsThread>) -> Result<u64, Error> {
    // Only memory that exists is locked: threads and logs are allocated by now.
    os::lock_memory().map_err(Error::LockMemory)?;
    set_priority(CONTROL_PRIORITY)?;
    let start_ns = run::start_ns(run);
    if let Some(flows) = flows {
        let _ = flows.start.send(start_ns);
    }
    for task in tasks {
        // `TaskThread::join` reports a thread that has died.
        let _ = task.start.send(start_ns);
    }
    os::sleep_until(start_ns + run.duration_ns);
    Ok(start_ns)
}

/// The thread of flows, ready to start.
struct FlowsThread {
    /// Receives the run's start. The thread ends when this is dropped without one.
    start: mpsc::Sender<u64>,
    thread: JoinHandle<Engine>,
}

impl FlowsThread {
    fn create(
        run: &Run,
        network: &Network,
        done: flows::DoneReceiver,
        releases: Vec<Arc<Mailbox<Job>>>,
        stop: &Arc<AtomicBool>,
    ) -> Result<FlowsThread, Error> {
        let engine = Engine::new(network, run.tasks.len(), run.duration_ns);
        let link = if network.datagrams {
            Link::of_host_socket(network.ethernet)
        } else {
            Link::of_interface(network.ethernet)
        };
        let link = link.map_err(Error::Flows)?;
        let has_storm = |network: &Network| {
            network.flows.iter().any(|flow| flow.begins && matches!(flow.traffic, Traffic::Storm { .. }))
        };
        let priority = if has_storm(network) { 0 } else { FLOWS_PRIORITY };
        let (start, started) = mpsc::channel();
        let (ready, is_ready) = mpsc::channel();
        let (ethernet, duration_ns, stop) = (network.ethernet, run.duration_ns, Arc::clone(stop));
        let body = move || {
            let _ = ready.send(set_priority(priority));
            let Ok(start_ns) = started.recv() else { return engine };
            let mut release = |task: usize, job| {
                releases.get(task).into_iter().for_each(|task| task.put(job));
            };
            let when = (start_ns, duration_ns);
            flows::run(engine, &link, ethernet, &done, when, &stop, &mut release)
        };
        let thread = thread::Builder::new().name("flows".into()).stack_size(STACK_BYTES);
        let thread = thread.spawn(body).map_err(Error::Flows)?;
        is_ready.recv().unwrap_or(Err(Error::TaskPanicked))?;
        Ok(FlowsThread { start, thread })
    }

    fn join(self) -> Result<Vec<FlowReport>, Error> {
        drop(self.start);
        self.thread.join().map(Engine::into_reports).map_err(|_| Error::TaskPanicked)
    }
}

fn set_priority(priority: i32) -> Result<(), Error> {
    os::set_fifo(priority).map_err(|error| Error::Priority { priority, error })
}

/// The `SCHED_FIFO` priority of each task, in the request's order; 0 for the fair class.
fn priorities(run: &Run) -> Vec<i32> {
    let order = run::by_urgency(run);
    let is_busy_loop = |task: &Task| matches!(task.work, Work::Hog { .. } | Work::ForkBomb { .. });
    // SCHED_FIFO down to the least urgent task that is not a busy loop.
    let real_time =
        order.iter().rposition(|&task| !is_busy_loop(&run.tasks[task])).map_or(0, |last| last + 1);
    let mut priorities = vec![0; run.tasks.len()];
    for (rank, &task) in order[..real_time].iter().enumerate() {
        priorities[task] = (TASK_PRIORITY_MAX - rank as i32).max(1);
    }
    priorities
}

/// Threads in the request's order, and the mailboxes for jobs that packets release.
type Created = (Vec<TaskThread>, Vec<Arc<Mailbox<Job>>>);

/// Creates the tasks' threads, which wait for the run's start.
fn create_threads(
    run: &Run,
    stop: &Arc<AtomicBool>,
    sender: Option<&dyn Fn() -> io::Result<DoneSender>>,
) -> Result<Created, Error> {
    let (mut tasks, mut releases) = (Vec::new(), Vec::new());
    for (index, priority) in priorities(run).into_iter().enumerate() {
        let released = Arc::<Mailbox<Job>>::default();
        let context = Context {
            work: run.tasks[index].work,
            task: index,
            released: Arc::clone(&released),
            done: sender.map(|sender| sender()).transpose().map_err(Error::Flows)?,
            duration_ns: run.duration_ns,
            iterations_per_ms: run.iterations_per_ms,
            stop: Arc::clone(stop),
        };
        tasks.push(TaskThread::create(run, index, priority, context)?);
        releases.push(released);
    }
    Ok((tasks, releases))
}

impl TaskThread {
    fn create(run: &Run, index: usize, priority: i32, context: Context) -> Result<TaskThread, Error> {
        let released = Arc::clone(&context.released);
        let log = TaskLog::new(&run.tasks[index], run.duration_ns);
        let counts = log.counts();
        let (start, started) = mpsc::channel::<u64>();
        let (ready, is_ready) = mpsc::channel();
        let body = move || {
            let _ = ready.send(set_priority(priority));
            match started.recv() {
                Ok(start_ns) => context.run(log, start_ns),
                Err(_) => log,
            }
        };
        let thread = thread::Builder::new().name(format!("task {index}")).stack_size(STACK_BYTES);
        let thread = thread.spawn(body).map_err(|error| Error::TaskThread { task: index, error })?;
        is_ready.recv().unwrap_or(Err(Error::TaskEnded { task: index }))?;
        Ok(TaskThread { released, start, thread, counts })
    }

    fn join(self) -> Result<TaskLog, Error> {
        drop(self.start);
        self.released.close();
        self.thread.join().map_err(|_| Error::TaskPanicked)
    }
}

impl Context {
    fn run(&self, mut log: TaskLog, start_ns: u64) -> TaskLog {
        match self.work {
            Work::Jobs(stream) => self.jobs(&mut log, stream, start_ns),
            Work::Served { cost_min_ns, cost_max_ns, seed } => {
                let cost_ns = |job: Job| cost_ns(seed, job.number, cost_min_ns, cost_max_ns);
                while let Some(job) = self.released.wait() {
                    if self.stop.load(Ordering::Relaxed) {
                        log.never_started(job);
                    } else {
                        self.job(&mut log, job, cost_ns(job), start_ns);
                    }
                }
            }
            Work::Hog { start_ns: at } => {
                self.sleep_until(start_ns, at);
                log.worked(disturb::busy_loop(&self.stop));
            }
            Work::ForkBomb { start_ns: at, threads } => {
                self.sleep_until(start_ns, at);
                log.worked(disturb::join_fork_bomb(disturb::fork_bomb(threads, &self.stop)));
            }
            Work::WakeFlood { start_ns: at, interval_ns } => {
                let mut next = at;
                while !self.stop.load(Ordering::Relaxed) {
                    self.sleep_until(start_ns, next);
                    next = (os::now_ns() - start_ns) + interval_ns;
                }
            }
        }
        log
    }

    /// Sleeps until `at_ns` of the run, or the run's end.
    fn sleep_until(&self, start_ns: u64, at_ns: u64) {
        os::sleep_until(start_ns + at_ns.min(self.duration_ns));
    }

    fn jobs(&self, log: &mut TaskLog, stream: JobStream, start_ns: u64) {
        for job in stream.jobs_before(self.duration_ns) {
            self.sleep_until(start_ns, job.release_ns);
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            if !self.job(log, job, stream.cost_ns(job), start_ns) {
                return;
            }
        }
    }

    /// Does a job's work. Returns false when the run ended first.
    fn job(&self, log: &mut TaskLog, job: Job, cost_ns: u64, start_ns: u64) -> bool {
        log.started(job, os::now_ns() - start_ns);
        let mut left = work::iterations_of(cost_ns, self.iterations_per_ms);
        while left > 0 {
            let chunk = left.min(STOP_CHECK_ITERATIONS);
            work::burn(chunk);
            log.worked(chunk);
            left -= chunk;
            if self.stop.load(Ordering::Relaxed) {
                return false;
            }
        }
        let at_ns = os::now_ns() - start_ns;
        log.finished(at_ns);
        if let Some(done) = &self.done {
            done.send(Done { task: self.task, release_ns: job.release_ns, at_ns });
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_jobs::Arrival;

    fn task(priority: u32, work: Work) -> Task {
        Task { priority, deadline_ns: None, work }
    }

    fn jobs() -> Work {
        let arrival = Arrival::Periodic { period_ns: 1_000_000, offset_ns: 0 };
        Work::Jobs(JobStream { arrival, cost_min_ns: 1000, cost_max_ns: 1000, seed: 0 })
    }

    fn run(tasks: Vec<Task>) -> Run {
        Run { start_at_ns: 0, duration_ns: 1, iterations_per_ms: 1, tasks, network: None }
    }

    #[test]
    fn more_urgent_tasks_get_greater_priorities_and_equal_ones_stand_in_order() {
        let run = run(vec![task(7, jobs()), task(3, jobs()), task(7, jobs())]);
        assert_eq!(priorities(&run), [89, 90, 88]);
    }

    #[test]
    fn busy_loops_below_all_jobs_are_in_the_fair_class_and_those_above_one_are_not() {
        let hog = Work::Hog { start_ns: 0 };
        let bomb = Work::ForkBomb { start_ns: 0, threads: 2 };
        let run = run(vec![task(9, hog), task(1, hog), task(2, jobs()), task(8, bomb)]);
        assert_eq!(priorities(&run), [0, 90, 89, 0]);
    }

    #[test]
    fn beyond_ninety_tasks_the_least_urgent_share_the_lowest_priority() {
        let run = run((0..100).map(|n| task(n, jobs())).collect());
        assert_eq!(priorities(&run)[88..], [2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
    }
}
