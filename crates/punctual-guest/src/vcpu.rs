//! A task set as one thread that is a virtual CPU. The guest's scheduler runs in user space, on that thread.
//!
//! Jobs run in short chunks of calibrated iterations. After each chunk the most urgent task with a released
//! job runs next: preemptive fixed priorities with a chunk as granularity. Without work the thread sleeps
//! until the next release, as a halted vCPU does. While the host does not run the thread, the guest stands
//! still and its clock goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use punctual_jobs::{Job, JobStream};

use crate::disturb;
use crate::log::{JobCounts, TaskLog};
use crate::os;
use crate::protocol::{Run, TaskProgress, Work};
use crate::run::{self, Executed};
use crate::work;

/// Length of a chunk: the greatest delay before the scheduler notices a release.
const CHUNK_NS: u64 = 15_000;

/// Processor time of a wake-up of a flood.
const FLOOD_COST_NS: u64 = 1000;

/// A task at work.
struct GuestTask {
    /// The task's place in the request.
    place: usize,
    log: TaskLog,
    state: State,
}

enum State {
    /// Never has work.
    Idle,
    Jobs {
        stream: JobStream,
        /// The current job, or the next one.
        job: Job,
        /// Iterations that the job still needs; 0 before it starts.
        left: u64,
    },
    Hog {
        start_ns: u64,
    },
    ForkBomb {
        start_ns: u64,
        threads: u32,
        exploded: bool,
    },
    WakeFlood {
        next_ns: u64,
        interval_ns: u64,
    },
}

impl GuestTask {
    /// The next instant at which the task has work.
    fn next_work_ns(&self) -> u64 {
        match self.state {
            State::Idle => u64::MAX,
            State::Jobs { job, .. } => job.release_ns,
            State::Hog { start_ns } => start_ns,
            State::ForkBomb { exploded: true, .. } => u64::MAX,
            State::ForkBomb { start_ns, .. } => start_ns,
            State::WakeFlood { next_ns, .. } => next_ns,
        }
    }
}

/// The processor that the tasks share.
struct VirtualCpu {
    iterations_per_ms: u64,
    /// Iterations of a chunk.
    chunk: u64,
    stop: Arc<AtomicBool>,
    /// Fork bombs that went off: the task's place and the threads.
    bombs: Vec<(usize, Vec<JoinHandle<u64>>)>,
}

/// Runs a task set that [`Run::check`] accepted. `progress` is called about once a second on the vCPU's time,
/// as a guest's kernel would do the same work.
pub(crate) fn execute(run: &Run, progress: &mut impl FnMut(Vec<TaskProgress>)) -> Executed {
    let mut tasks = guest_tasks(run);
    let mut reporter = Reporter::new(&tasks, run.duration_ns, progress);
    // A page fault during the run would count as execution. Ordinary users' RLIMIT_MEMLOCK may be too low;
    // then the run continues with unlocked memory.
    let _ = os::lock_memory();
    let mut cpu = VirtualCpu {
        iterations_per_ms: run.iterations_per_ms,
        chunk: work::iterations_of(CHUNK_NS, run.iterations_per_ms),
        stop: Arc::new(AtomicBool::new(false)),
        bombs: Vec::new(),
    };
    let start_ns = run::start_ns(run);
    os::sleep_until(start_ns);
    cpu.schedule(&mut tasks, start_ns, run.duration_ns, &mut reporter);
    cpu.end_fork_bombs(&mut tasks);
    let ended_ns = os::now_ns() - start_ns;
    os::unlock_memory();
    tasks.sort_by_key(|task| task.place);
    Executed { logs: tasks.into_iter().map(|task| task.log).collect(), flows: Vec::new(), ended_ns }
}

/// The tasks from most to least urgent.
fn guest_tasks(run: &Run) -> Vec<GuestTask> {
    let guest_task = |place: usize| {
        let state = match run.tasks[place].work {
            Work::Jobs(stream) => State::Jobs { stream, job: stream.first(), left: 0 },
            // A process has no interface, so no packet releases jobs.
            Work::Served { .. } => State::Idle,
            Work::Hog { start_ns } => State::Hog { start_ns },
            Work::ForkBomb { start_ns, threads } => State::ForkBomb { start_ns, threads, exploded: false },
            Work::WakeFlood { start_ns, interval_ns } => State::WakeFlood { next_ns: start_ns, interval_ns },
        };
        GuestTask { place, log: TaskLog::new(&run.tasks[place], run.duration_ns), state }
    };
    run::by_urgency(run).into_iter().map(guest_task).collect()
}

/// Reports the tasks' progress at intervals.
struct Reporter<'a, F> {
    progress: &'a mut F,
    /// In the request's order.
    counts: Vec<Arc<JobCounts>>,
    interval_ns: u64,
    /// Instant of the next report.
    next_ns: u64,
}

impl<'a, F: FnMut(Vec<TaskProgress>)> Reporter<'a, F> {
    fn new(tasks: &[GuestTask], duration_ns: u64, progress: &'a mut F) -> Self {
        let mut order: Vec<&GuestTask> = tasks.iter().collect();
        order.sort_by_key(|task| task.place);
        let counts = order.into_iter().map(|task| task.log.counts()).collect();
        let interval_ns = run::progress_interval_ns(duration_ns);
        Reporter { progress, counts, interval_ns, next_ns: interval_ns }
    }

    /// Reports if a report is due.
    fn report(&mut self, now_ns: u64) {
        if now_ns >= self.next_ns {
            (self.progress)(self.counts.iter().map(|counts| counts.progress()).collect());
            self.next_ns = now_ns + self.interval_ns;
        }
    }
}

impl VirtualCpu {
    /// Runs the most urgent task that has work, chunk by chunk, until the run's end.
    fn schedule<F: FnMut(Vec<TaskProgress>)>(
        &mut self,
        tasks: &mut [GuestTask],
        start_ns: u64,
        duration_ns: u64,
        reporter: &mut Reporter<'_, F>,
    ) {
        loop {
            let now_ns = os::now_ns() - start_ns;
            if now_ns >= duration_ns {
                return;
            }
            reporter.report(now_ns);
            match tasks.iter_mut().find(|task| task.next_work_ns() <= now_ns) {
                Some(task) => self.advance(task, now_ns, || os::now_ns() - start_ns),
                None => {
                    let next_ns = tasks.iter().map(GuestTask::next_work_ns).min().unwrap_or(u64::MAX);
                    os::sleep_until(start_ns + next_ns.min(duration_ns));
                }
            }
        }
    }

    /// Ends the threads of fork bombs and adds their work to the tasks' logs.
    fn end_fork_bombs(&mut self, tasks: &mut [GuestTask]) {
        self.stop.store(true, Ordering::Relaxed);
        for (place, bomb) in self.bombs.drain(..) {
            let iterations = disturb::join_fork_bomb(bomb);
            if let Some(task) = tasks.iter_mut().find(|task| task.place == place) {
                task.log.worked(iterations);
            }
        }
    }

    /// Runs a task that has work for a chunk. `clock` reads the time at the chunk's end.
    fn advance(&mut self, task: &mut GuestTask, now_ns: u64, clock: impl Fn() -> u64) {
        match &mut task.state {
            State::Idle => {}
            State::Jobs { stream, job, left } => {
                if *left == 0 {
                    task.log.started(*job, now_ns);
                    *left = work::iterations_of(stream.cost_ns(*job), self.iterations_per_ms);
                }
                let chunk = self.chunk.min(*left);
                work::burn(chunk);
                task.log.worked(chunk);
                *left -= chunk;
                if *left == 0 {
                    task.log.finished(clock());
                    *job = stream.after(*job);
                }
            }
            State::Hog { .. } => {
                work::burn(self.chunk);
                task.log.worked(self.chunk);
            }
            State::ForkBomb { threads, exploded, .. } => {
                *exploded = true;
                self.bombs.push((task.place, disturb::fork_bomb(*threads, &self.stop)));
            }
            State::WakeFlood { next_ns, interval_ns } => {
                work::burn(work::iterations_of(FLOOD_COST_NS, self.iterations_per_ms));
                *next_ns = now_ns + *interval_ns;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Task;
    use punctual_jobs::Arrival;

    fn jobs(period_ns: u64, cost_ns: u64, offset_ns: u64) -> Work {
        let arrival = Arrival::Periodic { period_ns, offset_ns };
        Work::Jobs(JobStream { arrival, cost_min_ns: cost_ns, cost_max_ns: cost_ns, seed: 0 })
    }

    /// Executes for 40 ms with a machine so fast that work takes next to no time.
    fn executed(tasks: Vec<Task>) -> (Run, Executed) {
        let run =
            Run { start_at_ns: 0, duration_ns: 40_000_000, iterations_per_ms: 1000, tasks, network: None };
        run.check().expect("a good run");
        let executed = execute(&run, &mut |_| ());
        (run, executed)
    }

    #[test]
    fn every_job_of_the_run_is_reported_in_order_and_none_starts_before_its_release() {
        let tasks = vec![
            Task { priority: 2, deadline_ns: None, work: jobs(3_000_000, 1_000_000, 1_000_000) },
            Task { priority: 1, deadline_ns: None, work: jobs(10_000_000, 2_000_000, 0) },
        ];
        let (run, executed) = executed(tasks);
        assert!(executed.ended_ns >= run.duration_ns);
        let mut all = Vec::new();
        for (log, task) in executed.logs.into_iter().zip(&run.tasks) {
            all.push(log.into_jobs(task.work.job_stream(), run.duration_ns));
        }
        let releases = |task: usize| all[task].iter().map(|job| job.release_ns).collect::<Vec<_>>();
        assert_eq!(releases(0), (0..13).map(|n| 1_000_000 + 3_000_000 * n).collect::<Vec<_>>());
        assert_eq!(releases(1), [0, 10_000_000, 20_000_000, 30_000_000]);
        for job in all.iter().flatten() {
            job.check(run.duration_ns).expect("times in order");
        }
    }

    #[test]
    fn the_more_urgent_task_goes_first_wherever_it_stands() {
        let long = jobs(40_000_000, 3_000_000, 0);
        let (run, executed) = executed(vec![
            Task { priority: 9, deadline_ns: None, work: long },
            Task { priority: 1, deadline_ns: None, work: long },
        ]);
        let mut logs = executed.logs.into_iter();
        let mut first = || logs.next().map(|log| log.into_jobs(long.job_stream(), run.duration_ns)[0]);
        let (less, more) = (first().expect("a task"), first().expect("a task"));
        assert!(more.finish_ns.expect("finished") <= less.start_ns.expect("started"), "{more:?} {less:?}");
    }

    /// Where other programs have the processors, a bomb or a hog may get nothing in so short a run.
    #[test]
    fn a_fork_bomb_and_a_flood_end_with_the_run_and_hogs_take_what_is_left() {
        let has_rest = (0..10).any(|_| {
            let (_, executed) = executed(vec![
                Task {
                    priority: 1,
                    deadline_ns: None,
                    work: Work::WakeFlood { start_ns: 0, interval_ns: 100_000 },
                },
                Task {
                    priority: 2,
                    deadline_ns: None,
                    work: Work::ForkBomb { start_ns: 1_000_000, threads: 3 },
                },
                Task { priority: 3, deadline_ns: None, work: Work::Hog { start_ns: 2_000_000 } },
            ]);
            let executed_ns = |task: usize| executed.logs[task].executed_ns(1000);
            assert_eq!(executed_ns(0), 0);
            executed_ns(1) > 0 && executed_ns(2) > 0
        });
        assert!(has_rest, "the bomb and the hog never got what was left");
    }
}
