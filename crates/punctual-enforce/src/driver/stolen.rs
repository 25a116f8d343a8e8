//! Time that the machine below took, as far as the kernel charges it to threads: it is nobody's fault, and no
//! unit's budget pays for it.
//!
//! # Rule
//! Linux leaves stolen time out of a thread's account where it knows of it: that takes
//! `CONFIG_PARAVIRT_TIME_ACCOUNTING` and a hypervisor that says what it steals (KVM, Xen, Hyper-V;
//! `update_rq_clock_task` in `kernel/sched/core.c`, from which `sum_exec_runtime` of `schedstat` and
//! `cpu.stat` follow). Then there is nothing to subtract. Without either (QEMU's translation, firmware, a
//! kernel without the option) the account goes on while the machine stands still.
//!
//! Where the kernel does not know, an enforcer finds out. Its timer has the highest priority on the
//! processor. When a look comes later than it was due, the units cannot have run since then, unless the
//! enforcer itself was stopped (by a signal or a freezer), or waited for the processor while a thread above
//! it had it: `schedstat` of the enforcer says both. So what the units ran beyond the time up to the instant
//! at which the look was due was stolen. It is subtracted from the unit that ran longest.
//!
//! A budget that idles away (periodic server) does not while the machine stands still.
//!
//! Where the kernel knows, units that ran on after that instant did run: the timer itself was late, as those
//! of virtual machines are.

use punctual_sched::Duration;

use super::Observation;

/// How late a look came, and why as far as the kernel says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// How much later than it was due.
    pub late: Duration,
    /// How long of that the enforcer waited for the processor, ready to run.
    pub waited: Duration,
    /// Was it stopped by a signal or a freezer?
    pub was_stopped: bool,
    /// Does the kernel leave stolen time out of threads' accounts?
    pub kernel_knows_stolen: bool,
}

/// What the units did between the instant at which a look was due and the look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// Time that the kernel charged to units though the machine stood still; it was subtracted.
    pub stolen: Duration,
    /// How long the machine stood still, whether or not a unit was charged for it.
    pub stood_still: Duration,
    /// They went on running, because only the enforcer was late.
    pub ran_on: bool,
}

/// Less than this is the time that a look and a switch take.
const NOISE: Duration = Duration::from_us(50);

/// Subtracts stolen time from what was observed of the units of one processor over `elapsed`, the time since
/// the look before.
pub fn subtract_stolen(
    observed: &mut [(usize, Observation)],
    elapsed: Duration,
    lateness: &Lateness,
) -> Judgement {
    let Lateness { late, waited, was_stopped, kernel_knows_stolen } = *lateness;
    let ran: Duration = observed.iter().map(|(_, observation)| observation.ran).sum();
    let beyond = ran.saturating_sub(elapsed.saturating_sub(late)).min(late.saturating_sub(waited));
    let ran_on = was_stopped || (kernel_knows_stolen && beyond * 2 > late);
    let stood_still = if ran_on || late < NOISE { Duration::ZERO } else { late.saturating_sub(waited) };
    let judgement = Judgement { stolen: Duration::ZERO, stood_still, ran_on };
    if was_stopped || kernel_knows_stolen || beyond <= NOISE {
        return judgement;
    }
    let longest = observed.iter_mut().max_by_key(|(_, observation)| observation.ran);
    let Some((_, longest)) = longest else { return judgement };
    let stolen = beyond.min(longest.ran);
    longest.ran = longest.ran.saturating_sub(stolen);
    Judgement { stolen, ..judgement }
}
