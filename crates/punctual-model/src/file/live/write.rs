//! What a domain is on a real host, as keys of a host file.

use std::path::Path;

use crate::file::writer::{Writer, numbers, quoted};
use crate::live::{Accel, Attach, Backend, HelperPolicy, Helpers, Live, Process, Program, Vm, VmNetwork};

/// Writes the tables of the domain at `path`. A table header even for `Process::default()`: that it is there
/// says that the domain is a process.
pub(crate) fn live(out: &mut Writer, live: &Live, path: &str) {
    match &live.backend {
        Backend::Default => {}
        Backend::Vm(own) => {
            out.table(&format!("{path}.vm"));
            vm(out, own);
        }
        Backend::Process(own) => {
            out.table(&format!("{path}.process"));
            process(out, own);
        }
        Backend::Attach(to) => {
            out.table(&format!("{path}.attach"));
            attach(out, to);
        }
    }
    if live.helpers != Helpers::default() {
        out.table(&format!("{path}.helpers"));
        helpers(out, &live.helpers);
    }
}

fn vm(out: &mut Writer, vm: &Vm) {
    file(out, "kernel", vm.kernel.as_deref());
    file(out, "initrd", vm.initrd.as_deref());
    out.key("memory_mib", vm.memory_mib);
    out.key("disk", texts(vm.disks.iter().map(|path| path.display().to_string())));
    let network = match &vm.network {
        VmNetwork::None => "none".to_string(),
        VmNetwork::User => "user".to_string(),
        VmNetwork::Tap(name) => format!("tap:{name}"),
    };
    out.key("network", quoted(network));
    let accel = match vm.accel {
        Accel::Auto => "auto",
        Accel::Kvm => "kvm",
        Accel::Tcg => "tcg",
    };
    out.key("accel", quoted(accel));
    out.key("arguments", texts(vm.arguments.iter().cloned()));
    if let Some(append) = &vm.append {
        out.key("append", quoted(append));
    }
}

fn process(out: &mut Writer, process: &Process) {
    if let Program::Command { program, arguments } = &process.program {
        out.key("command", texts([program].into_iter().chain(arguments).cloned()));
    }
    let variables =
        process.environment.iter().map(|(key, value)| format!("{} = {}", quoted(key), quoted(value)));
    let variables: Vec<String> = variables.collect();
    if !variables.is_empty() {
        out.key("environment", format!("{{ {} }}", variables.join(", ")));
    }
    file(out, "directory", process.directory.as_deref());
}

fn attach(out: &mut Writer, attach: &Attach) {
    match attach {
        Attach::Qmp(path) => file(out, "qmp", Some(path)),
        Attach::Libvirt(name) => out.key("libvirt", quoted(name)),
        Attach::Process(pid) => out.key("process", pid),
        Attach::Firecracker(pid) => out.key("firecracker", pid),
        Attach::CloudHypervisor(pid) => out.key("cloud_hypervisor", pid),
        Attach::Threads(ids) => out.key("threads", numbers(ids.iter().map(|id| *id as usize))),
    }
}

fn helpers(out: &mut Writer, helpers: &Helpers) {
    if let Some(processors) = &helpers.processors {
        out.key("processors", numbers(processors.iter().copied()));
    }
    match helpers.policy {
        HelperPolicy::Other { nice } => {
            out.key("policy", quoted("other"));
            out.key("nice", nice);
        }
        HelperPolicy::Fifo { priority } => {
            out.key("policy", quoted("fifo"));
            out.key("priority", priority);
        }
    }
}

/// A path of the host file is UTF-8, so that showing it loses nothing.
fn file(out: &mut Writer, key: &str, path: Option<&Path>) {
    if let Some(path) = path {
        out.key(key, quoted(path.display()));
    }
}

fn texts(of: impl Iterator<Item = String>) -> String {
    format!("[{}]", of.map(quoted).collect::<Vec<_>>().join(", "))
}
