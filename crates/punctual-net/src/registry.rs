//! The disciplines by name: what each is, its parameters, and how to build it.
//!
//! Like the registry of scheduling policies, this table is the only place that lists them; the host file, the
//! command line and the documentation are made from it, with the same vocabulary of parameters.

pub use punctual_sched::registry::{OptionError, OptionValue, Options, ParamDefault, ParamInfo, ParamKind};

use crate::discipline::DisciplineInfo;

/// One line per discipline; each one's `INFO` stands beside its code.
static DISCIPLINES: &[DisciplineInfo] = &[crate::netback::INFO, crate::rtca::INFO, crate::preemptive::INFO];

/// All disciplines, in the order in which they are shown to users.
pub fn disciplines() -> &'static [DisciplineInfo] {
    DISCIPLINES
}

/// The discipline called `name`.
pub fn find(name: &str) -> Option<&'static DisciplineInfo> {
    disciplines().iter().find(|discipline| discipline.name == name)
}
