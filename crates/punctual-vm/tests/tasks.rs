//! A live task has the jobs of the simulated one, and the same times give the same statistics.

use std::collections::BTreeMap;

use punctual_guest::protocol::JobTimes;
use punctual_model::Host;
use punctual_model::host::Work;
use punctual_model::index::DomainIx;
use punctual_model::trace::TraceEvent;
use punctual_sched::Instant;
use punctual_vm::workload::tasks;

/// Each domain has a processor for itself and one task whose jobs never overlap: each job's response time is
/// its cost.
const HOST: &str = r#"
duration = "3s"
seed = 91
[machine]
processors = 3
[pool.pool-a]
processors = [0]
policy = "fixed-priority"
[pool.pool-b]
processors = [1]
policy = "fixed-priority"
[pool.pool-c]
processors = [2]
policy = "fixed-priority"
[domain.a]
pool = "pool-a"
priority = 1
task.periodic = { period = "10ms", offset = "3ms", cost = { min = "1ms", max = "9ms" }, deadline = "5ms" }
[domain.b]
pool = "pool-b"
priority = 1
task.sporadic = { separation = "7ms", slack_mean = "4ms", cost = { min = "10us", max = "6999us" } }
[domain.c]
pool = "pool-c"
priority = 1
task.constant = { period = "1ms", cost = "250us" }
"#;

fn host() -> Host {
    punctual_model::file::parse(HOST, "same-jobs.toml", &Default::default()).expect("a host")
}

#[test]
fn releases_costs_and_statistics_equal_those_of_the_simulator() {
    let host = host();
    let mut trace: Vec<(Instant, TraceEvent)> = Vec::new();
    let results = punctual_sim::simulate_traced(&host, &mut trace).expect("simulated");
    let mut costs_ns: BTreeMap<(usize, u64), u64> = BTreeMap::new();
    for (_, event) in &trace {
        if let TraceEvent::Completion { task, job, response, .. } = event {
            costs_ns.insert((task.0, *job), response.as_ns());
        }
    }
    let duration_ns = host.duration.as_ns();
    for domain in 0..3 {
        let set = tasks::of_domain(&host, DomainIx(domain), false).expect("tasks");
        let [(index, task)] = &set[..] else { panic!("one task") };
        let stream = task.work.job_stream().expect("jobs");
        let mut jobs = Vec::new();
        for job in stream.jobs_before(duration_ns) {
            let finish_ns = Some(job.release_ns + stream.cost_ns(job)).filter(|&ns| ns <= duration_ns);
            if let Some(&cost_ns) = costs_ns.get(&(index.0, job.number)) {
                assert_eq!(stream.cost_ns(job), cost_ns, "task {} job {}", index.0, job.number);
            }
            jobs.push(JobTimes { release_ns: job.release_ns, start_ns: Some(job.release_ns), finish_ns });
        }
        let Work::Jobs { deadline, .. } = host.tasks[index.0].work else { panic!("jobs") };
        let stats = tasks::job_stats(&jobs, deadline.as_ns(), duration_ns);
        assert!(stats.completed > 100, "{stats:?}");
        assert_eq!(stats, results.tasks[index.0].jobs);
    }
}

#[test]
fn a_guest_that_does_not_schedule_by_fixed_priorities_is_refused_by_name() {
    let text = HOST.replace("[domain.b]", "[domain.b]\nguest = \"edf\"");
    let host = punctual_model::file::parse(&text, "same-jobs.toml", &Default::default()).expect("a host");
    assert!(tasks::of_domain(&host, DomainIx(0), false).is_ok());
    let error = tasks::of_domain(&host, DomainIx(1), false).unwrap_err().to_string();
    assert!(error.contains("domain `b`") && error.contains("`edf`"), "{error}");
    assert!(tasks::of_domain(&host, DomainIx(3), false).is_err());
}
