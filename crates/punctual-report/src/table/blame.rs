//! Why jobs were late, and what else processors did.

use punctual_model::Results;
use punctual_model::results::{
    BlameSum, Delivery, HostTimes, JobBlame, ProcessorResult, TaskBlame, TaskResult, VcpuResult,
};

use super::cells::task_name;
use super::layout::{RED, Row, Value, blocks, lines, section};
use crate::disturbance::{by_cause, cause};
use crate::format::{fmt_count, fmt_ns, fmt_share};

/// How many causes of a job are named.
const NAMED: usize = 3;
/// How many jobs and tasks a table has at most.
const ROWS_MAX: usize = 10;

/// Why jobs of the worst tasks took as long as they did, and the ten worst jobs; empty where that was not
/// measured.
pub fn blame(results: &Results, colour: bool) -> String {
    let mut tasks: Vec<(&TaskResult, &TaskBlame)> =
        results.tasks.iter().filter_map(|task| Some((task, task.blame.as_ref()?))).collect();
    if tasks.is_empty() {
        return String::new();
    }
    tasks.sort_by_key(|(task, blame)| {
        (std::cmp::Reverse(task.jobs.miss_ppm()), std::cmp::Reverse(blame.slowest.response_ns))
    });
    tasks.truncate(ROWS_MAX);
    section("Why late: parts of the response times", &parts(&tasks, colour), colour)
        + "\n"
        + &section("Why late: the worst jobs", &worst_jobs(&tasks, colour), colour)
}

/// A column for each group of jobs, a row for each cause that one of them has.
fn parts(tasks: &[(&TaskResult, &TaskBlame)], colour: bool) -> String {
    let groups: Vec<(String, &BlameSum)> = tasks
        .iter()
        .map(|(task, blame)| match blame.late.jobs {
            0 => (format!("{} slowest", task_name(task)), &blame.slowest),
            _ => (format!("{} late", task_name(task)), &blame.late),
        })
        .collect();
    let labels: Vec<&str> = groups.iter().map(|(label, _)| label.as_str()).collect();
    let jobs = groups.iter().map(|(_, sum)| Value::plain(fmt_count(sum.jobs)));
    let mut rows: Vec<Row> = vec![("jobs".into(), jobs.collect())];
    let mean = |sum: &BlameSum| fmt_ns(sum.response_ns.checked_div(sum.jobs).unwrap_or(0));
    let responses = groups.iter().map(|(_, sum)| Value::plain(mean(sum)));
    rows.push(("response time, mean".into(), responses.collect()));
    let by_group: Vec<Vec<_>> = groups.iter().map(|(_, sum)| by_cause(sum).collect()).collect();
    for (index, (of, _)) in by_group[0].iter().enumerate() {
        if by_group.iter().any(|causes| causes[index].1 > 0) {
            let cells = by_group.iter().zip(&groups).map(|(causes, (_, sum))| {
                let time_ns = causes[index].1;
                Value::plain(if time_ns == 0 { "-".into() } else { fmt_share(time_ns, sum.response_ns) })
            });
            rows.push((of.words().into(), cells.collect()));
        }
    }
    blocks("cause", &labels, &rows, colour)
}

fn worst_jobs(tasks: &[(&TaskResult, &TaskBlame)], colour: bool) -> String {
    let mut jobs: Vec<(&TaskResult, &JobBlame)> =
        tasks.iter().flat_map(|(task, blame)| blame.worst.iter().map(|job| (*task, job))).collect();
    jobs.sort_by_key(|(_, job)| (std::cmp::Reverse(job.missed), std::cmp::Reverse(job.response_ns)));
    let line = |(task, job): &(&TaskResult, &JobBlame)| {
        let why: Vec<String> = job.causes.iter().take(NAMED).map(cause).collect();
        let (name, number, missed) = (task_name(task), job.job, if job.missed { ", missed" } else { "" });
        let (release, response) = (fmt_ns(job.release_ns), fmt_ns(job.response_ns));
        let text = format!("{name} #{number}, released at {release}: {response}{missed}: {}", why.join(", "));
        lines(&text, if job.missed { RED } else { "" }, colour)
    };
    jobs.iter().take(ROWS_MAX).map(line).collect()
}

/// What the pools' processors did in a live run, others and steal apart; empty where that was not measured.
pub(super) fn host_processors(results: &Results, colour: bool) -> String {
    let row = |processor: &ProcessorResult| {
        let HostTimes { others_ns, interrupts_ns, steal_ns } = processor.host?;
        let parts =
            [processor.busy_ns, processor.overhead_ns, others_ns, interrupts_ns, steal_ns, processor.idle_ns];
        let whole = super::cells::total(parts);
        let mut cells: Vec<Value> = parts.map(|part| Value::plain(fmt_share(part, whole))).into();
        let taken = processor.disturbance.as_ref().map_or("-".into(), |of| fmt_share(of.time_ns, whole));
        cells.push(Value::plain(taken));
        Some((format!("cpu {}", processor.processor), cells))
    };
    let rows: Vec<Row> = results.processors.iter().filter_map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    let columns = ["units", "enforcer", "others", "interrupts", "steal", "idle", "taken away"];
    blocks("processor", &columns, &rows, colour)
}

/// What vCPUs of a live run were delivered; empty where that was not measured.
pub fn deliveries(results: &Results, colour: bool) -> String {
    let row = |vcpu: &VcpuResult| {
        let Delivery { periods, delivered, longest_without_ns, wait } = vcpu.delivery.as_ref()?;
        let quantile = |ppm| super::cells::latency(wait, wait.quantile_ppm(ppm));
        let cells = [
            fmt_count(*periods),
            fmt_share(*delivered, *periods),
            vcpu.counts.map_or_else(|| "-".into(), |counts| fmt_count(counts.exhaustions)),
            fmt_ns(*longest_without_ns),
            quantile(500_000),
            quantile(990_000),
            super::cells::latency(wait, wait.max()),
        ];
        Some((vcpu.name.clone(), cells.map(Value::plain).into()))
    };
    let rows: Vec<Row> = results.vcpus.iter().filter_map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    let columns = ["periods", "delivered", "exhausted", "longest without", "wait p50", "p99", "max"];
    section("vCPUs: what they were delivered", &blocks("vCPU", &columns, &rows, colour), colour)
}
