//! Priority inversion: the vCPU of a VM waits for a thread of its VMM or of a switch, which does not get the
//! processor. The VMM is a program that records how long each of its jobs waited.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use punctual_enforce::blame::{Job, PoolGuest, Task, explain};
use punctual_enforce::clock::now;
use punctual_enforce::enforcer::{Serving, ServingThread};
use punctual_enforce::journal::Identity;
use punctual_enforce::unit::UnitThreads;
use punctual_linux::os::sched;
use punctual_model::results::{BlameSum, Cause};
use punctual_sched::UnitParams;

use crate::common::live::{Bench, PROCESSOR, needs, scheduler, setup, undisturbed};
use crate::{judge, processor_time_ns};

/// Where the program writes: set for the copy of this test that is the VMM.
const DIRECTORY: &str = "PUNCTUAL_TEST_VMM";
/// Its jobs, and their period and what they execute in the vCPU before they ask the helper.
const JOBS: usize = 120;
const PERIOD: Duration = Duration::from_millis(25);
const COST_NS: u64 = 1_000_000;
/// What the helper does for each.
const HELP_NS: u64 = 100_000;
const HELPER: &str = "iothread";
/// The thread of another program, in the role of a switch's plane, and its socket.
const PLANE: &str = "plane/urgent (on 1, other)";
const SOCKET: &str = "plane";

/// No test: the VMM.
#[test]
#[ignore = "the program of the other test"]
fn program_with_a_helper() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    let vcpu = std::thread::Builder::new().name("vcpu".into());
    let vcpu = match UnixStream::connect(directory.join(SOCKET)) {
        Ok(plane) => vcpu.spawn(move || execute(&directory, || ask(&plane))),
        Err(_) => {
            let (ask, asked) = channel();
            let (answer, answered) = channel();
            let helper = std::thread::Builder::new().name(HELPER.into());
            helper.spawn(move || help(&asked, &answer)).expect("a thread");
            vcpu.spawn(move || {
                execute(&directory, || {
                    ask.send(()).expect("a helper");
                    answered.recv().expect("an answer");
                })
            })
        }
    };
    vcpu.expect("a thread").join().expect("it never ends");
}

fn ask(mut plane: &UnixStream) {
    plane.write_all(&[1]).expect("a plane");
    plane.read_exact(&mut [0]).expect("an answer");
}

/// What [`help`] does, for a vCPU of another process. Says first which thread it is.
fn serve(listener: &UnixListener, thread: &Sender<i32>) {
    sched::set_affinity(0, &[PROCESSOR]).expect("a processor");
    thread.send(rustix::thread::gettid().as_raw_nonzero().get()).expect("the test waits");
    let (mut vcpu, _) = listener.accept().expect("a vCPU");
    while vcpu.read_exact(&mut [0]).is_ok() {
        spin(HELP_NS);
        if vcpu.write_all(&[1]).is_err() {
            break;
        }
    }
}

fn spin(time_ns: u64) {
    let until_ns = processor_time_ns() + time_ns;
    while processor_time_ns() < until_ns {
        std::hint::spin_loop();
    }
}

fn help(asked: &Receiver<()>, answer: &Sender<()>) {
    sched::set_affinity(0, &[PROCESSOR]).expect("a processor");
    while asked.recv().is_ok() {
        spin(HELP_NS);
        if answer.send(()).is_err() {
            break;
        }
    }
}

/// Writes down of each job when it was released and ended, and how long it waited for the helper.
fn execute(directory: &Path, ask: impl Fn()) -> ! {
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    publish(&directory.join("vcpu"), &thread.to_string());
    while !directory.join("go").exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let (began, mut text) = (now().as_ns(), String::new());
    for job in 1..=JOBS as u64 {
        let release_ns = began + job * PERIOD.as_nanos() as u64;
        std::thread::sleep(Duration::from_nanos(release_ns.saturating_sub(now().as_ns())));
        spin(COST_NS);
        let (asked_ns, ran_ns) = (now().as_ns(), processor_time_ns());
        ask();
        // What it executes itself, to ask and to go on, is no waiting.
        let ran_ns = processor_time_ns() - ran_ns;
        let end_ns = now().as_ns();
        text += &format!("{release_ns} {end_ns} {}\n", (end_ns - asked_ns).saturating_sub(ran_ns));
    }
    publish(&directory.join("jobs"), &text);
    // It lives on, as a vCPU does: the observer asks whose helpers there are.
    loop {
        std::thread::park();
    }
}

/// Writes a file that is there as a whole or not.
fn publish(path: &Path, text: &str) {
    let draft = path.with_extension("draft");
    fs::write(&draft, text).expect("a file");
    fs::rename(&draft, path).expect("a file");
}

/// The program while the test lasts.
struct Vmm(Child);

impl Vmm {
    fn start(directory: &Path) -> Vmm {
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command.args(["--exact", "helper::program_with_a_helper", "--ignored"]).env(DIRECTORY, directory);
        Vmm(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("a program"))
    }
}

impl Drop for Vmm {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait_for(bench: &mut Bench, path: &Path) -> String {
    for _ in 0..600 {
        if let Ok(text) = fs::read_to_string(path) {
            return text;
        }
        bench.keep_alive(Duration::from_millis(20));
    }
    panic!("{} does not come", path.display());
}

fn server(budget_ms: u64, period_ms: u64, priority: u32) -> UnitParams {
    UnitParams {
        budget: Some(punctual_sched::Duration::from_ms(budget_ms)),
        period: Some(punctual_sched::Duration::from_ms(period_ms)),
        priority: Some(priority),
        ..UnitParams::default()
    }
}

/// The jobs of the vCPU beside a less urgent unit, which spins and keeps the helper from the processor: what
/// they add up to, and how long they waited for the helper, by the vCPU's own clock. Is the helper a thread
/// of another program?
fn inverted(is_served: bool) -> (BlameSum, u64) {
    let directory = tempfile::tempdir().expect("a directory");
    let mut setup = setup("deferrable", vec![PROCESSOR]);
    if is_served {
        setup.observed.serving = plane(directory.path());
    }
    let mut bench = Bench::with(setup, &scheduler("deferrable", &[]));
    let vmm = Vmm::start(directory.path());
    let thread = wait_for(&mut bench, &directory.path().join("vcpu")).parse().expect("an id");
    let thread = UnitThreads::Thread(Identity::of(thread).expect("a thread"));
    let handle = bench.session.add_unit(0, "vm", "vm.0", thread, &server(5, 10, 1)).expect("a unit");
    bench.handles.push(handle);
    bench.spin("hog", &server(12, 20, 2));
    bench.keep_alive(Duration::from_millis(300));
    publish(&directory.path().join("go"), "");
    let text = wait_for(&mut bench, &directory.path().join("jobs"));
    bench.keep_alive(Duration::from_millis(300));
    let mut report = bench.session.finish().expect("an end");
    drop(vmm);
    let observed = report.pools.remove(0).observations.expect("it was under enforcement");
    let times = |line: &str| -> Vec<u64> { line.split(' ').map(|word| word.parse().expect("ns")).collect() };
    let lines: Vec<Vec<u64>> = text.lines().map(times).collect();
    let waited_ns = lines.iter().map(|line| line[2]).sum();
    let job = |(number, line): (u64, &Vec<u64>)| Job {
        task: 0,
        number,
        release_ns: line[0],
        end_ns: line[1],
        cost_ns: COST_NS,
        missed: false,
        late_ns: 0,
    };
    let jobs: Vec<Job> = (0..).zip(&lines).map(job).collect();
    let window = (jobs[0].release_ns, jobs[JOBS - 1].end_ns);
    let tasks = vec![Task { name: "loop".into(), priority: 1 }];
    let vcpus = vec![("vm.0".into(), Some((5_000_000, 10_000_000)))];
    let guest = PoolGuest { tasks, due: vec![true; jobs.len()], jobs, vcpus };
    let mut explained = explain(&observed, &[guest], window);
    (explained.tasks.remove(0).remove(0).blame.all, waited_ns)
}

/// A thread that serves the vCPU, as a plane of a switch does.
fn plane(directory: &Path) -> Arc<Serving> {
    let listener = UnixListener::bind(directory.join(SOCKET)).expect("a socket");
    let (say, said) = channel();
    std::thread::spawn(move || serve(&listener, &say));
    let thread = said.recv().expect("it begins");
    let serving = Arc::<Serving>::default();
    serving.set(vec![ServingThread { thread, name: PLANE.into(), units: vec!["vm.0".into()] }]);
    serving
}

#[test]
fn a_helper_that_does_not_get_the_processor_is_named_with_its_time() {
    waits_are_named(HELPER, false);
}

#[test]
fn a_plane_of_a_switch_that_does_not_get_the_processor_is_named_with_its_time() {
    waits_are_named(PLANE, true);
}

fn waits_are_named(name: &str, is_served: bool) {
    let Some(_turn) = needs() else { return };
    undisturbed(|| {
        let (blame, injected_ns) = inverted(is_served);
        let of_helper = blame.causes.iter().filter(|cause| cause.cause == Cause::HelperThread);
        let named: Vec<(Option<&str>, u64)> =
            of_helper.map(|cause| (cause.by.as_deref(), cause.time_ns)).collect();
        let named_ns: u64 = named.iter().map(|(_, time_ns)| time_ns).sum();
        println!(
            "a helper that waits: {} jobs, {injected_ns} ns, named rightly {} per mille: {:?}",
            blame.jobs,
            named_ns * 1000 / injected_ns,
            blame.causes
        );
        assert_eq!(blame.jobs, JOBS as u64);
        // The hog has three fifths of the processor: the helper waits for it.
        judge!(injected_ns > 200_000_000, "{injected_ns} ns of waiting only");
        assert!(named.iter().all(|(by, _)| *by == Some(name)), "{named:?}");
        judge!(named_ns * 100 >= injected_ns * 95, "{named_ns} of {injected_ns} ns: {:?}", blame.causes);
        judge!(named_ns * 100 <= injected_ns * 105, "{named_ns} of {injected_ns} ns: {:?}", blame.causes);
        Ok(())
    });
}
