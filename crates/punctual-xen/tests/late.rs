//! On a real machine a processor picks when its interrupt arrives, later than it was asked to. Nobody gets
//! more than its budget by that.

use proptest::prelude::*;
use punctual_sched::registry::{self, Budgets, PolicyInfo};
use punctual_sched::{Instant, Run, Slice, UnitParams};
use punctual_testkit::driver::server_ms;
use punctual_xen::{Config, Pool};

/// Processors whose picks come late, by these times in turn, in ns.
struct Machine<'d> {
    pool: Pool,
    now_ns: u64,
    slices: Vec<Slice>,
    /// By processor: when it picks, as it was asked to or at the end of its slice.
    picks_ns: Vec<u64>,
    delays_ns: &'d [u64],
    drawn: usize,
    ran_ns: Vec<u64>,
}

impl Machine<'_> {
    fn delay_ns(&mut self) -> u64 {
        self.drawn += 1;
        self.delays_ns[self.drawn % self.delays_ns.len()]
    }

    fn follow(&mut self) {
        let asked: Vec<usize> = self.pool.take_resched().map(|cpu| cpu.index()).collect();
        for cpu in asked {
            let at_ns = self.now_ns + self.delay_ns();
            self.picks_ns[cpu] = self.picks_ns[cpu].min(at_ns);
        }
    }

    fn go_on(&mut self) {
        let timer_ns = self.pool.next_timer().as_ns().max(self.now_ns);
        let next_ns = self.picks_ns.iter().copied().min().unwrap_or(u64::MAX).min(timer_ns);
        for slice in &self.slices {
            if let Run::Unit(unit) = slice.run {
                self.ran_ns[unit.index()] += next_ns - self.now_ns;
            }
        }
        self.now_ns = next_ns;
        let now = Instant::from_ns(next_ns);
        if timer_ns == next_ns {
            self.pool.timer(now);
            self.follow();
        }
        for cpu in 0..self.slices.len() {
            if self.picks_ns[cpu] != next_ns {
                continue;
            }
            let slice = self.pool.pick(now, cpu as u32).expect("a processor");
            let is_free = |other: &Slice| other.run.charged().is_none() || other.run != slice.run;
            let others = (0..self.slices.len()).filter(|other| *other != cpu);
            assert!(others.map(|other| &self.slices[other]).all(is_free), "a unit is on two processors");
            self.slices[cpu] = slice;
            let late_ns = self.delay_ns();
            self.picks_ns[cpu] = slice.until.as_ns().saturating_add(late_ns);
            self.follow();
        }
    }
}

/// What units that never rest run in a second, each with what it may.
fn run(policy: &str, cpus: usize, units: &[UnitParams], delays_ns: &[u64]) -> Vec<u64> {
    let config = Config { policy, options: "", cpus, units: units.len() };
    let idle = Slice { run: Run::Idle, until: Instant::NEVER };
    let mut machine = Machine {
        pool: config.build().expect("a pool"),
        now_ns: 0,
        slices: vec![idle; cpus],
        picks_ns: vec![0; cpus],
        delays_ns,
        drawn: 0,
        ran_ns: vec![0; units.len()],
    };
    for params in units {
        let unit = machine.pool.insert(Instant::ZERO, params).expect("a unit");
        machine.pool.wake(Instant::ZERO, unit.0).expect("it is there");
    }
    machine.follow();
    while machine.now_ns < 1_000_000_000 {
        machine.go_on();
    }
    machine.ran_ns
}

proptest! {
    #[test]
    fn who_picks_late_gives_nobody_more_than_its_budget(
        budgets in prop::collection::vec((1u64..11, 10u64..21, 0u32..3), 1..5),
        delays_ns in prop::collection::vec(0u64..60_000, 5..40),
        cpus in 1usize..4,
    ) {
        let server = |&(budget, period, priority)| {
            UnitParams { extratime: Some(false), ..server_ms(budget, period, priority) }
        };
        let units: Vec<UnitParams> = budgets.iter().map(server).collect();
        let are_servers = |info: &&PolicyInfo| matches!(info.budgets, Budgets::Server { .. });
        for info in registry::policies().iter().filter(are_servers) {
            let ran_ns = run(info.name, cpus, &units, &delays_ns);
            for (unit, &(budget, period, _)) in budgets.iter().enumerate() {
                // Each budget that ends is overrun by a delay; that of a sporadic server may end in parts.
                let periods = 1_000 / period + 2;
                let most_ns = periods * (budget * 1_000_000 + 200_000);
                let ran_ns = ran_ns[unit];
                prop_assert!(ran_ns <= most_ns, "{} on {cpus}: {unit} {ran_ns} of {most_ns}", info.name);
            }
        }
    }
}
