//! Undoing what a journal says.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::claims::{file_before, kernel_thread_before, needs_cpusets};
use super::devices::elsewhere;
use super::given::OwnScheduling;
use super::machine::MachineLock;
use super::table::{Machine, Table, groups_in};
use super::threads::{AttachedGroup, ThreadRecords};
use super::{Change, Contents, GUARDIAN_MAX, HeldJournal, Identity, paths};
use punctual_linux::os::sched::{self, Attributes};
use punctual_linux::os::{cgroup, proc};
use punctual_linux::partition;

/// What was put back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restored {
    /// Threads that have their attributes, affinity and group again.
    pub threads: u64,
    /// Threads that had ended.
    pub threads_gone: u64,
    /// Threads whose group was gone: they are in the nearest one above it.
    pub threads_without_home: u64,
    /// Files that say what they said before.
    pub files: u64,
    /// Files and threads of the kernel that stay as they are for another run, which puts them back.
    pub left_to_others: u64,
    /// Kernel parameters that another program set during the run, with the values that they keep.
    pub set_by_others: Vec<(PathBuf, String)>,
    /// Processes of the run that were ended.
    pub children: u64,
    /// Groups removed.
    pub groups: u64,
    /// The journal was written before the machine was started: there was nothing to put back.
    pub of_earlier_boot: bool,
    /// What could not be put back, and why.
    pub failures: Vec<String>,
}

/// How long a guardian is waited for without a word.
const QUIET_MAX: Duration = Duration::from_secs(1);

/// Undoes the changes in the journal at `path` and removes it, unless a change could not be undone. Waits for
/// a guardian that is undoing the journal: `None` when the guardian has finished.
///
/// # Errors
/// The journal cannot be read or is not trusted ([`super::TrustError`]). What could not be put back is in
/// [`Restored::failures`].
pub fn restore(path: &Path) -> io::Result<Option<Restored>> {
    HeldJournal::take(path, GUARDIAN_MAX)?.map(HeldJournal::restore).transpose()
}

/// As [`restore`], for a journal that seemed to be abandoned: `None` also when its run is still going. Such a
/// run may have been about to begin when the journal was read, and have lost its guardian afterwards; it
/// undoes its changes itself. `waits` is told for what the call waits, if that takes longer than a second.
///
/// # Errors
/// As [`restore`].
pub fn restore_abandoned(path: &Path, waits: impl FnOnce(String)) -> io::Result<Option<Restored>> {
    let held = match HeldJournal::take(path, QUIET_MAX) {
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {
            waits(who_holds(path));
            HeldJournal::take(path, GUARDIAN_MAX)?
        }
        taken => taken?,
    };
    let Some(held) = held else { return Ok(None) };
    if Contents::of(&held.file)?.is_running() { Ok(None) } else { held.restore().map(Some) }
}

/// For what a call waits that wants the journal at `path`.
fn who_holds(path: &Path) -> String {
    let contents = super::read(path).unwrap_or_default();
    let run = contents.run().map_or_else(String::new, |run| {
        format!(" of the run of `{}` (process {})", run.name.escape_debug(), run.enforcer.id)
    });
    let path = path.display();
    format!(
        "waiting for the guardian{run}, which holds {path}; that of a run in another PID namespace holds it \
         until the run ends"
    )
}

impl HeldJournal {
    /// Undoes what it says and removes it, unless something could not be undone. A line that cannot be read
    /// is a failure, and does not keep the journal: another attempt would not read it either.
    ///
    /// # Errors
    /// The journal cannot be read or removed.
    pub fn restore(self) -> io::Result<Restored> {
        let contents = Contents::of(&self.file)?;
        if contents.is_of_earlier_boot() {
            let restored = Restored { of_earlier_boot: true, ..Restored::default() };
            self.remove(&restored)?;
            return Ok(restored);
        }
        let mut undo = Undo::of(&contents);
        undo.thaw();
        let children = undo.end_children(&contents.changes);
        undo.restore_threads();
        undo.send_home();
        undo.wait_for_children(children);
        undo.remove_groups();
        let machine = MachineLock::take();
        // If the journals of others are no longer trusted, no other run will put anything back.
        let others = machine.as_ref().ok().and_then(|machine| machine.others(&self.path).ok());
        undo.restore_machine(&contents, &others.unwrap_or_default());
        if let Err(e) = &machine {
            undo.fail(format!("the state directory: {e}"));
        }
        if undo.restored.failures.is_empty() {
            // The link first: one that is left where the undoing is killed in between would name nothing.
            if let (Ok(machine), Ok(path)) = (&machine, fs::canonicalize(&self.path)) {
                machine.unregister(&path);
            }
            self.remove(&undo.restored)?;
        }
        undo.restored.failures.extend(contents.unreadable.iter().map(|line| format!("not undone: {line}")));
        Ok(undo.restored)
    }

    /// Removes the journal, all of which was undone, and the socket beside it, which a run that was killed
    /// leaves.
    fn remove(&self, restored: &Restored) -> io::Result<()> {
        debug_assert!(
            restored.failures.is_empty(),
            "a journal stays until all of it is undone: {restored:?}"
        );
        // Most often there is none.
        let _ = fs::remove_file(self.path.with_extension("socket"));
        match fs::remove_file(&self.path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}

/// An undoing at work.
pub(super) struct Undo<'a> {
    pub mount: PathBuf,
    /// The groups of what the run started.
    started: Vec<&'a Path>,
    /// The groups of what it attached to, and of the run itself.
    pub attached: Vec<AttachedGroup>,
    /// The groups with its partitions.
    partitions: Vec<&'a Path>,
    /// What the journal says of threads.
    pub records: ThreadRecords,
    /// By thread, the attributes of those in the run's groups when undoing began.
    demoted: HashMap<i32, Attributes>,
    pub restored: Restored,
}

impl<'a> Undo<'a> {
    pub(super) fn of(contents: &'a Contents) -> Undo<'a> {
        let mount = cgroup::mount().unwrap_or_else(|_| PathBuf::from("/sys/fs/cgroup"));
        let mut records = ThreadRecords::of(&contents.changes);
        if !contents.unreadable.is_empty() {
            records.add_all_priorities();
        }
        let mut undo = Undo {
            records,
            demoted: HashMap::new(),
            started: Vec::new(),
            attached: Vec::new(),
            partitions: Vec::new(),
            restored: Restored::default(),
            mount,
        };
        for change in &contents.changes {
            let directory = match change {
                Change::Group { directory }
                | Change::Partitions { directory }
                | Change::AttachedGroup { directory, .. }
                | Change::OwnGroup { directory, .. } => directory,
                _ => continue,
            };
            match change {
                _ if !paths::is_group_of_run(&undo.mount, directory) => {
                    undo.fail(format!("{}: no run makes such a group", directory.display()));
                }
                Change::AttachedGroup { home, .. } | Change::OwnGroup { home, .. } => {
                    let (directory, home) = (directory.clone(), home.clone());
                    undo.attached.push(AttachedGroup { directory, home });
                }
                Change::Partitions { .. } => undo.partitions.push(directory),
                _ => undo.started.push(directory),
            }
        }
        undo
    }

    /// Everything in the run's groups may run, in the fair class, on any processor. Priorities first: the
    /// thread that holds the lock which the rest takes may need the processor of a unit that spins.
    fn thaw(&mut self) {
        self.demote_groups();
        self.partitions.iter().for_each(|directory| partition::dissolve(directory));
        self.all_groups().for_each(thaw_tree);
    }

    /// Lets go of what the run attached to, while the run goes on.
    pub(super) fn let_go(&mut self) {
        self.thaw();
        self.restore_threads();
        self.send_home();
        self.remove_groups();
    }

    fn all_groups(&self) -> impl Iterator<Item = &Path> {
        self.started.iter().copied().chain(self.attached.iter().map(|group| &*group.directory))
    }

    pub(super) fn fail(&mut self, failure: String) {
        self.restored.failures.push(failure);
    }

    /// Ends the processes that the run started. All are killed before any is waited for: one that spins under
    /// a real-time priority keeps others from ending. Returns those that have not ended within a second, with
    /// their names.
    fn end_children<'c>(&mut self, changes: &'c [Change]) -> Vec<(Identity, &'c str)> {
        let alive = changes.iter().filter_map(|change| match change {
            Change::Child { process, name } if process.is_alive() => Some((*process, name.as_str())),
            _ => None,
        });
        let children: Vec<(Identity, &str)> = alive.collect();
        for (child, _) in &children {
            self.kill(*child);
        }
        self.wait_for_ends(children, CHILDREN_MAX[0])
    }

    /// Waits for processes that were killed and need longer: a VM with much memory, for example.
    fn wait_for_children(&mut self, children: Vec<(Identity, &str)>) {
        for (child, name) in self.wait_for_ends(children, CHILDREN_MAX[1]) {
            let (id, name) = (child.id, name.escape_debug());
            self.fail(format!(
                "process {id} ({name}) was killed and has not ended: it is frozen, or waits in the kernel"
            ));
        }
    }

    /// Waits until these processes have ended, at most for `limit`; returns the others.
    fn wait_for_ends<'c>(
        &mut self,
        mut children: Vec<(Identity, &'c str)>,
        limit: Duration,
    ) -> Vec<(Identity, &'c str)> {
        let give_up = Instant::now() + limit;
        loop {
            let before = children.len();
            children.retain(|(child, _)| child.is_alive());
            self.restored.children += (before - children.len()) as u64;
            if children.is_empty() || Instant::now() > give_up {
                return children;
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Kills a process of the run, and everything it started, which is in its group.
    fn kill(&self, process: Identity) {
        let group = cgroup::group_of(process.id).map(|group| cgroup::below(&self.mount, &group));
        kill_process(process);
        // A threaded group cannot be killed as a whole: it holds this process alone.
        if let Ok(group) = group
            && self.started.iter().any(|ours| group.starts_with(ours) && group != **ours)
        {
            self.kill_group(&group);
        }
    }

    /// Kills everything in a group of what the run started. What is older than the run was put there by
    /// somebody else, and leaves first; without the run's start nothing is known of anybody in it.
    fn kill_group(&self, directory: &Path) {
        let Some(began) = self.records.began() else { return };
        for tid in Machine.threads_below(directory) {
            if proc::stat(tid).is_ok_and(|stat| stat.start_ticks < began)
                && let Ok(process) = proc::process_of(tid)
                && cgroup::move_process(&self.mount, "/", process).is_err()
            {
                return;
            }
        }
        // Version 2 ends everything in a group by one write (Linux 5.14), but not in a threaded one.
        if fs::write(directory.join("cgroup.kill"), "1").is_err() {
            let processes = Machine.threads_below(directory).into_iter().map(proc::process_of);
            processes.flatten().flat_map(Identity::of).for_each(kill_process);
        }
    }

    /// Puts every thread in the run's groups into the fair class, and remembers the class that it had.
    fn demote_groups(&mut self) {
        let inside = |directory: &Path| Machine.threads_below(directory);
        for tid in self.all_groups().flat_map(inside).collect::<Vec<_>>() {
            if let Ok(now) = sched::attributes(tid) {
                self.demoted.entry(tid).or_insert(now);
            }
            // One that has ended takes no processor; what a thread had before is put back later.
            let _ = sched::set_attributes(tid, &Attributes::other());
        }
    }

    /// Gives all threads that the run changed their attributes and affinity, takes from those that came
    /// meanwhile what they inherited from the run, and gives all others in its groups their own class again.
    fn restore_threads(&mut self) {
        for (thread, scheduling) in self.records.schedulings(&Machine, &self.demoted) {
            self.restore_thread(thread, &scheduling);
        }
    }

    fn restore_thread(&mut self, thread: Identity, scheduling: &OwnScheduling) {
        // The id of one that has ended may be another's by now.
        if !thread.is_alive() {
            self.restored.threads_gone += 1;
            return;
        }
        match scheduling.put_back(thread.id) {
            Ok(()) => self.restored.threads += 1,
            Err(_) if !thread.is_alive() => self.restored.threads_gone += 1,
            Err(e) => self.fail(format!("thread {}: {e}", thread.id)),
        }
    }

    fn remove_groups(&mut self) {
        let attached = self.attached.iter().map(|group| (group.directory.clone(), false));
        let started = self.started.iter().map(|directory| (directory.to_path_buf(), true));
        let partitions = self.partitions.iter().map(|directory| (directory.to_path_buf(), false));
        let all = partitions.chain(attached).chain(started);
        for (directory, is_started) in all.collect::<Vec<_>>().into_iter().rev() {
            match self.remove_group(&directory, is_started) {
                Ok(()) => self.restored.groups += 1,
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => self.fail(format!("{}: cannot be removed: {e}", directory.display())),
            }
        }
    }

    /// A process that is still in a group of what the run started ends with it. From the other groups
    /// everything has gone home.
    fn remove_group(&self, directory: &Path, is_started: bool) -> io::Result<()> {
        for _ in 0..ATTEMPTS {
            match cgroup::remove_tree(directory) {
                Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {
                    if is_started {
                        self.kill_group(directory);
                    }
                    std::thread::sleep(PAUSE);
                }
                other => return other,
            }
        }
        cgroup::remove_tree(directory)
    }

    /// Puts back what concerns the whole machine, as far as no other run has changed it too: the last one
    /// does it.
    fn restore_machine(&mut self, contents: &Contents, others: &[Contents]) {
        let mut files: Vec<&Path> = Vec::new();
        let mut threads: Vec<Identity> = Vec::new();
        for change in &contents.changes {
            match change {
                // The first record of a file or thread is its state before the run.
                Change::File { path, before, .. } if !files.contains(&path.as_path()) => {
                    files.push(path);
                    if others.iter().any(|other| file_before(other, path).is_some()) {
                        self.restored.left_to_others += 1
                    } else {
                        match (elsewhere(contents, path), set_by_others(contents, path, before)) {
                            (Some(failure), _) => self.fail(failure),
                            (None, Some(now)) => self.restored.set_by_others.push((path.clone(), now)),
                            (None, None) => self.restore_file(path, before),
                        }
                    }
                }
                Change::Cpusets if others.iter().any(needs_cpusets) => self.restored.left_to_others += 1,
                Change::Cpusets => self.take_cpusets(),
                Change::KernelThread { thread, attributes, affinity } if !threads.contains(thread) => {
                    threads.push(*thread);
                    if others.iter().any(|other| kernel_thread_before(other, *thread).is_some()) {
                        self.restored.left_to_others += 1
                    } else {
                        let (attributes, affinity) = (*attributes, affinity.clone());
                        self.restore_thread(*thread, &OwnScheduling { attributes, affinity })
                    }
                }
                _ => {}
            }
        }
    }

    /// The groups of the mount lose their cpusets, unless another program uses them by now.
    fn take_cpusets(&mut self) {
        if !partition::gives_cpusets(&self.mount) {
            return;
        }
        if partition::are_cpusets_used(&self.mount) {
            let file = self.mount.join(partition::SUBTREE_CONTROL);
            return self.restored.set_by_others.push((file, "cpuset".into()));
        }
        match partition::give_cpusets(&self.mount, false) {
            Ok(()) => self.restored.files += 1,
            Err(error) => self.fail(error.to_string()),
        }
    }

    fn restore_file(&mut self, path: &Path, before: &str) {
        match paths::write_parameter(path, before) {
            Ok(()) => self.restored.files += 1,
            // It went away, an interrupt's with its device for example, or it was never changed because it
            // cannot be written.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => {
                self.fail(format!("{}: {e}, so it is not written", path.display()));
            }
            Err(_) if fs::read_to_string(path).is_ok_and(|now| now.trim() == before) => {}
            Err(e) => self.fail(format!("{}: cannot be set back to {before:?}: {e}", path.display())),
        }
    }
}

/// The value of a kernel parameter if it is neither what this run wrote nor what it was before: another
/// program has set it since. Only for numbers of `/proc/sys`, which the kernel shows as they were written.
fn set_by_others(contents: &Contents, parameter: &Path, before: &str) -> Option<String> {
    if !parameter.starts_with("/proc/sys") {
        return None;
    }
    let number = |text: &str| text.trim().parse::<i64>().ok();
    let now = number(&fs::read_to_string(parameter).ok()?)?;
    let is_of_run = |change: &Change| match change {
        Change::File { path, during, .. } if path == parameter => number(during) == Some(now),
        _ => false,
    };
    let is_known = number(before) == Some(now) || contents.changes.iter().any(is_of_run);
    (!is_known).then(|| now.to_string())
}

fn kill_process(process: Identity) {
    if let (true, Some(pid)) = (process.is_alive(), rustix::process::Pid::from_raw(process.id)) {
        // Fails only for a process that has ended since.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

fn thaw_tree(directory: &Path) {
    // A group that is gone holds no thread.
    let _ = fs::write(directory.join("cgroup.freeze"), "0");
    groups_in(directory).for_each(|group| thaw_tree(&group));
}

/// How long processes that were killed are waited for before threads are restored, and after that.
const CHILDREN_MAX: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(10)];

/// How often to ask whether something has ended, and how long to sleep in between: a second in all.
pub(super) const ATTEMPTS: u32 = 200;
pub(super) const PAUSE: Duration = Duration::from_millis(5);
