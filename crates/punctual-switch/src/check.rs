//! Checks the invariants of a plane while it runs.
//!
//! The checker sees what goes into the discipline and what comes out, and keeps its own account. It never
//! asks the discipline. The invariants:
//!
//! - **Order.** Packets from one port to another are delivered in the order of their arrival.
//! - **Conservation.** Every packet that arrived is delivered or dropped once, and no other packet is.
//! - **Urgency**, as far as the discipline promises it ([`Preemption`]). Between packets: no stage starts a
//!   packet while a more urgent one waits in any stage. Between batches: TX takes the most urgent port, and
//!   at most a batch of less urgent packets goes before an urgent one in softnet; RX is FIFO. In TX, ports
//!   with a rate limit are exempt: their packets may have to wait.

use std::collections::VecDeque;

use punctual_net::discipline::{DisciplineInfo, Preemption};
use punctual_net::rtca::BATCH_OPTION;
use punctual_net::{DropReason, Fate, InterfaceId, InterfaceParams, Packet, Stage, Step};
use punctual_sched::Instant;
use punctual_sched::registry::Options;

/// A violated invariant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invariant violated: {0}")]
pub struct Violation(pub String);

#[derive(Debug)]
pub(crate) struct Checker {
    preemption: Preemption,
    /// The largest batch of any port.
    batch_max: u64,
    /// Urgencies of present and removed ports, most urgent first. The index is the rank.
    ranks: Vec<u64>,
    /// By port: its rank, and whether it has a rate limit.
    ports: Vec<(usize, bool)>,
    /// By source: packets in the discipline.
    inside: Vec<u64>,
    /// By stage and rank: waiting packets.
    waiting: [Vec<u64>; 3],
    /// By stage and rank: less urgent packets that started since the first of its packets began to wait.
    passed: [Vec<u64>; 3],
    passed_max: [u64; 3],
    /// By source and destination: the last packet delivered.
    delivered: Vec<Vec<Option<u64>>>,
    /// Ids of packets in the order of their arrival at RX.
    rx: VecDeque<u64>,
    came: u64,
    gone: u64,
    violation: Option<Violation>,
}

/// A smaller number is more urgent.
pub(crate) fn urgency(params: &InterfaceParams) -> u64 {
    params.priority.map_or(u64::MAX, u64::from)
}

const STAGES: [Stage; 3] = [Stage::Tx, Stage::Softnet, Stage::Rx];

impl Checker {
    pub(crate) fn new(discipline: &DisciplineInfo, options: &Options, ports: &[InterfaceParams]) -> Self {
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
    pub(crate) fn has_no_packets(&self, port: usize) -> bool {
        self.inside.get(port).is_none_or(|inside| *inside == 0)
    }

    /// A port was added, maybe with the number of a removed one, of which no packet is in the discipline.
    pub(crate) fn attach(&mut self, port: usize, params: &InterfaceParams) {
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

    /// Does the packet count as waiting for `stage`?
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

    /// The discipline accepted a packet.
    pub(crate) fn arrived(&mut self, packet: &Packet) {
        self.came += 1;
        self.inside[packet.source.index()] += 1;
        self.wait(packet, Stage::Tx);
    }

    /// The discipline chose a packet.
    pub(crate) fn starts(&mut self, step: &Step) {
        let (stage, rank) = (step.stage, self.rank(&step.packet));
        if self.counts(&step.packet, stage) {
            let waiting = &mut self.waiting[stage as usize][rank];
            match waiting.checked_sub(1) {
                Some(less) => *waiting = less,
                None => self.violated(|| format!("{:?} starts a packet that is not waiting there", stage)),
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
                None => self.violated(|| "RX takes a packet out of order".into()),
            }
        }
        self.judge_urgency(stage, rank);
    }

    /// Checks that a packet of this rank may start now.
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
                        format!("{passed} less urgent packets went before an urgent one; a batch is {most}")
                    });
                }
            }
        }
    }

    /// A stage completed a packet.
    pub(crate) fn ends(&mut self, step: &Step, fate: Fate) {
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
                        format!(
                            "{source} to {destination}: packet {number:#x} was delivered after {before:#x?}"
                        )
                    });
                }
            }
        }
        if !matches!(fate, Fate::Queued(_)) {
            let inside = &mut self.inside[step.packet.source.index()];
            *inside = inside.saturating_sub(1);
        }
    }

    /// Stage TX completed a packet. With a fate of a later stage it passed the stages before as well.
    #[cold]
    pub(crate) fn cuts_through(&mut self, step: &Step, fate: Fate) {
        let passes = [Fate::Delivered, Fate::Dropped(DropReason::DestinationRing)].contains(&fate);
        if !passes {
            return self.ends(step, fate);
        }
        self.ends(step, Fate::Queued(Stage::Softnet));
        let softnet = Step { stage: Stage::Softnet, ..*step };
        self.starts(&softnet);
        if fate != Fate::Delivered {
            return self.ends(&softnet, fate);
        }
        self.ends(&softnet, Fate::Queued(Stage::Rx));
        let rx = Step { stage: Stage::Rx, ..*step };
        self.starts(&rx);
        self.ends(&rx, fate);
    }

    /// A packet arrived and passed all stages at once.
    #[cold]
    pub(crate) fn passes(&mut self, packet: &Packet, fate: Fate) {
        self.arrived(packet);
        let step = Step {
            stage: Stage::Tx,
            packet: *packet,
            starts_round: true,
            round_packets_max: 1,
            round_until: Instant::NEVER,
        };
        self.starts(&step);
        self.cuts_through(&step, fate);
    }

    /// Ends the check with `left` packets in the discipline. Returns, for each stage, the most less urgent
    /// packets that went before a waiting one.
    ///
    /// # Errors
    /// The first invariant that was violated.
    pub(crate) fn finish(&mut self, left: u64) -> Result<[u64; 3], Violation> {
        let (came, gone) = (self.came, self.gone);
        if came != gone + left {
            self.violated(|| format!("{came} packets arrived, {gone} left and {left} remain"));
        }
        self.violation.clone().map_or(Ok(self.passed_max), Err)
    }
}

/// Does a packet's frame number follow another's of the same port? Numbers wrap; see `port_queue.rs`.
fn follows(before: u64, number: u64) -> bool {
    let ahead = ((number >> 16 & 0xffff_ffff) as u32).wrapping_sub((before >> 16 & 0xffff_ffff) as u32);
    (1..1 << 31).contains(&ahead)
}
