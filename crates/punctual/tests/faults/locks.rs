//! What belongs to one run at a time, and what several runs change together.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use punctual_enforce::session::Session;
use punctual_linux::os::sched::{affinity, attributes};
use punctual_linux::os::{cgroup, proc};
use punctual_linux::preflight::{RT_RUNTIME, rt_limit};

use crate::common::faults::{guardian_of, kill_with_guardian, rounds, signal, wait};
use crate::common::live::{needs, setup};
use crate::common::scopes::{Desk, Machine, Run, Scope};

#[test]
fn a_vm_belongs_to_one_run() {
    let Some(_turn) = needs() else { return };
    let (desk, mut scope) = (Desk::make("vm-lock"), Scope::make("vm-lock"));
    let machine = Machine::start(scope.directory());
    scope.watch();
    let mut first = desk.start(&["attach", &desk.host("first", 1, &machine.domain("vm"))]);
    machine.wait_until_enforced();
    let mut second = desk.start(&["attach", &desk.host("second", 0, &machine.domain("vm"))]);
    assert_eq!(second.wait(), 2, "{}", second.said());
    let refusal = format!("process {} belongs to the run of `first` (process {})", machine.id(), first.id());
    assert!(second.said().contains(&refusal), "{}", second.said());
    // A run with its state elsewhere does not see the first one's journal, but its cgroup.
    let elsewhere = Desk::make("vm-lock-elsewhere");
    let mut third = elsewhere.start(&["attach", &elsewhere.host("third", 0, &machine.domain("vm"))]);
    assert_eq!(third.wait(), 2, "{}", third.said());
    assert!(third.said().contains("belongs to another run"), "{}", third.said());
    first.signal("INT");
    assert_eq!(first.wait(), 0, "{}", first.said());
    assert_eq!(machine.residue(&scope.groups()[0]), None);
    assert_eq!((desk.left(), elsewhere.left()), (Vec::new(), Vec::new()));
    // The next run may have it.
    let mut next = desk.start(&["attach", &desk.host("next", 1, &machine.domain("vm"))]);
    machine.wait_until_enforced();
    next.signal("INT");
    assert_eq!(next.wait(), 0, "{}", next.said());
}

#[test]
fn a_processor_belongs_to_one_run() {
    let Some(_turn) = needs() else { return };
    let (desk, scope) = (Desk::make("cpu-lock"), Scope::make("cpu-lock"));
    let machines = [Machine::start(scope.directory()), Machine::start(scope.directory())];
    let mut first = desk.start(&["attach", &desk.host("first", 1, &machines[0].domain("vm"))]);
    machines[0].wait_until_enforced();
    let mut second = desk.start(&["attach", &desk.host("second", 1, &machines[1].domain("vm"))]);
    assert_eq!(second.wait(), 2, "{}", second.said());
    let refusal = format!("processor 1 belongs to the run of `first` (process {})", first.id());
    assert!(second.said().contains(&refusal), "{}", second.said());
    // Of a run that died with its guardian, the next one undoes the changes and takes its place.
    kill_with_guardian(first.id());
    first.wait();
    let mut third = desk.start(&["attach", &desk.host("third", 1, &machines[1].domain("vm"))]);
    machines[1].wait_until_enforced();
    third.signal("INT");
    assert_eq!(third.wait(), 0, "{}", third.said());
    for machine in &machines {
        assert_eq!(machine.residue(&scope.groups()[0]), None);
    }
}

#[test]
fn a_run_that_starts_beside_the_death_of_another_waits_for_the_guardian() {
    let Some(_turn) = needs() else { return };
    let mut waited = 0;
    for round in 0..ROUNDS {
        let (desk, scope) = (Desk::make("beside"), Scope::make("beside"));
        let machine = Machine::start(scope.directory());
        let mut first = desk.start(&["attach", &desk.host("first", 1, &machine.domain("vm"))]);
        machine.wait_until_enforced();
        let mut second = desk.start(&["attach", &desk.host("second", 1, &machine.domain("vm"))]);
        // A run looks for others twice: when it begins, and when it claims its processors.
        std::thread::sleep(LONGEST_START * round / ROUNDS);
        first.signal("KILL");
        first.wait();
        wait("it is refused or runs", || second.has_ended() || desk.is_attached(second.id()));
        second.signal_if_there("INT");
        let status = second.wait();
        assert!(!second.said().contains("has not been undone"), "round {round}: {}", second.said());
        // It may have claimed its processors while the first one was alive.
        let is_refused = status == 2 && second.said().contains("belongs to the run of `first`");
        assert!(is_refused || [0, 130].contains(&status), "round {round}: {status} {}", second.said());
        waited += u32::from(!is_refused);
        desk.wait_until_restored();
        assert_eq!(machine.residue(&scope.groups()[0]), None, "round {round}");
    }
    assert!(waited > 0, "every run was refused: nothing was tested");
}

/// How often a run is started beside the death of another, and the longest time from the start to the death.
const ROUNDS: u32 = 20;
const LONGEST_START: Duration = Duration::from_millis(120);

/// A VMM whose vCPU thread holds its big lock two thirds of the time.
struct Vmm {
    process: Child,
    answers: BufReader<ChildStdout>,
    vcpu: i32,
}

impl Vmm {
    fn start(desk: &Desk) -> Vmm {
        let program = desk.state().join("vmm");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/faults/vmm.c");
        let compiled = Command::new("cc").args(["-O1", "-pthread", "-o"]).arg(&program).arg(source).status();
        assert!(compiled.expect("a C compiler").success());
        let mut command = Command::new(program);
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it was just compiled");
        let mut answers = BufReader::new(process.stdout.take().expect("a pipe"));
        let vcpu = next_number(&mut answers) as i32;
        Vmm { process, answers, vcpu }
    }

    fn domain(&self) -> String {
        format!(
            "[domain.vm]\nbudget = \"2ms\"\nperiod = \"200ms\"\nattach = {{ threads = [{}] }}\n",
            self.vcpu
        )
    }

    /// Ends it; returns how long its main thread waited for the lock at most, in us.
    fn end(mut self) -> u64 {
        drop(self.process.stdin.take());
        let longest_us = next_number(&mut self.answers);
        assert!(self.process.wait().expect("it ends").success());
        longest_us
    }
}

impl Drop for Vmm {
    fn drop(&mut self) {
        // It has ended, unless the test failed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn next_number(answers: &mut BufReader<ChildStdout>) -> u64 {
    let mut line = String::new();
    answers.read_line(&mut line).expect("it answers");
    line.trim().parse().expect("a number")
}

#[test]
fn a_parked_vcpu_with_the_lock_of_its_vmm_runs_on_for_a_moment_and_pays_for_it() {
    let Some(_turn) = needs() else { return };
    let desk = Desk::make("vmm");
    let vmm = Vmm::start(&desk);
    let mut run = desk.start(&["attach", &desk.host("vmm", 1, &vmm.domain()), "--json"]);
    wait("it is under enforcement", || attributes(vmm.vcpu).is_ok_and(|now| now.policy == 1));
    let used = || {
        let line = std::fs::read_to_string(format!("/proc/{}/schedstat", vmm.vcpu)).expect("it lives");
        proc::parse_schedstat(&line).expect("numbers").ran
    };
    let before = used();
    std::thread::sleep(Duration::from_secs(2));
    let ran = used().saturating_sub(before);
    run.signal("INT");
    assert_eq!(run.wait(), 0, "{}", run.said());
    let longest_us = vmm.end();
    // Without graces it waits for a whole period. It comes to the lock at most two graces later than the
    // vCPU is found to hold it.
    assert!(longest_us < 100_000, "the main thread waited {longest_us} us for the lock");
    // 20 ms are its budget.
    assert!(ran < punctual_sched::Duration::from_ms(40), "it ran for {ran}");
    eprintln!("the main thread waited at most {longest_us} us, the vCPU ran for {ran}");
}

#[test]
fn restore_says_for_whom_it_waits() {
    let desk = Desk::make("held");
    let journal = desk.state().join("4000000.journal");
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("readable");
    let line = format!(
        "{{\"run\":{{\"enforcer\":{{\"id\":4000000,\"start_ticks\":1}},\
         \"name\":\"held\",\"boot\":\"{}\"}}}}\n",
        boot.trim()
    );
    std::fs::write(&journal, line).expect("a file");
    // As a guardian does, of a run in another PID namespace for example.
    let held = std::fs::File::open(&journal).expect("it is there");
    held.lock().expect("nobody else has it");
    let mut restore = desk.start(&["restore"]);
    let words = "waiting for the guardian of the run of `held` (process 4000000), which holds";
    wait("it reports that", || restore.said().contains(words));
    drop(held);
    assert_eq!(restore.wait(), 0, "{}", restore.said());
    assert_eq!(desk.left(), Vec::<String>::new());
}

/// What all runs change: the real-time limit, and where the threads of RCU may run.
pub(crate) fn machine_wide() -> (String, Vec<(i32, Vec<usize>)>) {
    let rcu = proc::kernel_threads("rcu").expect("readable").into_iter();
    let rcu = rcu.filter_map(|tid| Some((tid, affinity(tid).ok()?)));
    (std::fs::read_to_string(RT_RUNTIME).expect("readable"), rcu.collect())
}

/// A run that can overlap with others.
enum Overlapping<'a> {
    Attached(Run, &'a Machine),
    /// A session without a pool, as this machine has no third processor.
    Bare(Child),
}

impl Overlapping<'_> {
    fn id(&self) -> u32 {
        match self {
            Overlapping::Attached(run, _) => run.id(),
            Overlapping::Bare(process) => process.id(),
        }
    }

    /// Ends it by a signal, which is SIGTERM for `INT` of a bare one; `BOTH` kills its guardian as well.
    fn end(mut self, how: &str, desk: &Desk) {
        let guardian = guardian_of(self.id()).expect("it has one");
        match how {
            "BOTH" => kill_with_guardian(self.id()),
            // It catches no signal, and what runs in the background of a shell ignores SIGINT.
            "INT" if matches!(self, Overlapping::Bare(_)) => signal(self.id(), "TERM"),
            "INT" => signal(self.id(), "INT"),
            _ => signal(self.id(), "KILL"),
        }
        match &mut self {
            Overlapping::Attached(run, _) => drop(run.wait()),
            Overlapping::Bare(process) => drop(process.wait().expect("it ends")),
        }
        if how == "BOTH" {
            wait("the guardian ends", || !Path::new(&format!("/proc/{guardian}")).exists());
            let restored = desk.punctual(&["restore"]).output().expect("it runs");
            assert_eq!(restored.status.code(), Some(0), "{restored:?}");
        }
        let journal = format!("{}.journal", self.id());
        wait("its guardian is ready", || !desk.left().contains(&journal));
    }
}

#[test]
#[ignore = "a process that another test starts"]
fn session_without_a_pool() {
    if std::env::var_os("PUNCTUAL_STATE").is_none() {
        return;
    }
    let mut session = Session::start(setup("bare", Vec::new())).expect("a session");
    loop {
        session.poll().expect("all is well");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn bare(desk: &Desk) -> Child {
    let process = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "locks::session_without_a_pool", "--ignored"])
        .env("PUNCTUAL_STATE", desk.state())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("a process");
    let journal = desk.state().join(format!("{}.journal", process.id()));
    wait("it has lifted the limit", || {
        std::fs::read_to_string(&journal).is_ok_and(|text| text.contains("sched_rt_runtime_us"))
    });
    process
}

#[test]
fn what_several_runs_change_is_put_back_by_the_last_in_whatever_order_they_end() {
    let Some(_turn) = needs() else { return };
    let before = machine_wide();
    let limit = rt_limit();
    if limit.is_none() {
        return eprintln!("skipped: this kernel has no limit for real-time threads (Linux 7.2 has none)");
    }
    let ends = ["INT", "KILL", "BOTH"];
    let orders: [&[usize]; 8] =
        [&[0, 1], &[1, 0], &[0, 1, 2], &[0, 2, 1], &[1, 0, 2], &[1, 2, 0], &[2, 0, 1], &[2, 1, 0]];
    let mut tried = 0;
    for (at, order) in orders.into_iter().enumerate() {
        for shift in (0..ends.len()).take(if rounds() > 15 { ends.len() } else { 1 }) {
            let (desk, scope) = (Desk::make("shared"), Scope::make("shared"));
            let machines = [Machine::start(scope.directory()), Machine::start(scope.directory())];
            let mut runs: Vec<Option<Overlapping<'_>>> = Vec::new();
            for (number, machine) in machines.iter().enumerate() {
                let host = desk.host(&format!("run{number}"), 1 - number, &machine.domain("vm"));
                runs.push(Some(Overlapping::Attached(desk.start(&["attach", &host]), machine)));
                machine.wait_until_enforced();
            }
            if order.len() > 2 {
                runs.push(Some(Overlapping::Bare(bare(&desk))));
            }
            assert_eq!(rt_limit(), None, "the limit is lifted");
            for (nth, &run) in order.iter().enumerate() {
                let how = ends[(at + shift + nth) % ends.len()];
                runs[run].take().expect("it goes on").end(how, &desk);
                let is_last = nth + 1 == order.len();
                let now = if is_last { limit } else { None };
                assert_eq!(rt_limit(), now, "{order:?}: after {how} of run {run}");
                let guests = runs.iter().flatten();
                for machine in guests.filter_map(|run| match run {
                    Overlapping::Attached(_, machine) => Some(machine),
                    Overlapping::Bare(_) => None,
                }) {
                    let group = cgroup::group_of(machine.id()).expect("it lives");
                    assert!(group.contains("punctual-"), "the other run goes on");
                }
            }
            assert_eq!(machine_wide(), before, "{order:?}");
            assert_eq!(desk.left(), Vec::<String>::new());
            for machine in &machines {
                assert_eq!(machine.residue(&scope.groups()[0]), None, "{order:?}");
            }
            tried += 1;
        }
    }
    println!("{tried} rounds of two and three overlapping runs: 0 residues");
}
