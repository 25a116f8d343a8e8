//! When packets are where, as far as that is known.

use std::collections::BTreeMap;

use punctual_model::index::TaskIx;
use punctual_sched::Duration;

use super::curve::ArrivalCurve;
use super::routes::{LegIx, Routes, Source};
use crate::reason::PacketReason;

/// What is known of a leg's packets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Progress {
    pub(super) failed: Option<PacketReason>,
    /// When packets come into being.
    pub(super) created: Option<ArrivalCurve>,
    /// Is there always room in the TX ring? Otherwise what waits for room may be sent at once later.
    pub(super) has_room: bool,
    /// When they are in the TX ring, or in the card.
    pub(super) posted: Option<ArrivalCurve>,
    /// When they are in the receiver's RX ring.
    pub(super) ringed: Option<ArrivalCurve>,
    /// When they have been received, those that are not lost.
    pub(super) delivered: Option<ArrivalCurve>,
    /// The longest from creation to delivery, unless it has failed.
    pub(super) latency: Duration,
    /// Nothing settles; it stays as it is.
    given_up: bool,
}

impl Progress {
    /// Packets that are made by this curve, before any delay.
    fn undelayed(curve: ArrivalCurve) -> Self {
        let known = Some(curve);
        Progress {
            failed: None,
            created: known,
            has_room: true,
            posted: known,
            ringed: known,
            delivered: known,
            latency: Duration::ZERO,
            given_up: false,
        }
    }

    /// Nothing is known in this round but what was known of failures before.
    pub(super) fn unknown(before: &Progress) -> Self {
        Progress {
            failed: before.failed.clone(),
            created: None,
            has_room: false,
            posted: None,
            ringed: None,
            delivered: None,
            latency: before.latency,
            given_up: before.given_up,
        }
    }

    /// Only the sender's maximum is known, and that stays so.
    fn given_up(before: Option<&Progress>, reason: PacketReason) -> Self {
        let failed = before.and_then(|before| before.failed.clone()).unwrap_or(reason);
        Progress {
            failed: Some(failed),
            created: None,
            has_room: false,
            posted: None,
            ringed: None,
            delivered: None,
            latency: before.map_or(Duration::ZERO, |before| before.latency),
            given_up: true,
        }
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.given_up
    }
}

/// What is known after a round.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct State {
    pub(super) legs: Vec<Progress>,
    /// By task that packets release: its releases. Without an entry nothing bounds them.
    pub(super) served: BTreeMap<TaskIx, ArrivalCurve>,
}

impl State {
    /// Before any delay.
    pub(crate) fn first(routes: &Routes<'_>) -> Self {
        let leg = |(_, leg): (LegIx, &super::routes::Leg)| match (leg.source, routes.origin(leg.source)) {
            (_, Some(curve)) => Progress::undelayed(curve),
            (Source::Acknowledgements, None) => Progress::given_up(None, PacketReason::Acknowledged),
            (_, None) => Progress::given_up(None, PacketReason::UnboundedSource),
        };
        let release = |task: &TaskIx| {
            let curve = routes.origin(Source::Task(*task))?;
            Some((*task, ArrivalCurve { burst: 1, ..curve }))
        };
        State {
            legs: routes.all().map(leg).collect(),
            served: routes.releases.keys().filter_map(release).collect(),
        }
    }

    /// What differs from the state before is given up: it has no bound.
    pub(crate) fn give_up_what_moved(mut self, before: &State) -> Self {
        for (leg, before) in self.legs.iter_mut().zip(&before.legs) {
            if leg != before {
                *leg = Progress::given_up(Some(leg), PacketReason::Feedback);
            }
        }
        self.served.retain(|task, curve| before.served.get(task) == Some(curve));
        self
    }
}
