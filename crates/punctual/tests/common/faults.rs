//! Processes that a run attaches to, and everything about the machine that a run may change.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use punctual_doctor::doctor::{self, Change, Root};
use punctual_enforce::journal;
use punctual_linux::os::sched::{Attributes, affinity, attributes};
use punctual_linux::os::{cgroup, proc};
use punctual_linux::preflight::RT_RUNTIME;
use rustix::process::{Pid, Signal};

/// What a run may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    threads: Vec<(i32, Attributes, Vec<usize>, String)>,
    /// The kernel's threads of RCU and timers, which a run moves out of its way or raises.
    kernel: Vec<(i32, Attributes, Vec<usize>, String)>,
    rt_runtime_us: String,
    groups: Vec<PathBuf>,
    /// What `--apply` may write: files with their content.
    pub settings: Vec<(PathBuf, String)>,
}

/// Processes of the test with a state directory of their own.
pub(crate) struct Victims {
    processes: Vec<Child>,
    directory: PathBuf,
    settings: Vec<PathBuf>,
}

impl Victims {
    /// Starts them: one spins, two sleep.
    pub(crate) fn start(name: &str) -> Victims {
        Victims::with(name, &["sh", "-c", "while :; do :; done"])
    }

    /// Starts three that sleep: bystanders of runs that attach to none of them.
    pub(crate) fn bystanders(name: &str) -> Victims {
        Victims::with(name, &["sleep", "1000"])
    }

    fn with(name: &str, first: &[&str]) -> Victims {
        let directory = std::env::temp_dir().join(format!("punctual-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let commands: [&[&str]; 3] = [first, &["sleep", "1000"], &["nice", "-n", "3", "sleep", "1000"]];
        let start = |command: &&[&str]| {
            Command::new(command[0]).args(&command[1..]).stdin(Stdio::null()).spawn().expect("a process")
        };
        let processes: Vec<Child> = commands.iter().map(start).collect();
        let niced = processes[2].id() as i32;
        wait("`nice` becomes `sleep`", || proc::name(niced).is_ok_and(|name| name == "sleep"));
        let domain = |(index, process): (usize, &Child)| {
            let id = process.id();
            format!(
                "[domain.d{index}]\nbudget = \"2ms\"\nperiod = \"10ms\"\npriority = {index}\n\
                 attach = {{ threads = [{id}] }}\n"
            )
        };
        let domains: String = processes.iter().enumerate().map(domain).collect();
        let host = format!(
            "name = \"{name}\"\n[machine]\nprocessors = 2\n[pool.guests]\nprocessors = [1]\n\
             policy = \"deferrable\"\n{domains}"
        );
        std::fs::write(directory.join("host.toml"), host).expect("a host file");
        let findings = doctor::examine(Root::new(Path::new("/")), Some([1].into_iter().collect()));
        let changes = doctor::reversible_changes(&findings.expect("a running Linux"));
        let settings = changes.into_iter().filter_map(|change| match change {
            Change::SetFile { path, .. } => Some(path),
            Change::HoldOpen { .. } | Change::SetThreadPriority { .. } => None,
        });
        Victims { processes, directory, settings: settings.collect() }
    }

    /// The host file that attaches to them.
    pub(crate) fn host(&self) -> String {
        self.directory.join("host.toml").display().to_string()
    }

    /// The program with the state directory of this test.
    pub(crate) fn punctual(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
        command.args(args).env("PUNCTUAL_STATE", &self.directory);
        command
    }

    /// Attaches to them.
    pub(crate) fn attach(&self, args: &[&str]) -> Child {
        let mut command = self.punctual(&["attach", &self.host()]);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("it starts")
    }

    /// How everything is now.
    pub(crate) fn state(&self) -> State {
        let thread = |tid: i32| {
            let group = cgroup::group_of(tid).expect("it lives");
            (tid, attributes(tid).expect("it lives"), affinity(tid).expect("it lives"), group)
        };
        let mount = cgroup::mount().expect("mounted");
        let mut groups: Vec<PathBuf> = std::fs::read_dir(mount)
            .expect("readable")
            .map(|entry| entry.expect("readable").path())
            .filter(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("punctual-")))
            .collect();
        groups.sort();
        State {
            threads: self.processes.iter().map(|process| thread(process.id() as i32)).collect(),
            kernel: ["rcu", "ktimers/"]
                .into_iter()
                .flat_map(|prefix| proc::kernel_threads(prefix).expect("readable"))
                .map(thread)
                .collect(),
            rt_runtime_us: std::fs::read_to_string(RT_RUNTIME).expect("readable"),
            groups,
            settings: self
                .settings
                .iter()
                .map(|path| (path.clone(), std::fs::read_to_string(path).unwrap_or_default()))
                .collect(),
        }
    }

    /// Does a journal name a change? One that names only the run is of a run that ended before its guardian
    /// was there: it had changed nothing.
    fn has_journal(&self) -> bool {
        self.journals().any(|path| std::fs::read_to_string(path).is_ok_and(|text| text.lines().count() > 1))
    }

    fn journals(&self) -> impl Iterator<Item = PathBuf> {
        let entries = std::fs::read_dir(&self.directory).expect("readable");
        let journals = entries.flatten().map(|entry| entry.path());
        journals.filter(|path| path.extension().is_some_and(|e| e == "journal"))
    }

    /// The runs that journals are of and that go on.
    fn runs(&self) -> Vec<Pid> {
        let run = |path: PathBuf| {
            let contents = journal::read(&path).ok()?;
            contents
                .run()
                .filter(|run| run.enforcer.is_alive())
                .and_then(|run| Pid::from_raw(run.enforcer.id))
        };
        self.journals().filter_map(run).collect()
    }

    /// Waits until no journal names a change.
    pub(crate) fn wait_until_restored(&self) {
        wait("the machine is put back", || !self.has_journal());
    }

    /// Waits until a run has changed all the threads.
    pub(crate) fn wait_until_changed(&self, before: &State) {
        wait("the run changes something", || {
            let now = self.state();
            now.threads.iter().zip(&before.threads).all(|(now, before)| now.3 != before.3)
        });
    }

    /// The directory of this test.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Waits until a VM of this name runs for the run, and runs its guest under enforcement.
    pub(crate) fn vm_of(&self, run: u32, name: &str) -> u32 {
        let named = format!("guest={name},");
        let find = || {
            qemus().into_iter().find(|&pid| {
                let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                let ours =
                    cgroup::group_of(pid).is_ok_and(|group| group.contains(&format!("punctual-{run}")));
                String::from_utf8_lossy(&command).contains(&named) && ours
            })
        };
        let start = Instant::now();
        loop {
            if let Some(pid) = find() {
                return pid as u32;
            }
            assert!(start.elapsed() < Duration::from_secs(240), "no VM {name} came under enforcement");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// VMs that are under a run's enforcement, whosever it is.
    pub(crate) fn vms(&self) -> usize {
        let ours = |pid: &i32| cgroup::group_of(*pid).is_ok_and(|group| group.contains("punctual-"));
        qemus().into_iter().filter(ours).count()
    }

    /// The guardian of a run: its child of that name.
    pub(crate) fn guardian_of(&self, run: u32) -> u32 {
        guardian_of(run).expect("a guardian")
    }
}

impl Drop for Victims {
    fn drop(&mut self) {
        // A test that failed may leave a run, which would lose its journal with the directory.
        let is_over = || {
            for run in self.runs() {
                let _ = rustix::process::kill_process(run, Signal::KILL);
            }
            std::thread::sleep(Duration::from_millis(50));
            !self.has_journal()
        };
        if !(0..100).any(|_| is_over()) {
            let _ = self.punctual(&["restore"]).status();
        }
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// The guardian of a run: its child of that name.
pub(crate) fn guardian_of(run: u32) -> Option<u32> {
    let is_guardian = |&pid: &i32| {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        proc::stat(pid).is_ok_and(|stat| stat.parent == run as i32)
            && String::from_utf8_lossy(&command).contains("guardian")
    };
    proc::processes().expect("listed").into_iter().find(is_guardian).map(|pid| pid as u32)
}

/// Kills a run and its guardian so that neither undoes anything. A guardian that is stopped would not do: the
/// kernel lets it go on when its run dies (`kill_orphaned_pgrp` in Linux `kernel/exit.c`).
pub(crate) fn kill_with_guardian(run: u32) {
    let guardian = guardian_of(run).expect("it has one");
    signal(run, "STOP");
    signal(guardian, "KILL");
    signal(run, "KILL");
}

/// Sends a signal to a process, which must be there.
pub(crate) fn signal(process: u32, name: &str) {
    assert!(signal_if_there(process, name), "process {process} has ended");
}

/// Sends a signal to a process; returns whether it was there. By a system call: the program `kill` takes as
/// long to start as a run takes to end.
pub(crate) fn signal_if_there(process: u32, name: &str) -> bool {
    let signal = match name {
        "HUP" => Signal::HUP,
        "INT" => Signal::INT,
        "KILL" => Signal::KILL,
        "STOP" => Signal::STOP,
        "TERM" => Signal::TERM,
        _ => panic!("no test sends SIG{name}"),
    };
    let pid = Pid::from_raw(process as i32).expect("a process");
    match rustix::process::kill_process(pid, signal) {
        Ok(()) => true,
        Err(rustix::io::Errno::SRCH) => false,
        Err(error) => panic!("SIG{name} to process {process}: {error}"),
    }
}

fn qemus() -> Vec<i32> {
    let is_qemu = |pid: &i32| proc::name(*pid).is_ok_and(|name| name.starts_with("qemu-system"));
    proc::processes().expect("listed").into_iter().filter(is_qemu).collect()
}

/// Waits for it, half a minute at most.
pub(crate) fn wait(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(30), "waited half a minute, but not: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until a count is there, as long as it grows within half a minute.
pub(crate) fn wait_while_it_grows(what: &str, count: impl Fn() -> usize, full: usize) {
    let (mut most, mut since) = (0, Instant::now());
    loop {
        let now = count();
        if now >= full {
            return;
        }
        if now > most {
            (most, since) = (now, Instant::now());
        }
        assert!(since.elapsed() < Duration::from_secs(30), "{most} of {full} for half a minute: {what}");
        // To count takes its time from what is counted.
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A moment of a kill that looks random: before the run has changed anything, while it does, or later.
/// `until_changed` is how long a run takes on this machine until it has changed everything.
pub(crate) fn moment(round: u64, until_changed: Duration) -> Duration {
    let span = (until_changed * 2).max(Duration::from_millis(400));
    Duration::from_micros(random(round) % span.as_micros() as u64)
}

/// How many rounds a fault test has: seconds by default, minutes with `PUNCTUAL_FAULTS=100`, an hour with
/// `PUNCTUAL_FAULTS=2000`.
pub(crate) fn rounds() -> u64 {
    std::env::var("PUNCTUAL_FAULTS").ok().and_then(|n| n.parse().ok()).unwrap_or(15)
}

/// Numbers that look random and are the same in every run.
pub(crate) fn random(n: u64) -> u64 {
    punctual_jobs::mix(0, n)
}
