//! Ports that come and go while a plane works.
//!
//! Everything that takes memory is made before and freed after, in the thread that asks: the plane itself
//! moves a few words and tells the discipline, between two packets.

use std::sync::Arc;

use punctual_net::{Discipline, InterfaceId, InterfaceParams};
use punctual_sched::ParamError;

use super::{ALWAYS_MAX, Local, Plane};
use crate::stats::PortStats;
use crate::vlan::Filter;

/// A port that comes, as one plane knows it.
pub(crate) struct Attach {
    port: usize,
    params: InterfaceParams,
    is_own: bool,
    /// In exchange, the one that was there.
    local: Option<Local>,
    vlans: Option<Arc<Filter>>,
}

impl Attach {
    /// A port, and the VLANs of all ports with it. Does the plane serve it?
    pub(crate) fn new(
        port: usize,
        params: InterfaceParams,
        is_own: bool,
        vlans: Option<Arc<Filter>>,
    ) -> Attach {
        let local = Some(Local::new(&params, is_own, vlans.is_some()));
        Attach { port, params, is_own, local, vlans }
    }
}

/// What became of it.
pub(crate) struct Attached {
    /// `Ok(false)`: packets of the port that was there before are still on their way.
    pub(crate) done: Result<bool, ParamError>,
    /// Memory that the plane does not need any more, and does not free itself.
    _rest: Attach,
}

impl<D: Discipline> Plane<D> {
    /// A port comes, at the end or in the place of one that is gone.
    pub(super) fn attach(&mut self, mut attach: Attach) -> Attached {
        let is_free = self.checker.as_ref().is_none_or(|checker| checker.is_free(attach.port));
        let done = if is_free { self.take_place(&mut attach) } else { Ok(false) };
        Attached { done, _rest: attach }
    }

    fn take_place(&mut self, attach: &mut Attach) -> Result<bool, ParamError> {
        let (port, params) = (attach.port, &attach.params);
        self.now = self.shared.now();
        let Some(mut local) = attach.local.take() else { return Ok(false) };
        if let Some(old) = self.ports.get_mut(port) {
            if !self.discipline.replace(self.now, InterfaceId(port as u32), params)? {
                return Ok(false);
            }
            // Numbers go on, so that packets of the old port are not taken for those of the new one.
            (local.first, local.next) = (old.next, old.next);
            local.incarnation = old.incarnation.wrapping_add(1);
            attach.local = Some(std::mem::replace(old, local));
        } else {
            self.discipline.attach(self.now, params)?;
            self.ports.push(local);
        }
        self.came(attach);
        Ok(true)
    }

    fn came(&mut self, attach: &mut Attach) {
        std::mem::swap(&mut self.vlans, &mut attach.vlans);
        if let Some(checker) = &mut self.checker {
            checker.attach(attach.port, &attach.params);
        }
        if attach.is_own {
            self.serve(attach.port);
        }
    }

    /// A port without rings goes. Returns what was counted of it, in exchange for `none`; what of it is on
    /// its way counts as stopped.
    pub(super) fn detach(&mut self, port: usize, none: PortStats) -> PortStats {
        self.stop(port);
        self.own.retain(|own| *own != port);
        self.count_urgent();
        let Some(local) = self.ports.get_mut(port) else { return none };
        let mut stats = std::mem::replace(&mut local.stats, none);
        let ended = stats.delivered.packets + stats.drops.total();
        stats.drops.stopped += stats.sent.packets.saturating_sub(ended);
        stats
    }

    /// Serves a port: it looks at its send ring, with those of its priority after those that were there.
    pub(super) fn serve(&mut self, port: usize) {
        let urgency = self.ports[port].urgency;
        let at = self.own.partition_point(|own| self.ports[*own].urgency <= urgency);
        self.own.insert(at, port);
        self.count_urgent();
    }

    /// How many of its ports are looked at before every decision?
    fn count_urgent(&mut self) {
        let urgency = |port: &usize| self.ports[*port].urgency;
        let most_urgent = self.own.iter().take_while(|port| urgency(port) == urgency(&self.own[0])).count();
        let few = self.own.len() <= ALWAYS_MAX;
        self.always = if few { self.own.len() } else { most_urgent.min(ALWAYS_MAX) };
        self.turn = 0;
    }
}
