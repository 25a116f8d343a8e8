//! Single rules of single disciplines, with the numbers of the papers.

use crate::common::{Done, UNIT, at, build, build_with, device, guest, order, packet, run};
use punctual_net::registry::{self, OptionValue, Options};
use punctual_net::{
    Discipline, DropReason, Drops, Fate, InterfaceId, InterfaceKind, InterfaceParams, Next, Packet, Rate,
    Stage,
};
use punctual_sched::{Duration, Instant};

const A: InterfaceId = InterfaceId(0);
const B: InterfaceId = InterfaceId(1);
const C: InterfaceId = InterfaceId(2);

/// `interfaces` attached to the discipline `name`.
fn attached(name: &str, options: &Options, interfaces: &[InterfaceParams]) -> Box<dyn Discipline> {
    let mut discipline = build_with(name, options);
    for params in interfaces {
        discipline.attach(at(0), params).expect("valid");
    }
    discipline
}

fn roomy(params: InterfaceParams) -> InterfaceParams {
    InterfaceParams { ring_slots: Some(5000), ..params }
}

/// `count` packets at time 0.
fn burst(first_id: u64, count: u64, source: InterfaceId, destination: InterfaceId) -> Vec<(Instant, Packet)> {
    (first_id..first_id + count).map(|id| (at(0), packet(id, source, destination))).collect()
}

/// Stage and length of each round.
fn rounds(done: &[Done]) -> Vec<(Stage, usize)> {
    let mut rounds: Vec<(Stage, usize)> = Vec::new();
    for done in done {
        match rounds.last_mut() {
            Some((_, length)) if !done.step.starts_round => *length += 1,
            _ => rounds.push((done.step.stage, 1)),
        }
    }
    rounds
}

#[test]
fn as_shipped_a_round_of_tx_and_of_rx_takes_238_packets_and_rx_goes_first() {
    let mut discipline = attached("netback", &Options::new(), &[roomy(guest(0)), roomy(guest(0))]);
    let done = run(&mut *discipline, &burst(0, 500, A, B));
    let expected = [
        (Stage::Tx, 238),
        (Stage::Softnet, 238),
        (Stage::Rx, 238),
        (Stage::Tx, 238),
        (Stage::Softnet, 238),
        (Stage::Rx, 238),
        (Stage::Tx, 24),
        (Stage::Softnet, 24),
        (Stage::Rx, 24),
    ];
    assert_eq!(rounds(&done), expected);
}

#[test]
fn after_a_pause_the_kernel_thread_comes_first_however_often_the_driver_asked_meanwhile() {
    for asked in 0..4 {
        let mut discipline = attached("netback", &Options::new(), &[guest(0), device()]);
        for _ in 0..asked {
            assert_eq!(discipline.next(at(0)), Next::Idle);
        }
        let done = run(&mut *discipline, &[burst(0, 1, A, B), burst(1, 1, B, B)].concat());
        assert_eq!(rounds(&done), [(Stage::Tx, 1), (Stage::Softnet, 2)]);
    }
}

#[test]
fn as_shipped_the_softirq_takes_64_packets_a_device_and_300_a_round() {
    let mut discipline = attached("netback", &Options::new(), &[roomy(device()), roomy(device()), guest(0)]);
    let mut arrivals = burst(0, 400, A, B);
    arrivals.extend(burst(1000, 400, B, A));
    let done = run(&mut *discipline, &arrivals);
    let first_rounds = &order(&done, Stage::Softnet)[..600];
    let mut turns: Vec<(bool, usize)> = Vec::new();
    for id in first_rounds {
        match turns.last_mut() {
            Some((second, length)) if *second == (*id >= 1000) => *length += 1,
            _ => turns.push((*id >= 1000, 1)),
        }
    }
    let first = [(false, 64), (true, 64), (false, 64), (true, 64), (false, 44)];
    let second = [(true, 64), (false, 64), (true, 64), (false, 64), (true, 44)];
    assert_eq!(turns, [first, second].concat());
    assert_eq!(rounds(&done), [(Stage::Softnet, 300), (Stage::Softnet, 300), (Stage::Softnet, 200)]);
}

#[test]
fn a_softirq_starts_no_packet_after_2_jiffies() {
    let options = Options::new().with("softnet_time", OptionValue::Duration(UNIT * 10));
    let mut discipline = attached("netback", &options, &[device(), device()]);
    let done = run(&mut *discipline, &burst(0, 25, A, B));
    assert_eq!(rounds(&done), [(Stage::Softnet, 10), (Stage::Softnet, 10), (Stage::Softnet, 5)]);
    assert_eq!(done[0].step.round_until, at(10));
}

/// rtca s.III: the softnet queue shared with a network card takes fewer packets per round than TX hands over.
#[test]
fn as_shipped_a_busy_network_card_makes_the_softnet_queue_of_the_guests_overflow() {
    let mut discipline = attached("netback", &Options::new(), &[roomy(guest(0)), roomy(device()), device()]);
    let mut arrivals = burst(0, 4000, A, C);
    arrivals.extend(burst(10_000, 5000, B, C));
    run(&mut *discipline, &arrivals);
    assert!(discipline.drops(A).softnet > 0);
    assert_eq!(discipline.drops(A).total(), discipline.drops(A).softnet);
    assert_eq!(discipline.drops(B).total(), 0);
}

#[test]
fn a_softnet_queue_drops_what_exceeds_its_limit_and_counts_it() {
    for (name, default) in [("netback", 1000), ("rtca", 600)] {
        let options =
            Options::new().with("tx_round", OptionValue::Count(2000)).with("batch", OptionValue::Count(2000));
        let mut discipline = attached(name, &options, &[roomy(guest(0)), roomy(guest(0))]);
        let done = run(&mut *discipline, &burst(0, 1500, A, B));
        assert_eq!(discipline.drops(A).softnet, 1500 - default, "{name}");
        let dropped =
            done.iter().filter(|done| done.fate == Fate::Dropped(DropReason::Softnet)).count() as u64;
        assert_eq!(dropped, 1500 - default);
    }
}

#[test]
fn a_full_tx_ring_refuses_and_room_says_so_before() {
    for info in registry::disciplines() {
        let small = InterfaceParams { ring_slots: Some(2), ..guest(0) };
        let mut discipline = attached(info.name, &Options::new(), &[small, device()]);
        for id in 0..2 {
            assert_eq!(discipline.room(A), Some(2 - id as u32));
            assert_eq!(discipline.arrive(at(0), packet(id, A, B)), Ok(()));
        }
        assert_eq!(discipline.room(A), Some(0));
        assert_eq!(discipline.arrive(at(0), packet(2, A, B)), Err(DropReason::SourceRing), "{}", info.name);
        assert_eq!(discipline.drops(A).source_ring, 1);
        assert_eq!(discipline.room(B), None);
    }
}

#[test]
fn a_full_rx_ring_drops_at_the_end_of_softnet() {
    let small = InterfaceParams { ring_slots: Some(3), ..guest(0) };
    let mut discipline = attached("netback", &Options::new(), &[guest(0), small]);
    run(&mut *discipline, &burst(0, 10, A, B));
    assert_eq!(discipline.drops(A).destination_ring, 7);
}

/// rtca s.II.D: who exceeds its limit is skipped, the others go on.
#[test]
fn a_guest_over_its_rate_limit_loses_its_turns_until_the_next_window() {
    let limited = InterfaceParams { rate: Some(Rate::new(2000, UNIT * 100)), ..guest(0) };
    for info in registry::disciplines() {
        let mut discipline = attached(info.name, &Options::new(), &[limited.clone(), guest(1), guest(2)]);
        let mut arrivals = burst(0, 5, A, C);
        arrivals.extend(burst(10, 5, B, C));
        let done = run(&mut *discipline, &arrivals);
        let sent: Vec<(u64, u64)> = done
            .iter()
            .filter(|done| done.step.stage == Stage::Tx && done.step.packet.source == A)
            .map(|done| (done.step.packet.id, done.start.since(at(0)).div_floor(UNIT * 100)))
            .collect();
        assert_eq!(sent, [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2)], "{}: packet and window", info.name);
        let others = done.iter().filter(|done| done.step.packet.source == B);
        assert!(others.map(|done| done.end).max() < Some(at(100)), "{}", info.name);
    }
}

#[test]
fn with_nothing_but_packets_over_the_limit_the_driver_waits_for_the_next_window() {
    let limited = InterfaceParams { rate: Some(Rate::new(500, UNIT * 100)), ..guest(0) };
    let mut discipline = attached("rtca", &Options::new(), &[limited, guest(1)]);
    discipline.arrive(at(30), packet(0, A, B)).expect("room");
    assert_eq!(discipline.next(at(30)), Next::WaitUntil(at(100)));
    assert!(matches!(discipline.next(at(100)), Next::Process(_)));
}

#[test]
fn with_rtca_a_large_batch_of_a_less_urgent_guest_does_not_hold_up_an_urgent_one_with_a_small_batch() {
    let batch = |priority, batch| InterfaceParams { batch: Some(batch), ..guest(priority) };
    let mut discipline = attached("rtca", &Options::new(), &[batch(0, 1), batch(1, 64)]);
    let mut arrivals = burst(0, 1, A, B);
    arrivals.extend(burst(10, 64, B, A));
    let done = run(&mut *discipline, &arrivals);
    assert_eq!(rounds(&done)[..4], [(Stage::Tx, 1), (Stage::Softnet, 1), (Stage::Rx, 1), (Stage::Tx, 64)]);
}

#[test]
fn with_rtca_an_urgent_packet_waits_for_the_softirq_under_way_and_no_longer() {
    let mut discipline =
        attached("rtca", &Options::new().with("batch", OptionValue::Count(10)), &[guest(0), guest(1)]);
    let mut arrivals = burst(10, 20, B, A);
    // Softnet serves B from 10 to 20.
    arrivals.push((at(12), packet(0, A, B)));
    let done = run(&mut *discipline, &arrivals);
    let of_a: Vec<_> = done.iter().filter(|done| done.step.packet.id == 0).collect();
    assert_eq!(of_a.iter().map(|done| done.start).collect::<Vec<_>>(), [at(30), at(40), at(41)]);
}

#[test]
fn preemptive_lets_an_urgent_packet_wait_for_one_packet_only() {
    let options = Options::new().with("batch", OptionValue::Count(10));
    let mut discipline = attached("preemptive", &options, &[guest(0), guest(1)]);
    let mut arrivals = burst(10, 20, B, A);
    arrivals.push((at(12), packet(0, A, B)));
    let done = run(&mut *discipline, &arrivals);
    let of_a: Vec<_> = done.iter().filter(|done| done.step.packet.id == 0).collect();
    assert_eq!(of_a.iter().map(|done| done.start).collect::<Vec<_>>(), [at(12), at(13), at(14)]);
}

#[test]
fn a_packet_from_a_network_card_is_as_urgent_as_the_guest_it_goes_to() {
    for name in ["rtca", "preemptive"] {
        let mut discipline = attached(name, &Options::new(), &[device(), guest(5), guest(1)]);
        let mut arrivals = burst(10, 3, A, B);
        arrivals.extend(burst(20, 3, A, C));
        let done = run(&mut *discipline, &arrivals);
        assert_eq!(order(&done, Stage::Softnet), [20, 21, 22, 10, 11, 12], "{name}");
    }
}

#[test]
fn parameters_out_of_range_are_refused_by_name_and_change_nothing() {
    let rate = Rate::new(1000, Duration::from_ms(50));
    let with_rate = |rate| InterfaceParams { rate: Some(rate), ..guest(0) };
    let cases = [
        ("batch", InterfaceParams { batch: Some(0), ..guest(0) }),
        ("softnet_limit", InterfaceParams { softnet_limit: Some(65_537), ..guest(0) }),
        ("ring_slots", InterfaceParams { ring_slots: Some(0), ..guest(0) }),
        ("credit_bytes", with_rate(Rate { bytes: 0, ..rate })),
        ("credit_bytes", InterfaceParams { kind: InterfaceKind::Device, ..with_rate(rate) }),
        ("credit_window", with_rate(Rate { window: Duration::ZERO, ..rate })),
        ("burst_bytes", with_rate(Rate { burst_bytes: 999, ..rate })),
    ];
    for info in registry::disciplines() {
        let mut discipline = build(info.name, &[]);
        for (field, params) in &cases {
            let error = discipline.attach(at(0), params).expect_err(field);
            assert_eq!(error.field(), *field, "{}: {error}", info.name);
        }
        assert_eq!(discipline.attach(at(0), &guest(0)), Ok(A), "refused interfaces get no id");
    }
}

#[test]
fn options_out_of_range_are_refused_by_name() {
    for info in registry::disciplines() {
        for option in info.options {
            let bad = match option.kind {
                registry::ParamKind::Count { .. } => OptionValue::Count(0),
                registry::ParamKind::Duration => OptionValue::Duration(Duration::ZERO),
                _ => continue,
            };
            let built = (info.build)(&Options::new().with(option.name, bad));
            assert_eq!(built.err().map(|error| error.option), Some(option.name), "{}", info.name);
        }
    }
}

/// The defaults that the registry shows are the defaults that hold.
#[test]
fn every_count_given_as_its_documented_default_changes_nothing() {
    for info in registry::disciplines() {
        let given =
            info.options.iter().filter(|option| matches!(option.kind, registry::ParamKind::Count { .. }));
        let options = given.fold(Options::new(), |options, option| {
            options.with(option.name, option.default_value().expect("a number"))
        });
        let log = |options: &Options| {
            let interfaces = [roomy(guest(0)), roomy(guest(1)), roomy(device())];
            let mut discipline = attached(info.name, options, &interfaces);
            let mut arrivals = burst(0, 1400, A, B);
            arrivals.extend(burst(10_000, 1400, B, A));
            arrivals.extend(burst(20_000, 1400, C, A));
            run(&mut *discipline, &arrivals)
        };
        assert_eq!(log(&options), log(&Options::new()), "{}", info.name);
    }
}

#[test]
fn a_discipline_is_found_by_its_name_and_names_are_unique() {
    let names: Vec<&str> = registry::disciplines().iter().map(|info| info.name).collect();
    assert_eq!(names, ["netback", "rtca", "preemptive"]);
    assert!(registry::find("RTCA").is_none());
}

#[test]
fn an_interface_that_another_guest_gets_is_as_if_that_one_had_always_had_it() {
    for info in registry::disciplines() {
        let fresh = |priorities: [u32; 3]| {
            let mut discipline = build(info.name, &[]);
            let attach = |priority| discipline.attach(Instant::ZERO, &guest(priority)).expect("valid");
            let ids = priorities.map(attach);
            (discipline, ids)
        };
        let (mut replaced, [a, b, c]) = fresh([9, 1, 5]);
        // More interfaces than there are: room for them changes nothing.
        replaced.reserve(20);
        replaced.arrive(Instant::ZERO, packet(1, a, b)).expect("room");
        assert_eq!(replaced.replace(at(0), a, &guest(0)), Ok(false), "{}: its packet waits", info.name);
        assert!(matches!(replaced.next(at(0)), Next::Process(_)));
        assert_eq!(replaced.replace(at(0), a, &guest(0)), Ok(false), "{}: its packet is in TX", info.name);
        replaced.complete(at(1));
        let bad = InterfaceParams { ring_slots: Some(0), ..guest(0) };
        assert!(replaced.replace(at(1), a, &bad).is_err());
        assert_eq!(replaced.replace(at(1), a, &guest(0)), Ok(true), "{}: it is beyond TX", info.name);
        assert_eq!(replaced.drops(a), Drops::default());
        let old = run(&mut *replaced, &[]);
        assert_eq!(order(&old, Stage::Rx), [1], "{}: what the old guest sent goes on", info.name);
        let (mut other, _) = fresh([0, 1, 5]);
        let arrivals: Vec<_> = (2..40).map(|id| (at(9), packet(id, [c, b, a][id as usize % 3], b))).collect();
        // The one turn of the old guest is over in both.
        let once = |discipline: &mut dyn Discipline| run(discipline, &[(at(3), packet(0, a, b))]);
        once(&mut *other);
        let both =
            [replaced, other].map(|mut discipline| order(&run(&mut *discipline, &arrivals), Stage::Rx));
        assert_eq!(both[0], both[1], "{}", info.name);
    }
}
