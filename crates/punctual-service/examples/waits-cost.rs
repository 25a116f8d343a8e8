//! What it costs to know what VMs wait for: the processor time of the service with 1, 10 and 100 VMs of four
//! vCPUs for each source, and a round trip between two threads with and without it.
//!
//! `waits-cost [WAKE-UPS [VMS [SOURCE...]]]`: wake-ups of each VM in a second, 1,000 by default; numbers of
//! VMs, `1,10,100` by default; all sources by default. The VMs are processes that look like QEMU's. A time is
//! that of processors, so that others on the machine do not count. Programs in the kernel run in the time of
//! those who switch; theirs is counted apart by the kernel (/proc/sys/kernel/bpf_stats_enabled), which adds
//! some of it.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use punctual_linux::os::proc::{self, SchedStat};
use punctual_linux::os::sched;
use punctual_service::service::{Options, Service};

const VCPUS: u64 = 4;
/// How long each number is measured.
const LENGTH: Duration = Duration::from_secs(4);
/// Pairs of measurements of a round trip.
const PAIRS: usize = 5;
const SOURCES: [&str; 5] = ["off", "samples", "switches", "tracepoints", "bpf"];
const VM: &str = "PUNCTUAL_EXAMPLE_VM";
const SERVICE: &str = "PUNCTUAL_EXAMPLE_SERVICE";

fn main() {
    if let Some(every_us) = std::env::var(VM).ok().and_then(|text| text.parse().ok()) {
        vm(every_us);
    } else if let Ok(folder) = std::env::var(SERVICE) {
        let folder = Path::new(&folder);
        let options = Options { config: folder.join("etc"), run: folder.join("run"), state: None };
        Service::open(&options).expect("a service").run().expect("an end");
    } else {
        let args: Vec<String> = std::env::args().skip(1).collect();
        let wakeups = args.first().and_then(|text| text.parse().ok()).unwrap_or(1000);
        let counts = args.get(1).map_or("1,10,100", String::as_str).split(',');
        let counts: Vec<usize> = counts.filter_map(|text| text.parse().ok()).collect();
        let wanted = args.get(2..).unwrap_or_default();
        let is_wanted = |source: &&str| wanted.is_empty() || wanted.iter().any(|one| one == source);
        let sources: Vec<&str> = SOURCES.into_iter().filter(is_wanted).collect();
        measure(wakeups, &counts, &sources);
    }
}

/// A VM whose vCPUs wake up again and again until its standard input ends.
fn vm(every_us: u64) {
    for vcpu in 0..VCPUS {
        let work = move || {
            loop {
                std::thread::sleep(Duration::from_micros(every_us));
            }
        };
        std::thread::Builder::new().name(format!("CPU {vcpu}/KVM")).spawn(work).expect("a thread");
    }
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn again(variable: &str, value: &str, name: &str) -> Killed {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("/usr/bin/qemu-system-x86_64").args(["-name", name]).env(variable, value);
    command.stdin(Stdio::piped()).stderr(Stdio::null());
    if variable == SERVICE {
        command.arg0("service");
    }
    Killed(command.spawn().expect("a process"))
}

fn service(folder: &Path, source: &str) -> Killed {
    fs::write(folder.join("etc/host.toml"), format!("waits = '{source}'\n")).expect("written");
    again(SERVICE, &folder.to_string_lossy(), "none")
}

fn account(process: u32) -> SchedStat {
    let text = fs::read_to_string(format!("/proc/{process}/task/{process}/schedstat")).expect("it runs");
    proc::parse_schedstat(&text).expect("an account")
}

/// How often all threads of a process have come to a processor.
fn arrivals(process: u32) -> u64 {
    let threads = proc::threads(process as i32).expect("it runs").into_iter();
    threads.map(|tid| account(tid.unsigned_abs()).arrivals).sum()
}

/// How long a process's programs in the kernel have run, as far as the kernel counts that, in ns.
fn programs_ns(process: u32) -> u64 {
    let entries = fs::read_dir(format!("/proc/{process}/fdinfo")).into_iter().flatten().flatten();
    let ran = |entry: fs::DirEntry| {
        let text = fs::read_to_string(entry.path()).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("run_time_ns:"))?;
        line.trim().parse::<u64>().ok()
    };
    entries.filter_map(ran).sum()
}

/// Has the kernel count how long programs run.
fn count_programs(is_on: bool) {
    let _ = fs::write("/proc/sys/kernel/bpf_stats_enabled", if is_on { "1" } else { "0" });
}

fn measure(wakeups: u64, counts: &[usize], sources: &[&str]) {
    let folder = tempfile::tempdir().expect("a folder");
    for directory in ["etc/host.d", "run"] {
        fs::create_dir_all(folder.path().join(directory)).expect("made");
    }
    println!("VMs  wake-ups/s  source       percent of a processor, and of programs in the kernel");
    for &count in counts {
        // A sleep takes about 60 us more than it is told to.
        let every_us = (1_000_000 * VCPUS / wakeups).saturating_sub(60).max(1);
        let vms: Vec<Killed> =
            (0..count).map(|number| again(VM, &every_us.to_string(), &format!("vm{number}"))).collect();
        for &source in sources {
            count_programs(true);
            let service = service(folder.path(), source);
            // All VMs are seen by then.
            std::thread::sleep(Duration::from_secs(3));
            let all = |vms: &[Killed]| vms.iter().map(|vm| arrivals(vm.0.id())).sum::<u64>();
            let programs = programs_ns(service.0.id());
            let (start, before, woken) = (Instant::now(), account(service.0.id()).ran, all(&vms));
            std::thread::sleep(LENGTH);
            let ran = account(service.0.id()).ran - before;
            let (seconds, woken) = (start.elapsed().as_secs_f64(), all(&vms) - woken);
            let programs = programs_ns(service.0.id()) - programs;
            let [own, programs] = [ran.as_ns(), programs].map(|ns| ns as f64 / seconds / 1e7);
            let woken = woken as f64 / seconds;
            println!("{count:>3}  {woken:>10.0}  {source:<11}  {own:.2}  {programs:.2}");
            let _ = std::io::stdout().flush();
        }
    }
    count_programs(false);
    let vm = again(VM, "4000", "vm");
    for source in sources.iter().filter(|source| !matches!(**source, "off" | "samples")) {
        for _ in 0..PAIRS {
            let without = round_trip();
            let service = service(folder.path(), source);
            std::thread::sleep(Duration::from_secs(1));
            let with = round_trip();
            drop(service);
            println!("{source}: a round trip takes {without} ns without, {with} ns with");
        }
    }
    drop(vm);
}

/// The processor time of a round trip between two threads on one processor, in ns.
fn round_trip() -> u64 {
    const ROUNDS: u64 = 50_000;
    let (there, here) = (channel::<()>(), channel::<()>());
    let (to, from) = (there.0, here.1);
    let (back, other) = (here.0, there.1);
    let pin = || sched::set_affinity(0, &[0]).expect("a processor");
    let ran = || account(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()).ran.as_ns();
    let echo = std::thread::spawn(move || {
        pin();
        let before = ran();
        while other.recv().is_ok() {
            back.send(()).expect("it listens");
        }
        ran() - before
    });
    let ask = std::thread::spawn(move || {
        pin();
        let before = ran();
        for _ in 0..ROUNDS {
            to.send(()).expect("it listens");
            from.recv().expect("an answer");
        }
        ran() - before
    });
    let own = ask.join().expect("an end");
    (own + echo.join().expect("an end")) / ROUNDS
}
