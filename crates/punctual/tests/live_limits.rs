//! A run where the system gives it too little: descriptors, threads, a process that does not hold still.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::faults::Victims;
use common::live::needs;

/// Set for the copy of this test whose threads come and go.
const CHURNS: &str = "PUNCTUAL_TEST_CHURNS";

/// No test: a process whose threads come and go. The test below starts this executable again to run it.
#[test]
#[ignore = "the program of another test"]
fn program_whose_threads_come_and_go() {
    if std::env::var_os(CHURNS).is_none() {
        return;
    }
    loop {
        let brief = || std::thread::sleep(Duration::from_micros(300));
        let threads: Vec<_> = (0..8).map(|_| std::thread::spawn(brief)).collect();
        // Threads of this loop do not panic.
        threads.into_iter().for_each(|thread| drop(thread.join()));
    }
}

/// Attaches to the victims for a moment, after the shell command `first`; what it wrote.
fn attach_after(victims: &Victims, first: &str) -> Output {
    let program = env!("CARGO_BIN_EXE_punctual");
    let host = victims.host();
    let script = format!("{first} && exec {program} attach {host} --duration 50ms");
    let state = Path::new(&host).parent().expect("a directory");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).env("PUNCTUAL_STATE", state).stdin(Stdio::null());
    command.output().expect("a shell")
}

/// It must say what is missing, and neither panic nor die; everything is as before.
fn check(victims: &Victims, before: &common::faults::State, what: &str, output: &Output) {
    let text = String::from_utf8_lossy(&output.stderr);
    let code = output.status.code();
    assert!(!text.contains("panicked"), "{what}: {text}");
    assert!(!text.contains("there is no thread") && !text.contains("is gone"), "{what}: {text}");
    assert!(code.is_some_and(|code| code != 101), "{what}: {} {text}", output.status);
    assert!(code == Some(0) || !text.trim().is_empty(), "{what}: {} without a word", output.status);
    victims.wait_until_restored();
    assert_eq!(victims.state(), *before, "{what}: {text}");
}

#[test]
fn too_few_descriptors_are_named_and_no_thread_is_said_to_be_gone() {
    let Some(_turn) = needs() else { return };
    let victims = Victims::start("descriptors");
    let before = victims.state();
    let mut succeeded = 0;
    for limit in (8..40).step_by(2).chain([256]) {
        let output = attach_after(&victims, &format!("ulimit -n {limit}"));
        check(&victims, &before, &format!("{limit} descriptors"), &output);
        succeeded += u32::from(output.status.success());
    }
    assert!(succeeded > 0, "256 descriptors are enough");
}

/// A group of the pids controller, of either version.
struct LimitedGroup(PathBuf);

impl LimitedGroup {
    fn make() -> Option<LimitedGroup> {
        let version_2 = punctual_live::os::cgroup::mount().ok();
        let mounts = [Some(PathBuf::from("/sys/fs/cgroup/pids")), version_2];
        mounts.into_iter().flatten().find_map(|mount| {
            let directory = mount.join(format!("test-limit-{}", std::process::id()));
            fs::create_dir(&directory).ok()?;
            let group = LimitedGroup(directory);
            group.0.join("pids.max").exists().then_some(group)
        })
    }
}

impl Drop for LimitedGroup {
    fn drop(&mut self) {
        // The processes in it have ended, which the kernel may notice a little later.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn a_run_that_may_start_no_thread_says_so_without_a_panic() {
    let Some(_turn) = needs() else { return };
    let Some(group) = LimitedGroup::make() else {
        assert!(std::env::var_os("PUNCTUAL_NO_SKIP").is_none(), "no pids controller");
        return eprintln!("skipped: there is no pids controller that this process may use");
    };
    let victims = Victims::start("threads");
    let before = victims.state();
    for max in 1..=9 {
        fs::write(group.0.join("pids.max"), max.to_string()).expect("set");
        let join = format!("echo $$ > {}/cgroup.procs", group.0.display());
        let output = attach_after(&victims, &join);
        check(&victims, &before, &format!("{max} threads"), &output);
        println!("{max} threads: {} {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
}

/// A process of this test, ended with it.
struct Churning(Child);

impl Drop for Churning {
    fn drop(&mut self) {
        // It lives until now.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_process_whose_threads_come_and_go_can_be_attached_to() {
    let Some(_turn) = needs() else { return };
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", "program_whose_threads_come_and_go", "--ignored"]).env(CHURNS, "1");
    let churning = Churning(command.stdout(Stdio::null()).spawn().expect("a process"));
    let victims = Victims::start("churn");
    let text = fs::read_to_string(victims.host()).expect("a host file");
    let churn = format!(
        "[domain.churn]\nbudget = \"2ms\"\nperiod = \"10ms\"\npriority = 9\nattach = {{ threads = [{}] }}\n",
        churning.0.id()
    );
    fs::write(victims.host(), text + &churn).expect("written");
    let start = Instant::now();
    for round in 0..10 {
        let output = attach_after(&victims, "true");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "round {round}: {} {text}", output.status);
        victims.wait_until_restored();
    }
    println!("attached 10 times in {:?}", start.elapsed());
}
