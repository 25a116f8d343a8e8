//! The texts of imported files, and places in them.

/// A file's name and text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) name: String,
    pub(super) text: String,
    /// Where its lines begin.
    lines: Vec<usize>,
}

impl Source {
    pub(super) fn new(name: &str, text: String) -> Self {
        let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Source { name: name.into(), text, lines }
    }

    /// Line and column, from 1, of the byte at `at`.
    pub(super) fn line_and_column(&self, at: usize) -> (usize, usize) {
        let line = self.lines.partition_point(|start| *start <= at).max(1);
        (line, self.text[self.lines[line - 1]..at].chars().count() + 1)
    }

    /// Where a line and column, from 1, are; at most the end of the text.
    pub(super) fn offset(&self, line: usize, column: usize) -> usize {
        let start = self.lines.get(line.saturating_sub(1)).copied().unwrap_or(self.text.len());
        let rest = &self.text[start..];
        start + rest.char_indices().nth(column.saturating_sub(1)).map_or(rest.len(), |(at, _)| at)
    }
}

/// A range of bytes in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) file: usize,
    pub(super) start: usize,
    pub(super) end: usize,
}
