//! What a machine is: the facts that decide its latencies, each with the file that it was read from. What
//! cannot be read is reported with the reason, never guessed.

use punctual_doctor::doctor::{self, Cpus, Root, Severity};

use crate::certificate::{Finding, Item};

/// Files with one value.
const FILES: [(&str, &str); 17] = [
    ("firmware vendor", "/sys/class/dmi/id/bios_vendor"),
    ("firmware version", "/sys/class/dmi/id/bios_version"),
    ("firmware date", "/sys/class/dmi/id/bios_date"),
    ("machine", "/sys/class/dmi/id/product_name"),
    ("processors online", "/sys/devices/system/cpu/online"),
    ("SMT", "/sys/devices/system/cpu/smt/control"),
    ("kernel release", "/proc/sys/kernel/osrelease"),
    ("kernel version", "/proc/sys/kernel/version"),
    ("kernel command line", "/proc/cmdline"),
    ("tuned profile", "/etc/tuned/active_profile"),
    ("clock source", "/sys/devices/system/clocksource/clocksource0/current_clocksource"),
    ("isolated processors", "/sys/devices/system/cpu/isolated"),
    ("nohz_full processors", "/sys/devices/system/cpu/nohz_full"),
    ("cpuidle driver", "/sys/devices/system/cpu/cpuidle/current_driver"),
    ("cpuidle governor", "/sys/devices/system/cpu/cpuidle/current_governor"),
    ("real-time runtime, us", "/proc/sys/kernel/sched_rt_runtime_us"),
    ("transparent huge pages", "/sys/kernel/mm/transparent_hugepage/enabled"),
];

/// The facts of the machine below `root`; frequencies and idle states are those of `processors`.
pub(crate) fn read(root: &Root, processors: &[usize]) -> Vec<Item> {
    let mut items =
        vec![cpuinfo(root, "processor model", "model name"), cpuinfo(root, "microcode", "microcode")];
    items.extend(FILES.iter().map(|(name, path)| file(root, name, path)));
    items.push(modules(root));
    items.push(control_groups(root));
    for processor in processors {
        let directory = format!("/sys/devices/system/cpu/cpu{processor}");
        for (name, path) in [("driver", "scaling_driver"), ("governor", "scaling_governor")] {
            let path = format!("{directory}/cpufreq/{path}");
            items.push(file(root, &format!("cpufreq {name} of processor {processor}"), &path));
        }
        items.push(idle_states(root, *processor, &format!("{directory}/cpuidle")));
    }
    items
}

/// What `punctual doctor` found about these processors that is not ok; empty if the machine cannot be
/// examined.
pub(crate) fn findings(root: Root, processors: &[usize]) -> Vec<Finding> {
    let pool: Cpus = processors.iter().copied().collect();
    let Ok(found) = doctor::examine(root, Some(pool)) else { return Vec::new() };
    let bad = found.findings.into_iter().filter(|finding| finding.severity != Severity::Ok);
    bad.map(|finding| Finding {
        id: finding.id.into(),
        severity: finding.severity.name().into(),
        summary: finding.summary,
        why: finding.why.into(),
        fix: finding.fix,
    })
    .collect()
}

/// A fact, or why there is none.
fn item(name: &str, source: &str, value: Result<String, String>) -> Item {
    let (value, reason) = match value {
        Ok(value) => (Some(value), None),
        Err(reason) => (None, Some(reason)),
    };
    Item { name: name.into(), value, reason, source: source.into() }
}

fn file(root: &Root, name: &str, path: &str) -> Item {
    item(name, path, root.text(path).map_err(|error| error.reason.to_string()))
}

/// The first value of a field.
fn cpuinfo(root: &Root, name: &str, field: &str) -> Item {
    const PATH: &str = "/proc/cpuinfo";
    let find = |text: &str| {
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        fields.filter(|(key, _)| key.trim() == field).map(|(_, value)| value.trim().to_owned()).next()
    };
    let value = root.parse(PATH, &format!("a line `{field}`"), find);
    item(name, PATH, value.map_err(|error| error.reason.to_string()))
}

/// Names, sorted: the order of the file is that of loading.
fn modules(root: &Root) -> Item {
    const PATH: &str = "/proc/modules";
    let names = |text: String| {
        let mut names: Vec<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
        names.sort_unstable();
        names.join(" ")
    };
    item("modules", PATH, root.text(PATH).map(names).map_err(|error| error.reason.to_string()))
}

fn control_groups(root: &Root) -> Item {
    const PATH: &str = "/proc/self/mountinfo";
    let version = |text: &str| {
        let has = |kind: &str| text.lines().any(|line| line.contains(&format!(" - {kind} ")));
        match (has("cgroup"), has("cgroup2")) {
            (false, true) => Some("version 2".to_owned()),
            (true, true) => Some("versions 1 and 2".to_owned()),
            (true, false) => Some("version 1".to_owned()),
            (false, false) => None,
        }
    };
    let value = root.parse(PATH, "a mounted cgroup hierarchy", version);
    item("control groups", PATH, value.map_err(|error| error.reason.to_string()))
}

/// The states that the processor may enter, with the time that leaving them takes.
fn idle_states(root: &Root, processor: usize, directory: &str) -> Item {
    let name = format!("idle states of processor {processor}");
    let states = match root.names(directory) {
        Ok(states) => states,
        Err(error) => return item(&name, directory, Err(error.reason.to_string())),
    };
    let mut shown = Vec::new();
    for state in states.iter().filter(|state| state.starts_with("state")) {
        let read = |file: &str| root.text(&format!("{directory}/{state}/{file}"));
        let (Ok(called), Ok(latency)) = (read("name"), read("latency")) else { continue };
        let is_off = read("disable").is_ok_and(|disabled| disabled != "0");
        shown.push(format!("{called} {latency} us{}", if is_off { " (off)" } else { "" }));
    }
    let value = if shown.is_empty() { Err("no state is there".into()) } else { Ok(shown.join(", ")) };
    item(&name, directory, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_have_their_files_and_what_cannot_be_read_its_reason() {
        let directory = tempfile::tempdir().expect("a directory");
        let write = |path: &str, text: &str| {
            let path = directory.path().join(path);
            std::fs::create_dir_all(path.parent().expect("one")).expect("made");
            std::fs::write(path, text).expect("written");
        };
        write("proc/cpuinfo", "processor\t: 0\nmodel name\t: Fast 9000\nmicrocode\t: 0x1\n");
        write("proc/cmdline", "quiet isolcpus=1\n");
        write("proc/modules", "zz 1 0 - Live 0x0\naa 2 1 zz, Live 0x0\n");
        write("proc/self/mountinfo", "1 2 0:3 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        write("sys/devices/system/cpu/cpu1/cpuidle/state0/name", "POLL\n");
        write("sys/devices/system/cpu/cpu1/cpuidle/state0/latency", "0\n");
        write("sys/devices/system/cpu/cpu1/cpuidle/state1/name", "C6\n");
        write("sys/devices/system/cpu/cpu1/cpuidle/state1/latency", "133\n");
        write("sys/devices/system/cpu/cpu1/cpuidle/state1/disable", "1\n");
        let items = read(&Root::new(directory.path()), &[1]);
        let of = |name: &str| items.iter().find(|item| item.name == name).expect("there");
        let value = |name: &str| of(name).value.as_deref();
        assert_eq!(value("processor model"), Some("Fast 9000"));
        assert_eq!(value("microcode"), Some("0x1"));
        assert_eq!(value("kernel command line"), Some("quiet isolcpus=1"));
        assert_eq!(value("modules"), Some("aa zz"));
        assert_eq!(value("control groups"), Some("version 2"));
        assert_eq!(value("idle states of processor 1"), Some("POLL 0 us, C6 133 us (off)"));
        let firmware = of("firmware version");
        assert_eq!((&firmware.value, firmware.reason.as_deref()), (&None, Some("no such file")));
        assert_eq!(firmware.source, "/sys/class/dmi/id/bios_version");
    }
}
