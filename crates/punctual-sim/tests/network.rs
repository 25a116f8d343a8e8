//! Networks in the machine: ways of packets, their times, who waits for whom.

use proptest::prelude::*;
use punctual_model::file::{Overrides, parse};
use punctual_model::index::TaskIx;
use punctual_model::results::{Cause, FlowResult, JobBlame, Segment};
use punctual_model::{Host, Results};
use punctual_sched::Duration;
use punctual_sim::{Blamer, simulate, simulate_all};

use crate::watch::simulate_watched;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

fn host(text: &str) -> Host {
    parse(text, "test.toml", &Overrides::default()).unwrap_or_else(|e| panic!("{e}"))
}

fn run(text: &str) -> Results {
    simulate(&host(text)).unwrap_or_else(|e| panic!("{e}"))
}

fn flow<'r>(results: &'r Results, name: &str) -> &'r FlowResult {
    results.flows.iter().find(|f| f.name == name).unwrap_or_else(|| panic!("a flow {name}"))
}

/// Greatest time in a segment, in ns.
fn longest(flow: &FlowResult, segment: Segment) -> u64 {
    let part = flow.segments.iter().find(|s| s.segment == segment);
    part.map_or(0, |s| s.time.max().as_ns())
}

/// Driver and guests on a processor each, the costs easy to add up: 1 us to send, 2 us to receive, 3, 4 and 5
/// us in the stages, 100 ns an event, 200 ns an interrupt, 300 ns a round.
fn quiet(guests: usize, more: &str) -> String {
    let mut text = format!(
        "duration = '1s'
         [machine]
         processors = {}
         [pool.all]
         policy = 'fixed-priority'
         [network.lan]
         driver = 'dom0'
         [network.lan.costs]
         guest_send = '1us'
         guest_receive = '2us'
         event = '100ns'
         interrupt = '200ns'
         tx = '3us'
         softnet = '4us'
         rx = '5us'
         round = '300ns'
         copy_per_kib = '1024ns'
         nic_receive = '600ns'
         nic_send = '700ns'
         [network.lan.nic]
         bandwidth = '1Gbit/s'
         delay = '10us'
         [network.lan.outside.client]
         delay = '5us'
         turnaround = '20us'
         [domain.dom0]
         priority = 0
         affinity = [0]
         ",
        guests + 1
    );
    for guest in 1..=guests {
        text += &format!("[domain.g{guest}]\npriority = {guest}\naffinity = [{guest}]\n");
    }
    text + more
}

/// One way from guest to guest: 1000 bytes are 1 us of copying.
const LOCAL: u64 = 1_000 + 100 + 200 + 3_300 + 4_300 + 6_300 + 100 + 200 + 2_000;

#[test]
fn an_undisturbed_packet_takes_what_its_steps_cost() {
    let sensor = "[flow.sensor]\nkind = 'periodic'\nfrom = 'g1'\nto = 'g2'\nperiod = '1ms'\nbytes = 1000\n";
    let results = run(&quiet(2, sensor));
    let sensor = flow(&results, "sensor");
    assert_eq!((sensor.latency.min().as_ns(), sensor.latency.max().as_ns()), (LOCAL, LOCAL));
    assert_eq!((sensor.packets.created, sensor.packets.delivered), (1000, 1000));
    let parts = [Segment::GuestSend, Segment::DriverWait, Segment::Tx, Segment::Softnet, Segment::Rx];
    assert_eq!(parts.map(|part| longest(sensor, part)), [1_100, 200, 3_300, 4_300, 6_300]);
    let parts = [Segment::EventDelivery, Segment::VcpuWait, Segment::GuestReceive, Segment::Link];
    assert_eq!(parts.map(|part| longest(sensor, part)), [100, 0, 2_200, 0]);
}

#[test]
fn a_ping_between_guests_takes_both_ways_and_the_next_follows_the_answer() {
    let results = run(&quiet(2, "[flow.ping]\nkind = 'ping'\nfrom = 'g1'\nto = 'g2'\nbytes = 1000\n"));
    let ping = flow(&results, "ping");
    assert_eq!((ping.latency.min().as_ns(), ping.latency.max().as_ns()), (2 * LOCAL, 2 * LOCAL));
    assert_eq!(ping.latency.count(), 1_000_000_000 / (2 * LOCAL));
    assert_eq!(ping.timeouts, 0);
}

#[test]
fn a_guest_without_packets_wakes_for_the_first_one_and_not_for_the_next() {
    let woken = |flow: &str| quiet(2, flow).replace("guest_send =", "guest_wake = '50us'\nguest_send =");
    let ping = "[flow.ping]\nkind = 'ping'\nfrom = 'g1'\nto = 'g2'\nbytes = 1000\npause = '1ms'\n";
    let results = run(&woken(ping));
    // To send, to receive and answer, to receive.
    let latency = &flow(&results, "ping").latency;
    let most = 2 * LOCAL + 150 * US;
    assert_eq!((latency.min().as_ns(), latency.max().as_ns()), (most, most));
    let pair =
        "[flow.pair]\nkind = 'periodic'\nfrom = 'g1'\nto = 'g2'\nperiod = '1ms'\nbytes = 1000\nburst = 2\n";
    let results = run(&woken(pair));
    let g1 = results.domains.iter().find(|d| d.name == "g1").unwrap();
    // The second packet finds the driver domain at work, or tells it again.
    let each = g1.network_ns.unwrap() / 1000;
    assert!((52_100..=52_200).contains(&each), "{each}");
}

#[test]
fn a_guest_whose_processor_was_busy_has_a_wake_up_of_its_own() {
    let costs = "guest_wake = '50us'\nguest_wake_busy = '10us'\nguest_send =";
    let ping = "[flow.ping]\nkind = 'ping'\nfrom = 'g1'\nto = 'g2'\nbytes = 1000\npause = '1ms'\n\
                start = '1ms'\n";
    let latency = |beside: &str, own: &str| {
        let beside =
            format!("[domain.h]\npriority = 9\naffinity = [{beside}]\ntask.burn = {{ hog = true }}\n");
        // All of them have executed somewhere before.
        let boot =
            ["g1", "g2"].map(|guest| format!("[domain.{guest}.task.boot]\nperiod = '1s'\ncost = '1us'\n"));
        let own = format!("{}[domain.{own}.task.burn]\nhog = true\n", boot.concat());
        let text = quiet(2, &format!("{ping}{beside}{own}")).replace("guest_send =", costs);
        let results = run(&text);
        let latency = &flow(&results, "ping").latency;
        (latency.min().as_ns(), latency.max().as_ns())
    };
    // To send, to receive and answer, to receive: twice in g1, once in g2, beside another guest or a task of
    // its own. A processor of its own is idle.
    let takes = |g1_us: u64, g2_us: u64| {
        let all = 2 * LOCAL + (2 * g1_us + g2_us) * US;
        (all, all)
    };
    assert_eq!(latency("2", "dom0"), takes(50, 10));
    assert_eq!(latency("1", "dom0"), takes(10, 50));
    assert_eq!(latency("2", "g1"), takes(10, 10));
}

#[test]
fn wake_ups_are_distributed_by_their_quantiles() {
    let costs = "guest_wake = '50us'\nguest_wake_p10 = '20us'\nguest_wake_p90 = '100us'\n\
                 guest_wake_p99 = '900us'\nguest_send =";
    let ping = "[flow.ping]\nkind = 'ping'\nfrom = 'client'\nto = 'g1'\nbytes = 1000\npause = '100us'\n";
    let [none, woken] =
        [quiet(1, ping), quiet(1, ping).replace("guest_send =", costs)].map(|text| run(&text));
    let least = flow(&none, "ping").latency.min().as_ns();
    let latency = &flow(&woken, "ping").latency;
    let wake = |ppm| latency.quantile_ppm(ppm).as_ns() - least;
    for (ppm, us) in
        [(50_000, 20), (300_000, 35), (500_000, 50), (700_000, 75), (900_000, 100), (995_000, 900)]
    {
        assert!(wake(ppm).abs_diff(us * US) <= us * US / 8, "{ppm}: {} ns, expected {us} us", wake(ppm));
    }
    assert!(latency.count() > 2_000 && wake(1_000_000) <= 901 * US);
}

#[test]
fn a_guest_pays_for_the_length_of_a_packet() {
    let costs = "guest_send_per_kib = '2048ns'\nguest_receive_per_kib = '1024ns'\nguest_send =";
    let flow_of = "[flow.one]\nkind = 'periodic'\nfrom = 'g1'\nto = 'g2'\nperiod = '1ms'\nbytes = 1000\n";
    let results = run(&quiet(2, flow_of).replace("guest_send =", costs));
    let latency = &flow(&results, "one").latency;
    assert_eq!((latency.min().as_ns(), latency.max().as_ns()), (LOCAL + 3_000, LOCAL + 3_000));
}

#[test]
fn a_guest_that_was_parked_pays_when_it_goes_on() {
    let storm = "[flow.storm]\nkind = 'storm'\nfrom = 'g1'\nto = 'g2'\n";
    let sent = |resume: &str| {
        let text = quiet(2, storm).replace("'fixed-priority'", "'deferrable'");
        let text =
            text.replace("guest_send = '1us'", &format!("guest_send = '100us'\nguest_resume = '{resume}'"));
        let text = text.replace("priority = 1\n", "priority = 1\nbudget = '2ms'\nperiod = '10ms'\n");
        let text = text.replace("priority = 2\n", "priority = 2\nbudget = '10ms'\nperiod = '10ms'\n");
        let text = text.replace("priority = 0\n", "priority = 0\nbudget = '10ms'\nperiod = '10ms'\n");
        flow(&run(&text), "storm").packets.delivered
    };
    // Twenty packets in each of a hundred budgets, or fifteen.
    let (free, paid) = (sent("0ns"), sent("500us"));
    assert!((1_950..=2_010).contains(&free) && (1_450..=1_510).contains(&paid), "{free} and {paid}");
}

#[test]
fn a_ping_from_outside_adds_links_and_both_directions_of_the_card() {
    let results =
        run(&quiet(1, "[flow.ping]\nkind = 'ping'\nfrom = 'client'\nto = 'g1'\nbytes = 1000\ncount = 3\n"));
    let ping = flow(&results, "ping");
    let wire = 8_000 + 10_000 + 5_000;
    let inward = 200 + 4_300 + 600 + 6_300 + 100 + 200 + 2_000;
    let outward = 1_000 + 100 + 200 + 3_300 + 4_300 + 700;
    assert_eq!(ping.latency.min().as_ns(), wire + inward + outward + wire);
    assert_eq!((ping.latency.count(), ping.packets.created), (3, 6));
    assert_eq!(longest(ping, Segment::Link), 2 * wire);
}

#[test]
fn a_server_task_answers_requests_when_its_guest_lets_it_run() {
    let more = "task.echo = { on_packet = true, cost = '50us', deadline = '1ms', priority = 2 }
        task.other = { period = '10ms', cost = '1ms', priority = 1 }
        [flow.rpc]\nkind = 'request'\nfrom = 'g1'\nto = 'g2'\nbytes = 1000\nperiod = '10ms'\n\
        server = 'g2.echo'\n";
    let results = run(&quiet(2, more));
    let rpc = flow(&results, "rpc");
    // The other task is released at the same time and has 1 ms; the network work delays it.
    assert_eq!(longest(rpc, Segment::Service), 50 * US + MS - (LOCAL - 2_200));
    assert_eq!(rpc.latency.max().as_ns(), 2 * LOCAL + 50 * US + MS - (LOCAL - 2_200));
    let echo = &results.tasks.iter().find(|t| t.name == "echo").unwrap().jobs;
    assert_eq!((echo.released, echo.completed, echo.due, echo.missed), (100, 100, 100, 100));
}

#[test]
fn network_work_of_a_guest_goes_before_its_tasks_and_is_charged_to_its_vcpu() {
    let more = "task.work = { period = '10ms', cost = '5ms' }
        [flow.sensor]\nkind = 'periodic'\nfrom = 'g1'\nto = 'g2'\nperiod = '1ms'\nbytes = 1000\n";
    let results = run(&quiet(2, more));
    let work = &results.tasks[0];
    // Five packets arrive while a job runs.
    assert_eq!(work.jobs.response.max().as_ns(), 5 * MS + 5 * 2_200);
    assert_eq!(work.cpu_time_ns, 500 * MS);
    let g2 = results.domains.iter().find(|d| d.name == "g2").unwrap();
    assert_eq!(g2.network_ns, Some(1000 * 2_200));
    assert_eq!(g2.cpu_time_ns, 500 * MS + 1000 * 2_200);
}

#[test]
fn a_driver_domain_that_waits_for_its_processor_forwards_nothing() {
    // The second guest burns on the driver's processor, more urgent than it until 100 ms.
    let more = "affinity = [0]
        [domain.g2.task.burn]\nperiod = '1s'\ncost = '100ms'\n
        [flow.sensor]\nkind = 'periodic'\nfrom = 'g1'\nto = 'client'\nperiod = '10ms'\nbytes = 1000\n";
    let text = quiet(2, "")
        .replace("[domain.g2]\npriority = 2\naffinity = [2]\n", "[domain.g2]\npriority = 0\n")
        + more;
    let text = text.replace("[domain.dom0]\n         priority = 0", "[domain.dom0]\n         priority = 9");
    let results = run(&text);
    let sensor = flow(&results, "sensor");
    assert_eq!(longest(sensor, Segment::DriverWait), 100 * MS - 1_100 + 200);
    assert_eq!(sensor.packets.delivered, 100);
}

#[test]
fn a_packet_waits_for_the_receivers_vcpu() {
    // The receiver shares its processor with a more urgent burner of 3 of 10 ms.
    let more = "[domain.burner]\npriority = 1\naffinity = [2]\ntask.burn = { period = '10ms', cost = '3ms' }
        [flow.sensor]\nkind = 'periodic'\nfrom = 'g1'\nto = 'g2'\nperiod = '10ms'\nbytes = 1000\n";
    let sensor = run(&quiet(2, more)).flows.remove(0);
    assert_eq!(longest(&sensor, Segment::VcpuWait), 3 * MS - (LOCAL - 2_200));
    assert_eq!(sensor.latency.max().as_ns(), 3 * MS + 2_200);
}

#[test]
fn a_guest_without_budget_does_not_receive() {
    let more = "[flow.sensor]\nkind = 'periodic'\nfrom = 'g1'\nto = 'g2'\nperiod = '1ms'\nbytes = 1000\n";
    let text = quiet(2, more)
        .replace("policy = 'fixed-priority'", "policy = 'deferrable'\ndeferrable = { quantum = 'exact' }")
        .replace("[domain.g2]\n", "[domain.g2]\nbudget = '4200ns'\nperiod = '10ms'\n")
        .replace("[domain.g1]\n", "[domain.g1]\nbudget = '10ms'\nperiod = '10ms'\n")
        .replace("[domain.dom0]\n", "[domain.dom0]\nbudget = '10ms'\nperiod = '10ms'\n");
    let results = run(&text);
    let sensor = flow(&results, "sensor");
    // About two of ten packets a period; the others wait, and at last the ring is full.
    let g2 = results.domains.iter().find(|d| d.name == "g2").unwrap();
    assert_eq!((g2.network_ns, g2.cpu_time_ns), (Some(420 * US), 420 * US), "all of 100 budgets");
    let delivered = sensor.packets.delivered;
    assert!((190..=210).contains(&delivered), "{delivered}");
    assert_eq!(sensor.packets.in_flight, 256);
    assert_eq!(sensor.packets.dropped.destination_ring, 1000 - delivered - 256);
    // The vCPU executes in every period, but not for long: most of the wait is in the guest's ring.
    assert!(longest(sensor, Segment::VcpuWait) < 10 * MS);
    assert!(longest(sensor, Segment::GuestReceive) > 100 * MS);
}

/// Guest 1 sends a burst and, once all of it is in the ring, one frame with a tag; the driver domain is busy
/// with a packet of another guest meanwhile.
fn urgent_behind_a_burst(discipline: &str, interface: &str, more: &str) -> Results {
    let text = quiet(
        3,
        &format!(
            "[network.lan.interface.g1]\npriority = 9\n{interface}\n\
             [flow.bulk]\nkind = 'periodic'\nfrom = 'g1'\nto = 'g2'\nperiod = '1s'\nbytes = 1000\n\
             burst = 20\n\
             [flow.trip]\nkind = 'periodic'\nfrom = 'g1'\nto = 'g2'\nperiod = '1s'\nbytes = 1000\n\
             start = '21us'\npcp = 4\n{more}"
        ),
    );
    run(&text.replace("driver = 'dom0'", &format!("driver = 'dom0'\ndiscipline = '{discipline}'")))
}

#[test]
fn frames_of_an_urgent_class_go_before_those_of_their_port_that_wait() {
    let trip = |discipline, interface| {
        flow(&urgent_behind_a_burst(discipline, interface, ""), "trip").latency.max().as_ns()
    };
    for discipline in ["rtca", "preemptive"] {
        let (urgent, fifo) = (trip(discipline, "pcp = { 4 = 1 }"), trip(discipline, ""));
        // It waits for the packet in progress, and behind a round of each stage under RTCA.
        assert!(urgent <= 3 * LOCAL && fifo > 10 * LOCAL, "{discipline}: {urgent} and {fifo} ns");
        // Tags without a map of the port change nothing, nor does a map of other PCPs.
        assert_eq!(trip(discipline, "pcp = { 6 = 1 }"), fifo, "{discipline}");
    }
    assert_eq!(trip("netback", "pcp = { 4 = 1 }"), trip("netback", ""), "there are no priorities");
}

#[test]
fn frames_from_outside_have_the_priority_of_their_class_at_their_receiver() {
    let trip = |interface: &str| {
        let more = format!(
            "[network.lan.interface.g1]\npriority = 9\n{interface}\n\
             [flow.flood]\nkind = 'periodic'\nfrom = 'client'\nto = 'g1'\nperiod = '1s'\nburst = 200\n\
             [flow.trip]\nkind = 'periodic'\nfrom = 'client'\nto = 'g1'\nperiod = '1s'\npcp = 4\n\
             [flow.other]\nkind = 'storm'\nfrom = 'g2'\nto = 'g3'\n"
        );
        let text = quiet(3, &more).replace("driver = 'dom0'", "driver = 'dom0'\ndiscipline = 'preemptive'");
        let results = run(&text
            .replace("turnaround = '20us'", "turnaround = '20us'\n[network.lan.interface.g2]\npriority = 5"));
        let trip = flow(&results, "trip");
        (trip.packets.delivered, trip.latency.max().as_ns())
    };
    let (urgent, late) = (trip("pcp = { 4 = 1 }"), trip(""));
    // Behind the flood on the link.
    let link = 201 * 784 + 15 * US;
    assert!(urgent.0 == 1 && urgent.1 < link + 3 * LOCAL, "{urgent:?}");
    assert_eq!(late.0, 0, "beside a storm that is more urgent: {late:?}");
}

#[test]
fn a_frame_that_waits_keeps_the_slots_of_its_ring_that_come_after_it() {
    // The storm of a guest between the two classes lets no bulk pass.
    let storm = "[network.lan.interface.g3]\npriority = 5\n\
                 [flow.storm]\nkind = 'storm'\nfrom = 'g3'\nto = 'g2'\n\
                 [flow.trips]\nkind = 'periodic'\nfrom = 'g1'\nto = 'g2'\nperiod = '1ms'\npcp = 4\n";
    let delivered = |slots: u32| {
        let interface = format!("pcp = {{ 4 = 1 }}\nring_slots = {slots}");
        let results = urgent_behind_a_burst("preemptive", &interface, storm);
        (flow(&results, "bulk").packets.delivered, flow(&results, "trips").packets.delivered)
    };
    // Twenty of the bulk and one trip take slots, and the others are the trips'.
    let (bulk, trips) = delivered(100);
    assert!(bulk <= 1 && (75..=85).contains(&trips), "{bulk} and {trips}");
    let (bulk, trips) = delivered(1200);
    assert!(bulk <= 1 && (231..=241).contains(&trips), "256 at most: {bulk} and {trips}");
}

#[test]
fn a_storm_fills_its_ring_and_waits_for_room_instead_of_losing_packets() {
    let storm = "[flow.storm]\nkind = 'storm'\nfrom = 'g1'\nto = 'g2'\n";
    let results = run(&quiet(2, storm));
    let storm = flow(&results, "storm");
    assert_eq!(storm.packets.dropped.send_queue, 0);
    // The driver is the bottleneck and never rests.
    assert!(results.processors[0].idle_ns < MS, "{}", results.processors[0].idle_ns);
    let dom0 = &results.domains[0];
    assert!(dom0.network_ns > Some(999 * MS));
}

#[test]
fn a_stream_from_outside_fills_the_link() {
    let stream = "[flow.stream]\nkind = 'stream'\nfrom = 'client'\nto = 'g1'\nbytes = 1514\nwindow = 64\n";
    let text = quiet(1, stream).replace("1Gbit/s", "100Mbit/s");
    let results = run(&text);
    let stream = flow(&results, "stream");
    let mbit = stream.packets.bytes * 8 / 1_000_000;
    assert!((98..=100).contains(&mbit), "{mbit} Mbit/s");
    assert_eq!((stream.timeouts, stream.retransmissions), (0, 0));
}

/// 64 packets on their way in one round trip bound the rate, whatever the link.
#[test]
fn latency_throttles_a_stream() {
    let stream = "[flow.stream]\nkind = 'stream'\nfrom = 'client'\nto = 'g1'\nbytes = 1514\nwindow = 8\n";
    let near = run(&quiet(1, stream)).flows.remove(0).packets.bytes;
    let far = run(&quiet(1, stream).replace("delay = '5us'", "delay = '1ms'")).flows.remove(0).packets.bytes;
    assert!(far * 8 < near, "{far} and {near}");
    let round_trip_ns = 2 * MS;
    assert!(far <= 8 * 1514 * (1_000 * MS / round_trip_ns), "{far}");
}

#[test]
fn a_stream_repairs_what_a_small_ring_of_the_card_loses() {
    let stream = "[flow.stream]\nkind = 'stream'\nfrom = 'client'\nto = 'g1'\nbytes = 1514\nwindow = 200\n";
    let text = quiet(1, stream).replace("delay = '10us'", "delay = '10us'\nring_slots = 16");
    let results = run(&text);
    let stream = flow(&results, "stream");
    assert!(stream.packets.dropped.nic > 0 && stream.retransmissions > 0);
    let goodput = stream.packets.bytes / 1514;
    assert!(goodput > 10_000 && goodput <= stream.packets.delivered, "{goodput}");
}

/// What the card's ring drops is sent again, and the window returns to what ring and driver hold.
#[test]
fn tcps_congestion_control_finds_the_window_that_a_small_ring_holds() {
    for control in ["reno", "cubic"] {
        let stream = format!(
            "[flow.stream]\nkind = 'stream'\nfrom = 'client'\nto = 'g1'\nwindow = 1000\n\
             congestion_control = '{control}'\n"
        );
        let text = quiet(1, &stream).replace("delay = '10us'", "delay = '10us'\nring_slots = 64");
        let results = run(&text);
        let stream = flow(&results, "stream");
        let goodput = stream.packets.bytes / 1514;
        assert!(goodput > 60_000 && goodput <= stream.packets.delivered, "{control}: {goodput}");
        let of = stream.congestion.as_ref().unwrap();
        assert_eq!(of.control, control);
        assert!(of.fast_retransmits > 1 && stream.retransmissions >= of.fast_retransmits, "{of:?}");
        assert!(
            stream.packets.dropped.nic > 0 && of.threshold.is_some_and(|packets| packets < 200),
            "{of:?}"
        );
        assert!(of.window_max < 400 && of.rto_ns == 200 * MS && stream.timeouts == 0, "{of:?}");
    }
}

/// Nothing is dropped, so the window grows up to the flow's and stays there: TCP's congestion control does
/// what a fixed window does.
#[test]
fn without_losses_the_flows_window_bounds_the_stream() {
    let stream = |more: &str| format!("[flow.stream]\nkind = 'stream'\nfrom = 'g1'\nto = 'g2'\n{more}");
    let basic = run(&quiet(2, &stream(""))).flows.remove(0);
    let cubic = run(&quiet(2, &stream("congestion_control = 'cubic'\n"))).flows.remove(0);
    let of = cubic.congestion.unwrap();
    assert_eq!((of.window, of.window_max, of.threshold, of.fast_retransmits), (64, 64, None, 0));
    assert!(basic.packets.bytes.abs_diff(cubic.packets.bytes) * 100 < basic.packets.bytes);
}

/// A chain from guest to guest, back, and to a task beside.
const LOOP: &str = "task.compute = { on_packet = true, cost = '200us', deadline = '1ms' }
    [domain.g1.task.sense]\nperiod = '10ms'\ncost = '100us'
    [domain.g1.task.act]\non_packet = true\ncost = '300us'\ndeadline = '1ms'
    [domain.g1.task.log]\non_packet = true\ncost = '10us'\ndeadline = '1ms'
    [chain.loop]\nsteps = ['g1.sense', 'g2.compute', 'g1.act', 'g1.log']\nbytes = 1000\n\
    deadline = '1ms'\n";

#[test]
fn a_chain_takes_its_steps_and_its_packets() {
    let results = run(&quiet(2, LOOP));
    let chain = &results.chains[0];
    let expected = 610 * US + 2 * LOCAL;
    assert_eq!((chain.jobs.response.min().as_ns(), chain.jobs.response.max().as_ns()), (expected, expected));
    assert_eq!((chain.jobs.released, chain.jobs.completed), (100, 100));
    assert_eq!((chain.jobs.due, chain.jobs.missed), (100, 0));
    assert_eq!(chain.packets.delivered, 200);
    assert_eq!(chain.steps, ["g1.sense", "g2.compute", "g1.act", "g1.log"]);
}

/// The first job of a task, and its causes in the order of [`Cause::ALL`].
fn first_job(text: &str, task: &str) -> (JobBlame, Vec<(Cause, Option<String>, u64)>) {
    let host = host(text);
    let mut blamer = Blamer::new(&host);
    simulate_watched(&host, &mut blamer).unwrap_or_else(|e| panic!("{e}"));
    let task = host.tasks.iter().position(|of| of.name == task).expect("the task");
    let job = blamer.jobs(TaskIx(task))[0].clone();
    let mut causes: Vec<_> = job.causes.iter().map(|of| (of.cause, of.by.clone(), of.time_ns)).collect();
    causes.sort();
    (job, causes)
}

/// The way of a packet of 1000 bytes from guest to guest, by parts.
fn way() -> Vec<(Cause, Option<String>, u64)> {
    let parts = [
        ("RX queue", 6_300),
        ("TX queue", 3_300),
        ("driver wait", 200),
        ("event delivery", 100),
        ("guest receive", 2_200),
        ("guest send", 1_100),
        ("softnet", 4_300),
    ];
    parts.map(|(name, time)| (Cause::Network, Some(name.to_owned()), time)).into()
}

#[test]
fn a_job_that_a_request_releases_is_blamed_from_the_creation_of_the_packet() {
    let more = "task.echo = { on_packet = true, cost = '50us', deadline = '1ms', priority = 2 }
        task.other = { period = '10ms', cost = '1ms', priority = 1 }
        [flow.rpc]\nkind = 'request'\nfrom = 'g1'\nto = 'g2'\nbytes = 1000\nperiod = '10ms'\n\
        server = 'g2.echo'\n";
    let (job, causes) = first_job(&quiet(2, more), "echo");
    // The other task begins with the packet, and the guest receives it for 2.2 us.
    let waited = MS - (LOCAL - 2_200);
    assert_eq!((job.release_ns, job.response_ns), (0, LOCAL + waited + 50 * US));
    assert!(job.missed);
    let mut expected =
        vec![(Cause::Executing, None, 50 * US), (Cause::PreemptedInGuest, Some("other".to_owned()), waited)];
    expected.extend(way());
    assert_eq!(causes, expected);
}

#[test]
fn a_step_of_a_chain_is_blamed_from_the_creation_of_its_packet_and_a_local_one_from_its_release() {
    let text = quiet(2, LOOP);
    let (job, causes) = first_job(&text, "compute");
    assert_eq!((job.release_ns, job.response_ns), (100 * US, LOCAL + 200 * US));
    let mut expected = vec![(Cause::Executing, None, 200 * US)];
    expected.extend(way());
    assert_eq!(causes, expected);
    let (job, causes) = first_job(&text, "log");
    assert_eq!((job.release_ns, job.response_ns), (600 * US + 2 * LOCAL, 10 * US));
    assert_eq!(causes, [(Cause::Executing, None, 10 * US)]);
}

#[test]
fn a_job_that_its_guests_kernel_interrupts_waits_for_that() {
    let more = "task.work = { period = '10ms', cost = '5ms' }
        [flow.sensor]\nkind = 'periodic'\nfrom = 'g1'\nto = 'g2'\nperiod = '1ms'\nbytes = 1000\n";
    let (_, causes) = first_job(&quiet(2, more), "work");
    assert_eq!(causes, [(Cause::Executing, None, 5 * MS), (Cause::GuestKernel, None, 5 * 2_200)]);
}

#[test]
fn a_chain_that_is_late_misses() {
    let more = "task.compute = { on_packet = true, cost = '200us', deadline = '1ms' }
        [domain.g1.task.sense]\nperiod = '10ms'\ncost = '100us'
        [chain.loop]\nsteps = ['g1.sense', 'g2.compute']\nbytes = 1000\ndeadline = '310us'\n";
    let chain = run(&quiet(2, more)).chains.remove(0);
    assert_eq!((chain.jobs.due, chain.jobs.missed, chain.jobs.completed), (100, 100, 100));
    assert_eq!(chain.jobs.tardiness.max().as_ns(), 300 * US + LOCAL - 310 * US);
}

/// rtca Fig. 6 in the machine: a packet takes 10 us in each stage; sending and receiving take the least that
/// a file allows, 100 ns each.
fn figure_6(discipline: &str) -> Vec<Vec<u64>> {
    let mut text = String::from(
        "duration = '100ms'
         [machine]
         processors = 5
         [pool.all]
         policy = 'fixed-priority'
         [network.lan]
         driver = 'dom0'
         rtca = { batch = 2 }
         netback = {}
         costs = { guest_send = '100ns', guest_receive = '100ns', event = '0ns', interrupt = '0ns', \
         tx = '10us', softnet = '10us', rx = '10us', round = '0ns', copy_per_kib = '0ns' }
         [domain.dom0]
         priority = 0
         affinity = [0]
         ",
    );
    for (i, t) in [3, 2, 1, 4].into_iter().enumerate() {
        text += &format!("[domain.t{t}]\npriority = {t}\naffinity = [{}]\n", i + 1);
    }
    for t in [3, 2, 1] {
        for n in 0..3 {
            text += &format!(
                "[flow.t{t}-{n}]\nkind = 'periodic'\nfrom = 't{t}'\nto = 't4'\nperiod = '1s'\n\
                 start = '{}us'\n",
                10 * (4 - t + n)
            );
        }
    }
    let overrides =
        Overrides { set: vec![format!("network.lan.discipline={discipline}")], ..Overrides::default() };
    let host = parse(&text, "fig6.toml", &overrides).unwrap_or_else(|e| panic!("{e}"));
    let results = simulate(&host).unwrap_or_else(|e| panic!("{e}"));
    let latency = |t: u64, n: u64| {
        let latency = flow(&results, &format!("t{t}-{n}")).latency.max().as_ns();
        assert_eq!(latency % (10 * US), 200, "100 ns to send and to receive");
        latency / (10 * US)
    };
    [3, 2, 1].map(|t| [0, 1, 2].map(|n| latency(t, n)).to_vec()).to_vec()
}

#[test]
fn figure_6_of_rtca_comes_out_as_shipped_and_with_priorities() {
    assert_eq!(figure_6("netback"), [[19, 21, 23], [19, 21, 23], [19, 21, 23]]);
    // The paper prints 5, 5, 3: see punctual-net's golden test.
    assert_eq!(figure_6("rtca")[2], [5, 5, 8]);
}

#[test]
fn a_rate_limited_guest_sends_its_rate() {
    let more = "[network.lan.interface.g1]\ncredit_bytes = 15140\ncredit_window = '10ms'
        [flow.storm]\nkind = 'storm'\nfrom = 'g1'\nto = 'g2'\n";
    let results = run(&quiet(2, more));
    // Ten packets each 10 ms, the first ten at once.
    assert_eq!(flow(&results, "storm").packets.delivered, 1000);
}

const MIXED: &str = "[domain.burn]\npriority = 1\naffinity = [2]\ntask.hog = { period = '7ms', cost = '3ms' }
    [flow.ping]\nkind = 'ping'\nfrom = 'client'\nto = 'g2'\n
    [flow.storm]\nkind = 'storm'\nfrom = 'g1'\nto = 'g3'\n
    [flow.stream]\nkind = 'stream'\nfrom = 'client'\nto = 'g3'\n
    [flow.sporadic]\nkind = 'periodic'\nfrom = 'g3'\nto = 'g1'\nperiod = '100us'\nslack_mean = '300us'\n\
    burst = 3\n";

#[test]
fn the_same_host_gives_the_same_results_alone_and_among_others() {
    let text = quiet(3, MIXED).replace("guest_send = '1us'", "guest_send = '1us'\njitter = '10%'");
    let hosts: Vec<Host> =
        (0..6).map(|seed| Host { seed, duration: Duration::from_ms(100), ..host(&text) }).collect();
    for (host, results) in hosts.iter().zip(simulate_all(&hosts, simulate, || {})) {
        assert_eq!(simulate(host), results);
    }
    assert_ne!(simulate(&hosts[0]), simulate(&hosts[1]));
}

fn policies() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["fixed-priority", "credit", "rtds", "round-robin", "cbs", "sporadic", "sedf"])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Every run checks that packets are conserved, that flows keep their order and that segments add up, and
    /// that the causes of every job do.
    #[test]
    fn whatever_is_sent_under_whatever_rules_no_invariant_breaks(
        policy in policies(),
        discipline in prop::sample::select(vec!["netback", "rtca", "preemptive"]),
        scan in prop::sample::select(vec!["first", "word", "resume"]),
        events in prop::sample::select(vec!["first", "one-by-one"]),
        processors in 1usize..4,
        ring_slots in prop::sample::select(vec![1u32, 2, 16, 256]),
        jitter in any::<bool>(),
        flows in prop::collection::vec((0usize..8, 0usize..4, 0usize..4, 1u64..2000, 1u32..200), 1..8),
        switch_us in 0u64..30,
        seed in any::<u32>(),
    ) {
        let mut text = format!(
            "duration = '40ms'\nseed = {seed}\n[machine]\nprocessors = {processors}\n\
             overheads.context_switch = '{switch_us}us'
             [pool.all]\npolicy = '{policy}'
             [network.lan]\ndriver = 'dom0'\ndiscipline = '{discipline}'\nscan = '{scan}'\nevents = '{events}'
             nic.ring_slots = {ring_slots}\noutside.client = {{}}\ninterface.g1.ring_slots = {ring_slots}\n\
             interface.g1.pcp = {{ 4 = 0, 6 = 9 }}\ninterface.g2.pcp = {{ 4 = 3 }}\n\
             {}",
            if jitter { "costs.jitter = '30%'\n" } else { "" },
        );
        for (i, name) in ["dom0", "g1", "g2", "g3"].iter().enumerate() {
            text += &format!("[domain.{name}]\npriority = {i}\nbudget = '3ms'\nperiod = '10ms'\n\
                              extratime = true\n");
        }
        text += "[domain.g3.task.burn]\nhog = true\n[domain.g2.task.serve]\non_packet = true\ncost = '30us'\n\
                 deadline = '1ms'\n";
        text += "[domain.g1.task.sense]\nperiod = '4ms'\ncost = '20us'\n\
                 [domain.g3.task.act]\non_packet = true\ncost = '50us'\ndeadline = '1ms'\n\
                 [chain.loop]\nsteps = ['g1.sense', 'g3.act']\nbytes = 500\ndeadline = '2ms'\n";
        text += "[flow.serving]\nkind = 'request'\nfrom = 'client'\nto = 'g2'\nserver = 'g2.serve'\n\
                 period = '3ms'\n";
        let ends = ["client", "g1", "g2", "g3"];
        for (i, (kind, from, to, us, n)) in flows.into_iter().enumerate() {
            if from == to { continue }
            let keys = match kind {
                0 => format!("kind = 'ping'\ntimeout = '{us}us'\n"),
                1 => format!("kind = 'request'\nperiod = '{us}us'\ntimeout = '5ms'\n"),
                2 => format!("kind = 'periodic'\nperiod = '{us}us'\nburst = {n}\nslack_mean = '{us}us'\n"),
                3 => format!("kind = 'goose'\nperiod = '{us}us'\nretransmit = '{n}us'\nheartbeat = '5ms'\n"),
                4 => format!("kind = 'stream'\nwindow = {n}\nack_every = 1\ntimeout = '{us}us'\n"),
                5 | 6 => format!(
                    "kind = 'stream'\nwindow = {n}\nack_every = 1\nrto_min = '{us}us'\n\
                     congestion_control = '{}'\n",
                    ["reno", "cubic"][kind - 5],
                ),
                _ => format!("kind = 'storm'\ninterval = '{us}us'\n"),
            };
            let pcp = ["", "pcp = 4\n", "pcp = 6\n"][i % 3];
            text += &format!("[flow.f{i}]\nfrom = '{}'\nto = '{}'\n{pcp}{keys}", ends[from], ends[to]);
        }
        let host = host(&text);
        crate::blame::check(&host, &text);
        let results = simulate(&host).unwrap_or_else(|e| panic!("{e}"));
        for flow in &results.flows {
            let p = &flow.packets;
            prop_assert_eq!(p.created, p.delivered + p.dropped.total() + p.in_flight);
            let is_over_the_link = [&flow.from, &flow.to].into_iter().any(|end| *end == "client");
            prop_assert!(!is_over_the_link || p.bytes * 8 <= 40 * MS, "a link of 1 Gbit/s");
        }
    }
}

/// The example's bus with one stream, its GOOSE and a deadline of so many microseconds.
fn bus(deadline_us: u64) -> Results {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/process-bus.toml");
    let text = std::fs::read_to_string(example).expect("the example");
    let text = text.replace("deadline = \"3ms\"", &format!("deadline = \"{deadline_us}us\""));
    simulate(&host(&text)).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn packets_after_their_deadline_are_counted_and_none_before_it() {
    let (loose, tight, least) = (bus(3_000), bus(25), bus(1));
    for (flow, deadline_us) in tight.flows.iter().zip(&least.flows) {
        let Some(deadline_ns) = flow.deadline_ns else { continue };
        assert_eq!(deadline_ns, 25_000);
        assert_eq!(flow.late > 0, flow.latency.max().as_ns() > deadline_ns, "{}", flow.name);
        assert!(flow.late <= flow.packets.delivered);
        assert_eq!(deadline_us.late, deadline_us.latency.count(), "all take longer than that");
    }
    assert!(loose.flows.iter().all(|flow| flow.late == 0 && !flow.missed()));
    assert!(tight.flows.iter().any(|flow| flow.missed()) && tight.flows.iter().any(|flow| flow.late == 0));
}
