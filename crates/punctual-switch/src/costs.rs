//! Measures what the steps of a switch cost on this machine, for a network's costs in the simulator.
//!
//! As in the simulator, packets pass one stage after the other: none cuts through.
//!
//! Two uplinks (`uplink.rs`) exchange frames through a plane as VMs do, with their threads on another
//! processor. They send a burst of four frames, and the next burst when the last frame has arrived, so all
//! threads sleep in between and none keeps a processor for long.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration as Time, Instant as Moment};

use punctual_model::Histogram;
use punctual_model::network::Vlans;
use punctual_net::discipline::DisciplineInfo;
use punctual_net::{InterfaceParams, Stage};
use punctual_sched::Duration;
use punctual_sched::registry::Options;
use rustix::event::{EventfdFlags, eventfd};
use serde::Serialize;
use vm_memory::{Bytes, VolatileSlice};

use crate::assemble::{plane, shared, spawn};
use crate::config::{Config, End, Error, PlaneThread, Port};
use crate::frame::{Address, HEADER_BYTES};
use crate::limits::PLANE_TIMEOUT;
use crate::mailbox::{Command, Mailbox};
use crate::narrow::{to_u8, to_usize};
use crate::plane::PlaneHandles;
use crate::plane::step_times::{PublishTime, StepTimes};
use crate::port_session::PortSession;
use crate::sys::{prepare_signals, signal};
use crate::uplink_thread::UplinkThread;
use crate::wire::Wire;

/// Frames of a burst: fewer than a plane notifies together.
const BURST: u32 = 4;

/// Frame lengths, which alternate from burst to burst.
const LENGTHS: [usize; 2] = [64, 1514];

/// How often [`measure`] asks whether to stop, and whether frames still move.
const INTERVAL: Time = Time::from_millis(50);

/// What to measure, and where.
pub struct Setting {
    pub discipline: &'static DisciplineInfo,
    pub options: Options,
    /// Runs first in the plane's thread: sets its processor.
    pub plane: Arc<dyn Fn() + Send + Sync>,
    /// Runs first in the uplinks' threads.
    pub drivers: Arc<dyn Fn() + Send + Sync>,
    pub time: Time,
}

/// Times of the steps, each including one read of the clock.
#[derive(Clone, Debug, Serialize)]
pub struct Costs {
    /// From before a driver publishes frames until the sleeping plane is awake.
    pub wake: Histogram,
    /// Stage TX: polling the rings, reading descriptors and addresses, the discipline's decision.
    pub tx: Histogram,
    /// Stage softnet: counting the receiver's buffers.
    pub softnet: Histogram,
    /// Stage RX of a frame of 64 bytes: the copy, and returning the sender's buffer.
    pub rx: Histogram,
    /// Stage RX of a frame of 1,514 bytes.
    pub rx_long: Histogram,
    /// Notifying a receiver that sleeps.
    pub event: Histogram,
    /// One read of the clock.
    pub clock: Histogram,
}

impl Costs {
    /// The measured costs under their keys in the host file: medians less one read of the clock.
    pub fn keys(&self) -> [(&'static str, Duration); 7] {
        let clock = median(&self.clock);
        let net = |times: &Histogram| median(times).saturating_sub(clock);
        let copied = (LENGTHS[1] - LENGTHS[0]) as u64;
        let copy_ns = net(&self.rx_long).saturating_sub(net(&self.rx)).as_ns() * 1024 / copied;
        [
            ("event", net(&self.event)),
            ("interrupt", net(&self.wake)),
            ("tx", net(&self.tx)),
            ("softnet", net(&self.softnet)),
            ("rx", net(&self.rx)),
            // A plane schedules no thread and raises no softirq for a round.
            ("round", Duration::ZERO),
            ("copy_per_kib", Duration::from_ns(copy_ns)),
        ]
    }
}

fn median(times: &Histogram) -> Duration {
    times.quantile_ppm(500_000)
}

/// Measures for `setting.time`, or until `stop` returns true.
///
/// # Errors
/// What the discipline or the kernel refuses.
pub fn measure(setting: &Setting, stop: &dyn Fn() -> bool) -> Result<Costs, Error> {
    let (published, arrived) = (PublishTime::new(), Arc::<AtomicU64>::default());
    let wires = Burst::wires(&published, &arrived).map_err(Error::Start)?;
    let (event, left) = (wires[0].again.try_clone().map_err(Error::Start)?, Arc::clone(&wires[0].left));
    let config = config(setting, wires);
    prepare_signals().map_err(Error::Signals)?;
    let mailbox = Mailbox::new().map(Arc::new).map_err(Error::Start)?;
    let shared = Arc::new(shared(&config, std::slice::from_ref(&mailbox), None)?);
    let handles = PlaneHandles {
        shared: Arc::clone(&shared),
        mailbox: Arc::clone(&mailbox),
        plane_budget: None,
        vlans: None,
    };
    let plane = plane(&config, 0, handles)?;
    let enter = Arc::clone(&setting.plane);
    let work = move || {
        enter();
        plane.run_timed(&published)
    };
    let thread = spawn("switch costs".into(), work)?;
    let session = |port| PortSession::new(port, &shared, &mailbox);
    let started = start_uplinks(config, setting, session);
    if started.is_ok() {
        wait(setting.time, stop, &arrived, || {
            left.store(BURST, Ordering::Release);
            signal(&event);
        });
    }
    let failed = started.map(|uplinks| uplinks.into_iter().for_each(stop_uplink)).err();
    mailbox.send(Command::Exit);
    let ended = thread.join().map_err(|_| io::Error::other("the plane's thread panicked"));
    match (failed, ended) {
        (Some(error), _) | (None, Err(error)) => Err(Error::Start(error)),
        (None, Ok((_, times))) => Ok(costs(&times)),
    }
}

/// Starts the uplinks' threads. If one does not start, the others end.
fn start_uplinks(
    config: Config,
    setting: &Setting,
    session: impl Fn(usize) -> PortSession,
) -> io::Result<Vec<UplinkThread>> {
    let mut uplinks = Vec::new();
    for (port, of) in config.ports.into_iter().enumerate() {
        let End::Uplink(wire) = of.end else { continue };
        match UplinkThread::start(port, wire, session(port), Arc::clone(&setting.drivers), None) {
            Ok(uplink) => uplinks.push(uplink),
            Err(error) => {
                uplinks.into_iter().for_each(stop_uplink);
                return Err(error);
            }
        }
    }
    Ok(uplinks)
}

fn stop_uplink(mut uplink: UplinkThread) {
    uplink.stop(Moment::now() + PLANE_TIMEOUT);
}

/// Waits while bursts follow each other, and sends one if none is in flight.
fn wait(time: Time, stop: &dyn Fn() -> bool, arrived: &AtomicU64, send: impl Fn()) {
    let start = Moment::now();
    let mut before = u64::MAX;
    while start.elapsed() < time && !stop() {
        let now = arrived.load(Ordering::Relaxed);
        if now == before || before == u64::MAX {
            send();
        }
        before = now;
        thread::sleep(INTERVAL.min(time));
    }
}

fn costs(times: &StepTimes) -> Costs {
    let [tx, softnet, rx] = [Stage::Tx, Stage::Softnet, Stage::Rx].map(|stage| stage as usize);
    Costs {
        wake: times.wake.histogram(),
        tx: times.stages[tx].histogram(),
        softnet: times.stages[softnet].histogram(),
        rx: times.stages[rx].histogram(),
        rx_long: times.long.histogram(),
        event: times.notify.histogram(),
        clock: times.clock.histogram(),
    }
}

fn config(setting: &Setting, wires: [Burst; 2]) -> Config {
    let port = |(at, wire): (usize, Burst)| Port {
        name: format!("costs {at}"),
        end: End::Uplink(Box::new(wire)),
        params: InterfaceParams { priority: Some(1), ..InterfaceParams::default() },
        plane: 0,
        address: Some(address(at)),
        vlans: Vlans::default(),
        groups: Vec::new(),
    };
    Config {
        ports: wires.into_iter().enumerate().map(port).collect(),
        planes: vec![PlaneThread {
            name: "switch costs".into(),
            enter: Arc::clone(&setting.plane),
            poll: Duration::ZERO,
            budget: None,
        }],
        discipline: setting.discipline,
        options: setting.options.clone(),
        mtu: None,
        check: false,
    }
}

/// A locally administered address.
fn address(port: usize) -> Address {
    Address([0x52, 0x54, 0, 0, 0, to_u8(port)])
}

/// The wire of a port: port 0 sends bursts, port 1 receives them.
#[derive(Debug)]
struct Burst {
    port: usize,
    /// Readable when the sender has something to send.
    event: OwnedFd,
    /// The sender's event.
    again: OwnedFd,
    /// Frames left of the burst.
    left: Arc<AtomicU32>,
    /// Frames that arrived.
    arrived: Arc<AtomicU64>,
    frames: [Vec<u8>; 2],
    published: PublishTime,
}

impl Burst {
    /// A sender and a receiver.
    fn wires(published: &PublishTime, arrived: &Arc<AtomicU64>) -> io::Result<[Burst; 2]> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let [sender, receiver] = [eventfd(0, flags)?, eventfd(0, flags)?];
        let again = sender.try_clone()?;
        let left = Arc::<AtomicU32>::default();
        let header = [0; HEADER_BYTES];
        let frames = LENGTHS.map(|bytes| {
            let Address(to) = address(1);
            let Address(from) = address(0);
            let mut frame = [&header[..], &to, &from, &[0x88, 0xb5]].concat();
            frame.resize(HEADER_BYTES + bytes, 0);
            frame
        });
        let end = |port, event, again| Burst {
            port,
            event,
            again,
            left: Arc::clone(&left),
            arrived: Arc::clone(arrived),
            frames: frames.clone(),
            published: published.clone(),
        };
        Ok([end(0, sender, again.try_clone()?), end(1, receiver, again)])
    }
}

impl Wire for Burst {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn receive(&mut self, room: &mut VolatileSlice<'_>) -> io::Result<Option<usize>> {
        let left = self.left.load(Ordering::Acquire);
        if self.port != 0 || left == 0 {
            return Ok(None);
        }
        self.left.store(left - 1, Ordering::Relaxed);
        let burst = self.arrived.load(Ordering::Relaxed) / u64::from(BURST);
        let frame = &self.frames[to_usize(burst) % LENGTHS.len()];
        room.write_slice(frame, 0).map_err(io::Error::other)?;
        if left == 1 {
            // The uplink publishes a burst when it has read all of it.
            self.published.set_now();
        }
        Ok(Some(frame.len()))
    }

    fn send(&mut self, _: &mut VolatileSlice<'_>) -> bool {
        let arrived = self.arrived.fetch_add(1, Ordering::Relaxed) + 1;
        if arrived.is_multiple_of(u64::from(BURST)) {
            self.left.store(BURST, Ordering::Release);
            signal(&self.again);
        }
        true
    }
}
