//! libvirt's domain XML: vCPUs, where they may run, weights, quotas and real-time priorities.
//!
//! Elements: <https://libvirt.org/formatdomain.html#cpu-allocation> and `#cpu-tuning`. What concerns other
//! resources (memory, devices, ...) has no place in a host file and is passed over; what concerns processor
//! time and is not carried over is noted.

use punctual_sched::servers::deferrable;
use punctual_sched::{Duration, credit, fixed_priority};
use roxmltree::Node;

use super::draft::{DomainDraft, Helpers, HostDraft, LinuxPriorities, Owner, UnitDraft};
use super::input::{Input, Reported, shorten};
use super::xml::{attribute, child, document, elements, place, required, text};
use crate::file::PROCESSORS_MAX;
use crate::file::source::Place;

/// Period of a quota that has none (libvirt leaves the kernel's: `kernel/sched/fair.c`, default_cfs_period).
const PERIOD_DEFAULT_US: i64 = 100_000;

/// A domain as its XML describes it.
struct XmlDomain {
    name: String,
    place: Place,
    vcpus: Vec<VcpuThread>,
    shares: Option<u32>,
    quota_us: Option<i64>,
    period_us: i64,
    helpers: Helpers,
}

/// A vCPU's thread.
#[derive(Clone)]
struct VcpuThread {
    /// `None`: anywhere.
    processors: Option<Vec<usize>>,
    /// Of SCHED_FIFO or SCHED_RR.
    realtime: Option<i64>,
}

pub(super) fn read(input: &mut Input) -> HostDraft {
    let mut draft = HostDraft::default();
    let mut domains = Vec::new();
    for file in 0..input.files() {
        document(input, file, "domain", |input, root| {
            domains.extend(read_domain(input, file, root, &mut draft));
        });
    }
    let groups = groups(&domains, draft.processors);
    for (n, processors) in groups.iter().enumerate() {
        let members: Vec<&XmlDomain> = domains.iter().filter(|m| group_of(m, &groups) == n).collect();
        let policy = policy(input, &members);
        let name = if groups.len() == 1 { "host".to_string() } else { format!("host{n}") };
        let pool = draft.add_pool(&name, policy, members[0].place);
        draft.pools[pool].processors = processors.clone();
        if policy == credit::NAME && members.iter().any(|m| m.quota_us.is_some()) {
            // Caps need it.
            draft.pools[pool].options.push((credit::REFILL.name, credit::BY_PERIOD.into()));
        }
        let priorities = members.iter().flat_map(|m| m.vcpus.iter().filter_map(|v| v.realtime));
        let priorities = LinuxPriorities::new(priorities);
        for member in members {
            let vcpus = units(input, member, processors, policy, &priorities);
            let (name, place) = (member.name.clone(), member.place);
            let (owner, guest, tasks, helpers) =
                (Owner::Pool(pool), fixed_priority::NAME, Vec::new(), member.helpers.clone());
            draft.domains.push(DomainDraft { name, owner, guest, vcpus, tasks, helpers, place });
        }
    }
    draft
}

fn read_domain(
    input: &mut Input,
    file: usize,
    root: Node<'_, '_>,
    draft: &mut HostDraft,
) -> Option<XmlDomain> {
    let here = place(input, file, root);
    let Some(name) = child(root, "name").map(text).filter(|name| !name.is_empty()) else {
        input.error(here, "<domain> has no <name>", "expected the domain's name");
        return None;
    };
    let vcpu = child(root, "vcpu");
    let mut count = 1;
    let mut anywhere = None;
    if let Some(node) = vcpu {
        let at = place(input, file, node);
        count = input.integer(at, "<vcpu>", text(node), 1, PROCESSORS_MAX as i64)?;
        if let Some((current, at)) = attribute(input, file, node, "current") {
            count = input.integer(at, "`current`", current, 1, count)?;
            input.note(at, format!("{name}: only the vCPUs plugged in at start are imported: {count}"));
        }
        if let Some((list, at)) = attribute(input, file, node, "cpuset") {
            let list = input.cpu_list(at, "`cpuset`", list)?;
            draft.include_processors(&list);
            anywhere = Some(list);
        }
    }
    draft.reserve(input, here, count as usize)?;
    let thread = VcpuThread { processors: anywhere, realtime: None };
    let mut domain = XmlDomain {
        name: name.into(),
        place: here,
        vcpus: vec![thread; count as usize],
        shares: None,
        quota_us: None,
        period_us: PERIOD_DEFAULT_US,
        helpers: Helpers::default(),
    };
    if let Some(tune) = child(root, "cputune") {
        for node in elements(tune) {
            tuning(input, file, node, &mut domain, draft)?;
        }
    }
    for other in ["numatune", "iothreads", "iothreadids", "resource"] {
        if let Some(node) = child(root, other) {
            let at = place(input, file, node);
            input.note(at, format!("{name}: <{other}> is not carried over"));
        }
    }
    Some(domain)
}

/// One element of `cputune`.
fn tuning(
    input: &mut Input,
    file: usize,
    node: Node<'_, '_>,
    domain: &mut XmlDomain,
    draft: &mut HostDraft,
) -> Option<()> {
    let at = place(input, file, node);
    let tag = node.tag_name().name();
    let what = format!("<{}>", shorten(tag));
    match tag {
        "shares" => domain.shares = Some(input.integer(at, &what, text(node), 1, 262_144)? as u32),
        "period" => domain.period_us = input.integer(at, &what, text(node), 1_000, 1_000_000)?,
        "quota" => {
            let quota = input.integer(at, &what, text(node), -1, 17_592_186_044_415)?;
            domain.quota_us = (quota > 0).then_some(quota);
        }
        "vcpupin" => {
            let (vcpu, vcpu_at) = required(input, file, node, "vcpu")?;
            let vcpu = input.integer(vcpu_at, "`vcpu`", vcpu, 0, PROCESSORS_MAX as i64)? as usize;
            let (list, list_at) = required(input, file, node, "cpuset")?;
            let list = input.cpu_list(list_at, "`cpuset`", list)?;
            draft.include_processors(&list);
            match domain.vcpus.get_mut(vcpu) {
                Some(thread) => thread.processors = Some(list),
                None => input.note(at, format!("{}: there is no vCPU {vcpu} to pin", domain.name)),
            }
        }
        "vcpusched" => scheduler(input, file, node, domain)?,
        "emulatorpin" | "iothreadpin" => {
            let (list, list_at) = required(input, file, node, "cpuset")?;
            let list = input.cpu_list(list_at, "`cpuset`", list)?;
            draft.include_processors(&list);
            let all = &mut domain.helpers.processors;
            if !all.is_empty() && *all != list {
                let text = "emulator and I/O threads get one set of processors together";
                input.note(at, format!("{}: {text}", domain.name));
            }
            all.extend(list);
            all.sort_unstable();
            all.dedup();
        }
        "emulatorsched" => domain.helpers.priority = realtime(input, file, node, &domain.name).ok()?,
        _ => input.note(at, format!("{}: {what} is not carried over", domain.name)),
    }
    Some(())
}

fn scheduler(input: &mut Input, file: usize, node: Node<'_, '_>, domain: &mut XmlDomain) -> Option<()> {
    let at = place(input, file, node);
    let vcpus = match attribute(input, file, node, "vcpus") {
        Some((list, at)) => input.cpu_list(at, "`vcpus`", list)?,
        None => (0..domain.vcpus.len()).collect(),
    };
    let realtime = realtime(input, file, node, &domain.name).ok()?;
    for n in vcpus {
        match domain.vcpus.get_mut(n) {
            Some(thread) => thread.realtime = realtime,
            None => input.note(at, format!("{}: there is no vCPU {n} to schedule", domain.name)),
        }
    }
    Some(())
}

/// The real-time priority in `scheduler` and `priority`, if it has one.
fn realtime(input: &mut Input, file: usize, node: Node<'_, '_>, name: &str) -> Result<Option<i64>, Reported> {
    let at = place(input, file, node);
    let (scheduler, scheduler_at) = required(input, file, node, "scheduler").ok_or(Reported)?;
    let realtime = match scheduler {
        "fifo" | "rr" => {
            let (priority, at) = required(input, file, node, "priority").ok_or(Reported)?;
            Some(input.integer(at, "`priority`", priority, 1, 99).ok_or(Reported)?)
        }
        "batch" | "idle" | "other" => None,
        _ => {
            let message = format!("`scheduler` is {:?}", shorten(scheduler));
            input.error(scheduler_at, message, "expected fifo, rr, batch, idle or other");
            return Err(Reported);
        }
    };
    if scheduler != "fifo" {
        let becomes = if realtime.is_some() { "fifo of the same priority" } else { "the ordinary class" };
        input.note(at, format!("{}: scheduler {scheduler} is taken as {becomes}", name));
    }
    Ok(realtime)
}

/// The processors of a domain; `None`: all.
fn reach(domain: &XmlDomain) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for thread in &domain.vcpus {
        all.extend(thread.processors.as_ref()?);
    }
    Some(all)
}

/// Sets of processors such that every domain stays within one: the pools. libvirt has no pools; domains whose
/// processors overlap compete and so share one.
fn groups(domains: &[XmlDomain], processors: usize) -> Vec<Vec<usize>> {
    // The group of each processor: the smallest processor in it.
    let mut leader: Vec<usize> = (0..processors.max(1)).collect();
    for domain in domains {
        let reach = reach(domain).unwrap_or_else(|| (0..leader.len()).collect());
        let joined: Vec<usize> = reach.iter().map(|n| leader[*n]).collect();
        let Some(&first) = joined.iter().min() else { continue };
        for group in leader.iter_mut().filter(|group| joined.contains(group)) {
            *group = first;
        }
    }
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for domain in domains {
        let one = reach(domain).and_then(|reach| reach.first().copied()).unwrap_or(0);
        let members: Vec<usize> = (0..leader.len()).filter(|n| leader[*n] == leader[one]).collect();
        if !groups.contains(&members) {
            groups.push(members);
        }
    }
    groups
}

fn group_of(domain: &XmlDomain, groups: &[Vec<usize>]) -> usize {
    let one = reach(domain).and_then(|reach| reach.first().copied()).unwrap_or(0);
    groups.iter().position(|group| group.binary_search(&one).is_ok()).unwrap_or(0)
}

/// The policy that comes nearest to what Linux does with these domains.
fn policy(input: &mut Input, domains: &[&XmlDomain]) -> &'static str {
    let realtime = |m: &&&XmlDomain| m.vcpus.iter().any(|v| v.realtime.is_some());
    let limited = domains.iter().filter(|m| m.quota_us.is_some()).count();
    if let Some(domain) = domains.iter().find(realtime) {
        if limited > 0 {
            input.note(
                domain.place,
                "pool: quotas become budgets, which policy fixed-priority does not read: Linux does not \
                 throttle real-time threads",
            );
        }
        return fixed_priority::NAME;
    }
    let weighted = domains.iter().any(|m| m.shares.is_some());
    let first = domains[0].place;
    if limited == domains.len() && !weighted {
        input.note(first, "pool: policy deferrable comes nearest to quotas, which are refilled every period");
        return deferrable::NAME;
    }
    input.note(first, "pool: policy credit comes nearest to Linux's fair class; quotas are caps");
    credit::NAME
}

/// The vCPUs as units of the policy; parameters that it does not read are kept for others.
fn units(
    input: &mut Input,
    domain: &XmlDomain,
    pool: &[usize],
    policy: &str,
    priorities: &LinuxPriorities,
) -> Vec<UnitDraft> {
    let budget_us = domain.quota_us.map(|quota| quota.min(domain.period_us));
    if budget_us < domain.quota_us {
        input.note(domain.place, format!("{}: a quota above its period limits nothing", domain.name));
    }
    let percent = |quota: i64| (quota as u64 * 100).div_ceil(domain.period_us as u64) as u32;
    let cap_percent = budget_us.map(percent).filter(|cap| policy == credit::NAME && *cap < 100);
    if budget_us.is_some_and(|quota| !(quota as u64 * 100).is_multiple_of(domain.period_us as u64))
        && cap_percent.is_some()
    {
        input.note(domain.place, format!("{}: the cap is rounded up to a whole percentage", domain.name));
    }
    let unit = |thread: &VcpuThread| UnitDraft {
        budget: budget_us.map(|us| Duration::from_us(us as u64)),
        period: budget_us.map(|_| Duration::from_us(domain.period_us as u64)),
        priority: thread.realtime.map(|priority| priorities.rank(priority)),
        weight: domain.shares.map(|shares| shares.min(65_535)),
        cap_percent,
        affinity: thread.processors.clone().filter(|own| own.as_slice() != pool),
        ..UnitDraft::default()
    };
    domain.vcpus.iter().map(unit).collect()
}
