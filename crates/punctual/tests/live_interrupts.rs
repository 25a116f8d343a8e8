//! Whatever a run waits for, its first Ctrl-C works, nobody kills it for waiting, and it says what was put
//! back. An enforcer that stands still ends the run, with the reason.

mod common;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use common::faults::{Victims, random, wait};
use common::live::{needs, undisturbed};
use punctual_linux::os::{cgroup, proc};

/// The guardian's limit is this and a second.
const SILENCE: &str = "300";
/// Longer than the guardian's limit.
const BLOCKED: Duration = Duration::from_millis(2_500);
/// A run that is interrupted must have ended by then.
const END_MAX: Duration = Duration::from_secs(5);

/// The exit status when the guardian ended the run.
const ENDED: i32 = 4;
const INTERRUPTED: i32 = 130;

/// A run whose output is kept.
struct Run {
    child: Child,
    signalled: Option<Instant>,
}

/// How a run ended.
struct Ended {
    status: std::process::ExitStatus,
    stdout: String,
    stderr: String,
    /// From the first signal to the end.
    took: Duration,
}

impl Run {
    fn start(victims: &Victims, arguments: &[&str]) -> Run {
        Run::spawn(victims.punctual(arguments))
    }

    fn spawn(mut command: std::process::Command) -> Run {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Run { child: command.spawn().expect("it starts"), signalled: None }
    }

    fn signal(&mut self, name: &str) {
        self.signalled.get_or_insert_with(Instant::now);
        let pid = self.child.id().to_string();
        // It may have ended by itself.
        let _ = std::process::Command::new("kill")
            .args([&format!("-{name}"), &pid])
            .stderr(Stdio::null())
            .status();
    }

    fn is_alive(&mut self) -> bool {
        self.child.try_wait().expect("it can be asked").is_none()
    }

    fn end(self) -> Ended {
        let Output { status, stdout, stderr } = self.child.wait_with_output().expect("it ends");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let took = self.signalled.map(|at| at.elapsed()).unwrap_or_default();
        Ended { status, stdout: text(stdout), stderr: text(stderr), took }
    }
}

impl Ended {
    #[track_caller]
    fn assert_code(&self, code: i32) {
        assert_eq!(self.status.code(), Some(code), "{} {}{}", self.status, self.stdout, self.stderr);
    }
}

const HEAD: &str = "[machine]\nprocessors = 2\n[pool.guests]\nprocessors = [1]\npolicy = \"deferrable\"\n";

/// Two guests with a task each, and whatever `more` says.
fn guests(victims: &Victims, name: &str, more: &str) -> String {
    let domain = |name: &str, priority: u32| {
        format!(
            "[domain.{name}]\nbudget = \"4ms\"\nperiod = \"10ms\"\npriority = {priority}\n\
             task.loop = {{ period = \"20ms\", cost = \"1ms\" }}\n"
        )
    };
    let text = format!("name = \"{name}\"\n{HEAD}{}{}{more}", domain("one", 1), domain("two", 2));
    write(victims, name, &text)
}

fn write(victims: &Victims, name: &str, text: &str) -> String {
    let path = victims.directory().join(format!("{name}.toml"));
    std::fs::write(&path, text).expect("a host file");
    path.display().to_string()
}

/// A monitor that accepts nobody, as QEMU's does while another program talks to it.
fn held_monitor(victims: &Victims) -> (UnixListener, String) {
    let socket = victims.directory().join("held");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let host = format!(
        "name = \"held\"\n{HEAD}[domain.vm]\nbudget = \"2ms\"\nperiod = \"10ms\"\npriority = 1\n\
         attach = {{ qmp = \"{}\" }}\n",
        socket.display()
    );
    (listener, write(victims, "held", &host))
}

#[test]
fn a_monitor_that_another_program_holds_is_an_error_before_anything_is_changed() {
    let Some(_turn) = needs() else { return };
    let victims = Victims::bystanders("held-monitor");
    let before = victims.state();
    let (_listener, host) = held_monitor(&victims);
    let ended = Run::start(&victims, &["attach", &host, "--silence-ms", SILENCE]).end();
    ended.assert_code(2);
    assert!(ended.stderr.contains("does not answer"), "{}", ended.stderr);
    assert!(ended.stderr.contains("nothing had been changed"), "{}", ended.stderr);
    assert_eq!(victims.state(), before);
}

#[test]
fn ctrl_c_ends_the_wait_for_a_monitor() {
    let Some(_turn) = needs() else { return };
    let victims = Victims::bystanders("held-interrupted");
    let before = victims.state();
    let (_listener, host) = held_monitor(&victims);
    let mut run = Run::start(&victims, &["attach", &host, "--silence-ms", SILENCE]);
    std::thread::sleep(BLOCKED);
    run.signal("INT");
    let ended = run.end();
    ended.assert_code(INTERRUPTED);
    assert!(ended.took < Duration::from_secs(1), "{:?}", ended.took);
    let said = "before anything was measured; nothing had been changed";
    assert!(ended.stderr.contains(said), "{}", ended.stderr);
    assert_eq!(victims.state(), before);
}

/// A directory with a QEMU that never says anything.
fn mute_qemu(victims: &Victims) -> PathBuf {
    let directory = victims.directory().join("bin");
    std::fs::create_dir_all(&directory).expect("a directory");
    let program = directory.join("qemu-system-x86_64");
    std::fs::write(&program, "#!/bin/sh\nexec sleep 1000\n").expect("a program");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("executable");
    directory
}

#[test]
fn ctrl_c_ends_the_wait_for_a_qemu_that_is_slow_to_start() {
    let Some(_turn) = needs() else { return };
    let victims = Victims::bystanders("mute-qemu");
    if !has_image(&victims) {
        return;
    }
    let before = victims.state();
    let host = guests(&victims, "mute", "");
    let mut command = victims.punctual(&["run", &host, "--silence-ms", SILENCE]);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", mute_qemu(&victims).display()));
    let mut run = Run::spawn(command);
    std::thread::sleep(BLOCKED + Duration::from_secs(1));
    assert!(run.is_alive(), "{}", run.end().stderr);
    run.signal("INT");
    let ended = run.end();
    ended.assert_code(INTERRUPTED);
    assert!(ended.took < END_MAX, "{:?}", ended.took);
    assert_eq!(victims.state(), before);
}

#[test]
fn ctrl_c_ends_the_wait_for_vms_that_boot() {
    let Some(_turn) = needs() else { return };
    let victims = Victims::bystanders("booting");
    if !has_image(&victims) {
        return;
    }
    let before = victims.state();
    // They never execute an instruction.
    let stuck = |name: &str| {
        format!(
            "[domain.{name}]\nbudget = \"1ms\"\nperiod = \"10ms\"\npriority = 3\n\
             vm = {{ arguments = [\"-S\"] }}\n"
        )
    };
    let host = format!("name = \"booting\"\n{HEAD}{}{}", stuck("a"), stuck("b"));
    let host = write(&victims, "booting", &host);
    let mut run = Run::start(&victims, &["run", &host, "--silence-ms", SILENCE]);
    std::thread::sleep(BLOCKED + Duration::from_secs(1));
    run.signal("INT");
    let ended = run.end();
    ended.assert_code(INTERRUPTED);
    assert!(ended.took < END_MAX, "{:?}", ended.took);
    assert!(ended.stderr.contains("put back"), "{}", ended.stderr);
    assert_eq!(victims.vms(), 0, "VMs of the run are left");
    assert_eq!(victims.state(), before);
}

/// Can VMs be booted here? If not, prints that the test is skipped, or fails with `PUNCTUAL_NO_SKIP=1`.
fn has_image(victims: &Victims) -> bool {
    let found =
        std::process::Command::new("qemu-system-x86_64").arg("--version").stdout(Stdio::null()).status();
    if found.is_err() {
        let line = "skipped, tests with VMs need qemu-system-x86_64 (Debian: apt install qemu-system-x86)";
        assert!(std::env::var_os("PUNCTUAL_NO_SKIP").is_none(), "{line}");
        eprintln!("{line} ({})", victims.directory().display());
    }
    found.is_ok()
}

#[test]
fn a_run_that_is_interrupted_prints_what_was_measured_and_what_was_put_back() {
    let Some(_turn) = needs() else { return };
    let victims = Victims::bystanders("half-measured");
    let before = victims.state();
    let host = guests(&victims, "half", "");
    undisturbed(|| {
        let mut run = Run::start(&victims, &["run", &host, "--as", "process", "--duration", "60s", "--json"]);
        std::thread::sleep(Duration::from_secs(7));
        run.signal("INT");
        let ended = run.end();
        ended.assert_code(INTERRUPTED);
        assert!(ended.took < END_MAX, "{:?}", ended.took);
        let results: serde_json::Value = serde_json::from_str(&ended.stdout).expect(&ended.stderr);
        let length_ns = results["duration_ns"].as_u64().expect("a length");
        judge!((2_000_000_000..7_000_000_000).contains(&length_ns), "{length_ns}");
        for domain in 0..2 {
            let jobs = &results["domains"][domain]["jobs"];
            let count = |key: &str| jobs[key].as_u64().expect("a count");
            // One is released every 20 ms; the guest reports once a second.
            judge!((50..=length_ns.div_ceil(20_000_000)).contains(&count("released")), "{jobs}");
            judge!(count("completed") + 5 >= count("released"), "{jobs}");
            judge!(count("missed") < 20, "{jobs}");
        }
        assert!(ended.stderr.contains("stopped after"), "{}", ended.stderr);
        assert_eq!(victims.state(), before);
        Ok(())
    });
}

/// A group that keeps a thread from running until it is dropped.
struct Frozen(PathBuf);

impl Frozen {
    fn thread(tid: i32, beside: i32) -> Frozen {
        let home =
            cgroup::below(&cgroup::mount().expect("mounted"), &cgroup::group_of(beside).expect("it lives"));
        let directory = home.join(format!("test-frozen-{tid}"));
        std::fs::create_dir(&directory).expect("a group");
        let frozen = Frozen(directory);
        frozen.write("cgroup.type", "threaded");
        frozen.write("cgroup.threads", &tid.to_string());
        frozen.write("cgroup.freeze", "1");
        frozen
    }

    fn write(&self, file: &str, value: &str) {
        std::fs::write(self.0.join(file), value).unwrap_or_else(|e| panic!("{file}: {e}"));
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = std::fs::write(self.0.join("cgroup.freeze"), "0");
        wait("the group is empty", || std::fs::remove_dir(&self.0).is_ok());
    }
}

/// The thread of a process that has this name.
fn thread_of(process: u32, name: &str) -> Option<i32> {
    let threads = proc::threads(process as i32).unwrap_or_default();
    threads.into_iter().find(|tid| proc::name(*tid).is_ok_and(|of| of == name))
}

#[test]
fn an_enforcer_that_stands_still_ends_the_run_with_the_reason() {
    let Some(_turn) = needs() else { return };
    let victims = Victims::start("wedged");
    let before = victims.state();
    let mut run = Run::start(&victims, &["attach", &victims.host(), "--silence-ms", SILENCE]);
    let pid = run.child.id();
    victims.wait_until_changed(&before);
    assert!(run.is_alive());
    let enforcer = thread_of(pid, "enforcer/1").expect("an enforcer");
    let frozen = Frozen::thread(enforcer, pid as i32);
    let ended = run.end();
    ended.assert_code(ENDED);
    assert!(ended.stderr.contains("the enforcer of processor 1 stood still for 0."), "{}", ended.stderr);
    assert!(ended.stderr.contains("put back: "), "{}", ended.stderr);
    drop(frozen);
    assert_eq!(victims.state(), before);
}

#[test]
fn a_run_that_is_stopped_ends_with_the_reason() {
    let Some(_turn) = needs() else { return };
    let victims = Victims::start("stopped");
    let before = victims.state();
    let mut run = Run::start(&victims, &["attach", &victims.host(), "--silence-ms", SILENCE]);
    victims.wait_until_changed(&before);
    run.signal("STOP");
    let ended = run.end();
    ended.assert_code(ENDED);
    assert!(ended.stderr.contains("no sign of life"), "{}", ended.stderr);
    assert_eq!(victims.state(), before);
}

#[test]
fn a_second_ctrl_c_ends_the_run_at_once_and_the_guardian_restores() {
    let Some(_turn) = needs() else { return };
    let victims = Victims::start("twice");
    let before = victims.state();
    let mut run = Run::start(&victims, &["attach", &victims.host()]);
    victims.wait_until_changed(&before);
    run.signal("INT");
    run.signal("INT");
    let ended = run.end();
    let code = ended.status.code();
    assert!(code == Some(INTERRUPTED) || code == Some(0), "{} {}", ended.status, ended.stderr);
    assert!(ended.took < END_MAX, "{:?}", ended.took);
    victims.wait_until_restored();
    assert_eq!(victims.state(), before);
}

/// What happened in the rounds of a fault test.
#[derive(Default)]
struct Tally {
    codes: BTreeMap<String, u64>,
    longest: Duration,
}

#[test]
fn ctrl_c_at_any_moment_ends_the_run_in_time_and_the_machine_is_as_before() {
    let Some(_turn) = needs() else { return };
    let victims = Victims::start("ctrl-c");
    let before = victims.state();
    let host = guests(&victims, "any-moment", "");
    let mut tally = Tally::default();
    let rounds = common::faults::rounds();
    for round in 0..rounds {
        let draw = random(1_000_000 + round);
        let attaches = draw.is_multiple_of(3);
        let mut run = if attaches {
            Run::start(&victims, &["attach", &victims.host(), "--silence-ms", SILENCE])
        } else {
            Run::start(
                &victims,
                &["run", &host, "--as", "process", "--duration", "1s", "--silence-ms", SILENCE],
            )
        };
        std::thread::sleep(Duration::from_micros((draw >> 8) % if attaches { 600_000 } else { 2_800_000 }));
        run.signal(if draw & 0x40 == 0 { "INT" } else { "TERM" });
        if draw & 0x80 != 0 {
            std::thread::sleep(Duration::from_micros((draw >> 32) % 100_000));
            run.signal("INT");
        }
        let ended = run.end();
        victims.wait_until_restored();
        assert_eq!(victims.state(), before, "round {round}");
        assert_eq!(leftovers(victims.directory()), Vec::<PathBuf>::new(), "round {round}");
        assert!(ended.took < END_MAX, "round {round}: {:?}", ended.took);
        tally.longest = tally.longest.max(ended.took);
        // Before the handler is there, the signal itself ends the program, which has changed nothing yet.
        let code = ended.status.code();
        assert!(
            matches!(code, None | Some(0 | INTERRUPTED)),
            "round {round}: {} {}",
            ended.status,
            ended.stderr
        );
        *tally.codes.entry(ended.status.to_string()).or_default() += 1;
    }
    println!(
        "{rounds} runs interrupted, 0 residues, the longest took {:?} to end; ends: {:?}",
        tally.longest, tally.codes
    );
}

/// Sockets and journals in a state directory.
fn leftovers(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("readable").flatten().map(|entry| entry.path());
    entries.filter(|path| path.extension().is_some_and(|end| end == "journal" || end == "socket")).collect()
}
