//! The cost of a decision under every policy of the registry, on one processor.
//!
//! `charge+pick`: charge a slice of 1 ms and pick, without timers. `slice`: all that a driver does at the end
//! of a slice or at a timer: charge what ran, fire the timers that are due, pick; with budgets of 4 ms that
//! add up to the whole processor every rule has something to do. `wake+sleep`: the least urgent unit gets and
//! loses work, with the picks that are asked for. All units but that one always have work. `mixed`: as
//! `slice`, with five weights in turn, under policies that read weights.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion};
use punctual_sched::registry::{self, Options, PolicyInfo};
use punctual_sched::{CpuId, CpuSet, Duration, Instant, ParamError, Policy, Slice, UnitId, UnitParams};

const CPU: CpuId = CpuId(0);
const SIZES: [u64; 3] = [5, 100, 1000];
const MIXED: [u32; 5] = [64, 128, 256, 512, 1024];
/// Policies without budgets end slices by events only; the benchmark ends theirs after this long.
const SLICE_MAX: Duration = Duration::from_ms(1);

/// A driver of one processor that does no more than it must.
struct Machine {
    policy: Box<dyn Policy>,
    now: Instant,
    slice: Slice,
    resched: CpuSet,
    units: Vec<UnitId>,
}

impl Machine {
    /// `units` of `budget` each, together the whole processor, with these weights in turn.
    fn new(info: &PolicyInfo, units: u64, budget: Duration, weights: &[u32]) -> Result<Self, ParamError> {
        let mut policy = info.build(1, &Options::new()).expect("defaults are accepted");
        let mut resched = CpuSet::new(1);
        let params = |i: u64| UnitParams {
            budget: Some(budget),
            period: Some(budget * units + Duration::from_us(i * 10)),
            priority: Some(i as u32),
            weight: Some(weights[i as usize % weights.len()]),
            ..UnitParams::default()
        };
        let units: Vec<UnitId> =
            (0..units).map(|i| policy.insert(Instant::ZERO, &params(i))).collect::<Result<_, _>>()?;
        for &unit in &units[..units.len() - 1] {
            policy.set_deadline(Instant::ZERO, unit, Instant::from_ns(u64::MAX / 2), &mut resched);
            policy.wake(Instant::ZERO, unit, &mut resched);
        }
        resched.clear();
        let slice = policy.pick(Instant::ZERO, CPU, &mut resched);
        Ok(Machine { policy, now: Instant::ZERO, slice, resched, units })
    }

    #[inline]
    fn charge_and_pick(&mut self) {
        self.charge(self.slice.until.min(self.now + SLICE_MAX));
        self.pick();
    }

    /// Lets time pass until the end of the slice or the next timer, and decides.
    #[inline]
    fn end_slice(&mut self) {
        let timer = self.policy.next_timer().at;
        let end = self.slice.until.min(timer).min(self.now + SLICE_MAX);
        self.charge(end);
        while self.policy.next_timer().at <= self.now {
            self.policy.on_timer(self.now, &mut self.resched);
        }
        self.pick();
    }

    #[inline]
    fn charge(&mut self, to: Instant) {
        let ran = to.since(self.now);
        self.now = to;
        if let Some(unit) = self.slice.run.charged() {
            self.policy.charge(self.now, CPU, unit, ran);
        }
    }

    #[inline]
    fn pick(&mut self) {
        self.resched.clear();
        self.slice = black_box(self.policy.pick(self.now, CPU, &mut self.resched));
    }

    #[inline]
    fn wake_and_sleep(&mut self) {
        let unit = self.units[self.units.len() - 1];
        self.policy.wake(self.now, unit, &mut self.resched);
        if !self.resched.is_empty() {
            self.pick();
        }
        self.policy.sleep(self.now, unit, &mut self.resched);
        if !self.resched.is_empty() {
            self.pick();
        }
    }
}

fn decisions(criterion: &mut Criterion) {
    for info in registry::policies() {
        let mut group = criterion.benchmark_group(info.name);
        for size in SIZES {
            // Budgets of hours: the benchmark never gets to their end.
            match Machine::new(info, size, Duration::from_secs(1_000_000), &[256]) {
                Ok(mut machine) => {
                    group.bench_function(BenchmarkId::new("charge+pick", size), |bencher| {
                        bencher.iter(|| machine.charge_and_pick());
                    });
                }
                Err(refused) => println!("{}/charge+pick/{size}: left out: {refused}", info.name),
            }
            let budget = Duration::from_ms(4);
            let mut machine = Machine::new(info, size, budget, &[256]).expect("every policy takes 4 ms");
            group.bench_function(BenchmarkId::new("slice", size), |bencher| {
                bencher.iter(|| machine.end_slice());
            });
            if info.reads(UnitParams::WEIGHT) {
                let mut machine = Machine::new(info, size, budget, &MIXED).expect("every policy takes 4 ms");
                group.bench_function(BenchmarkId::new("mixed", size), |bencher| {
                    bencher.iter(|| machine.end_slice());
                });
            }
            let mut machine = Machine::new(info, size, budget, &[256]).expect("every policy takes 4 ms");
            group.bench_function(BenchmarkId::new("wake+sleep", size), |bencher| {
                bencher.iter(|| machine.wake_and_sleep());
            });
        }
        group.finish();
    }
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    decisions(&mut criterion);
    criterion.final_summary();
}
