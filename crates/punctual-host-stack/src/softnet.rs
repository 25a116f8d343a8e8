//! A processor's poll lists and the limits of a softirq.
//!
//! # Rules
//! Linux 4.1 to today, `net/core/dev.c` (`____napi_schedule`, `net_rx_action`, `napi_poll`) and
//! `kernel/softirq.c` (`__do_softirq`); O. F. Garcia Alvarado, Tsukuba 2019 (rt-stack), s.3.2 and 4.2.
//!
//! - **Lists.** A processor has a common poll list. Partitioned handling adds an urgent one (`rt_poll_list`)
//!   with the same rules (`rt_net_rx_action` is a copy of `net_rx_action`).
//! - **Scheduling a device** puts it at the end of a list, once until its poll completes
//!   (`NAPI_STATE_SCHED`).
//! - **An action** (one call of `net_rx_action`) takes over all devices that are on the list when it starts.
//!   It polls each once, in the list's order, at most [`WEIGHT`] packets a device. Devices scheduled
//!   meanwhile wait for the next action.
//! - **A poll** of fewer than `WEIGHT` packets completes the device: it leaves the list and its interrupt is
//!   on again. After `WEIGHT` packets the device is polled again in the next action.
//! - **An action ends** when no device is left, after [`BUDGET`] packets, or when two jiffies have passed,
//!   each looked at after a poll.
//! - **What is left** makes the next list: devices that were not polled, then those scheduled meanwhile, then
//!   those to be polled again. So a device that used up its weight stands behind one that came meanwhile.
//! - **A softirq** on return from an interrupt repeats actions while the list is not empty, up to
//!   [`RESTARTS`] times, for 2 ms, and only while no thread must run (`need_resched`). Then ksoftirqd does
//!   the rest.

use alloc::collections::VecDeque;

use punctual_sched::time::{Duration, Instant};

/// Packets of one poll at most (`NAPI_POLL_WEIGHT`, `weight_p`).
pub const WEIGHT: u32 = 64;
/// Packets of an action at most (`netdev_budget`).
pub const BUDGET: u32 = 300;
/// Actions of one softirq at most (`MAX_SOFTIRQ_RESTART`).
pub const RESTARTS: u32 = 10;
/// No action of a softirq starts later than this after the first (`MAX_SOFTIRQ_TIME`).
pub const SOFTIRQ_TIME: Duration = Duration::from_ms(2);

/// Something that is polled: a receive queue of a network card, or a processor's backlog.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DeviceId(pub u32);

/// A poll list of a processor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum List {
    /// `rt_poll_list`, served by `RT_NET_RX_SOFTIRQ`, which comes before `NET_RX_SOFTIRQ` (rt-stack Fig.
    /// 4-6).
    Urgent,
    /// `poll_list`, served by `NET_RX_SOFTIRQ`.
    Common,
}

impl List {
    /// Both, in the order in which softirqs are handled.
    pub const ALL: [List; 2] = [List::Urgent, List::Common];

    /// As an array index.
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// What an action does after a poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Round {
    /// It polls the next device.
    Continues,
    /// No device is left, or budget or time is used up.
    Ends,
}

/// What follows an action of a softirq on return from an interrupt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum After {
    /// The list is empty.
    Done,
    /// The next action.
    Again,
    /// ksoftirqd does the rest.
    Ksoftirqd,
}

/// A poll list and the action that serves it.
#[derive(Clone, Debug)]
pub struct PollList {
    jiffy: Duration,
    waiting: VecDeque<DeviceId>,
    /// Devices that the action under way took over and has not polled yet.
    taken: VecDeque<DeviceId>,
    again: VecDeque<DeviceId>,
    polling: Option<DeviceId>,
    budget: u32,
    until: Instant,
}

impl PollList {
    /// An empty list for up to `devices` devices, on a machine whose timer ticks every `jiffy`.
    pub fn new(devices: usize, jiffy: Duration) -> Self {
        PollList {
            jiffy,
            waiting: VecDeque::with_capacity(2 * devices),
            taken: VecDeque::with_capacity(2 * devices),
            again: VecDeque::with_capacity(devices),
            polling: None,
            budget: 0,
            until: Instant::ZERO,
        }
    }

    /// Puts the device at the end of the list. False when it is on it already, or is being polled.
    pub fn schedule(&mut self, device: DeviceId) -> bool {
        let scheduled = self.polling == Some(device)
            || [&self.waiting, &self.taken, &self.again].iter().any(|list| list.contains(&device));
        if !scheduled {
            self.waiting.push_back(device);
        }
        !scheduled
    }

    /// Does an action have something to do?
    pub fn is_pending(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Starts an action.
    pub fn begin(&mut self, now: Instant) {
        debug_assert!(self.polling.is_none() && self.taken.is_empty(), "an action is under way");
        core::mem::swap(&mut self.taken, &mut self.waiting);
        self.budget = BUDGET;
        self.until = now + self.jiffy * 2;
    }

    /// The device that the action polls next; none ends it.
    #[inline]
    pub fn next_device(&mut self) -> Option<DeviceId> {
        debug_assert!(self.polling.is_none(), "a poll is under way");
        self.polling = self.taken.pop_front();
        self.polling
    }

    /// The poll under way took `packets` off its device, at most [`WEIGHT`].
    pub fn polled(&mut self, now: Instant, packets: u32) -> Round {
        debug_assert!(self.polling.is_some(), "no poll is under way");
        debug_assert!(packets <= WEIGHT, "a poll takes at most {WEIGHT} packets, not {packets}");
        if let (Some(device), true) = (self.polling.take(), packets >= WEIGHT) {
            self.again.push_back(device);
        }
        self.budget = self.budget.saturating_sub(packets);
        if self.taken.is_empty() || self.budget == 0 || now >= self.until {
            return Round::Ends;
        }
        Round::Continues
    }

    /// Ends the action and makes the next list of what is left. True when there is something on it.
    pub fn finish(&mut self) -> bool {
        debug_assert!(self.polling.is_none(), "a poll is under way");
        self.taken.append(&mut self.waiting);
        self.taken.append(&mut self.again);
        core::mem::swap(&mut self.taken, &mut self.waiting);
        self.is_pending()
    }
}

/// A softirq on return from an interrupt: how often it repeats its action.
#[derive(Clone, Copy, Debug)]
pub struct Softirq {
    until: Instant,
    restarts_left: u32,
}

impl Softirq {
    /// Its first action starts now.
    pub fn begin(now: Instant) -> Self {
        Softirq { until: now + SOFTIRQ_TIME, restarts_left: RESTARTS }
    }

    /// What follows an action: is something `pending`, and must a thread run (`need_resched`)?
    pub fn after(&mut self, now: Instant, pending: bool, need_resched: bool) -> After {
        if !pending {
            return After::Done;
        }
        self.restarts_left = self.restarts_left.saturating_sub(1);
        if now < self.until && !need_resched && self.restarts_left > 0 {
            return After::Again;
        }
        After::Ksoftirqd
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: DeviceId = DeviceId(0);
    const B: DeviceId = DeviceId(1);
    const JIFFY: Duration = Duration::from_ms(4);

    fn at(us: u64) -> Instant {
        Instant::ZERO + Duration::from_us(us)
    }

    fn list(devices: &[DeviceId]) -> PollList {
        let mut list = PollList::new(8, JIFFY);
        devices.iter().for_each(|&d| assert!(list.schedule(d)));
        list
    }

    #[test]
    fn a_device_is_on_the_list_once_until_its_poll_completes() {
        let mut list = list(&[A]);
        assert!(!list.schedule(A));
        list.begin(at(0));
        assert!(!list.schedule(A));
        assert_eq!(list.next_device(), Some(A));
        assert!(!list.schedule(A), "being polled");
        assert_eq!(list.polled(at(1), 3), Round::Ends);
        assert!(!list.finish());
        assert!(list.schedule(A));
    }

    #[test]
    fn an_action_polls_each_device_once_in_order() {
        let mut list = list(&[A, B]);
        list.begin(at(0));
        assert_eq!(list.next_device(), Some(A));
        assert_eq!(list.polled(at(1), WEIGHT), Round::Continues);
        assert_eq!(list.next_device(), Some(B));
        assert_eq!(list.polled(at(2), 1), Round::Ends);
        assert!(list.finish(), "the first used up its weight");
        list.begin(at(2));
        assert_eq!((list.next_device(), list.polled(at(3), 0), list.finish()), (Some(A), Round::Ends, false));
    }

    #[test]
    fn a_device_that_used_up_its_weight_stands_behind_one_that_came_meanwhile() {
        let mut list = list(&[A]);
        list.begin(at(0));
        assert_eq!(list.next_device(), Some(A));
        assert!(list.schedule(B));
        assert_eq!(list.polled(at(20), WEIGHT), Round::Ends);
        assert!(list.finish());
        list.begin(at(20));
        assert_eq!(list.next_device(), Some(B));
        list.polled(at(21), 1);
        assert_eq!(list.next_device(), Some(A));
    }

    #[test]
    fn an_action_ends_after_its_budget_and_unpolled_devices_come_first_then() {
        let devices: [DeviceId; 6] = core::array::from_fn(|i| DeviceId(i as u32));
        let mut list = list(&devices);
        list.begin(at(0));
        for (polls, device) in devices[..5].iter().enumerate() {
            assert_eq!(list.next_device(), Some(*device));
            let round = if polls == 4 { Round::Ends } else { Round::Continues };
            assert_eq!(list.polled(at(1), WEIGHT), round, "{polls}");
        }
        assert!(list.finish());
        list.begin(at(1));
        assert_eq!(list.next_device(), Some(devices[5]));
    }

    #[test]
    fn an_action_ends_after_two_jiffies() {
        let mut list = list(&[A, B]);
        list.begin(at(0));
        list.next_device();
        assert_eq!(list.polled(at(8_000), 1), Round::Ends);
        assert!(list.finish());
    }

    #[test]
    fn a_softirq_restarts_nine_times_for_2_ms_and_while_no_thread_must_run() {
        let mut softirq = Softirq::begin(at(0));
        let mut again = 0;
        while softirq.after(at(1), true, false) == After::Again {
            again += 1;
        }
        assert_eq!(again, 9);
        assert_eq!(Softirq::begin(at(0)).after(at(2_000), true, false), After::Ksoftirqd);
        assert_eq!(Softirq::begin(at(0)).after(at(1), true, true), After::Ksoftirqd);
        assert_eq!(Softirq::begin(at(0)).after(at(1), false, true), After::Done);
    }
}
