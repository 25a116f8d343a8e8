//! A conversation with a program of the host that reaches a guest.

use std::io::{self, Read, Write};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use punctual_linux::child;

/// The most that is read of a report: 4,096 processors need 100 MiB.
const REPORT_BYTES_MAX: u64 = 256 << 20;
/// The most that is read of an error.
const ERROR_BYTES_MAX: u64 = 4 << 10;
/// How often a stop is looked for.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How a conversation with a program of the host ended.
pub(super) enum Converse {
    /// By itself, with what it printed to standard output and standard error.
    Ended(ExitStatus, Vec<u8>, Vec<u8>),
    Stopped,
    Silent,
}

/// Runs a program of the host, sends it the input and reads what it prints.
pub(super) fn converse(
    mut command: Command,
    input: &'static [u8],
    until: Instant,
    stopped: &dyn Fn() -> bool,
) -> io::Result<Converse> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut program = child::spawn(command, Vec::new())?;
    let (to, output, error) = (program.stdin.take(), program.stdout.take(), program.stderr.take());
    // A guest that ends early breaks the pipe, and its error message says why.
    let write = std::thread::spawn(move || to.map(|mut to| to.write_all(input)));
    let read = |from: Option<Box<dyn Read + Send>>, most: u64| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let Some(mut from) = from else { return bytes };
            let _ = from.by_ref().take(most).read_to_end(&mut bytes);
            // So that it can end.
            let _ = io::copy(&mut from, &mut io::sink());
            bytes
        })
    };
    let output = read(output.map(|from| Box::new(from) as Box<dyn Read + Send>), REPORT_BYTES_MAX);
    let error = read(error.map(|from| Box::new(from) as Box<dyn Read + Send>), ERROR_BYTES_MAX);
    let mut unfinished = None;
    while !(write.is_finished() && output.is_finished() && error.is_finished()) {
        if stopped() {
            unfinished = Some(Converse::Stopped);
        } else if Instant::now() > until {
            unfinished = Some(Converse::Silent);
        }
        if unfinished.is_some() {
            break;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    // Fails only when it has ended.
    let _ = program.kill();
    let status = program.wait()?;
    Ok(unfinished.unwrap_or_else(|| {
        Converse::Ended(status, output.join().unwrap_or_default(), error.join().unwrap_or_default())
    }))
}

/// The last line of what a program printed to standard error, or this in place of nothing.
pub(super) fn last_line(error: &[u8], otherwise: &str) -> String {
    let error = String::from_utf8_lossy(error);
    error.trim().lines().next_back().unwrap_or(otherwise).to_owned()
}
