//! Runs cyclictest, of the rt-tests, and reads what it prints: wake-up latencies measured by a program that
//! nobody here wrote.

use std::process::Command;

use crate::protocol::{Cyclictest, Latencies};

/// Is there a cyclictest to run?
pub fn available() -> bool {
    std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|directory| directory.join("cyclictest").is_file())
    })
}

/// Runs it with one measuring thread.
///
/// # Errors
/// When it is not there, fails, or prints something else than a histogram.
pub fn run(how: &Cyclictest) -> Result<Latencies, String> {
    let output = Command::new("cyclictest")
        .args(["--quiet", "--mlockall", "--threads=1"])
        .arg(format!("--interval={}", how.interval_us))
        .arg(format!("--loops={}", how.loops))
        // It takes a priority of 0 for no answer, and chooses one.
        .arg(match how.priority {
            0 => "--policy=other".into(),
            priority => format!("--priority={priority}"),
        })
        .arg(format!("--histogram={}", how.histogram_us))
        .output()
        .map_err(|error| format!("cyclictest cannot be run: {error} (Debian: apt install rt-tests)"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("cyclictest ended with {}: {}", output.status, said.trim()));
    }
    parse(&String::from_utf8_lossy(&output.stdout))
}

/// Reads what `cyclictest --histogram --threads=1 --quiet` prints.
///
/// # Errors
/// When a line is not understood, a figure is missing or the counts do not add up to the stated total.
pub fn parse(text: &str) -> Result<Latencies, String> {
    let mut latencies = Latencies { min_us: 0, avg_us: 0, max_us: 0, overflows: 0, buckets: Vec::new() };
    let mut total = None;
    let mut seen = [false; 4];
    for line in text.lines().map(str::trim) {
        let unknown = || format!("cyclictest printed {line:?}, which is not understood");
        let number = |text: &str| text.trim().parse::<u64>().map_err(|_| unknown());
        if let Some(comment) = line.strip_prefix('#') {
            let Some((what, value)) = comment.split_once(':') else { continue };
            let (index, place) = match what.trim() {
                "Total" => {
                    total = Some(number(value)?);
                    continue;
                }
                "Min Latencies" => (0, &mut latencies.min_us),
                "Avg Latencies" => (1, &mut latencies.avg_us),
                "Max Latencies" => (2, &mut latencies.max_us),
                "Histogram Overflows" => (3, &mut latencies.overflows),
                _ => continue,
            };
            *place = number(value)?;
            seen[index] = true;
        } else if let Some((us, count)) = line.split_once(char::is_whitespace) {
            let (us, count) = (us.parse::<u32>().map_err(|_| unknown())?, number(count)?);
            if latencies.buckets.last().is_some_and(|&(last, _)| last >= us) {
                return Err(format!("cyclictest's histogram goes back from line {line:?} on"));
            }
            if count > 0 {
                latencies.buckets.push((us, count));
            }
        }
    }
    if seen.contains(&false) {
        return Err("cyclictest printed no minimum, mean, maximum or number of overflows".into());
    }
    let counted = latencies.buckets.iter().fold(0u64, |sum, &(_, count)| sum.saturating_add(count));
    match total {
        Some(total) if total == counted => Ok(latencies),
        _ => Err(format!("cyclictest's histogram adds up to {counted}, its total is {total:?}")),
    }
}
