//! Control groups, version 2: where threads are frozen.
//!
//! Parking a thread means freezing the group it is in (Linux `Documentation/admin-guide/cgroup-v2.rst`,
//! `cgroup.freeze`). Unlike SIGSTOP it works on single threads and stays invisible to the program; unlike a
//! low priority it holds on an idle processor too; unlike version 1's freezer (100 to 300 us per write, which
//! waits for an RCU grace period; measured on Linux 6.18) a write takes a few microseconds. No controller is
//! enabled but for what a host file asks for, so limits of other groups stay as they are.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Finds the mount of cgroup version 2 in the text of `/proc/self/mountinfo`.
pub fn parse_mount(mountinfo: &str) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        (after.split(' ').next()? == "cgroup2").then_some(())?;
        // The fifth field; proc_pid_mountinfo(5) writes blanks as \040.
        Some(PathBuf::from(before.split(' ').nth(4)?.replace("\\040", " ")))
    })
}

/// The version 2 group of a thread, from the text of `/proc/TID/cgroup`: a path that starts with `/`.
pub fn parse_group(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("0::")).filter(|path| path.starts_with('/'))
}

/// Why there is no mount of cgroup version 2 to use.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// It is not mounted.
    #[error(
        "cgroup version 2 is not mounted, and parking a thread needs it; \
         mount it with: mkdir -p /sys/fs/cgroup/unified && mount -t cgroup2 none /sys/fs/cgroup/unified"
    )]
    NotMounted,
    /// The mounts cannot be read.
    #[error(transparent)]
    Unreadable(#[from] io::Error),
}

impl From<MountError> for io::Error {
    fn from(error: MountError) -> Self {
        match error {
            MountError::NotMounted => io::Error::new(io::ErrorKind::NotFound, error),
            MountError::Unreadable(error) => error,
        }
    }
}

/// Where cgroup version 2 is mounted.
///
/// # Errors
/// It is not mounted.
pub fn mount() -> Result<PathBuf, MountError> {
    parse_mount(&fs::read_to_string("/proc/self/mountinfo")?).ok_or(MountError::NotMounted)
}

/// The version 2 group of thread `tid`, as a path below the mount that starts with `/`.
///
/// # Errors
/// The thread is gone, or is in no group.
pub fn group_of(tid: i32) -> io::Result<String> {
    let text = fs::read_to_string(format!("/proc/{tid}/cgroup"))?;
    let group = parse_group(&text).map(str::to_owned);
    group.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the thread is in no cgroup of version 2"))
}

/// A group that can be frozen; the directory stays when this is dropped.
#[derive(Debug)]
pub struct Group {
    directory: PathBuf,
    freeze: File,
}

/// A limit of a group above keeps a group from being made.
#[derive(Debug, thiserror::Error)]
#[error("{} is {limit}, so no further cgroup can be made below it; raise it", file.display())]
pub struct FullError {
    /// The file with the limit.
    pub file: PathBuf,
    /// What it says.
    pub limit: u64,
}

/// The limit that keeps a group from being made at `directory` (`cgroup_check_hierarchy_limits` in Linux
/// `kernel/cgroup/cgroup.c`).
fn full_above(directory: &Path) -> Option<FullError> {
    let read = |file: &Path| fs::read_to_string(file).ok();
    for (depth, group) in (1_u64..).zip(directory.ancestors().skip(1)) {
        let stat = read(&group.join("cgroup.stat"))?;
        let groups = stat.lines().find_map(|line| line.strip_prefix("nr_descendants "));
        let groups = groups?.trim().parse::<u64>().ok()?.saturating_add(1);
        for (name, wanted) in [("cgroup.max.descendants", groups), ("cgroup.max.depth", depth)] {
            let file = group.join(name);
            // Without a limit it says `max`.
            let limit = read(&file).and_then(|text| text.trim().parse::<u64>().ok());
            if let Some(limit) = limit.filter(|limit| wanted > *limit) {
                return Some(FullError { file, limit });
            }
        }
    }
    None
}

impl Group {
    /// Makes the group at `directory` (or takes it as it is). A `threaded` one takes single threads of
    /// processes that are in its parent. Below a threaded group every group is one.
    ///
    /// # Errors
    /// As `mkdir(2)` and `write(2)`; [`FullError`] where a group above has its limit of groups.
    pub fn make(directory: &Path, threaded: bool) -> io::Result<Group> {
        match fs::create_dir(directory) {
            Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => {
                return Err(full_above(directory).map_or(e, io::Error::other));
            }
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
        let kind = directory.join("cgroup.type");
        match fs::read_to_string(&kind).as_deref().map(str::trim) {
            Ok("threaded") => {}
            Ok("domain invalid") => fs::write(&kind, "threaded")?,
            _ if threaded => fs::write(&kind, "threaded")?,
            _ => {}
        }
        let freeze = OpenOptions::new().write(true).open(directory.join("cgroup.freeze"))?;
        Ok(Group { directory: directory.to_owned(), freeze })
    }

    /// Its directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Freezes or thaws every thread in it.
    ///
    /// # Errors
    /// As `write(2)`; the group is gone (`ENODEV`).
    pub fn set_frozen(&self, frozen: bool) -> io::Result<()> {
        self.freeze.write_all_at(if frozen { b"1" } else { b"0" }, 0)
    }

    /// Moves a whole process into it.
    ///
    /// # Errors
    /// As `write(2)`: `ESRCH` when the process is gone.
    pub fn add_process(&self, process: i32) -> io::Result<()> {
        move_to(&self.directory, process)
    }

    /// Moves a single thread into it.
    ///
    /// # Errors
    /// As `write(2)`: `ESRCH` when the thread is gone, `EOPNOTSUPP` when its process is elsewhere.
    pub fn add_thread(&self, thread: i32) -> io::Result<()> {
        move_thread_to(&self.directory, thread)
    }

    /// The threads in it now.
    ///
    /// # Errors
    /// The group is gone.
    pub fn threads(&self) -> io::Result<Vec<i32>> {
        threads_in(&self.directory)
    }
}

/// The threads in the group at `directory` now, without those of groups below it. Takes no lock that a move
/// holds.
///
/// # Errors
/// The group is gone.
pub fn threads_in(directory: &Path) -> io::Result<Vec<i32>> {
    let text = fs::read_to_string(directory.join("cgroup.threads"))?;
    Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
}

/// The processes in the group at `directory` now, without those of groups below it.
///
/// # Errors
/// The group is gone, or threaded (`EOPNOTSUPP`).
pub fn processes_in(directory: &Path) -> io::Result<Vec<i32>> {
    let text = fs::read_to_string(directory.join("cgroup.procs"))?;
    // Those of another namespace of ids are 0.
    Ok(text.lines().filter_map(|line| line.parse().ok()).filter(|process| *process > 0).collect())
}

/// Moves process `pid` to the group at `directory`.
///
/// # Errors
/// As `write(2)`: `ESRCH` when the process is gone.
pub fn move_to(directory: &Path, pid: i32) -> io::Result<()> {
    fs::write(directory.join("cgroup.procs"), pid.to_string())
}

/// Moves thread `tid` to the threaded group at `directory`.
///
/// # Errors
/// As [`Group::add_thread`].
pub fn move_thread_to(directory: &Path, tid: i32) -> io::Result<()> {
    fs::write(directory.join("cgroup.threads"), tid.to_string())
}

/// Moves thread `tid` back to `group` (a path below `mount` as [`group_of`] gives). A process that is in
/// another threaded domain must be moved as a whole: [`move_process`].
///
/// # Errors
/// As `write(2)`.
pub fn move_thread(mount: &Path, group: &str, tid: i32) -> io::Result<()> {
    move_thread_to(&below(mount, group), tid)
}

/// Moves process `pid` to `group`.
///
/// # Errors
/// As `write(2)`.
pub fn move_process(mount: &Path, group: &str, pid: i32) -> io::Result<()> {
    move_to(&below(mount, group), pid)
}

/// May `group` have a threaded group in it for threads that are in `group` now, without any harm to others?
///
/// The kernel's rules (Linux `Documentation/admin-guide/cgroup-v2.rst`, "Threads"): a threaded group and the
/// root always take one. A domain takes one, and becomes the domain of these threads for as long, unless its
/// `cgroup.subtree_control` has a controller of domains, or a group with processes is in it. Any other group
/// in it would become invalid meanwhile, so a domain with groups in it does not qualify here.
pub fn takes_threaded_group(mount: &Path, group: &str) -> bool {
    let directory = below(mount, group);
    // The root has no such file.
    let kind = fs::read_to_string(directory.join("cgroup.type")).ok();
    match kind.as_deref().map(str::trim) {
        None => directory.is_dir(),
        Some("threaded" | "domain threaded") => true,
        Some("domain") => {
            let controllers = fs::read_to_string(directory.join("cgroup.subtree_control"));
            let is_threaded = |name: &str| THREADED_CONTROLLERS.contains(&name);
            controllers.is_ok_and(|all| all.split_whitespace().all(is_threaded))
                && fs::read_dir(&directory).is_ok_and(|mut entries| {
                    !entries.any(|entry| entry.is_ok_and(|entry| entry.path().is_dir()))
                })
        }
        Some(_) => false,
    }
}

/// The controllers that know threads (Linux `cgroup_subsys.threaded`).
const THREADED_CONTROLLERS: [&str; 4] = ["cpu", "cpuset", "perf_event", "pids"];

/// Removes `directory` and the groups below it, thawed first; threads in them make it fail.
///
/// # Errors
/// As `rmdir(2)`: `EBUSY` while a thread is inside.
pub fn remove_tree(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(directory)
}

/// Why the threads of a group cannot be limited.
#[derive(Debug, thiserror::Error)]
pub enum LimitError {
    /// The group's parent has no pids controller to give.
    #[error(
        "the pids controller is not available in {}; enable it for all groups above with: \
         echo +pids > cgroup.subtree_control (where cgroup version 1 has it, version 2 has not)",
        directory.display()
    )]
    NoController {
        /// The parent.
        directory: PathBuf,
    },
    /// A file of the group cannot be written.
    #[error("{}: {source}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// Limits how many threads the group at `directory`, with those below it, may have. Starting one more fails
/// there (`EAGAIN`). The parent, a group of ours, gets the controller for its groups.
///
/// # Errors
/// There is no pids controller, or a file cannot be written.
pub fn limit_threads(directory: &Path, threads_max: u32) -> Result<(), LimitError> {
    give_pids(directory.parent().unwrap_or(directory))?;
    let file = directory.join("pids.max");
    fs::write(&file, threads_max.to_string()).map_err(|source| LimitError::File { file, source })
}

/// Gives the pids controller to the groups in the group at `directory`, one of ours.
///
/// # Errors
/// As [`limit_threads`].
pub fn give_pids(directory: &Path) -> Result<(), LimitError> {
    let available = fs::read_to_string(directory.join("cgroup.controllers")).unwrap_or_default();
    if available.split_whitespace().all(|controller| controller != "pids") {
        return Err(LimitError::NoController { directory: directory.to_owned() });
    }
    let file = directory.join("cgroup.subtree_control");
    fs::write(&file, "+pids").map_err(|source| LimitError::File { file, source })
}

/// Is the thread in the group at `directory` or one below it?
///
/// # Errors
/// The thread is gone, or cgroup version 2 is not mounted.
pub fn is_inside(tid: i32, directory: &Path) -> io::Result<bool> {
    Ok(below(&mount()?, &group_of(tid)?).starts_with(directory))
}

/// The domain of the group at `directory`: the nearest group above that is not threaded, or itself. A thread
/// can be moved to a threaded group only while its process is in that domain.
pub fn domain_of(directory: &Path) -> &Path {
    let is_threaded = |group: &Path| {
        fs::read_to_string(group.join("cgroup.type")).is_ok_and(|kind| kind.trim() == "threaded")
    };
    directory.ancestors().find(|group| !is_threaded(group)).unwrap_or(directory)
}

/// `group` (which starts with `/`) below the mount.
pub fn below(mount: &Path, group: &str) -> PathBuf {
    mount.join(group.trim_start_matches('/'))
}

/// The group at `directory` as the kernel writes it: the inverse of [`below`]. `None` outside the mount.
pub fn group_at(mount: &Path, directory: &Path) -> Option<String> {
    Some(format!("/{}", directory.strip_prefix(mount).ok()?.to_str()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_of_version_2_is_found_among_others() {
        let text = "30 24 0:26 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup none rw,cpu\n\
                    40 24 0:36 / /sys/fs/my\\040cgroups rw,relatime - cgroup2 none rw\n";
        assert_eq!(parse_mount(text), Some(PathBuf::from("/sys/fs/my cgroups")));
        assert_eq!(parse_mount("garbage\n - cgroup2"), None);
    }

    #[test]
    fn the_limit_of_groups_above_is_named() {
        let top = tempfile::tempdir().expect("a directory");
        let home = top.path().join("home");
        fs::create_dir(&home).expect("made");
        let set = |group: &Path, groups: u64, descendants: &str, depth: &str| {
            fs::write(group.join("cgroup.stat"), format!("nr_descendants {groups}\n")).expect("written");
            fs::write(group.join("cgroup.max.descendants"), descendants).expect("written");
            fs::write(group.join("cgroup.max.depth"), depth).expect("written");
        };
        set(top.path(), 5, "max\n", "2\n");
        set(&home, 1, "2\n", "max\n");
        assert!(full_above(&home.join("new")).is_none(), "there is room for one");
        set(&home, 2, "2\n", "max\n");
        let error = full_above(&home.join("new")).expect("it is full");
        assert_eq!((error.file, error.limit), (home.join("cgroup.max.descendants"), 2));
        let error = full_above(&home.join("a/new")).map(|error| error.file);
        assert_eq!(error, None, "there is no group in between");
    }

    #[test]
    fn a_limit_needs_the_controller_in_the_parent_and_says_so() {
        let parent = tempfile::tempdir().expect("a directory");
        let group = parent.path().join("domain0");
        fs::create_dir(&group).expect("made");
        fs::write(parent.path().join("cgroup.controllers"), "cpu memory\n").expect("written");
        let error = limit_threads(&group, 10).expect_err("no pids controller").to_string();
        assert!(error.contains("pids controller is not available"), "{error}");
        fs::write(parent.path().join("cgroup.controllers"), "cpu memory pids\n").expect("written");
        limit_threads(&group, 10).expect("limited");
        assert_eq!(fs::read_to_string(group.join("pids.max")).expect("readable"), "10");
        let control = fs::read_to_string(parent.path().join("cgroup.subtree_control"));
        assert_eq!(control.expect("readable"), "+pids");
    }

    #[test]
    fn the_domain_of_a_threaded_group_is_above_it() {
        let home = tempfile::tempdir().expect("a directory");
        let unit = home.path().join("run/unit0");
        fs::create_dir_all(&unit).expect("made");
        for (group, kind) in [(home.path(), "domain threaded"), (&home.path().join("run"), "threaded")] {
            fs::write(group.join("cgroup.type"), kind).expect("written");
        }
        assert_eq!(domain_of(&unit), unit, "without a type it is a domain");
        fs::write(unit.join("cgroup.type"), "threaded\n").expect("written");
        assert_eq!(domain_of(&unit), home.path());
    }

    #[test]
    fn a_group_and_its_directory_name_each_other() {
        let mount = Path::new("/sys/fs/cgroup");
        for group in ["/", "/a", "/a/b.scope"] {
            assert_eq!(group_at(mount, &below(mount, group)).as_deref(), Some(group));
        }
        assert_eq!(group_at(mount, Path::new("/tmp/a")), None);
    }

    #[test]
    fn the_group_is_the_line_of_version_2() {
        assert_eq!(parse_group("3:cpu:/x\n0::/system.slice/a.service\n"), Some("/system.slice/a.service"));
        assert_eq!(parse_group("3:cpu:/x\n"), None);
    }
}
