//! No discipline of the registry allocates once its interfaces are attached.
//!
//! A program without the test harness, whose own threads allocate while a test runs.

use std::alloc::System;

use punctual_net::event_channel::{EventChannels, PORTS, Port, Scan};
use punctual_net::registry::{self, OptionValue, Options};
use punctual_net::{Fate, FlowId, InterfaceId, InterfaceKind, InterfaceParams, Next, Packet, Rate};
use punctual_sched::{Duration, Instant};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const GUESTS: u32 = 100;
const DEVICES: u32 = 2;
const STEP: Duration = Duration::from_us(1);

/// A small fixed sequence of numbers (Marsaglia's xorshift64), so that the test itself allocates nothing.
struct Xorshift(u64);

impl Xorshift {
    fn below(&mut self, n: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % u64::from(n)) as u32
    }
}

fn params(interface: u32) -> InterfaceParams {
    InterfaceParams {
        kind: if interface < GUESTS { InterfaceKind::Guest } else { InterfaceKind::Device },
        priority: Some(interface % 10),
        ring_slots: Some(16),
        softnet_limit: Some(40),
        rate: (interface < GUESTS && interface.is_multiple_of(3))
            .then(|| Rate::new(5000, Duration::from_us(50))),
        ..InterfaceParams::default()
    }
}

/// Twice as many packets as are processed, then none until all are gone; three times over.
fn drive_without_allocation(name: &str, options: &Options) {
    let info = registry::find(name).expect("a known discipline");
    let mut discipline = (info.build)(options).expect("valid options");
    for interface in 0..GUESTS + DEVICES {
        discipline.attach(Instant::ZERO, &params(interface)).expect("valid");
    }
    let mut random = Xorshift(42);
    let (mut now, mut id, mut delivered, mut dropped) = (Instant::ZERO, 0, 0, 0);
    let region = Region::new(ALLOCATOR);
    for _ in 0..3 {
        for _ in 0..20_000 {
            for _ in 0..2 {
                id += 1;
                let [source, destination] = [(); 2].map(|()| InterfaceId(random.below(GUESTS + DEVICES)));
                let packet = Packet { id, flow: FlowId(source.0), source, destination, bytes: 1500 };
                dropped += u64::from(discipline.arrive(now, packet).is_err());
            }
            if let Next::Process(_) = discipline.next(now) {
                now += STEP;
                match discipline.complete(now) {
                    Fate::Queued(_) => {}
                    Fate::Delivered => delivered += 1,
                    Fate::Dropped(_) => dropped += 1,
                }
            }
        }
        loop {
            match discipline.next(now) {
                Next::Process(_) => now += STEP,
                Next::WaitUntil(at) => {
                    now = at;
                    continue;
                }
                Next::Idle => break,
            }
            match discipline.complete(now) {
                Fate::Queued(_) => {}
                Fate::Delivered => delivered += 1,
                Fate::Dropped(_) => dropped += 1,
            }
        }
    }
    let change = region.change();
    assert_eq!(
        (change.allocations, change.reallocations),
        (0, 0),
        "{name} allocates or reallocates: {change:?}"
    );
    assert_eq!(delivered + dropped, id);
    assert!(delivered > 0 && dropped > 0);
}

fn scan_without_allocation(scan: Scan) {
    let mut channels = EventChannels::new(scan);
    let mut random = Xorshift(7);
    let region = Region::new(ALLOCATOR);
    for _ in 0..20_000 {
        let allocated = channels.allocate();
        assert!(allocated.is_some());
        channels.send(Port(random.below(PORTS)));
        channels.take();
        if let Some(port) = allocated {
            channels.release(port);
        }
    }
    let change = region.change();
    assert_eq!((change.allocations, change.reallocations), (0, 0), "{scan:?}: {change:?}");
}

fn main() {
    for info in registry::disciplines() {
        drive_without_allocation(info.name, &Options::new());
    }
    drive_without_allocation("netback", &Options::new().with("tx_turns", OptionValue::Word("list")));
    for scan in [Scan::First, Scan::Word, Scan::Resume] {
        scan_without_allocation(scan);
    }
}
