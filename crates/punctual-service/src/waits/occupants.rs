//! Who had a processor, for measurements that name the cause of a latency (`punctual certify`): the switches
//! that blame VMs' waits, without VMs.

use std::path::Path;

use super::account::Event;
use super::cause::Who;
use super::source::{self, Kind, Opened, Reader};
use super::who::Names;

/// A processor changed hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handover {
    /// When, in ns of CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// The processor.
    pub processor: u32,
    /// The thread that left, and its name where the source has it; 0 is the idle thread.
    pub from: u32,
    /// Filled with 0; empty where it is not known.
    pub from_name: [u8; 16],
    /// The thread that came; `None`: switches were lost up to here, and nobody knows.
    pub to: Option<u32>,
}

/// Watches some processors.
#[derive(Debug)]
pub struct Occupants {
    opened: Opened,
    names: Names,
}

impl Occupants {
    /// Of these processors, by the best source that the machine permits.
    pub fn open(processors: &[usize]) -> Occupants {
        Occupants {
            opened: source::open(Kind::Tracepoints, processors),
            names: Names::new(Path::new("/proc")),
        }
    }

    /// The name of the source, `None` if the machine permits none, and why it is no better one.
    pub fn source(&self) -> (Option<&'static str>, Option<&str>) {
        let name = matches!(self.opened.reader, Reader::Events(_)).then(|| self.opened.kind.name());
        (name, self.opened.reason.as_deref())
    }

    /// Hands over what happened up to `until_ns`, in the order of time.
    pub fn drain(&mut self, until_ns: u64, take: &mut dyn FnMut(Handover)) {
        let Some(source) = self.opened.events() else { return };
        source.drain(until_ns, &mut |event| match event {
            Event::Switch { at_ns, processor, from, from_name, to, .. } => {
                take(Handover { at_ns, processor, from, from_name, to: Some(to) });
            }
            Event::Lost { at_ns, processor } => {
                take(Handover { at_ns, processor, from: 0, from_name: [0; 16], to: None });
            }
            Event::Wake { .. } => {}
        });
    }

    /// What people call a thread; `called` is its name if the source has it.
    pub fn name(&mut self, thread: u32, called: [u8; 16]) -> String {
        match self.names.who(thread, (called[0] != 0).then_some(called)) {
            Who::Kernel(name) => format!("kernel thread {name}"),
            Who::Process(name) | Who::Vcpu(_, name) | Who::Helper(_, name) => name.to_string(),
        }
    }
}
