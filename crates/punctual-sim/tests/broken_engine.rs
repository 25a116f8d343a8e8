//! An engine that does something else than it says is stopped: the checker keeps its own account.
//!
//! A sound simulation passes its events through a fault to a second checker, as if its engine had the fault.

use punctual_model::Host;
use punctual_sched::Instant;
use punctual_sim::observe::{Event, Observer, Occupant, PacketEvent, ProcessorIx, UnitIx};
use punctual_sim::{Checker, Error};
use punctual_testkit::hosts::*;

use crate::watch::simulate_watched;

/// What is wrong with the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    /// None.
    Sound,
    /// It does not account for some time of a processor.
    LosesTime,
    /// It accounts for some time twice.
    CountsTwice,
    /// It lets another unit execute than the policy picked.
    RunsAnother,
    /// It starts a unit and keeps from the policy that there is work.
    ForgetsWork,
    /// It tells the policy twice that there is work.
    WakesTwice,
    /// A guest executes while its vCPU does not.
    RunsInsideForFree,
    /// A guest stands still while its vCPU executes.
    StandsStillInside,
    /// Its clock goes back.
    GoesBack,
    /// A packet is delivered twice.
    DeliversTwice,
    /// A packet vanishes.
    LosesPacket,
    /// Part of a packet's way is left out.
    LosesSegment,
}

/// Tells a checker what happens, with one fault.
struct Distorted<'h> {
    checker: Checker<'h>,
    fault: Fault,
    /// Events of the kind that the fault changes so far.
    seen: u64,
}

impl Distorted<'_> {
    /// Is it the event to change? One in the middle of the run.
    fn hit(&mut self) -> bool {
        self.seen += 1;
        self.seen == 5
    }
}

/// The first vCPU as its guest sees it, on a host of one processor.
const INSIDE: ProcessorIx = ProcessorIx(1);

impl Observer for Distorted<'_> {
    fn observe(&mut self, now: Instant, event: Event<'_>) {
        let inside = matches!(event, Event::Slice { processor: INSIDE, .. });
        let outside = matches!(event, Event::Slice { processor: ProcessorIx(0), .. });
        match (self.fault, event) {
            (Fault::LosesTime, _) if outside && self.hit() => return,
            (Fault::CountsTwice, _) if outside && self.hit() => self.checker.observe(now, event),
            (Fault::RunsAnother, Event::Slice { processor, from, start, .. }) if outside && self.hit() => {
                let occupant = Occupant::unit(UnitIx(1));
                return self.checker.observe(now, Event::Slice { processor, occupant, from, start });
            }
            (Fault::ForgetsWork, Event::Wake { .. }) if self.hit() => return,
            (Fault::WakesTwice, Event::Wake { .. }) if self.hit() => self.checker.observe(now, event),
            (Fault::RunsInsideForFree, _) if inside && self.hit() => self.checker.observe(now, event),
            (Fault::StandsStillInside, _) if inside && self.hit() => return,
            (Fault::GoesBack, Event::Instant) if self.hit() => {
                self.checker.observe(now, event);
                return self.checker.observe(Instant::from_ns(1), event);
            }
            (Fault::DeliversTwice, Event::Packet(PacketEvent::Delivered { .. })) if self.hit() => {
                self.checker.observe(now, event);
            }
            (Fault::LosesPacket, Event::Packet(PacketEvent::Delivered { .. })) if self.hit() => return,
            (Fault::LosesSegment, Event::Packet(PacketEvent::Timed { owner, latency, segments })) => {
                let segments = if self.hit() { &segments[1..] } else { segments };
                let event = Event::Packet(PacketEvent::Timed { owner, latency, segments });
                return self.checker.observe(now, event);
            }
            _ => {}
        }
        self.checker.observe(now, event);
    }

    fn stops(&self) -> bool {
        self.checker.stops()
    }

    fn verdict(&mut self) -> Option<String> {
        self.checker.verdict()
    }
}

/// Two servers with a task each on one processor.
fn servers() -> Host {
    let mut host = pooled(1, ms(100), policy("deferrable"));
    for priority in 1..=2 {
        let vm = vm(&mut host, server(ms(3), ms(10), priority));
        task(&mut host, vm, 1, ms(2), ms(10));
    }
    host
}

fn networked() -> Host {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/network.toml");
    let overrides = punctual_model::file::Overrides { duration: Some("50ms".into()), ..Default::default() };
    punctual_model::file::load(std::path::Path::new(path), &overrides).unwrap_or_else(|e| panic!("{e}"))
}

fn verdict(host: &Host, fault: Fault) -> Option<String> {
    let observer = Distorted { checker: Checker::new(host), fault, seen: 0 };
    match simulate_watched(host, observer) {
        Ok(_) => None,
        Err(Error::Violation(account)) => Some(account),
        Err(error) => panic!("{fault:?}: {error}"),
    }
}

#[test]
fn an_engine_that_does_something_else_than_it_says_is_stopped() {
    assert_eq!(verdict(&servers(), Fault::Sound), None);
    let expected = [
        (Fault::LosesTime, "processor 0 is accounted for up to"),
        (Fault::CountsTwice, "processor 0 is accounted for up to"),
        (Fault::RunsAnother, "processor 0 executed vCPU d2.0, which was not picked"),
        (Fault::ForgetsWork, "which has no work"),
        (Fault::WakesTwice, "wakes and is awake"),
        (Fault::RunsInsideForFree, "ns more were spent inside vCPU d1.0 than it executed"),
        (Fault::StandsStillInside, "vCPU d1.0 executed 2000000 ns more than were spent inside it"),
        (Fault::GoesBack, "the next event lies in the past, at 1 ns"),
    ];
    for (fault, text) in expected {
        let account = verdict(&servers(), fault).unwrap_or_else(|| panic!("{fault:?}: not stopped"));
        assert!(account.contains(text), "{fault:?}: {account}");
        assert!(account.contains("last decisions:"), "{fault:?}: {account}");
    }
}

#[test]
fn an_engine_that_loses_track_of_packets_is_stopped() {
    assert_eq!(verdict(&networked(), Fault::Sound), None);
    let expected = [
        (Fault::DeliversTwice, "overtook another"),
        (Fault::LosesPacket, "packets created"),
        (Fault::LosesSegment, "the segments of a packet of"),
    ];
    for (fault, text) in expected {
        let account = verdict(&networked(), fault).unwrap_or_else(|| panic!("{fault:?}: not stopped"));
        assert!(account.contains(text), "{fault:?}: {account}");
    }
}
