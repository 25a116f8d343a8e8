//! Where the time of requests goes, as the host sees it: from a datagram to a guest until its answer.
//!
//! The segments are those of O. F. Garcia Alvarado, *Research on real-time network stacks of commodity hosted
//! virtual machine environments*, University of Tsukuba 2019, section 3.4.2.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Instant;

use punctual_model::Histogram;
use punctual_sched::Duration;

/// Most unanswered requests of a guest that are measured.
const OPEN_MAX: usize = 256;

/// Times of requests in each segment.
#[derive(Clone, Debug, Default)]
pub struct Segments {
    /// From the host's network stack, which timestamps a datagram on arrival, until the guest has it.
    pub host_receive: Histogram,
    /// The last part of `host_receive`: from the event to the guest until the server takes up its receive
    /// call.
    pub wake: Histogram,
    /// Until the server takes up the guest's call that sends the answer.
    pub guest: Histogram,
    /// Until the answer is sent.
    pub host_send: Histogram,
}

/// Unanswered requests: the socket's number, the sender, and when the guest had the request.
#[derive(Debug, Default)]
pub(crate) struct Open(VecDeque<(u32, SocketAddr, Instant)>);

impl Segments {
    /// Records that the guest received a datagram of `from`, which arrived `waited` ago.
    pub(crate) fn received(
        &mut self,
        open: &mut Open,
        socket: u32,
        from: SocketAddr,
        waited: Option<Duration>,
        wake: Option<Duration>,
    ) {
        waited.into_iter().for_each(|time| self.host_receive.record(time));
        wake.into_iter().for_each(|time| self.wake.record(time));
        if open.0.len() == OPEN_MAX {
            open.0.pop_front();
        }
        open.0.push_back((socket, from, Instant::now()));
    }

    /// Records that the guest sent a datagram to `to`, by a call that the server took up at `taken`.
    pub(crate) fn sent(&mut self, open: &mut Open, socket: u32, to: SocketAddr, taken: Instant) {
        let Some(at) = open.0.iter().position(|(own, from, _)| (*own, *from) == (socket, to)) else { return };
        let Some((.., had)) = open.0.remove(at) else { return };
        self.guest.record(since(had, taken));
        self.host_send.record(since(taken, Instant::now()));
    }
}

/// The time between two instants; 0 where `end` is before `start`.
pub(crate) fn since(start: Instant, end: Instant) -> Duration {
    let time = end.saturating_duration_since(start).as_nanos();
    Duration::from_ns(u64::try_from(time).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_belongs_to_the_first_request_of_its_peer_on_its_socket() {
        let (mut segments, mut open) = (Segments::default(), Open::default());
        let peers = [1, 2].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        for (socket, peer) in [(1, peers[0]), (1, peers[1]), (2, peers[0])] {
            segments.received(&mut open, socket, peer, Some(Duration::from_us(3)), None);
        }
        segments.sent(&mut open, 2, peers[1], Instant::now());
        assert_eq!(segments.guest.count(), 0, "no such request");
        segments.sent(&mut open, 2, peers[0], Instant::now());
        segments.sent(&mut open, 2, peers[0], Instant::now());
        segments.sent(&mut open, 1, peers[1], Instant::now());
        let counts = [&segments.host_receive, &segments.guest, &segments.host_send].map(Histogram::count);
        assert_eq!(counts, [3, 2, 2]);
    }

    #[test]
    fn requests_that_are_never_answered_are_dropped() {
        let (mut segments, mut open) = (Segments::default(), Open::default());
        for port in 0..1000 {
            segments.received(&mut open, 1, ([127, 0, 0, 1], port).into(), None, None);
        }
        assert_eq!(open.0.len(), OPEN_MAX);
    }
}
