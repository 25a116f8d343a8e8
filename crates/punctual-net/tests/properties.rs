//! What holds for every discipline, whatever arrives: conservation, order, bounds of rounds and batches,
//! priorities.

use std::collections::{BTreeMap, VecDeque};

use crate::common::{self, UNIT, at};
use proptest::prelude::*;
use punctual_net::registry::{self, OptionValue, Options};
use punctual_net::{
    Discipline, DropReason, Drops, Fate, FlowId, InterfaceId, InterfaceKind, InterfaceParams, Next, Packet,
    Rate, Stage, Step,
};
use punctual_sched::{Duration, Instant};

const SOFTNET_ROUND: u32 = 7;
const ROUND: u32 = 5;
const SOFTNET_TIME: u64 = 9;

#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    discipline: &'static str,
    batch: u32,
    softnet_limit: u64,
    tx_turns: &'static str,
    pub(crate) interfaces: Vec<InterfaceParams>,
    /// Units since the previous arrival, source, destination (both modulo the number of interfaces), bytes.
    arrivals: Vec<(u64, usize, usize, u32)>,
    /// Units that a packet takes in each stage.
    pub(crate) costs: [u64; 3],
}

fn guest() -> impl Strategy<Value = InterfaceParams> {
    let rate = (1u64..3000, 1u64..50).prop_map(|(bytes, window)| Rate::new(bytes, UNIT * window));
    let small = |max| proptest::option::of(1u32..=max);
    (proptest::option::of(0u32..3), small(4), small(4), 1u32..6, proptest::option::weighted(0.2, rate))
        .prop_map(|(priority, batch, softnet_limit, ring_slots, rate)| InterfaceParams {
            kind: InterfaceKind::Guest,
            priority,
            batch,
            softnet_limit,
            ring_slots: Some(ring_slots),
            rate,
        })
}

pub(crate) fn scenario() -> impl Strategy<Value = Scenario> {
    let device =
        guest().prop_map(|guest| InterfaceParams { kind: InterfaceKind::Device, rate: None, ..guest });
    let interface = prop_oneof![4 => guest(), 1 => device];
    (
        proptest::sample::select(registry::disciplines()).prop_map(|info| info.name),
        1u32..4,
        1u64..8,
        prop_oneof![Just("cyclic"), Just("list")],
        proptest::collection::vec(interface, 1..6),
        proptest::collection::vec((0u64..6, 0usize..6, 0usize..6, 1u32..2000), 0..120),
        [1u64..4, 1u64..4, 1u64..4],
    )
        .prop_map(|(discipline, batch, softnet_limit, tx_turns, interfaces, arrivals, costs)| Scenario {
            discipline,
            batch,
            softnet_limit,
            tx_turns,
            interfaces,
            arrivals,
            costs,
        })
}

fn build(scenario: &Scenario) -> Box<dyn Discipline> {
    build_with_rounds(scenario, [ROUND, SOFTNET_ROUND, ROUND])
}

/// A discipline whose rounds of TX, softnet and RX have as many packets at most.
pub(crate) fn build_with_rounds(scenario: &Scenario, rounds: [u32; 3]) -> Box<dyn Discipline> {
    let [tx, softnet, rx] = rounds.map(|round| OptionValue::Count(round.into()));
    let info = registry::find(scenario.discipline).expect("from the registry");
    let given = Options::new()
        .with("batch", OptionValue::Count(u64::from(scenario.batch)))
        .with("softnet_limit", OptionValue::Count(scenario.softnet_limit))
        .with("softnet_weight", OptionValue::Count(2))
        .with("tx_round", tx)
        .with("rx_round", rx)
        .with("softnet_round", softnet)
        .with("softnet_time", OptionValue::Duration(UNIT * SOFTNET_TIME))
        .with("tx_turns", OptionValue::Word(scenario.tx_turns));
    (info.build)(&given).expect("valid options")
}

/// What the test knows about every packet, independently of the discipline.
struct Observer<'a> {
    scenario: &'a Scenario,
    /// Packets that wait for each stage, by flow, oldest first.
    waiting: BTreeMap<(Stage, FlowId), VecDeque<Packet>>,
    drops: Vec<Drops>,
    delivered: u64,
    arrived: u64,
    sent_bytes: Vec<u64>,
    /// The round in progress: stage, packets so far, the announced maximum of packets.
    round: Option<(Stage, u32, u32)>,
    /// RTCA: the most urgent priority and what is left of the batch in TX.
    tx_batch: (u64, u32),
    softnet_batch: u32,
}

impl Observer<'_> {
    fn params(&self, id: InterfaceId) -> &InterfaceParams {
        &self.scenario.interfaces[id.index()]
    }

    fn owner(&self, packet: &Packet) -> &InterfaceParams {
        let (source, destination) = (self.params(packet.source), self.params(packet.destination));
        let has_own = source.kind == InterfaceKind::Guest || source.priority.is_some();
        if !has_own && destination.kind == InterfaceKind::Guest { destination } else { source }
    }

    fn urgency(&self, packet: &Packet) -> u64 {
        self.owner(packet).priority.map_or(u64::MAX, u64::from)
    }

    fn batch(&self, packet: &Packet) -> u32 {
        self.owner(packet).batch.unwrap_or(self.scenario.batch)
    }

    /// The first waiting packets of all flows at `stage`; without those of guests whose rate is limited.
    fn heads(&self, stage: Stage) -> impl Iterator<Item = &Packet> {
        let queues = self.waiting.iter().filter(move |((at, _), _)| *at == stage);
        queues
            .filter_map(|(_, queue)| queue.front())
            .filter(move |packet| stage != Stage::Tx || self.params(packet.source).rate.is_none())
    }

    fn count(&self, stage: Stage) -> usize {
        self.waiting.iter().filter(|((at, _), _)| *at == stage).map(|(_, queue)| queue.len()).sum()
    }

    fn put(&mut self, stage: Stage, packet: Packet) {
        self.waiting.entry((stage, packet.flow)).or_default().push_back(packet);
    }

    fn arrive(&mut self, discipline: &mut dyn Discipline, now: Instant, packet: Packet) {
        self.arrived += 1;
        match discipline.arrive(now, packet) {
            Err(reason) => self.drops[packet.source.index()].count(reason),
            Ok(()) if self.params(packet.source).kind == InterfaceKind::Guest => self.put(Stage::Tx, packet),
            Ok(()) => self.put(Stage::Softnet, packet),
        }
    }

    /// Checks a decision and takes the packet out of its queue.
    fn decided(&mut self, now: Instant, step: &Step) {
        let Step { stage, packet, starts_round, round_packets_max, round_until } = *step;
        let queue = self.waiting.get_mut(&(stage, packet.flow)).expect("a packet waits");
        assert_eq!(queue.front(), Some(&packet), "nothing is invented, doubled or overtaken within its flow");
        self.check_priorities(step);
        self.waiting.get_mut(&(stage, packet.flow)).expect("as above").pop_front();

        assert!(now < round_until);
        self.round = match self.round {
            Some((same, count, max)) if !starts_round => {
                assert_eq!(same, stage, "a round stays in its stage");
                assert!(count < max, "a round is no longer than announced");
                Some((stage, count + 1, max.min(count + round_packets_max)))
            }
            _ => {
                assert!(starts_round);
                Some((stage, 1, round_packets_max))
            }
        };
        if self.scenario.discipline != "preemptive" {
            let limit = if stage == Stage::Softnet { SOFTNET_ROUND } else { ROUND };
            assert!(self.round.is_some_and(|(_, count, _)| count <= limit));
        }
        if stage == Stage::Tx {
            self.sent_bytes[packet.source.index()] += u64::from(packet.bytes);
            self.check_rate(now, packet.source);
        }
    }

    fn check_rate(&self, now: Instant, source: InterfaceId) {
        if let Some(rate) = self.params(source).rate {
            let windows = now.since(Instant::ZERO).div_floor(rate.window) + 1;
            assert!(self.sent_bytes[source.index()] <= windows * rate.bytes, "no more than the rate");
        }
    }

    fn check_priorities(&mut self, step: &Step) {
        let urgency = self.urgency(&step.packet);
        let most_urgent =
            |stage| self.heads(stage).map(|packet| self.urgency(packet)).min().unwrap_or(u64::MAX);
        let batch = self.batch(&step.packet);
        match (self.scenario.discipline, step.stage) {
            ("rtca", Stage::Tx) => {
                assert!(urgency <= most_urgent(Stage::Tx), "the most urgent guest before every packet");
                if step.starts_round || urgency < self.tx_batch.0 {
                    self.tx_batch = (urgency, batch);
                }
                assert!(self.tx_batch.1 > 0, "no more than a batch since the last more urgent guest");
                self.tx_batch.1 -= 1;
            }
            ("rtca", Stage::Softnet) => {
                if step.starts_round {
                    assert!(urgency <= most_urgent(Stage::Softnet), "the most urgent queue");
                    self.softnet_batch = batch;
                }
                assert!(self.softnet_batch > 0, "no more than a batch in a softirq");
                self.softnet_batch -= 1;
            }
            ("preemptive", _) => {
                for stage in [Stage::Tx, Stage::Softnet, Stage::Rx] {
                    assert!(urgency <= most_urgent(stage), "no more urgent packet waits in any stage");
                }
            }
            _ => {}
        }
    }

    fn completed(&mut self, step: &Step, fate: Fate) {
        match (step.stage, fate) {
            (Stage::Tx, Fate::Queued(Stage::Softnet)) => self.put(Stage::Softnet, step.packet),
            (Stage::Softnet, Fate::Queued(Stage::Rx)) => self.put(Stage::Rx, step.packet),
            (Stage::Softnet, Fate::Delivered) => {
                assert_eq!(self.params(step.packet.destination).kind, InterfaceKind::Device);
                self.delivered += 1;
            }
            (Stage::Rx, Fate::Delivered) => self.delivered += 1,
            (Stage::Tx, Fate::Dropped(reason @ DropReason::Softnet))
            | (Stage::Softnet, Fate::Dropped(reason @ DropReason::DestinationRing)) => {
                self.drops[step.packet.source.index()].count(reason);
            }
            impossible => panic!("{impossible:?}"),
        }
    }

    fn check_account(&self, discipline: &dyn Discipline) {
        for stage in [Stage::Tx, Stage::Softnet, Stage::Rx] {
            assert_eq!(discipline.waiting(stage), self.count(stage), "{stage:?}");
        }
        let drops: Vec<Drops> =
            (0..self.drops.len()).map(|id| discipline.drops(InterfaceId(id as u32))).collect();
        assert_eq!(drops, self.drops);
        let waiting: usize =
            [Stage::Tx, Stage::Softnet, Stage::Rx].map(|stage| self.count(stage)).iter().sum();
        let dropped: u64 = drops.iter().map(Drops::total).sum();
        assert_eq!(self.arrived, self.delivered + dropped + waiting as u64, "nothing is lost uncounted");
    }
}

/// The scenario's packets in the order of their arrival.
pub(crate) fn arrivals(scenario: &Scenario) -> VecDeque<(Instant, Packet)> {
    let interfaces = scenario.interfaces.len();
    let mut time = Instant::ZERO;
    let mut arrivals = VecDeque::new();
    for (id, &(gap, source, destination, bytes)) in scenario.arrivals.iter().enumerate() {
        time += UNIT * gap;
        let (source, destination) = ((source % interfaces) as u32, (destination % interfaces) as u32);
        let flow = FlowId(source * 10 + destination);
        let [source, destination] = [source, destination].map(InterfaceId);
        arrivals.push_back((time, Packet { id: id as u64, flow, source, destination, bytes }));
    }
    arrivals
}

/// Drives the scenario until it ends, checking every decision. Returns the log of decisions.
fn drive(scenario: &Scenario) -> Vec<(Instant, Step)> {
    let mut discipline = build(scenario);
    let interfaces = scenario.interfaces.len();
    for params in &scenario.interfaces {
        discipline.attach(at(0), params).expect("valid");
    }
    let mut arrivals = arrivals(scenario);
    let mut observer = Observer {
        scenario,
        waiting: BTreeMap::new(),
        drops: vec![Drops::default(); interfaces],
        delivered: 0,
        arrived: 0,
        sent_bytes: vec![0; interfaces],
        round: None,
        tx_batch: (0, 0),
        softnet_batch: 0,
    };
    let mut log = Vec::new();
    let mut now = Instant::ZERO;
    loop {
        while let Some(&(at, packet)) = arrivals.front()
            && at <= now
        {
            arrivals.pop_front();
            observer.arrive(&mut *discipline, now, packet);
        }
        observer.check_account(&*discipline);
        let step = match discipline.next(now) {
            Next::Process(step) => step,
            Next::WaitUntil(credit) => {
                assert!(credit > now);
                assert!(observer.heads(Stage::Tx).next().is_none(), "a guest without a limit waits");
                assert_eq!(observer.count(Stage::Softnet) + observer.count(Stage::Rx), 0);
                now = arrivals.front().map_or(credit, |&(at, _)| at.min(credit));
                continue;
            }
            Next::Idle => {
                for stage in [Stage::Tx, Stage::Softnet, Stage::Rx] {
                    assert_eq!(observer.count(stage), 0, "idle though a packet waits for {stage:?}");
                }
                let Some(&(at, _)) = arrivals.front() else { return log };
                now = at;
                continue;
            }
        };
        observer.decided(now, &step);
        log.push((now, step));
        let end = now + UNIT * scenario.costs[step.stage as usize];
        while let Some(&(at, packet)) = arrivals.front()
            && at < end
        {
            arrivals.pop_front();
            observer.arrive(&mut *discipline, at, packet);
        }
        now = end;
        observer.completed(&step, discipline.complete(now));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_discipline_loses_nothing_uncounted_keeps_flows_in_order_and_its_bounds_and_priorities(
        scenario in scenario()
    ) {
        drive(&scenario);
    }

    #[test]
    fn the_same_arrivals_give_the_same_decisions(scenario in scenario()) {
        prop_assert_eq!(drive(&scenario), drive(&scenario));
    }

    /// Interfaces that come while packets wait change no decision but those that involve them.
    #[test]
    fn attaching_interfaces_under_way_keeps_all_queues(
        (name, batch, sends, later) in (
            proptest::sample::select(registry::disciplines()).prop_map(|info| info.name),
            1u64..4,
            proptest::collection::vec((0u32..3, 0usize..4), 1..60),
            proptest::collection::vec((0usize..60, 0u32..7), 1..8),
        )
    ) {
        let run = |later: &[(usize, u32)]| {
            let mut discipline = common::build(name, &[("batch", batch)]);
            for priority in [5, 1, 3] {
                discipline.attach(at(0), &common::guest(priority)).expect("valid");
            }
            let mut log = Vec::new();
            let mut busy = false;
            let step = |discipline: &mut dyn Discipline, now, busy: &mut bool, log: &mut Vec<Step>| {
                if std::mem::take(busy) {
                    discipline.complete(now);
                }
                if let Next::Process(step) = discipline.next(now) {
                    log.push(step);
                    *busy = true;
                }
                *busy
            };
            let mut now = at(0);
            for (id, &(source, steps)) in sends.iter().enumerate() {
                for &(_, priority) in later.iter().filter(|&&(when, _)| when == id) {
                    discipline.attach(now, &common::guest(priority)).expect("valid");
                }
                let packet = common::packet(id as u64, InterfaceId(source), InterfaceId((source + 1) % 3));
                discipline.arrive(now, packet).expect("room");
                for _ in 0..steps {
                    now += Duration::from_us(1);
                    step(&mut *discipline, now, &mut busy, &mut log);
                }
            }
            while step(&mut *discipline, now, &mut busy, &mut log) {
                now += Duration::from_us(1);
            }
            log
        };
        prop_assert_eq!(run(&later), run(&[]));
    }
}
