//! The example of rtca Fig. 6: three guests T3, T2, T1, the last most urgent, release three packets each, at
//! 1, 2, 3 and 2, 3, 4 and 3, 4, 5; a packet takes one unit of time in each stage.

use crate::common::{self, Done, at, build, build_with, guest, order, packet, run};
use punctual_net::registry::{OptionValue, Options};
use punctual_net::{Discipline, Fate, InterfaceId, Stage};

/// Guests T3, T2, T1 in this order, and a fourth to receive. Packet `10 * g + n` is the n-th of guest Tg.
fn run_example(mut discipline: Box<dyn Discipline>) -> Vec<Done> {
    let attach = |priority| discipline.attach(at(0), &guest(priority)).expect("valid");
    let guests: Vec<InterfaceId> = [3, 2, 1, 4].map(attach).to_vec();
    let mut arrivals = Vec::new();
    for (index, name) in [3u64, 2, 1].into_iter().enumerate() {
        for n in 1..=3 {
            arrivals.push((at(index as u64 + n), packet(10 * name + n, guests[index], guests[3])));
        }
    }
    arrivals.sort_by_key(|&(at, packet)| (at, packet.source));
    run(&mut *discipline, &arrivals)
}

/// Response times of guest Tg's packets, in units.
fn response_times(done: &[Done], g: u64) -> [u64; 3] {
    [1, 2, 3].map(|n| {
        let released = at(3 - g + n);
        let last = done.iter().find(|done| done.step.packet.id == 10 * g + n && done.fate == Fate::Delivered);
        last.expect("delivered").end.since(released).div_floor(common::UNIT)
    })
}

#[test]
fn as_shipped_every_guest_waits_19_21_and_23_as_in_the_paper() {
    let done = run_example(build("netback", &[]));
    for g in [1, 2, 3] {
        assert_eq!(response_times(&done, g), [19, 21, 23], "T{g}");
    }
}

/// The schedule list of rtca s.II.D does not give the order that the paper's own Fig. 6a shows.
#[test]
fn as_shipped_with_a_schedule_list_guests_differ_by_one_unit() {
    let options = Options::new().with("tx_turns", OptionValue::Word("list"));
    let done = run_example(build_with("netback", &options));
    assert_eq!(order(&done, Stage::Tx), [31, 21, 32, 11, 22, 33, 12, 23, 13]);
    assert_eq!(response_times(&done, 3), [19, 20, 22]);
    assert_eq!(response_times(&done, 2), [19, 21, 23]);
    assert_eq!(response_times(&done, 1), [20, 22, 23]);
}

/// The paper prints 5, 5, 3 for T1. Its third packet is released at 5, so 3 would mean it left at 8, when the
/// first one does. By Algorithm 1 the second TX round takes it from 9 to 10 and, the batch being 2, a packet
/// of T2 until 11; it passes softnet until 12 and RX until 13.
#[test]
fn with_rtca_and_batch_2_the_first_two_packets_of_t1_take_5_as_in_the_paper_and_the_third_8() {
    let done = run_example(build("rtca", &[("batch", 2)]));
    assert_eq!(order(&done[..8], Stage::Tx), [31, 21, 11, 12]);
    assert_eq!(response_times(&done, 1), [5, 5, 8]);
    assert_eq!(order(&done, Stage::Tx), [31, 21, 11, 12, 13, 22, 23, 32, 33]);
}

/// The same batch without a packet of T2 in T1's second round.
#[test]
fn preemptive_with_batch_2_delivers_the_third_packet_of_t1_after_7() {
    let done = run_example(build("preemptive", &[("batch", 2)]));
    assert_eq!(response_times(&done, 1), [5, 5, 7]);
}

/// Each packet of T1 goes through all stages before the next, so the first takes the least possible.
#[test]
fn preemptive_with_batch_1_delivers_the_packets_of_t1_after_3_5_and_7() {
    let done = run_example(build("preemptive", &[]));
    assert_eq!(response_times(&done, 1), [3, 5, 7]);
}
