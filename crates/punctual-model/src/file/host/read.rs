//! Reads the document into drafts; `build` puts them together and has the policies check them.

use std::path::Path;

use super::build;
use super::domain::domains;
use super::keys::ROOT;
use super::pool::pools;
use crate::file::error::Errors;
use crate::file::host_stack;
use crate::file::limits::PROCESSORS_MAX;
use crate::file::network;
use crate::file::section::Section;
use crate::file::source::Place;
use crate::file::tree::Table;
use crate::host::{Host, Overheads};

/// Reads the whole document. `None` when something is wrong, which is added to the errors.
pub(crate) fn host(root: &Table, file_name: &str, errors: &mut Errors) -> Option<Host> {
    let section = Section { table: root, info: &ROOT, place: Place::TOP, name: "" };
    section.check_keys(errors);
    let name = host_name(section, file_name, errors);
    let seed = section.count_or_default("seed", errors);
    let duration = section.duration_or_default("duration", errors);
    let (processors, overheads) = machine(section, errors);
    let pools = pools(section, processors, errors);
    let domains = domains(section, processors, &pools, errors);
    let networks = network::read::read(section, errors);
    let stack = host_stack::read(section, processors, errors);
    if errors.count() > 0 {
        return None;
    }
    let host = Host {
        name,
        seed,
        duration,
        processors,
        overheads,
        pools: Vec::new(),
        domains: Vec::new(),
        vcpus: Vec::new(),
        tasks: Vec::new(),
        networks: Vec::new(),
        flows: Vec::new(),
        chains: Vec::new(),
        stack,
    };
    let mut host = build::complete(host, pools, domains, errors)?;
    network::resolve::resolve(networks, &mut host, errors);
    Some(host)
}

fn host_name(section: Section<'_>, file_name: &str, errors: &mut Errors) -> String {
    let stem =
        || Path::new(file_name).file_stem().map_or("host".into(), |s| s.to_string_lossy().into_owned());
    let Some(name) = section.text("name", errors) else { return stem() };
    if let (Some(entry), true) = (section.get("name"), name.is_empty() || name.chars().any(char::is_control))
    {
        errors.add(entry.node.place, "`name` is empty or has control characters", "expected a short text");
    }
    name.to_string()
}

/// The number of processors and the overheads. An unknown number counts as the greatest possible one, so that
/// the rest of the file can still be checked.
fn machine(section: Section<'_>, errors: &mut Errors) -> (usize, Overheads) {
    let mut overheads = Overheads::default();
    let Some(machine) = section.table("machine", errors) else { return (PROCESSORS_MAX as usize, overheads) };
    if let Some(costs) = machine.table("overheads", errors) {
        let mut cost = |key| costs.duration_or_default(key, errors);
        overheads = Overheads {
            decision: cost("decision"),
            context_switch: cost("context_switch"),
            migration: cost("migration"),
            lock: cost("lock"),
        };
    }
    (machine.count("processors", errors).unwrap_or(PROCESSORS_MAX) as usize, overheads)
}
