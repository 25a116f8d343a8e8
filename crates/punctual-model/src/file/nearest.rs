//! The valid name that a wrong one was probably meant to be.

/// Words that other tools use for a key.
const SYNONYMS: [(&str, &str); 14] = [
    ("wcet", "cost"),
    ("execution_time", "cost"),
    ("interarrival", "separation"),
    ("frequency", "period"),
    ("count", "copies"),
    ("cores", "processors"),
    ("cpus", "processors"),
    ("pcpus", "processors"),
    ("scheduler", "policy"),
    ("slice", "budget"),
    ("vm", "domain"),
    ("vms", "domain"),
    ("guests", "domain"),
    ("host", "machine"),
];

/// The name among `valid` that `given` was probably meant to be: few typing errors away (insertions,
/// deletions, replacements, swaps; at most a third of its length), a part of it, or another tool's word for
/// it.
pub fn nearest<'a>(given: &str, valid: impl IntoIterator<Item = &'a str>) -> Option<String> {
    // Longer texts are not names; comparing them would cost the square of their length.
    if given.len() > 64 {
        return None;
    }
    let folded = given.to_lowercase().replace([' ', '-'], "_");
    let distance = |name: &str| {
        let name = name.replace('-', "_");
        let typed = strsim::damerau_levenshtein(&folded, &name);
        let part = folded.len() >= 3 && (name.contains(&folded) || folded.starts_with(&name));
        let synonym = SYNONYMS.contains(&(folded.as_str(), name.as_str()));
        if part || synonym { typed.min(1) } else { typed }
    };
    let allowed = (folded.chars().count() / 3).max(1);
    valid
        .into_iter()
        .filter(|name| *name != given)
        .map(|name| (distance(name), name))
        .min_by_key(|(d, _)| *d)
        .filter(|(d, _)| *d <= allowed)
        .map(|(_, name)| name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_through_typing_errors_and_abbreviations() {
        let names = ["budget", "period", "priority", "cap_percent"];
        assert_eq!(nearest("bugdet", names).as_deref(), Some("budget"));
        assert_eq!(nearest("Period", names).as_deref(), Some("period"));
        assert_eq!(nearest("cap", names).as_deref(), Some("cap_percent"));
        assert_eq!(nearest("slice", names).as_deref(), Some("budget"));
        assert_eq!(nearest("colour", names), None);
    }
}
