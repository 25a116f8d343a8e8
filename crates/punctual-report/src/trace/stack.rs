//! A trace of a Linux host with its network stack: which thread each processor runs, and where each request
//! is.
//!
//! Tracks: a group `processors` with one track per processor; a group per server, counts included, with
//! tracks for the segments of its requests' way. Requests overlap: each part takes the first track of its
//! segment that is free.

use std::io::{self, Write};

use punctual_host_stack::{HostStack, Who};
use punctual_model::results::{HostPart, Segment};
use punctual_model::trace::{StackEvent, TraceSink};
use punctual_sched::Instant;

use super::tracks::{Category, SliceName, TrackId, TrackKind, TrackSummary, Tracks};

/// Writes the events of a Linux host's network stack as a Perfetto trace, as
/// [`PerfettoWriter`](super::PerfettoWriter) does those of other hosts.
pub struct StackWriter<'h, W: Write> {
    tracks: Tracks<'h, Name, W>,
    now: Instant,
    /// The track of processor 0; the others follow.
    first_processor: usize,
    servers: Vec<Server>,
    /// What each processor runs, and since when.
    running: Vec<Option<(Who, Instant)>>,
}

/// The tracks of a server.
struct Server {
    group: TrackId,
    /// By segment: tracks, and until when each has a slice.
    lanes: [Vec<(TrackId, Instant)>; Segment::HOST.len()],
}

/// Names of slices.
#[derive(Clone, Copy)]
enum Name {
    Part(HostPart),
    Thread(Who),
}

impl<'h, W: Write> StackWriter<'h, W> {
    /// A writer for events of `stack`. Nothing reaches `out` before some events are collected.
    pub fn new(stack: &'h HostStack, out: W) -> Self {
        let mut tracks: Tracks<'h, Name, W> = Tracks::new(stack, out);
        let machine = tracks.describe("processors".into(), None, TrackKind::Group, 0);
        let first_processor = tracks.len();
        for cpu in 0..stack.processors {
            tracks.describe(format!("cpu {cpu}"), Some(machine), TrackKind::Slices, cpu);
        }
        let servers = stack.instances().enumerate().map(|(rank, name)| Server {
            group: tracks.describe(name, None, TrackKind::Group, 1 + rank),
            lanes: Default::default(),
        });
        let servers = servers.collect();
        let running = vec![None; stack.processors];
        StackWriter { tracks, now: Instant::ZERO, first_processor, servers, running }
    }

    /// From now on the processor runs this thread.
    fn runs(&mut self, processor: usize, thread: Option<Who>) {
        let next = thread.map(|thread| (thread, self.now));
        let Some((before, since)) = std::mem::replace(&mut self.running[processor], next) else {
            return;
        };
        if since < self.now {
            let track = TrackId(self.first_processor + processor);
            self.tracks.slice([since, self.now], track, Name::Thread(before), None);
        }
    }

    /// A request was on a part of its way. The slices of a request have a flow of their own, which joins
    /// them from card to card.
    fn part(&mut self, server: usize, request: u64, part: HostPart, [began, ended]: [Instant; 2]) {
        let segment = Segment::HOST.into_iter().position(|one| one == part.segment()).unwrap_or(0);
        let Server { group, lanes } = &mut self.servers[server];
        let lanes = &mut lanes[segment];
        let lane = lanes.iter().position(|lane| lane.1 <= began).unwrap_or(lanes.len());
        if lane == lanes.len() {
            let name = Segment::HOST[segment].name().to_owned();
            let track = self.tracks.describe(name, Some(*group), TrackKind::Slices, segment);
            lanes.push((track, Instant::ZERO));
        }
        lanes[lane].1 = ended;
        let flow = ((server as u64 + 1) << 40) + request;
        self.tracks.slice([began, ended], lanes[lane].0, Name::Part(part), Some(flow));
    }

    /// Closes what is open at `end` and writes the rest. Returns what is on each track that has events.
    ///
    /// # Errors
    /// The first error of the underlying writer, whenever it happened.
    pub fn finish(mut self, end: Instant) -> io::Result<Vec<TrackSummary>> {
        self.now = self.now.max(end);
        for processor in 0..self.running.len() {
            self.runs(processor, None);
        }
        self.tracks.finish()
    }
}

impl<W: Write> TraceSink<StackEvent> for StackWriter<'_, W> {
    fn event(&mut self, at: Instant, event: StackEvent) {
        self.now = self.now.max(at);
        match event {
            StackEvent::Thread { processor, thread } => self.runs(processor, thread),
            StackEvent::Part { server, request, part, began, ended } => {
                self.part(server, request, part, [began, ended]);
            }
        }
    }
}

/// Position of the first name of a part.
fn first_part(stack: &HostStack) -> usize {
    9 + stack.processors
}

/// Position of the first name of a thread.
fn first_thread(stack: &HostStack) -> usize {
    first_part(stack) + HostPart::ALL.len()
}

impl SliceName for Name {
    type Host = HostStack;

    fn table_len(stack: &HostStack) -> usize {
        let of_processors = 2 * stack.processors * (stack.cards.len() + 1);
        first_thread(stack) + of_processors + 3 * stack.instances().count()
    }

    fn position(self, stack: &HostStack) -> usize {
        let (cpus, cards) = (stack.processors, stack.cards.len());
        let of_server = 2 * cpus * (cards + 1);
        match self {
            Name::Part(part) => first_part(stack) + part as usize,
            Name::Thread(thread) => {
                let thread = match thread {
                    Who::Irq(card, cpu) => card * cpus + cpu,
                    Who::Napi(card, cpu) => (cards + card) * cpus + cpu,
                    Who::Ksoftirqd(cpu) => 2 * cards * cpus + cpu,
                    Who::Kworker(cpu) => (2 * cards + 1) * cpus + cpu,
                    Who::Vnic(instance) => of_server + 3 * instance,
                    Who::Vcpu(instance) => of_server + 3 * instance + 1,
                    Who::Process(instance) => of_server + 3 * instance + 2,
                };
                first_thread(stack) + thread
            }
        }
    }

    fn text(self, stack: &HostStack) -> String {
        match self {
            Name::Part(part) => part.name().into(),
            Name::Thread(thread) => thread.name(stack),
        }
    }

    fn category(self) -> Category {
        match self {
            Name::Part(_) => Category::Network,
            Name::Thread(_) => Category::Execution,
        }
    }
}
