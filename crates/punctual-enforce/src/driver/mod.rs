//! Between a policy and the kernel: what was observed goes in, what each unit may do comes out. Pure code.
//!
//! In the simulator a driver knows of every wake-up and every switch. On Linux the kernel handles those
//! itself, by real-time priorities, and an enforcer takes a *look* only now and then: when a budget can be
//! used up, when one comes back, at the end of a quantum. This module turns what can be read at a look
//! (processor time per unit and, where the policy needs it, which units have work) into the calls that the
//! policy's contract asks for, and the policy's ranking into one [`Order`] per unit.
//!
//! # Rules
//! - **Replay** (`replay.rs`). The policy is charged for what ran since the last look one unit after the
//!   other, back to back up to now: first the units without work now, in order of urgency, then those with
//!   work, the most urgent last. That is the sequence that preemption by priority gives when each unit ran
//!   once. A unit that woke and has not run comes last, at the look: what others ran, a tick of Credit among
//!   it, must not find it on the processor.
//! - **Overrun is owed.** A unit that ran longer than its budget, because the look came late, pays the rest
//!   out of its next budgets, at most four whole ones (after the machine stood still, a unit must not pay
//!   without limit). So the share over a long time is the budget, whatever the lateness. With
//!   [`LateOverrun::Forgiven`] it does not pay for what it ran because the look came later than it was due.
//! - **Stolen time is nobody's** (`stolen.rs`): no budget pays for it.
//! - **Idling away** (periodic server): only the most urgent unit with budget may run, and it is charged for
//!   all the time that passes.
//! - **Grace** (`grace.rs`). A parked unit that holds a lock of its VMM may run on for a moment. It pays for
//!   that as for an overrun.
//! - **Next look** (`orders.rs`). The earliest of the policy's timer, the end of the slice, and, for each
//!   unit that may run, the instant at which it would have used up its budget had it run from now on. A unit
//!   that has not run since the last look gets its next look later and later, up to
//!   [`Settings::lateness_max`]: otherwise a sleeping unit with little left would cost a look every few
//!   microseconds. Where vCPUs of one VM share a processor, a look comes at least once in each of their
//!   [turns](punctual_sched::turns).

mod grace;
mod look;
mod orders;
mod replay;
mod settings;
mod state;
mod stolen;

use punctual_sched::{CpuId, Duration, Instant};

pub use grace::{GRACE_INTERVAL, GRACE_MAX};
pub use look::{Evidence, Observation, Order, UnitCounts};
pub use settings::{LateOverrun, Settings};
pub use state::{Driver, ReplaceError};
pub use stolen::{Judgement, Lateness, subtract_stolen};

impl Driver {
    /// As [`Driver::observe`], for a time that has passed: nobody looked then, and the kernel knew what to
    /// do.
    pub fn replay_event(&mut self, at: Instant, cpu: CpuId, observed: &[(usize, Observation)]) {
        self.observe(at, cpu, observed);
        self.evidence.looks -= 1;
    }

    /// One look at the units that `cpu` decides about, at `now`. `observed` holds what was read of each, by
    /// number. Orders change; returns when the next look is due at the latest.
    pub fn observe(&mut self, now: Instant, cpu: CpuId, observed: &[(usize, Observation)]) -> Instant {
        let charged_up_to = self.now;
        let now = self.advance_clock(now);
        self.evidence.looks += 1;
        self.replay(charged_up_to, now, cpu, observed);
        self.run_timers(now);
        self.collect_owed(now, cpu);
        let slice_end = self.decide(now, cpu);
        (self.late, self.stood_still) = (Duration::ZERO, Duration::ZERO);
        self.give_orders(now, cpu, slice_end)
    }
}
