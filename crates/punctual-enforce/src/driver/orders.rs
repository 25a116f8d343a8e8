//! The policy's decisions, as an order for each unit and the instant of the next look.

use punctual_sched::turns::TURN;
use punctual_sched::{Account, CpuId, Duration, Instant, Run, UnitId};

use super::look::Order;
use super::state::{Driver, Unit};

impl Driver {
    pub(super) fn run_timers(&mut self, now: Instant) {
        // Each entry is handled once; a policy's timer always moves on, the bound is for a broken one.
        for _ in 0..=4 * self.units.len() + 16 {
            let timer = self.policy.next_timer();
            if timer.at > now {
                return;
            }
            self.evidence.replenishment_lateness.record(now.since(timer.at));
            self.policy.on_timer(now, &mut self.resched);
        }
    }

    /// Lets every processor pick that was asked to, and `cpu`. Returns the end of `cpu`'s slice.
    pub(super) fn decide(&mut self, now: Instant, cpu: CpuId) -> Instant {
        let mut slice_end = Instant::NEVER;
        self.resched.insert(cpu);
        // A pick may ask for another; each takes a unit off a queue, so this ends. The bound is for a broken
        // policy.
        for _ in 0..=8 * (self.units.len() + self.cpus) {
            let Some(next) = self.resched.pop() else { break };
            let slice = self.policy.pick(now, next, &mut self.resched);
            self.decisions += 1;
            if slice.until <= now {
                // The unit picked had nothing left: it was charged while another was current.
                self.resched.insert(next);
            } else if next == cpu {
                slice_end = slice.until;
                self.picked[cpu.index()] = slice.run;
                // The end of a budget is looked for in `give_orders`, unit by unit; the end of a quantum
                // stays.
                let left = slice.run.charged().and_then(|unit| self.policy.account(unit).left);
                if left.is_some_and(|left| now + left == slice_end) {
                    slice_end = Instant::NEVER;
                }
            }
        }
        slice_end
    }

    pub(super) fn most_urgent(&mut self, cpu: CpuId) -> Option<usize> {
        self.policy.ranking(cpu, &mut self.ranking);
        self.ranking.first().map(|id| self.numbers[id.index()])
    }

    /// Among units with work the policy's choice comes first: a policy that takes turns (Credit) ranks equals
    /// by arrival. More urgent units without work stay above it, for they would preempt it.
    fn lift_picked(&mut self, cpu: CpuId) {
        let Run::Unit(picked) = self.picked[cpu.index()] else { return };
        let is_awake = |id: &UnitId| {
            let unit = self.numbers.get(id.index()).and_then(|&number| self.units.get(number)?.as_ref());
            unit.is_some_and(|unit| unit.is_awake)
        };
        let first = self.ranking.iter().position(is_awake);
        let at = self.ranking.iter().position(|id| *id == picked);
        if let (Some(first), Some(at)) = (first, at)
            && first < at
        {
            self.ranking[first..=at].rotate_right(1);
        }
    }

    /// Turns the ranking into orders and finds the instant of the next look.
    pub(super) fn give_orders(&mut self, now: Instant, cpu: CpuId, slice_end: Instant) -> Instant {
        // The end of a slice waits for the granularity as that of a budget does: if looks came before the
        // unit could run at all, the slice would never end.
        let slice_end = slice_end.max(now + self.settings.granularity);
        let is_ahead = self.is_ahead();
        let mut next = if is_ahead { slice_end } else { slice_end.min(self.policy.next_timer().at) };
        self.policy.ranking(cpu, &mut self.ranking);
        self.park_all(cpu);
        self.lift_picked(cpu);
        let mut rank = 0u16;
        for index in 0..self.ranking.len() {
            let number = self.numbers[self.ranking[index].index()];
            let Some(unit) = self.units[number].as_mut() else { continue };
            let account = self.policy.account(unit.id);
            if account.left.is_some_and(|left| left.is_zero()) && !account.may_overrun {
                if let Some(end) = unit.grace_after(now) {
                    unit.order = Order::Ranked(rank);
                    rank = rank.saturating_add(1);
                    next = next.min(end);
                }
                continue;
            }
            if unit.order_before == Order::Parked {
                // It could not run, which says nothing about whether it will.
                unit.looks_idle = 0;
                if self.sleep_matters && !self.settings.kernel_tells {
                    next = next.min(now + self.settings.lateness_max);
                }
            }
            unit.order = Order::Ranked(rank);
            rank = rank.saturating_add(1);
            let looks_idle = unit.looks_idle;
            // Others that draw from the same budget may run beside it.
            let beside = if unit.shares_budget && self.shared_queue { self.cpus as u64 } else { 1 };
            if !is_ahead {
                next = next.min(self.exhaustion_look(now, &account, looks_idle, beside));
            }
            let next_one = self.ranking.get(index + 1).map(|id| self.numbers[id.index()]);
            if self.idles_away && !next_one.is_some_and(|other| self.share_budget(number, other)) {
                break;
            }
        }
        next = self.rank_graces(now, cpu, &mut rank).min(next);
        if self.has_turns(rank) {
            next = next.min(now + TURN);
        }
        next.max(now + Duration::from_ns(1))
    }

    /// May vCPUs of one VM want the same processor? `ranked` units may run. Then a look comes at least once
    /// in a turn: a vCPU that wakes up behind another one causes none.
    fn has_turns(&self, ranked: u16) -> bool {
        let processors = if self.shared_queue { self.cpus } else { 1 };
        let unit = |id: &UnitId| self.units[self.numbers[id.index()]].as_ref();
        let vm = |id: &UnitId| {
            let is_ranked = |unit: &&Unit| unit.order != Order::Parked;
            unit(id).filter(is_ranked).and_then(|unit| unit.vm)
        };
        let mut ranking = self.ranking.iter().enumerate();
        usize::from(ranked) > processors
            && ranking.any(|(at, id)| {
                vm(id).is_some_and(|own| self.ranking[..at].iter().any(|other| vm(other) == Some(own)))
            })
    }

    /// Does the kernel carry out the replenishments of all units, and charge them for what idles away?
    fn is_ahead(&self) -> bool {
        let is_ahead = |unit: &Unit| self.policy.ahead(unit.id).is_some();
        self.settings.kernel_tells && self.units.iter().flatten().all(is_ahead)
    }

    /// Parks every unit that `cpu` decides about.
    fn park_all(&mut self, cpu: CpuId) {
        for number in 0..self.units.len() {
            let is_here = self.shared_queue || self.home(number) == cpu;
            if let (true, Some(unit)) = (is_here, self.units[number].as_mut()) {
                unit.order_before = core::mem::replace(&mut unit.order, Order::Parked);
            }
        }
    }

    /// When to look whether a unit that may run has used up its budget. Where a unit may go on without budget
    /// (extratime), its urgency changes then.
    fn exhaustion_look(&self, now: Instant, account: &Account, looks_idle: u32, beside: u64) -> Instant {
        let Some(left) = account.left.map(|left| left / beside) else { return Instant::NEVER };
        // What idles away the kernel does not charge.
        if self.settings.kernel_tells && !self.idles_away {
            return Instant::NEVER;
        }
        let gap = match looks_idle {
            0 => left,
            looks => {
                let step = self.settings.granularity * (1u64 << looks.min(10));
                // At most one budget late, so that what is owed can be paid.
                let budget = account.max.unwrap_or(left);
                left.max(step.min(self.settings.lateness_max).min(budget))
            }
        };
        now + gap.max(self.settings.granularity)
    }
}
