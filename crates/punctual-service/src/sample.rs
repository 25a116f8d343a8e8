//! The threads of a VM or a cgroup: what each does, ran and waited.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use punctual_linux::os::proc::{self, Reader, SchedStat};
use punctual_linux::vmm::{self, Role, Thread};
use rustix::fs::{Mode, OFlags};

/// Threads are listed at each sample for so long after a change: monitors name their threads only after they
/// have started.
const UNSETTLED: Duration = Duration::from_secs(5);
/// Threads of a VM or a cgroup at most that are counted.
pub const THREADS_MAX: usize = 1024;
/// The weight of the last interval in an average, as a fraction of this.
const AVERAGE_OF: f64 = 8.0;

/// A thread with its counters.
#[derive(Debug)]
pub struct Sampled {
    pub thread: Thread,
    /// `None` where the counters cannot be opened.
    reader: Option<Reader>,
    /// Since the thread started, as of the last sample.
    pub total: SchedStat,
    /// In the last interval between two samples; `None` before the second one.
    pub recent: Option<SchedStat>,
    /// The average share of a processor that it runs, over some `AVERAGE_OF` intervals.
    pub average: Option<f64>,
}

/// A process whose threads are counted.
#[derive(Debug)]
struct Process {
    id: u32,
    /// Its directory of threads.
    task: Option<OwnedFd>,
    /// Links of that directory; their number changes with that of the threads. The width of the kernel's type
    /// depends on the architecture.
    links: i128,
}

/// The threads of an actor, as of the last sample.
#[derive(Debug, Default)]
pub struct Threads {
    processes: Vec<Process>,
    /// Is it a VM, whose threads have the names that its monitor gives them?
    is_vm: bool,
    /// Has a process come or gone since the threads were listed?
    is_stale: bool,
    /// Workers that are kernel threads of their own.
    kernel: Vec<u32>,
    list: Vec<Sampled>,
    /// What threads that have ended ran and waited, by role.
    ended: BTreeMap<&'static str, SchedStat>,
    settled: Option<Instant>,
    /// Has a thread come, gone or got another name since that was asked?
    has_changed: bool,
    sampled: Option<Instant>,
    /// The last interval between two samples.
    interval: Duration,
}

impl Threads {
    /// Those of a monitor's process; none before the first sample.
    pub fn of(proc: &Path, process: u32) -> Threads {
        Threads { processes: vec![Process::open(proc, process)], is_vm: true, ..Threads::default() }
    }

    /// Those of other programs; none before the first sample.
    pub fn of_group(proc: &Path, processes: &[u32]) -> Threads {
        let processes = processes.iter().map(|&process| Process::open(proc, process)).collect();
        Threads { processes, ..Threads::default() }
    }

    /// Their processes.
    pub fn processes(&self) -> impl ExactSizeIterator<Item = u32> {
        self.processes.iter().map(|process| process.id)
    }

    /// The processes are these from now on.
    pub fn set_processes(&mut self, proc: &Path, processes: &[u32]) {
        if self.processes().eq(processes.iter().copied()) {
            return;
        }
        let mut before: BTreeMap<u32, Process> =
            std::mem::take(&mut self.processes).into_iter().map(|process| (process.id, process)).collect();
        let known = |id: &u32| before.remove(id).unwrap_or_else(|| Process::open(proc, *id));
        self.processes = processes.iter().map(known).collect();
        (self.is_stale, self.has_changed) = (true, true);
    }

    /// In the order of their ids.
    pub fn list(&self) -> &[Sampled] {
        &self.list
    }

    /// The last interval between two samples.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// What all threads with this role ran and waited, those that have ended included.
    pub fn total(&self, role: &str) -> SchedStat {
        let living = self.list.iter().filter(|one| one.thread.role.name() == role).map(|one| one.total);
        living.chain(self.ended.get(role).copied()).fold(SchedStat::default(), sum)
    }

    /// Reads the counters, after listing the threads if that may be needed. `kernel` are workers that are
    /// kernel threads.
    pub fn sample(&mut self, proc: &Path, kernel: &[u32], now: Instant) {
        self.refresh(proc, kernel, now);
        self.interval = self.sampled.map_or(Duration::ZERO, |before| now.duration_since(before));
        self.sampled = Some(now);
        let interval = self.interval;
        let mut is_complete = true;
        for one in &mut self.list {
            is_complete &= one.sample(interval);
        }
        if !is_complete {
            // Another one may have come in its place.
            self.settled = None;
        }
    }

    /// Lists the threads again if some came, went or may be named by now.
    pub fn refresh(&mut self, proc: &Path, kernel: &[u32], now: Instant) {
        let mut is_other = self.is_stale || kernel != self.kernel;
        for process in &mut self.processes {
            is_other |= process.has_changed();
        }
        let is_settled = self.settled.is_some_and(|settled| settled <= now);
        if !is_settled || is_other {
            self.relist(proc, kernel, is_other, now);
        }
    }

    /// Has a thread come, gone or got another name since the last call?
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    fn relist(&mut self, proc: &Path, kernel: &[u32], is_other: bool, now: Instant) {
        let mut threads: Vec<(u32, Thread)> = Vec::new();
        for process in self.processes() {
            let of_process = vmm::threads_of(proc, process).unwrap_or_default().into_iter();
            let room = THREADS_MAX.saturating_sub(threads.len());
            threads.extend(of_process.take(room).map(|thread| {
                let role = if self.is_vm { thread.role } else { Role::Task };
                (process, Thread { role, ..thread })
            }));
        }
        for process in self.processes() {
            let name = format!("vhost-{process}");
            let worker = |&tid: &u32| (process, Thread { tid, name: name.clone(), role: Role::Vhost });
            threads.extend(kernel.iter().map(worker));
        }
        threads.sort_by_key(|(_, thread)| thread.tid);
        let mut before: BTreeMap<u32, Sampled> =
            std::mem::take(&mut self.list).into_iter().map(|one| (one.thread.tid, one)).collect();
        let mut has_changed = is_other;
        for (process, thread) in threads {
            match before.remove(&thread.tid) {
                Some(mut known) => {
                    has_changed |= known.thread != thread;
                    known.thread = thread;
                    self.list.push(known);
                }
                None => {
                    has_changed = true;
                    self.list.push(Sampled::open(proc, process, thread));
                }
            }
        }
        for ended in before.into_values() {
            let total = self.ended.entry(ended.thread.role.name()).or_default();
            *total = sum(*total, ended.total);
        }
        self.has_changed |= has_changed;
        (self.is_stale, self.kernel) = (false, kernel.to_vec());
        if has_changed || self.settled.is_none() {
            self.settled = Some(now + UNSETTLED);
        }
    }
}

impl Process {
    fn open(proc: &Path, id: u32) -> Process {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let task = rustix::fs::open(proc.join(format!("{id}/task")), flags, Mode::empty()).ok();
        Process { id, task, links: 0 }
    }

    /// Has a thread come or gone since that was asked?
    fn has_changed(&mut self) -> bool {
        let stat = self.task.as_ref().and_then(|task| rustix::fs::fstat(task).ok());
        let links = stat.map_or(0, |stat| i128::from(stat.st_nlink));
        std::mem::replace(&mut self.links, links) != links
    }
}

impl Sampled {
    fn open(proc: &Path, process: u32, thread: Thread) -> Sampled {
        let of_process = proc.join(format!("{process}/task/{}/schedstat", thread.tid));
        let of_kernel = proc.join(format!("{}/schedstat", thread.tid));
        let open = |path: &Path| Reader::open(&path.to_string_lossy()).ok();
        let reader = open(&of_process).or_else(|| open(&of_kernel));
        Sampled { thread, reader, total: SchedStat::default(), recent: None, average: None }
    }

    /// Reads the counters; false when they cannot be read.
    fn sample(&mut self, interval: Duration) -> bool {
        let mut buffer = [0; 128];
        let Some(reader) = &self.reader else { return true };
        let Some(total) = reader.read(&mut buffer).ok().and_then(proc::parse_schedstat) else { return false };
        let is_first = self.total == SchedStat::default();
        self.recent = (!is_first).then(|| total.since(&self.total));
        self.total = total;
        if let (Some(recent), false) = (self.recent, interval.is_zero()) {
            let share = share(recent.ran.as_ns(), interval);
            self.average = Some(self.average.map_or(share, |before| before + (share - before) / AVERAGE_OF));
        }
        true
    }
}

/// A time as a share of an interval.
pub fn share(ns: u64, interval: Duration) -> f64 {
    ns as f64 / (interval.as_nanos().max(1)) as f64
}

fn sum(a: SchedStat, b: SchedStat) -> SchedStat {
    SchedStat { ran: a.ran + b.ran, waited: a.waited + b.waited, arrivals: a.arrivals + b.arrivals }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use punctual_sched::Duration as Ns;

    use super::*;

    fn thread(proc: &Path, tid: u32, name: &str, schedstat: &str) {
        let directory = proc.join(format!("50/task/{tid}"));
        fs::create_dir_all(&directory).expect("made");
        fs::write(directory.join("comm"), format!("{name}\n")).expect("written");
        fs::write(directory.join("schedstat"), schedstat).expect("written");
    }

    #[test]
    fn counters_go_on_when_threads_are_renamed_and_end() {
        let directory = tempfile::tempdir().expect("a directory");
        let proc = directory.path();
        thread(proc, 50, "qemu-system-x86", "100 0 1");
        thread(proc, 51, "qemu-system-x86", "10 0 1");
        let (start, mut threads) = (Instant::now(), Threads::of(proc, 50));
        let second = Duration::from_secs(1);
        threads.sample(proc, &[], start);
        assert_eq!(threads.list().len(), 2);
        assert_eq!(threads.total("main-loop").ran, Ns::from_ns(100));
        thread(proc, 51, "CPU 0/KVM", "500000010 250000000 9");
        threads.sample(proc, &[], start + second);
        let vcpu = &threads.list()[1];
        assert_eq!(vcpu.thread.role, Role::Vcpu(0), "its name came later");
        let recent = vcpu.recent.expect("two samples");
        assert_eq!((recent.ran, recent.waited), (Ns::from_ms(500), Ns::from_ms(250)));
        assert_eq!((vcpu.average, threads.interval()), (Some(0.5), second));
        thread(proc, 52, "worker", "7 0 1");
        threads.sample(proc, &[], start + 2 * second);
        assert_eq!(threads.total("io").ran, Ns::from_ns(7));
        fs::remove_dir_all(proc.join("50/task/52")).expect("removed");
        threads.sample(proc, &[], start + 3 * second);
        assert_eq!((threads.list().len(), threads.total("io").ran), (2, Ns::from_ns(7)));
        fs::create_dir_all(proc.join("60")).expect("made");
        fs::write(proc.join("60/schedstat"), "3 0 1").expect("written");
        threads.sample(proc, &[60], start + 4 * second);
        assert_eq!(threads.total("vhost").ran, Ns::from_ns(3));
    }

    #[test]
    fn processes_of_a_group_come_and_go_and_their_threads_are_no_vcpus() {
        let directory = tempfile::tempdir().expect("a directory");
        let proc = directory.path();
        thread(proc, 50, "CPU 0/KVM", "100 0 1");
        let other = proc.join("70/task/70");
        fs::create_dir_all(&other).expect("made");
        fs::write(other.join("comm"), "x\n").expect("written");
        fs::write(other.join("schedstat"), "10 0 1").expect("written");
        let (start, mut threads) = (Instant::now(), Threads::of_group(proc, &[50]));
        threads.sample(proc, &[], start);
        assert_eq!((threads.list().len(), threads.list()[0].thread.role), (1, Role::Task));
        threads.take_changed();
        threads.set_processes(proc, &[50, 70]);
        assert!(threads.take_changed());
        threads.set_processes(proc, &[50, 70]);
        assert!(!threads.take_changed(), "the same ones");
        threads.sample(proc, &[], start);
        assert_eq!((threads.list().len(), threads.total("task").ran), (2, Ns::from_ns(110)));
        threads.set_processes(proc, &[50]);
        threads.sample(proc, &[], start);
        assert_eq!((threads.list().len(), threads.total("task").ran), (1, Ns::from_ns(110)));
    }

    #[test]
    fn a_process_that_is_gone_has_no_threads() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut threads = Threads::of(directory.path(), 50);
        threads.sample(directory.path(), &[], Instant::now());
        assert!(threads.list().is_empty());
    }
}
