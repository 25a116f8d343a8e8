//! How long it takes to place 20,000 VMs on 1,000 hosts, how far the plan is from the lower bound, and how
//! long the question takes where one more VM could go.
//!
//! ```sh
//! cargo run --release -p punctual-place --example measure -- cbs
//! ```
//!
//! Arguments: the policy of the hosts, and `distinct` for a table of its own for each VM.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Instant;

use punctual_model::file::parse_fleet;
use punctual_model::fleet::Fleet;
use punctual_place::{Method, Standing, place};

/// The VMs come in so many kinds, unless each is a kind of its own.
const KINDS: u64 = 40;
const VMS: u64 = 20_000;

/// Hosts with 8 processors for VMs on two nodes, and VMs that take 32 % of a processor and 3 GiB on average;
/// half of them are on some host today.
fn fleet(policy: &str, distinct: bool) -> Fleet {
    let mut text = format!(
        "[host.rack]\ncopies = 1000\nmachine = {{ processors = 10 }}\npinned = ['rt']\n\
         node.0 = {{ processors = [0, 1, 2, 3, 4], memory_mib = 61440 }}\n\
         node.1 = {{ processors = [5, 6, 7, 8, 9], memory_mib = 61440 }}\n\
         pool.rt = {{ processors = [1, 2, 3, 4, 6, 7, 8, 9], policy = '{policy}' }}\n"
    );
    let kinds = if distinct { VMS } else { KINDS };
    let mut state = 42_u64;
    let mut random = move |from: u64, to: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        from + (state >> 33) % (to - from + 1)
    };
    for kind in 0..kinds {
        let copies = VMS / kinds;
        let period_ms = [5, 10, 20, 40][random(0, 3) as usize];
        let budget_us = period_ms * random(50, 600);
        let memory_mib = 256 * random(4, 20);
        let today: Vec<String> = (0..copies / 2).map(|_| format!("\"rack-{}\"", random(1, 1000))).collect();
        let today =
            if kinds == VMS && kind % 2 == 0 { vec![format!("\"rack-{}\"", random(1, 1000))] } else { today };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "[vm.v{kind}]\ncopies = {copies}\nbudget = '{budget_us}us'\nperiod = '{period_ms}ms'\n\
             priority = {period_ms}\nmemory_mib = {memory_mib}\ntoday = [{}]",
            today.join(", ")
        );
    }
    text += "[vm.new]\nbudget = '7ms'\nperiod = '10ms'\npriority = 10\nmemory_mib = 4096\n\
             [vm.huge]\nvcpus = 8\nbudget = '7ms'\nperiod = '10ms'\npriority = 10\nmemory_mib = 4096\n\
             numa = 'any'\n";
    let start = Instant::now();
    let fleet = parse_fleet(text.as_bytes(), "fleet.toml").unwrap_or_else(|errors| panic!("{errors}"));
    println!("file read in {:?}", start.elapsed());
    fleet
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let policy = arguments.first().map_or("cbs", String::as_str);
    let fleet = fleet(policy, arguments.iter().any(|argument| argument == "distinct"));
    let start = Instant::now();
    let plan = place(&fleet, Method::Auto);
    println!(
        "{policy}: {} of {} VMs on {} hosts in {:?}; at least {} hosts, gap {:.2} %; {} moves",
        plan.vms - plan.refused.len(),
        plan.vms,
        plan.hosts_used,
        start.elapsed(),
        plan.hosts_min,
        plan.gap_percent(),
        plan.moves
    );
    if let Some(first) = plan.refused.first() {
        println!("{} refused, for example {}", plan.refused.len(), first.name);
        first.why.iter().take(3).for_each(|why| println!("  {} hosts: {}", why.hosts.len(), why.reason));
    }
    let mut fleet = fleet;
    ask("today", &fleet);
    let hosts: BTreeMap<String, usize> =
        fleet.hosts.iter().enumerate().map(|(index, host)| (host.name.clone(), index)).collect();
    let at: BTreeMap<&str, usize> = plan
        .hosts
        .iter()
        .flat_map(|host| host.vms.iter().map(|vm| (vm.name.as_str(), hosts[&host.name])))
        .collect();
    for vm in &mut fleet.vms {
        vm.today = at.get(vm.name.as_str()).copied().filter(|_| vm.name != "new" && vm.name != "huge");
    }
    // Only hosts with VMs are there then, so that a VM has to find room beside others.
    let is_used: BTreeSet<usize> = at.values().copied().collect();
    for kind in &mut fleet.vm_kinds {
        kind.may_be_on = (0..fleet.hosts.len()).map(|host| is_used.contains(&host)).collect();
    }
    ask("planned", &fleet);
}

/// How long it takes to tell where some VMs could go.
fn ask(which: &str, fleet: &Fleet) {
    let start = Instant::now();
    let mut standing = Standing::new(fleet);
    println!("the {which} placement judged in {:?}", start.elapsed());
    for vm in ["new", "huge", "v0-1", "v17-3", "v100"] {
        let start = Instant::now();
        let Some(answer) = standing.ask(vm) else { continue };
        println!("  what if {vm}: {:?} in {:?}, {} reasons", answer.host, start.elapsed(), answer.why.len());
    }
}
