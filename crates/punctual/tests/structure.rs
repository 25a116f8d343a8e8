//! What holds of the source as a whole.

use std::path::{Path, PathBuf};

use punctual_sched::registry;
use punctual_sched::servers::{ACCOUNTING, QUANTUM};
use punctual_sched::{credit, round_robin, servers::sporadic};

/// Places where a policy's or an option's name in quotes is something else: name, file or folder below
/// `crates`, what it is there.
const OTHER_FACTS: &[(&str, &str, &str)] = &[
    ("periodic", "punctual-model/src/file/network/", "a kind of flow"),
    ("periodic", "punctual-model/src/network.rs", "a kind of flow"),
    ("slice", "punctual-model/src/file/nearest.rs", "what others call a budget"),
    ("ratelimit", "punctual-model/src/import/xl/", "a word that xl prints"),
    ("quantum", "punctual/src/reproduce/fig5.rs", "the heading of a column"),
];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the crates' folder")
}

/// All Rust files below `directory`, tests apart.
fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in directory.read_dir().expect("a folder").map(|entry| entry.expect("readable").path()) {
        if entry.ends_with("tests") || entry.ends_with("tests.rs") {
            continue;
        } else if entry.is_dir() {
            sources(&entry, found);
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            found.push(entry);
        }
    }
}

/// The program text of a file: without its unit tests, which stand at its end.
fn program(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests").next().unwrap_or(text)
}

/// Whoever must name a policy or one of its options uses the constant beside its code; whoever must know
/// something of a policy asks its entry in the registry. `punctual-testkit` is for tests, which may name
/// policies as users do.
#[test]
fn policies_and_their_options_are_named_by_their_own_files_alone() {
    let policies = registry::policies().iter().map(|info| info.name);
    let options =
        [QUANTUM, ACCOUNTING, sporadic::REFILLS_MAX, credit::REFILL, credit::RATELIMIT, round_robin::SLICE];
    let names: Vec<&str> = policies.chain(options.map(|option| option.name)).collect();
    let crates = crates();
    let mut files = Vec::new();
    for entry in crates.read_dir().expect("a folder").map(|entry| entry.expect("readable").path()) {
        if !entry.ends_with("punctual-sched") && !entry.ends_with("punctual-testkit") {
            sources(&entry.join("src"), &mut files);
        }
    }
    assert!(files.len() > 100, "only {} files were found", files.len());
    let mut found = Vec::new();
    for file in &files {
        let path = file.strip_prefix(&crates).expect("below the folder").to_str().expect("UTF-8");
        let text = std::fs::read_to_string(file).expect("readable");
        for (number, line) in (1..).zip(program(&text).lines()) {
            let named = names.iter().filter(|name| line.contains(&format!("\"{name}\"")));
            let is_other = |name: &str| {
                OTHER_FACTS.iter().any(|(other, place, _)| *other == name && path.starts_with(place))
            };
            found.extend(
                named.filter(|name| !is_other(name)).map(|name| format!("{path}:{number}: \"{name}\"")),
            );
        }
    }
    assert!(found.is_empty(), "policies or options named outside of their files:\n{}", found.join("\n"));
}

/// Within `punctual-sched` each name stands in one place as well.
#[test]
fn every_policy_has_one_file_with_its_name() {
    let mut files = Vec::new();
    sources(&crates().join("punctual-sched/src"), &mut files);
    for info in registry::policies() {
        let quoted = format!("\"{}\"", info.name);
        let naming: Vec<&PathBuf> = files
            .iter()
            .filter(|file| program(&std::fs::read_to_string(file).expect("readable")).contains(&quoted))
            .collect();
        let own = info.name.replace('-', "_") + ".rs";
        assert!(naming.len() == 1 && naming[0].ends_with(&own), "{quoted} stands in {naming:?}");
    }
}
