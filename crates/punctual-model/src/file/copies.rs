//! Tables of several tasks or flows that are alike: `copies = 3` in `[flow.sv]` makes `sv-1`,
//! `sv-2` and `sv-3`.

use std::collections::BTreeMap;

use punctual_sched::Duration;

use super::error::Errors;
use super::key::{ANY_TIME, KeyInfo, Kind, key};
use super::limits::{COPIES_MAX, NAME_MAX};
use super::quantity::YEAR;
use super::section::Section;
use super::source::Place;

/// The keys of a table that may be of several.
pub(crate) static COPY_KEYS: [KeyInfo; 2] = [
    key(
        "copies",
        Kind::Count { min: 1, max: COPIES_MAX },
        None,
        "There are so many that are alike, called NAME-1, NAME-2 and so on.",
    ),
    key(
        "stagger",
        ANY_TIME,
        Some("0ns"),
        "With `copies`: how much later than the one before it each of them begins.",
    ),
];

/// How many tasks or flows a table makes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copies {
    /// `None`: one, with the table's own name.
    count: Option<u64>,
    stagger: Duration,
}

impl Copies {
    /// One, with the table's own name.
    pub(crate) const ONE: Copies = Copies { count: None, stagger: Duration::ZERO };

    /// Reads the keys of a task or flow; one of the keys `begins` says when the first copy begins.
    pub(crate) fn read(section: Section<'_>, begins: &[&'static str], errors: &mut Errors) -> Self {
        let count = section.count("copies", errors);
        let stagger = section.duration_or_default("stagger", errors);
        if let (Some(entry), None) = (section.get("stagger"), section.get("copies")) {
            let expected = "expected `copies`, how many there are";
            errors.add(entry.key_place, "`stagger` is of no use without `copies`", expected);
        }
        let last = count.unwrap_or(1);
        if count.is_some() && copy_name(section.name, last).len() > NAME_MAX {
            let message = format!("`{}` is too long a name", copy_name(section.name, last));
            errors.add(
                section.place,
                message,
                format!("expected at most {NAME_MAX} characters with the number"),
            );
        }
        let first: Duration = begins.iter().map(|&key| section.duration_or_default(key, errors)).sum();
        if first + stagger * (last - 1) > YEAR && first <= YEAR {
            let message = format!("`{}` would begin after more than a year", copy_name(section.name, last));
            errors.add(section.place_of("stagger"), message, "expected fewer copies or a shorter `stagger`");
        }
        Copies { count, stagger }
    }

    pub(crate) fn count(self) -> usize {
        self.count.map_or(1, |count| count as usize)
    }

    /// The names of what a table called `table` makes, each with how much later it begins.
    pub(crate) fn each(self, table: &str) -> impl Iterator<Item = (String, Duration)> {
        (1..=self.count.unwrap_or(1)).map(move |n| {
            let own = if self.count.is_some() { copy_name(table, n) } else { table.to_owned() };
            (own, self.stagger * (n - 1))
        })
    }
}

/// The name of copy `n`.
pub(crate) fn copy_name(table: &str, n: u64) -> String {
    format!("{table}-{n}")
}

/// The names of tasks or flows, with the tables that they come from. Only copies can have a name twice.
#[derive(Default)]
pub(crate) struct Names(BTreeMap<String, Place>);

impl Names {
    /// Adds the name of a `what` of the table at `place`. Returns false, with an error, if another table has
    /// made it.
    pub(crate) fn add(&mut self, what: &str, name: &str, place: Place, errors: &mut Errors) -> bool {
        let Some(other) = self.0.insert(name.to_owned(), place) else { return true };
        let (line, _) = errors.sources()[other.source].line_and_column(other.start);
        let expected = format!("expected another name: the {what} in line {line} makes it too");
        errors.add(place, format!("{what} `{name}` is there twice"), expected);
        false
    }
}
