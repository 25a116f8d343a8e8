//! Runs cyclictest of the rt-tests and parses its output: wake-up latencies, measured by a program that is
//! not part of this project.

use std::fmt;
use std::io;
use std::process::{Command, ExitStatus};

use crate::protocol::{Cyclictest, Latencies};

/// Why cyclictest has no result.
#[derive(Debug)]
pub enum Error {
    Start(io::Error),
    /// It ended with an error; `message` is its standard error.
    Failed {
        status: ExitStatus,
        message: String,
    },
    /// It printed a line that cannot be parsed.
    Line(String),
    /// The histogram's latencies do not ascend at this line.
    Order(String),
    /// A figure is missing.
    Incomplete,
    /// The histogram's sum differs from the total that cyclictest states.
    Total {
        counted: u64,
        stated: Option<u64>,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Start(error) => {
                write!(f, "cannot run cyclictest: {error} (Debian: apt install rt-tests)")
            }
            Error::Failed { status, message } => write!(f, "cyclictest ended with {status}: {message}"),
            Error::Line(line) => write!(f, "cannot parse cyclictest's output {line:?}"),
            Error::Order(line) => write!(f, "cyclictest's histogram does not ascend at line {line:?}"),
            Error::Incomplete => {
                write!(f, "cyclictest printed no minimum, mean, maximum or number of overflows")
            }
            Error::Total { counted, stated } => {
                write!(f, "cyclictest's histogram adds up to {counted}, its total is {stated:?}")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Start(error) => Some(error),
            _ => None,
        }
    }
}

/// Whether cyclictest is installed.
pub fn available() -> bool {
    std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|directory| directory.join("cyclictest").is_file())
    })
}

/// Runs cyclictest with one measuring thread.
///
/// # Errors
/// It is not installed, fails, or prints something other than a histogram.
pub fn run(how: &Cyclictest) -> Result<Latencies, Error> {
    let output = Command::new("cyclictest")
        .args(["--quiet", "--mlockall", "--threads=1"])
        .arg(format!("--interval={}", how.interval_us))
        .arg(format!("--loops={}", how.loops))
        // cyclictest takes priority 0 as a request to choose one.
        .arg(match how.priority {
            0 => "--policy=other".into(),
            priority => format!("--priority={priority}"),
        })
        .arg(format!("--histogram={}", how.histogram_us))
        .output()
        .map_err(Error::Start)?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(Error::Failed { status: output.status, message });
    }
    parse(&String::from_utf8_lossy(&output.stdout))
}

/// Parses the output of `cyclictest --histogram --threads=1 --quiet`.
///
/// # Errors
/// A line cannot be parsed, a figure is missing, or the counts do not add up to the stated total.
pub fn parse(text: &str) -> Result<Latencies, Error> {
    let mut figures = Figures::default();
    let mut buckets: Vec<(u32, u64)> = Vec::new();
    for line in text.lines().map(str::trim) {
        let unknown = || Error::Line(line.into());
        if let Some(comment) = line.strip_prefix('#') {
            figures.read(comment).ok_or_else(unknown)?;
        } else if let Some((us, count)) = line.split_once(char::is_whitespace) {
            let us: u32 = us.parse().map_err(|_| unknown())?;
            let count: u64 = count.trim().parse().map_err(|_| unknown())?;
            if buckets.last().is_some_and(|&(last, _)| last >= us) {
                return Err(Error::Order(line.into()));
            }
            if count > 0 {
                buckets.push((us, count));
            }
        }
    }
    let Figures { total: stated, min, avg, max, overflows } = figures;
    let (Some(min_us), Some(avg_us), Some(max_us), Some(overflows)) = (min, avg, max, overflows) else {
        return Err(Error::Incomplete);
    };
    let counted = buckets.iter().fold(0u64, |sum, &(_, count)| sum.saturating_add(count));
    if stated != Some(counted) {
        return Err(Error::Total { counted, stated });
    }
    Ok(Latencies { min_us, avg_us, max_us, overflows, buckets })
}

/// The figures that cyclictest prints in comments.
#[derive(Default)]
struct Figures {
    total: Option<u64>,
    min: Option<u64>,
    avg: Option<u64>,
    max: Option<u64>,
    overflows: Option<u64>,
}

impl Figures {
    /// Takes a figure from a comment, if it has one; `None` when the figure is not a number.
    fn read(&mut self, comment: &str) -> Option<()> {
        let Some((name, value)) = comment.split_once(':') else { return Some(()) };
        let figure = match name.trim() {
            "Total" => &mut self.total,
            "Min Latencies" => &mut self.min,
            "Avg Latencies" => &mut self.avg,
            "Max Latencies" => &mut self.max,
            "Histogram Overflows" => &mut self.overflows,
            _ => return Some(()),
        };
        *figure = Some(value.trim().parse().ok()?);
        Some(())
    }
}
