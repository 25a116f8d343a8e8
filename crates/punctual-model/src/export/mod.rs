//! A host's scheduling parameters as settings of other tools: Xen's `xl`, libvirt, systemd, QEMU with
//! util-linux.
//!
//! Each target is a function from a [`Host`] to files. What a target cannot express is a [`Loss`], never
//! silence, and what is rounded is rounded so that a unit gets no less than the host file says.
//! `docs/export.md` has the tables.

mod linux;
mod quota;
mod text;
mod xl;

mod libvirt;
mod qemu;
mod systemd;

use serde::Serialize;

use crate::host::{Domain, Host, Parent, Pool};
use crate::index::{DomainIx, PoolIx};
use punctual_sched::{CpuSet, UnitParams};

/// Whose settings to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    /// Xen's toolstack `xl`: cpupool and domain configuration, and the commands for what runs (xl(1),
    /// xl.cfg(5)).
    Xl,
    /// Parts of libvirt's domain XML (<https://libvirt.org/formatdomain.html>).
    Libvirt,
    /// Drop-ins for service units (systemd.exec(5), systemd.resource-control(5)).
    Systemd,
    /// Scripts that start QEMU and set its vCPU threads with taskset(1) and chrt(1).
    Qemu,
}

impl Target {
    /// All targets, in the order in which they are shown to users.
    pub const ALL: [Target; 4] = [Target::Xl, Target::Libvirt, Target::Systemd, Target::Qemu];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Target::Xl => "xl",
            Target::Libvirt => "libvirt",
            Target::Systemd => "systemd",
            Target::Qemu => "qemu",
        }
    }
}

/// What to keep of a unit with a budget *and* a priority where Linux enforces one of them: CPU quotas
/// throttle threads of the fair class only (kernel: `Documentation/scheduler/sched-bwc.rst`), so a real-time
/// thread has no quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Keep {
    /// Budget and period; who goes first is left to Linux.
    #[default]
    Budget,
    /// The order of priorities; nobody is limited.
    Priority,
}

/// A file to hand to the target's tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct File {
    /// Path below the directory of the export.
    pub name: String,
    /// Contents.
    pub text: String,
}

/// Something of the host that the target does not express, or expresses as something else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Loss {
    /// The domain, vCPU (`video.0`), pool or pool's task (`rt/daemon`).
    pub item: String,
    /// The key of the host file.
    pub field: &'static str,
    /// What becomes of it and why.
    pub why: String,
}

/// The files of an export and what they leave out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Export {
    /// Whose settings these are.
    pub target: Target,
    /// In the order in which they are used.
    pub files: Vec<File>,
    /// What is not in them, in the order of the host file.
    pub losses: Vec<Loss>,
}

/// Writes the settings of `host` for `target`.
pub fn export(host: &Host, target: Target, keep: Keep) -> Export {
    let mut losses = Losses::default();
    let files = match target {
        Target::Xl => xl::files(host, &mut losses),
        Target::Libvirt => libvirt::files(host, keep, &mut losses),
        Target::Systemd => systemd::files(host, keep, &mut losses),
        Target::Qemu => qemu::files(host, keep, &mut losses),
    };
    Export { target, files, losses: losses.list }
}

/// What was found inexpressible so far.
#[derive(Default)]
struct Losses {
    list: Vec<Loss>,
}

impl Losses {
    /// Each loss once.
    fn add(&mut self, item: impl Into<String>, field: &'static str, why: impl Into<String>) {
        let loss = Loss { item: item.into(), field, why: why.into() };
        if !self.list.contains(&loss) {
            self.list.push(loss);
        }
    }

    /// Those that concern a domain: its own, its vCPUs' and its pool's.
    fn of_domain<'a>(&'a self, host: &'a Host, domain: &'a Domain) -> impl Iterator<Item = &'a Loss> {
        let pool = &host.pools[host.pool_of(domain.parent).0].name;
        self.list.iter().filter(move |loss| {
            let own = loss.item == domain.name || loss.item == *pool;
            own || host.vcpus[domain.vcpus.clone()].iter().any(|v| v.name == loss.item)
        })
    }

    /// Nested domains are somebody else's: of this machine's level there is only the outer one.
    fn add_nested(&mut self, host: &Host) {
        for domain in &host.domains {
            if let Parent::Domain(DomainIx(outer)) = domain.parent {
                let outer = &host.domains[outer].name;
                let why =
                    format!("it runs inside `{outer}`, where it has to be set up; here only `{outer}` is");
                self.add(&domain.name, "in", why);
            }
        }
    }

    /// Tasks directly in a pool, for tools that know only virtual machines.
    fn add_tasks(&mut self, host: &Host, why: &str) {
        for (i, pool) in host.pools.iter().enumerate() {
            for (_, task) in host.tasks_of(Parent::Pool(PoolIx(i))) {
                self.add(task_name(pool, &task.name), "task", why);
            }
        }
    }
}

/// The domains that are units of a pool, with it.
fn domains(host: &Host) -> impl Iterator<Item = (&Domain, PoolIx)> {
    host.domains.iter().filter_map(|d| match d.parent {
        Parent::Pool(pool) => Some((d, pool)),
        Parent::Domain(_) => None,
    })
}

/// How a pool's task is called in results.
fn task_name(pool: &Pool, task: &str) -> String {
    format!("{}/{task}", pool.name)
}

/// The machine's numbers of the processors that a unit of `pool` may use, ascending.
fn processors(pool: &Pool, affinity: Option<&CpuSet>) -> Vec<usize> {
    match affinity {
        Some(set) => set.iter().map(|cpu| pool.processors[cpu.index()]).collect(),
        None => pool.processors.clone(),
    }
}

/// Do all units have the same value here?
fn common<T: PartialEq>(units: &[&UnitParams], value: impl Fn(&UnitParams) -> T) -> bool {
    units.windows(2).all(|pair| value(pair[0]) == value(pair[1]))
}
