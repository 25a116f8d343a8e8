//! From a host to a machine at time zero.

use punctual_model::host::{Parent, PolicyChoice};
use punctual_model::index::{DomainIx, PoolIx, TaskIx};
use punctual_model::results::JobStats;
use punctual_model::trace::TraceSink;
use punctual_model::{Host, Recorder};
use punctual_sched::registry::PolicyInfo;
use punctual_sched::{CpuId, CpuSet, Duration, Instant, Policy, Run, UnitParams};

use crate::Error;
use crate::arrivals::Arrivals;
use crate::checks::History;
use crate::machine::{Allowed, Machine, NONE, Proc, Sched, TaskState, Unit, VcpuState};
use crate::min_tree::MinTree;

pub(crate) fn machine<'h, T: TraceSink>(
    host: &'h Host,
    trace: &'h mut T,
    mut wrap: impl FnMut(Parent, Box<dyn Policy>) -> Box<dyn Policy>,
) -> Result<Machine<'h, T>, Error> {
    let mut scheds = Vec::with_capacity(host.pools.len() + host.domains.len());
    let mut procs: Vec<Proc> = (0..host.processors).map(|p| new_proc(NONE, 0, p as u32, true)).collect();
    for (ix, pool) in host.pools.iter().enumerate() {
        for (cpu, &processor) in pool.processors.iter().enumerate() {
            procs[processor] = new_proc(scheds.len() as u32, cpu, processor as u32, true);
        }
        let members: Box<[u32]> = pool.processors.iter().map(|&p| p as u32).collect();
        let policy = wrap(Parent::Pool(PoolIx(ix)), new_policy(&pool.policy, &members, &pool.name)?);
        scheds.push(new_sched(policy, pool.policy.info, members));
    }
    for (ix, domain) in host.domains.iter().enumerate() {
        let members: Box<[u32]> = domain.vcpus.clone().map(|v| (host.processors + v) as u32).collect();
        for cpu in 0..members.len() {
            procs.push(new_proc(scheds.len() as u32, cpu, NONE, false));
        }
        let policy = wrap(Parent::Domain(DomainIx(ix)), new_policy(&domain.guest, &members, &domain.name)?);
        scheds.push(new_sched(policy, domain.guest.info, members));
    }
    let mut machine = Machine {
        host,
        trace,
        trace_later: Vec::new(),
        traced_budgets: Vec::new(),
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
        net: crate::net::build(host)?,
        history: History::default(),
        violation: None,
    };
    insert_units(&mut machine)?;
    for (ix, kernel) in machine.net.kernels.iter().enumerate() {
        machine.procs[kernel.proc as usize].kernel = ix as u32;
    }
    for (task, state) in machine.tasks.iter().enumerate() {
        machine.releases.set(task, state.head.release);
    }
    if T::ENABLED {
        machine.traced_budgets = vec![None; machine.units.len()];
    }
    Ok(machine)
}

fn new_proc(sched: u32, cpu: usize, root: u32, powered: bool) -> Proc {
    Proc {
        sched,
        cpu: CpuId(cpu as u32),
        kernel: NONE,
        run: Run::Idle,
        unit: NONE,
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

fn new_policy(choice: &PolicyChoice, procs: &[u32], owner: &str) -> Result<Box<dyn Policy>, Error> {
    (choice.info.build)(procs.len(), &choice.options)
        .map_err(|e| Error::Refused(format!("{owner}: policy {}: {e}", choice.info.name)))
}

fn new_sched(policy: Box<dyn Policy>, info: &'static PolicyInfo, procs: Box<[u32]>) -> Sched {
    Sched {
        policy,
        info,
        resched: CpuSet::new(procs.len()),
        procs,
        units: Vec::new(),
        awake: 0,
        running: 0,
        lock_free_at: Instant::ZERO,
        touched: false,
        check_turn: 0,
    }
}

fn new_vcpu() -> VcpuState {
    VcpuState {
        woken_at: Instant::NEVER,
        idled_away: Duration::ZERO,
        wakes: 0,
        sleeps: 0,
        wake_latency: Recorder::new(),
    }
}

fn new_task(host: &Host, task: TaskIx) -> TaskState {
    let arrivals = Arrivals::new(host, task);
    TaskState {
        arrivals,
        head: arrivals.first(),
        current: arrivals.first(),
        remaining: Duration::ZERO,
        executed: Duration::ZERO,
        started: false,
        jobs: JobStats::default(),
    }
}

/// Every vCPU and task becomes a unit of its parent's scheduler, asleep, in the host's order.
fn insert_units<T: TraceSink>(machine: &mut Machine<'_, T>) -> Result<(), Error> {
    let host = machine.host;
    for vcpu in &host.vcpus {
        insert_unit(machine, host.domains[vcpu.domain.0].parent, &vcpu.params)?;
    }
    for task in &host.tasks {
        insert_unit(machine, task.parent, &task.params)?;
    }
    for sched in 0..machine.scheds.len() {
        machine.touch_sched(sched);
    }
    Ok(())
}

fn insert_unit<T: TraceSink>(
    machine: &mut Machine<'_, T>,
    parent: Parent,
    params: &UnitParams,
) -> Result<(), Error> {
    let sched = match parent {
        Parent::Pool(pool) => pool.0,
        Parent::Domain(domain) => machine.host.pools.len() + domain.0,
    };
    let unit = machine.units.len() as u32;
    let inserted = machine.scheds[sched].policy.insert(Instant::ZERO, params);
    let id = inserted.map_err(|e| Error::Refused(format!("{}: {e}", machine.unit_name(unit))))?;
    machine.units.push(Unit {
        sched: sched as u32,
        id,
        allowed: match &params.affinity {
            None => Allowed::All,
            Some(set) if set.len() == 1 => set.iter().next().map_or(Allowed::Several, Allowed::Only),
            Some(_) => Allowed::Several,
        },
        awake: false,
        running_on: NONE,
        last_on: NONE,
        charged: Duration::ZERO,
        context_switches: 0,
        migrations: 0,
    });
    let ids = &mut machine.scheds[sched].units;
    if ids.len() <= id.index() {
        // A guest with one task is the most frequent scheduler.
        if ids.is_empty() {
            ids.reserve_exact(1);
        }
        ids.resize(id.index() + 1, NONE);
    }
    ids[id.index()] = unit;
    Ok(())
}
