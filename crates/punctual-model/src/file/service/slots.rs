//! Slots that classes publish, and who joins a slot.

use std::collections::BTreeSet;

use crate::file::entry::shorten;
use crate::file::error::Errors;
use crate::file::section::Section;
use crate::file::tree::{Entry, Table, Value};
use crate::placement::{Published, Slot, SlotPlace};
use crate::service::{Class, Join, Joiner, ThreadPlace};

/// The tables below a key, by name. What is no table is reported elsewhere.
fn tables<'t>(root: Section<'t>, key: &str) -> Vec<(&'t str, &'t Table)> {
    let Some(Value::Table(by_name)) = root.get(key).map(|entry| &entry.node.value) else { return Vec::new() };
    let table = |entry: &'t Entry| match &entry.node.value {
        Value::Table(table) => Some((entry.key.as_str(), table)),
        _ => None,
    };
    by_name.entries.iter().filter_map(table).collect()
}

fn text<'t>(table: &'t Table, key: &str) -> Option<&'t str> {
    match &table.get(key)?.node.value {
        Value::Text(text) => Some(text),
        _ => None,
    }
}

/// The slots that classes publish; their processors are not known yet.
pub(super) fn published(root: Section<'_>, errors: &mut Errors) -> Vec<Slot> {
    let pools: Vec<&str> = tables(root, "pool").into_iter().map(|(name, _)| name).collect();
    let named: Vec<&str> = tables(root, "slot").into_iter().map(|(name, _)| name).collect();
    let mut slots: Vec<Slot> = Vec::new();
    for (class, table) in tables(root, "class") {
        let Some((entry, name)) = table.get("slot").zip(text(table, "slot")) else { continue };
        let first = slots.iter().find(|slot| slot.name == name).map(|slot| &slot.place);
        let by = match first {
            Some(SlotPlace::Class(other)) => Some(format!("[class.{}]", shorten(&other.class))),
            _ => named.contains(&name).then(|| format!("[slot.{}]", shorten(name))),
        };
        if let Some(by) = by {
            let message = format!("slot `{}` is that of {by}", shorten(name));
            errors.add(entry.node.place, message, "expected another name: one class or table has a slot");
            continue;
        }
        let only = || if let [only] = pools[..] { Some(only) } else { None };
        let Some(pool) = text(table, "pool").or_else(only) else {
            let message = format!("[class.{}] publishes a slot and has no pool", shorten(class));
            errors.add(entry.key_place, message, "expected a pool, whose processors it publishes");
            continue;
        };
        let (near, class, pool) = (text(table, "near").map(Into::into), class.into(), pool.into());
        let place = SlotPlace::Class(Published { class, pool, near, processors: BTreeSet::new() });
        slots.push(Slot { name: name.into(), place });
    }
    slots
}

/// Adds the errors of slots that classes publish and that depend on themselves.
pub(super) fn check_published(root: Section<'_>, slots: &[Slot], errors: &mut Errors) {
    // Pools or slots that are wrong have no processors to publish.
    if errors.count() > 0 {
        return;
    }
    for slot in slots.iter().filter(|slot| !slot.is_known()) {
        let is_its = |(_, table): &(&str, &Table)| text(table, "slot") == Some(slot.name.as_str());
        let class = tables(root, "class").into_iter().find(is_its);
        let Some(entry) = class.and_then(|(_, table)| table.get("near")) else { continue };
        let message = format!("slot `{}` is near itself", shorten(&slot.name));
        errors.add(entry.node.place, message, "expected a slot that does not depend on this class");
    }
}

fn slot_of(place: &ThreadPlace) -> Option<&str> {
    match place {
        ThreadPlace::Slot { name, .. } => Some(name),
        ThreadPlace::Host | ThreadPlace::Near => None,
    }
}

/// Who joins which slot.
pub(super) fn joins(root: Section<'_>, classes: &[Class]) -> Vec<Join> {
    let mut joins: Vec<Join> = Vec::new();
    for (pool, table) in tables(root, "pool") {
        if let Some(Value::Table(request)) = table.get("processors").map(|entry| &entry.node.value)
            && let Some(slot) = text(request, "near")
        {
            joins.push(Join { slot: slot.into(), by: Joiner::Pool(pool.into()) });
        }
    }
    for (class, table) in tables(root, "class") {
        if let Some(slot) = text(table, "near") {
            joins.push(Join { slot: slot.into(), by: Joiner::Class(class.into()) });
        }
        let Some(own) = classes.iter().find(|one| one.name == class) else { continue };
        let of_helpers = own.threads.all().into_iter().filter_map(|helper| slot_of(&helper.place));
        let slots: BTreeSet<&str> = of_helpers.collect();
        let by = || Joiner::Helpers(class.into());
        joins.extend(slots.into_iter().map(|slot| Join { slot: slot.into(), by: by() }));
        if let (Some(slot), Some(_)) = (slot_of(&own.interrupts), own.devices().next()) {
            joins.push(Join { slot: slot.into(), by: Joiner::Interrupts(class.into()) });
        }
    }
    joins
}
