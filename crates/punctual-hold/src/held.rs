//! A VM that is held: its vCPUs, and its other threads; or a cgroup.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use punctual_enforce::session::{self, Session, UnitHandle};
use punctual_enforce::unit::UnitCounters;
use punctual_linux::os::proc;
use punctual_linux::os::sched::{self, Attributes};
use punctual_linux::vmm::{self, Role};
use punctual_model::service::{ThreadPlace, Threads};

use crate::plan::HeldAs;
use crate::protocol::{HeldVcpu, Order};

/// A VM of which a part was given up is let go of and held again after this.
pub(crate) const GIVEN_UP_REST: Duration = Duration::from_secs(60);

/// Processors for threads that are no vCPUs.
#[derive(Clone, Copy)]
pub(crate) struct Places<'p> {
    /// Those that no pool has.
    pub host: &'p [usize],
    /// Those of them that are closest to the VM's pool.
    pub near: &'p [usize],
}

impl<'p> Places<'p> {
    fn of(&self, threads: Threads, role: Role) -> &'p [usize] {
        let place = match role {
            Role::MainLoop => threads.main_loop,
            Role::Io => threads.io,
            Role::Vhost => threads.vhost,
            Role::Rcu => threads.rcu,
            Role::Vcpu(_) | Role::Other | Role::Task => threads.other,
        };
        match place {
            ThreadPlace::Host => self.host,
            ThreadPlace::Near => self.near,
        }
    }
}

/// A VM that is held, or a cgroup.
pub(crate) struct Held {
    pub name: String,
    /// The path of the cgroup that is held as a whole.
    pub cgroup: Option<String>,
    pub held_as: HeldAs,
    /// By number of the vCPU: those that are under enforcement.
    pub units: BTreeMap<u32, UnitHandle>,
    /// When it is let go of, because a vCPU was given up, so that it can be held again.
    pub retry_at: Option<Instant>,
    /// How many threads the process had when its helpers were placed last.
    links: u64,
}

/// The unit of a vCPU in a session.
pub(crate) fn unit_name(process: u32, vcpu: u32) -> String {
    format!("{process}/{vcpu}")
}

/// The process and vCPU of a unit.
pub(crate) fn parse_unit_name(name: &str) -> Option<(u32, u32)> {
    let (process, vcpu) = name.split_once('/')?;
    Some((process.parse().ok()?, vcpu.parse().ok()?))
}

impl Held {
    pub(crate) fn new(name: String, cgroup: Option<String>, held_as: HeldAs) -> Held {
        Held { name, cgroup, held_as, units: BTreeMap::new(), retry_at: None, links: 0 }
    }

    /// What a unit of it is called in a sentence.
    pub(crate) fn part(&self, vcpu: u32) -> String {
        if self.cgroup.is_some() { "one of its threads".into() } else { format!("vCPU {vcpu}") }
    }

    /// Takes processes that came to the cgroup; returns how many.
    ///
    /// # Errors
    /// They may not be changed.
    pub(crate) fn follow(&self, session: &mut Session) -> Result<usize, session::Error> {
        let (Some(cgroup), Some(unit)) = (&self.cgroup, self.units.get(&0)) else { return Ok(0) };
        session.follow_group(unit, self.held_as.process, cgroup)
    }

    /// Its helpers are placed again, though no thread came or went.
    pub(crate) fn forget_helpers(&mut self) {
        self.links = 0;
    }

    /// Gives the threads that are no vCPUs their processors, if threads came or went. A thread that has them
    /// already inherited them, and is left alone: monitors start and end workers all the time.
    ///
    /// # Errors
    /// They may not be changed.
    pub(crate) fn place_helpers(
        &mut self,
        session: &mut Session,
        places: Places<'_>,
    ) -> Result<(), session::Error> {
        if self.cgroup.is_some() {
            return Ok(());
        }
        let process = self.held_as.process.id;
        let links = fs::metadata(format!("/proc/{process}/task")).map_or(0, |task| task.nlink());
        if links == 0 || std::mem::replace(&mut self.links, links) == links {
            return Ok(());
        }
        let fair = Attributes::other();
        for thread in proc::threads(process).unwrap_or_default() {
            if self.held_as.vcpus.values().any(|vcpu| vcpu.id == thread) {
                continue;
            }
            let name = proc::name(thread).unwrap_or_default();
            let role = vmm::role_of(&name, process.unsigned_abs(), thread == process);
            let to = places.of(self.held_as.place.threads, role);
            let is_there = sched::affinity(thread).is_ok_and(|now| now == to)
                && sched::attributes(thread).is_ok_and(|now| now.is_same_class(&fair));
            if !is_there {
                session.place_helper(thread, to, &fair)?;
            }
        }
        Ok(())
    }

    /// How its vCPUs are.
    pub(crate) fn vcpus(&self) -> Vec<HeldVcpu> {
        self.units.iter().map(|(number, unit)| vcpu(*number, &unit.counters)).collect()
    }
}

fn vcpu(number: u32, counters: &UnitCounters) -> HeldVcpu {
    let order = match counters.order.load(Ordering::Relaxed) {
        UnitCounters::PARKED => Order::Parked,
        UnitCounters::UNMANAGED => Order::BestEffort,
        UnitCounters::GONE | UnitCounters::GIVEN_UP => Order::GivenUp,
        _ => Order::Runs,
    };
    let left_ns = counters.left_ns.load(Ordering::Relaxed);
    HeldVcpu {
        number,
        order,
        left_ns: (left_ns != u64::MAX).then_some(left_ns),
        exhausted: counters.exhaustions.load(Ordering::Relaxed),
        periods: counters.periods.load(Ordering::Relaxed),
        delivered: counters.delivered.load(Ordering::Relaxed),
        longest_without_ns: counters.longest_without_ns.load(Ordering::Relaxed),
        wait_p99_ns: counters.wait_p99_ns.load(Ordering::Relaxed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_where_its_role_is() {
        let places = Places { host: &[0, 1, 2], near: &[2] };
        let threads = Threads { io: ThreadPlace::Near, ..Threads::default() };
        for (name, leads, to) in
            [("qemu-system-x86", true, places.host), ("IO iothread1", false, &[2]), ("worker", false, &[2])]
        {
            assert_eq!(places.of(threads, vmm::role_of(name, 7, leads)), to, "{name}");
        }
    }

    #[test]
    fn a_unit_is_named_after_its_process_and_vcpu() {
        assert_eq!(parse_unit_name(&unit_name(4711, 3)), Some((4711, 3)));
        assert_eq!(parse_unit_name("sh"), None);
    }
}
