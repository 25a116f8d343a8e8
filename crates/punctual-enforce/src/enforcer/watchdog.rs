//! A thread that gives the units' processors to the kernel while an enforcer is stuck in a look.
//!
//! A stuck enforcer waits for a lock of the kernel, that of cgroups for example. The thread that holds the
//! lock may itself wait for the processor of a unit that the enforcer was about to park: a fork on the
//! pool's processor, or a kernel worker of that processor, beside another program that moves a process.
//! Real-time units would never let that thread run; units in the fair class do.
//!
//! Where that does not help, the enforcer itself loses its priority until its look is over. In that case it
//! spins in the kernel and waits for an exiting thread of its processor that is in no list of threads
//! (docs/live.md, "Locks of the kernel").
//!
//! The watchdog also puts the threads of a crowd ([`crate::unit::THREADS_MAX`]) into SCHED_IDLE, which would
//! take an enforcer too long, and checks that units are where the run put them ([`Placement`]).

use std::sync::atomic::Ordering;
use std::time::Duration as StdDuration;

use punctual_sched::{Duration, Instant};

use super::placement::Placement;
use super::shared::{Shared, UnitMembers};
use crate::clock::now;
use crate::unit::ENFORCER;
use punctual_linux::os::sched::{self, Attributes};

/// How often the watchdog checks whether an enforcer is stuck.
const INTERVAL: StdDuration = StdDuration::from_millis(10);

/// A look that takes longer than this is stuck: longer than the cgroup lock is held while a process is moved
/// (up to 14 ms, see [`super::Enforcement::without_freezer`]).
pub const STUCK: Duration = Duration::from_ms(20);

/// A look that takes longer than this is stuck although the units have no priorities.
const HOPELESS: Duration = Duration::from_ms(60);

/// What was done for an enforcer last.
#[derive(Clone, Copy, Default)]
struct Handled {
    /// For the look that began then, in ns.
    began_ns: u64,
    /// The enforcer lost its own priority.
    itself: bool,
}

/// What a stuck enforcer needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    UnitsDemoted,
    ItselfDemoted,
}

/// What is to be done for an enforcer at `now`, whose look began at `began_ns` (0: it sleeps).
fn need(handled: &mut Handled, began_ns: u64, now: Instant) -> Option<Need> {
    if began_ns == 0 {
        return None;
    }
    let took = now.since(Instant::from_ns(began_ns));
    if handled.began_ns != began_ns && took > STUCK {
        *handled = Handled { began_ns, itself: false };
        return Some(Need::UnitsDemoted);
    }
    if handled.began_ns == began_ns && !handled.itself && took > HOPELESS {
        handled.itself = true;
        return Some(Need::ItselfDemoted);
    }
    None
}

/// Watches until the pool's threads are to stop.
pub(super) fn watch(shared: &Shared, mut placement: Placement) {
    // Without the priority it is later on a busy machine, and no less right.
    let _ = sched::set_attributes(0, &Attributes::fifo(ENFORCER));
    let mut handled = vec![Handled::default(); shared.look_began_ns.len()];
    let mut set_aside: Vec<String> = Vec::new();
    while !shared.is_stopping() {
        std::thread::park_timeout(INTERVAL);
        if help(shared, &mut handled) {
            set_aside.clear();
        } else {
            set_crowds_aside(shared, &mut set_aside);
        }
        placement.tick();
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

/// Does what stuck enforcers need; false when none is stuck.
fn help(shared: &Shared, handled: &mut [Handled]) -> bool {
    let mut units = false;
    let mut is_stuck = false;
    for (index, handled) in handled.iter_mut().enumerate() {
        match need(handled, shared.look_began_ns[index].load(Ordering::Relaxed), now()) {
            None => continue,
            Some(Need::UnitsDemoted) => units = true,
            Some(Need::ItselfDemoted) => demote_enforcer(shared, index),
        }
        is_stuck = true;
    }
    if units {
        demote_units(shared);
    }
    is_stuck
}

/// Puts an enforcer into the fair class until its look is over.
fn demote_enforcer(shared: &Shared, index: usize) {
    let thread = shared.threads[index].load(Ordering::Relaxed);
    if thread > 0 {
        // It runs as long as the pool does.
        let _ = sched::set_attributes(thread, &Attributes::other());
    }
    // Last: if the look has ended meanwhile, the end of the next one gives the priority back.
    shared.has_lost_priority[index].store(true, Ordering::Relaxed);
}

/// Puts every thread of every unit into the fair class.
fn demote_units(shared: &Shared) {
    for unit in shared.units().iter() {
        unit.counters.given.forget();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_goes_on_costs_first_the_units_and_then_the_enforcer_its_priority_once_each() {
        let mut handled = Handled::default();
        let mut at = |began_ns: u64, ms: u64| need(&mut handled, began_ns, Instant::from_ns(ms * 1_000_000));
        assert_eq!(at(0, 500), None, "it sleeps");
        let began = 500_000_000;
        assert_eq!(at(began, 520), None);
        assert_eq!(at(began, 521), Some(Need::UnitsDemoted));
        assert_eq!(at(began, 560), None);
        assert_eq!(at(began, 561), Some(Need::ItselfDemoted));
        assert_eq!(at(began, 2_000), None);
        assert_eq!(at(2_100_000_000, 2_200), Some(Need::UnitsDemoted), "another look");
    }
}
