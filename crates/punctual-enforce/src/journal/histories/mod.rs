//! Histories: what processes, operators and a run do on a made-up machine, in random order. Afterwards each
//! thread must be scheduled, and in the group, as if there had been no run.
//!
//! A history that fails is printed with its seed, cut down to what it needs.

mod run;
mod world;

use punctual_linux::os::sched::{self, Attributes};

use super::given::OwnScheduling;
use super::table::Table;
use run::{FakeRun, undo};
use world::{BATCH, INIT, RESET, SHELL, SUBREAPER, Thread, World, all_processors, fair};

/// How many histories a test tries. `PUNCTUAL_HISTORIES` is another number, `PUNCTUAL_SEED` another start.
const HISTORIES: u64 = 10_000;
/// How many operations a history has at most.
const LENGTH: u64 = 60;

/// An operation: what, and two numbers that say on what and how.
type Operation = (Action, u16, u16);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Clone,
    Fork,
    Daemon,
    Exec,
    EndThread,
    EndProcess,
    SetClass,
    SetNice,
    SetAffinity,
    /// An operator moves a process to another group.
    Move,
    Start,
    Tick,
    BeginRun,
    Attach,
    Step,
    Rank,
    Watch,
    /// The run takes further threads of a process that it has attached to.
    Follow,
    EndRun,
    KillRun,
    /// Undoes what a dead run left; the first attempt may be killed.
    Restore,
}

use Action::*;

/// Often what makes threads and changes them, and what carries a run on.
const ACTIONS: [Action; 32] = [
    Clone,
    Clone,
    Clone,
    Fork,
    Fork,
    Daemon,
    Exec,
    EndThread,
    EndProcess,
    SetClass,
    SetClass,
    SetNice,
    SetAffinity,
    SetAffinity,
    Move,
    Start,
    Tick,
    BeginRun,
    BeginRun,
    Attach,
    Attach,
    Step,
    Step,
    Step,
    Step,
    Rank,
    Watch,
    Follow,
    EndRun,
    KillRun,
    Restore,
    Clone,
];

fn history(seed: u64) -> Vec<Operation> {
    let seed = seed.wrapping_mul(0x2545_f491_4f6c_dd1d);
    let mut position = 0;
    let mut number = || {
        position += 1;
        punctual_jobs::mix(seed, position - 1)
    };
    let length = 5 + number() % LENGTH;
    let mut operation = || {
        let action = ACTIONS[(number() % ACTIONS.len() as u64) as usize];
        (action, number() as u16, number() as u16)
    };
    (0..length).map(|_| operation()).collect()
}

/// How threads are scheduled that were there before a run.
fn initial(number: u16) -> OwnScheduling {
    let with = |attributes: Attributes, flags| Attributes { flags, ..attributes };
    let attributes = [
        fair(0),
        fair(5),
        fair(0),
        Attributes { policy: sched::RR, ..Attributes::fifo(7) },
        Attributes { nice: 4, ..Attributes::fifo(70) },
        Attributes { policy: BATCH, ..fair(5) },
        with(fair(-3), RESET),
        with(Attributes::fifo(8), RESET),
        Attributes::idle(),
    ];
    let affinities = [all_processors(), vec![0], vec![1], vec![0, 1], vec![2, 3]];
    OwnScheduling {
        attributes: attributes[usize::from(number) % attributes.len()],
        affinity: affinities[usize::from(number / 16) % affinities.len()].clone(),
    }
}

/// What threads set themselves: nothing that a run gives, which could not be told from it.
fn own_class(number: u16) -> Attributes {
    let round_robin = Attributes { policy: sched::RR, ..Attributes::fifo(10) };
    let own = [round_robin, Attributes::fifo(80), Attributes { policy: BATCH, ..fair(3) }];
    own[usize::from(number) % own.len()]
}

fn own_affinity(number: u16) -> Vec<usize> {
    [all_processors(), vec![2], vec![1, 3], vec![0, 2]][usize::from(number) % 4].clone()
}

/// A machine with a run, or the journal of one that died.
struct Story {
    world: World,
    run: Option<FakeRun>,
    is_dead: bool,
    runs: i32,
}

impl Story {
    fn begin(seed: u64) -> Story {
        let mut story = Story { world: World::new(), run: None, is_dead: false, runs: 0 };
        for process in 0..3 {
            story.start((seed >> (process * 8)) as u16, process as u16);
        }
        story.world.clock += 1;
        story
    }

    /// A process with a second thread, and perhaps one in a group of its own.
    fn start(&mut self, scheduling: u16, number: u16) {
        let group = ["/vm", "/vm", "/other"][usize::from(number) % 3];
        let process = self.world.start(initial(scheduling), group);
        let second = self.world.clone_thread(process);
        let inner = if number & 8 == 0 { group.to_owned() } else { format!("{group}/vcpu") };
        self.world.set_before(second, initial(scheduling / 2), &inner);
        self.world.clone_thread(process);
    }

    /// The thread, of all but those of the machine's own processes, that a number chooses.
    fn thread(&self, number: u16) -> Option<i32> {
        let is_one = |(_, thread): &(&i32, &Thread)| {
            !matches!(thread.process, INIT | SUBREAPER | SHELL) && !thread.is_zombie
        };
        let all: Vec<i32> = self.world.threads.iter().filter(is_one).map(|(id, _)| *id).collect();
        (!all.is_empty()).then(|| all[usize::from(number) % all.len()])
    }

    fn act(&mut self, (action, a, b): Operation) -> Result<(), String> {
        match action {
            Start => self.start(a, b),
            Tick => self.world.clock += 1,
            BeginRun | Attach | Step | Rank | Watch | Follow | EndRun | KillRun | Restore => {
                return self.act_of_run((action, a, b));
            }
            _ => {
                if let Some(tid) = self.thread(a) {
                    self.act_of_thread(action, tid, b);
                }
            }
        }
        Ok(())
    }

    fn act_of_thread(&mut self, action: Action, tid: i32, b: u16) {
        let world = &mut self.world;
        let is_full = world.threads.len() > 60;
        match action {
            Clone if !is_full => {
                world.clone_thread(tid);
            }
            Fork if !is_full => {
                world.fork(tid);
            }
            Daemon if !is_full => {
                let (has_session, parent) =
                    [(true, INIT), (false, SUBREAPER), (false, INIT), (true, SUBREAPER)][usize::from(b) % 4];
                world.daemon(tid, has_session, parent);
            }
            Exec => {
                let Thread { process, group, .. } = world.threads[&tid].clone();
                world.exec(tid);
                let excuses = self.run.iter().flat_map(|run| run.unit_executed(&group));
                world.threads.entry(process).and_modify(|thread| thread.excuses.extend(excuses));
            }
            EndThread => world.end_thread(tid),
            EndProcess => {
                let process = world.threads[&tid].process;
                world.end_process(process);
            }
            SetClass => world.set_class(tid, own_class(b)),
            // Of a thread that would have a real-time class without the run, nobody can tell whether it left
            // that class itself.
            SetNice if matches!(world.threads[&tid].without.attributes.policy, sched::OTHER | BATCH) => {
                world.set_nice(tid, [12, -7, 19][usize::from(b) % 3]);
            }
            SetAffinity => world.set_affinity(tid, &own_affinity(b)),
            Move => self.move_process(tid, b),
            _ => {}
        }
    }

    /// Only what a run has not made: a daemon is known by its group.
    fn move_process(&mut self, tid: i32, b: u16) {
        let process = self.world.threads[&tid].process;
        let began = self.run.as_ref().map_or(u64::MAX, |run| run.began);
        let to = ["/vm", "/other", "/third"][usize::from(b) % 3];
        let is_young = self.world.threads.get(&process).is_none_or(|leader| leader.start >= began);
        if is_young {
            return;
        }
        for thread in self.world.threads.values_mut().filter(|thread| thread.process == process) {
            if !thread.group.contains("punctual-") {
                (thread.group, thread.home) = (to.to_owned(), to.to_owned());
                thread.is_moved = true;
            }
        }
    }

    fn act_of_run(&mut self, (action, a, b): Operation) -> Result<(), String> {
        if action == BeginRun && self.run.is_none() {
            self.runs += 1;
            let helpers = [Attributes::other(), fair(-5), Attributes::fifo(20)][usize::from(a) % 3];
            self.run = Some(FakeRun::begin(&mut self.world, 1_000 + self.runs, helpers));
            self.is_dead = false;
        }
        if action == Restore && self.is_dead {
            return self.restore(if a % 2 == 0 { usize::MAX } else { usize::from(b % 16) });
        }
        let thread = self.thread(a);
        let Some(run) = self.run.as_mut().filter(|_| !self.is_dead) else { return Ok(()) };
        let world = &mut self.world;
        match action {
            Attach | Follow => {
                let Some(process) = thread.map(|tid| world.threads[&tid].process) else { return Ok(()) };
                let is_known = run.processes.contains(&process);
                let threads = world.threads(process);
                let count = threads.len();
                let vcpus: Vec<i32> = threads.into_iter().skip(usize::from(b) % count).take(2).collect();
                if is_known == (action == Follow) {
                    run.adopt(world, process, &vcpus);
                }
            }
            Step => (0..=b % 12).for_each(|_| run.step(world)),
            Rank => run.rank(world, usize::from(a), usize::from(b)),
            Watch => run.watch(world),
            EndRun => {
                run.release(world);
                return self.restore(usize::MAX);
            }
            KillRun => self.is_dead = true,
            _ => {}
        }
        Ok(())
    }

    /// Undoes the journal, at first perhaps only a part, and judges the result.
    fn restore(&mut self, limit: usize) -> Result<(), String> {
        let Some(run) = self.run.take() else { return Ok(()) };
        self.is_dead = false;
        for thread in self.world.threads.values_mut().filter(|thread| thread.recorded.is_none()) {
            thread.excuses.clear();
        }
        let ids: Vec<i32> = self.world.threads.keys().copied().collect();
        for id in ids {
            let Some(thread) = self.world.identity(id) else { continue };
            let mut guesses = run.guesses(&self.world, thread);
            let found = &self.world.threads[&id];
            // Its group does not say any more where it comes from.
            if found.is_moved {
                guesses.push(found.now.clone());
            }
            if let Some(found) =
                self.world.threads.get_mut(&thread.id).filter(|found| found.recorded.is_none())
            {
                found.excuses = guesses;
            }
        }
        if limit < usize::MAX {
            undo(&mut self.world, &run.changes, limit);
        }
        undo(&mut self.world, &run.changes, usize::MAX);
        for (id, thread) in &mut self.world.threads {
            judge(thread).map_err(|wrong| format!("thread {id} {wrong}\n{thread:?}\n{}", run.shown()))?;
            // What is excused is its own from now on.
            thread.without = thread.now.clone();
            thread.recorded = None;
            thread.excuses.clear();
            (thread.is_moved, thread.is_mixed) = (false, false);
        }
        Ok(())
    }
}

/// The class of a thread with all that belongs to it but the nice value.
fn class(attributes: &Attributes) -> Attributes {
    Attributes { nice: 0, ..*attributes }
}

/// Is a thread as if there had been no run?
fn judge(thread: &Thread) -> Result<(), String> {
    let (now, without) = (&thread.now, thread.recorded.as_ref().unwrap_or(&thread.without));
    let is_excused =
        |is_equal: &dyn Fn(&OwnScheduling) -> bool| is_equal(without) || thread.excuses.iter().any(is_equal);
    if thread.is_zombie {
        return Ok(());
    }
    if thread.group != thread.home {
        return Err(format!("is in {}", thread.group));
    }
    if !is_excused(&|own| own.affinity == now.affinity) {
        return Err(format!("is on {:?}, not {:?}", now.affinity, without.affinity));
    }
    if thread.is_mixed && thread.recorded.is_none() {
        return Ok(());
    }
    // Where Linux does not tell the creator, a nice value of the creator's looks like one of the thread's
    // own, and keeps the thread in the fair class.
    let is_creator_known = thread.excuses.iter().all(|excuse| excuse == without);
    let may_be_fair = !is_creator_known && now.attributes.policy == sched::OTHER;
    if !may_be_fair && !is_excused(&|own| class(&own.attributes) == class(&now.attributes)) {
        return Err("has another class".into());
    }
    if is_creator_known && without.attributes.nice != now.attributes.nice {
        return Err(format!("has nice {}, not {}", now.attributes.nice, without.attributes.nice));
    }
    Ok(())
}

/// Plays a history; an error says what is wrong at its end.
fn play(seed: u64, history: &[Operation]) -> Result<(), String> {
    let mut story = Story::begin(seed);
    history.iter().try_for_each(|operation| story.act(*operation))?;
    if !story.is_dead
        && let Some(run) = &story.run
    {
        run.release(&mut story.world);
    }
    story.restore(usize::MAX)
}

/// The part of a failing history without which it does not fail.
fn shrink(seed: u64, mut history: Vec<Operation>) -> Vec<Operation> {
    let mut size = history.len();
    while size > 0 {
        let mut from = 0;
        while from < history.len() {
            let mut shorter = history.clone();
            shorter.drain(from..(from + size).min(history.len()));
            match play(seed, &shorter) {
                Err(_) => history = shorter,
                Ok(()) => from += size,
            }
        }
        size /= 2;
    }
    history
}

#[test]
fn after_any_history_each_thread_is_as_if_there_had_been_no_run() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let count: u64 = number("PUNCTUAL_HISTORIES").unwrap_or(HISTORIES);
    let first: u64 = number("PUNCTUAL_SEED").unwrap_or(1);
    for seed in first..first + count {
        let history = history(seed);
        if play(seed, &history).is_err() {
            let history = shrink(seed, history);
            let wrong = play(seed, &history).expect_err("it still fails");
            let shown: Vec<String> = history.iter().map(|operation| format!("{operation:?}")).collect();
            panic!("PUNCTUAL_SEED={seed} PUNCTUAL_HISTORIES=1: {wrong}\n{}", shown.join("\n"));
        }
    }
    println!("{count} histories from seed {first}");
}
