//! Charging the policy for the time since the last look.

use punctual_sched::{CpuId, Duration, Instant};

use super::look::{Observation, Order};
use super::settings::LateOverrun;
use super::state::{Driver, Step};

/// A unit owes at most this many budgets.
const OWED_BUDGETS_MAX: u64 = 4;

impl Driver {
    /// Charges the policy for what ran since `charged_up_to`, one unit after the other.
    pub(super) fn replay(
        &mut self,
        charged_up_to: Instant,
        now: Instant,
        cpu: CpuId,
        observed: &[(usize, Observation)],
    ) {
        self.collect_steps(now, cpu, observed);
        let total = self.replay.iter().fold(0, |sum: u64, step| sum.saturating_add(step.charge.as_ns()));
        let mut at = Instant::from_ns(now.as_ns().saturating_sub(total)).max(charged_up_to);
        for index in 0..self.replay.len() {
            let Step { number, charge, has_work, .. } = self.replay[index];
            if has_work || !charge.is_zero() {
                self.set_awake(at, number, true);
            }
            self.decide(at, cpu);
            at = (at + charge).min(now);
            self.charge(at, cpu, number, charge);
            self.set_awake(at, number, has_work);
        }
    }

    /// Fills `self.replay`, in order, with the units that ran, or have work otherwise than the policy knows.
    fn collect_steps(&mut self, now: Instant, cpu: CpuId, observed: &[(usize, Observation)]) {
        let before = core::mem::replace(&mut self.last_look[cpu.index()], now);
        let top = if self.idles_away { self.most_urgent(cpu) } else { None };
        let others =
            |(number, _): &&(usize, Observation)| top.is_some_and(|top| self.share_budget(top, *number));
        let by_others =
            observed.iter().filter(others).map(|(_, of)| of.ran).fold(Duration::ZERO, |sum, ran| sum + ran);
        self.replay.clear();
        for &(number, Observation { ran, idled, has_work }) in observed {
            let Some(unit) = self.units.get_mut(number).and_then(Option::as_mut) else { continue };
            unit.looks_idle = if ran.is_zero() { unit.looks_idle.saturating_add(1) } else { 0 };
            let mut charge = ran;
            if let Some(idled) = idled {
                charge += idled;
                unit.counts.idled_away += idled;
            } else if top == Some(number) {
                // What neither it nor another one with its budget ran idled away.
                let idle = now.since(before).saturating_sub(self.stood_still).saturating_sub(by_others);
                charge = ran.max(idle);
                unit.counts.idled_away += charge.saturating_sub(ran);
            }
            // A parked unit cannot show whether it has work, unless the kernel tells: it counts as having
            // some until it may run.
            let could_run = unit.order != Order::Parked || self.settings.kernel_tells;
            let has_work = !could_run || has_work.unwrap_or(unit.is_awake || !ran.is_zero());
            if !charge.is_zero() || has_work != unit.is_awake {
                let rank = match unit.order {
                    Order::Ranked(rank) => i32::from(rank),
                    Order::Parked => i32::from(u16::MAX) + 1,
                };
                let turn = match has_work {
                    true if charge.is_zero() => (2, rank),
                    true => (1, -rank),
                    false => (0, rank),
                };
                self.replay.push(Step { turn, number, charge, has_work });
            }
        }
        self.replay.sort_unstable_by_key(|step| (step.turn, step.number));
    }

    /// Do two different units draw from one budget?
    pub(super) fn share_budget(&self, one: usize, other: usize) -> bool {
        let vm = |number: usize| self.units.get(number)?.as_ref().filter(|unit| unit.shares_budget)?.vm;
        one != other && vm(one).is_some() && vm(one) == vm(other)
    }

    fn charge(&mut self, at: Instant, cpu: CpuId, number: usize, charge: Duration) {
        let Some(unit) = self.units[number].as_mut() else { return };
        let account = self.policy.account(unit.id);
        unit.counts.charged += charge;
        let mut due = charge + core::mem::take(&mut unit.owed);
        if let (Some(left), false) = (account.left, account.may_overrun)
            && due >= left
        {
            let over = due.saturating_sub(left);
            let is_of_this_look = !charge.is_zero() && self.settings.late_overrun == LateOverrun::Forgiven;
            let forgiven = if is_of_this_look { self.late } else { Duration::ZERO };
            unit.owed = over.saturating_sub(forgiven).min(account.max.unwrap_or(left) * OWED_BUDGETS_MAX);
            if !left.is_zero() {
                self.evidence.overrun.record(over);
            }
            due = left;
        }
        if !due.is_zero() {
            let cpu = if self.shared_queue { CpuId(0) } else { cpu };
            self.policy.charge(at, cpu, unit.id, due);
        }
    }

    /// A unit that owes pays as soon as it has budget again.
    pub(super) fn collect_owed(&mut self, now: Instant, cpu: CpuId) {
        for number in 0..self.units.len() {
            let Some(unit) = self.units[number].as_ref() else { continue };
            let left = self.policy.account(unit.id).left;
            if !unit.owed.is_zero() && left.is_some_and(|left| !left.is_zero()) {
                self.charge(now, cpu, number, Duration::ZERO);
            }
        }
    }

    fn set_awake(&mut self, at: Instant, number: usize, is_awake: bool) {
        let Some(unit) = self.units[number].as_mut() else { return };
        if unit.is_awake == is_awake {
            return;
        }
        unit.is_awake = is_awake;
        if is_awake {
            unit.counts.wakes += 1;
            self.policy.wake(at, unit.id, &mut self.resched);
        } else {
            unit.counts.sleeps += 1;
            self.policy.sleep(at, unit.id, &mut self.resched);
        }
    }
}
