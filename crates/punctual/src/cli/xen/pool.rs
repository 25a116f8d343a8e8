//! `punctual xen pool`: the policy of a cpupool.

use punctual_xen::op::{Op, What};
use punctual_xen_run::hypervisor::Xen;

use super::super::error::Error;
use super::super::exit;
use super::super::input::PolicyName;
use super::super::output::Ui;

/// Show or change the policy of a cpupool.
///
/// All vCPUs of the pool get the new policy at once and keep their parameters; if the policy refuses one,
/// nothing changes. Setting a policy also restores a pool whose policy has failed.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual xen pool Pool-0\n  \
    punctual xen pool Pool-0 --policy sporadic\n  \
    punctual xen pool rt --policy deferrable --option quantum=1ms")]
pub(super) struct Args {
    /// The cpupool's name or number.
    #[arg(value_name = "POOL")]
    pool: String,
    /// The new policy.
    #[arg(long, value_name = "POLICY", value_parser = PolicyName { or_all: false })]
    policy: Option<String>,
    /// An option of the policy; repeat for more.
    #[arg(long, value_name = "NAME=VALUE", requires = "policy")]
    option: Vec<String>,
    /// Let the policy fail at its next decision; in debug builds of Xen.
    #[arg(long, hide = true, conflicts_with = "policy")]
    r#break: bool,
}

/// Runs `punctual xen pool`.
pub(super) fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    let mut xen = Xen::open()?;
    let pool = xen.cpupool(&args.pool)?;
    if args.r#break {
        xen.scheduler_op(&pool, &mut Op::new(What::Break))?;
        return Ok(exit::OK);
    }
    if let Some(policy) = &args.policy {
        let mut op = Op::new(What::SetPool);
        op.policy.clone_from(policy);
        op.options = args.option.join(",");
        xen.scheduler_op(&pool, &mut op)?;
    }
    let mut op = Op::new(What::GetPool);
    xen.scheduler_op(&pool, &mut op)?;
    ui.print(format!("{}\n", super::show::heading(&pool, &op)))?;
    Ok(exit::OK)
}
