//! The ports and planes of a switch, as they are shown.

use punctual_switch::{End, Port, Report};
use serde::Serialize;

use crate::planes::{PlaneLine, Planes};

/// The ports and planes of a switch.
#[derive(Clone)]
pub struct Lines {
    pub ports: Vec<Line>,
    pub planes: Vec<PlaneLine>,
}

impl Lines {
    pub(crate) fn of(ports: &[Port], planes: &Planes) -> Self {
        Lines { ports: ports.iter().map(Line::of).collect(), planes: planes.lines() }
    }

    /// The processor time of a plane and of its uplinks, in ns.
    pub fn processor_ns(&self, plane: usize, report: &Report) -> u64 {
        let of_plane = self.ports.iter().zip(&report.ports).filter(|(line, _)| line.plane == plane);
        let uplinks = of_plane.filter_map(|(_, stats)| stats.uplink).map(|uplink| uplink.processor_ns);
        report.planes.get(plane).map_or(0, |stats| stats.processor_ns) + uplinks.sum::<u64>()
    }
}

/// A port: its name, priority, plane and socket.
#[derive(Clone, Serialize)]
pub struct Line {
    pub(super) name: String,
    pub(super) priority: Option<u32>,
    pub(super) plane: usize,
    /// Uplinks have none.
    pub(super) socket: Option<String>,
    pub(super) address: Option<String>,
    /// A class of a VM: the PCP of its frames.
    #[serde(skip)]
    pub(super) pcp: Option<u8>,
}

impl Line {
    pub(crate) fn of(port: &Port) -> Self {
        Line {
            name: port.name.clone(),
            priority: port.params.priority,
            plane: port.plane,
            socket: match &port.end {
                End::Socket(path) => Some(path.display().to_string()),
                End::Listener(_) | End::Uplink(_) | End::UplinkClass(..) | End::VmClass { .. } => None,
            },
            address: port.address.map(|address| address.to_string()),
            pcp: match port.end {
                End::VmClass { pcp, .. } => Some(pcp),
                _ => None,
            },
        }
    }
}
