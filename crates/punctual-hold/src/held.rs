//! A VM that is held: its vCPUs, and its other threads; or a cgroup.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use punctual_enforce::session::{self, Session, UnitHandle, helper_attributes};
use punctual_enforce::unit::UnitCounters;
use punctual_linux::os::proc;
use punctual_linux::os::sched::{self, Attributes};
use punctual_linux::vmm::{self, Role};
use punctual_model::service::{Helper, ThreadPlace, Threads};

use crate::plan::HeldAs;
use crate::protocol::{HeldRole, HeldVcpu, Order};

/// A VM of which a part was given up is let go of and held again after this.
pub(crate) const GIVEN_UP_REST: Duration = Duration::from_secs(60);

/// Processors for threads that are no vCPUs, and for interrupts.
#[derive(Clone, Copy)]
pub(crate) struct Places<'p> {
    /// Those that no pool has.
    pub host: &'p [usize],
    /// Those of them that are closest to the VM's pool.
    pub near: &'p [usize],
    /// The name of the VM's pool.
    pub pool: &'p str,
}

impl<'p> Places<'p> {
    /// The processors for a place, and why these.
    pub(crate) fn of(&self, place: &ThreadPlace) -> (Cow<'p, [usize]>, String) {
        match place {
            ThreadPlace::Host => (self.host.into(), "no pool has them".into()),
            ThreadPlace::Near if self.near == self.host => {
                (self.host.into(), format!("none of those that no pool has is closer to pool {}", self.pool))
            }
            ThreadPlace::Near => (self.near.into(), format!("they are close to pool {}", self.pool)),
            ThreadPlace::Slot { name, processors } => {
                let own: Vec<usize> =
                    processors.iter().copied().filter(|number| self.host.contains(number)).collect();
                if own.is_empty() {
                    let reason = format!("no processor of slot {name} is online and outside the pools");
                    return (self.host.into(), reason);
                }
                (own.into(), format!("they are in slot {name}"))
            }
        }
    }
}

/// What threads with this role get.
fn helper_of(threads: &Threads, role: Role) -> &Helper {
    match role {
        Role::MainLoop => &threads.main_loop,
        Role::Io => &threads.io,
        Role::Vhost => &threads.vhost,
        Role::Rcu => &threads.rcu,
        Role::Vcpu(_) | Role::Other | Role::Task => &threads.other,
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
    /// The roles of its helpers when they were placed last.
    pub helpers: Vec<HeldRole>,
    seen: Seen,
}

/// What was seen of the threads of a process when its helpers were placed last.
#[derive(Default)]
struct Seen {
    /// How many there were.
    links: u64,
    /// Which; empty where all roles get the same.
    threads: Vec<i32>,
    /// They were others than at the look before. A thread has the name of its role only a moment after its
    /// start.
    were_others: bool,
    /// They are to be placed, however they are.
    is_forgotten: bool,
}

impl Seen {
    /// Did threads come or go? Where all roles get the same, a thread inherits what it gets, and it does not
    /// matter when one comes while another one goes.
    fn has_changed(&mut self, process: i32, are_alike: bool) -> bool {
        let links = fs::metadata(format!("/proc/{process}/task")).map_or(0, |task| task.nlink());
        if links == 0 {
            return false;
        }
        let had_others = std::mem::replace(&mut self.links, links) != links;
        if are_alike {
            return had_others;
        }
        let mut threads = proc::threads(process).unwrap_or_default();
        threads.sort_unstable();
        let are_others = threads != std::mem::replace(&mut self.threads, threads.clone());
        std::mem::replace(&mut self.were_others, are_others) || are_others
    }
}

/// Is a thread scheduled as it is to be? Where no role has a niceness, its own one will do.
fn has(now: &Attributes, wanted: &Attributes, are_alike: bool) -> bool {
    let is_nice = now.nice == wanted.nice || wanted.priority > 0 || (are_alike && wanted.nice == 0);
    now.is_same_class(wanted) && is_nice
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
        Held {
            name,
            cgroup,
            held_as,
            units: BTreeMap::new(),
            retry_at: None,
            helpers: Vec::new(),
            seen: Seen::default(),
        }
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
        self.seen = Seen { is_forgotten: true, ..Seen::default() };
    }

    /// Gives the threads that are no vCPUs what their class says, if threads came or went. A thread that has
    /// it already inherited it, and is left alone: monitors start and end workers all the time.
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
        let (process, threads) = (self.held_as.process.id, &self.held_as.place.threads);
        let are_alike = threads.are_alike();
        if !self.seen.has_changed(process, are_alike) {
            return Ok(());
        }
        let is_forgotten = std::mem::take(&mut self.seen.is_forgotten);
        let mut roles: BTreeMap<&'static str, HeldRole> = BTreeMap::new();
        for thread in proc::threads(process).unwrap_or_default() {
            if self.held_as.vcpus.values().any(|vcpu| vcpu.id == thread) {
                continue;
            }
            let name = proc::name(thread).unwrap_or_default();
            let role = vmm::role_of(&name, process.unsigned_abs(), thread == process);
            let helper = helper_of(threads, role);
            let (to, reason) = places.of(&helper.place);
            let attributes = helper_attributes(helper.policy);
            let is_there = sched::affinity(thread).is_ok_and(|now| now == *to)
                && sched::attributes(thread).is_ok_and(|now| has(&now, &attributes, are_alike));
            if is_forgotten || !is_there {
                session.place_helper(thread, &to, &attributes)?;
            }
            roles.entry(role.name()).or_insert_with(|| HeldRole {
                role: role.name().to_owned(),
                processors: to.into_owned(),
                reason,
                policy: attributes.policy_name().to_owned(),
                rt_priority: attributes.priority,
                nice: attributes.nice,
            });
        }
        self.helpers = roles.into_values().collect();
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
        let places = Places { host: &[0, 1, 2], near: &[2], pool: "rt" };
        let at = |place| Helper { place, ..Helper::default() };
        let slot = |processors: &[usize]| {
            at(ThreadPlace::Slot { name: "sv0".into(), processors: processors.to_vec() })
        };
        let threads = Threads {
            io: at(ThreadPlace::Near),
            vhost: slot(&[1, 7]),
            rcu: slot(&[7]),
            ..Threads::default()
        };
        for (name, leads, to, reason) in [
            ("qemu-system-x86", true, &[0, 1, 2][..], "no pool has them"),
            ("IO iothread1", false, &[2], "they are close to pool rt"),
            ("worker", false, &[2], "they are close to pool rt"),
            ("vhost-7", false, &[1], "they are in slot sv0"),
            ("call_rcu", false, &[0, 1, 2], "no processor of slot sv0 is online and outside the pools"),
        ] {
            let helper = helper_of(&threads, vmm::role_of(name, 7, leads));
            assert_eq!(places.of(&helper.place), (to.into(), reason.into()), "{name}");
        }
    }

    #[test]
    fn a_unit_is_named_after_its_process_and_vcpu() {
        assert_eq!(parse_unit_name(&unit_name(4711, 3)), Some((4711, 3)));
        assert_eq!(parse_unit_name("sh"), None);
    }
}
