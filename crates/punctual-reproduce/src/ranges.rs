//! Box plots, and bars with their range.

use punctual_model::Histogram;
use punctual_report::plot::{self, RangeChart};
use serde::Serialize;

use crate::measures::{mean, range};

/// Columns over one axis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RangeFigure {
    /// Name, for file names.
    pub id: String,
    pub title: String,
    /// Label of the vertical axis.
    pub y: String,
    pub logarithmic: bool,
    pub columns: Vec<RangeColumn>,
}

/// A column: a thin line, perhaps a box, a thick line across, single values.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RangeColumn {
    pub label: String,
    pub low: f64,
    pub high: f64,
    pub quartiles: Option<(f64, f64)>,
    pub middle: f64,
    pub marks: Vec<f64>,
}

impl RangeFigure {
    /// A column of single values with their mean and range.
    pub fn bar(label: &str, values: &[f64]) -> RangeColumn {
        let (low, high) = range(values);
        RangeColumn {
            label: label.into(),
            low,
            high,
            quartiles: None,
            middle: mean(values),
            marks: values.to_vec(),
        }
    }

    /// A column from a mean and a standard deviation.
    pub(crate) fn mean_and_deviation(label: &str, mean: f64, deviation: f64) -> RangeColumn {
        let low = (mean - deviation).max(0.0);
        RangeColumn {
            label: label.into(),
            low,
            high: mean + deviation,
            quartiles: None,
            middle: mean,
            marks: vec![mean],
        }
    }

    /// A box plot of a distribution, each value divided by `unit` ns: the thin line ends at the last value
    /// within one and a half times the height of the box (rtca s.VI.C), and the greatest value beyond is
    /// marked.
    pub fn quartiles(label: &str, of: &Histogram, unit: f64) -> RangeColumn {
        let at = |ppm| of.quantile_ppm(ppm).as_ns() as f64 / unit;
        let (q1, q3) = (at(250_000), at(750_000));
        let (least, greatest) = (of.min().as_ns() as f64 / unit, of.max().as_ns() as f64 / unit);
        let reach = 1.5 * (q3 - q1);
        let high = greatest.min(q3 + reach);
        RangeColumn {
            label: label.into(),
            low: least.max(q1 - reach),
            high,
            quartiles: Some((q1, q3)),
            middle: at(500_000),
            marks: if greatest > high { vec![greatest] } else { Vec::new() },
        }
    }

    /// As an SVG document.
    pub fn svg(&self) -> String {
        let column = |c: &RangeColumn| plot::RangeColumn {
            label: c.label.clone(),
            low: c.low,
            high: c.high,
            quartiles: c.quartiles,
            middle: c.middle,
            marks: c.marks.clone(),
        };
        punctual_report::plot::ranges(&RangeChart {
            title: self.title.clone(),
            y: self.y.clone(),
            logarithmic: self.logarithmic,
            columns: self.columns.iter().map(column).collect(),
        })
    }
}
