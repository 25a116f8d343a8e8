//! Partitions of cpusets: processors that the threads of one cgroup have to themselves.
//!
//! A cgroup of version 2 whose `cpuset.cpus.partition` is `isolated` takes its processors from the cpusets
//! of all others. The kernel moves other threads away, but its own that are bound to the processors stay, and
//! it balances no load there. Such a *remote* partition may be anywhere, if all cgroups above have its
//! processors in `cpuset.cpus.exclusive` (Linux `Documentation/admin-guide/cgroup-v2.rst`, "Cpuset Interface
//! Files").

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::os::{proc, sched};
use crate::preflight::{kernel_version, list, parse_cpu_list};

const EXCLUSIVE: &str = "cpuset.cpus.exclusive";
const PARTITION: &str = "cpuset.cpus.partition";
/// The controllers that a cgroup gives to those in it.
pub const SUBTREE_CONTROL: &str = "cgroup.subtree_control";
const CONTROLLER: &str = "cpuset";

/// The first Linux with `cpuset.cpus.exclusive`. Since 6.2 a thread keeps the affinity that it asked for
/// through a change of its cpuset; before, a partition could not be undone without a trace.
const EXCLUSIVE_SINCE: (u32, u32) = (6, 7);

/// Why no partition can be made on a machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// The kernel is too old.
    #[error("Linux {0} has no `{EXCLUSIVE}`\n  Linux 6.7 or later is needed")]
    OldKernel(String),
    /// The controller is not in version 2.
    #[error(
        "{}/cgroup.controllers has no `{CONTROLLER}`\n  the controller must be in cgroup version 2, not in \
         version 1: boot with cgroup_no_v1=cpuset; in a container, it must be delegated",
        mount.display()
    )]
    NoController {
        /// Where version 2 is mounted.
        mount: PathBuf,
    },
    /// Nothing would be left for everybody else.
    #[error("an isolated partition cannot have all processors that are online ({0})")]
    NoProcessorLeft(String),
}

/// Why a partition was not made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another cgroup has some of the processors.
    #[error(
        "{} has processors {processors} in `{file}`, and the kernel gives them to no partition beside\n  \
         take them out of it there (systemd: AllowedCPUs=), or give the pool other processors",
        group.display()
    )]
    Taken {
        /// The cgroup.
        group: PathBuf,
        /// What it has.
        processors: String,
        /// The file of the cgroup that lists them.
        file: &'static str,
    },
    /// The kernel does not take it.
    #[error("{} says: {state}", file.display())]
    Invalid {
        /// The file of its state.
        file: PathBuf,
        /// What that says.
        state: String,
    },
    /// A file cannot be read or written.
    #[error("{}: {source}{}", file.display(), cure(source))]
    File {
        /// The file.
        file: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

fn cure(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "\n  a partition needs root (CAP_SYS_ADMIN)",
        _ => "",
    }
}

/// Whether the kernel balances the load of a partition's processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It does not, and keeps its own movable work away, too.
    Isolated,
    /// It does, among the processors of the partition.
    Root,
}

impl Kind {
    /// The kernel's word.
    pub const fn word(self) -> &'static str {
        match self {
            Kind::Isolated => "isolated",
            Kind::Root => "root",
        }
    }
}

/// Can partitions with these processors be made below the mount of cgroup version 2?
///
/// # Errors
/// They cannot.
pub fn check(mount: &Path, processors: &[usize], online: &[usize]) -> Result<(), Unavailable> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    if kernel_version(&release).is_none_or(|version| version < EXCLUSIVE_SINCE) {
        return Err(Unavailable::OldKernel(release.trim().to_owned()));
    }
    if !has_word(&mount.join("cgroup.controllers"), CONTROLLER) {
        return Err(Unavailable::NoController { mount: mount.to_owned() });
    }
    if online.iter().all(|processor| processors.contains(processor)) {
        return Err(Unavailable::NoProcessorLeft(list(online)));
    }
    Ok(())
}

/// Does a file have this word?
fn has_word(file: &Path, word: &str) -> bool {
    fs::read_to_string(file).is_ok_and(|text| text.split_whitespace().any(|found| found == word))
}

/// Have the groups in the group at `directory` cpusets?
pub fn gives_cpusets(directory: &Path) -> bool {
    has_word(&directory.join(SUBTREE_CONTROL), CONTROLLER)
}

/// Gives cpusets to the groups in the group at `directory`, or takes them away.
///
/// # Errors
/// As `write(2)`: `EBUSY` while one of the groups gives cpusets on.
pub fn give_cpusets(directory: &Path, on: bool) -> Result<(), Error> {
    let sign = if on { '+' } else { '-' };
    write(directory.join(SUBTREE_CONTROL), &format!("{sign}{CONTROLLER}"))
}

/// Does a group in the group at `directory` use its cpuset?
pub fn are_cpusets_used(directory: &Path) -> bool {
    let uses = |group: &Path| {
        gives_cpusets(group) || !text(&group.join("cpuset.cpus")).is_empty() || !exclusive(group).is_empty()
    };
    groups_in(directory).any(|group| uses(&group))
}

/// Reserves processors for partitions in the group at `directory`, which is below the mount.
///
/// # Errors
/// Another group has some of them, or as `write(2)`.
pub fn reserve(directory: &Path, processors: &[usize]) -> Result<(), Error> {
    match write(directory.join(EXCLUSIVE), &list(processors)) {
        Err(Error::File { source, file }) if source.raw_os_error() == Some(libc::EINVAL) => {
            Err(taken_by(directory, processors).unwrap_or(Error::File { file, source }))
        }
        written => written,
    }
}

/// The group beside that keeps the kernel from reserving processors (`cpus_excl_conflict` in Linux
/// `kernel/cgroup/cpuset.c`).
fn taken_by(directory: &Path, processors: &[usize]) -> Option<Error> {
    let beside = groups_in(directory.parent()?).filter(|group| group != directory);
    let mut conflicts = beside.filter_map(|group| {
        let own = exclusive(&group);
        let has = own.iter().any(|processor| processors.contains(processor));
        if has {
            return Some(Error::Taken { group, processors: list(&own), file: EXCLUSIVE });
        }
        let all = parse_cpu_list(&text(&group.join("cpuset.cpus"))).filter(|all| !all.is_empty())?;
        let would_be_empty = own.is_empty() && all.iter().all(|processor| processors.contains(processor));
        would_be_empty.then(|| Error::Taken { group, processors: list(&all), file: "cpuset.cpus" })
    });
    conflicts.next()
}

/// Makes the group at `directory`, in one that has them reserved, a partition with these processors.
///
/// # Errors
/// The kernel does not take it, or as `write(2)`.
pub fn make(directory: &Path, processors: &[usize], kind: Kind) -> Result<(), Error> {
    write(directory.join(EXCLUSIVE), &list(processors))?;
    let file = directory.join(PARTITION);
    write(file.clone(), kind.word())?;
    match text(&file) {
        state if state == kind.word() => Ok(()),
        state => Err(Error::Invalid { file, state }),
    }
}

/// Gives the processors of all partitions in the group at `directory` back. They are gone with their groups,
/// too, but a group with a thread in it cannot be removed.
pub fn dissolve(directory: &Path) {
    for group in groups_in(directory) {
        let file = group.join(PARTITION);
        if !matches!(text(&file).as_str(), "" | "member") {
            // One that stays is a failure of the removal.
            let _ = fs::write(&file, "member");
        }
    }
}

/// What an isolated partition does not keep away.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remains {
    /// The kernel's threads that are bound to the processors.
    pub threads: Vec<String>,
    /// Interrupts that the processors take: number and handler.
    pub interrupts: Vec<String>,
}

impl Remains {
    /// What is there on these processors.
    pub fn on(processors: &[usize]) -> Remains {
        let is_bound = |tid: &i32| {
            sched::affinity(*tid).is_ok_and(|all| all.iter().all(|processor| processors.contains(processor)))
        };
        let name = |tid: i32| {
            let name = proc::name(tid).ok()?;
            // Workers come and go, and have the name of what they do.
            let worker = name.strip_prefix("kworker/").and_then(|rest| rest.split_once(':'));
            Some(worker.map_or_else(|| name.clone(), |(processor, _)| format!("kworker/{processor}")))
        };
        let threads = proc::kernel_threads("").unwrap_or_default();
        let mut threads: Vec<String> = threads.into_iter().filter(is_bound).filter_map(name).collect();
        threads.sort();
        threads.dedup();
        let is_taken = |directory: &PathBuf| {
            let file = directory.join("effective_affinity_list");
            parse_cpu_list(&text(&file))
                .is_some_and(|all| all.iter().any(|processor| processors.contains(processor)))
        };
        let mut interrupts: Vec<(u32, String)> = groups_in(Path::new("/proc/irq"))
            .filter(is_taken)
            .filter_map(|directory| {
                let number = directory.file_name()?.to_str()?.parse().ok()?;
                let handler = groups_in(&directory).next()?;
                Some((number, format!("{number} ({})", handler.file_name()?.to_str()?)))
            })
            .collect();
        interrupts.sort();
        Remains { threads, interrupts: interrupts.into_iter().map(|(_, name)| name).collect() }
    }
}

fn exclusive(group: &Path) -> Vec<usize> {
    parse_cpu_list(&text(&group.join(EXCLUSIVE))).unwrap_or_default()
}

/// The text of a file; nothing where it is not there.
fn text(file: &Path) -> String {
    fs::read_to_string(file).map(|text| text.trim().to_owned()).unwrap_or_default()
}

fn write(file: PathBuf, text: &str) -> Result<(), Error> {
    fs::write(&file, text).map_err(|source| Error::File { file, source })
}

/// The directories in a directory.
fn groups_in(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Groups with files of their cpusets.
    fn groups(files: &[(&str, &str)]) -> tempfile::TempDir {
        let top = tempfile::tempdir().expect("a directory");
        for (name, content) in files {
            let file = top.path().join(name);
            fs::create_dir_all(file.parent().expect("a group")).expect("made");
            fs::write(file, content).expect("written");
        }
        top
    }

    #[test]
    fn the_group_that_has_the_processors_is_named() {
        let top = groups(&[
            ("ours/cpuset.cpus.exclusive", ""),
            ("wide/cpuset.cpus", "0-3\n"),
            ("vms/cpuset.cpus", "2-3\n"),
            ("other/cpuset.cpus.exclusive", "1\n"),
        ]);
        let ours = top.path().join("ours");
        let who = |processors: &[usize]| taken_by(&ours, processors).map(|error| error.to_string());
        let error = who(&[1]).expect("it is taken");
        assert!(error.contains("other has processors 1 in `cpuset.cpus.exclusive`"), "{error}");
        let error = who(&[2, 3]).expect("it is taken");
        assert!(error.contains("vms has processors 2,3 in `cpuset.cpus`"), "{error}");
        assert_eq!(who(&[3]), None, "one is left to each");
    }

    #[test]
    fn cpusets_are_used_where_a_group_has_one_or_gives_some() {
        for (file, content, expected) in [
            ("a/cpuset.cpus", "\n", false),
            ("a/cpuset.cpus", "0\n", true),
            ("a/cpuset.cpus.exclusive", "0\n", true),
            ("a/cgroup.subtree_control", "cpu pids\n", false),
            ("a/cgroup.subtree_control", "cpu cpuset\n", true),
        ] {
            let top = groups(&[(file, content)]);
            assert_eq!(are_cpusets_used(top.path()), expected, "{file} {content}");
        }
    }

    #[test]
    fn a_partition_has_its_processors_until_it_is_dissolved() {
        // A plain file keeps what was written, as the kernel keeps a partition that is valid.
        let top = groups(&[("a/cpuset.cpus.partition", "member"), ("a/cpuset.cpus.exclusive", "")]);
        let group = top.path().join("a");
        make(&group, &[1, 3], Kind::Isolated).expect("it is valid");
        assert_eq!((&*text(&group.join(EXCLUSIVE)), &*text(&group.join(PARTITION))), ("1,3", "isolated"));
        dissolve(top.path());
        assert_eq!(text(&group.join(PARTITION)), "member");
    }

    #[test]
    fn all_processors_are_too_many() {
        let top = groups(&[("cgroup.controllers", "cpuset cpu\n")]);
        match check(top.path(), &[0, 1], &[0, 1]) {
            Err(Unavailable::NoProcessorLeft(all)) => assert_eq!(all, "0,1"),
            Err(Unavailable::OldKernel(_)) => {}
            other => panic!("{other:?}"),
        }
        let none = groups(&[("cgroup.controllers", "cpu\n")]);
        assert!(matches!(
            check(none.path(), &[1], &[0, 1]),
            Err(Unavailable::NoController { .. } | Unavailable::OldKernel(_))
        ));
    }

    #[test]
    fn what_remains_on_all_processors_has_the_kernels_threads() {
        let all = crate::preflight::online();
        let remains = Remains::on(&all);
        // A container shows no thread of the kernel.
        if proc::kernel_threads("").is_ok_and(|threads| !threads.is_empty()) {
            assert!(remains.threads.iter().any(|name| name.starts_with("ksoftirqd/")), "{remains:?}");
        }
    }
}
