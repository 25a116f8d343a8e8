//! Threads as `/proc` shows them: state, processor time, name, when they started.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

use punctual_sched::Duration;

/// What `/proc/PID/stat` says of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// `R` running or runnable, `S` sleeping, `D` uninterruptible, `T` stopped, `t` traced, `Z` zombie, `X` dead.
    pub state: char,
    /// The parent process.
    pub parent: i32,
    /// When it started, in clock ticks since boot: with the id, a thread's identity (ids are used again).
    pub start_ticks: u64,
}

/// Parses a line of `/proc/PID/stat`. The name may contain blanks and parentheses, so fields count from the last one.
pub fn parse_stat(line: &str) -> Option<Stat> {
    let mut fields = line.get(line.rfind(')')? + 1..)?.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    // proc_pid_stat(5): starttime is field 22; state is field 3.
    let start_ticks = fields.nth(22 - 5)?.parse().ok()?;
    Some(Stat { state, parent, start_ticks })
}

/// The first number of `/proc/PID/task/TID/schedstat`: processor time in ns.
pub fn parse_schedstat(line: &str) -> Option<Duration> {
    line.split_ascii_whitespace().next()?.parse().ok().map(Duration::from_ns)
}

/// `usage_usec` of a cgroup's `cpu.stat`.
pub fn parse_cpu_stat(text: &str) -> Option<Duration> {
    let usage = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
    usage.trim().parse().ok().map(Duration::from_us)
}

/// The thread's `stat`.
///
/// # Errors
/// The thread is gone (`NotFound`), or the kernel's answer is not understood (`InvalidData`).
pub fn stat(tid: i32) -> io::Result<Stat> {
    let text = fs::read_to_string(format!("/proc/{tid}/stat"))?;
    parse_stat(&text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "unexpected /proc/PID/stat"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_blanks_and_parentheses_does_not_shift_the_fields() {
        let line = "7 (a) (b c) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 9 10";
        assert_eq!(parse_stat(line), Some(Stat { state: 'S', parent: 1, start_ticks: 4242 }));
        assert_eq!(parse_stat("7 (a"), None);
        assert_eq!(parse_stat(""), None);
        assert_eq!(parse_stat("7 (a) S 1 2"), None);
    }

    #[test]
    fn processor_time_is_the_first_number_of_schedstat() {
        assert_eq!(parse_schedstat("19261554 2167433 12\n"), Some(Duration::from_ns(19_261_554)));
        assert_eq!(parse_schedstat("x"), None);
    }

    #[test]
    fn cpu_stat_counts_microseconds() {
        let text = "usage_usec 1500\nuser_usec 1000\nsystem_usec 500\n";
        assert_eq!(parse_cpu_stat(text), Some(Duration::from_us(1500)));
        assert_eq!(parse_cpu_stat("user_usec 1000\n"), None);
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
