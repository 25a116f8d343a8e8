//! Sequences of events that may happen to any policy, played under the reference driver: the part that random
//! tests and the fuzz target share. The caller chooses them.

use punctual_sched::registry::{OptionValue, Options, ParamKind, PolicyInfo};
use punctual_sched::{CpuId, CpuSet, Duration, UnitId, UnitParams};

use crate::driver::{CPUS_MAX, Driver, Span};

/// What happens; unit and processor numbers are taken modulo those that exist. No time passes but in `Late`
/// and `Pass`, and processors that were asked to pick do so at the next `Settle`, `Late` or `Pass`.
#[derive(Clone, Debug)]
pub enum Event {
    /// A unit is inserted, or refused.
    Insert(UnitParams),
    /// A unit is removed.
    Remove(usize),
    /// A unit gets new parameters, or keeps the old ones.
    Adjust(usize, UnitParams),
    /// A job to be released, and when it is due after that.
    Work {
        /// Whose job it is.
        unit: usize,
        /// Released after this time.
        in_us: u64,
        /// Processor time that it needs.
        demand_us: u64,
        /// Its deadline after the release, if the driver sets one.
        due_us: Option<u64>,
    },
    /// A unit goes to sleep before its work is done.
    Cancel(usize),
    /// The driver sets a deadline that no job has.
    Deadline {
        /// Whose deadline it is.
        unit: usize,
        /// How far ahead it lies.
        in_us: u64,
    },
    /// A processor picks, asked or not, before the others do.
    Pick(usize),
    /// The processors that were asked to pick do so.
    Settle,
    /// Time passes and timers are late: whatever comes next finds them overdue.
    Late {
        /// How much time.
        us: u64,
    },
    /// Time passes.
    Pass {
        /// How much time.
        us: u64,
    },
}

/// The processors whose bits are set, of [`CPUS_MAX`].
pub fn affinity(bits: u32) -> CpuSet {
    let mut set = CpuSet::new(CPUS_MAX);
    let cpus = (0..CPUS_MAX as u32).filter(|cpu| bits >> cpu & 1 == 1);
    cpus.for_each(|cpu| set.insert(CpuId(cpu)));
    set
}

/// `n` times 500 us: coarse times make coincidences likely.
pub fn half_ms(n: u64) -> Duration {
    Duration::from_us(500 * n)
}

/// A value for each option of the policy; its default where `choice` is even.
pub fn options(info: &PolicyInfo, choice: &[u64]) -> Options {
    let mut options = Options::new();
    for (option, &choice) in info.options.iter().zip(choice) {
        let pick = choice / 2;
        let value = match option.kind {
            _ if choice % 2 == 0 => continue,
            ParamKind::Duration => OptionValue::Duration(half_ms(1 + pick % 60)),
            ParamKind::DurationOr(words) => match words.get(pick as usize % (words.len() + 1)) {
                Some(word) => OptionValue::Word(word),
                None => OptionValue::Duration(half_ms(1 + pick % 60)),
            },
            ParamKind::Count { min, max } => OptionValue::Count(min + pick % (max - min + 1).min(1000)),
            ParamKind::Flag => OptionValue::Flag(pick % 2 == 0),
            ParamKind::Choice(words) => OptionValue::Word(words[pick as usize % words.len()]),
        };
        options.set(option.name, value);
    }
    options
}

/// Plays the events against a policy, then another 200 ms, all in all at most `instants_max` instants; `None`
/// when the policy refuses the options.
pub fn play(
    info: &PolicyInfo,
    cpus: usize,
    options: &Options,
    events: &[Event],
    instants_max: usize,
) -> Option<Vec<Span>> {
    Some(play_with(Driver::of(info, cpus, options)?, cpus, events, instants_max))
}

/// [`play`] with vCPUs of a VM that take turns.
pub fn play_in_turns(
    info: &PolicyInfo,
    cpus: usize,
    options: &Options,
    events: &[Event],
    instants_max: usize,
) -> Option<Vec<Span>> {
    Some(play_with(Driver::in_turns(info, cpus, options)?, cpus, events, instants_max))
}

/// [`play`] with VMs whose vCPUs share a budget.
pub fn play_in_vm_servers(
    info: &PolicyInfo,
    cpus: usize,
    options: &Options,
    events: &[Event],
    instants_max: usize,
) -> Option<Vec<Span>> {
    Some(play_with(Driver::in_vm_servers(info, cpus, options)?, cpus, events, instants_max))
}

fn play_with(driver: Driver, cpus: usize, events: &[Event], instants_max: usize) -> Vec<Span> {
    let mut game = Game { driver, cpus, instants_left: instants_max };
    events.iter().for_each(|event| game.play(event));
    game.pass(Duration::from_ms(200));
    game.driver.gantt
}

struct Game {
    driver: Driver,
    cpus: usize,
    instants_left: usize,
}

impl Game {
    fn play(&mut self, event: &Event) {
        let driver = &mut self.driver;
        match event {
            Event::Insert(params) => drop(driver.try_insert(params)),
            Event::Pick(cpu) => driver.pick_early(CpuId((cpu % self.cpus) as u32)),
            Event::Settle => driver.settle(),
            Event::Late { us } => driver.run_past_timers(driver.now() + Duration::from_us(*us)),
            Event::Pass { us } => self.pass(Duration::from_us(*us)),
            Event::Remove(n)
            | Event::Adjust(n, _)
            | Event::Work { unit: n, .. }
            | Event::Cancel(n)
            | Event::Deadline { unit: n, .. } => {
                let units = driver.units();
                if !units.is_empty() {
                    self.play_on(units[n % units.len()], event);
                }
            }
        }
    }

    fn play_on(&mut self, unit: UnitId, event: &Event) {
        let driver = &mut self.driver;
        match event {
            Event::Remove(_) => driver.remove(unit),
            Event::Adjust(_, params) => drop(driver.adjust(unit, params)),
            Event::Cancel(_) => driver.cancel(unit),
            Event::Deadline { in_us, .. } => {
                let deadline = driver.now() + Duration::from_us(*in_us);
                driver.set_deadline(unit, deadline);
            }
            Event::Work { in_us, demand_us, due_us, .. } => {
                let release = driver.now() + Duration::from_us(*in_us);
                let demand = Duration::from_us(*demand_us);
                match due_us {
                    Some(due) => driver.release_due(unit, release, demand, release + Duration::from_us(*due)),
                    None => driver.release(unit, release, demand),
                }
            }
            _ => unreachable!("{event:?} concerns no unit"),
        }
    }

    fn pass(&mut self, time: Duration) {
        let end = self.driver.now() + time;
        while self.instants_left > 0 && self.driver.step(end) {
            self.instants_left -= 1;
        }
    }
}
