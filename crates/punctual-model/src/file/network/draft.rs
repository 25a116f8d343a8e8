//! Networks, flows and chains as their tables give them, before their names are looked up.

use std::collections::BTreeMap;

use punctual_net::InterfaceParams;
use punctual_net::event_channel::Scan;
use punctual_sched::Duration;

use super::names::Name;
use crate::file::copies::Copies;
use crate::file::source::{Place, Places};
use crate::network::{
    DisciplineChoice, EventHandling, Groups, NetworkCosts, Nic, OutsideHost, Plane, Traffic, Transport, Vlans,
};

/// What the tables of networks, flows and chains give.
pub(crate) struct Drafts {
    pub(crate) networks: Vec<NetworkDraft>,
    pub(crate) flows: Vec<FlowDraft>,
    pub(crate) chains: Vec<ChainDraft>,
}

pub(crate) struct NetworkDraft {
    pub(crate) name: Name,
    pub(crate) driver: Name,
    pub(crate) transport: (Transport, Place),
    pub(crate) discipline: DisciplineDraft,
    pub(crate) scan: Scan,
    pub(crate) events: EventHandling,
    pub(crate) costs: NetworkCosts,
    pub(crate) nic: Nic,
    pub(crate) outside: Vec<(OutsideHost, Place)>,
    pub(crate) planes: Vec<PlaneDraft>,
    pub(crate) mtu: Option<u32>,
    pub(crate) interfaces: Vec<InterfaceDraft>,
}

/// A discipline with its options and where they were given.
pub(crate) struct DisciplineDraft {
    pub(crate) choice: DisciplineChoice,
    pub(crate) name_place: Place,
    pub(crate) option_places: Places,
}

pub(crate) struct InterfaceDraft {
    pub(crate) domain: Name,
    pub(crate) params: InterfaceParams,
    pub(crate) classes: BTreeMap<u8, u32>,
    pub(crate) vlans: Vlans,
    pub(crate) groups: Vec<Groups>,
    pub(crate) places: Places,
}

/// A plane, and where its parts stand that are checked when the host is complete.
pub(crate) struct PlaneDraft {
    pub(crate) plane: Plane,
    pub(crate) name: Name,
    pub(crate) up_to: Place,
    pub(crate) processors: Vec<(usize, Place)>,
}

pub(crate) struct FlowDraft {
    pub(crate) name: Name,
    pub(crate) copies: Copies,
    pub(crate) network: Option<Name>,
    pub(crate) from: Name,
    pub(crate) to: Name,
    pub(crate) start: Duration,
    pub(crate) count: Option<u64>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) pcp: Option<u8>,
    pub(crate) traffic: Traffic,
    /// Where a storm's interval stands.
    pub(crate) interval_place: Place,
    pub(crate) server: Option<Name>,
}

pub(crate) struct ChainDraft {
    pub(crate) name: Name,
    pub(crate) network: Option<Name>,
    pub(crate) steps: Vec<Name>,
    pub(crate) bytes: u32,
    pub(crate) pcp: Option<u8>,
    pub(crate) deadline: Duration,
}
