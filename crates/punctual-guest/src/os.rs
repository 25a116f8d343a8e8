//! System calls that the standard library lacks. The only file of this crate with `unsafe`.

#![expect(unsafe_code, reason = "system calls")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// The monotonic clock.
pub fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec to write to; CLOCK_MONOTONIC exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Sleeps until the monotonic clock reads `at_ns`; returns at once when that has passed.
pub fn sleep_until(at_ns: u64) {
    let time = libc::timespec {
        tv_sec: (at_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (at_ns % 1_000_000_000) as libc::c_long,
    };
    loop {
        // SAFETY: `time` is a valid timespec. The pointer for the remaining time may be null.
        let result = unsafe {
            libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &time, std::ptr::null_mut())
        };
        if result != libc::EINTR {
            return;
        }
    }
}

/// Switches the terminal at `descriptor` to raw mode: no line editing, no echo, no signals.
///
/// # Errors
/// Those of `tcgetattr` and `tcsetattr`; `ENOTTY` when `descriptor` is not a terminal.
pub fn set_raw(descriptor: i32) -> io::Result<()> {
    // SAFETY: an all-zero termios is valid, and no call keeps the pointer.
    unsafe {
        let mut how: libc::termios = std::mem::zeroed();
        checked(libc::tcgetattr(descriptor, &mut how))?;
        libc::cfmakeraw(&mut how);
        checked(libc::tcsetattr(descriptor, libc::TCSANOW, &how))
    }
}

/// Puts the calling thread under `SCHED_FIFO` with that priority (1 to 99, greater is more urgent), or, for
/// 0, back into the fair class.
///
/// # Errors
/// Those of `sched_setscheduler`; `EPERM` without `CAP_SYS_NICE`.
pub(crate) fn set_fifo(priority: i32) -> io::Result<()> {
    let policy = if priority == 0 { libc::SCHED_OTHER } else { libc::SCHED_FIFO };
    // SAFETY: an all-zero sched_param is valid, also on C libraries with more fields.
    let mut param: libc::sched_param = unsafe { std::mem::zeroed() };
    param.sched_priority = priority;
    // SAFETY: `param` is a valid sched_param; 0 means the calling thread.
    checked(unsafe { libc::sched_setscheduler(0, policy, &param) })
}

/// Locks all memory that the process has now into RAM. Memory allocated later is not locked, because
/// allocations would fail under a low limit on locked memory.
///
/// # Errors
/// Those of `mlockall`; `ENOMEM` or `EPERM` when RLIMIT_MEMLOCK is too low.
pub(crate) fn lock_memory() -> io::Result<()> {
    // SAFETY: takes flags only.
    checked(unsafe { libc::mlockall(libc::MCL_CURRENT) })
}

/// Undoes [`lock_memory`].
pub(crate) fn unlock_memory() {
    // SAFETY: takes no argument and cannot fail.
    unsafe { libc::munlockall() };
}

/// Sets the least timer slack for the calling thread and the threads that it creates. With the default slack
/// the kernel wakes threads of the fair class up to 50 us late.
pub(crate) fn set_timer_slack_min() {
    // SAFETY: takes an integer; 1 ns is the least slack, 0 would select the default.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong, 0, 0, 0) };
}

/// Processor time of the calling thread, in ns.
pub(crate) fn thread_time_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec to write to; the clock exists since Linux 2.6.12.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Numbers of processors are below this.
pub(crate) const PROCESSORS_MAX: usize = libc::CPU_SETSIZE as usize;

/// Binds the calling thread to a processor.
///
/// # Errors
/// Those of `sched_setaffinity`; `EINVAL` when this process may not use it.
pub(crate) fn set_affinity(processor: usize) -> io::Result<()> {
    if processor >= PROCESSORS_MAX {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: an all-zero set is valid and empty; the processor is within it.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        set
    };
    // SAFETY: the kernel only reads `set`; 0 means the calling thread.
    checked(unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) })
}

/// Has the kernel end this process by SIGXCPU when one of its real-time threads runs for so long without
/// sleeping (`RLIMIT_RTTIME`); `None`: no limit. Returns the limit that was set.
///
/// # Errors
/// Those of `getrlimit` and `setrlimit`.
pub(crate) fn limit_real_time(limit: Option<Duration>) -> io::Result<Option<Duration>> {
    let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limits` is a valid rlimit to write to.
    checked(unsafe { libc::getrlimit(libc::RLIMIT_RTTIME, &raw mut limits) })?;
    let before = limits.rlim_cur;
    let wanted = limit.map_or(libc::RLIM_INFINITY, |limit| limit.as_micros() as libc::rlim_t);
    limits.rlim_cur = wanted.min(limits.rlim_max);
    // SAFETY: `limits` is a valid rlimit to read.
    checked(unsafe { libc::setrlimit(libc::RLIMIT_RTTIME, &raw const limits) })?;
    Ok((before != libc::RLIM_INFINITY).then(|| Duration::from_micros(before)))
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Opens a non-blocking packet socket for one EtherType on the interface with that index.
///
/// # Errors
/// Those of `socket` and `bind`; `EPERM` without `CAP_NET_RAW`.
pub(crate) fn packet_socket(interface: i32, ethertype: u16) -> io::Result<OwnedFd> {
    let flags = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    let protocol = ethertype.to_be();
    // SAFETY: takes numbers only.
    let socket = unsafe { libc::socket(libc::AF_PACKET, flags, protocol.into()) };
    checked(socket.min(0))?;
    // SAFETY: the descriptor is open, and nothing else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: protocol,
        sll_ifindex: interface,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: `address` is a valid address of that length.
    checked(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) })?;
    Ok(socket)
}

/// Waits until one of the descriptors is readable or, with `for_output`, the first one is writable; at most
/// `limit_ns`.
pub(crate) fn wait(descriptors: [BorrowedFd<'_>; 2], for_output: bool, limit_ns: u64) {
    let write = if for_output { libc::POLLOUT } else { 0 };
    let mut polled = [(descriptors[0], write), (descriptors[1], 0)].map(|(descriptor, write)| libc::pollfd {
        fd: descriptor.as_raw_fd(),
        events: libc::POLLIN | write,
        revents: 0,
    });
    let limit = libc::timespec {
        tv_sec: (limit_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (limit_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: two valid entries, a valid time, and no change of the signal mask. After an error the caller
    // just polls again.
    unsafe { libc::ppoll(polled.as_mut_ptr(), 2, &limit, std::ptr::null()) };
}
