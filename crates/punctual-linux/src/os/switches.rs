//! Context switches of a processor, as the kernel's performance events tell them: a software event that
//! counts nothing, with its records of switches (perf_event_open(2), PERF_RECORD_SWITCH_CPU_WIDE; Linux 4.3).

use std::io;

use perf_event::events::Software;
use perf_event::{Builder, Clock, SampleFlag, Sampler};

/// Bytes for records that were not read yet, a power of two: 2,700 switches.
const BUFFER: usize = 256 * 1024;
/// The kinds of records, and the mark of those about the thread that leaves (Linux
/// `include/uapi/linux/perf_event.h`).
const LOST: u32 = 2;
const SWITCH_CPU_WIDE: u32 = 15;
const SWITCH_OUT: u16 = 1 << 13;
const SWITCH_OUT_PREEMPT: u16 = 1 << 14;

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// A thread got the processor.
    Switch {
        /// When, in ns of CLOCK_MONOTONIC.
        at_ns: u64,
        /// The thread that left; 0 is the idle one.
        from: i32,
        /// Was it ready to run on? The record of the thread that came does not say (Linux 4.17 on).
        preempted: Option<bool>,
        /// The thread that came.
        to: i32,
    },
    /// Some switches are not known.
    Lost,
}

/// Reads the switches of a processor.
pub struct SwitchReader(Sampler);

impl std::fmt::Debug for SwitchReader {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("SwitchReader").finish_non_exhaustive()
    }
}

impl SwitchReader {
    /// Of one processor, from now on.
    ///
    /// # Errors
    /// As perf_event_open(2): `EACCES` or `EPERM` without CAP_PERFMON, `ENOSYS` where the kernel has none.
    pub fn open(processor: usize) -> io::Result<SwitchReader> {
        let mut event = Builder::new(Software::DUMMY);
        event.any_pid().one_cpu(processor).include_kernel().include_hv();
        event.sample(SampleFlag::TID | SampleFlag::TIME).sample_id_all(true);
        event.context_switch(true).clockid(Clock::MONOTONIC).enabled(true);
        event.build()?.sampled(BUFFER).map(SwitchReader)
    }
}

/// The records that were not read yet, in order of time.
impl Iterator for SwitchReader {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        loop {
            let record = self.0.next_record()?;
            if let Some(record) = parse(record.ty(), record.misc(), &record.to_contiguous()) {
                return Some(record);
            }
        }
    }
}

/// A record's meaning, if it has one here. A switch is told twice, by the thread that leaves and by the one
/// that comes: the other's process and id, its own, the time. Either may be missing (seen on Linux 6.18).
fn parse(kind: u32, misc: u16, body: &[u8]) -> Option<Record> {
    match kind {
        LOST => Some(Record::Lost),
        SWITCH_CPU_WIDE => {
            let thread = |at: usize| Some(i32::from_ne_bytes(body.get(at..at + 4)?.try_into().ok()?));
            let (other, own) = (thread(4)?, thread(12)?);
            let at_ns = u64::from_ne_bytes(body.get(16..24)?.try_into().ok()?);
            let is_out = misc & SWITCH_OUT != 0;
            let (from, to) = if is_out { (own, other) } else { (other, own) };
            let preempted = is_out.then_some(misc & SWITCH_OUT_PREEMPT != 0);
            Some(Record::Switch { at_ns, from, preempted, to })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_is_read_from_the_record_of_either_thread() {
        let mut body: Vec<u8> = [70i32, 71, 80, 81].iter().flat_map(|id| id.to_ne_bytes()).collect();
        body.extend(123_456_u64.to_ne_bytes());
        let switch = |from, preempted, to| Some(Record::Switch { at_ns: 123_456, from, preempted, to });
        assert_eq!(parse(SWITCH_CPU_WIDE, SWITCH_OUT, &body), switch(81, Some(false), 71));
        let is_preempted = SWITCH_OUT | SWITCH_OUT_PREEMPT;
        assert_eq!(parse(SWITCH_CPU_WIDE, is_preempted, &body), switch(81, Some(true), 71));
        assert_eq!(parse(SWITCH_CPU_WIDE, 0, &body), switch(71, None, 81));
        assert_eq!(parse(SWITCH_CPU_WIDE, SWITCH_OUT, &body[..20]), None);
        assert_eq!(parse(LOST, 0, &[]), Some(Record::Lost));
        assert_eq!(parse(9, SWITCH_OUT, &body), None);
    }
}
