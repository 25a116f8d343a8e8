//! What the registry says about each policy is what the policy does.

use punctual_sched::registry::{
    self, Budgets, OptionValue, Options, ParamDefault, ParamInfo, ParamKind, Placement, PolicyInfo,
    SchedulabilityTest,
};
use punctual_sched::{CpuId, Duration, Instant, ParamError, UnitParams, credit, rtds};
use punctual_testkit::driver::{Driver, at_ms, server_ms};

fn build(info: &PolicyInfo, cpus: usize) -> Box<dyn punctual_sched::Policy> {
    info.build(cpus, &Options::new()).expect("defaults are valid")
}

/// Parameters of a unit with this budget in every 100 ms, without best effort.
fn reserved(budget: Duration) -> UnitParams {
    UnitParams { budget: Some(budget), extratime: Some(false), ..server_ms(1, 100, 1) }
}

fn is_of_its_kind(param: &ParamInfo, value: OptionValue) -> bool {
    match (param.kind, value) {
        (ParamKind::Duration | ParamKind::DurationOr(_), OptionValue::Duration(_))
        | (ParamKind::Flag, OptionValue::Flag(_)) => true,
        (ParamKind::DurationOr(words) | ParamKind::Choice(words), OptionValue::Word(word)) => {
            words.contains(&word)
        }
        (ParamKind::Count { min, max }, OptionValue::Count(count)) => (min..=max).contains(&count),
        _ => false,
    }
}

#[test]
fn every_default_is_a_value_of_its_parameter() {
    for info in registry::policies() {
        for param in info.unit_params.iter().chain(info.options) {
            if let Some(value) = param.default_value() {
                assert!(is_of_its_kind(param, value), "{} {}: {value}", info.name, param.name);
            }
        }
        for option in info.options {
            assert!(option.default.is_some(), "{} {} has no default", info.name, option.name);
        }
    }
}

#[test]
fn an_option_given_as_its_default_changes_nothing() {
    for info in registry::policies() {
        for option in info.options {
            // A default in words depends on other options; the policy's own tests hold it.
            let Some(default) = option.default_value() else { continue };
            let given = Options::new().with(option.name, default);
            assert_eq!(given.value(option), Options::new().value(option), "{} {}", info.name, option.name);
        }
    }
}

#[test]
fn defaults_are_shown_as_the_host_file_has_them() {
    let shown = |default: Option<ParamDefault>| default.map(|default| default.to_string());
    let of_rtds = |name| rtds::INFO.unit_param(name).and_then(|param| shown(param.default));
    assert_eq!(of_rtds(UnitParams::BUDGET).as_deref(), Some("4ms"));
    assert_eq!(of_rtds(UnitParams::PERIOD).as_deref(), Some("10ms"));
    assert_eq!(of_rtds(UnitParams::EXTRATIME).as_deref(), Some("true"));
    assert_eq!(shown(credit::RULES.default).as_deref(), Some("xen"));
    assert_eq!(shown(credit::SLICE.default).as_deref(), Some("30ms"));
    assert_eq!(ParamDefault::Words("no limit").to_string(), "no limit");
}

/// A unit that is given nothing gets from the policy what the registry says.
#[test]
fn units_without_parameters_get_the_defaults() {
    let nothing = UnitParams::default();
    for info in registry::policies() {
        let mut policy = build(info, 1);
        match policy.insert(Instant::ZERO, &nothing) {
            Ok(unit) => {
                let account = policy.account(unit);
                let kept = (info.budgets != Budgets::None).then_some(info.budget(&nothing)).flatten();
                assert_eq!(account.max, kept, "{}", info.name);
                assert_eq!(account.may_overrun && kept.is_some(), info.extratime(&nothing), "{}", info.name);
            }
            Err(ParamError::Missing { field }) => {
                assert_eq!(info.unit_param(field).map(|param| param.default), Some(None), "{}", info.name);
            }
            Err(error) => panic!("{}: {error}", info.name),
        }
    }
}

#[test]
fn the_smallest_budget_is_accepted_and_a_smaller_one_refused() {
    for info in registry::policies() {
        let Some(min) = info.budgets.min() else {
            assert!(!info.reads(UnitParams::BUDGET), "{} reads a budget and keeps none", info.name);
            continue;
        };
        let insert = |budget| build(info, 1).insert(Instant::ZERO, &reserved(budget));
        assert!(insert(min).is_ok(), "{} refuses {min}", info.name);
        let smaller = insert(min - Duration::from_ns(1));
        assert_eq!(smaller.expect_err(info.name).field(), UnitParams::BUDGET, "{}", info.name);
    }
}

#[test]
fn partitioned_policies_give_every_unit_a_home_and_global_ones_none() {
    for info in registry::policies() {
        let mut policy = build(info, 4);
        let homes: Vec<Option<CpuId>> = (0..4)
            .map(|_| {
                let unit = policy.insert(Instant::ZERO, &server_ms(4, 10, 1)).expect("valid");
                policy.account(unit).home
            })
            .collect();
        let partitioned = info.placement == Placement::Partitioned;
        assert!(homes.iter().all(|home| home.is_some() == partitioned), "{}: {homes:?}", info.name);
    }
}

#[test]
fn the_test_of_a_policy_fits_its_budgets_and_its_placement() {
    for info in registry::policies() {
        let budgets = match info.test {
            SchedulabilityTest::FixedPriorityServers(_) => {
                assert_eq!(info.placement, Placement::Partitioned, "{}", info.name);
                assert!(info.reads(UnitParams::PRIORITY), "{}", info.name);
                matches!(info.budgets, Budgets::Server { .. })
            }
            SchedulabilityTest::EdfServers => matches!(info.budgets, Budgets::Server { .. }),
            SchedulabilityTest::BandwidthServers => matches!(info.budgets, Budgets::Bandwidth { .. }),
            SchedulabilityTest::FixedPriority | SchedulabilityTest::Edf | SchedulabilityTest::None(_) => {
                info.budgets == Budgets::None
            }
        };
        assert!(budgets, "{}: {:?} with {:?}", info.name, info.test, info.budgets);
    }
}

#[test]
fn a_budget_idles_away_where_the_registry_says_so() {
    for info in registry::policies().iter().filter(|info| info.budgets != Budgets::None) {
        let mut driver = Driver::named(info.name, 1, &Options::new());
        let unit = driver.insert(&UnitParams { extratime: Some(false), ..server_ms(2, 10, 1) });
        // Half of its budget at the start of a period, and nothing to do for 5 ms.
        driver.release(unit, at_ms(10), Duration::from_ms(1));
        driver.release(unit, at_ms(16), Duration::from_ms(1));
        driver.run_until(at_ms(30));
        let is_kept = driver.completions_of(unit)[1] == at_ms(17);
        assert_eq!(is_kept, !info.budget_idles_away(), "{}: {:?}", info.name, driver.completions_of(unit));
    }
}

#[test]
fn names_are_unique_and_found() {
    for info in registry::policies() {
        assert_eq!(registry::find(info.name).map(|found| found.summary), Some(info.summary));
        let same = registry::policies().iter().filter(|other| other.name == info.name);
        assert_eq!(same.count(), 1, "{}", info.name);
    }
}

/// Four units that wake, run and sleep for 100 ms on two processors.
fn busy(info: &PolicyInfo) -> Driver {
    let mut driver = Driver::named(info.name, 2, &Options::new());
    for n in 1..=4 {
        let unit = driver.insert(&UnitParams { deadline: Some(Duration::from_ms(n)), ..server_ms(n, 10, 1) });
        (0..10).for_each(|k| driver.release(unit, at_ms(10 * k + n), Duration::from_ms(2 * n)));
    }
    driver
}

fn announces(driver: &Driver) -> bool {
    !driver.policy.next_timer().at.is_never() || driver.slices().any(|slice| !slice.until.is_never())
}

#[test]
fn policies_with_timers_announce_some_and_others_none() {
    for info in registry::policies() {
        let mut driver = busy(info);
        let announced = (0..100).filter(|ms| {
            driver.run_until(at_ms(*ms));
            announces(&driver)
        });
        assert_eq!(announced.count() > 0, info.has_timers, "{}", info.name);
    }
}
