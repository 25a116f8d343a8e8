//! Hints of KVM to why the vCPUs of a VM wait: how often they waited for each other, lost their processors,
//! and halted. They are no causes, and no time is counted by them.
//!
//! With each sample the counters of debugfs ([`kvm`]) are read of each VM that ran or waited since the sample
//! before. They are sums of all vCPUs. Nothing is mounted for them, and no monitor is asked: QEMU's
//! `query-stats` has the same for each vCPU, but takes the monitor, which has one client at a time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use punctual_linux::os::kvm::{self, Counter, Counters, Unreadable, VmCounters};
use punctual_linux::os::proc::SchedStat;
use serde::{Deserialize, Serialize};

use crate::actor::{Actor, What};
use crate::registry::Registry;
use crate::waits::{self, Counted, PART_NS, PARTS};

/// VMs without counters are looked for with so many samples after they were seen, then now and then.
const SAMPLES_AT_FIRST: u64 = 10;
const SAMPLES_BETWEEN: u64 = 10;

/// What KVM counted, all vCPUs together; absent where the kernel has no such counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountsView {
    /// The guest's kernel asked that another vCPU runs, which it waits for and knows to be preempted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub yields_attempted: Option<u64>,
    /// That vCPU ran at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub yields_successful: Option<u64>,
    /// A vCPU lost its processor where the guest's kernel can be told so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preemptions_reported: Option<u64>,
    /// A vCPU lost its processor elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preemptions_other: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halts: Option<u64>,
    /// KVM polled for the end of a halt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub polls_attempted: Option<u64>,
    /// The halt ended meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub polls_successful: Option<u64>,
    /// How long vCPUs slept in halts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halt_wait_ns: Option<u64>,
}

/// The hints of a VM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HintsView {
    /// Why there are no counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Since the service saw the VM.
    #[serde(default)]
    pub total: CountsView,
    /// In the time that was asked for, an hour if none was, to five minutes.
    #[serde(default)]
    pub lately: CountsView,
}

impl From<&Counters> for CountsView {
    fn from(counters: &Counters) -> CountsView {
        CountsView {
            yields_attempted: counters[Counter::YieldAttempted],
            yields_successful: counters[Counter::YieldSuccessful],
            preemptions_reported: counters[Counter::PreemptionReported],
            preemptions_other: counters[Counter::PreemptionOther],
            halts: counters[Counter::Halts],
            polls_attempted: counters[Counter::PollAttempted],
            polls_successful: counters[Counter::PollSuccessful],
            halt_wait_ns: counters[Counter::HaltWaitNs],
        }
    }
}

/// What is known of a VM.
#[derive(Debug, Default)]
struct Vm {
    counters: Option<VmCounters>,
    /// Samples since it was seen.
    samples: u64,
    reason: Option<String>,
    /// At the last look, and when that was.
    last: Option<(Counters, u64)>,
    total: Counters,
    /// By parts of the last hour, by their numbers.
    parts: VecDeque<(u64, Counters)>,
}

impl Vm {
    /// Is it to be looked for?
    fn is_due(&self) -> bool {
        let is_young = self.samples < SAMPLES_AT_FIRST;
        self.counters.is_none() && (is_young || self.samples.is_multiple_of(SAMPLES_BETWEEN))
    }

    /// Reads what was counted since the last look; from when, and what.
    fn read(&mut self, now_ns: u64) -> Option<(u64, Counters)> {
        let counters = match self.counters.as_ref()?.read() {
            Ok(counters) => counters,
            Err(error) => {
                if matches!(error, Unreadable::Gone) {
                    // The process may make another VM, which counts from 0.
                    (self.counters, self.last) = (None, None);
                }
                self.reason = Some(error.to_string());
                return None;
            }
        };
        self.reason = None;
        let (before, since_ns) = self.last.replace((counters, now_ns))?;
        let since = counters.since(&before);
        self.total = self.total.plus(&since);
        self.add(now_ns, &since);
        Some((since_ns, since))
    }

    fn add(&mut self, now_ns: u64, since: &Counters) {
        let number = now_ns / PART_NS;
        match self.parts.back_mut() {
            Some((last, counters)) if *last == number => *counters = counters.plus(since),
            _ => self.parts.push_back((number, *since)),
        }
        while self.parts.front().is_some_and(|(first, _)| first + (PARTS as u64) < number) {
            self.parts.pop_front();
        }
    }

    fn view(&self, from_ns: u64) -> HintsView {
        let parts = self.parts.iter().filter(|(number, _)| (number + 1) * PART_NS > from_ns);
        let lately = parts.fold(Counters::default(), |sum, (_, counters)| sum.plus(counters));
        let reason = self.reason.clone().filter(|_| !self.total.has_any());
        HintsView { reason, total: CountsView::from(&self.total), lately: CountsView::from(&lately) }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Hints {
    root: PathBuf,
    vms: BTreeMap<u32, Vm>,
}

impl Hints {
    /// Those of the machine whose root directory is `root`.
    pub(crate) fn new(root: &Path) -> Hints {
        Hints { root: root.to_owned(), vms: BTreeMap::new() }
    }

    /// Reads the counters of all VMs that ran or waited since the last sample, after their threads were
    /// sampled.
    pub(crate) fn sample(&mut self, registry: &Registry, now_ns: u64) -> Vec<Counted> {
        let vms: Vec<&Actor> = registry.actors().filter(|actor| matches!(actor.what, What::Vm(_))).collect();
        self.vms.retain(|process, _| vms.iter().any(|actor| actor.process == *process));
        for actor in &vms {
            self.vms.entry(actor.process).or_default();
        }
        self.find(&vms);
        let mut counted = Vec::new();
        for actor in vms {
            let Some(vm) = self.vms.get_mut(&actor.process) else { continue };
            vm.samples += 1;
            if !has_done_something(actor) && vm.last.is_some() {
                continue;
            }
            if let Some((from_ns, since)) = vm.read(now_ns) {
                let yields = since[Counter::YieldAttempted].unwrap_or(0);
                counted.push(Counted { vm: actor.process, from_ns, until_ns: now_ns, yields });
            }
        }
        counted
    }

    /// Looks for the VMs that have no counters yet.
    fn find(&mut self, vms: &[&Actor]) {
        let due: Vec<&&Actor> =
            vms.iter().filter(|actor| self.vms.get(&actor.process).is_some_and(Vm::is_due)).collect();
        if due.is_empty() {
            return;
        }
        let listed = match waits::known_ids(&self.root.join("proc")) {
            Ok(()) => kvm::vms(&self.root).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        for actor in due {
            let Some(vm) = self.vms.get_mut(&actor.process) else { continue };
            let threads: BTreeSet<u32> = actor.threads.list().iter().map(|one| one.thread.tid).collect();
            let found = match &listed {
                Ok(listed) => {
                    let found = listed.iter().find(|listed| listed.is_of(&threads));
                    let found = found.ok_or_else(|| NO_VM.to_owned());
                    found.and_then(|listed| listed.open().map_err(|error| error.to_string()))
                }
                Err(reason) => Err(reason.clone()),
            };
            match found {
                Ok(counters) => (vm.counters, vm.reason) = (Some(counters), None),
                Err(reason) => vm.reason = Some(reason),
            }
        }
    }

    /// Those of a VM; `lately` since `from_ns`. `None` of one that has not been looked at.
    pub(crate) fn view(&self, vm: u32, from_ns: u64) -> Option<HintsView> {
        self.vms.get(&vm).filter(|vm| vm.samples > 0).map(|vm| vm.view(from_ns))
    }
}

/// Why KVM has no counters of a VM.
const NO_VM: &str = "KVM runs no VM of this process: QEMU may translate it (TCG)";

/// Did a thread of this VM run or wait since the sample before?
fn has_done_something(actor: &Actor) -> bool {
    let recent = actor.threads.list().iter().filter_map(|one| one.recent);
    recent.into_iter().any(|SchedStat { ran, waited, .. }| !ran.is_zero() || !waited.is_zero())
}

#[cfg(test)]
#[path = "hints_tests.rs"]
mod tests;
