//! A host file carried out: domains started or found, their vCPUs put under the pools' policies, their task
//! sets run, everything put back, and what was measured as [`Results`].

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration as StdDuration;

use punctual_guest::protocol;
use punctual_model::host::{Domain, Parent, Vcpu, Work};
use punctual_model::index::{DomainIx, TaskIx};
use punctual_model::live::{Accel, Attach, Backend, HelperPolicy, Process, Program, VmNetwork};
use punctual_model::results::{
    DomainResult, FORMAT, JobStats, PoolResult, ProcessorResult, Source, TaskResult, VERSION, VcpuResult,
};
use punctual_model::{Host, Recorder, Results};
use punctual_sched::Duration;

use crate::cache::Cache;
use crate::doctor;
use crate::driver;
use crate::enforcer::{Notice, now};
use crate::follow::{self, Followed};
use crate::image::{self, Image};
use crate::journal::Identity;
use crate::os::sched::{self, Attributes};
use crate::preflight;
use crate::qemu::{self, Accelerator, Network, Vm, VmSpec};
use crate::session::{self, LinuxScheduler, PoolScheduler, Report, Session, Setup, Streams, UnitHandle};
use crate::unit::UnitThreads;
use crate::workload::{self, Client, GuestMeasurement};

/// What stands for a domain whose file does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultBackend {
    /// A VM under QEMU with the project's image.
    Vm,
    /// The guest program as a process of the host.
    Process,
}

/// How to carry a host out.
pub struct RunOptions<'a> {
    /// This program, for the guardian.
    pub program: PathBuf,
    /// What stands for domains that do not say.
    pub default_backend: DefaultBackend,
    /// A scheduler of plain Linux for every pool instead of its policy.
    pub linux: Option<LinuxScheduler>,
    /// Start even if no processor is left for the host.
    pub starve: bool,
    /// How long enforcers may be silent.
    pub silence: StdDuration,
    /// How long a VM may take to boot beside its neighbours.
    pub boot: StdDuration,
    /// How enforcers look.
    pub driver: driver::Settings,
    /// What to change on this machine for the time of the run.
    pub changes: Vec<doctor::Change>,
    /// Told what is going on, one line each.
    pub progress: &'a dyn Fn(&str),
    /// Asked often: should the run end early?
    pub stop: &'a dyn Fn() -> bool,
    /// Called about twenty times a second while tasks run.
    pub watch: &'a mut dyn FnMut(&RunView<'_>),
}

/// A run at one instant.
pub struct RunView<'a> {
    /// The pools.
    pub session: &'a Session,
    /// The vCPUs; one whose thread was replaced comes again.
    pub handles: &'a [UnitHandle],
    /// By domain that has tasks with deadlines: its name and jobs.
    pub jobs: &'a [(String, workload::JobCounts)],
    /// Since the start of the tasks.
    pub elapsed: Duration,
}

/// What a run measured and what it left.
#[derive(Debug)]
pub struct Outcome {
    /// As of a simulation; evidence of enforcement is in `report`.
    pub results: Results,
    /// Enforcement and restoration.
    pub report: Report,
    /// What happened on the way: units that ended, say.
    pub notices: Vec<Notice>,
    /// Of the options's changes those that could not be made, and why.
    pub unchanged: Vec<String>,
    /// Was it ended early?
    pub stopped: bool,
}

/// Why a run did not come to its end. Everything was put back.
#[derive(Debug)]
pub enum Error {
    /// The session failed or was refused.
    Session(session::Error),
    /// A domain could not be started, found, or did not do its work.
    Domain(String),
    /// Asked to stop before there was a result.
    Stopped,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Session(error) => error.fmt(f),
            Error::Domain(text) => f.write_str(text),
            Error::Stopped => f.write_str("stopped before there was a result"),
        }
    }
}

impl std::error::Error for Error {}

impl From<session::Error> for Error {
    fn from(error: session::Error) -> Self {
        Error::Session(error)
    }
}

impl From<preflight::Error> for Error {
    fn from(refusal: preflight::Error) -> Self {
        Error::Session(session::Error::Refused(refusal))
    }
}

/// What runs for a domain.
enum Body {
    Vm(Box<Vm>),
    Guest(workload::Process),
    /// A program of the user's, or something attached to: it runs what it runs.
    Foreign,
}

struct Running {
    domain: DomainIx,
    body: Body,
    /// The vCPUs' threads, in order; one that is attached to later has none yet.
    members: Vec<Option<UnitThreads>>,
    /// The session's number of its pool.
    pool: usize,
    tasks: Vec<(TaskIx, protocol::Task)>,
    clock: GuestClock,
    iterations_per_ms: u64,
}

/// A guest's monotonic clock as seen from ours.
#[derive(Clone, Copy, Default)]
struct GuestClock {
    /// How far it was ahead.
    ahead_ns: i64,
    /// How wrong that may be.
    error_ns: u64,
    /// When it was read, by our clock.
    at_ns: u64,
}

impl GuestClock {
    fn read(client: &mut Client) -> Result<GuestClock, workload::ClientError> {
        let (ahead_ns, error_ns) = client.clock_offset_ns()?;
        Ok(GuestClock { ahead_ns, error_ns, at_ns: now().as_ns() })
    }

    /// How fast it ran until `later`, in millionths of the right rate more than that; 0 when the readings do
    /// not tell.
    fn wrong_ppm(&self, later: &GuestClock) -> i64 {
        let gained_ns = later.ahead_ns.saturating_sub(self.ahead_ns);
        let elapsed_ns = later.at_ns.saturating_sub(self.at_ns).max(1);
        if gained_ns.unsigned_abs() <= self.error_ns.saturating_add(later.error_ns) {
            return 0;
        }
        let ppm = i128::from(gained_ns) * 1_000_000 / i128::from(elapsed_ns);
        i64::try_from(ppm).unwrap_or(if ppm > 0 { i64::MAX } else { i64::MIN })
    }
}

/// A guest's clock that is wrong by more is told of: more than any crystal, less than what changes a figure.
const CLOCK_WRONG_MAX_PPM: u64 = 1000;
/// How long a guest measures its processor, each of two times.
const CALIBRATION: StdDuration = StdDuration::from_millis(200);
/// How long a VM runs its tasks before it counts. What it does for the first time takes long: QEMU translates
/// it, pages and caches are cold, 50 to 80 ms of processor time in all for a translated guest, which a budget
/// of 5 % needs more than a second for.
const WARM_UP: Duration = Duration::from_ms(300);
/// How long a program that ends may take from its channel's end to its own.
const LAST_WORDS: StdDuration = StdDuration::from_millis(100);
/// From the last preparation to the first release, at least and at most.
const LEAD: [Duration; 2] = [Duration::from_ms(300), Duration::from_ms(3000)];
/// Processor time of a VM that makes ready for its tasks: threads, locked memory. A translated one with 3.75
/// % of a processor was ready up to 430 ms after it was told, so it took 16 ms; the periodic server lets
/// budget idle away meanwhile.
const MAKING_READY: Duration = Duration::from_ms(40);

/// Carries the host out.
///
/// # Errors
/// [`Error`]; everything has been put back.
pub fn run(host: &Host, options: &mut RunOptions<'_>) -> Result<Outcome, Error> {
    let pools = pools_in_use(host)?;
    let processors: Vec<usize> =
        pools.iter().flat_map(|&pool| host.pools[pool].processors.iter().copied()).collect();
    // Refusals come before images are built and VMs are booted.
    preflight::processors(&processors, options.starve)?;
    preflight::real_time()?;
    preflight::parking()?;
    let image = image_for(host, options)?;
    // Outlives the session: whoever waits for a guest to end does so when the session has ended everybody.
    let mut running = Vec::new();
    let mut session = Session::start(Setup {
        program: options.program.clone(),
        processors: processors.clone(),
        starve: options.starve,
        lift_rt_limit: true,
        silence: options.silence,
        driver: options.driver,
    })?;
    let unchanged: Vec<String> = options
        .changes
        .iter()
        .filter_map(|change| session.apply_change(change).err().map(|e| format!("{}: {e}", change.target())))
        .collect();
    start_domains(host, options, image.as_ref(), &mut session, &mut running)?;
    calibrate(host, options, &mut session, &mut running)?;
    let handles = adopt(host, options, &pools, &mut session, &mut running)?;
    let measured = measure(host, options, &mut session, &mut running, handles)?;
    let report = session.finish()?;
    drop(running.into_iter().map(|domain| end(domain.body)).collect::<Vec<()>>());
    Ok(Outcome {
        results: results(host, options, &pools, &report, &measured),
        report,
        notices: measured.notices,
        unchanged,
        stopped: measured.stopped,
    })
}

/// The pools that have units. Tasks of a pool itself have no threads on a real host.
fn pools_in_use(host: &Host) -> Result<Vec<usize>, Error> {
    let nested = host.domains.iter().find(|domain| matches!(domain.parent, Parent::Domain(_)));
    if let Some(domain) = nested {
        return Err(Error::Domain(format!(
            "domain `{}` runs inside another one: a live run schedules domains of pools only",
            domain.name
        )));
    }
    let of_pool = host.tasks.iter().find(|task| matches!(task.parent, Parent::Pool(_)));
    if let Some(task) = of_pool {
        return Err(Error::Domain(format!(
            "task `{}` belongs to a pool: on a real host, put it into a domain with `process`",
            task.name
        )));
    }
    let used = |pool: &usize| host.domains.iter().any(|domain| pool_of(host, domain.parent) == *pool);
    let pools: Vec<usize> = (0..host.pools.len()).filter(used).collect();
    if pools.is_empty() {
        return Err(Error::Domain("the host has no domain to run".into()));
    }
    Ok(pools)
}

fn pool_of(host: &Host, parent: Parent) -> usize {
    host.pool_of(parent).0
}

fn is_vm(backend: &Backend, form: DefaultBackend) -> bool {
    matches!((backend, form), (Backend::Vm(_), _) | (Backend::Default, DefaultBackend::Vm))
}

/// The guest image and how VMs are executed, if a domain needs them.
fn image_for(host: &Host, options: &RunOptions<'_>) -> Result<Option<(Image, Accelerator)>, Error> {
    let mut vms =
        host.domains.iter().filter(|domain| is_vm(&domain.live.backend, options.default_backend)).peekable();
    if vms.peek().is_none() {
        return Ok(None);
    }
    let image = image::prepare(options.progress).map_err(|error| Error::Domain(error.to_string()))?;
    let fixed = vms.all(|domain| matches!(&domain.live.backend, Backend::Vm(vm) if vm.accel != Accel::Auto));
    let mut accelerator = Accelerator::Tcg;
    if !fixed {
        let cache = Cache::of_user().map_err(|error| Error::Domain(error.to_string()))?;
        let (chosen, why) = qemu::accel::choose(&cache, &image, options.progress)
            .map_err(|error| Error::Domain(error.to_string()))?;
        if let Some(why) = why {
            (options.progress)(&why);
        }
        accelerator = chosen;
    }
    Ok(Some((image, accelerator)))
}

fn start_domains(
    host: &Host,
    options: &RunOptions<'_>,
    image: Option<&(Image, Accelerator)>,
    session: &mut Session,
    running: &mut Vec<Running>,
) -> Result<(), Error> {
    for (index, domain) in host.domains.iter().enumerate() {
        if (options.stop)() {
            return Err(Error::Stopped);
        }
        session.poll()?;
        let form = match &domain.live.backend {
            Backend::Default if options.default_backend == DefaultBackend::Process => {
                Backend::Process(Process::default())
            }
            other => other.clone(),
        };
        let mut members = Vec::new();
        let body = match &form {
            Backend::Default | Backend::Vm(_) => {
                let Some((image, accelerator)) = image else { continue };
                let spec = spec(&domain.name, &form, domain.vcpus.len(), image, *accelerator)?;
                (options.progress)(&format!("booting {} ({})", domain.name, spec.accelerator.name()));
                let vm = Vm::start(&spec).map_err(|error| Error::Domain(error.to_string()))?;
                session.record_child(vm.pid() as i32, &domain.name)?;
                Body::Vm(Box::new(vm))
            }
            Backend::Process(Process { program: Program::Guest, .. }) => {
                (options.progress)(&format!("starting {}", domain.name));
                let process = workload::Process::start().map_err(Error::Domain)?;
                session.record_child(process.pid() as i32, &domain.name)?;
                members.push(Some(UnitThreads::Thread(identity(&domain.name, process.pid())?)));
                Body::Guest(process)
            }
            Backend::Process(Process {
                program: Program::Command { program, arguments },
                environment,
                directory,
            }) => {
                (options.progress)(&format!("starting {}", domain.name));
                let command: Vec<String> = [program].into_iter().chain(arguments).cloned().collect();
                let surroundings = (environment.as_slice(), directory.as_deref());
                let launched = session.launch_in(&domain.name, command, surroundings, Streams::Quiet)?;
                members.push(Some(UnitThreads::ProcessTree(launched.process)));
                Body::Foreign
            }
            Backend::Attach(attach) => {
                members = attached(&domain.name, attach, domain.vcpus.len())?;
                Body::Foreign
            }
        };
        let owns_tasks = matches!(body, Body::Foreign);
        let domain_ix = DomainIx(index);
        let tasks = match owns_tasks {
            true => Vec::new(),
            false => workload::tasks::of_domain(host, domain_ix).map_err(Error::Domain)?,
        };
        running.push(Running {
            domain: domain_ix,
            body,
            members,
            pool: 0,
            tasks,
            clock: GuestClock::default(),
            iterations_per_ms: 0,
        });
    }
    for domain in running {
        let name = &host.domains[domain.domain.0].name;
        if let Body::Vm(vm) = &mut domain.body {
            connect(vm, options, session)?;
            for tid in vm.vcpu_threads().map_err(|error| Error::Domain(error.to_string()))? {
                domain.members.push(Some(UnitThreads::Thread(identity(name, tid)?)));
            }
        }
        let count = host.domains[domain.domain.0].vcpus.len();
        if domain.members.len() != count {
            let found = domain.members.len();
            return Err(Error::Domain(format!(
                "domain `{name}` has {count} vCPUs in the host file and {found} on this machine"
            )));
        }
    }
    Ok(())
}

/// Waits for a VM to boot and keeps the guardian content meanwhile.
fn connect(vm: &mut Vm, options: &RunOptions<'_>, session: &mut Session) -> Result<(), Error> {
    let limit = options.boot;
    std::thread::scope(|scope| {
        let connected = scope.spawn(|| vm.connect(limit).map(|_| ()).map_err(|error| error.to_string()));
        while !connected.is_finished() {
            session.poll()?;
            if (options.stop)() {
                // The boot ends within its limit; the session's end kills QEMU anyway.
                return Err(Error::Stopped);
            }
            std::thread::sleep(StdDuration::from_millis(20));
        }
        connected.join().unwrap_or_else(|_| Err("waiting for a guest failed".into())).map_err(Error::Domain)
    })
}

fn identity(domain: &str, tid: u32) -> Result<Identity, Error> {
    Identity::of(tid as i32).map_err(|_| Error::Domain(format!("domain `{domain}`: thread {tid} is gone")))
}

fn spec(
    name: &str,
    form: &Backend,
    vcpus: usize,
    image: &Image,
    accelerator: Accelerator,
) -> Result<VmSpec, Error> {
    let mut spec = VmSpec::new(name, image, accelerator);
    spec.vcpus = vcpus as u32;
    let Backend::Vm(vm) = form else { return Ok(spec) };
    if let Some(kernel) = &vm.kernel {
        spec.kernel = Some(kernel.clone());
    }
    if let Some(initrd) = &vm.initrd {
        spec.initrd = Some(initrd.clone());
    }
    if let Some(append) = &vm.append {
        spec.append = format!("{} {append}", spec.append);
    }
    spec.memory_mib = vm.memory_mib;
    spec.accelerator = match vm.accel {
        Accel::Auto => accelerator,
        Accel::Kvm => Accelerator::Kvm,
        Accel::Tcg => Accelerator::Tcg,
    };
    spec.network = match &vm.network {
        VmNetwork::None => Network::None,
        VmNetwork::User => Network::User,
        VmNetwork::Tap(interface) => Network::Tap { interface: interface.clone(), vhost: false },
    };
    for disk in &vm.disks {
        // One disk has a field of its own; further ones are drives like it.
        let drive = format!("file={},if=virtio,format=raw", disk.display().to_string().replace(',', ",,"));
        spec.extra.extend(["-drive".into(), drive]);
    }
    spec.extra.extend(vm.arguments.iter().cloned());
    Ok(spec)
}

/// How long QEMU's monitor may take before a run begins.
const MONITOR: StdDuration = StdDuration::from_secs(5);

/// The vCPU threads of something that runs already, by the numbers of the domain's vCPUs. Of several vCPUs
/// some may be plugged in later.
fn attached(domain: &str, attach: &Attach, count: usize) -> Result<Vec<Option<UnitThreads>>, Error> {
    let found =
        follow::vcpus(attach, MONITOR).map_err(|e| Error::Domain(format!("domain `{domain}`: {e}")))?;
    let mut members = vec![None; count];
    for &(number, identity) in &found {
        let Some(slot) = members.get_mut(number as usize) else {
            return Err(Error::Domain(format!(
                "domain `{domain}` has {count} vCPUs in the host file and a vCPU {number} on this machine"
            )));
        };
        *slot = Some(UnitThreads::Thread(identity));
    }
    if found.is_empty() || matches!(attach, Attach::Threads(_)) && found.len() < count {
        let found = found.len();
        return Err(Error::Domain(format!(
            "domain `{domain}` has {count} vCPUs in the host file and {found} on this machine"
        )));
    }
    Ok(members)
}

fn client(body: &mut Body) -> Result<Option<&mut Client>, Error> {
    match body {
        // It was waited for before.
        Body::Vm(vm) => {
            vm.connect(StdDuration::ZERO).map(Some).map_err(|error| Error::Domain(error.to_string()))
        }
        Body::Guest(process) => Ok(Some(&mut process.client)),
        Body::Foreign => Ok(None),
    }
}

/// Lets the guests measure their processor, one after the other, each alone on it.
fn calibrate(
    host: &Host,
    options: &RunOptions<'_>,
    session: &mut Session,
    running: &mut [Running],
) -> Result<(), Error> {
    for domain in running {
        let Running { domain: ix, body, members, tasks, clock, iterations_per_ms, .. } = domain;
        let described = &host.domains[ix.0];
        let name = &described.name;
        if matches!(body, Body::Foreign) {
            continue;
        }
        (options.progress)(&format!("calibrating {name}"));
        // The domain is ours: how its threads were need not be written down.
        let processors = &host.pools[pool_of(host, described.parent)].processors;
        let threads: Vec<i32> = members.iter().flatten().map(|members| members.identity().id).collect();
        for &thread in &threads {
            let set = sched::set_affinity(thread, &processors[..1]);
            set.map_err(|e| Error::Domain(format!("domain `{name}`: {e}")))?;
        }
        // Above whatever the host runs there, so that the work of a millisecond is not measured too small.
        // Several vCPUs take turns: a guest may wait for one that is ready while another of its own spins.
        let alone = match threads.len() {
            0 | 1 => Attributes::fifo(1),
            _ => Attributes { nice: -20, ..Attributes::other() },
        };
        let schedule = |attributes: &Attributes| {
            let set = threads.iter().try_for_each(|&thread| sched::set_attributes(thread, attributes));
            set.map_err(|error| workload::ClientError::Channel(error.to_string()))
        };
        let is_vm = matches!(body, Body::Vm(_));
        let tasks: Vec<protocol::Task> = tasks.iter().map(|(_, task)| task.clone()).collect();
        let Some(client) = client(body)? else { continue };
        let calibrated = std::thread::scope(|scope| {
            let calibrating = scope.spawn(|| {
                schedule(&alone)?;
                let mut iterations = client.calibrate(CALIBRATION)?.iterations_per_ms;
                if is_vm && !tasks.is_empty() {
                    schedule(&Attributes::other())?;
                    client.begin(&tasks, iterations, (0, 0), WARM_UP.as_ns())?;
                    client.finish(StdDuration::from_nanos(WARM_UP.as_ns()))?;
                }
                schedule(&alone)?;
                // Whatever disturbs a calibration makes the processor look slower.
                iterations = iterations.max(client.calibrate(CALIBRATION)?.iterations_per_ms);
                Ok((iterations, GuestClock::read(client)?))
            });
            while !calibrating.is_finished() {
                session.poll()?;
                std::thread::sleep(StdDuration::from_millis(10));
            }
            let measured: Result<(u64, GuestClock), workload::ClientError> = calibrating
                .join()
                .unwrap_or_else(|_| Err(workload::ClientError::Channel("it panicked".into())));
            measured.map_err(|e| Error::Domain(format!("domain `{name}`: {e}")))
        })?;
        (*iterations_per_ms, *clock) = calibrated;
        if (options.stop)() {
            return Err(Error::Stopped);
        }
    }
    Ok(())
}

/// Puts pools under their schedulers and vCPUs into them.
fn adopt(
    host: &Host,
    options: &RunOptions<'_>,
    pools: &[usize],
    session: &mut Session,
    running: &mut [Running],
) -> Result<Vec<UnitHandle>, Error> {
    let mut numbers = vec![usize::MAX; host.pools.len()];
    for &pool in pools {
        let policy = &host.pools[pool].policy;
        let scheduler =
            options.linux.map_or_else(|| PoolScheduler::Policy(policy.clone()), PoolScheduler::Linux);
        numbers[pool] = session.add_pool(&host.pools[pool].processors, &scheduler)?;
    }
    let left = left(host, pools);
    let mut handles = Vec::new();
    for domain in running {
        let described = &host.domains[domain.domain.0];
        domain.pool = numbers[pool_of(host, described.parent)];
        for (members, vcpu) in domain.members.iter().zip(described.vcpus.clone()) {
            let (vcpu, Some(members)) = (&host.vcpus[vcpu], members) else { continue };
            handles.push(session.add_unit(
                domain.pool,
                &described.name,
                &vcpu.name,
                *members,
                &vcpu.params,
            )?);
        }
        let members: Vec<UnitThreads> = domain.members.iter().flatten().copied().collect();
        place_helpers(session, &members, &described.live.helpers, &left)?;
    }
    Ok(handles)
}

/// The processors that no pool has.
fn left(host: &Host, pools: &[usize]) -> Vec<usize> {
    let taken: Vec<usize> = pools.iter().flat_map(|&pool| host.pools[pool].processors.clone()).collect();
    preflight::online().into_iter().filter(|cpu| !taken.contains(cpu)).collect()
}

/// Gives the threads of a VMM that are no vCPUs their place. They were written down when the first vCPU of
/// their process was taken in.
fn place_helpers(
    session: &mut Session,
    members: &[UnitThreads],
    helpers: &punctual_model::live::Helpers,
    left: &[usize],
) -> Result<(), Error> {
    let vcpus: Vec<i32> = members.iter().map(|members| members.identity().id).collect();
    if members.iter().any(|members| matches!(members, UnitThreads::ProcessTree(_))) {
        return Ok(());
    }
    let Some(first) = vcpus.first() else { return Ok(()) };
    let Ok(process) = crate::os::proc::process_of(*first) else { return Ok(()) };
    let processors = helpers.processors.clone().unwrap_or_else(|| left.to_vec());
    let attributes = match helpers.policy {
        HelperPolicy::Other { nice } => Attributes { nice: i32::from(nice), ..Attributes::other() },
        HelperPolicy::Fifo { priority } => Attributes::fifo(u32::from(priority)),
    };
    for tid in crate::os::proc::threads(process).unwrap_or_default() {
        if !vcpus.contains(&tid) {
            session.place_helper(tid, &processors, &attributes)?;
        }
    }
    Ok(())
}

/// What was measured while tasks ran.
struct Measurement {
    /// By task of the host.
    jobs: Vec<JobStats>,
    executed_ns: Vec<u64>,
    /// By unit name: processor time within the run.
    cpu_time: Vec<(String, Duration)>,
    overrun_ns: u64,
    notices: Vec<Notice>,
    stopped: bool,
}

/// From now to the first release: until then every VM has made ready, out of the budget that it already has.
fn lead(host: &Host, running: &[Running]) -> Duration {
    let of_vcpu = |vcpu: &Vcpu| match (vcpu.params.budget, vcpu.params.period) {
        (Some(budget), Some(period)) => {
            let ns = u128::from(MAKING_READY.as_ns()) * u128::from(period.as_ns())
                / u128::from(budget.as_ns().max(1));
            Duration::from_ns(u64::try_from(ns).unwrap_or(u64::MAX))
        }
        _ => MAKING_READY,
    };
    let vms = running.iter().filter(|domain| matches!(domain.body, Body::Vm(_)));
    let longest =
        vms.flat_map(|domain| &host.vcpus[host.domains[domain.domain.0].vcpus.clone()]).map(of_vcpu).max();
    longest.unwrap_or(LEAD[0]).clamp(LEAD[0], LEAD[1])
}

fn measure(
    host: &Host,
    options: &mut RunOptions<'_>,
    session: &mut Session,
    running: &mut [Running],
    mut handles: Vec<UnitHandle>,
) -> Result<Measurement, Error> {
    let duration = host.duration;
    let mut followed = followed(host, running);
    let mut counters = Vec::new();
    let lead = lead(host, running);
    let start = now() + lead;
    let mut waiting = Vec::new();
    for domain in running.iter_mut() {
        let tasks: Vec<protocol::Task> = domain.tasks.iter().map(|(_, task)| task.clone()).collect();
        let name = &host.domains[domain.domain.0].name;
        let (iterations, clock) = (domain.iterations_per_ms, domain.clock);
        if tasks.is_empty() {
            continue;
        }
        if let Some(client) = client(&mut domain.body)? {
            client
                .begin(&tasks, iterations, (start.as_ns(), clock.ahead_ns), duration.as_ns())
                .map_err(|e| Error::Domain(format!("domain `{name}`: {e}")))?;
            counters.push((name.clone(), workload::JobCounter::new(tasks.iter(), client.progress())));
            waiting.push((name, &domain.tasks, clock, client));
        }
    }
    (options.progress)(&format!("running for {duration}"));
    let mut measurement = Measurement {
        jobs: vec![JobStats::default(); host.tasks.len()],
        executed_ns: vec![0; host.tasks.len()],
        cpu_time: Vec::new(),
        overrun_ns: 0,
        notices: Vec::new(),
        stopped: false,
    };
    let limit = StdDuration::from_nanos((lead + duration).as_ns());
    let mut failed = None;
    let broken = AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        let finishing: Vec<_> = waiting
            .into_iter()
            .map(|(name, tasks, clock, client)| {
                let broken = &broken;
                let finish = move || {
                    let measured = client.finish(limit).map(|measured| {
                        // One that is gone now has told what it measured.
                        let later = GuestClock::read(client);
                        (measured, later.map_or(0, |later| clock.wrong_ppm(&later)))
                    });
                    broken.fetch_or(measured.is_err(), Ordering::Relaxed);
                    measured
                };
                (name, tasks, scope.spawn(finish))
            })
            .collect();
        let mut at_start = None;
        let mut at_end = None;
        let mut early: Vec<String> = Vec::new();
        loop {
            measurement.notices.extend(session.poll()?);
            let time = now();
            if at_start.is_none() && time >= start {
                at_start = Some(used(&handles));
            }
            let over = time >= start + duration;
            if at_end.is_none() && over {
                at_end = Some(used(&handles));
                session.let_guests_report();
            }
            if over && finishing.iter().all(|(_, _, thread)| thread.is_finished()) {
                break;
            }
            if !over && broken.load(Ordering::Relaxed) {
                let done = finishing.iter().filter(|(_, _, thread)| thread.is_finished());
                early = done.map(|(name, _, _)| (*name).clone()).collect();
                // What ended by itself should have ended before the others are killed, so that it is told
                // apart.
                std::thread::sleep(LAST_WORDS);
                session.kill_children();
                break;
            }
            if (options.stop)() {
                measurement.stopped = true;
                at_end = at_end.or_else(|| Some(used(&handles)));
                break;
            }
            if time >= start && !over {
                let elapsed = time.since(start);
                let jobs: Vec<_> = counters
                    .iter_mut()
                    .map(|(name, counter)| (name.clone(), counter.jobs(elapsed.as_ns())))
                    .collect();
                (options.watch)(&RunView { session, handles: &handles, jobs: &jobs, elapsed });
                for domain in &mut followed {
                    domain.take_in_newcomers(host, session, &mut handles, &mut measurement.notices)?;
                }
            }
            std::thread::sleep(StdDuration::from_millis(if over { 10 } else { 50 }));
        }
        if measurement.stopped && !finishing.is_empty() {
            // Nobody has results of half a run; the threads that wait for them end with their guests.
            session.kill_children();
            return Err(Error::Stopped);
        }
        // Whoever came during the run had used nothing when it began.
        let (mut before, after) = (at_start.unwrap_or_default(), at_end.unwrap_or_default());
        before.resize(after.len(), 0);
        for ((handle, before), after) in handles.iter().zip(before).zip(after) {
            let used = Duration::from_ns(after.saturating_sub(before));
            measurement.cpu_time.push((handle.name.clone(), used));
        }
        // A guest that ended of itself comes before those that were ended because of it.
        let gone = |name: &str| {
            let ended = |notice: &Notice| matches!(notice, Notice::Gone(unit) if unit.starts_with(name));
            measurement.notices.iter().any(ended)
        };
        let mut finishing = finishing;
        finishing.sort_by_key(|(name, _, _)| !(gone(name) || early.contains(name)));
        for (name, tasks, thread) in finishing {
            let (measured, wrong_ppm) = thread
                .join()
                .unwrap_or_else(|_| Err(workload::ClientError::Channel("waiting for it failed".into())))
                .map_err(|e| {
                    failed = Some(name.clone());
                    Error::Domain(format!("domain `{name}`: {e}"))
                })?;
            if wrong_ppm.unsigned_abs() > CLOCK_WRONG_MAX_PPM {
                measurement.notices.push(Notice::Clock(name.clone(), wrong_ppm));
            }
            collect(host, tasks, &measured, &mut measurement);
        }
        Ok(())
    });
    if let (Err(Error::Domain(text)), Some(failed)) = (&outcome, failed) {
        let domain = running.iter_mut().find(|domain| host.domains[domain.domain.0].name == failed);
        let last_words = domain.map(|domain| domain.body.last_words()).unwrap_or_default();
        return Err(Error::Domain(format!("{text}{last_words}")));
    }
    outcome.map(|()| measurement)
}

impl Body {
    /// How it ended and what it said last, for the end of a message.
    fn last_words(&mut self) -> String {
        match self {
            Body::Vm(vm) => vm.last_words().to_string(),
            Body::Guest(process) => process.last_words(),
            Body::Foreign => String::new(),
        }
    }
}

/// A domain whose threads may change during the run.
struct Follower<'a> {
    followed: Followed,
    domain: &'a Domain,
    pool: usize,
    left: Vec<usize>,
}

fn followed<'a>(host: &'a Host, running: &[Running]) -> Vec<Follower<'a>> {
    let Ok(pools) = pools_in_use(host) else { return Vec::new() };
    let follower = |running: &Running| {
        let domain = &host.domains[running.domain.0];
        let Backend::Attach(attach) = &domain.live.backend else { return None };
        let vcpus = running.members.iter().map(|members| members.map(|members| members.identity())).collect();
        let followed = Followed::new(attach, vcpus)?;
        Some(Follower { followed, domain, pool: running.pool, left: left(host, &pools) })
    };
    running.iter().filter_map(follower).collect()
}

impl Follower<'_> {
    fn take_in_newcomers(
        &mut self,
        host: &Host,
        session: &mut Session,
        handles: &mut Vec<UnitHandle>,
        notices: &mut Vec<Notice>,
    ) -> Result<(), Error> {
        let newcomers = self.followed.newcomers();
        if newcomers.is_empty() {
            return Ok(());
        }
        for (number, identity) in newcomers {
            let vcpu = &host.vcpus[self.domain.vcpus.start + number];
            match session.add_unit(
                self.pool,
                &self.domain.name,
                &vcpu.name,
                UnitThreads::Thread(identity),
                &vcpu.params,
            ) {
                Ok(handle) => {
                    handles.push(handle);
                    notices.push(Notice::Came(vcpu.name.clone()));
                }
                // It may have gone again already.
                Err(e) => notices.push(Notice::Failed(vcpu.name.clone(), e.to_string())),
            }
        }
        // Threads that serve the VMM may be new as well.
        let vcpus: Vec<UnitThreads> = self.followed.vcpus().map(UnitThreads::Thread).collect();
        place_helpers(session, &vcpus, &self.domain.live.helpers, &self.left)
    }
}

fn used(handles: &[UnitHandle]) -> Vec<u64> {
    handles.iter().map(|handle| handle.counters.cpu_time_ns.load(Ordering::Relaxed)).collect()
}

fn collect(
    host: &Host,
    tasks: &[(TaskIx, protocol::Task)],
    measured: &GuestMeasurement,
    measurement: &mut Measurement,
) {
    measurement.overrun_ns = measurement.overrun_ns.max(measured.overrun_ns);
    for ((index, _), done) in tasks.iter().zip(&measured.tasks) {
        if let Work::Jobs { deadline, .. } = host.tasks[index.0].work {
            measurement.jobs[index.0] =
                workload::tasks::job_stats(&done.jobs, deadline.as_ns(), host.duration.as_ns());
        }
        measurement.executed_ns[index.0] = done.executed_ns;
    }
}

fn end(body: Body) {
    match body {
        // The session's end killed them; this collects what is left.
        Body::Vm(vm) => drop(vm),
        Body::Guest(process) => drop(process),
        Body::Foreign => {}
    }
}

fn results(
    host: &Host,
    options: &RunOptions<'_>,
    pools: &[usize],
    report: &Report,
    measured: &Measurement,
) -> Results {
    let duration_ns = host.duration.as_ns();
    let unit = |name: &str| report.units.iter().find(|unit| unit.name == name);
    let used = |name: &str| {
        // A vCPU whose thread was replaced has several.
        let found = measured.cpu_time.iter().filter(|(known, _)| known == name);
        found.map(|(_, time)| time.as_ns()).sum::<u64>()
    };
    let tasks: Vec<TaskResult> = host
        .tasks
        .iter()
        .enumerate()
        .map(|(index, task)| TaskResult {
            name: task.name.clone(),
            parent: match task.parent {
                Parent::Pool(pool) => host.pools[pool.0].name.clone(),
                Parent::Domain(domain) => host.domains[domain.0].name.clone(),
            },
            jobs: measured.jobs[index].clone(),
            cpu_time_ns: measured.executed_ns[index],
            context_switches: 0,
            migrations: 0,
        })
        .collect();
    let vcpus: Vec<VcpuResult> = host
        .vcpus
        .iter()
        .map(|vcpu| {
            let unit = unit(&vcpu.name);
            VcpuResult {
                name: vcpu.name.clone(),
                cpu_time_ns: used(&vcpu.name),
                idled_away_ns: unit.map_or(0, |unit| unit.idled_away.as_ns()),
                wakes: unit.map_or(0, |unit| unit.wakes),
                sleeps: unit.map_or(0, |unit| unit.sleeps),
                exhaustions: unit.map_or(0, |unit| unit.exhaustions),
                replenishments: unit.map_or(0, |unit| unit.replenishments),
                context_switches: 0,
                migrations: 0,
                wake_latency: Recorder::new(),
            }
        })
        .collect();
    let domains: Vec<DomainResult> = host
        .domains
        .iter()
        .enumerate()
        .map(|(index, domain)| {
            let own = &vcpus[domain.vcpus.clone()];
            let mut jobs = JobStats::default();
            for (task, _) in host.tasks_of(Parent::Domain(DomainIx(index))) {
                jobs.merge(&measured.jobs[task.0]);
            }
            DomainResult {
                name: domain.name.clone(),
                jobs,
                cpu_time_ns: own.iter().map(|vcpu| vcpu.cpu_time_ns).sum(),
                network_ns: 0,
                decisions: 0,
                context_switches: 0,
                migrations: 0,
                exhaustions: own.iter().map(|vcpu| vcpu.exhaustions).sum(),
                replenishments: own.iter().map(|vcpu| vcpu.replenishments).sum(),
            }
        })
        .collect();
    let mut pool_results = Vec::new();
    let mut processors: Vec<ProcessorResult> = (0..host.processors)
        .map(|processor| ProcessorResult {
            processor,
            pool: None,
            busy_ns: 0,
            idle_ns: duration_ns,
            overhead_ns: 0,
            decisions: 0,
            context_switches: 0,
        })
        .collect();
    for (index, pool) in host.pools.iter().enumerate() {
        let done = pools.iter().position(|&used| used == index).and_then(|at| report.pools.get(at));
        let members: Vec<usize> =
            (0..host.domains.len()).filter(|&d| pool_of(host, host.domains[d].parent) == index).collect();
        let sum = |value: &dyn Fn(&DomainResult) -> u64| members.iter().map(|&d| value(&domains[d])).sum();
        let busy_ns: u64 = sum(&|domain| domain.cpu_time_ns);
        // The session is longer than the run: the run's share of what the enforcers did is what counts.
        let share = |amount: u64| {
            let elapsed = u128::from(report.elapsed.as_ns().max(1));
            (u128::from(amount) * u128::from(duration_ns) / elapsed) as u64
        };
        let costs: Vec<u64> =
            done.map_or(Vec::new(), |done| done.cost.iter().map(|cost| share(cost.as_ns())).collect());
        let decisions = done.map_or(0, |done| share(done.decisions));
        let overhead_ns: u64 = costs.iter().sum();
        let capacity = duration_ns.saturating_mul(pool.processors.len() as u64);
        for (at, &processor) in pool.processors.iter().enumerate() {
            let Some(result) = processors.get_mut(processor) else { continue };
            result.pool = Some(pool.name.clone());
            result.overhead_ns = costs.get(at).copied().unwrap_or(0);
            // Which processor of a pool a unit ran on is not known with several: shared evenly.
            result.decisions = decisions / pool.processors.len() as u64;
            result.busy_ns = (busy_ns / pool.processors.len() as u64).min(duration_ns);
            result.idle_ns = duration_ns.saturating_sub(result.busy_ns + result.overhead_ns);
        }
        let mut jobs = JobStats::default();
        members.iter().for_each(|&d| jobs.merge(&domains[d].jobs));
        pool_results.push(PoolResult {
            name: pool.name.clone(),
            policy: options.linux.map_or(pool.policy.info.name, LinuxScheduler::name).to_owned(),
            processors: pool.processors.len(),
            jobs,
            busy_ns,
            idle_ns: capacity.saturating_sub(busy_ns + overhead_ns),
            overhead_ns,
            decisions,
            context_switches: 0,
            migrations: 0,
            exhaustions: sum(&|domain| domain.exhaustions),
            replenishments: sum(&|domain| domain.replenishments),
        });
    }
    Results {
        format: FORMAT.into(),
        version: VERSION,
        program: concat!("punctual ", env!("CARGO_PKG_VERSION")).into(),
        source: Source::Live,
        machine: Some(crate::machine::description()),
        host: host.name.clone(),
        seed: host.seed,
        runs: 1,
        duration_ns,
        events: report.pools.iter().map(|pool| pool.evidence.looks).sum(),
        pools: pool_results,
        processors,
        domains,
        vcpus,
        tasks,
        networks: Vec::new(),
        flows: Vec::new(),
        chains: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_wrong_by_what_it_gained_unless_the_readings_are_as_wrong_themselves() {
        let clock = |ahead_ns, error_ns, at_ns| GuestClock { ahead_ns, error_ns, at_ns };
        let first = clock(-5_000, 100, 1_000_000);
        assert_eq!(first.wrong_ppm(&clock(-4_000, 100, 2_000_000)), 1000);
        assert_eq!(first.wrong_ppm(&clock(-6_000, 100, 2_000_000)), -1000);
        assert_eq!(first.wrong_ppm(&clock(-4_800, 100, 2_000_000)), 0);
        assert_eq!(first.wrong_ppm(&clock(i64::MAX, 100, 1_000_000)), i64::MAX);
    }
}
