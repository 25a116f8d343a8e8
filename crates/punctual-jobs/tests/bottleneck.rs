//! Streams over a link with a queue that drops what it cannot hold: what a sender keeps to on any network,
//! its windows on one, and those of Linux on the same.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use proptest::prelude::*;
use punctual_jobs::mix;
use punctual_jobs::stream::{ACK_DELAY_NS, Algorithm, Control, Receiver, Sender, Tcp, TcpParams};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

/// A sender, a queue in front of a link, and a receiver whose acknowledgements come back at once.
#[derive(Clone, Debug)]
struct Network {
    control: Control,
    window: u32,
    ack_every: u32,
    /// How long a packet occupies the link.
    packet_ns: u64,
    /// Packets that wait for the link or are on it, at most.
    queue: usize,
    /// There and back together.
    delay_ns: u64,
    /// Of 1,000 packets and acknowledgements so many are lost beyond the queue, until `quiet_ns`.
    lost: u64,
    quiet_ns: u64,
    seed: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Data(u64),
    Ack(u64),
    Silence,
    AckDelay,
}

struct World<'n> {
    network: &'n Network,
    now_ns: u64,
    sender: Sender,
    receiver: Receiver,
    /// When each packet in the queue has left it.
    leaves: VecDeque<u64>,
    agenda: BinaryHeap<Reverse<(u64, u64, What)>>,
    numbers: u64,
    created: u64,
    delivered: u64,
    dropped: u64,
    acks: u64,
    in_order: u64,
    timeouts: u64,
    /// The congestion window every 50 ms.
    series: Vec<u32>,
    /// When recoveries began.
    losses: Vec<u64>,
}

impl<'n> World<'n> {
    fn new(network: &'n Network) -> Self {
        World {
            network,
            now_ns: 0,
            sender: Sender::new(network.window, network.control),
            receiver: Receiver::new(network.ack_every),
            leaves: VecDeque::new(),
            agenda: BinaryHeap::new(),
            numbers: 0,
            created: 0,
            delivered: 0,
            dropped: 0,
            acks: 0,
            in_order: 0,
            timeouts: 0,
            series: Vec::new(),
            losses: Vec::new(),
        }
    }

    fn tcp(&self) -> &Tcp {
        self.sender.tcp().expect("a sender by the RFCs")
    }

    fn set(&mut self, at_ns: u64, what: What) {
        self.numbers += 1;
        self.agenda.push(Reverse((at_ns, self.numbers, what)));
    }

    fn is_lost(&self) -> bool {
        self.now_ns < self.network.quiet_ns
            && mix(self.network.seed, self.numbers) % 1_000 < self.network.lost
    }

    fn send(&mut self, packet: u64) {
        self.created += 1;
        while self.leaves.front().is_some_and(|leaves| *leaves <= self.now_ns) {
            self.leaves.pop_front();
        }
        self.numbers += 1;
        if self.leaves.len() >= self.network.queue || self.is_lost() {
            self.dropped += 1;
            return;
        }
        let leaves = self.leaves.back().map_or(self.now_ns, |last| *last) + self.network.packet_ns;
        self.leaves.push_back(leaves);
        self.set(leaves + self.network.delay_ns, What::Data(packet));
    }

    fn send_all(&mut self) {
        while let Some((packet, _)) = self.sender.send(self.now_ns) {
            self.send(packet);
        }
        let on_their_way = self.sender.sent() - self.receiver.up_to().min(self.sender.sent());
        assert!(on_their_way <= u64::from(self.network.window), "{on_their_way}");
        if let Some(at_ns) = self.sender.expires_at_ns(self.now_ns) {
            self.set(at_ns, What::Silence);
        }
    }

    fn acknowledge(&mut self) {
        self.receiver.acknowledged();
        self.numbers += 1;
        if !self.is_lost() {
            let up_to = self.receiver.up_to();
            self.set(self.now_ns, What::Ack(up_to));
        }
    }

    fn happens(&mut self, what: What) {
        match what {
            What::Data(packet) => {
                self.delivered += 1;
                let owed = self.receiver.owes();
                let received = self.receiver.receive(packet);
                self.in_order += received.in_order;
                assert_eq!(self.in_order, self.receiver.up_to(), "each once, and in order");
                if received.acknowledge {
                    self.acknowledge();
                } else if self.receiver.owes() && !owed {
                    self.set(self.now_ns + ACK_DELAY_NS, What::AckDelay);
                }
            }
            What::Ack(up_to) => {
                self.acks += 1;
                let before = self.tcp().counts().fast_retransmits;
                if let Some(packet) = self.sender.acknowledge(up_to, self.now_ns) {
                    self.send(packet);
                }
                if self.tcp().counts().fast_retransmits > before {
                    self.losses.push(self.now_ns);
                }
                self.send_all();
            }
            What::Silence => {
                if self.sender.expires_at_ns(self.now_ns) == Some(self.now_ns) {
                    self.timeouts += 1;
                    self.sender.expire();
                    self.send_all();
                }
            }
            What::AckDelay => {
                if self.receiver.owes() {
                    self.acknowledge();
                }
            }
        }
        assert!((1..=self.network.window).contains(&self.tcp().congestion_window()));
    }

    fn run(mut self, until_ns: u64) -> Self {
        self.send_all();
        self.continue_while(|world| world.next_ns() < until_ns);
        self
    }

    fn next_ns(&self) -> u64 {
        self.agenda.peek().map_or(u64::MAX, |event| event.0.0)
    }

    fn continue_while(&mut self, goes_on: impl Fn(&Self) -> bool) {
        while goes_on(self)
            && let Some(Reverse((at_ns, _, what))) = self.agenda.pop()
        {
            while self.series.len() as u64 * 50 * MS <= at_ns {
                self.series.push(self.tcp().congestion_window());
            }
            self.now_ns = at_ns;
            self.happens(what);
        }
    }
}

fn tcp(algorithm: Algorithm) -> Control {
    Control::Tcp(TcpParams { algorithm, initial_window: 10, rto_min_ns: 200 * MS })
}

/// `mbit` Mbit/s and a queue for so many packets of 1514 bytes.
fn bottleneck(algorithm: Algorithm, mbit: u64, queue: usize) -> Network {
    Network {
        control: tcp(algorithm),
        window: 1_000,
        ack_every: 2,
        packet_ns: 1_514 * 8 * US / mbit,
        queue,
        delay_ns: 100 * US,
        lost: 0,
        quiet_ns: 0,
        seed: 0,
    }
}

/// Least and greatest congestion window after the first half of 20 s, and the mean time between two losses.
fn saw(network: &Network) -> (u32, u32, f64) {
    let mut world = World::new(network).run(20 * SECOND);
    assert!(world.timeouts <= 1, "only what slow start loses at the beginning may need one");
    let late = &world.series[200..];
    world.losses.retain(|at_ns| *at_ns >= 10 * SECOND);
    let (first, last) = (world.losses[0], world.losses[world.losses.len() - 1]);
    let period = (last - first) as f64 / 1e9 / (world.losses.len() - 1) as f64;
    let (low, high) = late.iter().fold((u32::MAX, 0), |(low, high), one| (low.min(*one), high.max(*one)));
    (low, high, period)
}

/// Linux 6.18 with the same queue in its token bucket filter, measured
/// (measurements/2026-11-28-tcp-windows): windows from `low` to `high`, a loss every `period` seconds.
#[test]
fn the_windows_are_those_of_linux_behind_the_same_queue() {
    let linux = [
        (Algorithm::Reno, 50, 100, (50, 101, 1.024)),
        (Algorithm::Cubic, 50, 100, (70, 101, 1.336)),
        (Algorithm::Reno, 10, 30, (15, 32, 0.514)),
        (Algorithm::Cubic, 10, 30, (21, 31, 0.681)),
    ];
    for (algorithm, mbit, queue, (low, high, period)) in linux {
        let ours = saw(&bottleneck(algorithm, mbit, queue));
        println!("{algorithm:?} {mbit} Mbit/s, {queue} packets: {ours:?}");
        let is_near = ours.0.abs_diff(low) <= 2 && ours.1.abs_diff(high) <= 2;
        assert!(is_near && (ours.2 / period - 1.0).abs() < 0.1, "{algorithm:?} {mbit}: {ours:?}");
    }
}

#[test]
fn the_windows_on_one_network_are_these() {
    let series = |algorithm| World::new(&bottleneck(algorithm, 50, 100)).run(4 * SECOND).series;
    assert_eq!(
        series(Algorithm::Reno),
        [
            10, 112, 75, 75, 75, 75, 2, 69, 77, 80, 82, 85, 87, 89, 92, 94, 96, 98, 100, 51, 53, 57, 61, 64,
            67, 70, 73, 76, 78, 81, 83, 86, 88, 91, 93, 95, 97, 99, 101, 51, 55, 59, 62, 65, 68, 71, 74, 77,
            80, 82, 85, 87, 89, 92, 94, 96, 98, 100, 50, 53, 57, 60, 64, 67, 70, 73, 76, 78, 81, 83, 86, 88,
            90, 93, 95, 97, 99, 101, 51, 55
        ]
    );
    assert_eq!(
        series(Algorithm::Cubic),
        [
            10, 112, 105, 105, 105, 105, 1, 49, 73, 73, 73, 74, 76, 77, 78, 80, 81, 83, 84, 85, 86, 88, 89,
            90, 91, 92, 94, 95, 96, 97, 98, 99, 100, 70, 71, 72, 74, 75, 77, 78, 80, 81, 82, 84, 85, 86, 87,
            89, 90, 91, 92, 93, 94, 96, 97, 98, 99, 100, 70, 70, 72, 73, 75, 76, 78, 79, 81, 82, 83, 84, 86,
            87, 88, 89, 91, 92, 93, 94, 95, 96
        ]
    );
}

fn networks() -> impl Strategy<Value = Network> {
    let control = (prop_oneof![Just(Algorithm::Reno), Just(Algorithm::Cubic)], 1_u32..20, 1_u64..300);
    let link = (20_u64..2_000, 1_usize..60, 0_u64..20_000);
    let losses = (prop_oneof![Just(0), 0_u64..200], 0..SECOND, any::<u64>());
    (control, 1_u32..100, 1_u32..4, link, losses).prop_map(|(control, window, ack_every, link, losses)| {
        let (algorithm, initial_window, rto_min_ms) = control;
        let params = TcpParams { algorithm, initial_window, rto_min_ns: rto_min_ms * MS };
        Network {
            control: Control::Tcp(params),
            window: window.max(ack_every),
            ack_every,
            packet_ns: link.0 * US,
            queue: link.1,
            delay_ns: link.2 * US,
            lost: losses.0,
            quiet_ns: losses.1,
            seed: losses.2,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Whatever is lost: each packet is delivered once and in order, windows keep to their bounds (asserted
    /// on the way), packets are accounted for, nothing is faster than the link, and the stream never stops.
    #[test]
    fn any_network_gets_everything_once_and_in_order(network in networks()) {
        let until_ns = SECOND / 2;
        let mut world = World::new(&network).run(until_ns);
        let on_their_way = world.agenda.iter().filter(|event| matches!(event.0.2, What::Data(_))).count();
        prop_assert!(world.created >= world.delivered + world.dropped);
        prop_assert!(world.created - world.delivered - world.dropped <= on_their_way as u64 + 1);
        prop_assert!(world.in_order <= world.delivered);
        prop_assert!(world.in_order <= until_ns / network.packet_ns);
        // Losses end after a second; a silence lasts 120 s at most.
        let before = world.in_order;
        world.continue_while(|world| world.in_order == before && world.next_ns() < 150 * SECOND);
        prop_assert!(world.in_order > before);
    }
}
