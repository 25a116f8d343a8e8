//! One hostile guest beside four honest ones: it ruins its own measurement and nobody else's.
//!
//! The hostile guest is this test's own program, started again as `hostile_guest`: an honest guest whose
//! answers are changed on their way.

mod common;

use std::io::{self, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use common::faults::{Victims, rounds};
use common::live::{needs, undisturbed};
use punctual_guest::protocol::{self, JobTimes, Mode, Reply, TaskProgress};
use punctual_guest::serve::serve;
use serde_json::Value;

/// What a hostile guest does, and what the host must say of it. The first ones are quick; those after
/// [`QUICK`] make the host wait for half a minute.
const MODES: [(&str, &str); 16] = [
    ("garbage", "lied"),
    ("flood", "lied"),
    ("too-many-jobs", "lied"),
    ("close", "stopped-telling"),
    ("silence-from-the-start", "stopped-telling"),
    ("close-at-the-start", "stopped-telling"),
    ("garbage-at-the-start", "lied"),
    ("garbage-in-calibration", "lied"),
    ("close-in-calibration", "stopped-telling"),
    ("endless-line", "lied"),
    ("unknown-task", "lied"),
    ("before-release", "lied"),
    ("early-end", "lied"),
    ("finished-too-many", "lied"),
    ("left-out", "stopped-telling"),
    ("silence", "stopped-telling"),
];
const QUICK: usize = 7;

/// How long a guest has to announce itself, in s.
const BOOT_S: &str = "2";

/// What the run writes to a terminal, if it is not escaped: a title and a cleared screen.
const ESCAPES: &str = "\u{1b}]0;pwned\u{7}\u{1b}[2J";

/// Answers on their way to the host.
struct Answers {
    host: UnixStream,
    mode: String,
    line: Vec<u8>,
}

impl Write for Answers {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.extend_from_slice(bytes);
        if self.line.ends_with(b"\n") {
            let line = std::mem::take(&mut self.line);
            let reply: Reply = protocol::receive(&mut BufReader::new(&line[..])).map_err(io::Error::other)?;
            self.answer(reply)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Answers {
    fn answer(&mut self, mut reply: Reply) -> io::Result<()> {
        let is_report = matches!(reply, Reply::Progress { .. } | Reply::Jobs { .. } | Reply::Result(_));
        match (self.mode.as_str(), &mut reply) {
            ("silence-from-the-start", _) => std::thread::sleep(Duration::from_secs(1000)),
            ("close-at-the-start", _) => std::process::exit(1),
            ("garbage-at-the-start", _) => self.raw(format!("{ESCAPES}\n").as_bytes())?,
            ("garbage-in-calibration", Reply::Calibrated(_)) => self.raw(ESCAPES.as_bytes())?,
            ("close-in-calibration", Reply::Calibrated(_)) => std::process::exit(1),
            ("garbage", _) if is_report => self.raw(format!("{{\"{ESCAPES}\":1}}\n").as_bytes())?,
            ("close", _) if is_report => std::process::exit(1),
            ("silence", _) if is_report => std::thread::sleep(Duration::from_secs(1000)),
            ("flood", Reply::Progress { .. }) => while protocol::send(&mut self.host, &reply).is_ok() {},
            ("endless-line", _) if is_report => while self.raw(&[b'['; 4096]).is_ok() {},
            ("finished-too-many", Reply::Progress { tasks }) => {
                *tasks = vec![TaskProgress { finished: 1_000_000, late: 0 }; tasks.len()];
            }
            ("too-many-jobs", Reply::Jobs { jobs, .. }) => jobs.extend(jobs.clone()),
            ("unknown-task", Reply::Jobs { task, .. }) => *task = 77,
            ("before-release", Reply::Jobs { jobs, .. }) => jobs[1].start_ns = Some(0),
            ("left-out", Reply::Jobs { jobs, .. }) => jobs.truncate(1),
            ("left-out", Reply::Result(result)) => result.tasks[0].jobs = 1,
            ("early-end", Reply::Progress { .. }) => {
                let job = JobTimes { release_ns: 0, start_ns: Some(0), finish_ns: Some(1) };
                reply = Reply::Jobs { task: 0, jobs: vec![job] };
            }
            _ => {}
        }
        protocol::send(&mut self.host, &reply)
    }

    fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.host.write_all(bytes)
    }
}

/// No test: what the runs below start as a guest. Its channel is its standard input.
#[test]
#[ignore = "a program for the other tests"]
fn hostile_guest() {
    let Ok(mode) = std::env::var("PUNCTUAL_TEST_HOSTILE") else { return };
    let channel = io::stdin().as_fd().try_clone_to_owned().expect("a descriptor");
    let host = UnixStream::from(channel);
    let reader = host.try_clone().expect("a descriptor");
    let mut answers = Answers { host, mode, line: Vec::new() };
    // The host may be gone before it ends.
    let _ = serve(Mode::Vcpu, &mut BufReader::new(reader), &mut answers);
}

/// A program that is a guest with this mode.
fn program(victims: &Victims, mode: &str) -> String {
    let path = victims.directory().join(format!("guest-{mode}"));
    let test = std::env::current_exe().expect("a program");
    let text = format!(
        "#!/bin/sh\nexport PUNCTUAL_TEST_HOSTILE={mode}\n\
         exec '{}' --exact hostile_guest --ignored --quiet --test-threads=1 >/dev/null 2>&1\n",
        test.display()
    );
    std::fs::write(&path, text).expect("a program");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("executable");
    path.display().to_string()
}

/// Four honest domains and one that is asked for the same.
fn host(victims: &Victims) -> String {
    let domain = |name: &str, priority: u32| {
        format!(
            "[domain.{name}]\nbudget = \"2ms\"\nperiod = \"20ms\"\npriority = {priority}\n\
             task.loop = {{ period = \"40ms\", cost = \"1ms\" }}\n"
        )
    };
    let names = ["hostile", "a", "b", "c", "d"];
    let domains: String = names.iter().zip(1..).map(|(name, priority)| domain(name, priority)).collect();
    let text = format!(
        "name = \"five\"\n[machine]\nprocessors = 2\n[pool.guests]\nprocessors = [1]\n\
         policy = \"deferrable\"\n{domains}"
    );
    let path = victims.directory().join("five.toml");
    std::fs::write(&path, text).expect("a host file");
    path.display().to_string()
}

/// Runs the five domains for two seconds.
fn run(victims: &Victims, mode: Option<&str>, more: &[&str]) -> Output {
    let host = host(victims);
    let mut arguments = vec!["run", &host, "--as", "process", "--duration", "2s", "--boot-s", BOOT_S];
    let hostile = mode.map(|mode| format!("hostile={}", program(victims, mode)));
    arguments.extend(hostile.iter().flat_map(|hostile| ["--guest-program", hostile]));
    arguments.extend(more);
    victims.punctual(&arguments).stdin(Stdio::null()).output().expect("it runs")
}

fn results(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// Jobs due and missed of a domain.
fn jobs(domain: &Value) -> (u64, u64) {
    let count = |key: &str| domain["jobs"][key].as_u64().expect("a count");
    (count("due"), count("missed"))
}

#[test]
fn a_hostile_guest_ends_its_own_measurement_and_nobody_elses() {
    let Some(_turn) = needs() else { return };
    let victims = Victims::bystanders("hostile");
    let before = victims.state();
    let honest = |results: &Value| (1..5).map(|n| jobs(&results["domains"][n])).collect::<Vec<_>>();
    let alone = run(&victims, None, &["--json"]);
    assert_eq!(alone.status.code(), Some(0), "{}", String::from_utf8_lossy(&alone.stderr));
    println!("| hostile guest | its verdict | its jobs due, missed | the four honest ones' |");
    println!("| none | - | {:?} | {:?} |", jobs(&results(&alone)["domains"][0]), honest(&results(&alone)));
    let modes = if rounds() > 15 { MODES.len() } else { QUICK };
    for (mode, fault) in &MODES[..modes] {
        undisturbed(|| {
            let start = Instant::now();
            let output = run(&victims, Some(mode), &["--json"]);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(5), "{mode}: {said}");
            let results = results(&output);
            let hostile = &results["domains"][0];
            assert_eq!(hostile["verdict"]["fault"].as_str(), Some(*fault), "{mode}: {said}");
            let (due, missed) = jobs(hostile);
            println!(
                "| {mode} | {fault} | {:?} | {:?} | {:.1?}",
                (due, missed),
                honest(&results),
                start.elapsed()
            );
            assert!(due == 50 && missed > 0, "{mode}: {due} due, {missed} missed");
            for n in 1..5 {
                let domain = &results["domains"][n];
                let (due, missed) = jobs(domain);
                assert!(domain.get("verdict").is_none(), "{mode}: {domain}");
                judge!(due == 50 && missed <= 5, "{mode}: {n}: {missed} of {due} missed");
            }
            assert!(!said.contains('\u{1b}') && !said.contains('\u{7}'), "{mode}: {said:?}");
            assert!(said.contains("domain `hostile`: its guest"), "{mode}: {said}");
            assert_eq!(victims.state(), before, "{mode}");
            Ok(())
        });
    }
}

#[test]
fn where_every_guest_is_silent_from_the_start_there_is_no_run() {
    let Some(_turn) = needs() else { return };
    let victims = Victims::bystanders("silent");
    let before = victims.state();
    let silent = program(&victims, "silence-from-the-start");
    let silent = ["hostile", "a", "b", "c", "d"].map(|name| format!("{name}={silent}"));
    let more: Vec<&str> = silent.iter().flat_map(|program| ["--guest-program", program]).collect();
    let start = Instant::now();
    let output = run(&victims, None, &more);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("domain `hostile` did not start: the guest did not answer within 2 s"), "{said}");
    // They are waited for together.
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    assert_eq!(victims.state(), before);
}

#[test]
fn a_verdict_stands_in_text_and_report_and_fails_on_miss() {
    let Some(_turn) = needs() else { return };
    let victims = Victims::bystanders("verdict");
    let report = victims.directory().join("report.html").display().to_string();
    let output = run(&victims, Some("garbage"), &["--fail-on-miss", "--report", &report]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("hostile: its guest violated the protocol"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text:?}");
    let page = std::fs::read_to_string(report).expect("a report");
    assert!(page.contains("hostile: its guest violated the protocol"), "the page does not tell");
}
