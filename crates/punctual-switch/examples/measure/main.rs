//! Measures the switch with the drivers of its ports in this process: packets per second, round trips of
//! urgent VMs alone and beside floods, wake-ups while idle, memory of a port.
//!
//! usage: cargo run --release -p punctual-switch --example measure [WHAT]
//! - attacks [ROUNDS [MILLISECONDS [WORD]]]: urgent round trips beside each attack whose name contains WORD,
//!   and the time that the end takes; exit status 1 if a goal is missed
//! - throughput, round-trips, idle-ports, polling, budget, plug; by default several of them
//! - sockets A B: any vhost-user switch that listens on these two sockets: round trips, packets a second by
//!   length of the frames, number of flows and direction, times from one to the other at parts of the most
//! - serve FOLDER: such a switch, on FOLDER/0.sock and 1.sock, until input ends
//! - carry N [WHICH [LOAD]]: carries N packets under the WHICH-th discipline (from 0), without threads, for
//!   `labs/lab switch instructions`
//!
//! Planes run on processor 1, drivers on processor 0. With two planes, that of the urgent ports runs under
//! SCHED_FIFO (`chrt`; without the privilege, in the fair class), the other in the fair class or under
//! SCHED_FIFO with a lower priority.

mod attacks;
mod idle_ports;
mod instructions;
mod sockets;

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use punctual_model::Histogram;
use punctual_net::{FlowId, InterfaceId, InterfaceParams, Next, Packet, registry};
use punctual_sched::UnitParams;
use punctual_sched::registry::{OptionValue, Options};
use punctual_switch::budget::Budget;
use punctual_switch::session::{RX, TX};
use punctual_switch::testing::{self, FrontEnd, frame};
use punctual_switch::{Config, End, PlaneThread, Port, Switch};
use rustix::thread::{CpuSet, gettid, sched_setaffinity};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Disciplines with their batch.
const KINDS: [(&str, Option<u64>); 4] =
    [("netback", None), ("rtca", Some(1)), ("rtca", Some(64)), ("preemptive", Some(1))];

const BLOCK: Duration = Duration::from_millis(150);

const BLOCKS: usize = 8;

fn main() -> Outcome<ExitCode> {
    stay_on(0);
    let folder = tempfile::tempdir()?;
    if std::env::args().nth(1).as_deref() == Some("attacks") {
        return attacks::all(folder.path());
    }
    measure(&folder).map(|()| ExitCode::SUCCESS)
}

fn measure(folder: &tempfile::TempDir) -> Outcome<()> {
    match std::env::args().nth(1).as_deref() {
        Some("throughput") => return packets(folder.path()),
        Some("round-trips") => return all_round_trips(folder.path()),
        Some("idle-ports") => return idle_ports::all(folder.path()),
        Some("polling") => return polling(folder.path()),
        Some("budget") => return budget(folder.path()),
        Some("plug") => return gaps(folder.path()),
        Some("sockets") => return sockets::all(),
        Some("serve") => return serve(),
        Some("carry") => return instructions::carry(),
        _ => {}
    }
    packets(folder.path())?;
    println!();
    all_round_trips(folder.path())?;
    println!();
    idle(folder.path())?;
    memory(folder.path())
}

fn all_round_trips(folder: &Path) -> Outcome<()> {
    println!("round trips of two urgent VMs, alone and while two others flood each other (alternating)");
    for planes in [Planes::One, Planes::RestIsFair, Planes::RestIsFifo] {
        for poll_us in [0, 50] {
            for kind in KINDS {
                round_trips(folder, kind, planes, poll_us)?;
            }
        }
    }
    Ok(())
}

fn packets(folder: &Path) -> Outcome<()> {
    println!("packets of 64 bytes from one VM to another, all stages, one processor");
    KINDS.into_iter().try_for_each(|kind| throughput(folder, kind, 0))?;
    println!("the same, with the drivers on the plane's processor: no line changes between processors");
    KINDS.into_iter().try_for_each(|kind| throughput(folder, kind, 1))
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planes {
    One,
    /// Two; the less urgent one is in the fair class.
    RestIsFair,
    /// Two, both under SCHED_FIFO.
    RestIsFifo,
}

impl Planes {
    fn count(self) -> usize {
        if self == Planes::One { 1 } else { 2 }
    }

    /// The real-time priority of a plane.
    fn fifo(self, plane: usize) -> Option<u32> {
        match (self, plane) {
            (Planes::One, _) | (Planes::RestIsFair, 1..) => None,
            (_, 0) => Some(50),
            (Planes::RestIsFifo, _) => Some(40),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Planes::One => "1 plane",
            Planes::RestIsFair => "2 planes, rest fair",
            Planes::RestIsFifo => "2 planes, rest FIFO",
        }
    }
}

/// A switch whose ports 0 and 1 are urgent.
fn switch(
    folder: &Path,
    kind: (&str, Option<u64>),
    ports: usize,
    planes: Planes,
    poll_us: u64,
) -> Outcome<Switch> {
    switch_with(folder, kind, ports, planes, poll_us, None)
}

/// The same, with a budget for the last plane.
fn switch_with(
    folder: &Path,
    kind: (&str, Option<u64>),
    ports: usize,
    planes: Planes,
    poll_us: u64,
    budget: Option<Budget>,
) -> Outcome<Switch> {
    start(switch_config(folder, kind, ports, planes, poll_us, budget)?)
}

fn start(config: Config) -> Outcome<Switch> {
    Ok(Switch::start(config)?.0)
}

fn switch_config(
    folder: &Path,
    kind: (&str, Option<u64>),
    ports: usize,
    planes: Planes,
    poll_us: u64,
    budget: Option<Budget>,
) -> Outcome<Config> {
    let enter = move |fifo: Option<u32>| {
        stay_on(1);
        if let Some(priority) = fifo {
            let priority = priority.to_string();
            let thread = gettid().as_raw_nonzero().to_string();
            let _ =
                Command::new("chrt").args(["-f", "-p", &priority, &thread]).stderr(Stdio::null()).status();
        }
    };
    let plane = |plane: usize| PlaneThread {
        name: format!("plane {plane}"),
        enter: Arc::new(move || enter(planes.fifo(plane))),
        poll: punctual_sched::Duration::from_us(poll_us),
        budget: budget.clone().filter(|_| plane + 1 == planes.count()),
    };
    Ok(Config {
        ports: (0..ports).map(|number| port(folder, number, planes)).collect(),
        planes: (0..planes.count()).map(plane).collect(),
        discipline: registry::find(kind.0).ok_or("no such discipline")?,
        options: options(kind),
        mtu: None,
        check: false,
    })
}

fn port(folder: &Path, port: usize, planes: Planes) -> Port {
    Port {
        name: format!("port {port}"),
        end: End::Socket(socket(folder, port)),
        params: InterfaceParams {
            priority: Some(if port < 2 { 1 } else { 2 }),
            ..InterfaceParams::default()
        },
        plane: usize::from(planes.count() == 2 && port >= 2),
        address: Some(punctual_switch::frame::Address(address(port))),
        vlans: punctual_model::network::Vlans::default(),
        groups: Vec::new(),
    }
}

fn vm(folder: &Path, port: usize) -> Outcome<FrontEnd> {
    Ok(FrontEnd::connected(&socket(folder, port), testing::Options::default())?)
}

/// The plane on processor 1, the drivers on `processor`.
fn throughput(folder: &Path, kind: (&str, Option<u64>), processor: usize) -> Outcome<()> {
    let switch = switch(folder, kind, 2, Planes::One, 0)?;
    stay_on(processor);
    let (mut a, mut b) = (vm(folder, 0)?, vm(folder, 1)?);
    a.flood_with(&frame(address(1), address(0), 0, 64))?;
    let (mut received, mut rates) = (0, Vec::new());
    let before = switch.count();
    for _ in 0..8 {
        let start = Instant::now();
        while start.elapsed() < BLOCK {
            for _ in 0..64 {
                a.refill(TX, 64)?;
                received += u64::from(b.refill(RX, 64)?);
            }
        }
        rates.push((received as f64 / start.elapsed().as_secs_f64()) as u64);
        received = 0;
    }
    rates.sort_unstable();
    let after = switch.count();
    let carried = after.ports[0].delivered.packets - before.ports[0].delivered.packets;
    let packet_ns = (after.planes[0].processor_ns - before.planes[0].processor_ns) as f64 / carried as f64;
    let (discipline_ns, copy_ns) = bare(kind)?;
    println!(
        "  {:<13} {:>9} packets/s (median of 8; most {}), {packet_ns:.0} ns of the plane each: discipline \
         {discipline_ns:.0} ns, copy {copy_ns:.0} ns, {:.1} times both",
        name(kind),
        rates[rates.len() / 2],
        rates.last().copied().unwrap_or_default(),
        packet_ns / (discipline_ns + copy_ns),
    );
    let drops = switch.stop().ports[0].drops;
    if drops.total() > 0 {
        println!("    dropped: {drops:?}");
    }
    stay_on(0);
    Ok(())
}

/// The longest gaps of a running flow: while nothing happens, while the plane is asked for its counters (the
/// shortest interruption), and while a port is added or removed. The driver shares its processor with the
/// caller; its own longest stop is shown beside.
fn gaps(folder: &Path) -> Outcome<()> {
    println!("longest gap of a flow's frames in 5 ms, and of its driver's rounds: p50, p90 of 200");
    for kind in KINDS {
        let mut switch = switch(folder, kind, 2, Planes::One, 50)?;
        let [mut a, mut b] = [vm(folder, 0)?, vm(folder, 1)?];
        let (end, gap_ns) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; 2]);
        let [nothing, asked, plugged] = std::thread::scope(|scope| {
            scope.spawn(|| {
                let frame = frame(address(1), address(0), 0, 64);
                let mut last = [Instant::now(); 2];
                while !end.load(Ordering::Relaxed) {
                    a.send(&frame)?;
                    let ended = [b.receive()?.is_some(), true];
                    let now = Instant::now();
                    for at in (0..2).filter(|at| ended[*at]) {
                        gap_ns[at].fetch_max((now - last[at]).as_nanos() as u64, Ordering::Relaxed);
                        last[at] = now;
                    }
                }
                Ok::<_, std::io::Error>(())
            });
            let all = each_gap(folder, &mut switch, &gap_ns);
            end.store(true, Ordering::Relaxed);
            all
        })?;
        let us = |gaps: &Histogram, ppm| gaps.quantile_ppm(ppm).as_ns() as f64 / 1_000.0;
        print!("  {:<13}", name(kind));
        for (what, gaps) in [("nothing", nothing), ("asked", asked), ("plugged", plugged)] {
            let [frames, rounds] = gaps.map(|gaps| [500_000, 900_000].map(|ppm| us(&gaps, ppm)));
            print!(" {what}: {frames:.1?} us, {rounds:.1?} us;");
        }
        println!();
    }
    Ok(())
}

/// The longest gaps while nothing happens, while counters are read, and while a port is added or removed.
fn each_gap(folder: &Path, switch: &mut Switch, gap_ns: &[AtomicU64; 2]) -> Outcome<[[Histogram; 2]; 3]> {
    const WINDOW: Duration = Duration::from_millis(5);
    let mut gaps = [(); 3].map(|()| [Histogram::new(), Histogram::new()]);
    let mut plugged = None;
    for round in 0..600 {
        std::thread::sleep(WINDOW);
        gap_ns.iter().for_each(|gap| gap.store(0, Ordering::Relaxed));
        let start = Instant::now();
        match (round % 3, plugged) {
            (0, _) => {}
            (1, _) => drop(switch.count()),
            (_, None) => plugged = Some(switch.plug(port(folder, 2, Planes::One))?),
            (_, Some(place)) => {
                drop(switch.unplug(place));
                plugged = None;
            }
        }
        std::thread::sleep(WINDOW.saturating_sub(start.elapsed()));
        for (gaps, longest) in gaps[round % 3].iter_mut().zip(gap_ns) {
            gaps.record(punctual_sched::Duration::from_ns(longest.load(Ordering::Relaxed)));
        }
    }
    Ok(gaps)
}

/// A switch of two ports under RTCA that polls, as other user-space switches do.
fn serve() -> Outcome<()> {
    let folder = std::env::args().nth(2).ok_or("expected a folder")?;
    let _switch = switch(Path::new(&folder), ("rtca", Some(1)), 2, Planes::One, 1_000)?;
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}

/// The times of round trips, one after the other for so long: each VM with the frame that it sends.
fn trips(
    (a, ping): (&mut FrontEnd, &[u8]),
    (b, pong): (&mut FrontEnd, &[u8]),
    length: Duration,
) -> Outcome<Histogram> {
    let mut times = Histogram::new();
    let start = Instant::now();
    while start.elapsed() < length {
        let sent = Instant::now();
        a.send(ping)?;
        while b.receive()?.is_none() {}
        b.send(pong)?;
        while a.receive()?.is_none() {}
        times.record(punctual_sched::Duration::from_ns(sent.elapsed().as_nanos() as u64));
    }
    Ok(times)
}

/// The cost of a discipline for each packet through all stages, and of a copy of 76 bytes between the buffers
/// of a ring, in ns.
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

fn round_trips(folder: &Path, kind: (&str, Option<u64>), planes: Planes, poll_us: u64) -> Outcome<()> {
    let switch = switch(folder, kind, 4, planes, poll_us)?;
    let [mut a, mut b, mut c, mut d] = [vm(folder, 0)?, vm(folder, 1)?, vm(folder, 2)?, vm(folder, 3)?];
    c.flood_with(&frame(address(3), address(2), 0, 64))?;
    d.flood_with(&frame(address(2), address(3), 0, 64))?;
    let (ping, pong) = (frame(address(1), address(0), 0, 64), frame(address(0), address(1), 0, 64));
    let mut histograms = [Histogram::new(), Histogram::new()];
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
                        flooded += u64::from(vm.refill(TX, 64)?);
                    }
                    vm.refill(RX, 64)?;
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
            histograms[usize::from(floods)].record(time);
        }
        // The rest of the flood is delivered before the next block.
        std::thread::sleep(Duration::from_millis(2));
    }
    let us = |histogram: &Histogram, ppm| histogram.quantile_ppm(ppm).as_ns() as f64 / 1_000.0;
    let [alone, beside] = &histograms;
    let pair = |ppm| (us(alone, ppm), us(beside, ppm));
    let ((p50, p50_beside), (p99, p99_beside)) = (pair(500_000), pair(990_000));
    println!(
        "  {:<13} {:<19}, poll {poll_us:>2} us: alone {p50:.1}, {p99:.1} us; beside \
         {p50_beside:.1}, {p99_beside:.1} us (p50, p99); ratios {:.2}, {:.2}; \
         flood {} packets/s; lost {lost}",
        name(kind),
        planes.name(),
        p50_beside / p50,
        p99_beside / p99,
        (flooded as f64 / (BLOCKS as f64 * BLOCK.as_secs_f64())) as u64,
    );
    drop(switch);
    Ok(())
}

/// Round trips at several rates, event-driven and polling, and the plane's share of its processor.
fn polling(folder: &Path) -> Outcome<()> {
    println!("round trips of 64 bytes, one plane: p50, p99 (us), processor, wake-ups a second");
    for interval_us in [10_000, 1_000, 200, 50] {
        for poll_us in [0, 20, 50, 200] {
            let switch = switch(folder, ("rtca", Some(1)), 2, Planes::One, poll_us)?;
            let (mut a, mut b) = (vm(folder, 0)?, vm(folder, 1)?);
            let (ping, pong) = (frame(address(1), address(0), 0, 64), frame(address(0), address(1), 0, 64));
            let mut times = Histogram::new();
            let before = switch.count().planes[0];
            let start = Instant::now();
            let mut next = start;
            while start.elapsed() < Duration::from_millis(1_000) {
                while Instant::now() < next {
                    std::hint::spin_loop();
                }
                next += Duration::from_micros(interval_us);
                let sent = Instant::now();
                a.send(&ping)?;
                while b.receive()?.is_none() {}
                b.send(&pong)?;
                while a.receive()?.is_none() {}
                times.record(punctual_sched::Duration::from_ns(sent.elapsed().as_nanos() as u64));
            }
            let (after, took) = (switch.count().planes[0], start.elapsed().as_secs_f64());
            let us = |ppm| times.quantile_ppm(ppm).as_ns() as f64 / 1_000.0;
            println!(
                "  every {interval_us:>5} us, poll {poll_us:>3} us: {:>5.1} {:>6.1}  {:>5.1} %  {:>6.0}",
                us(500_000),
                us(990_000),
                (after.processor_ns - before.processor_ns) as f64 / took / 1e7,
                (after.wakeups - before.wakeups) as f64 / took,
            );
        }
    }
    Ok(())
}

/// A flood in a plane without and with a budget of 20 %, beside round trips of an urgent plane on the same
/// processor.
fn budget(folder: &Path) -> Outcome<()> {
    println!("urgent round trips beside a flood (p50, p99, most in us), the flood's plane");
    for (name, of_flood) in [("none", None), ("2 ms each 10 ms", Some(2)), ("none", None), ("again", Some(2))]
    {
        let params = |budget_ms| UnitParams {
            budget: Some(punctual_sched::Duration::from_ms(budget_ms)),
            period: Some(punctual_sched::Duration::from_ms(10)),
            extratime: Some(false),
            ..UnitParams::default()
        };
        let policy = punctual_sched::registry::find("deferrable").ok_or("no such policy")?;
        let of_flood = of_flood.map(|ms| Budget { policy, options: Options::new(), params: params(ms) });
        let switch = switch_with(folder, ("rtca", Some(1)), 4, Planes::RestIsFair, 0, of_flood)?;
        let [mut a, mut b, mut c, mut d] = [vm(folder, 0)?, vm(folder, 1)?, vm(folder, 2)?, vm(folder, 3)?];
        c.flood_with(&frame(address(3), address(2), 0, 64))?;
        let (ping, pong) = (frame(address(1), address(0), 0, 64), frame(address(0), address(1), 0, 64));
        let (mut times, mut flooded) = (Histogram::new(), 0_u64);
        let before = switch.count().planes[1];
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(3) {
            let sent = Instant::now();
            a.send(&ping)?;
            loop {
                flooded += u64::from(c.refill(TX, 64)?);
                d.refill(RX, 64)?;
                if b.receive()?.is_some() {
                    b.send(&pong)?;
                }
                if a.receive()?.is_some() {
                    break;
                }
            }
            times.record(punctual_sched::Duration::from_ns(sent.elapsed().as_nanos() as u64));
        }
        let (after, took) = (switch.count().planes[1], start.elapsed().as_secs_f64());
        let us = |time: punctual_sched::Duration| time.as_ns() as f64 / 1_000.0;
        println!(
            "  budget {name:<16}: {:.1}, {:.1}, {:.0} us; the flood's plane {:.2} % of its processor, \
             {:.0} packets/s",
            us(times.quantile_ppm(500_000)),
            us(times.quantile_ppm(990_000)),
            us(times.max()),
            (after.processor_ns - before.processor_ns) as f64 / took / 1e7,
            flooded as f64 / took,
        );
    }
    Ok(())
}

fn idle(folder: &Path) -> Outcome<()> {
    let switch = switch(folder, ("rtca", None), 4, Planes::RestIsFair, 0)?;
    let _vms = [vm(folder, 0)?, vm(folder, 1)?, vm(folder, 2)?, vm(folder, 3)?];
    let wakeups = || -> u64 { switch.count().planes.iter().map(|plane| plane.wakeups).sum() };
    std::thread::sleep(Duration::from_millis(100));
    let before = wakeups();
    std::thread::sleep(Duration::from_secs(3));
    // Counting wakes both planes.
    println!("idle with 4 VMs for 3 s: {} wake-ups of the planes", wakeups() - before - 2);
    Ok(())
}

fn resident() -> Outcome<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm")?;
    Ok(pages.split(' ').nth(1).ok_or("no second number")?.parse::<u64>()? * 4096)
}

fn memory(folder: &Path) -> Outcome<()> {
    let before = resident()?;
    let few = switch(folder, ("rtca", None), 2, Planes::One, 0)?;
    let with_few = resident()?;
    drop(few);
    let many = switch(folder, ("rtca", None), 66, Planes::One, 0)?;
    let with_many = resident()?;
    drop(many);
    println!(
        "memory: {} KiB for each port, {} KiB for a switch of two",
        with_many.saturating_sub(with_few) / 64 / 1024,
        with_few.saturating_sub(before) / 1024
    );
    Ok(())
}
