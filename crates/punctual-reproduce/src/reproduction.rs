//! What a reproduction consists of: tables, figures, measures and judged claims.

use serde::Serialize;

use crate::claims::{Claim, Judged};
use crate::measures::Measures;
use crate::options::Options;
use crate::papers::Citation;
use crate::ranges::RangeFigure;

/// A table of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Table {
    /// Name, for file names.
    pub id: String,
    pub title: String,
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
    pub name: String,
    /// Points: x, mean, least, greatest over the task sets.
    pub points: Vec<[f64; 4]>,
}

/// Curves over one axis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Name, for file names.
    pub id: String,
    pub title: String,
    /// Label of the horizontal axis.
    pub x: String,
    /// Label of the vertical axis.
    pub y: String,
    pub series: Vec<Series>,
}

/// What one experiment brings.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub tables: Vec<Table>,
    pub figures: Vec<Figure>,
    /// Its box plots and bars.
    pub ranges: Vec<RangeFigure>,
    pub measures: Measures,
}

impl Outcome {
    pub(crate) fn merged(outcomes: Vec<Outcome>) -> Outcome {
        let mut all = Outcome::default();
        for outcome in outcomes {
            all.tables.extend(outcome.tables);
            all.figures.extend(outcome.figures);
            all.ranges.extend(outcome.ranges);
            all.measures.extend(outcome.measures);
        }
        all
    }
}

/// A paper's experiments with a verdict on every claim.
#[derive(Clone, Debug, Serialize)]
pub struct Reproduction {
    pub citation: Citation,
    pub quick: bool,
    pub seeds: Vec<u64>,
    pub tables: Vec<Table>,
    pub figures: Vec<Figure>,
    /// All box plots and bars.
    pub ranges: Vec<RangeFigure>,
    pub measures: Measures,
    pub claims: Vec<Judged>,
}

impl Reproduction {
    pub(crate) fn new(
        options: &Options,
        citation: Citation,
        claims: &[Claim],
        outcomes: Vec<Outcome>,
    ) -> Self {
        let all = Outcome::merged(outcomes);
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

    /// Of a run too short for the paper's claims: nothing is judged.
    #[cfg(feature = "live")]
    pub(crate) fn unjudged(quick: bool, citation: Citation, outcome: Outcome) -> Self {
        let options = Options { quick, task_sets: Some(1), ..Options::default() };
        Reproduction::new(&options, citation, &[], vec![outcome])
    }

    /// Claims whose verdict is not the recorded one: what `--strict` fails on. Recorded verdicts are those
    /// of the full runs, so a quick one may have some.
    pub fn unexpected(&self) -> impl Iterator<Item = &Judged> {
        self.claims.iter().filter(|c| c.unexpected)
    }
}
