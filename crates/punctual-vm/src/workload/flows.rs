//! From a host's flows and chains to what guests send and answer, and from their reports to results.

use punctual_guest::protocol::{self, FlowEnd, FlowReport, Next, Times};
use punctual_model::host::{Parent, Work};
use punctual_model::index::{DomainIx, NetworkIx, TaskIx};
use punctual_model::network::{Chain, Endpoint, Flow, Traffic, Transport};
use punctual_model::results::{ChainResult, DropCounts, FlowResult, JobStats, PacketCounts};
use punctual_model::{Histogram, Host};
use punctual_sched::Duration;

/// Ends of flows that a run has: which end of which network, and its Ethernet address.
#[derive(Clone, Debug, Default)]
pub struct Ends(Vec<(NetworkIx, Endpoint, [u8; 6])>);

impl Ends {
    /// Adds an end.
    pub fn add(&mut self, network: NetworkIx, end: Endpoint, ethernet: [u8; 6]) {
        self.0.push((network, end, ethernet));
    }

    fn address(&self, network: NetworkIx, end: Endpoint) -> Option<[u8; 6]> {
        self.0.iter().find(|own| (own.0, own.1) == (network, end)).map(|own| own.2)
    }

    /// Is the domain on a network?
    pub fn has_domain(&self, domain: DomainIx) -> bool {
        self.0.iter().any(|(_, end, _)| *end == Endpoint::Guest(domain))
    }

    /// Has the run both ends of the flow?
    pub fn has_flow(&self, flow: &Flow) -> bool {
        [flow.from, flow.to].into_iter().all(|end| self.address(flow.network, end).is_some())
    }

    /// Has the run all steps of the chain?
    pub fn has_chain(&self, host: &Host, chain: &Chain) -> bool {
        let mut steps = chain.steps.iter();
        steps.all(|step| {
            domain_of(host, *step)
                .is_some_and(|domain| self.address(chain.network, Endpoint::Guest(domain)).is_some())
        })
    }

    /// The names of flows and chains that the run does not have.
    pub fn missing<'h>(&self, host: &'h Host) -> Vec<&'h str> {
        let flows = host.flows.iter().filter(|flow| !self.has_flow(flow)).map(|flow| flow.name.as_str());
        let chains = host.chains.iter().filter(|chain| !self.has_chain(host, chain));
        flows.chain(chains.map(|chain| chain.name.as_str())).collect()
    }

    /// What one end sends and answers; `tasks` are those of its guest. `None` where it is in no network.
    pub fn network_of(&self, host: &Host, end: Endpoint, tasks: &[TaskIx]) -> Option<protocol::Network> {
        let (network, _, ethernet) = self.0.iter().find(|own| own.1 == end)?;
        let place = |task: TaskIx| tasks.iter().position(|own| *own == task);
        let mut flows = Vec::new();
        for (ix, flow) in host.flows.iter().enumerate().filter(|(_, flow)| flow.network == *network) {
            for (own, other) in [(flow.from, flow.to), (flow.to, flow.from)] {
                if own == end
                    && self.has_flow(flow)
                    && let Some(peer) = self.address(flow.network, other)
                {
                    flows.push(flow_end(host, ix, own == flow.from, peer, &place));
                }
            }
        }
        let steps = host.chains.iter().enumerate().filter(|(_, chain)| self.has_chain(host, chain));
        let steps = steps.flat_map(|(ix, chain)| self.steps_of(host, ix, chain, &place)).collect();
        let datagrams = host.networks[network.0].transport == Transport::Sockets;
        Some(protocol::Network { ethernet: *ethernet, datagrams, flows, steps })
    }

    /// The steps of a chain whose tasks have a place in the guest.
    fn steps_of(
        &self,
        host: &Host,
        ix: usize,
        chain: &Chain,
        place: &dyn Fn(TaskIx) -> Option<usize>,
    ) -> Vec<protocol::ChainStep> {
        let owner = owner(host.flows.len() + ix);
        let step = |(step, task): (usize, &TaskIx)| {
            let next = match chain.steps.get(step + 1) {
                None => Next::End,
                Some(next) => match place(*next) {
                    Some(here) => Next::Here(here),
                    None => {
                        let domain = domain_of(host, *next)?;
                        Next::There(self.address(chain.network, Endpoint::Guest(domain))?)
                    }
                },
            };
            let (bytes, deadline_ns) = (chain.bytes, chain.deadline.as_ns());
            Some(protocol::ChainStep {
                owner,
                step: step as u8,
                task: place(*task)?,
                next,
                bytes,
                pcp: chain.pcp,
                deadline_ns,
            })
        };
        chain.steps.iter().enumerate().filter_map(step).collect()
    }
}

fn domain_of(host: &Host, task: TaskIx) -> Option<DomainIx> {
    match host.tasks[task.0].parent {
        Parent::Domain(domain) => Some(domain),
        Parent::Pool(_) => None,
    }
}

/// The number by which guests know a flow or chain. A run with more is refused for their frames.
fn owner(number: usize) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

/// One end of a flow.
fn flow_end(
    host: &Host,
    ix: usize,
    begins: bool,
    peer: [u8; 6],
    place: &dyn Fn(TaskIx) -> Option<usize>,
) -> FlowEnd {
    let flow = &host.flows[ix];
    let server = match flow.traffic {
        Traffic::Request { server, .. } if !begins => server.and_then(place),
        _ => None,
    };
    let turnaround = match flow.to {
        Endpoint::Outside(outside) if !begins => host.networks[flow.network.0].outside[outside].turnaround,
        _ => Duration::ZERO,
    };
    FlowEnd {
        owner: owner(ix),
        peer,
        begins,
        traffic: traffic(flow.traffic),
        start_ns: flow.start.as_ns(),
        deadline_ns: flow.deadline.map(Duration::as_ns),
        count: flow.count,
        seed: host.flow_seed(ix),
        server,
        turnaround_ns: turnaround.as_ns(),
        pcp: flow.pcp,
    }
}

fn traffic(of: Traffic) -> protocol::Traffic {
    match of {
        Traffic::Ping { bytes, timeout, pause } => {
            protocol::Traffic::Ping { bytes, timeout_ns: timeout.as_ns(), pause_ns: pause.as_ns() }
        }
        Traffic::Request { bytes, reply_bytes, period, timeout, server: _ } => protocol::Traffic::Request {
            bytes,
            reply_bytes,
            period_ns: period.map(Duration::as_ns),
            timeout_ns: timeout.as_ns(),
        },
        Traffic::Periodic { bytes, period, slack_mean, burst } => protocol::Traffic::Periodic {
            bytes,
            period_ns: period.as_ns(),
            slack_mean_ns: slack_mean.as_ns(),
            burst,
        },
        Traffic::Goose { bytes, period, slack_mean, retransmit, heartbeat } => protocol::Traffic::Goose {
            bytes,
            period_ns: period.map(Duration::as_ns),
            slack_mean_ns: slack_mean.as_ns(),
            retransmit_ns: retransmit.as_ns(),
            heartbeat_ns: heartbeat.as_ns(),
        },
        Traffic::Stream { bytes, ack_bytes, window, ack_every, control } => {
            protocol::Traffic::Stream { bytes, ack_bytes, window, ack_every, control }
        }
        Traffic::Storm { bytes, interval } => {
            protocol::Traffic::Storm { bytes, interval_ns: interval.as_ns() }
        }
    }
}

/// A distribution that a guest reported.
///
/// # Errors
/// When its numbers contradict each other.
pub fn histogram(times: &Times) -> Result<Histogram, String> {
    Histogram::from_buckets(&times.buckets, (times.min_ns, times.max_ns), times.sum_ns)
}

/// The sum of what the ends of a flow or chain report: packets, and latencies and tardiness.
fn sum<'r>(reports: impl Iterator<Item = &'r FlowReport>) -> (FlowReport, Histogram, Histogram) {
    let mut sum = FlowReport::default();
    let (mut latency, mut tardiness) = (Histogram::new(), Histogram::new());
    for report in reports {
        let add = |own: &mut u64, other: u64| *own = own.saturating_add(other);
        add(&mut sum.created, report.created);
        add(&mut sum.delivered, report.delivered);
        add(&mut sum.send_queue, report.send_queue);
        add(&mut sum.bytes, report.bytes);
        add(&mut sum.timeouts, report.timeouts);
        add(&mut sum.retransmissions, report.retransmissions);
        add(&mut sum.late, report.late);
        add(&mut sum.in_time, report.in_time);
        // Their numbers were checked when they came.
        histogram(&report.latency).iter().for_each(|times| latency.merge(times));
        histogram(&report.tardiness).iter().for_each(|times| tardiness.merge(times));
    }
    (sum, latency, tardiness)
}

fn packets(sum: &FlowReport) -> PacketCounts {
    let delivered = sum.delivered.min(sum.created);
    let send_queue = sum.send_queue.min(sum.created - delivered);
    let unknown = sum.created - delivered - send_queue;
    let dropped = DropCounts { send_queue, unknown, ..DropCounts::default() };
    PacketCounts { created: sum.created, delivered, dropped, in_flight: 0, bytes: sum.bytes }
}

/// What the flows of a run did, by what their ends reported.
pub fn flow_results(host: &Host, ends: &Ends, reports: &[FlowReport]) -> Vec<FlowResult> {
    let flows = host.flows.iter().enumerate().filter(|(_, flow)| ends.has_flow(flow));
    let result = |(ix, flow): (usize, &Flow)| {
        let (sum, latency, _) = sum(reports.iter().filter(|report| report.owner == owner(ix)));
        FlowResult {
            name: flow.name.clone(),
            network: host.networks[flow.network.0].name.clone(),
            kind: flow.traffic.kind().into(),
            from: host.endpoint_name(flow.network, flow.from).into(),
            to: host.endpoint_name(flow.network, flow.to).into(),
            packets: packets(&sum),
            timeouts: sum.timeouts,
            retransmissions: sum.retransmissions,
            deadline_ns: flow.deadline.map(Duration::as_ns),
            late: sum.late,
            congestion: None,
            latency,
            segments: Vec::new(),
            parts: Vec::new(),
        }
    };
    flows.map(result).collect()
}

/// What the chains of a run did; `jobs` are those of the host's tasks.
pub fn chain_results(
    host: &Host,
    ends: &Ends,
    reports: &[FlowReport],
    jobs: &[JobStats],
) -> Vec<ChainResult> {
    let chains = host.chains.iter().enumerate().filter(|(_, chain)| ends.has_chain(host, chain));
    let result = |(ix, chain): (usize, &Chain)| {
        let own = owner(host.flows.len() + ix);
        let (sum, response, tardiness) = sum(reports.iter().filter(|report| report.owner == own));
        let first = chain.steps[0];
        let due = match host.tasks[first.0].work {
            Work::Jobs { arrival, cost, .. } => {
                let until = host.duration.saturating_sub(chain.deadline) + Duration::from_ns(1);
                arrival.jobs(cost, host.task_seed(first)).jobs_before(until.as_ns()).count() as u64
            }
            _ => 0,
        };
        let step = |task: &TaskIx| {
            let task = &host.tasks[task.0];
            format!("{}.{}", host.parent_name(task.parent), task.name)
        };
        let jobs = JobStats {
            released: jobs[first.0].released,
            completed: response.count(),
            due,
            missed: due.saturating_sub(sum.in_time),
            start_latency: jobs[first.0].start_latency.clone(),
            response,
            tardiness,
        };
        ChainResult {
            name: chain.name.clone(),
            steps: chain.steps.iter().map(step).collect(),
            deadline_ns: Some(chain.deadline.as_ns()),
            jobs,
            packets: packets(&sum),
            segments: Vec::new(),
        }
    };
    chains.map(result).collect()
}
