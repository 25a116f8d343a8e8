//! What people call a thread that had a processor.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use punctual_linux::os::proc::parse_is_kernel_thread;

use super::cause::{Name, Who};

/// Threads that are remembered at most.
const KNOWN_MAX: usize = 8 * 1024;

/// Threads of the host that are no VM's, by their ids.
#[derive(Debug)]
pub(crate) struct Names {
    proc: PathBuf,
    /// What it was called when it was asked for, and who it is.
    known: HashMap<u32, ([u8; 16], Who)>,
}

impl Names {
    pub(crate) fn new(proc: &Path) -> Names {
        Names { proc: proc.to_owned(), known: HashMap::new() }
    }

    /// Who a thread is. `called` is what it was called when it had the processor, if that is known: then it
    /// has a name even if it has ended.
    pub(crate) fn who(&mut self, thread: u32, called: Option<[u8; 16]>) -> Who {
        let key = called.unwrap_or_default();
        if let Some((known, who)) = self.known.get(&thread)
            && *known == key
        {
            return who.clone();
        }
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        let who = self.ask(thread, called);
        self.known.insert(thread, (key, who.clone()));
        who
    }

    /// What is known from now on is asked for again: ids are used again.
    pub(crate) fn forget(&mut self) {
        self.known.clear();
    }

    fn ask(&self, thread: u32, called: Option<[u8; 16]>) -> Who {
        let read = |name: &str| fs::read_to_string(self.proc.join(format!("{thread}/{name}"))).ok();
        let called = called.map(|name| {
            let text = String::from_utf8_lossy(&name);
            text.trim_end_matches('\0').to_owned()
        });
        let name = called.or_else(|| read("comm").map(|name| name.trim_end().to_owned()));
        let Some(name) = name else { return Who::Process("a thread that has ended".into()) };
        // Not `/proc/TID/stat`, for which the kernel adds up all threads of a process.
        let is_kernel = read(&format!("task/{thread}/stat"))
            .and_then(|stat| parse_is_kernel_thread(&stat))
            .unwrap_or(false);
        if is_kernel {
            return Who::Kernel(name.into());
        }
        let status = read("status").unwrap_or_default();
        let leader = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
        let leader = leader.map(str::trim).filter(|leader| *leader != thread.to_string());
        let process = leader.and_then(|leader| fs::read_to_string(self.proc.join(leader).join("comm")).ok());
        let shown: Name = match process.as_deref().map(str::trim_end) {
            Some(process) if process != name => format!("{process} ({name})").into(),
            _ => name.into(),
        };
        Who::Process(shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(name: &str) -> Option<[u8; 16]> {
        let mut bytes = [0; 16];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        Some(bytes)
    }

    #[test]
    fn kernel_threads_and_processes_are_told_apart_and_ended_ones_keep_their_names() {
        let directory = tempfile::tempdir().expect("a directory");
        let thread = |tid: u32, name: &str, flags: u64, leader: u32| {
            let path = directory.path().join(tid.to_string());
            let task = path.join(format!("task/{tid}"));
            fs::create_dir_all(&task).expect("made");
            fs::write(path.join("comm"), format!("{name}\n")).expect("written");
            fs::write(task.join("stat"), format!("{tid} ({name}) S 1 1 1 0 0 {flags} 0 0")).expect("written");
            fs::write(path.join("status"), format!("Name:\t{name}\nTgid:\t{leader}\n")).expect("written");
        };
        thread(5, "ksoftirqd/1", 0x0020_0000, 5);
        thread(6, "java", 0, 6);
        thread(7, "GC", 0, 6);
        let mut names = Names::new(directory.path());
        assert_eq!(names.who(5, None), Who::Kernel("ksoftirqd/1".into()));
        assert_eq!(names.who(6, None), Who::Process("java".into()));
        assert_eq!(names.who(7, called("GC")), Who::Process("java (GC)".into()));
        assert_eq!(names.who(9, called("gone")), Who::Process("gone".into()));
        assert_eq!(names.who(9, None), Who::Process("a thread that has ended".into()));
        // The id is another thread's now.
        thread(7, "new", 0, 7);
        assert_eq!(names.who(7, called("new")), Who::Process("new".into()));
    }
}
