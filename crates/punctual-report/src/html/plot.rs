//! Distributions and steps as SVG inside the page: colours, fonts and sizes are the page's.
//!
//! [`crate::plot`] draws charts that stand alone in a document; these share the page's style sheet, so they
//! follow its theme and print, and their text alternative is the table beside them.

use std::fmt::Write as _;

use maud::{Markup, html};
use punctual_model::Recorder;

use crate::format::fmt_ns;

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 310.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 28.0;
const BOTTOM: f64 = 52.0;
/// Colours of the style sheet.
pub const COLOURS: usize = 8;
const DASHES: [&str; 4] = ["", "7 3", "2 2.5", "9 3 2 3"];
/// Cumulative shares at which a line has a marker, in millionths.
const MARKED: [u32; 4] = [500_000, 900_000, 990_000, 999_000];

/// A distribution with its name in the legend.
pub struct Line<'a> {
    /// Name.
    pub name: String,
    /// Durations.
    pub of: &'a Recorder,
}

/// What a distribution is of, in the words of a plot.
#[derive(Clone, Copy)]
pub struct Quantity {
    /// As a title: `Response times`.
    pub title: &'static str,
    /// On the axis of values.
    pub value: &'static str,
    /// What is counted.
    pub counted: &'static str,
}

/// Of chains.
pub const END_TO_END: Quantity = Quantity {
    title: "End-to-end response times",
    value: "from the first release to the last end, log scale",
    counted: "share of runs",
};
/// Of jobs.
pub const RESPONSE: Quantity =
    Quantity { title: "Response times", value: "response time, log scale", counted: "share of jobs" };
/// Of packets.
pub const LATENCY: Quantity =
    Quantity { title: "Latency", value: "latency, log scale", counted: "share of packets" };

/// A point or path coordinate with one decimal.
fn coordinate(value: f64) -> String {
    let tenths = (value * 10.0).round() as i64;
    match tenths % 10 {
        0 => (tenths / 10).to_string(),
        _ => format!("{}{}.{}", if tenths < 0 { "-" } else { "" }, tenths.abs() / 10, tenths.abs() % 10),
    }
}

/// A logarithmic scale of durations, its ends at 1, 2 or 5 times a power of ten.
struct Log {
    ticks: Vec<u64>,
    low: f64,
    high: f64,
}

impl Log {
    fn over(lines: &[Line<'_>]) -> Self {
        let counted = || lines.iter().filter(|line| line.of.count() > 0);
        let least = counted().map(|line| line.of.min().as_ns()).min().unwrap_or(1).max(1);
        let most = counted().map(|line| line.of.max().as_ns()).max().unwrap_or(1).max(least);
        let steps: Vec<u64> = (0..20)
            .flat_map(|decade| [1, 2, 5].map(|digit: u64| digit.checked_mul(10u64.pow(decade))))
            .flatten()
            .collect();
        // Nothing lies on the edge, where a line could not be told from the axis.
        let first =
            steps.iter().rposition(|step| step + step / 20 <= least).unwrap_or(0).min(steps.len() - 2);
        let last =
            steps.iter().position(|step| step - step / 20 >= most).unwrap_or(steps.len() - 1).max(first + 1);
        let mut ticks: Vec<u64> = steps[first..=last].to_vec();
        if ticks.len() > 8 {
            // Only powers of ten are labelled where there are many.
            ticks.retain(|tick| tick.ilog10() != (tick - 1).max(1).ilog10() || *tick == 1);
        }
        Log { ticks, low: (steps[first] as f64).ln(), high: (steps[last] as f64).ln() }
    }

    /// Between 0 and 1.
    fn place(&self, ns: u64) -> f64 {
        (((ns.max(1) as f64).ln() - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }
}

/// A tick's duration: `200 us`, `1 s`, `1.05 s`.
fn tick_label(ns: u64) -> String {
    let (unit, name) = match ns {
        0 => return "0".into(),
        1_000_000_000.. => (1_000_000_000, "s"),
        1_000_000.. => (1_000_000, "ms"),
        1_000.. => (1_000, "us"),
        _ => (1, "ns"),
    };
    let digits = format!("{:03}", ns % unit * 1000 / unit);
    match digits.trim_end_matches('0') {
        "" => format!("{} {name}", ns / unit),
        digits => format!("{}.{digits} {name}", ns / unit),
    }
}

fn x_at(place: f64) -> f64 {
    LEFT + place * (WIDTH - LEFT - RIGHT)
}

fn y_at(place: f64) -> f64 {
    HEIGHT - BOTTOM - place * (HEIGHT - TOP - BOTTOM)
}

/// The frame of a plot, and what is drawn in it.
fn plot(title: &str, content: Markup) -> Markup {
    html! {
        svg.plot viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(title) { (content) }
    }
}

fn x_tick(place: f64, label: &str) -> Markup {
    let (x, top, bottom) = (coordinate(x_at(place)), coordinate(y_at(1.0)), coordinate(y_at(0.0)));
    let below = coordinate(y_at(0.0) + 17.0);
    // What stands at the edge must not leave the picture.
    let is_last = place > 0.97;
    let at = coordinate(if is_last { WIDTH } else { x_at(place) });
    html! {
        path.grid d={ "M" (x) " " (top) "V" (bottom) } {}
        text x=(at) y=(below) text-anchor=(if is_last { "end" } else { "middle" }) { (label) }
    }
}

fn y_tick(place: f64, label: &str) -> Markup {
    let (y, left, right) = (coordinate(y_at(place)), coordinate(x_at(0.0)), coordinate(x_at(1.0)));
    let (x, below) = (coordinate(x_at(0.0) - 6.0), coordinate(y_at(place) + 4.0));
    html! {
        path.grid d={ "M" (left) " " (y) "H" (right) } {}
        text x=(x) y=(below) text-anchor="end" { (label) }
    }
}

fn axis_titles(x: &str, y: &str) -> Markup {
    html! {
        text.axis x=(coordinate(x_at(0.5))) y=(coordinate(HEIGHT - 10.0)) text-anchor="middle" { (x) }
        // Level, above the axis: easier to read than along it, and never in the way of its labels.
        text.axis x="2" y="13" { (y) }
    }
}

/// The class of a line's colour.
fn colour(index: usize) -> String {
    format!("s{}", index % COLOURS + 1)
}

fn path(index: usize, d: &str) -> Markup {
    let dashes = DASHES[(index / COLOURS + index) % DASHES.len()];
    let dashes = (!dashes.is_empty()).then_some(dashes);
    html! { path.line.(colour(index)) stroke-dasharray=[dashes] d=(d) {} }
}

/// Each line has a shape of its own besides colour and dashes.
fn marker(index: usize, x: f64, y: f64) -> Markup {
    let at = |dx: f64, dy: f64| format!("{} {}", coordinate(x + dx), coordinate(y + dy));
    let shape = match index % 4 {
        0 => {
            let (x, y) = (coordinate(x), coordinate(y));
            return html! { circle.mark.(colour(index)) cx=(x) cy=(y) r="3.2" {} };
        }
        1 => format!("M{}h6v6h-6z", at(-3.0, -3.0)),
        2 => format!("M{}L{}L{}z", at(0.0, -4.0), at(3.8, 3.0), at(-3.8, 3.0)),
        _ => format!("M{}L{}L{}L{}z", at(0.0, -4.2), at(4.2, 0.0), at(0.0, 4.2), at(-4.2, 0.0)),
    };
    html! { path.mark.(colour(index)) d=(shape) {} }
}

/// A path of horizontal and vertical strokes; those too short to see are left out.
struct Steps {
    path: String,
    at: (String, String),
}

impl Steps {
    fn from(x: f64, y: f64) -> Self {
        let at = (coordinate(x), coordinate(y));
        Steps { path: format!("M{} {}", at.0, at.1), at }
    }

    fn across(&mut self, x: f64) {
        let x = coordinate(x);
        if x != self.at.0 {
            let _ = write!(self.path, "H{x}");
            self.at.0 = x;
        }
    }

    fn along(&mut self, y: f64) {
        let y = coordinate(y);
        if y != self.at.1 {
            let _ = write!(self.path, "V{y}");
            self.at.1 = y;
        }
    }
}

fn line(index: usize, steps: &Steps, markers: impl Iterator<Item = (f64, f64)>) -> Markup {
    html! {
        (path(index, &steps.path))
        @for (x, y) in markers { (marker(index, x, y)) }
    }
}

/// Cumulative distributions: the share of values that a duration covers, the duration on a logarithmic scale.
pub fn cumulative(title: &str, of: Quantity, lines: &[Line<'_>]) -> Markup {
    let scale = Log::over(lines);
    let draw = |(i, Line { of, .. }): (usize, &Line<'_>)| {
        let mut steps = Steps::from(x_at(scale.place(of.min().as_ns())), y_at(0.0));
        let mut seen = 0;
        for (_, high, n) in of.ranges_ns() {
            seen += n;
            steps.across(x_at(scale.place(high.min(of.max().as_ns()))));
            steps.along(y_at(seen as f64 / of.count() as f64));
        }
        let markers = MARKED[..2].iter().map(|ppm| {
            let x = x_at(scale.place(of.quantile_ppm(*ppm).as_ns()));
            (x, y_at(f64::from(*ppm) / 1e6))
        });
        line(i, &steps, markers)
    };
    let content = html! {
        @for tick in &scale.ticks { (x_tick(scale.place(*tick), &tick_label(*tick))) }
        @for percent in [0u32, 25, 50, 75, 100] {
            (y_tick(f64::from(percent) / 100.0, &format!("{percent} %")))
        }
        (axis_titles(of.value, of.counted))
        @for line in lines.iter().enumerate() { (draw(line)) }
    };
    plot(title, content)
}

/// A scale of shares on which each nine takes the same room.
struct Nines {
    /// Nines from the left edge to the right one.
    count: f64,
}

impl Nines {
    /// A sample of n says nothing beyond the n-th part.
    fn over(lines: &[Line<'_>]) -> Self {
        let most = lines.iter().map(|line| line.of.count()).max().unwrap_or(1).max(10);
        Nines { count: (most as f64).log10().ceil().max(1.0) }
    }

    /// Between 0 and 1, of a share of `count` values.
    fn place(&self, share: f64, count: u64) -> f64 {
        (-(1.0 - share).max(1.0 / count as f64).log10() / self.count).clamp(0.0, 1.0)
    }

    /// Where ticks are, and their names.
    fn ticks(&self) -> Vec<(f64, String)> {
        let label = |nine: usize| match nine {
            0 => "0 %".to_owned(),
            1 => "90 %".to_owned(),
            2 => "99 %".to_owned(),
            n if n > 5 && n % 2 == 0 => String::new(),
            n => format!("99.{} %", "9".repeat(n - 2)),
        };
        (0..=self.count as usize).map(|nine| (nine as f64 / self.count, label(nine))).collect()
    }
}

/// Durations by percentile as HdrHistogram plots them: each nine takes the same room, so the tail is legible.
pub fn percentiles(title: &str, of: Quantity, lines: &[Line<'_>]) -> Markup {
    let scale = Log::over(lines);
    let nines = Nines::over(lines);
    let draw = |(i, Line { of, .. }): (usize, &Line<'_>)| {
        let count = of.count();
        let mut steps = Steps::from(x_at(0.0), y_at(scale.place(of.min().as_ns())));
        let mut seen = 0;
        for (_, high, n) in of.ranges_ns() {
            seen += n;
            steps.along(y_at(scale.place(high.min(of.max().as_ns()))));
            steps.across(x_at(nines.place(seen as f64 / count as f64, count)));
        }
        let marked = MARKED.iter().filter(|ppm| u64::from(1_000_000 - **ppm) * count >= 1_000_000);
        let markers = marked.map(|ppm| {
            let y = y_at(scale.place(of.quantile_ppm(*ppm).as_ns()));
            (x_at(nines.place(f64::from(*ppm) / 1e6, count)), y)
        });
        line(i, &steps, markers)
    };
    let content = html! {
        @for tick in &scale.ticks { (y_tick(scale.place(*tick), &tick_label(*tick))) }
        @for (place, label) in nines.ticks() { (x_tick(place, &label)) }
        (axis_titles("percentile", of.value))
        @for line in lines.iter().enumerate() { (draw(line)) }
    };
    plot(title, content)
}

/// The names of the lines, each beside a piece of it.
pub fn legend<'a>(names: impl Iterator<Item = &'a str>) -> Markup {
    html! {
        ul.legend {
            @for (i, name) in names.enumerate() {
                li {
                    svg width="34" height="12" aria-hidden="true" {
                        (path(i, "M1 6H33")) (marker(i, 17.0, 6.0))
                    }
                    (name)
                }
            }
        }
    }
}

/// Width and height of one strip of [`step_strip`].
const STRIP_WIDTH: f64 = 640.0;
const STRIP: f64 = 54.0;

/// A value that changes in steps over time: `(time, value)` from `from_ns` to `to_ns`, both in ns.
pub fn step_strip(
    title: &str,
    index: usize,
    (from_ns, to_ns): (u64, u64),
    steps_of: &[(u64, u64)],
    with_times: bool,
) -> Markup {
    let most = steps_of.iter().map(|step| step.1).max().unwrap_or(0).max(1);
    let height = if with_times { STRIP + 16.0 } else { STRIP };
    let wide = STRIP_WIDTH;
    let x = |at: u64| {
        LEFT + (at.saturating_sub(from_ns)) as f64 / (to_ns - from_ns).max(1) as f64 * (wide - LEFT - RIGHT)
    };
    let y = |value: u64| STRIP - 6.0 - value as f64 / most as f64 * (STRIP - 16.0);
    let mut path: Option<Steps> = None;
    for &(at, left) in steps_of.iter().take_while(|step| step.0 <= to_ns) {
        let path = path.get_or_insert_with(|| Steps::from(x(at), y(left)));
        path.across(x(at));
        path.along(y(left));
    }
    if let Some(path) = &mut path {
        path.across(x(to_ns));
    }
    let (left, right) = (coordinate(LEFT), coordinate(wide - RIGHT));
    let step = round_up((to_ns - from_ns).div_ceil(6));
    let times = (from_ns.div_ceil(step)..=to_ns / step).map(|n| n * step);
    html! {
        svg.plot.strip viewBox={ "0 0 " (wide) " " (height) } role="img" aria-label=(title) {
            @for (value, label) in [(0, "0".to_owned()), (most, fmt_ns(most))] {
                path.grid d={ "M" (left) " " (coordinate(y(value))) "H" (right) } {}
                text x=(coordinate(LEFT - 6.0)) y=(coordinate(y(value) + 3.0)) text-anchor="end" { (label) }
            }
            @if let Some(path) = path { path.line.thin.(colour(index)) d=(path.path) {} }
            @for at in times.filter(|_| with_times) {
                @let anchor = if x(at) > wide - RIGHT - 20.0 { "end" } else { "middle" };
                text x=(coordinate(x(at))) y=(coordinate(height - 3.0)) text-anchor=(anchor) {
                    (tick_label(at))
                }
            }
        }
    }
}

/// The next of 1, 2 or 5 times a power of ten, in which ticks can be named exactly.
fn round_up(ns: u64) -> u64 {
    let power = 10u64.pow(ns.max(1).ilog10());
    [1, 2, 5, 10].map(|digit| power.saturating_mul(digit)).into_iter().find(|step| *step >= ns).unwrap_or(ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use punctual_sched::Duration;

    fn recorder(values: &[u64]) -> Recorder {
        let mut recorder = Recorder::new();
        values.iter().for_each(|ns| recorder.record(Duration::from_ns(*ns)));
        recorder
    }

    #[test]
    fn ticks_are_named_exactly() {
        let labels = [0, 5, 1_000, 1_500_000, 20_000_000, 1_050_000_000].map(tick_label);
        assert_eq!(labels, ["0", "5 ns", "1 us", "1.5 ms", "20 ms", "1.05 s"]);
    }

    #[test]
    fn what_never_varies_is_drawn_between_the_axes() {
        for value in [1_000_000, 1_000_100, 999_900] {
            let of = recorder(&[value; 3]);
            let place = Log::over(&[Line { name: "a".into(), of: &of }]).place(value);
            assert!((0.05..0.95).contains(&place), "{value} at {place}");
        }
    }

    proptest! {
        #[test]
        fn any_durations_are_drawn_inside_the_picture(
            values in prop::collection::vec(prop_oneof![0u64..10, 0u64..1_000_000_000, any::<u64>()], 1..50),
        ) {
            let of = recorder(&values);
            let line = || [Line { name: "a".into(), of: &of }];
            for svg in [cumulative("a", RESPONSE, &line()), percentiles("a", RESPONSE, &line())] {
                let svg = svg.into_string();
                prop_assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
                // What is between tags is text.
                for tag in svg.split('<').filter_map(|tag| tag.split('>').next()) {
                    for number in tag.split(|c: char| !c.is_ascii_digit() && c != '.' && c != '-') {
                        let place: Option<f64> = number.parse().ok();
                        let is_inside = place.is_none_or(|place| (0.0..=500.0).contains(&place));
                        prop_assert!(is_inside, "{number} in {svg}");
                    }
                }
            }
        }

        #[test]
        fn any_steps_are_drawn(
            mut steps in prop::collection::vec((any::<u64>(), any::<u64>()), 0..20),
            from: u64,
            to: u64,
        ) {
            steps.sort_unstable();
            let window = (from.min(to), from.max(to));
            let svg = step_strip("a", 0, window, &steps, true).into_string();
            prop_assert!(!svg.contains("NaN") && svg.len() < 10_000, "{svg}");
        }
    }
}
