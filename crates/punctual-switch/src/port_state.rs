//! The life of a port as one state machine.
//!
//! [`PortLife`] holds the state; all threads read it, and it changes only through [`PortLife::apply`]. Most
//! changes come from one thread at a time: the thread that adds and removes ports, the control thread while a
//! port has a front-end, an uplink's own thread. Planes contribute a single one, [`Change::RingBroken`], at
//! any time. It is therefore ignored where it comes too late.
//!
//! # States
//!
//! ```text
//! Absent        no port has this number
//! Disconnected  the port waits for a front-end
//! Connected     a front-end is connected, and at least one ring is stopped
//! Unproven      both rings are started, and the driver has made nothing available in either
//! Running       both rings are started, and the driver uses them
//! Broken        a ring is broken; no ring starts until the driver resets it
//! Ended         the uplink's wire is gone
//! ```
//!
//! In `Unproven` the control thread watches the kick events. Kicks without available entries mean that the
//! switch does not see the VM's memory. An uplink connects, starts its rings and proves them in one go.
//!
//! # Transitions
//!
//! ```text
//! from           change             to
//! Absent         Added              Disconnected
//! Disconnected   FrontEndConnected  Connected
//! Connected      RingsStarted       Unproven
//! Unproven       EntriesSeen        Running
//! Unproven       RingStopped        Connected
//! Running        RingStopped        Connected
//! Connected      RingBroken         Broken
//! Unproven       RingBroken         Broken
//! Running        RingBroken         Broken
//! Broken         RingsReset         Connected
//! Connected      FrontEndGone       Disconnected
//! Broken         FrontEndGone       Disconnected
//! Connected      WireGone           Ended
//! Broken         WireGone           Ended
//! all but Absent Removed            Absent
//! ```
//!
//! These change nothing: `RingStopped` in `Connected`, where the other ring has stopped; `RingsReset` unless
//! the port is broken; `RingStopped`, `RingsStarted` and `EntriesSeen` in `Broken`, because a plane may find
//! a ring broken meanwhile; `RingBroken` in the other states, where it is late. Any other change is a bug.

use std::sync::atomic::{AtomicU8, Ordering};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum PortState {
    Absent,
    Disconnected,
    Connected,
    Unproven,
    Running,
    Broken,
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A port got this number.
    Added,
    FrontEndConnected,
    /// Both rings are started.
    RingsStarted,
    /// The driver has made entries available.
    EntriesSeen,
    /// One of the rings stopped.
    RingStopped,
    RingBroken,
    /// The driver reset the device, or the front-end took a ring back (`GET_VRING_BASE`).
    RingsReset,
    FrontEndGone,
    WireGone,
    Removed,
}

impl PortState {
    /// By discriminant.
    const ALL: [PortState; 7] = [
        PortState::Absent,
        PortState::Disconnected,
        PortState::Connected,
        PortState::Unproven,
        PortState::Running,
        PortState::Broken,
        PortState::Ended,
    ];

    /// The state after a change; `None` if the change cannot happen in this state.
    fn after(self, change: Change) -> Option<PortState> {
        use Change::*;
        use PortState::*;
        Some(match (self, change) {
            (Absent, Added) => Disconnected,
            (Disconnected, FrontEndConnected) => Connected,
            (Connected, RingsStarted) => Unproven,
            (Unproven, EntriesSeen) => Running,
            (Unproven | Running, RingStopped) => Connected,
            (Connected | Unproven | Running, RingBroken) => Broken,
            (Broken, RingsReset) => Connected,
            (Connected | Broken, FrontEndGone) => Disconnected,
            (Connected | Broken, WireGone) => Ended,
            (Disconnected | Connected | Unproven | Running | Broken | Ended, Removed) => Absent,
            (Connected | Broken, RingStopped) | (Broken, RingsStarted | EntriesSeen) => self,
            (Connected | Unproven | Running, RingsReset) => self,
            (Absent | Disconnected | Broken | Ended, RingBroken) => self,
            _ => return None,
        })
    }

    /// Is there a transition of the table between these states?
    fn may_become(self, to: PortState) -> bool {
        use PortState::*;
        match to {
            Absent => self != Absent,
            Disconnected => matches!(self, Absent | Connected | Broken),
            Connected => matches!(self, Disconnected | Unproven | Running | Broken),
            Unproven => self == Connected,
            Running => self == Unproven,
            Broken => matches!(self, Connected | Unproven | Running),
            Ended => matches!(self, Connected | Broken),
        }
    }
}

/// The state of one port.
#[derive(Debug, Default)]
pub(crate) struct PortLife(AtomicU8);

impl PortLife {
    pub(crate) fn state(&self) -> PortState {
        PortState::ALL[usize::from(self.0.load(Ordering::Acquire)) % PortState::ALL.len()]
    }

    /// For planes, which ask before every frame.
    #[inline]
    pub(crate) fn is_broken(&self) -> bool {
        self.0.load(Ordering::Relaxed) == PortState::Broken as u8
    }

    pub(crate) fn is_absent(&self) -> bool {
        self.state() == PortState::Absent
    }

    /// Returns whether the state changed.
    pub(crate) fn apply(&self, change: Change) -> bool {
        loop {
            let from = self.state();
            let to = from.after(change);
            debug_assert!(to.is_some(), "{change:?} of a port that is {from:?}");
            match to {
                Some(to) if to != from => {
                    if self.set_state(from, to) {
                        return true;
                    }
                }
                _ => return false,
            }
        }
    }

    /// The only write. Fails if another thread was faster.
    fn set_state(&self, from: PortState, to: PortState) -> bool {
        debug_assert!(from.may_become(to), "no transition from {from:?} to {to:?}");
        self.0.compare_exchange(from as u8, to as u8, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use Change::*;
    use PortState::*;

    const CHANGES: [Change; 10] = [
        Added,
        FrontEndConnected,
        RingsStarted,
        EntriesSeen,
        RingStopped,
        RingBroken,
        RingsReset,
        FrontEndGone,
        WireGone,
        Removed,
    ];

    /// The table of the module's documentation, without the header.
    fn table() -> Vec<(String, String, String)> {
        let text = include_str!("port_state.rs");
        let rows = text.lines().skip_while(|line| !line.starts_with("//! from  "));
        let rows = rows.skip(1).map(|line| line.trim_start_matches("//! ")).take_while(|line| *line != "```");
        rows.map(|row| {
            let words: Vec<&str> = row.split_whitespace().collect();
            let [from @ .., change, to] = &words[..] else { panic!("three columns") };
            (from.join(" "), change.to_string(), to.to_string())
        })
        .collect()
    }

    #[test]
    fn the_table_of_the_documentation_is_the_code() {
        let mut wanted = Vec::new();
        for (from, change, to) in table() {
            let states = PortState::ALL.iter().map(|state| format!("{state:?}"));
            let froms: Vec<String> = match from.strip_prefix("all but ") {
                Some(other) => states.filter(|state| state != other).collect(),
                None => vec![from],
            };
            wanted.extend(froms.into_iter().map(|from| (from, change.clone(), to.clone())));
        }
        let mut coded = Vec::new();
        for from in PortState::ALL {
            for change in CHANGES {
                if let Some(to) = from.after(change).filter(|to| *to != from) {
                    assert!(from.may_become(to), "{from:?} {change:?}");
                    coded.push((format!("{from:?}"), format!("{change:?}"), format!("{to:?}")));
                }
            }
        }
        wanted.sort();
        coded.sort();
        assert_eq!(coded, wanted);
        let pairs =
            |from: PortState, to: PortState| CHANGES.iter().any(|change| from.after(*change) == Some(to));
        for from in PortState::ALL {
            for to in PortState::ALL.into_iter().filter(|to| *to != from) {
                assert_eq!(from.may_become(to), pairs(from, to), "{from:?} to {to:?}");
            }
        }
    }

    /// A port after these changes.
    fn port(changes: &[Change]) -> PortLife {
        let life = PortLife::default();
        changes.iter().for_each(|change| assert!(life.apply(*change), "{change:?}"));
        life
    }

    #[test]
    fn a_port_comes_up_breaks_is_reset_and_goes() {
        let up = [Added, FrontEndConnected, RingsStarted, EntriesSeen];
        let life = port(&up);
        assert_eq!(life.state(), Running);
        assert!(life.apply(RingBroken) && life.is_broken());
        assert!(!life.apply(RingBroken), "a second report changes nothing");
        assert!(!life.apply(RingStopped) && !life.apply(RingsStarted), "it stays broken");
        assert!(life.apply(RingsReset) && life.state() == Connected);
        assert!(life.apply(FrontEndGone) && life.apply(Removed) && life.is_absent());
        assert!(!life.apply(RingBroken), "late");
    }

    #[test]
    fn a_restarted_ring_is_unproven_again() {
        let life = port(&[Added, FrontEndConnected, RingsStarted, EntriesSeen, RingStopped, RingsStarted]);
        assert_eq!(life.state(), Unproven);
    }

    #[test]
    #[should_panic(expected = "EntriesSeen of a port that is Disconnected")]
    #[cfg(debug_assertions)]
    fn a_change_that_cannot_happen_is_a_bug() {
        port(&[Added]).apply(EntriesSeen);
    }

    /// The control thread and a plane at once: whatever the order, no transition outside of the table (which
    /// would panic), and the port ends as the control thread left it.
    #[test]
    fn a_plane_may_break_a_port_at_any_time() {
        let life = PortLife::default();
        std::thread::scope(|scope| {
            let plane = scope.spawn(|| (0..20_000).filter(|_| life.apply(RingBroken)).count());
            for _ in 0..2_000 {
                life.apply(Added);
                life.apply(FrontEndConnected);
                life.apply(RingsStarted);
                if life.state() == Unproven {
                    life.apply(EntriesSeen);
                }
                for change in [RingStopped, RingStopped, RingsReset, FrontEndGone, Removed] {
                    life.apply(change);
                }
            }
            plane.join().expect("no panic");
        });
        assert!(life.is_absent());
    }

    proptest! {
        /// A driver that does anything: what a state promises holds.
        #[test]
        fn states_keep_their_promises(picks in proptest::collection::vec(0..CHANGES.len(), 0..64)) {
            let life = PortLife::default();
            // What really happened, kept apart from the state.
            let (mut connected, mut started, mut seen, mut broken) = (false, false, false, false);
            for change in picks.into_iter().map(|pick| CHANGES[pick]) {
                let from = life.state();
                if from.after(change).is_none() {
                    continue;
                }
                life.apply(change);
                match change {
                    FrontEndConnected => connected = true,
                    RingsStarted if !broken => started = true,
                    EntriesSeen if !broken => seen = true,
                    RingStopped => (started, seen) = (false, false),
                    RingBroken if connected => (broken, started, seen) = (true, false, false),
                    RingsReset if broken => broken = false,
                    FrontEndGone | WireGone | Removed => {
                        (connected, started, seen, broken) = (false, false, false, false);
                    }
                    _ => {}
                }
                let state = life.state();
                prop_assert_eq!(matches!(state, Connected | Unproven | Running | Broken), connected);
                prop_assert_eq!(matches!(state, Unproven | Running), started);
                prop_assert_eq!(state == Running, started && seen);
                prop_assert_eq!(life.is_broken(), broken);
            }
        }
    }
}
