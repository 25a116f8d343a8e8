//! A Linux host's network stack: the thesis's traces on the machine, conservation, determinism, and what each
//! method promises.

use std::collections::BTreeMap;

use punctual_host_stack::{HostStack, SoftirqRest, Who};
use punctual_host_stack_sim::{Event, simulate, simulate_traced, simulate_watched};
use punctual_model::Histogram;
use punctual_model::file::{Overrides, parse_host_stack};
use punctual_model::results::{FlowResult, HostPart, Results, Segment};
use punctual_model::trace::StackEvent;

const METHODS: [&str; 6] =
    ["vanilla", "threaded", "exclusive", "partitioned", "threaded-napi", "threaded-napi-unlocked"];
const PATHS: [&str; 5] = ["virtio", "outsourcing", "rt-outsourcing", "container", "process"];

/// An urgent server beside two that receive at full speed. Card 0 is the urgent one's.
const HOST: &str = r#"
name = "host"
duration = "300ms"
[machine]
processors = 2
[host_stack]
method = "METHOD"
[host_stack.costs]
jitter = "10%"
[host_stack.card.rt]
priority = 50
[host_stack.card.common]
coalesce = "125us"
[host_stack.server.critical]
card = "rt"
path = "PATH"
priority = 47
vnic_priority = 48
load = "requests"
gap_min = "100us"
gap_max = "1ms"
[host_stack.server.noisy]
card = "common"
path = "PATH"
count = 2
load = "stream"
"#;

fn host(method: &str, path: &str, set: &[&str]) -> HostStack {
    let text = HOST.replace("METHOD", method).replace("PATH", path);
    let overrides = Overrides { set: set.iter().map(|s| (*s).to_string()).collect(), ..Overrides::default() };
    parse_host_stack(text.as_bytes(), "host.toml", &overrides).unwrap_or_else(|e| panic!("{e}"))
}

fn run(host: &HostStack) -> Results {
    simulate(host).unwrap_or_else(|e| panic!("{e}"))
}

fn critical(results: &Results) -> &FlowResult {
    results.flows.iter().find(|flow| flow.name == "critical").expect("the flow")
}

fn mean_ns(histogram: &Histogram) -> u64 {
    histogram.mean().as_ns()
}

fn part_max_ns(flow: &FlowResult, part: HostPart) -> u64 {
    flow.parts.iter().find(|one| one.part == part).map_or(0, |one| one.time.max().as_ns())
}

/// What happened from the first time that the urgent IRQ thread of processor 0 was woken while the other's
/// softirq was under way, up to the wake-up's vNIC thread running.
fn trace(method: &str) -> Vec<Event> {
    let one = ["machine.processors=1", "host_stack.server.noisy.count=1", "host_stack.costs.jitter=0.001%"];
    let mut events = Vec::new();
    let mut host = host(method, "virtio", &one);
    host.duration = punctual_sched::Duration::from_ms(100);
    // Who runs and who waits; where requests are follows from it.
    let scheduling = |event: &Event| !matches!(event, Event::Spent { .. });
    simulate_watched(&host, |_, event| events.extend(Some(event).filter(scheduling)))
        .unwrap_or_else(|e| panic!("{e}"));
    let common = Who::Irq(1, 0);
    let mut holds = false;
    for (at, event) in events.iter().enumerate() {
        match event {
            Event::Locks { thread } if *thread == common => holds = true,
            Event::Unlocks { thread } if *thread == common => holds = false,
            Event::Interrupt { card: 0, .. } if holds => {
                let end = events[at..].iter().position(|e| runs(e, Who::Vnic(0)));
                return events[at..].iter().take(end.unwrap_or(0) + 1).copied().collect();
            }
            _ => {}
        }
    }
    panic!("the urgent card never interrupted the other's softirq");
}

fn runs(event: &Event, who: Who) -> bool {
    *event == Event::Runs { cpu: 0, thread: Some(who) }
}

#[test]
fn fig_3_13_event_by_event() {
    let (urgent, common, vnic) = (Who::Irq(0, 0), Who::Irq(1, 0), Who::Vnic(0));
    // When the noisy server's vNIC thread sleeps it is woken besides.
    let frames = |event: &Event| matches!(event, Event::Polled { card: 1, .. });
    let besides = |event: &Event| frames(event) || *event == Event::Wakes { thread: Who::Vnic(1) };
    let events: Vec<Event> = trace("threaded").into_iter().filter(|event| !besides(event)).collect();
    let run = |who| Event::Runs { cpu: 0, thread: Some(who) };
    assert_eq!(
        events,
        [
            Event::Interrupt { card: 0, cpu: 0 },
            Event::Wakes { thread: urgent },
            run(urgent),
            // The first inversion: it waits for the holder, which inherits its priority.
            Event::WaitsForLock { thread: urgent, holder: common },
            run(common),
            Event::Unlocks { thread: common },
            Event::Locks { thread: urgent },
            Event::Wakes { thread: Who::Ksoftirqd(0) },
            run(urgent),
            Event::Polled { card: 0, frames: 1 },
            Event::Wakes { thread: vnic },
            // The second one: the other card's frames come before the vNIC thread (polled in between).
            Event::Unlocks { thread: urgent },
            run(vnic),
        ]
    );
    let polled: Vec<Event> = trace("threaded").into_iter().filter(frames).collect();
    assert_eq!(polled.len(), 1, "the urgent thread serves the other card once: {polled:?}");
}

/// Linux 4.1 with PREEMPT_RT: an urgent thread serves the other card's frames until none is left, and nothing
/// is ksoftirqd's.
#[test]
fn what_is_left_of_an_action_stays_with_its_thread_where_the_kernel_is_older_than_2016() {
    let mut host = host("threaded", "virtio", &["host_stack.softirq_rest=thread"]);
    let mut longest = 0;
    let mut polls = 0;
    simulate_watched(&host, |_, event| match event {
        Event::Locks { thread: Who::Irq(0, _) } => polls = 0,
        Event::Polled { card: 1, .. } => {
            polls += 1;
            longest = longest.max(polls);
        }
        Event::Wakes { thread } | Event::Runs { thread: Some(thread), .. } => {
            assert!(!matches!(thread, Who::Ksoftirqd(_)), "{event:?}");
        }
        _ => {}
    })
    .unwrap_or_else(|e| panic!("{e}"));
    assert!(longest > 1, "a thread runs several actions under one lock");
    host.softirq_rest = SoftirqRest::Ksoftirqd;
    let mut woken = false;
    simulate_watched(&host, |_, event| {
        woken |= matches!(event, Event::Wakes { thread: Who::Ksoftirqd(_) });
    })
    .unwrap_or_else(|e| panic!("{e}"));
    assert!(woken, "ksoftirqd has the rest");
}

/// `vhost_worker` of a kernel without preemption.
#[test]
fn vanilla_lets_an_urgent_thread_wait_for_a_batch_of_a_vnic_thread() {
    let waits = |method: &str| {
        let set =
            ["machine.processors=1", "host_stack.server.noisy.count=1", "host_stack.costs.copy_per_kib=1us"];
        let results = run(&host(method, "virtio", &set));
        part_max_ns(critical(&results), HostPart::VnicReceiveWait)
    };
    // A packet of 64 KiB takes 65 us.
    assert!(waits("vanilla") > 65_000 && waits("partitioned") < 65_000);
}

#[test]
fn fig_4_2_event_by_event() {
    let (urgent, vnic) = (Who::Irq(0, 0), Who::Vnic(0));
    let run = |who| Event::Runs { cpu: 0, thread: Some(who) };
    assert_eq!(
        trace("partitioned"),
        [
            Event::Interrupt { card: 0, cpu: 0 },
            Event::Wakes { thread: urgent },
            run(urgent),
            Event::Locks { thread: urgent },
            Event::Polled { card: 0, frames: 1 },
            Event::Wakes { thread: vnic },
            Event::Unlocks { thread: urgent },
            run(vnic),
        ]
    );
}

/// The machine itself checks that parts add up, nothing is lost and requests are answered in order; here,
/// that the same comes out twice and that the results agree with themselves.
#[test]
fn every_method_and_path_answers_and_accounts_for_all_time() {
    for method in METHODS {
        for path in PATHS {
            let host = host(method, path, &[]);
            let results = run(&host);
            assert_eq!(results, run(&host), "{method} {path}");
            let flow = critical(&results);
            assert!(flow.packets.delivered > 300, "{method} {path}: {:?}", flow.packets);
            assert_eq!(flow.packets.created, flow.packets.delivered + flow.packets.in_flight);
            let parts: u64 = flow.parts.iter().map(|one| mean_ns(&one.time)).sum();
            let segments: u64 = flow.segments.iter().map(|one| mean_ns(&one.time)).sum();
            let latency = mean_ns(&flow.latency);
            // Means are rounded down, each by less than 1 ns.
            assert!(latency.abs_diff(segments) <= 4 && latency.abs_diff(parts) <= 28, "{method} {path}");
            assert!(results.flows[1].packets.bytes > 30_000_000, "{method} {path}");
        }
    }
}

#[test]
fn partitioned_requests_never_wait_for_the_common_softirq_lock_on_their_way_in() {
    for (method, waits) in [("threaded", true), ("partitioned", false), ("threaded-napi-unlocked", false)] {
        let results = run(&host(method, "process", &[]));
        assert_eq!(part_max_ns(critical(&results), HostPart::LockWait) > 0, waits, "{method}");
    }
    let vanilla = run(&host("vanilla", "process", &[]));
    assert!(part_max_ns(critical(&vanilla), HostPart::SoftirqWait) > 10_000, "softirqs come first");
}

#[test]
fn an_outsourced_guest_has_no_interrupt_and_no_second_stack() {
    let segments = |path: &str| {
        let results = run(&host("partitioned", path, &["host_stack.server.noisy.start=10s"]));
        let flow = critical(&results).clone();
        [HostPart::GuestInterrupt, HostPart::GuestStack].map(|part| part_max_ns(&flow, part) > 0)
    };
    assert_eq!(segments("virtio"), [true, true]);
    assert_eq!(segments("outsourcing"), [true, false]);
    assert_eq!(segments("rt-outsourcing"), [false, false]);
}

#[test]
fn copies_of_others_cost_a_refill_and_nothing_without_a_cache() {
    let refill = |set: &[&str]| {
        let results = run(&host("exclusive", "virtio", set));
        part_max_ns(critical(&results), HostPart::GuestRefill)
    };
    assert_eq!(refill(&[]), 0);
    let cache = "host_stack.cache.size_kib=512";
    assert!(refill(&[cache]) > 1_000);
    assert_eq!(refill(&[cache, "host_stack.server.noisy.start=10s"]), 0, "nobody else copies");
}

#[test]
fn exclusive_processors_run_only_what_has_a_priority() {
    let mut seen = [false; 2];
    simulate_watched(&host("exclusive", "virtio", &[]), |_, event| {
        if let Event::Runs { cpu, thread: Some(who) } = event {
            let urgent = matches!(who, Who::Irq(0, _) | Who::Vnic(0) | Who::Vcpu(0));
            assert_eq!(urgent, cpu == 1, "{who:?} on {cpu}");
            seen[cpu] = true;
        }
    })
    .unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(seen, [true, true]);
}

#[test]
fn an_undisturbed_request_takes_the_sum_of_its_costs() {
    let quiet = ["host_stack.server.noisy.start=10s", "host_stack.costs.jitter=0.001%"];
    let results = run(&host("threaded", "process", &quiet));
    let costs = host("threaded", "process", &[]).host_costs();
    let steps = [
        costs.card,
        costs.hard_irq,
        costs.switch,
        costs.irq_thread,
        costs.softirq,
        costs.frame,
        costs.protocol,
        costs.switch,
        costs.receive,
        punctual_sched::Duration::from_ns(500),
        costs.send,
        costs.transmit,
        costs.card,
    ];
    let sum: u64 = steps.iter().map(|step| step.as_ns()).sum();
    // Both copies of 64 bytes are 6 ns each.
    assert!(critical(&results).latency.max().as_ns().abs_diff(sum + 12) <= 2, "{sum}");
    let guest = critical(&results).segments.iter().find(|one| one.segment == Segment::Guest).unwrap();
    // 500 ns to receive, 8 % more with PREEMPT_RT, 500 ns of service, 6 ns to copy.
    assert_eq!(mean_ns(&guest.time), 1_046);
}

/// Processors that the noisy servers' card interrupts.
fn interrupted(set: &[&str]) -> Vec<usize> {
    let mut seen = Vec::new();
    let one = ["host_stack.server.noisy.count=1"];
    simulate_watched(&host("threaded", "virtio", &[&one[..], set].concat()), |_, event| {
        if let Event::Interrupt { card: 1, cpu } = event
            && !seen.contains(&cpu)
        {
            seen.push(cpu);
        }
    })
    .unwrap_or_else(|e| panic!("{e}"));
    seen.sort_unstable();
    seen
}

#[test]
fn a_stream_follows_its_acknowledgements_where_the_card_looks_at_them() {
    assert_eq!(interrupted(&[]), [1], "the second server's queue");
    assert_eq!(interrupted(&["host_stack.card.common.atr_sample=20"]), [0, 1]);
    let one = ["host_stack.card.common.atr_sample=20", "host_stack.card.common.processors=[1]"];
    assert_eq!(interrupted(&one), [1], "it has no other queue");
}

#[test]
fn each_further_page_of_a_packet_costs_the_vnic_thread_and_the_guest_a_buffer() {
    let bytes = |cost: &str| {
        let cost = format!("host_stack.costs.virtio_buffer={cost}");
        let results = run(&host("exclusive", "virtio", &[cost.as_str()]));
        (results.flows[1].packets.bytes, critical(&results).latency.max())
    };
    let (without, with) = (bytes("0ns"), bytes("1us"));
    // A packet of 64 KiB has 16 buffers; 15 on both sides are 30 us more to its 40, shorter ones have fewer.
    assert!(with.0 * 4 < without.0 * 3, "{with:?} {without:?}");
    // A request has one.
    let quiet = |cost: &str| {
        let set = [cost, "host_stack.server.noisy.start=10s"];
        run(&host("exclusive", "virtio", &set)).flows[0].latency.max()
    };
    assert_eq!(
        quiet("host_stack.costs.virtio_buffer=0ns"),
        quiet("host_stack.costs.virtio_buffer=1us"),
        "requests fit one buffer"
    );
}

#[test]
fn an_interrupt_puts_a_vcpu_out_of_its_vm() {
    // The service takes so long that another card's interrupts come amid it, and these cost nothing else.
    let longest = |exit: &str| {
        let set = [
            exit,
            "machine.processors=1",
            "host_stack.server.critical.service=300us",
            "host_stack.server.critical.gap_min=2ms",
            "host_stack.server.critical.gap_max=2ms",
            "host_stack.costs.jitter=0.001%",
        ];
        let results = run(&host("partitioned", "virtio", &set));
        critical(&results).parts.iter().find(|one| one.part == HostPart::GuestProcess).unwrap().time.max()
    };
    let (short, long) = (longest("host_stack.costs.vm_exit=0ns"), longest("host_stack.costs.vm_exit=20us"));
    // Its own exit to tell the vNIC thread is 20 us, and so is the other card's interrupt. That card's thread
    // waits for the vCPU, so there is only one.
    assert!((long.as_ns() - short.as_ns()).abs_diff(40_000) <= 10, "{short} {long}");
}

#[test]
fn a_sip_call_has_six_messages_in_four_turns() {
    let set = [
        "host_stack.server.critical.call=sip",
        "host_stack.server.critical.gap_min=5ms",
        "host_stack.server.critical.gap_max=5ms",
        "host_stack.server.critical.turnaround=200us",
        "host_stack.server.critical.service=30us",
        "host_stack.server.noisy.start=10s",
        "host_stack.costs.jitter=0.001%",
        "duration=52ms",
    ];
    let mut answers = Vec::new();
    let host = host("threaded", "process", &set);
    let results = simulate_watched(&host, |now, event| {
        if let Event::Answered { .. } = event {
            answers.push(now);
        }
    })
    .unwrap_or_else(|e| panic!("{e}"));
    // Calls begin at 5, 10 ... 50 ms.
    assert_eq!(critical(&results).packets.created, 60);
    let gaps: Vec<u64> = answers[..6].windows(2).map(|two| two[1] - two[0]).collect();
    // The second of a pair follows the first; other messages come after the clients' turn.
    for (gap, turn) in gaps.into_iter().zip([true, false, true, false, true]) {
        assert!((gap > 200_000) == turn && gap > 30_000 && gap < 300_000, "{gap}");
    }
}

#[test]
fn other_requests_are_served_and_not_timed() {
    let set = [
        "host_stack.server.critical.other_share=10%",
        "host_stack.server.critical.bytes=100",
        "host_stack.server.critical.other_bytes=1100",
        "host_stack.server.noisy.start=10s",
        "duration=2s",
    ];
    let results = run(&host("threaded", "process", &set));
    let flow = critical(&results);
    let others = flow.packets.delivered - flow.latency.count();
    let percent = others * 100 / flow.packets.delivered;
    assert!((8..=12).contains(&percent), "{percent} %");
    assert_eq!(flow.packets.bytes, flow.latency.count() * 100 + others * 1100);
}

/// KVM's `irqfd_inject`: an urgent VM's interrupt waits until a thread of the fair class has run.
#[test]
fn a_kworker_that_injects_interrupts_waits_for_more_urgent_threads_and_the_vm_for_it() {
    let injected = |injection: &str, path: &str| {
        let injection = format!("host_stack.injection={injection}");
        let mut seen = false;
        let results = simulate_watched(&host("partitioned", path, &[injection.as_str()]), |_, event| {
            seen |= matches!(event, Event::Runs { thread: Some(Who::Kworker(_)), .. });
        });
        (seen, part_max_ns(critical(&results.unwrap_or_else(|e| panic!("{e}"))), HostPart::VcpuWait))
    };
    let (direct, kworker) = (injected("direct", "virtio"), injected("kworker", "virtio"));
    assert!(!direct.0 && kworker.0 && kworker.1 > direct.1, "{direct:?} {kworker:?}");
    assert!(!injected("kworker", "rt-outsourcing").0, "it has no interrupts");
}

#[test]
fn a_trace_has_every_request_from_card_to_card_without_a_gap() {
    let host = host("threaded", "virtio", &[]);
    let mut events: Vec<(punctual_sched::Instant, StackEvent)> = Vec::new();
    let results = simulate_traced(&host, &mut events).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(results, run(&host), "a trace changes nothing");
    let mut ways: BTreeMap<u64, Vec<(HostPart, [punctual_sched::Instant; 2])>> = BTreeMap::new();
    for (_, event) in events {
        if let StackEvent::Part { server: 0, request, part, began, ended } = event {
            ways.entry(request).or_default().push((part, [began, ended]));
        }
    }
    let done = |way: &&Vec<(HostPart, [_; 2])>| way.last().is_some_and(|last| last.0 == HostPart::CardSend);
    let mut longest = punctual_sched::Duration::ZERO;
    for way in ways.values().filter(done) {
        assert_eq!(way[0].0, HostPart::CardReceive);
        assert!(way.windows(2).all(|two| two[0].1[1] == two[1].1[0]), "{way:?}");
        longest = longest.max(way[way.len() - 1].1[1].since(way[0].1[0]));
    }
    assert_eq!(ways.values().filter(done).count() as u64, critical(&results).packets.delivered);
    assert_eq!(longest, critical(&results).latency.max());
}

/// `netif_rx` takes the backlog of the processor on which its caller is: answers of a vNIC thread that has
/// moved overtake those that wait on the processor before. Fuzzing found the host.
#[test]
fn answers_overtake_only_those_in_another_processors_backlog() {
    let overtaken = |method: &str| {
        let set = [format!("host_stack.method={method}")];
        let overrides = Overrides { set: set.into(), ..Overrides::default() };
        let host = parse_host_stack(include_bytes!("overtaken.toml"), "overtaken.toml", &overrides).unwrap();
        let mut last = BTreeMap::new();
        let mut overtaken = 0;
        let results = simulate_watched(&host, |_, event| {
            if let Event::Spent { server, request, part: HostPart::CardSend, .. } = event {
                overtaken += u64::from(last.insert(server, request).is_some_and(|before| request < before));
            }
        });
        results.unwrap_or_else(|e| panic!("{e}"));
        (overtaken, last.into_values().sum::<u64>())
    };
    let (overtaken, answers) = (overtaken("partitioned"), overtaken("threaded-napi"));
    assert!(overtaken.0 > 0 && overtaken.1 > 100, "{overtaken:?}");
    // With threaded NAPI each vNIC thread has a way of its own.
    assert!(answers.0 == 0 && answers.1 > 50, "{answers:?}");
}

/// A vCPU that has halted does not enter its VM for a packet whose interrupt a kworker has yet to put in:
/// it would halt at once, and again, and never let the kworker run.
#[test]
fn a_halted_vcpu_waits_for_the_interrupt_and_not_for_the_packet() {
    let free = ["vm_exit", "vm_entry", "vcpu_wake", "guest_interrupt", "guest_switch"];
    let mut set: Vec<String> = free.iter().map(|cost| format!("host_stack.costs.{cost}=0ns")).collect();
    set.extend(["host_stack.injection=kworker".into(), "host_stack.server.critical.priority=0".into()]);
    set.extend(["min", "max"].map(|bound| format!("host_stack.server.critical.gap_{bound}=60us")));
    let set: Vec<&str> = set.iter().map(String::as_str).collect();
    for path in ["virtio", "outsourcing"] {
        let results = run(&host("exclusive", path, &set));
        assert!(critical(&results).packets.delivered > 100, "{path}");
    }
}
