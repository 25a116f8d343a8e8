//! VMs that outlive their server: a record of the shared memory and the eventfds that QEMU holds, by which
//! the next server takes them over.
//!
//! QEMU connects its device only once. A process that may trace QEMU can duplicate its descriptors
//! (`pidfd_getfd`). The record identifies them by inode and eventfd ID, which the guest cannot change.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::layout;
use crate::memory::Shared;

/// A server's record of its VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The monitor's process ID.
    process: i32,
    /// Start time of the process in clock ticks, because process IDs are reused.
    started: u64,
    /// Inode of the memory.
    memory: u64,
    /// Eventfd IDs.
    doorbell: u64,
    interrupts: [u64; QUEUES],
}

const QUEUES: usize = layout::QUEUES as usize;

/// A VM of an earlier server.
#[derive(Debug)]
pub(crate) struct Found {
    /// Pidfd of the monitor.
    pub(crate) process: OwnedFd,
    pub(crate) shared: Shared,
    pub(crate) doorbell: OwnedFd,
    /// One for each vector of the device.
    pub(crate) interrupts: Vec<OwnedFd>,
}

impl Record {
    /// The record of a monitor that has connected.
    ///
    /// # Errors
    /// The monitor's process is not visible in this `/proc`.
    pub(crate) fn of(
        monitor: &UnixStream,
        shared: &Shared,
        doorbell: &OwnedFd,
        interrupts: &[OwnedFd],
    ) -> io::Result<Self> {
        let process = rustix::net::sockopt::socket_peercred(monitor)?.pid.as_raw_pid();
        let own = Path::new("/proc/self/fdinfo");
        let id = |eventfd: &OwnedFd| eventfd_id(&own.join(eventfd.as_raw_fd().to_string()));
        let ids = interrupts.iter().map(id).collect::<io::Result<Vec<_>>>()?;
        Ok(Record {
            process,
            started: started(process)?,
            memory: rustix::fs::fstat(shared.file())?.st_ino,
            doorbell: id(doorbell)?,
            interrupts: ids.try_into().map_err(|_| invalid("expected an interrupt for each queue"))?,
        })
    }

    /// Writes the record to a file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let Record { process, started, memory, doorbell, interrupts } = self;
        let interrupts = interrupts.map(|id| id.to_string()).join(" ");
        std::fs::write(path, format!("{process} {started} {memory} {doorbell} {interrupts}\n"))
    }

    /// Reads a record; `None` when there is none or it is damaged.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(path).ok()?;
        let mut numbers = text.split_ascii_whitespace().map(str::parse::<u64>);
        let mut next = || numbers.next()?.ok();
        Some(Record {
            process: next()?.try_into().ok()?,
            started: next()?,
            memory: next()?,
            doorbell: next()?,
            interrupts: {
                let mut interrupts = [0; QUEUES];
                for interrupt in &mut interrupts {
                    *interrupt = next()?;
                }
                interrupts
            },
        })
    }

    /// Duplicates the descriptors of the recorded monitor.
    ///
    /// # Errors
    /// The monitor has ended, lacks the descriptors, or may not be traced.
    pub(crate) fn open(&self) -> io::Result<Found> {
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        let pid = Pid::from_raw(self.process).ok_or_else(gone)?;
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        if started(self.process)? != self.started {
            return Err(gone());
        }
        let [mut memory, mut doorbell] = [None, None];
        let mut interrupts = [const { None }; QUEUES];
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
                    // The descriptor may have been closed meanwhile.
                    let Ok(event) = eventfd_id(&directory.join("fdinfo").join(&name)) else { continue };
                    if event == self.doorbell {
                        doorbell = Some(take()?);
                    } else if let Some(queue) = self.interrupts.iter().position(|own| *own == event) {
                        interrupts[queue] = Some(take()?);
                    }
                }
                Some(link) if link.starts_with("/memfd:") && is_file(&entry.path(), self.memory) => {
                    memory = Some(take()?);
                }
                _ => {}
            }
        }
        let shared = Shared::map(memory.ok_or_else(gone)?)?;
        // QEMU closes the eventfds of vectors that its device does not have; these are the last ones.
        let interrupts: Vec<OwnedFd> = interrupts.into_iter().map_while(|interrupt| interrupt).collect();
        if interrupts.is_empty() {
            return Err(gone());
        }
        Ok(Found { process, shared, doorbell: doorbell.ok_or_else(gone)?, interrupts })
    }
}

fn is_file(path: &Path, inode: u64) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.ino() == inode)
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// A process's start time: field 22 of `/proc/PID/stat`. Field 2, the name, may hold blanks.
fn started(process: i32) -> io::Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let after_name = text.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let field = after_name.split_ascii_whitespace().nth(19).and_then(|field| field.parse().ok());
    field.ok_or_else(|| invalid("/proc/PID/stat has no start time"))
}

/// An eventfd's ID, which Linux 5.2 and newer show.
fn eventfd_id(info: &Path) -> io::Result<u64> {
    let text = std::fs::read_to_string(info)?;
    let id = text.lines().find_map(|line| line.strip_prefix("eventfd-id:")?.trim().parse().ok());
    id.ok_or_else(|| invalid("/proc/PID/fdinfo shows no eventfd-id"))
}
