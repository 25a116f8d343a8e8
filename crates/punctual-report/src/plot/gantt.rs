//! A timeline as a picture: a row for each processor, vCPU and task.

use punctual_sched::Duration;

use super::document::{COLOURS, Document, WIDTH, escape};
use crate::format::fmt_duration;
use crate::timeline::{Job, Row, RowKind, Timeline, Use};

/// Rows shown at most; the last line of the picture counts the others.
const ROWS_MAX: usize = 60;

/// Where the rows begin, below the heading.
const TOP: u64 = 44;
const ROW: u64 = 22;
const BAR: u64 = 14;
/// The axis below the rows.
const BOTTOM: u64 = 40;
/// Where time begins, right of the names.
const LEFT: u64 = 170;
const RIGHT: u64 = 20;

/// The timeline as SVG. Bars execute; in rows of tasks a line up marks a release, a line down a deadline, in
/// red where it was missed.
pub fn gantt(title: &str, timeline: &Timeline) -> String {
    let shown = &timeline.rows[..timeline.rows.len().min(ROWS_MAX)];
    let bottom = TOP + shown.len() as u64 * ROW;
    let mut out = Document::with_height(title, (bottom + BOTTOM) as f64);
    axis(&mut out, timeline, bottom);
    let mut group = "";
    for (number, row) in shown.iter().enumerate() {
        let y = TOP + number as u64 * ROW;
        if row.group != group {
            group = &row.group;
            out.put(format!(r#"<path class="grid" d="M8 {y}H{}"/>"#, WIDTH as u64 - RIGHT));
        }
        one_row(&mut out, timeline, row, y);
    }
    if shown.len() < timeline.rows.len() {
        let (more, y) = (timeline.rows.len() - shown.len(), bottom + 34);
        out.put(format!(r#"<text class="muted" x="12" y="{y}">{more} more rows</text>"#));
    }
    out.finish()
}

/// Where a time stands, in whole pixels.
fn x(timeline: &Timeline, at_ns: u64) -> u64 {
    let width = u128::from(WIDTH as u64 - LEFT - RIGHT);
    let at = u128::from(at_ns.clamp(timeline.from_ns, timeline.to_ns) - timeline.from_ns);
    LEFT + (at * width / u128::from(timeline.length_ns().max(1))) as u64
}

/// Ticks whose distance is 1, 2 or 5 times a power of ten: between four and ten of them.
fn axis(out: &mut Document, timeline: &Timeline, bottom: u64) {
    let mut step = 1;
    while timeline.length_ns() / step > 10 {
        // From 1 to 2 and 5 to 10 it doubles; from 2 to 5 it cannot.
        step = if step.to_string().starts_with('2') { step / 2 * 5 } else { step * 2 };
    }
    let first = timeline.from_ns.div_ceil(step);
    for at in (first..).map(|n| n * step).take_while(|at| *at <= timeline.to_ns) {
        let (x, text) = (x(timeline, at), fmt_duration(Duration::from_ns(at)));
        out.put(format!(r#"<path class="grid" d="M{x} {TOP}V{bottom}"/>"#));
        let y = bottom + 16;
        out.put(format!(r#"<text class="muted" x="{x}" y="{y}" text-anchor="middle">{text}</text>"#));
    }
}

fn one_row(out: &mut Document, timeline: &Timeline, row: &Row, y: u64) {
    let name = match row.kind {
        RowKind::Task => format!("{}/{}", row.group, row.name),
        RowKind::Processor | RowKind::Vcpu | RowKind::Network => row.name.clone(),
    };
    let (text_y, bar_y) = (y + 16, y + 5);
    out.put(format!(r#"<text x="12" y="{text_y}" fill="currentColor">{}</text>"#, escape(&name)));
    for slice in &row.slices {
        let (label, kind) = &timeline.labels[slice.label as usize];
        let (from, to) = (x(timeline, slice.begin_ns), x(timeline, slice.end_ns));
        let width = (to - from).max(1);
        let paint = match kind {
            Use::Execution | Use::Network => {
                format!(r#"fill="{}""#, COLOURS[slice.label as usize % (COLOURS.len() - 1)])
            }
            Use::Overhead => r#"fill="currentColor""#.to_owned(),
            Use::Idle | Use::IdleFor | Use::Away => r#"fill="currentColor" opacity="0.15""#.to_owned(),
        };
        let [begin, end] = [slice.begin_ns, slice.end_ns].map(|ns| fmt_duration(Duration::from_ns(ns)));
        let title = format!("<title>{}: {begin} to {end}</title>", escape(label));
        let place = format!(r#"x="{from}" y="{bar_y}" width="{width}" height="{BAR}""#);
        out.put(format!("<rect {place} {paint}>{title}</rect>"));
    }
    row.jobs.iter().for_each(|job| marks(out, timeline, job, y));
}

/// Release and deadline of a job, where they lie within the timeline.
fn marks(out: &mut Document, timeline: &Timeline, job: &Job, y: u64) {
    let within = |at: u64| (timeline.from_ns..=timeline.to_ns).contains(&at);
    if within(job.release_ns) {
        let x = x(timeline, job.release_ns);
        out.put(format!(r#"<path stroke="currentColor" d="M{x} {}V{}"/>"#, y + 2, y + 11));
    }
    if within(job.deadline_ns) {
        let x = x(timeline, job.deadline_ns);
        let colour = if job.missed(timeline.to_ns) { "#cf222e" } else { "currentColor" };
        out.put(format!(r#"<path stroke="{colour}" d="M{x} {}V{}"/>"#, y + 12, y + 21));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::Slice;

    fn timeline(tasks: usize) -> Timeline {
        let slice = |begin_ns, end_ns, label| Slice { begin_ns, end_ns, label };
        let row = |group: &str, name: String, kind, slices, jobs| Row {
            group: group.into(),
            name,
            kind,
            slices,
            budget: Vec::new(),
            jobs,
        };
        let job = |number, release_ns, end_ns| Job {
            number,
            release_ns,
            deadline_ns: release_ns + 5_000_000,
            end_ns,
        };
        let (first, second) = (slice(0, 2_000_000, 0), slice(2_000_000, 2_100_000, 1));
        let mut rows =
            vec![row("processors", "processor 1".into(), RowKind::Processor, vec![first, second], vec![])];
        let jobs = vec![job(0, 0, Some(2_000_000)), job(1, 4_000_000, None)];
        rows.extend((0..tasks).map(|task| {
            row("vm <1>", format!("loop{task}"), RowKind::Task, vec![slice(0, 2_000_000, 0)], jobs.clone())
        }));
        let labels = vec![("vm <1>.0".into(), Use::Execution), ("scheduling".into(), Use::Overhead)];
        Timeline { from_ns: 0, to_ns: 10_000_000, cut: false, labels, rows }
    }

    #[test]
    fn the_picture_has_bars_releases_and_missed_deadlines() {
        insta::assert_snapshot!(gantt("a & b", &timeline(1)));
    }

    #[test]
    fn names_are_escaped_and_rows_bounded() {
        let svg = gantt("many", &timeline(500));
        assert_well_formed(&svg);
        assert!(svg.contains("441 more rows"), "{svg}");
        assert!(!svg.contains("vm <1>"));
    }

    /// Every element that opens also closes, and no bare `<` or `&` is left in a text.
    fn assert_well_formed(svg: &str) {
        let opened = svg.matches("<text").count() + svg.matches("<title").count();
        let closed = svg.matches("</text>").count() + svg.matches("</title>").count();
        assert_eq!(opened, closed);
        assert!(svg.split('&').skip(1).all(|rest| rest.split(';').next().is_some_and(|name| name.len() < 6)));
    }
}
