//! `punctual certify` on this machine: verdicts that hold, a host that is made worse on purpose, certificates
//! that are changed afterwards. Processor 1 alone is measured.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use common::faults::{signal, wait};
use common::live::{PROCESSOR, needs};
use punctual_linux::os::sched::{self, Attributes};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_punctual");
/// Nothing on a machine that runs tests at all takes a minute.
const GENEROUS: &str = "[host.wakeup]\nmax_us = 60_000_000\n[host.hardware]\nmax_us = 60_000_000\n";
/// No processor wakes a thread within the time of ten cache misses, 500 times in a row.
const IMPOSSIBLE: &str = "[host.wakeup]\nmax_us = 1\n";

/// A directory of a test with the files that it writes.
struct Desk(tempfile::TempDir);

impl Desk {
    fn new() -> Desk {
        Desk(tempfile::tempdir().expect("a directory"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str, text: &str) -> String {
        std::fs::write(self.path(name), text).expect("written");
        self.path(name).display().to_string()
    }
}

fn certify(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).arg("certify").args(arguments).output().expect("it starts")
}

/// Measures for a moment.
fn measure(arguments: &[&str]) -> Output {
    let processor = PROCESSOR.to_string();
    let common = ["--for", "1s", "--processors", &processor];
    certify(&[&common, arguments].concat())
}

fn status(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("{output:?}"))
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).expect("written")).expect("JSON")
}

/// A thread that takes the processor for 20 of every 50 ms, and ends itself after 20 s.
struct Hog(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl Hog {
    fn start() -> Hog {
        let stop = Arc::new(AtomicBool::new(false));
        let own = stop.clone();
        let work = move || {
            sched::set_affinity(0, &[PROCESSOR]).expect("a processor");
            sched::set_attributes(0, &Attributes::fifo(90)).expect("real-time");
            let end = Instant::now() + Duration::from_secs(20);
            while !own.load(Ordering::Relaxed) && Instant::now() < end {
                let until = Instant::now() + Duration::from_millis(20);
                while Instant::now() < until {
                    std::hint::spin_loop();
                }
                std::thread::sleep(Duration::from_millis(30));
            }
        };
        Hog(stop, std::thread::Builder::new().name("fifo hog".into()).spawn(work).ok())
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.take().map(JoinHandle::join);
    }
}

#[test]
fn generous_limits_hold_and_impossible_ones_fail() {
    let Some(_turn) = needs() else { return };
    let desk = Desk::new();
    let (json, page) = (desk.path("a.json"), desk.path("a.html"));
    let limits = desk.file("generous.toml", GENEROUS);
    let outputs = ["-o", json.to_str().expect("text"), "--report", page.to_str().expect("text")];
    let passed = measure(&[&outputs[..], &["--limits", &limits]].concat());
    assert_eq!(status(&passed), 0, "{passed:?}");
    assert!(stdout(&passed).contains("Passed: Every limit holds."), "{}", stdout(&passed));
    let certificate = read(&json);
    let places: Vec<(&str, u64)> = certificate["measurements"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| (one["measure"].as_str().expect("text"), one["processor"].as_u64().expect("a number")))
        .collect();
    assert_eq!(places, [("wakeup", 1), ("noise", 1), ("hardware", 1)]);
    let count = |at: usize| certificate["measurements"][at]["latencies"]["count"].as_u64().expect("a count");
    assert_eq!(count(0) + certificate["measurements"][0]["skipped"].as_u64().expect("a count"), 500);
    let text = std::fs::read_to_string(page).expect("a page");
    assert!(text.contains("Passed") && text.contains("kernel release"));

    // The same measurements under other limits need no other measurement, but this is what a user does.
    let limits = desk.file("impossible.toml", IMPOSSIBLE);
    let failed = measure(&["--limits", &limits]);
    assert_eq!(status(&failed), 1, "{failed:?}");
    let line = "wakeup of processor 1: max is ";
    assert!(stdout(&failed).contains("Failed: A limit is exceeded."), "{}", stdout(&failed));
    assert!(stdout(&failed).contains(line) && stdout(&failed).contains("the limit is 1.00 us"));
}

#[test]
fn a_host_that_is_made_worse_fails_with_the_thread_named_and_is_worse_than_its_baseline() {
    let Some(_turn) = needs() else { return };
    let desk = Desk::new();
    let before = desk.path("before.json").display().to_string();
    assert_eq!(status(&measure(&["-o", &before])), 0);
    let limits = desk.file("limits.toml", "[host.wakeup]\nmax_us = 15000\n");
    let after = desk.path("after.json");
    let output = {
        let _hog = Hog::start();
        let after = after.display().to_string();
        measure(&["--limits", &limits, "-o", &after, "--baseline", &before])
    };
    assert_eq!(status(&output), 1, "{output:?}");
    let text = stdout(&output);
    assert!(text.contains("worse: wakeup of processor 1, max: "), "{text}");
    assert!(text.contains("Failed: A limit is exceeded."), "{text}");
    let certificate = read(&after);
    if certificate["conduct"]["causes"].as_str().is_some_and(|causes| causes.starts_with("not known")) {
        eprintln!("not judged: this kernel permits no record of switches");
        return;
    }
    for measure in [0, 1] {
        let worst = &certificate["measurements"][measure]["worst"][0];
        let who = worst["causes"][0]["who"].as_str().unwrap_or_default();
        assert!(who.contains("(fifo hog) (SCHED_FIFO 90, thread "), "{worst:#}");
    }
    // Compared afterwards, the two say the same, and so does a directory with the first.
    let directory = desk.path("baselines");
    std::fs::create_dir(&directory).expect("made");
    let directory = directory.display().to_string();
    let empty = certify(&["--baseline", &directory, &after.display().to_string()]);
    assert_eq!(status(&empty), 2, "{empty:?}");
    std::fs::copy(&before, desk.path("baselines/1.json")).expect("copied");
    assert_eq!(status(&certify(&["--baseline", &directory, &before])), 0, "the same certificate");
    assert_eq!(status(&certify(&["--baseline", &directory, &after.display().to_string()])), 1);
    let again = certify(&["--baseline", &before, &after.display().to_string(), "--json"]);
    let comparison: Value = serde_json::from_slice(&again.stdout).expect("JSON");
    let is_worse = |row: &Value| row["statistic"] == "max" && row["change"] == "worse";
    assert!(comparison["rows"].as_array().expect("a list").iter().any(is_worse), "{comparison:#}");
    assert_eq!(status(&again), 1);
}

#[test]
fn a_changed_certificate_is_found() {
    let desk = Desk::new();
    let json = desk.path("a.json").display().to_string();
    let measured = certify(&["--for", "200ms", "--processors", "0", "--priority", "0", "-o", &json]);
    assert_eq!(status(&measured), 0, "{measured:?}");
    let unchanged = certify(&["--verify", &json]);
    assert_eq!(status(&unchanged), 0, "{unchanged:?}");
    assert!(stdout(&unchanged).contains("a.json is unchanged: "), "{}", stdout(&unchanged));
    let text = std::fs::read_to_string(&json).expect("written");
    let changed = desk.file("b.json", &text.replacen("\"processor\": 0", "\"processor\": 7", 1));
    for arguments in [vec!["--verify", &changed], vec!["--baseline", &json, &changed]] {
        let refused = certify(&arguments);
        assert_ne!(status(&refused), 0, "{arguments:?}");
        let error = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(error.contains("b.json was changed after it was written: its SHA-256 is "), "{error}");
    }
}

#[test]
fn an_interrupted_test_keeps_what_was_measured_and_is_incomplete() {
    let desk = Desk::new();
    let json = desk.path("a.json");
    let mut program = Command::new(PROGRAM);
    program.args(["certify", "--for", "1h", "--processors", "0", "--priority", "0", "-o"]).arg(&json);
    program.stdout(Stdio::null()).stderr(Stdio::null());
    let mut program = program.spawn().expect("it starts");
    std::thread::sleep(Duration::from_millis(700));
    signal(program.id(), "INT");
    assert_eq!(program.wait().expect("it ends").code(), Some(5));
    let certificate = read(&json);
    assert_eq!(certificate["verdict"]["outcome"], "incomplete");
    assert_eq!(certificate["verdict"]["missing"][0], "the test was stopped before its time");
    assert!(certificate["measurements"][0]["latencies"]["count"].as_u64().is_some(), "{certificate:#}");
    assert_eq!(status(&certify(&["--verify", &json.display().to_string()])), 0);
}

#[test]
fn a_guest_is_measured_by_the_same_loops_and_one_that_fails_makes_the_certificate_incomplete() {
    let desk = Desk::new();
    let json = desk.path("a.json").display().to_string();
    let limits = desk.file("limits.toml", "[guest.here.wakeup]\nmax_us = 60_000_000\n");
    let fair = ["--for", "400ms", "--processors", "0", "--priority", "0", "--limits", &limits, "-o", &json];
    let here = ["--guest-command", "here=sh -c"];
    let passed = certify(&[&fair[..], &here].concat());
    assert_eq!(status(&passed), 0, "{passed:?}");
    let certificate = read(Path::new(&json));
    let of_guest = certificate["verdict"]["checks"][0]["guest"].as_str();
    assert_eq!(of_guest, Some("here"));
    let broken = certify(&[&fair[..], &["--guest-command", "here=echo no such guest >&2; false"]].concat());
    assert_eq!(status(&broken), 5, "{broken:?}");
    assert!(stdout(&broken).contains("guest here: exit status: 1: no such guest"), "{}", stdout(&broken));
}

/// QEMU's guest agent, as a program of this machine whose socket is no port of a VM, and a `virsh` that hands
/// what it is asked to that socket, as libvirt does to the port of its VM.
struct GuestAgent(std::process::Child);

const VIRSH: &str = r#"#!/usr/bin/env python3
import os, socket, sys
assert sys.argv[1:4] == ["--quiet", "qemu-agent-command", "--timeout"] and sys.argv[5] == "--", sys.argv
if sys.argv[6] != "vm1":
    sys.exit(f"error: failed to get domain '{sys.argv[6]}'")
with socket.socket(socket.AF_UNIX) as agent:
    agent.connect(os.path.join(os.path.dirname(sys.argv[0]), "vm1.sock"))
    agent.sendall(sys.argv[7].encode() + b"\n")
    print(agent.makefile().readline(), end="")
"#;

impl GuestAgent {
    /// `None` where this machine lacks a program.
    fn start(desk: &Desk) -> Option<GuestAgent> {
        let virsh = desk.file("virsh", VIRSH);
        std::fs::set_permissions(virsh, std::fs::Permissions::from_mode(0o755)).expect("its owner's");
        let mut agent = Command::new("qemu-ga");
        agent.args(["--method", "unix-listen", "--path"]).arg(desk.path("vm1.sock"));
        agent.args(["--statedir"]).arg(desk.path("")).arg("--pidfile").arg(desk.path("vm1.pid"));
        agent.env("TMPDIR", desk.path("")).stderr(Stdio::null());
        let Ok(agent) = agent.spawn() else {
            let line = "skipped: qemu-ga is missing (qemu-guest-agent)";
            assert!(std::env::var_os("PUNCTUAL_NO_SKIP").is_none(), "{line}");
            eprintln!("{line}");
            return None;
        };
        let agent = GuestAgent(agent);
        wait("the socket of the guest agent", || desk.path("vm1.sock").exists());
        Some(agent)
    }

    /// The two ways to it, and a program that has both.
    fn ways(desk: &Desk) -> [String; 2] {
        [format!("agent:{}", desk.path("vm1.sock").display()), "libvirt:vm1".into()]
    }

    fn certify(desk: &Desk, length: &str, guest: &str) -> Command {
        let mut program = Command::new(PROGRAM);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(std::iter::once(desk.path("")).chain(std::env::split_paths(&path)));
        program.env("PATH", path.expect("no colon in it"));
        program.args(["certify", "--for", length, "--processors", "0", "--priority", "0", "--guest", guest]);
        program.arg("-o").arg(desk.path("a.json"));
        program
    }

    /// What a test left in the guest.
    fn left(desk: &Desk) -> Vec<PathBuf> {
        let all = std::fs::read_dir(desk.path("")).expect("listed").flatten().map(|entry| entry.path());
        all.filter(|path| path.is_dir()).collect()
    }
}

impl Drop for GuestAgent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_guest_is_measured_by_its_guest_agent_and_nothing_is_left_in_it() {
    let desk = Desk::new();
    let Some(agent) = GuestAgent::start(&desk) else { return };
    let certify = |guest: &str| GuestAgent::certify(&desk, "800ms", guest).output().expect("it starts");
    for guest in GuestAgent::ways(&desk) {
        let passed = certify(&guest);
        assert_eq!(status(&passed), 0, "{guest} {passed:?}");
        let certificate = read(&desk.path("a.json"));
        let of_guest = |one: &&Value| one["guest"] == "vm1" && one["latencies"]["count"].as_u64() > Some(50);
        let measurements = certificate["measurements"].as_array().expect("a list");
        assert!(measurements.iter().filter(of_guest).count() >= 2, "{guest} {certificate:#}");
        assert_eq!(GuestAgent::left(&desk), Vec::<PathBuf>::new(), "{guest}");
    }
    // One that is not there, or has gone, makes the certificate incomplete.
    let unknown = certify("libvirt:vm2");
    assert_eq!(status(&unknown), 5, "{unknown:?}");
    assert!(stdout(&unknown).contains("guest vm2: virsh: failed to get domain 'vm2'"), "{unknown:?}");
    drop(agent);
    let broken = certify(&GuestAgent::ways(&desk)[0]);
    assert_eq!(status(&broken), 5, "{broken:?}");
    assert!(stdout(&broken).contains("guest vm1: no socket of a guest agent at"), "{}", stdout(&broken));
}

#[test]
fn a_test_that_is_stopped_ends_and_removes_what_it_runs_in_a_guest() {
    let desk = Desk::new();
    let Some(_agent) = GuestAgent::start(&desk) else { return };
    let folder = desk.path("").display().to_string();
    let running = || {
        let is_ours = |process: &i32| {
            let line = std::fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap_or_default();
            line.starts_with(&folder) && line.contains("/punctual-guest\0")
        };
        punctual_linux::os::proc::processes().expect("listed").into_iter().filter(is_ours).count()
    };
    for guest in GuestAgent::ways(&desk) {
        let mut program = GuestAgent::certify(&desk, "3s", &guest);
        program.args(["--no-causes"]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut program = program.spawn().expect("it starts");
        wait("the guest is measured", || running() == 1);
        signal(program.id(), "INT");
        assert_eq!(program.wait().expect("it ends").code(), Some(5), "{guest}");
        assert_eq!(GuestAgent::left(&desk), Vec::<PathBuf>::new(), "{guest}");
        wait("the guest program has ended", || running() == 0);
    }
}

#[test]
fn loads_run_beside_and_end_with_the_test() {
    let desk = Desk::new();
    let json = desk.path("a.json").display().to_string();
    let fair = ["--for", "500ms", "--processors", "0", "--priority", "0", "-o", &json];
    let output = certify(&[&fair[..], &["--load", "cpu,memory,cache,disk,net"]].concat());
    assert_eq!(status(&output), 0, "{output:?}");
    let certificate = read(Path::new(&json));
    assert_eq!(certificate["conduct"]["loads"].as_array().map(Vec::len), Some(5));
    let is_load = |process: &i32| {
        let line = std::fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap_or_default();
        line.contains("\0certify-load\0")
    };
    let left = punctual_linux::os::proc::processes().expect("listed").into_iter().filter(is_load).count();
    assert_eq!(left, 0);
}

#[test]
fn mistakes_are_answered_with_what_was_expected() {
    let desk = Desk::new();
    let error = |arguments: &[&str]| {
        let output = certify(arguments);
        assert_eq!(status(&output), 2, "{arguments:?} {output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let limits = desk.file("limits.toml", "[host.wakeup]\nmax = 5\n");
    let text = error(&["--limits", &limits]);
    assert!(text.contains("limits.toml:2:1") && text.contains("did you mean `max_us`?"), "{text}");
    assert!(error(&["--processors", "60000"]).contains("processor 60000: this process may use 0"));
    assert!(error(&["--for", "1ms"]).contains("expected 200ms to 168h"));
    assert!(error(&["--guest", "vm1"]).contains("expected ssh:HOST, libvirt:VM or agent:SOCKET"));
    assert!(error(&["--load", "gpu"]).contains("gpu"));
    let text = desk.file("a.json", "{}");
    assert!(error(&["--baseline", &text]).contains("a.json is no certificate"));
}
