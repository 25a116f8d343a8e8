//! Keys of networks, flows and chains.

use punctual_net::discipline::{COUNT_MAX, RING_SLOTS_DEFAULT};
use punctual_sched::servers::deferrable;

use crate::file::copies::COPY_KEYS;
use crate::file::key::{ANY_TIME, KeyInfo, Kind, OptionTables, SOME_TIME, TableInfo, key, required};
use crate::file::limits::GUEST_COST_MIN;
use crate::file::quantity::WHOLE;
use crate::network::BYTES;

const PACKETS: Kind = Kind::Count { min: 1, max: COUNT_MAX as u64 };
const LENGTH: Kind = Kind::Count { min: BYTES.start as u64, max: BYTES.end as u64 - 1 };
const GUEST_COST: Kind = Kind::Duration { min: GUEST_COST_MIN };

/// Spellings of [`punctual_net::event_channel::Scan`].
pub(crate) const SCANS: [&str; 3] = ["resume", "first", "word"];
/// Spellings of [`crate::network::EventHandling`].
pub(crate) const EVENTS: [&str; 2] = ["first", "one-by-one"];
/// Spellings of [`crate::network::Transport`].
pub(crate) const TRANSPORTS: [&str; 2] = ["frames", "sockets"];
/// Spellings of [`punctual_jobs::stream::Control`].
pub(crate) const CONTROLS: [&str; 3] = ["basic", "reno", "cubic"];
/// Spellings of [`crate::network::Traffic`].
pub(crate) const KINDS: [&str; 6] = ["ping", "request", "periodic", "goose", "stream", "storm"];

/// A network.
pub(crate) static NETWORK: TableInfo = TableInfo {
    title: "[network.NAME]",
    keys: &[
        required(
            "driver",
            Kind::NameOf("domain"),
            "The driver domain: it does the network's work on its first vCPU, ahead of its own tasks.",
        ),
        key(
            "transport",
            Kind::Word(&TRANSPORTS),
            Some("frames"),
            "Live: a switch and network cards, or datagrams that guests have from sockets of the host; then \
             the driver domain represents the threads that make the guests' calls.",
        ),
        key(
            "discipline",
            Kind::Discipline,
            Some("netback"),
            "Which packet the driver domain processes next. Its options go into a table of the discipline's \
             name.",
        ),
        key(
            "scan",
            Kind::Word(&SCANS),
            Some("resume"),
            "Where the driver domain looks for the next pending event: after the last one handled (vmm-io \
             s.4.1, the fix), at port 0, or at the start of the current word of 64 ports (as that paper \
             found it).",
        ),
        key(
            "events",
            Kind::Word(&EVENTS),
            Some("first"),
            "All pending events before the next packet (Linux 3.x), or one by one with the packets that each \
             brought (Linux 2.6.18).",
        ),
        key(
            "mtu",
            Kind::Count { min: MTU_MIN, max: MTU_MAX },
            Some("no limit"),
            "Live: the most bytes after a frame's addresses, type and VLAN tag. Guests get it as their MTU; \
             longer frames are dropped.",
        ),
        key(
            "plane",
            Kind::Named(&PLANE),
            Some("`urgent` and `rest`"),
            "Live: a thread of the switch for interfaces of some priorities.",
        ),
        key("costs", Kind::Table(&COSTS), None, "Processor time of each step."),
        key("nic", Kind::Table(&NIC), None, "The network card and its link."),
        key("outside", Kind::Named(&OUTSIDE), None, "A host beyond the network card."),
        key(
            "interface",
            Kind::Named(&INTERFACE),
            None,
            "A guest's interface, by the domain's name. Guests of flows and chains that have none get one \
             with the defaults.",
        ),
    ],
    shared: &[],
    options: OptionTables::Disciplines,
};

/// A network's costs. Defaults: a current x86 server at a few GHz, in round numbers.
pub(crate) static COSTS: TableInfo = TableInfo {
    title: "the costs of a network",
    keys: &[
        key("guest_send", GUEST_COST, Some("3us"), "A guest sends a packet: its network stack and netfront."),
        key(
            "guest_receive",
            GUEST_COST,
            Some("3us"),
            "A guest receives a packet: netfront and its network stack.",
        ),
        key(
            "guest_wake",
            ANY_TIME,
            Some("0ns"),
            "Added to the first packet that a guest sends or receives after it had no packets to carry: its \
             processor leaves the idle state, a thread is scheduled.",
        ),
        key(
            "guest_wake_p10",
            ANY_TIME,
            None,
            "A tenth of the wake-ups cost at most this; guest_wake is then their median. Without it, \
             guest_wake.",
        ),
        key(
            "guest_wake_p90",
            ANY_TIME,
            None,
            "Nine tenths of the wake-ups cost at most this. Without it, guest_wake.",
        ),
        key(
            "guest_wake_p99",
            ANY_TIME,
            None,
            "99 of 100 wake-ups cost at most this, and none costs more. Without it, guest_wake_p90.",
        ),
        key(
            "guest_wake_busy",
            ANY_TIME,
            None,
            "The same as guest_wake if the processor on which the guest executed last is not idle when it is \
             woken. Without it and its quantiles, those of guest_wake.",
        ),
        key(
            "guest_wake_busy_p10",
            ANY_TIME,
            None,
            "A tenth of those wake-ups cost at most this. Without it, guest_wake_busy.",
        ),
        key(
            "guest_wake_busy_p90",
            ANY_TIME,
            None,
            "Nine tenths of those wake-ups cost at most this. Without it, guest_wake_busy.",
        ),
        key(
            "guest_wake_busy_p99",
            ANY_TIME,
            None,
            "99 of 100 of those wake-ups cost at most this, and none costs more. Without it, \
             guest_wake_busy_p90.",
        ),
        key(
            "guest_send_per_kib",
            ANY_TIME,
            Some("0ns"),
            "Added to guest_send for each 1024 bytes of the packet.",
        ),
        key(
            "guest_receive_per_kib",
            ANY_TIME,
            Some("0ns"),
            "Added to guest_receive for each 1024 bytes of the packet.",
        ),
        key(
            "guest_resume",
            ANY_TIME,
            Some("0ns"),
            "Added to the first packet that a guest sends or receives after it was without its processor for \
             a millisecond or longer while it had packets to carry: its kernel catches up with missed ticks.",
        ),
        key("event", ANY_TIME, Some("1us"), "Sending an event to another domain."),
        key("interrupt", ANY_TIME, Some("1us"), "Handling an event or interrupt that arrived."),
        key("tx", ANY_TIME, Some("2us"), "The TX stage, a packet."),
        key("softnet", ANY_TIME, Some("2us"), "The softnet stage, a packet."),
        key("rx", ANY_TIME, Some("2us"), "The RX stage, a packet."),
        key(
            "round",
            ANY_TIME,
            Some("500ns"),
            "Added to the first packet of a round: the kernel thread is scheduled, the softirq raised.",
        ),
        key(
            "copy_per_kib",
            ANY_TIME,
            Some("200ns"),
            "Copying to a guest in the RX stage, for each 1024 bytes.",
        ),
        key("nic_receive", ANY_TIME, Some("1us"), "Added to softnet for a packet from the network card."),
        key("nic_send", ANY_TIME, Some("1us"), "Added to softnet for a packet to the network card."),
        key(
            "jitter",
            Kind::Percent { max: WHOLE },
            None,
            "Every cost varies: a uniformly distributed part of it from 0 to this is added, from the \
             network's own seeded stream.",
        ),
    ],
    shared: &[],
    options: OptionTables::None,
};

/// A network card.
pub(crate) static NIC: TableInfo = TableInfo {
    title: "the card of a network",
    keys: &[
        key("bandwidth", Kind::Bandwidth, Some("1Gbit/s"), "Of the link, each way."),
        key("delay", ANY_TIME, Some("10us"), "Of the link, one way."),
        key(
            "ring_slots",
            PACKETS,
            Some("256"),
            "Packets that wait in the card for the driver domain; more are dropped.",
        ),
    ],
    shared: &[],
    options: OptionTables::None,
};

static OUTSIDE: TableInfo = TableInfo {
    title: "[network.NET.outside.NAME]",
    keys: &[
        key("delay", ANY_TIME, Some("0ns"), "One way, beyond the network card's link."),
        key("turnaround", ANY_TIME, Some("20us"), "How long the host takes to answer a packet."),
        VLAN,
        TRUNK,
    ],
    shared: &[],
    options: OptionTables::None,
};

static INTERFACE: TableInfo = TableInfo {
    title: "[network.NET.interface.NAME]",
    keys: &[
        key(
            "priority",
            Kind::Count { min: 0, max: u32::MAX as u64 },
            Some("that of the domain"),
            "Priority of the guest's packets; a smaller number is more urgent.",
        ),
        key(
            "batch",
            PACKETS,
            Some("the discipline's"),
            "Packets processed in a stage before the next stage gets its turn.",
        ),
        key(
            "softnet_limit",
            PACKETS,
            Some("the discipline's"),
            "Packets that wait in the softnet queue of this priority; more are dropped.",
        ),
        key("ring_slots", PACKETS, Some(RING_SLOTS), "Slots of the TX ring and of the RX ring."),
        key(
            "credit_bytes",
            Kind::Count { min: 1, max: i64::MAX as u64 },
            Some("no limit"),
            "Bytes that the guest may send per `credit_window`.",
        ),
        key("credit_window", SOME_TIME, Some("50ms"), "How often `credit_bytes` are credited."),
        key(
            "burst_bytes",
            Kind::Count { min: 1, max: i64::MAX as u64 },
            Some("credit_bytes"),
            "Credit that an idle guest saves up at most.",
        ),
        key(
            "pcp",
            Kind::Table(&PCP),
            None,
            "Priorities of the guest's frames by the priority code point (PCP) of their VLAN tag, for \
             example `{ 4 = 1, 6 = 2 }`; others have `priority`. So do frames from outside to the guest, in \
             simulations.",
        ),
        VLAN,
        TRUNK,
        key(
            "groups",
            Kind::Texts,
            Some("none"),
            "Live: group addresses, or ranges of them, whose frames the guest sends or receives \
             (`\"01:0c:cd:04:00:00-01:0c:cd:04:01:ff\"`). They go to the interfaces that name them and to \
             uplinks, however many they are.",
        ),
    ],
    shared: &[],
    options: OptionTables::None,
};

/// The priority of the frames with a PCP.
const fn class(pcp: &'static str, help: &'static str) -> KeyInfo {
    key(pcp, Kind::Count { min: 0, max: u32::MAX as u64 }, Some("`priority`"), help)
}

/// Priorities by PCP, which is the name of a key (IEEE 802.1Q, table I-2 has the usual traffic types).
pub(crate) static PCP: TableInfo = TableInfo {
    title: "priorities by PCP",
    keys: &[
        class(
            "0",
            "Priority of frames whose tag has PCP 0: best effort. Frames without a tag have `priority`.",
        ),
        class("1", "PCP 1: background."),
        class("2", "PCP 2: excellent effort."),
        class("3", "PCP 3: critical applications."),
        class("4", "PCP 4: video; GOOSE and sampled values (IEC 61850-8-1, IEC 61850-9-2)."),
        class("5", "PCP 5: voice."),
        class("6", "PCP 6: internetwork control."),
        class("7", "PCP 7: network control."),
    ],
    shared: &[],
    options: OptionTables::None,
};

/// The PCP of what a flow or chain sends.
const TAG: KeyInfo = key(
    "pcp",
    Kind::Count { min: 0, max: 7 },
    Some("no tag"),
    "Priority code point of the packets' VLAN tag, in both directions. They have the priority that the \
     `pcp` of the guest's interface gives it: of the sender, of the receiver if they come from outside.",
);

/// The least MTU of virtio-net (virtio 1.2, section 5.1.4.1), and what fits into the longest frame.
const MTU_MIN: u64 = 68;
const MTU_MAX: u64 = 65_535;

/// The greatest number of a VLAN (IEEE 802.1Q).
pub(crate) const VLAN_MAX: u64 = 4094;

/// VLANs of a network at most.
pub(crate) const VLANS_MAX: usize = 126;

/// Entries of `groups` at most.
pub(crate) const GROUPS_MAX: usize = 64;

/// Planes of a network at most.
pub(crate) const PLANES_MAX: usize = 8;

const VLAN: KeyInfo = key(
    "vlan",
    Kind::Count { min: 1, max: VLAN_MAX },
    Some("1 if the network has VLANs"),
    "Live: the VLAN of frames without a tag.",
);

const TRUNK: KeyInfo =
    key("trunk", Kind::Numbers, None, "Live: VLANs whose frames the interface sends and gets with a tag.");

/// A plane of the live switch.
static PLANE: TableInfo = TableInfo {
    title: "[network.NET.plane.NAME]",
    keys: &[
        key(
            "up_to",
            Kind::Count { min: 0, max: u32::MAX as u64 },
            Some("all others"),
            "The plane serves interfaces with a priority number up to this that no more urgent plane serves. \
             One plane has no `up_to` and serves the rest.",
        ),
        key("processors", Kind::Numbers, Some("as of the run"), "Processors of its threads."),
        key(
            "fifo",
            Kind::Count { min: 1, max: 98 },
            Some("as of the run"),
            "Priority of its threads under SCHED_FIFO.",
        ),
        key("poll", ANY_TIME, Some("0ns"), "How long it polls before it sleeps when there are no packets."),
        key(
            "budget",
            SOME_TIME,
            Some("no limit"),
            "Processor time that its threads may take together in each `period`.",
        ),
        key("period", Kind::Period, None, "The period of its replenishment."),
        key("policy", Kind::Policy, Some(deferrable::NAME), "The server policy that replenishes the budget."),
    ],
    shared: &[],
    options: OptionTables::None,
};

const RING_SLOTS: &str = "256";
const _: () = assert!(RING_SLOTS_DEFAULT == 256);

/// A flow.
pub(crate) static FLOW: TableInfo = TableInfo {
    title: "[flow.NAME]",
    keys: &[
        key("network", Kind::NameOf("network"), Some("the only network"), "The network it goes over."),
        required(
            "kind",
            Kind::Word(&KINDS),
            "What is sent: `ping` (the next after the answer), `request` (answered by a task or the kernel), \
             `periodic`, `goose` (events, each repeated at growing distances), `stream` (as TCP) or `storm` \
             (as fast as possible).",
        ),
        required("from", Kind::Endpoint, "The sending end: a domain, or a host outside."),
        required("to", Kind::Endpoint, "The receiving end: a domain, or a host outside."),
        key("bytes", LENGTH, Some("98; stream and storm 1514"), "Length of a packet."),
        key("reply_bytes", LENGTH, Some("bytes"), "`request`: length of an answer."),
        key("start", ANY_TIME, Some("0ns"), "When the flow begins."),
        key(
            "period",
            Kind::Period,
            None,
            "`request`, `periodic`: distance of packets; requests without one follow the answer. `goose`: \
             least distance of events; without it there is one only.",
        ),
        key(
            "count",
            Kind::Count { min: 1, max: i64::MAX as u64 },
            Some("no end"),
            "All but `stream`: requests, bursts or packets in all.",
        ),
        key(
            "deadline",
            SOME_TIME,
            None,
            "From when a packet is created until it is received; of a `ping` or `request`, until the answer \
             is.",
        ),
        TAG,
        key(
            "slack_mean",
            ANY_TIME,
            Some("0ns"),
            "`periodic`, `goose`: mean of an exponentially distributed time added to `period`, from the \
             flow's own seeded stream.",
        ),
        key(
            "retransmit",
            Kind::Period,
            Some("2ms"),
            "`goose`: from an event's message to its first repetition; each later distance is twice as long.",
        ),
        key("heartbeat", Kind::Period, Some("1s"), "`goose`: greatest distance of messages."),
        key("burst", PACKETS, Some("1"), "`periodic`: packets at a time."),
        key("pause", ANY_TIME, Some("0ns"), "`ping`: time from an answer to the next packet."),
        key(
            "timeout",
            SOME_TIME,
            Some("1s; stream 200ms"),
            "`ping`, `request`: when an answer is given up. `stream` (`basic`): silence after which \
             everything unacknowledged is sent again; doubles each time.",
        ),
        key(
            "server",
            Kind::TaskOf,
            None,
            "`request`: the task with `on_packet` in the receiving domain that answers.",
        ),
        key("window", PACKETS, Some("64"), "`stream`: packets on their way at most."),
        key("ack_bytes", LENGTH, Some("66"), "`stream`: length of an acknowledgement."),
        key("ack_every", PACKETS, Some("2"), "`stream`: packets for each acknowledgement."),
        key(
            "congestion_control",
            Kind::Word(&CONTROLS),
            Some("basic"),
            "`stream`: `reno` (RFC 5681, 6582) and `cubic` (RFC 9438) are TCP's, with the retransmission \
             timeout of RFC 6298; `basic` begins with 2 packets, grows and halves as Reno does and has the \
             fixed `timeout`.",
        ),
        key(
            "initial_window",
            PACKETS,
            Some("10"),
            "`reno`, `cubic`: packets on their way at most when the stream begins (RFC 6928; Linux since \
             2.6.39, before: 3).",
        ),
        key(
            "rto_min",
            SOME_TIME,
            Some("200ms"),
            "`reno`, `cubic`: the shortest retransmission timeout (Linux `TCP_RTO_MIN`).",
        ),
        key(
            "interval",
            ANY_TIME,
            Some("0ns"),
            "`storm`: least distance of packets; required for a host outside.",
        ),
    ],
    shared: &[&COPY_KEYS],
    options: OptionTables::None,
};

/// A chain.
pub(crate) static CHAIN: TableInfo = TableInfo {
    title: "[chain.NAME]",
    keys: &[
        key(
            "network",
            Kind::NameOf("network"),
            Some("the only network"),
            "The network between steps in different domains.",
        ),
        required(
            "steps",
            Kind::TasksOf,
            "The tasks, `\"DOMAIN.TASK\"`: the first releases itself, each other one has `on_packet` and is \
             released when the job before it is done and its packet has arrived.",
        ),
        key("bytes", LENGTH, Some("98"), "Length of a packet between two steps."),
        TAG,
        required("deadline", SOME_TIME, "From the release of the first step to the end of the last."),
    ],
    shared: &[],
    options: OptionTables::None,
};
