//! Who ran on which processor since the last time, by `/proc`, where nobody sees switches.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use punctual_linux::os::proc::{parse_processor, parse_schedstat};

/// Threads of the machine at most that are looked at.
const THREADS_MAX: usize = 32 * 1024;

/// A thread that ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) thread: u32,
    /// Where it was last.
    pub(crate) processor: u32,
    pub(crate) ran_ns: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Busy {
    proc: PathBuf,
    before: HashMap<u32, u64>,
}

impl Busy {
    pub(crate) fn new(proc: &Path) -> Busy {
        Busy { proc: proc.to_owned(), before: HashMap::new() }
    }

    /// The threads that ran since the last call; a thread that is new ran all its time since then. None at
    /// the first call.
    pub(crate) fn take(&mut self) -> Vec<Ran> {
        let is_first = self.before.is_empty();
        let before = std::mem::take(&mut self.before);
        let mut all = Vec::new();
        let directories = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
        let number =
            |entry: &fs::DirEntry| entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        for process in directories(&self.proc).filter(|entry| number(entry).is_some()) {
            for task in directories(&process.path().join("task")) {
                let Some(thread) = number(&task).filter(|_| self.before.len() < THREADS_MAX) else {
                    continue;
                };
                let read = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
                let Some(stat) = parse_schedstat(&read("schedstat")) else { continue };
                let total_ns = stat.ran.as_ns();
                self.before.insert(thread, total_ns);
                let ran_ns = total_ns.saturating_sub(before.get(&thread).copied().unwrap_or(0));
                if is_first || ran_ns == 0 {
                    continue;
                }
                if let Some(processor) = parse_processor(&read("stat")) {
                    all.push(Ran { thread, processor: processor as u32, ran_ns });
                }
            }
        }
        all
    }

    /// Forgets the last call.
    pub(crate) fn forget(&mut self) {
        self.before.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ran_since_the_last_time_is_listed_with_its_processor() {
        let directory = tempfile::tempdir().expect("a directory");
        let thread = |process: u32, thread: u32, ran_ns: u64| {
            let task = directory.path().join(format!("{process}/task/{thread}"));
            fs::create_dir_all(&task).expect("made");
            fs::write(task.join("schedstat"), format!("{ran_ns} 0 1")).expect("written");
            let fields = "0 ".repeat(35);
            fs::write(task.join("stat"), format!("{thread} (a b) R {fields}3 0 0")).expect("written");
        };
        thread(5, 5, 100);
        thread(5, 6, 10);
        let mut busy = Busy::new(directory.path());
        assert_eq!(busy.take(), []);
        thread(5, 5, 150);
        thread(9, 9, 7);
        let mut ran = busy.take();
        ran.sort_by_key(|ran| ran.thread);
        let expected = |thread, ran_ns| Ran { thread, processor: 3, ran_ns };
        assert_eq!(ran, [expected(5, 50), expected(9, 7)]);
        busy.forget();
        assert_eq!(busy.take(), []);
    }
}
