//! Hosts outside the networks of a run, whose part this process plays: a thread each, on the processors that
//! no pool has.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

use punctual_guest::flows::engine::Engine;
use punctual_guest::flows::{self, Done, DoneSender, Link};
use punctual_guest::protocol::{FlowReport, Network};
use punctual_model::Host;
use punctual_model::network::Endpoint;
use punctual_sched::{Duration, Instant};

use super::error::Error;
use super::inputs::{OutsideHost, OutsideSocket};
use super::prepare::network_of;
use punctual_vm::workload::flows::Ends;

/// Bytes of virtio-net in front of each frame.
const HEADER_BYTES: usize = 12;

/// Hosts that have a part of flows.
pub(super) struct Outside(Vec<(Network, OutsideHost)>);

/// Hosts at work.
pub(super) struct RunningOutside {
    stop: Arc<AtomicBool>,
    /// They wake the threads.
    bells: Vec<DoneSender>,
    threads: Vec<JoinHandle<Engine>>,
}

impl Outside {
    /// What these hosts send and answer.
    ///
    /// # Errors
    /// Their flows do not fit.
    pub(super) fn of(host: &Host, ends: &Ends, hosts: Vec<OutsideHost>) -> Result<Outside, Error> {
        let mut with_flows = Vec::new();
        for outside in hosts {
            let name = &host.networks[outside.network.0].outside[outside.host].name;
            let end = Endpoint::Outside(outside.host);
            if let Some(network) = network_of(host, ends, end, name, &[])? {
                with_flows.push((network, outside));
            }
        }
        Ok(Outside(with_flows))
    }

    /// Starts their threads, which begin at `start`.
    ///
    /// # Errors
    /// A thread or its socket is refused.
    pub(super) fn start(self, start: Instant, duration: Duration) -> io::Result<RunningOutside> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut running = RunningOutside { stop, bells: Vec::new(), threads: Vec::new() };
        for (network, outside) in self.0 {
            let (sender, done) = flows::done_channel()?;
            running.bells.push(sender()?);
            let stop = Arc::clone(&running.stop);
            let when = (start.as_ns(), duration.as_ns());
            let body = move || {
                let engine = Engine::new(&network, 0, duration.as_ns());
                let link = match outside.socket {
                    OutsideSocket::Frames(socket) => Link::of_program(socket, HEADER_BYTES),
                    OutsideSocket::Datagrams(socket) => Link::of_datagrams(socket),
                };
                flows::run(engine, &link, network.ethernet, &done, when, &stop, &mut |_, _| ())
            };
            running.threads.push(Builder::new().name("outside".into()).spawn(body)?);
        }
        Ok(running)
    }
}

impl RunningOutside {
    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        // Of no task: it only wakes them.
        self.bells.iter().for_each(|bell| bell.send(Done { task: usize::MAX, release_ns: 0, at_ns: 0 }));
    }

    /// Ends them; what they measured.
    pub(super) fn end(mut self) -> Vec<FlowReport> {
        self.stop();
        let threads = std::mem::take(&mut self.threads).into_iter();
        threads.filter_map(|thread| thread.join().ok()).flat_map(Engine::into_reports).collect()
    }
}

impl Drop for RunningOutside {
    fn drop(&mut self) {
        self.stop();
    }
}
