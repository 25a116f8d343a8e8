//! From a configuration to planes and what they share.

use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use punctual_net::discipline::Visitor;
use punctual_net::{Discipline, InterfaceParams, registry};
use punctual_sched::Instant;

use crate::budget::PlaneBudget;
use crate::check::Checker;
use crate::config::{Config, End, Error, PlaneThread};
use crate::event::Notice;
use crate::limits::PORTS_MAX;
use crate::lock::PiMutex;
use crate::mailbox::Mailbox;
use crate::plane::{Plane, PlaneHandles, RunPlane};
use crate::port_queue::Membership;
use crate::port_state::Change;
use crate::shared::{SPENT_MAX, Shared, SharedPort};
use crate::sys::eventfd;
use crate::table::{PortKind, Table};

/// Room in the table for addresses of ports that are added later.
const SPARE_ADDRESSES: u32 = 1_024;

pub(crate) fn spawn<T: Send + 'static>(
    name: String,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Error> {
    std::thread::Builder::new().name(name).spawn(work).map_err(Error::Start)
}

pub(crate) fn plane_budget(plane: &PlaneThread) -> Result<Option<Arc<PlaneBudget>>, Error> {
    let Some(budget) = &plane.budget else { return Ok(None) };
    let budget = PlaneBudget::new(budget);
    let budget = budget.map_err(|source| Error::Budget { plane: plane.name.clone(), source })?;
    Ok(Some(Arc::new(budget)))
}

pub(crate) fn port_kind(end: &End) -> PortKind {
    match end {
        End::Socket(_) | End::Listener(_) | End::VmClass { .. } => PortKind::Vm,
        End::Uplink(_) | End::UplinkClass(..) => PortKind::Uplink,
    }
}

/// What the threads of a switch share. Events of ports go to `notices`, if it is given.
pub(crate) fn shared(
    config: &Config,
    mailboxes: &[Arc<Mailbox>],
    notices: Option<Sender<Notice>>,
) -> Result<Shared, Error> {
    let kinds: Vec<PortKind> = config.ports.iter().map(|port| port_kind(&port.end)).collect();
    let table = Table::with_room(&kinds, PORTS_MAX, SPARE_ADDRESSES);
    let ports: Vec<SharedPort> = std::iter::repeat_with(SharedPort::default).take(PORTS_MAX).collect();
    for (port, of) in config.ports.iter().enumerate() {
        ports[port].life.apply(Change::Added);
        if let Some(address) = of.address {
            table.pin(address, port);
        }
    }
    Ok(Shared {
        ports,
        ports_used: AtomicUsize::new(config.ports.len()),
        table,
        mtu: config.mtu.unwrap_or(u32::MAX),
        start: std::time::Instant::now(),
        notices: Mutex::new(notices),
        broken_event: eventfd().map_err(Error::Start)?,
        spent: PiMutex::new(Vec::with_capacity(SPENT_MAX)),
        sole_plane: if let [mailbox] = mailboxes { Some(Arc::clone(mailbox)) } else { None },
    })
}

struct PlaneBuilder<'a> {
    config: &'a Config,
    index: usize,
    handles: PlaneHandles,
}

impl Visitor for PlaneBuilder<'_> {
    type Output = Result<Box<dyn RunPlane>, Error>;

    fn visit<D: Discipline + 'static>(self, mut discipline: D) -> Self::Output {
        let PlaneBuilder { config, index, handles } = self;
        for port in &config.ports {
            let attached = discipline.attach(Instant::ZERO, &port.params);
            attached.map_err(|error| Error::Discipline(format!("port {}: {error}", port.name)))?;
        }
        discipline.reserve(PORTS_MAX);
        let params: Vec<InterfaceParams> = config.ports.iter().map(|port| port.params.clone()).collect();
        let is_served =
            |port: usize| config.ports[port].plane == index && config.ports[port].end.vm_class().is_none();
        let mut plane = Plane::new(handles, discipline, is_served, &params).map_err(Error::Start)?;
        for (port, of) in config.ports.iter().enumerate() {
            plane.set_home(port, of.end.home(port));
            plane.set_membership(port, Membership::of(of));
            if let Some(class) = of.end.vm_class() {
                plane.set_class(class, port);
            }
        }
        plane.poll_time = config.planes[index].poll;
        if config.check {
            plane.checker = Some(Checker::new(config.discipline, &config.options, &params));
        }
        Ok(Box::new(plane))
    }
}

/// The plane `index`, with a discipline of its own that is compiled into it.
pub(crate) fn plane(
    config: &Config,
    index: usize,
    handles: PlaneHandles,
) -> Result<Box<dyn RunPlane>, Error> {
    let builder = PlaneBuilder { config, index, handles };
    registry::build(config.discipline, &config.options, builder)
        .map_err(|error| Error::Discipline(error.to_string()))?
}
