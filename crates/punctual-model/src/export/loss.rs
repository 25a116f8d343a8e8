//! What an export leaves out.

use punctual_sched::UnitParams;
use serde::Serialize;

use super::units::task_name;
use crate::host::{Domain, Host, Parent};
use crate::index::{DomainIx, PoolIx};

/// Something of the host that the target does not express, or expresses as something else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Loss {
    /// The domain, vCPU (`video.0`), pool or pool's task (`rt/daemon`).
    pub item: String,
    /// The key of the host file.
    pub field: &'static str,
    /// What becomes of it and why.
    pub why: String,
}

/// The losses found so far.
#[derive(Default)]
pub(super) struct Losses {
    pub(super) list: Vec<Loss>,
}

impl Losses {
    /// Adds a loss, unless it is there already.
    pub(super) fn add(&mut self, item: impl Into<String>, field: &'static str, why: impl Into<String>) {
        let loss = Loss { item: item.into(), field, why: why.into() };
        if !self.list.contains(&loss) {
            self.list.push(loss);
        }
    }

    /// The losses that concern a domain: its own, its vCPUs' and its pool's.
    pub(super) fn of_domain<'a>(
        &'a self,
        host: &'a Host,
        domain: &'a Domain,
    ) -> impl Iterator<Item = &'a Loss> {
        let pool = &host.pools[host.pool_of(domain.parent).0].name;
        self.list.iter().filter(move |loss| {
            let own = loss.item == domain.name || loss.item == *pool;
            own || host.vcpus[domain.vcpus.clone()].iter().any(|v| v.name == loss.item)
        })
    }

    /// Adds the domains whose vCPUs share a budget, which no target knows.
    pub(super) fn add_shared_budgets(&mut self, host: &Host) {
        for (domain, about) in
            host.domains.iter().enumerate().filter(|(ix, _)| host.shares_budget(DomainIx(*ix)))
        {
            let vcpus = about.vcpus.len();
            let why = format!(
                "each vCPU gets the budget that all share: together they may use {vcpus} times as much"
            );
            self.add(&host.domains[domain].name, UnitParams::BUDGET_OF, why);
        }
    }

    /// Adds the changes while the host runs: what is written is how it begins.
    pub(super) fn add_events(&mut self, host: &Host) {
        for event in &host.events {
            let why = format!("the settings are those of the beginning, not of {} later", event.at);
            self.add(format!("event `{}`", event.name), "at", why);
        }
    }

    /// Adds the nested domains: only their outer domains exist at this machine's level.
    pub(super) fn add_nested(&mut self, host: &Host) {
        for domain in &host.domains {
            if let Parent::Domain(DomainIx(outer)) = domain.parent {
                let outer = &host.domains[outer].name;
                let why =
                    format!("it runs inside `{outer}`: set it up there; this export has only `{outer}`");
                self.add(&domain.name, "in", why);
            }
        }
    }

    /// Adds the driver domains of networks: a live run makes them switches, not virtual machines.
    pub(super) fn add_drivers(&mut self, host: &Host) {
        for network in &host.networks {
            let why = format!(
                "it drives the network `{}`, as a virtual machine here; leave it out where \
                 `punctual switch` does",
                network.name
            );
            self.add(&host.domains[network.driver.0].name, "driver", why);
        }
    }

    /// Adds the tasks that are directly in a pool, for tools that know only virtual machines.
    pub(super) fn add_tasks(&mut self, host: &Host, why: &str) {
        for (i, pool) in host.pools.iter().enumerate() {
            for (_, task) in host.tasks_of(Parent::Pool(PoolIx(i))) {
                self.add(task_name(pool, &task.name), "task", why);
            }
        }
    }
}
