//! The papers' experiments in their quick form: what comes out for every task set that was tried.

use punctual_reproduce::claims::Verdict;
use punctual_reproduce::{Options, Reproduction, nautilus, render, rt_stack, rt_xen};

fn quick(only: &[&str]) -> Options {
    Options {
        quick: true,
        native: false,
        only: only.iter().map(|o| o.to_string()).collect(),
        ..Options::default()
    }
}

fn silent(_: &str, _: usize, _: usize) {}

/// Least and greatest over all measures of a pattern and all task sets.
fn spread(reproduction: &Reproduction, pattern: &str) -> (f64, f64) {
    let values = reproduction.measures.matching(pattern);
    let values = values.unwrap_or_else(|| panic!("{pattern} was not measured")).concat();
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &v| (low.min(v), high.max(v)))
}

#[test]
fn servers_isolate_the_other_domains_from_an_overloaded_one() {
    let r = rt_xen(&quick(&["table2"]), &silent).unwrap();
    let servers = "(deferrable|periodic|polling|sporadic|sedf)";
    assert_eq!(spread(&r, &format!("table2.normal.{servers}.d(1|2|3|4|5)")), (0.0, 0.0));
    let overloaded = format!("table2.(overloaded-even|overloaded|overloaded-period).{servers}.d(1|2|4|5)");
    assert_eq!(spread(&r, &overloaded), (0.0, 0.0));
    // Its share is 20 %.
    assert!(spread(&r, "table2.overloaded-even.d3_load_percent").0 > 20.0);
    assert!(spread(&r, &format!("table2.overloaded-even.{servers}.d3")).0 > 0.0);
}

#[test]
fn finer_quanta_lose_more_and_each_quantum_has_its_switch() {
    let r = rt_xen(&quick(&["fig5"]), &silent).unwrap();
    for overhead in ["median", "p99"] {
        let loss = |quantum: &str| spread(&r, &format!("fig5.{overhead}.{quantum}.loss_percent")).0;
        assert!(loss("1ms") < loss("100us") && loss("100us") < loss("10us"));
        let (low, high) = spread(&r, &format!("fig5.{overhead}.(1ms|100us|10us).switches_per_quantum"));
        assert!(low > 0.95 && high < 1.05, "{low} to {high}");
    }
    // What 4.057 us of 20 us and 1.619 us of 20 us leave of 50 %.
    assert_eq!(spread(&r, "fig5.p99.10us.first_miss_percent"), (30.0, 30.0));
    assert_eq!(spread(&r, "fig5.median.10us.first_miss_percent"), (42.0, 42.0));
}

#[test]
fn sporadic_servers_switch_most_and_polling_servers_least() {
    let r = rt_xen(&quick(&["table1"]), &silent).unwrap();
    let switches = |policy: &str| spread(&r, &format!("table1.{policy}.switches"));
    assert!(switches("sporadic").0 > switches("(deferrable|periodic|polling)").1);
    assert!(switches("polling").1 < switches("(deferrable|periodic|sporadic)").0);
}

#[test]
fn what_check_guarantees_the_response_times_alone_guarantee_as_well() {
    let r = rt_xen(&quick(&["table4"]), &silent).unwrap();
    let mut held = 0.0;
    for load in (30..=100).step_by(10) {
        for case in ["decreasing", "even", "increasing"] {
            for policy in ["deferrable", "periodic"] {
                let holds = |question: &str| {
                    r.measures.get(&format!("table4.{case}.{policy}.{question}.holds.{load}")).unwrap()
                };
                assert!(holds("servers").iter().zip(holds("tasks")).all(|(a, b)| a <= b), "{case} {load}");
                held += holds("tasks").iter().sum::<f64>();
            }
        }
    }
    assert!(held > 0.0);
}

#[test]
fn nautilus_gives_its_recorded_verdicts_on_any_number_of_threads() {
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| nautilus(&quick(&[]), &silent).unwrap())
    };
    let (alone, together) = (run(1), run(3));
    assert_eq!(render::text(&alone), render::text(&together));
    let unexpected: Vec<_> = alone.unexpected().map(|c| &c.id).collect();
    assert!(unexpected.is_empty(), "{unexpected:?}");
    assert!(alone.claims.iter().all(|c| c.verdict != Verdict::NotRun));
}

#[test]
fn the_undisturbed_host_stack_is_calibrated_and_its_segments_add_up() {
    let r = rt_stack(&quick(&["table6-3"]), &silent).unwrap();
    let printed = [("host", 12.3), ("vanilla", 27.3), ("threaded", 30.7), ("exclusive", 37.4)];
    for (method, thesis) in printed.into_iter().chain([("outsourcing", 21.2)]) {
        let mean = spread(&r, &format!("table6-3.{method}.mean_us")).0;
        assert!((mean - thesis).abs() < 0.5, "{method}: {mean} us");
        let segments = format!("table6-3.{method}.(card|host_receive|guest|host_send).mean_us");
        let sum: f64 = r.measures.matching(&segments).unwrap().concat().iter().sum();
        assert!((sum - mean).abs() < 0.01, "{method}: {sum} of {mean} us");
    }
}

#[test]
fn partitioned_softirqs_and_outsourcing_help_beside_heavy_receivers() {
    let r = rt_stack(&quick(&["table6-4", "table6-6"]), &silent).unwrap();
    let of = |name: &str| spread(&r, name).0;
    assert!(of("table6-4.outsourcing.p99_us") < of("table6-4.exclusive.p99_us"));
    assert!(of("table6-4.exclusive.p99_us") < of("table6-4.threaded.p99_us"));
    assert!(of("table6-6.partitioned.p99_us") < of("table6-6.threaded.p99_us"));
    assert!(of("fig6-4.outsourcing.gbit_s") > of("fig6-4.threaded.gbit_s"));
    assert!(of("fig6-4.outsourcing.busy_percent") < of("fig6-4.threaded.busy_percent"));
}

#[test]
fn an_unknown_experiment_is_refused_with_the_known_ones() {
    let error = rt_xen(&quick(&["fig7"]), &silent).unwrap_err().to_string();
    assert!(
        error.contains("fig7") && error.contains("fig5, table1, table2, table4, fig6, readings"),
        "{error}"
    );
}

#[test]
fn every_table_and_figure_becomes_a_file() {
    let r = rt_xen(&quick(&["fig5"]), &silent).unwrap();
    let names: Vec<String> = render::files(&r).unwrap().into_iter().map(|(name, _)| name).collect();
    assert_eq!(
        names,
        [
            "reproduction.txt",
            "reproduction.json",
            "fig5.csv",
            "fig5-curves.csv",
            "fig5-curves.svg",
            "index.html"
        ]
    );
}
