//! Carries packets without threads and without a clock, so that a program that counts instructions gets the
//! same number in every run (`labs/lab switch instructions`).

use punctual_net::{InterfaceParams, registry};
use punctual_switch::session::{RX, TX};
use punctual_switch::testing::{Options, SteppedPlane, address, frame};

use super::{KINDS, Outcome, name, options};

/// Frames that a flood has in its ring before the plane runs.
const BURST: u16 = 64;

/// Who sends what to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    /// One flow; the other ports are idle.
    One { ports: usize },
    /// Ports send to their neighbours, all at once.
    Many { ports: usize },
    /// Two urgent ports exchange single frames while two others flood each other.
    Mixed,
}

impl Load {
    fn of(name: &str) -> Option<Load> {
        Some(match name {
            "one" => Load::One { ports: 2 },
            "one-of-250" => Load::One { ports: 250 },
            "sixteen" => Load::Many { ports: 16 },
            "mixed" => Load::Mixed,
            _ => return None,
        })
    }

    fn ports(self) -> usize {
        match self {
            Load::One { ports } | Load::Many { ports } => ports,
            Load::Mixed => 4,
        }
    }

    /// Senders with their receivers, and the frames that each has in its ring.
    fn flows(self) -> Vec<(usize, usize, u16)> {
        match self {
            Load::One { .. } => vec![(0, 1, BURST)],
            Load::Many { ports } => (0..ports).map(|port| (port, (port + 1) % ports, BURST)).collect(),
            Load::Mixed => vec![(0, 1, 1), (1, 0, 1), (2, 3, BURST), (3, 2, BURST)],
        }
    }
}

/// Carries at least N packets of a load under a discipline.
pub(crate) fn carry() -> Outcome<()> {
    let word = |at| std::env::args().nth(at);
    let packets: u64 = word(2).ok_or("expected a number of packets")?.parse()?;
    let kind: usize = word(3).map_or(Ok(1), |number| number.parse())?;
    let kind = *KINDS.get(kind).ok_or("no such discipline")?;
    let load = word(4).unwrap_or_else(|| "one".into());
    let load = Load::of(&load).ok_or("expected one, one-of-250, sixteen or mixed")?;
    let urgent = |port: usize| if load != Load::Mixed || port < 2 { 1 } else { 2 };
    let params = |port| InterfaceParams { priority: Some(urgent(port)), ..InterfaceParams::default() };
    let ports: Vec<InterfaceParams> = (0..load.ports()).map(params).collect();
    let info = registry::find(kind.0).ok_or("no such discipline")?;
    let mut plane = SteppedPlane::new(info, &options(kind), &ports, Options::default())?;
    let flows = load.flows();
    for &(from, to, _) in &flows {
        plane.vms[from].flood_with(&frame(address(to), address(from), 0, 64))?;
    }
    let mut delivered = 0;
    while delivered < packets {
        for &(from, to, burst) in &flows {
            plane.vms[from].offer_again(TX, burst)?;
            plane.vms[to].refill(RX, 1)?;
            delivered += u64::from(burst);
        }
        plane.run();
    }
    let ports = plane.stop();
    let delivered: u64 = ports.iter().map(|port| port.delivered.packets).sum();
    println!("{}: {delivered} packets", name(kind));
    Ok(())
}
