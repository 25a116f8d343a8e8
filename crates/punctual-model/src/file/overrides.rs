//! Command-line options that change the document before it is validated.

use std::io::Read;

use toml::de::DeValue;

use super::entry::shorten;
use super::error::Errors;
use super::nearest::nearest;
use super::source::{Origin, Place, Source};
use super::tree::{self, Entry, Node, Table, Value};
use crate::overheads::{PRESETS, preset};

/// Changes to a host file, applied in this order: overheads, policy, set, seed, duration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `--overheads`: what scheduling costs, instead of what the file says.
    pub overheads: Option<OtherOverheads>,
    /// `--policy`: a policy for all pools, or `pool=policy`; several of the latter separated by commas.
    pub policy: Option<String>,
    /// `--set`: `domain.video.budget=3ms`, each a path of keys and a TOML value; what is no TOML value is a
    /// string. `*` in place of a name matches every table there.
    pub set: Vec<String>,
    /// `--seed`.
    pub seed: Option<u64>,
    /// `--duration`, with its unit.
    pub duration: Option<String>,
}

/// Costs of scheduling that do not stand in the host file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OtherOverheads {
    /// Published ones, by the name of a [preset](crate::overheads::PRESETS).
    Preset(String),
    /// Those in `[machine.overheads]` of another file.
    File {
        /// Its name in errors.
        name: String,
        /// What is in it.
        text: String,
    },
}

/// Greatest size of a file with costs in bytes; the parser's own limit is lower.
const COSTS_BYTES_MAX: u64 = 64 << 20;

impl OtherOverheads {
    /// Published costs by their name, else the file of this path, which is read once.
    ///
    /// # Errors
    /// The name is no preset, and the file cannot be read: why, as a sentence.
    pub fn read(name: &str) -> Result<Self, String> {
        if preset(name).is_some() {
            return Ok(OtherOverheads::Preset(name.into()));
        }
        let mut text = String::new();
        let file = std::fs::File::open(name);
        match file.and_then(|file| file.take(COSTS_BYTES_MAX).read_to_string(&mut text)) {
            Ok(_) => Ok(OtherOverheads::File { name: name.into(), text }),
            Err(error) => {
                let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
                Err(format!("it cannot be read as a file: {error}; published costs are {}", names.join(", ")))
            }
        }
    }
}

/// A table of exactly one key: one that is given replaces the other.
const ONE_KEY: &str = "attach";

/// Keys under which tables have names of the user's choice; a path does not create such a table.
const COLLECTIONS: [&str; 9] =
    ["pool", "slot", "domain", "task", "network", "outside", "flow", "chain", "event"];

/// Keys in a path at most; the host file nests no deeper.
const DEPTH_MAX: usize = 16;

impl Overrides {
    /// Changes `root`. Every option becomes a text that errors can point into.
    pub(crate) fn apply(&self, root: &mut Table, errors: &mut Errors) {
        if let Some(OtherOverheads::Preset(name)) = &self.overheads {
            let text = format!("--overheads {name}");
            let value_at = text.len() - name.len();
            let path = ["machine", "overheads"].map(|key| (key.to_string(), 0..value_at - 1)).to_vec();
            Change::new(errors, "--overheads", text, path, value_at, true).apply(root, errors);
        }
        for part in self.policy.iter().flat_map(|p| p.split(',')) {
            let (pool, policy) = part.split_once('=').unwrap_or(("*", part));
            let text = format!("--policy {part}");
            let value_at = text.len() - policy.len();
            let path =
                [("pool", 9..9 + pool.len()), (pool, 9..9 + pool.len()), ("policy", value_at..text.len())];
            let path = path.map(|(name, range)| (name.to_string(), range)).to_vec();
            Change::new(errors, "--policy", text, path, value_at, true).apply(root, errors);
        }
        for set in &self.set {
            match set_path(set) {
                Some((path, value_at)) => {
                    Change::new(errors, "--set", format!("--set {set}"), path, value_at, false)
                        .apply(root, errors);
                }
                None => malformed(set, errors),
            }
        }
        if let Some(seed) = self.seed {
            top_level(errors, "--seed", "seed", &seed.to_string(), false).apply(root, errors);
        }
        if let Some(duration) = &self.duration {
            top_level(errors, "--duration", "duration", duration, true).apply(root, errors);
        }
    }
}

type Path = Vec<(String, std::ops::Range<usize>)>;

/// The path in `--set PATH=VALUE`, its ranges in that text, and where the value starts.
fn set_path(set: &str) -> Option<(Path, usize)> {
    let (path, _) = set.split_once('=')?;
    let mut at = "--set ".len();
    let mut keys = Vec::new();
    for name in path.split('.') {
        let trimmed = name.trim();
        if trimmed.is_empty() || keys.len() == DEPTH_MAX {
            return None;
        }
        let start = at + (name.len() - name.trim_start().len());
        keys.push((trimmed.to_string(), start..start + trimmed.len()));
        at += name.len() + 1;
    }
    Some((keys, "--set ".len() + path.len() + 1))
}

fn malformed(set: &str, errors: &mut Errors) {
    let text = format!("--set {set}");
    let range = 6..text.len();
    let place = Place::new(errors.add_source(Source::new(Origin::Option("--set"), text)), range);
    errors.add(place, "--set needs a key and a value", "expected for example domain.video.budget=3ms");
}

fn top_level(errors: &mut Errors, flag: &'static str, key: &str, value: &str, word: bool) -> Change {
    let text = format!("{flag} {value}");
    let path = vec![(key.to_string(), 0..flag.len())];
    Change::new(errors, flag, text, path, flag.len() + 1, word)
}

/// One value for one path, `*` standing for every table.
struct Change {
    source: usize,
    path: Path,
    node: Node,
}

impl Change {
    /// The value is the rest of `text` from byte `value_at`: a TOML value unless it is a plain `word`.
    fn new(
        errors: &mut Errors,
        flag: &'static str,
        text: String,
        path: Path,
        value_at: usize,
        word: bool,
    ) -> Self {
        let source = errors.add_source(Source::new(Origin::Option(flag), text.clone()));
        let raw = text[value_at..].trim();
        let value_at = text.len() - text[value_at..].trim_start().len();
        let place = Place::new(source, value_at..value_at + raw.len());
        let string = || Node { place, value: Value::Text(raw.into()) };
        let node = match DeValue::parse(raw) {
            Ok(value) if !word => tree::node(value, source, value_at),
            _ => string(),
        };
        let node = if matches!(node.value, Value::Datetime) { string() } else { node };
        Change { source, path, node }
    }

    fn apply(&self, root: &mut Table, errors: &mut Errors) {
        let before = errors.count();
        if !self.descend(root, 0, false, errors) && errors.count() == before {
            let whole = Place::new(self.source, self.path[0].1.start..self.path[self.path.len() - 1].1.end);
            errors.add(whole, "nothing in the host file matches", "expected a path to some table's key");
        }
    }

    /// Applies the path from key number `depth` on and says whether anything changed. What is missing is no
    /// error below a `*` (`wild`), which may match elsewhere. Recursion is as deep as the path is long.
    fn descend(&self, table: &mut Table, depth: usize, wild: bool, errors: &mut Errors) -> bool {
        let (name, range) = &self.path[depth];
        if name == "*" {
            let enter = |entry| self.enter(entry, depth, true, errors);
            return table.entries.iter_mut().map(enter).fold(false, |any, changed| any | changed);
        }
        let place = Place::new(self.source, range.clone());
        if depth > 0 && self.path[depth - 1].0 == ONE_KEY {
            table.entries.retain(|entry| entry.key == *name);
        }
        if table.get(name).is_none() {
            let named = depth > 0 && COLLECTIONS.contains(&self.path[depth - 1].0.as_str());
            if named || depth + 1 < self.path.len() && COLLECTIONS.contains(&name.as_str()) {
                if !wild {
                    self.no_such(table, named, place, depth, errors);
                }
                return false;
            }
            let node = Node { place, value: Value::Table(Table::default()) };
            table.entries.push(Entry { key: name.clone(), key_place: place, node });
        }
        table.get_mut(name).is_some_and(|entry| self.enter(entry, depth, wild, errors))
    }

    fn enter(&self, entry: &mut Entry, depth: usize, wild: bool, errors: &mut Errors) -> bool {
        let place = Place::new(self.source, self.path[depth].1.clone());
        if depth + 1 == self.path.len() {
            entry.node = self.node.clone();
            entry.key_place = place;
            return true;
        }
        if let Value::Table(inner) = &mut entry.node.value {
            return self.descend(inner, depth + 1, wild, errors);
        }
        let message = format!("`{}` is {} in the host file", shorten(&entry.key), entry.node.value.kind());
        errors.add(place, message, "expected the name of a table");
        false
    }

    /// Adds the error that the path names a pool, domain or task that the file does not have.
    fn no_such(&self, table: &Table, named: bool, place: Place, depth: usize, errors: &mut Errors) {
        let what = &self.path[if named { depth - 1 } else { depth }].0;
        let names: Vec<&str> =
            if named { table.entries.iter().map(|e| e.key.as_str()).collect() } else { vec![] };
        let expected = match names.len() {
            0 => format!("the host file has no {what} here"),
            _ => format!("expected one of {}", names.iter().take(20).copied().collect::<Vec<_>>().join(", ")),
        };
        let name = shorten(&self.path[depth].0);
        let message =
            if named { format!("there is no {what} `{name}`") } else { format!("there is no {what}") };
        errors.add_nearest(place, message, expected, nearest(&self.path[depth].0, names));
    }
}
