//! Bounds of response times through a Linux host's network stack hold in simulations of random hosts.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use punctual_host_stack::HostStack;
use punctual_host_stack::bounds::{BoundPart, NoBound, ResponseBound, response_bound};
use punctual_host_stack::inversions::{Inversion, inversions};
use punctual_host_stack_sim::simulate;
use punctual_model::AnyHost;
use punctual_model::file::{Overrides, parse_host_stack};

const METHODS: [&str; 6] =
    ["vanilla", "threaded", "exclusive", "partitioned", "threaded-napi", "threaded-napi-unlocked"];
const PATHS: [&str; 5] = ["virtio", "outsourcing", "rt-outsourcing", "container", "process"];

/// A host with an urgent server beside streams; some of its keys vary.
#[derive(Clone, Debug)]
struct Shape {
    method: usize,
    paths: [usize; 2],
    processors: usize,
    noisy: usize,
    frame_ns: u64,
    coalesce_us: u64,
    jitter_percent: u64,
    cache: bool,
    /// What is left of an action stays with its thread.
    thread_rest: bool,
    window: usize,
    seed: u64,
    others: Vec<Urgent>,
}

/// Another urgent server.
#[derive(Clone, Debug)]
struct Urgent {
    /// On a card of its own, of this priority; `None`: on the critical server's.
    card: Option<u8>,
    path: usize,
    priority: u8,
    count: u32,
    gap_ms: u64,
    service_us: u64,
}

impl Urgent {
    fn text(&self, number: usize) -> String {
        let Urgent { path, priority, count, gap_ms, service_us, .. } = *self;
        let (card, described) = match self.card {
            None => ("rt".to_owned(), String::new()),
            Some(of) => (format!("own{number}"), format!("[host_stack.card.own{number}]\npriority = {of}\n")),
        };
        format!(
            "{described}[host_stack.server.other{number}]\ncard = \"{card}\"\npath = \"{}\"\n\
             priority = {priority}\nvnic_priority = {}\ncount = {count}\nload = \"requests\"\n\
             gap_min = \"{gap_ms}ms\"\ngap_max = \"{}ms\"\nservice = \"{service_us}us\"\n",
            PATHS[path],
            100 - priority,
            2 * gap_ms,
        )
    }
}

fn host(shape: &Shape) -> HostStack {
    let Shape { processors, noisy, frame_ns, coalesce_us, jitter_percent, window, seed, .. } = *shape;
    let cache = if shape.cache { "[host_stack.cache]\nsize_kib = 1024\n" } else { "" };
    let rest = if shape.thread_rest { "thread" } else { "ksoftirqd" };
    let mut text = format!(
        "seed = {seed}\nduration = \"400ms\"\n[machine]\nprocessors = {processors}\n\
         [host_stack]\nmethod = \"{}\"\nsoftirq_rest = \"{rest}\"\n\
         [host_stack.costs]\nframe = \"{frame_ns}ns\"\njitter = \"{jitter_percent}%\"\n{cache}\
         [host_stack.card.rt]\npriority = 50\n\
         [host_stack.card.common]\ncoalesce = \"{coalesce_us}us\"\n\
         [host_stack.server.critical]\ncard = \"rt\"\npath = \"{}\"\npriority = 47\nvnic_priority = 48\n\
         load = \"requests\"\ngap_min = \"8ms\"\ngap_max = \"10ms\"\n\
         [host_stack.server.noisy]\ncard = \"common\"\npath = \"{}\"\ncount = {noisy}\nload = \"stream\"\n\
         window = {window}\n",
        METHODS[shape.method], PATHS[shape.paths[0]], PATHS[shape.paths[1]],
    );
    text.extend(shape.others.iter().enumerate().map(|(number, other)| other.text(number)));
    parse_host_stack(text.as_bytes(), "random.toml", &Overrides::default())
        .unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn shapes() -> impl Strategy<Value = Shape> {
    let sizes = (2usize..5, 1usize..5, 100u64..900, 0u64..200, 1u64..60, 64usize..3000);
    let other = (prop::option::of(1u8..99), 0usize..5, 1u8..99, 1u32..4, 5u64..12, 0u64..200).prop_map(
        |(card, path, priority, count, gap_ms, service_us)| Urgent {
            card,
            path,
            priority,
            count,
            gap_ms,
            service_us,
        },
    );
    let others = prop::collection::vec(other, 0..3);
    (0usize..6, [0usize..5, 0usize..5], sizes, any::<[bool; 2]>(), 1u64..1000, others).prop_map(
        |(method, paths, sizes, [cache, thread_rest], seed, others)| {
            let (processors, noisy, frame_ns, coalesce_us, jitter_percent, window) = sizes;
            let costs = (frame_ns, coalesce_us, jitter_percent);
            let (frame_ns, coalesce_us, jitter_percent) = costs;
            Shape {
                method,
                paths,
                processors,
                noisy,
                frame_ns,
                coalesce_us,
                jitter_percent,
                cache,
                thread_rest,
                window,
                seed,
                others,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Every random host runs without a violation, whatever its method; where there is a bound, it holds.
    #[test]
    fn no_simulated_response_exceeds_its_bound(shape in shapes()) {
        let host = host(&shape);
        let stack = &host;
        let results = simulate(&host).unwrap_or_else(|e| panic!("{e}\n{shape:?}"));
        for (server, flow) in stack.servers.iter().zip(&results.flows) {
            let worst = flow.latency.max();
            match response_bound(stack, server) {
                Ok(bound) => {
                    // Where there is none, softirqs may starve the server.
                    prop_assert!(flow.packets.delivered > 15);
                    prop_assert!(worst <= bound.total(), "{}: {worst} of {bound:?}", server.name);
                }
                Err(NoBound::Ksoftirqd) => prop_assert_eq!(shape.method, 0),
                Err(NoBound::SoftirqRest) => prop_assert!(shape.thread_rest),
                Err(NoBound::SeveralUrgent) => prop_assert!(!shape.others.is_empty()),
                Err(NoBound::Stream) => prop_assert_eq!(&server.name, "noisy"),
                Err(other) => prop_assert_eq!(other, NoBound::Overlap),
            }
        }
    }
}

fn bound_of(method: &str, set: &[&str]) -> Result<u64, NoBound> {
    parts_of(method, set).map(|bound| bound.total().as_ns())
}

fn parts_of(method: &str, set: &[&str]) -> Result<ResponseBound, NoBound> {
    let shape = Shape {
        method: METHODS.iter().position(|m| *m == method).expect("one of METHODS"),
        paths: [2, 0],
        processors: 2,
        noisy: 2,
        frame_ns: 300,
        coalesce_us: 125,
        jitter_percent: 10,
        cache: true,
        thread_rest: false,
        window: 2048,
        seed: 1,
        others: Vec::new(),
    };
    let text = AnyHost::Stack(host(&shape)).to_toml();
    let overrides = Overrides { set: set.iter().map(|s| (*s).to_string()).collect(), ..Overrides::default() };
    let host =
        parse_host_stack(text.as_bytes(), "changed.toml", &overrides).unwrap_or_else(|e| panic!("{e}"));
    let stack = &host;
    response_bound(stack, &stack.servers[0])
}

#[test]
fn the_parts_of_a_bound_say_what_it_is_for() {
    let parts = |method: &str, set: &[&str]| {
        let bound = parts_of(method, set).unwrap();
        let parts = BoundPart::ALL.map(|part| bound.part(part).as_ns());
        assert_eq!(parts.iter().sum::<u64>(), bound.total().as_ns());
        parts
    };
    let [steps, refill, locks, threads, interrupts, others] = parts("partitioned", &[]);
    assert!(steps > 0 && refill > 0 && threads > 0 && interrupts > 0);
    // The path of an outsourced server passes no common lock, and it is the only urgent one.
    assert_eq!((locks, others), (0, 0));
    let threaded = parts("threaded", &[]);
    assert!(threaded[2] > 0 && threaded[..2] == [steps, refill], "{threaded:?}");
    let two = parts("partitioned", &["host_stack.server.critical.count=2"]);
    assert!(two[5] > 0 && two[..2] == [steps, refill], "{two:?}");
    // 12.1 us more with 10 % of jitter for each call.
    let longer = parts("partitioned", &["host_stack.server.critical.service=11us"]);
    let before = parts("partitioned", &["host_stack.server.critical.service=0ns"]);
    assert_eq!(longer[0] - before[0], 12_100);
}

#[test]
fn what_waits_for_the_fair_class_has_no_bound_and_the_reason() {
    let card = "host_stack.card.rt.priority=0";
    assert_eq!(bound_of("threaded", &[card]), Err(NoBound::FairCard));
    assert_eq!(bound_of("threaded", &["host_stack.server.critical.priority=0"]), Err(NoBound::FairServer));
    let virtio = ["host_stack.server.critical.path=virtio", "host_stack.server.critical.vnic_priority=0"];
    assert_eq!(bound_of("partitioned", &virtio), Err(NoBound::FairVnic));
    assert_eq!(bound_of("vanilla", &[]), Err(NoBound::Ksoftirqd));
    let unknown = "host_stack.server.noisy.priority=1";
    assert_eq!(bound_of("threaded", &[unknown]), Err(NoBound::SeveralUrgent));
    assert_eq!(bound_of("threaded", &["host_stack.server.critical.gap_min=50us"]), Err(NoBound::Overlap));
    let thread = "host_stack.softirq_rest=thread";
    assert_eq!(bound_of("threaded", &[thread]), Err(NoBound::SoftirqRest));
    let virtio = "host_stack.server.critical.path=virtio";
    assert_eq!(bound_of("partitioned", &[thread, virtio]), Err(NoBound::SoftirqRest));
    assert_eq!(bound_of("partitioned", &[thread]), bound_of("partitioned", &[]));
}

#[test]
fn an_old_kernel_has_one_more_inversion_where_a_lock_is_shared() {
    let shape = |thread_rest| Shape {
        method: 1,
        paths: [0, 0],
        processors: 2,
        noisy: 1,
        frame_ns: 300,
        coalesce_us: 125,
        jitter_percent: 10,
        cache: false,
        thread_rest,
        window: 64,
        seed: 1,
        others: Vec::new(),
    };
    let of = |thread_rest| {
        let host = host(&shape(thread_rest));
        let stack = &host;
        inversions(stack, &stack.servers[0])
    };
    assert_eq!(of(false), [Inversion::SoftirqLock, Inversion::SoftirqLockBack]);
    assert_eq!(of(true), [Inversion::SoftirqLock, Inversion::SoftirqLockBack, Inversion::SoftirqRest]);
}

#[test]
fn partitioned_softirqs_and_threaded_napi_without_lock_have_the_least_bounds() {
    let [threaded, partitioned, napi, unlocked] =
        ["threaded", "partitioned", "threaded-napi", "threaded-napi-unlocked"]
            .map(|method| bound_of(method, &[]).unwrap());
    // Steps of about 25 us, and locks where there are some: two actions of 64 packets from two cards.
    let bounds = [threaded, partitioned, napi, unlocked];
    assert!((25_000..200_000).contains(&partitioned) && threaded < 3_000_000, "{bounds:?}");
    assert!(partitioned < threaded && unlocked <= partitioned && napi >= partitioned);
}

#[test]
fn each_urgent_server_more_adds_all_that_its_requests_cost() {
    let bound = |count: u32| bound_of("partitioned", &[&format!("host_stack.server.critical.count={count}")]);
    let bounds: Vec<u64> = (1..=4).map(|count| bound(count).unwrap()).collect();
    let steps: Vec<u64> = bounds.windows(2).map(|two| two[1] - two[0]).collect();
    // One request may be under way and one comes; each is about what a request takes, with its switches.
    assert!(steps.iter().all(|&step| step > bounds[0] && step < 4 * bounds[0]), "{bounds:?}");
    // So many that a request may come before the one before it is answered.
    assert_eq!(bound(200), Err(NoBound::Overlap));
}

/// How many of random hosts' urgent servers have a bound: the property above must not hold for want of them.
#[test]
fn several_urgent_servers_often_have_bounds() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut several, mut bounded) = (0, 0);
    for _ in 0..300 {
        let shape = shapes().new_tree(&mut runner).expect("a shape").current();
        if shape.others.is_empty() || shape.method == 0 || shape.thread_rest {
            continue;
        }
        let host = host(&shape);
        let stack = &host;
        several += 1;
        bounded += u32::from(response_bound(stack, &stack.servers[0]).is_ok());
    }
    assert!(several > 50 && bounded * 8 > several, "{bounded} of {several}");
}
