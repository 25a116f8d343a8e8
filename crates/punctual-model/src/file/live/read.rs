//! What a domain is on a real host: `vm`, `process` or `attach`, and `helpers`.

use std::path::PathBuf;

use super::keys::LIVE_KEYS;
use crate::file::error::{Place, nearest};
use crate::file::fields::{Problems, Tab, header, shorten};
use crate::file::limits::PID_MAX;
use crate::file::tree::{Entry, Value};
use crate::live::{
    Accel, Attach, Backend, HelperPolicy, Helpers, Live, LiveKeys, Process, Program, Vm, VmNetwork,
};

/// Keys of which a domain has at most one.
const BACKENDS: [&str; 3] = ["vm", "process", "attach"];
/// Bytes of a Unix socket's path: `sun_path` less its NUL (Linux, include/uapi/linux/un.h).
const SOCKET_PATH_MAX: usize = 107;
/// Bytes of an interface's name: `IFNAMSIZ` less its NUL (Linux, include/uapi/linux/if.h).
const INTERFACE_MAX: usize = 15;

/// Of a domain with so many vCPUs in a pool, on a machine with so many processors.
pub(crate) fn live(tab: Tab<'_>, vcpus: usize, processors: usize, problems: &mut Problems) -> Live {
    let mut given = tab.table.entries.iter().filter(|e| BACKENDS.contains(&e.key.as_str()));
    let first = given.next();
    for other in given {
        let message =
            format!("{} has both `{}` and `{}`", header(tab), first.map_or("", |e| &e.key), other.key);
        problems.add(&other.key_place, message, format!("expected at most one of {}", BACKENDS.join(", ")));
    }
    // All that are there are read for their errors.
    let vm = problems.table(tab, "vm").map(|tab| Backend::Vm(vm(tab, problems)));
    let process = problems.table(tab, "process").map(|tab| Backend::Process(process(tab, problems)));
    let attach =
        problems.table(tab, "attach").and_then(|tab| attach(tab, vcpus, problems)).map(Backend::Attach);
    let helpers = problems.table(tab, "helpers").map(|tab| helpers(tab, processors, problems));
    let backend = vm.or(process).or(attach).unwrap_or_default();
    LiveKeys { backend, helpers: helpers.unwrap_or_default() }.into()
}

/// A nested domain belongs to its outer domain's guest; nothing on this host stands for it.
pub(crate) fn refuse_nested(tab: Tab<'_>, problems: &mut Problems) {
    for entry in tab.table.entries.iter().filter(|e| LIVE_KEYS.iter().any(|k| k.name == e.key)) {
        let message = format!("{} runs inside another domain and has no `{}`", header(tab), entry.key);
        problems.add(&entry.key_place, message, "expected it only in a domain that is in a pool");
    }
}

fn vm(tab: Tab<'_>, problems: &mut Problems) -> Vm {
    let accel = match problems.word(tab, "accel").unwrap_or_else(|| tab.default("accel")) {
        "kvm" => Accel::Kvm,
        "tcg" => Accel::Tcg,
        _ => Accel::Auto,
    };
    let disks = texts(tab, "disk", "expected a list of paths, for example [\"disk.qcow2\"]", problems);
    for (path, place) in &disks {
        problems.line("disk", path, place);
    }
    Vm {
        kernel: path(tab, "kernel", problems),
        initrd: path(tab, "initrd", problems),
        memory_mib: problems.count_or(tab, "memory_mib") as u32,
        disks: disks.into_iter().map(|(path, _)| path.into()).collect(),
        network: network(tab, problems),
        accel,
        arguments: arguments(tab, "arguments", "[\"-cpu\", \"host\"]", problems),
        append: line(tab, "append", problems).map(str::to_string),
    }
}

/// `"none"`, `"user"`, `"tap:IFNAME"`.
fn network(tab: Tab<'_>, problems: &mut Problems) -> VmNetwork {
    let Some((entry, text)) = tab.get("network").zip(problems.text(tab, "network")) else {
        return VmNetwork::None;
    };
    match text.strip_prefix("tap:") {
        Some(name) if is_interface(name) => return VmNetwork::Tap(name.into()),
        Some(name) => {
            let message = format!("`{}` cannot be the name of an interface", shorten(name));
            let expected =
                format!("expected 1 to {INTERFACE_MAX} letters, digits, `-`, `_`, `.`, for example tap:tap0");
            problems.add(&entry.node.place, message, expected);
        }
        None if text == "none" => {}
        None if text == "user" => return VmNetwork::User,
        None => {
            let message = format!("`network` is \"{}\"", shorten(text));
            let near = nearest(text, ["none", "user", "tap:"]);
            problems.add_nearest(&entry.node.place, message, "expected none, user or tap:IFNAME", near);
        }
    }
    VmNetwork::None
}

/// Stricter than Linux (`dev_valid_name`, net/core/dev.c): what QEMU's options need no quoting for.
fn is_interface(name: &str) -> bool {
    let valid = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=INTERFACE_MAX).contains(&name.len()) && name.chars().all(valid) && name != "." && name != ".."
}

fn process(tab: Tab<'_>, problems: &mut Problems) -> Process {
    let mut command = arguments(tab, "command", "[\"stress-ng\", \"--cpu\", \"1\"]", problems).into_iter();
    let program = match (tab.get("command"), command.next()) {
        (Some(_), Some(program)) if !program.is_empty() => {
            Program::Command { program, arguments: command.collect() }
        }
        (Some(entry), first) => {
            if matches!(&entry.node.value, Value::List(items) if items.is_empty() || first.is_some()) {
                let message = "`command` has no program";
                problems.add(&entry.node.place, message, "expected the program first, then its arguments");
            }
            Program::Guest
        }
        (None, _) => Program::Guest,
    };
    let environment = tab.get("environment").map(|entry| environment(entry, problems)).unwrap_or_default();
    Process { program, environment, directory: path(tab, "directory", problems) }
}

fn environment(entry: &Entry, problems: &mut Problems) -> Vec<(String, String)> {
    let expected = "expected variables with their values, for example { LANG = \"C\" }";
    let Value::Table(variables) = &entry.node.value else {
        problems.add(&entry.place(), format!("`environment` is {}", entry.node.value.kind()), expected);
        return Vec::new();
    };
    let mut environment = Vec::new();
    for variable in &variables.entries {
        let key = shorten(&variable.key);
        if variable.key.is_empty() || variable.key.contains(['=', '\0']) {
            let message = format!("`{key}` cannot be the name of a variable");
            problems.add(&variable.key_place, message, "expected a name without = and NUL");
        }
        match &variable.node.value {
            Value::Text(value) => {
                problems.no_nul(&key, value, &variable.node.place);
                environment.push((variable.key.clone(), value.clone()));
            }
            other => {
                problems.add(&variable.place(), format!("`{key}` is {}", other.kind()), "expected a string")
            }
        }
    }
    environment
}

fn attach(tab: Tab<'_>, vcpus: usize, problems: &mut Problems) -> Option<Attach> {
    let names: Vec<&str> = tab.info.names().collect();
    let mut given = tab.table.entries.iter().filter(|e| names.contains(&e.key.as_str()));
    let expected = format!("expected exactly one of {}", names.join(", "));
    match (given.next(), given.next()) {
        (None, _) if tab.table.entries.is_empty() => problems.add(tab.place, "`attach` is empty", expected),
        (Some(first), Some(second)) => {
            let message = format!("`attach` has both `{}` and `{}`", first.key, second.key);
            problems.add(&second.key_place, message, expected);
        }
        _ => {}
    }
    // All that are there are read for their errors.
    let mut pid = |key| problems.count(tab, key).map(|pid| pid as u32);
    let process = pid("process").map(Attach::Process);
    let firecracker = pid("firecracker").map(Attach::Firecracker);
    let cloud_hypervisor = pid("cloud_hypervisor").map(Attach::CloudHypervisor);
    let qmp = path(tab, "qmp", problems).map(Attach::Qmp);
    let libvirt = line(tab, "libvirt", problems).map(|name| Attach::Libvirt(name.into()));
    let threads = threads(tab, vcpus, problems).map(Attach::Threads);
    if let (Some(Attach::Qmp(path)), Some(entry)) = (&qmp, tab.get("qmp"))
        && path.as_os_str().len() > SOCKET_PATH_MAX
    {
        let message = format!("`qmp` has {} bytes", path.as_os_str().len());
        let expected = format!("expected at most {SOCKET_PATH_MAX}, as the path of a Unix socket");
        problems.add(&entry.node.place, message, expected);
    }
    process.or(firecracker).or(cloud_hypervisor).or(qmp).or(libvirt).or(threads)
}

fn threads(tab: Tab<'_>, vcpus: usize, problems: &mut Problems) -> Option<Vec<u32>> {
    let entry = tab.get("threads")?;
    let ids = problems.numbers_within(entry, 1..=PID_MAX, "thread ids")?;
    if ids.len() != vcpus {
        let message = format!("`threads` has {} for {vcpus} vCPUs", ids.len());
        problems.add(&entry.node.place, message, "expected one thread per vCPU, in the vCPUs' order");
    }
    Some(ids.into_iter().map(|(id, _)| id as u32).collect())
}

fn helpers(tab: Tab<'_>, machine: usize, problems: &mut Problems) -> Helpers {
    let own = tab.get("processors").and_then(|e| problems.numbers(e, machine, "processors of the machine"));
    let processors = own.map(|own| {
        let mut own: Vec<usize> = own.into_iter().map(|(n, _)| n).collect();
        own.sort_unstable();
        own
    });
    let fifo = problems.word(tab, "policy").unwrap_or_else(|| tab.default("policy")) == "fifo";
    let priority = problems.count_or(tab, "priority") as u8;
    let nice = problems.integer_or(tab, "nice") as i8;
    let (policy, name, reads, ignores) = match fifo {
        true => (HelperPolicy::Fifo { priority }, "fifo", "priority", "nice"),
        false => (HelperPolicy::Other { nice }, "other", "nice", "priority"),
    };
    if let Some(entry) = tab.get(ignores) {
        let message = format!("policy `{name}` does not read `{ignores}`");
        problems.add(&entry.key_place, message, format!("expected `{reads}`, or the other policy"));
    }
    Helpers { processors, policy }
}

/// The text under `key`, not empty and on one line.
fn line<'t>(tab: Tab<'t>, key: &'static str, problems: &mut Problems) -> Option<&'t str> {
    let text = problems.text(tab, key)?;
    problems.line(key, text, &tab.get(key)?.node.place);
    Some(text)
}

fn path(tab: Tab<'_>, key: &'static str, problems: &mut Problems) -> Option<PathBuf> {
    line(tab, key, problems).map(PathBuf::from)
}

/// The list under `key`; empty when it is absent or wrong.
fn texts<'t>(
    tab: Tab<'t>,
    key: &'static str,
    expected: &str,
    problems: &mut Problems,
) -> Vec<(&'t str, &'t Place)> {
    tab.get(key).and_then(|entry| problems.texts(entry, expected)).unwrap_or_default()
}

/// A list of a program's arguments.
fn arguments(tab: Tab<'_>, key: &'static str, example: &str, problems: &mut Problems) -> Vec<String> {
    let texts = texts(tab, key, &format!("expected a list of strings, for example {example}"), problems);
    for (text, place) in &texts {
        problems.no_nul(key, text, place);
    }
    texts.into_iter().map(|(text, _)| text.to_string()).collect()
}

impl Problems {
    fn line(&mut self, key: &str, text: &str, place: &Place) {
        if text.is_empty() || text.chars().any(char::is_control) {
            self.add(
                place,
                format!("`{key}` is empty or has control characters"),
                "expected a text on one line",
            );
        }
    }

    fn no_nul(&mut self, key: &str, text: &str, place: &Place) {
        if text.contains('\0') {
            self.add(place, format!("`{key}` has a NUL character"), "expected none: it would end the string");
        }
    }
}
