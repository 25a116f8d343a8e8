//! Latencies of processors: how late a thread wakes up, and for how long a thread that spins is not executed.
//!
//! The host measures itself and its guests by the same code, so that their numbers can be compared. The two
//! loops are those of cyclictest and oslat of the rt-tests (`loops.rs`); this module runs them, one thread
//! for each processor and all at once.
//!
//! **The machine stays usable.** A thread that spins sleeps for a part of each [`BURST_PERIOD_NS`], so the
//! kernel's limit for real-time threads (`sched_rt_runtime_us`) never binds. Should a thread of this process
//! spin longer all the same, the kernel ends the process: `RLIMIT_RTTIME` is 750 ms.

mod loops;
mod plan;
mod report;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::os;

pub use plan::{BURST_MAX_NS, BURST_PERIOD_NS, Error, Plan};
pub use report::{Counts, Kind, Measured, Report, SLICES, Slow, WORST};

/// The kernel ends the process when one of its real-time threads ran for so long without sleeping: ten times
/// the longest burst.
const WATCHDOG: Duration = Duration::from_millis(750);
/// Measuring begins so long after the threads were created.
const LEAD_NS: u64 = 20_000_000;

/// What to do while measuring.
pub struct Hooks<'h> {
    /// Ends the measurement when it is set.
    pub stop: &'h AtomicBool,
    /// Called by the measuring threads for a latency that is among the longest so far, with the processor.
    /// It must neither wait nor allocate.
    pub slow: &'h (dyn Fn(usize, Kind, Slow) + Sync),
    /// Called by the calling thread ten times a second; the share of the plan that is done, in millionths.
    pub progress: &'h mut dyn FnMut(u32),
}

/// The processors that a thread of this process can be bound to, ascending: those of `isolcpus=` as well,
/// which no thread has in its affinity until it asks for them.
///
/// # Errors
/// A thread cannot be created.
pub fn processors() -> Result<Vec<usize>, Error> {
    let try_all = || (0..os::PROCESSORS_MAX).filter(|&cpu| os::set_affinity(cpu).is_ok()).collect();
    let thread = std::thread::Builder::new().name("processors".into()).spawn(try_all);
    thread.map_err(Error::Processors)?.join().map_err(|_| Error::Panicked)
}

/// Measures what the plan says: first all gaps, then all wake-ups.
///
/// # Errors
/// The plan is wrong, or a thread cannot be what it must be: then nothing is reported.
pub fn run(plan: &Plan, hooks: &mut Hooks<'_>) -> Result<Report, Error> {
    plan.check()?;
    let mut plan = plan.clone();
    if plan.processors.is_empty() {
        plan.processors = processors()?;
    }
    let before = os::limit_real_time(Some(WATCHDOG)).map_err(Error::Watchdog)?;
    let measured = phases(&plan, hooks);
    // What it was before is always permitted.
    let _ = os::limit_real_time(before);
    let (measured, locked) = measured?;
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let stopped = hooks.stop.load(Ordering::Relaxed);
    Ok(Report { measured, stopped, locked, epoch_us: epoch_us(), kernel: kernel.trim().to_owned() })
}

fn epoch_us() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (since_1970.as_micros() as u64).saturating_sub(os::now_ns() / 1000)
}

fn phases(plan: &Plan, hooks: &mut Hooks<'_>) -> Result<(Vec<Measured>, bool), Error> {
    let total_ns = (plan.spin_ns + plan.wakeup_ns).max(1);
    let mut measured = Vec::new();
    let mut locked = true;
    let mut done_ns = 0;
    for (kind, length_ns) in [(Kind::Noise, plan.spin_ns), (Kind::Wakeup, plan.wakeup_ns)] {
        if length_ns == 0 || hooks.stop.load(Ordering::Relaxed) {
            continue;
        }
        let phase = Phase { kind, length_ns, plan, done_ns, total_ns };
        locked &= phase.run(hooks, &mut measured)?;
        done_ns += length_ns;
    }
    measured.sort_by_key(|one: &Measured| (one.kind as u32, one.processor));
    Ok((measured, locked))
}

/// One loop on all processors.
struct Phase<'p> {
    kind: Kind,
    length_ns: u64,
    plan: &'p Plan,
    /// Of the plan, before this.
    done_ns: u64,
    total_ns: u64,
}

impl Phase<'_> {
    /// Returns whether memory was locked.
    fn run(&self, hooks: &mut Hooks<'_>, measured: &mut Vec<Measured>) -> Result<bool, Error> {
        let mut tallies: Vec<loops::Tallies> =
            self.plan.processors.iter().map(|&cpu| loops::Tallies::new(cpu, self.kind)).collect();
        // After everything that the threads write to was allocated.
        let locked = os::lock_memory().is_ok();
        let begin_ns = os::now_ns() + LEAD_NS;
        let until_ns = begin_ns + self.length_ns;
        let (stop, slow) = (hooks.stop, hooks.slow);
        let abort = AtomicBool::new(false);
        let done = std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for tallies in &mut tallies {
                let ends = loops::Ends { begin_ns, until_ns, stops: [stop, &abort] };
                let work = move || self.measure(tallies, &ends, slow);
                threads.push(std::thread::Builder::new().name("latency".into()).spawn_scoped(scope, work));
            }
            while os::now_ns() < until_ns && threads.iter().flatten().any(|one| !one.is_finished()) {
                std::thread::sleep(Duration::from_millis(100));
                let passed_ns = os::now_ns().saturating_sub(begin_ns).min(self.length_ns);
                let ppm = u128::from(self.done_ns + passed_ns) * 1_000_000 / u128::from(self.total_ns);
                (hooks.progress)(ppm as u32);
                // One that could not begin ends the others.
                let is_over = stop.load(Ordering::Relaxed) || threads.iter().any(Result::is_err);
                abort.fetch_or(is_over, Ordering::Relaxed);
            }
            let join = |(thread, &processor): (io::Result<_>, &usize)| match thread {
                Err(error) => Err(Error::Thread { processor, what: "cannot be created", error }),
                Ok(thread) => std::thread::ScopedJoinHandle::join(thread).unwrap_or(Err(Error::Panicked)),
            };
            threads.into_iter().zip(&self.plan.processors).map(join).collect::<Result<Vec<()>, Error>>()
        });
        os::unlock_memory();
        done?;
        measured.extend(tallies.into_iter().flat_map(loops::Tallies::measured));
        Ok(locked)
    }

    /// The thread of a processor.
    fn measure(
        &self,
        tallies: &mut loops::Tallies,
        ends: &loops::Ends<'_>,
        slow: &(dyn Fn(usize, Kind, Slow) + Sync),
    ) -> Result<(), Error> {
        let processor = tallies.processor();
        let failed = |what| move |error| Error::Thread { processor, what, error };
        os::set_affinity(processor).map_err(failed("cannot be bound to it"))?;
        os::set_timer_slack_min();
        if self.plan.priority > 0 {
            os::set_fifo(self.plan.priority as i32).map_err(failed("cannot be real-time (SCHED_FIFO)"))?;
        }
        match self.kind {
            Kind::Wakeup => loops::wake_up(tallies, ends, self.plan.interval_ns, slow),
            Kind::Noise | Kind::Hardware => loops::spin(tallies, ends, self.plan.burst_ns, slow),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
