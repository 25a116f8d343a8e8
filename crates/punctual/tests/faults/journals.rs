//! Which files of a state directory are trusted, and that nothing is left in it.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;

use punctual_enforce::journal;

use crate::common::faults::{guardian_of, kill_with_guardian, signal_if_there};
use crate::common::live::needs;
use crate::common::scopes::{Desk, Machine, Run, Scope};

/// A run that is attached to a machine.
struct Attached {
    desk: Desk,
    run: Run,
    machine: Machine,
    scope: Scope,
}

impl Attached {
    fn start(name: &str) -> Attached {
        let (desk, scope) = (Desk::make(name), Scope::make(name));
        let machine = Machine::start(scope.directory());
        let run = desk.start(&["attach", &desk.host(name, 1, &machine.domain("vm"))]);
        machine.wait_until_enforced();
        Attached { desk, run, machine, scope }
    }

    /// Kills it with its guardian.
    fn kill_both(&mut self) {
        kill_with_guardian(self.run.id());
        self.run.wait();
    }

    fn journal(&self) -> PathBuf {
        self.desk.state().join(format!("{}.journal", self.run.id()))
    }

    /// Runs `punctual restore`: its exit status and all that it says.
    fn restore(&self) -> (i32, String) {
        restore(&self.desk)
    }

    fn assert_is_restored(&self) {
        assert_eq!(self.machine.residue(&self.scope.groups()[0]), None);
        assert_eq!(self.desk.left(), Vec::<String>::new());
    }
}

fn restore(desk: &Desk) -> (i32, String) {
    let output = desk.punctual(&["restore"]).output().expect("it runs");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code().expect("it ends"), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn no_end_of_a_run_leaves_a_socket_or_a_journal() {
    let Some(_turn) = needs() else { return };
    for end in ["INT", "TERM", "HUP", "KILL"] {
        let mut attached = Attached::start("left");
        // The socket is there when the tasks run.
        let socket = attached.journal().with_extension("socket");
        crate::common::faults::wait("its socket is there", || socket.exists());
        attached.run.signal(end);
        attached.run.wait();
        attached.desk.wait_until_restored();
        attached.assert_is_restored();
    }
    let mut attached = Attached::start("left");
    attached.kill_both();
    assert_eq!(attached.restore().0, 0);
    attached.assert_is_restored();
}

#[test]
fn sigterm_to_the_run_and_its_guardian_at_once_ends_the_run_cleanly() {
    let Some(_turn) = needs() else { return };
    for first in ["guardian", "run"] {
        // The one may have ended, and the other with it, before the second signal comes.
        let is_at_once = (0..5).any(|_| {
            let mut attached = Attached::start("term");
            let (run, guardian) = (attached.run.id(), guardian_of(attached.run.id()).expect("it has one"));
            let order = if first == "run" { [run, guardian] } else { [guardian, run] };
            let were_there = order.map(|process| signal_if_there(process, "TERM"));
            assert_eq!(attached.run.wait(), 0, "{}", attached.run.said());
            attached.assert_is_restored();
            were_there == [true; 2]
        });
        assert!(is_at_once, "{first} first: the other was gone five times");
    }
}

#[test]
fn restore_right_after_a_kill_waits_for_the_guardian() {
    let Some(_turn) = needs() else { return };
    for _ in 0..5 {
        let mut attached = Attached::start("waits");
        attached.run.signal("KILL");
        attached.run.wait();
        let (status, said) = attached.restore();
        assert_eq!(status, 0, "{said}");
        attached.assert_is_restored();
    }
}

#[test]
fn a_line_that_cannot_be_read_is_named_and_everything_else_is_undone() {
    let Some(_turn) = needs() else { return };
    let mut attached = Attached::start("unreadable");
    attached.kill_both();
    let text = std::fs::read_to_string(attached.journal()).expect("ours");
    let damaged = text.replacen('\n', "\n{\"thread\":\u{1b}[31m\n\u{0}\u{0}\n", 1);
    std::fs::write(attached.journal(), damaged).expect("ours");
    let (status, said) = attached.restore();
    assert_eq!(status, 7, "{said}");
    assert!(said.contains("line 2") && said.contains("line 3") && !said.contains('\u{1b}'), "{said:?}");
    attached.assert_is_restored();
    assert_eq!(restore(&attached.desk), (0, "nothing to put back\n".into()));
}

#[test]
fn planted_journals_are_named_and_write_nothing() {
    let Some(_turn) = needs() else { return };
    let desk = Desk::make("planted");
    let target = desk.state().parent().expect("a directory").join("file-of-root");
    let change = |path: &str| {
        format!("{{\"file\":{{\"path\":\"{path}\",\"before\":\"planted\",\"during\":\"0\"}}}}\n")
    };
    let journal = desk.state().join("4000000.journal");
    let [file, pattern] = [&target.display().to_string(), "/proc/irq/../sys/kernel/core_pattern"].map(change);
    let before = std::fs::read_to_string("/proc/sys/kernel/core_pattern").expect("readable");
    let plant = |mode: u32, owner: u32| {
        std::fs::write(&target, "root's").expect("a file");
        let _ = std::fs::remove_file(&journal);
        std::fs::write(&journal, format!("{file}{pattern}")).expect("a file");
        std::fs::set_permissions(&journal, std::fs::Permissions::from_mode(mode)).expect("ours");
        chown(&journal, Some(owner), None).expect("ours");
    };
    let assert_is_refused = |what: &str, why: &str, expected: i32| {
        let (status, said) = restore(&desk);
        assert_eq!(status, expected, "{what}: {said}");
        assert!(said.contains(why), "{what}: {said}");
        assert_eq!(std::fs::read_to_string(&target).expect("there"), "root's", "{what}");
        assert_eq!(
            std::fs::read_to_string("/proc/sys/kernel/core_pattern").expect("there"),
            before,
            "{what}"
        );
    };
    plant(0o600, 65_534);
    assert_is_refused("another user's", "belongs to user 65534", 7);
    plant(0o666, 0);
    assert_is_refused("one that all can write", "others can write it", 7);
    // Even a trusted journal restores only files that runs change.
    plant(0o600, 0);
    assert_is_refused("one with other files", "no run changes this file", 7);
    std::fs::remove_file(&journal).expect("there");
    std::os::unix::fs::symlink(&target, &journal).expect("made");
    assert_is_refused("a link", "not trusted", 7);
    std::fs::remove_file(&journal).expect("there");
    plant(0o600, 0);
    std::fs::set_permissions(desk.state(), std::fs::Permissions::from_mode(0o777)).expect("ours");
    assert_is_refused("a directory that all can write", "others can write it", 2);
    let scope = Scope::make("planted");
    let machine = Machine::start(scope.directory());
    let mut run = desk.start(&["attach", &desk.host("planted", 1, &machine.domain("vm"))]);
    assert_eq!(run.wait(), 2, "{}", run.said());
    assert!(run.said().contains("others can write it"), "{}", run.said());
    std::fs::remove_file(&journal).expect("there");
}

#[test]
fn a_journal_of_an_earlier_boot_is_reported_and_removed() {
    let Some(_turn) = needs() else { return };
    let desk = Desk::make("boot");
    let line = "{\"run\":{\"enforcer\":{\"id\":1,\"start_ticks\":1},\"name\":\"old\",\"boot\":\"0\"}}\n";
    std::fs::write(desk.state().join("1.journal"), line).expect("a file");
    let (status, said) = restore(&desk);
    assert_eq!(status, 0, "{said}");
    assert!(said.contains("before this machine was started"), "{said}");
    assert_eq!(desk.left(), Vec::<String>::new());
}

#[test]
fn on_a_full_disk_a_change_that_is_not_written_down_is_not_made_and_all_others_are_undone() {
    let Some(_turn) = needs() else { return };
    let desk = Desk::make("full");
    let mount =
        |args: &[&str]| std::process::Command::new("mount").args(args).status().is_ok_and(|s| s.success());
    let state = desk.state().display().to_string();
    // One page: the journal of a machine with some children is longer.
    if !mount(&["-t", "tmpfs", "-o", "size=4k,mode=700", "none", &state]) {
        eprintln!("skipped: this test mounts a file system");
        return;
    }
    let scope = Scope::make("full");
    let machines: Vec<Machine> = (0..20).map(|_| Machine::start(scope.directory())).collect();
    let domains: String = machines.iter().enumerate().map(|(n, m)| m.domain(&format!("vm{n}"))).collect();
    let mut run = desk.start(&["attach", &desk.host("full", 1, &domains)]);
    let status = run.wait();
    let left = desk.left();
    let unmounted = std::process::Command::new("umount").arg(&state).status();
    assert!(unmounted.is_ok_and(|status| status.success()));
    assert_eq!(status, 2, "{}", run.said());
    assert!(run.said().contains("No space left"), "{}", run.said());
    assert_eq!(left, Vec::<String>::new());
    for machine in &machines {
        assert_eq!(machine.residue(&scope.groups()[0]), None);
    }
}

#[test]
fn a_run_on_this_machine_names_its_host_in_its_journal() {
    let Some(_turn) = needs() else { return };
    let mut attached = Attached::start("named");
    let contents = journal::read(&attached.journal()).expect("ours");
    assert_eq!(contents.run().map(|run| run.name), Some("named"));
    let mode = std::fs::metadata(attached.journal()).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    attached.run.signal("INT");
    assert_eq!(attached.run.wait(), 0);
    attached.assert_is_restored();
}

#[test]
fn a_guardian_whose_run_was_killed_before_it_was_ready_leaves_no_journal() {
    let Some(_turn) = needs() else { return };
    let desk = Desk::make("early");
    std::fs::create_dir_all(desk.state()).expect("a state directory");
    std::fs::set_permissions(desk.state(), PermissionsExt::from_mode(0o700)).expect("ours");
    let journal = desk.state().join("1.journal").display().to_string();
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut guardian = desk.punctual(&["guardian", "--journal", &journal, "--limit-ms", "1000"]);
    let output = guardian.args(["--processors", "0"]).stdout(writer).output().expect("it runs");
    assert_eq!(desk.left(), Vec::<String>::new(), "{}", String::from_utf8_lossy(&output.stderr));
}
