//! What a reader with one minute needs: who missed deadlines, who is guaranteed not to.

use punctual_model::Results;
use punctual_model::results::{ChainResult, JobStats, TaskResult};

use super::guarantees::{Guarantee, Guarantees};
use super::markup::{Cell, Section, Table, details, escape};
use super::{Column, Page, time};
use crate::format::{fmt_count, fmt_share};

/// More warnings than these are folded: the verdict is what this section is about.
const WARNINGS_MAX: usize = 4;

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

/// What deadlines are counted for: a domain, a pool with tasks of its own, or a chain.
struct Group {
    name: String,
    jobs: JobStats,
    /// A chain has none of its own: its steps' domains have it.
    cpu_time_ns: Option<u64>,
}

fn groups(results: &Results) -> Vec<Group> {
    let group =
        |name: &str, jobs: &JobStats, cpu| Group { name: name.into(), jobs: jobs.clone(), cpu_time_ns: cpu };
    let domains = results.domains.iter();
    let mut groups: Vec<Group> =
        domains.map(|domain| group(&domain.name, &domain.jobs, Some(domain.cpu_time_ns))).collect();
    // Domains come with their sums; what is left are tasks of a pool.
    let is_domain = |task: &&TaskResult| results.domains.iter().any(|domain| domain.name == task.parent);
    for task in results.tasks.iter().filter(|task| !is_domain(task)) {
        match groups[results.domains.len()..].iter_mut().find(|group| group.name == task.parent) {
            Some(group) => {
                group.jobs.merge(&task.jobs);
                group.cpu_time_ns = group.cpu_time_ns.map(|time| time.saturating_add(task.cpu_time_ns));
            }
            None => groups.push(group(&task.parent, &task.jobs, Some(task.cpu_time_ns))),
        }
    }
    groups.extend(results.chains.iter().map(|chain| group(&chain_name(chain), &chain.jobs, None)));
    groups
}

/// How a chain is called beside domains and tasks.
pub fn chain_name(chain: &ChainResult) -> String {
    format!("chain {}", chain.name)
}

/// Names of all groups of all columns, in the order in which they first appear.
fn names(columns: &[Column]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for column in columns {
        for group in groups(&column.results) {
            if !names.contains(&group.name) {
                names.push(group.name);
            }
        }
    }
    names
}

/// Deadlines met or missed.
pub fn measured(jobs: &JobStats) -> String {
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

fn guaranteed(guarantees: &Guarantees, group: &str, has_deadlines: bool) -> String {
    let of_group = guarantees.tasks.iter().filter(|task| task.parent == group);
    match counts(of_group.map(|task| &task.guarantee)) {
        (_, _, 0) if has_deadlines => pill(Tone::Warn, "not analysed"),
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
        several => side_by_side(several, page.guarantees).upright(several.len()),
    };
    Section::new("verdict", "Verdict", banner(page) + &table.html() + &warnings(page))
}

fn banner(page: &Page<'_>) -> String {
    let (lead, rest, tone) = match page.columns {
        [one] => sentence(&one.results),
        several => {
            let late = several.iter().filter(|column| total(&column.results).1 > 0).count();
            let all = if several.len() == 2 { "both".to_owned() } else { format!("all {}", several.len()) };
            let lead = match late {
                0 => format!("Every deadline was met in {all} results"),
                n if n == several.len() => format!("Deadlines were missed in {all} results"),
                n => format!("Deadlines were missed in {n} of {} results", several.len()),
            };
            let met: Vec<&str> = several
                .iter()
                .filter(|column| total(&column.results).1 == 0)
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
            _ => {
                let refuted = (no > 0).then(|| format!("refutes {no} with a counter-example"));
                let undecided = (all > yes + no).then(|| format!("cannot decide {}", all - yes - no));
                let rest: Vec<String> = refuted.into_iter().chain(undecided).collect();
                format!(
                    "Analysis guarantees {yes} of {all} tasks for every release pattern that the host permits; it {}.",
                    rest.join(" and ")
                )
            }
        };
        // Chains, and tasks that packets release, have deadlines too.
        let mut left_out: Vec<String> = Vec::new();
        for group in page.columns.iter().flat_map(|column| groups(&column.results)) {
            let is_covered = guarantees.tasks.iter().any(|task| task.parent == group.name);
            if group.jobs.due > 0 && !is_covered && !left_out.contains(&group.name) {
                left_out.push(group.name);
            }
        }
        match left_out.as_slice() {
            [] => (text, if yes == all { Tone::Good } else { Tone::Warn }),
            names => (format!("{text} It does not cover {}.", names.join(", ")), Tone::Warn),
        }
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

/// Jobs due and missed over all tasks and chains.
fn total(results: &Results) -> (u64, u64) {
    let chains = results.chains.iter().map(|chain| &chain.jobs);
    let all = results.tasks.iter().map(|task| &task.jobs).chain(chains);
    all.fold((0, 0), |(due, missed): (u64, u64), jobs| {
        (due.saturating_add(jobs.due), missed.saturating_add(jobs.missed))
    })
}

fn sentence(results: &Results) -> (String, String, Tone) {
    let (due, missed) = total(results);
    let runs = results.chains.iter().fold(0u64, |runs, chain| runs.saturating_add(chain.jobs.due));
    let of = match runs {
        0 => format!("{} jobs", fmt_count(due)),
        runs => format!("{} jobs and {} runs through chains", fmt_count(due - runs), fmt_count(runs)),
    };
    if due == 0 {
        return ("No job was due".into(), "Nothing can be said about deadlines.".into(), Tone::Plain);
    }
    if missed == 0 {
        return ("Every deadline was met".into(), format!("{of} due, none missed."), Tone::Good);
    }
    let groups = groups(results);
    let judged = groups.iter().filter(|group| group.jobs.due > 0).count();
    let late = groups.iter().filter(|group| group.jobs.missed > 0).count();
    let tasks =
        results.tasks.iter().map(|task| (format!("{}/{}", task.parent, task.name), &task.jobs, "its jobs"));
    let chains = results.chains.iter().map(|chain| (chain_name(chain), &chain.jobs, "its runs"));
    let worst = tasks.chain(chains).max_by(|a, b| {
        // The first of equals: `max_by` keeps the last.
        a.1.miss_ppm().cmp(&b.1.miss_ppm()).then(std::cmp::Ordering::Greater)
    });
    let worst = worst.map_or_else(String::new, |(name, jobs, what)| {
        format!(" Worst: {name}, {} of {what}.", fmt_share(jobs.missed, jobs.due))
    });
    let what = if runs > 0 { "domains and chains" } else { "domains" };
    let lead = match judged {
        1 => "Deadlines were missed".to_owned(),
        _ => format!("{late} of {judged} {what} missed deadlines"),
    };
    let rest = format!("{} of {of} missed theirs ({}).{worst}", fmt_count(missed), fmt_share(missed, due));
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
        let mut row = vec![Cell::text(group.name.clone()), Cell::Markup(measured(&group.jobs))];
        row.extend(guarantees.map(|all| Cell::Markup(guaranteed(all, &group.name, group.jobs.due > 0))));
        let response = &group.jobs.response;
        let latency = |ns: u64| if response.count() == 0 { "-".into() } else { time(ns) };
        row.extend([
            Cell::number(fmt_count(group.jobs.due)),
            Cell::number(fmt_count(group.jobs.missed)),
            Cell::number(latency(response.quantile_ppm(990_000).as_ns())),
            Cell::number(latency(response.max().as_ns())),
            Cell::number(group.cpu_time_ns.map_or("-".into(), |time| fmt_share(time, whole))),
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
    let all: Vec<Vec<Group>> = columns.iter().map(|column| groups(&column.results)).collect();
    let is_judged = |name: &str| all.iter().flatten().any(|group| group.name == name && group.jobs.due > 0);
    for name in names(columns) {
        let mut row = vec![Cell::text(name.clone())];
        for groups in &all {
            let group = groups.iter().find(|group| group.name == name);
            row.push(Cell::Markup(
                group.map_or_else(|| pill(Tone::Plain, "not there"), |g| measured(&g.jobs)),
            ));
        }
        row.extend(guarantees.map(|all| Cell::Markup(guaranteed(all, &name, is_judged(&name)))));
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
    let title = "What to know about this host";
    let list = format!("<ul class=\"notes\">{items}</ul>\n");
    match guarantees.warnings.len() {
        ..=WARNINGS_MAX => format!("<h3>{title}</h3>\n{list}"),
        n => details(&format!("{title} ({n})"), &list),
    }
}
