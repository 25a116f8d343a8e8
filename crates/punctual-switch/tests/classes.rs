//! Classes of a VM's frames: priorities by the PCP of the VLAN tag.

use proptest::prelude::*;
use punctual_model::network::Vlans;
use punctual_net::{Discipline, FlowId, InterfaceId, InterfaceParams, Next, Packet, Rate, Stage, registry};
use punctual_sched::registry::{OptionValue, Options};
use punctual_sched::{Duration, Instant};
use punctual_switch::testing::{self, SteppedPlane, address};
use punctual_switch::{End, Port};

use super::common::{self, Lab, Setting, expect};

/// What the tests' ports have behind them: of which port, PCP and priority.
type Classes = [(usize, u8, u32)];

fn params(priority: u32) -> InterfaceParams {
    InterfaceParams { priority: Some(priority), ..InterfaceParams::default() }
}

/// A frame with a number, and a VLAN tag of this PCP and VLAN 0.
fn tagged(to: [u8; 6], from: [u8; 6], number: u64, pcp: Option<u8>) -> Vec<u8> {
    let frame = testing::frame(to, from, number, 64);
    let (addresses, rest) = frame.split_at(12);
    let tag = pcp.map_or(Vec::new(), |pcp| vec![0x81, 0, pcp << 5, 0]);
    [addresses, &tag, rest].concat()
}

/// The number of such a frame.
fn number(frame: &[u8]) -> u64 {
    let tag = if frame[12..14] == [0x81, 0] { 4 } else { 0 };
    testing::number(&frame[tag..])
}

fn plane(discipline: &str, batch: u64, ports: &[InterfaceParams], classes: &Classes) -> SteppedPlane {
    let info = registry::find(discipline).expect("a discipline");
    let options = Options::new().with("batch", OptionValue::Count(batch));
    let vm = testing::Options::default();
    SteppedPlane::with_classes(info, &options, (ports, classes), vm).expect("a plane")
}

fn send(plane: &mut SteppedPlane, from: usize, to: usize, number: u64, pcp: Option<u8>) {
    let frame = tagged(address(to), address(from), number, pcp);
    assert!(plane.vms[from].send(&frame).expect("sent"));
}

fn received(plane: &mut SteppedPlane, port: usize) -> Vec<u64> {
    std::iter::from_fn(|| plane.vms[port].receive().expect("whole frames"))
        .map(|frame| number(&frame.frame))
        .collect()
}

/// The order in which the discipline delivers packets that have arrived in this one, by source. Numbers count
/// from 1.
fn order_of_discipline(
    info: (&str, u64),
    ports: &[InterfaceParams],
    classes: &Classes,
    sources: &[usize],
) -> Vec<u64> {
    let options = Options::new().with("batch", OptionValue::Count(info.1));
    let mut discipline =
        (registry::find(info.0).expect("a discipline").build)(&options).expect("a discipline");
    let behind = classes
        .iter()
        .map(|&(home, _, priority)| InterfaceParams { priority: Some(priority), ..ports[home].clone() });
    for params in ports.iter().cloned().chain(behind) {
        discipline.attach(Instant::ZERO, &params).expect("attached");
    }
    let destination = InterfaceId(ports.len() as u32 - 1);
    for (id, source) in (1..).zip(sources) {
        let source = InterfaceId(*source as u32);
        let packet = Packet { id, flow: FlowId(source.0), source, destination, bytes: 64 };
        discipline.arrive(Instant::ZERO, packet).expect("taken");
    }
    let mut order = Vec::new();
    while let Next::Process(step) = discipline.next(Instant::ZERO) {
        discipline.complete(Instant::ZERO);
        order.extend((step.stage == Stage::Rx).then_some(step.packet.id));
    }
    order
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// The model of simulator and analysis: a class is an interface of the discipline.
    #[test]
    fn the_switch_delivers_in_the_order_of_the_discipline_whose_interfaces_the_classes_are(
        discipline in proptest::sample::select(vec!["rtca", "preemptive"]),
        batch in proptest::sample::select(vec![1u64, 2, 64]),
        priorities in proptest::collection::vec((0u32..5, 0u32..5, 0u32..5), 1..4),
        sends in proptest::collection::vec((0usize..3, proptest::option::of(3u8..7)), 1..24),
    ) {
        let mut ports: Vec<_> = priorities.iter().map(|(own, ..)| params(*own)).collect();
        ports.push(params(0));
        let classes: Vec<_> = priorities.iter().enumerate()
            .flat_map(|(port, (_, four, six))| [(port, 4, *four), (port, 6, *six)])
            .collect();
        let mut plane = plane(discipline, batch, &ports, &classes);
        // A look takes eight frames from each port, in the order of their most urgent classes.
        let mut by_port = vec![Vec::new(); priorities.len()];
        for (port, pcp) in sends {
            let port = port % priorities.len();
            if by_port[port].len() < 8 {
                by_port[port].push(pcp);
            }
        }
        let mut order: Vec<usize> = (0..priorities.len()).collect();
        order.sort_by_key(|port| {
            let (own, four, six) = priorities[*port];
            own.min(four).min(six)
        });
        let mut sources = Vec::new();
        for port in order {
            for pcp in &by_port[port] {
                let class = classes.iter().position(|class| (class.0, Some(class.1)) == (port, *pcp));
                sources.push(class.map_or(port, |class| ports.len() + class));
                send(&mut plane, port, ports.len() - 1, sources.len() as u64, *pcp);
            }
        }
        plane.run();
        let order = order_of_discipline((discipline, batch), &ports, &classes, &sources);
        prop_assert_eq!(received(&mut plane, ports.len() - 1), order);
        plane.stop();
    }

    #[test]
    fn frames_of_a_class_keep_their_order_and_none_is_lost_or_doubled(
        discipline in proptest::sample::select(vec!["rtca", "preemptive"]),
        rounds in proptest::collection::vec(
            proptest::collection::vec((0usize..2, proptest::option::of(3u8..7)), 0..60), 1..5),
    ) {
        let ports = [params(3), params(2), params(0)];
        let mut plane = plane(discipline, 1, &ports, &[(0, 4, 1), (0, 6, 4), (1, 4, 0)]);
        let (mut sent, mut came) = (Vec::new(), Vec::new());
        for round in rounds {
            for (from, pcp) in round {
                sent.push((from, pcp));
                send(&mut plane, from, 2, sent.len() as u64, pcp);
            }
            plane.run();
            came.extend(received(&mut plane, 2));
        }
        let mut all = came.clone();
        all.sort_unstable();
        prop_assert_eq!(all, (1..=sent.len() as u64).collect::<Vec<_>>());
        for class in sent.iter().collect::<std::collections::BTreeSet<_>>() {
            let of_class = came.iter().filter(|number| sent[**number as usize - 1] == *class);
            prop_assert!(of_class.is_sorted(), "{class:?}: {came:?}");
        }
        plane.stop();
    }
}

/// How many frames of its own port arrive before an urgent one that is behind `before` in the ring.
fn overtaken(discipline: &str, classes: &Classes, before: u64) -> u64 {
    let mut plane = plane(discipline, 1, &[params(9), params(9)], classes);
    (1..=before).for_each(|number| send(&mut plane, 0, 1, number, None));
    send(&mut plane, 0, 1, before + 1, Some(4));
    plane.run();
    let came = received(&mut plane, 1);
    assert_eq!(came.len() as u64, before + 1);
    plane.stop();
    came.iter().position(|number| *number == before + 1).expect("it arrives") as u64
}

#[test]
fn an_urgent_frame_waits_for_an_eighth_of_those_before_it_in_its_ring() {
    for before in [0, 1, 7, 8, 100, 200] {
        assert_eq!(overtaken("preemptive", &[(0, 4, 1)], before), before / 8);
        let under_rtca = overtaken("rtca", &[(0, 4, 1)], before);
        assert!(under_rtca <= before / 8 + 1, "{under_rtca} of {before}");
    }
    // A port without classes ignores tags, and so does one for other PCPs.
    assert_eq!(overtaken("preemptive", &[], 100), 100);
    assert_eq!(overtaken("preemptive", &[(0, 6, 1)], 100), 100);
}

#[test]
fn a_guest_that_marks_everything_as_urgent_has_the_priority_that_its_port_grants() {
    // Port 0 may send with priority 3, port 1 has 2.
    let mut plane = plane("preemptive", 1, &[params(9), params(2), params(9)], &[(0, 4, 3)]);
    for pcp in 0..8 {
        send(&mut plane, 0, 2, u64::from(pcp), Some(pcp));
        send(&mut plane, 1, 2, 100 + u64::from(pcp), None);
    }
    plane.run();
    let came = received(&mut plane, 2);
    let granted = came.iter().position(|number| *number == 4).expect("it arrives");
    assert!(came[..granted].iter().filter(|number| **number < 100).count() == 0, "{came:?}");
    // All of port 1 but those that the first looks have not seen yet.
    assert!(came.iter().rposition(|number| *number >= 100).expect("some") < 8, "{came:?}");
    plane.stop();
}

/// Frames of less urgent classes may wait when the ring stops. What overtook them is not sent again, and they
/// are lost for it.
#[test]
fn what_overtook_others_is_not_sent_again_when_the_ring_restarts() {
    let hour = Duration::from_secs(3_600);
    let slow =
        InterfaceParams { rate: Some(Rate { bytes: 100, window: hour, burst_bytes: 100 }), ..params(9) };
    let mut plane = plane("preemptive", 1, &[slow, params(9)], &[(0, 4, 1)]);
    send(&mut plane, 0, 1, 1, None);
    send(&mut plane, 0, 1, 2, None);
    send(&mut plane, 0, 1, 3, Some(4));
    send(&mut plane, 0, 1, 4, None);
    plane.run();
    assert_eq!(received(&mut plane, 1), [3, 1], "one of the others has credit");
    plane.restart_tx(0).expect("restarted");
    send(&mut plane, 0, 1, 5, Some(4));
    plane.run();
    assert_eq!(received(&mut plane, 1), [5]);
    let ports = plane.stop();
    assert_eq!((ports[2].sent.packets, ports[2].delivered.packets), (2, 2), "the class");
}

#[test]
fn a_class_is_added_and_removed_while_its_port_works() {
    let mut lab = Lab::new(Setting::plain("rtca", 2));
    let [mut a, mut b] = [0, 1].map(|port| lab.vm(port, testing::Options::default()));
    let frame = |number| tagged(common::address(1), common::address(0), number, Some(4));
    let mut pass = |number| {
        assert!(a.send(&frame(number)).expect("sent"));
        expect(&mut b, &frame(number));
    };
    for round in 0..3 {
        pass(3 * round);
        let class = Port {
            name: "port 0,pcp=4".into(),
            end: End::VmClass { home: 0, pcp: 4 },
            params: params(0),
            plane: 0,
            address: None,
            vlans: Vlans::default(),
            groups: Vec::new(),
        };
        let number = lab.switch_mut().plug(class).expect("plugged");
        pass(3 * round + 1);
        let stats = lab.switch_mut().unplug(number).expect("a port");
        assert_eq!((stats.sent.packets, stats.delivered.packets, stats.drops.total()), (1, 1, 0));
        pass(3 * round + 2);
    }
    let report = lab.stop();
    assert_eq!(report.ports[0].delivered.packets, 6);
}
