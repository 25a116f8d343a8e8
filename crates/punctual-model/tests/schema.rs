//! The JSON schema and the reference are fresh, accept what the parser accepts, and reject mistyped keys.

use std::path::{Path, PathBuf};

use punctual_model::AnyHost;
use punctual_model::file::{
    Overrides, fleet_schema, parse, parse_fleet, schema, to_toml, update_fleet_reference,
    update_limits_reference, update_reference, update_service_reference,
};
use punctual_sched::registry::OptionValue;
use serde_json::{Value, json};
use toml::de::{DeTable, DeValue};

const REGENERATE: &str = "is stale: cargo run -p punctual-model --example write-schema";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// TOML as JSON; every TOML value of a host file has a JSON form.
fn as_json(text: &str) -> Value {
    table(DeTable::parse(text).expect("TOML").into_inner())
}

fn table(table: DeTable<'_>) -> Value {
    table.into_iter().map(|(k, v)| (k.into_inner().into_owned(), value(v.into_inner()))).collect()
}

fn value(from: DeValue<'_>) -> Value {
    match from {
        DeValue::String(s) => json!(s),
        DeValue::Integer(n) => n.as_str().parse::<i64>().map_or(json!(1e30), |n| json!(n)),
        DeValue::Float(n) => json!(n.as_str().parse::<f64>().expect("a number")),
        DeValue::Boolean(b) => json!(b),
        DeValue::Datetime(d) => json!({ "$date": d.to_string() }),
        DeValue::Array(items) => items.into_iter().map(|v| value(v.into_inner())).collect(),
        DeValue::Table(entries) => table(entries),
    }
}

fn toml_files(dir: &str) -> Vec<PathBuf> {
    let files =
        std::fs::read_dir(root().join(dir)).expect("a folder").map(|entry| entry.expect("readable").path());
    let is_host = |p: &PathBuf| p.extension().is_some_and(|e| e == "toml") && !p.ends_with("fleet.toml");
    files.filter(is_host).collect()
}

#[test]
fn the_checked_in_schema_is_fresh() {
    let text = std::fs::read_to_string(root().join("schema/host.schema.json")).unwrap();
    assert!(
        serde_json::from_str::<Value>(&text).unwrap() == schema(),
        "schema/host.schema.json {REGENERATE}"
    );
    let text = std::fs::read_to_string(root().join("schema/fleet.schema.json")).expect("the schema");
    let fresh = serde_json::from_str::<Value>(&text).expect("JSON") == fleet_schema();
    assert!(fresh, "schema/fleet.schema.json {REGENERATE}");
}

#[test]
fn the_checked_in_reference_is_fresh() {
    let text = std::fs::read_to_string(root().join("docs/host-file.md")).unwrap();
    assert!(update_reference(&text).unwrap() == text, "docs/host-file.md {REGENERATE}");
    let text = std::fs::read_to_string(root().join("docs/service.md")).expect("the page of the service");
    assert!(update_service_reference(&text).unwrap() == text, "docs/service.md {REGENERATE}");
    let text = std::fs::read_to_string(root().join("docs/certify.md")).expect("the page of certify");
    assert!(update_limits_reference(&text).expect("generated") == text, "docs/certify.md {REGENERATE}");
    let text = std::fs::read_to_string(root().join("docs/place.md")).expect("the page of place");
    assert!(update_fleet_reference(&text).expect("generated") == text, "docs/place.md {REGENERATE}");
}

#[test]
fn the_reference_has_every_preset_with_its_costs() {
    let text = std::fs::read_to_string(root().join("docs/host-file.md")).expect("the reference");
    for preset in &punctual_model::overheads::PRESETS {
        let costs = preset.overheads;
        let row = format!("| `{}` | {} | {} |", preset.name, costs.decision, costs.context_switch);
        assert!(text.contains(&row), "{row}");
    }
}

#[test]
fn the_schema_accepts_every_example_and_what_is_written_out() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    let examples = toml_files("examples");
    assert!(examples.len() >= 4);
    for path in examples {
        let bytes = std::fs::read(&path).unwrap();
        let host = AnyHost::parse_bytes(&bytes, "example.toml", &Overrides::default());
        let written = host.unwrap().to_toml();
        for text in [std::fs::read_to_string(&path).unwrap(), written] {
            let errors: Vec<String> = validator.iter_errors(&as_json(&text)).map(|e| e.to_string()).collect();
            assert!(errors.is_empty(), "{}: {errors:?}", path.display());
        }
    }
}

#[test]
fn the_schema_of_fleets_accepts_the_example_and_rejects_a_mistyped_key() {
    let validator = jsonschema::validator_for(&fleet_schema()).expect("a schema");
    let text = std::fs::read_to_string(root().join("examples/fleet.toml")).expect("the example");
    parse_fleet(text.as_bytes(), "fleet.toml").unwrap_or_else(|e| panic!("{e}"));
    assert!(validator.is_valid(&as_json(&text)));
    assert!(text.contains("memory_mib"));
    assert!(!validator.is_valid(&as_json(&text.replace("memory_mib", "memory"))));
}

/// The schema knows no rules across keys; the parser says that the example obeys those too.
#[test]
fn the_references_domains_on_a_real_host_are_valid_and_survive_being_written_out() {
    let document = std::fs::read_to_string(root().join("docs/host-file.md")).unwrap();
    let (_, section) = document.split_once("## Domains on a real host\n\n```toml\n").unwrap();
    let domains = section.split("```").next().unwrap();
    let text =
        format!("[machine]\nprocessors = 2\n[pool.all]\nprocessors = [1]\npolicy = 'round-robin'\n{domains}");
    let host = parse(&text, "host-file.toml", &Overrides::default()).unwrap_or_else(|e| panic!("{e}"));
    let written = to_toml(&host);
    assert_eq!(parse(&written, "host-file.toml", &Overrides::default()).unwrap(), host);
    let validator = jsonschema::validator_for(&schema()).unwrap();
    for text in [text, written] {
        let errors: Vec<String> = validator.iter_errors(&as_json(&text)).map(|e| e.to_string()).collect();
        assert!(errors.is_empty(), "{errors:?}");
    }
}

#[test]
fn the_schema_rejects_mistyped_keys_policies_and_kinds() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    let of_types = [
        "unknown-key-",
        "misspelt-",
        "wrong-type-",
        "bare-",
        "missing-machine",
        "missing-policy",
        "zero-",
        "huge-",
    ];
    let mut rejected = 0;
    for path in toml_files("crates/punctual-model/tests/malformed") {
        let name = path.file_stem().unwrap().to_str().unwrap();
        if of_types.iter().any(|prefix| name.starts_with(prefix)) {
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(!validator.is_valid(&as_json(&text)), "{name}");
            rejected += 1;
        }
    }
    assert!(rejected >= 30, "{rejected}");
}

/// A default that the reference states is what the parser assumes.
#[test]
fn every_default_of_a_policy_option_is_a_valid_value_of_it() {
    for policy in punctual_sched::registry::policies() {
        for option in policy.options {
            // A default in words is no value.
            let Some(default) = option.default_value() else { continue };
            let value = match default {
                OptionValue::Count(_) | OptionValue::Flag(_) => default.to_string(),
                _ => format!("{:?}", default.to_string()),
            };
            let text = format!(
                "[machine]\nprocessors = 1\n[pool.p]\npolicy = {:?}\n{}.{} = {value}\n",
                policy.name, policy.name, option.name
            );
            let host = punctual_model::file::parse(&text, "default.toml", &Overrides::default());
            let host = host.unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(host.pools[0].policy.options.iter().count(), 0, "{} {}", policy.name, option.name);
        }
    }
}
