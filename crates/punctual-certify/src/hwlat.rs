//! Hardware latencies by the kernel's own detector, the `hwlat` tracer of tracefs
//! (Linux `Documentation/trace/hwlat_detector.rst`): a kernel thread that spins with interrupts disabled, so
//! that every gap it sees is the hardware's, the firmware's, or a hypervisor's.
//!
//! The tracer runs in an instance of its own. Its settings belong to the whole machine, and it must not go on
//! when this program is killed. So a shell (`Guard`) waits for the end of a pipe, which comes whatever ends
//! this program, and puts everything back.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use punctual_guest::latency::{SLICES, WORST};
use punctual_model::Histogram;
use punctual_model::acceptance::Measure;
use punctual_sched::Duration as Nanoseconds;

use crate::certificate::{Measurement, Slice, Worst};

/// Where tracefs may be mounted.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// The name of our instance.
const INSTANCE: &str = "punctual-certify";
/// The detector spins for so long of each window, in us: half of the time, as it does by default, but not for
/// half a second at once.
const WIDTH_US: u64 = 50_000;
const WINDOW_US: u64 = 100_000;
/// The detector's threshold where `tracing_thresh` has none (Linux `kernel/trace/trace_hwlat.c`).
const THRESHOLD_US: u64 = 10;
/// How often samples are read.
const READ_EVERY: Duration = Duration::from_millis(100);

/// What puts everything back. `$1` is the instance, `$2` the detector's settings; then the window, the width
/// and the mode as they were. A width is at most a window, so one of both may have to be written again.
const PUT_BACK: &str = r#"
trap '' TERM HUP INT
cat >/dev/null
echo nop >"$1/current_tracer"
rmdir "$1"
for _ in 1 2; do
    echo "$3" >"$2/window"
    echo "$4" >"$2/width"
done
[ -z "$5" ] || echo "$5" >"$2/mode"
"#;

/// A sample of the detector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sample {
    processor: usize,
    /// The longest gap in a window.
    length_us: u64,
    /// In us since 1970.
    at_us: u64,
}

/// The directory of tracefs, if the kernel has the tracer and this process may use it.
pub(crate) fn find() -> Option<PathBuf> {
    let has = |directory: &&'static str| {
        let tracers = fs::read_to_string(Path::new(directory).join("available_tracers")).unwrap_or_default();
        tracers.split_ascii_whitespace().any(|tracer| tracer == "hwlat")
    };
    TRACEFS.into_iter().find(has).map(PathBuf::from)
}

/// Puts the tracer's settings back when it is dropped, or when this program has ended.
struct Guard {
    shell: Child,
}

impl Guard {
    fn start(instance: &Path, settings: &Path) -> io::Result<Guard> {
        let number = |name: &str| fs::read_to_string(settings.join(name)).map(|text| text.trim().to_owned());
        let mode = number("mode").ok().and_then(|modes| {
            let (_, chosen) = modes.split_once('[')?;
            Some(chosen.split(']').next()?.to_owned())
        });
        let mut shell = Command::new("sh");
        shell.args(["-c", PUT_BACK, "sh"]).arg(instance).arg(settings);
        shell.args([number("window")?, number("width")?, mode.unwrap_or_default()]);
        // Ctrl-C in a terminal reaches this program alone.
        shell.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Guard { shell: shell.spawn()? })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.shell.stdin.take();
        // Fails only if it was waited for.
        let _ = self.shell.wait();
    }
}

/// Measures these processors for a time, or until `stop` is set.
///
/// # Errors
/// Why the tracer does not run, as a phrase; nothing is left changed.
pub(crate) fn measure(
    tracefs: &Path,
    processors: &[usize],
    length: Duration,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(u32),
) -> Result<Vec<Measurement>, String> {
    let instance = tracefs.join("instances").join(INSTANCE);
    let settings = tracefs.join("hwlat_detector");
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |error: io::Error| format!("{path}: {error}")
    };
    fs::create_dir(&instance).map_err(failed(&instance))?;
    let guard = Guard::start(&instance, &settings).map_err(failed(&settings)).inspect_err(|_| {
        let _ = fs::remove_dir(&instance);
    })?;
    let write = |path: PathBuf, text: &str| fs::write(&path, text).map_err(failed(&path));
    // The width must fit into the window at each step, whatever both were.
    let _ = fs::write(settings.join("width"), WIDTH_US.to_string());
    write(settings.join("window"), &WINDOW_US.to_string())?;
    write(settings.join("width"), &WIDTH_US.to_string())?;
    // One thread for each processor since Linux 5.14, before that one that moves.
    let is_each = fs::write(settings.join("mode"), "per-cpu").is_ok();
    write(instance.join("tracing_cpumask"), &mask(processors))?;
    write(instance.join("current_tracer"), "hwlat")?;
    // The kernel refuses another tracer while the pipe is open: it is opened last and closed first.
    let pipe = instance.join("trace_pipe");
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let mut pipe = OpenOptions::new().read(true).custom_flags(flags).open(&pipe).map_err(failed(&pipe))?;
    let (begun, mut text, mut samples) = (Instant::now(), String::new(), Vec::new());
    let begun_us = now_us();
    while begun.elapsed() < length && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(READ_EVERY.min(length));
        read(&mut pipe, &mut text, &mut samples);
        let share = begun.elapsed().as_nanos() * 1_000_000 / length.as_nanos().max(1);
        progress(share.min(1_000_000) as u32);
    }
    let span_us = (begun_us, now_us());
    drop(pipe);
    drop(guard);
    let threads = if is_each { 1 } else { processors.len() as u64 };
    let watched_ns = (span_us.1 - span_us.0) * 1_000 * WIDTH_US / WINDOW_US / threads.max(1);
    Ok(processors.iter().map(|&processor| measurement(processor, &samples, span_us, watched_ns)).collect())
}

fn now_us() -> u64 {
    let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    since_1970.as_micros() as u64
}

/// Reads the lines that are there.
fn read(pipe: &mut impl Read, text: &mut String, samples: &mut Vec<Sample>) {
    let mut buffer = [0; 4096];
    // It has no end; without a line to read it says that it would wait.
    while let Ok(bytes @ 1..) = pipe.read(&mut buffer) {
        *text += &String::from_utf8_lossy(&buffer[..bytes]);
    }
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    samples.extend(text.drain(..whole).collect::<String>().lines().filter_map(parse));
}

/// A line of the trace, for example
/// `hwlatd/1-99 [001] d.... 5.0: #1 inner/outer(us): 12/11 ts:1499801089.066141702 count:1`.
fn parse(line: &str) -> Option<Sample> {
    let (_, rest) = line.split_once('[')?;
    let (processor, rest) = rest.split_once(']')?;
    let (_, rest) = rest.split_once("inner/outer(us):")?;
    // The kernel pads both numbers with blanks.
    let (numbers, rest) = rest.split_once("ts:")?;
    let (inner, outer) = numbers.split_once('/')?;
    let length_us = inner.trim().parse::<u64>().ok()?.max(outer.trim().parse().ok()?);
    let (s, ns) = rest.split_ascii_whitespace().next()?.split_once('.')?;
    let whole_us = s.parse::<u64>().ok()?.checked_mul(1_000_000)?;
    let at_us = whole_us.checked_add(ns.parse::<u64>().ok()?.min(999_999_999) / 1_000)?;
    Some(Sample { processor: processor.parse().ok()?, length_us, at_us })
}

/// Processors as the kernel writes a set: words of 32 bits in hexadecimal digits, the highest first.
fn mask(processors: &[usize]) -> String {
    let mut words: BTreeMap<usize, u32> = BTreeMap::new();
    for processor in processors {
        *words.entry(processor / 32).or_default() |= 1 << (processor % 32);
    }
    let last = words.keys().next_back().copied().unwrap_or(0);
    let word = |at: usize| format!("{:08x}", words.get(&at).copied().unwrap_or(0));
    (0..=last).rev().map(word).collect::<Vec<_>>().join(",")
}

fn measurement(
    processor: usize,
    samples: &[Sample],
    (begun_us, ended_us): (u64, u64),
    watched_ns: u64,
) -> Measurement {
    let own: Vec<Sample> = samples.iter().filter(|sample| sample.processor == processor).copied().collect();
    let mut slices = vec![Histogram::new(); SLICES];
    let mut latencies = Histogram::new();
    for sample in &own {
        let passed = u128::from(sample.at_us.saturating_sub(begun_us)) * SLICES as u128;
        let slice = passed / u128::from((ended_us - begun_us).max(1));
        let length = Nanoseconds::from_ns(sample.length_us.saturating_mul(1_000));
        latencies.record(length);
        slices[(slice as usize).min(SLICES - 1)].record(length);
    }
    let mut worst: Vec<Worst> = own
        .iter()
        .map(|sample| Worst { at_us: sample.at_us, length_ns: sample.length_us * 1_000, causes: Vec::new() })
        .collect();
    worst.sort_by_key(|worst| std::cmp::Reverse(worst.length_ns));
    worst.truncate(WORST);
    Measurement {
        guest: None,
        processor,
        measure: Measure::Hardware,
        method: "the kernel's hwlat tracer".into(),
        watched_ns,
        resolution_ns: THRESHOLD_US * 1_000,
        skipped: 0,
        steal_ns: 0,
        latencies,
        slices: slices.iter().map(slice).collect(),
        worst,
    }
}

fn slice(of: &Histogram) -> Slice {
    let sum = u128::from(of.mean().as_ns()) * u128::from(of.count());
    Slice {
        count: of.count(),
        p50_ns: of.quantile_ppm(500_000).as_ns(),
        p99_ns: of.quantile_ppm(990_000).as_ns(),
        max_ns: of.max().as_ns(),
        sum_ns: u64::try_from(sum).unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_trace_is_a_sample() {
        let line = "   <...>-1729  [012] d....   678.473449: #1     inner/outer(us):   12/11    \
                    ts:1499801089.066141702 count:1";
        let sample = Sample { processor: 12, length_us: 12, at_us: 1_499_801_089_066_141 };
        assert_eq!(parse(line), Some(sample));
        let long =
            "hwlatd/1-99 [001] d..1. 9.1: #7 inner/outer(us): 9/ 4100 ts:5.000000001 count:3 nmi-count:1";
        assert_eq!(parse(long), Some(Sample { processor: 1, length_us: 4_100, at_us: 5_000_000 }));
        for other in ["", "# tracer: hwlat", "[1] inner/outer(us): x/y ts:1.0", "[1] inner/outer(us): 1/2"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn halves_of_lines_wait_for_the_rest() {
        let (mut text, mut samples) = (String::new(), Vec::new());
        let line = "x [003] d 1.0: #1 inner/outer(us): 20/15 ts:7.5 count:1\n";
        read(&mut &line.as_bytes()[..30], &mut text, &mut samples);
        assert_eq!((samples.len(), text.len()), (0, 30));
        read(&mut &line.as_bytes()[30..], &mut text, &mut samples);
        assert_eq!((samples.len(), text.len()), (1, 0));
    }

    #[test]
    fn sets_of_processors_are_written_as_the_kernel_reads_them() {
        assert_eq!(mask(&[1]), "00000002");
        assert_eq!(mask(&[0, 33, 95]), "80000000,00000002,00000001");
    }

    #[test]
    fn samples_become_a_measurement_of_their_processor() {
        let sample = |processor, length_us, at_us| Sample { processor, length_us, at_us };
        let samples = [sample(1, 15, 1_000), sample(2, 99, 1_500), sample(1, 40, 1_999)];
        let measured = measurement(1, &samples, (1_000, 2_000), 500_000);
        assert_eq!((measured.latencies.count(), measured.latencies.max().as_ns()), (2, 40_000));
        assert_eq!((measured.slices[0].max_ns, measured.slices[9].max_ns), (15_000, 40_000));
        assert_eq!(measured.worst[0].at_us, 1_999);
        assert_eq!(measured.lost_ppm(), 110_000, "55 of 500 us");
    }

    #[test]
    fn the_guard_puts_settings_back_however_this_program_ends() {
        let directory = tempfile::tempdir().expect("a directory");
        let (instance, settings) = (directory.path().join("instance"), directory.path().join("settings"));
        fs::create_dir(&settings).expect("made");
        let file = |name: &str| settings.join(name);
        let read = |name: &str| fs::read_to_string(file(name)).expect("there").trim().to_owned();
        for (name, text) in
            [("window", "1000000"), ("width", "500000"), ("mode", "none [round-robin] per-cpu")]
        {
            fs::write(file(name), text).expect("written");
        }
        let guard = Guard::start(&instance, &settings).expect("a shell");
        ["window", "width", "mode"].iter().for_each(|name| fs::write(file(name), "7").expect("changed"));
        drop(guard);
        assert_eq!(["window", "width", "mode"].map(read), ["1000000", "500000", "round-robin"]);
    }
}
