//! Threads of the host, and the steps that they take.

use punctual_host_stack::softnet::Softirq;
use punctual_host_stack::{Priority, Who};

use crate::packet::{Packet, Sent};

/// What a thread is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Sleeping,
    Ready,
    Running,
    /// It waits for a softirq lock.
    Blocked,
}

/// A thread's step.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    None,
    /// A step of an action.
    Softirq,
    /// The IRQ thread's handler.
    Handler,
    /// What a thread does before it sleeps.
    End,
    VnicReceive(Packet),
    VnicSend(Sent),
    /// A kworker puts an interrupt into a VM.
    Inject(usize),
    /// A process takes a packet and serves it.
    Process(Packet),
    /// A process, or the host on behalf of a guest's, sends the answer.
    Answer(u32),
    /// A vCPU enters its VM after it slept.
    Enter,
    /// A vCPU enters its VM again after a call to the host.
    Reenter,
    GuestInterrupt,
    /// The guest's protocols.
    GuestStack(Packet),
    /// The guest notifies the vNIC thread.
    Kick(Sent),
    /// The vCPU leaves the VM to sleep.
    Halt,
}

/// Which part of a softirq a thread has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    NeedsLock,
    Runs,
}

/// A softirq in a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadSoftirq {
    /// The list it serves.
    pub(crate) list: usize,
    pub(crate) lock: Option<usize>,
    pub(crate) phase: Phase,
    /// Its limits where softirqs have no locks.
    pub(crate) run: Softirq,
}

/// A thread of the host.
pub(crate) struct Thread {
    pub(crate) who: Who,
    pub(crate) own: Priority,
    pub(crate) inherited: Priority,
    /// Where it is, or was last.
    pub(crate) cpu: usize,
    pub(crate) allowed: Vec<usize>,
    pub(crate) state: State,
    pub(crate) step: Step,
    /// Time that the step still needs.
    pub(crate) left: u64,
    /// The step's cost with switches to it; the refill is apart.
    pub(crate) cost: u64,
    pub(crate) refill: u64,
    /// Switches that came before the step.
    pub(crate) carried: u64,
    /// Of the step's cost: what came before it.
    pub(crate) switched: u64,
    pub(crate) vruntime: u64,
    pub(crate) ran: u64,
    pub(crate) softirq: Option<ThreadSoftirq>,
    /// It was put out of its VM and has not run since.
    pub(crate) left_vm: bool,
    /// It has done something since it woke up.
    pub(crate) worked: bool,
    /// The vNIC thread sent last.
    pub(crate) sent_last: bool,
    /// Bytes that the vNIC thread has handled in its present direction.
    pub(crate) batch: u32,
}

impl Thread {
    pub(crate) fn new(who: Who, own: Priority, allowed: Vec<usize>) -> Self {
        Thread {
            who,
            own,
            inherited: Priority::FAIR,
            cpu: allowed.first().copied().unwrap_or(0),
            allowed,
            state: State::Sleeping,
            step: Step::None,
            left: 0,
            cost: 0,
            refill: 0,
            carried: 0,
            switched: 0,
            vruntime: 0,
            ran: 0,
            softirq: None,
            left_vm: false,
            worked: false,
            sent_last: false,
            batch: 0,
        }
    }

    /// Its own priority, or a greater one that it inherits.
    pub(crate) fn priority(&self) -> Priority {
        self.own.max(self.inherited)
    }

    /// Does it execute instructions of a VM?
    pub(crate) fn is_in_vm(&self) -> bool {
        let in_guest = matches!(self.step, Step::GuestInterrupt | Step::GuestStack(_) | Step::Process(_));
        in_guest && matches!(self.who, Who::Vcpu(_)) && self.left > 0
    }

    /// Something came before its next step, or before the rest of this one.
    pub(crate) fn delayed_by(&mut self, cost: u64) {
        self.left += cost;
        match self.step {
            Step::None => self.carried += cost,
            _ => self.cost += cost,
        }
    }
}
