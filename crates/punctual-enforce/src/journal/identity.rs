//! Which thread or process is meant, though ids are used again.

use std::io;

use serde::{Deserialize, Serialize};

use punctual_linux::os::proc;

/// A thread or process: its id with the time of its start, which tells it from a later one of the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// Its id.
    pub id: i32,
    /// When it started, in clock ticks since boot.
    pub start_ticks: u64,
}

impl Identity {
    /// The thread or process that has the id now.
    ///
    /// # Errors
    /// There is none.
    pub fn of(id: i32) -> io::Result<Identity> {
        Ok(Identity { id, start_ticks: proc::stat(id)?.start_ticks })
    }

    /// Is it still there? A zombie is not.
    pub fn is_alive(&self) -> bool {
        proc::stat(self.id)
            .is_ok_and(|stat| stat.start_ticks == self.start_ticks && !matches!(stat.state, 'Z' | 'X'))
    }
}
