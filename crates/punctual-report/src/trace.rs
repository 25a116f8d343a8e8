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

mod stack;
mod tracks;

use std::collections::VecDeque;
use std::io::{self, Write};

use punctual_model::Host;
use punctual_model::host::Parent;
use punctual_model::index::{DomainIx, TaskIx, VcpuIx};
use punctual_model::trace::{Entity, NetworkStep, Occupant, PacketRef, TraceEvent, TraceSink};
use punctual_sched::{Duration, Instant};

use tracks::{Arg, Category, SliceName, TrackId, Tracks, arg};

pub use stack::StackWriter;
pub use tracks::{TrackKind, TrackSummary};

/// Names of slices and instants.
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
    /// An event of the host file.
    Changed(usize),
    Standstill,
    OtherThread,
}

const STEPS: [(NetworkStep, &str); 5] = [
    (NetworkStep::Send, "send"),
    (NetworkStep::Tx, "tx"),
    (NetworkStep::Softnet, "softnet"),
    (NetworkStep::Rx, "rx"),
    (NetworkStep::Receive, "receive"),
];

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
    tracks: Tracks<'h, Name, W>,
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
    /// The track of events of the host file.
    changes: Option<TrackId>,
}

#[derive(Clone, Copy)]
struct Firsts {
    processor: usize,
    vcpu: usize,
    task: usize,
}

impl<'h, W: Write> PerfettoWriter<'h, W> {
    /// A writer for events about `host`. Nothing reaches `out` before some events are collected.
    pub fn new(host: &'h Host, out: W) -> Self {
        let mut writer = PerfettoWriter {
            host,
            tracks: Tracks::new(host, out),
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
            changes: None,
        };
        writer.describe_host();
        writer
    }

    /// One track after the other, so that the track of processor, vCPU or task `i` is `first + i`.
    fn describe_host(&mut self) {
        let host = self.host;
        let machine = self.tracks.describe("processors".into(), None, TrackKind::Group, 0);
        let mut domains: Vec<TrackId> = Vec::with_capacity(host.domains.len());
        for (rank, domain) in host.domains.iter().enumerate() {
            let parent = match domain.parent {
                Parent::Pool(_) => None,
                // Stands before it in the list.
                Parent::Domain(outer) => domains.get(outer.0).copied(),
            };
            let rank = 1 + host.vcpus.len() + host.tasks.len() + rank;
            domains.push(self.tracks.describe(domain.name.clone(), parent, TrackKind::Group, rank));
        }
        let mut pools = vec![None; host.pools.len()];
        for task in &host.tasks {
            if let Parent::Pool(pool) = task.parent
                && pools[pool.0].is_none()
            {
                let name = format!("pool {}", host.pools[pool.0].name);
                pools[pool.0] = Some(self.tracks.describe(name, None, TrackKind::Group, pool.0));
            }
        }
        self.first.processor = self.tracks.len();
        for processor in 0..host.processors {
            self.tracks.describe(format!("cpu {processor}"), Some(machine), TrackKind::Slices, processor);
        }
        self.first.vcpu = self.tracks.len();
        for (rank, vcpu) in host.vcpus.iter().enumerate() {
            self.tracks.describe(vcpu.name.clone(), Some(domains[vcpu.domain.0]), TrackKind::Slices, rank);
        }
        self.first.task = self.tracks.len();
        for (rank, task) in host.tasks.iter().enumerate() {
            let parent = match task.parent {
                Parent::Pool(pool) => pools[pool.0],
                Parent::Domain(domain) => Some(domains[domain.0]),
            };
            self.tracks.describe(task.name.clone(), parent, TrackKind::Slices, host.vcpus.len() + rank);
        }
        self.domains = domains;
    }

    fn track_of(&self, unit: Entity) -> TrackId {
        match unit {
            Entity::Vcpu(VcpuIx(i)) => TrackId(self.first.vcpu + i),
            Entity::Task(TaskIx(i)) => TrackId(self.first.task + i),
        }
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
            self.tracks.end(self.now, running.track, running.since, Vec::new());
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
            self.tracks.begin(self.now, track, name, Vec::new());
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
        self.tracks.begin(
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
            let track = self.tracks.describe(
                "jobs".into(),
                Some(self.track_of(Entity::Task(task))),
                TrackKind::Slices,
                0,
            );
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
        self.tracks.end(self.now, track, done.released, vec![arg(Arg::ResponseNs, response.as_ns())]);
        if missed {
            let deadlines = self.miss(task, &done);
            let args = vec![
                arg(Arg::Job, job),
                arg(Arg::DeadlineNs, done.deadline.as_ns()),
                arg(Arg::ResponseNs, response.as_ns()),
                arg(Arg::LateNs, self.now.since(done.deadline).as_ns()),
            ];
            self.tracks.instant(self.now, deadlines, Name::LateCompletion, args);
        }
    }

    /// Marks a deadline in the past at which its job was not finished. Perfetto sorts packets by time, so
    /// this one may stand later in the file.
    fn miss(&mut self, task: TaskIx, open: &OpenJob) -> TrackId {
        let parent = self.track_of(Entity::Task(task));
        let track = self.tasks[task.0].deadlines.unwrap_or_else(|| {
            self.tracks.describe("deadlines".into(), Some(parent), TrackKind::Instants, 1)
        });
        self.tasks[task.0].deadlines = Some(track);
        self.tracks.instant(open.deadline, track, Name::DeadlineMissed, vec![arg(Arg::Job, open.job)]);
        track
    }

    /// The host changed.
    fn changed(&mut self, event: usize) {
        let track = self
            .changes
            .unwrap_or_else(|| self.tracks.describe("events".into(), None, TrackKind::Instants, 0));
        self.changes = Some(track);
        self.tracks.instant(self.now, track, Name::Changed(event), Vec::new());
    }

    fn budget(&mut self, unit: Entity, left: Duration) {
        let slot = match unit {
            Entity::Vcpu(VcpuIx(i)) => i,
            Entity::Task(TaskIx(i)) => self.host.vcpus.len() + i,
        };
        let parent = self.track_of(unit);
        let track = self.budgets[slot]
            .unwrap_or_else(|| self.tracks.describe("budget".into(), Some(parent), TrackKind::Counter, 2));
        self.budgets[slot] = Some(track);
        self.tracks.count(self.now, track, left.as_ns());
    }

    /// A step of a domain's kernel, from `began` to now. Perfetto sorts packets by time: its beginning may
    /// stand later in the file than what came after it.
    fn network(&mut self, domain: DomainIx, step: NetworkStep, packet: Option<PacketRef>, began: Instant) {
        let parent = self.domains[domain.0];
        let track = self.networks[domain.0]
            .unwrap_or_else(|| self.tracks.describe("network".into(), Some(parent), TrackKind::Slices, 0));
        self.networks[domain.0] = Some(track);
        let name = packet.map_or(Name::Event, |packet| Name::Packet(step, packet.owner));
        let flow = packet.map(|packet| packet.id + 1);
        self.tracks.slice([began, self.now], track, name, flow);
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
        }
        for task in (0..self.tasks.len()).map(TaskIx) {
            for open in std::mem::take(&mut self.tasks[task.0].open) {
                self.tracks.end(self.now, self.tasks[task.0].lanes[open.lane].0, open.released, Vec::new());
                if open.deadline <= self.now {
                    self.miss(task, &open);
                }
            }
        }
        self.tracks.finish()
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
            TraceEvent::Changed { event } => self.changed(event),
            TraceEvent::Budget { unit, left } => self.budget(unit, left),
            TraceEvent::Release { task, job, deadline } => self.release(task, job, deadline),
            TraceEvent::Network { domain, step, packet, began } => self.network(domain, step, packet, began),
            TraceEvent::Completion { task, job, response, missed } => {
                self.complete(task, job, response, missed)
            }
            // The execution tracks show what follows from these.
            TraceEvent::Wake { .. } | TraceEvent::Sleep { .. } => {}
        }
    }
}

impl SliceName for Name {
    type Host = Host;

    fn table_len(host: &Host) -> usize {
        let owners = host.flows.len() + host.chains.len();
        let units = host.vcpus.len() + host.tasks.len();
        9 + host.processors + 2 * units + STEPS.len() * owners + host.events.len()
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
            Name::Changed(event) => Name::table_len(host) - 2 - host.events.len() + event,
            Name::Standstill => Name::table_len(host) - 2,
            Name::OtherThread => Name::table_len(host) - 1,
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
            Name::Changed(event) => host.events[event].name.clone(),
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
        }
    }

    fn category(self) -> Category {
        match self {
            Name::Idle => Category::Idle,
            Name::Overhead => Category::Overhead,
            Name::Job => Category::Job,
            Name::DeadlineMissed | Name::LateCompletion => Category::Deadline,
            Name::Processor(_) | Name::Unit(_) => Category::Execution,
            Name::IdleFor(_) => Category::IdleFor,
            Name::Network | Name::Event | Name::Packet(..) => Category::Network,
            Name::Changed(_) => Category::Change,
            Name::Standstill | Name::OtherThread => Category::Away,
        }
    }
}

#[cfg(test)]
mod tests;
