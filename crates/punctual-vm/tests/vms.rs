//! Real virtual machines: QEMU boots a Debian kernel, the guest program runs task sets. Nothing here is
//! real-time, and no time is asserted.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use punctual_guest::protocol::{Cyclictest, Mode, Task, Work};
use punctual_jobs::{Arrival, JobStream};
use punctual_linux::vmm::{self, Role};
use punctual_vm::cache::Cache;
use punctual_vm::image::{self, Image};
use punctual_vm::qemu::{self, Accelerator, PROGRAM, Qmp, Vm, VmSpec};

/// A guest boots in seconds by translation; this is for a machine that is busy with much else.
const BOOT_LIMIT: Duration = Duration::from_secs(240);

/// Checks for what a VM needs. Without it the test prints why and is skipped, or fails where nothing may be
/// skipped.
fn image() -> Option<(Cache, Image)> {
    let there = |program: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
    };
    for (program, package) in [(PROGRAM, "qemu-system-x86"), ("apt-get", "apt"), ("dpkg-deb", "dpkg")] {
        if !there(program) {
            let missing = format!("skipped: there is no {program} (Debian: apt install {package})");
            assert!(std::env::var_os("PUNCTUAL_NO_SKIP").is_none(), "{missing}");
            eprintln!("{missing}");
            return None;
        }
    }
    let cache = Cache::at(Path::new(env!("CARGO_TARGET_TMPDIR"))).expect("a cache");
    let image = image::prepare_in(&cache, &|line| eprintln!("{line}"), || false)
        .unwrap_or_else(|error| panic!("{error}"));
    Some((cache, image))
}

fn spec(name: &str, image: &Image) -> VmSpec {
    VmSpec::new(name, image, Accelerator::Tcg)
}

fn exists(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

#[test]
fn a_vm_boots_runs_a_task_set_and_cyclictest_and_leaves_nothing() {
    let Some((_, image)) = image() else { return };
    let mut vm = Vm::start(&spec("whole", &image), || false).unwrap_or_else(|error| panic!("{error}"));
    let pid = vm.pid();
    let client = vm.connect(BOOT_LIMIT).unwrap_or_else(|error| panic!("{error}"));
    let ready = client.ready().clone();
    assert_eq!((ready.mode, ready.processors, ready.cyclictest), (Mode::Fifo, 1, true));

    let calibration = client.calibrate(Duration::from_millis(100)).expect("calibrated");
    let (offset_ns, _) = client.clock_offset_ns().expect("a clock");
    let start_ns = punctual_guest::os::now_ns() + 100_000_000;
    let jobs = |period_ns, cost_ns| {
        Work::Jobs(JobStream {
            arrival: Arrival::Periodic { period_ns, offset_ns: 0 },
            cost_min_ns: cost_ns,
            cost_max_ns: cost_ns,
            seed: 0,
        })
    };
    let tasks = [
        Task { priority: 1, deadline_ns: None, work: jobs(20_000_000, 100_000) },
        Task { priority: 2, deadline_ns: None, work: jobs(50_000_000, 1_000_000) },
        Task { priority: 3, deadline_ns: None, work: Work::ForkBomb { start_ns: 100_000_000, threads: 50 } },
        Task { priority: 4, deadline_ns: None, work: Work::Hog { start_ns: 0 } },
    ];
    let duration_ns = 1_000_000_000;
    client
        .begin(&tasks, None, calibration.iterations_per_ms, (start_ns, offset_ns), duration_ns)
        .expect("begun");
    let measured = client.finish(Duration::from_nanos(duration_ns)).unwrap_or_else(|error| panic!("{error}"));
    let counts: Vec<usize> = measured.tasks.iter().map(|task| task.jobs.len()).collect();
    assert_eq!(counts, [50, 20, 0, 0]);
    assert!(measured.tasks.iter().all(|task| task.executed_ns > 0), "{measured:?}");

    let how = Cyclictest { interval_us: 1000, loops: 50, priority: 80, histogram_us: 500 };
    let latencies = client.cyclictest(how).unwrap_or_else(|error| panic!("{error}"));
    let counted: u64 = latencies.buckets.iter().map(|(_, count)| count).sum();
    assert_eq!(counted + latencies.overflows, 50, "{latencies:?}");

    let vcpus = vm.vcpu_threads().expect("vCPUs");
    assert_eq!(vcpus.len(), 1);
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("QEMU runs");
    let has = |line: &str| status.lines().any(|found| found.split_whitespace().eq(line.split_whitespace()));
    assert!(has("Seccomp: 2") && !has("Uid: 0 0 0 0"), "{status}");
    assert_eq!(vm.weaknesses(), [""; 0]);
    let named = vmm::threads_of(Path::new("/proc"), pid).expect("threads");
    assert_eq!(vmm::vcpus(&named), [(0, vcpus[0])], "names and QMP agree: {named:?}");
    let roles: Vec<Role> = vm.helper_threads().expect("helpers").iter().map(|thread| thread.role).collect();
    assert!(roles.contains(&Role::MainLoop) && roles.contains(&Role::Rcu), "{roles:?}");
    assert!(!roles.iter().any(|role| matches!(role, Role::Vcpu(_))), "{roles:?}");
    vm.quit();
    assert!(!exists(pid));
}

#[test]
fn a_guest_that_powers_off_when_told_ends_its_qemu() {
    let Some((_, image)) = image() else { return };
    let mut spec = spec("two-cpus", &image);
    spec.vcpus = 2;
    let mut vm = Vm::start(&spec, || false).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(vm.vcpu_threads().expect("vCPUs").len(), 2);
    let client = vm.connect(BOOT_LIMIT).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(client.ready().processors, 2);
    client.quit().expect("told");
    let error = client.clock_offset_ns().unwrap_err();
    assert!(matches!(error, punctual_vm::workload::ClientError::Channel(_)), "{error}");
}

#[test]
fn a_guest_that_does_not_boot_is_an_error_with_the_last_lines_of_its_console() {
    let Some((_, image)) = image() else { return };
    let mut spec = spec("panics", &image);
    spec.append.push_str(" rdinit=/no-such-init init=/no-such-init");
    let mut vm = Vm::start(&spec, || false).unwrap_or_else(|error| panic!("{error}"));
    let error = vm.connect(BOOT_LIMIT).unwrap_err().to_string();
    assert!(error.contains("VM `panics` did not boot") && error.contains("Kernel panic"), "{error}");
}

#[test]
fn a_guest_that_hangs_is_given_up_at_the_limit() {
    let Some((_, image)) = image() else { return };
    let mut spec = spec("hangs", &image);
    spec.extra.push("-S".into());
    let mut vm = Vm::start(&spec, || false).unwrap_or_else(|error| panic!("{error}"));
    let error = vm.connect(Duration::from_millis(200)).unwrap_err().to_string();
    assert!(error.contains("did not answer within 0.2 s"), "{error}");
    assert!(matches!(vm.connect(Duration::from_millis(200)), Err(qemu::Error::GivenUp { .. })));
    let pid = vm.pid();
    drop(vm);
    assert!(!exists(pid));
}

#[test]
fn a_qemu_that_does_not_start_is_an_error_with_what_it_said() {
    let Some((_, image)) = image() else { return };
    let mut spec = spec("wrong", &image);
    spec.extra.push("-no-such-option".into());
    let error = Vm::start(&spec, || false).unwrap_err().to_string();
    assert!(error.contains("no-such-option: invalid option"), "{error}");
    spec.program = PathBuf::from("/no/such/qemu");
    assert!(matches!(Vm::start(&spec, || false), Err(qemu::Error::NoQemu { .. })));
}

#[test]
fn a_running_vm_is_found_by_its_qmp_socket_and_by_its_name() {
    let Some((_, image)) = image() else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("qmp");
    let name = format!("found-{}", std::process::id());
    let mut spec = spec(&name, &image);
    spec.extra = ["-S", "-qmp"].map(str::to_owned).into();
    spec.extra.push(format!("unix:{},server=on,wait=off", socket.display()));
    let mut vm = Vm::start(&spec, || false).unwrap_or_else(|error| panic!("{error}"));
    let ours = vm.vcpu_threads().expect("vCPUs");
    let mut theirs =
        Qmp::connect(&socket, Duration::from_secs(30), || false).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(theirs.vcpu_threads().expect("vCPUs"), [(0, ours[0])]);
    let proc = Path::new("/proc");
    assert_eq!(vmm::process_of(proc, ours[0]).expect("a process"), vm.pid());
    assert_eq!(
        vmm::find_by_name(proc, Path::new("/run"), &name, &vmm::trusted_owners(Path::new("/etc/passwd"))),
        Ok(vm.pid())
    );
}

#[test]
fn kvm_is_tried_before_it_is_trusted_and_the_answer_is_kept() {
    let Some((cache, image)) = image() else { return };
    let first =
        qemu::accel::choose(&cache, &image, &|_| {}, || false).unwrap_or_else(|error| panic!("{error}"));
    let tried_again = |line: &str| panic!("{line}");
    let again =
        qemu::accel::choose(&cache, &image, &tried_again, || false).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(first, again);
    match first {
        (Accelerator::Kvm, None) => {}
        (Accelerator::Tcg, Some(why)) => assert_eq!(why.lines().count(), 1, "{why}"),
        other => panic!("{other:?}"),
    }
}

/// The name of the variable that makes the next test hold a VM.
const HOLD: &str = "PUNCTUAL_TEST_HOLDS_A_VM";

#[test]
fn holds_a_vm_for_the_test_below() {
    if std::env::var_os(HOLD).is_none() {
        return;
    }
    let (_, image) = image().expect("an image");
    let mut spec = spec("held", &image);
    spec.extra.push("-S".into());
    // From a thread that ends: that must not end the VM.
    let start =
        std::thread::spawn(move || Vm::start(&spec, || false).unwrap_or_else(|error| panic!("{error}")));
    let vm = start.join().expect("started");
    println!("\nholds {}", vm.pid());
    std::thread::sleep(Duration::from_secs(300));
}

#[test]
fn no_vm_outlives_us_even_if_we_are_killed() {
    use std::io::{BufRead, BufReader};
    if image().is_none() {
        return;
    }
    let mut us = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "holds_a_vm_for_the_test_below", "--nocapture"])
        .env(HOLD, "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut lines = BufReader::new(us.stdout.take().expect("output")).lines().map_while(Result::ok);
    let line = lines.find(|line| line.starts_with("holds ")).expect("a VM is held");
    let pid: u32 = line["holds ".len()..].trim().parse().expect("a process id");
    // Long enough for a VM whose thread ended to be killed too early.
    std::thread::sleep(Duration::from_millis(300));
    assert!(exists(pid));
    us.kill().expect("killed with -9");
    us.wait().expect("waited for");
    // Its new parent reaps it in its own time; until then it is a zombie.
    let running = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['Z', 'X']))
    };
    for _ in 0..600 {
        if !running() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("QEMU {pid} still runs");
}
