//! Which domains share a pool, under which policy, with which parameters.
//!
//! libvirt has no pools. Domains whose processors overlap compete and so share one. Linux puts real-time
//! threads above the fair class: beside them, vCPUs of the fair class are best effort.

use punctual_sched::{Duration, credit, fixed_priority};

use super::domain::{Class, Quota, VcpuThread, XmlDomain};
use crate::import::draft::{DomainDraft, HostDraft, LinuxPriorities, Owner, UnitDraft};
use crate::import::input::Input;
use crate::import::settings::Settings;

/// The weight of a control group that has none, in cgroup version 2; libvirt's shares are its `cpu.weight`.
const SHARES_DEFAULT: u64 = 100;
/// Greatest weight in a host file.
const WEIGHT_MAX: u64 = 65_535;

/// The machine's processors as the domains divide them up.
struct Layout {
    /// Each pool's processors, ascending.
    pools: Vec<Vec<usize>>,
    /// Where vCPUs without a pin run: those that no vCPU and no helper thread is pinned to. May be empty.
    floating: Vec<usize>,
    /// Is any vCPU pinned?
    any_pinned: bool,
}

pub(super) fn assemble(
    input: &mut Input,
    domains: Vec<XmlDomain>,
    draft: &mut HostDraft,
    settings: &Settings<'_>,
) {
    let is_free = |m: &XmlDomain| m.vcpus.iter().any(|v| v.processors.is_none());
    let most = domains.iter().map(|m| m.vcpus.len()).max();
    draft.size(input, settings, most.filter(|_| domains.iter().any(is_free)));
    let layout = Layout::new(&domains, draft.processors);
    for (n, processors) in layout.pools.iter().enumerate() {
        let members: Vec<&XmlDomain> = domains.iter().filter(|m| layout.pool_of(m) == n).collect();
        let Some(first) = members.first() else { continue };
        let name = if layout.pools.len() == 1 { "host".to_string() } else { format!("host{n}") };
        let has_realtime = members.iter().any(|m| m.vcpus.iter().any(VcpuThread::is_realtime));
        let policy = if has_realtime { fixed_priority::NAME } else { credit::NAME };
        let has_quota = members.iter().any(|m| m.quota.quota_us.or(m.global_quota.quota_us).is_some());
        if has_quota && !has_realtime {
            let text =
                "pool: a quota of Linux's fair class limits, and reserves nothing: it is a cap, not a budget";
            input.note(first.place, text);
        }
        let pool = draft.add_pool(&name, policy, first.place);
        draft.pools[pool].processors = processors.clone();
        let weights = weights(input, &members);
        let priorities = members.iter().flat_map(|m| m.vcpus.iter().filter_map(VcpuThread::priority));
        let priorities = LinuxPriorities::new(priorities);
        for (member, weight) in members.iter().zip(weights) {
            let quota = limit(input, member);
            let below = layout.is_below(input, member, has_realtime);
            let unit = |thread: &VcpuThread| unit(thread, processors, &priorities, weight, quota, below);
            let vcpus = member.vcpus.iter().map(unit).collect();
            draft.domains.push(DomainDraft {
                name: member.name.clone(),
                owner: Owner::Pool(pool),
                guest: fixed_priority::NAME,
                vcpus,
                tasks: Vec::new(),
                helpers: member.helpers.clone(),
                attach: member.is_qemu.then(|| member.name.clone()),
                place: member.place,
            });
        }
    }
}

impl Layout {
    fn new(domains: &[XmlDomain], processors: usize) -> Self {
        let pins = |m: &XmlDomain| -> Vec<usize> {
            m.vcpus.iter().filter_map(|v| v.processors.as_ref()).flatten().copied().collect()
        };
        let pinned: Vec<usize> = domains.iter().flat_map(pins).collect();
        let helpers = domains.iter().filter(|m| m.helpers_are_pinned).flat_map(|m| &m.helpers.processors);
        let mut taken = vec![false; processors];
        pinned.iter().chain(helpers).for_each(|n| taken[*n] = true);
        let mut floating: Vec<usize> = (0..processors).filter(|n| !taken[*n]).collect();
        let any_pinned = !pinned.is_empty();
        if floating.is_empty() && !any_pinned {
            floating = (0..processors).collect();
        }
        // The group of each processor: the smallest processor in it.
        let mut leader: Vec<usize> = (0..processors).collect();
        let mut groups = Vec::new();
        for domain in domains {
            let mut reach = pins(domain);
            if domain.vcpus.iter().any(|v| v.processors.is_none()) {
                reach.extend(&floating);
            }
            let joined: Vec<usize> = reach.iter().map(|n| leader[*n]).collect();
            let Some(&first) = joined.iter().min() else { continue };
            let mut is_joined = vec![false; processors];
            joined.iter().for_each(|n| is_joined[*n] = true);
            leader.iter_mut().filter(|group| is_joined[**group]).for_each(|group| *group = first);
            groups.push(reach[0]);
        }
        let mut pools: Vec<Vec<usize>> = Vec::new();
        let mut has_pool = vec![false; processors];
        for processor in groups {
            if !std::mem::replace(&mut has_pool[leader[processor]], true) {
                pools.push((0..processors).filter(|n| leader[*n] == leader[processor]).collect());
            }
        }
        Layout { pools, floating, any_pinned }
    }

    /// The pool of a domain; one that no processor is left for goes into the largest.
    fn pool_of(&self, domain: &XmlDomain) -> usize {
        let pin = domain.vcpus.iter().find_map(|v| v.processors.as_ref()).map(|list| list[0]);
        let one = pin.or(self.floating.first().copied());
        let has = |n: usize| self.pools.iter().position(|pool| pool.binary_search(&n).is_ok());
        let largest = || (0..self.pools.len()).max_by_key(|n| (self.pools[*n].len(), self.pools.len() - n));
        one.and_then(has).or_else(largest).unwrap_or(0)
    }

    /// Which vCPUs of the fair class are below the others of the pool.
    fn is_below(&self, input: &mut Input, domain: &XmlDomain, has_realtime: bool) -> Below {
        let has_fair = domain.vcpus.iter().any(|v| v.class == Class::Fair);
        let is_free = domain.vcpus.iter().all(|v| v.processors.is_none());
        if has_realtime && has_fair {
            let text = "vCPUs of the fair class are best effort, below the real-time ones of the pool";
            input.note(domain.place, format!("{}: {text}", domain.name));
            return Below::Fair;
        }
        if !has_realtime && is_free && self.any_pinned {
            let text = if self.floating.is_empty() {
                "without a pin, best effort on the largest pool: pinned vCPUs and helpers have all processors"
            } else {
                "without a pin, best effort on the processors that nothing is pinned to"
            };
            input.note(domain.place, format!("{}: {text}", domain.name));
            return Below::Fair;
        }
        Below::Idle
    }
}

/// The most favoured class whose vCPUs are best effort.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Below {
    Idle,
    Fair,
}

impl VcpuThread {
    fn priority(&self) -> Option<i64> {
        match self.class {
            Class::Realtime(priority) => Some(priority),
            Class::Fair | Class::Idle => None,
        }
    }

    fn is_realtime(&self) -> bool {
        self.priority().is_some()
    }
}

/// The weight of each domain's vCPUs: shares are the domain's, and its vCPUs of the fair class have them
/// together. Multiplied by one number, so that the weights are whole and their proportions exact.
fn weights(input: &mut Input, members: &[&XmlDomain]) -> Vec<Option<u32>> {
    let fair = |m: &XmlDomain| m.vcpus.iter().filter(|v| v.class == Class::Fair).count() as u64;
    let counts: Vec<u64> = members.iter().map(|m| fair(m)).collect();
    let given = members.iter().any(|m| m.shares.is_some());
    let mut sizes: Vec<u64> = counts.iter().copied().filter(|n| *n > 0).collect();
    sizes.sort_unstable();
    sizes.dedup();
    if !given && sizes.len() < 2 {
        return vec![None; members.len()];
    }
    for member in members.iter().filter(|m| given && m.shares.is_none() && fair(m) > 0) {
        let text = format!(
            "{}: without <shares>, taken as {SHARES_DEFAULT}, the default of cgroup version 2 (version 1: \
             1024)",
            member.name
        );
        input.note(member.place, text);
    }
    let shares = |m: &XmlDomain| m.shares.map_or(SHARES_DEFAULT, u64::from);
    let divisors = members.iter().zip(&counts).filter(|(_, n)| **n > 0);
    // Of at most 262144 * 1024; too great a product is scaled down below.
    let times = divisors.fold(1u64, |times, (m, n)| {
        let part = n / gcd(shares(m), *n);
        (times / gcd(times, part)).saturating_mul(part).min(1 << 30)
    });
    let exact: Vec<u64> = members.iter().zip(&counts).map(|(m, n)| shares(m) * times / (*n).max(1)).collect();
    let most = exact.iter().copied().max().unwrap_or(1);
    let whole = members.iter().zip(&counts).all(|(m, n)| (shares(m) * times).is_multiple_of((*n).max(1)));
    if most > WEIGHT_MAX || !whole {
        input.note(members[0].place, "pool: weights are rounded to whole numbers of at most 65535");
    }
    let down = |w: u64| (u128::from(w) * u128::from(WEIGHT_MAX) + u128::from(most / 2)) / u128::from(most);
    let scaled = |w: u64| if most > WEIGHT_MAX { down(w) as u64 } else { w };
    let some = |(w, n): (u64, u64)| (n > 0).then(|| scaled(w).max(1) as u32);
    exact.into_iter().zip(counts).map(some).collect()
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The limit of each vCPU.
fn limit(input: &mut Input, domain: &XmlDomain) -> Option<Quota> {
    let global = domain.global_quota;
    let mut quota = domain.quota;
    if let Some(all_us) = global.quota_us {
        let is_only = domain.vcpus.len() == 1;
        let share = |us: i64, period_us: i64| i128::from(us) * i128::from(period_us);
        let is_less =
            quota.quota_us.is_none_or(|us| share(all_us, quota.period_us) < share(us, global.period_us));
        let text = match (is_only, is_less) {
            (true, true) => {
                quota = global;
                "<global_quota> limits the vCPU and the helper threads together; here the vCPU alone"
            }
            (true, false) => "<global_quota> is not carried over: <quota> is less",
            (false, _) => "<global_quota> is not carried over: a host file has no limit of vCPUs together",
        };
        input.note(global.place, format!("{}: {text}", domain.name));
    }
    let quota_us = quota.quota_us?;
    if quota_us > quota.period_us {
        input.note(quota.place, format!("{}: a quota above its period limits nothing", domain.name));
    }
    if quota_us < quota.period_us && quota_us * 100 % quota.period_us != 0 {
        input.note(quota.place, format!("{}: the cap is rounded up to a whole percentage", domain.name));
    }
    if domain.vcpus.iter().any(VcpuThread::is_realtime) {
        let text = "Linux does not throttle real-time vCPUs: their quota has no effect";
        input.note(quota.place, format!("{}: {text}", domain.name));
    }
    Some(quota)
}

fn unit(
    thread: &VcpuThread,
    pool: &[usize],
    priorities: &LinuxPriorities,
    weight: Option<u32>,
    quota: Option<Quota>,
    below: Below,
) -> UnitDraft {
    let quota = quota.and_then(|quota| Some((quota.quota_us?.min(quota.period_us), quota.period_us)));
    let cap = quota.map(|(quota_us, period_us)| (quota_us as u64 * 100).div_ceil(period_us as u64) as u32);
    let is_realtime = thread.is_realtime();
    UnitDraft {
        budget: quota.map(|(quota_us, _)| Duration::from_us(quota_us as u64)),
        period: quota.map(|(_, period_us)| Duration::from_us(period_us as u64)),
        priority: thread.priority().map(|priority| priorities.rank(priority)),
        weight: weight.filter(|_| !is_realtime),
        cap_percent: cap.filter(|cap| *cap < 100 && !is_realtime),
        affinity: thread.processors.clone().filter(|own| own.as_slice() != pool),
        best_effort: match thread.class {
            Class::Realtime(_) => false,
            Class::Idle => true,
            Class::Fair => below == Below::Fair,
        },
        ..UnitDraft::default()
    }
}
