//! Keys of a Linux host's network stack.

use crate::file::key::{ANY_TIME, KeyInfo, Kind, OptionTables, SOME_TIME, TableInfo, key, required};
use crate::file::limits::{PERIOD_MIN, STACK_COUNT_MAX};
use crate::file::quantity::WHOLE;

/// Spellings of [`punctual_host_stack::Method`].
pub(crate) const METHODS: [&str; 6] =
    ["vanilla", "threaded", "exclusive", "partitioned", "threaded-napi", "threaded-napi-unlocked"];
/// Spellings of [`punctual_host_stack::Path`].
pub(crate) const PATHS: [&str; 5] = ["virtio", "outsourcing", "rt-outsourcing", "container", "process"];
/// Spellings of [`punctual_host_stack::Load`].
pub(crate) const LOADS: [&str; 2] = ["requests", "stream"];

/// Spellings of [`punctual_host_stack::Injection`].
pub(crate) const INJECTIONS: [&str; 2] = ["direct", "kworker"];
/// Spellings of [`punctual_host_stack::CallKind`].
pub(crate) const CALLS: [&str; 1] = ["sip"];

/// Spellings of [`punctual_host_stack::SoftirqRest`].
pub(crate) const RESTS: [&str; 2] = ["ksoftirqd", "thread"];

const PRIORITY: Kind = Kind::Count { min: 0, max: 99 };
const BYTES: Kind = Kind::Count { min: 1, max: 1_448 };
const SLOTS: Kind = Kind::Count { min: 64, max: 65_536 };
const STEP_MIN: Kind = Kind::Duration { min: punctual_sched::Duration::from_ns(100) };

pub(crate) static HOST_STACK: TableInfo = TableInfo {
    title: "[host_stack]",
    keys: &[
        key(
            "method",
            Kind::Word(&METHODS),
            Some("threaded"),
            "How interrupts of network cards are handled; [host-stack.md](host-stack.md) has the rules.",
        ),
        key(
            "rtnet_prio",
            PRIORITY,
            Some("47"),
            "`partitioned`: IRQ threads of this priority and greater ones use the urgent poll list.",
        ),
        key(
            "exclusive",
            Kind::Numbers,
            Some("the last one"),
            "`exclusive`: processors that only cards and threads with a priority use.",
        ),
        key(
            "softirq_rest",
            Kind::Word(&RESTS),
            Some("ksoftirqd"),
            "What does the rest when an action in a thread leaves something on its list: `thread` before \
             2016.",
        ),
        key(
            "injection",
            Kind::Word(&INJECTIONS),
            Some("direct"),
            "What injects a virtual interrupt into a VM: `direct` for MSI, `kworker` for others (KVM's \
             irqfd).",
        ),
        key("jiffy", SOME_TIME, Some("4ms"), "Time between two timer ticks."),
        key("costs", Kind::Table(&COSTS), None, "Processor time of each step."),
        key("cache", Kind::Table(&CACHE), None, "The last-level cache; without it, copies evict nothing."),
        required("card", Kind::Named(&CARD), "A network card."),
        required("server", Kind::Named(&SERVER), "A server, in a VM or not, with its client."),
    ],
    shared: &[],
    options: OptionTables::None,
};

const fn cost(name: &'static str, default: &'static str, help: &'static str) -> KeyInfo {
    key(name, ANY_TIME, Some(default), help)
}

/// Costs. Defaults: an i7-6700K at 4 GHz; `papers/rt-stack/calibration.toml` has the derivation.
pub(crate) static COSTS: TableInfo = TableInfo {
    title: "[host_stack.costs]",
    keys: &[
        cost("card", "1us", "In the card, each way; no processor time."),
        key("hard_irq", STEP_MIN, Some("1580ns"), "A hard IRQ."),
        cost("switch", "1us", "A switch to another thread."),
        cost("irq_thread", "1520ns", "An IRQ thread before its softirq."),
        cost("irq_thread_end", "2500ns", "An IRQ thread after its softirq, before it sleeps."),
        key("softirq", STEP_MIN, Some("300ns"), "A softirq action, once."),
        key("frame", STEP_MIN, Some("300ns"), "The driver, for a frame."),
        cost("bridge", "1200ns", "Bridge and queue of a VM's interface, for a packet."),
        cost(
            "protocol",
            "1800ns",
            "Protocols of a received packet up to its socket, in the host or a guest.",
        ),
        key("receive", STEP_MIN, Some("500ns"), "A process takes a packet from its socket."),
        cost("send", "800ns", "A process sends a packet: system call and protocols."),
        cost("transmit", "700ns", "The driver sends a packet."),
        cost("copy_per_kib", "100ns", "Each copy of 1024 bytes."),
        key("vnic_receive", STEP_MIN, Some("800ns"), "The vNIC thread gives a packet to its VM."),
        cost(
            "virtio_buffer",
            "140ns",
            "Each 4 KiB of a packet to a VM beyond the first: to the vNIC thread, and to the guest.",
        ),
        key("vnic_send", STEP_MIN, Some("500ns"), "The vNIC thread takes a packet from its VM."),
        cost("vnic_wake", "2860ns", "The vNIC thread after it slept, before its first packet."),
        cost("vnic_end", "4200ns", "The vNIC thread before it sleeps."),
        cost("vcpu_wake", "1900ns", "A vCPU thread that slept, before it enters the VM."),
        cost("vm_entry", "1us", "Entering a VM."),
        cost("vm_exit", "1us", "Leaving a VM."),
        cost("guest_interrupt", "1us", "A guest's interrupt handler."),
        cost("guest_switch", "1us", "A guest's switch to another process."),
        cost("socket_call", "950ns", "A socket call from a VM to the host, beside exit and entry."),
        key(
            "preempt_rt",
            Kind::Percent { max: WHOLE },
            Some("8%"),
            "How much longer drivers, protocols and vNIC threads take with IRQ threads (PREEMPT_RT).",
        ),
        key(
            "jitter",
            Kind::Percent { max: WHOLE },
            None,
            "Every cost varies uniformly by at most this share in both directions, drawn from the host's \
             seed.",
        ),
        key(
            "late_share",
            Kind::Percent { max: WHOLE },
            None,
            "Share of a vCPU's wake-ups that are late by `late`: its timers and housekeeping.",
        ),
        cost("late", "0ns", "Delay of a late wake-up."),
    ],
    shared: &[],
    options: OptionTables::None,
};

/// A cache.
pub(crate) static CACHE: TableInfo = TableInfo {
    title: "[host_stack.cache]",
    keys: &[
        key("size_kib", Kind::Count { min: 1, max: 1 << 24 }, Some("8192"), "Size of the cache in KiB."),
        cost("miss", "51ns", "Reading a line from memory."),
        key("lines", Kind::Table(&LINES), None, "What each step uses."),
    ],
    shared: &[],
    options: OptionTables::None,
};

const LINES_KIND: Kind = Kind::Count { min: 0, max: 100_000 };

const fn lines(name: &'static str, default: &'static str, help: &'static str) -> KeyInfo {
    key(name, LINES_KIND, Some(default), help)
}

/// Reads from memory of evicted steps. Defaults: the code that Linux executes;
/// `papers/rt-stack/calibration.toml` has the derivation.
pub(crate) static LINES: TableInfo = TableInfo {
    title: "[host_stack.cache.lines]",
    keys: &[
        lines("guest_interrupt", "44", "Reads from memory of an evicted guest's interrupt handler."),
        lines("guest_protocol", "341", "... of its softirq and protocols."),
        lines("guest_switch", "95", "... of its idle process and its switch to the server."),
        lines("guest_receive", "91", "... when its process takes a packet."),
        lines("guest_send", "285", "... when its process sends a packet."),
        lines("guest_calls", "75", "... of its socket calls to the host, with waking its process."),
        lines("host_protocol", "82", "... of protocols of a request up to a socket of the host."),
        lines("host_receive", "29", "... when a request is taken from a socket of the host."),
        lines("host_send", "77", "... when an answer is sent from a socket of the host."),
    ],
    shared: &[],
    options: OptionTables::None,
};

static CARD: TableInfo = TableInfo {
    title: "[host_stack.card.NAME]",
    keys: &[
        key("device", Kind::Text, Some("the card's name"), "The network device of `punctual host-stack`."),
        key(
            "priority",
            PRIORITY,
            Some("0"),
            "SCHED_FIFO priority of its IRQ and NAPI threads; 0: fair class.",
        ),
        key(
            "processors",
            Kind::Numbers,
            Some("all"),
            "Processors that it interrupts, with a queue for each. Servers take the queues in turn.",
        ),
        key("bandwidth", Kind::Bandwidth, Some("10Gbit/s"), "Bandwidth of the link in each direction."),
        key("coalesce", ANY_TIME, Some("0ns"), "Least time between two interrupts of a queue."),
        key("ring_slots", SLOTS, Some("512"), "Frames that a queue holds; when it is full, the link pauses."),
        key(
            "atr_sample",
            Kind::Count { min: 0, max: 65_535 },
            Some("0"),
            "N: each N-th packet that a processor sends moves its stream to that processor's queue; 0: none.",
        ),
    ],
    shared: &[],
    options: OptionTables::None,
};

static SERVER: TableInfo = TableInfo {
    title: "[host_stack.server.NAME]",
    keys: &[
        key("card", Kind::NameOf("card"), Some("the only card"), "The card that its client is behind."),
        key("path", Kind::Word(&PATHS), Some("virtio"), "How packets come to the server."),
        key(
            "priority",
            PRIORITY,
            Some("0"),
            "SCHED_FIFO priority of its vCPU thread or process; 0: fair class.",
        ),
        key("vnic_priority", PRIORITY, Some("0"), "`virtio`: priority of its vNIC thread; 0: fair class."),
        key(
            "count",
            Kind::Count { min: 1, max: STACK_COUNT_MAX },
            Some("1"),
            "Number of such servers, each with its own client and threads. Results are of all together.",
        ),
        key("start", ANY_TIME, Some("0ns"), "Start of its client."),
        required(
            "load",
            Kind::Word(&LOADS),
            "What its client sends: `requests`, or a TCP `stream` at full speed.",
        ),
        key(
            "gap_min",
            Kind::Duration { min: PERIOD_MIN },
            Some("1ms"),
            "`requests`: time between two requests, uniformly distributed from this ...",
        ),
        key("gap_max", Kind::Duration { min: PERIOD_MIN }, Some("10ms"), "`requests`: ... to this."),
        key("bytes", BYTES, Some("64"), "`requests`: length of a request."),
        key("reply_bytes", BYTES, Some("64"), "`requests`: length of an answer."),
        key("service", ANY_TIME, Some("500ns"), "`requests`: processor time of the process for each."),
        key(
            "lines",
            LINES_KIND,
            Some("0"),
            "`requests`: reads from memory of the process, when everything is evicted.",
        ),
        key(
            "call",
            Kind::Word(&CALLS),
            None,
            "`requests` come as calls with the time above between them: `sip` is six messages, single and \
             in pairs.",
        ),
        key("turnaround", ANY_TIME, Some("50us"), "`call`: time that the clients take between two messages."),
        key(
            "other_share",
            Kind::Percent { max: WHOLE },
            None,
            "Share of `requests` of another kind: served in turn, but not in the response times.",
        ),
        key("other_bytes", BYTES, Some("64"), "`other_share`: length of such a request."),
        key("other_reply_bytes", BYTES, Some("64"), "`other_share`: length of its answer."),
        key("window", SLOTS, Some("2048"), "`stream`: most packets in flight or unread."),
    ],
    shared: &[],
    options: OptionTables::None,
};

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_host_stack::Method;
    use punctual_host_stack::{CallKind, Injection, Path, SoftirqRest};

    #[test]
    fn spellings_are_the_names() {
        assert_eq!(METHODS, Method::ALL.map(Method::name));
        assert_eq!(INJECTIONS, Injection::ALL.map(Injection::name));
        assert_eq!(CALLS, CallKind::ALL.map(CallKind::name));
        assert_eq!(RESTS, SoftirqRest::ALL.map(SoftirqRest::name));
        assert_eq!(PATHS, Path::ALL.map(Path::name));
    }
}
