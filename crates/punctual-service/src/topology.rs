//! The topology of the machine, from `/sys` and `/proc`.
//!
//! What is missing is taken as the simplest case: a processor without `topology` is a core of its own, one
//! without `cache` shares its package's, one without a node is on node 0, and all are online.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use punctual_linux::preflight::parse_cpu_list;
use punctual_model::placement::{Slot, SlotPlace};
use punctual_model::service::ServiceConfig;
use punctual_model::topology::{Device, Processor, Topology};

/// Reads the topology of the machine whose file systems are below `root` (normally `/`).
///
/// # Errors
/// The list of the processors that are present cannot be read, or is none.
pub fn read(root: &Path) -> io::Result<Topology> {
    let cpus = root.join("sys/devices/system/cpu");
    let text = fs::read_to_string(cpus.join("present"))?;
    let present = parse_cpu_list(&text).filter(|list| !list.is_empty());
    let present =
        present.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no list of processors"))?;
    let online = list(&cpus.join("online")).unwrap_or_else(|| present.iter().copied().collect());
    let isolated = list(&cpus.join("isolated")).unwrap_or_default();
    let nodes = nodes(&root.join("sys/devices/system/node"));
    let mut processors: Vec<Processor> = Vec::new();
    for number in present {
        let own = cpus.join(format!("cpu{number}"));
        let package = number_in(&own.join("topology/physical_package_id")).unwrap_or(0);
        let siblings = ["core_cpus_list", "thread_siblings_list"];
        let core = siblings.iter().find_map(|name| lowest(&own.join("topology").join(name)));
        processors.push(Processor {
            number,
            is_online: online.contains(&number),
            is_isolated: isolated.contains(&number),
            core: core.unwrap_or(number),
            cache: last_cache(&own.join("cache")).unwrap_or(usize::MAX),
            package,
            node: nodes.get(&number).copied().unwrap_or(0),
        });
    }
    share_packages(&mut processors);
    Ok(Topology { processors, devices: devices(root), is_flat: false })
}

/// Gives processors without a cache that of their package: its lowest processor's number, as caches have.
fn share_packages(processors: &mut [Processor]) {
    let mut packages: BTreeMap<usize, usize> = BTreeMap::new();
    for one in processors.iter() {
        let lowest = packages.entry(one.package).or_insert(one.number);
        *lowest = one.number.min(*lowest);
    }
    for one in processors.iter_mut().filter(|one| one.cache == usize::MAX) {
        one.cache = packages.get(&one.package).copied().unwrap_or(one.number);
    }
}

/// The lowest processor of the last-level cache in a processor's directory `cache`.
fn last_cache(directory: &Path) -> Option<usize> {
    let caches = entries(directory).into_iter().filter_map(|cache| {
        let level = number_in(&cache.join("level"))?;
        let kind = fs::read_to_string(cache.join("type")).unwrap_or_default();
        (kind.trim() != "Instruction").then_some((level, lowest(&cache.join("shared_cpu_list"))?))
    });
    caches.max_by_key(|(level, _)| *level).map(|(_, lowest)| lowest)
}

/// The NUMA node of each processor.
fn nodes(directory: &Path) -> BTreeMap<usize, usize> {
    let mut nodes = BTreeMap::new();
    for path in entries(directory) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(node) = name.strip_prefix("node").and_then(|number| number.parse().ok()) else { continue };
        nodes
            .extend(list(&path.join("cpulist")).unwrap_or_default().into_iter().map(|number| (number, node)));
    }
    nodes
}

/// Network interfaces with a device, by name, and PCI devices, by address.
fn devices(root: &Path) -> BTreeMap<String, Device> {
    let interfaces = entries(&root.join("sys/class/net")).into_iter().map(|path| {
        let device = path.join("device");
        (path, device)
    });
    let pci = entries(&root.join("sys/bus/pci/devices")).into_iter().map(|path| (path.clone(), path));
    let mut devices = BTreeMap::new();
    for (path, device) in interfaces.chain(pci) {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if let Ok(device) = fs::canonicalize(device) {
            devices.insert(name.to_owned(), self::device(root, device));
        }
    }
    devices
}

/// The machine, with those of its devices that a slot or a class of the configuration names.
pub(crate) fn named(topology: &Topology, config: &ServiceConfig) -> Topology {
    let is_named = |name: &String| {
        let of_slot = |slot: &Slot| slot.place == SlotPlace::Interrupts(name.clone());
        let mut of_classes = config.classes.iter().flat_map(|class| class.devices());
        config.slots.iter().any(of_slot) || of_classes.any(|device| device == name)
    };
    let devices = topology.devices.iter().filter(|(name, _)| is_named(name));
    Topology {
        processors: topology.processors.clone(),
        devices: devices.map(|(name, device)| (name.clone(), device.clone())).collect(),
        is_flat: topology.is_flat,
    }
}

/// How a network interface or PCI device is now; one that is not there has no interrupts.
pub(crate) fn device_of(root: &Path, name: &str) -> Device {
    let directories = [format!("sys/class/net/{name}/device"), format!("sys/bus/pci/devices/{name}")];
    let directory = directories.iter().find_map(|path| fs::canonicalize(root.join(path)).ok());
    directory.map(|directory| device(root, directory)).unwrap_or_default()
}

/// The device in a directory of `/sys/devices`.
fn device(root: &Path, mut directory: PathBuf) -> Device {
    // A virtio device has its interrupts and its node from the PCI device that it is in.
    if !directory.join("numa_node").exists() {
        directory.pop();
    }
    let mut numbers: BTreeSet<usize> = entries(&directory.join("msi_irqs"))
        .into_iter()
        .filter_map(|path| path.file_name()?.to_str()?.parse().ok())
        .collect();
    if numbers.is_empty() {
        numbers.extend(number_in(&directory.join("irq")).filter(|number| *number > 0));
    }
    let processors = |number: usize| {
        let irq = root.join(format!("proc/irq/{number}"));
        let effective = list(&irq.join("effective_affinity_list")).filter(|list| !list.is_empty());
        // Kernels without the effective affinity take one of those that are allowed.
        effective.or_else(|| list(&irq.join("smp_affinity_list"))).unwrap_or_default()
    };
    // The file has -1 where the node is not known.
    let node = number_in(&directory.join("numa_node"));
    Device { node, interrupts: numbers.iter().copied().flat_map(processors).collect(), numbers }
}

/// The paths in a directory in the order of their names; none if it cannot be read.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths
}

/// The list of processors in a file.
fn list(path: &Path) -> Option<BTreeSet<usize>> {
    Some(parse_cpu_list(&fs::read_to_string(path).ok()?)?.into_iter().collect())
}

/// The lowest processor of the list in a file.
fn lowest(path: &Path) -> Option<usize> {
    list(path)?.first().copied()
}

/// The number from 0 on in a file.
fn number_in(path: &Path) -> Option<usize> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use punctual_model::file::{ConfigFile, parse_service};

    use super::*;

    /// A tree of files and links below a directory.
    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new(files: &[(&str, &str)]) -> Tree {
            let tree = Tree(tempfile::tempdir().expect("a directory"));
            for (path, text) in files {
                tree.write(path, text);
            }
            tree
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            fs::write(path, text).expect("written");
        }

        fn link(&self, from: &str, to: &str) {
            let from = self.0.path().join(from);
            fs::create_dir_all(from.parent().expect("a parent")).expect("made");
            std::os::unix::fs::symlink(self.0.path().join(to), from).expect("linked");
        }

        fn read(&self) -> Topology {
            read(self.0.path()).expect("processors")
        }
    }

    const CPU: &str = "sys/devices/system/cpu";
    const NIC: &str = "sys/devices/pci0000:3a/0000:3b:00.0";

    /// Two packages with a core of two threads each; processor 3 is offline.
    fn two_packages() -> Tree {
        let tree = Tree::new(&[
            ("sys/devices/system/cpu/present", "0-3\n"),
            ("sys/devices/system/cpu/online", "0-2\n"),
            ("sys/devices/system/cpu/isolated", "1\n"),
            ("sys/devices/system/node/node0/cpulist", "0,2\n"),
            ("sys/devices/system/node/node1/cpulist", "1\n"),
            ("sys/devices/system/node/has_cpu", "0-1\n"),
        ]);
        for (number, siblings) in [(0, "0,2"), (1, "1"), (2, "0,2")] {
            let own = format!("{CPU}/cpu{number}");
            tree.write(&format!("{own}/topology/physical_package_id"), &format!("{}\n", number % 2));
            tree.write(&format!("{own}/topology/core_cpus_list"), &format!("{siblings}\n"));
            for (index, level, kind) in [(0, 1, "Data"), (1, 1, "Instruction"), (3, 3, "Unified")] {
                let cache = format!("{own}/cache/index{index}");
                tree.write(&format!("{cache}/level"), &format!("{level}\n"));
                tree.write(&format!("{cache}/type"), &format!("{kind}\n"));
                tree.write(&format!("{cache}/shared_cpu_list"), &format!("{siblings}\n"));
            }
        }
        tree
    }

    #[test]
    fn cores_caches_nodes_and_isolation_are_read() {
        let all: Vec<_> = two_packages()
            .read()
            .processors
            .iter()
            .map(|one| {
                (one.number, one.is_online, one.is_isolated, one.core, one.cache, one.package, one.node)
            })
            .collect();
        let expected = [
            (0, true, false, 0, 0, 0, 0),
            (1, true, true, 1, 1, 1, 1),
            (2, true, false, 0, 0, 0, 0),
            // One that is offline has no directories: it is alone, and in the cache of package 0.
            (3, false, false, 3, 0, 0, 0),
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn a_machine_of_which_only_the_processors_are_known_has_cores_in_one_cache() {
        let tree = Tree::new(&[("sys/devices/system/cpu/present", "0-1\n")]);
        let Topology { processors, devices, is_flat } = tree.read();
        assert!(devices.is_empty() && !is_flat);
        assert!(processors.iter().all(|one| one.is_online && one.core == one.number));
        assert!(processors.iter().all(|one| (one.cache, one.node, one.is_isolated) == (0, 0, false)));
        for (file, text) in [("online", "?"), ("isolated", "9-1"), ("cpu0/topology/core_cpus_list", "\n")] {
            tree.write(&format!("{CPU}/{file}"), text);
        }
        assert_eq!(tree.read().processors, processors, "what cannot be read is as what is missing");
        tree.write(&format!("{CPU}/present"), "\n");
        assert!(read(tree.0.path()).is_err());
        assert!(read(&tree.0.path().join("elsewhere")).is_err());
    }

    #[test]
    fn a_device_is_where_its_interrupts_go() {
        let tree = two_packages();
        tree.write(&format!("{NIC}/numa_node"), "1\n");
        for (number, effective) in [(40, "1\n"), (41, "2\n"), (42, "\n")] {
            tree.write(&format!("{NIC}/msi_irqs/{number}"), "msix\n");
            tree.write(&format!("proc/irq/{number}/effective_affinity_list"), effective);
            tree.write(&format!("proc/irq/{number}/smp_affinity_list"), "0\n");
        }
        // Of one that nobody requested there is nothing in /proc.
        tree.write(&format!("{NIC}/msi_irqs/43"), "msix\n");
        tree.link("sys/class/net/eno6/device", NIC);
        tree.link("sys/bus/pci/devices/0000:3b:00.0", NIC);
        tree.write("sys/class/net/lo/address", "00:00:00:00:00:00\n");
        let nic = Device { node: Some(1), interrupts: [0, 1, 2].into(), numbers: (40..44).collect() };
        let expected = [("0000:3b:00.0".to_owned(), nic.clone()), ("eno6".to_owned(), nic)];
        assert_eq!(tree.read().devices, expected.into());
        for name in ["eno6", "0000:3b:00.0"] {
            assert_eq!(device_of(tree.0.path(), name).numbers, (40..44).collect());
        }
        assert_eq!(device_of(tree.0.path(), "eno7"), Device::default());
    }

    #[test]
    fn the_enforcing_process_reads_a_configuration_with_the_devices_that_are_sent_to_it() {
        let device = |name: &str| (name.to_owned(), Device::default());
        let names = ["eno6", "eno7", "0000:3b:00.0"];
        let machine = Topology { devices: names.map(device).into(), is_flat: false, ..Topology::flat(4) };
        let text =
            "[slot.net]\ninterrupts = 'eno6'\n[class.disk]\nmatch = [{ interrupts = '0000:3b:00.0' }]\n";
        let file = ConfigFile { name: "host.toml".into(), bytes: text.into() };
        let config = parse_service(std::slice::from_ref(&file), &machine).expect("valid here");
        let sent = named(&machine, &config);
        assert_eq!(sent.devices, ["eno6", "0000:3b:00.0"].map(device).into());
        assert_eq!(parse_service(&[file], &sent).expect("valid there"), config);
    }

    #[test]
    fn a_virtio_interface_is_where_its_pci_device_is() {
        let tree = two_packages();
        tree.write(&format!("{NIC}/numa_node"), "-1\n");
        tree.write(&format!("{NIC}/irq"), "11\n");
        tree.write("proc/irq/11/smp_affinity_list", "0-2\n");
        tree.write(&format!("{NIC}/virtio0/vendor"), "0x1af4\n");
        tree.link("sys/class/net/eth0/device", &format!("{NIC}/virtio0"));
        let eth0 = Device { node: None, interrupts: [0, 1, 2].into(), numbers: [11].into() };
        assert_eq!(tree.read().devices, [("eth0".to_owned(), eth0)].into());
    }

    #[test]
    fn this_machine_can_be_read() {
        let topology = read(Path::new("/")).expect("Linux");
        assert!(topology.processors.iter().any(|one| one.is_online), "{topology:?}");
    }
}
