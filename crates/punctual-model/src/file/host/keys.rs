//! Keys of the machine, its pools, domains and tasks: name, what the key takes, its default, what it means.

use punctual_sched::fixed_priority;

use super::place::{IDLE_SIBLINGS, WHOLE_CORES};
use crate::file::copies::COPY_KEYS;
use crate::file::host_stack::keys::HOST_STACK;
use crate::file::key::{ANY_TIME, KeyInfo, Kind, OptionTables, SOME_TIME, TableInfo, key, required};
use crate::file::limits::{GENERATED_MAX, PROCESSORS_MAX};
use crate::file::live::keys::LIVE_KEYS;
use crate::file::network::keys::{CHAIN, FLOW, NETWORK};
use crate::file::quantity::WHOLE;
use crate::generate::{DEADLINES, PERIODS, RECIPES, UTILIZATIONS};
use crate::host::Enforce;
use crate::locks::Protocol;
use crate::overheads;
use crate::smp::SmpKind;

pub(crate) const COUNT_32: Kind = Kind::Count { min: 0, max: u32::MAX as u64 };

/// The document itself.
pub(crate) static ROOT: TableInfo = TableInfo {
    title: "the host file",
    keys: &[
        key(
            "name",
            Kind::Text,
            Some("the file's name without its ending"),
            "The host's name in titles and results.",
        ),
        key(
            "seed",
            Kind::Seed,
            Some("1"),
            "Seed of everything random: generated tasks, sporadic arrivals, varying costs.",
        ),
        key(
            "duration",
            SOME_TIME,
            Some("10s"),
            "How long to simulate or run. Without it, `attach` runs until it is stopped.",
        ),
        required("machine", Kind::Table(&MACHINE), "The physical machine."),
        key(
            "pool",
            Kind::Named(&POOL),
            None,
            "Processors scheduled together by one policy (Xen: a cpupool). Required, but for a host with \
             `host_stack`.",
        ),
        SLOTS,
        key("domain", Kind::Named(&DOMAIN), None, "A virtual machine."),
        key("network", Kind::Named(&NETWORK), None, "A driver domain that connects domains and the outside."),
        key("flow", Kind::Named(&FLOW), None, "What one end sends to another over a network."),
        key("chain", Kind::Named(&CHAIN), None, "Tasks that release each other by packets."),
        key("event", Kind::Named(&EVENT), None, "A change of a domain or pool while the host runs."),
        key(
            "host_stack",
            Kind::Table(&HOST_STACK),
            None,
            "A Linux host with cards, interrupts and servers; instead of pools, domains and networks.",
        ),
    ],
    shared: &[],
    options: OptionTables::None,
};

pub(in crate::file) static MACHINE: TableInfo = TableInfo {
    title: "[machine]",
    keys: &[
        required(
            "processors",
            Kind::Count { min: 1, max: PROCESSORS_MAX },
            "Number of physical processors; they are numbered from 0.",
        ),
        key(
            "overheads",
            Kind::WordOrTable(&overheads::NAMES, &OVERHEADS),
            None,
            "What scheduling itself costs on this machine, or the name of published costs; without it, \
             nothing.",
        ),
        key(
            "enforce",
            Kind::Word(&Enforce::NAMES),
            Some("auto"),
            "Live: what enforces the policies. `freezer` is an enforcer in user space, `sched-ext` a \
             scheduler in the kernel.",
        ),
    ],
    shared: &[],
    options: OptionTables::None,
};

static OVERHEADS: TableInfo = TableInfo {
    title: "[machine.overheads]",
    keys: &[
        key("decision", ANY_TIME, Some("0ns"), "Each scheduling decision of a pool's policy."),
        key("context_switch", ANY_TIME, Some("0ns"), "Each change of the unit that a processor runs."),
        key(
            "migration",
            ANY_TIME,
            Some("0ns"),
            "Added to a context switch when the unit last ran on another processor.",
        ),
        key(
            "lock",
            ANY_TIME,
            Some("0ns"),
            "How long a decision holds the lock of a pool of several processors with one run queue.",
        ),
    ],
    shared: &[],
    options: OptionTables::None,
};

/// `processors` of a pool.
pub(in crate::file) const POOL_PROCESSORS: KeyInfo = key(
    "processors",
    Kind::NumbersOrTable(&PROCESSORS),
    Some("all, if it is the only pool"),
    "The machine's processors in this pool; no other pool may have them. A table says how many, and leaves \
     the choice to Punctual.",
);

static PROCESSORS: TableInfo = TableInfo {
    title: "a pool's choice of processors",
    keys: &[
        required("count", Kind::Count { min: 1, max: PROCESSORS_MAX }, "Number of processors."),
        key(
            "isolated",
            Kind::Flag,
            Some("false"),
            "Only isolated processors (`isolcpus`). Without it, isolated ones come first.",
        ),
        key(
            "near",
            Kind::NameOf("slot"),
            None,
            "Only processors of the slot's NUMA node; those that share its last-level cache come first.",
        ),
        key(
            "smt",
            Kind::Word(&[WHOLE_CORES, IDLE_SIBLINGS]),
            Some(WHOLE_CORES),
            "Hardware threads of a core: `whole` gives all of them to the pool, `idle` gives one and leaves \
             the others idle.",
        ),
    ],
    shared: &[],
    options: OptionTables::None,
};

/// Slots, in both kinds of files.
pub(in crate::file) const SLOTS: KeyInfo =
    key("slot", Kind::Named(&SLOT), None, "A name for processors, for `near`.");

static SLOT: TableInfo = TableInfo {
    title: "[slot.NAME]",
    keys: &[
        key(
            "processors",
            Kind::Numbers,
            None,
            "These processors. Pools that do not list them leave them alone.",
        ),
        key(
            "interrupts",
            Kind::Line,
            None,
            "Those that get the interrupts of this network interface or PCI device (`\"0000:3b:00.0\"`). Its \
             NUMA node is the slot's; pools choose other processors of the node first.",
        ),
    ],
    shared: &[],
    options: OptionTables::None,
};

pub(in crate::file) static POOL: TableInfo = TableInfo {
    title: "[pool.NAME]",
    keys: &[
        POOL_PROCESSORS,
        required(
            "policy",
            Kind::Policy,
            "The policy that schedules the pool's units. Its options go into a table of the policy's name.",
        ),
        key(
            "isolate",
            Kind::Flag,
            Some("false"),
            "Live: an isolated cpuset partition, made by the run, keeps other threads off the processors.",
        ),
        key(
            "task",
            Kind::Named(&TASK),
            None,
            "A task scheduled by the pool itself, one level fewer: a plain process or a container's thread.",
        ),
        key("generate", Kind::Table(&GENERATE), None, "Generated tasks, after the tasks spelled out."),
    ],
    shared: &[],
    options: OptionTables::Policies,
};

/// Of units: vCPUs, and tasks by their `server`.
pub(in crate::file) static SERVER_KEYS: [KeyInfo; 6] = [
    key("budget", SOME_TIME, None, "Processor time per period."),
    key("period", Kind::Period, None, "Replenishment period."),
    key("deadline", SOME_TIME, None, "Relative deadline, for deadline-driven policies."),
    key("weight", Kind::Count { min: 1, max: 65_535 }, None, "Proportional share."),
    key(
        "cap_percent",
        Kind::Count { min: 0, max: 100 * PROCESSORS_MAX },
        None,
        "Upper limit in percent of one processor, 0 for none.",
    ),
    key("extratime", Kind::Flag, None, "May the unit use spare processor time when its budget is used up?"),
];

pub(in crate::file) const VCPU_PRIORITY: KeyInfo =
    key("priority", COUNT_32, None, "Fixed priority; a smaller number is more urgent.");

static PLACE_OF_VCPU: [KeyInfo; 3] = [
    key(
        "best_effort",
        Kind::Flag,
        Some("false"),
        "The unit runs below all others, under every policy, when no other unit wants the processor. It \
         needs no budget; of the policy's parameters only `affinity` applies. For units of a pool.",
    ),
    VCPU_PRIORITY,
    key(
        "affinity",
        Kind::Numbers,
        Some("all"),
        "Where the unit may run: processors of the machine (in the pool) for a pool's units, vCPU numbers \
         for units inside a domain.",
    ),
];

static TASK_PRIORITY_AND_AFFINITY: [KeyInfo; 2] = [
    key(
        "priority",
        COUNT_32,
        Some("deadline-monotonic rank"),
        "Fixed priority; a smaller number is more urgent. By default the task's rank by relative deadline \
         among its parent's tasks without a priority, from 1; hogs come last.",
    ),
    key(
        "affinity",
        Kind::Numbers,
        Some("all"),
        "Where the task may run: vCPU numbers in a domain, processors of the machine in a pool.",
    ),
];

static DOMAIN: TableInfo = TableInfo {
    title: "[domain.NAME]",
    keys: &[
        key(
            "pool",
            Kind::NameOf("pool"),
            Some("the only pool"),
            "The pool whose policy schedules the domain's vCPUs.",
        ),
        key(
            "in",
            Kind::NameOf("domain"),
            None,
            "Instead of `pool`: the domain whose guest scheduler schedules this domain's vCPUs (nested \
             virtualisation).",
        ),
        key("vcpus", Kind::Count { min: 1, max: PROCESSORS_MAX }, Some("1"), "Number of virtual processors."),
        BUDGET_OF,
        key(
            "vcpu",
            Kind::Numbered(&VCPU),
            None,
            "Parameters of single vCPUs, by number from 0, instead of the domain's.",
        ),
        key(
            "guest",
            Kind::Guest,
            Some(fixed_priority::NAME),
            "The guest's own scheduler: a policy's name, or a table of `policy` and its options.",
        ),
        RESOURCES,
        key("task", Kind::Named(&TASK), None, "A task inside the guest."),
        key("generate", Kind::Table(&GENERATE), None, "Generated tasks, after the tasks spelled out."),
        key(
            "smp",
            Kind::Table(&SMP),
            None,
            "Instead of tasks: vCPUs that wait for each other. Simulated only.",
        ),
    ],
    shared: &[&SERVER_KEYS, &PLACE_OF_VCPU, &LIVE_KEYS],
    options: OptionTables::None,
};

static EVENT: TableInfo = TableInfo {
    title: "[event.NAME]",
    keys: &[
        required("at", ANY_TIME, "When, from the beginning of the run."),
        key(
            "domain",
            Kind::NameOf("domain"),
            None,
            "The domain whose vCPUs get the other parameters given here; the rest stay as they are.",
        ),
        key("pool", Kind::NameOf("pool"), None, "Instead of `domain`: the pool that gets another `policy`."),
        key(
            "policy",
            Kind::Policy,
            None,
            "The pool's policy from then on. Its options go into a table of the policy's name.",
        ),
        VCPU_PRIORITY,
    ],
    shared: &[&SERVER_KEYS],
    options: OptionTables::Policies,
};

/// `budget_of`, in both kinds of files.
pub(in crate::file) const BUDGET_OF: KeyInfo = key(
    "budget_of",
    Kind::Word(&[OF_VCPU, OF_VM]),
    Some(OF_VCPU),
    "Whose budget `budget` is: that of each vCPU, or that of the VM. Then all its vCPUs share one server: \
     they take turns on one processor, and each uses up the budget of all.",
);

pub(crate) const OF_VCPU: &str = "vcpu";
pub(crate) const OF_VM: &str = "vm";

static VCPU: TableInfo = TableInfo {
    title: "a vCPU",
    keys: &[],
    shared: &[&SERVER_KEYS, &PLACE_OF_VCPU],
    options: OptionTables::None,
};

/// A task.
pub(crate) static TASK: TableInfo = TableInfo {
    title: "task NAME",
    keys: &[
        key("period", Kind::Period, None, "Distance of releases of a periodic task."),
        key(
            "separation",
            Kind::Period,
            None,
            "Least distance of releases of a sporadic task, instead of `period`.",
        ),
        key(
            "slack_mean",
            ANY_TIME,
            Some("0ns"),
            "Mean of the exponentially distributed time added to `separation`, from the task's own seeded \
             stream.",
        ),
        key(
            "cost",
            Kind::Cost,
            None,
            "Processor time of a job, or `{ min = ..., max = ... }` for a uniformly distributed one. \
             Required unless the task is a hog.",
        ),
        key("deadline", SOME_TIME, Some("period, or separation"), "Relative deadline of each job."),
        key("offset", ANY_TIME, Some("0ns"), "First release, or the earliest one of a sporadic task."),
        key(
            "hog",
            Kind::Flag,
            Some("false"),
            "The task is a busy loop that always has work; it takes no period, cost or deadline.",
        ),
        key("start", ANY_TIME, Some("0ns"), "When a hog starts."),
        key(
            "on_packet",
            Kind::Flag,
            Some("false"),
            "The task's jobs are released by packets: it is a later step of a chain, or the `server` of a \
             flow; it takes a cost and a deadline, no period.",
        ),
        key(
            "sections",
            Kind::Tables(&SECTION),
            None,
            "The parts of a job in which the task holds resources of its domain. Times are those of a job of \
             the greatest cost, and shrink in proportion with a shorter one.",
        ),
        key(
            "server",
            Kind::Table(&SERVER),
            None,
            "The task's parameters under its parent's policy where they are not the task's own: by default \
             `budget` is the greatest cost, `period` and `deadline` are the task's.",
        ),
    ],
    shared: &[&TASK_PRIORITY_AND_AFFINITY, &COPY_KEYS],
    options: OptionTables::None,
};

/// `resource`, in both kinds of files.
pub(in crate::file) const RESOURCES: KeyInfo =
    key("resource", Kind::Named(&RESOURCE), None, "A lock that tasks of the guest share.");

static RESOURCE: TableInfo = TableInfo {
    title: "resource NAME",
    keys: &[key(
        "protocol",
        Kind::Word(&Protocol::NAMES),
        Some(Protocol::None.name()),
        "POSIX's protocol of the mutex: the task that holds it is as urgent as those that wait for it \
         (`inherit`), as all that use it (`ceiling`, POSIX: protect), or as it is anyway (`none`).",
    )],
    shared: &[],
    options: OptionTables::None,
};

static SECTION: TableInfo = TableInfo {
    title: "a critical section",
    keys: &[
        required("resource", Kind::NameOf("resource"), "The resource that the task holds in it."),
        key("after", ANY_TIME, Some("0ns"), "What a job executes before it."),
        required("length", SOME_TIME, "What a job executes in it, sections inside it included."),
    ],
    shared: &[],
    options: OptionTables::None,
};

static SMP: TableInfo = TableInfo {
    title: "a domain's smp",
    keys: &[
        required(
            "work",
            Kind::Word(&SmpKind::NAMES),
            "What the vCPUs wait for in each of their rounds: a lock while they spin or are idle, answers of \
             the others to an interrupt, all others at a barrier, or a byte from the one before.",
        ),
        required("cost", SOME_TIME, "What a vCPU executes in a round, besides what follows."),
        key("held", SOME_TIME, None, "`spinlock`, `mutex`: what it executes while it holds the lock."),
        key("answer", SOME_TIME, None, "`interrupt`: what each other vCPU executes to answer."),
        key(
            "callers",
            Kind::Count { min: 0, max: PROCESSORS_MAX },
            Some("all"),
            "`interrupt`: how many vCPUs send interrupts, the first ones; the others repeat `cost`.",
        ),
    ],
    shared: &[],
    options: OptionTables::None,
};

static SERVER: TableInfo =
    TableInfo { title: "a task's server", keys: &[], shared: &[&SERVER_KEYS], options: OptionTables::None };

/// `cost = { min, max }`.
pub(crate) static COST: TableInfo = TableInfo {
    title: "a cost",
    keys: &[
        required("min", SOME_TIME, "Least processor time of a job."),
        required("max", SOME_TIME, "Most: the worst-case execution time."),
    ],
    shared: &[],
    options: OptionTables::None,
};

pub(in crate::file) static GENERATE: TableInfo = TableInfo {
    title: "a generate table",
    keys: &[
        required("recipe", Kind::Word(&RECIPES), "How the tasks' utilizations are drawn."),
        key(
            "tasks",
            Kind::Count { min: 1, max: GENERATED_MAX },
            None,
            "How many tasks; `schedcat` can do with `utilization` instead.",
        ),
        key(
            "load",
            Kind::Percent { max: WHOLE },
            None,
            "Recipe `rt-xen`: the tasks' utilization as a part of the domain's share (the sum of budget / \
             period of its vCPUs).",
        ),
        key(
            "utilization",
            Kind::Percent { max: WHOLE * GENERATED_MAX },
            None,
            "The other recipes: the tasks' utilizations add up to this; 100% is one processor.",
        ),
        key(
            "utilizations",
            Kind::Word(&UTILIZATIONS),
            None,
            "Recipe `schedcat`: the named distribution of each task's utilization.",
        ),
        key(
            "periods",
            Kind::Word(&PERIODS),
            Some("uni-moderate"),
            "The named distribution of periods, whole ms; all recipes but `rt-xen` and `automotive`.",
        ),
        key(
            "deadlines",
            Kind::Word(&DEADLINES),
            Some("implicit"),
            "The named distribution of deadlines; all recipes but `rt-xen` and `automotive`.",
        ),
        key(
            "seed",
            Kind::Seed,
            Some("from the host's seed and the parent's name"),
            "Seed of this task set alone.",
        ),
    ],
    shared: &[],
    options: OptionTables::None,
};
