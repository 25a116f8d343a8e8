//! Random task sets by the names they have in the literature, the same on every machine.
//!
//! Random numbers come from ChaCha8 with integer seeds; powers, logarithms and exponentials from `libm`,
//! whose results do not depend on the platform's C library. Utilizations are drawn as floating-point
//! numbers and become whole nanoseconds once, at the end.
//!
//! Sources:
//! - UUniFast: E. Bini, G. Buttazzo, *Measuring the performance of schedulability tests*, Real-Time Systems
//!   30(1-2), 2005, Fig. 4.
//! - UUniFast-Discard: R. Davis, A. Burns, *Priority assignment for global fixed priority pre-emptive
//!   scheduling in multiprocessor real-time systems*, RTSS 2009, s. VI.
//! - RandFixedSum: P. Emberson, R. Stafford, R. Davis, *Techniques for the synthesis of multiprocessor
//!   tasksets*, WATERS 2010.
//! - Named distributions of periods, utilizations and deadlines: SchedCAT, `schedcat/generator/tasksets.py`;
//!   the log-uniform periods have the same ranges, as in SchedCAT's use of the WATERS 2010 generator.
//! - `rt-xen`: S. Xi, J. Wilson, C. Lu, C. Gill, *RT-Xen: Towards Real-time Hypervisor Scheduling in Xen*,
//!   EMSOFT 2011, s. 5.5.
//! - `automotive`: S. Kramer, D. Ziegenbein, A. Hamann, *Real world automotive benchmarks for free*, WATERS
//!   2015.

mod random;
mod runnables;
#[cfg(test)]
mod statistics;
mod taskset;
mod utilization;

pub use random::RandomStream;
pub use taskset::{
    DEADLINES, PERIODS, SetLimits, TaskSpec, period_ms, rt_xen, schedcat, utilization, with_periods,
};
pub(crate) use taskset::{UTILIZATIONS, automotive};
pub(crate) use utilization::uunifast_discard;
pub use utilization::{randfixedsum, uunifast};

/// The recipes of `generate` tables.
pub(crate) const RECIPES: [&str; 6] =
    ["rt-xen", "uunifast", "uunifast-discard", "randfixedsum", "schedcat", "automotive"];
