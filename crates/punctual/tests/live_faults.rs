//! However a live run ends, the machine is as it was: what a run attaches to is compared before and after.

mod common;

use std::process::{Command, Stdio};
use std::time::Duration;

use common::faults::{Victims, random};
use common::live::needs;

/// How many runs are killed.
fn rounds() -> u64 {
    std::env::var("PUNCTUAL_FAULTS").ok().and_then(|n| n.parse().ok()).unwrap_or(15)
}

#[test]
fn killed_with_9_at_any_moment_the_machine_is_as_before() {
    let Some(_turn) = needs() else { return };
    let victims = Victims::start("killed");
    let before = victims.state();
    let mut changed = 0;
    for round in 0..rounds() {
        let mut run = victims.attach(&[]);
        std::thread::sleep(Duration::from_micros(random(round) % 400_000));
        changed += u64::from(victims.state() != before);
        run.kill().expect("it can be killed");
        run.wait().expect("and ends");
        victims.wait_until_restored();
        assert_eq!(victims.state(), before, "round {round}");
    }
    println!("{} runs killed, {changed} of them while the machine was changed", rounds());
    assert!(changed > 0, "no run was killed while it had changed anything: nothing was tested");
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
    let guardian = victims.guardian_of(run.id());
    signal(guardian, "STOP");
    run.kill().expect("it can be killed");
    run.wait().expect("and ends");
    signal(guardian, "KILL");
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
fn a_run_may_not_take_all_processors_unless_told() {
    let Some(_turn) = needs() else { return };
    let victims = Victims::start("greedy");
    let all = format!("[{}]", punctual_live::preflight::list(&punctual_live::preflight::online()));
    let output = victims
        .punctual(&["attach", &victims.host(), "--set", &format!("pool.guests.processors={all}")])
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("--starve"), "{said}");
}

/// Is QEMU there? If not, says so in one line; with `PUNCTUAL_NO_SKIP=1` that is a failure.
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
fn a_vm_that_is_killed_ends_the_run_with_its_name() {
    let Some(_turn) = needs() else { return };
    if !has_qemu() {
        return;
    }
    let victims = Victims::start("qemu");
    let before = victims.state();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/misbehaving.toml");
    let mut command = victims.punctual(&["run", file, "--duration", "60s"]);
    let run =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a run");
    let vm = victims.vm_of(run.id(), "control");
    signal(vm, "KILL");
    let output = run.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("control"), "{said}");
    assert_eq!(victims.vms(), 0, "VMs of the run are left");
    assert_eq!(victims.state(), before);
}

fn signal(process: u32, name: &str) {
    let status = Command::new("kill").arg(format!("-{name}")).arg(process.to_string()).status();
    assert!(status.expect("kill runs").success());
}
