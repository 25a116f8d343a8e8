//! What `/proc/stat` says a processor did.

use std::fs;
use std::io;
use std::ops::Sub;

/// Times of a processor since boot, in ns, to the clock tick of user space (10 ms).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Threads executed.
    pub busy_ns: u64,
    /// Nothing executed.
    pub idle_ns: u64,
    /// Interrupts and softirqs.
    pub interrupts_ns: u64,
    /// The hypervisor below had taken the processor though a thread wanted it.
    pub steal_ns: u64,
}

impl Sub for Load {
    type Output = Load;

    fn sub(self, before: Load) -> Load {
        Load {
            busy_ns: self.busy_ns.saturating_sub(before.busy_ns),
            idle_ns: self.idle_ns.saturating_sub(before.idle_ns),
            interrupts_ns: self.interrupts_ns.saturating_sub(before.interrupts_ns),
            steal_ns: self.steal_ns.saturating_sub(before.steal_ns),
        }
    }
}

/// What each of these processors did so far; one that `/proc/stat` does not have did nothing.
///
/// # Errors
/// `/proc` is not mounted.
pub fn loads(processors: &[usize]) -> io::Result<Vec<Load>> {
    Ok(parse_loads(&fs::read_to_string("/proc/stat")?, processors))
}

/// Parses `/proc/stat` (proc_stat(5)).
pub fn parse_loads(text: &str, processors: &[usize]) -> Vec<Load> {
    const TICK_NS: u64 = 1_000_000_000 / TICKS_PER_SECOND;
    let of = |processor: &usize| {
        let name = format!("cpu{processor} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&name))?;
        let fields = line.split_ascii_whitespace().map(|field| field.parse::<u64>().unwrap_or(0));
        let ns: Vec<u64> = fields.map(|ticks| ticks.saturating_mul(TICK_NS)).collect();
        // user nice system idle iowait irq softirq steal; time of guests is in user and nice.
        let at = |index: usize| ns.get(index).copied().unwrap_or(0);
        Some(Load {
            busy_ns: at(0) + at(1) + at(2),
            idle_ns: at(3) + at(4),
            interrupts_ns: at(5) + at(6),
            steal_ns: at(7),
        })
    };
    processors.iter().map(|processor| of(processor).unwrap_or_default()).collect()
}

/// Of user space, whatever the kernel's own rate (USER_HZ is 100 on every architecture that this runs on).
const TICKS_PER_SECOND: u64 = 100;

/// Does the kernel leave time that a hypervisor below took out of threads' accounts? It does where the
/// hypervisor says what it takes, so that the column of `/proc/stat` is not 0, and the kernel is built with
/// `CONFIG_PARAVIRT_TIME_ACCOUNTING`, as those of distributions are.
pub fn kernel_knows_stolen() -> bool {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let config = fs::read_to_string(format!("/boot/config-{}", release.trim())).ok();
    knows_stolen(&stat, config.as_deref())
}

/// Does the kernel leave time of interrupts out of threads' accounts? It does with
/// `CONFIG_IRQ_TIME_ACCOUNTING`; without it, hardly any tick of the clock finds a processor in an interrupt,
/// and the column `irq` of `/proc/stat` stays 0.
pub fn kernel_knows_interrupts() -> bool {
    knows_interrupts(&fs::read_to_string("/proc/stat").unwrap_or_default())
}

fn knows_interrupts(stat: &str) -> bool {
    let of_all = stat.lines().find_map(|line| line.strip_prefix("cpu "));
    of_all.and_then(|line| line.split_ascii_whitespace().nth(5)).is_some_and(|irq| irq != "0")
}

/// By `/proc/stat` and the configuration of the kernel, where that can be read.
fn knows_stolen(stat: &str, config: Option<&str>) -> bool {
    let is_without =
        |config: &str| config.lines().any(|line| line == "# CONFIG_PARAVIRT_TIME_ACCOUNTING is not set");
    // Of all processors together.
    let stolen = stat.lines().find_map(|line| line.strip_prefix("cpu "));
    let stolen = stolen.and_then(|line| line.split_ascii_whitespace().nth(7));
    stolen.is_some_and(|ticks| ticks != "0") && !config.is_some_and(is_without)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_are_known_where_their_column_counts() {
        assert!(knows_interrupts("cpu  9 9 9 9 9 1 9 9 0 0\ncpu0 9 9 9 9 9 1 9 9 0 0\n"));
        assert!(!knows_interrupts("cpu  9 9 9 9 9 0 9 9 0 0\n") && !knows_interrupts(""));
    }

    #[test]
    fn columns_of_a_processor_are_added_up_by_what_they_mean() {
        let text = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu1 1 2 3 40 5 6 7 8 0 0\ncpu10 1 1 1 1 1 1 1 1 0 0\nintr 5\n";
        let ms = |n: u64| n * 1_000_000;
        let one = Load { busy_ns: ms(60), idle_ns: ms(450), interrupts_ns: ms(130), steal_ns: ms(80) };
        assert_eq!(parse_loads(text, &[1, 2]), [one, Load::default()]);
        assert_eq!(parse_loads("", &[1]), [Load::default()]);
        assert_eq!(one - Load { busy_ns: ms(50), ..one }, Load { busy_ns: ms(10), ..Load::default() });
        assert_eq!(Load::default() - one, Load::default());
    }

    #[test]
    fn the_kernel_knows_stolen_time_where_there_is_some_and_it_is_built_to() {
        let stat = |steal| format!("cpu  1 2 3 4 5 6 7 {steal} 0 0\ncpu0 1 2 3 4 5 6 7 9 0 0\n");
        let without = Some("# CONFIG_PARAVIRT_TIME_ACCOUNTING is not set\n");
        let with = Some("CONFIG_PARAVIRT_TIME_ACCOUNTING=y\n");
        let known =
            [(8, None), (8, with), (8, without), (0, with)].map(|(steal, c)| knows_stolen(&stat(steal), c));
        assert_eq!(known, [true, true, false, false]);
    }

    #[test]
    fn this_machine_says_what_its_first_processor_did() {
        let load = loads(&[0]).expect("/proc is mounted")[0];
        assert!(load.busy_ns + load.idle_ns > 0);
    }
}
