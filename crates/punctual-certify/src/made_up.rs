//! Made-up certificates for the tests of this crate.

use punctual_guest::latency::Plan;
use punctual_model::Histogram;
use punctual_model::acceptance::{Limits, Measure};
use punctual_sched::Duration;

use crate::certificate::{Cause, CauseKind, Certificate, Conduct, Item, Measurement, Slice, Worst};
use crate::verdict;

/// What is measured of a guest: wake-ups for so long.
pub(crate) fn plan(wakeup_ns: u64) -> Plan {
    Plan {
        processors: Vec::new(),
        spin_ns: 0,
        burst_ns: 50_000_000,
        wakeup_ns,
        interval_ns: 1_000_000,
        priority: 0,
    }
}

pub(crate) fn conduct() -> Conduct {
    Conduct {
        wanted_ms: 10_000,
        measured_ms: 10_000,
        stopped: false,
        processors: vec![1],
        interval_ns: 1_000_000,
        priority: 80,
        loads: vec!["cpu".into()],
        causes: "tracepoints".into(),
        missing: Vec::new(),
        notes: Vec::new(),
    }
}

/// With one slice for each tenth of the latencies.
pub(crate) fn measurement(
    guest: Option<&str>,
    processor: usize,
    measure: Measure,
    latencies_ns: &[u64],
) -> Measurement {
    let histogram = |all: &[u64]| {
        let mut histogram = Histogram::new();
        all.iter().for_each(|ns| histogram.record(Duration::from_ns(*ns)));
        histogram
    };
    let slice = |all: &[u64]| {
        let histogram = histogram(all);
        Slice {
            count: histogram.count(),
            p50_ns: histogram.quantile_ppm(500_000).as_ns(),
            p99_ns: histogram.quantile_ppm(990_000).as_ns(),
            max_ns: histogram.max().as_ns(),
            sum_ns: all.iter().sum(),
        }
    };
    Measurement {
        guest: guest.map(str::to_owned),
        processor,
        measure,
        method: "cyclictest's loop".into(),
        watched_ns: 1_000_000_000,
        resolution_ns: 0,
        skipped: 0,
        steal_ns: 0,
        latencies: histogram(latencies_ns),
        slices: latencies_ns.chunks(latencies_ns.len().div_ceil(10).max(1)).map(slice).collect(),
        worst: vec![Worst {
            at_us: 1_790_000_000_000_000,
            length_ns: latencies_ns.iter().copied().max().unwrap_or(0),
            causes: vec![Cause { kind: CauseKind::Thread, who: "<hog> & co".into(), time_ns: 7 }],
        }],
    }
}

/// A complete one.
pub(crate) fn certificate(measurements: Vec<Measurement>, limits: Option<Limits>) -> Certificate {
    let (format, version, program) = Certificate::head();
    let verdict = verdict::judge(limits.as_ref(), &measurements, &conduct());
    Certificate {
        format,
        version,
        program,
        host: "node1".into(),
        begun_us: 1_790_000_000_000_000,
        ended_us: 1_790_000_010_000_000,
        conduct: conduct(),
        fingerprint: vec![Item {
            name: "kernel release".into(),
            value: Some("6.12.1".into()),
            reason: None,
            source: "/proc/sys/kernel/osrelease".into(),
        }],
        findings: Vec::new(),
        measurements,
        limits,
        verdict,
    }
}
