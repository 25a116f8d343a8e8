//! Decides which kind of host the document describes and reads that: the drafts of a host with pools, which
//! `build` puts together and has the policies check, or a host stack.

use std::path::Path;

use punctual_host_stack::HostStack;

use super::build;
use super::domain::domains;
use super::event::events;
use super::keys::ROOT;
use super::place::Machine;
use super::pool::pools;
use crate::any_host::AnyHost;
use crate::file::error::Errors;
use crate::file::host_stack::{self, HOST_STACK, StackHead};
use crate::file::limits::PROCESSORS_MAX;
use crate::file::network;
use crate::file::section::Section;
use crate::file::source::Place;
use crate::file::tree::{Table, Value};
use crate::host::{Enforce, Host, Overheads};
use crate::overheads::preset;
use crate::topology::Topology;

/// Reads the whole document. `None` when something is wrong, which is added to the errors.
pub(crate) fn host(root: &Table, file_name: &str, errors: &mut Errors) -> Option<AnyHost> {
    let section = Section { table: root, info: &ROOT, place: Place::TOP, name: "" };
    section.check_keys(errors);
    match section.get(HOST_STACK) {
        Some(_) => host_stack(section, file_name, errors).map(AnyHost::Stack),
        None => pooled(section, file_name, errors).map(AnyHost::Pools),
    }
}

fn host_stack(section: Section<'_>, file_name: &str, errors: &mut Errors) -> Option<HostStack> {
    let of_pools = [
        ("overheads", "expected none: what a host stack costs is in [host_stack.costs]"),
        ("enforce", "expected none: a host stack has no policies to enforce"),
    ];
    for (key, expected) in of_pools {
        let given = section.get("machine").and_then(|entry| match &entry.node.value {
            Value::Table(machine) => machine.get(key),
            _ => None,
        });
        if let Some(given) = given {
            errors.add(given.key_place, format!("`{key}` and `host_stack` exclude each other"), expected);
        }
    }
    let head = StackHead {
        name: host_name(section, file_name, errors),
        seed: section.count_or_default("seed", errors),
        duration: section.duration_or_default("duration", errors),
        processors: machine(section, errors).processors,
    };
    let stack = host_stack::read(section, head, errors);
    stack.filter(|_| errors.count() == 0)
}

fn pooled(section: Section<'_>, file_name: &str, errors: &mut Errors) -> Option<Host> {
    let name = host_name(section, file_name, errors);
    let seed = section.count_or_default("seed", errors);
    let duration = section.duration_or_default("duration", errors);
    let MachineKeys { processors, overheads, enforce } = machine(section, errors);
    let topology = Topology::flat(processors);
    let pools = pools(section, Machine { processors, topology: &topology }, errors);
    let domains = domains(section, processors, &pools, errors);
    let networks = network::read::read(section, errors);
    let events = events(section, &pools, &domains, errors);
    if errors.count() > 0 {
        return None;
    }
    let host = Host { overheads, enforce, ..Host::empty(name, processors, seed, duration) };
    let mut host = build::complete(host, pools, domains, events, errors)?;
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

/// The keys of `[machine]`.
pub(crate) struct MachineKeys {
    pub(crate) processors: usize,
    pub(crate) overheads: Overheads,
    pub(crate) enforce: Enforce,
}

/// An unknown number of processors counts as the greatest possible one, so that the rest of the file can
/// still be checked.
pub(crate) fn machine(section: Section<'_>, errors: &mut Errors) -> MachineKeys {
    let greatest = PROCESSORS_MAX as usize;
    let Some(machine) = section.table("machine", errors) else {
        let (overheads, enforce) = (Overheads::default(), Enforce::default());
        return MachineKeys { processors: greatest, overheads, enforce };
    };
    MachineKeys {
        overheads: overheads(machine, errors).unwrap_or_default(),
        processors: machine.count("processors", errors).map_or(greatest, |count| count as usize),
        enforce: machine.word("enforce", errors).and_then(Enforce::find).unwrap_or_default(),
    }
}

/// Published costs by name, or those of a table.
fn overheads(machine: Section<'_>, errors: &mut Errors) -> Option<Overheads> {
    if let Value::Text(_) = machine.get("overheads")?.node.value {
        return Some(preset(machine.word("overheads", errors)?)?.overheads);
    }
    let costs = machine.table("overheads", errors)?;
    let mut cost = |key| costs.duration_or_default(key, errors);
    Some(Overheads {
        decision: cost("decision"),
        context_switch: cost("context_switch"),
        migration: cost("migration"),
        lock: cost("lock"),
    })
}
