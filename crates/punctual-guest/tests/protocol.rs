//! What the other side may write: anything.

use std::io::BufReader;

use proptest::prelude::*;
use punctual_guest::cyclictest;
use punctual_guest::protocol::{self, *};
use punctual_jobs::stream::Control;
use punctual_jobs::{Arrival, JobStream};

fn received<T: for<'a> serde::Deserialize<'a>>(bytes: &[u8]) -> Result<T, ReceiveError> {
    protocol::receive(&mut BufReader::new(bytes))
}

fn arrival() -> impl Strategy<Value = Arrival> {
    prop_oneof![
        (any::<u64>(), any::<u64>())
            .prop_map(|(period_ns, offset_ns)| Arrival::Periodic { period_ns, offset_ns }),
        (any::<u64>(), any::<u64>(), any::<u64>()).prop_map(|(separation_ns, slack_mean_ns, offset_ns)| {
            Arrival::Sporadic { separation_ns, slack_mean_ns, offset_ns }
        }),
    ]
}

fn work() -> impl Strategy<Value = Work> {
    prop_oneof![
        (arrival(), any::<u64>(), any::<u64>(), any::<u64>()).prop_map(
            |(arrival, cost_min_ns, cost_max_ns, seed)| {
                Work::Jobs(JobStream { arrival, cost_min_ns, cost_max_ns, seed })
            }
        ),
        any::<u64>().prop_map(|start_ns| Work::Hog { start_ns }),
        (any::<u64>(), any::<u32>()).prop_map(|(start_ns, threads)| Work::ForkBomb { start_ns, threads }),
        (any::<u64>(), any::<u64>())
            .prop_map(|(start_ns, interval_ns)| Work::WakeFlood { start_ns, interval_ns }),
    ]
}

fn run() -> impl Strategy<Value = Run> {
    let task = (any::<u32>(), any::<Option<u64>>(), work()).prop_map(|(priority, deadline_ns, work)| Task {
        priority,
        deadline_ns,
        work,
    });
    (any::<[u64; 3]>(), prop::collection::vec(task, 0..20)).prop_map(|(numbers, tasks)| Run {
        start_at_ns: numbers[0],
        duration_ns: numbers[1],
        iterations_per_ms: numbers[2],
        tasks,
        network: None,
    })
}

proptest! {
    #[test]
    fn noise_is_an_error_or_a_value_but_never_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = received::<Request>(&bytes);
        let _ = received::<Reply>(&bytes);
    }

    /// Noise that is nearly right: a valid line with some bytes replaced.
    #[test]
    fn damaged_lines_are_an_error_or_a_value_but_never_a_panic(
        run in run(), damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)
    ) {
        let mut line = Vec::new();
        protocol::send(&mut line, &Request::Run(run)).expect("written");
        for (at, byte) in damage {
            let at = at.index(line.len());
            line[at] = byte;
        }
        if let Ok(Request::Run(run)) = received(&line) {
            let _ = run.check();
        }
    }

    #[test]
    fn what_is_sent_is_what_is_received(run in run()) {
        let mut line = Vec::new();
        protocol::send(&mut line, &Request::Run(run.clone())).expect("written");
        prop_assert_eq!(received::<Request>(&line).expect("received"), Request::Run(run));
    }

    /// A run that was accepted can be carried out: its jobs fit the memory that is set aside for them.
    #[test]
    fn an_accepted_run_releases_no_more_jobs_than_allowed(mut run in run(), small in any::<[u32; 4]>()) {
        // Times that are plausible now and then.
        run.duration_ns = u64::from(small[0]) % 10_000_000;
        for task in &mut run.tasks {
            if let Work::Jobs(JobStream { arrival, cost_min_ns, cost_max_ns, .. }) = &mut task.work {
                (*cost_min_ns, *cost_max_ns) = (0, 1 + u64::from(small[1]));
                *arrival = Arrival::Sporadic {
                    separation_ns: u64::from(small[2]) % 3000,
                    slack_mean_ns: 0,
                    offset_ns: u64::from(small[3]) % 5000,
                };
            }
        }
        if run.check().is_ok() {
            let streams = run.tasks.iter().filter_map(|task| task.work.job_stream());
            let jobs: usize = streams.map(|stream| stream.jobs_before(run.duration_ns).count()).sum();
            prop_assert!(jobs as u64 <= JOBS_MAX);
        }
    }

    #[test]
    fn cyclictest_may_print_anything(text in "(# ?[A-Za-z ]{0,12}:? ?[0-9]{0,22}\n|[0-9]{1,12}[ \
                                              \t][0-9]{1,22}\n|.{0,20}\n){0,12}") {
        let _ = cyclictest::parse(&text);
    }
}

#[test]
fn a_line_without_end_takes_no_more_memory_than_a_line_may_have() {
    let endless = std::io::repeat(b'x');
    let error = protocol::receive::<Reply>(&mut BufReader::new(endless)).unwrap_err();
    assert!(error.to_string().contains("longer than 131072 bytes"), "{error}");
}

#[test]
fn the_next_line_is_read_after_a_malformed_one() {
    let text = b"{\"clock\": 7}\n\n{\"clock\": {}}\n";
    let mut reader = BufReader::new(&text[..]);
    let error = protocol::receive::<Request>(&mut reader).unwrap_err();
    assert!(matches!(error, ReceiveError::Malformed(_)), "{error}");
    assert_eq!(protocol::receive::<Request>(&mut reader).expect("the second line"), Request::Clock {});
    assert!(matches!(protocol::receive::<Request>(&mut reader), Err(ReceiveError::Closed)));
}

#[test]
fn the_largest_messages_fit_a_line() {
    let [separation_ns, slack_mean_ns, offset_ns] = [TIME_MAX_NS; 3];
    let task = Task {
        priority: u32::MAX,
        deadline_ns: Some(u64::MAX),
        work: Work::Jobs(JobStream {
            arrival: Arrival::Sporadic { separation_ns, slack_mean_ns, offset_ns },
            cost_min_ns: TIME_MAX_NS,
            cost_max_ns: TIME_MAX_NS,
            seed: u64::MAX,
        }),
    };
    let traffic = Traffic::Stream {
        bytes: FRAME_BYTES_MAX,
        ack_bytes: FRAME_BYTES_MAX,
        window: 1_000_000,
        ack_every: 1_000_000,
        control: Control::Basic { timeout_ns: TIME_MAX_NS },
    };
    let end = FlowEnd {
        owner: u16::MAX,
        peer: [255; 6],
        begins: false,
        traffic,
        start_ns: TIME_MAX_NS,
        deadline_ns: Some(u64::MAX),
        count: Some(u64::MAX),
        seed: u64::MAX,
        server: None,
        turnaround_ns: TIME_MAX_NS,
        pcp: Some(7),
    };
    let network =
        Network { ethernet: [255; 6], datagrams: false, flows: vec![end; ENDS_MAX], steps: Vec::new() };
    let run = Run {
        start_at_ns: u64::MAX / 2,
        duration_ns: TIME_MAX_NS,
        iterations_per_ms: 1,
        tasks: vec![task; TASKS_MAX],
        network: Some(network),
    };
    run.check().expect("allowed");
    let job = JobTimes { release_ns: TIME_MAX_NS, start_ns: Some(TIME_MAX_NS), finish_ns: Some(TIME_MAX_NS) };
    let buckets = (0..HISTOGRAM_US_MAX).map(|us| (us, u64::from(u32::MAX))).collect();
    let latencies =
        Latencies { min_us: u64::MAX, avg_us: u64::MAX, max_us: u64::MAX, overflows: u64::MAX, buckets };
    let totals = TaskTotals { jobs: JOBS_MAX, executed_ns: u64::MAX };
    let length = |value: &dyn erased::Line| value.line().len();
    assert!(length(&Request::Run(run)) < LINE_BYTES_MAX);
    assert!(length(&Reply::Jobs { task: TASKS_MAX, jobs: vec![job; JOBS_PER_LINE] }) < LINE_BYTES_MAX);
    assert!(length(&Reply::Cyclictest(latencies)) < LINE_BYTES_MAX);
    let mut histogram = punctual_jobs::histogram::Histogram::default();
    (0..40 * 200).for_each(|n| histogram.record((1 << (n / 200)) | (((n % 200) << (n / 200)) / 200)));
    let times = Times::from(&histogram);
    assert!(times.buckets.len() > 1000 && times.buckets.len() <= BUCKETS_MAX, "{}", times.buckets.len());
    let report = FlowReport { latency: times.clone(), tardiness: times, ..FlowReport::default() };
    assert!(length(&Reply::Flow(report)) < LINE_BYTES_MAX);
    let result = RunResult { overrun_ns: u64::MAX, tasks: vec![totals; TASKS_MAX] };
    assert!(length(&Reply::Result(result)) < LINE_BYTES_MAX);
}

/// Lines of different types, one after the other.
mod erased {
    pub(super) trait Line {
        fn line(&self) -> Vec<u8>;
    }

    impl<T: serde::Serialize> Line for T {
        fn line(&self) -> Vec<u8> {
            let mut line = Vec::new();
            punctual_guest::protocol::send(&mut line, self).expect("written");
            line
        }
    }
}

#[test]
fn numbers_that_cannot_be_run_are_refused_by_name() {
    let good = Work::Jobs(JobStream {
        arrival: Arrival::Periodic { period_ns: 1_000_000, offset_ns: 0 },
        cost_min_ns: 10,
        cost_max_ns: 20,
        seed: 1,
    });
    let refusal = |work: Work, duration_ns: u64| {
        let tasks = vec![Task { priority: 1, deadline_ns: None, work }];
        let run = Run { start_at_ns: 0, duration_ns, iterations_per_ms: 1000, tasks, network: None };
        run.check().unwrap_err().to_string()
    };
    let day = TIME_MAX_NS;
    assert_eq!(refusal(good, 0), "duration_ns must be from 1 to 86400000000000, not 0");
    assert!(refusal(good, day).contains("up to 86400000 jobs"), "{}", refusal(good, day));
    let bomb = Work::ForkBomb { start_ns: 0, threads: 5000 };
    assert_eq!(refusal(bomb, 1), "task 0: threads must be from 1 to 1024, not 5000");
    let flood = Work::WakeFlood { start_ns: 0, interval_ns: 0 };
    assert!(refusal(flood, 1).starts_with("task 0: interval_ns must be from 1000"));
}

#[test]
fn times_of_a_job_are_in_order_and_within_the_run() {
    let job = |release_ns, start_ns, finish_ns| JobTimes { release_ns, start_ns, finish_ns }.check(100);
    for (release, start, finish) in [(0, Some(0), Some(100)), (3, Some(4), None), (100, None, None)] {
        assert_eq!(job(release, start, finish), Ok(()));
    }
    for (release, start, finish) in [
        (0, None, Some(5)),
        (5, Some(4), None),
        (0, Some(6), Some(5)),
        (0, Some(0), Some(101)),
        (101, None, None),
    ] {
        assert!(job(release, start, finish).is_err(), "{release} {start:?} {finish:?}");
    }
}

#[test]
fn a_histogram_of_cyclictest_is_read() {
    let text = "# /dev/cpu_dma_latency set to 0us\n# Histogram\n000000 000000\n000001 \
                000002\n000002\t000041\n# Total: 000000043\n# Min Latencies: 00001\n# Avg Latencies: \
                00002\n# Max Latencies: 04088\n# Histogram Overflows: 00003\n# Histogram Overflow at cycle \
                number:\n# Thread 0: 00004 00019 00023\n";
    let expected =
        Latencies { min_us: 1, avg_us: 2, max_us: 4088, overflows: 3, buckets: vec![(1, 2), (2, 41)] };
    assert_eq!(cyclictest::parse(text).expect("a histogram"), expected);
    for (from, to, why) in [
        ("000000043", "000000044", "adds up to 43"),
        ("# Max Latencies: 04088\n", "", "no minimum, mean, maximum"),
        ("000002\t000041", "000001 000041", "does not ascend"),
        ("000001 000002", "000001 many", "cannot parse"),
    ] {
        let error = cyclictest::parse(&text.replace(from, to)).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}
