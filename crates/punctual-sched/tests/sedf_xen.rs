//! SEDF with Xen's rules beside a model of `xen/common/sched_sedf.c` of 2007 to 2010: four lists, scores that
//! are taken off one by one, a scheduler that puts the running domain back before it looks for the next.
//!
//! The model leaves out what the policy does: a first deadline that is a slice after the first wake-up (here
//! the first wake-up begins a period), and gaps before the next period that stay unused.

use std::collections::VecDeque;

use proptest::prelude::*;
use punctual_sched::registry::{OptionValue, Options};
use punctual_sched::{Duration, Run, UnitParams};
use punctual_testkit::driver::{Driver, at_us};

/// All times are multiples of this.
const STEP_US: u64 = 100;
const QUANTUM_US: u64 = 500;
const CASES: u32 = 2000;
const RUN_US: u64 = 120_000;
/// Of different lengths, so that no two periods begin and end at the same time: Xen does not say who is first
/// then.
const PERIODS_US: [u64; 5] = [7_000, 10_300, 13_100, 20_900, 31_700];

#[derive(Clone, Debug)]
struct Domain {
    slice_us: u64,
    extratime: bool,
    weight: Option<u32>,
    /// Distance from the release before, and cost.
    jobs: Vec<(u64, u64)>,
}

/// What a domain runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Runs {
    Slice,
    Penalty,
    Utilization,
}

#[derive(Debug)]
struct Vcpu {
    period: i64,
    slice: i64,
    extratime: bool,
    weight: Option<u32>,
    /// The end of its period; none before the first wake-up.
    deadline: Option<i64>,
    ran: i64,
    /// Of the queues for penalties and for utilization.
    score: [i64; 2],
    wants_penalty: bool,
    awake: bool,
    jobs: VecDeque<(i64, i64)>,
    todo: VecDeque<i64>,
}

impl Vcpu {
    fn begins(&self) -> i64 {
        self.deadline.expect("it woke up") - self.period
    }
}

struct Model {
    now: i64,
    vcpus: Vec<Vcpu>,
    ready: Vec<usize>,
    waiting: Vec<usize>,
    extra: [Vec<usize>; 2],
    runs: Option<(usize, Runs)>,
    since: i64,
    ends: i64,
    must_schedule: bool,
}

impl Model {
    /// Takes `off` from all that wait in the queue, and puts the domain before the first that has more.
    fn insert_by_score(&mut self, at: usize, queue: usize, off: i64) {
        for &other in &self.extra[queue] {
            self.vcpus[other].score[queue] -= off;
        }
        let score = self.vcpus[at].score[queue];
        let list = &self.extra[queue];
        let place = list.iter().position(|&other| score < self.vcpus[other].score[queue]);
        let place = place.unwrap_or(list.len());
        self.extra[queue].insert(place, at);
    }

    fn leave_extra(&mut self, at: usize) {
        for list in &mut self.extra {
            list.retain(|&other| other != at);
        }
    }

    /// The running domain goes back to where it belongs.
    fn deschedule(&mut self) {
        let Some((at, runs)) = self.runs.take() else { return };
        let ran = self.now - self.since;
        match runs {
            Runs::Slice => {
                let vcpu = &mut self.vcpus[at];
                vcpu.ran += ran;
                if vcpu.ran < vcpu.slice && vcpu.awake {
                    return;
                }
                self.ready.retain(|&other| other != at);
                if vcpu.ran >= vcpu.slice {
                    vcpu.ran -= vcpu.slice;
                    vcpu.deadline = vcpu.deadline.map(|deadline| deadline + vcpu.period);
                }
                if vcpu.awake { self.waiting.push(at) } else { self.leave_extra(at) }
            }
            Runs::Penalty => {
                self.vcpus[at].ran = 0;
                self.vcpus[at].wants_penalty = false;
                self.extra[0].retain(|&other| other != at);
                self.stop_extra(at);
            }
            Runs::Utilization => {
                let vcpu = &mut self.vcpus[at];
                vcpu.ran = 0;
                let old = vcpu.score[1];
                vcpu.score[1] = match vcpu.weight {
                    Some(weight) => (1 << 17) / i64::from(weight),
                    None if vcpu.slice == 0 => 1 << 17,
                    None => (vcpu.period << 10) / vcpu.slice,
                };
                self.extra[1].retain(|&other| other != at);
                if self.vcpus[at].awake {
                    self.insert_by_score(at, 1, old);
                }
                self.stop_extra(at);
            }
        }
    }

    fn stop_extra(&mut self, at: usize) {
        if !self.vcpus[at].awake {
            self.waiting.retain(|&other| other != at);
            self.leave_extra(at);
        }
    }

    fn wake(&mut self, at: usize) {
        let now = self.now;
        let vcpu = &mut self.vcpus[at];
        vcpu.awake = true;
        let mut lost = 0;
        match vcpu.deadline {
            Some(deadline) if now < deadline - vcpu.period => {
                if vcpu.wants_penalty {
                    self.insert_by_score(at, 0, 0);
                }
            }
            Some(deadline) if now < deadline => {
                vcpu.deadline = Some(deadline + vcpu.period);
                lost = (vcpu.slice - vcpu.ran).max(0);
                vcpu.ran = 0;
            }
            _ => {
                vcpu.deadline = Some(now + vcpu.period);
                vcpu.ran = 0;
            }
        }
        if lost > 0 {
            let vcpu = &mut self.vcpus[at];
            vcpu.score[0] = (vcpu.period << 10) / lost;
            vcpu.wants_penalty = true;
            self.insert_by_score(at, 0, 0);
        }
        if self.vcpus[at].extratime {
            self.insert_by_score(at, 1, 0);
        }
        let begins_later = self.vcpus[at].begins() > now || self.vcpus[at].slice == 0;
        if begins_later {
            self.waiting.push(at)
        } else {
            self.add_ready(at)
        }
        self.must_schedule |= match self.runs {
            None => true,
            Some((_, Runs::Slice)) => !begins_later,
            Some((current, Runs::Penalty)) => {
                let score = |at: usize| self.vcpus[at].score[0];
                !begins_later || self.extra[0].contains(&at) && score(at) < score(current)
            }
            Some((_, Runs::Utilization)) => !begins_later || self.extra[0].contains(&at),
        };
    }

    fn add_ready(&mut self, at: usize) {
        let deadline = self.vcpus[at].deadline;
        let place = self.ready.iter().position(|&other| deadline < self.vcpus[other].deadline);
        self.ready.insert(place.unwrap_or(self.ready.len()), at);
    }

    /// Periods that begin.
    fn update(&mut self) {
        for at in self.waiting.clone() {
            while self.vcpus[at].slice == 0 && self.vcpus[at].begins() <= self.now {
                let vcpu = &mut self.vcpus[at];
                vcpu.deadline = vcpu.deadline.map(|deadline| deadline + vcpu.period);
            }
            if self.vcpus[at].begins() <= self.now {
                self.waiting.retain(|&other| other != at);
                self.add_ready(at);
                let ends_extra = matches!(self.runs, Some((_, runs)) if runs != Runs::Slice);
                self.must_schedule |= ends_extra || self.ready[0] == at;
                // A wake-up at the same time, which Xen handles before or after this, comes after it.
                if ends_extra && self.runs.is_some_and(|(running, _)| running == at) {
                    self.deschedule();
                }
            }
        }
    }

    fn schedule(&mut self) {
        self.deschedule();
        self.must_schedule = false;
        let extra = |queue: usize| self.extra[queue].first().copied();
        self.runs = match (self.ready.first(), extra(0), extra(1)) {
            (Some(&at), ..) => Some((at, Runs::Slice)),
            (None, Some(at), _) => Some((at, Runs::Penalty)),
            (None, None, Some(at)) => Some((at, Runs::Utilization)),
            (None, None, None) => None,
        };
        self.since = self.now;
        self.ends = match self.runs {
            Some((at, Runs::Slice)) => self.now + self.vcpus[at].slice - self.vcpus[at].ran,
            Some(_) => self.now + (QUANTUM_US * 1000) as i64,
            None => i64::MAX,
        };
    }

    /// What runs in each step from now to the end.
    fn run(mut self) -> Vec<Option<usize>> {
        let step = (STEP_US * 1000) as i64;
        let mut ran = Vec::new();
        while self.now < (RUN_US * 1000) as i64 {
            if let Some((at, _)) = self.runs
                && self.vcpus[at].todo[0] == 0
            {
                self.vcpus[at].todo.pop_front();
                if self.vcpus[at].todo.is_empty() {
                    self.vcpus[at].awake = false;
                    self.deschedule();
                    self.must_schedule = true;
                }
            }
            self.update();
            for at in 0..self.vcpus.len() {
                while self.vcpus[at].jobs.front().is_some_and(|&(release, _)| release <= self.now) {
                    let (_, cost) = self.vcpus[at].jobs.pop_front().expect("it is there");
                    self.vcpus[at].todo.push_back(cost);
                    if !self.vcpus[at].awake {
                        self.wake(at);
                    }
                }
            }
            if self.must_schedule || self.ends <= self.now {
                self.schedule();
            }
            if let Some((at, _)) = self.runs {
                self.vcpus[at].todo[0] -= step;
            }
            ran.push(self.runs.map(|(at, _)| at));
            self.now += step;
        }
        ran
    }
}

fn model(domains: &[Domain]) -> Vec<Option<usize>> {
    let vcpus = domains.iter().zip(PERIODS_US).map(|(domain, period_us)| {
        let mut at = 0;
        let jobs = domain.jobs.iter().map(|&(distance, cost)| {
            at += distance * STEP_US * 1000;
            (at as i64, (cost * STEP_US * 1000) as i64)
        });
        Vcpu {
            period: (period_us * 1000) as i64,
            slice: (domain.slice_us * 1000) as i64,
            extratime: domain.extratime,
            weight: domain.weight,
            deadline: None,
            ran: 0,
            score: [0; 2],
            wants_penalty: false,
            awake: false,
            jobs: jobs.collect(),
            todo: VecDeque::new(),
        }
    });
    let model = Model {
        now: 0,
        vcpus: vcpus.collect(),
        ready: Vec::new(),
        waiting: Vec::new(),
        extra: [Vec::new(), Vec::new()],
        runs: None,
        since: 0,
        ends: i64::MAX,
        must_schedule: true,
    };
    model.run()
}

fn policy(domains: &[Domain]) -> Vec<Option<usize>> {
    let words = [("unblock", "xen"), ("extra", "score")];
    let options =
        words.into_iter().fold(Options::new(), |o, (key, word)| o.with(key, OptionValue::Word(word)));
    let mut driver = Driver::named("sedf", 1, &options);
    for (domain, period_us) in domains.iter().zip(PERIODS_US) {
        let unit = driver.insert(&UnitParams {
            budget: Some(Duration::from_us(domain.slice_us)),
            period: Some(Duration::from_us(period_us)),
            extratime: Some(domain.extratime),
            weight: domain.weight,
            ..UnitParams::default()
        });
        let mut at = 0;
        for (distance, cost) in &domain.jobs {
            at += distance * STEP_US;
            driver.release(unit, at_us(at), Duration::from_us(cost * STEP_US));
        }
    }
    driver.run_until(at_us(RUN_US));
    let mut ran = Vec::new();
    for span in &driver.gantt {
        let steps = span.to.since(span.from).div_floor(Duration::from_us(STEP_US));
        let unit = match span.run {
            Run::Unit(unit) => Some(unit.index()),
            Run::Idle | Run::IdleFor(_) => None,
        };
        ran.extend((0..steps).map(|_| unit));
    }
    ran
}

fn domain() -> impl Strategy<Value = Domain> {
    let jobs = prop::collection::vec((0u64..60, 1u64..40), 1..12);
    let weight = prop_oneof![Just(None), (1u32..5).prop_map(Some)];
    (0u64..30, any::<bool>(), weight, jobs).prop_map(|(slice, extratime, weight, jobs)| Domain {
        slice_us: slice * STEP_US,
        extratime: extratime || slice == 0,
        weight,
        jobs,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn xens_options_decide_as_its_source_does(domains in prop::collection::vec(domain(), 1..6)) {
        let (got, expected) = (policy(&domains), model(&domains));
        let same = got.iter().zip(&expected).take_while(|(got, expected)| got == expected).count();
        prop_assert!(
            got == expected,
            "from step {same} on: {:?} instead of {:?}",
            &got[same.saturating_sub(15)..(same + 15).min(got.len())],
            &expected[same.saturating_sub(15)..(same + 15).min(expected.len())]
        );
    }
}
