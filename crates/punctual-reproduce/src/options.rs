//! Which experiments to run, and how long.

use crate::error::Error;

/// What to run and how long.
#[derive(Clone, Debug)]
pub struct Options {
    /// Shorter runs, fewer loads and two task sets: seconds instead of a minute or two.
    pub quick: bool,
    /// How many task sets for each cell of Table 2 and Fig. 6, seeds 1, 2, ...; `None` means 5 (quick: 2).
    pub task_sets: Option<u32>,
    /// Only these experiments, by name (`RT_XEN_EXPERIMENTS` and others); empty means all.
    pub only: Vec<String>,
    /// Measure decision code on this machine (the native part of Table 1 of RT-Xen). Its numbers vary.
    pub native: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { quick: false, task_sets: None, only: Vec::new(), native: true }
    }
}

/// The experiments of `reproduce rt-xen`, in order; `readings` says what follows from other assumptions.
pub(crate) const RT_XEN_EXPERIMENTS: [&str; 6] = ["fig5", "table1", "table2", "table4", "fig6", "readings"];
/// The experiments of `reproduce rtca`: `xen` is what was recorded in a real Xen, `limitations` are those of
/// its s.III; `readings` says what follows from other assumptions.
pub(crate) const RTCA_EXPERIMENTS: [&str; 8] =
    ["fig3", "fig6", "table1", "fig8", "fig10", "xen", "limitations", "readings"];
/// The experiments of `reproduce vmm-io`: its Fig. 2, the tests of its s.5.2, and what follows from other
/// windows of the streams and from other slices of SEDF (`readings`).
pub(crate) const VMM_IO_EXPERIMENTS: [&str; 11] =
    ["fig2", "test1", "test2", "test3", "test4", "test5", "test6", "test7", "test8", "windows", "readings"];
pub(crate) const NAUTILUS_EXPERIMENTS: [&str; 2] = ["cyclictest", "ping"];

/// The experiments of `reproduce rt-stack`; `cache` and `readings` say what follows from other assumptions,
/// `table6-6` has what Linux does today beside it.
pub(crate) const RT_STACK_EXPERIMENTS: [&str; 12] = [
    "table6-3", "table6-4", "table6-5", "table6-6", "cache", "readings", "fig3-14", "fig6-12", "fig6-13",
    "fig6-14", "fig6-15", "fig6-16",
];

impl Options {
    /// The seeds of the task sets.
    pub fn seeds(&self) -> Vec<u64> {
        let default = if self.quick { 2 } else { 5 };
        (1..=u64::from(self.task_sets.unwrap_or(default).max(1))).collect()
    }

    pub(crate) fn runs(&self, experiment: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|o| o == experiment)
    }

    pub(crate) fn check_only(&self, known: &'static [&'static str]) -> Result<(), Error> {
        match self.only.iter().find(|name| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some(other) => Err(Error::UnknownExperiment { name: other.clone(), known }),
        }
    }
}
