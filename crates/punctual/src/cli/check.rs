//! `punctual check`: which deadlines are guaranteed, without running anything.

use std::fmt::Write as _;
use std::path::PathBuf;

use punctual_analysis::{Report, TaskReport, Verdict, analyse, of_enforcement};
use punctual_report::format::fmt_duration;
use punctual_report::table::{self, WIDTH};
use punctual_sched::Duration;

use super::input::{Changes, HostFile};
use super::output::Ui;
use super::{Failure, exit};

/// Say which deadlines are guaranteed, without running anything.
///
/// A guarantee holds for every release pattern that the file permits. What is not guaranteed comes with a release
/// pattern that misses the deadline; `unknown` means that the tests decide neither, and why. Exit code 0: every deadline
/// is guaranteed, 1: not, 2: the command line or the file is wrong. docs/analysis.md explains the tests.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual check examples/five-vms.toml                    is it guaranteed, and with how much slack?\n  \
    punctual check examples/five-vms.toml --policy periodic --set 'domain.*.budget=9ms'\n  \
    punctual check host.toml --json | jq '.tasks[] | select(.verdict != \"guaranteed\")'")]
pub struct Args {
    /// The host file; `-` reads standard input.
    #[arg(value_name = "HOST.toml")]
    file: PathBuf,
    /// Schedule every pool by this policy instead of the file's.
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,
    /// Warn of budgets that are short beside the time between two looks at them in live enforcement.
    #[arg(long, value_name = "TIME", value_parser = super::synthesize::time)]
    enforced_every: Option<Duration>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    changes: Changes,
}

/// Runs `punctual check`.
pub fn run(args: &Args, ui: &Ui) -> Result<u8, Failure> {
    let host = HostFile::read(&args.file)?.host(&args.changes.overrides(args.policy.clone()))?;
    let mut report = analyse(&host);
    report.warnings.extend(args.enforced_every.into_iter().flat_map(|every| of_enforcement(&host, every)));
    if args.json {
        ui.print_json(&report)?;
    } else {
        ui.print(text(&report, ui.stdout_has_colour()))?;
    }
    Ok(if report.all_guaranteed() { exit::OK } else { exit::MISSED })
}

fn text(report: &Report, colour: bool) -> String {
    let mut out = summary(report) + "\n";
    let mut rest = report.tasks.as_slice();
    while let Some(first) = rest.first() {
        // The tasks of one parent stand together.
        let len = rest.iter().take_while(|task| task.parent == first.parent).count();
        let (tasks, others) = rest.split_at(len);
        out += &tasks_of(&first.parent, tasks, colour);
        out.push('\n');
        rest = others;
    }
    if !report.vcpus.is_empty() {
        out += &budgets(report, colour);
        out.push('\n');
    }
    for warning in &report.warnings {
        out += &wrapped("", &format!("warning: {}: {}", warning.about, warning.text));
    }
    out.truncate(out.trim_end().len());
    out + "\n"
}

fn summary(report: &Report) -> String {
    let guaranteed = report.tasks.iter().filter(|task| task.verdict.is_guaranteed()).count();
    let refuted =
        report.tasks.iter().filter(|task| matches!(task.verdict, Verdict::NotGuaranteed { .. })).count();
    let total = report.tasks.len();
    let mut text = format!("{}\n", report.host);
    // Writing to a string cannot fail, here and below.
    let _ = match total - guaranteed {
        0 if total == 0 => writeln!(text, "No task has a deadline."),
        0 => writeln!(text, "Every deadline is guaranteed: {total} tasks."),
        open => writeln!(
            text,
            "{guaranteed} of {total} tasks are guaranteed; {refuted} are not, {} unknown.",
            open - refuted
        ),
    };
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

fn tasks_of(parent: &str, tasks: &[TaskReport], colour: bool) -> String {
    let row = |task: &TaskReport| {
        let [verdict, bound, slack] = cells(&task.verdict);
        let dominant = task.dominant.filter(|_| task.verdict.is_guaranteed()).map_or("-", |d| d.text());
        vec![verdict, bound, time(task.deadline_ns), slack, dominant.into()]
    };
    let names: Vec<&str> = tasks.iter().map(|task| task.name.as_str()).collect();
    let rows: Vec<_> = tasks.iter().map(row).collect();
    let columns = ["verdict", "bound", "deadline", "slack", "mostly"];
    table::matrix(parent, &names, &columns, &rows, colour) + &reasons(tasks)
}

/// Why tasks are not guaranteed, each reason once.
fn reasons(tasks: &[TaskReport]) -> String {
    let mut reasons: Vec<(String, Vec<&str>)> = Vec::new();
    for task in tasks {
        let reason = match &task.verdict {
            Verdict::Guaranteed { .. } => continue,
            Verdict::Unknown { why } => format!("unknown: {why}"),
            Verdict::NotGuaranteed { counter_example } => {
                let by = time(counter_example.missed_by_ns);
                format!("misses by {by} with {}", counter_example.pattern)
            }
        };
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, names)) => names.push(&task.name),
            None => reasons.push((reason, vec![&task.name])),
        }
    }
    reasons.iter().map(|(reason, names)| wrapped("  ", &format!("{}: {reason}", names.join(", ")))).collect()
}

fn budgets(report: &Report, colour: bool) -> String {
    let names: Vec<&str> = report.vcpus.iter().map(|vcpu| vcpu.name.as_str()).collect();
    let rows: Vec<_> = report
        .vcpus
        .iter()
        .map(|vcpu| {
            let [verdict, bound, slack] = cells(&vcpu.verdict);
            vec![verdict, bound, time(vcpu.period_ns), slack]
        })
        .collect();
    let columns = ["budget in every period", "within", "period", "slack"];
    let mut text = table::matrix("vCPUs", &names, &columns, &rows, colour);
    for vcpu in &report.vcpus {
        let why = match &vcpu.verdict {
            Verdict::Guaranteed { .. } => continue,
            Verdict::Unknown { why } => why.clone(),
            Verdict::NotGuaranteed { counter_example } => {
                let by = time(counter_example.missed_by_ns);
                format!("not delivered by {by} with {}", counter_example.pattern)
            }
        };
        text += &wrapped("  ", &format!("{}: {why}", vcpu.name));
    }
    text
}

/// Lines of at most [`WIDTH`], the later ones indented a little more.
pub(super) fn wrapped(indent: &str, text: &str) -> String {
    let hanging = format!("{indent}  ");
    let options = textwrap::Options::new(WIDTH)
        .initial_indent(indent)
        .subsequent_indent(&hanging)
        .word_splitter(textwrap::WordSplitter::NoHyphenation);
    textwrap::fill(text, options) + "\n"
}
