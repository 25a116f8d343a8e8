//! `[domain.NAME.smp]`: what the vCPUs of a guest do together.

use punctual_sched::{CpuId, CpuSet, Duration, UnitParams};

use super::task::{TaskDraft, Tasks};
use super::unit::{UnitDraft, UnitKind};
use crate::file::copies::Copies;
use crate::file::error::Errors;
use crate::file::section::Section;
use crate::host::Work;
use crate::smp::{SmpKind, SmpWork};

/// Reads it, and gives the domain its tasks: one on each vCPU that always has work.
pub(crate) fn smp(
    domain: Section<'_>,
    vcpus: usize,
    tasks: &mut Tasks<'_>,
    errors: &mut Errors,
) -> Option<SmpWork> {
    let section = domain.table("smp", errors)?;
    for key in ["task", "generate", "resource"] {
        if let Some(entry) = domain.get(key) {
            let message = format!("{} has both `smp` and `{key}`", domain.header());
            errors.add(entry.key_place, message, "expected one of them: `smp` is all that the guest does");
        }
    }
    let kind = kind(section, vcpus, errors);
    let work = SmpWork { kind: kind?, cost: section.duration("cost", errors)? };
    tasks.drafts = (0..vcpus).map(|vcpu| (task(section, vcpu, vcpus), Copies::ONE)).collect();
    Some(work)
}

fn kind(section: Section<'_>, vcpus: usize, errors: &mut Errors) -> Option<SmpKind> {
    let work = section.word("work", errors)?;
    let own: &[&str] = match work {
        "spinlock" | "mutex" => &["held"],
        "interrupt" => &["answer", "callers"],
        _ => &[],
    };
    for key in ["held", "answer", "callers"] {
        if let (Some(entry), false) = (section.get(key), own.contains(&key)) {
            let belongs_to = if key == "held" { "`spinlock` and `mutex`" } else { "`interrupt`" };
            let message = format!("`{work}` has no `{key}`");
            errors.add(entry.key_place, message, format!("expected none: it belongs to {belongs_to}"));
        }
    }
    let mut needed = |key| {
        if section.get(key).is_none() {
            let message = format!("`{key}` is missing in {}", section.header());
            errors.add(section.place, message, format!("expected it with work = \"{work}\""));
        }
        section.duration(key, errors)
    };
    match work {
        "spinlock" => Some(SmpKind::Spinlock { held: needed("held")? }),
        "mutex" => Some(SmpKind::Mutex { held: needed("held")? }),
        "interrupt" => {
            let answer = needed("answer");
            let callers = section.count("callers", errors).map_or(vcpus, |callers| callers as usize);
            if callers > vcpus {
                let message = format!("{callers} of {vcpus} vCPUs send interrupts");
                errors.add(section.place_of("callers"), message, format!("expected at most {vcpus}"));
            }
            Some(SmpKind::Interrupt { answer: answer?, callers })
        }
        "barrier" => Some(SmpKind::Barrier),
        _ => Some(SmpKind::Pipe),
    }
}

/// The task of one vCPU.
fn task(section: Section<'_>, vcpu: usize, vcpus: usize) -> TaskDraft {
    let mut unit = UnitDraft::new(section.place, UnitKind::Task);
    let mut affinity = CpuSet::new(vcpus);
    affinity.insert(CpuId(vcpu as u32));
    unit.params = UnitParams { affinity: Some(affinity), ..UnitParams::default() };
    let work = Work::Hog { start: Duration::ZERO };
    TaskDraft { name: format!("smp-{vcpu}"), unit, work, sections: Vec::new() }
}
