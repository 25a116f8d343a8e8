//! What a domain runs on a real host: its task set, measured.
//!
//! The program `punctual-guest` is one static binary. The host talks to it over a byte stream, one JSON value
//! a line ([`protocol`]): calibrate, run this task set from then on for so long, run cyclictest. It answers
//! with the release, start and finish of every job. There are two ways to execute a task set:
//!
//! - [`fifo`], inside a VM: a thread for each task under `SCHED_FIFO`, as S. Xi et al., "RT-Xen", EMSOFT
//!   2011, s. 5.1 implement tasks on Linux.
//! - [`vcpu`], as a plain process of the host: one thread is a virtual CPU, and its guest's scheduler, fixed
//!   priorities, runs in user space. What the host gives that thread is what a VM's vCPU would get.
//!
//! Work is counted in iterations of a loop, calibrated when the host orders it ([`work`]): in a VM no clock
//! tells processor time that was really had, because a guest does not see when its vCPU does not run.

pub mod cyclictest;
mod disturb;
pub mod fifo;
pub mod log;
pub mod os;
pub mod protocol;
pub mod serve;
pub mod vcpu;
pub mod work;
