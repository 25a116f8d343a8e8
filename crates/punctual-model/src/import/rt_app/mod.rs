//! rt-app's workloads: threads of phases that run, sleep and wait for timers.
//!
//! Keys and events: rt-app's `doc/tutorial.txt` and `src/rt-app_parse_config.c`; an event is recognised by
//! how its key begins (`run0`, `timer_b`), times are microseconds. rt-app reads with json-c, which permits
//! comments and trailing commas; workgen permits a key more than once, here as there another event. Threads
//! become tasks directly in one pool, as rt-app starts them on the machine that it runs on; beside real-time
//! threads, those of the fair class become best-effort domains of one vCPU.

mod phases;
mod pool;
mod thread;

use std::collections::{BTreeMap, BTreeSet};

use jsonc_parser::ast::{Array, Object, ObjectProp, Value};
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

use punctual_sched::Duration;

use phases::{phases, work};
use thread::{Class, Thread};

use super::draft::{HostDraft, TaskDraft, UnitDraft, WorkDraft};
use super::input::{Input, shorten};
use super::json::Reader;
use super::settings::Settings;
use crate::file::source::Place;
use crate::file::{PROCESSORS_MAX, UNITS_MAX};

/// Priority of real-time threads that give none (rt-app).
const PRIORITY_DEFAULT: i64 = 10;

/// Keys of the file.
const ROOT: [&str; 3] = ["global", "tasks", "resources"];

/// Keys of `global` that are read, or that do not concern the schedule: logs, calibration, memory, and
/// protocols of mutexes, which are not carried over.
const GLOBAL: [&str; 13] = [
    "duration",
    "default_policy",
    "calibration",
    "cumulative_slack",
    "ftrace",
    "gnuplot",
    "io_device",
    "lock_pages",
    "log_basename",
    "log_size",
    "logdir",
    "mem_buffer_size",
    "pi_enabled",
];

/// What was found in the files.
#[derive(Default)]
struct Found {
    draft: HostDraft,
    threads: Vec<Thread>,
    /// How many threads share each timer, and the first of them.
    timers: BTreeMap<String, (u64, Place)>,
}

pub(super) fn read(input: &mut Input, settings: &Settings<'_>) -> HostDraft {
    let mut found = Found::default();
    for file in 0..input.files() {
        let text = input.text(file).to_string();
        let options = ParseOptions { allow_missing_commas: false, ..ParseOptions::default() };
        match parse_to_ast(&text, &CollectOptions::default(), &options) {
            Ok(parsed) => workload(&mut Reader { input, file }, parsed.value.as_ref(), &mut found),
            Err(e) => {
                let place = input.place(file, e.range().start..e.range().end);
                input.error(place, format!("invalid JSON: {}", e.kind()), "expected a workload of rt-app");
            }
        }
    }
    let Found { mut draft, threads, timers } = found;
    for (name, (count, place)) in timers.into_iter().filter(|(_, (count, _))| *count > 1) {
        let text =
            format!("timer {} is one for {count} threads; each is taken to have its own", shorten(&name));
        input.note(place, text);
    }
    if threads.is_empty() && input.errors.count() == 0 {
        let place = input.place(0, 0..0);
        input.error(place, "no thread has work", "expected \"tasks\" with threads that run");
    }
    let is_free = threads.iter().any(|thread| thread.task.unit.affinity.is_none());
    if input.errors.count() == 0 {
        draft.size(input, settings, is_free.then_some(1));
    }
    pool::assemble(input, &mut draft, threads);
    draft
}

fn workload(reader: &mut Reader<'_>, value: Option<&Value<'_>>, found: &mut Found) {
    let Some(Value::Object(root)) = value else {
        let place = reader.input.place(reader.file, 0..0);
        return reader.input.error(
            place,
            "the file is not a JSON object",
            "expected { \"tasks\" : { ... } }",
        );
    };
    note_unknown(reader, root, "the file", &ROOT);
    let mut default_policy = None;
    if let Some(global) = Reader::get(root, "global").and_then(|p| reader.object(&p.value, "global")) {
        note_unknown(reader, global, "global", &GLOBAL);
        let seconds = reader.number(global, "duration", -1).ok().flatten();
        let duration = seconds.filter(|s| *s > 0).map(saturating_secs);
        found.draft.duration = found.draft.duration.max(duration);
        default_policy = reader.word(global, "default_policy").ok().flatten();
    }
    let Some(tasks) = Reader::get(root, "tasks") else {
        let place = reader.place(root);
        return reader.input.error(place, "`tasks` is missing", "expected \"tasks\" : { ... }");
    };
    let Some(tasks) = reader.object(&tasks.value, "tasks") else { return };
    for property in &tasks.properties {
        if let Some(object) = reader.object(&property.value, property.name.as_str()) {
            thread(reader, property, object, default_policy.as_ref(), found);
        }
    }
}

/// Notes the keys of an object that rt-app does not know.
fn note_unknown(reader: &mut Reader<'_>, object: &Object<'_>, what: &str, known: &[&str]) {
    for property in &object.properties {
        if !known.contains(&property.name.as_str()) {
            let place = reader.place(&property.name);
            let text = format!("{what}: `{}` is not known", shorten(property.name.as_str()));
            reader.input.note(place, text);
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
    found: &mut Found,
) -> Option<()> {
    let name = property.name.as_str();
    let place = reader.place(&property.name);
    let instances = reader.number(object, "instance", 0).ok()?.unwrap_or(1);
    if instances > (UNITS_MAX - found.threads.len()) as i64 {
        reader.input.error(place, "there are too many threads", format!("expected at most {UNITS_MAX}"));
        return None;
    }
    let delay_us = reader.number(object, "delay", 0).ok()?.unwrap_or(0);
    let class = class(reader, name, object, default_policy)?;
    let affinity = match Reader::get(object, "cpus") {
        Some(property) => Some(processors(reader, &property.value)?),
        None => None,
    };
    found.draft.include_processors(affinity.as_deref().unwrap_or_default());
    let phases = phases(reader, name, object)?;
    for timer in phases.timers.iter().collect::<BTreeSet<_>>() {
        let (count, _) = found.timers.entry(timer.clone()).or_insert((0, place));
        *count += instances as u64;
    }
    if instances == 0 {
        reader.input.note(place, format!("{name}: left out, because it has no instance"));
    }
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
        found.threads.push(Thread { task, class });
    }
    Some(())
}

fn class(
    reader: &mut Reader<'_>,
    name: &str,
    object: &Object<'_>,
    default: Option<&(String, Place)>,
) -> Option<Class> {
    let given = reader.word(object, "policy").ok()?;
    let Some((policy, place)) = given.as_ref().or(default) else {
        return fair(reader, name, object);
    };
    match policy.as_str() {
        "SCHED_OTHER" | "SCHED_BATCH" => fair(reader, name, object),
        "SCHED_IDLE" => Some(Class::Idle),
        "SCHED_FIFO" | "SCHED_RR" => {
            Some(Class::Realtime(reader.number(object, "priority", 0).ok()?.unwrap_or(PRIORITY_DEFAULT)))
        }
        "SCHED_DEADLINE" => {
            // Older files have no prefix; there `runtime` is both the reservation and an event, as in rt-app.
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

/// The fair class, with the niceness that `priority` gives.
fn fair(reader: &mut Reader<'_>, name: &str, object: &Object<'_>) -> Option<Class> {
    if let Some(slice) = Reader::get(object, "dl-runtime") {
        let place = reader.place(&slice.name);
        reader.input.note(place, format!("{name}: a slice of the fair class is not carried over"));
    }
    let nice = reader.number(object, "priority", -20).ok()?.unwrap_or(0);
    if nice > 19 {
        let property = Reader::get(object, "priority")?;
        let place = reader.place(&property.value);
        let message = format!("`priority` is {nice}");
        reader.input.error(place, message, "expected a niceness from -20 to 19 (SCHED_OTHER)");
        return None;
    }
    Some(Class::Fair(nice))
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
