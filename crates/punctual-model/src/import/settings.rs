//! What is imported, and what the user says beyond the files.

use punctual_sched::Duration;
use punctual_sched::registry::PolicyInfo;

/// What the files are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Domain XML, a file for each domain (<https://libvirt.org/formatdomain.html>).
    Libvirt,
    /// What `xl cpupool-list`, `sched-rtds`, `sched-credit`, `sched-credit2`, `vcpu-list` and `list -c`
    /// print, in any order, and configurations of domains and cpupools (xl.cfg(5), xlcpupool.cfg(5)).
    Xl,
    /// rt-app's workloads (<https://github.com/scheduler-tools/rt-app>, `doc/tutorial.txt`), with what json-c
    /// and workgen permit beyond JSON: comments, trailing commas, keys more than once.
    RtApp,
    /// Systems of components and tasks of CARTS (<https://rtg.cis.upenn.edu/carts/>), or its results.
    Carts,
}

impl Format {
    /// All formats, in the order in which they are shown to users.
    pub const ALL: [Format; 4] = [Format::Libvirt, Format::Xl, Format::RtApp, Format::Carts];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Format::Libvirt => "libvirt",
            Format::Xl => "xl",
            Format::RtApp => "rt-app",
            Format::Carts => "carts",
        }
    }
}

/// What the files do not say.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    /// The host's name.
    pub name: &'a str,
    /// Processors of the machine; by default one more than the highest number that is named.
    pub processors: Option<usize>,
    /// The policy of every pool instead of the one that fits the files.
    pub policy: Option<&'static PolicyInfo>,
    /// Length of CARTS's unit of time; its files do not name it.
    pub carts_unit: Duration,
}

impl Default for Settings<'_> {
    fn default() -> Self {
        Settings { name: "imported", processors: None, policy: None, carts_unit: Duration::from_ms(1) }
    }
}
