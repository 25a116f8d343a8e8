//! Curves over two axes.

use std::fmt::Write as _;

use super::document::{COLOURS, Document, HEIGHT, WIDTH, escape, number};

/// One line of a chart.
#[derive(Clone, PartialEq, Debug)]
pub struct Series {
    pub name: String,
    /// Points (x, y), x ascending. Points that are not finite are left out.
    pub points: Vec<(f64, f64)>,
}

/// An axis from `min` to `max` with a labelled tick every `step`.
#[derive(Clone, PartialEq, Debug)]
pub struct Axis {
    pub label: String,
    pub min: f64,
    /// Greatest value shown; must exceed `min`.
    pub max: f64,
    /// Distance of ticks; must be positive.
    pub step: f64,
}

/// A chart of lines over a common x axis. Points outside the axes are drawn at the edge.
#[derive(Clone, PartialEq, Debug)]
pub struct Chart {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    /// The lines, in the order of the legend.
    pub series: Vec<Series>,
}

const LEFT: f64 = 64.0;
const RIGHT: f64 = 168.0;
const TOP: f64 = 48.0;
const BOTTOM: f64 = 56.0;
/// More ticks than this are a mistake in `step`, not a chart.
const TICKS_MAX: usize = 100;

/// Besides colour, each series has its own dashes.
const DASHES: [&str; 4] = ["", "7 4", "2 3", "10 3 2 3"];

impl Axis {
    fn ticks(&self) -> Vec<f64> {
        let count = ((self.max - self.min) / self.step + 1e-9).floor();
        if !(count >= 0.0 && count <= TICKS_MAX as f64) {
            return [self.min, self.max].into_iter().filter(|end| end.is_finite()).collect();
        }
        (0..=count as usize).map(|i| self.min + i as f64 * self.step).collect()
    }

    /// Where a value lies between 0 (`min`) and 1 (`max`).
    fn place(&self, value: f64) -> f64 {
        let place = (value - self.min) / (self.max - self.min);
        if place.is_finite() { place.clamp(0.0, 1.0) } else { 0.0 }
    }
}

pub fn svg(chart: &Chart) -> String {
    let mut out = Document::new(&chart.title);
    axes(chart, &mut out);
    for (i, series) in chart.series.iter().enumerate() {
        line(chart, i, series, &mut out);
    }
    out.finish()
}

fn x_of(chart: &Chart, value: f64) -> i64 {
    (LEFT + chart.x.place(value) * (WIDTH - LEFT - RIGHT)).round() as i64
}

fn y_of(chart: &Chart, value: f64) -> i64 {
    (HEIGHT - BOTTOM - chart.y.place(value) * (HEIGHT - TOP - BOTTOM)).round() as i64
}

fn axes(chart: &Chart, out: &mut Document) {
    let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
    for tick in chart.y.ticks() {
        let y = y_of(chart, tick);
        out.put(format!(r#"<path class="grid" d="M{LEFT} {y}H{right}"/>"#));
        let (x, y) = (LEFT - 8.0, y + 4);
        out.put(format!(r#"<text class="muted" x="{x}" y="{y}" text-anchor="end">{}</text>"#, number(tick)));
    }
    for tick in chart.x.ticks() {
        let x = x_of(chart, tick);
        out.put(format!(r#"<path class="grid" d="M{x} {bottom}v5"/>"#));
        let y = bottom + 20.0;
        out.put(format!(
            r#"<text class="muted" x="{x}" y="{y}" text-anchor="middle">{}</text>"#,
            number(tick)
        ));
    }
    let (middle_x, middle_y) = ((LEFT + right) / 2.0, (TOP + bottom) / 2.0);
    out.put(format!(
        r#"<text x="{middle_x}" y="{}" text-anchor="middle" fill="currentColor">{}</text>"#,
        HEIGHT - 14.0,
        escape(&chart.x.label)
    ));
    out.y_title(&chart.y.label, middle_y);
}

/// A series and its entry in the legend, which stands to the right.
fn line(chart: &Chart, index: usize, series: &Series, out: &mut Document) {
    let color = COLOURS[index % COLOURS.len()];
    let dashes = DASHES[index % DASHES.len()];
    let dashes = if dashes.is_empty() { String::new() } else { format!(r#" stroke-dasharray="{dashes}""#) };
    let points: Vec<_> = series
        .points
        .iter()
        .filter(|(x, y)| x.is_finite() && y.is_finite())
        .map(|&(x, y)| (x_of(chart, x), y_of(chart, y)))
        .collect();
    let mut path = String::new();
    for (i, (x, y)) in points.iter().enumerate() {
        let command = if i == 0 { 'M' } else { 'L' };
        write!(path, "{command}{x} {y}").expect("a string takes everything");
    }
    out.put(format!(
        r#"<path d="{path}" fill="none" stroke="{color}" stroke-width="2" stroke-linejoin="round"{dashes}/>"#
    ));
    for (x, y) in &points {
        out.put(format!(r#"<circle cx="{x}" cy="{y}" r="3" fill="{color}"/>"#));
    }
    let (x, y) = (WIDTH - RIGHT + 20.0, TOP + 8.0 + 22.0 * index as f64);
    out.put(format!(r#"<path d="M{x} {y}h26" stroke="{color}" stroke-width="2"{dashes}/>"#));
    out.put(format!(r#"<circle cx="{}" cy="{y}" r="3" fill="{color}"/>"#, x + 13.0));
    out.put(format!(
        r#"<text x="{}" y="{}" fill="currentColor">{}</text>"#,
        x + 34.0,
        y + 4.0,
        escape(&series.name)
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> Chart {
        let names = ["Deferrable", "Periodic", "Polling", "Sporadic", "SEDF", "Credit"];
        let series = names.iter().enumerate().map(|(i, name)| Series {
            name: (*name).into(),
            points: (30..=100)
                .step_by(5)
                .map(|load| {
                    let over = f64::from(load) - 90.0 + 12.0 * i as f64;
                    (f64::from(load), if over > 0.0 { (over * over / 60.0).min(78.0) } else { 0.0 })
                })
                .collect(),
        });
        Chart {
            title: "Deadlines missed under six policies".into(),
            x: Axis { label: "load (%)".into(), min: 30.0, max: 100.0, step: 10.0 },
            y: Axis { label: "deadline miss ratio (%)".into(), min: 0.0, max: 80.0, step: 20.0 },
            series: series.collect(),
        }
    }

    #[test]
    fn the_svg_is_the_same_bytes_every_time() {
        insta::assert_snapshot!(svg(&chart()));
    }

    #[test]
    fn odd_charts_are_drawn_without_panic_and_escaped() {
        let odd = Chart {
            title: "a < b & \"c\"\u{7}".into(),
            x: Axis { label: "<x>".into(), min: 1.0, max: 1.0, step: 0.0 },
            y: Axis { label: String::new(), min: 0.0, max: f64::NAN, step: 1e-300 },
            series: vec![
                Series { name: String::new(), points: vec![] },
                Series { name: "n".into(), points: vec![(f64::NAN, 1.0), (1.0, f64::INFINITY), (2.0, -3.0)] },
            ],
        };
        let svg = svg(&odd);
        assert!(svg.contains("a &lt; b &amp; &quot;c&quot; "), "{svg}");
        assert!(!svg.contains("NaN"), "{svg}");
    }
}
