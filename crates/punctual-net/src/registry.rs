//! The disciplines by name: what each is, its parameters, and how to build it.
//!
//! Like the registry of scheduling policies, this table is the only place that lists them; the host file, the
//! command line and the documentation are made from it, with the same vocabulary of parameters.

use alloc::boxed::Box;

pub use punctual_sched::registry::{OptionError, OptionValue, Options, ParamDefault, ParamInfo, ParamKind};

use crate::discipline::Discipline;

/// Builds a discipline instance without interfaces.
pub type Build = fn(options: &Options) -> Result<Box<dyn Discipline>, OptionError>;

/// How far a discipline puts urgent packets before others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Preemption {
    /// Not at all: it reads no priorities.
    None,
    /// Between batches: urgent packets wait for the rest of a turn of others.
    Batches,
    /// Between packets: only the packet that is being processed comes first.
    Packets,
}

/// Everything there is to know about a discipline without reading its code.
#[derive(Clone, Copy)]
pub struct DisciplineInfo {
    /// Name in host files and on the command line.
    pub name: &'static str,
    /// One line: what it is.
    pub summary: &'static str,
    /// Where its rules come from: paper and section, or file in Xen or Linux.
    pub source: &'static str,
    /// Parameters of an interface that this discipline reads.
    pub interface_params: &'static [ParamInfo],
    /// Options of the discipline itself.
    pub options: &'static [ParamInfo],
    /// How far it puts urgent packets before others.
    pub preemption: Preemption,
    /// Builds an instance.
    pub build: Build,
}

impl core::fmt::Debug for DisciplineInfo {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "DisciplineInfo({})", self.name)
    }
}

impl PartialEq for DisciplineInfo {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for DisciplineInfo {}

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
