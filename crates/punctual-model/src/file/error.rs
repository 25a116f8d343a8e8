//! What is wrong with a file, where, and what was expected.

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use serde::Serialize;

use super::source::{Origin, Place, Source};
use crate::text::printable;

/// Errors shown at most; the rest is only counted.
const SHOWN_MAX: usize = 40;

/// One error before it is placed in its text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Error {
    place: Place,
    message: String,
    expected: String,
    nearest: Option<String>,
}

/// One error of a file, for machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ErrorRecord {
    /// The file; `None` when a command-line option is at fault.
    pub file: Option<String>,
    /// The command-line option at fault, without its value.
    pub option: Option<&'static str>,
    /// Line in the file (or the option's text), from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The offending text; empty when something is missing.
    pub text: String,
    /// What is wrong.
    pub message: String,
    /// What was expected.
    pub expected: String,
    /// The nearest valid name.
    pub nearest: Option<String>,
}

/// Everything that is wrong with the files that were read and the options that changed them.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.render(false).trim_end())]
pub struct Errors {
    sources: Vec<Source>,
    list: Vec<Error>,
}

impl Errors {
    /// No errors yet, for the text of a file.
    pub(crate) fn in_file(name: &str, text: impl Into<String>) -> Self {
        let mut errors = Errors::default();
        errors.add_source(Source::new(Origin::File(name.into()), text.into()));
        errors
    }

    /// The single error that a file could not be read at all.
    pub(crate) fn unreadable(file: &str, message: String, expected: &str) -> Self {
        let mut errors = Errors::default();
        errors.add_source(Source::new(Origin::Unreadable(file.into()), String::new()));
        errors.add(Place::TOP, message, expected);
        errors
    }

    /// Adds a text that errors can point into and returns its number.
    pub(crate) fn add_source(&mut self, source: Source) -> usize {
        self.sources.push(source);
        self.sources.len() - 1
    }

    /// The texts in the order in which they were added.
    pub(crate) fn sources(&self) -> &[Source] {
        &self.sources
    }

    pub(crate) fn add(&mut self, place: Place, message: impl Into<String>, expected: impl Into<String>) {
        self.add_nearest(place, message, expected, None);
    }

    /// Adds an error about a name; `nearest` is a valid one that was probably meant.
    pub(crate) fn add_nearest(
        &mut self,
        place: Place,
        message: impl Into<String>,
        expected: impl Into<String>,
        nearest: Option<String>,
    ) {
        let (message, expected) = (message.into(), expected.into());
        self.list.push(Error { place, message, expected, nearest });
    }

    /// The errors sorted by place, each once.
    pub(crate) fn sorted(mut self) -> Self {
        self.list.sort();
        self.list.dedup();
        self
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.list.len()
    }

    /// The errors for machines, in the order of the files.
    pub fn records(&self) -> Vec<ErrorRecord> {
        self.list.iter().map(|error| self.record(error)).collect()
    }

    fn record(&self, error: &Error) -> ErrorRecord {
        let source = &self.sources[error.place.source];
        let (line, column) = source.line_and_column(error.place.start);
        let option = match source.origin {
            Origin::Option(flag) => Some(flag),
            Origin::File(_) | Origin::Unreadable(_) => None,
        };
        ErrorRecord {
            file: source.file_name().map(String::from),
            option,
            line,
            column,
            text: source.text[error.place.start..error.place.end].to_string(),
            message: error.message.clone(),
            expected: error.expected.clone(),
            nearest: error.nearest.clone(),
        }
    }

    /// For people: each error with its place, the line and what was expected under the offending text.
    /// `colour` adds terminal escapes.
    pub fn render(&self, colour: bool) -> String {
        let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
        let mut out = String::new();
        for error in self.list.iter().take(SHOWN_MAX) {
            out.push_str(&self.render_one(error, &renderer));
            out.push_str("\n\n");
        }
        match self.list.len() {
            1 => out.truncate(out.len() - 1),
            n if n > SHOWN_MAX => out.push_str(&format!("{n} errors, the first {SHOWN_MAX} shown\n")),
            n => out.push_str(&format!("{n} errors\n")),
        }
        out
    }

    fn render_one(&self, error: &Error, renderer: &Renderer) -> String {
        let Source { origin, text, .. } = &self.sources[error.place.source];
        // The renderer escapes lines of the file, but not its name.
        let path = match origin {
            Origin::File(name) => printable(name),
            Origin::Option(_) => "command line".into(),
            Origin::Unreadable(_) => {
                let title = Level::ERROR.primary_title(error.message.as_str());
                return renderer.render(&[annotate_snippets::Group::with_title(title)]);
            }
        };
        let range = error.place.start..error.place.end;
        let mark = AnnotationKind::Primary.span(range).label(error.expected.as_str());
        let mut group = Level::ERROR
            .primary_title(error.message.as_str())
            .element(Snippet::source(text.as_str()).path(path.as_ref()).annotation(mark));
        if let Some(nearest) = &error.nearest {
            group = group.element(Level::HELP.message(format!("did you mean `{nearest}`?")));
        }
        renderer.render(&[group])
    }
}
