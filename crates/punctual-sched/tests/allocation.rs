//! No policy of the registry allocates once its units are inserted.

use std::alloc::System;

use punctual_sched::contract::{Charges, checked, in_turns, in_vm_servers};
use punctual_sched::registry::{self, Options};
use punctual_sched::{CpuId, Driver, Duration, UnitId, UnitParams};
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

/// Without the test harness, whose other thread allocates as well.
fn main() {
    no_decision_of_any_policy_allocates();
    println!("no decision of any policy allocates: ok");
}

/// What stands around a policy.
#[derive(Clone, Copy, PartialEq)]
enum Around {
    Nothing,
    Turns,
    VmServers,
}

/// Inserts [`UNITS`] units with various budgets, periods and priorities.
fn insert_units(driver: &mut Driver, around: Around) -> Vec<UnitId> {
    (0..UNITS as u64)
        .map(|i| {
            let params = UnitParams {
                budget: Some(Duration::from_ms(1 + i % 3)),
                period: Some(Duration::from_ms(20 + i % 7)),
                priority: Some((i % 10) as u32),
                vm: Some((i % 30) as u32),
                shares_budget: around == Around::VmServers && i % 30 < 20,
                ..UnitParams::default()
            };
            driver.insert(&params).expect("valid")
        })
        .collect()
}

fn no_decision_of_any_policy_allocates() {
    let all = [Around::Nothing, Around::Turns, Around::VmServers];
    for (info, around) in registry::policies().iter().flat_map(|info| all.map(|around| (info, around))) {
        let policy = (info.construct)(CPUS, &Options::new()).expect("defaults are accepted");
        let policy = checked(policy, CPUS, Charges::Elapsed);
        let policy = match around {
            Around::Nothing => policy,
            Around::Turns => in_turns(policy, CPUS, Charges::Elapsed),
            Around::VmServers => in_vm_servers(policy, CPUS, Charges::Elapsed),
        };
        let mut driver = Driver::new(policy, CPUS);
        let units = insert_units(&mut driver, around);
        let mut ranking = Vec::with_capacity(UNITS);
        let mut inserted = [true; UNITS];
        let mut random = Xorshift(42);

        let region = Region::new(ALLOCATOR);
        for step in 0..20_000 {
            let now = driver.now() + STEP;
            driver.pass(now);
            (0..CPUS as u32).for_each(|cpu| driver.charge(CpuId(cpu)));
            while driver.on_timer() {}
            let index = random.below(UNITS);
            let unit = units[index];
            match (inserted[index], random.below(4)) {
                (false, _) => {}
                (true, 0) => driver.sleep(unit),
                (true, 1) if step % 500 == 0 => {
                    driver.remove(unit);
                    inserted[index] = false;
                }
                (true, _) => {
                    driver.set_deadline(unit, now + Duration::from_ms(10));
                    driver.wake(unit);
                }
            }
            // Every processor picks at every step; of those that a pick asks for, the rest pick with the
            // next.
            for cpu in 0..CPUS as u32 {
                driver.pick(CpuId(cpu));
            }
            driver.policy.ranking(CpuId(0), &mut ranking);
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
