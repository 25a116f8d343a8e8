//! What clients send: requests, and calls.

use punctual_host_stack::Load;

use crate::machine::{Machine, Timed};
use crate::request::{OpenCall, PARTS, Request};
use crate::watch::Watch;

/// Sets which requests are of the other kind apart from their distances.
const OTHERS: u64 = 0x6f74_6865_7273;

impl<W: Watch> Machine<'_, W> {
    /// The client of the instance sends a request now, or begins a call, and the next one later.
    pub(crate) fn client_sends(&mut self, instance: usize) {
        let one = &self.instances[instance];
        let Load::Requests { gap_min, gap_max, call, .. } = self.stack.servers[one.server].load else {
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
    pub(crate) fn call_goes_on(&mut self, call: u32) {
        let OpenCall { instance, group, .. } = self.calls[call as usize];
        let count = self.groups(instance).get(group).copied().unwrap_or(0);
        self.calls[call as usize].unanswered = count;
        for _ in 0..count {
            self.sends(instance, Some(call));
        }
    }

    fn groups(&self, instance: usize) -> &'static [u32] {
        match self.stack.servers[self.instances[instance].server].load {
            Load::Requests { call: Some(call), .. } => call.kind.groups(),
            _ => &[],
        }
    }

    /// A request is on the wire.
    fn sends(&mut self, instance: usize, call: Option<u32>) {
        self.events += 1;
        let one = &mut self.instances[instance];
        let Load::Requests { bytes, reply_bytes, other, .. } = self.stack.servers[one.server].load else {
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
    pub(crate) fn call_answered(&mut self, call: u32) {
        let open = &mut self.calls[call as usize];
        open.unanswered -= 1;
        if open.unanswered > 0 {
            return;
        }
        open.group += 1;
        let OpenCall { instance, group, .. } = *open;
        match self.stack.servers[self.instances[instance].server].load {
            Load::Requests { call: Some(config), .. } if group < config.kind.groups().len() => {
                let card = self.stack.costs.card.as_ns();
                self.at(self.now + card + config.turnaround.as_ns(), Timed::CallGoesOn(call));
            }
            _ => self.free_calls.push(call),
        }
    }
}
