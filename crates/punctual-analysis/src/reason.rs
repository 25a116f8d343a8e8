//! Why something is not guaranteed: each reason once, in the words that users read.

use punctual_sched::Duration;
use thiserror::Error;

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
    #[error(
        "scheduling costs have no bound: packets may wake a task at any rate, or a guest sets timers of its \
         own"
    )]
    UnboundedDecisions,
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
    #[error(
        "the bound exceeds the deadline of this task or of a more urgent one; the test errs on the safe side"
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

    #[error("work of equal or higher priority may go on for too long to give a bound")]
    EndlessBusyPeriod,
    #[error("the bound exceeds the period, which the test does not cover")]
    BeyondPeriod,
    #[error(
        "the bound exceeds the deadline; the deadline may still hold, because the test errs on the safe \
             side"
    )]
    BeyondDeadline,
    #[error("the bound exceeds the deadline")]
    BoundBeyondDeadline,
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

/// Why nothing bounds how late packets come.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum PacketReason {
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
    #[error("packets of equal or higher priority may overload {domain}")]
    UrgentOverload { domain: String },
    #[error("the packets of all flows together may overload {domain}")]
    Overload { domain: String },
    #[error("the rate limit of {domain} may delay packets without limit")]
    RateLimit { domain: String },
    #[error("a batch is larger than an RX round; no test covers that")]
    LargeBatch,
    #[error("traffic without a bound shares the link")]
    LinkShared,
    #[error("the link may be overloaded")]
    LinkOverload,
    #[error("the send queue of {domain} may overflow")]
    SendQueue {
        /// The sender's name.
        domain: String,
    },
    #[error("the TX ring of {domain} may fill up (`ring_slots`)")]
    TxRing {
        /// The sender's name.
        domain: String,
    },
    #[error("the RX ring of {domain} may fill up (`ring_slots`)")]
    RxRing {
        /// The receiver's name.
        domain: String,
    },
    #[error("traffic in the same ring has no bound: {0}")]
    RingShared(Box<PacketReason>),
    #[error("the network card's ring may overflow (`nic.ring_slots`)")]
    CardRing,
    #[error("a softnet queue may overflow (`softnet_limit`)")]
    SoftnetQueue,
}

/// Why a chain is not guaranteed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ChainReason {
    #[error("the packet to {step}: {reason}")]
    Packet {
        /// The task that the packet releases.
        step: String,
        reason: PacketReason,
    },
    #[error("{step} has no guarantee")]
    Step { step: String },
    /// A bound beyond the deadline: chains are never refuted.
    #[error("the bound, {}, exceeds the deadline", whole_us(.0))]
    BeyondDeadline(Duration),
}

/// Rounded up to whole microseconds.
fn whole_us(time: &Duration) -> Duration {
    Duration::from_us(time.as_ns().div_ceil(1_000))
}
