//! virsh: a script for domains that libvirt runs already.
//!
//! Commands: virsh(1), `vcpupin`, `emulatorpin`, `schedinfo`. They change the running domain and, with
//! `--config`, its XML. virsh has no command for `vcpusched`.

use super::libvirt::{DomainSettings, libvirt_name, of_each_domain};
use super::linux::LinuxScheduling;
use super::loss::Losses;
use super::quota::Quota;
use super::target::{ExportFile, Keep};
use super::text::{cpu_list, header, quoted};
use crate::host::Host;
use crate::live::HelperPolicy;

pub(super) fn files(host: &Host, keep: Keep, losses: &mut Losses) -> Vec<ExportFile> {
    let script = of_each_domain(host, keep, losses, |one, losses| commands(host, one, losses)).concat();
    let usage = [
        "usage: sh virsh.sh [VIRSH OPTION ...]   for example --connect qemu:///system".into(),
        "It sets the domains, which have to run, and their XML.".into(),
    ];
    let head = header(host, "Scheduling for virsh", &usage, losses.list.iter());
    let text = format!("#!/bin/sh\n{head}set -eu\n{script}");
    vec![ExportFile { name: "virsh.sh".into(), text }]
}

fn commands(host: &Host, settings: &DomainSettings<'_>, losses: &mut Losses) -> String {
    let DomainSettings { domain, pool, rules, .. } = settings;
    let name = quoted(libvirt_name(domain));
    let mut out = format!("\n# domain {}\n", domain.name);
    let mut line = |command: &str, arguments: &str| {
        out += &format!("virsh \"$@\" {command} --domain {name} --live --config {arguments}\n");
    };
    for (n, vcpu) in host.vcpus[domain.vcpus.clone()].iter().enumerate() {
        let list = cpu_list(&pool.processors(&vcpu.params));
        line("vcpupin", &format!("--vcpu {n} --cpulist {list}"));
    }
    line("emulatorpin", &format!("--cpulist {}", cpu_list(&settings.helpers)));
    if let Some(shares) = settings.shares {
        line("schedinfo", &format!("--set cpu_shares={shares}"));
    }
    if let Some(Quota { quota_us, period_us, .. }) = settings.quota {
        line("schedinfo", &format!("--set vcpu_period={period_us} --set vcpu_quota={quota_us}"));
    }
    let is_realtime =
        |rule: &LinuxScheduling| matches!(rule, LinuxScheduling::Fifo(_) | LinuxScheduling::RoundRobin);
    if rules.iter().any(is_realtime) {
        let why = "virsh has no command for real-time classes: the export for libvirt has <vcpusched>";
        losses.add(&domain.name, "priority", why);
    }
    if domain.live.helpers.policy != (HelperPolicy::Other { nice: 0 }) {
        let why = "virsh has no command for the class of helper threads";
        losses.add(&domain.name, "helpers", why);
    }
    out
}
