//! The written bytes, read back: what a reader of the trace sees on each track.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use prost::Message;
use punctual_model::host::{Change, Event};
use punctual_model::index::PoolIx;
use punctual_testkit::sample::{
    self, CONTROL, Events, WEB0, host, on_processor, on_vcpu, release, task, us, vcpu,
};

use super::*;
use crate::perfetto::Trace;

const US: Duration = Duration::from_us(1);

fn written(events: &Events, end: Instant) -> (Vec<u8>, Vec<TrackSummary>) {
    let host = host();
    let mut bytes = Vec::new();
    let mut writer = PerfettoWriter::new(&host, &mut bytes);
    events.iter().for_each(|&(at, event)| writer.event(at, event));
    let summary = writer.finish(end).expect("a vector takes everything");
    (bytes, summary)
}

/// Plays a trace back: per track its slices, instants and counter values in us, in the order of their ends.
///
/// # Panics
/// When a slice ends that never began or never ends, or an id is used before it is described.
fn read_back(bytes: &[u8]) -> String {
    let mut packets = Trace::decode(bytes).expect("well-formed").packet;
    packets.sort_by_key(|packet| packet.timestamp);
    let mut paths: BTreeMap<u64, String> = BTreeMap::new();
    let mut lines: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let mut open: BTreeMap<u64, Vec<(String, u64)>> = BTreeMap::new();
    let mut names: BTreeMap<u64, String> = BTreeMap::new();
    for packet in &packets {
        for entry in packet.interned_data.iter().flat_map(|data| &data.event_names) {
            names.insert(entry.iid(), entry.name().into());
        }
        if let Some(track) = &packet.track_descriptor {
            let parent = track.parent_uuid.map_or(String::new(), |uuid| format!("{}/", paths[&uuid]));
            paths.insert(track.uuid(), format!("{parent}{}", track.name()));
        }
        let Some(event) = &packet.track_event else { continue };
        let (at, track) = (packet.timestamp() / 1000, event.track_uuid());
        let line = match event.r#type() {
            1 => {
                open.entry(track).or_default().push((names[&event.name_iid()].clone(), at));
                continue;
            }
            2 => {
                let (name, since) = open.get_mut(&track).and_then(Vec::pop).expect("a slice to end");
                format!("{since}..{at} {name}")
            }
            3 => format!("{at} {}", names[&event.name_iid()]),
            4 => format!("{at} = {} us", event.counter_value() / 1000),
            other => panic!("event type {other}"),
        };
        lines.entry(track).or_default().push(line);
    }
    assert!(open.values().all(Vec::is_empty), "slices without an end: {open:?}");
    let mut text = String::new();
    for (track, lines) in lines {
        writeln!(text, "{}: {}", paths[&track], lines.join(", ")).expect("a string takes everything");
    }
    text
}

#[test]
fn overlapping_jobs_take_lanes_and_late_ones_are_marked() {
    let (bytes, _) = written(&sample::overlapping_jobs(), us(100));
    insta::assert_snapshot!(read_back(&bytes));
}

#[test]
fn a_level_executes_only_while_every_level_above_it_does() {
    let (bytes, _) = written(&sample::nested_domains(), us(100));
    insta::assert_snapshot!(read_back(&bytes));
}

#[test]
fn changes_that_last_no_time_leave_no_slice_but_jobs_of_no_length_do() {
    let (bytes, _) = written(&sample::same_instant(), us(100));
    insta::assert_snapshot!(read_back(&bytes));
}

#[test]
fn what_is_open_at_the_end_is_closed_there() {
    let events =
        vec![release(0, CONTROL, 0, 50), on_vcpu(0, WEB0, task(CONTROL)), on_processor(10, 1, vcpu(WEB0))];
    let (bytes, _) = written(&events, us(70));
    insta::assert_snapshot!(read_back(&bytes), @r"
    processors/cpu 1: 10..70 web.0
    web/web.0: 10..70 control
    web/control: 10..70 cpu 1
    web/control/jobs: 0..70 job
    web/control/deadlines: 50 deadline missed
    ");
}

#[test]
fn events_of_the_host_file_are_marks_on_a_track_of_their_own() {
    let change = Change::Policy { pool: PoolIx(0), policy: host().pools[0].policy.clone() };
    let event = |name: &str, at: u64| Event { name: name.into(), at: US * at, change: change.clone() };
    let host = Host { events: vec![event("storm", 20), event("calm", 60)], ..host() };
    let mut bytes = Vec::new();
    let mut writer = PerfettoWriter::new(&host, &mut bytes);
    writer.event(us(0), TraceEvent::Processor { processor: 0, occupant: vcpu(WEB0) });
    writer.event(us(20), TraceEvent::Changed { event: 0 });
    writer.event(us(60), TraceEvent::Changed { event: 1 });
    writer.finish(us(100)).expect("a vector takes everything");
    insta::assert_snapshot!(read_back(&bytes), @r"
    processors/cpu 0: 0..100 web.0
    web/web.0: 0..100 idle
    events: 20 storm, 60 calm
    ");
}

#[test]
fn the_summary_counts_what_the_trace_holds() {
    let (bytes, summary) = written(&sample::random(5_000), us(1_000_000));
    let events: u64 = summary.iter().map(|track| track.events).sum();
    let entries: usize = read_back(&bytes).lines().map(|line| line.split(", ").count()).sum();
    assert_eq!(events, entries as u64);
}

#[test]
fn a_name_is_written_once() {
    let (bytes, _) = written(&sample::random(5_000), us(1_000_000));
    let packets = Trace::decode(bytes.as_slice()).expect("well-formed").packet;
    let mut names: Vec<_> = packets
        .iter()
        .flat_map(|p| &p.interned_data)
        .flat_map(|d| &d.event_names)
        .map(|n| n.name())
        .collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

/// Takes some bytes, then fails.
struct FullDisk {
    room: usize,
}

impl Write for FullDisk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.room {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.room -= bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn the_first_io_error_is_kept_until_the_end() {
    let host = host();
    for room in [0, 100_000] {
        let mut writer = PerfettoWriter::new(&host, FullDisk { room });
        sample::random(20_000).into_iter().for_each(|(at, event)| writer.event(at, event));
        let error = writer.finish(us(1_000_000)).expect_err("the disk is full");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}

#[test]
fn a_simulation_leaves_the_same_numbers_in_its_trace_as_in_its_results() {
    use punctual_model::file::{self, Overrides};
    for policy in ["rtds", "deferrable", "periodic", "credit"] {
        let overrides = Overrides { policy: Some(policy.into()), ..Overrides::default() };
        let host = file::parse(sample::NESTED, "nested.toml", &overrides).expect("a valid host");
        let mut bytes = Vec::new();
        let mut writer = PerfettoWriter::new(&host, &mut bytes);
        let results = punctual_sim::simulate_traced(&host, &mut writer).expect("a simulation");
        let summary = writer.finish(Instant::ZERO + host.duration).expect("a vector takes everything");
        let text = read_back(&bytes);
        for task in results.tasks {
            let ends =
                |track: &TrackSummary, end: &str| track.track.ends_with(&format!("{}{end}", task.name));
            let executed: u64 =
                summary.iter().filter(|track| ends(track, "")).map(|track| track.total_ns).sum();
            let released: u64 =
                summary.iter().filter(|track| ends(track, "/jobs")).map(|track| track.events).sum();
            let instants = text.lines().find(|line| line.contains(&format!("{}/deadlines:", task.name)));
            let missed = instants.map_or(0, |line| line.matches("deadline missed").count() as u64);
            let name = format!("{} under {policy}", task.name);
            // A task of the pool itself is also charged for the switches to it.
            if task.parent != "all" {
                assert_eq!(executed, task.cpu_time_ns, "execution of {name}");
            }
            assert_eq!(released, task.jobs.released, "jobs of {name}");
            assert_eq!(missed, task.jobs.missed, "missed deadlines of {name}");
        }
    }
}

#[test]
fn arrows_join_the_parts_of_each_request_of_a_linux_host() {
    let text = "duration = '20ms'\n[machine]\nprocessors = 2\n[host_stack.card.rt]\npriority = 50\n\
                [host_stack.server.voice]\npriority = 47\nvnic_priority = 48\ncount = 2\nload = 'requests'\n";
    let stack = punctual_model::file::parse_host_stack(text.as_bytes(), "host.toml", &Default::default());
    let stack = stack.expect("a valid host");
    let mut bytes = Vec::new();
    let mut writer = StackWriter::new(&stack, &mut bytes);
    let results = punctual_host_stack_sim::simulate_traced(&stack, &mut writer).expect("a simulation");
    let summary = writer.finish(Instant::ZERO + stack.duration).expect("a vector takes everything");
    let text = read_back(&bytes);
    for track in ["voice#1/card", "voice#1/guest", "voice#2/host receive", "voice#2/host send"] {
        assert!(text.contains(&format!("{track}: ")), "{track} in {text}");
    }
    assert!(text.contains("vcpu voice#1") && text.contains("irq rt on cpu 0"), "{text}");
    let mut arrows: BTreeMap<u64, u64> = BTreeMap::new();
    for packet in Trace::decode(&bytes[..]).expect("well-formed").packet {
        for flow in packet.track_event.into_iter().flat_map(|event| event.flow_ids) {
            *arrows.entry(flow).or_default() += 1;
        }
    }
    let flow = &results.flows[0];
    assert!(flow.packets.delivered > 0 && arrows.len() as u64 == flow.packets.created);
    // Nothing is left out: what the slices last is what the answered requests took, and the others so far.
    let card = summary.iter().filter(|track| track.track.ends_with("/card"));
    let slices: u64 = card.map(|track| track.events).sum();
    assert!(slices >= 2 * flow.packets.delivered, "each passes a card twice");
}
