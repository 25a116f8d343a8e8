//! The thread of an uplink.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use crate::budget::PlaneBudget;
use crate::counters::Counters;
use crate::event::Event;
use crate::join::join_until;
use crate::port_session::PortSession;
use crate::port_state::Change;
use crate::session::{RX, Rings, TX};
use crate::uplink::{Uplink, UplinkStopper};
use crate::wire::Wire;

fn name(port: usize) -> String {
    format!("switch uplink {port}")
}

pub(crate) struct UplinkThread {
    pub(crate) port: usize,
    thread: Option<JoinHandle<()>>,
    stopper: UplinkStopper,
    pub(crate) counters: Arc<Counters>,
}

impl UplinkThread {
    /// Starts the rings of a port and the thread that moves frames between them and `wire`.
    pub(crate) fn start(
        port: usize,
        wire: Box<dyn Wire>,
        mut session: PortSession,
        enter: Arc<dyn Fn() + Send + Sync>,
        plane_budget: Option<Arc<PlaneBudget>>,
    ) -> io::Result<UplinkThread> {
        let counters = Arc::<Counters>::default();
        let uplink = Uplink::new(wire, Arc::clone(&counters))?;
        let stopper = uplink.stopper();
        session.life().apply(Change::FrontEndConnected);
        for (queue, config) in [RX, TX].into_iter().zip(uplink.vring_configs()?) {
            session.start(queue, config).map_err(io::Error::other)?;
        }
        // The uplink's memory is the switch's own.
        session.life().apply(Change::EntriesSeen);
        let work = move || {
            enter();
            if let Err(error) = uplink.run(plane_budget, session.clock_start()) {
                for queue in [RX, TX] {
                    session.stop(queue);
                }
                session.end(Change::WireGone);
                session.notice(Event::Disconnected(Some(error.to_string())));
            }
        };
        let thread = std::thread::Builder::new().name(name(port)).spawn(work)?;
        Ok(UplinkThread { port, thread: Some(thread), stopper, counters })
    }

    pub(crate) fn name(&self) -> String {
        name(self.port)
    }

    /// Stops the thread. Returns whether it ended before `until`.
    pub(crate) fn stop(&mut self, until: Instant) -> bool {
        self.stopper.stop();
        self.thread.take().is_none_or(|thread| join_until(thread, until).is_some())
    }
}
