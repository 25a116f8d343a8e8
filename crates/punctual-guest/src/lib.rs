//! What a domain runs on a real host: its task set, measured.
//!
//! The program `punctual-guest` is one static binary. The host talks to it over a byte stream, one JSON value
//! a line ([`protocol`]). It asks the guest to calibrate itself, to run a task set from an instant on for
//! some time, or to run cyclictest. The guest reports the release, start and finish of every job. There are
//! two ways to execute a task set:
//!
//! - [`fifo`], inside a VM: a thread for each task under `SCHED_FIFO`, as S. Xi et al., "RT-Xen", EMSOFT
//!   2011, s. 5.1 implement tasks on Linux.
//! - [`vcpu`], as a plain process of the host: one thread is a virtual CPU, and the guest's scheduler, with
//!   fixed priorities, runs on it in user space. The host schedules that thread as it would a VM's vCPU.
//!
//! Work is counted in iterations of a loop, calibrated when the host asks for it ([`work`]). No clock in a VM
//! shows the processor time that a task really got, because a guest does not see when its vCPU does not run.

pub mod bench;
pub mod cyclictest;
mod disturb;
pub mod fifo;
pub mod flows;
pub mod log;
pub mod os;
pub mod protocol;
pub mod run;
pub mod serve;
pub mod vcpu;
pub mod work;
