//! What is wrong with a host file, where, and what was expected.

use std::fmt;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use serde::Serialize;

/// Errors shown at most; the rest is only counted.
const SHOWN_MAX: usize = 40;

/// Where a text comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The host file of this name.
    File(String),
    /// A host file of this name that could not be read: there is no text to show.
    Unreadable(String),
    /// A command-line option that changed the file.
    Option(&'static str),
}

/// A text that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) origin: Origin,
    pub(crate) text: String,
}

/// A range of bytes in a [`Source`]; the file is number 0.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub(crate) source: usize,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Place {
    pub(crate) fn new(source: usize, range: Range<usize>) -> Self {
        Place { source, start: range.start, end: range.end }
    }

    /// The beginning of the file: for what is missing altogether.
    pub(crate) fn top() -> Self {
        Place::new(0, 0..0)
    }
}

/// One error before it is placed in its text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Problem {
    pub(crate) place: Place,
    pub(crate) message: String,
    pub(crate) expected: String,
    pub(crate) nearest: Option<String>,
}

/// One error of a host file, for machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ErrorRecord {
    /// The host file; `None` when a command-line option is at fault.
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

/// Everything that is wrong with a host file and the options that changed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Errors {
    sources: Vec<Source>,
    problems: Vec<Problem>,
}

impl Errors {
    /// Sorted by place, each once.
    pub(crate) fn new(sources: Vec<Source>, mut problems: Vec<Problem>) -> Self {
        problems.sort();
        problems.dedup();
        Errors { sources, problems }
    }

    /// A file that could not be read at all.
    pub(crate) fn unreadable(file: &str, message: String, expected: &str) -> Self {
        let source = Source { origin: Origin::Unreadable(file.into()), text: String::new() };
        let problem = Problem { place: Place::top(), message, expected: expected.into(), nearest: None };
        Errors { sources: vec![source], problems: vec![problem] }
    }

    /// How many there are, at least one.
    pub fn count(&self) -> usize {
        self.problems.len()
    }

    /// The errors for machines, in the order of the file.
    pub fn records(&self) -> Vec<ErrorRecord> {
        self.problems.iter().map(|p| self.record(p)).collect()
    }

    fn record(&self, problem: &Problem) -> ErrorRecord {
        let Source { origin, text } = &self.sources[problem.place.source];
        let before = &text[..problem.place.start];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let (file, option) = match origin {
            Origin::File(name) | Origin::Unreadable(name) => (Some(name.clone()), None),
            Origin::Option(flag) => (None, Some(*flag)),
        };
        ErrorRecord {
            file,
            option,
            line: before.bytes().filter(|&b| b == b'\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            text: text[problem.place.start..problem.place.end].to_string(),
            message: problem.message.clone(),
            expected: problem.expected.clone(),
            nearest: problem.nearest.clone(),
        }
    }

    /// For people: each error with its place, the line and what was expected under the offending text.
    /// `colour` adds terminal escapes.
    pub fn render(&self, colour: bool) -> String {
        let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
        let mut out = String::new();
        for problem in self.problems.iter().take(SHOWN_MAX) {
            out.push_str(&self.render_one(problem, &renderer));
            out.push_str("\n\n");
        }
        match self.problems.len() {
            1 => out.truncate(out.len() - 1),
            n if n > SHOWN_MAX => out.push_str(&format!("{n} errors, the first {SHOWN_MAX} shown\n")),
            n => out.push_str(&format!("{n} errors\n")),
        }
        out
    }

    fn render_one(&self, problem: &Problem, renderer: &Renderer) -> String {
        let Source { origin, text } = &self.sources[problem.place.source];
        let path = match origin {
            Origin::File(name) => name.as_str(),
            Origin::Option(_) => "command line",
            Origin::Unreadable(_) => {
                let title = Level::ERROR.primary_title(problem.message.as_str());
                return renderer.render(&[annotate_snippets::Group::with_title(title)]);
            }
        };
        let range = problem.place.start..problem.place.end;
        let mark = AnnotationKind::Primary.span(range).label(problem.expected.as_str());
        let mut group = Level::ERROR
            .primary_title(problem.message.as_str())
            .element(Snippet::source(text.as_str()).path(path).annotation(mark));
        if let Some(nearest) = &problem.nearest {
            group = group.element(Level::HELP.message(format!("did you mean `{nearest}`?")));
        }
        renderer.render(&[group])
    }
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.render(false).trim_end())
    }
}

impl std::error::Error for Errors {}

/// Words that other tools use for a key.
const SYNONYMS: [(&str, &str); 8] = [
    ("wcet", "cost"),
    ("execution_time", "cost"),
    ("interarrival", "separation"),
    ("cores", "processors"),
    ("cpus", "processors"),
    ("pcpus", "processors"),
    ("scheduler", "policy"),
    ("slice", "budget"),
];

/// The name among `valid` that `given` was probably meant to be: few typing errors away (insertions,
/// deletions, replacements, swaps; at most a third of its length), a part of it, or another tool's word for
/// it.
pub(crate) fn nearest<'a>(given: &str, valid: impl IntoIterator<Item = &'a str>) -> Option<String> {
    // Longer texts are not names; comparing them would cost the square of their length.
    if given.len() > 64 {
        return None;
    }
    let folded = given.to_lowercase().replace([' ', '-'], "_");
    let distance = |name: &str| {
        let name = name.replace('-', "_");
        let typed = strsim::damerau_levenshtein(&folded, &name);
        let part = folded.len() >= 3 && (name.contains(&folded) || folded.starts_with(&name));
        let synonym = SYNONYMS.contains(&(folded.as_str(), name.as_str()));
        if part || synonym { typed.min(1) } else { typed }
    };
    let allowed = (folded.chars().count() / 3).max(1);
    valid
        .into_iter()
        .filter(|name| *name != given)
        .map(|name| (distance(name), name))
        .min_by_key(|(d, _)| *d)
        .filter(|(d, _)| *d <= allowed)
        .map(|(_, name)| name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_through_typing_errors_and_abbreviations() {
        let names = ["budget", "period", "priority", "cap_percent"];
        assert_eq!(nearest("bugdet", names).as_deref(), Some("budget"));
        assert_eq!(nearest("Period", names).as_deref(), Some("period"));
        assert_eq!(nearest("cap", names).as_deref(), Some("cap_percent"));
        assert_eq!(nearest("slice", names).as_deref(), Some("budget"));
        assert_eq!(nearest("colour", names), None);
    }
}
