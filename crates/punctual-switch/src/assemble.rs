//! From a configuration to planes.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread::JoinHandle;

use punctual_net::discipline::Visitor;
use punctual_net::{Discipline, InterfaceParams, registry};
use punctual_sched::Instant;

use crate::budget::PlaneBudget;
use crate::check::Checker;
use crate::config::{Config, End, Error, PlaneThread};
use crate::limits::PORTS_MAX;
use crate::mailbox::Mailbox;
use crate::plane::{Plane, PlaneHandles, Work};
use crate::shared::{Shared, SharedPort};
use crate::table::{PortKind, Table};

/// Addresses that ports learn which come later, as far as memory was set aside for them.
const MORE_ADDRESSES: u32 = 1_024;

pub(crate) fn spawn<T: Send + 'static>(
    name: String,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Error> {
    std::thread::Builder::new().name(name).spawn(work).map_err(Error::Start)
}

/// The plane_budget of a plane with a budget.
pub(crate) fn plane_budget(plane: &PlaneThread) -> Result<Option<Arc<PlaneBudget>>, Error> {
    let Some(budget) = &plane.budget else { return Ok(None) };
    let plane_budget = PlaneBudget::new(budget);
    let plane_budget = plane_budget.map_err(|source| Error::Budget { plane: plane.name.clone(), source })?;
    Ok(Some(Arc::new(plane_budget)))
}

/// What is port_kind a port.
pub(crate) fn port_kind(end: &End) -> PortKind {
    match end {
        End::Socket(_) | End::Listener(_) => PortKind::Vm,
        End::Uplink(_) => PortKind::Uplink,
    }
}

/// What all threads know at the start.
pub(crate) fn shared(config: &Config, mailboxes: &[Arc<Mailbox>]) -> Result<Shared, Error> {
    let port_kind: Vec<PortKind> = config.ports.iter().map(|port| port_kind(&port.end)).collect();
    let table = Table::with_room(&port_kind, PORTS_MAX, MORE_ADDRESSES);
    for (port, of) in config.ports.iter().enumerate() {
        if let Some(address) = of.address {
            table.pin(address, port);
        }
    }
    Ok(Shared {
        ports: std::iter::repeat_with(SharedPort::default).take(PORTS_MAX).collect(),
        ports_used: AtomicUsize::new(config.ports.len()),
        table,
        mtu: config.mtu.unwrap_or(u32::MAX),
        start: std::time::Instant::now(),
        sole_plane: if let [only] = mailboxes { Some(Arc::clone(only)) } else { None },
    })
}

/// What a plane is made of beside its discipline.
struct PlaneBuilder<'a> {
    config: &'a Config,
    index: usize,
    threads: PlaneHandles,
}

impl Visitor for PlaneBuilder<'_> {
    type Output = Result<Box<dyn Work>, Error>;

    fn visit<D: Discipline + 'static>(self, mut discipline: D) -> Self::Output {
        let PlaneBuilder { config, index, threads } = self;
        for port in &config.ports {
            let attached = discipline.attach(Instant::ZERO, &port.params);
            attached.map_err(|error| Error::Discipline(format!("port {}: {error}", port.name)))?;
        }
        discipline.reserve(PORTS_MAX);
        let params: Vec<InterfaceParams> = config.ports.iter().map(|port| port.params.clone()).collect();
        let is_own = |port: usize| config.ports[port].plane == index;
        let mut plane = Plane::new(threads, discipline, is_own, &params).map_err(Error::Start)?;
        plane.poll_time = config.planes[index].poll;
        if config.check {
            plane.checker = Some(Checker::new(config.discipline, &config.options, &params));
        }
        Ok(Box::new(plane))
    }
}

/// The plane `index` with a discipline of its own.
pub(crate) fn plane(config: &Config, index: usize, threads: PlaneHandles) -> Result<Box<dyn Work>, Error> {
    let of = PlaneBuilder { config, index, threads };
    registry::build(config.discipline, &config.options, of)
        .map_err(|error| Error::Discipline(error.to_string()))?
}
