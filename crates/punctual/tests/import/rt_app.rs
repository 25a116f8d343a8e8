//! Workloads of rt-app.

use super::{answer, import, import_stdin, punctual};

const THREAD: &str = r#"{ "tasks": { "t": { "run": 1000, "timer": { "ref": "a", "period": 10000 } } } }"#;

/// The file is JSON as rt-app's own examples are: it begins with `{`, and `[{` is an error of rt-app's rules.
#[test]
fn json_is_read_from_a_file_and_from_standard_input() {
    for answer in [import("rt-app", &[THREAD], &[]), import_stdin("rt-app", THREAD)] {
        assert_eq!(answer.host().tasks.len(), 1);
    }
    let sample = "crates/punctual-model/tests/import/workload.json";
    let sample = answer(punctual().args(["import", "--from", "rt-app", sample]));
    assert!(sample.host().tasks.iter().any(|task| task.name == "sensor-1"));
    let array = import("rt-app", &["[{}]"], &[]);
    array.must_say(&["the file is not a JSON object"]);
    assert_eq!(array.code, Some(2));
}
