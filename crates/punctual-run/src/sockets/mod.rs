//! Sockets of this host for guests: servers of a run, and servers for VMs that others start.

mod of_run;
pub mod service;

use punctual_linux::os::sched::{self, Attributes};
use punctual_model::text::printable;

use crate::events::{Event, Events};

pub(crate) use of_run::{LiveSockets, start};

/// What the thread that makes a guest's calls does first: takes its processors and its priority.
fn enter(
    domain: &str,
    processors: Vec<usize>,
    priority: Option<u8>,
    events: &Events,
) -> Box<dyn FnOnce() + Send> {
    let (name, events) = (printable(domain).into_owned(), events.clone());
    let misplaced = move |text: String| events(Event::Misplaced(text));
    Box::new(move || {
        if !processors.is_empty()
            && let Err(error) = sched::set_affinity(0, &processors)
        {
            misplaced(format!("{name}: its calls are not made on processors {processors:?} alone: {error}"));
        }
        if let Some(priority) = priority
            && let Err(error) = sched::set_attributes(0, &Attributes::fifo(priority.into()))
        {
            misplaced(format!("{name}: its calls are made without a real-time priority: {error}"));
        }
    })
}
