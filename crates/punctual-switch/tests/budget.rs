//! Planes with a budget: floods take no more processor time, and other planes are not affected.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use punctual_sched::registry::{Options as PolicyOptions, find};
use punctual_sched::{Duration as Time, UnitParams};
use punctual_switch::budget::Budget;
use punctual_switch::session::{RX, TX};
use punctual_switch::testing::{self, FrontEnd, Options};
use punctual_switch::wire::{Device, VnetHeader};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::common::{LONG, Lab, Setting, address, expect, frame};

fn budget(policy: &str, budget_us: u64, period_us: u64) -> Option<Budget> {
    let params = UnitParams {
        budget: Some(Time::from_us(budget_us)),
        period: Some(Time::from_us(period_us)),
        extratime: Some(false),
        ..UnitParams::default()
    };
    Some(Budget { policy: find(policy).expect("a policy"), options: PolicyOptions::new(), params })
}

/// Ports 0 and 1 in a plane of their own, the others in one with this budget.
fn setting(ports: usize, of_floods: Option<Budget>) -> Setting {
    let mut setting = Setting::plain("rtca", ports);
    for (port, params) in setting.ports.iter_mut().enumerate() {
        params.priority = Some(if port < 2 { 1 } else { 2 });
        setting.planes[port] = usize::from(port >= 2);
    }
    setting.budgets = vec![None, of_floods];
    setting
}

/// The processor time of a plane's thread, by the kernel's account.
fn processor_time(lab: &Lab, plane: usize) -> Duration {
    Duration::from_nanos(lab.switch().count().planes[plane].processor_ns)
}

/// Floods from port 2 to port 3 until `done`. Returns the received frames.
fn flood(c: &mut FrontEnd, d: &mut FrontEnd, done: &AtomicBool) -> u64 {
    // Long frames: the plane is slower than the driver, even if that seldom runs.
    c.flood_with(&testing::frame(address(3), address(2), 1, 1_514)).expect("written");
    let mut received = 0;
    while !done.load(Ordering::Relaxed) {
        c.refill(TX, 64).expect("refilled");
        received += u64::from(d.refill(RX, 64).expect("refilled"));
    }
    received
}

#[test]
fn a_flood_takes_no_more_than_the_budget_and_urgent_packets_pass() {
    for policy in ["deferrable", "sporadic", "cbs"] {
        let mut lab = Lab::new(setting(4, budget(policy, 2_000, 10_000)));
        let [mut a, mut b, mut c, mut d] = [0, 1, 2, 3].map(|port| lab.vm(port, Options::default()));
        let done = AtomicBool::new(false);
        let (mut packets, mut share) = (0, 0.0);
        std::thread::scope(|scope| {
            let flood = scope.spawn(|| flood(&mut c, &mut d, &done));
            std::thread::sleep(Duration::from_millis(50));
            let (start, before) = (Instant::now(), processor_time(&lab, 1));
            for number in 0.. {
                if start.elapsed() > Duration::from_millis(1_000) {
                    break;
                }
                assert!(a.send(&frame(0, 1, number)).expect("sent"));
                expect(&mut b, &frame(0, 1, number));
            }
            let took = processor_time(&lab, 1).saturating_sub(before);
            share = took.as_secs_f64() / start.elapsed().as_secs_f64();
            done.store(true, Ordering::Relaxed);
            packets = flood.join().expect("flooded");
        });
        let report = lab.stop();
        assert!(packets > 1_000, "{policy}: the flood had {packets} packets");
        // A budget kept over the end of a period, and the time between a check and the sleep.
        assert!(share <= 0.205, "{policy}: {share} of a processor");
        assert!(report.planes[1].exhaustions > 10, "{policy}: {:?}", report.planes[1]);
        assert_eq!(report.planes[0].exhaustions, 0);
    }
}

#[test]
fn a_plane_with_an_exhausted_budget_still_handles_commands() {
    let mut lab = Lab::new(setting(4, budget("deferrable", 500, 100_000_000)));
    let [mut c, mut d] = [2, 3].map(|port| lab.vm(port, Options::default()));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| flood(&mut c, &mut d, &done));
        let start = Instant::now();
        while lab.switch().count().planes[1].exhaustions == 0 {
            assert!(start.elapsed() < LONG, "the budget is never used up");
        }
        let before = lab.switch().count().planes[1].carried;
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(lab.switch().count().planes[1].carried, before, "nothing is carried without budget");
        done.store(true, Ordering::Relaxed);
        flood.join().expect("flooded");
    });
    let start = Instant::now();
    d.stop_ring(TX).expect("stopped");
    c.disconnect();
    drop(lab.stop());
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

#[test]
fn an_uplink_shares_the_budget() {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a pair");
    let wire = Box::new(Device::new(pair.0, VnetHeader::Virtio1));
    let mut lab = Lab::with_uplinks(setting(4, budget("deferrable", 2_000, 10_000)), vec![wire]);
    let mut c = lab.vm(2, Options::default());
    let message = [&[0; 12][..], &frame(3, 2, 1)].concat();
    let (start, mut sent) = (Instant::now(), 0_u64);
    while start.elapsed() < Duration::from_millis(1_000) {
        sent += u64::from(rustix::io::write(&pair.1, &message).is_ok());
        c.refill(RX, 64).expect("refilled");
    }
    let elapsed = start.elapsed();
    let took = processor_time(&lab, 1);
    let report = lab.stop();
    let uplink = report.ports[3].uplink.expect("an uplink");
    let took = took + Duration::from_nanos(uplink.processor_ns);
    assert!(sent > 1_000 && report.ports[2].received.packets > 1_000, "{sent} sent");
    let share = took.as_secs_f64() / elapsed.as_secs_f64();
    // Two budgets may meet at the end of the first period.
    assert!(share <= 0.215, "{share} of a processor");
}
