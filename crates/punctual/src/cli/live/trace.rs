//! What happened in a live run, as a file for Perfetto and as the timeline of a page.

use std::path::Path;

use punctual_model::Host;
use punctual_model::trace::TraceSink;
use punctual_report::timeline::{Reader, Timeline, Window};
use punctual_report::trace::PerfettoWriter;
use punctual_run::run::{Measurements, Trace};
use punctual_sched::{Duration, Instant};

use super::super::error::Error;
use super::super::output::OutFile;

/// Writes the trace of a run of this length.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn write(path: &Path, host: &Host, trace: &Trace, length: Duration) -> Result<(), Error> {
    // The error names the file.
    let unwritten = |e: std::io::Error| Error::Usage(e.to_string());
    let mut out = OutFile::create(path)?;
    told(PerfettoWriter::new(host, &mut out), trace, length).map_err(unwritten)?;
    out.finish()
}

/// Slices, steps of budgets and jobs of a page's timeline.
const TIMELINE_ITEMS_MAX: usize = 300_000;

/// What happened in a run as the timeline of its page; nothing where nothing is known.
pub(crate) fn timeline(host: &Host, outcome: &Measurements) -> Option<Timeline> {
    let window = Window { from_ns: 0, until_ns: u64::MAX, items_max: TIMELINE_ITEMS_MAX };
    let mut reader = Reader::new(window);
    let length = Duration::from_ns(outcome.results.duration_ns);
    // A reader takes every byte.
    let _ = told(PerfettoWriter::new(host, &mut reader), &outcome.trace, length);
    reader.finish().ok()
}

fn told<W: std::io::Write>(
    mut writer: PerfettoWriter<'_, W>,
    trace: &Trace,
    length: Duration,
) -> std::io::Result<()> {
    trace.iter().for_each(|&(at, event)| writer.event(at, event));
    writer.finish(Instant::ZERO + length).map(drop)
}
