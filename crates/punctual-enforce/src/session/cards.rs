//! A session that has no pools: the network cards of this machine handled as a `[host_stack]` says.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::journal::{Resource, Restored};
use punctual_doctor::host_stack::{CardPlan, kernel_threads_of};
use punctual_linux::os::sched;
use punctual_linux::preflight;

use super::error::Error;
use super::restoration::Restoration;
use super::setup::Setup;

/// How long the threads of a card may take to appear.
const THREADS_MAX: Duration = Duration::from_secs(2);

/// What a card has been given.
#[derive(Clone, Debug)]
pub struct CardChanged {
    /// Its threads that have the card's class and priority now, with their names.
    pub threads: Vec<(i32, String)>,
}

/// Cards that are handled as planned. Dropping it puts everything back.
pub struct CardSession {
    restoration: Restoration,
    plan: Vec<CardPlan>,
}

impl CardSession {
    /// Starts the guardian and makes all changes of the plan, each written down first. The setup's processors
    /// are those that no pool may have meanwhile; none are needed.
    ///
    /// # Errors
    /// The machine does not permit it, another run has a card, or the system fails: what was changed until
    /// then is put back.
    pub fn start(setup: Setup, plan: Vec<CardPlan>) -> Result<CardSession, Error> {
        preflight::real_time()?;
        let left = sched::affinity(0).map_err(Error::OwnAffinity)?;
        let restoration = Restoration::start(&setup, left)?;
        let mut session = CardSession { restoration, plan };
        let cards: Result<Vec<Resource>, _> =
            session.plan.iter().map(|card| Resource::device(&card.device)).collect();
        session.restoration.journal.claim(&cards.map_err(Error::Journal)?, || ())?;
        for index in 0..session.plan.len() {
            session.write_files(index)?;
        }
        session.tend()?;
        for index in 0..session.plan.len() {
            session.wait_for_threads(index)?;
        }
        Ok(session)
    }

    fn write_files(&mut self, index: usize) -> Result<(), Error> {
        for write in &self.plan[index].writes {
            let path = PathBuf::from(&write.path);
            self.restoration.journal.set_file(&path, &write.value).map_err(|source| {
                // Linux refuses the switch of threaded NAPI where there is none (`netif_set_threaded`).
                if path.ends_with("threaded") && source.raw_os_error() == Some(libc::EOPNOTSUPP) {
                    return Error::NoNapi { device: self.plan[index].device.clone() };
                }
                Error::Card { path, value: write.value.clone(), source }
            })?;
        }
        Ok(())
    }

    /// Waits until a card that polls in threads has some.
    fn wait_for_threads(&mut self, index: usize) -> Result<(), Error> {
        let give_up = Instant::now() + THREADS_MAX;
        while self.plan[index].polls_in_threads {
            let device = &self.plan[index].device;
            let is_poll = |name: &str| name.starts_with("napi/");
            if kernel_threads_of(&self.plan[index])
                .map_err(Error::Threads)?
                .iter()
                .any(|(_, name)| is_poll(name))
            {
                return self.tend();
            }
            if Instant::now() > give_up {
                return Err(Error::NoNapi { device: device.clone() });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Gives the threads of the cards their class and priority, and those that poll their processors. A
    /// driver makes new threads when its device goes down and up, so this has to be repeated.
    ///
    /// # Errors
    /// The guardian is gone, or a thread cannot be changed.
    pub fn tend(&mut self) -> Result<(), Error> {
        self.restoration.check_guardian()?;
        for card in &self.plan {
            let Some(wanted) = card.attributes else { continue };
            for (tid, name) in kernel_threads_of(card).map_err(Error::Threads)? {
                let polls = name.starts_with("napi/");
                let bound = if polls { &card.poll_processors[..] } else { &[] };
                let is_bound = || bound.is_empty() || sched::affinity(tid).is_ok_and(|now| now == bound);
                if sched::attributes(tid).is_ok_and(|now| now.is_same_class(&wanted)) && is_bound() {
                    continue;
                }
                let set = || {
                    if !is_bound() {
                        sched::set_affinity(tid, bound)?;
                    }
                    sched::set_attributes(tid, &wanted)
                };
                match self.restoration.journal.change_kernel_thread(tid, set) {
                    // It has ended since it was found.
                    Err(error) if punctual_linux::os::proc::is_gone(&error) => {}
                    Err(source) => return Err(Error::Helper { thread: tid, source }),
                    Ok(()) => {}
                }
            }
        }
        Ok(())
    }

    /// The threads of each card, in the order of the plan.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn changed(&self) -> Result<Vec<CardChanged>, Error> {
        let of =
            |card: &CardPlan| Ok(CardChanged { threads: kernel_threads_of(card).map_err(Error::Threads)? });
        self.plan.iter().map(of).collect()
    }

    /// Puts everything back.
    ///
    /// # Errors
    /// Neither the guardian nor this process could undo the journal.
    pub fn finish(mut self) -> Result<Restored, Error> {
        self.restoration.put_back()
    }
}

impl Drop for CardSession {
    fn drop(&mut self) {
        if !self.restoration.is_done() {
            super::restoration::say(self.restoration.put_back().map(Some));
        }
    }
}
