//! `punctual xen set`: parameters of vCPUs.

use clap::ArgAction;
use punctual_model::text::printable;
use punctual_sched::{Duration, UnitParams};
use punctual_xen::abi::Params;
use punctual_xen::op::{Op, What};
use punctual_xen_run::hypervisor::{Domain, Xen, domains};

use super::super::error::Error;
use super::super::exit;
use super::super::input::{some_time, time};
use super::super::output::Ui;

/// Set parameters of a domain's vCPUs.
///
/// Parameters that are not given do not change. Without a priority, a shorter period is more urgent. Affinity
/// is set by `xl vcpu-pin`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual xen set video --budget 4ms --period 10ms\n  \
    punctual xen set control/0 --priority 1 --extratime false\n  \
    punctual xen set batch --weight 512 --cap 50\n  \
    punctual xen set spare --best-effort true")]
pub(super) struct Args {
    /// The domain's name or number, for all its vCPUs, or one of them: `video/1`.
    #[arg(value_name = "DOMAIN[/VCPU]")]
    unit: String,
    /// Processor time in each period.
    #[arg(long, value_name = "TIME", value_parser = time)]
    budget: Option<Duration>,
    /// The period.
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    period: Option<Duration>,
    /// The deadline after the beginning of a period.
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    deadline: Option<Duration>,
    /// Smaller is more urgent.
    #[arg(long, value_name = "N")]
    priority: Option<u32>,
    /// A share among others.
    #[arg(long, value_name = "N")]
    weight: Option<u32>,
    /// Upper limit in percent of a processor; 0: no limit.
    #[arg(long, value_name = "PERCENT")]
    cap: Option<u32>,
    /// May it use time that no other vCPU wants?
    #[arg(long, value_name = "BOOL", action = ArgAction::Set)]
    extratime: Option<bool>,
    /// Run it only when no other vCPU wants the processor; other parameters are then ignored.
    #[arg(long, value_name = "BOOL", action = ArgAction::Set)]
    best_effort: Option<bool>,
}

/// Runs `punctual xen set`.
pub(super) fn run(args: &Args, _ui: &Ui) -> Result<u8, Error> {
    let (name, vcpu) = match args.unit.rsplit_once('/') {
        Some((name, vcpu)) => (name, Some(vcpu)),
        None => (args.unit.as_str(), None),
    };
    let mut op = asked(args);
    if op.params.given == 0 {
        return Err(Error::Usage("nothing to set: give --budget, --period, --priority or others".into()));
    }
    let domain = find(name)?;
    let vcpus = match vcpu {
        Some(vcpu) => {
            let index = vcpu.parse::<u32>().ok().filter(|index| *index < domain.vcpus);
            let none = || Error::Usage(format!("{} has vCPUs 0 to {}", printable(name), domain.vcpus - 1));
            let index = index.ok_or_else(none)?;
            index..index + 1
        }
        None => 0..domain.vcpus,
    };
    let mut xen = Xen::open()?;
    let pools = xen.cpupools()?;
    let (wish, mut refused) = (op.params, None);
    // Whose pool it is in is not in what xl lists: each is asked.
    for vcpu in vcpus {
        (op.domain, op.vcpu) = (domain.id, vcpu);
        let mut done = false;
        for pool in &pools {
            op.params = wish;
            match xen.scheduler_op(pool, &mut op) {
                Ok(()) => done = true,
                Err(error) if op.why != "no such vCPU in this cpupool" => refused = Some(error),
                Err(_) => {}
            }
        }
        if !done {
            let nowhere =
                || Error::Usage(format!("no cpupool under Punctual's scheduler has {}", printable(name)));
            return Err(refused.map_or_else(nowhere, Error::from));
        }
    }
    Ok(exit::OK)
}

fn find(name: &str) -> Result<Domain, Error> {
    let all = domains()?;
    let found = all.iter().find(|domain| domain.name == name || domain.id.to_string() == name);
    found.cloned().ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|domain| domain.name.as_str()).collect();
        Error::Usage(format!(
            "there is no domain `{}`; the domains are {}",
            printable(name),
            names.join(", ")
        ))
    })
}

fn asked(args: &Args) -> Op {
    let params = Params::of(&UnitParams {
        budget: args.budget,
        period: args.period,
        deadline: args.deadline,
        priority: args.priority,
        weight: args.weight,
        cap_percent: args.cap,
        extratime: args.extratime,
        ..UnitParams::default()
    });
    let params = args.best_effort.map_or(params, |best_effort| params.with_best_effort(best_effort));
    Op { params, ..Op::new(What::SetUnit) }
}
