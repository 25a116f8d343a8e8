//! Configurations of domains (xl.cfg(5)) and of cpupools (xlcpupool.cfg(5)).

use super::cfg::{Assignment, Value, number, parse};
use super::printed::{Printed, PrintedVcpu, Scheduler};
use crate::file::PROCESSORS_MAX;
use crate::file::source::Place;
use crate::import::draft::HostDraft;
use crate::import::input::{Input, Reported, shorten};

/// All keys of a cpupool's configuration.
const POOL_KEYS: [&str; 4] = ["name", "sched", "cpus", "nodes"];

/// Keys of a domain's configuration that concern processor time and have no place in a host file. The last
/// four are parameters of SEDF, which no Xen since 4.6 has.
const NOTED: [&str; 6] = ["cpus_soft", "vnuma", "period", "slice", "latency", "extratime"];

/// Keys of a domain's configuration that do not concern processor time (`tools/xl/xl_parse.c` of 4.20).
const OTHER: &str = "acpi acpi_firmware acpi_laptop_slate acpi_s3 acpi_s4 altp2m altp2mhvm apic \
    arm_sci bios bios_path_override blkdev_start boot bootloader bootloader_args bootloader_restrict \
    bootloader_user builder channel cmdline cpuid device_model device_model_args device_model_args_hvm \
    device_model_args_pv device_model_override device_model_stubdomain_override \
    device_model_stubdomain_seclabel device_model_user device_model_version device_tree disk display \
    dm_restrict driver_domain dtdev e820_host extra firmware firmware_override force_assign_without_mem \
    gfx_passthru gic_version hap hdtype hpet hvm_pirq init_seclabel iomem ioports irqs kernel keymap \
    llc_colors localtime loader max_event_channels max_grant_frames max_grant_version \
    max_maptrack_frames maxmem mca_caps memory mmio_hole ms_vm_genid msr_relaxed nestedhvm nographic \
    nomigrate nr_spis nx on_crash on_poweroff on_reboot on_soft_reset on_watchdog oos opengl p9 pae \
    passthrough pci pci_msitranslate pci_permissive pci_power_mgmt pci_seize pvcalls pvh pvshim \
    pvshim_cmdline pvshim_extra pvshim_path ramdisk rdm rdm_mem_boundary root rtc_timeoffset sdl seclabel \
    serial shadow_memory smbios smbios_firmware soundhw spice spice_clipboard_sharing \
    spice_image_compression spice_streaming_video spiceagent_mouse spicedisable_ticketing spicehost \
    spicepasswd spiceport spicetls_port spiceusbredirection spicevdagent stdvga stubdomain_cmdline \
    stubdomain_kernel stubdomain_memory stubdomain_ramdisk sve tee timer_mode tsc_mode type usb usbctrl \
    usbdev usbdevice usbversion uuid vdispl vendor_device vfb vga videoram vif vif2 viridian virtio vkb \
    vkb_device vmtrace_buf_kb vnc vncdisplay vnclisten vncpasswd vncunused vncviewer vpmu vpt_align vsnd \
    vtpm vuart xauthority xen_platform_pci xend_suspend_evtchn_compat";

pub(super) fn read(input: &mut Input, file: usize, printed: &mut Printed, draft: &mut HostDraft) {
    let Ok(assignments) = parse(input, file) else { return };
    let is_pool = assignments.iter().all(|one| POOL_KEYS.contains(&one.key.as_str()));
    // An error is in `input`.
    let _ = if is_pool {
        pool(input, file, &assignments, printed, draft)
    } else {
        domain(input, file, &assignments, printed, draft)
    };
}

/// The value that counts: the last.
fn get<'a>(assignments: &'a [Assignment], key: &str) -> Option<&'a Assignment> {
    assignments.iter().rev().find(|one| one.key == key)
}

fn text<'a>(
    input: &mut Input,
    assignments: &'a [Assignment],
    key: &str,
) -> Result<Option<(&'a str, Place)>, Reported> {
    match get(assignments, key).map(|one| (&one.value, one.place)) {
        None => Ok(None),
        Some((Value::Atom(text, place), _)) => Ok(Some((text, *place))),
        Some((Value::List(_), place)) => {
            input.error(place, format!("`{key}` is a list"), "expected one value");
            Err(Reported)
        }
    }
}

fn name<'a>(
    input: &mut Input,
    file: usize,
    assignments: &'a [Assignment],
    what: &str,
) -> Result<(&'a str, Place), Reported> {
    match text(input, assignments, "name")? {
        Some(name) if !name.0.is_empty() => Ok(name),
        _ => {
            let place = input.place(file, 0..0);
            input.error(place, format!("the {what} has no name"), "expected name = \"...\"");
            Err(Reported)
        }
    }
}

fn integer(
    input: &mut Input,
    assignments: &[Assignment],
    key: &str,
    bounds: std::ops::RangeInclusive<i64>,
) -> Result<Option<i64>, Reported> {
    let Some((text, place)) = text(input, assignments, key)? else { return Ok(None) };
    let given = number(text).filter(|n| bounds.contains(n));
    if given.is_none() {
        let message = format!("`{key}` is {:?}", shorten(text));
        let expected = format!("expected a whole number from {} to {}", bounds.start(), bounds.end());
        input.error(place, message, expected);
    }
    given.map(Some).ok_or(Reported)
}

fn pool(
    input: &mut Input,
    file: usize,
    assignments: &[Assignment],
    printed: &mut Printed,
    draft: &mut HostDraft,
) -> Result<(), Reported> {
    let (name, place) = name(input, file, assignments, "cpupool")?;
    let scheduler = match text(input, assignments, "sched")? {
        Some((scheduler, place)) => Scheduler::named(input, place, scheduler, name),
        None => None,
    };
    if let Some(nodes) = get(assignments, "nodes") {
        input.note(nodes.place, format!("{name}: processors of NUMA nodes are not known"));
    }
    let mut processors = Vec::new();
    match get(assignments, "cpus").map(|one| &one.value) {
        Some(Value::Atom(list, place)) => {
            processors = input.cpu_list(*place, "`cpus`", list).ok_or(Reported)?;
        }
        Some(Value::List(values)) => {
            for value in values {
                let Value::Atom(list, place) = value else { continue };
                processors.extend(input.cpu_list(*place, "`cpus`", list).ok_or(Reported)?);
            }
            processors.sort_unstable();
            processors.dedup();
        }
        None => {}
    }
    draft.include_processors(&processors);
    let pool = printed.pool(name, place);
    pool.scheduler = scheduler.or(pool.scheduler);
    pool.processors = Some(processors).filter(|list| !list.is_empty()).or(pool.processors.take());
    Ok(())
}

fn domain(
    input: &mut Input,
    file: usize,
    assignments: &[Assignment],
    printed: &mut Printed,
    draft: &mut HostDraft,
) -> Result<(), Reported> {
    let (name, place) = name(input, file, assignments, "domain")?;
    let vcpus = integer(input, assignments, "vcpus", 1..=PROCESSORS_MAX as i64)?.unwrap_or(1) as usize;
    let most = integer(input, assignments, "maxvcpus", 1..=PROCESSORS_MAX as i64)?;
    if let Some((most, one)) = most.zip(get(assignments, "maxvcpus")).filter(|(n, _)| *n as usize > vcpus) {
        let text = format!("{name}: {vcpus} of {most} vCPUs are plugged in at start; only they are imported");
        input.note(one.place, text);
    }
    let weight = integer(input, assignments, "cpu_weight", 1..=65_535)?.map(|weight| weight as u32);
    let cap = integer(input, assignments, "cap", 0..=102_400)?.map(|cap| cap as u32);
    let pool = text(input, assignments, "pool")?.map(|(pool, _)| pool.to_string());
    let affinities = affinities(input, assignments, name, vcpus, draft)?;
    for one in assignments {
        note_key(input, name, one);
    }
    let domain = printed.domain_in(name, place, pool.as_deref().or(Some("Pool-0")));
    domain.online = Some(vcpus);
    domain.weight = weight.or(domain.weight);
    domain.cap_percent = cap.filter(|cap| *cap > 0).or(domain.cap_percent);
    for (n, affinity) in affinities.into_iter().enumerate() {
        let vcpu = domain.vcpus.entry(n).or_default();
        (vcpu.hard, vcpu.except) = (affinity.hard, affinity.except);
    }
    Ok(())
}

fn note_key(input: &mut Input, name: &str, one: &Assignment) {
    const READ: [&str; 7] = ["name", "vcpus", "maxvcpus", "cpu_weight", "cap", "pool", "cpus"];
    let key = one.key.as_str();
    if NOTED.contains(&key) {
        input.note(one.place, format!("{name}: `{key}` is not carried over"));
    } else if !READ.contains(&key) && !OTHER.split_whitespace().any(|known| known == key) {
        input.note(one.place, format!("{name}: `{}` is not known and not carried over", shorten(key)));
    }
}

/// The hard affinity of each vCPU: of all from a string, of one after another from a list.
fn affinities(
    input: &mut Input,
    assignments: &[Assignment],
    name: &str,
    vcpus: usize,
    draft: &mut HostDraft,
) -> Result<Vec<PrintedVcpu>, Reported> {
    let mut all: Vec<PrintedVcpu> = (0..vcpus).map(|_| PrintedVcpu::default()).collect();
    match get(assignments, "cpus").map(|one| &one.value) {
        None => {}
        Some(Value::Atom(list, place)) => {
            for vcpu in &mut all {
                *vcpu = affinity(input, *place, name, list, draft)?;
            }
        }
        Some(Value::List(values)) => {
            for (vcpu, value) in all.iter_mut().zip(values) {
                if let Value::Atom(list, place) = value {
                    *vcpu = affinity(input, *place, name, list, draft)?;
                }
            }
        }
    }
    Ok(all)
}

/// `all`, `0-3`, `0-3,^1`, `^1` for all but one.
fn affinity(
    input: &mut Input,
    place: Place,
    name: &str,
    list: &str,
    draft: &mut HostDraft,
) -> Result<PrintedVcpu, Reported> {
    let nothing = PrintedVcpu::default();
    if list.contains("node") {
        input.note(place, format!("{name}: processors of NUMA nodes are not known; taken as all"));
        return Ok(nothing);
    }
    let parts: Vec<&str> = list.split(',').map(str::trim).filter(|part| *part != "all").collect();
    let is_of_all = parts.len() < list.split(',').count() || parts.iter().all(|part| part.starts_with('^'));
    if !is_of_all {
        let hard = input.cpu_list(place, "`cpus`", list).ok_or(Reported)?;
        draft.include_processors(&hard);
        return Ok(PrintedVcpu { hard: Some(hard), ..nothing });
    }
    let mut except = Vec::new();
    for part in parts.iter().filter_map(|part| part.strip_prefix('^')) {
        except.extend(input.cpu_list(place, "`cpus`", part).ok_or(Reported)?);
    }
    draft.include_processors(&except);
    Ok(PrintedVcpu { except, ..nothing })
}
