//! What is compared: metrics of domains, tasks, vCPUs and pools, exact.

use punctual_model::results::{DropCounts, JobStats, PacketCounts, PortResult, SwitchResult, TaskResult};
use punctual_model::{Histogram, Results};
use punctual_sched::Duration;
use serde::Serialize;

use crate::format::{fmt_duration, fmt_rate, fmt_share};

/// A number that results have for each of some entities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Share of the jobs due that missed their deadline, by domain.
    Miss,
    /// Response time that 50 % of the finished jobs do not exceed, by domain.
    P50,
    /// Response time that 99 % of the finished jobs do not exceed, by domain.
    P99,
    /// Greatest response time, by domain.
    Max,
    /// Share of a processor, by vCPU.
    Cpu,
    Exhaustions,
    Decisions,
    /// Context switches, by pool; not of live runs, where they are not measured.
    Switches,
    /// Share of its processors that the enforcers of a pool took; of live runs.
    Enforcers,
    /// Overrun of a budget that 99 % of the exhaustions do not exceed, by pool; of live runs.
    Overrun,
    /// Lateness that 99 % of the replenishments do not exceed, by pool; of live runs.
    ReplenishedLate,
    /// Mean latency, by flow; of chains the mean response time.
    FlowMean,
    /// Latency that 50 % of the packets do not exceed, by flow; of chains of the response times.
    FlowP50,
    /// Latency that 99 % of the packets do not exceed, by flow; of chains of the response times.
    FlowP99,
    /// Packets delivered, by flow and by port of a live switch.
    Delivered,
    /// Packets dropped, by flow and by port of a live switch, each with the reason.
    Dropped,
}

/// What a metric's value is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// Part and whole; in millionths.
    Share(u64, u64),
    Time(Duration),
    /// A count and the time in which it was counted; in thousandths per second.
    Rate(u64, Duration),
}

/// How far a value is from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// In the unit of [`Value::exact`].
    pub absolute: i128,
    /// In millionths of the other value; nothing when that is 0 and this one is not.
    pub relative_ppm: Option<i128>,
}

impl Metric {
    /// Each of them, in the order of tables.
    pub const ALL: [Metric; 16] = [
        Metric::Miss,
        Metric::P50,
        Metric::P99,
        Metric::Max,
        Metric::Cpu,
        Metric::Exhaustions,
        Metric::Decisions,
        Metric::Switches,
        Metric::Enforcers,
        Metric::Overrun,
        Metric::ReplenishedLate,
        Metric::FlowMean,
        Metric::FlowP50,
        Metric::FlowP99,
        Metric::Delivered,
        Metric::Dropped,
    ];

    /// As on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Miss => "miss",
            Metric::P50 => "p50",
            Metric::P99 => "p99",
            Metric::Max => "max",
            Metric::Cpu => "cpu",
            Metric::Exhaustions => "exhaustions",
            Metric::Decisions => "decisions",
            Metric::Switches => "switches",
            Metric::Enforcers => "enforcers",
            Metric::Overrun => "overrun",
            Metric::ReplenishedLate => "replenished-late",
            Metric::FlowMean => "flow-mean",
            Metric::FlowP50 => "flow-p50",
            Metric::FlowP99 => "flow-p99",
            Metric::Delivered => "delivered",
            Metric::Dropped => "dropped",
        }
    }

    /// For the head of a table.
    pub fn title(self) -> &'static str {
        match self {
            Metric::Miss => "Missed deadlines",
            Metric::P50 => "Response time, p50",
            Metric::P99 => "Response time, p99",
            Metric::Max => "Response time, max",
            Metric::Cpu => "Processor share",
            Metric::Exhaustions => "Budget exhaustions",
            Metric::Decisions => "Scheduling decisions",
            Metric::Switches => "Context switches",
            Metric::Enforcers => "Enforcers' share",
            Metric::Overrun => "Budget overrun, p99",
            Metric::ReplenishedLate => "Replenished late, p99",
            Metric::FlowMean => "Latency of packets, mean",
            Metric::FlowP50 => "Latency of packets, p50",
            Metric::FlowP99 => "Latency of packets, p99",
            Metric::Delivered => "Packets delivered",
            Metric::Dropped => "Packets dropped",
        }
    }

    /// The unit of [`Value::exact`].
    pub fn unit(self) -> &'static str {
        match self {
            Metric::Miss | Metric::Cpu | Metric::Enforcers => "ppm",
            Metric::P50 | Metric::P99 | Metric::Max | Metric::Overrun | Metric::ReplenishedLate => "ns",
            Metric::FlowMean | Metric::FlowP50 | Metric::FlowP99 => "ns",
            Metric::Exhaustions | Metric::Decisions | Metric::Switches => "per_1000_s",
            Metric::Delivered | Metric::Dropped => "per_1000_s",
        }
    }

    /// Is a difference judged by itself, not in relation to the first value?
    pub(crate) fn is_share(self) -> bool {
        self.unit() == "ppm"
    }

    /// Is a value not worth a row, if all are like this one? A reason for which nothing was dropped.
    pub fn hides(self, value: Value) -> bool {
        self == Metric::Dropped && value.exact() == 0
    }

    /// The names of what the results have it for; with `detail`, tasks of domains as well.
    pub fn entities(self, results: &Results, detail: bool) -> Vec<String> {
        match self {
            Metric::Miss | Metric::P50 | Metric::P99 | Metric::Max => {
                let in_domain = |task: &&TaskResult| results.domains.iter().any(|d| d.name == task.parent);
                let tasks = results.tasks.iter().filter(|task| detail || !in_domain(task));
                let domains = results.domains.iter().map(|domain| domain.name.clone());
                domains.chain(tasks.map(task_name)).collect()
            }
            Metric::Cpu | Metric::Exhaustions => results.vcpus.iter().map(|vcpu| vcpu.name.clone()).collect(),
            Metric::Decisions
            | Metric::Switches
            | Metric::Enforcers
            | Metric::Overrun
            | Metric::ReplenishedLate => results.pools.iter().map(|pool| pool.name.clone()).collect(),
            Metric::FlowMean | Metric::FlowP50 | Metric::FlowP99 => {
                let chains = results.chains.iter().map(|chain| chain.name.clone());
                results.flows.iter().map(|flow| flow.name.clone()).chain(chains).collect()
            }
            Metric::Delivered => delivered(results).map(|(name, _)| name).collect(),
            Metric::Dropped => drops(results).map(|(name, _)| name).collect(),
        }
    }

    /// Its value for an entity; `None` when there is nothing to measure it by.
    pub fn of(self, results: &Results, entity: &str) -> Option<Value> {
        let time = Duration::from_ns(results.duration_ns.saturating_mul(results.runs.into()));
        let jobs = || jobs(results, entity);
        let response = |ppm| {
            let response = &jobs()?.response;
            (response.count() > 0).then(|| Value::Time(response.quantile_ppm(ppm)))
        };
        let vcpu = || results.vcpus.iter().find(|vcpu| vcpu.name == entity);
        let pool = || results.pools.iter().find(|pool| pool.name == entity);
        let enforcement = || pool()?.enforcement.as_ref();
        let p99 = |of: &Histogram| (of.count() > 0).then(|| Value::Time(of.quantile_ppm(990_000)));
        let latency = || latency(results, entity).filter(|of| of.count() > 0);
        let rate = |mut counts: Counts<'_>| {
            counts.find(|(name, _)| name == entity).map(|(_, count)| Value::Rate(count, time))
        };
        match self {
            Metric::Miss => {
                jobs().filter(|jobs| jobs.due > 0).map(|jobs| Value::Share(jobs.missed, jobs.due))
            }
            Metric::P50 => response(500_000),
            Metric::P99 => response(990_000),
            Metric::Max => response(1_000_000),
            Metric::Cpu => vcpu().map(|vcpu| Value::Share(vcpu.cpu_time_ns, time.as_ns())),
            Metric::Exhaustions => vcpu()?.counts.map(|counts| Value::Rate(counts.exhaustions, time)),
            Metric::Decisions => pool()?.decisions.map(|decisions| Value::Rate(decisions, time)),
            Metric::Switches => pool()?.context_switches.map(|switches| Value::Rate(switches, time)),
            Metric::Enforcers => enforcement().map(|done| Value::Share(done.enforcer_ns, done.session_ns)),
            Metric::Overrun => enforcement().and_then(|done| p99(&done.overrun)),
            Metric::ReplenishedLate => enforcement().and_then(|done| p99(&done.replenishment_lateness)),
            Metric::FlowMean => latency().map(|of| Value::Time(of.mean())),
            Metric::FlowP50 => latency().map(|of| Value::Time(of.quantile_ppm(500_000))),
            Metric::FlowP99 => latency().and_then(p99),
            Metric::Delivered => rate(Box::new(delivered(results))),
            Metric::Dropped => rate(Box::new(drops(results))),
        }
        // A run of no length has no rate and no share.
        .filter(|value| !matches!(value, Value::Share(_, 0) | Value::Rate(_, Duration::ZERO)))
    }
}

/// Latencies of a flow, or response times of a chain.
fn latency<'a>(results: &'a Results, entity: &str) -> Option<&'a Histogram> {
    let flow = results.flows.iter().find(|flow| flow.name == entity).map(|flow| &flow.latency);
    flow.or_else(|| {
        results.chains.iter().find(|chain| chain.name == entity).map(|chain| &chain.jobs.response)
    })
}

type Counts<'a> = Box<dyn Iterator<Item = (String, u64)> + 'a>;

/// Packets that were delivered: of flows and chains, and of ports.
fn delivered(results: &Results) -> impl Iterator<Item = (String, u64)> {
    let ports = ports(results).map(|(name, port)| (name, port.delivered.packets));
    packets(results).map(|(name, packets)| (name.clone(), packets.delivered)).chain(ports)
}

/// Packets that were dropped, with the reason; a reason of a flow is there in all results.
fn drops(results: &Results) -> impl Iterator<Item = (String, u64)> {
    let of_flows = packets(results).flat_map(|(name, packets)| {
        let DropCounts { send_queue, nic, softnet, destination_ring, unknown } = packets.dropped;
        let reasons = [
            ("send_queue", send_queue),
            ("nic", nic),
            ("softnet", softnet),
            ("destination_ring", destination_ring),
            ("unknown", unknown),
        ];
        reasons.map(|(reason, count)| (format!("{name}: {reason}"), count))
    });
    let of_ports = ports(results).flat_map(|(name, port)| {
        let reasons = port.dropped.by_reason();
        reasons.map(|(reason, count)| (format!("{name}: {reason}"), count))
    });
    of_flows.chain(of_ports)
}

fn packets(results: &Results) -> impl Iterator<Item = (&String, &PacketCounts)> {
    let chains = results.chains.iter().map(|chain| (&chain.name, &chain.packets));
    results.flows.iter().map(|flow| (&flow.name, &flow.packets)).chain(chains)
}

/// The ports of switches, with their networks.
fn ports(results: &Results) -> impl Iterator<Item = (String, &PortResult)> {
    let of = |switch: &SwitchResult, port: &PortResult| format!("port {}/{}", switch.network, port.name);
    let all = results.switches.iter().flat_map(|switch| switch.ports.iter().map(move |port| (switch, port)));
    all.map(move |(switch, port)| (of(switch, port), port))
}

/// A task with its parent, unique in a host.
pub(super) fn task_name(task: &TaskResult) -> String {
    format!("{}/{}", task.parent, task.name)
}

fn jobs<'a>(results: &'a Results, entity: &str) -> Option<&'a JobStats> {
    let domain = results.domains.iter().find(|domain| domain.name == entity).map(|domain| &domain.jobs);
    domain.or_else(|| results.tasks.iter().find(|task| task_name(task) == entity).map(|task| &task.jobs))
}

impl Value {
    /// As a whole number, rounded to nearest.
    pub fn exact(self) -> u64 {
        let ratio = |part: u64, scale: u128, whole: u64| {
            let whole = u128::from(whole.max(1));
            u64::try_from((u128::from(part) * scale + whole / 2) / whole).unwrap_or(u64::MAX)
        };
        match self {
            Value::Share(part, whole) => ratio(part, 1_000_000, whole),
            Value::Time(time) => time.as_ns(),
            Value::Rate(count, time) => ratio(count, 1000 * 1_000_000_000, time.as_ns()),
        }
    }

    pub fn difference(self, first: &Value) -> Difference {
        let (value, first) = (i128::from(self.exact()), i128::from(first.exact()));
        let absolute = value - first;
        let relative_ppm = match first {
            0 => (absolute == 0).then_some(0),
            _ => Some(absolute * 1_000_000 / first),
        };
        Difference { absolute, relative_ppm }
    }

    pub fn show(self) -> String {
        match self {
            Value::Share(part, whole) => fmt_share(part, whole),
            Value::Time(time) => fmt_duration(time),
            Value::Rate(count, time) => fmt_rate(count, time),
        }
    }

    /// The difference to `first` for people: percentage points of shares, else percent of `first`.
    pub(crate) fn show_difference(self, first: &Value) -> String {
        let difference = self.difference(first);
        match (self, difference.relative_ppm) {
            _ if difference.absolute == 0 => "0".into(),
            (Value::Share(..), _) => signed_percent(difference.absolute) + " points",
            (Value::Time(_), Some(ppm)) => {
                let ns = u64::try_from(difference.absolute.unsigned_abs()).unwrap_or(u64::MAX);
                let sign = if difference.absolute < 0 { "-" } else { "+" };
                format!("{sign}{} ({})", fmt_duration(Duration::from_ns(ns)), signed_percent(ppm) + " %")
            }
            (Value::Rate(..), Some(ppm)) => signed_percent(ppm) + " %",
            (_, None) => "from 0".into(),
        }
    }
}

/// Millionths in percent with one decimal and a sign, never 0 for what is not.
pub(crate) fn signed_percent(ppm: i128) -> String {
    let sign = if ppm < 0 { '-' } else { '+' };
    let permille = (ppm.unsigned_abs() + 500) / 1000;
    match permille {
        0 => format!("{sign}<0.1"),
        _ => format!("{sign}{}.{}", permille / 10, permille % 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{disturbed, results};

    #[test]
    fn differences_are_to_the_first_value() {
        let ms = |ms| Value::Time(Duration::from_ms(ms));
        assert_eq!(ms(12).show_difference(&ms(10)), "+2.00 ms (+20.0 %)");
        assert_eq!(ms(8).show_difference(&ms(10)), "-2.00 ms (-20.0 %)");
        assert_eq!(ms(0).difference(&ms(0)), Difference { absolute: 0, relative_ppm: Some(0) });
        assert_eq!(ms(1).difference(&ms(0)), Difference { absolute: 1_000_000, relative_ppm: None });
        assert_eq!(ms(1).show_difference(&ms(0)), "from 0");
        let share = |part| Value::Share(part, 1000);
        assert_eq!(share(25).show_difference(&share(10)), "+1.5 points");
        assert_eq!(share(10).show_difference(&share(10)), "0");
        let rate = |count, secs| Value::Rate(count, Duration::from_secs(secs));
        assert_eq!(rate(100, 10).show_difference(&rate(10, 1)), "0");
        assert_eq!(rate(1001, 10).show_difference(&rate(1000, 10)), "+0.1 %");
        assert_eq!(rate(100_001, 10).show_difference(&rate(100_000, 10)), "+<0.1 %");
    }

    #[test]
    fn what_was_not_measured_has_no_value() {
        let simulated = results("rtds", 24);
        let live = disturbed(results("rtds", 24));
        let has = |metric: Metric| [&simulated, &live].map(|of| metric.of(of, "main").is_some());
        assert_eq!(has(Metric::Switches), [true, false]);
        for metric in [Metric::Enforcers, Metric::Overrun, Metric::ReplenishedLate] {
            assert_eq!(has(metric), [false, true], "{metric:?}");
        }
        assert_eq!(Metric::Enforcers.of(&live, "main").map(Value::exact), Some(13_500));
    }

    #[test]
    fn numbers_from_a_file_may_be_of_any_size() {
        let most = Value::Rate(u64::MAX, Duration::from_ns(1));
        assert_eq!(most.exact(), u64::MAX);
        let least = Value::Rate(0, Duration::from_ns(1));
        assert_eq!(most.show_difference(&least), "from 0");
        assert!(least.show_difference(&most).starts_with("-100.0"));
    }
}
