//! Memory: what a simulation of a large machine holds, host description, policies and results included.

use peak_alloc::PeakAlloc;
use punctual_model::Host;
use punctual_sim::simulate;
use punctual_testkit::hosts::*;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const PROCESSORS: usize = 64;

/// Deferrable servers at 60 % load, one task in each guest.
fn many(vcpus: usize) -> Host {
    let mut host = pooled(PROCESSORS, ms(1000), policy("deferrable"));
    // No slack, so that the description is counted as what it is.
    host.domains.reserve_exact(vcpus);
    host.vcpus.reserve_exact(vcpus);
    host.tasks.reserve_exact(vcpus);
    let each = vcpus.div_ceil(PROCESSORS) as u64;
    for vcpu in 0..vcpus {
        let period = us(100_000 + 1_000 * (vcpu as u64 % 10));
        let budget = us(80_000 / each);
        let cpu = (vcpu % PROCESSORS) as u32;
        let vm = vm(&mut host, pinned(server(budget, period, vcpu as u32), cpu, PROCESSORS));
        task(&mut host, vm, 1, us(60_000 / each), period);
    }
    host
}

#[test]
fn a_vcpu_with_a_task_takes_at_most_two_kib() {
    let vcpus = 10_000;
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let host = many(vcpus);
    let described = ALLOCATOR.current_usage() - before;
    let results = simulate(&host).unwrap();
    let peak = ALLOCATOR.peak_usage() - before;
    println!("{} bytes per vCPU at most, {} of them the description", peak / vcpus, described / vcpus);
    assert_eq!(results.tasks.iter().map(|t| t.jobs.missed).sum::<u64>(), 0);
    // With debug assertions each policy has its contract beside it.
    let contract = if cfg!(debug_assertions) { 192 } else { 0 };
    assert!(peak / vcpus <= 2048 + contract, "{} bytes per vCPU", peak / vcpus);
}
