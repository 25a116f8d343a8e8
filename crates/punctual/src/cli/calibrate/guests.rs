//! What packets cost the project's guest in a VM on this machine.
//!
//! Two VMs share a processor, as VMs of a pool do. First one sends to the other as fast as it can: what each
//! of them executed, by its packets, is what a packet costs a guest that has many. Then they exchange pings
//! with pauses, in which both guests and everything between them go to sleep. The simulator says how long
//! such a round trip takes if waking up costs a guest nothing; the rest belongs to its three wake-ups: for
//! the timer, for the request, for the answer.

use punctual_live::run::DefaultBackend;
use punctual_model::Results;
use punctual_model::file::edit::{with_network_costs, with_overheads};
use punctual_model::file::{Overrides, parse};
use punctual_model::results::FlowResult;
use punctual_sched::servers::deferrable;
use punctual_sched::{Duration, fixed_priority};
use serde::Serialize;

use super::super::error::Error;
use super::super::live::{How, SwitchOptions, measured};
use super::super::output::Ui;

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
budget = "5ms"
period = "10ms"
priority = 1

[domain.b]
pool = "guests"
budget = "5ms"
period = "10ms"
priority = 1

[network.lan]
driver = "switch"
"#;

/// The host with these flows, as text.
fn host(seconds: u32, flows: &str) -> String {
    let host = HOST.replace("DRIVER", fixed_priority::NAME).replace("GUESTS", deferrable::NAME);
    format!("duration = \"{seconds}s\"\n{host}{flows}")
}

/// As fast as the sender can.
const STORM: &str = r#"
[flow.storm]
kind = "storm"
from = "a"
to = "b"
bytes = 98
"#;

/// One after the other, with pauses in which everybody goes to sleep.
const PING: &str = r#"
[flow.ping]
kind = "ping"
from = "a"
to = "b"
pause = "20ms"
"#;

/// Wake-ups of guests in a round trip.
const WAKE_UPS: u64 = 3;

/// What packets cost guests.
#[derive(Clone, Debug, Serialize)]
pub struct GuestCosts {
    /// Processor time for each packet that a guest sends, one after the other.
    pub send_ns: u64,
    /// The same for packets that it receives.
    pub receive_ns: u64,
    /// Packets that were sent, and received, in a second of each guest's processor time.
    pub packets: [u64; 2],
    /// Median of the round trips, with everything asleep in between; how many there were.
    pub round_trip_ns: u64,
    /// How many.
    pub round_trips: u64,
    /// What the simulator says of it without the wake-ups.
    pub simulated_ns: u64,
}

impl GuestCosts {
    /// The keys of a network's costs.
    pub fn keys(&self) -> [(&'static str, Duration); 3] {
        let wake_ns = self.round_trip_ns.saturating_sub(self.simulated_ns) / WAKE_UPS;
        // The file takes no guest that sends in no time.
        let at_least = |ns: u64| Duration::from_ns(ns.max(100));
        [
            ("guest_send", at_least(self.send_ns)),
            ("guest_receive", at_least(self.receive_ns)),
            ("guest_wake", Duration::from_ns(wake_ns)),
        ]
    }

    /// What was found, for people.
    pub fn text(&self) -> String {
        let us = |ns: u64| format!("{:.1} us", ns as f64 / 1e3);
        let mut out = format!(
            "Guests: {} a packet that is sent, {} that is received ({} and {} packets); {} round trips with \
             pauses, median {}, of which {} without wake-ups\n\n[network.NAME.costs]\n",
            us(self.send_ns),
            us(self.receive_ns),
            self.packets[0],
            self.packets[1],
            self.round_trips,
            us(self.round_trip_ns),
            us(self.simulated_ns),
        );
        for (key, time) in self.keys() {
            out += &format!("{key} = \"{time}\"\n");
        }
        out
    }
}

/// Boots the VMs, twice, for `seconds` each. `overheads` and `costs` are what else was measured here.
pub fn measure(
    seconds: u32,
    overheads: &[(&'static str, Duration)],
    costs: &[(&'static str, Duration)],
    say: &dyn Fn(&str),
    ui: &Ui,
) -> Result<GuestCosts, Error> {
    let run = |flow: &str| -> Result<Results, Error> {
        let how = How {
            default_backend: DefaultBackend::Vm,
            linux: None,
            switches: SwitchOptions { one_plane: true, ..SwitchOptions::default() },
            say,
        };
        let host = parse(&host(seconds, flow), "guests", &Overrides::default())?;
        measured(&host, how, ui)
    };
    let storm = run(STORM)?;
    let ping = run(PING)?;
    let of_port = |name: &str| {
        let ports = storm.switches.iter().flat_map(|switch| &switch.ports);
        ports.clone().find(|port| port.name == name)
    };
    let executed = |name: &str| {
        let domain = storm.domains.iter().find(|domain| domain.name == name);
        domain.map_or(0, |domain| domain.cpu_time_ns)
    };
    let sent = of_port("a").map_or(0, |port| port.sent.packets);
    let received = of_port("b").map_or(0, |port| port.received.packets);
    let [round_trips] = &ping.flows[..] else { return Err(too_few()) };
    if sent < 100 || received < 100 || round_trips.latency.count() < 10 {
        return Err(too_few());
    }
    let mut guests = GuestCosts {
        send_ns: executed("a") / sent,
        receive_ns: executed("b") / received,
        packets: [sent, received],
        round_trip_ns: median_ns(round_trips),
        round_trips: round_trips.latency.count(),
        simulated_ns: 0,
    };
    let keys = guests.keys();
    let own = [keys[0], keys[1]];
    let text = with_overheads(&host(seconds, PING), overheads);
    let text = text.and_then(|text| with_network_costs(&text, "lan", costs));
    let text = text.and_then(|text| with_network_costs(&text, "lan", &own)).unwrap_or_default();
    let simulated = punctual_sim::simulate(&parse(&text, "guests", &Overrides::default())?)?;
    guests.simulated_ns = simulated.flows.first().map_or(0, median_ns);
    Ok(guests)
}

fn median_ns(flow: &FlowResult) -> u64 {
    flow.latency.quantile_ppm(500_000).as_ns()
}

fn too_few() -> Error {
    Error::Usage("the guests exchanged too few packets to say what one costs; try a longer --seconds".into())
}
