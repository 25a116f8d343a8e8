//! `punctual xen run`: a host file in guests of Xen.

use std::path::PathBuf;

use punctual_report::{Column, json, table};
use punctual_sched::{UnitParams, rtds};
use punctual_xen::abi::Params;
use punctual_xen::op::{Op, What};
use punctual_xen_run::xen::run::{RunOptions, run as run_host};
use punctual_xen_run::xen::{self, Control, Counts};

use super::super::error::Error;
use super::super::input::{Changes, HostFile, Label, PolicyName};
use super::super::output::Ui;
use super::super::{exit, interrupt};
use super::hypervisor::Xen;
use super::own::OwnScheduler;

/// Run a host file in guests of Xen, and put everything back.
///
/// Its pools become cpupools, its domains PV guests with the project's guest program. A domain called
/// `Domain-0` is domain 0 itself, and its pool the first cpupool: it says what domain 0 may have meanwhile.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual xen run labs/xen/hosts/three.toml --kernel /boot/vmlinux\n  \
    punctual xen run host.toml --policy rtds --duration 20s --json > xen.json")]
pub struct Args {
    /// The host file; `-` reads standard input.
    #[arg(value_name = "HOST.toml")]
    file: PathBuf,
    /// Schedule every pool by this policy instead of the file's.
    #[arg(long, value_name = "POLICY", value_parser = PolicyName { or_all: false })]
    policy: Option<String>,
    #[command(flatten)]
    changes: Changes,
    /// The Linux kernel of the guests: uncompressed, or as xl takes it.
    #[arg(long, value_name = "FILE", default_value = "/vmlinux")]
    kernel: PathBuf,
    /// Memory of each guest.
    #[arg(long, value_name = "MIB", default_value_t = 128)]
    memory: u32,
    /// Print results as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    label: Label,
}

/// Runs `punctual xen run`.
pub fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    interrupt::install();
    let host = HostFile::read(&args.file)?.host(&args.changes.overrides(args.policy.clone()))?;
    let mut xen = Asked(Xen::open()?);
    interrupt::be_graceful();
    let options = RunOptions {
        kernel: &args.kernel,
        memory_mib: args.memory,
        progress: &|text| eprintln!("{text}"),
        stop: interrupt::stopped,
    };
    let results = match run_host(&host, &mut xen, &options) {
        Ok(results) => results,
        Err(xen::Error::Stopped) => return Err(Error::Interrupted),
        Err(_) if interrupt::stopped() => return Err(Error::Interrupted),
        Err(error) => return Err(Error::usage(error)),
    };
    let label = args.label.of("Xen", false);
    let mut column = Column { label, results };
    args.label.keep(&mut column);
    match args.json {
        true => ui.print(json::to_json(&column.results))?,
        false => ui.print(table::summary(&column.results, ui.stdout_has_colour()))?,
    }
    Ok(exit::OK)
}

/// The cpupool that Xen makes: its scheduler is the one of Xen's command line.
const FIRST_POOL: &str = "Pool-0";

/// The scheduler as a run asks it.
pub(super) struct Asked(pub(super) Xen);

impl Asked {
    /// Xen's own scheduler, if the cpupool has one; `None`: Punctual's has it.
    fn own(&mut self, pool: &str) -> Result<Option<OwnScheduler>, String> {
        self.0.own_scheduler(pool).map_err(words)
    }

    fn ask(&mut self, pool: &str, op: &mut Op) -> Result<(), String> {
        self.0.cpupool(pool).and_then(|pool| self.0.ask(&pool, op)).map_err(words)
    }
}

fn words(error: Error) -> String {
    match error {
        Error::Usage(text) => text,
        other => format!("{other:?}"),
    }
}

impl Control for Asked {
    fn policy(&mut self, pool: &str) -> Result<(String, String), String> {
        if let Some(own) = self.own(pool)? {
            return own.options(pool);
        }
        let mut op = Op::new(What::GetPool);
        self.ask(pool, &mut op)?;
        Ok((op.policy, op.options))
    }

    /// Punctual's scheduler has RTDS's number, and so its name.
    fn scheduler(&mut self, policy: &str) -> Result<&'static str, String> {
        match self.own(FIRST_POOL)? {
            None => Ok(rtds::NAME),
            Some(_) => OwnScheduler::for_policy(policy),
        }
    }

    fn boot_policy(&mut self) -> Result<Option<&'static str>, String> {
        Ok(self.own(FIRST_POOL)?.is_none().then_some(rtds::NAME))
    }

    fn set_policy(&mut self, pool: &str, policy: &str, options: &str) -> Result<Option<u64>, String> {
        if let Some(own) = self.own(pool)? {
            return own.set_options(pool, policy, options).map(|()| None);
        }
        let mut op = Op { policy: policy.into(), options: options.into(), ..Op::new(What::SetPool) };
        let ahead_ns = self.0.cpupool(pool).and_then(|pool| {
            self.0.ask(&pool, &mut op)?;
            self.0.clock_ahead_ns(&pool)
        });
        Ok(op.now_ns.checked_add_signed(-ahead_ns.map_err(words)?))
    }

    fn unit(&mut self, pool: &str, domain: u32, vcpu: u32) -> Result<(UnitParams, Option<Counts>), String> {
        if let Some(own) = self.own(pool)? {
            return own.unit(domain, vcpu).map(|params| (params, None));
        }
        let mut op = Op { domain, vcpu, ..Op::new(What::GetUnit) };
        self.ask(pool, &mut op)?;
        let counts =
            Counts { exhaustions: op.account.exhaustions, replenishments: op.account.replenishments };
        Ok((op.params.unit_params(), Some(counts)))
    }

    fn set_unit(&mut self, pool: &str, domain: u32, vcpu: u32, params: &UnitParams) -> Result<(), String> {
        if let Some(own) = self.own(pool)? {
            return own.set_unit(domain, vcpu, params);
        }
        let params = Params::of(params);
        self.ask(pool, &mut Op { domain, vcpu, params, ..Op::new(What::SetUnit) })
    }

    fn vcpu_time_ns(&mut self, domain: u32, vcpu: u32) -> Result<u64, String> {
        self.0.vcpu_time_ns(domain, vcpu)
    }
}
