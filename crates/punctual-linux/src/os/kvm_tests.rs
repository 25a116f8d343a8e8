//! Tests of counters on made-up trees of files.

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

const MOUNTS: &str = "sysfs /sys sysfs rw 0 0\nnone /sys/kernel/debug debugfs rw 0 0\n";

/// A machine whose KVM runs a VM that thread 70 made, with the vCPU threads 71 and 72.
fn machine() -> TempDir {
    let root = tempfile::tempdir().expect("a directory");
    set(&root, "proc/self/mounts", MOUNTS);
    set(&root, "proc/filesystems", "nodev\tsysfs\nnodev\tdebugfs\n");
    set(&root, "sys/kernel/debug/kvm/exits", "900\n");
    set(&root, "sys/kernel/debug/kvm/70-12/vcpu0/pid", "71\n");
    for (counter, value) in Counter::ALL.iter().zip(1..) {
        vm(&root, counter.file(), format!("{value}\n"));
    }
    root
}

fn set(root: &TempDir, path: &str, text: impl AsRef<[u8]>) {
    let path = root.path().join(path);
    fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
    fs::write(path, text).expect("written");
}

fn vm(root: &TempDir, file: &str, text: impl AsRef<[u8]>) {
    set(root, &format!("sys/kernel/debug/kvm/70-12/{file}"), text);
}

/// Reads the counters of the only VM.
fn read(root: &TempDir) -> Result<Counters, Unreadable> {
    let vms = vms(root.path())?;
    assert_eq!(vms.len(), 1);
    vms[0].open()?.read()
}

fn error(root: &TempDir) -> String {
    read(root).expect_err("no counters").to_string()
}

#[test]
fn counters_of_a_vm_are_read_by_name_and_those_that_the_kernel_lacks_are_missing() {
    let root = machine();
    let counters = read(&root).expect("counters");
    assert_eq!(counters[Counter::YieldAttempted], Some(1));
    assert_eq!(counters[Counter::HaltWaitNs], Some(8));
    fs::remove_file(root.path().join("sys/kernel/debug/kvm/70-12/preemption_other")).expect("removed");
    let counters = read(&root).expect("counters");
    assert_eq!(counters[Counter::PreemptionOther], None);
    assert_eq!(counters[Counter::Halts], Some(5));
}

#[test]
fn a_vm_is_known_by_its_first_vcpu_else_by_the_thread_that_made_it() {
    let root = machine();
    let is_of = |threads: &[u32]| {
        let vms = vms(root.path()).expect("a list");
        vms[0].is_of(&threads.iter().copied().collect())
    };
    assert!(is_of(&[71, 72]), "the thread that made it may have ended");
    assert!(!is_of(&[70]), "and another one may have its number");
    for unknown in ["0\n", ""] {
        set(&root, "sys/kernel/debug/kvm/70-12/vcpu0/pid", unknown);
        assert!(is_of(&[70]) && !is_of(&[71]));
    }
    fs::remove_dir_all(root.path().join("sys/kernel/debug/kvm/70-12/vcpu0")).expect("removed");
    assert!(is_of(&[70]) && !is_of(&[]));
}

#[test]
fn what_was_counted_since_survives_a_counter_that_somebody_cleared() {
    let counters = |yields, halts| {
        let halts: Option<u64> = halts;
        let halts = halts.map(|halts| (Counter::Halts, halts));
        [(Counter::YieldAttempted, yields)].into_iter().chain(halts).collect::<Counters>()
    };
    let since = counters(4, Some(9)).since(&counters(7, Some(2)));
    assert_eq!(since, counters(4, Some(7)));
    assert_eq!(since.plus(&counters(1, None)), counters(5, Some(7)));
    assert_eq!(counters(4, None).since(&counters(1, Some(2))), counters(3, Some(2)));
}

#[test]
fn each_reason_why_nothing_is_read_is_named() {
    let root = machine();
    let directory = root.path().join("sys/kernel/debug/kvm");
    let open = vms(root.path()).expect("a list")[0].open().expect("a VM");
    vm(&root, "halt_exits", "many\n");
    assert_eq!(error(&root), "halt_exits holds \"many\\n\", expected a number");
    fs::remove_dir_all(directory.join("70-12")).expect("removed");
    assert!(matches!(open.read(), Err(Unreadable::Gone)));
    set(&root, "sys/kernel/debug/kvm/70-12/exits", "1\n");
    assert_eq!(error(&root), "this kernel's KVM has none of the counters");
    fs::remove_dir_all(&directory).expect("removed");
    assert_eq!(error(&root), "KVM is not loaded");
    set(&root, "proc/self/mounts", "sysfs /sys sysfs rw 0 0\n");
    assert_eq!(error(&root), "debugfs is not mounted (mount -t debugfs none /sys/kernel/debug)");
    set(&root, "proc/filesystems", "nodev\tsysfs\n");
    assert_eq!(error(&root), "this kernel has no debugfs");
}

#[test]
fn debugfs_is_found_where_it_is_mounted() {
    assert_eq!(parse_mount("d /d debugfs rw 0 0\n"), Some("/d"));
    assert_eq!(parse_mount("debugfs /x tmpfs rw 0 0\n/y debugfs\n"), None);
    let root = tempfile::tempdir().expect("a directory");
    set(&root, "proc/self/mounts", "d /d debugfs rw 0 0\n");
    set(&root, "d/kvm/70-12/halt_exits", "3\n");
    assert_eq!(read(&root).expect("counters")[Counter::Halts], Some(3));
}

proptest! {
    // Each case makes a dozen files.
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn any_content_of_a_counter_is_its_number_or_an_error(text in prop::collection::vec(any::<u8>(), 0..80)) {
        let root = machine();
        vm(&root, "halt_exits", &text);
        set(&root, "sys/kernel/debug/kvm/70-12/vcpu0/pid", &text);
        match read(&root) {
            Ok(counters) => {
                let number = std::str::from_utf8(&text).expect("a text").trim_ascii().parse().ok();
                prop_assert_eq!(counters[Counter::Halts], number);
            }
            Err(error) => prop_assert!(error.to_string().starts_with("halt_exits holds ")),
        }
    }
}

proptest! {
    #[test]
    fn any_name_of_a_directory_is_that_of_a_vm_or_none(name in "[^/\0]{1,40}", mounts in any::<String>()) {
        let begin = name.split_once('-').map(|(begin, _)| begin.parse::<u32>());
        let maker = parse_maker(&name);
        prop_assert!(maker.is_none() || begin == maker.map(Ok));
        parse_mount(&mounts);
    }

    #[test]
    fn any_number_of_64_bits_is_read(number in any::<u64>()) {
        prop_assert_eq!(parse_counter(format!("{number}\n").as_bytes()), Some(number));
    }
}
