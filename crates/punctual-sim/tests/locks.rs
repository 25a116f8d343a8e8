//! Tasks that share resources: who runs when, who waits for whom, and what protocols change, to the
//! nanosecond.

use punctual_model::file::{Overrides, parse};
use punctual_model::index::TaskIx;
use punctual_model::results::{Cause, Results};
use punctual_model::{Host, results::JobBlame};
use punctual_sched::Duration;
use punctual_sim::{Blamer, simulate, simulate_blamed};
use punctual_testkit::random::{Random, random_shared};

use crate::watch::simulate_watched;

fn host(guest: &str, text: &str) -> Host {
    let head = "duration = '100ms'\nmachine.processors = 1\npool.cpu = { policy = 'fixed-priority' }\n";
    let text = format!("{head}[domain.vm]\nguest = '{guest}'\n{text}");
    parse(&text, "test.toml", &Overrides::default()).unwrap_or_else(|e| panic!("{e}"))
}

/// The response time of each task's first job in us, in the order of the file.
fn responses(host: &Host) -> Vec<u64> {
    let jobs = first_jobs(host);
    jobs.iter().map(|job| job.response_ns / 1_000).collect()
}

fn first_jobs(host: &Host) -> Vec<JobBlame> {
    let mut blamer = Blamer::new(host);
    simulate_watched(host, &mut blamer).unwrap_or_else(|e| panic!("{e}"));
    (0..host.tasks.len()).map(|task| blamer.jobs(TaskIx(task))[0].clone()).collect()
}

fn missed(results: &Results) -> Vec<u64> {
    results.tasks.iter().map(|task| task.jobs.missed).collect()
}

/// The textbook's inversion: `low` holds what `high` wants, and `medium` needs nothing.
fn inversion(protocol: &str) -> Host {
    let tasks = "task.high = { period = '50ms', offset = '2ms', cost = '2ms', priority = 1,
                     sections = [{ resource = 'bus', after = '1ms', length = '1ms' }] }
                 task.medium = { period = '50ms', offset = '3ms', cost = '5ms', priority = 2 }
                 task.low = { period = '50ms', cost = '4ms', priority = 3,
                     sections = [{ resource = 'bus', after = '1ms', length = '2ms' }] }";
    host("fixed-priority", &format!("resource.bus = {{ protocol = '{protocol}' }}\n{tasks}"))
}

#[test]
fn without_a_protocol_work_of_medium_urgency_delays_the_most_urgent_task() {
    // high waits from 3 ms on; medium runs from 3 to 8, low to 9, high to 10.
    assert_eq!(responses(&inversion("none")), [8_000, 5_000, 11_000]);
}

#[test]
fn with_inheritance_the_most_urgent_task_waits_for_one_critical_section() {
    // low inherits at 3 ms and unlocks at 4; high ends at 5, medium at 10.
    assert_eq!(responses(&inversion("inherit")), [3_000, 7_000, 11_000]);
}

#[test]
fn under_a_ceiling_the_most_urgent_task_waits_before_it_begins() {
    // low goes on until 3 ms, high ends at 5, medium at 10.
    let host = inversion("ceiling");
    assert_eq!(responses(&host), [3_000, 7_000, 11_000]);
    assert!(first_jobs(&host).iter().all(|job| job.time_ns(Cause::Lock) == 0));
}

#[test]
fn blame_names_the_task_that_holds_the_resource() {
    for (protocol, waits) in [("none", 6_000_000), ("inherit", 1_000_000)] {
        let high = &first_jobs(&inversion(protocol))[0];
        let lock = high.causes.iter().find(|of| of.cause == Cause::Lock).expect("it waits");
        assert_eq!((lock.by.as_deref(), lock.time_ns), (Some("low"), waits), "{protocol}");
        assert_eq!(high.time_ns(Cause::Executing), 2_000_000);
        assert!(high.adds_up());
    }
}

#[test]
fn urgency_is_inherited_along_a_chain_of_tasks_that_wait() {
    let host = host(
        "fixed-priority",
        "resource.a = { protocol = 'inherit' }
         resource.b = { protocol = 'inherit' }
         task.high = { period = '50ms', offset = '3.5ms', cost = '2ms', priority = 1,
             sections = [{ resource = 'b', after = '1ms', length = '1ms' }] }
         task.next = { period = '50ms', offset = '4ms', cost = '5ms', priority = 2 }
         task.medium = { period = '50ms', offset = '2ms', cost = '4ms', priority = 3,
             sections = [{ resource = 'b', length = '4ms' },
                         { resource = 'a', after = '1ms', length = '1ms' }] }
         task.low = { period = '50ms', cost = '4ms', priority = 4,
             sections = [{ resource = 'a', after = '1ms', length = '2ms' }] }",
    );
    // low unlocks a at 5 ms, medium b at 8 ms, high ends at 9, next at 14, low at 15.
    assert_eq!(responses(&host), [5_500, 10_000, 6_000, 15_000]);
}

/// Two tasks that take two resources in opposite orders.
fn opposite(protocol: &str) -> Host {
    let resources =
        format!("resource.x = {{ protocol = '{protocol}' }}\nresource.y = {{ protocol = '{protocol}' }}");
    let tasks = "task.first = { period = '20ms', offset = '1ms', cost = '4ms', priority = 1, sections = [
                     { resource = 'x', after = '1ms', length = '3ms' },
                     { resource = 'y', after = '2ms', length = '1ms' }] }
                 task.second = { period = '20ms', cost = '4ms', priority = 2, sections = [
                     { resource = 'y', after = '0.5ms', length = '3ms' },
                     { resource = 'x', after = '2ms', length = '1ms' }] }";
    host("fixed-priority", &format!("{resources}\n{tasks}"))
}

#[test]
fn tasks_in_a_deadlock_never_end_and_miss_their_deadlines() {
    for protocol in ["none", "inherit"] {
        let results = simulate_blamed(&opposite(protocol), ()).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(missed(&results), [4, 5], "{protocol}");
        assert!(results.tasks.iter().all(|task| task.jobs.completed == 0));
        // From 4 ms on nothing executes.
        assert_eq!(results.processors[0].busy_ns, 4_000_000);
    }
}

#[test]
fn ceilings_prevent_deadlocks() {
    let results = simulate(&opposite("ceiling")).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(missed(&results), [0, 0]);
}

#[test]
fn a_ceiling_is_a_deadline_in_a_guest_with_edf() {
    let tasks = "task.high = { period = '50ms', deadline = '10ms', offset = '2ms', cost = '2ms',
                     sections = [{ resource = 'bus', after = '1ms', length = '1ms' }] }
                 task.medium = { period = '50ms', deadline = '20ms', offset = '2ms', cost = '5ms' }
                 task.low = { period = '50ms', deadline = '40ms', cost = '4ms',
                     sections = [{ resource = 'bus', after = '1ms', length = '2ms' }] }";
    let with = |protocol| host("edf", &format!("resource.bus = {{ protocol = '{protocol}' }}\n{tasks}"));
    // low is due at 11 ms while it holds the bus, until 3 ms.
    assert_eq!(responses(&with("ceiling")), [3_000, 8_000, 11_000]);
    // high runs from 2 ms to 3, low to 4, high to 5.
    assert_eq!(responses(&with("inherit")), [3_000, 8_000, 11_000]);
    // medium runs while high waits.
    assert_eq!(responses(&with("none")), [8_000, 6_000, 11_000]);
}

#[test]
fn a_shorter_job_has_shorter_critical_sections() {
    let mut host = inversion("inherit");
    let punctual_model::host::Work::Jobs { cost, .. } = &mut host.tasks[2].work else { panic!("jobs") };
    // A quarter of the greatest cost: it locks at 0.25 ms, and has ended before another task comes.
    (cost.min, cost.max) = (Duration::from_ms(4), Duration::from_ms(16));
    host.tasks[2].sections[0].after = Duration::from_ms(4);
    host.tasks[2].sections[0].length = Duration::from_ms(8);
    for seed in 0..50 {
        host.seed = seed;
        let jobs = first_jobs(&host);
        let executed = |job: &JobBlame| job.time_ns(Cause::Executing);
        // high waits while low holds the bus: at 3 ms it has executed 2 ms, and unlocks after 3/4 of its job.
        let left = (executed(&jobs[2]) * 3 / 4).saturating_sub(2_000_000);
        let holds = executed(&jobs[2]) / 4 <= 2_000_000;
        assert_eq!(jobs[0].time_ns(Cause::Lock), if holds { left } else { 0 }, "seed {seed}");
    }
}

#[test]
fn a_resource_goes_to_the_most_urgent_task_that_waits() {
    let user = |name: &str, priority: u32, offset: &str| {
        format!(
            "task.{name} = {{ period = '50ms', offset = '{offset}', cost = '1ms', priority = {priority},
                 sections = [{{ resource = 'r', length = '1ms' }}] }}\n"
        )
    };
    let tasks = [user("b", 2, "2ms"), user("a", 1, "3ms"), user("low", 4, "1ms")].concat();
    let text = format!(
        "resource.r = {{ protocol = 'none' }}\n{tasks}
         task.lowest = {{ period = '50ms', cost = '10ms', priority = 9,
             sections = [{{ resource = 'r', length = '5ms' }}] }}"
    );
    // All wait until 5 ms: then a, b and low have it, one after the other.
    assert_eq!(responses(&host("fixed-priority", &text)), [5_000, 3_000, 7_000, 13_000]);
}

#[test]
fn a_task_keeps_its_resource_while_its_vcpu_has_no_budget() {
    let text = "duration = '40ms'
        machine.processors = 1
        pool.cpu = { policy = 'deferrable', deferrable = { quantum = 'exact' } }
        [domain.vm]
        budget = '3ms'
        period = '10ms'
        resource.r = { protocol = 'inherit' }
        task.high = { period = '40ms', offset = '2ms', cost = '1ms', priority = 1,
            sections = [{ resource = 'r', length = '1ms' }] }
        task.low = { period = '40ms', cost = '5ms', priority = 2,
            sections = [{ resource = 'r', after = '1ms', length = '3ms' }] }";
    let host = parse(text, "test.toml", &Overrides::default()).unwrap_or_else(|e| panic!("{e}"));
    // low unlocks at 11 ms, with the second budget.
    assert_eq!(responses(&host), [10_000, 13_000]);
    let high = &first_jobs(&host)[0];
    assert_eq!((high.time_ns(Cause::Lock), high.time_ns(Cause::BudgetUsedBySibling)), (2_000_000, 7_000_000));
}

#[test]
fn random_hosts_with_resources_keep_every_invariant_and_their_causes_add_up() {
    let mut waits = 0;
    for seed in 0..300 {
        let host = random_shared(&mut Random::new(seed));
        let results = simulate_blamed(&host, ()).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{host:#?}"));
        let blamed = results.tasks.iter().filter_map(|task| task.blame.as_ref());
        waits += blamed.filter(|blame| blame.all.time_ns(Cause::Lock) > 0).count();
        assert_eq!(results, simulate_blamed(&host, ()).expect("again"), "seed {seed}");
    }
    assert!(waits > 80, "{waits} tasks waited");
}
