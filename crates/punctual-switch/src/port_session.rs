//! The rings of a port.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Sender};

use vm_memory::{Bytes, GuestAddress};

use crate::error::RingError;
use crate::event::{Event, Notice};
use crate::limits::PLANE_LIMIT;
use crate::mailbox::{Command, Mailbox};
use crate::ring::{RxRing, TxRing, VringConfig};
use crate::session::{RX, Rings, TX};
use crate::shared::Shared;
use crate::sys::{kick_count, signal};

/// So often both bells rang without anything in either ring, and the memory is not shared. QEMU makes each
/// bell as if it had rung and rings it once more when it starts the ring; a driver rings when it adds to a
/// ring.
const SILENT_KICKS: u64 = 5;

/// The rings of a port, as its session starts and stops them.
pub(crate) struct PortSession {
    pub(crate) port: usize,
    pub(crate) shared: Arc<Shared>,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) notices: Sender<Notice>,
    /// By queue: does it run?
    pub(crate) running: [bool; 2],
    /// Rings whose bells the control hears until something is seen in one of them.
    pub(crate) unproven: [Option<VringConfig>; 2],
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
) -> PortSession {
    PortSession {
        port,
        shared: Arc::clone(shared),
        mailbox: Arc::clone(&mailboxes[plane]),
        notices: notices.clone(),
        running: [false; 2],
        unproven: [None, None],
        changed: false,
    }
}

impl PortSession {
    pub(crate) fn notice(&self, event: Event) {
        // Without a reader there is nobody to tell.
        let _ = self.notices.send(Notice { port: self.port, event });
    }

    fn is_broken(&self) -> bool {
        self.shared.ports[self.port].broken.load(Ordering::Acquire)
    }

    /// The driver rang. Is there anything in the rings now?
    pub(crate) fn on_kick(&mut self) {
        let is_seen = |config: &VringConfig| {
            let index = GuestAddress(config.avail_ring.saturating_add(2));
            config.memory.guest.read_obj::<u16>(index).unwrap_or_default() != 0
        };
        if self.unproven.iter().flatten().any(is_seen) {
            self.unproven = [None, None];
            self.changed = true;
            return;
        }
        let kicks: u64 = self.unproven.iter().flatten().map(|config| kick_count(&config.kick)).sum();
        if kicks >= SILENT_KICKS {
            self.unproven = [None, None];
            self.changed = true;
            for queue in [RX, TX] {
                self.stop(queue);
            }
            self.shared.ports[self.port].broken.store(true, Ordering::Release);
            self.notice(Event::Broken(RingError::NotShared));
        }
    }
}

impl Rings for PortSession {
    fn start(&mut self, queue: usize, config: VringConfig) -> Result<(), RingError> {
        if self.is_broken() {
            return Ok(());
        }
        if queue == RX {
            self.shared.set_rx(self.port, Some(RxRing::new(&config)?));
        } else {
            let ring = Box::new(TxRing::new(&config)?);
            self.mailbox.send(Command::StartTx { port: self.port, ring });
        }
        self.running[queue] = true;
        if let Some(call) = &config.call {
            // The switch before may have died between a frame and telling of it.
            signal(call);
        }
        let features_assumed = config.features_assumed;
        self.unproven[queue] = Some(config);
        self.changed = true;
        if self.running == [true; 2] {
            self.notice(Event::Running);
            if features_assumed {
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
        if queue == RX {
            return self.shared.set_rx(self.port, None);
        }
        let (reply, answer) = mpsc::sync_channel(1);
        self.mailbox.send(Command::StopTx { port: self.port, reply });
        answer.recv_timeout(PLANE_LIMIT).ok().flatten()
    }

    fn set_call(&mut self, queue: usize, call: Option<Arc<OwnedFd>>) {
        if !self.running[queue] {
            return;
        }
        if let Some(config) = &mut self.unproven[queue] {
            config.call.clone_from(&call);
        }
        match queue {
            RX => self.shared.set_call(self.port, call),
            _ => self.mailbox.send(Command::SetCall { port: self.port, queue, call }),
        }
    }

    fn set_err(&mut self, queue: usize, err: Option<Arc<OwnedFd>>) {
        // A broken receive ring is told of at its sender's place.
        if queue == TX && self.running[queue] {
            self.mailbox.send(Command::SetErr { port: self.port, err });
        }
    }

    fn clear_error(&mut self) {
        self.shared.ports[self.port].broken.store(false, Ordering::Release);
    }
}
