//! A certificate: what was measured on which machine, under which limits, with the verdict.

use punctual_model::Histogram;
use punctual_model::acceptance::{Limits, Measure, Statistic};
use serde::{Deserialize, Serialize};

/// Everything that one test found out. Times are whole numbers below 2^53, which every reader of JSON keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    /// Always `punctual-certificate`.
    pub format: String,
    /// The version of this form.
    pub version: u32,
    /// The version of the program.
    pub program: String,
    /// The name of the machine.
    pub host: String,
    /// When the test began, in us since 1970.
    pub begun_us: u64,
    /// When it ended.
    pub ended_us: u64,
    /// What was asked for and done.
    pub conduct: Conduct,
    /// What the machine is.
    pub fingerprint: Vec<Item>,
    /// What `punctual doctor` found, `ok` left out.
    pub findings: Vec<Finding>,
    /// What was measured, by guest, measure and processor.
    pub measurements: Vec<Measurement>,
    /// What was promised, if anything was.
    pub limits: Option<Limits>,
    /// The judgement.
    pub verdict: Verdict,
}

/// What was asked for and done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conduct {
    /// The time asked for, in ms.
    pub wanted_ms: u64,
    /// The time that was measured, in ms.
    pub measured_ms: u64,
    /// Was it stopped before its time?
    pub stopped: bool,
    /// The processors of the host.
    pub processors: Vec<usize>,
    /// The period of the timers, in ns.
    pub interval_ns: u64,
    /// The `SCHED_FIFO` priority of the measuring threads; 0: the fair class.
    pub priority: u32,
    /// The loads that ran meanwhile.
    pub loads: Vec<String>,
    /// How causes are known, or why they are not.
    pub causes: String,
    /// What was asked for and could not be done.
    pub missing: Vec<String>,
    /// What a reader must know about how it was measured.
    pub notes: Vec<String>,
}

/// A fact about the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Item {
    /// What it is called.
    pub name: String,
    /// What it is; `None` if it could not be read.
    pub value: Option<String>,
    /// Why it could not be read.
    pub reason: Option<String>,
    /// The file.
    pub source: String,
}

/// A finding of `punctual doctor`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// The check.
    pub id: String,
    /// How bad it is, in the words of `punctual doctor`.
    pub severity: String,
    /// What was found.
    pub summary: String,
    /// Why it matters.
    pub why: String,
    /// The command that cures it, if one does.
    pub fix: Option<String>,
}

/// One measure of one processor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measurement {
    /// The guest; `None`: the host.
    pub guest: Option<String>,
    /// The processor, or the guest's vCPU.
    pub processor: usize,
    /// What was measured.
    pub measure: Measure,
    /// By which method.
    pub method: String,
    /// For how long, in ns, without pauses.
    pub watched_ns: u64,
    /// Gaps shorter than this were not seen.
    pub resolution_ns: u64,
    /// Wake-ups that were due while an earlier one was late.
    pub skipped: u64,
    /// What a hypervisor below took meanwhile, as far as the kernel knows, to 10 ms.
    pub steal_ns: u64,
    /// All latencies.
    pub latencies: Histogram,
    /// The same in parts of equal length.
    pub slices: Vec<Slice>,
    /// The longest, the longest first.
    pub worst: Vec<Worst>,
}

impl Measurement {
    /// Where it was measured.
    pub fn place(&self) -> Place<'_> {
        Place { guest: self.guest.as_deref(), processor: self.processor, measure: self.measure }
    }

    /// The time lost in gaps, in millionths of the time watched; 0 if nothing was watched.
    pub fn lost_ppm(&self) -> u64 {
        let lost = u128::from(self.latencies.mean().as_ns()) * u128::from(self.latencies.count());
        lost_ppm(lost, self.watched_ns)
    }
}

/// `lost` of `watched_ns` in millionths.
pub(crate) fn lost_ppm(lost_ns: u128, watched_ns: u64) -> u64 {
    let ppm = (lost_ns * 1_000_000).checked_div(u128::from(watched_ns)).unwrap_or(0);
    u64::try_from(ppm).unwrap_or(u64::MAX)
}

/// Where something was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place<'c> {
    /// The guest; `None`: the host.
    pub guest: Option<&'c str>,
    /// The processor, or the guest's vCPU.
    pub processor: usize,
    /// The measure.
    pub measure: Measure,
}

impl std::fmt::Display for Place<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Place { guest, processor, measure } = self;
        match guest {
            None => write!(out, "{} of processor {processor}", measure.name()),
            Some(guest) => write!(out, "{} of vCPU {processor} of {guest}", measure.name()),
        }
    }
}

/// Latencies of a part of the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slice {
    /// How many.
    pub count: u64,
    /// The median.
    pub p50_ns: u64,
    /// 99 % do not exceed it.
    pub p99_ns: u64,
    /// The greatest.
    pub max_ns: u64,
    /// All together.
    pub sum_ns: u64,
}

/// A long latency.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Worst {
    /// When it ended, in us since 1970.
    pub at_us: u64,
    /// How long it was.
    pub length_ns: u64,
    /// Who had the processor meanwhile, the longest first; empty if that is not known.
    pub causes: Vec<Cause>,
}

/// What had a processor during a latency.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cause {
    /// What it was.
    pub kind: CauseKind,
    /// The name of a thread with its class and id; empty for others.
    pub who: String,
    /// For how long.
    pub time_ns: u64,
}

/// A kind of cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CauseKind {
    /// Another thread had the processor.
    Thread,
    /// The processor idled: the timer was late, or leaving the idle state took long.
    Idle,
    /// The measuring thread had the processor and was not executed: an interrupt, firmware, hardware, or a
    /// hypervisor below.
    Itself,
}

/// How a test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Every limit holds.
    Passed,
    /// A limit is exceeded.
    Failed,
    /// No limit is exceeded, but something is missing.
    Incomplete,
    /// There are no limits.
    Measured,
}

/// The judgement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    /// How the test ended.
    pub outcome: Outcome,
    /// What is missing.
    pub missing: Vec<String>,
    /// Every limit with what was measured.
    pub checks: Vec<Check>,
}

/// A limit and what was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// The guest; `None`: the host.
    pub guest: Option<String>,
    /// The processor or vCPU.
    pub processor: usize,
    /// The measure.
    pub measure: Measure,
    /// Its statistic.
    pub statistic: Statistic,
    /// The limit, in us, or in millionths for lost time.
    pub most: u64,
    /// What was measured, in ns, or in millionths for lost time; `None`: nothing.
    pub found: Option<u64>,
}

impl Check {
    /// Does the limit hold? `None`: nothing was measured.
    pub fn holds(&self) -> Option<bool> {
        let scale = if self.statistic == Statistic::Lost { 1 } else { 1000 };
        self.found.map(|found| found <= self.most.saturating_mul(scale))
    }

    /// Where it was measured.
    pub fn place(&self) -> Place<'_> {
        Place { guest: self.guest.as_deref(), processor: self.processor, measure: self.measure }
    }
}

impl Certificate {
    /// The measurement of a place.
    pub fn measurement(&self, place: Place<'_>) -> Option<&Measurement> {
        self.measurements.iter().find(|one| one.place() == place)
    }
}
