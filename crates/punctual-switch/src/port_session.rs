//! The rings of a port as its front-end starts and stops them, and the changes of its state that follow.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use vm_memory::{Bytes, GuestAddress};

use crate::error::RingError;
use crate::event::Event;
use crate::limits::PLANE_TIMEOUT;
use crate::mailbox::{Answer, Command, Mailbox, Question};
use crate::port_state::{Change, PortLife, PortState};
use crate::ring::{RxRing, TxRing, VringConfig};
use crate::session::{RX, Rings, TX};
use crate::shared::Shared;
use crate::sys::{kick_count, signal_peer};

/// Kicks of both rings without an available entry in either, after which the memory counts as not shared.
/// QEMU creates each kick event signalled and signals it once more when it starts the ring; a driver kicks
/// when it has made an entry available.
const SILENT_KICKS: u64 = 5;

pub(crate) struct PortSession {
    port: usize,
    shared: Arc<Shared>,
    mailbox: Arc<Mailbox>,
    /// By queue, while it is started.
    started: [Option<VringConfig>; 2],
}

impl PortSession {
    /// The session of a port, whose TX ring the plane with this mailbox serves. No ring is started.
    pub(crate) fn new(port: usize, shared: &Arc<Shared>, mailbox: &Arc<Mailbox>) -> PortSession {
        PortSession { port, shared: Arc::clone(shared), mailbox: Arc::clone(mailbox), started: [None, None] }
    }

    pub(crate) fn life(&self) -> &PortLife {
        &self.shared.ports[self.port].life
    }

    /// When the switch's clock began.
    pub(crate) fn clock_start(&self) -> std::time::Instant {
        self.shared.start
    }

    /// Reports an event.
    pub(crate) fn notice(&self, event: Event) {
        self.shared.notice(self.port, event);
    }

    /// The front-end is gone, or the wire: the rings have stopped, and learned addresses are forgotten.
    pub(crate) fn end(&self, change: Change) {
        self.shared.table.forget(self.port);
        self.life().apply(change);
    }

    /// The kick events that must be watched, until [`PortSession::on_kick`] has seen an available entry.
    pub(crate) fn watched_kicks(&self) -> impl Iterator<Item = &Arc<OwnedFd>> {
        let is_unproven = self.life().state() == PortState::Unproven;
        self.started.iter().flatten().filter(move |_| is_unproven).map(|config| &config.kick)
    }

    /// A watched driver kicked.
    pub(crate) fn on_kick(&mut self) {
        if self.life().state() != PortState::Unproven {
            return;
        }
        let has_entries = |config: &VringConfig| {
            let avail_idx = GuestAddress(config.avail_ring.saturating_add(2));
            config.memory.guest.read_obj::<u16>(avail_idx).unwrap_or_default() != 0
        };
        if self.started.iter().flatten().any(has_entries) {
            self.life().apply(Change::EntriesSeen);
            return;
        }
        let kicks: u64 = self.started.iter().flatten().map(|config| kick_count(&config.kick)).sum();
        if kicks >= SILENT_KICKS && self.life().apply(Change::RingBroken) {
            for queue in [RX, TX] {
                self.stop(queue);
            }
            self.notice(Event::Broken(RingError::NotShared));
        }
    }
}

impl Rings for PortSession {
    fn start(&mut self, queue: usize, config: VringConfig) -> Result<(), RingError> {
        if self.life().is_broken() {
            return Ok(());
        }
        if config.memory.has_faulted() {
            // The front-end connects again, and the memory is mapped again.
            return Err(RingError::MissingPages);
        }
        debug_assert!(self.started[queue].is_none(), "a session stops a ring before it starts it again");
        if queue == RX {
            self.shared.set_rx(self.port, Some(RxRing::new(&config)?));
        } else {
            let ring = Box::new(TxRing::new(&config)?);
            self.mailbox.send(Command::StartTx { port: self.port, ring });
        }
        if let Some(call) = &config.call {
            // The switch before this one may have died between a used entry and its call.
            signal_peer(call);
        }
        let is_assumed = config.features_assumed;
        self.started[queue] = Some(config);
        if self.started.iter().all(Option::is_some) {
            self.life().apply(Change::RingsStarted);
            self.notice(Event::Running);
            if is_assumed {
                self.notice(Event::Assumed);
            }
        }
        Ok(())
    }

    fn stop(&mut self, queue: usize) -> Option<u16> {
        self.started[queue].take()?;
        let base = if queue == RX {
            self.shared.set_rx(self.port, None)
        } else {
            match self.mailbox.ask(Question::StopTx { port: self.port }, PLANE_TIMEOUT) {
                Some(Answer::TxStopped(base)) => base,
                _ => None,
            }
        };
        // The plane may have had the last reference to the VM's memory.
        self.shared.free_spent();
        self.life().apply(Change::RingStopped);
        base
    }

    fn set_call(&mut self, queue: usize, call: Option<Arc<OwnedFd>>) {
        let Some(config) = &mut self.started[queue] else { return };
        config.call.clone_from(&call);
        match queue {
            RX => self.shared.set_call(self.port, call),
            _ => self.mailbox.send(Command::SetCall { port: self.port, queue, call }),
        }
    }

    fn set_err(&mut self, queue: usize, err: Option<Arc<OwnedFd>>) {
        // The plane reports a broken RX ring at the TX ring's err event.
        if let (TX, Some(config)) = (queue, &mut self.started[queue]) {
            config.err.clone_from(&err);
            self.mailbox.send(Command::SetErr { port: self.port, err });
        }
    }

    fn clear_error(&mut self) {
        self.life().apply(Change::RingsReset);
    }
}
