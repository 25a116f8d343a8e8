//! Any bytes as a host file, with lines of `--set` options in front of an optional NUL: there is a host or
//! there are errors that can be shown, never a panic, and a host survives being written and read again.
//!
//! ```sh
//! cargo +nightly fuzz run host_file fuzz/corpus/host_file examples crates/punctual-model/tests/malformed \
//!     -- -max_total_time=60 -timeout=10 -rss_limit_mb=2048
//! ```

#![no_main]

use libfuzzer_sys::fuzz_target;
use punctual_model::AnyHost;
use punctual_model::file::Overrides;

fuzz_target!(|data: &[u8]| {
    let (options, file) = match data.iter().position(|&b| b == 0) {
        Some(nul) => (&data[..nul], &data[nul + 1..]),
        None => (&data[..0], data),
    };
    let set = String::from_utf8_lossy(options).lines().map(str::to_string).collect();
    let overrides = Overrides { set, ..Overrides::default() };
    match AnyHost::parse_bytes(file, "fuzz.toml", &overrides) {
        Ok(mut host) => {
            let written = host.to_toml();
            // Why processors were chosen is a comment in what is written, which lists them.
            if let AnyHost::Pools(host) = &mut host {
                host.pools.iter_mut().for_each(|pool| pool.choice = None);
            }
            match AnyHost::parse(&written, "written.toml", &Overrides::default()) {
                Ok(again) => assert!(again == host, "another host after writing:\n{written}"),
                Err(e) => panic!("{e}\n{written}"),
            }
        }
        Err(errors) => {
            assert!(!errors.render(true).is_empty());
            assert_eq!(errors.records().len(), errors.count());
        }
    }
});
