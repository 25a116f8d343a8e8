//! `punctual host-stack`: the cards of a `[host_stack]`, on this machine, until it ends.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration as StdDuration, Instant};

use punctual_doctor::doctor::{self, Cpus, Findings, Root, Severity};
use punctual_doctor::host_stack::{CardPlan, plan};
use punctual_enforce::backend::Chosen;
use punctual_enforce::driver::Settings;
use punctual_enforce::enforcer::Observed;
use punctual_enforce::session::{CardSession, Setup};
use punctual_host_stack::HostStack;
use punctual_linux::os::sched::attributes;
use punctual_model::file::Overrides;
use punctual_model::text::printable;
use punctual_run::abandoned;
use punctual_sched::Duration;

use super::error::Error;
use super::input::{HostFile, some_time};
use super::live::{check_restored, plain_printer, restored};
use super::output::Ui;
use super::rights::{self, Needs};
use super::{exit, interrupt};

/// Configure this machine's network cards as the [host_stack] of a host file says, until Ctrl-C.
///
/// Routes each card's interrupts to its processors, sets the class and priority of its IRQ threads, switches
/// threaded NAPI on or off and sets the class and priority of those threads, disables RPS and adapts XPS.
/// Servers are not changed. Each setting is recorded before it is changed and restored however the command
/// ends. Then lists the priority inversions that remain. docs/host-stack.md explains the methods.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual host-stack host.toml --plan                     show the changes\n  \
    punctual host-stack host.toml                            until Ctrl-C\n  \
    punctual host-stack host.toml --set host_stack.method=threaded-napi --duration 60s")]
pub(super) struct Args {
    /// The host file; `-` reads standard input.
    #[arg(value_name = "HOST.toml")]
    file: PathBuf,
    /// Change a key of the host file; `*` matches every name. Repeat for more keys.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Show what would be changed, and change nothing.
    #[arg(long)]
    plan: bool,
    /// End after this long.
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    duration: Option<Duration>,
}

/// How often to look for threads that a driver has created.
const INTERVAL: StdDuration = StdDuration::from_secs(1);
/// How long the process may miss heartbeats before the guardian ends it.
const SILENCE: StdDuration = StdDuration::from_secs(5);

/// Runs `punctual host-stack`.
pub(super) fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    interrupt::install();
    let overrides = Overrides { set: args.set.clone(), ..Overrides::default() };
    let stack = HostFile::read(&args.file)?.host_stack(&overrides)?;
    let root = Root::new(Path::new("/"));
    let plan = plan(&stack, &root).map_err(Error::usage)?;
    if args.plan {
        ui.print(plan.iter().map(show).collect::<String>())?;
        return Ok(exit::OK);
    }
    rights::check("host-stack", Needs::Scheduling)?;
    interrupt::be_graceful();
    let events = plain_printer(ui);
    abandoned::undo_all(&events)?;
    let mut session = CardSession::start(setup(&stack)?, plan.clone()).map_err(Error::usage)?;
    let changed = session.changed().map_err(Error::usage)?;
    for (card, changed) in plan.iter().zip(&changed) {
        ui.print(show(card) + &show_threads(&changed.threads))?;
    }
    ui.print(inversions(&plan, &stack, root)?)?;
    hold(args, &mut session)?;
    let put_back = session.finish().map_err(Error::usage)?;
    ui.print(restored(&put_back) + "\n")?;
    check_restored([&put_back], Vec::new())?;
    Ok(exit::OK)
}

fn setup(stack: &HostStack) -> Result<Setup, Error> {
    let program = std::env::current_exe()
        .map_err(|e| Error::Usage(format!("cannot find the program's own executable: {e}")))?;
    Ok(Setup {
        name: stack.name.clone(),
        program,
        processors: Vec::new(),
        starve: true,
        lift_rt_limit: false,
        silence: SILENCE,
        end: interrupt::end_for_guardian,
        enforced_by: Chosen::default(),
        driver: Settings::default(),
        observed: Observed::default(),
    })
}

/// Waits until it is time to end.
fn hold(args: &Args, session: &mut CardSession) -> Result<(), Error> {
    let end = args.duration.map(|time| Instant::now() + StdDuration::from_nanos(time.as_ns()));
    while !interrupt::stopped() {
        let left = end.map_or(INTERVAL, |end| end.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return Ok(());
        }
        interrupt::wait(left.min(INTERVAL));
        session.tend().map_err(Error::usage)?;
    }
    Ok(())
}

/// A card with what is written for it.
fn show(card: &CardPlan) -> String {
    let mut text = format!("{} ({})", printable(&card.card), printable(&card.device));
    // Writing to a string cannot fail, here and below.
    let _ = match card.attributes {
        Some(wanted) if wanted.priority > 0 => {
            writeln!(text, ": its threads under {} {}", wanted.policy_name(), wanted.priority)
        }
        Some(wanted) => writeln!(text, ": its threads under {}", wanted.policy_name()),
        None => writeln!(text, ": without threads"),
    };
    if !card.poll_processors.is_empty() {
        let processors: Cpus = card.poll_processors.iter().copied().collect();
        let _ = writeln!(text, "  threads that poll it: on processors {processors}");
    }
    for write in &card.writes {
        let _ = writeln!(text, "  {} = {}", write.path, write.value);
    }
    text
}

fn show_threads(threads: &[(i32, String)]) -> String {
    let mut text = String::new();
    for (tid, name) in threads {
        let Ok(now) = attributes(*tid) else { continue };
        let _ = writeln!(text, "  thread {tid} {}: {} {}", printable(name), now.policy_name(), now.priority);
    }
    text
}

/// The doctor's checks that are about packets.
const CHECKS: [&str; 7] = ["irqs", "irq-threads", "napi", "ksoftirqd", "backlog", "softirq-lock", "rps"];

/// What the doctor finds on the processors of the cards that have a priority.
fn inversions(plan: &[CardPlan], stack: &HostStack, root: Root) -> Result<String, Error> {
    let urgent = stack.cards.iter().filter(|card| !card.priority.is_fair());
    let processors: Cpus =
        urgent.flat_map(|card| stack.processors_for(card.priority, &card.processors)).collect();
    if processors.is_empty() || plan.is_empty() {
        return Ok(String::new());
    }
    let mut text = format!("Inversions that remain on processors {processors}:\n");
    let Findings { findings, .. } = doctor::examine(root, Some(processors)).map_err(Error::usage)?;
    let none = text.len();
    for finding in findings.iter().filter(|finding| CHECKS.contains(&finding.id)) {
        if finding.severity != Severity::Ok {
            let _ = writeln!(text, "  {}: {}", finding.id, finding.summary);
        }
    }
    if text.len() == none {
        text.push_str("  none\n");
    }
    Ok(text)
}
