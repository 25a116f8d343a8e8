//! An action (`net_rx_action`) on a poll list.

use punctual_host_stack::softnet::{DeviceId, List, WEIGHT};

use crate::packet::{Packet, Sent};

/// Index of a processor's poll list.
pub(crate) fn list_of(cpu: usize, list: List) -> usize {
    2 * cpu + list.index()
}

/// What is polled, by [`DeviceId`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Device {
    Queue(usize),
    Backlog(usize),
}

/// How far an action has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// None is under way.
    Idle,
    /// The action begins.
    Begins,
    /// The driver takes frames.
    Driver,
    /// A packet goes up the stack.
    Packet(usize),
}

/// An action on a poll list.
pub(crate) struct Action {
    pub(crate) stage: Stage,
    pub(crate) device: DeviceId,
    pub(crate) count: u32,
    pub(crate) packets: Vec<Packet>,
    pub(crate) sent: Vec<Sent>,
    /// Cost and refill of the step under way.
    pub(crate) cost: u64,
    pub(crate) refill: u64,
}

impl Action {
    pub(crate) fn new() -> Self {
        Action {
            stage: Stage::Idle,
            device: DeviceId(0),
            count: 0,
            packets: Vec::with_capacity(WEIGHT as usize),
            sent: Vec::with_capacity(WEIGHT as usize),
            cost: 0,
            refill: 0,
        }
    }
}
