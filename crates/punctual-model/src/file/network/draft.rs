//! Networks, flows and chains as their tables give them, before their names are looked up.

use punctual_net::InterfaceParams;
use punctual_net::event_channel::Scan;
use punctual_sched::Duration;

use crate::file::error::Place;
use crate::file::options::OptionPlaces;
use crate::network::{DisciplineChoice, EventHandling, NetworkCosts, Nic, OutsideHost, Traffic};

/// A name and where it was written.
pub(crate) type Named = (String, Place);

/// Everything about networks that needs no domain.
pub(crate) struct Drafts {
    pub(crate) networks: Vec<NetworkDraft>,
    pub(crate) flows: Vec<FlowDraft>,
    pub(crate) chains: Vec<ChainDraft>,
}

pub(crate) struct NetworkDraft {
    pub(crate) name: Named,
    pub(crate) driver: Named,
    pub(crate) discipline: DisciplineChoice,
    pub(crate) discipline_place: Place,
    pub(crate) option_places: OptionPlaces,
    pub(crate) scan: Scan,
    pub(crate) events: EventHandling,
    pub(crate) costs: NetworkCosts,
    pub(crate) nic: Nic,
    pub(crate) outside: Vec<(OutsideHost, Place)>,
    pub(crate) interfaces: Vec<InterfaceDraft>,
}

pub(crate) struct InterfaceDraft {
    pub(crate) domain: Named,
    pub(crate) params: InterfaceParams,
    pub(crate) places: Vec<(&'static str, Place)>,
}

pub(crate) struct FlowDraft {
    pub(crate) name: Named,
    pub(crate) network: Option<Named>,
    pub(crate) from: Named,
    pub(crate) to: Named,
    pub(crate) start: Duration,
    pub(crate) count: Option<u64>,
    pub(crate) traffic: Traffic,
    /// Of a storm's interval.
    pub(crate) interval_place: Place,
    pub(crate) server: Option<Named>,
}

pub(crate) struct ChainDraft {
    pub(crate) name: Named,
    pub(crate) network: Option<Named>,
    pub(crate) steps: Vec<Named>,
    pub(crate) bytes: u32,
    pub(crate) deadline: Duration,
}
