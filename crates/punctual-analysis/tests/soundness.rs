//! The simulator as adversary: what is guaranteed never misses, and what is refuted does.
//!
//! `PUNCTUAL_SOUNDNESS_HOSTS` sets the number of random hosts, `PUNCTUAL_SOUNDNESS_SEED` another start.

use std::collections::BTreeMap;

use punctual_analysis::{Answer, Answers, Test, answers};
use punctual_model::Host;
use punctual_model::host::{Parent, Work};
use punctual_model::index::VcpuIx;
use punctual_model::results::Results;
use punctual_sched::UnitParams;
use punctual_sim::simulate;
use punctual_testkit::hosts::{exact, hog, ms, pooled, server, task, vm};
use punctual_testkit::random::*;

/// No response beyond its bound, no miss where none may be. Returns how close the worst response came to its
/// bound, in thousandths.
fn hold(host: &Host, answers: &Answers, results: &Results) -> u64 {
    let mut closest = 0;
    for (task, of) in &answers.tasks {
        let Answer::Guaranteed { bound, .. } = of.answer else { continue };
        let jobs = &results.tasks[task.0].jobs;
        let worst = jobs.response.max();
        assert!(
            worst <= bound && jobs.missed == 0,
            "{task:?} ({}) of {host:#?}: response {worst}, bound {bound}, {} missed\n{answers:#?}",
            of.test,
            jobs.missed,
        );
        closest = closest.max(worst.as_ns() * 1000 / bound.as_ns().max(1));
    }
    closest
}

fn refutations_hold(host: &Host, answers: &Answers) -> usize {
    let mut refuted = 0;
    for (task, of) in &answers.tasks {
        let Answer::Refuted(refutation) = &of.answer else { continue };
        let results = simulate(&refutation.apply(host)).expect("the host is valid");
        let missed: u64 = refutation.one_of.iter().map(|t| results.tasks[t.0].jobs.missed).sum();
        assert!(missed > 0, "{task:?} ({}) meets its deadlines: {refutation:?}\n{host:#?}", of.test);
        refuted += 1;
    }
    refuted
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a whole number"))
}

/// A switch takes up to a fifth of a millisecond's budget, as where a live enforcer decides.
#[test]
fn no_guaranteed_deadline_is_missed_where_decisions_take_much_of_a_budget() {
    let hosts = number("PUNCTUAL_SOUNDNESS_HOSTS", 1_000);
    let seed = number("PUNCTUAL_SOUNDNESS_SEED", 1);
    let mut guaranteed = [0u64; 9];
    for case in 0..hosts {
        let mut random = Random::new(seed.wrapping_mul(1 << 41) + case);
        let mut host = random_host(&mut random);
        let name = host.pools[0].policy.info.name;
        let kind = POLICIES.iter().position(|p| *p == name).expect("one of them");
        host.overheads.decision = ns(random.within(0, 30_000));
        host.overheads.context_switch = ns(random.within(0, 10_000));
        if random.one_in(2) {
            // Below all others: it may only have a switch under way.
            let params = UnitParams { best_effort: true, ..UnitParams::default() };
            let spare = vm(&mut host, params);
            task(&mut host, spare, 1, ns(random.within(1_000, 500_000)), ms(random.within(1, 3)));
        }
        let answers = answers(&host);
        refutations_hold(&host, &answers);
        let certain = answers.tasks.values().filter(|t| t.answer.is_guaranteed()).count() as u64;
        guaranteed[kind] += certain;
        if certain > 0 {
            attack(&mut random, &host);
        }
    }
    println!("guaranteed where decisions cost much: {POLICIES:?} {guaranteed:?}");
    for (i, name) in POLICIES.iter().enumerate().filter(|(_, name)| !["sporadic", "cbs"].contains(name)) {
        assert!(hosts < 500 || guaranteed[i] > 0, "nothing is guaranteed under {name}");
    }
}

/// A budget is refuted for the case that every vCPU is busy from 0 on. Guaranteed ones are delivered then.
#[test]
fn refuted_budgets_are_not_delivered_when_all_vcpus_are_busy_and_guaranteed_ones_are() {
    let hosts = number("PUNCTUAL_SOUNDNESS_HOSTS", 1_000);
    let (mut refuted, mut guaranteed) = (0, 0);
    for case in 0..hosts {
        let mut random = Random::new((1 << 42) + case);
        let name = random.of(&["deferrable", "periodic", "polling"]);
        let mut host = pooled(1, ms(1), exact(name));
        if random.one_in(2) {
            host.overheads.decision = ns(random.within(0, 30_000));
            host.overheads.context_switch = ns(random.within(0, 10_000));
        }
        for priority in 1..=random.within(2, 5) as u32 {
            let period = random.of(&[1, 2, 3, 5, 10, 20]) * 1_000_000;
            let budget = period * random.within(5, 60) / 100;
            let guest = vm(&mut host, server(ns(budget), ns(period), priority));
            hog(&mut host, guest, 1);
        }
        for (vcpu, of) in &answers(&host).vcpus {
            let params = &host.vcpus[vcpu.0].params;
            let (budget, period) = (params.budget.unwrap(), params.period.unwrap());
            let first = Host { duration: period, ..host.clone() };
            let got = simulate(&first).expect("the host is valid").vcpus[vcpu.0].cpu_time_ns;
            let is_delivered = got >= budget.as_ns();
            assert!(is_delivered || !of.answer.is_guaranteed(), "{vcpu:?} got {got} ns: {host:#?}");
            let is_refuted = matches!(of.answer, Answer::Refuted(_));
            assert!(!(is_delivered && is_refuted), "{vcpu:?} got {got} ns: {host:#?}");
            refuted += u64::from(is_refuted);
            guaranteed += u64::from(of.answer.is_guaranteed());
        }
    }
    println!("budgets: {guaranteed} guaranteed, {refuted} refuted");
    assert!(hosts < 500 || (refuted > 0 && guaranteed > 0));
}

#[test]
fn no_guaranteed_deadline_is_missed_and_every_refuted_one_is() {
    let hosts = number("PUNCTUAL_SOUNDNESS_HOSTS", 1_000);
    let seed = number("PUNCTUAL_SOUNDNESS_SEED", 1);
    let (mut guaranteed, mut refuted, mut unknown) = ([0u64; 9], [0u64; 9], [0u64; 9]);
    for case in 0..hosts {
        let mut random = Random::new(seed.wrapping_mul(1 << 40) + case);
        let host = random_host(&mut random);
        let answers = answers(&host);
        let name = host.pools[0].policy.info.name;
        let kind = POLICIES.iter().position(|p| *p == name).expect("one of them");
        refuted[kind] += refutations_hold(&host, &answers) as u64;
        unknown[kind] +=
            answers.tasks.values().filter(|t| matches!(t.answer, Answer::Unknown(_))).count() as u64;
        let certain = answers.tasks.values().filter(|t| t.answer.is_guaranteed()).count() as u64;
        guaranteed[kind] += certain;
        if certain > 0 {
            attack(&mut random, &host);
        }
    }
    for (i, name) in POLICIES.iter().enumerate() {
        println!(
            "{name:15} guaranteed {:6} refuted {:6} unknown {:6}",
            guaranteed[i], refuted[i], unknown[i]
        );
        // A test that never says yes would be sound as well.
        assert!(hosts < 500 || guaranteed[i] > 0, "nothing is guaranteed under {name}");
    }
    assert!(hosts < 500 || refuted.iter().sum::<u64>() > 0);
}

/// Tasks of a guest that share resources. `PUNCTUAL_SOUNDNESS_SHARED` sets the number of hosts.
#[test]
fn no_guaranteed_deadline_of_tasks_that_share_resources_is_missed() {
    let hosts = number("PUNCTUAL_SOUNDNESS_SHARED", 500);
    let seed = number("PUNCTUAL_SOUNDNESS_SEED", 1);
    let (mut guaranteed, mut refuted, mut closest) = (BTreeMap::<&str, u64>::new(), 0, 0);
    for case in 0..hosts {
        let mut random = Random::new(seed.wrapping_mul(1 << 48) + case);
        let host = random_shared(&mut random);
        let answers = answers(&host);
        refuted += refutations_hold(&host, &answers);
        for (task, _) in answers.tasks.iter().filter(|(_, of)| of.answer.is_guaranteed()) {
            let Parent::Domain(domain) = host.tasks[task.0].parent else { continue };
            for section in &host.tasks[task.0].sections {
                let protocol = host.domains[domain.0].resources[section.resource].protocol;
                *guaranteed.entry(protocol.name()).or_default() += 1;
            }
        }
        if answers.tasks.values().any(|of| of.answer.is_guaranteed()) {
            closest = closest.max((0..4).map(|_| attack(&mut random, &host)).max().unwrap_or(0));
        }
    }
    println!("shared: sections guaranteed {guaranteed:?}, {refuted} refuted; closest {closest} thousandths");
    assert!(hosts < 500 || ["inherit", "ceiling"].iter().all(|protocol| guaranteed[protocol] > 0));
}

/// Tasks that move between vCPUs which stop when their budgets are used up.
/// `PUNCTUAL_SOUNDNESS_SEVERAL` sets the number of hosts.
#[test]
fn no_bound_of_tasks_over_several_vcpus_is_exceeded() {
    let hosts = number("PUNCTUAL_SOUNDNESS_SEVERAL", 150);
    let seed = number("PUNCTUAL_SOUNDNESS_SEED", 1);
    let (mut guaranteed, mut all, mut closest) = (BTreeMap::<&str, u64>::new(), 0, 0);
    for case in 0..hosts {
        let mut random = Random::new(seed.wrapping_mul(1 << 46) + case);
        let host = random_several(&mut random);
        let answers = answers(&host);
        refutations_hold(&host, &answers);
        let here = answers.tasks.values().filter(|of| of.test == Test::SeveralVcpus);
        let certain = here.filter(|of| of.answer.is_guaranteed()).count() as u64;
        *guaranteed.entry(host.pools[0].policy.info.name).or_default() += certain;
        all += answers.tasks.len();
        if certain > 0 {
            closest = closest.max((0..4).map(|_| attack(&mut random, &host)).max().unwrap_or(0));
        }
    }
    println!("several vCPUs: of {all} tasks guaranteed {guaranteed:?}; closest {closest} thousandths");
    assert!(hosts < 100 || ["rtds", "deferrable", "fixed-priority"].iter().all(|name| guaranteed[name] > 0));
}

/// Budgets that others may take a part of: light guests beside heavy ones, with more promised than there is.
/// `PUNCTUAL_SOUNDNESS_PARTS` sets the number of hosts.
#[test]
fn no_bound_of_tasks_that_live_on_a_part_of_a_budget_is_exceeded() {
    let hosts = number("PUNCTUAL_SOUNDNESS_PARTS", 150);
    let seed = number("PUNCTUAL_SOUNDNESS_SEED", 1);
    let (mut guaranteed, mut closest) = (BTreeMap::<&str, u64>::new(), 0);
    for case in 0..hosts {
        let mut random = Random::new(seed.wrapping_mul(1 << 49) + case);
        let host = random_overbooked(&mut random);
        let answers = answers(&host);
        refutations_hold(&host, &answers);
        let is_short = |task: &usize| {
            let Parent::Domain(domain) = host.tasks[*task].parent else { return false };
            let vcpu = VcpuIx(host.domains[domain.0].vcpus.start);
            answers.vcpus.get(&vcpu).is_some_and(|of| !of.answer.is_guaranteed())
        };
        let certain = answers.tasks.iter().filter(|(_, of)| of.answer.is_guaranteed());
        let certain = certain.filter(|(task, _)| is_short(&task.0)).count() as u64;
        *guaranteed.entry(host.pools[0].policy.info.name).or_default() += certain;
        if certain > 0 {
            closest = closest.max((0..4).map(|_| attack(&mut random, &host)).max().unwrap_or(0));
        }
    }
    println!("parts of budgets: guaranteed {guaranteed:?}; closest {closest} thousandths");
    assert!(hosts < 100 || guaranteed.len() == 5 && guaranteed.values().all(|count| *count > 0));
}

/// Guests that ask for little, whatever the order among them. `PUNCTUAL_SOUNDNESS_LIGHT` sets the number of
/// hosts.
#[test]
fn no_bound_of_tasks_that_cannot_use_up_a_budget_is_exceeded() {
    let hosts = number("PUNCTUAL_SOUNDNESS_LIGHT", 150);
    let seed = number("PUNCTUAL_SOUNDNESS_SEED", 1);
    let (mut guaranteed, mut closest) = (BTreeMap::<&str, u64>::new(), 0);
    for case in 0..hosts {
        let mut random = Random::new(seed.wrapping_mul(1 << 50) + case);
        let draw = random.of::<fn(&mut Random) -> Host>(&[random_overbooked, random_host, random_several]);
        let mut host = draw(&mut random);
        host.overheads = Default::default();
        let divisor = random.within(2, 20);
        for task in &mut host.tasks {
            if let Work::Jobs { cost, .. } = &mut task.work {
                (cost.min, cost.max) = (cost.min / divisor, cost.max / divisor);
            }
        }
        let answers = answers(&host);
        refutations_hold(&host, &answers);
        let here = answers.tasks.values().filter(|of| of.test == Test::LightProcessor);
        let certain = here.filter(|of| of.answer.is_guaranteed()).count() as u64;
        *guaranteed.entry(host.pools[0].policy.info.name).or_default() += certain;
        if certain > 0 {
            closest = closest.max((0..4).map(|_| attack(&mut random, &host)).max().unwrap_or(0));
        }
    }
    println!("never used up: guaranteed {guaranteed:?}; closest {closest} thousandths");
    assert!(hosts < 100 || ["rtds", "sedf", "deferrable"].iter().all(|name| guaranteed[name] > 0));
}

/// Synchronous, random and budget-exhausting releases, and from the worst of them a search for worse ones.
/// Returns how close the worst response came to its bound, in thousandths.
fn attack(random: &mut Random, host: &Host) -> u64 {
    let mut worst = (0, host.clone());
    let mut attempt = |host: Host| {
        let results = simulate(&host).expect("the host is valid");
        let closest = hold(&host, &answers(&host), &results);
        if closest >= worst.0 {
            worst = (closest, host);
        }
        worst.1.clone()
    };
    attempt(host.clone());
    let mut exhausting = host.clone();
    exhausting_offsets(random, &mut exhausting);
    attempt(exhausting);
    let mut spread = host.clone();
    random_offsets(random, &mut spread);
    let mut from = attempt(spread);
    for _ in 0..3 {
        let task = random.within(0, host.tasks.len() as u64 - 1) as usize;
        let period = period_of(host, task);
        set_offset(&mut from, task, random.within(0, 2 * period));
        from = attempt(from);
    }
    worst.0
}
