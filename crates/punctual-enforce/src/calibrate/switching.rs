//! Measures what it costs to change what a processor runs: switches, wake-ups and timers.

use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use punctual_model::Histogram;

use super::measurement::{Id, Options};
use super::session::{Error, Session, Sleepers};
use super::sys::{self, on_processor};

/// SCHED_FIFO priorities of the waking thread and of the woken one. The lowest are enough, because these
/// threads never run for long.
const WAKER: u32 = 1;
const WOKEN: u32 = 2;

/// How far ahead timers are set.
const TIMER_NS: u64 = 500_000;

/// Measures the clock, system calls, switches, wake-ups and timers.
pub(super) fn measure(session: &mut Session<'_>, options: &Options) -> Result<(), Error> {
    let cpu = options.processor;
    measure_clock(session, cpu)?;
    let calls_ns = measure_system_calls(session, cpu)?;
    let pair = PingPong { waker: cpu, woken: cpu, fifo: false, calls_ns };
    let [switch, _] = pair.measure(session)?;
    session.add(Id::SwitchNormal, switch);
    let refused = may_use_fifo().err();
    let fifo = refused.is_none();
    match refused {
        None => {
            let [switch, wake] = PingPong { fifo, ..pair }.measure(session)?;
            session.add(Id::SwitchFifo, switch);
            session.add(Id::WakeFifo, wake);
        }
        Some(error) => {
            session.skip(Id::SwitchFifo, &error);
            session.skip(Id::WakeFifo, &error);
        }
    }
    match options.other {
        Some(other) => {
            let [_, wake] = PingPong { waker: other, fifo, ..pair }.measure(session)?;
            session.add(Id::WakeRemote, wake);
        }
        None => session.skip(Id::WakeRemote, &one_processor()),
    }
    measure_timer(session, cpu, fifo)
}

fn measure_clock(session: &mut Session<'_>, cpu: usize) -> Result<(), Error> {
    let [clock] = on_processor(cpu, None, || {
        session.repeat(|| {
            let start = sys::monotonic_ns();
            Ok([sys::monotonic_ns() - start])
        })
    })?;
    session.add(Id::Clock, clock);
    Ok(())
}

/// Measures a write to a pipe and a read from it; returns the median.
fn measure_system_calls(session: &mut Session<'_>, cpu: usize) -> Result<u64, Error> {
    let (mut reader, mut writer) = io::pipe()?;
    let [calls] = on_processor(cpu, None, || {
        session.repeat(|| {
            let start = sys::monotonic_ns();
            writer.write_all(&[0])?;
            reader.read_exact(&mut [0])?;
            Ok([sys::monotonic_ns() - start])
        })
    })?;
    let median_ns = calls.quantile_ppm(500_000).as_ns();
    session.add(Id::SystemCalls, calls);
    Ok(median_ns)
}

fn measure_timer(session: &mut Session<'_>, cpu: usize, fifo: bool) -> Result<(), Error> {
    let [late] = on_processor(cpu, fifo.then_some(WAKER), || {
        session.repeat(|| {
            let at = sys::monotonic_ns() + TIMER_NS;
            sys::sleep_until(at);
            Ok([sys::monotonic_ns().saturating_sub(at)])
        })
    })?;
    session.add(Id::Timer, late);
    Ok(())
}

/// Why a measurement that needs two processors is skipped.
pub(super) fn one_processor() -> io::Error {
    io::Error::other("this process may use one processor only")
}

/// Fails when the system does not permit SCHED_FIFO.
fn may_use_fifo() -> io::Result<()> {
    let sleeper = Sleepers::start(1)?;
    sys::set_fifo(sleeper.tids()[0], WAKER)
}

/// Two threads that wake each other in turn through pipes. Each sleeps while the other runs: neither spins.
///
/// Where they share a processor, half a round trip without the system calls is a switch. From just before the
/// first write to just after the other thread's read is a wake-up.
#[derive(Clone, Copy)]
struct PingPong {
    /// The waking thread's processor.
    waker: usize,
    /// The woken thread's processor.
    woken: usize,
    /// The woken thread is a SCHED_FIFO thread. On the same processor the waking one is too, less urgent.
    fifo: bool,
    /// The cost of a write and a read.
    calls_ns: u64,
}

impl PingPong {
    /// Returns the times of switches and of wake-ups.
    fn measure(self, session: &mut Session<'_>) -> Result<[Histogram; 2], Error> {
        let (mut ping_reader, ping_writer) = io::pipe()?;
        let (mut pong_reader, mut pong_writer) = io::pipe()?;
        let woken_at = AtomicU64::new(0);
        thread::scope(|scope| {
            let woken_at = &woken_at;
            let partner = move || -> io::Result<()> {
                sys::place(self.woken, self.fifo.then_some(WOKEN))?;
                while ping_reader.read(&mut [0])? > 0 {
                    woken_at.store(sys::monotonic_ns(), Ordering::Release);
                    pong_writer.write_all(&[0])?;
                }
                Ok(())
            };
            let partner = thread::Builder::new().spawn_scoped(scope, partner)?;
            let waker_is_fifo = self.fifo && self.waker == self.woken;
            let measured = on_processor(self.waker, waker_is_fifo.then_some(WAKER), || {
                // Dropped when this is done, which ends the partner.
                let mut ping_writer = ping_writer;
                session.repeat(|| {
                    let start = sys::monotonic_ns();
                    ping_writer.write_all(&[0])?;
                    pong_reader.read_exact(&mut [0])?;
                    let half = (sys::monotonic_ns() - start) / 2;
                    let wake = woken_at.load(Ordering::Acquire).saturating_sub(start);
                    Ok([half.saturating_sub(self.calls_ns), wake])
                })
            });
            // If the partner failed, that is why the other thread found its pipe closed.
            partner.join().unwrap_or_else(|_| Err(sys::panicked()))?;
            measured
        })
    }
}
