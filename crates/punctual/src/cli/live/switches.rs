//! What a switch counted, for people.

use std::fmt::Write as _;

use punctual_model::results::SwitchResult;
use punctual_model::text::printable;
use punctual_sched::Duration;

/// A line for each port and each plane; the latency is that inside the switch.
pub(crate) fn table(of: &SwitchResult, elapsed: Duration) -> String {
    let mut text = String::from(
        "port              sent  delivered    dropped   received   latency p50        p99        max\n",
    );
    for port in &of.ports {
        let us = |time: Duration| format!("{}.{} us", time.as_ns() / 1_000, time.as_ns() % 1_000 / 100);
        let latency = &port.latency;
        let _ = writeln!(
            text,
            "{:<12} {:>9} {:>10} {:>10} {:>10} {:>13} {:>10} {:>10}",
            printable(&port.name),
            port.sent.packets,
            port.delivered.packets,
            port.dropped.of_sent(),
            port.received.packets,
            us(latency.quantile_ppm(500_000)),
            us(latency.quantile_ppm(990_000)),
            us(latency.max()),
        );
    }
    text.push_str("plane          packets  processor   wake-ups     budget    used up\n");
    for plane in &of.planes {
        let share = |part: u64, whole: u64| {
            let per_mille = u128::from(part) * 1_000 / u128::from(whole.max(1));
            format!("{}.{} %", per_mille / 10, per_mille % 10)
        };
        let budget = plane.budget_ns.zip(plane.period_ns);
        let _ = writeln!(
            text,
            "{:<12} {:>9} {:>10} {:>10} {:>10} {:>10}",
            printable(&plane.name),
            plane.rx,
            share(plane.processor_ns, elapsed.as_ns()),
            plane.wakeups,
            budget.map_or("-".into(), |(budget, period)| share(budget, period)),
            plane.exhaustions,
        );
    }
    text
}
