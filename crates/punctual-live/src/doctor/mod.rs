//! What on this host threatens latency: read-only checks of the kernel's settings.
//!
//! Every check is a function of a directory that stands for `/` and of the processors that pools use, so it
//! is tested on made-up trees and works on a copy of another machine. Nothing here changes anything: a
//! [`Finding`] carries the [`Change`]s that whoever implements [`Apply`] can make for the time of a run and
//! put back.
//!
//! What cannot be read is [`Severity::Unknown`] with the file and the reason, never a guess.

mod cpus;
mod finding;
mod interrupts;
mod kernel;
mod limits;
mod memory;
mod parse;
mod processors;
mod root;

use std::cell::OnceCell;

use serde::Serialize;

pub use cpus::Cpus;
pub use finding::{Apply, Change, Finding, Reading, Severity};
pub use root::{Root, Unreadable};

use finding::Outcome;
use parse::ThreadStat;

/// What is the same on every machine about a check.
pub struct Check {
    /// Its name: `punctual doctor --explain ID`.
    pub id: &'static str,
    /// What it is about.
    pub title: &'static str,
    /// Why that matters for latency.
    pub why: &'static str,
    /// Where that is said: paper and section, file of Linux, manual page.
    pub source: &'static str,
    /// What is read and how it is judged.
    pub judged: &'static str,
    examine: fn(&Machine) -> Result<Outcome, Unreadable>,
}

/// Every check, in the order of reports.
pub fn checks() -> impl Iterator<Item = &'static Check> {
    [limits::CHECKS, processors::CHECKS, interrupts::CHECKS, kernel::CHECKS, memory::CHECKS]
        .into_iter()
        .flatten()
}

/// What all checks found.
#[derive(Clone, Debug, Serialize)]
pub struct Findings {
    /// Always `punctual-doctor`.
    pub format: &'static str,
    /// Version of the JSON form.
    pub version: u32,
    /// The machine's processors that are online.
    pub online: Vec<usize>,
    /// The processors that pools use.
    pub pool: Vec<usize>,
    /// In the order of [`checks`].
    pub findings: Vec<Finding>,
}

impl Findings {
    /// Is anything worse than a note, other than unknown?
    pub fn any_bad(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity.is_bad())
    }
}

/// Examines the machine whose files are below `root`. `pool` are the processors that pools use; `None`: all
/// that are online but the first, or the only one.
///
/// # Errors
/// When not even the list of processors can be read: then `root` is no Linux machine.
pub fn examine(root: Root, pool: Option<Cpus>) -> Result<Findings, Unreadable> {
    let machine = Machine::new(root, pool)?;
    let finding = |check: &'static Check| {
        let outcome = (check.examine)(&machine).unwrap_or_else(|error| Outcome::unknown(error.to_string()));
        let Outcome { severity, summary, readings, fix, changes } = outcome;
        let Check { id, title, why, source, .. } = *check;
        Finding { id, title, severity, summary, readings, why, source, fix, changes }
    };
    Ok(Findings {
        format: "punctual-doctor",
        version: 1,
        online: machine.online.iter().collect(),
        pool: machine.pool.iter().collect(),
        findings: checks().map(finding).collect(),
    })
}

/// What a run may change for its time and put back: that of every finding worse than a note, in the order of
/// reports.
pub fn reversible_changes(findings: &Findings) -> Vec<Change> {
    findings.findings.iter().flat_map(|finding| finding.changes.iter().cloned()).collect()
}

/// The machine under examination.
struct Machine {
    root: Root,
    /// Processors that pools use.
    pool: Cpus,
    /// Processors that are online.
    online: Cpus,
    /// Online processors that are left for everything else.
    others: Cpus,
    threads: OnceCell<Result<Vec<Thread>, Unreadable>>,
    config: OnceCell<Result<(String, String), Unreadable>>,
}

/// A thread with the processors it may run on.
struct Thread {
    stat: ThreadStat,
    /// `None` when it cannot be read, for example since the thread is gone.
    allowed: Option<Cpus>,
}

impl Machine {
    fn new(root: Root, pool: Option<Cpus>) -> Result<Self, Unreadable> {
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
    fn each<'a>(&'a self, pattern: &'a str) -> impl Iterator<Item = (usize, String)> + 'a {
        self.pool.iter().map(|cpu| (cpu, pattern.replace("{}", &cpu.to_string())))
    }

    /// Readings of a file of each pool processor.
    fn read_each(&self, pattern: &str) -> Result<Vec<Reading>, Unreadable> {
        self.each(pattern).map(|(_, path)| self.root.reading(&path)).collect()
    }

    /// A file with a list of processors.
    fn cpus(&self, path: &str) -> Result<Cpus, Unreadable> {
        self.root.parse(path, "a list of processors", |text| Cpus::parse_list(text, self.count()))
    }

    /// One more than the greatest number of a processor.
    fn count(&self) -> usize {
        self.online.iter().last().map_or(0, |last| last + 1)
    }

    fn cmdline(&self) -> Result<String, Unreadable> {
        self.root.text("/proc/cmdline")
    }

    /// Major and minor number of the kernel.
    fn kernel(&self) -> Result<(u32, u32), Unreadable> {
        let path = "/proc/sys/kernel/osrelease";
        self.root.parse(path, "a kernel release such as 6.12.1", parse::kernel_version)
    }

    /// The kernel's build configuration: where it was read, and its text.
    fn config(&self) -> Result<(&str, &str), Unreadable> {
        let read = self.config.get_or_init(|| kernel::configuration(&self.root));
        read.as_ref().map(|(path, text)| (path.as_str(), text.as_str())).map_err(Unreadable::clone)
    }

    /// Every thread of the machine that can be read.
    fn threads(&self) -> Result<&[Thread], Unreadable> {
        let read = self.threads.get_or_init(|| threads(&self.root));
        read.as_deref().map_err(Unreadable::clone)
    }

    /// Threads that are above the fair class and may run on a processor of a pool.
    fn real_time_threads_on_pool(&self) -> Result<impl Iterator<Item = &Thread>, Unreadable> {
        let on_pool = move |thread: &&Thread| {
            let allowed = thread.allowed.as_ref();
            thread.stat.is_real_time() && allowed.is_none_or(|allowed| !allowed.both(&self.pool).is_empty())
        };
        Ok(self.threads()?.iter().filter(on_pool))
    }
}

fn threads(root: &Root) -> Result<Vec<Thread>, Unreadable> {
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
            threads.push(Thread { stat, allowed: allowed.flatten() });
        }
    }
    Ok(threads)
}

/// The processors that a thread may run on.
fn allowed_cpus(root: &Root, status: &str) -> Result<Cpus, Unreadable> {
    root.parse(status, "a field Cpus_allowed_list", |text| {
        Cpus::parse_list(parse::status_field(text, "Cpus_allowed_list")?, 0)
    })
}

fn numbers(root: &Root, directory: &str) -> Result<Vec<u32>, Unreadable> {
    let mut numbers: Vec<u32> = root.names(directory)?.iter().filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

#[cfg(test)]
mod tests;
