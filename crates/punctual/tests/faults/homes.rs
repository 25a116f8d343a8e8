//! `attach` never ends what it attaches to, whatever becomes of its cgroup, and lets go of all of it.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use punctual_linux::os::sched::{affinity, attributes};
use punctual_linux::os::{cgroup, proc};

use crate::common::faults::{kill_with_guardian, wait, wait_while_it_grows};
use crate::common::live::needs;
use crate::common::scopes::{Desk, Machine, Scope};

/// How a run ends.
const ENDS: [&str; 2] = ["INT", "KILL"];

#[test]
fn what_is_attached_to_stays_in_its_home_and_so_does_what_it_starts() {
    let Some(_turn) = needs() else { return };
    for end in ENDS {
        let (desk, mut scope) = (Desk::make("home"), Scope::make("home"));
        let mut machine = Machine::start(scope.directory());
        scope.watch();
        let [home, _] = scope.groups();
        let mut run = desk.start(&["attach", &desk.host("home", 1, &machine.domain("vm"))]);
        machine.wait_until_enforced();
        let during = cgroup::group_of(machine.id()).expect("it lives");
        assert!(during.starts_with(&format!("{home}/punctual-")), "{during} is not in its home");
        let child = machine.fork();
        assert_eq!(cgroup::group_of(child).expect("it lives"), during, "it shares its parent's budget");
        run.signal(end);
        let status = run.wait();
        assert_eq!(status, if end == "INT" { 0 } else { -1 }, "{}", run.said());
        desk.wait_until_restored();
        assert_eq!(machine.residue(&home), None, "{end}");
        assert_eq!(scope.inside(), Vec::<std::path::PathBuf>::new(), "{end}");
    }
}

#[test]
fn attach_lets_go_after_the_duration_that_the_file_says() {
    let Some(_turn) = needs() else { return };
    let (desk, scope) = (Desk::make("brief"), Scope::make("brief"));
    let machine = Machine::start(scope.directory());
    let host = desk.host("brief", 1, &machine.domain("vm"));
    let text = std::fs::read_to_string(&host).expect("it was written");
    std::fs::write(&host, format!("duration = \"1s\"\n{text}")).expect("a host file");
    let mut run = desk.start(&["attach", &host]);
    assert_eq!(run.wait(), 0, "{}", run.said());
    assert_eq!(machine.residue(&scope.groups()[0]), None);
}

#[test]
fn a_process_whose_home_is_gone_lives_on_in_the_nearest_group_above() {
    let Some(_turn) = needs() else { return };
    for end in ENDS {
        let (desk, mut scope) = (Desk::make("homeless"), Scope::make("homeless"));
        let mut machine = Machine::start(scope.directory());
        // A group with a process in it: the kernel permits no threaded group beside it.
        std::fs::create_dir(scope.directory().join("other")).expect("a group");
        let other = Machine::start(&scope.directory().join("other"));
        scope.watch();
        let [_, slice] = scope.groups();
        let mut run = desk.start(&["attach", &desk.host("homeless", 1, &machine.domain("vm"))]);
        machine.wait_until_enforced();
        machine.fork();
        drop(other);
        wait("the scope is removed, as it is empty", || !scope.directory().exists());
        run.signal(end);
        let status = run.wait();
        assert_eq!(status, if end == "INT" { 0 } else { -1 }, "{}", run.said());
        desk.wait_until_restored();
        assert_eq!(machine.residue(&slice), None, "{end}");
    }
}

#[test]
fn a_thread_in_a_group_of_its_own_goes_back_there() {
    let Some(_turn) = needs() else { return };
    // As libvirt lays out a machine: its vCPUs are in threaded groups.
    let (desk, scope) = (Desk::make("threaded"), Scope::make("threaded"));
    let machine = Machine::start(scope.directory());
    let vcpu = scope.directory().join("vcpu0");
    cgroup::Group::make(&vcpu, true)
        .and_then(|group| group.add_thread(machine.id()))
        .expect("a threaded group");
    let home = cgroup::group_of(machine.id()).expect("it lives");
    assert!(home.ends_with("/vcpu0"));
    for end in ENDS {
        let mut run = desk.start(&["attach", &desk.host("threaded", 1, &machine.domain("vm"))]);
        machine.wait_until_enforced();
        run.signal(end);
        run.wait();
        desk.wait_until_restored();
        assert_eq!(machine.residue(&home), None, "{end}");
    }
}

#[test]
fn what_cannot_be_put_back_is_said_and_is_in_the_exit_status() {
    let Some(_turn) = needs() else { return };
    let (desk, scope) = (Desk::make("refused"), Scope::make("refused"));
    let machine = Machine::start(scope.directory());
    let mut run = desk.start(&["attach", &desk.host("refused", 1, &machine.domain("vm"))]);
    machine.wait_until_enforced();
    let [home, _] = scope.groups();
    // A line with a parameter that no run changes, as if the journal were damaged.
    let journal = desk.state().join(format!("{}.journal", run.id()));
    let line = "{\"file\":{\"path\":\"/tmp/punctual-test-parameter\",\"before\":\"1\",\"during\":\"0\"}}\n";
    let text = std::fs::read_to_string(&journal).expect("ours");
    std::fs::write(&journal, text.replacen("\n", &format!("\n{line}"), 1)).expect("ours");
    run.signal("INT");
    assert_eq!(run.wait(), 7, "{}", run.said());
    assert!(
        run.said().contains("/tmp/punctual-test-parameter") && run.said().contains("put back"),
        "{}",
        run.said()
    );
    assert_eq!(machine.residue(&home), None);
    // The rest is undone; what could not be stays written down for `restore`, which says the same.
    let again = desk.punctual(&["restore"]).output().expect("it runs");
    assert_eq!(again.status.code(), Some(7), "{again:?}");
    assert!(!std::path::Path::new("/tmp/punctual-test-parameter").exists());
    std::fs::remove_file(&journal).expect("it is there");
}

#[test]
fn a_process_that_somebody_else_put_into_a_group_of_the_run_lives_on() {
    let Some(_turn) = needs() else { return };
    let (desk, scope) = (Desk::make("foreign"), Scope::make("foreign"));
    let machine = Machine::start(scope.directory());
    // Times of starts are in hundredths of a second.
    std::thread::sleep(Duration::from_millis(30));
    let domain = "[domain.sleeper]\nbudget = \"2ms\"\nperiod = \"10ms\"\npriority = 1\n\
                  process = { command = [\"sleep\", \"1000\"] }\n";
    let host = desk.host("foreign", 1, domain);
    let mut run = desk.start(&["run", &host, "--as", "process", "--duration", "60s"]);
    let mount = cgroup::mount().expect("mounted");
    let unit = mount.join(format!("punctual-{}/domain0/unit0", run.id()));
    let is_there = || cgroup::threads_in(&unit).is_ok_and(|threads| !threads.is_empty());
    wait("its domain is in its group", is_there);
    std::fs::write(unit.join("cgroup.procs"), machine.id().to_string()).expect("root may move it");
    run.signal("KILL");
    run.wait();
    desk.wait_until_restored();
    assert!(machine.is_alive(), "it was killed with what the run started");
    assert_eq!(cgroup::group_of(machine.id()).expect("it lives"), "/");
    assert!(!unit.exists());
}

/// How many threads the process has whose undoing is measured.
const THREADS: usize = 5_000;
/// How long the undoing may take; on a machine on which that is longer, as many times as long as it takes to
/// look once at each of the threads. Undoing takes one or two times that; when it was quadratic it took 200
/// times, 22.8 s.
const UNDO_MAX: Duration = Duration::from_secs(5);
const UNDO_MAX_SWEEPS: u32 = 10;

/// How long this machine takes to read how each thread of a process is scheduled and when it started.
fn sweep(process: i32) -> Duration {
    let start = Instant::now();
    for thread in proc::threads(process).expect("it lives") {
        let _ = (attributes(thread), affinity(thread), proc::stat(thread));
    }
    start.elapsed()
}

#[test]
#[ignore = "a process that another test starts"]
fn sleeping_threads() {
    if std::env::var_os("PUNCTUAL_TEST_THREADS").is_none() {
        return;
    }
    for _ in 0..THREADS {
        std::thread::Builder::new()
            .stack_size(64 << 10)
            .spawn(|| std::thread::sleep(Duration::from_secs(600)))
            .expect("a thread");
    }
    println!("all started");
    std::thread::sleep(Duration::from_secs(600));
}

#[test]
fn undoing_thousands_of_threads_takes_seconds() {
    let Some(_turn) = needs() else { return };
    let mut process = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "homes::sleeping_threads", "--ignored", "--nocapture"])
        .env("PUNCTUAL_TEST_THREADS", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("a process");
    let id = process.id() as i32;
    let threads = || proc::threads(id).map_or(0, |threads| threads.len());
    wait_while_it_grows("all threads are there", threads, THREADS + 1);
    let sweep = sweep(id);
    let desk = Desk::make("thousands");
    let domain = format!(
        "[domain.vm]\nbudget = \"2ms\"\nperiod = \"10ms\"\npriority = 1\nattach = {{ threads = [{id}] }}\n"
    );
    let mut run = desk.start(&["attach", &desk.host("thousands", 1, &domain), "--silence-ms", "60000"]);
    let moved = |tid: i32| attributes(tid).is_ok_and(|now| now.policy == 1);
    let all_affinity = affinity(0).expect("this thread's");
    let is_moved = |tid: &i32| affinity(*tid).is_ok_and(|now| now != all_affinity);
    let placed = || {
        let threads = proc::threads(id).unwrap_or_default();
        threads.iter().filter(|tid| is_moved(tid)).count() + usize::from(moved(id))
    };
    wait_while_it_grows("it is under enforcement, and all threads have their place", placed, THREADS + 2);
    kill_with_guardian(run.id());
    run.wait();
    let start = Instant::now();
    let restored = desk.punctual(&["restore"]).output().expect("it runs");
    let took = start.elapsed();
    println!("{THREADS} threads were undone in {took:.2?}; to look at all took {sweep:.2?}");
    let is_undone = proc::threads(id).is_ok_and(|all| !all.iter().any(is_moved));
    process.kill().expect("it lives");
    process.wait().expect("it ends");
    assert!(restored.status.success() && is_undone, "{restored:?}");
    assert_eq!(desk.left(), Vec::<String>::new());
    assert!(took < UNDO_MAX.max(sweep * UNDO_MAX_SWEEPS), "{took:?}");
}
