//! What the steps of a switch cost: one measurement for each network of the host file.

use std::sync::Arc;
use std::time::Duration as Time;

use punctual_linux::Stop;
use punctual_linux::os::sched;
use punctual_model::Host;
use punctual_net::discipline::DisciplineInfo;
use punctual_net::{netback, registry};
use punctual_sched::Duration;
use punctual_sched::registry::Options;
use punctual_switch::costs::{self, Costs, Setting};
use serde::Serialize;

use super::error::Error;
use crate::error::with_source;

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
    pub(super) fn measure(
        &self,
        processors: [usize; 2],
        time: Time,
        stop: Stop,
    ) -> Result<SwitchCosts, Error> {
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
        let costs = costs::measure(&setting, &stop);
        let times = costs.map_err(|error| Error::Switch(with_source(&error)))?;
        if stop() {
            return Err(Error::Stopped);
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
    pub discipline: &'static str,
    pub processor: usize,
    pub drivers_processor: usize,
    pub times: Costs,
    costs_ns: serde_json::Map<String, serde_json::Value>,
}

impl SwitchCosts {
    /// The keys of the network's costs.
    pub fn keys(&self) -> [(&'static str, Duration); 7] {
        self.times.keys()
    }
}
