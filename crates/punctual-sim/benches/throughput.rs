//! Scheduling events per second: decisions, wake-ups, sleeps, replenishments, releases and completions of
//! all levels, with metrics and invariant checks on.
//!
//! `cargo bench -p punctual-sim` prints elements (events) per second for the five-VM host of RT-Xen under
//! each policy, and for growing machines; then packets through the stages of a driver domain per second.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use punctual_model::Host;
use punctual_model::file::{self, Overrides};
use punctual_sim::simulate;

fn five_vms(policy: &str) -> Host {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/five-vms.toml");
    let overrides = Overrides { policy: Some(policy.into()), ..Overrides::default() };
    file::load(std::path::Path::new(path), &overrides).unwrap_or_else(|e| panic!("{e}"))
}

/// `vcpus` deferrable servers spread over `processors`, at 60 % load, two tasks in each guest.
fn many(processors: usize, vcpus: usize) -> Host {
    use std::fmt::Write as _;
    let per_processor = vcpus.div_ceil(processors);
    let mut text = format!(
        "duration = \"1s\"\n[machine]\nprocessors = {processors}\n[pool.p]\npolicy = \"deferrable\"\n"
    );
    for vcpu in 0..vcpus {
        let period_us = 10_000 + 1_000 * (vcpu as u64 % 10);
        let budget_us = (period_us * 8 / 10 / per_processor as u64).max(1);
        let _ = write!(
            text,
            "[domain.d{vcpu}]\nbudget = \"{budget_us}us\"\nperiod = \"{period_us}us\"\naffinity = [{}]\n\
             [domain.d{vcpu}.task.a]\nperiod = \"{period_us}us\"\ncost = \"{}us\"\n\
             [domain.d{vcpu}.task.b]\nperiod = \"{}us\"\ncost = \"{}us\"\n",
            vcpu % processors,
            (budget_us * 4 / 10).max(1),
            2 * period_us,
            (budget_us * 6 / 10).max(1),
        );
    }
    file::parse(&text, "many.toml", &Overrides::default()).unwrap_or_else(|e| panic!("{e}"))
}

fn loaded(path: &str) -> Host {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../");
    let path = std::path::Path::new(root).join(path);
    let overrides = Overrides { duration: Some("1s".into()), ..Overrides::default() };
    file::load(&path, &overrides).unwrap_or_else(|e| panic!("{e}"))
}

/// A packet event is a packet through one of the stages TX, softnet and RX; what else the machine does for it
/// (sending, rings, links, events, receiving, scheduling) is in the time, not in the count.
fn bench_packets(c: &mut Criterion) {
    let mut group = c.benchmark_group("packets");
    group.sample_size(10);
    for path in ["examples/network.toml", "papers/rtca/other-cores.toml", "papers/vmm-io/guests.toml"] {
        let mut host = loaded(path);
        for flow in &mut host.flows {
            // In the papers' files, flows start after the end of the run unless an experiment sets the time.
            flow.start = flow.start.min(punctual_sched::Duration::from_ms(1));
        }
        let results = simulate(&host).unwrap_or_else(|e| panic!("{e}"));
        let events = results.networks.iter().map(|n| n.tx + n.softnet + n.rx).sum();
        group.throughput(Throughput::Elements(events));
        group.bench_function(path, |b| b.iter(|| simulate(black_box(&host))));
    }
}

fn bench(c: &mut Criterion) {
    let mut group = c.benchmark_group("events");
    group.sample_size(10);
    let mut measure = |name: String, host: Host| {
        let events = simulate(&host).unwrap_or_else(|e| panic!("{e}")).events;
        group.throughput(Throughput::Elements(events));
        group.bench_function(name, |b| b.iter(|| simulate(black_box(&host))));
    };
    for policy in ["deferrable", "periodic", "polling", "sporadic", "credit", "sedf", "rtds"] {
        measure(format!("five VMs/{policy}"), five_vms(policy));
    }
    for (processors, vcpus) in [(1, 5), (1, 100), (1, 1_000), (8, 1_000), (64, 10_000)] {
        measure(format!("deferrable/{processors} processors {vcpus} vCPUs"), many(processors, vcpus));
    }
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    bench(&mut criterion);
    bench_packets(&mut criterion);
    criterion.final_summary();
}
