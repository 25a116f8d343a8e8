//! Options of policies and disciplines.

use punctual_sched::registry::{OptionValue, Options, ParamInfo, ParamKind, PolicyInfo};

use super::error::Place;
use super::fields::{Problems, shorten};
use super::key::Optioned;
use super::quantity;
use super::tree::{Entry, Value};
use crate::host::PolicyChoice;

/// A policy with its options and where they were given.
pub(crate) struct Chosen {
    pub(crate) choice: PolicyChoice,
    pub(crate) name_place: Place,
    pub(crate) option_places: OptionPlaces,
}

/// Reads the options of `policy` from a table; `own` keys of that table are not options.
pub(crate) fn policy_options(
    policy: &'static PolicyInfo,
    entry: Option<&Entry>,
    name_place: &Place,
    own: &[&'static str],
    problems: &mut Problems,
) -> Chosen {
    let (options, option_places) = option_values(policy.into(), entry, own, problems);
    let choice = PolicyChoice { info: policy, options };
    Chosen { choice, name_place: name_place.clone(), option_places }
}

/// Where options were given.
pub(crate) type OptionPlaces = Vec<(&'static str, Place)>;

/// Reads the options of a policy or discipline from a table; `own` keys of that table are not options.
pub(crate) fn option_values(
    of: Optioned,
    entry: Option<&Entry>,
    own: &[&'static str],
    problems: &mut Problems,
) -> (Options, OptionPlaces) {
    let mut options = Options::new();
    let mut option_places = Vec::new();
    match entry.map(|e| (e, &e.node.value)) {
        Some((_, Value::Table(table))) => {
            problems.check_options(table, of, own);
            for option in of.options {
                let Some(given) = table.get(option.name) else { continue };
                option_places.push((option.name, given.place()));
                let value = problems.option(given, option.kind);
                if let Some(value) = value.filter(|v| default_value(option) != Some(*v)) {
                    options.set(option.name, value);
                }
            }
        }
        Some((entry, other)) => {
            let message = format!("`{}` is {}", shorten(&entry.key), other.kind());
            let names: Vec<&str> = of.options.iter().map(|o| o.name).collect();
            problems.add(
                &entry.place(),
                message,
                format!("expected a table of options: {}", names.join(", ")),
            );
        }
        None => {}
    }
    (options, option_places)
}

/// An option's default as a value.
pub(crate) fn default_value(option: &ParamInfo) -> Option<OptionValue> {
    let text = option.default?;
    let word = |words: &[&'static str]| words.iter().find(|w| **w == text).map(|w| OptionValue::Word(w));
    let duration = || quantity::duration(text).ok().map(OptionValue::Duration);
    match option.kind {
        ParamKind::Duration => duration(),
        ParamKind::DurationOr(words) => word(words).or_else(duration),
        ParamKind::Count { .. } => text.parse().ok().map(OptionValue::Count),
        ParamKind::Flag => text.parse().ok().map(OptionValue::Flag),
        ParamKind::Choice(words) => word(words),
    }
}

/// Builds the policy once to hear what it says about its options.
pub(crate) fn check_options(chosen: &Chosen, cpus: usize, problems: &mut Problems) {
    if let Err(e) = (chosen.choice.info.build)(cpus, &chosen.choice.options) {
        let given = chosen.option_places.iter().find(|(name, _)| *name == e.option);
        let place = given.map_or(&chosen.name_place, |(_, place)| place);
        let message = format!("policy `{}` refuses `{}`", chosen.choice.info.name, e.option);
        problems.add(place, message, format!("expected {}", e.expected));
    }
}
