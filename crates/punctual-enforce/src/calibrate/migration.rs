//! Measures what it costs to move a thread to another processor, away from its cached memory.

use std::hint::black_box;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::thread;

use punctual_model::Histogram;
use punctual_sched::Duration;

use super::measurement::{Id, Options};
use super::session::{Error, Session};
use super::switching::one_processor;
use super::sys;

/// Bytes of a cache line: one is touched in each.
const LINE_BYTES: usize = 64;

/// Measures how long a thread takes to touch its working set after a sleep: on another processor, less the
/// median where it was before.
pub(super) fn measure(session: &mut Session<'_>, options: &Options) -> Result<(), Error> {
    let Some(other) = options.other else {
        session.skip(Id::Migration, &one_processor());
        return Ok(());
    };
    let (order_reader, order) = io::pipe()?;
    let (done, done_writer) = io::pipe()?;
    let worker = Worker::default();
    let memory = vec![1u8; options.working_set_bytes.max(LINE_BYTES)];
    let [stayed, moved] = thread::scope(|scope| {
        let work = || worker.touch_on_order(&memory, order_reader, done_writer);
        let thread = thread::Builder::new().spawn_scoped(scope, work)?;
        // The order's pipe is closed at the end, which ends the worker.
        let measured = stay_and_move(session, [options.processor, other], &worker, order, done);
        thread.join().unwrap_or_else(|_| Err(sys::panicked()))?;
        measured
    })?;
    session.add(Id::Migration, excess_over(&moved, stayed.quantile_ppm(500_000).as_ns()));
    Ok(())
}

/// Has the worker touch its memory twice on each processor in turn: on arrival, and once more where it is.
/// Returns the times without and with a move.
fn stay_and_move(
    session: &mut Session<'_>,
    processors: [usize; 2],
    worker: &Worker,
    mut order: PipeWriter,
    mut done: PipeReader,
) -> Result<[Histogram; 2], Error> {
    done.read_exact(&mut [0])?;
    let tid = worker.tid.load(Ordering::Acquire);
    let mut touch_on = |processor: usize| -> io::Result<u64> {
        // It sleeps now, so this moves nothing that runs.
        sys::pin(tid, processor)?;
        order.write_all(&[0])?;
        done.read_exact(&mut [0])?;
        Ok(worker.touched_ns.load(Ordering::Acquire))
    };
    let mut at = 0;
    touch_on(processors[at])?;
    session.repeat(|| {
        let stayed = touch_on(processors[at])?;
        at = 1 - at;
        Ok([stayed, touch_on(processors[at])?])
    })
}

/// What the thread that migrates tells.
#[derive(Default)]
struct Worker {
    tid: AtomicI32,
    /// How long it took to touch its memory last.
    touched_ns: AtomicU64,
}

impl Worker {
    /// Touches the memory at each order and notes how long that took. Touches it again, so that it is cached.
    fn touch_on_order(&self, memory: &[u8], mut order: PipeReader, mut done: PipeWriter) -> io::Result<()> {
        self.tid.store(sys::own_tid(), Ordering::Release);
        done.write_all(&[0])?;
        while order.read(&mut [0])? > 0 {
            let start = sys::monotonic_ns();
            touch(memory);
            self.touched_ns.store(sys::monotonic_ns() - start, Ordering::Release);
            touch(memory);
            touch(memory);
            done.write_all(&[0])?;
        }
        Ok(())
    }
}

/// Touches every line once, in ascending order: prefetching may help, as it does programs.
fn touch(memory: &[u8]) {
    let sum = memory.iter().step_by(LINE_BYTES).fold(0u8, |sum, byte| sum.wrapping_add(*black_box(byte)));
    black_box(sum);
}

/// By how much the times exceed `ns`, at least 0. Of each bucket the least value counts.
fn excess_over(times: &Histogram, ns: u64) -> Histogram {
    let mut excess = Histogram::new();
    for (low, _, count) in times.ranges_ns() {
        let time = Duration::from_ns(low.saturating_sub(ns));
        excess.record_n(time, u32::try_from(count).unwrap_or(u32::MAX));
    }
    excess
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excess_is_not_negative() {
        let mut times = Histogram::new();
        [50, 100, 130].into_iter().for_each(|ns| times.record(Duration::from_ns(ns)));
        let excess = excess_over(&times, 100);
        assert_eq!((excess.count(), excess.min().as_ns(), excess.max().as_ns()), (3, 0, 30));
    }
}
