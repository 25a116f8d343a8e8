//! `punctual top`: a live run, or a switch, watched.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::path::PathBuf;

use punctual_model::text::printable_lines;
use punctual_report::format::{fmt_count, fmt_duration, fmt_share};
use punctual_report::table::table_width;
use punctual_run::status::{
    DomainStatus, PlaneStatus, PortStatus, Snapshot, SocketsStatus, Standing, VcpuStatus, follow, running,
};
use punctual_run::switch::control::Client;
use punctual_run::switch::watch;
use punctual_sched::Duration;

use super::error::Error;
use super::output::Ui;
use super::rights::{self, Needs};
use super::{exit, interrupt};

/// Watch a live run: pools, vCPUs, budgets, use, states, missed deadlines.
///
/// Shows the run on this machine, about every 100 ms, until it ends or Ctrl-C. "delivered" is the share of
/// periods in which a vCPU got its whole budget or did not want more, "without" the longest time that it was
/// ready and had no processor, and "wait p99" how long it waited for the processor each time. These cover the
/// time under enforcement up to half a second ago and need no help from the guest. Guests report finished
/// jobs about once a second; jobs that became due after the last report are shown as "not told yet". Every
/// user can watch a run; only root can change it.
///
/// Without a run it shows the ports and planes of each `punctual switch` of this user, twice a second.
/// "queued" counts frames that wait in a VM's ring or in the switch, and "p99" is the time inside the switch.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual top\n  \
    punctual top --json | jq '.vcpus[] | select(.standing == \"parked\")'\n  \
    punctual top --once\n  \
    punctual switch host.toml & punctual top                 its ports")]
pub(super) struct Args {
    /// The socket of a run, if there are several runs, or the directory of a switch's sockets.
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
pub(super) fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    let watched = Watched::of(args)?;
    interrupt::install();
    interrupt::be_graceful();
    let redraw = !args.json && !args.once && std::io::stdout().is_terminal();
    let mut before: Option<Snapshot> = None;
    let mut failed = Ok(());
    let (mut shown, is_slow) = (0u64, matches!(watched, Watched::Switches(_)));
    if redraw {
        // The alternate screen; left again below, so no trace stays.
        ui.print("\x1b[?1049h\x1b[?25l")?;
    }
    let followed = watched.follow(|snapshot| {
        let text = if args.json {
            serde_json::to_string(&snapshot).map(|line| line + "\n").unwrap_or_default()
        } else {
            printable_lines(&screen(&snapshot, before.as_ref())).into_owned()
        };
        // Twenty snapshots a second are more than eyes need.
        let due = args.json || args.once || is_slow || shown.is_multiple_of(2);
        shown += 1;
        if args.once && !args.json && before.is_none() {
            // The use of a processor is seen between two snapshots.
            before = Some(snapshot);
            return !interrupt::stopped();
        }
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
    followed?;
    if let Some(only) = before.filter(|_| args.once && !args.json && shown == 1) {
        // The run ended before a second one.
        ui.print(printable_lines(&screen(&only, None)))?;
    }
    Ok(exit::OK)
}

/// What is shown.
enum Watched {
    /// A run, by its socket.
    Run(PathBuf),
    /// Switches that work without a run.
    Switches(Vec<Client>),
}

impl Watched {
    fn of(args: &Args) -> Result<Watched, Error> {
        if let Some(path) = &args.run {
            return if path.is_dir() {
                Client::in_directory(path).map(|client| Watched::Switches(vec![client])).map_err(|e| {
                    Error::Usage(format!("no switch has its sockets in {}: {e}", path.display()))
                })
            } else {
                Ok(Watched::Run(path.clone()))
            };
        }
        let no_list = |e| Error::Usage(format!("cannot list runs: {e}"));
        let mut runs = running().map_err(no_list)?;
        match runs.len() {
            0 => {
                // A run shows itself to everybody, a switch to its user.
                rights::check("no live run is active here; for switches top", Needs::State)?;
                let switches = Client::running().map_err(no_list)?;
                let none = "no live run and no switch is active here; start one with `punctual run`";
                if switches.is_empty() {
                    Err(Error::Usage(none.into()))
                } else {
                    Ok(Watched::Switches(switches))
                }
            }
            1 => Ok(Watched::Run(runs.remove(0))),
            _ => {
                let names: Vec<String> = runs.iter().map(|run| run.display().to_string()).collect();
                Err(Error::Usage(format!("several runs are active; name one: {}", names.join(", "))))
            }
        }
    }

    fn follow(&self, each: impl FnMut(Snapshot) -> bool) -> Result<(), Error> {
        match self {
            Watched::Run(socket) => {
                follow(socket, each).map_err(|e| Error::Usage(format!("{}: {e}", socket.display())))
            }
            Watched::Switches(switches) => {
                watch::follow(switches, interrupt::stopped, each);
                Ok(())
            }
        }
    }
}

fn screen(now: &Snapshot, before: Option<&Snapshot>) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(out, "{}, {} s", now.host, now.elapsed_ns / 1_000_000_000);
    let elapsed = before.map_or(0, |before| now.elapsed_ns.saturating_sub(before.elapsed_ns));
    for (index, pool) in now.pools.iter().enumerate() {
        let cpus = punctual_linux::preflight::list(&pool.processors);
        let share = fmt_share(pool.enforcers_ns, now.elapsed_ns.max(1) * pool.processors.len().max(1) as u64);
        let looks = fmt_count(pool.looks);
        let name = &pool.name;
        let _ = writeln!(out, "\n{name}: {} on {cpus}; enforcer {share}, {looks} looks", pool.policy);
        let earlier = |vcpu: &VcpuStatus| before?.vcpus.iter().find(|other| other.name == vcpu.name);
        let of_pool = now.vcpus.iter().filter(|vcpu| vcpu.pool == index);
        let rows: Vec<_> = of_pool.map(|vcpu| cells(vcpu, earlier(vcpu), elapsed)).collect();
        out += &table(&COLUMNS.map(String::from), &rows);
    }
    if !now.domains.is_empty() {
        let row = |DomainStatus { name, jobs }: &DomainStatus| {
            let [finished, missed, untold] = [jobs.finished, jobs.missed, jobs.untold].map(fmt_count);
            [name.clone(), finished, missed, untold]
        };
        let rows: Vec<_> = now.domains.iter().map(row).collect();
        let heads = ["domain", "finished", "missed", "not told yet"];
        let _ = write!(out, "\n{}", table(&heads.map(String::from), &rows));
    }
    if !now.ports.is_empty() {
        let rows: Vec<_> = now.ports.iter().map(port_cells).collect();
        let _ = write!(out, "\n{}", table(&PORT_COLUMNS.map(String::from), &rows));
    }
    if !now.sockets.is_empty() {
        let rows: Vec<_> = now.sockets.iter().map(sockets_cells).collect();
        let _ = write!(out, "\n{}", table(&SOCKETS_COLUMNS.map(String::from), &rows));
    }
    if !now.planes.is_empty() {
        let rows: Vec<_> = now.planes.iter().map(plane_cells).collect();
        let _ = write!(out, "\n{}", table(&PLANE_COLUMNS.map(String::from), &rows));
    }
    out
}

/// What is shown of a port.
const PORT_COLUMNS: [&str; 8] =
    ["port", "network", "sent", "sent/s", "received/s", "queued", "p99", "dropped"];

fn port_cells(port: &PortStatus) -> [String; PORT_COLUMNS.len()] {
    let reasons = port.dropped.by_reason().into_iter().filter(|(_, count)| *count > 0);
    let reasons: Vec<String> =
        reasons.map(|(reason, count)| format!("{reason} {}", fmt_count(count))).collect();
    [
        port.name.clone(),
        port.network.clone(),
        fmt_count(port.sent),
        fmt_count(port.sent_per_s),
        fmt_count(port.received_per_s),
        fmt_count(port.queued),
        fmt_duration(Duration::from_ns(port.latency_p99_ns)),
        if reasons.is_empty() { "0".into() } else { reasons.join(", ") },
    ]
}

/// What is shown of a guest's sockets.
const SOCKETS_COLUMNS: [&str; 8] =
    ["sockets of", "most", "calls", "calls/s", "sent KiB", "received KiB", "interrupts", "refused"];

fn sockets_cells(sockets: &SocketsStatus) -> [String; SOCKETS_COLUMNS.len()] {
    let counts = [
        sockets.sockets_most,
        sockets.calls,
        sockets.calls_per_s,
        sockets.sent_bytes / 1024,
        sockets.received_bytes / 1024,
        sockets.interrupts,
        sockets.refused,
    ];
    let mut cells = std::array::from_fn(|_| String::new());
    cells[0] = sockets.name.clone();
    for (cell, count) in cells[1..].iter_mut().zip(counts) {
        *cell = fmt_count(count);
    }
    cells
}

/// What is shown of a plane.
const PLANE_COLUMNS: [&str; 6] = ["plane", "network", "packets", "use", "share", "exhausted"];

fn plane_cells(plane: &PlaneStatus) -> [String; PLANE_COLUMNS.len()] {
    let share = plane.budget_ns.zip(plane.period_ns).filter(|(_, period)| *period > 0);
    [
        plane.name.clone(),
        plane.network.clone(),
        fmt_count(plane.packets),
        fmt_share(plane.processor_ns_per_s, 1_000_000_000),
        share.map_or("-".into(), |(budget, period)| fmt_share(budget, period)),
        fmt_count(plane.exhaustions),
    ]
}

/// What is shown of a vCPU.
const COLUMNS: [&str; 11] =
    ["vCPU", "state", "left", "budget", "", "use", "share", "exhausted", "delivered", "without", "wait p99"];

/// Narrower columns would change their width from one snapshot to the next.
const WIDTH_MIN: usize = 8;
/// Blanks before each column.
const GAP: usize = 2;

/// Rows below their heads, names at the left. Columns beyond the terminal's width are a table below, with the
/// names again.
fn table<const N: usize>(heads: &[String; N], rows: &[[String; N]]) -> String {
    let all = || std::iter::once(heads).chain(rows);
    let width = |column: usize| all().map(|row| row[column].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or(0).max(WIDTH_MIN) + GAP);
    let (mut out, mut start, room) = (String::new(), 1, table_width());
    while start < N {
        let fits = |end: &usize| widths[0] + widths[start..*end].iter().sum::<usize>() <= room;
        let end = (start + 1..=N).take_while(fits).last().unwrap_or(start + 1);
        for row in all() {
            let name = widths[0] - GAP;
            // Writing to a string cannot fail.
            let _ = write!(out, "  {:<name$}", row[0]);
            for (cell, width) in row[start..end].iter().zip(&widths[start..end]) {
                let _ = write!(out, "{cell:>width$}");
            }
            out.push('\n');
        }
        start = end;
    }
    out
}

fn cells(vcpu: &VcpuStatus, before: Option<&VcpuStatus>, elapsed_ns: u64) -> [String; COLUMNS.len()] {
    let state = match vcpu.standing {
        Standing::Gone => "gone".into(),
        Standing::Parked => "parked".into(),
        Standing::Linux => "linux".into(),
        Standing::GivenUp => "given up".into(),
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
    let part = |part, whole| if whole > 0 { fmt_share(part, whole) } else { "-".into() };
    let used = before.map_or(0, |before| vcpu.cpu_time_ns.saturating_sub(before.cpu_time_ns));
    let delivery = vcpu.delivery;
    [
        vcpu.name.clone(),
        state,
        time(vcpu.left_ns),
        time(vcpu.budget_ns),
        bar,
        part(used, elapsed_ns),
        part(vcpu.budget_ns.unwrap_or(0), vcpu.budget_ns.and(vcpu.period_ns).unwrap_or(0)),
        fmt_count(vcpu.exhaustions),
        delivery.map_or("-".into(), |of| part(of.delivered, of.periods)),
        time(delivery.map(|of| of.longest_without_ns)),
        time(delivery.map(|of| of.wait_p99_ns)),
    ]
}
