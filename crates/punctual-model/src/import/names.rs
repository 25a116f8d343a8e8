//! Names that a host file takes, from any names.

use std::collections::{BTreeMap, BTreeSet};

use super::draft::HostDraft;
use super::input::{Input, shorten};
use crate::file::source::Place;

/// Names given so far in one table.
#[derive(Default)]
pub(super) struct Names {
    taken: BTreeSet<String>,
    /// The next number to try behind a name that was wanted before.
    next: BTreeMap<String, u64>,
}

impl Names {
    /// A name of letters, digits, `-` and `_` that was not given before: `wanted` itself if that can be.
    pub(super) fn give(&mut self, wanted: &str) -> String {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let mut name: String = wanted.chars().take(100).map(|c| if fits(c) { c } else { '_' }).collect();
        if name.is_empty() {
            name.push('_');
        }
        let next = self.next.entry(name.clone()).or_insert(2);
        let mut given = name.clone();
        while !self.taken.insert(given.clone()) {
            given = format!("{name}-{next}");
            *next += 1;
        }
        given
    }
}

/// Gives everything in the draft a name that a host file takes, with a note for each that is another one.
pub(super) fn adapt(input: &mut Input, draft: &mut HostDraft) {
    let mut names = Names::default();
    let mut rename = |names: &mut Names, name: &mut String, place: Place| {
        let given = names.give(name);
        if given != *name {
            input.note(place, format!("the name {:?} becomes {given}", shorten(name)));
            *name = given;
        }
    };
    for pool in &mut draft.pools {
        rename(&mut names, &mut pool.name, pool.place);
    }
    for domain in &mut draft.domains {
        rename(&mut names, &mut domain.name, domain.place);
    }
    let pools = draft.pools.iter_mut().map(|pool| &mut pool.tasks);
    for tasks in pools.chain(draft.domains.iter_mut().map(|domain| &mut domain.tasks)) {
        let mut names = Names::default();
        for task in tasks {
            rename(&mut names, &mut task.name, task.place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Names;

    #[test]
    fn names_are_valid_and_different() {
        let mut names = Names::default();
        let given: Vec<_> = ["web 1", "web_1", "web 1", "", "ü"].iter().map(|n| names.give(n)).collect();
        assert_eq!(given, ["web_1", "web_1-2", "web_1-3", "_", "_-2"]);
    }
}
