//! `punctual serve` and `punctual status`, beside an installed service: a configuration, a `/run` and VMs of
//! their own. The VMs are look-alikes: shells with the command line of QEMU.

#[path = "serve/web.rs"]
mod web;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use punctual_linux::os::cgroup;
use punctual_service::topology;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_punctual");
/// How long anything may take.
const LIMIT: Duration = Duration::from_secs(20);
/// A VM is seen within this, by the design. The tests run beside others, so it is measured, not demanded.
const SEEN_MS: u128 = 250;

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How many services of this program run, and is one of them to be the only one?
static RUNNING: (Mutex<(usize, bool)>, Condvar) = (Mutex::new((0, false)), Condvar::new());

/// A place for a service beside those of other tests, which all of them see each other's VMs.
struct Place {
    is_alone: bool,
}

impl Place {
    /// Waits until nobody is alone; to be alone, until there is nobody.
    fn take(is_alone: bool) -> Place {
        let running = RUNNING.0.lock().unwrap_or_else(PoisonError::into_inner);
        let must_wait = |running: &mut (usize, bool)| running.1 || (is_alone && running.0 > 0);
        let mut running = RUNNING.1.wait_while(running, must_wait).unwrap_or_else(PoisonError::into_inner);
        *running = (running.0 + 1, is_alone);
        Place { is_alone }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut running = RUNNING.0.lock().unwrap_or_else(PoisonError::into_inner);
        *running = (running.0 - 1, running.1 && !self.is_alone);
        RUNNING.1.notify_all();
    }
}

/// A service in a folder of its own.
struct Service {
    child: Killed,
    _place: Place,
    folder: tempfile::TempDir,
    /// What the service sends to its manager.
    notified: Receiver<String>,
}

fn serve(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["serve", "--config", "etc", "--run", "run"]).args(args).current_dir(folder);
    command.env_remove("NOTIFY_SOCKET").env_remove("JOURNAL_STREAM");
    command.env("STATE_DIRECTORY", folder.join("state"));
    command
}

fn folder(config: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for directory in ["etc/host.d", "run/libvirt/qemu", "state"] {
        fs::create_dir_all(folder.path().join(directory)).expect("made");
    }
    fs::write(folder.path().join("etc/host.toml"), config).expect("written");
    folder
}

impl Service {
    fn start(config: &str) -> Service {
        Service::start_at(Place::take(false), config)
    }

    fn start_at(place: Place, config: &str) -> Service {
        let folder = folder(config);
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).expect("bound");
        let (sender, notified) = channel();
        // It ends when the service is gone and nobody receives, at the end of the program at the latest.
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length) = manager.recv(&mut buffer) {
                if sender.send(String::from_utf8_lossy(&buffer[..length]).into_owned()).is_err() {
                    return;
                }
            }
        });
        let mut command = serve(folder.path(), &[]);
        command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "1000000");
        let child = command.stderr(fs::File::create(folder.path().join("log")).expect("made")).spawn();
        let service = Service { child: Killed(child.expect("it starts")), _place: place, folder, notified };
        service.notified("READY=1");
        service
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Waits until the manager is sent a message that begins so.
    fn notified(&self, begin: &str) -> String {
        let end = Instant::now() + LIMIT;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let message = self.notified.recv_timeout(left).unwrap_or_else(|_| panic!("no {begin}"));
            if message.starts_with(begin) {
                return message;
            }
        }
    }

    /// Kills it, and starts another one that does without a manager.
    fn kill_and_start(&mut self) {
        self.child.0.kill().expect("killed");
        self.child.0.wait().expect("an end");
        let log = fs::File::options().append(true).open(self.path("log")).expect("there");
        self.child = Killed(serve(self.folder.path(), &[]).stderr(log).spawn().expect("it starts"));
        wait("it answers", || self.status(&["--json"]).status.success());
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child.0), signal).expect("it runs");
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).expect("a log")
    }

    fn status(&self, args: &[&str]) -> Output {
        let mut command = Command::new(PROGRAM);
        command.args(["status", "--run", "run"]).args(args).current_dir(self.folder.path());
        command.output().expect("it runs")
    }

    /// Runs a command that changes something; its exit status, and what it says on standard error.
    fn tell(&self, args: &[&str]) -> (i32, String) {
        let mut command = Command::new(PROGRAM);
        command.args(args).args(["--run", "run"]).current_dir(self.folder.path());
        let output = command.output().expect("it runs");
        (output.status.code().expect("an end"), String::from_utf8(output.stderr).expect("text"))
    }

    fn json(&self) -> Value {
        let output = self.status(&["--json"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// The VM of this name, once it is there and `is` holds.
    fn vm(&self, name: &str, is: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        wait(&format!("VM {name}"), || {
            last = actor(&self.json(), name);
            !last.is_null() && is(&last)
        });
        last
    }

    fn client(&self) -> Varlink {
        Varlink::connect(&self.path("run/punctual/io.punctual.Host"))
    }

    /// Ends it by SIGTERM.
    fn end(mut self) -> String {
        self.signal(Signal::TERM);
        assert!(self.child.0.wait().expect("an end").success());
        self.notified("STOPPING=1");
        let left: Vec<_> = fs::read_dir(self.path("run/punctual")).expect("a directory").flatten().collect();
        assert_eq!(left.iter().map(|entry| entry.file_name()).collect::<Vec<_>>(), ["lock"]);
        self.log()
    }
}

fn actor(status: &Value, name: &str) -> Value {
    let actors = status["actors"].as_array().expect("VMs");
    actors.iter().find(|actor| actor["name"] == name).cloned().unwrap_or_default()
}

fn wait(what: &str, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < LIMIT, "waited for: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A VM of this name that waits until its standard input ends, after a script.
fn look_alike(name: &str, script: &str) -> Killed {
    let script = format!("{script} read x");
    let mut command = Command::new("sh");
    command.arg0("/usr/bin/qemu-system-x86_64").args(["-c", &script, "sh", "-uuid", UUID]);
    command.args(["-name", &format!("guest={name},debug-threads=on")]).stdin(Stdio::piped());
    Killed(command.spawn().expect("it starts"))
}

const UUID: &str = "C7A5FDBD-cdaf-9455-926a-d65c16db1809";
/// The shell calls itself as QEMU calls a vCPU's thread.
const AS_VCPU: &str = "printf 'CPU 3/KVM' > /proc/$$/comm;";

/// A connection to the control interface.
struct Varlink(BufReader<UnixStream>);

impl Varlink {
    fn connect(path: &Path) -> Varlink {
        let stream = UnixStream::connect(path).expect("connected");
        stream.set_read_timeout(Some(LIMIT)).expect("set");
        stream.set_write_timeout(Some(LIMIT)).expect("set");
        Varlink(BufReader::new(stream))
    }

    fn send(&mut self, call: &Value) {
        let mut bytes = serde_json::to_vec(call).expect("JSON");
        bytes.push(0);
        self.0.get_mut().write_all(&bytes).expect("sent");
    }

    /// The next reply; `None` when the service ended the connection.
    fn receive(&mut self) -> Option<Value> {
        let mut message = Vec::new();
        self.0.read_until(0, &mut message).ok()?;
        message.pop()?;
        Some(serde_json::from_slice(&message).expect("JSON"))
    }

    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.send(&json!({ "method": method, "parameters": parameters }));
        self.receive().expect("a reply")
    }
}

const CLASSES: &str = "[class.relay]\nmatch = [{ name = 'punctual-relay-*' }, { metadata = 'relay' }]\n\
                       budget = '100us'\nperiod = '10ms'\n";

#[test]
fn a_vm_is_seen_matched_sampled_and_released() {
    let service = Service::start(CLASSES);
    let vm = look_alike("punctual-relay-1", &format!("{AS_VCPU} while :; do :; done;"));
    let process = vm.0.id();
    let seen = service.vm("punctual-relay-1", |vm| vm["warnings"] != json!([]));
    assert_eq!(
        (&seen["process"], &seen["class"], &seen["state"]),
        (&json!(process), &json!("relay"), &json!("matched"))
    );
    assert_eq!((&seen["uuid"], &seen["monitor"]), (&json!(UUID.to_lowercase()), &json!("qemu")));
    let thread = &seen["threads"][0];
    assert_eq!(
        (&thread["role"], &thread["vcpu"], &thread["tid"]),
        (&json!("vcpu"), &json!(3), &json!(process))
    );
    assert!(thread["run_ns"].as_u64().is_some_and(|ns| ns > 1_000_000), "{thread}");
    assert!(thread["processors"].as_array().is_some_and(|list| !list.is_empty()), "{thread}");
    assert_eq!(seen["warnings"][0]["kind"], "budget", "it spins");
    let screen = String::from_utf8(service.status(&[]).stdout).expect("text");
    let row = screen.lines().find(|line| line.starts_with("punctual-relay-1 ")).expect("a row");
    assert_eq!(row.split_whitespace().nth(1), Some("relay"), "{screen}");
    let one = String::from_utf8(service.status(&["punctual-relay-1"]).stdout).expect("text");
    assert!(one.contains("\nvcpu 3 ") && one.contains("class relay"), "{one}");
    let (status, error) = service.tell(&["why", "punctual-rely-1"]);
    assert!(status == 2 && error.contains("is it `punctual-relay-1`?"), "{error}");
    let (status, error) = service.tell(&["why", "punctual-relay-1", "--last", "2h"]);
    assert!(status == 2 && error.contains("expected at most 1h"), "{error}");
    let (status, error) = service.tell(&["why", "punctual-relay-1", "--last", "5min"]);
    assert_eq!((status, error.as_str()), (0, ""));
    drop(vm);
    wait("it is released", || actor(&service.json(), "punctual-relay-1").is_null());
    let unknown = service.status(&["punctual-relay-1"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("no VM or unit has the name or process"));
    let log = service.end();
    for line in
        ["is seen: process", "belongs to class relay", "VM punctual-relay-1: vCPU 3 runs", "is released"]
    {
        assert!(log.contains(line), "{line} is missing in:\n{log}");
    }
}

#[test]
fn a_vm_that_kvm_does_not_run_has_no_hints_and_the_reason_is_shown() {
    let service = Service::start(CLASSES);
    let _vm = look_alike("punctual-relay-9", AS_VCPU);
    let seen = service.vm("punctual-relay-9", |vm| vm["hints"]["reason"].is_string());
    let reason = seen["hints"]["reason"].as_str().expect("a text");
    let reasons = ["debugfs", "KVM is not loaded", "KVM runs no VM of this process", "PID namespace"];
    assert!(reasons.iter().any(|known| reason.contains(known)), "{reason}");
    assert_eq!((&seen["hints"]["total"], &seen["hints"]["lately"]), (&json!({}), &json!({})));
    let why = |args: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command
            .args(["why", "punctual-relay-9", "--run", "run"])
            .args(args)
            .current_dir(service.folder.path());
        String::from_utf8(command.output().expect("it runs").stdout).expect("text")
    };
    let unwrapped = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = format!("what KVM counts is not known: {}", unwrapped(reason.to_owned()));
    let one = String::from_utf8(service.status(&["punctual-relay-9"]).stdout).expect("text");
    for text in [why(&[]), one] {
        assert!(unwrapped(text.clone()).contains(&line), "{line} is missing in:\n{text}");
    }
    let data: Value = serde_json::from_str(&why(&["--json"])).expect("JSON");
    assert_eq!(data["hints"]["reason"], reason);
    let metrics = String::from_utf8(service.status(&["--metrics"]).stdout).expect("text");
    assert!(!metrics.contains("punctual_vm_directed_yields"), "{metrics}");
}

/// A cgroup where systemd would make that of a unit, for this test alone.
struct Unit(PathBuf);

impl Unit {
    /// `None` where this machine permits none.
    fn make(name: &str) -> Option<Unit> {
        let slice = format!("s{}.slice", std::process::id());
        let made = cgroup::mount().map(|mount| mount.join(slice).join(name));
        let made = made.ok().filter(|directory| fs::create_dir_all(directory).is_ok());
        if made.is_none() {
            let line = "skipped: no cgroup of version 2 can be made";
            assert!(std::env::var_os("PUNCTUAL_NO_SKIP").is_none(), "{line}");
            eprintln!("{line}");
        }
        made.map(Unit)
    }

    fn program(&self, script: &str) -> Killed {
        let child = Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).spawn();
        let child = Killed(child.expect("it starts"));
        cgroup::move_to(&self.0, child.0.id() as i32).expect("moved");
        child
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
        let _ = self.0.parent().map(fs::remove_dir);
    }
}

#[test]
fn a_unit_that_a_class_names_is_observed_with_all_its_processes() {
    let name = "punctual-tap.service";
    let Some(unit) = Unit::make(name) else { return };
    let spins = unit.program("while :; do :; done");
    let class = format!("[class.tap]\nmatch = [{{ unit = '{name}' }}]\nbudget = '100us'\nperiod = '10ms'\n");
    let service = Service::start(&(CLASSES.to_owned() + &class));
    let waits = unit.program("read x");
    let seen = service.vm(name, |unit| unit["processes"] == 2 && unit["warnings"] != json!([]));
    let known = (&seen["kind"], &seen["class"], &seen["state"], &seen["process"]);
    assert_eq!(known, (&json!("unit"), &json!("tap"), &json!("matched"), &json!(spins.0.id())), "{seen}");
    assert_eq!(seen["warnings"][0]["kind"], "budget", "it spins");
    assert!(seen["cgroup"].as_str().is_some_and(|path| path.ends_with(name)), "{seen}");
    let screen = String::from_utf8(service.status(&[]).stdout).expect("text");
    let row = screen.lines().find(|line| line.starts_with(name)).expect("a row");
    assert_eq!(row.split_whitespace().nth(1), Some("tap"), "{screen}");
    let metrics = String::from_utf8(service.status(&["--metrics"]).stdout).expect("text");
    let series = format!("punctual_vcpu_run_seconds_total{{domain=\"{name}\",vcpu=\"all\"}}");
    assert!(metrics.contains(&series), "{metrics}");
    drop(spins);
    service.vm(name, |unit| unit["process"] == waits.0.id());
    drop(waits);
    wait("it is released", || actor(&service.json(), name).is_null());
    // Without a class that names it, it is not looked for.
    let _spins = unit.program("read x");
    service.vm(name, |unit| unit["state"] == "matched");
    fs::write(service.path("etc/host.toml"), CLASSES).expect("written");
    service.signal(Signal::HUP);
    wait("it is left alone", || actor(&service.json(), name).is_null());
    let log = service.end();
    let label = format!("unit {name}");
    for what in ["is seen: process", "belongs to class tap", "runs", "is released"] {
        assert!(log.lines().any(|line| line.contains(&label) && line.contains(what)), "{what}:\n{log}");
    }
}

#[test]
fn a_vm_whose_vcpus_have_no_names_is_matched_and_judged_when_they_have() {
    let pool = "[pool.rt]\nprocessors = [0]\npolicy = 'deferrable'\n";
    let service = Service::start(&format!("{pool}{CLASSES}pool = 'rt'\npriority = 1\n"));
    let mut vm = look_alike("punctual-relay-unnamed", &format!("read x; {AS_VCPU}"));
    let seen = service.vm("punctual-relay-unnamed", |vm| vm["threads"][0]["role"] == "main-loop");
    assert_eq!((&seen["class"], &seen["warnings"]), (&json!("relay"), &json!([])), "{seen}");
    vm.0.stdin.as_mut().expect("a pipe").write_all(b"\n").expect("written");
    service.vm("punctual-relay-unnamed", |vm| vm["threads"][0]["role"] == "vcpu");
    service.end();
}

#[test]
fn libvirts_files_tell_of_vms_and_their_metadata() {
    let service = Service::start(CLASSES);
    let vm = look_alike("punctual-web", "");
    service.vm("punctual-web", |vm| vm["class"].is_null() && vm["is_libvirt"] == false);
    let status = |class: &str| {
        format!(
            "<domstatus pid='{}'><domain><name>punctual-web</name><uuid>{UUID}</uuid><metadata>\
             <p:actor xmlns:p='urn:punctual:actor:1' class='{class}' budget='1ms'/>\
             </metadata></domain></domstatus>",
            vm.0.id()
        )
    };
    let write = |class: &str| {
        fs::write(service.path("run/libvirt/qemu/new"), status(class)).expect("written");
        fs::rename(service.path("run/libvirt/qemu/new"), service.path("run/libvirt/qemu/punctual-web.xml"))
            .expect("moved");
    };
    write("relay");
    let seen = service.vm("punctual-web", |vm| vm["class"] == "relay");
    assert_eq!(seen["is_libvirt"], true);
    assert_eq!(seen["adjustment"], json!({ "budget_ns": 1_000_000 }), "{seen}");
    write("other");
    service.vm("punctual-web", |vm| vm["class"].is_null());
    assert!(service.end().contains("VM punctual-web left class relay"));
}

#[test]
fn a_reload_takes_a_good_configuration_and_keeps_the_old_one_for_a_broken_one() {
    let service = Service::start(CLASSES);
    let vm = look_alike("punctual-relay-2", "");
    service.vm("punctual-relay-2", |vm| vm["class"] == "relay");
    fs::write(service.path("etc/host.toml"), CLASSES.replace("[class.relay]", "[class.other]"))
        .expect("written");
    service.signal(Signal::HUP);
    let reloading = service.notified("RELOADING=1\nMONOTONIC_USEC=");
    assert!(reloading.rsplit('=').next().is_some_and(|us| us.parse::<u64>().is_ok()), "{reloading}");
    service.notified("READY=1");
    service.vm("punctual-relay-2", |vm| vm["class"] == "other");
    fs::write(service.path("etc/host.d/b.toml"), "flow = 1\n").expect("written");
    service.signal(Signal::HUP);
    let ready = service.notified("READY=1\nSTATUS=The configuration is refused");
    assert!(
        ready.contains("etc/host.d/b.toml:1: `flow` in the service's configuration is not supported"),
        "{ready}"
    );
    service.vm("punctual-relay-2", |vm| vm["class"] == "other");
    let mut client = service.client();
    let refused = client.call("io.punctual.Host.Reload", json!({}));
    assert_eq!(refused["error"], "io.punctual.Host.BrokenFile");
    let parameters = &refused["parameters"];
    assert_eq!((&parameters["file"], &parameters["line"]), (&json!("etc/host.d/b.toml"), &json!(1)));
    assert!(service.json()["host"]["reload_error"].is_string());
    fs::remove_file(service.path("etc/host.d/b.toml")).expect("removed");
    assert_eq!(
        client.call("io.punctual.Host.Reload", json!({}))["parameters"],
        json!({ "classes": 1, "pools": 0 })
    );
    assert!(service.json()["host"]["reload_error"].is_null());
    drop(vm);
    service.end();
}

/// A service with a strict pool, and two VMs in it, of these names.
fn strict(names: [&str; 2]) -> (Service, [Killed; 2]) {
    let pool = "[pool.rt]\nprocessors = [0]\npolicy = 'deferrable'\n";
    let service = Service::start(&format!("admission = 'strict'\n{pool}{CLASSES}priority = 1\n"));
    let vms = names.map(|name| look_alike(name, AS_VCPU));
    for name in names {
        service.vm(name, |vm| vm["class"] == "relay" && vm["threads"][0]["role"] == "vcpu");
    }
    (service, vms)
}

#[test]
fn a_vm_is_adjusted_as_far_as_its_class_and_the_others_allow() {
    let (service, _vms) = strict(["punctual-relay-a", "punctual-relay-b"]);
    let _other = look_alike("punctual-other-a", "");
    service.vm("punctual-other-a", |_| true);
    for change in [["--budget", "300us"], ["--priority", "4"]] {
        assert_eq!(service.tell(&["adjust", "punctual-relay-a", change[0], change[1]]), (0, String::new()));
    }
    let seen = service.vm("punctual-relay-a", |_| true);
    assert_eq!(seen["adjustment"], json!({ "budget_ns": 300_000, "priority": 4 }), "{seen}");
    for (args, expected) in [
        (["punctual-none", "--budget", "1ms"], "no VM or unit has the name or process `punctual-none`"),
        (["punctual-other-a", "--budget", "1ms"], "VM or unit `punctual-other-a` belongs to no class"),
        (["punctual-relay-a", "--budget", "11ms"], "the budget, 11ms, is more than the period, 10ms"),
        (["punctual-relay-a", "--budget", "9.95ms"], "budgets would not be guaranteed"),
    ] {
        let (code, said) = service.tell(&[&["adjust"], &args[..]].concat());
        assert!(code == 2 && said.contains(expected), "{args:?}: {said}");
    }
    assert_eq!(service.vm("punctual-relay-a", |_| true)["adjustment"], seen["adjustment"]);
    assert_eq!(service.tell(&["adjust", "punctual-relay-a", "--reset"]).0, 0);
    let log = service.end();
    assert!(log.contains("VM punctual-relay-a is adjusted: budget 300us\n"), "{log}");
}

#[test]
fn changes_of_a_vm_outlive_a_restart_and_are_forgotten_on_demand() {
    let (mut service, _vms) = strict(["punctual-relay-c", "punctual-relay-d"]);
    let done = (0, String::new());
    assert_eq!(service.tell(&["adjust", "punctual-relay-c", "--budget", "200us"]), done);
    assert_eq!(service.tell(&["pause", "punctual-relay-c"]), done);
    let state = |service: &Service, name: &str| {
        let seen = service.vm(name, |vm| vm["class"] == "relay");
        (seen["adjustment"]["budget_ns"].as_u64(), seen["is_paused"].as_bool())
    };
    assert_eq!(state(&service, "punctual-relay-c"), (Some(200_000), Some(true)));
    // Another service knows that, of this process.
    service.kill_and_start();
    assert_eq!(state(&service, "punctual-relay-c"), (Some(200_000), Some(true)));
    assert_eq!(state(&service, "punctual-relay-d"), (None, Some(false)));
    assert_eq!(service.tell(&["resume", "punctual-relay-c"]), done);
    assert_eq!(state(&service, "punctual-relay-c"), (Some(200_000), Some(false)));
    assert_eq!(service.tell(&["pause", "punctual-relay-c"]), done);
    assert_eq!(service.tell(&["adjust", "punctual-relay-c", "--reset"]), done);
    assert_eq!(state(&service, "punctual-relay-c"), (None, Some(false)));
    assert!(!service.path("run/punctual/wishes.json").exists());
    let log = service.log();
    for line in ["is to be left alone", "is to be held again", "class says again"] {
        assert!(log.contains(line), "{line} is missing in:\n{log}");
    }
}

const METHODS: [&str; 10] =
    ["Status", "List", "Describe", "Admit", "Adjust", "Pause", "Resume", "Restore", "Monitor", "Reload"];

#[test]
fn the_interface_describes_itself_and_refuses_by_name() {
    let service = Service::start(CLASSES);
    let mut client = service.client();
    let info = client.call("org.varlink.service.GetInfo", json!({}));
    assert_eq!(info["parameters"]["interfaces"], json!(["org.varlink.service", "io.punctual.Host"]));
    let describe = "org.varlink.service.GetInterfaceDescription";
    let text = client.call(describe, json!({ "interface": "io.punctual.Host" }));
    let text = text["parameters"]["description"].as_str().expect("a description").to_owned();
    for method in METHODS {
        assert!(text.contains(&format!("\nmethod {method}(")), "{method}");
    }
    for (call, error) in [
        (
            json!({ "method": describe, "parameters": { "interface": "a.b" } }),
            "org.varlink.service.InterfaceNotFound",
        ),
        (json!({ "method": describe }), "org.varlink.service.InvalidParameter"),
        (json!({ "method": "io.punctual.Host.Nothing" }), "org.varlink.service.MethodNotFound"),
        (json!({ "method": "nothing" }), "org.varlink.service.MethodNotFound"),
        (json!({ "method": "a.b.C" }), "org.varlink.service.InterfaceNotFound"),
        (json!({ "method": "io.punctual.Host.List" }), "org.varlink.service.ExpectedMore"),
        (
            json!({ "method": "io.punctual.Host.Describe", "parameters": { "name": "none" } }),
            "io.punctual.Host.NoSuchActor",
        ),
    ] {
        client.send(&call);
        assert_eq!(client.receive().expect("a reply")["error"], error, "{call}");
    }
    for parameters in
        [json!({ "name": "a", "budget_ns": "1ms" }), json!({ "name": "a", "priority": 1_u64 << 32 })]
    {
        let reply = client.call("io.punctual.Host.Adjust", parameters);
        assert_eq!(reply["error"], "org.varlink.service.InvalidParameter", "{reply}");
    }
    client.send(&json!({ "method": "io.punctual.Host.Status", "oneway": true }));
    assert_eq!(client.call("io.punctual.Host.Status", json!({}))["parameters"]["host"]["mode"], "observe");
    // Calls that were sent together are answered in their order.
    let twins = ["punctual-twin", "punctual-twin"].map(|name| look_alike(name, ""));
    wait("both are seen", || {
        let error = client.call("io.punctual.Host.Describe", json!({ "name": "punctual-twin" }));
        error["error"] == "io.punctual.Host.AmbiguousName"
    });
    client.send(&json!({ "method": "io.punctual.Host.List", "more": true }));
    client.send(&json!({ "method": "io.punctual.Host.Status" }));
    let mut names = BTreeMap::new();
    loop {
        let reply = client.receive().expect("a reply");
        let name = reply["parameters"]["actor"]["name"].as_str().expect("a VM").to_owned();
        *names.entry(name).or_insert(0) += 1;
        if reply["continues"] != true {
            break;
        }
    }
    assert_eq!(names["punctual-twin"], 2, "{names:?}");
    assert!(client.receive().expect("a reply")["parameters"]["host"].is_object());
    drop(twins);
    service.end();
}

#[test]
fn a_monitor_is_sent_what_happens() {
    let service = Service::start(CLASSES);
    let mut client = service.client();
    client.send(&json!({ "method": "io.punctual.Host.Monitor", "more": true }));
    assert_eq!(client.receive().expect("an event")["parameters"]["event"]["kind"], "monitoring");
    let vm = look_alike("punctual-relay-3", "");
    let process = vm.0.id();
    let mut next = || loop {
        let reply = client.receive().expect("an event");
        assert_eq!(reply["continues"], true);
        let event = &reply["parameters"]["event"];
        if event["process"] == process {
            return event["kind"].as_str().expect("a kind").to_owned();
        }
    };
    assert_eq!([next(), next()], ["seen", "matched"]);
    drop(vm);
    assert_eq!(next(), "released");
    service.end();
}

#[test]
fn hostile_clients_are_dropped_and_others_served() {
    let service = Service::start(CLASSES);
    let socket = service.path("run/punctual/io.punctual.Host");
    for bytes in [&b"no JSON\0"[..], b"{}\0", b"[1]\0", &[b'x'; 70_000], b"{\"method\":1}\0"] {
        let mut client = Varlink::connect(&socket);
        // The service may end the connection before all is sent.
        let _ = client.0.get_mut().write_all(bytes);
        assert_eq!(client.receive(), None, "{}", String::from_utf8_lossy(&bytes[..bytes.len().min(20)]));
    }
    // Reads nothing, and asks on and on: the service stops reading, and keeps a bounded number of replies.
    let mut slow = Varlink::connect(&socket);
    slow.0.get_mut().set_write_timeout(Some(Duration::from_millis(300))).expect("set");
    let parameters = json!({ "interface": "io.punctual.Host" });
    let call = json!({ "method": "org.varlink.service.GetInterfaceDescription", "parameters": parameters });
    let call = format!("{call}\0").into_bytes();
    let sent = (0..100_000).take_while(|_| slow.0.get_mut().write_all(&call).is_ok()).count();
    assert!(sent < 100_000, "it reads without end");
    assert!(service.json()["host"]["clients_dropped"].as_u64().is_some_and(|dropped| dropped >= 4));
    // More connections than there are places.
    let many: Vec<UnixStream> = (0..100).map_while(|_| UnixStream::connect(&socket).ok()).collect();
    std::thread::sleep(Duration::from_millis(200));
    drop(many);
    wait("there are places again", || service.status(&[]).status.success());
    let memory = fs::read_to_string(format!("/proc/{}/status", service.child.0.id())).expect("it runs");
    let resident = memory.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    let resident: u64 = resident.expect("a size").trim().parse().expect("a number");
    assert!(resident < 30 << 10, "{resident} KiB");
    service.end();
}

#[test]
fn the_hook_announces_and_garbage_is_counted() {
    let service = Service::start(CLASSES);
    let hook = UnixDatagram::unbound().expect("a socket");
    let path = service.path("run/punctual/hook");
    assert_eq!(fs::metadata(&path).expect("a socket").permissions().mode() & 0o777, 0o600);
    for datagram in
        [&b"my vm started begin"[..], b"garbage", b"\xff\xff a b", &[b'a'; 5000], b"vm release end"]
    {
        hook.send_to(datagram, &path).expect("sent");
    }
    wait("all are counted", || {
        let host = &service.json()["host"];
        (&host["hook_messages"], &host["hook_garbage"]) == (&json!(2), &json!(3))
    });
    service.end();
}

#[test]
fn what_cannot_be_served_is_refused_with_the_reason() {
    let broken = folder("flow = 1\n[class.a]\n");
    for args in [&[][..], &["--check"]] {
        let output = serve(broken.path(), args).output().expect("it runs");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains("`flow` in") && error.contains("`match` is missing"), "{error}");
        assert!(error.contains(" --> etc/host.toml:1:1\n"), "{error}");
    }
    assert!(!broken.path().join("run/punctual").exists(), "nothing was made");
    let none = serve(broken.path(), &["--config", "nowhere"]).output().expect("it runs");
    assert_eq!(none.status.code(), Some(2));
    let service = Service::start(CLASSES);
    let second = serve(service.folder.path(), &[]).output().expect("it runs");
    let error = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(second.status.code() == Some(2) && error.contains("another `punctual serve`"), "{error}");
    assert!(service.status(&[]).status.success(), "the first one goes on");
    service.end();
    let stopped = Command::new(PROGRAM).args(["status", "--run", "/nowhere"]).output().expect("it runs");
    assert_eq!(stopped.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&stopped.stderr).contains("cannot connect to the service"));
}

#[test]
fn a_service_after_one_that_was_killed_replaces_its_sockets() {
    let mut service = Service::start(CLASSES);
    service.signal(Signal::KILL);
    service.child.0.wait().expect("an end");
    assert!(service.path("run/punctual/hook").exists());
    let log = fs::File::create(service.path("log")).expect("made");
    let mut command = serve(service.folder.path(), &[]);
    service.child =
        Killed(command.env("NOTIFY_SOCKET", service.path("notify")).stderr(log).spawn().expect("it starts"));
    service.notified("READY=1");
    service.json();
    service.end();
}

#[test]
fn the_watchdog_is_fed() {
    let service = Service::start(CLASSES);
    let start = Instant::now();
    for _ in 0..4 {
        service.notified("WATCHDOG=1");
    }
    assert!(start.elapsed() > Duration::from_millis(900), "each half second");
    service.end();
}

/// A number from the environment, for long measurements.
fn count(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// `PUNCTUAL_STARTS=200` for the distribution.
#[test]
fn starts_and_stops_leave_nothing() {
    let starts = count("PUNCTUAL_STARTS", 10);
    let service = Service::start(CLASSES);
    let descriptors = || {
        let listed = fs::read_dir(format!("/proc/{}/fd", service.child.0.id())).expect("it runs");
        listed.count()
    };
    let mut client = service.client();
    client.send(&json!({ "method": "io.punctual.Host.Monitor", "more": true }));
    client.receive().expect("an event");
    let before = descriptors();
    let mut latencies = Vec::new();
    for number in 0..starts {
        // At different times between two looks.
        std::thread::sleep(Duration::from_millis(number as u64 * 37 % 150));
        let start = Instant::now();
        let vm = look_alike(&format!("punctual-relay-s{number}"), "");
        let process = vm.0.id();
        let mut until = |kind: &str| loop {
            let reply = client.receive().expect("an event");
            let event = &reply["parameters"]["event"];
            if event["process"] == process && event["kind"] == kind {
                return;
            }
        };
        until("seen");
        latencies.push(start.elapsed().as_millis());
        drop(vm);
        until("released");
    }
    latencies.sort_unstable();
    let late = latencies.iter().filter(|ms| **ms > SEEN_MS).count();
    let [p50, p99] = [50, 99].map(|percent| latencies[(starts - 1) * percent / 100]);
    let most = latencies[starts - 1];
    eprintln!(
        "from start to seen, {starts}: median {p50} ms, 99 % {p99} ms, most {most} ms, {late} above {SEEN_MS}"
    );
    let others = service.json();
    let host = &others["host"];
    assert!(host["actors_released"].as_u64().is_some_and(|released| released >= starts as u64));
    assert!(!others["actors"].to_string().contains("punctual-relay-s"), "{others}");
    // What counts waits is closed at the next look, once there is no VM.
    let is_left = |_: &u32| {
        std::thread::sleep(Duration::from_millis(100));
        descriptors() > before + 3
    };
    assert!((0..50).filter(is_left).count() < 50, "{} descriptors, {before} before", descriptors());
    service.end();
}

/// `PUNCTUAL_IDLE_S=60 PUNCTUAL_VMS=100` for the goal.
#[test]
fn an_idle_host_costs_little() {
    let (seconds, vms) = (count("PUNCTUAL_IDLE_S", 2), count("PUNCTUAL_VMS", 20));
    // Memory grows with what the VMs of other tests do.
    let service = Service::start_at(Place::take(true), CLASSES);
    let _vms: Vec<Killed> = (0..vms).map(|n| look_alike(&format!("punctual-idle-{n}"), "")).collect();
    service.vm(&format!("punctual-idle-{}", vms - 1), |_| true);
    std::thread::sleep(Duration::from_secs(if seconds > 10 { 6 } else { 0 }));
    let process = service.child.0.id();
    let stat = || fs::read_to_string(format!("/proc/{process}/schedstat")).expect("it runs");
    let ran = || stat().split(' ').next().expect("a time").parse::<u64>().expect("a number");
    let (start, before) = (Instant::now(), ran());
    std::thread::sleep(Duration::from_secs(seconds as u64));
    let share = (ran() - before) as f64 / start.elapsed().as_nanos() as f64;
    let mut status = String::new();
    fs::File::open(format!("/proc/{process}/status"))
        .expect("it runs")
        .read_to_string(&mut status)
        .expect("text");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    let resident: u64 = resident.expect("a size").trim().parse().expect("a number");
    eprintln!("{vms} idle VMs, {seconds} s: {:.3} % of a processor, {resident} KiB", share * 100.0);
    assert!(resident < 30 << 10, "{resident} KiB");
    service.end();
}

#[test]
fn the_units_are_valid() {
    if !Path::new("/usr/bin/systemd-analyze").exists() {
        return eprintln!("skipped: systemd-analyze is missing");
    }
    let units = [
        "punctuald.service",
        "punctual-enforce.service",
        "punctual-enforce.socket",
        "punctual-certify.service",
        "punctual-certify.timer",
        "punctual-metrics.service",
        "punctual-web.service",
    ];
    // The program that the units name may not be installed.
    let folder = tempfile::tempdir().expect("a folder");
    for unit in units {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(unit);
        let text = fs::read_to_string(from).expect("the unit");
        let text = text.replace("/usr/bin/punctual ", &format!("{PROGRAM} "));
        fs::write(folder.path().join(unit), text).expect("written");
    }
    let mut command = Command::new("systemd-analyze");
    let output = command.arg("verify").args(units).current_dir(folder.path()).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // Pages may be missing.
    let is_known = |line: &&str| line.contains("Command 'man punctual-");
    let others: Vec<&str> = said.lines().filter(|line| !is_known(line)).collect();
    assert!(others.iter().all(|line| !line.contains("punctual")), "{said}");
}

/// `punctual serve` with these arguments, its exit code and all that it prints.
fn said_by(service: &Service, args: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(PROGRAM);
    let output = command.arg("serve").args(args).current_dir(service.folder.path()).output();
    let output = output.expect("it runs");
    (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).expect("text"))
}

/// Live tests start programs by it.
#[test]
fn exec_starts_nothing_without_a_service_or_a_class_of_that_name() {
    let mut service = Service::start("[class.tap]\nmatch = [{ exec = 'capture' }]\n");
    let exec = |service: &Service, name: &str| {
        let mut command = Command::new(PROGRAM);
        command.args(["exec", "--run", "run", name, "--", "touch", "started"]);
        let output = command.current_dir(service.folder.path()).output().expect("it runs");
        assert!(!service.path("started").exists());
        (output.status.code(), String::from_utf8(output.stderr).expect("text"))
    };
    let (code, said) = exec(&service, "captur");
    assert_eq!(code, Some(2));
    assert!(said.contains("match = [{ exec = \"captur\" }]; did you mean \"capture\"?"), "{said}");
    let (code, said) = exec(&service, "a.b");
    assert_eq!(code, Some(2));
    assert!(said.contains("expected 1 to 64 letters, digits, `-` and `_`"), "{said}");
    let (code, checked) = said_by(&service, &["--check", "--config", "etc"]);
    assert_eq!(code, Some(0), "{checked}");
    service.child.0.kill().expect("killed");
    service.child.0.wait().expect("an end");
    let (code, said) = exec(&service, "capture");
    assert_eq!(code, Some(2));
    assert!(said.contains("io.punctual.Host"), "{said}");
}

#[test]
fn a_service_that_starts_with_a_broken_configuration_goes_on_with_the_one_before() {
    let mut service = Service::start("");
    let vm = look_alike("punctual-relay-k", "");
    // What a reload reads counts, not what the service started with.
    fs::write(service.path("etc/host.toml"), CLASSES).expect("written");
    assert_eq!(said_by(&service, &["--reload", "--run", "run"]).0, Some(0));
    service.vm("punctual-relay-k", |vm| vm["class"] == "relay");
    fs::write(service.path("etc/host.d/more.toml"), "[class.broken]\nmatch = 7\n").expect("written");
    service.kill_and_start();
    service.vm("punctual-relay-k", |vm| vm["class"] == "relay");
    let error = service.json()["host"]["reload_error"].clone();
    assert!(error.as_str().is_some_and(|line| line.contains("etc/host.d/more.toml:2: ")), "{error}");
    assert!(service.log().contains("the configuration stays as it was: etc/host.d/more.toml:2: "));
    let output = service.status(&["--metrics"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("punctual_reload_failed 1"));
    // Until it is mended.
    fs::write(service.path("etc/host.d/more.toml"), "").expect("written");
    assert_eq!(said_by(&service, &["--reload", "--run", "run"]).0, Some(0));
    assert!(service.json()["host"]["reload_error"].is_null());
    drop(vm);
}

/// As the unit's `ExecReload=` does it.
#[test]
fn a_reload_fails_when_the_files_are_refused() {
    let service = Service::start(CLASSES);
    let vm = look_alike("punctual-relay-9", "");
    service.vm("punctual-relay-9", |vm| vm["class"] == "relay");
    let more = service.path("etc/host.d/more.toml");
    fs::write(&more, "[pool.rt]\nprocessors = [0]\npolicy = 'deferrable'\n").expect("written");
    let reload = || said_by(&service, &["--reload", "--run", "run"]);
    assert_eq!(reload(), (Some(0), "the configuration is read, pools: 1, classes: 1\n".into()));
    let (code, checked) = said_by(&service, &["--check", "--config", "etc"]);
    let expected = "etc: valid, pools: 1, classes: 1\npool rt: processors 0, deferrable\n\
                    class relay in pool rt\n";
    assert_eq!((code, checked.as_str()), (Some(0), expected));
    fs::write(&more, "[class.broken]\nmatch = 7\n").expect("written");
    let (code, said) = reload();
    assert_eq!(code, Some(2), "{said}");
    for part in ["the one before stays", " --> etc/host.d/more.toml:2:9", "expected "] {
        assert!(said.contains(part), "{part} is missing in: {said}");
    }
    assert_eq!(actor(&service.json(), "punctual-relay-9")["class"], "relay");
    assert_eq!(service.json()["host"]["pools"][0]["name"], "rt");
    drop(vm);
    let log = service.end();
    assert_eq!(log.matches("the configuration is read").count(), 1, "{log}");
}

#[test]
fn a_pool_says_why_it_is_where_it_is() {
    let pool = "[pool.rt]\nprocessors = { count = 1 }\npolicy = 'deferrable'\n";
    let service = Service::start(&format!("{pool}{CLASSES}priority = 1\n"));
    let pool_of = |service: &Service| service.json()["host"]["pools"][0].clone();
    let shown = pool_of(&service);
    let reason = shown["reason"].as_str().expect("a reason").to_owned();
    let [processor] = &shown["processors"].as_array().expect("a list")[..] else { panic!("{shown}") };
    assert!(shown["idle"].is_array(), "{shown}");
    let (code, checked) = said_by(&service, &["--check", "--config", "etc"]);
    assert_eq!(code, Some(0), "{checked}");
    let expected = format!("pool rt: processors {processor}, deferrable\n  chosen: ");
    assert!(checked.contains(&expected), "{checked}");
    let words: Vec<&str> = checked.split_whitespace().collect();
    assert!(words.join(" ").contains(&reason), "{checked}");
    let said = String::from_utf8(service.status(&[]).stdout).expect("text");
    assert!(said.contains(&format!("pool rt is on {processor}: ")), "{said}");
    // More classes change nothing of it.
    fs::write(service.path("etc/host.d/b.toml"), "[class.b]\nmatch = [{ name = 'b' }]\nbest_effort = true\n")
        .expect("written");
    assert_eq!(said_by(&service, &["--reload", "--run", "run"]).0, Some(0));
    assert_eq!(pool_of(&service), shown);
    fs::write(
        service.path("etc/host.d/b.toml"),
        "[pool.b]\nprocessors = { count = 1000 }\npolicy = 'rtds'\n",
    )
    .expect("written");
    let (code, said) = said_by(&service, &["--reload", "--run", "run"]);
    assert_eq!(code, Some(2), "{said}");
    for part in ["pool b wants 1000 processors, and ", " --> etc/host.d/b.toml:2:1", " in pool rt"] {
        assert!(said.contains(part), "{part} is missing in: {said}");
    }
    assert_eq!(pool_of(&service), shown);
    service.end();
}

#[test]
fn a_slot_shows_whose_it_is_and_who_joined_it() {
    let config = "[pool.bulk]\nprocessors = { count = 1, near = 'plc' }\npolicy = 'deferrable'\n\
                  [pool.rt]\nprocessors = [1]\npolicy = 'deferrable'\n\
                  [class.plc]\nmatch = [{ name = 'plc-*' }]\npool = 'rt'\nslot = 'plc'\n\
                  best_effort = true\n\
                  [class.hmi]\nmatch = [{ name = 'hmi-*' }]\npool = 'bulk'\nnear = 'plc'\n\
                  best_effort = true\n";
    let service = Service::start(config);
    let expected = serde_json::json!([
        { "name": "plc", "of": "class plc", "processors": [1], "joined": ["pool bulk", "class hmi"] }
    ]);
    assert_eq!(service.json()["host"]["slots"], expected);
    let said = String::from_utf8(service.status(&[]).stdout).expect("text");
    assert!(said.contains("\nplc   1           class plc  pool bulk, class hmi\n"), "{said}");
    let (code, said) = said_by(&service, &["--check", "--config", "etc"]);
    assert_eq!(code, Some(0), "{said}");
    let line = "\nslot plc: processors 1, of class plc, joined by pool bulk, joined by class hmi\n";
    assert!(said.contains(line), "{said}");
    // Two classes cannot have one slot.
    let twin = config.replace("near = 'plc'\nbest", "slot = 'plc'\nbest");
    fs::write(service.path("etc/host.toml"), twin).expect("written");
    let (code, said) = said_by(&service, &["--reload", "--run", "run"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("slot `plc` is that of [class.plc]"), "{said}");
    assert_eq!(service.json()["host"]["slots"], expected);
    service.end();
}

#[test]
fn interrupts_of_a_class_are_shown_and_nothing_of_them_is_changed() {
    let class = |device: &str| format!("[class.nic]\nmatch = [{{ interrupts = '{device}' }}]\n");
    let service = Service::start(CLASSES);
    fs::write(service.path("etc/host.d/b.toml"), class("nonexistent0")).expect("written");
    let (code, said) = said_by(&service, &["--reload", "--run", "run"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("this machine has no device `nonexistent0`"), "{said}");
    let devices = topology::read(Path::new("/")).expect("a topology").devices;
    let affinity = |number: &usize| fs::read_to_string(format!("/proc/irq/{number}/smp_affinity_list")).ok();
    let found = devices.iter().find(|(_, device)| device.numbers.iter().any(|one| affinity(one).is_some()));
    let Some((name, device)) = found else {
        eprintln!("skipped: no device of this machine has interrupts");
        return drop(service.end());
    };
    let before: Vec<_> = device.numbers.iter().map(affinity).collect();
    fs::write(service.path("etc/host.d/b.toml"), class(name)).expect("written");
    assert_eq!(said_by(&service, &["--reload", "--run", "run"]).0, Some(0));
    wait("the device is seen", || service.json()["host"]["interrupts"][0]["device"] == **name);
    let shown = service.json()["host"]["interrupts"][0].clone();
    assert_eq!((&shown["class"], &shown["allowed"]), (&"nic".into(), &Value::Null), "{shown}");
    assert_eq!(shown["numbers"], serde_json::json!(device.numbers), "{shown}");
    let said = String::from_utf8(service.status(&[]).stdout).expect("text");
    assert!(said.contains("\ninterrupts of"), "{said}");
    assert_eq!(device.numbers.iter().map(affinity).collect::<Vec<_>>(), before);
    service.end();
}

#[test]
fn names_of_files_cannot_change_the_terminal() {
    let service = Service::start(CLASSES);
    let name = "etc/host.d/\u{1b}[2J\u{202e}.toml";
    for text in ["[class.a]\nmatch = 7\n", "[class.a]\nmatch = '\u{1b}[2J'\n"] {
        fs::write(service.path(name), text).expect("written");
        for args in [["--check", "--config", "etc"], ["--reload", "--run", "run"]] {
            let (code, said) = said_by(&service, &args);
            assert_eq!(code, Some(2), "{said}");
            assert!(said.contains("\\u{1b}[2J\\u{202e}.toml:2:"), "{said:?}");
            assert!(!said.contains(['\u{1b}', '\u{202e}']), "{said:?}");
        }
    }
    fs::remove_file(service.path(name)).expect("removed");
    fs::create_dir(service.path(name)).expect("made");
    let (code, said) = said_by(&service, &["--check", "--config", "etc"]);
    assert!(code == Some(2) && said.contains("cannot read etc/host.d/\\u{1b}"), "{said:?}");
    assert!(!said.contains('\u{1b}'), "{said:?}");
    let log = service.end();
    assert!(!log.contains('\u{1b}'), "{log:?}");
}
