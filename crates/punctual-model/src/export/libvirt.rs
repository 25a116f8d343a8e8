//! libvirt: the parts of a domain's XML that say where and when its threads run.
//!
//! Names and limits: <https://libvirt.org/formatdomain.html#cpu-tuning>; the schema `domaincommon.rng` and
//! the parser `src/conf/domain_conf.c` judge the output in `scripts/check-export.sh`.

use super::linux::{BudgetMeans, LinuxPool, LinuxScheduling};
use super::loss::Losses;
use super::quota::{Quota, percent, quota};
use super::target::{ExportFile, Keep};
use super::text::{cpu_list, sentence, xml, xml_comment};
use super::units::domains;
use crate::host::{Domain, Host};
use crate::index::PoolIx;
use crate::live::HelperPolicy;
use crate::text::printable;

/// What both versions of cgroups take as a weight (version 1: 2 to 262144, version 2: 1 to 10000).
const SHARES: std::ops::RangeInclusive<u32> = 2..=10_000;

pub(super) fn files(host: &Host, keep: Keep, losses: &mut Losses) -> Vec<ExportFile> {
    let pools: Vec<LinuxPool> = (0..host.pools.len())
        .map(|i| LinuxPool::new(host, PoolIx(i), keep, BudgetMeans::Quota, losses))
        .collect();
    losses.add_tasks(host, "libvirt manages virtual machines only; the export for systemd has tasks");
    losses.add_nested(host);
    domains(host).map(|(domain, PoolIx(pool))| file(host, domain, &pools[pool], losses)).collect()
}

fn file(host: &Host, domain: &Domain, pool: &LinuxPool, losses: &mut Losses) -> ExportFile {
    let vcpus = &host.vcpus[domain.vcpus.clone()];
    let rules: Vec<LinuxScheduling> = vcpus.iter().map(|v| pool.rule(&v.name, &v.params, losses)).collect();
    let mut tune = Vec::new();
    tune.extend(shares(domain, &rules, losses).map(|n| format!("<shares>{n}</shares>")));
    if let Some(Quota { quota_us, period_us, .. }) = quota_of(domain, &rules, losses) {
        tune.push(format!("<period>{period_us}</period>"));
        tune.push(format!("<quota>{quota_us}</quota>"));
    }
    for (n, vcpu) in vcpus.iter().enumerate() {
        let list = cpu_list(&pool.processors(&vcpu.params));
        tune.push(format!("<vcpupin vcpu='{n}' cpuset='{list}'/>"));
    }
    tune.push(format!("<emulatorpin cpuset='{}'/>", cpu_list(pool.helpers(domain))));
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
    text += &format!("<domain type='kvm'>\n  <name>{}</name>\n", xml(&domain.name));
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

/// One number for the domain: weights of single vCPUs do not exist.
fn shares(domain: &Domain, rules: &[LinuxScheduling], losses: &mut Losses) -> Option<u32> {
    let weights: Vec<u32> = rules
        .iter()
        .filter_map(|rule| match rule {
            LinuxScheduling::Fair { weight, .. } => *weight,
            _ => None,
        })
        .collect();
    let most = *weights.iter().max()?;
    if weights.len() < rules.len() || weights.iter().any(|w| *w != most) {
        losses.add(
            &domain.name,
            "weight",
            "libvirt has one weight for all vCPUs of a domain: the greatest \
                                            applies",
        );
    }
    let shares = most.clamp(*SHARES.start(), *SHARES.end());
    if shares != most {
        losses.add(&domain.name, "weight", format!("{most} is written as {shares}: cgroups take 2 to 10000"));
    }
    Some(shares)
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
