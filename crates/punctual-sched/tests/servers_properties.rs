//! Properties of the servers on random units with random work; the reference driver's invariants (budget,
//! work conservation, charged time) hold with each of them.

use proptest::prelude::*;
use punctual_sched::registry::{OptionValue, Options, WorkConservation};
use punctual_sched::servers::{Servers, Settings, Sporadic};
use punctual_sched::{Duration, Instant, Policy, Run, UnitId, UnitParams};
use punctual_testkit::driver::{Driver, Span, at_us};

const SERVERS: [&str; 4] = ["deferrable", "periodic", "polling", "sporadic"];
const END_MS: u64 = 150;

/// A unit and its jobs: (release, demand) in quarters of a millisecond.
#[derive(Clone, Debug)]
struct Load {
    budget: Duration,
    period: Duration,
    jobs: Vec<(u64, u64)>,
}

impl Load {
    fn params(&self, priority: u32) -> UnitParams {
        UnitParams {
            budget: Some(self.budget),
            period: Some(self.period),
            priority: Some(priority),
            ..UnitParams::default()
        }
    }
}

fn quarter_ms(n: u64) -> Duration {
    Duration::from_us(250 * n)
}

fn loads() -> impl Strategy<Value = Vec<Load>> {
    let jobs = prop::collection::vec((0..END_MS * 4, 1u64..40), 0..12);
    let load = (1u64..16, 0u64..40, jobs).prop_map(|(budget, slack, jobs)| Load {
        budget: quarter_ms(budget),
        period: quarter_ms(budget + slack),
        jobs,
    });
    prop::collection::vec(load, 1..6)
}

fn quantum() -> impl Strategy<Value = OptionValue> {
    prop_oneof![
        Just(OptionValue::Word("exact")),
        (1u64..9).prop_map(|n| OptionValue::Duration(quarter_ms(n)))
    ]
}

/// Inserts the loads in the order given, each with its index as its priority, and scripts their jobs.
fn start<P: Policy + ?Sized>(driver: &mut Driver<P>, loads: &[Load], order: &[usize]) -> Vec<UnitId> {
    let mut units = vec![UnitId(0); loads.len()];
    for &index in order {
        units[index] = driver.insert(&loads[index].params(index as u32));
    }
    for (load, &unit) in loads.iter().zip(&units) {
        for &(release, demand) in &load.jobs {
            driver.release(unit, Instant::ZERO + quarter_ms(release), quarter_ms(demand));
        }
    }
    units
}

fn run(name: &str, options: &Options, loads: &[Load], order: &[usize]) -> (Driver, Vec<UnitId>) {
    let mut driver = Driver::named(name, 1, options);
    let units = start(&mut driver, loads, order);
    driver.run_until(at_us(END_MS * 1000));
    (driver, units)
}

/// The schedule with units replaced by their priorities.
fn by_priority(driver: &Driver, units: &[UnitId]) -> Vec<Span> {
    let priority = |unit| UnitId(units.iter().position(|&other| other == unit).expect("inserted") as u32);
    let mut gantt = driver.gantt.clone();
    for span in &mut gantt {
        span.run = match span.run {
            Run::Unit(unit) => Run::Unit(priority(unit)),
            Run::IdleFor(unit) => Run::IdleFor(priority(unit)),
            Run::Idle => Run::Idle,
        };
    }
    gantt
}

fn sporadic(refills_max: usize, options: &Options) -> Driver<Servers<Sporadic>> {
    let settings = Settings::from_options(options).expect("valid");
    let policy = Servers::new(1, settings, Sporadic::new(refills_max));
    Driver::new(Box::new(policy), 1, WorkConservation::WithinBudget)
}

fn held(driver: &Driver<Servers<Sporadic>>, unit: UnitId) -> Duration {
    driver.policy.account(unit).left.expect("kept") + driver.policy.rule().pending(unit)
}

/// The most that `spans` of a unit cover in any window of length `period`. It is reached by a window that
/// starts with a span or ends with one.
fn busiest_window<P: Policy + ?Sized>(driver: &Driver<P>, unit: UnitId, period: Duration) -> Duration {
    let spans = driver.gantt.iter().filter(|span| span.run == Run::Unit(unit));
    let starts =
        spans.flat_map(|span| [span.from, Instant::from_ns(span.to.as_ns().saturating_sub(period.as_ns()))]);
    starts.map(|from| driver.executed(unit, from, from + period)).max().unwrap_or_default()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_period_supplies_more_than_the_budget(loads in loads(), quantum in quantum()) {
        let options = Options::new().with("quantum", quantum);
        let order: Vec<usize> = (0..loads.len()).collect();
        for name in ["deferrable", "periodic", "polling"] {
            let (driver, units) = run(name, &options, &loads, &order);
            for (load, &unit) in loads.iter().zip(&units) {
                let mut from = Instant::ZERO;
                while from < driver.now() {
                    let supplied = driver.supplied(unit, from, from + load.period);
                    prop_assert!(supplied <= load.budget, "{name} {unit:?} from {from}: {supplied}");
                    from += load.period;
                }
            }
        }
    }

    #[test]
    fn no_window_of_one_period_gets_more_than_a_sporadic_budget(
        loads in loads(),
        quantum in quantum(),
        refills_max in 1usize..8,
    ) {
        let mut driver = sporadic(refills_max, &Options::new().with("quantum", quantum));
        let order: Vec<usize> = (0..loads.len()).collect();
        let units = start(&mut driver, &loads, &order);
        driver.run_until(at_us(END_MS * 1000));
        for (load, &unit) in loads.iter().zip(&units) {
            let busiest = busiest_window(&driver, unit, load.period);
            prop_assert!(busiest <= load.budget, "{unit:?}: {busiest}");
        }
    }

    #[test]
    fn sporadic_budget_is_conserved_and_refills_stay_within_their_bound(
        loads in loads(),
        quantum in prop::option::of(1u64..9),
        refills_max in 1usize..8,
        adjustments in prop::collection::vec((any::<usize>(), 1u64..16, 0u64..40, 0u64..30), 0..20),
    ) {
        // With a quantum, consumption is rounded to it, the harder case.
        let options = match quantum {
            None => Options::new(),
            Some(n) => Options::new()
                .with("quantum", OptionValue::Duration(quarter_ms(n)))
                .with("accounting", OptionValue::Word("quantum")),
        };
        let mut driver = sporadic(refills_max, &options);
        let order: Vec<usize> = (0..loads.len()).collect();
        let units = start(&mut driver, &loads, &order);
        let mut budgets: Vec<Duration> = loads.iter().map(|load| load.budget).collect();
        let check = |driver: &Driver<Servers<Sporadic>>, budgets: &[Duration]| {
            for (&unit, &budget) in units.iter().zip(budgets) {
                prop_assert_eq!(held(driver, unit), budget, "{:?} at {}", unit, driver.now());
                let times: Vec<_> = driver.policy.rule().refills(unit).map(|(at, _)| at).collect();
                prop_assert!(times.len() <= refills_max && times.is_sorted(), "{:?}", times);
            }
            Ok(())
        };
        for (unit, budget, slack, steps) in adjustments {
            for _ in 0..steps {
                driver.run_until(driver.now() + Duration::from_us(130));
                check(&driver, &budgets)?;
            }
            let unit = unit % units.len();
            let load = Load { budget: quarter_ms(budget), period: quarter_ms(budget + slack), jobs: vec![] };
            driver.adjust(units[unit], &load.params(unit as u32)).expect("valid");
            budgets[unit] = load.budget;
            check(&driver, &budgets)?;
        }
        while driver.now() < at_us(END_MS * 1000) {
            driver.run_until(driver.now() + Duration::from_us(130));
            check(&driver, &budgets)?;
        }
    }

    #[test]
    fn with_distinct_priorities_the_order_of_insertion_does_not_matter(
        (loads, order) in loads().prop_flat_map(|loads| {
            let order: Vec<usize> = (0..loads.len()).collect();
            (Just(loads), Just(order).prop_shuffle())
        }),
        quantum in quantum(),
    ) {
        let options = Options::new().with("quantum", quantum);
        let sorted: Vec<usize> = (0..loads.len()).collect();
        for name in SERVERS {
            let (one, one_units) = run(name, &options, &loads, &sorted);
            let (two, two_units) = run(name, &options, &loads, &order);
            prop_assert_eq!(by_priority(&one, &one_units), by_priority(&two, &two_units), "{}", name);
        }
    }

    #[test]
    fn under_exact_accounting_the_quantum_does_not_change_the_schedule(loads in loads(), quantum in 1u64..9) {
        let order: Vec<usize> = (0..loads.len()).collect();
        let exact = Options::new().with("quantum", OptionValue::Word("exact"));
        let quantum = Options::new().with("quantum", OptionValue::Duration(quarter_ms(quantum)));
        let idle = quantum.clone().with("idle", OptionValue::Word("quantum"));
        for name in SERVERS {
            let (one, _) = run(name, &exact, &loads, &order);
            for options in [&quantum, &idle] {
                let (two, _) = run(name, options, &loads, &order);
                prop_assert_eq!(&one.gantt, &two.gantt, "{}", name);
            }
        }
    }

    #[test]
    fn a_server_alone_supplies_all_its_budget_as_long_as_it_has_work(
        budget in 1u64..16,
        slack in 0u64..40,
        quantum in quantum(),
    ) {
        let (budget, period) = (quarter_ms(budget), quarter_ms(budget + slack));
        let load = Load { budget, period, jobs: vec![(0, END_MS * 40)] };
        let options = Options::new().with("quantum", quantum);
        for name in SERVERS {
            let (driver, units) = run(name, &options, std::slice::from_ref(&load), &[0]);
            let periods = driver.now().since(Instant::ZERO).div_floor(load.period);
            let end = Instant::ZERO + load.period * periods;
            prop_assert_eq!(driver.executed(units[0], Instant::ZERO, end), load.budget * periods, "{}", name);
        }
    }
}
