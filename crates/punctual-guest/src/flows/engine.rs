//! Flows and chains of one guest as pure code: which packets they send, and what follows from an arrival, by
//! the simulator's rules (`punctual_sim::net`). The engine reads no clock and knows no socket. Times are ns
//! since the run's start and never go back.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use punctual_jobs::Job;
use punctual_jobs::flow::{Goose, GooseState, SEND_QUEUE_MAX, STORM_RETRY_NS, burst_gap_ns};
use punctual_jobs::histogram::Histogram;
use punctual_jobs::stream::{ACK_DELAY_NS, Control, Receiver, Sender};

use super::frame::{Packet, Role};
use crate::protocol::{ChainStep, FlowEnd, FlowReport, Network, Next, SERVED_JOBS_MAX, Times, Traffic};

/// Most queued answers and stream packets: more than any window.
const SOFT_QUEUE_MAX: usize = 100_000;
/// Most unanswered requests whose answers are still accepted.
const WAITING_MAX: usize = 100_000;

/// A packet to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The receiver's Ethernet address.
    pub to: [u8; 6],
    pub packet: Packet,
    /// Length of the frame.
    pub bytes: u32,
    /// The PCP of its VLAN tag.
    pub pcp: Option<u8>,
    /// The flow's place; `None` for chains.
    flow: Option<usize>,
}

/// A job released by a packet or by the step before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// The task's place.
    pub task: usize,
    pub job: Job,
}

/// A timer of the flow at the place in its first field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// The next packets are due.
    Next(usize),
    /// The oldest request times out, unless its answer came.
    Timeout(usize),
    /// The stream's retransmission timeout, unless an acknowledgement came.
    Silence(usize),
    /// The stream's delayed acknowledgement is due.
    AckDelay(usize),
    /// A delayed answer is due: the request's number and creation time.
    Answer(usize, u64, u64),
}

/// State of a flow's end.
struct Flow {
    end: FlowEnd,
    /// Number of the next request, burst or packet.
    number: u64,
    /// Unanswered requests in order: number and timeout.
    waiting: VecDeque<(u64, u64)>,
    goose: GooseState,
    sender: Sender,
    receiver: Receiver,
    /// Is the timer set that gives up a request?
    request_set: bool,
    silence_at_ns: u64,
    /// When the stream's timer is due, or never. It is not moved to a later time.
    silence_set_for_ns: u64,
    ack_at_ns: u64,
    ack_set: bool,
    tally: Tally,
}

/// Measurements of a flow's end or a chain.
#[derive(Default)]
struct Tally {
    report: FlowReport,
    latency: Histogram,
    tardiness: Histogram,
}

/// A job of a task that packets release.
#[derive(Clone, Copy)]
struct ServedJob {
    /// For a chain: the release of its first step.
    origin_ns: u64,
    /// The request to answer: the flow's place, the request's number and creation time.
    request: Option<(usize, u64, u64)>,
}

/// Unfinished jobs of a task that packets release.
#[derive(Default)]
struct Served {
    released: u64,
    waiting: VecDeque<ServedJob>,
}

/// State of a guest's flows and chains.
pub struct Engine {
    duration_ns: u64,
    flows: Vec<Flow>,
    steps: Vec<ChainStep>,
    /// Measurements of chains, one for each owner.
    chains: Vec<Tally>,
    /// By the task's place.
    served: Vec<Served>,
    timers: BinaryHeap<Reverse<(u64, u64, Timer)>>,
    /// Timers ever set: orders timers of the same instant.
    timers_set: u64,
    /// Answers, acknowledgements and stream packets, sent before `sends`.
    soft: VecDeque<Outgoing>,
    /// All other packets.
    sends: VecDeque<Outgoing>,
    releases: VecDeque<Release>,
}

impl Engine {
    /// An engine for a network that [`Network::check`] accepted, in a guest with `tasks` tasks and a run of
    /// `duration_ns`.
    pub fn new(network: &Network, tasks: usize, duration_ns: u64) -> Engine {
        let mut engine = Engine {
            duration_ns,
            flows: network.flows.iter().map(Flow::new).collect(),
            steps: network.steps.clone(),
            chains: Vec::new(),
            served: (0..tasks).map(|_| Served::default()).collect(),
            timers: BinaryHeap::with_capacity(4 * network.flows.len() + 64),
            timers_set: 0,
            soft: VecDeque::with_capacity(SEND_QUEUE_MAX),
            sends: VecDeque::with_capacity(SEND_QUEUE_MAX),
            releases: VecDeque::with_capacity(64),
        };
        for step in &engine.steps {
            if engine.chains.iter().all(|chain| chain.report.owner != step.owner) {
                engine.chains.push(Tally::of(step.owner));
            }
        }
        for place in 0..engine.flows.len() {
            let end = &engine.flows[place].end;
            if end.begins {
                engine.set(end.start_ns, Timer::Next(place));
            }
        }
        engine
    }

    /// When to call [`Engine::advance`] again.
    pub fn next_ns(&self) -> u64 {
        self.timers.peek().map_or(u64::MAX, |Reverse((at_ns, _, _))| *at_ns)
    }

    /// Runs the timers that are due.
    pub fn advance(&mut self, now_ns: u64) {
        while let Some(&Reverse((at_ns, _, timer))) = self.timers.peek()
            && at_ns <= now_ns
        {
            self.timers.pop();
            match timer {
                Timer::Next(flow) => self.flow_next(flow, at_ns, now_ns),
                Timer::Timeout(flow) => self.request_timeout(flow, now_ns),
                Timer::Silence(flow) => self.stream_silence(flow, now_ns),
                Timer::AckDelay(flow) => self.stream_ack_delay(flow, now_ns),
                Timer::Answer(flow, number, origin_ns) => self.answer(flow, number, origin_ns),
            }
        }
    }

    /// The packet to send next, if there is one. The caller sends it and calls [`Engine::sent`].
    pub fn to_send(&self) -> Option<&Outgoing> {
        self.to_answer().or_else(|| self.sends.front())
    }

    /// As [`Engine::to_send`], but only answers, acknowledgements and stream packets. They are sent before
    /// the next packet is received, as in simulation.
    pub fn to_answer(&self) -> Option<&Outgoing> {
        self.soft.front()
    }

    /// Removes the packet of [`Engine::to_send`], which was sent.
    pub fn sent(&mut self, now_ns: u64) {
        let packet = match self.soft.pop_front() {
            None => self.sends.pop_front(),
            soft => soft,
        };
        if let Some(flow) = packet.and_then(|packet| packet.flow) {
            self.schedule_storm(flow, now_ns, 0);
        }
    }

    /// The next released job, if there is one.
    pub fn next_release(&mut self) -> Option<Release> {
        self.releases.pop_front()
    }

    /// The measurements, at the end of the run.
    pub fn into_reports(mut self) -> Vec<FlowReport> {
        // Packets that were due while the guest had no processor count as created.
        self.advance(self.duration_ns.saturating_sub(1));
        for place in 0..self.flows.len() {
            self.flows[place].expire(self.duration_ns);
        }
        let flows = self.flows.into_iter().map(|flow| flow.tally);
        flows.chain(self.chains).map(Tally::into_report).collect()
    }

    fn set(&mut self, at_ns: u64, timer: Timer) {
        if at_ns < self.duration_ns {
            self.timers_set += 1;
            self.timers.push(Reverse((at_ns, self.timers_set, timer)));
        }
    }

    /// Creates a packet of a flow. Returns false when the queue is full.
    fn create(&mut self, flow: usize, packet: (Role, u64, u64), bytes: u32, is_soft: bool) -> bool {
        let Flow { end, tally, .. } = &mut self.flows[flow];
        let (role, number, origin_ns) = packet;
        let packet = Packet { owner: end.owner, role, number, origin_ns };
        let outgoing = Outgoing { to: end.peer, packet, bytes, pcp: end.pcp, flow: Some(flow) };
        tally.report.created += 1;
        let (queue, most) =
            if is_soft { (&mut self.soft, SOFT_QUEUE_MAX) } else { (&mut self.sends, SEND_QUEUE_MAX) };
        if queue.len() >= most {
            tally.report.send_queue += 1;
            return false;
        }
        queue.push_back(outgoing);
        true
    }

    // ---- traffic ------------------------------------------------------------------------------------

    /// Creates the packets of a flow that were due at `due_ns`.
    fn flow_next(&mut self, place: usize, due_ns: u64, now_ns: u64) {
        let flow = &mut self.flows[place];
        if flow.number >= flow.end.count.unwrap_or(u64::MAX) {
            return;
        }
        let (seed, number) = (flow.end.seed, flow.number);
        match flow.end.traffic {
            Traffic::Ping { bytes, timeout_ns, .. } => {
                self.send_request(place, (due_ns, now_ns), bytes, timeout_ns, true);
            }
            Traffic::Request { bytes, timeout_ns, period_ns, .. } => {
                if let Some(period_ns) = period_ns {
                    self.set(due_ns + period_ns, Timer::Next(place));
                }
                self.send_request(place, (due_ns, now_ns), bytes, timeout_ns, period_ns.is_none());
            }
            Traffic::Periodic { bytes, period_ns, slack_mean_ns, burst } => {
                flow.number += 1;
                let gap_ns = burst_gap_ns(seed, number, period_ns, slack_mean_ns);
                self.set(due_ns.saturating_add(gap_ns), Timer::Next(place));
                for packet in 0..u64::from(burst) {
                    let packet = (Role::Plain, number.saturating_mul(burst.into()) + packet, due_ns);
                    self.create(place, packet, bytes, false);
                }
            }
            Traffic::Goose { bytes, period_ns, slack_mean_ns, retransmit_ns, heartbeat_ns } => {
                flow.number += 1;
                let goose = Goose { period_ns, slack_mean_ns, retransmit_ns, heartbeat_ns };
                let next_ns = flow.goose.after_ns(&goose, seed, due_ns);
                self.set(next_ns, Timer::Next(place));
                self.create(place, (Role::Plain, number, due_ns), bytes, false);
            }
            Traffic::Storm { bytes, .. } => {
                flow.number += 1;
                if !self.create(place, (Role::Plain, number, now_ns), bytes, false) {
                    self.schedule_storm(place, now_ns, STORM_RETRY_NS);
                }
            }
            Traffic::Stream { .. } => self.stream_sends(place, now_ns),
        }
    }

    fn schedule_storm(&mut self, flow: usize, now_ns: u64, least_ns: u64) {
        if let Traffic::Storm { interval_ns, .. } = self.flows[flow].end.traffic {
            self.set(now_ns + interval_ns.max(least_ns), Timer::Next(flow));
        }
    }

    // ---- requests and answers -----------------------------------------------------------------------

    /// Sends a request that was due at `due_ns`. Its latency counts from then, so a late guest shows.
    fn send_request(
        &mut self,
        place: usize,
        (due_ns, now_ns): (u64, u64),
        bytes: u32,
        timeout_ns: u64,
        one_by_one: bool,
    ) {
        let flow = &mut self.flows[place];
        flow.expire(now_ns);
        let number = flow.number;
        flow.number += 1;
        if flow.waiting.len() < WAITING_MAX {
            flow.waiting.push_back((number, now_ns.saturating_add(timeout_ns)));
        }
        if one_by_one && !std::mem::replace(&mut flow.request_set, true) {
            self.set(now_ns.saturating_add(timeout_ns), Timer::Timeout(place));
        }
        self.create(place, (Role::Request, number, due_ns), bytes, false);
    }

    /// For requests one at a time: drops an overdue request and sends the next one.
    fn request_timeout(&mut self, place: usize, now_ns: u64) {
        let flow = &mut self.flows[place];
        flow.request_set = false;
        match flow.waiting.front() {
            Some(&(_, until_ns)) if until_ns <= now_ns => {
                flow.expire(now_ns);
                self.flow_next(place, now_ns, now_ns);
            }
            Some(&(_, until_ns)) => {
                flow.request_set = true;
                self.set(until_ns, Timer::Timeout(place));
            }
            None => {}
        }
    }

    fn answer(&mut self, place: usize, number: u64, origin_ns: u64) {
        let bytes = match self.flows[place].end.traffic {
            Traffic::Request { reply_bytes, .. } => reply_bytes,
            Traffic::Ping { bytes, .. } => bytes,
            _ => return,
        };
        self.create(place, (Role::Reply, number, origin_ns), bytes, true);
    }

    // ---- streams ------------------------------------------------------------------------------------

    /// Sends the packets that the window allows.
    fn stream_sends(&mut self, place: usize, now_ns: u64) {
        let Traffic::Stream { bytes, .. } = self.flows[place].end.traffic else { return };
        while let Some((number, again)) = self.flows[place].sender.send(now_ns) {
            self.flows[place].tally.report.retransmissions += u64::from(again);
            self.create(place, (Role::Data, number, now_ns), bytes, true);
        }
        let flow = &mut self.flows[place];
        flow.silence_at_ns = flow.sender.expires_at_ns(now_ns).unwrap_or(u64::MAX);
        self.set_silence(place);
    }

    /// Sets the stream's timer unless it is due by then.
    fn set_silence(&mut self, place: usize) {
        let flow = &mut self.flows[place];
        if flow.silence_at_ns < flow.silence_set_for_ns {
            flow.silence_set_for_ns = flow.silence_at_ns;
            let at_ns = flow.silence_at_ns;
            self.set(at_ns, Timer::Silence(place));
        }
    }

    fn stream_silence(&mut self, place: usize, now_ns: u64) {
        let flow = &mut self.flows[place];
        if now_ns < flow.silence_set_for_ns {
            // An earlier time was set after this one, and is past.
            return;
        }
        flow.silence_set_for_ns = u64::MAX;
        if flow.silence_at_ns > now_ns {
            // Packets were acknowledged since the timer was set.
            return self.set_silence(place);
        }
        flow.tally.report.timeouts += 1;
        flow.sender.expire();
        self.stream_sends(place, now_ns);
    }

    fn stream_acknowledges(&mut self, place: usize, now_ns: u64) {
        let flow = &mut self.flows[place];
        let Traffic::Stream { ack_bytes, .. } = flow.end.traffic else { return };
        flow.receiver.acknowledged();
        let up_to = flow.receiver.up_to();
        self.create(place, (Role::Ack, up_to, now_ns), ack_bytes, true);
    }

    fn stream_ack_delay(&mut self, place: usize, now_ns: u64) {
        let flow = &mut self.flows[place];
        flow.ack_set = false;
        if !flow.receiver.owes() {
            return;
        }
        if flow.ack_at_ns <= now_ns {
            self.stream_acknowledges(place, now_ns);
        } else {
            flow.ack_set = true;
            let at_ns = flow.ack_at_ns;
            self.set(at_ns, Timer::AckDelay(place));
        }
    }

    // ---- arrivals -----------------------------------------------------------------------------------

    /// Handles a packet of `bytes` from `from`. Packets of no flow or chain of this guest are ignored.
    pub fn received(&mut self, from: [u8; 6], packet: &Packet, bytes: u64, now_ns: u64) {
        if let Role::Hop(step) = packet.role {
            return self.hop_arrived(packet, step, bytes, now_ns);
        }
        let fits = |flow: &Flow| {
            let is_for_the_beginner = matches!(packet.role, Role::Reply | Role::Ack);
            let end = &flow.end;
            end.owner == packet.owner && end.peer == from && end.begins == is_for_the_beginner
        };
        let Some(place) = self.flows.iter().position(fits) else { return };
        let flow = &mut self.flows[place];
        let tally = &mut flow.tally;
        tally.report.delivered += 1;
        match packet.role {
            Role::Request => self.request_arrived(place, packet, bytes, now_ns),
            Role::Reply => self.reply_arrived(place, packet, now_ns),
            Role::Plain => {
                tally.report.bytes += bytes;
                tally.record(now_ns.saturating_sub(packet.origin_ns), flow.end.deadline_ns);
            }
            Role::Data => self.data_arrived(place, packet, bytes, now_ns),
            Role::Ack => self.ack_arrived(place, packet, now_ns),
            Role::Hop(_) => {}
        }
    }

    fn request_arrived(&mut self, place: usize, packet: &Packet, bytes: u64, now_ns: u64) {
        let flow = &mut self.flows[place];
        flow.tally.report.bytes += bytes;
        let request = (place, packet.number, packet.origin_ns);
        match (flow.end.server, flow.end.turnaround_ns) {
            (Some(task), _) => self.release(task, now_ns, now_ns, Some(request)),
            (None, 0) => self.answer(place, packet.number, packet.origin_ns),
            (None, pause_ns) => {
                self.set(now_ns + pause_ns, Timer::Answer(place, packet.number, packet.origin_ns));
            }
        }
    }

    fn reply_arrived(&mut self, place: usize, packet: &Packet, now_ns: u64) {
        let flow = &mut self.flows[place];
        flow.expire(now_ns);
        // A request that timed out is not in the list.
        let Ok(at) = flow.waiting.binary_search_by_key(&packet.number, |&(number, _)| number) else { return };
        flow.waiting.remove(at);
        flow.tally.record(now_ns.saturating_sub(packet.origin_ns), flow.end.deadline_ns);
        match flow.end.traffic {
            Traffic::Ping { pause_ns, .. } => self.set(now_ns + pause_ns, Timer::Next(place)),
            Traffic::Request { period_ns: None, .. } => self.set(now_ns, Timer::Next(place)),
            _ => {}
        }
    }

    fn data_arrived(&mut self, place: usize, packet: &Packet, bytes: u64, now_ns: u64) {
        let Flow { end, receiver, tally, ack_at_ns, ack_set, .. } = &mut self.flows[place];
        let Traffic::Stream { window, .. } = end.traffic else { return };
        // A sender keeps to its window, so a number beyond the window is forged.
        if packet.number >= receiver.up_to().saturating_add(u64::from(window)) {
            return;
        }
        let owed = receiver.owes();
        let received = receiver.receive(packet.number);
        let owes = receiver.owes();
        tally.report.bytes += received.in_order * bytes;
        tally.record(now_ns.saturating_sub(packet.origin_ns), end.deadline_ns);
        if received.acknowledge {
            self.stream_acknowledges(place, now_ns);
        } else if owes && !owed {
            *ack_at_ns = now_ns + ACK_DELAY_NS;
            if !std::mem::replace(ack_set, true) {
                self.set(now_ns + ACK_DELAY_NS, Timer::AckDelay(place));
            }
        }
    }

    fn ack_arrived(&mut self, place: usize, packet: &Packet, now_ns: u64) {
        let flow = &mut self.flows[place];
        let Traffic::Stream { bytes, .. } = flow.end.traffic else { return };
        // An acknowledgement of data that was never sent is forged.
        if packet.number > flow.sender.sent() {
            return;
        }
        if let Some(number) = flow.sender.acknowledge(packet.number, now_ns) {
            flow.tally.report.retransmissions += 1;
            self.create(place, (Role::Data, number, now_ns), bytes, true);
        }
        self.stream_sends(place, now_ns);
    }

    // ---- chains and servers -------------------------------------------------------------------------

    /// Releases a job of a served task.
    fn release(&mut self, task: usize, now_ns: u64, origin_ns: u64, request: Option<(usize, u64, u64)>) {
        let Some(served) = self.served.get_mut(task) else { return };
        if served.released >= SERVED_JOBS_MAX || now_ns >= self.duration_ns {
            return;
        }
        let job = Job { number: served.released, release_ns: now_ns };
        served.released += 1;
        served.waiting.push_back(ServedJob { origin_ns, request });
        self.releases.push_back(Release { task, job });
    }

    /// Handles the end of a task's job that was released at `release_ns`.
    pub fn job_done(&mut self, task: usize, release_ns: u64, now_ns: u64) {
        let served = self.served.get_mut(task).and_then(|served| served.waiting.pop_front());
        let step = self.steps.iter().find(|step| step.task == task).copied();
        if let Some(step) = step {
            return self.step_done(step, served.map_or(release_ns, |served| served.origin_ns), now_ns);
        }
        if let Some((place, number, origin_ns)) = served.and_then(|served| served.request) {
            self.answer(place, number, origin_ns);
        }
    }

    fn step_done(&mut self, step: ChainStep, origin_ns: u64, now_ns: u64) {
        let Some(chain) = self.chains.iter_mut().find(|chain| chain.report.owner == step.owner) else {
            return;
        };
        match step.next {
            Next::Here(task) => self.release(task, now_ns, origin_ns, None),
            Next::There(to) => {
                let number = chain.report.created;
                chain.report.created += 1;
                if self.sends.len() >= SEND_QUEUE_MAX {
                    chain.report.send_queue += 1;
                    return;
                }
                let role = Role::Hop(step.step.wrapping_add(1));
                let packet = Packet { owner: step.owner, role, number, origin_ns };
                let (bytes, pcp) = (step.bytes, step.pcp);
                self.sends.push_back(Outgoing { to, packet, bytes, pcp, flow: None });
            }
            Next::End => {
                let due_ns = origin_ns.saturating_add(step.deadline_ns);
                chain.latency.record(now_ns.saturating_sub(origin_ns));
                chain.tardiness.record(now_ns.saturating_sub(due_ns));
                chain.report.in_time += u64::from(now_ns <= due_ns && due_ns <= self.duration_ns);
            }
        }
    }

    fn hop_arrived(&mut self, packet: &Packet, step: u8, bytes: u64, now_ns: u64) {
        let own = self.steps.iter().find(|own| own.owner == packet.owner && own.step == step).copied();
        let Some(own) = own else { return };
        if let Some(chain) = self.chains.iter_mut().find(|chain| chain.report.owner == packet.owner) {
            chain.report.delivered += 1;
            chain.report.bytes += bytes;
        }
        self.release(own.task, now_ns, packet.origin_ns, None);
    }
}

impl Flow {
    fn new(end: &FlowEnd) -> Flow {
        let (window, ack_every, control) = match end.traffic {
            Traffic::Stream { window, ack_every, control, .. } => (window, ack_every, control),
            _ => (1, 1, Control::Basic { timeout_ns: u64::MAX }),
        };
        Flow {
            end: end.clone(),
            number: 0,
            waiting: VecDeque::with_capacity(64),
            goose: GooseState::default(),
            sender: Sender::new(window, control),
            receiver: Receiver::new(ack_every),
            request_set: false,
            silence_at_ns: u64::MAX,
            silence_set_for_ns: u64::MAX,
            ack_at_ns: u64::MAX,
            ack_set: false,
            tally: Tally::of(end.owner),
        }
    }

    /// Drops and counts requests that have timed out.
    fn expire(&mut self, now_ns: u64) {
        while self.waiting.front().is_some_and(|&(_, until_ns)| until_ns <= now_ns) {
            self.waiting.pop_front();
            self.tally.report.timeouts += 1;
        }
    }
}

impl Tally {
    fn of(owner: u16) -> Tally {
        Tally { report: FlowReport { owner, ..FlowReport::default() }, ..Tally::default() }
    }

    fn record(&mut self, latency_ns: u64, deadline_ns: Option<u64>) {
        self.latency.record(latency_ns);
        self.report.late += u64::from(deadline_ns.is_some_and(|deadline_ns| latency_ns > deadline_ns));
    }

    fn into_report(self) -> FlowReport {
        let (latency, tardiness) = (Times::from(&self.latency), Times::from(&self.tardiness));
        FlowReport { latency, tardiness, ..self.report }
    }
}
