//! Keys of the fleet file.

use punctual_sched::fixed_priority;

use crate::file::host::keys::{
    BUDGET_OF, GENERATE, MACHINE, POOL, RESOURCES, SERVER_KEYS, SLOTS, TASK, VCPU_PRIORITY,
};
use crate::file::key::{KeyInfo, Kind, OptionTables, TableInfo, key, required};
use crate::file::limits::PROCESSORS_MAX;

/// Hosts of a fleet at most.
pub(crate) const HOSTS_MAX: usize = 4_096;
/// VMs of a fleet at most.
pub(crate) const VMS_MAX: usize = 65_536;
/// Kinds of hosts times tables of VMs at most: each VM is judged on each kind of hosts.
pub(crate) const PAIRS_MAX: usize = 1 << 18;
/// 1 PiB.
const MIB_MAX: u64 = 1 << 30;
/// The solver of small fleets is exact for coefficients within six orders of magnitude.
const MOVE_COST_MAX: u64 = 1_000_000;
const MEMORY: Kind = Kind::Count { min: 1, max: MIB_MAX };

/// Where the memory of a VM may be.
pub(crate) const ONE_NODE: &str = "one";
pub(crate) const ANY_NODE: &str = "any";

/// The document itself.
pub(crate) static FLEET: TableInfo = TableInfo {
    title: "the fleet file",
    keys: &[
        key(
            "name",
            Kind::Text,
            Some("the file's name without its ending"),
            "The fleet's name in titles and results.",
        ),
        key("host", Kind::Named(&HOST), None, "A kind of hosts. Required."),
        key("class", Kind::Named(&CLASS), None, "Keys that several kinds of VMs have in common."),
        key("vm", Kind::Named(&VM), None, "A kind of VMs. Required."),
    ],
    shared: &[],
    options: OptionTables::None,
};

static HOST: TableInfo = TableInfo {
    title: "[host.NAME]",
    keys: &[
        key(
            "copies",
            Kind::Count { min: 1, max: HOSTS_MAX as u64 },
            None,
            "There are so many that are alike, called NAME-1, NAME-2 and so on.",
        ),
        required("machine", Kind::Table(&MACHINE), "The physical machine, as in a host file."),
        key("pool", Kind::Named(&POOL), None, "A pool, as in a host file. Required."),
        SLOTS,
        key("memory_mib", MEMORY, Some("that of its nodes"), "Memory for VMs."),
        key("node", Kind::Numbered(&NODE), None, "NUMA nodes by number."),
        key(
            "pinned",
            Kind::Texts,
            Some("no pool"),
            "Pools in which each vCPU gets one processor, although their policy could move it among all of \
             them. Under a policy that keeps units on one processor each pool is pinned.",
        ),
    ],
    shared: &[],
    options: OptionTables::None,
};

static NODE: TableInfo = TableInfo {
    title: "[host.NAME.node.N]",
    keys: &[
        required("processors", Kind::Numbers, "Its processors; each processor is in one node."),
        required("memory_mib", MEMORY, "Its memory for VMs."),
    ],
    shared: &[],
    options: OptionTables::None,
};

/// Keys of a VM, and of a class.
const VM_KEYS: &[KeyInfo] = &[
    key("pool", Kind::NameOf("pool"), Some("the only pool"), "The pool of its vCPUs, by name on every host."),
    key("vcpus", Kind::Count { min: 1, max: PROCESSORS_MAX }, Some("1"), "Number of virtual processors."),
    BUDGET_OF,
    key(
        "best_effort",
        Kind::Flag,
        Some("false"),
        "The vCPUs have no budget and run below all others of their pool. Only memory limits how many such \
         VMs a host gets.",
    ),
    VCPU_PRIORITY,
    key(
        "guest",
        Kind::Guest,
        Some(fixed_priority::NAME),
        "The guest's own scheduler: a policy's name, or a table of `policy` and its options.",
    ),
    RESOURCES,
    key("task", Kind::Named(&TASK), None, "A task inside the guest."),
    key("generate", Kind::Table(&GENERATE), None, "Generated tasks, after the tasks spelled out."),
    key("memory_mib", MEMORY, Some("none"), "Its memory."),
    key(
        "numa",
        Kind::Word(&[ONE_NODE, ANY_NODE]),
        Some(ONE_NODE),
        "`one`: its memory and its vCPUs are in one NUMA node. `any`: wherever there is room.",
    ),
    key(
        "near",
        Kind::NameOf("slot"),
        None,
        "Only processors on the NUMA nodes of this slot; hosts without the slot are no choice.",
    ),
    key("hosts", Kind::Texts, Some("all"), "Only these hosts; the name of a kind is all its hosts."),
    key("avoid", Kind::Texts, Some("none"), "Not these hosts; the name of a kind is all its hosts."),
    key(
        "together",
        Kind::Texts,
        Some("none"),
        "Names of groups: all VMs of a group are on one host. The copies of a VM are all in its groups.",
    ),
    key("apart", Kind::Texts, Some("none"), "Names of groups: no two VMs of a group are on one host."),
    key(
        "move_cost",
        Kind::Count { min: 0, max: MOVE_COST_MAX },
        Some("1"),
        "What it costs to move it to another host than that of today. Only sums of it are compared.",
    ),
];

static CLASS: TableInfo =
    TableInfo { title: "[class.NAME]", keys: VM_KEYS, shared: &[&SERVER_KEYS], options: OptionTables::None };

static VM: TableInfo = TableInfo {
    title: "[vm.NAME]",
    keys: &[
        key(
            "copies",
            Kind::Count { min: 1, max: VMS_MAX as u64 },
            None,
            "There are so many that are alike, called NAME-1, NAME-2 and so on.",
        ),
        key("class", Kind::NameOf("class"), None, "Its keys count where the VM's own table lacks them."),
        key(
            "today",
            Kind::Texts,
            None,
            "The host where it is today; with `copies` that of each, the first ones first. VMs beyond the \
             list are nowhere.",
        ),
    ],
    shared: &[VM_KEYS, &SERVER_KEYS],
    options: OptionTables::None,
};
