//! What the command line does beyond what it prints: files, signals, pipes, threads.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

const FIVE: &str = "examples/five-vms.toml";

/// The program, started at the root of the repository.
fn punctual(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).args(args);
    command
}

fn run(args: &[&str]) -> Output {
    punctual(args).output().expect("the program starts")
}

fn stdout(args: &[&str]) -> String {
    let output = run(args);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&stdout(args)).expect("JSON alone")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory");
    let mut names: Vec<String> =
        entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn one_run_is_a_json_object_and_several_are_an_array() {
    let one = stdout(&["sim", FIVE, "--json"]);
    let results = punctual_report::json::from_json(&one, "one").expect("results");
    assert_eq!(punctual_report::json::to_json(&results), one);
    let several = json(&["sim", FIVE, "--json", "--policy", "rtds,edf"]);
    let policies: Vec<_> =
        several.as_array().expect("an array").iter().map(|r| &r["pools"][0]["policy"]).collect();
    assert_eq!(policies, ["rtds", "edf"]);
}

#[test]
fn costs_of_scheduling_come_from_another_file_or_by_name() {
    let directory = TempDir::new().expect("a directory");
    let file = directory.path().join("measured.toml");
    let show = |costs: &str| {
        let output = run(&["show", FIVE, "--overheads", costs]);
        (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    fs::write(&file, "[machine.overheads]\ndecision = '7us'\n").expect("written");
    let (status, said) = show(text(&file));
    assert!(status == Some(0) && said.contains("decision = \"7us\"\ncontext_switch = \"0ns\""), "{said}");
    let (status, said) = show("xen-4.0-p99");
    assert!(status == Some(0) && said.contains("context_switch = \"3807ns\""), "{said}");
    let (status, said) = show("xen-4.17");
    assert!(status == Some(2) && said.contains("published costs are xen-4.0, xen-4.0-p99"), "{said}");
    for (costs, message) in [
        ("[machine.overheads]\ndecision = '7'\n", "`decision` cannot be \"7\""),
        ("[machine]\nprocessors = 1\n", "this file does not say what scheduling costs"),
    ] {
        fs::write(&file, costs).expect("written");
        let (status, said) = show(text(&file));
        assert!(status == Some(2) && said.contains(message) && said.contains("measured.toml:"), "{said}");
    }
}

/// A table with `copies` is the tables that `show` prints, and so are its results.
#[test]
fn copies_are_simulated_and_checked_as_if_each_were_spelled_out() {
    let directory = TempDir::new().expect("a directory");
    let [short, long] = ["short.toml", "long.toml"].map(|name| directory.path().join(name));
    let host = "name = 'streams'\n[machine]\nprocessors = 2\n[pool.all]\npolicy = 'fixed-priority'\n\
                [domain.relay]\npriority = 2\ntask.trip = { period = '1ms', cost = '9us', copies = 3 }\n\
                [domain.switch]\npriority = 1\n[network.bus]\ndriver = 'switch'\noutside.unit = {}\n\
                [flow.sv]\nkind = 'periodic'\nfrom = 'unit'\nto = 'relay'\nperiod = '4kHz'\n\
                copies = 8\nstagger = '3us'\n";
    fs::write(&short, host).expect("written");
    let shown = stdout(&["show", text(&short)]);
    assert_eq!((shown.matches("[flow.sv-").count(), shown.matches("task.trip-").count()), (8, 3));
    fs::write(&long, shown).expect("written");
    for command in [&["sim", "--json", "--duration", "20ms"][..], &["sim", "--duration", "20ms"], &["check"]]
    {
        let of = |file: &Path| run(&[command, &[text(file)]].concat()).stdout;
        let printed = String::from_utf8(of(&short)).expect("text");
        assert!(printed.contains("trip-3") || printed.contains("sv-8"), "{printed}");
        assert!(printed.into_bytes() == of(&long), "{command:?}");
    }
}

/// Four vCPUs that always have work run for one budget, and leave the less urgent VM its time.
#[test]
fn a_vm_with_one_budget_for_its_vcpus_is_checked_simulated_and_exported() {
    let directory = TempDir::new().expect("a directory");
    let file = directory.path().join("host.toml");
    let host = "[machine]\nprocessors = 1\n[pool.rt]\npolicy = 'deferrable'\n\
                [domain.hmi]\nvcpus = 4\nbudget_of = 'vm'\nbudget = '3ms'\nperiod = '10ms'\npriority = 1\n\
                task.a = { hog = true, affinity = [0] }\ntask.b = { hog = true, affinity = [1] }\n\
                task.c = { hog = true, affinity = [2] }\ntask.d = { hog = true, affinity = [3] }\n\
                [domain.plc]\nbudget = '4ms'\nperiod = '10ms'\npriority = 2\n\
                task.loop = { period = '20ms', cost = '2ms' }\n";
    fs::write(&file, host).expect("written");
    let json = |args: &[&str]| -> Value {
        serde_json::from_str(&stdout(&[args, &["--json"]].concat())).expect("JSON")
    };
    let checked = json(&["check", text(&file)]);
    let budgets: Vec<_> = checked["vcpus"].as_array().expect("a list").iter().collect();
    let names: Vec<_> = budgets.iter().map(|vcpu| vcpu["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["hmi", "plc.0"], "{checked}");
    let simulated = json(&["sim", text(&file), "--duration", "1s"]);
    let vcpus = simulated["vcpus"].as_array().expect("a list");
    let ran = |vm: &str| -> u64 {
        let own = vcpus.iter().filter(|vcpu| vcpu["name"].as_str().is_some_and(|name| name.starts_with(vm)));
        own.map(|vcpu| vcpu["cpu_time_ns"].as_u64().expect("a time")).sum()
    };
    assert_eq!((ran("hmi"), ran("plc")), (300_000_000, 100_000_000), "{simulated}");
    let exported =
        run(&["export", text(&file), "--to", "libvirt", "--output", text(&directory.path().join("to"))]);
    let said = String::from_utf8_lossy(&exported.stderr).into_owned();
    assert!(said.contains("hmi: budget_of: each vCPU gets the budget that all share"), "{said}");
}

/// Lehoczky 1990: with deadlines beyond the period, the fifth job is the worst.
#[test]
fn check_decides_deadlines_beyond_the_period_and_says_how_late_a_job_is() {
    let directory = TempDir::new().expect("a directory");
    let file = directory.path().join("host.toml");
    let check = |deadline: &str| {
        let host = format!(
            "[machine]\nprocessors = 1\n[pool.all]\nprocessors = [0]\npolicy = 'fixed-priority'\n\
             [pool.all.task.first]\npriority = 1\nperiod = '70ms'\ncost = '26ms'\n\
             [pool.all.task.second]\npriority = 2\nperiod = '100ms'\ncost = '62ms'\n\
             deadline = '{deadline}'\n"
        );
        fs::write(&file, host).expect("written");
        let output = run(&["check", text(&file)]);
        let said = String::from_utf8_lossy(&output.stdout).replace("\n    ", " ");
        (output.status.code(), said + &String::from_utf8_lossy(&output.stderr))
    };
    let (status, said) = check("118ms");
    assert!(status == Some(0) && said.contains("guaranteed   118 ms    118 ms"), "{said}");
    let (status, said) = check("117ms");
    assert!(
        status == Some(1) && said.contains("misses the deadline at 517 ms by at least 1.00 ms"),
        "{said}"
    );
}

#[test]
fn a_synthesized_file_is_guaranteed_and_keeps_its_comments() {
    let directory = TempDir::new().expect("a directory");
    let file = directory.path().join("out.toml");
    // With the shares of RT-Xen's Table 3 the file's own periods do not do.
    let shares = ["2ms", "4ms", "6ms", "8ms", "10ms"];
    let shares = (1..).zip(shares).map(|(vm, budget)| format!("domain.vm{vm}.budget={budget}"));
    let shares: Vec<String> = shares.flat_map(|set| ["--set".to_owned(), set]).collect();
    let shares: Vec<&str> = shares.iter().map(String::as_str).collect();
    let refused = run(&[&["synthesize", FIVE], &shares[..]].concat());
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stdout).contains("--periods free"), "{refused:?}");
    let free = ["synthesize", FIVE, "--periods", "free", "--output"];
    let found = json(&[&free[..], &[text(&file), "--json"]].concat());
    assert_eq!((&found["found"], found["units"].as_array().map(Vec::len)), (&Value::Bool(true), Some(5)));
    let written = fs::read_to_string(&file).expect("written");
    assert!(written.contains("# A pool is a set of processors"), "{written}");
    stdout(&["check", text(&file)]);
    stdout(&["sim", text(&file), "--fail-on-miss"]);
    assert_eq!(stdout(&[&free[..], &["-"]].concat()), written);
    for vm in 1..=5 {
        let budget = &found["units"][vm - 1]["budget_ns"];
        let less = budget.as_u64().expect("ns") - 100_000;
        let less = format!("domain.vm{vm}.budget={less}ns");
        let checked = run(&["check", text(&file), "--set", &less]);
        assert_eq!(checked.status.code(), Some(if less.ends_with("=0ns") { 2 } else { 1 }), "{less}");
    }
}

#[test]
fn at_half_load_the_periods_of_the_file_do() {
    let half = ["synthesize", FIVE, "--set", "domain.*.generate.load=50%", "--json"];
    let found = json(&half);
    assert_eq!((&found["found"], &found["exact"]), (&Value::Bool(true), &Value::Bool(true)));
}

#[test]
fn the_number_of_threads_does_not_change_a_byte() {
    let sim = ["sim", FIVE, "--policy", "all", "--runs", "3", "--json", "--threads"];
    let sweep = [
        "sweep",
        FIVE,
        "--vary",
        "domain.*.generate.load=60%..90%:10%",
        "--runs",
        "2",
        "--json",
        "--threads",
    ];
    for args in [&sim[..], &sweep[..]] {
        let with = |threads| stdout(&[args, &[threads]].concat());
        let one = with("1");
        assert!(one == with("2") && one == with("7"), "{args:?}");
    }
}

#[test]
fn runs_are_the_seeds_from_the_first_on_merged() {
    let merged = json(&["sim", FIVE, "--seed", "5", "--runs", "2", "--json"]);
    let released = |results: &Value| results["pools"][0]["jobs"]["released"].as_u64().expect("a count");
    let single = |seed| released(&json(&["sim", FIVE, "--seed", seed, "--json"]));
    assert_eq!((&merged["seed"], &merged["runs"]), (&5.into(), &2.into()));
    assert_ne!(single("5"), single("6"), "each seed draws its own task set");
    assert_eq!(released(&merged), single("5") + single("6"));
}

#[test]
fn a_sweep_in_csv_has_a_line_per_point_that_equals_the_simulation_of_that_point() {
    let csv = stdout(&[
        "sweep",
        FIVE,
        "--vary",
        "domain.*.generate.load=90%,100%",
        "--policy",
        "edf,rtds",
        "--csv",
    ]);
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let header = reader.headers().expect("a header").clone();
    let column = |name| header.iter().position(|h| h == name).expect("the column is there");
    let mut points = Vec::new();
    for line in reader.records() {
        let line = line.expect("a line");
        let set = format!("domain.*.generate.load={}", &line[0]);
        let results = json(&["sim", FIVE, "--set", &set, "--policy", &line[1], "--json"]);
        let jobs = &results["pools"][0]["jobs"];
        assert_eq!(line[column("missed")], jobs["missed"].to_string());
        assert_eq!(line[column("p99_response_ns")], jobs["response"]["p99_ns"].to_string());
        points.push(format!("{} {}", &line[0], &line[1]));
    }
    assert_eq!(points, ["90% edf", "90% rtds", "100% edf", "100% rtds"]);
}

/// A host whose simulation takes no time, in a directory of its own.
fn sweep_host(duration: &str) -> (TempDir, PathBuf) {
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("host.toml");
    let task = "[domain.vm]\nbudget = '3ms'\nperiod = '10ms'\n\
                task.t = { separation = '20ms', cost = { min = '1ms', max = '9ms' } }\n";
    let text =
        format!("duration = '{duration}'\n[machine]\nprocessors = 1\n[pool.p]\npolicy = 'rtds'\n{task}");
    fs::write(&path, text).expect("written");
    (directory, path)
}

/// The files of points below a directory, with when they were written.
fn points(directory: &Path) -> Vec<(PathBuf, std::time::SystemTime)> {
    let folders = fs::read_dir(directory).into_iter().flatten().map(|entry| entry.expect("an entry").path());
    let files = folders.flat_map(|folder| fs::read_dir(folder).into_iter().flatten());
    let files = files.map(|entry| entry.expect("an entry").path());
    let complete = files.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
    let mut all: Vec<_> = complete
        .map(|path| (path.clone(), fs::metadata(path).and_then(|m| m.modified()).expect("a time")))
        .collect();
    all.sort();
    all
}

#[test]
fn a_hundred_shards_merged_are_the_bytes_of_one_run() {
    let (directory, host) = sweep_host("50ms");
    let store = directory.path().join("points");
    // Some points are no valid host, and some shards have none that is.
    let grid = ["sweep", text(&host), "--vary", "seed=1..60:1", "--vary", "domain.vm.budget=3ms,5ms,11ms"];
    let grid = [&grid[..], &["--skip-invalid", "--runs", "2", "--metric", "missed,schedulable"]].concat();
    let stored = [&grid[..], &["--resume", text(&store)]].concat();
    let with = |extra: &[&str]| run(&[&stored[..], extra].concat());
    let text_of = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    for number in 1..=100 {
        if number == 50 {
            let early = with(&["--merge", "--csv"]);
            assert_eq!((early.status.code(), early.stdout.len()), (Some(2), 0));
            let why = text_of(&early.stderr);
            assert!(why.contains("54 of 180 points are not there, the first at seed=17, "), "{why}");
        }
        let shard = with(&["--shard", &format!("{number}/100")]);
        assert_eq!(shard.status.code(), Some(0), "{}", text_of(&shard.stderr));
        assert!(
            text_of(&shard.stdout).contains("points of this shard are done"),
            "{}",
            text_of(&shard.stdout)
        );
    }
    let before = points(&store);
    assert_eq!(before.len(), 120);
    for form in [&["--csv"][..], &[]] {
        let alone = stdout(&[&grid[..], form].concat());
        let merged = with(&[form, &["--merge"]].concat());
        assert_eq!(text_of(&merged.stdout), alone, "{}", text_of(&merged.stderr));
        assert_eq!(text_of(&with(form).stdout), alone);
    }
    assert_eq!(points(&store), before, "points were computed again");
    // Whole results are more than the numbers of a table, so they are other points.
    assert_eq!(with(&["--merge", "--json"]).status.code(), Some(2));
    for number in ["1/3", "2/3", "3/3"] {
        with(&["--json", "--shard", number]);
    }
    let alone = stdout(&[&grid[..], &["--json"]].concat());
    assert!(text_of(&with(&["--merge", "--json"]).stdout) == alone);
}

#[test]
fn a_sweep_that_was_killed_goes_on_and_loses_no_finished_point() {
    let (directory, host) = sweep_host("20s");
    let store = directory.path().join("points");
    let grid = ["sweep", text(&host), "--vary", "seed=1..300:1", "--csv"];
    let stored = [&grid[..], &["--resume", text(&store)]].concat();
    let mut killed = punctual(&stored).arg("--threads=1").stdout(Stdio::null()).spawn().expect("it starts");
    let limit = Instant::now() + Duration::from_secs(60);
    while points(&store).len() < 3 && Instant::now() < limit {
        std::thread::sleep(Duration::from_millis(1));
    }
    killed.kill().expect("it is killed");
    killed.wait().expect("it ended");
    let before = points(&store);
    assert!((3..300).contains(&before.len()), "{} points", before.len());
    assert!(stdout(&stored) == stdout(&grid));
    let after = points(&store);
    assert_eq!(after.len(), 300);
    assert!(before.iter().all(|point| after.contains(point)), "a finished point was computed again");
    // Another file is another host, also where only a comment differs.
    let changed = fs::read_to_string(&host).expect("text") + "# changed\n";
    fs::write(&host, changed).expect("written");
    assert_eq!(run(&[&stored[..], &["--merge"]].concat()).status.code(), Some(2));
    // What is no point is refused by its name.
    fs::write(&before[0].0, "{").expect("written");
    let restored = fs::read_to_string(&host).expect("text").replace("# changed\n", "");
    fs::write(&host, restored).expect("written");
    let refused = run(&stored);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains(text(&before[0].0)));
}

#[test]
fn schedulability_in_a_sweep_is_what_check_says_of_each_seed_and_simulates_nothing() {
    let shared = ["--policy", "rtds", "--duration", "1000000s", "--set", "domain.*.generate.tasks=2"];
    let set = "domain.*.generate.load=40%";
    let grid = ["sweep", FIVE, "--vary", set, "--runs", "2", "--csv"];
    let metrics = ["--metric", "schedulable,guaranteed,refuted,weighted-schedulable"];
    let csv = stdout(&[&grid[..], &shared, &metrics].concat());
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let header = reader.headers().expect("a header").clone();
    let columns: Vec<&str> = header.iter().skip(5).collect();
    let expected = ["guaranteed_ppm", "refuted_ppm", "schedulable_ppm", "weighted_schedulable_ppm"];
    assert_eq!(columns, expected);
    let line = reader.records().next().expect("a point").expect("a line");
    let (mut tasks, mut guaranteed, mut refuted, mut schedulable) = (0, 0, 0, 0);
    for seed in ["1", "2"] {
        let check = ["check", FIVE, "--set", set, "--seed", seed, "--json"];
        let output = punctual(&[&check[..], &shared].concat()).output().expect("it starts");
        let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let of = |verdict| {
            let all = said["tasks"].as_array().expect("tasks");
            all.iter().filter(|task| task["verdict"] == verdict).count() as u64
        };
        tasks += said["tasks"].as_array().expect("tasks").len() as u64;
        guaranteed += of("guaranteed");
        refuted += of("not-guaranteed");
        schedulable += u64::from(output.status.code() == Some(0));
    }
    let ppm = |part: u64, whole: u64| ((part * 1_000_000 + whole / 2) / whole).to_string();
    assert_eq!(line[5], ppm(guaranteed, tasks));
    assert_eq!(line[6], ppm(refuted, tasks));
    assert_eq!(line[7], ppm(schedulable, 2));
}

#[test]
fn a_sweep_draws_its_first_metric_as_curves() {
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("curves.svg");
    let grid = ["sweep", FIVE, "--policy", "rtds,edf", "--metric", "schedulable", "--svg", text(&path)];
    let load = ["--vary", "domain.*.generate.load=40%,80%"];
    stdout(&[&grid[..], &load].concat());
    let svg = std::fs::read_to_string(&path).expect("a figure");
    for shown in ["domain.*.generate.load, %", "schedulable, %", ">rtds</text>", ">edf</text>"] {
        assert!(svg.contains(shown), "{shown}: {svg}");
    }
    // Two lines of two points, and the marks of the legend.
    assert_eq!(svg.matches("<circle").count(), 2 * 2 + 2);
    std::fs::remove_file(&path).expect("it was there");
    let tasks = ["--vary", "domain.*.generate.tasks=2,3"];
    for (more, said) in [
        (&tasks[..], "which key is on the horizontal axis? expected x, one of domain.*.generate.load"),
        (&["--x", "domain.vm.budget"], "the sweep does not vary domain.vm.budget; it varies"),
        (&["--x", "policy"], "the values of policy are no numbers of one unit"),
        (&["--vary", "seed=1..9:1", "--x", "domain.*.generate.load"], "14 lines at most"),
        (&["--vary", "seed=1,2", "--x", "seed", "--over", "seed"], "cannot be added up"),
    ] {
        // Nothing is computed before: this would take hours.
        let endless = ["--duration", "1000000s", "--runs", "9"];
        let refused = punctual(&[&grid[..], &load, more, &endless].concat()).output().expect("it starts");
        assert_eq!(refused.status.code(), Some(2), "{more:?}");
        let stderr = String::from_utf8_lossy(&refused.stderr);
        assert!(stderr.contains(said), "{more:?}: {stderr}");
        assert!(!path.exists());
    }
}

#[test]
fn an_artifact_makes_its_figures_again_byte_for_byte() {
    let directory = TempDir::new().expect("a directory");
    let at = directory.path().join("ecrts/paper");
    stdout(&["artifact", "new", text(&at), "--title", "Servers\nfor cores"]);
    let readme = std::fs::read_to_string(at.join("README.md")).expect("a README");
    assert!(readme.starts_with("# Artifact: Servers for cores\n") && !readme.contains('@'));
    let make = |targets: &[&str]| {
        let mut make = std::process::Command::new("make");
        make.current_dir(&at).args(targets).args(["RUNS=1", "LOADS=--vary 'domain.*.generate.load=50%,90%'"]);
        let made = make.arg(format!("PUNCTUAL={}", env!("CARGO_BIN_EXE_punctual"))).output();
        let made = made.expect("make is installed");
        let said = [made.stdout, made.stderr].concat();
        (made.status.success(), String::from_utf8_lossy(&said).into_owned())
    };
    let (is_made, said) = make(&["check"]);
    assert!(!is_made && said.contains("no SHA256SUMS"), "{said}");
    let (is_made, said) = make(&["sums"]);
    assert!(is_made && said.contains("schedulability ") && said.contains(" processors"), "{said}");
    // On another machine: the archive has no results yet.
    assert!(make(&["clean"]).0 && !at.join("results").exists());
    let (is_made, said) = make(&["figures", "check"]);
    assert!(is_made && said.contains("results/responses.csv: OK"), "{said}");
    std::fs::write(at.join("results/responses.csv"), "other").expect("a result");
    let (is_made, said) = make(&["check"]);
    assert!(!is_made && said.contains("results/responses.csv: FAILED"), "{said}");
    let (is_made, said) = make(&["figures", "VERSION=0.0.1"]);
    assert!(!is_made && said.contains("punctual 0.0.1 is needed, and this is: punctual "), "{said}");
    let refused = punctual(&["artifact", "new", text(&at)]).output().expect("it starts");
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is not empty"));
    assert!(std::fs::read(at.join("SHA256SUMS")).is_ok_and(|sums| !sums.is_empty()));
}

#[test]
fn the_jobs_file_agrees_with_the_results() {
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("jobs.csv");
    let late = ["sim", FIVE, "--policy", "edf", "--set", "domain.*.generate.load=100%", "--json", "--jobs"];
    let results = json(&[&late[..], &[text(&path)]].concat());
    let mut reader = csv::Reader::from_path(&path).expect("CSV");
    assert_eq!(reader.headers().expect("a header"), &csv::StringRecord::from(JOBS.to_vec()));
    let (mut released, mut completed, mut missed, mut last_finish) = (0, 0, 0, 0);
    let mut latest_start = 0;
    for line in reader.records() {
        let line = line.expect("a line");
        let cell = |name: &str| &line[JOBS.iter().position(|column| *column == name).expect("a column")];
        let number = |name: &str| cell(name).parse::<u64>().expect("a number");
        assert_eq!([cell("result"), cell("source"), cell("seed")], ["edf", "simulation", "1"]);
        released += 1;
        missed += u64::from(cell("missed") == "true");
        if !cell("start_ns").is_empty() {
            latest_start = latest_start.max(number("start_ns") - number("release_ns"));
        }
        if !cell("finish_ns").is_empty() {
            let finish = number("finish_ns");
            completed += 1;
            assert_eq!(finish - number("release_ns"), number("response_ns"));
            assert!((number("release_ns")..finish).contains(&number("start_ns")), "it starts before it ends");
            assert!(last_finish <= finish, "in the order of finishing");
            assert_eq!(cell("missed") == "true", finish > number("deadline_ns"));
            last_finish = finish;
        }
    }
    let jobs = &results["pools"][0]["jobs"];
    assert_eq!(jobs["released"], released);
    assert_eq!(jobs["completed"], completed);
    assert_eq!(jobs["missed"], missed);
    assert!(missed > 0, "a load of 100 % shows a miss");
    assert_eq!(jobs["start_latency"]["max_ns"], latest_start);
}

/// The columns of a file of jobs of `sim`.
const JOBS: [&str; 12] = [
    "result",
    "source",
    "host",
    "seed",
    "task",
    "job",
    "release_ns",
    "deadline_ns",
    "start_ns",
    "finish_ns",
    "response_ns",
    "missed",
];

/// The rows of a file of jobs, by the cells of these columns.
fn jobs_by(path: &Path, columns: &[&str]) -> Vec<(Vec<String>, Vec<String>)> {
    let mut reader = csv::Reader::from_path(path).expect("CSV");
    let header = reader.headers().expect("a header").clone();
    let at = |name: &str| header.iter().position(|column| column == name).expect("a column");
    let key: Vec<usize> = columns.iter().map(|name| at(name)).collect();
    let task = at("task");
    let row = |line: csv::StringRecord| {
        let key = key.iter().map(|at| line[*at].to_string()).collect();
        (key, line.iter().skip(task).map(String::from).collect())
    };
    reader.records().map(|line| row(line.expect("a line"))).collect()
}

/// Jobs of each seed and policy, in this order, as single runs list them.
#[test]
fn jobs_of_several_runs_are_those_of_each() {
    let directory = TempDir::new().expect("a directory");
    let [several, swept, single] =
        ["several.csv", "swept.csv", "single.csv"].map(|name| directory.path().join(name));
    let short = ["--duration", "200ms"];
    let of = |more: &[&str], path: &Path| {
        stdout(&[&["sim", FIVE], &short[..], more, &["--jobs", text(path)]].concat());
    };
    of(&["--policy", "rtds,edf", "--runs", "3"], &several);
    let mut expected = Vec::new();
    for policy in ["rtds", "edf"] {
        for seed in ["1", "2", "3"] {
            of(&["--policy", policy, "--seed", seed], &single);
            let rows = jobs_by(&single, &[]).into_iter();
            expected.extend(rows.map(|(_, row)| (vec![policy.to_owned(), seed.to_owned()], row)));
        }
    }
    assert!(expected.len() > 100, "{} jobs", expected.len());
    assert_eq!(jobs_by(&several, &["result", "seed"]), expected);
    let grid = ["sweep", FIVE, "--duration", "200ms", "--policy", "rtds,edf", "--runs", "3", "--csv"];
    let with_file = stdout(&[&grid[..], &["--jobs", text(&swept)]].concat());
    assert_eq!(with_file, stdout(&grid), "the same metrics as without the file");
    assert_eq!(jobs_by(&swept, &["policy", "seed"]), expected);
    let seeds = ["sweep", FIVE, "--duration", "200ms", "--vary", "seed=1..3:1", "--policy", "edf"];
    stdout(&[&seeds[..], &["--jobs", text(&swept)]].concat());
    assert_eq!(jobs_by(&swept, &["policy", "seed"]), expected[expected.len() / 2..], "one column of seeds");
    assert_eq!(names(directory.path()), ["several.csv", "single.csv", "swept.csv"]);
    let analysed = run(&[&grid[..8], &["--metric", "guaranteed", "--jobs", text(&swept)]].concat());
    assert!(String::from_utf8_lossy(&analysed.stderr).contains("ask for another metric"), "{analysed:?}");
}

#[test]
fn a_trace_begins_with_a_packet_and_names_the_domains() {
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("five.pftrace");
    stdout(&["sim", FIVE, "--trace", text(&path)]);
    let trace = fs::read(&path).expect("a trace");
    assert_eq!(trace[0], 0x0a, "field 1, length-delimited: a packet");
    assert!(trace.windows(3).any(|bytes| bytes == b"vm5"));
    assert_eq!(names(directory.path()), ["five.pftrace"], "nothing else is left behind");
}

#[test]
fn a_failed_run_leaves_the_old_file_as_it_was() {
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("jobs.csv");
    fs::write(&path, "precious").expect("a file");
    let output = run(&["sim", FIVE, "--jobs", text(&path), "--trace", "/dev/full"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(fs::read_to_string(&path).expect("still there"), "precious");
    assert_eq!(names(directory.path()), ["jobs.csv"]);
}

/// Host files and settings are edited by hand after they were written.
#[test]
fn files_to_edit_are_overwritten_only_when_told() {
    let directory = TempDir::new().expect("a directory");
    let (edited, drop_ins) = (directory.path().join("host.toml"), directory.path().join("settings"));
    let from = "crates/punctual-model/tests/import/workload.json";
    let commands: [(&[&str], &Path); 3] = [
        (&["import", "--from", "rt-app", from, "--output"], &edited),
        (&["synthesize", FIVE, "--periods", "free", "--output"], &edited),
        (&["export", FIVE, "--to", "libvirt", "--output"], &drop_ins),
    ];
    fs::create_dir(&drop_ins).expect("a directory");
    let files = [edited.clone(), drop_ins.join("vm5.xml")];
    for (args, output) in commands {
        files.iter().for_each(|file| fs::write(file, "precious").expect("a file"));
        let refused = run(&[args, &[text(output)]].concat());
        assert_eq!(refused.status.code(), Some(2), "{args:?}");
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(said.contains("exists already: --force overwrites it"), "{said}");
        let kept = |file: &PathBuf| fs::read_to_string(file).is_ok_and(|text| text == "precious");
        assert!(files.iter().all(kept), "{args:?}");
        assert_eq!(names(&drop_ins), ["vm5.xml"], "{args:?}");
        stdout(&[args, &[text(output), "--force"]].concat());
        assert!(!files.iter().all(kept), "{args:?}");
    }
}

#[test]
fn results_do_not_replace_the_file_that_they_are_of() {
    let directory = TempDir::new().expect("a directory");
    let [host, sim] = ["host.toml", "sim.json"].map(|name| directory.path().join(name));
    fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(FIVE), &host).expect("a file");
    fs::write(&sim, stdout(&["sim", FIVE, "--json"])).expect("a file");
    let costs = directory.path().join("costs.toml");
    fs::write(&costs, "[machine.overheads]\ndecision = '1us'\n").expect("a file");
    let commands: [(&[&str], &Path); 7] = [
        (&["sim", FIVE, "--overheads", text(&costs), "--jobs"], &costs),
        (&["sim", text(&host), "--jobs"], &host),
        (&["sim", text(&host), "--trace"], &host),
        (&["run", text(&host), "--output"], &host),
        (&["attach", text(&host), "--report"], &host),
        (&["report", text(&sim), "-o"], &sim),
        (&["compare", text(&sim), text(&sim), "--report"], &sim),
    ];
    for (args, output) in commands {
        let before = fs::read(output).expect("a file");
        let refused = run(&[args, &[text(output)]].concat());
        assert_eq!(refused.status.code(), Some(2), "{args:?}");
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(said.contains("is read by this command: write to another file"), "{said}");
        assert_eq!(fs::read(output).expect("still there"), before, "{args:?}");
    }
}

#[test]
fn output_files_have_ordinary_permissions_and_replace_what_a_link_points_to() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let directory = TempDir::new().expect("a directory");
    let [file, link, plain] = ["file", "link", "plain"].map(|name| directory.path().join(name));
    fs::write(&plain, "").expect("a file");
    fs::write(&file, "").expect("a file");
    symlink(&file, &link).expect("a link");
    stdout(&["sim", FIVE, "--jobs", text(&link)]);
    assert!(link.is_symlink());
    let mode = |path: &PathBuf| fs::metadata(path).expect("a file").permissions().mode();
    assert!(fs::read_to_string(&file).expect("text").starts_with("result,source,host,"));
    assert_eq!(mode(&file), mode(&plain));
}

#[test]
fn a_pipe_given_as_output_is_written_not_replaced() {
    let directory = TempDir::new().expect("a directory");
    let fifo = directory.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo is there").success());
    let reader = Command::new("cat").arg(&fifo).stdout(Stdio::piped()).spawn().expect("cat is there");
    stdout(&["sim", FIVE, "--jobs", text(&fifo)]);
    let read = reader.wait_with_output().expect("cat ends").stdout;
    assert!(read.starts_with(b"result,source,host,"));
    assert_eq!(names(directory.path()), ["fifo"]);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let mut child = punctual(&["sim", FIVE, "--policy", "all", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

#[test]
fn a_host_is_read_from_standard_input() {
    let mut child = punctual(&["sim", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let host = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(FIVE)).expect("the example");
    child.stdin.take().expect("a pipe").write_all(&host).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&output.stdout), stdout(&["sim", FIVE]));
}

/// A VM with two vCPUs on one processor.
const TWO_ON_ONE: &str = "duration = '100ms'\n[machine]\nprocessors = 1\n[pool.rt]\nprocessors = [0]\n\
                          policy = 'fixed-priority'\n[domain.vm]\nvcpus = 2\npriority = 1\n\
                          task.one = { hog = true, affinity = [0] }\n\
                          task.two = { hog = true, affinity = [1] }\n";

#[test]
fn more_vcpus_than_processors_are_warned_of_before_and_in_a_simulation() {
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("smp.toml");
    fs::write(&path, TWO_ON_ONE).expect("a file");
    let cure = "give pool `rt` 2 processors, or the domain `vcpus = 1`";
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).split_whitespace().collect::<Vec<_>>().join(" ");
    let checked = said(&run(&["check", text(&path)]).stdout);
    assert!(checked.contains("warning: vm: 2 vCPUs on 1 processor: "), "{checked}");
    assert!(checked.contains(cure) && checked.contains("bounds assume that its 2 vCPUs"), "{checked}");
    let simulated = run(&["sim", text(&path), "--policy", "fixed-priority,round-robin", "--json"]);
    let warned = said(&simulated.stderr);
    assert_eq!(warned.matches("warning: vm: 2 vCPUs on 1 processor: ").count(), 1, "{warned}");
    serde_json::from_slice::<Value>(&simulated.stdout).expect("JSON alone");
    let set = ["--set", "domain.vm.vcpus=1", "--set", "domain.vm.task.two.affinity=[0]"];
    let cured = run(&[&["sim", text(&path)], &set[..]].concat());
    assert_eq!((cured.status.code(), said(&cured.stderr)), (Some(0), String::new()));
}

#[test]
fn vcpus_of_a_vm_share_a_processor_by_turns() {
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("smp.toml");
    let strict = "vcpu.0 = { priority = 1 }\nvcpu.1 = { priority = 2 }";
    fs::write(&path, TWO_ON_ONE.replace("priority = 1", strict)).expect("a file");
    let results = json(&["sim", text(&path), "--json"]);
    for vcpu in [0, 1] {
        assert_eq!(results["vcpus"][vcpu]["cpu_time_ns"], 50_000_000, "{}", results["vcpus"]);
    }
}

#[test]
fn what_show_prints_simulates_to_the_same_jobs() {
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("spelled-out.toml");
    fs::write(&path, stdout(&["show", FIVE, "--seed", "3"])).expect("a file");
    assert_eq!(stdout(&["sim", text(&path)]), stdout(&["sim", FIVE, "--seed", "3"]));
    assert_eq!(stdout(&["show", text(&path)]), fs::read_to_string(&path).expect("text"));
}

#[test]
fn colour_is_for_terminals_unless_asked_for() {
    let coloured = |args: &[&str]| stdout(args).contains('\u{1b}');
    assert!(!coloured(&["sim", FIVE]));
    assert!(!coloured(&["sim", FIVE, "--color", "never"]));
    assert!(coloured(&["sim", FIVE, "--color", "always"]));
    let error = |args: &[&str]| run(args).stderr.contains(&0x1b);
    assert!(!error(&["sim", FIVE, "--set", "nonsense"]));
    assert!(error(&["--color=always", "sim", FIVE, "--set", "nonsense"]));
    assert!(error(&["--color", "always", "sim"]));
}

#[test]
fn a_manual_page_is_written_for_every_command() {
    let directory = TempDir::new().expect("a directory");
    let out = directory.path().join("man/man1");
    stdout(&["man", "--out", text(&out)]);
    let written = names(&out);
    assert!(
        written.contains(&"punctual.1".into()) && written.contains(&"punctual-sim.1".into()),
        "{written:?}"
    );
    for page in written {
        assert!(fs::read_to_string(out.join(&page)).expect("text").contains(".TH "), "{page}");
    }
    assert!(stdout(&["man"]).contains(".SH NAME"));
}

#[test]
fn completions_know_commands_and_policies() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = stdout(&["completions", shell]);
        assert!(script.contains("sweep") && script.contains("fail-on-miss"), "{shell}");
    }
    assert!(stdout(&["completions", "zsh"]).contains("deferrable"));
}

#[test]
fn every_policy_of_the_registry_is_described() {
    let all = json(&["policies", "--json"]);
    let names: Vec<_> =
        all.as_array().expect("an array").iter().map(|p| p["name"].as_str().expect("a name")).collect();
    let disciplines = punctual_net::registry::disciplines().iter().map(|d| d.name);
    let policies = punctual_sched::registry::policies().iter().map(|p| p.name);
    assert_eq!(names, policies.chain(disciplines).collect::<Vec<_>>());
    for name in names {
        let text = stdout(&["policies", name]);
        assert!(text.starts_with(&format!("{name}: ")) && text.contains("\nSource: "), "{text}");
        assert_eq!(json(&["policies", name, "--json"])["name"], name);
    }
}

/// Sends SIGINT after `ready`, or fails after a while.
fn interrupt(mut child: Child, ready: impl Fn() -> bool) -> Output {
    let started = Instant::now();
    while !ready() {
        assert!(started.elapsed() < Duration::from_secs(60), "never ready");
        assert!(child.try_wait().expect("a child").is_none(), "ended by itself");
        std::thread::sleep(Duration::from_millis(10));
    }
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill is there");
    assert!(kill.success());
    child.wait_with_output().expect("it ends")
}

#[test]
fn ctrl_c_removes_half_written_files_and_keeps_the_old_one() {
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("jobs.csv");
    fs::write(&path, "precious").expect("a file");
    let child = punctual(&["sim", FIVE, "--duration", "31536000s", "--jobs", text(&path)])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let half_written = || names(directory.path()).len() == 2;
    let output = interrupt(child, half_written);
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(names(directory.path()), ["jobs.csv"]);
    assert_eq!(fs::read_to_string(&path).expect("still there"), "precious");
}

#[test]
fn ctrl_c_ends_a_sweep_with_what_is_finished() {
    let args = ["sweep", FIVE, "--vary", "seed=1..200:1", "--duration", "100s", "--csv"];
    let child = punctual(&args).stdout(Stdio::piped()).spawn().expect("the program starts");
    // Its processor time, in ticks of 10 ms: a busy machine runs it late. It validates all points first; each
    // takes about 150 ms.
    let stat = format!("/proc/{}/stat", child.id());
    let ticks = || {
        let stat = fs::read_to_string(&stat).expect("it runs");
        let user = stat.rsplit(") ").next().and_then(|fields| fields.split(' ').nth(11));
        user.and_then(|field| field.parse::<u64>().ok()).expect("user time")
    };
    let output = interrupt(child, || ticks() > 200);
    assert_eq!(output.status.code(), Some(130));
    let csv = String::from_utf8(output.stdout).expect("text");
    let finished = csv.lines().count().saturating_sub(1);
    assert!(csv.starts_with("seed,runs,") && (1..200).contains(&finished), "{finished} points");
}

/// The results of a simulation in a file.
fn results_file(directory: &TempDir, name: &str, args: &[&str]) -> PathBuf {
    let path = directory.path().join(name);
    fs::write(&path, stdout(&[&["sim"][..], args, &["--json"][..]].concat())).expect("a file");
    path
}

#[test]
fn comparing_a_result_with_itself_finds_no_difference() {
    let directory = TempDir::new().expect("a directory");
    let one = results_file(&directory, "one.json", &[FIVE, "--duration", "2s"]);
    let other = results_file(&directory, "other.json", &[FIVE, "--duration", "2s"]);
    let args = ["compare", text(&one), text(&other), "--tolerance", "miss<=0%,p99<=0%,decisions<=0%"];
    assert!(stdout(&args).ends_with("Every difference is within the tolerance.\n"));
    let compared = json(&["compare", text(&one), text(&other), "--json"]);
    let rows = compared["rows"].as_array().expect("rows");
    assert!(rows.iter().any(|row| row["metric"] == "p99" && row["of"] == "vm1"), "{compared}");
    assert!(rows.iter().all(|row| row["differences"] == Value::from(vec![0])), "{compared}");
}

#[test]
fn three_results_stand_side_by_side_with_their_differences_to_the_first() {
    let directory = TempDir::new().expect("a directory");
    let sets = [[].as_slice(), &["--policy", "rtds"], &["--policy", "periodic"]];
    let files = sets.map(|set| {
        let name = format!("{}.json", set.join(""));
        results_file(&directory, &name, &[&[FIVE, "--duration", "1s"], set].concat())
    });
    let labels = ["--label", "simulated,Xen,Linux"];
    let args = [&["compare"], &files.each_ref().map(|file| text(file))[..], &labels[..]].concat();
    let said = stdout(&args);
    assert!(["simulated", "Xen", "Linux"].iter().all(|label| said.contains(label)), "{said}");
    let compared = json(&[&args[..], &["--json"]].concat());
    let rows = compared["rows"].as_array().expect("rows");
    let counts = |row: &Value| [&row["values"], &row["differences"]].map(|of| of.as_array().map(Vec::len));
    assert!(!rows.is_empty() && rows.iter().all(|row| counts(row) == [Some(3), Some(2)]), "{compared}");
}

#[test]
fn a_difference_beyond_the_tolerance_is_named_and_exits_with_1() {
    let directory = TempDir::new().expect("a directory");
    let full = results_file(&directory, "full.json", &[FIVE, "--duration", "5s"]);
    let little = ["--set", "domain.vm5.budget=1ms"];
    let short = results_file(&directory, "short.json", &[&[FIVE, "--duration", "5s"], &little[..]].concat());
    let compare = |tolerance| run(&["compare", text(&full), text(&short), "--tolerance", tolerance]);
    let beyond = compare("p99<=20%,cpu<=5%");
    assert_eq!(beyond.status.code(), Some(1));
    let said = String::from_utf8(beyond.stdout).expect("text");
    assert!(said.contains(&format!("{}: vm5: p99: +", text(&short))), "{said}");
    assert!(said.contains(&format!("{}: vm5.0: cpu: -", text(&short))), "{said}");
    assert!(said.ends_with("\nBeyond the tolerance: 2.\n"), "{said}");
    assert_eq!(compare("p99<=100000%,cpu<=100%").status.code(), Some(0));
    let wrong = compare("mis<=1%");
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("did you mean `miss`?"));
}

#[test]
fn results_of_different_hosts_are_not_compared() {
    let directory = TempDir::new().expect("a directory");
    let five = results_file(&directory, "five.json", &[FIVE, "--duration", "1s"]);
    let two = results_file(&directory, "two.json", &["docs/tutorial/two-vms.toml", "--duration", "1s"]);
    let output = run(&["compare", text(&five), text(&two)]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("expected results of the same host"), "{said}");
    let host = run(&["compare", text(&five), FIVE]);
    assert!(String::from_utf8_lossy(&host.stderr).contains(&format!("{FIVE}:1:1: ")), "{host:?}");
}

/// A directory with the files of a machine of two processors.
fn machine(runtime_us: &str) -> TempDir {
    let directory = TempDir::new().expect("a directory");
    for (path, text) in [
        ("sys/devices/system/cpu/online", "0-1\n"),
        ("proc/sys/kernel/sched_rt_runtime_us", runtime_us),
        ("proc/sys/kernel/sched_rt_period_us", "1000000\n"),
    ] {
        let path = directory.path().join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        fs::write(path, text).expect("a file");
    }
    directory
}

#[test]
fn the_doctor_warns_with_exit_code_1_and_says_what_a_run_would_change() {
    let throttled = machine("950000\n");
    let output = run(&["doctor", "--root", text(throttled.path())]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stdout).expect("text");
    assert!(said.starts_with("Processors of pools: 1 of 0-1"), "{said}");
    let warned = said.split("\nUnknown").next().expect("a part before the unknowns");
    assert!(warned.contains("rt-throttling"), "{said}");
    assert!(said.contains("  /proc/sys/kernel/sched_rt_runtime_us: 950000 -> -1\n"), "{said}");
    assert!(said.lines().all(|line| line.chars().count() <= 100 || line.contains("$ ")), "{said}");

    let free = machine("-1\n");
    let findings = json(&["doctor", "--root", text(free.path()), "--json"]);
    let of = |id: &str| {
        let all = findings["findings"].as_array().expect("findings");
        all.iter().find(|finding| finding["id"] == id).expect("a finding").clone()
    };
    assert_eq!(of("rt-throttling")["severity"], "ok");
    assert_eq!(of("steal")["severity"], "unknown");
    assert_eq!(findings["pool"], Value::from(vec![1]));
}

#[test]
fn the_doctor_explains_a_check_and_takes_the_processors_from_a_host_file() {
    let machine = machine("-1\n");
    let explained = stdout(&["doctor", "--root", text(machine.path()), "--explain", "rt-throttling"]);
    for part in ["why ", "source ", "judged ", "ok: real-time threads are not throttled\n"] {
        assert!(explained.contains(part), "{explained}");
    }
    let unknown = run(&["doctor", "--explain", "rt-throtling"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("'rt-throttling'"), "{unknown:?}");
    // The pool of this file is processor 0, and something is left besides it.
    let findings = json(&["doctor", "docs/tutorial/two-vms.toml", "--root", text(machine.path()), "--json"]);
    assert_eq!(findings["pool"], Value::from(vec![0]));
    let nowhere = run(&["doctor", "--root", "/nowhere"]);
    assert_eq!(nowhere.status.code(), Some(2));
    let expected =
        "error: /nowhere is not a running Linux system: /sys/devices/system/cpu/online: no such file\n";
    assert_eq!(String::from_utf8_lossy(&nowhere.stderr), expected);
}

#[test]
fn calibration_writes_medians_into_a_host_file_and_leaves_its_comments() {
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("host.toml");
    let before =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(FIVE)).expect("text");
    fs::write(&path, &before).expect("a file");
    let written = json(&["calibrate", "--seconds", "1", "--json", "--write", text(&path)]);
    let after = fs::read_to_string(&path).expect("text");
    let comments =
        |text: &str| text.lines().filter(|line| line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(comments(&after), comments(&before));
    let host =
        punctual_model::file::load(&path, &punctual_model::file::Overrides::default()).expect("a host file");
    let switch = written["overheads_ns"]["context_switch"].as_u64();
    assert_eq!(Some(host.overheads.context_switch.as_ns()), switch);
    assert_ne!(switch, Some(0));
    assert_eq!(written["switches"][0]["network"], serde_json::Value::Null);

    let network = directory.path().join("network.toml");
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/network.toml");
    fs::copy(example, &network).expect("a copy");
    let written = json(&["calibrate", "--seconds", "1", "--json", "--write", text(&network)]);
    let host = punctual_model::file::load(&network, &punctual_model::file::Overrides::default());
    let costs = host.expect("a host file").networks[0].costs;
    let measured = &written["switches"][0];
    assert_eq!(
        (measured["network"].as_str(), measured["discipline"].as_str()),
        (Some("lan"), Some("netback"))
    );
    let measured = |key: &str| measured["costs_ns"][key].as_u64();
    assert_eq!(measured("interrupt"), Some(costs.interrupt.as_ns()));
    assert_eq!(measured("rx"), Some(costs.rx.as_ns()));
    assert!(costs.interrupt > costs.tx && costs.rx.as_ns() > 0, "{costs:?}");

    let missing = run(&["calibrate", "--write", "/nowhere/host.toml"]);
    assert_eq!(missing.status.code(), Some(2));
    let elsewhere = run(&["calibrate", "--processor", "100000"]);
    assert!(String::from_utf8_lossy(&elsewhere.stderr).contains("this process may use"), "{elsewhere:?}");
}

#[test]
fn ctrl_c_ends_a_calibration_and_leaves_the_host_file_alone() {
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("host.toml");
    let host = "[machine]\nprocessors = 1\n\n[pool.p]\npolicy = \"rtds\"\n";
    fs::write(&path, host).expect("a file");
    let args = ["calibrate", "--seconds", "3600", "--write", text(&path)];
    let child = punctual(&args).stdout(Stdio::piped()).spawn().expect("the program starts");
    let started = Instant::now();
    let output = interrupt(child, || started.elapsed() > Duration::from_secs(1));
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(
        (names(directory.path()), fs::read_to_string(&path).expect("text")),
        (vec!["host.toml".into()], host.into())
    );
}

#[test]
fn arguments_need_not_be_text() {
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join(OsStr::from_bytes(b"\xff.toml"));
    fs::write(&path, "[machine]\nprocessors = 1\n\n[pool.p]\npolicy = \"rtds\"\n").expect("a file");
    let shown = punctual(&["show"]).arg(&path).output().expect("the program starts");
    assert_eq!(shown.status.code(), Some(0), "{}", String::from_utf8_lossy(&shown.stderr));
    let mut hook = punctual(&["hook", "--socket", "/nowhere", "--"]);
    hook.arg(OsStr::from_bytes(b"\xff")).args(["start", "begin"]);
    let hook = hook.output().expect("the program starts");
    assert_eq!(hook.status.code(), Some(2), "{}", String::from_utf8_lossy(&hook.stderr));
}
