//! The thread of an uplink.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::budget::PlaneBudget;
use crate::counters::Counters;
use crate::event::Event;
use crate::port_session::PortSession;
use crate::session::{RX, Rings, TX};
use crate::uplink::{Uplink, UplinkStopper};
use crate::wire::Wire;

/// An uplink at work.
pub(crate) struct UplinkHandle {
    pub(crate) port: usize,
    pub(crate) thread: Option<JoinHandle<()>>,
    pub(crate) stop: UplinkStopper,
    pub(crate) counters: Arc<Counters>,
    /// Is its wire gone?
    pub(crate) ended: Arc<AtomicBool>,
}

impl UplinkHandle {
    pub(crate) fn end(mut self) {
        self.stop_and_wait();
    }

    pub(crate) fn stop_and_wait(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The thread of an uplink, which starts with its rings.
pub(crate) fn start_uplink(
    wire: Box<dyn Wire>,
    mut rings: PortSession,
    enter: Arc<dyn Fn() + Send + Sync>,
    plane_budget: Option<Arc<PlaneBudget>>,
) -> io::Result<UplinkHandle> {
    let counters = Arc::<Counters>::default();
    let uplink = Uplink::new(wire, Arc::clone(&counters))?;
    let stop = uplink.stopper();
    let port = rings.port;
    let ended = Arc::<AtomicBool>::default();
    let of_thread = Arc::clone(&ended);
    for (queue, config) in [RX, TX].into_iter().zip(uplink.vring_configs()?) {
        rings.start(queue, config).map_err(io::Error::other)?;
    }
    let work = move || {
        enter();
        if let Err(error) = uplink.run(plane_budget, rings.shared.start) {
            for queue in [RX, TX] {
                rings.stop(queue);
            }
            rings.shared.table.forget(port);
            of_thread.store(true, Ordering::Release);
            rings.notice(Event::Disconnected(Some(error.to_string())));
        }
    };
    let thread = std::thread::Builder::new().name(format!("switch uplink {port}")).spawn(work)?;
    Ok(UplinkHandle { port, thread: Some(thread), stop, counters, ended })
}
