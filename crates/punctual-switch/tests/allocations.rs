//! Planes allocate and free nothing, whatever guests do: the allocator's locks inherit no priority.

#![expect(unsafe_code, reason = "an allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use punctual_switch::session::{RX, TX};
use punctual_switch::testing::{FrontEnd, Options};
use punctual_switch::{Event, RingError};

use super::common::{ALL, Lab, Setting, frame};

thread_local! {
    static IS_WATCHED: Cell<bool> = const { Cell::new(false) };
}

static IS_COUNTING: AtomicBool = AtomicBool::new(false);
/// Allocations and releases of watched threads.
static COUNT: AtomicU64 = AtomicU64::new(0);

struct Counting;

fn count() {
    if IS_WATCHED.get() && IS_COUNTING.load(Ordering::Relaxed) {
        COUNT.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator with the caller's arguments, which keep its rules.
// Counting allocates nothing: the thread's flag needs neither an initializer nor a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count();
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// `VIRTQ_DESC_F_WRITE`.
const WRITE: u16 = 2;

/// The third VM breaks a ring or replaces a call event, and connects again, while the others go on.
fn misbehave(lab: &Lab, round: u64) {
    let mut c = lab.vm(2, Options::default());
    c.replace_call(RX).expect("replaced");
    c.replace_call(TX).expect("replaced");
    let wanted = if round.is_multiple_of(2) {
        (0..256).for_each(|head| c.describe(RX, head, 1 << 40, 2048, WRITE, 0).expect("written"));
        RingError::OutOfBounds
    } else {
        c.publish_avail(TX, 40_000).expect("written");
        RingError::AvailIndex
    };
    // The plane reads a broken RX ring only for a frame.
    let mut a = FrontEnd::connected(&lab.socket(0), Options::default()).expect("a VM");
    assert!(a.send(&punctual_switch::testing::frame(ALL, [2; 6], round, 64)).expect("sent"));
    let event = lab.wait(2, |event| matches!(event, Event::Broken(_)));
    assert_eq!(event, Event::Broken(wanted));
    c.disconnect();
    lab.wait(2, |event| matches!(event, Event::Disconnected(None)));
    a.disconnect();
    lab.wait(0, |event| matches!(event, Event::Disconnected(None)));
}

#[test]
fn planes_allocate_nothing_while_ports_break_and_reset() {
    for planes in [vec![0, 0, 0, 0], vec![0, 0, 1, 1]] {
        let setting = Setting { planes, check: false, ..Setting::plain("rtca", 4) };
        let mut lab = Lab::new(Setting { enter: |_| IS_WATCHED.set(true), ..setting });
        let [mut b, mut d] = [1, 3].map(|port| lab.vm(port, Options::default()));
        misbehave(&lab, 0);
        IS_COUNTING.store(true, Ordering::Relaxed);
        for round in 0..20 {
            misbehave(&lab, round);
            for number in 0..20 {
                assert!(b.send(&frame(1, 3, number)).expect("sent"));
                while d.receive_within(super::common::LONG).expect("whole").expect("a frame").frame[11] != 1 {
                }
                assert!(d.send(&frame(3, 1, number)).expect("sent"));
                while b.receive_within(super::common::LONG).expect("whole").expect("a frame").frame[11] != 3 {
                }
            }
            lab.switch().count();
        }
        IS_COUNTING.store(false, Ordering::Relaxed);
        assert_eq!(COUNT.load(Ordering::Relaxed), 0, "allocations and releases of planes");
        lab.stop();
    }
    // The allocator does count.
    IS_WATCHED.set(true);
    IS_COUNTING.store(true, Ordering::Relaxed);
    drop(std::hint::black_box(Box::new(0u64)));
    IS_COUNTING.store(false, Ordering::Relaxed);
    assert_eq!(COUNT.load(Ordering::Relaxed), 2);
}
