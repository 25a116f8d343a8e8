//! What the service and this process say to each other: JSON, a line for each message, over a Unix socket.
//! The service says what it wants as a whole, whenever that changes, so that a message that comes twice
//! changes nothing. The answer is how things are.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use punctual_enforce::journal::Identity;
use punctual_model::service::Adjustment;
use punctual_model::topology::Topology;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A message is no longer.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// What the service wants to be held.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// The configuration, which this process reads with the same parser: pools and classes.
    pub files: Vec<File>,
    /// The machine as the service knows it, so that the same processors are chosen for pools.
    pub topology: Topology,
    /// The VMs and units that belong to a class with a pool, by ascending process.
    pub actors: Vec<WantedActor>,
    /// Devices whose interrupts a class matches, by their names.
    #[serde(default)]
    pub interrupts: Vec<WantedInterrupts>,
}

/// The interrupts of a device that a class matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedInterrupts {
    /// The network interface or PCI device.
    pub device: String,
    /// The class, by name.
    pub class: String,
    /// Their numbers, ascending.
    pub numbers: Vec<usize>,
}

/// A file of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// Its name in errors.
    pub name: String,
    /// What is in it.
    pub text: String,
}

/// A VM to be held, or a cgroup with all its processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedActor {
    /// The process of its monitor; of a cgroup, the oldest one in it.
    pub process: Identity,
    /// Its name.
    pub name: String,
    /// Its class, by name.
    pub class: String,
    /// What it gets instead of what the class gives.
    #[serde(default, skip_serializing_if = "Adjustment::is_empty")]
    pub adjustment: Adjustment,
    /// The path of the cgroup below the root of version 2, which is held as a whole; `None` of a VM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// The threads of its vCPUs that are there, by ascending number. A cgroup has its process as number 0.
    pub vcpus: Vec<WantedVcpu>,
}

/// A vCPU to be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedVcpu {
    /// Its number.
    pub number: u32,
    /// Its thread.
    pub thread: Identity,
}

/// How things are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// What happened since the last report.
    pub events: Vec<Event>,
    /// The VMs that are wanted, by ascending process.
    pub actors: Vec<HeldActor>,
    /// The devices whose interrupts go where a class says.
    #[serde(default)]
    pub interrupts: Vec<HeldInterrupts>,
    /// What enforces, by its name in host files; `None` while nothing is held.
    #[serde(default)]
    pub backend: Option<String>,
    /// Why nothing can be held at all, if so.
    pub failure: Option<String>,
    /// Processor time of the enforcers and of all else in this process, in ns.
    pub cpu_ns: u64,
}

/// The interrupts of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldInterrupts {
    /// The network interface or PCI device.
    pub device: String,
    /// The processors to which they go, ascending.
    pub processors: Vec<usize>,
    /// Why these, a sentence without its beginning and full stop.
    pub reason: String,
    /// Those that stay where they are.
    pub refused: Vec<RefusedInterrupt>,
}

/// An interrupt that stays where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedInterrupt {
    /// Its number.
    pub number: usize,
    /// Why.
    pub reason: String,
}

/// What happened to a VM, or to all of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The VM's process; `None` where all are concerned.
    pub process: Option<u32>,
    /// What happened.
    pub kind: EventKind,
    /// The same for people, without the VM's name.
    pub text: String,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// It is under enforcement.
    Held,
    /// It is no longer, and as it was before.
    LetGo,
    /// It cannot be held now.
    NotHeld,
    /// Somebody else had changed it, and it was put back.
    PutBack,
    /// A part of it is no longer held.
    GivenUp,
    /// Something that concerns the machine.
    Notice,
}

/// A VM that is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldActor {
    /// Its process.
    pub process: u32,
    /// Why it is not held; `None` when it is.
    pub not_held: Option<String>,
    /// Its vCPUs that are held, by ascending number.
    pub vcpus: Vec<HeldVcpu>,
    /// The roles of its other threads, when they were placed last.
    #[serde(default)]
    pub helpers: Vec<HeldRole>,
}

/// What the threads of a VM get that have a role and are no vCPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldRole {
    /// The role's name.
    pub role: String,
    /// The processors that they may use.
    pub processors: Vec<usize>,
    /// Why these, a sentence without its beginning and full stop.
    pub reason: String,
    /// The policy's name as in `chrt(1)`.
    pub policy: String,
    /// Real-time priority; 0 in the fair classes.
    pub rt_priority: u32,
    /// Niceness; 0 in the real-time classes.
    pub nice: i32,
}

/// A vCPU that is held, or number 0 of a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldVcpu {
    /// Its number.
    pub number: u32,
    /// What it may do now.
    pub order: Order,
    /// Budget left in this period, in ns; `None` where the policy keeps none.
    pub left_ns: Option<u64>,
    /// Times at which its budget was used up.
    pub exhausted: u64,
    /// Periods that passed, and those in which it got its budget or did not want it.
    pub periods: u64,
    /// See `periods`.
    pub delivered: u64,
    /// The longest time for which it was ready, or parked after it had run, without the processor, in ns.
    pub longest_without_ns: u64,
    /// 99 % of its waits for the processor were at most that, in ns.
    pub wait_p99_ns: u64,
}

/// What a vCPU may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// It may run.
    Runs,
    /// It has no budget now.
    Parked,
    /// Linux schedules it below all others: it is best effort.
    BestEffort,
    /// It is not held any more.
    GivenUp,
}

/// A connection, in either direction, that never waits.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    received: Vec<u8>,
    unsent: VecDeque<u8>,
}

impl Connection {
    /// Over this stream.
    ///
    /// # Errors
    /// As `fcntl(2)`.
    pub fn new(stream: UnixStream) -> io::Result<Connection> {
        stream.set_nonblocking(true)?;
        Ok(Connection { stream, received: Vec::new(), unsent: VecDeque::new() })
    }

    /// Sends a message; what the other end does not take now stays for [`Connection::flush`].
    ///
    /// # Errors
    /// The other end is gone, or leaves too much unread.
    pub fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        self.unsent.extend(serde_json::to_vec(message)?);
        self.unsent.push_back(b'\n');
        if self.unsent.len() > 2 * MESSAGE_BYTES_MAX {
            return Err(io::Error::other("it does not read"));
        }
        self.flush()
    }

    /// Sends what is left.
    ///
    /// # Errors
    /// The other end is gone.
    pub fn flush(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match self.stream.write(self.unsent.as_slices().0) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(length) => drop(self.unsent.drain(..length)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Is something unsent?
    pub fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// The messages that came.
    ///
    /// # Errors
    /// The other end is gone, or sends what is no message.
    pub fn receive<T: DeserializeOwned>(&mut self) -> io::Result<Vec<T>> {
        let mut buffer = [0; 16 << 10];
        let is_over = loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => break true,
                Ok(length) => self.received.extend(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if self.received.len() > MESSAGE_BYTES_MAX {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a message is too long"));
            }
        };
        let whole = self.received.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let lines: Vec<u8> = self.received.drain(..whole).collect();
        let lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let messages = lines.map(serde_json::from_slice).collect::<Result<Vec<T>, _>>()?;
        if is_over && messages.is_empty() { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(messages) }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(name: &str) -> Wanted {
        let process = Identity { id: 7, start_ticks: 9 };
        let vcpus = vec![WantedVcpu { number: 0, thread: process }];
        let (name, class, adjustment) = (name.into(), "c".into(), Adjustment::default());
        let actor = WantedActor { process, name, class, adjustment, cgroup: None, vcpus };
        let file = File { name: "host.toml".into(), text: "mode = \"enforce\"\n".into() };
        Wanted { files: vec![file], topology: Topology::flat(4), actors: vec![actor], interrupts: Vec::new() }
    }

    #[test]
    fn messages_arrive_whole_however_they_are_cut_and_whatever_is_in_them() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let (mut ours, mut theirs) =
            (Connection::new(ours).expect("set"), Connection::new(theirs).expect("set"));
        // More than the socket holds.
        let sent = [wanted("a\nb\u{1b}"), wanted(&"x".repeat(1 << 20)), wanted("c")];
        sent.iter().for_each(|message| ours.send(message).expect("sent"));
        assert!(ours.has_unsent());
        let mut received: Vec<Wanted> = Vec::new();
        while received.len() < sent.len() {
            ours.flush().expect("there");
            received.extend(theirs.receive().expect("messages"));
        }
        assert_eq!(received, sent);
        assert!(theirs.receive::<Wanted>().expect("none").is_empty());
        drop(ours);
        assert!(theirs.receive::<Wanted>().is_err(), "the other end is gone");
    }

    #[test]
    fn what_is_no_message_ends_the_connection() {
        let (mut ours, theirs) = UnixStream::pair().expect("a pair");
        let mut theirs = Connection::new(theirs).expect("set");
        ours.write_all(b"{\"files\":[],\"actors\":[}\n").expect("sent");
        assert!(theirs.receive::<Wanted>().is_err());
    }
}
