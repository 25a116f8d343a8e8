//! One pool under the policy that comes nearest to the threads' classes.

use punctual_sched::{cbs, credit, edf, fixed_priority};

use super::thread::{Class, Thread};
use crate::import::draft::{DomainDraft, HostDraft, LinuxPriorities, TaskDraft, WorkDraft};
use crate::import::input::Input;
use crate::import::json::NUMBER_MAX;

/// Weights of the fair class from niceness -20 on (kernel: `kernel/sched/core.c`, sched_prio_to_weight).
const WEIGHTS: [u32; 40] = [
    88_761, 71_755, 56_483, 46_273, 36_291, 29_154, 23_254, 18_705, 14_949, 11_916, 9_548, 7_620, 6_100,
    4_904, 3_906, 3_121, 2_501, 1_991, 1_586, 1_277, 1_024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110,
    87, 70, 56, 45, 36, 29, 23, 18, 15,
];
/// Greatest weight in a host file.
const WEIGHT_MAX: u32 = 65_535;

impl Class {
    fn is_realtime(self) -> bool {
        matches!(self, Class::Realtime(_) | Class::Deadline(..))
    }
}

pub(super) fn assemble(input: &mut Input, draft: &mut HostDraft, mut threads: Vec<Thread>) {
    let Some(first) = threads.first() else { return };
    let place = first.task.place;
    weigh(input, &mut threads);
    let has_realtime = threads.iter().any(|t| t.class.is_realtime());
    let has_fair = threads.iter().any(|t| matches!(t.class, Class::Fair(_)));
    let policy = if has_realtime {
        realtime_policy(input, &mut threads)
    } else {
        input.note(place, "pool: policy credit comes nearest to Linux's fair class");
        credit::NAME
    };
    let pool = draft.add_pool("host", policy, place);
    for Thread { task, class } in threads {
        let is_below = match class {
            Class::Realtime(_) | Class::Deadline(..) => false,
            Class::Fair(_) => has_realtime,
            Class::Idle => has_realtime || has_fair,
        };
        if !is_below {
            draft.pools[pool].tasks.push(task);
            continue;
        }
        let text = "below the other classes: best effort, the task of a domain with one vCPU";
        input.note(task.place, format!("{}: {text}", task.name));
        if draft.reserve(input, task.place, 1).is_none() {
            return;
        }
        draft.domains.push(DomainDraft::of_task(task, pool));
    }
}

/// Gives threads of the fair class weights, if niceness tells them apart.
fn weigh(input: &mut Input, threads: &mut [Thread]) {
    if threads.iter().all(|t| !matches!(t.class, Class::Fair(nice) if nice != 0)) {
        return;
    }
    for Thread { task, class } in threads {
        let Class::Fair(nice) = *class else { continue };
        // rt-app's parser has checked the range.
        let weight = WEIGHTS[(nice + 20).clamp(0, 39) as usize];
        if weight > WEIGHT_MAX {
            let text =
                format!("{}: weight {weight} of niceness {nice} is written as {WEIGHT_MAX}", task.name);
            input.note(task.place, text);
        }
        task.unit.weight = Some(weight.min(WEIGHT_MAX));
    }
}

/// The policy of the threads above the fair class.
fn realtime_policy(input: &mut Input, threads: &mut [Thread]) -> &'static str {
    let is_deadline = |t: &&Thread| matches!(t.class, Class::Deadline(..));
    let realtime = || threads.iter().filter(|t| t.class.is_realtime());
    if realtime().all(|t| is_deadline(&t)) {
        return deadline_policy(input, threads);
    }
    if let Some(thread) = realtime().find(is_deadline) {
        let text = "SCHED_DEADLINE threads are taken as the most urgent of fixed priorities, as in Linux";
        input.note(thread.task.place, format!("pool: {text}"));
    }
    let linux = |class: Class| match class {
        Class::Fair(_) | Class::Idle => None,
        Class::Realtime(priority) => Some(priority),
        Class::Deadline(..) => Some(NUMBER_MAX + 1),
    };
    let ranks = LinuxPriorities::new(threads.iter().filter_map(|t| linux(t.class)));
    for thread in threads {
        thread.task.unit.priority = linux(thread.class).map(|priority| ranks.rank(priority));
    }
    fixed_priority::NAME
}

/// Constant bandwidth servers, if every deadline is the period: they have no other. Else the earliest
/// deadline first, which has no budgets.
fn deadline_policy(input: &mut Input, threads: &[Thread]) -> &'static str {
    let is_short = |t: &&Thread| matches!(t.class, Class::Deadline(_, period, deadline) if deadline < period);
    let Some(short) = threads.iter().find(is_short) else { return cbs::NAME };
    let is_hog = |task: &TaskDraft| matches!(task.work, WorkDraft::Hog { .. });
    if threads.iter().any(|t| t.class.is_realtime() && is_hog(&t.task)) {
        let text =
            "pool: policy cbs has no deadlines shorter than periods: `dl-deadline` is not carried over";
        input.note(short.task.place, text);
        return cbs::NAME;
    }
    let text = "pool: policy edf, for a `dl-deadline` shorter than `dl-period`; it does not enforce \
                `dl-runtime`";
    input.note(short.task.place, text);
    edf::NAME
}
