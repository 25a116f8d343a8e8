//! QEMU's guest agent: JSON values, one a line, over the socket of a virtio-serial port, or through libvirt,
//! which has that socket for its VMs (QEMU's `qga/qapi-schema.json` and `docs/interop/qemu-ga-ref`).
//!
//! What comes back was written by the guest: it is bounded, and nothing of it becomes a command of the host.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use punctual_linux::channel::Channel;
use serde_json::{Value, json};

use super::converse::{Converse, converse, last_line};

/// What one command may take. A guest is busy with its own work.
const PATIENCE: Duration = Duration::from_secs(20);
/// The same once the test was stopped, when what it wrote is removed: somebody waits for the end.
const PATIENCE_AT_END: Duration = Duration::from_secs(5);
/// The most that is read for a command: the agent captures at most 16 MiB of a program's output.
const ANSWER_BYTES_MAX: u64 = 48 << 20;
/// Of a file, so much goes with one command: for libvirt it is an argument of a program (`MAX_ARG_STRLEN`).
const PIECE_BYTES: usize = 64 << 10;
/// What must answer within [`PATIENCE`] is asked so often whether it has ended.
const POLL_EVERY: Duration = Duration::from_millis(100);
/// The number that this client gives a conversation, so that answers to an earlier one are passed over.
const SYNC_MAX: u32 = i32::MAX as u32;
/// The command that is answered by that number.
const SYNC: &str = "guest-sync-delimited";

/// Why a guest agent did not do what it was told.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// There is no socket, or nobody behind it.
    #[error("no socket of a guest agent at {}: {source}", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The socket failed.
    #[error("the socket of the guest agent: {0}")]
    Socket(#[source] io::Error),
    /// QEMU closed the socket.
    #[error("QEMU closed the socket of the guest agent: it serves one client, and a VM of libvirt has one")]
    Closed,
    /// No answer came in time.
    #[error("the guest agent does not answer: it must be installed and run in the guest (qemu-guest-agent)")]
    Silent,
    /// An answer is not one of a guest agent.
    #[error("the answer to `{0}` is not one of a guest agent")]
    Strange(&'static str),
    /// The program of libvirt cannot be started.
    #[error("virsh: {0}")]
    NoVirsh(#[source] io::Error),
    /// It failed.
    #[error("virsh: {reason}{}", hint(reason))]
    Virsh {
        /// Its error message.
        reason: String,
    },
    /// The agent refused a command.
    #[error("the guest agent refuses `{command}`: {reason}{}", hint(reason))]
    Refused {
        /// The command.
        command: &'static str,
        /// The agent's reason.
        reason: String,
    },
    /// A program in the guest failed.
    #[error("{program} in the guest: {outcome}")]
    Failed {
        /// The program.
        program: &'static str,
        /// How it ended, and the last line of its error.
        outcome: String,
    },
    /// The test was stopped.
    #[error("stopped")]
    Stopped,
}

/// Distributions may forbid to the agent what this needs.
fn hint(reason: &str) -> &'static str {
    if reason.contains("disabled") || reason.contains("not allowed") {
        " (the guest's configuration must allow guest-exec and guest-file-*: allow-rpcs, block-rpcs)"
    } else {
        ""
    }
}

/// How an agent is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Port {
    /// The socket of its virtio-serial port `org.qemu.guest_agent.0`.
    Socket(PathBuf),
    /// The VM of libvirt with this name.
    Libvirt(String),
}

/// A conversation with an agent.
pub(super) struct Agent<'s> {
    way: Way,
    stopped: &'s dyn Fn() -> bool,
}

enum Way {
    Socket(BufReader<Channel>),
    Libvirt(String),
}

/// How a program of the guest ended.
pub(super) struct Ended {
    output: Vec<u8>,
    error: Vec<u8>,
    /// `None` when it succeeded.
    failure: Option<String>,
}

impl<'s> Agent<'s> {
    pub(super) fn connect(port: &Port, stopped: &'s dyn Fn() -> bool) -> Result<Agent<'s>, AgentError> {
        let way = match port {
            Port::Libvirt(name) => Way::Libvirt(name.clone()),
            Port::Socket(path) => Way::Socket(connected(path)?),
        };
        Ok(Agent { way, stopped })
    }

    /// Runs a shell command of the guest until it ends, which must be soon; what it printed.
    pub(super) fn run(&mut self, program: &'static str, command: &str) -> Result<Vec<u8>, AgentError> {
        let (number, until) = (self.start(command)?, Instant::now() + self.patience());
        loop {
            if let Some(ended) = self.ended(number)? {
                return ended.succeeded(program);
            }
            if Instant::now() > until {
                return Err(AgentError::Silent);
            }
            std::thread::sleep(POLL_EVERY);
        }
    }

    /// Starts a shell command in the guest; its process there.
    pub(super) fn start(&mut self, command: &str) -> Result<u64, AgentError> {
        let arguments = json!({ "path": "/bin/sh", "arg": ["-c", command], "capture-output": true });
        let answer = self.execute("guest-exec", &arguments)?;
        answer["pid"].as_u64().ok_or(AgentError::Strange("guest-exec"))
    }

    /// How a process that was started has ended, if it has. It is told once.
    pub(super) fn ended(&mut self, process: u64) -> Result<Option<Ended>, AgentError> {
        let mut answer = self.execute("guest-exec-status", &json!({ "pid": process }))?;
        let strange = || AgentError::Strange("guest-exec-status");
        if !answer["exited"].as_bool().ok_or_else(strange)? {
            return Ok(None);
        }
        if answer["out-truncated"].as_bool() == Some(true) {
            return Err(strange());
        }
        let mut captured = |key: &str| match answer[key].take() {
            Value::Null => Ok(Vec::new()),
            Value::String(text) => BASE64.decode(text).map_err(|_| strange()),
            _ => Err(strange()),
        };
        let (output, error) = (captured("out-data")?, captured("err-data")?);
        let failure = match (answer["exitcode"].as_i64(), answer["signal"].as_i64()) {
            (Some(0), None) => None,
            (Some(code), _) => Some(format!("exit status: {code}")),
            (None, Some(signal)) => Some(format!("signal {signal}")),
            (None, None) => return Err(strange()),
        };
        Ok(Some(Ended { output, error, failure }))
    }

    /// Writes a file of the guest.
    pub(super) fn write(&mut self, path: &str, bytes: &[u8]) -> Result<(), AgentError> {
        let handle = self.execute("guest-file-open", &json!({ "path": path, "mode": "wb" }))?;
        if !handle.is_i64() && !handle.is_u64() {
            return Err(AgentError::Strange("guest-file-open"));
        }
        let written = self.write_pieces(&handle, bytes);
        let closed = self.execute("guest-file-close", &json!({ "handle": handle }));
        written.and(closed.map(|_| ()))
    }

    fn write_pieces(&mut self, handle: &Value, mut bytes: &[u8]) -> Result<(), AgentError> {
        while !bytes.is_empty() {
            if (self.stopped)() {
                return Err(AgentError::Stopped);
            }
            let piece = &bytes[..bytes.len().min(PIECE_BYTES)];
            let arguments = json!({ "handle": handle, "buf-b64": BASE64.encode(piece) });
            let answer = self.execute("guest-file-write", &arguments)?;
            // It may write less than it was given.
            let count = answer["count"].as_u64().and_then(|count| usize::try_from(count).ok());
            let count = count.filter(|count| (1..=piece.len()).contains(count));
            bytes = &bytes[count.ok_or(AgentError::Strange("guest-file-write"))?..];
        }
        Ok(())
    }

    /// What the next command may take.
    fn patience(&self) -> Duration {
        if (self.stopped)() { PATIENCE_AT_END } else { PATIENCE }
    }

    fn execute(&mut self, command: &'static str, arguments: &Value) -> Result<Value, AgentError> {
        let line = json!({ "execute": command, "arguments": arguments }).to_string();
        let patience = self.patience();
        let mut answer = match &mut self.way {
            Way::Socket(channel) => said(channel, command, &line, patience)?,
            Way::Libvirt(name) => said_by_virsh(name, command, &line, patience)?,
        };
        if let Some(error) = answer.get("error") {
            let reason = error["desc"].as_str().unwrap_or("no reason given").to_owned();
            return Err(AgentError::Refused { command, reason });
        }
        answer.get_mut("return").map(Value::take).ok_or(AgentError::Strange(command))
    }
}

impl Ended {
    /// What it printed, if it succeeded.
    pub(super) fn succeeded(self, program: &'static str) -> Result<Vec<u8>, AgentError> {
        let Some(failure) = self.failure else { return Ok(self.output) };
        let line = last_line(&self.error, "no error message");
        Err(AgentError::Failed { program, outcome: format!("{failure}: {line}") })
    }
}

/// Connects, and passes over what the agent may still have to say to an earlier client: it answers a number
/// behind a byte that is no JSON.
fn connected(path: &Path) -> Result<BufReader<Channel>, AgentError> {
    let connect = |source: io::Error| AgentError::Connect { path: path.to_owned(), source };
    let channel = Channel::connect(path, PATIENCE, || false).map_err(connect)?;
    let mut channel = BufReader::new(channel);
    let number = std::process::id() % SYNC_MAX;
    let sync = json!({ "execute": SYNC, "arguments": { "id": number } });
    channel.get_mut().allow(PATIENCE, ANSWER_BYTES_MAX);
    // The byte also ends what an earlier client began to say.
    let line = [b"\xff", sync.to_string().as_bytes(), b"\n"].concat();
    channel.get_mut().write_all(&line).map_err(of_socket)?;
    let mut passed_over = Vec::new();
    channel.read_until(0xff, &mut passed_over).map_err(of_socket)?;
    if passed_over.last() != Some(&0xff) {
        return Err(AgentError::Closed);
    }
    let answer = line_of(&mut channel, SYNC)?;
    match answer["return"].as_u64() {
        Some(answer) if answer == u64::from(number) => Ok(channel),
        _ => Err(AgentError::Strange(SYNC)),
    }
}

fn said(
    channel: &mut BufReader<Channel>,
    command: &'static str,
    line: &str,
    patience: Duration,
) -> Result<Value, AgentError> {
    channel.get_mut().allow(patience, ANSWER_BYTES_MAX);
    channel.get_mut().write_all(format!("{line}\n").as_bytes()).map_err(of_socket)?;
    line_of(channel, command)
}

fn line_of(channel: &mut BufReader<Channel>, command: &'static str) -> Result<Value, AgentError> {
    let mut line = Vec::new();
    channel.take(ANSWER_BYTES_MAX).read_until(b'\n', &mut line).map_err(of_socket)?;
    if line.is_empty() {
        return Err(AgentError::Closed);
    }
    serde_json::from_slice(&line).map_err(|_| AgentError::Strange(command))
}

fn of_socket(error: io::Error) -> AgentError {
    match error.kind() {
        io::ErrorKind::TimedOut => AgentError::Silent,
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => AgentError::Closed,
        _ => AgentError::Socket(error),
    }
}

/// libvirt has the socket of its VM's agent. A stopped test asks, too: to remove what it wrote.
fn said_by_virsh(
    name: &str,
    command: &'static str,
    line: &str,
    patience: Duration,
) -> Result<Value, AgentError> {
    let mut virsh = Command::new("virsh");
    let limit = patience.as_secs().to_string();
    virsh.args(["--quiet", "qemu-agent-command", "--timeout", &limit, "--", name, line]);
    let output = converse(virsh, &[], Instant::now() + patience + POLL_EVERY * 20, &|| false);
    match output.map_err(AgentError::NoVirsh)? {
        Converse::Stopped | Converse::Silent => Err(AgentError::Silent),
        Converse::Ended(status, output, _) if status.success() => {
            serde_json::from_slice(&output).map_err(|_| AgentError::Strange(command))
        }
        Converse::Ended(_, _, error) => {
            let line = last_line(&error, "it fails without a message");
            Err(AgentError::Virsh { reason: line.trim_start_matches("error: ").to_owned() })
        }
    }
}
