//! Where the time of each request went: every step is stamped with its cost, and what it took beyond that is
//! waiting. The parts of a request add up to its response time.

use punctual_host_stack::description::Load as Traffic;
use punctual_model::Recorder;
use punctual_model::results::{HostPart, Segment};
use punctual_sched::Duration;

use super::{Event, Machine, Timed, Watch};

/// Sets which requests are of the other kind apart from their distances.
const OTHERS: u64 = 0x6f74_6865_7273;

/// Number of parts.
pub(super) const PARTS: usize = HostPart::ALL.len();

/// A request on its way.
#[derive(Clone, Copy)]
pub(super) struct Request {
    pub(super) instance: usize,
    pub(super) number: u64,
    pub(super) bytes: u32,
    pub(super) reply_bytes: u32,
    /// It is in the response times.
    counts: bool,
    /// The call that it belongs to.
    call: Option<u32>,
    /// When it came to the card.
    pub(super) arrived: u64,
    /// Up to here its time is accounted for.
    pub(super) mark: u64,
    pub(super) parts: [u64; PARTS],
}

/// A call under way.
#[derive(Clone, Copy)]
pub(super) struct OpenCall {
    instance: usize,
    /// The group that was sent last.
    group: usize,
    /// Its requests that are not answered.
    unanswered: u32,
}

/// Response times of a server, with their segments and parts.
pub(super) struct Times {
    pub(super) latency: Recorder,
    pub(super) segments: Vec<(Segment, Recorder)>,
    pub(super) parts: Vec<Recorder>,
}

impl Times {
    pub(super) fn new() -> Self {
        Times {
            latency: Recorder::new(),
            segments: Segment::HOST.map(|segment| (segment, Recorder::new())).into(),
            parts: vec![Recorder::new(); PARTS],
        }
    }

    fn record(&mut self, request: &Request, latency: u64) {
        self.latency.record(Duration::from_ns(latency));
        for (segment, recorder) in &mut self.segments {
            let own = HostPart::ALL.into_iter().filter(|part| part.segment() == *segment);
            let sum = own.map(|part| request.parts[part as usize]).sum();
            recorder.record(Duration::from_ns(sum));
        }
        for (recorder, &part) in self.parts.iter_mut().zip(&request.parts) {
            recorder.record(Duration::from_ns(part));
        }
    }
}

/// A step: what it costs, refilling the cache apart, and what both are called in the account of a request.
#[derive(Clone, Copy)]
pub(super) struct Stamp {
    pub(super) cost: u64,
    pub(super) refill: u64,
    pub(super) part: HostPart,
    /// Waiting before the step and in between.
    pub(super) wait: HostPart,
}

impl<W: Watch> Machine<'_, W> {
    /// Everything since the last stamp was `part`.
    pub(super) fn stamp(&mut self, request: u32, part: HostPart) {
        self.spend(request, part, self.now - self.requests[request as usize].mark);
    }

    /// The request has spent `ns` on `part` since its mark.
    fn spend(&mut self, request: u32, part: HostPart, ns: u64) {
        let one = &mut self.requests[request as usize];
        one.parts[part as usize] += ns;
        let (server, number, began_ns) = (one.instance, one.number, one.mark);
        one.mark += ns;
        if ns > 0 {
            self.tell(Event::Spent { server, request: number, part, began_ns, ended_ns: began_ns + ns });
        }
    }

    /// A step of the request's way is over.
    pub(super) fn stamp_step(&mut self, request: u32, stamp: Stamp) {
        let passed = self.now - self.requests[request as usize].mark;
        // A request that came while the step was under way was not there for all of it.
        let refill = stamp.refill.min(passed);
        let cost = stamp.cost.min(passed - refill);
        let refill_part = match stamp.part.segment() {
            Segment::Guest => HostPart::GuestRefill,
            Segment::HostSend => HostPart::SendRefill,
            _ => HostPart::ReceiveRefill,
        };
        self.spend(request, stamp.wait, passed - refill - cost);
        self.spend(request, refill_part, refill);
        self.spend(request, stamp.part, cost);
    }

    /// The client of the instance sends a request now, or begins a call, and the next one later.
    pub(super) fn client_sends(&mut self, instance: usize) {
        let one = &self.instances[instance];
        let Traffic::Requests { gap_min, gap_max, call, .. } = self.stack.servers[one.server].load else {
            return;
        };
        let gap = punctual_jobs::cost_ns(one.seed, one.sent + 1, gap_min.as_ns(), gap_max.as_ns());
        self.at(self.now + gap, Timed::Request(instance));
        match call {
            None => self.sends(instance, None),
            Some(_) => {
                let number = self.free_calls.pop().unwrap_or(self.calls.len() as u32);
                let call = OpenCall { instance, group: 0, unanswered: 0 };
                match self.calls.get_mut(number as usize) {
                    Some(place) => *place = call,
                    None => self.calls.push(call),
                }
                self.call_goes_on(number);
            }
        }
    }

    /// The clients send the present group of a call.
    pub(super) fn call_goes_on(&mut self, call: u32) {
        let OpenCall { instance, group, .. } = self.calls[call as usize];
        let count = self.groups(instance).get(group).copied().unwrap_or(0);
        self.calls[call as usize].unanswered = count;
        for _ in 0..count {
            self.sends(instance, Some(call));
        }
    }

    fn groups(&self, instance: usize) -> &'static [u32] {
        match self.stack.servers[self.instances[instance].server].load {
            Traffic::Requests { call: Some(call), .. } => call.kind.groups(),
            _ => &[],
        }
    }

    /// A request is on the wire.
    fn sends(&mut self, instance: usize, call: Option<u32>) {
        self.events += 1;
        let one = &mut self.instances[instance];
        let Traffic::Requests { bytes, reply_bytes, other, .. } = self.stack.servers[one.server].load else {
            return;
        };
        one.sent += 1;
        let (number, queue, seed) = (one.sent, one.queue, one.seed);
        let draw = punctual_jobs::uniform_ns(999_999, punctual_jobs::mix(seed ^ OTHERS, number));
        let other = other.filter(|other| draw < u64::from(other.ppm));
        let request = Request {
            instance,
            number,
            bytes: other.map_or(bytes, |other| other.bytes),
            reply_bytes: other.map_or(reply_bytes, |other| other.reply_bytes),
            counts: other.is_none(),
            call,
            arrived: self.now,
            mark: self.now,
            parts: [0; PARTS],
        };
        let slot = self.free.pop().unwrap_or(self.requests.len() as u32);
        match self.requests.get_mut(slot as usize) {
            Some(place) => *place = request,
            None => self.requests.push(request),
        }
        self.at(self.now + self.stack.costs.card.as_ns(), Timed::Arrives(queue, slot));
    }

    /// A request of a call is answered: after the last one of a group the clients go on.
    fn call_answered(&mut self, call: u32) {
        let open = &mut self.calls[call as usize];
        open.unanswered -= 1;
        if open.unanswered > 0 {
            return;
        }
        open.group += 1;
        let OpenCall { instance, group, .. } = *open;
        match self.stack.servers[self.instances[instance].server].load {
            Traffic::Requests { call: Some(config), .. } if group < config.kind.groups().len() => {
                let card = self.stack.costs.card.as_ns();
                self.at(self.now + card + config.turnaround.as_ns(), Timed::CallGoesOn(call));
            }
            _ => self.free_calls.push(call),
        }
    }

    /// The answer is handed to the card, or to a processor's backlog: in the order of requests.
    pub(super) fn handed_over(&mut self, request: u32, backlog: usize) {
        let Request { instance, number, .. } = self.requests[request as usize];
        let instance = &mut self.instances[instance];
        instance.handed.push_back((number, backlog));
        let before = std::mem::replace(&mut instance.last_handed, number);
        if before + 1 != number {
            self.violated(|| format!("request {number} was answered after {before}"));
        }
    }

    /// The answer leaves for the card: after those that were handed to the same backlog before it. One in
    /// another processor's backlog it may overtake.
    fn leaves(&mut self, instance: usize, number: u64) {
        let handed = &mut self.instances[instance].handed;
        let Some(at) = handed.iter().position(|one| one.0 == number) else {
            return self.violated(|| format!("request {number} was answered out of nothing"));
        };
        let first = handed.iter().find(|one| one.1 == handed[at].1).map_or(number, |one| one.0);
        handed.remove(at);
        if first != number {
            self.violated(|| format!("request {number} was answered before {first} in the same backlog"));
        }
    }

    /// The answer is handed to the card, from which it leaves.
    pub(super) fn answered(&mut self, request: u32) {
        let card = self.stack.costs.card.as_ns();
        self.spend(request, HostPart::CardSend, card);
        let one = self.requests[request as usize];
        let latency = self.now + card - one.arrived;
        let sum: u64 = one.parts.iter().sum();
        if sum != latency {
            self.violated(|| format!("the parts of a request are {sum} ns, its response time {latency} ns"));
        }
        let instance = &mut self.instances[one.instance];
        instance.answered += 1;
        instance.bytes += u64::from(one.bytes);
        let server = instance.server;
        self.leaves(one.instance, one.number);
        if one.counts {
            self.times[server].record(&one, latency);
        }
        if let Some(call) = one.call {
            self.call_answered(call);
        }
        self.free.push(request);
        self.tell(Event::Answered { server: one.instance });
    }
}
