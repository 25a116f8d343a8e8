//! What a run measured, simulated or live: one type, so that they can be laid side by side.
//!
//! Serialised as JSON with a `format` and a `version`; every time is a whole number of ns and its key ends in
//! `_ns`. Ratios are not stored: they follow from the counts.

mod blame;
mod builder;
mod entities;
mod jobs;
mod machine;
mod network;
mod sockets;
mod switch;
mod whole;

pub use blame::{BlameSum, Cause, CauseTime, JobBlame, TaskBlame, WORST_MAX, add_time, sort_causes};
pub use builder::{ProcessorTotals, ResultsBuilder, SchedulerTotals, TaskTotals, VcpuTotals, of_host_stack};
pub use entities::{
    DomainResult, GuestFault, GuestVerdict, PoolResult, ProcessorResult, SmpRounds, TaskResult, UnitCounts,
    VcpuResult,
};
pub use jobs::JobStats;
pub use machine::{Delivery, Disturbance, DisturbedInterval, DisturbedJobs, Enforcement, HostTimes, Misses};
pub use network::{
    ChainResult, CongestionResult, DropCounts, FlowResult, HostPart, HostPartResult, NetworkResult,
    PacketCounts, Segment, SegmentResult,
};
pub use sockets::SocketsResult;
pub use switch::{FrameCounts, PlaneResult, PortDrops, PortResult, SwitchResult};
pub use whole::{ChangeResult, FORMAT, Mismatch, Results, Source, VERSION};
