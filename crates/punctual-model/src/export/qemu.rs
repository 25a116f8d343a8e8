//! QEMU: a script for each domain that starts it with named threads and then sets up the scheduling of its
//! vCPUs.
//!
//! vCPU threads are found by the names that `-name debug-threads=on` gives them, `CPU 0/KVM` or `CPU 0/TCG`
//! (QEMU: `accel/kvm/kvm-accel-ops.c`, `accel/tcg/tcg-accel-ops-mttcg.c`). taskset(1) and chrt(1) are
//! util-linux's.

use punctual_sched::{CpuSet, Duration, UnitParams};

use super::linux::{BudgetMeans, LinuxPool, LinuxScheduling};
use super::loss::Losses;
use super::target::{ExportFile, Keep};
use super::text::{cpu_list, header, quoted};
use super::units::domains;
use crate::host::{Domain, Host};
use crate::index::PoolIx;
use crate::live::{Accel, Backend, HelperPolicy, Vm, VmNetwork};

/// Limits of SCHED_DEADLINE (kernel: `kernel/sched/deadline.c`, DL_SCALE and sysctl
/// sched_deadline_period_min_us and sched_deadline_period_max_us).
const RUNTIME_MIN_NS: u128 = 1 << 10;
const PERIOD_MIN_NS: u128 = 100_000;
const PERIOD_MAX_NS: u128 = (1 << 22) * 1_000;

pub(super) fn files(host: &Host, keep: Keep, losses: &mut Losses) -> Vec<ExportFile> {
    let pools: Vec<LinuxPool> = (0..host.pools.len())
        .map(|i| LinuxPool::new(host, PoolIx(i), keep, BudgetMeans::Deadline, losses))
        .collect();
    losses.add_tasks(host, "QEMU runs virtual machines only; the export for systemd has tasks");
    losses.add_nested(host);
    losses.add_drivers(host);
    domains(host).map(|(domain, PoolIx(pool))| file(host, domain, &pools[pool], losses)).collect()
}

fn file(host: &Host, domain: &Domain, pool: &LinuxPool, losses: &mut Losses) -> ExportFile {
    let vcpus = &host.vcpus[domain.vcpus.clone()];
    let width = "\"CPU \"/*".len() + vcpus.len().to_string().len();
    let mut cases = String::new();
    for (n, vcpu) in vcpus.iter().enumerate() {
        let rule = pool.rule(&vcpu.name, &vcpu.params, losses);
        let commands = commands(host, pool, rule, &vcpu.name, &vcpu.params, losses);
        let pattern = format!("\"CPU {n}/\"*)");
        cases += &format!("        {pattern:width$} found=$((found + 1)){commands} ;;\n");
    }
    let name = &domain.name;
    let usage = [
        format!("usage: sh {name}.sh [QEMU OPTION ...]   accelerator, memory, disks, devices, as root"),
        "Its QMP socket and process id are in $PUNCTUAL_RUN, by default /run/punctual.".into(),
    ];
    let helpers = helpers(pool, domain, losses);
    let head = header(host, &format!("Domain {name}"), &usage, losses.of_domain(host, domain));
    let machine = match &domain.live.backend {
        Backend::Vm(vm) => machine(vm),
        Backend::Default | Backend::Process(_) | Backend::Attach(_) => String::new(),
    };
    let count = vcpus.len();
    let text = format!(
        r#"#!/bin/sh
{head}set -eu
name='{name}'
run=${{PUNCTUAL_RUN:-/run/punctual}}
mkdir -p "$run"

# {OVERCOMMIT}
"${{QEMU:-qemu-system-x86_64}}" -name "guest=$name,debug-threads=on" -smp {count} \
    -overcommit mem-lock=on,cpu-pm=off -display none -daemonize \
    -qmp "unix:$run/$name.qmp,server=on,wait=off" -pidfile "$run/$name.pid" \
    {machine}"$@"

found=0
pid=$(cat "$run/$name.pid")
for task in /proc/"$pid"/task/*; do
    tid=${{task##*/}}
    case $(cat "$task/comm") in
{cases}        *) {helpers} || [ ! -d "$task" ] ;;
    esac
done
if [ "$found" -ne {count} ]; then
    echo "$name: $found vCPU threads instead of {count}: {FEWER_THREADS}" >&2
    exit 1
fi
"#
    );
    ExportFile { name: format!("{name}.sh"), text }
}

/// The command for a helper thread, which may end in the meantime.
fn helpers(pool: &LinuxPool, domain: &Domain, losses: &mut Losses) -> String {
    let pin = format!("taskset -p -c {} \"$tid\"", cpu_list(pool.helpers(domain, losses)));
    match domain.live.helpers.policy {
        HelperPolicy::Other { nice: 0 } => pin,
        HelperPolicy::Other { nice } => format!("{pin} && renice -n {nice} -p \"$tid\""),
        HelperPolicy::Fifo { priority } => format!("{pin} && chrt --fifo --pid {priority} \"$tid\""),
    }
}

/// QEMU's options for the VM's devices and memory, each on a line that ends with a backslash.
fn machine(vm: &Vm) -> String {
    let path = |path: &std::path::Path| path.display().to_string();
    let accel = match vm.accel {
        Accel::Auto => "-accel kvm -accel tcg,thread=multi",
        Accel::Kvm => "-accel kvm",
        Accel::Tcg => "-accel tcg,thread=multi",
    };
    let mut lines = vec![format!("{accel} -m {}M", vm.memory_mib)];
    lines.extend(vm.kernel.as_ref().map(|kernel| format!("-kernel {}", quoted(&path(kernel)))));
    lines.extend(vm.initrd.as_ref().map(|initrd| format!("-initrd {}", quoted(&path(initrd)))));
    lines.extend(vm.append.as_ref().map(|append| format!("-append {}", quoted(append))));
    for disk in &vm.disks {
        // QEMU ends a value at a comma that is not doubled.
        let file = path(disk).replace(',', ",,");
        lines.push(format!("-drive {}", quoted(&format!("file={file},if=virtio,format=raw"))));
    }
    let nic = match &vm.network {
        VmNetwork::None => "none".to_string(),
        VmNetwork::User => "user,model=virtio-net-pci".into(),
        VmNetwork::Tap(interface) => {
            format!(
                "tap,ifname={},script=no,downscript=no,model=virtio-net-pci",
                interface.replace(',', ",,")
            )
        }
    };
    lines.push(format!("-nic {}", quoted(&nic)));
    lines.extend(vm.arguments.iter().map(|argument| quoted(argument)));
    lines.iter().map(|line| format!("{line} \\\n    ")).collect()
}

/// The command for a vCPU's thread.
fn commands(
    host: &Host,
    pool: &LinuxPool,
    rule: LinuxScheduling,
    item: &str,
    params: &UnitParams,
    losses: &mut Losses,
) -> String {
    let pin = format!("; taskset -p -c {} \"$tid\"", cpu_list(&pool.processors(params)));
    match rule {
        LinuxScheduling::Budget { budget, period } => {
            let (runtime_ns, period_ns) = reservation(budget, period);
            if (runtime_ns, period_ns) != (u128::from(budget.as_ns()), u128::from(period.as_ns())) {
                let why = format!(
                    "{budget} in every {period} is written as {runtime_ns} ns in every {period_ns} ns: \
                     SCHED_DEADLINE takes periods from 100 us to 4.194304 s"
                );
                losses.add(item, "budget", why);
            }
            if pool.processors(params).len() < host.processors {
                let field = if affine(params.affinity.as_ref(), pool) { "processors" } else { "affinity" };
                let of = if field == "processors" { &pool.pool.name } else { item };
                losses.add(of, field, UNPINNED);
            }
            let times = format!("-T {runtime_ns} -D {period_ns} -P {period_ns}");
            format!("; chrt --deadline {times} --pid 0 \"$tid\"")
        }
        LinuxScheduling::Fifo(priority) => format!("{pin}; chrt --fifo --pid {priority} \"$tid\""),
        LinuxScheduling::RoundRobin => format!("{pin}; chrt --rr --pid 1 \"$tid\""),
        LinuxScheduling::Fair { weight, cap_percent } => {
            if weight.is_some() || cap_percent.is_some() {
                let why =
                    "weights and limits need a control group: the exports for systemd and libvirt have them";
                losses.add(item, if weight.is_some() { "weight" } else { "cap_percent" }, why);
            }
            pin
        }
    }
}

/// What the options of `-overcommit` in the script are for.
const OVERCOMMIT: &str = "cpu-pm=off: an idle vCPU gives its processor back and keeps its budget. \
                          mem-lock=on: no page faults of the host.";

/// Why there may be fewer threads than vCPUs.
const FEWER_THREADS: &str = "with TCG, -accel tcg,thread=multi makes one for each vCPU";

const UNPINNED: &str = "Linux refuses a SCHED_DEADLINE thread that may not use every processor of its root \
                        domain: an exclusive cpuset (cpuset.cpus.partition = root) of the processors keeps \
                        them together";

/// May the unit use the whole pool?
fn affine(affinity: Option<&CpuSet>, pool: &LinuxPool) -> bool {
    affinity.is_none_or(|set| set.len() == pool.pool.processors.len())
}

/// Runtime and period for SCHED_DEADLINE, ns: what was asked for, or no smaller a share in a period that it
/// takes.
fn reservation(budget: Duration, period: Duration) -> (u128, u128) {
    let (b, p) = (u128::from(budget.as_ns()), u128::from(period.as_ns().max(1)));
    let times = RUNTIME_MIN_NS.div_ceil(b.max(1)).max(PERIOD_MIN_NS.div_ceil(p)).max(1);
    let period_ns = (p * times).min(PERIOD_MAX_NS);
    ((b * period_ns).div_ceil(p).max(RUNTIME_MIN_NS), period_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_keep_the_share_where_the_kernel_takes_other_periods() {
        let of =
            |budget_us, period_us| reservation(Duration::from_us(budget_us), Duration::from_us(period_us));
        assert_eq!(of(2_000, 10_000), (2_000_000, 10_000_000));
        assert_eq!(of(10, 40), (30_000, 120_000));
        assert_eq!(of(4_000_000, 8_000_000), (2_097_152_000, 4_194_304_000));
        assert_eq!(of(1, 4_194_304), (1_024, 4_194_304_000));
    }
}
