//! The driver against a kernel that schedules by priority and an enforcer that looks late: what units get is
//! what the policy grants them.

use std::collections::VecDeque;

use proptest::prelude::*;
use punctual_enforce::driver::{
    Driver, Judgement, LateOverrun, Lateness, Observation, Order, Settings, subtract_stolen,
};
use punctual_sched::registry::{self, OptionValue, Options};
use punctual_sched::{CpuId, Duration, Instant, UnitParams};

/// What a unit does.
#[derive(Clone, Copy, Debug)]
enum Load {
    Hog,
    /// Wakes every `period`, works for `cost`.
    Periodic {
        period: Duration,
        cost: Duration,
    },
}

struct Unit {
    number: usize,
    load: Load,
    next_release: Instant,
    backlog: Duration,
    ran: Duration,
    total: Duration,
    /// Releases whose work is not done, and what of it is left.
    jobs: VecDeque<(Instant, Duration)>,
    /// How long it took until the work of each release was done.
    responses: Vec<Duration>,
}

/// One processor with preemptive fixed priorities.
struct Kernel {
    driver: Driver,
    units: Vec<Unit>,
    now: Instant,
    /// How late a look comes: cycles through these.
    lateness: Vec<Duration>,
    looks: usize,
    /// When the machine stands still, and for how long.
    stolen: Option<Stolen>,
    /// Do units ask for a grace at each look?
    graces: bool,
    last_look: Instant,
}

/// A machine that stands still now and then.
#[derive(Clone, Copy)]
struct Stolen {
    every: Duration,
    length: Duration,
    /// Does the kernel's account of the thread that runs go on meanwhile?
    is_charged: bool,
    /// Does the enforcer subtract what it finds?
    is_subtracted: bool,
}

const STEP: Duration = Duration::from_us(5);

impl Kernel {
    fn new(policy: &str, loads: &[(Load, UnitParams)], lateness: &[Duration]) -> Kernel {
        Kernel::with(policy, loads, lateness, Settings::default())
    }

    fn with(policy: &str, loads: &[(Load, UnitParams)], lateness: &[Duration], settings: Settings) -> Kernel {
        Kernel::with_options(policy, Options::new(), loads, lateness, settings)
    }

    fn with_options(
        policy: &str,
        mut options: Options,
        loads: &[(Load, UnitParams)],
        lateness: &[Duration],
        settings: Settings,
    ) -> Kernel {
        let info = registry::find(policy).expect("a policy");
        if info.options.iter().any(|option| option.name == "quantum") {
            options.set("quantum", OptionValue::Word("exact"));
        }
        let start = Instant::from_ns(1_000_000);
        let mut driver = Driver::new(info, &options, 1, settings).expect("options");
        let units = loads.iter().map(|(load, params)| Unit {
            number: driver.insert(start, params).expect("parameters"),
            load: *load,
            next_release: start,
            backlog: Duration::ZERO,
            ran: Duration::ZERO,
            total: Duration::ZERO,
            jobs: VecDeque::new(),
            responses: Vec::new(),
        });
        let units = units.collect();
        let lateness = lateness.to_vec();
        Kernel {
            driver,
            units,
            now: start,
            lateness,
            looks: 0,
            stolen: None,
            graces: false,
            last_look: start,
        }
    }

    fn run(&mut self, length: Duration) {
        let end = self.now + length;
        let mut due = self.now;
        let mut still = self.stolen.map_or(Instant::NEVER, |stolen| self.now + stolen.every);
        while self.now < end {
            let with_work = self.driver.needs_work();
            let mut observed: Vec<(usize, Observation)> = self
                .units
                .iter_mut()
                .map(|unit| {
                    let ran = std::mem::take(&mut unit.ran);
                    let works = matches!(unit.load, Load::Hog) || !unit.backlog.is_zero();
                    (unit.number, Observation { ran, idled: None, has_work: with_work.then_some(works) })
                })
                .collect();
            self.subtract(due, &mut observed);
            for unit in self.units.iter().filter(|_| self.graces) {
                self.driver.begin_grace(self.now, unit.number);
            }
            let next = self.driver.observe(self.now, CpuId(0), &observed);
            assert!(next > self.now, "time must advance");
            due = next;
            let late = self.lateness[self.looks % self.lateness.len()];
            self.looks += 1;
            let wake = (next + late).min(end);
            while self.now < wake {
                if self.now >= still {
                    still = self.stand_still();
                    continue;
                }
                let step = STEP.min(wake.since(self.now));
                self.step(step);
            }
        }
    }

    /// What an enforcer does with the time that it finds stolen.
    fn subtract(&mut self, due: Instant, observed: &mut [(usize, Observation)]) {
        let (late, elapsed) = (self.now.since(due), self.now.since(self.last_look));
        self.last_look = self.now;
        let judgement = match self.stolen {
            Some(Stolen { is_charged, is_subtracted: true, .. }) => {
                let lateness = Lateness { late, kernel_knows_stolen: !is_charged, ..Lateness::default() };
                subtract_stolen(observed, elapsed, &lateness)
            }
            _ => Judgement::default(),
        };
        self.driver.set_lateness(late, &judgement);
    }

    /// Stands still; returns when it does so again.
    fn stand_still(&mut self) -> Instant {
        let Some(Stolen { every, length, is_charged, .. }) = self.stolen else { return Instant::NEVER };
        if let (true, Some(unit)) = (is_charged, self.running()) {
            self.units[unit].ran += length;
        }
        self.now += length;
        self.now + every
    }

    /// Which unit has the processor.
    fn running(&self) -> Option<usize> {
        let ready = self.units.iter().enumerate().filter_map(|(index, unit)| {
            let works = matches!(unit.load, Load::Hog) || !unit.backlog.is_zero();
            match self.driver.order(unit.number) {
                Order::Ranked(rank) if works => Some((rank, index)),
                _ => None,
            }
        });
        ready.min().map(|(_, index)| index)
    }

    fn step(&mut self, step: Duration) {
        for unit in &mut self.units {
            if let Load::Periodic { period, cost } = unit.load
                && unit.next_release <= self.now
            {
                unit.backlog += cost;
                unit.jobs.push_back((unit.next_release, cost));
                unit.next_release += period;
            }
        }
        if let Some(running) = self.running() {
            let unit = &mut self.units[running];
            unit.ran += step;
            unit.total += step;
            unit.backlog = unit.backlog.saturating_sub(step);
            if let Some((released, left)) = unit.jobs.front_mut() {
                *left = left.saturating_sub(step);
                if left.is_zero() {
                    unit.responses.push((self.now + step).since(*released));
                    unit.jobs.pop_front();
                }
            }
        }
        self.now += step;
    }

    fn share_ppm(&self, index: usize, length: Duration) -> u64 {
        self.units[index].total.as_ns() * 1_000_000 / length.as_ns()
    }
}

fn server(budget_us: u64, period_us: u64, priority: u32) -> UnitParams {
    UnitParams {
        budget: Some(Duration::from_us(budget_us)),
        period: Some(Duration::from_us(period_us)),
        priority: Some(priority),
        extratime: Some(false),
        ..UnitParams::default()
    }
}

const SECOND: Duration = Duration::from_secs(1);
const SERVERS: [&str; 6] = ["deferrable", "periodic", "polling", "sporadic", "rtds", "sedf"];

#[test]
fn a_hog_gets_its_budget_and_no_more_however_late_the_looks() {
    for policy in SERVERS {
        for late_us in [0, 30, 300] {
            let lateness = [late_us, 0, late_us / 3].map(Duration::from_us);
            let mut kernel = Kernel::new(policy, &[(Load::Hog, server(2_000, 10_000, 1))], &lateness);
            kernel.run(SECOND);
            let share = kernel.share_ppm(0, SECOND);
            // Overrun is paid back, so the share over a second is right even when each look is late.
            assert!((190_000..=204_000).contains(&share), "{policy} {late_us} us late: {share} ppm");
        }
    }
}

/// Units that want all that they may have, on a machine that stands still for 30 ms now and then.
fn shares_of_disturbed(policy: &str, is_charged: bool, is_subtracted: bool) -> [u64; 2] {
    let hogs = [(Load::Hog, server(2_000, 10_000, 1)), (Load::Hog, server(6_000, 20_000, 2))];
    let mut kernel = Kernel::new(policy, &hogs, &[Duration::from_us(10)]);
    // No multiple of the periods: it stops at any point of them.
    let (every, length) = (Duration::from_us(81_700), Duration::from_ms(30));
    kernel.stolen = Some(Stolen { every, length, is_charged, is_subtracted });
    kernel.run(SECOND * 4);
    assert_eq!(kernel.driver.evidence().stolen > Duration::from_ms(200), is_charged && is_subtracted);
    [0, 1].map(|unit| kernel.share_ppm(unit, SECOND * 4))
}

#[test]
fn stolen_time_is_charged_to_no_budget_whether_the_kernel_subtracts_it_or_not() {
    for policy in ["deferrable", "periodic", "sporadic", "sedf"] {
        let known_to_kernel = shares_of_disturbed(policy, false, true);
        let known_to_enforcer = shares_of_disturbed(policy, true, true);
        for unit in 0..2 {
            let difference = known_to_kernel[unit].abs_diff(known_to_enforcer[unit]);
            assert!(difference < 10_000, "{policy}: {known_to_kernel:?} and {known_to_enforcer:?}");
        }
        let charged = shares_of_disturbed(policy, true, false);
        let total = |shares: [u64; 2]| shares[0] + shares[1];
        assert!(
            total(charged) + 20_000 < total(known_to_enforcer),
            "{policy}: units that pay for it get less: {charged:?} and {known_to_enforcer:?}"
        );
    }
}

#[test]
fn an_enforcer_that_was_stopped_or_waited_subtracts_nothing() {
    let ran = Observation { ran: Duration::from_ms(9), idled: None, has_work: None };
    let late = Duration::from_ms(8);
    let subtracted = |lateness: Lateness| {
        let other = Observation { ran: Duration::from_us(500), ..ran };
        let mut observed = [(0, ran), (1, other)];
        let judgement = subtract_stolen(&mut observed, Duration::from_ms(10), &lateness);
        assert_eq!(observed[0].1.ran + judgement.stolen, ran.ran, "the unit that ran longest is corrected");
        (judgement.stolen, judgement.ran_on)
    };
    let lateness = Lateness { late, ..Lateness::default() };
    assert_eq!(subtracted(lateness), (Duration::from_us(7_500), false));
    assert_eq!(subtracted(Lateness { waited: late, ..lateness }), (Duration::ZERO, false));
    assert_eq!(subtracted(Lateness { was_stopped: true, ..lateness }), (Duration::ZERO, true));
    assert_eq!(subtracted(Lateness { kernel_knows_stolen: true, ..lateness }), (Duration::ZERO, true));
}

#[test]
fn an_overrun_because_of_a_late_look_is_owed_or_forgiven_as_the_settings_say() {
    for (late_overrun, expected) in
        [(LateOverrun::Owed, 190_000..=204_000), (LateOverrun::Forgiven, 225_000..=235_000)]
    {
        let settings = Settings { late_overrun, ..Settings::default() };
        let hog = [(Load::Hog, server(2_000, 10_000, 1))];
        let mut kernel = Kernel::with("deferrable", &hog, &[Duration::from_us(300)], settings);
        kernel.run(SECOND);
        let share = kernel.share_ppm(0, SECOND);
        assert!(expected.contains(&share), "{late_overrun:?}: {share} ppm");
    }
}

#[test]
fn a_unit_pays_for_its_graces() {
    for policy in SERVERS {
        let hog = [(Load::Hog, server(2_000, 10_000, 1))];
        let mut kernel = Kernel::new(policy, &hog, &[Duration::from_us(10)]);
        kernel.graces = true;
        kernel.run(SECOND);
        let share = kernel.share_ppm(0, SECOND);
        assert!((190_000..=204_000).contains(&share), "{policy}: {share} ppm");
        // It is parked all the time but for budgets and graces.
        let graces = kernel.driver.evidence().graces;
        assert!((80..=100).contains(&graces), "{policy}: {graces} graces");
    }
}

#[test]
fn the_graces_of_a_unit_delay_none_that_is_more_urgent() {
    for policy in ["deferrable", "polling", "sporadic"] {
        let urgent = Load::Periodic { period: Duration::from_ms(7), cost: Duration::from_ms(2) };
        let units = [(urgent, server(3_000, 7_000, 1)), (Load::Hog, server(2_000, 20_000, 2))];
        let responses = |graces: bool| {
            let mut kernel = Kernel::new(policy, &units, &[Duration::from_us(10)]);
            kernel.graces = graces;
            kernel.run(SECOND);
            (kernel.units[0].responses.iter().copied().max(), kernel.driver.evidence().graces)
        };
        let ((without, none), (with, many)) = (responses(false), responses(true));
        assert_eq!(with, without, "{policy}");
        assert!(none == 0 && many > 40, "{policy}: {none} and {many} graces");
    }
}

#[test]
fn a_grace_ends_when_the_lock_is_released_or_after_a_millisecond_and_comes_every_ten() {
    let info = registry::find("deferrable").expect("a policy");
    let mut driver = Driver::new(info, &Options::new(), 1, Settings::default()).expect("options");
    let at = |ms: u64| Instant::from_ns(ms * 1_000_000);
    let unit = driver.insert(at(1), &server(2_000, 100_000, 1)).expect("parameters");
    let look = |driver: &mut Driver, now: Instant, ran_us: u64| {
        let ran = Observation { ran: Duration::from_us(ran_us), idled: None, has_work: None };
        (driver.observe(now, CpuId(0), &[(unit, ran)]), driver.order(unit))
    };
    assert!(matches!(look(&mut driver, at(1), 0).1, Order::Ranked(_)));
    assert!(!driver.begin_grace(at(2), unit), "it has budget");
    assert_eq!(look(&mut driver, at(3), 2_000).1, Order::Parked);
    assert!(driver.begin_grace(at(10), unit));
    assert_eq!(look(&mut driver, at(10), 0), (at(11), Order::Ranked(0)));
    assert_eq!(look(&mut driver, at(11), 1_000).1, Order::Parked, "its millisecond is over");
    assert!(!driver.begin_grace(at(19), unit), "too early");
    assert!(driver.begin_grace(at(20), unit));
    assert_eq!(look(&mut driver, at(20), 0).1, Order::Ranked(0));
    driver.end_grace(Instant::from_ns(20_400_000), unit);
    assert_eq!(
        look(&mut driver, Instant::from_ns(20_400_000), 400).1,
        Order::Parked,
        "it has released the lock"
    );
    assert!(!driver.begin_grace(at(30), unit + 1), "no such unit");
}

#[test]
fn a_less_urgent_unit_gets_what_is_left_of_the_time() {
    for policy in SERVERS {
        let now_and_then = Load::Periodic { period: Duration::from_ms(40), cost: Duration::from_ms(8) };
        let units = [
            (Load::Hog, server(3_000, 10_000, 1)),
            (Load::Hog, server(5_000, 20_000, 2)),
            (now_and_then, server(10_000, 40_000, 3)),
        ];
        let mut kernel = Kernel::new(policy, &units, &[Duration::from_us(10)]);
        kernel.run(SECOND);
        for (index, expected) in [(0, 300_000), (1, 250_000), (2, 200_000)] {
            let share = kernel.share_ppm(index, SECOND);
            assert!(share.abs_diff(expected) < 12_000, "{policy}: unit {index} got {share} ppm");
        }
    }
}

#[test]
fn extra_time_runs_on_an_idle_processor() {
    let params = UnitParams { extratime: Some(true), ..server(2_000, 10_000, 1) };
    for policy in ["rtds", "sedf"] {
        let mut kernel = Kernel::new(policy, &[(Load::Hog, params.clone())], &[Duration::from_us(10)]);
        kernel.run(SECOND);
        assert!(kernel.share_ppm(0, SECOND) > 990_000, "{policy}: {} ppm", kernel.share_ppm(0, SECOND));
    }
}

#[test]
fn extra_time_takes_nothing_from_a_budget() {
    let greedy = UnitParams { extratime: Some(true), ..server(1_000, 10_000, 1) };
    let modest = Load::Periodic { period: Duration::from_ms(20), cost: Duration::from_ms(8) };
    for policy in ["rtds", "sedf"] {
        let units = [(Load::Hog, greedy.clone()), (modest, server(5_000, 10_000, 2))];
        let mut kernel = Kernel::new(policy, &units, &[Duration::from_us(10)]);
        kernel.run(SECOND);
        let share = kernel.share_ppm(1, SECOND);
        assert!(share > 390_000, "{policy}: {share} ppm of the 400,000 that it needs");
    }
}

#[test]
fn a_vcpu_that_wakes_up_beside_one_of_its_vm_that_spins_waits_for_the_end_of_a_turn() {
    let nap = Load::Periodic { period: Duration::from_us(5_300), cost: Duration::from_us(50) };
    let vcpu = |priority| UnitParams { vm: Some(0), ..server(40_000, 100_000, priority) };
    for policy in ["fixed-priority", "edf", "deferrable", "sporadic", "rtds", "cbs"] {
        for budget_of_vm in [false, true] {
            let own = |priority| UnitParams { shares_budget: budget_of_vm, ..vcpu(priority) };
            let units = [(Load::Hog, own(1)), (nap, own(2))];
            let mut kernel = Kernel::new(policy, &units, &[Duration::from_us(10)]);
            kernel.run(Duration::from_ms(30));
            let longest = kernel.units[1].responses.iter().max().expect("it worked");
            let name = format!("{policy}, budget of the VM: {budget_of_vm}");
            assert!(*longest < Duration::from_us(1_100), "{name}: {longest}");
        }
    }
}

#[test]
fn vcpus_of_a_vm_that_spin_share_a_processor_by_turns() {
    for policy in ["fixed-priority", "edf", "deferrable", "rtds", "cbs", "credit", "round-robin"] {
        let vcpu = |priority| UnitParams { vm: Some(0), ..server(40_000, 100_000, priority) };
        let now_and_then = Load::Periodic { period: Duration::from_ms(20), cost: Duration::from_ms(2) };
        let units = [
            (Load::Hog, vcpu(2)),
            (Load::Hog, vcpu(3)),
            (now_and_then, UnitParams { vm: Some(1), ..server(20_000, 100_000, 1) }),
        ];
        let mut kernel = Kernel::new(policy, &units, &[Duration::from_us(10)]);
        kernel.run(SECOND);
        for index in [0, 1] {
            let share = kernel.share_ppm(index, SECOND);
            assert!((350_000..=510_000).contains(&share), "{policy}: unit {index} got {share} ppm");
        }
    }
}

/// The VM has 40 % in all, whichever of its vCPUs wants it.
#[test]
fn vcpus_that_share_a_budget_have_it_together() {
    let vcpu = || UnitParams { vm: Some(0), shares_budget: true, ..server(8_000, 20_000, 1) };
    let now_and_then = || Load::Periodic { period: Duration::from_ms(20), cost: Duration::from_ms(1) };
    for policy in ["deferrable", "periodic", "polling", "sporadic", "sedf", "rtds"] {
        let not_more = UnitParams { extratime: Some(false), ..vcpu() };
        let other = UnitParams { extratime: Some(false), ..server(10_000, 20_000, 2) };
        for (second, least) in [(Load::Hog, 150_000), (now_and_then(), 45_000)] {
            let units =
                [(Load::Hog, not_more.clone()), (second, not_more.clone()), (Load::Hog, other.clone())];
            let mut kernel = Kernel::new(policy, &units, &[Duration::from_us(10)]);
            kernel.run(SECOND);
            let shares = [0, 1, 2].map(|index| kernel.share_ppm(index, SECOND));
            assert!((390_000..=405_000).contains(&(shares[0] + shares[1])), "{policy}: {shares:?}");
            assert!(shares[0].min(shares[1]) >= least, "{policy}: {shares:?}");
            assert!((490_000..=505_000).contains(&shares[2]), "{policy}: {shares:?}");
        }
    }
}

/// A vCPU may use all of it, where the other one has no work.
#[test]
fn one_vcpu_uses_the_budget_that_others_of_its_vm_leave() {
    let vcpu = || UnitParams { vm: Some(0), shares_budget: true, ..server(8_000, 20_000, 1) };
    let idle = Load::Periodic { period: Duration::from_secs(10), cost: Duration::from_us(10) };
    for policy in ["deferrable", "periodic", "polling", "sporadic", "sedf"] {
        let not_more = UnitParams { extratime: Some(false), ..vcpu() };
        let units = [(Load::Hog, not_more.clone()), (idle, not_more)];
        let mut kernel = Kernel::new(policy, &units, &[Duration::from_us(10)]);
        kernel.run(SECOND);
        let share = kernel.share_ppm(0, SECOND);
        assert!((390_000..=405_000).contains(&share), "{policy}: {share} ppm");
    }
}

/// Strict order would never let it run.
#[test]
fn a_vcpu_that_wakes_up_behind_one_of_its_vm_that_spins_gets_on_within_a_few_turns() {
    for policy in ["fixed-priority", "edf", "deferrable", "round-robin"] {
        let vcpu = |priority| UnitParams { vm: Some(0), ..server(90_000, 100_000, priority) };
        let wakes = Load::Periodic { period: Duration::from_ms(10), cost: Duration::from_us(200) };
        let units = [(Load::Hog, vcpu(1)), (wakes, vcpu(2))];
        let mut kernel = Kernel::new(policy, &units, &[Duration::from_us(10)]);
        kernel.run(SECOND);
        let responses = &kernel.units[1].responses;
        assert!(responses.len() >= 95, "{policy}: {} jobs", responses.len());
        let longest = responses.iter().max().expect("some");
        let is_soon = *longest <= Duration::from_ms(3) || policy == "deferrable";
        assert!(is_soon, "{policy}: a job took {longest}");
    }
}

#[test]
fn credit_shares_by_weight_between_hogs() {
    let weight = |weight| UnitParams { weight: Some(weight), ..UnitParams::default() };
    let hogs = [(Load::Hog, weight(512)), (Load::Hog, weight(256))];
    let mut kernel = Kernel::new("credit", &hogs, &[Duration::from_us(10)]);
    kernel.run(Duration::from_secs(10));
    let shares = [0, 1].map(|index| kernel.share_ppm(index, Duration::from_secs(10)));
    assert!(shares[0] + shares[1] > 990_000, "{shares:?}");
    assert!(shares[0].abs_diff(666_000) < 60_000, "{shares:?}");
}

/// Credit's rules of 2008, with credits paid at ticks.
fn paper_s_rules() -> Options {
    Options::new().with("rules", OptionValue::Word("vmm-io"))
}

/// How long jobs of 1 ms every 20 ms take beside three hogs under Credit with these switches: the mean and
/// the longest, without the first ten. The first waits for its turn, for the unit has not slept yet.
fn jobs_under_credit(switches: &str, first: Duration) -> [Duration; 2] {
    let mut options = paper_s_rules();
    for (name, letter) in [("tickle", 't'), ("boost", 'b'), ("sort", 's')] {
        options.set(name, OptionValue::Flag(switches.contains(letter)));
    }
    let wakes = Load::Periodic { period: Duration::from_ms(20), cost: Duration::from_ms(1) };
    let loads = [wakes, Load::Hog, Load::Hog, Load::Hog].map(|load| (load, UnitParams::default()));
    let late = [Duration::from_us(10)];
    let mut kernel = Kernel::with_options("credit", options, &loads, &late, Settings::default());
    kernel.units[0].next_release = Instant::ZERO + first;
    kernel.run(Duration::from_secs(4));
    let times = &kernel.units[0].responses[10..];
    let sum = times.iter().fold(Duration::ZERO, |sum, time| sum + *time);
    [Duration::from_ns(sum.as_ns() / times.len() as u64), times.iter().copied().max().expect("jobs")]
}

/// As in the simulator: 1 ms with both switches, whenever jobs come between two ticks, and turns of 30 ms
/// without.
#[test]
fn credit_boosts_and_tickles_at_the_wake_up_and_not_at_the_next_look() {
    let after = |ms: u64| Duration::from_ms(10 + ms);
    for (switches, phase) in [("tb", 2), ("tb", 6), ("tbs", 2), ("tbs", 8)] {
        let [_, longest] = jobs_under_credit(switches, after(phase));
        assert!(longest < Duration::from_us(1_100), "{switches}, {phase} ms after a tick: {longest}");
    }
    for switches in ["", "t"] {
        let [mean, _] = jobs_under_credit(switches, after(2));
        assert!(mean > Duration::from_ms(30), "{switches}: {mean}");
    }
    // Boosted, but not before the end of the slice of what runs.
    let [mean, _] = jobs_under_credit("b", after(2));
    assert!((10..30).contains(&(mean.as_ns() / 1_000_000)), "{mean}");
}

#[test]
fn a_unit_that_woke_and_has_not_run_pays_for_no_tick() {
    let info = registry::find("credit").expect("a policy");
    let mut driver = Driver::new(info, &paper_s_rules(), 1, Settings::default()).expect("options");
    let start = Instant::from_ns(1_000_000);
    let [hog, waiter] = [0, 1].map(|_| driver.insert(start, &UnitParams::default()).expect("parameters"));
    for look in 1..=40 {
        let now = start + Duration::from_ms(10) * look;
        let ran = Observation { ran: Duration::from_ms(10), idled: None, has_work: Some(true) };
        let waited = Observation { ran: Duration::ZERO, idled: None, has_work: Some(look % 2 == 0) };
        driver.observe(now, CpuId(0), &[(hog, ran), (waiter, waited)]);
    }
    let exhaustions = [hog, waiter].map(|unit| driver.account(unit).expect("it is there").exhaustions);
    assert!(exhaustions[0] > 0 && exhaustions[1] == 0, "{exhaustions:?}");
}

/// The enforcer is above the units: were it to look again at once while a little of a slice is left, the unit
/// could never use that little up.
#[test]
fn the_rest_of_a_slice_is_left_to_the_unit_and_not_to_looks() {
    let info = registry::find("credit").expect("a policy");
    let slice = OptionValue::Duration(Duration::from_ms(1));
    let options =
        Options::new().with("slice", slice).with("tick", OptionValue::Duration(Duration::from_ms(10)));
    let settings = Settings::default();
    let mut driver = Driver::new(info, &options, 1, settings).expect("options");
    let start = Instant::from_ns(1_000_000);
    let units = [0, 1].map(|_| driver.insert(start, &UnitParams::default()).expect("parameters"));
    let observed = |ran| {
        units.map(|unit| {
            (
                unit,
                Observation {
                    ran: if unit == units[0] { ran } else { Duration::ZERO },
                    idled: None,
                    has_work: Some(true),
                },
            )
        })
    };
    driver.observe(start, CpuId(0), &observed(Duration::ZERO));
    // 300 ns before the end of the slice, whichever unit has it, and well before the tick after 10 ms.
    let ran = Duration::from_ns(999_700);
    let now = start + ran;
    let next = driver.observe(now, CpuId(0), &observed(ran));
    assert!(next >= now + settings.granularity, "looks again after {}", next.since(now));
}

#[test]
fn looks_are_few_while_a_unit_sleeps_with_little_left() {
    let nearly_nothing_left = Load::Periodic { period: SECOND, cost: Duration::from_us(1_990) };
    let unit = (nearly_nothing_left, server(2_000, 1_000_000, 1));
    let mut kernel = Kernel::new("deferrable", &[unit], &[Duration::ZERO]);
    kernel.run(SECOND);
    assert!(kernel.looks < 5_000, "{} looks in a second", kernel.looks);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn nobody_gets_more_than_the_budget_over_a_long_time(
        policy in 0..SERVERS.len(),
        budgets in prop::collection::vec((200u64..4_000, 1u64..5, any::<bool>()), 1..6),
        late_us in prop::collection::vec(0u64..200, 1..8),
    ) {
        let loads: Vec<(Load, UnitParams)> = budgets.iter().enumerate().map(|(i, &(budget, factor, hog))| {
            let period = 4_000 * factor;
            let load = if hog {
                Load::Hog
            } else {
                Load::Periodic { period: Duration::from_us(period), cost: Duration::from_us(budget) }
            };
            (load, server(budget, period, i as u32))
        }).collect();
        let lateness: Vec<Duration> = late_us.iter().map(|&us| Duration::from_us(us)).collect();
        let mut kernel = Kernel::new(SERVERS[policy], &loads, &lateness);
        let length = Duration::from_ms(400);
        kernel.run(length);
        for (unit, (_, params)) in kernel.units.iter().zip(&loads) {
            let (budget, period) = (params.budget.unwrap(), params.period.unwrap());
            // Back to back: one budget more than the periods that fit, and one look's lateness of overrun.
            let most = budget * (length.div_floor(period) + 2) + Duration::from_us(600);
            prop_assert!(unit.total <= most, "{} got {} of {}", SERVERS[policy], unit.total, most);
        }
    }
}

#[test]
fn under_another_policy_units_get_the_same_budgets() {
    let hogs = [(Load::Hog, server(2_000, 10_000, 1)), (Load::Hog, server(3_000, 10_000, 2))];
    for (first, second) in SERVERS.iter().flat_map(|one| SERVERS.map(|two| (*one, two))) {
        let mut kernel = Kernel::new(first, &hogs, &[Duration::from_us(30)]);
        kernel.run(SECOND);
        let info = registry::find(second).expect("a policy");
        let mut options = Options::new();
        if info.option("quantum").is_some() {
            options.set("quantum", OptionValue::Word("exact"));
        }
        kernel.driver.replace(kernel.now, info, &options).expect("parameters that it takes");
        assert_eq!(kernel.driver.policy_name(), second);
        let before = kernel.driver.account(0).expect("a unit").exhaustions;
        kernel.run(SECOND);
        let shares = [0, 1].map(|unit| kernel.share_ppm(unit, SECOND * 2));
        for (share, budget_ppm) in shares.iter().zip([200_000, 300_000]) {
            // At the change a unit begins with a full budget.
            assert!(share.abs_diff(budget_ppm) < 8_000, "{first}, {second}: {shares:?} ppm");
        }
        let counted = kernel.driver.account(0).expect("a unit").exhaustions;
        assert!(
            (95..=105).contains(&before) && counted > before + 90,
            "{first}, {second}: {before}, {counted}"
        );
    }
}

#[test]
fn a_policy_that_refuses_a_unit_does_not_replace_another() {
    let without_period = UnitParams { period: None, ..server(2_000, 10_000, 1) };
    let mut kernel = Kernel::new("fixed-priority", &[(Load::Hog, without_period)], &[Duration::ZERO]);
    let deferrable = registry::find("deferrable").expect("a policy");
    assert!(kernel.driver.replace(kernel.now, deferrable, &Options::new()).is_err());
    assert_eq!(kernel.driver.policy_name(), "fixed-priority");
    kernel.run(SECOND);
    assert_eq!(kernel.share_ppm(0, SECOND), 1_000_000);
}
