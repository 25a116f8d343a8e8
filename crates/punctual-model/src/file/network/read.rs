//! Reads the tables of networks before the names in them are looked up.

use punctual_net::event_channel::Scan;
use punctual_net::registry::{disciplines, find};
use punctual_net::{InterfaceKind, InterfaceParams, Rate};

use super::draft::{DisciplineDraft, Drafts, InterfaceDraft, NetworkDraft};
use super::flow::{chain, flow};
use super::keys::{COSTS, NIC};
use super::names::{name_under, own_name};
use super::switch;
use crate::file::error::Errors;
use crate::file::key::OptionOwner;
use crate::file::limits::{FLOWS_MAX, NETWORKS_MAX};
use crate::file::options::option_values;
use crate::file::quantity::{self, WHOLE};
use crate::file::section::Section;
use crate::file::source::Places;
use crate::file::tree::Table;
use crate::network::{DisciplineChoice, EventHandling, NetworkCosts, Nic, OutsideHost, Transport, WakeCosts};

/// Reads the tables of networks, flows and chains.
pub(crate) fn read(root: Section<'_>, errors: &mut Errors) -> Drafts {
    let (networks, flows, chains) =
        (root.named("network", errors), root.named("flow", errors), root.named("chain", errors));
    let place = |key| root.get(key).map_or(root.place, |e| e.key_place);
    if networks.len() > NETWORKS_MAX {
        errors.add(
            place("network"),
            "there are too many networks",
            format!("expected at most {NETWORKS_MAX}"),
        );
    }
    let drafts = Drafts {
        networks: networks.into_iter().filter_map(|section| network(section, errors)).collect(),
        flows: flows.into_iter().filter_map(|section| flow(section, errors)).collect(),
        chains: chains.into_iter().filter_map(|section| chain(section, errors)).collect(),
    };
    let flows: usize = drafts.flows.iter().map(|flow| flow.copies.count()).sum();
    if flows + drafts.chains.len() > FLOWS_MAX {
        let key = if flows == 0 { "chain" } else { "flow" };
        errors.add(place(key), "there are too many flows", format!("expected at most {FLOWS_MAX}"));
    }
    drafts
}

fn network(section: Section<'_>, errors: &mut Errors) -> Option<NetworkDraft> {
    let driver = name_under(section, "driver", errors);
    let transport = match section.word("transport", errors) {
        Some("sockets") => Transport::Sockets,
        _ => Transport::Frames,
    };
    let place = section.get("transport").map_or(section.place, |entry| entry.place());
    let discipline = discipline(section, errors);
    let scan = match section.word("scan", errors) {
        Some("first") => Scan::First,
        Some("word") => Scan::Word,
        _ => Scan::Resume,
    };
    let events = match section.word("events", errors) {
        Some("one-by-one") => EventHandling::OneByOne,
        _ => EventHandling::First,
    };
    let empty = Table::default();
    let costs = section.table("costs", errors).unwrap_or(Section { table: &empty, info: &COSTS, ..section });
    let costs = network_costs(costs, errors);
    let nic = section.table("nic", errors).unwrap_or(Section { table: &empty, info: &NIC, ..section });
    let nic = network_card(nic, errors);
    let mut outside = Vec::new();
    for section in section.named("outside", errors) {
        let (delay, turnaround) =
            (section.duration_or_default("delay", errors), section.duration_or_default("turnaround", errors));
        let vlans = switch::vlans(section, errors);
        let host = OutsideHost { name: section.name.into(), delay, turnaround, vlans };
        outside.push((host, section.place));
    }
    if outside.len() > NETWORKS_MAX {
        errors.add(
            section.place,
            "there are too many hosts outside",
            format!("expected at most {NETWORKS_MAX}"),
        );
    }
    let interfaces =
        section.named("interface", errors).into_iter().map(|section| interface(section, errors)).collect();
    Some(NetworkDraft {
        name: own_name(section),
        driver: driver?,
        transport: (transport, place),
        discipline: discipline?,
        scan,
        events,
        costs,
        nic,
        outside,
        planes: switch::planes(section, errors),
        mtu: section.count("mtu", errors).map(|bytes| bytes as u32),
        interfaces,
    })
}

/// The discipline, after validating the options of every one that the network has a table for.
fn discipline(section: Section<'_>, errors: &mut Errors) -> Option<DisciplineDraft> {
    let entry = section.get("discipline");
    let info = match entry {
        Some(entry) => entry.discipline(errors),
        None => find(section.default("discipline")),
    };
    let mut chosen = None;
    for one in disciplines() {
        let table = section.table.get(one.name);
        if table.is_none() && info != Some(one) {
            continue;
        }
        let name_place = table.or(entry).map_or(section.place, |e| e.key_place);
        let (options, option_places) = option_values(OptionOwner::from(one), table, &[], errors);
        if let Err(e) = (one.build)(&options) {
            let message = format!("discipline `{}` refuses `{}`", one.name, e.option);
            let place = option_places.of(e.option).unwrap_or(name_place);
            errors.add(place, message, format!("expected {}", e.expected));
        }
        if info == Some(one) {
            let choice = DisciplineChoice { info: one, options };
            chosen = Some(DisciplineDraft { choice, name_place, option_places });
        }
    }
    chosen
}

fn network_costs(section: Section<'_>, errors: &mut Errors) -> NetworkCosts {
    let jitter = section.percent("jitter", errors).unwrap_or(0);
    let [p10, p90, p99] =
        ["guest_wake_p10", "guest_wake_p90", "guest_wake_p99"].map(|key| section.duration(key, errors));
    let guest_wake = WakeCosts { median: section.duration_or_default("guest_wake", errors), p10, p90, p99 };
    let [busy, p10, p90, p99] =
        ["guest_wake_busy", "guest_wake_busy_p10", "guest_wake_busy_p90", "guest_wake_busy_p99"]
            .map(|key| section.duration(key, errors));
    let guest_wake_busy = match [busy, p10, p90, p99] {
        [None, None, None, None] => guest_wake,
        _ => WakeCosts { median: busy.unwrap_or(guest_wake.median), p10, p90, p99 },
    };
    let mut cost = |key| section.duration_or_default(key, errors);
    NetworkCosts {
        guest_send: cost("guest_send"),
        guest_receive: cost("guest_receive"),
        guest_wake,
        guest_wake_busy,
        guest_send_per_kib: cost("guest_send_per_kib"),
        guest_receive_per_kib: cost("guest_receive_per_kib"),
        guest_resume: cost("guest_resume"),
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

fn network_card(section: Section<'_>, errors: &mut Errors) -> Nic {
    let default = || quantity::bandwidth(section.default("bandwidth")).expect("the default is a bandwidth");
    Nic {
        bandwidth_bps: section.bandwidth("bandwidth", errors).unwrap_or_else(default),
        delay: section.duration_or_default("delay", errors),
        ring_slots: section.count_or_default("ring_slots", errors) as u32,
    }
}

fn interface(section: Section<'_>, errors: &mut Errors) -> InterfaceDraft {
    let mut places = Places::default();
    for key in section.info.all() {
        if let Some(entry) = section.get(key.name) {
            places.add(key.name, entry.place());
        }
    }
    let mut count = |key| section.count(key, errors).map(|n| n as u32);
    let mut params = InterfaceParams {
        kind: InterfaceKind::Guest,
        priority: count("priority"),
        batch: count("batch"),
        softnet_limit: count("softnet_limit"),
        ring_slots: count("ring_slots"),
        rate: None,
    };
    let window = section.duration_or_default("credit_window", errors);
    let burst = section.count("burst_bytes", errors);
    match section.count("credit_bytes", errors) {
        Some(bytes) => params.rate = Some(Rate { bytes, window, burst_bytes: burst.unwrap_or(bytes) }),
        None => {
            for key in ["credit_window", "burst_bytes"] {
                if let (Some(entry), None) = (section.get(key), section.get("credit_bytes")) {
                    let message = format!("`{key}` is of no use without `credit_bytes`");
                    errors.add(entry.key_place, message, "expected `credit_bytes`, the rate limit itself");
                }
            }
        }
    }
    let classes = switch::classes(section, errors);
    let (vlans, groups) = (switch::vlans(section, errors), switch::groups(section, errors));
    InterfaceDraft { domain: own_name(section), params, classes, vlans, groups, places }
}
