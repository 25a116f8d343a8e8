//! Options of policies and disciplines.

use punctual_sched::Duration;
use punctual_sched::registry::{OptionValue, Options, ParamKind, PolicyInfo};

use super::entry::shorten;
use super::error::Errors;
use super::key::OptionOwner;
use super::section::unknown_key;
use super::source::{Place, Places};
use super::tree::{Entry, Table, Value};
use crate::host::PolicyChoice;

/// A policy with its options and where they were given.
pub(crate) struct PolicyDraft {
    pub(crate) choice: PolicyChoice,
    pub(crate) name_place: Place,
    pub(crate) option_places: Places,
}

/// Reads the options of `policy` from a table; `own` keys of that table are not options.
pub(crate) fn policy_options(
    policy: &'static PolicyInfo,
    entry: Option<&Entry>,
    name_place: Place,
    own: &[&'static str],
    errors: &mut Errors,
) -> PolicyDraft {
    let (options, option_places) = option_values(policy.into(), entry, own, errors);
    let choice = PolicyChoice { info: policy, options };
    PolicyDraft { choice, name_place, option_places }
}

/// Reads the options of a policy or discipline from a table; `own` keys of that table are not options.
pub(crate) fn option_values(
    of: OptionOwner,
    entry: Option<&Entry>,
    own: &[&'static str],
    errors: &mut Errors,
) -> (Options, Places) {
    let mut options = Options::new();
    let mut option_places = Places::default();
    match entry.map(|e| (e, &e.node.value)) {
        Some((_, Value::Table(table))) => {
            check_option_keys(table, of, own, errors);
            for option in of.options {
                let Some(given) = table.get(option.name) else { continue };
                option_places.add(option.name, given.place());
                let value = option_value(given, option.kind, errors);
                if let Some(value) = value.filter(|v| option.default_value() != Some(*v)) {
                    options.set(option.name, value);
                }
            }
        }
        Some((entry, other)) => {
            let message = format!("`{}` is {}", shorten(&entry.key), other.kind());
            let names: Vec<&str> = of.options.iter().map(|o| o.name).collect();
            errors.add(entry.place(), message, format!("expected a table of options: {}", names.join(", ")));
        }
        None => {}
    }
    (options, option_places)
}

/// Builds the policy once: building checks the options.
pub(crate) fn check_options(chosen: &PolicyDraft, cpus: usize, errors: &mut Errors) {
    if let Err(e) = chosen.choice.info.build(cpus, &chosen.choice.options) {
        let place = chosen.option_places.of(e.option).unwrap_or(chosen.name_place);
        let message = format!("policy `{}` refuses `{}`", chosen.choice.info.name, e.option);
        errors.add(place, message, format!("expected {}", e.expected));
    }
}

/// Adds an error for each key of a table of options that is neither an option nor one of `own`.
fn check_option_keys(table: &Table, of: OptionOwner, own: &[&'static str], errors: &mut Errors) {
    let title = &format!("{} `{}`", of.what, of.name);
    let names: Vec<&str> = own.iter().copied().chain(of.options.iter().map(|o| o.name)).collect();
    for entry in table.entries.iter().filter(|e| !names.contains(&e.key.as_str())) {
        unknown_key(title, names.clone(), entry, errors);
    }
}

/// The value of an option.
fn option_value(entry: &Entry, kind: ParamKind, errors: &mut Errors) -> Option<OptionValue> {
    match kind {
        ParamKind::Duration => entry.duration(Duration::ZERO, errors).map(OptionValue::Duration),
        ParamKind::DurationOr(words) => match &entry.node.value {
            Value::Text(text) if !text.trim().starts_with(|c: char| c.is_ascii_digit() || c == '-') => {
                entry.word(words, "a duration, or ", errors).map(OptionValue::Word)
            }
            _ => entry.duration(Duration::ZERO, errors).map(OptionValue::Duration),
        },
        ParamKind::Count { min, max } => entry.whole_number(min..=max, errors).map(OptionValue::Count),
        ParamKind::Flag => entry.flag(errors).map(OptionValue::Flag),
        ParamKind::Choice(words) => entry.word(words, "", errors).map(OptionValue::Word),
    }
}
