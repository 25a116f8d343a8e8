//! Results as terminal tables, at most [`WIDTH`] columns wide.
//!
//! Every view returns text that ends in a newline. Colour is the caller's decision (`color`): this module
//! does not look at the terminal.

use comfy_table::{
    Attribute, Cell, CellAlignment, Color, ColumnConstraint, ContentArrangement, LineStyle, Table,
    TableStyle, Width,
};
use punctual_model::results::{
    DomainResult, JobStats, PoolResult, ProcessorResult, Source, TaskResult, VcpuResult,
};
use punctual_model::{Recorder, Results};
use punctual_sched::Duration;

use crate::format::{fmt_count, fmt_duration, fmt_rate, fmt_share};

/// No line is longer, whatever the results; long cells wrap.
pub const WIDTH: usize = 100;
/// Names of domains and tasks wrap beyond this.
const NAME_WIDTH: usize = 40;
/// Spaces between columns.
const GAP: usize = 2;
/// A rule below the header and nothing else.
const RULED: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─'));
/// How many of the worst tasks or domains a headline names.
const NAMED: usize = 4;

const BOLD: &str = "1";
const RED: &str = "31";
const GREEN: &str = "32";

/// The short view: who missed deadlines, worst first, and one row per domain.
pub fn summary(results: &Results, color: bool) -> String {
    let mut text = headline(results, color);
    text.push('\n');
    text.push_str(&domains(results, color));
    for part in [flows::chains(results, color), flows::flows(results, color), flows::segments(results, color)]
    {
        if !part.is_empty() {
            text.push('\n');
            text.push_str(&part);
        }
    }
    text
}

/// The long view: every metric of every task, vCPU, domain, processor and pool.
pub fn detail(results: &Results, color: bool) -> String {
    let sections = [
        headline(results, color),
        section("Tasks", &task_table(results, color), color),
        section("Response time", &latency_table(results, |jobs| &jobs.response, color), color),
        section("Tardiness", &latency_table(results, |jobs| &jobs.tardiness, color), color),
        section("Start latency", &latency_table(results, |jobs| &jobs.start_latency, color), color),
        section("Domains", &domain_detail(results, color), color),
        section("vCPUs", &vcpu_table(results, color), color),
        section("Wake-up latency of vCPUs", &wake_table(results, color), color),
        section("Processors", &processor_table(results, color), color),
        section("Pools", &pool_table(results, color), color),
        section("Chains", &flows::chains(results, color), color),
        section("Flows", &flows::flows(results, color), color),
        section("Latency of flows", &flows::latencies(results, color), color),
        section("Where the time of packets went", &flows::segment_detail(results, color), color),
        section("Networks", &flows::networks(results, color), color),
    ];
    sections.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n")
}

/// What the cells of [`side_by_side`] say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cells {
    /// Share of the jobs due that missed their deadline.
    Misses,
    /// That, and the response time that 99 % of the finished jobs did not exceed.
    MissesAndP99,
}

/// Several results of the same domains, one column each: usually one host under several policies. Below the
/// domains stands what the scheduling cost, below the table a verdict per column.
pub fn side_by_side(columns: &[(String, Results)], cells: Cells, color: bool) -> String {
    let names = domain_names(columns);
    let mut rows: Vec<Row> = Vec::new();
    for name in &names {
        let cell = |(_, results): &(String, Results)| match jobs_by_name(results, name) {
            Some(jobs) => miss_cell(jobs, cells),
            None => Value::plain("-"),
        };
        rows.push((name.clone(), columns.iter().map(cell).collect()));
    }
    rows.push((String::new(), Vec::new()));
    type Cost = fn(&Results) -> String;
    let costs: [(&str, Cost); 3] = [
        ("overhead", |r| fmt_share(sum(r, |p| p.overhead_ns), processor_time(r))),
        ("context switches", |r| match r.source {
            Source::Simulation => fmt_rate(sum(r, |p| p.context_switches), time(r)),
            Source::Live => "-".into(), // not measured
        }),
        ("decisions", |r| fmt_rate(sum(r, |p| p.decisions), time(r))),
    ];
    for (name, cost) in costs {
        rows.push((name.into(), columns.iter().map(|(_, r)| Value::plain(cost(r))).collect()));
    }
    let what = if cells == Cells::Misses { "misses" } else { "misses, p99" };
    let labels: Vec<&str> = columns.iter().map(|(label, _)| label.as_str()).collect();
    let mut text = blocks(what, &labels, &rows, color);
    text.push('\n');
    text.push_str(&verdicts(columns, &names, color));
    text
}

/// Does the project's result agree with a published claim?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Yes.
    Agrees,
    /// No; the reason is given.
    Differs,
    /// The experiment is not the same in a way that matters; the reason is given.
    NotComparable,
}

/// One published claim beside the project's own result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClaimRow {
    /// Where it is made: figure, table or section.
    pub id: String,
    /// The claim in a sentence.
    pub statement: String,
    /// The published value.
    pub paper: String,
    /// The project's value.
    pub ours: String,
    /// Do they agree?
    pub verdict: Verdict,
    /// Why they do not, or how they were compared; may be empty.
    pub why: String,
}

/// Claims with their verdicts, wrapped to the width, and a line that counts the verdicts.
pub fn claims(rows: &[ClaimRow], color: bool) -> String {
    let mut table = new_table(color);
    table.set_header(
        ["", "claim", "paper", "ours", "agrees", "why"].map(|name| header(name, CellAlignment::Left)),
    );
    for row in rows {
        let (word, shade) = match row.verdict {
            Verdict::Agrees => ("yes", Some(Color::Green)),
            Verdict::Differs => ("no", Some(Color::Red)),
            Verdict::NotComparable => ("n/a", None),
        };
        let verdict = shade.map_or_else(|| Cell::new(word), |shade| Cell::new(word).fg(shade));
        let [id, statement, paper, ours, why] =
            [&row.id, &row.statement, &row.paper, &row.ours, &row.why].map(Cell::new);
        table.add_row(vec![id, statement, paper, ours, verdict, why]);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, GAP as u16));
    }
    let count = |verdict| rows.iter().filter(|row| row.verdict == verdict).count();
    let [agree, differ, other] = [Verdict::Agrees, Verdict::Differs, Verdict::NotComparable].map(count);
    format!("{}\nagrees: {agree}, differs: {differ}, not comparable: {other}\n", finish(&table))
}

/// A grid of texts under a title: one row per row label, cut into blocks of columns where it is too wide.
/// Cells that are missing stay empty.
pub fn matrix(
    title: &str,
    row_labels: &[&str],
    column_labels: &[&str],
    cells: &[Vec<String>],
    color: bool,
) -> String {
    let rows: Vec<Row> = row_labels
        .iter()
        .enumerate()
        .map(|(i, label)| {
            let cell = |column| cells.get(i).and_then(|row| row.get(column)).map_or("", String::as_str);
            ((*label).to_owned(), (0..column_labels.len()).map(|column| Value::plain(cell(column))).collect())
        })
        .collect();
    section(title, &blocks("", column_labels, &rows, color), color)
}

// ---- Headline -------------------------------------------------------------------------------------------

fn headline(results: &Results, color: bool) -> String {
    let runs = if results.runs == 1 {
        String::new()
    } else {
        format!("{} runs of ", fmt_count(results.runs.into()))
    };
    let policies: Vec<_> = results.pools.iter().map(|pool| pool.policy.as_str()).collect();
    let title = format!(
        "{} under {} ({runs}{}, seed {})",
        results.host,
        if policies.is_empty() { "no policy".into() } else { policies.join(" + ") },
        fmt_duration(Duration::from_ns(results.duration_ns)),
        results.seed
    );
    format!("{}{}", lines(&title, BOLD, color), misses(results, color))
}

/// Who missed, worst first.
fn misses(results: &Results, color: bool) -> String {
    let [due, missed] = [|jobs: &JobStats| jobs.due, |jobs: &JobStats| jobs.missed]
        .map(|of| total(results.tasks.iter().map(|t| of(&t.jobs))));
    if due == 0 {
        return "No job was due.\n".into();
    }
    if missed == 0 {
        return lines(
            &format!("Every deadline was met: {} jobs due, none missed.", fmt_count(due)),
            GREEN,
            color,
        );
    }
    let late = worst(results.tasks.iter().map(|task| (task_name(task), &task.jobs)).collect());
    let count = format!(
        "{} of {} tasks missed deadlines, {} of {} jobs ({}).",
        late.len(),
        results.tasks.iter().filter(|task| task.jobs.due > 0).count(),
        fmt_count(missed),
        fmt_count(due),
        fmt_share(missed, due)
    );
    lines(&count, RED, color) + &lines(&format!("Worst: {}.", name_some(&late)), "", color)
}

/// Those that missed, by falling miss ratio; equal ones keep their order.
fn worst(mut jobs: Vec<(String, &JobStats)>) -> Vec<(String, &JobStats)> {
    jobs.retain(|(_, jobs)| jobs.missed > 0);
    jobs.sort_by_key(|(_, jobs)| std::cmp::Reverse(jobs.miss_ppm()));
    jobs
}

fn name_some(worst: &[(String, &JobStats)]) -> String {
    let some =
        worst.iter().take(NAMED).map(|(name, jobs)| format!("{name} {}", fmt_share(jobs.missed, jobs.due)));
    let mut text = some.collect::<Vec<_>>().join(", ");
    if worst.len() > NAMED {
        text.push_str(&format!(" and {} more", worst.len() - NAMED));
    }
    text
}

fn verdicts(columns: &[(String, Results)], names: &[String], color: bool) -> String {
    let width = columns.iter().map(|(label, _)| label.chars().count()).max().unwrap_or(0);
    let line = |(label, results): &(String, Results)| {
        let jobs = names.iter().filter_map(|name| Some((name.clone(), jobs_by_name(results, name)?)));
        let late = worst(jobs.collect());
        let (verdict, style) = match late.len() {
            0 => ("every deadline met".into(), GREEN),
            _ => (format!("misses: {}", name_some(&late)), RED),
        };
        lines(&format!("{label:width$}  {verdict}"), style, color)
    };
    columns.iter().map(line).collect()
}

// ---- Tables ---------------------------------------------------------------------------------------------

fn domains(results: &Results, color: bool) -> String {
    let columns = ["jobs due", "missed", "miss", "p50", "p99", "max", "cpu", "exhaustions"];
    let of_domain = |domain: &DomainResult| {
        let exhaustions = Value::plain(fmt_count(domain.exhaustions));
        (domain.name.clone(), domain_row(results, &domain.jobs, domain.cpu_time_ns, exhaustions))
    };
    let of_task = |task: &TaskResult| {
        (task_name(task), domain_row(results, &task.jobs, task.cpu_time_ns, Value::plain("-")))
    };
    let rows: Vec<_> =
        results.domains.iter().map(of_domain).chain(pool_tasks(results).map(of_task)).collect();
    blocks("domain", &columns, &rows, color)
}

fn domain_row(results: &Results, jobs: &JobStats, cpu_time_ns: u64, exhaustions: Value) -> Vec<Value> {
    let quantile = |ppm| latency(&jobs.response, jobs.response.quantile_ppm(ppm));
    let mut row = Vec::from(counts([jobs.due, jobs.missed]));
    row.push(miss_cell(jobs, Cells::Misses));
    row.extend(
        [quantile(500_000), quantile(990_000), latency(&jobs.response, jobs.response.max())]
            .map(Value::plain),
    );
    row.extend([Value::plain(fmt_share(cpu_time_ns, time(results).as_ns())), exhaustions]);
    row
}

fn task_table(results: &Results, color: bool) -> String {
    let columns =
        ["released", "finished", "due", "missed", "miss", "cpu time", "cpu", "switches", "migrated"];
    let row = |task: &TaskResult| {
        let jobs = &task.jobs;
        let mut row = Vec::from(counts([jobs.released, jobs.completed, jobs.due, jobs.missed]));
        row.push(miss_cell(jobs, Cells::Misses));
        row.extend(cpu(results, task.cpu_time_ns));
        row.extend(counts([task.context_switches, task.migrations]));
        (task_name(task), row)
    };
    blocks("task", &columns, &results.tasks.iter().map(row).collect::<Vec<_>>(), color)
}

/// One of the distributions of all tasks that have one.
fn latency_table(results: &Results, of: fn(&JobStats) -> &Recorder, color: bool) -> String {
    recorders("task", results.tasks.iter().map(|task| (task_name(task), of(&task.jobs))), color)
}

fn wake_table(results: &Results, color: bool) -> String {
    recorders("vCPU", results.vcpus.iter().map(|vcpu| (vcpu.name.clone(), &vcpu.wake_latency)), color)
}

fn recorders<'a>(what: &str, of: impl Iterator<Item = (String, &'a Recorder)>, color: bool) -> String {
    let row = |(name, recorder): (String, &Recorder)| {
        let quantile = |ppm| recorder.quantile_ppm(ppm);
        let durations = [
            recorder.min(),
            recorder.mean(),
            recorder.stddev(),
            quantile(500_000),
            quantile(990_000),
            quantile(999_000),
            recorder.max(),
        ];
        let mut row = vec![Value::plain(fmt_count(recorder.count()))];
        row.extend(durations.map(|duration| Value::plain(fmt_duration(duration))));
        (name, row)
    };
    let rows: Vec<_> = of.filter(|(_, recorder)| recorder.count() > 0).map(row).collect();
    blocks(what, &["count", "min", "mean", "sd", "p50", "p99", "p99.9", "max"], &rows, color)
}

fn domain_detail(results: &Results, color: bool) -> String {
    let columns =
        ["due", "missed", "miss", "cpu", "decisions", "switches", "migrated", "exhausted", "refilled"];
    let row = |domain: &DomainResult| {
        let DomainResult {
            jobs, decisions, context_switches, migrations, exhaustions, replenishments, ..
        } = domain;
        let mut row = Vec::from(counts([jobs.due, jobs.missed]));
        row.push(miss_cell(jobs, Cells::Misses));
        row.push(Value::plain(fmt_share(domain.cpu_time_ns, time(results).as_ns())));
        row.extend(counts([*decisions, *context_switches, *migrations, *exhaustions, *replenishments]));
        (domain.name.clone(), row)
    };
    blocks("domain", &columns, &results.domains.iter().map(row).collect::<Vec<_>>(), color)
}

fn vcpu_table(results: &Results, color: bool) -> String {
    let columns =
        ["cpu time", "cpu", "idled", "wakes", "sleeps", "exhausted", "refilled", "switches", "migrated"];
    let row = |vcpu: &VcpuResult| {
        let VcpuResult { wakes, sleeps, exhaustions, replenishments, context_switches, migrations, .. } =
            vcpu;
        let mut row = Vec::from(cpu(results, vcpu.cpu_time_ns));
        row.push(Value::plain(fmt_duration(Duration::from_ns(vcpu.idled_away_ns))));
        row.extend(counts([*wakes, *sleeps, *exhaustions, *replenishments, *context_switches, *migrations]));
        (vcpu.name.clone(), row)
    };
    blocks("vCPU", &columns, &results.vcpus.iter().map(row).collect::<Vec<_>>(), color)
}

fn processor_table(results: &Results, color: bool) -> String {
    let columns = ["pool", "busy", "idle", "overhead", "decisions", "decisions/s", "switches", "switches/s"];
    let row = |processor: &ProcessorResult| {
        let ProcessorResult { busy_ns, idle_ns, overhead_ns, decisions, context_switches, .. } = processor;
        let whole = total([*busy_ns, *idle_ns, *overhead_ns]);
        let mut row = vec![Value::plain(processor.pool.as_deref().unwrap_or("-"))];
        row.extend([*busy_ns, *idle_ns, *overhead_ns].map(|part| Value::plain(fmt_share(part, whole))));
        row.extend(count_and_rate(*decisions, time(results)));
        row.extend(count_and_rate(*context_switches, time(results)));
        (format!("cpu {}", processor.processor), row)
    };
    blocks("processor", &columns, &results.processors.iter().map(row).collect::<Vec<_>>(), color)
}

fn pool_table(results: &Results, color: bool) -> String {
    let columns =
        ["cpus", "miss", "busy", "overhead", "decisions", "switches", "migrated", "exhausted", "refilled"];
    let row = |pool: &PoolResult| {
        let PoolResult { decisions, context_switches, migrations, exhaustions, replenishments, .. } = pool;
        let whole = total([pool.busy_ns, pool.idle_ns, pool.overhead_ns]);
        let mut row = vec![Value::plain(pool.processors.to_string()), miss_cell(&pool.jobs, Cells::Misses)];
        row.extend([pool.busy_ns, pool.overhead_ns].map(|part| Value::plain(fmt_share(part, whole))));
        row.extend(counts([*decisions, *context_switches, *migrations, *exhaustions, *replenishments]));
        (format!("{} ({})", pool.name, pool.policy), row)
    };
    blocks("pool", &columns, &results.pools.iter().map(row).collect::<Vec<_>>(), color)
}

// ---- Cells ----------------------------------------------------------------------------------------------

/// A name and its numbers.
type Row = (String, Vec<Value>);

/// A number and whether it is bad news.
#[derive(Clone)]
struct Value {
    text: String,
    bad: bool,
}

impl Value {
    fn plain(text: impl Into<String>) -> Self {
        Value { text: text.into(), bad: false }
    }

    fn cell(&self) -> Cell {
        let cell = Cell::new(&self.text);
        if self.bad { cell.fg(Color::Red) } else { cell }
    }
}

fn miss_cell(jobs: &JobStats, cells: Cells) -> Value {
    let mut text = fmt_share(jobs.missed, jobs.due);
    if cells == Cells::MissesAndP99 {
        text = format!("{text}, {}", latency(&jobs.response, jobs.response.quantile_ppm(990_000)));
    }
    Value { text, bad: jobs.missed > 0 }
}

/// A property of a distribution, `-` when that is empty.
fn latency(recorder: &Recorder, value: Duration) -> String {
    if recorder.count() == 0 { "-".into() } else { fmt_duration(value) }
}

fn counts<const N: usize>(counts: [u64; N]) -> [Value; N] {
    counts.map(|count| Value::plain(fmt_count(count)))
}

fn cpu(results: &Results, ns: u64) -> [Value; 2] {
    [fmt_duration(Duration::from_ns(ns)), fmt_share(ns, time(results).as_ns())].map(Value::plain)
}

fn count_and_rate(count: u64, time: Duration) -> [Value; 2] {
    [fmt_count(count), fmt_rate(count, time)].map(Value::plain)
}

// ---- What the views ask of results ----------------------------------------------------------------------

/// Length of all runs together.
fn time(results: &Results) -> Duration {
    Duration::from_ns(results.duration_ns) * u64::from(results.runs)
}

fn sum(results: &Results, of: fn(&ProcessorResult) -> u64) -> u64 {
    total(results.processors.iter().map(of))
}

fn processor_time(results: &Results) -> u64 {
    sum(results, |p| total([p.busy_ns, p.idle_ns, p.overhead_ns]))
}

/// The sum; numbers from a file may exceed what a run can count.
fn total(numbers: impl IntoIterator<Item = u64>) -> u64 {
    numbers.into_iter().fold(0, u64::saturating_add)
}

/// Tasks that belong to no domain.
fn pool_tasks(results: &Results) -> impl Iterator<Item = &TaskResult> {
    results.tasks.iter().filter(|task| !results.domains.iter().any(|domain| domain.name == task.parent))
}

fn task_name(task: &TaskResult) -> String {
    format!("{}/{}", task.parent, task.name)
}

/// Domains and tasks without one, of all columns, in the order of their first appearance.
fn domain_names(columns: &[(String, Results)]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (_, results) in columns {
        let of_domains = results.domains.iter().map(|domain| domain.name.clone());
        for name in of_domains.chain(pool_tasks(results).map(task_name)) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}

fn jobs_by_name<'a>(results: &'a Results, name: &str) -> Option<&'a JobStats> {
    let domain = results.domains.iter().find(|domain| domain.name == name).map(|domain| &domain.jobs);
    domain.or_else(|| pool_tasks(results).find(|task| task_name(task) == name).map(|task| &task.jobs))
}

// ---- Layout ---------------------------------------------------------------------------------------------

fn new_table(color: bool) -> Table {
    let mut table = Table::new();
    table.load_style(RULED).set_content_arrangement(ContentArrangement::Dynamic).set_width(WIDTH as u16);
    if color {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    table
}

fn header(name: &str, alignment: CellAlignment) -> Cell {
    Cell::new(name).add_attribute(Attribute::Bold).set_alignment(alignment)
}

/// A table whose first column holds names and whose others, of given widths with the gap before them, hold
/// numbers.
fn number_table(first: &str, names: usize, columns: &[&str], widths: &[usize], color: bool) -> Table {
    let mut table = new_table(color);
    let mut cells = vec![header(first, CellAlignment::Left)];
    cells.extend(columns.iter().map(|name| header(name, CellAlignment::Right)));
    table.set_header(cells);
    for (column, width) in table.column_iter_mut().zip(std::iter::once(&names).chain(widths)) {
        column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(*width as u16)));
    }
    for (i, column) in table.column_iter_mut().enumerate() {
        let (gap, alignment) = if i == 0 { (0, CellAlignment::Left) } else { (GAP, CellAlignment::Right) };
        column.set_padding((gap as u16, 0)).set_cell_alignment(alignment);
    }
    table
}

/// The table's text; nothing when it has no row.
fn finish(table: &Table) -> String {
    if table.is_empty() {
        return String::new();
    }
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// Tables of as many columns as fit side by side, one below the other. Only texts that are wider than any
/// terminal wrap; numbers never do.
fn blocks(first: &str, columns: &[&str], rows: &[Row], color: bool) -> String {
    let names =
        rows.iter().map(|(name, _)| width(name)).max().unwrap_or(0).max(width(first)).clamp(1, NAME_WIDTH);
    let room = WIDTH - names;
    let widths: Vec<usize> = (0..columns.len())
        .map(|i| {
            let cells = rows.iter().map(|(_, values)| values.get(i).map_or(0, |value| width(&value.text)));
            (cells.max().unwrap_or(0).max(width(columns[i])) + GAP).min(room)
        })
        .collect();
    let mut tables = Vec::new();
    let mut start = 0;
    while start < columns.len() {
        let fits = |end: &usize| widths[start..*end].iter().sum::<usize>() <= room;
        let end = (start + 1..=columns.len()).take_while(fits).last().unwrap_or(start + 1);
        let mut table = number_table(first, names, &columns[start..end], &widths[start..end], color);
        for (name, values) in rows {
            let mut row = vec![Cell::new(name)];
            row.extend(values.iter().skip(start).take(end - start).map(Value::cell));
            table.add_row(row);
        }
        tables.push(finish(&table));
        start = end;
    }
    tables.join("\n")
}

fn width(text: &str) -> usize {
    textwrap::core::display_width(text)
}

fn section(title: &str, body: &str, color: bool) -> String {
    if body.is_empty() { String::new() } else { lines(title, BOLD, color) + body }
}

/// Text wrapped to the width, each line in the style; an empty style is the terminal's own.
fn lines(text: &str, style: &str, color: bool) -> String {
    textwrap::wrap(text, WIDTH).iter().map(|line| paint(line, style, color) + "\n").collect()
}

fn paint(text: &str, style: &str, color: bool) -> String {
    if color && !style.is_empty() { format!("\u{1b}[{style}m{text}\u{1b}[0m") } else { text.to_owned() }
}

mod flows;

#[cfg(test)]
pub(crate) mod tests;
