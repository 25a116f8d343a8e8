//! The host files in `examples/` are valid and say what their comments claim.

use std::path::{Path, PathBuf};

use punctual_model::file::{Errors, Overrides, load};
use punctual_model::{AnyHost, Host};

fn examples() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let files = std::fs::read_dir(dir).expect("a folder").map(|entry| entry.expect("readable").path());
    let is_host = |p: &PathBuf| p.extension().is_some_and(|e| e == "toml") && !p.ends_with("fleet.toml");
    let mut hosts: Vec<PathBuf> = files.filter(is_host).collect();
    hosts.sort();
    hosts
}

fn read(path: &Path, overrides: &Overrides) -> Result<AnyHost, Errors> {
    AnyHost::parse_bytes(&std::fs::read(path).expect("readable"), &path.display().to_string(), overrides)
}

fn example(name: &str, overrides: &Overrides) -> Host {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    load(path, overrides).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn every_example_is_valid_and_survives_being_written_out() {
    for path in examples() {
        let host = read(&path, &Overrides::default()).unwrap_or_else(|e| panic!("{e}"));
        let written = host.to_toml();
        let again = AnyHost::parse(&written, "written.toml", &Overrides::default());
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
        other => panic!("{other:?}"),
    });
    let load: f64 = specs.sum();
    // Of 12 % each; periods are rounded up to whole ms, so the real load is a little below the nominal one.
    let load = load / (5.0 * 0.12);
    assert!((0.66..=0.70).contains(&load), "{load}");
}

/// The options after `punctual sim FILE` in an example's comment.
fn options(command: &str) -> Overrides {
    let mut overrides = Overrides::default();
    let mut words = command.split('#').next().expect("a first part").split_whitespace();
    while let Some(flag) = words.next() {
        let value = words.next().expect("every option of the comments has a value").to_string();
        match flag {
            "--policy" => overrides.policy = Some(value),
            "--set" => overrides.set.push(value),
            other => panic!("{other}: teach this test"),
        }
    }
    overrides
}

#[test]
fn the_commands_in_the_comments_of_examples_are_valid() {
    let mut commands = 0;
    for path in examples() {
        let name = format!("examples/{}", path.file_name().unwrap().to_str().unwrap());
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            let Some(command) = line.strip_prefix("#   punctual sim ") else { continue };
            let rest = command.strip_prefix(&name).expect("the example itself").to_string();
            read(&path, &options(&rest)).unwrap_or_else(|e| panic!("{line}\n{e}"));
            commands += 1;
        }
    }
    assert!(commands >= 8, "{commands}");
}

#[test]
fn five_vms_are_valid_under_every_policy() {
    for policy in punctual_sched::registry::policies() {
        let overrides = Overrides { policy: Some(policy.name.into()), ..Overrides::default() };
        assert_eq!(example("five-vms.toml", &overrides).pools[0].policy.info.name, policy.name);
    }
}

#[test]
fn a_file_that_cannot_be_read_says_why() {
    let refused = load("no/such/host.toml", &Overrides::default()).unwrap_err().to_string();
    assert!(refused.starts_with("error: cannot read no/such/host.toml: No such file"), "{refused}");
    assert_eq!(refused.lines().count(), 1);
    assert!(load(env!("CARGO_MANIFEST_DIR"), &Overrides::default()).is_err());
}
