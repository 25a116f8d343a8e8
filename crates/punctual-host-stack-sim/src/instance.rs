//! A server with its VM.

use std::collections::VecDeque;

use punctual_host_stack::{Path, ThreadId};

use crate::packet::{Packet, Sent};
use crate::thread::Step;

/// One of a server's instances.
pub(crate) struct Instance {
    /// Index into the host's servers.
    pub(crate) server: usize,
    pub(crate) path: Path,
    pub(crate) queue: usize,
    /// vCPU thread or process.
    pub(crate) main: ThreadId,
    pub(crate) vnic: Option<ThreadId>,
    /// Packets that wait in the VM's interface for the vNIC thread.
    pub(crate) tap: VecDeque<Packet>,
    /// What the vNIC thread is to send.
    pub(crate) outgoing: VecDeque<Sent>,
    /// Packets in the host's socket of a process, or of an outsourced server.
    pub(crate) socket: VecDeque<Packet>,
    pub(crate) guest: Guest,
    pub(crate) stream: Option<usize>,
    /// Bytes copied for it.
    pub(crate) copied: u64,
    pub(crate) seed: u64,
    pub(crate) sent: u64,
    pub(crate) answered: u64,
    /// Number of the last request whose answer it handed to the host's card, or to a backlog.
    pub(crate) last_handed: u64,
    /// Answers on their way from there: numbers and backlogs, in the order in which they were handed over.
    pub(crate) handed: VecDeque<(u64, usize)>,
    pub(crate) bytes: u64,
}

/// A VM with one vCPU for its server.
#[derive(Default)]
pub(crate) struct Guest {
    /// Packets that the vNIC thread has put into the guest's memory.
    pub(crate) ring: VecDeque<Packet>,
    /// Packets in the guest's socket.
    pub(crate) socket: VecDeque<Packet>,
    pub(crate) interrupt: bool,
    /// The driver polls: its interrupt is off.
    pub(crate) polls: bool,
    /// Packets of this poll.
    pub(crate) polled: u32,
    /// The vCPU is in the VM, or in a call from it.
    pub(crate) entered: bool,
    /// The process runs, or the idle process.
    pub(crate) process_runs: bool,
    /// The process's step that an interrupt preempted.
    pub(crate) preempted: Option<(Step, u64, u64, u64)>,
    /// A packet that the guest has handed to its card before it notified the vNIC thread.
    pub(crate) unnotified: Option<Sent>,
}
