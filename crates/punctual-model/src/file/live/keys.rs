//! Keys of what a domain is on a real host.

use punctual_sched::Duration;

use crate::file::key::{KeyInfo, Kind, OptionTables, TableInfo, key};
use crate::file::limits::PID_MAX;

const PID: Kind = Kind::Count { min: 1, max: PID_MAX };

const fn table(title: &'static str, keys: &'static [KeyInfo]) -> TableInfo {
    TableInfo { title, keys, shared: &[], options: OptionTables::None }
}

/// Keys of a domain that is not nested.
pub(crate) static LIVE_KEYS: [KeyInfo; 6] = [
    key("vm", Kind::Table(&VM), None, "Live: a VM that the run starts under QEMU."),
    key("process", Kind::Table(&PROCESS), None, "Live: a process that the run starts, instead of `vm`."),
    key("attach", Kind::Table(&ATTACH), None, "Live: a VM or process that already runs, instead of `vm`."),
    key(
        "helpers",
        Kind::Table(&HELPERS),
        None,
        "Live: where the VMM's other threads run (QEMU's main loop, I/O threads, vhost workers).",
    ),
    key(
        "threads_max",
        PID,
        Some("no limit"),
        "Live: the most threads that the VM or process may have at once, over all its processes.",
    ),
    key(
        "sockets",
        Kind::Table(&SOCKETS),
        None,
        "Live: sockets of this host that `punctual sockets` gives the guest.",
    ),
];

static VM: TableInfo = table(
    "a domain's vm",
    &[
        key("kernel", Kind::Line, Some("the project's image"), "Path of the guest's kernel."),
        key("initrd", Kind::Line, Some("the project's image"), "Path of the initial file system."),
        key("memory_mib", Kind::Count { min: 16, max: 1 << 20 }, Some("128"), "The guest's memory in MiB."),
        key("disk", Kind::Texts, None, "Paths of disk images, in the guest's order."),
        key(
            "network",
            Kind::VmNetwork,
            Some("none"),
            "Its network card: none, one on QEMU's user-mode network, or one on a tap interface of the host.",
        ),
        key(
            "accel",
            Kind::Word(&["auto", "kvm", "tcg"]),
            Some("auto"),
            "What runs the guest: KVM, or QEMU's translator TCG; `auto` uses KVM if it runs an ordinary \
             64-bit kernel.",
        ),
        key("arguments", Kind::Texts, None, "More arguments of QEMU, after those that the run gives."),
        key("append", Kind::Line, None, "Appended to the kernel's command line."),
    ],
);

static PROCESS: TableInfo = table(
    "a domain's process",
    &[
        key(
            "command",
            Kind::Texts,
            Some("the project's guest program with the domain's tasks"),
            "The program, a path or a name in PATH, and its arguments.",
        ),
        key("environment", Kind::Environment, None, "Environment variables, added to those of the run."),
        key("directory", Kind::Line, Some("that of the run"), "Its working directory."),
    ],
);

static ATTACH: TableInfo = table(
    "a domain's attach",
    &[
        key("qmp", Kind::Line, None, "QEMU, by the path of its QMP socket (a Unix socket)."),
        key("libvirt", Kind::Line, None, "The QEMU of the libvirt domain of this name."),
        key("process", PID, None, "A QEMU process, by its id."),
        key("firecracker", PID, None, "A Firecracker process, by its id."),
        key("cloud_hypervisor", PID, None, "A Cloud Hypervisor process, by its id."),
        key("threads", Kind::Threads, None, "Threads by their ids, one per vCPU, in the vCPUs' order."),
    ],
);

static SOCKETS: TableInfo = table(
    "a domain's sockets",
    &[
        key(
            "allow",
            Kind::Texts,
            Some("nothing"),
            "What the guest may bind and connect to, for example `bind udp 10.0.0.5:5060` or \
             `connect tcp 10.0.0.0/8:80-89`.",
        ),
        key("sockets_max", Kind::Count { min: 1, max: 4096 }, Some("1024"), "Sockets at once."),
        key(
            "calls_per_second",
            Kind::Count { min: 1, max: 100_000_000 },
            Some("no limit"),
            "Most calls made for the guest per second; further calls wait.",
        ),
        key(
            "buffer_kib",
            Kind::Count { min: 4, max: 65_536 },
            Some("what the kernel gives"),
            "Buffer of each socket in KiB, per direction.",
        ),
        key(
            "priority",
            Kind::Count { min: 1, max: 98 },
            Some("none: the fair class"),
            "Priority under SCHED_FIFO of the thread that makes the calls.",
        ),
        key("processor", Kind::Count { min: 0, max: 4095 }, Some("any"), "The processor that it stays on."),
        key(
            "poll",
            Kind::Duration { min: Duration::ZERO },
            Some("0us"),
            "How long it polls for the next call, after an event and after each call but one that sends.",
        ),
        key(
            "netns",
            Kind::Line,
            Some("that of the program"),
            "Network namespace of the sockets, by its name in `/run/netns` (`ip netns add`).",
        ),
        key(
            "idle_poll",
            Kind::Duration { min: Duration::ZERO },
            Some("0us"),
            "How long an idle processor of the project's guest polls for messages before it halts.",
        ),
        key(
            "commands",
            Kind::Texts,
            Some("all"),
            "Programs of the project's guest that use the host's sockets, by name.",
        ),
    ],
);

static HELPERS: TableInfo = table(
    "a domain's helpers",
    &[
        key(
            "processors",
            Kind::Numbers,
            Some("those that no pool has"),
            "Processors of the machine, in a pool or not.",
        ),
        HELPER_POLICY,
        HELPER_PRIORITY,
        HELPER_NICE,
    ],
);

/// How Linux schedules helper threads.
pub(in crate::file) const HELPER_POLICY: KeyInfo =
    key("policy", Kind::Word(&["other", "fifo"]), Some("other"), "SCHED_OTHER or SCHED_FIFO.");
pub(in crate::file) const HELPER_PRIORITY: KeyInfo = key(
    "priority",
    Kind::Count { min: 1, max: 99 },
    Some("40"),
    "Policy `fifo`: real-time priority as Linux counts it; 99 is the most urgent.",
);
pub(in crate::file) const HELPER_NICE: KeyInfo = key(
    "nice",
    Kind::Integer { min: -20, max: 19 },
    Some("0"),
    "Policy `other`: niceness; -20 is the most favoured.",
);
