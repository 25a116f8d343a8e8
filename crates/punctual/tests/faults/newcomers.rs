//! Threads that come during a run are scheduled afterwards as if there had been no run; threads that the run
//! did not change stay as they are.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use punctual_linux::os::proc;
use punctual_linux::os::sched::{self, Attributes, affinity, attributes, set_attributes};
use punctual_linux::preflight;

use crate::common::faults::wait;
use crate::common::live::{PROCESSOR, needs};
use crate::common::scopes::Desk;

/// What the process of these tests does at first.
const VICTIM: &str = "PUNCTUAL_TEST_VICTIM";

/// Threads that a run never changes.
const BYSTANDERS: usize = 60;

/// How each of these schedules itself.
fn own_attributes() -> [(&'static str, Attributes); 5] {
    let nice = |nice| Attributes { nice, ..Attributes::other() };
    [
        ("own-rr", Attributes { policy: sched::RR, ..Attributes::fifo(10) }),
        ("own-fifo", Attributes::fifo(11)),
        ("own-nice", nice(12)),
        ("own-batch", Attributes { policy: 3, ..nice(0) }),
        ("own-nicer", nice(19)),
    ]
}

fn start_thread(name: &str, work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().name(name.into()).stack_size(64 << 10);
    thread
        .spawn(|| {
            work();
            loop {
                std::thread::park();
            }
        })
        .expect("a thread");
}

/// Starts a process in a session of its own whose parent ends at once; its id is in `file` then.
fn start_daemon(file: &str) {
    let script = "sleep 1000 > /dev/null 2>&1 & echo $! > \"$0\"";
    let started = Command::new("setsid").args(["sh", "-c", script, file]).stdin(Stdio::null()).status();
    assert!(started.is_ok_and(|status| status.success()));
}

#[test]
#[ignore = "a process that other tests start"]
fn victim() {
    let Ok(stage) = std::env::var(VICTIM) else { return };
    let (exec, told) = std::sync::mpsc::channel::<()>();
    start_thread("CPU 0/KVM", move || {
        if told.recv().is_ok() {
            let error = Command::new(std::env::current_exe().expect("this program"))
                .args(["--exact", "newcomers::victim", "--ignored", "--nocapture"])
                .env(VICTIM, "executed")
                .exec();
            panic!("{error}");
        }
    });
    if stage == "crowd" {
        let round_robin = Attributes { policy: sched::RR, ..Attributes::fifo(7) };
        for _ in 0..BYSTANDERS {
            start_thread("bystander", move || set_attributes(0, &round_robin).expect("permitted"));
        }
    }
    start_thread("ready", || ());
    for line in std::io::stdin().lines() {
        match line.expect("readable").as_str() {
            "plug" => start_thread("CPU 1/KVM", || ()),
            // A thread names itself; on a busy machine it is listed before that.
            "plug slowly" => start_thread("new", || {
                std::thread::sleep(Duration::from_millis(1200));
                let named = rustix::thread::set_name(c"CPU 1/KVM");
                named.expect("a thread may name itself");
            }),
            "exec" => exec.send(()).expect("it waits"),
            "own" => {
                for (name, own) in own_attributes() {
                    start_thread(name, move || set_attributes(0, &own).expect("permitted"));
                }
                start_thread("owned", || ());
            }
            order => match order.split_once(' ') {
                Some(("daemon", file)) => start_daemon(file),
                _ => panic!("{order}"),
            },
        }
    }
    // The test has ended.
    std::process::exit(0);
}

/// A process whose first vCPU thread sleeps, as far as its names say.
pub(crate) struct Victim {
    process: Child,
}

impl Victim {
    pub(crate) fn start(stage: &str) -> Victim {
        let process = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "newcomers::victim", "--ignored", "--nocapture"])
            .env(VICTIM, stage)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("a process");
        let victim = Victim { process };
        victim.wait_for("ready");
        victim
    }

    fn id(&self) -> i32 {
        self.process.id() as i32
    }

    fn order(&mut self, order: &str) {
        let stdin = self.process.stdin.as_mut().expect("a pipe");
        stdin.write_all(format!("{order}\n").as_bytes()).expect("it reads");
    }

    fn threads(&self) -> Vec<i32> {
        proc::threads(self.id()).expect("it lives")
    }

    pub(crate) fn thread(&self, name: &str) -> Option<i32> {
        self.threads().into_iter().find(|tid| proc::name(*tid).is_ok_and(|known| known == name))
    }

    fn wait_for(&self, name: &str) {
        wait(name, || self.thread(name).is_some());
    }

    pub(crate) fn domain(&self) -> String {
        format!(
            "[domain.vm]\nvcpus = 2\nbudget = \"2ms\"\nperiod = \"10ms\"\npriority = 1\n\
             attach = {{ process = {} }}\n",
            self.id()
        )
    }

    /// The threads whose affinity or, but for their own, whose class is another one than this test's.
    fn residue(&self) -> Vec<String> {
        let (mine, everywhere) = (Attributes::other(), affinity(0).expect("readable"));
        let wrong = |tid: i32| {
            let (name, now) = (proc::name(tid).ok()?, attributes(tid).ok()?);
            let own = own_attributes().into_iter().find(|(known, _)| *known == name);
            let expected = own.map_or(mine, |(_, own)| own);
            let is_right = (now.policy, now.priority, now.nice)
                == (expected.policy, expected.priority, expected.nice)
                && affinity(tid).is_ok_and(|on| on == everywhere);
            (!is_right).then(|| format!("{name}: {now:?} on {:?}", affinity(tid)))
        };
        self.threads().into_iter().filter_map(wrong).collect()
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn is_enforced(tid: i32) -> bool {
    attributes(tid).is_ok_and(|now| now.policy == sched::FIFO)
}

/// Attaches to a process, has it follow an order, waits until `done`, and ends the run in both ways. Nothing
/// of the run is left on any of its threads.
fn nothing_is_left_after(name: &str, order: &str, done: impl Fn(&Victim) -> bool) {
    for end in ["INT", "KILL"] {
        let (desk, mut victim) = (Desk::make(name), Victim::start("quiet"));
        assert_eq!(victim.residue(), Vec::<String>::new(), "before the run");
        let mut run = desk.start(&["attach", &desk.host(name, PROCESSOR, &victim.domain())]);
        wait("it is under enforcement", || victim.thread("CPU 0/KVM").is_some_and(is_enforced));
        victim.order(order);
        wait(order, || done(&victim));
        // Threads are listed four times a second.
        std::thread::sleep(Duration::from_millis(400));
        run.signal(end);
        run.wait();
        desk.wait_until_restored();
        assert_eq!(victim.residue(), Vec::<String>::new(), "{end}: {}", run.said());
    }
}

#[test]
fn a_vcpu_that_is_plugged_in_is_afterwards_as_its_process_was() {
    let Some(_turn) = needs() else { return };
    for order in ["plug", "plug slowly"] {
        nothing_is_left_after("plugged-in", order, |victim| {
            victim.thread("CPU 1/KVM").is_some_and(is_enforced)
        });
    }
}

#[test]
fn threads_of_a_program_that_a_unit_executed_keep_nothing_of_the_run() {
    let Some(_turn) = needs() else { return };
    nothing_is_left_after("executed", "exec", |victim| {
        victim.thread("ready").is_some_and(|tid| proc::stat(tid).is_ok()) && is_executed(victim.id())
    });
}

/// Has the process executed its second program?
fn is_executed(process: i32) -> bool {
    let environment = std::fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
    String::from_utf8_lossy(&environment).contains(&format!("{VICTIM}=executed"))
}

#[test]
fn what_threads_set_themselves_during_a_run_stays() {
    let Some(_turn) = needs() else { return };
    nothing_is_left_after("own", "own", |victim| victim.thread("owned").is_some());
}

#[test]
fn threads_that_could_not_be_written_down_stay_as_they_are() {
    let Some(_turn) = needs() else { return };
    let desk = Desk::make("full-of-threads");
    let state = desk.state().display().to_string();
    let mount = |args: &[&str]| Command::new("mount").args(args).status().is_ok_and(|s| s.success());
    // The journal of a process of so many threads is longer.
    if !mount(&["-t", "tmpfs", "-o", "size=8k,mode=700", "none", &state]) {
        eprintln!("skipped: this test mounts a file system");
        return;
    }
    let victim = Victim::start("crowd");
    let bystanders = || {
        let threads = victim.threads().into_iter();
        let is_as_before = |tid: i32| {
            let now = attributes(tid).expect("it lives");
            (now.policy, now.priority) == (sched::RR, 7)
        };
        threads.filter(|tid| is_as_before(*tid)).count()
    };
    wait("all have scheduled themselves", || bystanders() == BYSTANDERS);
    let mut run = desk.start(&["attach", &desk.host("full-of-threads", PROCESSOR, &victim.domain())]);
    let status = run.wait();
    let unmounted = Command::new("umount").arg(&state).status();
    assert!(unmounted.is_ok_and(|status| status.success()));
    assert_eq!(status, 2, "{}", run.said());
    assert!(run.said().contains("No space left"), "{}", run.said());
    assert_eq!(bystanders(), BYSTANDERS);
}

/// A process that is killed with the test, and is not this process's child.
struct Daemon(i32);

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.0) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

#[test]
fn a_daemon_that_an_attached_process_starts_keeps_nothing_of_the_run() {
    let Some(_turn) = needs() else { return };
    let everywhere = affinity(0).expect("readable");
    for end in ["INT", "KILL"] {
        let (desk, mut victim) = (Desk::make("daemon"), Victim::start("quiet"));
        let mut run = desk.start(&["attach", &desk.host("daemon", PROCESSOR, &victim.domain())]);
        let is_placed = |tid: i32| affinity(tid).is_ok_and(|on| on != everywhere);
        wait("all threads have their place", || victim.threads().into_iter().all(is_placed));
        let file = desk.state().with_file_name("daemon");
        victim.order(&format!("daemon {}", file.display()));
        let id = || std::fs::read_to_string(&file).ok()?.trim().parse().ok();
        wait("it starts a daemon", || id().is_some());
        let daemon = Daemon(id().expect("it was there"));
        assert_ne!(affinity(daemon.0).expect("it lives"), everywhere, "it inherits the helpers' processors");
        run.signal(end);
        run.wait();
        desk.wait_until_restored();
        assert_eq!(affinity(daemon.0).expect("it lives"), everywhere, "{end}: {}", run.said());
        assert!(attributes(daemon.0).expect("it lives").is_same_class(&Attributes::other()));
    }
}

#[test]
fn helpers_have_all_processors_where_pools_have_every_one() {
    let Some(_turn) = needs() else { return };
    let online = preflight::online();
    let (desk, victim) = (Desk::make("starve"), Victim::start("quiet"));
    let host = desk.host("starve", PROCESSOR, &victim.domain());
    let all = format!("pool.guests.processors=[{}]", preflight::list(&online));
    let count = format!("machine.processors={}", online.len());
    let mut run =
        desk.start(&["attach", &host, "--starve", "--duration", "300ms", "--set", &count, "--set", &all]);
    assert_eq!(run.wait(), 0, "{}", run.said());
    desk.wait_until_restored();
    assert_eq!(victim.residue(), Vec::<String>::new());
}
