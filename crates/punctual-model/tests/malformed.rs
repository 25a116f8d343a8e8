//! Every file in `tests/malformed/` has a defect; the message for it is the file of the same name ending in
//! `.stderr`. `BLESS=1 cargo test -p punctual-model --test malformed` rewrites the messages.

use std::path::{Path, PathBuf};

use punctual_model::file::{Errors, Overrides, parse_bytes};

fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/malformed")
}

fn files() -> Vec<PathBuf> {
    let files = std::fs::read_dir(dir()).expect("a folder").map(|entry| entry.expect("readable").path());
    let mut files: Vec<PathBuf> = files.filter(|p| p.extension().is_some_and(|e| e == "toml")).collect();
    files.sort();
    files
}

fn errors(path: &Path) -> Errors {
    let name = path.file_name().expect("a name").to_str().expect("UTF-8");
    let read = parse_bytes(&std::fs::read(path).expect("readable"), name, &Overrides::default());
    read.expect_err(&format!("{name} has a defect"))
}

/// The list of policies grows; the messages that show it stay as they are here.
fn message(errors: &Errors) -> String {
    let policies: Vec<&str> = punctual_sched::registry::policies().iter().map(|p| p.name).collect();
    errors.render(false).replace(&policies.join(", "), "<policies>")
}

/// Compares with the snapshot at `path`, or writes it.
fn check(path: &Path, message: &str) -> Option<String> {
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, message).expect("writable");
    }
    let expected = std::fs::read_to_string(path).unwrap_or_default();
    (expected != message).then(|| format!("{}:\n{message}\nexpected:\n{expected}", path.display()))
}

#[test]
fn every_malformed_file_has_its_message() {
    let files = files();
    assert!(files.len() >= 40, "{} files", files.len());
    let differing = files.iter().filter_map(|f| check(&f.with_extension("stderr"), &message(&errors(f))));
    let differing: Vec<String> = differing.collect();
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

#[test]
fn every_record_points_into_its_file() {
    for path in files() {
        let lines = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).lines().count();
        for record in errors(&path).records() {
            assert_eq!(record.file.as_deref(), path.file_name().unwrap().to_str());
            assert!(record.line <= lines.max(1) && record.column >= 1, "{record:?}");
            assert!(!record.message.is_empty() && !record.expected.is_empty(), "{record:?}");
        }
    }
}
