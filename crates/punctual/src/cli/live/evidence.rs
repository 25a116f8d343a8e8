//! What enforcement did and what was put back, as text.

use std::fmt::Write as _;

use punctual_enforce::backend::Backend;
use punctual_enforce::journal::Restored;
use punctual_enforce::session::{Isolated, PoolReport, Report};
use punctual_linux::preflight;
use punctual_model::Histogram;
use punctual_report::format::{fmt_count, fmt_duration, fmt_share};
use punctual_report::table;

/// What enforcement did and what was put back.
pub(crate) fn evidence(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail, here and below.
    for pool in &report.pools {
        let processors = preflight::list(&pool.processors);
        let _ = writeln!(out, "\nenforcement of {} on processor {processors}", pool.policy);
        if pool.cost.is_empty() {
            let _ = writeln!(out, "  none: plain Linux");
            for difference in &pool.differences {
                out += &wrapped("  unlike the file:  ", difference);
            }
            out += &isolated(pool);
            continue;
        }
        if let Some(chosen) = &pool.enforced_by {
            out += &wrapped("  enforced by       ", &chosen.to_string());
        }
        out += &isolated(pool);
        let cost: u64 = pool.cost.iter().map(|cost| cost.as_ns()).sum();
        let share = fmt_share(cost, report.elapsed.as_ns() * pool.cost.len() as u64);
        let looks = fmt_count(pool.evidence.looks);
        let is_in_kernel = pool.enforced_by.as_ref().is_some_and(|by| by.backend == Backend::SchedExt);
        let whose = if is_in_kernel { "a processor of the host" } else { "the processor" };
        let _ = writeln!(out, "  enforcer          {share} of {whose}, {looks} looks");
        let _ = writeln!(out, "  budget overrun    {}", distribution(&pool.evidence.overrun));
        let _ = writeln!(out, "  replenished late  {}", distribution(&pool.evidence.replenishment_lateness));
        let _ = writeln!(out, "  looks late        {}", distribution(&pool.evidence.look_lateness));
        if !pool.evidence.stolen.is_zero() {
            let stolen = fmt_duration(pool.evidence.stolen);
            let _ = writeln!(out, "  stolen            {stolen}, charged to no budget");
        }
        if pool.evidence.graces > 0 {
            let times = fmt_count(pool.evidence.graces);
            let _ = writeln!(out, "  graces            {times}, for vCPUs that held a lock of their VMM");
        }
    }
    let _ = writeln!(out, "\n{}", restored(&report.restored));
    out
}

/// The pool's partition, if it is one.
fn isolated(pool: &PoolReport) -> String {
    let text = |isolated: &Isolated| wrapped("  processors        ", &isolated.to_string());
    pool.isolated.as_ref().map(text).unwrap_or_default()
}

fn wrapped(first: &str, text: &str) -> String {
    let indent = " ".repeat(first.len());
    let options =
        textwrap::Options::new(table::text_width()).initial_indent(first).subsequent_indent(&indent);
    textwrap::fill(text, options) + "\n"
}

fn distribution(histogram: &Histogram) -> String {
    if histogram.count() == 0 {
        return "never".into();
    }
    let quantile = |ppm| fmt_duration(histogram.quantile_ppm(ppm));
    format!(
        "p50 {}, p99 {}, max {} ({} times)",
        quantile(500_000),
        quantile(990_000),
        fmt_duration(histogram.max()),
        fmt_count(histogram.count())
    )
}

/// What was put back, in a line.
pub(crate) fn restored(restored: &Restored) -> String {
    if restored.of_earlier_boot {
        return "its journal is from before this machine was started: it was removed".into();
    }
    let counts = [
        (restored.threads, "thread", "threads", ""),
        (restored.files, "kernel parameter", "kernel parameters", ""),
        (restored.groups, "group", "groups", " removed"),
        (restored.children, "process", "processes", " of the run ended"),
        (restored.threads_gone, "thread", "threads", " had ended"),
        (restored.threads_without_home, "thread", "threads", " in the nearest cgroup above a removed one"),
        (restored.left_to_others, "setting", "settings", " left as they are for another run"),
    ];
    let there = counts.into_iter().filter(|(count, ..)| *count > 0);
    let part = |(count, one, several, then): (u64, &str, &str, &str)| {
        format!("{count} {}{then}", if count == 1 { one } else { several })
    };
    let kept = restored
        .set_by_others
        .iter()
        .map(|(file, value)| format!("{} left at {value}, which another program has set", file.display()));
    match there.map(part).chain(kept).collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => "nothing had to be put back".into(),
        parts => format!("put back: {parts}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_back_is_counted_and_what_was_not_is_left_out() {
        let done = Restored { threads: 5, groups: 1, ..Restored::default() };
        assert_eq!(restored(&done), "put back: 5 threads, 1 group removed");
        assert_eq!(restored(&Restored::default()), "nothing had to be put back");
        let set_by_others = vec![("/proc/sys/kernel/sched_rt_runtime_us".into(), "900000".into())];
        let kept = Restored { files: 1, set_by_others, ..Restored::default() };
        let expected = "put back: 1 kernel parameter, /proc/sys/kernel/sched_rt_runtime_us left at 900000, \
                        which another program has set";
        assert_eq!(restored(&kept), expected);
    }
}
