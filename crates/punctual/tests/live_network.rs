//! `punctual run` connects its VMs by a switch.

mod common;

use std::fs;
use std::process::Command;

use common::live::needs;
use punctual_live::image;

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
process = {}
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
[flow.probe]
kind = 'ping'
from = 'first'
to = 'second'
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

#[test]
fn vms_of_a_run_are_on_the_network_of_the_host_file() {
    let Some(_turn) = needs() else { return };
    if !has_vms() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("host.toml"), HOST).expect("written");
    let output = Command::new(env!("CARGO_BIN_EXE_punctual"))
        .args(["run", "host.toml"])
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
    let left: Vec<_> = fs::read_dir(folder.path()).expect("readable").flatten().collect();
    assert_eq!(left.len(), 1, "no socket is left: {left:?}");
}
