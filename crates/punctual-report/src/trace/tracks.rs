//! The tracks of a trace, whatever host it is of: descriptions, slices, instants, and the names on them.

use std::io::{self, Write};
use std::marker::PhantomData;

use prost::Message;
use punctual_sched::Instant;
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
pub(super) struct TrackId(pub(super) usize);

struct Track {
    name: String,
    parent: Option<TrackId>,
    kind: TrackKind,
    events: u64,
    total_ns: u64,
}

/// Categories, which Perfetto can filter by; the discriminant is the interning id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(super) enum Category {
    Execution = 1,
    Idle,
    IdleFor,
    Overhead,
    Job,
    Deadline,
    Network,
    Away,
    Change,
}

const CATEGORIES: [&str; 9] =
    ["execution", "idle", "idle-for", "overhead", "job", "deadline", "network", "away", "change"];

/// Arguments of jobs and instants; the discriminant is the interning id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(super) enum Arg {
    Job = 1,
    DeadlineNs,
    ResponseNs,
    LateNs,
}

const ARGS: [&str; 4] = ["job", "deadline_ns", "response_ns", "late_ns"];

/// Names of slices and instants of a kind of host.
pub(super) trait SliceName: Copy {
    /// What is traced.
    type Host;

    /// How many names there may be.
    fn table_len(host: &Self::Host) -> usize;

    /// Position in the table of names; the interning id is one more.
    fn position(self, host: &Self::Host) -> usize;

    fn text(self, host: &Self::Host) -> String;

    fn category(self) -> Category;
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

/// The tracks of a trace of `host`.
pub(super) struct Tracks<'h, N: SliceName, W: Write> {
    host: &'h N::Host,
    out: Packets<W>,
    tracks: Vec<Track>,
    /// Which names are interned already, by [`SliceName::position`].
    interned: Vec<bool>,
    names: PhantomData<N>,
}

impl<'h, N: SliceName, W: Write> Tracks<'h, N, W> {
    /// No tracks yet. Nothing reaches `out` before some events are collected.
    pub(super) fn new(host: &'h N::Host, out: W) -> Self {
        let mut tracks = Tracks {
            host,
            out: Packets { out, buffer: Vec::with_capacity(BUFFER + 1024), error: None },
            tracks: Vec::new(),
            interned: vec![false; N::table_len(host)],
            names: PhantomData,
        };
        tracks.write_header();
        tracks
    }

    /// How many tracks are described.
    pub(super) fn len(&self) -> usize {
        self.tracks.len()
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

    /// Describes another track.
    pub(super) fn describe(
        &mut self,
        name: String,
        parent: Option<TrackId>,
        kind: TrackKind,
        rank: usize,
    ) -> TrackId {
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

    pub(super) fn emit(&mut self, at: Instant, track: TrackId, event: TrackEvent, name: Option<N>) {
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
    fn intern(&mut self, name: N) -> Option<InternedData> {
        let position = name.position(self.host);
        if std::mem::replace(&mut self.interned[position], true) {
            return None;
        }
        let entry = Interned { iid: Some(position as u64 + 1), name: Some(name.text(self.host)) };
        Some(InternedData { event_names: vec![entry], ..Default::default() })
    }

    pub(super) fn begin(&mut self, at: Instant, track: TrackId, name: N, args: Vec<DebugAnnotation>) {
        let event = TrackEvent {
            r#type: Some(EventType::SliceBegin as i32),
            category_iids: vec![name.category() as u64],
            debug_annotations: args,
            ..Default::default()
        };
        self.emit(at, track, event, Some(name));
    }

    pub(super) fn end(&mut self, at: Instant, track: TrackId, since: Instant, args: Vec<DebugAnnotation>) {
        let event = TrackEvent {
            r#type: Some(EventType::SliceEnd as i32),
            debug_annotations: args,
            ..Default::default()
        };
        self.emit(at, track, event, None);
        self.tracks[track.0].events += 1;
        self.tracks[track.0].total_ns += at.since(since).as_ns();
    }

    pub(super) fn instant(&mut self, at: Instant, track: TrackId, name: N, args: Vec<DebugAnnotation>) {
        let event = TrackEvent {
            r#type: Some(EventType::Instant as i32),
            category_iids: vec![name.category() as u64],
            debug_annotations: args,
            ..Default::default()
        };
        self.emit(at, track, event, Some(name));
        self.tracks[track.0].events += 1;
    }

    /// A value of a counter.
    pub(super) fn count(&mut self, at: Instant, track: TrackId, value: u64) {
        let event = TrackEvent {
            r#type: Some(EventType::Counter as i32),
            counter_value: Some(i64::try_from(value).unwrap_or(i64::MAX)),
            ..Default::default()
        };
        self.emit(at, track, event, None);
        self.tracks[track.0].events += 1;
    }

    /// A slice whose beginning may stand later in the file than what came after it: Perfetto sorts packets by
    /// time. Slices with the same flow are joined by arrows.
    pub(super) fn slice(&mut self, [began, ended]: [Instant; 2], track: TrackId, name: N, flow: Option<u64>) {
        let event = TrackEvent {
            r#type: Some(EventType::SliceBegin as i32),
            category_iids: vec![name.category() as u64],
            flow_ids: flow.into_iter().collect(),
            ..Default::default()
        };
        self.emit(began, track, event, Some(name));
        self.end(ended, track, began, Vec::new());
    }

    /// Writes the rest. Returns what is on each track that has events.
    pub(super) fn finish(self) -> io::Result<Vec<TrackSummary>> {
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
}

fn uuid(track: TrackId) -> u64 {
    track.0 as u64 + 1
}

pub(super) fn arg(name: Arg, value: u64) -> DebugAnnotation {
    DebugAnnotation { name_iid: Some(name as u64), uint_value: Some(value) }
}
