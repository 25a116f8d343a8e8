//! From the host's networks to their state at time zero.

use std::collections::{BTreeMap, VecDeque};

use punctual_jobs::flow::GooseState;
use punctual_jobs::mix;
use punctual_jobs::stream::{Receiver, Sender};
use punctual_model::Host;
use punctual_model::host::Parent;
use punctual_model::index::{DomainIx, TaskIx};
use punctual_model::network::{CLASS_WINDOW, Endpoint, Network, Traffic};
use punctual_model::results::JobStats;
use punctual_net::event_channel::{EventChannels, Port};
use punctual_net::{Discipline, InterfaceId, InterfaceKind, InterfaceParams};
use punctual_sched::{Duration, Instant};

use super::clock::Timed;
use super::{
    Bridge, ChainState, ChainStep, End, FlowState, Interface, InterfaceClass, Kernel, Lane, Net, State,
    Tally, Work,
};
use crate::error::Error;
use crate::index::{KernelIx, ProcessorIx, UnitIx};

/// Builds everything; a host without networks has an empty one.
pub(crate) fn build(host: &Host) -> Result<Net, Error> {
    let mut net = Net::default();
    if host.networks.is_empty() {
        return Ok(net);
    }
    let mut kernel_of = vec![None; host.domains.len()];
    for (ix, network) in host.networks.iter().enumerate() {
        let driver = kernel(&mut net, host, &mut kernel_of, network.driver);
        net.kernels[driver].bridge = Some(ix as u32);
        let ports = Ports::new(network)?;
        let bridge = bridge(&mut net, host, ix, driver, ports, &mut kernel_of)?;
        net.bridges.push(bridge);
    }
    for ix in 0..host.flows.len() {
        flow(&mut net, host, ix);
    }
    net.chain_of_task = vec![None; host.tasks.len()];
    net.served = host.tasks.iter().map(|_| VecDeque::new()).collect();
    for ix in 0..host.chains.len() {
        chain(&mut net, host, ix);
    }
    Ok(net)
}

fn kernel(net: &mut Net, host: &Host, kernel_of: &mut [Option<KernelIx>], domain: DomainIx) -> KernelIx {
    *kernel_of[domain.0].get_or_insert_with(|| {
        let vcpu = host.domains[domain.0].vcpus.start;
        net.kernels.push(Kernel {
            proc: ProcessorIx::new(host.processors + vcpu),
            vcpu: UnitIx::new(vcpu),
            state: State::Idle,
            powered: false,
            root: ProcessorIx::NONE,
            left: Duration::ZERO,
            from: Instant::ZERO,
            spent: Duration::ZERO,
            work: Work::None,
            woke: false,
            was_busy: false,
            off_since: None,
            resumes: false,
            began: Instant::ZERO,
            event_part: Duration::ZERO,
            bridge: None,
            interfaces: Vec::new(),
            turn: 0,
        });
        KernelIx::new(net.kernels.len() - 1)
    })
}

/// What a driver domain has of each interface: its place in the discipline, and its event channel.
struct Ports<'n> {
    network: &'n Network,
    discipline: Box<dyn Discipline>,
    channels: EventChannels,
}

impl<'n> Ports<'n> {
    fn new(network: &'n Network) -> Result<Self, Error> {
        let choice = &network.discipline;
        let discipline = (choice.info.build)(&choice.options).map_err(|e| refused(network, &e))?;
        Ok(Ports { network, discipline, channels: EventChannels::new(network.scan) })
    }

    fn attach(&mut self, params: &InterfaceParams) -> Result<(InterfaceId, Port), Error> {
        let id = self.discipline.attach(Instant::ZERO, params).map_err(|e| refused(self.network, &e))?;
        let port = self.channels.allocate().ok_or_else(|| refused(self.network, &"too many guests"))?;
        Ok((id, port))
    }

    fn attach_card(&mut self) -> Result<(InterfaceId, Port), Error> {
        self.attach(&InterfaceParams {
            kind: InterfaceKind::Device,
            ring_slots: Some(self.network.nic.ring_slots),
            ..InterfaceParams::default()
        })
    }
}

impl Ports<'_> {
    /// A class of a guest's interface, for what it sends and for what the card has for it.
    fn attach_class(
        &mut self,
        guest: &punctual_model::network::Interface,
        priority: u32,
    ) -> Result<InterfaceClass, Error> {
        let sends = InterfaceParams { priority: Some(priority), ..guest.params.clone() };
        let from_card = InterfaceParams {
            kind: InterfaceKind::Device,
            ring_slots: Some(self.network.nic.ring_slots),
            ..sends.clone()
        };
        let mut attach = |params: &InterfaceParams| {
            self.discipline.attach(Instant::ZERO, params).map_err(|e| refused(self.network, &e))
        };
        Ok(InterfaceClass { sends: attach(&sends)?, from_card: attach(&from_card)? })
    }
}

fn refused(network: &Network, what: &dyn std::fmt::Display) -> Error {
    Error::Refused(format!("network {}: {what}", network.name))
}

/// The driver domain's side of network `ix`, and the interfaces of its guests.
fn bridge(
    net: &mut Net,
    host: &Host,
    ix: usize,
    driver: KernelIx,
    mut ports: Ports<'_>,
    kernel_of: &mut [Option<KernelIx>],
) -> Result<Bridge, Error> {
    let network = &host.networks[ix];
    let (card, card_port) = ports.attach_card()?;
    let first = net.interfaces.len();
    let (mut owner_of_port, mut interface_of_id) = (vec![None], vec![None]);
    for guest in &network.interfaces {
        let (id, port) = ports.attach(&guest.params)?;
        let place = net.interfaces.len() as u32;
        owner_of_port.push(Some(place));
        interface_of_id.push(Some(place));
        let kernel = kernel(net, host, kernel_of, guest.domain);
        net.kernels[kernel].interfaces.push(place);
        let ring_slots = ports.discipline.room(id).unwrap_or(0);
        net.interfaces.push(interface(ix as u32, id, port, kernel, ring_slots));
    }
    for (place, guest) in (first..).zip(&network.interfaces) {
        let classes = guest.classes.iter().filter(|_| network.has_priorities());
        for (pcp, priority) in classes {
            let class = ports.attach_class(guest, *priority)?;
            interface_of_id.extend([Some(place as u32), None]);
            let interface = &mut net.interfaces[place];
            interface.classes.insert(*pcp, class);
            interface.ring_slots = interface.ring_slots.min(CLASS_WINDOW);
        }
    }
    Ok(Bridge {
        kernel: driver,
        discipline: ports.discipline,
        channels: ports.channels,
        events: network.events,
        costs: network.costs,
        nic: network.nic,
        card,
        card_port,
        owner_of_port,
        interface_of_id,
        in_card: VecDeque::new(),
        polled: 0,
        since_event: None,
        inward_free_at: Instant::ZERO,
        outward_free_at: Instant::ZERO,
        credit_at: Instant::NEVER,
        outside: network.outside.clone(),
        random: mix(host.seed, u64::MAX - ix as u64),
        carried: [0; 3],
        events_handled: 0,
        events_sent: 0,
    })
}

/// A guest's interface, with nothing in it.
fn interface(bridge: u32, id: InterfaceId, port: Port, kernel: KernelIx, ring_slots: u32) -> Interface {
    Interface {
        bridge,
        id,
        classes: BTreeMap::new(),
        port,
        kernel,
        soft: VecDeque::new(),
        sends: VecDeque::new(),
        posted: VecDeque::new(),
        in_tx: 0,
        in_order: VecDeque::new(),
        ring_slots,
        blocked: false,
        received: VecDeque::new(),
        seen: 0,
        polling: false,
        interrupt: false,
    }
}

/// The interface of `domain` in network `ix`.
fn interface_of(net: &Net, host: &Host, ix: usize, domain: DomainIx) -> u32 {
    let before: usize = host.networks[..ix].iter().map(|n| n.interfaces.len()).sum();
    let own = host.networks[ix].interface_of(domain);
    debug_assert!(before + own.unwrap_or(0) < net.interfaces.len());
    (before + own.expect("a domain of a flow or chain has an interface")) as u32
}

fn lane(net: &mut Net, from: End, to: End, owner: usize, pcp: Option<u8>) -> u32 {
    let card = |bridge: u32| net.bridges[bridge as usize].card;
    let interface = |ix: u32| &net.interfaces[ix as usize];
    let class = |ix: u32| pcp.and_then(|pcp| interface(ix).classes.get(&pcp));
    let source = match (from, to) {
        (End::Interface(own), _) => class(own).map_or(interface(own).id, |class| class.sends),
        (End::Outside { bridge, .. }, End::Interface(to)) => {
            class(to).map_or(card(bridge), |class| class.from_card)
        }
        (End::Outside { bridge, .. }, End::Outside { .. }) => card(bridge),
    };
    let destination = match to {
        End::Interface(to) => interface(to).id,
        End::Outside { bridge, .. } => card(bridge),
    };
    net.lanes.push(Lane { from, to, source, destination, owner: owner as u32, created: 0 });
    net.lanes.len() as u32 - 1
}

fn flow(net: &mut Net, host: &Host, ix: usize) {
    let flow = &host.flows[ix];
    let end = |net: &Net, end| match end {
        Endpoint::Guest(domain) => End::Interface(interface_of(net, host, flow.network.0, domain)),
        Endpoint::Outside(host) => End::Outside { bridge: flow.network.0 as u32, host: host as u32 },
    };
    let (from, to) = (end(net, flow.from), end(net, flow.to));
    let (forth, back) = (lane(net, from, to, ix, flow.pcp), lane(net, to, from, ix, flow.pcp));
    let stream = match flow.traffic {
        Traffic::Stream { window, ack_every, control, .. } => {
            Some((Sender::new(window, control), Receiver::new(ack_every)))
        }
        _ => None,
    };
    let (sender, receiver) = stream.unzip();
    net.flows.push(FlowState {
        traffic: flow.traffic,
        forth,
        back,
        tally: Tally::default(),
        deadline: flow.deadline,
        late: 0,
        timeouts: 0,
        retransmissions: 0,
        number: 0,
        count: flow.count.unwrap_or(u64::MAX),
        waiting: VecDeque::new(),
        seed: host.flow_seed(ix),
        goose: GooseState::default(),
        sender,
        receiver,
        silence_at: Instant::NEVER,
        silence_set_for: Instant::NEVER,
        request_set: false,
        ack_at: Instant::NEVER,
        ack_set: false,
    });
    net.clock.set(Instant::ZERO + flow.start, Timed::Next { flow: ix as u32 });
}

fn chain(net: &mut Net, host: &Host, ix: usize) {
    let chain = &host.chains[ix];
    let domain = |task: TaskIx| match host.tasks[task.0].parent {
        Parent::Domain(domain) => Some(domain),
        Parent::Pool(_) => None,
    };
    let mut lanes = vec![None];
    for pair in chain.steps.windows(2) {
        let lane = match (domain(pair[0]), domain(pair[1])) {
            (Some(from), Some(to)) if from != to => {
                let ends = [from, to].map(|d| End::Interface(interface_of(net, host, chain.network.0, d)));
                Some(lane(net, ends[0], ends[1], host.flows.len() + ix, chain.pcp))
            }
            _ => None,
        };
        lanes.push(lane);
    }
    for (step, task) in chain.steps.iter().enumerate() {
        net.chain_of_task[task.0] = Some(ChainStep { chain: ix as u32, step: step as u32 });
    }
    net.chains.push(ChainState {
        lanes,
        steps: chain.steps.clone(),
        bytes: chain.bytes,
        deadline: chain.deadline,
        tally: Tally::default(),
        jobs: JobStats::default(),
        in_time: 0,
        origins: chain.steps.iter().map(|_| VecDeque::new()).collect(),
    });
}
