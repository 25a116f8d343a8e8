//! RTCA against an independent transcription of Algorithm 1, for *every* pattern of arrivals up to a bound.

use std::collections::VecDeque;

use crate::common::{at, build, packet, run};
use punctual_net::{InterfaceId, InterfaceParams, Stage};

/// Limits of one check, the same for the discipline and the transcription.
#[derive(Clone, Copy, Debug)]
struct Config {
    /// Priorities of the senders; the receiver is less urgent.
    priorities: &'static [u32],
    batches: &'static [u32],
    ring_slots: u32,
    softnet_limit: u32,
    tx_round: u64,
    rx_round: u64,
}

/// The manager domain as straight-line code. Processing a packet lets a unit of time pass, in which packets
/// arrive.
struct Transcription<'a> {
    config: Config,
    /// Packets that arrive at each instant.
    slots: &'a [Vec<(usize, u64)>],
    time: usize,
    rings: Vec<VecDeque<u64>>,
    /// netback's list of guests with packets.
    schedule_list: Vec<usize>,
    /// The guest whose packet is in TX.
    sending: Option<usize>,
    tx_queue: Vec<(usize, u64)>,
    softnet: Vec<(usize, u64)>,
    rx_queue: VecDeque<u64>,
    processed: Vec<(Stage, u64)>,
    delivered: usize,
    dropped: u64,
}

impl Transcription<'_> {
    fn arrivals(&mut self) {
        let Some(slot) = self.slots.get(self.time) else { return };
        for &(guest, packet) in slot {
            if self.rings[guest].len() == self.config.ring_slots as usize {
                self.dropped += 1;
                continue;
            }
            self.rings[guest].push_back(packet);
            if !self.schedule_list.contains(&guest) && self.sending != Some(guest) {
                self.schedule_list.push(guest);
            }
        }
    }

    fn process(&mut self, stage: Stage, packet: u64) {
        self.processed.push((stage, packet));
        self.time += 1;
        self.arrivals();
    }

    fn net_rx_action(&mut self) {
        for _ in 0..self.config.rx_round {
            let Some(&packet) = self.rx_queue.front() else { return };
            self.process(Stage::Rx, packet);
            self.rx_queue.pop_front();
            self.delivered += 1;
        }
    }

    fn most_urgent(&self) -> Option<usize> {
        self.schedule_list.iter().copied().min_by_key(|&guest| self.config.priorities[guest])
    }

    /// Algorithm 1, the batch size being that of the guest at which the counter was last set to 0.
    fn net_tx_action(&mut self) {
        let Some(first) = self.most_urgent() else { return };
        let (mut current, mut total, mut counter) = (first, 0, 0);
        while !self.schedule_list.is_empty() && total < self.config.tx_round {
            let guest = self.most_urgent().expect("the list is not empty");
            if self.config.priorities[guest] < self.config.priorities[current] {
                (current, counter) = (guest, 0);
            }
            if counter == self.config.batches[current] {
                break;
            }
            self.schedule_list.retain(|&other| other != guest);
            let packet = self.rings[guest].pop_front().expect("the guest is in the list");
            self.sending = Some(guest);
            self.process(Stage::Tx, packet);
            self.sending = None;
            self.tx_queue.push((guest, packet));
            counter += 1;
            total += 1;
            if !self.rings[guest].is_empty() {
                self.schedule_list.push(guest);
            }
        }
        for (guest, packet) in std::mem::take(&mut self.tx_queue) {
            let priority = self.config.priorities[guest];
            if self.of_priority(priority).count() == self.config.softnet_limit as usize {
                self.dropped += 1;
            } else {
                self.softnet.push((guest, packet));
            }
        }
    }

    fn of_priority(&self, priority: u32) -> impl Iterator<Item = (usize, u64)> {
        let priorities = self.config.priorities;
        self.softnet.iter().copied().filter(move |&(guest, _)| priorities[guest] == priority)
    }

    fn softirq(&mut self) {
        let Some(priority) = self.softnet.iter().map(|&(guest, _)| self.config.priorities[guest]).min()
        else {
            return;
        };
        let (guest, _) = self.of_priority(priority).next().expect("of the least number there is one");
        for _ in 0..self.config.batches[guest] {
            let Some((_, packet)) = self.of_priority(priority).next() else { return };
            self.softnet.retain(|&(_, other)| other != packet);
            self.process(Stage::Softnet, packet);
            if self.rx_queue.len() == self.config.ring_slots as usize {
                self.dropped += 1;
            } else {
                self.rx_queue.push_back(packet);
            }
        }
    }

    fn run(&mut self) {
        self.arrivals();
        while self.time < self.slots.len() || self.busy() {
            if !self.busy() {
                self.time += 1;
                self.arrivals();
            }
            self.net_rx_action();
            self.net_tx_action();
            self.softirq();
        }
    }

    fn busy(&self) -> bool {
        !(self.schedule_list.is_empty() && self.softnet.is_empty() && self.rx_queue.is_empty())
    }
}

fn check(config: Config, slots: &[Vec<(usize, u64)>]) {
    let guests = config.priorities.len();
    let mut transcription = Transcription {
        config,
        slots,
        time: 0,
        rings: vec![VecDeque::new(); guests],
        schedule_list: Vec::new(),
        sending: None,
        tx_queue: Vec::new(),
        softnet: Vec::new(),
        rx_queue: VecDeque::new(),
        processed: Vec::new(),
        delivered: 0,
        dropped: 0,
    };
    transcription.run();

    let mut discipline = build("rtca", &[("tx_round", config.tx_round), ("rx_round", config.rx_round)]);
    let receiver = InterfaceId(guests as u32);
    for sender in 0..=guests {
        let params = InterfaceParams {
            priority: config.priorities.get(sender).copied(),
            batch: config.batches.get(sender).copied(),
            softnet_limit: Some(config.softnet_limit),
            ring_slots: Some(config.ring_slots),
            ..InterfaceParams::default()
        };
        discipline.attach(at(0), &params).expect("valid");
    }
    let arrivals: Vec<_> = slots
        .iter()
        .enumerate()
        .flat_map(|(time, slot)| slot.iter().map(move |&(guest, id)| (time as u64, guest as u32, id)))
        .map(|(time, guest, id)| (at(time), packet(id, InterfaceId(guest), receiver)))
        .collect();
    let done = run(&mut *discipline, &arrivals);

    let processed: Vec<_> = done.iter().map(|done| (done.step.stage, done.step.packet.id)).collect();
    assert_eq!(processed, transcription.processed, "{config:?} {slots:?}");
    let dropped: u64 = (0..guests).map(|guest| discipline.drops(InterfaceId(guest as u32)).total()).sum();
    assert_eq!(dropped, transcription.dropped, "{config:?} {slots:?}");
    assert_eq!(transcription.delivered as u64 + dropped, arrivals.len() as u64);
}

/// Every way in which each guest sends a packet or none at each of `instants`. Returns how many there are.
fn check_all(config: Config, instants: u32) -> u64 {
    let guests = config.priorities.len() as u32;
    let patterns = 1u64 << (guests * instants);
    for pattern in 0..patterns {
        let sends = |instant: u32, guest: u32| pattern >> (instant * guests + guest) & 1 == 1;
        let slots: Vec<Vec<(usize, u64)>> = (0..instants)
            .map(|instant| {
                let senders = (0..guests).filter(|&guest| sends(instant, guest));
                senders.map(|guest| (guest as usize, u64::from(instant * guests + guest))).collect()
            })
            .collect();
        check(config, &slots);
    }
    patterns
}

const ROOMY: Config = Config {
    priorities: &[2, 1, 0],
    batches: &[2, 2, 2],
    ring_slots: 256,
    softnet_limit: 600,
    tx_round: 238,
    rx_round: 238,
};

#[test]
fn three_guests_of_different_priority_with_every_batch_follow_algorithm_1() {
    for batches in [&[1, 1, 1], &[2, 2, 2], &[3, 3, 3], &[3, 2, 1], &[1, 2, 3]] {
        assert_eq!(check_all(Config { batches, ..ROOMY }, 4), 4096);
    }
}

#[test]
fn guests_of_one_priority_take_turns_below_a_more_urgent_one() {
    for batches in [&[1, 1, 1], &[2, 2, 2], &[2, 3, 1]] {
        assert_eq!(check_all(Config { priorities: &[1, 1, 0], batches, ..ROOMY }, 4), 4096);
    }
}

#[test]
fn tight_limits_drop_what_algorithm_1_drops() {
    for batches in [&[1, 1, 1], &[3, 3, 3], &[3, 2, 1]] {
        let config = Config { batches, ring_slots: 1, softnet_limit: 1, ..ROOMY };
        assert_eq!(check_all(config, 4), 4096);
        assert_eq!(check_all(Config { ring_slots: 2, tx_round: 2, rx_round: 1, ..config }, 4), 4096);
    }
}

#[test]
fn two_guests_over_six_instants_follow_algorithm_1() {
    for batches in [&[1, 1], &[2, 2], &[3, 1]] {
        assert_eq!(check_all(Config { priorities: &[1, 0], batches, ..ROOMY }, 6), 4096);
    }
}
