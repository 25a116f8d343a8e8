//! What holds for every plan.

use std::collections::BTreeMap;

use proptest::prelude::*;
use punctual_check::check;
use punctual_model::file::{Overrides, parse, parse_fleet, to_toml};
use punctual_model::fleet::Fleet;
use punctual_place::{Method, Plan, Standing, place};

use crate::random::{Random, Small};

/// What a user would find wrong with a plan.
fn objections(fleet: &Fleet, plan: &Plan) -> Vec<String> {
    let mut found = Vec::new();
    let vm = |name: &str| fleet.vms.iter().position(|vm| vm.name == name).expect("a VM of the fleet");
    let mut at: BTreeMap<usize, usize> = BTreeMap::new();
    for host in &plan.hosts {
        let index = fleet.hosts.iter().position(|of| of.name == host.name).expect("a host of the fleet");
        let kind = fleet.kind_of(index);
        let mut by_node: BTreeMap<usize, u64> = BTreeMap::new();
        for of in &host.vms {
            let of_vm = fleet.vm_kind(vm(&of.name));
            if at.insert(vm(&of.name), index).is_some() {
                found.push(format!("{} is there twice", of.name));
            }
            if !of_vm.may_be_on[index] {
                found.push(format!("{} may not be on {}", of.name, host.name));
            }
            let Some(number) = of.node else { continue };
            *by_node.entry(number).or_default() += of_vm.memory_mib;
            let node = kind.nodes.iter().find(|node| node.number == number).expect("a node of the host");
            if !of.processors.iter().all(|processor| node.processors.contains(processor)) {
                found.push(format!("{} is beyond its node", of.name));
            }
        }
        if kind.nodes.iter().any(|node| by_node.get(&node.number).copied().unwrap_or(0) > node.memory_mib) {
            found.push(format!("{} has a full node", host.name));
        }
        if host.memory_used_mib > kind.memory_mib {
            found.push(format!("{} has not so much memory", host.name));
        }
    }
    for (a, host) in &at {
        for (b, other) in at.range(a + 1..) {
            let common = |a: &[usize], b: &[usize]| a.iter().any(|group| b.contains(group));
            let (of_a, of_b) = (fleet.vm_kind(*a), fleet.vm_kind(*b));
            if host == other && common(&of_a.apart, &of_b.apart) {
                found.push(format!("{} and {} are not apart", fleet.vms[*a].name, fleet.vms[*b].name));
            }
            if host != other && common(&of_a.together, &of_b.together) {
                found.push(format!("{} and {} are not together", fleet.vms[*a].name, fleet.vms[*b].name));
            }
        }
    }
    for file in plan.files() {
        let text = to_toml(file);
        let again =
            parse(&text, "host.toml", &Overrides::default()).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let guarantees = check(&again);
        let budgets = guarantees.vcpus.iter().all(|vcpu| vcpu.verdict.is_guaranteed());
        if !guarantees.all_guaranteed() || !budgets {
            found.push(format!("check does not guarantee {text}"));
        }
    }
    found
}

/// A fleet of some size, of the same tables as a small one.
fn larger(seed: u64) -> String {
    let random = &mut Random(seed);
    let mut text = Small::new(seed).fleet();
    for key in ["k0", "k1"] {
        for copies in 1..=2 {
            let with = format!("[host.{key}]\ncopies = {}", copies + 4 + random.below(6));
            text = text.replace(&format!("[host.{key}]\ncopies = {copies}"), &with);
        }
    }
    for vm in 0..4 {
        let table = format!("[vm.v{vm}]\n");
        let copies = 1 + random.below(8);
        text = text.replace(&table, &format!("{table}copies = {copies}\n"));
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn no_host_breaks_a_rule_or_is_refuted(seed in any::<u64>()) {
        let text = larger(seed);
        let fleet = parse_fleet(text.as_bytes(), "fleet.toml").unwrap_or_else(|e| panic!("{e}\n{text}"));
        let plan = place(&fleet, Method::Heuristic);
        prop_assert_eq!(objections(&fleet, &plan), Vec::<String>::new(), "{}", text);
        let placed: usize = plan.hosts.iter().map(|host| host.vms.len()).sum();
        prop_assert_eq!(placed + plan.refused.len(), fleet.vms.len());
        prop_assert!(plan.hosts_min <= plan.hosts_used);
        prop_assert!(plan.refused.iter().all(|vm| !vm.why.is_empty()), "{}", text);
    }

    #[test]
    fn the_answer_about_one_vm_is_true(seed in any::<u64>()) {
        let text = larger(seed);
        let fleet = parse_fleet(text.as_bytes(), "fleet.toml").unwrap_or_else(|e| panic!("{e}\n{text}"));
        let mut standing = Standing::new(&fleet);
        let answer = standing.ask(&fleet.vms[0].name).expect("a VM of the fleet");
        prop_assert!(answer.host.is_some() == answer.why.is_empty());
        prop_assert!(answer.host.is_none() || answer.host != answer.today);
        prop_assert_eq!(standing.ask(&fleet.vms[0].name), Some(answer));
    }
}

#[test]
fn any_number_of_threads_makes_the_same_plan() {
    for seed in 0..6 {
        let text = larger(seed);
        let fleet = parse_fleet(text.as_bytes(), "fleet.toml").unwrap_or_else(|e| panic!("{e}\n{text}"));
        let plan = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
            pool.install(|| place(&fleet, Method::Auto))
        };
        assert_eq!(plan(1), plan(2), "{text}");
    }
}

#[test]
fn a_vm_that_is_not_there_has_no_answer() {
    let fleet = parse_fleet(Small::new(1).fleet().as_bytes(), "fleet.toml").expect("valid");
    assert_eq!(Standing::new(&fleet).ask("nobody"), None);
}
