//! VMs whose vCPUs share a budget: exact timelines, and every policy beside one unit with all their work.

use proptest::prelude::*;
use punctual_sched::registry::{Options, PolicyInfo, policies};
use punctual_sched::turns::TURN;
use punctual_sched::vm_server::VmServers;
use punctual_sched::wrap::Wrapped;
use punctual_sched::{CpuId, CpuSet, Duration, Instant, Policy, Run, UnitId, UnitParams};
use punctual_testkit::driver::*;

const MS: Duration = Duration::from_ms(1);
const US: Duration = Duration::from_us(1);

/// A vCPU of this VM, which has one budget.
fn vcpu(vm: u32, budget_ms: u64, priority: u32) -> UnitParams {
    let params = server_ms(budget_ms, 20, priority);
    UnitParams { vm: Some(vm), shares_budget: true, extratime: Some(false), ..params }
}

fn info(name: &str) -> &'static PolicyInfo {
    policies().iter().find(|info| info.name == name).expect("a policy")
}

/// The policy on `cpus` processors.
fn driver(info: &PolicyInfo, cpus: usize) -> Driver {
    Driver::in_vm_servers(info, cpus, &Options::new()).expect("defaults are accepted")
}

#[test]
fn busy_vcpus_alternate_until_the_budget_of_their_vm_is_used_up() {
    for name in ["deferrable", "periodic", "polling", "sporadic", "sedf", "rtds"] {
        let mut driver = driver(info(name), 1);
        let vcpus = [driver.insert(&vcpu(0, 6, 1)), driver.insert(&vcpu(0, 6, 1))];
        let other = driver.insert(&UnitParams { extratime: Some(false), ..server_ms(3, 20, 2) });
        vcpus.iter().chain([&other]).for_each(|unit| driver.busy(*unit, at_ms(0)));
        driver.run_until(at_ms(20));
        let expected = "0:0-1 1:1-2 0:2-3 1:3-4 0:4-5 1:5-6 2:6-9 -:9-20";
        assert_eq!(driver.timeline(0, MS), expected, "{name}");
        let left = vcpus.map(|unit| driver.policy.account(unit).left);
        assert_eq!(left[0], left[1], "{name}");
    }
}

#[test]
fn one_vcpu_may_use_the_whole_budget_and_one_that_wakes_up_comes_next() {
    let mut driver = driver(info("deferrable"), 1);
    let busy = driver.insert(&vcpu(0, 6, 1));
    let wakes = driver.insert(&vcpu(0, 6, 1));
    driver.busy(busy, at_ms(0));
    driver.release(wakes, at_us(4_500), US * 700);
    driver.run_until(at_ms(26));
    // The fifth turn of the first one goes on until 5 ms.
    let expected = "0:0-5000 1:5000-5700 0:5700-6000 -:6000-20000 0:20000-26000";
    assert_eq!(driver.timeline(0, US), expected);
}

#[test]
fn a_vcpu_that_comes_or_goes_leaves_the_budget_as_it_is() {
    let mut driver = driver(info("deferrable"), 1);
    let first = driver.insert(&vcpu(0, 6, 1));
    driver.busy(first, at_ms(0));
    driver.run_until(at_ms(3));
    let second = driver.insert(&vcpu(0, 6, 1));
    driver.busy(second, at_ms(3));
    driver.run_until(at_ms(4));
    driver.remove(first);
    driver.run_until(at_ms(21));
    driver.remove(second);
    driver.run_until(at_ms(22));
    // The first one has just begun a turn when the second one comes.
    assert_eq!(driver.timeline(0, MS), "0:0-4 1:4-6 -:6-20 1:20-21 -:21-22");
}

#[test]
fn what_one_vcpu_is_adjusted_to_counts_for_all_and_the_vm_stays() {
    let mut driver = driver(info("deferrable"), 1);
    let vcpus = [driver.insert(&vcpu(0, 6, 1)), driver.insert(&vcpu(0, 6, 1))];
    driver.adjust(vcpus[1], &vcpu(0, 4, 1)).expect("it is accepted");
    vcpus.iter().for_each(|unit| driver.busy(*unit, at_ms(20)));
    driver.run_until(at_ms(40));
    assert_eq!(driver.timeline(0, MS), "-:0-20 0:20-21 1:21-22 0:22-23 1:23-24 -:24-40");
    for params in [vcpu(1, 4, 1), UnitParams { shares_budget: false, ..vcpu(0, 4, 1) }] {
        let error = driver.adjust(vcpus[0], &params).expect_err("it belongs to its VM");
        assert_eq!(error.to_string(), "`budget_of` must be as it was when the unit came");
    }
}

/// A live enforcer has the order alone.
#[test]
fn the_ranking_has_all_vcpus_of_a_vm_at_its_place_the_next_turn_first() {
    let inside = (info("fixed-priority").construct)(1, &Options::new()).expect("accepted");
    let mut policy = Wrapped::new(VmServers::new(1), inside);
    let mut resched = CpuSet::new(1);
    let params = [server_ms(1, 20, 1), vcpu(0, 6, 2), vcpu(0, 6, 2), vcpu(1, 6, 3), vcpu(0, 6, 2)];
    let [above, first, second, below, third] =
        params.map(|params| policy.insert(at_ms(0), &params).expect("accepted"));
    let ranking = |policy: &Wrapped<VmServers>| {
        let mut out = Vec::new();
        policy.ranking(CpuId(0), &mut out);
        out
    };
    [first, below].iter().for_each(|unit| policy.wake(at_ms(0), *unit, &mut resched));
    assert_eq!(policy.pick(at_ms(0), CpuId(0), &mut resched).run, Run::Unit(first));
    assert_eq!(ranking(&policy), [above, first, second, third, below]);
    policy.charge(at_ms(1), CpuId(0), first, TURN);
    assert_eq!(ranking(&policy), [above, second, third, first, below]);
}

/// A job of a vCPU of a VM.
#[derive(Clone, Debug)]
struct Job {
    vcpu: usize,
    at_us: u64,
    demand_us: u64,
}

/// A VM: budget and period in ms, priority, jobs of its three vCPUs.
type Vm = ((u64, u64), u32, Vec<Job>);

fn any_vm() -> impl Strategy<Value = Vm> {
    let job = (0usize..3, 0u64..160, 1u64..24).prop_map(|(vcpu, at, demand)| Job {
        vcpu,
        at_us: at * 250,
        demand_us: demand * 250,
    });
    let budget = (1u64..8, 0u64..12).prop_map(|(budget, more)| (budget, budget + more));
    (budget, 0u32..4, prop::collection::vec(job, 0..12))
}

/// When each VM runs, on whichever processor, without the borders between its vCPUs.
fn by_vm(driver: &Driver, vms: usize, vm_of: impl Fn(UnitId) -> usize) -> Vec<Vec<(Instant, Instant)>> {
    let mut lines: Vec<Vec<(Instant, Instant)>> = vec![Vec::new(); vms];
    let mut spans = driver.gantt.clone();
    spans.sort_by_key(|span| span.from);
    for span in spans {
        let Run::Unit(unit) = span.run else { continue };
        let line = &mut lines[vm_of(unit)];
        match line.last_mut() {
            Some((_, end)) if *end == span.from => *end = span.to,
            _ => line.push((span.from, span.to)),
        }
    }
    lines
}

proptest! {
    #[test]
    fn a_vm_runs_when_one_unit_with_the_work_of_all_its_vcpus_does(
        vms in prop::collection::vec(any_vm(), 1..5),
        cpus in 1usize..4,
    ) {
        // Credit decides by ticks of the unit that runs then, and round robin by who picks.
        let names = ["deferrable", "periodic", "polling", "sporadic", "sedf", "rtds"];
        for info in names.map(info) {
            // Which of two equally urgent units is preempted depends on their processors.
            let cpus = if info.shared_queue { 1 } else { cpus };
            let mut shared = driver(info, cpus);
            let mut single = Driver::of(info, cpus, &Options::new()).expect("defaults are accepted");
            let mut owner = Vec::new();
            for (vm, ((budget, period), priority, jobs)) in vms.iter().enumerate() {
                let params = UnitParams { extratime: Some(false), ..server_ms(*budget, *period, *priority) };
                let one = single.insert(&params);
                prop_assert_eq!(one.index(), vm);
                let of_vm = UnitParams { vm: Some(vm as u32), shares_budget: true, ..params };
                let vcpus = [0; 3].map(|_| shared.insert(&of_vm));
                owner.extend([vm; 3]);
                for job in jobs {
                    shared.release(vcpus[job.vcpu], at_us(job.at_us), US * job.demand_us);
                    single.release(one, at_us(job.at_us), US * job.demand_us);
                }
            }
            shared.run_until(at_ms(100));
            single.run_until(at_ms(100));
            let lines = by_vm(&shared, vms.len(), |unit| owner[unit.index()]);
            prop_assert_eq!(lines, by_vm(&single, vms.len(), UnitId::index), "{}", info.name);
        }
    }
}
