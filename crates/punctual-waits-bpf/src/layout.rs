//! The layouts of `bpf/rules.h` and `bpf/waits.bpf.c`.

use crate::interface::{BUCKETS, Mark, Off, Settings, State, Step, Story, Sum, Thread};

/// Steps of a wait at most.
const STEPS_MAX: usize = 16;
/// Bytes of a `struct step`, and of what is before the steps of a `struct story` and a `struct thread`.
const STEP: usize = 8 + 8 + 4 + 4 + 16;
const STORY: usize = 8 + 8 + 6 * 4;
const OFF_AT: usize = 6 * 4 + 2 * 8 + 2 * 4 + 2 * 8;
const LATENCIES_AT: usize = OFF_AT + 8 * Off::ALL.len();
const COUNT_AT: usize = LATENCIES_AT + 8 * BUCKETS + 2 * 8;
const STEPS_AT: usize = COUNT_AT + 2 * 4;
/// Bytes of a `struct thread`.
const THREAD: usize = STEPS_AT + STEPS_MAX * STEP;
/// Where in a `struct run` is what was lost.
pub(crate) const LOST_AT: usize = 16;
const UNSEEN: u32 = u32::MAX;

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

fn name_at(bytes: &[u8], at: usize) -> [u8; 16] {
    bytes.get(at..at + 16).and_then(|bytes| bytes.try_into().ok()).unwrap_or_default()
}

fn seen(occupant: u32) -> Option<u32> {
    (occupant != UNSEEN).then_some(occupant)
}

/// The reason with this number.
fn off_of(number: u32) -> Option<Off> {
    Off::ALL.get(number as usize).copied()
}

fn steps_of(bytes: &[u8], at: usize, count: u32) -> Vec<Step> {
    let step = |bytes: &[u8]| Step {
        from_ns: u64_at(bytes, 0),
        until_ns: u64_at(bytes, 8),
        occupant: seen(u32_at(bytes, 16)),
        processor: u32_at(bytes, 20),
        name: name_at(bytes, 24),
    };
    let steps = bytes.get(at..).unwrap_or_default().chunks_exact(STEP);
    steps.take((count as usize).min(STEPS_MAX)).map(step).collect()
}

/// A `struct thread`, without what it ran.
pub(crate) fn thread_of(bytes: &[u8]) -> Thread {
    let detail = u32_at(bytes, 12);
    let state = match u32_at(bytes, 8) {
        1 => State::Running,
        2 => State::Ready { was_woken: detail != 0 },
        3 => off_of(detail).map_or(State::Unknown, State::Off),
        _ => State::Unknown,
    };
    let word = |at: usize, index: usize| u64_at(bytes, at + 8 * index);
    Thread {
        state,
        processor: u32_at(bytes, 16),
        wait: u32_at(bytes, 20),
        began_ns: u64_at(bytes, 24),
        since_ns: u64_at(bytes, 32),
        ran_ns: Vec::new(),
        off_ns: std::array::from_fn(|index| word(OFF_AT, index)),
        latencies: std::array::from_fn(|index| word(LATENCIES_AT, index)),
        latency_sum_ns: word(LATENCIES_AT, BUCKETS),
        latency_max_ns: word(LATENCIES_AT, BUCKETS + 1),
        steps: steps_of(bytes, STEPS_AT, u32_at(bytes, COUNT_AT)),
        spins: None,
    }
}

/// The first `struct thread` of a thread.
pub(crate) fn new_thread(thread: u32, wait: u32) -> Vec<u8> {
    let mut bytes = vec![0; THREAD];
    bytes[4..8].copy_from_slice(&thread.to_ne_bytes());
    bytes[20..24].copy_from_slice(&wait.to_ne_bytes());
    bytes
}

/// A `struct story`; `None` of one that is cut.
pub(crate) fn story_of(bytes: &[u8]) -> Option<Story> {
    if bytes.len() < STORY {
        return None;
    }
    let off = u32_at(bytes, 24);
    Some(Story {
        began_ns: u64_at(bytes, 0),
        until_ns: u64_at(bytes, 8),
        thread: u32_at(bytes, 16),
        wait: u32_at(bytes, 20),
        off: off.checked_sub(1).and_then(off_of),
        was_woken: u32_at(bytes, 28) != 0,
        is_over: u32_at(bytes, 32) != 0,
        steps: steps_of(bytes, STORY, u32_at(bytes, 36)),
    })
}

/// A `struct pair` and a `struct sum`, with the slot for the thread.
pub(crate) fn sum_of(pair: &[u8], sum: &[u8]) -> Sum {
    Sum {
        thread: u32_at(pair, 0),
        occupant: seen(u32_at(pair, 4)),
        ns: u64_at(sum, 0),
        name: name_at(sum, 8),
    }
}

/// The occupant in a `struct processor`.
pub(crate) fn occupant_of(bytes: &[u8]) -> Option<u32> {
    (u32_at(bytes, 4) != 0).then(|| u32_at(bytes, 0))
}

/// A `struct mark`.
pub(crate) fn mark_bytes(mark: Mark) -> Vec<u8> {
    let words = [mark.until_ns.to_ne_bytes(), mark.threshold_ns.to_ne_bytes()];
    [&words[0][..], &mark.wait.to_ne_bytes(), &[0; 4], &words[1]].concat()
}

/// A `struct settings`.
pub(crate) fn settings_bytes(settings: &Settings) -> Vec<u8> {
    let all = std::iter::once(settings.told_from_ns).chain(settings.bounds_ns);
    all.chain([settings.told_max]).flat_map(u64::to_ne_bytes).collect()
}

/// Bytes of the values of maps, by their names.
#[cfg(test)]
pub(crate) const SIZES: [(&str, usize); 12] = [
    ("threads", THREAD),
    ("marks", 8 + 4 + 4 + 8),
    ("processors", 4 * 4 + 16 * 8),
    ("ran", 8),
    ("spins", 8),
    ("rooms", 16 + STORY + STEPS_MAX * STEP),
    ("watched", 4),
    ("sums_even", 8 + 16),
    ("sums_odd", 8 + 16),
    (".data.run", LOST_AT + 8),
    (".data.generation", 4),
    (".rodata.settings", 8 + 8 * (BUCKETS - 1) + 8),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn put(bytes: &mut [u8], at: usize, word: &[u8]) {
        bytes[at..at + word.len()].copy_from_slice(word);
    }

    #[test]
    fn a_thread_is_read_as_the_programs_write_it() {
        let mut bytes = new_thread(7, 3);
        assert_eq!(thread_of(&bytes).state, State::Unknown);
        put(&mut bytes, 8, &3u32.to_ne_bytes());
        put(&mut bytes, 12, &1u32.to_ne_bytes());
        put(&mut bytes, OFF_AT + 8, &50u64.to_ne_bytes());
        put(&mut bytes, LATENCIES_AT + 8 * BUCKETS, &70u64.to_ne_bytes());
        put(&mut bytes, COUNT_AT, &1u32.to_ne_bytes());
        put(&mut bytes, STEPS_AT + 16, &UNSEEN.to_ne_bytes());
        put(&mut bytes, STEPS_AT + 24, b"qemu");
        let thread = thread_of(&bytes);
        assert_eq!((thread.state, thread.wait), (State::Off(Off::Blocked), 3));
        assert_eq!((thread.off_ns[1], thread.latency_sum_ns, thread.began_ns), (50, 70, 0));
        assert_eq!((thread.steps.len(), thread.steps[0].occupant), (1, None));
        assert_eq!(&thread.steps[0].name[..5], b"qemu\0");
    }

    #[test]
    fn a_story_has_the_steps_that_came_with_it() {
        let mut bytes = vec![0; STORY + 2 * STEP];
        put(&mut bytes, 16, &7u32.to_ne_bytes());
        put(&mut bytes, 36, &2u32.to_ne_bytes());
        put(&mut bytes, STORY + STEP + 8, &9u64.to_ne_bytes());
        let story = story_of(&bytes).expect("a story");
        assert_eq!((story.thread, story.off, story.steps.len()), (7, None, 2));
        assert_eq!((story.steps[1].until_ns, story.steps[1].occupant), (9, Some(0)));
        assert_eq!(story_of(&bytes[..STORY - 1]), None);
    }

    #[test]
    fn a_mark_says_up_to_when_a_wait_is_counted() {
        let mark = Mark { wait: 5, until_ns: 6, threshold_ns: 7 };
        let bytes = mark_bytes(mark);
        assert_eq!(bytes.len(), 24);
        assert_eq!((u64_at(&bytes, 0), u32_at(&bytes, 8)), (6, 5));
        assert_eq!(u64_at(&bytes, 16), 7);
    }
}
