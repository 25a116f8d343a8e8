//! The host files in `examples/` are valid and say what their comments claim.

use std::path::{Path, PathBuf};

use punctual_model::Host;
use punctual_model::file::{Overrides, load, parse, to_toml};

fn examples() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut hosts: Vec<PathBuf> = files.filter(|p| p.extension().is_some_and(|e| e == "toml")).collect();
    hosts.sort();
    hosts
}

fn example(name: &str, overrides: &Overrides) -> Host {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    load(path, overrides).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn every_example_is_valid_and_survives_being_written_out() {
    for path in examples() {
        let host = load(&path, &Overrides::default()).unwrap_or_else(|e| panic!("{e}"));
        let written = to_toml(&host);
        let again = parse(&written, "written.toml", &Overrides::default());
        assert_eq!(again.unwrap_or_else(|e| panic!("{e}\n{written}")), host, "{}", path.display());
    }
}

#[test]
fn five_vms_have_25_tasks_at_70_percent() {
    let host = example("five-vms.toml", &Overrides::default());
    assert_eq!((host.domains.len(), host.vcpus.len(), host.tasks.len()), (5, 5, 25));
    let specs = host.tasks.iter().map(|t| match t.work {
        punctual_model::host::Work::Jobs { cost, deadline, .. } => {
            cost.max.as_ns() as f64 / deadline.as_ns() as f64
        }
        punctual_model::host::Work::Hog { .. } => panic!("a hog"),
    });
    let load: f64 = specs.sum();
    // Periods are rounded up to whole ms, so the real load is a little below the nominal one.
    assert!((0.66..=0.70).contains(&load), "{load}");
}
