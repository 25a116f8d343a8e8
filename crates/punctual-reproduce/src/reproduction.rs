//! What a reproduction consists of: tables, figures, measures and judged claims.

use serde::Serialize;

use crate::Options;
use crate::claims::{Claim, Judged};
use crate::measures::Measures;
use crate::papers::Citation;
use crate::ranges::RangeFigure;
use crate::rt_xen::table4;

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
    pub(crate) fn new(
        options: &Options,
        citation: Citation,
        claims: &[Claim],
        outcomes: Vec<Outcome>,
    ) -> Self {
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
