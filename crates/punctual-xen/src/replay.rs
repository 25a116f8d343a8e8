//! Replays the calls that a hypervisor recorded, and compares the answers.

use alloc::string::String;
use alloc::vec::Vec;

use punctual_sched::Instant;

use crate::abi::{self, Answer, Processors, Slice, Text};
use crate::config::Config;
use crate::pool::Pool;
use crate::record::{Call, Calls, Event, NO_UNIT, What};

/// The replay of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// The pool's number in the trace.
    pub pool: u8,
    /// Its policy and options.
    pub policy: String,
    /// Number of calls.
    pub calls: u64,
    /// Number of picks among them.
    pub picks: u64,
    /// Number of answers that differ from the trace.
    pub different: u64,
    /// The first one that differs.
    pub first: Option<Difference>,
    /// Why the replay stopped early: an unknown policy, or an impossible record.
    pub refused: Option<String>,
    /// The policy failed in the hypervisor, at the last call.
    pub failed: bool,
    /// Xen's time of the first call.
    pub from_ns: u64,
    /// Xen's time of the last call.
    pub until_ns: u64,
}

/// An answer that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Sequence number of the record.
    pub sequence: u32,
    /// Xen's time of the call.
    pub now_ns: u64,
    /// The call and its answer in the trace.
    pub recorded: String,
    /// The answer here.
    pub here: String,
}

/// Calls of a pool with a timer are never further apart. A corrupt time would make the policy replenish
/// budgets for years.
const APART_MAX_NS: u64 = 60_000_000_000;

/// Makes the calls of each pool on a new pool; `observe` sees each call, and the pool after it.
pub fn replay(calls: &Calls, mut observe: impl FnMut(&Call, &Pool)) -> Vec<Replayed> {
    let mut replayed: Vec<Replayed> = Vec::new();
    let mut pool = None;
    for call in &calls.calls {
        if let What::Pool { cpus, units, policy } = &call.what {
            let (made, refused) = match make(policy, *cpus, *units) {
                Ok(pool) => (Some(pool), None),
                Err(why) => (None, Some(why)),
            };
            pool = made;
            replayed.push(Replayed {
                pool: call.pool,
                policy: policy.clone(),
                calls: 0,
                picks: 0,
                different: 0,
                first: None,
                refused,
                failed: false,
                from_ns: call.now_ns,
                until_ns: call.now_ns,
            });
            continue;
        }
        let (Some(made), Some(into)) = (&mut pool, replayed.last_mut()) else { continue };
        let is_apart = call.now_ns.saturating_sub(into.until_ns) > APART_MAX_NS;
        if is_apart && made.next_timer() != Instant::NEVER {
            into.refused = Some(alloc::format!("record {} leaps in time", call.sequence));
            pool = None;
            continue;
        }
        into.note(call, again(made, call));
        observe(call, made);
    }
    replayed
}

fn make(policy: &str, cpus: u32, units: u32) -> Result<Pool, String> {
    let (name, options) = policy.split_once(',').unwrap_or((policy, ""));
    let config = Config { policy: name, options, cpus: cpus as usize, units: units as usize };
    config.build().map_err(|error| alloc::format!("{error}"))
}

impl Replayed {
    /// All calls were made, and every answer was the same.
    pub fn is_same(&self) -> bool {
        self.refused.is_none() && self.different == 0 && self.calls > 0
    }

    fn note(&mut self, call: &Call, answers: Option<(String, String)>) {
        self.calls += 1;
        self.until_ns = call.now_ns;
        match call.what {
            What::Pick { .. } => self.picks += 1,
            What::Failed => self.failed = true,
            _ => {}
        }
        let Some((recorded, here)) = answers else { return };
        self.different += 1;
        self.first.get_or_insert(Difference { sequence: call.sequence, now_ns: call.now_ns, recorded, here });
    }
}

/// Makes the call. `None`: the answer is the same; otherwise both answers, the recorded one first.
fn again(pool: &mut Pool, call: &Call) -> Option<(String, String)> {
    let now_ns = call.now_ns;
    let mut then = Answer { next_timer_ns: 0, resched: Processors::NONE };
    match &call.what {
        What::Pool { .. } | What::Failed => None,
        What::Insert { params, unit, timer_ns, .. } => {
            let (mut got, mut why) = (NO_UNIT, Text::EMPTY);
            abi::punctual_insert(
                Some(pool),
                now_ns,
                Some(params),
                Some(&mut got),
                Some(&mut why),
                Some(&mut then),
            );
            differs("insert", (*unit, *timer_ns), (got, then.next_timer_ns))
        }
        What::Adjust { unit, params, refused, timer_ns } => {
            let mut why = Text::EMPTY;
            let code = abi::punctual_adjust(
                Some(pool),
                now_ns,
                *unit,
                Some(params),
                Some(&mut why),
                Some(&mut then),
            );
            differs("adjust", (*refused, *timer_ns), (code != abi::OK, then.next_timer_ns))
        }
        What::Event { event, unit, timer_ns, resched } => {
            let (name, _) = match event {
                Event::Remove => ("remove", abi::punctual_remove(Some(pool), now_ns, *unit, Some(&mut then))),
                Event::Wake => ("wake", abi::punctual_wake(Some(pool), now_ns, *unit, Some(&mut then))),
                Event::Sleep => ("sleep", abi::punctual_sleep(Some(pool), now_ns, *unit, Some(&mut then))),
                Event::Timer => ("timer", abi::punctual_timer(Some(pool), now_ns, Some(&mut then))),
            };
            let here = (then.next_timer_ns, (then.resched.words[0] & 0xffff_ffff) as u32);
            differs(name, (*timer_ns, *resched), here)
        }
        What::Pick { cpu, run, unit, until_ns } => {
            let mut slice = Slice { run: 0, unit: 0, until_ns: 0 };
            abi::punctual_pick(Some(pool), now_ns, *cpu, Some(&mut slice), Some(&mut then));
            differs("pick", (*run, *unit, *until_ns), (slice.run, slice.unit, slice.until_ns))
        }
    }
}

fn differs<T: PartialEq + core::fmt::Debug>(name: &str, recorded: T, here: T) -> Option<(String, String)> {
    let show = |answer: &T| alloc::format!("{name} {answer:?}");
    (recorded != here).then(|| (show(&recorded), show(&here)))
}
