//! Any bytes as a file to import in every format: there is a host file that the parser reads as the importer
//! says, or there are errors that can be shown, never a panic. What was imported can be exported.

#![no_main]

use libfuzzer_sys::fuzz_target;
use punctual_model::export::{Keep, Target, export};
use punctual_model::file::{Overrides, parse};
use punctual_model::import::{Format, Settings, import};

fuzz_target!(|data: &[u8]| {
    for format in Format::ALL {
        read(format, data);
    }
});

fn read(format: Format, data: &[u8]) {
    match import(format, &[("fuzz", data)], &Settings::default()) {
        Ok(imported) => {
            let again = parse(&imported.toml, "import.toml", &Overrides::default());
            assert!(again.as_ref() == Ok(&imported.host), "{again:?}\n{}", imported.toml);
            for target in Target::ALL {
                for keep in [Keep::Budget, Keep::Priority] {
                    export(&imported.host, target, keep);
                }
            }
        }
        Err(errors) => {
            assert!(!errors.render(true).is_empty());
            assert!(errors.records().iter().all(|record| record.line >= 1 && record.column >= 1));
        }
    }
}
