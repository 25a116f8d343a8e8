//! Why something is not guaranteed: each reason once, in the words that users read.

use punctual_sched::Duration;
use thiserror::Error;

/// Why the tests decide neither that a deadline or a budget holds nor that it does not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Reason {
    /// The policy has no test. Its entry in the registry says why.
    #[error("{0}")]
    NoTest(&'static str),
    /// Affinities between "one processor" and "all of them".
    #[error(
        "affinities that leave some units several processors, but not all, have no test; pin every unit \
         to one processor or none"
    )]
    MixedAffinities,
    /// The policy does not take the units' parameters.
    #[error("the policy did not accept its units")]
    NotAccepted,
    /// Scheduling costs time, and the number of decisions has no bound.
    #[error(
        "a guest below acts on timers of its own, or packets wake a task at any rate, so the time spent \
         on decisions has no bound here"
    )]
    UnboundedDecisions,
    /// Global tests compare every unit with every other.
    #[error("too many units for the test")]
    TooManyUnits,

    /// Accounting in quanta of fixed-priority servers.
    #[error(
        "no guarantee: with accounting in quanta a vCPU that always runs for less than half a quantum is \
         never charged"
    )]
    QuantumAccounting,
    /// A sporadic server with scheduling costs.
    #[error(
        "a sporadic server's budget may come back in pieces as small as a switch, so the time spent on \
         switches has no useful bound"
    )]
    FragmentedBudget,
    /// A sporadic server with a table of one refill.
    #[error("with `refills_max = 1` every stretch of execution delays the only refill")]
    OneRefill,
    /// More urgent servers of the processor.
    #[error(
        "more urgent vCPUs may take {} of a period of {period}, which leaves too little for its budget of \
         {budget}", whole_us(.taken)
    )]
    MoreUrgentVcpus {
        /// The most that they take of one.
        taken: Duration,
        /// Its period.
        period: Duration,
        /// Its budget.
        budget: Duration,
    },
    /// Other servers under EDF.
    #[error(
        "other vCPUs may take {} of a period of {period}, which leaves too little for its budget of {budget}",
        whole_us(.taken)
    )]
    OtherVcpus {
        /// The most that they take of one.
        taken: Duration,
        /// Its period.
        period: Duration,
        /// Its budget.
        budget: Duration,
    },
    /// A budget that decisions may use up.
    #[error(
        "the scheduler's own time may take {} in a period of {period}, all of its budget of {budget}",
        whole_us(.taken)
    )]
    NothingLeft {
        /// The most that it takes in one.
        taken: Duration,
        /// Its period.
        period: Duration,
        /// Its budget.
        budget: Duration,
    },
    /// A server without a budget.
    #[error("a slice of 0 is best effort")]
    BestEffort,
    /// A unit below all others.
    #[error("no guarantee: best effort")]
    Background,
    /// CBS with scheduling costs.
    #[error("the scheduler's own time is not covered for CBS")]
    CbsDecisions,
    /// CBS with more bandwidth than there is, or than the density test can tell.
    #[error("the bandwidths do not surely fit on the processors")]
    Bandwidths,

    /// vCPUs without budgets under EDF.
    #[error("a vCPU without a budget under EDF has no supply bound; give it one (RTDS, SEDF, CBS)")]
    EdfVcpus,
    /// No global EDF test holds.
    #[error(
        "neither the density test nor response times show that all deadlines hold; both are sufficient only"
    )]
    GlobalEdf,
    /// vCPUs under fixed priorities on several processors.
    #[error(
        "vCPUs under fixed priorities over several processors have no test; pin every unit to one processor"
    )]
    GlobalFixedPriorityVcpus,
    /// No bound under global fixed priorities.
    #[error(
        "the bound found is beyond the deadline of this task or of a more urgent one; the test is \
         sufficient only"
    )]
    GlobalFixedPriority,
    /// A busy loop beside a task under global fixed priorities.
    #[error(
        "a busy loop that is as urgent or more takes a processor for itself, which the test does not know"
    )]
    GlobalBusyLoop,

    /// The guest's policy has no test for its tasks; its name.
    #[error("a guest scheduled by {0} gives its tasks no bound")]
    GuestPolicy(&'static str),
    /// Tasks of a guest that may run on several of its vCPUs.
    #[error(
        "tasks may move between the guest's vCPUs, and a guest does not see which of them have budget; \
         pin each task to one (`affinity`) for a bound"
    )]
    SeveralVcpus,
    /// A nested VM in an EDF guest.
    #[error("a vCPU inside an EDF guest has no supply bound")]
    NestedInEdf,
    /// An EDF guest that is spread out under fixed priorities.
    #[error("an EDF guest below fixed priorities without a budget has no supply bound")]
    EdfBelowFixedPriority,
    /// A kernel with work in a guest that is not under fixed priorities.
    #[error(
        "packets take time of this vCPU ahead of its tasks, which is counted for guests under fixed \
         priorities only"
    )]
    BesidePackets,
    /// A task that packets release beside tasks that are not under fixed priorities.
    #[error("tasks that packets release are counted under fixed priorities only")]
    BesideServed,
    /// A task released by packets that come at any rate.
    #[error("nothing bounds how often its packets come")]
    UnboundedPackets,
    /// The same for a more urgent task.
    #[error("a task that is as urgent or more is released by packets, and nothing bounds how often")]
    BelowUnboundedPackets,
    /// A task that packets release below a busy loop: nothing says that a packet comes, so nothing is
    /// refuted.
    #[error("a busy loop is as urgent or more and never ends")]
    BusyLoop,
    /// A busy loop of the same priority.
    #[error("a busy loop of equal priority may run first and never ends")]
    EqualBusyLoop,

    /// The busy period of a task that packets release has no end within reach.
    #[error("the work that may come before its own does not end in time for a bound")]
    EndlessBusyPeriod,
    /// A response beyond the period.
    #[error("the bound found is beyond the period, where the test does not reach")]
    BeyondPeriod,
    /// A response beyond the deadline, by a test that knows no better.
    #[error("the bound found is beyond the deadline; the test is sufficient only")]
    BeyondDeadline,
    /// A bound beyond the deadline of a task that packets release.
    #[error("the bound found is beyond the deadline")]
    BoundBeyondDeadline,
    /// EDF in a supply: so much later more can be due than is supplied.
    #[error("in {} ns more can be due than is surely supplied", .0.as_ns())]
    SupplyOverload(Duration),
    /// EDF in a supply: too many deadlines to look at.
    #[error("utilisation is too close to the supply's")]
    SupplyUtilization,
    /// EDF on a processor: what is refuted are tasks with shorter deadlines.
    #[error("shorter deadlines of the same processor are already missed")]
    ShorterDeadlinesMissed,
    /// EDF on a processor: too many deadlines to look at.
    #[error("utilisation is too close to the whole processor")]
    ProcessorUtilization,
    /// EDF on a processor: it may hold without scheduling costs.
    #[error("with the scheduler's own time, more may be due than fits")]
    ProcessorDecisions,
}

/// Why nothing bounds how late packets come.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum PacketReason {
    /// Streams.
    #[error("a stream's pace follows its acknowledgements and losses")]
    Acknowledged,
    /// What releases the packets has no least distance.
    #[error("nothing bounds how often it is sent")]
    UnboundedSource,
    /// The packet or job that it follows.
    #[error("what it follows has no bound")]
    UnboundedCause,
    /// Delays that grow round after round.
    #[error("its delays and those of others feed each other without an end")]
    Feedback,
    /// A domain with two roles.
    #[error("{domain} drives one network and is a guest of another, which has no bound here")]
    DriverIsGuest {
        /// Its name.
        domain: String,
    },
    /// A guest on the way.
    #[error("{domain} has no guarantee of processor time")]
    NoProcessorTime {
        /// Its name.
        domain: String,
    },
    /// A guest on the way whose kernel is busy for too long.
    #[error("{domain} may be kept busy by packets for longer than its time allows")]
    BusyKernel {
        /// Its name.
        domain: String,
    },
    /// The driver domain.
    #[error("the driver domain {domain} has no guarantee of processor time")]
    NoDriverTime {
        /// Its name.
        domain: String,
    },
    /// The driver domain under a discipline with priorities.
    #[error("{domain} may be overloaded by packets that are as urgent or more")]
    UrgentOverload {
        /// Its name.
        domain: String,
    },
    /// The driver domain under any other discipline.
    #[error("{domain} may be overloaded by the packets of all together")]
    Overload {
        /// Its name.
        domain: String,
    },
    /// A rate limit.
    #[error("the rate limit of {domain} may hold packets back for any time")]
    RateLimit {
        /// Whose packets are limited.
        domain: String,
    },
    /// RTCA's batches.
    #[error("a batch is more than a round of RX, for which there is no bound")]
    LargeBatch,
    /// Something else on the link.
    #[error("something without a bound shares the link")]
    LinkShared,
    /// The link itself.
    #[error("the link may be overloaded")]
    LinkOverload,
    /// The sender's send queue.
    #[error("the send queue of {domain} may overflow")]
    SendQueue {
        /// The sender's name.
        domain: String,
    },
    /// The sender's ring.
    #[error("the TX ring of {domain} may be full")]
    TxRing {
        /// The sender's name.
        domain: String,
    },
    /// The receiver's ring.
    #[error("the RX ring of {domain} may be full")]
    RxRing {
        /// The receiver's name.
        domain: String,
    },
    /// A ring shared with something without a bound.
    #[error("what waits in the same ring has no bound: {0}")]
    RingShared(Box<PacketReason>),
    /// The network card's ring.
    #[error("the network card's ring may overflow")]
    CardRing,
    /// A softnet queue.
    #[error("a softnet queue may overflow")]
    SoftnetQueue,
}

/// Why a chain is not guaranteed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ChainReason {
    /// The packet to a step.
    #[error("the packet to {step}: {reason}")]
    Packet {
        /// The task that the packet releases.
        step: String,
        /// Why the packet has no bound.
        reason: PacketReason,
    },
    /// The task of a step.
    #[error("{step} has no guarantee")]
    Step {
        /// The task.
        step: String,
    },
    /// A bound beyond the deadline: chains are never refuted.
    #[error("the bound found, {}, is beyond the deadline", whole_us(.0))]
    BeyondDeadline(Duration),
}

/// Rounded up: nobody needs the nanoseconds of a bound.
fn whole_us(time: &Duration) -> Duration {
    Duration::from_us(time.as_ns().div_ceil(1_000))
}
