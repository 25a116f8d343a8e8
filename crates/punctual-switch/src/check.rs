//! Invariants of a plane, checked while it works.
//!
//! The checker sees what goes into the discipline and what comes out, and keeps its own account; it never
//! asks the discipline. What must hold:
//!
//! - **Order.** Packets from one port to another are delivered in the order in which they came.
//! - **Conservation.** A packet that came is delivered or dropped once, and nothing else is.
//! - **Urgency**, as far as the discipline promises it ([`Preemption`]). Between packets: nothing less urgent
//!   starts in any stage while something more urgent waits in any. Between batches: TX takes the most urgent
//!   port, and at most a batch of less urgent packets goes before an urgent one in softnet; RX is FIFO.
//!   Ports with a rate limit may have to wait in TX and are left out there.

use std::collections::VecDeque;

use punctual_net::discipline::{DisciplineInfo, Preemption};
use punctual_net::rtca::BATCH_OPTION;
use punctual_net::{Fate, InterfaceId, InterfaceParams, Packet, Stage, Step};
use punctual_sched::registry::Options;

/// A violated invariant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invariant violated: {0}")]
pub struct Violation(pub String);

/// The account of a plane.
#[derive(Debug)]
pub struct Checker {
    preemption: Preemption,
    /// The largest batch of any port.
    batch_max: u64,
    /// Urgencies of ports that there are or were, most urgent first: their ranks.
    ranks: Vec<u64>,
    /// By port: rank of its priority; does it have a rate limit?
    ports: Vec<(usize, bool)>,
    /// By source: packets in the discipline.
    inside: Vec<u64>,
    /// By stage and rank: packets that wait.
    waiting: [Vec<u64>; 3],
    /// By stage and rank: less urgent packets that started since the rank's first packet began to wait.
    passed: [Vec<u64>; 3],
    passed_max: [u64; 3],
    /// By source and destination: the last packet delivered.
    delivered: Vec<Vec<Option<u64>>>,
    /// Numbers of packets in their order of arrival at RX.
    rx: VecDeque<u64>,
    came: u64,
    gone: u64,
    violation: Option<Violation>,
}

/// The smaller, the more urgent.
pub(crate) fn urgency(params: &InterfaceParams) -> u64 {
    params.priority.map_or(u64::MAX, u64::from)
}

const STAGES: [Stage; 3] = [Stage::Tx, Stage::Softnet, Stage::Rx];

impl Checker {
    /// An account for these ports under this discipline with these options.
    pub fn new(discipline: &DisciplineInfo, options: &Options, ports: &[InterfaceParams]) -> Self {
        let has_batch = discipline.options.contains(&BATCH_OPTION);
        let batch = if has_batch { options.count(&BATCH_OPTION) } else { 1 };
        let mut ranks: Vec<u64> = ports.iter().map(urgency).collect();
        ranks.sort_unstable();
        ranks.dedup();
        let rank = |params| ranks.partition_point(|rank| *rank < urgency(params));
        let batches = ports.iter().map(|params| params.batch.map_or(batch, u64::from));
        let counts = || [vec![0; ranks.len()], vec![0; ranks.len()], vec![0; ranks.len()]];
        Checker {
            preemption: discipline.preemption,
            batch_max: batches.max().unwrap_or(batch),
            ports: ports.iter().map(|params| (rank(params), params.rate.is_some())).collect(),
            inside: vec![0; ports.len()],
            waiting: counts(),
            passed: counts(),
            passed_max: [0; 3],
            delivered: vec![vec![None; ports.len()]; ports.len()],
            ranks,
            rx: VecDeque::new(),
            came: 0,
            gone: 0,
            violation: None,
        }
    }

    /// Is no packet of the port in the discipline?
    pub fn has_no_packets(&self, port: usize) -> bool {
        self.inside.get(port).is_none_or(|inside| *inside == 0)
    }

    /// A port came, or another one took its place; no packet of it is in the discipline.
    pub fn attach(&mut self, port: usize, params: &InterfaceParams) {
        let urgency = urgency(params);
        let rank = self.ranks.partition_point(|other| *other < urgency);
        if self.ranks.get(rank) != Some(&urgency) {
            self.ranks.insert(rank, urgency);
            self.waiting.iter_mut().chain(&mut self.passed).for_each(|counts| counts.insert(rank, 0));
            for (other, _) in &mut self.ports {
                *other += usize::from(*other >= rank);
            }
        }
        if port == self.ports.len() {
            self.ports.push((rank, false));
            self.inside.push(0);
            self.delivered.iter_mut().for_each(|row| row.push(None));
            self.delivered.push(vec![None; port + 1]);
        }
        self.ports[port] = (rank, params.rate.is_some());
        self.batch_max = self.batch_max.max(params.batch.map_or(0, u64::from));
    }

    fn violated(&mut self, text: impl FnOnce() -> String) {
        if self.violation.is_none() {
            self.violation = Some(Violation(text()));
        }
    }

    fn rank(&self, packet: &Packet) -> usize {
        self.ports[packet.source.index()].0
    }

    /// Does the packet count among those that wait for `stage`?
    fn counts(&self, packet: &Packet, stage: Stage) -> bool {
        stage != Stage::Tx || !self.ports[packet.source.index()].1
    }

    fn wait(&mut self, packet: &Packet, stage: Stage) {
        if self.counts(packet, stage) {
            let rank = self.rank(packet);
            if self.waiting[stage as usize][rank] == 0 {
                self.passed[stage as usize][rank] = 0;
            }
            self.waiting[stage as usize][rank] += 1;
        }
        if stage == Stage::Rx {
            self.rx.push_back(packet.id);
        }
    }

    /// The discipline took a packet in.
    pub fn arrived(&mut self, packet: &Packet) {
        self.came += 1;
        self.inside[packet.source.index()] += 1;
        self.wait(packet, Stage::Tx);
    }

    /// The discipline chose a packet.
    pub fn starts(&mut self, step: &Step) {
        let (stage, rank) = (step.stage, self.rank(&step.packet));
        if self.counts(&step.packet, stage) {
            let waiting = &mut self.waiting[stage as usize][rank];
            match waiting.checked_sub(1) {
                Some(less) => *waiting = less,
                None => self.violated(|| format!("{:?} starts a packet that does not wait there", stage)),
            }
        }
        for ahead in 0..rank {
            if self.waiting[stage as usize][ahead] > 0 {
                self.passed[stage as usize][ahead] += 1;
                let passed = self.passed[stage as usize][ahead];
                self.passed_max[stage as usize] = self.passed_max[stage as usize].max(passed);
            }
        }
        if stage == Stage::Rx {
            let first = match self.preemption {
                Preemption::Packets => self.rx.iter().position(|id| *id == step.packet.id),
                _ => (self.rx.front() == Some(&step.packet.id)).then_some(0),
            };
            match first {
                Some(place) => drop(self.rx.remove(place)),
                None => self.violated(|| "RX takes a packet out of its order".into()),
            }
        }
        self.judge_urgency(stage, rank);
    }

    /// May a packet of this rank start now?
    fn judge_urgency(&mut self, stage: Stage, rank: usize) {
        let more_urgent =
            |checker: &Self, stage: Stage| checker.waiting[stage as usize][..rank].iter().any(|n| *n > 0);
        match self.preemption {
            Preemption::None => {}
            Preemption::Packets => {
                if let Some(other) = STAGES.into_iter().find(|other| more_urgent(self, *other)) {
                    self.violated(|| {
                        format!("{stage:?} starts a packet while a more urgent one waits for {other:?}")
                    });
                }
            }
            Preemption::Batches if stage == Stage::Tx => {
                if more_urgent(self, Stage::Tx) {
                    self.violated(|| "TX starts a packet while a more urgent one waits for it".into());
                }
            }
            Preemption::Batches => {
                let (passed, most) = (self.passed_max[Stage::Softnet as usize], self.batch_max);
                if passed > most {
                    self.violated(|| {
                        format!(
                            "{passed} less urgent packets went before an urgent one, where a batch is {most}"
                        )
                    });
                }
            }
        }
    }

    /// A packet is through a stage.
    pub fn ends(&mut self, step: &Step, fate: Fate) {
        match fate {
            Fate::Queued(stage) => self.wait(&step.packet, stage),
            Fate::Dropped(_) => self.gone += 1,
            Fate::Delivered => {
                self.gone += 1;
                let [source, destination] =
                    [step.packet.source, step.packet.destination].map(InterfaceId::index);
                let number = step.packet.id;
                let before = self.delivered[source][destination].replace(number);
                if before.is_some_and(|before| !follows(before, number)) {
                    self.violated(|| {
                        format!("from {source} to {destination} {number:#x} comes after {before:#x?}")
                    });
                }
            }
        }
        if !matches!(fate, Fate::Queued(_)) {
            let inside = &mut self.inside[step.packet.source.index()];
            *inside = inside.saturating_sub(1);
        }
    }

    /// So many packets are left in the discipline at the end. Returns the most less urgent packets that went
    /// before a waiting one in each stage.
    ///
    /// # Errors
    /// The first invariant that was violated.
    pub fn finish(&mut self, left: u64) -> Result<[u64; 3], Violation> {
        let (came, gone) = (self.came, self.gone);
        if came != gone + left {
            self.violated(|| format!("{came} packets came, {gone} went and {left} are left"));
        }
        self.violation.clone().map_or(Ok(self.passed_max), Err)
    }
}

/// Does a packet's number come after another's of the same flow? Numbers of a port wrap; see the plane.
fn follows(before: u64, number: u64) -> bool {
    let ahead = ((number >> 16) as u32).wrapping_sub((before >> 16) as u32);
    (1..1 << 31).contains(&ahead)
}
