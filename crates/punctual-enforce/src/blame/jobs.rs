//! The response time of each job of a guest, split into causes that add up.

use punctual_model::results::{Cause, CauseTime, JobBlame, add_time};

use super::supply::{Piece, State};
use crate::spans::Span;

/// A job of a guest, with times of the host's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Index of its task within the guest.
    pub task: usize,
    /// Its number within its task.
    pub number: u64,
    /// When it was released.
    pub release_ns: u64,
    /// When it was finished, or the run ended.
    pub end_ns: u64,
    /// Its work, by the law that both sides draw it from.
    pub cost_ns: u64,
    /// Was it due within the run and not finished by then?
    pub missed: bool,
    /// How much later than its deadline it was finished, or the run ended.
    pub late_ns: u64,
}

/// A task of a guest.
#[derive(Clone, Debug, Default)]
pub struct Task {
    /// Its name.
    pub name: String,
    /// 0 is the most urgent.
    pub priority: u32,
}

/// A guest with one vCPU, or more.
#[derive(Clone, Debug, Default)]
pub struct Guest {
    /// Its tasks.
    pub tasks: Vec<Task>,
    /// Its jobs by release.
    pub jobs: Vec<Job>,
    /// Its vCPUs.
    pub vcpus: Vec<Vcpu>,
}

/// A vCPU: a unit of its pool.
#[derive(Clone, Debug, Default)]
pub struct Vcpu {
    /// What it got: pieces in order of time.
    pub pieces: Vec<Piece>,
    /// Its budget, where it has one, and the time in which it comes back.
    pub budget: Option<(u64, u64)>,
    /// Does it lose budget while it has no work?
    pub budget_idles_away: bool,
    /// By piece: who had its processor while it waited, or that it did not.
    pub waits: Vec<Option<(Cause, Option<String>)>>,
}

/// A job that executed.
#[derive(Clone, Copy, Debug)]
struct Slice {
    span: Span,
    job: usize,
}

/// Time of a guest's own kernel beyond this part of a job's work counts as such; below, calibration is no
/// more exact.
const CALIBRATION_PARTS: u64 = 50;

impl Guest {
    /// Why each job took as long as it did. A job is left out where less than half of its time is known.
    pub fn blame(&self, unit_names: &[String]) -> Vec<(usize, JobBlame)> {
        let Some(vcpu) = self.vcpus.first() else { return Vec::new() };
        let slices = self.slices(vcpu);
        let blame = |(index, job): (usize, &Job)| {
            let blame = self.blame_of(index, job, vcpu, &slices, unit_names)?;
            Some((job.task, blame))
        };
        self.jobs.iter().enumerate().filter_map(blame).collect()
    }

    /// Which job executed when the vCPU ran: the most urgent one that was released and not finished.
    fn slices(&self, vcpu: &Vcpu) -> Vec<Slice> {
        let (mut slices, mut active, mut next) = (Vec::new(), Vec::<usize>::new(), 0);
        for piece in vcpu.pieces.iter().filter(|piece| piece.state == State::Ran) {
            let (from, until) = piece.span;
            while self.jobs.get(next).is_some_and(|job| job.release_ns < until) {
                active.push(next);
                next += 1;
            }
            active.retain(|&job| self.jobs[job].end_ns > from);
            let mut at = from;
            while at < until {
                let is_there =
                    |&&job: &&usize| (self.jobs[job].release_ns..self.jobs[job].end_ns).contains(&at);
                let urgency = |&&job: &&usize| (self.tasks[self.jobs[job].task].priority, job);
                let chosen = active.iter().filter(is_there).min_by_key(urgency);
                let edges = active.iter().flat_map(|&job| [self.jobs[job].release_ns, self.jobs[job].end_ns]);
                let end = edges.filter(|edge| *edge > at).min().unwrap_or(until).min(until);
                slices.extend(chosen.map(|&job| Slice { span: (at, end), job }));
                at = end;
            }
        }
        slices
    }

    fn blame_of(
        &self,
        index: usize,
        job: &Job,
        vcpu: &Vcpu,
        slices: &[Slice],
        names: &[String],
    ) -> Option<JobBlame> {
        let window = (job.release_ns, job.end_ns);
        let response_ns = window.1.saturating_sub(window.0);
        let mut causes = Vec::new();
        let mut in_guest = 0;
        for slice in overlapping(slices, window, |slice| slice.span) {
            let time_ns = overlap(slice.span, window);
            in_guest += time_ns;
            if slice.job == index {
                add_time(&mut causes, Cause::Executing, None, time_ns)
            } else {
                let task = &self.tasks[self.jobs[slice.job].task].name;
                add_time(&mut causes, Cause::PreemptedInGuest, Some(task), time_ns);
            }
        }
        let mut ran = 0;
        for (at, piece) in vcpu.pieces_in(window) {
            let time_ns = overlap(piece.span, window);
            if piece.state == State::Ran {
                ran += time_ns;
                continue;
            }
            let (cause, by) = self.cause_of(job, vcpu, at, piece, slices, names);
            add_time(&mut causes, cause, by.as_deref(), time_ns);
        }
        add_time(&mut causes, Cause::GuestKernel, None, ran.saturating_sub(in_guest));
        let known: u64 = causes.iter().map(|cause| cause.time_ns).sum();
        if known < response_ns / 2 {
            return None;
        }
        add_time(&mut causes, Cause::Unknown, None, response_ns.saturating_sub(known));
        fit_work(&mut causes, job.cost_ns);
        let (number, missed) = (job.number, job.missed);
        Some(JobBlame { run: 0, job: number, release_ns: job.release_ns, response_ns, missed, causes })
    }

    fn cause_of(
        &self,
        job: &Job,
        vcpu: &Vcpu,
        at: usize,
        piece: Piece,
        slices: &[Slice],
        names: &[String],
    ) -> (Cause, Option<String>) {
        let name = |unit: u32| names.get(unit as usize).cloned();
        if let Some(Some(known)) = vcpu.waits.get(at) {
            return known.clone();
        }
        match piece.state {
            State::Ran => (Cause::Executing, None),
            State::Look => (Cause::Overhead, None),
            State::Asleep => (Cause::GuestKernel, None),
            State::Waited => (Cause::Unknown, None),
            State::Preempted { by } => (Cause::PreemptedByUnit, name(by)),
            State::IdledAwayBy { unit } => (Cause::BudgetIdledAway, name(unit)),
            State::NoBudget => self.who_used_the_budget(job, vcpu, piece, slices),
            State::LookLate => (Cause::EnforcementLate, None),
            State::OtherThread => (Cause::OtherThread, None),
            State::Standstill => (Cause::Standstill, None),
        }
    }

    /// Of the budget before a span without any.
    fn who_used_the_budget(
        &self,
        job: &Job,
        vcpu: &Vcpu,
        piece: Piece,
        slices: &[Slice],
    ) -> (Cause, Option<String>) {
        let Some((budget_ns, period_ns)) = vcpu.budget else { return (Cause::BudgetUsedBySelf, None) };
        let window = (piece.span.0.saturating_sub(period_ns), piece.span.0);
        let mut used = vec![0u64; self.tasks.len()];
        for slice in overlapping(slices, window, |slice| slice.span) {
            used[self.jobs[slice.job].task] += overlap(slice.span, window);
        }
        let ran_pieces = vcpu.pieces_in(window).filter(|(_, piece)| piece.state == State::Ran);
        let ran: u64 = ran_pieces.map(|(_, piece)| overlap(piece.span, window)).sum();
        let by_self = used[job.task];
        let siblings = (0..used.len()).filter(|task| *task != job.task);
        let most = siblings.max_by_key(|task| used[*task]);
        let by_siblings: u64 = used.iter().sum::<u64>() - by_self;
        let idled_away = budget_ns.saturating_sub(ran);
        if vcpu.budget_idles_away && idled_away > by_self.max(by_siblings) {
            return (Cause::BudgetIdledAway, None);
        }
        match most {
            Some(task) if by_siblings > by_self => {
                (Cause::BudgetUsedBySibling, Some(self.tasks[task].name.clone()))
            }
            _ => (Cause::BudgetUsedBySelf, None),
        }
    }
}

impl Vcpu {
    fn pieces_in(&self, window: Span) -> impl Iterator<Item = (usize, Piece)> {
        let first = self.pieces.partition_point(|piece| piece.span.1 <= window.0);
        let there = self.pieces[first..].iter().take_while(move |piece| piece.span.0 < window.1);
        there.enumerate().map(move |(index, piece)| (first + index, *piece))
    }
}

/// What a job executed cannot be more than its work, and is all of it once it has finished: what looks like
/// more was its guest's kernel, what is missing was laid beside its place.
fn fit_work(causes: &mut Vec<CauseTime>, cost_ns: u64) {
    let executing: u64 = time_of(causes, Cause::Executing);
    let most = cost_ns + cost_ns / CALIBRATION_PARTS;
    if executing > most {
        take(causes, Cause::Executing, executing - most);
        add_time(causes, Cause::GuestKernel, None, executing - most);
    }
    let mut missing = cost_ns.saturating_sub(executing);
    for cause in [Cause::Unknown, Cause::GuestKernel] {
        let moved = missing.min(time_of(causes, cause));
        take(causes, cause, moved);
        add_time(causes, Cause::Executing, None, moved);
        missing -= moved;
    }
}

fn time_of(causes: &[CauseTime], cause: Cause) -> u64 {
    causes.iter().filter(|known| known.cause == cause).map(|known| known.time_ns).sum()
}

/// Takes time from a cause that nobody is named for.
fn take(causes: &mut Vec<CauseTime>, cause: Cause, time_ns: u64) {
    if let Some(known) = causes.iter_mut().find(|known| known.cause == cause && known.by.is_none()) {
        known.time_ns = known.time_ns.saturating_sub(time_ns);
    }
    causes.retain(|known| known.time_ns > 0);
}

/// How long both are at once.
pub(super) fn overlap(a: Span, b: Span) -> u64 {
    a.1.min(b.1).saturating_sub(a.0.max(b.0))
}

/// Of what is in order of time, what overlaps `window`.
fn overlapping<T>(all: &[T], window: Span, span: impl Fn(&T) -> Span + Copy) -> impl Iterator<Item = &T> {
    let first = all.partition_point(|known| span(known).1 <= window.0);
    all[first..].iter().take_while(move |known| span(known).0 < window.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(task: usize, release_ns: u64, end_ns: u64, cost_ns: u64) -> Job {
        Job { task, number: 0, release_ns, end_ns, cost_ns, missed: false, late_ns: 0 }
    }

    fn task(name: &str, priority: u32) -> Task {
        Task { name: name.into(), priority }
    }

    fn vcpu(pieces: &[(u64, u64, State)], budget: Option<(u64, u64)>) -> Vcpu {
        let piece = |&(from, until, state): &(u64, u64, State)| Piece { span: (from, until), state };
        Vcpu { pieces: pieces.iter().map(piece).collect(), budget, ..Vcpu::default() }
    }

    fn causes(blame: &JobBlame) -> Vec<(Cause, Option<&str>, u64)> {
        assert!(blame.adds_up(), "{blame:?}");
        blame.causes.iter().map(|cause| (cause.cause, cause.by.as_deref(), cause.time_ns)).collect()
    }

    #[test]
    fn a_job_executes_after_more_urgent_work_of_its_guest_and_waits_for_a_more_urgent_unit() {
        let guest = Guest {
            tasks: vec![task("slow", 2), task("fast", 1)],
            jobs: vec![job(0, 0, 100, 30), job(1, 20, 40, 20)],
            vcpus: vec![vcpu(
                &[
                    (0, 50, State::Ran),
                    (50, 70, State::Preempted { by: 1 }),
                    (70, 71, State::Look),
                    (71, 100, State::Ran),
                ],
                None,
            )],
        };
        let names = ["a.0".to_owned(), "b.0".to_owned()];
        let blamed = guest.blame(&names);
        assert_eq!(
            causes(&blamed[0].1),
            [
                (Cause::Executing, None, 30),
                (Cause::PreemptedInGuest, Some("fast"), 20),
                (Cause::PreemptedByUnit, Some("b.0"), 20),
                (Cause::Overhead, None, 1),
                (Cause::GuestKernel, None, 29),
            ]
        );
        assert_eq!(causes(&blamed[1].1), [(Cause::Executing, None, 20)]);
    }

    #[test]
    fn a_budget_is_used_up_by_oneself_a_sibling_or_where_it_idles_away_nobody() {
        let who = |budget_idles_away: bool, own: (u64, u64), sibling: (u64, u64)| {
            let ran = [own, sibling].map(|span| (span.0, span.1, State::Ran));
            let mut pieces: Vec<_> = ran.into_iter().filter(|piece| piece.0 < piece.1).collect();
            pieces.sort_by_key(|piece| piece.0);
            pieces.extend([(100, 200, State::NoBudget), (200, 210, State::Ran)]);
            let guest = Guest {
                tasks: vec![task("own", 2), task("sibling", 1)],
                jobs: vec![
                    job(0, own.0, own.1.max(own.0), own.1 - own.0),
                    job(1, sibling.0, sibling.1, 1),
                    job(0, 90, 210, 10),
                ],
                vcpus: vec![Vcpu { budget_idles_away, ..vcpu(&pieces, Some((50, 100))) }],
            };
            let blamed = guest.blame(&[]);
            let waited = blamed.last().expect("it is known").1.causes.iter().find(|c| c.time_ns == 100);
            waited.map(|cause| (cause.cause, cause.by.clone())).expect("a hundred without budget")
        };
        for idles_away in [true, false] {
            assert_eq!(who(idles_away, (0, 45), (45, 50)), (Cause::BudgetUsedBySelf, None));
            let sibling = (Cause::BudgetUsedBySibling, Some("sibling".into()));
            assert_eq!(who(idles_away, (0, 5), (5, 50)), sibling);
        }
        assert_eq!(who(true, (0, 5), (5, 10)), (Cause::BudgetIdledAway, None));
        // It used less than its budget because it owed the rest.
        assert_eq!(who(false, (0, 6), (6, 10)), (Cause::BudgetUsedBySelf, None));
    }

    #[test]
    fn what_nobody_saw_is_unknown_and_a_job_that_nobody_saw_has_no_blame() {
        let guest = |pieces: &[(u64, u64, State)]| Guest {
            tasks: vec![task("t", 1)],
            jobs: vec![job(0, 0, 100, 10)],
            vcpus: vec![vcpu(pieces, None)],
        };
        let half = guest(&[(0, 10, State::Ran), (10, 60, State::Standstill)]).blame(&[]);
        assert_eq!(
            causes(&half[0].1),
            [(Cause::Executing, None, 10), (Cause::Standstill, None, 50), (Cause::Unknown, None, 40)]
        );
        assert!(guest(&[(0, 10, State::Ran)]).blame(&[]).is_empty());
    }
}
