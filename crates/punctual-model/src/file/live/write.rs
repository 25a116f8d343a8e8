//! What a domain is on a real host, as tables of a host file.

use std::path::Path;

use toml_edit::{InlineTable, Table, Value};

use crate::file::writer::{Keys, number, numbers, table, texts, time};
use crate::live::{Accel, Attach, Backend, HelperPolicy, Helpers, Live, Process, Program, Vm, VmNetwork};
use crate::sockets::Sockets;

/// The tables of a domain that only live runs read. There is a table even for `Process::default()`: it says
/// that the domain is a process.
pub(crate) fn live_tables(live: &Live) -> Vec<(&'static str, Table)> {
    let mut tables = match &live.backend {
        Backend::Default => Vec::new(),
        Backend::Vm(own) => vec![("vm", table(vm(own)))],
        Backend::Process(own) => vec![("process", table(process(own)))],
        Backend::Attach(to) => vec![("attach", table(vec![attach(to)]))],
    };
    if live.helpers != Helpers::default() {
        tables.push(("helpers", table(helpers(&live.helpers))));
    }
    tables.extend(live.sockets.as_ref().map(|own| ("sockets", table(sockets(own)))));
    tables
}

fn sockets(sockets: &Sockets) -> Keys {
    let mut keys = vec![
        ("allow", texts(sockets.allow.iter().map(ToString::to_string))),
        ("sockets_max", number(sockets.sockets_max)),
    ];
    keys.extend(sockets.calls_per_second.map(|calls| ("calls_per_second", number(calls))));
    keys.extend(sockets.buffer_kib.map(|kib| ("buffer_kib", number(kib))));
    keys.extend(sockets.priority.map(|priority| ("priority", number(priority))));
    keys.extend(sockets.processor.map(|processor| ("processor", number(processor))));
    keys.push(("poll", time(sockets.poll)));
    keys.extend(sockets.netns.as_deref().map(|netns| ("netns", netns.into())));
    keys.push(("idle_poll", time(sockets.idle_poll)));
    if !sockets.commands.is_empty() {
        keys.push(("commands", texts(sockets.commands.iter().cloned())));
    }
    keys
}

fn vm(vm: &Vm) -> Keys {
    let network = match &vm.network {
        VmNetwork::None => "none".to_string(),
        VmNetwork::User => "user".to_string(),
        VmNetwork::Tap(name) => format!("tap:{name}"),
    };
    let accel = match vm.accel {
        Accel::Auto => "auto",
        Accel::Kvm => "kvm",
        Accel::Tcg => "tcg",
    };
    let mut keys = Keys::new();
    keys.extend(vm.kernel.as_deref().map(|kernel| ("kernel", path(kernel))));
    keys.extend(vm.initrd.as_deref().map(|initrd| ("initrd", path(initrd))));
    keys.extend([
        ("memory_mib", number(vm.memory_mib)),
        ("disk", texts(vm.disks.iter().map(|disk| disk.display().to_string()))),
        ("network", network.into()),
        ("accel", accel.into()),
        ("arguments", texts(&vm.arguments)),
    ]);
    keys.extend(vm.append.as_ref().map(|append| ("append", append.into())));
    keys
}

fn process(process: &Process) -> Keys {
    let mut keys = Keys::new();
    if let Program::Command { program, arguments } = &process.program {
        keys.push(("command", texts([program].into_iter().chain(arguments))));
    }
    if !process.environment.is_empty() {
        let variables: InlineTable = process.environment.iter().map(|(name, value)| (name, value)).collect();
        keys.push(("environment", variables.into()));
    }
    keys.extend(process.directory.as_deref().map(|directory| ("directory", path(directory))));
    keys
}

fn attach(attach: &Attach) -> (&'static str, Value) {
    match attach {
        Attach::Qmp(socket) => ("qmp", path(socket)),
        Attach::Libvirt(name) => ("libvirt", name.into()),
        Attach::Process(pid) => ("process", number(*pid)),
        Attach::Firecracker(pid) => ("firecracker", number(*pid)),
        Attach::CloudHypervisor(pid) => ("cloud_hypervisor", number(*pid)),
        Attach::Threads(ids) => ("threads", numbers(ids.iter().map(|id| *id as usize))),
    }
}

fn helpers(helpers: &Helpers) -> Keys {
    let mut keys = Keys::new();
    keys.extend(helpers.processors.iter().map(|list| ("processors", numbers(list.iter().copied()))));
    match helpers.policy {
        HelperPolicy::Other { nice } => keys.extend([("policy", "other".into()), ("nice", number(nice))]),
        HelperPolicy::Fifo { priority } => {
            keys.extend([("policy", "fifo".into()), ("priority", number(priority))]);
        }
    }
    keys
}

/// A path of the host file is UTF-8, so that showing it loses nothing.
fn path(path: &Path) -> Value {
    path.display().to_string().into()
}
