//! Ranges side by side: box plots, and bars with their range. One column per entry, an axis that may be
//! logarithmic.

use super::document::{COLOURS, Document, HEIGHT, WIDTH, escape, number};

/// A column of the chart. Values that are not finite are left out.
#[derive(Clone, PartialEq, Debug)]
pub struct RangeColumn {
    /// Its name below the axis.
    pub label: String,
    /// Ends of the thin line.
    pub low: f64,
    /// See [`RangeColumn::low`].
    pub high: f64,
    /// Lower and upper edge of the box, if it has one.
    pub quartiles: Option<(f64, f64)>,
    /// The thick line across: median or mean.
    pub middle: f64,
    pub marks: Vec<f64>,
}

/// Columns over one axis.
#[derive(Clone, PartialEq, Debug)]
pub struct RangeChart {
    pub title: String,
    pub y: String,
    /// Powers of ten at equal distances; values of zero or less lie on the lower edge.
    pub logarithmic: bool,
    pub columns: Vec<RangeColumn>,
}

const LEFT: f64 = 72.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 48.0;
const BOTTOM: f64 = 64.0;
/// Room below the axis for names that are turned.
const BOTTOM_TURNED: f64 = 120.0;
/// Width of a character of a name, about.
const CHARACTER: f64 = 6.5;

/// Where values lie, and which are labelled.
struct Scale {
    logarithmic: bool,
    min: f64,
    max: f64,
    ticks: Vec<f64>,
    /// Height of the axis in the picture.
    bottom: f64,
}

impl Scale {
    fn new(chart: &RangeChart, bottom: f64) -> Scale {
        let values = chart.columns.iter().flat_map(|c| {
            let ends = [c.low, c.high, c.middle].into_iter();
            ends.chain(c.quartiles.map(|q| q.0))
                .chain(c.quartiles.map(|q| q.1))
                .chain(c.marks.iter().copied())
        });
        let values: Vec<f64> = values.filter(|v| v.is_finite()).collect();
        let max = values.iter().copied().fold(0.0, f64::max);
        if !chart.logarithmic {
            let step = step_of(max);
            let count = (max / step).ceil().max(1.0);
            let ticks = (0..=count as usize).map(|i| i as f64 * step).collect();
            return Scale { logarithmic: false, min: 0.0, max: count * step, ticks, bottom };
        }
        let positive = values.iter().copied().filter(|v| *v > 0.0).fold(f64::INFINITY, f64::min);
        let low = if positive.is_finite() { positive.log10().floor() } else { 0.0 };
        let high = if max > 0.0 { max.log10().ceil().max(low + 1.0) } else { low + 1.0 };
        let ticks = (low as i32..=high as i32).map(|power| 10f64.powi(power)).collect();
        Scale { logarithmic: true, min: low, max: high, ticks, bottom }
    }

    fn y(&self, value: f64) -> i64 {
        let value = if self.logarithmic { value.max(10f64.powf(self.min)).log10() } else { value };
        let place = ((value - self.min) / (self.max - self.min)).clamp(0.0, 1.0);
        (self.bottom - place * (self.bottom - TOP)).round() as i64
    }
}

/// 1, 2 or 5 times a power of ten, so that there are at most ten.
fn step_of(max: f64) -> f64 {
    let max = if max.is_finite() && max > 0.0 { max } else { 1.0 };
    let power = 10f64.powf((max / 10.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|n| n * power).into_iter().find(|step| max / step <= 10.0).unwrap_or(max)
}

/// The chart as an SVG document.
pub fn ranges(chart: &RangeChart) -> String {
    let width = (WIDTH - RIGHT - LEFT) / chart.columns.len().max(1) as f64;
    let longest = chart.columns.iter().map(|column| column.label.chars().count()).max().unwrap_or(0);
    let turned = longest as f64 * CHARACTER > width;
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - if turned { BOTTOM_TURNED } else { BOTTOM });
    let scale = Scale::new(chart, bottom);
    let mut out = Document::new(&chart.title);
    for tick in &scale.ticks {
        let y = scale.y(*tick);
        out.put(format!(r#"<path class="grid" d="M{LEFT} {y}H{right}"/>"#));
        let label = if *tick < 0.01 && *tick > 0.0 { format!("{tick}") } else { number(*tick) };
        out.put(format!(
            r#"<text class="muted" x="{}" y="{}" text-anchor="end">{label}</text>"#,
            LEFT - 8.0,
            y + 4
        ));
    }
    out.y_title(&chart.y, (TOP + bottom) / 2.0);
    for (i, column) in chart.columns.iter().enumerate() {
        let x = LEFT + width * (i as f64 + 0.5);
        draw(column, x.round() as i64, (width * 0.3).min(24.0).round() as i64, &scale, &mut out);
        let (x, y, label) = (x.round(), bottom + 20.0, escape(&column.label));
        out.put(if !turned {
            format!(r#"<text class="muted" x="{x}" y="{y}" text-anchor="middle">{label}</text>"#)
        } else {
            let place = format!("translate({x} {y}) rotate(-45)");
            format!(r#"<text class="muted" transform="{place}" text-anchor="end">{label}</text>"#)
        });
    }
    out.finish()
}

fn draw(column: &RangeColumn, x: i64, half: i64, scale: &Scale, out: &mut Document) {
    let color = COLOURS[0];
    let finite = |values: &[f64]| values.iter().all(|v| v.is_finite());
    if finite(&[column.low, column.high]) {
        let (low, high) = (scale.y(column.low), scale.y(column.high));
        out.put(format!(
            r#"<path d="M{x} {low}V{high}M{} {low}h{}M{} {high}h{}" stroke="{color}"/>"#,
            x - half / 2,
            half / 2 * 2,
            x - half / 2,
            half / 2 * 2
        ));
    }
    if let Some((q1, q3)) = column.quartiles.filter(|q| finite(&[q.0, q.1])) {
        let (bottom, top) = (scale.y(q1), scale.y(q3));
        let fill = format!(r#"fill="{color}" fill-opacity="0.25""#);
        out.put(format!(
            r#"<rect x="{}" y="{top}" width="{}" height="{}" {fill} stroke="{color}"/>"#,
            x - half,
            2 * half,
            (bottom - top).max(1)
        ));
    }
    if column.middle.is_finite() {
        let y = scale.y(column.middle);
        out.put(format!(r#"<path d="M{} {y}h{}" stroke="{color}" stroke-width="3"/>"#, x - half, 2 * half));
    }
    for mark in column.marks.iter().filter(|m| m.is_finite()) {
        let y = scale.y(*mark);
        out.put(format!(r#"<circle cx="{x}" cy="{y}" r="3" fill="none" stroke="{}"/>"#, COLOURS[1]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(label: &str, low: f64, q1: f64, middle: f64, q3: f64, high: f64) -> RangeColumn {
        RangeColumn {
            label: label.into(),
            low,
            high,
            quartiles: Some((q1, q3)),
            middle,
            marks: vec![high * 1.5],
        }
    }

    fn chart(logarithmic: bool) -> RangeChart {
        let columns = vec![
            column("as shipped", 1.0, 2.0, 3.0, 5.0, 9.0),
            column("RTCA <1>", 0.02, 0.03, 0.05, 0.06, 0.1),
            RangeColumn { quartiles: None, ..column("no box", 0.0, 0.0, 40.0, 0.0, 70.0) },
        ];
        RangeChart { title: "Round trips".into(), y: "ms".into(), logarithmic, columns }
    }

    #[test]
    fn a_box_plot_is_the_same_bytes_every_time() {
        insta::assert_snapshot!(ranges(&chart(false)));
    }

    #[test]
    fn a_logarithmic_axis_has_a_tick_per_power_of_ten() {
        let svg = ranges(&chart(true));
        for label in [">0.01<", ">0.1<", ">1<", ">10<", ">100<"] {
            assert!(svg.contains(label), "{label} in {svg}");
        }
    }

    #[test]
    fn odd_values_are_drawn_without_panic() {
        let odd = RangeColumn {
            low: f64::NAN,
            middle: f64::INFINITY,
            ..column("x", 0.0, -1.0, 0.0, f64::NAN, 0.0)
        };
        for logarithmic in [false, true] {
            let svg = ranges(&RangeChart { columns: vec![odd.clone()], ..chart(logarithmic) });
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            ranges(&RangeChart { columns: vec![], ..chart(logarithmic) });
        }
    }

    #[test]
    fn names_that_are_wider_than_their_columns_are_turned() {
        let mut wide = chart(false);
        assert!(!ranges(&wide).contains("rotate(-45)"));
        wide.columns = (0..20).map(|i| column(&format!("heavy rtca-{i}"), 0.0, 1.0, 2.0, 3.0, 4.0)).collect();
        assert_eq!(ranges(&wide).matches("rotate(-45)").count(), 20);
    }

    #[test]
    fn steps_are_round_numbers_at_most_ten() {
        assert_eq!([9.0, 11.5, 45.0, 100.0, 0.07].map(step_of), [1.0, 2.0, 5.0, 10.0, 0.01]);
    }
}
