//! Workloads of rt-app.

use punctual_model::Host;
use punctual_model::host::{Arrival, Task, Work};
use punctual_sched::Duration;

use super::{answer, import, import_stdin, json, punctual};

const THREAD: &str = r#"{ "tasks": { "t": { "run": 1000, "timer": { "ref": "a", "period": 10000 } } } }"#;

/// A workload of these threads.
fn workload(threads: &str) -> String {
    format!("{{ \"tasks\": {{ {threads} }} }}")
}

fn task<'a>(host: &'a Host, name: &str) -> &'a Task {
    host.tasks.iter().find(|task| task.name == name).unwrap_or_else(|| panic!("{name}"))
}

/// Distance of releases, first release, least and greatest cost.
fn jobs(task: &Task) -> (Arrival, [u64; 2]) {
    let Work::Jobs { arrival, cost, .. } = &task.work else { panic!("{} is a hog", task.name) };
    (*arrival, [cost.min, cost.max].map(|cost| cost.as_ns() / 1_000))
}

/// A file of rt-app begins with `{`.
#[test]
fn json_is_read_from_a_file_and_from_standard_input() {
    for answer in [import("rt-app", &[THREAD], &[]), import_stdin("rt-app", THREAD)] {
        assert_eq!(answer.host().tasks.len(), 1);
    }
    let sample = "crates/punctual-model/tests/import/workload.json";
    let sample = answer(punctual().args(["import", "--from", "rt-app", sample]));
    assert!(sample.host().tasks.iter().any(|task| task.name == "sensor-1"));
    let array = import("rt-app", &["[{}]"], &[]);
    array.must_say(&["the file is not a JSON object"]);
    assert_eq!(array.code, Some(2));
}

#[test]
fn comments_trailing_commas_and_repeated_events_are_read() {
    let text = "/* rt-app's examples begin so */\n\
                { \"tasks\": { // all\n \"t\": { \"run\": 300, \"run\": 200, \
                \"sleep\": 1500, }, }, }";
    let host = import("rt-app", &[text], &[]).host();
    let separation = Duration::from_ms(2);
    let Work::Jobs { arrival: Arrival::Sporadic { separation: found, .. }, .. } = task(&host, "t").work
    else {
        panic!("it sleeps")
    };
    assert_eq!((found, jobs(task(&host, "t")).1), (separation, [500, 500]));
}

/// Two threads whose deadlines Linux meets: 2 ms by 4 ms, and 4 ms by 8 ms.
#[test]
fn a_deadline_shorter_than_the_period_is_kept() {
    let threads = r#"
        "slow": { "policy": "SCHED_DEADLINE", "dl-runtime": 4000, "dl-deadline": 8000, "dl-period": 10000,
                  "run": 4000, "timer": { "ref": "unique", "period": 10000 } },
        "soon": { "policy": "SCHED_DEADLINE", "dl-runtime": 2000, "dl-deadline": 4000, "dl-period": 10000,
                  "run": 2000, "timer": { "ref": "unique", "period": 10000 } }"#;
    let directory = tempfile::TempDir::new().expect("a directory");
    let file = directory.path().join("host.toml");
    let imported = import("rt-app", &[&workload(threads)], &["--output", file.to_str().expect("text")]);
    imported.must_say(&["policy edf", "does not enforce"]);
    let simulated = answer(punctual().arg("sim").arg(&file).arg("--fail-on-miss"));
    assert_eq!(simulated.code, Some(0), "{}", simulated.toml);
    // The period as the deadline: there is nothing that CBS lacks.
    let plain = workload(&threads.replace("4000, \"dl-period", "10000, \"dl-period"));
    let plain = plain.replace("\"dl-deadline\": 8000", "\"dl-deadline\": 10000");
    assert_eq!(import("rt-app", &[&plain], &[]).host().pools[0].policy.info.name, "cbs");
}

/// 20 % of a processor for the real-time thread, the rest in equal parts for the others.
#[test]
fn fair_threads_beside_real_time_ones_share_what_is_left() {
    let threads = r#"
        "rt": { "policy": "SCHED_FIFO", "priority": 20, "run": 2000,
                "timer": { "ref": "u", "period": 10000 } },
        "a": { "run": 1000 },
        "b": { "run": 1000 }"#;
    let directory = tempfile::TempDir::new().expect("a directory");
    let file = directory.path().join("host.toml");
    let path = file.to_str().expect("text");
    let imported = import("rt-app", &[&workload(threads)], &["--processors", "1", "--output", path]);
    imported.must_say(&["a: below the other classes", "best effort"]);
    let results = json(&["sim", path, "--json", "--duration", "10s"]);
    let vcpus = results["vcpus"].as_array().expect("vCPUs");
    let share = |name: &str| {
        let vcpu = vcpus.iter().find(|vcpu| vcpu["name"] == name).unwrap_or_else(|| panic!("{results}"));
        vcpu["cpu_time_ns"].as_u64().expect("a time") / 100_000_000
    };
    assert_eq!((share("a.0"), share("b.0")), (40, 40), "percent of 10 s");
}

#[test]
fn niceness_is_a_weight_and_idle_is_below() {
    let threads = r#"
        "plain": { "run": 1000 },
        "nice": { "priority": 5, "run": 1000 },
        "first": { "priority": -20, "run": 1000 },
        "idle": { "policy": "SCHED_IDLE", "run": 1000 }"#;
    let imported = import("rt-app", &[&workload(threads)], &[]);
    let host = imported.host();
    let weights = ["plain", "nice", "first"].map(|name| task(&host, name).params.weight);
    assert_eq!(weights, [Some(1024), Some(335), Some(65_535)]);
    imported.must_say(&["88761", "written as 65535"]);
    let idle = host.vcpus.iter().find(|vcpu| vcpu.name == "idle.0").expect("a domain");
    assert!(idle.params.best_effort);
    let wrong = import("rt-app", &[&workload(r#""t": { "priority": 30, "run": 1 }"#)], &[]);
    wrong.must_say(&["niceness from -20 to 19"]);
    assert_eq!(wrong.code, Some(2));
}

/// As LISA writes them: a delay, then 80 ms of work every 400 ms.
#[test]
fn a_delay_before_periodic_work_is_an_offset() {
    let phases = r#""phases": {
        "delay": { "sleep": 350000 },
        "load": { "loop": 12, "run": 80000, "timer": { "ref": "t", "period": 400000 } } }"#;
    let once = import("rt-app", &[&workload(&format!(r#""t": {{ "loop": 1, {phases} }}"#))], &[]);
    let arrival = |us: u64| (Duration::from_ms(400), Duration::from_us(us));
    let (period, offset) = arrival(350_000);
    assert_eq!(jobs(task(&once.host(), "t")), (Arrival::Periodic { period, offset }, [80_000, 80_000]));
    once.must_say(&["ends after some loops"]);
    let again = import("rt-app", &[&workload(&format!(r#""t": {{ {phases} }}"#))], &[]);
    let (found, cost) = jobs(task(&again.host(), "t"));
    let Arrival::Sporadic { separation, offset: found, .. } = found else {
        panic!("pauses between its jobs")
    };
    assert_eq!((separation, found, cost), (period, offset, [80_000, 80_000]));
    again.must_say(&["pauses between jobs"]);
}

/// As rt-app's loop does, by hand: a timer counts from its last use, whichever phase that was in.
#[test]
fn timers_of_several_phases_count_from_their_last_use() {
    let sporadic = |phases: &str| {
        let imported =
            import("rt-app", &[&workload(&format!(r#""t": {{ "phases": {{ {phases} }} }}"#))], &[]);
        let (Arrival::Sporadic { separation, .. }, cost) = jobs(task(&imported.host(), "t")) else {
            panic!("one job of the whole cycle")
        };
        (separation, cost, imported)
    };
    let timer = |name: &str, us: u64| format!(r#""timer": {{ "ref": "{name}", "period": {us} }}"#);
    // 5 + 5 ms of work, then the rest of 20 ms; not 5 + 20 ms.
    let phases = format!(r#""a": {{ "run": 5000 }}, "b": {{ "run": 5000, {} }}"#, timer("unique", 20_000));
    let (separation, cost, imported) = sporadic(&phases);
    assert_eq!((separation, cost), (Duration::from_ms(20), [10_000, 10_000]));
    imported.must_say(&["one job of the whole cycle"]);
    // The shorter timer expires while the thread waits for the longer one.
    let [a, b] = [timer("uniqueA", 20_000), timer("uniqueB", 30_000)];
    let (separation, cost, imported) =
        sporadic(&format!(r#""a": {{ "run": 1000, {a} }}, "b": {{ "run": 4000, {b} }}"#));
    assert_eq!((separation, cost), (Duration::from_ms(30), [5_000, 5_000]));
    imported.must_say(&["counts from its last use", "some jobs come sooner"]);
    // The documentation of rt-app: one name, so each timer follows the one before.
    let same = [timer("unique", 30_000), timer("unique", 30_000)];
    let [a, b] = same;
    let text = workload(&format!(
        r#""t": {{ "phases": {{ "light": {{ "run": 1000, {a} }}, "heavy": {{ "run": 4000, {b} }} }} }}"#
    ));
    let imported = import("rt-app", &[&text], &[]);
    let (arrival, cost) = jobs(task(&imported.host(), "t"));
    let period = Duration::from_ms(30);
    assert_eq!((arrival, cost), (Arrival::Periodic { period, offset: Duration::ZERO }, [1_000, 4_000]));
    assert!(!imported.says(&["some jobs come sooner"]));
}

/// As rt-app does: `runtime` is the reservation and an event.
#[test]
fn runtime_of_older_files_is_work_too() {
    let text = r#"{ "global": { "default_policy": "SCHED_DEADLINE" }, "tasks": { "t": {
        "runtime": 2000, "period": 10000, "timer": { "ref": "t", "period": 10000 } } } }"#;
    let host = import("rt-app", &[text], &[]).host();
    let params = &task(&host, "t").params;
    assert_eq!((params.budget, jobs(task(&host, "t")).1), (Some(Duration::from_ms(2)), [2000, 2000]));
}

#[test]
fn what_rt_app_does_not_know_or_no_longer_reads_is_said() {
    let threads = r#""t": { "runn": 5, "run": 1000, "taskgroup": "/a", "lokc": "m" }"#;
    let text =
        format!("{{ \"gobal\": {{}}, \"global\": {{ \"durration\": 5 }}, \"tasks\": {{ {threads} }} }}");
    let imported = import("rt-app", &[&text], &[]);
    imported.must_say(&["`gobal` is not known"]);
    imported.must_say(&["`durration` is not known"]);
    imported.must_say(&["t: `taskgroup` is not carried over"]);
    imported.must_say(&["t: `lokc` is not known"]);
    let legacy = import("rt-app", &[&workload(r#""t": { "exec": 5000, "sleep": false }"#)], &[]);
    legacy.must_say(&["rt-app before 2014"]);
    assert_eq!(legacy.code, Some(2));
    let never = import("rt-app", &[&workload(r#""t": { "suspend": "t" }"#)], &[]);
    never.must_say(&["no thread has work"]);
}

#[test]
fn a_timer_of_several_threads_is_noted() {
    let shared = r#""t": { "instance": 3, "run": 1000, "timer": { "ref": "tick", "period": 10000 } }"#;
    import("rt-app", &[&workload(shared)], &[]).must_say(&["timer tick is one for 3 threads"]);
    let unique = workload(&shared.replace("tick", "unique"));
    assert!(!import("rt-app", &[&unique], &[]).says(&["is one for"]));
}
