//! The protocol with a guest that writes arbitrary bytes: the client returns an error, or a report that can
//! be true. It never panics and never takes more memory than the task set's jobs need.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use punctual_guest::protocol::{
    self, Calibration, JobTimes, Mode, Ready, Reply, RunResult, Task, TaskProgress, TaskTotals, Work,
};
use punctual_jobs::{Arrival, JobStream};
use punctual_model::results::GuestFault;
use punctual_vm::workload::{Client, ClientError, GuestMeasurement, ProtocolError};

const LIMIT: Duration = Duration::from_secs(10);
/// So short that a scripted guest's end is not too early.
const DURATION_NS: u64 = 1_000_000;

fn task(period_ns: u64) -> Task {
    let arrival = Arrival::Periodic { period_ns, offset_ns: 0 };
    let stream = JobStream { arrival, cost_min_ns: 1, cost_max_ns: 1, seed: 0 };
    Task { priority: 1, deadline_ns: Some(period_ns), work: Work::Jobs(stream) }
}

/// Four jobs and ten.
fn tasks() -> Vec<Task> {
    vec![task(250_000), task(100_000)]
}

fn ready() -> Reply {
    Reply::Ready(Ready { protocol: protocol::VERSION, mode: Mode::Vcpu, processors: 1, cyclictest: false })
}

/// A guest that has written these bytes and closed its channel, and has announced itself before.
fn guest(bytes: &[u8]) -> Client {
    let (ours, mut theirs) = UnixStream::pair().expect("a pair");
    protocol::send(&mut theirs, &ready()).expect("sent");
    let bytes = bytes.to_vec();
    std::thread::spawn(move || {
        // What does not fit the socket waits until it is read; the host may be gone by then.
        let _ = theirs.write_all(&bytes);
        let _ = theirs.shutdown(std::net::Shutdown::Write);
        let _ = theirs.read_to_end(&mut Vec::new());
    });
    Client::connect(ours, LIMIT, || false).expect("it is ready")
}

/// What the host makes of a guest that reports a run like this.
fn reported(bytes: &[u8]) -> Result<GuestMeasurement, ClientError> {
    let mut client = guest(bytes);
    client.begin(&tasks(), None, 1000, (0, 0), DURATION_NS)?;
    client.finish(Duration::from_nanos(DURATION_NS))
}

fn lines(replies: &[Reply]) -> Vec<u8> {
    let mut out = Vec::new();
    replies.iter().for_each(|reply| protocol::send(&mut out, reply).expect("written"));
    out
}

/// The replies of an honest guest.
fn honest() -> Vec<Reply> {
    let jobs = |period_ns: u64| -> Vec<JobTimes> {
        let times = |release_ns| JobTimes {
            release_ns,
            start_ns: Some(release_ns + 10),
            finish_ns: Some(release_ns + 1000),
        };
        (0..DURATION_NS / period_ns).map(|n| times(n * period_ns)).collect()
    };
    let totals = |jobs| TaskTotals { jobs, executed_ns: 4000 };
    let told = |finished| TaskProgress { finished, late: 0 };
    vec![
        Reply::Progress { tasks: vec![told(1), told(4)] },
        Reply::Jobs { task: 0, jobs: jobs(250_000) },
        Reply::Jobs { task: 1, jobs: jobs(100_000) },
        Reply::Result(RunResult { overrun_ns: 5, tasks: vec![totals(4), totals(10)] }),
    ]
}

/// The honest report with the jobs of the first task, or something else, changed.
fn lie(change: impl Fn(&mut Vec<Reply>)) -> Result<GuestMeasurement, ClientError> {
    let mut replies = honest();
    change(&mut replies);
    reported(&lines(&replies))
}

fn first_jobs(replies: &mut [Reply]) -> &mut Vec<JobTimes> {
    match &mut replies[1] {
        Reply::Jobs { jobs, .. } => jobs,
        other => panic!("{other:?}"),
    }
}

fn totals(replies: &mut [Reply]) -> &mut RunResult {
    match replies.last_mut() {
        Some(Reply::Result(result)) => result,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_honest_report_is_what_was_measured() {
    let measured = lie(|_| ()).expect("honest");
    assert_eq!(measured.tasks.iter().map(|task| task.jobs.len()).collect::<Vec<_>>(), [4, 10]);
    assert_eq!(measured.untold, 0);
}

#[test]
fn every_lie_about_jobs_is_seen() {
    type Lie = fn(&mut Vec<Reply>);
    let lies: [(&str, Lie); 15] = [
        ("a release that is not", |r| first_jobs(r)[1].release_ns += 1),
        ("a start before the release", |r| first_jobs(r)[1].start_ns = Some(1)),
        ("an end before the start", |r| first_jobs(r)[1].finish_ns = Some(250_001)),
        ("an end after the run", |r| first_jobs(r)[3].finish_ns = Some(DURATION_NS + 1)),
        ("an end without a start", |r| first_jobs(r)[1].start_ns = None),
        ("a start before the end of the job before", |r| first_jobs(r)[0].finish_ns = Some(260_000)),
        ("a start though the job before never ended", |r| first_jobs(r)[0].finish_ns = None),
        ("a job twice", |r| {
            let job = first_jobs(r)[0];
            first_jobs(r).insert(0, job);
        }),
        ("a job too many", |r| {
            first_jobs(r).push(JobTimes { release_ns: DURATION_NS, start_ns: None, finish_ns: None });
        }),
        ("a task that is not there", |r| r[2] = Reply::Jobs { task: 2, jobs: Vec::new() }),
        ("other sums than jobs", |r| totals(r).tasks[0].jobs = 3),
        ("work that does not fit", |r| totals(r).tasks[0].executed_ns = u64::MAX),
        ("more finished than released", |r| {
            r[0] = Reply::Progress { tasks: vec![TaskProgress { finished: 5, late: 0 }; 2] };
        }),
        ("more late than finished", |r| {
            r[0] = Reply::Progress { tasks: vec![TaskProgress { finished: 1, late: 2 }; 2] };
        }),
        ("fewer finished than before", |r| {
            let tasks = vec![TaskProgress { finished: 0, late: 0 }; 2];
            r.insert(1, Reply::Progress { tasks });
        }),
    ];
    for (what, change) in lies {
        let error = lie(change).expect_err(what);
        assert_eq!(error.fault(), GuestFault::ProtocolViolation, "{what}: {error}");
    }
}

#[test]
fn a_run_is_not_over_before_its_time() {
    let mut client = guest(&lines(&honest()[1..]));
    client.begin(&tasks(), None, 1000, (0, 0), 60_000_000_000).expect("begun");
    let error = client.finish(Duration::from_secs(60)).unwrap_err();
    assert!(matches!(error, ClientError::Protocol(ProtocolError::Early)), "{error}");
}

#[test]
fn jobs_that_are_left_out_are_there_and_never_started() {
    let left_out = |replies: &mut Vec<Reply>| {
        first_jobs(replies).truncate(1);
        totals(replies).tasks[0].jobs = 1;
    };
    let measured = lie(left_out).expect("no contradiction");
    assert_eq!((measured.untold, measured.tasks[0].jobs.len()), (3, 4));
    let stats = punctual_vm::workload::tasks::job_stats(&measured.tasks[0].jobs, 250_000, DURATION_NS);
    assert_eq!((stats.due, stats.missed), (4, 3));
}

#[test]
fn a_guest_that_ends_says_nothing_or_refuses_has_stopped_telling() {
    for bytes in [lines(&honest()[..2]), Vec::new(), lines(&[Reply::Error { message: "no".into() }])] {
        assert_eq!(reported(&bytes).unwrap_err().fault(), GuestFault::Unresponsive);
    }
}

#[test]
fn floods_end_early_and_take_no_memory() {
    let start = Instant::now();
    let progress = lines(&[Reply::Progress { tasks: vec![TaskProgress::default(); 2] }]);
    for (what, bytes) in [
        ("reports", progress.repeat(1_000_000 / progress.len())),
        ("empty lines", vec![b'\n'; 1_000_000]),
        ("a line without end", vec![b'{'; 1_000_000]),
        ("jobs", lines(&[honest()[1].clone()]).repeat(5000)),
    ] {
        assert_eq!(reported(&bytes).expect_err(what).fault(), GuestFault::ProtocolViolation, "{what}");
    }
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

/// Any bytes instead of the honest ones at some places.
fn spoilt() -> impl Strategy<Value = Vec<u8>> {
    let places = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8);
    places.prop_map(|places| {
        let mut bytes = lines(&honest());
        for (place, byte) in places {
            let at = place.index(bytes.len());
            bytes[at] = byte;
        }
        bytes
    })
}

fn check(bytes: &[u8]) {
    if let Ok(measured) = reported(bytes) {
        assert_eq!(measured.tasks.len(), 2);
        for (task, told) in tasks().iter().zip(&measured.tasks) {
            let stream = task.work.job_stream().expect("jobs");
            let releases: Vec<u64> = stream.jobs_before(DURATION_NS).map(|job| job.release_ns).collect();
            assert_eq!(told.jobs.iter().map(|job| job.release_ns).collect::<Vec<_>>(), releases);
            told.jobs.iter().for_each(|job| job.check(DURATION_NS).expect("times that can be"));
        }
    }
}

proptest! {
    #[test]
    fn noise_is_an_error_and_never_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        check(&bytes);
    }

    #[test]
    fn whatever_is_accepted_can_be_true(bytes in spoilt()) {
        check(&bytes);
    }

    #[test]
    fn numbers_of_any_size_are_judged(numbers in prop::collection::vec(any::<u64>(), 6)) {
        check(&lines(&[
            Reply::Progress { tasks: vec![TaskProgress { finished: numbers[0], late: numbers[1] }; 2] },
            Reply::Jobs {
                task: numbers[2] as usize % 3,
                jobs: vec![JobTimes {
                    release_ns: numbers[3],
                    start_ns: Some(numbers[4]),
                    finish_ns: Some(numbers[5]),
                }],
            },
            Reply::Result(RunResult { overrun_ns: numbers[0], tasks: Vec::new() }),
        ]));
    }

    #[test]
    fn answers_to_questions_are_judged(iterations in any::<u64>(), now_ns in any::<u64>()) {
        let calibrated =
            Reply::Calibrated(Calibration { iterations_per_ms: iterations, samples: 0, spread_ppm: 0 });
        let clocks = vec![Reply::Clock { now_ns }; 9];
        let mut client = guest(&lines(&[vec![calibrated], clocks].concat()));
        if let Ok(calibration) = client.calibrate(Duration::ZERO) {
            let (offset_ns, _) = client.clock_offset_ns().expect("told");
            // A start that no clock shows is refused.
            let _ = client.begin(&tasks(), None, calibration.iterations_per_ms, (1, offset_ns), DURATION_NS);
        }
    }
}
