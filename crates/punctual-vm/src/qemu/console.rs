//! Keeps the last lines that a VM and its QEMU wrote, for messages about what went wrong.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Lines kept.
const LINES_MAX: usize = 50;
/// Bytes kept of a line.
const LINE_BYTES_MAX: usize = 300;

/// The last lines of some streams.
#[derive(Clone, Debug, Default)]
pub(super) struct Console(Arc<(Mutex<Contents>, Condvar)>);

#[derive(Debug, Default)]
struct Contents {
    lines: VecDeque<String>,
    /// How many streams are read that have not ended. Notified when it falls.
    streams: usize,
}

impl Console {
    /// Reads `stream` in a thread of its own, until the stream ends.
    ///
    /// # Errors
    /// No thread can be started.
    pub(super) fn follow(&self, stream: impl Read + Send + 'static) -> io::Result<()> {
        let console = self.clone();
        self.contents().streams += 1;
        let read = move || {
            console.read(stream);
            console.count_end();
        };
        let started = std::thread::Builder::new().name("console".into()).spawn(read);
        started.map(drop).inspect_err(|_| self.count_end())
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count_end(&self) {
        self.contents().streams -= 1;
        self.0.1.notify_all();
    }

    /// Waits until all streams have ended and been read, for `limit` at most.
    pub(super) fn wait_for_end(&self, limit: Duration) {
        // Whether it waited long enough or not, what is there is all that can be said.
        drop(self.0.1.wait_timeout_while(self.contents(), limit, |contents| contents.streams > 0));
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
        let mut contents = self.contents();
        if contents.lines.len() == LINES_MAX {
            contents.lines.pop_front();
        }
        contents.lines.push_back(line);
    }

    /// The last lines, at most `count`, oldest first.
    pub(super) fn last(&self, count: usize) -> Vec<String> {
        let lines = &self.contents().lines;
        lines.iter().skip(lines.len().saturating_sub(count)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_stream_said_last_is_there_when_it_has_ended() {
        let console = Console::default();
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a pair");
        console.follow(theirs).expect("a thread");
        console.wait_for_end(Duration::from_millis(1));
        let speak = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            io::Write::write_all(&mut &ours, b"no-such-option").expect("read");
        });
        console.wait_for_end(Duration::from_secs(60));
        assert_eq!(console.last(1), ["no-such-option"]);
        speak.join().expect("no panic");
    }

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
