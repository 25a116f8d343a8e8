//! Messages about flows and chains: a guest's ends of flows, its steps of chains, and what it measured.

use punctual_jobs::stream::Control;
use serde::{Deserialize, Serialize};

use super::bounds::BUCKETS_MAX;

/// A guest's part of a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// The interface's Ethernet address. With `datagrams`, a socket address: four bytes of IPv4 address, two
    /// of port.
    pub ethernet: [u8; 6],
    /// Packets are datagrams on a socket that the host makes for the guest.
    pub datagrams: bool,
    pub flows: Vec<FlowEnd>,
    pub steps: Vec<ChainStep>,
}

/// One end of a flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowEnd {
    /// The flow's number, the same at both ends.
    pub owner: u16,
    /// The other end's Ethernet address.
    pub peer: [u8; 6],
    /// This end sends first. The other one receives, and answers.
    pub begins: bool,
    pub traffic: Traffic,
    pub start_ns: u64,
    /// Latencies above this are counted.
    pub deadline_ns: Option<u64>,
    /// Most requests, bursts or packets; no limit without it.
    pub count: Option<u64>,
    /// Seed of the flow's random numbers; see [`punctual_jobs::flow::seed`].
    pub seed: u64,
    /// At the answering end: the place of the task that answers requests.
    pub server: Option<usize>,
    /// Delay of an answer where no task gives it.
    pub turnaround_ns: u64,
    /// Priority code point of the frames' VLAN tag; without it they have none.
    pub pcp: Option<u8>,
}

/// A flow's traffic, as in the host file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Traffic {
    /// One packet at a time: the next one follows the answer to the last one, or its loss.
    Ping { bytes: u32, timeout_ns: u64, pause_ns: u64 },
    /// Requests, each with an answer.
    Request { bytes: u32, reply_bytes: u32, period_ns: Option<u64>, timeout_ns: u64 },
    /// Packets without an answer.
    Periodic { bytes: u32, period_ns: u64, slack_mean_ns: u64, burst: u32 },
    /// Messages of a GOOSE publisher; see [`punctual_jobs::flow::Goose`].
    Goose { bytes: u32, period_ns: Option<u64>, slack_mean_ns: u64, retransmit_ns: u64, heartbeat_ns: u64 },
    /// As many packets as the window and the receiver's acknowledgements allow.
    Stream { bytes: u32, ack_bytes: u32, window: u32, ack_every: u32, control: Control },
    /// Packets without an answer, as fast as the sender can or one per `interval_ns`.
    Storm { bytes: u32, interval_ns: u64 },
}

/// A step of a chain in this guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChainStep {
    /// The chain's number; chains are numbered after flows.
    pub owner: u16,
    /// The step's number, from 0.
    pub step: u8,
    /// The place of the step's task.
    pub task: usize,
    pub next: Next,
    /// Length of a packet to the next step.
    pub bytes: u32,
    /// Priority code point of its VLAN tag; without it it has none.
    pub pcp: Option<u8>,
    /// From the release of the first step to the end of the last.
    pub deadline_ns: u64,
}

/// Where a chain goes when a job of a step ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Next {
    /// To the task at this place, in the same guest.
    Here(usize),
    /// To the guest with this Ethernet address.
    There([u8; 6]),
    /// Nowhere: this was the last step.
    End,
}

/// Measurements at one end of a flow, or of a chain's steps in one guest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowReport {
    pub owner: u16,
    /// Packets created at this end.
    pub created: u64,
    /// Packets that arrived at this end.
    pub delivered: u64,
    /// Packets dropped because the send queue was full.
    pub send_queue: u64,
    /// Bytes delivered; a stream counts bytes once, and in order.
    pub bytes: u64,
    /// Answers that came late or never; for a stream, retransmission timeouts.
    pub timeouts: u64,
    pub retransmissions: u64,
    /// Latencies above the flow's deadline.
    pub late: u64,
    /// Chains that ended here by a deadline within the run.
    pub in_time: u64,
    /// A flow's latencies, or the times from first release to end of chains that ended here.
    pub latency: Times,
    /// How long after their deadlines chains ended here; 0 for those in time.
    pub tardiness: Times,
}

/// A distribution of durations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Times {
    pub min_ns: u64,
    pub max_ns: u64,
    pub sum_ns: u64,
    /// Least value and count of each bucket of a [`punctual_jobs::histogram`].
    pub buckets: Vec<(u64, u32)>,
}

impl From<&punctual_jobs::histogram::Histogram> for Times {
    fn from(of: &punctual_jobs::histogram::Histogram) -> Times {
        let min_ns = if of.count == 0 { 0 } else { of.min_ns };
        let mut buckets: Vec<(u64, u32)> = of.buckets().collect();
        while buckets.len() > BUCKETS_MAX {
            let pair = |pair: &[(u64, u32)]| {
                (pair[0].0, pair.iter().fold(0, |sum: u32, (_, count)| sum.saturating_add(*count)))
            };
            buckets = buckets.chunks(2).map(pair).collect();
        }
        Times { min_ns, max_ns: of.max_ns, sum_ns: of.sum_ns, buckets }
    }
}
