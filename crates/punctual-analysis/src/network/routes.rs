//! What is sent from where to where, and what causes it.

use std::collections::BTreeMap;

use punctual_model::Host;
use punctual_model::host::{Parent, Work};
use punctual_model::index::{DomainIx, NetworkIx, TaskIx, VcpuIx};
use punctual_model::network::{Chain, Endpoint, Flow, Interface, Network, Traffic};
use punctual_net::rtca;
use punctual_sched::Duration;

use super::costs::{copy, guest, least_time, most, turnaround, wire_time};
use super::curve::ArrivalCurve;
use crate::inputs::separation;
use crate::packet_path;

/// The priority of packets whose interface has none.
const PRIORITY_DEFAULT: u64 = 1 << 32;

/// Index into [`Routes::legs`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LegIx(pub(super) usize);

/// What brings a packet about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    /// Time.
    Made(ArrivalCurve),
    /// The arrival of another leg's packet.
    Packet(LegIx),
    /// The end of a task's job.
    Task(TaskIx),
    Acknowledgements,
}

/// Packets from one end to another: one direction of a flow, or what one step of a chain sends to the next.
pub(super) struct Leg {
    pub(super) network: NetworkIx,
    pub(super) from: Endpoint,
    pub(super) to: Endpoint,
    pub(super) bytes: u32,
    /// Of the packets' VLAN tag.
    pub(super) pcp: Option<u8>,
    pub(super) source: Source,
}

pub(super) struct FlowLegs {
    pub(super) forth: LegIx,
    pub(super) back: Option<LegIx>,
}

/// Everything that goes over the networks of a host.
pub(crate) struct Routes<'h> {
    pub(super) host: &'h Host,
    pub(super) legs: Vec<Leg>,
    pub(super) flows: Vec<FlowLegs>,
    /// By chain and step: the leg to it, if a packet goes there.
    pub(super) chains: Vec<Vec<Option<LegIx>>>,
    /// By task that packets release: what does.
    pub(super) releases: BTreeMap<TaskIx, Vec<Source>>,
}

impl<'h> Routes<'h> {
    pub(crate) fn new(host: &'h Host) -> Self {
        let (legs, flows, chains) = Default::default();
        let mut routes = Routes { host, legs, flows, chains, releases: BTreeMap::new() };
        host.flows.iter().for_each(|flow| routes.add_flow(flow));
        host.chains.iter().for_each(|chain| routes.add_chain(chain));
        routes
    }

    pub(super) fn network(&self, leg: &Leg) -> &'h Network {
        &self.host.networks[leg.network.0]
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (LegIx, &Leg)> {
        self.legs.iter().enumerate().map(|(i, leg)| (LegIx(i), leg))
    }

    /// The vCPU on which the kernel of a domain does the network's work.
    pub(crate) fn vcpu(&self, domain: DomainIx) -> VcpuIx {
        VcpuIx(self.host.domains[domain.0].vcpus.start)
    }

    fn add(&mut self, leg: Leg) -> LegIx {
        self.legs.push(leg);
        LegIx(self.legs.len() - 1)
    }

    fn add_flow(&mut self, flow: &Flow) {
        let network = &self.host.networks[flow.network.0];
        let (there, answer) = lengths(&flow.traffic);
        let (network_ix, pcp) = (flow.network, flow.pcp);
        let leg = |from, to, bytes, source| Leg { network: network_ix, from, to, bytes, pcp, source };
        let source = source_of(flow, network);
        let forth = self.add(leg(flow.from, flow.to, there, source));
        let answered = match flow.traffic {
            // One for each packet that arrives at most, and a late one for a packet before: packets come over
            // the link one after the other.
            Traffic::Stream { bytes, .. } if guest(flow.to).is_none() => {
                let apart = wire_time(network, bytes);
                Source::Made(ArrivalCurve::every(apart).later(apart))
            }
            Traffic::Stream { .. } => Source::Acknowledgements,
            Traffic::Request { server: Some(server), .. } => {
                self.releases.entry(server).or_default().push(Source::Packet(forth));
                Source::Task(server)
            }
            _ => Source::Packet(forth),
        };
        let back = answer.map(|bytes| self.add(leg(flow.to, flow.from, bytes, answered)));
        self.flows.push(FlowLegs { forth, back });
    }

    fn add_chain(&mut self, chain: &Chain) {
        let mut legs = vec![None];
        for pair in chain.steps.windows(2) {
            let [from, to] = [pair[0], pair[1]];
            let leg = match [from, to].map(|task| self.host.tasks[task.0].parent) {
                [Parent::Domain(a), Parent::Domain(b)] if a != b => {
                    let [from_end, to_end] = [a, b].map(Endpoint::Guest);
                    let source = Source::Task(from);
                    let leg = Leg {
                        network: chain.network,
                        from: from_end,
                        to: to_end,
                        bytes: chain.bytes,
                        pcp: chain.pcp,
                        source,
                    };
                    Some(self.add(leg))
                }
                _ => None,
            };
            self.releases.entry(to).or_default().push(leg.map_or(Source::Task(from), Source::Packet));
            legs.push(leg);
        }
        self.chains.push(legs);
    }

    /// When what brings about a source happens, without any delay.
    pub(super) fn origin(&self, source: Source) -> Option<ArrivalCurve> {
        self.origin_within(source, self.legs.len() + self.host.tasks.len())
    }

    /// The same along at most this many causes, because there may be a circle.
    fn origin_within(&self, source: Source, causes: usize) -> Option<ArrivalCurve> {
        let before = |source| self.origin_within(source, causes.checked_sub(1)?);
        match source {
            Source::Made(curve) => Some(curve),
            Source::Packet(leg) => before(self.legs[leg.0].source),
            Source::Task(task) => {
                match (self.releases.get(&task).map(Vec::as_slice), &self.host.tasks[task.0].work) {
                    (Some(&[only]), _) => before(only),
                    (None, Work::Jobs { arrival, .. }) => Some(ArrivalCurve::every(separation(arrival))),
                    _ => None,
                }
            }
            Source::Acknowledgements => None,
        }
    }
}

/// Lengths of a flow's packets and of their answers.
fn lengths(traffic: &Traffic) -> (u32, Option<u32>) {
    match *traffic {
        Traffic::Ping { bytes, .. } => (bytes, Some(bytes)),
        Traffic::Request { bytes, reply_bytes, .. } => (bytes, Some(reply_bytes)),
        Traffic::Stream { bytes, ack_bytes, .. } => (bytes, Some(ack_bytes)),
        Traffic::Periodic { bytes, .. } | Traffic::Goose { bytes, .. } | Traffic::Storm { bytes, .. } => {
            (bytes, None)
        }
    }
}

/// What makes a flow send.
fn source_of(flow: &Flow, network: &Network) -> Source {
    // One by one: the next follows the answer, or its absence.
    let one_by_one = |timeout: Duration, pause: Duration| {
        let (there, answer) = lengths(&flow.traffic);
        let forth = least_time(network, flow.from, flow.to, there);
        let back = answer.map_or(Duration::ZERO, |bytes| least_time(network, flow.to, flow.from, bytes));
        ArrivalCurve::every((forth + back + pause + turnaround(network, flow.to)).min(timeout))
    };
    Source::Made(match flow.traffic {
        Traffic::Ping { timeout, pause, .. } => one_by_one(timeout, pause),
        Traffic::Request { period: Some(period), .. } => ArrivalCurve::every(period),
        Traffic::Request { timeout, .. } => one_by_one(timeout, Duration::ZERO),
        Traffic::Periodic { period, burst, .. } => {
            ArrivalCurve { burst: burst.into(), ..ArrivalCurve::every(period) }
        }
        Traffic::Goose { .. } => match flow.traffic.goose() {
            Some(goose) => ArrivalCurve::of_goose(&goose),
            None => return Source::Acknowledgements,
        },
        Traffic::Storm { interval, .. } => match flow.from {
            // The next is made `interval` after the one before is sent.
            Endpoint::Guest(_) => ArrivalCurve::every(interval + network.costs.guest_send),
            Endpoint::Outside(_) => ArrivalCurve::every(interval),
        },
        Traffic::Stream { .. } => return Source::Acknowledgements,
    })
}

impl Leg {
    /// What is known of packets in the TX ring or the card when nothing is known of their creation: the
    /// sending kernel makes one after the other, the link carries one after the other.
    pub(super) fn posted_at_most(&self, network: &Network) -> ArrivalCurve {
        ArrivalCurve::every(match self.from {
            Endpoint::Guest(_) => network.costs.guest_send,
            Endpoint::Outside(_) => wire_time(network, self.bytes),
        })
    }

    /// The same for the receiver's RX ring: the driver domain handles one after the other in RX.
    pub(super) fn ringed_at_most(&self, network: &Network) -> ArrivalCurve {
        ArrivalCurve::every(network.costs.rx)
    }

    /// Its packets as the driver domain sees them.
    pub(super) fn in_path(&self, network: &Network, posted: ArrivalCurve) -> packet_path::Flow {
        let costs = &network.costs;
        let (from, to) = (guest(self.from), guest(self.to));
        let from_card = if from.is_none() { costs.nic_receive } else { Duration::ZERO };
        let to_card = if to.is_none() { costs.nic_send } else { Duration::ZERO };
        let batch = self.interface(network).and_then(|own| own.params.batch);
        packet_path::Flow {
            priority: self.priority(network),
            burst: posted.burst,
            period: posted.period,
            jitter: posted.jitter,
            event: most(network, costs.interrupt),
            tx: from.map_or(Duration::ZERO, |_| most(network, costs.tx)),
            softnet: most(network, costs.softnet + from_card + to_card),
            rx: to.map_or(Duration::ZERO, |_| {
                most(network, costs.rx + copy(network, self.bytes)) + most(network, costs.event)
            }),
            batch: batch.map_or_else(|| network.discipline.options.count(&rtca::BATCH_OPTION), u64::from),
        }
    }

    /// The interface whose priority the packets have.
    pub(super) fn interface<'n>(&self, network: &'n Network) -> Option<&'n Interface> {
        let domain = guest(self.from).or(guest(self.to))?;
        network.interfaces.iter().find(|interface| interface.domain == domain)
    }

    pub(super) fn priority(&self, network: &Network) -> u64 {
        let own = self.interface(network).and_then(|own| own.priority_of(self.pcp));
        own.map_or(PRIORITY_DEFAULT, u64::from)
    }
}
