//! What exports write, and that importing it again gives the parameters that the target can express.

use crate::xen;
use proptest::prelude::*;
use punctual_model::Host;
use punctual_model::export::{Export, Keep, Target, export};
use punctual_model::file::{Overrides, parse};
use punctual_model::host::{Parent, PolicyChoice};
use punctual_model::import::{Format, Settings, import};
use punctual_model::index::PoolIx;
use punctual_sched::UnitParams;
use punctual_sched::credit::slice_and_ratelimit;

/// Something of everything: three policies, two pools, a free processor, budgets that no target takes as they
/// are, a vCPU of its own kind, a task in a pool, a nested domain.
const HOST: &str = "
name = 'bench & <rack>'
[machine]
processors = 5
[pool.rt]
processors = [1, 2]
policy = 'deferrable'
deferrable = { quantum = 'exact' }
[pool.rt.task.daemon]
period = '20ms'
cost = '2ms'
priority = 9
affinity = [2]
[pool.global]
processors = [3]
policy = 'rtds'
[pool.rest]
processors = [4]
policy = 'credit'
credit = { slice = '5ms', boost = false, refill = 'period' }
[domain.video]
pool = 'rt'
vcpus = 2
budget = '2ms'
period = '10ms'
priority = 1
helpers = { processors = [0, 4], policy = 'fifo', priority = 45 }
[domain.control]
pool = 'rt'
helpers = { policy = 'other', nice = -5 }
vcpus = 2
budget = '300us'
period = '3ms'
priority = 2
vcpu.1 = { budget = '600us', affinity = [2] }
[domain.radio]
pool = 'global'
budget = '1.5005ms'
period = '4ms'
[domain.radio.vm]
kernel = 'images/bz image'
memory_mib = 256
disk = ['a,b.img']
network = 'tap:tap0'
append = \"quiet note='x'\"
[domain.batch]
pool = 'rest'
budget = '1ms'
period = '10ms'
weight = 512
cap_percent = 40
[domain.inner]
in = 'video'
budget = '1ms'
period = '20ms'
";

fn host(text: &str) -> Host {
    parse(text, "bench.toml", &Overrides::default()).unwrap_or_else(|e| panic!("{e}"))
}

fn with_policy(text: &str, policy: &str) -> Host {
    let overrides = Overrides { policy: Some(policy.into()), ..Overrides::default() };
    parse(text, "bench.toml", &overrides).unwrap_or_else(|e| panic!("{e}"))
}

fn shown(made: &Export) -> String {
    let mut out = String::new();
    for file in &made.files {
        out += &format!("==> {} <==\n{}\n", file.name, file.text);
    }
    for loss in &made.losses {
        out += &format!("LOST {}: {}: {}\n", loss.item, loss.field, loss.why);
    }
    out
}

#[test]
fn every_target_writes_what_it_wrote() {
    let host = host(HOST);
    for target in Target::ALL {
        insta::assert_snapshot!(target.name(), shown(&export(&host, target, Keep::Budget)));
    }
    let kept = [Target::Libvirt, Target::Systemd, Target::Qemu];
    for target in kept {
        let name = format!("{}-priority", target.name());
        insta::assert_snapshot!(name, shown(&export(&host, target, Keep::Priority)));
    }
}

#[test]
fn what_a_target_cannot_express_is_said() {
    let lost = |text: &str, policy: &str, target, keep| -> Vec<(String, &'static str)> {
        let made = export(&with_policy(text, policy), target, keep);
        made.losses.into_iter().map(|loss| (loss.item, loss.field)).collect()
    };
    let simple =
        "[machine]\nprocessors = 2\n[pool.p]\nprocessors = [1]\n[domain.a]\nbudget = '2ms'\nperiod = '8ms'\n";
    let text = &format!("{simple}priority = 1\nextratime = false\n")
        .replace("[pool.p]", "[pool.p]\npolicy = 'rtds'");
    let of_pool = |field| vec![("p".to_string(), field)];
    assert_eq!(lost(text, "rtds", Target::Xl, Keep::Budget), []);
    assert_eq!(lost(text, "deferrable", Target::Libvirt, Keep::Budget), []);
    assert_eq!(lost(text, "cbs", Target::Qemu, Keep::Budget), of_pool("processors"));
    assert_eq!(lost(text, "fixed-priority", Target::Systemd, Keep::Budget), []);
    for target in [Target::Libvirt, Target::Systemd] {
        assert_eq!(lost(text, "sporadic", target, Keep::Budget), of_pool("policy"));
        assert_eq!(lost(text, "sporadic", target, Keep::Priority), of_pool("budget"));
        assert_eq!(
            lost(text, "rtds", target, Keep::Priority),
            of_pool("policy"),
            "it has no priorities to keep"
        );
    }
    assert_eq!(lost(text, "edf", Target::Xl, Keep::Budget), of_pool("policy"));
}

#[test]
fn a_xen_with_punctuals_scheduler_gets_every_policy_and_parameter() {
    let text = "[machine]\nprocessors = 3\n[pool.p]\nprocessors = [1, 2]\npolicy = 'rtds'\n\
                deferrable = { quantum = '500us' }\n[domain.a]\nvcpus = 2\nbudget = '2ms'\nperiod = '8ms'\n\
                priority = 1\nweight = 512\nvcpu.1 = { budget = '1500us' }\n[domain.b]\nbest_effort = true\n";
    for policy in punctual_sched::registry::policies() {
        let made = export(&with_policy(text, policy.name), Target::Xen, Keep::Budget);
        assert_eq!(made.losses, [], "{}", policy.name);
        let script = made.files.last().map(|file| file.text.as_str()).unwrap_or_default();
        let line = format!("punctual xen pool p --policy {}", policy.name);
        assert!(script.contains(&line), "{script}");
        assert!(script.contains("punctual xen set --best-effort true b\n"), "{script}");
    }
    let made = export(&host(&text.replace("'rtds'", "'deferrable'")), Target::Xen, Keep::Budget);
    let script = &made.files.last().expect("a script").text;
    let lines = [
        "punctual xen pool p --policy deferrable --option quantum=500us",
        "punctual xen set --budget 2ms --period 8ms --priority 1 a/0",
        "punctual xen set --budget 1500us --period 8ms --priority 1 a/1",
        "xl vcpu-pin a all 1-2",
    ];
    for line in lines {
        assert!(script.lines().any(|known| known == line), "{line}: {script}");
    }
}

#[test]
fn every_policy_has_its_words_for_every_target() {
    for policy in punctual_sched::registry::policies() {
        let text = HOST
            .replace("deferrable = {", "# {")
            .replace("credit = {", "# {")
            .replace("cap_percent = 40", "");
        let host = with_policy(&text, policy.name);
        for target in Target::ALL {
            for keep in [Keep::Budget, Keep::Priority] {
                let made = export(&host, target, keep);
                assert!(!made.files.is_empty());
                let nested = made.losses.iter().any(|loss| loss.item == "inner" && loss.field == "in");
                assert!(nested, "{target:?} {}", policy.name);
            }
        }
    }
}

#[test]
fn more_priorities_than_levels_keep_the_most_urgent_apart() {
    let mut text = String::from("[machine]\nprocessors = 1\n[pool.p]\npolicy = 'fixed-priority'\n");
    for n in 1..=50 {
        text += &format!("[domain.d{n}]\npriority = {}\n", n * 7);
    }
    let made = export(&host(&text), Target::Libvirt, Keep::Budget);
    let priority = |n: usize| {
        let (_, rest) = made.files[n - 1].text.split_once("priority='").expect("a priority");
        rest.split('\'').next().unwrap().parse::<u8>().unwrap()
    };
    assert_eq!((priority(1), priority(2), priority(40), priority(50)), (40, 39, 1, 1));
    assert!(made.losses.iter().any(|loss| loss.field == "priority"), "{:?}", made.losses);
}

/// A host of two pools; times are whole microseconds that every target takes.
fn arbitrary_host(policies: &'static [&'static str]) -> impl Strategy<Value = String> {
    let domain = (
        (1u64..50, 0u64..950, 0u64..1000),
        1usize..4,
        (1u32..5, 2u32..10_000, 0u32..=100, any::<bool>()),
        (0usize..2, any::<bool>()),
    );
    let policy = || prop::sample::select(policies);
    (prop::collection::vec(domain, 1..6), policy(), policy(), 0usize..2).prop_map(
        |(domains, first, second, free)| {
            let mut text = format!(
                "[machine]\nprocessors = {}\n[pool.host0]\nprocessors = [0, 1]\npolicy = '{first}'\n\
                 credit = {{ slice = '5ms' }}\n\
                 [pool.host1]\nprocessors = [2, 3, 4]\npolicy = '{second}'\n\
                 credit = {{ ratelimit = '2ms' }}\n",
                5 + free
            );
            for (i, ((budget, more, us), vcpus, (priority, weight, cap, extra), (pool, pinned))) in
                domains.into_iter().enumerate()
            {
                let budget_us = budget * 1000 + us;
                let period_us = (budget_us + more * 1000).min(1_000_000);
                text += &format!(
                    "[domain.d{i}]\npool = 'host{pool}'\nvcpus = {vcpus}\nbudget = '{budget_us}us'\n\
                     period = '{period_us}us'\npriority = {priority}\nweight = {weight}\n\
                     extratime = {extra}\n"
                );
                let class = if extra { "policy = 'fifo', priority = 45" } else { "policy = 'other'" };
                text += &format!("helpers = {{ processors = [{pool}, 4], {class} }}\n");
                if cap > 0 {
                    text += &format!("cap_percent = {cap}\n");
                }
                if pinned && vcpus > 1 {
                    text += &format!("vcpu.1 = {{ affinity = [{}] }}\n", pool * 3);
                }
            }
            text
        },
    )
}

/// The parameters of a domain's vCPUs, with affinities in the machine's numbers.
fn units(host: &Host, name: &str) -> Vec<(UnitParams, Vec<usize>)> {
    let domain = host.domains.iter().find(|d| d.name == name).unwrap_or_else(|| panic!("{name}"));
    let Parent::Pool(pool) = domain.parent else { panic!("{name} is nested") };
    let pool = &host.pools[pool.0];
    let unit = |params: &UnitParams| {
        let set =
            params.affinity.as_ref().map(|set| set.iter().map(|cpu| pool.processors[cpu.index()]).collect());
        (params.clone(), set.unwrap_or(pool.processors.clone()))
    };
    host.vcpus[domain.vcpus.clone()].iter().map(|v| unit(&v.params)).collect()
}

/// Priorities of a pool's units as ranks from 1.
fn ranks(host: &Host, name: &str) -> Vec<usize> {
    let domain = host.domains.iter().find(|d| d.name == name).expect("the domain");
    let priority = |params: &UnitParams| params.priority.unwrap_or(u32::MAX);
    let mut all: Vec<u32> = host.vcpus_of(domain.parent).map(|(_, v)| priority(&v.params)).collect();
    all.sort_unstable();
    all.dedup();
    let own = host.vcpus[domain.vcpus.clone()].iter();
    own.map(|v| all.binary_search(&priority(&v.params)).expect("its priority") + 1).collect()
}

fn policy_of(host: &Host, name: &str) -> &'static str {
    let domain = host.domains.iter().find(|d| d.name == name).expect("the domain");
    host.pools[host.pool_of(domain.parent).0].policy.info.name
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn libvirt_settings_come_back(text in arbitrary_host(&["deferrable", "fixed-priority", "credit"])) {
        let before = host(&text);
        let made = export(&before, Target::Libvirt, Keep::Budget);
        let files: Vec<(&str, &[u8])> =
            made.files.iter().map(|f| (f.name.as_str(), f.text.as_bytes())).collect();
        let settings = Settings { processors: Some(before.processors), ..Settings::default() };
        // Weights before and after, with the pool: only their proportions are kept.
        let mut weights: Vec<(PoolIx, u64, u64)> = Vec::new();
        let after = import(Format::Libvirt, &files, &settings).unwrap_or_else(|e| panic!("{e}")).host;
        for domain in &before.domains {
            let (was, is) = (units(&before, &domain.name), units(&after, &domain.name));
            prop_assert_eq!(was.len(), is.len());
            let same = after.domains.iter().find(|d| d.name == domain.name).expect("the domain");
            prop_assert_eq!(&domain.live.helpers, &same.live.helpers);
            let policy = policy_of(&before, &domain.name);
            // Quotas are limits of the fair class: the budgets are kept, but no policy reads them.
            let fair = if policy == "deferrable" { "credit" } else { policy };
            prop_assert_eq!(fair, policy_of(&after, &domain.name));
            if policy == "fixed-priority" {
                prop_assert_eq!(ranks(&before, &domain.name), ranks(&after, &domain.name));
            }
            for ((was, was_on), (is, is_on)) in was.iter().zip(&is) {
                prop_assert_eq!(was_on, is_on);
                match policy {
                    "deferrable" => prop_assert_eq!((was.budget, was.period), (is.budget, is.period)),
                    "credit" => {
                        // 100 % of a processor is no limit of a vCPU.
                        let cap = was.cap_percent.filter(|cap| *cap < 100);
                        prop_assert_eq!(cap, is.cap_percent);
                        let weight = |params: &UnitParams| u64::from(params.weight.unwrap_or(256));
                        weights.push((before.pool_of(domain.parent), weight(was), weight(is)));
                    }
                    _ => {}
                }
            }
        }
        let is_exact = |pool: PoolIx| {
            let inside = |name: &str| {
                let domain = before.domains.iter().find(|d| d.name == name);
                domain.is_some_and(|d| before.pool_of(d.parent) == pool)
            };
            !made.losses.iter().any(|loss| loss.field == "weight" && inside(&loss.item))
        };
        for (pool, was, is) in &weights {
            let (_, other_was, other_is) = weights.iter().find(|(other, ..)| other == pool).expect("itself");
            prop_assert!(!is_exact(*pool) || was * other_is == other_was * is, "{weights:?}");
        }
    }

    #[test]
    fn xl_settings_come_back(text in arbitrary_host(&["rtds", "credit"])) {
        let before = host(&text);
        let made = export(&before, Target::Xl, Keep::Budget);
        let printed = xen::Xen::after(&made.files, &before).printed();
        let files = [("printed.txt", printed.as_bytes())];
        let settings = Settings { processors: Some(before.processors), ..Settings::default() };
        let after = import(Format::Xl, &files, &settings).unwrap_or_else(|e| panic!("{e}\n{printed}")).host;
        for pool in &before.pools {
            let same = after.pools.iter().find(|p| p.name == pool.name).expect("the pool");
            let settings = |policy: &PolicyChoice| (policy.info.name, slice_and_ratelimit(&policy.options));
            prop_assert_eq!(&pool.processors, &same.processors);
            prop_assert_eq!(settings(&pool.policy), settings(&same.policy));
        }
        for domain in &before.domains {
            let (was, is) = (units(&before, &domain.name), units(&after, &domain.name));
            prop_assert_eq!(was.len(), is.len());
            let policy = policy_of(&before, &domain.name);
            prop_assert_eq!(policy, policy_of(&after, &domain.name));
            for ((was, was_on), (is, is_on)) in was.iter().zip(&is) {
                prop_assert_eq!(was_on, is_on);
                if policy == "rtds" {
                    let of = |p: &UnitParams| (p.budget, p.period, p.extratime);
                    prop_assert_eq!(of(was), of(is));
                } else {
                    let cap_percent = was.cap_percent.filter(|cap| *cap > 0);
                    prop_assert_eq!((was.weight, cap_percent), (is.weight, is.cap_percent));
                }
            }
        }
    }

    #[test]
    fn xl_configurations_come_back(text in arbitrary_host(&["rtds", "credit"])) {
        let before = host(&text);
        let made = export(&before, Target::Xl, Keep::Budget);
        let configurations = made.files.iter().filter(|file| file.name.ends_with(".cfg"));
        let files: Vec<(&str, &[u8])> =
            configurations.map(|file| (file.name.as_str(), file.text.as_bytes())).collect();
        prop_assert_eq!(files.len(), before.pools.len() + before.domains.len());
        let settings = Settings { processors: Some(before.processors), ..Settings::default() };
        let after = import(Format::Xl, &files, &settings).unwrap_or_else(|e| panic!("{e}")).host;
        for domain in &before.domains {
            let (was, is) = (units(&before, &domain.name), units(&after, &domain.name));
            prop_assert_eq!(was.len(), is.len());
            let policy = policy_of(&before, &domain.name);
            prop_assert_eq!(policy, policy_of(&after, &domain.name));
            for ((was, was_on), (is, is_on)) in was.iter().zip(&is) {
                prop_assert_eq!(was_on, is_on);
                // A configuration has no place for RTDS's parameters.
                if policy == "credit" {
                    let cap_percent = was.cap_percent.filter(|cap| *cap > 0);
                    prop_assert_eq!((was.weight, cap_percent), (is.weight, is.cap_percent));
                }
            }
        }
    }

    #[test]
    fn exports_are_the_same_bytes_every_time(text in arbitrary_host(&["rtds", "sporadic", "credit", "edf"])) {
        for target in Target::ALL {
            let exported = || export(&host(&text), target, Keep::Budget);
            prop_assert_eq!(exported(), exported());
        }
    }
}

#[test]
fn a_best_effort_domain_has_no_budget_in_any_target() {
    let text = "[machine]\nprocessors = 2\n[pool.rt]\nprocessors = [1]\npolicy = 'deferrable'\n\
                [domain.spare]\nbest_effort = true\n";
    for policy in ["deferrable", "rtds", "credit", "fixed-priority"] {
        for keep in [Keep::Budget, Keep::Priority] {
            let host = with_policy(text, policy);
            let shown_by = |target| shown(&export(&host, target, keep));
            let xl = shown_by(Target::Xl);
            let least = if xl.contains("sched-rtds") { "-p 10000 -b 10 -e 1" } else { "-w 1 -c 0" };
            assert!(xl.contains(least), "{policy}: {xl}");
            let linux = [Target::Libvirt, Target::Systemd, Target::Qemu].map(shown_by).concat();
            let words = ["<vcpu_quota>", "<vcpusched", "CPUQuota=", "chrt --deadline", "chrt --fifo"];
            assert!(words.iter().all(|word| !linux.contains(word)), "{policy}: {linux}");
        }
    }
}
