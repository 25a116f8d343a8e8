//! What a host promises: deadlines of tasks, flows and chains, and what they depend on.

use punctual_model::Host;
use punctual_model::host::Parent;
use punctual_model::index::{DomainIx, TaskIx};
use punctual_sched::registry::Budgets;

use crate::answer::Answers;
use crate::inputs::may_run_on;
use crate::network::{Routes, Way};

/// A deadline.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Need {
    Task(TaskIx),
    /// Index into [`Host::flows`].
    Flow(usize),
    /// Index into [`Host::chains`].
    Chain(usize),
}

impl Need {
    /// All deadlines of the host about which there are answers.
    pub(crate) fn all(host: &Host, answers: &Answers) -> Vec<Need> {
        let has_deadline = |flow: &usize| host.flows[*flow].deadline.is_some();
        let flows = (0..host.flows.len()).filter(has_deadline).map(Need::Flow);
        let chains = (0..host.chains.len()).map(Need::Chain);
        answers.tasks.keys().copied().map(Need::Task).chain(flows).chain(chains).collect()
    }

    /// Is it guaranteed?
    pub(crate) fn is_met(self, host: &Host, answers: &Answers) -> bool {
        match self {
            Need::Task(task) => answers.tasks.get(&task).is_some_and(|of| of.answer.is_guaranteed()),
            Need::Flow(flow) => {
                let deadline = host.flows[flow].deadline;
                answers.flows[flow].as_ref().is_ok_and(|bound| deadline.is_none_or(|least| *bound <= least))
            }
            Need::Chain(chain) => answers.chains[chain].is_ok(),
        }
    }

    pub(crate) fn name(self, host: &Host) -> &str {
        match self {
            Need::Task(task) => &host.tasks[task.0].name,
            Need::Flow(flow) => &host.flows[flow].name,
            Need::Chain(chain) => &host.chains[chain].name,
        }
    }

    /// What it depends on.
    pub(crate) fn way(self, routes: &Routes<'_>) -> Way {
        match self {
            Need::Task(task) => routes.way_of_task(task),
            Need::Flow(flow) => routes.way_of_flow(flow),
            Need::Chain(chain) => routes.way_of_chain(chain),
        }
    }
}

/// Has the host deadlines that depend on several units?
pub(crate) fn is_whole(host: &Host) -> bool {
    let mut domains = (0..host.domains.len()).map(DomainIx);
    !host.flows.is_empty() || !host.chains.is_empty() || domains.any(|domain| has_moving_tasks(host, domain))
}

/// May all tasks of the domain run on all of its several vCPUs, and do these have budgets of their own?
pub(crate) fn has_moving_tasks(host: &Host, domain: DomainIx) -> bool {
    let of = &host.domains[domain.0];
    let Parent::Pool(pool) = of.parent else { return false };
    let is_everywhere = |affinity| (0..of.vcpus.len()).all(|vcpu| may_run_on(affinity, vcpu));
    let mut tasks = host.tasks_of(Parent::Domain(domain)).peekable();
    of.vcpus.len() > 1
        && host.pools[pool.0].policy.info.budgets != Budgets::None
        && !host.shares_budget(domain)
        && !of.vcpus.clone().any(|vcpu| host.vcpus[vcpu].params.best_effort)
        && tasks.peek().is_some()
        && tasks.all(|(_, task)| is_everywhere(task.params.affinity.as_ref()))
}
