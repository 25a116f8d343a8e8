//! What VMs wait for that know nothing of it: causes that are injected come out as what they are, whatever
//! the source is from which the service knows. The VMs are look-alikes: processes with the command line and
//! the thread names of QEMU, on processor 1.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::faults::wait;
use common::live::{PROCESSOR, needs, undisturbed};
use punctual_linux::os::sched::{self, Attributes};
use punctual_linux::os::{cgroup, proc};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_punctual");
/// Set for the copy of this program that is a VM.
const STAND_IN: &str = "PUNCTUAL_TEST_STAND_IN";
/// How long a cause is injected.
const LENGTH: Duration = Duration::from_millis(300);
/// Of the time that is waited, so much is to be named rightly.
const RIGHT_PERCENT: u64 = 95;
/// What a process has to do to begin and end a disturbance.
const WORK_NS: u64 = 2_000_000;
/// What is injected lasts for at least that.
const LEAST_NS: u64 = 40_000_000;
/// The period of a limit.
const PERIOD_US: u64 = 50_000;

static VCPU_SPINS: AtomicBool = AtomicBool::new(false);
static VCPU_TICKS: AtomicBool = AtomicBool::new(false);
static WORKER_SPINS: AtomicBool = AtomicBool::new(false);

/// Spins while it is to, otherwise sleeps.
fn spin_if(spins: &AtomicBool, ticks: Option<&AtomicBool>) {
    loop {
        while spins.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
        let is_ticking = ticks.is_some_and(|ticks| ticks.load(Ordering::Relaxed));
        std::thread::sleep(Duration::from_millis(if is_ticking { 1 } else { 20 }));
    }
}

/// No test: a VM, or a process, that does what its standard input says.
#[test]
#[ignore = "the VM of the other tests"]
fn a_stand_in() {
    let Some(vcpu) = std::env::var_os(STAND_IN).and_then(|name| name.into_string().ok()) else { return };
    sched::set_affinity(0, &[PROCESSOR]).expect("a processor");
    let start = |name: &str, work: fn()| {
        std::thread::Builder::new().name(name.to_owned()).spawn(work).expect("a thread");
    };
    start(&vcpu, || spin_if(&VCPU_SPINS, Some(&VCPU_TICKS)));
    start("worker", || spin_if(&WORKER_SPINS, None));
    for line in std::io::stdin().lines() {
        let line = line.expect("a line");
        let (what, is) = line.split_once(' ').expect("two words");
        let flag = match what {
            "vcpu" => &VCPU_SPINS,
            "ticks" => &VCPU_TICKS,
            _ => &WORKER_SPINS,
        };
        flag.store(is == "on", Ordering::Relaxed);
    }
    std::process::exit(0);
}

struct StandIn(Child);

impl StandIn {
    fn start(program: &str, vcpu: &str, name: &str) -> StandIn {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.arg0(program).args(["--exact", "a_stand_in", "--ignored", "--nocapture", "--"]);
        command.args(["-name", &format!("guest={name},debug-threads=on")]).env(STAND_IN, vcpu);
        StandIn(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("a process"))
    }

    fn vm(name: &str) -> StandIn {
        StandIn::start("/usr/bin/qemu-system-x86_64", "CPU 0/KVM", name)
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.0.stdin.as_mut().expect("a pipe"), "{line}").expect("it listens");
    }

    /// Lets it do something for a while; returns how long its thread of that name ran.
    fn for_a_while(&mut self, what: &str, thread: &str) -> u64 {
        let tid = self.thread(thread);
        let before = account(tid).ran.as_ns();
        self.tell(&format!("{what} on"));
        std::thread::sleep(LENGTH);
        // Where many others want the processor, it begins late.
        wait("it runs", || account(tid).ran.as_ns() - before > LEAST_NS);
        self.tell(&format!("{what} off"));
        wait("it rests", || proc::stat(tid).is_ok_and(|stat| stat.state == 'S'));
        account(tid).ran.as_ns() - before
    }

    fn thread(&self, name: &str) -> i32 {
        let threads = proc::threads(self.0.id() as i32).expect("it runs").into_iter();
        let mut of_name = threads.filter(|tid| proc::name(*tid).is_ok_and(|known| known == name));
        of_name.next().expect("a thread of that name")
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("it runs");
    }
}

/// The kernel's account of a thread.
fn account(tid: i32) -> proc::SchedStat {
    let text = fs::read_to_string(format!("/proc/{tid}/task/{tid}/schedstat")).expect("it lives");
    proc::parse_schedstat(&text).expect("an account")
}

/// How often a thread went to sleep.
fn sleeps(tid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{tid}/task/{tid}/status")).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.and_then(|number| number.trim().parse().ok()).expect("a number")
}

impl Drop for StandIn {
    fn drop(&mut self) {
        // One that is stopped ends as well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The service, with one source.
struct Service {
    child: Child,
    folder: tempfile::TempDir,
}

impl Service {
    /// In a mount namespace of its own, where tracefs is.
    fn start(source: &str) -> Service {
        let folder = tempfile::tempdir().expect("a folder");
        for directory in ["etc/host.d", "run"] {
            fs::create_dir_all(folder.path().join(directory)).expect("made");
        }
        fs::write(folder.path().join("etc/host.toml"), format!("waits = '{source}'\n")).expect("written");
        let script = "mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null; exec \"$0\" \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "--", "sh", "-c", script, PROGRAM]);
        command.args(["serve", "--config", "etc", "--run", "run"]).current_dir(folder.path());
        command.env_remove("NOTIFY_SOCKET").env_remove("JOURNAL_STREAM");
        let log = fs::File::create(folder.path().join("log")).expect("a log");
        let child = command.stderr(log).spawn().expect("it starts");
        Service { child, folder }
    }

    fn ask(&self, args: &[&str]) -> Option<Value> {
        let mut command = Command::new(PROGRAM);
        command.args(args).args(["--run", "run", "--json"]).current_dir(self.folder.path());
        serde_json::from_slice(&command.output().expect("it runs").stdout).ok()
    }

    fn why(&self, vm: &str) -> Value {
        self.ask(&["why", vm]).expect("an answer")
    }

    /// What vCPU 0 of a VM has waited for so far, by cause and name, in ns.
    fn causes(&self, vm: &str) -> Causes {
        let why = self.why(vm);
        let vcpu = vcpu(&why).expect("a vCPU");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let one = |one: &Value| ((text(&one["cause"]), text(&one["by"])), number(&one["time_ns"]));
        // The whole time is within the hour, and nothing is absent where nothing was waited for.
        vcpu["lately"].as_array().into_iter().flatten().map(one).collect()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

/// Times by cause and by the name of who it was.
type Causes = BTreeMap<(String, String), u64>;

/// The time of a cause by those whose name has this in it.
fn time_of(causes: &Causes, right: &str, by: &str) -> u64 {
    let is_it = |((cause, name), _): &(&(String, String), &u64)| cause == right && name.contains(by);
    causes.iter().filter(is_it).map(|(_, ns)| *ns).sum()
}

fn number(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}

fn vcpu(why: &Value) -> Option<&Value> {
    why["parts"].as_array()?.iter().find(|part| part["vcpu"] == 0)
}

/// One row of the confusion matrix: what the time was called that a vCPU waited while something was injected.
fn row(what: &str, before: &Causes, after: &Causes) -> Causes {
    let mut row = after.clone();
    for (cause, ns) in &mut row {
        *ns -= before.get(cause).copied().unwrap_or(0);
    }
    // What a hypervisor below takes is not injected here.
    row.retain(|(cause, _), ns| *ns > 0 && cause != "standstill");
    println!("{what}: {row:?}");
    row
}

/// The time that is called `right` is that of what was injected, to 5 %. Others may disturb as well: the rest
/// is judged by the sum of all causes, see [`Scene::inject`].
fn check(what: &str, (right, by): (&str, &str), row: &Causes, injected_ns: u64) -> Result<(), String> {
    let named = time_of(row, right, by);
    println!("{what}: {named} ns called {right}, {injected_ns} ns injected");
    judge!(injected_ns > LEAST_NS, "{what}: {injected_ns} ns injected");
    let wrong = named.abs_diff(injected_ns);
    // The kernel counts a limit when it ends: the last one, of at most a period.
    let edge = if right == "throttled" { PERIOD_US * 1000 } else { WORK_NS };
    judge!(
        wrong * 100 <= injected_ns * (100 - RIGHT_PERCENT) + 100 * edge,
        "{what}: {named} ns of {injected_ns} ns are called {right}: {row:?}"
    );
    Ok(())
}

/// A cgroup for a test; on the way out its processes go back to the root.
struct Group(PathBuf);

impl Group {
    fn make(mount: &Path) -> Option<Group> {
        let directory = mount.join(format!("punctual-test-{}", std::process::id()));
        fs::create_dir(&directory).ok().map(|()| Group(directory))
    }

    fn write(&self, file: &str, text: &str) -> bool {
        fs::write(self.0.join(file), text).is_ok()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let processes = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        let root = self.0.parent().expect("a mount").join("cgroup.procs");
        for process in processes.lines() {
            let _ = fs::write(&root, process);
        }
        wait("the group is empty", || fs::remove_dir(&self.0).is_ok());
    }
}

/// A group whose threads get a fifth of a processor; `None` where this machine has no controller for that.
fn limited() -> Option<Group> {
    let old = Group::make(Path::new("/sys/fs/cgroup/cpu"));
    if let Some(group) = old
        && group.write("cpu.cfs_period_us", &PERIOD_US.to_string())
        && group.write("cpu.cfs_quota_us", "10000")
    {
        return Some(group);
    }
    let group = Group::make(&cgroup::mount().ok()?)?;
    group.write("cpu.max", &format!("10000 {PERIOD_US}")).then_some(group)
}

/// How long the limit of a group kept processors from it, by the kernel.
fn throttled_ns(group: &Group) -> u64 {
    let text = fs::read_to_string(group.0.join("cpu.stat")).expect("an account");
    let number = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        line.trim().parse::<u64>().ok()
    };
    number("throttled_time ").or_else(|| number("throttled_usec ").map(|us| us * 1000)).expect("a time")
}

/// A thread above all fair ones has the processor for 10 ms now and then; returns how long it ran.
fn urgent() -> u64 {
    let work = || {
        sched::set_affinity(0, &[PROCESSOR]).expect("a processor");
        sched::set_attributes(0, &Attributes::fifo(50)).expect("a priority");
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        let (end, before) = (Instant::now() + LENGTH, account(tid).ran.as_ns());
        while Instant::now() < end {
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(10) {
                std::hint::spin_loop();
            }
            std::thread::sleep(Duration::from_millis(15));
        }
        account(tid).ran.as_ns() - before
    };
    let thread = std::thread::Builder::new().name("urgent".into()).spawn(work);
    thread.expect("a thread").join().expect("it ends")
}

/// Where the VMs are, and what disturbs them.
struct Scene {
    service: Service,
    victim: StandIn,
    noisy: StandIn,
    hog: StandIn,
}

impl Scene {
    /// `None` where the machine refuses the source.
    fn start(source: &str) -> Option<Scene> {
        let service = Service::start(source);
        let mut victim = StandIn::vm("victim");
        let (noisy, hog) = (StandIn::vm("noisy"), StandIn::start("hog", "hog", "none"));
        // Not more urgent than the VMs.
        let seen = |vm: &str| {
            let why = service.ask(&["why", vm]);
            why.is_some_and(|why| vcpu(&why).is_some() && why["source"]["source"] != "none")
        };
        wait("both VMs are seen", || seen("victim") && seen("noisy"));
        let known_from = service.why("victim")["source"].clone();
        if known_from["source"] != source {
            let line = format!("skipped: this machine does not permit {source}: {known_from}");
            assert!(std::env::var_os("PUNCTUAL_NO_SKIP").is_none(), "{line}");
            eprintln!("{line}");
            return None;
        }
        victim.tell("vcpu on");
        Some(Scene { service, victim, noisy, hog })
    }

    /// Injects a cause for as long as `inject` says in ns, and judges what it was called: the time is named
    /// rightly, and all causes together are what the kernel says that the vCPU waited.
    fn judge(
        &mut self,
        what: &str,
        right: (&str, &str),
        inject: impl FnOnce(&mut Scene) -> u64,
    ) -> Result<(), String> {
        let vcpu = self.victim.thread("CPU 0/KVM");
        let (before, waited) = (self.service.causes("victim"), account(vcpu).waited.as_ns());
        let injected_ns = inject(self);
        let (after, waited_ns) = (self.service.causes("victim"), account(vcpu).waited.as_ns() - waited);
        let row = row(what, &before, &after);
        check(what, right, &row, injected_ns)?;
        let is_ready = |cause: &str| !matches!(cause, "stopped" | "frozen" | "blocked");
        let told = row.iter().filter(|((cause, _), _)| is_ready(cause)).map(|(_, ns)| ns).sum::<u64>();
        let wrong = told.abs_diff(waited_ns);
        judge!(
            wrong * 100 <= waited_ns * (100 - RIGHT_PERCENT) + 500 * WORK_NS,
            "{what}: it waited for {waited_ns} ns by the kernel, and for {told} ns by the service: {row:?}"
        );
        Ok(())
    }

    /// The causes that each source with events knows.
    fn check_events(&mut self) -> Result<(), String> {
        let other = |scene: &mut Scene| scene.noisy.for_a_while("vcpu", "CPU 0/KVM");
        self.judge("another VM", ("preempted-by-unit", "VM noisy vCPU 0"), other)?;
        let worst = self.service.why("victim")["worst"].clone();
        // Others may have had the processor first.
        let steps = worst.as_array().expect("waits").iter().flat_map(|wait| wait["steps"].as_array());
        let steps: Vec<&Value> = steps.flatten().collect();
        let has = |by: &str| steps.iter().any(|step| step["by"] == by && step["processor"] == PROCESSOR);
        judge!(has("VM noisy vCPU 0"), "the worst waits are {worst}");
        let helper = |scene: &mut Scene| scene.victim.for_a_while("worker", "worker");
        self.judge("a helper of its own", ("helper-thread", "VM victim io"), helper)?;
        let process = |scene: &mut Scene| scene.hog.for_a_while("vcpu", "hog");
        self.judge("another process", ("other-thread", "hog"), process)?;
        self.judge("an urgent thread", ("other-thread", "urgent"), |_| urgent())?;
        self.judge("a signal", ("stopped", ""), |scene| {
            let began = Instant::now();
            scene.victim.signal(Signal::STOP);
            std::thread::sleep(LENGTH);
            scene.victim.signal(Signal::CONT);
            began.elapsed().as_nanos() as u64
        })?;
        self.check_groups()
    }

    fn check_groups(&mut self) -> Result<(), String> {
        let process = self.victim.0.id().to_string();
        let Some(group) = cgroup::mount().ok().and_then(|mount| Group::make(&mount)) else {
            eprintln!("skipped: no cgroup of version 2 can be made");
            return Ok(());
        };
        assert!(group.write("cgroup.procs", &process));
        let freeze = || {
            let began = Instant::now();
            assert!(group.write("cgroup.freeze", "1"));
            std::thread::sleep(LENGTH);
            assert!(group.write("cgroup.freeze", "0"));
            began.elapsed().as_nanos() as u64
        };
        let of = |scene: &Scene, cause: &str| time_of(&scene.service.causes("victim"), cause, "");
        // The service looks for cgroups now and then.
        wait("the cgroup is known", || {
            freeze();
            of(self, "frozen") > 0
        });
        self.judge("a freezer", ("frozen", ""), |_| freeze())?;
        drop(group);
        let Some(group) = limited() else {
            eprintln!("skipped: no cgroup with a limit of processor time can be made");
            return Ok(());
        };
        assert!(group.write("cgroup.procs", &process));
        wait("the limit is known", || of(self, "throttled") > 0);
        self.judge("a limit", ("throttled", ""), |_| {
            let before = throttled_ns(&group);
            std::thread::sleep(3 * LENGTH);
            throttled_ns(&group) - before
        })
    }

    /// The vCPU wakes up as often as it went to sleep by the kernel. Another VM keeps the processor busy,
    /// since some kernels record nothing of idle ones.
    fn check_wake_ups(&mut self) -> Result<(), String> {
        self.victim.tell("vcpu off");
        let tid = self.victim.thread("CPU 0/KVM");
        wait("it rests", || proc::stat(tid).is_ok_and(|stat| stat.state == 'S'));
        let both = |scene: &Scene| {
            let woken = number(&vcpu(&scene.service.why("victim")).expect("a vCPU")["wakeups"]);
            (woken, sleeps(tid))
        };
        let noisy = self.noisy.thread("CPU 0/KVM");
        let ran = account(noisy).ran;
        self.noisy.tell("vcpu on");
        wait("another VM runs", || account(noisy).ran > ran);
        let before = both(self);
        self.victim.tell("ticks on");
        wait("it wakes up", || sleeps(tid) - before.1 > 200);
        self.victim.tell("ticks off");
        let after = both(self);
        self.noisy.tell("vcpu off");
        let (woken, slept) = (after.0 - before.0, after.1 - before.1);
        println!("{woken} wake-ups, {slept} sleeps");
        // A few milliseconds are between the two numbers.
        judge!(woken.abs_diff(slept) * 100 <= slept * (100 - RIGHT_PERCENT) + 2_000, "{woken} of {slept}");
        Ok(())
    }
}

/// A source that knows of each switch and wake-up names each cause that is injected.
fn names_all_causes(source: &str) {
    let Some(_turn) = needs() else { return };
    undisturbed(|| {
        let Some(mut scene) = Scene::start(source) else { return Ok(()) };
        scene.check_events()?;
        scene.check_wake_ups()?;
        println!("{}", scene.service.why("victim")["source"]);
        Ok(())
    });
}

#[test]
fn programs_in_the_kernel_name_what_a_vcpu_waited_for() {
    names_all_causes("bpf");
}

#[test]
fn tracepoints_name_what_a_vcpu_waited_for() {
    names_all_causes("tracepoints");
}

#[test]
fn records_of_switches_name_what_a_vcpu_waited_for() {
    let Some(_turn) = needs() else { return };
    undisturbed(|| {
        let Some(mut scene) = Scene::start("switches") else { return Ok(()) };
        scene.check_events()
    });
}

/// Samples are a second apart, so only what lasts can be named.
#[test]
fn samples_name_what_lasts() {
    let Some(_turn) = needs() else { return };
    undisturbed(|| {
        let Some(mut scene) = Scene::start("samples") else { return Ok(()) };
        // Another VM; another process is known in the same way.
        let (right, by) = ("preempted-by-unit", "VM noisy vCPU 0");
        scene.noisy.tell("vcpu on");
        let named = |scene: &Scene| time_of(&scene.service.causes("victim"), right, by);
        // The first second says only who ran before.
        let first = named(&scene);
        wait(by, || named(&scene) > first);
        let (before, start) = (scene.service.causes("victim"), named(&scene));
        wait(by, || named(&scene) > start);
        let row = row(by, &before, &scene.service.causes("victim"));
        // Others of this machine are there as well, and are named as what they are.
        let named = time_of(&row, right, by);
        let wrong = ["unknown", "helper-thread", "throttled", "stopped", "frozen"];
        let wrong: u64 = wrong.iter().map(|cause| time_of(&row, cause, "")).sum();
        judge!(
            named * (100 - RIGHT_PERCENT) >= wrong * RIGHT_PERCENT && named > 100_000_000,
            "{by}: {named} ns named rightly, {wrong} ns wrongly: {row:?}"
        );
        Ok(())
    });
}
