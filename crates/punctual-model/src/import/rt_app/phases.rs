//! The phases of a thread, and the task that they amount to.
//!
//! A timer counts from its last use, and at first from the start of the thread; if the thread comes later
//! than that, it does not wait, and the timer counts from then on (`run_event` in rt-app's `rt-app.c`).

use std::collections::BTreeMap;

use jsonc_parser::ast::{Object, Value};

use punctual_sched::Duration;

use crate::file::source::Place;
use crate::host::Cost;
use crate::import::draft::WorkDraft;
use crate::import::input::shorten;
use crate::import::json::{NUMBER_MAX, Reader};

/// Keys of threads and phases that are read and are no events.
const SETTINGS: [&str; 12] = [
    "loop",
    "phases",
    "instance",
    "delay",
    "policy",
    "priority",
    "cpus",
    "dl-runtime",
    "dl-period",
    "dl-deadline",
    "period",
    "deadline",
];

/// Settings of a single phase that a task does not have.
const SETTINGS_OF_PHASES: [&str; 6] =
    ["policy", "priority", "cpus", "dl-runtime", "dl-period", "dl-deadline"];

/// Settings that a task of a host file does not have.
const OTHER_SETTINGS: [&str; 4] = ["util_min", "util_max", "nodes_membind", "taskgroup"];

/// Events that a task of a host file does not have (`events` in rt-app's parser).
const OTHER_EVENTS: [&str; 16] = [
    "lock", "unlock", "wait", "signal", "broad", "sync", "suspend", "resume", "memrun", "mem", "iorun",
    "yield", "barrier", "fork", "sem_post", "sem_wait",
];

/// Those of them that make a thread wait for another one.
const WAITING_EVENTS: [&str; 5] = ["wait", "sync", "suspend", "barrier", "sem_wait"];

/// One phase, times in us.
#[derive(Default)]
struct Phase {
    run: i64,
    sleep: i64,
    /// The sum of the timers' periods.
    timer: i64,
    /// The timers by name, with their periods.
    timers: Vec<(String, i64)>,
    loops: i64,
}

impl Phase {
    /// How far two of its runs are apart. A sleep begins when the run has ended: at least their sum.
    fn distance(&self) -> i64 {
        if self.timer > 0 { self.timer } else { (self.run + self.sleep).min(NUMBER_MAX) }
    }

    fn waits(&self) -> bool {
        self.timer > 0 || self.sleep > 0
    }

    fn length(&self) -> i128 {
        i128::from(self.loops) * i128::from(self.distance())
    }
}

/// What a thread does.
pub(super) struct Phases {
    list: Vec<Phase>,
    /// Does the last phase lead to the first?
    is_endless: bool,
    /// Does it wait for other threads?
    waits_for_others: bool,
    /// Names of timers that all threads have in common.
    pub(super) timers: Vec<String>,
}

/// The phases of a thread; without `phases` the thread is one.
pub(super) fn phases(reader: &mut Reader<'_>, name: &str, object: &Object<'_>) -> Option<Phases> {
    let mut all = Phases { list: Vec::new(), is_endless: true, waits_for_others: false, timers: Vec::new() };
    let loops = reader.number(object, "loop", -1).ok()?;
    if loops.is_some_and(|loops| loops >= 0) {
        all.is_endless = false;
        ends(reader, name, object);
    }
    let Some(property) = Reader::get(object, "phases") else {
        let mut only = phase(reader, name, object, &mut all)?;
        only.loops = 1;
        all.list.push(only);
        return Some(all);
    };
    let phases = reader.object(&property.value, "phases")?;
    for property in &object.properties {
        let key = property.name.as_str();
        if !SETTINGS.contains(&key) {
            // rt-app reads events of a thread only where it has no phases.
            let place = reader.place(&property.name);
            reader.input.note(place, format!("{name}: `{}` beside phases is not carried over", shorten(key)));
        }
    }
    for property in &phases.properties {
        let inner = reader.object(&property.value, property.name.as_str())?;
        for key in SETTINGS_OF_PHASES {
            if let Some(own) = Reader::get(inner, key) {
                let place = reader.place(&own.name);
                reader.input.note(place, format!("{name}: `{key}` of a single phase is not carried over"));
            }
        }
        let mut read = phase(reader, name, inner, &mut all)?;
        let for_ever = read.loops < 0;
        read.loops = read.loops.max(if for_ever { 1 } else { 0 });
        all.list.push(read);
        if for_ever {
            all.is_endless = false;
            break;
        }
    }
    Some(all)
}

fn ends(reader: &mut Reader<'_>, name: &str, object: &Object<'_>) {
    if let Some(property) = Reader::get(object, "loop") {
        let place = reader.place(&property.name);
        reader.input.note(place, format!("{name}: it ends after some loops; the task does not end"));
    }
}

/// Adds up the events.
fn phase(reader: &mut Reader<'_>, name: &str, object: &Object<'_>, all: &mut Phases) -> Option<Phase> {
    let mut phase = Phase { loops: reader.number(object, "loop", -1).ok()?.unwrap_or(1), ..Phase::default() };
    for property in &object.properties {
        let key = property.name.as_str();
        let value = &property.value;
        if SETTINGS.contains(&key) {
            continue;
        }
        if OTHER_EVENTS.iter().any(|event| key.starts_with(event)) || OTHER_SETTINGS.contains(&key) {
            let place = reader.place(&property.name);
            reader.input.note(place, format!("{name}: `{}` is not carried over", shorten(key)));
            all.waits_for_others |= WAITING_EVENTS.iter().any(|event| key.starts_with(event));
        } else if key.starts_with("run") {
            phase.run = (phase.run + time(reader, value, key)?).min(NUMBER_MAX);
        } else if key.starts_with("sleep") {
            phase.sleep = (phase.sleep + time(reader, value, key)?).min(NUMBER_MAX);
        } else if key.starts_with("timer") {
            let timer = reader.object(value, key)?;
            let period = reader.number(timer, "period", 0).ok()?.unwrap_or(0);
            phase.timer = (phase.timer + period).min(NUMBER_MAX);
            let name = reader.word(timer, "ref").ok()?.map_or_else(|| key.to_string(), |(name, _)| name);
            if !name.starts_with("unique") && Reader::get(timer, "ref").is_some() {
                all.timers.push(name.clone());
            }
            phase.timers.push((name, period));
        } else {
            let place = reader.place(&property.name);
            let text = format!("{name}: `{}` is not known and not carried over", shorten(key));
            reader.input.note(place, text);
        }
    }
    Some(phase)
}

/// A time in us.
fn time(reader: &mut Reader<'_>, value: &Value<'_>, key: &str) -> Option<i64> {
    if matches!(value, Value::BooleanLit(_)) {
        let what = "a whole number of us; rt-app before 2014 had true and false, which it no longer reads";
        return reader.wrong(value, key, what);
    }
    reader.number_of(value, key, 0)
}

/// What the phases amount to as a task; `None`: nothing.
pub(super) fn work(
    reader: &mut Reader<'_>,
    name: &str,
    place: Place,
    phases: &Phases,
    delay_us: i64,
) -> Option<WorkDraft> {
    let list = &phases.list;
    let active: Vec<&Phase> = list.iter().filter(|p| p.loops > 0).collect();
    let running: Vec<&Phase> = active.iter().copied().filter(|p| p.run > 0).collect();
    let first = *running.first()?;
    if list.iter().all(|p| !p.waits()) {
        if phases.waits_for_others {
            let text = "it waits for other threads alone, which a task cannot: it becomes a busy loop";
            reader.input.note(place, format!("{name}: {text}"));
        }
        return Some(WorkDraft::Hog { start: us(delay_us.into()) });
    }
    // Phases that only wait, before the first that runs.
    let before: i128 = active.iter().take_while(|p| p.run == 0).map(|p| p.length()).sum();
    let offset = us(i128::from(delay_us) + before);
    let is_regular = timers_are_regular(&active);
    if !is_regular {
        let text = "its timer counts from its last use, and first from the start of the thread, also while \
                    other phases run or sleep: some jobs come sooner";
        reader.input.note(place, format!("{name}: {text}"));
    }
    let is_alike = |p: &&&Phase| p.waits() && p.distance() == first.distance();
    if running.iter().filter(is_alike).count() < running.len() || (running.len() > 1 && !is_regular) {
        // Phases before the first run are part of the cycle only where it begins again.
        let leading = active.iter().take_while(|p| p.run == 0).count();
        let (cycle, offset) = if phases.is_endless {
            (cycle(&active), us(delay_us.into()))
        } else {
            (cycle(&active[leading..]), offset)
        };
        reader.input.note(place, format!("{name}: its phases become one job of the whole cycle"));
        let cost = us(active.iter().map(|p| i128::from(p.loops) * i128::from(p.run)).sum());
        let cost = Cost { min: cost, max: cost };
        return Some(WorkDraft::Sporadic { separation: us(cycle), offset, cost });
    }
    let (least, most) = (running.iter().map(|p| p.run).min()?, running.iter().map(|p| p.run).max()?);
    if least < most {
        let text = "phases with different amounts of work become costs drawn at random";
        reader.input.note(place, format!("{name}: {text}"));
    }
    let cost = Cost { min: us(least.into()), max: us(most.into()) };
    let distance = us(first.distance().into());
    if running.iter().any(|p| p.timer == 0) {
        return Some(WorkDraft::Sporadic { separation: distance, offset, cost });
    }
    if running.iter().any(|p| p.sleep > 0) {
        let text = "sleep between two expiries of its timer is not carried over";
        reader.input.note(place, format!("{name}: {text}"));
    }
    let leading = active.iter().take_while(|p| p.run == 0).count();
    let has_pauses = active.len() - leading > running.len() || (leading > 0 && phases.is_endless);
    if has_pauses {
        let text = "phases without work make pauses between jobs: it is sporadic";
        reader.input.note(place, format!("{name}: {text}"));
        return Some(WorkDraft::Sporadic { separation: distance, offset, cost });
    }
    Some(WorkDraft::Periodic { period: distance, offset, cost })
}

/// Do the timers make the distances of jobs? They do where one timer follows the work of every phase.
fn timers_are_regular(active: &[&Phase]) -> bool {
    let Some((name, _)) = active.iter().find_map(|p| p.timers.first()) else { return true };
    active.iter().all(|p| {
        p.timers.iter().all(|(other, _)| other == name)
            && p.timer > 0
            && p.run.saturating_add(p.sleep) <= p.timer
    })
}

/// The least distance at which phases begin again: they run and sleep that long, and no timer expires sooner.
fn cycle(active: &[&Phase]) -> i128 {
    let worked = active.iter().map(|p| i128::from(p.loops) * i128::from(p.run + p.sleep)).sum();
    let mut timers: BTreeMap<&str, i128> = BTreeMap::new();
    for phase in active {
        for (name, period) in &phase.timers {
            *timers.entry(name).or_default() += i128::from(phase.loops) * i128::from(*period);
        }
    }
    timers.into_values().fold(worked, i128::max)
}

fn us(us: i128) -> Duration {
    Duration::from_us(us.clamp(0, i128::from(NUMBER_MAX)) as u64)
}
