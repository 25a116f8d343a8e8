//! A task set inside a VM: a thread for each task under `SCHED_FIFO`.
//!
//! As S. Xi et al., "RT-Xen", EMSOFT 2011, s. 5.1: priorities by urgency (rate monotonic when the host orders
//! them so), work that is calibrated iterations, a late job runs on and later ones queue up, times are kept
//! in locked memory. Releases are absolute sleeps. Nothing is printed or allocated while the run goes on.
//!
//! Busy loops that are less urgent than every task with jobs run in the fair class, so that the guest's
//! kernel lives; one that is more urgent than a job is under `SCHED_FIFO` like the rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use punctual_jobs::JobStream;

use crate::disturb::{self, LOOK_ITERATIONS, STACK_BYTES};
use crate::log::{self, Counts, Executed, TaskLog};
use crate::os;
use crate::protocol::{Run, Task, TaskProgress, Work};
use crate::work;

/// The priority of the thread that ends the run: above every task.
const CONTROL_PRIORITY: i32 = 99;
/// The priority of the most urgent task. Below it each has its own, down to 1, which the rest share.
const TASK_PRIORITY_MAX: i32 = 90;

/// A task's thread, ready to start.
struct Prepared {
    go: mpsc::Sender<u64>,
    thread: JoinHandle<TaskLog>,
    counts: Arc<Counts>,
}

/// What a task's thread knows.
struct Context {
    work: Work,
    duration_ns: u64,
    iterations_per_ms: u64,
    stop: Arc<AtomicBool>,
}

/// Runs a task set that [`Run::check`] accepted. `progress` is called about once a second, from a thread of
/// the fair class, which disturbs no task.
///
/// # Errors
/// When memory cannot be locked, or a thread cannot be created or put under `SCHED_FIFO`; nothing has run
/// then.
pub fn execute(run: &Run, progress: &mut (impl FnMut(Vec<TaskProgress>) + Send)) -> Result<Executed, String> {
    let stop = Arc::new(AtomicBool::new(false));
    let prepared = prepare(run, &stop)?;
    let counts: Vec<Arc<Counts>> = prepared.iter().map(|task| Arc::clone(&task.counts)).collect();
    std::thread::scope(|scope| {
        let (over, is_over) = mpsc::channel::<()>();
        // A small stack: the tasks wait while memory is locked, and the usual 2 MiB take a translated guest
        // about 10 ms.
        let teller = std::thread::Builder::new().name("progress".into()).stack_size(STACK_BYTES);
        let telling = teller.spawn_scoped(scope, move || {
            let interval = std::time::Duration::from_nanos(log::progress_interval_ns(run.duration_ns));
            while is_over.recv_timeout(interval) == Err(mpsc::RecvTimeoutError::Timeout) {
                progress(counts.iter().map(|counts| counts.progress()).collect());
            }
        });
        telling.map_err(|error| format!("no thread to tell how far the run is: {error}"))?;
        let executed = carry_out(run, prepared, &stop);
        drop(over);
        executed
    })
}

fn carry_out(run: &Run, prepared: Vec<Prepared>, stop: &AtomicBool) -> Result<Executed, String> {
    // Now that the threads and the memory for their times are there.
    let locked = os::lock_memory().map_err(|error| {
        format!("memory cannot be locked: {error}; it takes root (CAP_IPC_LOCK) or a higher RLIMIT_MEMLOCK")
    });
    let own_priority = locked
        .and_then(|()| os::set_fifo(CONTROL_PRIORITY).map_err(|error| refused(CONTROL_PRIORITY, &error)));
    let outcome = own_priority.map(|()| {
        let start_ns = run.start_ns();
        for task in &prepared {
            // A thread that died is found by `join` below.
            let _ = task.go.send(start_ns);
        }
        os::sleep_until(start_ns + run.duration_ns);
        start_ns
    });
    stop.store(true, Ordering::Relaxed);
    let logs: Result<Vec<TaskLog>, String> = prepared
        .into_iter()
        .map(|Prepared { go, thread, .. }| {
            // Without an order to go, for a run that never started, the thread ends.
            drop(go);
            thread.join().map_err(|_| "a task's thread panicked".to_owned())
        })
        .collect();
    let back = os::set_fifo(0).map_err(|error| refused(0, &error));
    os::unlock_memory();
    let start_ns = outcome?;
    let ended_ns = os::now_ns() - start_ns;
    back?;
    Ok(Executed { logs: logs?, ended_ns })
}

/// The `SCHED_FIFO` priority of each task, in the request's order; 0 for the fair class.
fn priorities(run: &Run) -> Vec<i32> {
    let order = log::by_urgency(run);
    let busy = |task: &Task| matches!(task.work, Work::Hog { .. } | Work::ForkBomb { .. });
    let real_time = order.iter().rposition(|&task| !busy(&run.tasks[task])).map_or(0, |last| last + 1);
    let mut priorities = vec![0; run.tasks.len()];
    for (rank, &task) in order[..real_time].iter().enumerate() {
        priorities[task] = (TASK_PRIORITY_MAX - rank as i32).max(1);
    }
    priorities
}

fn refused(priority: i32, error: &std::io::Error) -> String {
    format!("SCHED_FIFO priority {priority} is refused: {error}; it takes root (CAP_SYS_NICE)")
}

/// Creates the tasks' threads, in the request's order; they wait to be told when the run starts.
fn prepare(run: &Run, stop: &Arc<AtomicBool>) -> Result<Vec<Prepared>, String> {
    let spawn = |(index, (task, priority)): (usize, (&Task, i32))| {
        let context = Context {
            work: task.work,
            duration_ns: run.duration_ns,
            iterations_per_ms: run.iterations_per_ms,
            stop: Arc::clone(stop),
        };
        let log = TaskLog::new(task, run.duration_ns);
        let counts = log.counts();
        let (go, gone) = mpsc::channel::<u64>();
        let (ready, is_ready) = mpsc::channel();
        let body = move || {
            let _ = ready.send(os::set_fifo(priority));
            match gone.recv() {
                Ok(start_ns) => context.run(log, start_ns),
                Err(_) => log,
            }
        };
        let thread = std::thread::Builder::new().name(format!("task {index}")).stack_size(STACK_BYTES);
        let thread = thread.spawn(body).map_err(|e| format!("no thread for task {index}: {e}"))?;
        match is_ready.recv() {
            Ok(Ok(())) => Ok(Prepared { go, thread, counts }),
            Ok(Err(error)) => Err(refused(priority, &error)),
            Err(_) => Err(format!("the thread of task {index} died")),
        }
    };
    run.tasks.iter().zip(priorities(run)).enumerate().map(spawn).collect()
}

impl Context {
    fn run(&self, mut log: TaskLog, start_ns: u64) -> TaskLog {
        match self.work {
            Work::Jobs(stream) => self.jobs(&mut log, stream, start_ns),
            Work::Hog { start_ns: at } => {
                self.sleep_until(start_ns, at);
                log.worked(disturb::hog(&self.stop));
            }
            Work::ForkBomb { start_ns: at, threads } => {
                self.sleep_until(start_ns, at);
                log.worked(disturb::defuse(disturb::fork_bomb(threads, &self.stop)));
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

    /// Sleeps until `at_ns` of the run, or its end.
    fn sleep_until(&self, start_ns: u64, at_ns: u64) {
        os::sleep_until(start_ns + at_ns.min(self.duration_ns));
    }

    fn jobs(&self, log: &mut TaskLog, stream: JobStream, start_ns: u64) {
        for job in stream.jobs_before(self.duration_ns) {
            self.sleep_until(start_ns, job.release_ns);
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            log.started(job, os::now_ns() - start_ns);
            let mut left = work::iterations_of(stream.cost_ns(job), self.iterations_per_ms);
            while left > 0 {
                let chunk = left.min(LOOK_ITERATIONS);
                work::burn(chunk);
                log.worked(chunk);
                left -= chunk;
                if self.stop.load(Ordering::Relaxed) {
                    return;
                }
            }
            log.finished(os::now_ns() - start_ns);
        }
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
        Run { start_at_ns: 0, duration_ns: 1, iterations_per_ms: 1, tasks }
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
