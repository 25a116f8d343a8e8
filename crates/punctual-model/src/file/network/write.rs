//! Networks, flows and chains as tables of a host file.

use punctual_jobs::stream::{Control, TcpParams};
use punctual_net::event_channel::Scan;
use punctual_sched::Duration;
use toml_edit::Table;

use super::keys::PCP;
use crate::file::quantity::{WHOLE, show_bandwidth, show_percent};
use crate::file::writer::{Keys, inline, named, number, numbers, options, table, texts, time};
use crate::host::{Host, Parent};
use crate::index::TaskIx;
use crate::network::{
    Chain, EventHandling, Flow, Groups, Interface, Network, NetworkCosts, Nic, OutsideHost, Plane, Traffic,
    Transport, Vlans,
};

pub(crate) fn network(host: &Host, network: &Network) -> Table {
    let scan = match network.scan {
        Scan::Resume => "resume",
        Scan::First => "first",
        Scan::Word => "word",
    };
    let events = match network.events {
        EventHandling::First => "first",
        EventHandling::OneByOne => "one-by-one",
    };
    let transport = match network.transport {
        Transport::Frames => "frames",
        Transport::Sockets => "sockets",
    };
    let mut keys = vec![
        ("driver", host.domains[network.driver.0].name.as_str().into()),
        ("transport", transport.into()),
        ("discipline", network.discipline.info.name.into()),
    ];
    let given = options(&network.discipline.options);
    if !given.is_empty() {
        keys.push((network.discipline.info.name, inline(given)));
    }
    keys.extend([("scan", scan.into()), ("events", events.into())]);
    let mut out = table(keys);
    if let Some(mtu) = network.mtu {
        out.insert("mtu", number(mtu).into());
    }
    let planes = network.planes.iter().map(|one| (one.name.clone(), table(plane(one))));
    out.insert("plane", named(planes));
    out.insert("costs", table(costs(&network.costs)).into());
    out.insert("nic", table(nic(&network.nic)).into());
    let outside = network.outside.iter().map(|one| (one.name.clone(), table(outside_host(one))));
    out.insert("outside", named(outside));
    let name = |interface: &Interface| host.domains[interface.domain.0].name.clone();
    let interfaces = network.interfaces.iter().map(|one| (name(one), table(interface(one))));
    out.insert("interface", named(interfaces));
    out
}

fn costs(costs: &NetworkCosts) -> Keys {
    let mut keys = vec![
        ("guest_send", time(costs.guest_send)),
        ("guest_receive", time(costs.guest_receive)),
        ("guest_wake", time(costs.guest_wake.median)),
        ("event", time(costs.event)),
        ("interrupt", time(costs.interrupt)),
        ("tx", time(costs.tx)),
        ("softnet", time(costs.softnet)),
        ("rx", time(costs.rx)),
        ("round", time(costs.round)),
        ("copy_per_kib", time(costs.copy_per_kib)),
        ("nic_receive", time(costs.nic_receive)),
        ("nic_send", time(costs.nic_send)),
    ];
    let others = [
        ("guest_send_per_kib", costs.guest_send_per_kib),
        ("guest_receive_per_kib", costs.guest_receive_per_kib),
        ("guest_resume", costs.guest_resume),
    ];
    keys.extend(others.into_iter().filter(|(_, cost)| !cost.is_zero()).map(|(key, cost)| (key, time(cost))));
    let (wake, busy) = (costs.guest_wake, costs.guest_wake_busy);
    let mut quantiles =
        vec![("guest_wake_p10", wake.p10), ("guest_wake_p90", wake.p90), ("guest_wake_p99", wake.p99)];
    if busy != wake {
        quantiles.extend([
            ("guest_wake_busy", Some(busy.median)),
            ("guest_wake_busy_p10", busy.p10),
            ("guest_wake_busy_p90", busy.p90),
            ("guest_wake_busy_p99", busy.p99),
        ]);
    }
    keys.extend(quantiles.into_iter().filter_map(|(key, cost)| Some((key, time(cost?)))));
    if costs.jitter_ppm > 0 {
        let jitter = show_percent(u64::from(costs.jitter_ppm) * (WHOLE / 1_000_000));
        keys.push(("jitter", jitter.into()));
    }
    keys
}

fn nic(nic: &Nic) -> Keys {
    vec![
        ("bandwidth", show_bandwidth(nic.bandwidth_bps).into()),
        ("delay", time(nic.delay)),
        ("ring_slots", number(nic.ring_slots)),
    ]
}

fn outside_host(host: &OutsideHost) -> Keys {
    let mut keys = vec![("delay", time(host.delay)), ("turnaround", time(host.turnaround))];
    keys.extend(vlans(&host.vlans));
    keys
}

fn vlans(vlans: &Vlans) -> Keys {
    let mut keys = Keys::new();
    keys.extend(vlans.untagged.map(|vlan| ("vlan", number(vlan))));
    if !vlans.tagged.is_empty() {
        keys.push(("trunk", numbers(vlans.tagged.iter().map(|vlan| usize::from(*vlan)))));
    }
    keys
}

fn plane(plane: &Plane) -> Keys {
    let mut keys = Keys::new();
    keys.extend(plane.up_to.map(|priority| ("up_to", number(priority))));
    if !plane.processors.is_empty() {
        keys.push(("processors", numbers(plane.processors.iter().copied())));
    }
    keys.extend(plane.fifo.map(|priority| ("fifo", number(priority))));
    keys.push(("poll", time(plane.poll)));
    if let Some(budget) = &plane.budget {
        let params = &budget.params;
        keys.extend(params.budget.map(|budget| ("budget", time(budget))));
        keys.extend(params.period.map(|period| ("period", time(period))));
        keys.push(("policy", budget.policy.name.into()));
    }
    keys
}

fn interface(interface: &Interface) -> Keys {
    let params = &interface.params;
    let counts = [
        ("priority", params.priority),
        ("batch", params.batch),
        ("softnet_limit", params.softnet_limit),
        ("ring_slots", params.ring_slots),
    ];
    let mut keys: Keys =
        counts.into_iter().filter_map(|(key, count)| count.map(|count| (key, number(count)))).collect();
    if let Some(rate) = params.rate {
        keys.extend([
            ("credit_bytes", number(rate.bytes)),
            ("credit_window", time(rate.window)),
            ("burst_bytes", number(rate.burst_bytes)),
        ]);
    }
    if !interface.classes.is_empty() {
        let class = |(pcp, priority): (&u8, &u32)| (PCP.keys[usize::from(*pcp)].name, number(*priority));
        keys.push(("pcp", inline(interface.classes.iter().map(class).collect())));
    }
    keys.extend(vlans(&interface.vlans));
    if !interface.groups.is_empty() {
        keys.push(("groups", texts(interface.groups.iter().map(Groups::to_string))));
    }
    keys
}

pub(crate) fn flow(host: &Host, flow: &Flow) -> Table {
    let mut keys = vec![
        ("network", host.networks[flow.network.0].name.as_str().into()),
        ("kind", flow.traffic.kind().into()),
        ("from", host.endpoint_name(flow.network, flow.from).into()),
        ("to", host.endpoint_name(flow.network, flow.to).into()),
        ("start", time(flow.start)),
    ];
    keys.extend(flow.count.map(|count| ("count", number(count))));
    keys.extend(flow.deadline.map(|deadline| ("deadline", time(deadline))));
    keys.extend(flow.pcp.map(|pcp| ("pcp", number(pcp))));
    keys.extend(traffic(host, &flow.traffic));
    table(keys)
}

fn traffic(host: &Host, traffic: &Traffic) -> Keys {
    match *traffic {
        Traffic::Ping { bytes, timeout, pause } => {
            vec![("bytes", number(bytes)), ("timeout", time(timeout)), ("pause", time(pause))]
        }
        Traffic::Request { bytes, reply_bytes, period, timeout, server } => {
            let mut keys = vec![("bytes", number(bytes)), ("reply_bytes", number(reply_bytes))];
            keys.extend(period.map(|period| ("period", time(period))));
            keys.push(("timeout", time(timeout)));
            keys.extend(server.map(|server| ("server", task_name(host, server).into())));
            keys
        }
        Traffic::Periodic { bytes, period, slack_mean, burst } => vec![
            ("bytes", number(bytes)),
            ("period", time(period)),
            ("slack_mean", time(slack_mean)),
            ("burst", number(burst)),
        ],
        Traffic::Goose { bytes, period, slack_mean, retransmit, heartbeat } => {
            let mut keys = vec![("bytes", number(bytes))];
            keys.extend(period.map(|period| ("period", time(period))));
            keys.extend((!slack_mean.is_zero()).then(|| ("slack_mean", time(slack_mean))));
            keys.extend([("retransmit", time(retransmit)), ("heartbeat", time(heartbeat))]);
            keys
        }
        Traffic::Stream { bytes, ack_bytes, window, ack_every, control: by } => {
            let mut keys = vec![
                ("bytes", number(bytes)),
                ("ack_bytes", number(ack_bytes)),
                ("window", number(window)),
                ("ack_every", number(ack_every)),
            ];
            keys.extend(control(by));
            keys
        }
        Traffic::Storm { bytes, interval } => vec![("bytes", number(bytes)), ("interval", time(interval))],
    }
}

fn control(control: Control) -> Keys {
    match control {
        Control::Basic { timeout_ns } => vec![("timeout", time(Duration::from_ns(timeout_ns)))],
        Control::Tcp(TcpParams { initial_window, rto_min_ns, .. }) => vec![
            ("congestion_control", control.name().into()),
            ("initial_window", number(initial_window)),
            ("rto_min", time(Duration::from_ns(rto_min_ns))),
        ],
    }
}

pub(crate) fn chain(host: &Host, chain: &Chain) -> Table {
    let mut keys = vec![
        ("network", host.networks[chain.network.0].name.as_str().into()),
        ("steps", texts(chain.steps.iter().map(|step| task_name(host, *step)))),
        ("bytes", number(chain.bytes)),
    ];
    keys.extend(chain.pcp.map(|pcp| ("pcp", number(pcp))));
    keys.push(("deadline", time(chain.deadline)));
    table(keys)
}

/// `DOMAIN.TASK`.
fn task_name(host: &Host, task: TaskIx) -> String {
    let task = &host.tasks[task.0];
    let parent = match task.parent {
        Parent::Domain(domain) => &host.domains[domain.0].name,
        Parent::Pool(pool) => &host.pools[pool.0].name,
    };
    format!("{parent}.{}", task.name)
}
