//! Response times by cause, to the nanosecond.

use punctual_model::file::{self, Overrides};
use punctual_model::host::Parent;
use punctual_model::index::{PoolIx, TaskIx};
use punctual_model::results::{BlameSum, Cause, CauseTime, JobBlame, Results};
use punctual_model::{AnyHost, Host};
use punctual_sched::Duration;
use punctual_sim::{Blamer, simulate, simulate_blamed};
use punctual_testkit::hosts::*;
use punctual_testkit::random::{Random, random_host};

use crate::watch::simulate_watched;

const POOL: Parent = Parent::Pool(PoolIx(0));

fn blamed(host: &Host) -> Blamer<'_> {
    let mut blamer = Blamer::new(host);
    simulate_watched(host, &mut blamer).unwrap_or_else(|e| panic!("{e}"));
    blamer
}

/// The first job of a task.
fn first(host: &Host, task: usize) -> JobBlame {
    blamed(host).jobs(TaskIx(task))[0].clone()
}

/// The causes of a job in the order of [`Cause::ALL`], with who it was.
fn causes(job: &JobBlame) -> Vec<(Cause, Option<&str>, Duration)> {
    let mut causes: Vec<_> =
        job.causes.iter().map(|of| (of.cause, of.by.as_deref(), Duration::from_ns(of.time_ns))).collect();
    causes.sort();
    causes
}

#[test]
fn a_job_waits_for_more_urgent_tasks_of_its_guest() {
    let mut host = pooled(1, ms(10), policy("deferrable"));
    let vm = vm(&mut host, server(ms(10), ms(10), 1));
    let urgent = task(&mut host, vm, 1, ms(1), ms(10));
    let other = task(&mut host, vm, 2, ms(2), ms(10));
    let urgent_name = host.tasks[urgent].name.clone();
    assert_eq!(causes(&first(&host, urgent)), [(Cause::Executing, None, ms(1))]);
    let expected = [(Cause::Executing, None, ms(2)), (Cause::PreemptedInGuest, Some(&*urgent_name), ms(1))];
    assert_eq!(causes(&first(&host, other)), expected);
}

#[test]
fn a_job_that_uses_up_its_budget_waits_for_its_own_budget() {
    let mut host = pooled(1, ms(40), policy("deferrable"));
    let vm = vm(&mut host, server(ms(3), ms(10), 1));
    let urgent = task(&mut host, vm, 1, ms(2), ms(10));
    let other = task(&mut host, vm, 2, ms(2), ms(20));
    let urgent_name = host.tasks[urgent].name.clone();
    // It executes from 2 to 3 ms, has to wait until 10 ms, then for the other task, and ends at 13 ms.
    let expected = [
        (Cause::Executing, None, ms(2)),
        (Cause::PreemptedInGuest, Some(&*urgent_name), ms(4)),
        (Cause::BudgetUsedBySelf, None, ms(7)),
    ];
    assert_eq!(causes(&first(&host, other)), expected);
}

#[test]
fn a_sibling_that_uses_up_the_budget_is_blamed() {
    let mut host = pooled(1, ms(40), policy("deferrable"));
    let vm = vm(&mut host, server(ms(3), ms(10), 1));
    let sibling = task(&mut host, vm, 1, ms(3), ms(20));
    let other = task(&mut host, vm, 2, ms(1), ms(20));
    let sibling_name = host.tasks[sibling].name.clone();
    let expected = [
        (Cause::Executing, None, ms(1)),
        (Cause::PreemptedInGuest, Some(&*sibling_name), ms(3)),
        (Cause::BudgetUsedBySibling, Some(&*sibling_name), ms(7)),
    ];
    assert_eq!(causes(&first(&host, other)), expected);
}

#[test]
fn a_periodic_server_whose_budget_idled_away_is_blamed() {
    let mut host = pooled(1, ms(40), policy("periodic"));
    let vm = vm(&mut host, server(ms(2), ms(10), 1));
    let late = released_at(&mut host, vm, 1, ms(1), ms(20), ms(2));
    let expected = [(Cause::Executing, None, ms(1)), (Cause::BudgetIdledAway, None, ms(8))];
    assert_eq!(causes(&first(&host, late)), expected);
}

#[test]
fn two_budgets_back_to_back_are_one_wait_for_the_processor_and_the_vcpu_is_named() {
    let mut host = pooled(1, ms(40), policy("deferrable"));
    let first_vm = vm(&mut host, server(ms(3), ms(10), 1));
    released_at(&mut host, first_vm, 1, ms(6), ms(40), ms(7));
    let second_vm = vm(&mut host, server(ms(5), ms(10), 2));
    let delayed = released_at(&mut host, second_vm, 1, ms(2), ms(40), ms(7));
    let vcpu = host.vcpus[0].name.clone();
    let expected = [(Cause::Executing, None, ms(2)), (Cause::PreemptedByUnit, Some(&*vcpu), ms(6))];
    assert_eq!(causes(&first(&host, delayed)), expected);
}

#[test]
fn an_urgent_task_in_a_less_urgent_server_waits_for_a_hog_in_a_more_urgent_one() {
    let mut host = pooled(1, ms(20), policy("deferrable"));
    let noisy = vm(&mut host, server(ms(4), ms(10), 1));
    hog(&mut host, noisy, 9);
    let quiet = vm(&mut host, server(ms(5), ms(10), 2));
    let urgent = task(&mut host, quiet, 1, ms(1), ms(10));
    let vcpu = host.vcpus[0].name.clone();
    let expected = [(Cause::Executing, None, ms(1)), (Cause::PreemptedByUnit, Some(&*vcpu), ms(4))];
    assert_eq!(causes(&first(&host, urgent)), expected);
}

#[test]
fn scheduling_that_costs_time_is_a_cause() {
    let mut host = pooled(1, ms(10), policy("fixed-priority"));
    host.overheads.decision = us(2);
    host.overheads.context_switch = us(10);
    let only = task(&mut host, POOL, 1, ms(1), ms(10));
    let expected = [(Cause::Executing, None, ms(1)), (Cause::Overhead, None, us(12))];
    assert_eq!(causes(&first(&host, only)), expected);
}

#[test]
fn a_job_waits_for_the_jobs_before_it() {
    let mut host = pooled(1, ms(40), policy("fixed-priority"));
    let only = task(&mut host, POOL, 1, ms(12), ms(10));
    let name = host.tasks[only].name.clone();
    let second = blamed(&host).jobs(TaskIx(only))[1].clone();
    let expected = [(Cause::Executing, None, ms(12)), (Cause::PreemptedInGuest, Some(&*name), ms(2))];
    assert_eq!(causes(&second), expected);
    assert!(second.missed);
}

#[test]
fn a_job_in_a_queue_waits_for_what_the_jobs_before_it_wait_for() {
    let mut host = pooled(1, ms(60), policy("deferrable"));
    let urgent_vm = vm(&mut host, server(ms(2), ms(10), 1));
    hog(&mut host, urgent_vm, 1);
    let vm = vm(&mut host, server(ms(5), ms(10), 2));
    let only = task(&mut host, vm, 1, ms(8), ms(10));
    let name = host.tasks[only].name.clone();
    let vcpu = host.vcpus[0].name.clone();
    let jobs = blamed(&host).jobs(TaskIx(only));
    // The first: 2 to 7 ms, and 12 to 15 ms. The second is released at 10 ms: 15 to 17 ms, 22 to 27 ms, and
    // 32 to 33 ms.
    let expected = [
        (Cause::Executing, None, ms(8)),
        (Cause::BudgetUsedBySelf, None, ms(3)),
        (Cause::PreemptedByUnit, Some(&*vcpu), ms(4)),
    ];
    assert_eq!(causes(&jobs[0]), expected);
    let expected = [
        (Cause::Executing, None, ms(8)),
        (Cause::PreemptedInGuest, Some(&*name), ms(3)),
        (Cause::BudgetUsedBySelf, None, ms(6)),
        (Cause::PreemptedByUnit, Some(&*vcpu), ms(6)),
    ];
    assert_eq!(causes(&jobs[1]), expected);
}

#[test]
fn a_job_that_never_finished_is_blamed_for_as_long_as_the_run_lasted() {
    let mut host = pooled(1, ms(25), policy("fixed-priority"));
    hog(&mut host, POOL, 1);
    let starved = task(&mut host, POOL, 2, ms(1), ms(10));
    let hog_name = host.tasks[0].name.clone();
    let mut blamer = blamed(&host);
    let jobs = blamer.jobs(TaskIx(starved));
    assert_eq!(jobs.len(), 2, "the third is due after the end");
    assert!(jobs.iter().all(|job| job.missed));
    assert_eq!(causes(&jobs[0]), [(Cause::PreemptedByUnit, Some(&*hog_name), ms(25))]);
    assert_eq!(causes(&jobs[1]), [(Cause::PreemptedByUnit, Some(&*hog_name), ms(15))]);
    assert_eq!(blamer.tasks()[starved].late.response_ns, ms(40).as_ns());
    let results = simulate_blamed(&host, ()).unwrap();
    assert!(results.tasks[0].blame.is_none(), "a hog has no jobs");
    assert_eq!(results.tasks[starved].blame.as_ref().unwrap().late.jobs, results.tasks[starved].jobs.missed);
}

#[test]
fn of_many_others_those_with_the_greatest_times_are_named() {
    let mut host = pooled(1, ms(100), policy("fixed-priority"));
    for n in 1..=12 {
        task(&mut host, POOL, n, us(100 * u64::from(n)), ms(100));
    }
    let last = task(&mut host, POOL, 99, ms(1), ms(100));
    let job = first(&host, last);
    let others = job.causes.iter().filter(|of| of.cause == Cause::PreemptedByUnit);
    let (named, rest): (Vec<_>, Vec<_>) = others.partition(|of| of.by.is_some());
    assert_eq!((named.len(), rest.len()), (8, 1));
    assert!(named.iter().all(|of| of.time_ns >= us(500).as_ns()));
    assert_eq!(rest[0].time_ns, us(100 + 200 + 300 + 400).as_ns());
    assert!(job.adds_up());
}

#[test]
fn parts_add_up_for_every_job_of_random_hosts_and_blame_changes_nothing() {
    for seed in 0..300 {
        let host = random_host(&mut Random::new(seed));
        check(&host, &format!("seed {seed}"));
    }
}

#[test]
fn parts_are_the_same_however_often_the_history_is_forgotten() {
    for seed in 0..100 {
        let host = random_host(&mut Random::new(seed));
        let mut forgetful = Blamer::with_limits(&host, 0, usize::MAX);
        simulate_watched(&host, &mut forgetful).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let other = blamed(&host);
        for task in (0..host.tasks.len()).map(TaskIx) {
            for (job, other) in forgetful.jobs(task).iter().zip(other.jobs(task)) {
                let times = |job: &JobBlame| Cause::ALL.map(|cause| job.time_ns(cause));
                assert_eq!(times(job), times(&other), "seed {seed}: {job:?}");
            }
        }
    }
}

#[test]
fn jobs_that_share_what_they_waited_for_name_the_same_units() {
    let mut hosts: Vec<Host> = (0..200).map(|seed| random_host(&mut Random::new(seed))).collect();
    hosts.extend((0..20).map(|seed| crowded(&mut Random::new(seed))));
    let mut shortened = 0;
    for (n, host) in hosts.iter().enumerate() {
        let [mut sharing, mut alone] =
            [0, usize::MAX].map(|shared_min| Blamer::with_limits(host, 1 << 14, shared_min));
        simulate_watched(host, (&mut sharing, &mut alone)).unwrap_or_else(|e| panic!("host {n}: {e}"));
        for task in (0..host.tasks.len()).map(TaskIx) {
            let jobs = sharing.jobs(task);
            assert_eq!(jobs, alone.jobs(task), "host {n}");
            let is_rest = |of: &CauseTime| of.cause == Cause::PreemptedByUnit && of.by.is_none();
            shortened += jobs.iter().filter(|job| job.causes.iter().any(is_rest)).count();
        }
        assert_eq!(sharing.tasks(), alone.tasks(), "host {n}");
    }
    assert!(shortened > 1_000, "{shortened} jobs waited for more units than they name");
}

/// A host with 40 vCPUs on one or two processors, two tasks in each.
fn crowded(random: &mut Random) -> Host {
    let mut host = pooled(random.of(&[1, 1, 2]), ms(100), policy(random.of(&["deferrable", "rtds"])));
    for n in 0..40 {
        let period = ms(random.of(&[5, 10, 20]));
        let budget = us(random.within(50, 400));
        let vm = vm(&mut host, server(budget, period, n));
        task(&mut host, vm, 1, us(random.within(10, 100)), period);
        released_at(&mut host, vm, 2, us(random.within(10, 300)), period, us(random.within(0, 5_000)));
    }
    host
}

#[test]
fn parts_add_up_for_every_job_of_the_examples() {
    let examples = format!("{}/../../examples", env!("CARGO_MANIFEST_DIR"));
    let mut hosts = 0;
    for entry in std::fs::read_dir(examples).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") && !path.ends_with("fleet.toml") {
            let overrides = Overrides { duration: Some("500ms".into()), ..Overrides::default() };
            let bytes = std::fs::read(&path).unwrap();
            let name = path.display().to_string();
            // A Linux host with its network stack has no jobs.
            if let AnyHost::Pools(host) = AnyHost::parse_bytes(&bytes, &name, &overrides).unwrap() {
                check(&host, &name);
                hosts += 1;
            }
        }
    }
    assert!(hosts >= 6);
}

#[test]
fn parts_add_up_under_every_policy() {
    let path = format!("{}/../../examples/five-vms.toml", env!("CARGO_MANIFEST_DIR"));
    for info in punctual_sched::registry::policies() {
        let overrides = Overrides {
            duration: Some("500ms".into()),
            policy: Some(info.name.into()),
            ..Overrides::default()
        };
        // Some policies need a budget or a period that not every domain of the example has.
        let Ok(host) = file::load(std::path::Path::new(&path), &overrides) else { continue };
        check(&host, info.name);
    }
}

/// The parts of every job add up, those of the sums too, they fit the results, and blame changes nothing.
pub(crate) fn check(host: &Host, what: &str) {
    let mut blamer = Blamer::new(host);
    let observed = simulate_watched(host, &mut blamer).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(observed, simulate(host).expect("it runs"), "{what}");
    for (task, blame) in blamer.tasks().iter().enumerate() {
        let jobs = blamer.jobs(TaskIx(task));
        let of_task = &observed.tasks[task].jobs;
        assert_eq!(jobs.iter().filter(|job| job.missed).count() as u64, of_task.missed, "{what}");
        let unfinished = jobs.len() as u64 - of_task.completed;
        assert!(unfinished <= of_task.missed, "{what}");
        // Those that did not finish are the last ones. The response times of results begin after the network.
        let after_release = |job: &JobBlame| job.response_ns - job.time_ns(Cause::Network);
        let responses: u64 = jobs[..jobs.len() - unfinished as usize].iter().map(after_release).sum();
        let mean = responses.checked_div(of_task.completed).unwrap_or(0);
        assert_eq!(mean, of_task.response.mean().as_ns(), "{what}");
        for job in &jobs {
            assert!(job.adds_up(), "{what}: {job:?}");
            assert_eq!(job.time_ns(Cause::Unknown), 0, "{what}: {job:?}");
        }
        let executed = blame.all.time_ns(Cause::Executing);
        assert!(executed <= observed.tasks[task].cpu_time_ns, "{what}");
        add_up(&blame.all, jobs.iter(), what);
        add_up(&blame.late, jobs.iter().filter(|job| job.missed), what);
        let mut slowest: Vec<&JobBlame> = jobs.iter().collect();
        slowest.sort_by_key(|job| (std::cmp::Reverse(job.response_ns), job.job));
        add_up(&blame.slowest, slowest.iter().take(jobs.len().div_ceil(100)).copied(), what);
        assert!(blame.worst.iter().eq(slowest.into_iter().take(10)), "{what}");
    }
    let results = simulate_blamed(host, ()).expect("it runs");
    assert_eq!(without_blame(results), observed, "{what}");
}

fn add_up<'a>(sum: &BlameSum, jobs: impl Iterator<Item = &'a JobBlame> + Clone, what: &str) {
    assert_eq!(sum.jobs, jobs.clone().count() as u64, "{what}");
    assert_eq!(sum.response_ns, jobs.clone().map(|job| job.response_ns).sum::<u64>(), "{what}");
    assert_eq!(sum.response_ns, sum.causes.iter().map(|cause| cause.time_ns).sum::<u64>(), "{what}");
    for cause in Cause::ALL {
        assert_eq!(sum.time_ns(cause), jobs.clone().map(|job| job.time_ns(cause)).sum::<u64>(), "{what}");
    }
}

fn without_blame(mut results: Results) -> Results {
    results.tasks.iter_mut().for_each(|task| task.blame = None);
    results
}
