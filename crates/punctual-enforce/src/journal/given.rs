//! What a run gives to threads, and how a thread that came during the run would be scheduled without it.

use super::Change;
use crate::unit::{HIGHEST, LOWEST};
use punctual_linux::os::sched::{self, Attributes};

/// The kernel leaves out those that are not there.
const PROCESSORS_MAX: usize = 1024;

/// How a thread is scheduled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OwnScheduling {
    pub attributes: Attributes,
    pub affinity: Vec<usize>,
}

impl OwnScheduling {
    /// How a thread is scheduled now.
    ///
    /// # Errors
    /// The thread is gone.
    pub(super) fn of(tid: i32) -> std::io::Result<OwnScheduling> {
        Ok(OwnScheduling { attributes: sched::attributes(tid)?, affinity: sched::affinity(tid)? })
    }

    /// Gives it to a thread, as far as the thread has another one. Where all of its processors are offline or
    /// excluded by a cpuset by now, the thread gets every one of its cpuset, as Linux does when it takes a
    /// thread's last processor.
    ///
    /// # Errors
    /// As `sched_setattr(2)` and `sched_setaffinity(2)`.
    pub(super) fn put_back(&self, tid: i32) -> std::io::Result<()> {
        // The affinity first: SCHED_DEADLINE is admitted only with the affinity it had.
        // Some of the kernel's threads refuse to be given any, even their own.
        if sched::affinity(tid)? != self.affinity {
            let everywhere = || sched::set_affinity(tid, &(0..PROCESSORS_MAX).collect::<Vec<_>>());
            match sched::set_affinity(tid, &self.affinity) {
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    everywhere().map_err(|_| error)?
                }
                set => set?,
            }
        }
        if sched::attributes(tid)? == self.attributes {
            return Ok(());
        }
        sched::restore_attributes(tid, &self.attributes)
    }
}

/// The attributes of a thread that one with these creates (`sched_fork` in Linux `kernel/sched/core.c`).
fn of_child(attributes: &Attributes) -> Attributes {
    let reset = libc::SCHED_FLAG_RESET_ON_FORK as u64;
    if attributes.flags & reset == 0 {
        return *attributes;
    }
    match attributes.policy {
        sched::FIFO | sched::RR | sched::DEADLINE => Attributes::other(),
        _ => {
            let (flags, nice) = (attributes.flags & !reset, attributes.nice.max(0));
            Attributes { flags, nice, runtime_ns: 0, ..*attributes }
        }
    }
}

/// What a run gives to threads: scheduling attributes, and sets of processors.
#[derive(Clone, Debug, Default)]
pub(super) struct Given {
    attributes: Vec<Attributes>,
    affinities: Vec<Vec<usize>>,
}

impl Given {
    /// The part of these that is new; `None` where nothing is.
    pub(super) fn news(&self, attributes: &[Attributes], affinities: &[Vec<usize>]) -> Option<Change> {
        let attributes: Vec<Attributes> =
            attributes.iter().filter(|new| !self.attributes.contains(new)).copied().collect();
        let affinities: Vec<Vec<usize>> =
            affinities.iter().filter(|new| !self.affinities.contains(new)).cloned().collect();
        let has_news = !attributes.is_empty() || !affinities.is_empty();
        has_news.then_some(Change::Given { attributes, affinities })
    }

    /// Adds what a journal has now.
    pub(super) fn extend(&mut self, change: &Change) {
        if let Change::Given { attributes, affinities } = change {
            self.attributes.extend(attributes);
            self.affinities.extend_from_slice(affinities);
        }
    }

    /// How a thread would be scheduled without the run that is scheduled as `now` and was started, during the
    /// run, by one that was scheduled as `origin` before: what equals something that the run gives, or that
    /// its children inherit, is inherited, and everything else is its own.
    pub(super) fn without(&self, now: OwnScheduling, origin: &OwnScheduling) -> OwnScheduling {
        let is_confined = self.affinities.contains(&now.affinity);
        OwnScheduling {
            attributes: self.own_attributes(now.attributes, &origin.attributes),
            affinity: if is_confined { origin.affinity.clone() } else { now.affinity },
        }
    }

    /// A nice value is inherited with a class, also beneath one that does not use it. One of its own stays
    /// with the class that `creator` hands on. But who is fair and has a nice value of its own may have left
    /// a real-time class by itself, and does not return to it.
    fn own_attributes(&self, now: Attributes, creator: &Attributes) -> Attributes {
        let origin = of_child(creator);
        let is_class_given = self.all().any(|given| given.is_same_class(&now));
        let is_nice_given = self.all().any(|given| has_nice(&given) && given.nice == now.nice);
        let nice = if is_nice_given || now.nice == creator.nice { origin.nice } else { now.nice };
        match (is_class_given, has_nice(&now)) {
            (false, true) => now,
            (false, false) => Attributes { nice, ..now },
            (true, true) if nice != origin.nice && !has_nice(&origin) => now,
            (true, _) => Attributes { nice, ..origin },
        }
    }

    /// Any real-time priority of a unit, for a journal of which a part cannot be read.
    pub(super) fn add_all_priorities(&mut self) {
        self.attributes.extend((LOWEST..=HIGHEST).map(Attributes::fifo));
        self.attributes.extend([Attributes::idle(), Attributes::other(), Attributes::ext()]);
    }

    /// Does the run give threads this class, or create them in it by what it gives to their creators?
    pub(super) fn gives(&self, attributes: &Attributes) -> bool {
        self.all().any(|given| {
            given.is_same_class(attributes) && (!has_nice(attributes) || given.nice == attributes.nice)
        })
    }

    /// What threads are given, and what their children have then.
    fn all(&self) -> impl Iterator<Item = Attributes> {
        self.attributes.iter().flat_map(|given| [*given, of_child(given)])
    }
}

/// Does its class use a nice value?
fn has_nice(attributes: &Attributes) -> bool {
    !matches!(attributes.policy, sched::FIFO | sched::RR | sched::DEADLINE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_whose_processors_are_gone_gets_all_of_its_cpuset() {
        let thread = || {
            let before = OwnScheduling::of(0).expect("readable");
            sched::set_affinity(0, &before.affinity[..1]).expect("permitted");
            let gone = OwnScheduling { affinity: vec![PROCESSORS_MAX - 1], ..before.clone() };
            gone.put_back(0).expect("there are others");
            assert_eq!(sched::affinity(0).expect("readable"), before.affinity);
        };
        std::thread::spawn(thread).join().expect("a thread of its own");
    }

    #[test]
    fn a_nice_value_of_ones_own_stays_and_brings_no_real_time_class() {
        let mut given = Given::default();
        let all = vec![Attributes::fifo(70), Attributes::other()];
        given.extend(&Change::Given { attributes: all, affinities: Vec::new() });
        let with = |nice, attributes| Attributes { nice, ..attributes };
        let (fifo, other) = (Attributes::fifo(70), Attributes::other());
        let round_robin = Attributes { policy: sched::RR, ..Attributes::fifo(7) };
        for (now, origin, then) in [
            (with(12, fifo), with(5, other), with(12, other)),
            (with(12, fifo), with(5, round_robin), with(12, round_robin)),
            (with(12, other), with(5, round_robin), with(12, other)),
            (with(5, fifo), with(5, other), with(5, other)),
            (with(5, other), with(5, round_robin), with(5, round_robin)),
            (other, with(5, round_robin), with(5, round_robin)),
            (with(0, round_robin), with(5, other), with(5, round_robin)),
        ] {
            assert_eq!(given.own_attributes(now, &origin), then, "{now:?}");
        }
    }

    #[test]
    fn what_a_creator_resets_on_fork_its_children_do_not_have() {
        let reset = |attributes| Attributes { flags: libc::SCHED_FLAG_RESET_ON_FORK as u64, ..attributes };
        let nice = |nice| Attributes { nice, ..Attributes::other() };
        let child = |given: Attributes, now: Attributes, origin: Attributes| {
            let mut all = Given::default();
            all.extend(&Change::Given { attributes: vec![given], affinities: Vec::new() });
            let own = |attributes| OwnScheduling { attributes, affinity: vec![0] };
            all.without(own(now), &own(origin)).attributes
        };
        let fifo = Attributes::fifo(70);
        assert_eq!(child(fifo, fifo, reset(Attributes::fifo(8))), nice(0));
        assert_eq!(child(fifo, fifo, reset(nice(-3))), nice(0));
        assert_eq!(child(fifo, Attributes { nice: 3, ..fifo }, reset(nice(3))), nice(3));
        assert_eq!(child(fifo, fifo, Attributes::fifo(8)), Attributes::fifo(8));
        // A child of SCHED_DEADLINE is fair.
        let deadline = Attributes::deadline(2_000_000, 10_000_000);
        assert_eq!(child(deadline, nice(0), nice(5)), nice(5));
    }

    #[test]
    fn what_a_thread_inherited_from_the_run_is_told_from_what_is_its_own() {
        let mut given = Given::default();
        let news = given.news(&[Attributes::fifo(70), Attributes::other()], &[vec![1]]).expect("all new");
        given.extend(&news);
        assert_eq!(given.news(&[Attributes::fifo(70)], &[vec![1]]), None);
        let nice = |nice| Attributes { nice, ..Attributes::other() };
        let origin = OwnScheduling { attributes: nice(5), affinity: vec![0, 1] };
        let round_robin = Attributes { policy: sched::RR, ..Attributes::fifo(70) };
        for (now, attributes) in [
            (Attributes::fifo(70), nice(5)),
            (Attributes { nice: 5, ..Attributes::fifo(70) }, nice(5)),
            (Attributes::other(), nice(5)),
            (Attributes::fifo(69), Attributes { nice: 5, ..Attributes::fifo(69) }),
            (round_robin, Attributes { nice: 5, ..round_robin }),
            (nice(12), nice(12)),
            (Attributes { nice: 12, ..Attributes::fifo(70) }, nice(12)),
        ] {
            for (on, affinity) in [(vec![1], vec![0, 1]), (vec![0], vec![0])] {
                let now = OwnScheduling { attributes: now, affinity: on };
                assert_eq!(given.without(now, &origin), OwnScheduling { attributes, affinity });
            }
        }
    }
}
