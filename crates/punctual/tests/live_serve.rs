//! The service with enforcement: VMs are held from their start, and as they were when they are let go of,
//! whatever happens to the two processes meanwhile. The VMs are look-alikes: processes with the command line
//! and the thread names of QEMU. Units are cgroups that a test makes where systemd would.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use common::faults::{random, signal, signal_if_there, wait};
use common::live::{PROCESSOR, needs, undisturbed};
use punctual_linux::os::sched::{self, Attributes};
use punctual_linux::os::{cgroup, proc};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_punctual");
/// How many vCPUs the program of a VM is to have: set for the copy of this program that is one.
const VCPUS: &str = "PUNCTUAL_TEST_VCPUS";
/// A VM is enforced within this time from its start, by the design.
const HELD_MS: u128 = 250;
/// A VM is without its budget no longer than that when what enforces it was killed, by the design.
const UNBUDGETED_MAX: Duration = Duration::from_millis(200);
/// A nice value of a VM's own.
const NICE: i32 = 5;

/// No test: a VM. The tests below start this executable again to run it.
#[test]
#[ignore = "the VM of the other tests"]
fn a_vm() {
    let Some(vcpus) = std::env::var(VCPUS).ok().and_then(|vcpus| vcpus.parse::<u32>().ok()) else { return };
    let start = |name: String, work: fn()| {
        std::thread::Builder::new().name(name).stack_size(64 << 10).spawn(work).expect("a thread");
    };
    let spin = || {
        loop {
            std::hint::spin_loop();
        }
    };
    let sleep = || {
        loop {
            std::thread::park();
        }
    };
    let nice = || {
        sched::set_attributes(0, &Attributes { nice: NICE, ..Attributes::other() }).expect("permitted");
        loop {
            std::thread::park();
        }
    };
    (0..vcpus).for_each(|vcpu| start(format!("CPU {vcpu}/KVM"), spin));
    start("worker".into(), sleep);
    start("IO mon_iothread".into(), nice);
    // Until the test has ended: each line is the name of a thread that comes.
    std::io::stdin().lines().map_while(Result::ok).for_each(|name| start(name, sleep));
    std::process::exit(0);
}

struct Process(Child);

impl Process {
    fn id(&self) -> u32 {
        self.0.id()
    }

    fn kill(&mut self) {
        signal_if_there(self.id(), "KILL");
        let _ = self.0.wait();
    }

    /// Ends it by SIGTERM; it succeeds.
    fn end(mut self) {
        signal(self.id(), "TERM");
        assert!(self.0.wait().expect("an end").success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn vm(name: &str, vcpus: u32) -> Process {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.arg0("/usr/bin/qemu-system-x86_64").args(["--exact", "a_vm", "--ignored", "--nocapture", "--"]);
    command.args(["-name", &format!("guest={name},debug-threads=on")]).env(VCPUS, vcpus.to_string());
    Process(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("a process"))
}

/// How each thread of a process is scheduled, and in which group it is.
type State = Vec<(String, Attributes, Vec<usize>, String)>;

fn state(process: u32) -> State {
    let of_thread = |tid: i32| {
        Some((
            proc::name(tid).ok()?,
            sched::attributes(tid).ok()?,
            sched::affinity(tid).ok()?,
            cgroup::group_of(tid).ok()?,
        ))
    };
    let mut all: State =
        proc::threads(process as i32).unwrap_or_default().into_iter().filter_map(of_thread).collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

/// The state of a VM before anything happens to it: all its threads are there.
fn settled(process: u32, vcpus: usize) -> State {
    let is_complete = || {
        let names: Vec<String> = state(process).into_iter().map(|thread| thread.0).collect();
        let of_vcpus = names.iter().filter(|name| name.starts_with("CPU ")).count();
        let has = |known: &str| names.iter().any(|name| name == known);
        of_vcpus == vcpus && has("worker") && has("IO mon_iothread") && has_nice(process)
    };
    wait("the threads of the VM", is_complete);
    state(process)
}

fn has_nice(process: u32) -> bool {
    state(process).iter().any(|(.., attributes, _, _)| attributes.nice == NICE)
}

fn is_enforced(process: u32) -> bool {
    state(process).iter().any(|(name, _, affinity, group)| {
        name.starts_with("CPU ") && is_in_unit(group) && affinity == &[PROCESSOR]
    })
}

fn is_in_unit(group: &str) -> bool {
    group.contains("/punctual-") && group.contains("/unit")
}

/// The two processes of the service with their configuration.
struct Host {
    folder: tempfile::TempDir,
    enforcer: Option<Process>,
    service: Option<Process>,
    grace: &'static str,
}

fn class(name: &str, budget: &str) -> String {
    format!(
        "[class.{name}]\nmatch = [{{ name = '{name}-*' }}]\nbudget = '{budget}'\nperiod = '10ms'\n\
         priority = 1\n"
    )
}

fn config(classes: &str) -> String {
    format!("mode = 'enforce'\n[pool.rt]\nprocessors = [{PROCESSOR}]\npolicy = 'deferrable'\n{classes}")
}

impl Host {
    fn start(classes: &str, grace: &'static str) -> Host {
        Host::with(&config(classes), grace)
    }

    fn with(text: &str, grace: &'static str) -> Host {
        let folder = tempfile::tempdir().expect("a folder");
        for directory in ["etc/host.d", "run"] {
            fs::create_dir_all(folder.path().join(directory)).expect("made");
        }
        let mut host = Host { folder, enforcer: None, service: None, grace };
        host.configure(text);
        host.start_enforcer();
        host.start_service();
        host
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(args).current_dir(self.folder.path());
        command.env_remove("NOTIFY_SOCKET").env_remove("JOURNAL_STREAM").env_remove("LISTEN_PID");
        command
    }

    fn log(&self, name: &str) -> fs::File {
        let path = self.folder.path().join(name);
        fs::File::options().create(true).append(true).open(path).expect("a log")
    }

    fn start_enforcer(&mut self) {
        let mut command = self.command(&["enforce", "--run", "run", "--grace", self.grace]);
        let child = command.stderr(self.log("enforce.log")).spawn().expect("it starts");
        self.enforcer = Some(Process(child));
        wait("the socket", || self.folder.path().join("run/punctual/enforce").exists());
    }

    fn start_service(&mut self) {
        let mut command = self.command(&["serve", "--config", "etc", "--run", "run"]);
        let child = command.stderr(self.log("serve.log")).spawn().expect("it starts");
        self.service = Some(Process(child));
    }

    fn configure(&self, text: &str) {
        fs::write(self.folder.path().join("etc/host.toml"), text).expect("written");
    }

    fn reload(&self, text: &str) {
        self.configure(text);
        signal(self.service.as_ref().expect("it runs").id(), "HUP");
    }

    fn logged(&self) -> String {
        fs::read_to_string(self.folder.path().join("serve.log")).expect("a log")
    }

    fn status(&self, vm: &str) -> Option<Value> {
        let output = self.command(&["status", "--run", "run", "--json", vm]).output().expect("it runs");
        serde_json::from_slice(&output.stdout).ok()
    }

    fn wait_until_held(&self, vm: &Process) {
        let start = Instant::now();
        while !is_enforced(vm.id()) {
            assert!(
                start.elapsed() < Duration::from_secs(30),
                "the VM is not held: {:?}\n{}\n{}",
                state(vm.id()),
                self.logged(),
                fs::read_to_string(self.folder.path().join("enforce.log")).expect("a log"),
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends both, the service first; nothing stays.
    fn end(mut self) -> String {
        self.service.take().into_iter().for_each(Process::end);
        self.enforcer.take().into_iter().for_each(Process::end);
        let left = fs::read_dir(self.folder.path().join("run/punctual")).expect("a directory").flatten();
        let mut left: Vec<_> = left.map(|entry| entry.file_name()).collect();
        left.sort();
        assert_eq!(left, ["enforce.lock", "lock"]);
        self.logged()
    }
}

fn wait_until_as_before(vm: &Process, before: &State) {
    wait(&format!("{:?} is {before:?}", state(vm.id())), || state(vm.id()) == *before);
}

/// The share of a processor that the vCPUs of a VM run within `length`, together.
fn share(vm: &Process, length: Duration) -> f64 {
    shares(vm, length).iter().sum()
}

/// The share of each vCPU.
fn shares(vm: &Process, length: Duration) -> Vec<f64> {
    let ran = || -> Vec<u64> {
        let threads = proc::threads(vm.id() as i32).expect("it runs").into_iter();
        let vcpus = threads.filter(|tid| proc::name(*tid).is_ok_and(|name| name.starts_with("CPU ")));
        let ran = |tid: i32| {
            let text = fs::read_to_string(format!("/proc/{}/task/{tid}/schedstat", vm.id())).expect("read");
            proc::parse_schedstat(&text).expect("an account").ran.as_ns()
        };
        vcpus.map(ran).collect()
    };
    let (start, before) = (Instant::now(), ran());
    std::thread::sleep(length);
    let (after, elapsed) = (ran(), start.elapsed().as_nanos() as f64);
    after.iter().zip(before).map(|(after, before)| (after - before) as f64 / elapsed).collect()
}

#[test]
fn vcpus_of_a_vm_share_its_budget_where_the_class_says_so() {
    let Some(_turn) = needs() else { return };
    let shared = class("relay", "3ms") + "budget_of = 'vm'\n";
    let host = Host::start(&shared, "60");
    let relay = vm("relay-1", 3);
    let before = settled(relay.id(), 3);
    host.wait_until_held(&relay);
    undisturbed(|| {
        let shares = shares(&relay, Duration::from_secs(1));
        let is_shared = (0.29..0.315).contains(&shares.iter().sum()) && shares.iter().all(|one| *one > 0.08);
        if is_shared { Ok(()) } else { Err(format!("{shares:?} of a processor")) }
    });
    // Each vCPU has its own.
    host.reload(&config(&class("relay", "2ms")));
    wait("each has a budget", || (0.55..0.65).contains(&share(&relay, Duration::from_millis(300))));
    host.reload(&config(&shared));
    wait("they share one", || (0.27..0.33).contains(&share(&relay, Duration::from_millis(300))));
    host.end();
    wait_until_as_before(&relay, &before);
}

#[test]
fn a_vm_is_held_by_its_class_and_as_it_was_when_it_leaves_it() {
    let Some(_turn) = needs() else { return };
    let host = Host::start(&class("relay", "2ms"), "60");
    let (relay, other) = (vm("relay-1", 1), vm("web-1", 1));
    let others = settled(other.id(), 1);
    host.wait_until_held(&relay);
    undisturbed(|| {
        let share = share(&relay, Duration::from_secs(1));
        if (0.19..0.21).contains(&share) { Ok(()) } else { Err(format!("{share} of a processor")) }
    });
    let unit =
        |vm: &Process| state(vm.id()).into_iter().map(|thread| thread.3).find(|group| is_in_unit(group));
    let in_unit = unit(&relay);
    // Another budget moves nothing; a broken file changes nothing.
    host.reload(&config(&class("relay", "4ms")));
    wait("the budget is another one", || (0.35..0.45).contains(&share(&relay, Duration::from_millis(300))));
    host.reload("mode = ");
    wait("the file is refused", || host.logged().contains("stays as it was"));
    assert_eq!(unit(&relay), in_unit, "{}", host.logged());
    let seen = host.status("relay-1").expect("an answer");
    assert_eq!((&seen["state"], &seen["not_held"]), (&"held".into(), &Value::Null), "{seen}");
    assert_eq!(seen["budgets"][0]["number"], 0, "{seen}");
    // It leaves its class.
    host.reload(&config(&class("other", "4ms")));
    let before = |vm: &Process| {
        let all = state(vm.id());
        all.iter().all(|(_, attributes, affinity, group)| {
            !is_in_unit(group) && attributes.policy == sched::OTHER && affinity.len() > 1
        }) && all.iter().filter(|thread| thread.1.nice == NICE).count() == 1
    };
    wait("it is as it was", || before(&relay));
    assert_eq!(state(other.id()), others, "a VM without a class is never touched");
    // And comes back.
    host.reload(&config(&class("relay", "2ms")));
    host.wait_until_held(&relay);
    let log = host.end();
    assert!(before(&relay), "{log}");
    assert_eq!(log.matches("VM relay-1 is held: 1 vCPU in pool rt").count(), 2, "{log}");
}

#[test]
fn helpers_get_what_their_role_has_whenever_they_come_and_are_as_before() {
    let Some(_turn) = needs() else { return };
    let config = |io: &str| {
        let class = class("relay", "2ms");
        config(&format!(
            "[slot.rest]\nprocessors = [0]\n{class}helpers = {{ nice = -3 }}\nthreads = {{ io = {io} }}\n"
        ))
    };
    let host = Host::with(&config("{ slot = 'rest', policy = 'fifo', priority = 7 }"), "60");
    let mut relay = vm("relay-1", 1);
    let id = relay.id();
    // All threads with these names have the attributes, and there are so many.
    let have = |names: [&str; 2], count: usize, to: &Attributes| {
        let all = state(id);
        let mut of_role = all.iter().filter(|thread| names.iter().any(|name| thread.0.starts_with(name)));
        of_role.clone().count() == count
            && of_role.all(|(_, now, affinity, _)| {
                let is_nice = to.priority > 0 || now.nice == to.nice;
                now.is_same_class(to) && is_nice && affinity == &[0]
            })
    };
    let (fifo, favoured) = (Attributes::fifo(7), Attributes { nice: -3, ..Attributes::other() });
    let (io, main) = (["worker", "IO "], ["live_serve", "a_vm"]);
    host.wait_until_held(&relay);
    wait("helpers are placed", || have(io, 2, &fifo) && have(main, 2, &favoured));
    let input = relay.0.stdin.as_mut().expect("a pipe");
    std::io::Write::write_all(input, b"worker\n").expect("written");
    wait("one that comes is placed", || have(io, 3, &fifo));
    let of_io = |host: &Host| {
        let seen = host.status("relay-1").expect("an answer");
        let roles = seen["helpers"].as_array().expect("a list").clone();
        roles.into_iter().find(|role| role["role"] == "io").expect("it has some")
    };
    let expected = serde_json::json!({
        "role": "io", "processors": [0], "reason": "they are in slot rest", "policy": "SCHED_FIFO",
        "rt_priority": 7, "nice": 0,
    });
    wait("it is reported", || of_io(&host) == expected);
    let shown = host.command(&["status", "--run", "run", "relay-1"]).output().expect("it runs").stdout;
    let shown = String::from_utf8(shown).expect("text");
    let line = "io         0        SCHED_FIFO 7          they are in slot rest\n";
    assert!(shown.contains(line), "{shown}");
    host.reload(&config("{ nice = 4 }"));
    let unfavoured = Attributes { nice: 4, ..Attributes::other() };
    wait("helpers get something else", || have(io, 3, &unfavoured) && have(main, 2, &favoured));
    let pause = host.command(&["pause", "relay-1", "--run", "run"]).status().expect("it runs");
    assert!(pause.success());
    // The one that came later is as the first thread of its process was.
    let inherited = sched::attributes(0).expect("this thread").nice;
    let is_as_before = || {
        state(id).iter().all(|(name, attributes, affinity, group)| {
            let nice = if name.starts_with("IO ") { NICE } else { inherited };
            let is_free = affinity.len() > 1 && !is_in_unit(group);
            is_free && (attributes.policy, attributes.nice) == (sched::OTHER, nice)
        })
    };
    wait(&format!("{:?} is as before", state(id)), is_as_before);
    drop(relay);
    host.end();
}

#[test]
fn one_vm_gets_another_budget_and_is_left_alone_for_a_while() {
    let Some(_turn) = needs() else { return };
    let mut host = Host::start(&class("relay", "2ms"), "60");
    let vms = [vm("relay-1", 1), vm("relay-2", 1)];
    let before = [settled(vms[0].id(), 1), settled(vms[1].id(), 1)];
    vms.iter().for_each(|vm| host.wait_until_held(vm));
    let groups = |vm: &Process| state(vm.id()).into_iter().map(|thread| thread.3).collect::<Vec<_>>();
    let held = [groups(&vms[0]), groups(&vms[1])];
    let ask = |host: &Host, args: &[&str]| {
        assert_eq!(host.command(args).args(["--run", "run"]).status().expect("it runs").code(), Some(0));
    };
    ask(&host, &["adjust", "relay-1", "--budget", "4ms"]);
    wait("it has another budget", || (0.35..0.45).contains(&share(&vms[0], Duration::from_millis(300))));
    undisturbed(|| {
        let share = share(&vms[1], Duration::from_secs(1));
        if (0.19..0.21).contains(&share) { Ok(()) } else { Err(format!("{share} of a processor")) }
    });
    assert_eq!([groups(&vms[0]), groups(&vms[1])], held, "nobody moves");
    // The next service wants the same.
    host.service.as_mut().expect("it runs").kill();
    host.start_service();
    wait("it answers", || host.status("relay-1").is_some_and(|vm| vm["state"] == "held"));
    let share = share(&vms[0], Duration::from_secs(1));
    assert!((0.35..0.45).contains(&share), "{share} of a processor");
    ask(&host, &["pause", "relay-1"]);
    wait_until_as_before(&vms[0], &before[0]);
    let paused = host.status("relay-1").expect("an answer");
    assert!(paused["not_held"].as_str().is_some_and(|reason| reason.contains("paused")), "{paused}");
    assert_eq!(groups(&vms[1]), held[1], "the other one stays");
    ask(&host, &["resume", "relay-1"]);
    host.wait_until_held(&vms[0]);
    ask(&host, &["adjust", "relay-1", "--reset"]);
    host.end();
    (0..2).for_each(|n| wait_until_as_before(&vms[n], &before[n]));
}

#[test]
fn a_vm_is_held_where_its_pool_was_chosen_and_stays_while_the_choice_does() {
    let Some(_turn) = needs() else { return };
    // Of these two processors the other one is 0.
    let config = |classes: &str| {
        format!(
            "mode = 'enforce'\n[machine]\nprocessors = 2\n[slot.rest]\nprocessors = [0]\n[pool.rt]\n\
             processors = {{ count = 1 }}\npolicy = 'deferrable'\n{classes}"
        )
    };
    let host = Host::with(&config(&class("relay", "2ms")), "60");
    let relay = vm("relay-1", 1);
    host.wait_until_held(&relay);
    // The class of a thread follows its budget, and helpers follow a moment later.
    let places = |vm: &Process| -> Vec<_> {
        let vcpus = state(vm.id()).into_iter().filter(|thread| thread.0.starts_with("CPU "));
        vcpus.map(|(name, _, affinity, group)| (name, affinity, group)).collect()
    };
    let held = places(&relay);
    host.reload(&(config(&class("relay", "2ms")) + &class("web", "1ms")));
    let web = vm("web-1", 1);
    host.wait_until_held(&web);
    assert_eq!(places(&relay), held, "{}", host.logged());
    let log = host.end();
    assert_eq!(log.matches("VM relay-1 is held: 1 vCPU in pool rt").count(), 1, "{log}");
    assert!(!log.contains("its pools changed"), "{log}");
}

#[test]
fn a_vm_in_a_group_with_another_one_is_let_go_of_alone() {
    let Some(_turn) = needs() else { return };
    let both = class("relay", "2ms") + &class("plc", "2ms");
    let (relay, plc) = (vm("relay-1", 2), vm("plc-1", 2));
    let before = [settled(relay.id(), 2), settled(plc.id(), 2)];
    let host = Host::start(&both, "60");
    host.wait_until_held(&relay);
    host.wait_until_held(&plc);
    host.reload(&config(&class("plc", "2ms")));
    wait_until_as_before(&relay, &before[0]);
    assert!(is_enforced(plc.id()), "{}", host.logged());
    host.reload(&config(&both));
    host.wait_until_held(&relay);
    // Enforcement ends as a whole.
    host.reload(&config(&both).replace("enforce", "observe"));
    wait_until_as_before(&plc, &before[1]);
    wait_until_as_before(&relay, &before[0]);
    host.end();
}

#[test]
fn strictly_a_vm_that_does_not_fit_stays_as_it_is_until_there_is_room() {
    let Some(_turn) = needs() else { return };
    let host = Host::with(&("admission = 'strict'\n".to_owned() + &config(&class("relay", "4ms"))), "60");
    let first = vm("relay-1", 1);
    host.wait_until_held(&first);
    let second = vm("relay-2", 1);
    let before = settled(second.id(), 1);
    let refused = || host.status("relay-2").is_some_and(|vm| vm["not_held"].is_string());
    wait("it is refused", refused);
    let ask = |args: &[&str]| {
        let output = host.command(&["admit", "--run", "run"]).args(args).output().expect("it runs");
        (output.status.code(), String::from_utf8(output.stdout).expect("text"))
    };
    let (code, said) = ask(&["relay"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.starts_with("no: these budgets would not be guaranteed\n"), "{said}");
    assert_eq!(ask(&["none"]).0, Some(2));
    assert_eq!(state(second.id()), before);
    drop(first);
    host.wait_until_held(&second);
    drop(second);
    wait("nobody is left", || host.status("relay-2").is_none());
    assert_eq!(ask(&["relay"]), (Some(0), YES.to_owned()));
    let log = host.end();
    assert_eq!(log.matches("VM relay-2 is not held: its vCPU 0 would not be guaranteed").count(), 1, "{log}");
}

const YES: &str = "yes: all of them get their budgets, and nobody loses a guarantee\n";

#[test]
fn a_service_that_is_killed_and_comes_back_changes_nothing_for_a_vm() {
    let Some(_turn) = needs() else { return };
    let mut host = Host::start(&class("relay", "2ms"), "60");
    let relay = vm("relay-1", 1);
    host.wait_until_held(&relay);
    let held = state(relay.id());
    let groups = |state: &State| state.iter().map(|thread| thread.3.clone()).collect::<Vec<_>>();
    for round in 0..kills(20) {
        host.service.as_mut().expect("it runs").kill();
        let until = Instant::now() + Duration::from_micros(random(round) % 200_000);
        host.start_service();
        while Instant::now() < until {
            assert_eq!(groups(&state(relay.id())), groups(&held), "round {round}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    wait("it answers", || host.status("relay-1").is_some_and(|vm| vm["state"] == "held"));
    assert_eq!(groups(&state(relay.id())), groups(&held));
    host.end();
}

/// How many rounds a test has: `PUNCTUAL_KILLS` for longer ones.
fn kills(usual: u64) -> u64 {
    std::env::var("PUNCTUAL_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(usual)
}

/// The longest time for which something was so.
#[derive(Default)]
struct Longest {
    since: Option<Instant>,
    longest: Duration,
}

impl Longest {
    fn add(&mut self, is: bool) {
        let now = Instant::now();
        let since = if is { *self.since.get_or_insert(now) } else { self.since.take().unwrap_or(now) };
        self.longest = self.longest.max(now - since);
    }
}

#[test]
fn when_the_enforcing_process_is_killed_the_vm_is_as_it_was_until_another_one_comes() {
    let Some(_turn) = needs() else { return };
    let relay = vm("relay-1", 1);
    let before = settled(relay.id(), 1);
    let mut host = Host::start(&class("relay", "2ms"), "60");
    let (mut unbudgeted, mut frozen) = (Vec::new(), Longest::default());
    for round in 0..kills(10) {
        // Sometimes in the middle of holding it.
        if round % 3 > 0 {
            host.wait_until_held(&relay);
            wait("it has used its budget up", || is_frozen(relay.id()));
        } else {
            std::thread::sleep(Duration::from_micros(random(round) % 1_500_000));
        }
        let mut enforcer = host.enforcer.take().expect("it runs");
        let killed = Instant::now();
        signal(enforcer.id(), "KILL");
        while state(relay.id()) != before {
            assert!(killed.elapsed() < Duration::from_secs(10), "{:?}", state(relay.id()));
            frozen.add(is_frozen(relay.id()));
        }
        unbudgeted.push(killed.elapsed());
        frozen.add(false);
        enforcer.kill();
        host.start_enforcer();
    }
    unbudgeted.sort();
    let (median, worst) = (unbudgeted[unbudgeted.len() / 2], unbudgeted[unbudgeted.len() - 1]);
    println!("put back after a kill: median {median:?}, worst {worst:?}; frozen {:?}", frozen.longest);
    // By the design 50 ms frozen, on a machine that does nothing else.
    assert!(worst < UNBUDGETED_MAX && frozen.longest < UNBUDGETED_MAX, "{worst:?} {:?}", frozen.longest);
    host.wait_until_held(&relay);
    host.end();
    wait_until_as_before(&relay, &before);
}

/// Is a unit of the process frozen?
fn is_frozen(process: u32) -> bool {
    let mount = cgroup::mount().expect("mounted");
    let groups = state(process).into_iter().map(|thread| thread.3).filter(|group| is_in_unit(group));
    groups.into_iter().any(|group| {
        let file = cgroup::below(&mount, &group).join("cgroup.freeze");
        fs::read_to_string(file).is_ok_and(|text| text.trim() == "1")
    })
}

#[test]
fn what_a_service_wanted_that_stays_away_is_let_go_of_after_the_grace() {
    let Some(_turn) = needs() else { return };
    let relay = vm("relay-1", 1);
    let before = settled(relay.id(), 1);
    let mut host = Host::start(&class("relay", "2ms"), "1");
    host.wait_until_held(&relay);
    host.service.take().expect("it runs").end();
    std::thread::sleep(Duration::from_millis(500));
    assert!(is_enforced(relay.id()), "a service may be restarted");
    wait_until_as_before(&relay, &before);
    host.start_service();
    host.wait_until_held(&relay);
    host.end();
    wait_until_as_before(&relay, &before);
}

#[test]
fn vms_that_come_and_go_are_held_soon_and_leave_nothing() {
    let Some(_turn) = needs() else { return };
    let host = Host::start(&class("relay", "1ms"), "60");
    let enforcer = host.enforcer.as_ref().expect("it runs").id();
    let first = vm("relay-first", 1);
    host.wait_until_held(&first);
    let held: Mutex<Vec<u128>> = Mutex::default();
    let run = |count: u64| {
        for round in 0..count {
            let start = Instant::now();
            let relay = vm(&format!("relay-{round}"), 1 + (round % 2) as u32);
            host.wait_until_held(&relay);
            held.lock().expect("not poisoned").push(start.elapsed().as_millis());
        }
        wait("they are let go of", || units(enforcer).len() == 1);
    };
    // Memory grows with the first ones.
    run(10);
    let resources = |process: u32| {
        let descriptors = fs::read_dir(format!("/proc/{process}/fd")).expect("it runs").count();
        let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
        let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
        (descriptors, kib.trim().trim_end_matches(" kB").parse::<u64>().expect("a number"))
    };
    let before = resources(enforcer);
    let rounds = kills(30);
    run(rounds);
    let after = resources(enforcer);
    let mut held = held.into_inner().expect("not poisoned");
    held.sort();
    let [median, worst] = [held[held.len() / 2], held[held.len() - 1]];
    println!(
        "from start to held: median {median} ms, worst {worst} ms (goal {HELD_MS}); {before:?} {after:?}"
    );
    assert_eq!(after.0, before.0, "descriptors");
    assert!(after.1 < before.1 + 1024 + 4 * rounds, "KiB: {before:?} {after:?}");
    let log = host.end();
    assert!(!log.contains("is not held"), "{log}");
    assert!(units(enforcer).is_empty());
}

/// The groups of units of an enforcing process.
fn units(enforcer: u32) -> Vec<PathBuf> {
    fn below(directory: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.path().is_dir() {
                found.push(entry.path());
                below(&entry.path(), found);
            }
        }
    }
    let mut found = Vec::new();
    below(&cgroup::mount().expect("mounted"), &mut found);
    let of_enforcer = format!("/punctual-{enforcer}-attached/unit");
    found.retain(|path| path.to_string_lossy().contains(&of_enforcer));
    found
}

/// A systemd unit as its cgroup shows it, with processes that spin.
struct Unit {
    slice: PathBuf,
    name: String,
    processes: Vec<Child>,
}

impl Unit {
    fn start(name: &str, processes: usize) -> Unit {
        let test = std::process::id();
        let slice = cgroup::mount().expect("mounted").join(format!("t{test}.slice"));
        let name = format!("{name}-{test}.service");
        fs::create_dir_all(slice.join(&name)).expect("made");
        let mut unit = Unit { slice, name, processes: Vec::new() };
        (0..processes).for_each(|_| unit.add());
        unit
    }

    fn directory(&self) -> PathBuf {
        self.slice.join(&self.name)
    }

    /// Another process comes to it.
    fn add(&mut self) {
        let mut command = Command::new("sh");
        command.args(["-c", "read go; while :; do :; done"]).stdin(Stdio::piped());
        let mut child = command.spawn().expect("a process");
        // It has the name of this thread until it has executed the shell.
        wait("it is a shell", || proc::name(child.id() as i32).is_ok_and(|name| name == "sh"));
        cgroup::move_to(&self.directory(), child.id() as i32).expect("moved");
        drop(child.stdin.take());
        self.processes.push(child);
    }

    /// Its oldest process ends.
    fn end_first(&mut self) {
        let mut first = self.processes.remove(0);
        first.kill().expect("it runs");
        first.wait().expect("an end");
    }

    /// The group of its last process.
    fn group(&self) -> Option<String> {
        self.states().last()?.first().map(|thread| thread.3.clone())
    }

    fn states(&self) -> Vec<State> {
        self.processes.iter().map(|process| state(process.id())).collect()
    }

    /// Are all its processes in one group of the enforcing process, on the pool's processor, as real-time
    /// threads? One that is parked may be in any class.
    fn is_held(&self) -> bool {
        let states = self.states();
        let of_thread = |(_, attributes, affinity, group): &(String, Attributes, Vec<usize>, String)| {
            let is_there = is_in_unit(group) && affinity == &[PROCESSOR];
            (is_there && attributes.policy == sched::FIFO).then(|| group.clone())
        };
        let groups: Option<Vec<String>> = states.iter().flatten().map(of_thread).collect();
        groups.is_some_and(|groups| groups.windows(2).all(|two| two[0] == two[1]))
    }

    fn wait_until_held(&self, host: &Host) {
        let start = Instant::now();
        while !self.is_held() {
            let states = self.states();
            assert!(start.elapsed() < Duration::from_secs(30), "{states:?}\n{}", host.logged());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn wait_until(&self, before: &[State]) {
        wait(&format!("{:?} is {before:?}", self.states()), || self.states() == before);
    }

    /// The share of a processor that its processes run within `length`, all together.
    fn share(&self, length: Duration) -> f64 {
        let ran = || {
            let text = fs::read_to_string(self.directory().join("cpu.stat")).expect("it is there");
            proc::parse_cpu_stat(&text).expect("an account").as_ns()
        };
        let (start, before) = (Instant::now(), ran());
        std::thread::sleep(length);
        (ran() - before) as f64 / start.elapsed().as_nanos() as f64
    }

    fn class(&self, budget: &str) -> String {
        let name = &self.name;
        format!(
            "[class.tap]\nmatch = [{{ unit = '{name}' }}]\nbudget = '{budget}'\nperiod = '10ms'\n\
             priority = 1\n"
        )
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
        // What enforcement made in it is gone, or the test has failed.
        let _ = cgroup::remove_tree(&self.directory());
        let _ = fs::remove_dir(&self.slice);
    }
}

#[test]
fn a_unit_has_one_budget_for_all_its_processes_and_is_as_it_was_when_it_leaves_its_class() {
    let Some(_turn) = needs() else { return };
    let mut unit = Unit::start("tap", 2);
    // Each is as it was itself.
    let nice = Attributes { nice: NICE, ..Attributes::other() };
    sched::set_attributes(unit.processes[1].id() as i32, &nice).expect("permitted");
    let before = unit.states();
    let host = Host::start(&unit.class("2ms"), "60");
    unit.wait_until_held(&host);
    let is_budget = |unit: &Unit| {
        undisturbed(|| {
            let share = unit.share(Duration::from_secs(1));
            if (0.19..0.21).contains(&share) { Ok(()) } else { Err(format!("{share} of a processor")) }
        });
    };
    is_budget(&unit);
    // A process that comes later gets no time of its own.
    unit.add();
    unit.wait_until_held(&host);
    is_budget(&unit);
    let seen = || host.status(&unit.name).expect("an answer");
    wait("all threads are counted", || seen()["threads"].as_array().is_some_and(|all| all.len() == 3));
    let seen = seen();
    assert_eq!((&seen["kind"], &seen["state"]), (&"unit".into(), &"held".into()), "{seen}");
    assert_eq!((&seen["processes"], &seen["budgets"][0]["number"]), (&3.into(), &0.into()), "{seen}");
    host.reload(&config(&class("other", "4ms")));
    wait("it is as it was", || unit.states()[..2] == before[..]);
    wait("so is the process that came", || {
        let states = unit.states();
        let [(_, attributes, affinity, group)] = &states[2][..] else { return false };
        let (_, known, allowed, home) = &before[0][0];
        (attributes, affinity, group) == (known, allowed, home)
    });
    host.reload(&config(&unit.class("2ms")));
    unit.wait_until_held(&host);
    let log = host.end();
    assert_eq!(unit.states()[..2], before[..], "{log}");
    assert!(!log.contains("put back") && !log.contains("given up"), "{log}");
    assert_eq!(log.matches(&format!("unit {} is held in pool rt", unit.name)).count(), 2, "{log}");
}

/// Makes a scope as `systemd-run --scope --quiet --collect --unit NAME -- COMMAND` does, below $SLICE.
const SYSTEMD_RUN: &str = "#!/bin/sh
[ \"$1 $2 $3 $4 $6\" = '--scope --quiet --collect --unit --' ] || exit 99
mkdir -p \"$SLICE/$5\" && echo $$ >\"$SLICE/$5/cgroup.procs\" || exit 98
shift 6
exec \"$@\"
";

#[test]
fn a_program_that_exec_starts_is_held_in_its_class_and_its_exit_status_is_its_own() {
    let Some(_turn) = needs() else { return };
    let name = format!("capture-{}", std::process::id());
    let class = format!(
        "[class.tap]\nmatch = [{{ exec = '{name}' }}]\nbudget = '2ms'\nperiod = '10ms'\npriority = 1\n"
    );
    let host = Host::start(&class, "60");
    let slice = cgroup::mount().expect("mounted").join(format!("e{}.slice", std::process::id()));
    let tools = host.folder.path().join("tools");
    fs::create_dir(&tools).expect("made");
    fs::write(tools.join("systemd-run"), SYSTEMD_RUN).expect("written");
    fs::set_permissions(tools.join("systemd-run"), fs::Permissions::from_mode(0o755)).expect("ours");
    let mut command = host.command(&["exec", "--run", "run", &name, "--"]);
    command.args(["sh", "-c", "trap 'exit 7' TERM; while :; do :; done"]);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", tools.display())).env("SLICE", &slice);
    wait("the service answers", || host.status("nobody").is_none() && host.logged().contains("the service"));
    let child = command.spawn().expect("it starts");
    let scope = format!("punctual-exec.{name}.{}.scope", child.id());
    let mut unit = Unit { slice, name: scope, processes: vec![child] };
    unit.wait_until_held(&host);
    undisturbed(|| {
        let share = unit.share(Duration::from_secs(1));
        if (0.19..0.21).contains(&share) { Ok(()) } else { Err(format!("{share} of a processor")) }
    });
    let seen = host.status(&unit.name).expect("an answer");
    assert_eq!((&seen["kind"], &seen["class"]), (&"unit".into(), &"tap".into()), "{seen}");
    signal(unit.processes[0].id(), "TERM");
    assert_eq!(unit.processes[0].wait().expect("an end").code(), Some(7));
    unit.processes.clear();
    wait("it is released", || host.status(&unit.name).is_none());
    host.end();
}

/// Waits until all processes of a unit are held; how long that took, in ms.
fn held_after_ms(unit: &Unit, host: &Host, since: Instant) -> u128 {
    unit.wait_until_held(host);
    since.elapsed().as_millis()
}

#[test]
fn a_unit_is_whole_again_soon_after_a_process_came_or_the_oldest_ended() {
    let Some(_turn) = needs() else { return };
    let mut unit = Unit::start("tap-changes", 1);
    let host = Host::start(&unit.class("2ms"), "60");
    unit.wait_until_held(&host);
    let (mut come, mut ended) = (Vec::new(), Vec::new());
    for _ in 0..kills(10) {
        let start = Instant::now();
        unit.add();
        come.push(held_after_ms(&unit, &host, start));
        let before = unit.group();
        let start = Instant::now();
        unit.end_first();
        // The others are let go of and held in another group.
        wait("the enforcing process knows it", || unit.group() != before && unit.is_held());
        ended.push(start.elapsed().as_millis());
    }
    host.end();
    for (what, mut times) in [("a process came", come), ("the oldest process ended", ended)] {
        times.sort_unstable();
        let [median, worst] = [times[times.len() / 2], times[times.len() - 1]];
        println!("{what}: held after {median} ms (median), {worst} ms (worst of {})", times.len());
        assert!(worst < 2_000, "{what}: {worst} ms");
    }
}

#[test]
fn a_unit_goes_on_when_its_oldest_process_ends_and_is_released_with_the_last() {
    let Some(_turn) = needs() else { return };
    let mut unit = Unit::start("tap-ends", 2);
    let host = Host::start(&unit.class("2ms"), "60");
    unit.wait_until_held(&host);
    unit.end_first();
    wait("the other one is held", || {
        let held = host.status(&unit.name).is_some_and(|seen| seen["state"] == "held");
        held && unit.is_held()
    });
    unit.end_first();
    wait("it is released", || host.status(&unit.name).is_none());
    wait("nothing is left in it", || {
        let groups = fs::read_dir(unit.directory()).expect("it is there").flatten();
        groups.filter(|entry| entry.path().is_dir()).count() == 0
    });
    // It is started again.
    unit.add();
    unit.wait_until_held(&host);
    host.end();
    assert!(!unit.is_held());
}

#[test]
fn a_unit_is_as_it_was_when_the_enforcing_process_is_killed_and_stays_when_the_service_is() {
    let Some(_turn) = needs() else { return };
    let mut unit = Unit::start("tap-killed", 2);
    let mut before = unit.states();
    let mut host = Host::start(&unit.class("2ms"), "60");
    unit.wait_until_held(&host);
    unit.add();
    unit.wait_until_held(&host);
    before.push(before[0].clone());
    host.service.as_mut().expect("it runs").kill();
    host.start_service();
    wait("it answers", || host.status(&unit.name).is_some_and(|seen| seen["state"] == "held"));
    assert!(unit.is_held(), "{}", host.logged());
    for _ in 0..kills(3) {
        host.enforcer.as_mut().expect("it runs").kill();
        unit.wait_until(&before);
        host.start_enforcer();
        unit.wait_until_held(&host);
    }
    host.end();
    unit.wait_until(&before);
}

#[test]
fn a_unit_with_cgroups_or_with_the_enforcing_process_in_it_is_not_held() {
    let Some(_turn) = needs() else { return };
    let unit = Unit::start("tap-nested", 1);
    let inner = unit.directory().join("payload");
    fs::create_dir(&inner).expect("made");
    let before = unit.states();
    let host = Host::start(&unit.class("2ms"), "60");
    let reason = || host.status(&unit.name).and_then(|seen| seen["not_held"].as_str().map(str::to_owned));
    wait("it is not held", || reason().is_some_and(|reason| reason.contains("has others in it (payload)")));
    assert_eq!(unit.states(), before);
    let enforcer = host.enforcer.as_ref().expect("it runs").id() as i32;
    cgroup::move_to(&inner, enforcer).expect("moved");
    wait("it is no actor", || host.status(&unit.name).is_none());
    assert_eq!(unit.states(), before);
    cgroup::move_to(&cgroup::mount().expect("mounted"), enforcer).expect("moved");
    host.end();
}
