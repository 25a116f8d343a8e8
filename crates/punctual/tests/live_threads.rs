//! Units of very many threads: what a look costs, and what a neighbour gets beside them.

mod common;

use std::time::Duration as StdDuration;

use common::live::{Bench, needs};
use punctual_live::os::proc;
use punctual_sched::{Duration, UnitParams};

/// Threads that the program is to have: set for the copy of this test that is the unit.
const THREADS: &str = "PUNCTUAL_TEST_THREADS";
/// Does its first thread spin, rather than sleep?
const SPINS: &str = "PUNCTUAL_TEST_SPINS";

/// No test: the program of a unit. The tests below start this executable again to run it.
#[test]
#[ignore = "the program of the other tests"]
fn program_with_threads() {
    let Some(threads) = std::env::var(THREADS).ok().and_then(|threads| threads.parse::<usize>().ok()) else {
        return;
    };
    // The harness has one thread beside the one of this test.
    for _ in 2..threads {
        let sleeper = std::thread::Builder::new().stack_size(16 << 10);
        let sleep = || {
            loop {
                std::thread::park();
            }
        };
        sleeper.spawn(sleep).expect("a thread");
    }
    while std::env::var_os(SPINS).is_none() {
        std::thread::park();
    }
    loop {
        std::hint::spin_loop();
    }
}

fn server(budget_us: u64, period_us: u64) -> UnitParams {
    UnitParams {
        budget: Some(Duration::from_us(budget_us)),
        period: Some(Duration::from_us(period_us)),
        priority: Some(1),
        extratime: Some(false),
        ..UnitParams::default()
    }
}

/// Starts a unit of that many threads and waits until they are there.
fn start_crowd(bench: &mut Bench, threads: usize, spins: bool) {
    let program = std::env::current_exe().expect("this test").display().to_string();
    let command = [program.as_str(), "--exact", "program_with_threads", "--ignored", "--nocapture"];
    let mut environment = vec![(THREADS.to_owned(), threads.to_string())];
    environment.extend(spins.then(|| (SPINS.to_owned(), String::new())));
    let command: Vec<String> = command.map(String::from).into();
    let process = bench.session.launch("crowd", &command, &environment, None).expect("a program");
    let is_complete = || proc::threads(process.id).is_ok_and(|all| all.len() >= threads.max(2));
    for _ in 0..500 {
        if is_complete() {
            break;
        }
        bench.keep_alive(StdDuration::from_millis(20));
    }
    assert!(is_complete(), "{threads} threads were not there in 10 s");
    let members = punctual_live::unit::UnitThreads::ProcessTree(process);
    let params = server(2_000, 10_000);
    bench.handles.push(bench.session.add_unit(0, "crowd", "crowd", members, &params).expect("a unit"));
}

/// What enforcement cost beside a unit of many threads, and what its neighbour got.
#[derive(Debug)]
struct Outcome {
    /// Processor time of the enforcer, in millionths of the processor.
    enforcer_ppm: u64,
    /// The same for each look, in ns.
    look_ns: u64,
    /// What the neighbour got, in millionths of the processor; 500,000 are its budget.
    neighbour_ppm: u64,
    /// What the unit of many threads got; 200,000 are its budget.
    crowd_ppm: u64,
}

fn measure(policy: &str, threads: usize, spins: bool, length: StdDuration) -> Outcome {
    let mut bench = Bench::start(policy, &[]);
    start_crowd(&mut bench, threads, spins);
    bench.spin("neighbour", &server(5_000, 10_000));
    // Threads that are taken in settle first.
    bench.keep_alive(StdDuration::from_millis(500));
    let (looks_before, cost_before) = bench.session.enforcers(0)[0];
    let before: Vec<u64> = used(&bench);
    let start = std::time::Instant::now();
    bench.keep_alive(length);
    let elapsed_ns = start.elapsed().as_nanos() as u64;
    let (looks, cost) = bench.session.enforcers(0)[0];
    let got: Vec<u64> = used(&bench).iter().zip(&before).map(|(after, before)| after - before).collect();
    let ppm = |ns: u64| (u128::from(ns) * 1_000_000 / u128::from(elapsed_ns)) as u64;
    let outcome = Outcome {
        enforcer_ppm: ppm(cost - cost_before),
        look_ns: (cost - cost_before) / (looks - looks_before).max(1),
        neighbour_ppm: ppm(got[1]),
        crowd_ppm: ppm(got[0]),
    };
    let report = bench.session.finish().expect("an end");
    assert_eq!(report.restored.failures, Vec::<String>::new());
    outcome
}

fn used(bench: &Bench) -> Vec<u64> {
    let used = |handle: &punctual_live::session::UnitHandle| {
        handle.counters.cpu_time_ns.load(std::sync::atomic::Ordering::Relaxed)
    };
    bench.handles.iter().map(used).collect()
}

/// `PUNCTUAL_THREADS=1,100,10000` measures more sizes, `PUNCTUAL_THREADS_MS` longer.
#[test]
fn a_look_costs_no_more_for_a_unit_of_thousands_of_threads() {
    let Some(_turn) = needs() else { return };
    let variable = |name: &str| std::env::var(name).ok();
    let sizes = variable("PUNCTUAL_THREADS").unwrap_or_else(|| "4000".into());
    let length_ms = variable("PUNCTUAL_THREADS_MS").and_then(|ms| ms.parse().ok()).unwrap_or(1000);
    for threads in sizes.split(',').map(|threads| threads.parse::<usize>().expect("a number")) {
        for policy in ["rtds", "sporadic", "deferrable"] {
            for spins in [false, true] {
                let outcome = measure(policy, threads, spins, StdDuration::from_millis(length_ms));
                let Outcome { enforcer_ppm, look_ns, neighbour_ppm, crowd_ppm } = outcome;
                println!(
                    "{policy:10} {threads:5} threads, {} spins: a look took {look_ns} ns, the enforcer \
                     {enforcer_ppm} ppm; the neighbour got {neighbour_ppm} ppm, they {crowd_ppm} ppm",
                    u8::from(spins)
                );
                if variable("PUNCTUAL_THREADS_ONLY_MEASURE").is_some() {
                    continue;
                }
                assert!(enforcer_ppm < 150_000, "{policy}: the enforcer took {enforcer_ppm} ppm");
                assert!(
                    neighbour_ppm > 420_000,
                    "{policy}: the neighbour got {neighbour_ppm} ppm of 500,000"
                );
            }
        }
    }
}
