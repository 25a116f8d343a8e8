//! Every claim can agree and can differ: for each of its comparisons there are results with which only this
//! one fails. Exact, without a run: comparisons are bounds on differences of measures, and Bellman and Ford's
//! algorithm finds values within the measures' ranges that keep all of them, or shows that there are none.

use std::collections::BTreeMap;

use punctual_reproduce::Measures;
use punctual_reproduce::claims::{Claim, Clause, Quantifier, Relation, Right, Verdict};
use punctual_reproduce::papers;

/// What a strict comparison leaves between its sides: less than any tolerance of a claim.
const STRICT: f64 = 1e-3;

/// A measure, or `None` for zero.
type Side = Option<String>;

/// `left` is at most `right` + `most`.
#[derive(Clone, Debug)]
struct Bound {
    left: Side,
    right: Side,
    most: f64,
}

fn bound(left: &Side, right: &Side, most: f64) -> Bound {
    Bound { left: left.clone(), right: right.clone(), most }
}

/// One measure of a clause beside one of the other side, or beside a number.
#[derive(Debug)]
struct Comparison<'a> {
    clause: &'a Clause,
    left: Side,
    right: Side,
    number: f64,
}

impl Comparison<'_> {
    fn of(claim: &Claim) -> Vec<Comparison<'_>> {
        let mut all = Vec::new();
        for clause in &claim.check {
            let rights = match &clause.right {
                Right::Number(number) => vec![(None, *number)],
                Right::Measures(patterns) => {
                    patterns.iter().flat_map(|p| Measures::names(p)).map(|name| (Some(name), 0.0)).collect()
                }
            };
            for left in clause.left.iter().flat_map(|pattern| Measures::names(pattern)) {
                let left = Some(left);
                all.extend(rights.iter().map(|(right, number)| Comparison {
                    clause,
                    left: left.clone(),
                    right: right.clone(),
                    number: *number,
                }));
            }
        }
        all
    }

    /// `left - right` is at most this far above the number.
    fn below(&self, distance: f64) -> Bound {
        bound(&self.left, &self.right, self.number + distance)
    }

    /// `left - right` is at most this far below the number.
    fn above(&self, distance: f64) -> Bound {
        bound(&self.right, &self.left, distance - self.number)
    }

    fn holds(&self) -> Vec<Bound> {
        let Clause { tolerance, by, .. } = *self.clause;
        match self.clause.is {
            Relation::Less => vec![self.below(tolerance - by - STRICT)],
            Relation::AtMost => vec![self.below(tolerance)],
            Relation::Greater => vec![self.above(tolerance - by - STRICT)],
            Relation::AtLeast => vec![self.above(tolerance)],
            Relation::About => vec![self.below(tolerance), self.above(tolerance)],
        }
    }

    /// The ways in which it can fail.
    fn fails(&self) -> Vec<Bound> {
        let Clause { tolerance, by, .. } = *self.clause;
        // Equal sides are neither less nor greater; a sum with `by` may not come out equal.
        let strict = if by == tolerance { 0.0 } else { STRICT };
        match self.clause.is {
            Relation::Less => vec![self.above(by - tolerance - strict)],
            Relation::AtMost => vec![self.above(-tolerance - STRICT)],
            Relation::Greater => vec![self.below(by - tolerance - strict)],
            Relation::AtLeast => vec![self.below(-tolerance - STRICT)],
            Relation::About => vec![self.above(-tolerance - STRICT), self.below(-tolerance - STRICT)],
        }
    }
}

/// Can the measure be below zero? Those are differences.
fn signed(name: &str) -> bool {
    ["less_than_", "more_", "less_", "busier_", ".growth."].iter().any(|part| name.contains(part))
}

/// What a measure can be at all: nothing is negative, and no share is above 100 %.
fn range(name: &str) -> Vec<Bound> {
    let measure = Some(name.to_string());
    let mut range = Vec::new();
    if !signed(name) {
        range.push(bound(&None, &measure, 0.0));
        if name.contains("percent") || name.starts_with("table2.") || name.contains(".miss") {
            range.push(bound(&measure, &None, 100.0));
        }
    }
    range
}

/// Values that keep all of `bounds` and lie in their measures' ranges.
fn values(bounds: &[Bound]) -> Option<BTreeMap<String, f64>> {
    let mut at: BTreeMap<Side, f64> = bounds
        .iter()
        .flat_map(|bound| [&bound.left, &bound.right])
        .chain([&None])
        .map(|side| (side.clone(), 0.0))
        .collect();
    let names: Vec<String> = at.keys().flatten().cloned().collect();
    let all: Vec<Bound> = bounds.iter().cloned().chain(names.iter().flat_map(|name| range(name))).collect();
    for _ in 0..=at.len() {
        let mut settled = true;
        for bound in &all {
            let limit = at[&bound.right] + bound.most;
            // Sums of the same numbers in another order differ in the last bits.
            if at[&bound.left] > limit + 1e-9 {
                at.insert(bound.left.clone(), limit);
                settled = false;
            }
        }
        if settled {
            let zero = at[&None];
            return Some(names.into_iter().map(|name| (name.clone(), at[&Some(name)] - zero)).collect());
        }
    }
    None
}

fn verdict(claim: &Claim, values: BTreeMap<String, f64>) -> Verdict {
    let mut measures = Measures::default();
    for comparison in Comparison::of(claim) {
        for name in [comparison.left, comparison.right].into_iter().flatten() {
            if measures.get(&name).is_none() {
                let value = values.get(&name).copied().unwrap_or(0.0);
                measures.set(name, vec![value]);
            }
        }
    }
    claim.judge(&measures).verdict
}

/// What is wrong with the claim's check.
fn faults(claim: &Claim) -> Vec<String> {
    let all = Comparison::of(claim);
    let hold: Vec<Bound> = all.iter().flat_map(Comparison::holds).collect();
    let mut faults = Vec::new();
    match values(&hold).map(|values| verdict(claim, values)) {
        Some(Verdict::Agrees) => {}
        other => faults.push(format!("no results agree with it: {other:?}")),
    }
    if claim.hold == Quantifier::Most {
        let fail: Vec<Bound> = all.iter().filter_map(|one| one.fails().into_iter().next()).collect();
        match values(&fail).map(|values| verdict(claim, values)) {
            Some(Verdict::Differs) => {}
            other => faults.push(format!("no results differ from it: {other:?}")),
        }
        return faults;
    }
    for (at, one) in all.iter().enumerate() {
        let others = all.iter().enumerate().filter(|(other, _)| *other != at);
        let others: Vec<Bound> = others.flat_map(|(_, other)| other.holds()).collect();
        let turned = one.fails().into_iter().any(|fails| {
            let bounds: Vec<Bound> = others.iter().cloned().chain([fails]).collect();
            values(&bounds).is_some_and(|values| verdict(claim, values) == Verdict::Differs)
        });
        if !turned {
            faults.push(format!("cannot fail alone: {:?} {:?} {:?}", one.left, one.clause.is, one.right));
        }
    }
    // What the paper prints is no result.
    let sides = all.iter().flat_map(|one| [&one.left, &one.right]).flatten();
    let printed = sides.filter(|name| name.split('.').any(|part| part.starts_with("paper")));
    faults.extend(printed.map(|name| format!("{name} is the paper's, not a result")));
    faults
}

#[test]
fn every_comparison_of_every_claim_can_turn_the_verdict() {
    let papers = [
        papers::rt_xen().1,
        papers::rtca().1,
        papers::vmm_io().1,
        papers::nautilus().1,
        papers::rt_stack().1,
    ];
    let claims = papers.iter().flatten();
    let found: Vec<String> = claims
        .filter(|claim| !claim.check.is_empty())
        .flat_map(|claim| faults(claim).into_iter().map(|fault| format!("{}: {fault}", claim.id)))
        .collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// `docs/reproduce.md` says how many claims of each paper have which verdict in a full run.
#[test]
fn the_manual_counts_the_recorded_verdicts() {
    let manual = include_str!("../../../docs/reproduce.md");
    let papers = [
        ("rt-xen", papers::rt_xen().1),
        ("rtca", papers::rtca().1),
        ("vmm-io", papers::vmm_io().1),
        ("nautilus", papers::nautilus().1),
        ("rt-stack", papers::rt_stack().1),
    ];
    for (paper, claims) in papers {
        let count = |verdict| claims.iter().filter(|claim| claim.expect == verdict).count();
        let [agree, average, differ, other] =
            [Verdict::Agrees, Verdict::OnAverage, Verdict::Differs, Verdict::NotComparable].map(count);
        let all = claims.len();
        let row = format!("| `{paper}` | {all} | {agree} | {average} | {differ} | {other} |");
        assert!(manual.lines().any(|line| line == row), "docs/reproduce.md lacks {row}");
    }
}

fn claim(check: &str) -> Claim {
    let head = "id = 'c'\nsection = '1'\nstatement = 's'\npaper = 'p'\nexpect = 'agrees'\n";
    toml::from_str(&format!("{head}{check}")).expect("a claim")
}

#[test]
fn a_check_that_cannot_fail_is_found() {
    let checks = [
        "check = [{ left = ['a.percent'], is = '<=', right = 100 }]",
        "check = [{ left = ['a_us'], is = '>=', right = 0 }]",
        "check = [{ left = ['a_us'], is = '<=', right = ['a_us'] }]",
        "check = [{ left = ['a_us'], is = '<', right = 2 }, { left = ['a_us'], is = '<', right = 3 }]",
        "check = [{ left = ['paper.a_us'], is = '<', right = 2 }]",
    ];
    for check in checks {
        assert_eq!(faults(&claim(check)).len(), 1, "{check}");
    }
}

#[test]
fn a_check_that_cannot_hold_is_found() {
    let check = "check = [
        { left = ['a_us'], is = '>', right = ['b_us'] },
        { left = ['b_us'], is = '>', right = ['a_us'] },
    ]";
    assert!(faults(&claim(check))[0].contains("no results agree"));
}

#[test]
fn a_check_that_can_hold_and_fail_has_no_faults() {
    let check = "check = [
        { left = ['(a|b)_us'], is = '~', right = 5, tolerance = 1 },
        { left = ['a_us'], is = '<', right = ['b_us'] },
    ]";
    assert_eq!(faults(&claim(check)), [""; 0]);
}
