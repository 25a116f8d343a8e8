//! A pool never takes more memory than `punctual_pool_bytes` says, whatever is done with it; nothing but
//! making it, inserting and adjusting takes any.

use std::alloc::System;

use punctual_sched::registry;
use punctual_xen::Pool;
use punctual_xen::abi::*;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const STEP_NS: u64 = 250_000;

/// A small fixed sequence of numbers (Marsaglia's xorshift64), which takes no memory.
struct Xorshift(u64);

impl Xorshift {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// Without the test harness, whose other thread's allocations would be counted, too.
fn main() {
    for info in registry::policies() {
        for (cpus, units) in [(1, 1), (1, 64), (2, 5), (8, 256), (64, 100), (256, 1_000), (512, 16)] {
            let most = churn(info.name, cpus, units);
            let promised = punctual_pool_bytes(cpus, units);
            assert!(most <= promised, "{} {cpus} {units}: {most} of {promised} bytes", info.name);
            println!("{} on {cpus} with {units} units: {most} of {promised} bytes", info.name);
        }
    }
}

fn params(random: &mut Xorshift, cpus: u32) -> Params {
    let mut affinity = Processors::NONE;
    for word in 0..cpus.div_ceil(64) as usize {
        let there = (cpus - word as u32 * 64).min(64);
        affinity.words[word] = u64::MAX >> (64 - there);
    }
    let period_us = 500 + random.below(20_000);
    Params {
        given: 0b1_0100_1011 | VM,
        priority: random.below(10) as u32,
        budget_ns: (20 + random.below(period_us / 16)) * 1_000,
        period_ns: period_us * 1_000,
        extratime: random.below(2) as u32,
        affinity,
        vm: random.below(64) as u32,
        ..Params::NONE_GIVEN
    }
}

/// Bytes in use at most, while units come, go and do everything else.
fn churn(policy: &str, cpus: u32, units: u32) -> usize {
    let (policy, options) = (Text::of(policy), Text::EMPTY);
    let region = Region::new(ALLOCATOR);
    let held = || {
        let change = region.change();
        change.bytes_allocated - change.bytes_deallocated
    };
    let mut pool = punctual_create(Some(&policy), Some(&options), cpus, units, None).expect("a pool");
    let mut most = held();
    let mut there = vec![false; units as usize];
    let own = there.capacity();
    let (mut random, mut now_ns) = (Xorshift(42), 0);
    for step in 0..4_000u64 {
        now_ns += STEP_NS;
        let unit = if step < u64::from(units) { step as u32 } else { random.below(units.into()) as u32 };
        change(&mut pool, &mut random, now_ns, (unit, &mut there), cpus);
        most = most.max(held() - own);
        let taken = region.change().allocations;
        decide(&mut pool, &mut random, now_ns, (unit, &there), cpus);
        assert_eq!(region.change().allocations, taken, "a decision takes memory");
    }
    drop(pool);
    assert_eq!(held(), own, "what a pool took is given back");
    most
}

const NOTHING: Answer = Answer { next_timer_ns: 0, resched: Processors::NONE };

/// A unit comes, goes or gets other parameters.
fn change(pool: &mut Pool, random: &mut Xorshift, now_ns: u64, (at, there): (u32, &mut [bool]), cpus: u32) {
    let (mut then, mut unit) = (NOTHING, 0);
    let params = params(random, cpus);
    let code = match there[at as usize] {
        // Refused with a reason, now and then.
        false => punctual_insert(
            Some(pool),
            now_ns,
            Some(&params),
            Some(&mut unit),
            Some(&mut Text::of("")),
            Some(&mut then),
        ),
        true if random.below(4) == 0 => {
            there[at as usize] = false;
            punctual_remove(Some(pool), now_ns, at, Some(&mut then))
        }
        true => {
            punctual_adjust(Some(pool), now_ns, at, Some(&params), Some(&mut Text::of("")), Some(&mut then))
        }
    };
    if code == OK && !there[at as usize] && unit < there.len() as u32 && is_known(pool, unit) {
        there[unit as usize] = true;
    }
}

fn is_known(pool: &Pool, unit: u32) -> bool {
    let mut account = Account { left_ns: 0, deadline_ns: 0, exhaustions: 0, replenishments: 0 };
    punctual_account(Some(pool), unit, Some(&mut account)) == OK
}

/// A unit wakes up or goes to sleep, time passes, and every processor picks.
fn decide(pool: &mut Pool, random: &mut Xorshift, now_ns: u64, (unit, there): (u32, &[bool]), cpus: u32) {
    let (mut then, mut slice) = (NOTHING, Slice { run: 0, unit: 0, until_ns: 0 });
    if there[unit as usize] {
        let code = match random.below(3) {
            0 => punctual_sleep(Some(pool), now_ns, unit, Some(&mut then)),
            _ => punctual_wake(Some(pool), now_ns, unit, Some(&mut then)),
        };
        assert_eq!(code, OK);
    }
    assert_eq!(punctual_timer(Some(pool), now_ns, Some(&mut then)), OK);
    for cpu in 0..cpus {
        assert_eq!(punctual_pick(Some(pool), now_ns, cpu, Some(&mut slice), Some(&mut then)), OK);
    }
}
