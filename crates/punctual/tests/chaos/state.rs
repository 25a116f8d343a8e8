//! What a run may change, before and after.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use punctual_doctor::doctor::{self, Change, Root};
use punctual_linux::os::sched::{Attributes, affinity, attributes};
use punctual_linux::os::{cgroup, proc};
use punctual_linux::preflight::RT_RUNTIME;

use super::victims::Victim;

/// How a thread is scheduled, and its group.
type Place = (Attributes, Vec<usize>, String);

/// What a run may change.
#[derive(Clone, Debug)]
pub(crate) struct State {
    /// By process, then by thread.
    victims: BTreeMap<i32, BTreeMap<i32, Place>>,
    kernel: BTreeMap<i32, Place>,
    settings: BTreeMap<PathBuf, String>,
    /// Groups of runs, in the victims' groups and below the mount.
    groups: Vec<PathBuf>,
}

fn place(tid: i32) -> Option<Place> {
    Some((attributes(tid).ok()?, affinity(tid).ok()?, cgroup::group_of(tid).ok()?))
}

/// The settings of the machine that a run may change: what the doctor proposes, and the real-time limit.
pub(crate) fn settings() -> Vec<PathBuf> {
    let findings = doctor::examine(Root::new(Path::new("/")), Some([super::PROCESSOR].into_iter().collect()));
    let changes = findings.map(|findings| doctor::reversible_changes(&findings)).unwrap_or_default();
    let files = changes.into_iter().filter_map(|change| match change {
        Change::SetFile { path, .. } => Some(path),
        Change::HoldOpen { .. } | Change::SetThreadPriority { .. } => None,
    });
    files.chain([PathBuf::from(RT_RUNTIME)]).collect()
}

impl State {
    pub(crate) fn read(victims: &[Victim], settings: &[PathBuf]) -> State {
        let places =
            |threads: Vec<i32>| threads.into_iter().filter_map(|tid| Some((tid, place(tid)?))).collect();
        let kernel = ["rcu", "ktimers/"].into_iter();
        let kernel = kernel.flat_map(|prefix| proc::kernel_threads(prefix).unwrap_or_default());
        let setting = |path: &PathBuf| (path.clone(), fs::read_to_string(path).unwrap_or_default());
        let mut groups = Vec::new();
        let mount = cgroup::mount().unwrap_or_default();
        for directory in victims.iter().map(|victim| victim.group.clone()).chain([mount]) {
            let entries = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
            let is_of_run = |path: &PathBuf| {
                path.is_dir()
                    && path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("punctual-"))
            };
            groups.extend(entries.filter(is_of_run));
        }
        groups.sort();
        groups.dedup();
        State {
            victims: victims.iter().map(|victim| (victim.id(), places(victim.threads()))).collect(),
            kernel: places(kernel.collect()),
            settings: settings.iter().map(setting).collect(),
            groups,
        }
    }

    /// The class that a thread had.
    pub(crate) fn attributes(&self, tid: i32) -> Option<Attributes> {
        self.victims.values().find_map(|threads| threads.get(&tid)).map(|(attributes, ..)| *attributes)
    }

    /// An operator has set the real-time limit, which stays.
    pub(crate) fn set_rt_limit(&mut self, text: &str) {
        self.settings.insert(RT_RUNTIME.into(), format!("{text}\n"));
    }

    /// How `now` differs from this: threads, killed or stopped victims, settings, groups.
    pub(crate) fn differences(&self, now: &State) -> Vec<String> {
        let mut all = Vec::new();
        for (process, threads) in &self.victims {
            match proc::stat(*process) {
                Ok(stat) if !matches!(stat.state, 'Z' | 'X' | 'T') => {}
                other => all.push(format!("victim {process}: {other:?}")),
            }
            let Some(first) = threads.get(process) else { continue };
            for (tid, is) in now.victims.get(process).into_iter().flatten() {
                // A thread that came has what its process had.
                let was = threads.get(tid).unwrap_or(first);
                if is != was {
                    all.push(format!("thread {tid} of {process}: {is:?}, before {was:?}"));
                }
            }
        }
        for (tid, was) in &self.kernel {
            if now.kernel.get(tid) != Some(was) {
                all.push(format!("kernel thread {tid}: {:?}, before {was:?}", now.kernel.get(tid)));
            }
        }
        for (path, was) in &self.settings {
            let is = now.settings.get(path);
            if is != Some(was) {
                all.push(format!("{}: {is:?}, before {was:?}", path.display()));
            }
        }
        let new = now.groups.iter().filter(|group| !self.groups.contains(group));
        all.extend(new.map(|group| format!("group {} is left", group.display())));
        all
    }
}
