//! `punctual why`: what a VM waited for, and because of whom.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use punctual_model::file::nearest;
use punctual_model::text::{printable, printable_lines};
use punctual_report::format::{fmt_count, fmt_ns, fmt_share};
use punctual_sched::Duration;
use punctual_service::client::{Client, ClientError};
use punctual_service::waits::{CauseView, KEPT_S, PartView, SourceView, StepView, WaitView, WhyView};
use serde_json::{Value, json};

use super::error::Error;
use super::exit;
use super::hints::{self, times};
use super::input::some_time;
use super::output::{Ui, wrapped};

/// Show what a VM waited for, and because of whom: another VM, its own helper threads, the kernel, another
/// process, a limit of its cgroup, a stop.
///
/// First the causes of all its threads in the last hour (or --last), then each vCPU since the VM was seen,
/// then the longest waits with their story: who had the processor, in order. The guest need not know of it,
/// and nothing is enforced for it. What is not known is called unknown. Needs a running `punctual serve`, and
/// root or the group `punctual`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual why relay-1\n  \
    punctual why relay-1 --last 5min                         the last minutes\n  \
    punctual why relay-1 --trace waits.json                  for https://ui.perfetto.dev\n  \
    punctual why relay-1 --json | jq '.worst[0].steps'")]
pub(super) struct Args {
    /// The VM, by its name or process.
    #[arg(value_name = "VM")]
    vm: String,
    /// How far to look back, at most an hour.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = last)]
    last: Duration,
    /// Write the longest waits to a file that Perfetto shows (Chrome's JSON format).
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// The directory that `punctual serve --run` names.
    #[arg(long, value_name = "DIRECTORY", default_value = "/run")]
    run: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Steps of a wait that are shown.
const STEPS_MAX: usize = 12;
/// Causes that are shown.
const CAUSES_MAX: usize = 20;

/// A time of at least 1 us and at most what the service keeps; `1h` is one too.
fn last(text: &str) -> Result<Duration, String> {
    let hours = text.trim().strip_suffix('h').and_then(|number| number.trim_end().parse::<u64>().ok());
    let asked = match hours {
        Some(hours @ 1..=24) => Duration::from_secs(hours * 3600),
        _ => some_time(text)?,
    };
    if asked > Duration::from_secs(KEPT_S) {
        return Err("expected at most 1h: what was before is not kept".into());
    }
    Ok(asked)
}

/// As people say it.
fn fmt_last(seconds: u64) -> String {
    match (seconds % 3600, seconds % 60) {
        (0, _) => format!("{} h", fmt_count(seconds / 3600)),
        (_, 0) => format!("{} min", fmt_count(seconds / 60)),
        _ => format!("{} s", fmt_count(seconds)),
    }
}

/// Runs `punctual why`.
pub(super) fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    let mut client = Client::connect(&args.run).map_err(Error::usage)?;
    let last_s = args.last.as_ns().div_ceil(1_000_000_000);
    let why = client.why(&args.vm, last_s).map_err(|error| with_nearest(&mut client, &args.vm, error))?;
    if let Some(path) = &args.trace {
        let text = trace(&why).to_string();
        let failure = |error| Error::usage(format!("cannot write {}: {error}", path.display()));
        std::fs::write(path, text).map_err(failure)?;
    }
    if args.json {
        ui.print_json(&why)?;
    } else {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        ui.print(printable_lines(&shown(&why, u64::try_from(now.as_micros()).unwrap_or(u64::MAX))))?;
    }
    Ok(exit::OK)
}

/// The error, with the name that was probably meant.
fn with_nearest(client: &mut Client, given: &str, error: ClientError) -> Error {
    let is_unknown = matches!(&error, ClientError::Refused { name, .. } if name.ends_with(".NoSuchActor"));
    let names = if is_unknown { client.list().unwrap_or_default() } else { Vec::new() };
    match nearest(given, names.iter().map(|actor| actor.name.as_str())) {
        Some(name) => Error::usage(format!("{error}; is it `{}`?", printable(&name))),
        None => Error::usage(error),
    }
}

fn shown(why: &WhyView, now_us: u64) -> String {
    let WhyView { name, process, source, causes, parts, worst, hints, .. } = why;
    let sum: u64 = causes.iter().map(|one| one.time_ns).sum();
    let time = fmt_ns(sum);
    let back = fmt_last(why.last_s);
    let mut out = format!("VM {name} (process {process}) waited for {time} in the last {back}\n");
    out += &wrapped("", "  ", &known_from(source));
    for one in causes.iter().take(CAUSES_MAX) {
        let share = fmt_share(one.time_ns, sum);
        out += &format!("  {:>10}  {share:>7}  {}\n", fmt_ns(one.time_ns), words(one));
    }
    if causes.len() > CAUSES_MAX {
        out += &format!("  and {} more: --json has all\n", fmt_count((causes.len() - CAUSES_MAX) as u64));
    }
    for part in parts.iter().filter(|part| part.wakeups > 0 || !part.causes.is_empty()) {
        out += &part_line(part);
    }
    if let Some(hints) = hints {
        out += &hints::shown(hints, parts, &back);
    }
    if !worst.is_empty() {
        out += "\nthe longest waits:\n";
    }
    for wait in worst {
        out += &wait_lines(wait, now_us);
    }
    out
}

/// Where waits are known from, and why that is no better source.
pub(super) fn known_from(source: &SourceView) -> String {
    let from = match source.source.as_str() {
        "bpf" => "known from programs in the kernel (BPF)",
        "tracepoints" => "known from the kernel's tracepoints",
        "switches" => "known from the kernel's records of switches",
        "samples" => "known from samples of the kernel's counters: shares, not stories",
        "off" => "not known: the configuration says waits = \"off\"",
        _ => "not known yet",
    };
    let why = source.reason.iter().map(|reason| format!("; {reason}"));
    let lost = (source.lost > 0).then(|| format!("; records were lost {} times", fmt_count(source.lost)));
    let line: String = std::iter::once(from.to_owned()).chain(why).chain(lost).collect();
    printable(&line).into_owned()
}

fn words(one: &CauseView) -> String {
    with_name(one.cause.words(), one.by.as_deref())
}

fn with_name(words: &str, by: Option<&str>) -> String {
    match by {
        Some(by) => format!("{words}: {by}"),
        None => words.to_owned(),
    }
}

fn who(role: &str, vcpu: Option<u32>) -> String {
    vcpu.map_or_else(|| role.to_owned(), |number| format!("vCPU {number}"))
}

fn part_line(part: &PartView) -> String {
    let waited: u64 = part.causes.iter().map(|one| one.time_ns).sum();
    let mut line = format!("{}: waited {}", who(&part.role, part.vcpu), fmt_ns(waited));
    if part.wakeups > 0 {
        let [p50, p99, max] = [part.latency_p50_ns, part.latency_p99_ns, part.latency_max_ns].map(fmt_ns);
        let wakeups = fmt_count(part.wakeups);
        line += &format!("; {wakeups} wake-ups, 50 % within {p50}, 99 % within {p99}, the longest {max}");
    }
    line + "\n"
}

fn wait_lines(wait: &WaitView, now_us: u64) -> String {
    let ago = fmt_ns(now_us.saturating_sub(wait.began_us).saturating_mul(1000));
    let began = if wait.was_woken { ", after a wake-up" } else { "" };
    let goes_on = if wait.is_open { ", and it goes on" } else { "" };
    let (who, time) = (who(&wait.role, wait.vcpu), fmt_ns(wait.time_ns));
    let mut out = format!("  {who}: {time}{began}, {ago} ago{goes_on}\n");
    for StepView { time_ns, processor, cause, by, .. } in wait.steps.iter().take(STEPS_MAX) {
        let place = processor.map_or_else(String::new, |number| format!(" (processor {number})"));
        let words = with_name(cause.words(), by.as_deref());
        out += &format!("    {:>10}  {words}{place}\n", fmt_ns(*time_ns));
    }
    if wait.steps.len() > STEPS_MAX {
        let more = fmt_count((wait.steps.len() - STEPS_MAX) as u64);
        out += &format!("    and {more} more steps: --json has all\n");
    }
    if wait.spins > 0 {
        let spun = times(wait.spins);
        let text = format!("meanwhile other vCPUs of the VM spun and left the guest {spun}");
        out += &wrapped("    ", "      ", &text);
    }
    if wait.yields > 0 {
        let asked = times(wait.yields);
        let text = format!("meanwhile its kernel asked KVM {asked} to run a vCPU that waits");
        out += &wrapped("    ", "      ", &text);
    }
    out
}

/// The longest waits in Chrome's trace format: a track for each vCPU or role.
fn trace(why: &WhyView) -> Value {
    let mut tracks: Vec<String> = Vec::new();
    let mut events = vec![json!({
        "ph": "M", "name": "process_name", "pid": why.process, "tid": 0, "args": { "name": why.name },
    })];
    for wait in &why.worst {
        let track = who(&wait.role, wait.vcpu);
        let number = tracks.iter().position(|known| *known == track).unwrap_or_else(|| {
            tracks.push(track.clone());
            let (pid, tid) = (why.process, tracks.len() - 1);
            let args = json!({ "name": track });
            events.push(json!({ "ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": args }));
            tid
        });
        let mut slice = |name: String, after_ns: u64, time_ns: u64, args: Value| {
            events.push(json!({
                "ph": "X", "name": name, "pid": why.process, "tid": number, "args": args,
                "ts": wait.began_us as f64 + after_ns as f64 / 1000.0, "dur": time_ns as f64 / 1000.0,
            }));
        };
        slice("waits".into(), 0, wait.time_ns, json!({ "after a wake-up": wait.was_woken }));
        for step in &wait.steps {
            if let Some(after_ns) = step.after_ns {
                let name = with_name(step.cause.words(), step.by.as_deref());
                let args = json!({ "cause": step.cause, "processor": step.processor });
                slice(name, after_ns, step.time_ns, args);
            }
        }
    }
    json!({ "displayTimeUnit": "ns", "traceEvents": events })
}

#[cfg(test)]
mod tests {
    use punctual_service::hints::HintsView;
    use punctual_service::waits::WaitCause;

    use super::*;

    fn why() -> WhyView {
        let step = |after_ns: Option<u64>, cause, by: Option<&str>| StepView {
            after_ns,
            time_ns: 2_000_000,
            processor: after_ns.map(|_| 3),
            cause,
            by: by.map(str::to_owned),
        };
        let cause =
            |cause, by: Option<&str>, time_ns| CauseView { cause, by: by.map(str::to_owned), time_ns };
        let other = Some("VM noisy\u{1b} vCPU 1");
        WhyView {
            name: "relay".into(),
            process: 70,
            source: SourceView { source: "switches".into(), reason: Some("no tracefs".into()), lost: 2 },
            last_s: 3600,
            causes: vec![
                cause(WaitCause::PreemptedByUnit, other, 6_000_000),
                cause(WaitCause::Throttled, None, 2_000_000),
            ],
            parts: vec![PartView {
                role: "vcpu".into(),
                vcpu: Some(0),
                causes: vec![cause(WaitCause::PreemptedByUnit, None, 6_000_000)],
                wakeups: 9,
                latency_p50_ns: 10_000,
                latency_p99_ns: 50_000,
                latency_max_ns: 40_000,
                ..PartView::default()
            }],
            worst: vec![WaitView {
                role: "vcpu".into(),
                vcpu: Some(0),
                began_us: 1_000_000,
                time_ns: 4_000_000,
                was_woken: true,
                is_open: false,
                yields: 12,
                spins: 1,
                steps: vec![
                    step(Some(0), WaitCause::PreemptedByUnit, other),
                    step(None, WaitCause::OtherThread, Some("make")),
                ],
            }],
            hints: Some(HintsView { reason: Some("KVM is not loaded".into()), ..HintsView::default() }),
        }
    }

    #[test]
    fn causes_come_first_then_vcpus_then_stories() {
        let lines = [
            "VM relay (process 70) waited for 8.00 ms in the last 1 h",
            "known from the kernel's records of switches; no tracefs; records were lost 2 times",
            "     6.00 ms   75.0 %  another VM: VM noisy\\u{1b} vCPU 1",
            "     2.00 ms   25.0 %  the limit of its cgroup",
            "vCPU 0: waited 6.00 ms; 9 wake-ups, 50 % within 10.0 us, 99 % within 50.0 us, the longest \
             40.0 us",
            "what KVM counts is not known: KVM is not loaded",
            "",
            "the longest waits:",
            "  vCPU 0: 4.00 ms, after a wake-up, 2.00 s ago",
            "       2.00 ms  another VM: VM noisy\\u{1b} vCPU 1 (processor 3)",
            "       2.00 ms  another process: make",
            "    meanwhile other vCPUs of the VM spun and left the guest 1 time",
            "    meanwhile its kernel asked KVM 12 times to run a vCPU that waits",
        ];
        let shown = shown(&why(), 3_000_000);
        assert_eq!(printable_lines(&shown).lines().collect::<Vec<_>>(), lines);
        assert_eq!([3600, 300, 61].map(fmt_last), ["1 h", "5 min", "61 s"]);
        assert_eq!([last("1h"), last("60min")], [3600, 3600].map(|s| Ok(Duration::from_secs(s))));
        assert!(["0h", "h", "2h", "61min"].iter().all(|text| last(text).is_err()));
    }

    #[test]
    fn the_trace_has_a_slice_for_each_step_in_us() {
        let trace = trace(&why());
        let events = trace["traceEvents"].as_array().expect("events");
        let slices: Vec<&Value> = events.iter().filter(|event| event["ph"] == "X").collect();
        assert_eq!(slices.len(), 2, "what has no place in time is not drawn: {trace}");
        assert_eq!((&slices[0]["ts"], &slices[0]["dur"]), (&json!(1_000_000.0), &json!(4000.0)));
        assert_eq!(slices[1]["name"], "another VM: VM noisy\u{1b} vCPU 1");
        assert_eq!(events[1]["args"]["name"], "vCPU 0");
    }
}
