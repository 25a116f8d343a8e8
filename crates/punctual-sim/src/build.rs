//! From a host to a machine at time zero.

use punctual_model::host::{Change, Event};
use punctual_model::host::{Parent, PolicyChoice};
use punctual_model::index::{DomainIx, PoolIx, TaskIx, VcpuIx};
use punctual_model::results::JobStats;
use punctual_model::{Histogram, Host};
use punctual_sched::{CpuId, CpuSet, Duration, Instant, Policy, UnitParams};

use crate::arrivals::Arrivals;
use crate::error::Error;
use crate::index::{KernelIx, Occupant, ProcessorIx, SchedulerIx, UnitIx};
use crate::locks::Locks;
use crate::machine::{Changes, Machine, Proc, Sched, TaskState, Unit, VcpuState};
use crate::min_tree::MinTree;
use crate::names;
use crate::observe::Observer;
use crate::smp::Smp;

pub(crate) fn machine<O: Observer>(
    host: &Host,
    observer: O,
    mut wrap: impl FnMut(Parent, Box<dyn Policy>) -> Box<dyn Policy>,
) -> Result<Machine<'_, O>, Error> {
    let mut scheds = Vec::with_capacity(host.pools.len() + host.domains.len());
    let mut procs: Vec<Proc> =
        (0..host.processors).map(|p| new_proc(SchedulerIx::NONE, 0, ProcessorIx::new(p), true)).collect();
    for (ix, pool) in host.pools.iter().enumerate() {
        for (cpu, &processor) in pool.processors.iter().enumerate() {
            procs[processor] = new_proc(SchedulerIx::new(ix), cpu, ProcessorIx::new(processor), true);
        }
        let members: Box<[_]> = pool.processors.iter().map(|&p| ProcessorIx::new(p)).collect();
        let parent = Parent::Pool(PoolIx(ix));
        let policy = new_policy(host, parent, &pool.policy, members.len(), &pool.name)?;
        let policy = wrap(parent, policy);
        scheds.push(new_sched(policy, pool.policy.info.shared_queue, members));
    }
    for (ix, domain) in host.domains.iter().enumerate() {
        let members: Box<[_]> = domain.vcpus.clone().map(|v| ProcessorIx::new(host.processors + v)).collect();
        for cpu in 0..members.len() {
            procs.push(new_proc(SchedulerIx::new(host.pools.len() + ix), cpu, ProcessorIx::NONE, false));
        }
        let parent = Parent::Domain(DomainIx(ix));
        let policy = wrap(parent, new_policy(host, parent, &domain.guest, members.len(), &domain.name)?);
        scheds.push(new_sched(policy, domain.guest.info.shared_queue, members));
    }
    let changes = changes(host, &mut wrap)?;
    let mut machine = Machine {
        host,
        observer,
        now: Instant::ZERO,
        end: Instant::ZERO + host.duration,
        physical: host.processors,
        units: Vec::with_capacity(host.vcpus.len() + host.tasks.len()),
        vcpus: host.vcpus.iter().map(|_| new_vcpu()).collect(),
        tasks: (0..host.tasks.len()).map(|i| new_task(host, TaskIx(i))).collect(),
        proc_events: MinTree::new(host.processors),
        timers: MinTree::new(scheds.len()),
        releases: MinTree::new(host.tasks.len()),
        scheds,
        procs,
        pending_virtual: Vec::new(),
        pending_physical: Vec::new(),
        touched_procs: Vec::new(),
        touched_scheds: Vec::new(),
        events: 0,
        net: crate::net::build::build(host)?,
        locks: Locks::new(host),
        smp: Smp::new(host),
        changes,
    };
    insert_units(&mut machine)?;
    for (ix, kernel) in machine.net.kernels.iter().enumerate() {
        machine.procs[kernel.proc].kernel = KernelIx::new(ix);
    }
    for (task, state) in machine.tasks.iter().enumerate() {
        machine.releases.set(task, state.head.release);
    }
    Ok(machine)
}

/// All events of the host, whose policies are wrapped as the first ones are.
fn changes(
    host: &Host,
    wrap: &mut impl FnMut(Parent, Box<dyn Policy>) -> Box<dyn Policy>,
) -> Result<Changes, Error> {
    let policy = |event: &Event| match &event.change {
        Change::Params { .. } => Ok(None),
        Change::Policy { pool, policy } => {
            let (parent, pool) = (Parent::Pool(*pool), &host.pools[pool.0]);
            let policy = new_policy(host, parent, policy, pool.processors.len(), &pool.name)?;
            Ok(Some(wrap(parent, policy)))
        }
    };
    let policies = host.events.iter().map(policy).collect::<Result<_, Error>>()?;
    let counted = vec![Vec::new(); host.pools.len()];
    let mut changes = Changes { at: Instant::NEVER, pause: Instant::NEVER, next: 0, policies, counted };
    changes.set_next(host, 0);
    Ok(changes)
}

fn new_proc(sched: SchedulerIx, cpu: usize, root: ProcessorIx, powered: bool) -> Proc {
    Proc {
        sched,
        cpu: CpuId(cpu as u32),
        kernel: KernelIx::NONE,
        occupant: Occupant::IDLE,
        powered,
        root,
        resched: false,
        pending: false,
        touched: false,
        until: Instant::NEVER,
        slice_left: Duration::MAX,
        charged_to: Instant::ZERO,
        exec_from: Instant::ZERO,
        busy: Duration::ZERO,
        idle: Duration::ZERO,
        overhead: Duration::ZERO,
        decisions: 0,
        context_switches: 0,
    }
}

fn new_policy(
    host: &Host,
    parent: Parent,
    choice: &PolicyChoice,
    cpus: usize,
    owner: &str,
) -> Result<Box<dyn Policy>, Error> {
    let vcpus = host.vcpus_of(parent).map(|(ix, _)| host.vcpu_params(ix));
    let built = choice.info.build_for(cpus, &choice.options, vcpus);
    built.map_err(|e| Error::Refused(format!("{owner}: policy {}: {e}", choice.info.name)))
}

fn new_sched(policy: Box<dyn Policy>, shared_queue: bool, procs: Box<[ProcessorIx]>) -> Sched {
    Sched {
        policy,
        shared_queue,
        resched: CpuSet::new(procs.len()),
        procs,
        units: Vec::new(),
        lock_free_at: Instant::ZERO,
        touched: false,
    }
}

fn new_vcpu() -> VcpuState {
    VcpuState {
        woken_at: Instant::NEVER,
        charged: Duration::ZERO,
        idled_away: Duration::ZERO,
        wakes: 0,
        sleeps: 0,
        wake_latency: Histogram::new(),
    }
}

fn new_task(host: &Host, task: TaskIx) -> TaskState {
    let arrivals = Arrivals::new(host, task);
    TaskState {
        arrivals,
        head: arrivals.first(),
        current: arrivals.first(),
        remaining: Duration::ZERO,
        pause: Duration::ZERO,
        executed: Duration::ZERO,
        started: false,
        jobs: JobStats::default(),
    }
}

/// Every vCPU and task becomes a unit of its parent's scheduler, asleep, in the host's order.
fn insert_units<O: Observer>(machine: &mut Machine<'_, O>) -> Result<(), Error> {
    let host = machine.host;
    for vcpu in 0..host.vcpus.len() {
        insert_unit(machine, &host.vcpu_params(VcpuIx(vcpu)))?;
    }
    for task in &host.tasks {
        insert_unit(machine, &task.params)?;
    }
    for sched in 0..machine.scheds.len() {
        machine.touch_sched(SchedulerIx::new(sched));
    }
    Ok(())
}

fn insert_unit<O: Observer>(machine: &mut Machine<'_, O>, params: &UnitParams) -> Result<(), Error> {
    let unit = UnitIx::new(machine.units.len());
    let sched = names::scheduler_of(machine.host, unit);
    let inserted = machine.scheds[sched].policy.insert(Instant::ZERO, params);
    let id = inserted.map_err(|e| Error::Refused(format!("{}: {e}", names::unit(machine.host, unit))))?;
    machine.units.push(Unit {
        sched,
        id,
        awake: false,
        running_on: ProcessorIx::NONE,
        last_on: ProcessorIx::NONE,
        context_switches: 0,
        migrations: 0,
    });
    let expected = machine.scheds[sched].units.len();
    if id.index() != expected {
        let name = names::unit(machine.host, unit);
        return Err(Error::Refused(format!("{name}: the policy calls its unit {expected} {id:?}")));
    }
    let ids = &mut machine.scheds[sched].units;
    // A guest with one task is the most frequent scheduler.
    if ids.is_empty() {
        ids.reserve_exact(1);
    }
    ids.push(unit);
    Ok(())
}
