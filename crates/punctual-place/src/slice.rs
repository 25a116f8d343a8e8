//! Hosts for the analysis, made of some VMs of a fleet, and what is guaranteed on them.

use std::cell::RefCell;
use std::collections::HashMap;

use punctual_analysis::answers;
use punctual_model::Host;
use punctual_model::fleet::HostKind;
use punctual_model::guarantees::Verdict;
use punctual_model::host::{Domain, Parent};
use punctual_model::index::{DomainIx, PoolIx};
use punctual_sched::{CpuId, CpuSet};

/// A VM on a host that is put together.
#[derive(Clone, Debug)]
pub(crate) struct Member<'a> {
    /// Index of its kind.
    pub(crate) kind: usize,
    pub(crate) name: &'a str,
    /// By vCPU, the processors that it may use by their places in the pool; `None`: all of them.
    pub(crate) processors: Option<Vec<Vec<usize>>>,
    /// How many of its vCPUs are on this host: all, or those on one processor.
    pub(crate) vcpus: usize,
}

/// The host with these VMs, in this order; of its pools only `pool`, if given.
pub(crate) fn host(kind: &HostKind, name: &str, members: &[Member<'_>], pool: Option<usize>) -> Host {
    let template = &kind.template;
    let mut host = Host {
        overheads: template.overheads,
        enforce: template.enforce,
        ..Host::empty(name, template.processors, template.seed, template.duration)
    };
    let pools = template.pools.iter().enumerate().filter(|(index, _)| pool.is_none_or(|pool| pool == *index));
    host.pools = pools.map(|(_, pool)| pool.clone()).collect();
    let place = |of: PoolIx| if pool.is_some() { PoolIx(0) } else { of };
    for task in &template.tasks {
        if let Parent::Pool(of) = task.parent
            && pool.is_none_or(|pool| pool == of.0)
        {
            let parent = Parent::Pool(place(of));
            host.tasks.push(punctual_model::host::Task { parent, ..task.clone() });
        }
    }
    for member in members {
        add(kind, member, place, &mut host);
    }
    host
}

fn add(kind: &HostKind, member: &Member<'_>, place: impl Fn(PoolIx) -> PoolIx, host: &mut Host) {
    let Some(from) = kind.domains[member.kind] else { return };
    let template = &kind.template;
    let domain = &template.domains[from.0];
    let Parent::Pool(pool) = domain.parent else { return };
    let cpus = template.pools[pool.0].processors.len();
    let (ix, first) = (DomainIx(host.domains.len()), host.vcpus.len());
    for number in 0..member.vcpus {
        let mut vcpu = template.vcpus[domain.vcpus.start + number].clone();
        vcpu.name = format!("{}.{number}", member.name);
        vcpu.domain = ix;
        if let Some(processors) = &member.processors {
            let mut set = CpuSet::new(cpus);
            processors[number].iter().for_each(|place| set.insert(CpuId(*place as u32)));
            vcpu.params.affinity = Some(set);
        }
        host.vcpus.push(vcpu);
    }
    for (_, task) in template.tasks_of(Parent::Domain(from)) {
        host.tasks.push(punctual_model::host::Task { parent: Parent::Domain(ix), ..task.clone() });
    }
    host.domains.push(Domain {
        name: member.name.to_owned(),
        parent: Parent::Pool(place(pool)),
        vcpus: first..host.vcpus.len(),
        guest: domain.guest.clone(),
        resources: domain.resources.clone(),
        live: domain.live.clone(),
    });
}

/// Are all budgets and deadlines of the host guaranteed?
pub(crate) fn is_guaranteed(host: &Host) -> bool {
    let answers = answers(host);
    answers.tasks.values().all(|of| of.answer.is_guaranteed())
        && answers.vcpus.values().all(|of| of.answer.is_guaranteed())
}

/// What is not guaranteed first, and why.
pub(crate) fn objection(host: &Host) -> Option<String> {
    let guarantees = answers(host).guarantees(host);
    let why = |verdict: &Verdict| match verdict {
        Verdict::Guaranteed { .. } => None,
        Verdict::Unknown { why } => Some(why.clone()),
        Verdict::NotGuaranteed { counter_example } => Some(match counter_example.late_min_ns {
            Some(late) => {
                let late = punctual_sched::Duration::from_ns(late);
                format!("it would miss by {late} with {}", counter_example.pattern)
            }
            None => format!("it would be missed with {}", counter_example.pattern),
        }),
    };
    let budgets = guarantees.vcpus.iter().find_map(|vcpu| {
        why(&vcpu.verdict).map(|why| format!("the budget of {} would not be guaranteed: {why}", vcpu.name))
    });
    budgets.or_else(|| {
        guarantees.tasks.iter().find_map(|task| {
            let who = format!("{}.{}", task.parent, task.name);
            why(&task.verdict).map(|why| format!("the deadline of {who} would not be guaranteed: {why}"))
        })
    })
}

/// What the analysis has answered: what it is asked is the same again and again.
#[derive(Default)]
pub(crate) struct Oracle {
    known: RefCell<HashMap<Box<[u32]>, bool>>,
}

impl Oracle {
    /// The answer for what `key` says completely; `host` makes the host.
    pub(crate) fn ask(&self, key: &[u32], host: impl FnOnce() -> Host) -> bool {
        if let Some(known) = self.known.borrow().get(key) {
            return *known;
        }
        let answer = is_guaranteed(&host());
        self.known.borrow_mut().insert(key.into(), answer);
        answer
    }
}
