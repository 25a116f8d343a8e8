//! The machine that checks examine: its processors, its threads, its cgroups, its kernel's configuration.

use std::cell::OnceCell;
use std::io::Read;

use super::cpus::Cpus;
use super::finding::Reading;
use super::parse::{self, Limit, ThreadStat};
use super::root::{ReadError, Reason, Root};

/// The machine under examination.
pub(super) struct Machine {
    pub root: Root,
    /// Processors that pools use.
    pub pool: Cpus,
    /// Processors that are online.
    pub online: Cpus,
    /// Online processors that are left for everything else.
    pub others: Cpus,
    threads: OnceCell<Result<Vec<Thread>, ReadError>>,
    config: OnceCell<Result<(String, String), ReadError>>,
}

/// A thread with the processors it may run on.
pub(super) struct Thread {
    /// The process that it belongs to.
    pub process: u32,
    pub stat: ThreadStat,
    /// `None` when it cannot be read, for example because the thread is gone.
    pub allowed: Option<Cpus>,
}

impl Machine {
    pub(super) fn new(root: Root, pool: Option<Cpus>) -> Result<Self, ReadError> {
        let path = "/sys/devices/system/cpu/online";
        let online = root.parse(path, "a list of processors", |text| {
            Cpus::parse_list(text, 0).filter(|cpus| !cpus.is_empty())
        })?;
        let but_first = || if online.len() > 1 { online.iter().skip(1).collect() } else { online.clone() };
        let pool = pool.unwrap_or_else(but_first);
        let others = online.without(&pool);
        Ok(Machine { root, pool, online, others, threads: OnceCell::new(), config: OnceCell::new() })
    }

    /// A file of each pool processor, `{}` standing for its number.
    pub(super) fn each<'a>(&'a self, pattern: &'a str) -> impl Iterator<Item = (usize, String)> + 'a {
        self.pool.iter().map(|cpu| (cpu, pattern.replace("{}", &cpu.to_string())))
    }

    /// Readings of a file of each pool processor.
    pub(super) fn read_each(&self, pattern: &str) -> Result<Vec<Reading>, ReadError> {
        self.each(pattern).map(|(_, path)| self.root.reading(&path)).collect()
    }

    /// A file with a list of processors.
    pub(super) fn cpus(&self, path: &str) -> Result<Cpus, ReadError> {
        self.root.parse(path, "a list of processors", |text| Cpus::parse_list(text, self.count()))
    }

    /// One more than the greatest number of a processor.
    pub(super) fn count(&self) -> usize {
        self.online.iter().last().map_or(0, |last| last + 1)
    }

    /// The kernel's command line.
    pub(super) fn cmdline(&self) -> Result<String, ReadError> {
        self.root.text("/proc/cmdline")
    }

    /// Major and minor number of the kernel.
    pub(super) fn kernel_version(&self) -> Result<(u32, u32), ReadError> {
        let path = "/proc/sys/kernel/osrelease";
        self.root.parse(path, "a kernel release such as 6.12.1", parse::kernel_version)
    }

    /// The kernel's build configuration: where it was read, and its text.
    pub(super) fn config(&self) -> Result<(&str, &str), ReadError> {
        let read = self.config.get_or_init(|| configuration(&self.root));
        read.as_ref().map(|(path, text)| (path.as_str(), text.as_str())).map_err(ReadError::clone)
    }

    /// Every thread of the machine that can be read.
    pub(super) fn threads(&self) -> Result<&[Thread], ReadError> {
        let read = self.threads.get_or_init(|| threads(&self.root));
        read.as_deref().map_err(ReadError::clone)
    }

    /// The directories of this process' cgroup and of those above it, its own first. `controller` is `""` for
    /// version 2.
    ///
    /// # Errors
    /// [`Reason::NoHierarchy`] when this machine has no such hierarchy.
    pub(super) fn cgroups(&self, controller: &str) -> Result<Vec<String>, ReadError> {
        let (groups, mounts) = ("/proc/self/cgroup", "/proc/self/mountinfo");
        let hierarchy = if controller.is_empty() { "cgroup version 2" } else { controller };
        let missing = |path| ReadError::new(path, Reason::NoHierarchy(hierarchy.into()));
        let text = self.root.text(groups)?;
        let group = parse::cgroup_path(&text, controller).ok_or_else(|| missing(groups))?;
        let text = self.root.text(mounts)?;
        let mount = parse::cgroup_mount(&text, controller).ok_or_else(|| missing(mounts))?;
        let below = group.strip_prefix(mount.root.trim_end_matches('/')).unwrap_or(group);
        let names: Vec<&str> = below.split('/').filter(|name| !name.is_empty()).collect();
        if names.contains(&"..") {
            let reason = Reason::OutsideMount { group: group.into(), mount: mount.point };
            return Err(ReadError::new(groups, reason));
        }
        let mut directories = vec![mount.point];
        for name in names {
            let parent = &directories[directories.len() - 1];
            directories.push(format!("{parent}/{name}"));
        }
        directories.reverse();
        Ok(directories)
    }

    /// The processors that this process may run on.
    pub(super) fn own_affinity(&self) -> Result<Cpus, ReadError> {
        allowed_cpus(&self.root, "/proc/self/status")
    }

    /// The effective capabilities of this process as evidence, and whether `number` is among them.
    pub(super) fn capability(&self, number: u32) -> Result<(Reading, bool), ReadError> {
        let path = "/proc/self/status";
        let (text, bits) = self.root.parse(path, "a field CapEff", |status| {
            let text = parse::status_field(status, "CapEff")?;
            Some((text.to_owned(), u64::from_str_radix(text, 16).ok()?))
        })?;
        Ok((Reading { path: format!("{path} CapEff"), value: text }, bits >> number & 1 == 1))
    }

    /// A limit of this process as evidence, and its value; `None` for unlimited.
    pub(super) fn limit(&self, name: &str) -> Result<(Reading, Limit), ReadError> {
        let path = "/proc/self/limits";
        let value = self.root.parse(path, name, |text| parse::soft_limit(text, name))?;
        let shown = match value {
            Limit::Unlimited => "unlimited".into(),
            Limit::AtMost(value) => value.to_string(),
        };
        Ok((Reading { path: format!("{path} {name}"), value: shown }, value))
    }

    /// Is the kernel built with PREEMPT_RT?
    pub(super) fn is_preempt_rt(&self) -> bool {
        self.root.text("/sys/kernel/realtime").is_ok_and(|text| text == "1")
            || self.root.text("/proc/version").is_ok_and(|text| text.contains("PREEMPT_RT"))
    }

    /// Threads that are above the fair class and may run on a processor of a pool.
    pub(super) fn real_time_threads_on_pool(&self) -> Result<impl Iterator<Item = &Thread>, ReadError> {
        let on_pool = move |thread: &&Thread| {
            let allowed = thread.allowed.as_ref();
            thread.stat.is_real_time()
                && allowed.is_none_or(|allowed| !allowed.intersection(&self.pool).is_empty())
        };
        Ok(self.threads()?.iter().filter(on_pool))
    }

    /// Those of them that are programs', and not this one's.
    pub(super) fn real_time_programs_on_pool(&self) -> Result<Vec<&Thread>, ReadError> {
        let own = |thread: &&Thread| thread.stat.kernel || thread.stat.name.starts_with("punctual");
        Ok(self.real_time_threads_on_pool()?.filter(|thread| !own(thread)).collect())
    }
}

fn threads(root: &Root) -> Result<Vec<Thread>, ReadError> {
    let mut threads = Vec::new();
    for process in numbers(root, "/proc")? {
        // A process that is gone by now has no threads.
        for thread in numbers(root, &format!("/proc/{process}/task")).unwrap_or_default() {
            let path = format!("/proc/{process}/task/{thread}");
            let Some(stat) = root.text(&format!("{path}/stat")).ok().and_then(|t| parse::thread_stat(&t))
            else {
                continue;
            };
            // Most threads are in the fair class, where it does not matter.
            let allowed = stat.is_real_time().then(|| allowed_cpus(root, &format!("{path}/status")).ok());
            threads.push(Thread { process, stat, allowed: allowed.flatten() });
        }
    }
    Ok(threads)
}

/// The processors that a thread may run on.
fn allowed_cpus(root: &Root, status: &str) -> Result<Cpus, ReadError> {
    root.parse(status, "a field Cpus_allowed_list", |text| {
        Cpus::parse_list(parse::status_field(text, "Cpus_allowed_list")?, 0)
    })
}

fn numbers(root: &Root, directory: &str) -> Result<Vec<u32>, ReadError> {
    let mut numbers: Vec<u32> = root.names(directory)?.iter().filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// The kernel's build configuration: where it was read, and its text.
fn configuration(root: &Root) -> Result<(String, String), ReadError> {
    let packed = "/proc/config.gz";
    if let Ok(bytes) = root.bytes(packed) {
        let mut text = String::new();
        // A configuration has about 200 KiB. A much longer text is something else.
        let unpacked = flate2::read::GzDecoder::new(&bytes[..]).take(4 << 20).read_to_string(&mut text);
        if unpacked.is_ok() {
            return Ok((packed.into(), text));
        }
    }
    let release = root.text("/proc/sys/kernel/osrelease")?;
    // The second is where Debian has it from Linux 7 on.
    let paths = [format!("/boot/config-{release}"), format!("/usr/lib/modules/{release}/config")];
    let [first, second] = paths.map(|path| (root.text(&path), path));
    match (first, second) {
        ((Ok(text), path), _) | ((Err(_), _), (Ok(text), path)) => Ok((path, text)),
        ((Err(error), path), _) if error.is_absent() => {
            Err(ReadError { path: format!("{packed} or {path}"), ..error })
        }
        ((Err(error), _), _) => Err(error),
    }
}
