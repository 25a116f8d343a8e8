//! The lists of slices and packets: they account for the same times as the results.

use punctual_model::file::{self, Overrides};
use punctual_model::trace::{Entity, PacketRecord, SlicePlace, SliceRecord};
use punctual_model::{Host, Results};
use punctual_sched::Duration;
use punctual_sim::{PacketLog, SliceLog};

use crate::watch::simulate_watched;

fn host(text: &str, set: &[&str]) -> Host {
    let set = set.iter().map(|one| (*one).to_owned()).collect();
    file::parse(text, "host.toml", &Overrides { set, ..Overrides::default() })
        .unwrap_or_else(|e| panic!("{e}"))
}

fn slices(host: &Host) -> (Results, Vec<SliceRecord>) {
    let mut slices = Vec::new();
    let results = simulate_watched(host, SliceLog::new(host, |slice: &SliceRecord| slices.push(*slice)))
        .unwrap_or_else(|e| panic!("{e}"));
    (results, slices)
}

/// The time of the slices that `keep` keeps, without what scheduling took.
fn time(slices: &[SliceRecord], keep: impl Fn(&SliceRecord) -> bool) -> u64 {
    let ran = |slice: &SliceRecord| slice.end.since(slice.start).as_ns();
    slices.iter().filter(|slice| keep(slice)).map(ran).sum()
}

const COSTS: [&str; 3] = [
    "machine.overheads.decision=3us",
    "machine.overheads.context_switch=20us",
    "machine.overheads.migration=100us",
];

#[test]
fn slices_account_for_the_time_of_the_results_and_never_overlap() {
    for file in ["misbehaving", "mixed-pools", "smp-guest", "containers", "network"] {
        let path = format!("{}/../../examples/{file}.toml", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).expect("an example");
        for set in [&["duration=300ms"][..], &[&["duration=300ms"][..], &COSTS].concat()] {
            let host = host(&text, set);
            let (results, slices) = slices(&host);
            assert!(!slices.is_empty());
            for processor in &results.processors {
                let place = SlicePlace::Processor(processor.processor);
                let busy = time(&slices, |slice| slice.place == place && !slice.idled_away);
                assert_eq!(busy, processor.busy_ns, "{file}: {place:?}");
            }
            for (task, result) in results.tasks.iter().enumerate() {
                let is_own = |slice: &SliceRecord| match slice.unit {
                    Entity::Task(of) => of.0 == task,
                    Entity::Vcpu(_) => false,
                };
                assert_eq!(time(&slices, is_own), result.cpu_time_ns, "{file}: {}", result.name);
            }
            let mut sorted = slices.clone();
            sorted.sort_by_key(|slice| (place_number(slice), slice.from));
            for pair in sorted.windows(2).filter(|pair| pair[0].place == pair[1].place) {
                assert!(pair[0].end <= pair[1].from, "{file}: {pair:?}");
                let same = pair[0].unit == pair[1].unit && pair[0].idled_away == pair[1].idled_away;
                let unbroken = pair[0].end == pair[1].from && pair[1].from == pair[1].start;
                assert!(!(same && unbroken), "{file}: one slice in two pieces: {pair:?}");
            }
            for slice in &slices {
                assert!(slice.from <= slice.start && slice.start <= slice.end, "{file}: {slice:?}");
            }
        }
    }
}

fn place_number(slice: &SliceRecord) -> (bool, usize) {
    match slice.place {
        SlicePlace::Processor(processor) => (false, processor),
        SlicePlace::Vcpu(vcpu) => (true, vcpu.0),
    }
}

#[test]
fn two_tasks_by_priority_have_the_slices_that_one_draws_by_hand() {
    let text = "duration = '10ms'\n[machine]\nprocessors = 1\n[pool.p]\npolicy = 'fixed-priority'\n\
                [pool.p.task.high]\nperiod = '5ms'\ncost = '1ms'\npriority = 1\n\
                [pool.p.task.low]\nperiod = '10ms'\ncost = '6ms'\npriority = 2\n";
    let (_, slices) = slices(&host(text, &[]));
    let ms = |ns: u64| ns / Duration::from_ms(1).as_ns();
    let shown: Vec<(usize, u64, u64)> = slices
        .iter()
        .map(|slice| match slice.unit {
            Entity::Task(task) => (task.0, ms(slice.start.as_ns()), ms(slice.end.as_ns())),
            Entity::Vcpu(_) => panic!("there is no vCPU"),
        })
        .collect();
    assert_eq!(shown, [(0, 0, 1), (1, 1, 5), (0, 5, 6), (1, 6, 8)]);
}

#[test]
fn packets_are_those_of_the_results_and_their_parts_add_up() {
    let path = format!("{}/../../examples/network.toml", env!("CARGO_MANIFEST_DIR"));
    let host = host(&std::fs::read_to_string(path).expect("an example"), &["duration=300ms"]);
    let mut latencies = vec![Vec::new(); host.flows.len() + host.chains.len()];
    let log = PacketLog::new(|packet: &PacketRecord<'_>| {
        let parts: u64 = packet.segments.iter().map(|part| part.as_ns()).sum();
        assert_eq!(parts, packet.latency.as_ns(), "{packet:?}");
        latencies[packet.owner].push(packet.latency);
    });
    let results = simulate_watched(&host, log).unwrap_or_else(|e| panic!("{e}"));
    assert!(!results.flows.is_empty());
    for (flow, listed) in results.flows.iter().zip(&latencies) {
        assert_eq!(listed.len() as u64, flow.latency.count(), "{}", flow.name);
        assert_eq!(listed.iter().max().copied().unwrap_or_default(), flow.latency.max(), "{}", flow.name);
    }
}
