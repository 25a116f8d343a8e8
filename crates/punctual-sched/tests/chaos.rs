//! Every policy of the registry under random events: the reference driver's invariants hold throughout
//! (contract, affinity, one processor per unit, budgets, charged time, work conservation).

use proptest::prelude::*;
use punctual_sched::UnitParams;
use punctual_sched::registry::{self, Options, PolicyInfo};
use punctual_testkit::driver::{Driver, Span, at_us};
use punctual_testkit::events::{self, Event, affinity, half_ms, options};

const CPUS_MAX: usize = 4;
/// More than any sequence below has.
const INSTANTS_MAX: usize = 100_000;

/// Parameters that every policy accepts or refuses with an error; coarse times make coincidences likely.
fn params() -> impl Strategy<Value = UnitParams> {
    let times = (1u64..20, 0u64..40, prop::option::of(1u64..30));
    let numbers = (0u32..4, prop::option::of(1u32..1000), prop::option::of(0u32..120));
    let rest = (any::<Option<bool>>(), prop::option::of(1u32..1 << CPUS_MAX), prop::option::of(0u32..3));
    (times, numbers, rest).prop_map(|(times, numbers, rest)| UnitParams {
        best_effort: false,
        budget: Some(half_ms(times.0)),
        period: Some(half_ms(times.0 + times.1)),
        deadline: times.2.map(half_ms),
        priority: Some(numbers.0),
        weight: numbers.1,
        cap_percent: numbers.2,
        extratime: rest.0,
        affinity: rest.1.map(affinity),
        vm: rest.2,
        shares_budget: false,
    })
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
        1 => any::<usize>().prop_map(Event::Cancel),
        1 => (any::<usize>(), half_ms_or_finer(20)).prop_map(|(unit, in_us)| Event::Deadline { unit, in_us }),
        1 => any::<usize>().prop_map(Event::Pick),
        1 => Just(Event::Settle),
        1 => half_ms_or_finer(2).prop_map(|us| Event::Late { us }),
        3 => half_ms_or_finer(20).prop_map(|us| Event::Pass { us }),
    ];
    prop::collection::vec(event, 1..100)
}

fn play(info: &PolicyInfo, cpus: usize, choice: &[u64], events: &[Event]) -> Option<Vec<Span>> {
    events::play(info, cpus, &options(info, choice), events, INSTANTS_MAX)
}

/// The same, while units of one VM take turns.
fn play_in_turns(info: &PolicyInfo, cpus: usize, choice: &[u64], events: &[Event]) -> Option<Vec<Span>> {
    events::play_in_turns(info, cpus, &options(info, choice), events, INSTANTS_MAX)
}

/// The same, while vCPUs of one VM share a budget, and so the processors that they may run on; some do not.
fn play_in_vm_servers(info: &PolicyInfo, cpus: usize, choice: &[u64], events: &[Event]) -> Option<Vec<Span>> {
    let share = |params: &UnitParams| {
        let shares_budget = params.weight.is_none_or(|weight| weight % 4 > 0);
        let affinity = params.affinity.clone().filter(|_| params.vm.is_none() || !shares_budget);
        UnitParams { shares_budget, affinity, ..params.clone() }
    };
    let share = |event: &Event| match event {
        Event::Insert(params) => Event::Insert(share(params)),
        Event::Adjust(unit, params) => Event::Adjust(*unit, share(params)),
        other => other.clone(),
    };
    let events: Vec<Event> = events.iter().map(share).collect();
    events::play_in_vm_servers(info, cpus, &options(info, choice), &events, INSTANTS_MAX)
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
    fn every_policy_keeps_them_while_vcpus_take_turns(
        cpus in 1..=CPUS_MAX,
        choice in prop::collection::vec(any::<u64>(), 16),
        events in events(),
    ) {
        for info in registry::policies() {
            let outcome = std::panic::catch_unwind(|| play_in_turns(info, cpus, &choice, &events));
            prop_assert!(outcome.is_ok(), "{}: see the panic above", info.name);
        }
    }

    #[test]
    fn every_policy_keeps_them_while_vcpus_share_budgets(
        cpus in 1..=CPUS_MAX,
        choice in prop::collection::vec(any::<u64>(), 16),
        events in events(),
    ) {
        for info in registry::policies() {
            let outcome = std::panic::catch_unwind(|| play_in_vm_servers(info, cpus, &choice, &events));
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
