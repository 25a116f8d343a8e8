//! Credit without options against a second implementation: Xen 4.17's run queue as a list, in the order of
//! its code (`xen/common/sched/credit.c`), on one processor and without caps. As in the policy's rules, the
//! list is sorted at the refill and not at the next tick, and who waits boosted stands there as boosted until
//! it runs.

use std::collections::VecDeque;

use proptest::prelude::*;
use punctual_sched::registry::Options;
use punctual_sched::{Duration, Instant, UnitParams};
use punctual_testkit::driver::Driver;

const MS: u64 = 1_000_000;
const SLICE: u64 = 30 * MS;
const TICK: u64 = 10 * MS;
const RATELIMIT: u64 = MS;
const CREDITS_PER_SLICE: i64 = 300;
const CREDITS_PER_MS: u64 = 10;
const NEVER: u64 = u64::MAX;

/// `CSCHED_PRI_TS_*`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Priority {
    Over,
    Under,
    Boost,
}

struct Unit {
    weight: i64,
    credit: i64,
    residual: u64,
    priority: Priority,
    /// As what it waits.
    queued_as: Priority,
    is_active: bool,
    /// What is left of each of its jobs.
    jobs: VecDeque<u64>,
    completions: Vec<u64>,
}

struct Scheduler {
    units: Vec<Unit>,
    queue: Vec<usize>,
    current: Option<usize>,
    /// Up to when the current unit has worked and paid, and since when it runs.
    worked: u64,
    entered: u64,
    slice_end: u64,
    tick: u64,
    master: u64,
    active: Vec<usize>,
    balance: i64,
}

impl Scheduler {
    fn new(weights: &[u32]) -> Self {
        let unit = |&weight: &u32| Unit {
            weight: i64::from(weight),
            credit: 0,
            residual: 0,
            priority: Priority::Under,
            queued_as: Priority::Under,
            is_active: false,
            jobs: VecDeque::new(),
            completions: Vec::new(),
        };
        Scheduler {
            units: weights.iter().map(unit).collect(),
            queue: Vec::new(),
            current: None,
            worked: 0,
            entered: 0,
            slice_end: NEVER,
            tick: NEVER,
            master: NEVER,
            active: Vec::new(),
            balance: 0,
        }
    }

    /// `releases`: time, unit, cost in nanoseconds, by time.
    fn run(&mut self, releases: &[(u64, usize, u64)], end: u64) {
        let mut releases = releases.iter().copied().peekable();
        loop {
            let done = self.current.map_or(NEVER, |unit| self.worked + self.units[unit].jobs[0]);
            let released = releases.peek().map_or(NEVER, |release| release.0);
            let now =
                [done, released, self.tick, self.master, self.slice_end].into_iter().min().unwrap_or(end);
            if now > end {
                return;
            }
            self.work(now);
            if now == done {
                self.finish(now);
            } else if now == released {
                let (_, unit, cost) = releases.next().expect("peeked");
                self.release(now, unit, cost);
            } else if now == self.tick {
                self.csched_tick(now);
            } else if now == self.master {
                self.csched_acct(now);
            } else {
                self.csched_schedule(now);
            }
        }
    }

    /// The current unit has worked up to `now`: `burn_credits`.
    fn work(&mut self, now: u64) {
        if let Some(current) = self.current {
            let ran = now - self.worked;
            let unit = &mut self.units[current];
            unit.jobs[0] -= ran;
            let due = ran * CREDITS_PER_MS + unit.residual;
            unit.credit -= (due / MS) as i64;
            unit.residual = due % MS;
        }
        self.worked = now;
    }

    fn finish(&mut self, now: u64) {
        let unit = &mut self.units[self.current.expect("its job is done")];
        unit.jobs.pop_front();
        unit.completions.push(now);
        if unit.jobs.is_empty() {
            self.csched_schedule(now);
        }
    }

    fn release(&mut self, now: u64, woken: usize, cost: u64) {
        let unit = &mut self.units[woken];
        unit.jobs.push_back(cost);
        if unit.jobs.len() > 1 {
            return;
        }
        if unit.priority == Priority::Under {
            unit.priority = Priority::Boost;
        }
        self.runq_insert(woken);
        let of = |unit: usize| self.units[unit].priority;
        if self.current.is_none_or(|current| of(woken) > of(current)) {
            self.csched_schedule(now);
        }
    }

    fn runq_insert(&mut self, unit: usize) {
        let priority = self.units[unit].priority;
        self.units[unit].queued_as = priority;
        let before = self.queue.iter().position(|&other| priority > self.units[other].queued_as);
        self.queue.insert(before.unwrap_or(self.queue.len()), unit);
    }

    fn csched_schedule(&mut self, now: u64) {
        let previous = self.current;
        if let Some(current) = previous
            && !self.units[current].jobs.is_empty()
        {
            if now - self.entered < RATELIMIT {
                self.slice_end = self.entered + RATELIMIT;
                return;
            }
            self.runq_insert(current);
        }
        self.current = (!self.queue.is_empty()).then(|| self.queue.remove(0));
        self.slice_end = if self.current.is_some() { now + SLICE } else { NEVER };
        if self.current != previous {
            self.entered = now;
        }
        match (previous, self.current) {
            (Some(_), None) => self.tick = NEVER,
            (None, Some(_)) => self.tick = now + TICK - now % TICK,
            _ => {}
        }
    }

    fn csched_tick(&mut self, now: u64) {
        let current = self.current.expect("ticks stop where nothing runs");
        let unit = &mut self.units[current];
        unit.priority = unit.priority.min(Priority::Under);
        if !std::mem::replace(&mut unit.is_active, true) {
            self.active.insert(0, current);
            if self.master == NEVER {
                self.master = now + SLICE - now % SLICE;
            }
        }
        self.tick = now + TICK;
    }

    fn csched_acct(&mut self, now: u64) {
        let weights: i64 = self.active.iter().map(|&unit| self.units[unit].weight).sum();
        let deficit = (-self.balance).max(0);
        let (mut total, mut weight_left, mut has_spare) = (CREDITS_PER_SLICE + deficit, weights, false);
        let (mut balance, mut first, mut others) = (0, Vec::new(), Vec::new());
        for &active in &self.active {
            let unit = &mut self.units[active];
            weight_left -= unit.weight;
            let peak = CREDITS_PER_SLICE + up(deficit * unit.weight, weights);
            let mut fair = up(total * unit.weight, weights);
            let is_full = fair >= peak;
            if is_full {
                if weight_left != 0 {
                    total += up((fair - peak) * weights, weight_left);
                }
                fair = peak;
            }
            unit.credit += fair;
            if unit.credit < 0 {
                unit.priority = Priority::Over;
                unit.credit = unit.credit.max(-CREDITS_PER_SLICE);
            } else {
                unit.priority = Priority::Under;
                if unit.credit > CREDITS_PER_SLICE {
                    unit.is_active = false;
                    unit.credit /= 2;
                }
            }
            if (unit.queued_as, unit.priority) != (Priority::Boost, Priority::Under) {
                unit.queued_as = unit.priority;
            }
            balance += unit.credit;
            if unit.is_active {
                if is_full && has_spare { first.insert(0, active) } else { others.push(active) }
            }
            has_spare |= !is_full;
        }
        first.append(&mut others);
        self.active = first;
        self.balance = balance;
        // csched_runq_sort
        let is_over = |&unit: &usize| self.units[unit].queued_as == Priority::Over;
        self.queue.sort_by_key(is_over);
        self.master = if self.active.is_empty() { NEVER } else { now + SLICE };
    }
}

fn up(a: i64, b: i64) -> i64 {
    (a + b - 1) / b
}

/// Weights, and releases as time, unit and cost.
fn workload() -> impl Strategy<Value = (Vec<u32>, Vec<(u64, usize, u64)>)> {
    let weight = prop::sample::select(vec![256u32, 128, 512, 77, 2000]);
    let cost = prop_oneof![3 => 10_000u64..5 * MS, 1 => 5 * MS..200 * MS];
    let release = (0u64..2000 * MS, 0usize..6, cost);
    (prop::collection::vec(weight, 2..7), prop::collection::vec(release, 1..120)).prop_map(
        |(weights, mut releases)| {
            // Two events at one instant have no order: ticks come at even times, all others at odd ones.
            for (at, unit, cost) in &mut releases {
                (*at, *unit, *cost) = (*at | 1, *unit % weights.len(), *cost & !1);
            }
            releases.sort_unstable();
            releases.dedup_by_key(|release| release.0);
            (weights, releases)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn credit_without_options_finishes_each_job_when_xen_s_code_does((weights, releases) in workload()) {
        let end = 4000 * MS;
        let mut xen = Scheduler::new(&weights);
        xen.run(&releases, end);
        let mut driver = Driver::named("credit", 1, &Options::new());
        let params = |&weight: &u32| UnitParams { weight: Some(weight), ..UnitParams::default() };
        let units: Vec<_> = weights.iter().map(|weight| driver.insert(&params(weight))).collect();
        for &(at, unit, cost) in &releases {
            driver.release(units[unit], Instant::ZERO + Duration::from_ns(at), Duration::from_ns(cost));
        }
        driver.run_until(Instant::ZERO + Duration::from_ns(end));
        for (unit, reference) in units.iter().zip(&xen.units) {
            let finished: Vec<u64> =
                driver.completions_of(*unit).iter().map(|at| at.since(Instant::ZERO).as_ns()).collect();
            prop_assert_eq!(&finished, &reference.completions);
        }
    }
}
