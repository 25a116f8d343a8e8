//! Imports of the samples in `tests/import/`. Beside each sample with a defect, a file of the same name that
//! ends in `.stderr` has the expected messages. `BLESS=1 cargo test -p punctual-model --test import` rewrites
//! them.

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use punctual_model::file::{Errors, Overrides, parse};
use punctual_model::host::{Arrival, Parent, Work};
use punctual_model::import::{Format, Imported, Settings, import};
use punctual_model::index::PoolIx;
use punctual_sched::{Duration, registry};

fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/import")
}

fn try_samples(format: Format, names: &[&str], settings: &Settings<'_>) -> Result<Imported, Errors> {
    let bytes: Vec<Vec<u8>> =
        names.iter().map(|name| std::fs::read(dir().join(name)).expect("readable")).collect();
    let files: Vec<(&str, &[u8])> = names.iter().copied().zip(bytes.iter().map(Vec::as_slice)).collect();
    import(format, &files, settings)
}

fn samples(format: Format, names: &[&str]) -> Imported {
    try_samples(format, names, &Settings::default()).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn samples_become_the_host_files_that_they_became() {
    insta::assert_snapshot!(
        "libvirt",
        samples(Format::Libvirt, &["video.xml", "web.xml", "control.xml"]).toml
    );
    insta::assert_snapshot!("xl", samples(Format::Xl, &["xl.txt"]).toml);
    insta::assert_snapshot!("rt-app", samples(Format::RtApp, &["workload.json"]).toml);
    insta::assert_snapshot!("rt-app-deadline", samples(Format::RtApp, &["deadline.json"]).toml);
    insta::assert_snapshot!("carts", samples(Format::Carts, &["system.xml"]).toml);
    insta::assert_snapshot!("carts-result", samples(Format::Carts, &["result.xml"]).toml);
    insta::assert_snapshot!("schedcat", samples(Format::SchedCat, &["taskset.xml"]).toml);
    insta::assert_snapshot!("simso", samples(Format::SimSo, &["simulation.xml"]).toml);
    insta::assert_snapshot!("csv", samples(Format::Csv, &["tasks.csv"]).toml);
}

#[test]
fn a_host_file_that_was_imported_means_what_the_import_says() {
    for imported in [samples(Format::Xl, &["xl.txt"]), samples(Format::RtApp, &["workload.json"])] {
        let again =
            parse(&imported.toml, "import.toml", &Overrides::default()).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(again, imported.host);
    }
}

#[test]
fn xl_parameters_are_those_that_are_printed() {
    let host = samples(Format::Xl, &["xl.txt"]).host;
    let names: Vec<_> = host.pools.iter().map(|p| (p.name.as_str(), p.policy.info.name)).collect();
    assert_eq!(names, [("Pool-0", "credit"), ("rt", "rtds")]);
    let video = host.vcpus.iter().find(|v| v.name == "video.1").unwrap();
    assert_eq!(video.params.period, Some(Duration::from_ms(4)));
    assert_eq!((video.params.budget, video.params.extratime), (Some(Duration::from_ms(1)), Some(true)));
    assert_eq!(video.params.affinity.as_ref().map(|set| set.len()), Some(1));
    // One of its two vCPUs is online.
    let web = host.vcpus.iter().find(|v| v.name == "web_server.0").unwrap();
    assert_eq!((web.params.weight, web.params.cap_percent), (Some(512), Some(75)));
}

#[test]
fn rt_app_threads_are_tasks_of_the_pool() {
    let host = samples(Format::RtApp, &["workload.json"]).host;
    let task = |name: &str| host.tasks.iter().find(|t| t.name == name).unwrap_or_else(|| panic!("{name}"));
    let direct: Vec<&str> = host.tasks_of(Parent::Pool(PoolIx(0))).map(|(_, t)| t.name.as_str()).collect();
    assert_eq!(direct, ["sensor-0", "sensor-1", "fusion"], "the real-time ones");
    assert_eq!(host.duration, Duration::from_secs(6));
    let Work::Jobs { arrival, cost, .. } = task("sensor-1").work else { panic!("jobs") };
    let (period, offset) = (Duration::from_ms(10), Duration::from_us(500));
    assert_eq!((arrival, cost.max), (Arrival::Periodic { period, offset }, Duration::from_ms(1)));
    let Work::Jobs { cost, .. } = task("fusion").work else { panic!("jobs") };
    assert_eq!((cost.min, cost.max), (Duration::from_ms(2), Duration::from_ms(6)));
    let Work::Jobs { arrival: Arrival::Sporadic { separation, .. }, cost, .. } = task("twice").work else {
        panic!("sporadic")
    };
    assert_eq!(
        (separation, cost.max),
        (Duration::from_us(1300), Duration::from_us(300)),
        "both `run`s count"
    );
    assert!(matches!(task("burn").work, Work::Hog { .. }));
    let priorities = ["sensor-0", "fusion"].map(|name| task(name).params.priority.unwrap());
    assert_eq!(priorities, [1, 2], "FIFO 20, RR with rt-app's default of 10");
    let logger = host.vcpus.iter().find(|vcpu| vcpu.name == "logger.0").expect("SCHED_OTHER");
    assert!(logger.params.best_effort);
    assert!(!host.tasks.iter().any(|t| t.name == "idle"));
}

#[test]
fn a_short_deadline_of_sched_deadline_is_kept() {
    let host = samples(Format::RtApp, &["deadline.json"]).host;
    assert_eq!(host.pools[0].policy.info.name, "edf", "its deadline is shorter than its period");
    let params = &host.tasks[0].params;
    assert_eq!((params.budget, params.period), (Some(Duration::from_us(1500)), Some(Duration::from_ms(10))));
    let Work::Jobs { cost, deadline, .. } = host.tasks[0].work else { panic!("jobs") };
    assert_eq!((cost.max, deadline), (Duration::from_ms(1), Duration::from_ms(5)));
}

#[test]
fn carts_components_are_domains_within_domains() {
    let host = samples(Format::Carts, &["system.xml"]).host;
    let names: Vec<_> = host.domains.iter().map(|d| (d.name.as_str(), d.guest.info.name)).collect();
    assert_eq!(names, [("C1", "fixed-priority"), ("C2", "edf"), ("C3", "edf")]);
    assert!(matches!(host.domains[2].parent, Parent::Domain(_)));
    let Work::Jobs { cost, deadline, .. } = host.tasks[0].work else { panic!("jobs") };
    assert_eq!((cost.max, deadline), (Duration::from_us(2500), Duration::from_ms(30)));
    let us = Settings { unit: Some(Duration::from_us(1)), ..Settings::default() };
    let host = try_samples(Format::Carts, &["system.xml"], &us).unwrap().host;
    let Work::Jobs { cost, .. } = host.tasks[0].work else { panic!("jobs") };
    assert_eq!(cost.max, Duration::from_ns(2500));
}

#[test]
fn results_of_carts_have_their_interfaces_as_budgets() {
    let host = samples(Format::Carts, &["result.xml"]).host;
    assert_eq!((host.pools[0].policy.info.name, host.processors), ("periodic", 2));
    let of = |name: &str| host.vcpus.iter().find(|v| v.name == name).unwrap().params.clone();
    assert_eq!(of("C1.1").budget, Some(Duration::from_us(4500)), "9 ms on two processors");
    assert_eq!((of("C2.0").budget, of("C2.0").priority), (Some(Duration::from_us(1250)), Some(1)));
    assert_eq!(of("C1.0").priority, Some(2), "the longer period");
}

#[test]
fn the_policy_and_the_processors_can_be_chosen() {
    let settings =
        Settings { policy: registry::find("sporadic"), processors: Some(9), ..Settings::default() };
    let host = try_samples(Format::Libvirt, &["video.xml"], &settings).unwrap().host;
    assert_eq!((host.pools[0].policy.info.name, host.processors), ("sporadic", 9));
    let host = try_samples(Format::Libvirt, &["web.xml"], &settings).unwrap().host;
    assert!(host.vcpus.iter().all(|vcpu| vcpu.params.best_effort), "it has no budget");
}

#[test]
fn what_was_not_understood_is_told_with_its_line() {
    let imported = samples(Format::Libvirt, &["video.xml"]);
    let lines: Vec<usize> = imported.notes.iter().map(|n| n.line).collect();
    let cachetune = imported.notes.iter().find(|n| n.text.contains("<cachetune>")).expect("a note");
    assert_eq!((cachetune.line, cachetune.file.as_str()), (12, "video.xml"), "{lines:?}");
    assert!(
        imported.toml.contains("# video.xml:12: video: <cachetune> is not carried over"),
        "{}",
        imported.toml
    );
}

/// The files with a defect; the format is the beginning of the name.
fn malformed() -> Vec<(Format, PathBuf)> {
    let files = std::fs::read_dir(dir().join("malformed"))
        .expect("a folder")
        .map(|entry| entry.expect("readable").path());
    let mut files: Vec<PathBuf> = files.filter(|p| p.extension().is_some_and(|e| e != "stderr")).collect();
    files.sort();
    let format = |path: &Path| {
        let name = path.file_name().expect("a name").to_str().expect("UTF-8");
        Format::ALL.into_iter().find(|f| name.starts_with(f.name())).unwrap_or_else(|| panic!("{name}"))
    };
    files.into_iter().map(|path| (format(&path), path)).collect()
}

#[test]
fn every_malformed_file_has_its_message() {
    let files = malformed();
    assert!(files.len() >= 20, "{} files", files.len());
    let mut differing = Vec::new();
    for (format, path) in files {
        let name = path.file_name().expect("a name").to_str().expect("UTF-8");
        let read = import(format, &[(name, &std::fs::read(&path).unwrap())], &Settings::default());
        let message = read.map(|_| ()).expect_err(&format!("{name} has a defect")).render(false);
        let expected = path.with_extension("stderr");
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&expected, &message).unwrap();
        }
        if std::fs::read_to_string(&expected).unwrap_or_default() != message {
            differing.push(format!("{}:\n{message}", expected.display()));
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

/// Reads anything; what is refused can be shown and points into the file, what is accepted is a host file.
fn survives(format: Format, bytes: &[u8]) {
    match import(format, &[("any", bytes)], &Settings::default()) {
        Ok(imported) => {
            let again = parse(&imported.toml, "import.toml", &Overrides::default());
            assert_eq!(again.unwrap_or_else(|e| panic!("{e}")), imported.host);
        }
        Err(errors) => {
            assert!(!errors.render(true).is_empty());
            assert!(errors.records().iter().all(|r| r.line >= 1 && r.column >= 1 && !r.expected.is_empty()));
        }
    }
}

/// Each task of a table and of a task set is what its line says.
#[test]
fn tables_and_task_sets_are_tasks_of_a_pool() {
    let host = samples(Format::Csv, &["tasks.csv"]).host;
    let us = Duration::from_us;
    let jobs = |host: &punctual_model::Host, n: usize| {
        let Work::Jobs { arrival, cost, deadline } = host.tasks[n].work else { panic!("jobs") };
        (arrival, cost.min, cost.max, deadline)
    };
    assert_eq!((host.pools[0].policy.info.name, host.processors), ("fixed-priority", 2));
    let camera = Arrival::Periodic { period: us(10_000), offset: us(500) };
    assert_eq!(jobs(&host, 0), (camera, us(1_200), us(2_500), us(8_000)));
    let Arrival::Sporadic { separation, .. } = jobs(&host, 1).0 else { panic!("sporadic") };
    assert_eq!((separation, jobs(&host, 1).2), (us(5_000), us(1_000)));
    let priorities: Vec<_> = host.tasks.iter().map(|task| task.params.priority).collect();
    assert_eq!(priorities, [Some(2), Some(1), Some(3)]);
    let host = samples(Format::SchedCat, &["taskset.xml"]).host;
    assert_eq!(host.pools[0].policy.info.name, "edf");
    let names: Vec<_> = host.tasks.iter().map(|task| task.name.as_str()).collect();
    assert_eq!(names, ["T1", "T2", "T7"]);
    let Arrival::Sporadic { separation, .. } = jobs(&host, 2).0 else { panic!("sporadic") };
    // 106000.3333333333 us and 60381.25000001 us.
    let ns = Duration::from_ns;
    assert_eq!((separation, jobs(&host, 2).2), (ns(106_000_333), ns(60_381_251)));
    assert_eq!(jobs(&host, 1).3, us(200_000));
    let ms = Settings { unit: Some(Duration::from_ms(1)), ..Settings::default() };
    let slower = import(Format::SchedCat, &[("t", b"<task period='9' wcet='2'/>")], &ms).expect("a task");
    assert_eq!(jobs(&slower.host, 0).2, us(2_000));
}

#[test]
fn one_task_set_of_a_test_point_is_chosen() {
    let point = |task_set: Option<usize>| {
        let settings = Settings { task_set, ..Settings::default() };
        try_samples(Format::SchedCat, &["testpoint.xml"], &settings)
    };
    let cost = |n: usize| {
        let host = point(Some(n)).unwrap_or_else(|e| panic!("{e}")).host;
        let Work::Jobs { cost, .. } = host.tasks[0].work else { panic!("jobs") };
        cost.max
    };
    assert_eq!([cost(1), cost(2)], [Duration::from_us(250), Duration::from_us(300)]);
    for wrong in [None, Some(0), Some(3)] {
        let errors = point(wrong).expect_err("one has to be chosen");
        assert_eq!(errors.records()[0].expected, "expected one of them: --task-set 1 to --task-set 2");
    }
}

#[test]
fn deep_nesting_is_refused_or_read_but_never_overflows_the_stack() {
    let deep = |open: &str, close: &str| open.repeat(100_000) + &close.repeat(100_000);
    survives(Format::RtApp, deep("[", "]").as_bytes());
    survives(Format::RtApp, format!("{{\"tasks\":{}}}", deep("{\"a\":", "}")).as_bytes());
    let components = deep("<component name='c' scheduler='EDF'>", "</component>");
    survives(Format::Carts, format!("<system os_scheduler='EDF'>{components}</system>").as_bytes());
    survives(Format::Libvirt, format!("<domain><name>a</name>{}</domain>", deep("<a>", "</a>")).as_bytes());
}

#[test]
fn many_equal_names_take_no_more_than_linear_time() {
    let row = "a 1 256 0\nb 2 256 0\na.b 3 256 0\n";
    let xl = format!("Name ID Weight Cap\n{}", row.repeat(10_000));
    assert_eq!(samples_of(Format::Xl, &xl).host.domains.len(), 3);
    let tasks = "\"t\":{\"run\":1},".repeat(20_000);
    let host = samples_of(Format::RtApp, &format!("{{\"tasks\":{{{tasks}}}}}")).host;
    assert_eq!(host.tasks.len(), 20_000);
}

fn samples_of(format: Format, text: &str) -> Imported {
    import(format, &[("made", text.as_bytes())], &Settings::default()).unwrap_or_else(|e| panic!("{e}"))
}

proptest! {
    #[test]
    fn no_bytes_make_an_import_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        for format in Format::ALL {
            survives(format, &bytes);
        }
    }

    #[test]
    fn damaged_samples_do_not_make_an_import_panic(
        which in 0usize..10, at in any::<prop::sample::Index>(), len in 0usize..30,
        with in prop::sample::select(
            vec!["", "0", "-1", "99999999999999999999", "<", "\"", "all", "0-", "}", "é"],
        ),
    ) {
        let all = [
            (Format::Libvirt, "video.xml"), (Format::Libvirt, "control.xml"), (Format::Xl, "xl.txt"),
            (Format::RtApp, "workload.json"), (Format::Carts, "system.xml"), (Format::Carts, "result.xml"),
            (Format::Xl, "example.cfg"), (Format::SchedCat, "taskset.xml"), (Format::Csv, "tasks.csv"),
            (Format::SimSo, "simulation.xml"),
        ];
        let (format, name) = all[which];
        let mut bytes = std::fs::read(dir().join(name)).unwrap();
        let start = at.index(bytes.len());
        let end = (start + len).min(bytes.len());
        bytes.splice(start..end, with.bytes());
        survives(format, &bytes);
    }
}
