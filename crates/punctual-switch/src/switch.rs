//! A switch: its ports, their sockets and its threads.
//!
//! The control thread serves the sockets, each plane and each uplink has a thread of its own. A TX ring
//! belongs to one plane, which other threads ask through its mailbox. So does an RX ring if there is only one
//! plane; several planes share it, behind a lock that inherits priorities.

mod hotplug;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::Instant;

use punctual_model::network::Vlans;
use punctual_net::discipline::DisciplineInfo;
use punctual_sched::registry::Options;

use crate::assemble::{plane, plane_budget, shared, spawn};
use crate::budget::PlaneBudget;
use crate::check::Violation;
use crate::config::{Config, End, Error, PlaneThread, Port};
use crate::control::{Control, Inbox, Listener, Request};
use crate::event::Notice;
use crate::features;
use crate::join::join_until;
use crate::limits::{CONTROL_END_TIMEOUT, COUNT_TIMEOUT, END_TIMEOUT};
use crate::mailbox::{Answer, Command, Mailbox, Question};
use crate::plane::{Outcome, PlaneHandles, RunPlane};
use crate::port_session::PortSession;
use crate::port_state::PortState;
use crate::shared::Shared;
use crate::stats::{PlaneStats, PortStats, UplinkStats};
use crate::sys::prepare_signals;
use crate::uplink_thread::UplinkThread;
use crate::vlan::Filter;
use crate::wire::Wire;

/// Ports whose counters a plane copies at once, which takes some microseconds.
const COUNTED_TOGETHER: usize = 4;

const CONTROL_NAME: &str = "switch control";

/// The counters of a switch.
#[derive(Clone, Debug)]
pub struct Report {
    /// By port.
    pub ports: Vec<PortStats>,
    /// By plane.
    pub planes: Vec<PlaneStats>,
    /// When a switch with `check` has stopped, for each plane: the most less urgent packets that went before
    /// a waiting one in TX, softnet and RX; or the first violation.
    pub checked: Vec<Result<[u64; 3], Violation>>,
    /// Threads that did not end when the switch stopped: something that a front-end or a wire handed over
    /// holds them in the kernel. They end with the process. Of a plane among them nothing is counted.
    pub left_behind: Vec<String>,
}

/// A running switch. It stops when this is dropped.
pub struct Switch {
    shared: Arc<Shared>,
    planes: Vec<PlaneHandle>,
    control: Option<JoinHandle<()>>,
    inbox: Arc<Inbox>,
    /// The files of sockets, which the control thread removes.
    sockets: Vec<(usize, PathBuf)>,
    uplinks: Vec<UplinkThread>,
    discipline: &'static DisciplineInfo,
    options: Options,
    vlans: Option<Arc<Filter>>,
}

/// A plane as other threads see it.
struct PlaneHandle {
    name: String,
    mailbox: Arc<Mailbox>,
    thread: Option<JoinHandle<Outcome>>,
    /// For the threads of its uplinks.
    enter: Arc<dyn Fn() + Send + Sync>,
    budget: Option<Arc<PlaneBudget>>,
}

impl std::fmt::Debug for Switch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Switch({} ports, {} planes)", self.ports_used(), self.planes.len())
    }
}

impl Switch {
    /// Starts a switch. The receiver gets the events of its ports until it stops.
    ///
    /// # Errors
    /// What is wrong with the configuration, or what the kernel refuses. Then nothing remains.
    pub fn start(config: Config) -> Result<(Switch, Receiver<Notice>), Error> {
        config.check()?;
        prepare_signals().map_err(Error::Signals)?;
        let (notice, notices) = mpsc::channel();
        let mailboxes: Result<Vec<_>, _> =
            config.planes.iter().map(|_| Mailbox::new().map(Arc::new)).collect();
        let mailboxes = mailboxes.map_err(Error::Start)?;
        let shared = Arc::new(shared(&config, &mailboxes, Some(notice))?);
        let vlans: Vec<Vlans> = config.ports.iter().map(|port| port.vlans.clone()).collect();
        let vlans = Filter::new(&vlans)?.map(Arc::new);
        let mut switch = Switch {
            shared: Arc::clone(&shared),
            planes: Vec::new(),
            control: None,
            inbox: Arc::new(Inbox::new().map_err(Error::Start)?),
            sockets: sockets(&config.ports),
            uplinks: Vec::new(),
            discipline: config.discipline,
            options: config.options.clone(),
            vlans: vlans.clone(),
        };
        let mut planes = Vec::new();
        for (index, (mailbox, thread)) in mailboxes.iter().zip(&config.planes).enumerate() {
            let handles = PlaneHandles {
                shared: Arc::clone(&shared),
                mailbox: Arc::clone(mailbox),
                plane_budget: plane_budget(thread)?,
                vlans: vlans.clone(),
            };
            let handle = PlaneHandle::new(thread, &handles);
            planes.push((plane(&config, index, handles)?, handle));
        }
        let control = switch.control(&config, &mailboxes)?;
        for (plane, handle) in planes {
            switch.planes.push(handle.spawn(plane)?);
        }
        switch.control = Some(spawn(CONTROL_NAME.into(), move || control.run())?);
        for (port, of) in config.ports.into_iter().enumerate() {
            if let End::Uplink(wire) | End::UplinkClass(wire, _) = of.end {
                switch.start_uplink(port, of.plane, wire)?;
            }
        }
        Ok((switch, notices))
    }

    /// The control of a new switch, which listens at all its sockets.
    fn control(&self, config: &Config, mailboxes: &[Arc<Mailbox>]) -> Result<Control, Error> {
        let offered = features::OFFERED | config.mtu.map_or(0, |_| features::MTU);
        let mut control = Control::new(&self.shared, &self.inbox, offered).map_err(Error::Start)?;
        for (port, of) in config.ports.iter().enumerate() {
            let session = PortSession::new(port, &self.shared, &mailboxes[of.plane]);
            if let Some(listener) = Listener::open(&of.end, session)? {
                control.add(port, listener).map_err(Error::Start)?;
            }
        }
        Ok(control)
    }

    fn start_uplink(&mut self, port: usize, plane: usize, wire: Box<dyn Wire>) -> Result<(), Error> {
        let session = self.session(port, plane);
        let PlaneHandle { enter, budget, .. } = &self.planes[plane];
        let thread = UplinkThread::start(port, wire, session, Arc::clone(enter), budget.clone());
        self.uplinks.push(thread.map_err(Error::Start)?);
        Ok(())
    }

    fn session(&self, port: usize, plane: usize) -> PortSession {
        PortSession::new(port, &self.shared, &self.planes[plane].mailbox)
    }

    /// Port numbers that are or were in use.
    fn ports_used(&self) -> usize {
        self.shared.ports_used()
    }

    fn empty_report(&self) -> Report {
        let mut ports = Vec::new();
        ports.resize_with(self.ports_used(), PortStats::default);
        Report { ports, planes: Vec::new(), checked: Vec::new(), left_behind: Vec::new() }
    }

    /// The counters so far, without those of a plane that does not respond.
    pub fn count(&self) -> Report {
        let mut report = self.empty_report();
        for plane in &self.planes {
            report.planes.extend(count_plane(&plane.mailbox, &mut report.ports));
        }
        self.add_uplinks(&mut report);
        report
    }

    /// Has the uplink at this port ended, because its wire is gone?
    pub fn has_ended(&self, port: usize) -> bool {
        self.shared.ports.get(port).is_some_and(|port| port.life.state() == PortState::Ended)
    }

    fn add_uplinks(&self, report: &mut Report) {
        for uplink in &self.uplinks {
            report.ports[uplink.port].uplink = Some(UplinkStats::of(&uplink.counters));
        }
    }

    /// Stops the switch: closes connections, removes sockets. VMs continue with the next switch that listens
    /// there.
    pub fn stop(mut self) -> Report {
        self.end()
    }

    fn end(&mut self) -> Report {
        let (start, mut report) = (Instant::now(), self.empty_report());
        self.end_control(start + CONTROL_END_TIMEOUT, &mut report);
        let until = start + END_TIMEOUT;
        let running = self.planes.iter().filter(|plane| plane.thread.is_some());
        running.for_each(|plane| plane.mailbox.send(Command::Exit));
        for plane in &mut self.planes {
            let Some(thread) = plane.thread.take() else { continue };
            match join_until(thread, until) {
                Some(Ok(outcome)) => {
                    report.ports.iter_mut().zip(&outcome.ports).for_each(|(sum, port)| sum.merge(port));
                    report.planes.push(outcome.stats);
                    report.checked.extend(outcome.checked);
                }
                Some(Err(_)) => {}
                None => report.left_behind.push(plane.name.clone()),
            }
        }
        // After the planes: what they delivered must reach the wires.
        for uplink in &mut self.uplinks {
            if !uplink.stop(until) {
                report.left_behind.push(uplink.name());
            }
        }
        self.add_uplinks(&mut report);
        self.shared.pass_on_reports();
        // Threads that are left behind must not keep the reader of the notices waiting.
        self.shared.end_notices();
        report
    }

    /// Ends the control thread, which removes the sockets and disconnects the VMs.
    fn end_control(&mut self, until: Instant, report: &mut Report) {
        let Some(thread) = self.control.take() else { return };
        self.inbox.send(Request::Exit);
        if join_until(thread, until).is_none() {
            report.left_behind.push(CONTROL_NAME.into());
            // It waits for a plane.
            for (_, socket) in &self.sockets {
                let _ = std::fs::remove_file(socket);
            }
        }
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.end();
    }
}

impl PlaneHandle {
    fn new(thread: &PlaneThread, handles: &PlaneHandles) -> PlaneHandle {
        PlaneHandle {
            name: thread.name.clone(),
            mailbox: Arc::clone(&handles.mailbox),
            thread: None,
            enter: Arc::clone(&thread.enter),
            budget: handles.plane_budget.clone(),
        }
    }

    fn spawn(self, plane: Box<dyn RunPlane>) -> Result<PlaneHandle, Error> {
        let (enter, name) = (Arc::clone(&self.enter), self.name.clone());
        let work = move || {
            enter();
            plane.run()
        };
        Ok(PlaneHandle { thread: Some(spawn(name, work)?), ..self })
    }
}

/// The files of sockets by port.
fn sockets(ports: &[Port]) -> Vec<(usize, PathBuf)> {
    ports.iter().enumerate().filter_map(|(number, port)| Some((number, port.end.socket()?))).collect()
}

/// Adds a plane's counters to those of `ports`, a few ports at a time: it carries packets in between. Returns
/// the plane's own counters, if it responds.
fn count_plane(mailbox: &Mailbox, ports: &mut [PortStats]) -> Option<PlaneStats> {
    let mut plane = None;
    for (at, sums) in ports.chunks_mut(COUNTED_TOGETHER).enumerate() {
        let into = vec![PortStats::default(); sums.len()];
        let question = Question::Count { from: at * COUNTED_TOGETHER, into };
        let Answer::Counted(counted, stats) = mailbox.ask(question, COUNT_TIMEOUT)? else { return None };
        sums.iter_mut().zip(&counted).for_each(|(sum, port)| sum.merge(port));
        plane = Some(stats);
    }
    plane
}
