//! A trace of a pool's calls, made again: the same answers, and a changed answer is found.

use proptest::prelude::*;
use punctual_sched::registry;
use punctual_xen::abi::*;
use punctual_xen::{record, replay, xentrace};

const NOT_ANSWERED: Answer = Answer { next_timer_ns: 0, resched: Processors::NONE };

/// What `xen/sched_punctual.c` writes, of one pool.
#[derive(Default)]
struct Writer {
    bytes: Vec<u8>,
    sequence: u32,
}

impl Writer {
    fn words(&mut self, kind: u32, words: &[u32]) {
        let head = 1 << 31 | (words.len() as u32) << 28 | 0x22000 | 7 << 9 | kind;
        for word in [head, 1, 0].iter().chain(words) {
            self.bytes.extend(word.to_le_bytes());
        }
    }

    fn record(&mut self, kind: u32, now_ns: u64, who: u32, value: u64, more: u32) {
        let sequence = self.sequence;
        self.sequence += 1;
        let now = [now_ns as u32, (now_ns >> 32) as u32];
        let value = [value as u32, (value >> 32) as u32];
        self.words(kind, &[sequence, now[0], now[1], who, value[0], value[1], more]);
    }

    fn pool(&mut self, policy: &str, cpus: u32) {
        self.record(1, 0, 0, u64::from(cpus) | 8 << 32, 0);
        for (chunk, bytes) in policy.as_bytes().chunks(20).enumerate() {
            let mut text = [0; 20];
            text[..bytes.len()].copy_from_slice(bytes);
            let words: Vec<u32> = text
                .chunks_exact(4)
                .map(|word| u32::from_le_bytes(word.try_into().expect("four bytes")))
                .collect();
            self.words(2, &[&[chunk as u32, 0][..], &words].concat());
        }
    }
}

/// Drives a pool as `steps` say (at which time after the one before, what, with whom) and writes it down.
fn traced(policy: &'static str, steps: &[(u64, u8, u32)]) -> Writer {
    let text = |text| Text::of(text);
    let mut pool = punctual_create(Some(&text(policy)), Some(&text("")), 2, 8, None).expect("a pool");
    let mut writer = Writer::default();
    writer.pool(policy, 2);
    for index in 0..3 {
        let mut params = Params {
            given: 0b1111,
            priority: index,
            budget_ns: 2_000_000,
            period_ns: 9_000_000 + u64::from(index),
            deadline_ns: 9_000_000,
            ..Params::NONE_GIVEN
        };
        params.given |= 1 << 8 | VM;
        params.vm = index / 2;
        params.affinity.words[0] = 0b11;
        let (mut unit, mut then) = (0, NOT_ANSWERED);
        let code = punctual_insert(Some(&mut pool), 0, Some(&params), Some(&mut unit), None, Some(&mut then));
        assert_eq!(code, OK);
        for (bit, value) in
            [params.budget_ns, params.period_ns, params.deadline_ns, u64::from(index)].iter().enumerate()
        {
            writer.record(3, 0, bit as u32, *value, 0);
        }
        writer.record(3, 0, 8, 0b11, 0);
        writer.record(4, 0, unit, then.next_timer_ns, params.vm << 16 | index);
    }
    let mut now = 0;
    for &(after, what, who) in steps {
        now += after;
        let mut then = NOT_ANSWERED;
        let told = match what {
            0 => (7, punctual_wake(Some(&mut pool), now, who % 3, Some(&mut then))),
            1 => (8, punctual_sleep(Some(&mut pool), now, who % 3, Some(&mut then))),
            2 => (9, punctual_timer(Some(&mut pool), now, Some(&mut then))),
            _ => {
                let mut slice = Slice { run: 0, unit: 0, until_ns: 0 };
                punctual_pick(Some(&mut pool), now, who % 2, Some(&mut slice), Some(&mut then));
                writer.record(10, now, who % 2, slice.until_ns, slice.run << 30 | slice.unit);
                continue;
            }
        };
        assert_eq!(told.1, OK);
        let who = if told.0 == 9 { 0 } else { who % 3 };
        writer.record(told.0, now, who, then.next_timer_ns, then.resched.words[0] as u32);
    }
    writer
}

fn replayed(bytes: &[u8]) -> (record::Calls, Vec<replay::Replayed>) {
    let calls = record::calls(&xentrace::read(bytes).expect("a trace"));
    let replayed = replay::replay(&calls, |_, _| {});
    (calls, replayed)
}

proptest! {
    #[test]
    fn calls_of_a_trace_give_the_same_answers_again(
        policy in 0..registry::policies().len(),
        steps in prop::collection::vec((0u64..3_000_000, 0u8..5, 0u32..6), 1..200),
    ) {
        let policy = registry::policies()[policy].name;
        let (calls, replayed) = replayed(&traced(policy, &steps).bytes);
        prop_assert_eq!(calls.lost, 0);
        prop_assert_eq!(replayed.len(), 1);
        prop_assert_eq!(&replayed[0].policy, policy);
        prop_assert_eq!(&replayed[0].first, &None);
        prop_assert!(replayed[0].is_same());
        prop_assert_eq!(replayed[0].calls, 3 + steps.len() as u64);
    }

    #[test]
    fn records_that_nobody_wrote_do_no_harm(
        policy in 0..registry::policies().len(),
        records in prop::collection::vec((0u32..13, 0u32..9, any::<bool>(), any::<[u32; 6]>()), 0..60),
    ) {
        let mut writer = Writer::default();
        writer.pool(registry::policies()[policy].name, 3);
        for (kind, who, is_small, words) in records {
            let value = |word: u32| if is_small { word % 1_000 } else { word };
            let now = u64::from(words[0]) << if is_small { 4 } else { 32 };
            let shift = if is_small { 0 } else { 32 };
            let long = u64::from(value(words[1])) | u64::from(value(words[2])) << shift;
            writer.record(kind, now, who, long, value(words[3]));
        }
        replayed(&writer.bytes);
    }

    #[test]
    fn bytes_that_nobody_wrote_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        if let Ok(trace) = xentrace::read(&bytes) {
            replay::replay(&record::calls(&trace), |_, _| {});
        }
    }
}

/// Two wake-ups and some decisions.
const STEPS: [(u64, u8, u32); 6] = [(0, 0, 0), (0, 0, 1), (0, 3, 0), (5, 3, 1), (9_000, 2, 0), (1, 3, 0)];

#[test]
fn another_answer_is_found_and_shown() {
    let mut writer = traced(registry::policies()[0].name, &STEPS);
    let last = writer.bytes.len() - 12;
    writer.bytes[last] ^= 1;
    let (_, replayed) = replayed(&writer.bytes);
    assert_eq!(replayed[0].different, 1);
    let first = replayed[0].first.as_ref().unwrap();
    assert_eq!(first.now_ns, 9_006);
    assert!(first.recorded.starts_with("pick") && first.recorded != first.here, "{first:?}");
    assert!(!replayed[0].is_same());
}

#[test]
fn a_record_that_lacks_is_counted() {
    let writer = traced(registry::policies()[0].name, &STEPS);
    let one = 3 * 4 + 7 * 4;
    let mut bytes = writer.bytes.clone();
    bytes.drain(bytes.len() - 2 * one..bytes.len() - one);
    assert_eq!(replayed(&bytes).0.lost, 1);
}

#[test]
fn a_pool_that_does_not_begin_in_the_trace_has_no_calls() {
    let writer = traced(registry::policies()[0].name, &STEPS);
    assert!(replayed(&writer.bytes[3 * 4 + 7 * 4..]).0.calls.is_empty());
}

#[test]
fn a_policy_that_is_not_here_is_said() {
    let mut writer = Writer::default();
    writer.pool("rtdz,quantum=1ms", 1);
    let (_, replayed) = replayed(&writer.bytes);
    assert!(replayed[0].refused.as_ref().unwrap().contains("`rtdz`"));
    assert!(!replayed[0].is_same());
}
