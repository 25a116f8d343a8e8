//! Distributions and steps as SVG inside the page: colours, fonts and sizes are the page's.
//!
//! [`crate::plot`] draws charts that stand alone in a document; these share the page's style sheet, so they
//! follow its theme and print, and their text alternative is the table beside them.

use std::fmt::Write as _;

use maud::{Markup, html};
use punctual_model::Histogram;

use crate::format::{fmt_count, fmt_ns};

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 310.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 14.0;
/// Room for the title of the vertical axis, and below it for a deadline's name.
const TOP: f64 = 42.0;
const BOTTOM: f64 = 52.0;
/// Colours of the style sheet.
pub(crate) const COLOURS: usize = 8;
const DASHES: [&str; 4] = ["", "7 3", "2 2.5", "9 3 2 3"];
/// Cumulative shares at which a line has a marker, in millionths.
const MARKED: [u32; 4] = [500_000, 900_000, 990_000, 999_000];

/// A distribution with its name in the legend.
pub(super) struct Line<'a> {
    pub name: String,
    pub of: &'a Histogram,
    /// Its colour, dashes and marker: those of the same thing in every plot of the page.
    pub style: usize,
    /// What no duration should exceed.
    pub deadline_ns: Option<u64>,
    /// How many more there are that never came to an end: the line stops below 100 %.
    pub unfinished: u64,
}

impl<'a> Line<'a> {
    /// What has no deadline and always comes to an end.
    pub(super) fn new(name: impl Into<String>, style: usize, of: &'a Histogram) -> Self {
        Line { name: name.into(), of, style, deadline_ns: None, unfinished: 0 }
    }

    /// Everything that there is, ended or not.
    fn all(&self) -> u64 {
        self.of.count().saturating_add(self.unfinished)
    }

    /// What a share of `ppm` millionths of all does not exceed; nothing where it never came to an end.
    fn quantile_ns(&self, ppm: u32) -> Option<u64> {
        let of_ended = (u128::from(ppm) * u128::from(self.all())).div_ceil(self.of.count().max(1).into());
        let of_ended = u32::try_from(of_ended).ok().filter(|ppm| *ppm <= 1_000_000)?;
        (self.of.count() > 0).then(|| self.of.quantile_ppm(of_ended).as_ns())
    }

    /// Its name, and what its curve does not say by itself.
    fn legend(&self, with_deadline: bool) -> String {
        let mut text = self.name.clone();
        if let Some(deadline_ns) = self.deadline_ns.filter(|_| with_deadline) {
            let _ = write!(text, ", deadline {}", fmt_ns(deadline_ns));
        }
        match (self.of.count(), self.unfinished) {
            (_, 0) => {}
            (0, n) => {
                let _ = write!(text, ": none of {} finished", fmt_count(n));
            }
            (_, n) => {
                let _ = write!(text, ": {} of {} never finished", fmt_count(n), fmt_count(self.all()));
            }
        }
        text
    }
}

fn common_deadline(lines: &[Line<'_>]) -> Option<u64> {
    let first = lines.first()?.deadline_ns?;
    lines.iter().all(|line| line.deadline_ns == Some(first)).then_some(first)
}

/// What a distribution is of, in the words of a plot.
#[derive(Clone, Copy)]
pub(super) struct Quantity {
    pub title: &'static str,
    pub value: &'static str,
    pub counted: &'static str,
}

pub(crate) const END_TO_END: Quantity = Quantity {
    title: "End-to-end response times",
    value: "from the first release to the last end, log scale",
    counted: "share of runs",
};
pub(crate) const RESPONSE: Quantity =
    Quantity { title: "Response times", value: "response time, log scale", counted: "share of jobs" };
pub(super) const LATENCY: Quantity =
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
        let deadlines = || lines.iter().filter_map(|line| line.deadline_ns);
        let least = counted().map(|line| line.of.min().as_ns()).chain(deadlines()).min().unwrap_or(1).max(1);
        let most =
            counted().map(|line| line.of.max().as_ns()).chain(deadlines()).max().unwrap_or(1).max(least);
        let steps: Vec<u64> = (0..20)
            .flat_map(|decade| [1, 2, 5].map(|digit: u64| digit.checked_mul(10u64.pow(decade))))
            .flatten()
            .collect();
        // Nothing lies on the edge, where a line would be indistinguishable from the axis.
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
        1 => format!("M{}L{}L{}L{}z", at(-3.0, -3.0), at(3.0, -3.0), at(3.0, 3.0), at(-3.0, 3.0)),
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

/// A deadline as a stroke through the plot: named where all lines have it, otherwise in the colour of its
/// line.
fn deadlines(lines: &[Line<'_>], scale: &Log, is_upright: bool) -> Markup {
    let stroke = |ns: u64| {
        if is_upright {
            let (x, top, bottom) = (coordinate(x_at(scale.place(ns))), y_at(1.0), coordinate(y_at(0.0)));
            format!("M{x} {}V{bottom}", coordinate(top - 5.0))
        } else {
            let (left, y, right) = (coordinate(x_at(0.0)), y_at(scale.place(ns)), coordinate(x_at(1.0)));
            format!("M{left} {}H{right}", coordinate(y))
        }
    };
    let name = |ns: u64| {
        let place = scale.place(ns);
        let label = format!("deadline {}", fmt_ns(ns));
        let (x, y, anchor) = if is_upright {
            (x_at(place), y_at(1.0) - 8.0, if place > 0.5 { "end" } else { "start" })
        } else {
            (x_at(0.0) + 6.0, y_at(place) - 5.0, "start")
        };
        html! { text.due x=(coordinate(x)) y=(coordinate(y)) text-anchor=(anchor) { (label) } }
    };
    html! {
        @if let Some(ns) = common_deadline(lines) {
            path.due d=(stroke(ns)) {}
            (name(ns))
        } @else {
            @for line in lines {
                @if let Some(ns) = line.deadline_ns {
                    path.due.line.thin.(colour(line.style)) d=(stroke(ns)) {}
                }
            }
        }
    }
}

/// Cumulative distributions: the share of values that a duration covers, the duration on a logarithmic scale.
pub(crate) fn cumulative(title: &str, of: Quantity, lines: &[Line<'_>]) -> Markup {
    let scale = Log::over(lines);
    let draw = |drawn: &Line<'_>| {
        let of = drawn.of;
        let mut steps = Steps::from(x_at(scale.place(of.min().as_ns())), y_at(0.0));
        let mut seen = 0;
        for (_, high, n) in of.ranges_ns() {
            seen += n;
            steps.across(x_at(scale.place(high.min(of.max().as_ns()))));
            steps.along(y_at(seen as f64 / drawn.all() as f64));
        }
        if drawn.unfinished > 0 {
            // The others take longer than anything here.
            steps.across(x_at(1.0));
        }
        let markers = MARKED[..2].iter().filter_map(|ppm| {
            let x = x_at(scale.place(drawn.quantile_ns(*ppm)?));
            Some((x, y_at(f64::from(*ppm) / 1e6)))
        });
        line(drawn.style, &steps, markers)
    };
    let content = html! {
        @for tick in &scale.ticks { (x_tick(scale.place(*tick), &tick_label(*tick))) }
        @for percent in [0u32, 25, 50, 75, 100] {
            (y_tick(f64::from(percent) / 100.0, &format!("{percent} %")))
        }
        (axis_titles(of.value, of.counted))
        (deadlines(lines, &scale, true))
        @for line in lines { (draw(line)) }
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
        let most = lines.iter().map(Line::all).max().unwrap_or(1).max(10);
        Nines { count: (most as f64).log10().ceil().max(1.0) }
    }

    /// Between 0 and 1, of a share of `count` values.
    fn place(&self, share: f64, count: u64) -> f64 {
        (-(1.0 - share).max(1.0 / count as f64).log10() / self.count).clamp(0.0, 1.0)
    }

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
pub(super) fn percentiles(title: &str, of: Quantity, lines: &[Line<'_>]) -> Markup {
    let scale = Log::over(lines);
    let nines = Nines::over(lines);
    let draw = |drawn: &Line<'_>| {
        let (of, count) = (drawn.of, drawn.all());
        let mut steps = Steps::from(x_at(0.0), y_at(scale.place(of.min().as_ns())));
        let mut seen = 0;
        for (_, high, n) in of.ranges_ns() {
            seen += n;
            steps.along(y_at(scale.place(high.min(of.max().as_ns()))));
            steps.across(x_at(nines.place(seen as f64 / count as f64, count)));
        }
        let marked =
            MARKED.iter().filter(|ppm| u64::from(1_000_000 - **ppm).saturating_mul(count) >= 1_000_000);
        let markers = marked.filter_map(|ppm| {
            let y = y_at(scale.place(drawn.quantile_ns(*ppm)?));
            Some((x_at(nines.place(f64::from(*ppm) / 1e6, count)), y))
        });
        if drawn.unfinished > 0 {
            steps.along(y_at(1.0));
        }
        line(drawn.style, &steps, markers)
    };
    let content = html! {
        @for tick in &scale.ticks { (y_tick(scale.place(*tick), &tick_label(*tick))) }
        @for (place, label) in nines.ticks() { (x_tick(place, &label)) }
        (axis_titles("percentile", of.value))
        (deadlines(lines, &scale, false))
        @for line in lines.iter().filter(|line| line.of.count() > 0) { (draw(line)) }
    };
    plot(title, content)
}

/// The names of the lines, each beside a piece of it.
pub(crate) fn legend(lines: &[Line<'_>]) -> Markup {
    let with_deadlines = common_deadline(lines).is_none();
    html! {
        ul.legend {
            @for line in lines {
                li {
                    svg width="34" height="12" aria-hidden="true" {
                        (path(line.style, "M1 6H33")) (marker(line.style, 17.0, 6.0))
                    }
                    (line.legend(with_deadlines))
                }
            }
        }
    }
}

/// Width and height of one strip of [`step_strip`].
const STRIP_WIDTH: f64 = 640.0;
const STRIP: f64 = 54.0;
/// Room for a duration in the size of narrow screens.
const STRIP_LEFT: f64 = 84.0;

/// A value that changes in steps over time: `(time, value)` from `from_ns` to `to_ns`, both in ns.
pub(crate) fn step_strip(
    title: &str,
    index: usize,
    (from_ns, to_ns): (u64, u64),
    steps_of: &[(u64, u64)],
    with_times: bool,
) -> Markup {
    let most = steps_of.iter().map(|step| step.1).max().unwrap_or(0).max(1);
    let height = if with_times { STRIP + 20.0 } else { STRIP };
    let wide = STRIP_WIDTH;
    let x = |at: u64| {
        STRIP_LEFT
            + (at.saturating_sub(from_ns)) as f64 / (to_ns - from_ns).max(1) as f64
                * (wide - STRIP_LEFT - RIGHT)
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
    let [name_x, left, right] = [STRIP_LEFT - 6.0, STRIP_LEFT, wide - RIGHT].map(coordinate);
    let step = round_up((to_ns - from_ns).div_ceil(6));
    let times = (from_ns.div_ceil(step)..=to_ns / step).map(|n| n * step);
    html! {
        svg.plot.strip viewBox={ "0 0 " (wide) " " (height) } role="img" aria-label=(title) {
            @for (value, label) in [(0, "0".to_owned()), (most, fmt_ns(most))] {
                path.grid d={ "M" (left) " " (coordinate(y(value))) "H" (right) } {}
                text x=(name_x) y=(coordinate(y(value) + 3.0)) text-anchor="end" { (label) }
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

    fn histogram(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::new();
        values.iter().for_each(|ns| histogram.record(Duration::from_ns(*ns)));
        histogram
    }

    #[test]
    fn ticks_are_named_exactly() {
        let labels = [0, 5, 1_000, 1_500_000, 20_000_000, 1_050_000_000].map(tick_label);
        assert_eq!(labels, ["0", "5 ns", "1 us", "1.5 ms", "20 ms", "1.05 s"]);
    }

    #[test]
    fn what_never_varies_is_drawn_between_the_axes() {
        for value in [1_000_000, 1_000_100, 999_900] {
            let of = histogram(&[value; 3]);
            let place = Log::over(&[Line::new("a", 0, &of)]).place(value);
            assert!((0.05..0.95).contains(&place), "{value} at {place}");
        }
    }

    /// The last height of the first line drawn, as a share of the plot.
    fn ends_at(svg: &str) -> f64 {
        let (_, line) = svg.split_once("class=\"line").expect("a line");
        let (_, path) = line.split_once(" d=\"").expect("a path");
        let path = path.split_once('"').expect("its end").0;
        let (_, height) = path.rsplit_once('V').expect("a height");
        let end = height.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(height.len());
        let y: f64 = height[..end].parse().expect("a number");
        (HEIGHT - BOTTOM - y) / (HEIGHT - TOP - BOTTOM)
    }

    #[test]
    fn a_curve_with_jobs_that_never_finished_stops_below_all() {
        let of = histogram(&[1_000_000, 2_000_000, 3_000_000]);
        let svg = |unfinished| {
            let lines = [Line { unfinished, ..Line::new("a", 0, &of) }];
            (cumulative("a", RESPONSE, &lines).into_string(), legend(&lines).into_string())
        };
        let (all, part) = (svg(0), svg(1));
        assert!((ends_at(&all.0) - 1.0).abs() < 0.01, "{}", all.0);
        assert!((ends_at(&part.0) - 0.75).abs() < 0.01, "{}", part.0);
        assert!(!all.1.contains("never") && part.1.contains("a: 1 of 4 never finished"), "{}", part.1);
        // Of four, 50 % are two; 90 % never came to an end.
        let line = Line { unfinished: 1, ..Line::new("a", 0, &of) };
        assert_eq!(line.quantile_ns(500_000), Some(of.quantile_ppm(666_667).as_ns()));
        assert_eq!(line.quantile_ns(900_000), None);
    }

    #[test]
    fn a_deadline_is_marked_and_named_where_all_lines_have_it() {
        let of = histogram(&[1_000_000]);
        let line = |style, ms: u64| Line { deadline_ns: Some(ms * 1_000_000), ..Line::new("a", style, &of) };
        for draw in [cumulative, percentiles] {
            let same = draw("a", RESPONSE, &[line(0, 5), line(1, 5)]).into_string();
            assert_eq!(
                (same.matches("<path class=\"due").count(), same.matches("deadline 5.00 ms").count()),
                (1, 1)
            );
            let different = draw("a", RESPONSE, &[line(0, 5), line(1, 7)]).into_string();
            assert!(!different.contains("deadline 5.00 ms"), "{different}");
            for class in ["due line thin s1", "due line thin s2"] {
                assert_eq!(different.matches(class).count(), 1, "{different}");
            }
        }
        let names = legend(&[line(0, 5), line(1, 7)]).into_string();
        assert!(names.contains("a, deadline 5.00 ms") && names.contains("a, deadline 7.00 ms"), "{names}");
    }

    proptest! {
        #[test]
        fn any_durations_are_drawn_inside_the_picture(
            values in prop::collection::vec(prop_oneof![0u64..10, 0u64..1_000_000_000, any::<u64>()], 0..50),
            deadline_ns: Option<u64>,
            unfinished in prop_oneof![0u64..100, any::<u64>()],
            style in 0usize..40,
        ) {
            let of = histogram(&values);
            let line = || [Line { deadline_ns, unfinished, ..Line::new("a", style, &of) }];
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
