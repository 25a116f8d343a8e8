//! What happened in a live run, as a file for Perfetto and as the timeline of a page.

use std::path::Path;

use punctual_live::run::Trace;
use punctual_model::Host;
use punctual_model::trace::TraceSink;
use punctual_report::timeline::{Reader, Timeline, Window};
use punctual_report::trace::PerfettoWriter;
use punctual_sched::{Duration, Instant};

use super::super::error::Error;
use super::super::output::OutFile;

/// Writes the trace of a run of this length.
///
/// # Errors
/// When it cannot be written.
pub fn write(path: &Path, host: &Host, trace: &Trace, length: Duration) -> Result<(), Error> {
    // The error names the file.
    let unwritten = |e: std::io::Error| Error::Usage(e.to_string());
    let mut out = OutFile::create(path)?;
    told(PerfettoWriter::new(host, &mut out), trace, length).map_err(unwritten)?;
    out.finish()
}

/// The same as a timeline; nothing where nothing lies in the window.
pub fn timeline(host: &Host, trace: &Trace, length: Duration, window: Window) -> Option<Timeline> {
    let mut reader = Reader::new(window);
    // A reader takes every byte.
    let _ = told(PerfettoWriter::new(host, &mut reader), trace, length);
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
