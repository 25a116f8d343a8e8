//! A VM that outlives its server: where its monitor has the memory and the event descriptors that the server
//! gave it, so that the next server goes on with them.
//!
//! QEMU connects its device once. Whoever may trace it can take its files (`pidfd_getfd`), and knows them by
//! the numbers that the kernel gave them, which the guest cannot change.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::memory::Shared;

/// What a server writes down of its VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The monitor's process.
    process: i32,
    /// When it started, in ticks of the kernel: numbers of processes are used again.
    started: u64,
    /// The memory's inode.
    memory: u64,
    /// The kernel's numbers of the event descriptors.
    doorbell: u64,
    interrupt: u64,
}

/// A VM that was found again.
#[derive(Debug)]
pub struct Found {
    /// The monitor's process; readable when it has ended.
    pub process: OwnedFd,
    /// The memory.
    pub shared: Shared,
    /// What the guest rings.
    pub doorbell: OwnedFd,
    /// What interrupts the guest.
    pub interrupt: OwnedFd,
}

impl Record {
    /// Of a monitor that has connected.
    ///
    /// # Errors
    /// When it cannot be found among the processes here.
    pub fn of(
        monitor: &UnixStream,
        shared: &Shared,
        doorbell: &OwnedFd,
        interrupt: &OwnedFd,
    ) -> io::Result<Self> {
        let process = rustix::net::sockopt::socket_peercred(monitor)?.pid.as_raw_pid();
        let own = Path::new("/proc/self/fdinfo");
        let number = |bell: &OwnedFd| event_number(&own.join(bell.as_raw_fd().to_string()));
        Ok(Record {
            process,
            started: started(process)?,
            memory: rustix::fs::fstat(shared.file())?.st_ino,
            doorbell: number(doorbell)?,
            interrupt: number(interrupt)?,
        })
    }

    /// Writes it to a file.
    ///
    /// # Errors
    /// When that cannot be.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let Record { process, started, memory, doorbell, interrupt } = self;
        std::fs::write(path, format!("{process} {started} {memory} {doorbell} {interrupt}\n"))
    }

    /// Reads it, if there is one.
    pub fn read(path: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(path).ok()?;
        let mut numbers = text.split_ascii_whitespace().map(str::parse::<u64>);
        let mut next = || numbers.next()?.ok();
        Some(Record {
            process: next()?.try_into().ok()?,
            started: next()?,
            memory: next()?,
            doorbell: next()?,
            interrupt: next()?,
        })
    }

    /// Takes the files from the monitor.
    ///
    /// # Errors
    /// When the monitor has ended, has other files, or may not be traced.
    pub fn open(&self) -> io::Result<Found> {
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        let pid = Pid::from_raw(self.process).ok_or_else(gone)?;
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        if started(self.process)? != self.started {
            return Err(gone());
        }
        let [mut memory, mut doorbell, mut interrupt] = [None, None, None];
        let directory = PathBuf::from(format!("/proc/{}", self.process));
        for entry in std::fs::read_dir(directory.join("fd"))? {
            let entry = entry?;
            let name = entry.file_name();
            let (Some(number), Ok(link)) =
                (name.to_str().and_then(|name| name.parse().ok()), std::fs::read_link(entry.path()))
            else {
                continue;
            };
            let take = || pidfd_getfd(process.as_fd(), number, PidfdGetfdFlags::empty());
            match link.to_str() {
                Some("anon_inode:[eventfd]") => {
                    // One that has been closed meanwhile is none of ours.
                    let event = event_number(&directory.join("fdinfo").join(&name)).ok();
                    if event == Some(self.doorbell) {
                        doorbell = Some(take()?);
                    } else if event == Some(self.interrupt) {
                        interrupt = Some(take()?);
                    }
                }
                Some(link) if link.starts_with("/memfd:") && is_file(&entry.path(), self.memory) => {
                    memory = Some(take()?);
                }
                _ => {}
            }
        }
        let shared = Shared::map(memory.ok_or_else(gone)?)?;
        let (doorbell, interrupt) = (doorbell.ok_or_else(gone)?, interrupt.ok_or_else(gone)?);
        Ok(Found { process, shared, doorbell, interrupt })
    }
}

fn is_file(path: &Path, inode: u64) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.ino() == inode)
}

fn wrong(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// When a process started; field 22 of `/proc/PID/stat`. The second one may hold blanks.
fn started(process: i32) -> io::Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let after_name = text.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let field = after_name.split_ascii_whitespace().nth(19).and_then(|field| field.parse().ok());
    field.ok_or_else(|| wrong("the process has no start"))
}

/// The kernel's number of an event descriptor (Linux 5.2 and newer).
fn event_number(info: &Path) -> io::Result<u64> {
    let text = std::fs::read_to_string(info)?;
    let number = text.lines().find_map(|line| line.strip_prefix("eventfd-id:")?.trim().parse().ok());
    number.ok_or_else(|| wrong("the event descriptor has no number"))
}
