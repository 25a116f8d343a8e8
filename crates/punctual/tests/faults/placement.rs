//! A unit that another program moves to another cgroup, or whose priority or processors it changes: the run
//! puts it back, or leaves it in the fair class.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use punctual_linux::os::sched::{self, Attributes, affinity, attributes, set_affinity, set_attributes};
use punctual_linux::os::{cgroup, proc};

use crate::common::faults::wait;
use crate::common::live::{PROCESSOR, needs, undisturbed};
use crate::common::scopes::{Desk, Machine, Run, Scope};
use crate::judge;

/// The longest time that a unit may have a real-time priority outside its group or off its processors.
const ASTRAY_MAX: Duration = Duration::from_millis(200);

/// For so long a unit is changed again and again.
const ATTACK: Duration = Duration::from_secs(2);

/// Is a thread in a group of a run, on the run's processor?
fn is_in_place(tid: i32) -> bool {
    cgroup::group_of(tid).is_ok_and(|group| group.contains("punctual-"))
        && affinity(tid).is_ok_and(|processors| processors == [PROCESSOR])
}

fn is_real_time(tid: i32) -> bool {
    attributes(tid).is_ok_and(|now| matches!(now.policy, sched::FIFO | sched::RR | sched::DEADLINE))
}

/// Is it as the run wants it, with this priority?
fn is_enforced(tid: i32) -> bool {
    is_in_place(tid) && attributes(tid).is_ok_and(|now| now.is_same_class(&Attributes::fifo(70)))
}

/// The longest time within `length` that a thread had a real-time priority and was not in place, while
/// `change` was called each millisecond.
fn longest_astray(tid: i32, length: Duration, mut change: impl FnMut()) -> Duration {
    let (start, mut longest) = (Instant::now(), Duration::ZERO);
    let mut since = None;
    while start.elapsed() < length {
        change();
        if is_real_time(tid) && !is_in_place(tid) {
            longest = longest.max(since.get_or_insert_with(Instant::now).elapsed());
        } else {
            since = None;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    longest
}

/// A process under `attach`, in a scope, and a group elsewhere.
struct Attached {
    run: Run,
    machine: Machine,
    elsewhere: Elsewhere,
    scope: Scope,
    desk: Desk,
}

/// A group that no run made.
struct Elsewhere(std::path::PathBuf);

impl Elsewhere {
    fn make(name: &str) -> Elsewhere {
        let mount = cgroup::mount().expect("cgroup version 2");
        let directory = mount.join(format!("test-elsewhere-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a group");
        Elsewhere(directory)
    }

    fn take(&self, process: i32) {
        // One that ends takes no processor.
        let _ = std::fs::write(self.0.join("cgroup.procs"), process.to_string());
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        // A process that was killed leaves it a moment later.
        let _ = (0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(5));
            std::fs::remove_dir(&self.0).is_ok()
        });
    }
}

impl Attached {
    fn start(name: &str) -> Attached {
        let (desk, scope) = (Desk::make(name), Scope::make(name));
        let elsewhere = Elsewhere::make(name);
        let machine = Machine::start(scope.directory());
        let host = desk.host(name, PROCESSOR, &machine.domain("vm"));
        let results = desk.state().with_file_name("results.json").display().to_string();
        let run = desk.start(&["attach", &host, "--output", &results]);
        machine.wait_until_enforced();
        // What differs at the first check is put back without a word.
        std::thread::sleep(Duration::from_millis(200));
        Attached { run, machine, elsewhere, scope, desk }
    }

    fn id(&self) -> i32 {
        self.machine.id()
    }

    /// Ends the run and returns its exit status, what it said, and the results of the vCPU. The process is as
    /// before, in `group`.
    fn end(&mut self, group: &str) -> (i32, String, serde_json::Value) {
        self.run.signal("INT");
        let status = self.run.wait();
        self.desk.wait_until_restored();
        assert_eq!(self.machine.residue(group), None, "{}", self.run.said());
        let text = std::fs::read(self.desk.state().with_file_name("results.json")).expect("results");
        let results: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        (status, self.run.said(), results["vcpus"][0].clone())
    }
}

/// Changes a unit once, waits until it is put back, and judges what the run says of it.
fn changed_once(name: &str, words: &str, change: impl Fn(&Attached)) -> Result<(), String> {
    let mut attached = Attached::start(name);
    let tid = attached.id();
    change(&attached);
    let longest = longest_astray(tid, Duration::from_millis(400), || ());
    wait("it is put back", || is_enforced(tid));
    let home = attached.scope.groups()[0].clone();
    let (status, said, vcpu) = attached.end(&home);
    assert_eq!(status, 0, "{said}");
    assert!(said.contains(&format!("`vm.0` {words} during the run, and was put back")), "{said}");
    assert_eq!(vcpu["put_back"], 1, "{vcpu}");
    judge!(longest < ASTRAY_MAX, "it was astray for {longest:?}");
    Ok(())
}

#[test]
fn a_unit_that_is_moved_to_another_cgroup_is_moved_back() {
    let Some(_turn) = needs() else { return };
    undisturbed(|| {
        changed_once("moved", "was moved to another cgroup", |attached| {
            attached.elsewhere.take(attached.id());
        })
    });
}

#[test]
fn a_unit_that_spins_keeps_to_its_budget_though_it_is_moved() {
    let Some(_turn) = needs() else { return };
    undisturbed(|| {
        let (desk, elsewhere) = (Desk::make("spins"), Elsewhere::make("spins"));
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
        let process = Killed(command.spawn().expect("a process"));
        let id = process.0.id() as i32;
        let domain = domain_of(id);
        let mut run = desk.start(&["attach", &desk.host("spins", PROCESSOR, &domain)]);
        wait("it is under enforcement", || is_enforced(id));
        let ran = || {
            let text = std::fs::read_to_string(format!("/proc/{id}/schedstat")).expect("it lives");
            let ns = text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("a number");
            Duration::from_nanos(ns)
        };
        let (start, before) = (Instant::now(), ran());
        elsewhere.take(id);
        longest_astray(id, Duration::from_secs(2), || ());
        let share = (ran() - before).as_secs_f64() / start.elapsed().as_secs_f64();
        run.signal("INT");
        assert_eq!(run.wait(), 0, "{}", run.said());
        desk.wait_until_restored();
        // Its budget, and what it gets until it is back.
        judge!(share < 0.2 + 0.15, "it had {share:.3} of the processor, and 0.2 are its budget");
        Ok(())
    });
}

#[test]
fn a_unit_that_is_given_another_class_or_priority_gets_its_own_again() {
    let Some(_turn) = needs() else { return };
    for class in [Attributes::other(), Attributes::idle(), Attributes::fifo(1), Attributes::fifo(99)] {
        undisturbed(|| {
            changed_once("class", "was given another scheduling class or priority", |attached| {
                set_attributes(attached.id(), &class).expect("root may");
            })
        });
    }
}

#[test]
fn a_unit_that_is_given_other_processors_is_confined_again() {
    let Some(_turn) = needs() else { return };
    undisturbed(|| {
        changed_once("affinity", "was given other processors", |attached| {
            set_affinity(attached.id(), &[0]).expect("root may");
        })
    });
}

/// Changes a unit again and again, and judges that it is given up, and what the run says of it.
fn changed_again_and_again(name: &str, words: &str, change: impl Fn(&Attached)) -> Result<(), String> {
    let mut attached = Attached::start(name);
    let tid = attached.id();
    let longest = longest_astray(tid, ATTACK, || change(&attached));
    assert!(!is_real_time(tid), "{:?}", attributes(tid));
    let top = attached.desk.punctual(&["top", "--once"]).output().expect("it runs");
    let shown = String::from_utf8_lossy(&top.stdout).into_owned();
    assert!(shown.contains("given up"), "{shown}{}", String::from_utf8_lossy(&top.stderr));
    let home = attached.scope.groups()[0].clone();
    let (status, said, vcpu) = attached.end(&home);
    assert_eq!(status, 5, "{said}");
    let reason = format!("it {words} 5 times within 5 s");
    assert!(said.contains(&format!("`vm.0` could not be enforced any more: {reason}")), "{said}");
    assert_eq!(vcpu["not_enforced"], reason, "{vcpu}");
    judge!(longest < ASTRAY_MAX, "it was astray for {longest:?}");
    Ok(())
}

#[test]
fn a_unit_that_is_moved_again_and_again_is_given_up() {
    let Some(_turn) = needs() else { return };
    undisturbed(|| {
        changed_again_and_again("contested", "was moved to another cgroup", |attached| {
            let tid = attached.id();
            let is_ours = cgroup::group_of(tid).is_ok_and(|group| group.contains("punctual-"));
            if is_ours && is_real_time(tid) {
                attached.elsewhere.take(tid);
            }
        })
    });
}

#[test]
fn a_unit_that_is_given_other_processors_again_and_again_is_given_up() {
    let Some(_turn) = needs() else { return };
    undisturbed(|| {
        changed_again_and_again("roaming", "was given other processors", |attached| {
            set_affinity(attached.id(), &[0]).expect("root may");
        })
    });
}

/// The processor to which the process of the next test confines itself again and again.
const ROAMS: &str = "PUNCTUAL_TEST_ROAMS";

#[test]
#[ignore = "a process that another test starts"]
fn roaming() {
    if std::env::var_os(ROAMS).is_none() {
        return;
    }
    loop {
        // It must not spin: processor 0 is the machine's.
        set_affinity(0, &[0]).expect("everybody may set one's own");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A domain that attaches to a thread.
fn domain_of(tid: i32) -> String {
    format!(
        "[domain.vm]\nbudget = \"2ms\"\nperiod = \"10ms\"\npriority = 1\n\
         attach = {{ threads = [{tid}] }}\n"
    )
}

/// A process that is killed with the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The thread of a process that runs a test of this program.
fn thread_of_test(process: i32) -> Option<i32> {
    proc::threads(process).ok()?.into_iter().find(|tid| *tid != process)
}

#[test]
fn a_process_that_leaves_its_processor_by_itself_is_given_up() {
    let Some(_turn) = needs() else { return };
    undisturbed(|| {
        let desk = Desk::make("roams");
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program);
        command.args(["--exact", "placement::roaming", "--ignored", "--nocapture"]).env(ROAMS, "1");
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let process = Killed(command.spawn().expect("a process"));
        let id = process.0.id() as i32;
        wait("its thread roams", || {
            thread_of_test(id).is_some_and(|tid| affinity(tid).is_ok_and(|on| on == [0]))
        });
        let tid = thread_of_test(id).expect("it was there");
        let domain = domain_of(tid);
        let mut run = desk.start(&["attach", &desk.host("roams", PROCESSOR, &domain)]);
        wait("it is under enforcement", || is_real_time(tid));
        let longest = longest_astray(tid, ATTACK, || ());
        assert!(!is_real_time(tid), "{:?}", attributes(tid));
        run.signal("INT");
        assert_eq!(run.wait(), 5, "{}", run.said());
        assert!(run.said().contains("was given other processors 5 times"), "{}", run.said());
        desk.wait_until_restored();
        judge!(longest < ASTRAY_MAX, "it was astray for {longest:?}");
        Ok(())
    });
}

#[test]
fn a_child_of_a_unit_that_is_moved_away_is_moved_back() {
    let Some(_turn) = needs() else { return };
    let (desk, elsewhere) = (Desk::make("child"), Elsewhere::make("child"));
    let domain = "[domain.tree]\nbudget = \"2ms\"\nperiod = \"10ms\"\npriority = 1\n\
                  process = { command = [\"sh\", \"-c\", \"sleep 1000; :\"] }\n";
    let host = desk.host("child", PROCESSOR, domain);
    let mut run = desk.start(&["run", &host, "--as", "process", "--duration", "60s"]);
    let mount = cgroup::mount().expect("mounted");
    let unit = mount.join(format!("punctual-{}/domain0/unit0", run.id()));
    let child = || {
        let threads = cgroup::threads_in(&unit).unwrap_or_default();
        threads.into_iter().find(|tid| proc::name(*tid).is_ok_and(|name| name == "sleep"))
    };
    wait("its child is under enforcement", || child().is_some_and(is_enforced));
    let child = child().expect("it was there");
    // A check must have seen it: it may not be a child of the unit otherwise.
    std::thread::sleep(Duration::from_millis(300));
    elsewhere.take(child);
    let is_elsewhere = |group: &Path| cgroup::threads_in(group).is_ok_and(|threads| threads.contains(&child));
    wait("it is moved back", || !is_elsewhere(&elsewhere.0) && is_enforced(child));
    run.signal("INT");
    assert_eq!(run.wait(), 130, "{}", run.said());
    assert!(run.said().contains("`tree.0` was moved to another cgroup"), "{}", run.said());
}
