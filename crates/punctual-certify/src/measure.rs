//! Measures the host, and makes measurements of what the loops counted.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use punctual_guest::latency::{self, Counts, Hooks, Kind, Measured, Plan, Report};
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

/// The measurements of a guest that reported.
pub(crate) fn guest(name: &str, report: &Report) -> Vec<Measurement> {
    measurements(Some(name), report, &Answers::default(), &BTreeMap::new())
}

fn measurements(
    guest: Option<&str>,
    report: &Report,
    answers: &Answers,
    steal: &BTreeMap<usize, u64>,
) -> Vec<Measurement> {
    let one = |measured: &Measured| {
        let slices: Vec<Histogram> = measured.slices.iter().map(histogram).collect();
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

/// Of counts that a guest may have made up: those that contradict themselves count as none.
fn histogram(of: &Counts) -> Histogram {
    Histogram::from_buckets(&of.buckets, (of.min_ns, of.max_ns), of.sum_ns).unwrap_or_default()
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
