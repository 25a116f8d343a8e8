//! A paper's claims as data (`papers/*/claims.toml`) and their verdicts.
//!
//! A claim is a statement with a number or an ordering, as clauses over measures. Where a measure holds one
//! number for each task set, a claim is judged for every task set and for the means.

use serde::{Deserialize, Serialize};

use crate::measures::{Measures, mean, number, range, spread};

/// One statement of a paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Name, unique within the paper.
    pub id: String,
    pub section: String,
    /// What it says, in our words.
    pub statement: String,
    /// The paper's figure, for the line beside ours.
    pub paper: String,
    /// Our figure: text with measures in braces.
    #[serde(default)]
    pub ours: String,
    /// What must hold; empty when the claim cannot be compared.
    #[serde(default)]
    pub check: Vec<Clause>,
    /// Must every comparison hold, or more than half of them?
    #[serde(default)]
    pub hold: Quantifier,
    /// Why the verdict is as it is: text with measures in braces.
    #[serde(default)]
    pub because: String,
    /// The verdict that a run of this version is known to give; `--strict` fails on another one.
    pub expect: Verdict,
    /// Does it depend on time measured on this machine? Such claims never fail `--strict`.
    #[serde(default)]
    pub native: bool,
}

/// How many of a claim's comparisons must hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantifier {
    #[default]
    All,
    /// More than half, for statements about most cases.
    Most,
}

/// Compares every measure of `left` with every one of `right`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clause {
    /// Names of measures; `(a|b)` matches both.
    pub left: Vec<String>,
    pub is: Relation,
    /// A number, or names of measures.
    pub right: Right,
    /// Distance that still counts as equal, for [`Relation::About`]; slack for the others.
    #[serde(default)]
    pub tolerance: f64,
    /// The least distance that counts as a difference, for [`Relation::Less`] and [`Relation::Greater`].
    #[serde(default)]
    pub by: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Relation {
    #[serde(rename = "<")]
    Less,
    #[serde(rename = "<=")]
    AtMost,
    #[serde(rename = ">")]
    Greater,
    #[serde(rename = ">=")]
    AtLeast,
    /// No further apart than the tolerance.
    #[serde(rename = "~")]
    About,
}

/// The right side of a comparison.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Right {
    Number(f64),
    /// Names of measures; `(a|b)` matches both.
    Measures(Vec<String>),
}

/// How a claim fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Holds for every task set.
    Agrees,
    /// Holds for the means over the task sets, but not for every one of them.
    OnAverage,
    Differs,
    /// Says nothing that a simulation or this machine could measure.
    NotComparable,
    NotRun,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Verdict::Agrees => "agrees",
            Verdict::OnAverage => "agrees on average",
            Verdict::Differs => "differs",
            Verdict::NotComparable => "not comparable",
            Verdict::NotRun => "not run",
        })
    }
}

/// A claim with what came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Judged {
    /// [`Claim::id`].
    pub id: String,
    /// [`Claim::section`].
    pub section: String,
    /// [`Claim::statement`].
    pub statement: String,
    /// [`Claim::paper`].
    pub paper: String,
    /// [`Claim::ours`] with our numbers.
    pub ours: String,
    pub verdict: Verdict,
    pub holds: usize,
    pub task_sets: usize,
    /// [`Claim::because`] with our numbers.
    pub because: String,
    /// Is the verdict another one than [`Claim::expect`], for a claim that does not depend on this machine?
    pub unexpected: bool,
}

impl Claim {
    pub fn judge(&self, measures: &Measures) -> Judged {
        let (verdict, holds, task_sets) = self.verdict(measures);
        Judged {
            id: self.id.clone(),
            section: self.section.clone(),
            statement: self.statement.clone(),
            paper: self.paper.clone(),
            ours: fill(&self.ours, measures),
            verdict,
            holds,
            task_sets,
            because: fill(&self.because, measures),
            unexpected: verdict != self.expect && verdict != Verdict::NotRun && !self.native,
        }
    }

    fn verdict(&self, measures: &Measures) -> (Verdict, usize, usize) {
        if self.check.is_empty() {
            let shown = [&self.ours, &self.because].map(|text| fill(text, measures));
            let has_run = !shown.iter().any(|text| text.contains(NOT_RUN));
            return (if has_run { Verdict::NotComparable } else { Verdict::NotRun }, 0, 0);
        }
        let Some(pairs) = self.pairs(measures) else { return (Verdict::NotRun, 0, 0) };
        let task_sets = pairs.iter().flat_map(|p| [p.left.len(), p.right.len()]).max().unwrap_or(1);
        let holds = (0..task_sets).filter(|&seed| self.enough(&pairs, |v| at(v, seed))).count();
        let verdict = match self.enough(&pairs, mean) {
            true if holds == task_sets => Verdict::Agrees,
            true => Verdict::OnAverage,
            false => Verdict::Differs,
        };
        (verdict, holds, task_sets)
    }

    /// All comparisons; `None` when a measure was not taken.
    fn pairs<'a>(&'a self, measures: &'a Measures) -> Option<Vec<Pair<'a>>> {
        let mut pairs = Vec::new();
        for clause in &self.check {
            let rights = match &clause.right {
                Right::Number(n) => vec![std::slice::from_ref(n)],
                Right::Measures(names) => lookup(names, measures)?,
            };
            for left in lookup(&clause.left, measures)? {
                pairs.extend(rights.iter().map(|&right| Pair { clause, left, right }));
            }
        }
        Some(pairs)
    }

    fn enough(&self, pairs: &[Pair<'_>], value: impl Fn(&[f64]) -> f64) -> bool {
        let held = pairs.iter().filter(|p| p.clause.holds(value(p.left), value(p.right))).count();
        match self.hold {
            Quantifier::All => held == pairs.len(),
            Quantifier::Most => 2 * held > pairs.len(),
        }
    }
}

struct Pair<'a> {
    clause: &'a Clause,
    left: &'a [f64],
    right: &'a [f64],
}

impl Clause {
    fn holds(&self, left: f64, right: f64) -> bool {
        // Percentages come from divisions: a last-bit difference is not one.
        let slack = self.tolerance + 1e-9;
        match self.is {
            Relation::Less => left + self.by < right + self.tolerance,
            Relation::AtMost => left <= right + slack,
            Relation::Greater => left > right + self.by - self.tolerance,
            Relation::AtLeast => left >= right - slack,
            Relation::About => (left - right).abs() <= slack,
        }
    }
}

/// The number for task set `seed`; a measure without task sets holds for each.
fn at(values: &[f64], seed: usize) -> f64 {
    values[if values.len() == 1 { 0 } else { seed }]
}

/// All measures that `patterns` name; `None` when one was not taken.
fn lookup<'a>(patterns: &[String], measures: &'a Measures) -> Option<Vec<&'a [f64]>> {
    let found = patterns.iter().map(|pattern| measures.matching(pattern)).collect::<Option<Vec<_>>>()?;
    Some(found.concat())
}

/// The text in place of a measure that was not taken.
const NOT_RUN: &str = "(not run)";

/// Replaces each `{measure}` by its mean and range. `{a|max}` and `{a|min}` give one end of the range; with
/// several measures, `(x|y)`, over all of them.
fn fill(text: &str, measures: &Measures) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, (inside, after))) =
        rest.split_once('{').and_then(|(b, r)| Some((b, r.split_once('}')?)))
    {
        out += before;
        out += &shown(inside, measures);
        rest = after;
    }
    out + rest
}

fn shown(inside: &str, measures: &Measures) -> String {
    let (name, end) = match inside.rsplit_once('|') {
        Some((name, end @ ("max" | "min"))) => (name, Some(end)),
        _ => (inside, None),
    };
    let Some(values) = measures.matching(name) else { return NOT_RUN.into() };
    let values = values.concat();
    match end {
        Some("max") => number(range(&values).1),
        Some(_) => number(range(&values).0),
        None => spread(&values),
    }
}

/// The verdict on the claim called `id`, for tests that turn a knob of the model and expect another one.
#[cfg(test)]
pub(crate) fn verdict_on(claims: &[Claim], id: &str, measures: &Measures) -> Verdict {
    claims.iter().find(|claim| claim.id == id).expect("a claim").judge(measures).verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(check: &str) -> Claim {
        let head = "id = 'c'\nsection = '1'\nstatement = 's'\npaper = 'p'\nexpect = 'agrees'\n";
        toml::from_str(&format!("{head}{check}")).unwrap()
    }

    fn measures(list: &[(&str, &[f64])]) -> Measures {
        let mut m = Measures::default();
        list.iter().for_each(|(name, values)| m.set(*name, values.to_vec()));
        m
    }

    #[test]
    fn a_claim_that_holds_for_three_of_four_task_sets_agrees_on_average() {
        let c = claim("check = [{ left = ['a'], is = '<=', right = 5 }]");
        let judged = c.judge(&measures(&[("a", &[1.0, 2.0, 6.0, 3.0])]));
        assert_eq!((judged.verdict, judged.holds, judged.task_sets), (Verdict::OnAverage, 3, 4));
        assert!(judged.unexpected);
    }

    #[test]
    fn a_claim_whose_mean_fails_differs() {
        let c = claim("check = [{ left = ['a'], is = '<=', right = 5 }]");
        assert_eq!(c.judge(&measures(&[("a", &[1.0, 2.0, 99.0])])).verdict, Verdict::Differs);
    }

    #[test]
    fn measures_compare_task_set_by_task_set() {
        let c = claim("check = [{ left = ['a'], is = '<', right = ['b'] }]");
        assert_eq!(c.judge(&measures(&[("a", &[1.0, 9.0]), ("b", &[2.0, 10.0])])).verdict, Verdict::Agrees);
        assert_eq!(c.judge(&measures(&[("a", &[1.0, 2.0]), ("b", &[1.0, 2.0])])).verdict, Verdict::Differs);
    }

    #[test]
    fn most_needs_more_than_half_of_the_comparisons() {
        let c = claim("hold = 'most'\ncheck = [{ left = ['(a|b|c)'], is = '>', right = 1 }]");
        assert_eq!(
            c.judge(&measures(&[("a", &[2.0]), ("b", &[2.0]), ("c", &[0.0])])).verdict,
            Verdict::Agrees
        );
        assert_eq!(
            c.judge(&measures(&[("a", &[2.0]), ("b", &[0.0]), ("c", &[0.0])])).verdict,
            Verdict::Differs
        );
    }

    #[test]
    fn less_than_the_least_difference_is_none() {
        let c = claim("check = [{ left = ['a'], is = '>', right = ['b'], by = 0.02 }]");
        assert_eq!(c.judge(&measures(&[("a", &[1.403]), ("b", &[1.402])])).verdict, Verdict::Differs);
        assert_eq!(c.judge(&measures(&[("a", &[1.43]), ("b", &[1.402])])).verdict, Verdict::Agrees);
    }

    #[test]
    fn a_missing_measure_is_not_run_and_no_check_is_not_comparable() {
        let c = claim("check = [{ left = ['a'], is = '~', right = 1 }]");
        let judged = c.judge(&Measures::default());
        assert_eq!((judged.verdict, judged.unexpected), (Verdict::NotRun, false));
        assert_eq!(claim("").judge(&Measures::default()).verdict, Verdict::NotComparable);
    }

    #[test]
    fn texts_show_means_and_ranges() {
        let m = measures(&[("a.x", &[1.0, 3.0]), ("a.y", &[7.0])]);
        assert_eq!(fill("x = {a.x}; up to {a.(x|y)|max}; {b}", &m), "x = 2 (1 to 3); up to 7; (not run)");
    }

    #[test]
    fn an_unknown_key_in_a_claim_is_an_error() {
        let text = "id='c'\nsection='1'\nstatement='s'\npaper='p'\nexpect='agrees'\nbecuase='x'";
        assert!(toml::from_str::<Claim>(text).unwrap_err().to_string().contains("becuase"));
    }
}
