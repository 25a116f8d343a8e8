//! A tree of processes as a unit: a look asks and sets a bounded number of its threads, however many it has.

use std::io;
use std::os::fd::OwnedFd;

use punctual_sched::Duration;
use rustix::event::{PollFd, PollFlags, poll};

use crate::journal::Identity;
use punctual_linux::os::cgroup::Group;
use punctual_linux::os::proc::{self, Reader, SleepReader};

/// A unit with more threads than this is a *crowd*. Each of them would have to be set at a change of the
/// unit's priority, and woken by the freezer; an enforcer does neither for a crowd.
pub const THREADS_MAX: usize = 128;

/// Threads that one look asks whether they sleep (6 us each); the next look asks the next ones.
const ASKED_MAX: usize = 4;

/// Bytes of `cgroup.threads` that are read: more than [`THREADS_MAX`] ids with their line ends. The kernel
/// itself fills at most a page for each read.
const LIST_BYTES_MAX: usize = (THREADS_MAX + 1) * 8;

/// The processes in the group of a unit.
#[derive(Debug)]
pub(super) struct Tree {
    cpu_stat: Reader,
    root: OwnedFd,
    can_read_wchan: bool,
    /// The group's `cgroup.threads`.
    threads: Reader,
    /// Threads that are asked one after the other whether they sleep.
    asked: Vec<i32>,
    /// The next one in `asked`.
    next: usize,
    /// Did all threads sleep when they were asked last?
    is_asleep: bool,
}

impl Tree {
    /// Of everything in `group`, which lives as long as the process of the descriptor `root`.
    pub(super) fn new(process: Identity, root: OwnedFd, group: &Group) -> io::Result<Tree> {
        let open = |name: &str| Reader::open(&group.directory().join(name).to_string_lossy());
        Ok(Tree {
            cpu_stat: open("cpu.stat")?,
            root,
            can_read_wchan: SleepReader::can_read_wchan(process.id),
            threads: open("cgroup.threads")?,
            asked: Vec::with_capacity(THREADS_MAX),
            next: 0,
            is_asleep: false,
        })
    }

    /// Processor time so far.
    pub(super) fn read(&self) -> io::Result<Option<Duration>> {
        let mut buffer = [0u8; 512];
        Ok(proc::parse_cpu_stat(self.cpu_stat.read(&mut buffer)?))
    }

    /// Has its first process ended? A zombie has.
    pub(super) fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(&self.root, PollFlags::IN)];
        let at_once = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&at_once)).is_ok_and(|ready| ready > 0)
    }

    /// Fills `threads` with the ids of its threads. False when it is a crowd; `threads` is empty then.
    pub(super) fn list(&self, threads: &mut Vec<i32>) -> io::Result<bool> {
        let mut buffer = [0u8; LIST_BYTES_MAX];
        let text = self.threads.read(&mut buffer)?;
        let is_complete = text.len() < LIST_BYTES_MAX;
        threads.clear();
        threads.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()));
        if is_complete && threads.len() <= THREADS_MAX {
            return Ok(true);
        }
        threads.clear();
        Ok(false)
    }

    /// Does a tree that `ran` since the last look want to run? One that ran does. Otherwise a few threads are
    /// asked at each look: the tree sleeps when all of them did, and wakes when one does not. A crowd always
    /// wants to run.
    pub(super) fn has_work(&mut self, ran: Duration) -> bool {
        if !ran.is_zero() {
            self.is_asleep = false;
            self.asked.clear();
            self.next = 0;
            return true;
        }
        if self.next == self.asked.len() {
            self.next = 0;
            let mut asked = std::mem::take(&mut self.asked);
            let is_listed = self.list(&mut asked);
            self.asked = asked;
            if !is_listed.unwrap_or(true) {
                return true;
            }
        }
        let end = self.asked.len().min(self.next + ASKED_MAX);
        while self.next < end {
            if is_runnable(self.asked[self.next], self.can_read_wchan) {
                self.is_asleep = false;
                return true;
            }
            self.next += 1;
        }
        self.is_asleep |= self.next == self.asked.len();
        !self.is_asleep
    }
}

/// Does the thread run, or wait for a processor? One that is gone does not.
fn is_runnable(thread: i32, can_read_wchan: bool) -> bool {
    let is_asleep = SleepReader::of(thread, can_read_wchan).and_then(|reader| reader.is_asleep());
    is_asleep.is_ok_and(|asleep| !asleep)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::sync::mpsc::channel;

    use super::*;

    fn tree(directory: &Path, threads: &[i32]) -> Tree {
        let text: String = threads.iter().map(|thread| format!("{thread}\n")).collect();
        for (name, text) in [("cgroup.freeze", "0"), ("cpu.stat", ""), ("cgroup.threads", &text)] {
            fs::write(directory.join(name), text).expect("written");
        }
        let group = Group::make(directory, false).expect("a group");
        let process = Identity::of(std::process::id() as i32).expect("it runs");
        let pid = rustix::process::getpid();
        let root = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).expect("it runs");
        Tree::new(process, root, &group).expect("a tree")
    }

    /// Threads that sleep until the sender is dropped.
    fn sleepers(count: usize) -> (Vec<i32>, Vec<std::sync::mpsc::Sender<()>>) {
        let (told, tids) = channel();
        let wakers = (0..count).map(|_| {
            let (waker, sleep) = channel::<()>();
            let told = told.clone();
            std::thread::spawn(move || {
                told.send(rustix::thread::gettid().as_raw_nonzero().get()).expect("received");
                // The sender is dropped.
                let _ = sleep.recv();
            });
            waker
        });
        let wakers: Vec<_> = wakers.collect();
        let tids: Vec<i32> = tids.iter().take(count).collect();
        let sleeps = |tid: &i32| !is_runnable(*tid, true);
        let all_sleep = || {
            std::thread::sleep(std::time::Duration::from_millis(1));
            tids.iter().all(sleeps)
        };
        assert!((0..2000).any(|_| all_sleep()));
        (tids, wakers)
    }

    #[test]
    fn a_tree_sleeps_when_all_its_threads_did_a_few_at_each_look() {
        let directory = tempfile::tempdir().expect("a directory");
        let (threads, _wakers) = sleepers(2 * ASKED_MAX + 1);
        let mut tree = tree(directory.path(), &threads);
        let looks: Vec<bool> = (0..6).map(|_| tree.has_work(Duration::ZERO)).collect();
        assert_eq!(looks, [true, true, false, false, false, false]);
        assert!(tree.has_work(Duration::from_us(1)), "one that ran has work");
        assert!(tree.has_work(Duration::ZERO), "all are asked again");
    }

    #[test]
    fn one_thread_that_runs_is_found_and_wakes_the_tree() {
        let directory = tempfile::tempdir().expect("a directory");
        let (mut threads, _wakers) = sleepers(ASKED_MAX);
        let mut tree = tree(directory.path(), &threads);
        assert!(!tree.has_work(Duration::ZERO));
        threads.push(rustix::thread::gettid().as_raw_nonzero().get());
        let text: String = threads.iter().map(|thread| format!("{thread}\n")).collect();
        fs::write(directory.path().join("cgroup.threads"), text).expect("written");
        assert!((0..2).any(|_| tree.has_work(Duration::ZERO)));
        assert!(tree.has_work(Duration::ZERO), "it is asked first from now on");
    }

    #[test]
    fn a_crowd_is_not_listed_and_counts_as_busy() {
        let directory = tempfile::tempdir().expect("a directory");
        let ids: Vec<i32> = (1..=THREADS_MAX as i32 + 1).collect();
        let mut listed = Vec::new();
        assert!(!tree(directory.path(), &ids).list(&mut listed).expect("readable"));
        assert!(listed.is_empty() && tree(directory.path(), &ids).has_work(Duration::ZERO));
        let long: Vec<i32> = (0..THREADS_MAX as i32).map(|number| 1_000_000 + number).collect();
        assert!(tree(directory.path(), &long).list(&mut listed).expect("readable"));
        assert_eq!(listed, long);
    }
}
