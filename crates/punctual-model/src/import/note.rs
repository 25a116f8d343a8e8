//! What an import did not carry over.

use serde::Serialize;

/// Something of a file that did not become part of the host file, or became something else.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Note {
    /// The file.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// What it is about and what became of it.
    pub text: String,
}
