//! What a guest sends and answers in a run: its ends of flows, its steps of chains, and what it measured.

use serde::{Deserialize, Serialize};

use super::limits::{LimitError, TIME_MAX_NS, within};
use super::message::{Task, Work};

/// Most ends of flows and steps of chains of a guest.
pub const ENDS_MAX: usize = 128;
/// Most buckets of a distribution; of more, neighbours are put together.
pub const BUCKETS_MAX: usize = 2000;
/// Shortest distance of bursts, and the shortest time-out.
pub const FLOW_DISTANCE_MIN_NS: u64 = 1000;
/// Longest frame, without its check sum: of an Ethernet with the usual 1500 bytes of payload.
pub const FRAME_BYTES_MAX: u32 = 1514;

/// A guest's part of a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// The Ethernet address of the interface; with `datagrams` that of a socket, four bytes of IPv4 and two
    /// of the port.
    pub ethernet: [u8; 6],
    /// Do packets come as datagrams, over a socket that the guest's host has?
    pub datagrams: bool,
    /// Ends of flows.
    pub flows: Vec<FlowEnd>,
    /// Steps of chains.
    pub steps: Vec<ChainStep>,
}

/// One end of a flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowEnd {
    /// The flow's number, which both ends know it by.
    pub owner: u16,
    /// The Ethernet address of the other end.
    pub peer: [u8; 6],
    /// Does this end begin? Otherwise it receives, and answers.
    pub begins: bool,
    /// What is sent.
    pub traffic: Traffic,
    /// When it begins.
    pub start_ns: u64,
    /// Requests, bursts or packets at most.
    pub count: Option<u64>,
    /// Everything random follows from it; see [`punctual_jobs::flow::seed`].
    pub seed: u64,
    /// The place of the task that answers requests, at the end that answers.
    pub server: Option<usize>,
    /// Time before an answer that no task gives.
    pub turnaround_ns: u64,
}

/// What a flow sends; as in the host file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[allow(missing_docs, reason = "named and explained in punctual_model::network::Traffic")]
pub enum Traffic {
    /// The next packet follows the answer to the one before, or its loss.
    Ping { bytes: u32, timeout_ns: u64, pause_ns: u64 },
    /// Requests with an answer each.
    Request { bytes: u32, reply_bytes: u32, period_ns: Option<u64>, timeout_ns: u64 },
    /// Packets without an answer.
    Periodic { bytes: u32, period_ns: u64, slack_mean_ns: u64, burst: u32 },
    /// As many packets as the receiver's acknowledgements allow.
    Stream { bytes: u32, ack_bytes: u32, window: u32, ack_every: u32, timeout_ns: u64 },
    /// Packets without an answer, as fast as the sender can or one per `interval_ns`.
    Storm { bytes: u32, interval_ns: u64 },
}

/// A step of a chain in this guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChainStep {
    /// The chain's number, after those of flows.
    pub owner: u16,
    /// Which step, from 0.
    pub step: u8,
    /// The place of its task.
    pub task: usize,
    /// What follows the end of a job.
    pub next: Next,
    /// Length of a packet to the next step.
    pub bytes: u32,
    /// From the release of the first step to the end of the last.
    pub deadline_ns: u64,
}

/// What follows the end of a job of a chain's step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Next {
    /// The next step is a task of the same guest: its place.
    Here(usize),
    /// It is in the guest with this Ethernet address.
    There([u8; 6]),
    /// The chain is done.
    End,
}

/// What was measured at one end of a flow, or of a chain in one guest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowReport {
    /// The flow's or chain's number.
    pub owner: u16,
    /// Packets that came into being here.
    pub created: u64,
    /// Packets that arrived here.
    pub delivered: u64,
    /// Packets that found the queue in front of the ring full.
    pub send_queue: u64,
    /// Bytes that count as delivered; of a stream, in order and each once.
    pub bytes: u64,
    /// Answers that did not come in time; silences of a stream.
    pub timeouts: u64,
    /// Packets of a stream sent again.
    pub retransmissions: u64,
    /// Of a chain that ends here: how often it ended by its deadline, released early enough for that.
    pub in_time: u64,
    /// Of a flow: latencies. Of a chain that ends here: times from the first release to the end.
    pub latency: Times,
    /// Of a chain that ends here: by how much it missed its deadline, or 0.
    pub tardiness: Times,
}

/// A distribution of durations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Times {
    /// The least.
    pub min_ns: u64,
    /// The greatest.
    pub max_ns: u64,
    /// The sum.
    pub sum_ns: u64,
    /// Buckets ([`punctual_jobs::histogram`]) by their least value, and how many fell into each.
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

impl Network {
    /// Can a run with these tasks have it?
    ///
    /// # Errors
    /// The first number that does not fit, with its limits.
    pub fn check(&self, tasks: &[Task]) -> Result<(), LimitError> {
        let ends = self.flows.len() + self.steps.len();
        within("number of flows and steps", ends as u64, 0, ENDS_MAX as u64)?;
        let is_served = |task: usize| matches!(tasks.get(task).map(|t| &t.work), Some(Work::Served { .. }));
        let place = |what, task: usize, is_fit: bool| match is_fit {
            true => Ok(()),
            false => within(what, task as u64, 1, 0),
        };
        for flow in &self.flows {
            flow.traffic.check()?;
            within("start_ns", flow.start_ns, 0, TIME_MAX_NS)?;
            within("turnaround_ns", flow.turnaround_ns, 0, TIME_MAX_NS)?;
            flow.server.map_or(Ok(()), |task| place("server", task, is_served(task)))?;
        }
        for step in &self.steps {
            check_bytes(step.bytes)?;
            within("deadline_ns", step.deadline_ns, 0, TIME_MAX_NS)?;
            place("task of a step", step.task, step.task < tasks.len())?;
            if let Next::Here(task) = step.next {
                place("task of the next step", task, is_served(task))?;
            }
        }
        Ok(())
    }
}

fn check_bytes(bytes: u32) -> Result<(), LimitError> {
    within("bytes", bytes.into(), 60, FRAME_BYTES_MAX.into())
}

impl Traffic {
    fn check(&self) -> Result<(), LimitError> {
        let distance = |what, ns| within(what, ns, FLOW_DISTANCE_MIN_NS, TIME_MAX_NS);
        match *self {
            Traffic::Ping { bytes, timeout_ns, pause_ns } => {
                check_bytes(bytes)?;
                within("pause_ns", pause_ns, 0, TIME_MAX_NS)?;
                distance("timeout_ns", timeout_ns)
            }
            Traffic::Request { bytes, reply_bytes, period_ns, timeout_ns } => {
                check_bytes(bytes)?;
                check_bytes(reply_bytes)?;
                period_ns.map_or(Ok(()), |period_ns| distance("period_ns", period_ns))?;
                distance("timeout_ns", timeout_ns)
            }
            Traffic::Periodic { bytes, period_ns, slack_mean_ns, burst } => {
                check_bytes(bytes)?;
                within("slack_mean_ns", slack_mean_ns, 0, TIME_MAX_NS)?;
                within("burst", burst.into(), 1, 1_000_000)?;
                distance("period_ns", period_ns)
            }
            Traffic::Stream { bytes, ack_bytes, window, ack_every, timeout_ns } => {
                check_bytes(bytes)?;
                check_bytes(ack_bytes)?;
                within("window", window.into(), 1, 1_000_000)?;
                within("ack_every", ack_every.into(), 1, 1_000_000)?;
                distance("timeout_ns", timeout_ns)
            }
            Traffic::Storm { bytes, interval_ns } => {
                check_bytes(bytes)?;
                within("interval_ns", interval_ns, 0, TIME_MAX_NS)
            }
        }
    }
}
