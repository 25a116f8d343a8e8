//! Of several results, in a sentence: which of them kept every deadline.

use punctual_model::Results;
use punctual_model::results::FlowResult;

use crate::format::{fmt_count, fmt_share};

/// More results than this are counted instead of named.
const NAMED: usize = 4;

/// What several results say together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Headline {
    /// Which of them missed no deadline.
    pub lead: String,
    /// What the others missed; may be empty.
    pub rest: String,
    /// Did one of them at least keep every deadline? Nothing where no job was due.
    pub one_met: Option<bool>,
}

/// Jobs due and missed over all tasks and chains.
pub fn total(results: &Results) -> (u64, u64) {
    let chains = results.chains.iter().map(|chain| &chain.jobs);
    let all = results.tasks.iter().map(|task| &task.jobs).chain(chains);
    all.fold((0, 0), |(due, missed): (u64, u64), jobs| {
        (due.saturating_add(jobs.due), missed.saturating_add(jobs.missed))
    })
}

/// What became of the packets of flows with a deadline, and whether none was late or lost; nothing if no flow
/// has one.
pub(crate) fn packets(results: &Results) -> Option<(String, bool)> {
    let flows: Vec<&FlowResult> = results.flows.iter().filter(|flow| flow.deadline_ns.is_some()).collect();
    let all = flows.iter().fold(0_u64, |sum, flow| sum.saturating_add(flow.packets.created));
    let mut missed: Vec<&FlowResult> = flows.iter().copied().filter(|flow| flow.missed()).collect();
    missed.sort_by_key(|flow| std::cmp::Reverse(flow.beyond()));
    if flows.is_empty() {
        return None;
    }
    if missed.is_empty() {
        return Some((format!("All {} packets with a deadline were in time.", fmt_count(all)), true));
    }
    let sum = missed.iter().fold(0_u64, |sum, flow| sum.saturating_add(flow.beyond()));
    let named: Vec<String> = missed
        .iter()
        .take(NAMED)
        .map(|flow| format!("{} {}", flow.name, fmt_share(flow.beyond(), flow.packets.created)))
        .collect();
    let more = match missed.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let (sum, all) = (fmt_count(sum), fmt_count(all));
    Some((
        format!("{sum} of {all} packets with a deadline were late or lost: {}{more}.", named.join(", ")),
        false,
    ))
}

/// A result with its deadlines.
struct Judged<'a> {
    label: &'a str,
    results: &'a Results,
    due: u64,
    missed: u64,
}

/// The headline of several results, each with its label.
pub(crate) fn headline<'a>(columns: impl Iterator<Item = (&'a str, &'a Results)>) -> Headline {
    let judge = |(label, results): (&'a str, &'a Results)| {
        let (mut due, mut missed) = total(results);
        for flow in results.flows.iter().filter(|flow| flow.deadline_ns.is_some()) {
            due = due.saturating_add(flow.packets.created);
            missed = missed.saturating_add(flow.beyond());
        }
        (due > 0).then_some(Judged { label, results, due, missed })
    };
    let judged: Vec<Judged<'_>> = columns.filter_map(judge).collect();
    let (met, late): (Vec<&Judged<'_>>, Vec<&Judged<'_>>) = judged.iter().partition(|of| of.missed == 0);
    let lead = match (met.as_slice(), late.len()) {
        ([], 0) => "No job was due".to_owned(),
        (all, 0) if all.len() == 2 => "Every deadline was met in both results".to_owned(),
        (all, 0) => format!("Every deadline was met in all {} results", all.len()),
        ([], _) => format!("No result met every deadline; fewest were missed in {}", fewest(&judged)),
        ([one], _) => format!("Only {} met every deadline", one.label),
        (several, _) => format!("{} met every deadline", listed(several)),
    };
    let mut rest = String::new();
    if !late.is_empty() {
        let missed = |of: &&Judged<'_>| format!("{} {}", of.label, fmt_share(of.missed, of.due));
        let mut shares: Vec<String> = late.iter().take(2 * NAMED).map(missed).collect();
        if late.len() > shares.len() {
            shares.push(format!("and {} more", late.len() - shares.len()));
        }
        let has_packets = judged.iter().any(|of| packets(of.results).is_some());
        let what = if has_packets { "jobs and packets with a deadline" } else { "jobs" };
        rest = format!("Missed of all {what}: {}.", shares.join(", "));
        rest += &undisturbed(&late);
    }
    Headline { lead, rest, one_met: (!judged.is_empty()).then_some(!met.is_empty()) }
}

/// Which results missed the smallest share.
fn fewest(judged: &[Judged<'_>]) -> String {
    // Shares without rounding: by cross multiplication.
    let is_less = |a: &Judged<'_>, b: &Judged<'_>| {
        u128::from(a.missed) * u128::from(b.due) < u128::from(b.missed) * u128::from(a.due)
    };
    let is_best = |a: &&Judged<'_>| !judged.iter().any(|b| is_less(b, a));
    listed(&judged.iter().filter(is_best).collect::<Vec<_>>())
}

/// Which live results missed none but the deadlines of jobs that met a disturbance of the machine; nothing
/// where that was not measured, or none of them did.
fn undisturbed(late: &[&Judged<'_>]) -> String {
    let is_machine =
        |of: &&&Judged<'_>| of.results.misses().is_some() && of.results.missed_undisturbed() == 0;
    let names: Vec<&Judged<'_>> = late.iter().filter(is_machine).copied().collect();
    match names.len() {
        0 => String::new(),
        _ => format!(" In {}, every late job coincided with a disturbance of the machine.", listed(&names)),
    }
}

/// `a`, `a and b`, `a, b and c`.
fn listed(results: &[&Judged<'_>]) -> String {
    let names: Vec<&str> = results.iter().map(|of| of.label).collect();
    match names.as_slice() {
        [] => String::new(),
        [one] => (*one).to_owned(),
        many if many.len() > NAMED => {
            format!("{} and {} more", many[..NAMED].join(", "), many.len() - NAMED)
        }
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

impl Headline {
    /// The whole in one paragraph.
    pub(crate) fn text(&self) -> String {
        match self.rest.as_str() {
            "" => format!("{}.", self.lead),
            rest => format!("{}. {rest}", self.lead),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{disturbed, results};

    fn of(columns: &[(&str, u64)]) -> String {
        let all: Vec<(&str, Results)> =
            columns.iter().map(|(label, late)| (*label, results(label, *late))).collect();
        headline(all.iter().map(|(label, of)| (*label, of))).text()
    }

    #[test]
    fn the_policies_that_work_are_named_first() {
        assert_eq!(of(&[("a", 0), ("b", 0)]), "Every deadline was met in both results.");
        assert_eq!(of(&[("a", 0), ("b", 700)]), "Only a met every deadline. Missed of all jobs: b 9.7 %.");
        let several = of(&[("a", 0), ("b", 700), ("c", 0), ("d", 1)]);
        assert_eq!(several, "a and c met every deadline. Missed of all jobs: b 9.7 %, d <0.1 %.");
        let none = of(&[("a", 12), ("b", 700)]);
        let start = "No result met every deadline; fewest were missed in a. Missed of all jobs: a ";
        assert!(none.starts_with(start), "{none}");
    }

    #[test]
    fn misses_that_were_all_the_machines_are_said_to_be() {
        let mut machine = disturbed(results("rtds", 20));
        for task in &mut machine.tasks {
            task.disturbed.as_mut().expect("it is disturbed").missed = task.jobs.missed;
        }
        let linux = disturbed(results("linux", 700));
        let text = headline([("rtds", &machine), ("linux", &linux)].into_iter()).text();
        assert!(
            text.ends_with(" In rtds, every late job coincided with a disturbance of the machine."),
            "{text}"
        );
    }
}
