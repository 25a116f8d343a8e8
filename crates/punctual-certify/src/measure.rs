//! Measures the host, and makes measurements of what the loops counted.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use punctual_guest::latency::{self, Counts, Hooks, Kind, Measured, Plan, Report, SLICES, WORST};
use punctual_linux::os::{load, sched};
use punctual_model::Histogram;
use punctual_model::acceptance::Measure;
use punctual_sched::Duration;

use crate::causes::{Answers, Question, Watch};
use crate::certificate::{Measurement, Slice, Worst};

/// What measuring the host gave.
pub(crate) struct OfHost {
    pub(crate) measurements: Vec<Measurement>,
    /// How causes are known.
    pub(crate) causes: String,
    pub(crate) report: Report,
}

/// Measures the host's processors; `with_causes`: and who had them during the longest latencies.
pub(crate) fn host(
    plan: &Plan,
    with_causes: bool,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(u32),
) -> Result<OfHost, latency::Error> {
    let (watch, causes) = if with_causes {
        Watch::start(&plan.processors, punctual_guest::os::now_ns)
    } else {
        (None, "not watched, as asked".into())
    };
    let sender = watch.as_ref().map(Watch::sender);
    let slow = |processor: usize, kind: Kind, slow: latency::Slow| {
        if let Some(sender) = &sender {
            let thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
            // If the queue is full, the causes of this latency stay unknown.
            let _ = sender.try_send(Question { processor, kind, slow, thread });
        }
    };
    let elsewhere = Elsewhere::go(&plan.processors);
    let before = load::loads(&plan.processors).unwrap_or_default();
    let report = latency::run(plan, &mut Hooks { stop, slow: &slow, progress });
    let after = load::loads(&plan.processors).unwrap_or_default();
    drop(elsewhere);
    let answers = watch.map(Watch::finish).unwrap_or_default();
    let report = report?;
    let pairs = plan.processors.iter().zip(before.into_iter().zip(after));
    let steal: BTreeMap<usize, u64> =
        pairs.map(|(processor, (before, after))| (*processor, (after - before).steal_ns)).collect();
    let measurements = measurements(None, &report, &answers, &steal);
    Ok(OfHost { measurements, causes, report })
}

/// The calling thread is on no measured processor until this is dropped, if there is another one: it reports
/// progress ten times a second.
struct Elsewhere(Vec<usize>);

impl Elsewhere {
    fn go(measured: &[usize]) -> Elsewhere {
        let before = sched::affinity(0).unwrap_or_default();
        let others: Vec<usize> = before.iter().copied().filter(|cpu| !measured.contains(cpu)).collect();
        // Refused if there is none.
        let _ = sched::set_affinity(0, &others);
        Elsewhere(before)
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = sched::set_affinity(0, &self.0);
    }
}

/// The measurements of a guest that reported; `None` if its numbers, which may be made up, contradict each
/// other or exceed what the plan permits.
pub(crate) fn guest(name: &str, plan: &Plan, report: &Report) -> Option<Vec<Measurement>> {
    let is_plausible = |one: &Measured| {
        let longest_ns = 2 * (plan.spin_ns + plan.wakeup_ns) + 1_000_000_000;
        one.slices.len() == SLICES
            && one.worst.len() <= WORST
            && one.watched_ns <= longest_ns
            && one.slices.iter().all(|counts| histogram(counts).is_ok())
    };
    let mut places: Vec<(usize, u32)> =
        report.measured.iter().map(|one| (one.processor, one.kind as u32)).collect();
    places.sort_unstable();
    let is_once = places.windows(2).all(|pair| pair[0] != pair[1]);
    let is_report = is_once && report.measured.iter().all(is_plausible);
    is_report.then(|| measurements(Some(name), report, &Answers::default(), &BTreeMap::new()))
}

fn measurements(
    guest: Option<&str>,
    report: &Report,
    answers: &Answers,
    steal: &BTreeMap<usize, u64>,
) -> Vec<Measurement> {
    let one = |measured: &Measured| {
        let slices: Vec<Histogram> =
            measured.slices.iter().map(|counts| histogram(counts).unwrap_or_default()).collect();
        let mut latencies = Histogram::new();
        slices.iter().for_each(|slice| latencies.merge(slice));
        Measurement {
            guest: guest.map(str::to_owned),
            processor: measured.processor,
            measure: measure(measured.kind),
            method: method(measured.kind).into(),
            watched_ns: measured.watched_ns,
            resolution_ns: measured.resolution_ns,
            skipped: measured.skipped,
            steal_ns: steal.get(&measured.processor).copied().unwrap_or(0),
            latencies,
            slices: slices.iter().zip(&measured.slices).map(|(of, counts)| slice(of, counts)).collect(),
            worst: worst(measured, report.epoch_us, answers),
        }
    };
    report.measured.iter().map(one).collect()
}

fn worst(measured: &Measured, epoch_us: u64, answers: &Answers) -> Vec<Worst> {
    let one = |slow: &latency::Slow| Worst {
        at_us: epoch_us.saturating_add(slow.at_ns / 1000),
        length_ns: slow.length_ns,
        causes: answers.of(measured.processor, measured.kind, slow.at_ns),
    };
    measured.worst.iter().map(one).collect()
}

/// Counts as a histogram.
fn histogram(of: &Counts) -> Result<Histogram, String> {
    let histogram = Histogram::from_buckets(&of.buckets, (of.min_ns, of.max_ns), of.sum_ns)?;
    let is_within = of.buckets.iter().all(|(low_ns, _)| *low_ns <= of.max_ns);
    if histogram.count() == of.count && is_within {
        Ok(histogram)
    } else {
        Err("the counts contradict each other".into())
    }
}

fn slice(of: &Histogram, counts: &Counts) -> Slice {
    let quantile = |ppm| Duration::as_ns(of.quantile_ppm(ppm));
    Slice {
        count: of.count(),
        p50_ns: quantile(500_000),
        p99_ns: quantile(990_000),
        max_ns: of.max().as_ns(),
        sum_ns: if of.count() == 0 { 0 } else { counts.sum_ns },
    }
}

fn measure(kind: Kind) -> Measure {
    match kind {
        Kind::Wakeup => Measure::Wakeup,
        Kind::Noise => Measure::Noise,
        Kind::Hardware => Measure::Hardware,
    }
}

/// By which method the loops of `punctual_guest::latency` measure.
fn method(kind: Kind) -> &'static str {
    match kind {
        Kind::Wakeup => "absolute timer of a sleeping thread (cyclictest's loop)",
        Kind::Noise => "gaps seen by a spinning thread (oslat's loop)",
        Kind::Hardware => "gaps of a spinning thread less the time that the kernel did not charge it",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up;

    fn report() -> Report {
        let counts = Counts { count: 2, min_ns: 10, max_ns: 30, sum_ns: 40, buckets: vec![(10, 1), (30, 1)] };
        let measured = Measured {
            processor: 0,
            kind: Kind::Wakeup,
            watched_ns: 1_000_000_000,
            resolution_ns: 0,
            skipped: 0,
            slices: vec![counts; SLICES],
            worst: Vec::new(),
        };
        Report { measured: vec![measured], stopped: false, locked: true, epoch_us: 0, kernel: String::new() }
    }

    #[test]
    fn a_guest_that_contradicts_itself_is_no_measurement() {
        let measured = guest("vm1", &made_up::plan(1_000_000_000), &report()).expect("it fits");
        assert_eq!((measured.len(), measured[0].latencies.count()), (1, 20));
        let wrong: [fn(&mut Report); 6] = [
            |report| report.measured[0].slices[3].count = 3,
            |report| report.measured[0].slices[3].max_ns = 5,
            |report| report.measured[0].slices[3].buckets[1].0 = 999,
            |report| report.measured[0].watched_ns = u64::MAX,
            |report| report.measured[0].slices.truncate(2),
            |report| report.measured.push(report.measured[0].clone()),
        ];
        for (index, change) in wrong.into_iter().enumerate() {
            let mut report = report();
            change(&mut report);
            assert!(guest("vm1", &made_up::plan(1_000_000_000), &report).is_none(), "{index}");
        }
    }
}
