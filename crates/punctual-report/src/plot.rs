//! Line charts, box plots and bars with their range as SVG for documents; line charts as one line of blocks
//! per series for the terminal.
//!
//! The SVG is written here and not by a plotting crate because it must be the same bytes on every machine
//! and readable on a light and a dark page: colours follow the page (`prefers-color-scheme`), text is text,
//! and every coordinate is a whole number.

use std::fmt::Write as _;

mod ranges;

pub use ranges::{Column, RangeChart, ranges};

/// One line of a chart.
#[derive(Clone, PartialEq, Debug)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Points (x, y), x ascending. Points that are not finite are left out.
    pub points: Vec<(f64, f64)>,
}

/// An axis from `min` to `max` with a labelled tick every `step`.
#[derive(Clone, PartialEq, Debug)]
pub struct Axis {
    /// What is measured, with its unit.
    pub label: String,
    /// Least value shown.
    pub min: f64,
    /// Greatest value shown; must exceed `min`.
    pub max: f64,
    /// Distance of ticks; must be positive.
    pub step: f64,
}

/// A chart of lines over a common x axis. Points outside the axes are drawn at the edge.
#[derive(Clone, PartialEq, Debug)]
pub struct Chart {
    /// Heading.
    pub title: String,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// The lines, in the order of the legend.
    pub series: Vec<Series>,
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 168.0;
const TOP: f64 = 48.0;
const BOTTOM: f64 = 56.0;
/// More ticks than this are a mistake in `step`, not a chart.
const TICKS_MAX: usize = 100;

/// Okabe and Ito's palette, distinguishable with any colour vision; black becomes the page's text colour.
const COLORS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "currentColor"];
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

/// A tick's label: at most two decimals, none that are zero.
fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".into() } else { text.into() }
}

/// Text for the body or a quoted attribute of an XML document.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

/// The beginning of a document with its heading.
fn head(title: &str) -> String {
    let title = escape(title);
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" font-family="system-ui, sans-serif" font-size="13">
<title>{title}</title>
<style>svg{{color:#1f2328;background:#fff}}.grid{{stroke:#d0d7de}}.muted{{fill:#57606a}}@media(prefers-color-scheme:dark){{svg{{color:#e6edf3;background:#0d1117}}.grid{{stroke:#30363d}}.muted{{fill:#9198a1}}}}</style>
<text x="{LEFT}" y="26" font-size="16" font-weight="600" fill="currentColor">{title}</text>
"#
    )
}

/// The chart as an SVG document.
pub fn svg(chart: &Chart) -> String {
    let mut out = head(&chart.title);
    let mut put = |line: String| {
        out.push_str(&line);
        out.push('\n');
    };
    axes(chart, &mut put);
    for (i, series) in chart.series.iter().enumerate() {
        line(chart, i, series, &mut put);
    }
    put("</svg>".into());
    out
}

fn x_of(chart: &Chart, value: f64) -> i64 {
    (LEFT + chart.x.place(value) * (WIDTH - LEFT - RIGHT)).round() as i64
}

fn y_of(chart: &Chart, value: f64) -> i64 {
    (HEIGHT - BOTTOM - chart.y.place(value) * (HEIGHT - TOP - BOTTOM)).round() as i64
}

fn axes(chart: &Chart, put: &mut impl FnMut(String)) {
    let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
    for tick in chart.y.ticks() {
        let y = y_of(chart, tick);
        put(format!(r#"<path class="grid" d="M{LEFT} {y}H{right}"/>"#));
        let (x, y) = (LEFT - 8.0, y + 4);
        put(format!(r#"<text class="muted" x="{x}" y="{y}" text-anchor="end">{}</text>"#, number(tick)));
    }
    for tick in chart.x.ticks() {
        let x = x_of(chart, tick);
        put(format!(r#"<path class="grid" d="M{x} {bottom}v5"/>"#));
        let y = bottom + 20.0;
        put(format!(r#"<text class="muted" x="{x}" y="{y}" text-anchor="middle">{}</text>"#, number(tick)));
    }
    let (middle_x, middle_y) = ((LEFT + right) / 2.0, (TOP + bottom) / 2.0);
    put(format!(
        r#"<text x="{middle_x}" y="{}" text-anchor="middle" fill="currentColor">{}</text>"#,
        HEIGHT - 14.0,
        escape(&chart.x.label)
    ));
    put(format!(
        r#"<text transform="translate(18 {middle_y}) rotate(-90)" text-anchor="middle" fill="currentColor">{}</text>"#,
        escape(&chart.y.label)
    ));
}

/// A series and its entry in the legend, which stands to the right.
fn line(chart: &Chart, index: usize, series: &Series, put: &mut impl FnMut(String)) {
    let color = COLORS[index % COLORS.len()];
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
    put(format!(
        r#"<path d="{path}" fill="none" stroke="{color}" stroke-width="2" stroke-linejoin="round"{dashes}/>"#
    ));
    for (x, y) in &points {
        put(format!(r#"<circle cx="{x}" cy="{y}" r="3" fill="{color}"/>"#));
    }
    let (x, y) = (WIDTH - RIGHT + 20.0, TOP + 8.0 + 22.0 * index as f64);
    put(format!(r#"<path d="M{x} {y}h26" stroke="{color}" stroke-width="2"{dashes}/>"#));
    put(format!(r#"<circle cx="{}" cy="{y}" r="3" fill="{color}"/>"#, x + 13.0));
    put(format!(
        r#"<text x="{}" y="{}" fill="currentColor">{}</text>"#,
        x + 34.0,
        y + 4.0,
        escape(&series.name)
    ));
}

/// The chart for a terminal: one line per series, a block per point of `x`, all on the scale of the y axis,
/// and the last value in numbers. A value of zero or less is a dot, so that "none" differs from "little".
pub fn lines(chart: &Chart) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let mut xs: Vec<f64> =
        chart.series.iter().flat_map(|s| &s.points).map(|p| p.0).filter(|x| x.is_finite()).collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    let block = |y: f64| match chart.y.place(y) {
        _ if y <= 0.0 => '·',
        place => BLOCKS[((place * 8.0).ceil() as usize).clamp(1, 8) - 1],
    };
    let names = chart.series.iter().map(|s| s.name.chars().count()).max().unwrap_or(0);
    let mut text = format!("{}\n", chart.title);
    for series in &chart.series {
        let value = |x: f64| series.points.iter().find(|p| p.0 == x && p.1.is_finite()).map(|p| p.1);
        let plot: String = xs.iter().map(|&x| value(x).map_or(' ', block)).collect();
        let last = xs.iter().rev().find_map(|&x| value(x)).map_or("-".into(), number);
        writeln!(text, "{:names$}  {plot}  {last}", series.name).expect("a string takes everything");
    }
    let (first, last) =
        (xs.first().copied().map_or("-".into(), number), xs.last().copied().map_or("-".into(), number));
    writeln!(
        text,
        "{:names$}  {}: {first} to {last}; {}: █ = {}, · = 0",
        "",
        chart.x.label,
        chart.y.label,
        number(chart.y.max)
    )
    .expect("a string takes everything");
    text
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
    fn the_terminal_form_has_a_line_per_series() {
        insta::assert_snapshot!(lines(&chart()));
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
        assert_eq!(lines(&odd).lines().count(), 4);
    }
}
