//! What was read of Xen's pools and domains, table by table.

use std::collections::BTreeMap;

use punctual_sched::Duration;
use toml_edit::Value;

use crate::file::source::Place;

/// What is known of a pool.
#[derive(Default)]
pub(super) struct PrintedPool {
    pub(super) place: Place,
    pub(super) processors: Option<Vec<usize>>,
    pub(super) policy: Option<&'static str>,
    pub(super) options: Vec<(&'static str, Value)>,
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
