//! Lines on the channel: one JSON value each.

use std::fmt;
use std::io::{self, BufRead, Read, Write};

use serde::{Deserialize, Serialize};

/// Longest line in bytes, its end included.
pub const LINE_BYTES_MAX: usize = 128 * 1024;

/// Why nothing could be received.
#[derive(Debug)]
pub enum ReceiveError {
    /// The other side is gone.
    Closed,
    /// Reading failed; a time-out too.
    Io(io::Error),
    /// A line came that is not of the protocol.
    Malformed(MalformedLine),
}

impl fmt::Display for ReceiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReceiveError::Closed => write!(f, "the other side closed the channel"),
            ReceiveError::Io(error) => write!(f, "reading from the channel failed: {error}"),
            ReceiveError::Malformed(why) => write!(f, "the other side does not speak the protocol: {why}"),
        }
    }
}

impl std::error::Error for ReceiveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ReceiveError::Closed => None,
            ReceiveError::Io(error) => Some(error),
            ReceiveError::Malformed(why) => Some(why),
        }
    }
}

/// What is wrong with a line.
#[derive(Debug)]
pub enum MalformedLine {
    /// It is longer than [`LINE_BYTES_MAX`].
    TooLong,
    /// It is not the JSON of a message.
    Json {
        /// What is wrong with it.
        error: serde_json::Error,
        /// How it begins.
        start: String,
    },
}

impl fmt::Display for MalformedLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MalformedLine::TooLong => write!(f, "a line is longer than {LINE_BYTES_MAX} bytes"),
            MalformedLine::Json { error, start } => {
                write!(f, "{error}, in a line that starts with {start:?}")
            }
        }
    }
}

impl std::error::Error for MalformedLine {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            MalformedLine::TooLong => None,
            MalformedLine::Json { error, .. } => Some(error),
        }
    }
}

/// Reads one value; empty lines before it are skipped.
///
/// # Errors
/// [`ReceiveError`]. After a malformed line the next call goes on with the next line, unless the line was too
/// long.
pub fn receive<T: for<'a> Deserialize<'a>>(reader: &mut impl BufRead) -> Result<T, ReceiveError> {
    let mut line = Vec::new();
    loop {
        line.clear();
        // The limit is on what is read, so that a line without end takes no memory.
        let limit = LINE_BYTES_MAX as u64;
        Read::take(&mut *reader, limit).read_until(b'\n', &mut line).map_err(ReceiveError::Io)?;
        if line.is_empty() {
            return Err(ReceiveError::Closed);
        }
        if line.last() != Some(&b'\n') && line.len() == LINE_BYTES_MAX {
            return Err(ReceiveError::Malformed(MalformedLine::TooLong));
        }
        let text = line.trim_ascii();
        if text.is_empty() {
            continue;
        }
        return serde_json::from_slice(text).map_err(|error| {
            let start = String::from_utf8_lossy(text).chars().take(80).collect();
            ReceiveError::Malformed(MalformedLine::Json { error, start })
        });
    }
}

/// Writes one value and flushes.
///
/// # Errors
/// When writing fails.
pub fn send<T: Serialize>(writer: &mut impl Write, value: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(value).map_err(io::Error::other)?;
    line.push(b'\n');
    writer.write_all(&line)?;
    writer.flush()
}
