//! Networks, flows and chains as parts of a host file.

use punctual_net::event_channel::Scan;

use crate::file::quantity::{WHOLE, show_bandwidth, show_percent};
use crate::file::writer::{Writer, options, quoted};
use crate::host::{Host, Parent};
use crate::index::TaskIx;
use crate::network::{Chain, EventHandling, Flow, Interface, Network, Traffic};

pub(crate) fn network(out: &mut Writer, host: &Host, network: &Network) {
    let path = format!("network.{}", network.name);
    out.table(&path);
    out.key("driver", quoted(&host.domains[network.driver.0].name));
    out.key("discipline", quoted(network.discipline.info.name));
    if network.discipline.options.iter().next().is_some() {
        out.key(network.discipline.info.name, format!("{{ {} }}", options(&network.discipline.options)));
    }
    let scan = match network.scan {
        Scan::Resume => "resume",
        Scan::First => "first",
        Scan::Word => "word",
    };
    out.key("scan", quoted(scan));
    let events = match network.events {
        EventHandling::First => "first",
        EventHandling::OneByOne => "one-by-one",
    };
    out.key("events", quoted(events));
    costs(out, network, &path);
    out.table(&format!("{path}.nic"));
    out.key("bandwidth", quoted(show_bandwidth(network.nic.bandwidth_bps)));
    out.key("delay", quoted(network.nic.delay));
    out.key("ring_slots", network.nic.ring_slots);
    for outside in &network.outside {
        out.table(&format!("{path}.outside.{}", outside.name));
        out.key("delay", quoted(outside.delay));
        out.key("turnaround", quoted(outside.turnaround));
    }
    for one in &network.interfaces {
        interface(out, host, one, &path);
    }
}

fn costs(out: &mut Writer, network: &Network, path: &str) {
    out.table(&format!("{path}.costs"));
    let costs = &network.costs;
    for (key, cost) in [
        ("guest_send", costs.guest_send),
        ("guest_receive", costs.guest_receive),
        ("event", costs.event),
        ("interrupt", costs.interrupt),
        ("tx", costs.tx),
        ("softnet", costs.softnet),
        ("rx", costs.rx),
        ("round", costs.round),
        ("copy_per_kib", costs.copy_per_kib),
        ("nic_receive", costs.nic_receive),
        ("nic_send", costs.nic_send),
    ] {
        out.key(key, quoted(cost));
    }
    if costs.jitter_ppm > 0 {
        out.key("jitter", quoted(show_percent(u64::from(costs.jitter_ppm) * (WHOLE / 1_000_000))));
    }
}

fn interface(out: &mut Writer, host: &Host, interface: &Interface, path: &str) {
    out.table(&format!("{path}.interface.{}", host.domains[interface.domain.0].name));
    let params = &interface.params;
    let counts = [
        ("priority", params.priority),
        ("batch", params.batch),
        ("softnet_limit", params.softnet_limit),
        ("ring_slots", params.ring_slots),
    ];
    for (key, count) in counts {
        if let Some(count) = count {
            out.key(key, count);
        }
    }
    if let Some(rate) = params.rate {
        out.key("credit_bytes", rate.bytes);
        out.key("credit_window", quoted(rate.window));
        out.key("burst_bytes", rate.burst_bytes);
    }
}

fn task_name(host: &Host, task: TaskIx) -> String {
    let task = &host.tasks[task.0];
    let parent = match task.parent {
        Parent::Domain(domain) => &host.domains[domain.0].name,
        Parent::Pool(pool) => &host.pools[pool.0].name,
    };
    format!("{parent}.{}", task.name)
}

pub(crate) fn flow(out: &mut Writer, host: &Host, flow: &Flow) {
    let network = &host.networks[flow.network.0];
    out.table(&format!("flow.{}", flow.name));
    out.key("network", quoted(&network.name));
    out.key("kind", quoted(flow.traffic.kind()));
    out.key("from", quoted(host.endpoint_name(flow.network, flow.from)));
    out.key("to", quoted(host.endpoint_name(flow.network, flow.to)));
    out.key("start", quoted(flow.start));
    if let Some(count) = flow.count {
        out.key("count", count);
    }
    match flow.traffic {
        Traffic::Ping { bytes, timeout, pause } => {
            out.key("bytes", bytes);
            out.key("timeout", quoted(timeout));
            out.key("pause", quoted(pause));
        }
        Traffic::Request { bytes, reply_bytes, period, timeout, server } => {
            out.key("bytes", bytes);
            out.key("reply_bytes", reply_bytes);
            if let Some(period) = period {
                out.key("period", quoted(period));
            }
            out.key("timeout", quoted(timeout));
            if let Some(server) = server {
                out.key("server", quoted(task_name(host, server)));
            }
        }
        Traffic::Periodic { bytes, period, slack_mean, burst } => {
            out.key("bytes", bytes);
            out.key("period", quoted(period));
            out.key("slack_mean", quoted(slack_mean));
            out.key("burst", burst);
        }
        Traffic::Stream { bytes, ack_bytes, window, ack_every, timeout } => {
            out.key("bytes", bytes);
            out.key("ack_bytes", ack_bytes);
            out.key("window", window);
            out.key("ack_every", ack_every);
            out.key("timeout", quoted(timeout));
        }
        Traffic::Storm { bytes, interval } => {
            out.key("bytes", bytes);
            out.key("interval", quoted(interval));
        }
    }
}

pub(crate) fn chain(out: &mut Writer, host: &Host, chain: &Chain) {
    out.table(&format!("chain.{}", chain.name));
    out.key("network", quoted(&host.networks[chain.network.0].name));
    let steps: Vec<String> = chain.steps.iter().map(|&task| quoted(task_name(host, task))).collect();
    out.key("steps", format!("[{}]", steps.join(", ")));
    out.key("bytes", chain.bytes);
    out.key("deadline", quoted(chain.deadline));
}
