//! `punctual run` gives guests sockets of this host.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use common::live::needs;
use punctual_model::Results;
use punctual_model::file::{self, Overrides};
use punctual_report::json;
use punctual_sched::Duration;
use punctual_vm::image;

const HOST: &str = "
duration = '2s'
[machine]
processors = 2
[pool.host]
processors = [0]
policy = 'fixed-priority'
[pool.vms]
processors = [1]
policy = 'deferrable'
[domain.calls]
pool = 'host'
priority = 1
[domain.relay]
pool = 'vms'
priority = 1
budget = '5ms'
period = '10ms'
sockets = { allow = ['bind udp 127.0.0.1:45060'] }
[domain.relay.task.answer]
on_packet = true
cost = '300us'
deadline = '20ms'
[domain.other]
pool = 'vms'
priority = 2
budget = '2ms'
period = '10ms'
[domain.other.task.compute]
period = '20ms'
cost = '500us'
[network.sockets]
driver = 'calls'
transport = 'sockets'
[network.sockets.outside.phone]
[flow.calls]
kind = 'request'
from = 'phone'
to = 'relay'
server = 'relay.answer'
period = '20ms'
bytes = 400
reply_bytes = 300
";

/// Are a VM and its module to be had? If not, this says why.
fn has_vms() -> bool {
    let problem = match Command::new("qemu-system-x86_64").arg("--version").output() {
        Err(error) => format!("qemu-system-x86_64: {error}"),
        Ok(_) => {
            let made = image::prepare(&|_| (), || false);
            match made.and_then(|image| image::sockets::with_module(&image, &|_| (), || false)) {
                Ok(_) => return true,
                Err(error) => format!("no image for guests: {error}"),
            }
        }
    };
    assert!(std::env::var_os("PUNCTUAL_NO_SKIP").is_none(), "skipped, {problem}");
    eprintln!("skipped, {problem}");
    false
}

fn run(folder: &Path, host: &str, arguments: &[&str]) -> Output {
    fs::write(folder.join("host.toml"), host).expect("written");
    Command::new(env!("CARGO_BIN_EXE_punctual"))
        .args(["run", "host.toml"])
        .args(arguments)
        .current_dir(folder)
        .env("TMPDIR", folder)
        .output()
        .expect("the program")
}

fn results(folder: &Path) -> Results {
    let text = fs::read_to_string(folder.join("live.json")).expect("results");
    json::from_json(&text, "live.json").expect("results")
}

/// What a host outside asked is what the simulator asks, and all of it went through the server.
fn requests_are_answered_over_sockets(live: &Results) {
    let [flow] = &live.flows[..] else { panic!("one flow: {:?}", live.flows) };
    let host = file::parse(HOST, "host.toml", &Overrides::default()).expect("a host");
    let simulated = punctual_sim::simulate(&host).expect("simulated");
    assert!(flow.packets.created.abs_diff(simulated.flows[0].packets.created) <= 4, "{:?}", flow.packets);
    let answered = flow.latency.count();
    assert!((90..=100).contains(&answered), "{:?}", flow.packets);
    assert!(flow.latency.min() >= Duration::from_us(300), "a job takes so long");
    let [sockets] = &live.sockets[..] else { panic!("one guest: {:?}", live.sockets) };
    assert_eq!((sockets.domain.as_str(), sockets.refused), ("relay", 0));
    assert!(sockets.calls >= 2 * answered, "a request is received and answered: {sockets:?}");
    assert!(
        sockets.guest.count() >= answered && sockets.guest.min() >= Duration::from_us(300),
        "{sockets:?}"
    );
    // Where time went is part of the whole.
    let parts = sockets.host_receive.mean() + sockets.guest.mean() + sockets.host_send.mean();
    assert!(parts <= flow.latency.mean() + Duration::from_us(50), "{parts:?} of {:?}", flow.latency.mean());
    let task = live.tasks.iter().find(|task| task.name == "answer").expect("the task");
    assert!(task.jobs.completed >= answered, "{:?}", task.jobs);
}

#[test]
fn a_guest_answers_requests_over_sockets_of_the_host() {
    let Some(_turn) = needs() else { return };
    if !has_vms() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let output = run(folder.path(), HOST, &["--output", "live.json"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("sockets of") && text.contains("host receive"), "{text}");
    requests_are_answered_over_sockets(&results(folder.path()));
    let left: Vec<_> = fs::read_dir(folder.path()).expect("readable").flatten().collect();
    assert_eq!(left.len(), 2, "no socket is left: {left:?}");
}

#[test]
fn programs_that_are_not_named_have_no_sockets_of_the_host() {
    let Some(_turn) = needs() else { return };
    if !has_vms() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let host = HOST.replace("127.0.0.1:45060'] }", "127.0.0.1:45061'], commands = ['memcached'] }");
    let output = run(folder.path(), &host, &["--output", "live.json", "--set", "duration=1s"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let live = results(folder.path());
    assert_eq!((live.flows[0].latency.count(), live.sockets[0].guest.count()), (0, 0), "nobody listens");
}
