//! Keeps the last lines that a VM and its QEMU wrote, for messages about what went wrong.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError};

/// Lines kept.
const LINES_MAX: usize = 50;
/// Bytes kept of a line.
const LINE_BYTES_MAX: usize = 300;

/// The last lines of some streams.
#[derive(Clone, Debug, Default)]
pub(super) struct Console(Arc<Mutex<VecDeque<String>>>);

impl Console {
    /// Reads `stream` in a thread of its own, until the stream ends.
    ///
    /// # Errors
    /// No thread can be started.
    pub(super) fn follow(&self, stream: impl Read + Send + 'static) -> io::Result<()> {
        let console = self.clone();
        std::thread::Builder::new().name("console".into()).spawn(move || console.read(stream))?;
        Ok(())
    }

    fn read(&self, mut stream: impl Read) {
        let (mut buffer, mut line) = ([0; 4096], Vec::new());
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            for &byte in &buffer[..count] {
                match byte {
                    b'\n' => self.add(&std::mem::take(&mut line)),
                    _ if line.len() < LINE_BYTES_MAX => line.push(byte),
                    _ => {}
                }
            }
        }
        self.add(&line);
    }

    /// Keeps a line; control characters, which could confuse a terminal, are dropped.
    fn add(&self, line: &[u8]) {
        let line: String = String::from_utf8_lossy(line).chars().filter(|c| !c.is_control()).collect();
        if line.trim().is_empty() {
            return;
        }
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// The last lines, at most `count`, oldest first.
    pub(super) fn last(&self, count: usize) -> Vec<String> {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().skip(lines.len().saturating_sub(count)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_without_control_characters_and_without_limitless_ones() {
        let console = Console::default();
        let mut text: String = (0..60).map(|n| format!("line {n}\r\n")).collect();
        text += &format!("\x1b[31mred\n\n{}", "x".repeat(5000));
        console.read(text.as_bytes());
        let lines = console.last(1000);
        assert_eq!(lines.len(), LINES_MAX);
        assert_eq!(lines[0], "line 12");
        assert_eq!(lines[LINES_MAX - 2], "[31mred");
        assert_eq!(lines[LINES_MAX - 1].len(), LINE_BYTES_MAX);
        assert_eq!(console.last(2), lines[LINES_MAX - 2..]);
    }
}
