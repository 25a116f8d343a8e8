//! Writes `[host_stack]`.

use toml_edit::Table;

use crate::file::quantity::{WHOLE, show_bandwidth, show_percent};
use crate::file::writer::{self, Keys, named, number, numbers, time};
use crate::host_stack::{Card, HostStack, Load, Server, StackCosts};

/// The whole table.
pub(crate) fn table(stack: &HostStack) -> Table {
    let mut out = writer::table(vec![
        ("method", stack.method.name().into()),
        ("rtnet_prio", number(stack.rtnet_prio.0)),
        ("exclusive", numbers(stack.exclusive.iter().copied())),
        ("jiffy", time(stack.jiffy)),
    ]);
    out.insert("costs", writer::table(costs(&stack.costs)).into());
    if let Some(cache) = &stack.cache {
        let keys = vec![
            ("size_kib", number(cache.size_kib)),
            ("miss", time(cache.miss)),
            ("lines_per_us", number(cache.lines_per_us)),
        ];
        out.insert("cache", writer::table(keys).into());
    }
    out.insert("card", named(stack.cards.iter().map(|one| (one.name.clone(), writer::table(card(one))))));
    let servers = stack.servers.iter();
    out.insert("server", named(servers.map(|one| (one.name.clone(), writer::table(server(stack, one))))));
    out
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
    for (key, ppm) in [("jitter", costs.jitter_ppm), ("late_share", costs.late_ppm)] {
        if ppm > 0 {
            keys.push((key, show_percent(u64::from(ppm) * (WHOLE / 1_000_000)).into()));
        }
    }
    keys
}

fn card(card: &Card) -> Keys {
    vec![
        ("priority", number(card.priority.0)),
        ("processors", numbers(card.processors.iter().copied())),
        ("bandwidth", show_bandwidth(card.bandwidth_bps).into()),
        ("coalesce", time(card.coalesce)),
        ("ring_slots", number(card.ring_slots)),
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
        Load::Requests { gap_min, gap_max, bytes, reply_bytes, service } => keys.extend([
            ("load", "requests".into()),
            ("gap_min", time(gap_min)),
            ("gap_max", time(gap_max)),
            ("bytes", number(bytes)),
            ("reply_bytes", number(reply_bytes)),
            ("service", time(service)),
        ]),
        Load::Stream { window } => keys.extend([("load", "stream".into()), ("window", number(window))]),
    }
    keys
}
