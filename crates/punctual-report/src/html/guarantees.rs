//! What `punctual check --json` said about the host, as far as the report shows it.
//!
//! Read from its JSON, not from the analysis' own types, so that an answer kept in a file can be shown years
//! later and keys that this program does not know do no harm.

use serde::Deserialize;

/// The answer for one task.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Guarantee {
    /// No release pattern that the host permits misses the deadline.
    Guaranteed {
        /// A response time that is never exceeded, in ns.
        bound_ns: u64,
        /// Deadline less bound, in ns.
        slack_ns: u64,
    },
    /// Some release pattern misses it.
    NotGuaranteed {
        /// Which one.
        counter_example: CounterExample,
    },
    /// The tests decide neither.
    Unknown {
        /// Why.
        why: String,
    },
}

/// A release pattern that misses a deadline.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct CounterExample {
    /// In words.
    pub pattern: String,
    /// By when a deadline has been missed, in ns.
    pub missed_by_ns: u64,
}

/// A task's deadline and whether it is guaranteed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct TaskGuarantee {
    /// The task's name.
    pub name: String,
    /// Its domain or pool.
    pub parent: String,
    /// Relative deadline, in ns.
    pub deadline_ns: u64,
    /// The answer.
    #[serde(flatten)]
    pub guarantee: Guarantee,
    /// The test that decided.
    #[serde(default)]
    pub test: String,
}

/// Something a practitioner should know.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Warning {
    /// What it is about.
    pub about: String,
    /// What is the matter.
    pub text: String,
}

/// The whole answer.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Guarantees {
    /// The host's name.
    pub host: String,
    /// By task.
    pub tasks: Vec<TaskGuarantee>,
    /// Warnings.
    #[serde(default)]
    pub warnings: Vec<Warning>,
}

impl Guarantees {
    /// Reads what `punctual check --json` printed.
    ///
    /// # Errors
    /// What is wrong and where, with `file` as the name of the file.
    pub fn from_json(text: &str, file: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| {
            let (line, column) = (error.line(), error.column().max(1));
            let message = error.to_string();
            let place = format!(" at line {} column {}", error.line(), error.column());
            let message = message.strip_suffix(&place).unwrap_or(&message);
            format!("{file}:{line}:{column}: {message}; expected what `punctual check --json` prints")
        })
    }

    /// The answer for a task.
    pub fn task(&self, parent: &str, name: &str) -> Option<&TaskGuarantee> {
        self.tasks.iter().find(|task| task.parent == parent && task.name == name)
    }
}
