//! What a domain is on a real host: `vm`, `process` or `attach`, and `helpers`.

use std::path::PathBuf;

use super::keys::LIVE_KEYS;
use crate::file::entry::{check_line, check_no_nul, shorten};
use crate::file::error::Errors;
use crate::file::limits::PID_MAX;
use crate::file::nearest::nearest;
use crate::file::section::Section;
use crate::file::source::Place;
use crate::file::tree::{Entry, Value};
use crate::live::{
    Accel, Attach, Backend, HelperPolicy, Helpers, Live, LiveKeys, Process, Program, Vm, VmNetwork,
};
use crate::sockets::{EXPECTED, Rule, Sockets};
use crate::text::printable;

/// Keys of which a domain has at most one.
const BACKENDS: [&str; 3] = ["vm", "process", "attach"];
/// Bytes of a Unix socket's path: `sun_path` less its NUL (Linux, include/uapi/linux/un.h).
const SOCKET_PATH_MAX: usize = 107;
/// Characters of a program's name, as the kernel keeps it: `TASK_COMM_LEN` less its NUL.
const COMMAND_MAX: usize = 15;
/// Bytes of an interface's name: `IFNAMSIZ` less its NUL (Linux, include/uapi/linux/if.h).
const INTERFACE_MAX: usize = 15;

/// Reads the backend of a domain that is in a pool and has `vcpus` vCPUs, on a machine with `processors`.
pub(crate) fn live(section: Section<'_>, vcpus: usize, processors: usize, errors: &mut Errors) -> Live {
    let mut given = section.table.entries.iter().filter(|e| BACKENDS.contains(&e.key.as_str()));
    let first = given.next();
    for other in given {
        let message =
            format!("{} has both `{}` and `{}`", section.header(), first.map_or("", |e| &e.key), other.key);
        errors.add(other.key_place, message, format!("expected at most one of {}", BACKENDS.join(", ")));
    }
    // All that are there are read for their errors.
    let vm = section.table("vm", errors).map(|section| Backend::Vm(vm(section, errors)));
    let process = section.table("process", errors).map(|section| Backend::Process(process(section, errors)));
    let attach = section
        .table("attach", errors)
        .and_then(|section| attach(section, vcpus, errors))
        .map(Backend::Attach);
    let helpers = section.table("helpers", errors).map(|section| helpers(section, processors, errors));
    let backend = vm.or(process).or(attach).unwrap_or_default();
    let threads_max = threads_max(section, &backend, errors);
    let sockets = sockets(section, &backend, processors, errors);
    LiveKeys { backend, helpers: helpers.unwrap_or_default(), threads_max, sockets }.into()
}

/// Something that runs already may need more threads at any time, and its owner does not expect a limit.
fn threads_max(section: Section<'_>, backend: &Backend, errors: &mut Errors) -> Option<u32> {
    let entry = section.get("threads_max")?;
    if let Backend::Attach(_) = backend {
        let message = format!("{} has both `attach` and `threads_max`", section.header());
        errors.add(entry.key_place, message, "expected a limit only for what the run starts itself");
    }
    section.count("threads_max", errors).map(|count| count as u32)
}

/// A process has the host's sockets without anybody's help.
fn sockets(
    section: Section<'_>,
    backend: &Backend,
    processors: usize,
    errors: &mut Errors,
) -> Option<Sockets> {
    let own = section.table("sockets", errors)?;
    if let Backend::Process(_) = backend {
        let message = format!("{} has both `process` and `sockets`", section.header());
        errors.add(own.place, message, "expected sockets only for a VM");
    }
    let texts = texts(own, "allow", &format!("expected a list of rules, each {EXPECTED}"), errors);
    let mut allow = Vec::new();
    for (text, place) in texts {
        match text.parse::<Rule>() {
            Ok(rule) => allow.push(rule),
            Err(wrong) => {
                let message = format!("`allow` has \"{}\": {}", shorten(text), printable(&wrong));
                errors.add(place, message, format!("expected {EXPECTED}"));
            }
        }
    }
    let commands = commands(own, errors);
    let processor = own.count("processor", errors).map(|processor| processor as usize);
    if let Some(processor) = processor.filter(|processor| *processor >= processors) {
        let message = format!("`processor` is {processor}, and the machine has {processors}");
        errors.add(own.place_of("processor"), message, "expected a processor of the machine");
    }
    let netns = own.text("netns", errors);
    if let Some(netns) = netns.filter(|name| !is_netns(name)) {
        let message = format!("`netns` is \"{}\"", shorten(netns));
        errors.add(own.place_of("netns"), message, "expected a name in /run/netns");
    }
    Some(Sockets {
        allow,
        sockets_max: own.count_or_default("sockets_max", errors) as u32,
        calls_per_second: own.count("calls_per_second", errors).map(|calls| calls as u32),
        buffer_kib: own.count("buffer_kib", errors).map(|kib| kib as u32),
        priority: own.count("priority", errors).map(|priority| priority as u8),
        processor,
        poll: own.duration_or_default("poll", errors),
        netns: netns.map(Into::into),
        idle_poll: own.duration_or_default("idle_poll", errors),
        commands,
    })
}

/// Can a network namespace have this name? It is a file's.
fn is_netns(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '\0'])
}

/// Names of programs, which stand on the command line of the guest's kernel.
fn commands(section: Section<'_>, errors: &mut Errors) -> Vec<String> {
    let fits = |name: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._+-".contains(c);
        (1..=COMMAND_MAX).contains(&name.len()) && name.chars().all(is_plain)
    };
    let expected = format!(
        "expected names of programs, for example [\"memcached\"], of at most {COMMAND_MAX} \
                            letters, digits, `.`, `_`, `+` and `-`"
    );
    let given = texts(section, "commands", &expected, errors);
    for (name, place) in given.iter().filter(|(name, _)| !fits(name)) {
        errors.add(*place, format!("`commands` has \"{}\"", shorten(name)), expected.clone());
    }
    given.into_iter().map(|(name, _)| name.to_owned()).collect()
}

/// A nested domain belongs to its outer domain's guest; it has no backend on this host.
pub(crate) fn refuse_nested(section: Section<'_>, errors: &mut Errors) {
    for entry in section.table.entries.iter().filter(|e| LIVE_KEYS.iter().any(|k| k.name == e.key)) {
        let message = format!("{} runs inside another domain and has no `{}`", section.header(), entry.key);
        errors.add(entry.key_place, message, "expected it only in a domain that is in a pool");
    }
}

fn vm(section: Section<'_>, errors: &mut Errors) -> Vm {
    let accel = match section.word("accel", errors).unwrap_or_else(|| section.default("accel")) {
        "kvm" => Accel::Kvm,
        "tcg" => Accel::Tcg,
        _ => Accel::Auto,
    };
    let disks = texts(section, "disk", "expected a list of paths, for example [\"disk.qcow2\"]", errors);
    for (path, place) in &disks {
        check_line("disk", path, *place, errors);
    }
    Vm {
        kernel: path(section, "kernel", errors),
        initrd: path(section, "initrd", errors),
        memory_mib: section.count_or_default("memory_mib", errors) as u32,
        disks: disks.into_iter().map(|(path, _)| path.into()).collect(),
        network: network(section, errors),
        accel,
        arguments: arguments(section, "arguments", "[\"-cpu\", \"host\"]", errors),
        append: line(section, "append", errors).map(str::to_string),
    }
}

/// `"none"`, `"user"`, `"tap:IFNAME"`.
fn network(section: Section<'_>, errors: &mut Errors) -> VmNetwork {
    let Some((entry, text)) = section.get("network").zip(section.text("network", errors)) else {
        return VmNetwork::None;
    };
    match text.strip_prefix("tap:") {
        Some(name) if is_interface(name) => return VmNetwork::Tap(name.into()),
        Some(name) => {
            let message = format!("`{}` cannot be the name of an interface", shorten(name));
            let expected =
                format!("expected 1 to {INTERFACE_MAX} letters, digits, `-`, `_`, `.`, for example tap:tap0");
            errors.add(entry.node.place, message, expected);
        }
        None if text == "none" => {}
        None if text == "user" => return VmNetwork::User,
        None => {
            let message = format!("`network` is \"{}\"", shorten(text));
            let near = nearest(text, ["none", "user", "tap:"]);
            errors.add_nearest(entry.node.place, message, "expected none, user or tap:IFNAME", near);
        }
    }
    VmNetwork::None
}

/// Stricter than Linux (`dev_valid_name`, net/core/dev.c): QEMU's options need no quotes for such a name.
fn is_interface(name: &str) -> bool {
    let valid = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=INTERFACE_MAX).contains(&name.len()) && name.chars().all(valid) && name != "." && name != ".."
}

fn process(section: Section<'_>, errors: &mut Errors) -> Process {
    let mut command = arguments(section, "command", "[\"stress-ng\", \"--cpu\", \"1\"]", errors).into_iter();
    let program = match (section.get("command"), command.next()) {
        (Some(_), Some(program)) if !program.is_empty() => {
            Program::Command { program, arguments: command.collect() }
        }
        (Some(entry), first) => {
            if matches!(&entry.node.value, Value::List(items) if items.is_empty() || first.is_some()) {
                let message = "`command` has no program";
                errors.add(entry.node.place, message, "expected the program first, then its arguments");
            }
            Program::Guest
        }
        (None, _) => Program::Guest,
    };
    let environment = section.get("environment").map(|entry| environment(entry, errors)).unwrap_or_default();
    Process { program, environment, directory: path(section, "directory", errors) }
}

fn environment(entry: &Entry, errors: &mut Errors) -> Vec<(String, String)> {
    let expected = "expected variables with their values, for example { LANG = \"C\" }";
    let Value::Table(variables) = &entry.node.value else {
        errors.add(entry.place(), format!("`environment` is {}", entry.node.value.kind()), expected);
        return Vec::new();
    };
    let mut environment = Vec::new();
    for variable in &variables.entries {
        let key = shorten(&variable.key);
        if variable.key.is_empty() || variable.key.contains(['=', '\0']) {
            let message = format!("`{key}` cannot be the name of a variable");
            errors.add(variable.key_place, message, "expected a name without = and NUL");
        }
        match &variable.node.value {
            Value::Text(value) => {
                check_no_nul(&key, value, variable.node.place, errors);
                environment.push((variable.key.clone(), value.clone()));
            }
            other => {
                errors.add(variable.place(), format!("`{key}` is {}", other.kind()), "expected a string")
            }
        }
    }
    environment
}

fn attach(section: Section<'_>, vcpus: usize, errors: &mut Errors) -> Option<Attach> {
    let names: Vec<&str> = section.info.names().collect();
    let mut given = section.table.entries.iter().filter(|e| names.contains(&e.key.as_str()));
    let expected = format!("expected exactly one of {}", names.join(", "));
    match (given.next(), given.next()) {
        (None, _) if section.table.entries.is_empty() => {
            errors.add(section.place, "`attach` is empty", expected)
        }
        (Some(first), Some(second)) => {
            let message = format!("`attach` has both `{}` and `{}`", first.key, second.key);
            errors.add(second.key_place, message, expected);
        }
        _ => {}
    }
    // All that are there are read for their errors.
    let mut pid = |key| section.count(key, errors).map(|pid| pid as u32);
    let process = pid("process").map(Attach::Process);
    let firecracker = pid("firecracker").map(Attach::Firecracker);
    let cloud_hypervisor = pid("cloud_hypervisor").map(Attach::CloudHypervisor);
    let qmp = path(section, "qmp", errors).map(Attach::Qmp);
    let libvirt = line(section, "libvirt", errors).map(|name| Attach::Libvirt(name.into()));
    let threads = threads(section, vcpus, errors).map(Attach::Threads);
    if let (Some(Attach::Qmp(path)), Some(entry)) = (&qmp, section.get("qmp"))
        && path.as_os_str().len() > SOCKET_PATH_MAX
    {
        let message = format!("`qmp` has {} bytes", path.as_os_str().len());
        let expected = format!("expected at most {SOCKET_PATH_MAX}, as the path of a Unix socket");
        errors.add(entry.node.place, message, expected);
    }
    process.or(firecracker).or(cloud_hypervisor).or(qmp).or(libvirt).or(threads)
}

fn threads(section: Section<'_>, vcpus: usize, errors: &mut Errors) -> Option<Vec<u32>> {
    let entry = section.get("threads")?;
    let ids = entry.numbers(1..=PID_MAX, "thread ids", errors)?;
    if ids.len() != vcpus {
        let message = format!("`threads` has {} for {vcpus} vCPUs", ids.len());
        errors.add(entry.node.place, message, "expected one thread per vCPU, in the vCPUs' order");
    }
    Some(ids.into_iter().map(|(id, _)| id as u32).collect())
}

fn helpers(section: Section<'_>, machine: usize, errors: &mut Errors) -> Helpers {
    let own = section.get("processors").and_then(|e| e.indices(machine, "processors of the machine", errors));
    let processors = own.map(|own| {
        let mut own: Vec<usize> = own.into_iter().map(|(n, _)| n).collect();
        own.sort_unstable();
        own
    });
    Helpers { processors, policy: helper_policy(section, errors) }
}

/// `policy`, with `priority` or `nice`.
pub(in crate::file) fn helper_policy(section: Section<'_>, errors: &mut Errors) -> HelperPolicy {
    let fifo = section.word("policy", errors).unwrap_or_else(|| section.default("policy")) == "fifo";
    let priority = section.count_or_default("priority", errors) as u8;
    let nice = section.integer_or_default("nice", errors) as i8;
    let (policy, name, other, reads, ignores) = if fifo {
        (HelperPolicy::Fifo { priority }, "fifo", "other", "priority", "nice")
    } else {
        (HelperPolicy::Other { nice }, "other", "fifo", "nice", "priority")
    };
    if let Some(entry) = section.get(ignores) {
        let message = format!("policy `{name}` does not read `{ignores}`");
        errors.add(entry.key_place, message, format!("expected `{reads}`, or policy = \"{other}\""));
    }
    policy
}

/// The text under `key`, not empty and on one line.
fn line<'t>(section: Section<'t>, key: &'static str, errors: &mut Errors) -> Option<&'t str> {
    let text = section.text(key, errors)?;
    check_line(key, text, section.place_of(key), errors);
    Some(text)
}

fn path(section: Section<'_>, key: &'static str, errors: &mut Errors) -> Option<PathBuf> {
    line(section, key, errors).map(PathBuf::from)
}

/// The list under `key`; empty when it is absent or wrong.
fn texts<'t>(
    section: Section<'t>,
    key: &'static str,
    expected: &str,
    errors: &mut Errors,
) -> Vec<(&'t str, Place)> {
    section.get(key).and_then(|entry| entry.texts(expected, errors)).unwrap_or_default()
}

/// A list of a program's arguments.
fn arguments(section: Section<'_>, key: &'static str, example: &str, errors: &mut Errors) -> Vec<String> {
    let texts = texts(section, key, &format!("expected a list of strings, for example {example}"), errors);
    for (text, place) in &texts {
        check_no_nul(key, text, *place, errors);
    }
    texts.into_iter().map(|(text, _)| text.to_string()).collect()
}
