//! The program that a domain runs on a real host: it executes the domain's task set and measures it.
//!
//! `punctual-guest` is one static binary. The host talks to it over a byte stream, one JSON value a line
//! ([`protocol`]). The host asks the guest to calibrate itself, to run a task set from a given instant for a
//! given time, or to run cyclictest. The guest reports the release, start and finish of every job. A task set
//! is executed in one of two ways:
//!
//! - `fifo`, inside a VM: a thread for each task under `SCHED_FIFO`, as S. Xi et al., "RT-Xen", EMSOFT 2011,
//!   s. 5.1 implement tasks on Linux.
//! - `vcpu`, as a plain process of the host: one thread is a virtual CPU, and the guest's scheduler, with
//!   fixed priorities, runs on it in user space. The host schedules that thread as it would a VM's vCPU.
//!
//! Work is counted in iterations of a loop that is calibrated when the host asks for it (`work`). No clock in
//! a VM shows the processor time that a task really got, because a guest cannot see when its vCPU is off the
//! processor.
//!
//! # What belongs here
//! Code that runs in a guest, and the protocol that its host shares. The host uses [`protocol`] to talk to a
//! guest, [`flows`] for the hosts outside a network, whose packets it sends itself, and [`latency`] to
//! measure itself as it measures guests. Only the law of jobs (`punctual-jobs`) may be a dependency, because
//! the binary is embedded in every `punctual`. Nothing here schedules domains or knows of policies, and no
//! message from the other side causes a panic.

pub mod bench;
pub mod cyclictest;
mod disturb;
mod fifo;
pub mod flows;
pub mod latency;
mod log;
pub mod os;
pub mod protocol;
mod run;
pub mod serve;
mod vcpu;
mod work;
