//! A replay without disturbances is the simulation; with them, work waits exactly as long as the processor
//! was away, and no budget pays for it.

use punctual_model::file::{self, Overrides};
use punctual_model::host::Overheads;
use punctual_model::results::{Cause, Disturbance, DisturbedInterval};
use punctual_model::{Host, Results};
use punctual_sched::registry;
use punctual_sim::{simulate, simulate_disturbed};

const MS: u64 = 1_000_000;

fn host(text: &str, policy: &str) -> Host {
    let overrides = Overrides { policy: Some(policy.into()), ..Overrides::default() };
    file::parse(text, "host.toml", &overrides).unwrap_or_else(|e| panic!("{e}"))
}

/// As if it had been live, with `processor` away in these intervals of ms.
fn live(host: &Host, processor: usize, away: &[(u64, u64)]) -> Results {
    let mut results = simulate(host).expect("it is simulated");
    let interval = |&(from, until): &(u64, u64)| DisturbedInterval {
        from_ns: from * MS,
        until_ns: until * MS,
        cause: Cause::Standstill,
        by: None,
    };
    results.processors[processor].disturbance = Some(Disturbance::of(away.iter().map(interval).collect()));
    results
}

#[test]
fn a_replay_of_an_undisturbed_run_is_the_simulation_under_every_policy() {
    for file in ["misbehaving", "five-vms"] {
        let path = format!("{}/../../examples/{file}.toml", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).expect("an example");
        for policy in registry::policies() {
            let mut host = host(&text, policy.name);
            // Those would be taken at another level.
            host.overheads = Overheads::default();
            let simulated = simulate(&host).expect("it is simulated");
            let replayed = simulate_disturbed(&host, &live(&host, 1, &[])).expect("it is replayed");
            assert_eq!(replayed.tasks, simulated.tasks, "{file} under {}", policy.name);
            assert_eq!(replayed.domains.len(), simulated.domains.len());
            let vcpus = |results: &Results| {
                let of = |vcpu: &punctual_model::results::VcpuResult| {
                    (vcpu.name.clone(), vcpu.cpu_time_ns, vcpu.counts)
                };
                results.vcpus.iter().map(of).collect::<Vec<_>>()
            };
            assert_eq!(vcpus(&replayed), vcpus(&simulated), "{file} under {}", policy.name);
            let pool = |results: &Results| {
                let pool = &results.pools[0];
                (pool.policy.clone(), pool.jobs.clone(), pool.busy_ns, pool.exhaustions, pool.replenishments)
            };
            assert_eq!(pool(&replayed), pool(&simulated), "{file} under {}", policy.name);
        }
    }
}

const ONE: &str = "duration = '100ms'\n[machine]\nprocessors = 2\n\
    [pool.p]\nprocessors = [1]\npolicy = 'deferrable'\n\
    [domain.d]\nbudget = '4ms'\nperiod = '10ms'\npriority = 1\n\
    [domain.d.task.t]\nperiod = '20ms'\ncost = '2ms'\ndeadline = '6ms'\n";

#[test]
fn a_job_waits_for_as_long_as_its_processor_was_away_and_its_budget_does_not_pay() {
    let host = host(ONE, "deferrable");
    // The first job is interrupted for 3 ms, the second for 5 ms, so that it is late, the third by nothing.
    let away = live(&host, 1, &[(1, 4), (20, 25), (48, 52)]);
    let replayed = simulate_disturbed(&host, &away).expect("it is replayed");
    let jobs = &replayed.tasks[0].jobs;
    assert_eq!((jobs.due, jobs.missed, jobs.completed), (5, 1, 5));
    assert_eq!((jobs.response.max().as_ns(), jobs.response.min().as_ns()), (7 * MS, 2 * MS));
    assert_eq!(replayed.vcpus[0].cpu_time_ns, 10 * MS);
    assert_eq!(replayed.vcpus[0].counts.unwrap().exhaustions, 0);
    let processor = &replayed.processors[1];
    assert_eq!((processor.busy_ns, processor.host.map(|host| host.steal_ns)), (10 * MS, Some(12 * MS)));
    assert_eq!(processor.busy_ns + processor.idle_ns + 12 * MS, replayed.duration_ns);
    // Of the other processor nothing was measured.
    assert_eq!(replayed.processors[0].host, None);
}
