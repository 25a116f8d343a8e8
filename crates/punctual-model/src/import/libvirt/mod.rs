//! libvirt's domain XML: vCPUs, where they may run, weights, quotas and real-time priorities.
//!
//! Elements: <https://libvirt.org/formatdomain.html#cpu-allocation> and `#cpu-tuning`. What concerns other
//! resources (memory, devices, ...) has no place in a host file and is passed over; what concerns processor
//! time and is not carried over is noted.

mod domain;
mod elements;
mod pools;

use roxmltree::Node;

use domain::{Class, Quota, VcpuThread, XmlDomain};
use elements::{note_attributes, note_children};

use super::draft::{Helpers, HostDraft};
use super::input::{Input, Reported, shorten};
use super::settings::Settings;
use super::xml::{attribute, child, document, elements, place, required, text};
use crate::file::PROCESSORS_MAX;
use crate::file::source::Place;

/// Period of a quota that has none (libvirt leaves the kernel's: `kernel/sched/fair.c`, default_cfs_period).
const PERIOD_DEFAULT_US: i64 = 100_000;

/// Values of a domain's `type` that are not run by QEMU.
const NOT_QEMU: [&str; 12] =
    ["bhyve", "ch", "esx", "hyperv", "lxc", "openvz", "parallels", "phyp", "vbox", "vmware", "vz", "xen"];

pub(super) fn read(input: &mut Input, settings: &Settings<'_>) -> HostDraft {
    let mut draft = HostDraft::default();
    let mut domains = Vec::new();
    for file in 0..input.files() {
        document(input, file, "domain", |input, root| {
            domains.extend(read_domain(input, file, root, &mut draft));
        });
    }
    if input.errors.count() == 0 {
        pools::assemble(input, domains, &mut draft, settings);
    }
    draft
}

fn read_domain(
    input: &mut Input,
    file: usize,
    root: Node<'_, '_>,
    draft: &mut HostDraft,
) -> Option<XmlDomain> {
    let here = place(input, file, root);
    let Some(name) = child(root, "name").map(|node| text(node)).filter(|name| !name.is_empty()) else {
        input.error(here, "<domain> has no <name>", "expected the domain's name");
        return None;
    };
    let kind = attribute(input, file, root, "type").map_or("", |(kind, _)| kind);
    let quota = Quota { quota_us: None, period_us: PERIOD_DEFAULT_US, place: here };
    let mut domain = XmlDomain {
        place: here,
        vcpus: vcpus(input, file, root, &name, draft)?,
        name,
        shares: None,
        quota,
        global_quota: quota,
        helpers: Helpers::default(),
        helpers_are_pinned: false,
        is_qemu: !NOT_QEMU.contains(&kind),
    };
    if !domain.is_qemu {
        let text = format!("{}: domains of type {} cannot be attached", domain.name, shorten(kind));
        input.note(here, text);
    }
    let anywhere = domain.vcpus[0].processors.clone();
    if let Some(tune) = child(root, "cputune") {
        for node in elements(tune) {
            note_attributes(input, file, node, &domain.name);
            tuning(input, file, node, &mut domain, draft)?;
        }
    }
    if !domain.helpers_are_pinned {
        helpers_without_pin(input, &mut domain, anywhere);
    }
    plugged_in(input, &mut domain);
    draft.reserve(input, here, domain.vcpus.len())?;
    note_children(input, file, root, &domain.name);
    Some(domain)
}

/// The domain's vCPUs by number, those that are not plugged in at start among them.
fn vcpus(
    input: &mut Input,
    file: usize,
    root: Node<'_, '_>,
    name: &str,
    draft: &mut HostDraft,
) -> Option<Vec<VcpuThread>> {
    let mut thread = VcpuThread { processors: None, class: Class::Fair, is_online: true };
    let Some(node) = child(root, "vcpu") else { return Some(vec![thread]) };
    note_attributes(input, file, node, name);
    let at = place(input, file, node);
    let count = input.integer(at, "<vcpu>", &text(node), 1, PROCESSORS_MAX as i64)?;
    let placement = attribute(input, file, node, "placement");
    let is_auto = placement.is_some_and(|(placement, _)| placement == "auto");
    if let Some((list, at)) = attribute(input, file, node, "cpuset") {
        let list = input.cpu_list(at, "`cpuset`", list)?;
        draft.include_processors(&list);
        thread.processors = Some(list).filter(|_| !is_auto);
    }
    match placement {
        Some(("auto", at)) => {
            let text = "with placement auto, numad chooses the processors when it starts; here they are free";
            input.note(at, format!("{name}: {text}"));
        }
        Some((other, at)) if other != "static" => {
            let text = format!("{name}: placement {} is not known; taken as static", shorten(other));
            input.note(at, text);
        }
        Some(_) | None => {}
    }
    let mut vcpus = vec![thread; count as usize];
    if let Some((current, at)) = attribute(input, file, node, "current") {
        let current = input.integer(at, "`current`", current, 1, count)?;
        vcpus.iter_mut().skip(current as usize).for_each(|thread| thread.is_online = false);
    }
    if let Some(each) = child(root, "vcpus") {
        for node in elements(each) {
            let (id, at) = required(input, file, node, "id")?;
            let id = input.integer(at, "`id`", id, 0, count - 1)? as usize;
            let (enabled, at) = required(input, file, node, "enabled")?;
            vcpus[id].is_online = match enabled {
                "yes" => true,
                "no" => false,
                _ => {
                    input.error(at, format!("`enabled` is {:?}", shorten(enabled)), "expected yes or no");
                    return None;
                }
            };
        }
    }
    Some(vcpus)
}

/// Leaves out the vCPUs that are not plugged in when the domain starts.
fn plugged_in(input: &mut Input, domain: &mut XmlDomain) {
    let all = domain.vcpus.len();
    let last = domain.vcpus.iter().rposition(|thread| thread.is_online);
    domain.vcpus.retain(|thread| thread.is_online);
    let online = domain.vcpus.len();
    if online < all {
        let of = format!("{}: {online} of {all} vCPUs are plugged in at start", domain.name);
        let text = if last.is_some_and(|last| last >= online) {
            "only they are imported, numbered from 0"
        } else {
            "only they are imported"
        };
        input.note(domain.place, format!("{of}; {text}"));
    }
    if domain.vcpus.is_empty() {
        let message = format!("{} has no vCPU that is plugged in at start", shorten(&domain.name));
        input.error(domain.place, message, "expected a <vcpu> with enabled='yes'");
    }
}

/// Where libvirt lets the helper threads run without an element for it.
fn helpers_without_pin(input: &mut Input, domain: &mut XmlDomain, cpuset: Option<Vec<usize>>) {
    let name = &domain.name;
    let text = match cpuset {
        Some(list) => {
            domain.helpers.processors = list;
            "without <emulatorpin>, the helper threads run on the processors of <vcpu cpuset>"
        }
        None => {
            // A domain that runs anywhere with everything that it has needs no warning.
            let is_set = |v: &VcpuThread| v.processors.is_some() || v.class != Class::Fair;
            if !domain.vcpus.iter().any(is_set) {
                return;
            }
            "without <emulatorpin>, libvirt lets the helper threads run anywhere; here they run on the \
             processors of no pool"
        }
    };
    input.note(domain.place, format!("{name}: {text}"));
}

/// One element of `cputune`.
fn tuning(
    input: &mut Input,
    file: usize,
    node: Node<'_, '_>,
    domain: &mut XmlDomain,
    draft: &mut HostDraft,
) -> Option<()> {
    let at = place(input, file, node);
    let tag = node.tag_name().name();
    let what = format!("<{}>", shorten(tag));
    match tag {
        "shares" => domain.shares = Some(input.integer(at, &what, &text(node), 1, 262_144)? as u32),
        "period" => domain.quota.period_us = period(input, at, &what, node)?,
        "quota" => domain.quota = quota(input, at, &what, node, domain.quota)?,
        "global_period" => domain.global_quota.period_us = period(input, at, &what, node)?,
        "global_quota" => domain.global_quota = quota(input, at, &what, node, domain.global_quota)?,
        "vcpupin" => vcpu_pin(input, file, node, domain, draft)?,
        "vcpusched" => scheduler(input, file, node, domain)?,
        "emulatorpin" | "iothreadpin" => {
            let (list, list_at) = required(input, file, node, "cpuset")?;
            let list = input.cpu_list(list_at, "`cpuset`", list)?;
            draft.include_processors(&list);
            domain.helpers_are_pinned = true;
            let all = &mut domain.helpers.processors;
            if !all.is_empty() && *all != list {
                let text = "emulator and I/O threads get one set of processors together";
                input.note(at, format!("{}: {text}", domain.name));
            }
            all.extend(list);
            all.sort_unstable();
            all.dedup();
        }
        "emulatorsched" => {
            domain.helpers.priority = match class(input, file, node, &domain.name).ok()? {
                Class::Realtime(priority) => Some(priority),
                Class::Fair | Class::Idle => None,
            };
        }
        // Helpers' limits, caches, and what a later libvirt than the known one has.
        _ => input.note(at, format!("{}: {what} is not carried over", domain.name)),
    }
    Some(())
}

fn period(input: &mut Input, at: Place, what: &str, node: Node<'_, '_>) -> Option<i64> {
    input.integer(at, what, &text(node), 1_000, 1_000_000)
}

/// A quota over the period of `known`.
fn quota(input: &mut Input, at: Place, what: &str, node: Node<'_, '_>, known: Quota) -> Option<Quota> {
    let quota = input.integer(at, what, &text(node), -1, 17_592_186_044_415)?;
    Some(Quota { quota_us: (quota > 0).then_some(quota), place: at, ..known })
}

fn vcpu_pin(
    input: &mut Input,
    file: usize,
    node: Node<'_, '_>,
    domain: &mut XmlDomain,
    draft: &mut HostDraft,
) -> Option<()> {
    let at = place(input, file, node);
    let (vcpu, vcpu_at) = required(input, file, node, "vcpu")?;
    let vcpu = input.integer(vcpu_at, "`vcpu`", vcpu, 0, PROCESSORS_MAX as i64)? as usize;
    let (list, list_at) = required(input, file, node, "cpuset")?;
    let list = input.cpu_list(list_at, "`cpuset`", list)?;
    draft.include_processors(&list);
    match domain.vcpus.get_mut(vcpu) {
        Some(thread) => thread.processors = Some(list),
        None => input.note(at, format!("{}: there is no vCPU {vcpu} to pin", domain.name)),
    }
    Some(())
}

fn scheduler(input: &mut Input, file: usize, node: Node<'_, '_>, domain: &mut XmlDomain) -> Option<()> {
    let at = place(input, file, node);
    let vcpus = match attribute(input, file, node, "vcpus") {
        Some((list, at)) => input.cpu_list(at, "`vcpus`", list)?,
        None => (0..domain.vcpus.len()).collect(),
    };
    let class = class(input, file, node, &domain.name).ok()?;
    for n in vcpus {
        match domain.vcpus.get_mut(n) {
            Some(thread) => thread.class = class,
            None => input.note(at, format!("{}: there is no vCPU {n} to schedule", domain.name)),
        }
    }
    Some(())
}

/// The class in `scheduler` and `priority`.
fn class(input: &mut Input, file: usize, node: Node<'_, '_>, name: &str) -> Result<Class, Reported> {
    let at = place(input, file, node);
    let (scheduler, scheduler_at) = required(input, file, node, "scheduler").ok_or(Reported)?;
    let (class, becomes) = match scheduler {
        "fifo" | "rr" => {
            let (priority, at) = required(input, file, node, "priority").ok_or(Reported)?;
            let priority = input.integer(at, "`priority`", priority, 1, 99).ok_or(Reported)?;
            (Class::Realtime(priority), (scheduler == "rr").then_some("fifo of the same priority"))
        }
        "idle" => (Class::Idle, Some("best effort")),
        "batch" => (Class::Fair, Some("the ordinary class")),
        "other" => (Class::Fair, None),
        _ => {
            let message = format!("`scheduler` is {:?}", shorten(scheduler));
            input.error(scheduler_at, message, "expected fifo, rr, batch, idle or other");
            return Err(Reported);
        }
    };
    if let Some(becomes) = becomes {
        input.note(at, format!("{name}: scheduler {scheduler} is taken as {becomes}"));
    }
    Ok(class)
}
