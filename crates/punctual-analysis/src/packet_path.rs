//! How late a packet can come out of the manager domain's network path.
//!
//! The path is the one of Xi, Li, Lu, Gill, *Limitations and Solutions for Real-Time Local Inter-Domain
//! Communication in Xen*, WUCSE-2012-81 (rtca), sections II.D and V: TX, softnet and RX on one processor, in
//! rounds that are not preempted, RX first, then TX, then softnet. Three disciplines: as shipped, RTCA, and
//! preemptive across stages.
//!
//! # The argument
//!
//! The path never rests while a packet waits (no rate limits here), so a packet is gone at the latest when
//! everything at least as urgent that came during the same *busy period* is. What this holds up is the work
//! of those packets and, once per turn of the three rounds, the less urgent packets that a turn can still
//! take.
//!
//! Turns are bounded by packets. At the end of a turn's RX round nothing that softnet passed on is left (RX
//! takes more than a batch). If the busy period goes on, an urgent packet waits for TX or softnet. TX takes
//! an urgent one as long as there are any, so does softnet; by induction at least as many urgent packets have
//! passed softnet as turns have gone by. So a busy period with n urgent packets has at most n whole turns,
//! and one broken at each end.
//!
//! In a turn RTCA's TX takes at most the batches of all levels (the count starts again with each more urgent
//! level), softnet one batch of one level, RX what softnet passed on before. As shipped everybody is as
//! urgent as everybody; there a round of RX may leave packets behind, so a turn only moves *some* packet by
//! one stage: three turns a packet.
//!
//! Where nothing is known about arrivals, the limits of the queues bound the wait as shipped:
//! [`Path::shipped_by_limits`].

use punctual_sched::Duration;

use crate::demand::NANOSECOND;
use crate::supply::Supply;

/// Longest delay that is looked for.
const HORIZON: Duration = Duration::from_secs(60);

/// Steps towards a busy period; a path that needs more is all but overloaded.
const STEPS_MAX: u32 = 20_000;

/// What one interface sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// A smaller number is more urgent.
    pub priority: u64,
    /// This many packets at once, ...
    pub burst: u64,
    /// ... every `period` (above zero) or less often, ...
    pub period: Duration,
    /// ... up to this much late. One packet every period and at most b at once is a jitter of b - 1 periods.
    pub jitter: Duration,
    /// Processor time of the event that announces a packet, ahead of all packets.
    pub event: Duration,
    /// Processor time of a packet in TX; zero for packets that come from a network card.
    pub tx: Duration,
    pub softnet: Duration,
    /// In RX; zero for packets that leave by a network card.
    pub rx: Duration,
    pub batch: u64,
}

impl Flow {
    /// The most packets that come in a closed interval of length `window`.
    pub fn packets(&self, window: Duration) -> u64 {
        (window + self.jitter).div_floor(self.period).saturating_add(1).saturating_mul(self.burst)
    }

    fn cost(&self) -> Duration {
        self.event + self.tx + self.softnet + self.rx
    }

    fn longest_step(&self) -> Duration {
        self.event.max(self.tx).max(self.softnet).max(self.rx)
    }
}

/// The manager domain's path.
#[derive(Clone, Debug)]
pub struct Path {
    /// One entry per interface that sends.
    pub flows: Vec<Flow>,
    /// What the start of each round takes (the thread is scheduled, the softirq raised).
    pub round: Duration,
    pub tx_round: u64,
    pub rx_round: u64,
    pub softnet_round: u64,
    /// Time after which no packet of a softnet round starts.
    pub softnet_time: Duration,
    /// Packets that wait in softnet at most.
    pub softnet_limit: u64,
    /// Slots of each guest's ring, in each direction.
    pub ring_slots: u64,
}

impl Path {
    /// A path with the limits of Linux 3.x and Xen 4.1.
    pub fn new(flows: Vec<Flow>) -> Self {
        Path {
            flows,
            round: Duration::ZERO,
            tx_round: 238,
            rx_round: 238,
            softnet_round: 300,
            softnet_time: Duration::from_ms(2),
            softnet_limit: 1000,
            ring_slots: 256,
        }
    }

    /// As shipped: the longest delay of any packet from its ring to its destination, by what can arrive;
    /// `None` when the path can be overloaded.
    pub fn shipped_by_arrivals(&self) -> Option<Duration> {
        busy(|window| self.shipped_work(window))
    }

    /// As shipped, or in any other order: all work that can come in a busy period of this length.
    pub(crate) fn shipped_work(&self, window: Duration) -> Duration {
        // Each stage of each packet may begin a round.
        self.urgent_work(u64::MAX, window, |packets| self.round * 3 * packets)
    }

    /// As shipped: the longest delay of a packet that is not dropped, whatever the others send; guests only,
    /// without network cards, and without the time that events take. In each stage the packet waits behind a
    /// full queue, which a turn shortens by a round.
    pub fn shipped_by_limits(&self) -> Duration {
        let guests = self.flows.len() as u64;
        let greatest = |of: fn(&Flow) -> Duration| self.flows.iter().map(of).max().unwrap_or_default();
        let (tx, softnet, rx) = (greatest(|f| f.tx), greatest(|f| f.softnet), greatest(|f| f.rx));
        let in_time = self.softnet_time.div_floor(softnet.max(NANOSECOND)).saturating_add(1);
        let softirq = self.softnet_round.min(in_time).max(1);
        let turn = tx * self.tx_round + softnet * softirq + rx * self.rx_round + self.round * 3;
        // Everybody takes turns, so a full ring is empty after that many packets of everybody.
        let in_tx = guests.saturating_mul(self.ring_slots).div_ceil(self.tx_round.max(1));
        let in_softnet = self.softnet_limit.div_ceil(softirq);
        let in_rx = guests.saturating_mul(self.ring_slots).div_ceil(self.rx_round.max(1));
        // One turn is under way when the packet comes, and each stage may just have been passed by.
        turn * (in_tx + in_softnet + in_rx + 3)
    }

    /// RTCA: the longest delay of packets of this priority; `None` when the path can be overloaded by what is
    /// at least as urgent, or when a batch is more than a round of RX.
    pub fn rtca(&self, priority: u64) -> Option<Duration> {
        if self.flows.iter().any(|flow| flow.batch > self.rx_round) {
            return None;
        }
        busy(|window| self.rtca_work(priority, window))
    }

    /// RTCA: the work that can keep packets of this priority waiting in a busy period of this length. Batches
    /// are at most a round of RX.
    pub(crate) fn rtca_work(&self, priority: u64, window: Duration) -> Duration {
        let less_urgent = || self.flows.iter().filter(move |flow| flow.priority > priority);
        let greatest = |of: fn(&Flow) -> Duration| less_urgent().map(of).max().unwrap_or_default();
        let batch = less_urgent().map(|flow| flow.batch).max().unwrap_or(0);
        let in_tx = self.batches_of_all_levels().min(self.tx_round);
        let turn = greatest(|flow| flow.tx) * in_tx
            + (greatest(|flow| flow.softnet) * batch + greatest(|flow| flow.rx) * batch)
            + self.round * 3;
        self.urgent_work(priority, window, |packets| turn * packets.saturating_add(2))
    }

    /// Preemptive across stages: the longest delay of packets of this priority; `None` when the path can be
    /// overloaded by what is at least as urgent. Only the packet being processed holds it up.
    pub fn preemptive(&self, priority: u64) -> Option<Duration> {
        busy(|window| self.preemptive_work(priority, window))
    }

    /// Preemptive across stages: the work that can keep packets of this priority waiting in a busy period of
    /// this length.
    pub(crate) fn preemptive_work(&self, priority: u64, window: Duration) -> Duration {
        let less_urgent = self.flows.iter().filter(|flow| flow.priority > priority);
        let under_way = less_urgent.map(Flow::longest_step).max().unwrap_or_default();
        // Any packet in any stage may be the first of a batch.
        let rounds = |packets: u64| self.round * packets.saturating_mul(3).saturating_add(1);
        self.urgent_work(priority, window, |packets| rounds(packets) + under_way)
    }

    /// The greatest batch of each level, added up.
    fn batches_of_all_levels(&self) -> u64 {
        let mut levels: Vec<(u64, u64)> = self.flows.iter().map(|flow| (flow.priority, flow.batch)).collect();
        levels.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        levels.dedup_by_key(|(priority, _)| *priority);
        levels.iter().fold(0, |sum, (_, batch)| sum.saturating_add(*batch))
    }

    /// The work of packets at least as urgent that come in a window, `more` for so many of them, and the
    /// events of all others, one each of which may be pending when the window begins.
    fn urgent_work(&self, priority: u64, window: Duration, more: impl Fn(u64) -> Duration) -> Duration {
        let (mut packets, mut work) = (0u64, Duration::ZERO);
        for flow in &self.flows {
            let count = flow.packets(window);
            if flow.priority <= priority {
                packets = packets.saturating_add(count);
                work += flow.cost() * count;
            } else {
                work += flow.event * count.saturating_add(1);
            }
        }
        work + more(packets)
    }
}

/// The longest busy period when `work` can come in one of the given length; `None` if none ends within
/// [`HORIZON`] (or so slowly that the search gives up).
pub(crate) fn busy(work: impl Fn(Duration) -> Duration) -> Option<Duration> {
    let mut window = NANOSECOND;
    for _ in 0..STEPS_MAX {
        match work(window) {
            enough if enough <= window => return Some(window),
            more if more > HORIZON => return None,
            more => window = more,
        }
    }
    None
}

/// The same delay when the manager domain's vCPU gets no more than this supply. A busy period is time in
/// which it wants to run.
pub fn supplied(delay: Duration, supply: &Supply) -> Duration {
    supply.time_for(delay)
}

/// A chain of tasks and packets in which each step starts when the one before is done: the sum of the bounds
/// of its steps, each taken with the arrivals that the steps before can cause.
///
/// A step that comes up to `jitter` late can come in a burst: `1 + jitter / period` at once, which is what
/// [`burst_after`] says for the next flow.
pub fn chain(steps: &[Duration]) -> Duration {
    steps.iter().copied().sum()
}

/// Most packets at once of something that happens every `period` but up to `jitter` late.
pub fn burst_after(jitter: Duration, period: Duration) -> u64 {
    jitter.div_floor(period.max(NANOSECOND)) + 1
}
