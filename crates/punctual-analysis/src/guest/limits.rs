//! What all tests of tasks share: tasks that packets release, and how far a response time is looked for.

use punctual_model::index::TaskIx;

use crate::answer::Test;
use crate::demand::Demand;
use crate::findings::{Findings, Service};
use crate::inputs::Inputs;
use crate::packet_path::busy;
use crate::reason::Reason;

/// Do packets release some of the tasks? Then a test that does not know such tasks has no answer for any.
pub(crate) fn any_served(inputs: Inputs<'_>, tasks: &[TaskIx], test: Test) -> Option<Findings> {
    let any = tasks.iter().any(|task| inputs.is_served(*task));
    any.then(|| Findings::all_unknown(inputs, tasks.iter().copied(), Reason::BesideServed, test))
}

/// A task that packets release may have several jobs at a time: each is done by the end of the busy period.
pub(super) fn served(
    inputs: Inputs<'_>,
    task: TaskIx,
    demand: &Demand,
    service: Option<Service>,
    test: Test,
) -> Findings {
    let mut found = Findings::default();
    match service.and_then(|service| busy(|w| service.time(demand.requested(w), w))) {
        Some(time) => {
            found.served_times.insert(task, time);
            found.bounded(inputs, task, time, None, test);
        }
        None => found.unknown(inputs, task, Reason::EndlessBusyPeriod, test),
    }
    found
}
