//! Best-effort units: whatever they do, and under whatever policy, all others fare as if they were not there.

use punctual_model::index::PoolIx;
use punctual_model::{Host, Results};
use punctual_sched::UnitParams;
use punctual_sched::registry::{WorkConservation, policies};
use punctual_sim::simulate;
use punctual_testkit::hosts::*;
use punctual_testkit::random::{Random, random_host};

use punctual_model::host::Parent;

fn run(host: &Host) -> Results {
    simulate(host).unwrap_or_else(|e| panic!("{e}: {host:#?}"))
}

/// Adds best-effort domains of one or two vCPUs, some always busy, some with jobs.
fn with_best_effort(random: &mut Random, host: &Host) -> Host {
    let mut host = host.clone();
    for _ in 0..random.within(1, 3) {
        let params = UnitParams { best_effort: true, ..UnitParams::default() };
        let vcpus = random.of(&[1, 1, 2]);
        let vm = domain(&mut host, Parent::Pool(PoolIx(0)), "fixed-priority", vec![params; vcpus]);
        if random.one_in(2) {
            let offset = us(random.within(0, 9_000));
            released_at(
                &mut host,
                vm,
                1,
                us(random.within(100, 4_000)),
                us(random.within(5_000, 20_000)),
                offset,
            );
        }
        if random.one_in(2) {
            hog(&mut host, vm, 2);
        }
    }
    host
}

/// Times, counts and distributions of the first tasks and vCPUs: those of the host without best effort.
fn of_others(results: &Results, alone: &Host) -> String {
    let tasks = &results.tasks[..alone.tasks.len()];
    let vcpus = &results.vcpus[..alone.vcpus.len()];
    let jobs: Vec<_> = tasks.iter().map(|task| (&task.jobs, task.cpu_time_ns)).collect();
    let vcpus: Vec<_> = vcpus.iter().map(|vcpu| (vcpu.cpu_time_ns, vcpu.counts, vcpu.migrations)).collect();
    format!("{jobs:?} {vcpus:?}")
}

#[test]
fn others_fare_as_if_best_effort_units_were_not_there() {
    let hosts = std::env::var("PUNCTUAL_SOUNDNESS_HOSTS").ok();
    let hosts = hosts.map_or(1_000, |hosts| hosts.parse().expect("a whole number"));
    let mut executed = 0;
    for case in 0..hosts {
        let mut random = Random::new((9 << 40) + case);
        let mut host = random_host(&mut random);
        host.overheads = Default::default();
        // The other policies too; they take the parameters of servers, or none.
        let parameters = host.pools[0].policy.info.name;
        if parameters == "deferrable" && random.one_in(2) {
            host.pools[0].policy = policy(random.of(&["credit", "round-robin", "rtds"]));
        }
        let (alone, beside) = (run(&host), with_best_effort(&mut random, &host));
        let results = run(&beside);
        let (expected, found) = (of_others(&alone, &host), of_others(&results, &host));
        let info = host.pools[0].policy.info;
        assert!(expected == found, "{}: {expected}\n{found}\n{beside:#?}", info.name);
        executed += results.vcpus[host.vcpus.len()..].iter().map(|vcpu| vcpu.cpu_time_ns).sum::<u64>();
    }
    assert!(executed > 0);
}

#[test]
fn best_effort_gets_all_that_the_others_leave_under_every_policy() {
    for info in policies() {
        let mut host = pooled(2, ms(200), policy(info.name));
        let mut params = server(ms(3), ms(10), 1);
        params.extratime = Some(false);
        let guest = vm(&mut host, params);
        task(&mut host, guest, 1, ms(2), ms(10));
        let spare = UnitParams { best_effort: true, ..UnitParams::default() };
        for _ in 0..2 {
            let guest = vm(&mut host, spare.clone());
            hog(&mut host, guest, 1);
        }
        let results = run(&host);
        assert_eq!(results.tasks[0].jobs.missed, 0, "{}", info.name);
        assert_eq!(results.tasks[0].cpu_time_ns, 40_000_000, "{}", info.name);
        let idle: u64 = results.processors.iter().map(|processor| processor.idle_ns).sum();
        // Budget that idles away leaves nothing: 1 of the 3 in every 10 ms.
        let lost = if info.work_conservation == WorkConservation::Never { 20_000_000 } else { 0 };
        assert_eq!(idle, lost, "{}", info.name);
    }
}

#[test]
fn a_switch_to_a_best_effort_unit_delays_others_by_no_more_than_itself() {
    let mut host = pooled(1, ms(100), exact("deferrable"));
    host.overheads.context_switch = us(100);
    let guest = vm(&mut host, server(ms(3), ms(10), 1));
    let job = released_at(&mut host, guest, 1, ms(1), ms(10), us(2_050));
    let spare = vm(&mut host, UnitParams { best_effort: true, ..UnitParams::default() });
    released_at(&mut host, spare, 1, us(10), ms(10), ms(2));
    // The switch that began at 2 ms ends at 2.1; its own takes 0.1.
    assert_eq!(run(&host).tasks[job].jobs.response.max(), us(1_150));
}
