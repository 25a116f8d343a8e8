//! From the document to the parts of a [`Host`]; `build` puts them together and asks the policies.

use std::path::Path;

use super::build;
use super::domain::domains;
use super::keys::ROOT;
use super::pool::pools;
use crate::file::error::Place;
use crate::file::fields::{Problems, Tab};
use crate::file::limits::PROCESSORS_MAX;
use crate::file::network;
use crate::file::tree::Table;
use crate::host::{Host, Overheads};

/// Reads the whole document. `None` when something is wrong, which `problems` then says.
pub(crate) fn host(root: &Table, file_name: &str, problems: &mut Problems) -> Option<Host> {
    let top = Place::top();
    let tab = Tab { table: root, info: &ROOT, place: &top, name: "" };
    problems.check_keys(tab);
    let name = host_name(tab, file_name, problems);
    let seed = problems.count_or(tab, "seed");
    let duration = problems.duration_or(tab, "duration");
    let (processors, overheads) = machine(tab, problems);
    let pools = pools(tab, processors, problems);
    let domains = domains(tab, processors, &pools, problems);
    let networks = network::read::read(tab, problems);
    if !problems.list.is_empty() {
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
    };
    let mut host = build::complete(host, pools, domains, problems)?;
    networks.resolve(&mut host, problems);
    Some(host)
}

fn host_name(tab: Tab<'_>, file_name: &str, problems: &mut Problems) -> String {
    let stem =
        || Path::new(file_name).file_stem().map_or("host".into(), |s| s.to_string_lossy().into_owned());
    let Some(name) = problems.text(tab, "name") else { return stem() };
    if let (Some(entry), true) = (tab.get("name"), name.is_empty() || name.chars().any(char::is_control)) {
        problems.add(&entry.node.place, "`name` is empty or has control characters", "expected a short text");
    }
    name.to_string()
}

/// The number of processors and the overheads. When they are not known, the greatest possible number, so that
/// the rest of the file can still be checked.
fn machine(tab: Tab<'_>, problems: &mut Problems) -> (usize, Overheads) {
    let mut overheads = Overheads::default();
    let Some(machine) = problems.table(tab, "machine") else { return (PROCESSORS_MAX as usize, overheads) };
    if let Some(costs) = problems.table(machine, "overheads") {
        let mut cost = |key| problems.duration_or(costs, key);
        overheads = Overheads {
            decision: cost("decision"),
            context_switch: cost("context_switch"),
            migration: cost("migration"),
            lock: cost("lock"),
        };
    }
    (problems.count(machine, "processors").unwrap_or(PROCESSORS_MAX) as usize, overheads)
}
