//! What a journal says, line by line.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use super::{Change, Identity, directory};

/// What a journal says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// The changes, in the order in which they were made.
    pub changes: Vec<Change>,
    /// The lines that are no changes: which one, and why.
    pub unreadable: Vec<String>,
}

/// The run that wrote a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunOf<'a> {
    /// The process that enforces.
    pub enforcer: Identity,
    /// What is run: the host's name.
    pub name: &'a str,
    /// The boot of the machine in which it began.
    pub boot: &'a str,
}

/// How much of an unreadable line is shown.
const SHOWN_MAX: usize = 60;

impl Contents {
    /// Takes the bytes of a journal apart. A last line that is incomplete is left out: its change was not
    /// made.
    pub fn parse(bytes: &[u8]) -> Contents {
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(&[][..], |end| &bytes[..end]);
        let mut contents = Contents::default();
        for (index, line) in whole.split(|&byte| byte == b'\n').enumerate() {
            match serde_json::from_slice(line) {
                Ok(change) => contents.changes.push(change),
                // An empty file has one empty line.
                Err(_) if whole.is_empty() => {}
                Err(e) => {
                    // Both may hold what a terminal obeys.
                    let error = e.to_string();
                    let error = error.escape_debug();
                    let text = String::from_utf8_lossy(line);
                    let start: String = text.chars().take(SHOWN_MAX).collect();
                    contents.unreadable.push(format!("line {}: {error}: {start:?}", index + 1));
                }
            }
        }
        contents
    }

    /// Reads all of an open journal, but for what concerned processes that the run has let go of.
    pub(super) fn of(mut file: &File) -> io::Result<Contents> {
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(0))?;
        file.read_to_end(&mut bytes)?;
        Ok(Contents::parse(&bytes).without_released())
    }

    /// The run that wrote it; `None` when it did not come to that.
    pub fn run(&self) -> Option<RunOf<'_>> {
        self.changes.iter().find_map(|change| match change {
            Change::Run { enforcer, name, boot } => Some(RunOf { enforcer: *enforcer, name, boot }),
            _ => None,
        })
    }

    /// Does its run go on?
    pub fn is_running(&self) -> bool {
        self.run().is_some_and(|run| run.boot == boot_id() && run.enforcer.is_alive())
    }

    /// Was it written before the machine was started?
    pub(super) fn is_of_earlier_boot(&self) -> bool {
        self.run().is_some_and(|run| run.boot != boot_id())
    }
}

/// Reads a journal.
///
/// # Errors
/// As `open(2)` and `read(2)`; somebody else may have written it ([`super::TrustError`]).
pub fn read(path: &Path) -> io::Result<Contents> {
    Contents::of(&directory::open_file(path)?)
}

/// What names this boot of the machine; empty on kernels without it.
pub(super) fn boot_id() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}
