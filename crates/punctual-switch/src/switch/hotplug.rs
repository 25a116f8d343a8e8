//! Ports that are added to and removed from a running switch.
//!
//! The caller asks planes and control one after the other; each acts between two of its packets or events,
//! and none waits for another. A removed port's number is reused once no discipline has a packet of the old
//! port in or before stage TX; packets to the old port never reach the new one (`plane/commands.rs`).

use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use punctual_model::network::Vlans;
use punctual_net::InterfaceParams;
use punctual_sched::Instant;

use super::Switch;
use crate::assemble::port_kind;
use crate::config::{End, Error, Port};
use crate::control::{Listener, Request};
use crate::limits::{PLANE_TIMEOUT, PORTS_MAX};
use crate::mailbox::{Answer, Attach, Attached, Question};
use crate::port_queue::Membership;
use crate::port_state::Change;
use crate::stats::{PortStats, UplinkStats};
use crate::vlan::Filter;

impl Switch {
    /// Could a port of this name be added?
    ///
    /// # Errors
    /// Why the switch would refuse it. What the kernel would refuse shows only when it is added.
    pub fn check(
        &self,
        name: &str,
        params: &InterfaceParams,
        plane: usize,
        vlans: &Vlans,
    ) -> Result<(), Error> {
        if plane >= self.planes.len() {
            return Err(Error::Plane { port: name.to_owned(), plane });
        }
        let refused = |error: String| Error::Discipline(format!("port {name}: {error}"));
        let discipline = (self.discipline.build)(&self.options);
        let mut discipline = discipline.map_err(|error| refused(error.to_string()))?;
        discipline.attach(Instant::ZERO, params).map_err(|error| refused(error.to_string()))?;
        if self.vlans.is_none() && vlans.are_given() { Err(Error::FirstVlans) } else { Ok(()) }
    }

    /// Adds a port without disturbing the others. Returns its number, under which the switch reports it.
    ///
    /// # Errors
    /// What is wrong with it, or what the kernel refuses. Then nothing has changed.
    pub fn plug(&mut self, port: Port) -> Result<usize, Error> {
        self.check(&port.name, &port.params, port.plane, &port.vlans)?;
        // At most one number beyond those in use: numbers have no gaps.
        let last = self.ports_used().min(PORTS_MAX - 1);
        let free: Vec<usize> =
            (0..=last).filter(|number| self.shared.ports[*number].life.is_absent()).collect();
        for number in free {
            // The socket first: it may fail.
            let listener = Listener::open(&port.end, self.session(number, port.plane))?;
            let vlans = self.vlans_with(number, &port)?;
            match self.attach(number, &port, vlans.as_ref()) {
                Ok(true) => {}
                refused => {
                    // Some planes may have it already.
                    self.detach(number);
                    refused?;
                    continue;
                }
            }
            self.vlans = vlans;
            self.shared.ports[number].life.apply(Change::Added);
            if let Err(error) = self.open(number, port, listener) {
                self.unplug(number);
                return Err(error);
            }
            return Ok(number);
        }
        Err(Error::NoPlace)
    }

    /// The VLANs of all ports, this one included.
    fn vlans_with(&self, number: usize, port: &Port) -> Result<Option<Arc<Filter>>, Error> {
        let with = self.vlans.as_ref().map(|filter| filter.with(number, &port.vlans));
        Ok(with.transpose()?.map(Arc::new))
    }

    /// Attaches a port to every plane. `false`: one of them has packets of the port that had this number.
    fn attach(&self, number: usize, port: &Port, vlans: Option<&Arc<Filter>>) -> Result<bool, Error> {
        for (index, plane) in self.planes.iter().enumerate() {
            let class = port.end.vm_class();
            let (home, is_served) = (port.end.home(number), index == port.plane && class.is_none());
            let membership = Membership::of(port);
            let attach =
                Attach::new((number, home), port.params.clone(), is_served, vlans.cloned(), membership);
            let attach = Attach { class, ..attach };
            let answer = plane.mailbox.ask(Question::Attach(Box::new(attach)), PLANE_TIMEOUT);
            let Some(Answer::Attached(Attached { done, .. })) = answer else { return Err(Error::Silent) };
            if !done.map_err(|error| Error::Discipline(error.to_string()))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Detaches a port from every plane. Returns its counters.
    fn detach(&self, number: usize) -> PortStats {
        let mut all = PortStats::default();
        for plane in &self.planes {
            let question = Question::Detach { port: number, zero: Box::default() };
            if let Some(Answer::Detached(stats)) = plane.mailbox.ask(question, PLANE_TIMEOUT) {
                all.merge(&stats);
            }
        }
        self.shared.free_spent();
        all
    }

    /// Lets the front-end, or the wire, use a port that the planes have attached.
    fn open(&mut self, number: usize, port: Port, listener: Option<Listener>) -> Result<(), Error> {
        self.shared.table.set_kind(number, port_kind(&port.end));
        if let Some(address) = port.address {
            self.shared.table.pin(address, number);
        }
        self.shared.use_port(number);
        if let Some(listener) = listener {
            let (reply, answer) = sync_channel(1);
            self.inbox.send(Request::Open { port: number, listener: Box::new(listener), reply });
            let opened = answer.recv_timeout(PLANE_TIMEOUT).map_err(|_| Error::Silent)?;
            opened.map_err(Error::Start)?;
        }
        self.sockets.extend(port.end.socket().map(|socket| (number, socket)));
        match port.end {
            End::Uplink(wire) | End::UplinkClass(wire, _) => self.start_uplink(number, port.plane, wire),
            End::Socket(_) | End::Listener(_) | End::VmClass { .. } => Ok(()),
        }
    }

    /// Removes a port without disturbing the others: its VM is disconnected, its socket removed. Returns its
    /// counters; `None` if there is no such port.
    pub fn unplug(&mut self, number: usize) -> Option<PortStats> {
        if self.shared.ports.get(number)?.life.is_absent() {
            return None;
        }
        let (reply, answer) = sync_channel(1);
        self.inbox.send(Request::Close { port: number, reply });
        // The control stops both rings, each within the plane's timeout.
        let _ = answer.recv_timeout(4 * PLANE_TIMEOUT);
        self.sockets.retain(|(of, _)| *of != number);
        self.shared.set_rx(number, None);
        let mut stats = self.detach(number);
        if let Some(at) = self.uplinks.iter().position(|uplink| uplink.port == number) {
            let mut uplink = self.uplinks.swap_remove(at);
            uplink.stop(std::time::Instant::now() + PLANE_TIMEOUT);
            stats.uplink = Some(UplinkStats::of(&uplink.counters));
        }
        self.shared.table.remove(number);
        self.shared.ports[number].life.apply(Change::Removed);
        Some(stats)
    }
}
