//! A test from its plan to its certificate.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use punctual_doctor::doctor::Root;
use punctual_guest::latency::{self, BURST_MAX_NS, BURST_PERIOD_NS};
use punctual_linux::os::load as processors_load;
use punctual_linux::preflight;
use punctual_model::acceptance::{Limits, Measure};

use crate::certificate::{Certificate, Conduct, Measurement};
use crate::guest::{Guest, GuestError};
use crate::load::{LoadError, Loads};
use crate::{fingerprint, hwlat, measure, verdict};

/// What to test.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How long, guests included.
    pub length: Duration,
    /// The host's processors; if empty, those that are isolated, or all but 0.
    pub processors: Vec<usize>,
    /// The period of the timers.
    pub interval: Duration,
    /// The `SCHED_FIFO` priority of the measuring threads, at most 98; 0: the fair class.
    pub priority: u32,
    /// The loads to run beside, by name.
    pub loads: Vec<String>,
    /// The guests.
    pub guests: Vec<Guest>,
    /// Find out who had the processor during the longest latencies?
    pub with_causes: bool,
    /// What was promised.
    pub limits: Option<Limits>,
}

/// How a test talks to its caller.
pub struct Talk<'t> {
    /// Should the test end?
    pub stopped: &'t dyn Fn() -> bool,
    /// Called ten times a second: what is measured, and the share of it that is done, in millionths.
    pub progress: &'t mut dyn FnMut(&str, u32),
    /// This program.
    pub program: PathBuf,
    /// Its command that calls [`run_load`](crate::load::run_load) with its argument.
    pub load_command: &'t str,
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertifyError {
    /// A processor is not among those.
    #[error("processor {wanted}: this process may use {}", preflight::list(.allowed))]
    Forbidden {
        /// The processor.
        wanted: usize,
        /// Those that it may use.
        allowed: Vec<usize>,
    },
    /// None would be left for everything else.
    #[error(
        "real-time threads on {} would leave no processor for everything else: leave one out, or measure in \
         the fair class (--priority 0)",
        preflight::list(.0)
    )]
    NoneLeft(Vec<usize>),
    /// The only processor is measured only if it is named.
    #[error("this process may use processor 0 alone: --processors 0 --priority 0 measures it")]
    OnlyZero,
    /// This process may not be real-time.
    #[error("{0}; --priority 0 measures in the fair class")]
    NotPermitted(#[source] preflight::Error),
    /// The kernel leaves real-time threads too little.
    #[error("real-time threads may run for {0} us of {1} us (sched_rt_runtime_us): too little to spin")]
    RealTimeLimit(i64, i64),
    /// A load does not run.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The host was not measured.
    #[error(transparent)]
    Host(#[from] latency::Error),
}

/// Tests the host and the guests. Ctrl-C leaves what was measured until then, as incomplete.
///
/// # Errors
/// The plan does not fit the machine, or the host could not be measured. A guest that could not be measured
/// is part of the certificate.
pub fn run(plan: &Plan, talk: &mut Talk<'_>) -> Result<Certificate, CertifyError> {
    let processors = processors(plan)?;
    // Without rights it cannot be used, and without real-time threads it would be the only one.
    let tracer = hwlat::find().filter(|_| plan.priority > 0);
    let inner = inner_plan(plan, &processors, tracer.is_some())?;
    let (begun, begun_us) = (Instant::now(), now_us());
    let mut loads = Loads::start(&plan.loads, &talk.program, talk.load_command)?;
    let stop = AtomicBool::new(false);
    let mut progress = |what: &str, ppm| {
        stop.fetch_or((talk.stopped)(), Ordering::Relaxed);
        (talk.progress)(what, ppm);
    };
    let hardware = tracer.map(|tracefs| {
        let length = Duration::from_nanos(inner.spin_ns);
        hwlat::measure(&tracefs, &processors, length, &stop, &mut |ppm| progress("hardware", ppm))
    });
    let host = measure::host(&inner, plan.with_causes, &stop, &mut |ppm| progress("the host", ppm))?;
    let mut notes = notes(&host.report, &host.measurements);
    let mut missing = Vec::new();
    let mut measurements = host.measurements;
    match hardware {
        Some(Ok(hardware)) => {
            measurements.retain(|one| one.measure != Measure::Hardware);
            measurements.extend(hardware);
        }
        Some(Err(error)) => notes.push(format!("The kernel's hwlat tracer could not be used: {error}.")),
        None => {}
    }
    for (guest, answer) in guests(plan, &inner, talk) {
        match answer {
            Ok(report) => match measure::guest(&guest.name, &inner, &report) {
                Some(of_guest) => measurements.extend(of_guest),
                None => missing.push(format!("guest {}: its report contradicts itself", guest.name)),
            },
            Err(error) => missing.push(format!("guest {}: {error}", guest.name)),
        }
    }
    missing.extend(loads.ended());
    drop(loads);
    if host.report.stopped {
        notes.push("stopped by its user: what was measured until then is here".into());
    }
    let conduct = Conduct {
        wanted_ms: ms(plan.length),
        measured_ms: ms(begun.elapsed()).min(ms(plan.length)),
        stopped: host.report.stopped || (talk.stopped)(),
        processors: processors.clone(),
        interval_ns: inner.interval_ns,
        priority: plan.priority,
        loads: plan.loads.clone(),
        causes: host.causes,
        missing,
        notes,
    };
    Ok(certificate(plan, begun_us, conduct, measurements))
}

fn certificate(plan: &Plan, begun_us: u64, conduct: Conduct, measurements: Vec<Measurement>) -> Certificate {
    let (format, version, program) = Certificate::head();
    let root = Root::new("/");
    Certificate {
        format,
        version,
        program,
        host: root.text("/proc/sys/kernel/hostname").unwrap_or_default(),
        begun_us,
        ended_us: now_us(),
        fingerprint: fingerprint::read(&root, &conduct.processors),
        findings: fingerprint::findings(root, &conduct.processors),
        verdict: verdict::judge(plan.limits.as_ref(), &measurements, &conduct),
        limits: plan.limits.clone(),
        conduct,
        measurements,
    }
}

/// The host's processors that are measured.
fn processors(plan: &Plan) -> Result<Vec<usize>, CertifyError> {
    let allowed = latency::processors()?;
    let wanted = match plan.processors.as_slice() {
        [] => preferred(&allowed),
        some => some.to_vec(),
    };
    if let Some(&wanted) = wanted.iter().find(|wanted| !allowed.contains(wanted)) {
        return Err(CertifyError::Forbidden { wanted, allowed });
    }
    if wanted.is_empty() {
        return Err(CertifyError::OnlyZero);
    }
    if plan.priority > 0 {
        preflight::real_time().map_err(CertifyError::NotPermitted)?;
        if preflight::online().iter().all(|processor| wanted.contains(processor)) {
            return Err(CertifyError::NoneLeft(wanted));
        }
    }
    Ok(wanted)
}

/// Those that are isolated (`isolcpus=`), or all but 0.
fn preferred(allowed: &[usize]) -> Vec<usize> {
    let text = Root::new("/").text("/sys/devices/system/cpu/isolated").unwrap_or_default();
    let isolated = preflight::parse_cpu_list(&text).unwrap_or_default();
    let is_isolated: Vec<usize> = allowed.iter().copied().filter(|cpu| isolated.contains(cpu)).collect();
    if is_isolated.is_empty() {
        allowed.iter().copied().filter(|&cpu| cpu != 0).collect()
    } else {
        is_isolated
    }
}

/// What the loops do on the host, then in each guest: the time is divided equally between the host's loops
/// and tracer, and the guests' loops.
fn inner_plan(plan: &Plan, processors: &[usize], has_tracer: bool) -> Result<latency::Plan, CertifyError> {
    let length_ns = u64::try_from(plan.length.as_nanos()).unwrap_or(u64::MAX);
    let parts = 2 + u64::from(has_tracer) + if plan.guests.is_empty() { 0 } else { 2 };
    Ok(latency::Plan {
        processors: processors.to_vec(),
        spin_ns: length_ns / parts,
        burst_ns: burst_ns(plan.priority, preflight::rt_limit())?,
        wakeup_ns: length_ns / parts,
        interval_ns: u64::try_from(plan.interval.as_nanos()).unwrap_or(u64::MAX),
        priority: plan.priority,
    })
}

/// The kernel throttles real-time threads at a share of each period. A thread that spins stays a tenth of
/// all time below that.
fn burst_ns(priority: u32, limit: Option<(i64, i64)>) -> Result<u64, CertifyError> {
    let Some((runtime_us, period_us)) = limit.filter(|_| priority > 0) else { return Ok(BURST_MAX_NS) };
    let share_ppm = u64::try_from(runtime_us * 1_000_000 / period_us.max(1)).unwrap_or(0);
    let burst_ns = BURST_PERIOD_NS / 1_000 * share_ppm.saturating_sub(100_000) / 1_000;
    if burst_ns < 1_000_000 {
        return Err(CertifyError::RealTimeLimit(runtime_us, period_us));
    }
    Ok(burst_ns.min(BURST_MAX_NS))
}

/// Measures all guests at once, on all of their processors.
fn guests<'p>(
    plan: &'p Plan,
    inner: &latency::Plan,
    talk: &mut Talk<'_>,
) -> Vec<(&'p Guest, Result<latency::Report, GuestError>)> {
    if plan.guests.is_empty() || (talk.stopped)() {
        return plan.guests.iter().map(|guest| (guest, Err(GuestError::Stopped))).collect();
    }
    // A guest may have another limit for real-time threads, so bursts are those of the kernel's default.
    let inner = latency::Plan { processors: Vec::new(), burst_ns: BURST_MAX_NS, ..inner.clone() };
    let length = Duration::from_nanos(inner.spin_ns + inner.wakeup_ns);
    let (stop, begun) = (AtomicBool::new(false), Instant::now());
    std::thread::scope(|scope| {
        let measure = |guest: &'p Guest| {
            let (inner, stop) = (&inner, &stop);
            scope.spawn(move || guest.measure(inner, &|| stop.load(Ordering::Relaxed)))
        };
        let threads: Vec<_> = plan.guests.iter().map(|guest| (guest, measure(guest))).collect();
        while threads.iter().any(|(_, thread)| !thread.is_finished()) {
            stop.fetch_or((talk.stopped)(), Ordering::Relaxed);
            let ppm = begun.elapsed().as_nanos() * 1_000_000 / length.as_nanos().max(1);
            (talk.progress)("guests", ppm.min(1_000_000) as u32);
            std::thread::sleep(Duration::from_millis(100));
        }
        let join = |(guest, thread): (_, std::thread::ScopedJoinHandle<'_, _>)| {
            (guest, thread.join().unwrap_or(Err(GuestError::Stopped)))
        };
        threads.into_iter().map(join).collect()
    })
}

/// What a reader must know about how the host was measured.
fn notes(report: &latency::Report, measurements: &[Measurement]) -> Vec<String> {
    let mut notes = Vec::new();
    // Once for each processor.
    for one in measurements.iter().filter(|one| one.measure == Measure::Wakeup && one.steal_ns > 0) {
        let (processor, ms) = (one.processor, one.steal_ns / 1_000_000);
        notes.push(format!("A hypervisor below took {ms} ms of processor {processor} (steal)."));
    }
    if !processors_load::kernel_knows_interrupts() {
        notes.push(
            "The kernel does not account for the time of interrupts, so interrupts are part of `hardware` \
             (CONFIG_IRQ_TIME_ACCOUNTING)."
                .into(),
        );
    }
    if !report.locked {
        notes.push("Memory could not be locked: page faults may be among the latencies.".into());
    }
    notes
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn now_us() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_stay_below_the_kernels_limit_for_real_time_threads() {
        let burst = |limit| burst_ns(80, limit).map(|ns| ns / 1_000_000).ok();
        assert_eq!(burst(Some((950_000, 1_000_000))), Some(75));
        assert_eq!(burst(Some((500_000, 1_000_000))), Some(40));
        assert_eq!(burst(None), Some(75));
        assert_eq!(burst(Some((100_000, 1_000_000))), None);
        assert_eq!(burst_ns(0, Some((0, 1_000_000))).ok(), Some(75_000_000));
    }

    #[test]
    fn processors_that_cannot_be_measured_are_refused_with_the_reason() {
        let plan = |processors: Vec<usize>, priority| Plan {
            length: Duration::from_secs(1),
            processors,
            interval: Duration::from_millis(1),
            priority,
            loads: Vec::new(),
            guests: Vec::new(),
            with_causes: false,
            limits: None,
        };
        let error = processors(&plan(vec![60_000], 0)).expect_err("no machine has it").to_string();
        assert!(error.starts_with("processor 60000: this process may use 0"), "{error}");
        let all = preflight::online();
        assert_eq!(processors(&plan(all.clone(), 0)).expect("fair threads starve nobody"), all);
        let error = processors(&plan(all, 80)).expect_err("nothing would be left").to_string();
        assert!(error.contains("--priority 0"), "{error}");
    }
}
