//! Any bytes as a limits file and as a certificate: each is read or refused with an error that can be shown,
//! never a panic. What is read comes back the same, and every number in it can be shown and compared.
//!
//! The hash in a certificate would refuse nearly all inputs before its fields are looked at, so a fuzzed
//! value is also put into a file with the right hash.

#![no_main]

use libfuzzer_sys::fuzz_target;
use punctual_certify::compare::compare;
use punctual_certify::{Certificate, page, verdict};
use punctual_model::acceptance::Limits;
use punctual_model::file::parse_limits;

fuzz_target!(|data: &[u8]| {
    match parse_limits(data, "limits.toml") {
        Ok(limits) => {
            let text = serde_json::to_string(&limits).expect("plain data");
            assert_eq!(serde_json::from_str::<Limits>(&text).expect("the same"), limits);
        }
        Err(errors) => assert!(!errors.render(true).is_empty()),
    }
    let text = String::from_utf8_lossy(data);
    if let Err(error) = Certificate::from_json(&text, "a.json") {
        assert!(!error.to_string().is_empty());
    }
    let Ok(mut certificate) = serde_json::from_str::<Certificate>(&text) else { return };
    certificate.verdict =
        verdict::judge(certificate.limits.as_ref(), &certificate.measurements, &certificate.conduct);
    assert!(!page::render(&certificate).is_empty());
    assert!(!compare(&certificate, &certificate, 0).is_worse(), "a certificate is worse than itself");
    match Certificate::from_json(&certificate.to_json(), "again.json") {
        Ok(again) => assert_eq!(again, certificate),
        // `format` and `version` may be anything here.
        Err(error) => assert!(!error.to_string().contains("was changed"), "{error}"),
    }
});
