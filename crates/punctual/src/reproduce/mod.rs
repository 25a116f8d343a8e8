//! `punctual reproduce`: the experiments of published papers on the deterministic machine, beside what the
//! papers print, with a verdict on every claim.
//!
//! The papers' figures, tables and claims are data in `papers/`; host files there describe each experiment.
//! An experiment simulates them (on all cores), collects [`measures::Measures`], and a
//! [`Reproduction`] holds tables and curves of those together with the judged claims. Showing it is
//! [`render`]'s task. Same options, same result, except for what [`native`] measures on this machine.

pub mod boot;
pub mod claims;
pub mod cyclictest;
pub mod fig5;
pub mod fig6;
pub mod live;
pub mod measures;
pub mod native;
pub mod nautilus_ping;
pub mod papers;
pub mod plot;
pub mod ranges;
pub mod render;
pub mod rtca;
pub mod scenario;
pub mod table1;
pub mod table2;
pub mod table4;
pub mod vmm_io;

use punctual_sched::servers::{deferrable, periodic, polling, sporadic};
use punctual_sched::{credit, sedf};
use serde::Serialize;

use claims::{Claim, Judged};
use measures::Measures;
use papers::Citation;
pub use ranges::RangeFigure;
pub use scenario::{Error, Progress};

/// What to run and how long.
#[derive(Clone, Debug)]
pub struct ReproduceOptions {
    /// Shorter runs, fewer loads and two task sets: seconds instead of a minute or two.
    pub quick: bool,
    /// How many task sets for each cell of Table 2 and Fig. 6, seeds 1, 2, ...; `None` means 5 (quick: 2).
    pub task_sets: Option<u32>,
    /// Only these experiments, by name ([`RT_XEN_EXPERIMENTS`], [`NAUTILUS_EXPERIMENTS`]); empty means all.
    pub only: Vec<String>,
    /// Measure decision code on this machine (the native part of Table 1). Its numbers vary.
    pub native: bool,
}

impl Default for ReproduceOptions {
    fn default() -> Self {
        ReproduceOptions { quick: false, task_sets: None, only: Vec::new(), native: true }
    }
}

/// The experiments of `reproduce rt-xen`, in order.
pub const RT_XEN_EXPERIMENTS: [&str; 5] = ["fig5", "table1", "table2", "table4", "fig6"];
/// The experiments of `reproduce rtca`.
pub const RTCA_EXPERIMENTS: [&str; 5] = ["fig3", "fig6", "table1", "fig8", "fig10"];
/// The experiments of `reproduce vmm-io`: the tests of its s.5.2.
pub const VMM_IO_EXPERIMENTS: [&str; 8] =
    ["test1", "test2", "test3", "test4", "test5", "test6", "test7", "test8"];
/// The experiments of `reproduce nautilus`.
pub const NAUTILUS_EXPERIMENTS: [&str; 2] = ["cyclictest", "ping"];

/// The policies that RT-Xen compares, in the order of its Table 1.
pub const POLICIES: [&str; 6] =
    [deferrable::NAME, periodic::NAME, polling::NAME, sporadic::NAME, credit::NAME, sedf::NAME];

impl ReproduceOptions {
    /// The seeds of the task sets.
    pub fn seeds(&self) -> Vec<u64> {
        let default = if self.quick { 2 } else { 5 };
        (1..=u64::from(self.task_sets.unwrap_or(default).max(1))).collect()
    }

    fn runs(&self, experiment: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|o| o == experiment)
    }

    fn check_only(&self, known: &[&str]) -> Result<(), Error> {
        match self.only.iter().find(|o| !known.contains(&o.as_str())) {
            None => Ok(()),
            Some(other) => Err(Error::Experiment(format!(
                "there is no experiment \"{other}\"; there are {}",
                known.join(", ")
            ))),
        }
    }
}

/// A table of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Table {
    /// Name, for file names.
    pub id: String,
    /// Heading.
    pub title: String,
    /// Headings of the columns.
    pub columns: Vec<String>,
    /// Cells, row by row.
    pub rows: Vec<Vec<String>>,
    /// What a reader must know.
    pub notes: Vec<String>,
    /// Does it hold times measured on this machine, which vary from run to run?
    pub native: bool,
}

impl Table {
    /// An empty table.
    pub fn new(id: &str, title: &str, columns: &[&str]) -> Self {
        Table {
            id: id.into(),
            title: title.into(),
            columns: columns.iter().map(|c| c.to_string()).collect(),
            rows: Vec::new(),
            notes: Vec::new(),
            native: false,
        }
    }
}

/// A curve of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Points: x, mean, least, greatest over the task sets.
    pub points: Vec<[f64; 4]>,
}

/// Curves over one axis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Name, for file names.
    pub id: String,
    /// Heading.
    pub title: String,
    /// Label of the horizontal axis.
    pub x: String,
    /// Label of the vertical axis.
    pub y: String,
    /// The curves.
    pub series: Vec<Series>,
}

/// What one experiment brings.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Its tables.
    pub tables: Vec<Table>,
    /// Its figures.
    pub figures: Vec<Figure>,
    /// Its box plots and bars.
    pub ranges: Vec<RangeFigure>,
    /// Its measures.
    pub measures: Measures,
}

/// A paper's experiments with a verdict on every claim.
#[derive(Clone, Debug, Serialize)]
pub struct Reproduction {
    /// Which paper.
    pub citation: Citation,
    /// Were the runs shortened?
    pub quick: bool,
    /// Seeds of the task sets.
    pub seeds: Vec<u64>,
    /// All tables.
    pub tables: Vec<Table>,
    /// All figures.
    pub figures: Vec<Figure>,
    /// All box plots and bars.
    pub ranges: Vec<RangeFigure>,
    /// All measures by name.
    pub measures: Measures,
    /// All claims, judged.
    pub claims: Vec<Judged>,
}

impl Reproduction {
    fn new(options: &ReproduceOptions, citation: Citation, claims: &[Claim], outcomes: Vec<Outcome>) -> Self {
        let mut all = Outcome::default();
        for outcome in outcomes {
            all.tables.extend(outcome.tables);
            all.figures.extend(outcome.figures);
            all.ranges.extend(outcome.ranges);
            all.measures.extend(outcome.measures);
        }
        table4::misses_where_guaranteed(&mut all.measures);
        Reproduction {
            citation,
            quick: options.quick,
            seeds: options.seeds(),
            claims: claims.iter().map(|c| c.judge(&all.measures)).collect(),
            tables: all.tables,
            figures: all.figures,
            ranges: all.ranges,
            measures: all.measures,
        }
    }

    /// Claims whose verdict is not the recorded one: what `--strict` fails on. Recorded verdicts are those
    /// of the full runs, so a quick one may have some.
    pub fn unexpected(&self) -> impl Iterator<Item = &Judged> {
        self.claims.iter().filter(|c| c.unexpected)
    }
}

/// Reproduces RT-Xen: Fig. 5, Tables 1, 2 and 4, Fig. 6.
///
/// # Errors
/// When an experiment's name is unknown or a simulation stops.
pub fn rt_xen(options: &ReproduceOptions, progress: Progress<'_>) -> Result<Reproduction, Error> {
    options.check_only(&RT_XEN_EXPERIMENTS)?;
    let (paper, claims) = papers::rt_xen();
    let mut outcomes = Vec::new();
    if options.runs("fig5") {
        outcomes.push(fig5::run(options, &paper, progress)?);
    }
    if options.runs("table1") {
        outcomes.push(table1::run(options, &paper.table1, progress)?);
    }
    if options.runs("table2") {
        outcomes.push(table2::run(options, &paper.table2, progress)?);
    }
    if options.runs("table4") {
        outcomes.push(table4::run(options, &paper.table4, progress)?);
    }
    if options.runs("fig6") {
        outcomes.push(fig6::run(options, &paper.table4, progress)?);
    }
    Ok(Reproduction::new(options, paper.citation, &claims, outcomes))
}

/// Reproduces RT-Xen on this machine: Fig. 5 for 1 ms, Table 2, one curve of Fig. 6, real beside simulated.
/// Nothing is judged: the runs are too short for the paper's claims.
///
/// # Errors
/// As [`live::rt_xen`].
pub fn rt_xen_live(options: &live::LiveOptions<'_>) -> Result<Reproduction, Error> {
    let (paper, _) = papers::rt_xen();
    let outcome = live::rt_xen(options)?;
    let shown = ReproduceOptions { quick: options.quick, task_sets: Some(1), ..ReproduceOptions::default() };
    Ok(Reproduction::new(&shown, paper.citation, &[], vec![outcome]))
}

/// Reproduces RTCA: Figs. 3, 4, 6, 8 and 10, Tables I and II.
///
/// # Errors
/// When an experiment's name is unknown or a simulation stops.
pub fn rtca(options: &ReproduceOptions, progress: Progress<'_>) -> Result<Reproduction, Error> {
    options.check_only(&RTCA_EXPERIMENTS)?;
    let (paper, claims) = papers::rtca();
    let mut outcomes = Vec::new();
    if options.runs("fig6") {
        outcomes.push(rtca::fig6(progress)?);
    }
    if options.runs("fig3") {
        outcomes.push(rtca::fig3(options, progress)?);
    }
    if options.runs("table1") {
        outcomes.push(rtca::table1(options, &paper, progress)?);
    }
    if options.runs("fig8") {
        outcomes.push(rtca::fig8(options, progress)?);
    }
    if options.runs("fig10") {
        outcomes.push(rtca::fig10(options, &paper, progress)?);
    }
    Ok(Reproduction::new(options, paper.citation, &claims, outcomes))
}

/// Reproduces Scheduling I/O in Virtual Machine Monitors: eleven configurations under eight tests.
///
/// # Errors
/// When an experiment's name is unknown or a simulation stops.
pub fn vmm_io(options: &ReproduceOptions, progress: Progress<'_>) -> Result<Reproduction, Error> {
    options.check_only(&VMM_IO_EXPERIMENTS)?;
    let (paper, claims) = papers::vmm_io();
    let outcome = vmm_io::run(options, &paper, progress)?;
    Ok(Reproduction::new(options, paper.citation, &claims, vec![outcome]))
}

/// Reproduces the Nautilus paper: cyclictest under global, partitioned and mixed scheduling, and ping
/// latency.
///
/// # Errors
/// When an experiment's name is unknown or a simulation stops.
pub fn nautilus(options: &ReproduceOptions, progress: Progress<'_>) -> Result<Reproduction, Error> {
    options.check_only(&NAUTILUS_EXPERIMENTS)?;
    let (paper, claims) = papers::nautilus();
    let mut outcomes = Vec::new();
    if options.runs("cyclictest") {
        outcomes.push(cyclictest::run(options, &paper, progress)?);
    }
    if options.runs("ping") {
        outcomes.push(nautilus_ping::run(options, progress)?);
    }
    Ok(Reproduction::new(options, paper.citation, &claims, outcomes))
}
