//! A made-up machine: threads and processes that do what Linux lets them do. Beside how each thread is
//! scheduled it keeps how the thread would be scheduled if no run had ever been.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use super::super::Identity;
use super::super::given::OwnScheduling;
use super::super::table::Table;
use punctual_linux::os::proc::Stat;
use punctual_linux::os::sched::{self, Attributes};

/// `SCHED_BATCH`.
pub(super) const BATCH: u32 = 3;
/// `SCHED_FLAG_RESET_ON_FORK`.
pub(super) const RESET: u64 = libc::SCHED_FLAG_RESET_ON_FORK as u64;
/// Where cgroups are.
pub(super) const MOUNT: &str = "/cgroup";

#[derive(Clone, Debug)]
pub(super) struct Thread {
    pub start: u64,
    pub process: i32,
    pub now: OwnScheduling,
    pub group: String,
    /// How it would be scheduled without any run.
    pub without: OwnScheduling,
    /// The group that it would be in without any run.
    pub home: String,
    /// How it was without the run when the run wrote it down. That is put back, whatever it sets later.
    pub recorded: Option<OwnScheduling>,
    /// What the rule may take for its own, where Linux does not tell who created it.
    pub excuses: Vec<OwnScheduling>,
    pub is_zombie: bool,
    /// Has an operator moved it, or what it comes from, to another group?
    pub is_moved: bool,
    /// Did it, or what it comes from, change its class or nice value after it was written down? The run
    /// overwrote that, perhaps in part.
    pub is_mixed: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Process {
    pub parent: i32,
    pub session: i32,
}

#[derive(Clone, Debug)]
pub(super) struct World {
    pub clock: u64,
    next: i32,
    pub threads: BTreeMap<i32, Thread>,
    pub processes: BTreeMap<i32, Process>,
}

/// `init`, and a process that adopts the children of those that end, as `systemd --user` does.
pub(super) const INIT: i32 = 1;
pub(super) const SUBREAPER: i32 = 2;
/// A shell, which starts processes in its session.
pub(super) const SHELL: i32 = 3;
/// Ids are used again from this one on.
const FIRST: i32 = 10;
const LAST: i32 = 250;

pub(super) fn all_processors() -> Vec<usize> {
    vec![0, 1, 2, 3]
}

pub(super) fn fair(nice: i32) -> Attributes {
    Attributes { nice, ..Attributes::other() }
}

fn is_fair(attributes: &Attributes) -> bool {
    !matches!(attributes.policy, sched::FIFO | sched::RR | sched::DEADLINE)
}

impl World {
    pub(super) fn new() -> World {
        let mut world =
            World { clock: 1_000, next: FIRST, threads: BTreeMap::new(), processes: BTreeMap::new() };
        for id in [INIT, SUBREAPER, SHELL] {
            let everywhere = OwnScheduling { attributes: fair(0), affinity: all_processors() };
            world.processes.insert(id, Process { parent: 0, session: id });
            world.insert(id, id, everywhere, "/init");
        }
        world
    }

    fn insert(&mut self, id: i32, process: i32, scheduling: OwnScheduling, group: &str) {
        let thread = Thread {
            start: self.clock,
            process,
            now: scheduling.clone(),
            group: group.to_owned(),
            without: scheduling,
            home: group.to_owned(),
            recorded: None,
            excuses: Vec::new(),
            is_zombie: false,
            is_moved: false,
            is_mixed: false,
        };
        self.threads.insert(id, thread);
    }

    /// An id that nothing has.
    fn id(&mut self) -> i32 {
        loop {
            self.next += 1;
            if self.next > LAST {
                self.next = FIRST;
                self.clock += 1;
            }
            let id = self.next;
            let is_session = self.processes.values().any(|process| process.session == id);
            if !self.threads.contains_key(&id) && !is_session {
                return id;
            }
        }
    }

    /// A process that a shell started, with its first thread.
    pub(super) fn start(&mut self, scheduling: OwnScheduling, group: &str) -> i32 {
        let id = self.id();
        self.processes.insert(id, Process { parent: SHELL, session: SHELL });
        self.insert(id, id, scheduling, group);
        id
    }

    /// As if a thread had set its own before any run.
    pub(super) fn set_before(&mut self, tid: i32, scheduling: OwnScheduling, group: &str) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            (thread.now, thread.without) = (scheduling.clone(), scheduling);
            (thread.group, thread.home) = (group.to_owned(), group.to_owned());
        }
    }

    /// `clone` with CLONE_THREAD.
    pub(super) fn clone_thread(&mut self, creator: i32) -> i32 {
        let process = self.threads[&creator].process;
        let id = self.id();
        self.inherit(creator, id, process)
    }

    /// `fork`.
    pub(super) fn fork(&mut self, creator: i32) -> i32 {
        let parent = self.threads[&creator].process;
        let id = self.id();
        self.processes.insert(id, Process { parent, session: self.processes[&parent].session });
        self.inherit(creator, id, id)
    }

    fn inherit(&mut self, creator: i32, id: i32, process: i32) -> i32 {
        let from = &self.threads[&creator];
        let child = |of: &OwnScheduling| OwnScheduling {
            attributes: forked(&of.attributes),
            affinity: of.affinity.clone(),
        };
        let thread = Thread {
            start: self.clock,
            process,
            now: child(&from.now),
            without: child(&from.without),
            recorded: None,
            excuses: Vec::new(),
            is_zombie: false,
            ..from.clone()
        };
        self.threads.insert(id, thread);
        id
    }

    /// A process that outlives the child of the creator that started it.
    pub(super) fn daemon(&mut self, creator: i32, has_session: bool, parent: i32) -> i32 {
        let between = self.fork(creator);
        if has_session && let Some(process) = self.processes.get_mut(&between) {
            process.session = between;
        }
        let daemon = self.fork(between);
        if let Some(process) = self.processes.get_mut(&daemon) {
            process.parent = parent;
        }
        self.end_process(between);
        daemon
    }

    /// `execve`: the thread takes the id and the start of the first thread of its process, and the others
    /// end.
    pub(super) fn exec(&mut self, tid: i32) {
        let process = self.threads[&tid].process;
        let Some(leader) = self.threads.get(&process).cloned() else { return };
        let mut thread = self.threads[&tid].clone();
        if tid != process {
            // The journal has it as the leader that it has become.
            let own = thread.recorded.take().unwrap_or_else(|| thread.without.clone());
            if let Some(recorded) = leader.recorded {
                thread.recorded = Some(own);
                thread.excuses.extend(leader.excuses);
                thread.excuses.push(recorded);
            }
        }
        let start = leader.start;
        self.threads.retain(|_, other| other.process != process);
        self.threads.insert(process, Thread { start, is_zombie: false, ..thread });
    }

    /// A thread ends. The first one stays as a zombie while others of its process go on.
    pub(super) fn end_thread(&mut self, tid: i32) {
        let process = self.threads[&tid].process;
        let alive =
            self.threads.values().filter(|other| other.process == process && !other.is_zombie).count();
        if alive <= 1 {
            return self.end_process(process);
        }
        if tid != process {
            self.threads.remove(&tid);
        } else if let Some(leader) = self.threads.get_mut(&tid) {
            leader.is_zombie = true;
        }
    }

    pub(super) fn end_process(&mut self, process: i32) {
        self.threads.retain(|_, thread| thread.process != process);
        self.processes.remove(&process);
        for child in self.processes.values_mut().filter(|child| child.parent == process) {
            child.parent = INIT;
        }
    }

    /// A thread, or its owner, changes its class and nice value.
    pub(super) fn set_class(&mut self, tid: i32, to: Attributes) {
        self.mix(tid);
        self.change(tid, |scheduling| give(scheduling, &to));
    }

    /// A thread, or its owner, changes its nice value.
    pub(super) fn set_nice(&mut self, tid: i32, nice: i32) {
        self.mix(tid);
        self.change(tid, |scheduling| scheduling.attributes.nice = nice);
    }

    fn mix(&mut self, tid: i32) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.is_mixed |= thread.recorded.is_some();
        }
    }

    /// A thread, or its owner, changes its processors.
    pub(super) fn set_affinity(&mut self, tid: i32, to: &[usize]) {
        self.change(tid, |scheduling| scheduling.affinity = to.to_vec());
    }

    fn change(&mut self, tid: i32, change: impl Fn(&mut OwnScheduling)) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            change(&mut thread.now);
            change(&mut thread.without);
        }
    }

    /// A run sets the class of a thread.
    pub(super) fn give(&mut self, tid: i32, to: &Attributes) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            give(&mut thread.now, to);
        }
    }

    pub(super) fn is(&self, thread: Identity) -> bool {
        self.threads.get(&thread.id).is_some_and(|now| now.start == thread.start_ticks && !now.is_zombie)
    }
}

/// `sched_setattr(2)`: without a fair class the nice value beneath stays.
fn give(scheduling: &mut OwnScheduling, to: &Attributes) {
    let nice = if is_fair(to) { to.nice } else { scheduling.attributes.nice };
    scheduling.attributes = Attributes { nice, ..*to };
}

/// What a child has of the attributes of its creator (`sched_fork` in Linux `kernel/sched/core.c`).
pub(super) fn forked(attributes: &Attributes) -> Attributes {
    match attributes {
        own if own.flags & RESET == 0 => *own,
        own if !is_fair(own) => fair(0),
        own => Attributes { flags: own.flags & !RESET, nice: own.nice.max(0), runtime_ns: 0, ..*own },
    }
}

impl Table for World {
    fn stat(&self, id: i32) -> Option<Stat> {
        let thread = self.threads.get(&id)?;
        let Process { parent, session } = *self.processes.get(&thread.process)?;
        let state = if thread.is_zombie { 'Z' } else { 'S' };
        Some(Stat { state, parent, session, start_ticks: thread.start })
    }

    fn processes(&self) -> Vec<i32> {
        self.processes.keys().copied().collect()
    }

    fn threads(&self, process: i32) -> Vec<i32> {
        self.threads.iter().filter(|(_, thread)| thread.process == process).map(|(id, _)| *id).collect()
    }

    fn process_of(&self, tid: i32) -> Option<i32> {
        Some(self.threads.get(&tid)?.process)
    }

    fn scheduling(&self, tid: i32) -> Option<OwnScheduling> {
        Some(self.threads.get(&tid)?.now.clone())
    }

    fn group(&self, tid: i32) -> Option<String> {
        Some(self.threads.get(&tid)?.group.clone())
    }

    fn threads_below(&self, directory: &Path) -> Vec<i32> {
        let is_below =
            |thread: &Thread| Path::new(&format!("{MOUNT}{}", thread.group)).starts_with(directory);
        let inside = self.threads.iter().filter(|(_, thread)| !thread.is_zombie && is_below(thread));
        inside.map(|(id, _)| *id).collect()
    }

    fn is_exempt(&self, process: i32) -> bool {
        process < FIRST
    }
}

/// By thread, its attributes.
pub(super) type Lowered = HashMap<i32, Attributes>;
