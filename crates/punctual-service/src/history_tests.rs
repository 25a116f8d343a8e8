use proptest::prelude::*;
use punctual_model::file::{ConfigFile, parse_service};
use punctual_model::topology::Topology;

use super::*;

const SECOND_US: u32 = 1_000_000;

fn registry() -> Registry {
    let file = ConfigFile { name: "host.toml".into(), bytes: b"mode = 'observe'\n".to_vec() };
    let config = parse_service(&[file], &Topology::flat(4)).expect("valid");
    Registry::new(Path::new("/none"), config, Vec::new())
}

/// Of processors 1 and 3, with names of the VMs 7 to 12.
fn history() -> History {
    let mut history = History::new(Path::new("/none"));
    history.processors = vec![1, 3];
    history.names = (7..=12).map(|process| (process, (format!("vm-{process}").into(), 0))).collect();
    history
}

/// Adds a moment in which VM 7 had processor 1 for so long.
fn add(history: &mut History, run_us: u32) {
    history.push(Moment { at_us: history.number, length_us: SECOND_US });
    history.ran = vec![(1, 7, u64::from(run_us) * 1000)];
    let idle = Load { idle_ns: 1_000_000_000, ..Load::default() };
    for processor in [1, 3] {
        let row = history.row(processor, idle, SECOND_US, &registry());
        history.uses.push_back(row);
    }
}

#[test]
fn times_of_one_vm_on_a_processor_are_one_sum_and_the_greatest_comes_first() {
    let mut ran = vec![(1, 7, 5), (3, 7, 1), (1, 8, 9), (1, 7, 6), (1, 9, 9)];
    sum_up(&mut ran);
    assert_eq!(ran, [(1, 7, 11), (1, 8, 9), (1, 9, 9), (3, 7, 1)]);
}

#[test]
fn a_processor_that_nothing_counts_is_not_idle() {
    let row = history().row(1, Load::default(), SECOND_US, &registry()).view(1, SECOND_US);
    assert_eq!((row.idle_us, row.other_us), (0, SECOND_US));
}

#[test]
fn an_answer_has_what_came_after_a_number_and_says_whether_that_is_all() {
    let mut history = history();
    assert_eq!(history.view(0), HistoryView { is_complete: true, ..HistoryView::default() });
    let many = (USES_MAX / 2).min(MOMENTS) as u32 + 20;
    (1..=many).for_each(|run_us| add(&mut history, run_us));
    let all = history.view(0);
    assert_eq!((all.last, all.moments.len(), all.is_complete), (u64::from(many), MOMENTS, true));
    assert_eq!(all.moments[0].number, u64::from(many) - MOMENTS as u64 + 1, "the oldest ones are gone");
    let last = &history.view(u64::from(many) - 1);
    assert_eq!((last.moments.len(), last.moments[0].number), (1, u64::from(many)));
    assert_eq!(last.moments[0].processors[0].actors, [RunView { process: 7, run_us: many }]);
    assert_eq!(last.actors, [NameView { process: 7, name: "vm-7".into() }]);
    assert!(history.view(u64::from(many)).moments.is_empty());
    assert_eq!(history.view(u64::MAX).moments.len(), MOMENTS, "a number of another service");
}

#[test]
fn the_ring_and_what_an_answer_takes_are_bounded() {
    let mut history = history();
    add(&mut history, 1);
    history.uses.reserve_exact(MOMENTS * 2);
    let capacity = (history.moments.capacity(), history.uses.capacity());
    (0..2 * MOMENTS).for_each(|_| add(&mut history, 1));
    assert_eq!((history.moments.len(), history.uses.len()), (MOMENTS, 2 * MOMENTS));
    assert_eq!((history.moments.capacity(), history.uses.capacity()), capacity, "it does not grow");
    assert_eq!(std::mem::size_of::<Use>() * MOMENTS, 13_200, "bytes for each processor, as in service.md");
    // As many processors as are kept, all of them with as many VMs as are named.
    let mut history = History::new(Path::new("/none"));
    history.processors = (0..PROCESSORS_MAX).collect();
    let name: Box<str> = "\u{1}".repeat(short(&"x".repeat(1000)).len()).into();
    history.names = (1..=NAMES_MAX as u32).map(|process| (process, (name.clone(), 0))).collect();
    for number in 0..MOMENTS as u32 {
        history.push(Moment { at_us: u64::MAX, length_us: u32::MAX });
        let actors = |at: u32| {
            std::array::from_fn(|place| ((at * 4 + place as u32) % NAMES_MAX as u32 + 1, 100_000_000))
        };
        let row = |at: u32| Use { idle_us: 100_000_000, actors: actors(at), ..Use::default() };
        history.uses.extend((0..PROCESSORS_MAX as u32).map(|at| row(at + number)));
    }
    let (mut since, mut moments) = (0, 0);
    loop {
        let view = history.view(since);
        let bytes = serde_json::to_vec(&view).expect("JSON").len();
        assert!(bytes < crate::varlink::server::UNREAD_MAX, "{bytes} bytes");
        moments += view.moments.len();
        since = view.moments.last().expect("more").number;
        if view.is_complete {
            break;
        }
    }
    assert_eq!(moments, MOMENTS);
}

proptest! {
    #[test]
    fn the_times_of_a_processor_add_up_to_the_moment(
        ran in prop::collection::vec((7u32..15, 0u64..2_000_000_000), 0..8),
        busy_ns in 0u64..2_000_000_000,
        idle_ns in 0u64..2_000_000_000,
        steal_ns in 0u64..1_500_000_000,
    ) {
        let mut history = history();
        history.ran = ran.iter().map(|&(process, ns)| (1, process, ns)).collect();
        sum_up(&mut history.ran);
        let did = Load { busy_ns, idle_ns, steal_ns, ..Load::default() };
        let row = history.row(1, did, SECOND_US, &registry()).view(1, SECOND_US);
        let sum = row.actors.iter().map(|one| one.run_us).sum::<u32>() + row.more_us;
        prop_assert_eq!(sum + row.idle_us + row.stolen_us + row.other_us, SECOND_US);
        prop_assert!(row.actors.is_sorted_by_key(|one| std::cmp::Reverse(one.run_us)));
        prop_assert!(row.actors.iter().all(|one| (7..=12).contains(&one.process)), "those with names");
        // Times of one process are added up before they are rounded down.
        let wanted_ns: u64 = ran.iter().map(|(_, ns)| ns).sum();
        prop_assert!(u64::from(sum) <= wanted_ns / 1000);
    }
}
