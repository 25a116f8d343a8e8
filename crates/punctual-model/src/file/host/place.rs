//! The processors of pools: those that the file lists, and those that are chosen for the others.

use std::collections::{BTreeMap, BTreeSet};

use crate::file::entry::{check_line, expected_names, shorten};
use crate::file::error::Errors;
use crate::file::nearest::nearest;
use crate::file::section::Section;
use crate::file::source::Place;
use crate::file::tree::{Entry, Value};
use crate::placement::{Choice, Request, Slot, SlotPlace, Smt, place, publish};
use crate::topology::Topology;

/// Words of `smt`.
pub(crate) const WHOLE_CORES: &str = "whole";
pub(crate) const IDLE_SIBLINGS: &str = "idle";

/// The machine that a file is for.
#[derive(Clone, Copy)]
pub(crate) struct Machine<'m> {
    /// Numbers in the file are below this.
    pub(crate) processors: usize,
    /// What pools choose from.
    pub(crate) topology: &'m Topology,
}

/// The processors of a pool.
#[derive(Clone, Default)]
pub(crate) struct PoolPlace {
    /// Ascending.
    pub(crate) processors: Vec<usize>,
    /// Why these, if the file does not list them.
    pub(crate) choice: Option<Choice>,
}

/// What a pool says of its processors.
enum Wish {
    Listed(Vec<usize>),
    Chosen(Request, Place),
}

/// Reads the slots below `root`, to which those that classes publish come, and which processors its `pools`
/// have. A pool for which that is not known has all processors, so that the rest of the file can be checked.
pub(crate) fn pool_places(
    root: Section<'_>,
    pools: &[Section<'_>],
    machine: Machine<'_>,
    published: Vec<Slot>,
    errors: &mut Errors,
) -> (Vec<Slot>, Vec<PoolPlace>) {
    let before = errors.count();
    let mut slots = slots(root, machine, errors);
    slots.extend(published);
    let mut owner = BTreeMap::new();
    let wish = |section: &Section<'_>| wish(*section, pools.len() == 1, machine, &slots, &mut owner, errors);
    let wishes: Vec<Wish> = pools.iter().map(wish).collect();
    let all = || PoolPlace { processors: (0..machine.processors).collect(), choice: None };
    if errors.count() > before {
        // Too little is known to choose. What the file lists is right all the same.
        let places = wishes.into_iter().map(|wish| match wish {
            Wish::Listed(processors) => PoolPlace { processors, choice: None },
            Wish::Chosen(..) => all(),
        });
        return (slots, places.collect());
    }
    let mut wanted: Vec<(&str, &Request)> = Vec::new();
    let mut listed: Vec<(&str, &[usize])> = Vec::new();
    for (section, wish) in pools.iter().zip(&wishes) {
        match wish {
            Wish::Listed(own) => listed.push((section.name, own)),
            Wish::Chosen(request, _) => wanted.push((section.name, request)),
        }
    }
    let mut chosen = place(machine.topology, &wanted, &listed, &slots).into_iter();
    let mut places = Vec::new();
    for wish in &wishes {
        let found = match wish {
            Wish::Listed(own) => PoolPlace { processors: own.clone(), choice: None },
            Wish::Chosen(_, place) => match chosen.next() {
                Some(Ok(found)) => PoolPlace { processors: found.processors, choice: Some(found.choice) },
                Some(Err(shortage)) => {
                    errors.add(*place, shortage.message, shortage.expected);
                    all()
                }
                None => all(),
            },
        };
        places.push(found);
    }
    publish(machine.topology, &mut slots, |name| {
        let pool = pools.iter().position(|pool| pool.name == name);
        pool.map(|pool| places[pool].processors.clone()).unwrap_or_default()
    });
    (slots, places)
}

/// What the pool says; the processors that it lists are ascending, and entered in `owner`.
fn wish(
    section: Section<'_>,
    only: bool,
    machine: Machine<'_>,
    slots: &[Slot],
    owner: &mut BTreeMap<usize, String>,
    errors: &mut Errors,
) -> Wish {
    let all = || Wish::Listed((0..machine.processors).collect());
    let Some(entry) = section.get("processors") else {
        if !only {
            let message = format!("`processors` is missing in {}", section.header());
            errors.add(
                section.place,
                message,
                "several pools share the machine: each lists its processors or says how many",
            );
        }
        return all();
    };
    if let Value::Table(_) = &entry.node.value {
        let Some(request) = section.table("processors", errors) else { return all() };
        return request_of(request, slots, errors).map_or_else(all, |wish| Wish::Chosen(wish, entry.place()));
    }
    let Some(numbers) = entry.indices(machine.processors, "processors of the machine", errors) else {
        return all();
    };
    for (n, place) in &numbers {
        if let Some(other) = owner.insert(*n, section.name.into()) {
            let message = format!("processor {n} is in pool `{other}` already");
            errors.add(*place, message, "expected each processor in at most one pool");
        }
    }
    let mut own: Vec<usize> = numbers.into_iter().map(|(n, _)| n).collect();
    own.sort_unstable();
    Wish::Listed(own)
}

/// `{ count = 2, isolated = true }`.
fn request_of(section: Section<'_>, slots: &[Slot], errors: &mut Errors) -> Option<Request> {
    let smt = section.word("smt", errors).unwrap_or(section.default("smt"));
    let near =
        slot(section, "near", slots, errors).and_then(|near| slots.iter().position(|slot| slot == near));
    let isolated = section.flag("isolated", errors).unwrap_or(false);
    let count = usize::try_from(section.count("count", errors)?).ok()?;
    let smt = if smt == IDLE_SIBLINGS { Smt::Idle } else { Smt::Whole };
    Some(Request { count, isolated, near, smt })
}

/// The slot that this key names.
pub(crate) fn slot<'s>(
    section: Section<'_>,
    key: &'static str,
    slots: &'s [Slot],
    errors: &mut Errors,
) -> Option<&'s Slot> {
    let name = section.text(key, errors)?;
    let found = slots.iter().find(|slot| slot.name == name);
    if let (None, Some(entry)) = (found, section.get(key)) {
        let names = || slots.iter().map(|slot| slot.name.as_str());
        let message = format!("there is no slot `{}`", shorten(name));
        let near = nearest(name, names());
        errors.add_nearest(entry.node.place, message, expected_names(names()), near);
    }
    found
}

/// The slots. One with an error is nowhere.
pub(crate) fn slots(root: Section<'_>, machine: Machine<'_>, errors: &mut Errors) -> Vec<Slot> {
    let mut slots = Vec::new();
    for section in root.named("slot", errors) {
        let place = match (section.get("processors"), section.get("interrupts")) {
            (Some(entry), None) => {
                let numbers = entry.indices(machine.processors, "processors of the machine", errors);
                let numbers = numbers.unwrap_or_default().into_iter().map(|(number, _)| number);
                Some(SlotPlace::Processors(numbers.collect()))
            }
            (None, Some(entry)) => device(section, entry, machine, errors),
            (Some(_), Some(second)) => {
                let message = format!("{} has both `processors` and `interrupts`", section.header());
                errors.add(second.key_place, message, "expected one of them");
                None
            }
            // Unknown keys are reported already.
            (None, None) if !section.table.entries.is_empty() => None,
            (None, None) => {
                let message = format!("{} names no processors", section.header());
                errors.add(section.place, message, "expected `processors` or `interrupts`");
                None
            }
        };
        let place = place.unwrap_or(SlotPlace::Processors(BTreeSet::new()));
        slots.push(Slot { name: section.name.into(), place });
    }
    slots
}

/// The device of `interrupts`.
fn device(
    section: Section<'_>,
    entry: &Entry,
    machine: Machine<'_>,
    errors: &mut Errors,
) -> Option<SlotPlace> {
    let name = section.text("interrupts", errors)?;
    check_device(name, entry, machine.topology, errors).then(|| SlotPlace::Interrupts(name.to_owned()))
}

/// Does the machine have the device that an entry names?
pub(crate) fn check_device(name: &str, entry: &Entry, topology: &Topology, errors: &mut Errors) -> bool {
    check_line("interrupts", name, entry.node.place, errors);
    let Topology { devices, is_flat, .. } = topology;
    if !is_flat && !devices.contains_key(name) {
        // Addresses of PCI devices have a colon; there are too many to list them.
        let interfaces = || devices.keys().map(String::as_str).filter(|name| !name.contains(':'));
        let message = format!("this machine has no device `{}`", shorten(name));
        let names = expected_names(interfaces());
        let expected = format!("{names}, or the address of a PCI device");
        errors.add_nearest(entry.node.place, message, expected, nearest(name, interfaces()));
        return false;
    }
    true
}
