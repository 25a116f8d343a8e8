//! The threads of virtual machine monitors: which of them are vCPUs, and what the others do.
//!
//! They are recognised by the names that each monitor gives them:
//! - QEMU (`-name NAME,debug-threads=on`, which libvirt sets): `CPU 0/KVM`, `CPU 0/TCG`; `IO iothread0`;
//!   `call_rcu`; `worker` (qemu: `accel/*/`, `iothread.c`, `util/rcu.c`, `util/thread-pool.c`);
//! - Firecracker: `fc_vcpu 0`; `fc_api` (`src/vmm/src/vstate/vcpu.rs`);
//! - Cloud Hypervisor: `vcpu0`; `_disk0_q0`, `_net1_qp0` (`vmm/src/cpu.rs`, `virtio-devices`);
//! - vhost workers are named `vhost-PID` after the process that they serve: threads of that process from
//!   Linux 6.4 on, kernel threads before.
//!
//! Every function takes the `proc` directory that it reads, so that tests can make their own.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A virtual machine monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Monitor {
    /// QEMU, also as `kvm` or `qemu-kvm`.
    Qemu,
    /// Firecracker.
    Firecracker,
    /// Cloud Hypervisor.
    CloudHypervisor,
}

impl Monitor {
    /// A word for it, as tables and JSON show it.
    pub fn name(self) -> &'static str {
        match self {
            Monitor::Qemu => "qemu",
            Monitor::Firecracker => "firecracker",
            Monitor::CloudHypervisor => "cloud-hypervisor",
        }
    }

    /// The monitor that is started under this name, `argv[0]`; the directory does not matter.
    pub fn of_program(program: &[u8]) -> Option<Monitor> {
        let file = program.rsplit(|&byte| byte == b'/').next().unwrap_or(program);
        match file {
            b"kvm" | b"qemu-kvm" | b"qemu" => Some(Monitor::Qemu),
            _ if file.starts_with(b"qemu-system-") => Some(Monitor::Qemu),
            _ if file.starts_with(b"firecracker") => Some(Monitor::Firecracker),
            _ if file.starts_with(b"cloud-hypervisor") => Some(Monitor::CloudHypervisor),
            _ => None,
        }
    }
}

/// What the command line of a monitor says about its VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmProcess {
    /// The program.
    pub monitor: Monitor,
    /// The VM's name: QEMU's `-name`, Firecracker's `--id`, the file name of Cloud Hypervisor's
    /// `--api-socket` without its ending.
    pub name: Option<String>,
    /// QEMU's `-uuid`, in lower case.
    pub uuid: Option<String>,
}

impl VmProcess {
    /// Reads the text of `/proc/PID/cmdline`; `None` for a program that is no monitor.
    pub fn parse(command_line: &[u8]) -> Option<VmProcess> {
        let arguments: Vec<&[u8]> = command_line.split(|&byte| byte == 0).collect();
        let monitor = Monitor::of_program(arguments.first()?)?;
        let name = match monitor {
            Monitor::Qemu => value_of(&arguments, &["-name", "--name"]).and_then(|value| qemu_name(&value)),
            Monitor::Firecracker => value_of(&arguments, &["--id"]),
            Monitor::CloudHypervisor => value_of(&arguments, &["--api-socket"]).and_then(|value| {
                let path = value.split(',').find_map(|part| part.strip_prefix("path=")).unwrap_or(&value);
                Some(Path::new(path).file_stem()?.to_string_lossy().into_owned())
            }),
        };
        let uuid = match monitor {
            Monitor::Qemu => value_of(&arguments, &["-uuid", "--uuid"]).map(|uuid| uuid.to_ascii_lowercase()),
            Monitor::Firecracker | Monitor::CloudHypervisor => None,
        };
        Some(VmProcess { monitor, name: name.filter(|name| !name.is_empty()), uuid })
    }
}

/// The argument after the first of these options, or after its `=`.
fn value_of(arguments: &[&[u8]], options: &[&str]) -> Option<String> {
    let mut rest = arguments.iter().map(|argument| String::from_utf8_lossy(argument));
    while let Some(argument) = rest.next() {
        if options.contains(&&*argument) {
            return rest.next().map(|value| value.into_owned());
        }
        let inline = options.iter().filter(|option| option.starts_with("--"));
        if let Some(value) =
            inline.filter_map(|option| argument.strip_prefix(option)?.strip_prefix('=')).next()
        {
            return Some(value.to_owned());
        }
    }
    None
}

/// The name in the value of QEMU's `-name`.
fn qemu_name(value: &str) -> Option<String> {
    let mut parts = value.split(',');
    let name =
        parts.find_map(|part| part.strip_prefix("guest=").or_else(|| (!part.contains('=')).then_some(part)));
    name.map(str::to_owned)
}

/// What a thread does, of a monitor or of another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// It is the virtual CPU of that number.
    Vcpu(u32),
    /// The event loop: QEMU's main thread, which serves timers and most devices.
    MainLoop,
    /// Serves devices beside the main loop (QEMU `iothread` objects and thread pool, queues of Cloud
    /// Hypervisor).
    Io,
    /// Moves packets between a tap device and the guest, in the kernel.
    Vhost,
    /// Frees memory when no thread reads it any more (QEMU's RCU thread).
    Rcu,
    /// Anything else: migration, display, control interfaces.
    Other,
    /// A thread of a program that is no monitor.
    Task,
}

impl Role {
    /// A word for it, as tables and JSON show it.
    pub fn name(self) -> &'static str {
        match self {
            Role::Vcpu(_) => "vcpu",
            Role::MainLoop => "main-loop",
            Role::Io => "io",
            Role::Vhost => "vhost",
            Role::Rcu => "rcu",
            Role::Other => "other",
            Role::Task => "task",
        }
    }
}

/// A thread of a monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its thread id.
    pub tid: u32,
    /// Its name, at most 15 bytes.
    pub name: String,
    /// What it does.
    pub role: Role,
}

/// What a thread called `name` of process `pid` does. `leads` is true for the process' first thread.
pub fn role_of(name: &str, pid: u32, leads: bool) -> Role {
    let number = |text: &str| text.parse::<u32>().ok();
    let qemu = || {
        let (cpu, accelerator) = name.strip_prefix("CPU ")?.split_once('/')?;
        // The kernel keeps 15 bytes of a longer name.
        let known = ["KVM", "TCG", "HVF", "WHPX", "Xen", "DUMMY", "Dummy"];
        known.iter().any(|full| full.starts_with(accelerator)).then(|| number(cpu)).flatten()
    };
    let firecracker = || number(name.strip_prefix("fc_vcpu ")?);
    let cloud_hypervisor = || number(name.strip_prefix("vcpu")?);
    if let Some(vcpu) = qemu().or_else(firecracker).or_else(cloud_hypervisor) {
        return Role::Vcpu(vcpu);
    }
    match name {
        // QEMU's single-threaded TCG runs all vCPUs in one thread.
        "ALL CPUs/TCG" => Role::Vcpu(0),
        "call_rcu" => Role::Rcu,
        "worker" => Role::Io,
        _ if vhost_owner(name) == Some(pid) => Role::Vhost,
        _ if leads => Role::MainLoop,
        // QEMU creates its RCU thread before it reads the option to name threads, so the thread has the
        // program's name.
        _ if name.starts_with("qemu") => Role::Rcu,
        _ if name.starts_with("IO ") || name.starts_with("_disk") || name.starts_with("_net") => Role::Io,
        _ => Role::Other,
    }
}

/// The threads of process `pid`, by thread id. One that ends meanwhile is left out.
///
/// # Errors
/// When there is no such process.
pub fn threads_of(proc: &Path, pid: u32) -> io::Result<Vec<Thread>> {
    let mut threads = Vec::new();
    for entry in fs::read_dir(proc.join(pid.to_string()).join("task"))?.flatten() {
        let Some(tid) = number_of(&entry.file_name()) else { continue };
        let Ok(name) = fs::read_to_string(entry.path().join("comm")) else { continue };
        let name = name.trim_end_matches('\n').to_owned();
        let role = role_of(&name, pid, tid == pid);
        threads.push(Thread { tid, name, role });
    }
    threads.sort_by_key(|thread| thread.tid);
    Ok(threads)
}

/// The vCPUs among them: thread ids in order of the vCPUs' numbers.
pub fn vcpus(threads: &[Thread]) -> Vec<(u32, u32)> {
    let vcpu = |thread: &Thread| match thread.role {
        Role::Vcpu(number) => Some((number, thread.tid)),
        _ => None,
    };
    let mut vcpus: Vec<(u32, u32)> = threads.iter().filter_map(vcpu).collect();
    vcpus.sort_unstable();
    vcpus
}

/// What people call thread `tid`, whose name is `name`: a vCPU by its VM, because all VMs give their vCPUs'
/// threads the same names; any other thread by its own name.
pub fn shown_name(proc: &Path, tid: u32, name: &str) -> String {
    let Role::Vcpu(number) = role_of(name, tid, false) else { return name.to_owned() };
    let Ok(process) = process_of(proc, tid) else { return name.to_owned() };
    match vm_name(proc, process) {
        Some(vm) => format!("vCPU {number} of VM {vm} (process {process})"),
        None => format!("vCPU {number} of process {process}"),
    }
}

/// The vhost workers of process `pid` that are kernel threads of their own (before Linux 6.4).
pub fn vhost_kernel_threads(proc: &Path, pid: u32) -> Vec<Thread> {
    let name = format!("vhost-{pid}");
    let serves = |comm: &str| vhost_owner(comm.trim_end()) == Some(pid);
    let mut threads: Vec<Thread> = processes(proc)
        .filter(|(_, path)| fs::read_to_string(path.join("comm")).is_ok_and(|comm| serves(&comm)))
        .map(|(tid, _)| Thread { tid, name: name.clone(), role: Role::Vhost })
        .collect();
    threads.sort_by_key(|thread| thread.tid);
    threads
}

/// The process that a vhost worker with this name serves.
pub fn vhost_owner(name: &str) -> Option<u32> {
    name.strip_prefix("vhost-")?.parse().ok()
}

/// Why no process was found for the name of a VM.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FindError {
    /// The name is not unique.
    #[error("processes {one} and {other} both run a VM called `{name}`: give the process id")]
    Several {
        /// The VM's name.
        name: String,
        /// One process.
        one: u32,
        /// Another one.
        other: u32,
    },
    /// Only processes of users who run no VMs for the machine have the name: any user can start one.
    #[error(
        "process {process} calls its VM `{name}`, but is user {owner}'s, neither root's nor libvirt's; \
         if it is the right one, give its id: attach = {{ process = {process} }}"
    )]
    OtherOwner {
        /// The VM's name.
        name: String,
        /// The process.
        process: u32,
        /// Its user.
        owner: u32,
    },
    /// No VM on this machine has a name.
    #[error("no VM called `{name}` runs here, nor any other that has a name")]
    NoNames {
        /// The VM's name.
        name: String,
    },
    /// VMs run here, but under other names.
    #[error("no VM called `{name}` runs here; there are: {}", others.join(", "))]
    OtherNames {
        /// The VM's name.
        name: String,
        /// The names of the VMs that run.
        others: Vec<String>,
    },
}

/// Users whose processes are believed to be the VM that their command line names: root, the user of this
/// process, and those under which libvirt runs QEMU, from the file `passwd` (normally `/etc/passwd`).
pub fn trusted_owners(passwd: &Path) -> Vec<u32> {
    let text = fs::read_to_string(passwd).unwrap_or_default();
    let user = |line: &str| {
        let mut fields = line.split(':');
        let is_libvirt = matches!(fields.next(), Some("libvirt-qemu" | "qemu"));
        is_libvirt.then(|| fields.nth(1)?.parse::<u32>().ok()).flatten()
    };
    let mut owners = vec![0, rustix::process::geteuid().as_raw()];
    owners.extend(text.lines().filter_map(user));
    owners
}

/// The process that runs the VM called `name`: the one in libvirt's pid file below `run` (normally `/run`),
/// or one of `owners`. Its command line must have `-name NAME` or `-name guest=NAME`, as libvirt gives.
///
/// # Errors
/// When there is none, or more than one.
pub fn find_by_name(proc: &Path, run: &Path, name: &str, owners: &[u32]) -> Result<u32, FindError> {
    if let Some(pid) = pid_of_libvirt(run, name, owners)
        && vm_name(proc, pid).is_some_and(|found| found == name)
    {
        return Ok(pid);
    }
    let mut all: Vec<(u32, String)> =
        processes(proc).filter_map(|(pid, _)| Some((pid, vm_name(proc, pid)?))).collect();
    all.sort_unstable();
    let owner = |pid: u32| fs::metadata(proc.join(pid.to_string())).map(|process| process.uid());
    let is_trusted = |pid: u32| owner(pid).is_ok_and(|owner| owners.contains(&owner));
    let called = || all.iter().filter(|(_, other)| other == name).map(|(pid, _)| *pid);
    let mut found = called().filter(|pid| is_trusted(*pid));
    let first = (found.next(), found.next());
    let stranger = called().find_map(|pid| Some((pid, owner(pid).ok()?)));
    let name = name.to_owned();
    match first {
        (Some(pid), None) => Ok(pid),
        (Some(one), Some(other)) => Err(FindError::Several { name, one, other }),
        (None, _) if let Some((process, owner)) = stranger => {
            Err(FindError::OtherOwner { name, process, owner })
        }
        (None, _) if all.is_empty() => Err(FindError::NoNames { name }),
        (None, _) => {
            Err(FindError::OtherNames { name, others: all.into_iter().map(|(_, name)| name).collect() })
        }
    }
}

/// The process that libvirt wrote down for a VM. The file counts when it is a plain file of one of `owners`.
fn pid_of_libvirt(run: &Path, name: &str, owners: &[u32]) -> Option<u32> {
    let file = run.join("libvirt/qemu").join(format!("{name}.pid"));
    let metadata = fs::symlink_metadata(&file).ok()?;
    if !metadata.is_file() || !owners.contains(&metadata.uid()) {
        return None;
    }
    fs::read_to_string(&file).ok()?.trim().parse().ok()
}

/// The name that the command line of process `pid` gives its VM (QEMU's `-name`).
pub fn vm_name(proc: &Path, pid: u32) -> Option<String> {
    let line = fs::read(proc.join(pid.to_string()).join("cmdline")).ok()?;
    let arguments: Vec<&[u8]> = line.split(|&byte| byte == 0).collect();
    value_of(&arguments, &["-name", "--name"]).and_then(|value| qemu_name(&value))
}

/// The process that thread `tid` belongs to.
///
/// # Errors
/// When there is no such thread.
pub fn process_of(proc: &Path, tid: u32) -> io::Result<u32> {
    let status = fs::read_to_string(proc.join(tid.to_string()).join("status"))?;
    let group = status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
    group.ok_or_else(|| io::Error::other(format!("the status of thread {tid} has no Tgid")))
}

fn processes(proc: &Path) -> impl Iterator<Item = (u32, PathBuf)> {
    let entries = fs::read_dir(proc).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((number_of(&entry.file_name())?, entry.path())))
}

fn number_of(name: &std::ffi::OsStr) -> Option<u32> {
    name.to_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process: its id, its threads, its command line.
    type Process<'a> = (u32, &'a [(u32, &'a str)], &'a str);

    /// A `proc` with these processes.
    fn proc(processes: &[Process]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        let write = |path: PathBuf, text: &str| {
            fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            fs::write(path, text).expect("written");
        };
        for (pid, threads, command) in processes {
            let process = root.path().join(pid.to_string());
            write(process.join("cmdline"), &command.replace(' ', "\0"));
            for (tid, name) in *threads {
                write(process.join(format!("task/{tid}/comm")), &format!("{name}\n"));
                write(root.path().join(format!("{tid}/status")), &format!("Name:\t{name}\nTgid:\t{pid}\n"));
                if tid == pid {
                    write(process.join("comm"), &format!("{name}\n"));
                }
            }
        }
        root
    }

    #[test]
    fn threads_of_each_monitor_are_told_apart_by_name() {
        for (name, expected) in [
            ("CPU 0/KVM", Role::Vcpu(0)),
            ("CPU 12/TCG", Role::Vcpu(12)),
            ("CPU 100000/KV", Role::Vcpu(100_000)),
            ("ALL CPUs/TCG", Role::Vcpu(0)),
            ("fc_vcpu 3", Role::Vcpu(3)),
            ("vcpu7", Role::Vcpu(7)),
            ("IO iothread0", Role::Io),
            ("IO mon_iothread", Role::Io),
            ("worker", Role::Io),
            ("_disk0_q0", Role::Io),
            ("_net1_qp0", Role::Io),
            ("vhost-40", Role::Vhost),
            ("vhost-41", Role::Other),
            ("call_rcu", Role::Rcu),
            ("qemu-system-x86", Role::Rcu),
            ("fc_api", Role::Other),
            ("live_migration", Role::Other),
            ("CPU x/KVM", Role::Other),
            ("CPU 1/kworker", Role::Other),
            ("vcpu", Role::Other),
        ] {
            assert_eq!(role_of(name, 40, false), expected, "{name}");
        }
        assert_eq!(role_of("qemu-system-x86", 40, true), Role::MainLoop);
        assert_eq!(role_of("firecracker", 40, true), Role::MainLoop);
    }

    #[test]
    fn a_command_line_tells_monitor_name_and_uuid() {
        let parse = |line: &str| VmProcess::parse(line.replace(' ', "\0").as_bytes());
        let vm = |monitor, name: Option<&str>, uuid: Option<&str>| {
            Some(VmProcess { monitor, name: name.map(Into::into), uuid: uuid.map(Into::into) })
        };
        for (line, expected) in [
            (
                "/usr/bin/qemu-system-x86_64 -name guest=web,debug-threads=on -uuid C7A5 -m 1",
                vm(Monitor::Qemu, Some("web"), Some("c7a5")),
            ),
            ("kvm -id 100 -name web,debug-threads=on", vm(Monitor::Qemu, Some("web"), None)),
            ("qemu-system-arm -m 1 -name", vm(Monitor::Qemu, None, None)),
            ("/srv/firecracker-v1.7 --id fc-1 --api-sock a", vm(Monitor::Firecracker, Some("fc-1"), None)),
            ("firecracker --id=fc-2", vm(Monitor::Firecracker, Some("fc-2"), None)),
            (
                "cloud-hypervisor --api-socket path=/run/ch/db.sock",
                vm(Monitor::CloudHypervisor, Some("db"), None),
            ),
            ("find / -name qemu", None),
            ("qemu-img create -name x", None),
            ("", None),
        ] {
            assert_eq!(parse(line), expected, "{line}");
        }
        assert_eq!(
            VmProcess::parse(b"qemu-system-x\0-name\0\xff\0").and_then(|vm| vm.name).as_deref(),
            Some("\u{fffd}")
        );
    }

    #[test]
    fn vcpus_come_in_their_own_order() {
        let root = proc(&[(
            50,
            &[
                (50, "qemu-system-x86"),
                (51, "call_rcu"),
                (52, "CPU 1/KVM"),
                (53, "CPU 0/KVM"),
                (54, "vhost-50"),
            ],
            "qemu",
        )]);
        let threads = threads_of(root.path(), 50).expect("threads");
        assert_eq!(vcpus(&threads), [(0, 53), (1, 52)]);
        let roles: Vec<&str> = threads.iter().map(|thread| thread.role.name()).collect();
        assert_eq!(roles, ["main-loop", "rcu", "vcpu", "vcpu", "vhost"]);
        assert_eq!(process_of(root.path(), 53).expect("a process"), 50);
        assert!(threads_of(root.path(), 99).is_err());
        assert!(process_of(root.path(), 99).is_err());
    }

    #[test]
    fn vhost_workers_that_are_kernel_threads_are_found_by_the_process_they_serve() {
        let root = proc(&[
            (60, &[(60, "vhost-50")], ""),
            (61, &[(61, "vhost-5")], ""),
            (50, &[(50, "qemu")], "qemu"),
        ]);
        let found: Vec<u32> = vhost_kernel_threads(root.path(), 50).iter().map(|thread| thread.tid).collect();
        assert_eq!(found, [60]);
    }

    #[test]
    fn a_vcpu_is_shown_with_its_vm() {
        let threads = [(80, "qemu-system-x86"), (81, "CPU 1/TCG")];
        let root = proc(&[
            (80, &threads, "qemu -name guest=web,debug-threads=on"),
            (90, &[(90, "qemu"), (91, "CPU 0/KVM")], "qemu -m 1"),
        ]);
        let shown = |tid, name| shown_name(root.path(), tid, name);
        assert_eq!(shown(81, "CPU 1/TCG"), "vCPU 1 of VM web (process 80)");
        assert_eq!(shown(91, "CPU 0/KVM"), "vCPU 0 of process 90");
        assert_eq!(shown(80, "qemu-system-x86"), "qemu-system-x86");
        assert_eq!(shown(99, "CPU 0/KVM"), "CPU 0/KVM", "it has ended");
    }

    #[test]
    fn a_vm_is_found_by_pid_file_or_command_line() {
        let root = proc(&[
            (70, &[(70, "qemu")], "qemu -name guest=web,debug-threads=on -m 1"),
            (71, &[(71, "qemu")], "qemu --name db -m 1"),
            (72, &[(72, "qemu")], "qemu -name guest=twin"),
            (73, &[(73, "qemu")], "qemu -name twin,process=x"),
            (74, &[(74, "sh")], "sh -name"),
        ]);
        let run = tempfile::tempdir().expect("a directory");
        let owners = trusted_owners(Path::new("/no-such-file"));
        let find = |name: &str| find_by_name(root.path(), run.path(), name, &owners);
        assert_eq!(find("web"), Ok(70));
        assert_eq!(find("db"), Ok(71));
        let message = |name: &str| find(name).unwrap_err().to_string();
        assert!(message("twin").contains("72 and 73"));
        assert!(message("we").contains("there are: web, db, twin, twin"), "{}", message("we"));

        let files = run.path().join("libvirt/qemu");
        fs::create_dir_all(&files).expect("made");
        fs::write(files.join("twin.pid"), "73\n").expect("written");
        assert_eq!(find("twin"), Ok(73));
        // Stale files: of a VM that ended, and of one whose id another VM has now.
        for stale in ["7000\n", "71\n"] {
            fs::write(files.join("web.pid"), stale).expect("written");
            assert_eq!(find("web"), Ok(70));
        }
        let empty = tempfile::tempdir().expect("a directory");
        let none = find_by_name(empty.path(), run.path(), "web", &owners);
        assert_eq!(none, Err(FindError::NoNames { name: "web".into() }));
    }

    #[test]
    fn a_name_that_a_stranger_gave_itself_is_not_believed() {
        let root = proc(&[(70, &[(70, "qemu")], "qemu -name guest=web")]);
        let run = tempfile::tempdir().expect("a directory");
        let owner = rustix::process::geteuid().as_raw();
        let stranger = FindError::OtherOwner { name: "web".into(), process: 70, owner };
        let find = |owners: &[u32]| find_by_name(root.path(), run.path(), "web", owners);
        assert_eq!(find(&[owner + 1]), Err(stranger.clone()));
        // Nor is a pid file that the stranger wrote.
        let files = run.path().join("libvirt/qemu");
        fs::create_dir_all(&files).expect("made");
        fs::write(files.join("web.pid"), "70\n").expect("written");
        assert_eq!(find(&[owner + 1]), Err(stranger));
        assert_eq!(find(&[owner]), Ok(70));
    }

    #[test]
    fn libvirts_users_are_trusted() {
        let passwd = tempfile::NamedTempFile::new().expect("a file");
        fs::write(
            passwd.path(),
            "root:x:0:0::/:/bin/sh\nlibvirt-qemu:x:64055:107::/:/bin/false\nme:x:1:1::/:\n",
        )
        .expect("written");
        let owners = trusted_owners(passwd.path());
        assert!(owners.contains(&64055) && owners.contains(&0) && !owners.contains(&1), "{owners:?}");
    }
}
