//! What scheduling costs where it was measured and published: `overheads = "xen-4.0"`.

use punctual_sched::Duration;

use crate::host::Overheads;

/// Published costs of scheduling.
#[derive(Debug)]
pub struct Preset {
    /// The name that `overheads` in `[machine]` takes.
    pub name: &'static str,
    /// The costs; zero where nothing was measured.
    pub overheads: Overheads,
}

/// The names of [`PRESETS`].
pub(crate) const NAMES: [&str; 2] = ["xen-4.0", "xen-4.0-p99"];

/// Every preset: the median and the 99 % quantile of RT-Xen's deferrable server in Xen 4.0 on a Q9400 at
/// 2.66 GHz (S. Xi, J. Wilson, C. Lu, C. Gill, EMSOFT 2011, s. 5.3, Table 1). Migrations and locks were not
/// measured. Each figure stands in its source; `docs/host-file.md` has both.
pub static PRESETS: [Preset; 2] = [of_xen_4_0(NAMES[0], 121, 1_498), of_xen_4_0(NAMES[1], 250, 3_807)];

const fn of_xen_4_0(name: &'static str, decision_ns: u64, context_switch_ns: u64) -> Preset {
    let overheads = Overheads {
        decision: Duration::from_ns(decision_ns),
        context_switch: Duration::from_ns(context_switch_ns),
        migration: Duration::ZERO,
        lock: Duration::ZERO,
    };
    Preset { name, overheads }
}

/// The preset of this name.
pub fn preset(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}
