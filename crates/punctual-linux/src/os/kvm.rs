//! What KVM counts of a VM, as debugfs tells: `kvm/THREAD-DESCRIPTOR/COUNTER`, where the thread is the one
//! that made the VM (Linux `virt/kvm/kvm_main.c`, `kvm_create_vm_debugfs`).
//!
//! A counter is the sum of all vCPUs (`kvm_get_stat_per_vcpu`): the directories `vcpuN` have other files,
//! among them `pid`, the vCPU's thread. The counters of one vCPU come from a descriptor that only the process
//! of the VM can make (`KVM_GET_STATS_FD`). KVM counts no exits of spinning vCPUs (pause-loop exits): what is
//! called directed yields are hypercalls of the guest's kernel.
//!
//! A counter that is open holds the VM (`kvm_debugfs_open`), whose memory and devices would stay when it
//! ends. So each is opened, read and closed at once.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::ops::Index;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

/// VMs that are listed at most.
const VMS_MAX: usize = 4096;
/// A number of 64 bits has at most 20 digits.
const TEXT_MAX: usize = 32;

/// A counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// The guest's kernel asked that another vCPU runs, which it waits for and knows to be preempted
    /// (`KVM_HC_SCHED_YIELD`, `KVM_HC_KICK_CPU`).
    YieldAttempted,
    /// That vCPU ran at once.
    YieldSuccessful,
    /// A vCPU lost its processor where the guest can be told so (the flag `preempted` of its steal time).
    PreemptionReported,
    /// A vCPU lost its processor elsewhere, inside KVM.
    PreemptionOther,
    /// A vCPU halted.
    Halts,
    /// KVM polled for the end of a halt.
    PollAttempted,
    /// The halt ended while KVM polled.
    PollSuccessful,
    /// How long vCPUs slept in halts, in ns.
    HaltWaitNs,
}

impl Counter {
    /// All of them, by their numbers.
    pub const ALL: [Counter; 8] = [
        Counter::YieldAttempted,
        Counter::YieldSuccessful,
        Counter::PreemptionReported,
        Counter::PreemptionOther,
        Counter::Halts,
        Counter::PollAttempted,
        Counter::PollSuccessful,
        Counter::HaltWaitNs,
    ];

    /// Its file (Linux `arch/x86/kvm/x86.c`, `kvm_vcpu_stats_desc`).
    pub fn file(self) -> &'static str {
        match self {
            Counter::YieldAttempted => "directed_yield_attempted",
            Counter::YieldSuccessful => "directed_yield_successful",
            Counter::PreemptionReported => "preemption_reported",
            Counter::PreemptionOther => "preemption_other",
            Counter::Halts => "halt_exits",
            Counter::PollAttempted => "halt_attempted_poll",
            Counter::PollSuccessful => "halt_successful_poll",
            Counter::HaltWaitNs => "halt_wait_ns",
        }
    }
}

/// The counters of a VM, all vCPUs together; `None` where the kernel has no such counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters([Option<u64>; Counter::ALL.len()]);

impl Index<Counter> for Counters {
    type Output = Option<u64>;

    fn index(&self, counter: Counter) -> &Option<u64> {
        &self.0[counter as usize]
    }
}

impl Counters {
    /// What was counted since `earlier`. A counter that is smaller now was cleared meanwhile: it began at 0.
    #[must_use]
    pub fn since(&self, earlier: &Counters) -> Counters {
        self.with(earlier, |now, before| now.checked_sub(before).unwrap_or(now))
    }

    /// Both together.
    #[must_use]
    pub fn plus(&self, other: &Counters) -> Counters {
        self.with(other, u64::saturating_add)
    }

    /// A counter that is missing on one side is 0 there.
    fn with(&self, other: &Counters, of: impl Fn(u64, u64) -> u64) -> Counters {
        Counters(std::array::from_fn(|index| match (self.0[index], other.0[index]) {
            (Some(one), Some(other)) => Some(of(one, other)),
            (one, other) => one.or(other),
        }))
    }

    /// Is there any counter?
    pub fn has_any(&self) -> bool {
        self.0.iter().any(Option::is_some)
    }
}

/// Those with these values; for tests of others.
impl FromIterator<(Counter, u64)> for Counters {
    fn from_iter<I: IntoIterator<Item = (Counter, u64)>>(values: I) -> Counters {
        let mut counters = Counters::default();
        values.into_iter().for_each(|(counter, value)| counters.0[counter as usize] = Some(value));
        counters
    }
}

/// Why counters cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// debugfs is not mounted.
    #[error("debugfs is not mounted (mount -t debugfs none /sys/kernel/debug)")]
    NotMounted,
    /// The kernel has no debugfs, or was booted without it.
    #[error("this kernel has no debugfs")]
    NoDebugfs,
    /// Only root may.
    #[error("{} is for root", .0.display())]
    NotPermitted(PathBuf),
    /// Root may not, either.
    #[error("the kernel is locked down, so that no program reads counters of debugfs")]
    Locked,
    /// KVM is not loaded.
    #[error("KVM is not loaded")]
    NoKvm,
    /// The VM has ended.
    #[error("KVM does not have the VM any more")]
    Gone,
    /// This kernel counts nothing of what is asked for.
    #[error("this kernel's KVM has none of the counters")]
    NoCounters,
    /// A counter holds no number.
    #[error("{file} holds {found:?}, expected a number")]
    NoNumber {
        /// The counter.
        file: &'static str,
        /// The begin of what it holds.
        found: String,
    },
    /// The system says something else.
    #[error("cannot read {what}: {source}")]
    System {
        /// What was read.
        what: String,
        /// Why not.
        source: io::Error,
    },
}

impl Unreadable {
    fn of(path: &Path, source: io::Error) -> Unreadable {
        match source.kind() {
            io::ErrorKind::PermissionDenied => Unreadable::NotPermitted(path.to_owned()),
            _ => Unreadable::System { what: path.display().to_string(), source },
        }
    }
}

/// Where debugfs is, if it is mounted: by the text of `/proc/self/mounts`.
fn parse_mount(mounts: &str) -> Option<&str> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let (place, kind) = (fields.nth(1)?, fields.next()?);
        (kind == "debugfs").then_some(place)
    })
}

/// The number in the text of a counter.
fn parse_counter(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.trim_ascii().parse().ok()
}

/// The thread that made a VM, by the name of its directory.
fn parse_maker(name: &str) -> Option<u32> {
    let (thread, descriptor) = name.split_once('-')?;
    descriptor.parse::<u32>().ok()?;
    thread.parse().ok()
}

/// A VM in debugfs.
#[derive(Debug)]
pub struct Listed {
    directory: PathBuf,
    /// The thread that made it.
    maker: u32,
    /// The thread of its first vCPU; `None` before that ran, and where the kernel does not say.
    vcpu: Option<u32>,
}

impl Listed {
    /// Is it the VM whose process has these threads? The thread that made it may have ended, and another one
    /// may have its number: the vCPU decides if it is known.
    pub fn is_of(&self, threads: &BTreeSet<u32>) -> bool {
        threads.contains(&self.vcpu.unwrap_or(self.maker))
    }

    /// Its counters from now on.
    ///
    /// # Errors
    /// It has ended.
    pub fn open(&self) -> Result<VmCounters, Unreadable> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::openat(CWD, &self.directory, flags, Mode::empty()) {
            Ok(directory) => Ok(VmCounters { directory }),
            Err(Errno::NOENT) => Err(Unreadable::Gone),
            Err(error) => Err(Unreadable::of(&self.directory, error.into())),
        }
    }
}

/// Lists the VMs that KVM runs on the machine whose root directory is `root`.
///
/// # Errors
/// debugfs is not mounted or may not be read, or KVM is not loaded.
pub fn vms(root: &Path) -> Result<Vec<Listed>, Unreadable> {
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let mounts = read("proc/self/mounts");
    let Some(place) = parse_mount(&mounts) else {
        let is_known = read("proc/filesystems").lines().any(|line| line.trim_end().ends_with("debugfs"));
        return Err(if is_known { Unreadable::NotMounted } else { Unreadable::NoDebugfs });
    };
    let directory = root.join(place.trim_start_matches('/')).join("kvm");
    let entries = match fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Unreadable::NoKvm),
        Err(error) => return Err(Unreadable::of(&directory, error)),
    };
    let listed = |entry: fs::DirEntry| {
        let maker = parse_maker(entry.file_name().to_str()?)?;
        let directory = entry.path();
        let vcpu = read_number(CWD, directory.join("vcpu0/pid")).ok().and_then(Result::ok);
        let vcpu = vcpu.and_then(|thread| u32::try_from(thread).ok()).filter(|thread| *thread > 0);
        Some(Listed { directory, maker, vcpu })
    };
    Ok(entries.flatten().filter_map(listed).take(VMS_MAX).collect())
}

/// What a file holds, if that is a number; otherwise its text.
fn read_number(directory: impl AsFd, path: impl AsRef<Path>) -> Result<Result<u64, Vec<u8>>, Errno> {
    // Something else by that name may be a pipe, and opening it must not wait for a writer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, path.as_ref(), flags, Mode::empty())?;
    let mut buffer = [0; TEXT_MAX];
    let length = rustix::io::read(&file, &mut buffer)?;
    let text = &buffer[..length];
    Ok(parse_counter(text).ok_or_else(|| text.to_vec()))
}

/// The directory of a VM's counters.
#[derive(Debug)]
pub struct VmCounters {
    directory: OwnedFd,
}

impl VmCounters {
    /// Reads all counters.
    ///
    /// # Errors
    /// The VM has ended, the kernel is locked down or has none of them, or a counter holds no number.
    pub fn read(&self) -> Result<Counters, Unreadable> {
        let mut counters = Counters::default();
        for counter in Counter::ALL {
            let file = counter.file();
            counters.0[counter as usize] = match read_number(&self.directory, file) {
                Ok(Ok(number)) => Some(number),
                Ok(Err(text)) => {
                    let found = String::from_utf8_lossy(&text).into_owned();
                    return Err(Unreadable::NoNumber { file, found });
                }
                Err(Errno::NOENT) => None,
                Err(Errno::PERM) => return Err(Unreadable::Locked),
                Err(error) => return Err(Unreadable::System { what: file.into(), source: error.into() }),
            };
        }
        if counters.has_any() {
            return Ok(counters);
        }
        // A directory that was removed has no link.
        let is_gone = rustix::fs::fstat(&self.directory).is_ok_and(|stat| stat.st_nlink == 0);
        Err(if is_gone { Unreadable::Gone } else { Unreadable::NoCounters })
    }
}

#[cfg(test)]
#[path = "kvm_tests.rs"]
mod tests;
