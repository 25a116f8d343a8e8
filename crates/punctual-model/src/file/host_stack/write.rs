//! Writes `[host_stack]`.

use toml_edit::Table;

use crate::file::quantity::{WHOLE, show_bandwidth, show_percent};
use crate::file::writer::{self, Keys, named, number, numbers, time};
use punctual_host_stack::{Card, HostStack, Lines, Load, Server, StackCosts};

/// The whole table.
pub(crate) fn table(stack: &HostStack) -> Table {
    let mut out = writer::table(vec![
        ("method", stack.method.name().into()),
        ("rtnet_prio", number(stack.rtnet_prio.0)),
        ("exclusive", numbers(stack.exclusive.iter().copied())),
        ("softirq_rest", stack.softirq_rest.name().into()),
        ("injection", stack.injection.name().into()),
        ("jiffy", time(stack.jiffy)),
    ]);
    out.insert("costs", writer::table(costs(&stack.costs)).into());
    if let Some(cache) = &stack.cache {
        let mut table = writer::table(vec![("size_kib", number(cache.size_kib)), ("miss", time(cache.miss))]);
        table.insert("lines", writer::table(lines(&cache.lines)).into());
        out.insert("cache", table.into());
    }
    out.insert("card", named(stack.cards.iter().map(|one| (one.name.clone(), writer::table(card(one))))));
    let servers = stack.servers.iter();
    out.insert("server", named(servers.map(|one| (one.name.clone(), writer::table(server(stack, one))))));
    out
}

fn lines(lines: &Lines) -> Keys {
    vec![
        ("guest_interrupt", number(lines.guest_interrupt)),
        ("guest_protocol", number(lines.guest_protocol)),
        ("guest_switch", number(lines.guest_switch)),
        ("guest_receive", number(lines.guest_receive)),
        ("guest_send", number(lines.guest_send)),
        ("guest_calls", number(lines.guest_calls)),
        ("host_protocol", number(lines.host_protocol)),
        ("host_receive", number(lines.host_receive)),
        ("host_send", number(lines.host_send)),
    ]
}

fn costs(costs: &StackCosts) -> Keys {
    let mut keys = vec![
        ("card", time(costs.card)),
        ("hard_irq", time(costs.hard_irq)),
        ("switch", time(costs.switch)),
        ("irq_thread", time(costs.irq_thread)),
        ("irq_thread_end", time(costs.irq_thread_end)),
        ("softirq", time(costs.softirq)),
        ("frame", time(costs.frame)),
        ("bridge", time(costs.bridge)),
        ("protocol", time(costs.protocol)),
        ("receive", time(costs.receive)),
        ("send", time(costs.send)),
        ("transmit", time(costs.transmit)),
        ("copy_per_kib", time(costs.copy_per_kib)),
        ("vnic_receive", time(costs.vnic_receive)),
        ("virtio_buffer", time(costs.virtio_buffer)),
        ("vnic_send", time(costs.vnic_send)),
        ("vnic_wake", time(costs.vnic_wake)),
        ("vnic_end", time(costs.vnic_end)),
        ("vcpu_wake", time(costs.vcpu_wake)),
        ("vm_entry", time(costs.vm_entry)),
        ("vm_exit", time(costs.vm_exit)),
        ("guest_interrupt", time(costs.guest_interrupt)),
        ("guest_switch", time(costs.guest_switch)),
        ("socket_call", time(costs.socket_call)),
        ("late", time(costs.late)),
    ];
    keys.push(("preempt_rt", share(costs.preempt_rt_ppm).into()));
    for (key, ppm) in [("jitter", costs.jitter_ppm), ("late_share", costs.late_ppm)] {
        if ppm > 0 {
            keys.push((key, share(ppm).into()));
        }
    }
    keys
}

fn share(ppm: u32) -> String {
    show_percent(u64::from(ppm) * (WHOLE / 1_000_000))
}

fn card(card: &Card) -> Keys {
    vec![
        ("device", card.device.as_str().into()),
        ("priority", number(card.priority.0)),
        ("processors", numbers(card.processors.iter().copied())),
        ("bandwidth", show_bandwidth(card.bandwidth_bps).into()),
        ("coalesce", time(card.coalesce)),
        ("ring_slots", number(card.ring_slots)),
        ("atr_sample", number(card.atr_sample)),
    ]
}

fn server(stack: &HostStack, server: &Server) -> Keys {
    let mut keys = vec![
        ("card", stack.cards[server.card].name.as_str().into()),
        ("path", server.path.name().into()),
        ("priority", number(server.priority.0)),
        ("vnic_priority", number(server.vnic_priority.0)),
        ("count", number(server.count)),
        ("start", time(server.start)),
    ];
    match server.load {
        Load::Requests { gap_min, gap_max, bytes, reply_bytes, service, lines, call, other } => {
            keys.extend([
                ("load", "requests".into()),
                ("gap_min", time(gap_min)),
                ("gap_max", time(gap_max)),
                ("bytes", number(bytes)),
                ("reply_bytes", number(reply_bytes)),
                ("service", time(service)),
                ("lines", number(lines)),
            ]);
            if let Some(call) = call {
                keys.extend([("call", call.kind.name().into()), ("turnaround", time(call.turnaround))]);
            }
            if let Some(other) = other {
                keys.extend([
                    ("other_share", share(other.ppm).into()),
                    ("other_bytes", number(other.bytes)),
                    ("other_reply_bytes", number(other.reply_bytes)),
                ]);
            }
        }
        Load::Stream { window } => keys.extend([("load", "stream".into()), ("window", number(window))]),
    }
    keys
}
