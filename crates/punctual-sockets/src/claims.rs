//! Which VM has which port.
//!
//! Linux lets sockets of one user share a port (`SO_REUSEPORT`; datagram sockets with `SO_REUSEADDR` as
//! well), and to Linux the servers of all VMs are one user. So a bind claims its address: no socket of
//! another VM of this process gets one that overlaps with it, whatever its options. Sockets of one VM share
//! ports as Linux lets them.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use punctual_model::sockets::Protocol;

/// A VM, as long as its server lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner(u64);

impl Owner {
    pub(crate) fn new() -> Owner {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Owner(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// An address that sockets are bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    pub(crate) address: SocketAddr,
    /// An IPv6 socket that takes no IPv4.
    pub(crate) is_ipv6_only: bool,
}

impl Bound {
    /// Can something that is sent to one reach the other? The ports are the same.
    fn overlaps(&self, other: &Bound) -> bool {
        let takes = |all: &Bound, ip: IpAddr| match all.address.ip().to_canonical() {
            IpAddr::V4(any) if any.is_unspecified() => ip.is_ipv4(),
            IpAddr::V6(any) if any.is_unspecified() => ip.is_ipv6() || !all.is_ipv6_only,
            own => own == ip,
        };
        let [ip, other_ip] = [self, other].map(|bound| bound.address.ip().to_canonical());
        takes(self, other_ip) || takes(other, ip)
    }
}

/// Network namespace, protocol and port.
type Place = (Option<String>, bool, u16);

#[derive(Debug)]
struct Entry {
    number: u64,
    owner: Owner,
    bound: Bound,
}

#[derive(Debug)]
struct Claims {
    next: u64,
    by_place: BTreeMap<Place, Vec<Entry>>,
}

static CLAIMS: Mutex<Claims> = Mutex::new(Claims { next: 0, by_place: BTreeMap::new() });

fn claims() -> MutexGuard<'static, Claims> {
    CLAIMS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An address that belongs to a VM until this is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    place: Place,
    number: u64,
}

impl Claim {
    /// Claims an address in a network namespace; `None` if another VM has one that overlaps.
    pub(crate) fn new(owner: Owner, netns: Option<&str>, protocol: Protocol, bound: Bound) -> Option<Claim> {
        let place = (netns.map(str::to_owned), protocol == Protocol::Udp, bound.address.port());
        let mut claims = claims();
        let entries = claims.by_place.entry(place.clone()).or_default();
        if entries.iter().any(|entry| entry.owner != owner && entry.bound.overlaps(&bound)) {
            return None;
        }
        let number = claims.next;
        claims.next += 1;
        claims.by_place.entry(place.clone()).or_default().push(Entry { number, owner, bound });
        Some(Claim { place, number })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut claims = claims();
        if let Some(entries) = claims.by_place.get_mut(&self.place) {
            entries.retain(|entry| entry.number != self.number);
            if entries.is_empty() {
                claims.by_place.remove(&self.place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(address: &str) -> Bound {
        Bound { address: address.parse().expect("an address"), is_ipv6_only: false }
    }

    #[test]
    fn addresses_overlap_where_a_packet_could_reach_both() {
        let only = |address: &str| Bound { is_ipv6_only: true, ..bound(address) };
        for (one, other, expected) in [
            (bound("127.0.0.1:7"), bound("127.0.0.1:7"), true),
            (bound("127.0.0.1:7"), bound("127.0.0.2:7"), false),
            (bound("127.0.0.1:7"), bound("0.0.0.0:7"), true),
            (bound("127.0.0.1:7"), bound("[::]:7"), true),
            (bound("127.0.0.1:7"), only("[::]:7"), false),
            (bound("127.0.0.1:7"), bound("[::ffff:127.0.0.1]:7"), true),
            (bound("0.0.0.0:7"), bound("[::ffff:0.0.0.0]:7"), true),
            (bound("[::1]:7"), bound("0.0.0.0:7"), false),
            (bound("[::1]:7"), only("[::]:7"), true),
            (bound("[::1]:7"), bound("[::2]:7"), false),
        ] {
            assert_eq!(one.overlaps(&other), expected, "{one:?} {other:?}");
            assert_eq!(other.overlaps(&one), expected, "{other:?} {one:?}");
        }
    }

    #[test]
    fn an_address_is_one_vms_until_its_last_socket_is_closed() {
        let [a, b] = [Owner::new(), Owner::new()];
        let claim = |owner, protocol| Claim::new(owner, Some("claims-test"), protocol, bound("127.0.0.1:7"));
        let held = [claim(a, Protocol::Tcp), claim(a, Protocol::Tcp)];
        assert!(held.iter().all(Option::is_some), "sockets of one VM share it");
        assert!(claim(b, Protocol::Tcp).is_none() && claim(b, Protocol::Udp).is_some());
        let elsewhere = Claim::new(b, Some("claims-test-2"), Protocol::Tcp, bound("127.0.0.1:7"));
        assert!(elsewhere.is_some(), "another namespace has ports of its own");
        let [first, second] = held;
        drop(first);
        assert!(claim(b, Protocol::Tcp).is_none());
        drop(second);
        assert!(claim(b, Protocol::Tcp).is_some());
    }
}
