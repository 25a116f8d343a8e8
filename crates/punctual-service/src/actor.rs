//! A VM of the host, or a cgroup that a class names, and its life.
//!
//! | state | joins a class | leaves its class | is held | is let go of | ends |
//! |---|---|---|---|---|---|
//! | seen | matched | seen | – | seen | released |
//! | matched | matched (maybe another class) | seen | held | matched | released |
//! | held | held (maybe another class) | seen | held | matched | released |
//! | released | – | – | – | – | released |
//!
//! "–": it cannot happen; [`State::after`] returns `None`. Each step may come twice (from the hook and from
//! discovery, say); the second time changes nothing. [`crate::registry::Registry`] alone makes the steps. A
//! service that only observes holds nobody.

use std::time::Instant;

use punctual_linux::vmm::{Monitor, Role};
use punctual_model::service::Adjustment;
use serde::{Deserialize, Serialize};

use crate::sample::{Sampled, Threads};

/// Where an actor is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// It runs, and no class fits.
    Seen,
    /// It runs and belongs to a class.
    Matched,
    /// Its vCPUs, or all its threads, are under enforcement, as its class says.
    Held,
    /// Its process has ended, runs another program, or left the cgroup. Nothing about it is kept.
    Released,
}

/// What happens to an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    Join,
    Leave,
    Hold,
    LetGo,
    End,
}

impl State {
    /// The state after a step, by the table above; `None` where the step cannot happen.
    pub fn after(self, step: Step) -> Option<State> {
        match (self, step) {
            (State::Seen | State::Matched, Step::Join) => Some(State::Matched),
            (State::Held, Step::Join) => Some(State::Held),
            (State::Seen | State::Matched | State::Held, Step::Leave) => Some(State::Seen),
            (State::Matched | State::Held, Step::Hold) => Some(State::Held),
            (State::Matched | State::Held, Step::LetGo) => Some(State::Matched),
            (State::Seen, Step::LetGo) => Some(State::Seen),
            (_, Step::End) => Some(State::Released),
            (State::Seen, Step::Hold) | (State::Released, _) => None,
        }
    }

    /// A word for it, as tables and JSON show it.
    pub fn name(self) -> &'static str {
        match self {
            State::Seen => "seen",
            State::Matched => "matched",
            State::Held => "held",
            State::Released => "released",
        }
    }
}

/// What an actor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A VM.
    Vm(Monitor),
    /// A systemd unit: a service or scope, with all its processes.
    Unit,
    /// Another cgroup, with all its processes.
    Cgroup,
}

impl What {
    /// A word for it, as JSON shows it.
    pub fn name(self) -> &'static str {
        match self {
            What::Vm(_) => "vm",
            What::Unit => "unit",
            What::Cgroup => "cgroup",
        }
    }

    /// A word for it in a sentence.
    pub fn word(self) -> &'static str {
        match self {
            What::Vm(_) => "VM",
            What::Unit => "unit",
            What::Cgroup => "cgroup",
        }
    }
}

/// A VM of this host, by its monitor's process; or a cgroup, by the oldest process in it.
#[derive(Debug)]
pub struct Actor {
    pub what: What,
    /// The monitor's process, or the oldest one of a cgroup.
    pub process: u32,
    /// When the process started, in clock ticks since boot: with `process`, its identity.
    pub start_ticks: u64,
    /// The VM's name; of a VM without one, the monitor and its process. Two VMs may have the same. That of a
    /// unit, or the path of another cgroup.
    pub name: String,
    pub uuid: Option<String>,
    /// What libvirt knows of it, if libvirt runs it.
    pub libvirt: Option<Libvirt>,
    /// The user of the process, or of the cgroup's directory.
    pub owner: u32,
    /// Is the owner one whose VMs and cgroups are believed to be what they say? Others match no class.
    pub is_trusted: bool,
    /// The systemd unit of the process.
    pub unit: Option<String>,
    /// The cgroup of the process, by its path below the root of version 2.
    pub cgroup: Option<String>,
    /// When it was seen.
    pub seen: Instant,
    pub seen_realtime_us: u64,
    pub threads: Threads,
    /// See the module.
    pub(crate) state: State,
    /// The class to which it belongs, by name.
    pub(crate) class: Option<String>,
    /// Other classes that fit, by name.
    pub(crate) other_classes: Vec<String>,
    /// What somebody asked for at the control interface.
    pub(crate) wishes: Wishes,
}

/// What somebody asked for at the control interface, for as long as the VM's process runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wishes {
    /// What the VM gets instead of what class and metadata say.
    #[serde(default)]
    pub adjustment: Adjustment,
    /// Is it to be left alone?
    #[serde(default)]
    pub is_paused: bool,
}

/// What libvirt's files say of a VM beside its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Libvirt {
    /// The class in its metadata.
    pub class: Option<String>,
    /// What its metadata gives instead of what the class gives.
    pub adjustment: Adjustment,
    /// What is wrong with its metadata.
    pub wrong: Vec<String>,
}

impl Actor {
    pub fn state(&self) -> State {
        self.state
    }

    /// Its kind and name, for a sentence.
    pub fn label(&self) -> String {
        format!("{} {}", self.what.word(), self.name)
    }

    /// Does its class give one budget to all its threads together?
    pub fn is_group(&self) -> bool {
        !matches!(self.what, What::Vm(_))
    }

    /// How many vCPUs it has; 1 for a cgroup, all of whose threads have one budget.
    pub fn vcpus(&self) -> usize {
        let is_vcpu = |one: &&Sampled| matches!(one.thread.role, Role::Vcpu(_));
        if self.is_group() { 1 } else { self.threads.list().iter().filter(is_vcpu).count() }
    }

    /// The class to which it belongs, by name.
    pub fn class(&self) -> Option<&str> {
        self.class.as_deref()
    }

    /// What it is to get instead of what its class gives: by the control interface, else by its metadata.
    /// [`Registry::params`](crate::registry::Registry::params) knows whether that is possible.
    pub fn adjustment(&self) -> Adjustment {
        let metadata = self.libvirt.as_ref().map(|libvirt| libvirt.adjustment).unwrap_or_default();
        self.wishes.adjustment.over(metadata)
    }

    /// Is it to be left alone?
    pub fn is_paused(&self) -> bool {
        self.wishes.is_paused
    }

    /// Makes a step.
    ///
    /// # Panics
    /// In builds with debug assertions, where the step cannot happen.
    pub(crate) fn step(&mut self, step: Step) {
        let next = self.state.after(step);
        debug_assert!(next.is_some(), "{step:?} of an actor that is {:?}", self.state);
        self.state = next.unwrap_or(self.state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_transitions_is_whole_and_steps_repeat() {
        use State::{Held, Matched, Released, Seen};
        let steps = [Step::Join, Step::Leave, Step::Hold, Step::LetGo, Step::End];
        for (state, expected) in [
            (Seen, [Some(Matched), Some(Seen), None, Some(Seen), Some(Released)]),
            (Matched, [Some(Matched), Some(Seen), Some(Held), Some(Matched), Some(Released)]),
            (Held, [Some(Held), Some(Seen), Some(Held), Some(Matched), Some(Released)]),
            (Released, [None, None, None, None, Some(Released)]),
        ] {
            let after = steps.map(|step| (step, state.after(step)));
            assert_eq!(after.map(|(_, next)| next), expected, "{state:?}");
            for (step, next) in after {
                if let Some(next) = next {
                    assert_eq!(next.after(step), Some(next), "{step:?} twice");
                }
            }
        }
    }
}
