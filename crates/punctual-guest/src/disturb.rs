//! A fork bomb of threads, with a limit: what a broken or hostile guest may do to the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::work;

/// Stack of a thread that only works.
pub(crate) const STACK_BYTES: usize = 64 * 1024;

/// Iterations between two looks at the flag; a fraction of a millisecond anywhere.
pub(crate) const LOOK_ITERATIONS: u64 = 1000;

/// Works until `stop`; the iterations done.
pub(crate) fn hog(stop: &AtomicBool) -> u64 {
    let mut iterations = 0;
    while !stop.load(Ordering::Relaxed) {
        work::burn(LOOK_ITERATIONS);
        iterations += LOOK_ITERATIONS;
    }
    iterations
}

/// Creates busy threads, `count` at most; fewer when the system has no more. They inherit the scheduling of
/// the calling thread and end with `stop`.
pub(crate) fn fork_bomb(count: u32, stop: &Arc<AtomicBool>) -> Vec<JoinHandle<u64>> {
    let spawn = |_| {
        let stop = Arc::clone(stop);
        let thread = std::thread::Builder::new().name("bomb".into()).stack_size(STACK_BYTES);
        thread.spawn(move || hog(&stop)).ok()
    };
    (0..count).take_while(|_| !stop.load(Ordering::Relaxed)).map_while(spawn).collect()
}

/// Waits for the threads of a fork bomb; the iterations they did.
pub(crate) fn defuse(bomb: Vec<JoinHandle<u64>>) -> u64 {
    bomb.into_iter().map(|thread| thread.join().unwrap_or(0)).sum()
}
