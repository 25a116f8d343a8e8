//! What the steps of a switch cost: one measurement for each network of the host file.

use std::sync::Arc;
use std::time::Duration as Time;

use punctual_linux::os::sched;
use punctual_model::{Host, Recorder};
use punctual_net::discipline::DisciplineInfo;
use punctual_net::{netback, registry};
use punctual_report::format::{fmt_count, fmt_duration};
use punctual_report::table;
use punctual_sched::Duration;
use punctual_sched::registry::Options;
use punctual_switch::costs::{self, Costs, Setting};
use serde::Serialize;

use super::super::error::Error;
use super::super::interrupt;
use super::super::output::wrapped;
use super::super::switch::with_source;
use super::COLUMNS;

/// What is measured: a network's discipline.
pub struct Subject {
    network: Option<String>,
    discipline: &'static DisciplineInfo,
    options: Options,
}

impl Subject {
    /// The networks of a host file, or netback where there are none.
    pub fn all(host: Option<&Host>) -> Vec<Subject> {
        let networks = host.map_or(&[][..], |host| &host.networks);
        if networks.is_empty() {
            let discipline = registry::find(netback::INFO.name).expect("a discipline of the registry");
            return vec![Subject { network: None, discipline, options: Options::new() }];
        }
        let subject = |network: &punctual_model::network::Network| Subject {
            network: Some(network.name.clone()),
            discipline: network.discipline.info,
            options: network.discipline.options.clone(),
        };
        networks.iter().map(subject).collect()
    }

    /// Measures for so long, with the plane on one processor and the drivers on the other.
    pub fn measure(&self, processors: [usize; 2], time: Time) -> Result<SwitchCosts, Error> {
        let place = |processor: usize| -> Arc<dyn Fn() + Send + Sync> {
            Arc::new(move || {
                // The processors are those that this process may use.
                let _ = sched::set_affinity(0, &[processor]);
            })
        };
        let setting = Setting {
            discipline: self.discipline,
            options: self.options.clone(),
            plane: place(processors[0]),
            drivers: place(processors[1]),
            time,
        };
        let costs = costs::measure(&setting, &interrupt::stopped);
        let times = costs.map_err(|error| Error::Usage(format!("the switch: {}", with_source(&error))))?;
        if interrupt::stopped() {
            return Err(Error::Interrupted);
        }
        let costs_ns = times.keys().into_iter().map(|(key, time)| (key.to_owned(), time.as_ns().into()));
        Ok(SwitchCosts {
            network: self.network.clone(),
            discipline: self.discipline.name,
            processor: processors[0],
            drivers_processor: processors[1],
            costs_ns: costs_ns.collect(),
            times,
        })
    }
}

/// What was measured of a network's switch.
#[derive(Serialize)]
pub struct SwitchCosts {
    /// Of the host file, if it has one.
    pub network: Option<String>,
    discipline: &'static str,
    processor: usize,
    drivers_processor: usize,
    times: Costs,
    costs_ns: serde_json::Map<String, serde_json::Value>,
}

impl SwitchCosts {
    /// The keys of the network's costs.
    pub fn keys(&self) -> [(&'static str, Duration); 7] {
        self.times.keys()
    }

    /// A table, methods, and the costs.
    pub fn text(&self, colour: bool) -> String {
        let rows: [(&str, &Recorder, &str); 6] = [
            (
                "wake-up",
                &self.times.wake,
                "From before a driver on another processor rings until the plane's thread, which slept, is \
                 at work.",
            ),
            (
                "TX",
                &self.times.tx,
                "Looking at the ports' rings, reading a frame's descriptors and addresses, the discipline's \
                 decision and what it notes.",
            ),
            ("softnet", &self.times.softnet, "The same without a frame to read; the receiver's buffers."),
            ("RX, 64 bytes", &self.times.rx, "The frame is copied, and its buffer goes back to the sender."),
            ("RX, 1514 bytes", &self.times.rx_long, "The same for a long frame."),
            ("event", &self.times.event, "The receiver, which sleeps, is told: a write to its eventfd."),
        ];
        let title = format!(
            "Switch{}, {}: its plane on processor {}, drivers on {}",
            self.network.as_ref().map(|name| format!(" of {name}")).unwrap_or_default(),
            self.discipline,
            self.processor,
            self.drivers_processor
        );
        let cells = |times: &Recorder| {
            let quantile = |ppm| fmt_duration(times.quantile_ppm(ppm));
            vec![quantile(500_000), quantile(990_000), fmt_duration(times.max()), fmt_count(times.count())]
        };
        let names: Vec<&str> = rows.iter().map(|(name, ..)| *name).collect();
        let values: Vec<_> = rows.iter().map(|(_, times, _)| cells(times)).collect();
        let mut out = table::matrix(&title, &names, &COLUMNS, &values, colour) + "\n";
        for (name, _, method) in rows {
            out += &wrapped("", "  ", &format!("{name}: {method}"));
        }
        out += &format!("\n[network.{}.costs]\n", self.network.as_deref().unwrap_or("NAME"));
        for (key, time) in self.keys() {
            out += &format!("{key} = \"{time}\"\n");
        }
        out
    }
}
