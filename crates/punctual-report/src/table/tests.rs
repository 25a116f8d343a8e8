//! Each view as a snapshot; every line fits the width, whatever the names.

use proptest::prelude::*;
use punctual_model::results::{
    Cause, ChainResult, Delivery, Disturbance, DisturbedInterval, DisturbedJobs, DropCounts, Enforcement,
    FORMAT, FlowResult, HostTimes, JobBlame, NetworkResult, PacketCounts, Segment, SegmentResult, Source,
    TaskBlame, UnitCounts, VERSION, add_time,
};

use punctual_sched::Duration;

use super::*;

const MS: u64 = 1_000_000;

/// Jobs of which the last `missed` of `due` are late; response times spread evenly up to `max_ns`.
fn jobs(due: u64, missed: u64, max_ns: u64) -> JobStats {
    let mut stats = JobStats { released: due + 1, completed: due, due, missed, ..JobStats::default() };
    for i in 1..=due {
        stats.response.record(Duration::from_ns(max_ns * i / due));
        stats.start_latency.record(Duration::from_ns(max_ns * i / due / 4));
        let late = i > due - missed;
        stats.tardiness.record(Duration::from_ns(if late { max_ns * i / due / 10 } else { 0 }));
    }
    stats
}

const DOMAINS: [&str; 3] = ["control", "video", "logging"];

/// Two tasks in each domain; `late` of the jobs of `video`'s second task miss.
fn tasks(late: u64) -> Vec<TaskResult> {
    let task = |d: usize, t: u64| {
        let missed = if d == 1 && t == 1 { late } else { (late / 50) * u64::from(d == 2) };
        TaskResult {
            name: format!("task{t}"),
            parent: DOMAINS[d].into(),
            deadline_ns: Some((12 + 30 * d as u64 * t) * MS),
            jobs: jobs(1000 + 500 * t, missed, (12 + 30 * d as u64 * t) * MS + 345_678),
            cpu_time_ns: 1_200 * MS * (t + 1),
            context_switches: Some(1_520 * (t + 1)),
            migrations: Some(37 * t),
            smp: None,
            blame: None,
            disturbed: None,
        }
    };
    (0..3).flat_map(|d| (0..2).map(move |t| task(d, t))).collect()
}

/// The same with a reason for each late job of `video`'s second task, and no blame of the other tasks.
pub(crate) fn with_blame(mut results: Results) -> Results {
    let job = |n: u64| {
        let mut causes = Vec::new();
        add_time(&mut causes, Cause::Executing, None, 7 * MS);
        add_time(&mut causes, Cause::PreemptedByUnit, Some("control.0"), n * MS);
        add_time(&mut causes, Cause::Standstill, None, n * MS / 3);
        let response_ns = causes.iter().map(|cause| cause.time_ns).sum();
        JobBlame { run: 0, job: n, release_ns: n * 20 * MS, response_ns, missed: n > 9, causes }
    };
    let task = results.tasks.iter_mut().find(|task| task.parent == "video" && task.name == "task1");
    task.expect("it is there").blame = Some(TaskBlame::of_jobs((1..=12).map(job).collect()));
    results
}

/// The same as if it was live, on a machine whose first processor was taken away now and then.
pub(crate) fn disturbed(results: Results) -> Results {
    let mut results = with_blame(results);
    results.source = Source::Live;
    let interval = |n: u64| DisturbedInterval {
        from_ns: n * 400 * MS,
        until_ns: n * 400 * MS + (n + 3) * MS,
        cause: if n % 4 == 3 { Cause::OtherThread } else { Cause::Standstill },
        by: (n % 4 == 3).then(|| "ksoftirqd/0".to_owned()),
    };
    for processor in &mut results.processors {
        let (others_ns, interrupts_ns, steal_ns) = (80 * MS, 10 * MS, 90 * MS);
        processor.host = Some(HostTimes { others_ns, interrupts_ns, steal_ns });
        let count = if processor.processor == 0 { 23 } else { 0 };
        processor.disturbance = Some(Disturbance::of((1..=count).map(interval).collect()));
    }
    for task in &mut results.tasks {
        let missed = task.jobs.missed;
        task.disturbed = Some(DisturbedJobs { due: 2 * missed, missed: missed - missed / 10 });
    }
    for (n, vcpu) in (0..).zip(&mut results.vcpus) {
        let wait = vcpu.wake_latency.clone();
        vcpu.delivery =
            Some(Delivery { periods: 1_000, delivered: 1_000 - n, longest_without_ns: (9 + n) * MS, wait });
    }
    let mut latency = Histogram::new();
    (1..200).for_each(|us| latency.record(Duration::from_us(us)));
    results.pools[0].enforcement = Some(Enforcement {
        looks: 9_876,
        enforcer_ns: 270 * MS,
        session_ns: 20_000 * MS,
        overrun: latency.clone(),
        replenishment_lateness: latency.clone(),
        look_lateness: latency,
        stolen_ns: 12 * MS,
        demotions: 0,
        graces: 0,
    });
    results.leave_out_unmeasured();
    results
}

/// The same as if it was live under plain Linux.
pub(crate) fn under_linux(mut results: Results) -> Results {
    results.source = Source::Live;
    results.pools.iter_mut().for_each(|pool| pool.policy = "linux-fifo".into());
    results.leave_out_unmeasured();
    results
}

fn domain(d: usize, tasks: &[TaskResult]) -> DomainResult {
    let mut jobs = JobStats::default();
    tasks.iter().filter(|task| task.parent == DOMAINS[d]).for_each(|task| jobs.merge(&task.jobs));
    DomainResult {
        name: DOMAINS[d].into(),
        jobs,
        cpu_time_ns: 3_600 * MS,
        network_ns: Some(0),
        decisions: Some(8_120),
        context_switches: Some(4_560),
        migrations: Some(37),
        exhaustions: Some(412 * d as u64),
        replenishments: Some(1_000),
        verdict: None,
    }
}

fn vcpu(d: usize, v: u64) -> VcpuResult {
    let mut wake_latency = Histogram::new();
    (1..500).for_each(|i| wake_latency.record(Duration::from_us(i * (v + 1))));
    VcpuResult {
        name: format!("{}.{v}", DOMAINS[d]),
        cpu_time_ns: 1_800 * MS,
        counts: Some(UnitCounts {
            idled_away_ns: 3 * MS * d as u64,
            wakes: 499,
            sleeps: 498,
            exhaustions: 206 * d as u64,
            replenishments: 500,
        }),
        context_switches: Some(2_280),
        migrations: Some(18 + v),
        wake_latency,
        delivery: None,
        put_back: 0,
        not_enforced: None,
    }
}

fn processor(processor: u64) -> ProcessorResult {
    ProcessorResult {
        processor: processor as usize,
        pool: Some("main".into()),
        busy_ns: 5_400 * MS,
        idle_ns: 4_580 * MS,
        overhead_ns: 20 * MS,
        decisions: Some(20_000 + processor),
        context_switches: Some(15_000),
        host: None,
        disturbance: None,
    }
}

/// Three domains of two vCPUs each on two processors; `late` of the jobs of `video`'s second task miss.
pub(crate) fn results(policy: &str, late: u64) -> Results {
    let tasks = tasks(late);
    let domains: Vec<DomainResult> = (0..3).map(|d| domain(d, &tasks)).collect();
    let mut jobs = JobStats::default();
    domains.iter().for_each(|domain| jobs.merge(&domain.jobs));
    let pool = PoolResult {
        name: "main".into(),
        policy: policy.into(),
        processors: 2,
        jobs,
        busy_ns: 10_800 * MS,
        idle_ns: 9_160 * MS,
        overhead_ns: 40 * MS,
        decisions: Some(40_001),
        context_switches: Some(30_000),
        migrations: Some(111),
        exhaustions: Some(1_236),
        replenishments: Some(3_000),
        enforcement: None,
    };
    Results {
        format: FORMAT.into(),
        version: VERSION,
        program: "0.1.0".into(),
        source: Source::Simulation,
        machine: None,
        label: None,
        host: "factory".into(),
        seed: 42,
        runs: 2,
        duration_ns: 5_000 * MS,
        events: 123_456,
        changes: vec![],
        pools: vec![pool],
        processors: (0..2).map(processor).collect(),
        domains,
        vcpus: (0..3).flat_map(|d| (0..2).map(move |v| vcpu(d, v))).collect(),
        tasks,
        networks: vec![],
        flows: vec![],
        chains: vec![],
        switches: vec![],
        sockets: vec![],
    }
}

/// The same with a network, a flow with losses, one without, and a chain that misses deadlines.
pub(crate) fn with_packets(mut results: Results) -> Results {
    let distribution = |count: u64, most_us: u64| {
        let mut histogram = Histogram::new();
        (1..=count).for_each(|i| histogram.record(Duration::from_us(most_us * i / count)));
        histogram
    };
    let segments = |parts: &[(Segment, u64)]| {
        let of = |&(segment, most_us)| SegmentResult { segment, time: distribution(200, most_us) };
        parts.iter().map(of).collect::<Vec<_>>()
    };
    let packets = |softnet: u64| PacketCounts {
        created: 210 + softnet,
        delivered: 200,
        dropped: DropCounts { softnet, ..DropCounts::default() },
        in_flight: 10,
        bytes: 51_200,
    };
    let flow = |name: &str, kind: &str, softnet, parts: &[(Segment, u64)]| FlowResult {
        name: name.into(),
        network: "lan".into(),
        kind: kind.into(),
        from: "control".into(),
        to: "video".into(),
        packets: packets(softnet),
        timeouts: softnet / 2,
        retransmissions: 0,
        deadline_ns: None,
        late: 0,
        congestion: None,
        latency: distribution(200, parts.iter().map(|part| part.1).sum()),
        segments: segments(parts),
        parts: Vec::new(),
    };
    let ways = [(Segment::GuestSend, 20), (Segment::DriverWait, 300), (Segment::Tx, 8), (Segment::Rx, 12)];
    results.networks = vec![NetworkResult {
        name: "lan".into(),
        driver: "control".into(),
        discipline: "netback".into(),
        tx: 410,
        softnet: 410,
        rx: 400,
        events_handled: 820,
        events_sent: 400,
    }];
    results.flows = vec![flow("telemetry", "periodic", 0, &ways), flow("flood", "storm", 50, &ways[1..])];
    results.chains = vec![ChainResult {
        name: "loop".into(),
        steps: vec!["control.task0".into(), "video.task1".into()],
        deadline_ns: Some(9 * MS),
        jobs: jobs(200, 3, 9 * MS),
        packets: packets(0),
        segments: segments(&ways[..2]),
    }];
    results
}

fn policies() -> Vec<Column> {
    [("deferrable", 0), ("periodic", 12), ("polling", 700), ("sporadic", 0), ("rtds", 1), ("credit", 1_400)]
        .map(|(policy, late)| Column { label: policy.to_owned(), results: results(policy, late) })
        .into()
}

#[test]
fn summary_of_a_run_with_misses() {
    insta::assert_snapshot!(summary(&results("deferrable", 240), false));
}

#[test]
fn summary_of_a_run_without_misses() {
    insta::assert_snapshot!(summary(&results("deferrable", 0), false));
}

#[test]
fn detail_shows_every_metric() {
    insta::assert_snapshot!(detail(&results("deferrable", 240), false));
}

#[test]
fn policies_side_by_side() {
    insta::assert_snapshot!(side_by_side(&policies(), false));
}

#[test]
fn a_matrix_has_a_title_and_tolerates_missing_cells() {
    let cells = vec![vec!["0".into(), "1.2 %".into()], vec!["<0.1 %".into()]];
    insta::assert_snapshot!(matrix(
        "Misses by load",
        &["30 %", "100 %"],
        &["even", "decreasing"],
        &cells,
        false
    ));
}

#[test]
fn colour_appears_only_on_request() {
    let views = |color| {
        let all = [
            summary(&results("rtds", 240), color),
            detail(&results("rtds", 240), color),
            side_by_side(&policies(), color),
            matrix("title", &["a"], &["b"], &[vec!["c".into()]], color),
        ];
        all.concat()
    };
    assert!(!views(false).contains('\u{1b}'));
    assert!(views(true).contains('\u{1b}'));
    assert_eq!(views(true).lines().count(), views(false).lines().count());
}

#[test]
fn empty_results_are_shown_without_a_table() {
    let mut empty = results("rtds", 0);
    empty.tasks.clear();
    empty.domains.clear();
    assert_eq!(summary(&empty, false), "factory under rtds (2 runs of 5.00 s, seed 42)\nNo job was due.\n");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn no_line_is_wider_than_the_width(
        name in "[a-zA-Z0-9 _-]{0,160}",
        late in 0u64..1500,
        runs in 1u32..1000,
    ) {
        let mut one = results(&name, late);
        one.runs = runs;
        one.domains[1].name.clone_from(&name);
        one.tasks[3].name.clone_from(&name);
        let column = |i| Column { label: format!("{i}{name}"), results: one.clone() };
        let columns: Vec<Column> = (0..12).map(column).collect();
        let views = [
            summary(&one, false),
            detail(&one, false),
            side_by_side(&columns, false),
            matrix(&name, &[&name], &[&name], &[vec![name.clone()]], false),
        ];
        for line in views.iter().flat_map(|view| view.lines()) {
            prop_assert!(line.chars().count() <= WIDTH, "{} columns: {line}", line.chars().count());
        }
    }
}

#[test]
fn a_disturbed_live_run_says_so_first_and_why_jobs_were_late() {
    let results = disturbed(results("deferrable", 240));
    let parts = [summary(&results, false), deliveries(&results, false), blame(&results, false)];
    insta::assert_snapshot!(parts.join("\n"));
    assert_eq!(blame(&self::results("rtds", 240), false), "");
}
