//! Reading the keys of a table as its key table says: kinds, bounds, defaults.

use punctual_sched::{Duration, registry};

use super::entry::shorten;
use super::error::Errors;
use super::key::{KeyInfo, Kind, TableInfo};
use super::limits::NAME_MAX;
use super::nearest::nearest;
use super::quantity::{self, Share};
use super::source::Place;
use super::tree::{Entry, Node, Table, Value};

/// A table of the file with what its key table says about it. Reading a key that is absent or wrong gives
/// `None`; what is wrong is added to the errors.
#[derive(Clone, Copy)]
pub(crate) struct Section<'t> {
    pub(crate) table: &'t Table,
    pub(crate) info: &'static TableInfo,
    /// Its key: where to point when something is missing in it.
    pub(crate) place: Place,
    /// Its last name: `video` of `[domain.video]`.
    pub(crate) name: &'t str,
}

impl<'t> Section<'t> {
    /// The section that `entry` holds, its keys not yet checked.
    pub(crate) fn of(entry: &'t Entry, info: &'static TableInfo, errors: &mut Errors) -> Option<Self> {
        match &entry.node.value {
            Value::Table(table) => Some(Section { table, info, place: entry.key_place, name: &entry.key }),
            _ => {
                let names: Vec<_> = info.names().collect();
                entry.wrong_kind(format!("expected a table with {}", names.join(", ")), errors);
                None
            }
        }
    }

    /// The entry of a key that the key table knows.
    pub(crate) fn get(self, key: &str) -> Option<&'t Entry> {
        debug_assert!(self.info.names().any(|name| name == key), "{key} is not a key of {}", self.info.title);
        self.table.get(key)
    }

    /// Where the value of `key` stands, or the section when the key is absent.
    pub(crate) fn place_of(self, key: &str) -> Place {
        self.get(key).map_or(self.place, |entry| entry.node.place)
    }

    fn key(self, key: &str) -> &'static KeyInfo {
        self.info.key(key).unwrap_or_else(|| panic!("{key} is not a key of {}", self.info.title))
    }

    fn kind(self, key: &str) -> Kind {
        self.key(key).kind
    }

    /// The default that the key table gives for an absent key.
    pub(crate) fn default(self, key: &str) -> &'static str {
        self.key(key).default.unwrap_or_else(|| panic!("{key} has no default"))
    }

    /// What the section is called where a key is missing in it: `[domain.video]`, or its kind and name.
    pub(crate) fn header(self) -> String {
        self.info.title.replace("NAME", self.name)
    }

    /// Adds an error for each unknown and each missing key.
    pub(crate) fn check_keys(self, errors: &mut Errors) {
        for entry in &self.table.entries {
            if self.info.names().any(|name| name == entry.key) {
                continue;
            }
            let names = || self.info.names().collect();
            match self.elsewhere(&entry.key) {
                Some(near) => not_a_key(&self.header(), names(), entry, Some(near), errors),
                None => unknown_key(&self.header(), names(), entry, errors),
            }
        }
        for key in self.info.all().filter(|k| k.required && self.table.get(k.name).is_none()) {
            let expected = match key.kind {
                Kind::Table(info) => {
                    let inner = info.all().find(|inner| inner.required);
                    let example = inner.map_or_else(String::new, |inner| format!(" with `{}`", inner.name));
                    format!("expected {}{example}: {}", info.title, key.help)
                }
                Kind::Named(info) => format!("expected at least one {}: {}", info.title, key.help),
                _ => format!("expected `{}`: {}", key.name, key.help),
            };
            errors.add(self.place, format!("`{}` is missing in {}", key.name, self.header()), expected);
        }
    }

    /// The path of a key that stands in a table of this section: a vCPU's number, an option of the policy, a
    /// domain or pool; or beside this section: a flow.
    fn elsewhere(self, key: &str) -> Option<String> {
        let has = |name: &str| self.info.names().any(|known| known == name);
        if has("vcpu") && !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_digit()) {
            return Some(format!("vcpu.{key}"));
        }
        let has_named = |collection: &&str| match self.table.get(collection).map(|entry| &entry.node.value) {
            Some(Value::Table(named)) => has(collection) && named.get(key).is_some(),
            _ => false,
        };
        if let Some(collection) = ["domain", "pool"].into_iter().find(has_named) {
            return Some(format!("{collection}.{key}"));
        }
        // They name their network, so that they can be read without it.
        if self.info.title.starts_with("[network.NAME]") && matches!(key, "flow" | "chain") {
            return Some(format!("[{key}.NAME]"));
        }
        let Value::Text(policy) = &self.table.get("policy").filter(|_| has("policy"))?.node.value else {
            return None;
        };
        let is_option =
            has(policy) && registry::find(policy)?.options.iter().any(|option| option.name == key);
        is_option.then(|| format!("{policy}.{key}"))
    }

    pub(crate) fn text(self, key: &'static str, errors: &mut Errors) -> Option<&'t str> {
        let expected = match self.kind(key) {
            Kind::NameOf(what) => format!("expected the name of a {what}"),
            Kind::Endpoint => "expected the name of a domain or of a host outside".into(),
            Kind::TaskOf => "expected a task of a domain, for example \"video.decode\"".into(),
            _ => "expected a string".into(),
        };
        self.get(key)?.text(&expected, errors)
    }

    pub(crate) fn duration(self, key: &'static str, errors: &mut Errors) -> Option<Duration> {
        match self.kind(key) {
            Kind::Duration { min } => self.get(key)?.duration(min, errors),
            Kind::Period => self.get(key)?.period(errors),
            _ => unreachable!("{key} is a duration"),
        }
    }

    /// As [`Section::duration`], with the key's default.
    pub(crate) fn duration_or_default(self, key: &'static str, errors: &mut Errors) -> Duration {
        self.duration(key, errors).unwrap_or_else(|| {
            quantity::duration(self.default(key)).expect("the key table's default is a duration")
        })
    }

    pub(crate) fn count(self, key: &'static str, errors: &mut Errors) -> Option<u64> {
        let (min, max) = match self.kind(key) {
            Kind::Count { min, max } => (min, max),
            Kind::Seed => (0, i64::MAX as u64),
            _ => unreachable!("{key} is a number"),
        };
        self.get(key)?.whole_number(min..=max, errors)
    }

    /// As [`Section::count`], with the key's default.
    pub(crate) fn count_or_default(self, key: &'static str, errors: &mut Errors) -> u64 {
        self.count(key, errors)
            .unwrap_or_else(|| self.default(key).parse().expect("the key table's default is a number"))
    }

    /// A whole number that may be negative, or the key's default.
    pub(crate) fn integer_or_default(self, key: &'static str, errors: &mut Errors) -> i64 {
        let Kind::Integer { min, max } = self.kind(key) else { unreachable!("{key} may be negative") };
        let given = self.get(key).and_then(|entry| entry.integer(min..=max, errors));
        given.unwrap_or_else(|| self.default(key).parse().expect("the key table's default is a number"))
    }

    pub(crate) fn flag(self, key: &'static str, errors: &mut Errors) -> Option<bool> {
        self.get(key)?.flag(errors)
    }

    pub(crate) fn percent(self, key: &'static str, errors: &mut Errors) -> Option<Share> {
        let Kind::Percent { max } = self.kind(key) else { unreachable!("{key} is a percentage") };
        self.get(key)?.percent(max, errors)
    }

    pub(crate) fn bandwidth(self, key: &'static str, errors: &mut Errors) -> Option<u64> {
        self.get(key)?.bandwidth(errors)
    }

    pub(crate) fn word(self, key: &'static str, errors: &mut Errors) -> Option<&'static str> {
        match self.kind(key) {
            Kind::Word(words) => self.get(key)?.word(words, "", errors),
            Kind::WordOrTable(words, _) => self.get(key)?.word(words, "a table, or ", errors),
            _ => unreachable!("{key} is one of some words"),
        }
    }

    /// The table under `key`, its keys checked.
    pub(crate) fn table(self, key: &'static str, errors: &mut Errors) -> Option<Section<'t>> {
        let (Kind::Table(info) | Kind::WordOrTable(_, info) | Kind::NumbersOrTable(info)) = self.kind(key)
        else {
            unreachable!("{key} is a table")
        };
        let inner = Section::of(self.get(key)?, info, errors)?;
        inner.check_keys(errors);
        Some(inner)
    }

    /// An item of the list of tables under `key`, its keys checked.
    pub(crate) fn item(self, key: &'static str, item: &'t Node, errors: &mut Errors) -> Option<Section<'t>> {
        let Kind::Tables(info) = self.kind(key) else { unreachable!("{key} holds a list of tables") };
        let Value::Table(table) = &item.value else {
            let names: Vec<_> = info.names().collect();
            let expected = format!("expected tables with {}", names.join(", "));
            errors.add(item.place, format!("`{key}` has {}", item.value.kind()), expected);
            return None;
        };
        let inner = Section { table, info, place: item.place, name: key };
        inner.check_keys(errors);
        Some(inner)
    }

    /// The tables under `key` by name, their keys checked.
    pub(crate) fn named(self, key: &'static str, errors: &mut Errors) -> Vec<Section<'t>> {
        let Kind::Named(info) = self.kind(key) else { unreachable!("{key} holds tables by name") };
        let Some(entry) = self.get(key) else { return Vec::new() };
        let Value::Table(by_name) = &entry.node.value else {
            entry.wrong_kind(format!("expected tables with a name: {}", info.title), errors);
            return Vec::new();
        };
        let mut sections = Vec::new();
        for entry in &by_name.entries {
            check_name(entry, errors);
            let Some(inner) = Section::of(entry, info, errors) else { continue };
            inner.check_keys(errors);
            sections.push(inner);
        }
        sections
    }
}

/// Adds the error that a table called `title` has no such key, only `names`.
pub(crate) fn unknown_key(title: &str, names: Vec<&str>, entry: &Entry, errors: &mut Errors) {
    let near = nearest(&entry.key, names.iter().copied());
    not_a_key(title, names, entry, near, errors);
}

fn not_a_key(title: &str, names: Vec<&str>, entry: &Entry, near: Option<String>, errors: &mut Errors) {
    let message = format!("{title} has no key `{}`", shorten(&entry.key));
    errors.add_nearest(entry.key_place, message, format!("expected one of {}", names.join(", ")), near);
}

fn check_name(entry: &Entry, errors: &mut Errors) {
    let valid = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if entry.key.is_empty() || entry.key.len() > NAME_MAX || !entry.key.chars().all(valid) {
        let message = format!("`{}` cannot be a name", shorten(&entry.key));
        errors.add(entry.key_place, message, "expected 1 to 64 of the characters A-Z a-z 0-9 - _");
    }
}
