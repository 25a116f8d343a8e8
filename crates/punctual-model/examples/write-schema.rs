//! Writes the schemas in `schema/` and the generated parts of `docs/host-file.md`, `docs/service.md`,
//! `docs/certify.md` and `docs/place.md`:
//! `cargo run -p punctual-model --example write-schema`.

use std::path::Path;

use punctual_model::file::{
    fleet_schema, schema, update_fleet_reference, update_limits_reference, update_reference,
    update_service_reference,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = serde_json::to_string_pretty(&schema())? + "\n";
    std::fs::write(root.join("schema/host.schema.json"), text)?;
    let text = serde_json::to_string_pretty(&fleet_schema())? + "\n";
    std::fs::write(root.join("schema/fleet.schema.json"), text)?;
    let reference = root.join("docs/place.md");
    let document = std::fs::read_to_string(&reference)?;
    std::fs::write(reference, update_fleet_reference(&document)?)?;
    let reference = root.join("docs/host-file.md");
    let document = std::fs::read_to_string(&reference)?;
    std::fs::write(reference, update_reference(&document)?)?;
    let reference = root.join("docs/service.md");
    let document = std::fs::read_to_string(&reference)?;
    std::fs::write(reference, update_service_reference(&document)?)?;
    let reference = root.join("docs/certify.md");
    let document = std::fs::read_to_string(&reference)?;
    std::fs::write(reference, update_limits_reference(&document)?)?;
    Ok(())
}
