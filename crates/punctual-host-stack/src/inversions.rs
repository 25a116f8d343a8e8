//! The priority inversions of a host: less urgent work that comes before a request of an urgent server,
//! whatever the priorities of threads.

use alloc::vec::Vec;

use crate::host::{Card, HostStack, Injection, Path, Server, SoftirqRest};
use crate::method::Method;

/// A way in which less urgent work comes before a request of an urgent server, whatever the priorities of
/// threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inversion {
    /// Softirqs on return from interrupts come before every thread.
    SoftirqFirst,
    /// On its way in, a request waits for the holder of a common softirq lock, and the urgent IRQ thread then
    /// serves other cards.
    SoftirqLock,
    /// On its way back, an answer waits for a common softirq lock and its thread serves other cards.
    SoftirqLockBack,
    /// Its VM's interrupts wait until a kworker of the fair class has run.
    Kworker,
    /// A thread that took such a lock for it serves other cards until they bring no more.
    SoftirqRest,
}

impl core::fmt::Display for Inversion {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Inversion::SoftirqFirst => "softirqs of all cards come before its threads (method `vanilla`)",
            Inversion::SoftirqLock => {
                "its card shares the softirq lock with less urgent ones: a request waits for their packets \
                 (`partitioned` and `threaded-napi-unlocked` do without)"
            }
            Inversion::SoftirqLockBack => {
                "answers of a virtio VM pass the common softirq lock (paths with `outsourcing` do without)"
            }
            Inversion::Kworker => {
                "a kworker of the fair class puts its VM's interrupts in (`injection = \"direct\"` \
                 does without, as for MSI)"
            }
            Inversion::SoftirqRest => {
                "a thread with the common softirq lock goes on until no card brings more (`softirq_rest = \
                 \"ksoftirqd\"`, as kernels since 2016 do, ends that)"
            }
        })
    }
}

/// The inversions that a server with a priority meets on this host.
pub fn inversions(stack: &HostStack, server: &Server) -> Vec<Inversion> {
    if server.priority.is_fair() {
        return Vec::new();
    }
    let kworker = stack.injection == Injection::Kworker && server.path.is_interrupted();
    let mut all: Vec<Inversion> = kworker.then_some(Inversion::Kworker).into_iter().collect();
    if stack.method == Method::Vanilla {
        all.push(Inversion::SoftirqFirst);
    } else {
        all.extend(lock_inversions(stack, server));
    }
    all
}

/// Those that a softirq lock brings.
fn lock_inversions(stack: &HostStack, server: &Server) -> Vec<Inversion> {
    let card = &stack.cards[server.card];
    // Exclusive processors keep urgent and other cards apart.
    let shares = |other: &&Card| {
        other.priority < card.priority && other.processors.iter().any(|cpu| card.processors.contains(cpu))
    };
    let common = stack.method.has_softirq_lock() && stack.method != Method::Exclusive;
    if !common || stack.cards.iter().filter(shares).count() == 0 {
        return Vec::new();
    }
    let apart = stack.method == Method::Partitioned && card.priority >= stack.rtnet_prio;
    let inwards = (!apart).then_some(Inversion::SoftirqLock);
    let outwards = (server.path == Path::Virtio).then_some(Inversion::SoftirqLockBack);
    let mut all: Vec<Inversion> = inwards.into_iter().chain(outwards).collect();
    if !all.is_empty() && !stack.method.has_napi_threads() && stack.softirq_rest == SoftirqRest::Thread {
        all.push(Inversion::SoftirqRest);
    }
    all
}
