//! Texts that are read, and places in them.

use std::ops::Range;

/// Where a text comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The file of this name.
    File(String),
    /// A file of this name that could not be read: there is no text to show.
    Unreadable(String),
    /// A command-line option that changed the file.
    Option(&'static str),
}

/// A text that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) origin: Origin,
    pub(crate) text: String,
    /// Where its lines begin.
    lines: Vec<usize>,
}

impl Source {
    pub(crate) fn new(origin: Origin, text: String) -> Self {
        let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Source { origin, text, lines }
    }

    /// The name of the file; `None` for an option.
    pub(crate) fn file_name(&self) -> Option<&str> {
        match &self.origin {
            Origin::File(name) | Origin::Unreadable(name) => Some(name),
            Origin::Option(_) => None,
        }
    }

    /// Line and column, from 1, of the byte at `at`.
    pub(crate) fn line_and_column(&self, at: usize) -> (usize, usize) {
        let line = self.lines.partition_point(|start| *start <= at).max(1);
        (line, self.text[self.lines[line - 1]..at].chars().count() + 1)
    }

    /// Where a line and column, from 1, are; at most the end of the text.
    pub(crate) fn offset(&self, line: usize, column: usize) -> usize {
        let start = self.lines.get(line.saturating_sub(1)).copied().unwrap_or(self.text.len());
        let rest = &self.text[start..];
        start + rest.char_indices().nth(column.saturating_sub(1)).map_or(rest.len(), |(at, _)| at)
    }

    /// `range` widened to whole characters of the text, and cut to its length.
    pub(crate) fn whole_characters(&self, range: Range<usize>) -> Range<usize> {
        let start = self.text.floor_char_boundary(range.start.min(self.text.len()));
        start..self.text.ceil_char_boundary(range.end.clamp(start, self.text.len()))
    }
}

/// A range of bytes in a [`Source`], by the source's number. The host file is number 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub(crate) source: usize,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Place {
    /// The beginning of the first file: for what is missing altogether.
    pub(crate) const TOP: Place = Place { source: 0, start: 0, end: 0 };

    pub(crate) fn new(source: usize, range: Range<usize>) -> Self {
        Place { source, start: range.start, end: range.end }
    }
}

/// Where parameters or options were given, for errors that are found later.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places(Vec<(&'static str, Place)>);

impl Places {
    pub(crate) fn add(&mut self, name: &'static str, place: Place) {
        self.0.push((name, place));
    }

    /// Where `name` was given last.
    pub(crate) fn of(&self, name: &str) -> Option<Place> {
        self.0.iter().rev().find(|(given, _)| *given == name).map(|(_, place)| *place)
    }
}
