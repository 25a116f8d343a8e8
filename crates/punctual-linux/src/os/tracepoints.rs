//! What the scheduler of the kernel does on a processor, as its tracepoints `sched:sched_switch` and
//! `sched:sched_wakeup` tell performance events (perf_event_open(2), Linux `include/trace/events/sched.h`).
//!
//! In contrast to records of switches alone (see [`super::switches`]), these say why a thread left its
//! processor, when a thread was woken, and the names of threads that have ended since. They need tracefs,
//! whose files say where the kernel puts which field.

use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use perf_event::events::Tracepoint;
use perf_event::{Builder, Clock, SampleFlag, Sampler};

/// Bytes for records of switches that were not read yet, powers of two: 5,900 switches, or 1,400 where the
/// limit of locked memory permits no more. Wake-ups get half of it.
const BUFFERS: [usize; 2] = [512 * 1024, 128 * 1024];
/// The kinds of records (Linux `include/uapi/linux/perf_event.h`).
const LOST: u32 = 2;
const SAMPLE: u32 = 9;
/// The time, and the length of what follows.
const HEAD: usize = 8 + 4;

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// A thread got the processor.
    Switch {
        /// When, in ns of CLOCK_MONOTONIC.
        at_ns: u64,
        /// The thread that left; 0 is the idle one.
        from: u32,
        /// Its name, filled with 0.
        from_name: [u8; 16],
        /// How it left.
        state: State,
        /// The thread that came.
        to: u32,
    },
    /// A thread became ready.
    Wake {
        /// When, in ns of CLOCK_MONOTONIC.
        at_ns: u64,
        /// The thread.
        thread: u32,
        /// The processor for which it waits.
        processor: u32,
    },
    /// Some switches were lost.
    LostSwitches,
    /// Some wake-ups were lost.
    LostWakes,
}

/// How a thread left its processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It was ready to run on.
    Ready,
    /// It sleeps until it is woken.
    Asleep,
    /// It sleeps in the kernel, and no signal wakes it: for a page or a lock.
    Blocked,
    /// A signal or a debugger stopped it.
    Stopped,
    /// It has ended.
    Ended,
}

impl State {
    /// By `prev_state` of the tracepoint, whose letters are in its format: `S` is 1, `D` 2, `T` 4, `t` 8, `X`
    /// 0x10, `Z` 0x20, `P` 0x40, `I` 0x80; 0x100 marks one that was preempted.
    fn of(bits: u64) -> State {
        match bits & 0xff {
            0 => State::Ready,
            bits if bits & 0x30 != 0 => State::Ended,
            bits if bits & 0x0c != 0 => State::Stopped,
            2 => State::Blocked,
            _ => State::Asleep,
        }
    }
}

/// Where tracefs is, if it is mounted: by the text of `/proc/self/mounts`.
fn parse_mount(mounts: &str) -> Option<PathBuf> {
    let of_line = |line: &str| {
        let mut fields = line.split(' ');
        let (place, kind) = (fields.nth(1)?, fields.next()?);
        (kind == "tracefs").then(|| PathBuf::from(place))
    };
    mounts.lines().find_map(of_line)
}

/// The bytes of a field, by the text of a tracepoint's `format`.
fn parse_field(format: &str, name: &str) -> Option<Range<usize>> {
    let of_line = |line: &str| {
        let (declaration, rest) = line.trim().strip_prefix("field:")?.split_once(';')?;
        let declared = declaration.rsplit(' ').next()?.split('[').next()?;
        if declared != name {
            return None;
        }
        let number = |key: &str| {
            let value = rest.split(';').find_map(|part| part.trim().strip_prefix(key))?;
            value.parse::<usize>().ok()
        };
        let (offset, size) = (number("offset:")?, number("size:")?);
        Some(offset..offset + size)
    };
    format.lines().find_map(of_line)
}

/// The tracepoints of this kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracepoints {
    switch: u64,
    wake: u64,
    from: Range<usize>,
    from_name: Range<usize>,
    state: Range<usize>,
    to: Range<usize>,
    thread: Range<usize>,
    processor: Range<usize>,
}

impl Tracepoints {
    /// Those of this kernel.
    ///
    /// # Errors
    /// tracefs is not mounted (`NotFound`), this user may not read it, or a field is missing (`InvalidData`).
    pub fn find() -> io::Result<Tracepoints> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let missing = || io::Error::new(io::ErrorKind::NotFound, "tracefs is not mounted");
        Tracepoints::read(&parse_mount(&mounts).ok_or_else(missing)?)
    }

    fn read(tracefs: &Path) -> io::Result<Tracepoints> {
        let unknown = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        let event = |name: &str| {
            let directory = tracefs.join("events/sched").join(name);
            let id = fs::read_to_string(directory.join("id"))?;
            let id = id.trim().parse::<u64>().map_err(|error| unknown(error.to_string()))?;
            Ok::<_, io::Error>((id, fs::read_to_string(directory.join("format"))?))
        };
        let (switch, format) = event("sched_switch")?;
        let field = |format: &str, name: &str| {
            parse_field(format, name).ok_or_else(|| unknown(format!("the tracepoint has no {name}")))
        };
        let (wake, format_of_wake) = event("sched_wakeup")?;
        Ok(Tracepoints {
            switch,
            wake,
            from: field(&format, "prev_pid")?,
            from_name: field(&format, "prev_comm")?,
            state: field(&format, "prev_state")?,
            to: field(&format, "next_pid")?,
            thread: field(&format_of_wake, "pid")?,
            processor: field(&format_of_wake, "target_cpu")?,
        })
    }

    /// The meaning of a record of `sched_switch`, if it has one.
    fn switch(&self, kind: u32, body: &[u8]) -> Option<Record> {
        let (at_ns, raw) = match parse(kind, body)? {
            Parsed::Lost => return Some(Record::LostSwitches),
            Parsed::Sample(at_ns, raw) => (at_ns, raw),
        };
        let mut from_name = [0; 16];
        let name = raw.get(self.from_name.clone())?;
        let length = name.len().min(from_name.len());
        from_name[..length].copy_from_slice(&name[..length]);
        Some(Record::Switch {
            at_ns,
            from: number(raw, &self.from)?,
            from_name,
            // The greatest bit with a meaning is the ninth.
            state: State::of(u64::from(number(raw, &self.state)?)),
            to: number(raw, &self.to)?,
        })
    }

    /// The meaning of a record of `sched_wakeup`, if it has one.
    fn wake(&self, kind: u32, body: &[u8]) -> Option<Record> {
        match parse(kind, body)? {
            Parsed::Lost => Some(Record::LostWakes),
            Parsed::Sample(at_ns, raw) => {
                let (thread, processor) = (number(raw, &self.thread)?, number(raw, &self.processor)?);
                Some(Record::Wake { at_ns, thread, processor })
            }
        }
    }
}

enum Parsed<'b> {
    Lost,
    Sample(u64, &'b [u8]),
}

fn parse(kind: u32, body: &[u8]) -> Option<Parsed<'_>> {
    match kind {
        LOST => Some(Parsed::Lost),
        SAMPLE => {
            let at_ns = u64::from_ne_bytes(body.get(..8)?.try_into().ok()?);
            Some(Parsed::Sample(at_ns, body.get(HEAD..)?))
        }
        _ => None,
    }
}

/// The first four bytes of a field: all of a thread's id, and all bits of a state that are looked at.
fn number(raw: &[u8], field: &Range<usize>) -> Option<u32> {
    Some(u32::from_ne_bytes(raw.get(field.start..field.start + 4)?.try_into().ok()?))
}

/// Reads switches and wake-ups of a processor.
pub struct SchedReader {
    tracepoints: Tracepoints,
    switches: Sampler,
    wakes: Sampler,
}

impl std::fmt::Debug for SchedReader {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("SchedReader").field("tracepoints", &self.tracepoints).finish_non_exhaustive()
    }
}

impl SchedReader {
    /// Of one processor, from now on. A wake-up is read where it happened, which may be another processor
    /// than the one for which the thread waits.
    ///
    /// # Errors
    /// As perf_event_open(2): `EACCES` or `EPERM` without CAP_PERFMON, or beyond the limit of locked memory.
    pub fn open(tracepoints: &Tracepoints, processor: usize) -> io::Result<SchedReader> {
        let open = |bytes: usize| {
            let switches = sampler(tracepoints.switch, processor, bytes)?;
            let wakes = sampler(tracepoints.wake, processor, bytes / 2)?;
            Ok(SchedReader { tracepoints: tracepoints.clone(), switches, wakes })
        };
        open(BUFFERS[0]).or_else(|_: io::Error| open(BUFFERS[1]))
    }

    /// Hands over the records that were not read yet: switches in the order of time, then wake-ups.
    pub fn read(&mut self, mut take: impl FnMut(Record)) {
        while let Some(record) = self.switches.next_record() {
            if let Some(record) = self.tracepoints.switch(record.ty(), &record.to_contiguous()) {
                take(record);
            }
        }
        while let Some(record) = self.wakes.next_record() {
            if let Some(record) = self.tracepoints.wake(record.ty(), &record.to_contiguous()) {
                take(record);
            }
        }
    }
}

fn sampler(tracepoint: u64, processor: usize, bytes: usize) -> io::Result<Sampler> {
    let mut event = Builder::new(Tracepoint::with_id(tracepoint));
    event.any_pid().one_cpu(processor).include_kernel().include_hv().sample_period(1);
    event.sample(SampleFlag::TIME | SampleFlag::RAW).clockid(Clock::MONOTONIC).enabled(true);
    // Nobody waits for records: they are read now and then.
    event.wakeup_watermark(bytes);
    event.build()?.sampled(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWITCH: &str = "name: sched_switch\nID: 372\nformat:\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
        \tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n\
        \tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;\n\
        \tfield:pid_t next_pid;\toffset:56;\tsize:4;\tsigned:1;\n";
    const WAKE: &str = "\tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
        \tfield:pid_t pid;\toffset:24;\tsize:4;\tsigned:1;\n\
        \tfield:int target_cpu;\toffset:32;\tsize:4;\tsigned:1;\n";

    fn tracepoints() -> Tracepoints {
        let directory = tempfile::tempdir().expect("a directory");
        for (name, id, format) in [("sched_switch", 372, SWITCH), ("sched_wakeup", 374, WAKE)] {
            let event = directory.path().join("events/sched").join(name);
            fs::create_dir_all(&event).expect("made");
            fs::write(event.join("id"), format!("{id}\n")).expect("written");
            fs::write(event.join("format"), format).expect("written");
        }
        Tracepoints::read(directory.path()).expect("all fields")
    }

    fn sample(at_ns: u64, raw: &[u8]) -> Vec<u8> {
        let mut body = at_ns.to_ne_bytes().to_vec();
        body.extend((raw.len() as u32).to_ne_bytes());
        body.extend(raw);
        body
    }

    #[test]
    fn fields_are_where_the_format_says() {
        let known = tracepoints();
        let mut raw = [0u8; 64];
        raw[8..11].copy_from_slice(b"vm7");
        raw[24..28].copy_from_slice(&71u32.to_ne_bytes());
        raw[32..40].copy_from_slice(&4u64.to_ne_bytes());
        raw[56..60].copy_from_slice(&81u32.to_ne_bytes());
        let mut from_name = [0; 16];
        from_name[..3].copy_from_slice(b"vm7");
        let switch = Record::Switch { at_ns: 99, from: 71, from_name, state: State::Stopped, to: 81 };
        assert_eq!(known.switch(SAMPLE, &sample(99, &raw)), Some(switch));
        assert_eq!(known.switch(SAMPLE, &sample(99, &raw[..50])), None);
        assert_eq!(known.switch(LOST, &[]), Some(Record::LostSwitches));
        assert_eq!(known.wake(LOST, &[]), Some(Record::LostWakes));
        assert_eq!(known.switch(77, &sample(99, &raw)), None);
        raw[32..36].copy_from_slice(&3u32.to_ne_bytes());
        let wake = Record::Wake { at_ns: 98, thread: 71, processor: 3 };
        assert_eq!(known.wake(SAMPLE, &sample(98, &raw)), Some(wake));
        assert_eq!(parse_field(SWITCH, "common_pid"), Some(4..8));
        assert_eq!(parse_field(SWITCH, "pid"), None);
    }

    #[test]
    fn bits_of_a_state_have_the_kernels_letters() {
        for (bits, state) in [
            (0, State::Ready),
            (0x100, State::Ready),
            (1, State::Asleep),
            (2, State::Blocked),
            (4, State::Stopped),
            (8, State::Stopped),
            (0x10, State::Ended),
            (0x20, State::Ended),
            (0x40, State::Asleep),
            (0x80, State::Asleep),
        ] {
            assert_eq!(State::of(bits), state, "{bits:#x}");
        }
    }

    #[test]
    fn tracefs_is_found_wherever_it_is_mounted() {
        let mounts = "proc /proc proc rw 0 0\ntracefs /sys/kernel/tracing tracefs rw,nosuid 0 0\n";
        assert_eq!(parse_mount(mounts), Some("/sys/kernel/tracing".into()));
        assert_eq!(parse_mount("tracefs /x tmpfs rw 0 0\n"), None);
    }
}
