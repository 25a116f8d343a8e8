//! Reads a limits file.

use super::keys::LIMITS;
use crate::acceptance::{LOADS, Limit, Limits, Measure, PlaceLimits, Statistic};
use crate::file::entry::shorten;
use crate::file::error::Errors;
use crate::file::key::Kind;
use crate::file::limits::PROCESSORS_MAX;
use crate::file::load::{as_text, read_tree};
use crate::file::nearest::nearest;
use crate::file::section::Section;
use crate::file::source::Place;
use crate::file::tree::Value;

/// Validates a limits file; `file_name` is what errors call it.
///
/// # Errors
/// All that is wrong with it: each with its line, what was expected, and the nearest name.
pub fn parse_limits(bytes: &[u8], file_name: &str) -> Result<Limits, Errors> {
    let text = as_text(bytes, file_name)?;
    let mut errors = Errors::in_file(file_name, text);
    let Some(root) = read_tree(text, 0, &mut errors) else { return Err(errors.sorted()) };
    let section = Section { table: &root, info: &LIMITS, place: Place::TOP, name: "" };
    section.check_keys(&mut errors);
    let host = section.table("host", &mut errors);
    let guests = section.named("guest", &mut errors);
    let limits = Limits {
        seconds_min: section.count("seconds_min", &mut errors).unwrap_or(0),
        loads: loads(section, &mut errors),
        host: host.map(|host| place(host, "processor", &mut errors)).unwrap_or_default(),
        guests: guests
            .into_iter()
            .map(|guest| (guest.name.to_owned(), place(guest, "vcpu", &mut errors)))
            .collect(),
    };
    let is_empty = limits.host.is_empty() && limits.guests.iter().all(|(_, limits)| limits.is_empty());
    if errors.count() == 0 && is_empty {
        let expected = "expected at least one, for example `[host.wakeup]` with `max_us = 100`";
        errors.add(Place::TOP, "the file has no limit", expected);
    }
    if errors.count() > 0 { Err(errors.sorted()) } else { Ok(limits) }
}

fn loads(section: Section<'_>, errors: &mut Errors) -> Vec<String> {
    let expected = format!("expected some of {}", LOADS.join(", "));
    let Some(texts) = section.get("loads").and_then(|entry| entry.texts(&expected, errors)) else {
        return Vec::new();
    };
    let mut names: Vec<String> = Vec::new();
    for (text, place) in texts {
        if !LOADS.contains(&text) {
            let message = format!("no load is called \"{}\"", shorten(text));
            errors.add_nearest(place, message, expected.clone(), nearest(text, LOADS));
        } else if !names.iter().any(|name| name == text) {
            names.push(text.to_owned());
        }
    }
    names
}

/// The limits in a table of the host or a guest; `single` is its key for tables of single processors.
fn place(section: Section<'_>, single: &'static str, errors: &mut Errors) -> PlaceLimits {
    let every = measures(section, errors);
    PlaceLimits { every, single: numbered(section, single, errors) }
}

fn measures(section: Section<'_>, errors: &mut Errors) -> Vec<Limit> {
    let mut limits = Vec::new();
    for measure in Measure::ALL {
        let Some(table) = section.table(measure.name(), errors) else { continue };
        for statistic in STATISTICS.into_iter().filter(|one| table.info.key(one.key()).is_some()) {
            let most = table.count(statistic.key(), errors);
            limits.extend(most.map(|most| Limit { measure, statistic, most }));
        }
    }
    limits
}

const STATISTICS: [Statistic; 8] = [
    Statistic::P50,
    Statistic::P90,
    Statistic::P99,
    Statistic::P999,
    Statistic::P9999,
    Statistic::P99999,
    Statistic::Max,
    Statistic::Lost,
];

/// Tables by the number of a processor.
fn numbered(section: Section<'_>, key: &'static str, errors: &mut Errors) -> Vec<(usize, Vec<Limit>)> {
    let Some(entry) = section.get(key) else { return Vec::new() };
    let Some(Kind::Numbered(info)) = section.info.key(key).map(|key| key.kind) else {
        unreachable!("{key} has tables by number")
    };
    let Value::Table(by_number) = &entry.node.value else {
        entry.wrong_kind(format!("expected tables by number: {}", info.title), errors);
        return Vec::new();
    };
    let mut all = Vec::new();
    for entry in &by_number.entries {
        // `07` would be a second spelling of 7.
        let number = entry.key.parse::<u64>().ok().filter(|number| number.to_string() == entry.key);
        let Some(number) = number.filter(|&number| number < PROCESSORS_MAX) else {
            let message = format!("`{}` is not the number of a {key}", shorten(&entry.key));
            let expected = format!("expected a whole number from 0 to {}", PROCESSORS_MAX - 1);
            errors.add(entry.key_place, message, expected);
            continue;
        };
        let Some(table) = Section::of(entry, info, errors) else { continue };
        table.check_keys(errors);
        all.push((number as usize, measures(table, errors)));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(text: &str) -> String {
        parse_limits(text.as_bytes(), "limits.toml").expect_err("it is wrong").render(false)
    }

    #[test]
    fn limits_of_host_guests_and_single_processors_are_read() {
        let text = "seconds_min = 300\nloads = ['cpu', 'net']\n[host.wakeup]\nmax_us = 100\np99_us = 40\n\
                    [host.processor.3.hardware]\nmax_us = 9\n[guest.vm1.noise]\nlost_ppm = 100\n\
                    [guest.vm1.vcpu.1.wakeup]\nmax_us = 60\n";
        let limits = parse_limits(text.as_bytes(), "limits.toml").expect("valid");
        let limit = |measure, statistic, most| Limit { measure, statistic, most };
        let expected = Limits {
            seconds_min: 300,
            loads: vec!["cpu".into(), "net".into()],
            host: PlaceLimits {
                every: vec![
                    limit(Measure::Wakeup, Statistic::P99, 40),
                    limit(Measure::Wakeup, Statistic::Max, 100),
                ],
                single: vec![(3, vec![limit(Measure::Hardware, Statistic::Max, 9)])],
            },
            guests: vec![(
                "vm1".into(),
                PlaceLimits {
                    every: vec![limit(Measure::Noise, Statistic::Lost, 100)],
                    single: vec![(1, vec![limit(Measure::Wakeup, Statistic::Max, 60)])],
                },
            )],
        };
        assert_eq!(limits, expected);
    }

    #[test]
    fn errors_have_the_line_what_was_expected_and_the_nearest_name() {
        let text = "loads = ['cpus']\n[host.wakeup]\nmax = 5\np99_us = 0\n[host.noise]\np99_us = 4\n\
                    [host.processor.03.wakeup]\nmax_us = 1\n";
        insta::assert_snapshot!(errors(text));
    }

    #[test]
    fn a_file_without_a_limit_is_refused() {
        for text in ["", "seconds_min = 4\n", "[host.wakeup]\n"] {
            assert!(errors(text).contains("has no limit"), "{text}");
        }
    }
}
