//! A pool from text: the name of a policy, and its options as `name=value,name=value`.

use alloc::string::{String, ToString};
use core::fmt;

use punctual_sched::Duration;
use punctual_sched::registry::{self, OptionError, OptionValue, Options, ParamInfo, ParamKind};

use crate::Pool;

/// Maximum of processors in a pool.
pub const CPUS_MAX: usize = 512;

/// Maximum of units in a pool.
pub const UNITS_MAX: usize = 65_536;

/// The configuration of a pool.
#[derive(Clone, Copy, Debug)]
pub struct Config<'a> {
    /// The policy's name in the registry.
    pub policy: &'a str,
    /// Its options; those that are left out have their defaults.
    pub options: &'a str,
    /// Number of processors: 1 to [`CPUS_MAX`].
    pub cpus: usize,
    /// Maximum of units at a time: 1 to [`UNITS_MAX`].
    pub units: usize,
}

/// Why a configuration is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// No policy has this name.
    Policy(String),
    /// The policy has no such option, or the text is not `name=value`.
    Option(String),
    /// The option takes no such value.
    Value {
        /// The option.
        option: &'static str,
        /// The refused value.
        value: String,
    },
    /// The policy refuses an option's value.
    Refused(OptionError),
    /// Too few or too many processors or units.
    Size,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::Policy(name) => {
                write!(f, "no policy is called `{name}`; expected one of")?;
                registry::policies().iter().try_for_each(|info| write!(f, " {}", info.name))
            }
            ConfigError::Option(text) => {
                write!(f, "`{text}` is not an option of the policy; options are NAME=VALUE")
            }
            ConfigError::Value { option, value } => write!(f, "option `{option}` does not take `{value}`"),
            ConfigError::Refused(error) => error.fmt(f),
            ConfigError::Size => {
                write!(f, "a pool has 1 to {CPUS_MAX} processors and 1 to {UNITS_MAX} units")
            }
        }
    }
}

impl Config<'_> {
    /// Makes the pool.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn build(&self) -> Result<Pool, ConfigError> {
        let unknown = || ConfigError::Policy(self.policy.to_string());
        let info = registry::find(self.policy).ok_or_else(unknown)?;
        if !(1..=CPUS_MAX).contains(&self.cpus) || !(1..=UNITS_MAX).contains(&self.units) {
            return Err(ConfigError::Size);
        }
        let mut options = Options::new();
        for text in self.options.split(',').filter(|text| !text.is_empty()) {
            let unknown = || ConfigError::Option(text.to_string());
            let (name, value) = text.split_once('=').ok_or_else(unknown)?;
            let option = info.option(name).ok_or_else(unknown)?;
            let wrong = || ConfigError::Value { option: option.name, value: value.to_string() };
            options.set(option.name, parse(option, value).ok_or_else(wrong)?);
        }
        let policy = info.build(self.cpus, &options).map_err(ConfigError::Refused)?;
        Ok(Pool::new(policy, self.cpus, self.units))
    }
}

fn parse(option: &ParamInfo, value: &str) -> Option<OptionValue> {
    let word = |words: &[&'static str]| words.iter().find(|word| **word == value).copied();
    match option.kind {
        ParamKind::Duration => Some(OptionValue::Duration(duration(value)?)),
        ParamKind::DurationOr(words) => match word(words) {
            Some(word) => Some(OptionValue::Word(word)),
            None => Some(OptionValue::Duration(duration(value)?)),
        },
        ParamKind::Count { min, max } => {
            let count = value.parse().ok().filter(|count| (min..=max).contains(count))?;
            Some(OptionValue::Count(count))
        }
        ParamKind::Flag => Some(OptionValue::Flag(value.parse().ok()?)),
        ParamKind::Choice(words) => Some(OptionValue::Word(word(words)?)),
    }
}

/// A whole number of `ns`, `us`, `ms` or `s`.
fn duration(text: &str) -> Option<Duration> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let unit: u64 = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    Some(Duration::from_ns(number.parse::<u64>().ok()?.checked_mul(unit)?))
}
