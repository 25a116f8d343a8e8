//! A host file in guests of Xen, from domain 0.
//!
//! ```text
//! Plan      can it be run in Xen?
//! Setup     cpupools and guests are there; whatever happens, dropping it puts everything back
//! Measured  the tasks have run; Results (source "live")
//! ```

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration as StdDuration;

use punctual_guest::os::{now_ns, sleep_until};
use punctual_guest::protocol;
use punctual_model::host::Work;
use punctual_model::index::{DomainIx, PoolIx, TaskIx};
use punctual_model::results::{
    ProcessorTotals, ResultsBuilder, SchedulerTotals, Source, TaskTotals, VcpuTotals,
};
use punctual_model::{Host, Results};
use punctual_sched::registry::{Options, PolicyInfo};
use punctual_sched::{CpuId, CpuSet, Duration, UnitParams};

use crate::control::{Control, Counts};
use crate::error::Error;
use crate::plan::{FIRST_POOL, MANAGER, Plan};
use crate::{guest, tools};
use punctual_linux::channel::Stop;
use punctual_linux::machine;
use punctual_vm::periods;
use punctual_vm::workload::{self, Client, GuestMeasurement};

/// How long a guest may take to announce itself: more than a minute in an emulator, under some policies.
const BOOT: StdDuration = StdDuration::from_secs(180);
/// How long a guest measures its processor, each of two times.
const CALIBRATION: StdDuration = StdDuration::from_millis(200);
/// How long guests run their tasks before the run.
const WARM_UP_NS: u64 = 100_000_000;
/// From the order to run until the tasks start: guests with small budgets have to take the order.
const LEAD_NS: u64 = 2_000_000_000;
/// Tasks begin when all servers of a pool begin a period, if that happens once in this time.
const COMMON_PERIOD_MAX_NS: u64 = 10_000_000_000;
/// So long before the tasks start domain 0 asks for counts: that starts programs.
const COUNT_BEFORE_NS: u64 = 500_000_000;
/// So long before it asks how long vCPUs have run.
const ASK_BEFORE_NS: u64 = 5_000_000;
/// How long domain 0 sleeps before it looks whether the user wants an end.
const LOOK_NS: u64 = 250_000_000;

/// How a host is run.
pub struct RunOptions<'a> {
    /// The Linux kernel of the guests: an ELF file that can be a PV guest.
    pub kernel: &'a Path,
    /// Memory of a guest.
    pub memory_mib: u32,
    /// Is told what happens.
    pub progress: &'a dyn Fn(&str),
    /// Does the user want an end?
    pub stop: Stop,
}

/// Runs a host, which takes as long as its duration says and some seconds for each guest. Afterwards Xen is
/// as before.
///
/// # Errors
/// The host cannot be run in Xen, Xen refuses, or a guest does not do its part.
pub fn run(host: &Host, control: &mut Control, options: &RunOptions<'_>) -> Result<Results, Error> {
    let plan = Plan::new(host)?;
    let mut setup = Setup::new(host, &plan, control, options)?;
    let mut guests = setup.guests(host, &plan)?;
    setup.policies(host)?;
    setup.parameters(host, &plan)?;
    let (vcpus, reports) = setup.measure(host, &plan, &mut guests)?;
    drop(guests);
    drop(setup);
    Ok(results(host, &plan, &vcpus, reports))
}

/// A domain with its program.
struct Guest {
    ix: DomainIx,
    client: Client,
    iterations_per_ms: u64,
    ahead_ns: i64,
    tasks: Vec<(TaskIx, protocol::Task)>,
}

/// What was changed, and how it was before.
#[derive(Debug)]
enum Step {
    Guest(String),
    Pool(String),
    Processor(usize),
    Policy {
        pool: String,
        policy: String,
        options: String,
    },
    /// Of domain 0.
    Unit {
        pool: String,
        vcpu: u32,
        params: Box<UnitParams>,
    },
    /// Of domain 0, as `xl vcpu-pin` takes it.
    Affinity {
        vcpu: u32,
        processors: String,
    },
}

/// Cpupools and guests of a run.
struct Setup<'a> {
    control: &'a mut Control,
    options: &'a RunOptions<'a>,
    /// By pool of the host: the cpupool's name.
    pools: Vec<String>,
    /// By domain of the host: its number.
    domains: Vec<u32>,
    done: Vec<Step>,
    folder: tempfile::TempDir,
}

impl<'a> Setup<'a> {
    /// The pools. Their policies are tried; then they have that for booting.
    fn new(
        host: &Host,
        plan: &Plan,
        control: &'a mut Control,
        options: &'a RunOptions<'a>,
    ) -> Result<Setup<'a>, Error> {
        for domain in host.domains.iter().filter(|domain| domain.name != MANAGER) {
            if tools::runs(&domain.name)? {
                let why = "such a guest runs already".into();
                return Err(Error::Host { item: domain.name.clone(), why });
            }
        }
        let folder = tempfile::tempdir().map_err(|source| Error::File { what: "a folder".into(), source })?;
        let domains = vec![0; host.domains.len()];
        let mut setup = Setup { control, options, pools: Vec::new(), domains, done: Vec::new(), folder };
        for (index, pool) in host.pools.iter().enumerate() {
            let name = if plan.first == Some(PoolIx(index)) {
                FIRST_POOL
            } else {
                setup.create_pool(&pool.name, &pool.processors, pool.policy.info.name)?
            };
            let (policy, before) = setup.control.policy(name)?;
            setup.done.push(Step::Policy { pool: name.into(), policy, options: before });
            setup.pools.push(name.into());
        }
        setup.policies(host)?;
        setup.boot_policies()?;
        if let Some(first) = plan.first {
            setup.shrink_first_pool(&host.pools[first.0].processors)?;
        }
        Ok(setup)
    }

    /// Gives each pool its policy.
    fn policies(&mut self, host: &Host) -> Result<(), Error> {
        for (name, pool) in self.pools.iter().zip(&host.pools) {
            let text = options_text(&pool.policy.options);
            self.control.set_policy(name, pool.policy.info.name, &text)?;
        }
        Ok(())
    }

    /// Gives each pool the policy for booting and for reports: a VM with work runs if the processor is free.
    fn boot_policies(&mut self) -> Result<(), Error> {
        if let Some(policy) = self.control.boot_policy()? {
            for name in &self.pools {
                self.control.set_policy(name, policy, "")?;
            }
        }
        Ok(())
    }

    fn create_pool<'p>(
        &mut self,
        name: &'p str,
        processors: &[usize],
        policy: &str,
    ) -> Result<&'p str, Error> {
        let scheduler = self.control.scheduler(policy)?;
        processors.iter().try_for_each(|cpu| self.take_from_first_pool(*cpu))?;
        let cpus: Vec<String> = processors.iter().map(|cpu| format!("\"{cpu}\"")).collect();
        let text = format!("name = \"{name}\"\nsched = \"{scheduler}\"\ncpus = [{}]\n", cpus.join(", "));
        let file = self.write(&format!("{name}.pool.cfg"), text.as_bytes())?;
        tools::tool("xl", &["cpupool-create", &file.display().to_string()])?;
        self.done.push(Step::Pool(name.into()));
        Ok(name)
    }

    fn take_from_first_pool(&mut self, cpu: usize) -> Result<(), Error> {
        tools::tool("xl", &["cpupool-cpu-remove", FIRST_POOL, &cpu.to_string()])?;
        self.done.push(Step::Processor(cpu));
        Ok(())
    }

    /// Leaves it the processors that the host file says.
    fn shrink_first_pool(&mut self, processors: &[usize]) -> Result<(), Error> {
        let has = tools::processors(FIRST_POOL)?;
        if let Some(cpu) = processors.iter().find(|cpu| !has.contains(cpu)) {
            return Err(Error::Refused(format!("{FIRST_POOL} has no processor {cpu}, it has {has:?}")));
        }
        has.iter().filter(|cpu| !processors.contains(cpu)).try_for_each(|cpu| self.take_from_first_pool(*cpu))
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<PathBuf, Error> {
        let path = self.folder.path().join(name);
        let written = std::fs::File::create(&path).and_then(|mut file| file.write_all(bytes));
        written.map_err(|source| Error::File { what: path.display().to_string(), source })?;
        Ok(path)
    }

    /// Starts the guests one after the other; each measures its processor while the others rest.
    fn guests(&mut self, host: &Host, plan: &Plan) -> Result<Vec<Guest>, Error> {
        let ramdisk = self.write("guest.cpio", &guest::ramdisk())?;
        let mut guests = Vec::new();
        for (ix, tasks) in &plan.guests {
            let domain = &host.domains[ix.0];
            let name = domain.name.as_str();
            (self.options.progress)(&format!("booting {name}"));
            let pool = &self.pools[host.pool_of(domain.parent).0];
            let files = (self.options.kernel, ramdisk.as_path(), self.options.memory_mib);
            let text = guest::configuration((name, domain.vcpus.len(), pool), files);
            let file = self.write(&format!("{name}.cfg"), text.as_bytes())?;
            self.done.push(Step::Guest(name.into()));
            tools::tool("xl", &["create", "-q", &file.display().to_string()])?;
            let told = tools::tool("xl", &["domid", name])?;
            let id = told.trim().parse().map_err(|_| Error::Tool { line: "xl domid".into(), said: told })?;
            self.domains[ix.0] = id;
            let mut client = guest::connect(name, id, BOOT, self.options.stop)?;
            self.check()?;
            (self.options.progress)(&format!("calibrating {name}"));
            let said = |source| Error::Guest { domain: name.into(), source };
            let (iterations_per_ms, ahead_ns) = calibrate(&mut client, tasks).map_err(said)?;
            guests.push(Guest { ix: *ix, client, iterations_per_ms, ahead_ns, tasks: tasks.clone() });
        }
        Ok(guests)
    }

    /// Sets what the host file says; domain 0 comes last, for it may have little.
    fn parameters(&mut self, host: &Host, plan: &Plan) -> Result<(), Error> {
        let all = plan.guests.iter().map(|(ix, _)| *ix).chain(plan.manager);
        for ix in all {
            let domain = &host.domains[ix.0];
            let place = host.pool_of(domain.parent).0;
            let (pool, policy) = (self.pools[place].clone(), host.pools[place].policy.info);
            for (number, vcpu) in (0..).zip(&host.vcpus[domain.vcpus.clone()]) {
                let id = self.domains[ix.0];
                if Some(ix) == plan.manager {
                    let (before, _) = self.control.unit(&pool, id, number)?;
                    let step = Step::Unit { pool: pool.clone(), vcpu: number, params: Box::new(before) };
                    self.done.push(step);
                }
                if let Some(affinity) = &vcpu.params.affinity {
                    self.set_affinity(id, number, affinity, &host.pools[place].processors)?;
                }
                let params = in_full(policy, &vcpu.params);
                self.control.set_unit(&pool, id, number, &params)?;
            }
        }
        Ok(())
    }

    /// `affinity` counts the `processors` of the pool.
    fn set_affinity(
        &mut self,
        domain: u32,
        vcpu: u32,
        affinity: &CpuSet,
        processors: &[usize],
    ) -> Result<(), Error> {
        if domain == 0 {
            let processors = tools::affinity(vcpu)?;
            self.done.push(Step::Affinity { vcpu, processors });
        }
        let may = |at: &usize| affinity.contains(CpuId(*at as u32));
        let may_use = (0..processors.len()).filter(may).map(|at| processors[at].to_string());
        pin(domain, vcpu, &may_use.collect::<Vec<_>>().join(","))
    }

    /// Lets all guests run their tasks from one instant on; what happened to each vCPU meanwhile, and what
    /// the guests tell.
    fn measure(
        &mut self,
        host: &Host,
        plan: &Plan,
        guests: &mut [Guest],
    ) -> Result<(Vec<VcpuTotals>, Vec<GuestMeasurement>), Error> {
        let duration_ns = host.duration.as_ns();
        let start_ns = self.begin_periods(host)?;
        let end_ns = start_ns + duration_ns;
        for guest in guests.iter_mut() {
            let tasks: Vec<_> = guest.tasks.iter().map(|(_, task)| task.clone()).collect();
            let begun = guest.client.begin(
                &tasks,
                None,
                guest.iterations_per_ms,
                (start_ns, guest.ahead_ns),
                duration_ns,
            );
            begun.map_err(|source| named(host, guest.ix, source))?;
        }
        (self.options.progress)("running");
        std::thread::scope(|scope| {
            let limit = StdDuration::from_nanos(end_ns.saturating_sub(now_ns()));
            let waiting: Vec<_> = guests
                .iter_mut()
                .map(|guest| (guest.ix, scope.spawn(move || guest.client.finish(limit))))
                .collect();
            self.wait_until(start_ns - COUNT_BEFORE_NS)?;
            let counted = self.counts(host, plan)?;
            self.wait_until(start_ns - ASK_BEFORE_NS)?;
            let before = self.times(host)?;
            let late_ns = now_ns().saturating_sub(start_ns);
            if late_ns > duration_ns / 100 {
                let late = Duration::from_ns(late_ns);
                let why = format!("it knows what vCPUs ran only {late} after the tasks began: give it more");
                return Err(Error::Host { item: MANAGER.into(), why });
            }
            self.wait_until(end_ns)?;
            let after = self.times(host)?;
            let counts = self.counts(host, plan)?;
            // Reports need domain 0, and are no part of the run. With what it had before, budgets may be more
            // than there is time: under periodic servers, which idle them away, some guests would get none.
            self.boot_policies()?;
            self.put_back(|step| matches!(step, Step::Unit { .. }));
            let mut reports = Vec::new();
            for (ix, thread) in waiting {
                let report = thread.join().unwrap_or(Err(workload::ProtocolError::NotBegun.into()));
                reports.push(report.map_err(|source| named(host, ix, source))?);
            }
            let spent = before.iter().zip(&after).map(|(before, after)| after.saturating_sub(*before));
            let vcpus = spent.zip(counts.iter().zip(&counted)).map(|(ns, (after, before))| VcpuTotals {
                cpu_time: Duration::from_ns(ns),
                exhaustions: after.exhaustions.saturating_sub(before.exhaustions),
                replenishments: after.replenishments.saturating_sub(before.replenishments),
                ..VcpuTotals::default()
            });
            Ok((vcpus.collect(), reports))
        })
    }

    /// Creates each pool again with the same policy, so that the periods of its servers begin at one instant.
    /// Returns the instant at which tasks begin, by domain 0's clock: a whole number of all these periods
    /// later, as in simulation. A second pool begins about that long after the first one.
    fn begin_periods(&mut self, host: &Host) -> Result<u64, Error> {
        let common_ns = periods::common_ns(host, COMMON_PERIOD_MAX_NS);
        let mut first = None;
        for (name, pool) in self.pools.clone().iter().zip(&host.pools) {
            if let (Some((begun_ns, lead_ns)), Some(common_ns)) = (first, common_ns) {
                self.wait_until(periods::next_ns(begun_ns, common_ns, now_ns() + lead_ns) - lead_ns)?;
            }
            let asked_ns = now_ns();
            let text = options_text(&pool.policy.options);
            let begun = self.control.set_policy(name, pool.policy.info.name, &text)?;
            first = first.or(begun.map(|ns| (ns, ns.saturating_sub(asked_ns))));
        }
        let earliest_ns = now_ns() + LEAD_NS;
        Ok(match (first, common_ns) {
            (Some((begun_ns, _)), Some(common_ns)) => periods::next_ns(begun_ns, common_ns, earliest_ns),
            _ => earliest_ns,
        })
    }

    fn wait_until(&self, at_ns: u64) -> Result<(), Error> {
        while now_ns() < at_ns {
            sleep_until(at_ns.min(now_ns() + LOOK_NS));
            self.check()?;
        }
        Ok(())
    }

    fn check(&self) -> Result<(), Error> {
        if (self.options.stop)() { Err(Error::Stopped) } else { Ok(()) }
    }

    /// How long each vCPU of the host has run.
    fn times(&mut self, host: &Host) -> Result<Vec<u64>, Error> {
        let mut times = Vec::new();
        for (domain, id) in host.domains.iter().zip(self.domains.clone()) {
            for vcpu in 0..domain.vcpus.len() as u32 {
                times.push(self.control.vcpu_time_ns(id, vcpu)?);
            }
        }
        Ok(times)
    }

    /// How often each vCPU's budget was used up and replenished since the tasks began.
    fn counts(&mut self, host: &Host, plan: &Plan) -> Result<Vec<Counts>, Error> {
        let mut counts = vec![Counts::default(); host.vcpus.len()];
        for (ix, _) in &plan.guests {
            let domain = &host.domains[ix.0];
            let pool = &self.pools[host.pool_of(domain.parent).0];
            for (number, at) in (0..).zip(domain.vcpus.clone()) {
                let (_, counted) = self.control.unit(pool, self.domains[ix.0], number)?;
                counts[at] = counted.unwrap_or_default();
            }
        }
        Ok(counts)
    }

    /// Undoes those steps, the last one first. What cannot be undone is said, and the others go on.
    fn put_back(&mut self, which: fn(&Step) -> bool) {
        let (undo, keep) = std::mem::take(&mut self.done).into_iter().partition(which);
        self.done = keep;
        let undo: Vec<Step> = undo;
        for step in undo.into_iter().rev() {
            if let Err(error) = self.undo(&step) {
                (self.options.progress)(&format!("{step:?} could not be undone: {error}"));
            }
        }
    }

    fn undo(&mut self, step: &Step) -> Result<(), Error> {
        match step {
            // It was not made, or has ended by itself.
            Step::Guest(name) if !tools::runs(name)? => Ok(()),
            Step::Guest(name) => tools::tool("xl", &["destroy", name]).map(drop),
            Step::Pool(name) => tools::tool("xl", &["cpupool-destroy", name]).map(drop),
            Step::Processor(cpu) => {
                tools::tool("xl", &["cpupool-cpu-add", FIRST_POOL, &cpu.to_string()]).map(drop)
            }
            Step::Policy { pool, policy, options } => {
                self.control.set_policy(pool, policy, options).map(drop)
            }
            Step::Unit { pool, vcpu, params } => self.control.set_unit(pool, 0, *vcpu, params),
            Step::Affinity { vcpu, processors } => pin(0, *vcpu, processors),
        }
    }
}

impl Drop for Setup<'_> {
    fn drop(&mut self) {
        // Domain 0 first: what follows takes it long otherwise.
        self.put_back(|step| matches!(step, Step::Unit { .. }));
        self.put_back(|_| true);
    }
}

/// Sets the hard affinity of a vCPU.
fn pin(domain: u32, vcpu: u32, processors: &str) -> Result<(), Error> {
    tools::tool("xl", &["vcpu-pin", &domain.to_string(), &vcpu.to_string(), processors]).map(drop)
}

fn named(host: &Host, ix: DomainIx, source: workload::ClientError) -> Error {
    Error::Guest { domain: host.domains[ix.0].name.clone(), source }
}

/// Iterations of work in a millisecond, and how far the guest's clock is ahead.
fn calibrate(
    client: &mut Client,
    tasks: &[(TaskIx, protocol::Task)],
) -> Result<(u64, i64), workload::ClientError> {
    let first = client.calibrate(CALIBRATION)?.iterations_per_ms;
    let warm_up: Vec<_> = tasks.iter().map(|(_, task)| task.clone()).collect();
    if !warm_up.is_empty() {
        client.begin(&warm_up, None, first, (0, 0), WARM_UP_NS)?;
        client.finish(StdDuration::from_nanos(WARM_UP_NS))?;
    }
    let second = client.calibrate(CALIBRATION)?.iterations_per_ms;
    let (ahead_ns, _) = client.clock_offset_ns()?;
    // Everything that disturbs a calibration makes the processor look slower.
    Ok((first.max(second), ahead_ns))
}

fn results(host: &Host, plan: &Plan, vcpus: &[VcpuTotals], reports: Vec<GuestMeasurement>) -> Results {
    let mut results = ResultsBuilder::new(host, Source::Live);
    results.machine(format!("Xen, {}", machine::description()));
    let mut tasks = vec![TaskTotals::default(); host.tasks.len()];
    for ((_, known), report) in plan.guests.iter().zip(&reports) {
        for ((ix, _), done) in known.iter().zip(&report.tasks) {
            if let Work::Jobs { deadline, .. } = host.tasks[ix.0].work {
                let (deadline_ns, duration_ns) = (deadline.as_ns(), host.duration.as_ns());
                tasks[ix.0].jobs = workload::tasks::job_stats(&done.jobs, deadline_ns, duration_ns);
            }
            tasks[ix.0].cpu_time = Duration::from_ns(done.executed_ns);
        }
    }
    results.tasks(tasks);
    results.vcpus(vcpus.iter().cloned());
    for (index, pool) in host.pools.iter().enumerate() {
        let is_in = |ix: DomainIx| host.pool_of(host.domains[ix.0].parent) == PoolIx(index);
        let mut sums = SchedulerTotals::default();
        for (_, ran) in host.vcpus.iter().zip(vcpus).filter(|(vcpu, _)| is_in(vcpu.domain)) {
            sums.processors.busy += ran.cpu_time;
            sums.exhaustions += ran.exhaustions;
            sums.replenishments += ran.replenishments;
        }
        let processors = pool.processors.len() as u64;
        sums.processors.idle = (host.duration * processors).saturating_sub(sums.processors.busy);
        results.pool(PoolIx(index), &sums);
        // On which processor of a pool a vCPU ran is not known: shared evenly.
        let busy = sums.processors.busy / processors.max(1);
        let each = ProcessorTotals { busy, idle: host.duration.saturating_sub(busy), ..Default::default() };
        pool.processors.iter().for_each(|&processor| results.processor(processor, &each));
    }
    results.build()
}

/// With the policy's own values where the file has none: a vCPU that is new in Xen has those of RTDS.
fn in_full(policy: &PolicyInfo, params: &UnitParams) -> UnitParams {
    let has_extratime = policy.unit_param(UnitParams::EXTRATIME).is_some();
    UnitParams {
        budget: params.budget.or(policy.budget(params)),
        period: params.period.or(policy.period(params)),
        extratime: params.extratime.or(has_extratime.then(|| policy.extratime(params))),
        ..params.clone()
    }
}

/// Options as the scheduler reads them: `name=value,name=value`.
fn options_text(options: &Options) -> String {
    let text: Vec<String> = options.iter().map(|(name, value)| format!("{name}={value}")).collect();
    text.join(",")
}

#[cfg(test)]
mod tests {
    use punctual_sched::registry;

    use super::*;

    #[test]
    fn what_a_file_leaves_out_is_what_its_policy_says() {
        let params = UnitParams { budget: Some(Duration::from_ms(1)), ..UnitParams::default() };
        let extratime = |policy: &str, given| {
            let policy = registry::find(policy).expect("a policy");
            in_full(policy, &UnitParams { extratime: given, ..params.clone() }).extratime
        };
        assert_eq!(extratime("sedf", None), Some(false));
        assert_eq!(extratime("sedf", Some(true)), Some(true));
        assert_eq!(extratime("rtds", None), Some(true));
        assert_eq!(extratime("credit", None), None);
        let rtds = in_full(registry::find("rtds").expect("a policy"), &params);
        assert_eq!((rtds.budget, rtds.period), (params.budget, Some(Duration::from_ms(10))));
    }
}
