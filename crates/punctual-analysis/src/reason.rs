//! Why something is not guaranteed: each reason once, in the words that users read.

use punctual_model::Host;
use punctual_model::index::{DomainIx, TaskIx, VcpuIx};
use punctual_sched::Duration;
use thiserror::Error;

use crate::fixed_priority::LATE_FACTOR_MAX;
use crate::inputs::parent_of;

/// What is unknown of a host with events.
const CHANGES: &str = "the host changes while it runs, and no test covers the time across a change";

/// Why the tests decide neither that a deadline or a budget holds nor that it does not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Reason {
    /// The policy has no test. Its entry in the registry says why.
    #[error("{0}")]
    NoTest(&'static str),
    #[error(
        "no test covers affinities of several, but not all, processors; pin every unit to one processor, or \
         none"
    )]
    MixedAffinities,
    #[error("the policy rejects the parameters of its units")]
    NotAccepted,
    /// Packets may wake this task at any rate, so decisions have no bound.
    #[error("scheduling costs have no bound: packets may wake a task at any rate")]
    WokenByPackets(TaskIx),
    /// The policy of this vCPU's guest acts on timers of its own, so decisions have no bound.
    #[error("scheduling costs have no bound: a guest sets timers of its own")]
    GuestTimers(VcpuIx),
    /// The host has events.
    #[error("{CHANGES}")]
    Changes,
    #[error("too many units for the test")]
    TooManyUnits,
    #[error(
        "vCPUs of one VM take turns on a processor here, which no test covers; give each a processor of its \
         own"
    )]
    Turns,

    #[error(
        "no guarantee: with quantum accounting, a vCPU that always runs for less than half a quantum is \
         never charged"
    )]
    QuantumAccounting,
    #[error(
        "a sporadic server may get its budget back in pieces as small as a context switch, so switching \
         costs have no useful bound"
    )]
    FragmentedBudget,
    #[error("with `unblock = \"xen\"` a vCPU that wakes within its period has no budget left in it")]
    LostSlice,
    #[error("with `refills_max = 1` every stretch of execution delays the only refill")]
    OneRefill,
    #[error(
        "more urgent vCPUs may take {} of each period of {period}, which leaves too little for its budget of \
         {budget}", whole_us(.taken)
    )]
    MoreUrgentVcpus {
        /// The most that they take of one.
        taken: Duration,
        period: Duration,
        budget: Duration,
    },
    #[error(
        "other vCPUs may take {} of each period of {period}, which leaves too little for its budget of \
         {budget}",
        whole_us(.taken)
    )]
    OtherVcpus {
        /// The most that they take of one.
        taken: Duration,
        period: Duration,
        budget: Duration,
    },
    #[error(
        "scheduling may take {} in a period of {period}, which uses up its whole budget of {budget}",
        whole_us(.taken)
    )]
    NothingLeft {
        /// The most that it takes in one.
        taken: Duration,
        period: Duration,
        budget: Duration,
    },
    #[error("a slice of 0 means best effort")]
    BestEffort,
    #[error("no guarantee: best effort")]
    Background,
    #[error("the CBS test does not account for scheduling costs")]
    CbsDecisions,
    #[error("the bandwidths may not fit on the processors")]
    Bandwidths,

    #[error("a vCPU without a budget under EDF has no supply bound; give it a budget (RTDS, SEDF, CBS)")]
    EdfVcpus,
    #[error(
        "neither the density test nor response-time analysis shows that all deadlines hold; both err on the \
         safe side"
    )]
    GlobalEdf,
    #[error("there is no test for vCPUs under global fixed priorities; pin every unit to one processor")]
    GlobalFixedPriorityVcpus,
    /// No response time within the deadline; that of a more urgent task may be the reason.
    #[error(
        "no bound within the deadline, or none for a more urgent task; the deadline may still hold, because \
         the test errs on the safe side"
    )]
    GlobalFixedPriority,
    #[error("a busy loop of equal or higher priority occupies a processor, which the test does not model")]
    GlobalBusyLoop,

    /// The guest's policy has no test for its tasks; its name.
    #[error("there is no test for tasks of a guest scheduled by {0}")]
    GuestPolicy(&'static str),
    #[error(
        "tasks may migrate between the guest's vCPUs, and the guest cannot see which vCPUs have budget; pin \
         each task to one vCPU (`affinity`) to get a bound"
    )]
    SeveralVcpus,
    /// One of the vCPUs that tasks may move between.
    #[error(
        "tasks may move to a vCPU whose budget is not guaranteed; pin each task to one vCPU (`affinity`)"
    )]
    UnsureVcpu(VcpuIx),
    #[error("the vCPUs of its domain share one budget (`budget_of`) and take turns, which no test covers")]
    SharedBudget,
    #[error(
        "no bound within the period of {period}: beside its cost of {}, a job may lose {} of that time on \
         vCPUs that stand still, which the guest does not see; greater budgets, shorter periods of the \
         vCPUs, or tasks pinned to one vCPU each (`affinity`) may help",
        whole_us(.cost), whole_us(.lost)
    )]
    StoppedVcpus {
        /// At most, in one period.
        lost: Duration,
        cost: Duration,
        period: Duration,
    },
    #[error("a guest of several vCPUs has more than {0} tasks, which its test does not compare")]
    TooManyTasks(usize),
    #[error("a vCPU inside an EDF guest has no supply bound")]
    NestedInEdf,
    #[error("an EDF guest below fixed priorities without a budget has no supply bound")]
    EdfBelowFixedPriority,
    #[error(
        "packets take time of this vCPU before its tasks run; only guests under fixed priorities have a test \
         for that"
    )]
    BesidePackets,
    #[error("tasks released by packets have a test under fixed priorities only")]
    BesideServed,
    #[error("its packets may arrive at any rate")]
    UnboundedPackets,
    #[error("packets may release a task of equal or higher priority at any rate")]
    BelowUnboundedPackets,
    /// A task that packets release below a busy loop: nothing says that a packet comes, so nothing is
    /// refuted.
    #[error("a busy loop of equal or higher priority never ends")]
    BusyLoop,
    #[error("a busy loop of equal priority may run first and never ends")]
    EqualBusyLoop,

    /// A resource of the domain, by index, without a protocol.
    #[error(
        "a task waits for a resource whose holder stays less urgent, so work of any urgency in between \
         delays it; give the resource `protocol = \"inherit\"` or `\"ceiling\"`"
    )]
    NoProtocol(DomainIx, usize),
    /// A resource of the domain, by index, that is not by ceiling.
    #[error("only resources with `protocol = \"ceiling\"` have a test in a guest with EDF")]
    NoCeiling(DomainIx, usize),
    /// One of the resources of the domain, by index, which tasks take in different orders.
    #[error(
        "tasks take resources in different orders and may wait for each other forever; let all take them in \
         one order, or give the resources `protocol = \"ceiling\"`"
    )]
    Deadlock(DomainIx, usize),
    #[error(
        "a critical section is inside one of another protocol, which no test covers; give both resources the \
         same `protocol`"
    )]
    MixedProtocols,
    #[error("the guest around its domain has tasks that share resources, which no test covers")]
    SharingAround,

    #[error("work of equal or higher priority may go on for too long to give a bound")]
    EndlessBusyPeriod,
    #[error("the bound exceeds the period, which the test does not cover")]
    BeyondPeriod,
    #[error(
        "the bound of {} exceeds the deadline by {}; the deadline may still hold, because the test errs on \
         the safe side", whole_us(.bound), whole_us(&(*bound - *deadline))
    )]
    BeyondDeadline { bound: Duration, deadline: Duration },
    /// Nor within the longest time that is looked at.
    #[error("no bound within {LATE_FACTOR_MAX} times the deadline: more may be asked for than is supplied")]
    NoBound,
    /// EDF in a supply: so much later more can be due than is supplied.
    #[error("in some interval of {} ns, more work can be due than the supply guarantees", .0.as_ns())]
    SupplyOverload(Duration),
    #[error("the utilization is too close to that of the supply")]
    SupplyUtilization,
    #[error("tasks with shorter deadlines on the same processor already miss")]
    ShorterDeadlinesMissed,
    #[error("the utilization is too close to a whole processor")]
    ProcessorUtilization,
    #[error("with scheduling costs, more work may be due than fits")]
    ProcessorDecisions,
}

impl Reason {
    /// The reason in the words that users read, with the names of `host`.
    pub fn text(&self, host: &Host) -> String {
        match self {
            Reason::WokenByPackets(task) => format!(
                "packets may wake {}.{} at any rate, so the cost of scheduling has no bound",
                parent_of(host, *task),
                host.tasks[task.0].name
            ),
            Reason::UnsureVcpu(vcpu) => format!(
                "tasks may move to {}, whose budget is not guaranteed; pin each task to one vCPU \
                 (`affinity`)",
                host.vcpus[vcpu.0].name
            ),
            Reason::GuestTimers(vcpu) => {
                let domain = &host.domains[host.vcpus[vcpu.0].domain.0];
                format!(
                    "the policy of guest {}, {}, sets timers of its own, so the cost of scheduling has no \
                     bound",
                    domain.name, domain.guest.info.name
                )
            }
            Reason::NoProtocol(domain, resource) => format!(
                "the task that holds `{0}` stays less urgent than those that wait for it, so work of any \
                 urgency in between delays them; give `{0}` `protocol = \"inherit\"` or `\"ceiling\"`",
                host.domains[domain.0].resources[*resource].name
            ),
            Reason::NoCeiling(domain, resource) => format!(
                "no test covers `protocol = \"{}\"` in a guest with EDF; give `{}` `protocol = \"ceiling\"`",
                host.domains[domain.0].resources[*resource].protocol.name(),
                host.domains[domain.0].resources[*resource].name
            ),
            Reason::Deadlock(domain, _) => deadlock_text(host, *domain).unwrap_or_else(|| self.to_string()),
            _ => self.to_string(),
        }
    }

    /// No bound within the deadline: how far beyond it is `bound`, which gets the greatest bound to look for?
    pub(crate) fn beyond(deadline: Duration, bound: impl FnOnce(Duration) -> Option<Duration>) -> Reason {
        let bound = bound(deadline * LATE_FACTOR_MAX).filter(|bound| *bound > deadline);
        bound.map_or(Reason::NoBound, |bound| Reason::BeyondDeadline { bound, deadline })
    }
}

/// Which resources of a domain are taken in different orders, and what to do; `None` if none are.
pub(crate) fn deadlock_text(host: &Host, domain: DomainIx) -> Option<String> {
    let ring = host.deadlock(domain)?;
    let name = |resource: &usize| format!("`{}`", host.domains[domain.0].resources[*resource].name);
    let names = ring.iter().map(name).collect::<Vec<_>>().join(", ");
    Some(format!(
        "tasks take {names} in different orders and may wait for each other forever; let all take them in \
         one order, or give them `protocol = \"ceiling\"`"
    ))
}

/// Why nothing bounds how late packets come.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum PacketReason {
    /// The host has events.
    #[error("{CHANGES}")]
    Changes,
    #[error("the rate of a stream depends on acknowledgements and losses")]
    Acknowledged,
    #[error("it may be sent at any rate")]
    UnboundedSource,
    #[error("the packet or job that triggers it has no bound")]
    UnboundedCause,
    #[error("its delays and those of other flows increase each other without limit")]
    Feedback,
    #[error("{domain} drives one network and is a guest of another; no test covers that")]
    DriverIsGuest { domain: String },
    #[error("{domain} has no guarantee of processor time")]
    NoProcessorTime { domain: String },
    #[error("packets may keep {domain} busy for longer than its processor time allows")]
    BusyKernel { domain: String },
    #[error("the driver domain {domain} has no guarantee of processor time")]
    NoDriverTime { domain: String },
    #[error(
        "packets of equal or higher priority may overload {domain}: they need up to {} of its time each \
         second",
        of_a_second(.per_second)
    )]
    UrgentOverload {
        domain: String,
        /// What it may have to do for them in a second, in the long run.
        per_second: Duration,
    },
    #[error(
        "the packets of all flows together may overload {domain}: they need up to {} of its time each second",
        of_a_second(.per_second)
    )]
    Overload {
        domain: String,
        /// What it may have to do for them in a second, in the long run.
        per_second: Duration,
    },
    #[error("the rate limit of {domain} may delay packets without limit")]
    RateLimit { domain: String },
    #[error("a batch is larger than an RX round; no test covers that")]
    LargeBatch,
    #[error("traffic without a bound shares the link")]
    LinkShared,
    #[error("the link may be overloaded: frames need up to {} on it each second", of_a_second(.per_second))]
    LinkOverload {
        /// In the long run.
        per_second: Duration,
    },
    #[error("up to {packets} packets may wait in the send queue of {domain}, which holds {limit}")]
    SendQueue {
        /// The sender's name.
        domain: String,
        packets: u64,
        limit: u64,
    },
    #[error("up to {packets} packets may wait in the TX ring of {domain} (`ring_slots = {slots}`)")]
    TxRing {
        /// The sender's name.
        domain: String,
        packets: u64,
        slots: u64,
    },
    #[error("up to {packets} packets may wait in the RX ring of {domain} (`ring_slots = {slots}`)")]
    RxRing {
        /// The receiver's name.
        domain: String,
        packets: u64,
        slots: u64,
    },
    #[error("traffic in the same ring has no bound: {0}")]
    RingShared(Box<PacketReason>),
    #[error("up to {packets} packets may wait in the ring of the network card (`nic.ring_slots = {slots}`)")]
    CardRing { packets: u64, slots: u64 },
    #[error("up to {packets} packets may wait in a softnet queue (`softnet_limit = {limit}`)")]
    SoftnetQueue { packets: u64, limit: u64 },
}

/// Why a chain is not guaranteed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ChainReason {
    /// The host has events.
    #[error("{CHANGES}")]
    Changes,
    #[error("the packet to {step}: {reason}")]
    Packet {
        /// The task that the packet releases.
        step: String,
        reason: PacketReason,
    },
    #[error("{step} has no guarantee")]
    Step { step: String },
    /// A bound beyond the deadline: chains are never refuted.
    #[error("the bound of {} exceeds the deadline by {}", whole_us(.bound), whole_us(&(*bound - *deadline)))]
    BeyondDeadline { bound: Duration, deadline: Duration },
}

/// A part of each second, or several, rounded up to whole milliseconds.
fn of_a_second(time: &Duration) -> Duration {
    Duration::from_ms(time.as_ns().div_ceil(1_000_000))
}

/// Rounded up to whole microseconds.
pub(crate) fn whole_us(time: &Duration) -> Duration {
    Duration::from_us(time.as_ns().div_ceil(1_000))
}
