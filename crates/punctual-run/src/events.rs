//! What a run, a switch or a server of sockets reports while it works. The command line prints it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use punctual_enforce::journal::Restored;

use crate::run::AttachTarget;

/// Something that happened.
#[derive(Debug)]
pub enum Event {
    /// What an earlier run had left changed was put back: it had died together with its guardian.
    Undone(Restored),
    /// For what the run waits before it begins.
    Waiting(String),
    /// What the run does next.
    Step(String),
    /// What the run attaches to, before it changes its threads.
    Attaching(Vec<AttachTarget>),
    /// A network of the host file is served by a switch that runs already.
    SwitchFound { network: String, process: i32 },
    /// No switch serves this network of the host file.
    SwitchMissing { network: String },
    /// Something happened to a port of a switch.
    Port { port: String, event: punctual_switch::Event },
    /// So many more events of a port of a switch were not reported: there were too many at once.
    More { port: String, count: u64 },
    /// So many events were not reported, because nobody read the earlier ones.
    Unread { count: u64 },
    /// A thread of a switch did not end with it, and ends with this process.
    LeftBehind { thread: String },
    /// Something happened to a guest with sockets of this host.
    Sockets { domain: String, event: punctual_sockets::Event },
    /// A thread does not run where it should, or not with its priority.
    Misplaced(String),
    /// An interface has no mapped ring: each of its frames takes a system call.
    NoRing { uplink: String, error: String },
    /// Frames to an interface are not sent in batches: each takes a system call.
    NoBatches { uplink: String, error: String },
}

/// Takes events, from any thread.
pub type Events = Arc<dyn Fn(Event) + Send + Sync>;

/// A thread that passes on what a switch or a server reports, until that has ended.
pub(crate) struct Relay(JoinHandle<()>);

impl Relay {
    /// Passes each report to `to`, until nobody can send another one.
    pub(crate) fn start<T: Send + 'static>(
        reports: Receiver<T>,
        to: impl FnMut(T) + Send + 'static,
    ) -> Relay {
        Relay(std::thread::spawn(move || reports.into_iter().for_each(to)))
    }

    /// Waits until the last report is passed on. The sender must have ended.
    pub(crate) fn finish(self) {
        // A panic has been printed already.
        let _ = self.0.join();
    }
}

/// Events that wait for a reader, at most.
const WAITING_MAX: usize = 256;

/// How long the end waits for a reader.
const FLUSH_LIMIT: Duration = Duration::from_millis(250);

/// Pause before another try to get into a full queue.
const FLUSH_PAUSE: Duration = Duration::from_millis(1);

enum Item {
    Event(Event),
    /// Answered when all events before are passed on.
    Flush(Sender<()>),
}

/// Passes events on in a thread of its own: the thread that reports one never waits for a terminal or a pipe
/// that nobody reads. Events beyond [`WAITING_MAX`] are counted, and the count is an event itself.
pub(crate) struct EventQueue {
    items: SyncSender<Item>,
    missed: Arc<AtomicU64>,
}

impl EventQueue {
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn start(to: Events) -> io::Result<EventQueue> {
        let (items, queue) = sync_channel(WAITING_MAX);
        let missed = Arc::<AtomicU64>::default();
        let of_thread = Arc::clone(&missed);
        let work = move || {
            for item in queue {
                match item {
                    Item::Event(event) => to(event),
                    // Nobody may wait any more.
                    Item::Flush(done) => drop(done.send(())),
                }
                let count = of_thread.swap(0, Ordering::Relaxed);
                if count > 0 {
                    to(Event::Unread { count });
                }
            }
        };
        std::thread::Builder::new().name("events".into()).spawn(work)?;
        Ok(EventQueue { items, missed })
    }

    /// Takes events for this queue.
    pub(crate) fn events(&self) -> Events {
        let (items, missed) = (self.items.clone(), Arc::clone(&self.missed));
        Arc::new(move |event| {
            if items.try_send(Item::Event(event)).is_err() {
                missed.fetch_add(1, Ordering::Relaxed);
            }
        })
    }

    /// Waits until the events so far are passed on, but not long.
    pub(crate) fn flush(&self) {
        let until = Instant::now() + FLUSH_LIMIT;
        let (done, is_done) = channel();
        while self.items.try_send(Item::Flush(done.clone())).is_err() {
            if Instant::now() >= until {
                return;
            }
            std::thread::sleep(FLUSH_PAUSE);
        }
        let _ = is_done.recv_timeout(until.saturating_duration_since(Instant::now()));
    }
}

impl Drop for EventQueue {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Events of a port at once.
const PORT_EVENTS_MAX: u64 = 20;

/// After these, one is reported in this time.
const PORT_EVENT_PAUSE: Duration = Duration::from_millis(500);

/// Limits the events of a port: a guest can make thousands in a second.
#[derive(Debug)]
pub(crate) struct PortLimit {
    /// When the port will have been silent for long enough.
    paid_until: Instant,
    suppressed: u64,
}

impl PortLimit {
    pub(crate) fn new(now: Instant) -> PortLimit {
        PortLimit { paid_until: now, suppressed: 0 }
    }

    /// Accounts for an event. `None`: it is not reported. Otherwise the number of events before it that were
    /// not.
    pub(crate) fn admit(&mut self, now: Instant) -> Option<u64> {
        let from = self.paid_until.max(now);
        if from.duration_since(now) > PORT_EVENT_PAUSE.saturating_mul(PORT_EVENTS_MAX as u32 - 1) {
            self.suppressed += 1;
            return None;
        }
        self.paid_until = from + PORT_EVENT_PAUSE;
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_reports_some_events_at_once_and_the_number_of_the_others_later() {
        let start = Instant::now();
        let mut limit = PortLimit::new(start);
        let reported = (0..30_000).filter(|_| limit.admit(start).is_some()).count();
        assert_eq!(reported as u64, PORT_EVENTS_MAX);
        let later = start + PORT_EVENT_PAUSE;
        assert_eq!([limit.admit(later), limit.admit(later)], [Some(30_000 - PORT_EVENTS_MAX), None]);
        let long = start + PORT_EVENT_PAUSE * 1_000;
        assert_eq!([limit.admit(long), limit.admit(long)], [Some(1), Some(0)]);
    }

    #[test]
    fn a_reader_that_does_not_read_holds_nobody_up() {
        let (release, held) = channel::<()>();
        let held = std::sync::Mutex::new(held);
        let (seen, shown) = channel();
        let queue = EventQueue::start(Arc::new(move |event| {
            // Until the test ends the pause.
            let _ = held.lock().map(|held| held.recv());
            let _ = seen.send(event);
        }));
        let queue = queue.expect("a thread");
        let events = queue.events();
        let start = Instant::now();
        (0..1_000).for_each(|_| events(Event::Misplaced("x".into())));
        queue.flush();
        assert!(start.elapsed() < FLUSH_LIMIT + Duration::from_millis(500), "{:?}", start.elapsed());
        drop(release);
        drop((events, queue));
        let shown: Vec<Event> = shown.iter().collect();
        let unread: u64 = shown
            .iter()
            .map(|event| match event {
                Event::Unread { count } => *count,
                _ => 0,
            })
            .sum();
        let whole = shown.iter().filter(|event| matches!(event, Event::Misplaced(_))).count() as u64;
        assert_eq!(whole + unread, 1_000);
        assert!(whole <= WAITING_MAX as u64 + 2, "{whole} were kept");
    }
}
