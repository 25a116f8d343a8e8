//! A switch: its ports, their sockets, and the threads port_kind them.
//!
//! One thread, the *control*, listens on all sockets and talks with the VMs' monitors. It waits for no one of
//! them. Each plane is a thread of its own. A send ring belongs to one plane, and the control asks it. So
//! does a receive ring if there is only one plane; several planes share it, port_kind a lock that inherits
//! priorities.

mod hotplug;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

use punctual_model::network::Vlans;
use punctual_net::discipline::DisciplineInfo;
use punctual_sched::registry::Options;

use crate::assemble::{plane, plane_budget, shared, spawn};
use crate::budget::PlaneBudget;
use crate::check::Violation;
use crate::config::{Config, End, Error, Port, check};
use crate::control::{Control, Inbox, Request};
use crate::event::Notice;
use crate::limits::PLANE_LIMIT;
use crate::mailbox::{Command, Mailbox};
use crate::plane::{Outcome, PlaneHandles};
use crate::port_session::rings;
use crate::shared::Shared;
use crate::stats::{PlaneStats, PortStats, UplinkStats};
use crate::uplink_thread::{UplinkHandle, start_uplink};
use crate::vlan::Filter;
use crate::wire::Wire;

/// Ports of which a plane is asked together what it counted: copying that takes some microseconds.
const COUNTED_TOGETHER: usize = 4;

/// What a switch counted.
#[derive(Clone, Debug)]
pub struct Report {
    /// By port.
    pub ports: Vec<PortStats>,
    /// By plane.
    pub planes: Vec<PlaneStats>,
    /// With `check`, at the end: for each plane the most less urgent packets that went before a waiting one
    /// in TX, softnet and RX; or what was violated.
    pub checked: Vec<Result<[u64; 3], Violation>>,
}

/// A switch at work. It stops when this is dropped.
pub struct Switch {
    mailboxes: Vec<Arc<Mailbox>>,
    planes: Vec<JoinHandle<Outcome>>,
    control: Option<JoinHandle<()>>,
    uplinks: Vec<UplinkHandle>,
    hotplug: HotplugContext,
}

/// A plane, for uplinks that come later.
#[derive(Clone)]
struct PlaneContext {
    /// What its threads do first.
    enter: Arc<dyn Fn() + Send + Sync>,
    plane_budget: Option<Arc<PlaneBudget>>,
}

/// What a switch keeps for ports that come later.
struct HotplugContext {
    shared: Arc<Shared>,
    inbox: Arc<Inbox>,
    notices: Sender<Notice>,
    discipline: &'static DisciplineInfo,
    options: Options,
    planes: Vec<PlaneContext>,
    vlans: Option<Arc<Filter>>,
    /// By place: has a port it?
    taken: Vec<bool>,
}

impl HotplugContext {
    fn new(
        config: &Config,
        (shared, inbox): (&Arc<Shared>, &Arc<Inbox>),
        notices: &Sender<Notice>,
        (plane_budgets, vlans): (&[Option<Arc<PlaneBudget>>], Option<Arc<Filter>>),
    ) -> HotplugContext {
        let planes = config.planes.iter().zip(plane_budgets);
        HotplugContext {
            shared: Arc::clone(shared),
            inbox: Arc::clone(inbox),
            notices: notices.clone(),
            discipline: config.discipline,
            options: config.options.clone(),
            planes: planes
                .map(|(plane, plane_budget)| PlaneContext {
                    enter: Arc::clone(&plane.enter),
                    plane_budget: plane_budget.clone(),
                })
                .collect(),
            vlans,
            taken: vec![true; config.ports.len()],
        }
    }

    /// Places that have or had a port.
    fn ports(&self) -> usize {
        self.taken.len()
    }

    /// The filter with a port at this place.
    fn filter(&self, place: usize, port: &Port) -> Result<Option<Arc<Filter>>, Error> {
        let with = self.vlans.as_ref().map(|filter| filter.with(place, &port.vlans));
        Ok(with.transpose()?.map(Arc::new))
    }
}

impl std::fmt::Debug for Switch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Switch({} ports, {} planes)", self.hotplug.ports(), self.planes.len())
    }
}

impl Switch {
    /// Starts a switch: makes the sockets and the threads. The receiver tells what happens to ports, until
    /// the switch stops.
    ///
    /// # Errors
    /// What is wrong with the configuration, or what the kernel refuses; then nothing is left.
    pub fn start(config: Config) -> Result<(Switch, Receiver<Notice>), Error> {
        check(&config)?;
        let (notice, notices) = mpsc::channel();
        let mailboxes: Result<Vec<_>, _> =
            config.planes.iter().map(|_| Mailbox::new().map(Arc::new)).collect();
        let mailboxes = mailboxes.map_err(Error::Start)?;
        let shared = Arc::new(shared(&config, &mailboxes)?);
        let mut planes = Vec::new();
        let vlans: Vec<Vlans> = config.ports.iter().map(|port| port.vlans.clone()).collect();
        let vlans = Filter::new(&vlans)?.map(Arc::new);
        let plane_budgets = config.planes.iter().map(plane_budget).collect::<Result<Vec<_>, _>>()?;
        for (index, (mailbox, plane_budget)) in mailboxes.iter().zip(&plane_budgets).enumerate() {
            let threads = PlaneHandles {
                shared: Arc::clone(&shared),
                mailbox: Arc::clone(mailbox),
                notices: notice.clone(),
                plane_budget: plane_budget.clone(),
                vlans: vlans.clone(),
            };
            planes.push(plane(&config, index, threads)?);
        }
        let inbox = Inbox::new().map(Arc::new).map_err(Error::Start)?;
        let control = Control::new(&config, &shared, &mailboxes, (&notice, &inbox))?;
        let hotplug = HotplugContext::new(&config, (&shared, &inbox), &notice, (&plane_budgets, vlans));
        let (planes_of, uplinks) = (Vec::new(), Vec::new());
        let mut switch = Switch { mailboxes, planes: planes_of, control: None, uplinks, hotplug };
        for (plane, thread) in planes.into_iter().zip(&config.planes) {
            let enter = Arc::clone(&thread.enter);
            let work = move || {
                enter();
                plane.run()
            };
            switch.planes.push(spawn(thread.name.clone(), work)?);
        }
        switch.control = Some(spawn("switch control".into(), move || control.run())?);
        for (port, of) in config.ports.into_iter().enumerate() {
            if let End::Uplink(wire) = of.end {
                switch.start_uplink(port, of.plane, wire)?;
            }
        }
        Ok((switch, notices))
    }

    /// What was counted so far; without a plane that does not answer.
    pub fn count(&self) -> Report {
        let mut report = Report { ports: Vec::new(), planes: Vec::new(), checked: Vec::new() };
        report.ports.resize_with(self.hotplug.ports(), PortStats::default);
        for mailbox in &self.mailboxes {
            report.planes.extend(count_plane(mailbox, &mut report.ports));
        }
        self.add_uplinks(&mut report);
        report
    }

    /// Has the uplink at this place ended, because what is beyond it is gone?
    pub fn has_ended(&self, place: usize) -> bool {
        let has_ended = |uplink: &UplinkHandle| uplink.ended.load(Ordering::Acquire);
        self.uplinks.iter().any(|uplink| uplink.port == place && has_ended(uplink))
    }

    fn add_uplinks(&self, report: &mut Report) {
        for UplinkHandle { port, counters, .. } in &self.uplinks {
            report.ports[*port].uplink = Some(UplinkStats::of(counters));
        }
    }

    /// Stops: connections are closed, sockets removed. VMs go on when a switch listens again.
    pub fn stop(mut self) -> Report {
        self.end()
    }

    fn end(&mut self) -> Report {
        if let Some(thread) = self.control.take() {
            self.hotplug.inbox.send(Request::End);
            let _ = thread.join();
        }
        let mut report = Report { ports: Vec::new(), planes: Vec::new(), checked: Vec::new() };
        report.ports.resize_with(self.hotplug.ports(), PortStats::default);
        for (mailbox, thread) in self.mailboxes.iter().zip(self.planes.drain(..)) {
            mailbox.send(Command::Exit);
            if let Ok(outcome) = thread.join() {
                add(&mut report, &outcome.ports, outcome.stats);
                report.checked.extend(outcome.checked);
            }
        }
        // What the planes delivered goes out before an uplink ends.
        self.uplinks.iter_mut().for_each(UplinkHandle::stop_and_wait);
        self.add_uplinks(&mut report);
        report
    }

    /// Starts the thread of an uplink.
    fn start_uplink(&mut self, place: usize, plane: usize, wire: Box<dyn Wire>) -> Result<(), Error> {
        let HotplugContext { shared, notices, planes, .. } = &self.hotplug;
        let rings = rings(place, plane, shared, &self.mailboxes, notices);
        let PlaneContext { enter, plane_budget } = planes[plane].clone();
        self.uplinks.push(start_uplink(wire, rings, enter, plane_budget).map_err(Error::Start)?);
        Ok(())
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.end();
    }
}

/// Adds what a plane counted of `ports`, a few at a time: it carries packets in between. Returns what it did
/// itself, if it answers.
fn count_plane(mailbox: &Mailbox, ports: &mut [PortStats]) -> Option<PlaneStats> {
    let mut plane = None;
    for (at, sums) in ports.chunks_mut(COUNTED_TOGETHER).enumerate() {
        let (reply, answer) = mpsc::sync_channel(1);
        let into = vec![PortStats::default(); sums.len()];
        mailbox.send(Command::Count { from: at * COUNTED_TOGETHER, into, reply });
        let (counted, stats) = answer.recv_timeout(PLANE_LIMIT).ok()?;
        sums.iter_mut().zip(&counted).for_each(|(sum, port)| sum.merge(port));
        plane = Some(stats);
    }
    plane
}

fn add(report: &mut Report, ports: &[PortStats], plane: PlaneStats) {
    for (sum, port) in report.ports.iter_mut().zip(ports) {
        sum.merge(port);
    }
    report.planes.push(plane);
}
