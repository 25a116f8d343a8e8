//! rt-app's workloads: threads of phases that run, sleep and wait for timers.
//!
//! Keys and events: rt-app's `doc/tutorial.txt` and `src/rt-app_parse_config.c`; an event is recognised by
//! how its key begins (`run0`, `timer_b`), times are microseconds. rt-app reads with json-c, which permits
//! comments and trailing commas; workgen permits a key more than once, here as there another event. Threads
//! become tasks directly in one pool, as rt-app starts them on the machine that it runs on.

use jsonc_parser::ast::{Array, Object, ObjectProp, Value};
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

use punctual_sched::{Duration, cbs, credit, fixed_priority};

use super::draft::{HostDraft, LinuxPriorities, TaskDraft, UnitDraft, WorkDraft};
use super::input::{Input, shorten};
use super::json::{NUMBER_MAX, Reader};
use crate::file::source::Place;
use crate::file::{PROCESSORS_MAX, UNITS_MAX};
use crate::host::Cost;

/// Priority of real-time threads that give none (rt-app).
const PRIORITY_DEFAULT: i64 = 10;

/// Keys of threads and phases that are no events.
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

/// Events that a task of a host file does not have.
const OTHER_EVENTS: [&str; 16] = [
    "lock", "unlock", "signal", "broad", "wait", "sync", "barrier", "suspend", "resume", "mem", "iorun",
    "yield", "fork", "sem_post", "sem_wait", "util_",
];

/// What Linux does with a thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Fair,
    Realtime(i64),
    /// Runtime, period and deadline, us.
    Deadline(i64, i64, i64),
}

/// One phase, times in us.
#[derive(Clone, Copy, Default)]
struct Phase {
    run: i64,
    sleep: i64,
    timer: i64,
    loops: i64,
}

/// A thread and the task that it becomes.
struct Thread {
    task: TaskDraft,
    class: Class,
}

pub(super) fn read(input: &mut Input) -> HostDraft {
    let mut draft = HostDraft::default();
    let mut threads = Vec::new();
    for file in 0..input.files() {
        let text = input.text(file).to_string();
        let options = ParseOptions { allow_missing_commas: false, ..ParseOptions::default() };
        match parse_to_ast(&text, &CollectOptions::default(), &options) {
            Ok(parsed) => {
                workload(&mut Reader { input, file }, parsed.value.as_ref(), &mut draft, &mut threads)
            }
            Err(e) => {
                let place = input.place(file, e.range().start..e.range().end);
                input.error(place, format!("invalid JSON: {}", e.kind()), "expected a workload of rt-app");
            }
        }
    }
    if threads.is_empty() && input.errors.count() == 0 {
        let place = input.place(0, 0..0);
        input.error(place, "no thread has work", "expected \"tasks\" with threads that run");
    }
    assemble(input, &mut draft, threads);
    draft
}

fn workload(
    reader: &mut Reader<'_>,
    value: Option<&Value<'_>>,
    draft: &mut HostDraft,
    threads: &mut Vec<Thread>,
) {
    let Some(Value::Object(root)) = value else {
        let place = reader.input.place(reader.file, 0..0);
        return reader.input.error(
            place,
            "the file is not a JSON object",
            "expected { \"tasks\" : { ... } }",
        );
    };
    let mut default_policy = None;
    if let Some(global) = Reader::get(root, "global").and_then(|p| reader.object(&p.value, "global")) {
        let seconds = reader.number(global, "duration", -1).ok().flatten();
        let duration = seconds.filter(|s| *s > 0).map(saturating_secs);
        draft.duration = draft.duration.max(duration);
        default_policy = reader.word(global, "default_policy").ok().flatten();
    }
    let Some(tasks) = Reader::get(root, "tasks") else {
        let place = reader.place(root);
        return reader.input.error(place, "`tasks` is missing", "expected \"tasks\" : { ... }");
    };
    let Some(tasks) = reader.object(&tasks.value, "tasks") else { return };
    for property in &tasks.properties {
        if let Some(object) = reader.object(&property.value, property.name.as_str()) {
            thread(reader, property, object, default_policy.as_ref(), draft, threads);
        }
    }
}

/// Too many seconds saturate; the host file's parser refuses them as too long.
fn saturating_secs(seconds: i64) -> Duration {
    Duration::from_ns((seconds as u64).saturating_mul(1_000_000_000))
}

fn thread(
    reader: &mut Reader<'_>,
    property: &ObjectProp<'_>,
    object: &Object<'_>,
    default_policy: Option<&(String, Place)>,
    draft: &mut HostDraft,
    threads: &mut Vec<Thread>,
) -> Option<()> {
    let name = property.name.as_str();
    let place = reader.place(&property.name);
    let instances = reader.number(object, "instance", 0).ok()?.unwrap_or(1);
    if instances > (UNITS_MAX - threads.len()) as i64 {
        reader.input.error(place, "there are too many threads", format!("expected at most {UNITS_MAX}"));
        return None;
    }
    let delay_us = reader.number(object, "delay", 0).ok()?.unwrap_or(0);
    let class = class(reader, object, default_policy)?;
    let affinity = match Reader::get(object, "cpus") {
        Some(property) => Some(processors(reader, &property.value)?),
        None => None,
    };
    draft.include_processors(affinity.as_deref().unwrap_or_default());
    let phases = phases(reader, name, object, class)?;
    let Some(work) = work(reader, name, place, &phases, delay_us) else {
        reader.input.note(place, format!("{name}: left out, because it never runs"));
        return Some(());
    };
    let mut unit = UnitDraft { affinity, ..UnitDraft::default() };
    if let Class::Deadline(runtime, period, deadline) = class {
        unit.budget = Some(Duration::from_us(runtime as u64));
        unit.period = Some(Duration::from_us(period as u64));
        let deadline = Duration::from_us(deadline as u64);
        unit.deadline = Some(deadline).filter(|_| !matches!(work, WorkDraft::Hog { .. }));
    }
    for n in 0..instances {
        let name = if instances == 1 { name.to_string() } else { format!("{name}-{n}") };
        let task = TaskDraft { name, work, unit: unit.clone(), place };
        threads.push(Thread { task, class });
    }
    Some(())
}

fn class(reader: &mut Reader<'_>, object: &Object<'_>, default: Option<&(String, Place)>) -> Option<Class> {
    let given = reader.word(object, "policy").ok()?;
    let Some((policy, place)) = given.as_ref().or(default) else { return Some(Class::Fair) };
    match policy.as_str() {
        "SCHED_OTHER" | "SCHED_BATCH" | "SCHED_IDLE" => Some(Class::Fair),
        "SCHED_FIFO" | "SCHED_RR" => {
            Some(Class::Realtime(reader.number(object, "priority", 0).ok()?.unwrap_or(PRIORITY_DEFAULT)))
        }
        "SCHED_DEADLINE" => {
            // Older files have no prefix; beside phases `runtime` is no event.
            let mut key = |new: &str, old: &str| match reader.number(object, new, 1) {
                Ok(None) => reader.number(object, old, 1),
                given => given,
            };
            let runtime = key("dl-runtime", "runtime").ok()?;
            let period = key("dl-period", "period").ok()?.or(runtime);
            let deadline = key("dl-deadline", "deadline").ok()?.or(period);
            let (Some(runtime), Some(period), Some(deadline)) = (runtime, period, deadline) else {
                reader.input.error(
                    *place,
                    "SCHED_DEADLINE without `dl-runtime`",
                    "expected \"dl-runtime\" : us",
                );
                return None;
            };
            Some(Class::Deadline(runtime, period, deadline))
        }
        other => {
            let message = format!("the policy is {:?}", shorten(other));
            let expected =
                "expected SCHED_OTHER, SCHED_BATCH, SCHED_IDLE, SCHED_RR, SCHED_FIFO or SCHED_DEADLINE";
            reader.input.error(*place, message, expected);
            None
        }
    }
}

fn processors(reader: &mut Reader<'_>, value: &Value<'_>) -> Option<Vec<usize>> {
    let Value::Array(Array { elements, .. }) = value else {
        return reader.wrong(value, "cpus", "a list of numbers");
    };
    let mut list = Vec::new();
    for element in elements {
        let Value::NumberLit(number) = element else { return reader.wrong(element, "cpus", "whole numbers") };
        let place = reader.place(element);
        let processor = reader.input.integer(place, "`cpus`", number.value, 0, PROCESSORS_MAX as i64 - 1)?;
        list.push(processor as usize);
    }
    if list.is_empty() {
        return reader.wrong(value, "cpus", "at least one processor");
    }
    list.sort_unstable();
    list.dedup();
    Some(list)
}

/// The phases of a thread; without `phases` the thread is one.
fn phases(reader: &mut Reader<'_>, name: &str, object: &Object<'_>, class: Class) -> Option<Vec<Phase>> {
    let legacy = matches!(class, Class::Deadline(..)) && Reader::get(object, "dl-runtime").is_none();
    let Some(property) = Reader::get(object, "phases") else {
        let mut only = phase(reader, name, object, legacy)?;
        if only.loops > 0 && Reader::get(object, "loop").is_some() {
            ends(reader, name, object);
        }
        only.loops = 1;
        return Some(vec![only]);
    };
    let phases = reader.object(&property.value, "phases")?;
    if reader.number(object, "loop", -1).ok()?.is_some_and(|loops| loops >= 0) {
        ends(reader, name, object);
    }
    let mut list = Vec::new();
    for property in &phases.properties {
        let inner = reader.object(&property.value, property.name.as_str())?;
        for key in ["policy", "priority", "cpus", "dl-runtime", "dl-period", "dl-deadline"] {
            if let Some(own) = Reader::get(inner, key) {
                let place = reader.place(&own.name);
                reader.input.note(place, format!("{name}: `{key}` of a single phase is not carried over"));
            }
        }
        let mut read = phase(reader, name, inner, false)?;
        let for_ever = read.loops < 0;
        read.loops = read.loops.max(if for_ever { 1 } else { 0 });
        list.push(read);
        if for_ever {
            break;
        }
    }
    Some(list)
}

fn ends(reader: &mut Reader<'_>, name: &str, object: &Object<'_>) {
    if let Some(property) = Reader::get(object, "loop") {
        let place = reader.place(&property.name);
        reader.input.note(place, format!("{name}: it ends after some loops; the task does not end"));
    }
}

/// Adds up the events. In older files of SCHED_DEADLINE threads `runtime` is the reservation, no event.
fn phase(reader: &mut Reader<'_>, name: &str, object: &Object<'_>, legacy: bool) -> Option<Phase> {
    let mut phase = Phase { loops: reader.number(object, "loop", -1).ok()?.unwrap_or(1), ..Phase::default() };
    for property in &object.properties {
        let key = property.name.as_str();
        let value = &property.value;
        if SETTINGS.contains(&key) || (legacy && key == "runtime") {
            continue;
        }
        if OTHER_EVENTS.iter().any(|event| key.starts_with(event)) || !known(key) {
            let place = reader.place(&property.name);
            reader.input.note(place, format!("{name}: `{}` is not carried over", shorten(key)));
        } else if key.starts_with("run") {
            phase.run = (phase.run + reader.number_of(value, key, 0)?).min(NUMBER_MAX);
        } else if key.starts_with("sleep") {
            phase.sleep = (phase.sleep + reader.number_of(value, key, 0)?).min(NUMBER_MAX);
        } else {
            let timer = reader.object(value, key)?;
            phase.timer =
                (phase.timer + reader.number(timer, "period", 0).ok()?.unwrap_or(0)).min(NUMBER_MAX);
        }
    }
    Some(phase)
}

fn known(key: &str) -> bool {
    ["run", "sleep", "timer"].iter().any(|event| key.starts_with(event))
}

/// What the phases amount to as a task; `None`: nothing.
fn work(
    reader: &mut Reader<'_>,
    name: &str,
    place: Place,
    phases: &[Phase],
    delay_us: i64,
) -> Option<WorkDraft> {
    let time = |us: i64| Duration::from_us(us as u64);
    let offset = time(delay_us);
    let running: Vec<&Phase> = phases.iter().filter(|p| p.loops > 0 && p.run > 0).collect();
    let first = *running.first()?;
    if phases.iter().all(|p| p.sleep == 0 && p.timer == 0) {
        return Some(WorkDraft::Hog { start: offset });
    }
    let active: Vec<&Phase> = phases.iter().filter(|p| p.loops > 0).collect();
    if active.iter().all(|p| p.timer > 0 && p.timer == first.timer) {
        let (least, most) = (running.iter().map(|p| p.run).min()?, running.iter().map(|p| p.run).max()?);
        if least < most || running.len() < active.len() {
            reader.input.note(
                place,
                format!(
                    "{name}: phases with different amounts of work become costs drawn at \
                                      random"
                ),
            );
        }
        if active.iter().any(|p| p.sleep > 0) {
            reader
                .input
                .note(place, format!("{name}: sleep between two expiries of its timer is not carried over"));
        }
        let cost = Cost { min: time(least), max: time(most) };
        return Some(WorkDraft::Periodic { period: time(first.timer), offset, cost });
    }
    // A sleep begins when the run has ended: the distance of two releases is at least their sum.
    let length =
        |p: &&Phase| i128::from(p.loops) * i128::from(if p.timer > 0 { p.timer } else { p.run + p.sleep });
    let cycle: i128 = active.iter().map(length).sum();
    let cost: i128 = active.iter().map(|p| i128::from(p.loops) * i128::from(p.run)).sum();
    if active.len() > 1 || first.loops > 1 {
        reader.input.note(place, format!("{name}: its phases become one job"));
    }
    let bounded = |us: i128| time(us.min(i128::from(NUMBER_MAX)) as i64);
    let cost = Cost { min: bounded(cost), max: bounded(cost) };
    Some(WorkDraft::Sporadic { separation: bounded(cycle), offset, cost })
}

/// One pool under the policy that comes nearest to the threads' classes.
fn assemble(input: &mut Input, draft: &mut HostDraft, mut threads: Vec<Thread>) {
    let Some(first) = threads.first() else { return };
    let place = first.task.place;
    let deadline = |t: &Thread| matches!(t.class, Class::Deadline(..));
    let policy = if threads.iter().all(deadline) {
        cbs::NAME
    } else if threads.iter().all(|t| t.class == Class::Fair) {
        input.note(place, "pool: policy credit comes nearest to Linux's fair class");
        credit::NAME
    } else {
        if threads.iter().any(deadline) {
            input.note(
                place,
                "pool: SCHED_DEADLINE threads are taken as the most urgent of fixed priorities, as in Linux",
            );
        }
        fixed_priority::NAME
    };
    if policy == fixed_priority::NAME {
        let linux = |class: Class| match class {
            Class::Fair => -1,
            Class::Realtime(priority) => priority,
            Class::Deadline(..) => NUMBER_MAX + 1,
        };
        let ranks = LinuxPriorities::new(threads.iter().map(|t| linux(t.class)));
        for thread in &mut threads {
            thread.task.unit.priority = Some(ranks.rank(linux(thread.class)));
        }
    }
    let pool = draft.add_pool("host", policy, place);
    draft.pools[pool].tasks = threads.into_iter().map(|t| t.task).collect();
}
