//! The calls of a pool in a trace, as `xen/sched_punctual.c` records them; its `TRC_PUNCTUAL_*` are the
//! format.

use alloc::string::String;
use alloc::vec::Vec;

use crate::abi::{Params, VM};
use crate::xentrace;

/// Records of scheduler 7, a number that no scheduler of Xen has.
const CLASS: u32 = 0x0002_2000 | 7 << 9;
const CLASS_MASK: u32 = 0x0fff_fe00;
const POOL: u32 = 1;
const TEXT: u32 = 2;
const PARAM: u32 = 3;
const INSERT: u32 = 4;
const ADJUST: u32 = 5;
const REMOVE: u32 = 6;
const WAKE: u32 = 7;
const SLEEP: u32 = 8;
const TIMER: u32 = 9;
const PICK: u32 = 10;
const FAILED: u32 = 11;
/// The unit of an insertion that was refused.
pub const NO_UNIT: u32 = 0x00ff_ffff;

/// A call and its answer.
#[derive(Clone, Debug)]
pub struct Call {
    /// The pool's number in the trace.
    pub pool: u8,
    /// Sequence number of the record in its pool.
    pub sequence: u32,
    /// Xen's time of the call.
    pub now_ns: u64,
    /// The call and its answer.
    pub what: What,
}

/// A call and its answer.
#[derive(Clone, Debug)]
pub enum What {
    /// A pool starts.
    Pool {
        /// Number of processors.
        cpus: u32,
        /// Maximum of units.
        units: u32,
        /// The policy and its options, as on Xen's command line.
        policy: String,
    },
    /// A unit is added.
    Insert {
        /// Its parameters.
        params: Params,
        /// Its number; [`NO_UNIT`]: it was refused.
        unit: u32,
        /// IDs of the domain and the vCPU.
        vcpu: (u16, u16),
        /// The timer in the answer.
        timer_ns: u64,
    },
    /// A unit gets other parameters.
    Adjust {
        /// The unit.
        unit: u32,
        /// The parameters.
        params: Params,
        /// The policy refused them.
        refused: bool,
        /// The timer in the answer.
        timer_ns: u64,
    },
    /// An event.
    Event {
        /// Which one.
        event: Event,
        /// The unit; 0 for the timer.
        unit: u32,
        /// The timer in the answer.
        timer_ns: u64,
        /// Those of the first 32 processors that must pick.
        resched: u32,
    },
    /// A processor picks.
    Pick {
        /// The processor.
        cpu: u32,
        /// See [`Slice`](crate::abi::Slice).
        run: u32,
        /// See [`Slice`](crate::abi::Slice).
        unit: u32,
        /// See [`Slice`](crate::abi::Slice).
        until_ns: u64,
    },
    /// The policy failed: this is the last record of the pool.
    Failed,
}

/// Calls whose only argument is a unit, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The unit is removed.
    Remove,
    /// The unit has work.
    Wake,
    /// The unit has no more work.
    Sleep,
    /// The pool's timer is due.
    Timer,
}

/// Calls of a trace.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    /// By pool, and in each pool in the order of the calls.
    pub calls: Vec<Call>,
    /// Number of records that are missing or malformed.
    pub lost: u64,
}

/// A record of ours, in words.
#[derive(Clone, Copy)]
struct Raw {
    kind: u32,
    sequence: u32,
    now_ns: u64,
    pool: u8,
    who: u32,
    value: u64,
    more: u32,
}

/// The calls of all pools in a trace. What went before a pool's first record is not there; a pool that the
/// trace does not see begin has no calls.
pub fn calls(trace: &xentrace::Trace) -> Calls {
    let mut raws = Vec::new();
    let mut texts = Vec::new();
    for record in trace.records.iter().filter(|record| record.event & CLASS_MASK == CLASS) {
        match (record.event & !CLASS_MASK, record.words()) {
            (TEXT, [chunk, who, bytes @ ..]) => texts.push(((who >> 24) as u8, *chunk, text(bytes))),
            (kind, &[sequence, low, high, who, value_low, value_high, more]) => raws.push(Raw {
                kind,
                sequence,
                now_ns: u64::from(high) << 32 | u64::from(low),
                pool: (who >> 24) as u8,
                who: who & NO_UNIT,
                value: u64::from(value_high) << 32 | u64::from(value_low),
                more,
            }),
            _ => {}
        }
    }
    raws.sort_by_key(|raw| (raw.pool, raw.sequence));
    let mut calls = Calls::default();
    let mut params = Params::NONE_GIVEN;
    let mut before: Option<Raw> = None;
    for raw in raws {
        match before {
            Some(before) if before.pool == raw.pool => {
                calls.lost += u64::from(raw.sequence.wrapping_sub(before.sequence).wrapping_sub(1));
            }
            // Without its beginning a pool says nothing.
            _ if raw.kind != POOL => continue,
            _ => {}
        }
        before = Some(raw);
        if raw.kind == PARAM {
            set(&mut params, &raw);
            continue;
        }
        let what = what(&raw, &texts, core::mem::replace(&mut params, Params::NONE_GIVEN));
        match what {
            Some(what) => {
                calls.calls.push(Call { pool: raw.pool, sequence: raw.sequence, now_ns: raw.now_ns, what });
            }
            None => calls.lost += 1,
        }
    }
    calls
}

/// Sets the parameter that the record has.
fn set(params: &mut Params, raw: &Raw) {
    let word = (raw.value & 0xffff_ffff) as u32;
    match raw.who {
        0 => params.budget_ns = raw.value,
        1 => params.period_ns = raw.value,
        2 => params.deadline_ns = raw.value,
        3 => params.priority = word,
        4 => params.weight = word,
        5 => params.cap_percent = word,
        6 => params.extratime = word,
        7 => params.best_effort = word,
        8 => {
            if let Some(place) = params.affinity.words.get_mut(raw.more as usize) {
                *place = raw.value;
            }
        }
        _ => return,
    }
    params.given |= 1 << raw.who;
}

fn what(raw: &Raw, texts: &[(u8, u32, String)], mut params: Params) -> Option<What> {
    let Raw { who: unit, value: timer_ns, more, .. } = *raw;
    let event = |event| Some(What::Event { event, unit, timer_ns, resched: more });
    match raw.kind {
        POOL => {
            let of_pool = texts.iter().filter(|(pool, ..)| *pool == raw.pool);
            let policy = of_pool.map(|(_, _, text)| text.as_str()).collect();
            let cpus = (raw.value & 0xffff_ffff) as u32;
            Some(What::Pool { cpus, units: (raw.value >> 32) as u32, policy })
        }
        INSERT => {
            let vcpu = ((more >> 16) as u16, (more & 0xffff) as u16);
            // The hypervisor gives each vCPU its domain as VM, and records that once.
            (params.given, params.vm) = (params.given | VM, vcpu.0.into());
            Some(What::Insert { params, unit, vcpu, timer_ns })
        }
        ADJUST => Some(What::Adjust { unit, params, refused: more != 0, timer_ns }),
        REMOVE => event(Event::Remove),
        WAKE => event(Event::Wake),
        SLEEP => event(Event::Sleep),
        TIMER => event(Event::Timer),
        PICK => {
            let Raw { who: cpu, value: until_ns, .. } = *raw;
            Some(What::Pick { cpu, run: more >> 30, unit: more & 0x3fff_ffff, until_ns })
        }
        FAILED => Some(What::Failed),
        _ => None,
    }
}

/// Bytes up to the first zero.
fn text(words: &[u32]) -> String {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes());
    let bytes: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
