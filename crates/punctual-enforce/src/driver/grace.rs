//! A parked unit that holds a lock of its VMM.
//!
//! A vCPU thread is parked wherever it is, also in the VMM's own code with a lock that other threads of the
//! VMM wait for: QEMU's big lock, which its monitor and its devices need. Without a grace they wait until the
//! vCPU has budget again.
//!
//! # Rule
//! For at most [`GRACE_MAX`] the unit is ranked where it would be if it had budget, or below all others
//! where the policy does not say where that is. What it runs without budget it owes. A grace begins at the
//! earliest [`GRACE_INTERVAL`] after the one before, so a unit has at most a tenth of a processor by
//! graces.

use punctual_sched::{CpuId, Duration, Instant};

use super::look::Order;
use super::state::{Driver, Unit};

/// How long a grace lasts at most.
pub const GRACE_MAX: Duration = Duration::from_ms(1);

/// From the beginning of a grace to that of the next one at least.
pub const GRACE_INTERVAL: Duration = Duration::from_ms(10);

impl Unit {
    /// When its grace ends, if it has one.
    pub(super) fn grace_after(&self, now: Instant) -> Option<Instant> {
        self.grace.map(|(_, end)| end).filter(|end| *end > now)
    }
}

impl Driver {
    /// Lets a parked unit run on from the next look on; false where that is refused, because it is not
    /// parked, or had a grace less than [`GRACE_INTERVAL`] ago.
    pub fn begin_grace(&mut self, now: Instant, number: usize) -> bool {
        let now = self.advance_clock(now);
        let Some(unit) = self.units.get_mut(number).and_then(Option::as_mut) else { return false };
        let is_early = unit.grace.is_some_and(|(begin, _)| now.since(begin) < GRACE_INTERVAL);
        if unit.order != Order::Parked || is_early {
            return false;
        }
        unit.grace = Some((now, now + GRACE_MAX));
        self.evidence.graces += 1;
        true
    }

    /// Ends the grace of a unit, if it has one, with the next look.
    pub fn end_grace(&mut self, now: Instant, number: usize) {
        let now = self.advance_clock(now);
        if let Some((_, end)) = self.units.get_mut(number).and_then(|unit| unit.as_mut()?.grace.as_mut()) {
            *end = now.min(*end);
        }
    }

    /// Ranks units with a grace that have no rank yet below all others. Returns when the first of their
    /// graces ends.
    pub(super) fn rank_graces(&mut self, now: Instant, cpu: CpuId, rank: &mut u16) -> Instant {
        let mut next = Instant::NEVER;
        for number in 0..self.units.len() {
            let is_here = self.shared_queue || self.home(number) == cpu;
            let Some(unit) = self.units[number].as_mut() else { continue };
            if let (true, Order::Parked, Some(end)) = (is_here, unit.order, unit.grace_after(now)) {
                unit.order = Order::Ranked(*rank);
                *rank = rank.saturating_add(1);
                next = next.min(end);
            }
        }
        next
    }
}
