//! From the host's networks to their state at time zero.

use std::collections::VecDeque;

use punctual_jobs::mix;
use punctual_model::Host;
use punctual_model::host::Parent;
use punctual_model::index::DomainIx;
use punctual_model::network::{Endpoint, Network, Traffic};
use punctual_model::results::JobStats;
use punctual_net::event_channel::EventChannels;
use punctual_net::{InterfaceKind, InterfaceParams};
use punctual_sched::{Duration, Instant};

use super::clock::Timed;
use super::stream::{Receiver, Sender};
use super::{
    Bridge, ChainState, ChainStep, End, FlowState, Interface, Kernel, Lane, Net, State, Tally, Work,
};
use crate::Error;
use crate::machine::NONE;

/// Builds everything; a host without networks has an empty one.
pub(crate) fn build(host: &Host) -> Result<Net, Error> {
    let mut net = Net::default();
    if host.networks.is_empty() {
        return Ok(net);
    }
    let mut kernel_of = vec![NONE; host.domains.len()];
    for (ix, network) in host.networks.iter().enumerate() {
        let kernel = kernel(&mut net, host, &mut kernel_of, network.driver);
        net.kernels[kernel as usize].bridge = ix as u32;
        let bridge = bridge(&mut net, host, ix, kernel, &mut kernel_of)?;
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

fn kernel(net: &mut Net, host: &Host, kernel_of: &mut [u32], domain: DomainIx) -> u32 {
    if kernel_of[domain.0] == NONE {
        let vcpu = host.domains[domain.0].vcpus.start;
        kernel_of[domain.0] = net.kernels.len() as u32;
        net.kernels.push(Kernel {
            proc: (host.processors + vcpu) as u32,
            vcpu: vcpu as u32,
            state: State::Idle,
            powered: false,
            root: NONE,
            left: Duration::ZERO,
            from: Instant::ZERO,
            spent: Duration::ZERO,
            work: Work::None,
            began: Instant::ZERO,
            event_part: Duration::ZERO,
            bridge: NONE,
            interfaces: Vec::new(),
            turn: 0,
        });
    }
    kernel_of[domain.0]
}

fn bridge(
    net: &mut Net,
    host: &Host,
    ix: usize,
    kernel_ix: u32,
    kernel_of: &mut [u32],
) -> Result<Bridge, Error> {
    let network: &Network = &host.networks[ix];
    let refused = |what: &dyn std::fmt::Display| Error::Refused(format!("network {}: {what}", network.name));
    let choice = &network.discipline;
    let mut discipline = (choice.info.build)(&choice.options).map_err(|e| refused(&e))?;
    let mut channels = EventChannels::new(network.scan);
    let card = InterfaceParams {
        kind: InterfaceKind::Device,
        ring_slots: Some(network.nic.ring_slots),
        ..InterfaceParams::default()
    };
    let card = discipline.attach(Instant::ZERO, &card).map_err(|e| refused(&e))?;
    let out_of_ports = || refused(&"too many guests");
    let card_port = channels.allocate().ok_or_else(out_of_ports)?;
    let (mut owner_of_port, mut interface_of_id) = (vec![NONE], vec![NONE]);
    for guest in &network.interfaces {
        let id = discipline.attach(Instant::ZERO, &guest.params).map_err(|e| refused(&e))?;
        let port = channels.allocate().ok_or_else(out_of_ports)?;
        let interface = net.interfaces.len() as u32;
        owner_of_port.push(interface);
        interface_of_id.push(interface);
        let kernel = kernel(net, host, kernel_of, guest.domain);
        net.kernels[kernel as usize].interfaces.push(interface);
        net.interfaces.push(Interface {
            bridge: ix as u32,
            id,
            port,
            kernel,
            soft: VecDeque::new(),
            sends: VecDeque::new(),
            posted: VecDeque::new(),
            in_tx: 0,
            ring_slots: discipline.room(id).unwrap_or(0),
            blocked: false,
            received: VecDeque::new(),
            seen: 0,
            polling: false,
            interrupt: false,
        });
    }
    Ok(Bridge {
        kernel: kernel_ix,
        discipline,
        channels,
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

/// The interface of `domain` in network `ix`.
fn interface_of(net: &Net, host: &Host, ix: usize, domain: DomainIx) -> u32 {
    let before: usize = host.networks[..ix].iter().map(|n| n.interfaces.len()).sum();
    let own = host.networks[ix].interface_of(domain);
    debug_assert!(before + own.unwrap_or(0) < net.interfaces.len());
    (before + own.expect("a domain of a flow or chain has an interface")) as u32
}

fn lane(net: &mut Net, from: End, to: End, owner: usize) -> u32 {
    net.lanes.push(Lane { from, to, owner: owner as u32, created: 0, delivered: 0 });
    net.lanes.len() as u32 - 1
}

fn flow(net: &mut Net, host: &Host, ix: usize) {
    let flow = &host.flows[ix];
    let end = |net: &Net, end| match end {
        Endpoint::Guest(domain) => End::Interface(interface_of(net, host, flow.network.0, domain)),
        Endpoint::Outside(host) => End::Outside { bridge: flow.network.0 as u32, host: host as u32 },
    };
    let (from, to) = (end(net, flow.from), end(net, flow.to));
    let (forth, back) = (lane(net, from, to, ix), lane(net, to, from, ix));
    let stream = match flow.traffic {
        Traffic::Stream { window, ack_every, .. } => Some((Sender::new(window), Receiver::new(ack_every))),
        _ => None,
    };
    let (sender, receiver) = stream.unzip();
    net.flows.push(FlowState {
        traffic: flow.traffic,
        forth,
        back,
        tally: Tally::default(),
        timeouts: 0,
        retransmissions: 0,
        number: 0,
        count: flow.count.unwrap_or(u64::MAX),
        waiting: VecDeque::new(),
        seed: mix(host.seed ^ 0x666c_6f77, ix as u64),
        sender,
        receiver,
        silence_at: Instant::NEVER,
        silence_set: false,
        ack_at: Instant::NEVER,
        ack_set: false,
    });
    net.clock.set(Instant::ZERO + flow.start, Timed::Next { flow: ix as u32 });
}

fn chain(net: &mut Net, host: &Host, ix: usize) {
    let chain = &host.chains[ix];
    let domain = |task: usize| match host.tasks[task].parent {
        Parent::Domain(domain) => Some(domain),
        Parent::Pool(_) => None,
    };
    let mut lanes = vec![NONE];
    for pair in chain.steps.windows(2) {
        let lane = match (domain(pair[0].0), domain(pair[1].0)) {
            (Some(from), Some(to)) if from != to => {
                let ends = [from, to].map(|d| End::Interface(interface_of(net, host, chain.network.0, d)));
                lane(net, ends[0], ends[1], host.flows.len() + ix)
            }
            _ => NONE,
        };
        lanes.push(lane);
    }
    for (step, task) in chain.steps.iter().enumerate() {
        net.chain_of_task[task.0] = Some(ChainStep { chain: ix as u32, step: step as u32 });
    }
    net.chains.push(ChainState {
        lanes,
        steps: chain.steps.iter().map(|task| task.0).collect(),
        bytes: chain.bytes,
        deadline: chain.deadline,
        tally: Tally::default(),
        jobs: JobStats::default(),
        in_time: 0,
        origins: chain.steps.iter().map(|_| VecDeque::new()).collect(),
    });
}
