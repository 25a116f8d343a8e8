//! `punctual xen show`: what the scheduler has.

use std::fmt::Write as _;

use punctual_model::text::printable;
use punctual_report::format::fmt_ns;
use punctual_xen::op::{Op, What};
use punctual_xen_run::hypervisor::{Cpupool, Domain, Xen, domains};
use serde::Serialize;

use super::super::error::Error;
use super::super::exit;
use super::super::output::Ui;

/// Show cpupools, their policies, and each vCPU's parameters and account.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual xen show\n  \
    punctual xen show --json | jq '.[].vcpus[] | select(.exhaustions > 0)'")]
pub(super) struct Args {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    pool: Cpupool,
    policy: String,
    options: String,
    #[serde(rename = "parked")]
    failed: bool,
    vcpus: Vec<Vcpu>,
}

#[derive(Serialize)]
struct Vcpu {
    domain: String,
    vcpu: u32,
    budget_ns: u64,
    period_ns: u64,
    priority: u32,
    extratime: bool,
    /// Absent where the policy keeps no budget.
    left_ns: Option<u64>,
    exhaustions: u64,
    replenishments: u64,
}

/// Runs `punctual xen show`.
pub(super) fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    let mut xen = Xen::open()?;
    let domains = domains()?;
    let mut shown = Vec::new();
    for pool in xen.cpupools()? {
        let mut op = Op::new(What::GetPool);
        match xen.scheduler_op(&pool, &mut op) {
            Ok(()) => {}
            Err(error) if shown.is_empty() && pool.id == 0 => return Err(error.into()),
            Err(_) => continue,
        }
        let vcpus = domains.iter().flat_map(|domain| units(&mut xen, &pool, domain)).collect();
        let Op { policy, options, failed, .. } = op;
        shown.push(Shown { pool, policy, options, failed, vcpus });
    }
    if args.json {
        ui.print_json(&shown)?
    } else {
        ui.print(text(&shown))?
    }
    Ok(exit::OK)
}

/// The domain's vCPUs in this pool.
fn units(xen: &mut Xen, pool: &Cpupool, domain: &Domain) -> Vec<Vcpu> {
    let mut units = Vec::new();
    for vcpu in 0..domain.vcpus {
        let mut op = Op::new(What::GetUnit);
        (op.domain, op.vcpu) = (domain.id, vcpu);
        if xen.scheduler_op(pool, &mut op).is_err() {
            break;
        }
        units.push(Vcpu {
            domain: domain.name.clone(),
            vcpu,
            budget_ns: op.params.budget_ns,
            period_ns: op.params.period_ns,
            priority: op.params.priority,
            extratime: op.params.extratime != 0,
            left_ns: Some(op.account.left_ns).filter(|left| *left != u64::MAX),
            exhaustions: op.account.exhaustions,
            replenishments: op.account.replenishments,
        });
    }
    units
}

/// A cpupool's line.
pub(super) fn heading(pool: &Cpupool, op: &Op) -> String {
    line(pool, &op.policy, &op.options, op.failed)
}

fn line(pool: &Cpupool, policy: &str, options: &str, failed: bool) -> String {
    let options = if options.is_empty() { String::new() } else { format!(" {options}") };
    let failed = if failed { ", which has failed: round robin" } else { "" };
    format!("{}: {}{}{failed}", printable(&pool.name), printable(policy), printable(&options))
}

fn text(shown: &[Shown]) -> String {
    let mut text = String::new();
    for pool in shown {
        let _ = writeln!(text, "{}", line(&pool.pool, &pool.policy, &pool.options, pool.failed));
        let _ = writeln!(
            text,
            "  {:<24} {:>10} {:>10} {:>10} {:>9} {:>10} {:>11} {:>14}",
            "vCPU", "budget", "period", "priority", "extratime", "left", "exhaustions", "replenishments"
        );
        for vcpu in &pool.vcpus {
            let _ = writeln!(
                text,
                "  {:<24} {:>10} {:>10} {:>10} {:>9} {:>10} {:>11} {:>14}",
                printable(&format!("{}/{}", vcpu.domain, vcpu.vcpu)),
                fmt_ns(vcpu.budget_ns),
                fmt_ns(vcpu.period_ns),
                vcpu.priority,
                vcpu.extratime,
                vcpu.left_ns.map_or("-".into(), fmt_ns),
                vcpu.exhaustions,
                vcpu.replenishments
            );
        }
    }
    text
}
