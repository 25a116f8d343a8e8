//! The process that puts the machine back, however the process ends that changed it.
//!
//! The guardian is started before the first change. It reads the run's heartbeat from a pipe. When the pipe
//! closes (the run ended, by whatever signal) or no beat comes for longer than the limit (then the guardian
//! kills the run first), it undoes what the journal says. The run's own clean end takes the same way: it
//! closes the pipe and reads what was restored, so there is one path to test.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use crate::journal::{HeldJournal, Identity, Restored};
use crate::os::sched::{self, Attributes};

/// The real-time priority of the guardian: above the enforcers, which it may have to kill.
pub const PRIORITY: u32 = 95;

/// What a guardian is given; the command line passes it on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardianOptions {
    /// The journal to undo.
    pub journal: PathBuf,
    /// The longest time between two beats.
    pub limit: Duration,
    /// The processors it may run on: none that the run gives to guests.
    pub processors: Vec<usize>,
}

/// The run's end of the guardian.
#[derive(Debug)]
pub struct Guardian {
    child: Child,
    heartbeat: Option<ChildStdin>,
}

impl Guardian {
    /// Starts `program guardian ...` and waits until it is ready.
    ///
    /// # Errors
    /// It cannot be started, or does not answer.
    pub fn start(program: &Path, options: &GuardianOptions) -> io::Result<Guardian> {
        let processors: Vec<String> = options.processors.iter().map(usize::to_string).collect();
        let mut child = Command::new(program)
            .arg("guardian")
            .arg("--journal")
            .arg(&options.journal)
            .arg("--limit-ms")
            .arg(options.limit.as_millis().to_string())
            .arg("--processors")
            .arg(processors.join(","))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let heartbeat = child.stdin.take();
        let mut ready = [0u8; 1];
        let bytes = child.stdout.as_mut().map_or(Ok(0), |out| out.read(&mut ready))?;
        if bytes != 1 {
            let status = child.wait()?;
            return Err(io::Error::other(format!("the guardian ended at once ({status})")));
        }
        Ok(Guardian { child, heartbeat })
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
        match self.heartbeat.as_mut() {
            Some(pipe) => pipe.write_all(b"."),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Ends the run: the guardian undoes everything and says what it restored.
    ///
    /// # Errors
    /// The guardian is gone or failed; the journal is still there then.
    pub fn finish(mut self) -> io::Result<Restored> {
        drop(self.heartbeat.take());
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
        drop(self.heartbeat.take());
        let _ = self.child.wait();
    }
}

/// What the guardian process does. Standard input is the heartbeat, standard output the report.
///
/// # Errors
/// The journal cannot be read.
pub fn watch(options: &GuardianOptions) -> io::Result<Restored> {
    // Out of reach of a Ctrl-C that is meant for the run; without privileges it works at a normal
    // priority.
    let _ = rustix::process::setsid();
    if !options.processors.is_empty() {
        let _ = sched::set_affinity(0, &options.processors);
    }
    let _ = sched::set_attributes(0, &Attributes::fifo(PRIORITY));
    let _ = rustix::mm::mlockall(rustix::mm::MlockAllFlags::CURRENT | rustix::mm::MlockAllFlags::FUTURE);
    // Made and locked here, so that it is undone or removed whenever the run dies, and by nobody else.
    let journal = HeldJournal::create(&options.journal)?;
    let mut out = io::stdout();
    out.write_all(b"r")?;
    out.flush()?;
    if !read_beats(options.limit)?
        && let Some(enforcer) = journal.enforcer()?
    {
        kill(enforcer);
    }
    let restored = journal.restore()?;
    // The run may have been killed, so that the pipe has no reader.
    if writeln!(out, "{}", serde_json::to_string(&restored)?).is_err() {
        restored.failures.iter().for_each(|failure| eprintln!("not put back: {failure}"));
    }
    Ok(restored)
}

/// Reads beats until the pipe is closed (true) or none comes for longer than the limit (false).
fn read_beats(limit: Duration) -> io::Result<bool> {
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
