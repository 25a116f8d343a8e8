//! A packet that cuts through softnet and RX leaves everything as if it had passed one stage after the other.

use crate::common::{UNIT, at, build, guest, packet};
use crate::properties::{Scenario, arrivals, build_with_rounds, scenario};
use proptest::prelude::*;
use punctual_net::registry;
use punctual_net::{
    Discipline, DropReason, Drops, Fate, InterfaceId, InterfaceKind, Next, Packet, Stage, Step,
};
use punctual_sched::Instant;

/// The same discipline twice, with the same arrivals: packets cut through `cut`, and pass the stages of
/// `staged` one after the other.
struct Pair {
    cut: Box<dyn Discipline>,
    staged: Box<dyn Discipline>,
    interfaces: u32,
    /// Packets that passed several stages at once.
    cuts: usize,
}

impl Pair {
    fn new(scenario: &Scenario, rounds: [u32; 3]) -> Pair {
        let mut both = [(); 2].map(|()| build_with_rounds(scenario, rounds));
        for params in &scenario.interfaces {
            for one in &mut both {
                one.attach(at(0), params).expect("valid");
            }
        }
        let [cut, staged] = both;
        Pair { cut, staged, interfaces: scenario.interfaces.len() as u32, cuts: 0 }
    }

    fn arrive(&mut self, now: Instant, packet: Packet) {
        assert_eq!(self.cut.arrive(now, packet), self.staged.arrive(now, packet));
    }

    /// A packet arrives while none is being processed.
    fn pass(&mut self, now: Instant, packet: Packet) {
        let Some(fate) = self.cut.pass(now, &packet) else { return self.arrive(now, packet) };
        self.cuts += 1;
        assert_eq!(self.staged.arrive(now, packet), Ok(()));
        let mut staged = Fate::Queued(Stage::Tx);
        for stage in [Stage::Tx, Stage::Softnet, Stage::Rx] {
            if staged == Fate::Queued(stage) {
                staged = self.process(now, stage, packet);
            }
        }
        assert_eq!(fate, staged);
        self.compare();
    }

    /// The next decision of the discipline that passes packets stage by stage.
    fn process(&mut self, now: Instant, stage: Stage, packet: Packet) -> Fate {
        let Next::Process(next) = self.staged.next(now) else { panic!("nothing to do") };
        assert_eq!((next.stage, next.packet), (stage, packet), "nothing goes before it");
        self.staged.complete(now)
    }

    fn next(&mut self, now: Instant) -> Next {
        let next = self.cut.next(now);
        assert_eq!(next, self.staged.next(now));
        next
    }

    fn set_unread(&mut self, guest: InterfaceId, packets: u32) {
        self.cut.set_unread(guest, packets);
        self.staged.set_unread(guest, packets);
    }

    /// The step is done: whatever it did in one discipline, the other one does step by step.
    fn complete(&mut self, now: Instant, step: &Step) {
        let fate = self.cut.cut_through(now);
        let mut staged = self.staged.complete(now);
        let passes = matches!(fate, Fate::Delivered | Fate::Dropped(DropReason::DestinationRing));
        if step.stage == Stage::Tx && passes {
            self.cuts += 1;
            for stage in [Stage::Softnet, Stage::Rx] {
                if staged == Fate::Queued(stage) {
                    staged = self.process(now, stage, step.packet);
                }
            }
        }
        assert_eq!(fate, staged, "{step:?}");
        self.compare();
    }

    fn compare(&self) {
        for stage in [Stage::Tx, Stage::Softnet, Stage::Rx] {
            assert_eq!(self.cut.waiting(stage), self.staged.waiting(stage), "{stage:?}");
        }
        let drops = |one: &dyn Discipline| -> Vec<Drops> {
            (0..self.interfaces).map(|interface| one.drops(InterfaceId(interface))).collect()
        };
        assert_eq!(drops(&*self.cut), drops(&*self.staged));
    }
}

/// Drives both until nothing is left. Before a packet has been processed, its receiver has not read as many
/// packets as `unread` says. Returns how many packets passed several stages at once.
fn drive(scenario: &Scenario, rounds: [u32; 3], unread: &[u32]) -> usize {
    let (mut pair, mut arrivals) = (Pair::new(scenario, rounds), arrivals(scenario));
    let (mut unread, mut now) = (unread.iter().copied().cycle(), at(0));
    loop {
        while let Some((_, packet)) = arrivals.pop_front_if(|&mut (at, _)| at <= now) {
            pair.set_unread(packet.destination, unread.next().unwrap_or_default());
            pair.pass(now, packet);
        }
        let arrival = arrivals.front().map(|&(at, _)| at);
        let step = match (pair.next(now), arrival) {
            (Next::Process(step), _) => step,
            (Next::WaitUntil(credit), arrival) => {
                now = arrival.map_or(credit, |at| at.min(credit));
                continue;
            }
            (Next::Idle, Some(at)) => {
                now = at;
                continue;
            }
            (Next::Idle, None) => return pair.cuts,
        };
        let end = now + UNIT * scenario.costs[step.stage as usize];
        while let Some((at, packet)) = arrivals.pop_front_if(|&mut (at, _)| at < end) {
            pair.arrive(at, packet);
        }
        now = end;
        pair.set_unread(step.packet.destination, unread.next().unwrap_or_default());
        pair.complete(now, &step);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    /// All disciplines, batches, priorities, limits, rates and rounds, guests and devices; packets arrive
    /// before and during a step.
    #[test]
    fn cutting_through_changes_no_later_decision_and_no_drop(
        scenario in scenario(),
        devices in 0usize..4,
        rounds in [1u32..6, 1u32..6, 1u32..6],
        unread in proptest::collection::vec(prop_oneof![3 => Just(0u32), 1 => 0u32..6], 1..20),
    ) {
        let mut scenario = scenario;
        for params in scenario.interfaces.iter_mut().skip(1).take(devices) {
            (params.kind, params.rate) = (InterfaceKind::Device, None);
        }
        drive(&scenario, rounds, &unread);
    }
}

/// With a batch of one packet nothing goes before a packet that TX has taken, however many others wait there.
#[test]
fn with_batches_of_one_packet_all_packets_cut_through() {
    for name in ["rtca", "preemptive"] {
        let mut discipline = build(name, &[("batch", 1)]);
        for priority in [3, 1, 2] {
            discipline.attach(at(0), &guest(priority)).expect("valid");
        }
        for id in 0..30 {
            let [source, destination] = [id % 3, (id + 1) % 3].map(|port| InterfaceId(port as u32));
            discipline.arrive(at(0), packet(id, source, destination)).expect("room");
        }
        let mut order = Vec::new();
        while let Next::Process(step) = discipline.next(at(0)) {
            assert_eq!((step.stage, discipline.cut_through(at(0))), (Stage::Tx, Fate::Delivered), "{name}");
            order.push(step.packet.id % 3);
        }
        assert_eq!(order, [[1; 10], [2; 10], [0; 10]].concat(), "{name}: most urgent first");
    }
}

#[test]
fn a_packet_that_is_alone_cuts_through_under_every_discipline() {
    for info in registry::disciplines() {
        let mut discipline = build(info.name, &[("batch", 64)]);
        let ids = [1, 2].map(|priority| discipline.attach(at(0), &guest(priority)).expect("valid"));
        for id in 0..10 {
            let packet = packet(id, ids[0], ids[1]);
            if id < 5 {
                assert_eq!(discipline.pass(at(id), &packet), Some(Fate::Delivered), "{}", info.name);
            } else {
                discipline.arrive(at(id), packet).expect("room");
                assert_eq!(discipline.pass(at(id), &packet), None, "{}: another one waits", info.name);
                assert!(matches!(discipline.next(at(id)), Next::Process(step) if step.stage == Stage::Tx));
                assert_eq!(discipline.cut_through(at(id)), Fate::Delivered, "{}", info.name);
            }
            assert_eq!(discipline.next(at(id)), Next::Idle);
        }
    }
}

#[test]
fn a_packet_does_not_cut_through_before_another_one_of_its_batch() {
    for name in ["netback", "rtca", "preemptive"] {
        let mut discipline = build(name, &[("batch", 2)]);
        let ids = [1, 1].map(|priority| discipline.attach(at(0), &guest(priority)).expect("valid"));
        for id in 0..2 {
            discipline.arrive(at(0), packet(id, ids[0], ids[1])).expect("room");
        }
        let mut fates = Vec::new();
        while let Next::Process(step) = discipline.next(at(0)) {
            fates.push((step.stage, step.packet.id, discipline.cut_through(at(0))));
        }
        let queued = |stage, id, next| (stage, id, Fate::Queued(next));
        let expected = [
            queued(Stage::Tx, 0, Stage::Softnet),
            queued(Stage::Tx, 1, Stage::Softnet),
            queued(Stage::Softnet, 0, Stage::Rx),
            queued(Stage::Softnet, 1, Stage::Rx),
            (Stage::Rx, 0, Fate::Delivered),
            (Stage::Rx, 1, Fate::Delivered),
        ];
        assert_eq!(fates, expected, "{name}");
    }
}
