//! `punctual synthesize`: the smallest budgets that guarantee every deadline.

use std::fmt::Write as _;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use indicatif::ProgressBar;
use punctual_analysis::sensitivity::{Growth, sensitivity};
use punctual_analysis::synthesize::{
    Chosen, Failure as Unmet, Options, Periods, Placement, Stage, Synthesis, synthesize,
};
use punctual_model::Host;
use punctual_model::file::edit::{with_budgets, with_params};
use punctual_model::file::{self, Overrides};
use punctual_report::format::{fmt_duration, fmt_share};
use punctual_report::table;
use punctual_sched::Duration;
use serde::Serialize;

use super::error::Error;
use super::input::{Changes, HostFile, some_time};
use super::output::{OutFile, Ui, wrapped};
use super::{exit, interrupt};

/// Find the smallest budgets that guarantee every deadline.
///
/// Budgets are found for every vCPU under a policy with budgets (and for every task that such a policy
/// schedules itself); priorities and processors where the file gives none. vCPUs without deadlines inside
/// keep what the file reserves for them; other domains need no budget in the file, and with `--periods free`
/// no period. The result is analysed again as a whole, and no budget in it can be one step smaller. Exit code
/// 0: found, 1: nothing suffices, 2: the command line or the file is wrong. docs/analysis.md explains the
/// search.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual synthesize host.toml                          which budgets are enough?\n  \
    punctual synthesize host.toml --output out.toml        the same file with these budgets\n  \
    punctual synthesize host.toml --margin 20%             with room for costs to grow\n  \
    punctual synthesize examples/five-vms.toml --periods free   the best periods as well\n  \
    punctual synthesize host.toml --policy periodic --json")]
pub struct Args {
    /// The host file; `-` reads standard input.
    #[arg(value_name = "HOST.toml")]
    file: PathBuf,
    /// Write the host file with the result here; `-` is standard output, instead of the tables.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Keep the file's periods, or choose the best of the candidates for each vCPU.
    #[arg(long, value_name = "WHICH", default_value = "given")]
    periods: PeriodChoice,
    /// Periods to choose from, with commas; by default 1, 2, 5, 10 ... ms and the divisors of the tasks'
    /// periods.
    #[arg(long, value_name = "TIMES", value_delimiter = ',', value_parser = some_time)]
    candidates: Vec<Duration>,
    /// Budgets are multiples of this.
    #[arg(long, value_name = "TIME", default_value = "100us", value_parser = some_time)]
    granularity: Duration,
    /// Let every cost grow by this much.
    #[arg(long, value_name = "PERCENT", default_value = "0%", value_parser = percent)]
    margin: u64,
    /// Keep the file's priorities, or choose all of them; missing ones are always chosen.
    #[arg(long, value_name = "WHICH", default_value = "given")]
    priorities: PriorityChoice,
    /// How vCPUs without an affinity get their processors in partitioned pools.
    #[arg(long, value_name = "HOW", default_value = "auto")]
    placement: PlacementChoice,
    /// Analyses after which the search is content with the best so far.
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
    fn options(&self) -> Result<Options, Error> {
        let periods = match self.periods {
            PeriodChoice::Free => Periods::Free(self.candidates.clone()),
            PeriodChoice::Given if self.candidates.is_empty() => Periods::Given,
            PeriodChoice::Given => {
                return Err(Error::Usage("--candidates needs --periods free".into()));
            }
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

/// What `--json` prints.
#[derive(Serialize)]
struct Json<'a> {
    found: bool,
    exact: Option<bool>,
    bandwidth_ppm: Option<u64>,
    units: &'a [Chosen],
    sensitivity: &'a [Growth],
    unmet: Option<Reason<'a>>,
}

#[derive(Serialize)]
struct Reason<'a> {
    name: &'a str,
    why: &'a [String],
}

/// Runs `punctual synthesize`.
pub fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    let options = args.options()?;
    let source = HostFile::read(&args.file)?;
    let (text, host) = host_of(args, &source)?;
    interrupt::install();
    interrupt::be_graceful();
    let bar = ui.spinner();
    let mut watch = |stage: Stage| {
        tick(&bar, stage);
        if interrupt::stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let found = synthesize(&host, &options, &mut watch);
    let synthesis = match found {
        Ok(synthesis) => synthesis,
        Err(Unmet::Stopped) => return Err(Error::Interrupted),
        Err(Unmet::Unmet { name, why }) => {
            bar.finish_and_clear();
            return unmet(args, ui, &name, &why);
        }
    };
    let growth = sensitivity(&synthesis.host, &mut watch).ok_or(Error::Interrupted)?;
    bar.finish_and_clear();
    let file = with_params(&text, &source.name, &host, &synthesis.host);
    // What was written is what was analysed.
    let again = file::parse(&file, &source.name, &Overrides::default())?;
    if again != synthesis.host {
        return Err(Error::Violation("the file written is read as another host".into()));
    }
    match args.output.as_deref() {
        Some(path) if path == Path::new("-") => {
            ui.print(file)?;
            return Ok(exit::OK);
        }
        Some(path) => {
            let mut out = OutFile::create(path)?;
            out.write_all(file.as_bytes()).map_err(Error::usage)?;
            out.finish()?;
        }
        None => {}
    }
    if args.json {
        ui.print_json(&Json {
            found: true,
            exact: Some(synthesis.exact),
            bandwidth_ppm: Some(synthesis.bandwidth_ppm()),
            units: &synthesis.chosen,
            sensitivity: &growth,
            unmet: None,
        })?;
    } else {
        ui.print(tables(&synthesis, &growth, args, ui.stdout_has_colour()))?;
    }
    Ok(exit::OK)
}

/// The file, with budgets where there are none, and its host. Errors are those of the file as it is.
fn host_of(args: &Args, source: &HostFile) -> Result<(String, Host), Error> {
    let overrides = args.changes.overrides(args.policy.clone());
    let text = source.text();
    if let Some(text) = with_budgets(&text, args.periods == PeriodChoice::Free)
        && let Ok(host) = file::parse(&text, &source.name, &overrides)
    {
        return Ok((text, host));
    }
    Ok((text, source.host(&overrides)?))
}

fn tick(bar: &ProgressBar, stage: Stage) {
    match stage {
        Stage::Search(n) if n.is_multiple_of(256) => bar.set_message(format!("{n} analyses")),
        Stage::Growth(done, total) if done.is_multiple_of(16) => {
            bar.set_message(format!("how much costs may grow: {done} of {total} tasks"));
        }
        _ => return,
    }
    bar.tick();
}

fn unmet(args: &Args, ui: &Ui, name: &str, why: &[String]) -> Result<u8, Error> {
    if args.json {
        let (units, sensitivity) = (&[][..], &[][..]);
        let unmet = Some(Reason { name, why });
        ui.print_json(&Json { found: false, exact: None, bandwidth_ppm: None, units, sensitivity, unmet })?;
    } else {
        let mut text = format!("Nothing guarantees {name}:\n");
        why.iter().for_each(|reason| text += &wrapped("  ", "    ", reason));
        if args.periods == PeriodChoice::Given {
            text += "Other periods may do (--periods free), or other priorities (--priorities free).\n";
        }
        ui.print(text)?;
    }
    Ok(exit::MISSED)
}

fn time_of(ns: u64) -> String {
    fmt_duration(Duration::from_ns(ns))
}

fn tables(found: &Synthesis, growth: &[Growth], args: &Args, colour: bool) -> String {
    let mut out = format!("{}\n", found.host.name);
    let total = fmt_share(found.bandwidth_ppm(), 1_000_000);
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "Every deadline is guaranteed with {total} of a processor for {} units.",
        found.chosen.len()
    );
    out += if found.exact {
        "Nothing less does with these choices, as far as the tests can tell.\n\n"
    } else {
        "The search ended early: less may do (--effort).\n\n"
    };
    out += &units(&found.chosen, colour);
    out.push('\n');
    out += &growths(growth, colour);
    if let Some(path) = &args.output {
        let _ = writeln!(out, "\nwritten to {}", path.display());
    }
    out
}

fn units(chosen: &[Chosen], colour: bool) -> String {
    let names: Vec<&str> = chosen.iter().map(|c| c.name.as_str()).collect();
    let number = |n: Option<String>| n.unwrap_or_else(|| "-".into());
    let before = |c: &Chosen| match (c.budget_before_ns, c.period_before_ns) {
        (Some(budget), Some(period)) => {
            format!("{} in {}", Duration::from_ns(budget), Duration::from_ns(period))
        }
        _ => "-".into(),
    };
    let row = |c: &Chosen| {
        vec![
            time_of(c.budget_ns),
            time_of(c.period_ns),
            fmt_share(c.bandwidth_ppm, 1_000_000),
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
        let more = g.cost_max_ns - g.cost_ns;
        vec![
            time_of(g.cost_ns),
            time_of(g.cost_max_ns),
            format!("+{}", fmt_share(more, g.cost_ns.max(1))),
            g.breaks.clone(),
        ]
    };
    let rows: Vec<_> = growth.iter().map(row).collect();
    let columns = ["cost", "may be", "growth", "then breaks"];
    table::matrix("How much one cost may grow, the others as they are", &names, &columns, &rows, colour)
}
