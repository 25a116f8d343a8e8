//! Each attack of [`punctual_switch::testing::attack`]: round trips of two urgent VMs, alone and beside it.
//!
//! The driver of the urgent VMs polls. An attack on the rings of a plane leaves a backlog there before each
//! round trip. An attack on the control thread runs all the time; then drivers, attacker and control thread
//! share processor 0, so drivers sleep until they are called, and the others get what is left (SCHED_IDLE).
//! That costs the drivers time too, whichever switch is attacked: "alone", it is another one.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use punctual_model::Histogram;
use punctual_model::network::Vlans;
use punctual_switch::testing::attack::{ATTACKS, Attack, Attacker, Pace};
use punctual_switch::testing::{self, FrontEnd, frame};
use punctual_switch::{Config, Report, Switch};
use rustix::thread::gettid;

use super::{Outcome, Planes, address, name, socket, start, stay_on, switch_config, vm};

const KIND: (&str, Option<u64>) = ("rtca", Some(1));

/// Rounds without an argument; each has a part alone and a part beside the attack.
const ROUNDS: usize = 5;

/// The length of a part without an argument.
const PART_MS: u64 = 500;

/// A round trip that takes longer is lost.
const TRIP_MAX: Duration = Duration::from_secs(1);

/// A switch must end within this, whatever is done to it.
const END_MAX: Duration = Duration::from_secs(1);

/// The most that p50 and p99 beside an attack may be of those alone.
const GOALS: [f64; 2] = [1.2, 1.5];

/// p50, p99, p99.9 and maximum, us.
type Times = [f64; 4];

struct Row {
    alone: Times,
    beside: Times,
    /// Of p50 and p99: the medians of the rounds.
    ratios: [f64; 2],
    lost: u64,
    /// Frames of the urgent VMs that the switch dropped.
    dropped: u64,
    end: Duration,
    left_behind: Vec<String>,
}

/// `measure attacks [ROUNDS [MILLISECONDS [WORD]]]`: attacks whose names contain WORD, in one and two planes.
/// Exit status 1: a goal was missed.
pub(crate) fn all(folder: &Path) -> Outcome<ExitCode> {
    let word = |at: usize| std::env::args().nth(at);
    let rounds = word(2).map_or(Ok(ROUNDS), |rounds| rounds.parse())?.max(1);
    let part = Duration::from_millis(word(3).map_or(Ok(PART_MS), |ms| ms.parse())?);
    let only = word(4).unwrap_or_default();
    println!(
        "round trips of two urgent VMs, alone and beside an attack in turn: medians of {rounds} rounds of \
         2 x {} ms, us; ratios: medians of the rounds (goals {}, {}); time that the end takes (goal {} s)",
        part.as_millis(),
        GOALS[0],
        GOALS[1],
        END_MAX.as_secs()
    );
    let (mut missed, mut count) = (0, 0);
    for planes in [Planes::One, Planes::RestIsFifo] {
        let columns = format!("{:>40}{:>40}", "alone: p50, p99, p99.9, max", "beside: p50, p99, p99.9, max");
        println!("  {}, {:<24}{columns}  ratios of p50, p99       end", name(KIND), planes.name());
        for attack in ATTACKS.iter().filter(|attack| attack.name.contains(&only)) {
            let row = measured(folder, attack, planes, (rounds, part))?;
            count += 1;
            missed += usize::from(!row.print(attack.name));
        }
    }
    println!("{missed} of {count} beyond a goal");
    Ok(if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Row {
    /// Prints it. Returns whether it is within the goals.
    fn print(&self, name: &str) -> bool {
        let times = |of: &Times| of.map(|us| format!("{us:>9.1}")).concat();
        let mut faults: Vec<String> = Vec::new();
        for ((what, ratio), goal) in ["p50", "p99"].iter().zip(self.ratios).zip(GOALS) {
            faults.extend((ratio > goal).then(|| (*what).to_owned()));
        }
        faults.extend((self.lost > 0).then(|| format!("{} lost, {} dropped", self.lost, self.dropped)));
        faults.extend((self.end > END_MAX).then(|| "end".to_owned()));
        faults.extend(self.left_behind.iter().map(|thread| format!("{thread} left behind")));
        let verdict =
            if faults.is_empty() { "within".to_owned() } else { format!("BEYOND: {}", faults.join(", ")) };
        println!(
            "    {name:<38} {} {}  {:>8.2} {:>8.2} {:>6.0} ms  {verdict}",
            times(&self.alone),
            times(&self.beside),
            self.ratios[0],
            self.ratios[1],
            self.end.as_secs_f64() * 1e3,
        );
        faults.is_empty()
    }
}

/// Puts a thread into SCHED_IDLE (`-i`), where it gets what others leave, or SCHED_OTHER (`-o`).
fn set_class(class: &str, thread: &str) {
    let _ = Command::new("chrt").args([class, "-p", "0", thread]).stderr(Stdio::null()).status();
}

/// The control threads of so many switches, which get their names when they start to run.
fn control_threads(count: usize) -> Outcome<Vec<String>> {
    let end = Instant::now() + END_MAX;
    while Instant::now() < end {
        let mut threads = Vec::new();
        for task in std::fs::read_dir("/proc/self/task")? {
            let task = task?;
            let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            if name.starts_with("switch control") {
                threads.push(task.file_name().to_string_lossy().into_owned());
            }
        }
        if threads.len() == count {
            return Ok(threads);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err("no control thread".into())
}

fn config_for(folder: &Path, attack: &Attack, planes: Planes) -> Outcome<Config> {
    // A plane that polls needs its processor for itself; two share one, and the urgent one has to sleep.
    let poll_us = if planes == Planes::One { 1_000 } else { 0 };
    let mut config = switch_config(folder, KIND, 4, planes, poll_us, None)?;
    if attack.has_vlans {
        for (port, of) in config.ports.iter_mut().enumerate() {
            let tagged = if port == 3 { vec![20] } else { Vec::new() };
            of.vlans = Vlans { untagged: Some(10), tagged };
        }
    }
    Ok(config)
}

/// Another switch, whose plane shares processor 0 with the attacker and its control thread.
fn decoy(folder: &Path, attack: &Attack) -> Outcome<Switch> {
    let mut config = config_for(folder, attack, Planes::One)?;
    for plane in &mut config.planes {
        plane.poll = punctual_sched::Duration::ZERO;
        plane.enter = Arc::new(|| {
            stay_on(0);
            set_class("-i", &gettid().as_raw_nonzero().to_string());
        });
    }
    start(config)
}

fn attacker(folder: &Path, attack: &Attack) -> Outcome<Attacker> {
    Ok(Attacker::new(*attack, [2, 3].map(|port| socket(folder, port)), [2, 3].map(address))?)
}

fn measured(folder: &Path, attack: &Attack, planes: Planes, how: (usize, Duration)) -> Outcome<Row> {
    let other = tempfile::tempdir()?;
    let (decoy, switch) = (decoy(other.path(), attack)?, start(config_for(folder, attack, planes)?)?);
    control_threads(2)?.iter().for_each(|thread| set_class("-i", thread));
    let mut trips = Trips::new([vm(folder, 0)?, vm(folder, 1)?], attack.pace);
    let [mut beside, mut elsewhere] = [attacker(folder, attack)?, attacker(other.path(), attack)?];
    let (rounds, part) = how;
    let mut all: Vec<[Times; 2]> = Vec::new();
    for _ in 0..rounds {
        let both = match attack.pace {
            Pace::Always => [
                beside_thread(&mut trips, part, &mut elsewhere)?,
                beside_thread(&mut trips, part, &mut beside)?,
            ],
            Pace::Backlog | Pace::Once => [trips.alone(part)?, trips.beside(&mut beside, part)?],
        };
        all.push(both.map(|times| quantiles(&times)));
    }
    drop((elsewhere, decoy));
    let times = |at: usize| [0, 1, 2, 3].map(|what| median(all.iter().map(|round| round[at][what])));
    let ratio = |what: usize| median(all.iter().map(|round| round[1][what] / round[0][what]));
    // As a switch has it whose threads have processors to run on.
    control_threads(1)?.iter().for_each(|thread| set_class("-o", thread));
    let (end, report) = end_under_attack(switch, &mut beside);
    Ok(Row {
        alone: times(0),
        beside: times(1),
        ratios: [ratio(0), ratio(1)],
        lost: trips.lost,
        dropped: report.ports.iter().take(2).map(|port| port.drops.total()).sum(),
        end,
        left_behind: report.left_behind,
    })
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

fn quantiles(times: &Histogram) -> Times {
    let us = |time: punctual_sched::Duration| time.as_ns() as f64 / 1_000.0;
    let [p50, p99, p999] = [500_000, 990_000, 999_000].map(|ppm| us(times.quantile_ppm(ppm)));
    [p50, p99, p999, us(times.max())]
}

/// Round trips while a thread attacks, this switch or another one.
fn beside_thread(trips: &mut Trips, part: Duration, attacker: &mut Attacker) -> Outcome<Histogram> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let attacks = scope.spawn(|| {
            set_class("-i", &gettid().as_raw_nonzero().to_string());
            while !is_over.load(Ordering::Relaxed) {
                attacker.prepare()?;
                attacker.act()?;
            }
            Ok::<_, std::io::Error>(())
        });
        let times = trips.alone(part);
        is_over.store(true, Ordering::Relaxed);
        attacks.join().map_err(|_| "the attacker has ended")??;
        times
    })
}

/// Ends the switch while the attack goes on.
fn end_under_attack(switch: Switch, attacker: &mut Attacker) -> (Duration, Report) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The switch ends, and its sockets with it.
            loop {
                let done = attacker.prepare().and_then(|()| attacker.act());
                if done.is_err() || is_over.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        std::thread::sleep(Duration::from_millis(10));
        let start = Instant::now();
        let report = switch.stop();
        let end = start.elapsed();
        is_over.store(true, Ordering::Relaxed);
        (end, report)
    })
}

/// Round trips of the VMs of two ports.
struct Trips {
    vms: [FrontEnd; 2],
    frames: [Vec<u8>; 2],
    pace: Pace,
    lost: u64,
}

impl Trips {
    fn new(vms: [FrontEnd; 2], pace: Pace) -> Trips {
        let frames = [frame(address(1), address(0), 0, 64), frame(address(0), address(1), 0, 64)];
        Trips { vms, frames, pace, lost: 0 }
    }

    fn alone(&mut self, part: Duration) -> Outcome<Histogram> {
        let (mut times, start) = (Histogram::new(), Instant::now());
        while start.elapsed() < part {
            self.one()?.into_iter().for_each(|time| times.record(time));
        }
        Ok(times)
    }

    /// Round trips right after the attacker has acted: one, or as many as fit into the time that it needs to
    /// connect, because it cannot act more often.
    fn beside(&mut self, attacker: &mut Attacker, part: Duration) -> Outcome<Histogram> {
        let (mut times, start) = (Histogram::new(), Instant::now());
        while start.elapsed() < part {
            let begin = Instant::now();
            attacker.prepare()?;
            let window = begin.elapsed();
            if self.pace == Pace::Once {
                self.settle()?;
            }
            attacker.act()?;
            let acted = Instant::now();
            loop {
                self.one()?.into_iter().for_each(|time| times.record(time));
                if self.pace != Pace::Once || acted.elapsed() >= window {
                    break;
                }
            }
        }
        Ok(times)
    }

    /// The connection of another VM no longer takes processor time.
    fn settle(&mut self) -> Outcome<()> {
        std::thread::sleep(Duration::from_micros(100));
        self.one().map(drop)
    }

    /// The time of a round trip; `None` if it was lost.
    fn one(&mut self) -> Outcome<Option<punctual_sched::Duration>> {
        let sent = Instant::now();
        let ([a, b], [ping, pong]) = (&mut self.vms, &self.frames);
        a.send(ping)?;
        if !arrives(b, ping, self.pace, sent)? {
            self.lost += 1;
            return Ok(None);
        }
        b.send(pong)?;
        if !arrives(a, pong, self.pace, sent)? {
            self.lost += 1;
            return Ok(None);
        }
        Ok(Some(punctual_sched::Duration::from_ns(sent.elapsed().as_nanos() as u64)))
    }
}

/// Waits for a frame among others. Returns whether it arrived in time.
fn arrives(vm: &mut FrontEnd, wanted: &[u8], pace: Pace, sent: Instant) -> Outcome<bool> {
    loop {
        let received = match pace {
            Pace::Always => vm.receive_within(TRIP_MAX.saturating_sub(sent.elapsed()))?,
            Pace::Backlog | Pace::Once => vm.receive()?,
        };
        if received.is_some_and(|received: testing::Received| received.frame == wanted) {
            return Ok(true);
        }
        if sent.elapsed() > TRIP_MAX {
            return Ok(false);
        }
    }
}
