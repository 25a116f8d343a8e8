//! What a host is between its events.

use punctual_sched::{Duration, UnitParams};

use crate::host::{Change, Host};
use crate::index::VcpuIx;

impl Change {
    /// What changes, in words.
    pub fn text(&self, host: &Host) -> String {
        match self {
            Change::Params { domain, given } => {
                let time = |key: &str, time: Option<Duration>| time.map(|time| format!("{key} {time}"));
                let number = |key: &str, number: Option<u32>| number.map(|number| format!("{key} {number}"));
                let given = [
                    time(UnitParams::BUDGET, given.budget),
                    time(UnitParams::PERIOD, given.period),
                    time(UnitParams::DEADLINE, given.deadline),
                    number(UnitParams::PRIORITY, given.priority),
                    number(UnitParams::WEIGHT, given.weight),
                    number(UnitParams::CAP_PERCENT, given.cap_percent),
                    given.extratime.map(|flag| format!("{} {flag}", UnitParams::EXTRATIME)),
                ];
                let given: Vec<String> = given.into_iter().flatten().collect();
                format!("{}: {}", host.domains[domain.0].name, given.join(", "))
            }
            Change::Policy { pool, policy } => {
                format!("pool {}: {}", host.pools[pool.0].name, policy.info.name)
            }
        }
    }
}

/// `params` with those that `given` sets.
pub fn adjusted(params: &UnitParams, given: &UnitParams) -> UnitParams {
    UnitParams {
        budget: given.budget.or(params.budget),
        period: given.period.or(params.period),
        deadline: given.deadline.or(params.deadline),
        priority: given.priority.or(params.priority),
        weight: given.weight.or(params.weight),
        cap_percent: given.cap_percent.or(params.cap_percent),
        extratime: given.extratime.or(params.extratime),
        ..params.clone()
    }
}

/// A host between two of its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mode {
    /// When it begins.
    pub from: Duration,
    /// The events with which it begins, by index; none for the first one, unless some are at time zero.
    pub events: Vec<usize>,
    /// The host as it is then, without events.
    pub host: Host,
}

impl Host {
    /// What the host is from its beginning on and after each of its events; those of one instant are one.
    pub fn modes(&self) -> Vec<Mode> {
        let mut host = Host { events: Vec::new(), ..self.clone() };
        let mut modes: Vec<Mode> = Vec::new();
        let begin = Mode { from: Duration::ZERO, events: Vec::new(), host: host.clone() };
        modes.push(begin);
        for (ix, event) in self.events.iter().enumerate() {
            host.apply(&event.change);
            let is_new = modes.last().is_none_or(|mode| mode.from != event.at);
            if is_new {
                modes.push(Mode { from: event.at, events: Vec::new(), host: host.clone() });
            }
            if let Some(mode) = modes.last_mut() {
                mode.host.clone_from(&host);
                mode.events.push(ix);
            }
        }
        modes
    }

    /// The parameters of a vCPU as the policy above it gets them after the first `events` events, as
    /// [`Host::vcpu_params`] without any.
    pub fn vcpu_params_after(&self, vcpu: VcpuIx, events: usize) -> UnitParams {
        let own = self.vcpus[vcpu.0].domain;
        self.events[..events].iter().fold(self.vcpu_params(vcpu), |params, event| match &event.change {
            Change::Params { domain, given } if *domain == own => adjusted(&params, given),
            _ => params,
        })
    }

    /// The host as it is after the change.
    fn apply(&mut self, change: &Change) {
        match change {
            Change::Params { domain, given } => {
                for vcpu in &mut self.vcpus[self.domains[domain.0].vcpus.clone()] {
                    vcpu.params = adjusted(&vcpu.params, given);
                }
            }
            Change::Policy { pool, policy } => self.pools[pool.0].policy.clone_from(policy),
        }
    }
}
