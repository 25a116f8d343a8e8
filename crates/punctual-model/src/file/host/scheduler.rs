//! The policy of a pool or guest with its units in it, which judges their parameters.

use punctual_sched::registry::PolicyInfo;
use punctual_sched::{CpuSet, Duration, Instant, ParamError, Policy, UnitId, UnitParams};

use super::draft::EventDraft;
use super::unit::{UnitDraft, UnitKind};
use crate::file::error::Errors;
use crate::host::PolicyChoice;
use crate::index::DomainIx;
use crate::modes::adjusted;

/// Unit parameters that a task has among its own keys.
const TASK_OWN: [&str; 2] = ["priority", "affinity"];

pub(super) struct Scheduler<'d> {
    choice: &'d PolicyChoice,
    policy: Box<dyn Policy>,
    cpus: usize,
    units: Vec<Unit<'d>>,
}

struct Unit<'d> {
    /// The domain that it is a vCPU of.
    domain: Option<DomainIx>,
    params: UnitParams,
    draft: &'d UnitDraft,
    /// `None`: the policy has refused it.
    id: Option<UnitId>,
}

impl<'d> Scheduler<'d> {
    /// The policy at the beginning of the run, with each unit and the domain that it is a vCPU of. `None`:
    /// the policy cannot be built; its options have been checked.
    pub(super) fn new(
        choice: &'d PolicyChoice,
        cpus: usize,
        units: &[(Option<DomainIx>, &'d UnitDraft)],
        errors: &mut Errors,
    ) -> Option<Self> {
        let unit = |&(domain, draft): &(_, &'d UnitDraft)| Unit {
            domain,
            params: draft.params.clone(),
            draft,
            id: None,
        };
        let mut units: Vec<Unit<'_>> = units.iter().map(unit).collect();
        let policy = insert(choice, cpus, Duration::ZERO, &mut units, errors)?;
        Some(Scheduler { choice, policy, cpus, units })
    }

    /// Another policy gets the units.
    pub(super) fn change(&mut self, choice: &'d PolicyChoice, at: Duration, errors: &mut Errors) {
        if let Some(policy) = insert(choice, self.cpus, at, &mut self.units, errors) {
            (self.choice, self.policy) = (choice, policy);
        }
    }

    /// Gives the vCPUs of a domain the parameters of an event.
    pub(super) fn adjust(&mut self, event: &EventDraft, domain: DomainIx, errors: &mut Errors) {
        let at = Instant::ZERO + event.event.at;
        let mut resched = CpuSet::new(self.cpus);
        for unit in self.units.iter_mut().filter(|unit| unit.domain == Some(domain)) {
            let params = adjusted(&unit.params, &event.unit.params);
            let Some(id) = unit.id else { continue };
            if let Err(e) = self.policy.adjust(at, id, &params, &mut resched) {
                // Once, not for each vCPU.
                return refused(self.choice.info, &event.unit, &e, errors);
            }
            unit.params = params;
        }
    }
}

/// The policy with the units inserted at `at`.
fn insert(
    choice: &PolicyChoice,
    cpus: usize,
    at: Duration,
    units: &mut [Unit<'_>],
    errors: &mut Errors,
) -> Option<Box<dyn Policy>> {
    let params = units.iter().map(|unit| &unit.params);
    let mut policy = choice.info.build_for(cpus, &choice.options, params).ok()?;
    for unit in units {
        unit.id = match policy.insert(Instant::ZERO + at, &unit.params) {
            Ok(id) => Some(id),
            Err(e) => {
                refused(choice.info, unit.draft, &e, errors);
                None
            }
        };
    }
    Some(policy)
}

/// Adds the error with which a policy refuses the parameters of a unit.
pub(crate) fn refused(policy: &PolicyInfo, unit: &UnitDraft, error: &ParamError, errors: &mut Errors) {
    let place = unit.place_of(error.field());
    match error {
        ParamError::Missing { field } => {
            let help = policy.unit_params.iter().find(|p| p.name == *field).map_or("", |p| p.help);
            let own = matches!(unit.kind, UnitKind::Vcpu) || TASK_OWN.contains(field);
            let in_server = if own { "" } else { " in the task's `server`" };
            let message = format!("`{field}` is missing: policy `{}` needs it", policy.name);
            let or = match unit.kind {
                UnitKind::Vcpu if *field == UnitParams::BUDGET => {
                    ", or `best_effort = true`; `punctual synthesize` finds budgets"
                }
                _ => "",
            };
            errors.add(place, message, format!("expected `{field}`{in_server}: {help}{or}"));
        }
        ParamError::OutOfRange { field, expected } => {
            let of = match &unit.kind {
                UnitKind::Generated(name) => format!(" of generated task `{name}`"),
                UnitKind::Vcpu | UnitKind::Task => String::new(),
            };
            let message = format!("policy `{}` refuses `{field}`{of}", policy.name);
            errors.add(place, message, format!("expected {expected}"));
        }
    }
}
