//! A task set as one thread that is a virtual CPU: the guest's scheduler, in user space, on top of it.
//!
//! Jobs are worked in short chunks of calibrated iterations. Between two chunks the most urgent task that has
//! a job released goes next: preemptive fixed priorities with the granularity of a chunk. Without work the
//! thread sleeps until the next release, as a halted vCPU does. While the host does not run the thread, the
//! guest stands still, and its clock goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use punctual_jobs::{Job, JobStream};

use crate::disturb;
use crate::log::{self, Counts, Executed, TaskLog};
use crate::os;
use crate::protocol::{Run, TaskProgress, Work};
use crate::work;

/// How long a chunk takes: how late the scheduler may notice a release.
const CHUNK_NS: u64 = 15_000;

/// Processor time of a wake-up of a flood.
const FLOOD_COST_NS: u64 = 1000;

/// A task and how far it is.
struct Entry {
    /// Its place in the request.
    task: usize,
    log: TaskLog,
    state: State,
}

enum State {
    Jobs {
        stream: JobStream,
        /// The job that is served, or waited for.
        job: Job,
        /// What is left of it; 0 before it starts.
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

impl Entry {
    /// From when on it has work.
    fn next_ns(&self) -> u64 {
        match self.state {
            State::Jobs { job, .. } => job.release_ns,
            State::Hog { start_ns } => start_ns,
            State::ForkBomb { exploded: true, .. } => u64::MAX,
            State::ForkBomb { start_ns, .. } => start_ns,
            State::WakeFlood { next_ns, .. } => next_ns,
        }
    }
}

/// What all tasks share.
struct Machine {
    iterations_per_ms: u64,
    chunk: u64,
    stop: Arc<AtomicBool>,
    bombs: Vec<(usize, Vec<JoinHandle<u64>>)>,
}

/// Runs a task set that [`Run::check`] accepted. `progress` is called about once a second, on the vCPU's own
/// time: what a guest's kernel would need for it.
pub fn execute(run: &Run, progress: &mut impl FnMut(Vec<TaskProgress>)) -> Executed {
    let mut entries = entries(run);
    let mut counts: Vec<(usize, Arc<Counts>)> =
        entries.iter().map(|entry| (entry.task, entry.log.counts())).collect();
    counts.sort_by_key(|(task, _)| *task);
    let interval_ns = log::progress_interval_ns(run.duration_ns);
    let mut tell_ns = interval_ns;
    // A page fault in a run would count as execution. The limit for ordinary users may be too low for it.
    let _ = os::lock_memory();
    let mut machine = Machine {
        iterations_per_ms: run.iterations_per_ms,
        chunk: work::iterations_of(CHUNK_NS, run.iterations_per_ms),
        stop: Arc::new(AtomicBool::new(false)),
        bombs: Vec::new(),
    };
    let start_ns = run.start_ns();
    os::sleep_until(start_ns);
    loop {
        let now_ns = os::now_ns() - start_ns;
        if now_ns >= run.duration_ns {
            break;
        }
        if now_ns >= tell_ns {
            progress(counts.iter().map(|(_, counts)| counts.progress()).collect());
            tell_ns = now_ns + interval_ns;
        }
        match entries.iter_mut().find(|entry| entry.next_ns() <= now_ns) {
            Some(entry) => machine.advance(entry, now_ns, || os::now_ns() - start_ns),
            None => {
                let next_ns = entries.iter().map(Entry::next_ns).min().unwrap_or(u64::MAX);
                os::sleep_until(start_ns + next_ns.min(run.duration_ns));
            }
        }
    }
    machine.stop.store(true, Ordering::Relaxed);
    for (task, bomb) in machine.bombs {
        let iterations = disturb::defuse(bomb);
        if let Some(entry) = entries.iter_mut().find(|entry| entry.task == task) {
            entry.log.worked(iterations);
        }
    }
    let ended_ns = os::now_ns() - start_ns;
    os::unlock_memory();
    entries.sort_by_key(|entry| entry.task);
    Executed { logs: entries.into_iter().map(|entry| entry.log).collect(), ended_ns }
}

/// The tasks from most to least urgent.
fn entries(run: &Run) -> Vec<Entry> {
    let entry = |task: usize| {
        let work = run.tasks[task].work;
        let state = match work {
            Work::Jobs(stream) => State::Jobs { stream, job: stream.first(), left: 0 },
            Work::Hog { start_ns } => State::Hog { start_ns },
            Work::ForkBomb { start_ns, threads } => State::ForkBomb { start_ns, threads, exploded: false },
            Work::WakeFlood { start_ns, interval_ns } => State::WakeFlood { next_ns: start_ns, interval_ns },
        };
        Entry { task, log: TaskLog::new(&run.tasks[task], run.duration_ns), state }
    };
    log::by_urgency(run).into_iter().map(entry).collect()
}

impl Machine {
    /// Lets a task that has work have a chunk of the processor. `clock` tells the time when it is over.
    fn advance(&mut self, entry: &mut Entry, now_ns: u64, clock: impl Fn() -> u64) {
        match &mut entry.state {
            State::Jobs { stream, job, left } => {
                if *left == 0 {
                    entry.log.started(*job, now_ns);
                    *left = work::iterations_of(stream.cost_ns(*job), self.iterations_per_ms);
                }
                let chunk = self.chunk.min(*left);
                work::burn(chunk);
                entry.log.worked(chunk);
                *left -= chunk;
                if *left == 0 {
                    entry.log.finished(clock());
                    *job = stream.after(*job);
                }
            }
            State::Hog { .. } => {
                work::burn(self.chunk);
                entry.log.worked(self.chunk);
            }
            State::ForkBomb { threads, exploded, .. } => {
                *exploded = true;
                self.bombs.push((entry.task, disturb::fork_bomb(*threads, &self.stop)));
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
        let run = Run { start_at_ns: 0, duration_ns: 40_000_000, iterations_per_ms: 1000, tasks };
        run.check().expect("a good run");
        let executed = execute(&run, &mut |_| ());
        (run, executed)
    }

    #[test]
    fn every_job_of_the_run_is_told_of_in_order_and_none_starts_before_its_release() {
        let tasks = vec![
            Task { priority: 2, deadline_ns: None, work: jobs(3_000_000, 1_000_000, 1_000_000) },
            Task { priority: 1, deadline_ns: None, work: jobs(10_000_000, 2_000_000, 0) },
        ];
        let (run, executed) = executed(tasks);
        assert!(executed.ended_ns >= run.duration_ns);
        let mut all = Vec::new();
        for (log, task) in executed.logs.into_iter().zip(&run.tasks) {
            all.push(log.into_jobs(log::stream_of(&task.work), run.duration_ns));
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
        let mut first = || logs.next().map(|log| log.into_jobs(log::stream_of(&long), run.duration_ns)[0]);
        let (less, more) = (first().expect("a task"), first().expect("a task"));
        assert!(more.finish_ns.expect("finished") <= less.start_ns.expect("started"), "{more:?} {less:?}");
    }

    #[test]
    fn a_fork_bomb_and_a_flood_end_with_the_run_and_hogs_take_what_is_left() {
        let (_, executed) = executed(vec![
            Task {
                priority: 1,
                deadline_ns: None,
                work: Work::WakeFlood { start_ns: 0, interval_ns: 100_000 },
            },
            Task { priority: 2, deadline_ns: None, work: Work::ForkBomb { start_ns: 1_000_000, threads: 3 } },
            Task { priority: 3, deadline_ns: None, work: Work::Hog { start_ns: 2_000_000 } },
        ]);
        let executed_ns = |task: usize| executed.logs[task].executed_ns(1000);
        assert_eq!(executed_ns(0), 0);
        assert!(executed_ns(1) > 0);
        assert!(executed_ns(2) > 0);
    }
}
