//! What the switch of a live run counted.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;

/// The switch that was a network's driver domain in a live run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SwitchResult {
    /// The network's name.
    pub network: String,
    /// The discipline's name.
    pub discipline: String,
    /// Its planes: threads that carry packets.
    pub planes: Vec<PlaneResult>,
    /// Its ports: VMs, hosts outside, uplinks.
    pub ports: Vec<PortResult>,
}

impl SwitchResult {
    /// Takes away what was counted before, but for latencies, of which only their distribution is known.
    pub fn subtract(&mut self, before: &SwitchResult) {
        let less = |now: &mut u64, before: u64| *now = now.saturating_sub(before);
        for plane in &mut self.planes {
            let Some(of) = before.planes.iter().find(|of| of.name == plane.name) else { continue };
            less(&mut plane.tx, of.tx);
            less(&mut plane.softnet, of.softnet);
            less(&mut plane.rx, of.rx);
            less(&mut plane.wakeups, of.wakeups);
            less(&mut plane.processor_ns, of.processor_ns);
            less(&mut plane.exhaustions, of.exhaustions);
        }
        for port in &mut self.ports {
            let Some(of) = before.ports.iter().find(|of| of.name == port.name) else { continue };
            let counts = [
                (&mut port.sent, of.sent),
                (&mut port.delivered, of.delivered),
                (&mut port.received, of.received),
            ];
            for (now, before) in counts {
                less(&mut now.packets, before.packets);
                less(&mut now.bytes, before.bytes);
            }
            port.dropped.subtract(&of.dropped);
        }
    }
}

/// What one thread of a switch did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlaneResult {
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// Packets processed in the TX stage.
    pub tx: u64,
    /// Packets processed in the softnet stage.
    pub softnet: u64,
    /// Packets processed in the RX stage.
    pub rx: u64,
    /// How often it woke up.
    pub wakeups: u64,
    /// Processor time of it and of its uplinks' threads.
    #[serde(default)]
    pub processor_ns: u64,
    /// The processor time that they may take together in each period, if that is limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_ns: Option<u64>,
    /// The period of the budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period_ns: Option<u64>,
    /// How often the budget was used up.
    #[serde(default)]
    pub exhaustions: u64,
    /// With `--check`: the most less urgent packets that went before a waiting one in TX, softnet, RX.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub less_urgent_ahead_max: Option<[u64; 3]>,
}

/// Frames and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FrameCounts {
    /// Frames.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What passed one port of a switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PortResult {
    /// The domain, the host outside, or the uplink.
    pub name: String,
    /// Its priority in the discipline; without one it is least urgent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// The plane that serves what it sends.
    pub plane: u64,
    /// Frames that it sent.
    pub sent: FrameCounts,
    /// Frames of it that were delivered; one to several ports counts for each.
    pub delivered: FrameCounts,
    /// Frames that it received.
    pub received: FrameCounts,
    /// Frames of it that were dropped.
    pub dropped: PortDrops,
    /// Frames of it that waited in its ring or in the switch when this was counted.
    #[serde(default)]
    pub queued: u64,
    /// How long its frames were inside the switch.
    pub latency: Histogram,
}

/// Frames of a port that were dropped, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PortDrops {
    /// The port's part of the TX stage was full.
    pub source_ring: u64,
    /// The softnet queue was full.
    pub softnet: u64,
    /// The receiver had no buffer left, or no VM.
    pub destination_ring: u64,
    /// The receiver's driver did not agree to segments or checksums like these.
    pub offload: u64,
    /// No frame: too short, too long, or in too many pieces.
    pub malformed: u64,
    /// Beyond the budget of frames to all ports.
    pub flood: u64,
    /// To the port it came from, or to no port at all.
    pub no_receiver: u64,
    /// In no VLAN of its port, or to an address that is not in its VLAN.
    #[serde(default)]
    pub vlan: u64,
    /// Longer than the network's MTU.
    #[serde(default)]
    pub mtu: u64,
    /// The sender's rings stopped.
    pub stopped: u64,
    /// Of an uplink: what is beyond it did not take the frame.
    pub lost: u64,
}

impl PortDrops {
    fn subtract(&mut self, before: &PortDrops) {
        let less = |now: &mut u64, before: u64| *now = now.saturating_sub(before);
        less(&mut self.source_ring, before.source_ring);
        less(&mut self.softnet, before.softnet);
        less(&mut self.destination_ring, before.destination_ring);
        less(&mut self.offload, before.offload);
        less(&mut self.malformed, before.malformed);
        less(&mut self.flood, before.flood);
        less(&mut self.no_receiver, before.no_receiver);
        less(&mut self.vlan, before.vlan);
        less(&mut self.mtu, before.mtu);
        less(&mut self.stopped, before.stopped);
        less(&mut self.lost, before.lost);
    }

    /// Frames that the port sent and that were dropped: all reasons but `lost`.
    pub fn of_sent(&self) -> u64 {
        let sent = self.by_reason().into_iter().filter(|(reason, _)| *reason != "lost");
        sent.fold(0, |sum, (_, count)| sum.saturating_add(count))
    }

    /// The reasons and their counts.
    pub fn by_reason(&self) -> [(&'static str, u64); 11] {
        [
            ("source_ring", self.source_ring),
            ("softnet", self.softnet),
            ("destination_ring", self.destination_ring),
            ("offload", self.offload),
            ("malformed", self.malformed),
            ("flood", self.flood),
            ("no_receiver", self.no_receiver),
            ("vlan", self.vlan),
            ("mtu", self.mtu),
            ("stopped", self.stopped),
            ("lost", self.lost),
        ]
    }
}
