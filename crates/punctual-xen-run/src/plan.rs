//! Can a host file be run in Xen, and as what? Nothing is started.

use punctual_guest::protocol;
use punctual_model::Host;
use punctual_model::host::{Parent, Work};
use punctual_model::index::{DomainIx, PoolIx, TaskIx};
use punctual_model::live::Backend;

use crate::error::Error;
use punctual_vm::workload;

/// The domain that is there already.
pub(crate) const MANAGER: &str = "Domain-0";
/// The cpupool that is there already, with [`MANAGER`] in it.
pub(crate) const FIRST_POOL: &str = "Pool-0";

/// A host file as cpupools and guests.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The pool that is Xen's first one: that of [`MANAGER`].
    pub first: Option<PoolIx>,
    /// The guests, with the tasks that each is to run.
    pub guests: Vec<(DomainIx, Vec<(TaskIx, protocol::Task)>)>,
    /// [`MANAGER`], where the file has it.
    pub manager: Option<DomainIx>,
}

impl Plan {
    /// # Errors
    /// What no run in Xen can do.
    pub(crate) fn new(host: &Host) -> Result<Plan, Error> {
        let error = |item: &str, why: &str| Error::Host { item: item.into(), why: why.into() };
        if !host.networks.is_empty() {
            return Err(error(&host.name, "networks are simulated only"));
        }
        if let Some(event) = host.events.first() {
            let why = "a run in Xen has no events; `punctual xen set` and `xen pool` change what runs";
            return Err(error(&event.name, why));
        }
        if let Some(task) = host.tasks.iter().find(|task| matches!(task.parent, Parent::Pool(_))) {
            return Err(error(&task.name, "Xen schedules vCPUs: a task belongs into a domain"));
        }
        let (mut guests, mut manager) = (Vec::new(), None);
        for (index, domain) in host.domains.iter().enumerate() {
            let ix = DomainIx(index);
            if matches!(domain.parent, Parent::Domain(_)) {
                return Err(error(&domain.name, "a domain inside another one is simulated only"));
            }
            if domain.name == MANAGER {
                let tasks = || host.tasks_of(Parent::Domain(ix));
                if let Some((_, hog)) = tasks().find(|(_, task)| matches!(task.work, Work::Hog { .. })) {
                    return Err(error(&hog.name, "domain 0 runs no tasks: a hog there is simulated only"));
                }
                manager = Some(ix);
                continue;
            }
            if host.shares_budget(ix) {
                return Err(error(
                    &domain.name,
                    "in Xen each vCPU has a budget of its own: no `budget_of = \"vm\"`",
                ));
            }
            if domain.live.backend != Backend::Default {
                return Err(error(
                    &domain.name,
                    "in Xen a domain is a guest of the project's: no `vm`, \
                                                `process` or `attach`",
                ));
            }
            guests.push((ix, workload::tasks::of_domain(host, ix, false)?));
        }
        if guests.is_empty() {
            return Err(error(&host.name, "there is no domain to run"));
        }
        let first = manager.map(|ix| host.pool_of(host.domains[ix.0].parent));
        let taken: usize = host.pools.iter().map(|pool| pool.processors.len()).sum();
        if first.is_none() && taken >= host.processors {
            return Err(error(
                &host.name,
                "domain 0 needs a processor: leave one out of every pool, or say what domain 0 may have in a \
                 domain of this name: [domain.Domain-0] budget = \"500us\", period = \"10ms\"",
            ));
        }
        Ok(Plan { first, guests, manager })
    }
}

#[cfg(test)]
mod tests {
    use punctual_model::file::{self, Overrides};

    use super::*;

    fn plan(text: &str) -> Result<Plan, String> {
        let text = format!("name = \"h\"\nduration = \"1s\"\n[machine]\nprocessors = 1\n{text}");
        let host = file::parse(&text, "h.toml", &Overrides::default()).expect("a host");
        Plan::new(&host).map_err(|error| error.to_string())
    }

    const POOL: &str = "[pool.p]\nprocessors = [0]\npolicy = \"deferrable\"\n";
    const ONE: &str = "[domain.one]\nbudget = \"4ms\"\nperiod = \"10ms\"\npriority = 1\n\
                       task.burn = { hog = true }\n";
    const ZERO: &str = "[domain.Domain-0]\nbudget = \"1ms\"\nperiod = \"10ms\"\npriority = 0\n\
                        task.tools = { period = \"1s\", cost = \"1us\" }\n";

    #[test]
    fn the_pool_of_domain_0_is_the_first_one_and_domain_0_is_no_guest() {
        let plan = plan(&format!("{POOL}{ONE}{ZERO}")).expect("runs");
        assert_eq!((plan.first, plan.manager, plan.guests.len()), (Some(PoolIx(0)), Some(DomainIx(1)), 1));
    }

    #[test]
    fn what_xen_cannot_do_is_said() {
        let error = plan(&format!("{POOL}{ONE}")).expect_err("domain 0 has no processor");
        assert!(error.starts_with("h: domain 0 needs a processor"), "{error}");
        let process = format!("{POOL}{ZERO}{ONE}process = {{ command = [\"sleep\"] }}\n");
        assert!(plan(&process).is_err_and(|error| error.starts_with("one: in Xen a domain is a guest")));
        let hog = ZERO.replace("{ period = \"1s\", cost = \"1us\" }", "{ hog = true }");
        assert!(
            plan(&format!("{POOL}{ONE}{hog}")).is_err_and(|error| error.contains("domain 0 runs no tasks"))
        );
    }
}
