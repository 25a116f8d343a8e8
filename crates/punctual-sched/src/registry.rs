//! The policies by name: what each is, its parameters, and how to build it.
//!
//! This table is the only place that lists the policies. The host file, the command line, its help and
//! the documentation are generated from it.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::policy::Policy;
use crate::time::Duration;

/// What kind of value a parameter takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParamKind {
    /// A length of time with its unit: `"4ms"`.
    Duration,
    /// A length of time, or one of these words: `quantum = "exact"`.
    DurationOr(&'static [&'static str]),
    /// A whole number between the bounds, both included.
    Count {
        /// Smallest value.
        min: u64,
        /// Largest value.
        max: u64,
    },
    /// `true` or `false`.
    Flag,
    /// One of these words.
    Choice(&'static [&'static str]),
}

/// A parameter of a policy, or of a unit under a policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParamInfo {
    /// Its name in the host file.
    pub name: &'static str,
    /// What it takes.
    pub kind: ParamKind,
    /// The default as it would be written in the host file; `None`: must be given.
    pub default: Option<&'static str>,
    /// One sentence.
    pub help: &'static str,
}

/// A parsed value of a policy option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OptionValue {
    /// For [`ParamKind::Duration`] and [`ParamKind::DurationOr`].
    Duration(Duration),
    /// For [`ParamKind::Count`].
    Count(u64),
    /// For [`ParamKind::Flag`].
    Flag(bool),
    /// For [`ParamKind::Choice`] and the words of [`ParamKind::DurationOr`].
    Word(&'static str),
}

/// The options given to a policy instance: name and value, each name at most once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    given: Vec<(&'static str, OptionValue)>,
}

impl Options {
    /// No option given: every default.
    pub fn new() -> Self {
        Options::default()
    }

    /// Sets an option, replacing an earlier value.
    pub fn set(&mut self, name: &'static str, value: OptionValue) {
        match self.given.iter_mut().find(|(n, _)| *n == name) {
            Some(slot) => slot.1 = value,
            None => self.given.push((name, value)),
        }
    }

    /// Sets an option and returns the whole, for chaining in tests and tables.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: OptionValue) -> Self {
        self.set(name, value);
        self
    }

    /// The value given for `name`, if any.
    pub fn get(&self, name: &str) -> Option<OptionValue> {
        self.given.iter().find(|(n, _)| *n == name).map(|(_, v)| *v)
    }

    /// The duration given for `name`, or `default`.
    pub fn duration(&self, name: &str, default: Duration) -> Duration {
        match self.get(name) {
            Some(OptionValue::Duration(d)) => d,
            _ => default,
        }
    }

    /// The number given for `name`, or `default`.
    pub fn count(&self, name: &str, default: u64) -> u64 {
        match self.get(name) {
            Some(OptionValue::Count(n)) => n,
            _ => default,
        }
    }

    /// The flag given for `name`, or `default`.
    pub fn flag(&self, name: &str, default: bool) -> bool {
        match self.get(name) {
            Some(OptionValue::Flag(b)) => b,
            _ => default,
        }
    }

    /// The word given for `name`, or `default`.
    pub fn word(&self, name: &str, default: &'static str) -> &'static str {
        match self.get(name) {
            Some(OptionValue::Word(w)) => w,
            _ => default,
        }
    }

    /// All given options in the order they were set.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, OptionValue)> + '_ {
        self.given.iter().copied()
    }
}

/// What a policy promises about idle processors; the simulator checks it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkConservation {
    /// No processor idles while a runnable unit that may run there waits.
    Always,
    /// No processor idles while a runnable unit *with budget left* that may run there waits.
    WithinBudget,
    /// No promise (periodic server).
    Never,
}

/// Why a policy instance could not be built from its options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OptionError {
    /// The option's name.
    pub option: &'static str,
    /// What was expected, as a phrase: "longer than zero".
    pub expected: Box<str>,
}

impl core::fmt::Display for OptionError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "option `{}` must be {}", self.option, self.expected)
    }
}

impl core::error::Error for OptionError {}

/// Builds a policy instance for a pool of `cpus` processors (at least one).
pub type Build = fn(cpus: usize, options: &Options) -> Result<Box<dyn Policy>, OptionError>;

/// Everything there is to know about a policy without reading its code.
#[derive(Clone, Copy)]
pub struct PolicyInfo {
    /// Name in host files and on the command line.
    pub name: &'static str,
    /// One line: what it is.
    pub summary: &'static str,
    /// Where its rules come from: paper and section, or file in Xen or Linux.
    pub source: &'static str,
    /// Parameters of a unit that this policy reads.
    pub unit_params: &'static [ParamInfo],
    /// Options of the policy itself.
    pub options: &'static [ParamInfo],
    /// What it promises about idle processors.
    pub work_conservation: WorkConservation,
    /// Do all processors of a pool share one run queue, and so one lock? (The simulated machine's lock cost.)
    pub shared_queue: bool,
    /// Builds an instance for a pool of `cpus` processors (at least one).
    pub build: Build,
}

impl core::fmt::Debug for PolicyInfo {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "PolicyInfo({})", self.name)
    }
}

impl PartialEq for PolicyInfo {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for PolicyInfo {}

/// One line per policy; each policy's `INFO` stands beside its code.
static POLICIES: &[PolicyInfo] = &[
    crate::servers::deferrable::INFO,
    crate::servers::periodic::INFO,
    crate::servers::polling::INFO,
    crate::servers::sporadic::INFO,
    crate::rtds::INFO,
    crate::sedf::INFO,
    crate::credit::INFO,
    crate::cbs::INFO,
    crate::fixed_priority::INFO,
    crate::edf::INFO,
    crate::round_robin::INFO,
];

/// All policies, in the order in which they are shown to users.
pub fn policies() -> &'static [PolicyInfo] {
    POLICIES
}

/// The policy called `name`.
pub fn find(name: &str) -> Option<&'static PolicyInfo> {
    policies().iter().find(|p| p.name == name)
}
