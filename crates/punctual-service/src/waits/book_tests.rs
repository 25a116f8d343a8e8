use proptest::prelude::*;

use super::*;
use crate::waits::account::Off;

const SECOND: u64 = 1_000_000_000;

fn segment(wait: u64, from_ns: u64, until_ns: u64, because: Because) -> Out {
    Out::Segment(Segment { thread: 7, wait, processor: 2, from_ns, until_ns, because })
}

fn end(wait: u64, from_ns: u64, until_ns: u64, was_woken: bool) -> Out {
    let (was_off, after) = (false, None);
    Out::Ended(Ended { thread: 7, wait, from_ns, until_ns, was_woken, was_off, after })
}

fn book() -> Book {
    let mut book = Book::default();
    book.open(7, 100, Part::Vcpu(0));
    book
}

fn take(book: &mut Book, outs: Vec<Out>, limit_ns: u64) {
    let account = Account { outs, names: ById::default() };
    let mut who = |thread: u32, _| match thread {
        0..50 => Who::Vcpu(200, format!("other vCPU {thread}").into()),
        50..60 => Who::Helper(100, "io".into()),
        _ => Who::Process(format!("hog {thread}").into()),
    };
    book.take(&account, Window { who: &mut who, limits: vec![(limit_ns, HashSet::from([7]))] });
}

fn cause(book: &Book, cause: WaitCause) -> u64 {
    book.vm(100).expect("a VM").parts[&Part::Vcpu(0)].causes.get(&cause).copied().unwrap_or(0)
}

#[test]
fn the_story_of_a_wait_says_who_ran_in_order_and_for_how_long() {
    let mut book = book();
    let outs = vec![
        segment(1, 0, 40, Because::Off(Off::Asleep)),
        segment(2, 40, 50, Because::Behind(1)),
        segment(2, 50, 70, Because::Behind(1)),
        segment(2, 70, 75, Because::Behind(99)),
        segment(2, 75, 76, Because::Idle),
        end(2, 40, 76, true),
    ];
    take(&mut book, outs, 0);
    assert_eq!(cause(&book, WaitCause::PreemptedByUnit), 30);
    assert_eq!(cause(&book, WaitCause::OtherThread), 5);
    assert_eq!(cause(&book, WaitCause::ProcessorIdle), 1);
    let lately = book.lately(100, 0);
    let [(Part::Vcpu(0), story)] = &lately.worst[..] else { panic!("{lately:?}") };
    let steps: Vec<_> =
        story.steps.iter().map(|step| (step.by.1.as_deref(), step.until_ns - step.from_ns)).collect();
    assert_eq!(steps, [(Some("other vCPU 1"), 30), (Some("hog 99"), 5), (None, 1)]);
    assert!(story.was_woken && !story.is_open);
    let vm = book.vm(100).expect("a VM");
    assert_eq!(vm.parts[&Part::Vcpu(0)].latency.count(), 1);
}

#[test]
fn a_wait_that_goes_on_is_shown_and_one_that_is_over_once() {
    let mut book = book();
    take(&mut book, vec![segment(5, 0, 40, Because::Behind(1))], 0);
    assert!(book.lately(100, 0).worst[0].1.is_open);
    take(&mut book, vec![segment(5, 40, 90, Because::Behind(1)), end(5, 0, 90, false)], 0);
    let worst = book.lately(100, 0).worst;
    assert_eq!(worst.iter().map(|(_, story)| story.length_ns()).collect::<Vec<_>>(), [90]);
    assert!(!worst[0].1.is_open);
}

#[test]
fn what_kvm_counted_is_noted_with_the_waits_of_vcpus_that_went_on_meanwhile() {
    let mut book = book();
    book.open(8, 100, Part::Helper("io"));
    let helper =
        Segment { thread: 8, wait: 1, processor: 2, from_ns: 0, until_ns: 60, because: Because::Idle };
    let ended = vec![segment(1, 0, 40, Because::Behind(1)), end(1, 0, 40, false), Out::Segment(helper)];
    take(&mut book, ended, 0);
    take(&mut book, vec![segment(2, 50, 60, Because::Behind(1))], 0);
    let note = |book: &mut Book, vm, (from_ns, until_ns), yields| {
        book.note(&Counted { vm, from_ns, until_ns, yields });
    };
    note(&mut book, 100, (0, 60), 3);
    note(&mut book, 101, (0, 60), 9);
    note(&mut book, 100, (60, 70), 20);
    take(&mut book, vec![segment(2, 60, 80, Because::Behind(1))], 0);
    note(&mut book, 100, (70, 90), 400);
    let yields = |book: &Book| {
        let worst = book.lately(100, 0).worst;
        let of_part = |part| worst.iter().filter(move |(of, _)| *of == part).map(|(_, story)| story.yields);
        (of_part(Part::Vcpu(0)).collect::<Vec<_>>(), of_part(Part::Helper("io")).collect::<Vec<_>>())
    };
    assert_eq!(yields(&book), (vec![3, 403], vec![0]));
    take(&mut book, vec![end(2, 50, 80, false), segment(3, 90, 95, Because::Behind(1))], 0);
    assert_eq!(yields(&book), (vec![3, 403, 0], vec![0]), "another wait begins without");
}

#[test]
fn spins_of_a_vcpu_are_noted_with_the_waits_of_its_siblings() {
    let mut book = book();
    book.open(8, 100, Part::Vcpu(1));
    book.open(9, 100, Part::Helper("io"));
    let sibling =
        Segment { thread: 8, wait: 1, processor: 3, from_ns: 0, until_ns: 60, because: Because::Idle };
    take(&mut book, vec![segment(1, 0, 40, Because::Behind(1)), Out::Segment(sibling)], 0);
    book.add_spins(7, Some(5), (0, 50));
    book.add_spins(8, Some(0), (0, 50));
    book.add_spins(9, Some(70), (0, 50));
    book.add_spins(7, None, (50, 90));
    book.add_spins(77, Some(700), (0, 90));
    let lately = book.lately(100, 0);
    let spins = |part| lately.worst.iter().find(|(of, _)| *of == part).map(|(_, story)| story.spins);
    assert_eq!((spins(Part::Vcpu(0)), spins(Part::Vcpu(1))), (Some(0), Some(5)));
    assert_eq!(lately.spins, BTreeMap::from([(Part::Vcpu(0), 5)]));
    let parts = &book.vm(100).expect("a VM").parts;
    assert_eq!([0, 1].map(|number| parts[&Part::Vcpu(number)].spins), [Some(5), Some(0)]);
    assert_eq!(parts[&Part::Helper("io")].spins, None);
}

#[test]
fn a_limit_of_the_cgroup_takes_the_waits_that_it_explains() {
    let mut book = book();
    let outs = vec![
        segment(1, 0, 80_000, Because::Idle),
        end(1, 0, 80_000, false),
        segment(2, 90_000, 95_000, Because::Behind(1)),
        end(2, 90_000, 95_000, false),
    ];
    take(&mut book, outs, 80_000);
    assert_eq!(
        (cause(&book, WaitCause::Throttled), cause(&book, WaitCause::PreemptedByUnit)),
        (80_000, 5_000)
    );
}

#[test]
fn only_the_worst_of_the_last_hour_stay() {
    let mut book = book();
    for n in 0..30u64 {
        let (from, until) = (n * 400 * SECOND, n * 400 * SECOND + 10 + n);
        take(
            &mut book,
            vec![segment(n + 1, from, until, Because::Behind(1)), end(n + 1, from, until, false)],
            0,
        );
    }
    let now = 30 * 400 * SECOND;
    let lengths = |from: u64| -> Vec<u64> {
        book.lately(100, from).worst.iter().map(|(_, story)| story.length_ns()).collect()
    };
    assert_eq!(lengths(now - 3600 * SECOND), [39, 38, 37, 36, 35, 34, 33, 32, 31]);
    assert_eq!(lengths(now - 500 * SECOND), [39]);
    assert!(book.vm(100).expect("a VM").slots.len() <= PARTS + 1);
}

#[test]
fn a_long_story_is_cut_and_its_times_stay_whole() {
    let mut book = book();
    let step = |n: u64| segment(1, n * 10, n * 10 + 10, Because::Behind(1 + (n % 2) as u32));
    take(&mut book, (0..1000).map(step).chain([end(1, 0, 10_000, false)]).collect(), 0);
    let story = &book.lately(100, 0).worst[0].1;
    assert_eq!((story.steps.len(), story.rest.len(), story.length_ns()), (STEPS_MAX, 2, 10_000));
    let told: u64 = story.steps.iter().map(|step| step.until_ns - step.from_ns).sum();
    assert_eq!(told + story.rest.values().sum::<u64>(), 10_000);
}

#[test]
fn more_names_than_are_kept_lose_their_names_and_not_their_times() {
    let mut book = book();
    let step = |n: u64| segment(n + 1, n * 10, n * 10 + 10, Because::Behind(100 + n as u32));
    take(&mut book, (0..1000).map(step).collect(), 0);
    let lately = book.lately(100, 0);
    assert!(lately.causes.len() <= NAMES_MAX + 1, "{}", lately.causes.len());
    assert_eq!(lately.causes.values().sum::<u64>(), 10_000);
}

/// Steps of a wait: how long, behind which thread; 0 is an idle processor.
fn steps() -> impl Strategy<Value = Vec<(u64, u32)>> {
    prop::collection::vec((1u64..5000, 0u32..70), 1..6)
}

proptest! {
    /// Whatever is blamed on whom: the causes add up to the time of all waits, and so does each story.
    #[test]
    fn causes_add_up_to_the_waits(
        waits in prop::collection::vec((steps(), any::<bool>()), 1..30),
        limit in 0u64..20_000,
    ) {
        let mut book = book();
        let (mut outs, mut at, mut sum) = (Vec::new(), 0, 0);
        for (wait, (steps, ends)) in waits.iter().enumerate() {
            let (wait, began) = (wait as u64 + 1, at);
            for (length, who) in steps {
                let because = if *who == 0 { Because::Idle } else { Because::Behind(*who) };
                outs.push(segment(wait, at, at + length, because));
                at += length;
                sum += length;
            }
            if *ends {
                outs.push(end(wait, began, at, true));
            }
        }
        take(&mut book, outs, limit);
        let totals = &book.vm(100).expect("a VM").parts[&Part::Vcpu(0)];
        prop_assert_eq!(totals.causes.values().sum::<u64>(), sum);
        let lately = book.lately(100, 0);
        prop_assert_eq!(lately.causes.values().sum::<u64>(), sum);
        for (_, story) in &lately.worst {
            let told: u64 = story.steps.iter().map(|step| step.until_ns - step.from_ns).sum();
            prop_assert_eq!(told + story.rest.values().sum::<u64>(), story.length_ns());
        }
    }
}

#[test]
fn the_worst_waits_of_all_vms_are_told_apart_and_causes_are_added_up_without_names() {
    let mut book = book();
    book.open(8, 300, Part::Helper("io"));
    let of = |thread: u32, out: Out| match out {
        Out::Segment(segment) => Out::Segment(Segment { thread, ..segment }),
        Out::Ended(ended) => Out::Ended(Ended { thread, ..ended }),
    };
    let outs = vec![
        segment(1, 0, 30, Because::Behind(1)),
        segment(1, 30, 40, Because::Behind(2)),
        end(1, 0, 40, true),
        of(8, segment(2, 10, 100, Because::Behind(99))),
        of(8, end(2, 10, 100, false)),
        of(8, segment(3, 200, 250, Because::Behind(99))),
    ];
    take(&mut book, outs, 0);
    let worst: Vec<(u32, Part, u64)> =
        book.worst(0).iter().map(|(vm, part, story)| (*vm, *part, story.length_ns())).collect();
    let io = Part::Helper("io");
    assert_eq!(worst, [(300, io, 90), (300, io, 50), (100, Part::Vcpu(0), 40)], "one goes on");
    assert_eq!(book.worst(90).len(), 2, "one ended before");
    assert_eq!(book.causes(100, 0), BTreeMap::from([(WaitCause::PreemptedByUnit, 40)]));
    assert_eq!(book.causes(300, 0), BTreeMap::from([(WaitCause::OtherThread, 140)]));
    assert!(book.causes(999, 0).is_empty());
}
