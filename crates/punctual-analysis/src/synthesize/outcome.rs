//! What a search finds, and whether it holds.

use punctual_model::Host;

use super::chosen::Chosen;
use super::error::{Error, Shortfall};
use crate::analyse::answers;
use crate::answer::Answers;
use crate::inputs::parent_of;
use crate::needs::Need;

/// A host in which every deadline is guaranteed.
#[derive(Clone, Debug)]
pub struct Synthesis {
    pub host: Host,
    /// One entry per unit with a budget, in the host's order.
    pub chosen: Vec<Chosen>,
    /// Is there nothing cheaper with the given choices, according to the tests?
    pub exact: bool,
    /// Were budgets chosen together, for deadlines that depend on several of them? Then none can be a granule
    /// smaller, but other combinations may be cheaper. If neither this nor `exact`, the search ended early.
    pub together: bool,
    /// What the analysis says of the host.
    pub answers: Answers,
}

impl Synthesis {
    /// All budgets / periods in millionths of a processor, each rounded up.
    pub fn bandwidth_ppm(&self) -> u64 {
        self.chosen.iter().map(Chosen::bandwidth_ppm).sum()
    }
}

/// What the analysis says of the host, if every deadline is guaranteed.
///
/// # Errors
/// One that is not.
pub(super) fn verified(host: &Host) -> Result<Answers, Error> {
    let answers = answers(host);
    let unmet = Need::all(host, &answers).into_iter().find(|need| !need.is_met(host, &answers));
    match unmet {
        Some(need) => {
            let name = match need {
                Need::Task(task) => parent_of(host, task),
                Need::Flow(_) | Need::Chain(_) => need.name(host),
            };
            Err(Error::Unmet { name: name.to_owned(), why: vec![Shortfall::of(need, host, &answers)] })
        }
        None => Ok(answers),
    }
}
