//! A driver for tests: one processor, every packet takes a fixed time in each stage.

#![allow(dead_code, reason = "every test binary uses a part of it")]

use punctual_net::registry::{self, OptionValue, Options};
use punctual_net::{
    Discipline, Fate, FlowId, InterfaceId, InterfaceKind, InterfaceParams, Next, Packet, Stage, Step,
};
use punctual_sched::{Duration, Instant};

/// One unit of time.
pub(crate) const UNIT: Duration = Duration::from_us(1);

/// `n` units after the start.
pub(crate) fn at(n: u64) -> Instant {
    Instant::ZERO + UNIT * n
}

/// The discipline `name` with some options that count.
pub(crate) fn build(name: &str, options: &[(&'static str, u64)]) -> Box<dyn Discipline> {
    let options = options
        .iter()
        .fold(Options::new(), |options, &(name, count)| options.with(name, OptionValue::Count(count)));
    build_with(name, &options)
}

/// The discipline `name` with `options`.
pub(crate) fn build_with(name: &str, options: &Options) -> Box<dyn Discipline> {
    let info = registry::find(name).expect("a known discipline");
    (info.build)(options).expect("valid options")
}

/// A guest of that priority.
pub(crate) fn guest(priority: u32) -> InterfaceParams {
    InterfaceParams { priority: Some(priority), ..InterfaceParams::default() }
}

/// A network card.
pub(crate) fn device() -> InterfaceParams {
    InterfaceParams { kind: InterfaceKind::Device, ..InterfaceParams::default() }
}

/// A packet of 1000 bytes; each pair of interfaces has one flow.
pub(crate) fn packet(id: u64, source: InterfaceId, destination: InterfaceId) -> Packet {
    let flow = FlowId(source.0 * 1000 + destination.0);
    Packet { id, flow, source, destination, bytes: 1000 }
}

/// What was processed, and what became of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Done {
    pub step: Step,
    pub fate: Fate,
    pub start: Instant,
    pub end: Instant,
}

/// Runs until nothing is left; `arrivals` are sorted by time. Every packet takes a unit in each stage.
pub(crate) fn run(discipline: &mut dyn Discipline, arrivals: &[(Instant, Packet)]) -> Vec<Done> {
    let mut arrivals = arrivals.iter().copied().peekable();
    let mut now = Instant::ZERO;
    let mut done = Vec::new();
    loop {
        while let Some((_, packet)) = arrivals.next_if(|&(at, _)| at <= now) {
            let _counted_by_the_discipline = discipline.arrive(now, packet);
        }
        let step = match discipline.next(now) {
            Next::Process(step) => step,
            wait => {
                let credit = if let Next::WaitUntil(at) = wait { at } else { Instant::NEVER };
                let arrival = arrivals.peek().map_or(Instant::NEVER, |&(at, _)| at);
                now = credit.min(arrival);
                if now.is_never() {
                    return done;
                }
                continue;
            }
        };
        let (start, end) = (now, now + UNIT);
        while let Some((at, packet)) = arrivals.next_if(|&(at, _)| at <= end) {
            let _counted_by_the_discipline = discipline.arrive(at, packet);
        }
        now = end;
        done.push(Done { step, fate: discipline.complete(now), start, end });
    }
}

/// The packets of `stage` in the order they were processed.
pub(crate) fn order(done: &[Done], stage: Stage) -> Vec<u64> {
    done.iter().filter(|done| done.step.stage == stage).map(|done| done.step.packet.id).collect()
}
