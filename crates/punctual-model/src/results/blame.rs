//! Why jobs took as long as they did: the response time of each, split into causes. One vocabulary for
//! simulated and live runs, so that they can be laid side by side.
//!
//! The causes of a job add up to its response time. What is not known is [`Cause::Unknown`], never left out.
//! Where nothing was measured, a task has no [`TaskBlame`] at all.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How many jobs [`TaskBlame::worst`] has at most.
pub const WORST_MAX: usize = 10;

/// What a job did, or waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// It executed.
    Executing,
    /// More urgent work of its own guest ran: another task, or an earlier job of its own task; `by` names the
    /// task.
    PreemptedInGuest,
    /// Another task of its guest held a resource that it wanted; `by` names the task.
    Lock,
    /// Its vCPU had no budget, because this task had used it up.
    BudgetUsedBySelf,
    /// Its vCPU had no budget, because other tasks of its guest had used it up; `by` names the one that had
    /// used the last of it (simulated) or the most (live).
    BudgetUsedBySibling,
    /// Its vCPU had no budget, because it had idled away (periodic and polling servers).
    BudgetIdledAway,
    /// A more urgent unit had the processor; `by` names the unit.
    PreemptedByUnit,
    /// Simulated: a processor that it may use idled, because its scheduler did not choose it.
    ProcessorIdle,
    /// Decisions, context switches, migrations and the lock of a run queue; live, the enforcer's looks.
    Overhead,
    /// From a packet's creation to the release of the job by it; `by` names the part of the way.
    Network,
    /// Live: the machine stood still, because a hypervisor below or its firmware had taken the processor.
    Standstill,
    /// Live: threads that are no units, or interrupts, had the processor; `by` names them where known.
    OtherThread,
    /// Live: the unit had budget and was not allowed to run yet, because a look came later than it was due.
    EnforcementLate,
    /// Live: the vCPU waited for a helper thread of its VM.
    HelperThread,
    /// The vCPU ran, but not for the job: the guest's kernel.
    GuestKernel,
    /// What nothing measured explains.
    Unknown,
}

impl Cause {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Cause; 16] = [
        Cause::Executing,
        Cause::PreemptedInGuest,
        Cause::Lock,
        Cause::BudgetUsedBySelf,
        Cause::BudgetUsedBySibling,
        Cause::BudgetIdledAway,
        Cause::PreemptedByUnit,
        Cause::ProcessorIdle,
        Cause::Overhead,
        Cause::Network,
        Cause::Standstill,
        Cause::OtherThread,
        Cause::EnforcementLate,
        Cause::HelperThread,
        Cause::GuestKernel,
        Cause::Unknown,
    ];

    /// As in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Executing => "executing",
            Cause::PreemptedInGuest => "preempted-in-guest",
            Cause::Lock => "lock",
            Cause::BudgetUsedBySelf => "budget-used-by-self",
            Cause::BudgetUsedBySibling => "budget-used-by-sibling",
            Cause::BudgetIdledAway => "budget-idled-away",
            Cause::PreemptedByUnit => "preempted-by-unit",
            Cause::ProcessorIdle => "processor-idle",
            Cause::Overhead => "overhead",
            Cause::Network => "network",
            Cause::Standstill => "standstill",
            Cause::OtherThread => "other-thread",
            Cause::EnforcementLate => "enforcement-late",
            Cause::HelperThread => "helper-thread",
            Cause::GuestKernel => "guest-kernel",
            Cause::Unknown => "unknown",
        }
    }

    /// In words, for tables.
    pub fn words(self) -> &'static str {
        match self {
            Cause::Executing => "executing",
            Cause::PreemptedInGuest => "more urgent work of its guest",
            Cause::Lock => "a lock held in its guest",
            Cause::BudgetUsedBySelf => "no budget: its own work used it",
            Cause::BudgetUsedBySibling => "no budget: other work of its guest used it",
            Cause::BudgetIdledAway => "no budget: idled away",
            Cause::PreemptedByUnit => "a more urgent unit",
            Cause::ProcessorIdle => "processor idle",
            Cause::Overhead => "scheduling overhead",
            Cause::Network => "network",
            Cause::Standstill => "machine stood still",
            Cause::OtherThread => "others on the processor",
            Cause::EnforcementLate => "enforcement late",
            Cause::HelperThread => "helper thread",
            Cause::GuestKernel => "guest kernel",
            Cause::Unknown => "unknown",
        }
    }

    /// Is it a disturbance of the machine, which no policy can help?
    pub fn is_disturbance(self) -> bool {
        matches!(self, Cause::Standstill | Cause::OtherThread)
    }
}

/// Time for one cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CauseTime {
    /// The cause.
    pub cause: Cause,
    /// Who: the task, unit, thread or part of a packet's way, depending on the cause; left out where there is
    /// none to name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// How long.
    pub time_ns: u64,
}

/// Adds `time_ns` to the entry of this cause and name; a time of 0 makes no entry.
pub fn add_time(causes: &mut Vec<CauseTime>, cause: Cause, by: Option<&str>, time_ns: u64) {
    if time_ns == 0 {
        return;
    }
    match causes.iter_mut().find(|known| known.cause == cause && known.by.as_deref() == by) {
        Some(known) => known.time_ns = known.time_ns.saturating_add(time_ns),
        None => causes.push(CauseTime { cause, by: by.map(str::to_owned), time_ns }),
    }
}

/// The greatest time first; equal ones in the order of [`Cause::ALL`], then by name.
pub fn sort_causes(causes: &mut [CauseTime]) {
    causes.sort_by(|a, b| {
        let key = |of: &CauseTime| (core::cmp::Reverse(of.time_ns), of.cause);
        key(a).cmp(&key(b)).then_with(|| a.by.cmp(&b.by))
    });
}

/// Why one job took as long as it did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobBlame {
    /// Which of the merged runs, from 0.
    pub run: u32,
    /// Its number within its task, from 0.
    pub job: u64,
    /// When it was released, since the start of the run; of a simulated job that a packet released, when the
    /// packet was created.
    pub release_ns: u64,
    /// From then to completion; of a job that never finished, to the end of the run.
    pub response_ns: u64,
    /// Was it due within the run and not finished at its deadline?
    pub missed: bool,
    /// Its causes, the greatest first: they add up to `response_ns`.
    pub causes: Vec<CauseTime>,
}

impl JobBlame {
    /// Do the causes add up to the response time?
    pub fn adds_up(&self) -> bool {
        let times = self.causes.iter().map(|cause| u128::from(cause.time_ns));
        times.sum::<u128>() == u128::from(self.response_ns)
    }

    /// Time of this cause, for every `by`.
    pub fn time_ns(&self, cause: Cause) -> u64 {
        time_ns(&self.causes, cause)
    }
}

fn time_ns(causes: &[CauseTime], cause: Cause) -> u64 {
    let of = causes.iter().filter(|known| known.cause == cause);
    of.fold(0, |sum, known| sum.saturating_add(known.time_ns))
}

/// The causes of several jobs together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BlameSum {
    /// How many jobs.
    pub jobs: u64,
    /// Their response times together.
    pub response_ns: u64,
    /// The causes together, the greatest first: they add up to `response_ns`.
    pub causes: Vec<CauseTime>,
}

impl BlameSum {
    /// Adds a job. [`BlameSum::sort`] comes after the last.
    pub fn add(&mut self, job: &JobBlame) {
        self.jobs += 1;
        self.add_causes(job.response_ns, &job.causes);
    }

    fn add_causes(&mut self, response_ns: u64, causes: &[CauseTime]) {
        self.response_ns = self.response_ns.saturating_add(response_ns);
        for CauseTime { cause, by, time_ns } in causes {
            add_time(&mut self.causes, *cause, by.as_deref(), *time_ns);
        }
    }

    /// Puts the greatest cause first.
    pub fn sort(&mut self) {
        sort_causes(&mut self.causes);
    }

    fn merge(&mut self, other: &BlameSum) {
        self.jobs += other.jobs;
        self.add_causes(other.response_ns, &other.causes);
        self.sort();
    }

    /// Time of this cause, for every `by`.
    pub fn time_ns(&self, cause: Cause) -> u64 {
        time_ns(&self.causes, cause)
    }
}

/// Why the jobs of a task took as long as they did: those that finished, and those that missed their
/// deadline.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskBlame {
    /// All of them.
    pub all: BlameSum,
    /// Those that missed their deadline.
    pub late: BlameSum,
    /// The slowest 1 % of each run, rounded up.
    pub slowest: BlameSum,
    /// The slowest of all, at most ten, the slowest first.
    pub worst: Vec<JobBlame>,
}

impl TaskBlame {
    /// Of all jobs of one run, in any order.
    pub fn of_jobs(mut jobs: Vec<JobBlame>) -> TaskBlame {
        jobs.iter_mut().for_each(|job| sort_causes(&mut job.causes));
        jobs.sort_by_key(slowest_first);
        let mut blame = TaskBlame::default();
        let slowest = jobs.len().div_ceil(100);
        for (index, job) in jobs.iter().enumerate() {
            blame.all.add(job);
            if job.missed {
                blame.late.add(job);
            }
            if index < slowest {
                blame.slowest.add(job);
            }
        }
        [&mut blame.all, &mut blame.late, &mut blame.slowest].into_iter().for_each(BlameSum::sort);
        jobs.truncate(WORST_MAX);
        blame.worst = jobs;
        blame
    }

    /// Adds the jobs of other runs, which come after `runs_before` runs of this.
    pub fn merge(&mut self, other: &TaskBlame, runs_before: u32) {
        self.all.merge(&other.all);
        self.late.merge(&other.late);
        self.slowest.merge(&other.slowest);
        let later = |job: &JobBlame| JobBlame { run: job.run.saturating_add(runs_before), ..job.clone() };
        self.worst.extend(other.worst.iter().map(later));
        self.worst.sort_by_key(slowest_first);
        self.worst.truncate(WORST_MAX);
    }
}

fn slowest_first(job: &JobBlame) -> (core::cmp::Reverse<u64>, u32, u64) {
    (core::cmp::Reverse(job.response_ns), job.run, job.job)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(job: u64, missed: bool, causes: &[(Cause, Option<&str>, u64)]) -> JobBlame {
        let mut blame = JobBlame { job, missed, ..JobBlame::default() };
        for &(cause, by, time_ns) in causes {
            add_time(&mut blame.causes, cause, by, time_ns);
            blame.response_ns += time_ns;
        }
        blame
    }

    #[test]
    fn causes_of_jobs_add_up_over_all_the_late_and_the_slowest() {
        let jobs = (0..200).map(|n| match n {
            7 => job(n, true, &[(Cause::Executing, None, 10), (Cause::PreemptedByUnit, Some("hog"), 90)]),
            9 => job(n, true, &[(Cause::Executing, None, 10), (Cause::Standstill, None, 70)]),
            11 => job(n, false, &[(Cause::Executing, None, 10), (Cause::PreemptedByUnit, Some("x"), 60)]),
            n => job(n, false, &[(Cause::Executing, None, 10), (Cause::Standstill, None, 0)]),
        });
        let blame = TaskBlame::of_jobs(jobs.collect());
        assert_eq!((blame.all.jobs, blame.late.jobs, blame.slowest.jobs), (200, 2, 2));
        assert_eq!(blame.all.response_ns, 2000 + 90 + 70 + 60);
        assert_eq!(blame.all.time_ns(Cause::PreemptedByUnit), 150);
        assert_eq!(blame.late.time_ns(Cause::Standstill), 70);
        let slowest = blame.slowest.causes.iter().map(|c| (c.cause, c.by.as_deref(), c.time_ns));
        assert_eq!(
            slowest.collect::<Vec<_>>(),
            [
                (Cause::PreemptedByUnit, Some("hog"), 90),
                (Cause::Standstill, None, 70),
                (Cause::Executing, None, 20)
            ]
        );
        let worst: Vec<u64> = blame.worst.iter().map(|job| job.job).collect();
        assert_eq!(worst, [7, 9, 11, 0, 1, 2, 3, 4, 5, 6]);
        assert!(blame.worst.iter().all(JobBlame::adds_up));
        assert!(!JobBlame { response_ns: 1, ..JobBlame::default() }.adds_up());
    }

    #[test]
    fn merged_runs_keep_the_worst_of_all_and_say_which_run() {
        let run = |ns| {
            TaskBlame::of_jobs((0..8).map(|n| job(n, false, &[(Cause::Unknown, None, ns + n)])).collect())
        };
        let mut both = run(100);
        both.merge(&run(104), 3);
        assert_eq!((both.all.jobs, both.slowest.jobs), (16, 2));
        assert_eq!(both.slowest.response_ns, 107 + 111);
        let worst: Vec<_> = both.worst.iter().map(|job| (job.run, job.job)).collect();
        assert_eq!(worst[..6], [(3, 7), (3, 6), (3, 5), (3, 4), (0, 7), (3, 3)]);
        assert_eq!(worst.len(), WORST_MAX);
    }

    #[test]
    fn causes_are_called_as_in_json() {
        for cause in Cause::ALL {
            assert_eq!(serde_json::to_string(&cause).expect("a name"), format!("\"{}\"", cause.name()));
        }
    }
}
