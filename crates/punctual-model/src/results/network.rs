//! What networks, flows and chains did.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::jobs::{JobStats, is_zero};
use crate::histogram::Histogram;

/// A part of a packet's way. The parts of a packet, or of a request and its answer together, add up to its
/// latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Segment {
    /// From its creation until it is in the guest's TX ring: the sender's processor, a full ring, the stack's
    /// cost.
    GuestSend,
    /// On links, and inside hosts beyond the network card but for answering.
    Link,
    /// In the TX ring or the network card until the driver domain has handled the event: its vCPU, other
    /// events.
    DriverWait,
    /// Netback's TX stage with its queue.
    Tx,
    /// The softnet stage with its queue.
    Softnet,
    /// Netback's RX stage with its queue.
    Rx,
    /// From the end of the RX stage until the event is sent to the guest.
    EventDelivery,
    /// From the event until the guest's vCPU executes.
    VcpuWait,
    /// From then until the guest's stack has received it.
    GuestReceive,
    /// Answering: the server's task, or the turnaround of a host outside.
    Service,
    /// In the network card of a Linux host, both ways.
    Card,
    /// In a Linux host, from the interrupt until the server's VM is entered, or its process runs.
    HostReceive,
    /// In the VM, or the process, until it sends.
    Guest,
    /// In a Linux host, from there to the network card.
    HostSend,
}

impl Segment {
    /// Those of a driver domain's network, in the order of a packet's way.
    pub const ALL: [Segment; 10] = [
        Segment::GuestSend,
        Segment::Link,
        Segment::DriverWait,
        Segment::Tx,
        Segment::Softnet,
        Segment::Rx,
        Segment::EventDelivery,
        Segment::VcpuWait,
        Segment::GuestReceive,
        Segment::Service,
    ];

    /// Those of a Linux host's network stack.
    pub const HOST: [Segment; 4] = [Segment::Card, Segment::HostReceive, Segment::Guest, Segment::HostSend];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Segment::GuestSend => "guest send",
            Segment::Link => "link",
            Segment::DriverWait => "driver wait",
            Segment::Tx => "TX queue",
            Segment::Softnet => "softnet",
            Segment::Rx => "RX queue",
            Segment::EventDelivery => "event delivery",
            Segment::VcpuWait => "vCPU wait",
            Segment::GuestReceive => "guest receive",
            Segment::Service => "service",
            Segment::Card => "card",
            Segment::HostReceive => "host receive",
            Segment::Guest => "guest",
            Segment::HostSend => "host send",
        }
    }
}

/// How long packets took for one part of their way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SegmentResult {
    /// Which part.
    pub segment: Segment,
    /// The time in it, for each latency that was counted.
    pub time: Histogram,
}

/// What a request spent its time with in a Linux host's network stack, finer than segments. Each is the cost
/// of a step, or waiting for it; the parts of a request add up to its response time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HostPart {
    /// In the card until it interrupts.
    CardReceive,
    /// The hard IRQ, with waiting for others.
    Interrupt,
    /// The IRQ thread waits for its processor.
    IrqThreadWait,
    /// The IRQ thread before its softirq.
    IrqThread,
    /// Waiting for the softirq lock.
    LockWait,
    /// The softirq serves others first, or is preempted.
    SoftirqWait,
    /// The softirq's own work for the request.
    Softirq,
    /// The vNIC thread waits.
    VnicReceiveWait,
    /// The vNIC thread's work.
    VnicReceive,
    /// The vCPU thread waits until it enters the VM.
    VcpuWait,
    /// Waking the vCPU and entering the VM.
    VmEntry,
    /// A process of the host waits until it runs.
    ProcessWait,
    /// Reading again what others' copies evicted from the cache, up to here.
    ReceiveRefill,
    /// In the VM, behind other work of the guest, or while its vCPU does not run.
    GuestWait,
    /// The guest's interrupt.
    GuestInterrupt,
    /// The guest's protocols.
    GuestStack,
    /// The guest's process, with its calls.
    GuestProcess,
    /// A process of the host.
    Process,
    /// Refilling the cache in the VM or process.
    GuestRefill,
    /// The vNIC thread waits, on the way back.
    VnicSendWait,
    /// The vNIC thread's work, on the way back.
    VnicSend,
    /// Waiting for the softirq lock, on the way back.
    SendLockWait,
    /// The softirq serves others first, on the way back.
    SendSoftirqWait,
    /// The softirq's work, on the way back.
    SendSoftirq,
    /// Sending by the host itself waits.
    SendWait,
    /// Sending by the host itself.
    Send,
    /// Refilling the cache, on the way back.
    SendRefill,
    /// In the card, on the way back.
    CardSend,
}

impl HostPart {
    /// All, in the order of a request's way.
    pub const ALL: [HostPart; 28] = [
        HostPart::CardReceive,
        HostPart::Interrupt,
        HostPart::IrqThreadWait,
        HostPart::IrqThread,
        HostPart::LockWait,
        HostPart::SoftirqWait,
        HostPart::Softirq,
        HostPart::VnicReceiveWait,
        HostPart::VnicReceive,
        HostPart::VcpuWait,
        HostPart::VmEntry,
        HostPart::ProcessWait,
        HostPart::ReceiveRefill,
        HostPart::GuestWait,
        HostPart::GuestInterrupt,
        HostPart::GuestStack,
        HostPart::GuestProcess,
        HostPart::Process,
        HostPart::GuestRefill,
        HostPart::VnicSendWait,
        HostPart::VnicSend,
        HostPart::SendLockWait,
        HostPart::SendSoftirqWait,
        HostPart::SendSoftirq,
        HostPart::SendWait,
        HostPart::Send,
        HostPart::SendRefill,
        HostPart::CardSend,
    ];

    /// The segment that it is a part of.
    pub fn segment(self) -> Segment {
        match self {
            HostPart::CardReceive | HostPart::CardSend => Segment::Card,
            part if part <= HostPart::ReceiveRefill => Segment::HostReceive,
            part if part <= HostPart::GuestRefill => Segment::Guest,
            _ => Segment::HostSend,
        }
    }

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            HostPart::CardReceive => "card",
            HostPart::Interrupt => "interrupt",
            HostPart::IrqThreadWait => "IRQ thread waits",
            HostPart::IrqThread => "IRQ thread",
            HostPart::LockWait => "softirq lock",
            HostPart::SoftirqWait => "softirq for others",
            HostPart::Softirq => "softirq",
            HostPart::VnicReceiveWait => "vNIC thread waits",
            HostPart::VnicReceive => "vNIC thread",
            HostPart::VcpuWait => "vCPU waits",
            HostPart::VmEntry => "VM entry",
            HostPart::ProcessWait => "process waits",
            HostPart::ReceiveRefill => "cache refill",
            HostPart::GuestWait => "guest waits",
            HostPart::GuestInterrupt => "guest interrupt",
            HostPart::GuestStack => "guest protocols",
            HostPart::GuestProcess => "guest process",
            HostPart::Process => "process",
            HostPart::GuestRefill => "cache refill, guest",
            HostPart::VnicSendWait => "vNIC thread waits, sending",
            HostPart::VnicSend => "vNIC thread, sending",
            HostPart::SendLockWait => "softirq lock, sending",
            HostPart::SendSoftirqWait => "softirq for others, sending",
            HostPart::SendSoftirq => "softirq, sending",
            HostPart::SendWait => "sending waits",
            HostPart::Send => "sending",
            HostPart::SendRefill => "cache refill, sending",
            HostPart::CardSend => "card, sending",
        }
    }
}

/// How long requests took for one part of their way through a Linux host's network stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostPartResult {
    /// Which part.
    pub part: HostPart,
    /// The time in it, for each request that was answered.
    pub time: Histogram,
}

/// Packets that were dropped, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DropCounts {
    /// The sending guest's queue in front of its TX ring was full (1000 packets).
    pub send_queue: u64,
    /// The network card's ring was full.
    pub nic: u64,
    /// The softnet queue was full.
    pub softnet: u64,
    /// The receiving guest's RX ring was full.
    pub destination_ring: u64,
    /// Live: packets of which no guest knows more than that they were sent: lost on their way (the ports of
    /// the switch say why), or on their way when the run ended.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unknown: u64,
}

impl DropCounts {
    /// All reasons together.
    pub fn total(&self) -> u64 {
        // A file may say anything.
        let rest = [self.nic, self.softnet, self.destination_ring, self.unknown];
        rest.into_iter().fold(self.send_queue, u64::saturating_add)
    }

    /// Adds what `other` counted.
    pub fn merge(&mut self, other: &DropCounts) {
        self.send_queue += other.send_queue;
        self.nic += other.nic;
        self.softnet += other.softnet;
        self.destination_ring += other.destination_ring;
        self.unknown += other.unknown;
    }
}

/// Packets of a flow or chain. Created are delivered, dropped and in flight at the end, together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PacketCounts {
    /// Packets created, answers and acknowledgements included.
    pub created: u64,
    /// Packets that reached their receiver.
    pub delivered: u64,
    /// Packets that did not.
    pub dropped: DropCounts,
    /// Packets on their way when the run ended.
    pub in_flight: u64,
    /// Bytes delivered to the flow's `to`; of a stream, in order and each once.
    pub bytes: u64,
}

impl PacketCounts {
    /// Adds what `other` counted.
    pub fn merge(&mut self, other: &PacketCounts) {
        self.created += other.created;
        self.delivered += other.delivered;
        self.dropped.merge(&other.dropped);
        self.in_flight += other.in_flight;
        self.bytes += other.bytes;
    }
}

/// What the congestion control of a stream did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CongestionResult {
    /// `reno` or `cubic`.
    pub control: String,
    /// Losses that duplicate acknowledgements showed.
    pub fast_retransmits: u64,
    /// The congestion window at the end, in packets; of several runs, the greatest.
    pub window: u32,
    /// The greatest congestion window, in packets.
    pub window_max: u32,
    /// The slow start threshold at the end, in packets, once there was a loss; of several runs, the greatest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<u32>,
    /// The smoothed round trip at the end, once one was measured; of several runs, the longest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub srtt_ns: Option<u64>,
    /// The retransmission timeout at the end; of several runs, the longest.
    pub rto_ns: u64,
}

impl CongestionResult {
    fn merge(&mut self, other: &CongestionResult) {
        self.fast_retransmits += other.fast_retransmits;
        self.window = self.window.max(other.window);
        self.window_max = self.window_max.max(other.window_max);
        self.threshold = self.threshold.max(other.threshold);
        self.srtt_ns = self.srtt_ns.max(other.srtt_ns);
        self.rto_ns = self.rto_ns.max(other.rto_ns);
    }
}

/// Adds what the congestion control of the same stream did in another run.
pub(super) fn merge_congestion(own: &mut Option<CongestionResult>, other: Option<&CongestionResult>) {
    match (own, other) {
        (Some(own), Some(other)) => own.merge(other),
        (own, other) => *own = own.take().or_else(|| other.cloned()),
    }
}

/// What one flow did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FlowResult {
    /// The flow's name.
    pub name: String,
    /// The network's name.
    pub network: String,
    /// What it sends: `ping`, `request`, `periodic`, `goose`, `stream` or `storm`.
    pub kind: String,
    /// Who begins.
    pub from: String,
    /// Who receives.
    pub to: String,
    /// Its packets.
    pub packets: PacketCounts,
    /// Answers that did not come in time; of a stream, silences after which it sent again.
    pub timeouts: u64,
    /// Packets of a stream sent again.
    pub retransmissions: u64,
    /// The flow's deadline, in ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ns: Option<u64>,
    /// Packets, or answers, that came after the deadline. Those that were lost are not among them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub late: u64,
    /// The window of a stream with TCP's congestion control.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<CongestionResult>,
    /// From creation to reception; of `ping` and `request` from the request's creation to the answer's
    /// reception.
    pub latency: Histogram,
    /// Where that time went. A segment in which no packet spent any time is left out.
    pub segments: Vec<SegmentResult>,
    /// What the segments of a Linux host's network stack consist of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<HostPartResult>,
}

impl FlowResult {
    /// Packets that were late or lost.
    pub fn beyond(&self) -> u64 {
        self.late.saturating_add(self.packets.dropped.total())
    }

    /// Was a packet of a flow with a deadline late or lost?
    pub fn missed(&self) -> bool {
        self.deadline_ns.is_some() && self.beyond() > 0
    }
}

/// What one chain did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChainResult {
    /// The chain's name.
    pub name: String,
    /// Its steps: the domain, a dot and the task.
    pub steps: Vec<String>,
    /// From the release of the first step to the chain's deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ns: Option<u64>,
    /// From the release of the first step to the end of the last; `start_latency` is that of the first step.
    pub jobs: JobStats,
    /// The packets between steps.
    pub packets: PacketCounts,
    /// Where the packets' time went.
    pub segments: Vec<SegmentResult>,
}

/// What one driver domain did for its network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NetworkResult {
    /// The network's name.
    pub name: String,
    /// The driver domain's name.
    pub driver: String,
    /// The discipline's name.
    pub discipline: String,
    /// Packets processed in the TX stage.
    pub tx: u64,
    /// Packets processed in the softnet stage.
    pub softnet: u64,
    /// Packets processed in the RX stage.
    pub rx: u64,
    /// Events that the driver domain handled.
    pub events_handled: u64,
    /// Events sent to guests.
    pub events_sent: u64,
}

/// Adds the segments of another run of the same flow.
pub(super) fn merge_segments(into: &mut Vec<SegmentResult>, other: &[SegmentResult]) {
    for part in other {
        match into.binary_search_by_key(&part.segment, |p| p.segment) {
            Ok(at) => into[at].time.merge(&part.time),
            Err(at) => into.insert(at, part.clone()),
        }
    }
}

/// Adds the parts of another run of the same server.
pub(super) fn merge_parts(into: &mut Vec<HostPartResult>, other: &[HostPartResult]) {
    for one in other {
        match into.binary_search_by_key(&one.part, |p| p.part) {
            Ok(at) => into[at].time.merge(&one.time),
            Err(at) => into.insert(at, one.clone()),
        }
    }
}
