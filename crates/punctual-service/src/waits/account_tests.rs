use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

const NAME: [u8; 16] = [0; 16];
pub(crate) const ASLEEP: Left = Left::Off(Off::Asleep);

pub(crate) fn switch(at_ns: u64, processor: u32, from: u32, left: Left, to: u32) -> Event {
    Event::Switch { at_ns, processor, from, from_name: NAME, left, to }
}

impl Account {
    fn segments(&self) -> impl Iterator<Item = Segment> {
        let segment = |out: &Out| match out {
            Out::Segment(segment) => Some(*segment),
            Out::Ended(_) => None,
        };
        self.outs.iter().filter_map(segment)
    }

    fn ended(&self) -> Vec<Ended> {
        let ended = |out: &Out| match out {
            Out::Ended(ended) => Some(*ended),
            Out::Segment(_) => None,
        };
        self.outs.iter().filter_map(ended).collect()
    }
}

fn account(events: &[Event], until_ns: u64) -> Account {
    let mut accountant = Accountant::default();
    accountant.watch(7, 0);
    events.iter().for_each(|event| accountant.take(*event));
    accountant.account(until_ns)
}

/// What a thread waited for, in order: because of what, how long.
fn waited(account: &Account) -> Vec<(Because, u64)> {
    account.segments().map(|segment| (segment.because, segment.length_ns())).collect()
}

#[test]
fn a_thread_that_is_woken_waits_behind_each_that_has_its_processor() {
    let events = [
        switch(10, 0, 7, ASLEEP, 50),
        Event::Wake { at_ns: 20, processor: 0, thread: 7 },
        switch(25, 0, 50, Left::Ready, 51),
        switch(40, 0, 51, ASLEEP, 0),
        switch(42, 0, 0, Left::Ready, 7),
    ];
    let account = account(&events, 100);
    let expected = [
        (Because::Off(Off::Asleep), 10),
        (Because::Behind(50), 5),
        (Because::Behind(51), 15),
        (Because::Idle, 2),
    ];
    assert_eq!(waited(&account), expected);
    let [slept, woken] = account.ended()[..] else { panic!("{account:?}") };
    assert!(slept.was_off && !slept.was_woken);
    assert_eq!((woken.from_ns, woken.until_ns, woken.was_woken, woken.was_off), (20, 42, true, false));
}

#[test]
fn a_thread_that_is_preempted_waits_until_it_runs_elsewhere() {
    let events = [
        switch(10, 0, 3, ASLEEP, 7),
        switch(30, 0, 7, Left::Ready, 50),
        switch(31, 1, 60, ASLEEP, 0),
        switch(35, 1, 0, Left::Ready, 7),
        switch(45, 1, 7, Left::Off(Off::Stopped), 0),
    ];
    let mut accountant = Accountant::default();
    accountant.watch(7, 0);
    events.iter().for_each(|event| accountant.take(*event));
    let account = accountant.account(50);
    assert_eq!(waited(&account), [(Because::Behind(50), 5), (Because::Off(Off::Stopped), 5)]);
    assert_eq!(accountant.ran_ns(7), Some(30));
    assert_eq!((accountant.asleep_since_ns(7), accountant.processor_of(7)), (None, Some(1)));
    assert!(!account.ended()[0].was_woken, "it was preempted");
    // It does not stay in the queue that it left.
    accountant.take(switch(60, 0, 50, ASLEEP, 51));
    assert_eq!(waited(&accountant.account(60)), [(Because::Off(Off::Stopped), 10)]);
}

#[test]
fn a_wait_that_goes_on_is_accounted_in_parts_with_one_number() {
    let mut accountant = Accountant::default();
    accountant.watch(7, 0);
    accountant.take(switch(10, 0, 7, Left::Ready, 50));
    let first = accountant.account(20);
    accountant.take(switch(25, 0, 50, ASLEEP, 7));
    let second = accountant.account(30);
    assert_eq!(
        (waited(&first), waited(&second)),
        (vec![(Because::Behind(50), 10)], vec![(Because::Behind(50), 5)])
    );
    assert!(first.ended().is_empty());
    assert_eq!((second.ended()[0].from_ns, second.ended()[0].until_ns), (10, 25));
    assert_eq!(first.segments().next().map(|one| one.wait), second.segments().next().map(|one| one.wait));
}

/// The kernel of some virtual machines tells neither a wake-up on an idle processor nor the switch after it.
#[test]
fn who_leaves_an_idle_processor_has_come_to_it_unseen() {
    let events = [switch(10, 0, 7, ASLEEP, 0), switch(40, 0, 7, ASLEEP, 0), switch(90, 0, 7, ASLEEP, 0)];
    let account = account(&events, 100);
    assert_eq!(waited(&account), [30, 50, 10].map(|ns| (Because::Off(Off::Asleep), ns)));
    let after: Vec<_> = account.ended().iter().map(|ended| (ended.was_woken, ended.after)).collect();
    assert_eq!(after, [(false, Some((Because::Idle, 10))), (false, Some((Because::Idle, 40)))]);
}

#[test]
fn a_wake_up_that_was_missed_says_who_ran_before() {
    let events = [switch(10, 0, 7, ASLEEP, 50), switch(30, 0, 50, ASLEEP, 7)];
    let account = account(&events, 40);
    assert_eq!(waited(&account), [(Because::Off(Off::Asleep), 20)]);
    assert_eq!(account.ended()[0].after, Some((Because::Behind(50), 10)));
    assert!(account.names.contains_key(&50));
}

#[test]
fn what_was_lost_is_not_made_up() {
    let events = [
        switch(10, 0, 7, Left::Ready, 50),
        Event::Lost { at_ns: 15, processor: 0 },
        switch(30, 0, 51, ASLEEP, 7),
        switch(34, 0, 7, ASLEEP, 0),
    ];
    let account = account(&events, 40);
    assert_eq!(waited(&account), [(Because::Behind(50), 5), (Because::Off(Off::Asleep), 6)]);
}

#[test]
fn a_sleep_that_was_something_else_counts_as_that() {
    let mut accountant = Accountant::default();
    accountant.watch(7, 0);
    accountant.take(switch(10, 0, 7, ASLEEP, 0));
    accountant.correct(7, Off::Stopped);
    assert_eq!(waited(&accountant.account(30)), [(Because::Off(Off::Stopped), 20)]);
}

/// A machine in miniature that schedules at random: threads 1 to 5, of which 1 to 3 are watched.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    /// Who has each processor.
    pub(crate) has: Vec<u32>,
    /// The state of each thread: runs, is ready for a processor, or is off.
    pub(crate) state: Vec<Of>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Of {
    Runs,
    Ready(u32),
    Off,
}

impl Machine {
    /// The event that a random number means now, if it means one.
    pub(crate) fn step(&mut self, at_ns: u64, (kind, processor, thread): (u8, u32, u32)) -> Option<Event> {
        let index = thread as usize - 1;
        if kind == 0 {
            (self.state[index] == Of::Off).then(|| self.state[index] = Of::Ready(processor))?;
            return Some(Event::Wake { at_ns, processor, thread });
        }
        let to = if matches!(self.state[index], Of::Ready(_)) { thread } else { 0 };
        let from = self.has[processor as usize];
        if from == to {
            return None;
        }
        let left = if kind == 1 || from == 0 { Left::Ready } else { ASLEEP };
        if from > 0 {
            let state = if left == Left::Ready { Of::Ready(processor) } else { Of::Off };
            self.state[from as usize - 1] = state;
        }
        if to > 0 {
            self.state[to as usize - 1] = Of::Runs;
        }
        self.has[processor as usize] = to;
        Some(switch(at_ns, processor, from, left, to))
    }
}

/// By thread and nanosecond: 0 ran, otherwise a number for the reason.
fn reason(machine: &Machine, thread: u32) -> Option<Because> {
    match machine.state[thread as usize - 1] {
        Of::Runs => None,
        Of::Off => Some(Because::Off(Off::Asleep)),
        Of::Ready(processor) => Some(match machine.has[processor as usize] {
            0 => Because::Idle,
            other => Because::Behind(other),
        }),
    }
}

proptest! {
    /// Each nanosecond of each thread is accounted for once, with the reason that the machine knows, however
    /// the time is cut into accounts.
    #[test]
    fn reasons_add_up_to_the_time_and_are_true(
        steps in prop::collection::vec((0u64..4, (0u8..3, 0u32..2, 1u32..6)), 1..80),
        cuts in prop::collection::vec(any::<bool>(), 80),
    ) {
        let mut machine = Machine { has: vec![0, 0], state: vec![Of::Off; 5] };
        let mut accountant = Accountant::default();
        let watched = [1, 2, 3];
        let mut at_ns = 1;
        for thread in watched {
            // So that its state is known.
            accountant.watch(thread, 0);
            accountant.take(switch(1, 1, thread, ASLEEP, 0));
            accountant.take(switch(1, 0, thread, ASLEEP, 0));
        }
        accountant.account(1);
        let (mut used, mut places) = (HashMap::new(), HashMap::new());
        let (mut truth, mut told) = (HashMap::new(), HashMap::new());
        let mut runs = HashMap::new();
        for ((gap, step), cut) in steps.into_iter().zip(cuts) {
            for thread in watched {
                match reason(&machine, thread) {
                    Some(because) => *truth.entry((thread, format!("{because:?}"))).or_insert(0) += gap,
                    None => {
                        *runs.entry(thread).or_insert(0) += gap;
                        let place = machine.has.iter().position(|has| *has == thread).expect("it runs");
                        *places.entry((place as u32, thread)).or_insert(0) += gap;
                    }
                }
            }
            at_ns += gap;
            if let Some(event) = machine.step(at_ns, step) {
                accountant.take(event);
            }
            if cut {
                for segment in accountant.account(at_ns).segments() {
                    let key = (segment.thread, format!("{:?}", segment.because));
                    *told.entry(key).or_insert(0) += segment.length_ns();
                }
                accountant.take_used(|place, thread, ns| *used.entry((place, thread)).or_insert(0) += ns);
            }
        }
        for segment in accountant.account(at_ns).segments() {
            let key = (segment.thread, format!("{:?}", segment.because));
                    *told.entry(key).or_insert(0) += segment.length_ns();
        }
        accountant.take_used(|place, thread, ns| *used.entry((place, thread)).or_insert(0) += ns);
        places.retain(|_, ns| *ns > 0);
        prop_assert_eq!(&used, &places);
        truth.retain(|_, ns| *ns > 0);
        prop_assert_eq!(&told, &truth);
        for thread in watched {
            let ran = runs.get(&thread).copied().unwrap_or(0);
            prop_assert_eq!(accountant.ran_ns(thread), Some(ran));
            let waited: u64 = told.iter().filter(|(key, _)| key.0 == thread).map(|(_, ns)| *ns).sum();
            prop_assert_eq!(waited + ran, at_ns - 1);
        }
    }
}
