//! Which thread a processor of the host runs: `SCHED_FIFO` by priority, below it the fair class.
//!
//! # Rules
//! Linux `kernel/sched/rt.c` and `kernel/sched/fair.c` (4.1, CFS).
//!
//! - **Real time.** The thread of the greatest priority runs; equal ones in the order in which they became
//!   ready. A thread that is preempted stays first of its priority.
//! - **Fair.** Without a real-time thread the one with the least virtual run time runs (all have nice 0, so
//!   virtual time is run time). It keeps the processor for [`SLICE`] while others wait.
//! - **Waking in the fair class.** The thread's virtual run time becomes at least the processor's least one
//!   minus half a [`LATENCY`], so a sleeper is served soon and saves nothing up. It preempts a fair thread
//!   that is ahead of it by more than [`WAKEUP_GRANULARITY`].
//! - **Where a real-time thread runs** (`select_task_rq_rt`): on its last processor, unless a thread as
//!   urgent runs there; then on the one whose thread is least urgent, if that is less urgent. Interrupts and
//!   softirqs on return from them are not threads: Linux does not look at them here.
//! - **Where a fair thread runs** (`select_idle_sibling`): on its last processor if that is idle, else on any
//!   idle one, else on its last one.

use alloc::vec::Vec;

use punctual_sched::time::Duration;

use crate::thread::{Priority, ThreadId};

/// How long a fair thread keeps the processor while others wait: `sched_min_granularity`, 0.75 ms scaled by
/// two for two to three processors.
pub const SLICE: Duration = Duration::from_us(1_500);
/// `sched_latency`, 6 ms scaled as above.
pub const LATENCY: Duration = Duration::from_ms(12);
/// `sched_wakeup_granularity`, 1 ms scaled as above.
pub const WAKEUP_GRANULARITY: Duration = Duration::from_ms(2);

/// A thread that is ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Ready {
    thread: ThreadId,
    priority: Priority,
    /// Virtual run time in ns, for the fair class.
    vruntime: u64,
}

/// The ready threads of one processor, without the one that runs.
#[derive(Clone, Debug)]
pub struct RunQueue {
    /// The next one first.
    ready: Vec<Ready>,
    vruntime_min: u64,
}

impl RunQueue {
    /// Empty, for at most `threads` threads.
    pub fn new(threads: usize) -> Self {
        RunQueue { ready: Vec::with_capacity(threads), vruntime_min: 0 }
    }

    /// Adds a ready thread; `preempted`: it ran until now.
    pub fn put(&mut self, thread: ThreadId, priority: Priority, vruntime: u64, preempted: bool) {
        let at = self.ready.partition_point(|other| match other.priority.cmp(&priority) {
            core::cmp::Ordering::Greater => true,
            core::cmp::Ordering::Less => false,
            core::cmp::Ordering::Equal if priority.is_fair() => other.vruntime <= vruntime,
            core::cmp::Ordering::Equal => !preempted,
        });
        debug_assert!(self.ready.iter().all(|ready| ready.thread != thread), "{thread:?} is ready twice");
        self.ready.insert(at, Ready { thread, priority, vruntime });
        debug_assert!(self.ready.is_sorted_by(|a, b| a.priority >= b.priority), "by priority");
    }

    /// Removes the thread. False when it is not in the queue.
    pub fn remove(&mut self, thread: ThreadId) -> bool {
        let at = self.ready.iter().position(|ready| ready.thread == thread);
        at.map(|at| self.ready.remove(at)).is_some()
    }

    /// The next thread and its priority.
    pub fn first(&self) -> Option<(ThreadId, Priority)> {
        self.ready.first().map(|ready| (ready.thread, ready.priority))
    }

    /// The ready threads, the next one first.
    pub fn iter(&self) -> impl Iterator<Item = (ThreadId, Priority)> {
        self.ready.iter().map(|ready| (ready.thread, ready.priority))
    }

    /// The thread with `vruntime` runs here: the processor's least virtual run time follows.
    pub fn ran(&mut self, vruntime: u64) {
        let waiting = self.ready.iter().find(|ready| ready.priority.is_fair());
        let least = waiting.map_or(vruntime, |ready| ready.vruntime.min(vruntime));
        self.vruntime_min = self.vruntime_min.max(least);
    }

    /// The virtual run time of a fair thread that wakes up with `vruntime`.
    pub fn woken(&self, vruntime: u64) -> u64 {
        vruntime.max(self.vruntime_min.saturating_sub(LATENCY.as_ns() / 2))
    }

    /// The virtual run time of a fair thread that moves here from `other`, as far from the least one as it
    /// was there.
    pub fn moved(&self, other: &RunQueue, vruntime: u64) -> u64 {
        (vruntime + self.vruntime_min).saturating_sub(other.vruntime_min)
    }
}

/// Does a thread that became ready preempt the running one? Both are given with their virtual run time.
pub fn preempts(woken: (Priority, u64), running: (Priority, u64)) -> bool {
    if woken.0.is_fair() && running.0.is_fair() {
        woken.1 + WAKEUP_GRANULARITY.as_ns() < running.1
    } else {
        woken.0 > running.0
    }
}

/// The processor for a thread of `priority` that wakes up. `running` has what each allowed processor runs
/// (`None`: nothing), by the number of the processor; `last` is where the thread ran last.
pub fn place(
    priority: Priority,
    last: usize,
    running: impl Iterator<Item = (usize, Option<Priority>)> + Clone,
) -> Option<usize> {
    let on = |cpu: usize| running.clone().find(|r| r.0 == cpu).map(|r| r.1);
    // The last processor first of those that are equal, then the lowest.
    let least = running.clone().min_by_key(|&(cpu, running)| (running, cpu != last, cpu))?;
    let Some(there) = on(last) else { return Some(least.0) };
    if priority.is_fair() {
        return Some(if there.is_none() || least.1.is_some() { last } else { least.0 });
    }
    let stays = there.is_none_or(|running| running < priority);
    Some(if stays || least.1.is_some_and(|running| running >= priority) { last } else { least.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIFO: Priority = Priority(48);
    const FAIR: Priority = Priority::FAIR;

    #[test]
    fn real_time_goes_by_priority_then_order_and_the_preempted_stays_first() {
        let mut queue = RunQueue::new(8);
        queue.put(ThreadId(0), FAIR, 0, false);
        queue.put(ThreadId(1), FIFO, 0, false);
        queue.put(ThreadId(2), FIFO, 0, false);
        queue.put(ThreadId(3), FIFO, 0, true);
        queue.put(ThreadId(4), Priority(50), 0, false);
        let order: Vec<u32> = queue.iter().map(|(t, _)| t.0).collect();
        assert_eq!(order, [4, 3, 1, 2, 0]);
    }

    #[test]
    fn the_fair_class_goes_by_virtual_run_time() {
        let mut queue = RunQueue::new(8);
        for (thread, vruntime) in [(0, 30), (1, 10), (2, 20)] {
            queue.put(ThreadId(thread), FAIR, vruntime, false);
        }
        assert_eq!(queue.iter().map(|(t, _)| t.0).collect::<Vec<_>>(), [1, 2, 0]);
        assert!(queue.remove(ThreadId(1)) && !queue.remove(ThreadId(1)));
        assert_eq!(queue.first(), Some((ThreadId(2), FAIR)));
    }

    #[test]
    fn a_sleeper_comes_back_half_a_latency_behind_and_preempts_one_far_ahead() {
        let mut queue = RunQueue::new(8);
        queue.ran(100_000_000);
        let woken = queue.woken(5);
        assert_eq!(woken, 100_000_000 - LATENCY.as_ns() / 2);
        assert!(preempts((FAIR, woken), (FAIR, 100_000_000)));
        assert!(!preempts((FAIR, 99_000_000), (FAIR, 100_000_000)));
        assert!(preempts((FIFO, 0), (FAIR, 0)) && !preempts((FIFO, 0), (FIFO, 0)));
        assert!(!preempts((FAIR, 0), (FIFO, u64::MAX)));
    }

    #[test]
    fn a_real_time_thread_leaves_its_processor_only_for_one_as_urgent_there() {
        let on = |running: [Option<Priority>; 2]| place(FIFO, 0, running.into_iter().enumerate());
        assert_eq!(on([Some(FAIR), None]), Some(0), "preempts there");
        assert_eq!(on([Some(Priority(50)), Some(FAIR)]), Some(1));
        assert_eq!(on([Some(FIFO), None]), Some(1));
        assert_eq!(on([Some(FIFO), Some(Priority(50))]), Some(0), "waits at home");
    }

    #[test]
    fn a_fair_thread_looks_for_an_idle_processor() {
        let on = |running: [Option<Priority>; 2]| place(FAIR, 0, running.into_iter().enumerate());
        assert_eq!(on([None, None]), Some(0));
        assert_eq!(on([Some(FAIR), None]), Some(1));
        assert_eq!(on([Some(FIFO), Some(FAIR)]), Some(0));
        assert_eq!(place(FAIR, 0, core::iter::empty()), None);
        assert_eq!(place(FAIR, 0, [(1, Some(FAIR))].into_iter()), Some(1), "not allowed at home");
    }
}
