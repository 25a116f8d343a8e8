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
    ("slice", "punctual-model/src/import/xl/", "a key of xl.cfg"),
    ("periodic", "punctual-model/src/import/simso.rs", "an attribute of SimSo"),
    ("quantum", "punctual-reproduce/src/rt_xen/fig5.rs", "the heading of a column"),
];

#[test]
fn every_file_of_tests_is_compiled() {
    let mut forgotten = Vec::new();
    for entry in crates().read_dir().expect("a folder").map(|entry| entry.expect("readable").path()) {
        let text = |name: &str| std::fs::read_to_string(entry.join(name)).unwrap_or_default();
        let (manifest, list) = (text("Cargo.toml"), text("tests/it.rs"));
        if !manifest.contains("autotests = false") {
            continue;
        }
        for file in
            entry.join("tests").read_dir().expect("a folder").map(|file| file.expect("readable").path())
        {
            let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let is_rust = file.extension().is_some_and(|extension| extension == "rs");
            let is_module = list.lines().any(|line| line == format!("mod {name};"));
            let is_program = manifest.contains(&format!("name = \"{name}\""));
            if is_rust && !is_module && !is_program {
                forgotten.push(file);
            }
        }
    }
    assert_eq!(forgotten, Vec::<PathBuf>::new(), "no line `mod NAME;` in tests/it.rs");
}

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

/// Code that names a policy or one of its options uses the constant beside the policy's code; code that
/// depends on a property of a policy reads its entry in the registry. `punctual-testkit` is for tests, which
/// may name policies as users do.
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

/// Columns of a line of code or prose at most.
const COLUMNS_MAX: usize = 110;

/// Folders whose files are built, found by a fuzzer, or malformed on purpose.
const NOT_WRITTEN: &[&str] =
    &[".git", ".venv", "artifacts", "corpus", "coverage", "malformed", "node_modules", "target"];

/// Files that people write, in `directory` and all below it.
fn written(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in directory.read_dir().expect("a folder").map(|entry| entry.expect("readable").path()) {
        let name = entry.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let extension = entry.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        if entry.is_dir() {
            if !NOT_WRITTEN.contains(&name) {
                written(&entry, found);
            }
        } else if ["rs", "md", "toml", "sh", "py", "js"].contains(&extension) {
            found.push(entry);
        }
    }
}

/// The numbers of the lines that are too long. In documents rows of tables, pictures and what a program
/// printed may be longer, in a table of claims the rows and their checks.
fn long_lines(path: &Path, text: &str) -> Vec<usize> {
    let (document, claims) = (path.extension().is_some_and(|e| e == "md"), path.ends_with("claims.toml"));
    let (mut in_block, mut in_output) = (false, false);
    let mut long = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let start = line.trim_start();
        if document && start.starts_with("```") {
            in_block = !in_block;
            in_output = in_block && (start == "```" || start.contains("console"));
        }
        let row = start.starts_with('|') || start.starts_with("![");
        let claim = start.starts_with("check = ") || start.starts_with('{');
        let allowed = (document && (in_output || row)) || (claims && claim);
        if line.chars().count() > COLUMNS_MAX && !allowed {
            long.push(number);
        }
    }
    long
}

#[test]
fn lines_of_code_and_documents_have_at_most_110_columns() {
    let mut files = Vec::new();
    written(crates().parent().expect("the repository"), &mut files);
    assert!(files.len() > 300, "only {} files were found", files.len());
    let mut long = Vec::new();
    for file in &files {
        let text = std::fs::read_to_string(file).expect("readable");
        long.extend(long_lines(file, &text).iter().map(|number| format!("{}:{number}", file.display())));
    }
    assert!(long.is_empty(), "longer than {COLUMNS_MAX} columns:\n{}", long.join("\n"));
}

/// The last programs of a pipe that may end before they have read all of it.
const LEAVES_EARLY: [&str; 3] = [" | head", " | grep -q", " | grep -m"];

/// Under `pipefail` a pipe fails when its reader leaves before its writer has written everything, which
/// depends on who was faster: a check then fails, or a wanted failure passes. `sed -n 1p` reads all of its
/// input; `grep -q … <<<"$(…)"` has no pipe.
#[test]
fn no_script_pipes_into_a_program_that_may_leave_before_the_end() {
    let mut files = Vec::new();
    written(crates().parent().expect("the repository"), &mut files);
    files.retain(|file| file.extension().is_some_and(|extension| extension == "sh"));
    assert!(files.len() > 30, "only {} scripts were found", files.len());
    let mut leaving = Vec::new();
    for file in &files {
        let text = std::fs::read_to_string(file).expect("readable");
        if text.starts_with("#!/bin/sh") {
            continue;
        }
        let lines = (1..).zip(text.lines());
        let piped = |line: &str| LEAVES_EARLY.iter().any(|early| line.replace("||", "").contains(early));
        let found = lines.filter(|(_, line)| piped(line));
        leaving.extend(found.map(|(number, line)| format!("{}:{number}: {}", file.display(), line.trim())));
    }
    assert!(leaving.is_empty(), "these pipes may fail by chance:\n{}", leaving.join("\n"));
}

/// What owns threads, sockets and processes is a crate below the command line, which reads arguments, prints
/// and chooses exit codes.
const OWNERS: [&str; 7] =
    ["std::thread", "thread::spawn", "UnixListener", "UnixStream", "rustix::", "std::net::", "Command::new"];

/// Files of the command line that may own something of [`OWNERS`], with the reason.
const OWNING_FILES: [(&str, &str); 0] = [];

#[test]
fn the_command_line_owns_no_thread_socket_or_process() {
    let mut files = Vec::new();
    sources(&crates().join("punctual/src"), &mut files);
    for file in files.iter().filter(|file| !OWNING_FILES.iter().any(|(name, _)| file.ends_with(name))) {
        let text = std::fs::read_to_string(file).expect("text");
        for (number, line) in program(&text).lines().enumerate() {
            let found = OWNERS.iter().find(|owner| line.contains(*owner));
            assert_eq!(found, None, "{}:{}", file.display(), number + 1);
        }
    }
}
