//! Ports that come and go while a switch works.
//!
//! Planes and control are asked one after the other, each between two of its packets or events; nobody waits
//! for another. A place of a port that is gone is given to the next one that comes, once the discipline has
//! no packet of the old port before or in stage TX; packets to the old port never reach the new one
//! (`plane/plug.rs`).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;

use punctual_model::network::Vlans;
use punctual_net::InterfaceParams;
use punctual_sched::Instant;

use super::Switch;
use crate::assemble::port_kind;
use crate::config::{End, Error, Port};
use crate::control::{Listener, Request};
use crate::limits::{PLANE_LIMIT, PORTS_MAX};
use crate::mailbox::{Attach, Attached, Command};
use crate::port_session::rings;
use crate::stats::{PortStats, UplinkStats};
use crate::vlan::Filter;

impl Switch {
    /// Could a port of this name be added?
    ///
    /// # Errors
    /// Why the switch would refuse it. What the kernel would refuse is found out when it is added.
    pub fn check(
        &self,
        name: &str,
        params: &InterfaceParams,
        plane: usize,
        vlans: &Vlans,
    ) -> Result<(), Error> {
        if plane >= self.hotplug.planes.len() {
            return Err(Error::Plane { port: name.to_owned(), plane });
        }
        let refused = |error: String| Error::Discipline(format!("port {name}: {error}"));
        let discipline = (self.hotplug.discipline.build)(&self.hotplug.options);
        let mut discipline = discipline.map_err(|error| refused(error.to_string()))?;
        discipline.attach(Instant::ZERO, params).map_err(|error| refused(error.to_string()))?;
        match self.hotplug.vlans.is_none() && vlans.are_given() {
            true => Err(Error::FirstVlans),
            false => Ok(()),
        }
    }

    /// Adds a port. Others notice nothing. Returns the port's place, under which the switch reports it.
    ///
    /// # Errors
    /// What is wrong with it, or what the kernel refuses; then nothing changed.
    pub fn plug(&mut self, port: Port) -> Result<usize, Error> {
        self.check(&port.name, &port.params, port.plane, &port.vlans)?;
        let places = 0..PORTS_MAX;
        let is_free = |place: &usize| self.hotplug.taken.get(*place) != Some(&true);
        // One place beyond those that were in use at most: places have no gaps.
        let places: Vec<usize> =
            places.filter(is_free).take_while(|at| *at <= self.hotplug.ports()).collect();
        for place in places {
            let rings =
                rings(place, port.plane, &self.hotplug.shared, &self.mailboxes, &self.hotplug.notices);
            // Listened at first: that may fail.
            let listener = Listener::open(&port.end, rings)?;
            let vlans = self.hotplug.filter(place, &port)?;
            match self.attach(place, &port, vlans.as_ref()) {
                Ok(true) => {}
                refused => {
                    // Some planes may know it already.
                    self.detach(place);
                    refused?;
                    continue;
                }
            }
            self.hotplug.vlans = vlans;
            if place == self.hotplug.ports() {
                self.hotplug.taken.push(true);
            }
            self.hotplug.taken[place] = true;
            if let Err(error) = self.open(place, port, listener) {
                self.unplug(place);
                return Err(error);
            }
            return Ok(place);
        }
        Err(Error::NoPlace)
    }

    /// Tells every plane of a port. `false`: one of them has packets of the port that was there before.
    fn attach(&self, place: usize, port: &Port, vlans: Option<&Arc<Filter>>) -> Result<bool, Error> {
        for (plane, mailbox) in self.mailboxes.iter().enumerate() {
            let attach = Attach::new(place, port.params.clone(), plane == port.plane, vlans.cloned());
            let (reply, answer) = sync_channel(1);
            mailbox.send(Command::AttachPort { attach: Box::new(attach), reply });
            let Attached { done, .. } = answer.recv_timeout(PLANE_LIMIT).map_err(|_| Error::Silent)?;
            if !done.map_err(|error| Error::Discipline(error.to_string()))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Every plane forgets a port. Returns what they counted.
    fn detach(&self, place: usize) -> PortStats {
        let mut all = PortStats::default();
        for mailbox in &self.mailboxes {
            let (reply, answer) = sync_channel(1);
            mailbox.send(Command::DetachPort { port: place, none: Box::default(), reply });
            if let Ok(stats) = answer.recv_timeout(PLANE_LIMIT) {
                all.merge(&stats);
            }
        }
        all
    }

    /// Planes know the port: VMs and wires may come.
    fn open(&mut self, place: usize, port: Port, listener: Option<Listener>) -> Result<(), Error> {
        let shared = &self.hotplug.shared;
        shared.ports[place].broken.store(false, Ordering::Release);
        shared.table.set_kind(place, port_kind(&port.end));
        if let Some(address) = port.address {
            shared.table.pin(address, place);
        }
        shared.ports_used.fetch_max(place + 1, Ordering::AcqRel);
        if let Some(listener) = listener {
            let (reply, answer) = sync_channel(1);
            self.hotplug.inbox.send(Request::Open { port: place, listener: Box::new(listener), reply });
            let opened = answer.recv_timeout(PLANE_LIMIT).map_err(|_| Error::Silent)?;
            opened.map_err(Error::Start)?;
        }
        match port.end {
            End::Uplink(wire) => self.start_uplink(place, port.plane, wire),
            End::Socket(_) | End::Listener(_) => Ok(()),
        }
    }

    /// Removes a port: its VM is disconnected, its socket goes away. Others notice nothing. Returns what was
    /// counted of it; `None` when there is no such port.
    pub fn unplug(&mut self, place: usize) -> Option<PortStats> {
        let taken = self.hotplug.taken.get_mut(place).filter(|taken| **taken)?;
        *taken = false;
        let (reply, answer) = sync_channel(1);
        self.hotplug.inbox.send(Request::Close { port: place, reply });
        // Its rings stop in here, each within that limit.
        let _ = answer.recv_timeout(4 * PLANE_LIMIT);
        let shared = &self.hotplug.shared;
        shared.set_rx(place, None);
        let mut stats = self.detach(place);
        if let Some(at) = self.uplinks.iter().position(|uplink| uplink.port == place) {
            let mut uplink = self.uplinks.swap_remove(at);
            uplink.stop_and_wait();
            stats.uplink = Some(UplinkStats::of(&uplink.counters));
        }
        self.hotplug.shared.table.remove(place);
        Some(stats)
    }
}
