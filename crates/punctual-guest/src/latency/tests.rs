use super::*;

fn plan(processor: usize) -> Plan {
    Plan {
        processors: vec![processor],
        spin_ns: 300_000_000,
        burst_ns: 50_000_000,
        wakeup_ns: 200_000_000,
        interval_ns: 1_000_000,
        priority: 0,
    }
}

fn measure(plan: &Plan) -> Result<Report, Error> {
    let stop = AtomicBool::new(false);
    run(plan, &mut Hooks { stop: &stop, slow: &|_, _, _| {}, progress: &mut |_| {} })
}

#[test]
fn both_loops_measure_in_the_fair_class() {
    let last = *processors().expect("known").last().expect("one");
    // Three bursts of 50 ms, and gaps are in them. Where the processor was away at the begin of each, less is
    // left of them: then it is measured again.
    let is_watched = |report: &Report| report.measured[1].watched_ns >= 50_000_000;
    let mut reports = (0..5).map(|_| measure(&plan(last)).expect("anybody may be fair"));
    let report = reports.find(is_watched).expect("the processor had time in one of five");
    let kinds: Vec<Kind> = report.measured.iter().map(|one| one.kind).collect();
    assert_eq!(kinds, [Kind::Wakeup, Kind::Noise, Kind::Hardware]);
    let count = |kind: usize| report.measured[kind].slices.iter().map(|one| one.count).sum::<u64>();
    let wakeup = &report.measured[0];
    assert_eq!(count(0) + wakeup.skipped, 200, "one a millisecond, or it was skipped");
    assert!(!wakeup.worst.is_empty() && wakeup.worst.is_sorted_by_key(|slow| u64::MAX - slow.length_ns));
    let noise = &report.measured[1];
    assert!(noise.watched_ns < 1_000_000_000, "{}", noise.watched_ns);
    assert!(count(2) <= count(1), "the kernel's part is taken from gaps");
    assert!(!report.stopped);
}

#[test]
fn a_stop_ends_it_and_is_reported() {
    let stop = AtomicBool::new(false);
    let mut plan = plan(processors().expect("known")[0]);
    (plan.spin_ns, plan.wakeup_ns) = (60_000_000_000, 60_000_000_000);
    let mut progress = |_| stop.store(true, Ordering::Relaxed);
    let began_ns = os::now_ns();
    let mut hooks = Hooks { stop: &stop, slow: &|_, _, _| {}, progress: &mut progress };
    let report = run(&plan, &mut hooks).expect("what was measured is kept");
    assert!(report.stopped && report.measured.len() == 2, "only gaps");
    assert!(os::now_ns() - began_ns < 20_000_000_000);
}

#[test]
fn a_plan_that_cannot_be_measured_is_refused() {
    let wrong = [
        Plan { priority: 99, ..plan(0) },
        Plan { interval_ns: 0, ..plan(0) },
        Plan { burst_ns: BURST_MAX_NS + 1, ..plan(0) },
        Plan { spin_ns: u64::MAX, ..plan(0) },
    ];
    for plan in wrong {
        assert!(matches!(measure(&plan), Err(Error::Plan(_))), "{plan:?}");
    }
    assert!(matches!(measure(&plan(60_000)), Err(Error::Thread { processor: 60_000, .. })));
}

#[test]
fn a_report_survives_json() {
    let last = *processors().expect("known").last().expect("one");
    let report = measure(&Plan { spin_ns: 0, wakeup_ns: 20_000_000, ..plan(last) }).expect("measured");
    let text = serde_json::to_string(&report).expect("JSON");
    assert_eq!(serde_json::from_str::<Report>(&text).expect("the same"), report);
}

/// Set for the copy of this program that never sleeps.
const RUNAWAY: &str = "PUNCTUAL_TEST_RUNAWAY";

/// No test: a thread at SCHED_FIFO that never sleeps, for 3 s at most.
#[test]
#[ignore = "the program of the next test"]
fn a_runaway() {
    if std::env::var_os(RUNAWAY).is_none() {
        return;
    }
    os::set_affinity(1).expect("a processor");
    os::limit_real_time(Some(Duration::from_millis(200))).expect("a limit");
    if os::set_fifo(1).is_err() {
        std::process::exit(77);
    }
    let end_ns = os::now_ns() + 3_000_000_000;
    while os::now_ns() < end_ns {}
}

#[test]
fn the_kernel_ends_a_real_time_thread_that_never_sleeps() {
    use std::os::unix::process::ExitStatusExt;
    if !processors().expect("known").contains(&1) {
        return eprintln!("skipped: there is no processor 1");
    }
    let mut program = std::process::Command::new(std::env::current_exe().expect("this program"));
    program.args(["--ignored", "--exact", "latency::tests::a_runaway"]).env(RUNAWAY, "1");
    let status = program.output().expect("it starts").status;
    if status.code() == Some(77) {
        return eprintln!("skipped: real-time priorities are not permitted");
    }
    assert_eq!(status.signal(), Some(libc::SIGXCPU), "{status}");
}
