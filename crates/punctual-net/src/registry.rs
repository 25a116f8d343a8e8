//! The disciplines by name: what each is, its parameters, and how to build it.
//!
//! Like the registry of scheduling policies, this table is the only place that lists them; the host file, the
//! command line and the documentation are made from it, with the same vocabulary of parameters.

pub use punctual_sched::registry::{OptionError, OptionValue, Options, ParamDefault, ParamInfo, ParamKind};

use crate::discipline::{DisciplineInfo, Visitor};
use crate::{netback, preemptive, rtca};

/// One line per discipline; each one's `INFO` stands beside its code.
static DISCIPLINES: &[DisciplineInfo] = &[netback::INFO, rtca::INFO, preemptive::INFO];

/// All disciplines, in the order in which they are shown to users.
pub fn disciplines() -> &'static [DisciplineInfo] {
    DISCIPLINES
}

/// The discipline called `name`.
pub fn find(name: &str) -> Option<&'static DisciplineInfo> {
    disciplines().iter().find(|discipline| discipline.name == name)
}

/// Builds an instance without interfaces, and does something with it.
///
/// # Errors
/// [`OptionError`] names the option.
pub fn build<V: Visitor>(
    discipline: &DisciplineInfo,
    options: &Options,
    visitor: V,
) -> Result<V::Output, OptionError> {
    if *discipline == netback::INFO {
        return Ok(visitor.visit(netback::build(options)?));
    }
    if *discipline == rtca::INFO {
        return Ok(visitor.visit(rtca::build(options)?));
    }
    if *discipline == preemptive::INFO {
        return Ok(visitor.visit(preemptive::build(options)?));
    }
    Ok(visitor.visit((discipline.build)(options)?))
}
