//! Where the time of each request went: every step is stamped with its cost, and what it took beyond that is
//! waiting. The parts of a request add up to its response time.

use punctual_model::results::{HostPart, Segment};

use crate::machine::Machine;
use crate::request::{Request, Stamp};
use crate::watch::{Event, Watch};

impl<W: Watch> Machine<'_, W> {
    /// The request has spent the time since its last stamp on `part`.
    pub(crate) fn stamp(&mut self, request: u32, part: HostPart) {
        self.spend(request, part, self.now - self.requests[request as usize].mark);
    }

    /// The request has spent `ns` on `part` since its mark.
    fn spend(&mut self, request: u32, part: HostPart, ns: u64) {
        let one = &mut self.requests[request as usize];
        one.parts[part as usize] += ns;
        let (server, number, began_ns) = (one.instance, one.number, one.mark);
        one.mark += ns;
        if ns > 0 {
            self.observe(Event::Spent { server, request: number, part, began_ns, ended_ns: began_ns + ns });
        }
    }

    /// A step of the request's way is over.
    pub(crate) fn stamp_step(&mut self, request: u32, stamp: Stamp) {
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

    /// The answer is handed to the card, or to a processor's backlog: in the order of requests.
    pub(crate) fn handed_over(&mut self, request: u32, backlog: usize) {
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
    pub(crate) fn answered(&mut self, request: u32) {
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
        self.observe(Event::Answered { server: one.instance });
    }
}
