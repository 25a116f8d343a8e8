//! Which tasks of random hosts `punctual check` leaves unknown: by policy, processors of the pool, what runs
//! the task, and reason; how many of them miss a deadline in a much longer search than `check` makes, and how
//! near to the deadline the others came in it.
//!
//! ```sh
//! cargo run --release -p punctual-check --example open -- 500 400
//! ```
//!
//! The numbers are those of hosts and of release patterns for each. A group of which many miss wants a
//! counter-example, one of which none misses a bound: the longest response times seen say how much better
//! the bound could be. `late` counts the tasks that did not miss and took at least nine tenths of the
//! deadline, `half` those that took at least half of it and less than nine tenths.

use std::collections::BTreeMap;

use punctual_analysis::{Answer, Pattern};
use punctual_check::answers;
use punctual_model::Host;
use punctual_model::host::{Parent, Work};
use punctual_model::index::TaskIx;
use punctual_sim::simulate;
use punctual_testkit::random::{
    Random, exhausting_offsets, ns, period_of, random_host, random_offsets, random_several, set_offset,
};

/// Unknown tasks of a group, by what the search saw.
#[derive(Default)]
struct Group {
    unknown: u32,
    missed: u32,
    /// At least nine tenths of the deadline.
    late: u32,
    /// At least half of it, and less than nine tenths.
    half: u32,
}

impl Group {
    /// The longest response time, in thousandths of the deadline.
    fn add(&mut self, longest: u64) {
        self.unknown += 1;
        match longest {
            1001.. => self.missed += 1,
            900.. => self.late += 1,
            500.. => self.half += 1,
            _ => {}
        }
    }
}

type Groups = BTreeMap<String, Group>;

fn main() {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse().expect("a whole number"));
    let hosts = numbers.next().unwrap_or(500);
    let patterns = numbers.next().unwrap_or(400);
    print("random hosts", &groups(hosts, patterns, 1 << 47, random_host));
    print("guests of several vCPUs", &groups(hosts, patterns, 1 << 48, random_several));
}

fn print(what: &str, groups: &Groups) {
    println!("{what}\nunknown missed  late  half");
    let mut rows: Vec<_> = groups.iter().collect();
    rows.sort_by_key(|(_, group)| std::cmp::Reverse(group.unknown));
    for (name, Group { unknown, missed, late, half }) in rows {
        println!("{unknown:7} {missed:6} {late:5} {half:5}  {name}");
    }
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
        let longest = longest(&host, &open, patterns, &mut Random::new(case));
        for ((task, reason), longest) in open.iter().zip(longest) {
            groups.entry(group(&host, *task, reason)).or_default().add(longest);
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

/// The longest response times of the tasks, in thousandths of their deadlines. Half of the patterns are
/// random, the others change one release of a pattern that brought some task nearest to its deadline.
fn longest(host: &Host, open: &[(TaskIx, String)], patterns: u64, random: &mut Random) -> Vec<u64> {
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
        for (of, (task, _)) in nearest.iter_mut().zip(open) {
            let jobs = &results.tasks[task.0].jobs;
            let Work::Jobs { deadline, .. } = host.tasks[task.0].work else { continue };
            let of_deadline = jobs.response.max().as_ns() * 1000 / deadline.as_ns();
            let longest = if jobs.missed > 0 { of_deadline.max(1001) } else { of_deadline.min(1000) };
            if longest >= of.0 {
                *of = (longest, tried.clone());
            }
        }
        if nearest.iter().all(|of| of.0 > 1000) {
            break;
        }
    }
    nearest.into_iter().map(|of| of.0).collect()
}
