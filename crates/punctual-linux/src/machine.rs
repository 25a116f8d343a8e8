//! This machine in a line, so that live results say where they come from.

use std::fs::read_to_string;

/// Processor, how many of them, kernel: `Xeon E5-2640, 8 processors, Linux 6.12.1`. What cannot be read is
/// left out.
pub fn description() -> String {
    let text = |path| read_to_string(path).unwrap_or_default();
    describe(&text("/proc/cpuinfo"), &text("/proc/sys/kernel/osrelease"))
}

fn describe(cpuinfo: &str, release: &str) -> String {
    let values = |key: &'static str| {
        let lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        lines.filter(move |(name, _)| name.trim() == key).map(|(_, value)| value)
    };
    let model = values("model name")
        .map(|name| name.split_whitespace().collect::<Vec<_>>().join(" "))
        .find(|name| !name.is_empty());
    // One for each that is online.
    let count = match values("processor").count() {
        0 => None,
        1 => Some("1 processor".to_owned()),
        n => Some(format!("{n} processors")),
    };
    let kernel = (!release.trim().is_empty()).then(|| format!("Linux {}", release.trim()));
    let parts: Vec<String> = [model, count, kernel].into_iter().flatten().collect();
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_described_by_what_can_be_read() {
        let cpuinfo = "processor\t: 0\nmodel name\t: Some  CPU @ 2.10GHz\n\n".repeat(8);
        assert_eq!(describe(&cpuinfo, "6.12.1-rt\n"), "Some CPU @ 2.10GHz, 8 processors, Linux 6.12.1-rt");
        // Arm kernels name no model.
        assert_eq!(describe("processor : 0\nFeatures : fp\n", ""), "1 processor");
        assert_eq!(describe("", ""), "");
    }
}
