//! The cost of a packet per stage under every discipline: its arrival, decisions and completions on its way
//! through TX, softnet and RX, divided by three. Again and again every guest sends four packets, and all are
//! delivered.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion};
use punctual_net::discipline::DisciplineInfo;
use punctual_net::registry::{self, OptionValue, Options};
use punctual_net::{Discipline, Fate, FlowId, InterfaceId, InterfaceParams, Next, Packet, Rate};
use punctual_sched::{Duration, Instant};

const GUESTS: [u32; 2] = [10, 1000];
const STAGES: u64 = 3;
/// Packets that each guest sends at a time.
const PACKETS: u64 = 4;
const COST: Duration = Duration::from_ns(500);

/// A driver that does no more than it must.
struct Path {
    discipline: Box<dyn Discipline>,
    guests: u32,
    now: Instant,
}

impl Path {
    fn new(info: &DisciplineInfo, guests: u32, batch: u64, rate: Option<Rate>) -> Self {
        let options = Options::new().with("batch", OptionValue::Count(batch));
        let mut discipline = (info.build)(&options).expect("valid options");
        for guest in 0..guests {
            let params = InterfaceParams { priority: Some(guest), rate, ..InterfaceParams::default() };
            discipline.attach(Instant::ZERO, &params).expect("valid");
        }
        Path { discipline, guests, now: Instant::ZERO }
    }

    /// Every guest sends its packets; returns how often a packet was processed in a stage until all were
    /// delivered.
    fn send_and_deliver(&mut self) -> u64 {
        for id in 0..PACKETS {
            for source in 0..self.guests {
                let destination = InterfaceId((source + 1) % self.guests);
                self.discipline.arrive(self.now, packet(id, InterfaceId(source), destination)).expect("room");
            }
        }
        let mut steps = 0;
        while let Next::Process(step) = self.discipline.next(self.now) {
            black_box(step);
            self.now += COST;
            assert!(!matches!(self.discipline.complete(self.now), Fate::Dropped(_)));
            steps += 1;
        }
        steps
    }
}

fn packet(id: u64, source: InterfaceId, destination: InterfaceId) -> Packet {
    Packet { id, flow: FlowId(source.0), source, destination, bytes: 1500 }
}

fn per_packet_and_stage(criterion: &mut Criterion) {
    let unlimited = None;
    let ample = Some(Rate::new(u64::MAX, Duration::from_us(50)));
    for info in registry::disciplines() {
        let mut group = criterion.benchmark_group(info.name);
        for guests in GUESTS {
            for (variant, batch, rate) in
                [("batch 1", 1, unlimited), ("batch 64", 64, unlimited), ("batch 64, rate", 64, ample)]
            {
                let mut path = Path::new(info, guests, batch, rate);
                assert_eq!(path.send_and_deliver(), u64::from(guests) * PACKETS * STAGES);
                group.bench_function(BenchmarkId::new(variant, guests), |bencher| {
                    bencher.iter_custom(|iterations| {
                        let start = std::time::Instant::now();
                        let mut steps = 0;
                        while steps < iterations {
                            steps += path.send_and_deliver();
                        }
                        start.elapsed().mul_f64(iterations as f64 / steps as f64)
                    });
                });
            }
        }
        group.finish();
    }
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    per_packet_and_stage(&mut criterion);
    criterion.final_summary();
}
