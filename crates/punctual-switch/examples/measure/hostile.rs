//! Round trips of two urgent VMs, each right after a third guest has misbehaved.

use std::path::Path;
use std::time::{Duration, Instant};

use punctual_model::Histogram;
use punctual_switch::session::{RX, TX};
use punctual_switch::testing::{FrontEnd, frame};
use vm_memory::{Bytes, GuestAddress};

use super::{KINDS, Outcome, Planes, address, name, switch, vm};

/// The port of the hostile guest.
const PORT: usize = 2;

const NEXT: u16 = 1;

/// Repetitions of each deed.
const ROUNDS: u64 = 2_000;

/// What the guest does, without waiting for the switch. Its rings may be broken afterwards.
type Deed = fn(&mut FrontEnd, u64) -> std::io::Result<()>;

/// The last two are its front-end's and reach the control thread, which shares the drivers' processor here.
const DEEDS: [(&str, Deed); 8] = [
    ("nothing", |_, _| Ok(())),
    ("kicks 64 times", |guest, _| {
        (0..64).for_each(|_| guest.kick(TX));
        Ok(())
    }),
    ("offers a chain that goes in circles", |guest, _| {
        let buffer = guest.buffer(TX, 0);
        guest.describe(TX, 0, buffer, 1, NEXT, 0)?;
        guest.offer(TX, 0)
    }),
    ("offers 60,000 bytes that leave memory", |guest, _| {
        let place = guest.buffer(TX, 255) + 2048 - 100;
        let start = [&[0; 12][..], &frame(address(1), address(PORT), 0, 64)].concat();
        guest.memory().write_slice(&start, GuestAddress(place)).map_err(std::io::Error::other)?;
        guest.describe(TX, 1, place, 60_000, 0, 0)?;
        guest.offer(TX, 1)
    }),
    ("offers an address outside of memory", |guest, _| {
        guest.describe(TX, 2, u64::MAX - 5, 100, 0, 0)?;
        guest.offer(TX, 2)
    }),
    ("offers more than its ring has", |guest, round| guest.publish_avail(TX, 300 + (round % 50_000) as u16)),
    ("disables and enables its rings", |guest, _| {
        let all = [RX, TX].into_iter().flat_map(|queue| [(queue, 0), (queue, 1)]);
        all.into_iter().try_for_each(|(queue, on)| guest.send_request(18, &[queue as u64 | on << 32], &[]))
    }),
    ("negotiates features again and moves interrupts", |guest, _| {
        guest.send_request(2, &[punctual_switch::features::OFFERED], &[])?;
        guest.replace_call(TX)
    }),
];

/// All deeds under RTCA and preemptive, in one and in two polling planes.
pub(crate) fn all(folder: &Path) -> Outcome<()> {
    println!(
        "round trips of two urgent VMs after a hostile guest's deeds, in turn: p50, p99 (us), and ratios"
    );
    for planes in [Planes::One, Planes::RestIsFifo] {
        for kind in [KINDS[1], KINDS[3]] {
            println!("  {}, {}", name(kind), planes.name());
            round_trips(folder, kind, planes)?;
        }
    }
    Ok(())
}

fn round_trips(folder: &Path, kind: (&str, Option<u64>), planes: Planes) -> Outcome<()> {
    let switch = switch(folder, kind, PORT + 1, planes, 50)?;
    let [mut a, mut b] = [vm(folder, 0)?, vm(folder, 1)?];
    let (ping, pong) = (frame(address(1), address(0), 0, 64), frame(address(0), address(1), 0, 64));
    let mut times = DEEDS.map(|_| Histogram::new());
    let mut lost = 0;
    for round in 0..ROUNDS {
        for ((_, deed), times) in DEEDS.iter().zip(&mut times) {
            let mut guest = come(folder)?;
            // The connection no longer takes processor time.
            std::thread::sleep(Duration::from_micros(100));
            let warm = trip(&mut a, &mut b, &ping, &pong)?;
            deed(&mut guest, round)?;
            let time = trip(&mut a, &mut b, &ping, &pong)?;
            lost += u64::from(warm.is_none()) + u64::from(time.is_none());
            time.into_iter().for_each(|time| times.record(time));
        }
    }
    let us = |of: &Histogram, ppm| of.quantile_ppm(ppm).as_ns() as f64 / 1_000.0;
    let [p50, p99] = [500_000, 990_000].map(|ppm| us(&times[0], ppm));
    for ((what, _), times) in DEEDS.iter().zip(&times) {
        let [of_p50, of_p99] = [500_000, 990_000].map(|ppm| us(times, ppm));
        println!("    {what:<44} {of_p50:>6.1} {of_p99:>7.1}   {:>5.2} {:>6.2}", of_p50 / p50, of_p99 / p99);
    }
    println!(
        "    lost {lost}; dropped {}",
        switch.stop().ports[..2].iter().map(|p| p.drops.total()).sum::<u64>()
    );
    Ok(())
}

/// A round trip; `None` if it was lost.
fn trip(
    a: &mut FrontEnd,
    b: &mut FrontEnd,
    ping: &[u8],
    pong: &[u8],
) -> Outcome<Option<punctual_sched::Duration>> {
    let sent = Instant::now();
    a.send(ping)?;
    while sent.elapsed() < Duration::from_secs(1) {
        if b.receive()?.is_some() {
            b.send(pong)?;
        }
        if a.receive()?.is_some() {
            return Ok(Some(punctual_sched::Duration::from_ns(sent.elapsed().as_nanos() as u64)));
        }
    }
    Ok(None)
}

/// The guest, as soon as the switch has disconnected it.
fn come(folder: &Path) -> Outcome<FrontEnd> {
    let end = Instant::now() + Duration::from_secs(5);
    loop {
        match vm(folder, PORT) {
            Err(error) if Instant::now() > end => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_micros(50)),
            guest => return guest,
        }
    }
}
