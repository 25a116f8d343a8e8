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

use crate::layout;
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
    interrupts: [u64; QUEUES],
}

const QUEUES: usize = layout::QUEUES as usize;

/// A VM that was found again.
#[derive(Debug)]
pub struct Found {
    /// The monitor's process; readable when it has ended.
    pub process: OwnedFd,
    /// The memory.
    pub shared: Shared,
    /// What the guest rings.
    pub doorbell: OwnedFd,
    /// What interrupts the guest: as many of its vectors as the monitor has.
    pub interrupts: Vec<OwnedFd>,
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
        interrupts: &[OwnedFd],
    ) -> io::Result<Self> {
        let process = rustix::net::sockopt::socket_peercred(monitor)?.pid.as_raw_pid();
        let own = Path::new("/proc/self/fdinfo");
        let number = |bell: &OwnedFd| event_number(&own.join(bell.as_raw_fd().to_string()));
        let numbers = interrupts.iter().map(number).collect::<io::Result<Vec<_>>>()?;
        Ok(Record {
            process,
            started: started(process)?,
            memory: rustix::fs::fstat(shared.file())?.st_ino,
            doorbell: number(doorbell)?,
            interrupts: numbers.try_into().map_err(|_| wrong("other than an interrupt for each queue"))?,
        })
    }

    /// Writes it to a file.
    ///
    /// # Errors
    /// When that cannot be.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let Record { process, started, memory, doorbell, interrupts } = self;
        let interrupts = interrupts.map(|number| number.to_string()).join(" ");
        std::fs::write(path, format!("{process} {started} {memory} {doorbell} {interrupts}\n"))
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
            interrupts: {
                let mut interrupts = [0; QUEUES];
                for interrupt in &mut interrupts {
                    *interrupt = next()?;
                }
                interrupts
            },
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
                    // One that has been closed meanwhile is none of ours.
                    let Ok(event) = event_number(&directory.join("fdinfo").join(&name)) else { continue };
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
        // A device with fewer vectors has closed the others.
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
