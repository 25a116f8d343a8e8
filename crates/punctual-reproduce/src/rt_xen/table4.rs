//! RT-Xen Table 4: the loads that the analysis of Davis and Burns guarantees.
//!
//! The paper applies the analysis to its own task sets, one for each load, so the guaranteed loads need not
//! be an interval, and ours differ with ours. Its five servers share out the whole processor, where the
//! analysis itself cannot guarantee every server its budget. The paper does not say what it made of that; its
//! ranges come out only of the response times of tasks alone. Both readings are shown: the tasks' response
//! times as published, and what `punctual check` answers, which also asks whether each server gets its
//! budget.

use punctual_analysis::analyse;
use punctual_analysis::demand::Demand;
use punctual_analysis::fixed_priority::{Member, Server};
use punctual_analysis::overhead::Decisions;
use punctual_model::Host;
use punctual_model::host::{Arrival, Parent, Work};
use punctual_model::index::DomainIx;
use punctual_sched::Duration;
use punctual_sched::servers::{deferrable, periodic};

use crate::error::Error;
use crate::measures::{Measures, mean, range};
use crate::options::Options;
use crate::papers::Table4;
use crate::reproduction::{Outcome, Table};
use crate::rt_xen::fig6::{CASES, of, seed};
use crate::scenario::{Progress, Scenario, deadline_ms};

const POLICIES: [&str; 2] = [deferrable::NAME, periodic::NAME];

/// Which question is asked.
const READINGS: [(&str, Reading); 2] = [("tasks", tasks_hold), ("servers", servers_hold)];

type Reading = fn(&Host) -> bool;

/// Asks both questions for every case, policy, load and task set.
pub(crate) fn run(options: &Options, paper: &Table4, progress: Progress<'_>) -> Result<Outcome, Error> {
    let seeds = options.seeds();
    let loads: Vec<u32> = (30..=100).step_by(if options.quick { 10 } else { 5 }).collect();
    let columns = ["share", "policy", "question", "paper", "in every task set", "in some task set"];
    let title = "Table 4: system loads in percent at which schedulability is guaranteed";
    let mut table = Table::new("table4", title, &columns);
    let mut out = Outcome::default();
    progress("Table 4", 0, CASES.len() * POLICIES.len());
    for (done, (case, policy)) in CASES.iter().flat_map(|c| POLICIES.map(|p| (*c, p))).enumerate() {
        let printed = if policy == deferrable::NAME { &paper.deferrable } else { &paper.periodic };
        let mut hosts = Vec::new();
        for &load in &loads {
            let sets: Result<Vec<Host>, Error> =
                seeds.iter().map(|set| host(case, policy, load, *set)).collect();
            hosts.push(sets?);
        }
        if let Some(at) = loads.iter().position(|&load| load == 70).filter(|_| policy == deferrable::NAME) {
            add_periods(&mut out.measures, case, &hosts[at]);
        }
        for (question, holds) in READINGS {
            let answers: Vec<Vec<bool>> = hosts.iter().map(|sets| sets.iter().map(holds).collect()).collect();
            table.rows.push(vec![
                case.into(),
                policy.into(),
                question.into(),
                ranges(of(printed, case).iter().copied()),
                ranges(runs(&loads, |i| answers[i].iter().all(|yes| *yes))),
                ranges(runs(&loads, |i| answers[i].iter().any(|yes| *yes))),
            ]);
            add_measures(&mut out.measures, &format!("table4.{case}.{policy}.{question}"), &loads, &answers);
        }
        progress("Table 4", done + 1, CASES.len() * POLICIES.len());
    }
    table.notes = vec![
        format!(
            "All tasks count as unbound, scheduling costs nothing. Task sets as in Fig. 6: seeds {seeds:?} \
             x 1000 + load."
        ),
        "Question \"tasks\": the response times of Davis and Burns alone, taking every server's budget for \
         granted. \"servers\": does each server also get its budget in its period? (punctual check)"
            .into(),
    ];
    out.tables.push(table);
    Ok(out)
}

/// The mean period of the tasks in each domain, which is their deadline.
fn add_periods(measures: &mut Measures, case: &str, sets: &[Host]) {
    for d in 0..5 {
        let mean = |host: &Host| {
            let tasks = host.tasks_of(Parent::Domain(DomainIx(d))).map(|(task, _)| deadline_ms(host, task));
            mean(&tasks.collect::<Vec<_>>())
        };
        measures.set(format!("table4.{case}.period_ms.d{}", d + 1), sets.iter().map(mean).collect());
    }
}

/// The load up to which a set is guaranteed without a gap, and for each load whether it is.
fn add_measures(measures: &mut Measures, prefix: &str, loads: &[u32], answers: &[Vec<bool>]) {
    let sets = answers.first().map_or(0, Vec::len);
    let up_to = |set: usize| {
        let last = loads.iter().zip(answers).take_while(|(_, sets)| sets[set]).last();
        last.map_or(0.0, |(load, _)| f64::from(*load))
    };
    measures.set(format!("{prefix}.up_to_percent"), (0..sets).map(up_to).collect());
    for (load, sets) in loads.iter().zip(answers) {
        let held = sets.iter().map(|yes| f64::from(u8::from(*yes))).collect();
        measures.set(format!("{prefix}.holds.{load}"), held);
    }
}

/// The greatest miss ratio in Fig. 6 among the task sets whose deadlines are guaranteed, for each kind of
/// question.
pub(crate) fn misses_where_guaranteed(all: &mut Measures) {
    for (question, _) in READINGS {
        for case in CASES {
            for policy in POLICIES {
                let mut worst: Option<f64> = None;
                for load in 30..=100 {
                    let held = all.get(&format!("table4.{case}.{policy}.{question}.holds.{load}"));
                    let missed = all.get(&format!("fig6.{case}.{policy}.miss_percent.{load}"));
                    let pairs = held.unwrap_or_default().iter().zip(missed.unwrap_or_default());
                    let missed: Vec<f64> =
                        pairs.filter(|(held, _)| **held > 0.0).map(|(_, missed)| *missed).collect();
                    if !missed.is_empty() {
                        worst = Some(worst.unwrap_or(0.0).max(range(&missed).1));
                    }
                }
                if let Some(worst) = worst {
                    all.set_one(format!("table4.{case}.{policy}.{question}.miss_percent"), worst);
                }
            }
        }
    }
}

fn host(case: &str, policy: &'static str, load: u32, set: u64) -> Result<Host, Error> {
    let scenario = Scenario::new("rt-xen", case).policy(policy).seed(seed(set, load));
    let mut host = scenario.set(format!("domain.*.generate.load={load}%")).host()?;
    host.overheads = Default::default();
    // Sporadic arrivals are never bound to a server's replenishments.
    for task in &mut host.tasks {
        if let Work::Jobs { arrival, .. } = &mut task.work
            && let Arrival::Periodic { period, offset } = *arrival
        {
            *arrival = Arrival::Sporadic { separation: period, slack_mean: Duration::ZERO, offset };
        }
    }
    Ok(host)
}

fn servers_hold(host: &Host) -> bool {
    analyse(host).all_guaranteed()
}

/// Davis & Burns 2005 for the tasks alone.
fn tasks_hold(host: &Host) -> bool {
    let deferrable = host.pools[0].policy.info.name == deferrable::NAME;
    let mut order: Vec<usize> = (0..host.domains.len()).collect();
    order.sort_by_key(|d| host.vcpus[*d].params.priority);
    let mut more_urgent = Vec::new();
    order.into_iter().all(|d| {
        let params = &host.vcpus[host.domains[d].vcpus.start].params;
        let [budget, period] = [params.budget, params.period].map(|t| t.unwrap_or(Duration::from_ns(1)));
        let costs = Decisions::default();
        let server = Server { budget, period, gap: period - budget, more_urgent: more_urgent.clone(), costs };
        let jitter = if deferrable { period - budget } else { Duration::ZERO };
        more_urgent.push(Demand::implicit(budget, period).late_by(jitter));
        domain_holds(host, d, &server)
    })
}

fn domain_holds(host: &Host, domain: usize, server: &Server) -> bool {
    let mut members: Vec<(u32, Member)> = Vec::new();
    for (_, task) in host.tasks_of(Parent::Domain(DomainIx(domain))) {
        let Work::Jobs { arrival: Arrival::Sporadic { separation, .. }, cost, deadline } = task.work else {
            continue;
        };
        let demand = Demand::implicit(cost.max, separation).due(deadline);
        members.push((task.params.priority.unwrap_or(u32::MAX), Member { demand, bound: false }));
    }
    members.sort_by_key(|(priority, _)| *priority);
    let members: Vec<Member> = members.into_iter().map(|(_, member)| member).collect();
    members
        .iter()
        .enumerate()
        .all(|(i, member)| server.response(member, &members[..i], member.demand.deadline).is_some())
}

/// Runs of neighbouring loads that hold, as first and last.
fn runs(loads: &[u32], holds: impl Fn(usize) -> bool) -> impl Iterator<Item = [u32; 2]> {
    let mut found: Vec<[u32; 2]> = Vec::new();
    for (i, &load) in loads.iter().enumerate().filter(|(i, _)| holds(*i)) {
        match found.last_mut() {
            Some([_, last]) if i > 0 && *last == loads[i - 1] => *last = load,
            _ => found.push([load, load]),
        }
    }
    found.into_iter()
}

fn ranges(of: impl Iterator<Item = [u32; 2]>) -> String {
    let text: Vec<String> = of.map(|[first, last]| format!("[{first}, {last}]")).collect();
    if text.is_empty() { "none".into() } else { text.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_loads_become_one_range() {
        let loads = [30, 35, 40, 45, 50];
        let odd_one_out = |i: usize| i != 2;
        assert_eq!(ranges(runs(&loads, odd_one_out)), "[30, 35], [45, 50]");
        assert_eq!(ranges(runs(&loads, |_| false)), "none");
    }
}
