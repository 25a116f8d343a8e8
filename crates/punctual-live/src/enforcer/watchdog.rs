//! A thread that gives the units' processors to the kernel while an enforcer is stuck in a look.
//!
//! A stuck enforcer waits for a lock of the kernel, that of cgroups for example. The thread that holds the
//! lock may itself wait for the processor of a unit that the enforcer was about to park: a fork on the
//! pool's processor, or a kernel worker of that processor, beside another program that moves a process.
//! Real-time units would keep that thread from running for ever; in the fair class they do not.

use std::sync::atomic::Ordering;
use std::time::Duration as StdDuration;

use punctual_sched::{Duration, Instant};

use super::now;
use super::shared::Shared;
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
    while !shared.is_stopping() {
        std::thread::park_timeout(INTERVAL);
        if is_newly_stuck(shared, &mut handled_ns) {
            demote_units(shared);
        }
    }
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
