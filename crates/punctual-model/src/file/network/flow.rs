//! Reads the tables of flows and chains before the names in them are looked up.

use punctual_jobs::stream::{Algorithm, Control, TcpParams};
use punctual_sched::Duration;

use super::draft::{ChainDraft, FlowDraft};
use super::names::{Name, name_under, own_name};
use crate::file::copies::Copies;
use crate::file::error::Errors;
use crate::file::limits::STEPS_MAX;
use crate::file::section::Section;
use crate::network::Traffic;

/// Keys that only some kinds of flow have.
const KEYS_OF_KINDS: [(&str, &[&str]); 17] = [
    ("count", &["ping", "request", "periodic", "goose", "storm"]),
    ("reply_bytes", &["request"]),
    ("period", &["request", "periodic", "goose"]),
    ("slack_mean", &["periodic", "goose"]),
    ("retransmit", &["goose"]),
    ("heartbeat", &["goose"]),
    ("burst", &["periodic"]),
    ("pause", &["ping"]),
    ("timeout", &["ping", "request", "stream"]),
    ("server", &["request"]),
    ("window", &["stream"]),
    ("ack_bytes", &["stream"]),
    ("ack_every", &["stream"]),
    ("congestion_control", &["stream"]),
    ("initial_window", &["stream"]),
    ("rto_min", &["stream"]),
    ("interval", &["storm"]),
];

/// `timeout` of a stream.
const STREAM_TIMEOUT: Duration = Duration::from_ms(200);

pub(super) fn flow(section: Section<'_>, errors: &mut Errors) -> Option<FlowDraft> {
    let kind = section.word("kind", errors);
    let network = name_under(section, "network", errors);
    let (from, to) = (name_under(section, "from", errors), name_under(section, "to", errors));
    let server = name_under(section, "server", errors);
    let (start, count) = (section.duration_or_default("start", errors), section.count("count", errors));
    let deadline = section.duration("deadline", errors);
    let pcp = section.count("pcp", errors).map(|n| n as u8);
    let copies = Copies::read(section, &["start"], errors);
    let kind = kind?;
    for (key, kinds) in KEYS_OF_KINDS {
        if let (Some(entry), false) = (section.get(key), kinds.contains(&kind)) {
            let message = format!("a flow of kind \"{kind}\" has no `{key}`");
            errors.add(
                entry.key_place,
                message,
                format!("`{key}` belongs to \"{}\"", kinds.join("\" and \"")),
            );
        }
    }
    let traffic = traffic(section, kind, errors)?;
    Some(FlowDraft {
        name: own_name(section),
        copies,
        network,
        from: from?,
        to: to?,
        start,
        count,
        deadline,
        pcp,
        traffic,
        interval_place: section.place_of("interval"),
        server,
    })
}

fn traffic(section: Section<'_>, kind: &str, errors: &mut Errors) -> Option<Traffic> {
    let mut length = |key, default: u32| section.count(key, errors).map_or(default, |n| n as u32);
    let bytes = length("bytes", if matches!(kind, "stream" | "storm") { 1514 } else { 98 });
    let (reply_bytes, ack_bytes) = (length("reply_bytes", bytes), length("ack_bytes", 66));
    let given = section.duration("timeout", errors);
    let timeout = given.unwrap_or(Duration::from_secs(1));
    let period = section.duration("period", errors);
    let mut number = |key| section.count_or_default(key, errors) as u32;
    let (burst, window, ack_every) = (number("burst"), number("window"), number("ack_every"));
    let mut duration = |key| section.duration_or_default(key, errors);
    let (slack_mean, pause, interval) = (duration("slack_mean"), duration("pause"), duration("interval"));
    Some(match kind {
        "ping" => Traffic::Ping { bytes, timeout, pause },
        "request" => Traffic::Request { bytes, reply_bytes, period, timeout, server: None },
        "periodic" => {
            if section.get("period").is_none() {
                let message = format!("`period` is missing in {}", section.header());
                errors.add(
                    section.place,
                    message,
                    "expected the distance of packets, for example period = \"10ms\"",
                );
            }
            Traffic::Periodic { bytes, period: period?, slack_mean, burst }
        }
        "goose" => {
            let (retransmit, heartbeat) = (duration("retransmit"), duration("heartbeat"));
            goose(section, &Traffic::Goose { bytes, period, slack_mean, retransmit, heartbeat }, errors)
        }
        "stream" => {
            if ack_every > window {
                let place = ["ack_every", "window"].iter().find_map(|key| section.get(key));
                let place = place.map_or(section.place, |e| e.node.place);
                let message = "the receiver would wait for more packets than the window has";
                errors.add(place, message, format!("expected `ack_every` at most `window` ({window})"));
            }
            let control = control(section, given, errors);
            Traffic::Stream { bytes, ack_bytes, window, ack_every, control }
        }
        _ => Traffic::Storm { bytes, interval },
    })
}

/// Its repetitions grow apart, and it has a mean between events only if there are events.
fn goose(section: Section<'_>, traffic: &Traffic, errors: &mut Errors) -> Traffic {
    let Traffic::Goose { period, retransmit, heartbeat, .. } = *traffic else { return *traffic };
    if retransmit > heartbeat {
        let place = ["retransmit", "heartbeat"].iter().find_map(|key| section.get(key));
        let place = place.map_or(section.place, |entry| entry.node.place);
        let message = "the first repetition comes later than a heartbeat";
        errors.add(place, message, format!("expected `retransmit` at most `heartbeat` ({heartbeat})"));
    }
    if let (Some(entry), None) = (section.get("slack_mean"), period) {
        let message = "a flow without events has no time between them";
        errors.add(entry.key_place, message, "expected a `period` too, the least distance of events");
    }
    *traffic
}

/// How a stream finds its window. A key that belongs to another choice is an error.
fn control(section: Section<'_>, timeout: Option<Duration>, errors: &mut Errors) -> Control {
    let name = section.word("congestion_control", errors).unwrap_or("basic");
    let algorithm = match name {
        "reno" => Some(Algorithm::Reno),
        "cubic" => Some(Algorithm::Cubic),
        _ => None,
    };
    let (others, expected): (&[_], _) = match algorithm {
        Some(_) => (&["timeout"], "expected `rto_min`: the timeout follows from the round trips (RFC 6298)"),
        None => (&["initial_window", "rto_min"], "expected `congestion_control`: \"reno\" or \"cubic\""),
    };
    for entry in others.iter().filter_map(|key| section.get(key)) {
        let message = format!("a stream with the congestion control \"{name}\" has no `{}`", entry.key);
        errors.add(entry.key_place, message, expected);
    }
    match algorithm {
        Some(algorithm) => Control::Tcp(TcpParams {
            algorithm,
            initial_window: section.count_or_default("initial_window", errors) as u32,
            rto_min_ns: section.duration_or_default("rto_min", errors).as_ns(),
        }),
        None => Control::Basic { timeout_ns: timeout.unwrap_or(STREAM_TIMEOUT).as_ns() },
    }
}

pub(super) fn chain(section: Section<'_>, errors: &mut Errors) -> Option<ChainDraft> {
    let network = name_under(section, "network", errors);
    let bytes = section.count_or_default("bytes", errors) as u32;
    let pcp = section.count("pcp", errors).map(|n| n as u8);
    let deadline = section.duration("deadline", errors);
    let entry = section.get("steps")?;
    let expected = "expected a list of tasks, for example [\"sensor.read\", \"control.compute\"]";
    let steps = entry.texts(expected, errors)?;
    if !(2..=STEPS_MAX).contains(&steps.len()) {
        let message = format!("`steps` has {} tasks", steps.len());
        errors.add(entry.node.place, message, format!("expected from 2 to {STEPS_MAX} tasks"));
        return None;
    }
    let steps = steps.into_iter().map(|(text, place)| Name { text: text.to_string(), place }).collect();
    Some(ChainDraft { name: own_name(section), network, steps, bytes, pcp, deadline: deadline? })
}
