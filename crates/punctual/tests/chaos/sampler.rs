//! How long threads of victims have a real-time priority that a run gave and no enforcer is above them:
//! sampled every 10 ms.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use punctual_enforce::unit::{HIGHEST, LOWEST};
use punctual_linux::os::sched::{self, Attributes, affinity, attributes};
use punctual_linux::os::{cgroup, proc};

use super::PROCESSOR;

const INTERVAL: Duration = Duration::from_millis(10);

/// What the sampler looks at.
#[derive(Default)]
struct Watched {
    /// Processes, and by thread the attributes before any run.
    victims: Vec<i32>,
    own: HashMap<i32, Attributes>,
    /// Runs whose guardian cannot act, because it was killed too, or that are stopped.
    unattended: Vec<i32>,
    worst: Worst,
    /// The longest time between two samples since it looks at these processes.
    gap_of_round: Duration,
}

/// The longest times without an enforcer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Worst {
    /// While the run or its guardian could act.
    pub attended: Duration,
    /// Which thread that was, and where.
    pub detail: String,
    /// While the run was stopped, or run and guardian were killed.
    pub unattended: Duration,
    /// The longest time between two samples.
    pub gap: Duration,
    pub samples: u64,
}

pub(crate) struct Sampler {
    watched: Arc<Mutex<Watched>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    pub(crate) fn start() -> Sampler {
        let (watched, stop) = (Arc::new(Mutex::new(Watched::default())), Arc::new(AtomicBool::default()));
        let (shared, stopped) = (watched.clone(), stop.clone());
        let work = move || {
            // Above the fair threads that it must not wait for, on the host's processor.
            let _ =
                sched::set_affinity(0, &[0]).and_then(|()| sched::set_attributes(0, &Attributes::fifo(1)));
            let mut since = HashMap::new();
            let mut last = Instant::now();
            while !stopped.load(Ordering::Relaxed) {
                shared.lock().unwrap_or_else(PoisonError::into_inner).sample(&mut since, &mut last);
                std::thread::sleep(INTERVAL);
            }
        };
        let thread = std::thread::Builder::new().name("sampler".into()).spawn(work).ok();
        Sampler { watched, stop, thread }
    }

    /// From now on it looks at these processes.
    pub(crate) fn watch(&self, victims: Vec<i32>, own: HashMap<i32, Attributes>) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        (watched.victims, watched.own) = (victims, own);
        watched.unattended.clear();
        watched.gap_of_round = Duration::ZERO;
    }

    /// The longest time between two samples since [`Sampler::watch`].
    pub(crate) fn gap_of_round(&self) -> Duration {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).gap_of_round
    }

    /// The run of this process cannot act from now on.
    pub(crate) fn leave(&self, run: i32) {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).unattended.push(run);
    }

    pub(crate) fn worst(&self) -> Worst {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).worst.clone()
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

/// The run to which a group belongs.
fn run_of(group: &str) -> Option<i32> {
    let name = group.split('/').find_map(|name| name.strip_prefix("punctual-"))?;
    name.split('-').next()?.parse().ok()
}

impl Watched {
    fn sample(&mut self, since: &mut HashMap<i32, (Instant, bool)>, last: &mut Instant) {
        let now = Instant::now();
        let gap = now - std::mem::replace(last, now);
        self.worst.gap = self.worst.gap.max(gap);
        self.gap_of_round = self.gap_of_round.max(gap);
        self.worst.samples += 1;
        let mut astray = HashMap::new();
        for tid in self.victims.iter().flat_map(|victim| proc::threads(*victim).unwrap_or_default()) {
            let Ok(has) = attributes(tid) else { continue };
            let is_own = self.own.get(&tid).is_some_and(|own| own.is_same_class(&has));
            let is_given = has.policy == sched::FIFO && (LOWEST..=HIGHEST).contains(&has.priority);
            if !is_given || is_own {
                continue;
            }
            let group = cgroup::group_of(tid).unwrap_or_default();
            let run = run_of(&group);
            let runs = |run: i32| proc::stat(run).is_ok_and(|stat| !matches!(stat.state, 'Z' | 'X' | 'T'));
            let is_in_place = affinity(tid).is_ok_and(|on| on == [PROCESSOR]);
            if run.is_some_and(runs) && is_in_place {
                continue;
            }
            // A unit that an operator has moved out of its group may be of any run.
            let is_left = |run: Option<i32>| {
                run.map_or(!self.unattended.is_empty(), |run| self.unattended.contains(&run))
            };
            let is_unattended = is_left(run);
            let (from, was_unattended) = since.get(&tid).copied().unwrap_or((now, is_unattended));
            let is_unattended = was_unattended || is_unattended;
            astray.insert(tid, (from, is_unattended));
            if is_unattended {
                self.worst.unattended = self.worst.unattended.max(now - from);
            } else if now - from > self.worst.attended {
                self.worst.attended = now - from;
                let on = affinity(tid).unwrap_or_default();
                self.worst.detail =
                    format!("thread {tid}, {} {} on {on:?} in {group}", has.policy_name(), has.priority);
            }
        }
        *since = astray;
    }
}
