//! Through the interface every policy decides as the reference driver of policies sees it decide: the same
//! units on the same processors at the same times.

use proptest::prelude::*;
use punctual_sched::registry::{self, Options};
use punctual_sched::{CpuId, Decision, Duration, Instant, Run, UnitId, UnitParams};
use punctual_testkit::driver::{Driver, Span};
use punctual_xen::abi::*;
use punctual_xen::{Config, Pool};

/// A unit and the jobs that it has: released then, for so long, in us.
#[derive(Clone, Debug)]
struct Unit {
    budget_us: u64,
    period_us: u64,
    priority: u32,
    /// Units with the same number are vCPUs of one VM.
    vm: u32,
    jobs: Vec<(u64, u64)>,
}

fn units() -> impl Strategy<Value = Vec<Unit>> {
    let jobs = prop::collection::vec((0u64..100, 1u64..12), 0..6);
    let unit = (1u64..8, 8u64..40, 0u32..4, 0u32..6, jobs);
    let unit = unit.prop_map(|(budget, period, priority, vm, mut jobs)| {
        jobs.sort_unstable();
        let jobs = jobs.into_iter().map(|(at, long)| (at * 1_000, long * 500)).collect();
        Unit { budget_us: budget * 500, period_us: period * 500, priority, vm, jobs }
    });
    prop::collection::vec(unit, 1..6)
}

fn params(unit: &Unit) -> UnitParams {
    UnitParams {
        budget: Some(Duration::from_us(unit.budget_us)),
        period: Some(Duration::from_us(unit.period_us)),
        priority: Some(unit.priority),
        vm: Some(unit.vm),
        ..UnitParams::default()
    }
}

const END_US: u64 = 120_000;

/// Who ran, on which processor, from when until when.
type Ran = Vec<(u32, u32, u64, u64)>;

/// As the reference driver has it.
fn reference(name: &str, cpus: usize, units: &[Unit]) -> Ran {
    let info = registry::find(name).expect("a policy");
    let mut driver = Driver::in_turns(info, cpus, &Options::new()).expect("options are accepted");
    for unit in units {
        let params = params(unit);
        let id = driver.insert(&params);
        for &(at_us, long_us) in &unit.jobs {
            driver.release(id, Instant::ZERO + Duration::from_us(at_us), Duration::from_us(long_us));
        }
    }
    driver.run_until(Instant::ZERO + Duration::from_us(END_US));
    let ran = |span: &Span| match span.run {
        Run::Unit(UnitId(unit)) => Some((unit, span.cpu.0, span.from.as_ns(), span.to.as_ns())),
        _ => None,
    };
    joined(driver.gantt.iter().filter_map(ran).collect())
}

/// Spans in order of processor and time, without the places at which one goes on as before.
fn joined(mut ran: Ran) -> Ran {
    ran.retain(|span| span.2 < span.3);
    ran.sort_unstable_by_key(|span| (span.1, span.2));
    let mut all: Ran = Vec::new();
    for span in ran {
        match all.last_mut() {
            Some(last) if (last.0, last.1, last.3) == (span.0, span.1, span.2) => last.3 = span.3,
            _ => all.push(span),
        }
    }
    all
}

/// A machine that knows of the pool what C knows.
struct Machine {
    pool: Box<punctual_xen::Pool>,
    now_ns: u64,
    /// By processor: what it does.
    slices: Vec<Slice>,
    resched: u64,
    timer_ns: u64,
    /// By unit: what is left of each job that was released.
    work_ns: Vec<std::collections::VecDeque<u64>>,
    ran: Ran,
}

impl Machine {
    fn then(&mut self, code: i32, then: &Answer) {
        assert_eq!(code, OK);
        self.resched |= then.resched.words[0];
        self.timer_ns = then.next_timer_ns;
    }

    fn wake(&mut self, unit: u32) {
        let mut then = Answer { next_timer_ns: 0, resched: Processors::NONE };
        let code = punctual_wake(Some(&mut self.pool), self.now_ns, unit, Some(&mut then));
        self.then(code, &then);
    }

    fn sleep(&mut self, unit: u32) {
        let mut then = Answer { next_timer_ns: 0, resched: Processors::NONE };
        let code = punctual_sleep(Some(&mut self.pool), self.now_ns, unit, Some(&mut then));
        self.then(code, &then);
    }

    fn timer(&mut self) {
        let mut then = Answer { next_timer_ns: 0, resched: Processors::NONE };
        let code = punctual_timer(Some(&mut self.pool), self.now_ns, Some(&mut then));
        self.then(code, &then);
    }

    fn pick(&mut self, cpu: usize) {
        let mut then = Answer { next_timer_ns: 0, resched: Processors::NONE };
        let mut slice = Slice { run: 0, unit: 0, until_ns: 0 };
        let code =
            punctual_pick(Some(&mut self.pool), self.now_ns, cpu as u32, Some(&mut slice), Some(&mut then));
        self.then(code, &then);
        assert!(slice.until_ns > self.now_ns);
        self.slices[cpu] = slice;
    }

    /// Time goes on until the next thing that happens, or `until_ns`; units execute.
    fn go_on(&mut self, until_ns: u64) {
        let mut next = until_ns.min(self.timer_ns.max(self.now_ns));
        for slice in &self.slices {
            next = next.min(slice.until_ns);
            if slice.run == 1 {
                next =
                    next.min(self.now_ns + self.work_ns[slice.unit as usize].front().copied().unwrap_or(0));
            }
        }
        let long = next - self.now_ns;
        for (cpu, slice) in self.slices.iter().enumerate().filter(|(_, slice)| slice.run == 1) {
            let front = self.work_ns[slice.unit as usize].front_mut();
            *front.expect("only units with work run") -= long;
            self.ran.push((slice.unit, cpu as u32, self.now_ns, next));
        }
        self.now_ns = next;
    }

    /// All that happens at this instant, in the order of the reference driver.
    fn settle(&mut self, released: &mut dyn Iterator<Item = (u32, u64)>) {
        for cpu in 0..self.slices.len() {
            let Slice { run, unit, .. } = self.slices[cpu];
            if run == 1 && self.work_ns[unit as usize].front() == Some(&0) {
                self.work_ns[unit as usize].pop_front();
                if self.work_ns[unit as usize].is_empty() {
                    self.sleep(unit);
                }
            }
        }
        if self.timer_ns <= self.now_ns {
            self.timer();
        }
        for (unit, long_ns) in released {
            self.work_ns[unit as usize].push_back(long_ns);
            if self.work_ns[unit as usize].len() == 1 {
                self.wake(unit);
            }
        }
        for cpu in 0..self.slices.len() {
            if self.slices[cpu].until_ns <= self.now_ns {
                self.resched |= 1 << cpu;
            }
        }
        while self.resched != 0 {
            let cpu = self.resched.trailing_zeros() as usize;
            self.resched &= self.resched - 1;
            self.pick(cpu);
        }
    }
}

/// As it goes through the interface.
fn through_c(name: &str, cpus: usize, units: &[Unit]) -> Ran {
    let pool = punctual_create(Some(&Text::of(name)), Some(&Text::EMPTY), cpus as u32, 8, None);
    let idle = Slice { run: 0, unit: 0, until_ns: u64::MAX };
    let mut machine = Machine {
        pool: pool.expect("a pool"),
        now_ns: 0,
        slices: vec![idle; cpus],
        resched: (1 << cpus) - 1,
        timer_ns: u64::MAX,
        work_ns: Vec::new(),
        ran: Vec::new(),
    };
    let mut releases = Vec::new();
    for unit in units {
        let params = Params {
            given: 0b1011 | VM,
            priority: unit.priority,
            budget_ns: unit.budget_us * 1_000,
            period_ns: unit.period_us * 1_000,
            vm: unit.vm,
            ..Params::NONE_GIVEN
        };
        let (mut number, mut then) = (0, Answer { next_timer_ns: 0, resched: Processors::NONE });
        let code = punctual_insert(
            Some(&mut machine.pool),
            0,
            Some(&params),
            Some(&mut number),
            None,
            Some(&mut then),
        );
        machine.then(code, &then);
        machine.work_ns.push(std::collections::VecDeque::new());
        releases.extend(unit.jobs.iter().map(|&(at, long)| (at * 1_000, number, long * 1_000)));
    }
    releases.sort_by_key(|release| release.0);
    let mut next = 0;
    while machine.now_ns < END_US * 1_000 {
        loop {
            let due = releases[next..].iter().take_while(|release| release.0 <= machine.now_ns).count();
            let mut released = releases[next..next + due].iter().map(|&(_, unit, long)| (unit, long));
            next += due;
            machine.settle(&mut released);
            let is_done = machine.timer_ns > machine.now_ns
                && machine.work_ns.iter().all(|work| work.front() != Some(&0));
            if is_done {
                break;
            }
        }
        let until = releases.get(next).map_or(u64::MAX, |release| release.0).min(END_US * 1_000);
        machine.go_on(until);
    }
    joined(machine.ran)
}

proptest! {
    #[test]
    fn every_policy_decides_as_without_the_interface(units in units(), cpus in 1usize..4) {
        for info in registry::policies() {
            let (known, found) = (reference(info.name, cpus, &units), through_c(info.name, cpus, &units));
            prop_assert_eq!(&found, &known, "{} on {}", info.name, cpus);
        }
    }
}

#[test]
fn a_processor_that_is_out_of_the_affinity_is_given_nothing() {
    let pool = &mut punctual_create(Some(&Text::of("rtds")), Some(&Text::EMPTY), 4, 1, None).expect("a pool");
    let mut affinity = Processors::NONE;
    affinity.words[0] = 0b0100;
    let params = Params {
        given: 0b1_0000_0011,
        priority: 0,
        budget_ns: 1_000_000,
        period_ns: 2_000_000,
        deadline_ns: 0,
        weight: 0,
        cap_percent: 0,
        extratime: 0,
        best_effort: 0,
        affinity,
        ..Params::NONE_GIVEN
    };
    let (mut unit, mut then) = (0, Answer { next_timer_ns: 0, resched: Processors::NONE });
    let code = punctual_insert(Some(pool), 0, Some(&params), Some(&mut unit), None, Some(&mut then));
    assert_eq!(code, OK);
    assert_eq!(punctual_wake(Some(pool), 0, unit, Some(&mut then)), OK);
    assert_eq!(then.resched.words[0], 0b0100);
    let mut slice = Slice { run: 0, unit: 0, until_ns: 0 };
    let mut given = Vec::new();
    for cpu in 0..4 {
        assert_eq!(punctual_pick(Some(pool), 0, cpu, Some(&mut slice), Some(&mut then)), OK);
        given.push(slice.run);
    }
    assert_eq!((given, CpuId(unit).index()), (vec![0, 0, 1, 0], 0));
}

fn pool(name: &str, cpus: usize, units: &[Unit]) -> Pool {
    let config = Config { policy: name, options: "", cpus, units: 8 };
    let mut pool = config.build().expect("a pool");
    for unit in units {
        pool.insert(Instant::ZERO, &params(unit)).expect("a unit");
    }
    pool
}

proptest! {
    #[test]
    fn sleep_and_decide_in_one_call_is_as_in_two(
        units in units(),
        cpus in 1usize..4,
        calls in prop::collection::vec((0u64..3_000, 0u8..4, 0u32..6, 0u32..4), 1..200),
    ) {
        for info in registry::policies() {
            let [mut one, mut two] = [(), ()].map(|()| pool(info.name, cpus, &units));
            let mut now = Instant::ZERO;
            let mut runs = vec![0; cpus];
            for &(later_us, what, unit, cpu) in &calls {
                now += Duration::from_us(later_us);
                let (unit, cpu) = (unit % units.len() as u32, cpu % cpus as u32);
                let runs = &mut runs[cpu as usize];
                let mut asked = Vec::new();
                let picked = match what {
                    0 => {
                        prop_assert_eq!(one.wake(now, unit), two.wake(now, unit));
                        None
                    }
                    1 => Some((one.pick(now, cpu), two.pick(now, cpu))),
                    _ => {
                        let sleeps = if what == 2 { unit } else { *runs };
                        let mut decision = Decision::IDLE;
                        let decided = one.sleep_and_decide(now, sleeps, cpu, &mut decision);
                        let picked = decided.map(|()| decision.slice());
                        two.sleep(now, sleeps).expect("it is there");
                        // The processor picks, whichever call asked it to.
                        asked.extend(two.take_resched().filter(|asked| asked.0 != cpu));
                        Some((picked, two.pick(now, cpu)))
                    }
                };
                if let Some((picked, known)) = picked {
                    prop_assert_eq!(&picked, &known, "{}", info.name);
                    *runs = known.expect("a processor").run.charged().map_or(0, |unit| unit.0);
                }
                asked.extend(two.take_resched());
                asked.sort_unstable();
                asked.dedup();
                prop_assert_eq!(one.take_resched().collect::<Vec<_>>(), asked, "{}", info.name);
                prop_assert_eq!(one.next_timer(), two.next_timer(), "{}", info.name);
            }
        }
    }
}

/// Under fixed priorities the more urgent vCPU would keep the other one off forever.
#[test]
fn two_vcpus_of_a_domain_alternate_on_a_processor_and_those_of_two_do_not() {
    let unit = |priority, vm| Unit { budget_us: 0, period_us: 0, priority, vm, jobs: vec![(0, 90_000)] };
    for (vms, shares) in [([7, 7], [60_000_000, 60_000_000]), ([7, 8], [90_000_000, 30_000_000])] {
        let units = [unit(0, vms[0]), unit(1, vms[1])];
        let ran = through_c("fixed-priority", 1, &units);
        let of = |unit| ran.iter().filter(|span| span.0 == unit).map(|span| span.3 - span.2).sum::<u64>();
        assert_eq!([of(0), of(1)], shares, "{vms:?}");
    }
}
