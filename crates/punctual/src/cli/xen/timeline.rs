//! What a pool of Xen decided, as a Perfetto trace.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use punctual_model::Host;
use punctual_model::file::{self, Overrides};
use punctual_model::index::VcpuIx;
use punctual_model::trace::{Entity, Occupant, TraceEvent, TraceSink};
use punctual_report::trace::PerfettoWriter;
use punctual_sched::{Duration, Instant};
use punctual_xen::abi::Params;
use punctual_xen::record::{Call, Calls, Event, NO_UNIT, What};
use punctual_xen::replay::{Replayed, replay};

use super::super::error::Error;
use super::super::output::OutFile;

/// Writes the pool with the most decisions.
///
/// # Errors
/// When it cannot be written, or there is nothing to write.
pub(super) fn write(path: &Path, calls: &Calls, replayed: &[Replayed]) -> Result<(), Error> {
    let Some(most) = replayed.iter().filter(|pool| pool.refused.is_none()).max_by_key(|pool| pool.picks)
    else {
        return Err(Error::Usage("the trace has no pool that can be shown".into()));
    };
    let only: Vec<Call> = calls.calls.iter().filter(|call| call.pool == most.pool).cloned().collect();
    let only = Calls { calls: only, lost: 0 };
    let units = Units::of(&only);
    let host = units.host(&only, most)?;
    let mut out = OutFile::create(path)?;
    let mut writer = PerfettoWriter::new(&host, &mut out);
    let at = |ns: u64| Instant::from_ns(ns.saturating_sub(most.from_ns));
    replay(&only, |call, pool| {
        if let Some(event) = units.event(call) {
            writer.event(at(call.now_ns), event);
        }
        if let Some((unit, vcpu)) = units.told(call)
            && let Ok(account) = pool.account(unit)
            && let Some(left) = account.left
        {
            writer.event(at(call.now_ns), TraceEvent::Budget { unit: Entity::Vcpu(vcpu), left });
        }
    });
    let end = Instant::from_ns(most.until_ns.saturating_sub(most.from_ns)) + Duration::from_ns(1);
    writer.finish(end).map_err(|error| Error::Usage(error.to_string()))?;
    out.finish()
}

/// The vCPU of each of the policy's unit numbers, as far as the trace shows; for a number that was reused,
/// the vCPU that had it last.
struct Units {
    vcpus: BTreeMap<u32, (u16, u16)>,
    params: BTreeMap<(u16, u16), Params>,
    /// In the order of the host's vCPUs.
    order: Vec<(u16, u16)>,
}

impl Units {
    fn of(calls: &Calls) -> Units {
        let (mut vcpus, mut params) = (BTreeMap::new(), BTreeMap::new());
        for call in &calls.calls {
            match &call.what {
                What::Insert { unit, vcpu, params: given, .. } if *unit != NO_UNIT => {
                    vcpus.insert(*unit, *vcpu);
                    params.insert(*vcpu, *given);
                }
                What::Adjust { unit, params: given, refused: false, .. } => {
                    if let Some(vcpu) = vcpus.get(unit) {
                        params.insert(*vcpu, *given);
                    }
                }
                _ => {}
            }
        }
        // A domain has as many vCPUs as the greatest number says.
        let mut counts: BTreeMap<u16, u16> = BTreeMap::new();
        for &(domain, vcpu) in params.keys() {
            let count = counts.entry(domain).or_default();
            *count = (*count).max(vcpu.saturating_add(1));
        }
        let order = counts.iter().flat_map(|(domain, count)| (0..*count).map(|vcpu| (*domain, vcpu)));
        Units { vcpus, params, order: order.collect() }
    }

    /// A host with the names of the trace: domains as `xl list` numbers them.
    fn host(&self, calls: &Calls, pool: &Replayed) -> Result<Host, Error> {
        let processors = calls.calls.iter().filter_map(|call| match call.what {
            What::Pick { cpu, .. } => Some(cpu),
            _ => None,
        });
        let processors = processors.max().unwrap_or(0) + 1;
        let policy = pool.policy.split(',').next().unwrap_or_default();
        let all: Vec<String> = (0..processors).map(|cpu| cpu.to_string()).collect();
        let mut text = format!(
            "name = \"Xen\"\nduration = \"1s\"\n[machine]\nprocessors = {processors}\n[pool.xen]\n\
             processors = [{}]\npolicy = \"{policy}\"\n",
            all.join(", ")
        );
        let mut domains: Vec<u16> = self.order.iter().map(|(domain, _)| *domain).collect();
        domains.dedup();
        for domain in domains {
            let vcpus = self.order.iter().filter(|(of, _)| *of == domain).count();
            let _ = write!(text, "[domain.d{domain}]\nvcpus = {vcpus}\ntask.work = {{ hog = true }}\n");
            if let Some(params) =
                self.params.iter().find(|((of, _), _)| *of == domain).map(|(_, params)| params)
            {
                let (budget, period) = (params.budget_ns, params.period_ns);
                let _ = write!(text, "budget = \"{budget}ns\"\nperiod = \"{period}ns\"\n");
                let _ = writeln!(text, "priority = {}", params.priority);
            }
        }
        Ok(file::parse(&text, "the trace", &Overrides::default())?)
    }

    fn vcpu(&self, unit: u32) -> Option<VcpuIx> {
        let vcpu = self.vcpus.get(&unit)?;
        self.order.iter().position(|other| other == vcpu).map(VcpuIx)
    }

    /// Who was called about.
    fn told(&self, call: &Call) -> Option<(u32, VcpuIx)> {
        let unit = match call.what {
            What::Event { event: Event::Wake | Event::Sleep, unit, .. }
            | What::Pick { run: 1 | 2, unit, .. } => unit,
            _ => return None,
        };
        Some((unit, self.vcpu(unit)?))
    }

    fn event(&self, call: &Call) -> Option<TraceEvent> {
        match call.what {
            What::Pick { cpu, run, unit, .. } => {
                let entity = self.vcpu(unit).map(Entity::Vcpu);
                let occupant = match (run, entity) {
                    (1, Some(unit)) => Occupant::Unit(unit),
                    (2, Some(unit)) => Occupant::IdleFor(unit),
                    _ => Occupant::Idle,
                };
                Some(TraceEvent::Processor { processor: cpu as usize, occupant })
            }
            What::Event { event, unit, .. } => {
                let unit = Entity::Vcpu(self.vcpu(unit)?);
                match event {
                    Event::Wake => Some(TraceEvent::Wake { unit }),
                    Event::Sleep => Some(TraceEvent::Sleep { unit }),
                    Event::Remove | Event::Timer => None,
                }
            }
            _ => None,
        }
    }
}
