//! Writes traces for `scripts/check-perfetto.sh`, each with the writer's summary beside it: event sequences
//! by hand with everything that could upset an importer, and simulated hosts under every policy.
//!
//! usage: `traces DIRECTORY`

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::error::Error;
use std::fs::{self, File};
use std::path::Path;

use punctual_model::Host;
use punctual_model::file::{self, Overrides};
use punctual_model::trace::{StackEvent, TraceEvent, TraceSink};
use punctual_report::trace::{PerfettoWriter, StackWriter, TrackSummary};
use punctual_sched::{Duration, Instant, registry};
use punctual_testkit::sample::{self, Events};

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
        write_by_hand(&host, &events, &directory.join(name).with_extension("pftrace"))?;
    }
    let five_vms = fs::read_to_string("examples/five-vms.toml")?;
    for policy in registry::policies() {
        for (name, text) in [("nested", sample::NESTED), ("five-vms", &five_vms)] {
            let path = directory.join(format!("{name}-{}", policy.name)).with_extension("pftrace");
            write_simulated(text, Some(policy.name), &path)?;
        }
    }
    for (name, file) in [("network", "examples/network.toml"), ("rtca", "papers/rtca/example.toml")] {
        write_simulated(&fs::read_to_string(file)?, None, &directory.join(name).with_extension("pftrace"))?;
    }
    write_stack(&fs::read("examples/kvm-host.toml")?, &directory.join("kvm-host.pftrace"))?;
    Ok(())
}

fn write_by_hand(host: &Host, events: &Events, path: &Path) -> Result<(), Box<dyn Error>> {
    let mut writer = PerfettoWriter::new(host, File::create(path)?);
    events.iter().for_each(|&(at, event)| writer.event(at, event));
    let end = events.last().map_or(Instant::ZERO, |&(at, _)| at) + Duration::from_us(500);
    write_summary(&writer.finish(end)?, 0, path)
}

fn write_simulated(host: &str, policy: Option<&str>, path: &Path) -> Result<(), Box<dyn Error>> {
    let overrides = Overrides { policy: policy.map(str::to_owned), ..short() };
    let host = file::parse(host, "host.toml", &overrides).map_err(|errors| errors.render(false))?;
    let writer = PerfettoWriter::new(&host, File::create(path)?);
    let mut sink = StepsOfPackets { writer, steps: HashMap::new() };
    punctual_sim::simulate_traced(&host, &mut sink)?;
    let arrows = sink.steps.values().map(|steps| steps - 1).sum();
    write_summary(&sink.writer.finish(Instant::ZERO + host.duration)?, arrows, path)
}

fn write_stack(host: &[u8], path: &Path) -> Result<(), Box<dyn Error>> {
    let stack = file::parse_host_stack(host, "host.toml", &short()).map_err(|errors| errors.render(false))?;
    let writer = StackWriter::new(&stack, File::create(path)?);
    let mut sink = StepsOfPackets { writer, steps: HashMap::new() };
    punctual_host_stack_sim::simulate_traced(&stack, &mut sink)?;
    let arrows = sink.steps.values().map(|steps| steps - 1).sum();
    write_summary(&sink.writer.finish(Instant::ZERO + stack.duration)?, arrows, path)
}

fn short() -> Overrides {
    Overrides { duration: Some("200ms".to_owned()), ..Overrides::default() }
}

/// Counts the steps of each packet or request on the way to the writer: arrows join them.
struct StepsOfPackets<W> {
    writer: W,
    /// By the packet's id, or the request's server and number.
    steps: HashMap<(usize, u64), u64>,
}

impl<W: TraceSink> TraceSink for StepsOfPackets<W> {
    fn event(&mut self, at: Instant, event: TraceEvent) {
        if let TraceEvent::Network { packet: Some(packet), .. } = event {
            *self.steps.entry((0, packet.id)).or_default() += 1;
        }
        self.writer.event(at, event);
    }
}

impl<W: TraceSink<StackEvent>> TraceSink<StackEvent> for StepsOfPackets<W> {
    fn event(&mut self, at: Instant, event: StackEvent) {
        if let StackEvent::Part { server, request, .. } = event {
            *self.steps.entry((server, request)).or_default() += 1;
        }
        self.writer.event(at, event);
    }
}

/// Beside the trace, what it holds.
fn write_summary(tracks: &[TrackSummary], arrows: u64, path: &Path) -> Result<(), Box<dyn Error>> {
    let summary = serde_json::json!({ "tracks": tracks, "arrows": arrows });
    Ok(fs::write(format!("{}.json", path.display()), serde_json::to_string_pretty(&summary)?)?)
}
