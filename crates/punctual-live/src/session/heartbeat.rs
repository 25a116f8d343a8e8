//! Whether a session is well: its enforcers go on looking.

use std::time::{Duration, Instant};

/// Judges enforcers by their looks.
pub(super) struct Heartbeat {
    /// Of each enforcer, when it was last seen to advance.
    looks: Vec<u64>,
    advanced: Instant,
    silence_max: Duration,
}

impl Heartbeat {
    /// Enforcers may stand still for `silence_max`.
    pub fn new(silence_max: Duration) -> Heartbeat {
        Heartbeat { looks: Vec::new(), advanced: Instant::now(), silence_max }
    }

    /// Takes the looks of all enforcers so far. Have all of them advanced within the time that they may stand
    /// still?
    pub fn is_well(&mut self, looks: Vec<u64>) -> bool {
        let have_advanced = looks.len() != self.looks.len()
            || looks.iter().zip(&self.looks).all(|(now, before)| now > before);
        if have_advanced {
            self.advanced = Instant::now();
            self.looks = looks;
        }
        self.advanced.elapsed() < self.silence_max
    }
}
