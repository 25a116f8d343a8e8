//! Event descriptors and clocks of the kernel.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use punctual_sched::Duration;

/// Adds one to an eventfd. A full one has rung already.
pub(crate) fn signal(event: &OwnedFd) {
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
}

/// How often a bell has rung. Nobody reads bells, so their count is that since they were made.
pub(crate) fn kick_count(bell: &OwnedFd) -> u64 {
    let path = format!("/proc/self/fdinfo/{}", bell.as_raw_fd());
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let count = text.lines().find_map(|line| line.strip_prefix("eventfd-count:"));
    count.and_then(|count| u64::from_str_radix(count.trim(), 16).ok()).unwrap_or_default()
}

pub(crate) fn eventfd() -> io::Result<OwnedFd> {
    use rustix::event::EventfdFlags;
    Ok(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// How long a wait takes, for the kernel.
pub(crate) fn timespec(time: Duration) -> rustix::time::Timespec {
    let ns = time.as_ns();
    rustix::time::Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 }
}

/// The processor time of this thread.
pub(crate) fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::from_ns(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
