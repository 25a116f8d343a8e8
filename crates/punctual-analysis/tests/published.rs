//! Worked examples: published ones with their numbers, and some short enough to follow by hand.

use punctual_analysis::demand::Demand;
use punctual_analysis::fixed_priority::{Member, Server, response};
use punctual_analysis::overhead::Decisions;
use punctual_analysis::resource::{Inside, holds, smallest_budget};
use punctual_analysis::supply::Supply;
use punctual_analysis::{Answer, Reason, TaskAnswer, Test, answers};
use punctual_analysis::{FairServer, enforcement_warnings, fair_server_warnings, vcpu_warnings};
use punctual_analysis::{analyse, edf, global_edf, global_fixed_priority};
use punctual_model::Host;
use punctual_model::guarantees::Verdict;
use punctual_model::host::{Arrival, Parent, Work};
use punctual_model::index::{DomainIx, PoolIx, TaskIx};
use punctual_model::locks::{CriticalSection, Protocol, Resource};
use punctual_sched::registry::OptionValue;
use punctual_sched::{Duration, UnitParams};
use punctual_sim::simulate;
use punctual_testkit::hosts::*;
use punctual_testkit::random::Random;

fn ns(n: u64) -> Duration {
    Duration::from_ns(n)
}

fn set(tasks: &[(u64, u64, u64)]) -> Vec<Demand> {
    tasks.iter().map(|task| Demand::implicit(ns(task.0), ns(task.1)).due(ns(task.2))).collect()
}

fn densities(of: &[(u64, u64)]) -> Vec<(Duration, Duration)> {
    of.iter().map(|(cost, deadline)| (ns(*cost), ns(*deadline))).collect()
}

/// SchedCAT, `tests/fp.py`, `UniprocessorRTA`.
#[test]
fn response_times_are_those_of_schedcat() {
    let tasks = set(&[(1, 4, 4), (1, 5, 5), (3, 9, 9), (3, 18, 18)]);
    let times: Vec<_> =
        (0..4).map(|i| response(&tasks[i], &tasks[..i], &Decisions::default(), tasks[i].deadline)).collect();
    assert_eq!(times, [1, 2, 7, 18].map(|time| Some(ns(time))));
}

/// Lehoczky, *Fixed Priority Scheduling of Periodic Task Sets with Arbitrary Deadlines*, RTSS 1990, the
/// example of section 2: the jobs of the second task respond after 114, 102, 116, 104, 118, 106 and 94.
#[test]
fn the_worst_of_lehoczkys_busy_period_is_its_fifth_job() {
    let [above, task] = set(&[(26, 70, 70), (62, 100, 118)])[..] else { unreachable!("two") };
    let within = |limit| response(&task, &[above], &Decisions::default(), ns(limit));
    assert_eq!((within(118), within(117)), (Some(ns(118)), None));
}

/// Deadlines up to four periods, on a processor under fixed priorities: the bound is the worst response after
/// a synchronous release, and what is refuted misses at the time that is named, by as much as is said.
#[test]
fn beyond_the_period_bounds_and_refutations_are_those_of_the_simulated_busy_period() {
    let (mut later_jobs, mut refuted) = (0, 0);
    for case in 0..400 {
        let mut random = Random::new((1 << 43) + case);
        let mut host = pooled(1, ms(4_000), exact("fixed-priority"));
        for priority in 1..=random.within(2, 4) as u32 {
            let period_ns = random.within(5, 40) * 1_000_000;
            let cost = ns(period_ns * random.within(10, 45) / 100);
            let task = task(&mut host, Parent::Pool(PoolIx(0)), priority, cost, ns(period_ns));
            let Work::Jobs { deadline, .. } = &mut host.tasks[task].work else { unreachable!("it has jobs") };
            *deadline = ns(period_ns * random.within(2, 16) / 4).max(cost);
        }
        let results = simulate(&host).expect("the host is valid");
        for (task, of) in &answers(&host).tasks {
            let worst = results.tasks[task.0].jobs.response.max();
            let Work::Jobs { arrival: Arrival::Periodic { period, .. }, .. } = &host.tasks[task.0].work
            else {
                unreachable!("it is periodic")
            };
            match &of.answer {
                Answer::Guaranteed { bound, .. } => {
                    assert_eq!(*bound, worst, "{task:?} of {host:#?}");
                    later_jobs += u32::from(bound > period);
                }
                Answer::Refuted(refutation) => {
                    let missed = simulate(&refutation.apply(&host)).expect("the host is valid");
                    assert!(missed.tasks[task.0].jobs.missed > 0, "{refutation:?} of {host:#?}");
                    if let Some(late) = refutation.late_min {
                        assert!(worst >= of.deadline + late, "{worst}, {refutation:?} of {host:#?}");
                    }
                    refuted += 1;
                }
                Answer::Unknown(reason) => panic!("{task:?}: {reason}: {host:#?}"),
            }
        }
    }
    assert!(later_jobs > 50 && refuted > 50, "{later_jobs} {refuted}");
}

/// The avionics example of Audsley et al. 1993, with blocking and jitter, to the digit; from SchedCAT,
/// `tests/fp.py`, `AudsleyExample`. Cost, period, deadline, blocking, jitter, response time from the release
/// on.
#[test]
fn response_times_of_the_avionics_example() {
    const ROWS_NS: [[u64; 6]; 18] = [
        [51, 1000, 1000, 0, 0, 51],
        [3000, 2_000_000, 5000, 300, 0, 3504],
        [2000, 25_000, 25_000, 600, 0, 5906],
        [5000, 25_000, 25_000, 900, 0, 11_512],
        [1000, 40_000, 40_000, 1350, 0, 13_064],
        [3000, 50_000, 50_000, 1350, 0, 16_217],
        [5000, 50_000, 50_000, 750, 0, 20_821],
        [8000, 59_000, 59_000, 750, 0, 36_637],
        [9000, 80_000, 80_000, 1350, 0, 47_798],
        [2000, 80_000, 80_000, 450, 0, 48_949],
        [5000, 100_000, 100_000, 1050, 0, 99_150],
        [1000, 200_000, 200_000, 450, 1000, 99_550],
        [3000, 200_000, 200_000, 450, 0, 140_641],
        [1000, 200_000, 200_000, 450, 0, 141_692],
        [1000, 200_000, 200_000, 1350, 0, 143_694],
        [3000, 1_000_000, 1_000_000, 0, 0, 145_446],
        [1000, 1_000_000, 1_000_000, 0, 0, 146_497],
        [1000, 1_000_000, 1_000_000, 0, 0, 147_548],
    ];
    let mut above: Vec<Demand> = Vec::new();
    for row in ROWS_NS {
        let [cost, period, deadline, blocking, jitter, expected] = row.map(ns);
        let task = Demand::implicit(cost, period).due(deadline).late_by(jitter);
        // Blocking comes once, like more of the job's own cost.
        let blocked = Demand { cost: cost + blocking, ..task };
        assert_eq!(response(&blocked, &above, &Decisions::default(), deadline), Some(expected));
        above.push(task);
    }
}

/// A guest on a processor of its own: by priority, the longest critical section of each task on three
/// resources, one after the other. Its tasks do nothing else, and are released once in a long time.
fn sharing(protocol: Protocol, sections: &[[u64; 3]]) -> Host {
    let mut host = pooled(1, ms(1_000), exact("fixed-priority"));
    let guest = vm(&mut host, UnitParams::default());
    let resource = |name: &str| Resource { name: name.into(), protocol };
    host.domains[0].resources = ["s1", "s2", "s3"].map(resource).into();
    for (priority, lengths) in (1..).zip(sections) {
        let cost = lengths.iter().sum();
        let at = task(&mut host, guest, priority, ns(cost), ms(1_000));
        let mut after = Duration::ZERO;
        for (resource, &length) in lengths.iter().enumerate().filter(|(_, length)| **length > 0) {
            host.tasks[at].sections.push(CriticalSection { resource, after, length: ns(length) });
            after += ns(length);
        }
    }
    host
}

/// By task, its bound without its own cost and that of more urgent tasks.
fn blocking(host: &Host) -> Vec<u64> {
    let mut above = Duration::ZERO;
    let of_task = |(task, of): (&TaskIx, &TaskAnswer)| {
        let Answer::Guaranteed { bound, .. } = of.answer else { panic!("{of:?}") };
        above += host.tasks[task.0].cost_max().expect("it has jobs");
        (bound - above).as_ns()
    };
    answers(host).tasks.iter().map(of_task).collect()
}

/// G. Buttazzo, *Hard Real-Time Computing Systems*, the example of the algorithm for blocking times under
/// priority inheritance, and the same under ceilings.
#[test]
fn blocking_times_are_those_of_buttazzos_example() {
    let sections = [[1, 2, 0], [0, 9, 3], [8, 7, 0], [6, 5, 4]];
    // By task 9 + 8 + 6, by resource 8 + 9; 8 + 6, 8 + 7 + 4; 6, 6 + 5 + 4.
    assert_eq!(blocking(&sharing(Protocol::Inherit, &sections)), [17, 14, 6, 0]);
    assert_eq!(blocking(&sharing(Protocol::Ceiling, &sections)), [9, 8, 6, 0]);
}

/// A task may be as urgent as those that wait for what it holds through other tasks: `s1` is used by the two
/// least urgent tasks only, but the upper one takes it while it holds `s2`, which the first task uses.
#[test]
fn blocking_counts_resources_that_are_inherited_through_others() {
    let mut host = sharing(Protocol::Inherit, &[[0, 2, 0], [0, 0, 1], [0, 9, 0], [5, 0, 0]]);
    assert_eq!(blocking(&host), [9, 9, 0, 0]);
    let inner = CriticalSection { resource: 0, after: ns(4), length: ns(2) };
    host.tasks[2].sections.push(inner);
    assert_eq!(blocking(&host), [14, 14, 5, 0]);
}

#[test]
fn tasks_beside_a_resource_without_a_protocol_are_unknown_and_more_urgent_ones_are_not() {
    let host = sharing(Protocol::None, &[[0, 0, 1], [3, 0, 0], [0, 1, 0], [5, 0, 0]]);
    let reasons = answers(&host).tasks.into_values().map(|of| match of.answer {
        Answer::Guaranteed { bound, .. } => Ok(bound.as_ns()),
        Answer::Unknown(reason) => Err(reason),
        Answer::Refuted(_) => panic!("a test refutes it"),
    });
    let none = Err(Reason::NoProtocol(DomainIx(0), 0));
    assert_eq!(reasons.collect::<Vec<_>>(), [Ok(1), none, none, none]);
}

/// Baruah, *Resource Sharing in EDF-Scheduled Systems*, RTSS 2006: in an interval only work with a deadline
/// beyond it blocks, on a resource of a task with a deadline within it.
#[test]
fn under_edf_a_section_blocks_between_the_deadlines_of_the_resources_users() {
    let tasks = set(&[(2, 10, 10), (3, 20, 20), (6, 40, 40)]);
    let section = |floor, length| edf::Section { floor: ns(floor), deadline: ns(40), length: ns(length) };
    let bounds = |sections: &[edf::Section]| {
        let bounds = edf::bounds(&tasks, sections, &Supply::WHOLE).expect("all deadlines hold");
        bounds.into_iter().map(Duration::as_ns).collect::<Vec<_>>()
    };
    // Until 20, two jobs of the first task and one of the second are due. The third is done when the busy
    // interval ends: after 2 * 2 + 3 + 6, or, with a section before it, 3 + 6 + 2 * 2 + 5.
    assert_eq!(bounds(&[]), [2, 7, 13]);
    assert_eq!(bounds(&[section(20, 5)]), [2, 12, 18]);
    assert_eq!(bounds(&[section(10, 5)]), [7, 12, 18]);
    let longer = edf::bounds(&tasks, &[section(10, 9)], &Supply::WHOLE);
    assert_eq!(longer, Err(edf::Error::Overload(ns(10))));
}

/// SchedCAT, `tests/fp.py`, `BertognaRTA`, with slack.
#[test]
fn response_times_on_two_processors_are_those_of_schedcat() {
    let tasks = set(&[(1, 4, 4), (1, 5, 5), (3, 9, 9), (9, 18, 18)]);
    let ranked: Vec<_> = (1..).zip(tasks).collect();
    let times = global_fixed_priority::response_times(&ranked, 2, &Decisions::default());
    assert_eq!(times, [1, 1, 4, 15].map(|time| Some(ns(time))));
}

/// SchedCAT, `tests/edf.py`, `Test_QPA`: a set with deadlines before and after the periods, and one task too
/// many.
#[test]
fn processor_demand_agrees_with_schedcat() {
    let mut tasks = set(&[
        (6000, 31000, 18000),
        (2000, 9800, 9000),
        (1000, 17000, 12000),
        (90, 4200, 3000),
        (8, 96, 78),
        (2, 12, 16),
        (10, 280, 120),
        (26, 660, 160),
    ]);
    assert!(edf::bounds(&tasks, &[], &Supply::WHOLE).is_ok());
    tasks.extend(set(&[(10, 100, 15)]));
    assert!(matches!(edf::bounds(&tasks, &[], &Supply::WHOLE), Err(edf::Error::Overload(_))));
}

/// Liu & Layland 1973: full utilization is schedulable by EDF, a little more is not.
#[test]
fn edf_holds_up_to_full_utilization_exactly() {
    assert!(edf::bounds(&set(&[(1, 2, 2), (2, 6, 6), (1, 6, 6)]), &[], &Supply::WHOLE).is_ok());
    let over = set(&[(500, 1000, 1000), (501, 1000, 1000)]);
    assert_eq!(edf::bounds(&over, &[], &Supply::WHOLE), Err(edf::Error::Overload(ns(1000))));
}

/// The workload of Shin & Lee's examples: 7 in every 50 and 9 in every 75, inside a resource of period 10.
/// EDF needs 28 % of the processor for it. In tenths of a unit.
#[test]
fn the_smallest_periodic_resource_for_the_workload_of_shin_and_lee() {
    let tasks = set(&[(70, 500, 500), (90, 750, 750)]);
    let [edf, fixed] =
        [Inside::Edf, Inside::FixedPriority].map(|inside| smallest_budget(&tasks, inside, ns(100), ns(1)));
    assert_eq!((edf, fixed), (Some(ns(28)), Some(ns(35))));
    assert!(holds(&tasks, Inside::Edf, &Supply::periodic(ns(28), ns(100))));
    // Demand of 7 at 50: supply of 2.8 in 10 is nothing for 14.4, then 2.8 by 17.2, 5.6 by 27.2 and 7 by
    // 35.8.
    assert_eq!(Supply::periodic(ns(28), ns(100)).time_for(ns(70)), ns(144 + 200 + 14));
}

/// Dhall & Liu 1978: two short tasks and one long one on two processors, utilization hardly above 1, and the
/// long one is late under global EDF.
#[test]
fn no_global_test_accepts_the_example_of_dhall_and_liu() {
    let tasks = set(&[(2, 100, 100), (2, 100, 100), (100, 101, 101)]);
    assert!(!global_edf::density_test(&densities(&[(2, 100), (2, 100), (100, 101)]), 2));
    assert_eq!(global_edf::slack_test(&tasks, 2), None);
    assert_eq!(global_edf::response_times(&tasks, 2, &Decisions::default()), None);
}

#[test]
fn each_global_test_accepts_a_set_that_another_rejects() {
    // Densities of 0.9, 0.5 and 0.01 are more than 2 - 0.9. Yet the third task is always done long before its
    // deadline, so only the second one comes before the first, and there are two processors.
    let heavy = set(&[(9, 10, 10), (5, 10, 10), (1, 100, 100)]);
    assert!(!global_edf::density_test(&densities(&[(9, 10), (5, 10), (1, 100)]), 2));
    assert_eq!(global_edf::response_times(&heavy, 2, &Decisions::default()).map(|r| r[0]), Some(ns(9)));
    // Three halves are exactly 2 - 0.5; the others count a job of 50 carried into each window of 10.
    let halves = set(&[(5, 10, 10), (50, 100, 100), (50, 100, 100)]);
    assert!(global_edf::density_test(&densities(&[(5, 10), (50, 100), (50, 100)]), 2));
    assert_eq!(global_edf::slack_test(&halves, 2), None);
    assert_eq!(global_edf::response_times(&halves, 2, &Decisions::default()), None);
}

/// By hand, after Davis & Burns 2005: the budget of 2 in 10 has just been spent (gap 8), 3 units of work need
/// two periods: 8 + 2 + 8 + 1.
#[test]
fn a_task_waits_for_the_gap_and_every_period_but_the_last_in_full() {
    let server = Server {
        budget: ns(2),
        period: ns(10),
        gap: ns(8),
        more_urgent: Vec::new(),
        costs: Decisions::default(),
    };
    let task = Member { demand: Demand::implicit(ns(3), ns(50)), bound: false };
    let parts = server.response(&task, &[], ns(50)).expect("it fits");
    assert_eq!([parts.total(), parts.own, parts.budget, parts.others], [19, 3, 16, 0].map(ns));
    // Bound to the replenishments it never meets an empty budget.
    let bound = Member { bound: true, ..task };
    assert_eq!(server.response(&bound, &[], ns(50)).map(|p| p.total()), Some(ns(11)));
}

/// By hand: below a deferrable server of 3 in 10 that delivers twice (jitter 7), budget comes 6 late.
#[test]
fn a_deferrable_server_above_delays_the_last_period_by_two_budgets() {
    let above = vec![Demand::implicit(ns(3), ns(10)).late_by(ns(7))];
    let server = Server {
        budget: ns(2),
        period: ns(20),
        gap: ns(18),
        more_urgent: above,
        costs: Decisions::default(),
    };
    assert_eq!(server.time_for_budget(), Some(ns(8)));
    let task = Member { demand: Demand::implicit(ns(2), ns(100)), bound: false };
    let parts = server.response(&task, &[], ns(100)).expect("it fits");
    assert_eq!([parts.total(), parts.others], [26, 6].map(ns));
}

/// The bound of a task alone in the most urgent server is attained: a busy loop spends the budget, then it is
/// released.
#[test]
fn the_bound_of_davis_and_burns_is_attained() {
    for name in ["deferrable", "periodic"] {
        let mut host = pooled(1, ms(100), exact(name));
        let guest = vm(&mut host, server(ms(2), ms(10), 1));
        released_at(&mut host, guest, 1, ms(3), ms(50), ms(2));
        hog(&mut host, guest, 2);
        let seen = simulate(&host).expect("a valid host").tasks[0].jobs.response.max().as_ns();
        let report = analyse(&host);
        let Verdict::Guaranteed { bound_ns, .. } = report.tasks[0].verdict else { panic!("{report:?}") };
        assert_eq!((seen, bound_ns), (19_000_000, 19_000_000), "{name}");
    }
}

fn two_servers(name: &str) -> Host {
    let mut host = pooled(1, ms(200), exact(name));
    for priority in [1, 2] {
        let guest = vm(&mut host, server(ms(3), ms(10), priority));
        // Now and then released just after the budget was used up: not bound to the replenishments.
        task(&mut host, guest, 1, ms(1), ms(41));
    }
    host
}

/// A budget that its tasks cannot use up delays none of them: only the more urgent server does, which may
/// save up its budget of 3. Its own task uses 1 of it, and the second one is released as that begins.
#[test]
fn tasks_that_cannot_use_up_a_deferrable_budget_never_wait_for_it() {
    let host = two_servers("deferrable");
    let found = answers(&host);
    let bounds: Vec<_> = found.tasks.values().map(|of| (of.answer.clone(), of.test)).collect();
    let guaranteed = |bound: u64| Answer::Guaranteed { bound: ms(bound), slack: ms(41 - bound) };
    assert_eq!(bounds, [(guaranteed(1), Test::LightLoad), (guaranteed(7), Test::LightLoad)]);
    assert!(!found.warnings.iter().any(|warning| warning.text.contains("whole gap")), "{found:?}");
    let seen = simulate(&host).expect("a valid host");
    assert_eq!(seen.tasks[0].jobs.response.max(), ms(1));
    assert_eq!(seen.tasks[1].jobs.response.max(), ms(2));
}

#[test]
fn every_server_policy_has_the_delays_of_its_own_rule() {
    let bounds = |name: &str| -> Vec<u64> {
        let mut host = two_servers(name);
        // Less urgent tasks may use up the budgets.
        for vm in [0, 1] {
            task(&mut host, Parent::Domain(DomainIx(vm)), 2, ms(3), ms(41));
        }
        let report = analyse(&host);
        let bound = |verdict: &Verdict| match verdict {
            Verdict::Guaranteed { bound_ns, .. } => *bound_ns / 1_000_000,
            other => panic!("{name}: {other:?}"),
        };
        report.tasks.iter().take(2).map(|t| bound(&t.verdict)).collect()
    };
    // The gap of 7 (10 where budget is dropped), its own 1, and the more urgent 3, twice where they can be
    // saved up.
    assert_eq!(bounds("deferrable"), [8, 14]);
    assert_eq!(bounds("periodic"), [8, 11]);
    assert_eq!(bounds("polling"), [11, 14]);
}

/// The third server has 4 in 10 below 3 in 5 and 2 in 10: 1 + 1 are left in the first 10 ms.
#[test]
fn a_refuted_budget_is_not_delivered_when_all_vcpus_are_busy() {
    for name in ["deferrable", "periodic", "polling"] {
        let mut host = pooled(1, ms(10), exact(name));
        for (priority, (budget, period)) in (1..).zip([(3, 5), (2, 10), (4, 10)]) {
            let guest = vm(&mut host, server(ms(budget), ms(period), priority));
            hog(&mut host, guest, 1);
        }
        let report = analyse(&host);
        let Verdict::NotGuaranteed { counter_example } = &report.vcpus[2].verdict else {
            panic!("{report:?}")
        };
        assert_eq!(counter_example.missed_by_ns, 10_000_000);
        let results = simulate(&host).expect("a valid host");
        assert_eq!(results.vcpus[2].cpu_time_ns, 2_000_000, "{name}");
    }
}

/// By hand: the second server loses 8 of its first 9, so the third gets [19, 20) for its 1 in 20.
#[test]
fn a_server_that_loses_budget_refutes_nobody_below_it() {
    let mut host = pooled(1, ms(20), exact("deferrable"));
    for (priority, (budget, period)) in (1..).zip([(9, 20), (9, 10), (1, 20)]) {
        let guest = vm(&mut host, server(ms(budget), ms(period), priority));
        hog(&mut host, guest, 1);
    }
    let results = simulate(&host).expect("a valid host");
    assert_eq!(results.vcpus[2].cpu_time_ns, 1_000_000);
    assert!(matches!(analyse(&host).vcpus[2].verdict, Verdict::Unknown { .. }));
}

/// Two loops of 1 ms that cost 200 us in budgets of 250 us, on a processor each, one of them beside a VM that
/// is always busy. A decision and a switch take 20 us. By hand, the task and two decisions (its vCPU is
/// about to run, its budget came back): 200 + 2 x 20, and another unit's switch may be under way: 20.
#[test]
fn a_control_loop_beside_a_busy_vm_is_guaranteed_with_the_costs_of_a_live_enforcer() {
    for name in ["deferrable", "periodic"] {
        let mut host = pooled(2, ms(200), exact(name));
        host.overheads.decision = us(16);
        host.overheads.context_switch = us(4);
        for (cpu, priority) in [(0, 1), (1, 2)] {
            let guest = vm(&mut host, pinned(server(us(250), ms(1), priority), cpu, 2));
            task(&mut host, guest, 1, us(200), ms(1));
        }
        let office = vm(&mut host, pinned(server(ms(3), ms(10), 3), 1, 2));
        hog(&mut host, office, 1);
        let report = analyse(&host);
        for task in &report.tasks {
            let Verdict::Guaranteed { bound_ns, .. } = task.verdict else { panic!("{name}: {report:?}") };
            assert_eq!(bound_ns, 260_000, "{name}");
        }
        let results = simulate(&host).expect("a valid host");
        let worst = results.tasks.iter().map(|task| task.jobs.response.max()).max();
        // Nothing is under way when a period begins: 200 + 20.
        assert_eq!(worst, Some(us(220)), "{name}");
    }
}

#[test]
fn best_effort_has_no_guarantee_and_takes_none_away() {
    let mut host = two_servers("deferrable");
    let before = analyse(&host);
    let spare = vm(&mut host, UnitParams { best_effort: true, ..UnitParams::default() });
    task(&mut host, spare, 1, ms(1), ms(100));
    hog(&mut host, spare, 2);
    let after = analyse(&host);
    assert_eq!((&after.tasks[..2], &after.vcpus), (&before.tasks[..], &before.vcpus));
    let Verdict::Unknown { why } = &after.tasks[2].verdict else { panic!("{after:?}") };
    assert_eq!(why, "no guarantee: best effort");
}

#[test]
fn what_is_unknown_says_how_much_time_is_missing() {
    let mut host = pooled(1, ms(200), exact("deferrable"));
    for (priority, (budget, period)) in (1..).zip([(2, 10), (8, 20), (8, 40)]) {
        let guest = vm(&mut host, server(ms(budget), ms(period), priority));
        task(&mut host, guest, 1, ms(1), ms(100));
    }
    let report = analyse(&host);
    let Verdict::Unknown { why } = &report.vcpus[2].verdict else { panic!("{report:?}") };
    // 5 x 2 and 3 x 8.
    assert_eq!(
        why,
        "more urgent vCPUs may take 34ms of each period of 40ms, which leaves too little for its budget of \
         8ms"
    );
    host.overheads.decision = ms(1);
    let report = analyse(&host);
    let Verdict::Unknown { why } = &report.vcpus[0].verdict else { panic!("{report:?}") };
    assert_eq!(why, "scheduling may take 2ms in a period of 10ms, which uses up its whole budget of 2ms");
}

/// Why the multiprocessor periodic resource model does not fit: it would run the job on the second vCPU from
/// 5 on and be done at 7. The bound is that of a release at 5, with both budgets used up: it waits for 5 ms
/// twice.
#[test]
fn a_guest_leaves_a_job_on_a_vcpu_without_budget_though_another_has_some() {
    let mut host = pooled(2, ms(20), exact("deferrable"));
    let vcpus = vec![server(ms(5), ms(10), 1); 2];
    let guest = domain(&mut host, Parent::Pool(PoolIx(0)), "edf", vcpus);
    task(&mut host, guest, 1, ms(7), ms(20));
    let results = simulate(&host).expect("a valid host");
    assert_eq!(results.tasks[0].jobs.response.max(), ms(12));
    let expected = Verdict::Guaranteed { bound_ns: 17_000_000, slack_ns: 3_000_000 };
    assert_eq!(analyse(&host).tasks[0].verdict, expected);
}

#[test]
fn policies_without_budgets_in_time_say_that_there_is_no_guarantee() {
    for name in ["credit", "round-robin"] {
        let report = analyse(&two_servers_under(name));
        for task in &report.tasks {
            let Verdict::Unknown { why } = &task.verdict else { panic!("{:?}", task.verdict) };
            assert!(why.starts_with("no guarantee: "), "{why}");
        }
    }
}

#[test]
fn sedf_guarantees_nothing_where_an_early_wake_up_costs_the_slice() {
    let verdicts = |unblock: &'static str| {
        let mut host = two_servers_under("sedf");
        host.pools[0].policy.options.set("unblock", OptionValue::Word(unblock));
        analyse(&host).tasks.into_iter().map(|task| task.verdict).collect::<Vec<_>>()
    };
    assert!(verdicts("resume").iter().any(|verdict| matches!(verdict, Verdict::Guaranteed { .. })));
    for verdict in verdicts("xen") {
        let Verdict::Unknown { why } = &verdict else { panic!("{verdict:?}") };
        assert!(why.contains("unblock"), "{why}");
    }
}

fn two_servers_under(name: &str) -> Host {
    let mut host = two_servers("deferrable");
    host.pools[0].policy = policy(name);
    host
}

#[test]
fn a_task_in_a_container_is_analysed_in_its_own_server() {
    let mut host = pooled(1, ms(100), exact("deferrable"));
    let at = task(&mut host, Parent::Pool(PoolIx(0)), 1, ms(3), ms(20));
    host.tasks[at].params = server(ms(2), ms(10), 1);
    assert_eq!(
        // Its releases coincide with replenishments: no gap.
        analyse(&host).tasks[0].verdict,
        Verdict::Guaranteed { bound_ns: 11_000_000, slack_ns: 9_000_000 }
    );
}

#[test]
fn budgets_shorter_than_ten_looks_at_them_are_warned_of() {
    let host = two_servers("deferrable");
    let said = |every| enforcement_warnings(&host, every).into_iter().map(|w| w.text).collect::<Vec<_>>();
    assert_eq!(said(us(300)), [""; 0]);
    assert!(said(us(301)).iter().all(|text| text.contains("by 10.0 %")));
    assert!(said(ms(4)).iter().all(|text| text.contains("is below the enforcement granularity")));
}

#[test]
fn budgets_that_leave_ordinary_threads_less_than_the_fair_server_takes_are_warned_of() {
    let said = |shares: &[(u64, u32)], overhead: Duration, name: &str| -> Vec<String> {
        let mut host = pooled(2, ms(100), policy(name));
        host.overheads.decision = overhead;
        for (share, cpu) in shares {
            vm(&mut host, pinned(server(ms(*share), ms(100), 1), *cpu, 2));
        }
        fair_server_warnings(&host, FairServer::DEFAULT).into_iter().map(|w| w.text).collect()
    };
    for name in ["deferrable", "rtds"] {
        // 95 % and 5 % just fit; the looks at two budgets in 100 ms are too much.
        assert_eq!(said(&[(60, 1), (35, 1), (90, 0)], Duration::ZERO, name), [""; 0]);
        let texts = said(&[(60, 1), (35, 1), (90, 0)], us(5), name);
        assert_eq!(texts.len(), 1);
        assert!(texts[0].starts_with("budgets and enforcement take 95.0 % of processor 1"), "{texts:?}");
        assert_eq!(said(&[(60, 0), (40, 0), (96, 1)], Duration::ZERO, name).len(), 2);
    }
    assert_eq!(said(&[(60, 1), (40, 1)], Duration::ZERO, "fixed-priority"), [""; 0]);
}

#[test]
fn a_host_on_which_scheduling_is_free_says_so() {
    let said = |host: &Host| {
        analyse(host).warnings.iter().any(|w| w.text.contains("scheduling costs are taken as zero"))
    };
    let mut host = two_servers_under("credit");
    assert!(said(&host));
    host.overheads.lock = ns(1);
    assert!(!said(&host));
}

#[test]
fn helper_threads_among_vcpus_are_warned_of() {
    use punctual_model::live::{HelperPolicy, Helpers, Live, LiveKeys};
    let mut host = two_servers("deferrable");
    let mut warned = |processors, policy| {
        let helpers = Helpers { processors: Some(processors), policy };
        host.domains[0].live = Live::from(LiveKeys { helpers, ..LiveKeys::default() });
        let about = host.domains[0].name.clone();
        analyse(&host).warnings.into_iter().find(|w| w.about == about).map(|w| w.text)
    };
    let inverted = warned(vec![0], HelperPolicy::Other { nice: 0 }).expect("processor 0 is in the pool");
    assert!(inverted.contains("priority inversion"), "{inverted}");
    let unbudgeted =
        warned(vec![0], HelperPolicy::Fifo { priority: 40 }).expect("processor 0 is in the pool");
    assert!(unbudgeted.contains("no budget and no bound"), "{unbudgeted}");
    assert_eq!(warned(vec![7], HelperPolicy::Other { nice: 0 }), None);
}

#[test]
fn more_vcpus_than_processors_are_warned_of() {
    let vcpus = |affinities: &[Option<u32>], processors, policy| {
        let mut host = pooled(processors, ms(1), self::policy(policy));
        let own = |affinity: &Option<u32>| match affinity {
            Some(cpu) => pinned(server(ms(1), ms(10), 1), *cpu, processors),
            None => server(ms(1), ms(10), 1),
        };
        domain(&mut host, Parent::Pool(PoolIx(0)), "fixed-priority", affinities.iter().map(own).collect());
        let warnings = vcpu_warnings(&host);
        assert!(warnings.len() < 2, "one for the domain");
        warnings.into_iter().next().map(|warning| warning.text)
    };
    assert_eq!(vcpus(&[None, None], 2, "deferrable"), None, "each has a processor");
    assert_eq!(vcpus(&[Some(0), Some(1)], 2, "rtds"), None);
    let pool = vcpus(&[None, None, None], 2, "rtds").expect("a warning");
    assert!(pool.starts_with("3 vCPUs on 2 processors: a vCPU that spins"), "{pool}");
    assert!(pool.ends_with("give pool `pool` 3 processors, or the domain `vcpus = 2`"), "{pool}");
    let bound = vcpus(&[Some(1), None, Some(1)], 3, "rtds").expect("a warning");
    assert!(bound.starts_with("2 vCPUs on 1 processor: ") && bound.contains("widen `affinity`"), "{bound}");
    // The policy puts both beside each other, where most is left.
    let mut host = pooled(2, ms(1), exact("deferrable"));
    vm(&mut host, server(ms(9), ms(10), 1));
    let smp = vec![server(ms(1), ms(10), 2); 2];
    domain(&mut host, Parent::Pool(PoolIx(0)), "fixed-priority", smp);
    let placed = vcpu_warnings(&host).pop().expect("a warning").text;
    assert!(placed.contains("a processor of its own by `affinity`"), "{placed}");
}

#[test]
fn a_vcpu_inside_a_vm_is_warned_of_by_the_vcpus_of_that_vm() {
    let mut host = pooled(2, ms(1), exact("deferrable"));
    let outer = vm(&mut host, server(ms(1), ms(10), 1));
    domain(&mut host, outer, "fixed-priority", vec![server(ms(1), ms(10), 1); 2]);
    let warning = vcpu_warnings(&host).pop().expect("a warning");
    assert_eq!(warning.about, "d2");
    assert!(warning.text.contains("give domain `d1` 2 vCPUs"), "{}", warning.text);
}

#[test]
fn bounds_of_several_vcpus_say_what_they_assume() {
    let mut host = two_servers("deferrable");
    let said =
        |host: &Host| analyse(host).warnings.iter().any(|w| w.text.contains("never wait for each other"));
    assert!(!said(&host), "one vCPU each");
    domain(&mut host, Parent::Pool(PoolIx(0)), "fixed-priority", vec![server(ms(1), ms(10), 9); 2]);
    assert!(said(&host));
}

#[test]
fn turns_on_a_processor_have_bounds_where_any_order_of_a_vms_vcpus_is_covered() {
    let why = |name: &str, periods: [Duration; 2], switch: Duration| {
        let mut host = pooled(1, ms(1), policy(name));
        host.overheads.context_switch = switch;
        let vcpus = periods.map(|period| server(ms(2), period, 1)).to_vec();
        let smp = domain(&mut host, Parent::Pool(PoolIx(0)), "fixed-priority", vcpus);
        let task = task(&mut host, smp, 1, us(100), ms(100));
        host.tasks[task].params = pinned(host.tasks[task].params.clone(), 0, 2);
        match &analyse(&host).tasks[0].verdict {
            Verdict::Unknown { why } => Some(why.clone()),
            _ => None,
        }
    };
    let turns = |why: Option<String>| why.is_some_and(|why| why.contains("take turns"));
    let alike = [ms(10), ms(10)];
    for name in ["deferrable", "periodic", "polling", "fixed-priority"] {
        assert_eq!(why(name, alike, Duration::ZERO), None, "{name}");
        assert!(turns(why(name, alike, us(1))), "a turn's end takes a decision: {name}");
    }
    for name in ["sporadic", "cbs", "edf"] {
        assert!(turns(why(name, alike, Duration::ZERO)), "{name}");
    }
    // A budget that is never used up does without the order, as long as a turn's end costs nothing.
    assert_eq!(why("rtds", [ms(10), ms(20)], Duration::ZERO), None);
    assert!(turns(why("rtds", [ms(10), ms(20)], us(1))));
    assert_eq!(why("rtds", alike, Duration::ZERO), None);
}

/// A VM with a vCPU above and one below another VM: all three are equals, 1 + 5 + 2 ms. The one below them
/// waits for all.
#[test]
fn vcpus_that_take_turns_count_as_equals_of_each_other_and_of_what_is_between_them() {
    let mut host = pooled(1, ms(400), policy("fixed-priority"));
    let ranked = |priority| UnitParams { priority: Some(priority), ..UnitParams::default() };
    let smp = domain(&mut host, Parent::Pool(PoolIx(0)), "fixed-priority", vec![ranked(1), ranked(3)]);
    for (vcpu, cost) in [(0, ms(1)), (1, ms(5))] {
        let at = task(&mut host, smp, 1, cost, ms(20));
        host.tasks[at].params = pinned(host.tasks[at].params.clone(), vcpu, 2);
    }
    for (priority, cost) in [(2, ms(2)), (4, ms(1))] {
        let other = vm(&mut host, ranked(priority));
        task(&mut host, other, 1, cost, ms(20));
    }
    let report = analyse(&host);
    let bound = |verdict: &Verdict| match verdict {
        Verdict::Guaranteed { bound_ns, .. } => bound_ns / 1_000_000,
        other => panic!("{other:?}"),
    };
    assert_eq!(report.tasks.iter().map(|task| bound(&task.verdict)).collect::<Vec<_>>(), [8, 8, 8, 9]);
    let results = simulate(&host).expect("a valid host");
    let seen: Vec<u64> = results.tasks.iter().map(|task| task.jobs.response.max().as_ns()).collect();
    assert!(seen.iter().zip([8, 8, 8, 9]).all(|(seen, bound)| *seen <= bound * 1_000_000), "{seen:?}");
}

#[test]
fn overheads_come_out_of_budgets_and_response_times() {
    let mut host = two_servers("deferrable");
    let before = analyse(&host);
    host.overheads.context_switch = us(10);
    let after = analyse(&host);
    for (before, after) in before.tasks.iter().zip(&after.tasks) {
        let [Verdict::Guaranteed { bound_ns: free, .. }, Verdict::Guaranteed { bound_ns: paid, .. }] =
            [&before.verdict, &after.verdict]
        else {
            panic!("{after:?}")
        };
        assert!(paid > free);
    }
    host.overheads.context_switch = ms(1);
    assert!(!analyse(&host).all_guaranteed(), "decisions take more than the budget");
}

/// A context switch waits for the pool's lock wherever its units are pinned: 1.95 ms of work in a budget of
/// 2 ms are too much where each switch takes 100 us.
#[test]
fn pinned_units_share_the_lock_of_their_pools_queue() {
    let is_guaranteed = |name: &str, lock: Duration| {
        let mut host = pooled(2, ms(100), policy(name));
        host.overheads.lock = lock;
        let guest = vm(&mut host, pinned(server(ms(2), ms(10), 1), 0, 2));
        task(&mut host, guest, 1, ms(1), ms(10));
        task(&mut host, guest, 2, us(950), ms(10));
        let worst = simulate(&host).expect("the host is valid").tasks[1].jobs.response.max();
        match analyse(&host).tasks[1].verdict {
            Verdict::Guaranteed { bound_ns, .. } => {
                assert!(worst.as_ns() <= bound_ns, "{name}: {worst}");
                true
            }
            _ => false,
        }
    };
    assert!(is_guaranteed("rtds", Duration::ZERO) && !is_guaranteed("rtds", us(100)));
    assert!(is_guaranteed("fixed-priority", us(100)) && is_guaranteed("sedf", us(100)));
}
