//! Measures the switch with the driver's side of its ports in this process: packets a second, round trips of
//! urgent VMs alone and beside floods, wake-ups while idle, memory for each port.
//!
//! usage: cargo run --release -p punctual-switch --example measure [throughput]
//!
//! The planes' threads are on processor 1, the drivers on processor 0. Planes of urgent ports run under
//! SCHED_FIFO where there are two planes (`chrt`; without the right to it, under the fair class).

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use punctual_model::Recorder;
use punctual_net::{FlowId, InterfaceId, InterfaceParams, Next, Packet, registry};
use punctual_sched::registry::{OptionValue, Options};
use punctual_switch::session::{RECEIVE, SEND};
use punctual_switch::testing::{self, FrontEnd, frame};
use punctual_switch::{Config, End, PlaneThread, Port, Switch};
use rustix::thread::{CpuSet, gettid, sched_setaffinity};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Disciplines with their batch.
const KINDS: [(&str, Option<u64>); 4] =
    [("netback", None), ("rtca", Some(1)), ("rtca", Some(64)), ("preemptive", Some(1))];

const BLOCK: Duration = Duration::from_millis(150);

const BLOCKS: usize = 8;

fn main() -> Outcome<()> {
    stay_on(0);
    let folder = tempfile::tempdir()?;
    println!("packets of 64 bytes from one VM to another, all stages, one processor");
    for kind in KINDS {
        throughput(folder.path(), kind)?;
    }
    if std::env::args().any(|argument| argument == "throughput") {
        return Ok(());
    }
    println!("\nround trips of two urgent VMs, alone and while two others flood each other (alternating)");
    for planes in [1, 2] {
        for poll_us in [0, 50] {
            for kind in KINDS {
                round_trips(folder.path(), kind, planes, poll_us)?;
            }
        }
    }
    println!();
    idle(folder.path())?;
    memory(folder.path())
}

fn stay_on(processor: usize) {
    let mut set = CpuSet::new();
    set.set(processor);
    if let Err(error) = sched_setaffinity(None, &set) {
        eprintln!("processor {processor} is not to be had: {error}");
    }
}

fn options((_, batch): (&str, Option<u64>)) -> Options {
    batch.map_or_else(Options::new, |batch| Options::new().with("batch", OptionValue::Count(batch)))
}

fn name((discipline, batch): (&str, Option<u64>)) -> String {
    batch.map_or_else(|| discipline.into(), |batch| format!("{discipline} {batch}"))
}

fn address(port: usize) -> [u8; 6] {
    [0x52, 0x54, 0, 0, 0, port as u8]
}

fn socket(folder: &Path, port: usize) -> PathBuf {
    folder.join(format!("{port}.sock"))
}

/// A switch whose ports 0 and 1 are urgent.
fn switch(
    folder: &Path,
    kind: (&str, Option<u64>),
    ports: usize,
    planes: usize,
    poll_us: u64,
) -> Outcome<Switch> {
    let port = |port: usize| Port {
        name: format!("port {port}"),
        end: End::Socket(socket(folder, port)),
        params: InterfaceParams {
            priority: Some(if port < 2 { 1 } else { 2 }),
            ..InterfaceParams::default()
        },
        plane: usize::from(planes == 2 && port >= 2),
        address: Some(punctual_switch::frame::Address(address(port))),
    };
    let enter = move |urgent: bool| {
        stay_on(1);
        if urgent {
            let thread = gettid().as_raw_nonzero().to_string();
            let _ = Command::new("chrt").args(["-f", "-p", "50", &thread]).stderr(Stdio::null()).status();
        }
    };
    let plane = |plane: usize| PlaneThread {
        name: format!("plane {plane}"),
        enter: Arc::new(move || enter(planes == 2 && plane == 0)),
    };
    let config = Config {
        ports: (0..ports).map(port).collect(),
        planes: (0..planes).map(plane).collect(),
        discipline: registry::find(kind.0).ok_or("no such discipline")?,
        options: options(kind),
        poll: punctual_sched::Duration::from_us(poll_us),
        check: false,
    };
    Ok(Switch::start(config)?.0)
}

fn vm(folder: &Path, port: usize) -> Outcome<FrontEnd> {
    Ok(FrontEnd::connected(&socket(folder, port), testing::Options::default())?)
}

fn throughput(folder: &Path, kind: (&str, Option<u64>)) -> Outcome<()> {
    let switch = switch(folder, kind, 2, 1, 0)?;
    let (mut a, mut b) = (vm(folder, 0)?, vm(folder, 1)?);
    a.flood_with(&frame(address(1), address(0), 0, 64))?;
    let (mut received, mut rates) = (0, Vec::new());
    for _ in 0..8 {
        let start = Instant::now();
        while start.elapsed() < BLOCK {
            for _ in 0..64 {
                a.refill(SEND, 64)?;
                received += u64::from(b.refill(RECEIVE, 64)?);
            }
        }
        rates.push((received as f64 / start.elapsed().as_secs_f64()) as u64);
        received = 0;
    }
    rates.sort_unstable();
    let packet_ns = 1e9 / rates[rates.len() / 2] as f64;
    let (discipline_ns, copy_ns) = bare(kind)?;
    println!(
        "  {:<13} {:>9} packets/s (median of 8; most {}), {packet_ns:.0} ns each: discipline \
         {discipline_ns:.0} ns, copy {copy_ns:.0} ns, together {:.2} of it",
        name(kind),
        rates[rates.len() / 2],
        rates.last().copied().unwrap_or_default(),
        (discipline_ns + copy_ns) / packet_ns,
    );
    let drops = switch.stop().ports[0].drops;
    if drops.total() > 0 {
        println!("    dropped: {drops:?}");
    }
    Ok(())
}

/// What a discipline costs for each packet through all stages, and what copying 76 bytes among the buffers
/// of a ring costs, in ns.
fn bare(kind: (&str, Option<u64>)) -> Outcome<(f64, f64)> {
    const PACKETS: u64 = 2_000_000;
    let info = registry::find(kind.0).ok_or("no such discipline")?;
    let mut discipline = (info.build)(&options(kind)).map_err(|error| error.to_string())?;
    let now = punctual_sched::Instant::ZERO;
    let guests = [(); 2].map(|()| discipline.attach(now, &InterfaceParams::default()));
    let [source, destination] = guests;
    let (source, destination): (InterfaceId, InterfaceId) = (source?, destination?);
    let (mut came, mut gone, mut waiting) = (0, 0, 0);
    let start = Instant::now();
    while gone < PACKETS {
        if waiting < 8 {
            let packet = Packet { id: came, flow: FlowId(0), source, destination, bytes: 64 };
            (came, waiting) = (came + 1, waiting + 1);
            discipline.arrive(now, packet).map_err(|reason| format!("{reason:?}"))?;
        }
        let Next::Process(step) = discipline.next(now) else { return Err("nothing to do".into()) };
        waiting -= u64::from(step.stage == punctual_net::Stage::Tx);
        gone += u64::from(black_box(discipline.complete(now)) == punctual_net::Fate::Delivered);
    }
    let discipline_ns = start.elapsed().as_nanos() as f64 / PACKETS as f64;
    let (from, mut to) = (vec![7u8; 256 * 2048], vec![0u8; 256 * 2048]);
    let start = Instant::now();
    for packet in 0..PACKETS as usize {
        let at = packet % 256 * 2048;
        to[at..at + 76].copy_from_slice(black_box(&from[at..at + 76]));
        black_box(&mut to);
    }
    Ok((discipline_ns, start.elapsed().as_nanos() as f64 / PACKETS as f64))
}

fn round_trips(folder: &Path, kind: (&str, Option<u64>), planes: usize, poll_us: u64) -> Outcome<()> {
    let switch = switch(folder, kind, 4, planes, poll_us)?;
    let [mut a, mut b, mut c, mut d] = [vm(folder, 0)?, vm(folder, 1)?, vm(folder, 2)?, vm(folder, 3)?];
    c.flood_with(&frame(address(3), address(2), 0, 64))?;
    d.flood_with(&frame(address(2), address(3), 0, 64))?;
    let (ping, pong) = (frame(address(1), address(0), 0, 64), frame(address(0), address(1), 0, 64));
    let mut recorders = [Recorder::new(), Recorder::new()];
    let (mut flooded, mut lost) = (0u64, 0);
    for block in 0..2 * BLOCKS {
        let floods = block % 2 == 1;
        let start = Instant::now();
        while start.elapsed() < BLOCK {
            let sent = Instant::now();
            a.send(&ping)?;
            let mut answered = false;
            while !answered {
                for vm in [&mut c, &mut d] {
                    if floods {
                        flooded += u64::from(vm.refill(SEND, 64)?);
                    }
                    vm.refill(RECEIVE, 64)?;
                }
                if b.receive()?.is_some() {
                    b.send(&pong)?;
                }
                answered = a.receive()?.is_some();
                if sent.elapsed() > Duration::from_secs(1) {
                    lost += 1;
                    break;
                }
            }
            let time = punctual_sched::Duration::from_ns(sent.elapsed().as_nanos() as u64);
            recorders[usize::from(floods)].record(time);
        }
        // What is left of the flood is on its way before the next block.
        std::thread::sleep(Duration::from_millis(2));
    }
    let us = |recorder: &Recorder, ppm| recorder.quantile_ppm(ppm).as_ns() as f64 / 1_000.0;
    let [alone, beside] = &recorders;
    let pair = |ppm| (us(alone, ppm), us(beside, ppm));
    let ((p50, p50_beside), (p99, p99_beside)) = (pair(500_000), pair(990_000));
    println!(
        "  {:<13} {planes} plane(s), poll {poll_us:>2} us: alone {p50:.1}, {p99:.1} us; beside \
         {p50_beside:.1}, {p99_beside:.1} us (p50, p99); ratios {:.2}, {:.2}; \
         flood {} packets/s; lost {lost}",
        name(kind),
        p50_beside / p50,
        p99_beside / p99,
        (flooded as f64 / (BLOCKS as f64 * BLOCK.as_secs_f64())) as u64,
    );
    drop(switch);
    Ok(())
}

fn idle(folder: &Path) -> Outcome<()> {
    let switch = switch(folder, ("rtca", None), 4, 2, 0)?;
    let _vms = [vm(folder, 0)?, vm(folder, 1)?, vm(folder, 2)?, vm(folder, 3)?];
    let wakeups = || -> u64 { switch.count().planes.iter().map(|plane| plane.wakeups).sum() };
    std::thread::sleep(Duration::from_millis(100));
    let before = wakeups();
    std::thread::sleep(Duration::from_secs(3));
    // The question itself wakes both planes.
    println!("idle with 4 VMs for 3 s: {} wake-ups of the planes", wakeups() - before - 2);
    Ok(())
}

/// Resident bytes of this process.
fn resident() -> Outcome<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm")?;
    Ok(pages.split(' ').nth(1).ok_or("no second number")?.parse::<u64>()? * 4096)
}

fn memory(folder: &Path) -> Outcome<()> {
    let before = resident()?;
    let few = switch(folder, ("rtca", None), 2, 1, 0)?;
    let with_few = resident()?;
    drop(few);
    let many = switch(folder, ("rtca", None), 66, 1, 0)?;
    let with_many = resident()?;
    drop(many);
    println!(
        "memory: {} KiB for each port, {} KiB for a switch of two",
        with_many.saturating_sub(with_few) / 64 / 1024,
        with_few.saturating_sub(before) / 1024
    );
    Ok(())
}
