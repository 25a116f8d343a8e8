//! The scheduling attributes of attached threads before the run.

use std::collections::HashMap;
use std::io;

use super::{Change, Identity};
use punctual_linux::os::sched::{self, Attributes};

/// How a thread was before the run.
pub(super) struct ThreadBefore<'a> {
    pub process: i32,
    pub group: &'a str,
    pub scheduling: Scheduling<'a>,
}

/// How a thread is to be scheduled again.
#[derive(Clone, Copy)]
pub(super) struct Scheduling<'a> {
    pub attributes: &'a Attributes,
    pub affinity: &'a [usize],
}

/// How all threads of a journal were.
pub(super) struct ThreadsBefore<'a> {
    all: HashMap<Identity, ThreadBefore<'a>>,
    /// In the order of the journal.
    in_order: Vec<Identity>,
}

impl<'a> ThreadsBefore<'a> {
    pub(super) fn of(changes: &'a [Change]) -> ThreadsBefore<'a> {
        let mut before = ThreadsBefore { all: HashMap::new(), in_order: Vec::new() };
        for change in changes {
            if let Change::Thread { thread, process, attributes, affinity, group } = change {
                // A thread may come twice; its first record is how it was.
                before.all.entry(*thread).or_insert_with(|| {
                    before.in_order.push(*thread);
                    let scheduling = Scheduling { attributes, affinity };
                    ThreadBefore { process: *process, group, scheduling }
                });
            }
        }
        before
    }

    /// In the order of the journal.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Identity, &ThreadBefore<'a>)> {
        self.in_order.iter().filter_map(|thread| Some((*thread, self.all.get(thread)?)))
    }

    /// How this thread was, if it is written down.
    pub(super) fn of_thread(&self, thread: Identity) -> Option<&ThreadBefore<'a>> {
        self.all.get(&thread)
    }

    /// How the threads that are written down were scheduled.
    pub(super) fn scheduling(&self) -> impl Iterator<Item = (Identity, Scheduling<'a>)> {
        self.iter().map(|(thread, before)| (thread, before.scheduling))
    }

    /// How the processes of these threads were scheduled, as far as they go on: as their first threads, which
    /// are in the journal of each process that was attached to.
    pub(super) fn processes(&self) -> HashMap<i32, Scheduling<'a>> {
        let mut processes = HashMap::new();
        for (thread, before) in self.iter() {
            // Threads of a process are in ascending order, so its leader comes first.
            if !processes.contains_key(&before.process) && thread.is_alive() {
                processes.insert(before.process, before.scheduling);
            }
        }
        processes
    }
}

/// Gives a thread the affinity and the attributes that it had, as far as it has others.
pub(super) fn put_back(tid: i32, before: Scheduling<'_>) -> io::Result<()> {
    // The affinity first: SCHED_DEADLINE is admitted only with the affinity it had.
    // Some of the kernel's threads refuse to be given any, even their own.
    if sched::affinity(tid)? != before.affinity {
        sched::set_affinity(tid, before.affinity)?;
    }
    if sched::attributes(tid)? == *before.attributes {
        return Ok(());
    }
    sched::restore_attributes(tid, before.attributes)
}
