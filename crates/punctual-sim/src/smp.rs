//! vCPUs of a guest that wait for each other: where each is in its round. `rounds.rs` moves them through
//! time, and has the rules.

use punctual_model::Host;
use punctual_model::host::Parent;
use punctual_model::index::TaskIx;
use punctual_model::results::SmpRounds;
use punctual_model::smp::SmpWork;
use punctual_sched::Duration;

/// The guests whose vCPUs wait for each other.
#[derive(Default)]
pub(crate) struct Smp {
    pub(crate) guests: Vec<Guest>,
    /// By task: its guest and its vCPU there. Empty if there are none.
    of_task: Vec<Option<Place>>,
}

#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) guest: usize,
    pub(crate) vcpu: usize,
}

pub(crate) struct Guest {
    pub(crate) work: SmpWork,
    pub(crate) vcpus: Vec<Member>,
    /// The vCPU that holds the lock.
    pub(crate) holder: Option<usize>,
    /// Those that wait for it, in the order in which they came.
    pub(crate) waiting: Vec<usize>,
    /// How many have arrived at the barrier.
    pub(crate) arrived: usize,
}

pub(crate) struct Member {
    pub(crate) task: TaskIx,
    pub(crate) doing: Doing,
    pub(crate) rounds: u64,
    pub(crate) spun: Duration,
    /// What its task had executed when it began to spin; `None`: it does not spin.
    pub(crate) spins_from: Option<Duration>,
    /// The vCPUs whose interrupts it has to answer, the first one now.
    pub(crate) calls: Vec<usize>,
    /// What its round has left to execute, put off while it answers.
    pub(crate) put_off: Option<Duration>,
    /// How many answers it waits for.
    pub(crate) awaited: usize,
    /// Has the byte arrived?
    pub(crate) has_byte: bool,
}

/// Where a vCPU is in its round.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doing {
    Cost,
    Waits,
    Holds,
}

impl Smp {
    pub(crate) fn new(host: &Host) -> Smp {
        let mut smp = Smp::default();
        for &(ix, work) in &host.smp {
            let domain = &host.domains[ix.0];
            smp.of_task.resize(host.tasks.len(), None);
            let mut vcpus: Vec<Member> = Vec::with_capacity(domain.vcpus.len());
            for (task, _) in host.tasks_of(Parent::Domain(ix)) {
                smp.of_task[task.0] = Some(Place { guest: smp.guests.len(), vcpu: vcpus.len() });
                vcpus.push(Member::new(task, domain.vcpus.len(), vcpus.is_empty()));
            }
            let waiting = Vec::with_capacity(vcpus.len());
            smp.guests.push(Guest { work, vcpus, holder: None, waiting, arrived: 0 });
        }
        smp
    }

    #[inline]
    pub(crate) fn place(&self, task: TaskIx) -> Option<Place> {
        self.of_task.get(task.0).copied().flatten()
    }

    /// What the vCPU of this task did; `executed` is what the task has executed in all.
    pub(crate) fn rounds(&self, task: TaskIx, executed: Duration) -> Option<SmpRounds> {
        let Place { guest, vcpu } = self.place(task)?;
        let member = &self.guests[guest].vcpus[vcpu];
        let spins = member.spins_from.map_or(Duration::ZERO, |from| executed - from);
        Some(SmpRounds { rounds: member.rounds, spun_ns: (member.spun + spins).as_ns() })
    }
}

impl Member {
    fn new(task: TaskIx, vcpus: usize, is_first: bool) -> Member {
        Member {
            task,
            doing: Doing::Cost,
            rounds: 0,
            spun: Duration::ZERO,
            spins_from: None,
            calls: Vec::with_capacity(vcpus),
            put_off: None,
            awaited: 0,
            has_byte: is_first,
        }
    }
}
