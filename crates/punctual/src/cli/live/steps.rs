//! What a live run is at, on standard error: each step with the time since the command began.

use std::io::IsTerminal;
use std::time::Instant;

use punctual_model::text::printable;

/// Says the steps of the runs of one command.
#[derive(Clone)]
pub(crate) struct Steps {
    began: Instant,
    is_shown: bool,
    /// Which of several runs: `policy 2 of 5, periodic: `.
    which: String,
}

impl Steps {
    /// Shown on a terminal, or where the user wants them.
    pub(crate) fn new(is_wanted: bool) -> Self {
        let is_shown = is_wanted || std::io::stderr().is_terminal();
        Steps { began: Instant::now(), is_shown, which: String::new() }
    }

    /// Says none.
    pub(crate) fn none() -> Self {
        Steps { began: Instant::now(), is_shown: false, which: String::new() }
    }

    /// The next ones are those of run `number` of `count`, under `policy`.
    pub(crate) fn begin(&mut self, number: usize, count: usize, policy: &str) {
        self.which = format!("policy {number} of {count}, {policy}: ");
    }

    /// Says a step.
    pub(crate) fn say(&self, step: &str) {
        if self.is_shown {
            let seconds = self.began.elapsed().as_secs_f64();
            eprintln!("{}", printable(&format!("{seconds:6.1} s  {}{step}", self.which)));
        }
    }

    /// Shows lines between the steps.
    pub(crate) fn show(&self, lines: &str) {
        if self.is_shown {
            eprintln!("\n{lines}");
        }
    }
}
