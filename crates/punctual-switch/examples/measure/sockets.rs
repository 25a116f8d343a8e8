//! Any vhost-user switch, between two sockets: this one and others under the same load.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use punctual_model::Histogram;
use punctual_switch::features;
use punctual_switch::protocol::F_PROTOCOL_FEATURES;
use punctual_switch::session::{RX, TX};
use punctual_switch::testing::{self, FrontEnd, frame};

use super::{BLOCK, BLOCKS, Outcome, address, trips};

/// Lengths of frames without their check sequence, bytes: the shortest, one between, the longest.
const LENGTHS: [usize; 3] = [64, 512, 1_514];

const FLOWS: [u16; 2] = [1, 16];

/// Parts of the most packets a second, percent.
const LOADS_PERCENT: [u64; 3] = [10, 50, 90];

/// Packets that are sent at once at most when the sender is late.
const BURST: u64 = 32;

/// Nothing is under way if nothing arrived for so long.
const QUIET: Duration = Duration::from_millis(50);

pub(super) fn all() -> Outcome<()> {
    let paths: Vec<PathBuf> = std::env::args().skip(2).map(PathBuf::from).collect();
    let [a, b] = &paths[..] else { return Err("expected two sockets".into()) };
    let (mut a, mut b) = (connect(a)?, connect(b)?);
    let (ping, pong) = (frame(address(1), address(0), 0, 64), frame(address(0), address(1), 0, 64));
    learn((&mut a, &ping), (&mut b, &pong))?;
    let times = trips((&mut a, &ping), (&mut b, &pong), Duration::from_secs(1))?;
    println!("  64 bytes, round trips: {}", quantiles(&times));
    settle(&mut a, &mut b)?;
    for bytes in LENGTHS {
        for flows in FLOWS {
            a.flood_with_all(&datagrams((1, 0), flows, bytes))?;
            b.flood_with_all(&datagrams((0, 1), flows, bytes))?;
            let most = median(&rates(&mut a, &mut b, false)?);
            println!("  {bytes:>4} bytes, {flows:>2} flows, one way: {most} packets/s");
            println!(
                "  {bytes:>4} bytes, {flows:>2} flows, both ways: {} packets/s",
                median(&rates(&mut a, &mut b, true)?)
            );
            for percent in LOADS_PERCENT {
                let (times, missing) = paced(&mut a, &mut b, most * percent / 100)?;
                println!(
                    "  {bytes:>4} bytes, {flows:>2} flows, {percent} %: {}, {missing} missing",
                    quantiles(&times)
                );
            }
        }
    }
    Ok(())
}

/// Without offloads, which not every switch supports.
fn connect(path: &Path) -> Outcome<FrontEnd> {
    let features = features::VERSION_1 | features::MRG_RXBUF | features::EVENT_IDX | F_PROTOCOL_FEATURES;
    Ok(FrontEnd::connected(path, testing::Options { features, ..Default::default() })?)
}

/// Lets the switch learn the address of each, by a frame of its own.
fn learn((a, ping): (&mut FrontEnd, &[u8]), (b, pong): (&mut FrontEnd, &[u8])) -> Outcome<()> {
    for (vm, frame) in [(&mut *a, ping), (&mut *b, pong)] {
        vm.send(frame)?;
        std::thread::sleep(Duration::from_millis(200));
    }
    while a.receive()?.is_some() || b.receive()?.is_some() {}
    settle(a, b)
}

/// Takes back all buffers that the switch has used.
fn settle(a: &mut FrontEnd, b: &mut FrontEnd) -> Outcome<()> {
    std::thread::sleep(QUIET);
    for vm in [a, b] {
        vm.reclaim()?;
        while vm.receive()?.is_some() {}
    }
    Ok(())
}

/// UDP datagrams of as many flows, which differ in their source port, in frames of `bytes` bytes.
fn datagrams((to, from): (usize, usize), flows: u16, bytes: usize) -> Vec<Vec<u8>> {
    let length = bytes - 14;
    let each = |flow: u16| {
        let mut ip = vec![0x45, 0];
        ip.extend((length as u16).to_be_bytes());
        ip.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, from as u8 + 1, 10, 0, 0, to as u8 + 1]);
        let sum: u32 = ip.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
        let check = !((sum & 0xffff) + (sum >> 16)) as u16;
        ip[10..12].copy_from_slice(&check.to_be_bytes());
        let ports = [(1_024 + flow).to_be_bytes(), 7u16.to_be_bytes(), (length as u16 - 20).to_be_bytes()];
        // No checksum, which UDP over IPv4 permits.
        let mut frame = [&address(to)[..], &address(from), &[8, 0], &ip, &ports.concat(), &[0, 0]].concat();
        frame.resize(bytes, 0xa5);
        frame
    };
    (0..flows).map(each).collect()
}

/// Packets a second that arrive while everybody sends what its ring takes, in blocks, sorted.
fn rates(a: &mut FrontEnd, b: &mut FrontEnd, both: bool) -> Outcome<Vec<u64>> {
    drain(a, b)?;
    let mut rates = Vec::new();
    // However few entries the switch has used since the last look: `refill` waits for 64 of them.
    a.refill(TX, 0)?;
    if both {
        b.refill(TX, 0)?;
    }
    for _ in 0..BLOCKS {
        let (start, mut received) = (Instant::now(), 0);
        while start.elapsed() < BLOCK {
            for _ in 0..64 {
                a.refill(TX, 64)?;
                received += u64::from(b.refill(RX, 64)?);
                if both {
                    b.refill(TX, 64)?;
                    received += u64::from(a.refill(RX, 64)?);
                }
            }
        }
        rates.push((received as f64 / start.elapsed().as_secs_f64()) as u64);
    }
    rates.sort_unstable();
    Ok(rates)
}

/// What is under way arrives before the next measurement.
fn drain(a: &mut FrontEnd, b: &mut FrontEnd) -> Outcome<()> {
    let mut last = Instant::now();
    while last.elapsed() < QUIET {
        if a.refill(RX, 1)? + b.refill(RX, 1)? > 0 {
            last = Instant::now();
        }
    }
    Ok(())
}

/// The times from when packets at `rate` a second are due to be sent until they arrive, and how many did not.
/// What was sent together has one time, that of its last packet.
fn paced(a: &mut FrontEnd, b: &mut FrontEnd, rate: u64) -> Outcome<(Histogram, u64)> {
    drain(a, b)?;
    let (mut times, mut under_way) = (Histogram::new(), VecDeque::with_capacity(1 << 12));
    let (mut sent, mut arrived) = (0_u64, 0_u64);
    let start = Instant::now();
    let (length_ns, wait_ns) = (BLOCK.as_nanos() as u64 * BLOCKS as u64, QUIET.as_nanos() as u64);
    loop {
        let now_ns = start.elapsed().as_nanos() as u64;
        let due = (u128::from(rate) * u128::from(now_ns.min(length_ns)) / 1_000_000_000) as u64;
        if due > sent {
            let count = u64::from(a.offer_again(TX, (due - sent).min(BURST) as u16)?);
            sent += count;
            if count > 0 {
                let due_ns = (u128::from(sent) * 1_000_000_000 / u128::from(rate)) as u64;
                under_way.push_back((sent, due_ns));
            }
        }
        arrived += u64::from(b.refill(RX, 1)?);
        while under_way.front().is_some_and(|&(last, _)| last <= arrived) {
            let (_, due_ns) = under_way.pop_front().unwrap_or_default();
            let time_ns = (start.elapsed().as_nanos() as u64).saturating_sub(due_ns);
            times.record(punctual_sched::Duration::from_ns(time_ns));
        }
        let is_over = now_ns > length_ns && due == sent && under_way.is_empty();
        if is_over || now_ns > length_ns + wait_ns {
            return Ok((times, due.saturating_sub(arrived)));
        }
    }
}

fn median(sorted: &[u64]) -> u64 {
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

fn quantiles(times: &Histogram) -> String {
    let us = |ppm| times.quantile_ppm(ppm).as_ns() as f64 / 1_000.0;
    format!("p50 {:.1} us, p99 {:.1} us", us(500_000), us(990_000))
}
