//! The program as the host sees it: lines in, lines out.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use punctual_guest::protocol::{self, *};
use punctual_jobs::{Arrival, JobStream};

struct Guest {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Guest {
    fn start(mode: &str) -> Guest {
        let mut child = Command::new(env!("CARGO_BIN_EXE_punctual-guest"))
            .arg(mode)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let (input, output) = (child.stdin.take().expect("stdin"), child.stdout.take().expect("stdout"));
        Guest { child, input, output: BufReader::new(output) }
    }

    fn receive(&mut self) -> Reply {
        protocol::receive(&mut self.output).expect("a reply")
    }

    fn ask(&mut self, request: &Request) -> Reply {
        protocol::send(&mut self.input, request).expect("sent");
        self.receive()
    }
}

#[test]
fn a_virtual_cpu_announces_itself_calibrates_runs_and_ends() {
    let mut guest = Guest::start("vcpu");
    let Reply::Ready(ready) = guest.receive() else { panic!("not ready") };
    assert_eq!((ready.protocol, ready.mode), (protocol::VERSION, Mode::Vcpu));
    let Reply::Calibrated(calibration) = guest.ask(&Request::Calibrate { duration_ns: 5_000_000 }) else {
        panic!("not calibrated")
    };
    assert!(calibration.iterations_per_ms > 0 && calibration.samples >= 20);

    let arrival = Arrival::Periodic { period_ns: 100_000, offset_ns: 0 };
    let jobs = Work::Jobs(JobStream { arrival, cost_min_ns: 100, cost_max_ns: 200, seed: 5 });
    let run = Run {
        start_at_ns: 0,
        duration_ns: 200_000_000,
        iterations_per_ms: calibration.iterations_per_ms,
        tasks: vec![
            Task { priority: 1, deadline_ns: None, work: jobs },
            Task { priority: 2, deadline_ns: None, work: Work::Hog { start_ns: 1_000_000 } },
        ],
        network: None,
    };
    // 2000 jobs: more than fit a line.
    let (mut reply, mut told) = (guest.ask(&Request::Run(run)), Vec::new());
    let mut halfway = 0;
    while let Reply::Progress { tasks } = reply {
        assert_eq!(tasks.len(), 2);
        halfway = tasks[0].finished;
        reply = guest.receive();
    }
    assert!((1..2000).contains(&halfway), "{halfway}");
    while let Reply::Jobs { task: 0, jobs } = reply {
        assert!(jobs.len() <= JOBS_PER_LINE);
        told.extend(jobs);
        reply = guest.receive();
    }
    let Reply::Result(result) = reply else { panic!("{reply:?}") };
    assert_eq!(result.tasks.iter().map(|task| task.jobs).collect::<Vec<_>>(), [2000, 0]);
    let releases: Vec<u64> = told.iter().map(|job| job.release_ns).collect();
    assert_eq!(releases, (0..2000).map(|n| 100_000 * n).collect::<Vec<_>>());

    protocol::send(&mut guest.input, &Request::Quit {}).expect("sent");
    assert!(guest.child.wait().expect("ended").success());
}

#[test]
fn a_guest_that_could_not_begin_in_time_has_late_jobs_and_no_later_start() {
    let mut guest = Guest::start("vcpu");
    assert!(matches!(guest.receive(), Reply::Ready(_)));
    let arrival = Arrival::Periodic { period_ns: 1_000_000, offset_ns: 0 };
    let jobs = Work::Jobs(JobStream { arrival, cost_min_ns: 1, cost_max_ns: 1, seed: 5 });
    let tasks = vec![Task { priority: 1, deadline_ns: None, work: jobs }];
    // Over since the machine was started.
    let run = Run { start_at_ns: 1, duration_ns: 5_000_000, iterations_per_ms: 1000, tasks, network: None };
    let Reply::Jobs { task: 0, jobs } = guest.ask(&Request::Run(run)) else { panic!("no jobs") };
    assert_eq!(jobs.len(), 5);
    assert!(jobs.iter().all(|job| job.start_ns.is_none() && job.finish_ns.is_none()), "{jobs:?}");
}

#[test]
fn what_it_does_not_understand_or_cannot_run_is_answered_with_an_error_and_it_goes_on() {
    let mut guest = Guest::start("vcpu");
    assert!(matches!(guest.receive(), Reply::Ready(_)));
    for (line, why) in [
        ("{\"dance\":{}}", "unknown variant `dance`"),
        (
            "{\"run\":{\"start_at_ns\":0,\"duration_ns\":0,\"iterations_per_ms\":1,\"tasks\":[]}}",
            "duration_ns",
        ),
        ("{\"clock\":{\"zone\":1}}", "zone"),
    ] {
        writeln!(guest.input, "{line}").expect("sent");
        let Reply::Error { message } = guest.receive() else { panic!("{line} was accepted") };
        assert!(message.contains(why), "{message}");
    }
    let reply = guest.ask(&Request::Clock {});
    assert!(matches!(reply, Reply::Clock { now_ns } if now_ns > 0), "{reply:?}");
    drop(guest.input);
    assert!(guest.child.wait().expect("ended").success());
}

#[test]
fn a_wrong_command_line_is_answered_with_the_right_one() {
    for arguments in [&["sing"][..], &[], &["vcpu", "--port"]] {
        let output =
            Command::new(env!("CARGO_BIN_EXE_punctual-guest")).args(arguments).output().expect("run");
        assert_eq!(output.status.code(), Some(2));
        assert!(output.stderr.lines().next().is_some());
        assert!(String::from_utf8_lossy(&output.stderr).contains("usage: punctual-guest fifo|vcpu"));
    }
}
