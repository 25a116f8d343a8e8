//! What a run, a switch or a server of sockets reports while it works. The command line prints it.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;

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
    /// A thread of a switch did not end with it, and ends with this process.
    LeftBehind { thread: String },
    /// Something happened to a guest with sockets of this host.
    Sockets { domain: String, event: punctual_sockets::Event },
    /// A thread does not run where it should, or not with its priority.
    Misplaced(String),
    /// An interface has no mapped ring: each of its frames takes a system call.
    NoRing { uplink: String, error: String },
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
