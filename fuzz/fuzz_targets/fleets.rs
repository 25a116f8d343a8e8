//! Any bytes as a fleet file: there is a fleet or there are errors that can be shown, never a panic; and what
//! a fleet refers to is there.
//!
//! ```sh
//! cargo +nightly fuzz run fleets fuzz/corpus/fleets examples crates/punctual/tests/cmd/place \
//!     -- -max_total_time=60 -timeout=10 -rss_limit_mb=2048
//! ```

#![no_main]

use libfuzzer_sys::fuzz_target;
use punctual_model::file::parse_fleet;

fuzz_target!(|data: &[u8]| {
    match parse_fleet(data, "fuzz.toml") {
        Ok(fleet) => {
            assert!(!fleet.hosts.is_empty() && !fleet.vms.is_empty());
            for kind in &fleet.kinds {
                assert_eq!(kind.domains.len(), fleet.vm_kinds.len());
                assert_eq!(kind.is_pinned.len(), kind.template.pools.len());
                assert_eq!(kind.domains.iter().flatten().count(), kind.template.domains.len());
            }
            for vm in 0..fleet.vms.len() {
                assert_eq!(fleet.vm_kind(vm).may_be_on.len(), fleet.hosts.len());
                assert!(fleet.vms[vm].today.is_none_or(|host| host < fleet.hosts.len()));
            }
        }
        Err(errors) => {
            assert!(!errors.render(true).is_empty());
            assert_eq!(errors.records().len(), errors.count());
        }
    }
});
