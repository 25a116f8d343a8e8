//! The host of everything that `xl` printed.

use punctual_sched::{credit, fixed_priority};

use super::printed::{Printed, PrintedDomain, PrintedPool, PrintedVcpu, Scheduler};
use crate::import::draft::{DomainDraft, Helpers, HostDraft, Owner, UnitDraft};
use crate::import::input::Input;

/// The pool that always exists.
const FIRST_POOL: &str = "Pool-0";
/// The domain that is in [`FIRST_POOL`] unless it was moved.
const MANAGER: &str = "Domain-0";

/// The draft of everything that was printed.
pub(super) fn assemble(input: &mut Input, mut printed: Printed, mut draft: HostDraft) -> HostDraft {
    let pool_of = pools_of_domains(input, &mut printed);
    let is_named_only = |pool: &PrintedPool| pool.processors.is_none();
    for (name, pool) in &printed.pools {
        let members = printed.domains.iter().zip(&pool_of).filter(|(_, of)| *of == name).map(|((_, d), _)| d);
        let (policy, differs) = scheduler(input, name, pool, members).policy();
        if let Some(differs) = differs {
            input.note(pool.place, format!("{name}: {differs}"));
        }
        let ix = draft.add_pool(name, policy, pool.place);
        draft.pools[ix].options = pool.options.clone();
        if policy != credit::NAME {
            draft.pools[ix].options.clear();
        }
        draft.pools[ix].processors = pool.processors.clone().unwrap_or_default();
        if is_named_only(pool) && printed.pools.len() > 1 {
            let expected = "expected what `xl cpupool-list -c` prints";
            let message = format!("the input does not list the processors of pool {name}");
            input.error(pool.place, message, expected);
        }
    }
    for ((name, domain), pool) in printed.domains.iter().zip(&pool_of) {
        let ix = printed.pool_index[pool];
        let count = count(input, name, domain);
        if draft.reserve(input, domain.place, count).is_none() {
            break;
        }
        let own = &draft.pools[ix].processors;
        let all: Vec<usize> = if own.is_empty() { (0..draft.processors).collect() } else { own.clone() };
        let vcpus = units(input, name, domain, &all, count);
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

/// The pool of each domain; those that are named for the first time here are added.
fn pools_of_domains(input: &mut Input, printed: &mut Printed) -> Vec<String> {
    let only = match printed.pools.as_slice() {
        [(name, _)] => name.clone(),
        _ => FIRST_POOL.to_string(),
    };
    let is_guess = printed.pools.len() > 1;
    let mut pool_of = Vec::new();
    for (name, domain) in &mut printed.domains {
        if domain.pool.is_none() && is_guess && name != MANAGER {
            let text =
                format!("{name}: nothing says in which pool it is; taken as {only} (`xl list -c` says)");
            input.note(domain.place, text);
        }
        pool_of.push((domain.pool.take().unwrap_or_else(|| only.clone()), domain.place));
    }
    for (name, place) in &pool_of {
        printed.pool(name, *place);
    }
    pool_of.into_iter().map(|(name, _)| name).collect()
}

/// The scheduler of a pool. Where nothing says, it is the one whose parameters its own domains have, and
/// that is noted.
fn scheduler<'d>(
    input: &mut Input,
    name: &str,
    pool: &PrintedPool,
    members: impl Iterator<Item = &'d PrintedDomain>,
) -> Scheduler {
    if let Some(scheduler) = pool.scheduler {
        return scheduler;
    }
    let (mut has_rtds, mut has_sedf, mut has_weights) = (false, false, false);
    for domain in members {
        has_rtds |= domain.rtds.is_some() || domain.vcpus.values().any(|v| v.rtds.is_some());
        has_sedf |= domain.is_sedf;
        has_weights |= domain.weight.is_some();
    }
    let (found, why) = match (has_sedf, has_rtds, has_weights) {
        (true, _, _) => (Scheduler::Sedf, "taken as SEDF, whose parameters its domains have"),
        (false, true, _) => (Scheduler::Rtds, "taken as RTDS, whose parameters its domains have"),
        (false, false, true) => (Scheduler::Credit, "taken as Credit, whose parameters its domains have"),
        (false, false, false) => (Scheduler::Credit2, "taken as Xen's default, Credit2"),
    };
    let text = format!("{name}: nothing says which scheduler it has; {why} (`xl cpupool-list` says)");
    input.note(pool.place, text);
    found
}

/// The number of vCPUs that are online.
fn count(input: &mut Input, name: &str, domain: &PrintedDomain) -> usize {
    let online = |(_, vcpu): &(&usize, &PrintedVcpu)| !vcpu.is_offline;
    let listed = domain.vcpus.keys().last().map(|last| last + 1);
    let last = domain.vcpus.iter().rfind(online).map(|(last, _)| last + 1);
    if last < listed {
        let text = format!("{name}: vCPUs that are not online are left out");
        input.note(domain.place, text);
    }
    let count = last.or(listed).max(domain.online);
    if listed.is_none() && domain.online.is_none() {
        input.note(domain.place, format!("{name}: nothing lists its vCPUs; it gets one"));
    }
    count.unwrap_or(1).max(1)
}

fn units(
    input: &mut Input,
    name: &str,
    domain: &PrintedDomain,
    pool: &[usize],
    count: usize,
) -> Vec<UnitDraft> {
    let cap_percent = domain.cap_percent.map(|cap| cap.div_ceil(count as u32));
    if domain.cap_percent.is_some_and(|cap| cap % count as u32 != 0) {
        input.note(domain.place, format!("{name}: the cap is shared by {count} vCPUs and rounded up"));
    }
    let nothing = PrintedVcpu::default();
    let unit = |n: usize| {
        let vcpu = domain.vcpus.get(&n).unwrap_or(&nothing);
        let rtds = vcpu.rtds.or(domain.rtds);
        UnitDraft {
            period: rtds.map(|rtds| rtds.period),
            budget: rtds.map(|rtds| rtds.budget),
            extratime: rtds.map(|rtds| rtds.extratime),
            weight: domain.weight,
            cap_percent,
            affinity: affinity(vcpu, pool),
            ..UnitDraft::default()
        }
    };
    let mut units: Vec<UnitDraft> = (0..count).map(unit).collect();
    for (n, unit) in units.iter_mut().enumerate() {
        if unit.affinity.as_ref().is_some_and(Vec::is_empty) {
            let text = "has no processor of its pool in its affinity, which Xen then does not apply";
            input.note(domain.place, format!("{name}: vCPU {n} {text}"));
            unit.affinity = None;
        }
    }
    units
}

/// The part of a vCPU's affinity that is in its pool; `None`: all of it. Xen lets a vCPU have processors of
/// other pools in its affinity; they do not count.
fn affinity(vcpu: &PrintedVcpu, pool: &[usize]) -> Option<Vec<usize>> {
    let is_allowed =
        |n: &usize| vcpu.hard.as_ref().is_none_or(|hard| hard.contains(n)) && !vcpu.except.contains(n);
    let own: Vec<usize> = pool.iter().copied().filter(is_allowed).collect();
    Some(own).filter(|own| own.as_slice() != pool)
}
