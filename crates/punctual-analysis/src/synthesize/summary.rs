//! The answer for machines.

use punctual_sched::Duration;
use serde::Serialize;

use super::chosen::Chosen;
use super::outcome::Synthesis;
use crate::sensitivity::Growth;

/// What was found, or not, for machines: what `punctual synthesize --json` prints.
#[derive(Debug, Serialize)]
pub struct Summary<'a> {
    found: bool,
    exact: Option<bool>,
    together: Option<bool>,
    bandwidth_ppm: Option<u64>,
    units: Vec<Unit<'a>>,
    sensitivity: Vec<TaskGrowth<'a>>,
    unmet: Option<Unmet<'a>>,
}

#[derive(Debug, Serialize)]
struct Unit<'a> {
    name: &'a str,
    pool: &'a str,
    processor: Option<usize>,
    priority: Option<u32>,
    budget_ns: u64,
    period_ns: u64,
    bandwidth_ppm: u64,
    budget_before_ns: Option<u64>,
    period_before_ns: Option<u64>,
}

impl<'a> From<&'a Chosen> for Unit<'a> {
    fn from(chosen: &'a Chosen) -> Self {
        Unit {
            name: &chosen.name,
            pool: &chosen.pool,
            processor: chosen.processor,
            priority: chosen.priority,
            budget_ns: chosen.budget.as_ns(),
            period_ns: chosen.period.as_ns(),
            bandwidth_ppm: chosen.bandwidth_ppm(),
            budget_before_ns: chosen.budget_before.map(Duration::as_ns),
            period_before_ns: chosen.period_before.map(Duration::as_ns),
        }
    }
}

#[derive(Debug, Serialize)]
struct TaskGrowth<'a> {
    name: &'a str,
    parent: &'a str,
    cost_ns: u64,
    cost_max_ns: u64,
    breaks: &'a str,
}

impl<'a> From<&'a Growth> for TaskGrowth<'a> {
    fn from(growth: &'a Growth) -> Self {
        TaskGrowth {
            name: &growth.name,
            parent: &growth.parent,
            cost_ns: growth.cost.as_ns(),
            cost_max_ns: growth.cost_max.as_ns(),
            breaks: &growth.breaks,
        }
    }
}

#[derive(Debug, Serialize)]
struct Unmet<'a> {
    name: &'a str,
    why: Vec<String>,
}

impl<'a> Summary<'a> {
    /// Budgets were found, with which costs may grow as `growth` says.
    pub fn found(found: &'a Synthesis, growth: &'a [Growth]) -> Self {
        Summary {
            found: true,
            exact: Some(found.exact),
            together: Some(found.together),
            bandwidth_ppm: Some(found.bandwidth_ppm()),
            units: found.chosen.iter().map(Unit::from).collect(),
            sensitivity: growth.iter().map(TaskGrowth::from).collect(),
            unmet: None,
        }
    }

    /// Nothing suffices for `name`.
    pub fn unmet(name: &'a str, why: Vec<String>) -> Self {
        let (units, sensitivity) = (Vec::new(), Vec::new());
        let unmet = Some(Unmet { name, why });
        Summary { found: false, exact: None, together: None, bandwidth_ppm: None, units, sensitivity, unmet }
    }
}
