//! Flows, chains and networks: what arrived, how late, and where the time went.

use punctual_model::results::{FlowResult, HostPart, PacketCounts, Segment, SegmentResult, SocketsResult};
use punctual_model::{Histogram, Results};
use punctual_sched::Duration;

use super::cells::{counts, histograms, latency, miss_cell, time};
use super::layout::{Row, Value, blocks, lines};
use crate::format::{fmt_bandwidth, fmt_count, fmt_duration, fmt_share};

fn dropped(packets: &PacketCounts) -> Value {
    let total = packets.dropped.total();
    Value { text: fmt_count(total), bad: total > 0 }
}

/// The share of packets that were dropped, of those whose way has ended.
fn lost(packets: &PacketCounts) -> Value {
    let dropped = packets.dropped.total();
    let ended = packets.delivered + dropped;
    let text = if ended == 0 { "-".into() } else { fmt_share(dropped, ended) };
    Value { text, bad: dropped > 0 }
}

/// One row per chain.
pub(super) fn chains(results: &Results, colour: bool) -> String {
    let row = |chain: &punctual_model::results::ChainResult| {
        let jobs = &chain.jobs;
        let mut row = Vec::from(counts([jobs.due, jobs.missed]));
        row.push(miss_cell(jobs));
        let quantiles = [500_000, 990_000].map(|ppm| jobs.response.quantile_ppm(ppm));
        row.extend(quantiles.map(|q| Value::plain(latency(&jobs.response, q))));
        row.push(Value::plain(latency(&jobs.response, jobs.response.max())));
        row.push(dropped(&chain.packets));
        (chain.name.clone(), row)
    };
    let columns = ["jobs due", "missed", "miss", "p50", "p99", "max", "dropped"];
    blocks("chain", &columns, &results.chains.iter().map(row).collect::<Vec<_>>(), colour)
}

/// One row per flow.
pub(super) fn flows(results: &Results, colour: bool) -> String {
    let has_deadlines = results.flows.iter().any(|flow| flow.deadline_ns.is_some());
    let row = |flow: &FlowResult| {
        let mut row = Vec::from(counts([flow.packets.created, flow.packets.delivered]));
        row.push(lost(&flow.packets));
        if has_deadlines {
            let text = flow.deadline_ns.map_or_else(|| "-".into(), |_| fmt_count(flow.late));
            row.push(Value { text, bad: flow.late > 0 });
        }
        row.push(Value { text: fmt_count(flow.timeouts), bad: flow.timeouts > 0 });
        row.push(Value::plain(fmt_bandwidth(flow.packets.bytes, time(results))));
        let of = &flow.latency;
        let values = [of.quantile_ppm(500_000), of.quantile_ppm(990_000), of.quantile_ppm(999_000), of.max()];
        row.extend(values.map(|value| Value::plain(latency(of, value))));
        (format!("{} ({})", flow.name, flow.kind), row)
    };
    let mut columns =
        vec!["sent", "delivered", "lost", "timeouts", "bandwidth", "p50", "p99", "p99.9", "max"];
    if has_deadlines {
        columns.insert(3, "late");
    }
    blocks("flow", &columns, &results.flows.iter().map(row).collect::<Vec<_>>(), colour)
}

/// What the congestion control of streams did: a row for each stream that has one.
pub(super) fn congestion(results: &Results, colour: bool) -> String {
    let row = |flow: &FlowResult| {
        let of = flow.congestion.as_ref()?;
        let mut row = vec![Value::plain(of.control.as_str())];
        row.extend(counts([flow.retransmissions, of.fast_retransmits, flow.timeouts]));
        row.extend(counts([of.window, of.window_max].map(u64::from)));
        row.push(Value::plain(of.threshold.map_or("-".into(), |packets| fmt_count(packets.into()))));
        let times = [of.srtt_ns, Some(of.rto_ns)];
        row.extend(
            times.map(|ns| ns.map_or("-".into(), |ns| fmt_duration(Duration::from_ns(ns)))).map(Value::plain),
        );
        Some((flow.name.clone(), row))
    };
    let columns = [
        "congestion control",
        "retransmissions",
        "fast retransmits",
        "timeouts",
        "window",
        "most",
        "threshold",
        "round trip",
        "RTO",
    ];
    blocks("stream", &columns, &results.flows.iter().filter_map(row).collect::<Vec<_>>(), colour)
}

/// The mean time in each segment.
pub(super) fn segments(results: &Results, colour: bool) -> String {
    let flows = results.flows.iter().map(|flow| (&flow.name, &flow.segments));
    let chains = results.chains.iter().map(|chain| (&chain.name, &chain.segments));
    let all: Vec<_> = flows.chain(chains).filter(|(_, segments)| !segments.is_empty()).collect();
    if all.is_empty() {
        return String::new();
    }
    let mean = |segments: &[SegmentResult], segment| {
        let part = segments.iter().find(|part| part.segment == segment);
        part.map_or("-".into(), |part| fmt_duration(part.time.mean()))
    };
    let used: Vec<Segment> = Segment::ALL
        .into_iter()
        .chain(Segment::HOST)
        .filter(|segment| all.iter().any(|(_, parts)| parts.iter().any(|part| part.segment == *segment)))
        .collect();
    let names: Vec<&str> = used.iter().map(|segment| segment.name()).collect();
    let row = |(name, parts): &(&String, &Vec<SegmentResult>)| -> Row {
        ((*name).clone(), used.iter().map(|&segment| Value::plain(mean(parts, segment))).collect())
    };
    let rows: Vec<Row> = all.iter().map(row).collect();
    lines("Where the packets' time went, on average:", "", colour) + &blocks("flow", &names, &rows, colour)
}

pub(super) fn latencies(results: &Results, colour: bool) -> String {
    histograms("flow", results.flows.iter().map(|flow| (flow.name.clone(), &flow.latency)), colour)
}

/// The mean of each part of requests through a Linux host's network stack: a row for each part, a column for
/// each server.
pub(super) fn parts(results: &Results, colour: bool) -> String {
    let servers: Vec<&FlowResult> = results.flows.iter().filter(|flow| !flow.parts.is_empty()).collect();
    if servers.is_empty() {
        return String::new();
    }
    let names: Vec<&str> = servers.iter().map(|flow| flow.name.as_str()).collect();
    let cell = |flow: &&FlowResult, part: HostPart| {
        let found = flow.parts.iter().find(|one| one.part == part);
        Value::plain(found.map_or("-".into(), |one| fmt_duration(one.time.mean())))
    };
    let used = |part: &HostPart| servers.iter().any(|flow| flow.parts.iter().any(|one| one.part == *part));
    let row = |part: HostPart| -> Row {
        let name = format!("{}: {}", part.segment().name(), part.name());
        (name, servers.iter().map(|flow| cell(flow, part)).collect())
    };
    let rows: Vec<Row> = HostPart::ALL.into_iter().filter(used).map(row).collect();
    lines("What the segments consist of, on average:", "", colour) + &blocks("part", &names, &rows, colour)
}

/// Every segment's distribution.
pub(super) fn segment_detail(results: &Results, colour: bool) -> String {
    let of = |name: &str, parts: &'_ [SegmentResult]| {
        let named = parts.iter().map(|part| (format!("{name}: {}", part.segment.name()), part.time.clone()));
        named.collect::<Vec<(String, Histogram)>>()
    };
    let flows = results.flows.iter().flat_map(|flow| of(&flow.name, &flow.segments));
    let all: Vec<(String, Histogram)> =
        flows.chain(results.chains.iter().flat_map(|chain| of(&chain.name, &chain.segments))).collect();
    histograms("segment", all.iter().map(|(name, time)| (name.clone(), time)), colour)
}

/// A row for each guest with sockets of its host.
pub(super) fn sockets(results: &Results, colour: bool) -> String {
    let row = |of: &SocketsResult| {
        let mut row = Vec::from(counts([of.calls]));
        row.push(Value { text: fmt_count(of.refused), bad: of.refused > 0 });
        row.extend(counts([of.interrupts]));
        for (_, time) in of.segments() {
            row.push(Value::plain(latency(time, time.mean())));
            row.push(Value::plain(latency(time, time.quantile_ppm(990_000))));
        }
        (of.domain.clone(), row)
    };
    let columns =
        ["calls", "refused", "interrupts", "host receive", "p99", "guest", "p99", "host send", "p99"];
    blocks("sockets of", &columns, &results.sockets.iter().map(row).collect::<Vec<_>>(), colour)
}

pub(super) fn networks(results: &Results, colour: bool) -> String {
    let row = |network: &punctual_model::results::NetworkResult| {
        let mut row = vec![Value::plain(network.driver.as_str()), Value::plain(network.discipline.as_str())];
        let of = [network.tx, network.softnet, network.rx, network.events_handled, network.events_sent];
        row.extend(counts(of));
        (network.name.clone(), row)
    };
    let columns = ["driver", "discipline", "TX", "softnet", "RX", "events handled", "events sent"];
    blocks("network", &columns, &results.networks.iter().map(row).collect::<Vec<_>>(), colour)
}
