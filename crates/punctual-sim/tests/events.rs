//! Events of a host: units get other parameters and pools other policies while the machine runs.

use punctual_model::host::{Change, Event};
use punctual_model::index::{DomainIx, PoolIx};
use punctual_model::trace::JobRecord;
use punctual_model::{Host, Results};
use punctual_sched::registry::policies;
use punctual_sched::{Duration, Instant, UnitParams};
use punctual_sim::{JobLog, simulate_blamed};
use punctual_testkit::hosts::*;
use punctual_testkit::random::{Random, random_host};

use crate::watch::simulate_watched;

/// The results, and all jobs.
fn run(host: &Host) -> (Results, Vec<JobRecord>) {
    let mut jobs = Vec::new();
    let log = JobLog::new(host, |job: &JobRecord| jobs.push(*job));
    let results = simulate_watched(host, log).unwrap_or_else(|e| panic!("{e}: {host:#?}"));
    (results, jobs)
}

fn adjust(at: Duration, domain: usize, given: UnitParams) -> Event {
    Event { name: "adjust".into(), at, change: Change::Params { domain: DomainIx(domain), given } }
}

fn replace(at: Duration, policy: punctual_model::host::PolicyChoice) -> Event {
    Event { name: "replace".into(), at, change: Change::Policy { pool: PoolIx(0), policy } }
}

fn budget(budget: Duration) -> UnitParams {
    UnitParams { budget: Some(budget), ..UnitParams::default() }
}

#[test]
fn a_greater_budget_serves_from_the_replenishment_after_the_event_on() {
    for name in ["deferrable", "periodic", "polling", "sporadic", "rtds", "sedf", "cbs"] {
        let mut host = pooled(
            1,
            ms(200),
            if policy(name).info.options.iter().any(|o| o.name == "quantum") {
                exact(name)
            } else {
                policy(name)
            },
        );
        let given = UnitParams { extratime: Some(false), ..server(ms(2), ms(10), 1) };
        let vm = vm(&mut host, given);
        hog(&mut host, vm, 1);
        let before = run(&host).0.vcpus[0].cpu_time_ns;
        assert_eq!(before, 40_000_000, "{name}");
        host.events = vec![adjust(ms(95), 0, budget(ms(6)))];
        // Ten periods with 2 ms, ten with 6 ms.
        assert_eq!(run(&host).0.vcpus[0].cpu_time_ns, 80_000_000, "{name}");
    }
}

#[test]
fn an_urgent_priority_preempts_at_once() {
    let mut host = pooled(1, ms(40), exact("deferrable"));
    let (a, b) = (vm(&mut host, server(ms(40), ms(40), 1)), vm(&mut host, server(ms(40), ms(40), 2)));
    hog(&mut host, a, 1);
    hog(&mut host, b, 1);
    let priority = UnitParams { priority: Some(0), ..UnitParams::default() };
    host.events = vec![adjust(ms(13), 1, priority)];
    let times: Vec<u64> = run(&host).0.vcpus.iter().map(|vcpu| vcpu.cpu_time_ns).collect();
    assert_eq!(times, [13_000_000, 27_000_000]);
}

/// A pool that has another policy from the first instant on is one that has it.
#[test]
fn a_policy_at_time_zero_is_the_policy_of_the_host() {
    let mut compared = 0;
    for case in 0..300 {
        let mut random = Random::new((11 << 40) + case);
        let host = random_host(&mut random);
        if host.pools[0].policy.info.name != "deferrable" {
            continue;
        }
        let next =
            policy(random.of(&["periodic", "polling", "sporadic", "rtds", "credit", "cbs", "round-robin"]));
        let mut expected = host.clone();
        expected.pools[0].policy = next.clone();
        let changed = Host { events: vec![replace(Duration::ZERO, next)], ..host };
        let (expected, found) = (run(&expected), run(&changed));
        assert!(expected.1 == found.1, "{changed:#?}");
        let vcpus = |results: &Results| -> Vec<_> {
            results.vcpus.iter().map(|vcpu| (vcpu.cpu_time_ns, vcpu.migrations)).collect()
        };
        assert_eq!(vcpus(&expected.0), vcpus(&found.0));
        compared += 1;
    }
    assert!(compared > 20, "{compared}");
}

/// Every policy that takes the parameters of servers follows every other one.
#[test]
fn each_policy_follows_each_other_one_and_keeps_its_budgets() {
    let servers = ["deferrable", "periodic", "polling", "sporadic", "rtds", "sedf", "cbs"];
    for (first, second) in servers.iter().flat_map(|one| servers.map(|two| (*one, two))) {
        let mut host = pooled(2, ms(300), policy(first));
        for (at, cost) in [(0, ms(1)), (1, ms(2)), (2, ms(3))] {
            let given = UnitParams { extratime: Some(false), ..server(cost, ms(10), 1 + at) };
            let vm = vm(&mut host, pinned(given, at % 2, 2));
            hog(&mut host, vm, 1);
        }
        host.events = vec![replace(ms(100), policy(second)), replace(ms(200), policy(first))];
        let times: Vec<u64> = run(&host).0.vcpus.iter().map(|vcpu| vcpu.cpu_time_ns / 1_000_000).collect();
        assert_eq!(times, [30, 60, 90], "{first}, {second}, {first}");
    }
}

/// What happened before an event is what happens without it; the invariants and the sums of causes hold.
#[test]
fn random_events_break_no_invariant_and_change_nothing_before_them() {
    let mut policies_seen = std::collections::BTreeSet::new();
    for case in 0..400 {
        let mut random = Random::new((12 << 40) + case);
        let plain = random_host(&mut random);
        let mut events = random_events(&mut random, &plain);
        events.sort_by_key(|event| event.at);
        let Some(first) = events.first().map(|event| Instant::ZERO + event.at) else { continue };
        let host = Host { events, ..plain.clone() };
        let (results, jobs) = run(&host);
        let early = |jobs: Vec<JobRecord>| -> Vec<JobRecord> {
            jobs.into_iter().filter(|job| job.finish.is_some_and(|at| at < first)).collect()
        };
        assert!(early(run(&plain).1) == early(jobs), "{host:#?}");
        let mut blamed = simulate_blamed(&host, ()).unwrap_or_else(|e| panic!("{e}: {host:#?}"));
        blamed.tasks.iter_mut().for_each(|task| task.blame = None);
        assert!(blamed.tasks == results.tasks);
        policies_seen.extend(host.events.iter().filter_map(|event| match &event.change {
            Change::Policy { policy, .. } => Some(policy.info.name),
            Change::Params { .. } => None,
        }));
    }
    assert!(policies_seen.len() >= policies().len() - 2, "{policies_seen:?}");
}

/// Events that the host's policies do not refuse.
fn random_events(random: &mut Random, host: &Host) -> Vec<Event> {
    let takes_servers = host.vcpus.iter().all(|vcpu| vcpu.params.budget.is_some());
    let mut events = Vec::new();
    for _ in 0..random.within(1, 5) {
        let at = us(random.within(0, 400_000));
        let at = if random.one_in(3) { ms(at.as_ns() / 1_000_000 / 10 * 10) } else { at };
        if takes_servers && !host.domains.is_empty() && random.one_in(2) {
            let domain = random.within(0, host.domains.len() as u64 - 1) as usize;
            let params = &host.vcpus[host.domains[domain].vcpus.start].params;
            let longest = params.period.map_or(1_000_000, Duration::as_ns);
            let given = UnitParams {
                budget: params.budget.map(|_| Duration::from_ns(random.within(longest / 10, longest))),
                priority: params.priority.map(|_| random.within(0, 9) as u32),
                ..UnitParams::default()
            };
            events.push(adjust(at, domain, given));
        } else {
            let all = takes_servers && host.tasks.iter().all(|task| task.params.budget.is_some());
            let name = if all { random.of(policies()).name } else { random.of(&["credit", "round-robin"]) };
            events.push(replace(at, policy(name)));
        }
    }
    events
}
