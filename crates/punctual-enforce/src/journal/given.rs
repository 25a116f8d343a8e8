//! What a run gives to threads, and how a thread that came during the run would be scheduled without it.

use super::Change;
use crate::unit::{HIGHEST, LOWEST};
use punctual_linux::os::sched::{self, Attributes};

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

    /// Gives it to a thread, as far as the thread has another one.
    ///
    /// # Errors
    /// As `sched_setattr(2)` and `sched_setaffinity(2)`.
    pub(super) fn put_back(&self, tid: i32) -> std::io::Result<()> {
        // The affinity first: SCHED_DEADLINE is admitted only with the affinity it had.
        // Some of the kernel's threads refuse to be given any, even their own.
        if sched::affinity(tid)? != self.affinity {
            sched::set_affinity(tid, &self.affinity)?;
        }
        if sched::attributes(tid)? == self.attributes {
            return Ok(());
        }
        sched::restore_attributes(tid, &self.attributes)
    }
}

/// What a run gives to threads: scheduling attributes, and sets of processors.
#[derive(Clone, Debug, Default)]
pub(super) struct Given {
    attributes: Vec<Attributes>,
    affinities: Vec<Vec<usize>>,
}

impl Given {
    /// What a journal says.
    pub(super) fn of(changes: &[Change]) -> Given {
        let mut given = Given::default();
        for change in changes {
            if let Change::Given { attributes, affinities } = change {
                given.attributes.extend(attributes);
                given.affinities.extend_from_slice(affinities);
            }
        }
        given
    }

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
        let Given { attributes, affinities } = Given::of(std::slice::from_ref(change));
        self.attributes.extend(attributes);
        self.affinities.extend(affinities);
    }

    /// How a thread would be scheduled without the run that is scheduled as `now` and was started, during the
    /// run, by one that was scheduled as `origin` before: what equals something that the run gives is
    /// inherited, and everything else is its own.
    pub(super) fn without(&self, now: OwnScheduling, origin: &OwnScheduling) -> OwnScheduling {
        let is_confined = self.affinities.contains(&now.affinity);
        OwnScheduling {
            attributes: if self.gives(&now.attributes) { origin.attributes } else { now.attributes },
            affinity: if is_confined { origin.affinity.clone() } else { now.affinity },
        }
    }

    /// Any real-time priority of a unit, for a journal of which a part cannot be read.
    pub(super) fn add_all_priorities(&mut self) {
        self.attributes.extend((LOWEST..=HIGHEST).map(Attributes::fifo));
        self.attributes.extend([Attributes::idle(), Attributes::other()]);
    }

    /// Does the run give threads these attributes?
    pub(super) fn gives(&self, attributes: &Attributes) -> bool {
        let has_nice = !matches!(attributes.policy, sched::FIFO | sched::RR | sched::DEADLINE);
        let is_equal = |given: &&Attributes| {
            given.is_same_class(attributes) && (!has_nice || given.nice == attributes.nice)
        };
        self.attributes.iter().any(|given| is_equal(&given))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            (Attributes::fifo(69), Attributes::fifo(69)),
            (round_robin, round_robin),
            (nice(12), nice(12)),
        ] {
            for (on, affinity) in [(vec![1], vec![0, 1]), (vec![0], vec![0])] {
                let now = OwnScheduling { attributes: now, affinity: on };
                assert_eq!(given.without(now, &origin), OwnScheduling { attributes, affinity });
            }
        }
    }
}
