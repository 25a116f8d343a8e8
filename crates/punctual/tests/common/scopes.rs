//! Stand-ins for VMs in cgroups that behave as systemd's scopes: one that becomes empty is removed.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use punctual_linux::os::sched::{Attributes, affinity, attributes};
use punctual_linux::os::{cgroup, proc};

use super::faults::wait;

/// A slice with a scope in it, and somebody who removes the scope when no process is left in it.
pub(crate) struct Scope {
    slice: PathBuf,
    scope: PathBuf,
    stop: Arc<AtomicBool>,
    watcher: Option<JoinHandle<()>>,
}

impl Scope {
    pub(crate) fn make(name: &str) -> Scope {
        let mount = cgroup::mount().expect("cgroup version 2");
        let slice = mount.join(format!("test-{name}-{}.slice", std::process::id()));
        let scope = slice.join("vm.scope");
        std::fs::create_dir_all(&scope).expect("a group");
        Scope { slice, scope, stop: Arc::default(), watcher: None }
    }

    /// Begins to watch: from the first process on.
    pub(crate) fn watch(&mut self) {
        let (scope, stop) = (self.scope.clone(), self.stop.clone());
        let watch = move || {
            while !stop.load(Ordering::Relaxed) {
                let events = std::fs::read_to_string(scope.join("cgroup.events")).unwrap_or_default();
                if events.contains("populated 0") && cgroup::remove_tree(&scope).is_ok() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        self.watcher = Some(std::thread::spawn(watch));
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.scope
    }

    /// The scope and its slice, as the kernel writes them.
    pub(crate) fn groups(&self) -> [String; 2] {
        let slice = format!("/{}", self.slice.file_name().expect("a name").to_string_lossy());
        [format!("{slice}/vm.scope"), slice]
    }

    /// The groups in the scope.
    pub(crate) fn inside(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.scope).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(watcher) = self.watcher.take() {
            let _ = watcher.join();
        }
        // The kernel may take a moment to let go of processes that were killed.
        let is_removed = || cgroup::remove_tree(&self.slice).is_ok() || !self.slice.exists();
        let _ = (0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(5));
            is_removed()
        });
    }
}

/// A process that sleeps, and starts a child each time it is told to.
pub(crate) struct Machine {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    children: Vec<i32>,
    attributes: Attributes,
    affinity: Vec<usize>,
}

impl Machine {
    /// In the group at `directory`.
    pub(crate) fn start(directory: &Path) -> Machine {
        let script =
            "echo $$ > $0/cgroup.procs; echo in; while read line; do sleep 1000 > /dev/null & echo $!; done";
        let mut process = Command::new("sh")
            .args(["-c", script])
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let orders = process.stdin.take().expect("a pipe");
        let mut answers = BufReader::new(process.stdout.take().expect("a pipe"));
        let mut line = String::new();
        answers.read_line(&mut line).expect("it is in its group");
        let id = process.id() as i32;
        let (attributes, affinity) = (attributes(id).expect("there"), affinity(id).expect("there"));
        Machine { process, orders, answers, children: Vec::new(), attributes, affinity }
    }

    pub(crate) fn id(&self) -> i32 {
        self.process.id() as i32
    }

    /// Does it go on?
    pub(crate) fn is_alive(&self) -> bool {
        proc::stat(self.id()).is_ok_and(|stat| stat.state != 'Z')
    }

    /// Has it start a child, which sleeps.
    pub(crate) fn fork(&mut self) -> i32 {
        self.orders.write_all(b"fork\n").expect("it lives");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("it answers");
        let child = line.trim().parse().expect("a process id");
        self.children.push(child);
        child
    }

    /// Is it and every child in `group`, alive and scheduled as it was at first? Says what is otherwise.
    pub(crate) fn residue(&self, group: &str) -> Option<String> {
        let ids = std::iter::once(self.id()).chain(self.children.iter().copied());
        ids.into_iter().find_map(|id| {
            if proc::stat(id).map_or(true, |stat| stat.state == 'Z') {
                return Some(format!("process {id} was killed"));
            }
            let now = cgroup::group_of(id).expect("it lives");
            let (attributes, affinity) = (attributes(id).expect("it lives"), affinity(id).expect("it lives"));
            let as_before = (attributes, &affinity) == (self.attributes, &self.affinity) && now == group;
            (!as_before).then(|| format!("process {id}: {now}, {attributes:?}, {affinity:?}"))
        })
    }

    /// Waits until it is under enforcement.
    pub(crate) fn wait_until_enforced(&self) {
        wait("it is under enforcement", || {
            cgroup::group_of(self.id()).is_ok_and(|group| group.contains("punctual-"))
                && attributes(self.id()).is_ok_and(|now| now.policy == 1)
        });
    }

    /// The host file's domain that attaches to it.
    pub(crate) fn domain(&self, name: &str) -> String {
        format!(
            "[domain.{name}]\nbudget = \"2ms\"\nperiod = \"10ms\"\npriority = 1\n\
             attach = {{ threads = [{}] }}\n",
            self.id()
        )
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for child in self.children.drain(..) {
            if let Some(pid) = rustix::process::Pid::from_raw(child) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A state directory of a test, with host files in it.
pub(crate) struct Desk {
    directory: PathBuf,
}

impl Desk {
    pub(crate) fn make(name: &str) -> Desk {
        let directory = std::env::temp_dir().join(format!("punctual-{name}-{}", std::process::id()));
        std::fs::create_dir_all(directory.join("state")).expect("a directory");
        Desk { directory }
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.directory.join("state")
    }

    /// A host file with one pool on `processor` and these domains.
    pub(crate) fn host(&self, name: &str, processor: usize, domains: &str) -> String {
        let path = self.directory.join(format!("{name}.toml"));
        let text = format!(
            "name = \"{name}\"\n[machine]\nprocessors = 2\n[pool.guests]\nprocessors = [{processor}]\n\
             policy = \"deferrable\"\n{domains}"
        );
        std::fs::write(&path, text).expect("a host file");
        path.display().to_string()
    }

    pub(crate) fn punctual(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
        command.args(args).env("PUNCTUAL_STATE", self.state()).stdin(Stdio::null());
        command
    }

    /// Starts a run whose errors go to a file that [`Run::said`] reads.
    pub(crate) fn start(&self, args: &[&str]) -> Run {
        let said = tempfile::NamedTempFile::new_in(&self.directory).expect("a file");
        let errors = said.reopen().expect("a file");
        let process = self.punctual(args).stdout(Stdio::null()).stderr(errors).spawn().expect("it starts");
        Run { process, said }
    }

    /// What is in the state directory.
    pub(crate) fn left(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.state()).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    /// Does a journal name a change, beside the run that it is of?
    pub(crate) fn has_change(&self) -> bool {
        let journals = self.left().into_iter().filter(|name| name.ends_with(".journal"));
        let read = |name: String| std::fs::read_to_string(self.state().join(name)).unwrap_or_default();
        journals.map(read).any(|text| text.lines().count() > 1)
    }

    /// Does the run with this process have something under enforcement?
    pub(crate) fn is_attached(&self, run: u32) -> bool {
        let journal = self.state().join(format!("{run}.journal"));
        std::fs::read_to_string(journal).is_ok_and(|text| text.contains("attached_group"))
    }

    /// Waits until nothing is in the state directory.
    pub(crate) fn wait_until_restored(&self) {
        wait("nothing is left in the state directory", || self.left().is_empty());
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        if !self.left().is_empty() {
            let _ = self.punctual(&["restore"]).status();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// A run in progress. It is killed when a test fails.
pub(crate) struct Run {
    pub process: Child,
    said: tempfile::NamedTempFile,
}

impl Run {
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(self.said.path()).expect("a file")
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, name: &str) {
        super::faults::signal(self.id(), name);
    }

    /// Sends a signal unless it has ended.
    pub(crate) fn signal_if_there(&self, name: &str) {
        super::faults::signal_if_there(self.id(), name);
    }

    /// Has it ended? It is not waited for.
    pub(crate) fn has_ended(&self) -> bool {
        proc::stat(self.process.id() as i32).is_ok_and(|stat| stat.state == 'Z')
    }

    /// Its exit status; -1 when a signal ended it.
    pub(crate) fn wait(&mut self) -> i32 {
        self.process.wait().expect("it ends").code().unwrap_or(-1)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
