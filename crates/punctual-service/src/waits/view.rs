//! What the control interface shows of waits.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use punctual_model::service::WaitSource;
use serde::{Deserialize, Serialize};

use crate::hints::{Hints, HintsView};

use super::book::{By, KEPT_S, Part, Story, Totals};
use super::cause::WaitCause;
use super::latency::{BOUNDS_NS, Latency};
use super::{Waits, now_ns};

/// Where the service knows from what VMs wait for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceView {
    /// `bpf`, `tracepoints`, `switches`, `samples`; `none` while there is no VM; `off`.
    pub source: String,
    /// Why it is no better one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How often records were lost.
    pub lost: u64,
}

/// Time for a cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CauseView {
    pub cause: WaitCause,
    /// Who it was, where that is somebody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    pub time_ns: u64,
}

/// What is known of a vCPU, or of all helper threads with one role, since the VM was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartView {
    pub role: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vcpu: Option<u32>,
    /// Without who it was.
    pub causes: Vec<CauseView>,
    /// With who it was, of the time that was asked for: to five minutes, the greatest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lately: Vec<CauseView>,
    /// How often it was woken and then ran.
    pub wakeups: u64,
    /// From wake-ups until it ran, all together.
    pub latency_sum_ns: u64,
    /// Half of the latencies, and 99 % of them, are at most that; to the bounds of `latency_counts`.
    pub latency_p50_ns: u64,
    pub latency_p99_ns: u64,
    pub latency_max_ns: u64,
    /// How many latencies are above the bound before and at most 10 us, 50 us, 100 us, 500 us, 1 ms, 5 ms, 20
    /// ms; and how many are greater.
    pub latency_counts: Vec<u64>,
    /// How often it left the guest because it spun there; absent where that is not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spins: Option<u64>,
    /// Of that, in the time that was asked for, to five minutes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub spins_lately: u64,
}

/// A step of a wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepView {
    /// Since the wait began; absent for what the steps before leave over, all together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_ns: Option<u64>,
    pub time_ns: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor: Option<u32>,
    pub cause: WaitCause,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// A wait with its story.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitView {
    pub role: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vcpu: Option<u32>,
    /// When it began, in us since 1970.
    pub began_us: u64,
    pub time_ns: u64,
    /// Did it follow a wake-up?
    pub was_woken: bool,
    /// Does it go on?
    pub is_open: bool,
    /// How often the VM's kernel meanwhile asked KVM that another vCPU runs, which it waits for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub yields: u64,
    /// How often other vCPUs of the VM meanwhile left the guest because they spun there.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub spins: u64,
    pub steps: Vec<StepView>,
}

/// A wait of a VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmWaitView {
    /// Its begin, if it is long.
    pub name: String,
    pub process: u32,
    pub wait: WaitView,
}

/// What a VM waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhyView {
    pub name: String,
    pub process: u32,
    pub source: SourceView,
    pub last_s: u64,
    /// Of all its threads in that time, to five minutes, the greatest first.
    pub causes: Vec<CauseView>,
    /// Since the VM was seen.
    pub parts: Vec<PartView>,
    /// The longest first.
    pub worst: Vec<WaitView>,
    /// What KVM counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hints: Option<HintsView>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Part {
    fn role(self) -> String {
        match self {
            Part::Vcpu(_) => "vcpu".into(),
            Part::Helper(role) => role.into(),
        }
    }

    fn vcpu(self) -> Option<u32> {
        match self {
            Part::Vcpu(number) => Some(number),
            Part::Helper(_) => None,
        }
    }
}

impl Waits {
    pub(crate) fn source(&self) -> SourceView {
        let Some(opened) = &self.opened else {
            let source = if self.wanted == WaitSource::Off { "off" } else { "none" };
            return SourceView { source: source.into(), ..SourceView::default() };
        };
        let (lost, source) = (opened.lost(), opened.kind.name().into());
        let no_spins = opened.no_spins().map(|why| format!("how often vCPUs spin is not counted: {why}"));
        SourceView { source, reason: opened.reason.clone().or(no_spins), lost }
    }

    /// The vCPUs and helpers of a VM.
    pub(crate) fn parts(&self, vm: u32) -> Vec<PartView> {
        let all = self.book.vm(vm).map(|book| book.parts.iter()).into_iter().flatten();
        all.map(|(part, totals)| part_view(*part, totals)).collect()
    }

    /// What all threads of a VM waited for in the last hour, the greatest first, without who it was.
    pub(crate) fn lately(&self, vm: u32) -> Vec<CauseView> {
        let from_ns = now_ns().saturating_sub(KEPT_S * 1_000_000_000);
        let causes = self.book.causes(vm, from_ns).into_iter();
        let mut causes: Vec<CauseView> =
            causes.map(|(cause, time_ns)| CauseView { cause, by: None, time_ns }).collect();
        causes.sort_by_key(|one| std::cmp::Reverse(one.time_ns));
        causes
    }

    /// The longest waits of all VMs in the last `last_s` seconds, of which [`KEPT_S`] are known at most.
    pub(crate) fn worst(&self, last_s: u64) -> Vec<VmWaitView> {
        let clock = Clock::now();
        let from_ns = clock.now_ns.saturating_sub(last_s.min(KEPT_S) * 1_000_000_000);
        let view = |(vm, part, story): (u32, Part, Story)| VmWaitView {
            name: self.vms.get(&vm).map_or_else(String::new, |(name, _)| name.to_string()),
            process: vm,
            wait: clock.wait(part, &story),
        };
        self.book.worst(from_ns).into_iter().map(view).collect()
    }

    /// What a VM waited for in the last `last_s` seconds, of which [`KEPT_S`] are known at most.
    pub(crate) fn why(&self, vm: u32, name: &str, last_s: u64, hints: &Hints) -> WhyView {
        let last_s = last_s.min(KEPT_S);
        let clock = Clock::now();
        let from_ns = clock.now_ns.saturating_sub(last_s.saturating_mul(1_000_000_000));
        let lately = self.book.lately(vm, from_ns);
        let mut parts = self.parts(vm);
        for part in &mut parts {
            let is_it = |of: Part| of.role() == part.role && of.vcpu() == part.vcpu;
            part.lately = causes(&lately.causes, is_it);
            let spins = lately.spins.iter().filter(|(of, _)| is_it(**of));
            part.spins_lately = spins.map(|(_, spins)| spins).sum();
        }
        WhyView {
            name: name.to_owned(),
            process: vm,
            source: self.source(),
            last_s,
            causes: causes(&lately.causes, |_| true),
            parts,
            worst: lately.worst.iter().map(|(part, story)| clock.wait(*part, story)).collect(),
            hints: hints.view(vm, from_ns),
        }
    }
}

/// The time of waits, and of the world.
struct Clock {
    now_ns: u64,
    real_us: u64,
}

impl Clock {
    fn now() -> Clock {
        let real = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { now_ns: now_ns(), real_us: u64::try_from(real.as_micros()).unwrap_or(u64::MAX) }
    }

    fn wait(&self, part: Part, story: &Story) -> WaitView {
        WaitView {
            role: part.role(),
            vcpu: part.vcpu(),
            began_us: self.real_us.saturating_sub(self.now_ns.saturating_sub(story.from_ns) / 1000),
            time_ns: story.length_ns(),
            was_woken: story.was_woken,
            is_open: story.is_open,
            yields: story.yields,
            spins: story.spins,
            steps: steps(story),
        }
    }
}

/// The causes of some parts of a VM, the greatest first.
fn causes(all: &BTreeMap<(Part, By), u64>, is_wanted: impl Fn(Part) -> bool) -> Vec<CauseView> {
    let mut sums: BTreeMap<&By, u64> = BTreeMap::new();
    for ((_, by), time_ns) in all.iter().filter(|((part, _), _)| is_wanted(*part)) {
        *sums.entry(by).or_default() += time_ns;
    }
    let view = |((cause, by), time_ns): (&By, u64)| {
        let by = by.as_ref().map(|by| by.to_string());
        CauseView { cause: *cause, by, time_ns }
    };
    let mut causes: Vec<CauseView> = sums.into_iter().map(view).collect();
    causes.sort_by_key(|one| std::cmp::Reverse(one.time_ns));
    causes
}

fn part_view(part: Part, totals: &Totals) -> PartView {
    let cause =
        |(cause, time_ns): (&WaitCause, &u64)| CauseView { cause: *cause, by: None, time_ns: *time_ns };
    let latency: &Latency = &totals.latency;
    debug_assert_eq!(latency.counts.len(), BOUNDS_NS.len() + 1);
    PartView {
        role: part.role(),
        vcpu: part.vcpu(),
        causes: totals.causes.iter().map(cause).collect(),
        lately: Vec::new(),
        wakeups: latency.count(),
        latency_sum_ns: latency.sum_ns,
        latency_p50_ns: latency.quantile_ns(500),
        latency_p99_ns: latency.quantile_ns(990),
        latency_max_ns: latency.max_ns,
        latency_counts: latency.counts.to_vec(),
        spins: totals.spins,
        spins_lately: 0,
    }
}

fn steps(story: &Story) -> Vec<StepView> {
    let by = |by: &By| (by.0, by.1.as_ref().map(|name| name.to_string()));
    let in_order = story.steps.iter().map(|step| {
        let (cause, by) = by(&step.by);
        let (after_ns, time_ns) = (Some(step.from_ns - story.from_ns), step.until_ns - step.from_ns);
        StepView { after_ns, time_ns, processor: Some(step.processor), cause, by }
    });
    let rest = story.rest.iter().map(|(who, time_ns)| {
        let (cause, by) = by(who);
        StepView { after_ns: None, time_ns: *time_ns, processor: None, cause, by }
    });
    in_order.chain(rest).collect()
}
