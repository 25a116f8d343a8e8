//! Reads a Perfetto trace of ours as it arrives, keeping what lies in a window.

use std::collections::HashMap;
use std::io::{self, Write};

use prost::Message;

use super::rows::{Job, Row, RowKind, Slice, Timeline, Use};
use crate::format::fmt_ns;
use crate::perfetto::{EventType, TracePacket, TrackEvent};

/// Far longer than any packet that Punctual writes; a longer one means another kind of file.
const PACKET_MAX: usize = 1 << 24;

#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub from_ns: u64,
    pub until_ns: u64,
    /// The window ends after this many slices, steps and jobs.
    pub items_max: usize,
}

/// Why bytes are not a trace that can be shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("byte {offset} is not part of a Perfetto trace; expected a file written by `--trace`")]
    NotATrace {
        /// Where, in bytes from the begin.
        offset: u64,
    },
    #[error("the trace ends in the middle of a packet")]
    Truncated,
    #[error("this trace has no processor, vCPU or task; expected a file written by punctual's `--trace`")]
    NoRows,
    #[error("nothing to show from {} on: the trace ends at {}", fmt_ns(*.from_ns), fmt_ns(*.ends_ns))]
    EmptyWindow {
        from_ns: u64,
        /// Where the trace ends, in ns.
        ends_ns: u64,
    },
}

/// What a track is by its name and place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TrackKind {
    /// A row, or a group of rows.
    Slices,
    Jobs,
    Budget,
    Instants,
}

struct Track {
    name: String,
    parent: Option<u64>,
    kind: TrackKind,
    rank: i32,
    /// Open slices: label and, for jobs, number, release and deadline.
    open: Vec<Open>,
    /// Since when the innermost open slice is shown.
    since_ns: u64,
    slices: Vec<Slice>,
    budget: Vec<(u64, u64)>,
    jobs: Vec<Job>,
}

#[derive(Clone, Copy)]
struct Open {
    label: u32,
    job: u64,
    begin_ns: u64,
    deadline_ns: u64,
}

/// Takes a trace's bytes in pieces of any size.
///
/// As a [`Write`] it never fails; what is wrong with the bytes comes from [`Reader::finish`].
pub struct Reader {
    window: Window,
    cut: bool,
    buffer: Vec<u8>,
    /// Bytes before the buffer.
    offset: u64,
    error: Option<Error>,
    tracks: Vec<Track>,
    by_uuid: HashMap<u64, usize>,
    names: HashMap<(u32, u64), String>,
    categories: HashMap<(u32, u64), Use>,
    args: HashMap<(u32, u64), Arg>,
    labels: Vec<(String, Use)>,
    label_ids: HashMap<(String, Use), u32>,
    /// Label of a name under a category, so that a slice costs no string.
    label_cache: HashMap<(u32, u64, Use), u32>,
    items: usize,
    latest_ns: u64,
    /// The job that missed the first deadline, of those that have ended.
    first_miss: Option<Open>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Arg {
    Job,
    Deadline,
    Response,
}

/// Reads a timeline: `pass` hands all bytes of the trace to a reader. Where nobody chose the window
/// (`is_chosen`) and the timeline would end before the first missed deadline, it is read again from there.
///
/// # Errors
/// Those of `pass`.
pub fn read<E>(
    window: Window,
    is_chosen: bool,
    mut pass: impl FnMut(&mut Reader) -> Result<(), E>,
) -> Result<Reader, E> {
    let mut reader = Reader::new(window);
    pass(&mut reader)?;
    if let Some(window) = reader.window_of_first_miss().filter(|_| !is_chosen) {
        reader = Reader::new(window);
        pass(&mut reader)?;
    }
    Ok(reader)
}

impl Reader {
    /// A reader that keeps what lies in `window`.
    pub fn new(window: Window) -> Self {
        Reader {
            window,
            cut: false,
            buffer: Vec::new(),
            offset: 0,
            error: None,
            tracks: Vec::new(),
            by_uuid: HashMap::new(),
            names: HashMap::new(),
            categories: HashMap::new(),
            args: HashMap::new(),
            labels: Vec::new(),
            label_ids: HashMap::new(),
            label_cache: HashMap::new(),
            items: 0,
            latest_ns: 0,
            first_miss: None,
        }
    }

    /// A window with the first missed deadline, where this one was cut before it.
    pub fn window_of_first_miss(&self) -> Option<Window> {
        let open =
            self.tracks.iter().filter(|track| track.kind == TrackKind::Jobs).flat_map(|track| &track.open);
        let unfinished = open.filter(|open| open.deadline_ns <= self.latest_ns);
        let Open { begin_ns, deadline_ns, .. } =
            self.first_miss.iter().chain(unfinished).min_by_key(|job| job.deadline_ns)?;
        let from_ns = begin_ns.saturating_sub(deadline_ns.saturating_sub(*begin_ns));
        let is_beyond = self.cut && *deadline_ns > self.window.until_ns && from_ns > self.window.from_ns;
        is_beyond.then_some(Window { from_ns, until_ns: u64::MAX, ..self.window })
    }

    /// Handles every whole packet in the buffer.
    fn drain(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        let mut at = 0;
        while self.error.is_none() {
            match packet_at(&buffer[at..]) {
                Ok(Some((start, end))) => {
                    match TracePacket::decode(&buffer[at + start..at + end]) {
                        Ok(packet) => self.packet(packet),
                        Err(_) => self.error = Some(Error::NotATrace { offset: self.offset + at as u64 }),
                    }
                    at += end;
                }
                Ok(None) => break,
                Err(()) => self.error = Some(Error::NotATrace { offset: self.offset + at as u64 }),
            }
        }
        self.offset += at as u64;
        self.buffer = buffer;
        self.buffer.drain(..at);
    }

    fn packet(&mut self, packet: TracePacket) {
        let sequence = packet.trusted_packet_sequence_id.unwrap_or(0);
        if let Some(data) = packet.interned_data {
            for name in data.event_names {
                if let (Some(id), Some(name)) = (name.iid, name.name) {
                    self.names.insert((sequence, id), name);
                }
            }
            for category in data.event_categories {
                let what = match category.name.as_deref() {
                    Some("idle") => Use::Idle,
                    Some("idle-for") => Use::IdleFor,
                    Some("overhead") => Use::Overhead,
                    Some("network") => Use::Network,
                    Some("away") => Use::Away,
                    _ => Use::Execution,
                };
                self.categories.insert((sequence, category.iid.unwrap_or(0)), what);
            }
            for arg in data.debug_annotation_names {
                let known = match arg.name.as_deref() {
                    Some("job") => Arg::Job,
                    Some("deadline_ns") => Arg::Deadline,
                    Some("response_ns") => Arg::Response,
                    _ => continue,
                };
                self.args.insert((sequence, arg.iid.unwrap_or(0)), known);
            }
        }
        if let Some(track) = packet.track_descriptor {
            let name = track.name.unwrap_or_default();
            let kind = match name.as_str() {
                _ if track.counter.is_some() => TrackKind::Budget,
                "jobs" => TrackKind::Jobs,
                "deadlines" => TrackKind::Instants,
                _ => TrackKind::Slices,
            };
            self.by_uuid.insert(track.uuid.unwrap_or(0), self.tracks.len());
            self.tracks.push(Track {
                name,
                parent: track.parent_uuid,
                kind,
                rank: track.sibling_order_rank.unwrap_or(0),
                open: Vec::new(),
                since_ns: 0,
                slices: Vec::new(),
                budget: Vec::new(),
                jobs: Vec::new(),
            });
        }
        if let Some(event) = packet.track_event {
            self.event(sequence, packet.timestamp.unwrap_or(0), &event);
        }
    }

    fn event(&mut self, sequence: u32, at_ns: u64, event: &TrackEvent) {
        let Some(&track) = event.track_uuid.as_ref().and_then(|uuid| self.by_uuid.get(uuid)) else { return };
        self.latest_ns = self.latest_ns.max(at_ns);
        let is = |kind: EventType| event.r#type == Some(kind as i32);
        match self.tracks[track].kind {
            TrackKind::Slices if is(EventType::SliceBegin) => {
                let label = self.label(sequence, event);
                self.show_innermost(track, at_ns);
                self.tracks[track].open.push(Open { label, job: 0, begin_ns: at_ns, deadline_ns: 0 });
            }
            TrackKind::Slices if is(EventType::SliceEnd) => {
                self.show_innermost(track, at_ns);
                self.tracks[track].open.pop();
            }
            TrackKind::Jobs if is(EventType::SliceBegin) => {
                let arg = |which| self.arg(sequence, event, which).unwrap_or(0);
                let (job, deadline_ns) = (arg(Arg::Job), arg(Arg::Deadline));
                self.tracks[track].open.push(Open { label: 0, job, begin_ns: at_ns, deadline_ns });
            }
            TrackKind::Jobs if is(EventType::SliceEnd) => {
                let finished = self.arg(sequence, event, Arg::Response).is_some();
                self.end_job(track, finished.then_some(at_ns));
            }
            TrackKind::Budget if is(EventType::Counter) => {
                let left = event.counter_value.and_then(|value| u64::try_from(value).ok()).unwrap_or(0);
                self.step(track, at_ns, left);
            }
            _ => {}
        }
    }

    fn arg(&self, sequence: u32, event: &TrackEvent, which: Arg) -> Option<u64> {
        let of = |id: Option<u64>| id.and_then(|id| self.args.get(&(sequence, id)));
        event.debug_annotations.iter().find(|arg| of(arg.name_iid) == Some(&which))?.uint_value
    }

    fn label(&mut self, sequence: u32, event: &TrackEvent) -> u32 {
        let category = event.category_iids.first().and_then(|id| self.categories.get(&(sequence, *id)));
        let what = category.copied().unwrap_or(Use::Execution);
        let id = event.name_iid.unwrap_or(0);
        if let Some(&label) = self.label_cache.get(&(sequence, id, what)) {
            return label;
        }
        let name = self.names.get(&(sequence, id)).cloned().unwrap_or_default();
        let next = u32::try_from(self.labels.len()).unwrap_or(u32::MAX);
        let label = *self.label_ids.entry((name.clone(), what)).or_insert(next);
        if label == next {
            self.labels.push((name, what));
        }
        self.label_cache.insert((sequence, id, what), label);
        label
    }

    /// Where slices nest, only the innermost is shown: keeps its stretch up to `at_ns`.
    fn show_innermost(&mut self, track: usize, at_ns: u64) {
        let Window { from_ns, until_ns, .. } = self.window;
        let track = &mut self.tracks[track];
        let begin_ns = track.since_ns.max(from_ns);
        track.since_ns = track.since_ns.max(at_ns);
        let end_ns = at_ns.min(until_ns);
        if let Some(open) = track.open.last()
            && begin_ns < end_ns
        {
            track.slices.push(Slice { begin_ns, end_ns, label: open.label });
            self.count(at_ns);
        }
    }

    fn end_job(&mut self, track: usize, end_ns: Option<u64>) {
        let Window { from_ns, until_ns, .. } = self.window;
        let Some(open) = self.tracks[track].open.pop() else { return };
        let is_missed = end_ns.unwrap_or(self.latest_ns) > open.deadline_ns;
        if is_missed && self.first_miss.is_none_or(|first| open.deadline_ns < first.deadline_ns) {
            self.first_miss = Some(open);
        }
        if open.begin_ns >= until_ns || end_ns.is_some_and(|end| end < from_ns) {
            return;
        }
        self.tracks[track].jobs.push(Job {
            number: open.job,
            release_ns: open.begin_ns,
            deadline_ns: open.deadline_ns,
            end_ns: end_ns.filter(|end| *end <= until_ns),
        });
        self.count(end_ns.unwrap_or(open.begin_ns));
    }

    fn step(&mut self, track: usize, at_ns: u64, left: u64) {
        let Window { from_ns, until_ns, .. } = self.window;
        if at_ns > until_ns {
            return;
        }
        let at_ns = at_ns.max(from_ns);
        let budget = &mut self.tracks[track].budget;
        match budget.last_mut() {
            // Before the window begins only the last step matters; within it, the last of an instant.
            Some(last) if last.0 >= at_ns => last.1 = left,
            Some(last) if last.1 == left => {}
            _ => {
                budget.push((at_ns, left));
                self.count(at_ns);
            }
        }
    }

    fn count(&mut self, at_ns: u64) {
        self.items += 1;
        if self.items >= self.window.items_max && at_ns < self.window.until_ns && !self.cut {
            self.cut = true;
            self.window.until_ns = at_ns.max(self.window.from_ns);
        }
    }

    /// What was read.
    ///
    /// # Errors
    /// When the bytes are no trace of ours, or nothing of it lies in the window.
    pub fn finish(mut self) -> Result<Timeline, Error> {
        if let Some(error) = self.error {
            return Err(error);
        }
        if !self.buffer.is_empty() {
            return Err(Error::Truncated);
        }
        let Window { from_ns, until_ns, .. } = self.window;
        let to_ns = self.latest_ns.min(until_ns);
        for track in 0..self.tracks.len() {
            match self.tracks[track].kind {
                TrackKind::Slices => self.show_innermost(track, to_ns),
                TrackKind::Jobs => (0..self.tracks[track].open.len()).for_each(|_| self.end_job(track, None)),
                _ => {}
            }
        }
        let rows = self.rows();
        if rows.is_empty() {
            return Err(Error::NoRows);
        }
        if to_ns <= from_ns {
            return Err(Error::EmptyWindow { from_ns, ends_ns: self.latest_ns });
        }
        let mut timeline = Timeline { from_ns, to_ns, cut: self.cut, labels: self.labels, rows };
        for row in &mut timeline.rows {
            // What ended after the window was cut has been kept a little beyond it.
            row.slices.retain_mut(|slice| {
                slice.end_ns = slice.end_ns.min(to_ns);
                slice.begin_ns < slice.end_ns
            });
            row.budget.retain(|step| step.0 <= to_ns);
            row.budget.sort_by_key(|step| step.0);
            row.jobs.retain_mut(|job| {
                job.end_ns = job.end_ns.filter(|end| *end <= to_ns);
                job.release_ns < to_ns
            });
            row.jobs.sort_by_key(|job| (job.release_ns, job.number));
        }
        Ok(timeline)
    }

    /// Rows in the order that the tracks ask for, with the jobs and budgets that belong to them.
    fn rows(&mut self) -> Vec<Row> {
        let (children, roots) = self.tree();
        let is_row = |i: usize| {
            let is_group = children[i].iter().any(|&c| self.tracks[c].kind == TrackKind::Slices);
            self.tracks[i].kind == TrackKind::Slices && !is_group
        };
        let mut order = Vec::new();
        // Last in, first out: hence everything in reverse. What is its own ancestor is never reached.
        let mut stack = sorted(&self.tracks, roots);
        while let Some(i) = stack.pop() {
            order.extend(is_row(i).then_some(i));
            stack.extend(sorted(&self.tracks, children[i].clone()));
        }
        let mut rows: Vec<Row> = order.into_iter().map(|i| self.row(i, &children[i])).collect();
        // A nested domain's group may stand between the rows of the domain around it.
        let place: HashMap<String, usize> =
            rows.iter().enumerate().rev().map(|(i, row)| (row.group.clone(), i)).collect();
        // The vCPUs of a domain first, then its kernel's work, then tasks.
        let rank = |row: &Row| match row.kind {
            RowKind::Processor | RowKind::Vcpu => 0,
            RowKind::Network => 1,
            RowKind::Task => 2,
        };
        rows.sort_by_key(|row| (place[&row.group], rank(row)));
        rows
    }

    /// The children of each track, and the tracks without a parent.
    fn tree(&self) -> (Vec<Vec<usize>>, Vec<usize>) {
        let mut children = vec![Vec::new(); self.tracks.len()];
        let mut roots = Vec::new();
        for (i, track) in self.tracks.iter().enumerate() {
            match track.parent.and_then(|uuid| self.by_uuid.get(&uuid)) {
                Some(&parent) => children[parent].push(i),
                None => roots.push(i),
            }
        }
        (children, roots)
    }

    /// Makes a track and its children a row; they keep nothing.
    fn row(&mut self, i: usize, children: &[usize]) -> Row {
        let group = self.tracks[i].parent.and_then(|uuid| self.by_uuid.get(&uuid));
        let group = group.map_or_else(String::new, |&g| self.tracks[g].name.clone());
        let track = &self.tracks[i];
        let of_network = |slice: &Slice| self.labels[slice.label as usize].1 == Use::Network;
        let kind = match kind_of(&group, &track.name) {
            // A task may have this name too, but never shows such slices.
            RowKind::Task
                if track.name == "network" && track.slices.iter().all(of_network) && children.is_empty() =>
            {
                RowKind::Network
            }
            kind => kind,
        };
        let track = &mut self.tracks[i];
        let (name, slices) = (std::mem::take(&mut track.name), std::mem::take(&mut track.slices));
        let mut row = Row { group, name, kind, slices, budget: Vec::new(), jobs: Vec::new() };
        for &child in children {
            row.jobs.append(&mut self.tracks[child].jobs);
            row.budget.append(&mut self.tracks[child].budget);
        }
        row
    }
}

/// By falling rank, so that the stack gives the lowest first.
fn sorted(tracks: &[Track], mut of: Vec<usize>) -> Vec<usize> {
    of.sort_by_key(|&i| std::cmp::Reverse((tracks[i].rank, i)));
    of
}

/// The trace does not say what a track shows; the names of vCPUs do.
fn kind_of(group: &str, name: &str) -> RowKind {
    let number = name.strip_prefix(group).and_then(|rest| rest.strip_prefix('.'));
    match number {
        _ if group == "processors" => RowKind::Processor,
        Some(digits) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => RowKind::Vcpu,
        _ => RowKind::Task,
    }
}

/// Where the first packet's message begins and ends; `None` when more bytes are needed.
fn packet_at(bytes: &[u8]) -> Result<Option<(usize, usize)>, ()> {
    // Field 1, length-delimited.
    match bytes.first() {
        None => return Ok(None),
        Some(0x0a) => {}
        Some(_) => return Err(()),
    }
    let mut length = 0usize;
    for (i, byte) in bytes[1..].iter().enumerate().take(4) {
        length |= usize::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            let start = i + 2;
            return match length {
                PACKET_MAX.. => Err(()),
                _ if bytes.len() < start + length => Ok(None),
                _ => Ok(Some((start, start + length))),
            };
        }
    }
    if bytes.len() > 4 { Err(()) } else { Ok(None) }
}

impl Write for Reader {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.error.is_none() {
            self.buffer.extend_from_slice(bytes);
            self.drain();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
