//! Tests of hints on made-up trees of files.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use punctual_linux::vmm::VmProcess;
use punctual_model::file::{ConfigFile, parse_service};
use punctual_model::topology::Topology;

use super::*;
use crate::discovery::Found;

const SECOND_NS: u64 = 1_000_000_000;
const DIRECTORY: &str = "sys/kernel/debug/kvm/50-12";

/// A machine with a VM of two vCPUs, the process 50.
struct Machine {
    root: tempfile::TempDir,
    registry: Registry,
    hints: Hints,
    start: Instant,
    samples: u64,
}

impl Machine {
    fn new() -> Machine {
        let root = tempfile::tempdir().expect("a directory");
        let file = ConfigFile { name: "host.toml".into(), bytes: Vec::new() };
        let config = parse_service(&[file], &Topology::flat(4)).expect("valid");
        let registry = Registry::new(&root.path().join("proc"), config, vec![0]);
        let hints = Hints::new(root.path());
        let mut machine = Machine { root, registry, hints, start: Instant::now(), samples: 0 };
        machine.set("proc/self/mounts", "none /sys/kernel/debug debugfs rw 0 0\n");
        let namespace = machine.root.path().join("proc/self/ns");
        fs::create_dir_all(&namespace).expect("made");
        symlink("pid:[4026531836]", namespace.join("pid")).expect("a link");
        machine.set("proc/50/stat", "50 (qemu) S 1 1 1 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 9 9");
        for (thread, name) in [(50, "qemu"), (51, "CPU 0/KVM"), (52, "CPU 1/KVM")] {
            machine.set(&format!("proc/50/task/{thread}/comm"), &format!("{name}\n"));
            machine.ran(thread, 1000);
        }
        let vm = VmProcess::parse(b"qemu-system-x86_64\0-name\0guest=a\0").expect("a monitor");
        machine.registry.see(Found { process: 50, vm }, machine.start);
        machine
    }

    fn set(&self, path: &str, text: &str) {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(path, text).expect("written");
    }

    /// KVM counts so much of the VM.
    fn count(&self, yields: u64, halts: u64) {
        for (counter, count) in [(Counter::YieldAttempted, yields), (Counter::Halts, halts)] {
            self.set(&format!("{DIRECTORY}/{}", counter.file()), &format!("{count}\n"));
        }
    }

    /// A thread has run for so long.
    fn ran(&self, thread: u32, ns: u64) {
        self.set(&format!("proc/50/task/{thread}/schedstat"), &format!("{ns} 0 1"));
    }

    /// A sample a second after the one before.
    fn sample(&mut self) -> Vec<Counted> {
        self.samples += 1;
        self.registry.sample(self.start + Duration::from_secs(self.samples), |_| &[]);
        self.hints.sample(&self.registry, self.samples * SECOND_NS)
    }

    fn view(&self) -> HintsView {
        self.hints.view(50, 0).expect("a VM")
    }

    fn reason(&mut self) -> Option<String> {
        self.sample();
        self.view().reason
    }
}

#[test]
fn what_kvm_counts_since_a_vm_was_seen_is_told_with_the_time_of_the_samples() {
    let mut machine = Machine::new();
    machine.count(100, 7);
    assert_eq!(machine.sample(), [], "what was before is not counted");
    machine.count(112, 9);
    machine.ran(51, 2000);
    let counted = Counted { vm: 50, from_ns: SECOND_NS, until_ns: 2 * SECOND_NS, yields: 12 };
    assert_eq!(machine.sample(), [counted]);
    let view = machine.view();
    let expected = CountsView { yields_attempted: Some(12), halts: Some(2), ..CountsView::default() };
    assert_eq!((view.reason, view.total, view.lately), (None, expected, expected));
    assert_eq!(machine.hints.view(51, 0), None);
}

#[test]
fn a_vm_that_neither_ran_nor_waited_is_not_read() {
    let mut machine = Machine::new();
    machine.count(0, 0);
    machine.sample();
    machine.count(5, 0);
    assert_eq!(machine.sample(), []);
    machine.ran(52, 1001);
    let counted = Counted { vm: 50, from_ns: SECOND_NS, until_ns: 3 * SECOND_NS, yields: 5 };
    assert_eq!(machine.sample(), [counted], "nothing is lost");
}

#[test]
fn each_reason_why_a_vm_has_no_hints_is_told_and_it_is_looked_for_again() {
    let mut machine = Machine::new();
    machine.set("proc/self/mounts", "");
    machine.set("proc/filesystems", "nodev\tdebugfs\n");
    let told = machine.reason();
    assert_eq!(told.as_deref(), Some("debugfs is not mounted (mount -t debugfs none /sys/kernel/debug)"));
    machine.set("proc/self/mounts", "none /sys/kernel/debug debugfs rw 0 0\n");
    assert_eq!(machine.reason().as_deref(), Some("KVM is not loaded"));
    machine.set("sys/kernel/debug/kvm/60-9/halt_exits", "3\n");
    assert_eq!(machine.reason().as_deref(), Some(NO_VM), "another process has that VM");
    while machine.samples < SAMPLES_AT_FIRST {
        machine.sample();
    }
    machine.count(1, 0);
    let looks = (0..2 * SAMPLES_BETWEEN).position(|_| machine.reason().is_none());
    assert!(looks.is_some_and(|looks| looks as u64 <= SAMPLES_BETWEEN), "{looks:?}");
    fs::remove_dir_all(machine.root.path().join(DIRECTORY)).expect("removed");
    machine.ran(51, 5000);
    assert_eq!(machine.reason().as_deref(), Some("KVM does not have the VM any more"));
}

#[test]
fn other_ids_of_threads_than_the_kernels_are_a_reason() {
    let mut machine = Machine::new();
    machine.count(0, 0);
    fs::remove_file(machine.root.path().join("proc/self/ns/pid")).expect("removed");
    assert!(machine.reason().is_some_and(|reason| reason.contains("PID namespace")));
}

#[test]
fn a_vm_that_is_made_again_counts_on() {
    let mut machine = Machine::new();
    machine.count(100, 0);
    machine.sample();
    machine.count(103, 0);
    machine.ran(51, 2000);
    machine.sample();
    fs::remove_dir_all(machine.root.path().join(DIRECTORY)).expect("removed");
    machine.ran(51, 3000);
    machine.sample();
    machine.count(2, 0);
    machine.sample();
    machine.count(4, 0);
    machine.ran(51, 4000);
    machine.sample();
    assert_eq!(machine.view().total.yields_attempted, Some(5));
}

#[test]
fn counts_of_more_than_an_hour_ago_are_in_the_total_alone() {
    let mut vm = Vm::default();
    let counts = |yields| [(Counter::YieldAttempted, yields)].into_iter().collect::<Counters>();
    for part in 0..30 {
        vm.total = vm.total.plus(&counts(1));
        vm.add(part * PART_NS, &counts(1));
    }
    assert_eq!(vm.parts.len(), PARTS + 1);
    let lately = |from_ns| vm.view(from_ns).lately.yields_attempted;
    assert_eq!([0, 28 * PART_NS, 29 * PART_NS].map(lately), [Some(13), Some(2), Some(1)]);
    assert_eq!(vm.view(0).total.yields_attempted, Some(30));
}
