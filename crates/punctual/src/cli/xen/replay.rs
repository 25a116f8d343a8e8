//! `punctual xen replay`: are the decisions that were made in Xen those that are made here?

use std::fmt::Write as _;
use std::path::PathBuf;

use punctual_model::text::printable;
use punctual_report::format::{fmt_count, fmt_ns};
use punctual_xen::replay::{Replayed, replay};
use punctual_xen::{record, xentrace};
use serde::Serialize;

use super::super::error::Error;
use super::super::exit;
use super::super::output::{Ui, keep_inputs};
use super::timeline;

/// Replay the decisions of a Xen trace and compare them.
///
/// `xentrace -e 0x22000 FILE` records Xen's calls of the scheduler and its answers, beginning when a cpupool
/// gets its policy (`punctual xen pool`). The command makes the same calls on the same policy. Exit code 0:
/// all answers agree; 1: an answer differs or records are missing; 2: the file is not such a trace.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual xen replay trace\n  \
    punctual xen replay trace --trace xen.pftrace            for ui.perfetto.dev")]
pub(super) struct Args {
    /// The file that xentrace wrote.
    #[arg(value_name = "TRACE")]
    file: PathBuf,
    /// Write the pool with the most decisions as a Perfetto trace.
    #[arg(long, value_name = "OUT.pftrace")]
    trace: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Answer<'a> {
    lost: u64,
    pools: Vec<PoolAnswer<'a>>,
}

#[derive(Serialize)]
struct PoolAnswer<'a> {
    pool: u8,
    policy: &'a str,
    duration_ns: u64,
    calls: u64,
    picks: u64,
    different: u64,
    first_difference: Option<String>,
    refused: Option<&'a str>,
    #[serde(rename = "parked")]
    failed: bool,
}

/// Runs `punctual xen replay`.
pub(super) fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    keep_inputs(std::slice::from_ref(&args.file), &[&args.trace])?;
    let name = args.file.display().to_string();
    let name = printable(&name);
    let bytes =
        std::fs::read(&args.file).map_err(|error| Error::Usage(format!("cannot read {name}: {error}")))?;
    let trace = xentrace::read(&bytes).map_err(|error| Error::Usage(format!("{name}: {error}")))?;
    let calls = record::calls(&trace);
    if calls.calls.is_empty() {
        return Err(Error::Usage(format!(
            "{name}: {} records, and no cpupool begins in them: give it its policy while xentrace runs \
             (punctual xen pool POOL --policy POLICY)",
            trace.records.len()
        )));
    }
    let replayed = replay(&calls, |_, _| {});
    if let Some(path) = &args.trace {
        timeline::write(path, &calls, &replayed)?;
    }
    let is_same = calls.lost == 0 && replayed.iter().all(Replayed::is_same);
    let pools = replayed.iter().map(pool_answer).collect();
    let answer = Answer { lost: calls.lost, pools };
    if args.json {
        ui.print_json(&answer)?
    } else {
        ui.print(text(&answer))?
    }
    Ok(if is_same { exit::OK } else { exit::MISSED })
}

fn pool_answer(replayed: &Replayed) -> PoolAnswer<'_> {
    let first = replayed.first.as_ref().map(|first| {
        let at = fmt_ns(first.now_ns);
        format!("record {} at {at}: {} in Xen, {} here", first.sequence, first.recorded, first.here)
    });
    PoolAnswer {
        pool: replayed.pool,
        policy: &replayed.policy,
        duration_ns: replayed.until_ns.saturating_sub(replayed.from_ns),
        calls: replayed.calls,
        picks: replayed.picks,
        different: replayed.different,
        first_difference: first,
        refused: replayed.refused.as_deref(),
        failed: replayed.failed,
    }
}

fn text(answer: &Answer<'_>) -> String {
    let mut text = String::new();
    for pool in &answer.pools {
        let _ = write!(
            text,
            "{} for {}: {} calls, {} decisions, ",
            printable(pool.policy),
            fmt_ns(pool.duration_ns),
            fmt_count(pool.calls),
            fmt_count(pool.picks)
        );
        let _ = match (pool.refused, pool.different) {
            (Some(why), _) => writeln!(text, "no more made here: {}", printable(why)),
            (None, 0) => writeln!(text, "all answers the same"),
            (None, different) => writeln!(text, "{} answers differ", fmt_count(different)),
        };
        if let Some(first) = &pool.first_difference {
            let _ = writeln!(text, "  first: {}", printable(first));
        }
        if pool.failed {
            let _ = writeln!(text, "  the policy failed in Xen at its last call");
        }
    }
    if answer.lost > 0 {
        let _ = writeln!(text, "{} records lack", fmt_count(answer.lost));
    }
    text
}
