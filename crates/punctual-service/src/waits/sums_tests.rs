//! The rules of the kernel's programs against the accountant: `replay.c` runs them on the same events.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

use proptest::prelude::*;
use punctual_waits_bpf::Sum as KernelSum;

use super::super::account::tests::{ASLEEP, Machine, Of, switch};
use super::super::account::{Accountant, Event, Left};
use super::super::book::{Book, By, Part, Story as Told, Window};
use super::super::cause::{Who, cause_of};
use super::*;

const VM: u32 = 100;
/// Nanoseconds of a step of the machine in miniature.
const UNIT_NS: u64 = 300_000;

/// The program that replays events; `None` where there is no compiler.
fn program() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<(tempfile::TempDir, PathBuf)>> = OnceLock::new();
    let compiled = PROGRAM.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../punctual-waits-bpf/bpf/replay.c");
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("replay");
        let mut command = Command::new("cc");
        command.args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).arg(source);
        let status = command.status().ok()?;
        assert!(status.success(), "replay.c is not compiled");
        Some((folder, program))
    });
    compiled.as_ref().map(|(_, program)| program.as_path())
}

/// The rules, in another process.
#[derive(Debug)]
struct Replay {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    slots: Vec<u32>,
    threads: HashMap<u32, Thread>,
    occupants: HashMap<u32, Option<u32>>,
    stories: Vec<Story>,
    sums: Vec<KernelSum>,
}

impl Drop for Replay {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn off(number: u64) -> bpf::Off {
    bpf::Off::ALL[number as usize]
}

fn occupant(number: u64) -> Option<u32> {
    (number != u64::from(u32::MAX)).then_some(number as u32)
}

fn steps(words: &[u64]) -> Vec<Step> {
    let step = |words: &[u64]| Step {
        from_ns: words[0],
        until_ns: words[1],
        occupant: occupant(words[2]),
        processor: words[3] as u32,
        name: [0; 16],
    };
    words.chunks_exact(4).map(step).collect()
}

fn thread(words: &[u64]) -> Thread {
    let state = match words[1] {
        1 => State::Running,
        2 => State::Ready { was_woken: words[2] != 0 },
        3 => State::Off(off(words[2])),
        _ => State::Unknown,
    };
    Thread {
        state,
        processor: words[3] as u32,
        wait: words[4] as u32,
        began_ns: words[5],
        since_ns: words[6],
        off_ns: words[7..11].try_into().expect("four"),
        latencies: words[11..19].try_into().expect("eight"),
        latency_sum_ns: words[19],
        latency_max_ns: words[20],
        ran_ns: words[21..29].to_vec(),
        steps: steps(&words[29..]),
        spins: None,
    }
}

fn story(words: &[u64]) -> Story {
    Story {
        thread: words[0] as u32,
        wait: words[1] as u32,
        began_ns: words[2],
        until_ns: words[3],
        off: (words[4] > 0).then(|| off(words[4] - 1)),
        was_woken: words[5] != 0,
        is_over: words[6] != 0,
        steps: steps(&words[7..]),
    }
}

impl Replay {
    fn start(program: &Path, settings: &bpf::Settings) -> Replay {
        let mut command = Command::new(program);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a process");
        let (input, output) = (process.stdin.take(), process.stdout.take());
        let mut replay = Replay {
            process,
            input: input.expect("a pipe"),
            output: BufReader::new(output.expect("a pipe")),
            slots: Vec::new(),
            threads: HashMap::new(),
            occupants: HashMap::new(),
            stories: Vec::new(),
            sums: Vec::new(),
        };
        let bounds: Vec<String> = settings.bounds_ns.iter().map(u64::to_string).collect();
        let (from, max) = (settings.told_from_ns, settings.told_max);
        replay.say(&format!("g {from} {max} {}", bounds.join(" ")));
        replay
    }

    fn say(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("it listens");
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Switch { at_ns, processor, from, left, to, .. } => {
                let left = match left {
                    Left::Off(Off::Asleep) => 0,
                    Left::Off(Off::Blocked) => 1,
                    Left::Off(Off::Stopped) => 2,
                    Left::Off(Off::Frozen | Off::Parked) => 3,
                    Left::Ready => 4,
                    Left::Ended => 5,
                };
                self.say(&format!("s {at_ns} {processor} {from} {left} {to}"));
            }
            Event::Wake { at_ns, processor, thread } => self.say(&format!("k {at_ns} {processor} {thread}")),
            Event::Lost { .. } => unreachable!("the kernel loses nothing"),
        }
    }
}

impl Tally for Replay {
    fn watch(&mut self, thread: u32) -> io::Result<()> {
        self.say(&format!("w {} {thread}", self.slots.len()));
        self.slots.push(thread);
        Ok(())
    }

    fn forget(&mut self, _thread: u32) {}

    fn thread(&mut self, thread: u32) -> io::Result<Option<Thread>> {
        Ok(self.threads.get(&thread).cloned())
    }

    fn occupant(&mut self, processor: u32) -> io::Result<Option<u32>> {
        Ok(self.occupants.get(&processor).copied().flatten())
    }

    fn mark(&mut self, thread: u32, mark: Mark) -> io::Result<()> {
        let slot = self.slots.iter().position(|known| *known == thread).expect("it is watched");
        let Mark { wait, until_ns, threshold_ns, .. } = mark;
        self.say(&format!("m {slot} {wait} {until_ns} {threshold_ns}"));
        Ok(())
    }

    fn turn(&mut self) -> io::Result<()> {
        self.say("d");
        let mut line = String::new();
        loop {
            line.clear();
            self.output.read_line(&mut line)?;
            let (what, rest) = line.trim_end().split_at(1);
            let words: Vec<u64> = rest.split_whitespace().map(|word| word.parse().expect(rest)).collect();
            match what {
                "t" => _ = self.threads.insert(words[0] as u32, thread(&words)),
                "p" => {
                    let has = (words[1] != 0).then_some(words[2] as u32);
                    self.occupants.insert(words[0] as u32, has);
                }
                "y" => self.stories.push(story(&words)),
                "u" => {
                    let (thread, occupant, name) = (words[0] as u32, occupant(words[1]), [0; 16]);
                    self.sums.push(KernelSum { thread, occupant, name, ns: words[2] });
                }
                _ => return Ok(()),
            }
        }
    }

    fn stories(&mut self) -> io::Result<Vec<Story>> {
        Ok(std::mem::take(&mut self.stories))
    }

    fn sums(&mut self) -> io::Result<Vec<KernelSum>> {
        Ok(std::mem::take(&mut self.sums))
    }

    fn no_spins(&self) -> Option<&str> {
        None
    }

    fn lost(&self) -> u64 {
        0
    }
}

/// Events go to the rules while the sums own them.
#[derive(Debug)]
struct Shared(std::sync::Arc<std::sync::Mutex<Replay>>);

impl Shared {
    fn with<R>(&self, work: impl FnOnce(&mut Replay) -> R) -> R {
        work(&mut self.0.lock().expect("no panic"))
    }
}

impl Tally for Shared {
    fn watch(&mut self, thread: u32) -> io::Result<()> {
        self.with(|replay| replay.watch(thread))
    }

    fn forget(&mut self, thread: u32) {
        self.with(|replay| replay.forget(thread));
    }

    fn thread(&mut self, thread: u32) -> io::Result<Option<Thread>> {
        self.with(|replay| replay.thread(thread))
    }

    fn occupant(&mut self, processor: u32) -> io::Result<Option<u32>> {
        self.with(|replay| replay.occupant(processor))
    }

    fn mark(&mut self, thread: u32, mark: Mark) -> io::Result<()> {
        self.with(|replay| replay.mark(thread, mark))
    }

    fn turn(&mut self) -> io::Result<()> {
        self.with(Replay::turn)
    }

    fn stories(&mut self) -> io::Result<Vec<Story>> {
        self.with(Replay::stories)
    }

    fn sums(&mut self) -> io::Result<Vec<KernelSum>> {
        self.with(Replay::sums)
    }

    fn no_spins(&self) -> Option<&str> {
        None
    }

    fn lost(&self) -> u64 {
        0
    }
}

fn who(thread: u32) -> Who {
    Who::Process(format!("{thread}").into())
}

/// Three threads of a VM, as the accountant and as the kernel see them.
struct Both {
    replay: Shared,
    sums: Sums,
    accountant: Accountant,
    /// By the accountant, and by the kernel.
    books: [Book; 2],
    had: [BTreeMap<(u32, u32), u64>; 2],
}

impl Both {
    fn start(program: &Path, told_max: u64) -> Both {
        let settings = bpf::Settings { told_max, ..settings() };
        let shared = std::sync::Arc::new(std::sync::Mutex::new(Replay::start(program, &settings)));
        let sums = Sums::new(Box::new(Shared(shared.clone())));
        let (accountant, books, had) = (Accountant::default(), Default::default(), Default::default());
        let mut both = Both { replay: Shared(shared), sums, accountant, books, had };
        for thread in 1..=3 {
            both.accountant.watch(thread, 0);
            both.sums.watch(thread);
            both.books.iter_mut().for_each(|book| book.open(thread, VM, Part::Vcpu(thread)));
            // So that its state is known.
            both.happens(switch(1, 1, thread, ASLEEP, 0));
            both.happens(switch(1, 0, thread, ASLEEP, 0));
        }
        both.cut(1);
        both
    }

    fn happens(&mut self, event: Event) {
        self.accountant.take(event);
        self.replay.with(|replay| replay.happens(event));
    }

    /// Both account up to `at_ns`.
    fn cut(&mut self, at_ns: u64) {
        fn window<'w>(who: &'w mut dyn FnMut(u32, Option<[u8; 16]>) -> Who) -> Window<'w> {
            Window { who, limits: Vec::new() }
        }
        let mut named = |thread: u32, _: Option<[u8; 16]>| who(thread);
        let account = self.accountant.account(at_ns);
        self.books[0].take(&account, window(&mut named));
        let had = &mut self.had[0];
        self.accountant.take_used(|place, thread, ns| *had.entry((thread, place)).or_default() += ns);

        let taken = self.sums.take(at_ns);
        self.books[1].take(&taken.told, window(&mut named));
        for sum in taken.sums {
            let by = cause_of(sum.because, VM, who).expect("a cause");
            self.books[1].add(sum.thread, by, at_ns, sum.ns);
        }
        for seen in taken.seen {
            self.books[1].add_latency(seen.thread, &seen.latency);
            for (place, ns) in seen.had_ns.into_iter().enumerate().filter(|(_, ns)| *ns > 0) {
                *self.had[1].entry((seen.thread, place as u32)).or_default() += ns;
            }
        }
    }

    fn causes(&self) -> [BTreeMap<(Part, By), u64>; 2] {
        self.books.each_ref().map(|book| book.lately(VM, 0).causes)
    }

    /// The longest wait, without its number.
    fn worst(&self) -> [Option<(Part, Told)>; 2] {
        self.books.each_ref().map(|book| {
            let worst = book.lately(VM, 0).worst.into_iter().next();
            worst.map(|(part, story)| (part, Told { wait: 0, ..story }))
        })
    }
}

type Steps = Vec<(u64, (u8, u32, u32))>;

/// Lets the machine in miniature do its steps, and both look now and then.
fn run(both: &mut Both, steps: Steps, cuts: &[bool]) {
    let mut machine = Machine { has: vec![0, 0], state: vec![Of::Off; 5] };
    let mut at_ns = 1;
    for ((gap, step), cut) in steps.into_iter().zip(cuts) {
        at_ns += gap * UNIT_NS;
        if let Some(mut event) = machine.step(at_ns, step) {
            if let Event::Switch { left, .. } = &mut event
                && *left == ASLEEP
            {
                let all = [Off::Asleep, Off::Blocked, Off::Stopped, Off::Frozen];
                *left = Left::Off(all[(at_ns / UNIT_NS % 4) as usize]);
            }
            both.happens(event);
        }
        if *cut {
            both.cut(at_ns);
        }
    }
    // What goes on by now is long enough that it is looked at.
    both.cut(at_ns + TOLD_FROM_NS);
}

proptest! {
    /// The kernel's programs come to the same causes, names, processors and latencies as the accountant, and
    /// tell the same longest wait, however often both are looked at and however many waits are told.
    #[test]
    fn the_kernel_adds_up_what_the_accountant_does(
        steps in prop::collection::vec((0u64..4, (0u8..3, 0u32..2, 1u32..6)), 1..200),
        cuts in prop::collection::vec(prop::bool::weighted(0.1), 200),
        told_max in prop::sample::select(vec![0u64, 2, 1_000]),
    ) {
        let Some(program) = program() else {
            println!("skipped: there is no C compiler");
            return Ok(());
        };
        let mut both = Both::start(program, told_max);
        run(&mut both, steps, &cuts);
        let [by_accountant, by_kernel] = both.causes();
        prop_assert_eq!(by_kernel, by_accountant);
        let [by_accountant, by_kernel] = &both.had;
        prop_assert_eq!(by_kernel, by_accountant);
        let [by_accountant, by_kernel] = both.books.each_ref().map(|book| {
            let parts = &book.vm(VM).expect("a VM").parts;
            parts.values().map(|totals| totals.latency.clone()).collect::<Vec<_>>()
        });
        prop_assert_eq!(by_kernel, by_accountant);
        if told_max == 1_000 {
            let lengths = both.worst().map(|worst| worst.map(|(_, story)| story.length_ns()));
            prop_assert_eq!(lengths[1], lengths[0]);
        }
    }
}
