//! The files of an import while they are read, with what is wrong with them and what is noteworthy.

use std::ops::Range;

use punctual_sched::Duration;

use super::note::Note;
use crate::file::error::Errors;
use crate::file::quantity::{self, DecimalError, YEAR};
use crate::file::source::{Origin, Place, Source};
use crate::file::{self, ErrorRecord};

/// A file is at most this long.
const BYTES_MAX: usize = 16 << 20;
/// Notes kept at most.
const NOTES_MAX: usize = 1_000;
/// Processor numbers are below this, as in host files.
const PROCESSORS_MAX: usize = file::PROCESSORS_MAX as usize;

/// An error that [`Input`] already has.
#[derive(Clone, Copy)]
pub(super) struct Reported;

/// The files, with their errors and notes.
pub(super) struct Input {
    pub(super) errors: Errors,
    notes: Vec<(Place, String)>,
}

impl Input {
    pub(super) fn new(files: &[(&str, &[u8])]) -> Self {
        let mut input = Input { errors: Errors::default(), notes: Vec::new() };
        for (name, bytes) in files {
            let text = String::from_utf8_lossy(&bytes[..bytes.len().min(BYTES_MAX)]).into_owned();
            let refused = match std::str::from_utf8(bytes) {
                _ if bytes.len() > BYTES_MAX => {
                    Some((0, format!("{name} is longer than {} MiB", BYTES_MAX >> 20)))
                }
                Err(e) => {
                    Some((e.valid_up_to(), format!("invalid UTF-8: byte 0x{:02x}", bytes[e.valid_up_to()])))
                }
                Ok(_) => None,
            };
            let file = input.errors.add_source(Source::new(Origin::File(name.to_string()), text));
            if let Some((at, message)) = refused {
                input.error(Place::new(file, at..at), message, "expected a text file in UTF-8");
            }
        }
        if files.is_empty() {
            input.errors.add_source(Source::new(Origin::File(String::new()), String::new()));
            input.error(Place::TOP, "there is no file", "expected at least one");
        }
        input
    }

    /// How many files there are.
    pub(super) fn files(&self) -> usize {
        self.errors.sources().len()
    }

    pub(super) fn text(&self, file: usize) -> &str {
        &self.errors.sources()[file].text
    }

    /// A place in a file; the range is cut to whole characters of its text.
    pub(super) fn place(&self, file: usize, range: Range<usize>) -> Place {
        Place::new(file, self.errors.sources()[file].whole_characters(range))
    }

    /// Adds an error.
    pub(super) fn error(&mut self, place: Place, message: impl Into<String>, expected: impl Into<String>) {
        let place = self.place(place.source, place.start..place.end);
        // Long ranges, of a whole element, would show all of it.
        let text = &self.text(place.source)[place.start..place.end];
        let end = place.start + text.find('\n').unwrap_or(text.len());
        self.errors.add(Place { end, ..place }, message, expected);
    }

    /// Notes what is not carried over, or not exactly.
    pub(super) fn note(&mut self, place: Place, text: impl Into<String>) {
        if self.notes.len() < NOTES_MAX {
            self.notes.push((place, text.into()));
        }
    }

    /// What the host file's parser refuses, at the place that the value came from.
    pub(super) fn refused(&mut self, place: Place, record: &ErrorRecord) {
        self.error(place, record.message.clone(), record.expected.clone());
    }

    /// The notes in the order of the files, each once.
    pub(super) fn notes(&self) -> Vec<Note> {
        let mut placed: Vec<&(Place, String)> = self.notes.iter().collect();
        placed.sort_by_key(|(place, _)| *place);
        let note = |(place, text): &(Place, String)| {
            let source = &self.errors.sources()[place.source];
            Note {
                file: source.file_name().unwrap_or_default().into(),
                line: source.line_and_column(place.start).0,
                text: text.clone(),
            }
        };
        let mut notes: Vec<Note> = placed.into_iter().map(note).collect();
        notes.dedup();
        notes
    }

    /// The first comment of the host file.
    pub(super) fn heading(&self, format: &str, notes: &[Note]) -> String {
        let names: Vec<&str> = self.errors.sources().iter().filter_map(Source::file_name).collect();
        let mut lines = vec![format!("Imported from {format}: {}", names.join(", "))];
        lines.extend(notes.iter().map(|n| format!("{}:{}: {}", n.file, n.line, n.text)));
        let clean = |line: String| line.replace(char::is_control, " ");
        lines.into_iter().map(|line| format!("# {}\n", clean(line))).collect()
    }

    /// A whole number between the bounds.
    pub(super) fn integer(
        &mut self,
        place: Place,
        what: &str,
        text: &str,
        min: i64,
        max: i64,
    ) -> Option<i64> {
        let number = text.trim().parse::<i64>().ok().filter(|n| (min..=max).contains(n));
        if number.is_none() {
            let message = format!("{what} is {:?}", shorten(text));
            self.error(place, message, format!("expected a whole number from {min} to {max}"));
        }
        number
    }

    /// A time as a decimal number of `unit`, exact to the nanosecond and at most a year.
    pub(super) fn time(&mut self, place: Place, what: &str, text: &str, unit: Duration) -> Option<Duration> {
        match decimal_time(text.trim(), unit) {
            Ok(time) => Some(time),
            Err(expected) => {
                self.error(place, format!("{what} is {:?}", shorten(text)), format!("expected {expected}"));
                None
            }
        }
    }

    /// Processor numbers as libvirt and xl write them: `0-3,5,^2`; ascending. Why our own: crates for such
    /// lists do not read the exception `^2`.
    pub(super) fn cpu_list(&mut self, place: Place, what: &str, text: &str) -> Option<Vec<usize>> {
        let mut set = std::collections::BTreeSet::new();
        for part in text.split(',') {
            let part = part.trim();
            let (without, range) = part.strip_prefix('^').map_or((false, part), |range| (true, range));
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let number = |text: &str| text.trim().parse::<usize>().ok().filter(|n| *n < PROCESSORS_MAX);
            let (Some(first), Some(last)) = (number(first), number(last)) else {
                let message = format!("{what} is {:?}", shorten(text));
                let expected = format!("expected processors below {PROCESSORS_MAX}, for example 0-3,5,^2");
                self.error(place, message, expected);
                return None;
            };
            if first > last {
                let message = format!("{what} is {:?}", shorten(text));
                self.error(place, message, format!("expected {last}-{first}: ranges ascend"));
                return None;
            }
            for n in first..=last {
                if without {
                    set.remove(&n)
                } else {
                    set.insert(n)
                };
            }
        }
        if set.is_empty() {
            self.error(place, format!("{what} is {:?}", shorten(text)), "expected at least one processor");
            return None;
        }
        Some(set.into_iter().collect())
    }
}

/// The beginning of a text for a message.
pub(super) fn shorten(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().nth(40) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_string(),
    }
}

/// A decimal number of units, at most a year.
///
/// # Errors
/// What was expected, as a phrase.
fn decimal_time(text: &str, unit: Duration) -> Result<Duration, &'static str> {
    let number = text.strip_suffix('.').unwrap_or(text);
    let scaled = if number.contains('_') {
        Err(DecimalError::NoNumber)
    } else {
        quantity::scaled(number, unit.as_ns())
    };
    match scaled.map(u64::try_from) {
        Ok(Ok(ns)) if ns <= YEAR.as_ns() => Ok(Duration::from_ns(ns)),
        Err(DecimalError::NoNumber) => Err("a number that is not negative, for example 2.5"),
        Ok(_) | Err(DecimalError::NotWhole) => Err("whole nanoseconds, at most a year"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact() {
        assert_eq!(decimal_time("30.0", Duration::from_ms(1)), Ok(Duration::from_ms(30)));
        assert_eq!(decimal_time("2.5", Duration::from_us(1)), Ok(Duration::from_ns(2_500)));
        assert_eq!(decimal_time("0.000001", Duration::from_ms(1)), Ok(Duration::from_ns(1)));
        assert_eq!(decimal_time("007", Duration::from_ns(1)), Ok(Duration::from_ns(7)));
        assert_eq!(decimal_time("7.", Duration::from_ns(1)), Ok(Duration::from_ns(7)));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for bad in [
            "",
            ".",
            ".5",
            "-1",
            "1e3",
            "1_0",
            "2,5",
            "0.0000001",
            "NaN",
            "99999999999999999999",
            "1.2.3",
            "1..",
        ] {
            assert!(decimal_time(bad, Duration::from_ms(1)).is_err(), "{bad}");
        }
    }
}
