//! What a reader with one minute needs: who missed deadlines, who is guaranteed not to.

use punctual_model::Results;
use punctual_model::results::{JobStats, TaskResult};

use super::guarantees::{Guarantee, Guarantees};
use super::markup::{Cell, Section, Table, escape};
use super::{Column, Page, time};
use crate::format::{fmt_count, fmt_share};

/// A judgement: colour, mark and words, so that the colour is never alone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Tone {
    /// As it should be.
    Good,
    /// Nothing to judge.
    Plain,
    /// Not wrong, not certain.
    Warn,
    /// Wrong.
    Bad,
}

impl Tone {
    fn class(self) -> &'static str {
        match self {
            Tone::Good => "good",
            Tone::Plain => "plain",
            Tone::Warn => "warn",
            Tone::Bad => "bad",
        }
    }

    fn mark(self) -> &'static str {
        match self {
            Tone::Good => "✓",
            Tone::Plain => "–",
            Tone::Warn => "?",
            Tone::Bad => "✗",
        }
    }
}

/// A judgement in a word or two.
pub fn pill(tone: Tone, text: &str) -> String {
    let (class, mark) = (tone.class(), tone.mark());
    format!("<span class=\"pill {class}\"><span aria-hidden=\"true\">{mark}</span> {}</span>", escape(text))
}

/// A domain, or a pool with tasks of its own, and its tasks in one column.
struct Group<'a> {
    name: &'a str,
    tasks: Vec<&'a TaskResult>,
    jobs: JobStats,
    cpu_time_ns: u64,
}

fn groups(results: &Results) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = results
        .domains
        .iter()
        .map(|domain| Group {
            name: &domain.name,
            tasks: Vec::new(),
            jobs: domain.jobs.clone(),
            cpu_time_ns: domain.cpu_time_ns,
        })
        .collect();
    for task in &results.tasks {
        if let Some(group) = groups.iter_mut().find(|group| group.name == task.parent) {
            group.tasks.push(task);
            // Domains come with their sums; what is left are tasks of a pool.
            if !results.domains.iter().any(|domain| domain.name == task.parent) {
                group.jobs.merge(&task.jobs);
                group.cpu_time_ns += task.cpu_time_ns;
            }
        } else {
            groups.push(Group {
                name: &task.parent,
                tasks: vec![task],
                jobs: task.jobs.clone(),
                cpu_time_ns: task.cpu_time_ns,
            });
        }
    }
    groups
}

/// Names of all groups of all columns, in the order in which they first appear.
fn names(columns: &[Column]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for column in columns {
        for group in groups(&column.results) {
            if !names.iter().any(|name| name == group.name) {
                names.push(group.name.to_owned());
            }
        }
    }
    names
}

fn measured(jobs: &JobStats) -> String {
    match (jobs.due, jobs.missed) {
        (0, _) => pill(Tone::Plain, "no deadline"),
        (_, 0) => pill(Tone::Good, "met"),
        (due, missed) => pill(Tone::Bad, &format!("missed {}", fmt_share(missed, due))),
    }
}

/// How many tasks of a group are guaranteed, refuted, and in all.
fn counts<'a>(tasks: impl Iterator<Item = &'a Guarantee>) -> (usize, usize, usize) {
    tasks.fold((0, 0, 0), |(yes, no, all), guarantee| match guarantee {
        Guarantee::Guaranteed { .. } => (yes + 1, no, all + 1),
        Guarantee::NotGuaranteed { .. } => (yes, no + 1, all + 1),
        Guarantee::Unknown { .. } => (yes, no, all + 1),
    })
}

fn guaranteed(guarantees: &Guarantees, group: &str) -> String {
    let of_group = guarantees.tasks.iter().filter(|task| task.parent == group);
    match counts(of_group.map(|task| &task.guarantee)) {
        (_, _, 0) => pill(Tone::Plain, "no deadline"),
        (yes, _, all) if yes == all => pill(Tone::Good, "guaranteed"),
        (_, no @ 1.., all) => pill(Tone::Bad, &format!("{no} of {all} tasks not")),
        (yes, _, all) => pill(Tone::Warn, &format!("{} of {all} tasks undecided", all - yes)),
    }
}

/// The verdict: a sentence, then a row per domain.
pub fn section(page: &Page<'_>) -> Section {
    let table = match page.columns {
        [one] => single(one, page.guarantees),
        several => side_by_side(several, page.guarantees),
    };
    Section::new("verdict", "Verdict", banner(page) + &table.html() + &warnings(page))
}

fn banner(page: &Page<'_>) -> String {
    let (lead, rest, tone) = match page.columns {
        [one] => sentence(&one.results),
        several => {
            let late = several.iter().filter(|column| total(&column.results).missed > 0).count();
            let lead = match late {
                0 => format!("Every deadline was met in all {} results", several.len()),
                n if n == several.len() => format!("Deadlines were missed in all {n} results"),
                n => format!("Deadlines were missed in {n} of {} results", several.len()),
            };
            let met: Vec<&str> = several
                .iter()
                .filter(|column| total(&column.results).missed == 0)
                .map(|column| column.label.as_str())
                .collect();
            let rest = match met.len() {
                0 => String::new(),
                n if n == several.len() => String::new(),
                _ => format!("All met: {}.", met.join(", ")),
            };
            (lead, rest, if late == 0 { Tone::Good } else { Tone::Bad })
        }
    };
    let guarantee = page.guarantees.map(|guarantees| {
        let (yes, no, all) = counts(guarantees.tasks.iter().map(|task| &task.guarantee));
        let text = match all {
            0 => "No task has a deadline to guarantee.".to_owned(),
            _ if yes == all => {
                format!("Analysis guarantees all {all} tasks, for every release pattern that the host permits.")
            }
            _ => format!(
                "Analysis guarantees {yes} of {all} tasks for every release pattern that the host permits; {no} it \
                 refutes with a counter-example, {} it cannot decide.",
                all - yes - no
            ),
        };
        (text, if yes == all { Tone::Good } else { Tone::Warn })
    });
    let tone = guarantee.as_ref().map_or(tone, |(_, of)| tone.max(*of));
    let mut out = format!(
        "<div class=\"banner {}\"><span class=\"icon\" aria-hidden=\"true\">{}</span><div><p class=\"lead\">{}</p>",
        tone.class(),
        // Met here, but not for certain, is still a check mark: the words say what is not certain.
        if tone == Tone::Warn { "!" } else { tone.mark() },
        escape(&lead)
    );
    for text in
        [Some(rest), guarantee.map(|(text, _)| text)].into_iter().flatten().filter(|text| !text.is_empty())
    {
        out += &format!("<p>{}</p>", escape(&text));
    }
    out + "</div></div>\n"
}

/// Jobs due and missed over all tasks.
fn total(results: &Results) -> JobStats {
    let mut total = JobStats::default();
    for task in &results.tasks {
        total.due += task.jobs.due;
        total.missed += task.jobs.missed;
    }
    total
}

fn sentence(results: &Results) -> (String, String, Tone) {
    let JobStats { due, missed, .. } = total(results);
    if due == 0 {
        return ("No job was due".into(), "Nothing can be said about deadlines.".into(), Tone::Plain);
    }
    if missed == 0 {
        return (
            "Every deadline was met".into(),
            format!("{} jobs due, none missed.", fmt_count(due)),
            Tone::Good,
        );
    }
    let groups = groups(results);
    let judged = groups.iter().filter(|group| group.jobs.due > 0).count();
    let late = groups.iter().filter(|group| group.jobs.missed > 0).count();
    let worst = results.tasks.iter().max_by(|a, b| {
        // The first of equals: `max_by` keeps the last.
        a.jobs.miss_ppm().cmp(&b.jobs.miss_ppm()).then(std::cmp::Ordering::Greater)
    });
    let worst = worst.map_or_else(String::new, |task| {
        format!(
            " Worst: {}/{}, {} of its jobs.",
            task.parent,
            task.name,
            fmt_share(task.jobs.missed, task.jobs.due)
        )
    });
    let lead = match judged {
        1 => "Deadlines were missed".to_owned(),
        _ => format!("{late} of {judged} domains missed deadlines"),
    };
    let rest = format!(
        "{} of {} jobs missed theirs ({}).{worst}",
        fmt_count(missed),
        fmt_count(due),
        fmt_share(missed, due)
    );
    (lead, rest, Tone::Bad)
}

fn single(column: &Column, guarantees: Option<&Guarantees>) -> Table {
    let mut table = Table::new("Verdict by domain", &["Domain", "Measured"]);
    if guarantees.is_some() {
        table.columns.push("Analysis".into());
    }
    let numbers = [">Jobs due", ">Missed", ">Response p99", ">Longest", ">Processor time"];
    table.columns.extend(numbers.map(String::from));
    let results = &column.results;
    let whole = results.duration_ns.saturating_mul(results.runs.into());
    for group in groups(results) {
        let mut row = vec![Cell::text(group.name), Cell::Markup(measured(&group.jobs))];
        row.extend(guarantees.map(|all| Cell::Markup(guaranteed(all, group.name))));
        let response = &group.jobs.response;
        let latency = |ns: u64| if response.count() == 0 { "-".into() } else { time(ns) };
        row.extend([
            Cell::number(fmt_count(group.jobs.due)),
            Cell::number(fmt_count(group.jobs.missed)),
            Cell::number(latency(response.quantile_ppm(990_000).as_ns())),
            Cell::number(latency(response.max().as_ns())),
            Cell::number(fmt_share(group.cpu_time_ns, whole)),
        ]);
        table.rows.push(row);
    }
    table
}

fn side_by_side(columns: &[Column], guarantees: Option<&Guarantees>) -> Table {
    let mut table = Table::new("Verdict by domain and result", &["Domain"]);
    table.columns.extend(columns.iter().map(|column| column.label.clone()));
    if guarantees.is_some() {
        table.columns.push("Analysis".into());
    }
    let all: Vec<Vec<Group<'_>>> = columns.iter().map(|column| groups(&column.results)).collect();
    for name in names(columns) {
        let mut row = vec![Cell::text(name.clone())];
        for groups in &all {
            let group = groups.iter().find(|group| group.name == name);
            row.push(Cell::Markup(
                group.map_or_else(|| pill(Tone::Plain, "not there"), |g| measured(&g.jobs)),
            ));
        }
        row.extend(guarantees.map(|all| Cell::Markup(guaranteed(all, &name))));
        table.rows.push(row);
    }
    table
}

fn warnings(page: &Page<'_>) -> String {
    let Some(guarantees) = page.guarantees.filter(|guarantees| !guarantees.warnings.is_empty()) else {
        return String::new();
    };
    let items: String = guarantees
        .warnings
        .iter()
        .map(|warning| {
            format!("<li><strong>{}</strong>: {}</li>", escape(&warning.about), escape(&warning.text))
        })
        .collect();
    format!("<h3>What to know about this host</h3>\n<ul class=\"notes\">{items}</ul>\n")
}
