//! What puts the machine back: the journal, the guardian that undoes it, and the calling thread's processors.

use std::path::PathBuf;
use std::time::Duration;

use super::error::Error;
use super::heartbeat::Heartbeat;
use super::setup::Setup;
use crate::enforcer::Pulse;
use crate::guardian::{Guardian, GuardianOptions};
use crate::journal::{self, Journal, Resource, Restored};
use punctual_linux::os::sched;

/// The way back of a session.
pub(super) struct Restoration {
    pub journal: Journal,
    /// Beats for the guardian; `None` once everything was put back.
    heart: Option<Heartbeat>,
    /// The processors that the calling thread was allowed before.
    own_affinity: Vec<usize>,
}

impl Restoration {
    /// Starts the journal and the guardian, then moves the calling thread, and so those it starts, to the
    /// processors that are `left`.
    pub(super) fn start(setup: &Setup, left: Vec<usize>) -> Result<Restoration, Error> {
        let no_journal = |source| Error::NoJournal { directory: journal::directory(), source };
        let path = journal::own_path().map_err(no_journal)?;
        let options = GuardianOptions {
            journal: path.clone(),
            limit: setup.silence + Duration::from_secs(1),
            processors: left.clone(),
        };
        let mut guardian = Guardian::start(&setup.program, &options)
            .map_err(|source| Error::NoGuardian { program: setup.program.clone(), source })?;
        // From here on the guardian removes the journal, however the run ends.
        let mut journal = Journal::begin(&path, &setup.name).map_err(no_journal)?;
        let processors = setup.processors.iter().copied().map(Resource::Processor);
        journal.claim(&processors.collect::<Vec<_>>(), || {
            // One that is gone is noticed by the heart.
            let _ = guardian.beat();
        })?;
        let own_affinity = sched::affinity(0).map_err(Error::OwnAffinity)?;
        let mut restoration = Restoration { journal, heart: None, own_affinity };
        sched::set_affinity(0, &left).map_err(Error::LeaveProcessors)?;
        let heart = Heartbeat::start(guardian, setup.silence, setup.end).map_err(Error::NoHeart)?;
        restoration.heart = Some(heart);
        Ok(restoration)
    }

    /// The heart watches these enforcers too.
    pub(super) fn watch(&self, pulse: Pulse) {
        if let Some(heart) = &self.heart {
            heart.watch(pulse);
        }
    }

    /// Is the guardian there?
    pub(super) fn check_guardian(&self) -> Result<(), Error> {
        match &self.heart {
            Some(heart) if heart.has_stopped() => Err(Error::GuardianGone),
            _ => Ok(()),
        }
    }

    /// Was everything put back already?
    pub(super) fn is_done(&self) -> bool {
        self.heart.is_none()
    }

    /// Puts everything back, by the guardian or, if that is gone, in this process.
    pub(super) fn put_back(&mut self) -> Result<Restored, Error> {
        // Fails only where the processors are gone or were taken from this process meanwhile.
        let _ = sched::set_affinity(0, &self.own_affinity);
        match self.heart.take().and_then(Heartbeat::stop).map(Guardian::finish) {
            Some(Ok(restored)) => Ok(restored),
            // What the guardian has undone, it could not tell.
            _ => journal::restore(self.journal.path())
                .map(Option::unwrap_or_default)
                .map_err(|source| Error::Undo { journal: self.path(), source }),
        }
    }

    fn path(&self) -> PathBuf {
        self.journal.path().to_owned()
    }
}

/// Says what could not be put back of a session that was dropped: its owner, which panicked, does not.
pub(super) fn say(restored: Result<Option<Restored>, Error>) {
    match restored {
        Ok(restored) => {
            let failures = restored.iter().flat_map(|restored| &restored.failures);
            failures.for_each(|failure| eprintln!("not put back: {failure}"));
        }
        Err(error) => eprintln!("{error}"),
    }
}
