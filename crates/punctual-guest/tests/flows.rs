//! Flows of guests over a network in virtual time, and their thread over a socket.

use std::os::unix::net::UnixDatagram;
use std::sync::atomic::AtomicBool;

use proptest::prelude::*;
use punctual_guest::flows::engine::Engine;
use punctual_guest::flows::frame::{Packet, Role};
use punctual_guest::flows::{self, Link, done_channel};
use punctual_guest::os;
use punctual_guest::protocol::*;
use punctual_jobs::flow::{burst_gap_ns, seed};
use punctual_jobs::stream::{Algorithm, Control, TcpParams};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
const WAY_NS: u64 = 30_000;

fn address(guest: usize) -> [u8; 6] {
    [0x52, 0x54, 0, 0, 0, guest as u8]
}

/// Both ends of a flow from the first guest to the second.
fn ends(owner: u16, traffic: Traffic, server: Option<usize>) -> [FlowEnd; 2] {
    [(true, 1), (false, 0)].map(|(begins, peer)| FlowEnd {
        owner,
        peer: address(peer),
        begins,
        traffic,
        start_ns: 0,
        deadline_ns: None,
        count: None,
        seed: seed(7, owner.into()),
        server: server.filter(|_| !begins),
        turnaround_ns: 0,
        pcp: None,
    })
}

/// The time, the sender and the packet.
type Log = Vec<(u64, usize, Packet)>;

/// Guests with engines. Each packet takes [`WAY_NS`] unless `is_lost` drops it. Each job takes 2 ms.
struct World<F> {
    engines: Vec<Engine>,
    on_the_way: Vec<(u64, usize, usize, Packet, u32)>,
    jobs: Vec<(u64, usize, usize, u64)>,
    log: Log,
    is_lost: F,
}

impl<F: FnMut(&Packet) -> bool> World<F> {
    fn new(networks: &[(Vec<FlowEnd>, Vec<ChainStep>)], tasks: usize, is_lost: F) -> Self {
        let engine = |(guest, (flows, steps)): (usize, &(Vec<FlowEnd>, Vec<ChainStep>))| {
            let network = Network {
                ethernet: address(guest),
                datagrams: false,
                flows: flows.clone(),
                steps: steps.clone(),
            };
            Engine::new(&network, tasks, SECOND)
        };
        let engines = networks.iter().enumerate().map(engine).collect();
        World { engines, on_the_way: Vec::new(), jobs: Vec::new(), log: Vec::new(), is_lost }
    }

    /// To the end of the second.
    fn run(mut self) -> (Vec<Vec<FlowReport>>, Log) {
        let mut now_ns = 0;
        while now_ns < SECOND {
            self.step(now_ns);
            let timers = self.engines.iter().map(Engine::next_ns);
            let arrivals = self.on_the_way.iter().map(|packet| packet.0);
            let jobs = self.jobs.iter().map(|job| job.0);
            let next_ns = timers.chain(arrivals).chain(jobs).min().unwrap_or(SECOND);
            // A storm sends one packet in 10 us.
            now_ns = next_ns.max(now_ns + 10_000);
        }
        (self.engines.into_iter().map(Engine::into_reports).collect(), self.log)
    }

    fn step(&mut self, now_ns: u64) {
        let arrived: Vec<_> = self.on_the_way.extract_if(.., |packet| packet.0 <= now_ns).collect();
        for (_, from, to, packet, bytes) in arrived {
            self.engines[to].received(address(from), &packet, bytes.into(), now_ns);
        }
        for (at_ns, guest, task, release_ns) in self.jobs.extract_if(.., |job| job.0 <= now_ns) {
            self.engines[guest].job_done(task, release_ns, at_ns.max(release_ns));
        }
        for guest in 0..self.engines.len() {
            let engine = &mut self.engines[guest];
            engine.advance(now_ns);
            while let Some(release) = engine.next_release() {
                self.jobs.push((now_ns + 2 * MS, guest, release.task, release.job.release_ns));
            }
            // No more than is there: a storm's next packet follows at once.
            let mut budget = 64;
            while let Some(&outgoing) = engine.to_send()
                && budget > 0
            {
                budget -= 1;
                engine.sent(now_ns);
                self.log.push((now_ns, guest, outgoing.packet));
                if !(self.is_lost)(&outgoing.packet) {
                    let to = usize::from(outgoing.to[5]);
                    let packet = (now_ns + WAY_NS, guest, to, outgoing.packet, outgoing.bytes);
                    self.on_the_way.push(packet);
                }
            }
        }
    }
}

/// What both ends of one flow report, and what was sent.
fn alone(traffic: Traffic, is_lost: impl FnMut(&Packet) -> bool) -> ([FlowReport; 2], Vec<(u64, Packet)>) {
    let [from, to] = ends(0, traffic, None);
    let networks = [(vec![from], vec![]), (vec![to], vec![])];
    let (reports, log) = World::new(&networks, 0, is_lost).run();
    let mut reports = reports.into_iter().map(|mut of_guest| of_guest.remove(0));
    let reports = [reports.next().expect("the first"), reports.next().expect("the second")];
    (reports, log.into_iter().map(|(at_ns, _, packet)| (at_ns, packet)).collect())
}

fn count(times: &Times) -> u64 {
    times.buckets.iter().map(|(_, count)| u64::from(*count)).sum()
}

#[test]
fn a_ping_follows_the_answer_and_its_latency_is_the_round_trip() {
    let ping = Traffic::Ping { bytes: 98, timeout_ns: SECOND, pause_ns: 9_940_000 };
    let ([from, to], log) = alone(ping, |_| false);
    assert_eq!((from.created, to.delivered, to.created, from.delivered), (100, 100, 100, 100));
    assert_eq!((count(&from.latency), from.latency.min_ns, from.latency.max_ns), (100, 60_000, 60_000));
    assert_eq!((to.bytes, count(&to.latency)), (9800, 0));
    let sent: Vec<u64> = log.iter().step_by(2).map(|(at_ns, _)| *at_ns).collect();
    assert_eq!(sent, (0..100).map(|n| n * 10 * MS).collect::<Vec<_>>());
}

#[test]
fn a_lost_ping_is_given_up_and_the_next_one_follows() {
    let ping = Traffic::Ping { bytes: 98, timeout_ns: 20 * MS, pause_ns: 0 };
    let ([from, _], log) = alone(ping, |packet| packet.number == 3);
    assert_eq!(from.timeouts, 1);
    let at = |number: u64| log.iter().find(|(_, packet)| packet.number == number).map(|(at_ns, _)| *at_ns);
    let (Some(third), Some(fourth)) = (at(3), at(4)) else { panic!("both were sent") };
    assert_eq!(fourth - third, 20 * MS);
}

/// The answers to a request that waits in the socket of a guest whose flows begin at that time.
fn answers_when_the_request_came_first(start_ns: u64) -> usize {
    let ping = Traffic::Ping { bytes: 98, timeout_ns: SECOND, pause_ns: 0 };
    let [_, end] = ends(0, ping, None);
    let network = Network { ethernet: address(1), datagrams: false, flows: vec![end], steps: vec![] };
    let (ours, theirs) = UnixDatagram::pair().expect("sockets");
    for socket in [&ours, &theirs] {
        socket.set_nonblocking(true).expect("a flag");
    }
    let mut frame = Vec::new();
    let packet = Packet { owner: 0, role: Role::Request, number: 0, origin_ns: 0 };
    packet.write((address(0), address(1)), None, 98, &mut frame);
    theirs.send(&frame).expect("sent");
    let (_, done) = done_channel().expect("a channel");
    let link = Link::of_program(ours.into(), 0);
    let engine = Engine::new(&network, 0, SECOND);
    let (stop, when) = (AtomicBool::new(false), (start_ns, 200 * MS));
    flows::run(engine, &link, address(1), &done, when, &stop, &mut |_, _| ());
    std::iter::from_fn(|| theirs.recv(&mut [0; 1500]).ok()).count()
}

#[test]
fn a_packet_counts_unless_it_came_before_the_start_even_if_its_guest_is_late() {
    assert_eq!(answers_when_the_request_came_first(os::now_ns() - 50 * MS), 1);
    assert_eq!(answers_when_the_request_came_first(os::now_ns() + 300 * MS), 0);
}

#[test]
fn bursts_are_released_when_the_law_says() {
    let periodic = Traffic::Periodic { bytes: 200, period_ns: 5 * MS, slack_mean_ns: MS, burst: 3 };
    let ([from, to], log) = alone(periodic, |_| false);
    let mut expected = Vec::new();
    let mut at_ns = 0;
    for number in 0.. {
        if at_ns >= SECOND {
            break;
        }
        expected.extend([at_ns; 3]);
        at_ns += burst_gap_ns(seed(7, 0), number, 5 * MS, MS);
    }
    let origins: Vec<u64> = log.iter().map(|(_, packet)| packet.origin_ns).collect();
    assert_eq!(origins, expected);
    assert_eq!(from.created, expected.len() as u64);
    assert!(from.created - to.delivered <= 3 && to.bytes == 200 * to.delivered);
}

#[test]
fn goose_is_sent_at_events_and_repeated_at_growing_distances() {
    let goose = Traffic::Goose {
        bytes: 160,
        period_ns: Some(400 * MS),
        slack_mean_ns: 0,
        retransmit_ns: 2 * MS,
        heartbeat_ns: 100 * MS,
    };
    let ([from, to], log) = alone(goose, |_| false);
    let event_ms = [0, 2, 6, 14, 30, 62, 126, 226, 326];
    let expected = [0, 400, 800].into_iter().flat_map(|at| event_ms.map(|after| at + after));
    let expected: Vec<u64> = expected.filter(|at| *at < 1_000).map(|at| at * MS).collect();
    let origins: Vec<u64> = log.iter().map(|(_, packet)| packet.origin_ns).collect();
    assert_eq!(origins, expected);
    assert_eq!((from.created, to.delivered), (expected.len() as u64, expected.len() as u64));
}

#[test]
fn a_request_is_answered_by_its_task_when_that_is_done() {
    let request =
        Traffic::Request { bytes: 100, reply_bytes: 300, period_ns: Some(10 * MS), timeout_ns: SECOND };
    let [from, to] = ends(0, request, Some(0));
    let (reports, _) = World::new(&[(vec![from], vec![]), (vec![to], vec![])], 1, |_| false).run();
    let from = &reports[0][0];
    assert_eq!((from.created, count(&from.latency)), (100, 100));
    assert_eq!((from.latency.min_ns, from.latency.max_ns), (2 * MS + 60_000, 2 * MS + 60_000));
}

#[test]
fn a_storm_goes_on_when_its_packet_was_sent_and_keeps_its_distance() {
    let ([from, _], _) = alone(Traffic::Storm { bytes: 1514, interval_ns: MS }, |_| false);
    assert_eq!(from.created, 1000);
    let ([from, to], _) = alone(Traffic::Storm { bytes: 60, interval_ns: 0 }, |_| false);
    assert!(from.created >= 90_000 && to.delivered > 90_000, "{from:?}");
}

#[test]
fn a_stream_delivers_everything_once_and_in_order_though_packets_are_lost() {
    let tcp = |algorithm| TcpParams { algorithm, initial_window: 10, rto_min_ns: 20 * MS };
    let controls = [
        Control::Basic { timeout_ns: 20 * MS },
        Control::Tcp(tcp(Algorithm::Reno)),
        Control::Tcp(tcp(Algorithm::Cubic)),
    ];
    for control in controls {
        let stream = Traffic::Stream { bytes: 1514, ack_bytes: 66, window: 16, ack_every: 2, control };
        let mut number = 0;
        let ([from, to], _) = alone(stream, |_| {
            number += 1;
            number % 97 == 0
        });
        assert!(from.retransmissions > 0, "{from:?}");
        assert_eq!(to.bytes % 1514, 0);
        assert!(to.bytes / 1514 <= to.delivered && to.bytes / 1514 > 1000, "{to:?}");
    }
}

#[test]
fn a_chain_goes_from_guest_to_guest_and_its_time_counts_from_the_first_release() {
    let (bytes, pcp, deadline_ns) = (98, None, 5 * MS);
    let step = |step, task, next| ChainStep { owner: 5, step, task, next, bytes, pcp, deadline_ns };
    let steps = [
        vec![step(0, 0, Next::There(address(1))), step(2, 1, Next::End)],
        vec![step(1, 0, Next::There(address(0)))],
    ];
    let mut world = World::new(&steps.map(|steps| (vec![], steps)), 2, |_| false);
    // The first task, which time releases, is done twice.
    world.jobs = vec![(3 * MS, 0, 0, MS), (13 * MS, 0, 0, 11 * MS)];
    let (reports, _) = world.run();
    let chain = &reports[0][0];
    // 2 ms for each of three jobs and two ways.
    let [least, most] = [6 * MS + 2 * WAY_NS, 6 * MS + 2 * WAY_NS + 10_000];
    assert!((least..=most).contains(&chain.latency.min_ns) && chain.latency.max_ns <= most, "{chain:?}");
    assert_eq!((count(&chain.latency), chain.in_time, count(&chain.tardiness)), (2, 0, 2));
    assert_eq!(
        (chain.created, chain.delivered, reports[1][0].created, reports[1][0].delivered),
        (2, 2, 2, 2)
    );
}

fn control() -> impl Strategy<Value = Control> {
    let algorithm = prop_oneof![Just(Algorithm::Reno), Just(Algorithm::Cubic)];
    prop_oneof![
        (100_000..50 * MS).prop_map(|timeout_ns| Control::Basic { timeout_ns }),
        (algorithm, 1_u32..20, 100_000..50 * MS).prop_map(|(algorithm, initial_window, rto_min_ns)| {
            Control::Tcp(TcpParams { algorithm, initial_window, rto_min_ns })
        }),
    ]
}

fn traffic() -> impl Strategy<Value = Traffic> {
    let bytes = 60..=FRAME_BYTES_MAX;
    let time = || 100_000..50 * MS;
    prop_oneof![
        (bytes.clone(), time(), time()).prop_map(|(bytes, timeout_ns, pause_ns)| Traffic::Ping {
            bytes,
            timeout_ns,
            pause_ns
        }),
        (bytes.clone(), proptest::option::of(time()), time()).prop_map(|(bytes, period_ns, timeout_ns)| {
            Traffic::Request { bytes, reply_bytes: 98, period_ns, timeout_ns }
        }),
        (bytes.clone(), time(), 0..10 * MS, 1_u32..20).prop_map(
            |(bytes, period_ns, slack_mean_ns, burst)| {
                Traffic::Periodic { bytes, period_ns, slack_mean_ns, burst }
            }
        ),
        (bytes.clone(), 1_u32..100, control()).prop_map(|(bytes, window, control)| Traffic::Stream {
            bytes,
            ack_bytes: 66,
            window,
            ack_every: 1.max(window / 2),
            control
        }),
        (bytes, 0..MS).prop_map(|(bytes, interval_ns)| Traffic::Storm { bytes, interval_ns }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever is lost: nothing arrives that was not sent, each answer and each datum counts once, and
    /// requests are answered, given up or waiting.
    #[test]
    fn packets_are_accounted_for(
        flows in prop::collection::vec(traffic(), 1..4), one_in in 2_u64..50
    ) {
        let mut networks = [(vec![], vec![]), (vec![], vec![])];
        for (owner, traffic) in flows.iter().enumerate() {
            let [from, to] = ends(owner as u16, *traffic, None);
            networks[0].0.push(from);
            networks[1].0.push(to);
        }
        let mut number = 0_u64;
        let (reports, log) = World::new(&networks, 0, |_| {
            number += 1;
            punctual_jobs::mix(3, number).is_multiple_of(one_in)
        }).run();
        for (place, traffic) in flows.iter().enumerate() {
            let [from, to] = [&reports[0][place], &reports[1][place]];
            prop_assert!(to.delivered <= from.created && from.delivered <= to.created);
            let sent = log.iter().filter(|(_, _, packet)| usize::from(packet.owner) == place).count() as u64;
            prop_assert!(sent + from.send_queue + to.send_queue <= from.created + to.created);
            prop_assert!(from.delivered + to.delivered <= sent);
            match traffic {
                Traffic::Ping { .. } | Traffic::Request { .. } => {
                    prop_assert!(count(&from.latency) + from.timeouts <= from.created);
                    prop_assert!(count(&from.latency) <= from.delivered);
                }
                _ => prop_assert!(count(&to.latency) <= to.delivered),
            }
        }
    }
}
