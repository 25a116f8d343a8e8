//! No policy of the registry allocates once its units are inserted.

use std::alloc::System;

use punctual_sched::registry::{self, Options};
use punctual_sched::{CpuId, CpuSet, Duration, Instant, Policy, UnitId, UnitParams};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const UNITS: usize = 100;
const CPUS: usize = 2;
const STEP: Duration = Duration::from_us(250);

/// A small fixed sequence of numbers (Marsaglia's xorshift64), so that the test itself allocates nothing.
struct Xorshift(u64);

impl Xorshift {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}

/// Without the test harness, whose other thread's allocations would be counted, too.
fn main() {
    no_decision_of_any_policy_allocates();
    println!("no decision of any policy allocates: ok");
}

/// Inserts [`UNITS`] units with various budgets, periods and priorities.
fn insert_units(policy: &mut dyn Policy) -> Vec<UnitId> {
    (0..UNITS as u64)
        .map(|i| {
            let params = UnitParams {
                budget: Some(Duration::from_ms(1 + i % 3)),
                period: Some(Duration::from_ms(20 + i % 7)),
                priority: Some((i % 10) as u32),
                ..UnitParams::default()
            };
            policy.insert(Instant::ZERO, &params).expect("valid")
        })
        .collect()
}

fn no_decision_of_any_policy_allocates() {
    for info in registry::policies() {
        let mut policy = (info.build)(CPUS, &Options::new()).expect("defaults are accepted");
        let mut resched = CpuSet::all(CPUS);
        let units = insert_units(policy.as_mut());
        let mut ranking = Vec::with_capacity(UNITS);
        let mut running = [None; CPUS];
        let mut inserted = [true; UNITS];
        let mut random = Xorshift(42);

        let region = Region::new(ALLOCATOR);
        let mut now = Instant::ZERO;
        for step in 0..20_000 {
            now += STEP;
            for (cpu, unit) in running.iter().enumerate() {
                if let Some(unit) = *unit {
                    policy.charge(now, CpuId(cpu as u32), unit, STEP);
                }
            }
            while policy.next_timer().at <= now {
                policy.on_timer(now, &mut resched);
            }
            let index = random.below(UNITS);
            let unit = units[index];
            match (inserted[index], random.below(4)) {
                (false, _) => {}
                (true, 0) => policy.sleep(now, unit, &mut resched),
                (true, 1) if step % 500 == 0 => {
                    policy.remove(now, unit, &mut resched);
                    inserted[index] = false;
                }
                (true, _) => {
                    policy.set_deadline(now, unit, now + Duration::from_ms(10), &mut resched);
                    policy.wake(now, unit, &mut resched);
                }
            }
            // Every processor picks at every step; of those that a pick asks for, the rest pick with the
            // next.
            for (cpu, unit) in running.iter_mut().enumerate() {
                *unit = policy.pick(now, CpuId(cpu as u32), &mut resched).run.charged();
            }
            policy.ranking(CpuId(0), &mut ranking);
        }
        let change = region.change();
        assert_eq!(
            (change.allocations, change.reallocations),
            (0, 0),
            "{} allocates or reallocates: {change:?}",
            info.name
        );
    }
}
