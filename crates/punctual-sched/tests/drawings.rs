//! The timelines drawn in the policies' files are what the policies do.

use std::collections::BTreeSet;

use punctual_sched::registry::Options;
use punctual_sched::{CpuId, Duration, Instant, Run, UnitParams};
use punctual_testkit::driver::{Driver, at_ms, server_ms};

const MS: Duration = Duration::from_ms(1);
/// Milliseconds drawn, a column each.
const END_MS: u64 = 38;
/// Work: arrives at, ms; takes, ms.
const WORK: [(u64, u64); 2] = [(8, 5), (26, 1)];

/// One unit alone on a processor with a budget of 3 ms in every 10 ms, drawn as rows of a text.
fn drawing(policy: &str, extratime: bool) -> String {
    let mut driver = Driver::named(policy, 1, &Options::new());
    let unit = driver.insert(&UnitParams { extratime: Some(extratime), ..server_ms(3, 10, 1) });
    WORK.iter().for_each(|(at, takes)| driver.release(unit, at_ms(*at), MS * *takes));
    let (mut left, mut ends) = (String::new(), BTreeSet::new());
    for ms in 0..END_MS {
        driver.run_until(at_ms(ms));
        // Charges what ran since the last decision.
        driver.settle();
        driver.pick_early(CpuId(0));
        let account = driver.policy.account(unit);
        let left_ms = account.left.expect("it keeps a budget").div_floor(MS);
        left += &left_ms.to_string();
        ends.extend(account.deadline);
    }
    driver.run_until(at_ms(END_MS));
    let row = |column: &dyn Fn(Instant) -> char| -> String {
        let row: String = (0..END_MS).map(|ms| column(at_ms(ms))).collect();
        row.trim_end().to_string()
    };
    let work = row(&|at| if WORK.iter().any(|(ms, _)| at_ms(*ms) == at) { 'v' } else { ' ' });
    let runs = row(&|at| {
        let span = driver.gantt.iter().find(|span| span.from <= at && at < span.to);
        match span.map(|span| span.run) {
            Some(Run::Unit(_)) => '#',
            Some(Run::IdleFor(_)) => '~',
            _ => ' ',
        }
    });
    let time = row(&|at| if at.as_ns() % (MS * 10).as_ns() == 0 { '|' } else { ' ' });
    let mut rows = format!(
        "ms    0         10        20        30\n      {time}\nwork  {work}\nruns  {runs}\nleft  {left}\n"
    );
    if !ends.is_empty() {
        rows += &format!("due   {}\n", row(&|at| if ends.contains(&at) { 'd' } else { ' ' }));
    }
    rows
}

/// The drawing as it stands in the documentation of a module.
fn documented(drawing: &str) -> String {
    let lines = drawing.lines().map(|line| format!("//! {line}").trim_end().to_string() + "\n");
    format!("//! ```text\n{}//! ```\n", lines.collect::<String>())
}

#[test]
fn every_drawing_shows_what_the_policy_does() {
    let drawn = [
        ("deferrable", false, include_str!("../src/servers/deferrable.rs")),
        ("periodic", false, include_str!("../src/servers/periodic.rs")),
        ("polling", false, include_str!("../src/servers/polling.rs")),
        ("sporadic", false, include_str!("../src/servers/sporadic.rs")),
        ("rtds", false, include_str!("../src/rtds.rs")),
        ("rtds", true, include_str!("../src/rtds.rs")),
        ("sedf", false, include_str!("../src/sedf.rs")),
        ("cbs", false, include_str!("../src/cbs.rs")),
    ];
    for (policy, extratime, source) in drawn {
        let drawing = documented(&drawing(policy, extratime));
        assert!(
            source.contains(&drawing),
            "{policy}, extratime {extratime}: the file should draw\n{drawing}"
        );
    }
}
