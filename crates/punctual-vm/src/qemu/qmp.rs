//! The part of the QEMU Machine Protocol that finds vCPU threads and ends a VM: JSON values, one a line, over
//! a Unix socket (QEMU's `docs/interop/qmp-spec.rst`).

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use punctual_linux::channel::{Channel, Stop};
use punctual_linux::os::proc;
use punctual_linux::os::socket::{self, Peer};

/// Longest line that is read.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Most events between a command and its answer.
const EVENTS_MAX: usize = 10_000;

/// Most bytes that are read for a command.
const BYTES_MAX: u64 = 16 << 20;

/// Why a QEMU did not do what it was told over QMP.
#[derive(Debug, thiserror::Error)]
pub enum QmpError {
    /// There is no socket, or no QEMU behind it.
    #[error("no QMP socket at {}: {source}", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The conversation over the socket at this path could not be started.
    #[error("{}: {source}", path.display())]
    Greeting {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: Box<QmpError>,
    },
    /// The socket failed.
    #[error("QMP: {0}")]
    Socket(#[from] io::Error),
    /// QEMU closed the socket.
    #[error("QEMU closed its QMP socket")]
    Closed,
    /// No answer came in time. QEMU serves one client at a time.
    #[error("QEMU does not answer; does another program (libvirt?) use its QMP socket?")]
    Timeout,
    /// More came than any answer needs.
    #[error("the program at the other end of the socket writes without end")]
    TooMuch,
    /// A line was not JSON.
    #[error("QMP: not JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The first line was not QEMU's greeting.
    #[error("the program at the other end of the socket does not speak QMP")]
    NotQmp,
    /// QEMU refused a command.
    #[error("QEMU refuses `{command}`: {reason}")]
    Refused {
        /// The command.
        command: String,
        /// QEMU's reason.
        reason: String,
    },
    /// Only events came, and no answer to this command.
    #[error("QEMU does not answer `{0}`")]
    NoAnswer(String),
    /// The threads that it names belong to another process than QEMU: to a process of somebody else, who
    /// must not be scheduled because of what this socket says.
    #[error(
        "{} names thread {thread}, which {}; the process at the other end of the socket is {} of user {}",
        path.display(),
        owner.map_or("is not there".to_owned(), |owner| format!("belongs to process {owner}")),
        peer.process,
        peer.user
    )]
    ForeignThread {
        /// The socket.
        path: PathBuf,
        /// The thread.
        thread: u32,
        /// The thread's process.
        owner: Option<i32>,
        /// Who is at the other end of the socket.
        peer: Peer,
    },
    /// QEMU lists its vCPUs in a form that is not known here.
    #[error("QEMU's answer to `query-cpus-fast` has no cpu-index or no thread-id")]
    Threads,
}

/// A connection to a QEMU.
#[derive(Debug)]
pub struct Qmp {
    channel: BufReader<Channel>,
    /// How long a command may take.
    limit: Duration,
}

impl Qmp {
    /// Connects to the socket that a QEMU made for `-qmp unix:PATH,server=on`. It serves one client at a
    /// time. The greeting, and each command later, may take `limit`; `stop` ends them earlier.
    ///
    /// # Errors
    /// When there is no QEMU at the other end, or it serves someone else.
    pub fn connect(path: &Path, limit: Duration, stop: Stop) -> Result<Qmp, QmpError> {
        let greeting = |error| QmpError::Greeting { path: path.to_owned(), source: Box::new(error) };
        let channel = Channel::connect(path, limit, stop).map_err(|source| match source.kind() {
            io::ErrorKind::TimedOut => greeting(QmpError::Timeout),
            _ => QmpError::Connect { path: path.to_owned(), source },
        })?;
        Qmp::begin(channel, limit).map_err(greeting)
    }

    /// Starts a conversation over a socket, as [`Qmp::connect`].
    ///
    /// # Errors
    /// When no QEMU answers.
    pub fn over(socket: UnixStream, limit: Duration, stop: Stop) -> Result<Qmp, QmpError> {
        Qmp::begin(Channel::over(socket, stop), limit)
    }

    fn begin(channel: Channel, limit: Duration) -> Result<Qmp, QmpError> {
        let mut qmp = Qmp { channel: BufReader::new(channel), limit };
        qmp.channel.get_mut().allow(limit, BYTES_MAX);
        let greeting = qmp.receive()?;
        if greeting.get("QMP").is_none() {
            return Err(QmpError::NotQmp);
        }
        qmp.execute("qmp_capabilities")?;
        Ok(qmp)
    }

    /// Carries out a command without arguments.
    ///
    /// # Errors
    /// When QEMU refuses the command or does not answer.
    pub fn execute(&mut self, command: &str) -> Result<Value, QmpError> {
        self.execute_with(command, &json!({}))
    }

    /// Carries out a command with arguments, an object.
    ///
    /// # Errors
    /// When QEMU refuses the command or does not answer.
    pub fn execute_with(&mut self, command: &str, arguments: &Value) -> Result<Value, QmpError> {
        let line = format!("{}\n", json!({ "execute": command, "arguments": arguments }));
        self.channel.get_mut().allow(self.limit, BYTES_MAX);
        self.channel.get_mut().write_all(line.as_bytes()).map_err(timeout_or)?;
        for _ in 0..EVENTS_MAX {
            let mut answer = self.receive()?;
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
            if let Some(error) = answer.get("error") {
                let reason = error.get("desc").and_then(Value::as_str).unwrap_or("no reason given").into();
                return Err(QmpError::Refused { command: command.into(), reason });
            }
            // Anything else is an event.
        }
        Err(QmpError::NoAnswer(command.into()))
    }

    /// The threads of the vCPUs: number and thread id, ascending.
    ///
    /// # Errors
    /// As [`Qmp::execute`].
    pub fn vcpu_threads(&mut self) -> Result<Vec<(u32, u32)>, QmpError> {
        let cpus = self.execute("query-cpus-fast")?;
        let cpu = |cpu: &Value| {
            let number = |key: &str| u32::try_from(cpu.get(key)?.as_u64()?).ok();
            Some((number("cpu-index")?, number("thread-id")?))
        };
        let threads = cpus.as_array().and_then(|cpus| cpus.iter().map(cpu).collect::<Option<Vec<_>>>());
        let mut threads = threads.ok_or(QmpError::Threads)?;
        threads.sort_unstable();
        Ok(threads)
    }

    /// The threads of the vCPUs of the QEMU at `path`, as [`Qmp::vcpu_threads`], if they are its own. The
    /// process that made the socket must have them all. Where that was a process of root (libvirt makes
    /// QEMU's socket), one process must have them all.
    ///
    /// # Errors
    /// As [`Qmp::vcpu_threads`]; a thread is not QEMU's.
    pub fn own_vcpu_threads(path: &Path, limit: Duration, stop: Stop) -> Result<Vec<(u32, u32)>, QmpError> {
        let mut qmp = Qmp::connect(path, limit, stop)?;
        let peer = socket::peer(qmp.channel.get_ref().socket())?;
        let threads = qmp.vcpu_threads()?;
        let foreign = foreign_thread(&threads, peer, |thread| proc::process_of(thread as i32).ok());
        match foreign {
            None => Ok(threads),
            Some((thread, owner)) => {
                Err(QmpError::ForeignThread { path: path.to_owned(), thread, owner, peer })
            }
        }
    }

    fn receive(&mut self) -> Result<Value, QmpError> {
        let mut line = Vec::new();
        let read = (&mut self.channel).take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        match read {
            Ok(0) => Err(QmpError::Closed),
            Ok(_) => Ok(serde_json::from_slice(&line)?),
            Err(error) => Err(timeout_or(error)),
        }
    }
}

/// The first of the threads that is not the peer's, with its process.
fn foreign_thread(
    threads: &[(u32, u32)],
    peer: Peer,
    process_of: impl Fn(u32) -> Option<i32>,
) -> Option<(u32, Option<i32>)> {
    let first = threads.first().and_then(|(_, thread)| process_of(*thread));
    let expected = if peer.user == 0 { first } else { Some(peer.process) };
    let mut owners = threads.iter().map(|(_, thread)| (*thread, process_of(*thread)));
    owners.find(|(_, owner)| owner.is_none() || *owner != expected)
}

fn timeout_or(error: io::Error) -> QmpError {
    match error.kind() {
        io::ErrorKind::TimedOut => QmpError::Timeout,
        io::ErrorKind::QuotaExceeded => QmpError::TooMuch,
        _ => QmpError::Socket(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_must_belong_to_who_made_the_socket_or_to_one_process_where_root_did() {
        let owner = |thread: u32| (thread < 100).then_some(thread as i32 / 10);
        let foreign =
            |user, threads: &[(u32, u32)]| foreign_thread(threads, Peer { process: 5, user }, owner);
        assert_eq!(foreign(1000, &[(0, 51), (1, 52)]), None);
        assert_eq!(foreign(1000, &[(0, 51), (1, 62)]), Some((62, Some(6))));
        assert_eq!(foreign(1000, &[(0, 61)]), Some((61, Some(6))), "libvirt's sockets are root's");
        assert_eq!(foreign(0, &[(0, 61), (1, 62)]), None);
        assert_eq!(foreign(0, &[(0, 61), (1, 72)]), Some((72, Some(7))));
        assert_eq!(foreign(0, &[(0, 100)]), Some((100, None)));
    }

    /// A program that listens, speaks QMP and names a thread.
    fn impostor(directory: &Path, thread: u32) -> (PathBuf, std::thread::JoinHandle<()>) {
        let path = directory.join("qmp");
        let listener = std::os::unix::net::UnixListener::bind(&path).expect("bound");
        let lines = format!("{GREETING}{{\"return\": [{{\"cpu-index\": 0, \"thread-id\": {thread}}}]}}\n");
        let answer = move || {
            let (mut stream, _) = listener.accept().expect("a client");
            stream.write_all(lines.as_bytes()).expect("written");
            // Until the client has gone.
            let _ = stream.read_to_end(&mut Vec::new());
        };
        (path, std::thread::spawn(answer))
    }

    #[test]
    fn a_socket_that_names_a_thread_of_nobody_is_not_believed() {
        let directory = tempfile::tempdir().expect("a directory");
        let limit = Duration::from_secs(5);
        let (path, thread) = impostor(directory.path(), std::process::id());
        let found = Qmp::own_vcpu_threads(&path, limit, || false).expect("its own thread");
        assert_eq!(found, [(0, std::process::id())]);
        thread.join().expect("it ends");
        std::fs::remove_file(&path).expect("removed");
        let (path, thread) = impostor(directory.path(), u32::MAX >> 1);
        let error = Qmp::own_vcpu_threads(&path, limit, || false).expect_err("no such thread").to_string();
        assert!(error.contains("which is not there") && error.contains("of user"), "{error}");
        thread.join().expect("it ends");
    }

    /// A QEMU that says these lines, whatever it is asked.
    fn scripted(lines: &str) -> Result<Qmp, QmpError> {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        theirs.write_all(lines.as_bytes()).expect("written");
        Qmp::over(ours, Duration::from_secs(5), || false).inspect(|_| {
            // The end stays open until the process ends.
            std::mem::forget(theirs);
        })
    }

    const GREETING: &str = "{\"QMP\": {}}\n{\"return\": {}}\n";

    #[test]
    fn threads_of_vcpus_are_read_past_events_and_sorted() {
        let event = r#"{"event": "RESUME"}"#;
        let (one, zero) = (r#"{"cpu-index": 1, "thread-id": 7}"#, r#"{"cpu-index": 0, "thread-id": 9}"#);
        let answer = format!("{{\"return\": [{one}, {zero}]}}");
        let mut qmp = scripted(&format!("{GREETING}{event}\n{answer}\n")).expect("a QEMU");
        assert_eq!(qmp.vcpu_threads().expect("threads"), [(0, 9), (1, 7)]);
    }

    #[test]
    fn what_is_no_qemu_or_refuses_is_an_error_that_says_so() {
        assert!(matches!(scripted("SSH-2.0\n").unwrap_err(), QmpError::Json(_)));
        assert!(matches!(scripted("{\"hello\": 1}\n").unwrap_err(), QmpError::NotQmp));
        let mut refusing =
            scripted(&format!("{GREETING}{{\"error\": {{\"desc\": \"no\"}}}}\n")).expect("a QEMU");
        assert_eq!(refusing.execute("quit").unwrap_err().to_string(), "QEMU refuses `quit`: no");
        let mut strange =
            scripted(&format!("{GREETING}{{\"return\": [{{\"cpu-index\": -1}}]}}\n")).expect("a QEMU");
        assert!(matches!(strange.vcpu_threads().unwrap_err(), QmpError::Threads));
    }

    #[test]
    fn a_monitor_that_dribbles_is_given_up_when_its_time_is_over() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let dribble = std::thread::spawn(move || {
            while theirs.write_all(b" ").is_ok() {
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let start = std::time::Instant::now();
        let error = Qmp::over(ours, Duration::from_millis(200), || false).unwrap_err();
        assert!(matches!(error, QmpError::Timeout), "{error}");
        assert!(start.elapsed() < Duration::from_secs(5));
        dribble.join().expect("it ends with the socket");
    }

    #[test]
    fn a_closed_socket_is_an_error() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        drop(theirs);
        let error = Qmp::over(ours, Duration::from_secs(5), || false).unwrap_err();
        assert!(matches!(error, QmpError::Closed), "{error}");
    }
}
