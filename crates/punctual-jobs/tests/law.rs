//! The law of jobs: its golden values, and what follows from its parameters.

use punctual_jobs::flow::{Goose, GooseState};
use punctual_jobs::{Arrival, JobStream, cost_ns, exponential_ns, task_seed, uniform_ns};

const MS: u64 = 1_000_000;

struct Golden {
    stream: JobStream,
    /// Release and cost of the first jobs.
    first: [(u64, u64); 4],
    /// Of the releases and costs of 10,000 jobs; see [`digest`].
    digest: u64,
}

fn digest(stream: JobStream) -> u64 {
    let mut job = stream.first();
    let mut digest = 0u64;
    for _ in 0..10_000 {
        digest = digest.rotate_left(5) ^ job.release_ns;
        digest = digest.rotate_left(5) ^ stream.cost_ns(job);
        job = stream.after(job);
    }
    digest
}

fn stream(arrival: Arrival, cost_min_ns: u64, cost_max_ns: u64, seed: u64) -> JobStream {
    JobStream { arrival, cost_min_ns, cost_max_ns, seed }
}

fn golden() -> [Golden; 4] {
    let periodic = Arrival::Periodic { period_ns: 10 * MS, offset_ns: 3 * MS };
    let sporadic = |separation_ns, slack_mean_ns, offset_ns| Arrival::Sporadic {
        separation_ns,
        slack_mean_ns,
        offset_ns,
    };
    [
        Golden {
            stream: stream(periodic, MS, 9 * MS, task_seed(1, 0)),
            first: [
                (3_000_000, 8_548_514),
                (13_000_000, 7_219_496),
                (23_000_000, 7_195_194),
                (33_000_000, 2_975_721),
            ],
            digest: 0x2cd1_5f9f_55b4_f3f0,
        },
        Golden {
            stream: stream(sporadic(7 * MS, 4 * MS, 0), 10_000, 6_999_000, task_seed(91, 2)),
            first: [
                (3_794_396, 5_091_621),
                (19_507_636, 6_264_970),
                (30_656_552, 2_701_121),
                (38_150_009, 3_356_770),
            ],
            digest: 0xedfc_4b40_79ab_ef2b,
        },
        Golden {
            stream: stream(sporadic(5_000, 3_600_000 * MS, 17), 0, u64::MAX, task_seed(u64::MAX, 300)),
            first: [
                (5_375_461_482_105, 7_602_024_644_078_393_241),
                (14_100_994_436_341, 9_484_703_056_595_750_529),
                (21_963_382_107_028, 6_558_402_641_113_072_593),
                (38_996_848_385_004, 2_394_714_165_192_534_394),
            ],
            digest: 0xf1e2_9591_be4c_b686,
        },
        Golden {
            stream: stream(sporadic(MS, 0, 250_000), 0, 0, task_seed(0, 1)),
            first: [(250_000, 1), (1_250_000, 1), (2_250_000, 1), (3_250_000, 1)],
            digest: 0x0e25_fa64_d045_94c0,
        },
    ]
}

#[test]
fn releases_and_costs_are_these_for_ever() {
    for Golden { stream, first, digest: expected } in golden() {
        let jobs = stream.jobs_before(u64::MAX).take(4);
        let jobs: Vec<(u64, u64)> = jobs.map(|job| (job.release_ns, stream.cost_ns(job))).collect();
        assert_eq!(jobs, first, "{stream:?}");
        assert_eq!(digest(stream), expected, "{stream:?}");
    }
}

#[test]
fn sporadic_gaps_are_never_shorter_than_the_separation_and_have_the_mean_slack() {
    let arrival = Arrival::Sporadic { separation_ns: 5 * MS, slack_mean_ns: 10 * MS, offset_ns: 0 };
    let stream = stream(arrival, MS, 3 * MS, task_seed(7, 3));
    let (mut job, mut costs_ns) = (stream.first(), 0);
    let jobs = 20_000;
    for _ in 0..jobs {
        let next = stream.after(job);
        assert!(next.release_ns - job.release_ns >= 5 * MS);
        assert!((MS..=3 * MS).contains(&stream.cost_ns(job)));
        costs_ns += stream.cost_ns(job);
        job = next;
    }
    // Means of 20,000 draws: four standard errors are 0.28 ms and 0.016 ms.
    let gap_mean_us = job.release_ns / jobs / 1000;
    assert!((14_700..=15_300).contains(&gap_mean_us), "{gap_mean_us}");
    let cost_mean_us = costs_ns / jobs / 1000;
    assert!((1_980..=2_020).contains(&cost_mean_us), "{cost_mean_us}");
}

#[test]
fn jobs_before_an_instant_are_those_released_earlier() {
    let arrival = Arrival::Periodic { period_ns: 10, offset_ns: 3 };
    let releases = |until_ns| stream(arrival, 1, 1, 0).jobs_before(until_ns).map(|job| job.release_ns);
    assert_eq!(releases(3).collect::<Vec<_>>(), []);
    assert_eq!(releases(24).collect::<Vec<_>>(), [3, 13, 23]);
}

#[test]
fn the_extremes_of_the_random_bits_stay_within_the_bounds() {
    assert_eq!((uniform_ns(9, 0), uniform_ns(9, u64::MAX)), (0, 9));
    assert_eq!((uniform_ns(u64::MAX, 0), uniform_ns(u64::MAX, u64::MAX)), (0, u64::MAX));
    assert_eq!((exponential_ns(0, 0), exponential_ns(u64::MAX, u64::MAX)), (0, 0));
    assert_eq!(exponential_ns(u64::MAX, 0), u64::MAX, "saturates");
    assert_eq!(cost_ns(0, 0, u64::MAX, u64::MAX), u64::MAX);
}

#[test]
fn a_release_beyond_the_end_of_time_is_at_its_end() {
    let arrival = Arrival::Periodic { period_ns: u64::MAX, offset_ns: 1 };
    let stream = stream(arrival, 1, 1, 0);
    assert_eq!(stream.after(stream.first()).release_ns, u64::MAX);
}

/// Times of a publisher's first messages, in ms.
fn messages(goose: Goose, count: usize) -> Vec<u64> {
    let mut state = GooseState::default();
    let mut at_ns = 0;
    let mut all = vec![0];
    while all.len() < count {
        at_ns = state.after_ns(&goose, 7, at_ns);
        all.push(at_ns / MS);
    }
    all
}

#[test]
fn goose_repeats_at_doubling_distances_up_to_the_heartbeat() {
    let goose = Goose { period_ns: None, slack_mean_ns: 0, retransmit_ns: 2 * MS, heartbeat_ns: 20 * MS };
    assert_eq!(messages(goose, 8), [0, 2, 6, 14, 30, 50, 70, 90]);
    assert_eq!(goose.growing_offsets_ns(), [0, 2 * MS, 6 * MS, 14 * MS, 30 * MS]);
}

#[test]
fn a_goose_event_ends_the_repetitions_of_the_one_before() {
    let goose =
        Goose { period_ns: Some(10 * MS), slack_mean_ns: 0, retransmit_ns: 2 * MS, heartbeat_ns: 20 * MS };
    assert_eq!(messages(goose, 8), [0, 2, 6, 10, 12, 16, 20, 22]);
    assert_eq!(goose.growing_offsets_ns(), [0, 2 * MS, 6 * MS]);
}
