//! An operator's day: runs attach to victims, managers and operators change what they can, runs and guardians
//! are killed, stopped and interrupted. After each round the machine must be as before it.

mod actions;
mod runs;
mod sampler;
mod state;
mod victims;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use punctual_linux::os::cgroup;
use punctual_linux::preflight::RT_RUNTIME;

use actions::{ACTIONS, ACTIONS_OF_VMS, Action, Elsewhere, Undone, act};
use runs::{ENDS, End, Run};
use sampler::{Sampler, Worst};
use state::State;
use victims::Victim;

/// The only processor whose real-time threads may spin.
const PROCESSOR: usize = 1;

/// The longest time that a victim may have a real-time priority of a run without being under its enforcer,
/// while the run or its guardian can act.
pub(crate) const UNATTENDED_MAX: Duration = Duration::from_millis(200);

/// A guardian ends a run whose enforcer stands still for 500 ms; the sampler looks every 10 ms.
const STALL_MIN: Duration = Duration::from_millis(450);

/// A VM is another one after so many rounds: a vCPU that was plugged in stays.
const ROUNDS_OF_VM: u64 = 6;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// What a day is like.
pub(crate) struct Options {
    pub length: Duration,
    pub seed: u64,
    pub vms: bool,
    /// The program whose runs these are.
    pub program: PathBuf,
}

/// What happened.
#[derive(Default)]
pub(crate) struct Day {
    pub rounds: u64,
    pub runs: u64,
    pub actions: BTreeMap<Action, u64>,
    pub ends: BTreeMap<End, u64>,
    pub elapsed: Duration,
    pub worst: Worst,
    /// Runs that their guardian ended because the whole machine stood still.
    pub stalls: u64,
    /// What a round left behind, with its number and steps; the day ends with the first.
    pub residue: Vec<String>,
}

/// Waits for it, half a minute at most.
fn wait(what: &str, done: impl Fn() -> bool) -> Outcome<()> {
    let start = Instant::now();
    while !done() {
        if start.elapsed() > Duration::from_secs(30) {
            return Err(format!("waited half a minute, but not: {what}").into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Numbers that look random and follow from the seed.
struct Random {
    seed: u64,
    position: u64,
}

impl Random {
    fn next(&mut self) -> u64 {
        self.position += 1;
        punctual_jobs::mix(self.seed, self.position)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// Where a day takes place. Dropping it removes all of it.
struct Place {
    directory: tempfile::TempDir,
    group: PathBuf,
    elsewhere: Elsewhere,
    rt_limit: String,
}

impl Place {
    fn make() -> Outcome<Place> {
        let name = format!("chaos-{}", std::process::id());
        let group = cgroup::mount()?.join(&name);
        fs::create_dir_all(&group)?;
        let (directory, elsewhere) = (tempfile::tempdir()?, Elsewhere::make(&name)?);
        let rt_limit = fs::read_to_string(RT_RUNTIME).unwrap_or_default();
        Ok(Place { directory, group, elsewhere, rt_limit })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::write(RT_RUNTIME, self.rt_limit.trim());
        let is_gone = || cgroup::remove_tree(&self.group).is_ok() || !self.group.exists();
        let _ = (0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(5));
            is_gone()
        });
    }
}

/// Plays a day until its time is over, `stop` is set or something is left behind. `progress` gets the day
/// after each round.
///
/// # Errors
/// Victims or runs cannot be started: nothing was judged.
pub(crate) fn play(options: &Options, stop: &AtomicBool, progress: impl Fn(&Day)) -> Outcome<Day> {
    let place = Place::make()?;
    let (mut day, start, sampler) = (Day::default(), Instant::now(), Sampler::start());
    let mut victims = Vec::new();
    while start.elapsed() < options.length && !stop.load(Ordering::Relaxed) && day.residue.is_empty() {
        if victims.is_empty() || options.vms && day.rounds.is_multiple_of(ROUNDS_OF_VM) {
            victims.clear();
            victims = victims::processes(&place.group)?;
            if options.vms {
                victims.push(victims::vm(&place.group, place.directory.path(), day.rounds)?);
            }
        }
        let random = Random { seed: options.seed, position: day.rounds << 32 };
        Round { options, place: &place, victims: &victims, sampler: &sampler, random, steps: Vec::new() }
            .play(&mut day)?;
        day.rounds += 1;
        (day.elapsed, day.worst) = (start.elapsed(), sampler.worst());
        progress(&day);
    }
    Ok(day)
}

struct Round<'a> {
    options: &'a Options,
    place: &'a Place,
    victims: &'a [Victim],
    sampler: &'a Sampler,
    random: Random,
    steps: Vec<String>,
}

impl Round<'_> {
    /// Runs attach, victims are changed, the runs end, and the machine is compared with what it was.
    fn play(mut self, day: &mut Day) -> Outcome<()> {
        let settings = state::settings();
        let mut before = State::read(self.victims, &settings);
        let threads = self.victims.iter().flat_map(Victim::threads);
        let own = threads.filter_map(|tid| Some((tid, before.attributes(tid)?))).collect();
        self.sampler.watch(self.victims.iter().map(Victim::id).collect(), own);
        let mut runs = self.start_runs()?;
        day.runs += runs.len() as u64;
        let mut undone = Undone::default();
        // Some are killed before they have changed everything.
        let is_early = self.random.below(4) == 0;
        if is_early {
            std::thread::sleep(Duration::from_millis(self.random.below(500)));
        } else {
            self.act(&mut runs, &mut undone, day)?;
        }
        undone.undo();
        if let Some(limit) = undone.rt_limit {
            before.set_rt_limit(limit);
        }
        let mut faults = self.end(&mut runs, is_early, day);
        // Threads of victims that end meanwhile, and groups that the kernel is about to remove.
        let is_as_before = || before.differences(&State::read(self.victims, &settings)).is_empty();
        let _ = (0..100).any(|_| {
            let is_as_before = is_as_before();
            if !is_as_before {
                std::thread::sleep(Duration::from_millis(10));
            }
            is_as_before
        });
        faults.extend(before.differences(&State::read(self.victims, &settings)));
        if undone.rt_limit.is_some() {
            fs::write(RT_RUNTIME, self.place.rt_limit.trim())?;
        }
        for run in &runs {
            faults.extend(run.left().iter().map(|path| format!("{} is left", path.display())));
            faults.extend(run.processes().iter().map(|process| format!("process {process} is left")));
        }
        if !faults.is_empty() {
            day.residue.push(format!("round {}: {}", day.rounds, self.steps.join(", ")));
            day.residue.extend(faults);
            day.residue.extend(runs.iter().map(Run::said));
        }
        Ok(())
    }

    /// One run of all victims, or two with state directories of their own.
    fn start_runs(&mut self) -> Outcome<Vec<Run>> {
        let count = 1 + self.random.below(2);
        let (by_monitor, applies) = (self.random.below(2) == 0, self.random.below(5) == 0);
        let mut runs = Vec::new();
        for number in 0..count {
            let mine = self.victims.iter().enumerate().filter(|(index, _)| *index as u64 % count == number);
            let domains: String = mine.map(|(index, victim)| victim.domain(index, by_monitor)).collect();
            let directory = self.place.directory.path().join(format!("run{number}"));
            runs.push(Run::start(&self.options.program, &directory, &domains, applies)?);
            self.steps.push(format!("run {number} of {count}{}", if applies { " --apply" } else { "" }));
        }
        Ok(runs)
    }

    /// Acts on victims once all are under enforcement.
    fn act(&mut self, runs: &mut [Run], undone: &mut Undone, day: &mut Day) -> Outcome<()> {
        let is_enforced = |victim: &Victim| {
            let is_unit = |tid: i32| cgroup::group_of(tid).is_ok_and(|group| group.contains("punctual-"));
            victim.vcpus().into_iter().all(is_unit)
        };
        let is_over = |runs: &mut [Run]| runs.iter_mut().any(Run::has_ended);
        for victim in self.victims {
            let start = Instant::now();
            while !is_enforced(victim) {
                if is_over(runs) || start.elapsed() > Duration::from_secs(30) {
                    let said: String = runs.iter().map(Run::said).collect();
                    return Err(
                        format!("victim {} does not come under enforcement: {said}", victim.id()).into()
                    );
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        for _ in 0..2 + self.random.below(8) {
            let index = self.random.below(self.victims.len() as u64) as usize;
            let (victim, run) = (&self.victims[index], &runs[index % runs.len()]);
            let of_vms: &[Action] = if victim.is_vm() { &ACTIONS_OF_VMS } else { &[] };
            let count = (ACTIONS.len() + of_vms.len()) as u64;
            let number = self.random.below(count) as usize;
            let action = ACTIONS.iter().chain(of_vms).nth(number).copied().unwrap_or(Action::Top);
            let draw = self.random.next();
            let outcome = act(action, draw, (run, victim), &self.place.elsewhere, undone);
            *day.actions.entry(action).or_default() += 1;
            let failure = outcome.err().map_or_else(String::new, |error| format!(" ({error})"));
            self.steps.push(format!("{action:?} of {index}{failure}"));
            if action == Action::SecondRun && !failure.is_empty() {
                return Err(failure.into());
            }
            std::thread::sleep(Duration::from_millis(10 + self.random.below(250)));
            if self.random.below(3) == 0 {
                undone.undo();
            }
        }
        Ok(())
    }

    /// Did the guardian end the run because its enforcer stood still, while the sampler on the other
    /// processor stood still as well?
    fn is_stalled(&self, run: &Run) -> bool {
        self.sampler.gap_of_round() >= STALL_MIN && run.said().contains("stood still")
    }

    /// Ends the runs, one after the other; returns what was wrong with that.
    fn end(&mut self, runs: &mut [Run], is_early: bool, day: &mut Day) -> Vec<String> {
        let mut faults = Vec::new();
        for run in runs {
            if run.has_ended() {
                if self.is_stalled(run) {
                    day.stalls += 1;
                } else {
                    faults.push(format!("a run ended by itself: {}", run.said()));
                }
                continue;
            }
            let end = ENDS[self.random.below(ENDS.len() as u64) as usize];
            self.steps.push(format!("{end:?}"));
            *day.ends.entry(end).or_default() += 1;
            run.end(end, |run| self.sampler.leave(run));
            match run.finish(end, is_early) {
                Err(_) if self.is_stalled(run) => day.stalls += 1,
                Err(error) => faults.push(error.to_string()),
                Ok(()) => {}
            }
        }
        faults
    }
}
