//! The process that puts the machine back, whatever happens to the one that changed it.
//!
//! The guardian is started before the first change. It hears a heartbeat over a pipe. When the pipe closes
//! (the enforcer ended, by whatever signal) or the heart stops for longer than the limit (then the enforcer
//! is killed first), it undoes what the journal says. The enforcer's own clean end takes the same way: it
//! closes the pipe and reads what was restored, so there is one path to test.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use crate::journal::{self, Identity, Restored};
use crate::os::sched::{self, Attributes};

/// The real-time priority of the guardian: above the enforcers, whom it may have to kill.
pub const PRIORITY: u32 = 95;

/// How the guardian is told to run; the command line passes it on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardianOptions {
    /// The journal to undo.
    pub journal: PathBuf,
    /// Longest silence.
    pub limit: Duration,
    /// The processors it may run on: none that the run gives to guests.
    pub processors: Vec<usize>,
}

/// The enforcer's end of the guardian.
#[derive(Debug)]
pub struct Guardian {
    child: Child,
    pulse: Option<ChildStdin>,
}

impl Guardian {
    /// Starts `program guardian ...` and waits until it is ready.
    ///
    /// # Errors
    /// It cannot be started, or does not answer.
    pub fn start(program: &Path, orders: &GuardianOptions) -> io::Result<Guardian> {
        let processors: Vec<String> = orders.processors.iter().map(usize::to_string).collect();
        let mut child = Command::new(program)
            .arg("guardian")
            .arg("--journal")
            .arg(&orders.journal)
            .arg("--limit-ms")
            .arg(orders.limit.as_millis().to_string())
            .arg("--processors")
            .arg(processors.join(","))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let pulse = child.stdin.take();
        let mut ready = [0u8; 1];
        let heard = child.stdout.as_mut().map_or(Ok(0), |out| out.read(&mut ready))?;
        if heard != 1 {
            let status = child.wait()?;
            return Err(io::Error::other(format!("the guardian ended at once ({status})")));
        }
        Ok(Guardian { child, pulse })
    }

    /// Its process.
    pub fn id(&self) -> i32 {
        self.child.id() as i32
    }

    /// Says that all is well.
    ///
    /// # Errors
    /// The guardian is gone: the run must end and undo its changes itself.
    pub fn beat(&mut self) -> io::Result<()> {
        match self.pulse.as_mut() {
            Some(pulse) => pulse.write_all(b"."),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Ends the run: the guardian undoes everything and says what it restored.
    ///
    /// # Errors
    /// The guardian is gone or failed; the journal is still there then.
    pub fn finish(mut self) -> io::Result<Restored> {
        drop(self.pulse.take());
        let mut line = String::new();
        if let Some(out) = self.child.stdout.take() {
            BufReader::new(out).read_line(&mut line)?;
        }
        self.child.wait()?;
        serde_json::from_str(&line).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        drop(self.pulse.take());
        let _ = self.child.wait();
    }
}

/// What the guardian process does. Standard input is the pulse, standard output the report.
///
/// # Errors
/// The journal cannot be read.
pub fn watch(orders: &GuardianOptions) -> io::Result<Restored> {
    // Out of reach of a Ctrl-C that is meant for the enforcer; without privileges it works at a normal
    // priority.
    let _ = rustix::process::setsid();
    if !orders.processors.is_empty() {
        let _ = sched::set_affinity(0, &orders.processors);
    }
    let _ = sched::set_attributes(0, &Attributes::fifo(PRIORITY));
    let _ = rustix::mm::mlockall(rustix::mm::MlockAllFlags::CURRENT | rustix::mm::MlockAllFlags::FUTURE);
    let enforcer = journal::read(&orders.journal)?.into_iter().find_map(|change| match change {
        journal::Change::Run { enforcer, .. } => Some(enforcer),
        _ => None,
    });
    let mut out = io::stdout();
    out.write_all(b"r")?;
    out.flush()?;
    if !listen(orders.limit)?
        && let Some(enforcer) = enforcer
    {
        kill(enforcer);
    }
    let restored = journal::restore(&orders.journal)?;
    // Nobody may be listening any more.
    let _ = writeln!(out, "{}", serde_json::to_string(&restored)?);
    Ok(restored)
}

/// Listens until the pulse ends (true) or stops for longer than the limit (false).
fn listen(limit: Duration) -> io::Result<bool> {
    let stdin = io::stdin();
    let timeout = rustix::time::Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(limit.subsec_nanos()),
    };
    let mut beats = [0u8; 64];
    loop {
        let mut fds = [rustix::event::PollFd::new(&stdin, rustix::event::PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&timeout)) {
            Ok(0) => return Ok(false),
            Ok(_) if rustix::io::read(&stdin, &mut beats).unwrap_or(0) == 0 => return Ok(true),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

fn kill(enforcer: Identity) {
    if let (true, Some(pid)) = (enforcer.is_alive(), rustix::process::Pid::from_raw(enforcer.id)) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}
