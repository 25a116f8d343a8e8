//! Guests whose vCPUs wait for each other: what they do beside each other and in turns on one processor.

use punctual_model::Host;
use punctual_model::file::{Overrides, parse};
use punctual_model::results::{Results, SmpRounds};
use punctual_sched::registry::policies;
use punctual_sim::simulate;
use punctual_testkit::random::Random;

/// Two vCPUs for 10 ms, on as many processors.
fn guest(processors: usize, smp: &str) -> Host {
    host(&format!(
        "duration = '10ms'\nmachine.processors = {processors}\npool.cpu = {{ policy = 'fixed-priority' }}\n\
         domain.vm = {{ vcpus = 2, smp = {{ {smp} }} }}\n"
    ))
}

fn host(text: &str) -> Host {
    parse(text, "test.toml", &Overrides::default()).unwrap_or_else(|e| panic!("{e}"))
}

fn rounds(results: &Results) -> Vec<SmpRounds> {
    results.tasks.iter().map(|task| *task.smp.as_deref().expect("it has rounds")).collect()
}

fn of(host: &Host) -> Vec<(u64, u64)> {
    let results = simulate(host).expect("no invariant is violated");
    rounds(&results).into_iter().map(|of| (of.rounds, (of.spun_ns + 500) / 1_000)).collect()
}

const BARRIER: &str = "work = 'barrier', cost = '10us'";

#[test]
fn vcpus_with_a_processor_each_meet_at_a_barrier_without_waiting() {
    assert_eq!(of(&guest(2, BARRIER)), [(1_000, 0), (1_000, 0)]);
}

#[test]
fn at_a_barrier_each_turn_on_one_processor_ends_one_round() {
    // The first turn ends none. From the second one on a vCPU executes 10 us, has met the other one, executes
    // 10 us more, and spins for the rest of its millisecond.
    assert_eq!(of(&guest(1, BARRIER)), [(9, 4 * 980 + 990), (9, 5 * 980)]);
}

#[test]
fn an_interrupt_is_answered_in_the_other_vcpus_turn() {
    // In its turn the caller executes 10 us, interrupts, and spins. The other one answers within 5 us and
    // computes for the rest of its own turn.
    let one_way = "work = 'interrupt', cost = '10us', answer = '5us', callers = 1";
    let [caller, other] = of(&guest(1, one_way))[..] else { panic!("two vCPUs") };
    assert_eq!(caller, (5, 5 * 990));
    assert_eq!(other.1, 0);
    assert_eq!(other.0, (5 * 995) / 10);
}

#[test]
fn on_two_processors_an_interrupt_costs_its_answer() {
    // The caller needs 10 us and spins for 5; the other one loses 5 us of every 15.
    let one_way = "work = 'interrupt', cost = '10us', answer = '5us', callers = 1";
    let [caller, other] = of(&guest(2, one_way))[..] else { panic!("two vCPUs") };
    assert_eq!(caller, (666, 666 * 5));
    assert_eq!(other, (666, 0));
}

#[test]
fn vcpus_that_interrupt_each_other_answer_while_they_spin() {
    let both = "work = 'interrupt', cost = '10us', answer = '5us'";
    // Both have executed 10 us. The first one sends, and spins while the other one answers before it sends;
    // then the first one answers in its next round, while the other one spins: 20 us in all.
    assert_eq!(of(&guest(2, both)), [(500, 2_500), (500, 2_500)]);
}

#[test]
fn a_spinlock_held_for_a_whole_round_is_used_by_one_vcpu_after_the_other() {
    let held = "work = 'spinlock', cost = '1us', held = '9us'";
    let [first, second] = of(&guest(2, held))[..] else { panic!("two vCPUs") };
    // Of 10 ms the lock is held all the time but for the first microsecond.
    assert_eq!(first.0 + second.0, (10_000 - 1) / 9);
    assert!(first.0.abs_diff(second.0) <= 1);
}

#[test]
fn a_vcpu_spins_for_its_turns_while_another_one_without_processor_holds_the_lock() {
    // A round takes 13 us, so that the first one holds the lock at the end of each of its turns.
    let [first, second] = of(&guest(1, "work = 'spinlock', cost = '4us', held = '9us'"))[..] else {
        panic!("two vCPUs")
    };
    assert_eq!((first.0, second), (5_000 / 13, (0, 5_000 - 4)));
}

#[test]
fn a_vcpu_that_waits_for_a_mutex_leaves_the_processor_to_the_other_one() {
    // As with the spinlock, but nothing is lost, only rounds that have begun at the end.
    let [first, second] = of(&guest(1, "work = 'mutex', cost = '4us', held = '9us'"))[..] else {
        panic!("two vCPUs")
    };
    assert!(first.0 + second.0 >= 10_000 / 13 - 2, "{first:?} {second:?}");
    assert_eq!(first.1 + second.1, 0);
}

#[test]
fn a_byte_goes_round_by_a_pipe_without_any_spinning() {
    for processors in [1, 2] {
        // Each passes it on after 10 us of its own.
        let [first, second] = of(&guest(processors, "work = 'pipe', cost = '10us'"))[..] else {
            panic!("two vCPUs")
        };
        assert!(first.0 + second.0 >= 998, "{processors}: {first:?} {second:?}");
        assert_eq!(first.1 + second.1, 0);
    }
}

#[test]
fn a_guest_that_spins_leaves_its_neighbour_what_its_budget_leaves() {
    for name in ["deferrable", "periodic", "polling", "sporadic", "sedf", "rtds", "cbs"] {
        let text = format!(
            "duration = '1s'\nmachine.processors = 1\npool.cpu = {{ policy = '{name}' }}\n\
             domain.vm = {{ vcpus = 2, budget = '4ms', period = '10ms', budget_of = 'vm', priority = 1,\n\
             smp = {{ {BARRIER} }} }}\n\
             domain.other = {{ budget = '6ms', period = '10ms', priority = 2, task.hog.hog = true }}\n"
        );
        let results = simulate(&host(&text)).expect("no invariant is violated");
        let used: u64 = results.tasks[..2].iter().map(|task| task.cpu_time_ns).sum();
        assert!(used <= 410_000_000, "{name}: {used}");
    }
}

/// A host with guests of every kind of work under a policy.
fn random_guests(random: &mut Random, policy: &str) -> Host {
    let mut text = format!(
        "duration = '200ms'\nmachine.processors = 3\n\
         pool.cpu = {{ policy = '{policy}', processors = [0, 1] }}\n"
    );
    for domain in 0..random.within(1, 3) {
        let us = |random: &mut Random, to| format!("'{}us'", random.within(1, to));
        let (cost, own) = (us(random, 300), us(random, 200));
        let vcpus = random.within(1, 4);
        let work = match random.within(0, 4) {
            0 => format!("work = 'spinlock', held = {own}"),
            1 => format!("work = 'mutex', held = {own}"),
            2 => format!("work = 'interrupt', answer = {own}, callers = {}", random.within(0, vcpus)),
            3 => "work = 'barrier'".into(),
            _ => "work = 'pipe'".into(),
        };
        let share = if random.one_in(2) { "budget_of = 'vm'," } else { "" };
        text += &format!(
            "domain.vm{domain} = {{ vcpus = {vcpus}, budget = '{}ms', period = '10ms', {share}\n\
             priority = {domain}, weight = 256, deadline = '10ms', smp = {{ {work}, cost = {cost} }} }}\n",
            random.within(1, 3),
        );
    }
    host(&text)
}

#[test]
fn whatever_they_wait_for_no_time_is_both_spun_away_and_used() {
    let mut random = Random::new(7);
    for number in 0..300 {
        let host = random_guests(&mut random, policies()[number % policies().len()].name);
        let results = simulate(&host).unwrap_or_else(|e| panic!("{number}: {e}"));
        for (task, of) in results.tasks.iter().zip(rounds(&results)) {
            assert!(of.spun_ns <= task.cpu_time_ns, "{number}: {}: {of:?}", task.name);
        }
        assert_eq!(results, simulate(&host).expect("as before"), "{number}");
    }
}
