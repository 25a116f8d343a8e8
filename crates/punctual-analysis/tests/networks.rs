//! The simulator as adversary of networks: no packet and no chain is later than its bound, and nothing
//! bounded is lost.
//!
//! `PUNCTUAL_SOUNDNESS_NETWORKS` sets the number of random hosts.

use std::fmt::Write as _;
use std::ops::ControlFlow;

use punctual_analysis::synthesize::{Options, synthesize};
use punctual_analysis::{Answer, Answers, analyse, answers};
use punctual_model::file::{Overrides, parse};
use punctual_model::guarantees::{Latency, Verdict};
use punctual_model::network::{Endpoint, Flow, Traffic};
use punctual_model::{Guarantees, Host};
use punctual_sched::Duration;
use punctual_sim::simulate;
use punctual_testkit::random::Random;

fn host(text: &str) -> Host {
    parse(text, "test.toml", &Overrides::default()).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// A pool's unit: a budget where the policy takes one, on one of so many processors.
fn unit(random: &mut Random, policy: &str, share: u64, priority: u64, processor: usize) -> String {
    let period = random.of(&[1u64, 2, 5, 10]);
    let budget = (period * 10 * random.within(share / 2, share)).max(20);
    match policy {
        "fixed-priority" => format!("priority = {priority}\naffinity = [{processor}]\n"),
        "rtds" => {
            format!(
                "budget = '{budget}us'\nperiod = '{period}ms'\naffinity = [{processor}]\nextratime = false\n"
            )
        }
        _ => format!(
            "budget = '{budget}us'\nperiod = '{period}ms'\npriority = {priority}\naffinity = [{processor}]\n"
        ),
    }
}

fn cost(random: &mut Random, most: u64) -> String {
    format!("'{}ns'", random.within(100, most))
}

/// What a random network looks like.
struct Shape {
    guests: usize,
    processors: usize,
    policy: &'static str,
    /// Is the driver domain in the guests' pool?
    with_driver: bool,
    /// Guests that are steps of the chain.
    steps: usize,
}

/// Two to four guests, sometimes two on a processor, sometimes beside the driver domain, with flows and a
/// chain.
fn random_network(random: &mut Random) -> String {
    let guests = random.within(2, 4) as usize;
    let processors = random.within(1, 3) as usize;
    let policy =
        random.of(&["fixed-priority", "fixed-priority", "deferrable", "periodic", "sporadic", "rtds"]);
    let with_driver = random.one_in(3);
    let mut shape = Shape { guests, processors, policy, with_driver, steps: 0 };
    let mut text = random_machine(random, &shape);
    shape.steps = random.within(1, 3).min(guests as u64) as usize;
    (1..=guests).for_each(|guest| text += &random_guest(random, &shape, guest));
    text += &random_discipline(random);
    let with_classes = random_interfaces(random, &mut text, guests);
    if let Some(guest) = with_classes.first() {
        random_mixture(random, &mut text, (*guest, guests as u64));
    }
    for flow in 0..random.within(1, 4) {
        random_flow(random, &mut text, guests, flow);
    }
    if shape.steps > 1 {
        let steps: Vec<String> = (1..=shape.steps).map(|step| format!("'g{step}.step'")).collect();
        let _ = writeln!(text, "[chain.loop]\nsteps = [{}]\ndeadline = '50ms'", steps.join(", "));
        if random.one_in(2) {
            let _ = writeln!(text, "pcp = {}", random.of(&[0, 4, 6]));
        }
    }
    text
}

/// Sometimes one with parameters of its own, and some with classes, which are returned.
fn random_interfaces(random: &mut Random, text: &mut String, guests: usize) -> Vec<u64> {
    let mut with_classes = Vec::new();
    let with_params = random.one_in(3).then(|| random.within(1, guests as u64));
    for guest in 1..=guests as u64 {
        let has_classes = random.one_in(3);
        if has_classes || with_params == Some(guest) {
            let _ = writeln!(text, "[network.lan.interface.g{guest}]");
        }
        if with_params == Some(guest) {
            let (priority, slots) = (random.within(0, 5), random.of(&[4, 16, 256]));
            let _ = writeln!(text, "priority = {priority}\nring_slots = {slots}");
        }
        if has_classes {
            let [four, six] = [random.within(0, 6), random.within(0, 6)];
            let _ = writeln!(text, "pcp = {{ 4 = {four}, 6 = {six} }}");
            with_classes.push(guest);
        }
    }
    with_classes
}

/// Flows of two classes of a guest, as GOOSE and MMS of a substation.
fn random_mixture(random: &mut Random, text: &mut String, (guest, guests): (u64, u64)) {
    let to = if random.one_in(3) { "client".into() } else { format!("g{}", guest % guests + 1) };
    for (name, pcp) in [("urgent", "pcp = 4\n"), ("other", "")] {
        let (period, burst) = (random.of(&[2, 5, 10]), random.of(&[1, 1, 4, 16]));
        let _ = writeln!(
            text,
            "[flow.{name}]\nkind = 'periodic'\nfrom = 'g{guest}'\nto = '{to}'\nperiod = '{period}ms'\n\
             burst = {burst}\n{pcp}"
        );
    }
}

/// Machine, pools and driver domain.
fn random_machine(random: &mut Random, shape: &Shape) -> String {
    let Shape { processors, policy, .. } = *shape;
    let mut text = format!(
        "duration = '60ms'\nseed = {}\n[machine]\nprocessors = {}\n",
        random.number() >> 12,
        processors + 1
    );
    if random.one_in(3) {
        let (decision, switch) = (cost(random, 1_000), cost(random, 3_000));
        let _ = writeln!(text, "[machine.overheads]\ndecision = {decision}\ncontext_switch = {switch}");
    }
    if shape.with_driver {
        let all: Vec<usize> = (0..=processors).collect();
        let _ = writeln!(text, "[pool.guests]\nprocessors = {all:?}\npolicy = '{policy}'");
        text += &format!("[domain.dom0]\n{}", unit(random, policy, 60, 0, 0));
    } else {
        let all: Vec<usize> = (1..=processors).collect();
        let _ = writeln!(text, "[pool.driver]\nprocessors = [0]\npolicy = 'fixed-priority'");
        let _ = writeln!(text, "[pool.guests]\nprocessors = {all:?}\npolicy = '{policy}'");
        text += "[domain.dom0]\npool = 'driver'\n";
    }
    text
}

fn random_guest(random: &mut Random, shape: &Shape, guest: usize) -> String {
    let first = usize::from(!shape.with_driver);
    let at = first + guest % (shape.processors + 1 - first);
    let share = 100 * (shape.processors as u64) / shape.guests as u64;
    let mut text = format!("[domain.g{guest}]\npool = 'guests'\n");
    let priority = random.within(1, shape.guests as u64);
    text += &unit(random, shape.policy, share.min(80), priority, at);
    if random.one_in(2) {
        let period = random.of(&[5u64, 10, 20]);
        let task_cost = random.within(50, 100 * period);
        let _ = writeln!(
            text,
            "[domain.g{guest}.task.own]\nperiod = '{period}ms'\ncost = '{task_cost}us'\npriority = {}\n\
             offset = '{}us'",
            random.within(0, 3),
            random.within(0, 5_000),
        );
    }
    if guest <= shape.steps {
        let when = match guest {
            1 => format!("period = '{}ms'", random.of(&[4, 10, 20])),
            _ => "on_packet = true\ndeadline = '20ms'".into(),
        };
        let step_cost = random.within(50, 800);
        let step_priority = random.within(0, 3);
        let _ = writeln!(
            text,
            "[domain.g{guest}.task.step]\n{when}\ncost = '{step_cost}us'\npriority = {step_priority}"
        );
    }
    text
}

/// The network with its discipline and its costs.
fn random_discipline(random: &mut Random) -> String {
    let discipline = random.of(&["netback", "rtca", "preemptive"]);
    let events = random.of(&["first", "first", "one-by-one"]);
    let scan = random.of(&["resume", "first", "word"]);
    let mut text = format!(
        "[network.lan]\ndriver = 'dom0'\ndiscipline = '{discipline}'\nevents = '{events}'\nscan = '{scan}'\n"
    );
    if discipline != "netback" {
        let _ = writeln!(text, "{discipline} = {{ batch = {} }}", random.of(&[1, 1, 2, 8, 64]));
    }
    text += "[network.lan.outside.client]\nturnaround = '15us'\n[network.lan.costs]\n";
    let scale = random.of(&[2_000, 2_000, 5_000, 5_000, 20_000, 60_000]);
    for name in ["guest_send", "guest_receive", "tx", "softnet", "rx"] {
        let _ = writeln!(text, "{name} = {}", cost(random, scale));
    }
    for name in ["event", "interrupt", "round", "nic_receive", "nic_send"] {
        let _ = writeln!(text, "{name} = {}", cost(random, 2_000));
    }
    if random.one_in(3) {
        text += "jitter = '20%'\n";
    }
    text
}

fn random_flow(random: &mut Random, text: &mut String, guests: usize, flow: u64) {
    let from = random.within(0, guests as u64);
    let to = (from + random.within(1, guests as u64)) % (guests as u64 + 1);
    let name = |end: u64| if end == 0 { "client".to_string() } else { format!("g{end}") };
    let kind = random
        .of(&["ping", "request", "request", "periodic", "periodic", "periodic", "goose", "storm", "stream"]);
    let _ = writeln!(text, "[flow.f{flow}]\nkind = '{kind}'\nfrom = '{}'\nto = '{}'", name(from), name(to));
    let _ =
        writeln!(text, "start = '{}us'\nbytes = {}", random.within(0, 3_000), random.of(&[98, 256, 1514]));
    if random.one_in(2) {
        let _ = writeln!(text, "pcp = {}", random.of(&[0, 4, 6]));
    }
    let period = random.of(&[500, 1_000, 2_000, 5_000, 10_000]);
    match kind {
        "ping" => {
            let _ = writeln!(text, "pause = '{}us'", random.of(&[0, 500, 3_000]));
        }
        "request" if !random.one_in(4) => {
            let _ = writeln!(text, "period = '{period}us'");
        }
        "periodic" => {
            let _ = writeln!(text, "period = '{period}us'\nburst = {}", random.of(&[1, 1, 2, 5, 20]));
        }
        "goose" => {
            let retransmit = random.of(&[50, 200, 1_000]);
            let _ = writeln!(
                text,
                "retransmit = '{retransmit}us'\nheartbeat = '{}us'",
                retransmit * random.within(1, 20)
            );
            if !random.one_in(4) {
                let _ =
                    writeln!(text, "period = '{period}us'\nslack_mean = '{}us'", random.of(&[0, 100, 3_000]));
            }
        }
        "storm" => {
            let _ = writeln!(text, "interval = '{}us'", random.of(&[20, 50, 200]));
        }
        _ => {}
    }
}

/// Nothing that is bounded comes later, or is lost. Returns how close a packet or chain came to its bound, in
/// thousandths.
fn hold(text: &str, answers: &Answers, host: &Host) -> u64 {
    let results = simulate(host).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let mut closest = 0;
    let below = |name: &str, worst: Duration, bound: Duration| {
        assert!(worst <= bound, "{name}: {worst}, bound {bound}\n{text}\n{answers:#?}");
        worst.as_ns() * 1000 / bound.as_ns().max(1)
    };
    for (bound, result) in answers.flows.iter().zip(&results.flows) {
        if let Ok(bound) = bound {
            closest = closest.max(below(&result.name, result.latency.max(), *bound));
            let dropped = &result.packets.dropped;
            let lost = dropped.send_queue + dropped.nic + dropped.softnet + dropped.destination_ring;
            assert_eq!(lost, 0, "{} loses packets\n{text}", result.name);
        }
    }
    for (bound, result) in answers.chains.iter().zip(&results.chains) {
        if let Ok(bound) = bound {
            closest = closest.max(below(&result.name, result.jobs.response.max(), *bound));
        }
    }
    for (task, of) in &answers.tasks {
        if let Answer::Guaranteed { bound, .. } = of.answer {
            let result = &results.tasks[task.0];
            below(&format!("{}.{}", result.parent, result.name), result.jobs.response.max(), bound);
            assert_eq!(result.jobs.missed, 0, "{text}");
        }
    }
    closest
}

#[test]
fn no_packet_chain_or_task_is_later_than_its_bound_and_nothing_bounded_is_lost() {
    let hosts = std::env::var("PUNCTUAL_SOUNDNESS_NETWORKS").map_or(300, |n| n.parse().expect("a number"));
    let (mut flows, mut flows_bounded, mut chains, mut chains_held, mut closest) = (0, 0, 0, 0, 0);
    let mut mixed = 0;
    for case in 0..hosts {
        let mut random = Random::new((3 << 40) + case);
        let text = random_network(&mut random);
        let of = host(&text);
        let answers = answers(&of);
        flows += answers.flows.len();
        flows_bounded += answers.flows.iter().filter(|bound| bound.is_ok()).count();
        let bounded = of.flows.iter().zip(&answers.flows).filter(|(_, bound)| bound.is_ok());
        mixed += bounded.filter(|(flow, _)| shares_its_ring(&of, flow)).count();
        chains += answers.chains.len();
        chains_held += answers.chains.iter().filter(|bound| bound.is_ok()).count();
        for _ in 0..3 {
            let mut attacked = of.clone();
            for flow in &mut attacked.flows {
                flow.start = Duration::from_us(random.within(0, 4_000));
            }
            attacked.seed = random.number();
            closest = closest.max(hold(&text, &answers, &attacked));
        }
    }
    println!(
        "{flows_bounded} of {flows} flows bounded, {mixed} of them beside another class in their ring, \
         {chains_held} of {chains} chains guaranteed; the closest came to {closest} thousandths of its bound"
    );
    assert!(hosts < 100 || mixed > 0);
    assert!(hosts < 100 || (flows_bounded > flows / 10 && flows_bounded < flows && chains_held > 0));
}

/// Has the guest that sends the flow another one with another priority?
fn shares_its_ring(of: &Host, flow: &Flow) -> bool {
    let network = &of.networks[flow.network.0];
    let Endpoint::Guest(from) = flow.from else { return false };
    let Some(own) = network.interface_of(from).map(|own| &network.interfaces[own]) else { return false };
    let differs =
        |other: &Flow| other.from == flow.from && own.priority_of(other.pcp) != own.priority_of(flow.pcp);
    network.has_priorities() && of.flows.iter().any(differs)
}

/// A random host whose flows with periods have deadlines, and the deadline of whose chain is shorter.
fn with_deadlines(random: &mut Random) -> (String, Host) {
    let text = random_network(random);
    let mut of = host(&text);
    for flow in &mut of.flows {
        if matches!(flow.traffic, Traffic::Periodic { .. } | Traffic::Goose { .. }) && random.one_in(2) {
            flow.deadline = Some(Duration::from_ms(random.of(&[5, 10, 20, 50])));
        }
    }
    for chain in &mut of.chains {
        chain.deadline = Duration::from_ms(random.of(&[30, 50, 100]));
    }
    (text, of)
}

#[test]
fn synthesized_budgets_hold_every_deadline_of_tasks_flows_and_chains_and_none_is_a_granule_too_much() {
    let hosts = std::env::var("PUNCTUAL_SOUNDNESS_NETWORKS").map_or(120, |n| n.parse().expect("a number"));
    let granule = Duration::from_us(50);
    let options = Options { granularity: granule, effort: 2_000, ..Options::default() };
    let (mut solved, mut failed, mut cheaper) = (0, 0, 0);
    for case in 0..hosts {
        let mut random = Random::new((5 << 40) + case);
        let (text, of) = with_deadlines(&mut random);
        if !["deferrable", "periodic", "rtds"].contains(&of.pools[of.pools.len() - 1].policy.info.name) {
            continue;
        }
        let found = match synthesize(&of, &options, &mut |_| ControlFlow::Continue(())) {
            Ok(found) => found,
            Err(_) => {
                failed += 1;
                assert!(!answers(&of).guarantees(&of).all_guaranteed(), "the file's budgets do\n{text}");
                continue;
            }
        };
        solved += 1;
        assert!(analyse(&found.host).all_guaranteed() && found.answers == answers(&found.host), "{text}");
        for (v, before) in of.vcpus.iter().enumerate().filter(|_| found.together) {
            let Some(budget) = found.host.vcpus[v].params.budget else { continue };
            let mut less = found.host.clone();
            less.vcpus[v].params.budget = Some(budget.saturating_sub(granule));
            if before.params.budget == Some(budget) || budget <= granule {
                continue;
            }
            cheaper += 1;
            assert!(!analyse(&less).all_guaranteed(), "{} has a granule too many\n{text}", of.vcpus[v].name);
        }
        hold(&text, &found.answers, &found.host);
    }
    println!("{solved} solved, {failed} not; {cheaper} budgets tried a granule smaller");
    assert!(hosts < 60 || (solved > 5 && failed > 0 && cheaper > 5), "{solved} solved, {failed} not");
}

/// A sensor sends to a control program, beside one guest that sends to another as fast as it can.
fn beside_a_storm(guests: &str, discipline: &str) -> Host {
    host(&format!(
        "[machine]\nprocessors = 5\n[pool.driver]\nprocessors = [0]\npolicy = 'fixed-priority'\n\
         [pool.guests]\nprocessors = [1, 2, 3, 4]\npolicy = '{guests}'\n[domain.dom0]\npool = 'driver'\n\
         [domain.sensor]\npool = 'guests'\npriority = 1\naffinity = [1]\n\
         [domain.sensor.task.read]\nperiod = '10ms'\ncost = '1ms'\n\
         [domain.control]\npool = 'guests'\npriority = 1\naffinity = [2]\n\
         [domain.control.task.act]\non_packet = true\ncost = '1ms'\ndeadline = '5ms'\n\
         [domain.noise1]\npool = 'guests'\npriority = 2\naffinity = [3]\n\
         [domain.noise2]\npool = 'guests'\npriority = 2\naffinity = [4]\n\
         [network.lan]\ndriver = 'dom0'\ndiscipline = '{discipline}'\n\
         [flow.telemetry]\nkind = 'periodic'\nfrom = 'sensor'\nto = 'control'\nperiod = '5ms'\n\
         [flow.flood]\nkind = 'storm'\nfrom = 'noise1'\nto = 'noise2'\n\
         [chain.loop]\nsteps = ['sensor.read', 'control.act']\ndeadline = '5ms'\n"
    ))
}

fn said(latency: &Latency) -> &str {
    match latency {
        Latency::Bounded { .. } => "bounded",
        Latency::Unknown { why } => why,
    }
}

#[test]
fn beside_a_storm_only_disciplines_with_priorities_bound_packets() {
    let shipped = analyse(&beside_a_storm("fixed-priority", "netback"));
    assert!(
        said(&shipped.flows[0].latency).contains("the packets of all flows together may overload"),
        "{shipped:?}"
    );
    assert!(!shipped.chains[0].verdict.is_guaranteed() && !shipped.all_guaranteed());
    let bound = |discipline| {
        let host = beside_a_storm("fixed-priority", discipline);
        let report = analyse(&host);
        let Latency::Bounded { bound_ns } = report.flows[0].latency else { panic!("{report:#?}") };
        let Verdict::Guaranteed { bound_ns: chain, .. } = report.chains[0].verdict else {
            panic!("{report:#?}")
        };
        assert_ne!(said(&report.flows[1].latency), "bounded");
        let results = simulate(&host).expect("a valid host");
        assert!(results.flows[0].latency.max().as_ns() <= bound_ns);
        assert!(results.chains[0].jobs.response.max().as_ns() <= chain);
        (bound_ns, chain)
    };
    let (rtca, preemptive) = (bound("rtca"), bound("preemptive"));
    assert!(preemptive.0 < rtca.0 && preemptive.1 < rtca.1, "{rtca:?} {preemptive:?}");
}

#[test]
fn guests_without_a_guarantee_have_no_bounds_on_packets() {
    let report = analyse(&beside_a_storm("credit", "rtca"));
    assert!(said(&report.flows[0].latency).contains("no guarantee of processor time"), "{report:#?}");
    assert!(!report.chains[0].verdict.is_guaranteed());
}

#[test]
fn tasks_released_by_packets_delay_others_but_refute_nobody() {
    // Were packets to come at once, `own` would be late; nothing says that they come at all.
    let text = "[machine]\nprocessors = 2\n[pool.all]\npolicy = 'fixed-priority'\n[domain.dom0]\naffinity \
                = [0]\n[domain.a]\npriority = 2\naffinity = [0]\n[domain.b]\naffinity = \
                [1]\n[domain.b.task.serve]\non_packet = true\ncost = '6ms'\ndeadline = '20ms'\npriority = \
                1\n[domain.b.task.own]\nperiod = '10ms'\ncost = '5ms'\npriority = \
                2\n[network.lan]\ndriver = 'dom0'\n[flow.ask]\nkind = 'request'\nfrom = 'a'\nto = \
                'b'\nserver = 'b.serve'\n";
    let paced = analyse(&host(&format!("{text}period = '9ms'\n")));
    let verdict = |report: &Guarantees, name: &str| {
        report.tasks.iter().find(|task| task.name == name).map(|task| task.verdict.clone()).expect("a task")
    };
    assert!(verdict(&paced, "serve").is_guaranteed(), "{paced:#?}");
    assert!(matches!(verdict(&paced, "own"), Verdict::Unknown { .. }), "{paced:#?}");
    let slow = analyse(&host(&format!("{text}period = '100ms'\n")));
    assert!(matches!(verdict(&slow, "own"), Verdict::Unknown { .. }), "6 and 5 ms within 10 ms");
    let unpaced = analyse(&host(&format!("{text}timeout = '1ms'\n")));
    assert!(matches!(verdict(&unpaced, "own"), Verdict::Unknown { .. }), "{unpaced:#?}");
}

#[test]
fn the_example_has_bounds_under_disciplines_with_priorities() {
    let text = include_str!("../../../examples/network.toml");
    for discipline in ["rtca", "preemptive"] {
        let of = host(&text.replace("discipline = \"netback\"", &format!("discipline = \"{discipline}\"")));
        let report = analyse(&of);
        assert_eq!(said(&report.flows[1].latency), "bounded", "{report:#?}");
        hold(text, &answers(&of), &of);
    }
}

/// A full TX ring holds the sender back; once there is room, its kernel sends all that waits, ahead of its
/// tasks.
#[test]
fn a_task_beside_a_ring_that_may_fill_has_no_bound_from_the_flows_period() {
    let text = "duration = '60ms'\n[machine]\nprocessors = 3\n[pool.driver]\nprocessors = [0]\npolicy = \
                'fixed-priority'\n[pool.guests]\nprocessors = [1, 2]\npolicy = \
                'periodic'\n[domain.dom0]\npool = 'driver'\n[domain.g1]\npool = 'guests'\nbudget = \
                '340us'\nperiod = '1ms'\naffinity = [2]\n[domain.g1.task.step]\nperiod = '20ms'\ncost = \
                '424us'\n[domain.g2]\npool = 'guests'\nbudget = '500us'\nperiod = '1ms'\naffinity = \
                [1]\n[network.lan]\ndriver = 'dom0'\n[network.lan.costs]\nguest_send = '9us'\ntx = \
                '60us'\nsoftnet = '48us'\n[flow.f]\nkind = 'periodic'\nfrom = 'g1'\nto = 'g2'\nperiod = \
                '1ms'\nburst = 20\nstart = '2647us'\n";
    let of = host(text);
    let report = analyse(&of);
    hold(text, &answers(&of), &of);
    assert!(!report.tasks[0].verdict.is_guaranteed(), "{report:#?}");
}

/// The bounds of flows by the names' beginnings, and their longest latency in the simulator.
fn of_flows(of: &Host, beginnings: [&str; 4]) -> [(Option<Duration>, Duration); 4] {
    let (answers, results) = (answers(of), simulate(of).expect("a valid host"));
    beginnings.map(|beginning| {
        let flows = answers.flows.iter().zip(&results.flows);
        let flows: Vec<_> = flows.filter(|(_, result)| result.name.starts_with(beginning)).collect();
        let bounds: Option<Vec<Duration>> =
            flows.iter().map(|(bound, _)| bound.as_ref().ok().copied()).collect();
        let longest = flows.iter().map(|(_, result)| result.latency.max()).max();
        (bounds.and_then(|bounds| bounds.into_iter().max()), longest.expect("flows"))
    })
}

#[test]
fn goose_and_sampled_values_have_bounds_beside_mms_of_the_same_port() {
    let text = include_str!("../../../examples/substation.toml");
    let flows = ["sv-", "breaker-", "trip", "mms"];
    let with_classes = host(text);
    let [sv, breaker, trip, mms] = of_flows(&with_classes, flows);
    println!("with classes: {:?}", [sv, breaker, trip, mms]);
    for (bound, longest) in [sv, breaker, trip] {
        let bound = bound.expect("a bound");
        assert!(longest <= bound && bound <= Duration::from_ms(3), "{longest} of {bound}");
    }
    let as_mms = host(&text.replace("pcp = { 4 = 1 }                      #", "pcp = { 4 = 5 } #"));
    let without = of_flows(&as_mms, flows);
    println!("GOOSE as MMS: {without:?}");
    assert!(without[2].1 > trip.1, "{without:?}");
    let netback = host(&text.replace("discipline = \"preemptive\"", "discipline = \"netback\""));
    println!("netback: {:?}", of_flows(&netback, flows));
}
