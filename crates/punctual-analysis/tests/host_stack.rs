//! Bounds of response times through a Linux host's network stack hold in simulations of random hosts.

use proptest::prelude::*;
use punctual_analysis::host_stack::{Inversion, NoBound, inversions, response_bound};
use punctual_model::Host;
use punctual_model::file::{Overrides, parse};
use punctual_sim::simulate;

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
}

fn host(shape: &Shape) -> Host {
    let Shape { processors, noisy, frame_ns, coalesce_us, jitter_percent, window, seed, .. } = *shape;
    let cache = if shape.cache { "[host_stack.cache]\nsize_kib = 1024\n" } else { "" };
    let rest = if shape.thread_rest { "thread" } else { "ksoftirqd" };
    let text = format!(
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
    parse(&text, "random.toml", &Overrides::default()).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn shapes() -> impl Strategy<Value = Shape> {
    let sizes = (2usize..5, 1usize..5, 100u64..900, 0u64..200, 1u64..60, 64usize..3000);
    (0usize..6, [0usize..5, 0usize..5], sizes, any::<[bool; 2]>(), 1u64..1000).prop_map(
        |(method, paths, sizes, [cache, thread_rest], seed)| {
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
        let stack = host.stack.as_ref().unwrap();
        let results = simulate(&host).unwrap_or_else(|e| panic!("{e}\n{shape:?}"));
        let worst = results.flows[0].latency.max();
        match response_bound(stack, &stack.servers[0]) {
            Ok(bound) => {
                // Where there is none, softirqs may starve the server.
                prop_assert!(results.flows[0].packets.delivered > 30);
                prop_assert!(worst <= bound, "{worst} of {bound}");
            }
            Err(NoBound::Ksoftirqd) => prop_assert_eq!(shape.method, 0),
            Err(NoBound::SoftirqRest) => prop_assert!(shape.thread_rest),
            Err(other) => prop_assert_eq!(other, NoBound::Overlap),
        }
    }
}

fn bound_of(method: &str, set: &[&str]) -> Result<u64, NoBound> {
    let shape = Shape {
        method: METHODS.iter().position(|m| *m == method).unwrap(),
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
    };
    let text = punctual_model::file::to_toml(&host(&shape));
    let overrides = Overrides { set: set.iter().map(|s| (*s).to_string()).collect(), ..Overrides::default() };
    let host = parse(&text, "changed.toml", &overrides).unwrap_or_else(|e| panic!("{e}"));
    let stack = host.stack.as_ref().unwrap();
    response_bound(stack, &stack.servers[0]).map(|bound| bound.as_ns())
}

#[test]
fn what_waits_for_the_fair_class_has_no_bound_and_the_reason() {
    let card = "host_stack.card.rt.priority=0";
    assert_eq!(bound_of("threaded", &[card]), Err(NoBound::FairCard));
    assert_eq!(bound_of("threaded", &["host_stack.server.critical.priority=0"]), Err(NoBound::FairServer));
    let virtio = ["host_stack.server.critical.path=virtio", "host_stack.server.critical.vnic_priority=0"];
    assert_eq!(bound_of("partitioned", &virtio), Err(NoBound::FairVnic));
    assert_eq!(bound_of("vanilla", &[]), Err(NoBound::Ksoftirqd));
    assert_eq!(bound_of("threaded", &["host_stack.server.critical.count=2"]), Err(NoBound::SeveralUrgent));
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
    };
    let of = |thread_rest| {
        let host = host(&shape(thread_rest));
        let stack = host.stack.as_ref().unwrap();
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
