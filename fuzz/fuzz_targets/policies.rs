//! Any sequence of events against any policy of the registry, on one to eight processors: the invariants of
//! the policies' reference driver hold, and every instant ends.
//!
//! The sequences are richer than those of `crates/punctual-sched/tests/chaos.rs` in what happens at one
//! instant: volleys of wake-ups and sleeps over many units, and picks of single processors in between.
//! Parameters and options may be senseless; a policy refuses them or works with them.
//!
//! `RUST_LIBFUZZER_DEBUG_PATH=events.txt TARGET INPUT` writes an input as the events that it describes.

#![no_main]

use punctual_testkit::driver::CPUS_MAX;
use punctual_testkit::events::{
    Event, affinity, half_ms, options, play, play_in_turns, play_in_vm_servers,
};
use libfuzzer_sys::arbitrary::{self, Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use punctual_sched::registry::{self, OptionValue, Options, ParamKind, PolicyInfo};
use punctual_sched::{Duration, UnitParams};

const EVENTS_MAX: usize = 400;
/// Periods of 10 us make an input of 400 events long.
const INSTANTS_MAX: usize = 2_000;
const OPTIONS_MAX: usize = 16;
const SHORTEST: Duration = Duration::from_us(10);
const LATE_MAX_US: u64 = 200;

#[derive(Debug)]
struct Input {
    info: &'static PolicyInfo,
    cpus: usize,
    options: Options,
    events: Vec<Event>,
}

impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let info = u.choose(registry::policies())?;
        let cpus = u.int_in_range(1..=CPUS_MAX)?;
        let options = arbitrary_options(u, info)?;
        let mut events = Vec::new();
        while !u.is_empty() && events.len() < EVENTS_MAX {
            add_event(u, &mut events)?;
        }
        Ok(Input { info, cpus, options, events })
    }
}

/// Half of the inputs set options, some of them to a time no driver would choose.
fn arbitrary_options(u: &mut Unstructured, info: &PolicyInfo) -> arbitrary::Result<Options> {
    if u.arbitrary()? {
        return Ok(Options::new());
    }
    let choice: [u8; OPTIONS_MAX] = u.arbitrary()?;
    let mut options = options(info, &choice.map(u64::from));
    for option in info.options {
        let takes_time = matches!(option.kind, ParamKind::Duration | ParamKind::DurationOr(_));
        if takes_time && u.ratio(1, 4)? {
            options.set(option.name, OptionValue::Duration(duration(u)?));
        }
    }
    Ok(options)
}

/// Mostly multiples of half a millisecond, but also short ones, and the ends of the range.
fn duration(u: &mut Unstructured) -> arbitrary::Result<Duration> {
    Ok(match u.int_in_range(0..=15u8)? {
        0 => *u.choose(&[Duration::ZERO, Duration::from_ns(1), Duration::MAX, Duration::from_secs(10)])?,
        1..=3 => Duration::from_us(u.int_in_range(10..=500)?),
        _ => half_ms(u.int_in_range(1..=40)?),
    })
}

fn optional<'a, T>(
    u: &mut Unstructured<'a>,
    value: impl FnOnce(&mut Unstructured<'a>) -> arbitrary::Result<T>,
) -> arbitrary::Result<Option<T>> {
    if u.ratio(1, 4)? { Ok(None) } else { value(u).map(Some) }
}

/// Budgets are mostly shorter than periods.
fn params(u: &mut Unstructured) -> arbitrary::Result<UnitParams> {
    let budget = duration(u)?;
    // A driver that is late by many periods has as many replenishments to catch up with.
    let longer = duration(u)?.max(SHORTEST);
    let (budget, period) = match u.int_in_range(0..=15u8)? {
        0 => (None, Some(longer)),
        1 => (Some(budget), None),
        2 => (Some(budget), Some(longer)),
        3 => (Some(budget), Some(Duration::ZERO)),
        _ => (Some(budget), Some(budget + longer)),
    };
    let vm = if u.arbitrary()? { Some(u.int_in_range(0..=2)?) } else { None };
    let shares_budget: bool = u.arbitrary()?;
    let affinity = if u.arbitrary()? { Some(affinity(u32::from(u.arbitrary::<u8>()?))) } else { None };
    Ok(UnitParams {
        budget,
        period,
        priority: optional(u, |u| u.int_in_range(0..=3))?,
        deadline: optional(u, duration)?,
        weight: optional(u, |u| u.arbitrary::<u16>().map(u32::from))?,
        cap_percent: optional(u, |u| u.int_in_range(0..=110))?,
        extratime: u.arbitrary()?,
        // Policies never hear of best-effort units (`punctual_sched::background`).
        best_effort: false,
        vm,
        shares_budget,
        // vCPUs that share a budget have one affinity, that of the first.
        affinity: affinity.filter(|_| vm.is_none() || !shares_budget),
    })
}

/// Adds one event, or as many of a kind as happen together.
fn add_event(u: &mut Unstructured, events: &mut Vec<Event>) -> arbitrary::Result<()> {
    let unit = |u: &mut Unstructured| u.int_in_range(0..=15usize);
    match u.int_in_range(0..=19u8)? {
        0 | 1 => events.push(Event::Insert(params(u)?)),
        2 => {
            let all_alike = params(u)?;
            let units = u.int_in_range(2..=2 * CPUS_MAX)?;
            events.extend((0..units).map(|_| Event::Insert(all_alike.clone())));
        }
        3 => events.push(Event::Remove(unit(u)?)),
        4 | 5 => events.push(Event::Adjust(unit(u)?, params(u)?)),
        6 | 7 => {
            let (unit, in_us) = (unit(u)?, time_us(u)?);
            add_work(u, events, 1 << unit, in_us)?;
        }
        8..=10 => {
            let (units, in_us) = (u.arbitrary()?, *u.choose(&[0, 0, 0, 500])?);
            add_work(u, events, units, in_us)?;
        }
        11 => events.push(Event::Cancel(unit(u)?)),
        12 => events.extend(bits(u.arbitrary::<u16>()?).map(Event::Cancel)),
        13 => events.push(Event::Deadline { unit: unit(u)?, in_us: time_us(u)? }),
        14 | 15 => events.push(Event::Pick(u.int_in_range(0..=CPUS_MAX - 1)?)),
        16 => events.push(Event::Settle),
        17 => events.push(Event::Late { us: u.int_in_range(0..=LATE_MAX_US)? }),
        _ => events.push(Event::Pass { us: time_us(u)? }),
    }
    Ok(())
}

fn bits(set: u16) -> impl Iterator<Item = usize> {
    (0..16).filter(move |bit| set >> bit & 1 == 1)
}

/// Nothing, a multiple of half a millisecond up to 20 ms, or anything up to 1 ms.
fn time_us(u: &mut Unstructured) -> arbitrary::Result<u64> {
    Ok(match u.int_in_range(0..=7u8)? {
        0 | 1 => 0,
        2 | 3 => u.int_in_range(0..=1_000)?,
        _ => 500 * u.int_in_range(1..=40)?,
    })
}

/// Equal work for all of the `units`.
fn add_work(u: &mut Unstructured, events: &mut Vec<Event>, units: u16, in_us: u64) -> arbitrary::Result<()> {
    let demand_us = match u.int_in_range(0..=7u8)? {
        0 => u.int_in_range(1..=1_000)?,
        n => 250 * u64::from(n),
    };
    let due_us = if u.arbitrary()? { Some(time_us(u)?) } else { None };
    events.extend(bits(units).map(|unit| Event::Work { unit, in_us, demand_us, due_us }));
    Ok(())
}

fuzz_target!(|input: Input| {
    play(input.info, input.cpus, &input.options, &input.events, INSTANTS_MAX);
    play_in_turns(input.info, input.cpus, &input.options, &input.events, INSTANTS_MAX);
    play_in_vm_servers(input.info, input.cpus, &input.options, &input.events, INSTANTS_MAX);
});
