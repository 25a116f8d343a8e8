//! `punctual run` connects its VMs by a switch.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::live::needs;
use punctual_model::Results;
use punctual_model::file::{self, Overrides};
use punctual_report::json;
use punctual_sched::Duration;
use punctual_vm::image;

const HOST: &str = "
duration = '1s'
[machine]
processors = 2
[pool.all]
processors = [1]
policy = 'deferrable'
[domain.dom0]
budget = '1ms'
period = '10ms'
priority = 3
[domain.first]
budget = '3ms'
period = '10ms'
priority = 1
[domain.second]
budget = '3ms'
period = '10ms'
priority = 2
[network.lan]
driver = 'dom0'
discipline = 'preemptive'
[network.lan.outside.monitor]
turnaround = '50us'
[domain.first.task.read]
period = '20ms'
cost = '200us'
[domain.first.task.act]
on_packet = true
cost = '200us'
deadline = '20ms'
[domain.second.task.serve]
on_packet = true
cost = '300us'
deadline = '20ms'
[domain.second.task.compute]
on_packet = true
cost = '200us'
deadline = '20ms'
[flow.probe]
kind = 'ping'
from = 'first'
to = 'second'
pause = '20ms'
[flow.watch]
kind = 'ping'
from = 'monitor'
to = 'first'
pause = '20ms'
[flow.telemetry]
kind = 'periodic'
from = 'first'
to = 'second'
period = '10ms'
slack_mean = '2ms'
[flow.ask]
kind = 'request'
from = 'first'
to = 'second'
server = 'second.serve'
period = '50ms'
[flow.backup]
kind = 'stream'
from = 'second'
to = 'monitor'
bytes = 1000
window = 4
[chain.loop]
steps = ['first.read', 'second.compute', 'first.act']
deadline = '20ms'
";

/// Are VMs to be had? If not, this says why.
fn has_vms() -> bool {
    let problem = match Command::new("qemu-system-x86_64").arg("--version").output() {
        Err(error) => format!("qemu-system-x86_64: {error}"),
        Ok(_) => match image::prepare(&|_| (), || false) {
            Ok(_) => return true,
            Err(error) => format!("no image for guests: {error}"),
        },
    };
    assert!(std::env::var_os("PUNCTUAL_NO_SKIP").is_none(), "skipped, {problem}");
    eprintln!("skipped, {problem}");
    false
}

/// The flows and chains of a run's results: all of the host file's, with times that can be.
fn flows_are_those_of_the_host_file(path: &Path) {
    let live = json::from_json(&fs::read_to_string(path).expect("results"), "live.json").expect("results");
    let host = file::parse(HOST, "host.toml", &Overrides::default()).expect("a host");
    let names: Vec<&str> = live.flows.iter().map(|flow| flow.name.as_str()).collect();
    assert_eq!(names, ["probe", "watch", "telemetry", "ask", "backup"]);
    for flow in &live.flows {
        let packets = flow.packets;
        assert_eq!(packets.created, packets.delivered + packets.dropped.total(), "{}", flow.name);
        assert!(flow.segments.is_empty(), "where time went is not known");
        assert!(flow.latency.count() > 0, "{}: {packets:?}", flow.name);
        // A guest without budget answers when it has some again.
        assert!(flow.latency.max() < Duration::from_ms(500), "{}: {:?}", flow.name, flow.latency.max());
    }
    // Same seed, same releases: as many packets as the simulator sends.
    let simulated = punctual_sim::simulate(&host).expect("simulated");
    let created = |results: &Results, name: &str| {
        let flow = results.flows.iter().find(|flow| flow.name == name).expect("the flow");
        flow.packets.created
    };
    assert_eq!(created(&live, "telemetry"), created(&simulated, "telemetry"));
    assert!(created(&live, "ask").abs_diff(created(&simulated, "ask")) <= 2);
    let [switch] = &live.switches[..] else { panic!("one switch: {:?}", live.switches) };
    assert_eq!(
        (switch.network.as_str(), switch.discipline.as_str(), switch.planes.len()),
        ("lan", "preemptive", 2)
    );
    assert!(switch.planes.iter().all(|plane| plane.less_urgent_ahead_max.is_some()), "checked");
    let ports: Vec<_> = switch.ports.iter().map(|port| (port.name.as_str(), port.sent.packets > 0)).collect();
    assert_eq!(ports, [("first", true), ("second", true), ("monitor", true)]);
    let [chain] = &live.chains[..] else { panic!("one chain: {:?}", live.chains) };
    assert_eq!((chain.jobs.released, chain.jobs.due), (50, simulated.chains[0].jobs.due));
    assert!(chain.jobs.completed >= 45 && chain.jobs.response.min() >= Duration::from_us(600), "{chain:?}");
    let jobs = |name: &str| live.tasks.iter().find(|task| task.name == name).map(|task| task.jobs.completed);
    assert_eq!(jobs("act"), Some(chain.jobs.completed));
}

#[test]
fn vms_of_a_run_are_on_the_network_of_the_host_file() {
    let Some(_turn) = needs() else { return };
    if !has_vms() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("host.toml"), HOST).expect("written");
    let output = Command::new(env!("CARGO_BIN_EXE_punctual"))
        .args(["run", "host.toml", "--check", "--output", "live.json"])
        .current_dir(folder.path())
        .env("TMPDIR", folder.path())
        .output()
        .expect("the program");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let (_, switch) = text.split_once("\nswitch of lan, preemptive\n").expect("what the switch counted");
    for name in ["first", "second"] {
        let line = switch.lines().find(|line| line.starts_with(name)).expect("the port");
        // Sent, delivered, dropped, received: a guest whose interface comes up greets its neighbours.
        let counts: Vec<u64> = line.split_whitespace().skip(1).take(4).flat_map(str::parse).collect();
        assert!(counts[1] > 0 && counts[3] > 0, "{switch}");
    }
    flows_are_those_of_the_host_file(&folder.path().join("live.json"));
    fs::write(folder.path().join("sim.json"), succeeds(&["sim", "host.toml", "--json"], folder.path()))
        .expect("written");
    let compare = ["compare", "sim.json", "live.json"];
    let output =
        Command::new(env!("CARGO_BIN_EXE_punctual")).args(compare).current_dir(folder.path()).output();
    // Exit code 1: they differ, as a simulation and a machine do.
    let output = output.expect("the program");
    let compared = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.code() <= Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    for row in ["probe", "watch", "telemetry", "ask", "backup", "loop", "monitor"] {
        assert!(compared.contains(row), "{row} is not compared: {compared}");
    }
    fs::remove_file(folder.path().join("sim.json")).expect("removed");
    let left: Vec<_> = fs::read_dir(folder.path()).expect("readable").flatten().collect();
    assert_eq!(left.len(), 2, "no socket is left: {left:?}");
}

/// Runs the program, which must succeed.
fn succeeds(args: &[&str], folder: &Path) -> String {
    let program = Command::new(env!("CARGO_BIN_EXE_punctual")).args(args).current_dir(folder).output();
    let output = program.expect("the program");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn what_packets_cost_guests_is_measured_written_and_what_a_paper_is_compared_with() {
    let Some(_turn) = needs() else { return };
    if !has_vms() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("host.toml");
    fs::write(&path, HOST).expect("written");
    let args = ["calibrate", "--guests", "--seconds", "2", "--json", "--write", "host.toml"];
    let text = succeeds(&args, folder.path());
    let measured: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let costs = file::load(&path, &Overrides::default()).expect("a host").networks[0].costs;
    assert_eq!(measured["guests"]["receive_ns"].as_u64(), Some(costs.guest_receive.as_ns()));
    for place in 0..2 {
        assert!(measured["guests"]["round_trips"][place]["count"].as_u64() > Some(10), "{measured}");
    }
    assert!(costs.guest_wake_busy != costs.guest_wake, "{costs:?}");
    // Wherever a guest runs, waking up takes longer than a packet among many.
    assert!(
        costs.guest_wake.median > costs.guest_send && costs.guest_send > Duration::from_us(1),
        "{costs:?}"
    );
    assert!(costs.interrupt > costs.tx && costs.tx > Duration::ZERO, "{costs:?}");
    urgent_packets_beside_floods_are_compared_with_simulation_and_paper(folder.path());
}

/// In this folder, where the host file has what was measured.
fn urgent_packets_beside_floods_are_compared_with_simulation_and_paper(folder: &Path) {
    let args =
        ["reproduce", "rtca", "--live", "--quick", "--only", "table1", "--costs", "host.toml", "--json"];
    let text = succeeds(&args, folder);
    let reproduced: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let rows = reproduced["tables"][0]["rows"].as_array().expect("rows");
    let cell = |row: &serde_json::Value, column: usize| row[column].as_str().expect("a cell").to_owned();
    let levels: Vec<String> = rows.iter().map(|row| cell(row, 0) + " " + &cell(row, 1)).collect();
    let kernels = ["original", "rtca-1", "preemptive, 2 planes"];
    let expected =
        kernels.iter().flat_map(|kernel| ["base", "heavy", "outside"].map(|l| format!("{kernel} {l}")));
    assert_eq!(levels, expected.collect::<Vec<_>>());
    for row in rows {
        let number = |column: usize| cell(row, column).parse::<f64>().expect("a number");
        let (live_us, simulated_us) = (number(2), number(8));
        assert!((10.0..1e6).contains(&live_us) && (10.0..1e6).contains(&simulated_us), "{row}");
        assert_eq!(number(7) > 100.0, cell(row, 1) != "base", "floods: {row}");
    }
}
