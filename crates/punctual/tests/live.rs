//! Policies enforced on real threads of this machine. Units that spin are confined to processor 1.

mod common;

use std::time::Duration as StdDuration;

use common::live::{Bench, Moves, PROCESSOR, is_translated, needs, undisturbed};
use common::scopes::Desk;
use punctual_enforce::driver::Evidence;
use punctual_enforce::enforcer::Entry;
use punctual_enforce::notice::Notice;
use punctual_enforce::session::{LinuxScheduler, PoolScheduler};
use punctual_enforce::unit::{HIGHEST, UnitThreads};
use punctual_linux::os::proc::{kernel_threads, name};
use punctual_linux::os::sched::{affinity, attributes};
use punctual_model::results::Results;
use punctual_run::status::{Snapshot, Standing, VcpuStatus};
use punctual_sched::registry::OptionValue;
use punctual_sched::{Duration, UnitParams};

fn server(budget_us: u64, period_us: u64, priority: u32) -> UnitParams {
    UnitParams {
        budget: Some(Duration::from_us(budget_us)),
        period: Some(Duration::from_us(period_us)),
        priority: Some(priority),
        extratime: Some(false),
        ..UnitParams::default()
    }
}

const SECOND: StdDuration = StdDuration::from_secs(1);

#[test]
fn a_budget_holds_though_the_processor_is_idle_otherwise() {
    let Some(_turn) = needs() else { return };
    undisturbed(|| {
        for policy in ["deferrable", "periodic", "polling", "sporadic", "rtds", "sedf"] {
            let mut bench = Bench::start(policy, &[]);
            bench.spin("a", &server(2_000, 10_000, 1));
            let (shares, report) = bench.run(SECOND);
            println!("{policy}: {} ppm of the processor", shares[0]);
            // Late looks are paid back, so more is never possible; less is, on a machine that is busy with
            // other things.
            assert_eq!(report.restored.failures, Vec::<String>::new());
            judge!((100_000..=212_000).contains(&shares[0]), "{policy}: {} ppm of the processor", shares[0]);
        }
        Ok(())
    });
}

#[test]
fn a_hog_takes_nothing_from_a_less_urgent_budget() {
    let Some(_turn) = needs() else { return };
    undisturbed(|| {
        for policy in ["deferrable", "periodic", "sporadic", "rtds", "sedf"] {
            let mut bench = Bench::start(policy, &[]);
            bench.spin("urgent", &server(3_000, 10_000, 1));
            bench.spin("patient", &server(10_000, 20_000, 2));
            let (shares, _) = bench.run(SECOND);
            judge!(shares[0] < 320_000, "{policy}: the hog got {} ppm", shares[0]);
            judge!(shares[1] > 350_000, "{policy}: its neighbour got {} ppm of 500,000", shares[1]);
        }
        Ok(())
    });
}

/// A look at the end of every slice must leave the units time for the next: in a slow build a look takes
/// longer than the rest of a slice.
#[test]
fn credit_with_short_slices_shares_the_processor() {
    let Some(_turn) = needs() else { return };
    undisturbed(|| {
        let short = |ms| OptionValue::Duration(Duration::from_ms(ms));
        let mut bench = Bench::start("credit", &[("slice", short(1)), ("tick", short(10))]);
        let equal = UnitParams { weight: Some(256), ..UnitParams::default() };
        bench.spin("one", &equal);
        bench.spin("other", &equal);
        let (shares, report) = bench.run(SECOND);
        assert_eq!(report.restored.failures, Vec::<String>::new());
        judge!(shares.iter().all(|share| *share > 200_000), "equal weights got {shares:?} ppm");
        Ok(())
    });
}

#[test]
fn a_bomb_of_threads_stays_within_one_budget() {
    let Some(_turn) = needs() else { return };
    undisturbed(|| {
        let mut bench = Bench::start("deferrable", &[]);
        let bomb = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do (while :; do :; done) & done; wait";
        bench.program("bomb", ["sh", "-c", bomb].map(String::from).to_vec(), &server(2_000, 10_000, 1));
        bench.spin("neighbour", &server(10_000, 20_000, 2));
        let (shares, report) = bench.run(SECOND);
        assert_eq!(report.restored.failures, Vec::<String>::new());
        judge!(shares[0] < 212_000, "thirteen processes got {} ppm of 200,000", shares[0]);
        judge!(shares[1] > 350_000, "their neighbour got {} ppm of 500,000", shares[1]);
        Ok(())
    });
}

#[test]
fn without_budgets_the_hog_takes_all() {
    let Some(_turn) = needs() else { return };
    undisturbed(|| {
        let mut bench = Bench::of(&PoolScheduler::Linux(LinuxScheduler::Fifo));
        bench.spin("urgent", &server(3_000, 10_000, 1));
        bench.spin("patient", &server(10_000, 20_000, 2));
        let (shares, _) = bench.run(SECOND);
        judge!(shares[0] > 600_000 && shares[1] < 200_000, "plain SCHED_FIFO gave {shares:?} ppm");
        Ok(())
    });
}

#[test]
fn a_unit_that_ends_leaves_the_others_alone() {
    let Some(_turn) = needs() else { return };
    undisturbed(|| {
        let mut bench = Bench::start("deferrable", &[]);
        let brief = ["sh", "-c", "sleep 0.5"].map(String::from).to_vec();
        bench.program("brief", brief, &server(2_000, 10_000, 1));
        bench.spin("stays", &server(5_000, 10_000, 2));
        bench.keep_alive_until_gone(1);
        assert!(
            matches!(&bench.notices[..], [Notice::Gone { unit }] if unit == "brief"),
            "{:?}",
            bench.notices
        );
        let (shares, report) = bench.run(SECOND);
        assert_eq!(report.units.len(), 1);
        judge!(shares[1] > 350_000, "the other got {} ppm of 500,000", shares[1]);
        Ok(())
    });
}

/// A unit that sleeps loses its budget under polling. It must get the next one, though others came meanwhile
/// and it was parked by priority.
#[test]
fn a_unit_that_slept_while_another_came_gets_its_budgets_again() {
    let Some(_turn) = needs() else { return };
    undisturbed(|| {
        let mut bench = Bench::start("polling", &[]);
        let late = ["sh", "-c", "sleep 0.4; while :; do :; done"].map(String::from).to_vec();
        bench.program("late", late, &server(2_000, 10_000, 1));
        bench.keep_alive(StdDuration::from_millis(100));
        bench.spin("newcomer", &server(3_000, 10_000, 2));
        bench.keep_alive(StdDuration::from_millis(400));
        let (shares, _) = bench.run(SECOND);
        judge!(shares[0] > 100_000 && shares[1] > 150_000, "they got {shares:?} ppm of 200,000 and 300,000");
        Ok(())
    });
}

/// Programs end between any two steps of a look: read, but not set; set, but not frozen.
#[test]
fn units_that_vanish_at_any_moment_are_gone_and_nobody_else_is_touched() {
    let Some(_turn) = needs() else { return };
    undisturbed(|| {
        let mut bench = Bench::start("sporadic", &[]);
        bench.spin("stays", &server(5_000, 10_000, 2));
        let mut came = 0_usize;
        // As long as elsewhere where the processor is translated.
        let slower = if is_translated() { 20 } else { 1 };
        for round in 0..60 {
            let steps = (1000 + 997 * (round % 13)) / slower;
            let brief = format!("i=0; while [ $i -lt {steps} ]; do i=$((i+1)); done");
            let name = format!("brief{round}");
            let command = ["sh".into(), "-c".into(), brief];
            let launched = bench.session.launch(&name, &command, &[], None);
            let members = UnitThreads::ProcessTree(launched.expect("a program"));
            // It may be gone by now, which is the caller's to see.
            came +=
                usize::from(bench.session.add_unit(0, &name, &name, members, &server(500, 2_000, 1)).is_ok());
            bench.keep_alive(StdDuration::from_millis(20));
            bench.session.reap();
        }
        bench.keep_alive_until_gone(came);
        assert_eq!(bench.gone(), came, "of those that came: {:?}", bench.notices);
        assert!(came > 30, "{came} of 60 lived long enough to be a unit");
        let (shares, report) = bench.run(SECOND);
        assert_eq!(report.restored.failures, Vec::<String>::new());
        judge!(shares[0] > 350_000, "the one that stays got {} ppm of 500,000", shares[0]);
        Ok(())
    });
}

/// However long it takes to make units of the threads.
#[test]
fn servers_that_are_scheduled_together_begin_their_periods_together() {
    let Some(_turn) = needs() else { return };
    undisturbed(|| {
        let mut bench = Bench::start("periodic", &[]);
        let mut adopted = Vec::new();
        for (name, priority) in [("a", 1), ("b", 2)] {
            let command = ["sh", "-c", "while :; do :; done"].map(String::from);
            let process = bench.session.launch(name, &command, &[], None).expect("a program");
            let (members, params) = (UnitThreads::ProcessTree(process), server(2_000, 40_000, priority));
            adopted.push(bench.session.adopt_unit(0, name, name, members, &params).expect("a unit"));
            std::thread::sleep(StdDuration::from_millis(13));
        }
        let (handles, begun) = bench.session.schedule(adopted).expect("scheduled");
        bench.handles.extend(handles);
        let (_, report) = bench.run(SECOND);
        let observed = report.pools[0].observations.as_ref().expect("a policy");
        let mut at = 0;
        let (mut replenished, mut had) = ([const { Vec::new() }; 2], [true; 2]);
        for entry in observed.observations.history.entries() {
            match entry {
                Entry::Look { at_ns, .. } => at = at_ns,
                Entry::Order { unit, has_budget, .. } => {
                    let unit = unit as usize;
                    if has_budget && !std::mem::replace(&mut had[unit], has_budget) {
                        replenished[unit].push((at - begun.as_ns()) % 40_000_000);
                    }
                    had[unit] = has_budget;
                }
                _ => {}
            }
        }
        for (unit, mut phases) in replenished.into_iter().enumerate() {
            phases.sort_unstable();
            assert!(phases.len() > 10, "unit {unit} was replenished {} times", phases.len());
            let phase = phases[phases.len() / 2];
            judge!(phase < 1_000_000, "unit {unit} is replenished {phase} ns after its period began");
        }
        Ok(())
    });
}

#[test]
fn new_parameters_count_while_it_runs() {
    let Some(_turn) = needs() else { return };
    undisturbed(|| {
        let mut bench = Bench::start("deferrable", &[]);
        bench.spin("a", &server(1_000, 10_000, 1));
        let handle = bench.handles[0].clone();
        bench.keep_alive(StdDuration::from_millis(200));
        bench.session.adjust_unit(&handle, &server(5_000, 10_000, 1));
        let (shares, _) = bench.run(SECOND);
        judge!(shares[0] > 350_000, "{} ppm of the 500,000 that it was given", shares[0]);
        Ok(())
    });
}

/// A fork holds a lock. A program that moves a process waits for that lock and holds the cgroup lock
/// meanwhile. The enforcer waits for the cgroup lock to park the hog that keeps the fork from the processor.
/// It takes some luck to meet all this at once; the report says when that happened.
#[test]
fn a_fork_that_is_preempted_beside_moves_by_others_does_not_hang_enforcement() {
    let Some(_turn) = needs() else { return };
    undisturbed(|| {
        let mut bench = Bench::start("deferrable", &[]);
        bench.spin("hog", &server(5_000, 10_000, 1));
        let forks = "fork; fork; while (1) { my $p = fork; exit unless $p; waitpid $p, 0 }";
        bench.program("forks", ["perl", "-e", forks].map(String::from).to_vec(), &server(10_000, 20_000, 2));
        let moves = Moves::start();
        bench.keep_alive(3 * SECOND);
        let moved = moves.stop();
        let (shares, report) = bench.run(SECOND);
        println!("{moved} moves, {:?}", report.pools[0].differences);
        assert!(moved > 50, "{moved} moves in 3 s");
        assert_eq!(report.restored.failures, Vec::<String>::new());
        judge!((300_000..=600_000).contains(&shares[0]), "the hog got {} ppm afterwards", shares[0]);
        Ok(())
    });
}

#[test]
fn units_that_come_and_go_leak_nothing() {
    let Some(_turn) = needs() else { return };
    let seconds = std::env::var("PUNCTUAL_SOAK_S").ok().and_then(|s| s.parse().ok()).unwrap_or(5);
    let mut bench = Bench::start("deferrable", &[]);
    bench.spin("first", &server(1_000, 10_000, 1));
    bench.soak(StdDuration::from_secs(1), 1);
    let before = common::live::resources();
    let rounds = bench.soak(StdDuration::from_secs(seconds), 2);
    let after = common::live::resources();
    println!("{rounds} rounds in {seconds} s; descriptors, threads, KiB: {before:?} -> {after:?}");
    assert!(after.0 <= before.0, "{} descriptors became {} in {rounds} rounds", before.0, after.0);
    assert!(after.1 <= before.1, "{} threads became {} in {rounds} rounds", before.1, after.1);
    // The policy and the enforcer keep a slot per unit that ever was: small, and no more than that.
    assert!(after.2 < before.2 + 4096 + rounds * 2, "{} KiB grew to {} KiB", before.2, after.2);
    let (_, report) = bench.run(StdDuration::from_millis(100));
    let Evidence { overrun, replenishment_lateness: late, .. } = &report.pools[0].evidence;
    for (what, times) in [("overrun", overrun), ("replenished late", late)] {
        let [p50, p99, max] = [500_000, 990_000, 1_000_000].map(|ppm| times.quantile_ppm(ppm).as_ns() / 1000);
        println!("{what}: p50 {p50} us, p99 {p99} us, at most {max} us");
    }
    assert_eq!(report.restored.failures, Vec::<String>::new());
}

/// Moving threads between cgroups waits for RCU with the lock held that parking needs: where a unit spins
/// above RCU's threads, that takes as long as the fair server lets it, a second; under PREEMPT_RT, above its
/// threads of real-time priority 1, for as long as the unit likes.
#[test]
fn the_kernels_rcu_threads_stay_off_the_pool_or_above_its_units_for_the_time_of_a_run() {
    let Some(_turn) = needs() else { return };
    let of = |prefix: &str| kernel_threads(prefix).expect("readable");
    let threads = [of("rcu"), of("ktimers/1")].concat();
    let why = "skipped, no thread of RCU is to be seen: a container with processes of its own, say";
    if threads.is_empty() {
        assert!(std::env::var_os("PUNCTUAL_NO_SKIP").is_none(), "{why}");
        return eprintln!("{why}");
    }
    let state = |tid: &i32| (affinity(*tid).expect("there"), attributes(*tid).expect("there").priority);
    let states = || threads.iter().map(state).collect::<Vec<_>>();
    let before = states();
    let mut bench = Bench::start("deferrable", &[]);
    bench.spin("a", &server(1_000, 10_000, 1));
    let during = states();
    let (_, report) = bench.run(StdDuration::from_millis(100));
    assert_eq!(report.restored.failures, Vec::<String>::new());
    assert_eq!(states(), before);
    let mut raised = 0;
    for ((tid, before), during) in threads.iter().zip(&before).zip(&during) {
        let is_bound = before.0.len() == 1 || during.0 == before.0 && !before.0.contains(&PROCESSOR);
        assert!(is_bound || !during.0.contains(&PROCESSOR), "{before:?} became {during:?}");
        let name = name(*tid).expect("there");
        if ["rcuc/1", "ktimers/1"].contains(&name.as_str()) || name.starts_with("rcub/") {
            assert!(during.1 > HIGHEST, "{name} had priority {}", during.1);
            raised += 1;
        }
    }
    println!("{} threads, {raised} of them raised above the units", threads.len());
}

/// A control loop with a budget beside a domain without one that never rests.
const BEST_EFFORT: &str = "[domain.control]\nbudget = \"4ms\"\nperiod = \"10ms\"\npriority = 1\n\
                           task.loop = { period = \"20ms\", cost = \"4ms\" }\n\
                           [domain.office]\nbest_effort = true\ntask.busy = { hog = true }\n";

/// The last of the snapshots that `punctual top` shows of a run, and the run's results.
fn watched(desk: &Desk, host: &str) -> (Snapshot, Results) {
    let results = format!("{host}.json");
    let mut run = desk.start(&["run", host, "--as", "process", "--duration", "3s", "--output", &results]);
    let top = || desk.punctual(&["top", "--json"]).output().expect("top").stdout;
    let mut lines = Vec::new();
    while lines.is_empty() && run.process.try_wait().expect("a run").is_none() {
        lines = top();
        std::thread::sleep(StdDuration::from_millis(20));
    }
    assert_eq!(run.wait(), 0, "{}", run.said());
    let lines = String::from_utf8(lines).expect("text");
    let last = lines.lines().last().unwrap_or_else(|| panic!("top shows nothing: {}", run.said()));
    let results = std::fs::read_to_string(results).expect("results");
    (serde_json::from_str(last).expect("a snapshot"), serde_json::from_str(&results).expect("results"))
}

#[test]
fn a_domain_without_a_budget_gets_what_is_left_and_top_shows_what_the_others_were_delivered() {
    let Some(_turn) = needs() else { return };
    undisturbed(|| {
        let desk = Desk::make("best-effort");
        let (snapshot, results) = watched(&desk, &desk.host("best-effort", PROCESSOR, BEST_EFFORT));
        let vcpu = |name: &str| snapshot.vcpus.iter().find(|vcpu| vcpu.name == name).expect("a vCPU");
        let share = |vcpu: &VcpuStatus| vcpu.cpu_time_ns * 1000 / snapshot.elapsed_ns.max(1);
        let (control, office) = (vcpu("control.0"), vcpu("office.0"));
        assert_eq!((office.standing, office.left_ns, office.budget_ns), (Standing::Linux, None, None));
        assert_eq!(office.delivery, None);
        // Control needs a fifth.
        judge!(share(office) > 600, "best effort got {} per mille of the processor", share(office));
        judge!(share(control) > 180, "control got {} per mille of the processor", share(control));
        let delivery = control.delivery.expect("it is under enforcement");
        judge!(delivery.delivered * 100 >= delivery.periods * 95, "{delivery:?}");
        judge!(delivery.periods > 200, "{delivery:?} of a budget each 10 ms for 3 s");
        let jobs = &results.tasks[0].jobs;
        judge!(jobs.due > 100 && jobs.missed * 100 <= jobs.due, "control missed: {jobs:?}");
        Ok(())
    });
}

/// Two programs that never rest, one of which gets more, and then a pool of another policy.
const CHANGING: &str = "[domain.a]\nbudget = \"2ms\"\nperiod = \"10ms\"\npriority = 1\n\
                        task.busy = { hog = true }\n\
                        [domain.b]\nbudget = \"3ms\"\nperiod = \"10ms\"\npriority = 2\n\
                        task.busy = { hog = true }\n\
                        [event.more]\nat = \"1s\"\ndomain = \"a\"\nbudget = \"5ms\"\n\
                        [event.sporadic]\nat = \"2s\"\npool = \"guests\"\npolicy = \"sporadic\"\n";

#[test]
fn events_of_the_host_file_change_budgets_and_the_policy_of_a_run() {
    let Some(_turn) = needs() else { return };
    undisturbed(|| {
        let desk = Desk::make("events");
        let host = desk.host("events", PROCESSOR, CHANGING);
        let results = format!("{host}.json");
        let mut run =
            desk.start(&["run", &host, "--as", "process", "--duration", "3s", "--output", &results]);
        assert_eq!(run.wait(), 0, "{}", run.said());
        let results = std::fs::read_to_string(results).expect("results");
        let results: Results = serde_json::from_str(&results).expect("results");
        let changes: Vec<&str> = results.changes.iter().map(|change| change.change.as_str()).collect();
        assert_eq!(changes, ["a: budget 5ms", "pool guests: sporadic"]);
        let times: Vec<u64> = results.vcpus.iter().map(|vcpu| vcpu.cpu_time_ns / 1_000_000).collect();
        // 2 of 10 ms for one second, 5 of 10 ms for two; 3 of 10 ms throughout.
        judge!((1_080..=1_320).contains(&times[0]), "{times:?} ms");
        judge!((810..=990).contains(&times[1]), "{times:?} ms");
        for vcpu in &results.vcpus {
            let delivery = vcpu.delivery.as_ref().expect("it is under enforcement");
            judge!(delivery.delivered * 100 >= delivery.periods * 95, "{}: {delivery:?}", vcpu.name);
        }
        Ok(())
    });
}
