//! Names that a host file takes, from any names.

use std::collections::{BTreeMap, BTreeSet};

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
