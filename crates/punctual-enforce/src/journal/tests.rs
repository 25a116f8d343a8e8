//! The journal is read whatever it says, and what it says is undone only where a run can have written it.

use std::io::Write;
use std::path::PathBuf;

use proptest::prelude::*;

use super::*;
use punctual_linux::os::sched::Attributes;

/// One change of each kind.
fn changes() -> Vec<Change> {
    let thread = Identity { id: 4_000_000, start_ticks: 7 };
    vec![
        Change::Run { enforcer: thread, name: "host \"1\"\n".into(), boot: boot_id() },
        Change::Claim { resource: Resource::Processor(1) },
        Change::Claim { resource: Resource::Process(thread) },
        Change::Thread {
            thread,
            process: 4_000_000,
            attributes: Attributes::other(),
            affinity: vec![0, 1],
            group: "/a".into(),
        },
        Change::Unit { thread, group: "/a/punctual-4000000-attached/unit0".into() },
        Change::Helpers { process: 4_000_000 },
        Change::Released { process: 3_999_999 },
        Change::Given { attributes: vec![Attributes::fifo(70)], affinities: vec![vec![1], vec![0, 1]] },
        Change::KernelThread { thread, attributes: Attributes::fifo(3), affinity: vec![0] },
        Change::File { path: "/proc/irq/1/smp_affinity_list".into(), before: "0".into(), during: "1".into() },
        Change::Group { directory: "/sys/fs/cgroup/punctual-4000000".into() },
        Change::AttachedGroup {
            directory: "/sys/fs/cgroup/a/punctual-4000000-attached".into(),
            home: "/a".into(),
        },
        Change::Child { process: thread, name: "sh".into() },
    ]
}

fn lines(changes: &[Change]) -> Vec<Vec<u8>> {
    changes.iter().map(|change| serde_json::to_vec(change).expect("a line")).collect()
}

/// A journal in a directory of its own.
fn journal(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("4000000.journal");
    let mut file = directory::create_file(&path).expect("made");
    file.write_all(bytes).expect("written");
    (directory, path)
}

#[test]
fn every_change_is_read_as_it_was_written() {
    let mut bytes = lines(&changes()).join(&b'\n');
    bytes.push(b'\n');
    assert_eq!(Contents::parse(&bytes), Contents { changes: changes(), unreadable: Vec::new() });
    assert_eq!(Contents::parse(b""), Contents::default());
}

#[test]
fn half_a_last_line_is_no_change() {
    let bytes = lines(&changes()).join(&b'\n');
    let contents = Contents::parse(&bytes);
    assert_eq!(contents.changes, changes()[..12]);
    assert_eq!(contents.unreadable, Vec::<String>::new());
}

#[test]
fn a_write_that_fails_leaves_no_half_of_a_line() {
    let (_directory, path) = journal(b"");
    let mut journal = Journal::begin(&path, "host").expect("begun");
    let length = journal.length;
    // As a full disk: nothing can be written through this descriptor, and half a line is there already.
    journal.file.write_all(b"{\"run\":").expect("written");
    let readable = std::fs::OpenOptions::new().read(true).open(&path).expect("there");
    let writable = std::mem::replace(&mut journal.file, readable);
    journal.record(&changes()[1]).expect_err("it is not open for that");
    journal.file = writable;
    journal.record(&changes()[1]).expect("written");
    journal.record(&changes()[2]).expect("written");
    let contents = read(&path).expect("ours");
    assert_eq!((contents.changes.len(), contents.unreadable.len()), (3, 0), "{length} bytes stay");
}

#[test]
fn a_journal_of_an_earlier_boot_is_removed_and_not_undone() {
    let earlier = Change::Run {
        enforcer: Identity::of(std::process::id() as i32).expect("this process"),
        name: "host".into(),
        boot: "an earlier one".into(),
    };
    let this = Identity::of(std::process::id() as i32).expect("this process");
    let all = [earlier, Change::Child { process: this, name: "this very test".into() }];
    let mut bytes = lines(&all).join(&b'\n');
    bytes.push(b'\n');
    let (_directory, path) = journal(&bytes);
    let held = HeldJournal::take(&path, Duration::ZERO).expect("ours").expect("there");
    let restored = held.restore().expect("readable");
    assert_eq!(restored, Restored { of_earlier_boot: true, ..Restored::default() });
    assert!(!path.exists());
}

#[test]
fn a_lock_is_waited_for_and_a_journal_that_is_gone_then_was_undone() {
    let (_directory, path) = journal(b"");
    let held = HeldJournal::take(&path, Duration::ZERO).expect("ours").expect("there");
    let error = HeldJournal::take(&path, Duration::from_millis(20)).expect_err("it is held");
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    let guardian = std::thread::spawn({
        let path = path.clone();
        move || {
            std::thread::sleep(Duration::from_millis(50));
            std::fs::remove_file(path).expect("there");
            drop(held);
        }
    });
    let taken = HeldJournal::take(&path, Duration::from_secs(10)).expect("ours");
    assert!(taken.is_none(), "the guardian has undone it");
    guardian.join().expect("it ends");
    assert!(restore(&path).expect("nothing is there").is_none());
}

#[test]
fn a_run_that_began_while_its_lock_was_waited_for_keeps_its_journal() {
    let own = Identity::of(std::process::id() as i32).expect("it lives");
    let gone = Identity { id: 4_000_000, start_ticks: 7 };
    for (enforcer, is_kept) in [(own, true), (gone, false)] {
        let run = Change::Run { enforcer, name: "host".into(), boot: boot_id() };
        let (_directory, path) = journal(b"");
        let held = HeldJournal::take(&path, Duration::ZERO).expect("ours").expect("there");
        let other = std::thread::spawn({
            let path = path.clone();
            move || restore_abandoned(&path, |_| ()).expect("readable")
        });
        std::thread::sleep(Duration::from_millis(30));
        let mut bytes = lines(&[run]).remove(0);
        bytes.push(b'\n');
        std::fs::write(&path, bytes).expect("written");
        // The guardian is killed.
        drop(held);
        let undone = other.join().expect("it ends");
        assert_eq!((undone.is_none(), path.exists()), (is_kept, is_kept));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
        let contents = Contents::parse(&bytes);
        let ends = bytes.iter().filter(|&&byte| byte == b'\n').count();
        prop_assert!(contents.changes.len() + contents.unreadable.len() <= ends);
    }

    #[test]
    fn lines_that_cannot_be_read_are_named_and_hide_no_others(
        garbage in prop::collection::vec((0..11_usize, "[^\n]{0,200}"), 1..20),
    ) {
        let mut all = lines(&changes());
        for (at, line) in &garbage {
            all.insert(*at, format!("{{ {line}").into_bytes());
        }
        let mut bytes = all.join(&b'\n');
        bytes.push(b'\n');
        let contents = Contents::parse(&bytes);
        prop_assert_eq!(contents.changes, changes());
        prop_assert_eq!(contents.unreadable.len(), garbage.len());
        for line in &contents.unreadable {
            prop_assert!(line.starts_with("line ") && !line.contains(char::is_control), "{:?}", line);
        }
    }

    #[test]
    fn a_journal_cut_or_changed_anywhere_is_read(
        at in 0..2_000_usize,
        byte in any::<u8>(),
        cut in any::<bool>(),
    ) {
        let mut bytes = lines(&changes()).join(&b'\n');
        bytes.push(b'\n');
        let at = at % bytes.len();
        if cut {
            bytes.truncate(at);
        } else {
            bytes[at] = byte;
        }
        let contents = Contents::parse(&bytes);
        // One byte spoils one line, or two by taking their end away or making one.
        prop_assert!(cut || contents.changes.len() >= changes().len() - 2);
    }

    #[test]
    fn a_parameter_outside_the_known_directories_is_never_written(path in "(/[a-z.]{1,8}){1,5}") {
        let known = ["/proc/irq", "/proc/sys/kernel/", "/sys/"];
        if paths::check_parameter(Path::new(&path)).is_ok() {
            prop_assert!(known.iter().any(|start| path.starts_with(start)) && !path.contains("/../"));
        }
    }
}
