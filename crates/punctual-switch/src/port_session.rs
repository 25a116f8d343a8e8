//! The rings of a port.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Sender};

use vm_memory::{Bytes, GuestAddress};

use crate::error::Broken;
use crate::event::{Event, Notice};
use crate::limits::PLANE_LIMIT;
use crate::mailbox::{Command, Mailbox};
use crate::ring::{ReceiveRing, SendRing, Setup};
use crate::session::{RECEIVE, Rings, SEND};
use crate::shared::Shared;
use crate::sys::{ring_bell, rings_of};

/// So often both bells rang without anything in either ring, and the memory is not shared. QEMU makes each
/// bell as if it had rung and rings it once more when it starts the ring; a driver rings when it adds to a
/// ring.
const SILENT_KICKS: u64 = 5;

/// The rings of a port, as its session starts and stops them.
pub(crate) struct PortRings {
    pub(crate) port: usize,
    pub(crate) shared: Arc<Shared>,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) notices: Sender<Notice>,
    /// By queue: does it run?
    pub(crate) running: [bool; 2],
    /// Rings whose bells the control hears until something is seen in one of them.
    pub(crate) unproven: [Option<Setup>; 2],
    /// Have the rings changed since the control last looked?
    pub(crate) changed: bool,
}

/// Rings of a port that do not run yet.
pub(crate) fn rings(
    port: usize,
    plane: usize,
    shared: &Arc<Shared>,
    mailboxes: &[Arc<Mailbox>],
    notices: &Sender<Notice>,
) -> PortRings {
    PortRings {
        port,
        shared: Arc::clone(shared),
        mailbox: Arc::clone(&mailboxes[plane]),
        notices: notices.clone(),
        running: [false; 2],
        unproven: [None, None],
        changed: false,
    }
}

impl PortRings {
    pub(crate) fn notice(&self, event: Event) {
        // Without a reader there is nobody to tell.
        let _ = self.notices.send(Notice { port: self.port, event });
    }

    fn is_broken(&self) -> bool {
        self.shared.ports[self.port].broken.load(Ordering::Acquire)
    }

    /// The driver rang. Is there anything in the rings now?
    pub(crate) fn rang(&mut self) {
        let is_seen = |setup: &Setup| {
            let index = GuestAddress(setup.available.saturating_add(2));
            setup.memory.guest.read_obj::<u16>(index).unwrap_or_default() != 0
        };
        if self.unproven.iter().flatten().any(is_seen) {
            self.unproven = [None, None];
            self.changed = true;
            return;
        }
        let kicks: u64 = self.unproven.iter().flatten().map(|setup| rings_of(&setup.kick)).sum();
        if kicks >= SILENT_KICKS {
            self.unproven = [None, None];
            self.changed = true;
            for queue in [RECEIVE, SEND] {
                self.stop(queue);
            }
            self.shared.ports[self.port].broken.store(true, Ordering::Release);
            self.notice(Event::Broken(Broken::NotShared));
        }
    }
}

impl Rings for PortRings {
    fn start(&mut self, queue: usize, setup: Setup) -> Result<(), Broken> {
        if self.is_broken() {
            return Ok(());
        }
        if queue == RECEIVE {
            self.shared.set_receive(self.port, Some(ReceiveRing::new(&setup)?));
        } else {
            let ring = Box::new(SendRing::new(&setup)?);
            self.mailbox.send(Command::Start { port: self.port, ring });
        }
        self.running[queue] = true;
        if let Some(call) = &setup.call {
            // The switch before may have died between a frame and telling of it.
            ring_bell(call);
        }
        let assumed = setup.assumed;
        self.unproven[queue] = Some(setup);
        self.changed = true;
        if self.running == [true; 2] {
            self.notice(Event::Running);
            if assumed {
                self.notice(Event::Assumed);
            }
        }
        Ok(())
    }

    fn stop(&mut self, queue: usize) -> Option<u16> {
        if !std::mem::take(&mut self.running[queue]) {
            return None;
        }
        self.unproven[queue] = None;
        self.changed = true;
        if queue == RECEIVE {
            return self.shared.set_receive(self.port, None);
        }
        let (reply, answer) = mpsc::sync_channel(1);
        self.mailbox.send(Command::Stop { port: self.port, reply });
        answer.recv_timeout(PLANE_LIMIT).ok().flatten()
    }

    fn set_call(&mut self, queue: usize, call: Option<Arc<OwnedFd>>) {
        if !self.running[queue] {
            return;
        }
        if let Some(setup) = &mut self.unproven[queue] {
            setup.call.clone_from(&call);
        }
        match queue {
            RECEIVE => self.shared.set_call(self.port, call),
            _ => self.mailbox.send(Command::Call { port: self.port, queue, call }),
        }
    }

    fn set_error(&mut self, queue: usize, error: Option<Arc<OwnedFd>>) {
        // A broken receive ring is told of at its sender's place.
        if queue == SEND && self.running[queue] {
            self.mailbox.send(Command::Error { port: self.port, error });
        }
    }

    fn forgive(&mut self) {
        self.shared.ports[self.port].broken.store(false, Ordering::Release);
    }
}
