//! A session's heart: a thread of its own that says to the guardian whether the session is well.
//!
//! A session is well while its process runs and every enforcer goes on looking. The thread that does the
//! session's work is no part of that: it may wait for a guest, a monitor or a user for as long as it likes.
//! So the heart waits for nothing that this thread or an enforcer may hold.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::enforcer::Pulse;
use crate::guardian::Guardian;
use crate::unit::ENFORCER;
use punctual_linux::os::sched::{self, Attributes};

/// From beat to beat.
const INTERVAL: Duration = Duration::from_millis(50);
/// A heart that was itself late by more has seen nothing for so long: it cannot tell who stood still.
const LATE_MAX: Duration = Duration::from_millis(150);

/// The heart of a session. It beats until it is stopped.
pub(super) struct Heartbeat {
    pulses: Arc<Mutex<Vec<Pulse>>>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Guardian>,
}

impl Heartbeat {
    /// Beats for a guardian. Enforcers may stand still for `silence_max`. `end` ends this process; the heart
    /// calls it when the guardian asks for the end of the run.
    pub(super) fn start(
        guardian: Guardian,
        silence_max: Duration,
        end: fn() -> !,
    ) -> std::io::Result<Heartbeat> {
        let (pulses, stop) = (Arc::<Mutex<Vec<Pulse>>>::default(), Arc::<AtomicBool>::default());
        let (of_thread, stopped) = (pulses.clone(), stop.clone());
        let work = move || {
            // Without the priority a busy machine may delay beats.
            let _ = sched::set_attributes(0, &Attributes::fifo(ENFORCER));
            beat(guardian, &of_thread, &stopped, silence_max, end)
        };
        let thread = std::thread::Builder::new().name("heart".into()).spawn(work)?;
        Ok(Heartbeat { pulses, stop, thread })
    }

    /// Watches the enforcers of a further pool.
    pub(super) fn watch(&self, pulse: Pulse) {
        lock(&self.pulses).push(pulse);
    }

    /// Is the guardian gone? Then the heart has stopped.
    pub(super) fn has_stopped(&self) -> bool {
        self.thread.is_finished()
    }

    /// Stops the heart; the guardian goes on.
    pub(super) fn stop(self) -> Option<Guardian> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        self.thread.join().ok()
    }
}

fn lock(pulses: &Mutex<Vec<Pulse>>) -> std::sync::MutexGuard<'_, Vec<Pulse>> {
    pulses.lock().unwrap_or_else(PoisonError::into_inner)
}

fn beat(
    mut guardian: Guardian,
    pulses: &Mutex<Vec<Pulse>>,
    stopped: &AtomicBool,
    silence_max: Duration,
    end: fn() -> !,
) -> Guardian {
    let mut looks = Looks::new(silence_max);
    while !stopped.load(Ordering::Relaxed) {
        let now = lock(pulses).iter().flat_map(Pulse::looks).collect();
        let told = match looks.standstill(now, Instant::now()) {
            None => guardian.beat(),
            Some(reason) => guardian.accuse(&reason),
        };
        match told.and_then(|()| guardian.asks_to_end()) {
            Ok(false) => {}
            Ok(true) => end(),
            // The guardian is gone, which the session notices by this thread's end.
            Err(_) => return guardian,
        }
        std::thread::park_timeout(INTERVAL);
    }
    guardian
}

/// Judges enforcers by their looks.
struct Looks {
    /// By enforcer: its looks, and when they were first that many.
    seen: Vec<(u64, Instant)>,
    judged: Option<Instant>,
    silence_max: Duration,
}

impl Looks {
    fn new(silence_max: Duration) -> Looks {
        Looks { seen: Vec::new(), judged: None, silence_max }
    }

    /// Takes by enforcer its processor and its looks so far, `None` for one that has ended as it was asked
    /// to. Says which has stood still for too long, if one has.
    fn standstill(&mut self, looks: Vec<(usize, Option<u64>)>, now: Instant) -> Option<String> {
        let was_late = self.judged.is_some_and(|judged| now.saturating_duration_since(judged) > LATE_MAX);
        self.judged = Some(now);
        if was_late {
            self.seen.clear();
        }
        for (index, (processor, looks)) in looks.into_iter().enumerate() {
            match (looks, self.seen.get_mut(index)) {
                (Some(looks), Some((before, since))) if looks == *before => {
                    let still = now.saturating_duration_since(*since);
                    if still >= self.silence_max {
                        let s = still.as_secs_f64();
                        return Some(format!(
                            "the enforcer of processor {processor} stood still for {s:.1} s"
                        ));
                    }
                }
                (looks, Some(seen)) => *seen = (looks.unwrap_or(u64::MAX), now),
                (looks, None) => self.seen.push((looks.unwrap_or(u64::MAX), now)),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(2);

    /// Feeds looks every 50 ms; returns the first reason.
    fn judge(looks: impl Fn(u64) -> Vec<(usize, Option<u64>)>, beats: u64) -> Option<String> {
        let (start, mut judge) = (Instant::now(), Looks::new(LIMIT));
        (0..beats).find_map(|n| judge.standstill(looks(n), start + INTERVAL * n as u32))
    }

    #[test]
    fn only_an_enforcer_that_goes_on_and_does_not_look_stands_still() {
        assert_eq!(judge(|_| Vec::new(), 200), None);
        assert_eq!(judge(|n| vec![(1, Some(n / 30)), (2, Some(n))], 200), None);
        assert_eq!(judge(|n| vec![(1, Some(n)), (2, None)], 200), None);
        let reason = judge(|n| vec![(1, Some(n)), (3, Some(n.min(10)))], 200);
        assert_eq!(reason.as_deref(), Some("the enforcer of processor 3 stood still for 2.0 s"));
    }

    #[test]
    fn an_enforcer_that_came_later_has_its_own_time() {
        let looks = |n: u64| match n {
            0..100 => vec![(1, Some(n))],
            _ => vec![(1, Some(n)), (2, Some(0))],
        };
        assert_eq!(judge(looks, 139), None);
        assert!(judge(looks, 150).is_some());
    }

    #[test]
    fn a_heart_that_was_late_itself_accuses_nobody() {
        let (start, mut judge) = (Instant::now(), Looks::new(LIMIT));
        assert_eq!(judge.standstill(vec![(1, Some(5))], start), None);
        assert_eq!(judge.standstill(vec![(1, Some(5))], start + 2 * LIMIT), None);
        assert_eq!(judge.standstill(vec![(1, Some(5))], start + 2 * LIMIT + INTERVAL), None);
    }
}
