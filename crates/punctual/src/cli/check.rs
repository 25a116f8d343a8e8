//! `punctual check`: which deadlines are guaranteed, without running anything.

use std::fmt::Write as _;
use std::path::PathBuf;

use punctual_check::check_enforced;
use punctual_host_stack::bounds::{BoundPart, ResponseBound, response_bound};
use punctual_host_stack::inversions::inversions;
use punctual_host_stack::{HostStack, Load, Server};
use punctual_model::guarantees::{FlowGuarantee, Latency, Remedy, TaskGuarantee, Verdict};
use punctual_model::{AnyHost, Guarantees, Host};
use punctual_report::format::{fmt_duration, fmt_remedy};
use punctual_report::table;
use punctual_sched::Duration;
use serde::Serialize;

use super::error::Error;
use super::exit;
use super::input::{Changes, Costs, HostFile, some_time};
use super::output::{Ui, wrapped};

/// Tell which deadlines are guaranteed, without running anything.
///
/// A guarantee holds for every release pattern that the file permits. A refutation shows a release pattern
/// that misses the deadline. `unknown` means that the tests prove neither, and gives the reason. Flows over
/// networks get a bound on their latency, and chains of tasks a bound from end to end. Exit code 0: every
/// deadline of a task or chain is guaranteed; 1: at least one is not; 2: the command line or the file is
/// wrong. Of a host with events each mode is checked; none of the tests covers the time across a change, so
/// `--at` asks for one mode alone. docs/analysis.md explains the tests.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual check examples/five-vms.toml                    is it guaranteed, and with how much slack?\n  \
    punctual check examples/five-vms.toml --policy periodic --set 'domain.*.budget=9ms'\n  \
    punctual check host.toml --at 5s                         what the host is then, after its events\n  \
    punctual check host.toml --json | jq '.tasks[] | select(.verdict != \"guaranteed\")'")]
pub(super) struct Args {
    /// The host file; `-` reads standard input.
    #[arg(value_name = "HOST.toml")]
    file: PathBuf,
    /// Schedule every pool by this policy instead of the file's.
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,
    /// Warn of budgets that are short compared with the interval at which live enforcement checks them.
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    enforced_every: Option<Duration>,
    /// Of a host with events: check what the host is at this time of its run, and nothing else.
    #[arg(long, value_name = "TIME", value_parser = super::input::time)]
    at: Option<Duration>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    changes: Changes,
    #[command(flatten)]
    costs: Costs,
}

/// The verdict on a server of a Linux host's network stack.
#[derive(Serialize)]
struct ServerCheck {
    server: String,
    /// The response time at most.
    response_bound_ns: Option<u64>,
    /// What it consists of.
    parts: Vec<BoundPartCheck>,
    /// Why there is no bound.
    no_bound: Option<String>,
    /// Less urgent work that comes before its requests.
    inversions: Vec<String>,
}

/// A part of a bound.
#[derive(Serialize)]
struct BoundPartCheck {
    part: &'static str,
    time_ns: u64,
}

/// The response times of a Linux host's servers at most, and the inversions that they meet.
fn host_stack(stack: &HostStack, args: &Args, ui: &Ui) -> Result<u8, Error> {
    let requests = |server: &&Server| matches!(server.load, Load::Requests { .. });
    let of = |bound: ResponseBound, part: BoundPart| BoundPartCheck {
        part: part.name(),
        time_ns: bound.part(part).as_ns(),
    };
    let check = |server: &Server| {
        let bound = response_bound(stack, server);
        ServerCheck {
            server: server.name.clone(),
            response_bound_ns: bound.ok().map(|bound| bound.total().as_ns()),
            parts: bound
                .map_or_else(|_| Vec::new(), |bound| BoundPart::ALL.map(|part| of(bound, part)).into()),
            no_bound: bound.err().map(|reason| reason.to_string()),
            inversions: inversions(stack, server).iter().map(ToString::to_string).collect(),
        }
    };
    let checks: Vec<ServerCheck> = stack.servers.iter().filter(requests).map(check).collect();
    if args.json {
        ui.print_json(&checks)?;
    } else {
        ui.print(checks.iter().map(server_text).collect::<String>())?;
    }
    let bounded = checks.iter().all(|check| check.no_bound.is_none());
    Ok(if bounded { exit::OK } else { exit::MISSED })
}

fn server_text(check: &ServerCheck) -> String {
    let bound = check.response_bound_ns.map(Duration::from_ns);
    let mut text = match (bound, &check.no_bound) {
        (Some(bound), _) => format!("{}: answers within {}\n", check.server, fmt_duration(bound)),
        (None, reason) => {
            format!("{}: no bound: {}\n", check.server, reason.as_deref().unwrap_or_default())
        }
    };
    for part in check.parts.iter().filter(|part| part.time_ns > 0) {
        let time = Duration::from_ns(part.time_ns);
        text += &format!("  {:<21} {}\n", part.part, fmt_duration(time));
    }
    check.inversions.iter().for_each(|one| text += &format!("  inversion: {one}\n"));
    text
}

/// Runs `punctual check`.
pub(super) fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    match HostFile::read(&args.file)?.any_host(&args.costs.overrides(&args.changes, args.policy.clone()))? {
        AnyHost::Pools(host) => pools(&host, args, ui),
        AnyHost::Stack(stack) => host_stack(&stack, args, ui),
    }
}

/// Which deadlines of a host with pools are guaranteed.
fn pools(host: &Host, args: &Args, ui: &Ui) -> Result<u8, Error> {
    let mode = args.at.and_then(|at| host.modes().into_iter().rfind(|mode| mode.from <= at));
    let guarantees = check_enforced(mode.as_ref().map_or(host, |mode| &mode.host), args.enforced_every);
    if args.json {
        ui.print_json(&guarantees)?;
    } else if guarantees.modes.is_empty() {
        ui.print(text(&guarantees, ui.stdout_has_colour()))?;
    } else {
        ui.print(modes_text(&guarantees, ui.stdout_has_colour()))?;
    }
    Ok(if guarantees.all_guaranteed() { exit::OK } else { exit::MISSED })
}

/// What holds in each mode of a host with events.
fn modes_text(guarantees: &Guarantees, colour: bool) -> String {
    let about = "This host changes while it runs. Each of its modes is checked as if it had always been \
                 so; no test covers the time across a change.";
    let mut out = format!("{}\n{}", guarantees.host, wrapped("", "", about));
    for mode in &guarantees.modes {
        let begins = match mode.from_ns {
            0 => "From the beginning".to_owned(),
            from_ns => format!("From {} on", time(from_ns)),
        };
        let names = mode.events.join(", ");
        let names = if names.is_empty() { names } else { format!(" ({names})") };
        let inner = Guarantees { host: format!("{begins}{names}"), ..mode.guarantees.clone() };
        out += &format!("\n{}", text(&inner, colour));
    }
    out
}

fn text(guarantees: &Guarantees, colour: bool) -> String {
    let mut out = summary(guarantees) + "\n";
    let mut rest = guarantees.tasks.as_slice();
    while let Some(first) = rest.first() {
        // The tasks of one parent stand together.
        let len = rest.iter().take_while(|task| task.parent == first.parent).count();
        let (tasks, others) = rest.split_at(len);
        out += &tasks_of(&first.parent, tasks, colour);
        out.push('\n');
        rest = others;
    }
    if !guarantees.vcpus.is_empty() {
        out += &budgets(guarantees, colour);
        out.push('\n');
    }
    for part in [flows(guarantees, colour), chains(guarantees, colour)].into_iter().flatten() {
        out += &part;
        out.push('\n');
    }
    if !guarantees.remedies.is_empty() {
        out += &remedies(guarantees);
        out.push('\n');
    }
    for warning in &guarantees.warnings {
        out += &wrapped("", "  ", &format!("warning: {}: {}", warning.about, warning.text));
    }
    out.truncate(out.trim_end().len());
    out + "\n"
}

fn summary(guarantees: &Guarantees) -> String {
    let guaranteed = guarantees.tasks.iter().filter(|task| task.verdict.is_guaranteed()).count();
    let refuted = guarantees.tasks.iter().filter(|task| task.verdict.is_refuted()).count();
    let total = guarantees.tasks.len();
    let with_deadline = guarantees.flows.iter().filter(|flow| flow.deadline_ns.is_some());
    let (held, flows) = with_deadline
        .fold((0, 0), |(held, flows), flow| (held + usize::from(flow.is_guaranteed()), flows + 1));
    let mut text = format!("{}\n", guarantees.host);
    // Writing to a string cannot fail, here and below.
    let _ = match total - guaranteed {
        0 if total == 0 => writeln!(text, "No task has a deadline."),
        0 if held < flows => writeln!(text, "{total} of {total} tasks are guaranteed."),
        0 => writeln!(text, "Every deadline is guaranteed: {total} tasks."),
        open => writeln!(
            text,
            "{guaranteed} of {total} tasks are guaranteed; {refuted} are not, {} unknown.",
            open - refuted
        ),
    };
    if flows > 0 {
        let _ = writeln!(text, "{held} of {flows} flows with a deadline are guaranteed.");
    }
    if !guarantees.chains.is_empty() {
        let held = guarantees.chains.iter().filter(|chain| chain.verdict.is_guaranteed()).count();
        let _ = writeln!(text, "{held} of {} chains are guaranteed.", guarantees.chains.len());
    }
    text
}

fn time(ns: u64) -> String {
    fmt_duration(Duration::from_ns(ns))
}

/// Verdict, bound and slack for a table.
fn cells(verdict: &Verdict) -> [String; 3] {
    match verdict {
        Verdict::Guaranteed { bound_ns, slack_ns } => ["guaranteed".into(), time(*bound_ns), time(*slack_ns)],
        Verdict::NotGuaranteed { .. } => ["not guaranteed".into(), "-".into(), "-".into()],
        Verdict::Unknown { .. } => ["unknown".into(), "-".into(), "-".into()],
    }
}

fn tasks_of(parent: &str, tasks: &[TaskGuarantee], colour: bool) -> String {
    let row = |task: &TaskGuarantee| {
        let [verdict, bound, slack] = cells(&task.verdict);
        let dominant = task.dominant.filter(|_| task.verdict.is_guaranteed()).map_or("-", |d| d.text());
        vec![verdict, bound, time(task.deadline_ns), slack, dominant.into()]
    };
    let names: Vec<&str> = tasks.iter().map(|task| task.name.as_str()).collect();
    let rows: Vec<_> = tasks.iter().map(row).collect();
    let why = tasks.iter().filter_map(|task| Some((reason(&task.verdict)?, task.name.as_str())));
    let columns = ["verdict", "bound", "deadline", "slack", "mostly"];
    table::matrix(parent, &names, &columns, &rows, colour) + &once_each(why)
}

/// Why there is no guarantee, if there is none.
fn reason(verdict: &Verdict) -> Option<String> {
    match verdict {
        Verdict::Guaranteed { .. } => None,
        Verdict::Unknown { why } => Some(format!("unknown: {why}")),
        Verdict::NotGuaranteed { counter_example } => {
            let at = time(counter_example.missed_by_ns);
            let late = counter_example.late_min_ns.map(|late| format!(" by at least {}", time(late)));
            let late = late.unwrap_or_default();
            Some(format!("misses the deadline at {at}{late}, with {}", counter_example.pattern))
        }
    }
}

/// Each reason once, with all that it is about.
fn once_each<'n>(all: impl IntoIterator<Item = (String, &'n str)>) -> String {
    let mut reasons: Vec<(String, Vec<&str>)> = Vec::new();
    for (reason, name) in all {
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, names)) => names.push(name),
            None => reasons.push((reason, vec![name])),
        }
    }
    reasons
        .iter()
        .map(|(reason, names)| wrapped("  ", "    ", &format!("{}: {reason}", ranges(names).join(", "))))
        .collect()
}

/// The names, with `sv-1 to sv-64` for three or more in a row that differ in their numbers alone: `copies`.
fn ranges(names: &[&str]) -> Vec<String> {
    let numbered = |name: &str| {
        let (stem, number) = name.rsplit_once('-')?;
        Some((stem.to_owned(), number.parse::<u32>().ok()?))
    };
    let follows = |pair: &[&str]| match (numbered(pair[0]), numbered(pair[1])) {
        (Some(first), Some(second)) => (first.0, first.1.checked_add(1)) == (second.0, Some(second.1)),
        _ => false,
    };
    let mut shown = Vec::new();
    let mut rest = names;
    while let [first, ..] = rest {
        let length = 1 + rest.windows(2).take_while(|pair| follows(pair)).count();
        let (row, others) = rest.split_at(length);
        match row {
            [.., last] if length > 2 => shown.push(format!("{first} to {last}")),
            _ => shown.extend(row.iter().map(|name| (*name).to_owned())),
        }
        rest = others;
    }
    shown
}

fn budgets(guarantees: &Guarantees, colour: bool) -> String {
    let names: Vec<&str> = guarantees.vcpus.iter().map(|vcpu| vcpu.name.as_str()).collect();
    let rows: Vec<_> = guarantees
        .vcpus
        .iter()
        .map(|vcpu| {
            let [verdict, bound, slack] = cells(&vcpu.verdict);
            vec![verdict, bound, time(vcpu.period_ns), slack]
        })
        .collect();
    let columns = ["budget in every period", "within", "period", "slack"];
    let mut text = table::matrix("vCPUs", &names, &columns, &rows, colour);
    for vcpu in &guarantees.vcpus {
        let why = match &vcpu.verdict {
            Verdict::Guaranteed { .. } => continue,
            Verdict::Unknown { why } => why.clone(),
            Verdict::NotGuaranteed { counter_example } => {
                let by = time(counter_example.missed_by_ns);
                let short = counter_example.short_ns.map(|short| format!("{} of it ", time(short)));
                format!("{}not delivered by {by} with {}", short.unwrap_or_default(), counter_example.pattern)
            }
        };
        text += &wrapped("  ", "    ", &format!("{}: {why}", vcpu.name));
    }
    text
}

/// Budgets that would settle what is open, each by itself.
fn remedies(guarantees: &Guarantees) -> String {
    let line = |remedy: &Remedy| wrapped("  ", "    ", &format!("{}: {}", remedy.vcpu, fmt_remedy(remedy)));
    let each = if guarantees.remedies.len() > 1 { ", each by itself" } else { "" };
    let lines: String = guarantees.remedies.iter().map(line).collect();
    format!("What would help{each}\n{lines}")
}

fn flows(guarantees: &Guarantees, colour: bool) -> Option<String> {
    let names: Vec<&str> = guarantees.flows.iter().map(|flow| flow.name.as_str()).collect();
    let has_deadlines = guarantees.flows.iter().any(|flow| flow.deadline_ns.is_some());
    let mut rows = Vec::new();
    let mut why = Vec::new();
    for flow in &guarantees.flows {
        let within = match &flow.latency {
            Latency::Bounded { bound_ns } => time(*bound_ns),
            Latency::Unknown { why: reason } => {
                why.push((format!("unknown: {reason}"), flow.name.as_str()));
                "unknown".into()
            }
        };
        let way = if flow.round_trip { "there and back" } else { "one way" };
        let mut row = vec![flow.kind.clone(), way.into(), within];
        if has_deadlines {
            row.push(flow.deadline_ns.map_or_else(|| "-".into(), time));
            row.push(flow.deadline_ns.map_or_else(|| "-".into(), |_| held(flow).into()));
        }
        rows.push(row);
    }
    let columns: &[&str] = &["kind", "latency", "at most", "deadline", "verdict"];
    let columns = if has_deadlines { columns } else { &columns[..3] };
    (!rows.is_empty()).then(|| table::matrix("Flows", &names, columns, &rows, colour) + &once_each(why))
}

/// What a flow with a deadline is told: nothing refutes a flow.
fn held(flow: &FlowGuarantee) -> &'static str {
    if flow.is_guaranteed() { "guaranteed" } else { "unknown" }
}

fn chains(guarantees: &Guarantees, colour: bool) -> Option<String> {
    let names: Vec<&str> = guarantees.chains.iter().map(|chain| chain.name.as_str()).collect();
    let mut rows = Vec::new();
    let mut why = Vec::new();
    for chain in &guarantees.chains {
        let [verdict, bound, slack] = cells(&chain.verdict);
        rows.push(vec![verdict, bound, time(chain.deadline_ns), slack]);
        why.extend(reason(&chain.verdict).map(|reason| (reason, chain.name.as_str())));
    }
    let columns = ["verdict", "bound", "deadline", "slack"];
    (!rows.is_empty()).then(|| table::matrix("Chains", &names, &columns, &rows, colour) + &once_each(why))
}
