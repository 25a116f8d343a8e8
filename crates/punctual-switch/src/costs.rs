//! What the steps of a switch cost on this machine, for the simulator's costs of a network.
//!
//! Two ports in this process send through a plane as VMs do. Their drivers (`uplink.rs`) are threads on
//! another processor: they write frames into rings and ring, and all that follows is what happens between
//! VMs. They send a burst of four frames and the next one when the last frame has arrived, so every
//! thread sleeps in between and nothing here keeps a processor for long.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration as Time, Instant as Moment};

use punctual_model::Recorder;
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
use crate::mailbox::{Command, Mailbox};
use crate::plane::PlaneHandles;
use crate::plane::step_times::{PublishTime, StepTimes};
use crate::port_session::{PortSession, rings};
use crate::sys::signal;
use crate::uplink_thread::{UplinkHandle, start_uplink};
use crate::wire::Wire;

/// Frames that are sent together: fewer than are told together.
const BURST: u32 = 4;

/// Lengths of frames, which alternate from burst to burst.
const LENGTHS: [usize; 2] = [64, 1514];

/// How often it is asked whether to stop, and whether frames still move.
const INTERVAL: Time = Time::from_millis(50);

/// What to measure, and where.
pub struct Setting {
    /// The discipline.
    pub discipline: &'static DisciplineInfo,
    /// Its options.
    pub options: Options,
    /// Called first in the plane's thread: sets its place.
    pub plane: Arc<dyn Fn() + Send + Sync>,
    /// Called first in the drivers' threads.
    pub drivers: Arc<dyn Fn() + Send + Sync>,
    /// For how long.
    pub time: Time,
}

/// What the steps took. Each time includes a look at the clock.
#[derive(Clone, Debug, Serialize)]
pub struct Costs {
    /// From before a driver rings until a plane that slept is awake.
    pub wake: Recorder,
    /// Stage TX of a packet: looking at the rings, reading a frame's descriptors and addresses, the
    /// discipline's decision.
    pub tx: Recorder,
    /// Stage softnet: the receiver's buffers are counted.
    pub softnet: Recorder,
    /// Stage RX of a frame of 64 bytes: the copy, and the sender gets its buffer back.
    pub rx: Recorder,
    /// Stage RX of a frame of 1,514 bytes.
    pub rx_long: Recorder,
    /// Telling a receiver that sleeps.
    pub event: Recorder,
    /// A look at the clock.
    pub clock: Recorder,
}

impl Costs {
    /// The keys of a network's costs that were measured, with medians less a look at the clock.
    pub fn keys(&self) -> [(&'static str, Duration); 7] {
        let clock = median(&self.clock);
        let net = |times: &Recorder| median(times).saturating_sub(clock);
        let copied = (LENGTHS[1] - LENGTHS[0]) as u64;
        let copy_ns = net(&self.rx_long).saturating_sub(net(&self.rx)).as_ns() * 1024 / copied;
        [
            ("event", net(&self.event)),
            ("interrupt", net(&self.wake)),
            ("tx", net(&self.tx)),
            ("softnet", net(&self.softnet)),
            ("rx", net(&self.rx)),
            // No thread is scheduled for a round, and no softirq raised.
            ("round", Duration::ZERO),
            ("copy_per_kib", Duration::from_ns(copy_ns)),
        ]
    }
}

fn median(times: &Recorder) -> Duration {
    times.quantile_ppm(500_000)
}

/// Measures what steps take. `stop` is asked whether to end early.
///
/// # Errors
/// What the discipline or the kernel refuses.
pub fn measure(setting: &Setting, stop: &dyn Fn() -> bool) -> Result<Costs, Error> {
    let (shown, arrived) = (PublishTime::new(), Arc::<AtomicU64>::default());
    let wires = Burst::wires(&shown, &arrived).map_err(Error::Start)?;
    let (bell, left) = (wires[0].again.try_clone().map_err(Error::Start)?, Arc::clone(&wires[0].left));
    let config = config(setting, wires);
    let mailbox = Mailbox::new().map(Arc::new).map_err(Error::Start)?;
    let shared = Arc::new(shared(&config, std::slice::from_ref(&mailbox))?);
    // Nobody reads notices: no VM is here.
    let (notices, _) = mpsc::channel();
    let threads = PlaneHandles {
        shared: Arc::clone(&shared),
        mailbox: Arc::clone(&mailbox),
        notices: notices.clone(),
        plane_budget: None,
        vlans: None,
    };
    let plane = plane(&config, 0, threads)?;
    let place = Arc::clone(&setting.plane);
    let work = move || {
        place();
        plane.run_timed(&shown)
    };
    let thread = spawn("switch costs".into(), work)?;
    let started = start_uplinks(config, setting, |port| {
        rings(port, 0, &shared, std::slice::from_ref(&mailbox), &notices)
    });
    if started.is_ok() {
        wait(setting.time, stop, &arrived, || {
            left.store(BURST, Ordering::Release);
            signal(&bell);
        });
    }
    let failed = started.map(|uplinks| uplinks.into_iter().for_each(UplinkHandle::end)).err();
    mailbox.send(Command::Exit);
    let ended = thread.join().map_err(|_| io::Error::other("the plane's thread panicked"));
    match (failed, ended) {
        (Some(error), _) | (None, Err(error)) => Err(Error::Start(error)),
        (None, Ok((_, times))) => Ok(costs(&times)),
    }
}

/// Starts the drivers' threads; those that did start end if another one does not.
fn start_uplinks(
    config: Config,
    setting: &Setting,
    rings: impl Fn(usize) -> PortSession,
) -> io::Result<Vec<UplinkHandle>> {
    let mut uplinks = Vec::new();
    for (port, of) in config.ports.into_iter().enumerate() {
        let End::Uplink(wire) = of.end else { continue };
        match start_uplink(wire, rings(port), Arc::clone(&setting.drivers), None) {
            Ok(uplink) => uplinks.push(uplink),
            Err(error) => {
                uplinks.into_iter().for_each(UplinkHandle::end);
                return Err(error);
            }
        }
    }
    Ok(uplinks)
}

/// Waits while bursts follow each other; sends one where none is on its way.
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
        wake: times.wake.recorder(),
        tx: times.stages[tx].recorder(),
        softnet: times.stages[softnet].recorder(),
        rx: times.stages[rx].recorder(),
        rx_long: times.long.recorder(),
        event: times.tell.recorder(),
        clock: times.clock.recorder(),
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

/// Locally administered, for ports that nobody else sees.
fn address(port: usize) -> Address {
    Address([0x52, 0x54, 0, 0, 0, port as u8])
}

/// What is behind a port: one sends bursts, the other receives them.
#[derive(Debug)]
struct Burst {
    port: usize,
    /// Readable when the sender has something to send.
    bell: OwnedFd,
    /// The sender's bell.
    again: OwnedFd,
    /// What is left of the burst.
    left: Arc<AtomicU32>,
    /// Frames that arrived.
    arrived: Arc<AtomicU64>,
    frames: [Vec<u8>; 2],
    shown: PublishTime,
}

impl Burst {
    /// A sender and a receiver.
    fn wires(shown: &PublishTime, arrived: &Arc<AtomicU64>) -> io::Result<[Burst; 2]> {
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
        let end = |port, bell, again| Burst {
            port,
            bell,
            again,
            left: Arc::clone(&left),
            arrived: Arc::clone(arrived),
            frames: frames.clone(),
            shown: shown.clone(),
        };
        Ok([end(0, sender, again.try_clone()?), end(1, receiver, again)])
    }
}

impl Wire for Burst {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    fn receive(&mut self, room: &mut VolatileSlice<'_>) -> io::Result<Option<usize>> {
        let left = self.left.load(Ordering::Acquire);
        if self.port != 0 || left == 0 {
            return Ok(None);
        }
        self.left.store(left - 1, Ordering::Relaxed);
        let burst = self.arrived.load(Ordering::Relaxed) / u64::from(BURST);
        let frame = &self.frames[burst as usize % LENGTHS.len()];
        room.write_slice(frame, 0).map_err(io::Error::other)?;
        if left == BURST {
            self.shown.now();
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
