//! Units of very many threads: what a look costs, what a neighbour gets beside them, and that all of them
//! come back.

mod common;

use std::process::{Child, Command, Stdio};
use std::time::{Duration as StdDuration, Instant};

use common::faults::{Victims, signal, wait};
use common::live::{Bench, needs, undisturbed};
use punctual_linux::os::sched::{Attributes, affinity, attributes};
use punctual_linux::os::{cgroup, proc};
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
    let members = punctual_enforce::unit::UnitThreads::ProcessTree(process);
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

impl Outcome {
    /// Why the cost is too high, if it is.
    fn excess(&self) -> Option<String> {
        let Outcome { enforcer_ppm, neighbour_ppm, .. } = self;
        (*enforcer_ppm >= 150_000)
            .then(|| format!("the enforcer took {enforcer_ppm} ppm"))
            .or_else(|| (*neighbour_ppm <= 420_000).then(|| format!("the neighbour got {neighbour_ppm} ppm")))
    }
}

fn measure(policy: &str, threads: usize, spins: bool, length: StdDuration) -> Outcome {
    let mut bench = Bench::start(policy, &[]);
    start_crowd(&mut bench, threads, spins);
    bench.spin("neighbour", &server(5_000, 10_000));
    // Threads that are taken in settle first.
    bench.keep_alive(StdDuration::from_millis(500));
    let (looks_before, cost_before) = bench.session.enforcers(0)[0];
    let before: Vec<u64> = used(&bench);
    let start = Instant::now();
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
    let used = |handle: &punctual_enforce::session::UnitHandle| {
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
                undisturbed(|| {
                    let excess = measure_and_print(policy, threads, spins, length_ms);
                    let is_judged = variable("PUNCTUAL_THREADS_ONLY_MEASURE").is_none();
                    judge!(!is_judged || excess.is_none(), "{policy}: {}", excess.unwrap_or_default());
                    Ok(())
                });
            }
        }
    }
}

/// Measures and prints; says what cost too much, if something did.
fn measure_and_print(policy: &str, threads: usize, spins: bool, length_ms: u64) -> Option<String> {
    let outcome = measure(policy, threads, spins, StdDuration::from_millis(length_ms));
    let Outcome { enforcer_ppm, look_ns, neighbour_ppm, crowd_ppm } = outcome;
    println!(
        "{policy:10} {threads:5} threads, {} spins: a look took {look_ns} ns, the enforcer {enforcer_ppm} \
         ppm; the neighbour got {neighbour_ppm} ppm, they {crowd_ppm} ppm",
        u8::from(spins)
    );
    outcome.excess()
}

/// A process of very many threads, ended with this. One of them spins.
struct Crowd(Child);

impl Crowd {
    /// `None`, with a message, where this machine does not let a process have so many.
    fn start(threads: usize) -> Option<Crowd> {
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command.args(["--exact", "program_with_threads", "--ignored"]).env(THREADS, threads.to_string());
        command.env(SPINS, "").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut crowd = Crowd(command.spawn().expect("a process"));
        let end = Instant::now() + StdDuration::from_secs(10);
        while Instant::now() < end && crowd.0.try_wait().expect("a child").is_none() {
            if crowd.threads().len() == threads {
                return Some(crowd);
            }
            std::thread::sleep(StdDuration::from_millis(20));
        }
        let line = format!("skipped: a process cannot have {threads} threads here (ulimit -u, pids.max)");
        assert!(std::env::var_os("PUNCTUAL_NO_SKIP").is_none(), "{line}");
        eprintln!("{line}");
        None
    }

    fn threads(&self) -> Vec<i32> {
        proc::threads(self.0.id() as i32).unwrap_or_default()
    }

    /// How each thread is scheduled, where, and in which group.
    fn state(&self) -> Vec<(i32, Attributes, Vec<usize>, String)> {
        let state = |tid: i32| {
            let group = cgroup::group_of(tid).expect("it lives");
            (tid, attributes(tid).expect("it lives"), affinity(tid).expect("it lives"), group)
        };
        self.threads().into_iter().map(state).collect()
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        // Both fail only for a process that has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Processor time of a thread in ns.
fn cpu_time_ns(tid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{tid}/schedstat")).expect("it lives");
    proc::parse_schedstat(&text).expect("a number").ran.as_ns()
}

#[test]
fn a_process_of_thousands_of_threads_is_attached_to_and_the_first_ctrl_c_puts_all_of_them_back() {
    let Some(_turn) = needs() else { return };
    let Some(mut crowd) = Crowd::start(6_001) else { return };
    let victims = Victims::bystanders("thousands");
    let before = (victims.state(), crowd.state());
    // It also started all others.
    let spinning = crowd.threads().into_iter().max_by_key(|tid| cpu_time_ns(*tid)).expect("threads");
    let host = victims.directory().join("thousands.toml");
    let text = format!(
        "name = \"thousands\"\n[machine]\nprocessors = 2\n[pool.guests]\nprocessors = [1]\n\
         policy = \"deferrable\"\n[domain.crowd]\nbudget = \"2ms\"\nperiod = \"10ms\"\npriority = 1\n\
         attach = {{ threads = [{spinning}] }}\n"
    );
    std::fs::write(&host, text).expect("a host file");
    let start = Instant::now();
    let mut attach = victims.punctual(&["attach", &host.display().to_string()]);
    let run = attach.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let run = run.spawn().expect("it starts");
    let is_enforced = || attributes(spinning).is_ok_and(|now| now.policy == Attributes::fifo(1).policy);
    wait("the thread that spins is under enforcement", is_enforced);
    let taken = start.elapsed();
    // Every other thread is a helper, on the processors of the host.
    let helper = crowd.threads().into_iter().rfind(|tid| *tid != spinning).expect("threads");
    wait("its helpers are placed", || !affinity(helper).expect("it lives").contains(&1));
    let (since, used_ns) = (Instant::now(), cpu_time_ns(spinning));
    std::thread::sleep(StdDuration::from_secs(1));
    let ppm = (cpu_time_ns(spinning) - used_ns) * 1_000_000 / since.elapsed().as_nanos() as u64;
    let interrupted = Instant::now();
    signal(run.id(), "INT");
    let output = run.wait_with_output().expect("it ends");
    let ended = interrupted.elapsed();
    println!("taken in {taken:.1?}, {ppm} ppm of 200,000, ended {ended:.1?} after Ctrl-C");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!((50_000..300_000).contains(&ppm), "the thread that spins got {ppm} ppm of 200,000");
    assert!(ended < StdDuration::from_secs(2), "it ended {ended:?} after Ctrl-C");
    assert!(crowd.0.try_wait().expect("a child").is_none(), "the process was ended");
    assert!(crowd.state() == before.1, "threads are not as before");
    assert_eq!(victims.state(), before.0);
}
