//! What a domain is on a real host. Live runs read it; analysis and simulation do not look at it.

use std::ops::Deref;
use std::path::PathBuf;

use crate::sockets::Sockets;

/// The backend of a domain on a real host, and where its helper threads run: a pointer to [`LiveKeys`]. The
/// default is shared and takes no memory, because large hosts are simulated and most domains give nothing.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Live {
    /// `None` for the default, so that equal ones compare equal.
    keys: Option<Box<LiveKeys>>,
}

/// The keys of a domain that only live runs read.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct LiveKeys {
    /// What provides the threads that are the domain's vCPUs.
    pub backend: Backend,
    /// Where the other threads of the VMM run.
    pub helpers: Helpers,
    /// Threads that the domain may have at once; `None`: as many as it likes.
    pub threads_max: Option<u32>,
    /// Which sockets of this host its guest may have; `None`: none at all.
    pub sockets: Option<Sockets>,
}

static DEFAULT: LiveKeys =
    LiveKeys { backend: Backend::Default, helpers: Helpers::DEFAULT, threads_max: None, sockets: None };

impl From<LiveKeys> for Live {
    fn from(keys: LiveKeys) -> Self {
        Live { keys: (keys != DEFAULT).then(|| Box::new(keys)) }
    }
}

impl Deref for Live {
    type Target = LiveKeys;

    fn deref(&self) -> &LiveKeys {
        self.keys.as_deref().unwrap_or(&DEFAULT)
    }
}

/// What provides the threads that are a domain's vCPUs. Relative paths in it start at the working directory
/// of the live run.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Backend {
    /// The run decides: a VM with the project's guest image where QEMU is installed.
    #[default]
    Default,
    /// A VM that the run starts under QEMU and ends.
    Vm(Vm),
    /// A process that the run starts and ends, with everything that it starts itself.
    Process(Process),
    /// Something that runs already and goes on afterwards.
    Attach(Attach),
}

/// A VM under QEMU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vm {
    /// Image of the guest's kernel; `None`: the project's.
    pub kernel: Option<PathBuf>,
    /// Initial file system; `None`: the project's.
    pub initrd: Option<PathBuf>,
    /// The guest's memory in MiB.
    pub memory_mib: u32,
    /// Disk images, in the guest's order.
    pub disks: Vec<PathBuf>,
    /// Its network card.
    pub network: VmNetwork,
    /// What executes the guest's instructions.
    pub accel: Accel,
    /// More arguments of QEMU, after those that the run gives.
    pub arguments: Vec<String>,
    /// Appended to the kernel's command line.
    pub append: Option<String>,
}

/// A VM's network card.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum VmNetwork {
    /// It has none.
    #[default]
    None,
    /// Connected through QEMU's user-mode network, which needs no rights on the host.
    User,
    /// Connected to the host's tap interface of this name.
    Tap(String),
}

/// What executes a VM's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Accel {
    /// KVM where it runs an ordinary 64-bit kernel, else TCG.
    #[default]
    Auto,
    /// The processor, by KVM.
    Kvm,
    /// QEMU's translator.
    Tcg,
}

/// A process that a live run starts.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Process {
    /// What it executes.
    pub program: Program,
    /// Variables set on top of the run's own environment, in the file's order.
    pub environment: Vec<(String, String)>,
    /// Its working directory; `None`: that of the run.
    pub directory: Option<PathBuf>,
}

/// What a process executes.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Program {
    /// The project's guest program with the domain's task set.
    #[default]
    Guest,
    /// A program with its arguments.
    Command {
        /// A path, or a name that is looked up in `PATH`.
        program: String,
        /// Its arguments, without the program's name.
        arguments: Vec<String>,
    },
}

/// Something that runs already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attach {
    /// QEMU, by the path of its QMP socket (a Unix socket).
    Qmp(PathBuf),
    /// The QEMU of the libvirt domain of this name.
    Libvirt(String),
    /// The QEMU process of this id.
    Process(u32),
    /// The Firecracker process of this id.
    Firecracker(u32),
    /// The Cloud Hypervisor process of this id.
    CloudHypervisor(u32),
    /// Threads by their ids, one per vCPU, in the vCPUs' order.
    Threads(Vec<u32>),
}

/// Where a VMM's helper threads run, those that are no vCPUs: QEMU's main loop, I/O threads, vhost workers.
/// A guest waits for these threads, so a preempted one inverts priorities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Helpers {
    /// Processors of the machine, ascending; `None`: those that no pool has.
    pub processors: Option<Vec<usize>>,
    /// How Linux schedules them there.
    pub policy: HelperPolicy,
}

/// How Linux schedules helper threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelperPolicy {
    /// `SCHED_OTHER`.
    Other {
        /// From -20, the most favoured, to 19.
        nice: i8,
    },
    /// `SCHED_FIFO`.
    Fifo {
        /// From 1 to 99, the most urgent.
        priority: u8,
    },
}

impl HelperPolicy {
    const DEFAULT: Self = HelperPolicy::Other { nice: 0 };
}

impl Default for HelperPolicy {
    fn default() -> Self {
        HelperPolicy::DEFAULT
    }
}

impl Helpers {
    const DEFAULT: Self = Helpers { processors: None, policy: HelperPolicy::DEFAULT };
}

impl Default for Helpers {
    fn default() -> Self {
        Helpers::DEFAULT
    }
}
