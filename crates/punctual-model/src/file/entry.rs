//! Reading the value of a single key. A wrong value gives `None` and an error.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use punctual_net::discipline::DisciplineInfo;
use punctual_net::registry::{disciplines, find as find_discipline};
use punctual_sched::Duration;
use punctual_sched::registry::{self, PolicyInfo};

use super::error::Errors;
use super::limits::PERIOD_MIN;
use super::nearest::nearest;
use super::quantity::{self, Share, WHOLE, YEAR};
use super::source::Place;
use super::tree::{Entry, Node, Value};

impl Entry {
    /// Where to point for its value: for a table its key, since its own range may be many lines.
    pub(crate) fn place(&self) -> Place {
        match self.node.value {
            Value::Table(_) => self.key_place,
            _ => self.node.place,
        }
    }

    /// Adds the error that the value is of another kind than expected.
    pub(crate) fn wrong_kind(&self, expected: impl Into<String>, errors: &mut Errors) {
        errors.add(self.place(), format!("`{}` is {}", self.key, self.node.value.kind()), expected);
    }

    pub(crate) fn text(&self, expected: &str, errors: &mut Errors) -> Option<&str> {
        match &self.node.value {
            Value::Text(text) => Some(text),
            _ => {
                self.wrong_kind(expected, errors);
                None
            }
        }
    }

    /// A duration of at least `min`.
    pub(crate) fn duration(&self, min: Duration, errors: &mut Errors) -> Option<Duration> {
        self.time(min, quantity::duration, errors)
    }

    /// A period: a duration or a frequency.
    pub(crate) fn period(&self, errors: &mut Errors) -> Option<Duration> {
        self.time(PERIOD_MIN, quantity::period, errors)
    }

    /// What `read` makes of the text, at least `min`.
    fn time(
        &self,
        min: Duration,
        read: fn(&str) -> Result<Duration, String>,
        errors: &mut Errors,
    ) -> Option<Duration> {
        let text = match &self.node.value {
            Value::Text(text) => text,
            Value::Integer(Some(n)) if *n >= 0 => {
                let expected = format!("expected a duration with its unit, for example \"{n}ms\"");
                self.wrong_kind(expected, errors);
                return None;
            }
            _ => {
                self.wrong_kind("expected a duration, for example \"10ms\"", errors);
                return None;
            }
        };
        match read(text) {
            Ok(d) if d >= min => return Some(d),
            Ok(d) => {
                let least = if min.as_ns() == 1 { "longer than zero".into() } else { at_least(min) };
                errors.add(self.node.place, format!("`{}` is {d}", self.key), format!("expected {least}"));
            }
            Err(expected) => self.unreadable_text(text, &expected, errors),
        }
        None
    }

    /// Adds the error that `text` does not spell what the key takes.
    fn unreadable_text(&self, text: &str, expected: &str, errors: &mut Errors) {
        let message = format!("`{}` cannot be \"{}\"", self.key, shorten(text));
        errors.add(self.node.place, message, format!("expected {expected}"));
    }

    pub(crate) fn whole_number(&self, range: RangeInclusive<u64>, errors: &mut Errors) -> Option<u64> {
        whole_number(&self.key, &self.node, self.place(), range, "a whole number", errors)
    }

    /// A whole number that may be negative.
    pub(crate) fn integer(&self, range: RangeInclusive<i64>, errors: &mut Errors) -> Option<i64> {
        let expected = format!("expected a whole number from {} to {}", range.start(), range.end());
        match self.node.value {
            Value::Integer(Some(n)) if range.contains(&n) => return Some(n),
            Value::Integer(Some(n)) => errors.add(self.place(), format!("`{}` is {n}", self.key), expected),
            _ => self.wrong_kind(expected, errors),
        }
        None
    }

    pub(crate) fn flag(&self, errors: &mut Errors) -> Option<bool> {
        match self.node.value {
            Value::Flag(flag) => Some(flag),
            _ => {
                self.wrong_kind("expected true or false", errors);
                None
            }
        }
    }

    /// A percentage above 0, at most `max`.
    pub(crate) fn percent(&self, max: Share, errors: &mut Errors) -> Option<Share> {
        let text = match &self.node.value {
            Value::Text(text) => text,
            Value::Integer(Some(n)) => {
                self.wrong_kind(format!("expected a percentage: \"{n}%\""), errors);
                return None;
            }
            Value::Float(n) => {
                let whole = quantity::percent(&format!("{n}%")).unwrap_or(WHOLE / 100);
                let hint = quantity::show_percent(whole.saturating_mul(100));
                self.wrong_kind(format!("expected a percentage, for example \"{hint}\""), errors);
                return None;
            }
            _ => {
                self.wrong_kind("expected a percentage, for example \"70%\"", errors);
                return None;
            }
        };
        match quantity::percent(text) {
            Ok(share) if (1..=max).contains(&share) => return Some(share),
            Ok(_) => {
                let expected = format!("expected more than 0%, at most {}", quantity::show_percent(max));
                errors.add(self.node.place, format!("`{}` is \"{}\"", self.key, shorten(text)), expected);
            }
            Err(expected) => self.unreadable_text(text, &expected, errors),
        }
        None
    }

    /// Bits per second.
    pub(crate) fn bandwidth(&self, errors: &mut Errors) -> Option<u64> {
        let text = self.text("expected a bandwidth, for example \"1Gbit/s\"", errors)?;
        match quantity::bandwidth(text) {
            Ok(bps) => Some(bps),
            Err(expected) => {
                self.unreadable_text(text, &expected, errors);
                None
            }
        }
    }

    /// The texts of a list, each with its place.
    pub(crate) fn texts(&self, expected: &str, errors: &mut Errors) -> Option<Vec<(&str, Place)>> {
        let Value::List(items) = &self.node.value else {
            self.wrong_kind(expected, errors);
            return None;
        };
        let mut texts = Vec::new();
        for item in items {
            match &item.value {
                Value::Text(text) => texts.push((text.as_str(), item.place)),
                other => errors.add(item.place, format!("`{}` has {}", self.key, other.kind()), expected),
            }
        }
        (texts.len() == items.len()).then_some(texts)
    }

    /// One of some words; `or` says in the error what else the key takes.
    pub(crate) fn word(&self, words: &[&'static str], or: &str, errors: &mut Errors) -> Option<&'static str> {
        let expected = format!("expected {or}one of {}", words.join(", "));
        let text = self.text(&expected, errors)?;
        let found = words.iter().find(|word| **word == text);
        if found.is_none() {
            let message = format!("`{}` is \"{}\"", self.key, shorten(text));
            let near = nearest(text, words.iter().copied());
            errors.add_nearest(self.node.place, message, expected, near);
        }
        found.copied()
    }

    /// The policy that the entry names.
    pub(crate) fn policy(&self, errors: &mut Errors) -> Option<&'static PolicyInfo> {
        let names = registry::policies().iter().map(|p| p.name).collect();
        self.registered("policy", names, registry::find, errors)
    }

    /// The discipline that the entry names.
    pub(crate) fn discipline(&self, errors: &mut Errors) -> Option<&'static DisciplineInfo> {
        let names = disciplines().iter().map(|d| d.name).collect();
        self.registered("discipline", names, find_discipline, errors)
    }

    /// What a registry of policies or disciplines finds by the name that the entry gives.
    fn registered<T>(
        &self,
        what: &str,
        names: Vec<&str>,
        find: impl Fn(&str) -> Option<T>,
        errors: &mut Errors,
    ) -> Option<T> {
        let expected = format!("expected one of {}", names.join(", "));
        let text = self.text(&expected, errors)?;
        let found = find(text);
        if found.is_none() {
            let message = format!("no {what} is called \"{}\"", shorten(text));
            errors.add_nearest(self.node.place, message, expected, nearest(text, names));
        }
        found
    }

    /// A list of distinct numbers, at least one, each within `range`; what they count is `of`.
    pub(crate) fn numbers(
        &self,
        range: RangeInclusive<u64>,
        of: &str,
        errors: &mut Errors,
    ) -> Option<Vec<(usize, Place)>> {
        let expected = format!("expected a list of {of}, for example [{}]", range.start());
        let Value::List(items) = &self.node.value else {
            self.wrong_kind(expected, errors);
            return None;
        };
        if items.is_empty() {
            errors.add(self.node.place, format!("`{}` is empty", self.key), expected);
            return None;
        }
        let mut seen = BTreeSet::new();
        let mut numbers = Vec::new();
        for item in items {
            let number = whole_number(&self.key, item, item.place, range.clone(), of, errors);
            let Some(n) = number else { continue };
            if seen.insert(n) {
                numbers.push((n as usize, item.place));
            } else {
                errors.add(item.place, format!("{n} is twice in `{}`", self.key), "each number once");
            }
        }
        (numbers.len() == items.len()).then_some(numbers)
    }

    /// As [`Entry::numbers`], of things that are numbered from 0: each is below `limit`.
    pub(crate) fn indices(&self, limit: usize, of: &str, errors: &mut Errors) -> Option<Vec<(usize, Place)>> {
        self.indices_or(limit, of, |_| String::new(), errors)
    }

    /// As [`Entry::indices`]; `cure` is the end of the error about a number beyond the limit.
    pub(crate) fn indices_or(
        &self,
        limit: usize,
        of: &str,
        cure: impl Fn(u64) -> String,
        errors: &mut Errors,
    ) -> Option<Vec<(usize, Place)>> {
        if let Value::List(items) = &self.node.value {
            let before = errors.count();
            for item in items {
                if let Value::Integer(Some(n)) = item.value
                    && let Some(beyond) = u64::try_from(n).ok().filter(|n| *n >= limit as u64)
                {
                    let expected = expected_indices(limit) + &cure(beyond);
                    errors.add(item.place, format!("{n} is not among the {of}"), expected);
                }
            }
            if errors.count() > before {
                return None;
            }
        }
        self.numbers(0..=(limit - 1) as u64, of, errors)
    }
}

/// Which numbers there are of things that are numbered from 0.
pub(crate) fn expected_indices(count: usize) -> String {
    match count {
        1 => "expected 0, the only one".into(),
        _ => format!("expected numbers from 0 to {}", count - 1),
    }
}

/// A whole number within `range`; `what` it is, for errors.
fn whole_number(
    key: &str,
    node: &Node,
    place: Place,
    range: RangeInclusive<u64>,
    what: &str,
    errors: &mut Errors,
) -> Option<u64> {
    let expected = format!("expected {what} from {} to {}", range.start(), range.end());
    match &node.value {
        Value::Integer(Some(n)) => match u64::try_from(*n).ok().filter(|n| range.contains(n)) {
            Some(n) => return Some(n),
            None => errors.add(place, format!("`{key}` is {n}"), expected),
        },
        Value::Integer(None) => errors.add(place, format!("`{key}` is too large"), expected),
        Value::Float(_) => errors.add(place, format!("`{key}` is not a whole number"), expected),
        other => errors.add(place, format!("`{key}` is {}", other.kind()), expected),
    }
    None
}

/// Adds an error unless `text` can stand on a line of its own.
pub(crate) fn check_line(key: &str, text: &str, place: Place, errors: &mut Errors) {
    if text.is_empty() || text.chars().any(char::is_control) {
        let message = format!("`{key}` is empty or has control characters");
        errors.add(place, message, "expected a text on one line");
    }
}

/// Adds an error if `text` has a NUL: C programs take it as the end.
pub(crate) fn check_no_nul(key: &str, text: &str, place: Place, errors: &mut Errors) {
    if text.contains('\0') {
        let expected = "expected none: it would end the string";
        errors.add(place, format!("`{key}` has a NUL character"), expected);
    }
}

/// At most 40 characters of a user's text, on one line.
pub(crate) fn shorten(text: &str) -> String {
    let mut short: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(40).collect();
    if text.chars().nth(40).is_some() {
        short.push('…');
    }
    short
}

/// What was expected of a name: one of `names`, or there is none.
pub(crate) fn expected_names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.take(20).collect();
    if names.is_empty() { "there is none".into() } else { format!("expected one of {}", names.join(", ")) }
}

fn at_least(min: Duration) -> String {
    format!("at least {min}, at most {YEAR}")
}
