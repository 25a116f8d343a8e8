//! Guests: any Linux that runs a shell command for us, by ssh, a command of the host, or QEMU's guest agent.
//! The guest program is copied there, measures the guest's processors by the loops that measure the host, and
//! is removed.

mod agent;
mod converse;

use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use agent::Agent;
pub use agent::{AgentError, Port};
use converse::{Converse, LOOK_EVERY, converse, last_line};

use punctual_guest::latency::{Plan, Report};
use punctual_vm::workload::PROGRAM;

/// How a guest is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// By ssh, with a key: nobody types a password.
    Ssh(String),
    /// By a command of the host that runs the shell command in its last argument.
    Command(String),
    /// By QEMU's guest agent.
    Agent(Port),
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
    Failed(ExitStatus, String),
    /// The guest agent did not do it.
    #[error(transparent)]
    Agent(AgentError),
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
/// How often a guest agent is asked whether the measurement has ended, once it should have.
const ASK_EVERY: Duration = Duration::from_millis(200);

impl Guest {
    /// `ssh:HOST`, `libvirt:VM` or `agent:SOCKET`, each with `NAME=` in front of the place if it is to have
    /// another name: a host has its own without the user, a VM its own, a socket that of its file.
    ///
    /// # Errors
    /// What was expected, as a phrase.
    pub fn parse(text: &str) -> Result<Guest, String> {
        const EXPECTED: &str = "expected ssh:HOST, libvirt:VM or agent:SOCKET, or with a name ssh:NAME=HOST";
        let Some((way @ ("ssh" | "libvirt" | "agent"), place)) = text.split_once(':') else {
            return Err(EXPECTED.into());
        };
        let (name, place) = match place.split_once('=') {
            Some((name, place)) => (Some(name), place),
            None => (None, place),
        };
        // What begins with a hyphen is an option of ssh or virsh.
        if place.is_empty() || place.starts_with('-') {
            return Err(EXPECTED.into());
        }
        let file = || Path::new(place).file_stem().map_or(place.into(), |stem| stem.to_string_lossy());
        let (own, reach) = match way {
            "ssh" => (place.rsplit('@').next().unwrap_or(place).into(), Reach::Ssh(place.into())),
            "libvirt" => (place.into(), Reach::Agent(Port::Libvirt(place.into()))),
            _ => (file(), Reach::Agent(Port::Socket(place.into()))),
        };
        Ok(Guest { name: checked(name.unwrap_or(&own))?, reach })
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

    /// Measures the guest; `stopped` ends it early, and then there is no report.
    pub(crate) fn measure(&self, plan: &Plan, stopped: &dyn Fn() -> bool) -> Result<Report, GuestError> {
        let report = match &self.reach {
            Reach::Agent(port) => by_agent(port, plan, stopped)?,
            Reach::Ssh(host) => {
                let mut command = Command::new("ssh");
                command.args(["-o", "BatchMode=yes", "--", host, &script(plan)]);
                by_command(command, plan, stopped)?
            }
            Reach::Command(prefix) => {
                let mut command = Command::new("sh");
                command.args(["-c", &format!("{prefix} \"$1\""), "sh", &script(plan)]);
                by_command(command, plan, stopped)?
            }
        };
        serde_json::from_slice(&report).map_err(GuestError::Report)
    }
}

/// How long it may take.
fn length(plan: &Plan) -> Duration {
    Duration::from_nanos(plan.spin_ns + plan.wakeup_ns)
}

/// The report of a guest that a command reaches, as text.
fn by_command(command: Command, plan: &Plan, stopped: &dyn Fn() -> bool) -> Result<Vec<u8>, GuestError> {
    let limit = length(plan) + PATIENCE;
    match converse(command, PROGRAM, Instant::now() + limit, stopped).map_err(GuestError::Start)? {
        Converse::Ended(status, report, _) if status.success() => Ok(report),
        Converse::Ended(status, _, error) => {
            Err(GuestError::Failed(status, last_line(&error, "no error message")))
        }
        Converse::Stopped => Err(GuestError::Stopped),
        Converse::Silent => Err(GuestError::Silent(limit.as_secs())),
    }
}

/// The same by a guest agent, whose commands each end soon.
fn by_agent(port: &Port, plan: &Plan, stopped: &dyn Fn() -> bool) -> Result<Vec<u8>, GuestError> {
    let mut agent = Agent::connect(port, stopped).map_err(GuestError::Agent)?;
    let directory = agent.run("mktemp", "mktemp -d").map_err(GuestError::Agent)?;
    let directory = String::from_utf8_lossy(&directory).trim_end().to_owned();
    let report = run_by_agent(&mut agent, &directory, plan, stopped);
    let removed = agent.run("rm", &format!("rm -rf -- {}", quoted(&directory)));
    let report = report?;
    removed.map_err(GuestError::Agent)?;
    Ok(report)
}

fn run_by_agent(
    agent: &mut Agent<'_>,
    directory: &str,
    plan: &Plan,
    stopped: &dyn Fn() -> bool,
) -> Result<Vec<u8>, GuestError> {
    let program = format!("{directory}/punctual-guest");
    agent.write(&program, PROGRAM).map_err(GuestError::Agent)?;
    let (program, plan_text) = (quoted(&program), serde_json::to_string(plan).unwrap_or_default());
    let command = format!("chmod 700 {program} && exec {program} latency '{plan_text}'");
    let process = agent.start(&command).map_err(GuestError::Agent)?;
    // Each question wakes up the guest: the first one comes when it should have measured and ended.
    let (begun, limit) = (Instant::now(), length(plan) + PATIENCE);
    let mut ask_at = begun + length(plan) + ASK_EVERY;
    loop {
        if stopped() {
            // It would measure on, which harms nothing but the rest of the guest.
            let _ = agent.run("kill", &format!("kill {process}"));
            return Err(GuestError::Stopped);
        }
        if Instant::now() >= ask_at {
            if let Some(ended) = agent.ended(process).map_err(GuestError::Agent)? {
                return ended.succeeded("the guest program").map_err(GuestError::Agent);
            }
            ask_at += ASK_EVERY;
        }
        if begun.elapsed() > limit {
            let _ = agent.run("kill", &format!("kill -KILL {process}"));
            return Err(GuestError::Silent(limit.as_secs()));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// As one word of a shell command.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up;
    use punctual_guest::latency::Kind;
    use std::io::{self, Write};

    #[test]
    fn guests_have_names_and_ways() {
        let guest = |name: &str, reach| Ok(Guest { name: name.into(), reach });
        let (ssh, agent) = (|host: &str| Reach::Ssh(host.into()), |port| Reach::Agent(port));
        assert_eq!(Guest::parse("ssh:root@vm1"), guest("vm1", ssh("root@vm1")));
        assert_eq!(Guest::parse("ssh:vm1=root@10.0.0.7"), guest("vm1", ssh("root@10.0.0.7")));
        assert_eq!(Guest::parse("libvirt:plc-1"), guest("plc-1", agent(Port::Libvirt("plc-1".into()))));
        let socket = agent(Port::Socket("/run/qga/vm1.sock".into()));
        assert_eq!(Guest::parse("agent:/run/qga/vm1.sock"), guest("vm1", socket.clone()));
        assert_eq!(Guest::parse("agent:db=/run/qga/vm1.sock"), guest("db", socket));
        let wrong = ["vm1", "ssh:", "ssh:=h", "ssh:-oProxyCommand=x", "ssh:a=-oX", "ssh:10.0.0.7"];
        for wrong in wrong.into_iter().chain(["libvirt:--help", "libvirt:a b", "agent:", "agent:/"]) {
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

    /// An agent that says these lines, whatever it is asked, and what comes of it.
    fn by_scripted_agent(answers: &[&str]) -> String {
        by_agent_that(answers, true, &|| false)
    }

    /// The same of one that then closes its socket, or is silent.
    fn by_agent_that(answers: &[&str], closes: bool, stopped: &dyn Fn() -> bool) -> String {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("vm1.sock");
        let listener = std::os::unix::net::UnixListener::bind(&path).expect("bound");
        let sync = format!("{{\"return\": {}}}", std::process::id());
        let text = format!("no JSON\n\u{fffd}{sync}\n{}\n", answers.join("\n"));
        // The delimiter is a byte that no text has.
        let bytes = text.replace('\u{fffd}', "\0").into_bytes();
        let bytes: Vec<u8> = bytes.into_iter().map(|byte| if byte == 0 { 0xff } else { byte }).collect();
        let said = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            stream.write_all(&bytes).expect("written");
            if closes {
                stream.shutdown(std::net::Shutdown::Write).expect("shut down");
            }
            let _ = io::copy(&mut stream, &mut io::sink());
        });
        let guest = Guest::parse(&format!("agent:{}", path.display())).expect("a guest");
        let error = guest.measure(&made_up::plan(1_000_000), stopped).expect_err("it fails").to_string();
        said.join().expect("it ends");
        error
    }

    #[test]
    fn an_agent_that_refuses_or_answers_something_else_is_an_error_that_says_so() {
        let refused =
            r#"{"error": {"class": "CommandNotFound", "desc": "Command guest-exec has been disabled"}}"#;
        let error = by_scripted_agent(&[refused]);
        assert!(error.contains("refuses `guest-exec`") && error.contains("block-rpcs"), "{error}");
        let pid = r#"{"return": {"pid": 7}}"#;
        assert_eq!(by_scripted_agent(&["{}"]), "the answer to `guest-exec` is not one of a guest agent");
        let ended = [
            r#"{"return": {"exited": 1}}"#,
            r#"{"return": {"exited": true}}"#,
            r#"{"return": {"exited": true, "exitcode": 0, "out-data": "!"}}"#,
        ];
        for ended in ended {
            let error = by_scripted_agent(&[pid, ended]);
            assert_eq!(error, "the answer to `guest-exec-status` is not one of a guest agent", "{ended}");
        }
        let failed = r#"{"return": {"exited": true, "exitcode": 127, "err-data": "bm8gbWt0ZW1wCg=="}}"#;
        assert_eq!(by_scripted_agent(&[pid, failed]), "mktemp in the guest: exit status: 127: no mktemp");
        assert!(by_scripted_agent(&[pid]).contains("QEMU closed the socket"));
        let directory = r#"{"return": {"exited": true, "exitcode": 0, "out-data": "L3RtcC94Cg=="}}"#;
        let written = r#"{"return": {"count": 99999999, "eof": false}}"#;
        let rest = [pid, directory, r#"{"return": 3}"#, written, r#"{"return": {}}"#];
        assert_eq!(by_scripted_agent(&rest), "the answer to `guest-file-write` is not one of a guest agent");
    }

    #[test]
    fn a_silent_agent_does_not_hold_up_the_end_of_a_stopped_test() {
        let began = Instant::now();
        let error = by_agent_that(&[r#"{"return": {"pid": 7}}"#], false, &|| true);
        assert!(error.contains("does not answer"), "{error}");
        assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
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
