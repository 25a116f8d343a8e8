//! Load of a broken or hostile guest: a busy loop, and a fork bomb of threads with a limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::work;

/// Stack size of a thread that only works.
pub(crate) const STACK_BYTES: usize = 64 * 1024;

/// Iterations between checks of the stop flag: a fraction of a millisecond on every machine.
pub(crate) const STOP_CHECK_ITERATIONS: u64 = 1000;

/// Works until `stop`; returns the iterations done.
pub(crate) fn busy_loop(stop: &AtomicBool) -> u64 {
    let mut iterations = 0;
    while !stop.load(Ordering::Relaxed) {
        work::burn(STOP_CHECK_ITERATIONS);
        iterations += STOP_CHECK_ITERATIONS;
    }
    iterations
}

/// Creates up to `count` threads that work until `stop`; stops at the first that the system refuses. The
/// threads inherit the scheduling of the calling thread.
pub(crate) fn fork_bomb(count: u32, stop: &Arc<AtomicBool>) -> Vec<JoinHandle<u64>> {
    let spawn = |_| {
        let stop = Arc::clone(stop);
        let thread = std::thread::Builder::new().name("bomb".into()).stack_size(STACK_BYTES);
        thread.spawn(move || busy_loop(&stop)).ok()
    };
    (0..count).take_while(|_| !stop.load(Ordering::Relaxed)).map_while(spawn).collect()
}

/// Waits for the threads of a fork bomb; returns the iterations done.
pub(crate) fn join_fork_bomb(bomb: Vec<JoinHandle<u64>>) -> u64 {
    bomb.into_iter().map(|thread| thread.join().unwrap_or(0)).sum()
}
