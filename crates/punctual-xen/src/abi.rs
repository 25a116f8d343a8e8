//! The functions that C calls; `include/punctual.h` is their contract. Every pointer is null or valid for the
//! call, and a null pointer is an error ([`INVALID`]).

#![expect(unsafe_code, reason = "functions that C calls by their names")]

use alloc::boxed::Box;
use core::fmt;

use punctual_sched::{CpuId, CpuSet, Duration, Instant, UnitParams, registry};

use crate::config::{CPUS_MAX, Config};
use crate::pool::{Error, Pool};
pub use crate::text::Text;

/// Version of the contract.
pub const VERSION: u32 = 3;

/// Success.
pub const OK: i32 = 0;
/// A pointer is null, or text is not UTF-8.
pub const INVALID: i32 = -1;
/// There is no such policy, option or value, or no such size of a pool.
pub const CONFIG: i32 = -2;
/// The policy refuses a parameter.
pub const PARAMETER: i32 = -3;
/// The pool has its maximum of units.
pub const FULL: i32 = -4;
/// There is no such unit.
pub const NO_UNIT: i32 = -5;
/// There is no such processor.
pub const NO_PROCESSOR: i32 = -6;

/// Processors of a pool, one bit each.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Processors {
    /// Processor 0 is bit 0 of the first word.
    pub words: [u64; CPUS_MAX / 64],
}

impl Processors {
    /// No processor.
    pub const NONE: Processors = Processors { words: [0; CPUS_MAX / 64] };

    fn set(&self) -> CpuSet {
        let mut set = CpuSet::new(CPUS_MAX);
        for (id, cpu) in (0..).zip(0..CPUS_MAX) {
            if self.words[cpu / 64] >> (cpu % 64) & 1 == 1 {
                set.insert(CpuId(id));
            }
        }
        set
    }
}

/// What the caller has to do after a call.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The caller calls `punctual_timer` at this time at the latest; all ones: never.
    pub next_timer_ns: u64,
    /// Processors that must pick. Words beyond the pool's processors are not written.
    pub resched: Processors,
}

/// The bit of [`Params::vm`] in [`Params::given`].
pub const VM: u32 = 1 << 9;

/// Parameters of a unit. The policy has a default for those whose bit is not in `given`, or refuses the unit.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Params {
    /// Which of them are given: from bit 0 budget, period, deadline, priority, weight, cap, extratime, best
    /// effort, affinity, VM.
    pub given: u32,
    /// Fixed priority; smaller is more urgent.
    pub priority: u32,
    /// Processor time per period.
    pub budget_ns: u64,
    /// Period.
    pub period_ns: u64,
    /// Relative deadline.
    pub deadline_ns: u64,
    /// Proportional share.
    pub weight: u32,
    /// Upper limit in percent of one processor; 0: no limit.
    pub cap_percent: u32,
    /// Not 0: the unit may use time that is left over, without budget.
    pub extratime: u32,
    /// Not 0: the unit is below all others.
    pub best_effort: u32,
    /// Processors that the unit may run on.
    pub affinity: Processors,
    /// The VM whose vCPU the unit is, less than 2^31; of that number only vCPUs of one VM are. Read when the
    /// unit is inserted.
    pub vm: u32,
    /// Zero.
    pub reserved: u32,
}

impl Params {
    /// Those of `params` that are set, except affinity and VM.
    pub fn of(params: &UnitParams) -> Params {
        let ns = |time: Option<Duration>| time.map_or(0, Duration::as_ns);
        let given = [
            params.budget.is_some(),
            params.period.is_some(),
            params.deadline.is_some(),
            params.priority.is_some(),
            params.weight.is_some(),
            params.cap_percent.is_some(),
            params.extratime.is_some(),
            params.best_effort,
        ];
        Params {
            given: given.iter().enumerate().map(|(bit, given)| u32::from(*given) << bit).sum(),
            priority: params.priority.unwrap_or(0),
            budget_ns: ns(params.budget),
            period_ns: ns(params.period),
            deadline_ns: ns(params.deadline),
            weight: params.weight.unwrap_or(0),
            cap_percent: params.cap_percent.unwrap_or(0),
            extratime: params.extratime.unwrap_or(false).into(),
            best_effort: params.best_effort.into(),
            ..Params::NONE_GIVEN
        }
    }

    /// The same, with `best_effort` given.
    #[must_use]
    pub fn with_best_effort(mut self, best_effort: bool) -> Params {
        self.given |= 1 << 7;
        self.best_effort = best_effort.into();
        self
    }

    /// No parameter is given.
    pub const NONE_GIVEN: Params = Params {
        given: 0,
        priority: 0,
        budget_ns: 0,
        period_ns: 0,
        deadline_ns: 0,
        weight: 0,
        cap_percent: 0,
        extratime: 0,
        best_effort: 0,
        affinity: Processors::NONE,
        vm: 0,
        reserved: 0,
    };

    /// The parameters for a policy.
    pub fn unit_params(&self) -> UnitParams {
        let is_given = |bit: u32| self.given >> bit & 1 == 1;
        let duration = |bit, ns| is_given(bit).then(|| Duration::from_ns(ns));
        let best_effort = is_given(7) && self.best_effort != 0;
        UnitParams {
            budget: duration(0, self.budget_ns),
            period: duration(1, self.period_ns),
            deadline: duration(2, self.deadline_ns),
            priority: is_given(3).then_some(self.priority),
            weight: is_given(4).then_some(self.weight),
            cap_percent: is_given(5).then_some(self.cap_percent),
            extratime: is_given(6).then_some(self.extratime != 0),
            best_effort,
            affinity: is_given(8).then(|| self.affinity.set()),
            // Reserved and best-effort vCPUs take no turns with each other.
            vm: is_given(9).then(|| self.vm << 1 | u32::from(best_effort)),
            shares_budget: false,
        }
    }
}

pub use punctual_sched::Decision as Slice;

/// What the policy keeps about a unit.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// Budget left; all ones: the policy has no budgets.
    pub left_ns: u64,
    /// Absolute deadline; all ones: no deadline.
    pub deadline_ns: u64,
    /// How often the budget was exhausted.
    pub exhaustions: u64,
    /// How often budget was replenished.
    pub replenishments: u64,
}

/// Fills the answer of a call, and returns its result. Without a place for the answer that is [`INVALID`].
#[inline(always)]
fn finish(pool: &mut Pool, answer: Option<&mut Answer>, result: Result<(), Error>) -> i32 {
    match (answer, result) {
        (Some(answer), Ok(())) => {
            fill(pool, answer);
            OK
        }
        (answer, Err(error)) => finish_error(pool, answer, error),
        (None, Ok(())) => INVALID,
    }
}

#[inline(always)]
fn fill(pool: &mut Pool, answer: &mut Answer) {
    answer.next_timer_ns = pool.next_timer().as_ns();
    pool.take_resched_words(&mut answer.resched.words);
}

#[cold]
fn finish_error(pool: &mut Pool, answer: Option<&mut Answer>, error: Error) -> i32 {
    let Some(answer) = answer else { return INVALID };
    fill(pool, answer);
    code(&error)
}

fn code(error: &Error) -> i32 {
    match error {
        Error::Full { .. } => FULL,
        Error::NoUnit { .. } => NO_UNIT,
        Error::NoProcessor { .. } => NO_PROCESSOR,
        Error::Parameter(_) => PARAMETER,
    }
}

fn at(now_ns: u64) -> Instant {
    Instant::from_ns(now_ns)
}

/// The version of the contract.
#[unsafe(no_mangle)]
pub extern "C" fn punctual_version() -> u32 {
    VERSION
}

/// The name of a policy, from index 0; false after the last one.
#[unsafe(no_mangle)]
pub extern "C" fn punctual_policy(index: u32, name: Option<&mut Text>) -> bool {
    let (Some(info), Some(name)) = (registry::policies().get(index as usize), name) else { return false };
    *name = Text::of(info.name);
    true
}

/// The most memory that a pool takes.
///
/// `tests/memory.rs` compares it with what every policy of the registry takes.
#[unsafe(no_mangle)]
pub extern "C" fn punctual_pool_bytes(cpus: u32, units: u32) -> usize {
    16_384 + 2_048 * cpus as usize + 2_048 * units as usize
}

/// Gives memory to the library, which never returns it.
#[cfg(target_os = "none")]
#[unsafe(no_mangle)]
pub extern "C" fn punctual_give(memory: Option<&'static mut u8>, bytes: usize) {
    let Some(memory) = memory else { return };
    // SAFETY: by the contract the caller gives up these bytes: nobody else has a reference to them.
    let memory = unsafe { core::slice::from_raw_parts_mut(core::ptr::from_mut(memory).cast(), bytes) };
    crate::bare::ARENA.give(memory);
}

/// Bytes that were given, and how many of these pools use.
#[cfg(target_os = "none")]
#[unsafe(no_mangle)]
pub extern "C" fn punctual_memory(given: Option<&mut usize>, used: Option<&mut usize>) {
    let (Some(given), Some(used)) = (given, used) else { return };
    (*given, *used) = crate::bare::ARENA.account();
}

/// Makes a pool. On error the result is null, and `why` has the reason.
#[unsafe(no_mangle)]
pub extern "C" fn punctual_create(
    policy: Option<&Text>,
    options: Option<&Text>,
    cpus: u32,
    units: u32,
    why: Option<&mut Text>,
) -> Option<Box<Pool>> {
    let (Some(policy), Some(options)) = (policy?.as_str(), options?.as_str()) else {
        return refuse(why, "the policy's name or its options are not UTF-8");
    };
    let config = Config { policy, options, cpus: cpus as usize, units: units as usize };
    match config.build() {
        Ok(pool) => Some(Box::new(pool)),
        Err(error) => refuse(why, error),
    }
}

fn refuse<E: fmt::Display>(why: Option<&mut Text>, error: E) -> Option<Box<Pool>> {
    if let Some(why) = why {
        *why = Text::of(error);
    }
    None
}

/// Destroys a pool.
#[unsafe(no_mangle)]
pub extern "C" fn punctual_destroy(pool: Option<Box<Pool>>) {
    drop(pool);
}

/// Adds a unit, asleep, and returns its number in `unit`. On error `why` has the reason.
#[unsafe(no_mangle)]
pub extern "C" fn punctual_insert(
    pool: Option<&mut Pool>,
    now_ns: u64,
    params: Option<&Params>,
    unit: Option<&mut u32>,
    why: Option<&mut Text>,
    answer: Option<&mut Answer>,
) -> i32 {
    let (Some(pool), Some(params), Some(unit)) = (pool, params, unit) else { return INVALID };
    let inserted = pool.insert(at(now_ns), &params.unit_params());
    explain(why, &inserted);
    let inserted = inserted.map(|id| *unit = id.0);
    finish(pool, answer, inserted)
}

fn explain<T>(why: Option<&mut Text>, result: &Result<T, Error>) {
    if let (Some(why), Err(error)) = (why, result) {
        *why = Text::of(error);
    }
}

/// Removes a unit.
#[unsafe(no_mangle)]
pub extern "C" fn punctual_remove(
    pool: Option<&mut Pool>,
    now_ns: u64,
    unit: u32,
    answer: Option<&mut Answer>,
) -> i32 {
    let Some(pool) = pool else { return INVALID };
    let removed = pool.remove(at(now_ns), unit);
    finish(pool, answer, removed)
}

/// Gives a unit other parameters. On error `why` has the reason.
#[unsafe(no_mangle)]
pub extern "C" fn punctual_adjust(
    pool: Option<&mut Pool>,
    now_ns: u64,
    unit: u32,
    params: Option<&Params>,
    why: Option<&mut Text>,
    answer: Option<&mut Answer>,
) -> i32 {
    let (Some(pool), Some(params)) = (pool, params) else { return INVALID };
    let adjusted = pool.adjust(at(now_ns), unit, &params.unit_params());
    explain(why, &adjusted);
    finish(pool, answer, adjusted)
}

/// A unit has work.
#[unsafe(no_mangle)]
pub extern "C" fn punctual_wake(
    pool: Option<&mut Pool>,
    now_ns: u64,
    unit: u32,
    answer: Option<&mut Answer>,
) -> i32 {
    let Some(pool) = pool else { return INVALID };
    let woken = pool.wake(at(now_ns), unit);
    finish(pool, answer, woken)
}

/// A unit has no more work.
#[unsafe(no_mangle)]
pub extern "C" fn punctual_sleep(
    pool: Option<&mut Pool>,
    now_ns: u64,
    unit: u32,
    answer: Option<&mut Answer>,
) -> i32 {
    let Some(pool) = pool else { return INVALID };
    let asleep = pool.sleep(at(now_ns), unit);
    finish(pool, answer, asleep)
}

/// Sets the deadline of a unit's work.
#[unsafe(no_mangle)]
pub extern "C" fn punctual_deadline(
    pool: Option<&mut Pool>,
    now_ns: u64,
    unit: u32,
    deadline_ns: u64,
    answer: Option<&mut Answer>,
) -> i32 {
    let Some(pool) = pool else { return INVALID };
    let set = pool.set_deadline(at(now_ns), unit, at(deadline_ns));
    finish(pool, answer, set)
}

/// Decides what a processor does from now on.
#[unsafe(no_mangle)]
pub extern "C" fn punctual_pick(
    pool: Option<&mut Pool>,
    now_ns: u64,
    cpu: u32,
    slice: Option<&mut Slice>,
    answer: Option<&mut Answer>,
) -> i32 {
    let (Some(pool), Some(slice)) = (pool, slice) else { return INVALID };
    let picked = pool.decide(at(now_ns), cpu, slice);
    finish(pool, answer, picked)
}

/// `punctual_sleep` and `punctual_pick` in one call, for a processor whose unit has no more work.
#[unsafe(no_mangle)]
pub extern "C" fn punctual_sleep_and_pick(
    pool: Option<&mut Pool>,
    now_ns: u64,
    unit: u32,
    cpu: u32,
    slice: Option<&mut Slice>,
    answer: Option<&mut Answer>,
) -> i32 {
    let (Some(pool), Some(slice)) = (pool, slice) else { return INVALID };
    let picked = pool.sleep_and_decide(at(now_ns), unit, cpu, slice);
    finish(pool, answer, picked)
}

/// The time of the last answer's `next_timer_ns` has come.
#[unsafe(no_mangle)]
pub extern "C" fn punctual_timer(pool: Option<&mut Pool>, now_ns: u64, answer: Option<&mut Answer>) -> i32 {
    let Some(pool) = pool else { return INVALID };
    pool.timer(at(now_ns));
    finish(pool, answer, Ok(()))
}

/// What the policy keeps about a unit.
#[unsafe(no_mangle)]
pub extern "C" fn punctual_account(pool: Option<&Pool>, unit: u32, account: Option<&mut Account>) -> i32 {
    let (Some(pool), Some(account)) = (pool, account) else { return INVALID };
    match pool.account(unit) {
        Ok(known) => {
            *account = Account {
                left_ns: known.left.map_or(u64::MAX, Duration::as_ns),
                deadline_ns: known.deadline.map_or(u64::MAX, Instant::as_ns),
                exhaustions: known.exhaustions,
                replenishments: known.replenishments,
            };
            OK
        }
        Err(error) => code(&error),
    }
}

/// For tests of the caller: the policy panics at its next decision.
#[unsafe(no_mangle)]
pub extern "C" fn punctual_break(pool: Option<&mut Pool>) {
    if let Some(pool) = pool {
        pool.break_policy();
    }
}
