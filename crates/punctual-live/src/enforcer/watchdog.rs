//! A thread that gives the units' processors to the kernel while an enforcer is stuck in a look.
//!
//! A stuck enforcer waits for a lock of the kernel, that of cgroups for example. The thread that holds the
//! lock may itself wait for the processor of a unit that the enforcer was about to park: a fork on the
//! pool's processor, or a kernel worker of that processor, beside another program that moves a process.
//! Real-time units would keep that thread from running for ever; in the fair class they do not.
//!
//! The same thread puts the threads of a crowd ([`crate::unit::THREADS_MAX`]) into the class for idle time,
//! which takes an enforcer too long.

use std::sync::atomic::Ordering;
use std::time::Duration as StdDuration;

use punctual_sched::{Duration, Instant};

use super::now;
use super::shared::{Shared, UnitMembers};
use crate::os::sched::{self, Attributes};
use crate::unit::ENFORCER;

/// How often the watchdog checks whether an enforcer is stuck.
const INTERVAL: StdDuration = StdDuration::from_millis(10);

/// A look that takes longer than this is stuck: longer than the cgroup lock is held while a process is moved
/// (up to 14 ms, see [`super::Enforcement::without_freezer`]).
pub const STUCK: Duration = Duration::from_ms(20);

/// Watches until the pool's threads are to stop.
pub(super) fn watch(shared: &Shared) {
    // Without the priority it is later on a busy machine, and no less right.
    let _ = sched::set_attributes(0, &Attributes::fifo(ENFORCER));
    let mut handled_ns = vec![0; shared.look_began_ns.len()];
    let mut set_aside: Vec<String> = Vec::new();
    while !shared.is_stopping() {
        std::thread::park_timeout(INTERVAL);
        if is_newly_stuck(shared, &mut handled_ns) {
            demote_units(shared);
            set_aside.clear();
        } else {
            set_crowds_aside(shared, &mut set_aside);
        }
    }
}

/// How often the threads of a crowd are listed in a row: a thread may start others until it was set itself.
const LISTINGS_MAX: usize = 20;

/// Puts the threads of crowds that are new, whose names are not in `set_aside`, into the class for idle time.
fn set_crowds_aside(shared: &Shared, set_aside: &mut Vec<String>) {
    let is_crowd = |unit: &UnitMembers| unit.counters.is_crowd.load(Ordering::Relaxed);
    // Without the lock from here on: enforcers take it.
    let crowds: Vec<UnitMembers> = shared.units().iter().filter(|unit| is_crowd(unit)).cloned().collect();
    set_aside.retain(|name| crowds.iter().any(|crowd| crowd.name == *name));
    for crowd in crowds {
        if set_aside.contains(&crowd.name) {
            continue;
        }
        let is_done = (0..LISTINGS_MAX).any(|_| is_idle(&crowd));
        if is_done {
            set_aside.push(crowd.name.clone());
        }
        if !is_crowd(&crowd) {
            // A thread may have lost the priority that the enforcer gave it meanwhile.
            shared.demoted.store(true, Ordering::Relaxed);
        }
    }
}

/// Sets every thread of a crowd that is not set yet; true when there was none.
fn is_idle(crowd: &UnitMembers) -> bool {
    let mut is_idle = true;
    for thread in crowd.threads() {
        let idle = Attributes::idle();
        if sched::attributes(thread).is_ok_and(|attributes| attributes.policy != idle.policy) {
            is_idle = false;
            // A thread that is gone, or may not be changed, is found again by the next listing.
            let _ = sched::set_affinity(thread, &crowd.processors);
            let _ = sched::set_attributes(thread, &idle);
        }
    }
    is_idle
}

/// Is an enforcer stuck in a look for which nothing was done yet? `handled_ns` holds, by enforcer, the look
/// for which something was done last.
fn is_newly_stuck(shared: &Shared, handled_ns: &mut [u64]) -> bool {
    let mut is_stuck = false;
    for (began, handled_ns) in shared.look_began_ns.iter().zip(handled_ns) {
        let began_ns = began.load(Ordering::Relaxed);
        if began_ns != 0 && began_ns != *handled_ns && now().since(Instant::from_ns(began_ns)) > STUCK {
            *handled_ns = began_ns;
            is_stuck = true;
        }
    }
    is_stuck
}

/// Puts every thread of every unit into the fair class.
fn demote_units(shared: &Shared) {
    for unit in shared.units().iter() {
        for thread in unit.threads() {
            // A thread that is gone holds nothing up.
            let _ = sched::set_attributes(thread, &Attributes::other());
        }
    }
    shared.demotions.fetch_add(1, Ordering::Relaxed);
    // Last: a priority that the enforcer gave meanwhile would otherwise be lost unnoticed.
    shared.demoted.store(true, Ordering::Relaxed);
    shared.wake_enforcers();
}
