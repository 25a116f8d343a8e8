//! What operators and other managers do while runs go on.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use punctual_linux::os::cgroup;
use punctual_linux::os::sched::{self, Attributes, set_affinity, set_attributes};
use punctual_linux::preflight::RT_RUNTIME;
use rustix::process::{Pid, Signal};
use serde_json::json;

use super::Outcome;
use super::runs::{Run, signal};
use super::victims::Victim;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Action {
    Affinity,
    Class,
    Nice,
    Move,
    Cpuset,
    RtLimit,
    StopRun,
    Top,
    Restore,
    SecondRun,
    Pause,
    Reset,
    Save,
    Plug,
}

/// What is done to processes.
pub(crate) const ACTIONS: [Action; 10] = [
    Action::Affinity,
    Action::Class,
    Action::Nice,
    Action::Move,
    Action::Cpuset,
    Action::RtLimit,
    Action::StopRun,
    Action::Top,
    Action::Restore,
    Action::SecondRun,
];

/// What is done to VMs only.
pub(crate) const ACTIONS_OF_VMS: [Action; 4] = [Action::Pause, Action::Reset, Action::Save, Action::Plug];

/// What an operator changed and changes back before the run ends.
#[derive(Default)]
pub(crate) struct Undone {
    moved: Vec<(i32, PathBuf)>,
    narrowed: Vec<i32>,
    /// The real-time limit that was set.
    pub rt_limit: Option<&'static str>,
}

/// A group of cgroup version 2, and one of version 1 with processor 0 alone, where there is one.
pub(crate) struct Elsewhere {
    group: PathBuf,
    cpuset: Option<PathBuf>,
}

const CPUSETS: &str = "/sys/fs/cgroup/cpuset";

impl Elsewhere {
    pub(crate) fn make(name: &str) -> Outcome<Elsewhere> {
        let group = cgroup::mount()?.join(format!("{name}-elsewhere"));
        fs::create_dir_all(&group)?;
        let cpuset = Path::new(CPUSETS).join(name);
        let narrow = || {
            fs::create_dir_all(&cpuset)?;
            fs::write(cpuset.join("cpuset.mems"), "0")?;
            fs::write(cpuset.join("cpuset.cpus"), "0")
        };
        let is_there = Path::new(CPUSETS).join("cpuset.cpus").exists() && narrow().is_ok();
        Ok(Elsewhere { group, cpuset: is_there.then_some(cpuset) })
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = (0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(5));
            let cpuset =
                self.cpuset.as_ref().is_none_or(|cpuset| fs::remove_dir(cpuset).is_ok() || !cpuset.exists());
            (fs::remove_dir(&self.group).is_ok() || !self.group.exists()) && cpuset
        });
    }
}

/// Acts on a victim of a run; `draw` says how. A failure is no fault: the victim's kernel or QEMU may refuse.
pub(crate) fn act(
    action: Action,
    draw: u64,
    (run, victim): (&Run, &Victim),
    elsewhere: &Elsewhere,
    undone: &mut Undone,
) -> Outcome<()> {
    let threads = if draw & 1 == 0 { victim.vcpus() } else { victim.threads() };
    let Some(&tid) = threads.get((draw >> 8) as usize % threads.len().max(1)) else { return Ok(()) };
    let pick = (draw >> 16) as usize;
    match action {
        Action::Affinity => set_affinity(tid, [&[0][..], &[0, 1], &[1]][pick % 3])?,
        Action::Class => {
            let round_robin = Attributes { policy: sched::RR, ..Attributes::fifo(50) };
            let classes = [Attributes::other(), Attributes::idle(), Attributes::fifo(1), round_robin];
            set_attributes(tid, &classes[pick % 4])?;
        }
        Action::Nice => {
            rustix::process::setpriority_process(Pid::from_raw(tid), [10, -5, 19][pick % 3])?;
        }
        Action::Move => {
            undone.moved.push((victim.id(), victim.group.clone()));
            fs::write(elsewhere.group.join("cgroup.procs"), victim.id().to_string())?;
        }
        Action::Cpuset => {
            if let Some(cpuset) = &elsewhere.cpuset {
                undone.narrowed.push(victim.id());
                fs::write(cpuset.join("cgroup.procs"), victim.id().to_string())?;
            }
        }
        Action::RtLimit => {
            let limit = ["960000", "970000"][pick % 2];
            fs::write(RT_RUNTIME, limit)?;
            undone.rt_limit = Some(limit);
        }
        Action::StopRun => {
            signal(run.id(), Signal::STOP);
            std::thread::sleep(Duration::from_millis(20 + draw % 100));
            signal(run.id(), Signal::CONT);
        }
        Action::Top => drop(run.command(&["top", "--once"]).status()?),
        Action::Restore => drop(run.command(&["restore"]).status()?),
        Action::SecondRun => second_run(run)?,
        Action::Pause => {
            victim.monitor("stop", &json!({}))?;
            std::thread::sleep(Duration::from_millis(draw % 200));
            victim.monitor("cont", &json!({}))?;
        }
        Action::Reset => drop(victim.monitor("system_reset", &json!({}))?),
        Action::Save => {
            let line = [("savevm"), ("loadvm")][pick % 2];
            let line = json!({ "command-line": format!("{line} chaos") });
            victim.monitor("human-monitor-command", &line)?;
            victim.monitor("cont", &json!({}))?;
        }
        Action::Plug => victim.plug()?,
    }
    Ok(())
}

/// Another run wants the same victims: it must be refused.
fn second_run(run: &Run) -> Outcome<()> {
    let host = run.host();
    let status = run.command(&["attach", &host, "--duration", "1s"]).status()?;
    if status.code() == Some(2) { Ok(()) } else { Err(format!("a second run of the same: {status}").into()) }
}

impl Undone {
    /// The operator changes back what the run does not: the group of a process, its cpuset.
    pub(crate) fn undo(&mut self) {
        for process in self.narrowed.drain(..) {
            // A victim that has ended is reported as such.
            let _ = fs::write(Path::new(CPUSETS).join("cgroup.procs"), process.to_string());
        }
        for (process, group) in self.moved.drain(..) {
            let _ = fs::write(group.join("cgroup.procs"), process.to_string());
        }
    }
}
