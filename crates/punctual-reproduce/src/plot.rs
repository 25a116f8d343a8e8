//! Figures as charts: the means over the task sets. The ranges are in the figure's CSV file.

use punctual_report::plot::{self, Axis, Chart};

use crate::measures::range;
use crate::reproduction::Figure;

pub(crate) fn svg(figure: &Figure) -> String {
    let points = || figure.series.iter().flat_map(|s| &s.points);
    let (x_min, x_max) = range(&points().map(|p| p[0]).collect::<Vec<_>>());
    let (_, y_max) = range(&points().map(|p| p[1]).collect::<Vec<_>>());
    // At most a dozen ticks from whole steps.
    let x_step = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0]
        .into_iter()
        .find(|step| (x_max - x_min) / step <= 12.0)
        .unwrap_or(x_max - x_min);
    // Ticks at whole steps.
    let x_min = if x_step > 0.0 { (x_min / x_step).floor() * x_step } else { x_min };
    // Whole tens, at least one: a curve of zeros lies on the axis.
    let y_max = ((y_max / 10.0).ceil() * 10.0).max(10.0);
    let series = figure.series.iter().map(|s| plot::Series {
        name: s.name.clone(),
        points: s.points.iter().map(|p| (p[0], p[1])).collect(),
    });
    plot::svg(&Chart {
        title: figure.title.clone(),
        x: Axis { label: figure.x.clone(), min: x_min, max: x_max, step: x_step },
        y: Axis {
            label: figure.y.clone(),
            min: 0.0,
            max: y_max,
            step: if y_max > 40.0 { 10.0 } else { 5.0 },
        },
        series: series.collect(),
    })
}
