//! `punctual xen run`: a host file in guests of Xen.

use std::path::PathBuf;

use punctual_live::xen::run::{RunOptions, run_each};
use punctual_live::xen::{self, Control, Counts};
use punctual_model::Host;
use punctual_report::{Column, json, table};
use punctual_sched::{UnitParams, rtds};
use punctual_xen::abi::Params;
use punctual_xen::op::{Op, What};

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
    punctual xen run scripts/xen/hosts/three.toml --kernel /boot/vmlinux\n  \
    punctual xen run host.toml --policy deferrable,rtds --duration 20s --json > xen.json")]
pub struct Args {
    /// The host file; `-` reads standard input.
    #[arg(value_name = "HOST.toml")]
    file: PathBuf,
    /// Schedule every pool by this policy instead of the file's; under several (repeated or with commas) the
    /// same guests run one after the other.
    #[arg(long, value_name = "POLICY", value_delimiter = ',', value_parser = PolicyName { or_all: false })]
    policy: Vec<String>,
    #[command(flatten)]
    changes: Changes,
    /// The Linux kernel of the guests: uncompressed, or as xl takes it.
    #[arg(long, value_name = "FILE", default_value = "/vmlinux")]
    kernel: PathBuf,
    /// Memory of each guest.
    #[arg(long, value_name = "MIB", default_value_t = 128)]
    memory: u32,
    /// Print results as JSON: an object, or of several policies an array.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    label: Label,
}

/// Runs `punctual xen run`.
pub fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    interrupt::install();
    let file = HostFile::read(&args.file)?;
    let policies = match args.policy.is_empty() {
        true => vec![None],
        false => args.policy.iter().cloned().map(Some).collect(),
    };
    let hosts: Vec<Host> = policies
        .iter()
        .map(|policy| file.host(&args.changes.overrides(policy.clone())))
        .collect::<Result<_, _>>()?;
    let mut xen = Asked(Xen::open()?);
    interrupt::be_graceful();
    let options = RunOptions {
        kernel: &args.kernel,
        memory_mib: args.memory,
        progress: &|text| eprintln!("{text}"),
        stop: interrupt::stopped,
    };
    let mut results = Vec::new();
    let ended = match run_each(&hosts, &mut xen, &options, &mut results) {
        Ok(()) => Ok(exit::OK),
        Err(xen::Error::Stopped) => Err(Error::Interrupted),
        Err(_) if interrupt::stopped() => Err(Error::Interrupted),
        Err(error) => Err(Error::usage(error)),
    };
    let mut columns = Vec::new();
    for (results, policy) in results.into_iter().zip(policies) {
        let label = match policy.filter(|_| hosts.len() > 1) {
            Some(policy) => args.label.of(&policy, true),
            None => args.label.of("Xen", false),
        };
        let mut column = Column { label, results };
        args.label.keep(&mut column);
        columns.push(column);
    }
    // What ran before an error is shown.
    if !columns.is_empty() {
        print(args, &columns, ui)?;
    }
    ended
}

fn print(args: &Args, columns: &[Column], ui: &Ui) -> Result<(), Error> {
    let colour = ui.stdout_has_colour();
    match columns {
        [one] if args.json => ui.print(json::to_json(&one.results)),
        _ if args.json => ui.print(json::all_to_json(columns.iter().map(|column| &column.results))),
        [one] => ui.print(table::summary(&one.results, colour)),
        _ => ui.print(table::side_by_side(columns, colour)),
    }
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
