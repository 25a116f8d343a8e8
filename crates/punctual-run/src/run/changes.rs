//! Events of the host file: units get other parameters, pools other policies, while the run goes on.

use punctual_enforce::session::{Session, UnitHandle};
use punctual_model::Host;
use punctual_model::host::Change;
use punctual_model::index::{PoolIx, VcpuIx};
use punctual_sched::Duration;

use super::error::Error;

/// The events of a host that are still to come.
pub(super) struct Changes<'a> {
    host: &'a Host,
    /// The pools that have domains, as the session numbers them.
    pools: &'a [PoolIx],
    /// How many events have happened.
    done: usize,
}

impl<'a> Changes<'a> {
    pub(super) fn new(host: &'a Host, pools: &'a [PoolIx]) -> Self {
        Changes { host, pools, done: 0 }
    }

    /// How many events have happened.
    pub(super) fn done(&self) -> usize {
        self.done
    }

    /// How long after the start of the tasks the next one is due.
    pub(super) fn next(&self) -> Option<Duration> {
        self.host.events.get(self.done).map(|event| event.at)
    }

    /// Carries out one event if it is due; what changed, in words.
    pub(super) fn carry_out(
        &mut self,
        elapsed: Duration,
        session: &mut Session,
        units: &[UnitHandle],
    ) -> Option<String> {
        let host = self.host;
        let event = host.events.get(self.done).filter(|event| event.at <= elapsed)?;
        self.done += 1;
        match &event.change {
            Change::Params { domain, .. } => {
                for vcpu in host.domains[domain.0].vcpus.clone() {
                    let name = &host.vcpus[vcpu].name;
                    let params = host.vcpu_params_after(VcpuIx(vcpu), self.done);
                    // A vCPU that came again is the last of its name.
                    if let Some(unit) = units.iter().rfind(|unit| unit.name == *name) {
                        session.adjust_unit(unit, &params);
                    }
                }
            }
            Change::Policy { pool, policy } => {
                if let Some(index) = self.pools.iter().position(|known| known == pool) {
                    session.replace_policy(index, policy);
                }
            }
        }
        Some(format!("event `{}`: {}", event.name, event.change.text(host)))
    }
}

/// Can the events of the host be carried out on a real host?
///
/// # Errors
/// A pool of several processors would need queues of another kind.
pub(super) fn check(host: &Host) -> Result<(), Error> {
    let mut policies: Vec<_> = host.pools.iter().map(|pool| pool.policy.info).collect();
    for event in &host.events {
        let Change::Policy { pool, policy } = &event.change else { continue };
        let before = std::mem::replace(&mut policies[pool.0], policy.info);
        if host.pools[pool.0].processors.len() > 1 && before.shared_queue != policy.info.shared_queue {
            let (event, policies) = (event.name.clone(), [before.name, policy.info.name]);
            return Err(Error::Replace { event, policies });
        }
    }
    Ok(())
}
