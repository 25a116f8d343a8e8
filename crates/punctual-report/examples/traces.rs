//! Writes traces for `scripts/check-perfetto`: hand-made event sequences with everything that could upset an
//! importer, each with the writer's summary beside it.
//!
//! usage: `traces DIRECTORY`

#![forbid(unsafe_code)]

use std::error::Error;
use std::fs::{self, File};
use std::path::Path;

use punctual_model::Host;
use punctual_model::trace::TraceSink;
use punctual_report::trace::PerfettoWriter;
use punctual_sched::{Duration, Instant};
use sample::Events;

#[path = "../tests/sample/mod.rs"]
mod sample;

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args().nth(1).ok_or("usage: traces DIRECTORY")?;
    let directory = Path::new(&directory);
    fs::create_dir_all(directory)?;
    let host = sample::host();
    for (name, events) in [
        ("overlapping-jobs", sample::overlapping_jobs()),
        ("nested-domains", sample::nested_domains()),
        ("same-instant", sample::same_instant()),
        ("random", sample::random(20_000)),
    ] {
        write(&host, &events, &directory.join(name).with_extension("pftrace"))?;
    }
    Ok(())
}

/// Writes one trace and, beside it, what it holds.
fn write(host: &Host, events: &Events, path: &Path) -> Result<(), Box<dyn Error>> {
    let mut writer = PerfettoWriter::new(host, File::create(path)?);
    events.iter().for_each(|&(at, event)| writer.event(at, event));
    let end = events.last().map_or(Instant::ZERO, |&(at, _)| at) + Duration::from_us(500);
    let summary = writer.finish(end)?;
    let beside = format!("{}.json", path.display());
    Ok(fs::write(beside, serde_json::to_string_pretty(&summary)?)?)
}
