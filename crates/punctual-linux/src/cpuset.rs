//! Cpusets: the processors to which a cgroup confines its threads, whatever their affinity says.
//!
//! The kernel refuses an affinity that has no processor of the thread's cpuset, and leaves out those that are
//! not in it (Linux `kernel/sched/syscalls.c`, `__sched_setaffinity`).

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::preflight::parse_cpu_list;

/// Where the hierarchy of cpusets is mounted: that of cgroup version 1, or version 2.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    directory: PathBuf,
    /// The group that is mounted there, `/` outside containers.
    root: String,
    /// The file of a group that lists the processors which its threads may use.
    file: &'static str,
}

/// A cgroup that confines threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpuset {
    /// Its directory.
    pub directory: PathBuf,
    /// The processors that its threads may use, ascending.
    pub processors: Vec<usize>,
}

/// Reads the cpusets of threads, each once.
#[derive(Debug)]
pub struct Cpusets {
    mount: Option<Mount>,
    /// By directory; `None` where the kernel does not say.
    known: HashMap<PathBuf, Option<Vec<usize>>>,
}

impl Cpusets {
    /// Those of this machine.
    pub fn new() -> Cpusets {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        Cpusets { mount: parse_mount(&mounts), known: HashMap::new() }
    }

    /// The cpuset of thread `tid`; `None` where there is none, the thread is gone, or the kernel does not
    /// say.
    pub fn of(&mut self, tid: i32) -> Option<Cpuset> {
        let mount = self.mount.as_ref()?;
        let group = fs::read_to_string(format!("/proc/{tid}/cpuset")).ok()?;
        let directory = mount.directory_of(group.trim_end_matches('\n'));
        let read = |directory: &Path| parse_cpu_list(&fs::read_to_string(directory.join(mount.file)).ok()?);
        let processors = self.known.entry(directory.clone()).or_insert_with(|| read(&directory)).clone()?;
        Some(Cpuset { directory, processors })
    }
}

impl Default for Cpusets {
    fn default() -> Self {
        Cpusets::new()
    }
}

impl Mount {
    /// The directory of a group as `/proc/TID/cpuset` names it.
    fn directory_of(&self, group: &str) -> PathBuf {
        let below = Path::new(group).strip_prefix(&self.root).unwrap_or(Path::new(group));
        self.directory.join(below.strip_prefix("/").unwrap_or(below))
    }
}

/// Finds the mount in the text of `/proc/self/mountinfo`: the controller is in one hierarchy alone, and a
/// mount of version 1 names it.
fn parse_mount(mountinfo: &str) -> Option<Mount> {
    let find = |version: &str, option: Option<&str>, file: &'static str| {
        mountinfo.lines().find_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            let mut after = after.split(' ');
            let is_version = after.next()? == version;
            let has = |wanted: &str| after.nth(1).is_some_and(|all| all.split(',').any(|one| one == wanted));
            (is_version && option.is_none_or(has)).then_some(())?;
            // proc_pid_mountinfo(5): the fourth field is the root, the fifth the mount; blanks are \040.
            let mut fields = before.split(' ').skip(3).map(|field| field.replace("\\040", " "));
            let (root, directory) = (fields.next()?, PathBuf::from(fields.next()?));
            Some(Mount { directory, root, file })
        })
    };
    find("cgroup", Some("cpuset"), "cpuset.effective_cpus")
        .or_else(|| find("cgroup2", None, "cpuset.cpus.effective"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSION_2: &str = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";

    #[test]
    fn the_hierarchy_of_version_1_comes_first() {
        let version_1 = "33 31 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                         34 31 0:31 /a /sys/fs/cgroup/cpu\\040set rw shared:7 - cgroup none rw,cpuset\n";
        let both = parse_mount(&(VERSION_2.to_owned() + version_1)).expect("mounted");
        assert_eq!(both.directory_of("/a/b"), Path::new("/sys/fs/cgroup/cpu set/b"));
        assert_eq!(both.directory_of("/a"), Path::new("/sys/fs/cgroup/cpu set"));
        assert_eq!(both.file, "cpuset.effective_cpus");
        let one = parse_mount(VERSION_2).expect("mounted");
        assert_eq!(one.directory_of("/a/b"), Path::new("/sys/fs/cgroup/unified/a/b"));
        assert_eq!(one.file, "cpuset.cpus.effective");
        assert_eq!(parse_mount("garbage\n - cgroup2\n"), None);
    }

    #[test]
    fn the_cpuset_of_this_process_has_its_processors() {
        // A machine without cpusets has none.
        let Some(cpuset) = Cpusets::new().of(std::process::id() as i32) else { return };
        let own = crate::os::sched::affinity(0).expect("readable");
        assert!(own.iter().all(|processor| cpuset.processors.contains(processor)), "{cpuset:?}");
        assert_eq!(Cpusets::new().of(i32::MAX - 1), None);
    }
}
