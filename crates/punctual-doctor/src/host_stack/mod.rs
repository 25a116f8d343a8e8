//! What of a `[host_stack]` Linux can do to the network cards of this machine: which files are written and
//! which threads get which class, before anything is changed. `docs/host-stack.md` says what each method is.
//!
//! Rules: Linux `Documentation/networking/napi.rst` (threaded NAPI), `Documentation/networking/scaling.rst`
//! (RPS, XPS) and `Documentation/core-api/irq/irq-affinity.rst`.

mod error;
mod interrupts;
#[cfg(test)]
mod tests;

use std::io;

use punctual_host_stack::{Card, HostStack, Method};
use punctual_model::file::nearest;

use serde::Serialize;

use crate::doctor::{Cpus, ReadError, Root};
pub use error::Error;
use interrupts::Interrupt;
use punctual_linux::os::net::{DEVICES, RTNET_PRIO};
use punctual_linux::os::proc;
use punctual_linux::os::sched::Attributes;

/// A file and what is written to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Write {
    /// The file.
    pub path: String,
    /// Its new content.
    pub value: String,
}

/// What is done for a card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CardPlan {
    /// Its name in the host file.
    pub card: String,
    /// The network device.
    pub device: String,
    /// What is written, in this order.
    pub writes: Vec<Write>,
    /// Its interrupts, whose threads are the card's.
    pub irqs: Vec<u32>,
    /// Is it polled by threads (threaded NAPI)?
    pub polls_in_threads: bool,
    /// The processors to which the threads that poll it are bound; empty: they may run on all.
    pub poll_processors: Vec<usize>,
    /// Its threads' class and priority; `None`: they stay as they are.
    #[serde(skip)]
    pub attributes: Option<Attributes>,
}

/// Says what is done for each card of a host on the machine below `root`.
///
/// # Errors
/// The machine has not what the host file names, or its kernel cannot do the method.
pub fn plan(stack: &HostStack, root: &Root) -> Result<Vec<CardPlan>, Error> {
    let devices = root.names(DEVICES)?;
    let machine = Machine { stack, root, devices, online: online(root)? };
    let partition = machine.partition()?;
    let mut plans = stack.cards.iter().map(|card| machine.card(card)).collect::<Result<Vec<_>, _>>()?;
    // One switch for the whole machine, which the first card's plan shows.
    if let Some(first) = plans.first_mut() {
        first.writes.extend(partition);
    }
    Ok(plans)
}

fn online(root: &Root) -> Result<Cpus, ReadError> {
    let path = "/sys/devices/system/cpu/online";
    root.parse(path, "a list of processors", |text| Cpus::parse_list(text, 0))
}

/// The machine, and what it is to do.
struct Machine<'a> {
    stack: &'a HostStack,
    root: &'a Root,
    devices: Vec<String>,
    online: Cpus,
}

impl Machine<'_> {
    /// The switch of the second softirq lock.
    fn partition(&self) -> Result<Option<Write>, Error> {
        let is_partitioned = self.stack.method == Method::Partitioned;
        let wanted = if is_partitioned { self.stack.rtnet_prio.0 } else { 0 }.to_string();
        match self.root.text(RTNET_PRIO) {
            Ok(now) if now == wanted => Ok(None),
            Ok(_) => Ok(Some(Write { path: RTNET_PRIO.into(), value: wanted })),
            Err(error) if error.is_absent() && !is_partitioned => Ok(None),
            Err(error) if error.is_absent() => Err(Error::NoPartition { path: RTNET_PRIO }),
            Err(error) => Err(error.into()),
        }
    }

    fn card(&self, card: &Card) -> Result<CardPlan, Error> {
        let device = card.device.as_str();
        if !self.devices.iter().any(|known| known == device) {
            let known = self.devices.iter().map(String::as_str);
            return Err(Error::NoDevice {
                card: card.name.clone(),
                device: device.into(),
                nearest: nearest(device, known),
                devices: self.devices.clone(),
            });
        }
        let processors = self.stack.processors_for(card.priority, &card.processors);
        if let Some(processor) = processors.iter().find(|cpu| !self.online.contains(**cpu)) {
            return Err(Error::NoProcessor {
                card: card.name.clone(),
                processor: *processor,
                online: self.online.clone(),
            });
        }
        let irqs = interrupts::of_device(self.root, device)?;
        self.check_threads(card, &irqs)?;
        let mut writes = self.affinities(card, &irqs, &processors)?;
        writes.extend(self.packet_steering(device)?);
        if !irqs.is_empty() {
            writes.extend(self.transmit_steering(device, &processors)?);
        }
        writes.extend(self.threaded(card)?);
        let priority = u32::from(card.priority.0);
        let attributes = if priority > 0 { Attributes::fifo(priority) } else { Attributes::other() };
        Ok(CardPlan {
            card: card.name.clone(),
            device: device.into(),
            writes,
            irqs: irqs.iter().map(|irq| irq.number).collect(),
            polls_in_threads: self.polls_in_threads(),
            poll_processors: self.poll_processors(&processors),
            attributes: self.stack.method.has_irq_threads().then_some(attributes),
        })
    }

    fn polls_in_threads(&self) -> bool {
        matches!(self.stack.method, Method::ThreadedNapi | Method::ThreadedNapiUnlocked)
    }

    /// The kernel binds threads that poll to no processor: an urgent one would go wherever a less urgent
    /// thread runs, also to a processor that sleeps and has to be woken.
    fn poll_processors(&self, processors: &[usize]) -> Vec<usize> {
        let is_all = self.online.iter().all(|cpu| processors.contains(&cpu));
        if self.polls_in_threads() && !is_all { processors.to_vec() } else { Vec::new() }
    }

    /// Does the kernel handle the card's interrupts in threads exactly if the method wants that? Threaded
    /// NAPI works without.
    fn check_threads(&self, card: &Card, irqs: &[Interrupt]) -> Result<(), Error> {
        let (device, method) = (card.device.clone(), self.stack.method.name());
        let mut with_thread = irqs.iter().filter(|irq| irq.has_thread).count();
        if self.root.text("/sys/kernel/realtime").is_ok_and(|text| text == "1") {
            with_thread = irqs.len();
        }
        match self.stack.method {
            Method::Vanilla if with_thread > 0 => Err(Error::HasThreads { device, method }),
            Method::Threaded | Method::Exclusive | Method::Partitioned
                if with_thread == 0 && !irqs.is_empty() =>
            {
                Err(Error::NoThreads { device, method })
            }
            _ => Ok(()),
        }
    }

    /// Queue by queue, the processors that the card interrupts in turn.
    fn affinities(&self, card: &Card, irqs: &[Interrupt], processors: &[usize]) -> Result<Vec<Write>, Error> {
        if irqs.is_empty() {
            return Ok(Vec::new());
        }
        let queues = self.queues(&card.device, "rx-")?.len();
        if queues < processors.len() {
            return Err(Error::NoQueue {
                card: card.name.clone(),
                device: card.device.clone(),
                queues,
                processors: processors.iter().copied().collect(),
                enough: processors.iter().copied().take(queues.max(1)).collect(),
            });
        }
        let write = |irq: &Interrupt| Write {
            path: format!("/proc/irq/{}/smp_affinity_list", irq.number),
            value: processors[irq.queue % processors.len()].to_string(),
        };
        Ok(irqs.iter().map(write).collect())
    }

    fn queues(&self, device: &str, kind: &str) -> Result<Vec<String>, ReadError> {
        let all = self.root.names(&format!("{DEVICES}/{device}/queues"))?;
        let mut queues: Vec<String> = all.into_iter().filter(|name| name.starts_with(kind)).collect();
        // rx-10 comes after rx-9.
        queues.sort_by_key(|name| name.rsplit('-').next().and_then(|number| number.parse::<u32>().ok()));
        Ok(queues)
    }

    /// No processor passes packets on to another one (RPS): on that, all cards would share one backlog.
    fn packet_steering(&self, device: &str) -> Result<Vec<Write>, Error> {
        self.masks(device, "rx-", "rps_cpus", |_, _| Cpus::default())
    }

    /// Each of the card's processors sends through the queue that interrupts it (XPS).
    fn transmit_steering(&self, device: &str, processors: &[usize]) -> Result<Vec<Write>, Error> {
        self.masks(device, "tx-", "xps_cpus", |index, queues| match queues {
            0 | 1 => Cpus::default(),
            _ => processors.iter().copied().skip(index).step_by(queues).collect(),
        })
    }

    /// Writes the mask of each queue of a kind, as far as it is another one now. `mask` takes the queue's
    /// index and how many there are.
    fn masks(
        &self,
        device: &str,
        kind: &str,
        file: &str,
        mask: impl Fn(usize, usize) -> Cpus,
    ) -> Result<Vec<Write>, Error> {
        let queues = self.queues(device, kind)?;
        let mut writes = Vec::new();
        for (index, queue) in queues.iter().enumerate() {
            let path = format!("{DEVICES}/{device}/queues/{queue}/{file}");
            // A kernel without steering has no such file; a device with one queue refuses to tell.
            let Ok(text) = self.root.text(&path) else { continue };
            let now = Cpus::parse_mask(&text)
                .ok_or_else(|| ReadError::unexpected(&path, &text, "a mask of processors"))?;
            let wanted = mask(index, queues.len());
            if now != wanted {
                writes.push(Write { path, value: wanted.mask() });
            }
        }
        Ok(writes)
    }

    /// The switch of threaded NAPI.
    fn threaded(&self, card: &Card) -> Result<Option<Write>, Error> {
        let path = format!("{DEVICES}/{}/threaded", card.device);
        let wanted = if self.polls_in_threads() { "1" } else { "0" };
        match self.root.text(&path) {
            Ok(now) if now == wanted => Ok(None),
            Ok(_) => Ok(Some(Write { path, value: wanted.into() })),
            // Before Linux 5.12 nothing is polled in threads.
            Err(error) if error.is_absent() && !self.polls_in_threads() => Ok(None),
            Err(error) if error.is_absent() => Err(Error::NoThreadedNapi { path }),
            Err(error) => Err(error.into()),
        }
    }
}

/// The kernel's threads of a card of this machine, with their names: those of its interrupts and, where it is
/// polled in threads, those.
///
/// # Errors
/// `/proc` cannot be read.
pub fn kernel_threads_of(card: &CardPlan) -> io::Result<Vec<(i32, String)>> {
    let mut threads = Vec::new();
    for prefix in ["irq/", "napi/"] {
        for tid in proc::kernel_threads(prefix)? {
            if let Ok(name) = proc::name(tid)
                && is_thread_of(&name, card)
            {
                threads.push((tid, name));
            }
        }
    }
    Ok(threads)
}

/// Is this the name of a card's thread? `irq/N-...` belongs to an interrupt (Linux `setup_irq_thread`),
/// `napi/DEVICE-N` to a device (`napi_kthread_create`).
fn is_thread_of(name: &str, card: &CardPlan) -> bool {
    if let Some(irq) = name.strip_prefix("irq/") {
        let number = irq.split_once('-').and_then(|(number, _)| number.parse().ok());
        return number.is_some_and(|number| card.irqs.contains(&number));
    }
    let id = name.strip_prefix("napi/").and_then(|name| name.strip_prefix(card.device.as_str()));
    let id = id.and_then(|id| id.strip_prefix('-')).filter(|_| card.polls_in_threads);
    id.is_some_and(|id| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit()))
}
