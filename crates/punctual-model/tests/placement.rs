//! Which processors pools get that do not list them.

use std::collections::BTreeSet;

use proptest::prelude::*;
use punctual_model::placement::{Choice, Placement, Request, Shortage, Slot, SlotPlace, Smt, closest, place};
use punctual_model::topology::{Device, Processor, Topology};

/// Two packages with four cores of two threads each, a cache and a node for each package: processors 0 to 3
/// and their siblings 8 to 11 in the first one, 4 to 7 and 12 to 15 in the second one. The interrupts of the
/// interface eno6 of node 1 go to processor 4.
fn two_packages(isolated: &[usize]) -> Topology {
    let processor = |number| {
        let package = number % 8 / 4;
        Processor {
            number,
            is_online: true,
            is_isolated: isolated.contains(&number),
            core: number % 8,
            cache: package,
            package,
            node: package,
        }
    };
    let eno6 = Device { node: Some(1), interrupts: BTreeSet::from([4]), ..Device::default() };
    Topology {
        processors: (0..16).map(processor).collect(),
        devices: [("eno6".to_owned(), eno6)].into(),
        is_flat: false,
    }
}

/// One core with two threads.
fn laptop() -> Topology {
    let Topology { mut processors, .. } = Topology::flat(2);
    processors[1].core = 0;
    Topology { processors, ..Topology::default() }
}

fn sv0() -> Vec<Slot> {
    vec![Slot { name: "sv0".into(), place: SlotPlace::Interrupts("eno6".into()) }]
}

fn want(count: usize) -> Request {
    Request { count, isolated: false, near: None, smt: Smt::Whole }
}

/// The choice for each pool on a line.
fn shown(
    topology: &Topology,
    wanted: &[(&str, Request)],
    listed: &[(&str, &[usize])],
    slots: &[Slot],
) -> String {
    let wanted: Vec<(&str, &Request)> = wanted.iter().map(|(name, request)| (*name, request)).collect();
    let line = |(pool, result): (&(&str, &Request), Result<Placement, Shortage>)| match result {
        Ok(Placement { processors, choice: Choice { reason, .. } }) => {
            format!("{} {processors:?}: {reason}\n", pool.0)
        }
        Err(Shortage { message, expected }) => format!("{message}; {expected}\n"),
    };
    wanted.iter().zip(place(topology, &wanted, listed, slots)).map(line).collect()
}

#[test]
fn a_machine_of_two_packages_gives_whole_cores_of_one_cache() {
    let machine = two_packages(&[]);
    let wanted = [("rt", want(4)), ("be", want(3))];
    assert_eq!(
        shown(&machine, &wanted, &[], &[]),
        "rt [1, 2, 9, 10]: no processor is isolated, whole cores, one cache of NUMA node 0\n\
         be [4, 5, 12]: no processor is isolated, idle siblings 13, one cache of NUMA node 1\n"
    );
    // Another pool's siblings are out of reach, listed or chosen; so is a slot that lists processors.
    let slots = [Slot { name: "bus".into(), place: SlotPlace::Processors([5].into()) }];
    assert_eq!(
        shown(&machine, &[("rt", want(4))], &[("own", &[9, 4])], &slots),
        "rt [2, 3, 10, 11]: no processor is isolated, whole cores, one cache of NUMA node 0\n"
    );
    let all = shown(&machine, &[("rt", want(13))], &[("own", &[9, 4])], &slots);
    assert_eq!(
        all,
        "pool rt wants 13 processors, and 11 are there; expected at most 11: 0, 2-3, 6-8, 10-11, 13-15 free, \
         4, 9 in pool own, 5 in slot bus, 1, 12 on a core of pool own\n"
    );
}

#[test]
fn a_pool_near_a_slot_is_on_its_node_beside_its_interrupts() {
    let near = |count| Request { near: Some(0), ..want(count) };
    let machine = two_packages(&[]);
    // Processor 4 has the interrupts: its core comes last, and itself behind its sibling.
    assert_eq!(
        shown(&machine, &[("rt", near(2)), ("more", near(5))], &[], &sv0()),
        "rt [5, 13]: no processor is isolated, whole cores, one cache of NUMA node 1, in the \
         cache of slot sv0\n\
         more [6, 7, 12, 14, 15]: no processor is isolated, idle siblings 4, one cache of NUMA \
         node 1, in the cache of slot sv0\n"
    );
    let all = shown(&machine, &[("rt", near(8))], &[], &sv0());
    assert!(
        all.ends_with(
            ", whole cores, one cache of NUMA node 1, in the cache of slot sv0, 4 with interrupts of slot \
                           sv0\n"
        ),
        "{all}"
    );
    let too_many = shown(&machine, &[("rt", near(9))], &[], &sv0());
    assert_eq!(
        too_many,
        "pool rt wants 9 processors near slot sv0, and 8 are there; expected at most 8: 4-7, 12-15 free, \
         0-3, 8-11 on NUMA node 0\n"
    );
    // A pool without wishes does not take what one with wishes needs, although it comes first.
    let both = shown(&machine, &[("be", want(8)), ("rt", near(8))], &[], &sv0());
    assert!(both.contains("rt [4, 5, 6, 7, 12, 13, 14, 15]"), "{both}");
    assert!(both.starts_with("be [0, 1, 2, 3, 8, 9, 10, 11]"), "{both}");
    assert!(both.contains("0 because nothing else is left\nrt"), "{both}");
}

#[test]
fn isolated_processors_come_first_and_a_pool_that_needs_them_gets_them() {
    let machine = two_packages(&[2, 3, 10, 11]);
    let isolated = |count| Request { isolated: true, ..want(count) };
    assert_eq!(
        shown(&machine, &[("be", want(2)), ("rt", isolated(2))], &[], &[]),
        "be [3, 11]: isolated, whole cores, one cache of NUMA node 0\n\
         rt [2, 10]: isolated, whole cores, one cache of NUMA node 0\n"
    );
    assert_eq!(
        shown(&machine, &[("be", want(3)), ("rt", isolated(2))], &[], &[]),
        "be [1, 3, 11]: 1 not isolated because no more isolated ones fit, idle siblings 9, one cache of NUMA \
         node 0\n\
         rt [2, 10]: isolated, whole cores, one cache of NUMA node 0\n"
    );
    assert_eq!(
        shown(&machine, &[("rt", isolated(3))], &[("own", &[3])], &[]),
        "pool rt wants 3 isolated processors, and 2 are there; expected at most 2: 2, 10 free, 3 in pool \
         own, 0-1, 4-9, 12-15 not isolated, 11 on a core of pool own\n"
    );
}

#[test]
fn siblings_are_idle_where_a_pool_wants_that() {
    let machine = two_packages(&[]);
    let idle = |count| Request { smt: Smt::Idle, ..want(count) };
    let expected = "rt [1, 2]: no processor is isolated, idle siblings 9-10, one cache of NUMA \
                    node 0\n";
    assert_eq!(shown(&machine, &[("rt", idle(2))], &[], &[]), expected);
    let request = idle(2);
    let placed = place(&machine, &[("rt", &request)], &[], &[]).remove(0).expect("enough");
    assert_eq!(placed.choice.idle, [9, 10]);
    let both = shown(&machine, &[("rt", idle(7)), ("be", want(3))], &[], &[]);
    assert!(both.starts_with("rt [1, 2, 3, 4, 5, 6, 7]: "), "{both}");
    let shortage = "pool be wants 3 processors, and 2 are there; expected at most 2: 0, 8 free, 9-15 idle \
                    beside pool rt, 1-7 in pool rt\n";
    assert!(both.ends_with(shortage), "{both}");
    let all = shown(&machine, &[("rt", idle(8))], &[], &[]);
    let shortage = "pool rt wants 8 processors on cores of their own, and 7 are there";
    assert!(all.starts_with(shortage) && all.contains("0, 8 on the core of processor 0"), "{all}");
}

#[test]
fn a_laptop_keeps_processor_0_while_it_can() {
    assert_eq!(
        shown(&laptop(), &[("rt", want(1))], &[], &[]),
        "rt [1]: no processor is isolated, on a core with 0\n"
    );
    assert_eq!(
        shown(&laptop(), &[("rt", want(2))], &[], &[]),
        "rt [0, 1]: no processor is isolated, whole cores, 0 because nothing else is left\n"
    );
    assert_eq!(
        shown(&laptop(), &[("rt", want(1)), ("be", want(1))], &[], &[]),
        "rt [1]: no processor is isolated, on a core with 0\n\
         pool be wants 1 processor, and none is there; expected at most 0: 1 in pool rt, 0 on a core of pool \
         rt\n"
    );
}

#[test]
fn on_a_machine_of_which_little_is_known_wishes_are_granted() {
    let request = Request { count: 2, isolated: true, near: Some(0), smt: Smt::Idle };
    assert_eq!(
        shown(&Topology::flat(4), &[("rt", request.clone())], &[("be", &[1])], &sv0()),
        "rt [2, 3]: the lowest free numbers because only the number of processors is known\n"
    );
    let too_many = shown(&Topology::flat(2), &[("rt", Request { count: 3, ..request })], &[], &sv0());
    let expected = "pool rt wants 3 isolated processors on cores of their own near slot sv0, and 2 are \
                    there; expected at most 2: 0-1 free\n";
    assert_eq!(too_many, expected);
}

/// What is chosen from.
#[derive(Clone, Debug)]
struct Case {
    topology: Topology,
    wanted: Vec<Request>,
    listed: Vec<Vec<usize>>,
    slots: Vec<Slot>,
}

fn processor(number: usize) -> impl Strategy<Value = Processor> {
    let group = |most| 0..most;
    (prop::bool::weighted(0.9), prop::bool::weighted(0.4), group(8_usize), group(3_usize), group(2_usize))
        .prop_map(move |(is_online, is_isolated, core, cache, node)| Processor {
            number,
            is_online,
            is_isolated,
            core,
            cache,
            package: node,
            node,
        })
}

fn request() -> impl Strategy<Value = Request> {
    let smt = prop_oneof![3 => Just(Smt::Whole), 1 => Just(Smt::Idle)];
    (1..5_usize, prop::bool::weighted(0.3), prop::option::weighted(0.3, 0..2_usize), smt)
        .prop_map(|(count, isolated, near, smt)| Request { count, isolated, near, smt })
}

/// Machines of up to 16 processors, groups crosswise as no real machine has them too.
fn case() -> impl Strategy<Value = Case> {
    let processors = (1..16_usize).prop_flat_map(|count| (0..count).map(processor).collect::<Vec<_>>());
    let numbers = |most| prop::collection::btree_set(0..16_usize, 0..most);
    let device = (prop::option::of(0..2_usize), numbers(4));
    let listed = numbers(4);
    (processors, prop::collection::vec(request(), 1..4), listed, numbers(3), device).prop_map(
        |(processors, wanted, listed, own, (node, interrupts))| {
            let devices = [("eno6".to_owned(), Device { node, interrupts, ..Device::default() })].into();
            let topology = Topology { processors, devices, is_flat: false };
            let mut slots = sv0();
            slots.push(Slot { name: "bus".into(), place: SlotPlace::Processors(own) });
            Case { topology, wanted, listed: vec![listed.into_iter().collect()], slots }
        },
    )
}

fn placed(case: &Case) -> Vec<Result<Placement, Shortage>> {
    let names = ["a", "b", "c", "d"];
    let wanted: Vec<(&str, &Request)> = names.into_iter().zip(&case.wanted).collect();
    let listed: Vec<(&str, &[usize])> = case.listed.iter().map(|own| ("own", own.as_slice())).collect();
    place(&case.topology, &wanted, &listed, &case.slots)
}

proptest! {
    #[test]
    fn no_processor_is_chosen_twice_and_all_wishes_hold(case in case()) {
        let mut owners: Vec<(usize, usize)> = Vec::new();
        let mut chosen: Vec<(usize, Placement)> = Vec::new();
        for (pool, result) in placed(&case).into_iter().enumerate() {
            let request = &case.wanted[pool];
            let Ok(placement) = result else { continue };
            prop_assert_eq!(placement.processors.len(), request.count);
            prop_assert!(placement.processors.is_sorted_by(|a, b| a < b));
            prop_assert!(!placement.choice.reason.is_empty());
            owners.extend(placement.processors.iter().map(|number| (*number, pool)));
            chosen.push((pool, placement));
        }
        let SlotPlace::Processors(bus) = &case.slots[1].place else { unreachable!() };
        let of = |number: usize| *case.topology.processors.iter().find(|one| one.number == number).unwrap();
        for (pool, Placement { processors, choice }) in &chosen {
            let request = &case.wanted[*pool];
            for number in processors {
                let one = of(*number);
                prop_assert!(one.is_online);
                prop_assert!(!case.listed[0].contains(number) && !bus.contains(number));
                prop_assert_eq!(owners.iter().filter(|(other, _)| other == number).count(), 1);
                prop_assert!(one.is_isolated || !request.isolated);
                if let (Some(0), Some(node)) = (request.near, case.topology.devices["eno6"].node) {
                    prop_assert_eq!(one.node, node);
                }
                // A sibling is in the same pool, idle, 0, or in a slot; nothing else.
                for sibling in case.topology.processors.iter().filter(|other| other.core == one.core) {
                    let number = sibling.number;
                    let is_own = processors.contains(&number) || choice.idle.contains(&number);
                    prop_assert!(is_own || number == 0 || !sibling.is_online || bus.contains(&number));
                    prop_assert!(request.smt == Smt::Whole || number == one.number
                        || !processors.contains(&number));
                }
            }
            for number in &choice.idle {
                prop_assert!(owners.iter().all(|(other, _)| other != number) && *number != 0);
            }
        }
    }

    #[test]
    fn the_order_of_processors_and_slots_changes_nothing(case in case()) {
        let expected = placed(&case);
        prop_assert_eq!(&placed(&case), &expected);
        let mut other = case.clone();
        other.topology.processors.reverse();
        other.slots.swap(0, 1);
        for request in &mut other.wanted {
            request.near = request.near.map(|slot| 1 - slot);
        }
        prop_assert_eq!(placed(&other), expected);
    }

    #[test]
    fn processor_0_is_chosen_only_when_nothing_else_is_left(case in case()) {
        // Without it the pool could not have what it wants: the others that fit are fewer.
        let mut without = case;
        without.wanted.truncate(1);
        let Some(Ok(first)) = placed(&without).pop() else { return Ok(()) };
        if first.processors.contains(&0) {
            without.slots.push(Slot { name: "zero".into(), place: SlotPlace::Processors([0].into()) });
            prop_assert!(placed(&without)[0].is_err());
        }
    }
}

#[test]
fn the_closest_processors_share_a_cache_else_a_node() {
    let mut topology = two_packages(&[]);
    assert_eq!(closest(&topology, &[1], &[0, 2, 4, 5, 9]), [0, 2, 9]);
    topology.processors.iter_mut().for_each(|one| one.cache = one.core);
    assert_eq!(closest(&topology, &[1], &[0, 2, 4, 9]), [9]);
    assert_eq!(closest(&topology, &[1], &[0, 2, 4]), [0, 2]);
    assert_eq!(closest(&topology, &[1, 4], &[0, 2, 5]), [0, 2, 5]);
    assert_eq!(closest(&topology, &[1], &[4, 5]), [4, 5], "there is nothing closer");
    assert_eq!(closest(&topology, &[1], &[]), [0; 0]);
}
