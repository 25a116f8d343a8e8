//! The elements of a domain's XML that this version of the importer knows.
//!
//! Names: libvirt's schema, `src/conf/schemas/domaincommon.rng` (9.0), and those that later versions added.

use roxmltree::Node;

use crate::import::input::{Input, shorten};
use crate::import::xml::{elements, place};

/// Children of `domain` whose settings are read.
const READ: [&str; 4] = ["name", "vcpu", "vcpus", "cputune"];

/// Children of `domain` that concern processor time and have no place in a host file.
const NOTED: [&str; 5] = ["numatune", "iothreads", "iothreadids", "defaultiothread", "resource"];

/// Children of `domain` that do not concern processor time.
const OTHER: [&str; 36] = [
    "blkiotune",
    "bootloader",
    "bootloader_args",
    "clock",
    "cpu",
    "currentMemory",
    "description",
    "devices",
    "features",
    "genid",
    "idmap",
    "keywrap",
    "launchSecurity",
    "maxMemory",
    "memory",
    "memoryBacking",
    "memtune",
    "metadata",
    "on_crash",
    "on_lockfailure",
    "on_poweroff",
    "on_reboot",
    "os",
    "perf",
    "pm",
    "seclabel",
    "sysinfo",
    "throttlegroups",
    "title",
    "uuid",
    // Of drivers: in namespaces of their own.
    "capabilities",
    "commandline",
    "datacenterpath",
    "deprecation",
    "namespace",
    "override",
];

/// Attributes of the elements that are read.
const ATTRIBUTES: [(&str, &[&str]); 8] = [
    ("vcpu", &["cpuset", "current", "placement"]),
    ("vcpus", &[]),
    ("vcpupin", &["vcpu", "cpuset"]),
    ("vcpusched", &["vcpus", "scheduler", "priority"]),
    ("emulatorpin", &["cpuset"]),
    ("emulatorsched", &["scheduler", "priority"]),
    ("iothreadpin", &["iothread", "cpuset"]),
    ("shares", &[]),
];

/// Notes the children of `domain` that are not carried over, and those that are not known.
pub(super) fn note_children(input: &mut Input, file: usize, root: Node<'_, '_>, name: &str) {
    for node in elements(root) {
        let tag = node.tag_name().name();
        let at = place(input, file, node);
        if NOTED.contains(&tag) {
            input.note(at, format!("{name}: <{tag}> is not carried over"));
        } else if !READ.contains(&tag) && !OTHER.contains(&tag) {
            input.note(at, format!("{name}: <{}> is not known and not carried over", shorten(tag)));
        }
    }
}

/// Notes attributes of an element that is read which are not known.
pub(super) fn note_attributes(input: &mut Input, file: usize, node: Node<'_, '_>, name: &str) {
    let tag = node.tag_name().name();
    let Some((_, known)) = ATTRIBUTES.iter().find(|(element, _)| *element == tag) else { return };
    for attribute in node.attributes() {
        if !known.contains(&attribute.name()) {
            let at = input.place(file, attribute.range());
            let text = format!("{name}: attribute `{}` of <{tag}> is not known", shorten(attribute.name()));
            input.note(at, text);
        }
    }
}
