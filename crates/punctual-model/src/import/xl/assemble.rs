//! The host of everything that `xl` printed.

use punctual_sched::{credit, fixed_priority, rtds};

use super::printed::{Printed, PrintedDomain, PrintedVcpu};
use crate::import::draft::{DomainDraft, Helpers, HostDraft, Owner, UnitDraft};
use crate::import::input::Input;

/// The pool that always exists.
const FIRST_POOL: &str = "Pool-0";

/// The draft of everything that was printed.
pub(super) fn assemble(input: &mut Input, mut printed: Printed, mut draft: HostDraft) -> HostDraft {
    let only = match printed.pools.as_slice() {
        [(name, _)] => name.clone(),
        _ => FIRST_POOL.to_string(),
    };
    let mut pool_of = Vec::new();
    for (_, domain) in &mut printed.domains {
        pool_of.push((domain.pool.take().unwrap_or_else(|| only.clone()), domain.place));
    }
    for (name, place) in &pool_of {
        printed.pool(name, *place);
    }
    for (name, pool) in &printed.pools {
        let rtds =
            |(_, m): &(String, PrintedDomain)| m.rtds.is_some() || m.vcpus.values().any(|v| v.rtds.is_some());
        let found = pool
            .policy
            .unwrap_or_else(|| if printed.domains.iter().any(rtds) { rtds::NAME } else { credit::NAME });
        let ix = draft.add_pool(name, found, pool.place);
        draft.pools[ix].options = pool.options.clone();
        if found == credit::NAME {
            // Xen's accounting; without it there are no caps.
            draft.pools[ix].options.push((credit::REFILL.name, credit::BY_PERIOD.into()));
        }
        draft.pools[ix].processors = pool.processors.clone().unwrap_or_default();
        if pool.processors.is_none() && printed.pools.len() > 1 {
            let expected = "expected what `xl cpupool-list -c` prints";
            input.error(
                pool.place,
                format!("the input does not list the processors of pool {name}"),
                expected,
            );
        }
    }
    for ((name, domain), (pool, place)) in printed.domains.iter().zip(pool_of) {
        let ix = printed.pool_index[&pool];
        let count = domain.vcpus.keys().last().map_or(1, |last| last + 1);
        if draft.reserve(input, place, count).is_none() {
            break;
        }
        let vcpus = units(input, name, domain, &draft.pools[ix].processors);
        let (owner, guest, place) = (Owner::Pool(ix), fixed_priority::NAME, domain.place);
        draft.domains.push(DomainDraft {
            name: name.clone(),
            owner,
            guest,
            vcpus,
            tasks: Vec::new(),
            helpers: Helpers::default(),
            attach: None,
            place,
        });
    }
    draft
}

fn units(input: &mut Input, name: &str, domain: &PrintedDomain, pool: &[usize]) -> Vec<UnitDraft> {
    let count = domain.vcpus.keys().last().map_or(1, |last| last + 1);
    if domain.vcpus.is_empty() {
        input.note(domain.place, format!("{name}: no table lists its vCPUs; it gets one"));
    }
    let cap_percent = domain.cap_percent.map(|cap| cap.div_ceil(count as u32));
    if domain.cap_percent.is_some_and(|cap| cap % count as u32 != 0) {
        input.note(domain.place, format!("{name}: the cap is shared by {count} vCPUs and rounded up"));
    }
    let nothing = PrintedVcpu::default();
    let unit = |n: usize| {
        let vcpu = domain.vcpus.get(&n).unwrap_or(&nothing);
        let rtds = vcpu.rtds.or(domain.rtds);
        let inside = |list: &Vec<usize>| -> Vec<usize> {
            list.iter().copied().filter(|n| pool.is_empty() || pool.contains(n)).collect()
        };
        UnitDraft {
            period: rtds.map(|rtds| rtds.period),
            budget: rtds.map(|rtds| rtds.budget),
            extratime: rtds.map(|rtds| rtds.extratime),
            weight: domain.weight,
            cap_percent,
            // Xen lets a vCPU have processors of other pools in its affinity; they do not count.
            affinity: vcpu.hard.as_ref().map(inside).filter(|own| own.as_slice() != pool),
            ..UnitDraft::default()
        }
    };
    (0..count).map(unit).collect()
}
