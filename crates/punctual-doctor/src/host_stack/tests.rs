//! Plans for a machine that is made up: eth0 is a virtio card with two queues, eth1 an Intel card with one
//! interrupt, br0 has no hardware.

use std::fs;
use std::path::Path;

use punctual_model::file::{Overrides, parse_host_stack};

use super::*;

const HOST: &str = "
[machine]
processors = 2
[host_stack]
method = 'threaded'
[host_stack.card.eth0]
priority = 50
[host_stack.card.lan]
device = 'eth1'
processors = [0]
[host_stack.server.one]
card = 'eth0'
load = 'requests'
";

const FILES: [(&str, &str); 19] = [
    ("sys/devices/system/cpu/online", "0-1\n"),
    ("sys/kernel/realtime", "1\n"),
    ("sys/devices/pci/virtio2/vendor", "0x1af4\n"),
    ("sys/devices/pci/msi_irqs/37", "msix\n"),
    ("sys/devices/pci/msi_irqs/38", "msix\n"),
    ("sys/devices/pci/msi_irqs/39", "msix\n"),
    ("sys/class/net/eth0/threaded", "0\n"),
    ("sys/class/net/eth0/queues/rx-0/rps_cpus", "2\n"),
    ("sys/class/net/eth0/queues/rx-1/rps_cpus", "00000000,00000000\n"),
    ("sys/class/net/eth0/queues/tx-0/xps_cpus", "1\n"),
    ("sys/class/net/eth0/queues/tx-1/xps_cpus", "1\n"),
    ("sys/class/net/eth1/threaded", "0\n"),
    ("sys/class/net/eth1/device/irq", "11\n"),
    ("sys/class/net/eth1/queues/rx-0/rps_cpus", "0\n"),
    ("sys/class/net/br0/threaded", "0\n"),
    ("proc/irq/37/virtio2-config/x", ""),
    ("proc/irq/38/virtio2-input.0/x", ""),
    ("proc/irq/39/virtio2-input.1/x", ""),
    ("proc/irq/11/eth1/x", ""),
];

fn machine() -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("a directory");
    for (path, text) in FILES {
        set(root.path(), path, text);
    }
    let device = root.path().join("sys/class/net/eth0/device");
    std::os::unix::fs::symlink("../../../devices/pci/virtio2", device).expect("a link");
    root
}

fn set(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
    fs::write(path, text).expect("a file");
}

fn plan_of(root: &Path, changes: &[&str]) -> Result<Vec<CardPlan>, Error> {
    let set = changes.iter().map(|change| (*change).to_owned()).collect();
    let host = parse_host_stack(HOST.as_bytes(), "host.toml", &Overrides { set, ..Overrides::default() })
        .expect("a host");
    plan(&host, &Root::new(root))
}

fn writes(card: &CardPlan) -> Vec<String> {
    card.writes.iter().map(|write| format!("{} {}", write.path, write.value)).collect()
}

#[test]
fn interrupts_go_queue_by_queue_and_masks_follow_them() {
    let root = machine();
    let plan = plan_of(root.path(), &[]).expect("a plan");
    assert_eq!(plan[0].irqs, [37, 38, 39]);
    assert_eq!(plan[0].attributes, Some(Attributes::fifo(50)));
    assert_eq!(
        writes(&plan[0]),
        [
            "/proc/irq/37/smp_affinity_list 0",
            "/proc/irq/38/smp_affinity_list 0",
            "/proc/irq/39/smp_affinity_list 1",
            "/sys/class/net/eth0/queues/rx-0/rps_cpus 0",
            "/sys/class/net/eth0/queues/tx-1/xps_cpus 2",
        ]
    );
    assert_eq!((plan[1].device.as_str(), plan[1].attributes), ("eth1", Some(Attributes::other())));
    assert_eq!(writes(&plan[1]), ["/proc/irq/11/smp_affinity_list 0"]);
}

#[test]
fn threaded_napi_is_switched_on_and_exclusive_keeps_cards_apart() {
    let root = machine();
    let napi = plan_of(root.path(), &["host_stack.method=threaded-napi"]).expect("a plan");
    assert!(napi.iter().all(|card| card.polls_in_threads));
    assert_eq!((&napi[0].poll_processors[..], &napi[1].poll_processors[..]), (&[][..], &[0][..]));
    assert!(napi.iter().all(|card| writes(card).last().is_some_and(|last| last.ends_with("/threaded 1"))));
    let exclusive = plan_of(root.path(), &["host_stack.method=exclusive"]).expect("a plan");
    assert!(writes(&exclusive[0])[..3].iter().all(|write| write.ends_with("smp_affinity_list 1")));
    assert_eq!(writes(&exclusive[1]), ["/proc/irq/11/smp_affinity_list 0"]);
}

#[test]
fn a_kernel_with_two_softirq_locks_is_told_the_least_urgent_priority() {
    let root = machine();
    set(root.path(), "proc/sys/net/core/rtnet_prio", "0\n");
    let switch = |changes: &[&str]| {
        let plan = plan_of(root.path(), changes).expect("a plan");
        let all: Vec<String> = plan.iter().flat_map(writes).collect();
        all.into_iter().filter(|write| write.contains("rtnet_prio")).collect::<Vec<_>>()
    };
    let partitioned = ["host_stack.method=partitioned", "host_stack.rtnet_prio=48"];
    assert_eq!(switch(&partitioned), ["/proc/sys/net/core/rtnet_prio 48"]);
    assert!(switch(&["host_stack.method=threaded"]).is_empty());
    set(root.path(), "proc/sys/net/core/rtnet_prio", "48\n");
    assert!(switch(&partitioned).is_empty());
    assert_eq!(switch(&["host_stack.method=threaded"]), ["/proc/sys/net/core/rtnet_prio 0"]);
    set(root.path(), "sys/kernel/realtime", "0\n");
    let error = plan_of(root.path(), &partitioned).expect_err("no threads").to_string();
    assert!(error.contains("method `partitioned` needs them"), "{error}");
}

#[test]
fn what_the_machine_lacks_is_named_before_anything_is_changed() {
    let root = machine();
    let says = |changes: &[&str]| plan_of(root.path(), changes).expect_err("it lacks that").to_string();
    let device = says(&["host_stack.card.lan.device=eth11"]);
    assert!(device.contains("no network device `eth11`, did you mean `eth1`?"), "{device}");
    let queues = says(&["host_stack.card.lan.processors=[0, 1]"]);
    assert!(queues.contains("eth1 has 1 receive queues for processors 0-1"), "{queues}");
    let partition = says(&["host_stack.method=partitioned"]);
    assert!(partition.contains("this one has no /proc/sys/net/core/rtnet_prio"), "{partition}");
    assert!(partition.contains("kernel/README.md"), "{partition}");
    assert!(says(&["host_stack.method=vanilla"]).contains("handles interrupts in threads"));
    set(root.path(), "sys/kernel/realtime", "0\n");
    assert!(says(&[]).contains("eth0: this kernel handles its interrupts without threads"));
    set(root.path(), "proc/77/comm", "irq/38-virtio2-\n");
    set(root.path(), "proc/78/comm", "irq/11-eth1\n");
    assert!(plan_of(root.path(), &[]).is_ok());
    set(root.path(), "sys/devices/system/cpu/online", "0\n");
    assert!(says(&[]).contains("processor 1 is not online"));
}

#[test]
fn threads_belong_to_a_card_by_interrupt_or_device() {
    let root = machine();
    let plan = plan_of(root.path(), &["host_stack.method=threaded-napi"]).expect("a plan");
    let mine = |name: &str| is_thread_of(name, &plan[1]);
    assert!(mine("irq/11-eth1") && mine("napi/eth1-8193") && mine("napi/eth1-0"));
    for other in ["irq/1-eth1", "irq/111-eth1", "napi/eth11-3", "napi/eth1-vlan-3", "napi/eth1-", "irq/11"] {
        assert!(!mine(other), "{other}");
    }
}
