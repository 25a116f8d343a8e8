//! What flows and chains send, and what follows when a packet has arrived.

use punctual_jobs::flow::{STORM_RETRY_NS, burst_gap_ns};
use punctual_jobs::stream::ACK_DELAY_NS;
use punctual_model::index::TaskIx;
use punctual_model::network::Traffic;
use punctual_model::results::Segment;
use punctual_sched::{Duration, Instant};

use super::clock::Timed;
use super::{ChainStep, End, Lost, Packet, Role, SEGMENTS, Served};
use crate::arrivals::{Job, NextJob};
use crate::machine::Machine;
use crate::observe::{Event, Observer, PacketEvent};

/// A storm that finds the queue in front of the ring full tries again after this.
const STORM_RETRY: Duration = Duration::from_ns(STORM_RETRY_NS);
/// How long a packet of a stream waits for its acknowledgement at most.
const ACK_DELAY: Duration = Duration::from_ns(ACK_DELAY_NS);

impl<O: Observer> Machine<'_, O> {
    /// A packet comes into being at the beginning of its lane.
    fn create(&mut self, lane: u32, role: Role, bytes: u32) -> u32 {
        let now = self.now;
        let state = &mut self.net.lanes[lane as usize];
        state.created += 1;
        let (number, owner) = (state.created, state.owner);
        let tally = self.net.tally(owner);
        tally.packets.created += 1;
        tally.alive += 1;
        self.notify(Event::Packet(PacketEvent::Created { owner, lane, number }));
        let segments = [Duration::ZERO; SEGMENTS];
        self.net.packets.add(Packet { lane, number, role, bytes, origin: now, mark: now, segments })
    }

    /// The packet sets out. `soft`: it answers what its sender has just received.
    fn set_out(&mut self, packet: u32, soft: bool) {
        let lane = self.net.packets[packet].lane;
        match self.net.lanes[lane as usize].from {
            End::Interface(ix) => self.guest_sends(ix, packet, soft),
            End::Outside { .. } => self.outside_sends(packet),
        }
    }

    /// The packet has reached its receiver.
    pub(super) fn delivered(&mut self, packet: u32) {
        let p = self.net.packets[packet];
        let owner = self.net.lanes[p.lane as usize].owner;
        self.notify(Event::Packet(PacketEvent::Delivered { owner, lane: p.lane, number: p.number }));
        let tally = self.net.tally(owner);
        tally.packets.delivered += 1;
        tally.alive -= 1;
        match p.role {
            Role::Request(request) => self.request_arrived(owner, packet, request),
            Role::Reply(request) => {
                self.net.packets.remove(packet);
                self.reply_arrived(owner, &p, request);
            }
            Role::Plain => {
                self.net.packets.remove(packet);
                self.arrived(owner, &p, u64::from(p.bytes));
            }
            Role::Data(number) => {
                self.net.packets.remove(packet);
                self.data_arrived(owner, &p, number);
            }
            Role::Ack(up_to) => {
                self.net.packets.remove(packet);
                self.ack_arrived(owner, up_to);
            }
            Role::Hop { step } => {
                self.net.packets.remove(packet);
                self.hop_arrived(owner, &p, step);
            }
        }
    }

    /// Counts a packet whose latency ends here.
    fn arrived(&mut self, owner: u32, p: &Packet, bytes: u64) {
        let now = self.now;
        let tally = self.net.tally(owner);
        tally.packets.bytes += bytes;
        let latency = now.since(p.origin);
        tally.times.record(latency, &p.segments);
        if let Some(state) = self.net.flows.get_mut(owner as usize) {
            state.late += u64::from(state.deadline.is_some_and(|deadline| latency > deadline));
        }
        self.notify(Event::Packet(PacketEvent::Timed { owner, latency, segments: &p.segments }));
    }

    // ---- what flows send ----------------------------------------------------------------------------

    /// The flow's next packets are due.
    pub(super) fn flow_next(&mut self, flow: u32) {
        let now = self.now;
        let state = &mut self.net.flows[flow as usize];
        let forth = state.forth;
        if state.number >= state.count {
            return;
        }
        match state.traffic {
            Traffic::Ping { bytes, timeout, .. } => self.send_request(flow, bytes, timeout, true),
            Traffic::Request { bytes, timeout, period, .. } => {
                if let Some(period) = period {
                    self.net.clock.set(now + period, Timed::Next { flow });
                }
                self.send_request(flow, bytes, timeout, period.is_none());
            }
            Traffic::Periodic { bytes, period, slack_mean, burst } => {
                let number = state.number;
                state.number += 1;
                let gap_ns = burst_gap_ns(state.seed, number, period.as_ns(), slack_mean.as_ns());
                self.net.clock.set(now + Duration::from_ns(gap_ns), Timed::Next { flow });
                for _ in 0..burst {
                    let packet = self.create(forth, Role::Plain, bytes);
                    self.set_out(packet, false);
                }
            }
            Traffic::Goose { bytes, .. } => {
                state.number += 1;
                let goose = state.traffic.goose();
                let next_ns = goose.map(|g| state.goose.after_ns(&g, state.seed, now.as_ns()));
                if let Some(next_ns) = next_ns {
                    self.net.clock.set(Instant::from_ns(next_ns), Timed::Next { flow });
                }
                let packet = self.create(forth, Role::Plain, bytes);
                self.set_out(packet, false);
            }
            Traffic::Storm { bytes, interval } => {
                state.number += 1;
                let packet = self.create(forth, Role::Plain, bytes);
                self.set_out(packet, false);
                if let End::Outside { .. } = self.net.lanes[forth as usize].from {
                    self.net.clock.set(now + interval, Timed::Next { flow });
                }
            }
            Traffic::Stream { .. } => self.stream_sends(flow),
        }
    }

    /// The packet of a guest has been sent, or found no place: a storm goes on.
    pub(super) fn after_send(&mut self, packet: u32) {
        let lane = &self.net.lanes[self.net.packets[packet].lane as usize];
        let owner = lane.owner;
        self.storm_goes_on(owner, Duration::ZERO);
    }

    pub(super) fn after_loss(&mut self, owner: u32, why: Lost) {
        if why == Lost::SendQueue {
            self.storm_goes_on(owner, STORM_RETRY);
        }
    }

    fn storm_goes_on(&mut self, owner: u32, least: Duration) {
        let now = self.now;
        let Some(state) = self.net.flows.get(owner as usize) else { return };
        let Traffic::Storm { interval, .. } = state.traffic else { return };
        self.net.clock.set(now + interval.max(least), Timed::Next { flow: owner });
    }

    // ---- requests and answers -----------------------------------------------------------------------

    fn send_request(&mut self, flow: u32, bytes: u32, timeout: Duration, one_by_one: bool) {
        let now = self.now;
        self.expire(flow);
        let state = &mut self.net.flows[flow as usize];
        let request = state.number;
        state.number += 1;
        state.waiting.push_back((request, now + timeout));
        let forth = state.forth;
        if one_by_one && !std::mem::replace(&mut state.request_set, true) {
            self.net.clock.set(now + timeout, Timed::Timeout { flow });
        }
        let packet = self.create(forth, Role::Request(request), bytes);
        self.set_out(packet, false);
    }

    /// Counts requests whose answer did not come in time.
    pub(super) fn expire(&mut self, flow: u32) {
        let now = self.now;
        let state = &mut self.net.flows[flow as usize];
        while state.waiting.front().is_some_and(|&(_, until)| until <= now) {
            state.waiting.pop_front();
            state.timeouts += 1;
        }
    }

    /// For requests one by one: gives up the one that is overdue and goes on with the next.
    pub(super) fn request_timeout(&mut self, flow: u32) {
        let now = self.now;
        let state = &mut self.net.flows[flow as usize];
        state.request_set = false;
        match state.waiting.front() {
            Some(&(_, until)) if until <= now => {
                self.expire(flow);
                self.flow_next(flow);
            }
            Some(&(_, until)) => {
                state.request_set = true;
                self.net.clock.set(until, Timed::Timeout { flow });
            }
            None => {}
        }
    }

    fn request_arrived(&mut self, owner: u32, packet: u32, request: u64) {
        let state = &self.net.flows[owner as usize];
        let back = state.back;
        let (server, reply_bytes) = match state.traffic {
            Traffic::Request { server, reply_bytes, .. } => (server, reply_bytes),
            _ => (None, self.net.packets[packet].bytes),
        };
        let bytes = u64::from(self.net.packets[packet].bytes);
        self.net.tally(owner).packets.bytes += bytes;
        if let Some(server) = server {
            let release = self.now;
            let way = self.net.packets[packet].segments;
            return self.release_served(
                server,
                Served { release, origin: release, packet: Some(packet) },
                &way,
            );
        }
        let pause = match self.net.lanes[back as usize].from {
            End::Interface(_) => Duration::ZERO,
            End::Outside { bridge, host } => {
                self.net.bridges[bridge as usize].outside[host as usize].turnaround
            }
        };
        self.answer(packet, request, reply_bytes, pause);
    }

    /// The packet, a request, turns into its answer, which leaves after `pause`.
    fn answer(&mut self, packet: u32, request: u64, bytes: u32, pause: Duration) {
        let leaves = self.now + pause;
        self.net.packets.stamp(packet, Segment::Service, leaves);
        let owner = self.net.lanes[self.net.packets[packet].lane as usize].owner;
        let back = self.net.flows[owner as usize].back;
        let lane = &mut self.net.lanes[back as usize];
        lane.created += 1;
        let number = lane.created;
        let p = &mut self.net.packets[packet];
        (p.lane, p.number, p.role, p.bytes) = (back, number, Role::Reply(request), bytes);
        let tally = self.net.tally(owner);
        tally.packets.created += 1;
        tally.alive += 1;
        self.notify(Event::Packet(PacketEvent::Created { owner, lane: back, number }));
        match self.net.lanes[back as usize].from {
            End::Interface(ix) => self.guest_sends(ix, packet, true),
            End::Outside { .. } => self.leave_outside(packet, pause),
        }
    }

    fn reply_arrived(&mut self, owner: u32, p: &Packet, request: u64) {
        self.expire(owner);
        let state = &mut self.net.flows[owner as usize];
        // Absent: it was given up.
        let Ok(at) = state.waiting.binary_search_by_key(&request, |&(number, _)| number) else { return };
        state.waiting.remove(at);
        let next = match state.traffic {
            Traffic::Ping { pause, .. } => Some(pause),
            Traffic::Request { period: None, .. } => Some(Duration::ZERO),
            _ => None,
        };
        self.arrived(owner, p, 0);
        if let Some(pause) = next {
            self.net.clock.set(self.now + pause, Timed::Next { flow: owner });
        }
    }

    // ---- streams ------------------------------------------------------------------------------------

    /// Sends what the window allows.
    fn stream_sends(&mut self, flow: u32) {
        let now_ns = self.now.as_ns();
        let Traffic::Stream { bytes, .. } = self.net.flows[flow as usize].traffic else { return };
        let forth = self.net.flows[flow as usize].forth;
        loop {
            let state = &mut self.net.flows[flow as usize];
            let next = state.sender.as_mut().and_then(|sender| sender.send(now_ns));
            let Some((number, again)) = next else { break };
            state.retransmissions += u64::from(again);
            let packet = self.create(forth, Role::Data(number), bytes);
            self.set_out(packet, true);
        }
        self.watch_silence(flow);
    }

    /// Sets the timer of a stream that waits for acknowledgements.
    fn watch_silence(&mut self, flow: u32) {
        let state = &mut self.net.flows[flow as usize];
        let Some(sender) = &state.sender else { return };
        state.silence_at = sender.expires_at_ns(self.now.as_ns()).map_or(Instant::NEVER, Instant::from_ns);
        // A timeout that follows the round trips may be shorter than the one before.
        let is_earlier = sender.tcp().is_some() && state.silence_at < state.silence_set_for;
        if !state.silence_at.is_never() && (state.silence_set_for.is_never() || is_earlier) {
            state.silence_set_for = state.silence_at;
            self.net.clock.set(state.silence_at, Timed::Silence { flow });
        }
    }

    pub(super) fn stream_silence(&mut self, flow: u32) {
        let now = self.now;
        let state = &mut self.net.flows[flow as usize];
        if now < state.silence_set_for {
            // An earlier time was set after this one, and is past.
            return;
        }
        state.silence_set_for = Instant::NEVER;
        if state.silence_at > now {
            // Something was acknowledged since it was set.
            if !state.silence_at.is_never() {
                state.silence_set_for = state.silence_at;
                self.net.clock.set(state.silence_at, Timed::Silence { flow });
            }
            return;
        }
        state.timeouts += 1;
        if let Some(sender) = &mut state.sender {
            sender.expire();
        }
        self.stream_sends(flow);
    }

    fn data_arrived(&mut self, owner: u32, p: &Packet, number: u64) {
        let now = self.now;
        let Some(receiver) = &mut self.net.flows[owner as usize].receiver else { return };
        let owed = receiver.owes();
        let received = receiver.receive(number);
        let owes = receiver.owes();
        self.arrived(owner, p, received.in_order * u64::from(p.bytes));
        if received.acknowledge {
            self.stream_acknowledges(owner);
        } else if owes && !owed {
            let state = &mut self.net.flows[owner as usize];
            state.ack_at = now + ACK_DELAY;
            if !std::mem::replace(&mut state.ack_set, true) {
                self.net.clock.set(now + ACK_DELAY, Timed::AckDelay { flow: owner });
            }
        }
    }

    fn stream_acknowledges(&mut self, flow: u32) {
        let state = &mut self.net.flows[flow as usize];
        let (Traffic::Stream { ack_bytes, .. }, Some(receiver)) = (state.traffic, &mut state.receiver) else {
            return;
        };
        receiver.acknowledged();
        let (up_to, back) = (receiver.up_to(), state.back);
        let packet = self.create(back, Role::Ack(up_to), ack_bytes);
        self.set_out(packet, true);
    }

    pub(super) fn stream_ack_delay(&mut self, flow: u32) {
        let now = self.now;
        let state = &mut self.net.flows[flow as usize];
        state.ack_set = false;
        if !state.receiver.as_ref().is_some_and(|receiver| receiver.owes()) {
            return;
        }
        if state.ack_at <= now {
            self.stream_acknowledges(flow);
        } else {
            state.ack_set = true;
            let at = state.ack_at;
            self.net.clock.set(at, Timed::AckDelay { flow });
        }
    }

    fn ack_arrived(&mut self, owner: u32, up_to: u64) {
        let now_ns = self.now.as_ns();
        let state = &mut self.net.flows[owner as usize];
        let (Traffic::Stream { bytes, .. }, Some(sender)) = (state.traffic, &mut state.sender) else {
            return;
        };
        let forth = state.forth;
        if let Some(number) = sender.acknowledge(up_to, now_ns) {
            state.retransmissions += 1;
            let packet = self.create(forth, Role::Data(number), bytes);
            self.set_out(packet, true);
        }
        self.stream_sends(owner);
    }

    // ---- chains and servers -------------------------------------------------------------------------

    /// A job of the task is released, by a packet that took this way or by the step before.
    fn release_served(&mut self, task: TaskIx, served: Served, way: &[Duration]) {
        self.events += 1;
        let queue = &mut self.net.served[task.0];
        queue.push_back(served);
        let first = queue.len() == 1;
        let state = &mut self.tasks[task.0];
        let job = Job { number: state.head.number, release: served.release };
        state.head = Job { number: job.number + 1, release: Instant::NEVER };
        state.jobs.released += 1;
        let deadline = state.arrivals.deadline(job);
        self.notify(Event::Release { task, job: job.number, deadline, way });
        if first {
            self.tasks[task.0].current = job;
            self.start_job(task);
        }
    }

    /// The task's job is done.
    pub(crate) fn job_done(&mut self, task: TaskIx, done: Job) -> NextJob {
        let Some(&place) = self.net.chain_of_task.get(task.0) else { return NextJob::ByTime };
        let served = self.net.served[task.0].pop_front();
        let next = match (served, self.net.served[task.0].front()) {
            (None, _) => NextJob::ByTime,
            (Some(_), None) => NextJob::NotReleased,
            (Some(_), Some(next)) => {
                NextJob::Released(Job { number: done.number + 1, release: next.release })
            }
        };
        if let Some(place) = place {
            let origin = served.map_or(done.release, |served| served.origin);
            self.step_done(place, origin);
        } else if let Some(packet) = served.and_then(|served| served.packet) {
            let p = self.net.packets[packet];
            let owner = self.net.lanes[p.lane as usize].owner;
            if let (Role::Request(request), Traffic::Request { reply_bytes, .. }) =
                (p.role, self.net.flows[owner as usize].traffic)
            {
                self.answer(packet, request, reply_bytes, Duration::ZERO);
            }
        }
        next
    }

    fn step_done(&mut self, place: ChainStep, origin: Instant) {
        let chain = &mut self.net.chains[place.chain as usize];
        let step = place.step as usize + 1;
        if step == chain.steps.len() {
            return self.chain_done(place.chain as usize, origin);
        }
        let (lane, task, bytes) = (chain.lanes[step], chain.steps[step], chain.bytes);
        let Some(lane) = lane else {
            let release = self.now;
            return self.release_served(task, Served { release, origin, packet: None }, &[]);
        };
        let packet = self.create(lane, Role::Hop { step: step as u32 }, bytes);
        // Its own latency counts from here; the chain's origin goes along in the queue of hops.
        self.net.chains[place.chain as usize].origins[step]
            .push_back((self.net.packets[packet].number, origin));
        self.set_out(packet, false);
    }

    fn hop_arrived(&mut self, owner: u32, p: &Packet, step: u32) {
        self.arrived(owner, p, u64::from(p.bytes));
        let chain = &mut self.net.chains[owner as usize - self.host.flows.len()];
        let task = chain.steps[step as usize];
        let origins = &mut chain.origins[step as usize];
        // Hops keep their order; those before it were dropped.
        while let Some((number, origin)) = origins.pop_front() {
            if number == p.number {
                let release = self.now;
                return self.release_served(task, Served { release, origin, packet: None }, &p.segments);
            }
        }
    }

    fn chain_done(&mut self, chain: usize, origin: Instant) {
        let now = self.now;
        let end = self.end;
        let state = &mut self.net.chains[chain];
        let deadline = origin + state.deadline;
        state.jobs.completed += 1;
        state.jobs.response.record(now.since(origin));
        state.jobs.tardiness.record(now.since(deadline));
        state.in_time += u64::from(now <= deadline && deadline <= end);
    }
}
