//! The machine itself: time, events, levels, overheads, determinism.

use punctual_model::host::{Arrival, Cost, Overheads, Parent, Task, Work};
use punctual_model::index::PoolIx;
use punctual_model::trace::{Occupant, TraceEvent};
use punctual_model::{AnyHost, Host, Results};
use punctual_sched::{Duration, Instant, UnitParams};
use punctual_sim::{simulate, simulate_all, simulate_traced};
use punctual_testkit::hosts::*;

fn run(host: &Host) -> Results {
    simulate(host).unwrap_or_else(|e| panic!("{e}"))
}

fn max_response_ns(results: &Results, task: usize) -> u64 {
    results.tasks[task].jobs.response.max().as_ns()
}

/// Two servers on one processor, tasks inside.
fn two_vms() -> Host {
    let mut host = pooled(1, ms(1000), exact("deferrable"));
    let a = vm(&mut host, server(ms(2), ms(10), 1));
    let b = vm(&mut host, server(ms(5), ms(10), 2));
    task(&mut host, a, 1, ms(1), ms(20));
    task(&mut host, b, 1, ms(4), ms(20));
    task(&mut host, b, 2, ms(2), ms(40));
    host
}

#[test]
fn a_job_gets_the_time_that_its_server_has_and_waits_for_the_rest() {
    let results = run(&two_vms());
    assert_eq!(max_response_ns(&results, 0), 1_000_000);
    // After the other domain's 1 ms.
    assert_eq!(max_response_ns(&results, 1), 5_000_000);
    // 1 ms of budget left at 5 ms, the other after the replenishment at 10 ms.
    assert_eq!(max_response_ns(&results, 2), 11_000_000);
    assert_eq!(results.tasks.iter().map(|t| t.jobs.missed).sum::<u64>(), 0);
    assert_eq!(results.tasks.iter().map(|t| t.jobs.completed).collect::<Vec<_>>(), [50, 50, 25]);
}

#[test]
fn busy_idle_and_overhead_add_up_and_tasks_get_what_they_cost() {
    let mut host = two_vms();
    host.overheads = Overheads { decision: us(3), context_switch: us(20), ..Overheads::default() };
    let results = run(&host);
    let p = &results.processors[0];
    assert_eq!(p.busy_ns + p.idle_ns + p.overhead_ns, 1_000_000_000);
    assert_eq!(p.overhead_ns, p.decisions.unwrap() * 3_000 + p.context_switches.unwrap() * 20_000);
    for (task, cost_ms) in [(0, 50), (1, 200), (2, 50)] {
        assert_eq!(results.tasks[task].cpu_time_ns, cost_ms * 1_000_000, "task {task}");
    }
    assert_eq!(p.busy_ns, 300_000_000);
}

#[test]
fn the_cost_of_a_switch_comes_out_of_the_budget_of_the_unit_switched_to() {
    let mut host = pooled(1, ms(100), exact("deferrable"));
    host.overheads.context_switch = us(100);
    let vm = vm(&mut host, server(ms(2), ms(10), 1));
    hog(&mut host, vm, 1);
    let results = run(&host);
    // Each period: one switch in, one out; 2 ms charged, 1.9 ms executed.
    assert_eq!(results.vcpus[0].cpu_time_ns, 20_000_000);
    assert_eq!(results.tasks[0].cpu_time_ns, 19_000_000);
    assert_eq!(results.processors[0].overhead_ns, 20 * 100_000);
}

#[test]
fn a_wake_up_during_a_context_switch_is_served_after_it() {
    let mut host = pooled(1, ms(10), exact("deferrable"));
    host.overheads.context_switch = us(100);
    let urgent = vm(&mut host, server(ms(5), ms(10), 1));
    let other = vm(&mut host, server(ms(5), ms(10), 2));
    released_at(&mut host, urgent, 1, ms(1), ms(10), us(50));
    released_at(&mut host, other, 1, ms(1), ms(10), Duration::ZERO);
    let results = run(&host);
    // The switch to the other ends at 100 us, the one to the urgent unit at 200 us; released at 50 us.
    assert_eq!(max_response_ns(&results, 0), 1_150_000);
    assert_eq!(results.vcpus[0].wake_latency.max().as_ns(), 150_000);
}

#[test]
fn a_job_released_when_another_ends_does_not_put_the_vcpu_to_sleep() {
    let mut host = pooled(1, ms(97), exact("deferrable"));
    let vm = vm(&mut host, server(ms(10), ms(10), 1));
    released_at(&mut host, vm, 1, ms(5), ms(10), Duration::ZERO);
    released_at(&mut host, vm, 2, ms(5), ms(10), ms(5));
    let results = run(&host);
    let counts = results.vcpus[0].counts.unwrap();
    assert_eq!((counts.wakes, counts.sleeps), (1, 0));
}

#[test]
fn late_jobs_run_on_and_queue_up_and_count_as_missed() {
    let mut host = pooled(1, ms(100), exact("deferrable"));
    let vm = vm(&mut host, server(ms(5), ms(10), 1));
    task(&mut host, vm, 1, ms(10), ms(10));
    let jobs = &run(&host).tasks[0].jobs;
    // Half the bandwidth: job k finishes at 20k+15, is due at 10k+10; jobs 0..4 finish within 100 ms.
    assert_eq!((jobs.released, jobs.completed, jobs.due, jobs.missed), (10, 5, 10, 10));
    assert_eq!((jobs.response.min(), jobs.response.max()), (ms(15), ms(55)));
    assert_eq!((jobs.tardiness.min(), jobs.tardiness.max()), (ms(5), ms(45)));
}

#[test]
fn a_nested_domain_gets_what_its_outer_domain_passes_on() {
    let mut host = pooled(1, ms(1000), exact("deferrable"));
    let outer = domain(&mut host, Parent::Pool(PoolIx(0)), "deferrable", vec![server(ms(6), ms(10), 1)]);
    host.domains[0].guest = exact("deferrable");
    let inner = domain(&mut host, outer, "fixed-priority", vec![server(ms(2), ms(20), 1)]);
    let innermost = domain(&mut host, inner, "fixed-priority", vec![UnitParams::default()]);
    let busy = hog(&mut host, innermost, 1);
    let neighbour = vm(&mut host, server(ms(10), ms(10), 2));
    hog(&mut host, neighbour, 1);
    let results = run(&host);
    // 2 of every 20 ms, by the middle level.
    assert_eq!(results.tasks[busy].cpu_time_ns, 100_000_000);
    assert_eq!(results.vcpus[0].cpu_time_ns, 100_000_000);
    assert_eq!(results.processors[0].idle_ns, 0);
}

#[test]
fn tasks_can_be_units_of_a_pool() {
    let mut host = pooled(1, ms(100), policy("fixed-priority"));
    let pool = Parent::Pool(PoolIx(0));
    let urgent = task(&mut host, pool, 1, ms(2), ms(10));
    let other = task(&mut host, pool, 2, ms(5), ms(20));
    hog(&mut host, pool, 3);
    let results = run(&host);
    assert_eq!(max_response_ns(&results, urgent), 2_000_000);
    assert_eq!(max_response_ns(&results, other), 7_000_000);
    assert_eq!(results.processors[0].idle_ns, 0);
}

#[test]
fn an_smp_guest_uses_its_vcpus_in_parallel() {
    let mut host = pooled(2, ms(100), policy("rtds"));
    let half = UnitParams {
        budget: Some(ms(10)),
        period: Some(ms(10)),
        extratime: Some(false),
        ..UnitParams::default()
    };
    let guest = domain(&mut host, Parent::Pool(PoolIx(0)), "fixed-priority", vec![half.clone(), half]);
    let a = task(&mut host, guest, 1, ms(8), ms(10));
    let b = task(&mut host, guest, 2, ms(8), ms(10));
    let results = run(&host);
    assert_eq!((max_response_ns(&results, a), max_response_ns(&results, b)), (8_000_000, 8_000_000));
}

/// The guest calls the vCPU on which its task ran last. That one waits behind other domains; the guest's
/// other vCPU idles meanwhile, which is no fault of the guest's scheduler.
#[test]
fn a_guest_whose_called_vcpu_waits_for_a_processor_may_idle_on_another_one() {
    let mut host = pooled(2, ms(100), policy("rtds"));
    let share = UnitParams {
        budget: Some(ms(4)),
        period: Some(ms(10)),
        extratime: Some(false),
        ..UnitParams::default()
    };
    let busy = domain(&mut host, Parent::Pool(PoolIx(0)), "fixed-priority", vec![share.clone(); 2]);
    hog(&mut host, busy, 1);
    hog(&mut host, busy, 1);
    let guest = domain(&mut host, Parent::Pool(PoolIx(0)), "fixed-priority", vec![share; 2]);
    let tasks = [0, 1, 2, 3].map(|i| task(&mut host, guest, 1, us(10), us(10_000 + 500 * i)));
    let results = run(&host);
    assert!(tasks.iter().all(|&t| results.tasks[t].jobs.missed == 0));
}

#[test]
fn migration_and_the_lock_of_a_shared_queue_cost_time() {
    let mut host = pooled(2, ms(10), policy("edf"));
    host.overheads = Overheads { migration: us(7), lock: us(1), ..Overheads::default() };
    for period in [ms(10), ms(11), ms(12)] {
        task(&mut host, Parent::Pool(PoolIx(0)), 0, ms(3), period);
    }
    let results = run(&host);
    let overhead: u64 = results.processors.iter().map(|p| p.overhead_ns).sum();
    let decisions: u64 = results.processors.iter().filter_map(|p| p.decisions).sum();
    // Both processors decide at time zero: the second waits for the first.
    let expected = decisions * 1_000 + 1_000 + results.pools[0].migrations.unwrap() * 7_000;
    assert!(overhead >= expected, "{overhead} >= {expected}");
    assert_eq!(results.tasks[0].jobs.start_latency.min().as_ns(), 1_000);
    assert_eq!(results.tasks[1].jobs.start_latency.min().as_ns(), 2_000);
}

#[test]
fn the_same_host_gives_the_same_results_alone_and_among_others_on_all_cores() {
    let mut host = two_vms();
    host.overheads.decision = us(1);
    add_sporadic(&mut host);
    let hosts: Vec<Host> = (0..16).map(|seed| Host { seed, ..host.clone() }).collect();
    let together = simulate_all(&hosts, simulate, || {});
    for (host, results) in hosts.iter().zip(together) {
        assert_eq!(simulate(host), results);
    }
    assert_ne!(simulate(&hosts[0]), simulate(&hosts[1]));
}

fn add_sporadic(host: &mut Host) {
    let arrival = Arrival::Sporadic { separation: ms(3), slack_mean: ms(4), offset: Duration::ZERO };
    let work = Work::Jobs { arrival, cost: Cost { min: us(100), max: us(900) }, deadline: ms(5) };
    let params = UnitParams { priority: Some(0), ..UnitParams::default() };
    host.tasks.push(Task {
        name: "s".into(),
        parent: host.tasks[1].parent,
        params,
        work,
        sections: Vec::new(),
    });
}

#[test]
fn the_trace_tells_the_same_story_as_the_results() {
    let mut host = two_vms();
    host.overheads = Overheads { decision: us(3), context_switch: us(20), ..Overheads::default() };
    add_sporadic(&mut host);
    let mut trace: Vec<(Instant, TraceEvent)> = Vec::new();
    let results = simulate_traced(&host, &mut trace).unwrap();
    assert_eq!(results, run(&host), "tracing changes nothing");
    assert!(trace.windows(2).all(|w| w[0].0 <= w[1].0), "time goes forward");

    let mut spent = [0u64; 3];
    let mut since = (Instant::ZERO, 0);
    let end = Instant::ZERO + host.duration;
    let turns = trace.iter().filter_map(|(at, event)| match event {
        TraceEvent::Processor { occupant: Occupant::Unit(_), .. } => Some((*at, 0)),
        TraceEvent::Processor { occupant: Occupant::Overhead, .. } => Some((*at, 2)),
        TraceEvent::Processor { .. } => Some((*at, 1)),
        _ => None,
    });
    // Idle before the first decision.
    since.1 = 1;
    for (at, kind) in turns.chain([(end, 1)]) {
        spent[since.1] += at.since(since.0).as_ns();
        since = (at, kind);
    }
    let p = &results.processors[0];
    assert_eq!(spent, [p.busy_ns, p.idle_ns, p.overhead_ns]);

    let completions = trace.iter().filter(|(_, e)| matches!(e, TraceEvent::Completion { .. })).count();
    assert_eq!(completions as u64, results.tasks.iter().map(|t| t.jobs.completed).sum::<u64>());
}

#[test]
fn every_example_runs_and_breaks_no_invariant() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let mut seen = 0;
    for entry in std::fs::read_dir(examples).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") && !path.ends_with("fleet.toml") {
            let bytes = std::fs::read(&path).unwrap();
            let name = path.display().to_string();
            let host = AnyHost::parse_bytes(&bytes, &name, &Default::default()).unwrap();
            let AnyHost::Pools(host) = host else { continue };
            assert!(run(&host).tasks.iter().any(|t| t.jobs.completed > 0), "{name}");
            seen += 1;
        }
    }
    assert!(seen >= 4, "{seen}");
}

#[test]
fn a_guest_may_wait_for_the_vcpu_it_called_while_another_halts() {
    let mut host = pooled(2, ms(100), policy("rtds"));
    let budget = |budget, period, cpu| UnitParams {
        extratime: Some(false),
        ..pinned(server(budget, period, 0), cpu, 2)
    };
    let pool = Parent::Pool(PoolIx(0));
    let smp =
        domain(&mut host, pool, "fixed-priority", vec![budget(ms(9), ms(20), 0), budget(ms(9), ms(20), 1)]);
    task(&mut host, smp, 1, ms(1), ms(10));
    let neighbour = domain(&mut host, pool, "fixed-priority", vec![budget(ms(2), ms(10), 0)]);
    task(&mut host, neighbour, 1, ms(2), ms(10));
    let results = run(&host);
    // The guest called its first vCPU, which waits for the neighbour on processor 0.
    assert_eq!(max_response_ns(&results, 0), 3_000_000);
}

#[test]
fn an_overloaded_cbs_pool_replenishes_those_exhausted_after_their_deadline_at_once() {
    let mut host = pooled(1, ms(100), policy("cbs"));
    for _ in 0..3 {
        let vm = vm(&mut host, server(ms(4), ms(7), 1));
        hog(&mut host, vm, 1);
    }
    let results = simulate(&host).unwrap();
    assert_eq!(results.processors[0].busy_ns, 100_000_000, "somebody always has budget");
}
