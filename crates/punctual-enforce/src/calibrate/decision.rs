//! Measures what a decision costs: the calls of a policy, and the system calls of live enforcement around
//! them.

use std::hint::black_box;
use std::io;
use std::sync::Mutex;

use punctual_sched::registry::{self, Options};
use punctual_sched::{CpuId, CpuSet, Duration, Instant, Policy, Slice, UnitId, UnitParams, rtds, servers};

use punctual_linux::os::proc::Reader;

use super::measurement::Id;
use super::session::{Error, Session, Sleepers};
use super::sys;

/// As many as RT-Xen's five VMs (rt-xen s.5).
const UNITS: u64 = 5;
const BUDGET: Duration = Duration::from_ms(2);
const PERIOD: Duration = Duration::from_ms(10);

/// A policy without a machine: all units want to run, and time jumps from one decision to the next.
struct PolicyDriver {
    policy: Box<dyn Policy>,
    cpus: u32,
    now: Instant,
    slices: Vec<Slice>,
    resched: CpuSet,
    ranking: Vec<UnitId>,
}

impl PolicyDriver {
    fn new(name: &str, cpus: u32) -> Self {
        let info = registry::find(name).expect("a policy of the registry");
        let mut policy = info.build(cpus as usize, &Options::new()).expect("defaults are accepted");
        let mut resched = CpuSet::new(cpus as usize);
        for priority in 0..UNITS {
            let params = UnitParams {
                budget: Some(BUDGET),
                // Different periods, so that most decisions have one reason.
                period: Some(PERIOD + Duration::from_us(priority * 100)),
                priority: Some(priority as u32),
                ..UnitParams::default()
            };
            let unit =
                policy.insert(Instant::ZERO, &params).expect("parameters within every policy's limits");
            policy.wake(Instant::ZERO, unit, &mut resched);
        }
        resched.clear();
        let slices = (0..cpus).map(|cpu| policy.pick(Instant::ZERO, CpuId(cpu), &mut resched)).collect();
        let ranking = Vec::with_capacity(UNITS as usize);
        PolicyDriver { policy, cpus, now: Instant::ZERO, slices, resched, ranking }
    }

    /// Lets time pass to the next decision. This is not measured.
    fn advance(&mut self) -> (Instant, Duration) {
        let slice = self.slices.iter().map(|slice| slice.until).min().unwrap_or(Instant::NEVER);
        let next = slice.min(self.policy.next_timer().at).max(self.now);
        let passed = next.since(self.now);
        self.now = next;
        (next, passed)
    }

    /// Charges what ran, handles due timers, picks, and ranks: a decision as a live enforcer asks for it.
    #[inline(never)]
    fn decide(&mut self, now: Instant, ran: Duration) {
        for cpu in 0..self.cpus {
            if let Some(unit) = self.slices[cpu as usize].run.charged() {
                self.policy.charge(now, CpuId(cpu), unit, ran);
            }
        }
        while self.policy.next_timer().at <= now {
            self.policy.on_timer(now, &mut self.resched);
        }
        self.resched.clear();
        for cpu in 0..self.cpus {
            self.slices[cpu as usize] = self.policy.pick(now, CpuId(cpu), &mut self.resched);
        }
        self.policy.ranking(CpuId(0), &mut self.ranking);
        black_box(&self.ranking);
    }
}

/// Measures a decision and its parts, and how long a decision holds the lock of a shared run queue.
pub(super) fn measure(session: &mut Session<'_>) -> Result<(), Error> {
    let sleepers = Sleepers::start(UNITS as usize)?;
    let tids = sleepers.tids();
    // The threads sleep, so a SCHED_FIFO priority does no harm: they never run.
    let refused = sys::set_fifo(tids[0], 1).err();
    let mut driver = PolicyDriver::new(servers::deferrable::NAME, 1);
    let mut priority = 1;
    let open = |tid: &i32| Reader::open(&format!("/proc/{tid}/schedstat"));
    let accounts: Vec<Reader> = tids.iter().map(open).collect::<io::Result<_>>()?;
    let mut buffer = [0; 512];
    let [clocks, policy, change, decision] = session.repeat(|| {
        let (now, ran) = driver.advance();
        let start = sys::monotonic_ns();
        for account in &accounts {
            black_box(account.read(&mut buffer)?);
        }
        let clocks_read = sys::monotonic_ns();
        driver.decide(now, ran);
        let decided = sys::monotonic_ns();
        if refused.is_none() {
            priority = 3 - priority;
            sys::set_fifo(tids[0], priority)?;
        }
        let end = sys::monotonic_ns();
        Ok([clocks_read - start, decided - clocks_read, end - decided, end - start])
    })?;
    session.add(Id::ThreadClocks, clocks);
    session.add(Id::Policy, policy);
    match refused {
        None => session.add(Id::PriorityChange, change),
        Some(error) => session.skip(Id::PriorityChange, &error),
    }
    session.add(Id::Decision, decision);
    measure_lock(session)
}

/// Measures decisions of two processors that share a run queue under a lock.
fn measure_lock(session: &mut Session<'_>) -> Result<(), Error> {
    let shared = Mutex::new(PolicyDriver::new(rtds::NAME, 2));
    let poisoned = |_| io::Error::other("a thread panicked with the lock");
    let [lock] = session.repeat(|| {
        let (now, ran) = shared.lock().map_err(poisoned)?.advance();
        let start = sys::monotonic_ns();
        shared.lock().map_err(poisoned)?.decide(now, ran);
        Ok([sys::monotonic_ns() - start])
    })?;
    session.add(Id::Lock, lock);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_and_every_unit_gets_its_turn() {
        for (name, cpus) in [("deferrable", 1), ("rtds", 2)] {
            let mut driver = PolicyDriver::new(name, cpus);
            let mut ran = std::collections::BTreeSet::new();
            for _ in 0..500 {
                let (now, passed) = driver.advance();
                driver.decide(now, passed);
                ran.extend(driver.slices.iter().filter_map(|slice| slice.run.charged()));
            }
            assert!(driver.now > Instant::ZERO + Duration::from_ms(50), "{name} is at {}", driver.now);
            assert_eq!(ran.len(), UNITS as usize, "{name}");
        }
    }
}
