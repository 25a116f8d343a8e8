//! Reading a host file: from bytes to a validated host, or to all errors.

use std::io::Read;
use std::ops::Range;
use std::path::Path;

use punctual_host_stack::HostStack;
use toml::de::DeTable;

use super::entry::shorten;
use super::error::Errors;
use super::host::read::host;
use super::host_stack::HOST_STACK;
use super::overrides::{OtherOverheads, Overrides};
use super::source::{Origin, Place, Source};
use super::tree::{self, Table, Value};
use crate::any_host::AnyHost;
use crate::host::Host;

/// A host file is at most this long.
const BYTES_MAX: u64 = 16 << 20;

impl AnyHost {
    /// Validates a host file that was read elsewhere and may be anything; `file_name` as in
    /// [`AnyHost::parse`].
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn parse_bytes(bytes: &[u8], file_name: &str, overrides: &Overrides) -> Result<AnyHost, Errors> {
        Document::read(as_text(bytes, file_name)?, file_name, overrides).map(|document| document.host)
    }

    /// Validates a host file given as text. `file_name` is named in errors, and its stem is the host's name
    /// when the file gives none.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn parse(text: &str, file_name: &str, overrides: &Overrides) -> Result<AnyHost, Errors> {
        Document::read(text, file_name, overrides).map(|document| document.host)
    }
}

/// Reads and validates the file of a host with pools at `path`.
///
/// # Errors
/// All that is wrong with it, or why it cannot be read.
pub fn load(path: impl AsRef<Path>, overrides: &Overrides) -> Result<Host, Errors> {
    let name = path.as_ref().display().to_string();
    let mut bytes = Vec::new();
    let file = std::fs::File::open(&path);
    if let Err(e) = file.and_then(|f| f.take(BYTES_MAX + 1).read_to_end(&mut bytes)) {
        return Err(Errors::unreadable(&name, format!("cannot read {name}: {e}"), "expected a host file"));
    }
    parse_bytes(&bytes, &name, overrides)
}

/// Validates the file of a host with pools that was read elsewhere and may be anything; `file_name` as in
/// [`AnyHost::parse`].
///
/// # Errors
/// All that is wrong with it.
pub fn parse_bytes(bytes: &[u8], file_name: &str, overrides: &Overrides) -> Result<Host, Errors> {
    parse(as_text(bytes, file_name)?, file_name, overrides)
}

/// Validates the file of a host with pools given as text; `file_name` as in [`AnyHost::parse`].
///
/// # Errors
/// All that is wrong with it.
pub fn parse(text: &str, file_name: &str, overrides: &Overrides) -> Result<Host, Errors> {
    let document = Document::read(text, file_name, overrides)?;
    match document.host {
        AnyHost::Pools(host) => Ok(host),
        AnyHost::Stack(_) => Err(document.of_other_kind(
            "this is a host with `host_stack`, without pools",
            "expected [pool.NAME]; `punctual sim`, `sweep`, `check`, `show` and `host-stack` take this host",
        )),
    }
}

/// Validates the file of a host with `[host_stack]` that was read elsewhere and may be anything; `file_name`
/// as in [`AnyHost::parse`].
///
/// # Errors
/// All that is wrong with it.
pub fn parse_host_stack(bytes: &[u8], file_name: &str, overrides: &Overrides) -> Result<HostStack, Errors> {
    let document = Document::read(as_text(bytes, file_name)?, file_name, overrides)?;
    match document.host {
        AnyHost::Stack(stack) => Ok(stack),
        AnyHost::Pools(_) => Err(document.of_other_kind(
            "this is a host with pools, without `host_stack`",
            "expected [host_stack]; `punctual sim`, `check`, `run` and `attach` take this host",
        )),
    }
}

/// A host with what an error about its kind needs.
struct Document {
    host: AnyHost,
    /// None yet.
    errors: Errors,
    /// The key that says which kind it is.
    kind: Place,
}

impl Document {
    fn read(text: &str, file_name: &str, overrides: &Overrides) -> Result<Document, Errors> {
        let mut errors = Errors::in_file(file_name, text);
        let Some(mut root) = read_tree(text, 0, &mut errors) else { return Err(errors.sorted()) };
        if let (Some(stack), Some(_)) = (root.get(HOST_STACK), &overrides.overheads) {
            let expected = "expected no `--overheads`: it would change nothing";
            errors.add(stack.key_place, "a host with `host_stack` has costs of its own", expected);
        }
        if let Some(OtherOverheads::File { name, text }) = &overrides.overheads {
            take_overheads(name, text, &mut root, &mut errors);
        }
        overrides.apply(&mut root, &mut errors);
        match host(&root, file_name, &mut errors) {
            Some(host) if errors.count() == 0 => {
                let key = [HOST_STACK, "pool"].into_iter().find_map(|key| root.get(key));
                Ok(Document { host, errors, kind: key.map_or(Place::TOP, |entry| entry.key_place) })
            }
            _ => Err(errors.sorted()),
        }
    }

    /// The error that the host is of the other kind.
    fn of_other_kind(mut self, message: &str, expected: &str) -> Errors {
        self.errors.add(self.kind, message, expected);
        self.errors
    }
}

/// The document in text number `source`. `None` when it is no TOML; what is wrong is added to the errors.
pub(super) fn read_tree(text: &str, source: usize, errors: &mut Errors) -> Option<Table> {
    let (document, syntax_errors) = DeTable::parse_recoverable(text);
    let mut before: Option<usize> = None;
    for e in &syntax_errors {
        let range = errors.sources()[source].whole_characters(e.span().unwrap_or(0..0));
        let line = line_of(text, range.start);
        // The rest of a line, and the keys below a header that is there twice, are consequences.
        let is_consequence = before.is_some_and(|before| {
            before == line || is_header(text, before) && e.message() == DUPLICATE && !is_header(text, line)
        });
        if is_consequence {
            continue;
        }
        before = Some(line);
        let (message, expected) = match e.message() {
            DUPLICATE => duplicate(text, range.clone()),
            message => {
                let (message, expected) = syntax_error(message, &text[range.clone()]);
                (format!("invalid TOML: {message}"), expected)
            }
        };
        errors.add(Place::new(source, range), message, expected);
    }
    syntax_errors.is_empty().then(|| tree::table(document.into_inner(), source, 0))
}

/// Replaces `overheads` of the machine by those in the file called `name`, which need not be a host file in
/// full.
fn take_overheads(name: &str, text: &str, root: &mut Table, errors: &mut Errors) {
    let source = errors.add_source(Source::new(Origin::File(name.into()), text.into()));
    let Some(document) = read_tree(text, source, errors) else { return };
    let overheads = document.get("machine").and_then(|machine| match &machine.node.value {
        Value::Table(machine) => machine.get("overheads"),
        _ => None,
    });
    let Some(overheads) = overheads else {
        let expected = "expected [machine.overheads], which `punctual calibrate --write` writes";
        errors.add(Place::new(source, 0..0), "this file does not say what scheduling costs", expected);
        return;
    };
    if let Some(Value::Table(machine)) = root.get_mut("machine").map(|entry| &mut entry.node.value) {
        machine.entries.retain(|entry| entry.key != overheads.key);
        machine.entries.push(overheads.clone());
    }
}

/// The text of a file that is not too long.
pub(super) fn as_text<'b>(bytes: &'b [u8], file_name: &str) -> Result<&'b str, Errors> {
    if bytes.len() as u64 > BYTES_MAX {
        let message = format!("{file_name} is longer than {} MiB", BYTES_MAX >> 20);
        return Err(Errors::unreadable(file_name, message, "expected a host file"));
    }
    std::str::from_utf8(bytes).map_err(|e| not_utf8(bytes, e.valid_up_to(), file_name))
}

/// Does a host file with these changes say itself how long a run is, rather than leave it to the default? A
/// file that [`parse_bytes`] refuses says nothing.
pub fn says_duration(bytes: &[u8], overrides: &Overrides) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let (document, _) = DeTable::parse_recoverable(&text);
    let mut root = tree::table(document.into_inner(), 0, 0);
    overrides.apply(&mut root, &mut Errors::in_file("", text.as_ref()));
    root.get("duration").is_some()
}

/// Quotes that text processors write in place of straight ones.
const CURLY_QUOTES: [char; 4] = ['\u{201c}', '\u{201d}', '\u{2018}', '\u{2019}'];

/// What the TOML parser says of a key or header that is there twice.
const DUPLICATE: &str = "duplicate key";

/// The number of the line, from 0 on, with byte `at`.
fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count()
}

/// Is line `number` the header of a table?
fn is_header(text: &str, number: usize) -> bool {
    text.lines().nth(number).is_some_and(|line| line.trim_start().starts_with('['))
}

/// What is there twice, and where it is first.
fn duplicate(text: &str, range: Range<usize>) -> (String, String) {
    let (line, key) = (line_of(text, range.start), &text[range]);
    let lines: Vec<&str> = text.lines().take(line + 1).map(str::trim).collect();
    let is_of_key = |other: &str| other.split('=').next().is_some_and(|name| name.trim() == key);
    let (name, first) = if is_header(text, line) {
        let header = lines[line].split('#').next().unwrap_or_default().trim();
        (header.to_owned(), lines[..line].iter().position(|other| other.starts_with(header)))
    } else {
        (format!("`{key}`"), lines[..line].iter().rposition(|other| is_of_key(other)))
    };
    let first = first.map_or_else(String::new, |first| format!("; it is in line {} first", first + 1));
    (format!("{} is there twice", shorten(&name)), format!("expected it once{first}"))
}

/// What is wrong and what was expected, from what the TOML parser says about `text`.
fn syntax_error<'a>(message: &'a str, text: &str) -> (&'a str, String) {
    match message.split_once(", expected ") {
        Some(("string values must be quoted", _)) if text.is_empty() => {
            ("a value is missing", "expected a value".into())
        }
        Some(("string values must be quoted", _)) if text.contains(CURLY_QUOTES) => {
            let bare = text.trim_matches(CURLY_QUOTES);
            ("curly quotes", format!("expected straight ones: \"{}\"", shorten(bare)))
        }
        Some((what @ "string values must be quoted", _)) => (what, format!("expected \"{}\"", shorten(text))),
        Some((what, expected)) => (what, format!("expected {expected}")),
        None => (message, "expected valid TOML".into()),
    }
}

/// An error that shows the first byte that is no UTF-8 in the text made readable.
fn not_utf8(bytes: &[u8], valid: usize, file_name: &str) -> Errors {
    let mut errors = Errors::in_file(file_name, String::from_utf8_lossy(bytes));
    let end = valid + '\u{fffd}'.len_utf8();
    let message = format!("invalid UTF-8: byte 0x{:02x}", bytes[valid]);
    errors.add(Place::new(0, valid..end), message, "expected a text file in UTF-8");
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_said_by_the_file_or_by_a_change_of_it() {
        let by_file = |text: &str| says_duration(text.as_bytes(), &Overrides::default());
        assert!(by_file("duration = '3s'\n[machine]\nprocessors = 1\n"));
        assert!(!by_file("[machine]\nprocessors = 1\n"));
        assert!(!by_file("[machine]\nduration = '3s'\n"));
        assert!(!by_file("\u{0}["));
        let set = Overrides { set: vec!["duration=3s".into()], ..Overrides::default() };
        let option = Overrides { duration: Some("3s".into()), ..Overrides::default() };
        assert!(says_duration(b"", &set) && says_duration(b"", &option));
    }
}
