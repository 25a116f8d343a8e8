//! Networks: how late packets come, what they make kernels do, and when tasks are released by them.
//!
//! Everything depends on everything: packets delay each other and the tasks whose ends send more packets. The
//! method is that of Tindell & Clark, *Holistic Schedulability Analysis for Distributed Hard Real-Time
//! Systems*, 1994: each flow is a period with a jitter that grows on its way; starting from none, the tests
//! give delays, these give greater jitters, and so on until nothing changes. What does not settle has no
//! bound.
//!
//! On its way a packet waits for the kernel of the sending guest, for the driver domain's
//! ([`crate::packet_path`]), for the receiver's, each as long as the kernel's longest busy period in the time
//! that its vCPU surely gets ([`Service`]). Kernels work ahead of all tasks of their vCPU, so tasks see them
//! as work more urgent than all.
//!
//! A bound holds when nothing is lost on the way: every queue must hold all that comes while one packet
//! passes. What has no bound itself is still limited by the kernel that sends it, one packet for each
//! `guest_send`.

use std::collections::{BTreeMap, BTreeSet};

use punctual_model::Host;
use punctual_model::host::{Arrival, Parent, Work};
use punctual_model::index::DomainIx;
use punctual_model::network::{Endpoint, EventHandling, Network, Traffic};
use punctual_net::{RX_ROUND, TX_ROUND, netback, rtca};
use punctual_sched::Duration;

use crate::demand::Demand;
use crate::host::{Analysis, Index, KernelWork, Load};
use crate::packet_path::{Flow as PathFlow, Path, busy};
use crate::report::{ChainReport, FlowReport, Latency, Verdict};

/// Rounds of the analysis after which what still changes is given up.
const ROUNDS: usize = 48;

/// Packets in the stack in front of a TX ring at most (Linux `txqueuelen`; as the simulator has it).
const SEND_QUEUE_MAX: u64 = 1000;

/// Slots of a ring where the file gives none.
const RING_SLOTS: u64 = punctual_net::discipline::RING_SLOTS_DEFAULT as u64;

/// What is known about networks.
pub(crate) struct Networks {
    pub(crate) load: Load,
    pub(crate) flows: Vec<FlowReport>,
    pub(crate) chains: Vec<ChainReport>,
}

/// Analyses the networks of a host together with its pools.
pub(crate) fn solve(host: &Host, index: &Index) -> Networks {
    let mut state = State::new(host);
    if host.flows.is_empty() && host.chains.is_empty() {
        return Networks { load: Load::default(), flows: Vec::new(), chains: Vec::new() };
    }
    loop {
        for _ in 0..ROUNDS {
            let load = state.load();
            let analysis = Analysis::new(host, index).with_load(&load).all_pools();
            if !state.advance(&analysis) {
                let (flows, chains) = (state.flows(&analysis), state.chains(&analysis));
                return Networks { load, flows, chains };
            }
        }
        // Ends: every time at least one more is given up, for good.
        state.give_up();
    }
}

/// Packets in time: `burst` at once every `period` ns or less often, up to `jitter` ns late.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Curve {
    burst: u64,
    period: u64,
    jitter: u64,
}

impl Curve {
    fn every(period: u64) -> Self {
        Curve { burst: 1, period: period.max(1), jitter: 0 }
    }

    fn later(self, by: u64) -> Self {
        Curve { jitter: self.jitter.saturating_add(by), ..self }
    }

    /// The most packets in a closed interval of this length.
    fn packets(&self, window: u64) -> u64 {
        (window.saturating_add(self.jitter) / self.period).saturating_add(1).saturating_mul(self.burst)
    }

    /// `cost` for each packet.
    fn demand(&self, cost: u64) -> Demand {
        Demand::implicit(cost.saturating_mul(self.burst), self.period).late_by(self.jitter)
    }
}

/// What brings a packet about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    /// Time.
    Made(Curve),
    /// The arrival of another lane's packet.
    Packet(usize),
    /// The end of a task's job.
    Task(usize),
    /// Nothing that could be bounded.
    Any(&'static str),
}

/// One direction of a flow, or a hop of a chain.
struct Lane {
    network: usize,
    from: Endpoint,
    to: Endpoint,
    bytes: u32,
    source: Source,
    /// Why there is no bound.
    failed: Option<String>,
    /// When packets come into being; as far as that is known.
    created: Option<Curve>,
    /// Is there always room in the TX ring? Otherwise what waits for room may be sent at once later.
    has_room: bool,
    /// When they are in the TX ring, or in the card.
    posted: Curve,
    /// When they are in the receiver's RX ring.
    ringed: Curve,
    /// Is it more than what the driver domain can do at most?
    ringed_known: bool,
    /// When they have been received, those that are not lost.
    delivered: Option<Curve>,
    /// The longest from creation to delivery, in ns, unless it has failed.
    latency: u64,
    /// Nothing settles; it stays as it is.
    given_up: bool,
}

/// What is known so far.
struct State<'h> {
    host: &'h Host,
    lanes: Vec<Lane>,
    /// By flow: forth and back.
    flow_lanes: Vec<(usize, Option<usize>)>,
    /// By chain and step: the lane to it, if a packet goes there.
    chain_lanes: Vec<Vec<Option<usize>>>,
    /// By task that packets release: what does.
    released_by: BTreeMap<usize, Source>,
    /// Tasks with more than one source.
    several: BTreeSet<usize>,
    /// By task that packets release: its releases.
    served: BTreeMap<usize, Curve>,
    /// What the last round changed: lanes, and tasks that packets release.
    moving: (Vec<usize>, Vec<usize>),
}

fn ns(time: Duration) -> u64 {
    time.as_ns()
}

/// The domain's interface in the network, as the file describes it.
fn ring_slots(network: &Network, domain: DomainIx) -> u64 {
    let interface = network.interfaces.iter().find(|interface| interface.domain == domain);
    interface.and_then(|i| i.params.ring_slots).map_or(RING_SLOTS, u64::from)
}

/// With the greatest jitter.
fn most(network: &Network, cost: Duration) -> u64 {
    let more = u128::from(ns(cost)) * u128::from(network.costs.jitter_ppm);
    ns(cost).saturating_add(u64::try_from(more.div_ceil(1_000_000)).unwrap_or(u64::MAX))
}

fn wire_time(network: &Network, bytes: u32) -> u64 {
    let bits = u128::from(bytes) * 8 * 1_000_000_000;
    u64::try_from(bits.div_ceil(u128::from(network.nic.bandwidth_bps.max(1)))).unwrap_or(u64::MAX)
}

/// Copying to the receiver.
fn copy(network: &Network, bytes: u32) -> Duration {
    let copied = u128::from(ns(network.costs.copy_per_kib)) * u128::from(bytes);
    Duration::from_ns(u64::try_from(copied.div_ceil(1024)).unwrap_or(u64::MAX))
}

impl Lane {
    fn new(network: usize, from: Endpoint, to: Endpoint, bytes: u32, source: Source) -> Self {
        let idle = Curve::every(u64::MAX);
        let (failed, created) = (None, None);
        Lane {
            network,
            from,
            to,
            bytes,
            source,
            failed,
            created,
            has_room: true,
            posted: idle,
            ringed: idle,
            ringed_known: true,
            delivered: None,
            latency: 0,
            given_up: false,
        }
    }

    /// The least time from end to end.
    fn least(&self, host: &Host) -> u64 {
        let network = &host.networks[self.network];
        let costs = &network.costs;
        let link = |end: Endpoint| match end {
            Endpoint::Guest(_) => 0,
            Endpoint::Outside(o) => {
                wire_time(network, self.bytes) + ns(network.nic.delay) + ns(network.outside[o].delay)
            }
        };
        let (mut time, guest) = (link(self.from) + link(self.to), |end| matches!(end, Endpoint::Guest(_)));
        time += ns(costs.softnet);
        time += if guest(self.from) { ns(costs.guest_send) + ns(costs.tx) } else { 0 };
        time + if guest(self.to) { ns(costs.rx) + ns(costs.guest_receive) } else { 0 }
    }

    /// What is known of packets in the TX ring or the card when nothing is known of their creation: the
    /// sending kernel makes one after the other, the link carries one after the other.
    fn posted_at_most(&self, network: &Network) -> Curve {
        match self.from {
            Endpoint::Guest(_) => Curve::every(ns(network.costs.guest_send)),
            Endpoint::Outside(_) => Curve::every(wire_time(network, self.bytes)),
        }
    }

    /// The same for the receiver's RX ring: the driver domain handles one after the other in RX.
    fn ringed_at_most(&self, network: &Network) -> Curve {
        Curve::every(ns(network.costs.rx))
    }

    /// Its packets as the driver domain sees them.
    fn in_path(&self, network: &Network) -> PathFlow {
        let costs = &network.costs;
        let (from, to) = (guest(self.from), guest(self.to));
        let softnet = costs.softnet
            + if from.is_none() { costs.nic_receive } else { Duration::ZERO }
            + if to.is_none() { costs.nic_send } else { Duration::ZERO };
        let rx = to.map_or(0, |_| {
            most(network, costs.rx + copy(network, self.bytes)).saturating_add(most(network, costs.event))
        });
        PathFlow {
            priority: self.priority(network),
            burst: self.posted.burst,
            period: self.posted.period,
            jitter: self.posted.jitter,
            event: most(network, costs.interrupt),
            tx: from.map_or(0, |_| most(network, costs.tx)),
            softnet: most(network, softnet),
            rx,
            batch: self
                .owner(network)
                .and_then(|params| params.batch)
                .map_or_else(|| network.discipline.options.count(&rtca::BATCH_OPTION), u64::from),
        }
    }

    /// The interface whose priority the packets have.
    fn owner<'n>(&self, network: &'n Network) -> Option<&'n punctual_net::InterfaceParams> {
        let domain = guest(self.from).or(guest(self.to))?;
        network.interfaces.iter().find(|interface| interface.domain == domain).map(|i| &i.params)
    }

    fn priority(&self, network: &Network) -> u64 {
        let own = self.owner(network).and_then(|params| params.priority);
        own.map_or(1 << 32, u64::from)
    }
}

fn guest(end: Endpoint) -> Option<DomainIx> {
    match end {
        Endpoint::Guest(domain) => Some(domain),
        Endpoint::Outside(_) => None,
    }
}

const ACKNOWLEDGED: &str = "a stream's pace follows its acknowledgements and losses";

impl<'h> State<'h> {
    fn new(host: &'h Host) -> Self {
        let mut state = State {
            host,
            lanes: Vec::new(),
            flow_lanes: Vec::new(),
            chain_lanes: Vec::new(),
            released_by: BTreeMap::new(),
            several: BTreeSet::new(),
            served: BTreeMap::new(),
            moving: Default::default(),
        };
        for flow in &host.flows {
            state.add_flow(flow);
        }
        for chain in &host.chains {
            let mut lanes = vec![None];
            for pair in chain.steps.windows(2) {
                let [from, to] = [pair[0].0, pair[1].0];
                let lane = match (host.tasks[from].parent, host.tasks[to].parent) {
                    (Parent::Domain(a), Parent::Domain(b)) if a != b => {
                        let ends = [a, b].map(Endpoint::Guest);
                        let source = Source::Task(from);
                        Some(state.add(Lane::new(chain.network.0, ends[0], ends[1], chain.bytes, source)))
                    }
                    _ => None,
                };
                state.releases(to, lane.map_or(Source::Task(from), Source::Packet));
                lanes.push(lane);
            }
            state.chain_lanes.push(lanes);
        }
        (0..state.lanes.len()).for_each(|lane| state.first(lane, 0));
        let tasks: Vec<usize> = state.released_by.keys().copied().collect();
        for task in tasks {
            if let Some(curve) =
                state.origin(Source::Task(task), 0).filter(|_| !state.several.contains(&task))
            {
                state.served.insert(task, Curve { burst: 1, ..curve });
            }
        }
        state
    }

    fn add(&mut self, lane: Lane) -> usize {
        self.lanes.push(lane);
        self.lanes.len() - 1
    }

    fn releases(&mut self, task: usize, source: Source) {
        if self.released_by.insert(task, source).is_some() {
            self.several.insert(task);
        }
    }

    fn add_flow(&mut self, flow: &punctual_model::network::Flow) {
        let network = &self.host.networks[flow.network.0];
        let (forth, back) = match flow.traffic {
            Traffic::Ping { bytes, .. } => (bytes, Some(bytes)),
            Traffic::Request { bytes, reply_bytes, .. } => (bytes, Some(reply_bytes)),
            Traffic::Stream { bytes, ack_bytes, .. } => (bytes, Some(ack_bytes)),
            Traffic::Periodic { bytes, .. } | Traffic::Storm { bytes, .. } => (bytes, None),
        };
        let ends = (flow.from, flow.to);
        let forth = self.add(Lane::new(flow.network.0, ends.0, ends.1, forth, Source::Any(ACKNOWLEDGED)));
        let answered = match flow.traffic {
            // One for each packet that arrives at most, and a late one for a packet before: packets come over
            // the link one after the other.
            Traffic::Stream { bytes, .. } if guest(flow.to).is_none() => {
                let apart = wire_time(network, bytes);
                Source::Made(Curve::every(apart).later(apart))
            }
            Traffic::Stream { .. } => Source::Any(ACKNOWLEDGED),
            Traffic::Request { server: Some(server), .. } => {
                self.releases(server.0, Source::Packet(forth));
                Source::Task(server.0)
            }
            _ => Source::Packet(forth),
        };
        let back = back.map(|bytes| self.add(Lane::new(flow.network.0, ends.1, ends.0, bytes, answered)));
        // One by one: the next follows the answer, or its absence.
        let one_by_one = |timeout: Duration, pause: Duration| {
            let least = |lane: usize| self.lanes[lane].least(self.host);
            let turn = least(forth) + back.map_or(0, least) + ns(pause) + self.turnaround(flow);
            Source::Made(Curve::every(turn.min(ns(timeout))))
        };
        self.lanes[forth].source = match flow.traffic {
            Traffic::Ping { timeout, pause, .. } => one_by_one(timeout, pause),
            Traffic::Request { period: Some(period), .. } => Source::Made(Curve::every(ns(period))),
            Traffic::Request { timeout, .. } => one_by_one(timeout, Duration::ZERO),
            Traffic::Periodic { period, burst, .. } => {
                Source::Made(Curve { burst: burst.into(), ..Curve::every(ns(period)) })
            }
            Traffic::Storm { interval, .. } => match flow.from {
                // The next is made `interval` after the one before is sent.
                Endpoint::Guest(_) => {
                    Source::Made(Curve::every(ns(interval).saturating_add(ns(network.costs.guest_send))))
                }
                Endpoint::Outside(_) => Source::Made(Curve::every(ns(interval))),
            },
            Traffic::Stream { .. } => Source::Any(ACKNOWLEDGED),
        };
        self.flow_lanes.push((forth, back));
    }

    /// How long a host outside takes to answer.
    fn turnaround(&self, flow: &punctual_model::network::Flow) -> u64 {
        match flow.to {
            Endpoint::Outside(o) => ns(self.host.networks[flow.network.0].outside[o].turnaround),
            Endpoint::Guest(_) => 0,
        }
    }

    /// The time at the beginning of what brings about a source, without any delay. `depth`: chains of
    /// releases end.
    fn origin(&self, source: Source, depth: usize) -> Option<Curve> {
        if depth > self.lanes.len() + self.host.tasks.len() {
            return None;
        }
        match source {
            Source::Made(curve) => Some(curve),
            Source::Packet(lane) => self.origin(self.lanes[lane].source, depth + 1),
            Source::Task(task) => match (&self.host.tasks[task].work, self.released_by.get(&task)) {
                (_, Some(_)) if self.several.contains(&task) => None,
                (_, Some(source)) => self.origin(*source, depth + 1),
                (Work::Jobs { arrival, .. }, None) => Some(Curve::every(match *arrival {
                    Arrival::Periodic { period, .. } => ns(period),
                    Arrival::Sporadic { separation, .. } => ns(separation),
                })),
                _ => None,
            },
            Source::Any(_) => None,
        }
    }

    /// A lane before any delay.
    fn first(&mut self, lane: usize, depth: usize) {
        let source = self.lanes[lane].source;
        if let Source::Any(why) = source {
            return self.give_up_lane(lane, why);
        }
        match self.origin(source, depth) {
            Some(curve) => {
                let lane = &mut self.lanes[lane];
                (lane.created, lane.posted, lane.ringed) = (Some(curve), curve, curve);
                lane.delivered = Some(curve);
            }
            None => self.give_up_lane(lane, "nothing bounds how often it is sent"),
        }
    }

    /// Nothing is known of the lane but what who sends it can do at most, for good.
    fn give_up_lane(&mut self, lane: usize, why: &str) {
        let network = &self.host.networks[self.lanes[lane].network];
        let lane = &mut self.lanes[lane];
        lane.failed.get_or_insert_with(|| why.into());
        (lane.created, lane.delivered) = (None, None);
        (lane.given_up, lane.ringed_known, lane.has_room) = (true, false, false);
        (lane.posted, lane.ringed) = (lane.posted_at_most(network), lane.ringed_at_most(network));
    }

    // ---- from packets to load -----------------------------------------------------------------------

    fn vcpu(&self, domain: DomainIx) -> usize {
        self.host.domains[domain.0].vcpus.start
    }

    /// What networks make kernels and tasks do.
    fn load(&self) -> Load {
        let mut kernels: BTreeMap<usize, Vec<KernelWork>> = BTreeMap::new();
        for network in &self.host.networks {
            let with_kernel = network.interfaces.iter().map(|i| i.domain).chain([network.driver]);
            for domain in with_kernel {
                kernels.entry(self.vcpu(domain)).or_default();
            }
        }
        let mut add = |domain: DomainIx, curve: &Curve, cost: u64, wakes: u64| {
            let work = KernelWork { demand: curve.demand(cost), wakes: curve.burst.saturating_mul(wakes) };
            kernels.entry(self.vcpu(domain)).or_default().push(work);
        };
        for lane in &self.lanes {
            let network = &self.host.networks[lane.network];
            let costs = &network.costs;
            if let Some(from) = guest(lane.from) {
                let cost = most(network, costs.guest_send).saturating_add(most(network, costs.event));
                let sent = lane.created.filter(|_| lane.has_room);
                add(from, &sent.unwrap_or_else(|| lane.posted_at_most(network)), cost, 1);
            }
            if let Some(to) = guest(lane.to) {
                add(to, &lane.ringed, most(network, costs.guest_receive + costs.interrupt), 1);
            }
            let path = lane.in_path(network);
            let rounds = most(network, network.costs.round).saturating_mul(3);
            let steps = path.event.saturating_add(path.tx).saturating_add(path.softnet);
            let cost = steps.saturating_add(path.rx).saturating_add(rounds);
            // A packet may wake the driver domain when it comes and when its rate limit lets it go.
            add(network.driver, &lane.posted, cost, 2);
        }
        let served = self.served.iter().filter_map(|(task, curve)| {
            let Work::Served { cost, deadline } = self.host.tasks[*task].work else { return None };
            Some((*task, curve.demand(ns(cost.max).max(1)).due(ns(deadline))))
        });
        Load { served: served.collect(), kernels }
    }

    // ---- from load to packets -----------------------------------------------------------------------

    /// When the jobs of a task end, counted from its releases.
    fn ends(&self, task: usize, analysis: &Analysis) -> Option<Curve> {
        let releases = match self.host.tasks[task].work {
            Work::Served { .. } => *self.served.get(&task)?,
            _ => self.origin(Source::Task(task), 0)?,
        };
        Some(releases.later(response(task, analysis)?))
    }

    /// When packets of this source come into being.
    fn when(&self, source: Source, analysis: &Analysis) -> Option<Curve> {
        match source {
            Source::Made(curve) => Some(curve),
            Source::Packet(lane) => self.lanes[lane].delivered,
            Source::Task(task) => self.ends(task, analysis),
            Source::Any(_) => None,
        }
    }

    /// New curves from the analysis of the old ones. Has anything changed?
    fn advance(&mut self, analysis: &Analysis) -> bool {
        let (mut lanes, mut tasks) = (Vec::new(), Vec::new());
        let carries = self.carries(analysis);
        for at in 0..self.lanes.len() {
            if self.lanes[at].given_up {
                continue;
            }
            let lane = &self.lanes[at];
            let state = |lane: &Lane| {
                let curves = (lane.created, lane.posted, lane.ringed, lane.delivered);
                (curves, lane.has_room, lane.latency, lane.failed.is_some())
            };
            let before = state(lane);
            let Passed { created, has_room, posted, ringed, delivered, latency } =
                self.pass(at, analysis, &carries);
            let network = &self.host.networks[self.lanes[at].network];
            let lane = &mut self.lanes[at];
            (lane.created, lane.has_room) = (created, has_room);
            lane.posted = posted.unwrap_or_else(|| lane.posted_at_most(network));
            lane.ringed = ringed.unwrap_or_else(|| lane.ringed_at_most(network));
            (lane.ringed_known, lane.delivered) = (ringed.is_some(), delivered);
            match latency {
                Ok(latency) => lane.latency = latency,
                Err(why) => _ = lane.failed.get_or_insert(why),
            }
            if before != state(lane) {
                lanes.push(at);
            }
        }
        for (task, source) in self.released_by.clone() {
            let Some(before) = self.served.get(&task).copied() else { continue };
            let now = self.when(source, analysis);
            match now {
                Some(now) => self.served.insert(task, now),
                None => self.served.remove(&task),
            };
            if now != Some(before) {
                tasks.push(task);
            }
        }
        self.moving = (lanes, tasks);
        !self.moving.0.is_empty() || !self.moving.1.is_empty()
    }

    /// What still moves has no bound.
    fn give_up(&mut self) {
        let (lanes, tasks) = std::mem::take(&mut self.moving);
        for lane in lanes {
            self.give_up_lane(lane, "its delays and those of others feed each other without an end");
        }
        tasks.iter().for_each(|task| {
            self.served.remove(task);
        });
    }

    /// What is known of the lane after this round. What fails once fails ever after, since nothing ever gets
    /// less.
    fn pass(&self, at: usize, analysis: &Analysis, carries: &[Carry]) -> Passed {
        let lane = &self.lanes[at];
        let mut passed = Passed {
            created: None,
            has_room: false,
            posted: None,
            ringed: None,
            delivered: None,
            latency: Ok(0),
        };
        passed.latency = self.pass_stages(lane, analysis, carries[at].clone(), carries, &mut passed);
        passed
    }

    fn pass_stages(
        &self,
        lane: &Lane,
        analysis: &Analysis,
        carry: Carry,
        carries: &[Carry],
        passed: &mut Passed,
    ) -> Carry {
        let network = &self.host.networks[lane.network];
        let created = match lane.source {
            Source::Any(why) => return Err(why.into()),
            source => self.when(source, analysis).ok_or("what it follows has no bound")?,
        };
        passed.created = Some(created);
        let is_driver =
            |domain: &DomainIx| self.host.networks.iter().any(|network| network.driver == *domain);
        let ends = [guest(lane.from), guest(lane.to), Some(network.driver)];
        let has_interface = |domain: &DomainIx| {
            self.host.networks.iter().flat_map(|network| &network.interfaces).any(|i| i.domain == *domain)
        };
        if let Some(both) =
            ends.into_iter().flatten().find(|domain| is_driver(domain) && has_interface(domain))
        {
            let name = &self.host.domains[both.0].name;
            return Err(format!(
                "{name} drives one network and is a guest of another, which has no bound here"
            ));
        }
        let on_link = |end: Endpoint| match end {
            Endpoint::Guest(_) => 0,
            Endpoint::Outside(o) => ns(network.outside[o].delay).saturating_add(ns(network.nic.delay)),
        };
        let send = match lane.from {
            Endpoint::Guest(domain) => self.kernel_delay(domain, analysis)?,
            Endpoint::Outside(_) => {
                self.link_delay(lane.network, |lane| guest(lane.from).is_none(), |lane| lane.created)?
            }
        };
        let posted = created.later(send);
        passed.posted = Some(posted);
        let carry = carry?;
        self.ring_has_room(lane, carry)?;
        passed.has_room = true;
        passed.ringed = Some(posted.later(carry));
        let receive = match lane.to {
            Endpoint::Guest(domain) => self.kernel_delay(domain, analysis)?,
            Endpoint::Outside(_) => {
                let leaves = |lane: &Lane| guest(lane.to).is_none();
                self.link_delay(lane.network, leaves, |lane| lane.ringed_known.then_some(lane.ringed))?
            }
        };
        passed.delivered = Some(posted.later(carry).later(receive));
        self.nothing_is_lost(lane, [send, carry, receive], carries)?;
        let parts = [send, carry, receive, on_link(lane.from), on_link(lane.to)];
        Ok(parts.into_iter().fold(0, u64::saturating_add))
    }

    /// The longest time that the kernel of a guest has work without a break.
    fn kernel_delay(&self, domain: DomainIx, analysis: &Analysis) -> Result<u64, String> {
        let name = &self.host.domains[domain.0].name;
        let vcpu = self.vcpu(domain);
        let service = analysis.services.get(&vcpu);
        let service = service.ok_or_else(|| format!("{name} has no guarantee of processor time"))?;
        let work = analysis.kernel(vcpu).unwrap_or_default();
        let requested = |w: u64| work.iter().fold(0u64, |sum, k| sum.saturating_add(k.demand.requested(w)));
        busy(|w| service.time(requested(w), w))
            .ok_or_else(|| format!("{name} may be kept busy by packets for longer than its time allows"))
    }

    /// The longest wait for the link in one direction, the packet's own time on it included.
    fn link_delay(
        &self,
        network: usize,
        on_it: impl Fn(&Lane) -> bool,
        when: impl Fn(&Lane) -> Option<Curve>,
    ) -> Result<u64, String> {
        let mut demands = Vec::new();
        for lane in self.lanes.iter().filter(|lane| lane.network == network && on_it(lane)) {
            let curve = when(lane).ok_or("something without a bound shares the link")?;
            demands.push(curve.demand(wire_time(&self.host.networks[network], lane.bytes)));
        }
        let requested = |w: u64| demands.iter().fold(0u64, |sum, d| sum.saturating_add(d.requested(w)));
        busy(requested).ok_or_else(|| "the link may be overloaded".into())
    }

    /// Everything that passes the network's driver domain.
    fn path(&self, network: usize) -> Path {
        let of = &self.host.networks[network];
        let options = &of.discipline.options;
        let lanes = self.lanes.iter().filter(|lane| lane.network == network);
        Path {
            round: most(of, of.costs.round),
            tx_round: options.count(&TX_ROUND),
            rx_round: options.count(&RX_ROUND),
            ..Path::new(lanes.map(|lane| lane.in_path(of)).collect())
        }
    }

    /// [`State::carry_delay`] of every lane, also of those that have failed.
    fn carries(&self, analysis: &Analysis) -> Vec<Carry> {
        let mut known: BTreeMap<(usize, u64), Carry> = BTreeMap::new();
        let carry = |(at, lane): (usize, &Lane)| {
            let key = (lane.network, lane.priority(&self.host.networks[lane.network]));
            known.entry(key).or_insert_with(|| self.carry_delay(at, analysis)).clone()
        };
        self.lanes.iter().enumerate().map(carry).collect()
    }

    /// The longest time from the ring or card to the end of the driver domain's work on a packet.
    fn carry_delay(&self, at: usize, analysis: &Analysis) -> Carry {
        let lane = &self.lanes[at];
        let network = &self.host.networks[lane.network];
        let priority = lane.priority(network);
        let path = self.path(lane.network);
        let name = &self.host.domains[network.driver.0].name;
        let service = analysis.services.get(&self.vcpu(network.driver));
        let service =
            service.ok_or_else(|| format!("the driver domain {name} has no guarantee of processor time"))?;
        let discipline = network.discipline.info.name;
        let in_order = network.events == EventHandling::First;
        let ranked = in_order && ["rtca", "preemptive"].contains(&discipline);
        let concerned = |other: &Lane| !ranked || other.priority(network) <= priority;
        let limited = |other: &Lane| {
            let from = guest(other.from)?;
            let interface = network.interfaces.iter().find(|interface| interface.domain == from)?;
            interface.params.rate.is_some().then(|| self.host.domains[from.0].name.clone())
        };
        let mut beside = self.lanes.iter().filter(|other| other.network == lane.network && concerned(other));
        if let Some(domain) = beside.find_map(limited) {
            return Err(format!("the rate limit of {domain} may hold packets back for any time"));
        }
        let delay = match discipline {
            "rtca" if ranked => {
                if path.flows.iter().any(|flow| flow.batch > path.rx_round) {
                    return Err("a batch is more than a round of RX, for which there is no bound".into());
                }
                busy(|w| service.time(path.rtca_work(priority, w), w))
            }
            "preemptive" if ranked => busy(|w| service.time(path.preemptive_work(priority, w), w)),
            "netback" | "rtca" | "preemptive" => busy(|w| service.time(path.shipped_work(w), w)),
            _ => return Err("there is no bound for this discipline".into()),
        };
        delay.ok_or_else(|| match ranked {
            true => format!("{name} may be overloaded by packets that are as urgent or more"),
            false => format!("{name} may be overloaded by the packets of all together"),
        })
    }

    /// Does the sender's TX ring hold what comes while a packet passes? Otherwise its kernel may have to
    /// wait.
    fn ring_has_room(&self, lane: &Lane, carry: u64) -> Result<(), String> {
        let Some(from) = guest(lane.from) else { return Ok(()) };
        let same = |other: &&Lane| other.network == lane.network && other.from == lane.from;
        let packets = self.lanes.iter().filter(same).map(|other| other.posted.packets(carry));
        if packets.fold(0, u64::saturating_add) > ring_slots(&self.host.networks[lane.network], from) {
            return Err(format!("the TX ring of {} may be full", self.host.domains[from.0].name));
        }
        Ok(())
    }

    /// Do all queues hold what comes while a packet passes?
    fn nothing_is_lost(&self, lane: &Lane, delays: [u64; 3], carries: &[Carry]) -> Result<(), String> {
        let [send, carry, receive] = delays;
        let network = &self.host.networks[lane.network];
        let here = || self.lanes.iter().zip(carries).filter(|(other, _)| other.network == lane.network);
        let from_here = || here().map(|(other, _)| other).filter(|other| other.from == lane.from);
        let sum = |packets: &mut dyn Iterator<Item = u64>| packets.fold(0, u64::saturating_add);
        // Those that take their own time through the driver domain, and `more` behind it.
        let own_time = |more: u64, concerned: &dyn Fn(&Lane) -> bool| -> Carry {
            let mut packets = 0u64;
            for (other, carry) in here().filter(|(other, _)| concerned(other)) {
                let time = carry
                    .clone()
                    .map_err(|why| format!("what waits in the same ring has no bound: {why}"))?;
                let time = time.saturating_add(more);
                packets = packets.saturating_add(other.posted.packets(time));
            }
            Ok(packets)
        };
        if let Some(from) = guest(lane.from) {
            let name = &self.host.domains[from.0].name;
            let created = |other: &Lane| other.created.unwrap_or(other.posted).packets(send);
            if sum(&mut from_here().map(created)) > SEND_QUEUE_MAX {
                return Err(format!("the send queue of {name} may overflow"));
            }
        } else if own_time(0, &|other| guest(other.from).is_none())? > network.nic.ring_slots.into() {
            return Err("the network card's ring may overflow".into());
        }
        let ranked = network.discipline.info.name != "netback";
        let level = lane.priority(network);
        let same_queue = here().map(|(other, _)| other);
        let same_queue = same_queue.filter(|other| !ranked || other.priority(network) == level);
        let option = if ranked { &rtca::SOFTNET_LIMIT_OPTION } else { &netback::SOFTNET_LIMIT };
        let own = lane.owner(network).and_then(|params| params.softnet_limit).filter(|_| ranked);
        let limit = own.map_or_else(|| network.discipline.options.count(option), u64::from);
        if sum(&mut same_queue.map(|other| other.posted.packets(carry))) > limit {
            return Err("a softnet queue may overflow".into());
        }
        match lane.to {
            Endpoint::Guest(to) => {
                if own_time(receive, &|other| other.to == lane.to)? > ring_slots(network, to) {
                    return Err(format!("the RX ring of {} may be full", self.host.domains[to.0].name));
                }
            }
            Endpoint::Outside(_) => {
                let holds = wire_time(network, lane.bytes).saturating_mul(network.nic.ring_slots.into());
                if receive > holds {
                    return Err("the network card's ring may overflow".into());
                }
            }
        }
        Ok(())
    }

    // ---- answers ------------------------------------------------------------------------------------

    fn flows(&self, analysis: &Analysis) -> Vec<FlowReport> {
        let answer = |(flow, lanes): (&punctual_model::network::Flow, &(usize, Option<usize>))| {
            let (forth, back) = *lanes;
            let server = match flow.traffic {
                Traffic::Request { server, .. } => server.map(|task| task.0),
                _ => None,
            };
            let round_trip = matches!(flow.traffic, Traffic::Ping { .. } | Traffic::Request { .. });
            let lanes = [Some(forth), back];
            let failed = lanes.iter().flatten().find_map(|lane| self.lanes[*lane].failed.clone());
            let latency = match failed {
                Some(why) => Latency::Unknown { why },
                None => {
                    let packets = lanes.iter().flatten().map(|lane| self.lanes[*lane].latency);
                    let task = server.and_then(|task| response(task, analysis)).unwrap_or(0);
                    let answer = if round_trip { self.turnaround(flow) } else { 0 };
                    let bound_ns = packets.chain([task, answer]).fold(0, u64::saturating_add);
                    Latency::Bounded { bound_ns }
                }
            };
            FlowReport { name: flow.name.clone(), kind: flow.traffic.kind(), round_trip, latency }
        };
        self.host.flows.iter().zip(&self.flow_lanes).map(answer).collect()
    }

    fn chains(&self, analysis: &Analysis) -> Vec<ChainReport> {
        let mut reports = Vec::new();
        for (chain, lanes) in self.host.chains.iter().zip(&self.chain_lanes) {
            let deadline = ns(chain.deadline);
            let verdict = match self.chain(&chain.steps, lanes, analysis) {
                Err(why) => Verdict::Unknown { why },
                Ok(bound_ns) => match deadline.checked_sub(bound_ns) {
                    Some(slack_ns) => Verdict::Guaranteed { bound_ns, slack_ns },
                    None => Verdict::Unknown {
                        why: format!(
                            "the bound found, {}, is beyond the deadline",
                            Duration::from_us(bound_ns.div_ceil(1_000))
                        ),
                    },
                },
            };
            reports.push(ChainReport { name: chain.name.clone(), deadline_ns: deadline, verdict });
        }
        reports
    }

    fn chain(
        &self,
        steps: &[punctual_model::index::TaskIx],
        lanes: &[Option<usize>],
        analysis: &Analysis,
    ) -> Result<u64, String> {
        let mut bound = 0u64;
        for (step, lane) in steps.iter().zip(lanes) {
            let name = &self.host.tasks[step.0].name;
            if let Some(lane) = *lane {
                if let Some(why) = &self.lanes[lane].failed {
                    return Err(format!("the packet to {name}: {why}"));
                }
                bound = bound.saturating_add(self.lanes[lane].latency);
            }
            let response = response(step.0, analysis);
            bound = bound.saturating_add(response.ok_or_else(|| format!("{name} has no guarantee"))?);
        }
        Ok(bound)
    }
}

/// A time or a number, or why there is no bound on it.
type Carry = Result<u64, String>;

/// A lane after one more round.
struct Passed {
    created: Option<Curve>,
    has_room: bool,
    posted: Option<Curve>,
    ringed: Option<Curve>,
    delivered: Option<Curve>,
    latency: Carry,
}

/// A bound on a task's response time, in ns; of tasks that packets release also beyond the deadline.
fn response(task: usize, analysis: &Analysis) -> Option<u64> {
    match analysis.tasks.get(&task)?.verdict {
        Verdict::Guaranteed { bound_ns, .. } => Some(bound_ns),
        _ => analysis.served_times.get(&task).copied(),
    }
}
