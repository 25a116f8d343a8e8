//! What the writer of traces wrote comes back as rows, however the bytes are cut; other bytes are refused.

use std::io::Write as _;

use proptest::prelude::*;
use punctual_model::trace::TraceSink;
use punctual_sched::Duration;

use super::*;
use crate::trace::PerfettoWriter;
use punctual_testkit::sample::{self, Events};

const EVERYTHING: Window = Window { from_ns: 0, until_ns: u64::MAX, items_max: usize::MAX };

fn trace(events: &Events, end_us: u64) -> Vec<u8> {
    let host = sample::host();
    let mut bytes = Vec::new();
    let mut writer = PerfettoWriter::new(&host, &mut bytes);
    events.iter().for_each(|&(at, event)| writer.event(at, event));
    writer.finish(sample::us(end_us)).expect("a vector takes everything");
    bytes
}

fn read(bytes: &[u8], window: Window) -> Result<Timeline, Error> {
    let mut reader = Reader::new(window);
    reader.write_all(bytes).expect("a reader takes everything");
    reader.finish()
}

/// One line per row, times in us.
fn text(timeline: &Timeline) -> String {
    let mut text = format!("{}..{} us\n", timeline.from_ns / 1000, timeline.to_ns / 1000);
    for row in &timeline.rows {
        text += &format!("{}/{} {:?}:", row.group, row.name, row.kind);
        for slice in &row.slices {
            let (label, what) = &timeline.labels[slice.label as usize];
            text += &format!(" {}-{} {label} {what:?};", slice.begin_ns / 1000, slice.end_ns / 1000);
        }
        for (at, left) in &row.budget {
            text += &format!(" budget {} at {};", left / 1000, at / 1000);
        }
        for job in &row.jobs {
            let end = job.end_ns.map_or("-".into(), |end| (end / 1000).to_string());
            let late = if job.missed(timeline.to_ns) { " late" } else { "" };
            text += &format!(
                " job {} {}-{end} due {}{late};",
                job.number,
                job.release_ns / 1000,
                job.deadline_ns / 1000
            );
        }
        text.push('\n');
    }
    text
}

#[test]
fn jobs_of_all_lanes_and_budgets_come_back_with_their_task_and_vcpu() {
    insta::assert_snapshot!(text(
        &read(&trace(&sample::overlapping_jobs(), 100), EVERYTHING).expect("a trace")
    ));
}

#[test]
fn execution_of_nested_domains_comes_back_level_by_level() {
    insta::assert_snapshot!(text(
        &read(&trace(&sample::nested_domains(), 100), EVERYTHING).expect("a trace")
    ));
}

#[test]
fn a_window_keeps_what_reaches_into_it_and_the_budget_at_its_begin() {
    let window = Window { from_ns: 15_000, until_ns: 50_000, items_max: usize::MAX };
    insta::assert_snapshot!(text(&read(&trace(&sample::overlapping_jobs(), 100), window).expect("a trace")));
}

#[test]
fn too_many_items_end_the_window_and_say_so() {
    let bytes = trace(&sample::random(5_000), 1_000_000);
    let all = read(&bytes, EVERYTHING).expect("a trace");
    let some = read(&bytes, Window { items_max: 500, ..EVERYTHING }).expect("a trace");
    assert!(!all.cut && some.cut);
    assert!(some.to_ns < all.to_ns && (400..700).contains(&some.items()), "{} items", some.items());
    let same = read(&bytes, Window { until_ns: some.to_ns, ..EVERYTHING }).expect("a trace");
    assert_eq!(text(&same), text(&some), "the same as when the end had been asked for");
}

#[test]
fn what_is_no_trace_is_refused_with_the_reason() {
    let good = trace(&sample::overlapping_jobs(), 100);
    let error = |bytes: &[u8], window| read(bytes, window).expect_err("no trace").to_string();
    let beyond = Window { from_ns: 1_000_000_000, ..EVERYTHING };
    let errors = [
        error(b"{\"format\": 1}", EVERYTHING),
        error(&good[..good.len() - 1], EVERYTHING),
        error(b"", EVERYTHING),
        error(&good, beyond),
        error(&[good.as_slice(), b"\x0a\x03abc"].concat(), EVERYTHING),
    ];
    insta::assert_snapshot!(errors.join("\n"));
}

/// What the page's script does with [`Timeline::encode`].
fn decode(timeline: &Timeline) -> Vec<Row> {
    use base64::Engine as _;
    let encoded = timeline.encode();
    let bytes = base64::engine::general_purpose::STANDARD.decode(&encoded.base64).expect("base64");
    let mut bytes = bytes.into_iter();
    let mut next = move || {
        let mut value = 0u64;
        for shift in (0..).step_by(7) {
            let byte = bytes.next().expect("more bytes");
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        value
    };
    let signed = |value: u64| ((value >> 1) as i64) ^ -((value & 1) as i64);
    let headers = serde_json::to_value(&encoded.rows).expect("JSON");
    let rows = timeline.rows.iter().zip(headers.as_array().expect("rows")).map(|(row, header)| {
        let mut last = timeline.from_ns;
        let slices = (0..header["slices"].as_u64().expect("a count")).map(|_| {
            let begin_ns = last + next();
            last = begin_ns + next();
            Slice { begin_ns, end_ns: last, label: next() as u32 }
        });
        let slices = slices.collect();
        let (mut at, mut left) = (timeline.from_ns, 0i64);
        let budget = (0..header["steps"].as_u64().expect("a count")).map(|_| {
            at += next();
            left += signed(next());
            (at, left as u64)
        });
        let budget = budget.collect();
        let (mut release, mut number) = (timeline.from_ns as i64, -1);
        let jobs = (0..header["jobs"].as_u64().expect("a count")).map(|_| {
            release += signed(next());
            let deadline = release + signed(next());
            let response = next();
            number += 1 + signed(next());
            Job {
                number: number as u64,
                release_ns: release as u64,
                deadline_ns: deadline as u64,
                end_ns: response.checked_sub(1).map(|response| release as u64 + response),
            }
        });
        let jobs = jobs.collect();
        Row { slices, budget, jobs, ..row.clone() }
    });
    rows.collect()
}

#[test]
fn the_compact_form_holds_everything() {
    let window = Window { from_ns: 15_000, until_ns: 2_000_000, items_max: usize::MAX };
    for events in
        [sample::overlapping_jobs(), sample::nested_domains(), sample::same_instant(), sample::random(3_000)]
    {
        let timeline = read(&trace(&events, 1_000_000), Window { from_ns: 1, ..window }).expect("a trace");
        assert_eq!(decode(&timeline), timeline.rows);
    }
}

#[test]
fn a_simulated_host_executes_as_long_as_its_results_say() {
    let overrides = punctual_model::file::Overrides::default();
    let host = punctual_model::file::parse(sample::NESTED, "nested.toml", &overrides).expect("a host");
    let mut reader = Reader::new(EVERYTHING);
    let mut writer = PerfettoWriter::new(&host, &mut reader);
    let results = punctual_sim::simulate_traced(&host, &mut writer).expect("a run");
    writer.finish(punctual_sched::Instant::ZERO + host.duration).expect("a reader takes everything");
    let timeline = reader.finish().expect("a trace");
    for task in &results.tasks {
        let row = timeline.rows.iter().find(|row| row.name == task.name).expect("a row");
        assert_eq!(row.executing_ns(&timeline.labels), Some(task.cpu_time_ns), "{}", task.name);
        assert_eq!(row.missed(timeline.to_ns) as u64, task.jobs.missed, "{}", task.name);
        assert_eq!(row.jobs.len() as u64, task.jobs.released, "{}", task.name);
    }
    let vcpu = timeline.rows.iter().filter(|row| row.kind == RowKind::Vcpu).count();
    assert_eq!((vcpu, timeline.length_ns()), (results.vcpus.len(), Duration::from_ms(200).as_ns()));
}

#[test]
fn network_work_has_rows_of_its_own_and_counts_where_it_executes() {
    const NETWORK: &str = include_str!("../../../../examples/network.toml");
    let overrides = punctual_model::file::Overrides {
        duration: Some("20ms".into()),
        ..punctual_model::file::Overrides::default()
    };
    let host = punctual_model::file::parse(NETWORK, "network.toml", &overrides).expect("a host");
    let mut reader = Reader::new(EVERYTHING);
    let mut writer = PerfettoWriter::new(&host, &mut reader);
    let results = punctual_sim::simulate_traced(&host, &mut writer).expect("a run");
    writer.finish(punctual_sched::Instant::ZERO + host.duration).expect("a reader takes everything");
    let timeline = reader.finish().expect("a trace");
    for domain in &results.domains {
        let of = |kind| timeline.rows.iter().filter(move |row| row.group == domain.name && row.kind == kind);
        let steps: Vec<&Row> = of(RowKind::Network).collect();
        assert_eq!(steps.len(), usize::from(domain.network_ns > Some(0)), "{}", domain.name);
        assert!(steps.iter().all(|row| row.executing_ns(&timeline.labels).is_none()));
        let slices = of(RowKind::Vcpu).flat_map(|row| &row.slices);
        let network = slices.filter(|slice| timeline.labels[slice.label as usize].1 == Use::Network);
        let time: u64 = network.map(|slice| slice.end_ns - slice.begin_ns).sum();
        assert_eq!(Some(time), domain.network_ns, "{}", domain.name);
    }
}

proptest! {
    #[test]
    fn the_pieces_in_which_bytes_arrive_do_not_matter(pieces in prop::collection::vec(1usize..300, 1..40)) {
        let bytes = trace(&sample::random(300), 100_000);
        let mut reader = Reader::new(EVERYTHING);
        let mut rest = bytes.as_slice();
        for piece in pieces.iter().cycle() {
            let (now, later) = rest.split_at((*piece).min(rest.len()));
            reader.write_all(now).expect("a reader takes everything");
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(reader.finish(), read(&bytes, EVERYTHING));
    }

    #[test]
    fn no_bytes_make_reading_or_encoding_panic(at in any::<prop::sample::Index>(), byte: u8, noise: Vec<u8>) {
        let mut bytes = trace(&sample::random(100), 10_000);
        *at.get_mut(&mut bytes) = byte;
        for bytes in [&bytes, &noise] {
            if let Ok(timeline) = read(bytes, EVERYTHING) {
                timeline.encode();
            }
        }
    }
}

#[test]
fn a_window_that_was_cut_before_the_first_missed_deadline_names_one_that_has_it() {
    let steps = (1..20).map(|n| sample::budget(n, sample::WEB0, 100 - n));
    let job = |at: u64, job, missed| {
        let response = if missed { 15 } else { 5 };
        let release = sample::release(at, sample::CONTROL, job, at + 10);
        [release, sample::completion(at + response, sample::CONTROL, job, response, missed)]
    };
    let events: Events =
        steps.chain(job(40, 0, false)).chain(job(60, 1, true)).chain(job(80, 2, true)).collect();
    let bytes = trace(&events, 100);
    let window_of = |window| {
        let mut reader = Reader::new(window);
        reader.write_all(&bytes).expect("a reader takes everything");
        reader.window_of_first_miss()
    };
    let short = Window { items_max: 5, ..EVERYTHING };
    let found = window_of(short).expect("it was cut before the miss");
    assert_eq!((found.from_ns, found.until_ns, found.items_max), (50_000, u64::MAX, 5));
    let again = read(&bytes, found).expect("a trace");
    let late: Vec<u64> = again.rows.iter().flat_map(|row| &row.jobs).map(|job| job.deadline_ns).collect();
    assert_eq!(late[0], 70_000, "{late:?}");
    // Nothing was cut, or not before the miss.
    assert!(window_of(EVERYTHING).is_none());
    assert!(window_of(Window { items_max: 22, ..EVERYTHING }).is_none());
}
