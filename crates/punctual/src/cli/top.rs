//! `punctual top`: a live run, watched.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::path::PathBuf;

use punctual_live::status::{DomainStatus, Snapshot, Standing, VcpuStatus, follow, running};
use punctual_model::text::printable_lines;
use punctual_report::format::{fmt_count, fmt_duration, fmt_share};
use punctual_sched::Duration;

use super::error::Error;
use super::output::Ui;
use super::{exit, interrupt};

/// Watch a live run: pools, vCPUs, budgets left, use, state, deadlines missed.
///
/// Shows the run that is under way on this machine, about every 100 ms, until it ends or Ctrl-C. A guest
/// reports its finished jobs about once a second; jobs that are due since then are not told of yet, and
/// missed only if they are not among the finished ones of a later report.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual top\n  \
    punctual top --json | jq '.vcpus[] | select(.standing == \"parked\")'\n  \
    punctual top --once")]
pub struct Args {
    /// Which run, if there are several: its socket.
    #[arg(value_name = "SOCKET")]
    run: Option<PathBuf>,
    /// Print one line of JSON per snapshot.
    #[arg(long)]
    json: bool,
    /// Show one snapshot and end.
    #[arg(long)]
    once: bool,
}

/// Runs `punctual top`.
pub fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    let socket = match &args.run {
        Some(socket) => socket.clone(),
        None => only_run()?,
    };
    interrupt::install();
    interrupt::be_graceful();
    let redraw = !args.json && !args.once && std::io::stdout().is_terminal();
    let mut before: Option<Snapshot> = None;
    let mut failed = Ok(());
    let mut shown = 0u64;
    if redraw {
        // The alternate screen; left again below, so no trace stays.
        ui.print("\x1b[?1049h\x1b[?25l")?;
    }
    let followed = follow(&socket, |snapshot| {
        let text = match args.json {
            true => serde_json::to_string(&snapshot).map(|line| line + "\n").unwrap_or_default(),
            false => printable_lines(&screen(&snapshot, before.as_ref())).into_owned(),
        };
        // Twenty snapshots a second are more than eyes need.
        let due = args.json || args.once || shown.is_multiple_of(2);
        shown += 1;
        if due {
            let text = if redraw { format!("\x1b[H{}\x1b[J", text.replace('\n', "\x1b[K\n")) } else { text };
            failed = ui.print(text);
        }
        before = Some(snapshot);
        failed.is_ok() && !args.once && !interrupt::stopped()
    });
    if redraw {
        let _ = std::io::stdout().write_all(b"\x1b[?25h\x1b[?1049l");
        let _ = std::io::stdout().flush();
    }
    failed?;
    followed.map_err(|e| Error::Usage(format!("{}: {e}", socket.display())))?;
    Ok(exit::OK)
}

fn only_run() -> Result<PathBuf, Error> {
    let mut runs = running().map_err(|e| Error::Usage(format!("runs cannot be listed: {e}")))?;
    match runs.len() {
        0 => Err(Error::Usage("no live run is under way here; start one with `punctual run`".into())),
        1 => Ok(runs.remove(0)),
        _ => {
            let names: Vec<String> = runs.iter().map(|run| run.display().to_string()).collect();
            Err(Error::Usage(format!("several runs are under way; name one: {}", names.join(", "))))
        }
    }
}

fn screen(now: &Snapshot, before: Option<&Snapshot>) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(out, "{}, {} s", now.host, now.elapsed_ns / 1_000_000_000);
    let elapsed = before.map_or(0, |before| now.elapsed_ns.saturating_sub(before.elapsed_ns));
    for (index, pool) in now.pools.iter().enumerate() {
        let cpus = punctual_live::preflight::list(&pool.processors);
        let share = fmt_share(pool.enforcers_ns, now.elapsed_ns.max(1) * pool.processors.len().max(1) as u64);
        let looks = fmt_count(pool.looks);
        let name = &pool.name;
        let _ = writeln!(out, "\n{name}: {} on {cpus}; enforcer {share}, {looks} looks", pool.policy);
        let _ = writeln!(
            out,
            "  {:<16} {:<8} {:>10} {:>10} {:<12} {:>7} {:>7} {:>11}",
            "vCPU", "state", "left", "budget", "", "use", "share", "exhausted"
        );
        for vcpu in now.vcpus.iter().filter(|vcpu| vcpu.pool == index) {
            let earlier = before.and_then(|before| before.vcpus.iter().find(|other| other.name == vcpu.name));
            let _ = writeln!(out, "{}", line(vcpu, earlier, elapsed));
        }
    }
    if !now.domains.is_empty() {
        let _ =
            writeln!(out, "\n  {:<16} {:>10} {:>10} {:>12}", "domain", "finished", "missed", "not told yet");
    }
    for DomainStatus { name, jobs } in &now.domains {
        let [finished, missed, untold] = [jobs.finished, jobs.missed, jobs.untold].map(fmt_count);
        let _ = writeln!(out, "  {name:<16} {finished:>10} {missed:>10} {untold:>12}");
    }
    out
}

fn line(vcpu: &VcpuStatus, before: Option<&VcpuStatus>, elapsed_ns: u64) -> String {
    let state = match vcpu.standing {
        Standing::Gone => "gone".into(),
        Standing::Parked => "parked".into(),
        Standing::Linux => "linux".into(),
        Standing::Rank(rank) => format!("rank {rank}"),
    };
    let time = |ns: Option<u64>| ns.map_or("-".into(), |ns| fmt_duration(Duration::from_ns(ns)));
    let bar = match (vcpu.left_ns, vcpu.budget_ns) {
        (Some(left), Some(budget)) if budget > 0 => {
            let filled = (u128::from(left) * 10 / u128::from(budget)).min(10) as usize;
            format!("[{}{}]", "#".repeat(filled), ".".repeat(10 - filled))
        }
        _ => String::new(),
    };
    let used = before.map_or(0, |before| vcpu.cpu_time_ns.saturating_sub(before.cpu_time_ns));
    let usage = if elapsed_ns > 0 { fmt_share(used, elapsed_ns) } else { "-".into() };
    let share = match (vcpu.budget_ns, vcpu.period_ns) {
        (Some(budget), Some(period)) if period > 0 => fmt_share(budget, period),
        _ => "-".into(),
    };
    format!(
        "  {:<16} {:<8} {:>10} {:>10} {:<12} {:>7} {:>7} {:>11}",
        vcpu.name,
        state,
        time(vcpu.left_ns),
        time(vcpu.budget_ns),
        bar,
        usage,
        share,
        fmt_count(vcpu.exhaustions)
    )
}
