//! Networks, flows and chains as their tables give them, before their names are looked up.

use punctual_net::InterfaceParams;
use punctual_net::event_channel::Scan;
use punctual_sched::Duration;

use super::switch::PlaneDraft;
use crate::file::source::{Place, Places};
use crate::network::{
    DisciplineChoice, EventHandling, NetworkCosts, Nic, OutsideHost, Traffic, Transport, Vlans,
};

/// A name and where it was written.
#[derive(Clone)]
pub(crate) struct Name {
    pub(crate) text: String,
    pub(crate) place: Place,
}

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
    pub(crate) vlans: Vlans,
    pub(crate) places: Places,
}

pub(crate) struct FlowDraft {
    pub(crate) name: Name,
    pub(crate) network: Option<Name>,
    pub(crate) from: Name,
    pub(crate) to: Name,
    pub(crate) start: Duration,
    pub(crate) count: Option<u64>,
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
    pub(crate) deadline: Duration,
}
