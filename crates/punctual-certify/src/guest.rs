//! Guests: any Linux that runs a shell command for us. The guest program is copied there, measures the
//! guest's processors by the loops that measure the host, and is removed.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use punctual_guest::latency::{Plan, Report};
use punctual_linux::child;
use punctual_vm::workload::PROGRAM;

/// How a guest is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// By ssh, with a key: nobody types a password.
    Ssh(String),
    /// By a command of the host that runs the shell command in its last argument.
    Command(String),
}

/// A guest to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guest {
    /// Its name in limits and certificates.
    pub name: String,
    /// How it is reached.
    pub reach: Reach,
}

/// Why a guest was not measured.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// The command cannot be started.
    #[error("cannot be reached: {0}")]
    Start(#[source] std::io::Error),
    /// The command failed, in the guest or on the way there.
    #[error("{0}: {1}")]
    Failed(std::process::ExitStatus, String),
    /// It took too long.
    #[error("no answer within {0} s")]
    Silent(u64),
    /// What it printed is no report.
    #[error("its report is not understood: {0}")]
    Report(#[source] serde_json::Error),
    /// The test was stopped.
    #[error("stopped")]
    Stopped,
}

/// What copying the program and starting it may take beyond the measurement.
const PATIENCE: Duration = Duration::from_secs(60);
/// The most that is read of a report: 4,096 processors need 100 MiB.
const REPORT_BYTES_MAX: u64 = 256 << 20;
/// The most that is read of an error.
const ERROR_BYTES_MAX: u64 = 4 << 10;
/// How often a stop is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(50);

impl Guest {
    /// `ssh:HOST` or `ssh:NAME=HOST`; a host has its name without the user.
    ///
    /// # Errors
    /// What was expected, as a phrase.
    pub fn parse(text: &str) -> Result<Guest, String> {
        let Some(place) = text.strip_prefix("ssh:") else {
            return Err("expected ssh:HOST or ssh:NAME=HOST".into());
        };
        let (name, host) = match place.split_once('=') {
            Some(pair) => pair,
            None => (place.rsplit('@').next().unwrap_or(place), place),
        };
        // What begins with a hyphen is an option of ssh.
        if host.is_empty() || host.starts_with('-') {
            return Err("expected ssh:HOST or ssh:NAME=HOST, where HOST is one that ssh takes".into());
        }
        Ok(Guest { name: checked(name)?, reach: Reach::Ssh(host.into()) })
    }

    /// `NAME=COMMAND`.
    ///
    /// # Errors
    /// What was expected, as a phrase.
    pub fn parse_command(text: &str) -> Result<Guest, String> {
        match text.split_once('=') {
            Some((name, command)) if !command.trim().is_empty() => {
                Ok(Guest { name: checked(name)?, reach: Reach::Command(command.trim().into()) })
            }
            _ => Err("expected NAME=COMMAND, for example 'vm1=ssh root@vm1'".into()),
        }
    }

    /// The command that runs a shell command in the guest.
    fn command(&self, script: &str) -> Command {
        match &self.reach {
            Reach::Ssh(host) => {
                let mut command = Command::new("ssh");
                command.args(["-o", "BatchMode=yes", "--", host, script]);
                command
            }
            Reach::Command(prefix) => {
                let mut command = Command::new("sh");
                command.args(["-c", &format!("{prefix} \"$1\""), "sh", script]);
                command
            }
        }
    }

    /// Measures the guest; `stopped` ends it early, and then there is no report.
    pub(crate) fn measure(&self, plan: &Plan, stopped: &dyn Fn() -> bool) -> Result<Report, GuestError> {
        let mut command = self.command(&script(plan));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut program = child::spawn(command, Vec::new()).map_err(GuestError::Start)?;
        let length = Duration::from_nanos(plan.spin_ns + plan.wakeup_ns) + PATIENCE;
        let output = converse(&mut program, Instant::now() + length, stopped);
        // Fails only when it has ended.
        let _ = program.kill();
        let status = program.wait().map_err(GuestError::Start)?;
        match output {
            Converse::Ended(report, _) if status.success() => {
                serde_json::from_slice(&report).map_err(GuestError::Report)
            }
            Converse::Ended(_, error) => {
                let error = String::from_utf8_lossy(&error);
                let line = error.trim().lines().next_back().unwrap_or("no error message").to_owned();
                Err(GuestError::Failed(status, line))
            }
            Converse::Stopped => Err(GuestError::Stopped),
            Converse::Silent => Err(GuestError::Silent(length.as_secs())),
        }
    }
}

/// A name that a limits file can have as well.
fn checked(name: &str) -> Result<String, String> {
    let valid = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > 64 || name.starts_with('-') || !name.chars().all(valid) {
        return Err(format!("`{name}` cannot be a name: NAME= gives one of the characters A-Z a-z 0-9 - _"));
    }
    Ok(name.to_owned())
}

/// What runs in the guest: standard input is the program.
fn script(plan: &Plan) -> String {
    // Whole numbers and lists alone: nothing that a shell would take for something else.
    let plan = serde_json::to_string(plan).unwrap_or_default();
    format!(
        "d=$(mktemp -d) && trap 'rm -rf \"$d\"' EXIT && cat >\"$d/punctual-guest\" && \
         chmod 700 \"$d/punctual-guest\" && \"$d/punctual-guest\" latency '{plan}'"
    )
}

enum Converse {
    /// What it printed to standard output and standard error.
    Ended(Vec<u8>, Vec<u8>),
    Stopped,
    Silent,
}

/// Sends the program and reads the answer.
fn converse(program: &mut Child, until: Instant, stopped: &dyn Fn() -> bool) -> Converse {
    let (input, output, error) = (program.stdin.take(), program.stdout.take(), program.stderr.take());
    // A guest that ends early breaks the pipe, and its error message says why.
    let write = std::thread::spawn(move || input.map(|mut input| input.write_all(PROGRAM)));
    let read = |from: Option<Box<dyn Read + Send>>, most: u64| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let Some(mut from) = from else { return bytes };
            let _ = from.by_ref().take(most).read_to_end(&mut bytes);
            // So that it can end.
            let _ = std::io::copy(&mut from, &mut std::io::sink());
            bytes
        })
    };
    let output = read(output.map(|from| Box::new(from) as Box<dyn Read + Send>), REPORT_BYTES_MAX);
    let error = read(error.map(|from| Box::new(from) as Box<dyn Read + Send>), ERROR_BYTES_MAX);
    while !(write.is_finished() && output.is_finished() && error.is_finished()) {
        if stopped() {
            return Converse::Stopped;
        }
        if Instant::now() > until {
            return Converse::Silent;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Converse::Ended(output.join().unwrap_or_default(), error.join().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up;
    use punctual_guest::latency::Kind;

    #[test]
    fn guests_have_names_and_ways() {
        let ssh = |name: &str, host: &str| Guest { name: name.into(), reach: Reach::Ssh(host.into()) };
        assert_eq!(Guest::parse("ssh:root@vm1"), Ok(ssh("vm1", "root@vm1")));
        assert_eq!(Guest::parse("ssh:vm1=root@10.0.0.7"), Ok(ssh("vm1", "root@10.0.0.7")));
        for wrong in ["vm1", "ssh:", "ssh:=h", "ssh:-oProxyCommand=x", "ssh:a=-oX", "ssh:10.0.0.7"] {
            assert!(Guest::parse(wrong).is_err(), "{wrong}");
        }
        assert!(Guest::parse_command("vm1=").is_err() && Guest::parse_command("ssh vm1").is_err());
    }

    #[test]
    fn a_shell_is_a_guest_and_nothing_is_left_there() {
        let directory = tempfile::tempdir().expect("a directory");
        let command = format!("here=TMPDIR={} sh -c", directory.path().display());
        let guest = Guest::parse_command(&command).expect("a guest");
        let report = guest.measure(&made_up::plan(100_000_000), &|| false).expect("measured");
        assert!(report.measured.iter().all(|one| one.kind == Kind::Wakeup));
        assert!(!report.measured.is_empty());
        assert_eq!(directory.path().read_dir().expect("readable").count(), 0, "the program was removed");
    }

    #[test]
    fn a_guest_that_fails_is_quoted_and_one_that_is_stopped_ends_at_once() {
        let guest = Guest::parse_command("vm1=sh -c 'echo no route >&2; exit 4'").expect("a guest");
        let error = guest.measure(&made_up::plan(100_000_000), &|| false).expect_err("it fails").to_string();
        assert_eq!(error, "exit status: 4: no route");
        let guest = Guest::parse_command("vm1=sh -c 'echo {}; exit 0'").expect("a guest");
        assert!(matches!(guest.measure(&made_up::plan(100_000_000), &|| false), Err(GuestError::Report(_))));
        let guest = Guest::parse_command("vm1=sh -c 'sleep 60'").expect("a guest");
        let began = Instant::now();
        assert!(matches!(guest.measure(&made_up::plan(100_000_000), &|| true), Err(GuestError::Stopped)));
        assert!(began.elapsed() < Duration::from_secs(20));
    }
}
