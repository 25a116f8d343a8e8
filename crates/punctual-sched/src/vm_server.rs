//! One budget for a whole VM: its vCPUs share one server, under any policy.
//!
//! # Rules
//! - **One unit inside.** Units of one [`UnitParams::vm`] with [`UnitParams::shares_budget`] are one unit of
//!   the policy: it has work while one of them has, and pays for each of them.
//! - **One at a time.** A unit runs on one processor, so one of the vCPUs does. They take turns as those of
//!   other VMs ([`crate::turns`]): for at most [`TURN`] while another one has work, then that one whose last
//!   turn ended longest ago. Unlike there, the processors of the pool make no difference.
//! - **Parameters** are those of the vCPU that came first, until one is adjusted; an affinity is that of all.
//! - **Accounts** are that of the server; its exhaustions and replenishments are counted for one vCPU.
//! - **Deadlines** of current work ([`Policy::set_deadline`]) are not passed on: they are of one vCPU.
//! - All other units are units of the policy as they are.
//!
//! [`PolicyInfo::build_for`] puts only policies with such units into this wrapper.
//!
//! [`PolicyInfo::build_for`]: crate::registry::PolicyInfo::build_for

use alloc::vec::Vec;

use crate::cpuset::{CpuId, CpuSet};
use crate::decision::{Run, Slice, UnitId};
use crate::params::{ParamError, UnitParams, require};
use crate::policy::{Account, Ahead, Policy};
use crate::slots::Slots;
use crate::time::{Duration, Instant};
use crate::turns::TURN;
use crate::vec_growth;
use crate::wrap::Wrapper;

/// A unit as the driver knows it.
#[derive(Clone, Copy, Debug)]
struct Member {
    /// Its unit of the policy.
    server: UnitId,
    /// The VM whose vCPUs share that; `None`: it is the only one.
    vm: Option<u32>,
    /// The next member of the same server, in a ring; itself without others.
    next: UnitId,
    /// Has it work? Set by `wake`, cleared by `sleep`.
    awake: bool,
    /// The rest of its turn.
    left: Duration,
    /// Which turn of all was its last to end; 0: none.
    ended: u64,
    /// Has it begun a turn, and neither ended it nor slept since? Set by `pick`, cleared by `charge` and
    /// `tire`.
    in_turn: bool,
}

/// A unit of the policy.
#[derive(Clone, Copy, Debug)]
struct Server {
    /// One of its members.
    member: UnitId,
    /// How many of them have work.
    awake: u32,
    /// The processor that has picked it and has not picked again.
    on: Option<CpuId>,
    /// The member that runs there, or that is charged for what idles away. Meaningless without `on`.
    runs: UnitId,
    /// Does its slice end with the turn, because another member has work? Set by `pick`, checked by `wake`.
    is_shared: bool,
    /// Does the policy take it for awake, although no member has work? Its processor, which has not been
    /// charged, is asked to pick. Set by `tire`, cleared by `wake` and `pick`.
    sleeps_at_pick: bool,
}

/// Servers of whole VMs around a policy; see the module's rules.
pub struct VmServers {
    members: Slots<Member>,
    /// By unit of the policy. A removed one keeps its last state.
    servers: Vec<Server>,
    /// The unit of the policy that each processor picked last, if it has not been removed.
    picked: Vec<Option<UnitId>>,
    /// Turns that have ended.
    ended: u64,
}

impl VmServers {
    /// Around a policy for a pool of `cpus` processors.
    pub fn new(cpus: usize) -> Self {
        let picked = alloc::vec![None; cpus];
        VmServers { members: Slots::new(), servers: Vec::new(), picked, ended: 0 }
    }

    /// The members of the same server, this one first.
    fn ring(&self, member: UnitId) -> impl Iterator<Item = UnitId> + '_ {
        let next = move |at: &UnitId| Some(self.members[at.index()].next).filter(|next| *next != member);
        core::iter::successors(Some(member), next)
    }

    /// Whose turn it is among the server's members with work; among all, if none has any.
    fn first(&self, server: UnitId) -> UnitId {
        let Server { member, awake, .. } = self.servers[server.index()];
        let may = |other: &UnitId| awake == 0 || self.members[other.index()].awake;
        let place = |other: &UnitId| self.place(*other);
        self.ring(member).filter(may).min_by_key(place).unwrap_or(member)
    }

    /// Its place among the members of its server: one in its turn comes first, then that one whose last turn
    /// ended longest ago.
    fn place(&self, member: UnitId) -> (bool, u64, UnitId) {
        let of = &self.members[member.index()];
        (!of.in_turn, of.ended, member)
    }

    /// The member that shares its server with the units of this VM.
    fn of_vm(&self, vm: u32) -> Option<UnitId> {
        let mut members = (0..self.members.len() as u32).map(UnitId);
        members.find(|member| self.members[member.index()].vm == Some(vm))
    }

    fn server_of(&self, member: UnitId) -> &Server {
        &self.servers[self.members[member.index()].server.index()]
    }

    /// Does the member run, or is it charged for what idles away?
    fn processor_of(&self, member: UnitId) -> Option<CpuId> {
        let server = self.server_of(member);
        server.on.filter(|_| server.runs == member)
    }

    /// A member has no more work; returns its unit of the policy if that goes to sleep now. Where another
    /// member has the processor, it goes to sleep when that picks, for it must be charged first.
    fn tire(&mut self, member: UnitId, resched: &mut CpuSet) -> Option<UnitId> {
        let own = &mut self.members[member.index()];
        own.in_turn = false;
        if !core::mem::replace(&mut own.awake, false) {
            return None;
        }
        let id = own.server;
        let server = &mut self.servers[id.index()];
        server.awake -= 1;
        let is_last = server.awake == 0;
        let Some(cpu) = server.on else { return is_last.then_some(id) };
        if server.runs == member && is_last {
            return Some(id);
        }
        if server.runs == member || is_last {
            resched.insert(cpu);
        }
        server.sleeps_at_pick = is_last;
        None
    }

    /// A unit of the policy that has one member.
    fn add_server(&mut self, server: UnitId, member: UnitId) {
        let new =
            Server { member, awake: 0, on: None, runs: member, is_shared: false, sleeps_at_pick: false };
        while self.servers.len() <= server.index() {
            vec_growth::push(&mut self.servers, new);
        }
        self.servers[server.index()] = new;
    }
}

/// The VM whose vCPUs the unit shares a budget with.
fn vm_of(params: &UnitParams) -> Option<u32> {
    params.vm.filter(|_| params.shares_budget && !params.best_effort)
}

/// The parameters as the policy gets them.
fn inside_params(params: &UnitParams) -> UnitParams {
    match vm_of(params) {
        Some(_) => UnitParams { vm: None, shares_budget: false, ..params.clone() },
        None => params.clone(),
    }
}

impl Wrapper for VmServers {
    fn insert(
        &mut self,
        inside: &mut dyn Policy,
        now: Instant,
        params: &UnitParams,
    ) -> Result<UnitId, ParamError> {
        let vm = vm_of(params);
        let other = vm.and_then(|vm| self.of_vm(vm));
        let server = match other {
            Some(other) => self.members[other.index()].server,
            None => inside.insert(now, &inside_params(params))?,
        };
        let member =
            Member { server, vm, next: UnitId(0), awake: false, left: TURN, ended: 0, in_turn: false };
        let id = self.members.insert(member);
        self.members[id.index()].next = match other {
            Some(other) => core::mem::replace(&mut self.members[other.index()].next, id),
            None => id,
        };
        if other.is_none() {
            self.add_server(server, id);
        }
        Ok(id)
    }

    fn remove(&mut self, inside: &mut dyn Policy, now: Instant, unit: UnitId, resched: &mut CpuSet) {
        let Member { server, next, .. } = self.members[unit.index()];
        let on = self.processor_of(unit);
        let sleeps = self.tire(unit, resched);
        if next == unit {
            if let Some(cpu) = self.servers[server.index()].on.take() {
                self.picked[cpu.index()] = None;
            }
            inside.remove(now, server, resched);
        } else {
            if let Some(server) = sleeps {
                inside.sleep(now, server, resched);
            }
            if let Some(before) = self.ring(unit).last() {
                self.members[before.index()].next = next;
            }
            self.servers[server.index()].member = next;
            if let Some(cpu) = on {
                self.servers[server.index()].runs = next;
                resched.insert(cpu);
            }
        }
        (self.members[unit.index()].next, self.members[unit.index()].vm) = (unit, None);
        self.members.remove(unit);
    }

    fn adjust(
        &mut self,
        inside: &mut dyn Policy,
        now: Instant,
        unit: UnitId,
        params: &UnitParams,
        resched: &mut CpuSet,
    ) -> Result<(), ParamError> {
        let Member { server, vm, .. } = self.members[unit.index()];
        require(vm == vm_of(params), UnitParams::BUDGET_OF, || "as it was when the unit came".into())?;
        inside.adjust(now, server, &inside_params(params), resched)
    }

    fn wake(&mut self, inside: &mut dyn Policy, now: Instant, unit: UnitId, resched: &mut CpuSet) {
        let own = &mut self.members[unit.index()];
        if core::mem::replace(&mut own.awake, true) {
            return;
        }
        let id = own.server;
        let server = &mut self.servers[id.index()];
        server.awake += 1;
        if server.awake == 1 && !core::mem::take(&mut server.sleeps_at_pick) {
            inside.wake(now, id, resched);
        } else if let (Some(cpu), false) = (server.on, server.is_shared) {
            // Its slice ends with the turn from now on.
            resched.insert(cpu);
        }
    }

    fn sleep(&mut self, inside: &mut dyn Policy, now: Instant, unit: UnitId, resched: &mut CpuSet) {
        if let Some(server) = self.tire(unit, resched) {
            inside.sleep(now, server, resched);
        }
    }

    fn sleep_before_pick(
        &mut self,
        inside: &mut dyn Policy,
        now: Instant,
        unit: UnitId,
        cpu: CpuId,
        resched: &mut CpuSet,
    ) {
        if let Some(server) = self.tire(unit, resched) {
            inside.sleep_before_pick(now, server, cpu, resched);
        }
    }

    fn set_deadline(
        &mut self,
        inside: &mut dyn Policy,
        now: Instant,
        unit: UnitId,
        deadline: Instant,
        resched: &mut CpuSet,
    ) {
        let Member { server, vm, .. } = self.members[unit.index()];
        if vm.is_none() {
            inside.set_deadline(now, server, deadline, resched);
        }
    }

    fn charge(&mut self, inside: &mut dyn Policy, now: Instant, cpu: CpuId, unit: UnitId, ran: Duration) {
        let own = &mut self.members[unit.index()];
        inside.charge(now, cpu, own.server, ran);
        // A budget that idles away is no turn.
        if own.vm.is_none() || !own.awake {
            return;
        }
        own.left = own.left.saturating_sub(ran);
        if own.left.is_zero() {
            self.ended += 1;
            (own.left, own.ended, own.in_turn) = (TURN, self.ended, false);
        }
    }

    fn pick(&mut self, inside: &mut dyn Policy, now: Instant, cpu: CpuId, resched: &mut CpuSet) -> Slice {
        if let Some(before) = self.picked[cpu.index()].take() {
            let server = &mut self.servers[before.index()];
            server.on = None;
            if core::mem::take(&mut server.sleeps_at_pick) {
                inside.sleep_before_pick(now, before, cpu, resched);
            }
        }
        let mut slice = inside.pick(now, cpu, resched);
        let Some(picked) = slice.run.charged() else { return slice };
        let first = self.first(picked);
        let server = &mut self.servers[picked.index()];
        (server.on, server.runs) = (Some(cpu), first);
        server.is_shared = server.awake > 1;
        self.members[first.index()].in_turn = server.awake > 0;
        if server.is_shared {
            slice.until = slice.until.min(now + self.members[first.index()].left);
        }
        self.picked[cpu.index()] = Some(picked);
        slice.run = match slice.run {
            Run::IdleFor(_) => Run::IdleFor(first),
            Run::Unit(_) | Run::Idle => Run::Unit(first),
        };
        slice
    }

    fn yield_to(
        &mut self,
        _inside: &mut dyn Policy,
        _now: Instant,
        _cpu: CpuId,
        _unit: UnitId,
        _resched: &mut CpuSet,
    ) -> Option<Slice> {
        // Turns are taken inside.
        None
    }

    fn ranking(&self, inside: &dyn Policy, cpu: CpuId, out: &mut Vec<UnitId>) {
        inside.ranking(cpu, out);
        let servers = out.len();
        let of = |server: UnitId| self.ring(self.servers[server.index()].member);
        let members: usize = out.iter().map(|server| of(*server).count()).sum();
        out.resize(members, UnitId(0));
        // From the back: no server is overwritten before its members are in place.
        let mut end = members;
        for at in (0..servers).rev() {
            let server = out[at];
            let begin = end - of(server).count();
            of(server).zip(&mut out[begin..end]).for_each(|(member, place)| *place = member);
            // One that sleeps stands where its wake-up would put it.
            out[begin..end].sort_unstable_by_key(|member| self.place(*member));
            end = begin;
        }
    }

    fn account(&self, inside: &dyn Policy, unit: UnitId) -> Account {
        let account = inside.account(self.members[unit.index()].server);
        // What happened to the server is counted once.
        let is_first = self.ring(unit).all(|other| other >= unit);
        if is_first { account } else { Account { exhaustions: 0, replenishments: 0, ..account } }
    }

    /// Whose turn it is decides about the ranking of those that share a budget.
    fn ahead(&self, inside: &dyn Policy, unit: UnitId) -> Option<Ahead> {
        let Member { server, next, .. } = self.members[unit.index()];
        inside.ahead(server).filter(|_| next == unit)
    }
}
