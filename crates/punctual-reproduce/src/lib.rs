//! The experiments of published papers on the deterministic machine, beside what the papers print, with a
//! verdict on every claim.
//!
//! The papers' figures, tables and claims are data in `papers/`; host files there describe each experiment.
//! One function reproduces one paper: [`rt_xen`], [`rtca`], [`vmm_io`], [`nautilus`], [`rt_stack()`]. It
//! simulates the experiments on all cores, collects [`Measures`], and returns a [`Reproduction`], which holds
//! tables and curves of those together with the judged [`claims`]. [`render`] shows it as text and as files.
//! Same options, same result, except for what [`Options::native`] measures on this machine. What a paper
//! itself prints is in [`papers`].
//!
//! [`rt_xen_live`], [`rtca_live`] and [`vmm_io_live`] carry experiments out on this machine instead,
//! [`rt_xen_in_xen`] and [`nautilus_in_xen`] in a real Xen. [`rt_stack_live()`] measures rt-stack's
//! request/response on this machine. All these need the feature `live`, which is on by default.

#![forbid(unsafe_code)]

mod boot;
pub mod claims;
#[cfg(feature = "live")]
mod costs;
mod error;
#[cfg(feature = "live")]
mod live;
mod measures;
mod native;
mod nautilus;
mod options;
pub mod papers;
mod plot;
mod ranges;
pub mod render;
mod reproduction;
mod rt_stack;
#[cfg(feature = "live")]
mod rt_stack_live;
mod rt_xen;
mod rtca;
mod scenario;
#[cfg(feature = "live")]
mod target;
mod vmm_io;
#[cfg(feature = "live")]
pub mod xen;

#[cfg(feature = "live")]
pub use costs::MeasuredCosts;
pub use error::Error;
pub use measures::Measures;
pub use options::Options;
pub use ranges::{RangeColumn, RangeFigure};
pub use reproduction::{Figure, Reproduction, Series, Table};
pub use scenario::Progress;
#[cfg(feature = "live")]
pub use target::LiveOptions;

use nautilus::{cyclictest, ping};
use options::{
    NAUTILUS_EXPERIMENTS, RT_STACK_EXPERIMENTS, RT_XEN_EXPERIMENTS, RTCA_EXPERIMENTS, VMM_IO_EXPERIMENTS,
};
use reproduction::Outcome;
use rt_xen::{fig5, fig6, table1, table2, table4};

/// Reproduces RT-Xen: Fig. 5, Tables 1, 2 and 4, Fig. 6.
pub fn rt_xen(options: &Options, progress: Progress<'_>) -> Result<Reproduction, Error> {
    options.check_only(&RT_XEN_EXPERIMENTS)?;
    let (paper, claims) = papers::rt_xen();
    let mut outcomes = Vec::new();
    if options.runs("fig5") {
        outcomes.push(fig5::run(options, &paper, progress)?);
    }
    if options.runs("table1") {
        outcomes.push(table1::run(options, &paper.table1, progress)?);
    }
    if options.runs("table2") {
        outcomes.push(table2::run(options, &paper.table2, progress)?);
    }
    if options.runs("table4") {
        outcomes.push(table4::run(options, &paper.table4, progress)?);
    }
    if options.runs("fig6") {
        outcomes.push(fig6::run(options, &paper.table4, progress)?);
    }
    if options.runs("readings") {
        outcomes.push(rt_xen::readings::run(options, progress)?);
    }
    let mut all = Outcome::merged(outcomes);
    table4::misses_where_guaranteed(&mut all.measures);
    Ok(Reproduction::new(options, paper.citation, &claims, vec![all]))
}

/// Reproduces RT-Xen on this machine: Fig. 5 for 1 ms, Table 2, one curve of Fig. 6, real beside simulated.
/// Nothing is judged: the runs are too short for the paper's claims.
#[cfg(feature = "live")]
pub fn rt_xen_live(options: &LiveOptions<'_>) -> Result<Reproduction, Error> {
    let (paper, _) = papers::rt_xen();
    Ok(Reproduction::unjudged(options.quick, paper.citation, live::rt_xen(options)?))
}

/// Reproduces RTCA with real VMs on the project's switch: Table I, Fig. 10 and Table II, real beside
/// simulated. Nothing is judged.
#[cfg(feature = "live")]
pub fn rtca_live(options: &LiveOptions<'_>) -> Result<Reproduction, Error> {
    let (paper, _) = papers::rtca();
    Ok(Reproduction::unjudged(options.quick, paper.citation, live::rtca::run(options)?))
}

/// Reproduces what applies of vmm-io with real VMs: pings beside burning guests and streams, under Credit's
/// options and SEDF. Nothing is judged.
#[cfg(feature = "live")]
pub fn vmm_io_live(options: &LiveOptions<'_>) -> Result<Reproduction, Error> {
    let (paper, _) = papers::vmm_io();
    Ok(Reproduction::unjudged(options.quick, paper.citation, live::vmm_io::run(options)?))
}

/// As [`rt_xen_live`], in guests of Xen.
#[cfg(feature = "live")]
pub fn rt_xen_in_xen(options: &mut xen::XenOptions<'_>) -> Result<Reproduction, Error> {
    let (paper, _) = papers::rt_xen();
    Ok(Reproduction::unjudged(options.quick, paper.citation, xen::rt_xen(options)?))
}

/// Reproduces Nautilus in guests of Xen: cyclictest. Nothing is judged, as in [`rt_xen_live`].
#[cfg(feature = "live")]
pub fn nautilus_in_xen(options: &mut xen::XenOptions<'_>) -> Result<Reproduction, Error> {
    let (paper, _) = papers::nautilus();
    Ok(Reproduction::unjudged(options.quick, paper.citation, xen::nautilus(options)?))
}

/// Reproduces RTCA: Figs. 3, 4, 6, 8 and 10, Tables I and II, the limitations of its s.III.
pub fn rtca(options: &Options, progress: Progress<'_>) -> Result<Reproduction, Error> {
    options.check_only(&RTCA_EXPERIMENTS)?;
    let (paper, claims) = papers::rtca();
    let mut outcomes = Vec::new();
    if options.runs("fig6") {
        outcomes.push(rtca::fig6(progress)?);
    }
    if options.runs("fig3") {
        outcomes.push(rtca::fig3(options, progress)?);
    }
    if options.runs("table1") {
        outcomes.push(rtca::table1(options, &paper, progress)?);
    }
    if options.runs("fig8") {
        outcomes.push(rtca::fig8(options, progress)?);
    }
    if options.runs("fig10") {
        outcomes.push(rtca::fig10(options, &paper, progress)?);
    }
    if options.runs("xen") {
        outcomes.push(rtca::in_xen::run(&paper)?);
    }
    if options.runs("limitations") {
        outcomes.push(rtca::limitations::run(progress)?);
    }
    if options.runs("readings") {
        outcomes.push(rtca::readings::splits(options, &paper, progress)?);
        outcomes.push(rtca::readings::demands(options, progress)?);
    }
    Ok(Reproduction::new(options, paper.citation, &claims, outcomes))
}

/// Reproduces Scheduling I/O in Virtual Machine Monitors: eleven configurations under eight tests.
pub fn vmm_io(options: &Options, progress: Progress<'_>) -> Result<Reproduction, Error> {
    options.check_only(&VMM_IO_EXPERIMENTS)?;
    let (paper, claims) = papers::vmm_io();
    let mut outcomes = vec![vmm_io::run(options, &paper, progress)?];
    if options.runs("fig2") {
        outcomes.push(vmm_io::burners(options, progress)?);
    }
    if options.runs("windows") {
        outcomes.push(vmm_io::windows(options, progress)?);
    }
    if options.runs("readings") {
        outcomes.push(vmm_io::slices(options, progress)?);
    }
    Ok(Reproduction::new(options, paper.citation, &claims, outcomes))
}

/// Measures rt-stack's request/response on this machine, beside the model and the thesis. Nothing is judged:
/// machine and kernel are others.
#[cfg(feature = "live")]
pub fn rt_stack_live(options: &LiveOptions<'_>) -> Result<Reproduction, Error> {
    let (paper, _) = papers::rt_stack();
    Ok(Reproduction::unjudged(options.quick, paper.citation, rt_stack_live::rt_stack(options)?))
}

/// Reproduces the Nautilus paper: cyclictest under global, partitioned and mixed scheduling, and ping
/// latency.
pub fn nautilus(options: &Options, progress: Progress<'_>) -> Result<Reproduction, Error> {
    options.check_only(&NAUTILUS_EXPERIMENTS)?;
    let (paper, claims) = papers::nautilus();
    let mut outcomes = Vec::new();
    if options.runs("cyclictest") {
        outcomes.push(cyclictest::run(options, &paper, progress)?);
    }
    if options.runs("ping") {
        outcomes.push(ping::run(options, &paper, progress)?);
    }
    Ok(Reproduction::new(options, paper.citation, &claims, outcomes))
}

/// Reproduces rt-stack: Tables 3.1, 3.2 and 6.3 to 6.6, Figs. 3-14 and 6-12 to 6-14.
pub fn rt_stack(options: &Options, progress: Progress<'_>) -> Result<Reproduction, Error> {
    options.check_only(&RT_STACK_EXPERIMENTS)?;
    let (paper, claims) = papers::rt_stack();
    let mut outcomes = Vec::new();
    for experiment in RT_STACK_EXPERIMENTS.into_iter().filter(|experiment| options.runs(experiment)) {
        outcomes.push(match experiment {
            "table6-3" => rt_stack::undisturbed(options, &paper, progress)?,
            "table6-4" => rt_stack::loaded(options, &paper, progress)?,
            "table6-5" => rt_stack::techniques(options, &paper, progress)?,
            "table6-6" => rt_stack::containers(options, &paper, progress)?,
            "cache" => rt_stack::cache(options, &paper, progress)?,
            "readings" => rt_stack::readings(options, &paper, progress)?,
            "fig3-14" => rt_stack::intervals(options, progress)?,
            "fig6-12" => rt_stack::applications(options, 0, progress)?,
            "fig6-13" => rt_stack::applications(options, 1, progress)?,
            "fig6-14" => rt_stack::scaling(options, 0, progress)?,
            "fig6-15" => rt_stack::scaling(options, 1, progress)?,
            _ => rt_stack::scaling(options, 2, progress)?,
        });
    }
    Ok(Reproduction::new(options, paper.citation, &claims, outcomes))
}
