//! The devices whose interrupts a class matches.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use punctual_hold::protocol::{HeldInterrupts, WantedInterrupts};
use punctual_model::service::ServiceConfig;
use punctual_model::topology::Device;

use crate::topology::device_of;
use crate::view::InterruptsView;

/// How often their numbers are read: a driver that starts again may get others.
const INTERVAL: Duration = Duration::from_secs(5);

/// A device with the class that matches it.
#[derive(Debug)]
struct Found {
    name: String,
    class: String,
    device: Device,
}

/// The devices that classes match.
#[derive(Debug)]
pub(crate) struct Interrupts {
    root: PathBuf,
    found: Vec<Found>,
    next: Instant,
}

impl Interrupts {
    /// Of the machine whose file systems are below `root`; none yet.
    pub(crate) fn new(root: PathBuf) -> Interrupts {
        Interrupts { root, found: Vec::new(), next: Instant::now() }
    }

    /// Looks at the devices, if it is time or the configuration names others. Are interrupts others?
    pub(crate) fn look(&mut self, config: &ServiceConfig, now: Instant) -> bool {
        let mut names = BTreeSet::new();
        let all = config.classes.iter().flat_map(|class| class.devices().map(|name| (name, &class.name)));
        // Of several classes that match a device, the first one counts.
        let named: Vec<(&str, &String)> = all.filter(|(name, _)| names.insert(*name)).collect();
        let as_before = self.found.iter().map(|found| (found.name.as_str(), &found.class));
        let is_same = as_before.eq(named.iter().copied());
        if is_same && (now < self.next || named.is_empty()) {
            return false;
        }
        self.next = now + INTERVAL;
        let device = |(name, class): (&str, &String)| Found {
            name: name.to_owned(),
            class: class.clone(),
            device: device_of(&self.root, name),
        };
        let before = std::mem::take(&mut self.found);
        self.found = named.into_iter().map(device).collect();
        let numbers =
            |found: &[Found]| found.iter().map(|one| one.device.numbers.clone()).collect::<Vec<_>>();
        !is_same || numbers(&before) != numbers(&self.found)
    }

    /// What the enforcing process is to send.
    pub(crate) fn wanted(&self) -> Vec<WantedInterrupts> {
        let wanted = |found: &Found| WantedInterrupts {
            device: found.name.clone(),
            class: found.class.clone(),
            numbers: found.device.numbers.iter().copied().collect(),
        };
        self.found.iter().map(wanted).collect()
    }

    /// Shows them, with what the enforcing process says of them.
    pub(crate) fn view(&self, held: &[HeldInterrupts]) -> Vec<InterruptsView> {
        let view = |found: &Found| {
            let held = held.iter().find(|held| held.device == found.name);
            InterruptsView {
                device: found.name.clone(),
                class: found.class.clone(),
                numbers: found.device.numbers.iter().copied().collect(),
                processors: found.device.interrupts.iter().copied().collect(),
                allowed: held.map(|held| held.processors.clone()),
                reason: held.map(|held| held.reason.clone()),
                refused: held.map(|held| held.refused.clone()).unwrap_or_default(),
            }
        };
        self.found.iter().map(view).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use punctual_model::file::{ConfigFile, parse_service};
    use punctual_model::topology::Topology;

    use super::*;

    #[test]
    fn a_device_is_of_the_first_class_that_matches_it_with_the_numbers_that_it_has_now() {
        let root = tempfile::tempdir().expect("a directory");
        let device = root.path().join("sys/class/net/eno6/device");
        fs::create_dir_all(device.join("msi_irqs")).expect("made");
        fs::write(device.join("numa_node"), "0\n").expect("written");
        let add = |number: usize| {
            fs::write(device.join(format!("msi_irqs/{number}")), "msix\n").expect("written");
            let irq = root.path().join(format!("proc/irq/{number}"));
            fs::create_dir_all(&irq).expect("made");
            fs::write(irq.join("smp_affinity_list"), "0-1\n").expect("written");
        };
        add(40);
        let text =
            "[class.a]\nmatch = [{ interrupts = 'eno6' }]\n[class.b]\nmatch = [{ interrupts = 'eno6' }]\n";
        let file = ConfigFile { name: "host.toml".into(), bytes: text.into() };
        let config = parse_service(&[file], &Topology::flat(4)).expect("valid");
        let mut interrupts = Interrupts::new(root.path().to_owned());
        let now = Instant::now();
        assert!(!interrupts.look(&ServiceConfig::default(), now));
        assert!(interrupts.look(&config, now) && !interrupts.look(&config, now + INTERVAL * 2));
        let expected = WantedInterrupts { device: "eno6".into(), class: "a".into(), numbers: vec![40] };
        assert_eq!(interrupts.wanted(), [expected]);
        add(41);
        assert!(!interrupts.look(&config, now + INTERVAL * 2), "it is not time yet");
        assert!(interrupts.look(&config, now + INTERVAL * 4));
        let view = interrupts.view(&[]);
        assert_eq!((&view[0].numbers, &view[0].processors), (&vec![40, 41], &vec![0, 1]));
        assert!(interrupts.look(&ServiceConfig::default(), now + INTERVAL * 4));
        assert!(interrupts.wanted().is_empty());
    }
}
