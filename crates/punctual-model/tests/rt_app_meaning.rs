//! What workloads of rt-app mean, by a model of its own: rt-app's loop (`thread_body` and `run_event` in its
//! `rt-app.c`), executed in virtual time on a processor of its own, gives when each thread has work and how
//! much. Random workloads are imported, and each task must be what the model says of its thread. The model
//! shares no code with the import, so that two errors do not cancel.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use punctual_model::host::{Arrival, Parent, Task, Work};
use punctual_model::import::{Format, Imported, Settings, import};
use punctual_sched::UnitParams;

const PROCESSORS: usize = 5;
/// Priority of real-time threads that give none.
const PRIORITY_DEFAULT: u32 = 10;
/// Cycles that the model executes; those before the last three may be disturbed by the start.
const CYCLES: usize = 8;
/// What import says of timers that do not make the distances of jobs.
const IRREGULAR: &str = "some jobs come sooner";
const WHOLE_CYCLE: &str = "one job of the whole cycle";

/// `run`, then `sleep`, then `timer`, times in us.
#[derive(Clone, Debug)]
struct Phase {
    runs: Vec<u64>,
    sleep: Option<u64>,
    timer: Option<(&'static str, u64)>,
    loops: Option<u64>,
}

#[derive(Clone, Debug, PartialEq)]
enum Class {
    /// `SCHED_OTHER` or `SCHED_BATCH`, niceness.
    Fair(&'static str, Option<i32>),
    Idle,
    /// `SCHED_FIFO` or `SCHED_RR`.
    Realtime(&'static str, Option<u32>),
    /// Runtime, deadline and period in us.
    Deadline(u64, u64, u64),
}

#[derive(Clone, Debug)]
struct Thread {
    instances: Option<usize>,
    delay: Option<u64>,
    class: Class,
    cpus: Option<BTreeSet<usize>>,
    /// One phase without `loop` is written as the thread's own events.
    phases: Vec<Phase>,
}

// ---- what rt-app does ---------------------------------------------------------------------------------

/// Work of a thread on a processor of its own: pieces without a pause between them.
struct Executed {
    /// Start and length.
    pieces: Vec<(u64, u64)>,
    /// When each cycle of its phases begins, and the end of the last.
    cycles: Vec<u64>,
}

fn execute(thread: &Thread) -> Executed {
    let start = thread.delay.unwrap_or(0);
    let (mut now, mut has_waited) = (start, true);
    let mut timers: BTreeMap<&str, u64> = BTreeMap::new();
    let mut executed = Executed { pieces: Vec::new(), cycles: vec![now] };
    for _ in 0..CYCLES {
        for phase in &thread.phases {
            for _ in 0..phase.loops.unwrap_or(1) {
                for &run in phase.runs.iter().filter(|run| **run > 0) {
                    if std::mem::take(&mut has_waited) {
                        executed.pieces.push((now, 0));
                    }
                    executed.pieces.last_mut().expect("a piece").1 += run;
                    now += run;
                }
                let slept = phase.sleep.unwrap_or(0);
                has_waited |= slept > 0;
                now += slept;
                if let Some((name, period)) = phase.timer {
                    let next = timers.entry(name).or_insert(start);
                    *next += period;
                    // One that expires just when the work is done separates jobs, too.
                    has_waited |= now <= *next;
                    // A timer that is late counts from now on: "relative", the default.
                    *next = (*next).max(now);
                    now = *next;
                }
            }
        }
        executed.cycles.push(now);
    }
    executed
}

impl Executed {
    /// The pieces that begin in a cycle.
    fn of_cycle(&self, cycle: usize) -> impl Iterator<Item = &(u64, u64)> {
        let (from, until) = (self.cycles[cycle], self.cycles[cycle + 1]);
        self.pieces.iter().filter(move |(at, _)| (from..until).contains(at))
    }

    fn work_of_cycle(&self, cycle: usize) -> u64 {
        self.of_cycle(cycle).map(|(_, work)| work).sum()
    }
}

// ---- workloads ----------------------------------------------------------------------------------------

fn json(threads: &[Thread]) -> String {
    let mut tasks = Vec::new();
    for (n, thread) in threads.iter().enumerate() {
        let mut keys = Vec::new();
        keys.extend(thread.instances.map(|n| format!("\"instance\": {n}")));
        keys.extend(thread.delay.map(|us| format!("\"delay\": {us}")));
        let mut policy = |name: &str| keys.push(format!("\"policy\": \"{name}\""));
        let priority = match &thread.class {
            Class::Fair(name, nice) => {
                policy(name);
                nice.map(|nice| nice.to_string())
            }
            Class::Idle => {
                policy("SCHED_IDLE");
                None
            }
            Class::Realtime(name, priority) => {
                policy(name);
                priority.map(|priority| priority.to_string())
            }
            Class::Deadline(runtime, deadline, period) => {
                policy("SCHED_DEADLINE");
                keys.push(format!("\"dl-runtime\": {runtime}, \"dl-deadline\": {deadline}"));
                keys.push(format!("\"dl-period\": {period}"));
                None
            }
        };
        keys.extend(priority.map(|priority| format!("\"priority\": {priority}")));
        let list = |cpus: &BTreeSet<usize>| cpus.iter().copied().collect::<Vec<_>>();
        keys.extend(thread.cpus.as_ref().map(|cpus| format!("\"cpus\": {:?}", list(cpus))));
        match thread.phases.as_slice() {
            [only] if only.loops.is_none() => keys.push(events(only)),
            phases => {
                let text = |(n, phase): (usize, &Phase)| format!("\"p{n}\": {{ {} }}", events(phase));
                let phases: Vec<String> = phases.iter().enumerate().map(text).collect();
                keys.push(format!("\"phases\": {{ {} }}", phases.join(", ")));
            }
        }
        tasks.push(format!("\"{}\": {{ {} }}", name(n), keys.join(", ")));
    }
    format!("{{ \"tasks\": {{ {} }} }}", tasks.join(",\n"))
}

fn events(phase: &Phase) -> String {
    let mut keys: Vec<String> = phase.loops.iter().map(|loops| format!("\"loop\": {loops}")).collect();
    keys.extend(phase.runs.iter().enumerate().map(|(n, run)| format!("\"run{n}\": {run}")));
    keys.extend(phase.sleep.map(|sleep| format!("\"sleep\": {sleep}")));
    keys.extend(
        phase
            .timer
            .map(|(name, period)| format!("\"timer\": {{ \"ref\": \"{name}\", \"period\": {period} }}")),
    );
    keys.join(", ")
}

fn name(n: usize) -> String {
    format!("t{n}")
}

fn phase() -> impl Strategy<Value = Phase> {
    let runs = prop::collection::vec(1u64..3_000, 0..3);
    let sleep = prop::option::of(1u64..5_000);
    let timer = (prop::sample::select(vec!["unique", "unique", "unique", "uniqueA"]), 1u64..20_000);
    // What a phase waits for: as often nothing, sleep or a timer alone as both.
    (runs, sleep, timer, 0u8..4, prop::option::of(0u64..4)).prop_map(|(runs, sleep, timer, kind, loops)| {
        let (sleep, timer) = match kind {
            0 => (None, None),
            1 => (sleep, None),
            2 => (None, Some(timer)),
            _ => (sleep, Some(timer)),
        };
        Phase { runs, sleep, timer, loops }
    })
}

fn class() -> impl Strategy<Value = Class> {
    let fair = (prop::sample::select(vec!["SCHED_OTHER", "SCHED_BATCH"]), prop::option::of(-18i32..=19));
    let realtime = (prop::sample::select(vec!["SCHED_FIFO", "SCHED_RR"]), prop::option::of(1u32..=99));
    let deadline = (100u64..5_000, 0u64..5_000, 0u64..5_000);
    prop_oneof![
        3 => fair.prop_map(|(name, nice)| Class::Fair(name, nice)),
        1 => Just(Class::Idle),
        3 => realtime.prop_map(|(name, priority)| Class::Realtime(name, priority)),
        3 => deadline.prop_map(|(runtime, more, most)| {
            Class::Deadline(runtime, runtime + more, runtime + more + most)
        }),
    ]
}

/// Threads of any classes, or of real-time ones with deadlines, or of the fair ones.
fn threads() -> impl Strategy<Value = Vec<Thread>> {
    let cpus = prop::option::of(prop::collection::btree_set(0..PROCESSORS, 1..4));
    let instances = prop::option::of(prop::sample::select(vec![0usize, 1, 2, 3]));
    let thread =
        (instances, prop::option::of(0u64..9_000), class(), cpus, prop::collection::vec(phase(), 1..4));
    let thread = thread.prop_map(|(instances, delay, class, cpus, phases)| Thread {
        instances,
        delay,
        class,
        cpus,
        phases,
    });
    (prop::collection::vec(thread, 1..6), 0u8..4).prop_map(|(mut threads, kind)| {
        let keeps = |thread: &Thread| match kind {
            0 => matches!(thread.class, Class::Deadline(..)),
            1 => matches!(thread.class, Class::Fair(..) | Class::Idle),
            _ => true,
        };
        threads.retain(keeps);
        threads
    })
}

// ---- comparison ---------------------------------------------------------------------------------------

/// A thread that became a task, with its parameters: its own, or of the vCPU around it.
struct Found<'a> {
    thread: &'a Thread,
    task: &'a Task,
    params: &'a UnitParams,
    is_best_effort: bool,
}

fn has_meaning(threads: &[Thread], imported: &Imported) {
    let host = &imported.host;
    let mut found = Vec::new();
    for (n, thread) in threads.iter().enumerate() {
        let executed = execute(thread);
        let instances = thread.instances.unwrap_or(1);
        for instance in 0..instances {
            let name = if instances == 1 { name(n) } else { format!("{}-{instance}", name(n)) };
            let task = host.tasks.iter().find(|task| task.name == name);
            if executed.pieces.is_empty() {
                assert!(task.is_none(), "{name} never runs");
                continue;
            }
            let task = task.unwrap_or_else(|| panic!("{name} is missing"));
            let (params, is_best_effort) = match task.parent {
                Parent::Pool(_) => (&task.params, false),
                Parent::Domain(domain) => {
                    let params = &host.vcpus[host.domains[domain.0].vcpus.start].params;
                    (params, params.best_effort)
                }
            };
            has_work(task, &executed, &said(imported, n));
            has_affinity(thread, params);
            found.push(Found { thread, task, params, is_best_effort });
        }
    }
    assert_eq!(found.len(), host.tasks.len(), "no task of another thread");
    has_classes(&found, host.pools[0].policy.info.name);
}

/// The notes about a thread.
fn said(imported: &Imported, n: usize) -> String {
    let prefix = format!("{}: ", name(n));
    let notes = imported.notes.iter().filter(|note| note.text.starts_with(&prefix));
    notes.map(|note| note.text.as_str()).collect::<Vec<_>>().join("\n")
}

fn has_affinity(thread: &Thread, params: &UnitParams) {
    let own: Option<BTreeSet<usize>> =
        params.affinity.as_ref().map(|set| set.iter().map(|cpu| cpu.index()).collect());
    let anywhere = (0..PROCESSORS).collect();
    let wanted = thread.cpus.clone().unwrap_or(anywhere);
    assert_eq!(own.unwrap_or_else(|| (0..PROCESSORS).collect()), wanted);
}

/// Jobs are the pieces of work.
fn has_work(task: &Task, executed: &Executed, said: &str) {
    let us = |time: punctual_sched::Duration| time.as_ns() / 1_000;
    let first = executed.pieces[0].0;
    let Work::Jobs { arrival, cost, .. } = task.work else {
        let Work::Hog { start } = task.work else { panic!("{}: no packets", task.name) };
        assert_eq!((executed.pieces.len(), us(start)), (1, first), "{} never waits", task.name);
        return;
    };
    let (least, most) = (us(cost.min), us(cost.max));
    let (last, cycle) = (CYCLES - 1, executed.cycles[CYCLES] - executed.cycles[CYCLES - 1]);
    if said.contains(WHOLE_CYCLE) {
        let Arrival::Sporadic { separation, offset, .. } = arrival else {
            panic!("{}: {arrival:?}", task.name)
        };
        let work: u64 = executed.pieces.iter().map(|(_, work)| work).sum();
        assert_eq!((least * CYCLES as u64, least), (work, most), "{}: the work of a cycle", task.name);
        assert!(us(offset) <= first, "{}: not before {first}", task.name);
        let shortest = executed.cycles.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap_or(0);
        assert!(us(separation) <= shortest, "{}: a cycle has {shortest} us", task.name);
        let is_exact = !said.contains(IRREGULAR);
        assert!(!is_exact || us(separation) == cycle, "{}: a cycle has {cycle} us", task.name);
        return;
    }
    if said.contains(IRREGULAR) {
        return;
    }
    let costs = || executed.pieces.iter().map(|(_, work)| *work);
    assert_eq!((Some(least), Some(most)), (costs().min(), costs().max()), "{}: costs", task.name);
    let distances = executed.pieces.windows(2).map(|pair| pair[1].0 - pair[0].0);
    match arrival {
        Arrival::Periodic { period, offset } => {
            assert_eq!(us(offset), first, "{}: offset", task.name);
            assert!(distances.into_iter().all(|distance| distance == us(period)), "{}: period", task.name);
        }
        Arrival::Sporadic { separation, offset, .. } => {
            assert!(us(offset) <= first, "{}: offset", task.name);
            let least = distances.min().expect("several cycles");
            assert!(us(separation) <= least, "{}: {least} us apart", task.name);
            // Between pauses there may be one job only.
            let has_pauses = executed.of_cycle(last).count() == 1 || executed.work_of_cycle(last) == 0;
            assert!(has_pauses || us(separation) == least, "{}: {least} us apart", task.name);
        }
    }
}

/// Urgency, weight and reservation, as Linux has them.
fn has_classes(found: &[Found<'_>], policy: &str) {
    let is_deadline = |f: &&Found<'_>| matches!(f.thread.class, Class::Deadline(..));
    let realtime =
        || found.iter().filter(|f| matches!(f.thread.class, Class::Deadline(..) | Class::Realtime(..)));
    let has_fair = found.iter().any(|f| matches!(f.thread.class, Class::Fair(..)));
    let has_realtime = realtime().next().is_some();
    let is_short = |f: &Found<'_>| matches!(f.thread.class, Class::Deadline(_, d, p) if d < p);
    let is_hog = |f: &Found<'_>| matches!(f.task.work, Work::Hog { .. });
    let expected = match realtime().next() {
        None => "credit",
        Some(_) if !realtime().all(|f| is_deadline(&f)) => "fixed-priority",
        Some(_) if realtime().any(is_short) && !realtime().any(is_hog) => "edf",
        Some(_) => "cbs",
    };
    assert_eq!(policy, expected);
    for f in found {
        let is_below = match &f.thread.class {
            Class::Fair(..) => has_realtime,
            Class::Idle => has_realtime || has_fair,
            Class::Realtime(..) | Class::Deadline(..) => false,
        };
        assert_eq!(f.is_best_effort, is_below, "{}", f.task.name);
        if let Class::Deadline(runtime, deadline, period) = f.thread.class {
            let us = |time: Option<punctual_sched::Duration>| time.map(|time| time.as_ns() / 1_000);
            assert_eq!((us(f.params.budget), us(f.params.period)), (Some(runtime), Some(period)));
            if let Work::Jobs { deadline: of_jobs, .. } = f.task.work {
                assert_eq!(us(Some(of_jobs)), Some(deadline), "{}", f.task.name);
            }
        }
    }
    for (a, b) in found.iter().flat_map(|a| found.iter().map(move |b| (a, b))) {
        compare(a, b, policy, has_realtime);
    }
}

/// The order and the weights of two threads.
fn compare(a: &Found<'_>, b: &Found<'_>, policy: &str, has_realtime: bool) {
    let urgency = |f: &Found<'_>| match f.thread.class {
        Class::Deadline(..) => Some(u32::MAX),
        Class::Realtime(_, priority) => Some(priority.unwrap_or(PRIORITY_DEFAULT)),
        Class::Fair(..) | Class::Idle => None,
    };
    if let ("fixed-priority", Some(first), Some(second)) = (policy, urgency(a), urgency(b)) {
        // 1 is the most urgent priority of a host file.
        let order = b.params.priority.cmp(&a.params.priority);
        assert_eq!(first.cmp(&second), order, "{} {}", a.task.name, b.task.name);
    }
    if let (false, Class::Fair(_, first), Class::Fair(_, second)) =
        (has_realtime, &a.thread.class, &b.thread.class)
    {
        let weight = |f: &Found<'_>| f64::from(f.params.weight.unwrap_or(1024));
        // A step of niceness is a quarter of the weight; the kernel's table rounds.
        let linux = 1.25f64.powi(second.unwrap_or(0) - first.unwrap_or(0));
        let ours = weight(a) / weight(b);
        assert!((ours / linux - 1.0).abs() < 0.05, "{} : {} is {ours}", a.task.name, b.task.name);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn workloads_of_rt_app_keep_their_meaning(threads in threads()) {
        let runs = |thread: &Thread| thread.instances != Some(0) && !execute(thread).pieces.is_empty();
        let text = json(&threads);
        let settings = Settings { processors: Some(PROCESSORS), ..Settings::default() };
        match import(Format::RtApp, &[("workload.json", text.as_bytes())], &settings) {
            Ok(imported) => has_meaning(&threads, &imported),
            Err(errors) => prop_assert!(!threads.iter().any(runs), "{errors}\n{text}"),
        }
    }
}
