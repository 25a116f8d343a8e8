//! Cgroups of the threads of VMs: how long their limits kept processors from them, and whether they are
//! frozen.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use punctual_linux::os::proc::Reader;

/// Where hierarchies are mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Mounts {
    /// Version 2.
    unified: Option<PathBuf>,
    /// Of version 1, with the controller of limits.
    cpu: Option<PathBuf>,
    /// Of version 1, with the freezer.
    freezer: Option<PathBuf>,
}

impl Mounts {
    /// By the text of `/proc/self/mountinfo`.
    fn parse(mountinfo: &str) -> Mounts {
        let mut mounts = Mounts::default();
        for line in mountinfo.lines() {
            let Some((before, after)) = line.split_once(" - ") else { continue };
            let Some(place) = before.split(' ').nth(4) else { continue };
            let place = PathBuf::from(place.replace("\\040", " "));
            let mut fields = after.split(' ');
            let (kind, options) = (fields.next().unwrap_or_default(), fields.nth(1).unwrap_or_default());
            let has = |controller: &str| options.split(',').any(|option| option == controller);
            match kind {
                "cgroup2" => _ = mounts.unified.get_or_insert(place),
                "cgroup" if has("cpu") => _ = mounts.cpu.get_or_insert(place),
                "cgroup" if has("freezer") => _ = mounts.freezer.get_or_insert(place),
                _ => {}
            }
        }
        mounts
    }
}

/// The groups of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Groups {
    /// The one whose limits count.
    cpu: Option<PathBuf>,
    /// Those that may be frozen.
    freezers: Vec<PathBuf>,
}

impl Groups {
    /// By the text of `/proc/TID/cgroup`.
    fn parse(text: &str, mounts: &Mounts) -> Groups {
        let (mut groups, mut unified) = (Groups::default(), None);
        for line in text.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
            let below = |mount: &Option<PathBuf>| {
                mount.as_ref().map(|mount| mount.join(path.trim_start_matches('/')))
            };
            let has = |controller: &str| controllers.split(',').any(|one| one == controller);
            if controllers.is_empty() {
                unified = below(&mounts.unified);
            } else if has("cpu") {
                groups.cpu = below(&mounts.cpu);
            } else if has("freezer") {
                groups.freezers.extend(below(&mounts.freezer));
            }
        }
        groups.freezers.extend(unified.clone());
        groups.cpu = groups.cpu.or(unified);
        groups
    }
}

/// How long limits have kept a group's threads from processors, in ns of all processors together, by the text
/// of its `cpu.stat`.
fn parse_throttled(text: &str) -> u64 {
    let number = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        line.trim().parse::<u64>().ok()
    };
    // Version 2, then version 1, which counts in ns.
    number("throttled_usec ").map(|us| us * 1000).or_else(|| number("throttled_time ")).unwrap_or(0)
}

/// A group with limits, and all groups above it.
#[derive(Debug)]
struct Limited {
    files: Vec<Reader>,
    throttled_ns: u64,
}

impl Limited {
    fn open(group: &Path, mounts: &[&Path]) -> Limited {
        let is_below = |directory: &&Path| mounts.iter().any(|mount| directory.starts_with(mount));
        let directories = group.ancestors().take_while(is_below);
        let files = directories.filter_map(|directory| {
            let path = directory.join("cpu.stat");
            Reader::open(&path.to_string_lossy()).ok()
        });
        let mut limited = Limited { files: files.collect(), throttled_ns: 0 };
        limited.since_last();
        limited
    }

    /// What its limits and those above took since the last call.
    fn since_last(&mut self) -> u64 {
        let mut buffer = [0; 1024];
        let read = |file: &Reader, buffer: &mut [u8]| file.read(buffer).map_or(0, parse_throttled);
        let all: u64 = self.files.iter().map(|file| read(file, &mut buffer)).sum();
        let before = std::mem::replace(&mut self.throttled_ns, all);
        all.saturating_sub(before)
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Limits {
    proc: PathBuf,
    mounts: Mounts,
    threads: HashMap<u32, Groups>,
    limited: BTreeMap<PathBuf, Limited>,
}

impl Limits {
    pub(crate) fn new(proc: &Path) -> Limits {
        let mountinfo = fs::read_to_string(proc.join("self/mountinfo")).unwrap_or_default();
        let (mounts, proc) = (Mounts::parse(&mountinfo), proc.to_owned());
        Limits { proc, mounts, threads: HashMap::new(), limited: BTreeMap::new() }
    }

    /// Finds the groups of these threads, which are all that there are.
    pub(crate) fn set_threads(&mut self, threads: impl Iterator<Item = u32>) {
        let groups = |thread: u32| {
            let text = fs::read_to_string(self.proc.join(format!("{thread}/cgroup"))).unwrap_or_default();
            (thread, Groups::parse(&text, &self.mounts))
        };
        self.threads = threads.map(groups).collect();
        let wanted: HashSet<&PathBuf> =
            self.threads.values().filter_map(|groups| groups.cpu.as_ref()).collect();
        self.limited.retain(|path, _| wanted.contains(path));
        let mounts = [&self.mounts.unified, &self.mounts.cpu];
        let mounts: Vec<&Path> = mounts.into_iter().flatten().map(PathBuf::as_path).collect();
        for path in wanted {
            if !self.limited.contains_key(path) {
                self.limited.insert(path.clone(), Limited::open(path, &mounts));
            }
        }
    }

    /// By group: how long limits kept processors from it since the last call, and its threads.
    pub(crate) fn take(&mut self) -> Vec<(u64, HashSet<u32>)> {
        let threads = &self.threads;
        let of = |path: &PathBuf| {
            let is_in = |(_, groups): &(&u32, &Groups)| groups.cpu.as_ref() == Some(path);
            threads.iter().filter(is_in).map(|(thread, _)| *thread).collect()
        };
        let taken = self.limited.iter_mut().map(|(path, limited)| (limited.since_last(), path));
        taken.filter(|(ns, _)| *ns > 0).map(|(ns, path)| (ns, of(path))).collect()
    }

    /// Is a group of this thread frozen?
    pub(crate) fn is_frozen(&self, thread: u32) -> bool {
        let is = |directory: &PathBuf| {
            let read = |name: &str| fs::read_to_string(directory.join(name)).ok();
            let unified = read("cgroup.events");
            let state = unified.is_none().then(|| read("freezer.state")).flatten();
            unified.is_some_and(|text| text.lines().any(|line| line == "frozen 1"))
                || state.is_some_and(|text| text.trim() == "FROZEN")
        };
        self.threads.get(&thread).is_some_and(|groups| groups.freezers.iter().any(is))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTINFO: &str = "24 1 0:21 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
        25 24 0:22 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n\
        26 24 0:23 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n\
        27 24 0:24 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn groups_of_a_thread_are_below_their_mounts() {
        let mounts = Mounts::parse(MOUNTINFO);
        let groups = Groups::parse("6:freezer:/\n1:cpu,cpuacct:/vm.slice/a\n0::/vm.slice/b\n", &mounts);
        let path = |path: &str| Path::new("/sys/fs/cgroup").join(path);
        assert_eq!(groups.cpu, Some(path("cpu/vm.slice/a")));
        assert_eq!(groups.freezers, [path("freezer"), path("unified/vm.slice/b")]);
        let unified = Mounts { cpu: None, freezer: None, ..mounts };
        assert_eq!(Groups::parse("0::/vm.slice/b\n", &unified).cpu, Some(path("unified/vm.slice/b")));
    }

    #[test]
    fn throttled_time_is_in_ns_in_either_version() {
        assert_eq!(parse_throttled("nr_periods 3\nnr_throttled 2\nthrottled_usec 7\n"), 7000);
        assert_eq!(parse_throttled("nr_throttled 2\nthrottled_time 7000\n"), 7000);
        assert_eq!(parse_throttled("usage_usec 9\n"), 0);
    }

    #[test]
    fn limits_of_a_group_and_those_above_are_added_up_since_the_last_time() {
        let directory = tempfile::tempdir().expect("a directory");
        let (proc, mount) = (directory.path().join("proc"), directory.path().join("cg"));
        let write = |path: &Path, text: &str| {
            fs::create_dir_all(path.parent().expect("a directory")).expect("made");
            fs::write(path, text).expect("written");
        };
        write(&proc.join("self/mountinfo"), &format!("1 2 0:1 / {} rw - cgroup2 c rw\n", mount.display()));
        write(&proc.join("7/cgroup"), "0::/a/b\n");
        write(&mount.join("a/b/cpu.stat"), "throttled_usec 5\n");
        write(&mount.join("a/cpu.stat"), "throttled_usec 1\n");
        write(&mount.join("a/b/cgroup.events"), "populated 1\nfrozen 0\n");
        let mut limits = Limits::new(&proc);
        limits.set_threads([7].into_iter());
        assert_eq!(limits.take(), []);
        write(&mount.join("a/b/cpu.stat"), "throttled_usec 9\n");
        write(&mount.join("a/cpu.stat"), "throttled_usec 2\n");
        limits.set_threads([7].into_iter());
        assert_eq!(limits.take(), [(5000, HashSet::from([7]))]);
        assert!(!limits.is_frozen(7) && !limits.is_frozen(8));
        write(&mount.join("a/b/cgroup.events"), "populated 1\nfrozen 1\n");
        assert!(limits.is_frozen(7));
    }
}
