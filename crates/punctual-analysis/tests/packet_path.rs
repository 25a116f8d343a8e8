//! No packet that the disciplines of punctual-net let through comes later than its bound.

use proptest::prelude::*;
use punctual_analysis::packet_path::{Flow, Path, burst_after, chain, supplied};
use punctual_analysis::supply::Supply;
use punctual_net::registry::{self, OptionValue, Options};
use punctual_net::{Discipline, Fate, FlowId, InterfaceId, InterfaceParams, Next, Packet, Stage};
use punctual_sched::{Duration, Instant};

fn ns(n: u64) -> Duration {
    Duration::from_ns(n)
}

fn at(after: u64) -> Instant {
    Instant::ZERO + ns(after)
}

/// A guest that sends, and when.
#[derive(Clone, Debug)]
struct Sender {
    flow: Flow,
    /// Packets at once at most.
    burst: u64,
    /// Distances of its packets beyond what the arrival curve asks for, in ns.
    pauses: Vec<u64>,
}

/// Times of arrival, as early as the curve and the pauses permit: the generic cell rate algorithm (ITU-T
/// I.371), which lets exactly burst + w / period packets into a closed window of length w.
fn arrivals(sender: &Sender) -> Vec<u64> {
    let (burst, period) = (sender.burst, sender.flow.period.as_ns());
    let (mut now, mut theoretical) = (0, 0u64);
    let next = |pause: &u64| {
        now = (now + pause).max(theoretical.saturating_sub((burst - 1) * period));
        theoretical = theoretical.max(now) + period;
        now
    };
    sender.pauses.iter().map(next).collect()
}

/// The senders' interfaces, whose rings and queues hold whatever comes.
fn attach(discipline: &mut dyn Discipline, senders: &[Sender]) -> Vec<InterfaceId> {
    let mut attach = |sender: &Sender| {
        let params = InterfaceParams {
            priority: Some(sender.flow.priority as u32),
            batch: Some(sender.flow.batch as u32),
            ring_slots: Some(65_536),
            softnet_limit: Some(65_536),
            ..InterfaceParams::default()
        };
        discipline.attach(at(0), &params).expect("valid")
    };
    senders.iter().map(&mut attach).collect()
}

/// All packets in the order of arrival: when, and from which sender.
fn coming(senders: &[Sender]) -> Vec<(u64, usize)> {
    let of = |(from, sender): (usize, &Sender)| arrivals(sender).into_iter().map(move |time| (time, from));
    let mut coming: Vec<(u64, usize)> = senders.iter().enumerate().flat_map(of).collect();
    coming.sort_unstable();
    coming
}

/// The greatest delay of each sender's packets; the driver is that of the disciplines' contract.
fn delays(discipline: &mut dyn Discipline, senders: &[Sender], round: u64) -> Vec<u64> {
    let (ids, coming) = (attach(discipline, senders), coming(senders));
    let packet = |(n, (_, from)): (usize, &(u64, usize))| Packet {
        id: n as u64,
        flow: FlowId(*from as u32),
        source: ids[*from],
        destination: ids[(*from + 1) % ids.len()],
        bytes: 100,
    };
    let packets: Vec<Packet> = coming.iter().enumerate().map(packet).collect();
    let mut worst = vec![0; senders.len()];
    let (mut now, mut next) = (0, 0);
    let mut offer = |discipline: &mut dyn Discipline, until: u64| {
        while next < coming.len() && coming[next].0 <= until {
            discipline.arrive(at(coming[next].0), packets[next]).expect("rings are large");
            next += 1;
        }
        coming.get(next).map(|(time, _)| *time)
    };
    loop {
        let coming_at = offer(discipline, now);
        let step = match discipline.next(at(now)) {
            Next::Process(step) => step,
            _ => match coming_at {
                Some(time) => {
                    now = time;
                    continue;
                }
                None => return worst,
            },
        };
        let from = coming[step.packet.id as usize].1;
        let Flow { tx, softnet, rx, .. } = senders[from].flow;
        let cost = match step.stage {
            Stage::Tx => tx.as_ns(),
            Stage::Softnet => softnet.as_ns(),
            Stage::Rx => rx.as_ns(),
        };
        now += cost + if step.starts_round { round } else { 0 };
        offer(discipline, now);
        match discipline.complete(at(now)) {
            Fate::Delivered => worst[from] = worst[from].max(now - coming[step.packet.id as usize].0),
            Fate::Queued(_) => {}
            Fate::Dropped(reason) => panic!("{reason:?} with rings as large as they come"),
        }
    }
}

fn build(name: &str, options: &[(&'static str, u64)]) -> Box<dyn Discipline> {
    let options = options
        .iter()
        .fold(Options::new(), |options, &(name, count)| options.with(name, OptionValue::Count(count)));
    (registry::find(name).expect("a known discipline").build)(&options).expect("valid options")
}

fn sender() -> impl Strategy<Value = Sender> {
    let costs = (1u64..40, 1u64..40, 1u64..40);
    let pauses = prop::collection::vec(prop_oneof![6 => Just(0u64), 1 => 1u64..400], 1..40);
    (0u64..4, 1u64..6, 200u64..3000, costs, 1u64..5, pauses).prop_map(
        |(priority, burst, period, (tx, softnet, rx), batch, pauses)| Sender {
            flow: Flow {
                priority,
                burst: 1,
                period: ns(period),
                jitter: ns((burst - 1) * period),
                event: Duration::ZERO,
                tx: ns(tx),
                softnet: ns(softnet),
                rx: ns(rx),
                batch,
            },
            burst,
            pauses,
        },
    )
}

fn path(senders: &[Sender], round: u64) -> Path {
    Path {
        round: ns(round),
        softnet_limit: 65_536,
        ring_slots: 65_536,
        ..Path::new(senders.iter().map(|sender| sender.flow).collect())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_packet_is_later_than_its_bound(
        senders in prop::collection::vec(sender(), 2..6), round in 0u64..20, tx_round in 1u64..8,
    ) {
        let path = Path { tx_round, ..path(&senders, round) };
        let limits = [("tx_round", tx_round)];
        let shipped = delays(&mut *build("netback", &limits), &senders, round);
        if let Some(bound) = path.shipped_by_arrivals() {
            prop_assert!(shipped.iter().all(|delay| ns(*delay) <= bound), "netback {shipped:?} {bound}");
        }
        let rtca = delays(&mut *build("rtca", &limits), &senders, round);
        let preemptive = delays(&mut *build("preemptive", &[]), &senders, round);
        for (i, sender) in senders.iter().enumerate() {
            if let Some(bound) = path.rtca(sender.flow.priority) {
                prop_assert!(ns(rtca[i]) <= bound, "rtca {i}: {} {bound}", rtca[i]);
            }
            if let Some(bound) = path.preemptive(sender.flow.priority) {
                prop_assert!(ns(preemptive[i]) <= bound, "preemptive {i}: {} {bound}", preemptive[i]);
            }
        }
    }

    #[test]
    fn full_queues_hold_up_no_packet_longer_than_the_limits_say(
        costs in (1u64..40, 1u64..40, 1u64..40), guests in 2usize..6, slots in 1u64..20, round in 0u64..20,
        rounds in (1u64..12, 1u64..12, 1u64..12),
    ) {
        // Everybody keeps its ring full for some time.
        let flow = Flow {
            priority: 0, burst: slots, period: ns(costs.0), jitter: Duration::ZERO, event: Duration::ZERO,
            tx: ns(costs.0), softnet: ns(costs.1), rx: ns(costs.2), batch: 1,
        };
        let path = Path {
            round: ns(round),
            tx_round: rounds.0,
            softnet_round: rounds.1,
            rx_round: rounds.2,
            softnet_limit: slots * 3,
            ring_slots: slots,
            ..Path::new(vec![flow; guests])
        };
        let limits = [
            ("tx_round", rounds.0), ("softnet_round", rounds.1), ("rx_round", rounds.2),
            ("softnet_limit", slots * 3),
        ];
        let worst = worst_when_full(&mut *build("netback", &limits), &path);
        prop_assert!(ns(worst) <= path.shipped_by_limits(), "{worst} {}", path.shipped_by_limits());
    }
}

/// Every guest fills its ring again whenever there is room; the greatest delay of a packet that came through.
fn worst_when_full(discipline: &mut dyn Discipline, path: &Path) -> u64 {
    let params = InterfaceParams { ring_slots: Some(path.ring_slots as u32), ..InterfaceParams::default() };
    let ids: Vec<InterfaceId> =
        path.flows.iter().map(|_| discipline.attach(at(0), &params).expect("valid")).collect();
    let mut came: Vec<u64> = Vec::new();
    let (mut now, mut worst) = (0, 0);
    for step in 0..20_000 {
        if step < 15_000 {
            for (from, id) in ids.iter().enumerate() {
                while discipline.room(*id) != Some(0) {
                    let destination = ids[(from + 1) % ids.len()];
                    let (number, flow) = (came.len() as u64, FlowId(from as u32));
                    let packet = Packet { id: number, flow, source: *id, destination, bytes: 100 };
                    discipline.arrive(at(now), packet).expect("there is room");
                    came.push(now);
                }
            }
        }
        let Next::Process(step) = discipline.next(at(now)) else { break };
        let Flow { tx, softnet, rx, .. } = path.flows[0];
        now += match step.stage {
            Stage::Tx => tx.as_ns(),
            Stage::Softnet => softnet.as_ns(),
            Stage::Rx => rx.as_ns(),
        };
        now += if step.starts_round { path.round.as_ns() } else { 0 };
        if discipline.complete(at(now)) == Fate::Delivered {
            worst = worst.max(now - came[step.packet.id as usize]);
        }
    }
    worst
}

/// rtca Fig. 6: three guests with bursts of three packets, one unit of time in each stage.
#[test]
fn rtca_bounds_the_urgent_guest_by_its_own_packets_and_netback_by_everybodys() {
    let flow = |priority| Flow {
        priority,
        burst: 3,
        period: ns(1000),
        jitter: Duration::ZERO,
        event: Duration::ZERO,
        tx: ns(1),
        softnet: ns(1),
        rx: ns(1),
        batch: 2,
    };
    let path = Path::new([3, 2, 1].map(flow).to_vec());
    // 9 packets of 3.
    assert_eq!(path.shipped_by_arrivals(), Some(ns(27)));
    // 3 packets of 3, and in each of 3 + 2 turns two batches of others... at most 6 in TX, 2 in softnet, 2 in
    // RX.
    assert_eq!(path.rtca(1), Some(ns(9 + 5 * 10)));
    // One packet of others in one stage.
    assert_eq!(path.preemptive(1), Some(ns(10)));
    assert_eq!(path.preemptive(3), Some(ns(27)));
}

#[test]
fn more_than_the_processor_can_do_has_no_bound() {
    let flow = Flow {
        priority: 1,
        burst: 1,
        period: ns(2),
        jitter: Duration::ZERO,
        event: Duration::ZERO,
        tx: ns(1),
        softnet: ns(1),
        rx: ns(1),
        batch: 1,
    };
    let path = Path::new(vec![flow]);
    assert_eq!((path.shipped_by_arrivals(), path.rtca(1), path.preemptive(1)), (None, None, None));
    assert!(!path.shipped_by_limits().is_zero());
}

#[test]
fn a_chain_adds_up_and_lateness_becomes_a_burst() {
    assert_eq!(supplied(ns(10), &Supply::periodic(ns(5), ns(10))), ns(10 + 15));
    assert_eq!(chain(&[5, 7, 11].map(ns)), ns(23));
    assert_eq!([0, 9, 10, 25].map(|jitter| burst_after(ns(jitter), ns(10))), [1, 1, 2, 3]);
}
