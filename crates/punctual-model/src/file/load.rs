//! Reading a host file: from bytes to a validated [`Host`], or to all errors.

use std::io::Read;
use std::path::Path;

use toml::de::DeTable;

use super::entry::shorten;
use super::error::Errors;
use super::host::read::host;
use super::overrides::Overrides;
use super::source::Place;
use super::tree;
use crate::host::Host;

/// A host file is at most this long.
const BYTES_MAX: u64 = 16 << 20;

/// Reads and validates the host file at `path`.
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

/// Validates a host file that was read elsewhere and may be anything; `file_name` as in [`parse`].
///
/// # Errors
/// All that is wrong with it.
pub fn parse_bytes(bytes: &[u8], file_name: &str, overrides: &Overrides) -> Result<Host, Errors> {
    if bytes.len() as u64 > BYTES_MAX {
        let message = format!("{file_name} is longer than {} MiB", BYTES_MAX >> 20);
        return Err(Errors::unreadable(file_name, message, "expected a host file"));
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => parse(text, file_name, overrides),
        Err(e) => Err(not_utf8(bytes, e.valid_up_to(), file_name)),
    }
}

/// Validates a host file given as text. `file_name` is named in errors, and its stem is the host's name when
/// the file gives none.
///
/// # Errors
/// All that is wrong with it.
pub fn parse(text: &str, file_name: &str, overrides: &Overrides) -> Result<Host, Errors> {
    let mut errors = Errors::in_file(file_name, text);
    let (document, syntax_errors) = DeTable::parse_recoverable(text);
    for e in &syntax_errors {
        let range = errors.sources()[0].whole_characters(e.span().unwrap_or(0..0));
        let (message, expected) = syntax_error(e.message(), &text[range.clone()]);
        errors.add(Place::new(0, range), format!("this is not TOML: {message}"), expected);
    }
    if !syntax_errors.is_empty() {
        return Err(errors.sorted());
    }
    let mut root = tree::table(document.into_inner(), 0, 0);
    overrides.apply(&mut root, &mut errors);
    match host(&root, file_name, &mut errors) {
        Some(host) if errors.count() == 0 => Ok(host),
        _ => Err(errors.sorted()),
    }
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

/// What is wrong and what was expected, from what the TOML parser says about `text`.
fn syntax_error<'a>(message: &'a str, text: &str) -> (&'a str, String) {
    match message.split_once(", expected ") {
        Some(("string values must be quoted", _)) if text.is_empty() => {
            ("a value is missing", "expected a value".into())
        }
        Some((what @ "string values must be quoted", _)) => (what, format!("expected \"{}\"", shorten(text))),
        Some((what, expected)) => (what, format!("expected {expected}")),
        None if message == "duplicate key" => (message, "expected each name once in a table".into()),
        None => (message, "expected valid TOML".into()),
    }
}

/// An error that shows the first byte that is no UTF-8 in the text made readable.
fn not_utf8(bytes: &[u8], valid: usize, file_name: &str) -> Errors {
    let mut errors = Errors::in_file(file_name, String::from_utf8_lossy(bytes));
    let end = valid + '\u{fffd}'.len_utf8();
    let message = format!("byte 0x{:02x} is not UTF-8", bytes[valid]);
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
