//! Keys of the service's configuration, and keys that only later versions can carry out.

use crate::file::host::keys::{BUDGET_OF, COUNT_32, POOL_PROCESSORS, SLOTS};
use crate::file::key::{KeyInfo, Kind, OptionTables, SOME_TIME, TableInfo, key, required};
use crate::file::limits::PROCESSORS_MAX;
use crate::file::live::keys::{HELPER_NICE, HELPER_POLICY, HELPER_PRIORITY};

/// The modes of the service.
pub(crate) const OBSERVE: &str = "observe";
pub(crate) const ENFORCE: &str = "enforce";

/// What the service does with VMs that cannot be guaranteed.
pub(crate) const WARN: &str = "warn";
pub(crate) const STRICT: &str = "strict";

/// Where the service knows from what VMs wait for.
pub(crate) const BPF: &str = "bpf";
pub(crate) const TRACEPOINTS: &str = "tracepoints";
pub(crate) const SWITCHES: &str = "switches";
pub(crate) const SAMPLES: &str = "samples";
pub(crate) const OFF: &str = "off";

/// The document itself: all files together.
pub(crate) static SERVICE: TableInfo = TableInfo {
    title: "the service's configuration",
    keys: &[
        key(
            "mode",
            Kind::Word(&[OBSERVE, ENFORCE]),
            Some(OBSERVE),
            "What the service does with VMs and units. `observe` changes nothing; `enforce` keeps those of \
             each class in its pool under enforcement.",
        ),
        key(
            "admission",
            Kind::Word(&[WARN, STRICT]),
            Some(WARN),
            "What happens with a VM beside which not all budgets are guaranteed. `warn` holds it and warns; \
             `strict` leaves it as it is.",
        ),
        key(
            "waits",
            Kind::Word(&[BPF, TRACEPOINTS, SWITCHES, SAMPLES, OFF]),
            Some(BPF),
            "Where the service knows from what VMs wait for: programs in the kernel that add up (BPF), the \
             kernel's tracepoints, its records of switches, or samples of its counters. What the machine \
             refuses is replaced by the next one. `off`: nothing is read.",
        ),
        key("machine", Kind::Table(&MACHINE), None, "The physical machine."),
        key("pool", Kind::Named(&POOL), None, "Processors scheduled together by one policy, for classes."),
        SLOTS,
        key("class", Kind::Named(&CLASS), None, "A kind of VMs, or of units."),
    ],
    shared: &[],
    options: OptionTables::None,
};

static MACHINE: TableInfo = TableInfo {
    title: "[machine]",
    keys: &[key(
        "processors",
        Kind::Count { min: 1, max: PROCESSORS_MAX },
        Some("those of this machine"),
        "Number of physical processors; they are numbered from 0. Pools choose among these.",
    )],
    shared: &[],
    options: OptionTables::None,
};

static POOL: TableInfo = TableInfo {
    title: "[pool.NAME]",
    keys: &[
        POOL_PROCESSORS,
        required(
            "policy",
            Kind::Policy,
            "The policy that checks the parameters of the pool's classes. Its options go into a table of the \
             policy's name.",
        ),
    ],
    shared: &[],
    options: OptionTables::Policies,
};

static CLASS: TableInfo = TableInfo {
    title: "[class.NAME]",
    keys: &[
        required(
            "match",
            Kind::OneOfEach(&MATCH),
            "Which VMs and units belong to the class: those that one of these fits. If several classes fit, \
             the first one in the order of the files counts.",
        ),
        key("pool", Kind::NameOf("pool"), Some("the only pool"), "The pool of the VMs' vCPUs, and of units."),
        key("budget", SOME_TIME, None, "Processor time per period of each vCPU, or of a unit."),
        BUDGET_OF,
        key("period", Kind::Period, None, "Replenishment period."),
        key("priority", COUNT_32, None, "Fixed priority; a smaller number is more urgent."),
        key(
            "best_effort",
            Kind::Flag,
            Some("false"),
            "The vCPUs and units have no budget and come below all others of their pool.",
        ),
        key(
            "near",
            Kind::NameOf("slot"),
            Some("all of the pool"),
            "Only processors of the pool that share the slot's last-level cache; if none does, those of its \
             NUMA node.",
        ),
        key(
            "slot",
            Kind::Line,
            None,
            "The class publishes the processors of its vCPUs and units as a slot of this name, for `near`.",
        ),
        key(
            "helpers",
            PLACE,
            Some(HOST),
            "What the threads of held VMs get that are no vCPUs. None of them runs on a pool's processor.",
        ),
        key(
            "interrupts",
            Kind::WordOrTable(&[HOST, NEAR], &INTERRUPTS),
            Some("where `helpers` are"),
            "Where the interrupts go that the class matches. None of them goes to a pool's processor.",
        ),
        key("threads", Kind::Table(&THREADS), None, "The same for single roles, instead of `helpers`."),
    ],
    shared: &[],
    options: OptionTables::None,
};

pub(crate) const HOST: &str = "host";
pub(crate) const NEAR: &str = "near";

/// Where helper threads run, or a table of that and of how they are scheduled.
const PLACE: Kind = Kind::WordOrTable(&[HOST, NEAR], &HELPERS);

const fn role(name: &'static str, help: &'static str) -> KeyInfo {
    key(name, PLACE, Some("as `helpers`"), help)
}

static INTERRUPTS: TableInfo = TableInfo {
    title: "`interrupts` of a class",
    keys: &[WHERE, SLOT],
    shared: &[],
    options: OptionTables::None,
};

const WHERE: KeyInfo = key(
    "place",
    Kind::Word(&[HOST, NEAR]),
    Some(HOST),
    "`host`: all processors that no pool has. `near`: those of them that share the last-level cache of the \
     class's pool; if none does, those of its NUMA node.",
);

const SLOT: KeyInfo = key(
    "slot",
    Kind::NameOf("slot"),
    None,
    "The processors of this slot that no pool has, instead of `place`.",
);

static HELPERS: TableInfo = TableInfo {
    title: "`helpers` of a class",
    keys: &[WHERE, SLOT, HELPER_POLICY, HELPER_PRIORITY, HELPER_NICE],
    shared: &[],
    options: OptionTables::None,
};

static THREADS: TableInfo = TableInfo {
    title: "`threads` of a class",
    keys: &[
        role("main-loop", "QEMU's event loop."),
        role("io", "I/O threads and workers."),
        role("vhost", "Workers that move packets of vhost-net."),
        role("rcu", "QEMU's RCU thread."),
        role("other", "All others."),
    ],
    shared: &[],
    options: OptionTables::None,
};

pub(crate) static MATCH: TableInfo = TableInfo {
    title: "an item of `match`",
    keys: &[
        key("libvirt", Kind::Line, None, "VMs of libvirt by name; `*` and `?` as in a shell."),
        key(
            "name",
            Kind::Line,
            None,
            "VMs by the name on their monitor's command line, whether libvirt runs them or not; `*` and `?` \
             as in a shell.",
        ),
        key("uuid", Kind::Line, None, "The VM with this UUID."),
        key("metadata", Kind::Line, None, "VMs of libvirt whose metadata has this class."),
        key(
            "unit",
            Kind::Line,
            None,
            "VMs whose process is in this systemd unit, for example `\"firecracker@*.service\"`; without a \
             VM, the service or scope itself with all its processes. Those of users are left out.",
        ),
        key(
            "cgroup",
            Kind::Line,
            None,
            "The same for a cgroup by its path below the root of version 2, for example \
             `\"/kubepods.slice/*/cri-containerd-*.scope\"`; `*` and `?` do not match `/`.",
        ),
        key(
            "interrupts",
            Kind::Line,
            None,
            "The interrupts of this network interface or PCI device (`\"0000:3b:00.0\"`).",
        ),
        key("exec", Kind::Line, None, "What `punctual exec` starts under this name."),
    ],
    shared: &[],
    options: OptionTables::None,
};

/// A key that this version cannot carry out.
pub(crate) struct Refused {
    pub(crate) name: &'static str,
    /// What to do instead.
    pub(crate) instead: &'static str,
}

const NO_DOMAINS: &str = "expected [class.NAME]: the service finds VMs itself, and classes match them";
const NOT_SIMULATED: &str = "expected none: it is for simulations and live runs";

/// Top-level keys of the service's design and of host files that are refused.
pub(crate) const REFUSED: &[Refused] = &[
    Refused { name: "domain", instead: NO_DOMAINS },
    Refused { name: "network", instead: NOT_SIMULATED },
    Refused { name: "flow", instead: NOT_SIMULATED },
    Refused { name: "chain", instead: NOT_SIMULATED },
    Refused { name: "host_stack", instead: NOT_SIMULATED },
    Refused { name: "seed", instead: NOT_SIMULATED },
    Refused { name: "duration", instead: NOT_SIMULATED },
];
