//! What a switch counted, as part of a run's results.

use punctual_model::network::Network;
use punctual_model::results::{FrameCounts, PlaneResult, PortDrops, PortResult, SwitchResult};
use punctual_switch::Report;
use punctual_switch::stats::{Count, PlaneStats, PortStats};

use super::lines::{Line, Lines};

/// What was counted, as part of a run's results.
pub fn result(network: &Network, lines: &Lines, report: &Report) -> SwitchResult {
    let counts = |of: Count| FrameCounts { packets: of.packets, bytes: of.bytes };
    let port = |(line, stats): (&Line, &PortStats)| PortResult {
        name: line.name.clone(),
        priority: line.priority,
        plane: line.plane as u64,
        sent: counts(stats.sent),
        delivered: counts(stats.delivered),
        received: counts(stats.received),
        dropped: dropped(stats),
        queued: stats.queued,
        latency: stats.latency.histogram(),
    };
    let plane = |(plane, stats): (usize, &PlaneStats)| {
        let [tx, softnet, rx] = stats.carried;
        let checked = report.checked.get(plane).and_then(|checked| checked.clone().ok());
        let line = &lines.planes[plane];
        PlaneResult {
            name: line.name.clone(),
            tx,
            softnet,
            rx,
            wakeups: stats.wakeups,
            processor_ns: lines.processor_ns(plane, report),
            budget_ns: line.budget_ns,
            period_ns: line.period_ns,
            exhaustions: stats.exhaustions,
            less_urgent_ahead_max: checked,
        }
    };
    SwitchResult {
        network: network.name.clone(),
        discipline: network.discipline.info.name.into(),
        planes: report.planes.iter().enumerate().map(plane).collect(),
        ports: lines.ports.iter().zip(&report.ports).map(port).collect(),
    }
}

/// What of a port was dropped.
fn dropped(of: &PortStats) -> PortDrops {
    let drops = of.drops;
    PortDrops {
        source_ring: drops.source_ring,
        softnet: drops.softnet,
        destination_ring: drops.destination_ring,
        offload: drops.offload,
        malformed: drops.malformed,
        flood: drops.flood,
        no_receiver: drops.no_receiver,
        vlan: drops.vlan,
        mtu: drops.mtu,
        stopped: drops.stopped,
        lost: of.uplink.map_or(0, |uplink| uplink.lost),
    }
}
