//! What is to be done so that what is held becomes what is wanted. Nothing is done here.

use std::collections::BTreeMap;

use punctual_enforce::journal::Identity;
use punctual_model::index::PoolIx;
use punctual_model::service::{ServiceConfig, Threads};
use punctual_sched::UnitParams;

use crate::protocol::{WantedActor, WantedVcpu};

/// What is known of a VM that is held, as far as it decides what is to be done.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HeldAs {
    pub process: Identity,
    pub place: Place,
    /// By number of the vCPU, its thread.
    pub vcpus: BTreeMap<u32, Identity>,
}

impl HeldAs {
    /// What each vCPU gets. Several vCPUs of one VM take turns on a processor.
    pub(crate) fn unit_params(&self) -> UnitParams {
        let has_several = self.vcpus.len() > 1;
        // Others may be plugged in that share the budget of a first one.
        let is_of_vm = has_several || self.place.params.shares_budget;
        UnitParams { vm: is_of_vm.then(|| id(self.process)), ..self.place.params.clone() }
    }
}

/// Where each vCPU of a class is, and what it gets.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Place {
    pub pool: PoolIx,
    pub params: UnitParams,
    /// What its other threads get.
    pub threads: Threads,
}

/// A step. Each can be done alone.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// A VM is no longer held, and is as it was.
    LetGo { process: u32 },
    /// Its vCPUs get other parameters in the same pool.
    Adjust { process: u32, params: UnitParams },
    /// Its other threads get other places, or are scheduled otherwise.
    Move { process: u32, threads: Box<Threads> },
    /// A VM is held that was not.
    Hold { actor: WantedActor, place: Box<Place> },
    /// vCPUs of a VM that is held have threads that they did not have.
    Add { process: u32, vcpus: Vec<WantedVcpu> },
}

/// Where the vCPUs of a VM belong; `None` if its class is not there or has no pool, or if the adjustment is
/// not possible, which the service has checked.
pub(crate) fn place_of(config: &ServiceConfig, actor: &WantedActor) -> Option<Place> {
    let class = config.class(&actor.class)?;
    let params = config.adjusted(class, &actor.adjustment).ok()?;
    Some(Place { pool: class.pool?, params, threads: class.threads.clone() })
}

/// What is to be done first; `None` when all is as it is wanted. Letting go comes first: it makes room.
pub(crate) fn next(
    config: &ServiceConfig,
    wanted: &[WantedActor],
    held: &BTreeMap<u32, HeldAs>,
    is_resting: impl Fn(u32) -> bool,
) -> Option<Action> {
    let find = |process: u32| wanted.iter().find(|actor| id(actor.process) == process);
    for (&process, now) in held {
        let then = find(process).filter(|actor| actor.process == now.process);
        let Some(then) = then.and_then(|actor| place_of(config, actor)) else {
            return Some(Action::LetGo { process });
        };
        // The kernel schedules best effort, and a pool's policy all others; a vCPU stays with its budget.
        let (before, after) = (&now.place.params, &then.params);
        let is_elsewhere = then.pool != now.place.pool
            || (before.best_effort, before.shares_budget) != (after.best_effort, after.shares_budget);
        if is_elsewhere {
            return Some(Action::LetGo { process });
        }
        if then.params != now.place.params {
            return Some(Action::Adjust { process, params: then.params });
        }
        if then.threads != now.place.threads {
            return Some(Action::Move { process, threads: Box::new(then.threads) });
        }
    }
    for actor in wanted {
        let process = id(actor.process);
        if is_resting(process) {
            continue;
        }
        match held.get(&process) {
            Some(now) => {
                let is_new = |vcpu: &&WantedVcpu| now.vcpus.get(&vcpu.number) != Some(&vcpu.thread);
                let vcpus: Vec<WantedVcpu> = actor.vcpus.iter().filter(is_new).copied().collect();
                if !vcpus.is_empty() {
                    return Some(Action::Add { process, vcpus });
                }
            }
            None if actor.vcpus.is_empty() => {}
            None => {
                if let Some(place) = place_of(config, actor) {
                    return Some(Action::Hold { actor: actor.clone(), place: Box::new(place) });
                }
            }
        }
    }
    None
}

/// A process by its id.
pub(crate) fn id(process: Identity) -> u32 {
    u32::try_from(process.id).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use punctual_model::file::{ConfigFile, parse_service};
    use punctual_model::service::Adjustment;
    use punctual_model::topology::Topology;

    use super::*;

    const FILE: &str = "\
        mode = 'enforce'\n\
        [pool.rt]\nprocessors = [1]\npolicy = 'deferrable'\n\
        [pool.bulk]\nprocessors = [2]\npolicy = 'rtds'\n\
        [class.relay]\nmatch = [{ name = '*' }]\npool = 'rt'\nbudget = '2ms'\nperiod = '10ms'\npriority = 1\n\
        [class.more]\nmatch = [{ name = '*' }]\npool = 'rt'\nbudget = '3ms'\nperiod = '10ms'\npriority = 2\n\
        [class.moved]\nmatch = [{ name = '*' }]\npool = 'rt'\nbudget = '3ms'\nperiod = '10ms'\npriority = 2\n\
        threads = { io = 'near' }\n\
        [class.rest]\nmatch = [{ name = '*' }]\npool = 'rt'\nbest_effort = true\n\
        [class.other]\nmatch = [{ name = '*' }]\npool = 'bulk'\nbudget = '2ms'\nperiod = '10ms'\n";

    fn config() -> ServiceConfig {
        parse_service(&[ConfigFile { name: "host.toml".into(), bytes: FILE.into() }], &Topology::flat(4))
            .expect("valid")
    }

    fn identity(id: i32) -> Identity {
        Identity { id, start_ticks: 5 }
    }

    fn actor(process: i32, class: &str, vcpus: u32) -> WantedActor {
        let vcpu = |number: u32| WantedVcpu { number, thread: identity(process * 10 + number as i32) };
        WantedActor {
            process: identity(process),
            name: "vm".into(),
            class: class.into(),
            adjustment: Adjustment::default(),
            cgroup: None,
            vcpus: (0..vcpus).map(vcpu).collect(),
        }
    }

    fn held_as(actor: &WantedActor) -> HeldAs {
        HeldAs {
            process: actor.process,
            place: place_of(&config(), actor).expect("a place"),
            vcpus: actor.vcpus.iter().map(|vcpu| (vcpu.number, vcpu.thread)).collect(),
        }
    }

    /// Carries out what is to be done until nothing is; returns it.
    fn settle(wanted: &[WantedActor], held: &mut BTreeMap<u32, HeldAs>) -> Vec<String> {
        let mut done = Vec::new();
        while let Some(action) = next(&config(), wanted, held, |_| false) {
            assert!(done.len() < 100, "it does not come to an end: {done:?}");
            match action {
                Action::LetGo { process } => {
                    held.remove(&process);
                    done.push(format!("let go {process}"));
                }
                Action::Adjust { process, params } => {
                    done.push(format!("adjust {process} to {:?}", params.budget.map(|b| b.as_ns())));
                    held.get_mut(&process).expect("held").place.params = params;
                }
                Action::Move { process, threads } => {
                    done.push(format!("move the threads of {process}"));
                    held.get_mut(&process).expect("held").place.threads = *threads;
                }
                Action::Hold { actor, place } => {
                    done.push(format!("hold {} in {}", actor.process.id, place.pool.0));
                    held.insert(id(actor.process), held_as(&actor));
                }
                Action::Add { process, vcpus } => {
                    done.push(format!("add {} of {process}", vcpus.len()));
                    let now = held.get_mut(&process).expect("held");
                    now.vcpus.extend(vcpus.iter().map(|vcpu| (vcpu.number, vcpu.thread)));
                }
            }
        }
        done
    }

    #[test]
    fn only_what_changed_is_touched() {
        let mut held = BTreeMap::new();
        let first = [actor(5, "relay", 2), actor(6, "relay", 1)];
        assert_eq!(settle(&first, &mut held), ["hold 5 in 0", "hold 6 in 0"]);
        assert_eq!(settle(&first, &mut held), [""; 0]);
        // Another class in the same pool, another pool, a vCPU more, one that is gone, and a new one.
        let then = [actor(5, "more", 2), actor(6, "other", 1), actor(7, "rest", 1)];
        let done = settle(&then, &mut held);
        assert_eq!(done, ["adjust 5 to Some(3000000)", "let go 6", "hold 6 in 1", "hold 7 in 0"]);
        let then = [actor(5, "more", 3), actor(7, "relay", 1)];
        assert_eq!(settle(&then, &mut held), ["let go 6", "let go 7", "add 1 of 5", "hold 7 in 0"]);
        assert_eq!(settle(&[], &mut held), ["let go 5", "let go 7"]);
    }

    #[test]
    fn threads_move_alone() {
        let mut held = BTreeMap::new();
        settle(&[actor(5, "more", 1)], &mut held);
        assert_eq!(settle(&[actor(5, "moved", 1)], &mut held), ["move the threads of 5"]);
        assert_eq!(settle(&[actor(5, "more", 1)], &mut held), ["move the threads of 5"]);
    }

    #[test]
    fn an_adjusted_vm_stays_where_it_is_with_other_parameters() {
        let mut held = BTreeMap::new();
        let mut vms = [actor(5, "relay", 1), actor(6, "relay", 1)];
        settle(&vms, &mut held);
        vms[1].adjustment.budget_ns = Some(1_000_000);
        assert_eq!(settle(&vms, &mut held), ["adjust 6 to Some(1000000)"]);
        vms[1].adjustment = Adjustment::default();
        assert_eq!(settle(&vms, &mut held), ["adjust 6 to Some(2000000)"]);
    }

    #[test]
    fn another_process_with_the_same_id_is_another_vm() {
        let first = actor(5, "relay", 1);
        let mut held = BTreeMap::from([(5, held_as(&first))]);
        let mut second = first.clone();
        second.process.start_ticks += 1;
        assert_eq!(settle(&[second], &mut held), ["let go 5", "hold 5 in 0"]);
    }

    #[test]
    fn a_vm_waits_for_its_vcpus_its_class_and_its_rest() {
        let wanted = [actor(5, "relay", 0), actor(6, "unknown", 1), actor(7, "relay", 1)];
        assert_eq!(next(&config(), &wanted, &BTreeMap::new(), |process| process == 7), None);
    }
}
