use proptest::prelude::*;
use punctual_model::acceptance::Measure;

use super::*;
use crate::certificate::Outcome;
use crate::made_up::{certificate, measurement};

fn one() -> Certificate {
    certificate(vec![measurement(None, 1, Measure::Wakeup, &[1_000, 2_000, 9_000])], None)
}

#[test]
fn a_certificate_comes_back_from_its_file() {
    let text = one().to_json();
    assert_eq!(Certificate::from_json(&text, "a.json").expect("unchanged"), one());
    // Another layout is the same certificate.
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(Certificate::from_json(&value.to_string(), "a.json").expect("unchanged"), one());
}

#[test]
fn any_changed_number_or_name_is_found() {
    let text = one().to_json();
    for (from, to) in [("9000", "8000"), ("node1", "node2"), ("\"measured\"", "\"passed\"")] {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from}");
        let error = Certificate::from_json(&changed, "a.json").expect_err("it was changed");
        assert!(matches!(error, FileError::Changed { .. }), "{error}");
    }
}

#[test]
fn a_verdict_that_does_not_follow_is_refused_even_with_the_right_hash() {
    let mut forged = one();
    forged.verdict.outcome = Outcome::Passed;
    let error = Certificate::from_json(&forged.to_json(), "a.json").expect_err("no limits, no pass");
    assert!(matches!(error, FileError::Verdict(_)), "{error}");
}

#[test]
fn what_is_no_certificate_is_refused_with_the_reason() {
    let without = |key: &str| {
        let mut value: serde_json::Value = serde_json::from_str(&one().to_json()).expect("JSON");
        value.as_object_mut().expect("an object").remove(key);
        value.to_string()
    };
    for (text, expected) in [
        ("{".into(), "is no JSON"),
        ("{}".into(), "`format` is not"),
        (one().to_json().replace("\"version\": 1", "\"version\": 9"), "of version 9"),
        (without("sha256"), "has no `sha256`"),
        (without("conduct"), "was changed"),
    ] {
        let error = Certificate::from_json(&text, "a.json").expect_err("refused").to_string();
        assert!(error.contains(expected), "{error}");
    }
}

proptest! {
    #[test]
    fn any_single_byte_changed_is_refused_or_only_layout(at in 0usize..4000, byte in 0u8..128) {
        let text = one().to_json();
        let mut bytes = text.into_bytes();
        let at = at % bytes.len();
        bytes[at] = byte;
        let text = String::from_utf8(bytes).expect("ASCII");
        if let Ok(read) = Certificate::from_json(&text, "a.json") {
            prop_assert_eq!(read, one());
        }
    }
}
