//! What a key table says about the keys of a table of the host file. The parser, the JSON schema and the
//! reference read the key tables; nothing else lists keys.

use punctual_net::discipline::DisciplineInfo;
use punctual_net::registry::disciplines;
use punctual_sched::Duration;
use punctual_sched::registry::{self, ParamInfo, PolicyInfo};

use super::quantity::Share;

/// What a key takes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// Free text on one line.
    Text,
    /// Text on one line, not empty: a path, a name, a kernel's command line.
    Line,
    /// A list of texts.
    Texts,
    /// Variables with their values, both texts.
    Environment,
    /// `none`, `user`, or `tap:` with an interface's name.
    VmNetwork,
    /// A whole number from 0.
    Seed,
    /// A duration of at least `min`.
    Duration { min: Duration },
    /// A duration of at least [`PERIOD_MIN`](super::limits::PERIOD_MIN), or a frequency.
    Period,
    /// A whole number between the bounds, both included.
    Count { min: u64, max: u64 },
    /// A whole number that may be negative, between the bounds.
    Integer { min: i64, max: i64 },
    /// `true` or `false`.
    Flag,
    /// A percentage above 0, at most `max`.
    Percent { max: Share },
    /// One of these words.
    Word(&'static [&'static str]),
    /// The name of a policy.
    Policy,
    /// The name of a policy, or a table of `policy` and its options.
    Guest,
    /// The name of a packet discipline.
    Discipline,
    /// A bandwidth.
    Bandwidth,
    /// The name of a domain or of a host outside.
    Endpoint,
    /// A task of a domain, `DOMAIN.TASK`.
    TaskOf,
    /// A list of at least two tasks of domains.
    TasksOf,
    /// The name of a `[pool.NAME]` or `[domain.NAME]`.
    NameOf(&'static str),
    /// A list of processor or vCPU numbers.
    Numbers,
    /// A list of thread ids.
    Threads,
    /// A duration, or a table of `min` and `max`.
    Cost,
    /// A table with these keys.
    Table(&'static TableInfo),
    /// One of these words, or a table with these keys.
    WordOrTable(&'static [&'static str], &'static TableInfo),
    /// A list of processor numbers, or a table with these keys.
    NumbersOrTable(&'static TableInfo),
    /// Tables by name, each with these keys.
    Named(&'static TableInfo),
    /// Tables by number from 0, each with these keys.
    Numbered(&'static TableInfo),
    /// A list of tables with these keys.
    Tables(&'static TableInfo),
    /// A list of tables, each with one of these keys.
    OneOfEach(&'static TableInfo),
}

/// A key.
#[derive(Debug)]
pub(crate) struct KeyInfo {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// As it would be written, or in words; `None`: required, or absent means "not set".
    pub(crate) default: Option<&'static str>,
    pub(crate) required: bool,
    pub(crate) help: &'static str,
}

/// A kind of table.
#[derive(Debug)]
pub(crate) struct TableInfo {
    /// Its header, for people: `[domain.NAME]`.
    pub(crate) title: &'static str,
    pub(crate) keys: &'static [KeyInfo],
    /// Keys shared with other tables.
    pub(crate) shared: &'static [&'static [KeyInfo]],
    /// The tables of options that it takes as well.
    pub(crate) options: OptionTables,
}

/// The tables of options in a kind of table: one for each policy, or for each discipline, under its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OptionTables {
    None,
    Policies,
    Disciplines,
}

/// Something with options: a policy or a discipline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OptionOwner {
    /// "policy" or "discipline".
    pub(crate) what: &'static str,
    pub(crate) name: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) options: &'static [ParamInfo],
}

impl From<&PolicyInfo> for OptionOwner {
    fn from(info: &PolicyInfo) -> Self {
        OptionOwner { what: "policy", name: info.name, summary: info.summary, options: info.options }
    }
}

impl From<&DisciplineInfo> for OptionOwner {
    fn from(info: &DisciplineInfo) -> Self {
        OptionOwner { what: "discipline", name: info.name, summary: info.summary, options: info.options }
    }
}

impl OptionTables {
    /// What may have a table.
    pub(crate) fn all(self) -> Vec<OptionOwner> {
        match self {
            OptionTables::None => Vec::new(),
            OptionTables::Policies => registry::policies().iter().map(OptionOwner::from).collect(),
            OptionTables::Disciplines => disciplines().iter().map(OptionOwner::from).collect(),
        }
    }
}

impl TableInfo {
    /// All keys but the tables of options.
    pub(crate) fn all(&self) -> impl Iterator<Item = &'static KeyInfo> {
        self.keys.iter().chain(self.shared.iter().copied().flatten())
    }

    /// All valid names.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.all().map(|k| k.name).chain(self.options.all().into_iter().map(|o| o.name))
    }

    pub(crate) fn key(&self, name: &str) -> Option<&'static KeyInfo> {
        self.all().find(|k| k.name == name)
    }
}

pub(crate) const fn key(
    name: &'static str,
    kind: Kind,
    default: Option<&'static str>,
    help: &'static str,
) -> KeyInfo {
    KeyInfo { name, kind, default, required: false, help }
}

pub(crate) const fn required(name: &'static str, kind: Kind, help: &'static str) -> KeyInfo {
    KeyInfo { name, kind, default: None, required: true, help }
}

pub(crate) const SOME_TIME: Kind = Kind::Duration { min: Duration::from_ns(1) };
pub(crate) const ANY_TIME: Kind = Kind::Duration { min: Duration::ZERO };
