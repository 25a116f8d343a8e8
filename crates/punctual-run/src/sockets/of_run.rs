//! Sockets of this host for the guests of a run: a server for each VM whose domain has `sockets`, for as long
//! as the run lasts.

use std::net::UdpSocket;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Instant;

use punctual_model::Host;
use punctual_model::index::NetworkIx;
use punctual_model::live::Backend;
use punctual_model::network::{Endpoint, Network, Transport};
use punctual_model::results::SocketsResult;
use punctual_model::sockets::Sockets;
use punctual_model::text::printable;
use punctual_sockets::{Config, Counts, Event, Server};
use punctual_vm::qemu::SwitchPort;

use super::enter;
use crate::config::DefaultBackend;
use crate::error::{ServeError, with_source};
use crate::events::{self, Events, Relay};
use crate::network::placement;
use crate::run::{OutsideHost, OutsideSocket, SocketsGuest};
use crate::status::SocketsStatus;

/// How often what was counted is compared with what was counted before.
const INTERVAL: std::time::Duration = std::time::Duration::from_millis(500);

/// A server at work.
pub(crate) struct LiveSockets {
    domain: String,
    server: Server,
    relay: Relay,
    /// When calls were counted for the rate, how many, and the rate.
    counted: Mutex<(Instant, u64, u64)>,
}

/// What the guests of servers get, and what is at the other ends of their networks.
#[derive(Default)]
pub(crate) struct Ends {
    /// VMs.
    pub guests: Vec<SocketsGuest>,
    /// Hosts outside.
    pub outside: Vec<OutsideHost>,
}

/// Starts a server for each VM with `sockets` that the run starts, and sockets for the hosts outside their
/// networks. Nothing of it is left when the process ends, however it ends.
///
/// # Errors
/// When a server or a socket is refused.
pub(crate) fn start(
    host: &Host,
    default: DefaultBackend,
    events: &Events,
) -> Result<(Vec<LiveSockets>, Ends), ServeError> {
    let (mut servers, mut ends) = (Vec::new(), Ends::default());
    for domain in &host.domains {
        let is_vm = match domain.live.backend {
            Backend::Default => default == DefaultBackend::Vm,
            Backend::Vm(_) => true,
            Backend::Process(_) | Backend::Attach(_) => false,
        };
        let Some(policy) = domain.live.sockets.as_ref().filter(|_| is_vm) else { continue };
        let of_domain = |network: &Network| {
            let mut interfaces = network.interfaces.iter();
            network.transport == Transport::Sockets
                && interfaces.any(|interface| host.domains[interface.domain.0].name == domain.name)
        };
        let network = host.networks.iter().position(of_domain);
        let processors = match (policy.processor, network) {
            (Some(processor), _) => vec![processor],
            (None, Some(network)) => placement(host, &host.networks[network]).processors,
            (None, None) => Vec::new(),
        };
        let (port, server) = LiveSockets::start(&domain.name, policy, processors, events)?;
        let address = network.zip(policy.datagram_address());
        let network = address.map(|(at, own)| (NetworkIx(at), punctual_vm::workload::bytes_of(own)));
        ends.guests.push(SocketsGuest { domain: domain.name.clone(), port, network });
        servers.push(server);
    }
    for (at, network) in host.networks.iter().enumerate() {
        if network.transport == Transport::Sockets
            && ends.guests.iter().any(|guest| guest.network.is_some_and(|(ix, _)| ix.0 == at))
        {
            for number in 0..network.outside.len() {
                ends.outside.push(outside(host, NetworkIx(at), number)?);
            }
        }
    }
    Ok((servers, ends))
}

/// The socket of a host outside, whose part this process plays: with the address of the first guest that it
/// talks to, which is one of this machine.
fn outside(host: &Host, network: NetworkIx, number: usize) -> Result<OutsideHost, ServeError> {
    let own = Endpoint::Outside(number);
    let guests = host.flows.iter().filter(|flow| flow.network == network);
    let guests = guests.filter_map(|flow| match (flow.from, flow.to) {
        (end, Endpoint::Guest(guest)) | (Endpoint::Guest(guest), end) if end == own => Some(guest),
        _ => None,
    });
    let elsewhere = guests.clone().any(|guest| {
        host.domains[guest.0].live.sockets.as_ref().is_some_and(|sockets| sockets.netns.is_some())
    });
    let name = &host.networks[network.0].outside[number].name;
    if elsewhere {
        return Err(ServeError::Refused(format!(
            "{}: the run does not stand for hosts outside in another network namespace: expected no `netns` \
             in the `sockets` of domains that it talks to",
            printable(name)
        )));
    }
    let mut addresses = guests
        .filter_map(|guest| host.domains[guest.0].live.sockets.as_ref().and_then(Sockets::datagram_address));
    let ip = addresses.next().map_or(std::net::Ipv4Addr::LOCALHOST, |address| *address.ip());
    let refused = |error: std::io::Error| {
        ServeError::Refused(format!("no socket with the address {ip} for {}: {error}", printable(name)))
    };
    let socket = UdpSocket::bind((ip, 0)).map_err(refused)?;
    socket.set_nonblocking(true).map_err(refused)?;
    let std::net::SocketAddr::V4(address) = socket.local_addr().map_err(refused)? else {
        return Err(refused(std::io::ErrorKind::AddrNotAvailable.into()));
    };
    let ethernet = punctual_vm::workload::bytes_of(address);
    Ok(OutsideHost { network, host: number, ethernet, socket: OutsideSocket::Datagrams(socket) })
}

impl LiveSockets {
    fn start(
        domain: &str,
        policy: &Sockets,
        processors: Vec<usize>,
        events: &Events,
    ) -> Result<(SwitchPort, LiveSockets), ServeError> {
        let refused = |error: &dyn std::error::Error| {
            ServeError::Refused(format!(
                "{}: no sockets of this host: {}",
                printable(domain),
                with_source(error)
            ))
        };
        let (port, listener) = SwitchPort::new().map_err(|error| refused(&error))?;
        listener.set_nonblocking(true).map_err(|error| refused(&error))?;
        let enter = enter(domain, processors, policy.priority, events);
        let config = Config {
            name: format!("sockets {domain}"),
            socket: std::path::PathBuf::new(),
            policy: policy.clone(),
            poll: policy.poll,
            enter,
        };
        let (server, happened) = Server::start_on(listener, config).map_err(|error| refused(&error))?;
        let (events, name) = (events.clone(), domain.to_owned());
        let relay = Relay::start(happened, move |event| {
            if let Event::InvalidRing(_) | Event::Failed(_) = event {
                events(events::Event::Sockets { domain: name.clone(), event });
            }
        });
        let counted = Mutex::new((Instant::now(), 0, 0));
        Ok((port, LiveSockets { domain: domain.to_owned(), server, relay, counted }))
    }

    /// What it had counted a moment ago.
    pub(crate) fn status(&self) -> SocketsStatus {
        let counts = self.server.counts();
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, calls, _) = *counted;
        let elapsed = since.elapsed();
        if elapsed >= INTERVAL {
            let rate = (counts.calls - calls) as u128 * 1_000_000 / elapsed.as_micros().max(1);
            *counted = (Instant::now(), counts.calls, rate as u64);
        }
        SocketsStatus {
            name: self.domain.clone(),
            sockets_most: counts.sockets_most,
            calls: counts.calls,
            calls_per_s: counted.2,
            refused: counts.refused,
            sent_bytes: counts.sent_bytes,
            received_bytes: counts.received_bytes,
            interrupts: counts.interrupts,
        }
    }

    /// Ends the server; what it counted.
    pub(crate) fn end(self) -> SocketsResult {
        let (counts, segments) = self.server.finish();
        self.relay.finish();
        let Counts { calls, refused, sent_bytes, received_bytes, events, .. } = counts;
        SocketsResult {
            domain: self.domain,
            calls,
            refused,
            sent_bytes,
            received_bytes,
            events,
            interrupts: counts.interrupts,
            sleeps: counts.sleeps,
            sockets_most: counts.sockets_most,
            held_up: counts.held_up,
            host_receive: segments.host_receive,
            guest: segments.guest,
            host_send: segments.host_send,
        }
    }
}
