//! Reading single keys of a table, as the key tables say, and telling what is wrong with them.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use punctual_net::registry::{DisciplineInfo, disciplines, find as find_discipline};
use punctual_sched::Duration;
use punctual_sched::registry::{self, OptionValue, ParamKind, PolicyInfo};

use super::error::{Place, Problem, nearest};
use super::key::{KeyInfo, Kind, Optioned, TableInfo};
use super::quantity::{self, Share, WHOLE, YEAR};
use super::tree::{Entry, Node, Table, Value};

/// A table of the document with what is known about its kind.
#[derive(Clone, Copy)]
pub(crate) struct Tab<'t> {
    pub(crate) table: &'t Table,
    pub(crate) info: &'static TableInfo,
    /// Its key: where to point when something is missing in it.
    pub(crate) place: &'t Place,
    /// Its last name: `video` of `[domain.video]`.
    pub(crate) name: &'t str,
}

impl<'t> Tab<'t> {
    /// The entry of a key that the key table knows.
    pub(crate) fn get(&self, key: &str) -> Option<&'t Entry> {
        debug_assert!(self.info.names().any(|name| name == key), "{key} is no key of {}", self.info.title);
        self.table.get(key)
    }

    fn key(&self, key: &str) -> &'static KeyInfo {
        self.info.key(key).unwrap_or_else(|| panic!("{key} is no key of {}", self.info.title))
    }

    fn kind(&self, key: &str) -> Kind {
        self.key(key).kind
    }

    /// The default that the key table gives for an absent key.
    pub(crate) fn default(&self, key: &str) -> &'static str {
        self.key(key).default.unwrap_or_else(|| panic!("{key} has no default"))
    }
}

/// Collects problems while reading.
#[derive(Default)]
pub(crate) struct Problems {
    pub(crate) list: Vec<Problem>,
}

impl Problems {
    pub(crate) fn add(&mut self, place: &Place, message: impl Into<String>, expected: impl Into<String>) {
        self.add_nearest(place, message, expected, None);
    }

    pub(crate) fn add_nearest(
        &mut self,
        place: &Place,
        message: impl Into<String>,
        expected: impl Into<String>,
        nearest: Option<String>,
    ) {
        let (message, expected) = (message.into(), expected.into());
        self.list.push(Problem { place: place.clone(), message, expected, nearest });
    }

    fn wrong_kind(&mut self, entry: &Entry, expected: impl Into<String>) {
        let message = format!("`{}` is {}", entry.key, entry.node.value.kind());
        self.add(&entry.place(), message, expected);
    }

    /// Unknown and missing keys.
    pub(crate) fn check_keys(&mut self, tab: Tab<'_>) {
        for entry in &tab.table.entries {
            if !tab.info.names().any(|name| name == entry.key) {
                self.unknown_key(&header(tab), tab.info.names().collect(), entry);
            }
        }
        for key in tab.info.all().filter(|k| k.required && tab.table.get(k.name).is_none()) {
            let expected = match key.kind {
                Kind::Table(info) => format!("expected {}: {}", info.title, key.help),
                Kind::Named(info) => format!("expected at least one {}: {}", info.title, key.help),
                _ => format!("expected `{}`: {}", key.name, key.help),
            };
            self.add(tab.place, format!("`{}` is missing in {}", key.name, header(tab)), expected);
        }
    }

    fn unknown_key(&mut self, title: &str, names: Vec<&str>, entry: &Entry) {
        let key = shorten(&entry.key);
        let near = nearest(&entry.key, names.iter().copied());
        let expected = format!("expected one of {}", names.join(", "));
        self.add_nearest(&entry.key_place, format!("{title} has no key `{key}`"), expected, near);
    }

    pub(crate) fn text<'t>(&mut self, tab: Tab<'t>, key: &'static str) -> Option<&'t str> {
        let expected = match tab.kind(key) {
            Kind::NameOf(what) => format!("expected the name of a {what}"),
            Kind::Endpoint => "expected the name of a domain or of a host outside".into(),
            Kind::TaskOf => "expected a task of a domain, for example \"video.decode\"".into(),
            _ => "expected a string".into(),
        };
        self.text_of(tab.get(key)?, &expected)
    }

    fn text_of<'t>(&mut self, entry: &'t Entry, expected: &str) -> Option<&'t str> {
        match &entry.node.value {
            Value::Text(text) => Some(text),
            _ => {
                self.wrong_kind(entry, expected);
                None
            }
        }
    }

    pub(crate) fn duration(&mut self, tab: Tab<'_>, key: &'static str) -> Option<Duration> {
        let Kind::Duration { min_ns } = tab.kind(key) else { unreachable!("{key} is a duration") };
        self.duration_of(tab.get(key)?, min_ns)
    }

    /// As [`Problems::duration`], with the key's default.
    pub(crate) fn duration_or(&mut self, tab: Tab<'_>, key: &'static str) -> Duration {
        let default = || quantity::duration(tab.default(key)).expect("the key table's default is a duration");
        self.duration(tab, key).unwrap_or_else(default)
    }

    pub(crate) fn duration_of(&mut self, entry: &Entry, min_ns: u64) -> Option<Duration> {
        let text = match &entry.node.value {
            Value::Text(text) => text,
            Value::Integer(Some(n)) if *n >= 0 => {
                self.wrong_kind(entry, format!("expected a duration with its unit, for example \"{n}ms\""));
                return None;
            }
            _ => {
                self.wrong_kind(entry, "expected a duration, for example \"10ms\"");
                return None;
            }
        };
        match quantity::duration(text) {
            Ok(d) if d.as_ns() >= min_ns => return Some(d),
            Ok(d) => {
                let least = if min_ns == 1 { "longer than zero".into() } else { at_least(min_ns) };
                self.add(&entry.node.place, format!("`{}` is {d}", entry.key), format!("expected {least}"));
            }
            Err(expected) => {
                let message = format!("`{}` cannot be \"{}\"", entry.key, shorten(text));
                self.add(&entry.node.place, message, format!("expected {expected}"));
            }
        }
        None
    }

    pub(crate) fn count(&mut self, tab: Tab<'_>, key: &'static str) -> Option<u64> {
        let (min, max) = match tab.kind(key) {
            Kind::Count { min, max } => (min, max),
            Kind::Seed => (0, i64::MAX as u64),
            _ => unreachable!("{key} is a number"),
        };
        let entry = tab.get(key)?;
        self.whole(&entry.key, &entry.node, &entry.place(), min..=max, "a whole number")
    }

    /// As [`Problems::count`], with the key's default.
    pub(crate) fn count_or(&mut self, tab: Tab<'_>, key: &'static str) -> u64 {
        let default = || tab.default(key).parse().expect("the key table's default is a number");
        self.count(tab, key).unwrap_or_else(default)
    }

    /// A whole number that may be negative, or the key's default.
    pub(crate) fn integer_or(&mut self, tab: Tab<'_>, key: &'static str) -> i64 {
        let Kind::Integer { min, max } = tab.kind(key) else { unreachable!("{key} may be negative") };
        let default = || tab.default(key).parse().expect("the key table's default is a number");
        let Some(entry) = tab.get(key) else { return default() };
        match entry.node.value {
            Value::Integer(Some(n)) if (min..=max).contains(&n) => return n,
            Value::Integer(Some(n)) => {
                let expected = format!("expected a whole number from {min} to {max}");
                self.add(&entry.place(), format!("`{key}` is {n}"), expected);
            }
            _ => self.wrong_kind(entry, format!("expected a whole number from {min} to {max}")),
        }
        default()
    }

    /// A whole number within `range`; `what` it is, for errors.
    fn whole(
        &mut self,
        key: &str,
        node: &Node,
        place: &Place,
        range: RangeInclusive<u64>,
        what: &str,
    ) -> Option<u64> {
        let expected = format!("expected {what} from {} to {}", range.start(), range.end());
        match &node.value {
            Value::Integer(Some(n)) => match u64::try_from(*n).ok().filter(|n| range.contains(n)) {
                Some(n) => return Some(n),
                None => self.add(place, format!("`{key}` is {n}"), expected),
            },
            Value::Integer(None) => self.add(place, format!("`{key}` is too large"), expected),
            Value::Float(_) => self.add(place, format!("`{key}` is not a whole number"), expected),
            other => self.add(place, format!("`{key}` is {}", other.kind()), expected),
        }
        None
    }

    pub(crate) fn flag(&mut self, tab: Tab<'_>, key: &'static str) -> Option<bool> {
        let entry = tab.get(key)?;
        match entry.node.value {
            Value::Flag(flag) => Some(flag),
            _ => {
                self.wrong_kind(entry, "expected true or false");
                None
            }
        }
    }

    pub(crate) fn percent(&mut self, tab: Tab<'_>, key: &'static str) -> Option<Share> {
        let Kind::Percent { max } = tab.kind(key) else { unreachable!("{key} is a percentage") };
        let entry = tab.get(key)?;
        let text = match &entry.node.value {
            Value::Text(text) => text,
            Value::Integer(Some(n)) => {
                self.wrong_kind(entry, format!("expected a percentage: \"{n}%\""));
                return None;
            }
            Value::Float(n) => {
                let whole = quantity::percent(&format!("{n}%")).unwrap_or(WHOLE / 100);
                let hint = quantity::show_percent(whole.saturating_mul(100));
                self.wrong_kind(entry, format!("expected a percentage, for example \"{hint}\""));
                return None;
            }
            _ => {
                self.wrong_kind(entry, "expected a percentage, for example \"70%\"");
                return None;
            }
        };
        match quantity::percent(text) {
            Ok(share) if (1..=max).contains(&share) => return Some(share),
            Ok(_) => {
                let expected = format!("expected more than 0%, at most {}", quantity::show_percent(max));
                self.add(&entry.node.place, format!("`{key}` is \"{}\"", shorten(text)), expected);
            }
            Err(expected) => {
                let message = format!("`{key}` cannot be \"{}\"", shorten(text));
                self.add(&entry.node.place, message, format!("expected {expected}"));
            }
        }
        None
    }

    pub(crate) fn bandwidth(&mut self, tab: Tab<'_>, key: &'static str) -> Option<u64> {
        let entry = tab.get(key)?;
        let text = self.text_of(entry, "expected a bandwidth, for example \"1Gbit/s\"")?;
        match quantity::bandwidth(text) {
            Ok(bps) => Some(bps),
            Err(expected) => {
                let message = format!("`{key}` cannot be \"{}\"", shorten(text));
                self.add(&entry.node.place, message, format!("expected {expected}"));
                None
            }
        }
    }

    /// The texts of a list, each with its place.
    pub(crate) fn texts<'t>(
        &mut self,
        entry: &'t Entry,
        expected: &str,
    ) -> Option<Vec<(&'t str, &'t Place)>> {
        let Value::List(items) = &entry.node.value else {
            self.wrong_kind(entry, expected);
            return None;
        };
        let mut texts = Vec::new();
        for item in items {
            match &item.value {
                Value::Text(text) => texts.push((text.as_str(), &item.place)),
                other => self.add(&item.place, format!("`{}` has {}", entry.key, other.kind()), expected),
            }
        }
        (texts.len() == items.len()).then_some(texts)
    }

    /// The discipline that the entry names.
    pub(crate) fn discipline_of(&mut self, entry: &Entry) -> Option<&'static DisciplineInfo> {
        let names: Vec<&str> = disciplines().iter().map(|d| d.name).collect();
        let expected = format!("expected one of {}", names.join(", "));
        let text = self.text_of(entry, &expected)?;
        let found = find_discipline(text);
        if found.is_none() {
            let message = format!("no discipline is called \"{}\"", shorten(text));
            let near = nearest(text, names);
            self.add_nearest(&entry.node.place, message, expected, near);
        }
        found
    }

    pub(crate) fn word(&mut self, tab: Tab<'_>, key: &'static str) -> Option<&'static str> {
        let Kind::Word(words) = tab.kind(key) else { unreachable!("{key} is one of some words") };
        self.word_of(tab.get(key)?, words, "")
    }

    fn word_of(&mut self, entry: &Entry, words: &[&'static str], or: &str) -> Option<&'static str> {
        let expected = format!("expected {or}one of {}", words.join(", "));
        let text = self.text_of(entry, &expected)?;
        let found = words.iter().find(|w| **w == text);
        if found.is_none() {
            let message = format!("`{}` is \"{}\"", entry.key, shorten(text));
            let near = nearest(text, words.iter().copied());
            self.add_nearest(&entry.node.place, message, expected, near);
        }
        found.copied()
    }

    /// The policy that the entry names.
    pub(crate) fn policy_of(&mut self, entry: &Entry) -> Option<&'static PolicyInfo> {
        let names: Vec<&str> = registry::policies().iter().map(|p| p.name).collect();
        let expected = format!("expected one of {}", names.join(", "));
        let text = self.text_of(entry, &expected)?;
        let found = registry::find(text);
        if found.is_none() {
            let message = format!("no policy is called \"{}\"", shorten(text));
            let near = nearest(text, names);
            self.add_nearest(&entry.node.place, message, expected, near);
        }
        found
    }

    /// A list of distinct numbers, at least one, each below `limit`; what they count is `of`.
    pub(crate) fn numbers(&mut self, entry: &Entry, limit: usize, of: &str) -> Option<Vec<(usize, Place)>> {
        self.numbers_within(entry, 0..=(limit - 1) as u64, of)
    }

    /// A list of distinct numbers, at least one, each within `range`; what they count is `of`.
    pub(crate) fn numbers_within(
        &mut self,
        entry: &Entry,
        range: RangeInclusive<u64>,
        of: &str,
    ) -> Option<Vec<(usize, Place)>> {
        let expected = format!("expected a list of {of}, for example [{}]", range.start());
        let Value::List(items) = &entry.node.value else {
            self.wrong_kind(entry, expected);
            return None;
        };
        if items.is_empty() {
            self.add(&entry.node.place, format!("`{}` is empty", entry.key), expected);
            return None;
        }
        let mut seen = BTreeSet::new();
        let mut numbers = Vec::new();
        for item in items {
            let Some(n) = self.whole(&entry.key, item, &item.place, range.clone(), of) else { continue };
            if seen.insert(n) {
                numbers.push((n as usize, item.place.clone()));
            } else {
                self.add(&item.place, format!("{n} is twice in `{}`", entry.key), "each number once");
            }
        }
        (numbers.len() == items.len()).then_some(numbers)
    }

    /// The table under `key`.
    pub(crate) fn table<'t>(&mut self, tab: Tab<'t>, key: &'static str) -> Option<Tab<'t>> {
        let Kind::Table(info) = tab.kind(key) else { unreachable!("{key} is a table") };
        let inner = self.table_of(tab.get(key)?, info)?;
        self.check_keys(inner);
        Some(inner)
    }

    pub(crate) fn table_of<'t>(&mut self, entry: &'t Entry, info: &'static TableInfo) -> Option<Tab<'t>> {
        match &entry.node.value {
            Value::Table(table) => Some(Tab { table, info, place: &entry.key_place, name: &entry.key }),
            _ => {
                let names: Vec<_> = info.names().collect();
                self.wrong_kind(entry, format!("expected a table with {}", names.join(", ")));
                None
            }
        }
    }

    /// The tables under `key` by name, their keys checked.
    pub(crate) fn named<'t>(&mut self, tab: Tab<'t>, key: &'static str) -> Vec<Tab<'t>> {
        let Kind::Named(info) = tab.kind(key) else { unreachable!("{key} holds tables by name") };
        let Some(entry) = tab.get(key) else { return Vec::new() };
        let Value::Table(by_name) = &entry.node.value else {
            self.wrong_kind(entry, format!("expected tables with a name: {}", info.title));
            return Vec::new();
        };
        let mut tabs = Vec::new();
        for entry in &by_name.entries {
            self.check_name(entry);
            let Some(inner) = self.table_of(entry, info) else { continue };
            self.check_keys(inner);
            tabs.push(inner);
        }
        tabs
    }

    fn check_name(&mut self, entry: &Entry) {
        let valid = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if entry.key.is_empty() || entry.key.len() > 64 || !entry.key.chars().all(valid) {
            let message = format!("`{}` cannot be a name", shorten(&entry.key));
            self.add(&entry.key_place, message, "expected 1 to 64 of the characters A-Z a-z 0-9 - _");
        }
    }

    /// The value of a policy's option.
    pub(crate) fn option(&mut self, entry: &Entry, kind: ParamKind) -> Option<OptionValue> {
        match kind {
            ParamKind::Duration => self.duration_of(entry, 0).map(OptionValue::Duration),
            ParamKind::DurationOr(words) => match &entry.node.value {
                Value::Text(text) if !text.trim().starts_with(|c: char| c.is_ascii_digit() || c == '-') => {
                    self.word_of(entry, words, "a duration, or ").map(OptionValue::Word)
                }
                _ => self.duration_of(entry, 0).map(OptionValue::Duration),
            },
            ParamKind::Count { min, max } => {
                let what = "a whole number";
                self.whole(&entry.key, &entry.node, &entry.place(), min..=max, what).map(OptionValue::Count)
            }
            ParamKind::Flag => match entry.node.value {
                Value::Flag(flag) => Some(OptionValue::Flag(flag)),
                _ => {
                    self.wrong_kind(entry, "expected true or false");
                    None
                }
            },
            ParamKind::Choice(words) => self.word_of(entry, words, "").map(OptionValue::Word),
        }
    }

    /// Keys of a table of options: those of a policy or discipline, and `extra`.
    pub(crate) fn check_options(&mut self, table: &Table, of: Optioned, extra: &[&'static str]) {
        let title = &format!("{} `{}`", of.what, of.name);
        let names: Vec<&str> = extra.iter().copied().chain(of.options.iter().map(|o| o.name)).collect();
        for entry in table.entries.iter().filter(|e| !names.contains(&e.key.as_str())) {
            self.unknown_key(title, names.clone(), entry);
        }
    }
}

impl Entry {
    /// Where to point for its value: for a table its key, since its own range may be many lines.
    pub(crate) fn place(&self) -> Place {
        match self.node.value {
            Value::Table(_) => self.key_place.clone(),
            _ => self.node.place.clone(),
        }
    }
}

/// What a table is called where a key is missing in it: `[domain.video]`, or its kind and name.
pub(crate) fn header(tab: Tab<'_>) -> String {
    match tab.info.title.contains("NAME") {
        true => tab.info.title.replace("NAME", tab.name),
        false => tab.info.title.to_string(),
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

fn at_least(ns: u64) -> String {
    format!("at least {}, at most {YEAR}", Duration::from_ns(ns))
}

pub(crate) fn expected_names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.take(20).collect();
    if names.is_empty() { "there is none".into() } else { format!("expected one of {}", names.join(", ")) }
}
