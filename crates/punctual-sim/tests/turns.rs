//! The vCPUs of a VM on one processor, simulated with every invariant.

use punctual_model::Host;
use punctual_model::host::Parent;
use punctual_model::index::PoolIx;
use punctual_sched::UnitParams;
use punctual_sched::registry::policies;
use punctual_sim::simulate;
use punctual_testkit::hosts::*;

/// A VM of two vCPUs with a busy loop each, on one processor.
fn two_on_one(name: &str) -> Host {
    let mut host = pooled(1, ms(100), policy(name));
    let vcpus = vec![server(ms(200), ms(200), 1), server(ms(200), ms(200), 2)];
    let vm = domain(&mut host, Parent::Pool(PoolIx(0)), "fixed-priority", vcpus);
    for vcpu in 0..2 {
        let task = hog(&mut host, vm, 1);
        host.tasks[task].params = pinned(host.tasks[task].params.clone(), vcpu, 2);
    }
    host
}

#[test]
fn vcpus_of_a_vm_share_a_processor_under_every_policy() {
    for info in policies() {
        let results = simulate(&two_on_one(info.name)).expect("no invariant is violated");
        for vcpu in &results.vcpus {
            assert_eq!(vcpu.cpu_time_ns, 50_000_000, "{}: {}", info.name, vcpu.name);
        }
    }
}

#[test]
fn vcpus_that_share_a_budget_get_it_once_and_neighbours_the_rest() {
    for name in ["deferrable", "periodic", "polling", "sporadic", "sedf", "rtds", "cbs"] {
        let mut host = pooled(1, ms(100), policy(name));
        let once =
            |budget, priority| UnitParams { extratime: Some(false), ..server(ms(budget), ms(20), priority) };
        let shared = vec![UnitParams { shares_budget: true, ..once(6, 1) }; 2];
        let vm = domain(&mut host, Parent::Pool(PoolIx(0)), "fixed-priority", shared);
        for vcpu in 0..2 {
            let task = hog(&mut host, vm, 1);
            host.tasks[task].params = pinned(host.tasks[task].params.clone(), vcpu, 2);
        }
        let other = domain(&mut host, Parent::Pool(PoolIx(0)), "fixed-priority", vec![once(14, 2)]);
        hog(&mut host, other, 1);
        let results = simulate(&host).expect("no invariant is violated");
        let times: Vec<u64> = results.vcpus.iter().map(|vcpu| vcpu.cpu_time_ns / 1_000_000).collect();
        assert_eq!(times, [15, 15, 70], "{name}");
    }
}

/// The second one begins while the budget of the VM is being used by the first.
#[test]
fn a_job_on_another_vcpu_of_the_vm_takes_a_turn_and_draws_from_the_same_budget() {
    let mut host = pooled(1, ms(20), policy("deferrable"));
    let shared = vec![UnitParams { shares_budget: true, ..server(ms(5), ms(20), 1) }; 2];
    let vm = domain(&mut host, Parent::Pool(PoolIx(0)), "fixed-priority", shared);
    for (vcpu, cost) in [(0, ms(4)), (1, ms(1))] {
        let job = task(&mut host, vm, 1, cost, ms(20));
        host.tasks[job].params = pinned(host.tasks[job].params.clone(), vcpu, 2);
    }
    let results = simulate(&host).expect("no invariant is violated");
    let longest = |task: usize| results.tasks[task].jobs.response.max();
    assert_eq!((longest(0), longest(1)), (ms(5), ms(2)));
}

#[test]
fn vcpus_inside_a_vm_take_turns_on_its_vcpu() {
    let mut host = pooled(1, ms(100), policy("deferrable"));
    let outer = vm(&mut host, server(ms(5), ms(10), 1));
    let inner = domain(&mut host, outer, "fixed-priority", vec![server(ms(1), ms(2), 1); 2]);
    for vcpu in 0..2 {
        let task = hog(&mut host, inner, 1);
        host.tasks[task].params = pinned(host.tasks[task].params.clone(), vcpu, 2);
    }
    let results = simulate(&host).expect("no invariant is violated");
    // The outer one has 50 ms; a turn goes on where it was cut.
    let of_inner: Vec<u64> = results.vcpus[1..].iter().map(|vcpu| vcpu.cpu_time_ns).collect();
    assert_eq!(of_inner.iter().sum::<u64>(), 50_000_000);
    assert!(of_inner[0].abs_diff(of_inner[1]) <= 1_000_000, "{of_inner:?}");
}

#[test]
fn several_processors_and_costs_keep_every_invariant() {
    for info in policies() {
        for processors in 1..=3 {
            let mut host = pooled(processors, ms(200), policy(info.name));
            (host.overheads.decision, host.overheads.context_switch) = (us(1), us(3));
            (host.overheads.migration, host.overheads.lock) = (us(2), us(1));
            for vm in 1..=3u32 {
                let vcpus = (0..3).map(|n| server(ms(2), ms(20), vm * 3 + n)).collect();
                let vm = domain(&mut host, Parent::Pool(PoolIx(0)), "edf", vcpus);
                hog(&mut host, vm, 2);
                task(&mut host, vm, 1, us(700), ms(3));
                task(&mut host, vm, 3, us(1_300), ms(7));
            }
            simulate(&host).unwrap_or_else(|error| panic!("{} on {processors}: {error}", info.name));
        }
    }
}
