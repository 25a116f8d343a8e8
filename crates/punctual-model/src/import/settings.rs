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
    /// Task sets of SchedCAT (<https://github.com/brandenburg/schedcat>, `schedcat/model/serialize.py`).
    SchedCat,
    /// Simulations of SimSo (<https://github.com/MaximeCheramy/simso>, `simso/configuration/parser.py`).
    SimSo,
    /// Tables of tasks, with a header that names the columns; see `docs/import.md`.
    Csv,
}

impl Format {
    /// All formats, in the order in which they are shown to users.
    pub const ALL: [Format; 7] = [
        Format::Libvirt,
        Format::Xl,
        Format::RtApp,
        Format::Carts,
        Format::SchedCat,
        Format::SimSo,
        Format::Csv,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Format::Libvirt => "libvirt",
            Format::Xl => "xl",
            Format::RtApp => "rt-app",
            Format::Carts => "carts",
            Format::SchedCat => "schedcat",
            Format::SimSo => "simso",
            Format::Csv => "csv",
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
    /// Unit of times that have none in the files; by default those of CARTS and SimSo are
    /// milliseconds, SchedCAT's are microseconds, and those of tables are an error.
    pub unit: Option<Duration>,
    /// Which task set of a test point of SchedCAT, from 1; it needs none where there is only one.
    pub task_set: Option<usize>,
}

impl Default for Settings<'_> {
    fn default() -> Self {
        Settings { name: "imported", processors: None, policy: None, unit: None, task_set: None }
    }
}
