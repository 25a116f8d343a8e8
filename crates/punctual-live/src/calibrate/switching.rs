//! What it costs to change what a processor runs: switches, wake-ups, timers, migration.

use std::hint::black_box;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use punctual_model::Recorder;

use super::session::{Error, Session, Sleepers};
use super::{Id, Options, sys};

/// SCHED_FIFO priorities of who wakes and who is woken; the lowest there are, since nobody runs for long.
const WAKER: u32 = 1;
const WOKEN: u32 = 2;

/// Measures the clock, system calls, switches, wake-ups and timers.
pub(super) fn measure(session: &mut Session<'_>, options: &Options) -> Result<(), Error> {
    let cpu = options.processor;
    let [clock] = on(cpu, false, || {
        session.repeat(|| {
            let start = sys::monotonic_ns();
            Ok([sys::monotonic_ns() - start])
        })
    })?;
    session.add(Id::Clock, clock);

    let (mut reader, mut writer) = io::pipe()?;
    let [calls] = on(cpu, false, || {
        session.repeat(|| {
            let start = sys::monotonic_ns();
            writer.write_all(&[0])?;
            reader.read_exact(&mut [0])?;
            Ok([sys::monotonic_ns() - start])
        })
    })?;
    let calls_ns = calls.quantile_ppm(500_000).as_ns();
    session.add(Id::SystemCalls, calls);

    let [switch, _] = ping_pong(session, cpu, cpu, false, calls_ns)?;
    session.add(Id::SwitchNormal, switch);
    let refused = may_be_urgent().err();
    let urgent = refused.is_none();
    match refused {
        None => {
            let [switch, wake] = ping_pong(session, cpu, cpu, true, calls_ns)?;
            session.add(Id::SwitchFifo, switch);
            session.add(Id::WakeFifo, wake);
        }
        Some(error) => [Id::SwitchFifo, Id::WakeFifo].into_iter().for_each(|id| session.skip(id, &error)),
    }
    match options.other {
        Some(other) => {
            let [_, wake] = ping_pong(session, other, cpu, urgent, calls_ns)?;
            session.add(Id::WakeRemote, wake);
        }
        None => session.skip(Id::WakeRemote, &one_processor()),
    }
    let [late] = on(cpu, urgent, || {
        session.repeat(|| {
            let at = sys::monotonic_ns() + TIMER_NS;
            sys::sleep_until(at);
            Ok([sys::monotonic_ns().saturating_sub(at)])
        })
    })?;
    session.add(Id::Timer, late);
    migration(session, options)
}

/// How far ahead timers are set.
const TIMER_NS: u64 = 500_000;

fn one_processor() -> io::Error {
    io::Error::other("this process may use one processor only")
}

/// Does the system permit SCHED_FIFO?
fn may_be_urgent() -> io::Result<()> {
    let sleeper = Sleepers::start(1)?;
    sys::set_fifo(sleeper.tids()[0], WAKER)
}

/// Runs `body` on a thread of its own on one processor, so that the caller stays as it is.
pub(super) fn on<T: Send>(
    processor: usize,
    urgent: bool,
    body: impl FnOnce() -> Result<T, Error> + Send,
) -> Result<T, Error> {
    thread::scope(|scope| {
        let place = move || {
            sys::pin(0, processor)?;
            if urgent { sys::set_fifo(0, WAKER) } else { Ok(()) }
        };
        let thread = scope.spawn(move || {
            place()?;
            body()
        });
        thread.join().unwrap_or_else(|_| Err(io::Error::other("a measuring thread panicked").into()))
    })
}

/// Two threads wake each other in turn through pipes. Half a round trip without the system calls is a switch,
/// when they share a processor; from just before the first write to just after the other's read is a wake-up.
///
/// With `urgent` the woken thread is SCHED_FIFO, and more urgent than the other, if that shares its
/// processor. Both sleep while the other runs: nobody spins.
fn ping_pong(
    session: &mut Session<'_>,
    waker: usize,
    woken: usize,
    urgent: bool,
    calls_ns: u64,
) -> Result<[Recorder; 2], Error> {
    let (mut ping_reader, ping_writer) = io::pipe()?;
    let (mut pong_reader, mut pong_writer) = io::pipe()?;
    let woken_at = AtomicU64::new(0);
    thread::scope(|scope| {
        let woken_at = &woken_at;
        let partner = scope.spawn(move || -> io::Result<()> {
            sys::pin(0, woken)?;
            if urgent {
                sys::set_fifo(0, WOKEN)?;
            }
            while ping_reader.read(&mut [0])? > 0 {
                woken_at.store(sys::monotonic_ns(), Ordering::Release);
                pong_writer.write_all(&[0])?;
            }
            Ok(())
        });
        let urgent = urgent && waker == woken;
        let measured = on(waker, urgent, || {
            // Closed when this is done, which ends the partner.
            let mut ping_writer = ping_writer;
            session.repeat(|| {
                let start = sys::monotonic_ns();
                ping_writer.write_all(&[0])?;
                pong_reader.read_exact(&mut [0])?;
                let half = (sys::monotonic_ns() - start) / 2;
                let wake = woken_at.load(Ordering::Acquire).saturating_sub(start);
                Ok([half.saturating_sub(calls_ns), wake])
            })
        });
        let partner = partner.join().unwrap_or_else(|_| Err(io::Error::other("a measuring thread panicked")));
        // If the partner failed, that is why the other found its pipe closed.
        partner?;
        measured
    })
}

/// Bytes of a cache line: one is touched in each.
const LINE: usize = 64;

/// A thread passes over its working set after a sleep, on the processor where it did so before or on another
/// one.
fn migration(session: &mut Session<'_>, options: &Options) -> Result<(), Error> {
    let Some(other) = options.other else {
        session.skip(Id::Migration, &one_processor());
        return Ok(());
    };
    let (order_reader, mut order) = io::pipe()?;
    let (mut done, done_writer) = io::pipe()?;
    let (tid, passed_ns) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        let (tid, passed_ns) = (&tid, &passed_ns);
        let lines = vec![1u8; options.working_set_bytes.max(LINE)];
        let worker = scope.spawn(move || {
            tid.store(sys::own_tid() as u64, Ordering::Release);
            pass_on_order(&lines, order_reader, done_writer, passed_ns)
        });
        let measured = (|| -> Result<[Recorder; 2], Error> {
            done.read_exact(&mut [0])?;
            let tid = tid.load(Ordering::Acquire) as i32;
            let mut pass_on = |processor: usize| -> io::Result<u64> {
                // It sleeps now, so this moves nothing that runs.
                sys::pin(tid, processor)?;
                order.write_all(&[0])?;
                done.read_exact(&mut [0])?;
                Ok(passed_ns.load(Ordering::Acquire))
            };
            let places = [options.processor, other];
            let mut at = 0;
            pass_on(places[at])?;
            let times = session.repeat(|| {
                let stayed = pass_on(places[at])?;
                at = 1 - at;
                Ok([stayed, pass_on(places[at])?])
            });
            drop(order);
            times
        })();
        let worker = worker.join().unwrap_or_else(|_| Err(io::Error::other("a measuring thread panicked")));
        worker?;
        let [stayed, moved] = measured?;
        session.add(Id::Migration, beyond(&moved, stayed.quantile_ppm(500_000).as_ns()));
        Ok(())
    })
}

/// Passes over its memory whenever it is told to, says how long that took, and passes again to have it at
/// hand.
fn pass_on_order(
    memory: &[u8],
    mut order: PipeReader,
    mut done: PipeWriter,
    passed_ns: &AtomicU64,
) -> io::Result<()> {
    done.write_all(&[0])?;
    while order.read(&mut [0])? > 0 {
        let start = sys::monotonic_ns();
        pass(memory);
        passed_ns.store(sys::monotonic_ns() - start, Ordering::Release);
        pass(memory);
        pass(memory);
        done.write_all(&[0])?;
    }
    Ok(())
}

/// Touches every line once, each after the one before it: prefetching may help, as it does programs.
fn pass(memory: &[u8]) {
    let sum = memory.iter().step_by(LINE).fold(0u8, |sum, byte| sum.wrapping_add(*black_box(byte)));
    black_box(sum);
}

/// The times less `ns`, at least 0; of a bucket the least value counts.
fn beyond(times: &Recorder, ns: u64) -> Recorder {
    let mut rest = Recorder::new();
    for (low, _, count) in times.ranges_ns() {
        let time = punctual_sched::Duration::from_ns(low.saturating_sub(ns));
        rest.record_n(time, u32::try_from(count).unwrap_or(u32::MAX));
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::sched;
    use punctual_sched::Duration;

    #[test]
    fn what_is_beyond_a_time_is_not_negative() {
        let mut times = Recorder::new();
        [50, 100, 130].into_iter().for_each(|ns| times.record(Duration::from_ns(ns)));
        let rest = beyond(&times, 100);
        assert_eq!((rest.count(), rest.min().as_ns(), rest.max().as_ns()), (3, 0, 30));
    }

    #[test]
    fn a_thread_is_placed_without_moving_its_caller() {
        let before = sched::affinity(0).expect("an affinity");
        let there = on(before[0], false, || Ok(sched::affinity(0)?)).expect("it may run where this one may");
        assert_eq!(there, [before[0]]);
        assert_eq!(sched::affinity(0).expect("an affinity"), before);
    }
}
