//! Packets: order, segments, conservation.

use punctual_model::Host;
use punctual_sched::Duration;

use crate::observe::PacketEvent;

/// What observers were told about packets.
pub(super) struct Packets {
    /// By owner: flows, then chains.
    owners: Vec<Owner>,
    lanes: Vec<Lane>,
}

#[derive(Clone, Copy, Default)]
struct Owner {
    created: u64,
    delivered: u64,
    dropped: u64,
}

impl Owner {
    fn on_their_way(self) -> u64 {
        self.created.wrapping_sub(self.delivered).wrapping_sub(self.dropped)
    }
}

/// Numbers of the last packet that came into being, and of the last that was delivered.
#[derive(Clone, Copy, Default)]
struct Lane {
    created: u64,
    delivered: u64,
}

impl Packets {
    pub(super) fn new(host: &Host) -> Self {
        Packets { owners: vec![Owner::default(); host.flows.len() + host.chains.len()], lanes: Vec::new() }
    }

    /// Is it as it must be? If not: what is wrong.
    #[inline]
    pub(super) fn judge(&mut self, host: &Host, event: &PacketEvent<'_>) -> Result<(), String> {
        match *event {
            PacketEvent::Created { owner, lane, number } => {
                self.owners[owner as usize].created += 1;
                let lane = lane as usize;
                if lane >= self.lanes.len() {
                    self.lanes.resize(lane + 1, Lane::default());
                }
                self.lanes[lane].created = number;
                Ok(())
            }
            PacketEvent::Delivered { owner, lane, number } => {
                self.owners[owner as usize].delivered += 1;
                let lane = &mut self.lanes[lane as usize];
                let before = std::mem::replace(&mut lane.delivered, number);
                if number > before && number <= lane.created { Ok(()) } else { Err(overtaken(host, owner)) }
            }
            PacketEvent::Lost { owner } => {
                self.owners[owner as usize].dropped += 1;
                Ok(())
            }
            PacketEvent::Timed { owner, latency, segments } => {
                let parts = segments.iter().fold(Duration::ZERO, |sum, &part| sum + part);
                if parts == latency { Ok(()) } else { Err(unexplained(host, owner, parts, latency)) }
            }
            PacketEvent::Counted { owner, created, delivered, dropped, on_their_way } => {
                let told = self.owners[owner as usize];
                let counted = Owner { created, delivered, dropped };
                let equal = (told.created, told.delivered, told.dropped) == (created, delivered, dropped);
                if equal && counted.on_their_way() == on_their_way {
                    Ok(())
                } else {
                    Err(miscounted(host, owner, told, counted, on_their_way))
                }
            }
            PacketEvent::Held { places, answering } => {
                let on_their_way: u64 = self.owners.iter().map(|owner| owner.on_their_way()).sum();
                if places == on_their_way + answering {
                    Ok(())
                } else {
                    Err(format!("{places} packets are held, {on_their_way} are on their way"))
                }
            }
        }
    }
}

fn name(host: &Host, owner: u32) -> String {
    match (owner as usize).checked_sub(host.flows.len()) {
        None => format!("flow {}", host.flows[owner as usize].name),
        Some(chain) => format!("chain {}", host.chains[chain].name),
    }
}

#[cold]
fn overtaken(host: &Host, owner: u32) -> String {
    format!("a packet of {} overtook another", name(host, owner))
}

#[cold]
fn unexplained(host: &Host, owner: u32, parts: Duration, latency: Duration) -> String {
    format!("the segments of a packet of {} are {parts}, its latency {latency}", name(host, owner))
}

#[cold]
fn miscounted(host: &Host, owner: u32, told: Owner, counted: Owner, on_their_way: u64) -> String {
    let Owner { created, delivered, dropped } = counted;
    format!(
        "{}: {created} packets created, {delivered} delivered, {dropped} dropped, \
         {on_their_way} on their way; observers counted {}, {}, {}",
        name(host, owner),
        told.created,
        told.delivered,
        told.dropped
    )
}
