//! A Perfetto trace (`.pftrace`) of a simulation or a live run, written while it happens.
//!
//! Tracks: a group `processors` with one track per processor; a group per domain with a track per vCPU and
//! per task, nested domains inside the domain they run in; a group `pool NAME` for tasks that a pool
//! schedules itself. Below a vCPU or task: `budget` (counter, ns), `jobs` (a slice per job from release to
//! completion) and `deadlines` (instants). Below a domain with network work: `network` (a slice per step);
//! the steps of one packet are joined by flow arrows. `docs/traces.md` is the reader's guide.
//!
//! - **What executes** follows the chain from the processor down: a vCPU's track shows what its guest runs
//!   only while the vCPU itself has a processor, a task's only while every level above it runs. Changes that
//!   last no time (several events at one instant) leave no slice.
//! - **Jobs of one task overlap** when a late one still runs at the next release, and slices of one track
//!   must nest. Each job therefore takes the lowest free one of the task's *lanes*: tracks of the same name,
//!   which Perfetto shows as one.
//! - **Memory** is the tracks' descriptions plus the jobs released and not yet finished.

use std::collections::VecDeque;
use std::io::{self, Write};

use prost::Message;
use punctual_host_stack::description::{HostStack, Who};
use punctual_model::Host;
use punctual_model::host::Parent;
use punctual_model::index::{DomainIx, TaskIx, VcpuIx};
use punctual_model::results::{HostPart, Segment};
use punctual_model::trace::{Entity, NetworkStep, Occupant, PacketRef, TraceEvent, TraceSink};
use punctual_sched::{Duration, Instant};
use serde::Serialize;

use crate::perfetto::{
    CounterDescriptor, DebugAnnotation, EventType, Interned, InternedData, ORDER_EXPLICIT,
    SEQ_INCREMENTAL_STATE_CLEARED, SEQ_NEEDS_INCREMENTAL_STATE, Trace, TracePacket, TrackDescriptor,
    TrackEvent, UNIT_TIME_NS,
};

/// The only packet sequence of the trace.
const SEQUENCE: u32 = 1;
/// Bytes collected before they are written.
const BUFFER: usize = 1 << 16;

/// What is on a track.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrackKind {
    /// Other tracks.
    Group,
    /// Slices.
    Slices,
    /// Instants.
    Instants,
    /// Values of a counter, in ns.
    Counter,
}

/// What was written to a track; lanes of one task are one track here.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct TrackSummary {
    /// Names of the groups around it and its own, outermost first, separated by `/`.
    pub track: String,
    /// What it holds.
    pub kind: TrackKind,
    /// Number of slices, instants or counter values.
    pub events: u64,
    /// Sum of the slices' lengths.
    pub total_ns: u64,
}

/// Index of a track; its uuid in the file is one more, because 0 is Perfetto's own root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct TrackId(usize);

struct Track {
    name: String,
    parent: Option<TrackId>,
    kind: TrackKind,
    events: u64,
    total_ns: u64,
}

/// Names of slices and instants; the position is the interning id less one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Name {
    Idle,
    Overhead,
    Job,
    DeadlineMissed,
    LateCompletion,
    Processor(usize),
    Unit(Entity),
    IdleFor(Entity),
    Network,
    Event,
    Packet(NetworkStep, usize),
    Standstill,
    OtherThread,
    Part(HostPart),
    Thread(Who),
}

/// Steps with a packet.
const STEPS: [(NetworkStep, &str); 5] = [
    (NetworkStep::Send, "send"),
    (NetworkStep::Tx, "tx"),
    (NetworkStep::Softnet, "softnet"),
    (NetworkStep::Rx, "rx"),
    (NetworkStep::Receive, "receive"),
];

/// Categories, which Perfetto can filter by; the discriminant is the interning id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
enum Category {
    Execution = 1,
    Idle,
    IdleFor,
    Overhead,
    Job,
    Deadline,
    Network,
    Away,
}

const CATEGORIES: [&str; 8] =
    ["execution", "idle", "idle-for", "overhead", "job", "deadline", "network", "away"];

/// Arguments of jobs and instants; the discriminant is the interning id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
enum Arg {
    Job = 1,
    DeadlineNs,
    ResponseNs,
    LateNs,
}

const ARGS: [&str; 4] = ["job", "deadline_ns", "response_ns", "late_ns"];

/// A slice that is open on one of the execution tracks.
#[derive(Clone, Copy, Debug)]
struct Running {
    track: TrackId,
    name: Name,
    since: Instant,
}

/// A job that was released and is not finished.
struct OpenJob {
    job: u64,
    lane: usize,
    released: Instant,
    deadline: Instant,
}

/// Per task: open jobs in the order of release, and the lanes.
#[derive(Default)]
struct TaskState {
    open: VecDeque<OpenJob>,
    lanes: Vec<(TrackId, bool)>,
    deadlines: Option<TrackId>,
}

/// Writes trace events as a Perfetto trace.
///
/// Events are taken as they come; the file is complete after [`PerfettoWriter::finish`]. The first I/O error
/// ends the writing and is returned there.
pub struct PerfettoWriter<'h, W: Write> {
    host: &'h Host,
    out: Packets<W>,
    tracks: Vec<Track>,
    /// Which names are interned already, by [`Name`]'s position.
    interned: Vec<bool>,
    now: Instant,
    /// First track of the processors, vCPUs and tasks.
    first: Firsts,
    occupants: Vec<Occupant>,
    guests: Vec<Occupant>,
    /// Open slices of each processor: its own, then one per level down.
    chains: Vec<Vec<Running>>,
    /// The processor in whose chain a vCPU is.
    hosted_by: Vec<Option<usize>>,
    changed_processors: Vec<usize>,
    changed_vcpus: Vec<VcpuIx>,
    tasks: Vec<TaskState>,
    /// Budget tracks of vCPUs, then tasks.
    budgets: Vec<Option<TrackId>>,
    /// Groups of domains, and their tracks of network work.
    domains: Vec<TrackId>,
    networks: Vec<Option<TrackId>>,
    /// Of a Linux host with a network stack.
    stack: StackTracks,
}

/// Threads and requests of a Linux host's network stack.
#[derive(Default)]
struct StackTracks {
    /// Groups of its servers, counts included.
    servers: Vec<TrackId>,
    /// Their requests' segments: tracks, and until when each has a slice.
    lanes: Vec<[Vec<(TrackId, Instant)>; Segment::HOST.len()]>,
    /// What each processor runs, and since when.
    threads: Vec<Option<(Who, Instant)>>,
}

#[derive(Clone, Copy)]
struct Firsts {
    processor: usize,
    vcpu: usize,
    task: usize,
}

/// Buffers packets; keeps the first error.
struct Packets<W: Write> {
    out: W,
    buffer: Vec<u8>,
    error: Option<io::Error>,
}

impl<W: Write> Packets<W> {
    fn push(&mut self, packet: TracePacket) {
        if self.error.is_some() {
            return;
        }
        let trace = Trace { packet: vec![packet] };
        // Encoding into a vector cannot run out of room, its only error.
        self.buffer.reserve(trace.encoded_len());
        trace.encode_raw(&mut self.buffer);
        if self.buffer.len() >= BUFFER {
            self.write();
        }
    }

    fn write(&mut self) {
        if let Err(error) = self.out.write_all(&self.buffer) {
            self.error = Some(error);
        }
        self.buffer.clear();
    }

    fn finish(mut self) -> io::Result<()> {
        if self.error.is_none() {
            self.write();
        }
        self.error.map_or_else(|| self.out.flush(), Err)
    }
}

impl<'h, W: Write> PerfettoWriter<'h, W> {
    /// A writer for events about `host`. Nothing reaches `out` before some events are collected.
    pub fn new(host: &'h Host, out: W) -> Self {
        let names = Name::table_len(host);
        let mut writer = PerfettoWriter {
            host,
            out: Packets { out, buffer: Vec::with_capacity(BUFFER + 1024), error: None },
            tracks: Vec::new(),
            interned: vec![false; names],
            now: Instant::ZERO,
            first: Firsts { processor: 0, vcpu: 0, task: 0 },
            occupants: vec![Occupant::Idle; host.processors],
            guests: vec![Occupant::Idle; host.vcpus.len()],
            chains: vec![Vec::new(); host.processors],
            hosted_by: vec![None; host.vcpus.len()],
            changed_processors: Vec::new(),
            changed_vcpus: Vec::new(),
            tasks: host.tasks.iter().map(|_| TaskState::default()).collect(),
            budgets: vec![None; host.vcpus.len() + host.tasks.len()],
            domains: Vec::new(),
            networks: vec![None; host.domains.len()],
            stack: StackTracks { threads: vec![None; host.processors], ..StackTracks::default() },
        };
        writer.write_header();
        writer.describe_host();
        writer
    }

    fn write_header(&mut self) {
        let table = |names: &[&str]| {
            let entry =
                |(i, name): (usize, &&str)| Interned { iid: Some(i as u64 + 1), name: Some((*name).into()) };
            names.iter().enumerate().map(entry).collect()
        };
        self.out.push(TracePacket {
            trusted_packet_sequence_id: Some(SEQUENCE),
            sequence_flags: Some(SEQ_INCREMENTAL_STATE_CLEARED),
            interned_data: Some(InternedData {
                event_categories: table(&CATEGORIES),
                debug_annotation_names: table(&ARGS),
                ..Default::default()
            }),
            ..Default::default()
        });
    }

    /// One track after the other, so that the track of processor, vCPU or task `i` is `first + i`.
    fn describe_host(&mut self) {
        let host = self.host;
        let machine = self.describe("processors".into(), None, TrackKind::Group, 0);
        let mut domains: Vec<TrackId> = Vec::with_capacity(host.domains.len());
        for (rank, domain) in host.domains.iter().enumerate() {
            let parent = match domain.parent {
                Parent::Pool(_) => None,
                // Stands before it in the list.
                Parent::Domain(outer) => domains.get(outer.0).copied(),
            };
            let rank = 1 + host.vcpus.len() + host.tasks.len() + rank;
            domains.push(self.describe(domain.name.clone(), parent, TrackKind::Group, rank));
        }
        let mut pools = vec![None; host.pools.len()];
        for task in &host.tasks {
            if let Parent::Pool(pool) = task.parent
                && pools[pool.0].is_none()
            {
                let name = format!("pool {}", host.pools[pool.0].name);
                pools[pool.0] = Some(self.describe(name, None, TrackKind::Group, pool.0));
            }
        }
        self.first.processor = self.tracks.len();
        for processor in 0..host.processors {
            self.describe(format!("cpu {processor}"), Some(machine), TrackKind::Slices, processor);
        }
        self.first.vcpu = self.tracks.len();
        for (rank, vcpu) in host.vcpus.iter().enumerate() {
            self.describe(vcpu.name.clone(), Some(domains[vcpu.domain.0]), TrackKind::Slices, rank);
        }
        self.first.task = self.tracks.len();
        for (rank, task) in host.tasks.iter().enumerate() {
            let parent = match task.parent {
                Parent::Pool(pool) => pools[pool.0],
                Parent::Domain(domain) => Some(domains[domain.0]),
            };
            self.describe(task.name.clone(), parent, TrackKind::Slices, host.vcpus.len() + rank);
        }
        self.domains = domains;
        for (rank, name) in host.stack.iter().flat_map(HostStack::instances).enumerate() {
            let group = self.describe(name, None, TrackKind::Group, 1 + rank);
            self.stack.servers.push(group);
            self.stack.lanes.push(Default::default());
        }
    }

    fn describe(&mut self, name: String, parent: Option<TrackId>, kind: TrackKind, rank: usize) -> TrackId {
        let id = TrackId(self.tracks.len());
        self.out.push(TracePacket {
            trusted_packet_sequence_id: Some(SEQUENCE),
            track_descriptor: Some(TrackDescriptor {
                uuid: Some(uuid(id)),
                name: Some(name.clone()),
                parent_uuid: parent.map(uuid),
                counter: (kind == TrackKind::Counter)
                    .then_some(CounterDescriptor { unit: Some(UNIT_TIME_NS) }),
                child_ordering: Some(ORDER_EXPLICIT),
                sibling_order_rank: Some(i32::try_from(rank).unwrap_or(i32::MAX)),
            }),
            ..Default::default()
        });
        self.tracks.push(Track { name, parent, kind, events: 0, total_ns: 0 });
        id
    }

    fn track_of(&self, unit: Entity) -> TrackId {
        match unit {
            Entity::Vcpu(VcpuIx(i)) => TrackId(self.first.vcpu + i),
            Entity::Task(TaskIx(i)) => TrackId(self.first.task + i),
        }
    }

    fn emit(&mut self, at: Instant, track: TrackId, event: TrackEvent, name: Option<Name>) {
        let name_iid = name.map(|name| name.position(self.host) as u64 + 1);
        let interned_data = name.and_then(|name| self.intern(name));
        self.out.push(TracePacket {
            timestamp: Some(at.as_ns()),
            trusted_packet_sequence_id: Some(SEQUENCE),
            sequence_flags: Some(SEQ_NEEDS_INCREMENTAL_STATE),
            interned_data,
            track_event: Some(TrackEvent { track_uuid: Some(uuid(track)), name_iid, ..event }),
            ..Default::default()
        });
    }

    /// The table entry of a name that is used for the first time.
    fn intern(&mut self, name: Name) -> Option<InternedData> {
        let position = name.position(self.host);
        if std::mem::replace(&mut self.interned[position], true) {
            return None;
        }
        let entry = Interned { iid: Some(position as u64 + 1), name: Some(name.text(self.host)) };
        Some(InternedData { event_names: vec![entry], ..Default::default() })
    }

    fn begin(&mut self, at: Instant, track: TrackId, name: Name, args: Vec<DebugAnnotation>) {
        let event = TrackEvent {
            r#type: Some(EventType::SliceBegin as i32),
            category_iids: vec![name.category() as u64],
            debug_annotations: args,
            ..Default::default()
        };
        self.emit(at, track, event, Some(name));
    }

    fn end(&mut self, at: Instant, track: TrackId, since: Instant, args: Vec<DebugAnnotation>) {
        let event = TrackEvent {
            r#type: Some(EventType::SliceEnd as i32),
            debug_annotations: args,
            ..Default::default()
        };
        self.emit(at, track, event, None);
        self.tracks[track.0].events += 1;
        self.tracks[track.0].total_ns += at.since(since).as_ns();
    }

    fn instant(&mut self, at: Instant, track: TrackId, name: Name, args: Vec<DebugAnnotation>) {
        let event = TrackEvent {
            r#type: Some(EventType::Instant as i32),
            category_iids: vec![name.category() as u64],
            debug_annotations: args,
            ..Default::default()
        };
        self.emit(at, track, event, Some(name));
        self.tracks[track.0].events += 1;
    }

    /// Shows what changed at the current instant, which is over.
    fn settle(&mut self) {
        for vcpu in std::mem::take(&mut self.changed_vcpus) {
            if let Some(processor) = self.hosted_by[vcpu.0] {
                self.changed_processors.push(processor);
            }
        }
        let mut changed = std::mem::take(&mut self.changed_processors);
        changed.sort_unstable();
        changed.dedup();
        let wanted: Vec<_> = changed.iter().map(|&processor| self.chain_of(processor)).collect();
        // First everything ends, then everything begins: a unit may move between two processors.
        let kept: Vec<_> = changed.iter().zip(&wanted).map(|(&p, chain)| self.end_chain(p, chain)).collect();
        for ((&processor, chain), kept) in changed.iter().zip(wanted).zip(kept) {
            self.begin_chain(processor, &chain[kept..]);
        }
        changed.clear();
        self.changed_processors = changed;
    }

    /// What the processor and the levels below it execute from now on.
    fn chain_of(&self, processor: usize) -> Vec<(TrackId, Name)> {
        let mut chain = Vec::new();
        let mut track = TrackId(self.first.processor + processor);
        let mut occupant = self.occupants[processor];
        // A chain passes each vCPU at most once.
        for _ in 0..=self.host.vcpus.len() {
            match occupant {
                Occupant::Idle if chain.is_empty() => return chain,
                Occupant::Idle => chain.push((track, Name::Idle)),
                Occupant::Overhead => chain.push((track, Name::Overhead)),
                Occupant::Network => chain.push((track, Name::Network)),
                Occupant::Away { by_thread: true } => chain.push((track, Name::OtherThread)),
                Occupant::Away { by_thread: false } => chain.push((track, Name::Standstill)),
                Occupant::IdleFor(unit) => chain.push((track, Name::IdleFor(unit))),
                Occupant::Unit(unit @ Entity::Task(_)) => {
                    chain.push((track, Name::Unit(unit)));
                    chain.push((self.track_of(unit), Name::Processor(processor)));
                }
                Occupant::Unit(unit @ Entity::Vcpu(VcpuIx(vcpu))) => {
                    chain.push((track, Name::Unit(unit)));
                    (track, occupant) = (self.track_of(unit), self.guests[vcpu]);
                    continue;
                }
            }
            break;
        }
        chain
    }

    /// Ends the open slices that do not go on; returns how many do.
    fn end_chain(&mut self, processor: usize, wanted: &[(TrackId, Name)]) -> usize {
        let shown = std::mem::take(&mut self.chains[processor]);
        let goes_on = |(old, new): &(&Running, &(TrackId, Name))| (old.track, old.name) == **new;
        let kept = shown.iter().zip(wanted).take_while(goes_on).count();
        for running in shown[kept..].iter().rev() {
            self.end(self.now, running.track, running.since, Vec::new());
            if let Some(vcpu) = self.vcpu_of(running.track) {
                self.hosted_by[vcpu] = None;
            }
        }
        self.chains[processor] = shown;
        self.chains[processor].truncate(kept);
        kept
    }

    fn begin_chain(&mut self, processor: usize, wanted: &[(TrackId, Name)]) {
        for &(track, name) in wanted {
            self.begin(self.now, track, name, Vec::new());
            self.chains[processor].push(Running { track, name, since: self.now });
            if let Some(vcpu) = self.vcpu_of(track) {
                self.hosted_by[vcpu] = Some(processor);
            }
        }
    }

    fn vcpu_of(&self, track: TrackId) -> Option<usize> {
        (self.first.vcpu..self.first.task).contains(&track.0).then(|| track.0 - self.first.vcpu)
    }

    fn release(&mut self, task: TaskIx, job: u64, deadline: Instant) {
        let lane = self.free_lane(task);
        let track = self.tasks[task.0].lanes[lane].0;
        self.begin(
            self.now,
            track,
            Name::Job,
            vec![arg(Arg::Job, job), arg(Arg::DeadlineNs, deadline.as_ns())],
        );
        self.tasks[task.0].open.push_back(OpenJob { job, lane, released: self.now, deadline });
    }

    /// Takes the lowest lane that no open job of the task uses.
    fn free_lane(&mut self, task: TaskIx) -> usize {
        let free = self.tasks[task.0].lanes.iter().position(|(_, taken)| !taken);
        let lane = free.unwrap_or_else(|| {
            let track =
                self.describe("jobs".into(), Some(self.track_of(Entity::Task(task))), TrackKind::Slices, 0);
            self.tasks[task.0].lanes.push((track, false));
            self.tasks[task.0].lanes.len() - 1
        });
        self.tasks[task.0].lanes[lane].1 = true;
        lane
    }

    fn complete(&mut self, task: TaskIx, job: u64, response: Duration, missed: bool) {
        // Nearly always the first: jobs of a task finish in the order of their release.
        let Some(at) = self.tasks[task.0].open.iter().position(|open| open.job == job) else { return };
        let Some(done) = self.tasks[task.0].open.remove(at) else { return };
        let lane = &mut self.tasks[task.0].lanes[done.lane];
        lane.1 = false;
        let track = lane.0;
        self.end(self.now, track, done.released, vec![arg(Arg::ResponseNs, response.as_ns())]);
        if missed {
            let deadlines = self.miss(task, &done);
            let args = vec![
                arg(Arg::Job, job),
                arg(Arg::DeadlineNs, done.deadline.as_ns()),
                arg(Arg::ResponseNs, response.as_ns()),
                arg(Arg::LateNs, self.now.since(done.deadline).as_ns()),
            ];
            self.instant(self.now, deadlines, Name::LateCompletion, args);
        }
    }

    /// Marks a deadline in the past at which its job was not finished. Perfetto sorts packets by time, so
    /// this one may stand later in the file.
    fn miss(&mut self, task: TaskIx, open: &OpenJob) -> TrackId {
        let parent = self.track_of(Entity::Task(task));
        let track = self.tasks[task.0]
            .deadlines
            .unwrap_or_else(|| self.describe("deadlines".into(), Some(parent), TrackKind::Instants, 1));
        self.tasks[task.0].deadlines = Some(track);
        self.instant(open.deadline, track, Name::DeadlineMissed, vec![arg(Arg::Job, open.job)]);
        track
    }

    fn budget(&mut self, unit: Entity, left: Duration) {
        let slot = match unit {
            Entity::Vcpu(VcpuIx(i)) => i,
            Entity::Task(TaskIx(i)) => self.host.vcpus.len() + i,
        };
        let parent = self.track_of(unit);
        let track = self.budgets[slot]
            .unwrap_or_else(|| self.describe("budget".into(), Some(parent), TrackKind::Counter, 2));
        self.budgets[slot] = Some(track);
        let event = TrackEvent {
            r#type: Some(EventType::Counter as i32),
            counter_value: Some(i64::try_from(left.as_ns()).unwrap_or(i64::MAX)),
            ..Default::default()
        };
        self.emit(self.now, track, event, None);
        self.tracks[track.0].events += 1;
    }

    /// A step of a domain's kernel, from `began` to now. Perfetto sorts packets by time: its beginning may
    /// stand later in the file than what came after it.
    fn network(&mut self, domain: DomainIx, step: NetworkStep, packet: Option<PacketRef>, began: Instant) {
        let parent = self.domains[domain.0];
        let track = self.networks[domain.0]
            .unwrap_or_else(|| self.describe("network".into(), Some(parent), TrackKind::Slices, 0));
        self.networks[domain.0] = Some(track);
        let name = packet.map_or(Name::Event, |packet| Name::Packet(step, packet.owner));
        let event = TrackEvent {
            r#type: Some(EventType::SliceBegin as i32),
            category_iids: vec![name.category() as u64],
            flow_ids: packet.map(|packet| packet.id + 1).into_iter().collect(),
            ..Default::default()
        };
        self.emit(began, track, event, Some(name));
        self.end(self.now, track, began, Vec::new());
    }

    /// The processor runs another thread from now on.
    fn host_thread(&mut self, processor: usize, thread: Option<Who>) {
        let next = thread.map(|thread| (thread, self.now));
        let Some((before, since)) = std::mem::replace(&mut self.stack.threads[processor], next) else {
            return;
        };
        if since < self.now {
            let track = TrackId(self.first.processor + processor);
            self.begin(since, track, Name::Thread(before), Vec::new());
            self.end(self.now, track, since, Vec::new());
        }
    }

    /// A request was on a part of its way. The slices of a request have a flow of their own, which joins
    /// them from card to card.
    fn request_part(&mut self, server: usize, request: u64, part: HostPart, [began, ended]: [Instant; 2]) {
        let segment = Segment::HOST.into_iter().position(|one| one == part.segment()).unwrap_or(0);
        let lanes = &self.stack.lanes[server][segment];
        let lane = lanes.iter().position(|lane| lane.1 <= began).unwrap_or(lanes.len());
        if lane == lanes.len() {
            let group = self.stack.servers[server];
            let name = Segment::HOST[segment].name().to_owned();
            let track = self.describe(name, Some(group), TrackKind::Slices, segment);
            self.stack.lanes[server][segment].push((track, Instant::ZERO));
        }
        let lane = &mut self.stack.lanes[server][segment][lane];
        lane.1 = ended;
        let track = lane.0;
        let name = Name::Part(part);
        let event = TrackEvent {
            r#type: Some(EventType::SliceBegin as i32),
            category_iids: vec![name.category() as u64],
            flow_ids: vec![((server as u64 + 1) << 40) + request],
            ..Default::default()
        };
        self.emit(began, track, event, Some(name));
        self.end(ended, track, began, Vec::new());
    }

    /// Closes what is open at `end`, marks the deadlines up to then of jobs that never finished, and writes
    /// the rest. Returns what is on each track that has events.
    ///
    /// # Errors
    /// The first error of the underlying writer, whenever it happened.
    pub fn finish(mut self, end: Instant) -> io::Result<Vec<TrackSummary>> {
        self.advance(end);
        self.settle();
        for processor in 0..self.chains.len() {
            self.end_chain(processor, &[]);
            self.host_thread(processor, None);
        }
        for task in (0..self.tasks.len()).map(TaskIx) {
            for open in std::mem::take(&mut self.tasks[task.0].open) {
                self.end(self.now, self.tasks[task.0].lanes[open.lane].0, open.released, Vec::new());
                if open.deadline <= self.now {
                    self.miss(task, &open);
                }
            }
        }
        let summary = self.summary();
        self.out.finish().map(|()| summary)
    }

    fn summary(&self) -> Vec<TrackSummary> {
        let mut summary: Vec<TrackSummary> = Vec::new();
        let mut at = std::collections::BTreeMap::new();
        for (i, track) in self.tracks.iter().enumerate().filter(|(_, track)| track.events > 0) {
            let path = self.path(TrackId(i));
            let slot = *at.entry(path.clone()).or_insert(summary.len());
            if slot == summary.len() {
                summary.push(TrackSummary { track: path, kind: track.kind, events: 0, total_ns: 0 });
            }
            summary[slot].events += track.events;
            summary[slot].total_ns += track.total_ns;
        }
        summary
    }

    fn path(&self, track: TrackId) -> String {
        let Track { name, parent, .. } = &self.tracks[track.0];
        parent.map_or_else(|| name.clone(), |parent| format!("{}/{name}", self.path(parent)))
    }

    /// Moves on to `at`; what the events of one instant left behind becomes visible when the instant is over.
    fn advance(&mut self, at: Instant) {
        if at > self.now {
            self.settle();
            self.now = at;
        }
    }
}

impl<W: Write> TraceSink for PerfettoWriter<'_, W> {
    fn event(&mut self, at: Instant, event: TraceEvent) {
        self.advance(at);
        match event {
            TraceEvent::Processor { processor, occupant } => {
                self.occupants[processor] = occupant;
                self.changed_processors.push(processor);
            }
            TraceEvent::Vcpu { vcpu, occupant } => {
                self.guests[vcpu.0] = occupant;
                self.changed_vcpus.push(vcpu);
            }
            TraceEvent::Budget { unit, left } => self.budget(unit, left),
            TraceEvent::Release { task, job, deadline } => self.release(task, job, deadline),
            TraceEvent::Network { domain, step, packet, began } => self.network(domain, step, packet, began),
            TraceEvent::Completion { task, job, response, missed } => {
                self.complete(task, job, response, missed)
            }
            TraceEvent::HostThread { processor, thread } => self.host_thread(processor, thread),
            TraceEvent::RequestPart { server, request, part, began, ended } => {
                self.request_part(server, request, part, [began, ended]);
            }
            // The execution tracks show what follows from these.
            TraceEvent::Wake { .. } | TraceEvent::Sleep { .. } => {}
        }
    }
}

impl Name {
    /// How many names there may be for `host`.
    fn table_len(host: &Host) -> usize {
        Name::first_part(host) + HostPart::ALL.len() + Name::threads(host)
    }

    /// Position of the first name of a request's part.
    fn first_part(host: &Host) -> usize {
        let owners = host.flows.len() + host.chains.len();
        9 + host.processors + 2 * (host.vcpus.len() + host.tasks.len()) + STEPS.len() * owners
    }

    /// How many threads a Linux host with a network stack has at most.
    fn threads(host: &Host) -> usize {
        let Some(stack) = &host.stack else { return 0 };
        2 * host.processors * (stack.cards.len() + 1) + 3 * stack.instances().count()
    }

    fn position(self, host: &Host) -> usize {
        let units = host.vcpus.len() + host.tasks.len();
        let entity = |unit| match unit {
            Entity::Vcpu(VcpuIx(i)) => i,
            Entity::Task(TaskIx(i)) => host.vcpus.len() + i,
        };
        match self {
            Name::Idle => 0,
            Name::Overhead => 1,
            Name::Job => 2,
            Name::DeadlineMissed => 3,
            Name::LateCompletion => 4,
            Name::Network => 5,
            Name::Event => 6,
            Name::Processor(i) => 7 + i,
            Name::Unit(unit) => 7 + host.processors + entity(unit),
            Name::IdleFor(unit) => 7 + host.processors + units + entity(unit),
            Name::Packet(step, owner) => {
                let step = STEPS.iter().position(|(s, _)| *s == step).unwrap_or(0);
                7 + host.processors + 2 * units + STEPS.len() * owner + step
            }
            Name::Standstill => Name::first_part(host) - 2,
            Name::OtherThread => Name::first_part(host) - 1,
            Name::Part(part) => Name::first_part(host) + part as usize,
            Name::Thread(thread) => {
                let cpus = host.processors;
                let cards = host.stack.as_ref().map_or(0, |stack| stack.cards.len());
                let of_server = 2 * cpus * (cards + 1);
                let thread = match thread {
                    Who::Irq(card, cpu) => card * cpus + cpu,
                    Who::Napi(card, cpu) => (cards + card) * cpus + cpu,
                    Who::Ksoftirqd(cpu) => 2 * cards * cpus + cpu,
                    Who::Kworker(cpu) => (2 * cards + 1) * cpus + cpu,
                    Who::Vnic(instance) => of_server + 3 * instance,
                    Who::Vcpu(instance) => of_server + 3 * instance + 1,
                    Who::Process(instance) => of_server + 3 * instance + 2,
                };
                Name::first_part(host) + HostPart::ALL.len() + thread
            }
        }
    }

    fn text(self, host: &Host) -> String {
        let entity = |unit| match unit {
            Entity::Vcpu(VcpuIx(i)) => &host.vcpus[i].name,
            Entity::Task(TaskIx(i)) => &host.tasks[i].name,
        };
        match self {
            Name::Idle => "idle".into(),
            Name::Overhead => "overhead".into(),
            Name::Job => "job".into(),
            Name::DeadlineMissed => "deadline missed".into(),
            Name::LateCompletion => "late completion".into(),
            Name::Network => "network".into(),
            Name::Event => "event".into(),
            Name::Standstill => "the machine stood still".into(),
            Name::OtherThread => "another thread".into(),
            Name::Packet(step, owner) => {
                let step = STEPS.iter().find(|(s, _)| *s == step).map_or("packet", |(_, name)| name);
                let whose = match owner.checked_sub(host.flows.len()) {
                    None => &host.flows[owner].name,
                    Some(chain) => &host.chains[chain].name,
                };
                format!("{step} {whose}")
            }
            Name::Processor(i) => format!("cpu {i}"),
            Name::Unit(unit) => entity(unit).clone(),
            Name::IdleFor(unit) => format!("idle for {}", entity(unit)),
            Name::Part(part) => part.name().into(),
            Name::Thread(thread) => host.stack.as_ref().map_or(String::new(), |stack| thread.name(stack)),
        }
    }

    fn category(self) -> Category {
        match self {
            Name::Idle => Category::Idle,
            Name::Overhead => Category::Overhead,
            Name::Job => Category::Job,
            Name::DeadlineMissed | Name::LateCompletion => Category::Deadline,
            Name::Processor(_) | Name::Unit(_) | Name::Thread(_) => Category::Execution,
            Name::IdleFor(_) => Category::IdleFor,
            Name::Network | Name::Event | Name::Packet(..) | Name::Part(_) => Category::Network,
            Name::Standstill | Name::OtherThread => Category::Away,
        }
    }
}

fn uuid(track: TrackId) -> u64 {
    track.0 as u64 + 1
}

fn arg(name: Arg, value: u64) -> DebugAnnotation {
    DebugAnnotation { name_iid: Some(name as u64), uint_value: Some(value) }
}

#[cfg(test)]
mod tests;
