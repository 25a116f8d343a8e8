//! A Linux/KVM host as its network stack sees it: cards, and servers behind them.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use punctual_sched::Duration;

use crate::costs::{Cache, StackCosts};
use crate::method::Method;
use crate::thread::Priority;

/// A host whose own Linux schedules all processors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostStack {
    /// Name for titles and results.
    pub name: String,
    /// Seed of everything random.
    pub seed: u64,
    /// How long to simulate.
    pub duration: Duration,
    /// Number of processors; they are numbered from 0.
    pub processors: usize,
    /// How interrupts of cards are handled.
    pub method: Method,
    /// Under [`Method::Partitioned`]: IRQ threads of this priority and greater ones are urgent.
    pub rtnet_prio: Priority,
    /// Under [`Method::Exclusive`]: processors that only cards and threads with a priority use, ascending.
    pub exclusive: Vec<usize>,
    /// What does the rest when an action in a thread leaves something on its list.
    pub softirq_rest: SoftirqRest,
    /// What injects virtual interrupts into VMs.
    pub injection: Injection,
    /// Time between two timer ticks.
    pub jiffy: Duration,
    /// Costs of the steps.
    pub costs: StackCosts,
    /// The last-level cache; `None`: copies evict nothing.
    pub cache: Option<Cache>,
    /// Network cards.
    pub cards: Vec<Card>,
    /// What runs on the host.
    pub servers: Vec<Server>,
}

impl HostStack {
    /// Servers with their counts: the name of each, with a number where there are several.
    pub fn instances(&self) -> impl Iterator<Item = String> {
        self.servers.iter().flat_map(|server| {
            (0..server.count).map(move |number| match server.count {
                1 => server.name.clone(),
                _ => format!("{}#{}", server.name, number + 1),
            })
        })
    }

    /// The processors that something of this priority may use, out of `own`, which are those that it asks
    /// for: under [`Method::Exclusive`], urgent work uses the exclusive processors and all other work the
    /// rest. Where `own` has none of these, all of them.
    pub fn processors_for(&self, priority: Priority, own: &[usize]) -> Vec<usize> {
        debug_assert!(own.iter().all(|&cpu| cpu < self.processors), "{own:?} of {}", self.processors);
        if self.method != Method::Exclusive {
            return own.to_vec();
        }
        let fits = |cpu: &usize| self.exclusive.contains(cpu) != priority.is_fair();
        let fitting: Vec<usize> = own.iter().copied().filter(fits).collect();
        if fitting.is_empty() { (0..self.processors).filter(fits).collect() } else { fitting }
    }

    fn instance_name(&self, instance: usize) -> String {
        self.instances().nth(instance).unwrap_or_default()
    }

    /// Costs of the host's own steps: with IRQ threads, that is under PREEMPT_RT, its drivers, protocols and
    /// vNIC threads take longer.
    pub fn host_costs(&self) -> StackCosts {
        if self.method.has_irq_threads() { self.costs.under_preempt_rt() } else { self.costs }
    }
}

/// What follows an action of a thread under the softirq lock, when its list is not empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SoftirqRest {
    /// ksoftirqd does the rest: PREEMPT_RT since January 2016 (`__raise_softirq_irqoff_ksoft`).
    Ksoftirqd,
    /// The same thread continues until the list is empty: PREEMPT_RT until then, such as 4.1
    /// (`do_current_softirqs`).
    Thread,
}

impl SoftirqRest {
    /// Both, in the order in which users see them.
    pub const ALL: [SoftirqRest; 2] = [SoftirqRest::Ksoftirqd, SoftirqRest::Thread];

    /// Its name in host files.
    pub const fn name(self) -> &'static str {
        match self {
            SoftirqRest::Ksoftirqd => "ksoftirqd",
            SoftirqRest::Thread => "thread",
        }
    }
}

/// What injects a virtual interrupt into a VM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Injection {
    /// The context that signals it: KVM's way for message-signalled interrupts (`irqfd_wakeup`).
    Direct,
    /// A kworker of the fair class on the same processor: KVM's way for all others (`irqfd_inject`).
    Kworker,
}

impl Injection {
    /// Both, in the order in which users see them.
    pub const ALL: [Injection; 2] = [Injection::Direct, Injection::Kworker];

    /// Its name in host files.
    pub const fn name(self) -> &'static str {
        match self {
            Injection::Direct => "direct",
            Injection::Kworker => "kworker",
        }
    }
}

/// A network card with its link, the same in both directions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// Name.
    pub name: String,
    /// The network device of `punctual host-stack`.
    pub device: String,
    /// Priority of its IRQ threads and NAPI threads.
    pub priority: Priority,
    /// Processors that it interrupts, with a queue for each, ascending.
    pub processors: Vec<usize>,
    /// Bits per second.
    pub bandwidth_bps: u64,
    /// Least time between two interrupts of a queue.
    pub coalesce: Duration,
    /// Frames that a queue holds.
    pub ring_slots: u32,
    /// N: each N-th packet that a processor sends through the card moves its stream to that processor's queue
    /// (Intel's Application Targeted Routing); 0: streams stay where they are.
    pub atr_sample: u32,
}

/// How packets come to a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Path {
    /// A VM with a paravirtual card and a vNIC thread in the host (vhost).
    Virtio,
    /// A VM whose socket calls go to the host, which announces packets by virtual interrupts (s.5.1).
    Outsourcing,
    /// The same, announced by an event queue that the guest's idle process reads (s.5.2).
    RtOutsourcing,
    /// A process in a container: the host's network stack.
    Container,
    /// A process of the host.
    Process,
}

impl Path {
    /// All, in the order in which users see them.
    pub const ALL: [Path; 5] =
        [Path::Virtio, Path::Outsourcing, Path::RtOutsourcing, Path::Container, Path::Process];

    /// Its name in host files.
    pub const fn name(self) -> &'static str {
        match self {
            Path::Virtio => "virtio",
            Path::Outsourcing => "outsourcing",
            Path::RtOutsourcing => "rt-outsourcing",
            Path::Container => "container",
            Path::Process => "process",
        }
    }

    /// Is the server in a VM?
    pub const fn is_vm(self) -> bool {
        !matches!(self, Path::Container | Path::Process)
    }

    /// Does the VM learn of packets by virtual interrupts?
    pub(crate) const fn is_interrupted(self) -> bool {
        matches!(self, Path::Virtio | Path::Outsourcing)
    }
}

/// A server with its client, which is beyond the card and never short of processor time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Name.
    pub name: String,
    /// Index into [`HostStack::cards`].
    pub card: usize,
    /// How packets come to it.
    pub path: Path,
    /// Priority of its vCPU thread, or of its process.
    pub priority: Priority,
    /// Priority of its vNIC thread.
    pub vnic_priority: Priority,
    /// Number of such servers, each with its own client and threads.
    pub count: u32,
    /// Start of its client.
    pub start: Duration,
    /// What its client sends.
    pub load: Load,
}

/// The requests of a call, in groups. A group is sent `turnaround` after all requests of the previous group
/// are answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// Which requests.
    pub kind: CallKind,
    /// From an answer on the wire until the next group is on the wire.
    pub turnaround: Duration,
}

/// What a call consists of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallKind {
    /// A SIP call between SIPp's standard clients: INVITE; RINGING and OK; ACK and BYE; OK.
    Sip,
}

impl CallKind {
    /// All, in the order in which users see them.
    pub const ALL: [CallKind; 1] = [CallKind::Sip];

    /// Its name in host files.
    pub const fn name(self) -> &'static str {
        match self {
            CallKind::Sip => "sip",
        }
    }

    /// How many requests each group has.
    pub const fn groups(self) -> &'static [u32] {
        match self {
            CallKind::Sip => &[1, 2, 2, 1],
        }
    }
}

/// Requests of another kind: the server serves them like all others, but its response times leave them out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OtherRequests {
    /// Such requests in a million.
    pub ppm: u32,
    /// Length of such a request in bytes.
    pub bytes: u32,
    /// Length of its answer in bytes.
    pub reply_bytes: u32,
}

/// What the client of a server sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load {
    /// Requests, each answered.
    Requests {
        /// Time between two requests: uniformly distributed from `gap_min` to `gap_max`.
        gap_min: Duration,
        /// See `gap_min`.
        gap_max: Duration,
        /// Length of a request in bytes.
        bytes: u32,
        /// Length of an answer in bytes.
        reply_bytes: u32,
        /// Processor time of the process for each.
        service: Duration,
        /// Reads from memory of the process when everything that it uses is evicted.
        lines: u32,
        /// Requests come as calls, `gap_min` to `gap_max` apart; `None`: one by one.
        call: Option<Call>,
        /// Some requests are of another kind.
        other: Option<OtherRequests>,
    },
    /// A TCP stream as fast as the link and the receiver allow.
    Stream {
        /// Most packets in flight or unread: the receiver's window.
        window: u32,
    },
}

/// A thread of the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Who {
    /// IRQ thread of a queue: card and processor.
    Irq(usize, usize),
    /// NAPI thread of a queue: card and processor.
    Napi(usize, usize),
    /// ksoftirqd of a processor.
    Ksoftirqd(usize),
    /// kworker of a processor.
    Kworker(usize),
    /// vNIC thread of a server.
    Vnic(usize),
    /// vCPU thread of a server.
    Vcpu(usize),
    /// A server's process.
    Process(usize),
}

impl Who {
    /// Its name on `stack`.
    pub fn name(self, stack: &HostStack) -> String {
        let card = |card: usize| stack.cards.get(card).map_or("card", |card| card.name.as_str());
        match self {
            Who::Irq(of, cpu) => format!("irq {} on cpu {cpu}", card(of)),
            Who::Napi(of, cpu) => format!("napi {} of cpu {cpu}", card(of)),
            Who::Ksoftirqd(cpu) => format!("ksoftirqd/{cpu}"),
            Who::Kworker(cpu) => format!("kworker/{cpu}"),
            Who::Vnic(instance) => format!("vhost {}", stack.instance_name(instance)),
            Who::Vcpu(instance) => format!("vcpu {}", stack.instance_name(instance)),
            Who::Process(instance) => format!("process {}", stack.instance_name(instance)),
        }
    }
}
