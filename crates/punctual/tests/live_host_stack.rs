//! `punctual host-stack` on devices of network namespaces that the tests make: a VXLAN polls by NAPI and
//! needs no hardware (Linux `gro_cells_init`).

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::faults::{kill_with_guardian, signal};
use common::live::needs;
use punctual_linux::os::proc;
use punctual_linux::os::sched::{Attributes, affinity, attributes};

const HOST: &str = "
[machine]
processors = 1
[host_stack]
method = 'threaded-napi'
[host_stack.card.urgent]
device = 'DEVICE'
priority = 51
[host_stack.server.one]
load = 'requests'
";

/// A namespace with a device that polls by NAPI, and a state directory.
struct Lab {
    name: String,
    device: String,
    directory: tempfile::TempDir,
}

impl Lab {
    /// `None`, with a line that says why, where this machine cannot make one.
    fn start(name: &str) -> Option<Lab> {
        let lab = Lab {
            name: format!("punctual-{name}-{}", std::process::id()),
            device: format!("px{}", std::process::id()),
            directory: tempfile::tempdir().expect("a directory"),
        };
        let (namespace, device) = (lab.name.clone(), lab.device.clone());
        let make = format!(
            "ip netns add {namespace} && ip -n {namespace} link add {device} type vxlan id 7 dstport 4790 \
             dev lo && ip -n {namespace} link set {device} up && ip -n {namespace} link add bare type bridge"
        );
        let made = Command::new("sh").args(["-c", &make]).output().expect("a shell");
        // Packets that are passed on to another processor, which the plan ends. Without RPS there is no file.
        let steer = format!("echo 1 >/sys/class/net/{device}/queues/rx-0/rps_cpus");
        let _ = lab.command("sh").args(["-c", &steer]).output();
        if !made.status.success() {
            let why = String::from_utf8_lossy(&made.stderr).trim().to_owned();
            let line = format!("skipped, a device of a network namespace is needed: {why}");
            assert!(std::env::var_os("PUNCTUAL_NO_SKIP").is_none(), "{line}");
            eprintln!("{line}");
            return None;
        }
        std::fs::write(lab.directory.path().join("host.toml"), HOST.replace("DEVICE", &lab.device))
            .expect("a host file");
        Some(lab)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command.env("PUNCTUAL_STATE", self.directory.path()).stdin(Stdio::null());
        command
    }

    fn punctual(&self, arguments: &[&str]) -> Output {
        self.command(env!("CARGO_BIN_EXE_punctual")).args(arguments).output().expect("it runs")
    }

    fn host(&self) -> String {
        self.directory.path().join("host.toml").display().to_string()
    }

    /// Starts the command and waits until it has changed everything; returns what it printed until then.
    fn apply(&self) -> (Child, String) {
        let mut command = self.command(env!("CARGO_BIN_EXE_punctual"));
        command.args(["host-stack", &self.host()]).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("started");
        let mut text = String::new();
        let mut lines = BufReader::new(child.stdout.take().expect("piped"));
        while !text.contains("Inversions") {
            assert!(lines.read_line(&mut text).expect("readable") > 0, "{text}");
        }
        // What it prints at its end has no reader, which must not keep it from putting things back.
        (child, text)
    }

    fn threaded(&self) -> String {
        self.setting("threaded")
    }

    /// Whether its packets are passed on to another processor; empty without RPS.
    fn steered(&self) -> String {
        self.setting("queues/rx-0/rps_cpus")
    }

    fn setting(&self, name: &str) -> String {
        let file = format!("/sys/class/net/{}/{name}", self.device);
        let output = self.command("cat").arg(file).output().expect("it runs");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// The processors of the device's threads.
    fn processors(&self) -> Vec<Vec<usize>> {
        let threads = proc::kernel_threads(&format!("napi/{}-", self.device)).expect("listed");
        threads.into_iter().filter_map(|tid| affinity(tid).ok()).collect()
    }

    /// The classes of the device's threads; none when it is polled by none.
    fn classes(&self) -> Vec<Attributes> {
        let threads = proc::kernel_threads(&format!("napi/{}-", self.device)).expect("listed");
        threads.into_iter().filter_map(|tid| attributes(tid).ok()).collect()
    }

    fn wait_until_restored(&self) {
        let start = Instant::now();
        let is_urgent = |class: &Attributes| class.priority > 0;
        let all = affinity(0).expect("known");
        let is_bound = |processors: &Vec<usize>| *processors != all;
        while self.threaded() != "0"
            || self.classes().iter().any(is_urgent)
            || self.processors().iter().any(is_bound)
            || self.steered() == "0"
            || self.has_journal()
        {
            assert!(start.elapsed() < Duration::from_secs(20), "{:?}", self.classes());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn has_journal(&self) -> bool {
        let entries = std::fs::read_dir(self.directory.path()).expect("readable");
        entries.flatten().any(|entry| entry.path().extension().is_some_and(|end| end == "journal"))
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).output();
    }
}

#[test]
fn cards_poll_in_threads_of_their_priority_until_the_command_ends() {
    let Some(_turn) = needs() else { return };
    let Some(lab) = Lab::start("apply") else { return };
    assert_eq!((lab.threaded().as_str(), lab.classes().len()), ("0", 0));
    let (mut child, text) = lab.apply();
    assert!(text.contains(&format!("/sys/class/net/{}/threaded = 1", lab.device)), "{text}");
    assert!(text.contains(": SCHED_FIFO 51"), "{text}");
    let classes = lab.classes();
    assert!(!classes.is_empty() && classes.iter().all(|class| *class == Attributes::fifo(51)), "{classes:?}");
    assert!(lab.processors().iter().all(|processors| processors == &[0]), "{:?}", lab.processors());
    assert_ne!(lab.steered(), "1");
    let second = lab.punctual(&["host-stack", &lab.host()]);
    let why = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(2), "{why}");
    assert!(why.contains(&format!("network device {} belongs to the run", lab.device)), "{why}");
    signal(child.id(), "INT");
    child.wait().expect("it ends");
    lab.wait_until_restored();
}

#[test]
fn a_command_that_is_killed_is_undone_by_its_guardian_or_by_restore() {
    let Some(_turn) = needs() else { return };
    let Some(lab) = Lab::start("killed") else { return };
    let before = lab.steered();
    let (mut child, _) = lab.apply();
    signal(child.id(), "KILL");
    child.wait().expect("it ends");
    lab.wait_until_restored();
    let (mut child, _) = lab.apply();
    kill_with_guardian(child.id());
    child.wait().expect("it ends");
    assert_eq!(lab.threaded(), "1");
    // Outside of its namespace the device is not there, or is another one.
    let elsewhere = Command::new(env!("CARGO_BIN_EXE_punctual"))
        .arg("restore")
        .env("PUNCTUAL_STATE", lab.directory.path())
        .output()
        .expect("it runs");
    let why = String::from_utf8_lossy(&elsewhere.stderr).into_owned();
    assert_eq!(elsewhere.status.code(), Some(7), "{why}");
    assert!(why.contains("in network namespace"), "{why}");
    assert_eq!(lab.threaded(), "1");
    let restored = lab.punctual(&["restore"]);
    assert!(restored.status.success(), "{restored:?}");
    lab.wait_until_restored();
    assert_eq!(lab.steered(), before);
}

#[test]
fn a_device_without_napi_is_refused_and_nothing_stays_changed() {
    let Some(_turn) = needs() else { return };
    let Some(lab) = Lab::start("bare") else { return };
    let path = lab.directory.path().join("bare.toml");
    std::fs::write(&path, HOST.replace("DEVICE", "bare")).expect("a host file");
    let refused = lab.punctual(&["host-stack", path.to_str().expect("a path")]);
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{why}");
    assert!(why.contains("bare cannot be polled in threads"), "{why}");
    assert!(why.contains("ethtool -K bare gro on"), "{why}");
    assert!(!lab.has_journal());
    let missing = lab.punctual(&["host-stack", &lab.host(), "--set", "host_stack.card.urgent.device=bara"]);
    let why = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(why.contains("did you mean `bare`?"), "{why}");
    assert!(!lab.has_journal());
}
