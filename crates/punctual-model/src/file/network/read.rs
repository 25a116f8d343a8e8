//! What the tables of networks, flows and chains say by themselves.

use punctual_net::event_channel::Scan;
use punctual_net::registry::{disciplines, find};
use punctual_net::{InterfaceKind, InterfaceParams, Rate};
use punctual_sched::Duration;

use super::draft::{ChainDraft, Drafts, FlowDraft, InterfaceDraft, Named, NetworkDraft};
use super::keys::{COSTS, NIC};
use crate::file::error::Place;
use crate::file::fields::{Problems, Tab, header};
use crate::file::key::Optioned;
use crate::file::limits::{FLOWS_MAX, NETWORKS_MAX, STEPS_MAX};
use crate::file::options::{OptionPlaces, option_values};
use crate::file::quantity::{self, WHOLE};
use crate::network::{DisciplineChoice, EventHandling, NetworkCosts, Nic, OutsideHost, Traffic};

/// Reads every table by itself.
pub(crate) fn read(root: Tab<'_>, problems: &mut Problems) -> Drafts {
    let (networks, flows, chains) =
        (problems.named(root, "network"), problems.named(root, "flow"), problems.named(root, "chain"));
    let place = |key| root.get(key).map_or(root.place, |e| &e.key_place);
    if networks.len() > NETWORKS_MAX {
        problems.add(
            place("network"),
            "there are too many networks",
            format!("expected at most {NETWORKS_MAX}"),
        );
    }
    if flows.len() + chains.len() > FLOWS_MAX {
        let key = if flows.is_empty() { "chain" } else { "flow" };
        problems.add(place(key), "there are too many flows", format!("expected at most {FLOWS_MAX}"));
    }
    Drafts {
        networks: networks.into_iter().filter_map(|tab| network(tab, problems)).collect(),
        flows: flows.into_iter().filter_map(|tab| flow(tab, problems)).collect(),
        chains: chains.into_iter().filter_map(|tab| chain(tab, problems)).collect(),
    }
}

fn own_name(tab: Tab<'_>) -> Named {
    (tab.name.to_string(), tab.place.clone())
}

fn named(tab: Tab<'_>, key: &'static str, problems: &mut Problems) -> Option<Named> {
    let text = problems.text(tab, key)?;
    Some((text.to_string(), tab.get(key)?.node.place.clone()))
}

fn network(tab: Tab<'_>, problems: &mut Problems) -> Option<NetworkDraft> {
    let driver = named(tab, "driver", problems);
    let discipline = discipline(tab, problems);
    let scan = match problems.word(tab, "scan") {
        Some("first") => Scan::First,
        Some("word") => Scan::Word,
        _ => Scan::Resume,
    };
    let events = match problems.word(tab, "events") {
        Some("one-by-one") => EventHandling::OneByOne,
        _ => EventHandling::First,
    };
    let empty = crate::file::tree::Table::default();
    let costs = problems.table(tab, "costs").unwrap_or(Tab { table: &empty, info: &COSTS, ..tab });
    let costs = network_costs(costs, problems);
    let nic = problems.table(tab, "nic").unwrap_or(Tab { table: &empty, info: &NIC, ..tab });
    let nic = network_card(nic, problems);
    let mut outside = Vec::new();
    for tab in problems.named(tab, "outside") {
        let (delay, turnaround) =
            (problems.duration_or(tab, "delay"), problems.duration_or(tab, "turnaround"));
        outside.push((OutsideHost { name: tab.name.into(), delay, turnaround }, tab.place.clone()));
    }
    if outside.len() > NETWORKS_MAX {
        problems.add(
            tab.place,
            "there are too many hosts outside",
            format!("expected at most {NETWORKS_MAX}"),
        );
    }
    let interfaces =
        problems.named(tab, "interface").into_iter().map(|tab| interface(tab, problems)).collect();
    let (discipline, discipline_place, option_places) = discipline?;
    Some(NetworkDraft {
        name: own_name(tab),
        driver: driver?,
        discipline,
        discipline_place,
        option_places,
        scan,
        events,
        costs,
        nic,
        outside,
        interfaces,
    })
}

/// The discipline, after validating the options of every one that the network has a table for.
fn discipline(tab: Tab<'_>, problems: &mut Problems) -> Option<(DisciplineChoice, Place, OptionPlaces)> {
    let entry = tab.get("discipline");
    let info = match entry {
        Some(entry) => problems.discipline_of(entry),
        None => find(tab.default("discipline")),
    };
    let mut chosen = None;
    for one in disciplines() {
        let table = tab.table.get(one.name);
        if table.is_none() && info != Some(one) {
            continue;
        }
        let place = table.or(entry).map_or(tab.place, |e| &e.key_place).clone();
        let (options, places) = option_values(Optioned::from(one), table, &[], problems);
        if let Err(e) = (one.build)(&options) {
            let at = places.iter().find(|(name, _)| *name == e.option).map_or(&place, |(_, place)| place);
            let message = format!("discipline `{}` refuses `{}`", one.name, e.option);
            problems.add(at, message, format!("expected {}", e.expected));
        }
        if info == Some(one) {
            chosen = Some((DisciplineChoice { info: one, options }, place, places));
        }
    }
    chosen
}

fn network_costs(tab: Tab<'_>, problems: &mut Problems) -> NetworkCosts {
    let jitter = problems.percent(tab, "jitter").unwrap_or(0);
    let mut cost = |key| problems.duration_or(tab, key);
    NetworkCosts {
        guest_send: cost("guest_send"),
        guest_receive: cost("guest_receive"),
        event: cost("event"),
        interrupt: cost("interrupt"),
        tx: cost("tx"),
        softnet: cost("softnet"),
        rx: cost("rx"),
        round: cost("round"),
        copy_per_kib: cost("copy_per_kib"),
        nic_receive: cost("nic_receive"),
        nic_send: cost("nic_send"),
        jitter_ppm: (jitter / (WHOLE / 1_000_000)) as u32,
    }
}

fn network_card(tab: Tab<'_>, problems: &mut Problems) -> Nic {
    let default = || quantity::bandwidth(tab.default("bandwidth")).expect("the default is a bandwidth");
    Nic {
        bandwidth_bps: problems.bandwidth(tab, "bandwidth").unwrap_or_else(default),
        delay: problems.duration_or(tab, "delay"),
        ring_slots: problems.count_or(tab, "ring_slots") as u32,
    }
}

fn interface(tab: Tab<'_>, problems: &mut Problems) -> InterfaceDraft {
    let mut places = Vec::new();
    for key in tab.info.all() {
        places.extend(tab.get(key.name).map(|e| (key.name, e.place())));
    }
    let mut count = |key| problems.count(tab, key).map(|n| n as u32);
    let mut params = InterfaceParams {
        kind: InterfaceKind::Guest,
        priority: count("priority"),
        batch: count("batch"),
        softnet_limit: count("softnet_limit"),
        ring_slots: count("ring_slots"),
        rate: None,
    };
    let window = problems.duration_or(tab, "credit_window");
    let burst = problems.count(tab, "burst_bytes");
    match problems.count(tab, "credit_bytes") {
        Some(bytes) => params.rate = Some(Rate { bytes, window, burst_bytes: burst.unwrap_or(bytes) }),
        None => {
            for key in ["credit_window", "burst_bytes"] {
                if let (Some(entry), None) = (tab.get(key), tab.get("credit_bytes")) {
                    let message = format!("`{key}` is of no use without `credit_bytes`");
                    problems.add(&entry.key_place, message, "expected `credit_bytes`, the rate limit itself");
                }
            }
        }
    }
    InterfaceDraft { domain: own_name(tab), params, places }
}

// ---- flows and chains -----------------------------------------------------------------------------------

/// Keys that only some kinds of flow have.
const OF_KINDS: [(&str, &[&str]); 11] = [
    ("count", &["ping", "request", "periodic", "storm"]),
    ("reply_bytes", &["request"]),
    ("period", &["request", "periodic"]),
    ("slack_mean", &["periodic"]),
    ("burst", &["periodic"]),
    ("pause", &["ping"]),
    ("timeout", &["ping", "request", "stream"]),
    ("server", &["request"]),
    ("window", &["stream"]),
    ("ack_bytes", &["stream"]),
    ("ack_every", &["stream"]),
];

fn flow(tab: Tab<'_>, problems: &mut Problems) -> Option<FlowDraft> {
    let kind = problems.word(tab, "kind");
    let network = named(tab, "network", problems);
    let (from, to) = (named(tab, "from", problems), named(tab, "to", problems));
    let server = named(tab, "server", problems);
    let (start, count) = (problems.duration_or(tab, "start"), problems.count(tab, "count"));
    let kind = kind?;
    for (key, kinds) in OF_KINDS.into_iter().chain([("interval", ["storm"].as_slice())]) {
        if let (Some(entry), false) = (tab.get(key), kinds.contains(&kind)) {
            let message = format!("a flow of kind \"{kind}\" has no `{key}`");
            problems.add(
                &entry.key_place,
                message,
                format!("`{key}` belongs to \"{}\"", kinds.join("\" and \"")),
            );
        }
    }
    let traffic = traffic(tab, kind, problems)?;
    let interval_place = tab.get("interval").map_or(tab.place, |e| &e.node.place).clone();
    Some(FlowDraft {
        name: own_name(tab),
        network,
        from: from?,
        to: to?,
        start,
        count,
        traffic,
        interval_place,
        server,
    })
}

fn traffic(tab: Tab<'_>, kind: &str, problems: &mut Problems) -> Option<Traffic> {
    let mut length = |key, default: u32| problems.count(tab, key).map_or(default, |n| n as u32);
    let bytes = length("bytes", if matches!(kind, "stream" | "storm") { 1514 } else { 98 });
    let (reply_bytes, ack_bytes) = (length("reply_bytes", bytes), length("ack_bytes", 66));
    let seconds = problems.duration(tab, "timeout");
    let timeout = seconds.unwrap_or(Duration::from_ms(if kind == "stream" { 200 } else { 1000 }));
    let period = problems.duration(tab, "period");
    let mut number = |key| problems.count_or(tab, key) as u32;
    let (burst, window, ack_every) = (number("burst"), number("window"), number("ack_every"));
    let mut duration = |key| problems.duration_or(tab, key);
    let (slack_mean, pause, interval) = (duration("slack_mean"), duration("pause"), duration("interval"));
    Some(match kind {
        "ping" => Traffic::Ping { bytes, timeout, pause },
        "request" => Traffic::Request { bytes, reply_bytes, period, timeout, server: None },
        "periodic" => {
            if tab.get("period").is_none() {
                let message = format!("`period` is missing in {}", header(tab));
                problems.add(
                    tab.place,
                    message,
                    "expected the distance of packets, for example period = \"10ms\"",
                );
            }
            Traffic::Periodic { bytes, period: period?, slack_mean, burst }
        }
        "stream" => {
            if ack_every > window {
                let place = ["ack_every", "window"].iter().find_map(|key| tab.get(key));
                let place = place.map_or(tab.place, |e| &e.node.place);
                let message = "the receiver would wait for more packets than the window has";
                problems.add(place, message, format!("expected `ack_every` at most `window` ({window})"));
            }
            Traffic::Stream { bytes, ack_bytes, window, ack_every, timeout }
        }
        _ => Traffic::Storm { bytes, interval },
    })
}

fn chain(tab: Tab<'_>, problems: &mut Problems) -> Option<ChainDraft> {
    let network = named(tab, "network", problems);
    let bytes = problems.count_or(tab, "bytes") as u32;
    let deadline = problems.duration(tab, "deadline");
    let entry = tab.get("steps")?;
    let expected = "expected a list of tasks, for example [\"sensor.read\", \"control.compute\"]";
    let steps = problems.texts(entry, expected)?;
    if !(2..=STEPS_MAX).contains(&steps.len()) {
        let message = format!("`steps` has {} tasks", steps.len());
        problems.add(&entry.node.place, message, format!("expected from 2 to {STEPS_MAX} tasks"));
        return None;
    }
    let steps = steps.into_iter().map(|(text, place)| (text.to_string(), place.clone())).collect();
    Some(ChainDraft { name: own_name(tab), network, steps, bytes, deadline: deadline? })
}
