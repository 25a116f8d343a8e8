//! libvirt: the parts of a domain's XML that say where and when its threads run.
//!
//! Names and limits: <https://libvirt.org/formatdomain.html#cpu-tuning>; the schema `domaincommon.rng` and
//! the parser `src/conf/domain_conf.c` judge the output in `scripts/check-export.sh`.

use super::linux::{BudgetMeans, GroupWeight, LinuxPool, LinuxScheduling, group_weights};
use super::loss::Losses;
use super::quota::{Quota, percent, quota};
use super::target::{ExportFile, Keep};
use super::text::{cpu_list, sentence, xml, xml_comment};
use super::units::domains;
use crate::host::{Domain, Host};
use crate::index::PoolIx;
use crate::live::{Attach, Backend, HelperPolicy};
use crate::text::printable;

/// What both versions of cgroups take as a weight (version 1: 2 to 262144, version 2: 1 to 10000).
const SHARES: std::ops::RangeInclusive<u32> = 2..=10_000;

pub(super) fn files(host: &Host, keep: Keep, losses: &mut Losses) -> Vec<ExportFile> {
    of_each_domain(host, keep, losses, |one, losses| file(host, one, losses))
}

/// What `make` makes of each domain that libvirt can manage.
pub(super) fn of_each_domain<T>(
    host: &Host,
    keep: Keep,
    losses: &mut Losses,
    make: impl Fn(&DomainSettings<'_>, &mut Losses) -> T,
) -> Vec<T> {
    let pools: Vec<LinuxPool> = (0..host.pools.len())
        .map(|i| LinuxPool::new(host, PoolIx(i), keep, BudgetMeans::Quota, losses))
        .collect();
    losses.add_tasks(host, "libvirt manages virtual machines only; the export for systemd has tasks");
    losses.add_nested(host);
    losses.add_drivers(host);
    let settings = settings(host, &pools, losses);
    settings.iter().map(|one| make(one, losses)).collect()
}

/// The name of a domain in libvirt.
pub(super) fn libvirt_name(domain: &Domain) -> &str {
    match &domain.live.backend {
        Backend::Attach(Attach::Libvirt(name)) => name,
        Backend::Attach(_) | Backend::Default | Backend::Vm(_) | Backend::Process(_) => &domain.name,
    }
}

/// What libvirt has of a domain's scheduling.
pub(super) struct DomainSettings<'a> {
    pub(super) domain: &'a Domain,
    pub(super) pool: &'a LinuxPool<'a>,
    /// Of each vCPU.
    pub(super) rules: Vec<LinuxScheduling>,
    /// The domain's weight.
    pub(super) shares: Option<u32>,
    /// Of each vCPU.
    pub(super) quota: Option<Quota>,
    /// Of the helper threads.
    pub(super) helpers: Vec<usize>,
}

/// The settings of each domain, in the order of the host file.
fn settings<'a>(host: &'a Host, pools: &'a [LinuxPool<'a>], losses: &mut Losses) -> Vec<DomainSettings<'a>> {
    let mut all = Vec::new();
    for (domain, PoolIx(ix)) in domains(host) {
        let pool = &pools[ix];
        let vcpus = host.vcpus[domain.vcpus.clone()].iter();
        let rules: Vec<LinuxScheduling> = vcpus.map(|v| pool.rule(&v.name, &v.params, losses)).collect();
        let quota = quota_of(domain, &rules, losses);
        let helpers = pool.helpers(domain, losses).to_vec();
        all.push((ix, DomainSettings { domain, pool, rules, shares: None, quota, helpers }));
    }
    for ix in 0..pools.len() {
        let members = || all.iter().filter(|(pool, _)| *pool == ix).map(|(_, one)| one);
        let groups: Vec<Vec<LinuxScheduling>> = members().map(|one| one.rules.clone()).collect();
        let weights = group_weights(&groups, &SHARES);
        for (one, weight) in members().zip(&weights) {
            weight_losses(one.domain, &one.rules, *weight, losses);
        }
        let members = all.iter_mut().filter(|(pool, _)| *pool == ix).map(|(_, one)| one);
        members.zip(weights).for_each(|(one, weight)| one.shares = weight.map(|group| group.weight));
    }
    all.into_iter().map(|(_, one)| one).collect()
}

/// What is lost of the weights of a domain's vCPUs.
fn weight_losses(
    domain: &Domain,
    rules: &[LinuxScheduling],
    weight: Option<GroupWeight>,
    losses: &mut Losses,
) {
    if rules.windows(2).any(|pair| weight_of(pair[0]) != weight_of(pair[1])) {
        let why =
            "libvirt has one weight for a domain, which its vCPUs have in equal parts: the sum of theirs";
        losses.add(&domain.name, "weight", why);
    }
    if let Some(GroupWeight { weight, sum, is_exact: false }) = weight {
        let why = format!("{sum} is written as {weight}: cgroups take 2 to 10000");
        losses.add(&domain.name, "weight", why);
    }
}

fn weight_of(rule: LinuxScheduling) -> Option<u32> {
    match rule {
        LinuxScheduling::Fair { weight, .. } => weight,
        LinuxScheduling::Budget { .. } | LinuxScheduling::Fifo(_) | LinuxScheduling::RoundRobin => None,
    }
}

fn file(host: &Host, settings: &DomainSettings<'_>, losses: &mut Losses) -> ExportFile {
    let DomainSettings { domain, pool, rules, .. } = settings;
    let vcpus = &host.vcpus[domain.vcpus.clone()];
    let mut tune = Vec::new();
    tune.extend(settings.shares.map(|n| format!("<shares>{n}</shares>")));
    if let Some(Quota { quota_us, period_us, .. }) = settings.quota {
        tune.push(format!("<period>{period_us}</period>"));
        tune.push(format!("<quota>{quota_us}</quota>"));
    }
    for (n, vcpu) in vcpus.iter().enumerate() {
        let list = cpu_list(&pool.processors(&vcpu.params));
        tune.push(format!("<vcpupin vcpu='{n}' cpuset='{list}'/>"));
    }
    tune.push(format!("<emulatorpin cpuset='{}'/>", cpu_list(&settings.helpers)));
    for (n, rule) in rules.iter().enumerate() {
        match rule {
            LinuxScheduling::Fifo(priority) => {
                tune.push(format!("<vcpusched vcpus='{n}' scheduler='fifo' priority='{priority}'/>"));
            }
            LinuxScheduling::RoundRobin => {
                tune.push(format!("<vcpusched vcpus='{n}' scheduler='rr' priority='1'/>"))
            }
            LinuxScheduling::Budget { .. } | LinuxScheduling::Fair { .. } => {}
        }
    }
    match domain.live.helpers.policy {
        HelperPolicy::Fifo { priority } => {
            tune.push(format!("<emulatorsched scheduler='fifo' priority='{priority}'/>"));
        }
        HelperPolicy::Other { nice: 0 } => {}
        HelperPolicy::Other { .. } => {
            losses.add(&domain.name, "helpers", "libvirt has no niceness of helper threads");
        }
    }
    let mut text =
        xml_comment(&format!("From the host file \"{}\" by punctual export.", printable(&host.name))) + "\n";
    text += "<!-- Merge vcpu and cputune into the domain's own XML: virsh edit. -->\n";
    for loss in losses.of_domain(host, domain) {
        text += &xml_comment(&format!("NOT AS IN THE HOST FILE: {}", sentence(loss)));
        text.push('\n');
    }
    text += &format!("<domain type='kvm'>\n  <name>{}</name>\n", xml(libvirt_name(domain)));
    let all = cpu_list(&pool.pool.processors);
    text += &format!("  <vcpu placement='static' cpuset='{all}'>{}</vcpu>\n  <cputune>\n", vcpus.len());
    for line in tune {
        text += &format!("    {line}\n");
    }
    text += "  </cputune>\n</domain>\n";
    ExportFile { name: format!("{}.xml", domain.name), text }
}

/// A port of a vhost-user switch, to which a domain of libvirt connects.
#[derive(Clone, Debug)]
pub struct VhostUserPort<'a> {
    /// The domain's name.
    pub domain: &'a str,
    /// The port's socket.
    pub socket: &'a str,
    /// The address of the domain's card.
    pub address: Option<String>,
}

/// What a domain's XML says about its card at the port, and about memory that the switch can see
/// (<https://libvirt.org/formatdomain.html>, "vhost-user interface" and "Memory Backing"). An MTU is not
/// among it: libvirt 9.0 sets one on a device of the host, and such a card has none.
pub fn vhost_user(port: &VhostUserPort<'_>) -> String {
    let address = port.address.as_ref().map(|mac| format!("      <mac address='{mac}'/>\n"));
    format!(
        "<domain type='kvm'>\n  <name>{}</name>\n  <memoryBacking>\n    <source type='memfd'/>\n    \
         <access mode='shared'/>\n  </memoryBacking>\n  <devices>\n    <interface type='vhostuser'>\n{}      \
         <source type='unix' path='{}' mode='client'>\n        <reconnect enabled='yes' timeout='1'/>\n      \
         </source>\n      <model type='virtio'/>\n    </interface>\n  </devices>\n</domain>\n",
        xml(port.domain),
        address.unwrap_or_default(),
        xml(port.socket),
    )
}

/// One quota for each of the domain's vCPUs.
fn quota_of(domain: &Domain, rules: &[LinuxScheduling], losses: &mut Losses) -> Option<Quota> {
    let mut quotas = Vec::new();
    for rule in rules {
        match *rule {
            LinuxScheduling::Budget { budget, period } => {
                let given = quota(budget, period);
                if !given.exact {
                    losses.add(&domain.name, "budget", given.why(budget, period));
                }
                quotas.push(Some(given));
            }
            LinuxScheduling::Fair { cap_percent, .. } => quotas.push(cap_percent.map(percent)),
            LinuxScheduling::Fifo(_) | LinuxScheduling::RoundRobin => quotas.push(None),
        }
    }
    let differ = quotas.windows(2).any(|pair| pair[0] != pair[1]);
    if differ {
        losses.add(
            &domain.name,
            "vcpu",
            "libvirt has the same quota for all vCPUs of a domain: the greatest share applies",
        );
    }
    // A vCPU without a quota is not to be limited because another one is.
    let all: Option<Vec<Quota>> = quotas.into_iter().collect();
    let share = |q: &Quota| u128::from(q.quota_us) * 1_000_000_000 / u128::from(q.period_us);
    all?.into_iter().max_by_key(|q| (share(q), std::cmp::Reverse(q.period_us)))
}
