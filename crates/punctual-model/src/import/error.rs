//! What is wrong with imported files, where, and what was expected.

use std::fmt;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use serde::Serialize;

use super::source::{Place, Source};

/// Errors shown at most; the rest is only counted.
const SHOWN_MAX: usize = 40;

/// One error before it is placed in its text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Problem {
    pub(super) place: Place,
    pub(super) message: String,
    pub(super) expected: String,
}

/// One error of an imported file, for machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ErrorRecord {
    /// The file.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong.
    pub message: String,
    /// What was expected.
    pub expected: String,
}

/// Everything that is wrong with the files of an import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Errors {
    sources: Vec<Source>,
    problems: Vec<Problem>,
}

impl Errors {
    pub(super) fn new(sources: Vec<Source>, mut problems: Vec<Problem>) -> Self {
        problems.sort();
        problems.dedup();
        Errors { sources, problems }
    }

    /// The errors for machines, in the order of the files.
    pub fn records(&self) -> Vec<ErrorRecord> {
        let record = |problem: &Problem| {
            let source = &self.sources[problem.place.file];
            let (line, column) = source.line_and_column(problem.place.start);
            ErrorRecord {
                file: source.name.clone(),
                line,
                column,
                message: problem.message.clone(),
                expected: problem.expected.clone(),
            }
        };
        self.problems.iter().map(record).collect()
    }

    /// For people: each error with its place and the line. `colour` adds terminal escapes.
    pub fn render(&self, colour: bool) -> String {
        let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
        let mut out = String::new();
        for problem in self.problems.iter().take(SHOWN_MAX) {
            let Source { name, text, .. } = &self.sources[problem.place.file];
            let mark = AnnotationKind::Primary
                .span(problem.place.start..problem.place.end)
                .label(problem.expected.as_str());
            let snippet = Snippet::source(text.as_str()).path(name.as_str()).annotation(mark);
            let group = Level::ERROR.primary_title(problem.message.as_str()).element(snippet);
            out += &renderer.render(&[group]);
            out += "\n\n";
        }
        match self.problems.len() {
            1 => out.truncate(out.len() - 1),
            n if n > SHOWN_MAX => out += &format!("{n} errors, the first {SHOWN_MAX} shown\n"),
            n => out += &format!("{n} errors\n"),
        }
        out
    }
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.render(false).trim_end())
    }
}

impl std::error::Error for Errors {}
