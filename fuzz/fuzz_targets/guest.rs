//! Any bytes as what a guest writes: an error, or a report in which every job is one that its task releases.
//! Never a panic, and no more memory than those jobs need.

#![no_main]

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use punctual_guest::protocol::{Task, VERSION, Work};
use punctual_jobs::{Arrival, JobStream};
use punctual_live::workload::Client;

const DURATION_NS: u64 = 1_000_000;

fuzz_target!(|data: &[u8]| {
    let (ours, mut theirs) = UnixStream::pair().expect("a pair");
    let ready =
        format!("{{\"ready\":{{\"protocol\":{VERSION},\"mode\":\"vcpu\",\"processors\":1,\
                 \"cyclictest\":false}}}}\n");
    theirs.write_all(ready.as_bytes()).expect("written");
    // More than a socket holds would wait for the host.
    theirs.write_all(&data[..data.len().min(64 * 1024)]).expect("written");
    theirs.shutdown(std::net::Shutdown::Write).expect("shut");
    let mut client = Client::connect(ours, Duration::from_secs(10), || false).expect("ready");
    let arrival = Arrival::Periodic { period_ns: 100_000, offset_ns: 0 };
    let stream = JobStream { arrival, cost_min_ns: 1, cost_max_ns: 1, seed: 0 };
    let task = Task { priority: 1, deadline_ns: Some(100_000), work: Work::Jobs(stream) };
    if client.begin(&[task], 1000, (0, 0), DURATION_NS).is_err() {
        return;
    }
    if let Ok(measured) = client.finish(Duration::ZERO) {
        assert!(stream.jobs_before(DURATION_NS).map(|job| job.release_ns).eq(
            measured.tasks[0].jobs.iter().map(|job| job.release_ns)
        ));
    }
});
