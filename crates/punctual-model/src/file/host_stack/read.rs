//! Reads `[host_stack]`.

use punctual_host_stack::{
    Cache, Call, CallKind, Card, HostStack, Injection, Lines, Load, Method, OtherRequests, Path, Priority,
    Server, SoftirqRest, StackCosts,
};
use punctual_sched::Duration;

use super::HOST_STACK;
use super::keys::{CACHE, COSTS, LINES};
use crate::file::entry::{expected_names, shorten};
use crate::file::error::Errors;
use crate::file::limits::{STACK_COUNT_MAX, STACK_SERVERS_MAX};
use crate::file::nearest::nearest;
use crate::file::quantity::{self, WHOLE};
use crate::file::section::Section;
use crate::file::tree::Table;

/// Keys of hosts with pools: with `[host_stack]`, host Linux schedules all processors.
const OTHERS: [&str; 7] = ["pool", "slot", "domain", "network", "flow", "chain", "event"];

/// What stands outside `[host_stack]`.
pub(crate) struct StackHead {
    pub(crate) name: String,
    pub(crate) seed: u64,
    pub(crate) duration: Duration,
    pub(crate) processors: usize,
}

/// Reads `[host_stack]`.
pub(crate) fn read(root: Section<'_>, head: StackHead, errors: &mut Errors) -> Option<HostStack> {
    let section = root.table(HOST_STACK, errors)?;
    let processors = head.processors;
    for key in OTHERS {
        if let Some(entry) = root.get(key) {
            let message = format!("`{key}` and `host_stack` exclude each other");
            errors.add(
                entry.key_place,
                message,
                "expected one of them: with `host_stack`, host Linux schedules all processors",
            );
        }
    }
    let method = section.word("method", errors).unwrap_or(section.default("method"));
    let method = Method::ALL.into_iter().find(|m| m.name() == method)?;
    let rest = section.word("softirq_rest", errors).unwrap_or(section.default("softirq_rest"));
    let injection = section.word("injection", errors).unwrap_or(section.default("injection"));
    let exclusive = section.get("exclusive").and_then(|e| e.indices(processors, "processors", errors));
    let mut exclusive: Vec<usize> =
        exclusive.map_or(vec![processors - 1], |list| list.into_iter().map(|(n, _)| n).collect());
    exclusive.sort_unstable();
    if method == Method::Exclusive && exclusive.len() == processors {
        let message = "no processor is left for cards and threads without a priority";
        errors.add(section.place_of("exclusive"), message, "expected a processor outside `exclusive`");
    }
    let cards: Vec<Card> =
        section.named("card", errors).into_iter().map(|card| read_card(card, processors, errors)).collect();
    let sections = section.named("server", errors);
    let servers: Vec<Server> = sections.iter().filter_map(|one| server(*one, &cards, errors)).collect();
    limits(section, &servers, errors);
    Some(HostStack {
        name: head.name,
        seed: head.seed,
        duration: head.duration,
        processors,
        method,
        rtnet_prio: Priority(section.count_or_default("rtnet_prio", errors) as u8),
        exclusive,
        softirq_rest: SoftirqRest::ALL.into_iter().find(|one| one.name() == rest)?,
        injection: Injection::ALL.into_iter().find(|one| one.name() == injection)?,
        jiffy: section.duration_or_default("jiffy", errors),
        costs: costs(section, errors),
        cache: section.table("cache", errors).map(|cache| read_cache(cache, errors)),
        cards,
        servers,
    })
}

fn limits(section: Section<'_>, servers: &[Server], errors: &mut Errors) {
    let count: u64 = servers.iter().map(|server| u64::from(server.count)).sum();
    for (key, empty) in
        [("card", section.named("card", &mut Errors::default()).is_empty()), ("server", count == 0)]
    {
        if let (Some(entry), true) = (section.get(key), empty && errors.count() == 0) {
            let expected = format!("expected at least one [host_stack.{key}.NAME]");
            errors.add(entry.key_place, format!("there is no {key}"), expected);
        }
    }
    if servers.len() > STACK_SERVERS_MAX || count > STACK_COUNT_MAX {
        let expected =
            format!("expected at most {STACK_SERVERS_MAX}, and {STACK_COUNT_MAX} with their counts");
        errors.add(section.place_of("server"), "there are too many servers", expected);
    }
}

fn priority(section: Section<'_>, key: &'static str, errors: &mut Errors) -> Priority {
    Priority(section.count_or_default(key, errors) as u8)
}

fn ppm(share: u64) -> u32 {
    (share / (WHOLE / 1_000_000)) as u32
}

fn costs(section: Section<'_>, errors: &mut Errors) -> StackCosts {
    let empty = Table::default();
    let costs = section.table("costs", errors).unwrap_or(Section { table: &empty, info: &COSTS, ..section });
    let jitter_ppm = ppm(costs.percent("jitter", errors).unwrap_or(0));
    let preempt_rt_ppm = ppm(costs.percent("preempt_rt", errors).unwrap_or(WHOLE / 100 * 8)).max(1);
    let late_ppm = ppm(costs.percent("late_share", errors).unwrap_or(0));
    let mut cost = |key| costs.duration_or_default(key, errors);
    StackCosts {
        card: cost("card"),
        hard_irq: cost("hard_irq"),
        switch: cost("switch"),
        irq_thread: cost("irq_thread"),
        irq_thread_end: cost("irq_thread_end"),
        softirq: cost("softirq"),
        frame: cost("frame"),
        bridge: cost("bridge"),
        protocol: cost("protocol"),
        receive: cost("receive"),
        send: cost("send"),
        transmit: cost("transmit"),
        copy_per_kib: cost("copy_per_kib"),
        vnic_receive: cost("vnic_receive"),
        virtio_buffer: cost("virtio_buffer"),
        vnic_send: cost("vnic_send"),
        vnic_wake: cost("vnic_wake"),
        vnic_end: cost("vnic_end"),
        vcpu_wake: cost("vcpu_wake"),
        vm_entry: cost("vm_entry"),
        vm_exit: cost("vm_exit"),
        guest_interrupt: cost("guest_interrupt"),
        guest_switch: cost("guest_switch"),
        socket_call: cost("socket_call"),
        preempt_rt_ppm,
        jitter_ppm,
        late_ppm,
        late: cost("late"),
    }
}

fn read_cache(section: Section<'_>, errors: &mut Errors) -> Cache {
    debug_assert!(std::ptr::eq(section.info, &CACHE));
    let empty = Table::default();
    let lines = section.table("lines", errors).unwrap_or(Section { table: &empty, info: &LINES, ..section });
    let mut of = |key| lines.count_or_default(key, errors) as u32;
    let lines = Lines {
        guest_interrupt: of("guest_interrupt"),
        guest_protocol: of("guest_protocol"),
        guest_switch: of("guest_switch"),
        guest_receive: of("guest_receive"),
        guest_send: of("guest_send"),
        guest_calls: of("guest_calls"),
        host_protocol: of("host_protocol"),
        host_receive: of("host_receive"),
        host_send: of("host_send"),
    };
    Cache {
        size_kib: section.count_or_default("size_kib", errors) as u32,
        miss: section.duration_or_default("miss", errors),
        lines,
    }
}

fn read_card(section: Section<'_>, processors: usize, errors: &mut Errors) -> Card {
    let own = section.get("processors").and_then(|e| e.indices(processors, "processors", errors));
    let mut own: Vec<usize> =
        own.map_or((0..processors).collect(), |list| list.into_iter().map(|(n, _)| n).collect());
    own.sort_unstable();
    let default = || quantity::bandwidth(section.default("bandwidth")).expect("the default is a bandwidth");
    Card {
        name: section.name.into(),
        device: section.text("device", errors).unwrap_or(section.name).into(),
        priority: priority(section, "priority", errors),
        processors: own,
        bandwidth_bps: section.bandwidth("bandwidth", errors).unwrap_or_else(default),
        coalesce: section.duration_or_default("coalesce", errors),
        ring_slots: section.count_or_default("ring_slots", errors) as u32,
        atr_sample: section.count_or_default("atr_sample", errors) as u32,
    }
}

/// Keys that belong to one kind of load, with the load.
const KEYS_OF_LOADS: [(&str, &str); 12] = [
    ("gap_min", "requests"),
    ("gap_max", "requests"),
    ("bytes", "requests"),
    ("reply_bytes", "requests"),
    ("service", "requests"),
    ("lines", "requests"),
    ("call", "requests"),
    ("turnaround", "requests"),
    ("other_share", "requests"),
    ("other_bytes", "requests"),
    ("other_reply_bytes", "requests"),
    ("window", "stream"),
];

fn server(section: Section<'_>, cards: &[Card], errors: &mut Errors) -> Option<Server> {
    let card = card_of(section, cards, errors);
    let path = section.word("path", errors).unwrap_or(section.default("path"));
    let load = section.word("load", errors);
    for (key, of) in KEYS_OF_LOADS {
        if let (Some(entry), Some(load)) = (section.get(key), load.filter(|&load| load != of)) {
            let message = format!("a server with load \"{load}\" has no `{key}`");
            errors.add(entry.key_place, message, format!("`{key}` belongs to \"{of}\""));
        }
    }
    let load = match load? {
        "stream" => Load::Stream { window: section.count_or_default("window", errors) as u32 },
        _ => requests(section, errors),
    };
    Some(Server {
        name: section.name.into(),
        card: card?,
        path: Path::ALL.into_iter().find(|p| p.name() == path)?,
        priority: priority(section, "priority", errors),
        vnic_priority: priority(section, "vnic_priority", errors),
        count: section.count_or_default("count", errors) as u32,
        start: section.duration_or_default("start", errors),
        load,
    })
}

fn requests(section: Section<'_>, errors: &mut Errors) -> Load {
    let gap_min = section.duration_or_default("gap_min", errors);
    let gap_max = section.duration_or_default("gap_max", errors);
    if gap_min > gap_max {
        let place = ["gap_min", "gap_max"].iter().find_map(|key| section.get(key));
        let place = place.map_or(section.place, |entry| entry.node.place);
        errors.add(
            place,
            "`gap_min` is longer than `gap_max`",
            format!("expected `gap_min` at most {gap_max}"),
        );
    }
    Load::Requests {
        gap_min,
        gap_max,
        bytes: section.count_or_default("bytes", errors) as u32,
        reply_bytes: section.count_or_default("reply_bytes", errors) as u32,
        service: section.duration_or_default("service", errors),
        lines: section.count_or_default("lines", errors) as u32,
        call: call(section, errors),
        other: other_requests(section, errors),
    }
}

/// Adds an error for each of `keys` that is there without the key `of`.
fn belong_to(section: Section<'_>, of: &str, keys: &[&'static str], errors: &mut Errors) {
    for entry in keys.iter().filter_map(|&key| section.get(key)).filter(|_| section.get(of).is_none()) {
        let message = format!("`{}` needs `{of}`", entry.key);
        errors.add(entry.key_place, message, format!("expected `{of}` beside it"));
    }
}

fn call(section: Section<'_>, errors: &mut Errors) -> Option<Call> {
    belong_to(section, "call", &["turnaround"], errors);
    let turnaround = section.duration_or_default("turnaround", errors);
    let name = section.word("call", errors)?;
    let kind = CallKind::ALL.into_iter().find(|kind| kind.name() == name)?;
    Some(Call { kind, turnaround })
}

fn other_requests(section: Section<'_>, errors: &mut Errors) -> Option<OtherRequests> {
    belong_to(section, "other_share", &["other_bytes", "other_reply_bytes"], errors);
    let bytes = section.count_or_default("other_bytes", errors) as u32;
    let reply_bytes = section.count_or_default("other_reply_bytes", errors) as u32;
    let share = section.percent("other_share", errors)?;
    Some(OtherRequests { ppm: ppm(share).max(1), bytes, reply_bytes })
}

fn card_of(section: Section<'_>, cards: &[Card], errors: &mut Errors) -> Option<usize> {
    let names = || cards.iter().map(|card| card.name.as_str());
    if section.get("card").is_none() {
        if cards.len() != 1 {
            let message = format!("`card` is missing in {}", section.header());
            errors.add(section.place, message, expected_names(names()));
        }
        return (cards.len() == 1).then_some(0);
    }
    let name = section.text("card", errors)?;
    let found = cards.iter().position(|card| card.name == name);
    if found.is_none() {
        let message = format!("there is no card `{}`", shorten(name));
        errors.add_nearest(
            section.place_of("card"),
            message,
            expected_names(names()),
            nearest(name, names()),
        );
    }
    found
}
