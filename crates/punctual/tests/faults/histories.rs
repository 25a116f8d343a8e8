//! Random histories of real processes: threads create threads and children, execute programs, reschedule
//! themselves and end, before and during a run. Afterwards each is scheduled as if there had been no run. The
//! same on a made-up machine, a million times as fast: `punctual-enforce/src/journal/histories`.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use punctual_linux::os::sched::{self, Attributes, affinity, attributes, set_affinity, set_attributes};
use punctual_linux::os::{cgroup, proc};

use crate::common::faults::{kill_with_guardian, random, wait};
use crate::common::live::{PROCESSOR, needs};
use crate::common::scopes::Desk;

/// How many histories: `PUNCTUAL_REAL_HISTORIES` is another number, `PUNCTUAL_SEED` another start.
const HISTORIES: u64 = 30;
/// So many processes are attached to by one run, each with a history of its own.
const PROCESSES: u64 = 3;

/// What the process of these tests is.
const ACTOR: &str = "PUNCTUAL_TEST_ACTOR";

/// An order to a thread of an actor.
type Order = (String, Sender<i32>);

/// A thread that follows orders; each is answered with a thread's or process's id.
fn follow(orders: &Receiver<Order>, all: &Sender<(i32, Sender<Order>)>) {
    for (order, answer) in orders {
        let word = order.split(' ').next().unwrap_or_default();
        let mut id = rustix::thread::gettid().as_raw_nonzero().get();
        match word {
            "clone" => id = start(&order["clone ".len()..], all.clone()),
            "fork" => {
                let mut sleep = Command::new("sleep");
                let child = sleep.arg("1000").stdin(Stdio::null()).stdout(Stdio::null()).spawn();
                id = child.expect("a process").id() as i32;
            }
            "exec" => {
                let error = Command::new("sleep").arg("1000").stdout(Stdio::null()).exec();
                panic!("{error}");
            }
            "class" => set_attributes(0, &own_class(&order)).expect("permitted"),
            "nice" => rustix::process::setpriority_process(None, 12).expect("permitted"),
            "affinity" => set_affinity(0, &[0, 1]).expect("permitted"),
            "end" => {
                answer.send(id).expect("awaited");
                return;
            }
            _ => panic!("{order}"),
        }
        answer.send(id).expect("awaited");
    }
}

/// Nothing that a run gives.
fn own_class(order: &str) -> Attributes {
    match order {
        "class batch" => Attributes { policy: 3, nice: 3, ..Attributes::other() },
        _ => Attributes { policy: sched::RR, ..Attributes::fifo(10) },
    }
}

/// Starts a thread that follows orders; returns its id.
fn start(name: &str, all: Sender<(i32, Sender<Order>)>) -> i32 {
    let (told, id) = channel();
    let work = move || {
        let (orders, received) = channel();
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        all.send((own, orders)).expect("awaited");
        told.send(own).expect("awaited");
        follow(&received, &all);
    };
    std::thread::Builder::new().name(name.into()).stack_size(64 << 10).spawn(work).expect("a thread");
    id.recv().expect("it runs")
}

#[test]
#[ignore = "a process that another test starts"]
fn actor() {
    if std::env::var_os(ACTOR).is_none() {
        return;
    }
    let (all, started) = channel();
    let mut threads: BTreeMap<i32, Sender<Order>> = BTreeMap::new();
    for name in ["CPU 0/KVM", "first", "second"] {
        println!("@{}", start(name, all.clone()));
    }
    println!("@0");
    for line in std::io::stdin().lines() {
        threads.extend(started.try_iter());
        let line = line.expect("readable");
        let (tid, order) = line.split_once(' ').expect("a thread and an order");
        let (answer, awaited) = channel();
        let thread = &threads[&tid.parse().expect("a thread")];
        thread.send((order.to_owned(), answer)).expect("it lives");
        println!("@{}", awaited.recv().expect("answered"));
    }
    std::process::exit(0);
}

/// A thread or process of an actor, and how it would be scheduled without a run.
#[derive(Clone)]
struct Member {
    attributes: Attributes,
    affinity: Vec<usize>,
    group: String,
    is_process: bool,
    /// Has the run written it down? Then what it sets of itself is put back.
    is_recorded: bool,
}

/// A process whose threads follow orders.
struct Actor {
    process: Child,
    answers: BufReader<ChildStdout>,
    members: BTreeMap<i32, Member>,
    /// The threads that follow orders; the first is a vCPU.
    threads: Vec<i32>,
    steps: Vec<String>,
}

impl Actor {
    fn start(seed: u64) -> Actor {
        let mut process = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "histories::actor", "--ignored", "--nocapture", "--test-threads", "1"])
            .env(ACTOR, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let answers = BufReader::new(process.stdout.take().expect("a pipe"));
        let mut actor =
            Actor { process, answers, members: BTreeMap::new(), threads: Vec::new(), steps: Vec::new() };
        let started = std::iter::from_fn(|| Some(actor.answer()).filter(|tid| *tid != 0));
        let threads: Vec<i32> = started.collect();
        // Linux does not tell which thread created another: all but the vCPU are scheduled alike.
        let nice = |nice| Attributes { nice, ..Attributes::other() };
        let classes = [nice(0), nice(5), Attributes { policy: 3, ..nice(2) }, own_class("class rr")];
        let processors = [vec![0, 1], vec![0], vec![1]];
        let draw = random(seed) as usize;
        let (of_process, of_vcpu) = (draw % 12, (draw >> 8) % 12);
        for tid in proc::threads(actor.id()).expect("it lives") {
            let number = if tid == threads[0] { of_vcpu } else { of_process };
            set_affinity(tid, &processors[number % 3]).expect("permitted");
            set_attributes(tid, &classes[number / 3]).expect("permitted");
            let member = Member::of(tid).expect("it lives");
            actor.members.insert(tid, member);
        }
        actor.threads = threads;
        actor
    }

    fn id(&self) -> i32 {
        self.process.id() as i32
    }

    fn answer(&mut self) -> i32 {
        loop {
            let mut line = String::new();
            assert_ne!(self.answers.read_line(&mut line).expect("readable"), 0, "{:?}", self.steps);
            // The name of the test comes before the first answer, in the same line.
            if let Some((_, id)) = line.trim().rsplit_once('@') {
                return id.parse().expect("an id");
            }
        }
    }

    fn order(&mut self, tid: i32, order: &str) -> i32 {
        self.send(tid, order);
        self.answer()
    }

    fn send(&mut self, tid: i32, order: &str) {
        self.steps.push(format!("{tid} {order}"));
        let stdin = self.process.stdin.as_mut().expect("a pipe");
        stdin.write_all(format!("{tid} {order}\n").as_bytes()).expect("it reads");
    }

    /// A thread does something.
    fn act(&mut self, draw: u64) {
        let index = (draw >> 16) as usize % self.threads.len();
        let tid = self.threads[index];
        let member = self.members[&tid].clone();
        let new = Member { is_recorded: false, ..member.clone() };
        match draw % 16 {
            0..6 => {
                let id = self.order(tid, "clone worker");
                self.threads.push(id);
                self.members.insert(id, new);
            }
            6..9 => {
                let id = self.order(tid, "fork");
                self.members.insert(id, Member { is_process: true, ..new });
            }
            9 if self.threads.len() > 3 && index > 0 => {
                self.order(tid, "end");
                self.threads.remove(index);
                self.members.remove(&tid);
            }
            // What a run has written down is put back, and what it sets of itself would be inherited.
            _ if member.is_recorded => {}
            9..12 => {
                let order = if draw & 0x100 == 0 { "class batch" } else { "class rr" };
                self.order(tid, order);
                self.change(tid, |member| {
                    let own = own_class(order);
                    let has_nice = own.policy != sched::RR;
                    let nice = if has_nice { own.nice } else { member.attributes.nice };
                    member.attributes = Attributes { nice, ..own };
                });
            }
            // Of a thread that would be real-time nobody can tell whether it left that class by itself.
            12..14 if member.attributes.policy != sched::RR => {
                self.order(tid, "nice");
                self.change(tid, |member| member.attributes.nice = 12);
            }
            14 => {
                self.order(tid, "affinity");
                self.change(tid, |member| member.affinity = vec![0, 1]);
            }
            _ => {}
        }
    }

    fn change(&mut self, tid: i32, change: impl Fn(&mut Member)) {
        self.members.get_mut(&tid).into_iter().for_each(change);
    }

    /// A thread executes a program: it becomes the process, and its other threads end.
    fn exec(&mut self, draw: u64) {
        // Only of the vCPU the run can tell that it was not the first thread.
        let tid = if draw.is_multiple_of(2) { self.threads[0] } else { return };
        self.send(tid, "exec");
        let member = self.members[&tid].clone();
        self.members.retain(|_, other| other.is_process);
        self.members.insert(self.id(), member);
        let name = || proc::name(self.id()).is_ok_and(|name| name == "sleep");
        wait("it executes", name);
    }

    /// Who is not as without a run.
    fn residue(&self) -> Vec<String> {
        let wrong = |(tid, expected): (&i32, &Member)| {
            let Some(now) = Member::of(*tid) else { return Some(format!("{tid} has ended")) };
            let shown = |member: &Member| {
                format!("{:?} on {:?} in {}", member.attributes, member.affinity, member.group)
            };
            let (is, was) = (shown(&now), shown(expected));
            (is != was).then(|| format!("{tid}: {is}, without a run {was}"))
        };
        self.members.iter().filter_map(wrong).collect()
    }

    fn domain(&self, number: u64) -> String {
        format!(
            "[domain.vm{number}]\nbudget = \"1ms\"\nperiod = \"10ms\"\npriority = {number}\n\
             attach = {{ process = {} }}\n",
            self.id()
        )
    }
}

impl Member {
    fn of(tid: i32) -> Option<Member> {
        let is_alive = proc::stat(tid).is_ok_and(|stat| stat.state != 'Z');
        let (attributes, affinity) = (attributes(tid).ok()?, affinity(tid).ok()?);
        let group = cgroup::group_of(tid).ok()?;
        let member = Member { attributes, affinity, group, is_process: false, is_recorded: false };
        is_alive.then_some(member)
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        for child in self.members.iter().filter(|(_, member)| member.is_process).map(|(id, _)| *id) {
            if let Some(pid) = rustix::process::Pid::from_raw(child) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Histories of some processes under one run.
fn play(seed: u64) {
    let desk = Desk::make("histories");
    let mut actors: Vec<Actor> = (0..PROCESSES).map(|number| Actor::start(seed + number)).collect();
    let draw = |step: u64| random(seed * 1_000 + step);
    let all = actors.len();
    for step in 0..6 {
        // Children and threads of the first thread, scheduled as it is.
        let actor = &mut actors[step as usize % all];
        let number = draw(step) % 9;
        actor.act(number | 1 << 16);
    }
    let domains: String = (0..).zip(&actors).map(|(number, actor)| actor.domain(number)).collect();
    let mut run = desk.start(&["attach", &desk.host("histories", PROCESSOR, &domains)]);
    let is_placed = |actor: &Actor| {
        let is_unit = cgroup::group_of(actor.threads[0]).is_ok_and(|group| group.contains("punctual-"));
        let mut helpers = proc::threads(actor.id()).unwrap_or_default();
        helpers.retain(|tid| *tid != actor.threads[0]);
        let is_helper = |tid: i32| {
            affinity(tid).is_ok_and(|on| on == [0])
                && attributes(tid).is_ok_and(|now| now.is_same_class(&Attributes::other()))
        };
        is_unit && helpers.into_iter().all(is_helper)
    };
    wait("all are under enforcement", || actors.iter().all(is_placed));
    for member in actors.iter_mut().flat_map(|actor| actor.members.iter_mut()) {
        member.1.is_recorded = !member.1.is_process;
    }
    for step in 10..40 {
        actors[step as usize % all].act(draw(step));
    }
    for (number, actor) in (50..).zip(&mut actors) {
        actor.exec(draw(number));
    }
    std::thread::sleep(Duration::from_millis(draw(60) % 200));
    match draw(61) % 3 {
        0 => run.signal("INT"),
        1 => run.signal("KILL"),
        _ => kill_with_guardian(run.id()),
    }
    run.wait();
    if draw(61) % 3 == 2 {
        assert!(desk.punctual(&["restore"]).status().expect("it runs").success());
    }
    desk.wait_until_restored();
    for actor in &actors {
        let residue = actor.residue();
        let steps = actor.steps.join("; ");
        assert_eq!(residue, Vec::<String>::new(), "PUNCTUAL_SEED={seed}: {steps}: {}", run.said());
    }
}

#[test]
fn after_any_history_real_threads_are_as_if_there_had_been_no_run() {
    let Some(_turn) = needs() else { return };
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let count: u64 = number("PUNCTUAL_REAL_HISTORIES").unwrap_or(HISTORIES);
    let first: u64 = number("PUNCTUAL_SEED").unwrap_or(1);
    for seed in (first..first + count).step_by(PROCESSES as usize) {
        play(seed);
    }
    println!("{count} histories from seed {first}");
}
