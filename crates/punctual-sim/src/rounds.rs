//! Rounds of vCPUs that wait for each other ([`punctual_model::smp`]).
//!
//! # Rules
//! - **A round** is executed by the task of one vCPU: `cost`, then what the kind adds. When it ends, the next
//!   one begins.
//! - **A vCPU that spins** executes for nothing until what it waits for has happened, and goes on from there
//!   when it executes.
//! - **A spinlock** that is unlocked goes to the vCPU that has spun for it longest and executes now. If none
//!   of them executes, the first vCPU that comes to it gets it, the one that unlocked it included.
//! - **A mutex** that is unlocked is free. The vCPU that has been idle for it longest is woken, and tries
//!   again when it executes.
//! - **An interrupt** is answered ahead of all else when the vCPU executes, several in the order of their
//!   arrival.

use punctual_model::index::TaskIx;
use punctual_model::smp::SmpKind;
use punctual_sched::Duration;

use crate::index::ProcessorIx;
use crate::machine::Machine;
use crate::observe::Observer;
use crate::smp::{Doing, Member, Place};

/// Looking at a word that may have changed takes the least time there is.
const LOOK: Duration = Duration::from_ns(1);

impl<O: Observer> Machine<'_, O> {
    /// What the task has to execute until it first waits; `None`: it waits for no other vCPU.
    pub(crate) fn first_round(&mut self, task: TaskIx) -> Option<Duration> {
        self.smp.place(task).map(|place| self.cost_of_round(place))
    }

    fn cost_of_round(&self, place: Place) -> Duration {
        self.smp.guests[place.guest].work.cost
    }

    /// The task that `proc` executes has come to the end of what it could execute by itself.
    pub(crate) fn smp_event(&mut self, proc: ProcessorIx, place: Place) {
        self.charge(proc);
        self.events += 1;
        if self.member(place).calls.is_empty() {
            self.go_on(place);
        } else {
            self.answered(place);
        }
    }

    fn go_on(&mut self, place: Place) {
        let kind = self.smp.guests[place.guest].work.kind;
        match (kind, self.member(place).doing) {
            (SmpKind::Spinlock { held } | SmpKind::Mutex { held }, Doing::Cost | Doing::Waits) => {
                self.try_lock(place, held);
            }
            (SmpKind::Spinlock { .. } | SmpKind::Mutex { .. }, Doing::Holds) => {
                self.next_round(place);
                self.unlock_smp(place.guest);
            }
            (SmpKind::Interrupt { callers, .. }, _) => self.interrupt_others(place, callers),
            (SmpKind::Barrier, _) => self.arrive(place),
            (SmpKind::Pipe, _) => self.pass_byte_on(place),
        }
    }

    fn member(&mut self, Place { guest, vcpu }: Place) -> &mut Member {
        &mut self.smp.guests[guest].vcpus[vcpu]
    }

    /// Its round is done, and the next one begins.
    fn next_round(&mut self, place: Place) {
        self.member(place).rounds += 1;
        self.member(place).doing = Doing::Cost;
        let cost = self.cost_of_round(place);
        self.execute(place, cost);
    }

    /// The vCPU's round has this much to execute from now on.
    fn execute(&mut self, place: Place, left: Duration) {
        let task = self.member(place).task;
        if self.member(place).calls.is_empty() {
            self.stop_spinning(place);
            self.tasks[task.0].remaining = left;
        } else {
            self.member(place).put_off = Some(left);
        }
    }

    /// The vCPU executes for nothing until [`Machine::execute`].
    fn spin(&mut self, place: Place) {
        let task = self.member(place).task;
        let executed = self.tasks[task.0].executed;
        self.tasks[task.0].remaining = Duration::MAX;
        self.member(place).doing = Doing::Waits;
        self.member(place).spins_from = Some(executed);
    }

    /// Charges the vCPU up to now, because what it has left to execute changes.
    fn stop_spinning(&mut self, place: Place) {
        let task = self.member(place).task;
        if let Some(on) = self.units[self.unit_of(task)].running_on.some() {
            self.charge(on);
            let root = self.procs[on].root;
            if self.procs[on].powered {
                self.touch_proc(root);
            }
        }
        let executed = self.tasks[task.0].executed;
        let member = self.member(place);
        if let Some(from) = member.spins_from.take() {
            member.spun += executed - from;
        }
    }

    fn sleep_smp(&mut self, place: Place) {
        let task = self.member(place).task;
        self.member(place).doing = Doing::Waits;
        self.sleep(self.unit_of(task));
    }

    fn wake_smp(&mut self, place: Place, left: Duration) {
        let task = self.member(place).task;
        self.tasks[task.0].remaining = left;
        self.wake(self.unit_of(task));
    }

    fn try_lock(&mut self, place: Place, held: Duration) {
        let guest = &mut self.smp.guests[place.guest];
        if guest.holder.is_none() {
            guest.holder = Some(place.vcpu);
            guest.waiting.retain(|&waiting| waiting != place.vcpu);
            guest.vcpus[place.vcpu].doing = Doing::Holds;
            return self.execute(place, held);
        }
        if !guest.waiting.contains(&place.vcpu) {
            guest.waiting.push(place.vcpu);
        }
        match guest.work.kind {
            SmpKind::Mutex { .. } => self.sleep_smp(place),
            _ => self.spin(place),
        }
    }

    fn unlock_smp(&mut self, guest: usize) {
        self.smp.guests[guest].holder = None;
        if let SmpKind::Mutex { .. } = self.smp.guests[guest].work.kind {
            if self.smp.guests[guest].waiting.is_empty() {
                return;
            }
            let vcpu = self.smp.guests[guest].waiting.remove(0);
            return self.wake_smp(Place { guest, vcpu }, LOOK);
        }
        let waiting = std::mem::take(&mut self.smp.guests[guest].waiting);
        let executes = |vcpu: &usize| self.executes(self.smp.guests[guest].vcpus[*vcpu].task);
        let next = waiting.iter().copied().find(executes);
        for &vcpu in &waiting {
            // They look again when they execute.
            if next.is_none() {
                self.execute(Place { guest, vcpu }, LOOK);
            }
        }
        self.smp.guests[guest].waiting = waiting;
        if let (Some(vcpu), SmpKind::Spinlock { held }) = (next, self.smp.guests[guest].work.kind) {
            self.try_lock(Place { guest, vcpu }, held);
        }
    }

    fn executes(&self, task: TaskIx) -> bool {
        self.units[self.unit_of(task)].running_on.some().is_some_and(|on| self.procs[on].powered)
    }

    fn interrupt_others(&mut self, place: Place, callers: usize) {
        let vcpus = self.smp.guests[place.guest].vcpus.len();
        let awaited = if place.vcpu < callers { vcpus - 1 } else { 0 };
        if awaited == 0 {
            return self.next_round(place);
        }
        self.member(place).awaited = awaited;
        self.spin(place);
        for vcpu in (0..vcpus).filter(|&vcpu| vcpu != place.vcpu) {
            self.interrupt(Place { vcpu, ..place }, place.vcpu);
        }
    }

    /// The vCPU has to answer `caller`.
    fn interrupt(&mut self, place: Place, caller: usize) {
        let SmpKind::Interrupt { answer, .. } = self.smp.guests[place.guest].work.kind else { return };
        if self.member(place).calls.is_empty() {
            self.stop_spinning(place);
            let task = self.member(place).task;
            let left = std::mem::replace(&mut self.tasks[task.0].remaining, answer);
            self.member(place).put_off = Some(left);
        }
        self.member(place).calls.push(caller);
    }

    /// The vCPU has answered an interrupt: its caller may go on, and so may the vCPU.
    fn answered(&mut self, place: Place) {
        let caller = Place { vcpu: self.member(place).calls.remove(0), ..place };
        if self.member(place).calls.is_empty() {
            let left = self.member(place).put_off.take().unwrap_or_default();
            let task = self.member(place).task;
            if left == Duration::MAX {
                self.spin(place);
            } else {
                self.tasks[task.0].remaining = left;
            }
        } else if let SmpKind::Interrupt { answer, .. } = self.smp.guests[place.guest].work.kind {
            let task = self.member(place).task;
            self.tasks[task.0].remaining = answer;
        }
        self.member(caller).awaited -= 1;
        if self.member(caller).awaited == 0 {
            self.next_round(caller);
        }
    }

    fn arrive(&mut self, place: Place) {
        let guest = &mut self.smp.guests[place.guest];
        guest.arrived += 1;
        if guest.arrived < guest.vcpus.len() {
            return self.spin(place);
        }
        guest.arrived = 0;
        for vcpu in 0..guest.vcpus.len() {
            self.next_round(Place { vcpu, ..place });
        }
    }

    fn pass_byte_on(&mut self, place: Place) {
        if !std::mem::take(&mut self.member(place).has_byte) {
            return self.sleep_smp(place);
        }
        self.member(place).rounds += 1;
        let next = Place { vcpu: (place.vcpu + 1) % self.smp.guests[place.guest].vcpus.len(), ..place };
        self.member(next).has_byte = true;
        let cost = self.cost_of_round(place);
        if next.vcpu == place.vcpu {
            return self.execute(place, cost);
        }
        if self.member(next).doing == Doing::Waits {
            self.member(next).doing = Doing::Cost;
            self.wake_smp(next, cost);
        }
        self.sleep_smp(place);
    }
}
