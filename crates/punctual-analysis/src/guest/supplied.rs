//! Response times of the tasks inside a unit, given what the unit supplies.

use punctual_model::guarantees::Dominant;
use punctual_model::host::{Arrival, Work};
use punctual_model::index::TaskIx;
use punctual_sched::Duration;

use crate::answer::Test;
use crate::demand::{Demand, requested};
use crate::edf;
use crate::findings::{Findings, greatest};
use crate::fixed_priority::{self, Member, Parts, Server};
use crate::guest::content::{Contender, Content, Ranked};
use crate::guest::limits::{any_served, served};
use crate::guest::locks::sections_in_edf;
use crate::guest::refute::{Cap, refute_inside};
use crate::guest::urgency::question;
use crate::inputs::Inputs;
use crate::overhead::Decisions;
use crate::reason::Reason;
use crate::supply::Supply;

/// What a unit supplies to those inside it.
pub(crate) enum Supplier {
    /// A fixed-priority server with replenishments at multiples of its period.
    Server(Server),
    /// Anything with a supply bound function.
    Supply(Supply),
}

impl Supplier {
    /// The supply bound function; `None` where there is none.
    pub(crate) fn supply(&self) -> Option<Supply> {
        match self {
            Supplier::Server(server) => server.supply(),
            Supplier::Supply(supply) => Some(*supply),
        }
    }
}

/// Answers for all tasks inside a unit with this supply and upper limit.
pub(crate) fn inside(
    inputs: Inputs<'_>,
    content: &Content,
    supplier: &Supplier,
    cap: Option<Cap>,
) -> Findings {
    // First what is certain; the tests below answer for the rest.
    let refuted = cap.map(|cap| refute_inside(inputs, content, cap)).unwrap_or_default();
    refuted.and(match (content, supplier.supply()) {
        (Content::Ranked(tasks), supply) => ranked_inside(inputs, tasks, supplier, supply),
        (Content::Edf(tasks), Some(supply)) => edf_inside(inputs, tasks, &supply),
        (Content::Edf(tasks), None) => {
            Findings::all_unknown(inputs, tasks.iter().copied(), Reason::BeyondPeriod, Test::EdfInSupply)
        }
    })
}

/// Guarantees of the tasks inside a unit, by each of the supplies that it has for sure.
pub(crate) fn inside_less(
    inputs: Inputs<'_>,
    content: &Result<Content, Reason>,
    suppliers: impl Iterator<Item = Supplier>,
) -> Findings {
    let Ok(content) = content else { return Findings::default() };
    let found = suppliers.map(|supplier| inside(inputs, content, &supplier, None));
    found.fold(Findings::default(), Findings::improved_by)
}

/// Fixed priorities.
fn ranked_inside(
    inputs: Inputs<'_>,
    tasks: &[Ranked],
    supplier: &Supplier,
    supply: Option<Supply>,
) -> Findings {
    let test = match supplier {
        Supplier::Server(_) => Test::DavisBurns,
        Supplier::Supply(_) => Test::FixedPriorityInSupply,
    };
    let answer = |ranked: &Ranked| {
        let Some(task) = ranked.task() else { return Findings::default() };
        let question = match question(inputs, ranked, tasks, test) {
            Ok(question) => question,
            Err(answer) => return answer,
        };
        let (demand, delaying) = (question.demand, question.delaying);
        if inputs.is_served(task) {
            let service = supply.map(|supply| delaying.service(supply, Decisions::default()));
            return served(inputs, task, &demand, service, test);
        }
        let above = &delaying.urgent_or_equal;
        let of_server = match supplier {
            Supplier::Server(server) => in_server(inputs, (task, demand), above, server),
            Supplier::Supply(_) => None,
        };
        // The test of servers does not reach beyond the period, that of their supply does.
        let (response, test) = match of_server {
            Some(response) => (Some(response), test),
            None => {
                let response = |supply| in_supply(&demand, above, &supply, demand.deadline);
                (supply.and_then(response), Test::FixedPriorityInSupply)
            }
        };
        let mut found = Findings::default();
        match response {
            Some((time, dominant)) => found.bounded(inputs, task, time, dominant, test),
            None => {
                let later = |limit| in_supply(&demand, above, &supply?, limit).map(|(time, _)| time);
                found.unknown(inputs, task, Reason::beyond(demand.deadline, later), test);
            }
        }
        found
    };
    tasks.iter().map(answer).fold(Findings::default(), Findings::and)
}

/// A bound on a response time, and what its greatest part is.
type Response = (Duration, Option<Dominant>);

fn in_server(
    inputs: Inputs<'_>,
    (task, demand): (TaskIx, Demand),
    above: &[(Contender, Demand)],
    server: &Server,
) -> Option<Response> {
    let member = |contender: Contender, demand: Demand| Member {
        demand,
        bound: is_bound_to(inputs, contender, server.period),
    };
    let above: Vec<Member> = above.iter().map(|(contender, demand)| member(*contender, *demand)).collect();
    let parts = server.response(
        &member(Contender::Task(task), demand),
        &above,
        demand.deadline.min(demand.period),
    )?;
    Some((parts.total(), dominant_of(&parts)))
}

fn in_supply(
    demand: &Demand,
    above: &[(Contender, Demand)],
    supply: &Supply,
    limit: Duration,
) -> Option<Response> {
    let above: Vec<Demand> = above.iter().map(|(_, demand)| *demand).collect();
    let bound = fixed_priority::response_in_supply(demand, &above, supply, limit)?;
    let guest = requested(&above, bound);
    let parts = [
        (Dominant::OwnCost, demand.cost),
        (Dominant::OtherTasks, guest),
        (Dominant::Supply, bound.saturating_sub(demand.cost + guest)),
    ];
    Some((bound, greatest(&parts)))
}

/// Is the task released only at multiples of `period`?
fn is_bound_to(inputs: Inputs<'_>, contender: Contender, period: Duration) -> bool {
    let Contender::Task(task) = contender else { return false };
    match inputs.work(task) {
        Work::Jobs { arrival: Arrival::Periodic { period: own, offset }, .. } => {
            own.is_multiple_of(period) && offset.is_multiple_of(period)
        }
        _ => false,
    }
}

fn edf_inside(inputs: Inputs<'_>, tasks: &[TaskIx], supply: &Supply) -> Findings {
    let test = Test::EdfInSupply;
    if let Some(unknown) = any_served(inputs, tasks, test) {
        return unknown;
    }
    let (with, demands) = inputs.releasing(tasks);
    let sections = match sections_in_edf(inputs, tasks) {
        Ok(sections) => sections,
        Err(reason) => return Findings::all_unknown(inputs, with, reason, test),
    };
    let reason = match edf::bounds_of_each(&demands, &sections, supply) {
        Ok(bounds) => {
            let mut found = Findings::default();
            for ((task, bound), demand) in with.into_iter().zip(bounds).zip(&demands) {
                match bound {
                    Ok(bound) => {
                        let dominant = dominant_in(supply, demand.cost, bound);
                        found.bounded(inputs, task, bound, dominant, test);
                    }
                    Err(at) => found.unknown(inputs, task, Reason::SupplyOverload(at), test),
                }
            }
            return found;
        }
        Err(edf::Error::Overload(at)) => Reason::SupplyOverload(at),
        Err(edf::Error::TooLong) => Reason::SupplyUtilization,
    };
    Findings::all_unknown(inputs, with, reason, test)
}

fn dominant_of(parts: &Parts) -> Option<Dominant> {
    greatest(&[
        (Dominant::OwnCost, parts.own),
        (Dominant::OtherTasks, parts.guest),
        (Dominant::Budget, parts.budget),
        (Dominant::OtherVcpus, parts.others),
    ])
}

/// Of a bound in a supply: the wait before supply begins, the own cost, or the others' work.
pub(super) fn dominant_in(supply: &Supply, cost: Duration, bound: Duration) -> Option<Dominant> {
    let alone = supply.time_for(cost).min(bound);
    greatest(&[
        (Dominant::OwnCost, cost),
        (Dominant::OtherTasks, bound - alone),
        (Dominant::Supply, alone.saturating_sub(cost)),
    ])
}
