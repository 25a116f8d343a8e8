//! What was read of Xen's pools and domains, table by table.

use std::collections::BTreeMap;

use punctual_sched::{Duration, credit, rtds, sedf};
use toml_edit::Value;

use crate::file::source::Place;
use crate::import::input::{Input, shorten};

/// What is known of a pool.
#[derive(Default)]
pub(super) struct PrintedPool {
    pub(super) place: Place,
    pub(super) processors: Option<Vec<usize>>,
    /// `None`: nothing says.
    pub(super) scheduler: Option<Scheduler>,
    pub(super) options: Vec<(&'static str, Value)>,
}

/// A scheduler of Xen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheduler {
    Credit,
    Credit2,
    Rtds,
    Sedf,
    /// Each vCPU has a processor of its own.
    Null,
    Arinc653,
}

impl Scheduler {
    /// The scheduler of this name (`libxl_scheduler_to_string`).
    pub(super) fn named(input: &mut Input, place: Place, name: &str, pool: &str) -> Option<Self> {
        match name {
            credit::NAME => Some(Scheduler::Credit),
            "credit2" => Some(Scheduler::Credit2),
            rtds::NAME => Some(Scheduler::Rtds),
            sedf::NAME => Some(Scheduler::Sedf),
            "null" => Some(Scheduler::Null),
            "arinc653" => Some(Scheduler::Arinc653),
            other => {
                input.note(place, format!("{pool}: scheduler {} is not known", shorten(other)));
                None
            }
        }
    }

    /// The policy that comes nearest, and what is not the same.
    pub(super) fn policy(self) -> (&'static str, Option<&'static str>) {
        match self {
            Scheduler::Credit => (credit::NAME, None),
            Scheduler::Credit2 => (credit::NAME, Some("credit2 is taken as credit")),
            Scheduler::Rtds => (rtds::NAME, None),
            Scheduler::Sedf => (sedf::NAME, None),
            Scheduler::Null => {
                (credit::NAME, Some("null, which gives each vCPU a processor of its own, is taken as credit"))
            }
            Scheduler::Arinc653 => {
                (credit::NAME, Some("arinc653 is taken as credit: xl does not print its schedule"))
            }
        }
    }
}

/// What is known of a domain.
#[derive(Default)]
pub(super) struct PrintedDomain {
    pub(super) place: Place,
    pub(super) pool: Option<String>,
    pub(super) vcpus: BTreeMap<usize, PrintedVcpu>,
    /// For all of its vCPUs.
    pub(super) rtds: Option<RtdsParams>,
    pub(super) weight: Option<u32>,
    pub(super) cap_percent: Option<u32>,
    /// How many vCPUs are online.
    pub(super) online: Option<usize>,
    /// Are `rtds` and `weight` those of SEDF?
    pub(super) is_sedf: bool,
}

/// What `xl sched-rtds` prints of a vCPU or domain.
#[derive(Clone, Copy)]
pub(super) struct RtdsParams {
    pub(super) period: Duration,
    pub(super) budget: Duration,
    pub(super) extratime: bool,
}

#[derive(Default)]
pub(super) struct PrintedVcpu {
    pub(super) rtds: Option<RtdsParams>,
    /// `None`: everywhere.
    pub(super) hard: Option<Vec<usize>>,
    /// Where it may not run.
    pub(super) except: Vec<usize>,
    pub(super) is_offline: bool,
}

/// Everything that was printed, in the order in which names first appear.
#[derive(Default)]
pub(super) struct Printed {
    pub(super) pools: Vec<(String, PrintedPool)>,
    pub(super) domains: Vec<(String, PrintedDomain)>,
    /// Where each name is in the lists.
    pub(super) pool_index: BTreeMap<String, usize>,
    pub(super) domain_index: BTreeMap<String, usize>,
}

impl Printed {
    pub(super) fn pool(&mut self, name: &str, place: Place) -> &mut PrintedPool {
        let at = *self.pool_index.entry(name.into()).or_insert_with(|| {
            self.pools.push((name.into(), PrintedPool { place, ..PrintedPool::default() }));
            self.pools.len() - 1
        });
        &mut self.pools[at].1
    }

    pub(super) fn domain(&mut self, name: &str, place: Place) -> &mut PrintedDomain {
        let at = *self.domain_index.entry(name.into()).or_insert_with(|| {
            self.domains.push((name.into(), PrintedDomain { place, ..PrintedDomain::default() }));
            self.domains.len() - 1
        });
        &mut self.domains[at].1
    }

    /// The domain called `name`, which the table of `pool` lists.
    pub(super) fn domain_in(&mut self, name: &str, place: Place, pool: Option<&str>) -> &mut PrintedDomain {
        let domain = self.domain(name, place);
        domain.pool = pool.map(String::from).or(domain.pool.take());
        domain
    }
}
