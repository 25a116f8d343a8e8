//! What the kernel's account of an enforcer says about why a look is late.

use punctual_sched::Duration;

use crate::driver::Lateness;
use punctual_linux::os::load;
use punctual_linux::os::proc::{self, Reader, SchedStat};
use punctual_linux::os::sched;

/// A look that is late by less is not judged: timers are, by tens of microseconds.
const LATE_MIN: Duration = Duration::from_us(200);
/// The account is read again after this many looks, so that what it says is of the time just before.
const LOOKS_MAX: u64 = 16;

/// The account of the calling enforcer.
pub(super) struct Account {
    /// `None` where it cannot be read: then every late look counts as a standstill.
    reader: Option<Reader>,
    last: SchedStat,
    kernel_knows_stolen: bool,
    /// Looks since the account was read.
    looks: u64,
    /// Has it just been stopped by a signal or a freezer?
    was_stopped: bool,
}

impl Account {
    /// Of the calling thread.
    pub(super) fn open() -> Account {
        let reader = Reader::open("/proc/thread-self/schedstat").ok();
        let kernel_knows_stolen = load::kernel_knows_stolen();
        let mut account =
            Account { reader, last: SchedStat::default(), kernel_knows_stolen, looks: 0, was_stopped: false };
        account.last = account.read().unwrap_or_default();
        account
    }

    /// The enforcer has slept between two looks and woke up `late`. `sleeps` is how often it had given up its
    /// processor before: it does so once to sleep, and once more for each stop.
    pub(super) fn woke(&mut self, late: Duration, sleeps: u64) {
        self.was_stopped = late >= LATE_MIN && sched::usage().sleeps > sleeps + 1;
    }

    fn read(&self) -> Option<SchedStat> {
        let mut buffer = [0u8; 128];
        proc::parse_schedstat(self.reader.as_ref()?.read(&mut buffer).ok()?)
    }

    /// Why the look that begins is `late`.
    pub(super) fn judge(&mut self, late: Duration) -> Lateness {
        let unknown = Lateness { late, kernel_knows_stolen: self.kernel_knows_stolen, ..Lateness::default() };
        self.looks += 1;
        if late < LATE_MIN && self.looks < LOOKS_MAX {
            return unknown;
        }
        let Some(stat) = self.read() else { return unknown };
        let before = std::mem::replace(&mut self.last, stat);
        self.looks = 0;
        if late < LATE_MIN {
            return unknown;
        }
        let waited = stat.waited.saturating_sub(before.waited).min(late);
        Lateness { waited, was_stopped: self.was_stopped && waited * 2 < late, ..unknown }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sleeps as an enforcer does between two looks, or twice.
    fn slept(times: u32, late: Duration) -> Lateness {
        let mut account = Account::open();
        let sleeps = sched::usage().sleeps;
        (0..times).for_each(|_| std::thread::sleep(std::time::Duration::from_millis(2)));
        account.woke(late, sleeps);
        account.judge(late)
    }

    #[test]
    fn an_enforcer_that_gave_up_its_processor_more_than_once_was_stopped() {
        let late = Duration::from_secs(1);
        assert!(!slept(1, late).was_stopped);
        assert!(slept(2, late).was_stopped);
        assert!(!slept(2, LATE_MIN.saturating_sub(Duration::from_ns(1))).was_stopped);
        // Where it waited for half of that time, a thread above it had the processor.
        let mut account = Account::open();
        account.was_stopped = true;
        account.last.waited = Duration::ZERO;
        assert!(account.judge(late).was_stopped);
    }

    #[test]
    fn a_thread_has_an_account() {
        let mut account = Account::open();
        assert!(account.reader.is_some());
        let before = account.last.arrivals;
        std::thread::sleep(std::time::Duration::from_millis(2));
        account.looks = LOOKS_MAX;
        account.judge(Duration::ZERO);
        assert!(account.last.arrivals > before);
    }
}
