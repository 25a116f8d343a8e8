//! Which tasks of random hosts `punctual check` leaves unknown: by policy, processors of the pool and reason,
//! and how many of them miss a deadline in a much longer search than `check` makes.
//!
//! ```sh
//! cargo run --release -p punctual-check --example open -- 500 400
//! ```
//!
//! The numbers are those of hosts and of release patterns for each. A group of which many miss wants a
//! counter-example, one of which none misses a bound.

use std::collections::BTreeMap;

use punctual_analysis::{Answer, Pattern};
use punctual_check::answers;
use punctual_model::Host;
use punctual_model::host::Parent;
use punctual_model::index::TaskIx;
use punctual_sim::simulate;
use punctual_testkit::random::{
    Random, exhausting_offsets, ns, period_of, random_host, random_offsets, random_several, set_offset,
};

/// Unknown tasks, and those of them that miss.
type Groups = BTreeMap<String, (u32, u32)>;

fn main() {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse().expect("a whole number"));
    let hosts = numbers.next().unwrap_or(500);
    let patterns = numbers.next().unwrap_or(400);
    print("random hosts", &groups(hosts, patterns, 1 << 47, random_host));
    print("guests of several vCPUs", &groups(hosts, patterns, 1 << 48, random_several));
}

fn print(what: &str, groups: &Groups) {
    println!("{what}: unknown, of which a longer search refutes");
    let mut rows: Vec<_> = groups.iter().collect();
    rows.sort_by_key(|(_, (unknown, _))| std::cmp::Reverse(*unknown));
    rows.iter().for_each(|(group, (unknown, missed))| println!("{unknown:5} {missed:5}  {group}"));
}

fn groups(hosts: u64, patterns: u64, seed: u64, host: impl Fn(&mut Random) -> Host) -> Groups {
    let mut groups = Groups::new();
    for case in 0..hosts {
        let host = host(&mut Random::new(seed + case));
        let answers = answers(&host);
        let open = answers.tasks.iter().filter_map(|(task, of)| match &of.answer {
            Answer::Unknown(reason) => Some((*task, format!("{reason:?}"))),
            Answer::Guaranteed { .. } | Answer::Refuted(_) => None,
        });
        let open: Vec<(TaskIx, String)> = open.collect();
        if open.is_empty() {
            continue;
        }
        let missed = missed(&host, &open, patterns, &mut Random::new(case));
        for ((task, reason), missed) in open.iter().zip(missed) {
            let (all, of_them) = groups.entry(group(&host, *task, reason)).or_default();
            *all += 1;
            *of_them += u32::from(missed);
        }
    }
    groups
}

/// The policy, its processors, what runs the task, and the reason without its numbers.
fn group(host: &Host, task: TaskIx, reason: &str) -> String {
    let pool = &host.pools[0];
    let processors = if pool.processors.len() > 1 { "several" } else { "one" };
    let runs = match host.tasks[task.0].parent {
        Parent::Pool(_) => "task of the pool",
        Parent::Domain(domain) => match host.domains[domain.0].vcpus.len() {
            1 => "guest of one vCPU",
            _ => "guest of several",
        },
    };
    let costs = if host.overheads.context_switch.is_zero() { "" } else { ", costs" };
    let reason: String = reason.chars().take_while(|c| c.is_alphanumeric()).collect();
    format!("{}, {processors}, {runs}, {reason}{costs}", pool.policy.info.name)
}

/// Which of the tasks miss a deadline: half of the patterns are random, the others change one release of a
/// pattern that brought some task nearest to its deadline.
fn missed(host: &Host, open: &[(TaskIx, String)], patterns: u64, random: &mut Random) -> Vec<bool> {
    let mut missed = vec![false; open.len()];
    let mut nearest: Vec<(u64, Host)> = vec![(0, host.clone()); open.len()];
    for number in 0..patterns {
        let mut tried = Pattern::Synchronous.apply(host);
        match number % 4 {
            0 => random_offsets(random, &mut tried),
            1 => exhausting_offsets(random, &mut tried),
            _ => {
                tried.clone_from(&nearest[random.within(0, open.len() as u64 - 1) as usize].1);
                let task = random.within(0, host.tasks.len() as u64 - 1) as usize;
                let period = period_of(host, task);
                set_offset(&mut tried, task, ns(random.within(0, 2 * period)).as_ns());
            }
        }
        let results = simulate(&tried).expect("the host is valid");
        for (i, (task, _)) in open.iter().enumerate() {
            let jobs = &results.tasks[task.0].jobs;
            missed[i] |= jobs.missed > 0;
            let worst = jobs.response.max().as_ns();
            if worst >= nearest[i].0 {
                nearest[i] = (worst, tried.clone());
            }
        }
        if missed.iter().all(|of| *of) {
            break;
        }
    }
    missed
}
