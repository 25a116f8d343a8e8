//! A session on processor 1 with units that are programs of this machine.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::faults::random;
use punctual_enforce::backend::Chosen;
use punctual_enforce::driver::Settings;
use punctual_enforce::enforcer::Observed;
use punctual_enforce::notice::Notice;
use punctual_enforce::session::{PoolScheduler, Report, Session, Setup, UnitHandle};
use punctual_enforce::unit::UnitThreads;
use punctual_linux::os::cgroup;
use punctual_linux::os::load::loads;
use punctual_linux::preflight;
use punctual_model::host::PolicyChoice;
use punctual_sched::registry::{self, OptionValue, Options};
use punctual_sched::{Duration as Dur, UnitParams};

/// The only processor whose real-time threads may spin.
pub(crate) const PROCESSOR: usize = 1;

/// There is one processor for all live tests of the machine: the test that holds this may use it.
pub(crate) struct Turn(
    #[expect(dead_code, reason = "held")] MutexGuard<'static, ()>,
    #[expect(dead_code)] File,
);

/// Can this machine run live tests? If not, says in one line why; with `PUNCTUAL_NO_SKIP=1` that is a
/// failure. Waits for tests of other programs, too.
pub(crate) fn needs() -> Option<Turn> {
    static TURN: Mutex<()> = Mutex::new(());
    // A test that failed left nothing behind that concerns the next.
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let file = File::create(std::env::temp_dir().join("punctual-live-tests.lock")).expect("a file");
    file.lock().expect("a lock");
    let turn = Turn(turn, file);
    let problem = preflight::processors(&[PROCESSOR], false)
        .err()
        .or_else(|| preflight::real_time().err())
        .or_else(|| preflight::parking().err());
    let Some(problem) = problem else { return Some(turn) };
    let line = format!("skipped, live tests need real-time threads on processor 1: {problem}");
    assert!(std::env::var_os("PUNCTUAL_NO_SKIP").is_none(), "{line}");
    eprintln!("{line}");
    None
}

/// How often what fails while a hypervisor below takes processors is tried.
const TRIES: u32 = 5;
/// What it may take without being the reason, in parts of 1000 of the time.
const STOLEN_MAX_PERMILLE: u128 = 5;

/// How long a hypervisor below has had processors 0 and 1 since boot, to ticks of 10 ms.
pub(crate) fn stolen() -> Duration {
    let loads = loads(&[0, PROCESSOR]).expect("/proc is mounted");
    Duration::from_nanos(loads.iter().map(|load| load.steal_ns).sum())
}

/// Is this machine emulated by TCG, so that an instruction takes about 20 times as long? `labs/lab kernel
/// run` sets the variable.
pub(crate) fn is_translated() -> bool {
    std::env::var_os("PUNCTUAL_TRANSLATED").is_some()
}

/// Runs a test that judges times, by `judge!`. Where a judgement fails while a hypervisor below took
/// processors, the test is tried again; on a quiet machine it counts at once, and so does every `assert!`. If
/// the machine is never quiet and the judgement always fails, the test prints that nothing was judged: such a
/// machine proves nothing about this program. Neither does an emulated machine (`PUNCTUAL_TRANSLATED`), where
/// a failed judgement is printed and does not fail the test.
pub(crate) fn undisturbed(test: impl Fn() -> Result<(), String>) {
    for attempt in 1..=TRIES {
        let (began, before) = (Instant::now(), stolen());
        let Err(failure) = test() else { return };
        let (took, stolen) = (began.elapsed(), stolen() - before);
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        if is_translated() {
            println!("{name}: NOT JUDGED, this processor is translated: {failure}");
            return;
        }
        let is_disturbed = stolen.as_nanos() * 1000 > took.as_nanos() * STOLEN_MAX_PERMILLE;
        assert!(is_disturbed, "{failure}");
        let end = if attempt < TRIES { "tried again" } else { "NOT JUDGED" };
        // The harness shows what tests that pass print to nobody, but this does not go through it.
        writeln!(
            std::io::stderr(),
            "{name}: {end}, a hypervisor below had processors for {stolen:.1?} of {took:.1?}: {failure}"
        )
        .expect("an error output");
    }
}

/// Within [`undisturbed`]: what must hold on a quiet machine, or else why it does not.
#[macro_export]
macro_rules! judge {
    ($holds:expr, $($why:tt)+) => {
        let holds: bool = $holds;
        if !holds {
            return Err(format!($($why)+));
        }
    };
}

/// What a session of a test is given: the real-time limit is lifted, and processor 0 stays as it is.
pub(crate) fn setup(name: &str, processors: Vec<usize>) -> Setup {
    Setup {
        name: name.into(),
        program: Path::new(env!("CARGO_BIN_EXE_punctual")).to_owned(),
        processors,
        starve: false,
        lift_rt_limit: true,
        silence: Duration::from_secs(2),
        end: || panic!("the guardian wants to end the test"),
        driver: Settings::default(),
        enforced_by: Chosen::default(),
        observed: Observed::default(),
    }
}

/// A policy with options.
pub(crate) fn scheduler(policy: &str, options: &[(&'static str, OptionValue)]) -> PoolScheduler {
    let info = registry::find(policy).expect("a policy");
    let options = options.iter().fold(Options::new(), |all, (name, value)| all.with(name, *value));
    PoolScheduler::Policy(PolicyChoice { info, options })
}

/// A session with one pool.
pub(crate) struct Bench {
    pub session: Session,
    pub handles: Vec<UnitHandle>,
    pub notices: Vec<Notice>,
}

impl Bench {
    pub(crate) fn start(policy: &str, options: &[(&'static str, OptionValue)]) -> Bench {
        Bench::of(&scheduler(policy, options))
    }

    pub(crate) fn of(scheduler: &PoolScheduler) -> Bench {
        Bench::with(setup("bench", vec![PROCESSOR]), scheduler)
    }

    pub(crate) fn with(setup: Setup, scheduler: &PoolScheduler) -> Bench {
        let mut session = Session::start(setup).expect("a session");
        session.add_pool(&[PROCESSOR], scheduler, None).expect("a pool");
        Bench { session, handles: Vec::new(), notices: Vec::new() }
    }

    /// A unit that spins.
    pub(crate) fn spin(&mut self, name: &str, params: &UnitParams) -> i32 {
        let command = ["sh", "-c", "while :; do :; done"].map(String::from).to_vec();
        self.program(name, command, params)
    }

    pub(crate) fn program(&mut self, name: &str, command: Vec<String>, params: &UnitParams) -> i32 {
        let process = self.session.launch(name, &command, &[], None).expect("a program");
        let members = UnitThreads::ProcessTree(process);
        self.handles.push(self.session.add_unit(0, name, name, members, params).expect("a unit"));
        process.id
    }

    /// Tends the session for a moment, then for `length`, and ends it. Returns what each unit got within
    /// `length`, in millionths of the processor, and the report.
    pub(crate) fn run(mut self, length: Duration) -> (Vec<u64>, Report) {
        self.keep_alive(Duration::from_millis(300));
        let used = |handles: &[UnitHandle]| -> Vec<u64> {
            handles.iter().map(|handle| handle.counters.cpu_time_ns.load(Ordering::Relaxed)).collect()
        };
        let (start, before) = (Instant::now(), used(&self.handles));
        self.keep_alive(length);
        let (elapsed_ns, after) = (start.elapsed().as_nanos() as u64, used(&self.handles));
        let shares =
            before.iter().zip(after).map(|(before, after)| (after - before) * 1_000_000 / elapsed_ns);
        let shares = shares.collect();
        (shares, self.session.finish().expect("an end"))
    }

    /// Keeps the session alive for that long.
    pub(crate) fn keep_alive(&mut self, length: Duration) {
        let end = Instant::now() + length;
        while Instant::now() < end {
            for notice in self.session.poll().expect("all is well") {
                println!("{notice:?}");
                self.notices.push(notice);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// How many units are known to be gone.
    pub(crate) fn gone(&self) -> usize {
        self.notices.iter().filter(|notice| matches!(notice, Notice::Gone { .. })).count()
    }

    /// Tends the session until so many units are gone, while another one goes within half a minute: how long
    /// a program takes to end depends on the machine.
    pub(crate) fn keep_alive_until_gone(&mut self, units: usize) {
        let (mut gone, mut since) = (self.gone(), Instant::now());
        while gone < units && since.elapsed() < Duration::from_secs(30) {
            self.keep_alive(Duration::from_millis(100));
            self.session.reap();
            if self.gone() > gone {
                (gone, since) = (self.gone(), Instant::now());
            }
        }
    }

    /// Adds, adjusts and removes units at random for that long; returns how often.
    pub(crate) fn soak(&mut self, length: Duration, seed: u64) -> u64 {
        let end = Instant::now() + length;
        let mut here: Vec<(UnitHandle, i32)> = Vec::new();
        let mut rounds = 0;
        while Instant::now() < end {
            rounds += 1;
            let draw = random(seed * 1_000_000 + rounds);
            let params = UnitParams {
                budget: Some(Dur::from_us(100 + draw % 900)),
                period: Some(Dur::from_us(5_000 + draw % 20_000)),
                priority: Some((draw % 50) as u32),
                ..UnitParams::default()
            };
            match draw % 3 {
                0 if here.len() < 8 => {
                    let id = self.spin(&format!("u{seed}.{rounds}"), &params);
                    here.push((self.handles.pop().expect("just added"), id));
                }
                1 if !here.is_empty() => {
                    let (handle, id) = here.swap_remove(draw as usize % here.len());
                    self.session.remove_unit(&handle);
                    self.end(id);
                }
                _ if !here.is_empty() => {
                    let at = draw as usize % here.len();
                    self.session.adjust_unit(&here[at].0.clone(), &params);
                }
                _ => {}
            }
            self.keep_alive(Duration::from_millis(10));
        }
        for (handle, id) in here {
            self.session.remove_unit(&handle);
            self.end(id);
        }
        self.keep_alive(Duration::from_millis(200));
        // The last to be killed had no time to end before.
        self.session.reap();
        rounds
    }

    /// Ends a program whose unit was removed.
    fn end(&mut self, id: i32) {
        self.keep_alive(Duration::from_millis(30));
        let pid = rustix::process::Pid::from_raw(id).expect("a process");
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        self.session.reap();
    }
}

/// Descriptors, threads and resident KiB of this process.
pub(crate) fn resources() -> (usize, usize, u64) {
    let count = |path: &str| std::fs::read_dir(path).expect("readable").count();
    let status = std::fs::read_to_string("/proc/self/status").expect("readable");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    let resident_kib = resident.trim().trim_end_matches(" kB").parse().expect("a number");
    (count("/proc/self/fd"), count("/proc/self/task"), resident_kib)
}

/// A process outside every run that is moved to and fro between two cgroups, as fast as it goes.
pub(crate) struct Moves {
    process: Child,
    directory: std::path::PathBuf,
    stop: std::sync::Arc<std::sync::atomic::AtomicBool>,
    mover: std::thread::JoinHandle<u32>,
}

impl Moves {
    pub(crate) fn start() -> Moves {
        let mount = cgroup::mount().expect("cgroup version 2");
        let directory = mount.join(format!("test-moves-{}", std::process::id()));
        let homes = ["a", "b"].map(|name| directory.join(name));
        homes.iter().for_each(|home| std::fs::create_dir_all(home).expect("a group"));
        let process = Command::new("sleep").arg("60").stdout(Stdio::null()).spawn().expect("a process");
        let (pid, stop) =
            (process.id().to_string(), std::sync::Arc::<std::sync::atomic::AtomicBool>::default());
        let stopped = stop.clone();
        let mover = std::thread::spawn(move || {
            let mut moves = 0;
            for home in homes.iter().cycle().take_while(|_| !stopped.load(Ordering::Relaxed)) {
                std::fs::write(home.join("cgroup.procs"), &pid).expect("it moves");
                moves += 1;
            }
            moves
        });
        Moves { process, directory, stop, mover }
    }

    /// Ends it and returns how often it was moved.
    pub(crate) fn stop(mut self) -> u32 {
        self.stop.store(true, Ordering::Relaxed);
        let moves = self.mover.join().expect("the mover ends");
        self.process.kill().expect("it lives");
        self.process.wait().expect("it ends");
        cgroup::remove_tree(&self.directory).expect("nobody is left in it");
        moves
    }
}
