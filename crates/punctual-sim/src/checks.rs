//! Invariants, checked during every simulation in debug and release builds alike:
//!
//! - a slice ends later than it begins, and time advances;
//! - who is picked exists, has work, may run there, and runs nowhere else;
//! - who is picked has budget, and nobody holds more budget than its maximum;
//! - who falls asleep is taken off its processor;
//! - a processor idles only if the policy's promise of work conservation allows it;
//! - at the end, busy, idle and overhead time of every processor add up to the time that passed, and what
//!   was charged to units is what processors spent on them.
//!
//! The first violation stops the run with the last decisions.

use std::fmt::Write as _;

use punctual_model::trace::TraceSink;
use punctual_sched::registry::WorkConservation;
use punctual_sched::{Duration, Instant, Run, Slice};

use crate::machine::{Machine, NONE};

/// How many of the last decisions an account of a violation shows.
const SHOWN: usize = 16;

/// A scheduler of more units than this is not checked for waiting units at every instant but at every
/// `LARGE_TURN`th, and then `LARGE_WINDOW` of them, going round.
const LARGE: usize = 128;
const LARGE_TURN: usize = 16;
const LARGE_WINDOW: usize = 32;

/// The last decisions, in a ring, and how many were taken at this instant.
pub(crate) struct History {
    ring: [(Instant, u32, Run); SHOWN],
    decisions: u64,
    same_instant: u64,
    instant: Instant,
}

impl Default for History {
    fn default() -> Self {
        History {
            ring: [(Instant::ZERO, NONE, Run::Idle); SHOWN],
            decisions: 0,
            same_instant: 0,
            instant: Instant::ZERO,
        }
    }
}

impl History {
    #[inline]
    pub(crate) fn decided(&mut self, now: Instant, proc: usize, slice: Slice) {
        self.ring[self.decisions as usize % SHOWN] = (now, proc as u32, slice.run);
        self.decisions += 1;
        self.timer_ran(now);
    }

    /// Counts a decision or a timer at this instant.
    #[inline]
    pub(crate) fn timer_ran(&mut self, now: Instant) {
        if now == self.instant {
            self.same_instant += 1;
        } else {
            self.instant = now;
            self.same_instant = 0;
        }
    }
}

impl<T: TraceSink> Machine<'_, T> {
    /// Notes the first violation, with what led to it.
    #[cold]
    pub(crate) fn violated(&mut self, what: &str) {
        if self.violation.is_some() {
            return;
        }
        let mut account = format!("invariant violated at {} ns: {what}\nlast decisions:", self.now.as_ns());
        let shown = (self.history.decisions as usize).min(SHOWN);
        for back in (1..=shown).rev() {
            let (at, proc, run) = self.history.ring[(self.history.decisions as usize - back) % SHOWN];
            let sched = self.procs[proc as usize].sched as usize;
            let name = |id: punctual_sched::UnitId| match self.scheds[sched].units.get(id.index()) {
                Some(&unit) if unit != NONE => self.unit_name(unit),
                _ => format!("unknown {id:?}"),
            };
            let run = match run {
                Run::Idle => "idle".to_string(),
                Run::IdleFor(id) => format!("idle for {}", name(id)),
                Run::Unit(id) => name(id),
            };
            let (policy, proc) = (self.scheds[sched].info.name, self.proc_name(proc as usize));
            let _ = write!(account, "\n  {:>15} ns  {proc} ({policy}): {run}", at.as_ns());
        }
        self.violation = Some(account);
    }

    /// Does time go forward?
    #[inline]
    pub(crate) fn check_progress(&mut self, next: Instant) {
        if next < self.now {
            self.violated(&format!("the next event lies in the past, at {} ns", next.as_ns()));
        }
    }

    /// Does this instant come to an end? Decisions and timers at one instant are bounded: each of them
    /// starts, stops or replenishes somebody.
    #[inline]
    pub(crate) fn check_busy_instant(&mut self) {
        let bound = 1000 + 16 * (self.procs.len() + self.units.len()) as u64;
        if self.history.same_instant > bound {
            self.violated(&format!("more than {bound} decisions and timers at one instant, without an end"));
        }
    }

    /// May the processor do what its policy picked? False stops the run.
    #[inline]
    pub(crate) fn check_slice(&mut self, proc: usize, slice: Slice) -> bool {
        if slice.until <= self.now {
            self.violated(&format!("{}: the slice would end at {:?}", self.proc_name(proc), slice.until));
            return false;
        }
        let Some(id) = slice.run.charged() else { return true };
        let sched = &self.scheds[self.procs[proc].sched as usize];
        let Some(&unit) = sched.units.get(id.index()).filter(|unit| **unit != NONE) else {
            self.violated(&format!("{}: picked {id:?}, which is not there", self.proc_name(proc)));
            return false;
        };
        let account = sched.policy.account(id);
        let broke = account.left == Some(Duration::ZERO) && !account.may_overrun;
        let rich = matches!((account.left, account.max), (Some(left), Some(max)) if left > max);
        let u = &self.units[unit as usize];
        let elsewhere = u.running_on != NONE && u.running_on != proc as u32;
        let forbidden = !self.may_run_on(unit, self.procs[proc].cpu);
        let idles = matches!(slice.run, Run::IdleFor(_));
        if u.awake != idles && !broke && !rich && !elsewhere && !forbidden {
            return true;
        }
        let reason = match () {
            () if broke => "has no budget left".to_string(),
            () if rich => format!("holds {:?} of at most {:?}", account.left, account.max),
            () if elsewhere => format!("already runs on {}", self.proc_name(u.running_on as usize)),
            () if forbidden => "may not run there (affinity)".to_string(),
            () if idles => "has work, yet its budget idles away".to_string(),
            () => "has no work".to_string(),
        };
        self.violated(&format!("{} picked {}, which {reason}", self.proc_name(proc), self.unit_name(unit)));
        false
    }

    /// A unit that fell asleep must not keep its processor.
    #[inline]
    pub(crate) fn check_asleep(&mut self, unit: u32) {
        let on = self.units[unit as usize].running_on;
        if on == NONE || self.units[unit as usize].awake {
            return;
        }
        let proc = &self.procs[on as usize];
        if !proc.pending && !proc.resched {
            self.violated(&format!(
                "{} fell asleep and {} was not asked to pick",
                self.unit_name(unit),
                self.proc_name(on as usize)
            ));
        }
    }

    /// After all decisions of an instant: nobody idles against the policy's promise.
    #[inline]
    pub(crate) fn check_work_conservation(&mut self, sched: usize) {
        let s = &self.scheds[sched];
        if s.awake > s.running
            && (s.running as usize) < s.procs.len()
            && s.info.work_conservation != WorkConservation::Never
            && (s.awake - s.running) as usize > self.asked(sched)
        {
            self.check_waiting_units(sched);
        }
    }

    /// Processors of the scheduler that were asked to pick and have not yet: vCPUs without power. Each takes
    /// one of the waiting units with it, also when another vCPU of the guest has power by then.
    fn asked(&self, sched: usize) -> usize {
        let procs = self.scheds[sched].procs.iter().map(|&proc| &self.procs[proc as usize]);
        procs.filter(|p| p.pending || p.resched).count()
    }

    fn check_waiting_units(&mut self, sched: usize) {
        let s = &mut self.scheds[sched];
        let total = s.units.len();
        let (mut first, mut looked_at) = (0, total);
        if total > LARGE {
            let turn = s.check_turn as usize;
            s.check_turn = s.check_turn.wrapping_add(1);
            if !turn.is_multiple_of(LARGE_TURN) {
                return;
            }
            (first, looked_at) = (turn / LARGE_TURN * LARGE_WINDOW, LARGE_WINDOW);
        }
        // A processor that is still to pick may take the one that waits: a vCPU without power, or one in the
        // middle of a switch. It is checked when it has.
        let s = &self.scheds[sched];
        if s.procs.iter().any(|&proc| self.procs[proc as usize].pending || self.procs[proc as usize].resched)
        {
            return;
        }
        for slot in first..first + looked_at {
            let unit = self.scheds[sched].units[slot % total];
            if unit == NONE
                || !self.units[unit as usize].awake
                || self.units[unit as usize].running_on != NONE
            {
                continue;
            }
            if let Some(proc) = self.idle_against_promise(sched, unit) {
                let policy = self.scheds[sched].info.name;
                self.violated(&format!(
                    "{} idles under {policy} while {} waits",
                    self.proc_name(proc),
                    self.unit_name(unit)
                ));
            }
        }
    }

    /// A processor of the scheduler that idles although this waiting unit could run on it.
    fn idle_against_promise(&self, sched: usize, unit: u32) -> Option<usize> {
        let s = &self.scheds[sched];
        let account = s.policy.account(self.units[unit as usize].id);
        let broke = account.left == Some(Duration::ZERO) && !account.may_overrun;
        if broke && s.info.work_conservation == WorkConservation::WithinBudget {
            return None;
        }
        s.procs.iter().map(|&proc| proc as usize).find(|&proc| {
            let p = &self.procs[proc];
            p.run == Run::Idle
                && account.home.is_none_or(|home| home == p.cpu)
                && self.may_run_on(unit, p.cpu)
        })
    }

    /// The end of the run: charged time is elapsed time.
    pub(crate) fn check_ledger(&mut self) {
        let mut charged = vec![Duration::ZERO; self.scheds.len()];
        for (unit, u) in self.units.iter().enumerate() {
            charged[u.sched as usize] += u.charged;
            if let Some(vcpu) = self.vcpus.get(unit) {
                charged[u.sched as usize] += vcpu.idled_away;
            }
        }
        let elapsed = self.end.since(Instant::ZERO);
        for proc in 0..self.physical {
            let p = &self.procs[proc];
            let sum = p.busy + p.idle + p.overhead;
            if sum != elapsed {
                self.violated(&format!("processor {proc} accounts for {sum:?} of {elapsed:?}"));
            }
        }
        for (sched, charged) in charged.into_iter().enumerate() {
            let procs = self.scheds[sched].procs.iter().map(|&p| &self.procs[p as usize]);
            let spent = procs.fold(Duration::ZERO, |sum, p| sum + p.busy + p.idle + p.overhead);
            if charged > spent {
                self.violated(&format!(
                    "units of {} were charged {charged:?}, more than the {spent:?} its processors had",
                    self.scheds[sched].info.name
                ));
            }
        }
    }
}
