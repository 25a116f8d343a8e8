//! Threads as `/proc` shows them: state, processor time, name, when they started.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use punctual_sched::Duration;

/// What `/proc/PID/stat` says of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// `R` running or runnable, `S` sleeping, `D` uninterruptible, `T` stopped, `t` traced, `Z` zombie, `X`
    /// dead.
    pub state: char,
    /// The parent process.
    pub parent: i32,
    /// The session, which is the process id of its leader; 0 where the leader is in a PID namespace above.
    pub session: i32,
    /// When it started, in clock ticks since boot: with the id, a thread's identity (ids are used again).
    pub start_ticks: u64,
}

/// Parses a line of `/proc/PID/stat`. The name may contain blanks and parentheses, so fields count from the
/// last one.
pub fn parse_stat(line: &str) -> Option<Stat> {
    let mut fields = line.get(line.rfind(')')? + 1..)?.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    // proc_pid_stat(5): session is field 6, starttime field 22; state is field 3.
    let session = fields.nth(6 - 5)?.parse().ok()?;
    let start_ticks = fields.nth(22 - 7)?.parse().ok()?;
    Some(Stat { state, parent, session, start_ticks })
}

/// The processor on which a thread was last, from a line of `/proc/PID/stat`.
pub fn parse_processor(line: &str) -> Option<usize> {
    // proc_pid_stat(5): processor is field 39; state is field 3.
    line.get(line.rfind(')')? + 1..)?.split_ascii_whitespace().nth(39 - 3)?.parse().ok()
}

/// Is it a thread of the kernel, by a line of `/proc/PID/stat`? Threads that the kernel runs for a process
/// (vhost from Linux 6.4 on, io_uring) are that process's.
pub fn parse_is_kernel_thread(line: &str) -> Option<bool> {
    // `PF_KTHREAD` in Linux `include/linux/sched.h`.
    const PF_KTHREAD: u64 = 0x0020_0000;
    // proc_pid_stat(5): flags is field 9; state is field 3.
    let flags: u64 = line.get(line.rfind(')')? + 1..)?.split_ascii_whitespace().nth(9 - 3)?.parse().ok()?;
    Some(flags & PF_KTHREAD != 0)
}

/// The real-time priority of a thread, from a line of `/proc/PID/stat`; 0 in the fair classes.
pub fn parse_rt_priority(line: &str) -> Option<u32> {
    // proc_pid_stat(5): rt_priority is field 40; state is field 3.
    line.get(line.rfind(')')? + 1..)?.split_ascii_whitespace().nth(40 - 3)?.parse().ok()
}

/// What `/proc/PID/task/TID/schedstat` says of a thread (Linux `Documentation/scheduler/sched-stats.rst`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedStat {
    /// Processor time. Where the kernel knows what a hypervisor below took, that is not in it
    /// (`update_rq_clock_task` in Linux `kernel/sched/core.c`).
    pub ran: Duration,
    /// Time in which it waited for a processor, ready to run.
    pub waited: Duration,
    /// How often it came to a processor.
    pub arrivals: u64,
}

impl SchedStat {
    /// What it has more than an earlier one.
    #[must_use]
    pub fn since(&self, earlier: &SchedStat) -> SchedStat {
        SchedStat {
            ran: self.ran.saturating_sub(earlier.ran),
            waited: self.waited.saturating_sub(earlier.waited),
            arrivals: self.arrivals.saturating_sub(earlier.arrivals),
        }
    }
}

/// Parses `/proc/PID/task/TID/schedstat`.
pub fn parse_schedstat(line: &str) -> Option<SchedStat> {
    let mut numbers = line.split_ascii_whitespace().map(str::parse::<u64>);
    let ran = Duration::from_ns(numbers.next()?.ok()?);
    let mut next = || numbers.next().and_then(Result::ok).unwrap_or(0);
    let (waited, arrivals) = (Duration::from_ns(next()), next());
    Some(SchedStat { ran, waited, arrivals })
}

/// `usage_usec` of a cgroup's `cpu.stat`.
pub fn parse_cpu_stat(text: &str) -> Option<Duration> {
    let usage = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
    usage.trim().parse().ok().map(Duration::from_us)
}

/// Does the error mean that the thread has ended? Others (no more descriptors, no permission) do not.
pub fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH) || error.kind() == io::ErrorKind::NotFound
}

/// The thread's `stat`.
///
/// # Errors
/// The thread is gone (`NotFound`), or the kernel's answer is not understood (`InvalidData`).
pub fn stat(tid: i32) -> io::Result<Stat> {
    // Not `/proc/TID/stat`: the kernel adds up the times of all threads of the process for it, so reading it
    // for each of 5,000 threads takes seconds.
    let text = fs::read_to_string(format!("/proc/{tid}/task/{tid}/stat"))?;
    parse_stat(&text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "unexpected /proc/PID/stat"))
}

/// Is it a thread of the kernel? False for one that is gone.
pub fn is_kernel_thread(tid: i32) -> bool {
    let line = fs::read_to_string(format!("/proc/{tid}/task/{tid}/stat"));
    line.ok().and_then(|line| parse_is_kernel_thread(&line)).unwrap_or(false)
}

/// Has SIGKILL been sent to the thread, which has not come to die yet? False for one that is gone.
pub fn is_killed(tid: i32) -> bool {
    fs::read_to_string(format!("/proc/{tid}/status")).is_ok_and(|status| parse_is_killed(&status))
}

/// Is SIGKILL pending? The kernel adds it to each thread of a process that is killed (`complete_signal` in
/// `kernel/signal.c`).
fn parse_is_killed(status: &str) -> bool {
    const KILL: u64 = 1 << (libc::SIGKILL - 1);
    let pending = status.lines().find_map(|line| line.strip_prefix("SigPnd:"));
    pending.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).is_some_and(|bits| bits & KILL != 0)
}

/// The thread's name (at most 15 bytes).
///
/// # Errors
/// The thread is gone.
pub fn name(tid: i32) -> io::Result<String> {
    Ok(fs::read_to_string(format!("/proc/{tid}/comm"))?.trim_end().to_owned())
}

/// The process that the thread belongs to.
///
/// # Errors
/// The thread is gone.
pub fn process_of(tid: i32) -> io::Result<i32> {
    let status = fs::read_to_string(format!("/proc/{tid}/status"))?;
    let group = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    group
        .and_then(|id| id.trim().parse().ok())
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no Tgid in /proc/PID/status"))
}

/// The threads of a process, ascending.
///
/// # Errors
/// The process is gone.
pub fn threads(process: i32) -> io::Result<Vec<i32>> {
    let mut threads: Vec<i32> = fs::read_dir(format!("/proc/{process}/task"))?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    threads.sort_unstable();
    Ok(threads)
}

/// All processes, ascending.
///
/// # Errors
/// `/proc` is not mounted.
pub fn processes() -> io::Result<Vec<i32>> {
    let mut processes: Vec<i32> =
        fs::read_dir("/proc")?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    processes.sort_unstable();
    Ok(processes)
}

/// The parent of the kernel's own threads, `kthreadd`.
const KTHREADD: i32 = 2;

/// The kernel's own threads whose names start with `prefix`, ascending.
///
/// # Errors
/// `/proc` is not mounted.
pub fn kernel_threads(prefix: &str) -> io::Result<Vec<i32>> {
    let is_one = |pid: &i32| {
        stat(*pid).is_ok_and(|stat| stat.parent == KTHREADD)
            && name(*pid).is_ok_and(|name| name.starts_with(prefix))
    };
    Ok(processes()?.into_iter().filter(is_one).collect())
}

/// A thread's wait by futex(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FutexWait {
    /// The futex.
    pub address: u64,
    /// The operation and its flags.
    pub operation: u32,
    /// The value that the futex had.
    pub value: u32,
}

/// What a thread waits for, read over and over. Not for threads that must not wait: each read takes a lock
/// that an executing thread holds.
#[derive(Debug)]
pub struct FutexReader(Reader);

impl FutexReader {
    /// Of thread `tid`.
    ///
    /// # Errors
    /// The thread is gone, or only another user may trace it.
    pub fn of(tid: i32) -> io::Result<FutexReader> {
        Reader::open(&format!("/proc/{tid}/syscall")).map(FutexReader)
    }

    /// The futex that it waits for; `None` where it does not wait for one.
    ///
    /// # Errors
    /// The thread is gone, or this process may not trace it (PTRACE_MODE_ATTACH_FSCREDS).
    pub fn wait(&self) -> io::Result<Option<FutexWait>> {
        Ok(parse_futex_wait(self.0.read(&mut [0; 256])?))
    }
}

/// Parses a line of `/proc/TID/syscall`: number, six arguments, stack pointer and program counter, or
/// `running`.
fn parse_futex_wait(line: &str) -> Option<FutexWait> {
    let mut fields = line.split_ascii_whitespace();
    let number: i64 = fields.next()?.parse().ok()?;
    let mut argument = || u64::from_str_radix(fields.next()?.strip_prefix("0x")?, 16).ok();
    // The kernel shows whole registers; operation and value are the lower halves.
    let (address, operation, value) = (argument()?, argument()? as u32, argument()? as u32);
    (number == libc::SYS_futex).then_some(FutexWait { address, operation, value })
}

/// The memory of the program that a process executes.
#[derive(Debug)]
pub struct Memory(File);

impl Memory {
    /// Of a process.
    ///
    /// # Errors
    /// The process is gone, or this process may not trace it.
    pub fn of(process: i32) -> io::Result<Memory> {
        File::open(format!("/proc/{process}/mem")).map(Memory)
    }

    /// Reads from an address on.
    ///
    /// # Errors
    /// There is no memory, or the process executes another program.
    pub fn read(&self, address: u64, to: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(to, address)
    }
}

/// The thread's id in the innermost PID namespace that it is in: the one that it sees itself.
///
/// # Errors
/// The thread is gone.
pub fn innermost_id(tid: i32) -> io::Result<i32> {
    let status = fs::read_to_string(format!("/proc/{tid}/status"))?;
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let innermost = ids.and_then(|ids| ids.split_ascii_whitespace().next_back()?.parse().ok());
    innermost.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no NSpid in /proc/PID/status"))
}

/// A file read over and over from its start without allocation.
#[derive(Debug)]
pub struct Reader {
    file: File,
}

impl Reader {
    /// Opens `path`.
    ///
    /// # Errors
    /// As `open(2)`.
    pub fn open(path: &str) -> io::Result<Reader> {
        Ok(Reader { file: File::open(path)? })
    }

    /// What the file says now, as far as `buffer` holds it.
    ///
    /// # Errors
    /// As `pread(2)`: `ESRCH` when the thread is gone. Text that is not UTF-8 is `InvalidData`.
    pub fn read<'a>(&self, buffer: &'a mut [u8]) -> io::Result<&'a str> {
        let length = self.file.read_at(buffer, 0)?;
        core::str::from_utf8(&buffer[..length]).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
    }
}

/// How to read whether a thread sleeps, without taking a lock that an executing or exiting thread holds.
#[derive(Debug)]
pub enum SleepReader {
    /// `/proc/TID/wchan`: the kernel's function that it sleeps in, or 0 (1.5 us; `status` takes 7).
    WaitChannel(Reader),
    /// The line `State:` of `/proc/TID/status`, for threads whose `wchan` this process may not read: it would
    /// always say 0.
    State(Reader),
}

impl SleepReader {
    /// May this process read the wait channel of thread `tid`?
    pub fn can_read_wchan(tid: i32) -> bool {
        // A kernel without names of functions says 0 as well. The link needs the same permission as `wchan`
        // (PTRACE_MODE_READ_FSCREDS; Linux `fs/proc/base.c`).
        fs::read_link(format!("/proc/{tid}/cwd")).is_ok() && Path::new("/proc/kallsyms").exists()
    }

    /// Of thread `tid`: by its wait channel if this process may read that, otherwise by its state.
    ///
    /// # Errors
    /// The thread is gone.
    pub fn of(tid: i32, can_read_wchan: bool) -> io::Result<SleepReader> {
        if can_read_wchan {
            Ok(SleepReader::WaitChannel(Reader::open(&format!("/proc/{tid}/wchan"))?))
        } else {
            Ok(SleepReader::State(Reader::open(&format!("/proc/{tid}/status"))?))
        }
    }

    /// Does it sleep, rather than run or wait for a processor?
    ///
    /// # Errors
    /// The thread is gone.
    pub fn is_asleep(&self) -> io::Result<bool> {
        let mut buffer = [0u8; 256];
        match self {
            SleepReader::WaitChannel(wchan) => {
                wchan.read(&mut buffer).map(|place| !matches!(place.trim(), "0" | ""))
            }
            SleepReader::State(status) => {
                let state = parse_state(status.read(&mut buffer)?);
                let unknown = || io::Error::new(io::ErrorKind::InvalidData, "no State in /proc/TID/status");
                state.map(|state| state != 'R').ok_or_else(unknown)
            }
        }
    }
}

/// The state in the text of `/proc/TID/status`, as in [`Stat::state`].
pub fn parse_state(text: &str) -> Option<char> {
    text.lines().find_map(|line| line.strip_prefix("State:"))?.trim_start().chars().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_waits_for_a_futex_shows_its_address_operation_and_value() {
        let line = "202 0x5563718c7b40 0x80 0x2 0x0 0x0 0x0 0x7ffc1b2f7a10 0x7f59ccc7a5d9\n";
        let wait = FutexWait { address: 0x5563_718c_7b40, operation: 0x80, value: 2 };
        let expected = (libc::SYS_futex == 202).then_some(wait);
        assert_eq!(parse_futex_wait(line), expected);
        assert_eq!(parse_futex_wait("running\n"), None);
        assert_eq!(parse_futex_wait("-1 0x7f59c89fdf00 0x7f59ccc7d3bc\n"), None);
        assert_eq!(parse_futex_wait("7 0x7f597c0031e0 0x3 0xffffffff 0x0 0x0 0x0 0x1 0x2\n"), None);
        assert_eq!(parse_futex_wait("202 0x5563718c7b40\n"), None);
    }

    #[test]
    fn a_thread_with_a_pending_sigkill_is_killed() {
        let status =
            |bits: &str| format!("Name:\tx\nSigQ:\t0/7\nSigPnd:\t{bits}\nShdPnd:\t0000000000000100\n");
        assert!(parse_is_killed(&status("0000000000000100")));
        assert!(!parse_is_killed(&status("0000000000004000")));
        assert!(!is_killed(std::process::id() as i32));
    }

    #[test]
    fn a_name_with_blanks_and_parentheses_does_not_shift_the_fields() {
        let line = "7 (a) (b c) S 1 7 8 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 9 10";
        assert_eq!(parse_stat(line), Some(Stat { state: 'S', parent: 1, session: 8, start_ticks: 4242 }));
        let long = format!("7 (a) b) {} 3 99", "0 ".repeat(36).trim_end());
        assert_eq!(parse_rt_priority(&long), Some(99));
        assert_eq!((parse_processor(&long), parse_processor(line)), (Some(3), None));
        assert_eq!(parse_is_kernel_thread(line), Some(false), "flags 4194560");
        assert_eq!(parse_is_kernel_thread("2 (kthreadd) S 0 0 0 0 -1 2129984 0 0"), Some(true));
        assert_eq!(parse_stat("7 (a"), None);
        assert_eq!(parse_stat(""), None);
        assert_eq!(parse_stat("7 (a) S 1 2"), None);
    }

    #[test]
    fn schedstat_has_processor_time_time_of_waiting_and_arrivals() {
        let (ran, waited) = (Duration::from_ns(19_261_554), Duration::from_ns(2_167_433));
        assert_eq!(parse_schedstat("19261554 2167433 12\n"), Some(SchedStat { ran, waited, arrivals: 12 }));
        assert_eq!(parse_schedstat("x"), None);
    }

    #[test]
    fn cpu_stat_counts_microseconds() {
        let text = "usage_usec 1500\nuser_usec 1000\nsystem_usec 500\n";
        assert_eq!(parse_cpu_stat(text), Some(Duration::from_us(1500)));
        assert_eq!(parse_cpu_stat("user_usec 1000\n"), None);
    }

    #[test]
    fn the_state_is_a_letter_of_status() {
        assert_eq!(parse_state("Name:\ta\nState:\tS (sleeping)\nTgid:\t7\n"), Some('S'));
        assert_eq!(parse_state("Name:\ta\nState:"), None);
    }

    #[test]
    fn a_thread_that_sleeps_says_so_either_way_and_one_that_runs_does_not() {
        let (send, receive) = std::sync::mpsc::channel();
        let sleeper = std::thread::spawn(move || {
            send.send(rustix::thread::gettid().as_raw_nonzero().get()).expect("received");
            std::thread::park();
        });
        let sleeping = receive.recv().expect("a thread");
        let running = rustix::thread::gettid().as_raw_nonzero().get();
        for (what, tid, expected) in [("sleeper", sleeping, true), ("runner", running, false)] {
            assert!(SleepReader::can_read_wchan(tid), "a thread of one's own");
            for way in [true, false].map(|see| SleepReader::of(tid, see).expect("there")) {
                let agreed = (0..200).any(|_| {
                    std::thread::sleep(std::time::Duration::from_millis(u64::from(expected)));
                    way.is_asleep().expect("there") == expected
                });
                assert!(agreed, "{what}: {way:?}");
            }
        }
        sleeper.thread().unpark();
        sleeper.join().expect("it ends");
        assert!(SleepReader::of(i32::MAX - 1, false).is_err());
    }

    #[test]
    fn a_thread_is_gone_when_the_system_says_so_and_not_when_it_cannot_say() {
        let of = io::Error::from_raw_os_error;
        assert!(is_gone(&of(libc::ESRCH)) && is_gone(&of(libc::ENOENT)));
        assert!(!is_gone(&of(libc::EMFILE)) && !is_gone(&of(libc::EACCES)) && !is_gone(&of(libc::ENOMEM)));
        assert!(is_gone(&stat(i32::MAX - 1).expect_err("there are not that many")));
    }

    #[test]
    fn this_process_is_found_with_its_threads() {
        let me = std::process::id() as i32;
        assert!(threads(me).expect("listed").contains(&me));
        assert!(processes().expect("listed").contains(&me));
        assert_eq!(process_of(me).expect("known"), me);
        assert!(stat(me).expect("known").start_ticks > 0);
    }
}
