//! `punctual xen` as a user starts it, without a Xen: a recording from one is replayed.
//!
//! `xen/calls` is what Xen 4.17.5 was told and answered in `labs/lab xen replay` on 27 November 2026: the
//! first 150 records of each policy.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn punctual(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_punctual"))
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/xen"))
        .args(args)
        .output()
        .expect("the program starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

#[test]
fn what_a_real_xen_decided_is_what_policies_decide_here() {
    let done = punctual(&["xen", "replay", "calls", "--json"]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let answer: serde_json::Value = serde_json::from_slice(&done.stdout).expect("JSON");
    let pools = answer["pools"].as_array().expect("pools");
    assert_eq!((pools.len(), &answer["lost"]), (7, &0.into()));
    for pool in pools {
        assert!(pool["calls"].as_u64() > Some(80) && pool["picks"].as_u64() > Some(30), "{pool}");
        assert_eq!(pool["different"], 0, "{pool}");
    }
}

#[test]
fn an_answer_that_was_another_one_is_shown_and_ends_with_1() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("calls");
    let mut bytes = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/xen/calls")).expect("there");
    // The last word of the last record: what runs, or who is asked to decide.
    let last = bytes.len() - 4;
    bytes[last] ^= 1;
    fs::write(&file, bytes).expect("written");
    let done = punctual(&["xen", "replay", file.to_str().expect("text")]);
    assert_eq!(done.status.code(), Some(1));
    assert!(text(&done.stdout).contains("1 answers differ\n  first: record "), "{}", text(&done.stdout));
}

#[test]
fn a_recording_becomes_a_trace_for_perfetto() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("xen.pftrace");
    let done = punctual(&["xen", "replay", "calls", "--trace", file.to_str().expect("text")]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let trace = fs::read(file).expect("written");
    let has = |name: &[u8]| trace.windows(name.len()).any(|window| window == name);
    assert!([&b"d0"[..], b"d1", b"d2", b"d3", b"budget"].iter().all(|name| has(name)));
}

#[test]
fn what_is_no_trace_and_no_xen_is_said() {
    let refused = |args: &[&str]| {
        let done = punctual(args);
        assert_eq!(done.status.code(), Some(2), "{args:?}");
        text(&done.stderr).to_string()
    };
    assert!(refused(&["xen", "replay", "../xen.rs"]).contains("xen.rs: "));
    assert!(refused(&["xen", "replay", "missing"]).contains("cannot read missing"));
    if !Path::new("/dev/xen/privcmd").exists() {
        assert!(refused(&["xen", "show"]).contains("domain 0 of a Xen"));
    }
}
