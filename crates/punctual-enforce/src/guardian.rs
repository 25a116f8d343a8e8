//! The process that puts the machine back, however the process ends that changed it.
//!
//! The guardian is started before the first change. It reads the run's heartbeat from a pipe. When the pipe
//! closes (the run ended, by whatever signal), it undoes what the journal says. The run's own clean end takes
//! the same way: it closes the pipe and reads what was restored, so there is one path to test.
//!
//! The guardian ends the run, and then does the same, when no beat comes for longer than the limit, or when a
//! beat says that an enforcer stands still. It asks first: the run's heart, which needs nothing else of the
//! run, reads that and ends the process with an exit status of its own. A run that does not comply
//! within a second is killed. Either way the guardian writes the reason to standard error.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::Timespec;

use crate::journal::{HeldJournal, Identity, Restored};
use punctual_linux::os::sched::{self, Attributes};

/// The real-time priority of the guardian: above the enforcers, which it may have to kill.
pub const PRIORITY: u32 = 95;

/// How long a run may take to end when it is asked to; then it is killed.
const GRACE: Duration = Duration::from_secs(1);
/// How long the guardian may take to be ready.
const READY_MAX: Duration = Duration::from_secs(30);
/// How long the guardian waits for standard error to take its words; a terminal may be stopped.
const WORDS_MAX: Duration = Duration::from_secs(1);

/// What the guardian writes when it is ready.
const READY: &[u8] = b"r";
/// The line by which the guardian asks the run to end.
const END_RUN: &str = "end";
/// A beat: all is well.
const BEAT: u8 = b'.';

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
    words: BufReader<ChildStdout>,
}

impl Guardian {
    /// Starts `program guardian ...` and waits until it is ready. It has a process group of its own, so that
    /// Ctrl-C in a terminal does not reach it.
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
            .process_group(0)
            .spawn()?;
        let heartbeat = child.stdin.take();
        let words = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut guardian = Guardian { child, heartbeat, words: BufReader::new(words) };
        let mut ready = [0u8; 1];
        let is_there = is_readable(guardian.words.get_ref(), READY_MAX)?;
        if !is_there || guardian.words.read(&mut ready)? != 1 {
            let _ = guardian.child.kill();
            let status = guardian.child.wait()?;
            return Err(io::Error::other(format!("the guardian ended at once ({status})")));
        }
        Ok(guardian)
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
        self.tell(&[BEAT])
    }

    /// Says in a line why the run is not well; the guardian will end it.
    ///
    /// # Errors
    /// As [`Guardian::beat`].
    pub fn accuse(&mut self, reason: &str) -> io::Result<()> {
        self.tell(format!("{reason}\n").as_bytes())
    }

    fn tell(&mut self, words: &[u8]) -> io::Result<()> {
        match self.heartbeat.as_mut() {
            Some(pipe) => pipe.write_all(words),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Does the guardian ask this process to end? Returns at once.
    ///
    /// # Errors
    /// As [`Guardian::beat`].
    pub fn asks_to_end(&mut self) -> io::Result<bool> {
        if !is_readable(self.words.get_ref(), Duration::ZERO)? {
            return Ok(false);
        }
        let mut line = String::new();
        match self.words.read_line(&mut line)? {
            0 => Err(io::ErrorKind::BrokenPipe.into()),
            _ => Ok(line.trim_end() == END_RUN),
        }
    }

    /// Ends the run: the guardian undoes everything and says what it restored.
    ///
    /// # Errors
    /// The guardian is gone or failed; the journal is still there then.
    pub fn finish(mut self) -> io::Result<Restored> {
        drop(self.heartbeat.take());
        let mut line = String::new();
        self.words.read_line(&mut line)?;
        if line.trim_end() == END_RUN {
            // It asked a moment too late.
            line.clear();
            self.words.read_line(&mut line)?;
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

/// What the guardian has done.
#[derive(Debug)]
pub struct Watched {
    /// Why it ended the run, if it did.
    pub reason: Option<String>,
    /// What it put back.
    pub restored: Restored,
    /// Has the run been told? One that was killed has not.
    pub is_told: bool,
}

/// What the guardian process does. Standard input is the heartbeat, standard output the report.
///
/// # Errors
/// The journal cannot be read.
pub fn watch(options: &GuardianOptions) -> io::Result<Watched> {
    // A run that is stopped before it has begun its journal is known by this alone.
    let parent = i32::try_from(std::os::unix::process::parent_id()).ok().filter(|parent| *parent > 1);
    let parent = parent.and_then(|parent| Identity::of(parent).ok());
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
    // A run that was killed meanwhile does not read it. Its pipe is closed then, and the journal goes.
    let _ = out.write_all(READY).and_then(|()| out.flush());
    let reason = read_beats(&io::stdin(), options.limit)?;
    if let (Some(_), Some(run)) = (&reason, journal.enforcer()?.or(parent)) {
        end(run, &mut out);
    }
    let restored = journal.restore()?;
    // The run may have been killed, so that the pipe has no reader.
    let is_told = writeln!(out, "{}", serde_json::to_string(&restored)?).is_ok();
    Ok(Watched { reason, restored, is_told })
}

/// Reads beats until the pipe is closed. Returns why the run must be ended, if it must: no beat came for
/// longer than the limit, or a beat says why.
fn read_beats(beats: &impl AsFd, limit: Duration) -> io::Result<Option<String>> {
    let mut buffer = [0u8; 256];
    let mut accusation: Vec<u8> = Vec::new();
    loop {
        if !is_readable(beats, limit)? {
            let s = limit.as_secs_f64();
            return Ok(Some(format!("its process gave no sign of life for {s:.1} s: stopped, or starved")));
        }
        // Not by the standard library, whose buffer would hide beats from `poll`.
        let read = match rustix::io::read(beats, &mut buffer) {
            Ok(0) => return Ok(None),
            Ok(read) => &buffer[..read],
            Err(rustix::io::Errno::INTR) => continue,
            // As if it were closed: nobody can beat any more.
            Err(_) => return Ok(None),
        };
        let beats =
            if accusation.is_empty() { read.iter().take_while(|byte| **byte == BEAT).count() } else { 0 };
        accusation.extend_from_slice(&read[beats..]);
        if let Some(end) = accusation.iter().position(|byte| *byte == b'\n') {
            return Ok(Some(String::from_utf8_lossy(&accusation[..end]).into_owned()));
        }
    }
}

/// Asks a run to end, and kills it if it does not.
fn end(run: Identity, out: &mut impl Write) {
    let Some(pid) = Pid::from_raw(run.id).filter(|_| run.is_alive()) else { return };
    let asked = writeln!(out, "{END_RUN}").and_then(|()| out.flush());
    // One that is stopped cannot hear it.
    let _ = kill_process(pid, Signal::CONT);
    let give_up = Instant::now() + if asked.is_ok() { GRACE } else { Duration::ZERO };
    while run.is_alive() && Instant::now() < give_up {
        std::thread::sleep(Duration::from_millis(5));
    }
    if run.is_alive() {
        // A thread of it that spins in the kernel for a less urgent one dies only when that one may run.
        sched::demote_process(run.id);
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Writes words of the guardian to standard error, unless that does not take them.
pub fn say(words: &str) {
    let stderr = io::stderr();
    if is_writable(&stderr, WORDS_MAX).unwrap_or(false) {
        // There is nobody else to be told.
        let _ = (&stderr).write_all(format!("{words}\n").as_bytes());
    }
}

fn is_readable(file: impl AsFd, timeout: Duration) -> io::Result<bool> {
    is_ready(file, PollFlags::IN, timeout)
}

fn is_writable(file: impl AsFd, timeout: Duration) -> io::Result<bool> {
    is_ready(file, PollFlags::OUT, timeout)
}

/// Waits until something can be read or written, or the other end is gone, for `timeout` at most.
fn is_ready(file: impl AsFd, flags: PollFlags, timeout: Duration) -> io::Result<bool> {
    let end = Instant::now() + timeout;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        match poll(&mut [PollFd::new(&file, flags)], Some(&left)) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn verdict(words: &[u8]) -> Option<String> {
        let (mut run, guardian) = UnixStream::pair().expect("a pair");
        run.write_all(words).expect("written");
        drop(run);
        read_beats(&guardian, Duration::from_secs(5)).expect("read")
    }

    #[test]
    fn a_run_that_closes_its_pipe_has_ended_by_itself_and_one_that_is_accused_must_be_ended() {
        assert_eq!(verdict(b"....."), None);
        assert_eq!(
            verdict(b"..enforcer 1 stood still. Long.\n.").as_deref(),
            Some("enforcer 1 stood still. Long.")
        );
    }

    #[test]
    fn a_silent_run_must_be_ended() {
        let (_run, guardian) = UnixStream::pair().expect("a pair");
        let reason = read_beats(&guardian, Duration::from_millis(50)).expect("read");
        assert!(reason.is_some_and(|reason| reason.contains("no sign of life")));
    }
}
