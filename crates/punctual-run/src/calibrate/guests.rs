//! What packets cost the project's guest in a VM on this machine.
//!
//! Two VMs share a processor, as VMs of a pool do. First one sends to the other as fast as it can, three
//! times: short packets, long ones, and short ones with a smaller budget. A guest that uses its budget up
//! spends all of it on packets and on going on after it was parked; what packets it managed with two budgets
//! says which is which. Then a host outside pings a VM with pauses, in which the guest and everything between
//! them go to sleep; and again while the other VM, less urgent, never rests, so that the processor does not
//! sleep. The simulator says how long such a round trip takes if waking up costs a guest nothing; the rest is
//! the guest's wake-up, and how that is distributed is known.

use punctual_model::Results;
use punctual_model::file::edit::{with_network_costs, with_overheads};
use punctual_model::file::{Overrides, parse};
use punctual_model::results::FlowResult;
use punctual_sched::servers::deferrable;
use punctual_sched::{Duration, fixed_priority};
use serde::Serialize;

use super::error::Error;
use super::machine::Machine;

/// Two VMs on one processor, the switch on the other.
const HOST: &str = r#"
name = "what packets cost guests"

[machine]
processors = 2

[pool.driver]
processors = [0]
policy = "DRIVER"

[pool.guests]
processors = [1]
policy = "GUESTS"

[domain.switch]
pool = "driver"
priority = 1

[domain.a]
pool = "guests"
budget = "BUDGET"
period = "PERIOD"
priority = 1

[domain.b]
pool = "guests"
OTHER

[network.lan]
driver = "switch"
"#;

/// Budget and period of each VM in ms: half of the processor, and a tenth of it in long periods.
const LARGE: (u64, u64) = (5, 10);
const SMALL: (u64, u64) = (2, 20);

/// The other VM: as the first one, or less urgent and never at rest, with all that the first one leaves.
const ALIKE: &str = r#"budget = "BUDGET"
period = "PERIOD"
priority = 1"#;
const BUSY: &str = r#"budget = "PERIOD"
period = "PERIOD"
priority = 2
task.burn = { hog = true }"#;

/// The host with these budgets, other VM and flows, as text.
fn host(seconds: u32, (budget, period): (u64, u64), other: &str, flows: &str) -> String {
    let host = HOST.replace("OTHER", other);
    let host = host.replace("DRIVER", fixed_priority::NAME).replace("GUESTS", deferrable::NAME);
    let host = host.replace("BUDGET", &format!("{budget}ms")).replace("PERIOD", &format!("{period}ms"));
    format!("duration = \"{seconds}s\"\n{host}{flows}")
}

/// Lengths of packets.
const SHORT: u64 = 98;
const LONG: u64 = 1514;

/// As fast as the sender can.
fn storm(bytes: u64) -> String {
    format!("[flow.storm]\nkind = \"storm\"\nfrom = \"a\"\nto = \"b\"\nbytes = {bytes}\n")
}

/// One after the other, with pauses in which everybody goes to sleep.
const PING: &str = r#"
[network.lan.outside.monitor]
turnaround = "0ns"

[flow.ping]
kind = "ping"
from = "monitor"
to = "a"
pause = "20ms"
"#;

/// The quantiles of a wake-up.
const QUANTILES_PPM: [u32; 4] = [100_000, 500_000, 900_000, 990_000];

/// Their keys, where the processor was idle and where it was busy.
const KEYS: [[&str; 4]; 2] = [
    ["guest_wake_p10", "guest_wake", "guest_wake_p90", "guest_wake_p99"],
    ["guest_wake_busy_p10", "guest_wake_busy", "guest_wake_busy_p90", "guest_wake_busy_p99"],
];

/// Round trips of a host outside, with pauses.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct RoundTrips {
    /// Their quantiles p10, p50, p90 and p99.
    pub quantiles_ns: [u64; 4],
    /// How many.
    pub count: u64,
    /// What the simulator says of one without the wake-up.
    pub simulated_ns: u64,
}

/// What a guest that did nothing but send, or receive, managed with its budget.
#[derive(Clone, Copy, Debug, Serialize)]
struct Managed {
    /// Budget.
    budget_ns: u64,
    /// Did it use its budgets up?
    is_exhausted: bool,
    /// Packets in each budget, in thousandths.
    packets_milli: u64,
    /// Processor time for each packet, everything included.
    each_ns: u64,
}

impl Managed {
    /// `packets` of a guest that executed for so long in a run.
    fn of(packets: u64, executed_ns: u64, (budget_ms, period_ms): (u64, u64), duration_ns: u64) -> Managed {
        let (budget_ns, granted_ns) = (budget_ms * 1_000_000, duration_ns / period_ms * budget_ms);
        let each_ns = (executed_ns / packets.max(1)).max(1);
        let is_exhausted = executed_ns > granted_ns / 100 * 95;
        Managed { budget_ns, is_exhausted, packets_milli: budget_ns * 1_000 / each_ns, each_ns }
    }

    /// What a packet takes if going on takes so long once in a budget that is used up.
    fn packet_ns(&self, resume_ns: u64) -> u64 {
        if self.is_exhausted {
            self.budget_ns.saturating_sub(resume_ns) * 1_000 / self.packets_milli.max(1)
        } else {
            self.each_ns
        }
    }
}

/// What going on after it was parked takes a guest, which managed this with two budgets.
fn resume_ns(large: &Managed, small: &Managed) -> u64 {
    let packets_milli = large.packets_milli.saturating_sub(small.packets_milli);
    if !(large.is_exhausted && small.is_exhausted) || packets_milli == 0 {
        return 0;
    }
    let packet_ns = (large.budget_ns - small.budget_ns) * 1_000 / packets_milli;
    let packets_ns = u128::from(packet_ns) * u128::from(large.packets_milli) / 1_000;
    large.budget_ns.saturating_sub(packets_ns as u64)
}

/// What packets cost guests.
#[derive(Clone, Debug, Serialize)]
pub struct GuestCosts {
    /// Processor time for each packet without bytes that a guest sends, one after the other.
    pub send_ns: u64,
    /// The same for packets that it receives.
    pub receive_ns: u64,
    /// More for each 1024 bytes that it sends.
    pub send_per_kib_ns: u64,
    /// More for each 1024 bytes that it receives.
    pub receive_per_kib_ns: u64,
    /// For going on after it was parked.
    pub resume_ns: u64,
    /// Of short packets, long ones, and short ones with a smaller budget: what the sender and the receiver
    /// managed.
    managed: [[Managed; 2]; 3],
    /// With everything asleep in between, and with the guest's processor busy.
    pub round_trips: [RoundTrips; 2],
}

/// A straight line through the costs of a short and of a long packet: that of one without bytes, and that of
/// 1024 bytes.
fn line(short_ns: u64, long_ns: u64) -> (u64, u64) {
    let per_kib = long_ns.saturating_sub(short_ns) * 1024 / (LONG - SHORT);
    (short_ns.saturating_sub(per_kib * SHORT / 1024), per_kib)
}

impl GuestCosts {
    /// From what the guests managed; round trips are not known yet.
    fn of(managed: [[Managed; 2]; 3]) -> GuestCosts {
        let [short, long, small] = &managed;
        let resume_ns = resume_ns(&short[0], &small[0]);
        let of = |end: usize| line(short[end].packet_ns(resume_ns), long[end].packet_ns(resume_ns));
        let ((send_ns, send_per_kib_ns), (receive_ns, receive_per_kib_ns)) = (of(0), of(1));
        GuestCosts {
            // The file takes no guest that sends in no time.
            send_ns: send_ns.max(100),
            receive_ns: receive_ns.max(100),
            send_per_kib_ns,
            receive_per_kib_ns,
            resume_ns,
            managed,
            round_trips: [RoundTrips::default(); 2],
        }
    }

    /// The keys of a network's costs.
    pub fn keys(&self) -> Vec<(&'static str, Duration)> {
        let packets = [
            ("guest_send", self.send_ns),
            ("guest_receive", self.receive_ns),
            ("guest_send_per_kib", self.send_per_kib_ns),
            ("guest_receive_per_kib", self.receive_per_kib_ns),
            ("guest_resume", self.resume_ns),
        ];
        let wakes = KEYS.into_iter().zip(&self.round_trips).flat_map(|(keys, trips)| {
            let wakes_ns = trips.quantiles_ns.map(|ns| ns.saturating_sub(trips.simulated_ns));
            keys.into_iter().zip(wakes_ns)
        });
        packets.into_iter().chain(wakes).map(|(key, ns)| (key, Duration::from_ns(ns))).collect()
    }
}

/// Boots the VMs, five times, for `seconds` each. `overheads` and `costs` are what else was measured here.
pub(super) fn measure(
    seconds: u32,
    overheads: &[(&'static str, Duration)],
    costs: &[(&'static str, Duration)],
    machine: &Machine<'_>,
) -> Result<GuestCosts, Error> {
    let carried_out = |text: &str| -> Result<Results, Error> {
        let host = parse(text, "guests", &Overrides::default())?;
        machine.results_of(&host)
    };
    let manages = |budget: (u64, u64), bytes: u64| {
        managed(&carried_out(&host(seconds, budget, ALIKE, &storm(bytes)))?, budget)
    };
    let managed = [manages(LARGE, SHORT)?, manages(LARGE, LONG)?, manages(SMALL, SHORT)?];
    let mut guests = GuestCosts::of(managed);
    let own: Vec<_> = guests.keys().into_iter().filter(|(key, _)| !key.starts_with("guest_wake")).collect();
    for (other, trips) in [ALIKE, BUSY].into_iter().zip(&mut guests.round_trips) {
        let text = host(seconds, LARGE, other, PING);
        let pings = carried_out(&text)?;
        let [flow] = &pings.flows[..] else { return Err(too_few()) };
        if flow.latency.count() < 10 {
            return Err(too_few());
        }
        // Hosts outside are at the switch: there is no card.
        let card = "[network.lan.nic]\nbandwidth = \"1000Gbit/s\"\ndelay = \"0ns\"\n";
        let text = with_overheads(&(text + card), overheads);
        let text = text.and_then(|text| with_network_costs(&text, "lan", costs));
        let text = text.and_then(|text| with_network_costs(&text, "lan", &own)).unwrap_or_default();
        let simulated = punctual_sim::simulate(&parse(&text, "guests", &Overrides::default())?)?;
        *trips = RoundTrips {
            quantiles_ns: QUANTILES_PPM.map(|ppm| flow.latency.quantile_ppm(ppm).as_ns()),
            count: flow.latency.count(),
            simulated_ns: simulated.flows.first().map_or(0, median_ns),
        };
    }
    Ok(guests)
}

/// What sender and receiver managed in a run.
fn managed(storm: &Results, budget: (u64, u64)) -> Result<[Managed; 2], Error> {
    let of_port = |name: &str| {
        let mut ports = storm.switches.iter().flat_map(|switch| &switch.ports);
        ports.find(|port| port.name == name)
    };
    let executed = |name: &str| {
        let domain = storm.domains.iter().find(|domain| domain.name == name);
        domain.map_or(0, |domain| domain.cpu_time_ns)
    };
    let sent = of_port("a").map_or(0, |port| port.sent.packets);
    let received = of_port("b").map_or(0, |port| port.received.packets);
    if sent < 100 || received < 100 {
        return Err(too_few());
    }
    Ok([("a", sent), ("b", received)]
        .map(|(name, packets)| Managed::of(packets, executed(name), budget, storm.duration_ns)))
}

fn median_ns(flow: &FlowResult) -> u64 {
    flow.latency.quantile_ppm(500_000).as_ns()
}

fn too_few() -> Error {
    Error::TooFew
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_budgets_manage_says_what_a_packet_takes_and_what_going_on() {
        // 13 us a packet and 10 us for 1024 bytes, and 0.9 ms once in a budget.
        let managed = |(budget, period): (u64, u64), packet_ns: u64| {
            let periods = 10_000 / period;
            let packets = (budget * 1_000_000 - 900_000) * periods / packet_ns;
            Managed::of(packets, budget * 1_000_000 * periods, (budget, period), 10_000_000_000)
        };
        let long_ns = 13_000 + 10_000 * (LONG - SHORT) / 1024;
        let idle = Managed::of(10_000, 50_000_000, LARGE, 10_000_000_000);
        let ends = |managed: Managed| [managed, idle];
        let costs = [managed(LARGE, 13_000), managed(LARGE, long_ns), managed(SMALL, 13_000)].map(ends);
        let costs = GuestCosts::of(costs);
        let near = |is: u64, wanted: u64| is.abs_diff(wanted) <= wanted / 100;
        assert!(near(costs.resume_ns, 900_000), "{costs:?}");
        assert!(near(costs.send_per_kib_ns, 10_000), "{costs:?}");
        assert!(near(costs.send_ns, 13_000 - 10_000 * SHORT / 1024), "{costs:?}");
        assert_eq!((costs.receive_ns, costs.receive_per_kib_ns), (5_000, 0), "it was never parked");
    }
}
