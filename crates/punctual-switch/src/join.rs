//! Waits for threads that may never end.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Pause between two looks at a thread that has not ended.
const PAUSE: Duration = Duration::from_micros(200);

/// The result of a thread that ends before `until`, or panics; `None` if it does not end. Then it keeps what
/// it has, and ends with the process.
pub(crate) fn join_until<T>(thread: JoinHandle<T>, until: Instant) -> Option<std::thread::Result<T>> {
    while !thread.is_finished() {
        if Instant::now() >= until {
            return None;
        }
        std::thread::sleep(PAUSE);
    }
    Some(thread.join())
}
