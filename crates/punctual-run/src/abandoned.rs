//! What runs left changed that died together with their guardians. A new run must not build on it.

use std::path::{Path, PathBuf};

use punctual_enforce::journal::{self, Restored};

use crate::error::ServeError;
use crate::events::{Event, Events};

/// The journals of such runs.
///
/// # Errors
/// The state directory cannot be read.
pub fn journals() -> Result<Vec<PathBuf>, ServeError> {
    journal::abandoned().map_err(|error| {
        ServeError::Refused(format!("{} cannot be read: {error}", journal::directory().display()))
    })
}

/// Undoes the journal of a run that is over; `None` when its guardian did, which was waited for, or when the
/// run goes on after all. `waits` is told for what the call waits, if that takes long.
///
/// # Errors
/// The journal cannot be read or undone.
pub fn undo(path: &Path, waits: impl FnOnce(String)) -> Result<Option<Restored>, String> {
    journal::restore_abandoned(path, waits).map_err(|error| format!("{}: {error}", path.display()))
}

/// Undoes all of them, and reports what was put back.
///
/// # Errors
/// One cannot be undone.
pub fn undo_all(events: &Events) -> Result<(), ServeError> {
    for path in journals()? {
        let undone = undo(&path, |text| events(Event::Waiting(text)));
        if let Some(restored) = undone.map_err(ServeError::Refused)? {
            events(Event::Undone(restored));
        }
    }
    Ok(())
}
