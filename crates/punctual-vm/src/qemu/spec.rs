//! The description of a VM, and QEMU's command line for it.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::OFlags;

use super::error::Error;
use crate::image::{Image, PORT};

/// QEMU's filter of system calls, as libvirt sets it: no obsolete calls, no other rights, no other programs,
/// no change of its own scheduling.
const SANDBOX: &str = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny";

/// How a VM's instructions are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    /// By the processor itself; see [`super::accel`].
    Kvm,
    /// By QEMU's translator: slower, and everywhere.
    Tcg,
}

impl Accelerator {
    /// QEMU's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Accelerator::Kvm => "kvm",
            Accelerator::Tcg => "tcg",
        }
    }
}

/// A VM's network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// No device.
    #[default]
    None,
    /// QEMU's own network stack, behind the host's address: needs no rights.
    User,
    /// A tap device.
    Tap {
        /// Its name.
        interface: String,
        /// Does the kernel move the packets (vhost), or QEMU?
        vhost: bool,
    },
    /// A port of Punctual's switch (vhost-user).
    Switch {
        /// The socket of the port.
        port: SwitchPort,
        /// The Ethernet address.
        ethernet: String,
        /// The MTU that the device reports to the guest.
        mtu: Option<u32>,
    },
}

/// A socket without a name, on which a switch or a server of sockets listens. Only who has the descriptor
/// can connect to it.
#[derive(Clone, Debug)]
pub struct SwitchPort(Arc<OwnedFd>);

impl SwitchPort {
    /// A socket, and the end at which a switch listens. Nothing of it stays in the file system.
    ///
    /// # Errors
    /// When no socket can be made.
    pub fn new() -> io::Result<(SwitchPort, UnixListener)> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("port");
        let listener = UnixListener::bind(&path)?;
        // QEMU may be another user, and reaches the socket by its descriptor (`PATH`) alone.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666))?;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let socket = rustix::fs::open(&path, flags, rustix::fs::Mode::empty())?;
        Ok((SwitchPort(Arc::new(socket)), listener))
    }

    /// A descriptor for QEMU.
    pub(super) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.0.try_clone()
    }
}

impl PartialEq for SwitchPort {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for SwitchPort {}

/// A disk image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// The file.
    pub path: PathBuf,
    /// Its format by QEMU's word: `raw`, `qcow2`.
    pub format: String,
}

/// A VM to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmSpec {
    /// Its name.
    pub name: String,
    /// QEMU's program, sought on `PATH` unless it is a path.
    pub program: PathBuf,
    /// How it executes.
    pub accelerator: Accelerator,
    /// A kernel to boot; without one the firmware boots from the disk.
    pub kernel: Option<PathBuf>,
    /// An initramfs for the kernel.
    pub initrd: Option<PathBuf>,
    /// The kernel's command line.
    pub append: String,
    /// A disk.
    pub disk: Option<Disk>,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Virtual CPUs.
    pub vcpus: u32,
    /// Network.
    pub network: Network,
    /// Where the server of its sockets of the host listens.
    pub sockets: Option<SwitchPort>,
    /// Further arguments for QEMU, as they are.
    pub extra: Vec<String>,
    /// Is QEMU to filter its own system calls? An own `-sandbox` among the further arguments goes first.
    pub sandbox: bool,
}

/// Descriptors of the sockets at which a VM's devices connect.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ports {
    /// At a switch.
    pub switch: Option<i32>,
    /// At the server of its sockets.
    pub sockets: Option<i32>,
}

/// QEMU's program.
pub const PROGRAM: &str = "qemu-system-x86_64";

impl VmSpec {
    /// A VM with one vCPU, 256 MiB (as in S. Xi et al., "RT-Xen", EMSOFT 2011, s. 5.1), no network and no
    /// disk.
    pub fn new(name: &str, image: &Image, accelerator: Accelerator) -> Self {
        VmSpec {
            name: name.into(),
            program: PROGRAM.into(),
            accelerator,
            kernel: Some(image.kernel.clone()),
            initrd: Some(image.initrd.clone()),
            append: image.append.clone(),
            disk: None,
            memory_mib: 256,
            vcpus: 1,
            network: Network::None,
            sockets: None,
            extra: Vec::new(),
            sandbox: true,
        }
    }

    /// QEMU's arguments; `channels` are the descriptors of QMP, the serial console and the guest program's
    /// port, `ports` those of its devices' sockets, `tsc_khz` is the rate of this machine's time-stamp
    /// counter.
    pub(super) fn arguments(&self, channels: [i32; 3], ports: Ports, tsc_khz: Option<u64>) -> Vec<String> {
        let mut arguments: Vec<String> =
            ["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"].map(str::to_owned).into();
        if self.sandbox && self.extra.iter().all(|argument| !argument.ends_with("-sandbox")) {
            arguments.extend(["-sandbox", SANDBOX].map(str::to_owned));
        }
        let options = self.machine().into_iter().chain(channel_devices(channels));
        let options = options.chain(self.boot(tsc_khz)).chain(self.disk()).chain(self.network(ports.switch));
        let options = options.chain(ports.sockets.into_iter().flat_map(sockets_device));
        for (name, value) in options {
            arguments.extend([format!("-{name}"), value]);
        }
        arguments.extend(self.extra.iter().cloned());
        arguments
    }

    fn machine(&self) -> Vec<QemuOption> {
        let (accelerator, cpu) = match self.accelerator {
            Accelerator::Kvm => ("kvm", "host"),
            // A thread for each vCPU, by whose name and id it can be scheduled.
            Accelerator::Tcg => ("tcg,thread=multi", "max"),
        };
        let memory = format!("memory-backend-memfd,id=memory,size={}M,share=on", self.memory_mib);
        let (shared, machine) = match self.network {
            Network::Switch { .. } => (Some(("object", memory)), "q35,memory-backend=memory"),
            _ => (None, "q35"),
        };
        let mut options = Vec::from_iter(shared);
        options.extend([
            ("name", format!("guest={},debug-threads=on", escape(&self.name))),
            ("machine", machine.into()),
            ("accel", accelerator.into()),
            ("cpu", cpu.into()),
            ("smp", self.vcpus.to_string()),
            ("m", format!("{}M", self.memory_mib)),
        ]);
        options
    }

    fn boot(&self, tsc_khz: Option<u64>) -> Vec<QemuOption> {
        let mut options = Vec::new();
        if let Some(kernel) = &self.kernel {
            options.push(("kernel", kernel.display().to_string()));
            // A translated guest reads the machine's own counter, but measures the counter's rate with an
            // emulated timer. If it shares its processor while it boots, the measured rate, and so the
            // guest's clock, may be wrong by a factor of four.
            let append = match (self.accelerator, tsc_khz) {
                (Accelerator::Tcg, Some(khz)) => format!("tsc_early_khz={khz} {}", self.append),
                _ => self.append.clone(),
            };
            options.push(("append", append));
        }
        if let Some(initrd) = &self.initrd {
            // Not escaped: several files may stand here, separated by commas.
            options.push(("initrd", initrd.display().to_string()));
        }
        options
    }

    fn disk(&self) -> Option<QemuOption> {
        let Disk { path, format } = self.disk.as_ref()?;
        let path = escape(&path.display().to_string());
        Some(("drive", format!("file={path},format={},if=virtio", escape(format))))
    }

    fn network(&self, switch: Option<i32>) -> Vec<QemuOption> {
        let backend = match &self.network {
            Network::None => return Vec::new(),
            Network::Switch { ethernet, mtu, .. } => {
                // Under translation QEMU 7.2 crashes when it masks interrupts (MSI-X) of vhost-user.
                let vectors = if self.accelerator == Accelerator::Tcg { ",vectors=0" } else { "" };
                let mtu = mtu.map_or_else(String::new, |bytes| format!(",host_mtu={bytes}"));
                let device = format!("virtio-net-pci,netdev=net0,romfile=,mac={ethernet}{mtu}{vectors}");
                // QEMU passes descriptors over sockets only that it opened by a path.
                let socket = format!("socket,id=switch,path=/proc/self/fd/{}", switch.unwrap_or(-1));
                let backend = "vhost-user,id=net0,chardev=switch".into();
                return vec![("chardev", socket), ("netdev", backend), ("device", device)];
            }
            Network::User => "user,id=net0".into(),
            Network::Tap { interface, vhost } => {
                let vhost = if *vhost { "on" } else { "off" };
                let interface = escape(interface);
                format!("tap,id=net0,ifname={interface},script=no,downscript=no,vhost={vhost}")
            }
        };
        let device = format!("virtio-net-pci,netdev=net0,romfile=,mac={}", self.address());
        vec![("netdev", backend), ("device", device)]
    }

    /// An Ethernet address in QEMU's range that follows from the name: QEMU gives every VM the same one.
    fn address(&self) -> String {
        let hash = crate::cache::name_of(&[self.name.as_bytes()]);
        format!("52:54:00:{}:{}:{}", &hash[..2], &hash[2..4], &hash[4..6])
    }

    /// Checks the numbers, and that the files exist.
    ///
    /// # Errors
    /// The first of them that is wrong.
    pub fn check(&self) -> Result<(), Error> {
        let vm = || self.name.clone();
        let disk = self.disk.as_ref().map(|disk| &disk.path);
        for (key, path) in
            [("kernel", self.kernel.as_ref()), ("initrd", self.initrd.as_ref()), ("disk", disk)]
        {
            if let Some(path) = path.filter(|path| !path.is_file()) {
                return Err(Error::NotAFile { vm: vm(), key, path: path.clone() });
            }
        }
        if self.kernel.is_none() && self.disk.is_none() {
            return Err(Error::NothingToBoot { vm: vm() });
        }
        if self.vcpus == 0 || self.memory_mib == 0 {
            return Err(Error::TooSmall { vm: vm() });
        }
        Ok(())
    }
}

/// An option of QEMU's and its value.
type QemuOption = (&'static str, String);

/// The sockets over which we talk to QEMU, read the serial console, and talk to the guest program.
fn channel_devices([qmp, console, port]: [i32; 3]) -> [QemuOption; 7] {
    [
        ("chardev", format!("socket,id=qmp,fd={qmp}")),
        ("mon", "chardev=qmp,mode=control".into()),
        ("chardev", format!("socket,id=console,fd={console}")),
        ("serial", "chardev:console".into()),
        ("device", "virtio-serial-pci".into()),
        ("chardev", format!("socket,id=guest,fd={port}")),
        ("device", format!("virtserialport,chardev=guest,name={PORT}")),
    ]
}

/// The memory and the doorbells over which a guest makes calls to its host.
fn sockets_device(descriptor: i32) -> [QemuOption; 2] {
    [
        ("chardev", format!("socket,id=sockets,path=/proc/self/fd/{descriptor}")),
        ("device", "ivshmem-doorbell,chardev=sockets,vectors=8".into()),
    ]
}

/// QEMU's way to have a comma in a value.
fn escape(value: &str) -> String {
    value.replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> VmSpec {
        let image =
            Image { kernel: "/k".into(), initrd: "/i".into(), append: "quiet".into(), packages: Vec::new() };
        VmSpec::new("one", &image, Accelerator::Tcg)
    }

    fn values<'a>(arguments: &'a [String], option: &str) -> Vec<&'a str> {
        let pairs = arguments.windows(2).filter(|pair| pair[0] == option);
        pairs.map(|pair| pair[1].as_str()).collect()
    }

    #[test]
    fn qemu_filters_its_system_calls_unless_the_user_says_how() {
        let mut spec = spec();
        assert_eq!(values(&spec.arguments([3, 4, 5], Ports::default(), None), "-sandbox"), [SANDBOX]);
        spec.extra = vec!["-sandbox".into(), "off".into()];
        assert_eq!(values(&spec.arguments([3, 4, 5], Ports::default(), None), "-sandbox"), ["off"]);
        (spec.extra, spec.sandbox) = (Vec::new(), false);
        assert!(values(&spec.arguments([3, 4, 5], Ports::default(), None), "-sandbox").is_empty());
    }

    #[test]
    fn commas_in_names_do_not_become_options() {
        let mut spec = spec();
        spec.name = "a,process=b".into();
        spec.disk = Some(Disk { path: "/d,if=none".into(), format: "raw".into() });
        let arguments = spec.arguments([3, 4, 5], Ports::default(), None);
        assert_eq!(values(&arguments, "-name"), ["guest=a,,process=b,debug-threads=on"]);
        assert_eq!(values(&arguments, "-drive"), ["file=/d,,if=none,format=raw,if=virtio"]);
    }

    #[test]
    fn networks_differ_in_backend_and_addresses_in_the_name_of_the_vm() {
        let mut spec = spec();
        assert!(values(&spec.arguments([3, 4, 5], Ports::default(), None), "-netdev").is_empty());
        spec.network = Network::Tap { interface: "tap0".into(), vhost: true };
        let arguments = spec.arguments([3, 4, 5], Ports::default(), None);
        assert_eq!(
            values(&arguments, "-netdev"),
            ["tap,id=net0,ifname=tap0,script=no,downscript=no,vhost=on"]
        );
        let address = spec.address();
        spec.name = "two".into();
        assert_ne!(spec.address(), address);
        assert!(address.starts_with("52:54:00:") && address.len() == 17, "{address}");
    }

    #[test]
    fn a_port_of_a_switch_needs_memory_that_the_switch_sees() {
        let (port, _) = SwitchPort::new().expect("a socket");
        let network = Network::Switch { port, ethernet: "52:54:00:10:00:01".into(), mtu: Some(1_400) };
        let mut spec = VmSpec { network, ..spec() };
        let arguments = spec.arguments([3, 4, 5], Ports { switch: Some(9), sockets: None }, None);
        assert_eq!(values(&arguments, "-machine"), ["q35,memory-backend=memory"]);
        assert_eq!(values(&arguments, "-object"), ["memory-backend-memfd,id=memory,size=256M,share=on"]);
        assert!(values(&arguments, "-chardev").contains(&"socket,id=switch,path=/proc/self/fd/9"));
        let device =
            |arguments: &[String]| values(arguments, "-device").last().map(|text| (*text).to_owned());
        assert!(
            device(&arguments)
                .is_some_and(|text| text.ends_with("mac=52:54:00:10:00:01,host_mtu=1400,vectors=0"))
        );
        spec.accelerator = Accelerator::Kvm;
        let arguments = spec.arguments([3, 4, 5], Ports { switch: Some(9), sockets: None }, None);
        assert!(device(&arguments).is_some_and(|text| text.ends_with("mac=52:54:00:10:00:01,host_mtu=1400")));
    }

    #[test]
    fn translated_guests_are_told_how_fast_the_counter_counts() {
        let mut spec = spec();
        assert_eq!(
            values(&spec.arguments([3, 4, 5], Ports::default(), Some(2_600_000)), "-append"),
            ["tsc_early_khz=2600000 quiet"]
        );
        spec.accelerator = Accelerator::Kvm;
        assert_eq!(
            values(&spec.arguments([3, 4, 5], Ports::default(), Some(2_600_000)), "-append"),
            ["quiet"]
        );
    }

    #[test]
    fn what_cannot_boot_is_refused_by_name() {
        let mut spec = spec();
        let error = spec.check().unwrap_err();
        assert_eq!(error.to_string(), "VM `one`: kernel /k is not a file");
        (spec.kernel, spec.initrd) = (None, None);
        let error = spec.check().unwrap_err();
        assert_eq!(error.to_string(), "VM `one` has neither a kernel nor a disk to boot from");
    }
}
