//! Every policy of the registry under random events: the reference driver's invariants hold throughout
//! (contract, affinity, one processor per unit, budgets, charged time, work conservation).

mod common;

use common::{Driver, Span, at_us};
use proptest::prelude::*;
use punctual_sched::registry::{self, OptionValue, Options, ParamKind, PolicyInfo};
use punctual_sched::{CpuId, CpuSet, Duration, UnitParams};

/// What happens to the pool; unit numbers are taken modulo the units that exist.
#[derive(Clone, Debug)]
enum Event {
    Insert(UnitParams),
    Remove(usize),
    Adjust(usize, UnitParams),
    Work { unit: usize, in_us: u64, demand_us: u64, due_us: Option<u64> },
    Pass { us: u64 },
}

const CPUS_MAX: usize = 4;

/// Parameters that every policy accepts or refuses with an error; coarse times make coincidences likely.
fn params() -> impl Strategy<Value = UnitParams> {
    let times = (1u64..20, 0u64..40, prop::option::of(1u64..30));
    let numbers = (0u32..4, prop::option::of(1u32..1000), prop::option::of(0u32..120));
    let rest = (any::<Option<bool>>(), prop::option::of(1u32..1 << CPUS_MAX));
    (times, numbers, rest).prop_map(|(times, numbers, rest)| UnitParams {
        budget: Some(half_ms(times.0)),
        period: Some(half_ms(times.0 + times.1)),
        deadline: times.2.map(half_ms),
        priority: Some(numbers.0),
        weight: numbers.1,
        cap_percent: numbers.2,
        extratime: rest.0,
        affinity: rest.1.map(|bits| {
            let mut set = CpuSet::new(CPUS_MAX);
            let cpus = (0..CPUS_MAX as u32).filter(|cpu| bits >> cpu & 1 == 1);
            cpus.for_each(|cpu| set.insert(CpuId(cpu)));
            set
        }),
    })
}

fn half_ms(n: u64) -> Duration {
    Duration::from_us(500 * n)
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let half_ms_or_finer = |max: u64| prop_oneof![3 => (0..max).prop_map(|n| 500 * n), 1 => 0..500 * max];
    let demand = prop_oneof![3 => 1u64..8, 1 => 8u64..80].prop_map(|n| 250 * n);
    let work = (any::<usize>(), half_ms_or_finer(6), demand, prop::option::of(1u64..80)).prop_map(
        |(unit, in_us, demand_us, due_us)| Event::Work {
            unit,
            in_us,
            demand_us,
            due_us: due_us.map(|due| 250 * due),
        },
    );
    let event = prop_oneof![
        3 => params().prop_map(Event::Insert),
        1 => any::<usize>().prop_map(Event::Remove),
        2 => (any::<usize>(), params()).prop_map(|(unit, params)| Event::Adjust(unit, params)),
        9 => work,
        3 => half_ms_or_finer(20).prop_map(|us| Event::Pass { us }),
    ];
    prop::collection::vec(event, 1..100)
}

/// A value for each option of the policy, or its default where `choice` says so.
fn options(info: &PolicyInfo, choice: &[u64]) -> Options {
    let mut options = Options::new();
    for (option, &choice) in info.options.iter().zip(choice) {
        let pick = choice / 2;
        let value = match option.kind {
            _ if choice % 2 == 0 => continue,
            ParamKind::Duration => OptionValue::Duration(half_ms(1 + pick % 60)),
            ParamKind::DurationOr(words) => match words.get(pick as usize % (words.len() + 1)) {
                Some(word) => OptionValue::Word(word),
                None => OptionValue::Duration(half_ms(1 + pick % 60)),
            },
            ParamKind::Count { min, max } => OptionValue::Count(min + pick % (max - min + 1).min(1000)),
            ParamKind::Flag => OptionValue::Flag(pick % 2 == 0),
            ParamKind::Choice(words) => OptionValue::Word(words[pick as usize % words.len()]),
        };
        options.set(option.name, value);
    }
    options
}

/// Plays the events against a policy, then another 200 ms; `None` when it refuses the options.
fn play(info: &PolicyInfo, cpus: usize, choice: &[u64], events: &[Event]) -> Option<Vec<Span>> {
    let policy = (info.build)(cpus, &options(info, choice)).ok()?;
    let mut driver = Driver::new(policy, cpus, info.work_conservation);
    for event in events {
        let units = driver.units();
        let nth = |n: usize| units.get(n % units.len().max(1)).copied();
        match event {
            // A refusal is a valid answer here: the affinity may lie outside the pool.
            Event::Insert(params) => drop(driver.try_insert(params)),
            Event::Remove(n) => nth(*n).into_iter().for_each(|unit| driver.remove(unit)),
            Event::Adjust(n, params) => drop(nth(*n).map(|unit| driver.adjust(unit, params))),
            Event::Work { unit, in_us, demand_us, due_us } => {
                let Some(unit) = nth(*unit) else { continue };
                let release = driver.now() + Duration::from_us(*in_us);
                let demand = Duration::from_us(*demand_us);
                match due_us {
                    Some(due) => driver.release_due(unit, release, demand, release + Duration::from_us(*due)),
                    None => driver.release(unit, release, demand),
                }
            }
            Event::Pass { us } => driver.run_until(driver.now() + Duration::from_us(*us)),
        }
    }
    driver.run_until(driver.now() + Duration::from_ms(200));
    Some(driver.gantt)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn every_policy_keeps_the_invariants_whatever_happens(
        cpus in 1..=CPUS_MAX,
        choice in prop::collection::vec(any::<u64>(), 16),
        events in events(),
    ) {
        for info in registry::policies() {
            let outcome = std::panic::catch_unwind(|| play(info, cpus, &choice, &events));
            prop_assert!(outcome.is_ok(), "{}: see the panic above", info.name);
        }
    }

    #[test]
    fn every_policy_decides_the_same_twice(
        cpus in 1..=CPUS_MAX,
        events in events(),
    ) {
        for info in registry::policies() {
            prop_assert_eq!(play(info, cpus, &[], &events), play(info, cpus, &[], &events));
        }
    }
}

#[test]
fn a_pool_without_work_stays_quiet() {
    for info in registry::policies() {
        let mut driver = Driver::named(info.name, 2, &Options::new());
        driver.run_until(at_us(1));
        assert!(driver.policy.next_timer().at.is_never(), "{} wakes an empty pool", info.name);
    }
}
