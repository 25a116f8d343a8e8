//! A grid as a figure: one metric over one dimension, a line for each combination of the others.

use std::collections::BTreeMap;

use punctual_report::plot::{self, Chart, Series};

use crate::Error;
use crate::axis::{Axis, Quantity, RangeUnit, quantity};
use crate::grid::{Grid, Outcome};
use crate::metric::{Analysed, Metric, Value};

/// Lines whose names fit beside the chart.
const LINES_MAX: usize = 14;

/// Ticks of an axis at most.
const TICKS_MAX: f64 = 12.0;

/// What a figure shows.
#[derive(Clone, Debug)]
pub struct Figure<'a> {
    /// The vertical axis.
    pub metric: Metric,
    /// The key of the dimension on the horizontal axis; without one, the only dimension of numbers.
    pub x: Option<&'a str>,
    /// Keys of dimensions whose points are added up, for metrics of the analysis: weighted schedulability is
    /// usually shown over another parameter than the utilization.
    pub over: Vec<&'a str>,
}

/// What of the grid is where in the figure.
struct Plan {
    /// The dimension on the horizontal axis.
    x: usize,
    /// The dimensions whose points are added up.
    over: Vec<usize>,
    /// The values of `x`.
    quantities: Vec<Quantity>,
}

/// A number with its unit's name.
struct Unit {
    name: &'static str,
    /// Of the metric's or quantity's own unit.
    factor: f64,
}

impl Grid {
    /// Can the figure be drawn, whatever the points are? For the time before they are computed.
    ///
    /// # Errors
    /// A key is no dimension, several dimensions or none have numbers, or there are too many lines; in a
    /// sentence with the cure.
    pub fn check_figure(&self, figure: &Figure<'_>) -> Result<(), Error> {
        self.plan(figure).map(|_| ())
    }

    /// The figure as SVG; `outcomes` are those of all points.
    ///
    /// # Errors
    /// Those of [`Grid::check_figure`], and that no point has a value.
    pub fn figure(&self, outcomes: &[Outcome], figure: &Figure<'_>) -> Result<String, Error> {
        let Plan { x, over, quantities } = self.plan(figure)?;
        let dimension = &self.dimensions()[x];
        let unit = unit_of(&quantities);
        let lines = self.lines(outcomes, figure.metric, x, &over);
        let drawn = |line: Line| {
            let number = |(at, point): (&usize, &Point)| Some((*at, point.number(figure.metric)?));
            let points: Vec<(usize, f64)> = line.points.iter().filter_map(number).collect();
            (line.name, points)
        };
        let lines: Vec<(String, Vec<(usize, f64)>)> = lines.into_iter().map(drawn).collect();
        let all: Vec<f64> = lines.iter().flat_map(|(_, points)| points.iter().map(|(_, y)| *y)).collect();
        if all.is_empty() {
            return Err(Error::Refused(format!("no point has a value of {}", figure.metric.name())));
        }
        let (y_unit, y_max) = vertical(figure.metric, &all);
        let of_x = |value: usize| quantities[value].scaled as f64 * unit.factor;
        let series = lines.into_iter().map(|(name, points)| Series {
            name: if name.is_empty() { figure.metric.name().into() } else { name },
            points: points.into_iter().map(|(value, y)| (of_x(value), y * y_unit.factor)).collect(),
        });
        let mut series: Vec<Series> = series.collect();
        series.iter_mut().for_each(|line| line.points.sort_by(|a, b| a.0.total_cmp(&b.0)));
        let ends = (0..quantities.len()).map(of_x);
        let (x_min, x_max) = ends.fold((f64::MAX, f64::MIN), |(min, max), x| (min.min(x), max.max(x)));
        Ok(plot::svg(&Chart {
            title: self.title(),
            x: axis(&dimension.key, unit.name, (x_min, x_max)),
            y: axis(figure.metric.name(), y_unit.name, (0.0, y_max)),
            series,
        }))
    }

    fn plan(&self, figure: &Figure<'_>) -> Result<Plan, Error> {
        let x = self.horizontal(figure)?;
        let over = self.added_up(figure, x)?;
        let dimension = &self.dimensions()[x];
        let quantities = numbers(dimension).ok_or_else(|| {
            Error::Refused(format!("the values of {} are no numbers of one unit", dimension.key))
        })?;
        let others = self.dimensions().iter().enumerate().filter(|(at, _)| *at != x && !over.contains(at));
        let lines = others.map(|(_, dimension)| dimension.values.len()).fold(1, usize::saturating_mul);
        if lines > LINES_MAX {
            return Err(Error::Refused(format!(
                "a figure has {LINES_MAX} lines at most, and this one {lines}: vary fewer keys, or fix some \
                 with --set"
            )));
        }
        Ok(Plan { x, over, quantities })
    }

    /// The host's name.
    fn title(&self) -> String {
        self.host(&self.overrides(0)).map_or_else(|_| String::new(), |host| host.name().into())
    }

    fn dimension(&self, key: &str) -> Result<usize, Error> {
        let found = self.dimensions().iter().position(|dimension| dimension.key == key);
        found.ok_or_else(|| {
            let keys: Vec<&str> = self.dimensions().iter().map(|d| d.key.as_str()).collect();
            Error::Refused(format!("the sweep does not vary {key}; it varies {}", keys.join(", ")))
        })
    }

    /// The dimension on the horizontal axis.
    fn horizontal(&self, figure: &Figure<'_>) -> Result<usize, Error> {
        if let Some(key) = figure.x {
            return self.dimension(key);
        }
        let is_free = |dimension: &Axis| !figure.over.contains(&dimension.key.as_str());
        let candidates: Vec<usize> = (0..self.dimensions().len())
            .filter(|at| is_free(&self.dimensions()[*at]) && numbers(&self.dimensions()[*at]).is_some())
            .collect();
        match candidates[..] {
            [only] => Ok(only),
            [] => Err(Error::Refused("no key of the sweep takes numbers for the horizontal axis".into())),
            [..] => {
                let keys = candidates.iter().map(|at| self.dimensions()[*at].key.as_str());
                let keys: Vec<&str> = keys.collect();
                let text =
                    format!("which key is on the horizontal axis? expected x, one of {}", keys.join(", "));
                Err(Error::Refused(text))
            }
        }
    }

    /// The dimensions whose points are added up.
    fn added_up(&self, figure: &Figure<'_>, x: usize) -> Result<Vec<usize>, Error> {
        let over: Vec<usize> = figure.over.iter().map(|key| self.dimension(key)).collect::<Result<_, _>>()?;
        if over.contains(&x) {
            let key = &self.dimensions()[x].key;
            return Err(Error::Refused(format!("{key} is on the horizontal axis and cannot be added up")));
        }
        if !over.is_empty() && !figure.metric.is_analysed() {
            let analysed = Metric::ALL.into_iter().filter(|metric| metric.is_analysed());
            let names: Vec<&str> = analysed.map(Metric::name).collect();
            return Err(Error::Refused(format!(
                "{} of several points does not add up; {} do",
                figure.metric.name(),
                names.join(", ")
            )));
        }
        Ok(over)
    }

    /// The lines in the order of the points.
    fn lines(&self, outcomes: &[Outcome], metric: Metric, x: usize, over: &[usize]) -> Vec<Line> {
        let mut lines: Vec<Line> = Vec::new();
        for (point, outcome) in outcomes.iter().enumerate() {
            let Outcome::Done(measured) = outcome else { continue };
            let values = self.values(point);
            let at = self.dimensions()[x].values.iter().position(|value| value == values[x]);
            let Some(at) = at else { continue };
            let others = (0..values.len()).filter(|one| *one != x && !over.contains(one));
            let name = others.map(|one| values[one]).collect::<Vec<_>>().join("  ");
            let number = lines.iter().position(|line| line.name == name).unwrap_or_else(|| {
                lines.push(Line { name, points: BTreeMap::new() });
                lines.len() - 1
            });
            let points = &mut lines[number].points;
            if over.is_empty() {
                points.extend(measured.value(metric).map(|value| (at, Point::Of(value))));
            } else if let Some(more) = &measured.analysed {
                match points.entry(at).or_insert(Point::Sum(Analysed::default())) {
                    Point::Sum(sum) => sum.merge(more),
                    Point::Of(_) => {}
                }
            }
        }
        lines
    }
}

/// A line while its points are collected.
struct Line {
    name: String,
    /// By the number of the value on the horizontal axis.
    points: BTreeMap<usize, Point>,
}

enum Point {
    Of(Value),
    Sum(Analysed),
}

impl Point {
    /// Percent, ns or a number of things.
    fn number(&self, metric: Metric) -> Option<f64> {
        match self {
            Point::Of(value) => number(*value),
            Point::Sum(sum) => sum.value(metric).and_then(number),
        }
    }
}

/// The values of a dimension, if all are numbers of one unit.
fn numbers(dimension: &Axis) -> Option<Vec<Quantity>> {
    let all: Vec<Quantity> = dimension.values.iter().map(|v| quantity(v).ok()).collect::<Option<_>>()?;
    all.iter().all(|one| one.unit == all[0].unit).then_some(all)
}

/// A metric's value: percent, ns or a number of things.
fn number(value: Value) -> Option<f64> {
    match value {
        Value::Share(_, 0) => None,
        Value::Share(part, whole) => Some(part as f64 * 100.0 / whole as f64),
        Value::Time(time) => time.map(|time| time.as_ns() as f64),
        Value::Count(count) => Some(count as f64),
    }
}

/// The unit in which times up to this are best read.
fn time_unit(longest_ns: f64) -> Unit {
    let units = [("s", 1e9), ("ms", 1e6), ("us", 1e3)];
    let found = units.into_iter().find(|(_, ns)| longest_ns >= *ns);
    found.map_or(Unit { name: "ns", factor: 1.0 }, |(name, ns)| Unit { name, factor: 1.0 / ns })
}

/// The unit of the horizontal axis, from that of [`Quantity::scaled`].
fn unit_of(all: &[Quantity]) -> Unit {
    let base = 1.0 / crate::axis::ONE as f64;
    let most = all.iter().map(|one| one.scaled).max().unwrap_or_default() as f64 * base;
    match all.first().map(|one| one.unit) {
        Some(RangeUnit::Time) => {
            let Unit { name, factor } = time_unit(most);
            Unit { name, factor: factor * base }
        }
        Some(RangeUnit::Percent) => Unit { name: "%", factor: base },
        Some(RangeUnit::Frequency) => Unit { name: "Hz", factor: base },
        Some(RangeUnit::Plain) | None => Unit { name: "", factor: base },
    }
}

/// The unit of the vertical axis, and its end in that.
fn vertical(metric: Metric, all: &[f64]) -> (Unit, f64) {
    let most = all.iter().copied().fold(0.0, f64::max);
    let column = metric.column();
    if column.ends_with("_ppm") {
        return (Unit { name: "%", factor: 1.0 }, 100.0);
    }
    let unit = if column.ends_with("_ns") { time_unit(most) } else { Unit { name: "", factor: 1.0 } };
    let end = most * unit.factor;
    (unit, end)
}

/// An axis with round ticks around these ends.
fn axis(label: &str, unit: &str, (min, max): (f64, f64)) -> plot::Axis {
    let width = if max > min { max - min } else { max.abs().max(1.0) };
    // Parsed, for the nearest number to each power of ten.
    let step_of = |(power, digit): (i32, u32)| format!("{digit}e{power}").parse::<f64>().unwrap_or(1.0);
    let steps = (-12..=18).flat_map(|power| [1, 2, 5].map(|digit| (power, digit))).map(step_of);
    let step = steps.into_iter().find(|step| width / step <= TICKS_MAX).unwrap_or(width);
    let whole = |ticks: f64| ticks * step;
    let label = if unit.is_empty() { label.to_string() } else { format!("{label}, {unit}") };
    let min = whole((min / step + 1e-9).floor());
    let max = whole((max / step - 1e-9).ceil()).max(min + step);
    plot::Axis { label, min, max, step }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_enclose_the_ends() {
        for ((min, max), expected) in [
            ((60.0, 100.0), (60.0, 100.0, 5.0)),
            ((0.0, 100.0), (0.0, 100.0, 10.0)),
            ((1.0, 5.0), (1.0, 5.0, 0.5)),
            ((3.0, 3.0), (3.0, 3.5, 0.5)),
            ((0.0, 0.0), (0.0, 0.1, 0.1)),
            ((0.0, 1_234.0), (0.0, 1_400.0, 200.0)),
        ] {
            let axis = axis("x", "ms", (min, max));
            let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
            let got = (axis.min, axis.max, axis.step);
            let holds = near(got.0, expected.0) && near(got.1, expected.1) && near(got.2, expected.2);
            assert!(holds, "{got:?}, expected {expected:?}");
            assert_eq!(axis.label, "x, ms");
        }
    }

    #[test]
    fn times_are_shown_in_the_unit_that_fits_the_longest() {
        for (ns, name) in [(3e9, "s"), (2e6, "ms"), (1e3, "us"), (999.0, "ns")] {
            assert_eq!(time_unit(ns).name, name);
        }
    }
}
