//! Frames that cut through the stages arrive in the order of those that pass one stage after the other.

use proptest::prelude::*;
use punctual_net::{InterfaceParams, registry};
use punctual_sched::registry::{OptionValue, Options};
use punctual_switch::stats::Drops;
use punctual_switch::testing::{self, SteppedPlane, address, frame, number};

/// Frames that ports send: from, to, how many.
type Sends = Vec<(usize, usize, u8)>;

#[derive(Clone, Debug)]
struct Scenario {
    discipline: &'static str,
    batch: u64,
    priorities: Vec<Option<u32>>,
    /// What is sent before the plane runs, and whether the ports then take what arrived and make their
    /// buffers available again.
    rounds: Vec<(Sends, bool)>,
}

fn scenario() -> impl Strategy<Value = Scenario> {
    let sends = proptest::collection::vec((0usize..6, 0usize..6, 1u8..12), 0..8);
    (
        proptest::sample::select(registry::disciplines()).prop_map(|info| info.name),
        proptest::sample::select(vec![1u64, 2, 64]),
        proptest::collection::vec(proptest::option::of(0u32..3), 2..7),
        proptest::collection::vec((sends, any::<bool>()), 1..6),
    )
        .prop_map(|(discipline, batch, priorities, rounds)| Scenario {
            discipline,
            batch,
            priorities,
            rounds,
        })
}

/// The numbers of the frames that each port received, in order, and what was dropped of each port's.
fn run(scenario: &Scenario, cuts_through: bool) -> (Vec<Vec<u64>>, Vec<Drops>) {
    let Scenario { discipline, batch, priorities, rounds } = scenario;
    let ports: Vec<InterfaceParams> = priorities
        .iter()
        .map(|&priority| InterfaceParams { priority, ..InterfaceParams::default() })
        .collect();
    let info = registry::find(discipline).expect("a discipline");
    let options = Options::new().with("batch", OptionValue::Count(*batch));
    // Few buffers, so that some frames find none.
    let vm = testing::Options { entries: 16, ..testing::Options::default() };
    let mut plane = SteppedPlane::new(info, &options, &ports, vm).expect("a plane");
    if !cuts_through {
        plane.forbid_cut_through();
    }
    let mut received = vec![Vec::new(); ports.len()];
    let mut sent = 0;
    for (sends, are_read) in rounds {
        for &(from, to, frames) in sends {
            // Frames to oneself never become packets.
            let (from, past) = (from % ports.len(), 1 + to % (ports.len() - 1));
            let to = (from + past) % ports.len();
            for _ in 0..frames {
                sent += 1;
                plane.vms[from].send(&frame(address(to), address(from), sent, 64)).expect("sent");
            }
        }
        plane.run();
        if *are_read {
            receive_all(&mut plane, &mut received);
        }
    }
    receive_all(&mut plane, &mut received);
    (received, plane.stop().into_iter().map(|port| port.drops).collect())
}

fn receive_all(plane: &mut SteppedPlane, received: &mut [Vec<u64>]) {
    for (vm, received) in plane.vms.iter_mut().zip(received) {
        while let Some(frame) = vm.receive().expect("whole frames") {
            received.push(number(&frame.frame));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn frames_that_cut_through_arrive_in_the_same_order_and_none_else_is_dropped(scenario in scenario()) {
        prop_assert_eq!(run(&scenario, true), run(&scenario, false));
    }
}

/// Frames that the two ports of `from` send to a third one before the plane looks.
fn look(discipline: &str, from: &[usize], priorities: [u32; 2]) -> Vec<(bool, usize)> {
    let params = |priority| InterfaceParams { priority: Some(priority), ..InterfaceParams::default() };
    let ports = [params(priorities[0]), params(priorities[1]), params(9)];
    let info = registry::find(discipline).expect("a discipline");
    let mut plane = SteppedPlane::new(info, &Options::new(), &ports, testing::Options::default());
    let plane = plane.as_mut().expect("a plane");
    for &from in from {
        (0..2).for_each(|number| {
            plane.vms[from].send(&frame(address(2), address(from), number, 64)).expect("sent");
        });
    }
    (0..2).map(|_| plane.look()).collect()
}

#[test]
fn a_frame_passes_at_once_only_if_no_other_port_has_one() {
    for info in registry::disciplines() {
        assert_eq!(look(info.name, &[0], [1, 1]), [(true, 0); 2], "{}: one frame in each look", info.name);
        for priorities in [[1, 1], [1, 2], [2, 1]] {
            let looks = look(info.name, &[0, 1], priorities);
            assert!(looks.iter().all(|(passed, waiting)| !passed && *waiting > 1), "{looks:?}");
        }
    }
}
