//! The QEMU Machine Protocol, as much of it as it takes to find vCPU threads and to end a VM: JSON values,
//! one a line, over a Unix socket (QEMU's `docs/interop/qmp-spec.rst`).

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

/// Longest line that is read.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Most events between a command and its answer.
const EVENTS_MAX: usize = 10_000;

/// A connection to a QEMU.
#[derive(Debug)]
pub struct Qmp {
    channel: BufReader<UnixStream>,
}

impl Qmp {
    /// Connects to the socket that a QEMU made for `-qmp unix:PATH,server=on`. It serves one client at a
    /// time.
    ///
    /// # Errors
    /// When there is no QEMU at the other end, or it serves someone else.
    pub fn connect(path: &Path, limit: Duration) -> Result<Qmp, String> {
        let socket = UnixStream::connect(path)
            .map_err(|error| format!("no QMP socket at {}: {error}", path.display()))?;
        Qmp::over(socket, limit).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Starts a conversation over a socket; no answer may take longer than `limit`.
    ///
    /// # Errors
    /// When no QEMU answers.
    pub fn over(socket: UnixStream, limit: Duration) -> Result<Qmp, String> {
        let set = socket.set_read_timeout(Some(limit)).and_then(|()| socket.set_write_timeout(Some(limit)));
        set.map_err(|error| format!("QMP: {error}"))?;
        let mut qmp = Qmp { channel: BufReader::new(socket) };
        let greeting = qmp.receive()?;
        if greeting.get("QMP").is_none() {
            return Err("who answers there does not speak QMP".into());
        }
        qmp.execute("qmp_capabilities")?;
        Ok(qmp)
    }

    /// Carries out a command without arguments.
    ///
    /// # Errors
    /// What QEMU says, or that it says nothing.
    pub fn execute(&mut self, command: &str) -> Result<Value, String> {
        self.execute_with(command, &json!({}))
    }

    /// Carries out a command with arguments, an object.
    ///
    /// # Errors
    /// What QEMU says, or that it says nothing.
    pub fn execute_with(&mut self, command: &str, arguments: &Value) -> Result<Value, String> {
        let line = format!("{}\n", json!({ "execute": command, "arguments": arguments }));
        self.channel.get_mut().write_all(line.as_bytes()).map_err(|error| format!("QMP: {error}"))?;
        for _ in 0..EVENTS_MAX {
            let mut answer = self.receive()?;
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
            if let Some(error) = answer.get("error") {
                let text = error.get("desc").and_then(Value::as_str).unwrap_or("no reason given");
                return Err(format!("QEMU refuses `{command}`: {text}"));
            }
            // Anything else is an event.
        }
        Err(format!("QEMU does not answer `{command}`"))
    }

    /// The threads of the vCPUs: number and thread id, ascending.
    ///
    /// # Errors
    /// As [`Qmp::execute`].
    pub fn vcpu_threads(&mut self) -> Result<Vec<(u32, u32)>, String> {
        let cpus = self.execute("query-cpus-fast")?;
        let cpu = |cpu: &Value| {
            let number = |key: &str| u32::try_from(cpu.get(key)?.as_u64()?).ok();
            Some((number("cpu-index")?, number("thread-id")?))
        };
        let threads = cpus.as_array().and_then(|cpus| cpus.iter().map(cpu).collect::<Option<Vec<_>>>());
        let mut threads =
            threads.ok_or("QEMU's answer to `query-cpus-fast` has no cpu-index or no thread-id")?;
        threads.sort_unstable();
        Ok(threads)
    }

    fn receive(&mut self) -> Result<Value, String> {
        let mut line = Vec::new();
        let read = (&mut self.channel).take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        match read {
            Ok(0) => Err("QEMU closed its QMP socket".into()),
            Ok(_) => serde_json::from_slice(&line).map_err(|error| format!("QMP: not JSON: {error}")),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                Err("QEMU does not answer; does another program (libvirt?) use its QMP socket?".into())
            }
            Err(error) => Err(format!("QMP: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A QEMU that says these lines, whatever it is asked.
    fn scripted(lines: &str) -> Result<Qmp, String> {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        theirs.write_all(lines.as_bytes()).expect("written");
        Qmp::over(ours, Duration::from_secs(5)).inspect(|_| {
            // The end stays open until the process ends.
            std::mem::forget(theirs);
        })
    }

    const GREETING: &str = "{\"QMP\": {}}\n{\"return\": {}}\n";

    #[test]
    fn threads_of_vcpus_are_read_past_events_and_sorted() {
        let answer = r#"{"event": "RESUME"}
            {"return": [{"cpu-index": 1, "thread-id": 7, "target": "x86_64"}, {"cpu-index": 0, "thread-id": 9}]}"#;
        let answer = answer.replace("\n            ", "\n");
        let mut qmp = scripted(&format!("{GREETING}{answer}\n")).expect("a QEMU");
        assert_eq!(qmp.vcpu_threads(), Ok(vec![(0, 9), (1, 7)]));
    }

    #[test]
    fn what_is_no_qemu_or_refuses_is_an_error_that_says_so() {
        assert!(scripted("SSH-2.0\n").unwrap_err().contains("not JSON"));
        assert!(scripted("{\"hello\": 1}\n").unwrap_err().contains("does not speak QMP"));
        let mut refusing =
            scripted(&format!("{GREETING}{{\"error\": {{\"desc\": \"no\"}}}}\n")).expect("a QEMU");
        assert_eq!(refusing.execute("quit"), Err("QEMU refuses `quit`: no".into()));
        let mut strange =
            scripted(&format!("{GREETING}{{\"return\": [{{\"cpu-index\": -1}}]}}\n")).expect("a QEMU");
        assert!(strange.vcpu_threads().unwrap_err().contains("query-cpus-fast"));
    }

    #[test]
    fn a_closed_socket_is_an_error() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        drop(theirs);
        assert!(Qmp::over(ours, Duration::from_secs(5)).unwrap_err().contains("closed"));
    }
}
