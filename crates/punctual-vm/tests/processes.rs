//! The guest program as a process of this machine, driven as a run drives it. Nothing here is real-time.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use punctual_guest::os::now_ns;
use punctual_model::index::DomainIx;
use punctual_vm::cache::Cache;
use punctual_vm::workload::{Client, ClientError, Process, tasks};

fn cache() -> Cache {
    Cache::at(Path::new(env!("CARGO_TARGET_TMPDIR"))).expect("a cache")
}

/// A directory of `/proc` that is gone once the process is.
fn proc_of(process: &Process) -> PathBuf {
    Path::new("/proc").join(process.pid().to_string())
}

/// The conversation with its program.
fn client(process: &mut Process) -> &mut Client {
    process.connect(Duration::from_secs(30)).expect("it announces itself")
}

const HOST: &str = r#"
duration = "300ms"
seed = 7
[machine]
processors = 1
[pool.all]
processors = [0]
policy = "fixed-priority"
[domain.one]
priority = 1
[domain.one.task.urgent]
priority = 1
period = "10ms"
cost = "100us"
[domain.one.task.sporadic]
priority = 2
separation = "20ms"
slack_mean = "5ms"
cost = { min = "50us", max = "150us" }
deadline = "15ms"
"#;

#[test]
fn two_processes_run_a_domain_from_the_same_instant_and_are_gone_afterwards() {
    let host = punctual_model::file::parse(HOST, "test.toml", &Default::default()).expect("a host");
    let set = tasks::of_domain(&host, DomainIx(0), false).expect("tasks");
    let requests: Vec<_> = set.iter().map(|(_, task)| task.clone()).collect();
    let mut processes = [cache(), cache()].map(|cache| Process::start_in(&cache, || false).expect("started"));
    let speed =
        client(&mut processes[0]).calibrate(Duration::from_millis(20)).expect("calibrated").iterations_per_ms;

    let start_ns = now_ns() + 20_000_000;
    let duration_ns = host.duration.as_ns();
    for process in &mut processes {
        let (offset_ns, error_ns) = client(process).clock_offset_ns().expect("a clock");
        assert!(offset_ns.unsigned_abs() <= error_ns, "a process has our clock: {offset_ns} {error_ns}");
        client(process).begin(&requests, None, speed, (start_ns, 0), duration_ns).expect("begun");
    }
    for process in &mut processes {
        let measured = client(process).finish(Duration::from_nanos(duration_ns)).expect("finished");
        let stats: Vec<_> = set
            .iter()
            .zip(&measured.tasks)
            .map(|((index, _), task)| {
                let punctual_model::host::Work::Jobs { deadline, .. } = host.tasks[index.0].work else {
                    panic!("a task without jobs")
                };
                tasks::job_stats(&task.jobs, deadline.as_ns(), duration_ns)
            })
            .collect();
        assert_eq!((stats[0].released, stats[0].due), (30, 30));
        assert!(stats[1].released > 5 && stats[1].due >= stats[1].missed);
    }
    let places = [0, 1].map(|n: usize| proc_of(&processes[n]));
    drop(processes);
    assert!(places.iter().all(|place| !place.exists()));
}

#[test]
fn a_process_that_is_killed_is_an_error_of_its_channel() {
    let mut process = Process::start_in(&cache(), || false).expect("started");
    let tid = fs::read_dir(proc_of(&process).join("task")).expect("threads").count();
    assert_eq!(tid, 1, "the virtual CPU is the only thread");
    let hog = punctual_guest::protocol::Work::Hog { start_ns: 0 };
    let tasks = [punctual_guest::protocol::Task { priority: 1, deadline_ns: None, work: hog }];
    client(&mut process).begin(&tasks, None, 1000, (0, 0), 60_000_000_000).expect("begun");
    let killed = std::process::Command::new("kill").args(["-9", &process.pid().to_string()]).status();
    assert!(killed.expect("kill").success());
    let error = client(&mut process).finish(Duration::from_secs(60)).unwrap_err();
    assert!(matches!(error, ClientError::Channel(_)), "{error}");
}
