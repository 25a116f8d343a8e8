//! Sets of tasks directly in one pool, as tables of tasks and files of SchedCAT and SimSo describe them.

use punctual_sched::{Duration, edf, fixed_priority};

use super::draft::{HostDraft, TaskDraft, WorkDraft};
use super::input::{Input, shorten};
use super::settings::Settings;
use crate::file::source::Place;
use crate::file::{PROCESSORS_MAX, UNITS_MAX};

/// Parts of a processor in which utilizations are added up.
const WHOLE: u128 = 1_000_000_000;

/// Where a time goes that is not a whole number of nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Round {
    Up,
    Down,
}

/// The tasks so far.
#[derive(Default)]
pub(super) struct TaskSet {
    tasks: Vec<TaskDraft>,
    /// The first time that was rounded.
    rounded: Option<Place>,
}

impl TaskSet {
    /// How many tasks there are.
    pub(super) fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Adds a task. `None` and an error when there are too many.
    pub(super) fn add(&mut self, input: &mut Input, task: TaskDraft) -> Option<()> {
        if self.tasks.len() == UNITS_MAX {
            input.error(task.place, "there are too many tasks", format!("expected at most {UNITS_MAX}"));
            return None;
        }
        self.tasks.push(task);
        Some(())
    }

    /// A time as a decimal number of `unit`. Generators of tasks print fractions of any length: what is
    /// beyond nanoseconds is rounded, and noted once.
    pub(super) fn time(
        &mut self,
        input: &mut Input,
        (text, place): (&str, Place),
        what: &str,
        unit: Duration,
        round: Round,
    ) -> Option<Duration> {
        let text = text.trim();
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits = unit.as_ns().ilog10() as usize;
        let is_long = fraction.len() > digits && fraction.bytes().all(|byte| byte.is_ascii_digit());
        if !is_long {
            return input.time(place, what, text, unit);
        }
        let cut = input.time(place, what, &format!("{whole}.{}", &fraction[..digits]), unit)?;
        if fraction[digits..].bytes().all(|digit| digit == b'0') {
            return Some(cut);
        }
        self.rounded.get_or_insert(place);
        Some(if round == Round::Up { cut + Duration::from_ns(1) } else { cut })
    }

    /// The tasks; notes that times were rounded.
    pub(super) fn into_tasks(self, input: &mut Input) -> Vec<TaskDraft> {
        if let Some(place) = self.rounded {
            input.note(place, "times are rounded to nanoseconds: costs up, others down");
        }
        self.tasks
    }

    /// A host with these tasks in one pool.
    pub(super) fn assemble(self, input: &mut Input, settings: &Settings<'_>) -> HostDraft {
        let mut draft = HostDraft::default();
        let Some(first) = self.tasks.first() else { return draft };
        let place = first.place;
        let tasks = self.into_tasks(input);
        let has_priorities = tasks.iter().any(|task| task.unit.priority.is_some());
        let policy = if has_priorities { fixed_priority::NAME } else { edf::NAME };
        if settings.policy.is_none() {
            let text = format!("pool host: policy {policy}: the file names none (--policy)");
            input.note(place, text);
        }
        let mut is_free = false;
        for task in &tasks {
            draft.include_processors(task.unit.affinity.as_deref().unwrap_or_default());
            is_free |= task.unit.affinity.is_none();
        }
        // As many processors as the tasks keep busy.
        let busy: u128 = tasks.iter().map(|task| utilization(&task.work)).sum();
        let busy = busy.div_ceil(WHOLE).min(u128::from(PROCESSORS_MAX));
        draft.size(input, settings, is_free.then_some(busy as usize));
        let pool = draft.add_pool("host", policy, place);
        draft.pools[pool].tasks = tasks;
        draft
    }
}

/// The greatest share of a processor that a task needs, in parts of [`WHOLE`].
fn utilization(work: &WorkDraft) -> u128 {
    match work {
        WorkDraft::Hog { .. } => WHOLE,
        WorkDraft::Periodic { period, cost, .. } | WorkDraft::Sporadic { separation: period, cost, .. } => {
            let share = u128::from(cost.max.as_ns()) * WHOLE;
            share.div_ceil(u128::from(period.as_ns()).max(1))
        }
    }
}

/// A priority, of which a smaller number is more urgent.
pub(super) fn priority(input: &mut Input, place: Place, text: &str) -> Option<u32> {
    let priority = input.integer(place, "`priority`", text, 0, u32::MAX.into())?;
    u32::try_from(priority).ok()
}

/// The processor of a partition.
pub(super) fn partition(input: &mut Input, place: Place, text: &str) -> Option<Vec<usize>> {
    let number = shorten(text.trim().strip_suffix(".0").unwrap_or(text));
    let processor = input.integer(place, "`partition`", &number, 0, PROCESSORS_MAX as i64 - 1)?;
    Some(vec![processor as usize])
}
