//! Any bytes as what a guest writes: an error, or a report in which every job is one that its task releases.
//! Never a panic, and no more memory than those jobs need.

#![no_main]

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use punctual_guest::protocol::{FlowEnd, Network, Task, Traffic, VERSION, Work};
use punctual_jobs::{Arrival, JobStream};
use punctual_vm::workload::Client;

const DURATION_NS: u64 = 1_000_000;

fuzz_target!(|data: &[u8]| {
    let (ours, mut theirs) = UnixStream::pair().expect("a pair");
    let ready = format!(
        "{{\"ready\":{{\"protocol\":{VERSION},\"mode\":\"vcpu\",\"processors\":1,\
                 \"cyclictest\":false}}}}\n"
    );
    theirs.write_all(ready.as_bytes()).expect("written");
    // More than a socket holds would wait for the host.
    theirs.write_all(&data[..data.len().min(64 * 1024)]).expect("written");
    theirs.shutdown(std::net::Shutdown::Write).expect("shut");
    let mut client = Client::connect(ours, Duration::from_secs(10), || false).expect("ready");
    let arrival = Arrival::Periodic { period_ns: 100_000, offset_ns: 0 };
    let stream = JobStream { arrival, cost_min_ns: 1, cost_max_ns: 1, seed: 0 };
    let task = Task { priority: 1, deadline_ns: Some(100_000), work: Work::Jobs(stream) };
    let flow = FlowEnd {
        owner: 0,
        peer: [2, 0, 0, 0, 0, 2],
        begins: true,
        traffic: Traffic::Periodic { bytes: 64, period_ns: 100_000, slack_mean_ns: 0, burst: 1 },
        start_ns: 0,
        deadline_ns: Some(u64::from(data.len() as u32)),
        count: None,
        seed: 0,
        server: None,
        turnaround_ns: 0,
        pcp: None,
    };
    // Guests with flows and without them report differently.
    let has_flows = data.first().is_some_and(|byte| byte & 1 == 1);
    let flows = if has_flows { vec![flow] } else { Vec::new() };
    let network = Network { ethernet: [2, 0, 0, 0, 0, 1], datagrams: false, flows, steps: Vec::new() };
    if client.begin(&[task], has_flows.then_some(&network), 1000, (0, 0), DURATION_NS).is_err() {
        return;
    }
    if let Ok(measured) = client.finish(Duration::ZERO) {
        assert!(
            stream
                .jobs_before(DURATION_NS)
                .map(|job| job.release_ns)
                .eq(measured.tasks[0].jobs.iter().map(|job| job.release_ns))
        );
    }
});
