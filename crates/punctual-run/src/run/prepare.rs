//! The first stage: can this host be run on this machine? Nothing is started or changed.

use std::path::Path;

use punctual_guest::protocol;
use punctual_model::Host;
use punctual_model::host::{Domain, Parent};
use punctual_model::index::{DomainIx, PoolIx, TaskIx};
use punctual_model::live::{Accel, Backend, Process, Program, Vm, VmNetwork};
use punctual_model::network::Endpoint;
use punctual_model::sockets::Sockets;

use super::attach;
use super::backend::{ScheduledBy, chosen};
use super::changes;
use super::error::Error;
use super::inputs::{Interface, StageInputs};
use super::live_run::{left_by, processors};
use super::pools::{check_partitions, pools_with};
use super::targets::check_targets;
use crate::config::DefaultBackend;
use punctual_enforce::backend::Chosen;
use punctual_enforce::unit::UnitThreads;
use punctual_linux::preflight;
use punctual_vm::cache::Cache;
use punctual_vm::image::{self, Image};
use punctual_vm::qemu::{self, Accelerator, Network, VmSpec};
use punctual_vm::workload;
use punctual_vm::workload::TasksError;
use punctual_vm::workload::flows::Ends;

/// A host that can be run here.
pub(super) struct Prepared<'a> {
    pub host: &'a Host,
    pub options: StageInputs<'a>,
    /// The pools that have domains.
    pub pools: Vec<PoolIx>,
    /// In the host's order.
    pub domains: Vec<PreparedDomain<'a>>,
    /// The ends of flows that there are.
    pub ends: Ends,
    /// What enforces the policies.
    pub enforced_by: Chosen,
}

/// How a domain is to be started.
pub(super) struct PreparedDomain<'a> {
    pub start: Start<'a>,
    /// What its guest program is to run; nothing where there is none.
    pub tasks: Vec<(TaskIx, protocol::Task)>,
    /// What it sends and answers, if it is on a network.
    pub network: Option<protocol::Network>,
}

/// What is started for a domain.
pub(super) enum Start<'a> {
    Vm(Box<VmSpec>),
    /// The guest program as a process, or another program in its place.
    Guest {
        program: Option<&'a Path>,
    },
    /// A program of the user's.
    Command {
        command: Vec<String>,
        environment: &'a [(String, String)],
        directory: Option<&'a Path>,
    },
    /// Nothing: it runs already. By vCPU its thread, as far as it has one yet.
    Attach(Vec<Option<UnitThreads>>),
    /// Nothing: the switch does its work.
    Switch,
}

impl<'a> Prepared<'a> {
    /// # Errors
    /// What the host asks for cannot be done, or not here; or the image of its VMs cannot be made.
    pub(super) fn new(host: &'a Host, mut options: StageInputs<'a>) -> Result<Prepared<'a>, Error> {
        let pools = pools_in_use(host, &options)?;
        changes::check(host)?;
        let taken = processors(host, &pools);
        let enforced_by = chosen(host, options.config, &pools)?;
        preflight::processors(&taken, options.config.starve)?;
        preflight::real_time()?;
        preflight::parking()?;
        check_partitions(host, &pools, options.config)?;
        let ends = ends(host, &options);
        let mut domains = prepare_domains(host, &options, &ends)?;
        let found = host.domains.iter().zip(&domains).filter_map(|(described, domain)| match &domain.start {
            Start::Attach(vcpus) => Some((described, &vcpus[..])),
            _ => None,
        });
        let by = ScheduledBy::of(options.config, enforced_by.backend);
        check_targets(host, by, &left_by(&taken), &found.collect::<Vec<_>>())?;
        for guest in std::mem::take(&mut options.sockets) {
            let same = host.domains.iter().position(|domain| domain.name == guest.domain);
            if let Some(Start::Vm(spec)) = same.map(|index| &mut domains[index].start) {
                spec.sockets = Some(guest.port);
            }
        }
        let interfaces = std::mem::take(&mut options.interfaces);
        for interface in interfaces {
            let same = host.domains.iter().position(|domain| domain.name == interface.domain);
            if let Some(Start::Vm(spec)) = same.map(|index| &mut domains[index].start) {
                connect(spec, interface);
            }
        }
        if let missing @ [_, ..] = &ends.missing(host)[..] {
            let missing = missing.join(", ");
            options.step(&format!("without an end on a switch of this run, and not live: {missing}"));
        }
        Ok(Prepared { host, options, pools, domains, ends, enforced_by })
    }
}

/// Gives a VM without a network an interface of a switch.
fn connect(spec: &mut VmSpec, interface: Interface) {
    if spec.network == Network::None {
        spec.append = format!("{} punctual.address={}", spec.append, interface.address);
        let ethernet = interface.ethernet.map(|byte| format!("{byte:02x}")).join(":");
        spec.network = Network::Switch { port: interface.port, ethernet, mtu: interface.mtu };
    }
}

/// Is the domain the driver of a network that the run carries itself, and nothing else? Then the switch, or
/// the servers of sockets, do its work.
fn is_switch(host: &Host, options: &StageInputs<'_>, ix: DomainIx) -> bool {
    let of_switches = options.interfaces.iter().map(|interface| interface.network);
    let of_sockets = options.sockets.iter().filter_map(|guest| guest.network).map(|(network, _)| network);
    matches!(host.domains[ix.0].live.backend, Backend::Default)
        && host.tasks_of(Parent::Domain(ix)).next().is_none()
        && of_switches.chain(of_sockets).any(|network| host.networks[network.0].driver == ix)
}

/// The pools that have units beside what switches do.
fn pools_in_use(host: &Host, options: &StageInputs<'_>) -> Result<Vec<PoolIx>, Error> {
    pools_with(host, |domain| !is_switch(host, options, domain))
}

/// The ends of flows: VMs on a switch or with sockets, and hosts outside that this process stands for. A VM
/// has one interface.
fn ends(host: &Host, options: &StageInputs<'_>) -> Ends {
    let mut ends = Ends::default();
    let of_switches = options.interfaces.iter();
    let of_switches = of_switches.map(|interface| (&interface.domain, interface.network, interface.ethernet));
    let of_sockets = options.sockets.iter();
    let of_sockets =
        of_sockets.filter_map(|guest| guest.network.map(|(network, own)| (&guest.domain, network, own)));
    for (name, network, address) in of_switches.chain(of_sockets) {
        let same = host.domains.iter().position(|domain| domain.name == *name);
        if let Some(domain) = same.map(DomainIx).filter(|domain| !ends.has_domain(*domain)) {
            ends.add(network, Endpoint::Guest(domain), address);
        }
    }
    for outside in &options.outside {
        ends.add(outside.network, Endpoint::Outside(outside.host), outside.ethernet);
    }
    ends
}

/// What an end of flows sends and answers, in a run with `ends`.
pub(super) fn network_of(
    host: &Host,
    ends: &Ends,
    end: Endpoint,
    name: &str,
    tasks: &[(TaskIx, protocol::Task)],
) -> Result<Option<protocol::Network>, TasksError> {
    let (places, requests): (Vec<TaskIx>, Vec<protocol::Task>) = tasks.iter().cloned().unzip();
    let Some(network) = ends.network_of(host, end, &places) else { return Ok(None) };
    let checked = network.check(&requests);
    checked.map_err(|source| TasksError::Flows { end: name.to_owned(), source })?;
    let has_part = !network.flows.is_empty() || !network.steps.is_empty();
    Ok(has_part.then_some(network))
}

fn prepare_domains<'a>(
    host: &'a Host,
    options: &StageInputs<'a>,
    ends: &Ends,
) -> Result<Vec<PreparedDomain<'a>>, Error> {
    let mut boot: Option<Boot> = None;
    let mut domains = Vec::new();
    for (index, domain) in host.domains.iter().enumerate() {
        let mut programs = options.config.guest_programs.iter();
        let program = programs.find(|(name, _)| *name == domain.name).map(|(_, program)| program.as_path());
        let start = match (&domain.live.backend, options.config.default_backend) {
            _ if is_switch(host, options, DomainIx(index)) => Start::Switch,
            (Backend::Vm(_), _) | (Backend::Default, DefaultBackend::Vm) => {
                let boot = match &boot {
                    Some(boot) => boot,
                    None => boot.insert(Boot::prepare(host, options)?),
                };
                Start::Vm(Box::new(boot.spec(domain)))
            }
            (Backend::Default, DefaultBackend::Process) => Start::Guest { program },
            (Backend::Process(process), _) => start_process(process, program),
            (Backend::Attach(attach), _) => {
                Start::Attach(attach::vcpus(&domain.name, attach, domain.vcpus.len(), options.stop)?)
            }
        };
        let ix = DomainIx(index);
        let on_switch = ends.has_domain(ix) && matches!(start, Start::Vm(_));
        let tasks = match start {
            Start::Vm(_) | Start::Guest { .. } => workload::tasks::of_domain(host, ix, on_switch)?,
            Start::Command { .. } | Start::Attach(_) | Start::Switch => Vec::new(),
        };
        let network =
            if on_switch { network_of(host, ends, Endpoint::Guest(ix), &domain.name, &tasks)? } else { None };
        domains.push(PreparedDomain { start, tasks, network });
    }
    Ok(domains)
}

fn start_process<'a>(process: &'a Process, program: Option<&'a Path>) -> Start<'a> {
    match &process.program {
        Program::Guest => Start::Guest { program },
        Program::Command { program, arguments } => Start::Command {
            command: [program].into_iter().chain(arguments).cloned().collect(),
            environment: &process.environment,
            directory: process.directory.as_deref(),
        },
    }
}

/// What VMs boot from and how they are executed, where their domains do not say.
struct Boot {
    image: Image,
    /// With the module for sockets of this host, where a VM has them.
    with_sockets: Option<Image>,
    accelerator: Accelerator,
}

impl Boot {
    fn prepare(host: &Host, options: &StageInputs<'_>) -> Result<Boot, Error> {
        let progress = |line: &str| options.step(line);
        let image = image::prepare(&progress, options.stop)?;
        let with_sockets = if options.sockets.is_empty() {
            None
        } else {
            Some(image::sockets::with_module(&image, &progress, options.stop)?)
        };
        let chooses = |domain: &Domain| match &domain.live.backend {
            Backend::Default => options.config.default_backend == DefaultBackend::Vm,
            Backend::Vm(vm) => vm.accel == Accel::Auto,
            Backend::Process(_) | Backend::Attach(_) => false,
        };
        if !host.domains.iter().any(chooses) {
            return Ok(Boot { image, with_sockets, accelerator: Accelerator::Tcg });
        }
        let cache = Cache::of_user()?;
        let (accelerator, why) = qemu::accel::choose(&cache, &image, &progress, options.stop)?;
        if let Some(why) = why {
            progress(&why);
        }
        Ok(Boot { image, with_sockets, accelerator })
    }

    /// The VM of a domain.
    fn spec(&self, domain: &Domain) -> VmSpec {
        let sockets = domain.live.sockets.as_ref();
        let image = self.with_sockets.as_ref().filter(|_| sockets.is_some()).unwrap_or(&self.image);
        let mut spec = VmSpec::new(&domain.name, image, self.accelerator);
        if let Some(sockets) = sockets {
            spec.append = format!("{} {}", spec.append, module_words(sockets));
        }
        spec.vcpus = domain.vcpus.len() as u32;
        if let Backend::Vm(vm) = &domain.live.backend {
            apply_keys(&mut spec, vm);
        }
        spec
    }
}

/// The parameters of the module for sockets of this host, for the project's guest.
fn module_words(sockets: &Sockets) -> String {
    let commands = match sockets.commands.join(",") {
        none if none.is_empty() => "all".to_owned(),
        commands => commands,
    };
    let idle_poll_us = sockets.idle_poll.as_ns() / 1000;
    format!("punctual.sockets={commands} punctual.idle_poll_us={idle_poll_us}")
}

/// Sets what the host file says of a VM.
fn apply_keys(spec: &mut VmSpec, vm: &Vm) {
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
        Accel::Auto => spec.accelerator,
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
}
