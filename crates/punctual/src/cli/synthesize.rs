//! `punctual synthesize`: the smallest budgets that guarantee every deadline.

use std::fmt::Write as _;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use indicatif::ProgressBar;
use punctual_analysis::sensitivity::{Growth, sensitivity};
use punctual_analysis::synthesize::{
    self, Chosen, Options, Periods, Placement, Shortfall, Summary, Synthesis, synthesize,
};
use punctual_analysis::watch::Stage;
use punctual_model::Host;
use punctual_model::file;
use punctual_model::host::Pool;
use punctual_report::format::{fmt_duration, fmt_share};
use punctual_report::table;
use punctual_sched::Duration;

use super::error::Error;
use super::input::{Changes, Costs, HostFile, some_time};
use super::output::{OutFile, Overwrite, Ui, wrapped};
use super::{exit, interrupt};

/// Find the smallest budgets that guarantee every deadline.
///
/// Finds a budget for every vCPU under a policy with budgets (and for every task that such a policy schedules
/// itself), and priorities and processors if the file gives none. vCPUs without deadlines inside keep the
/// file's budget; other domains need no budget in the file, and with `--periods free` no period. The result
/// is analysed again as a whole, and no budget in it can be one step smaller. Budgets on which the same flow
/// or chain depends, or the same task that moves between vCPUs, are chosen together. Exit code 0: found; 1:
/// no budgets suffice; 2: the command line or the file is wrong. docs/analysis.md explains the search.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual synthesize host.toml                          which budgets are enough?\n  \
    punctual synthesize host.toml --output out.toml        the same file with these budgets\n  \
    punctual synthesize host.toml --margin 20%             with room for costs to grow\n  \
    punctual synthesize examples/five-vms.toml --periods free   the best periods as well\n  \
    punctual synthesize host.toml --policy periodic --json")]
pub(super) struct Args {
    /// The host file; `-` reads standard input.
    #[arg(value_name = "HOST.toml")]
    file: PathBuf,
    /// Write the host file with these budgets to this path; `-` prints it instead of the tables.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    overwrite: Overwrite,
    /// Keep the file's periods, or choose the best of the candidates for each vCPU [default: given; free if
    /// no domain has a period].
    #[arg(long, value_name = "WHICH")]
    periods: Option<PeriodChoice>,
    /// Periods to choose from, separated by commas [default: 1, 2, 5, 10 ... ms and the divisors of the
    /// tasks' periods].
    #[arg(long, value_name = "TIMES", value_delimiter = ',', value_parser = some_time)]
    candidates: Vec<Duration>,
    /// Budgets are multiples of this.
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = some_time)]
    granularity: Duration,
    /// Room for growth: every cost may grow by this much.
    #[arg(long, value_name = "PERCENT", default_value = "0%", value_parser = percent)]
    margin: u64,
    /// Keep the file's priorities, or choose all of them; missing ones are always chosen.
    #[arg(long, value_name = "WHICH", default_value = "given")]
    priorities: PriorityChoice,
    /// How to place vCPUs without an affinity in partitioned pools.
    #[arg(long, value_name = "HOW", default_value = "auto")]
    placement: PlacementChoice,
    /// Number of analyses after which the search returns the best result so far.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    effort: u64,
    /// Schedule every pool by this policy instead of the file's.
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    changes: Changes,
    #[command(flatten)]
    costs: Costs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PeriodChoice {
    /// Those of the file.
    Given,
    /// The best candidates.
    Free,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PriorityChoice {
    /// Those of the file.
    Given,
    /// The best.
    Free,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PlacementChoice {
    /// Exact for up to eight vCPUs, otherwise the cheapest of the fits.
    Auto,
    /// The first processor with room, greatest demand first.
    FirstFit,
    /// The fullest processor with room.
    BestFit,
    /// The emptiest processor with room.
    WorstFit,
    /// Branch and bound.
    Exact,
}

/// The greatest `--margin`, in parts per 10^9.
const MARGIN_MAX: u64 = 10_000_000_000;

/// In parts per million.
fn percent(text: &str) -> Result<u64, String> {
    match file::parse_percent(text) {
        Ok(parts) if parts <= MARGIN_MAX => Ok(parts.div_ceil(1_000)),
        Ok(_) => Err("expected at most 1000%".into()),
        Err(expected) => Err(format!("expected {expected}")),
    }
}

impl Args {
    fn options(&self, free_periods: bool) -> Result<Options, Error> {
        let periods = match free_periods {
            true => Periods::Free(self.candidates.clone()),
            false if self.candidates.is_empty() => Periods::Given,
            false => return Err(Error::Usage("--candidates needs --periods free".into())),
        };
        Ok(Options {
            granularity: self.granularity,
            margin_ppm: self.margin,
            periods,
            free_priorities: self.priorities == PriorityChoice::Free,
            placement: match self.placement {
                PlacementChoice::Auto => Placement::Auto,
                PlacementChoice::FirstFit => Placement::FirstFit,
                PlacementChoice::BestFit => Placement::BestFit,
                PlacementChoice::WorstFit => Placement::WorstFit,
                PlacementChoice::Exact => Placement::Exact,
            },
            effort: self.effort,
        })
    }
}

/// Runs `punctual synthesize`.
pub(super) fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    args.output.iter().try_for_each(|path| args.overwrite.permit(path))?;
    let source = HostFile::read(&args.file)?;
    let overrides = args.costs.overrides(&args.changes, args.policy.clone());
    let asked = args.periods.map(|periods| periods == PeriodChoice::Free);
    let free_periods = synthesize::are_periods_free(source.bytes(), asked);
    let options = args.options(free_periods)?;
    let read = synthesize::read_file(source.bytes(), &source.name, &overrides, free_periods);
    let searched = read.map_err(|error| match error {
        synthesize::ReadError::File(errors) => errors.into(),
        error @ synthesize::ReadError::Periods(_) => {
            Error::Usage(format!("{error}: write one, or choose all of them with --periods free"))
        }
    })?;
    interrupt::install();
    interrupt::be_graceful();
    let bar = ui.spinner();
    let mut watch = |stage: Stage| {
        tick(&bar, stage);
        if interrupt::stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let host = &searched.host;
    let mut synthesis = match synthesize(host, &options, &mut watch) {
        Ok(synthesis) => synthesis,
        Err(synthesize::Error::Stopped(_)) => return Err(Error::Interrupted),
        Err(synthesize::Error::Unmet { name, why }) => {
            let advice = advice(host, &options, &mut watch)?;
            bar.finish_and_clear();
            return unmet(args, ui, &name, &why, advice);
        }
    };
    let growth = sensitivity(&synthesis.host, &mut watch).map_err(|_| Error::Interrupted)?;
    bar.finish_and_clear();
    searched.forget_starts(&mut synthesis.chosen);
    let file = synthesize::write_file(&searched.text, &source.name, host, &synthesis.host)
        .map_err(|error| Error::Violation(error.to_string()))?;
    show(args, ui, &synthesis, &growth, file)?;
    Ok(exit::OK)
}

/// Writes the file where it is wanted, and prints the tables or JSON unless the file went there.
fn show(args: &Args, ui: &Ui, found: &Synthesis, growth: &[Growth], file: String) -> Result<(), Error> {
    match args.output.as_deref() {
        Some(path) if path == Path::new("-") => return ui.print(file),
        Some(path) => {
            let mut out = OutFile::create(path)?;
            out.write_all(file.as_bytes()).map_err(Error::usage)?;
            out.finish()?;
        }
        None => {}
    }
    if args.json {
        return ui.print_json(&Summary::found(found, growth));
    }
    ui.print(tables(found, growth, args, ui.stdout_has_colour()))
}

fn tick(bar: &ProgressBar, stage: Stage) {
    match stage {
        Stage::Search { analyses } if analyses.is_multiple_of(32) => {
            bar.set_message(format!("{analyses} analyses"));
        }
        Stage::Growth { done, total } if done.is_multiple_of(16) => {
            bar.set_message(format!("how much costs may grow: {done} of {total} tasks"));
        }
        _ => return,
    }
    bar.tick();
}

/// Analyses that look for the choices that would help where nothing suffices.
const ADVICE_EFFORT: u64 = 2_000;

/// The options with which something suffices, tried one by one and then together.
fn advice(
    host: &Host,
    options: &Options,
    watch: &mut dyn FnMut(Stage) -> ControlFlow<()>,
) -> Result<Option<&'static str>, Error> {
    for (text, periods, priorities) in [
        ("--periods free", true, false),
        ("--priorities free", false, true),
        ("--periods free --priorities free", true, true),
    ] {
        let tried = Options {
            periods: if periods { Periods::Free(Vec::new()) } else { options.periods.clone() },
            free_priorities: priorities || options.free_priorities,
            effort: options.effort.min(ADVICE_EFFORT),
            ..options.clone()
        };
        let is_given = periods && options.periods != Periods::Given || priorities && options.free_priorities;
        if is_given {
            continue;
        }
        match synthesize(host, &tried, watch) {
            Ok(_) => return Ok(Some(text)),
            Err(synthesize::Error::Stopped(_)) => return Err(Error::Interrupted),
            Err(synthesize::Error::Unmet { .. }) => {}
        }
    }
    Ok(None)
}

fn unmet(args: &Args, ui: &Ui, name: &str, why: &[Shortfall], advice: Option<&str>) -> Result<u8, Error> {
    let why: Vec<String> = why.iter().map(Shortfall::to_string).collect();
    if args.json {
        ui.print_json(&Summary::unmet(name, why))?;
    } else {
        let mut text = format!("Nothing guarantees {name}:\n");
        why.iter().for_each(|reason| text += &wrapped("  ", "    ", reason));
        if let Some(options) = advice {
            text += &format!("With {options} there are budgets that suffice.\n");
        }
        ui.print(text)?;
    }
    Ok(exit::MISSED)
}

fn tables(found: &Synthesis, growth: &[Growth], args: &Args, colour: bool) -> String {
    let mut out = format!("{}\n", found.host.name);
    let total = fmt_share(found.bandwidth_ppm(), 1_000_000);
    let units_text = if found.chosen.len() == 1 { "unit" } else { "units" };
    let short = overcommitted(found);
    let end = if short.is_empty() { "." } else { ", but not every budget:" };
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "Every deadline is guaranteed with {total} of a processor for {} {units_text}{end}",
        found.chosen.len()
    );
    short.iter().for_each(|text| out += &wrapped("  ", "    ", text));
    out += if found.exact {
        "No smaller budgets suffice with these choices, as far as the tests can tell.\n\n"
    } else if found.together {
        "No budget can be one step smaller beside the others; other combinations may need less.\n\n"
    } else {
        "The search ended early: smaller budgets may suffice (--effort).\n\n"
    };
    out += &units(&found.chosen, colour);
    out.push('\n');
    out += &growths(growth, colour);
    if let Some(text) = found.host.free_scheduling() {
        out += &format!("\n{}", wrapped("", "  ", &format!("warning: {text}")));
    }
    if let Some(path) = &args.output {
        let _ = writeln!(out, "\nwritten to {}", path.display());
    }
    out
}

/// The pools whose budgets are more than their processors have.
fn overcommitted(found: &Synthesis) -> Vec<String> {
    let pool = |pool: &Pool| {
        let sum: u64 = found.chosen.iter().filter(|c| c.pool == pool.name).map(Chosen::bandwidth_ppm).sum();
        let processors = pool.processors.len();
        let of = if processors == 1 { "1 processor".into() } else { format!("{processors} processors") };
        // Each share is rounded up.
        let is_over = sum > processors as u64 * 1_000_000 + found.chosen.len() as u64;
        let share = fmt_share(sum, 1_000_000);
        is_over.then(|| {
            format!("{}: budgets add up to {share} of {of}; units without deadlines get less", pool.name)
        })
    };
    found.host.pools.iter().filter_map(pool).collect()
}

fn units(chosen: &[Chosen], colour: bool) -> String {
    let names: Vec<&str> = chosen.iter().map(|c| c.name.as_str()).collect();
    let number = |n: Option<String>| n.unwrap_or_else(|| "-".into());
    let before = |c: &Chosen| match (c.budget_before, c.period_before) {
        (Some(budget), Some(period)) => format!("{budget} in {period}"),
        _ => "-".into(),
    };
    let row = |c: &Chosen| {
        vec![
            fmt_duration(c.budget),
            fmt_duration(c.period),
            fmt_share(c.bandwidth_ppm(), 1_000_000),
            number(c.priority.map(|p| p.to_string())),
            number(c.processor.map(|p| p.to_string())),
            before(c),
        ]
    };
    let rows: Vec<_> = chosen.iter().map(row).collect();
    let columns = ["budget", "period", "bandwidth", "priority", "processor", "before"];
    table::matrix("Budgets", &names, &columns, &rows, colour)
}

fn growths(growth: &[Growth], colour: bool) -> String {
    let names: Vec<String> = growth.iter().map(|g| format!("{}/{}", g.parent, g.name)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let row = |g: &Growth| {
        let more = g.cost_max - g.cost;
        vec![
            fmt_duration(g.cost),
            fmt_duration(g.cost_max),
            format!("+{}", fmt_share(more.as_ns(), g.cost.as_ns().max(1))),
            g.breaks.clone(),
        ]
    };
    let rows: Vec<_> = growth.iter().map(row).collect();
    let columns = ["cost", "may be", "growth", "then breaks"];
    table::matrix("How much one cost may grow, the others as they are", &names, &columns, &rows, colour)
}
