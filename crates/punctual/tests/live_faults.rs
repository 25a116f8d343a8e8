//! However a live run ends, it restores the machine: the state of what it attaches to is compared before and
//! after.

mod common;
#[path = "faults/histories.rs"]
mod histories;
#[path = "faults/homes.rs"]
mod homes;
#[path = "faults/journals.rs"]
mod journals;
#[path = "faults/locks.rs"]
mod locks;
#[path = "faults/machine.rs"]
mod machine;
#[path = "faults/newcomers.rs"]
mod newcomers;
#[path = "faults/placement.rs"]
mod placement;
#[path = "faults/rounds.rs"]
mod rounds;
#[path = "faults/targets.rs"]
mod targets;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::faults::{State, Victims, kill_with_guardian, moment, rounds, signal, wait};
use common::live::needs;
use punctual_linux::os::cgroup;
use punctual_linux::os::sched::attributes;
use punctual_linux::vmm;
use punctual_vm::qemu::Qmp;

/// How long a run takes on this machine until it has changed everything.
fn until_changed(victims: &Victims, before: &State) -> Duration {
    let start = Instant::now();
    let mut run = victims.attach(&[]);
    victims.wait_until_changed(before);
    let took = start.elapsed();
    signal(run.id(), "INT");
    run.wait().expect("it ends");
    took
}

#[test]
fn killed_with_9_at_any_moment_the_machine_is_as_before() {
    let Some(_turn) = needs() else { return };
    let victims = Victims::start("killed");
    let before = victims.state();
    let until_changed = until_changed(&victims, &before);
    let mut changed = 0;
    for round in 0..rounds() {
        // Every other run changes what the doctor says as well.
        let mut run = victims.attach(if round % 2 == 0 { &[] } else { &["--apply"] });
        std::thread::sleep(moment(round, until_changed));
        changed += u64::from(victims.state() != before);
        run.kill().expect("it can be killed");
        run.wait().expect("and ends");
        victims.wait_until_restored();
        assert_eq!(victims.state(), before, "round {round}");
    }
    println!(
        "{} runs killed, {changed} of them while the machine was changed, which takes {until_changed:.1?}",
        rounds()
    );
    assert!(changed > 0, "no run was killed while it had changed anything: nothing was tested");
}

#[test]
fn what_apply_changes_is_put_back() {
    let Some(_turn) = needs() else { return };
    let victims = Victims::start("applied");
    let before = victims.state();
    for last in ["INT", "KILL"] {
        let mut run = victims.attach(&["--apply"]);
        victims.wait_until_changed(&before);
        let during = victims.state().settings;
        let changed = during.iter().zip(&before.settings).filter(|(now, before)| now != before).count();
        println!("{changed} of {} kernel settings are others during the run", during.len());
        assert!(changed > 1, "the real-time limit is lifted without --apply too");
        signal(run.id(), last);
        run.wait().expect("it ends");
        victims.wait_until_restored();
        assert_eq!(victims.state(), before);
    }
}

#[test]
fn programs_that_starve_all_others_under_plain_linux_are_shown_to_and_end_with_the_run() {
    let Some(_turn) = needs() else { return };
    let victims = Victims::bystanders("starved");
    let before = victims.state();
    let host = victims.directory().join("starved.toml");
    let bomb = "for i in 1 2 3 4 5 6 7; do (while :; do :; done) & done; while :; do :; done";
    let text = format!(
        "name = \"starved\"\n[machine]\nprocessors = 2\n[pool.guests]\nprocessors = [1]\n\
         policy = \"deferrable\"\n\
         [domain.bomb]\nbudget = \"1ms\"\nperiod = \"10ms\"\npriority = 1\n\
         process = {{ command = [\"sh\", \"-c\", \"{bomb}\"] }}\n\
         [domain.late]\nbudget = \"4ms\"\nperiod = \"10ms\"\npriority = 2\n\
         task.loop = {{ period = \"20ms\", cost = \"1ms\" }}\n"
    );
    std::fs::write(&host, text).expect("a host file");
    let host = host.display().to_string();
    let arguments = ["run", &host, "--as", "process", "--duration", "1s", "--policy", "linux-fifo", "--json"];
    let output = victims.punctual(&arguments).stdin(Stdio::null()).output().expect("it runs");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let results: serde_json::Value = serde_json::from_slice(&output.stdout).expect("results");
    let late = &results["domains"][1]["jobs"];
    assert_eq!((late["due"].as_u64(), late["missed"].as_u64()), (Some(50), Some(50)), "{late}");
    assert_eq!(victims.state(), before);
}

/// A run of VMs that never execute an instruction (`-S`), beside a guest of its own where `has_honest`.
fn run_with_stuck_vms(victims: &Victims, has_honest: bool) -> std::process::Output {
    let honest = "[domain.fine]\nbudget = \"4ms\"\nperiod = \"10ms\"\npriority = 1\nprocess = {}\n\
                  task.loop = { period = \"20ms\", cost = \"1ms\" }\n";
    let stuck = |name: &str| {
        format!(
            "[domain.{name}]\nbudget = \"2ms\"\nperiod = \"10ms\"\npriority = 2\n\
             vm = {{ accel = \"tcg\", arguments = [\"-S\"] }}\n\
             task.loop = {{ period = \"20ms\", cost = \"1ms\" }}\n"
        )
    };
    let head = "name = \"hung\"\n[machine]\nprocessors = 2\n[pool.guests]\nprocessors = [1]\n\
                policy = \"deferrable\"\n";
    let text = format!("{head}{}{}{}", if has_honest { honest } else { "" }, stuck("stuck"), stuck("too"));
    let host = victims.directory().join("hung.toml");
    std::fs::write(&host, text).expect("a host file");
    let host = host.display().to_string();
    let arguments = ["run", &host, "--boot-s", "8", "--duration", "1s", "--json"];
    victims.punctual(&arguments).stdin(Stdio::null()).output().expect("it runs")
}

#[test]
fn vms_that_do_not_boot_are_named_and_the_others_are_measured() {
    let Some(_turn) = needs() else { return };
    if !has_qemu() {
        return;
    }
    let victims = Victims::bystanders("unbooted");
    let before = victims.state();
    let output = run_with_stuck_vms(&victims, true);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(5), "{said}");
    for name in ["stuck", "too"] {
        assert!(said.contains(&format!("domain `{name}`: its guest stopped reporting")), "{said}");
    }
    let results: serde_json::Value = serde_json::from_slice(&output.stdout).expect("results");
    let jobs = |domain: usize, count: &str| results["domains"][domain]["jobs"][count].as_u64();
    assert_eq!((jobs(0, "due"), jobs(1, "due"), jobs(1, "missed")), (Some(50), Some(50), Some(50)));
    assert!(jobs(0, "completed").is_some_and(|completed| completed > 40), "{}", results["domains"][0]);
    assert_eq!(victims.vms(), 0, "VMs of the run are left");
    assert_eq!(victims.state(), before);
}

#[test]
fn where_no_guest_boots_the_run_ends_with_the_first_ones_name_and_nothing_is_left() {
    let Some(_turn) = needs() else { return };
    if !has_qemu() {
        return;
    }
    let victims = Victims::bystanders("none-booted");
    let before = victims.state();
    let output = run_with_stuck_vms(&victims, false);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("domain `stuck` did not start") && said.contains("8 s"), "{said}");
    assert_eq!(victims.vms(), 0, "VMs of the run are left");
    assert_eq!(victims.state(), before);
}

/// A QEMU with a monitor that executes nothing: its vCPU threads are there and sleep.
fn idle_qemu(socket: &Path) -> Ended {
    let qmp = format!("unix:{},server=on,wait=off", socket.display());
    Command::new("qemu-system-x86_64")
        .args(["-S", "-nodefaults", "-display", "none", "-machine", "q35", "-accel", "tcg,thread=multi"])
        .args(["-m", "32", "-smp", "1,maxcpus=2", "-name", "plugged,debug-threads=on", "-qmp", &qmp])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .map(Ended)
        .expect("QEMU starts")
}

/// A process that ends with the test, however that ends.
struct Ended(Child);

impl Ended {
    fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The vCPU threads of a process that are under enforcement: SCHED_FIFO, in a group of a run.
fn enforced(process: u32) -> usize {
    let threads = vmm::threads_of(Path::new("/proc"), process).unwrap_or_default();
    let is_enforced = |tid: i32| {
        attributes(tid).is_ok_and(|now| now.policy == 1)
            && cgroup::group_of(tid).is_ok_and(|group| group.contains("punctual-"))
    };
    vmm::vcpus(&threads).into_iter().filter(|(_, tid)| is_enforced(*tid as i32)).count()
}

#[test]
fn vcpus_that_are_plugged_in_and_vms_that_are_restarted_are_followed() {
    let Some(_turn) = needs() else { return };
    if !has_qemu() {
        return;
    }
    let victims = Victims::bystanders("plugged");
    let before = victims.state();
    let socket = victims.directory().join("qmp");
    let qemu = idle_qemu(&socket);
    wait("QEMU answers", || Qmp::connect(&socket, Duration::from_secs(1), || false).is_ok());
    let host = victims.directory().join("plugged.toml");
    let text = format!(
        "name = \"plugged\"\n[machine]\nprocessors = 2\n[pool.guests]\nprocessors = [1]\n\
         policy = \"deferrable\"\n\
         [domain.vm]\nvcpus = 2\nbudget = \"2ms\"\nperiod = \"10ms\"\npriority = 1\n\
         attach = {{ qmp = \"{}\" }}\n",
        socket.display()
    );
    std::fs::write(&host, text).expect("a host file");
    let said = std::fs::File::create(victims.directory().join("said")).expect("a file");
    let run = victims
        .punctual(&["attach", &host.display().to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(said)
        .spawn()
        .map(Ended)
        .expect("it starts");
    wait("the first vCPU is under enforcement", || enforced(qemu.id()) == 1);
    let mut monitor = Qmp::connect(&socket, Duration::from_secs(5), || false).expect("a monitor");
    // Where the machine has room for another one.
    let places = monitor.execute("query-hotpluggable-cpus").expect("a list");
    let free = places.as_array().expect("a list").iter().find(|place| place.get("qom-path").is_none());
    let free = free.expect("a free place");
    let mut cpu = free["props"].clone();
    cpu["driver"] = free["type"].clone();
    monitor.execute_with("device_add", &cpu).expect("a second vCPU is plugged in");
    drop(monitor);
    wait("the second vCPU is under enforcement", || enforced(qemu.id()) == 2);
    drop(qemu);
    let _ = std::fs::remove_file(&socket);
    let qemu = idle_qemu(&socket);
    wait("the restarted VM is under enforcement", || enforced(qemu.id()) == 1);
    signal(run.id(), "INT");
    let mut run = run;
    let status = run.0.wait().expect("it ends");
    let said = std::fs::read_to_string(victims.directory().join("said")).expect("a file");
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(said.contains("vm.1` came during the run"), "{said}");
    assert_eq!(enforced(qemu.id()), 0, "it was let go");
    drop(qemu);
    assert_eq!(victims.state(), before);
}

#[test]
fn a_run_that_hangs_is_ended_and_undone() {
    let Some(_turn) = needs() else { return };
    let victims = Victims::start("hung");
    let before = victims.state();
    let mut run = victims.attach(&["--silence-ms", "300"]);
    victims.wait_until_changed(&before);
    signal(run.id(), "STOP");
    let status = run.wait().expect("the guardian ends it");
    assert!(!status.success());
    victims.wait_until_restored();
    assert_eq!(victims.state(), before);
}

#[test]
fn without_its_guardian_a_run_ends_and_undoes_its_changes() {
    let Some(_turn) = needs() else { return };
    let victims = Victims::start("unguarded");
    let before = victims.state();
    let mut run = victims.attach(&[]);
    victims.wait_until_changed(&before);
    signal(victims.guardian_of(run.id()), "KILL");
    let status = run.wait().expect("it ends");
    assert_eq!(status.code(), Some(2), "it says that the guardian is gone");
    assert_eq!(victims.state(), before);
}

#[test]
fn after_the_death_of_run_and_guardian_restore_undoes_the_changes() {
    let Some(_turn) = needs() else { return };
    let victims = Victims::start("both");
    let before = victims.state();
    let mut run = victims.attach(&[]);
    victims.wait_until_changed(&before);
    kill_with_guardian(run.id());
    run.wait().expect("it ends");
    assert_ne!(victims.state(), before, "nobody was there to undo it");
    let restored = victims.punctual(&["restore"]).output().expect("it runs");
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    assert_eq!(victims.state(), before);
}

#[test]
fn ctrl_c_ends_a_run_and_undoes_its_changes() {
    let Some(_turn) = needs() else { return };
    let victims = Victims::start("interrupted");
    let before = victims.state();
    let mut run = victims.attach(&[]);
    victims.wait_until_changed(&before);
    signal(run.id(), "INT");
    let status = run.wait().expect("it ends");
    assert_eq!(status.code(), Some(0), "attach ends with Ctrl-C as it should");
    assert_eq!(victims.state(), before);
}

#[test]
fn every_user_can_watch_a_run() {
    let Some(_turn) = needs() else { return };
    let victims = Victims::start("watched");
    let before = victims.state();
    let mut run = victims.attach(&[]);
    victims.wait_until_changed(&before);
    let socket = format!("@punctual/top/{}", run.id());
    // Other users may not reach the directory that the program was built in.
    let directory = tempfile::tempdir().expect("a directory");
    let everybody = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(directory.path(), everybody).expect("ours");
    let program = directory.path().join("punctual");
    std::fs::copy(env!("CARGO_BIN_EXE_punctual"), &program).expect("a copy");
    let watch = || {
        let mut top = Command::new(&program);
        top.args(["top", "--once", &socket]).current_dir("/").env_remove("XDG_RUNTIME_DIR");
        top.uid(65534).gid(65534).output()
    };
    // It publishes once the tasks run.
    wait("a user without rights sees the run", || watch().is_ok_and(|top| top.status.success()));
    let said = String::from_utf8(watch().expect("it starts").stdout).expect("text");
    assert!(said.starts_with("watched, ") && said.contains("  d0.0 "), "{said}");
    signal(run.id(), "INT");
    assert_eq!(run.wait().expect("it ends").code(), Some(0));
    assert!(!watch().expect("it starts").status.success(), "the socket ends with the run");
    assert_eq!(victims.state(), before);
}

#[test]
fn a_run_may_not_take_all_processors_unless_told() {
    let Some(_turn) = needs() else { return };
    let victims = Victims::bystanders("greedy");
    let all = format!("[{}]", punctual_linux::preflight::list(&punctual_linux::preflight::online()));
    let output = victims
        .punctual(&["attach", &victims.host(), "--set", &format!("pool.guests.processors={all}")])
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("--starve"), "{said}");
}

/// Is QEMU installed? If not, prints that the test is skipped, or fails with `PUNCTUAL_NO_SKIP=1`.
fn has_qemu() -> bool {
    let found = Command::new("qemu-system-x86_64").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !found {
        let line = "skipped, tests with VMs need qemu-system-x86_64 (Debian: apt install qemu-system-x86)";
        assert!(std::env::var_os("PUNCTUAL_NO_SKIP").is_none(), "{line}");
        eprintln!("{line}");
    }
    found
}

#[test]
fn a_vm_that_is_killed_is_named_and_the_others_are_measured() {
    let Some(_turn) = needs() else { return };
    if !has_qemu() {
        return;
    }
    let victims = Victims::bystanders("qemu");
    let before = victims.state();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/misbehaving.toml");
    let mut command = victims.punctual(&["run", file, "--duration", "3s", "--json"]);
    let run =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a run");
    let vm = victims.vm_of(run.id(), "control");
    signal(vm, "KILL");
    let output = run.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(5), "{said}");
    assert!(said.contains("domain `control`: its guest stopped reporting"), "{said}");
    let results: serde_json::Value = serde_json::from_slice(&output.stdout).expect("results");
    for domain in results["domains"].as_array().expect("domains") {
        let is_control = domain["name"] == "control";
        assert_eq!(domain.get("verdict").is_some(), is_control, "{domain}");
        assert!(is_control || domain["jobs"]["due"] == 0 || domain["jobs"]["completed"] != 0, "{domain}");
    }
    assert_eq!(victims.vms(), 0, "VMs of the run are left");
    assert_eq!(victims.state(), before);
}
