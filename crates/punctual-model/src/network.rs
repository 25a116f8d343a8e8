//! Networks of a [`Host`](crate::Host): the driver domain that connects domains with each other and with the
//! outside, and what is sent over it.
//!
//! The shape is that of Xen's split drivers (Ongaro, Cox, Rixner, *Scheduling I/O in Virtual Machine
//! Monitors*, VEE 2008, section 2 and 3.2; Xi, Li, Lu, Gill, *Limitations and Solutions for Real-Time Local
//! Inter-Domain Communication in Xen*, WUCSE-2012-81, section II): a driver domain owns the network card and
//! runs netback, each guest has an interface in it. Costs are processor time of the domain in which they
//! arise.

use core::ops::Range;
use std::collections::BTreeMap;

pub use punctual_jobs::flow::Goose;
use punctual_jobs::stream::Control;
use punctual_net::InterfaceParams;
use punctual_net::discipline::{DisciplineInfo, Preemption};
use punctual_net::event_channel::Scan;
use punctual_sched::registry::{Options, PolicyInfo};
use punctual_sched::{Duration, UnitParams};

use crate::index::{DomainIx, NetworkIx, TaskIx};

/// A driver domain with the interfaces that it serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// Name.
    pub name: String,
    /// The domain that does the network's work, on its first vCPU. A domain drives one network at most.
    pub driver: DomainIx,
    /// What carries packets to guests on a real host.
    pub transport: Transport,
    /// Which packet is processed next in the driver domain.
    pub discipline: DisciplineChoice,
    /// Which pending event the driver domain handles next.
    pub scan: Scan,
    /// How events and packets alternate in the driver domain.
    pub events: EventHandling,
    /// Processor time of each step.
    pub costs: NetworkCosts,
    /// The network card.
    pub nic: Nic,
    /// The interfaces of guests in the order in which the guests booted, which is that of the domains.
    pub interfaces: Vec<Interface>,
    /// Hosts beyond the network card.
    pub outside: Vec<OutsideHost>,
    /// Live: the planes of the switch, most urgent first; none: the switch's own choice.
    pub planes: Vec<Plane>,
    /// Live: the most bytes after a frame's addresses, type and VLAN tag.
    pub mtu: Option<u32>,
}

/// What carries packets to guests on a real host. The simulator's steps are the same; their costs are not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Transport {
    /// A switch, and a network card in each guest; the driver domain represents the switch.
    #[default]
    Frames,
    /// Datagrams, which each guest has from a socket of the host ([`crate::sockets`]); the driver domain
    /// represents the threads that make the guests' calls.
    Sockets,
}

/// A packet discipline with its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DisciplineChoice {
    /// Which discipline.
    pub info: &'static DisciplineInfo,
    /// Options that differ from the discipline's defaults.
    pub options: Options,
}

/// How the driver domain's kernel alternates between events and packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EventHandling {
    /// All pending events before every packet: packets wait for a kernel thread (Linux 3.x, rtca s.II.D).
    #[default]
    First,
    /// The packets that an event brought before the next event: a softirq runs at the end of each interrupt
    /// (Linux 2.6.18, vmm-io s.4.1).
    OneByOne,
}

/// Processor time of each step. The domain that takes a step spends it in its kernel's interrupt context,
/// ahead of its tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NetworkCosts {
    /// A guest sends a packet: its stack and netfront.
    pub guest_send: Duration,
    /// A guest receives a packet: netfront and its stack.
    pub guest_receive: Duration,
    /// Added to the first packet that a guest sends or receives after its kernel had nothing to do: its
    /// processor leaves the idle state, a thread is scheduled.
    pub guest_wake: WakeCosts,
    /// The same if the processor on which the guest executed last is not idle when it is woken.
    pub guest_wake_busy: WakeCosts,
    /// Sending a packet, for each 1024 bytes.
    pub guest_send_per_kib: Duration,
    /// Receiving a packet, for each 1024 bytes.
    pub guest_receive_per_kib: Duration,
    /// Added to the first packet that a guest sends or receives after it was without its processor for
    /// [`RESUME_MIN`] or longer while it had packets to carry: its kernel catches up with missed ticks.
    pub guest_resume: Duration,
    /// Sending an event to another domain (a hypercall).
    pub event: Duration,
    /// Handling an event or an interrupt that arrived.
    pub interrupt: Duration,
    /// The TX stage, a packet.
    pub tx: Duration,
    /// The softnet stage, a packet.
    pub softnet: Duration,
    /// The RX stage, a packet.
    pub rx: Duration,
    /// Added to the first packet of a round: the kernel thread is scheduled, the softirq raised.
    pub round: Duration,
    /// Copying a packet to a guest in the RX stage, for each 1024 bytes.
    pub copy_per_kib: Duration,
    /// Added to softnet for a packet from the network card.
    pub nic_receive: Duration,
    /// Added to softnet for a packet to the network card.
    pub nic_send: Duration,
    /// Every cost varies: a uniformly distributed part from 0 to this is added, in millionths.
    pub jitter_ppm: u32,
}

/// A shorter time without the processor costs a guest nothing: less than a tick of its kernel at 1000 Hz.
pub const RESUME_MIN: Duration = Duration::from_ms(1);

/// What a wake-up costs, by its quantiles.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WakeCosts {
    /// Half of the wake-ups cost at most this.
    pub median: Duration,
    /// A tenth cost at most this; without it the median.
    pub p10: Option<Duration>,
    /// Nine tenths cost at most this; without it the median.
    pub p90: Option<Duration>,
    /// 99 of 100 cost at most this, and so does the last one; without it the same as `p90`.
    pub p99: Option<Duration>,
}

impl WakeCosts {
    /// A wake-up of which `ppm` millionths cost less: between the quantiles along straight lines.
    pub fn at(&self, ppm: u32) -> Duration {
        let median = self.median;
        let low = self.p10.unwrap_or(median).min(median);
        let high = self.p90.unwrap_or(median).max(median);
        let top = self.p99.unwrap_or(high).max(high);
        let marks = [(0, low), (100_000, low), (500_000, median), (900_000, high), (990_000, top)];
        let after = marks.iter().position(|(mark, _)| ppm < *mark);
        let Some(after) = after.filter(|at| *at > 0) else { return top };
        let ((from, least), (to, most)) = (marks[after - 1], marks[after]);
        let part = u128::from(most.saturating_sub(least).as_ns()) * u128::from(ppm - from);
        least + Duration::from_ns((part / u128::from(to - from)) as u64)
    }

    /// The longest.
    pub fn most(&self) -> Duration {
        self.at(u32::MAX)
    }

    /// Do wake-ups differ?
    pub fn varies(&self) -> bool {
        [self.p10, self.p90, self.p99].iter().any(Option::is_some)
    }
}

impl NetworkCosts {
    /// The longest wake-up of a guest.
    pub fn guest_wake_most(&self) -> Duration {
        self.guest_wake.most().max(self.guest_wake_busy.most())
    }

    /// Sending a packet of so many bytes.
    pub fn guest_sends(&self, bytes: u32) -> Duration {
        self.guest_send + per_kib(self.guest_send_per_kib, bytes)
    }

    /// Receiving a packet of so many bytes.
    pub fn guest_receives(&self, bytes: u32) -> Duration {
        self.guest_receive + per_kib(self.guest_receive_per_kib, bytes)
    }
}

fn per_kib(cost: Duration, bytes: u32) -> Duration {
    let ns = u128::from(cost.as_ns()) * u128::from(bytes) / 1024;
    u64::try_from(ns).map_or(Duration::MAX, Duration::from_ns)
}

/// The network card and its link, the same in both directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nic {
    /// Bits per second.
    pub bandwidth_bps: u64,
    /// Delay of the link, one way.
    pub delay: Duration,
    /// At most this many packets wait in the card for the driver domain.
    pub ring_slots: u32,
}

/// A guest's interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The guest.
    pub domain: DomainIx,
    /// Its parameters under the discipline. The priority is the domain's where the file gives none.
    pub params: InterfaceParams,
    /// Priorities by the priority code point (PCP) of a frame's VLAN tag (IEEE 802.1Q), where they differ
    /// from that of `params`. The frames of each are a *class*: an interface of its own under the discipline.
    pub classes: BTreeMap<u8, u32>,
    /// Live: its VLANs.
    pub vlans: Vlans,
    /// Live: the group addresses whose frames it sends or receives.
    pub groups: Vec<Groups>,
}

/// Frames of an interface with classes that wait in order to be sent, at most, whatever the size of its ring:
/// the switch looks at as many ahead.
pub const CLASS_WINDOW: u32 = 256;

impl Interface {
    /// The priority of frames with this PCP.
    pub fn priority_of(&self, pcp: Option<u8>) -> Option<u32> {
        pcp.and_then(|pcp| self.classes.get(&pcp).copied()).or(self.params.priority)
    }

    /// The priorities of its frames, its own one first.
    pub fn priorities(&self) -> impl Iterator<Item = Option<u32>> {
        [self.params.priority].into_iter().chain(self.classes.values().copied().map(Some))
    }
}

/// Group addresses (multicast), both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    /// The first one.
    pub first: [u8; 6],
    /// The last one.
    pub last: [u8; 6],
}

impl Groups {
    /// Reads `01:0c:cd:04:00:01`, or two of them with `-` between. `None`: these are no group addresses, or
    /// the second one is before the first one.
    pub fn parse(text: &str) -> Option<Groups> {
        let address = |text: &str| {
            let mut address = [0; 6];
            let mut parts = text.split(':');
            for byte in &mut address {
                let part = parts.next()?;
                let is_hex = part.len() == 2 && part.bytes().all(|digit| digit.is_ascii_hexdigit());
                let part = Some(part).filter(|_| is_hex)?;
                *byte = u8::from_str_radix(part, 16).ok()?;
            }
            // The lowest bit of the first byte makes a group (IEEE 802).
            (parts.next().is_none() && address[0] & 1 == 1).then_some(address)
        };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let groups = Groups { first: address(first)?, last: address(last)? };
        (groups.first <= groups.last).then_some(groups)
    }

    /// Is this one of them?
    pub fn contains(&self, address: [u8; 6]) -> bool {
        (self.first..=self.last).contains(&address)
    }
}

impl std::fmt::Display for Groups {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let address =
            |[a, b, c, d, e, f]: [u8; 6]| format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}");
        f.write_str(&address(self.first))?;
        if self.first != self.last {
            write!(f, "-{}", address(self.last))?;
        }
        Ok(())
    }
}

/// A host beyond the network card; it is never short of processor time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutsideHost {
    /// Name.
    pub name: String,
    /// One way, beyond the network card's link.
    pub delay: Duration,
    /// How long it takes to answer a packet.
    pub turnaround: Duration,
    /// Live: its VLANs.
    pub vlans: Vlans,
}

/// The VLAN of interfaces for which a file says nothing, on a network with VLANs (Linux's bridge:
/// `default_pvid`).
pub const DEFAULT_VLAN: u16 = 1;

/// The VLANs of an interface (IEEE 802.1Q).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vlans {
    /// That of frames without a tag.
    pub untagged: Option<u16>,
    /// Those whose frames have a tag.
    pub tagged: Vec<u16>,
}

impl Vlans {
    /// Does the file say anything?
    pub fn are_given(&self) -> bool {
        self.untagged.is_some() || !self.tagged.is_empty()
    }
}

/// A thread of the live switch, which serves what the interfaces of some priorities send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plane {
    /// Name.
    pub name: String,
    /// Interfaces with a priority number up to this are in it, unless a plane before has them; `None`: all.
    pub up_to: Option<u32>,
    /// Processors of its threads; none: as the run decides.
    pub processors: Vec<usize>,
    /// Priority of its threads under SCHED_FIFO; `None`: as the run decides.
    pub fifo: Option<u32>,
    /// How long it polls before it sleeps.
    pub poll: Duration,
    /// Processor time of its threads, if that is limited.
    pub budget: Option<PlaneBudget>,
}

/// The budget of a plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaneBudget {
    /// The policy by whose rules it comes back.
    pub policy: &'static PolicyInfo,
    /// Budget and period.
    pub params: UnitParams,
}

/// An end of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Endpoint {
    /// A guest.
    Guest(DomainIx),
    /// A host beyond the network card: index into [`Network::outside`].
    Outside(usize),
}

/// Packets from one end to another, and back where they are answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Name.
    pub name: String,
    /// The network.
    pub network: NetworkIx,
    /// The end that begins.
    pub from: Endpoint,
    /// The end that receives, and answers where the traffic has answers.
    pub to: Endpoint,
    /// When it begins.
    pub start: Duration,
    /// Number of requests, bursts or packets; `None`: without end.
    pub count: Option<u64>,
    /// From creation to reception, of requests to the answer's reception.
    pub deadline: Option<Duration>,
    /// The PCP of the VLAN tag of its packets in both directions; `None`: they have no tag.
    pub pcp: Option<u8>,
    /// What is sent.
    pub traffic: Traffic,
}

/// What a flow sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Traffic {
    /// The next packet follows the answer to the one before, or its loss; the receiver's kernel answers.
    Ping {
        /// Length of packet and answer.
        bytes: u32,
        /// Time after which an answer is given up.
        timeout: Duration,
        /// Time between answer and next packet.
        pause: Duration,
    },
    /// Requests with an answer each, from a task if one is given.
    Request {
        /// Length of a request.
        bytes: u32,
        /// Length of an answer.
        reply_bytes: u32,
        /// Distance of requests, whether answered or not; without one the next follows the answer.
        period: Option<Duration>,
        /// Time after which an answer is given up.
        timeout: Duration,
        /// The task that answers: its job is released by the request, and its end is the answer.
        server: Option<TaskIx>,
    },
    /// Packets without an answer.
    Periodic {
        /// Length of a packet.
        bytes: u32,
        /// Least distance of bursts.
        period: Duration,
        /// Mean of an exponentially distributed time added to it.
        slack_mean: Duration,
        /// Packets at a time.
        burst: u32,
    },
    /// Messages of a GOOSE publisher (IEC 61850-8-1), without an answer: at each event, and repeated at
    /// growing distances until the next one.
    Goose {
        /// Length of a packet.
        bytes: u32,
        /// Least distance of events; without it there is one only.
        period: Option<Duration>,
        /// Mean of an exponentially distributed time added to it.
        slack_mean: Duration,
        /// From an event's message to the first repetition; each later distance is twice as long.
        retransmit: Duration,
        /// Greatest distance of messages.
        heartbeat: Duration,
    },
    /// As many packets as the receiver's acknowledgements allow, as in TCP: slow start, a window, halved on a
    /// loss.
    Stream {
        /// Length of a packet.
        bytes: u32,
        /// Length of an acknowledgement.
        ack_bytes: u32,
        /// At most this many packets are on their way.
        window: u32,
        /// Packets for each acknowledgement.
        ack_every: u32,
        /// How the sender finds its congestion window, and how long a silence may last.
        control: Control,
    },
    /// Packets without an answer, as fast as the sender can or one per `interval`.
    Storm {
        /// Length of a packet.
        bytes: u32,
        /// Least distance of packets.
        interval: Duration,
    },
}

impl Traffic {
    /// The longest packet that is sent, in bytes.
    pub fn bytes_max(&self) -> u32 {
        match *self {
            Traffic::Ping { bytes, .. }
            | Traffic::Periodic { bytes, .. }
            | Traffic::Goose { bytes, .. }
            | Traffic::Storm { bytes, .. } => bytes,
            Traffic::Request { bytes, reply_bytes, .. } => bytes.max(reply_bytes),
            Traffic::Stream { bytes, ack_bytes, .. } => bytes.max(ack_bytes),
        }
    }

    /// When it sends, if it is GOOSE.
    pub fn goose(&self) -> Option<Goose> {
        let Traffic::Goose { period, slack_mean, retransmit, heartbeat, .. } = *self else { return None };
        Some(Goose {
            period_ns: period.map(Duration::as_ns),
            slack_mean_ns: slack_mean.as_ns(),
            retransmit_ns: retransmit.as_ns(),
            heartbeat_ns: heartbeat.as_ns(),
        })
    }

    /// Its name in host files and results.
    pub fn kind(&self) -> &'static str {
        match self {
            Traffic::Ping { .. } => "ping",
            Traffic::Request { .. } => "request",
            Traffic::Periodic { .. } => "periodic",
            Traffic::Goose { .. } => "goose",
            Traffic::Stream { .. } => "stream",
            Traffic::Storm { .. } => "storm",
        }
    }
}

/// Tasks that release each other: when a job of one ends, a packet releases a job of the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Name.
    pub name: String,
    /// The network, for steps in different domains.
    pub network: NetworkIx,
    /// The tasks: the first releases itself, each other one is released by the one before.
    pub steps: Vec<TaskIx>,
    /// Length of a packet between two steps.
    pub bytes: u32,
    /// The PCP of the packets' VLAN tag; `None`: they have no tag.
    pub pcp: Option<u8>,
    /// From the release of the first step to the end of the last.
    pub deadline: Duration,
}

/// Lengths of packets that a host file may give, in bytes: from an empty Ethernet frame to the largest
/// segment that Linux hands over at once.
pub const BYTES: Range<u32> = 64..65_537;

impl Network {
    /// Does an interface or a host outside have VLANs?
    pub fn has_vlans(&self) -> bool {
        let interfaces = self.interfaces.iter().map(|one| &one.vlans);
        interfaces.chain(self.outside.iter().map(|one| &one.vlans)).any(Vlans::are_given)
    }

    /// Does its discipline treat packets by priority? Otherwise frames have no classes either.
    pub fn has_priorities(&self) -> bool {
        self.discipline.info.preemption != Preemption::None
    }

    /// The interface of `domain`.
    pub fn interface_of(&self, domain: DomainIx) -> Option<usize> {
        self.interfaces.iter().position(|interface| interface.domain == domain)
    }
}
