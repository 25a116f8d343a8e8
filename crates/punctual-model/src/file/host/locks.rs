//! Resources of a domain, and the critical sections of its tasks.

use std::cmp::Reverse;

use punctual_sched::Duration;

use crate::file::entry::{expected_names, shorten};
use crate::file::error::Errors;
use crate::file::limits::LOCKS_MAX;
use crate::file::nearest::nearest;
use crate::file::options::PolicyDraft;
use crate::file::section::Section;
use crate::file::source::Place;
use crate::file::tree::Value;
use crate::host::Work;
use crate::locks::{CriticalSection, Protocol, Resource, guest_order};

/// Reads the resources of a domain.
pub(crate) fn resources(section: Section<'_>, errors: &mut Errors) -> Vec<Resource> {
    let sections = section.named("resource", errors);
    if sections.len() > LOCKS_MAX {
        let message = format!("{} has {} resources", section.header(), sections.len());
        errors.add(section.place_of("resource"), message, format!("expected at most {LOCKS_MAX}"));
        return Vec::new();
    }
    let resource = |section: &Section<'_>| Resource {
        name: section.name.into(),
        protocol: section.word("protocol", errors).and_then(Protocol::find).unwrap_or_default(),
    };
    sections.iter().map(resource).collect()
}

/// Adds an error where tasks of the domain cannot share resources.
pub(crate) fn check_guest(section: Section<'_>, vcpus: usize, guest: &PolicyDraft, errors: &mut Errors) {
    let Some(entry) = section.get("resource") else { return };
    if vcpus > 1 {
        let message = format!("{} has {vcpus} vCPUs and resources", section.header());
        let expected = "expected one vCPU: these protocols are those of one processor";
        errors.add(entry.key_place, message, expected);
    }
    let policy = guest.choice.info;
    if guest_order(policy).is_none() {
        let message = format!("a guest with `{}` has no resources", policy.name);
        let expected = "expected a guest that orders its tasks: fixed-priority or edf";
        errors.add(entry.key_place, message, expected);
    }
}

/// A section and where it stands.
type Placed = (CriticalSection, Place);

/// Reads the critical sections of a task that does `work`, in the order of [`crate::host::Task::sections`].
pub(crate) fn sections(
    section: Section<'_>,
    work: &Work,
    resources: &[Resource],
    errors: &mut Errors,
) -> Vec<CriticalSection> {
    let Some(entry) = section.get("sections") else { return Vec::new() };
    let (Work::Jobs { cost, .. } | Work::Served { cost, .. }) = work else {
        errors.add(entry.key_place, "a hog has no `sections`", "expected them in a task that has jobs");
        return Vec::new();
    };
    let Value::List(items) = &entry.node.value else {
        let expected = "expected a list: [{ resource = \"bus\", after = \"0.2ms\", length = \"0.5ms\" }]";
        entry.wrong_kind(expected, errors);
        return Vec::new();
    };
    if items.len() > LOCKS_MAX {
        let message = format!("{} has {} critical sections", section.header(), items.len());
        errors.add(entry.key_place, message, format!("expected at most {LOCKS_MAX}"));
        return Vec::new();
    }
    let mut all: Vec<Placed> = Vec::new();
    for item in items {
        let Some(inner) = section.item("sections", item, errors) else { continue };
        all.extend(one(inner, cost.max, resources, errors).map(|section| (section, item.place)));
    }
    all.sort_by_key(|(section, _)| (section.after, Reverse(section.length)));
    check_nesting(&all, resources, errors);
    all.into_iter().map(|(section, _)| section).collect()
}

fn one(
    section: Section<'_>,
    cost_max: Duration,
    resources: &[Resource],
    errors: &mut Errors,
) -> Option<CriticalSection> {
    let name = section.text("resource", errors);
    let after = section.duration_or_default("after", errors);
    let length = section.duration("length", errors);
    let (name, length) = (name?, length?);
    let found = resources.iter().position(|resource| resource.name == name);
    if found.is_none() {
        let names = || resources.iter().map(|resource| resource.name.as_str());
        let message = format!("the domain has no resource `{}`", shorten(name));
        let place = section.place_of("resource");
        errors.add_nearest(place, message, expected_names(names()), nearest(name, names()));
    }
    let found = CriticalSection { resource: found?, after, length };
    if found.end() > cost_max {
        let message = format!("the critical section ends at {} of a job of {cost_max}", found.end());
        errors.add(section.place_of("length"), message, "expected its end within the greatest `cost`");
        return None;
    }
    Some(found)
}

/// Two sections are apart, or the later one is inside the earlier one and of another resource.
fn check_nesting(all: &[Placed], resources: &[Resource], errors: &mut Errors) {
    for (ix, (section, place)) in all.iter().enumerate() {
        for (outer, first) in all[..ix].iter().filter(|(outer, _)| outer.end() > section.after) {
            let (line, _) = errors.sources()[first.source].line_and_column(first.start);
            let name = &resources[section.resource].name;
            if outer.resource == section.resource {
                let message = format!("the task locks `{name}` while it holds it");
                let expected = format!("expected one section: it is in that of line {line}");
                errors.add(*place, message, expected);
            } else if !outer.contains(section) {
                let other = &resources[outer.resource].name;
                let message = format!("the sections of `{other}` and `{name}` overlap");
                let expected =
                    format!("expected them apart, or one inside the other: line {line} has `{other}`");
                errors.add(*place, message, expected);
            }
        }
    }
}
