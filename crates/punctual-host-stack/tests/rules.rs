//! Figs. 3-13 and 4-2 of Garcia (Tsukuba 2019) as sequences of decisions on one processor: who holds the
//! softirq lock, with which priority it runs, whom it serves.

use punctual_host_stack::lock::{PiLock, Taken};
use punctual_host_stack::softnet::{DeviceId, List, PollList, Round, WEIGHT};
use punctual_host_stack::{Method, Priority, ThreadId};
use punctual_sched::{Duration, Instant};

const COMMON_NIC: DeviceId = DeviceId(0);
const URGENT_NIC: DeviceId = DeviceId(1);
const COMMON_IRQ_THREAD: ThreadId = ThreadId(0);
const URGENT_IRQ_THREAD: ThreadId = ThreadId(1);
/// Table 6.2 and s.6.1.
const URGENT: Priority = Priority(50);
const RTNET_PRIO: Priority = Priority(47);

fn at(us: u64) -> Instant {
    Instant::ZERO + Duration::from_us(us)
}

/// The poll lists and locks of the processor.
struct Softirqs {
    method: Method,
    lists: [PollList; 2],
    locks: [PiLock; 2],
}

impl Softirqs {
    fn new(method: Method) -> Self {
        let list = || PollList::new(2, Duration::from_ms(4));
        Softirqs { method, lists: [list(), list()], locks: [PiLock::new(2), PiLock::new(2)] }
    }

    /// The IRQ thread runs the handler of its card: the list that it chose.
    fn handler(&mut self, priority: Priority, nic: DeviceId) -> List {
        let list = self.method.list_of(priority, RTNET_PRIO);
        assert!(self.lists[list.index()].schedule(nic));
        list
    }
}

#[test]
fn fig_3_13_the_urgent_thread_waits_for_the_holders_quota_and_then_serves_the_other_card() {
    let mut cpu = Softirqs::new(Method::Threaded);
    // The non-RT card's IRQ thread: handler, lock, its card's poll begins.
    let list = cpu.handler(Priority::FAIR, COMMON_NIC);
    let (lists, locks) = (list.index(), list.index());
    assert_eq!(cpu.locks[locks].take(COMMON_IRQ_THREAD, Priority::FAIR), Taken::Held);
    cpu.lists[lists].begin(at(0));
    assert_eq!(cpu.lists[lists].next_device(), Some(COMMON_NIC));
    // The RT card interrupts. Its thread preempts, puts its card on the same list and waits for the lock.
    assert_eq!(cpu.handler(URGENT, URGENT_NIC), list);
    let waits = Taken::Waits { holder: COMMON_IRQ_THREAD };
    assert_eq!(cpu.locks[locks].take(URGENT_IRQ_THREAD, URGENT), waits);
    // First inversion: the holder goes on, with the priority of the one that waits, until its quota is used
    // up.
    assert_eq!(cpu.locks[locks].inherited(), URGENT);
    assert_eq!(cpu.lists[lists].polled(at(20), WEIGHT), Round::Ends);
    assert!(cpu.lists[lists].finish());
    assert_eq!(cpu.locks[locks].release(), Some(URGENT_IRQ_THREAD));
    // The RT card is served first, and its packet wakes the vNIC thread.
    cpu.lists[lists].begin(at(20));
    assert_eq!(cpu.lists[lists].next_device(), Some(URGENT_NIC));
    assert_eq!(cpu.lists[lists].polled(at(22), 1), Round::Continues);
    // Second inversion: before it lets go, the RT thread serves the non-RT card; the vNIC thread waits.
    assert_eq!(cpu.lists[lists].next_device(), Some(COMMON_NIC));
    assert_eq!(cpu.lists[lists].polled(at(30), 10), Round::Ends);
    assert!(!cpu.lists[lists].finish());
    assert_eq!(cpu.locks[locks].release(), None);
}

#[test]
fn fig_4_2_with_lists_and_locks_apart_the_urgent_thread_waits_for_nobody() {
    let mut cpu = Softirqs::new(Method::Partitioned);
    let common = cpu.handler(Priority::FAIR, COMMON_NIC).index();
    assert_eq!(cpu.locks[common].take(COMMON_IRQ_THREAD, Priority::FAIR), Taken::Held);
    cpu.lists[common].begin(at(0));
    assert_eq!(cpu.lists[common].next_device(), Some(COMMON_NIC));
    // The RT card interrupts while that poll is under way.
    let urgent = cpu.handler(URGENT, URGENT_NIC).index();
    assert_ne!(urgent, common);
    assert_eq!(cpu.locks[urgent].take(URGENT_IRQ_THREAD, URGENT), Taken::Held);
    assert_eq!(cpu.locks[common].inherited(), Priority::FAIR);
    // It serves its own card alone and lets go: the processor is free for the thread that it woke.
    cpu.lists[urgent].begin(at(5));
    assert_eq!(cpu.lists[urgent].next_device(), Some(URGENT_NIC));
    assert_eq!(cpu.lists[urgent].polled(at(7), 1), Round::Ends);
    assert!(!cpu.lists[urgent].finish());
    assert_eq!(cpu.locks[urgent].release(), None);
    // Then the non-RT thread's poll goes on where it was.
    assert_eq!(cpu.lists[common].polled(at(27), WEIGHT), Round::Ends);
    assert!(cpu.lists[common].finish());
    assert_eq!(cpu.locks[common].release(), None);
}
