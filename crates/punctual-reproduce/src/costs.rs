//! What scheduling and packets cost here, as `punctual calibrate --guests --write` left it in a host file.

use std::path::Path;

use punctual_model::file::{self, Overrides};

use crate::error::Error;

/// Costs that were measured earlier, in place of a calibration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasuredCosts {
    /// Key and value of `[machine.overheads]`.
    overheads: Vec<(String, String)>,
    /// Key and value of `[network.NAME.costs]`.
    network: Vec<(String, String)>,
}

impl MeasuredCosts {
    /// Reads them from a host file with one network.
    ///
    /// # Errors
    /// The file cannot be read, is no host file, has another number of networks, or lacks what is measured.
    pub fn load(path: &Path) -> Result<MeasuredCosts, Error> {
        let host = file::load(path, &Overrides::default()).map_err(Error::Host)?;
        let lacks = |what: &str| Error::Missing(format!("{}: {what}", path.display()));
        let [network] = &host.networks[..] else {
            return Err(lacks(&format!("{} networks, expected one", host.networks.len())));
        };
        // It was one a moment ago.
        let text = std::fs::read_to_string(path).map_err(|error| lacks(&error.to_string()))?;
        let root: toml::Table = text.parse().map_err(|error: toml::de::Error| lacks(error.message()))?;
        let keys = |path: &[&str]| {
            let mut table = Some(&root);
            for name in path {
                table = table.and_then(|table| table.get(*name)?.as_table());
            }
            let entries = table.into_iter().flatten();
            // The host file's parser takes nothing but texts here.
            let pairs = entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
            pairs.collect::<Vec<_>>()
        };
        let costs = MeasuredCosts {
            overheads: keys(&["machine", "overheads"]),
            network: keys(&["network", &network.name, "costs"]),
        };
        let is_measured = |costs: &[(String, String)], key: &str| costs.iter().any(|(known, _)| known == key);
        for (costs, table, key) in [
            (&costs.overheads, "machine.overheads".to_owned(), "decision"),
            (&costs.network, format!("network.{}.costs", network.name), "event"),
            (&costs.network, format!("network.{}.costs", network.name), "guest_wake"),
        ] {
            if !is_measured(costs, key) {
                return Err(lacks(&format!(
                    "no `{key}` in [{table}]; measure it with: punctual calibrate --guests --write {}",
                    path.display()
                )));
            }
        }
        Ok(costs)
    }

    /// Settings of a host file with a network of this name, `path=value`.
    pub(crate) fn settings(&self, network: &str) -> Vec<String> {
        let overheads = self.overheads.iter().map(|(key, value)| format!("machine.overheads.{key}={value}"));
        let costs = self.network.iter().map(|(key, value)| format!("network.{network}.costs.{key}={value}"));
        overheads.chain(costs).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "[machine.overheads]\ndecision = \"2us\"\n[machine]\nprocessors = 2\n\
                        [pool.all]\nprocessors = [1]\npolicy = \"fixed-priority\"\n\
                        [domain.a]\npriority = 1\n[network.lan]\ndriver = \"a\"\n[network.lan.costs]\n\
                        event = \"1us\"\nguest_wake = \"500us\"\n";

    fn load(text: &str) -> Result<MeasuredCosts, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("host.toml");
        std::fs::write(&path, text).expect("written");
        MeasuredCosts::load(&path).map_err(|error| error.to_string())
    }

    #[test]
    fn measured_costs_are_settings_of_any_network() {
        let costs = load(HOST).expect("costs");
        assert_eq!(
            costs.settings("net"),
            [
                "machine.overheads.decision=2us",
                "network.net.costs.event=1us",
                "network.net.costs.guest_wake=500us"
            ]
        );
    }

    #[test]
    fn a_file_without_what_is_measured_names_it_and_the_command() {
        let text = load(&HOST.replace("guest_wake = \"500us\"\n", "")).expect_err("nothing of guests");
        assert!(text.contains("no `guest_wake` in [network.lan.costs]"), "{text}");
        assert!(text.contains("punctual calibrate --guests --write"), "{text}");
        assert!(load("[machine]\nprocessors = 2\n").is_err());
    }
}
