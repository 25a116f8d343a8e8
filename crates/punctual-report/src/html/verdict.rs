//! What a reader with one minute needs: who missed deadlines, who is guaranteed not to.

use maud::{Markup, html};
use punctual_model::guarantees::Verdict;
use punctual_model::results::{ChainResult, JobStats, TaskResult};
use punctual_model::{Guarantees, Results};

use super::markup::{Cell, Section, Table, details};
use super::page::Page;
use crate::Column;
use crate::disturbance;
use crate::format::{fmt_count, fmt_ns, fmt_remedy, fmt_share};
use crate::headline::{Headline, headline, packets, total};

/// More warnings than these are folded: the verdict is what this section is about.
const WARNINGS_MAX: usize = 4;

/// A judgement: colour, mark and words, so that the colour is never alone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Tone {
    Good,
    Plain,
    Warn,
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
pub(crate) fn pill(tone: Tone, text: &str) -> Markup {
    html! { span.pill.(tone.class()) { span aria-hidden="true" { (tone.mark()) } " " (text) } }
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
pub(crate) fn chain_name(chain: &ChainResult) -> String {
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
pub(super) fn measured(jobs: &JobStats) -> Markup {
    match (jobs.due, jobs.missed) {
        (0, _) => pill(Tone::Plain, "no deadline"),
        (_, 0) => pill(Tone::Good, "met"),
        (due, missed) => pill(Tone::Bad, &format!("missed {}", fmt_share(missed, due))),
    }
}

/// How many tasks of a group are guaranteed, refuted, and in all.
fn counts<'a>(tasks: impl Iterator<Item = &'a Verdict>) -> (usize, usize, usize) {
    tasks.fold((0, 0, 0), |(yes, no, all), verdict| match verdict {
        Verdict::Guaranteed { .. } => (yes + 1, no, all + 1),
        Verdict::NotGuaranteed { .. } => (yes, no + 1, all + 1),
        Verdict::Unknown { .. } => (yes, no, all + 1),
    })
}

fn guaranteed(guarantees: &Guarantees, group: &str, has_deadlines: bool) -> Markup {
    let of_group = guarantees.tasks.iter().filter(|task| task.parent == group);
    match counts(of_group.map(|task| &task.verdict)) {
        (_, _, 0) if has_deadlines => pill(Tone::Warn, "not analysed"),
        (_, _, 0) => pill(Tone::Plain, "no deadline"),
        (yes, _, all) if yes == all => pill(Tone::Good, "guaranteed"),
        (_, no @ 1.., all) => pill(Tone::Bad, &format!("{no} of {all} tasks not")),
        (yes, _, all) => pill(Tone::Warn, &format!("{} of {all} tasks undecided", all - yes)),
    }
}

/// The verdict: a sentence, then a row per domain.
pub(super) fn section(page: &Page<'_>) -> Section {
    let table = match page.columns {
        [one] => single(one, page.guarantees),
        several => side_by_side(several, page.guarantees).upright(several.len()),
    };
    Section::new(
        "verdict",
        "Verdict",
        html! {
            (disturbances(page)) (banner(page)) (unmeasured(page)) (table) (remedies(page)) (warnings(page))
        },
    )
}

/// Whether the machine disturbed a live run.
fn disturbances(page: &Page<'_>) -> Markup {
    let of = |column: &Column| {
        let sentences = disturbance::sentences(&column.results);
        let is_disturbed =
            column.results.processors.iter().any(|processor| {
                processor.disturbance.as_ref().is_some_and(|disturbance| disturbance.count > 0)
            });
        (column.label.clone(), sentences, if is_disturbed { Tone::Warn } else { Tone::Plain })
    };
    let told: Vec<_> =
        page.columns.iter().map(of).filter(|(_, sentences, _)| !sentences.is_empty()).collect();
    html! {
        @for (label, sentences, tone) in &told {
            div.banner.(tone.class()) {
                span.icon aria-hidden="true" { (tone.mark()) }
                div {
                    p.lead {
                        @if page.columns.len() > 1 { (label) ": " }
                        (sentences[0])
                    }
                    @for sentence in &sentences[1..] { p { (sentence) } }
                }
            }
        }
    }
}

/// The domains whose jobs are not measured, with the reason.
fn unmeasured(page: &Page<'_>) -> Markup {
    let domains = page.columns.iter().flat_map(|column| {
        column
            .results
            .domains
            .iter()
            .filter_map(move |domain| Some((column, domain, domain.verdict.as_ref()?)))
    });
    html! {
        @for (column, domain, verdict) in domains {
            div.banner.bad {
                span.icon aria-hidden="true" { (Tone::Bad.mark()) }
                div {
                    p.lead {
                        @if page.columns.len() > 1 { (column.label) ", " }
                        (domain.name) ": " (verdict.fault.words())
                    }
                    p { (verdict.reason) ". Jobs that it did not report count as missed." }
                }
            }
        }
    }
}

/// The verdict in words.
struct Sentence {
    lead: String,
    rest: String,
    tone: Tone,
}

/// What was measured, and below it what the analysis says: each has a tone of its own, so that deadlines that
/// were met look so although nothing guarantees them.
fn banner(page: &Page<'_>) -> Markup {
    let measured = match page.columns {
        [one] => with_packets(of_one(&one.results), &one.results),
        several => of_several(several),
    };
    let guaranteed = page.guarantees.map(|guarantees| of_analysis(guarantees, page.columns));
    html! {
        (sentence(&measured))
        @if let Some(guaranteed) = guaranteed { (sentence(&guaranteed)) }
    }
}

fn sentence(Sentence { lead, rest, tone }: &Sentence) -> Markup {
    html! {
        div.banner.(tone.class()) {
            span.icon aria-hidden="true" { (tone.mark()) }
            div {
                p.lead { (lead) }
                @if !rest.is_empty() { p { (rest) } }
            }
        }
    }
}

fn of_several(columns: &[Column]) -> Sentence {
    let Headline { lead, rest, one_met } =
        headline(columns.iter().map(|column| (column.label.as_str(), &column.results)));
    let tone = match one_met {
        Some(true) => Tone::Good,
        Some(false) => Tone::Bad,
        None => Tone::Plain,
    };
    Sentence { lead, rest, tone }
}

/// What the analysis guarantees, and which of the deadlines in the results it does not cover.
fn of_analysis(guarantees: &Guarantees, columns: &[Column]) -> Sentence {
    let (yes, no, all) = counts(guarantees.tasks.iter().map(|task| &task.verdict));
    let refuted = (no > 0).then(|| format!("refutes {no} with a counter-example"));
    let undecided = (all > yes + no).then(|| format!("cannot decide {}", all - yes - no));
    let others: Vec<String> = refuted.into_iter().chain(undecided).collect();
    let lead = match all {
        0 => "No task has a deadline to guarantee".to_owned(),
        _ if yes == all => format!("Analysis guarantees all {all} tasks"),
        _ => format!("Analysis guarantees {yes} of {all} tasks; it {}", others.join(" and ")),
    };
    let mut rest = match all {
        0 => String::new(),
        _ => "What it guarantees holds for every release pattern that the host permits.".to_owned(),
    };
    // Chains, and tasks that packets release, have deadlines too.
    let mut left_out: Vec<String> = Vec::new();
    for group in columns.iter().flat_map(|column| groups(&column.results)) {
        let is_covered = guarantees.tasks.iter().any(|task| task.parent == group.name);
        if group.jobs.due > 0 && !is_covered && !left_out.contains(&group.name) {
            left_out.push(group.name);
        }
    }
    if !left_out.is_empty() {
        rest += &format!(" It leaves {} undecided.", left_out.join(", "));
    }
    let tone = if yes == all && left_out.is_empty() { Tone::Good } else { Tone::Warn };
    Sentence { lead, rest: rest.trim_start().to_owned(), tone }
}

fn with_packets(sentence: Sentence, results: &Results) -> Sentence {
    match packets(results) {
        None => sentence,
        Some((text, true)) => Sentence { rest: format!("{} {text}", sentence.rest), ..sentence },
        Some((text, false)) => {
            let lead = match sentence.tone {
                Tone::Bad => sentence.lead,
                _ => "Packets were late or lost".to_owned(),
            };
            Sentence { lead, rest: format!("{} {text}", sentence.rest), tone: Tone::Bad }
        }
    }
}

fn of_one(results: &Results) -> Sentence {
    let (due, missed) = total(results);
    let runs = results.chains.iter().fold(0u64, |runs, chain| runs.saturating_add(chain.jobs.due));
    let of = match runs {
        0 => format!("{} jobs", fmt_count(due)),
        runs => format!("{} jobs and {} runs through chains", fmt_count(due - runs), fmt_count(runs)),
    };
    let sentence = |lead: &str, rest: String, tone| Sentence { lead: lead.to_owned(), rest, tone };
    if due == 0 {
        return sentence("No job was due", "Nothing can be said about deadlines.".into(), Tone::Plain);
    }
    if missed == 0 {
        return sentence("Every deadline was met", format!("{of} due, none missed."), Tone::Good);
    }
    let groups = groups(results);
    let judged = groups.iter().filter(|group| group.jobs.due > 0).count();
    let late = groups.iter().filter(|group| group.jobs.missed > 0).count();
    let what = if runs > 0 { "domains and chains" } else { "domains" };
    let lead = match judged {
        1 => "Deadlines were missed".to_owned(),
        _ => format!("{late} of {judged} {what} missed deadlines"),
    };
    let (missed, share) = (fmt_count(missed), fmt_share(missed, due));
    sentence(&lead, format!("{missed} of {of} missed theirs ({share}).{}", worst(results)), Tone::Bad)
}

/// The task or chain with the greatest share of late jobs, as a sentence.
fn worst(results: &Results) -> String {
    let tasks =
        results.tasks.iter().map(|task| (format!("{}/{}", task.parent, task.name), &task.jobs, "its jobs"));
    let chains = results.chains.iter().map(|chain| (chain_name(chain), &chain.jobs, "its runs"));
    let worst = tasks.chain(chains).max_by(|a, b| {
        // The first of equals: `max_by` keeps the last.
        a.1.miss_ppm().cmp(&b.1.miss_ppm()).then(std::cmp::Ordering::Greater)
    });
    worst.map_or_else(String::new, |(name, jobs, what)| {
        format!(" Worst: {name}, {} of {what}.", fmt_share(jobs.missed, jobs.due))
    })
}

fn single(column: &Column, guarantees: Option<&Guarantees>) -> Table {
    let mut table = Table::new("Verdict by domain", "Domain", &["Measured"]);
    let analysis = guarantees.map(|_| "Analysis");
    let numbers = ["Jobs due", "Missed", "Response p99", "Longest", "Processor time"];
    analysis.into_iter().chain(numbers).for_each(|name| table.column(name));
    let results = &column.results;
    let whole = results.duration_ns.saturating_mul(results.runs.into());
    for group in groups(results) {
        let mut row = vec![Cell::text(measured(&group.jobs))];
        row.extend(guarantees.map(|all| Cell::text(guaranteed(all, &group.name, group.jobs.due > 0))));
        let response = &group.jobs.response;
        let latency = |ns: u64| if response.count() == 0 { "-".into() } else { fmt_ns(ns) };
        row.extend(
            [
                fmt_count(group.jobs.due),
                fmt_count(group.jobs.missed),
                latency(response.quantile_ppm(990_000).as_ns()),
                latency(response.max().as_ns()),
                group.cpu_time_ns.map_or("-".into(), |time| fmt_share(time, whole)),
            ]
            .map(Cell::number),
        );
        table.row(group.name, row);
    }
    table
}

fn side_by_side(columns: &[Column], guarantees: Option<&Guarantees>) -> Table {
    let mut table = Table::new("Verdict by domain and result", "Domain", &[]);
    columns.iter().for_each(|column| table.column(&column.label));
    if guarantees.is_some() {
        table.column("Analysis");
    }
    let all: Vec<Vec<Group>> = columns.iter().map(|column| groups(&column.results)).collect();
    let is_judged = |name: &str| all.iter().flatten().any(|group| group.name == name && group.jobs.due > 0);
    for name in names(columns) {
        let of_column = |groups: &Vec<Group>| match groups.iter().find(|group| group.name == name) {
            Some(group) => measured(&group.jobs),
            None => pill(Tone::Plain, "not there"),
        };
        let measured = all.iter().map(of_column);
        let guaranteed = guarantees.map(|all| guaranteed(all, &name, is_judged(&name)));
        let cells: Vec<Cell> = measured.chain(guaranteed).map(Cell::text).collect();
        table.row(name, cells);
    }
    table
}

/// Budgets that would settle what is not guaranteed.
fn remedies(page: &Page<'_>) -> Markup {
    let remedies = page.guarantees.map_or(&[][..], |guarantees| &guarantees.remedies);
    html! {
        @if !remedies.is_empty() {
            h3 { "What would help" @if remedies.len() > 1 { ", each by itself" } }
            ul.notes {
                @for remedy in remedies { li { strong { (remedy.vcpu) } ": " (fmt_remedy(remedy)) } }
            }
        }
    }
}

fn warnings(page: &Page<'_>) -> Markup {
    let of_analysis = page.guarantees.map_or(&[][..], |guarantees| &guarantees.warnings);
    let of_results = page.columns.iter().find_map(|column| column.results.free_scheduling());
    let is_said = |text: &str| of_analysis.iter().any(|warning| warning.text == text);
    let told = of_analysis.iter().map(|warning| (warning.about.as_str(), warning.text.as_str()));
    let warnings: Vec<(&str, &str)> =
        told.chain(of_results.filter(|text| !is_said(text)).map(|text| ("machine", text))).collect();
    let title = "What to know about this host";
    let list = html! {
        ul.notes {
            @for (about, text) in &warnings { li { strong { (about) } ": " (text) } }
        }
    };
    match warnings.len() {
        0 => html! {},
        1..=WARNINGS_MAX => html! { h3 { (title) } (list) },
        n => details(&format!("{title} ({n})"), list),
    }
}
