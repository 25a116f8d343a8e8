//! Servers on every path to them: VMs, a container, a process, in a network namespace of this process's own.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path as FilePath, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration as StdDuration, Instant};

use punctual_linux::Stop;
use punctual_linux::child;
use punctual_linux::os::sched::{self, Attributes};
use punctual_linux::os::{net, proc};
use punctual_linux::preflight;
use punctual_model::network::Vlans;
use punctual_model::sockets::Sockets;
use punctual_net::InterfaceParams;
use punctual_net::registry;
use punctual_sched::Duration;
use punctual_sched::registry::Options;
use punctual_sockets::{Config, Server as SocketsServer};
use punctual_switch::wire::{Device, VnetHeader};
use punctual_switch::{End, PlaneThread, Port, Switch};
use punctual_vm::cache::Cache;
use punctual_vm::image::{self, Image};
use punctual_vm::qemu::{self, Accelerator, Network, SwitchPort, Vm, VmSpec};
use punctual_vm::workload;

use super::affinity::keep_from_vcpus;
use super::echo::wait_for_echo;
use super::path::Path;
use crate::error::Error;
use crate::target::LiveOptions;

/// Real-time priorities as in the thesis (s.6.1), greater is more urgent: the vCPU or the server's process,
/// what moves its packets, and the thread that makes its socket calls.
const SERVER_PRIORITY: u32 = 47;
const MOVER_PRIORITY: u32 = 48;
const CALLS_PRIORITY: u32 = 49;
/// Where the echo, and memcached, listen.
const ECHO_PORT: u16 = 7000;
const CACHE_PORT: u16 = 11_211;
/// Where a SIP relay listens.
pub(super) const RELAY_PORT: u16 = 5060;
/// Where receivers of streams listen.
const SINK_PORT: u16 = 9000;
/// How long a VM may take to boot.
const BOOT: StdDuration = StdDuration::from_secs(90);

/// What all servers of a run share.
pub(super) struct Lab<'a> {
    options: &'a LiveOptions<'a>,
    plain: Image,
    with_sockets: Image,
    accelerator: Accelerator,
    program: PathBuf,
    folder: tempfile::TempDir,
    /// Programs of Debian's that guests also have, and what starts them.
    extra: Option<Extra>,
    /// Numbers networks.
    networks: u8,
}

/// Placeholder for the address in [`Extra::start`] and [`Extra::command`].
pub(super) const ADDRESS: &str = "ADDRESS";

/// Files that guests have, and the line that starts what they are for.
pub(super) struct Extra {
    pub files: Vec<(String, Vec<u8>)>,
    pub start: String,
    /// The same on the host: program and arguments.
    pub command: Vec<String>,
}

/// A server that runs.
pub(super) struct Server {
    pub path: Path,
    /// Its echo.
    pub echo: SocketAddr,
    /// Its memcached, if it has one.
    pub cache: SocketAddr,
    /// Its SIP relay, if it has one.
    pub relay: SocketAddr,
    /// The address of who asks it.
    pub client: Ipv4Addr,
    /// Processes that stand still while others are asked.
    processes: Vec<i32>,
    _parts: Parts,
}

/// What ends with a server.
#[derive(Default)]
struct Parts {
    _vm: Option<Vm>,
    _children: Vec<Running>,
    _switch: Option<Switch>,
    _sockets: Option<SocketsServer>,
}

/// A process that ends with its owner.
pub(super) struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It leads a process group (`child::spawn`), whose other processes end, too. Both fail only for
        // a process that has ended already.
        if let Some(group) = rustix::process::Pid::from_raw(self.0.id() as i32) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

impl<'a> Lab<'a> {
    /// Makes the images; then everything is in a network namespace of its own, which ends with this process.
    ///
    /// # Errors
    /// What is missing.
    pub(super) fn new(options: &'a LiveOptions<'a>) -> Result<Lab<'a>, Error> {
        let failed = |error: &dyn std::error::Error| Error::Lab(error.to_string());
        let cache = Cache::of_user().map_err(|error| failed(&error))?;
        let plain = image::prepare_in(&cache, options.progress, options.stop).map_err(stopped(options))?;
        let with_sockets =
            image::sockets::with_module(&plain, options.progress, options.stop).map_err(stopped(options))?;
        let chosen = qemu::accel::choose(&cache, &plain, options.progress, options.stop);
        let (accelerator, why) = chosen.map_err(|error| failed(&error))?;
        why.into_iter().for_each(|why| (options.progress)(&why));
        let program = cache.program("punctual-guest", workload::PROGRAM).map_err(|error| failed(&error))?;
        let folder = tempfile::tempdir().map_err(|error| failed(&error))?;
        Ok(Lab { options, plain, with_sockets, accelerator, program, folder, extra: None, networks: 0 })
    }

    /// Leaves the machine's network: from here on nothing can be downloaded.
    ///
    /// # Errors
    /// Without rights.
    pub(super) fn enter_namespace(&self) -> Result<(), Error> {
        net::own_namespace().map_err(|error| {
            Error::Lab(format!("no network namespace for the measurement: {error}; it takes root"))
        })?;
        ip(&["link", "set", "lo", "up"])
    }

    /// What guests started from now on have besides.
    pub(super) fn set_extra(&mut self, extra: Option<Extra>) {
        self.extra = extra;
    }

    /// Starts a server on a path and waits until it answers.
    ///
    /// # Errors
    /// It does not start.
    pub(super) fn server(&mut self, path: Path) -> Result<Server, Error> {
        (self.options.progress)(&format!("starting {}", path.title()));
        self.networks += 1;
        let server = match path {
            Path::Process => self.process(),
            Path::Container => self.container(),
            Path::Virtio | Path::VhostUser => self.with_card(path),
            Path::Interrupts | Path::ExtendedIdle => self.with_sockets(path),
        }?;
        wait_for_echo(server.echo, self.options.stop)?;
        Ok(server)
    }

    /// A VM that receives streams over virtio, in the fair class.
    ///
    /// # Errors
    /// It does not start.
    pub(super) fn receiver(&mut self) -> Result<(Server, SocketAddr), Error> {
        (self.options.progress)("starting a receiver");
        self.networks += 1;
        let (host, guest) = self.addresses();
        let tap = self.tap(host)?;
        let mut spec = VmSpec::new(&format!("receiver {}", self.networks), &self.plain, self.accelerator);
        spec.network = Network::Tap { interface: tap, vhost: false };
        spec.append = format!("{} punctual.address={guest}/24", spec.append);
        self.add_files(&mut spec, &format!("punctual-guest sink 0.0.0.0:{SINK_PORT} &\n"), None)?;
        let vm = self.boot(&spec)?;
        let sink = SocketAddrV4::new(guest, SINK_PORT).into();
        Ok((server_of(Path::Virtio, guest, vm.pid(), Parts { _vm: Some(vm), ..Parts::default() }), sink))
    }

    /// Of this machine and of the guest, in the network with the present number.
    fn addresses(&self) -> (Ipv4Addr, Ipv4Addr) {
        (Ipv4Addr::new(10, 77, self.networks, 1), Ipv4Addr::new(10, 77, self.networks, 2))
    }

    fn tap(&self, address: Ipv4Addr) -> Result<String, Error> {
        let name = format!("tap{}", self.networks);
        ip(&["tuntap", "add", &name, "mode", "tap"])?;
        ip(&["address", "add", &format!("{address}/24"), "dev", &name])?;
        ip(&["link", "set", &name, "up"])?;
        Ok(name)
    }

    /// What the guest starts by itself, as a further archive behind its initramfs.
    fn add_files(&self, spec: &mut VmSpec, start: &str, extra_at: Option<Ipv4Addr>) -> Result<(), Error> {
        let extra = self.extra.as_ref().filter(|_| extra_at.is_some());
        let address = extra_at.unwrap_or(Ipv4Addr::UNSPECIFIED);
        let of_extra = extra.map(|extra| extra.start.replace(ADDRESS, &address.to_string()));
        let start = format!("{start}{}", of_extra.unwrap_or_default());
        let mut files: Vec<(&str, &[u8])> = vec![("start", start.as_bytes())];
        let of_extra = extra.iter().flat_map(|extra| &extra.files);
        files.extend(of_extra.map(|(name, bytes)| (name.as_str(), bytes.as_slice())));
        let base = spec.initrd.take().unwrap_or_default();
        let to = self.folder.path().join(format!("initrd{}", self.networks));
        image::append(&base, &files, &to).map_err(|error| Error::Lab(error.to_string()))?;
        spec.initrd = Some(to);
        Ok(())
    }

    fn boot(&self, spec: &VmSpec) -> Result<Vm, Error> {
        let failed = |error: qemu::Error| {
            if (self.options.stop)() { Error::Interrupted } else { Error::Lab(error.to_string()) }
        };
        let mut vm = Vm::start(spec, self.options.stop).map_err(failed)?;
        vm.connect(BOOT).map_err(failed)?;
        Ok(vm)
    }

    /// A VM with a card: on a TAP moved by QEMU, or at a port of our switch.
    fn with_card(&mut self, path: Path) -> Result<Server, Error> {
        let (host, guest) = self.addresses();
        let mut spec = VmSpec::new(path.title(), &self.plain, self.accelerator);
        let mut parts = Parts::default();
        if path == Path::Virtio {
            spec.network = Network::Tap { interface: self.tap(host)?, vhost: false };
        } else {
            let (port, switch) = self.switch(host)?;
            spec.network = Network::Switch { port, ethernet: "52:54:00:18:00:02".into(), mtu: None };
            parts._switch = Some(switch);
        }
        spec.append = format!("{} punctual.address={guest}/24", spec.append);
        self.add_files(&mut spec, &format!("punctual-guest echo 0.0.0.0:{ECHO_PORT} &\n"), Some(guest))?;
        let vm = self.boot(&spec)?;
        self.urgent(vm, parts, path, guest)
    }

    /// A switch between a TAP and a VM.
    fn switch(&self, host: Ipv4Addr) -> Result<(SwitchPort, Switch), Error> {
        let failed = |error: &dyn std::fmt::Display| Error::Lab(format!("the switch: {error}"));
        let name = format!("tap{}", self.networks);
        let tap = net::Tap::open(&name).map_err(|error| failed(&error))?;
        ip(&["address", "add", &format!("{host}/24"), "dev", &name])?;
        ip(&["link", "set", &name, "up"])?;
        let (port, listener) = SwitchPort::new().map_err(|error| failed(&error))?;
        let of = |name: &str, end| Port {
            name: name.into(),
            end,
            params: InterfaceParams { priority: Some(1), ..InterfaceParams::default() },
            plane: 0,
            address: None,
            vlans: Vlans::default(),
            groups: Vec::new(),
        };
        let enter = || keep_from_vcpus(0, MOVER_PRIORITY);
        let ports = vec![
            of("vm", End::Listener(listener)),
            of("tap", End::Uplink(Box::new(Device::new(tap, VnetHeader::Virtio1)))),
        ];
        let discipline = registry::find("preemptive").ok_or_else(|| failed(&"no such discipline"))?;
        let config = punctual_switch::Config {
            ports,
            planes: vec![PlaneThread {
                name: "switch".into(),
                enter: Arc::new(enter),
                poll: Duration::ZERO,
                budget: None,
            }],
            discipline,
            options: Options::default(),
            mtu: None,
            check: false,
        };
        let (switch, _) = Switch::start(config).map_err(|error| failed(&error))?;
        Ok((port, switch))
    }

    /// A VM whose guest has sockets of the host.
    fn with_sockets(&mut self, path: Path) -> Result<Server, Error> {
        let failed = |error: &dyn std::fmt::Display| Error::Lab(format!("sockets: {error}"));
        let (port, listener) = SwitchPort::new().map_err(|error| failed(&error))?;
        listener.set_nonblocking(true).map_err(|error| failed(&error))?;
        let own = Ipv4Addr::new(127, 77, self.networks, 1);
        let rules = [
            format!("bind udp {own}:0-65535"),
            format!("bind tcp {own}:0-65535"),
            // To whom a relay relays.
            format!("connect udp {}:1024-65535", Ipv4Addr::LOCALHOST),
        ];
        let allow: Result<Vec<_>, String> = rules.iter().map(|rule| rule.parse()).collect();
        let allow = allow.map_err(|error| failed(&error))?;
        let config = Config {
            name: "sockets".into(),
            socket: PathBuf::new(),
            policy: Sockets { allow, ..Sockets::default() },
            poll: if path == Path::ExtendedIdle { CALLS_POLL } else { Duration::ZERO },
            enter: Box::new(|| keep_from_vcpus(0, CALLS_PRIORITY)),
        };
        let (server, _) = SocketsServer::start_on(listener, config).map_err(|error| failed(&error))?;
        let mut spec = VmSpec::new(path.title(), &self.with_sockets, self.accelerator);
        spec.sockets = Some(port);
        let idle_poll_us = if path == Path::ExtendedIdle { IDLE_POLL_US } else { 0 };
        spec.append = format!("{} punctual.sockets=all punctual.idle_poll_us={idle_poll_us}", spec.append);
        self.add_files(&mut spec, &format!("punctual-guest echo {own}:{ECHO_PORT} &\n"), Some(own))?;
        let vm = self.boot(&spec)?;
        self.urgent(vm, Parts { _sockets: Some(server), ..Parts::default() }, path, own)
    }

    /// Gives a VM's threads the priorities of an RT VM.
    fn urgent(&self, mut vm: Vm, mut parts: Parts, path: Path, own: Ipv4Addr) -> Result<Server, Error> {
        let failed = |error: &dyn std::fmt::Display| Error::Lab(format!("{}: {error}", path.title()));
        for thread in vm.helper_threads().map_err(|error| failed(&error))? {
            keep_from_vcpus(thread.tid as i32, MOVER_PRIORITY);
        }
        let last = preflight::online().last().copied().unwrap_or(0);
        for thread in vm.vcpu_threads().map_err(|error| failed(&error))? {
            // A guest that spins leaves the other processors to everybody else.
            sched::set_affinity(thread as i32, &[last]).map_err(|error| failed(&error))?;
            let attributes = Attributes::fifo(SERVER_PRIORITY);
            sched::set_attributes(thread as i32, &attributes).map_err(|error| failed(&error))?;
        }
        let pid = vm.pid();
        parts._vm = Some(vm);
        Ok(server_of(path, own, pid, parts))
    }

    /// What stands beside the echo on the host.
    fn extra_process(&self, address: Ipv4Addr, before: &[String]) -> Result<Option<Running>, Error> {
        let Some(extra) = &self.extra else { return Ok(None) };
        let address = address.to_string();
        let mut words = before.iter().chain(&extra.command).map(|word| word.replace(ADDRESS, &address));
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words);
        start(command).map(Some)
    }

    fn process(&mut self) -> Result<Server, Error> {
        let own = Ipv4Addr::new(127, 77, self.networks, 1);
        let mut command = Command::new(&self.program);
        command.args(["echo", &format!("{own}:{ECHO_PORT}")]);
        let echo = start(command)?;
        let pid = echo.0.id();
        let mut children = vec![echo];
        children.extend(self.extra_process(own, &[])?);
        let server = server_of(Path::Process, own, pid, Parts::default());
        Ok(prioritised(server, children))
    }

    /// A process in namespaces of its own, behind a pair of virtual cards.
    fn container(&mut self) -> Result<Server, Error> {
        let (host, guest) = self.addresses();
        let mut command = Command::new("unshare");
        command.args(["--net", "--ipc", "--uts"]).arg(&self.program);
        command.args(["echo", &format!("0.0.0.0:{ECHO_PORT}")]);
        let echo = start(command)?;
        let pid = echo.0.id();
        wait_for_namespace(pid)?;
        let (inside, name) = (pid.to_string(), format!("veth{}", self.networks));
        ip(&["link", "add", &name, "type", "veth", "peer", "name", "eth0", "netns", &inside])?;
        ip(&["address", "add", &format!("{host}/24"), "dev", &name])?;
        ip(&["link", "set", &name, "up"])?;
        let enter = format!("--net=/proc/{pid}/ns/net");
        for arguments in [
            vec!["address", "add", &format!("{guest}/24"), "dev", "eth0"],
            vec!["link", "set", "eth0", "up"],
            vec!["link", "set", "lo", "up"],
        ] {
            let mut command = Command::new("nsenter");
            finish(command.arg(&enter).arg("ip").args(&arguments), "nsenter", &arguments)?;
        }
        let mut children = vec![echo];
        children.extend(self.extra_process(guest, &["nsenter".into(), enter])?);
        let server = server_of(Path::Container, guest, pid, Parts::default());
        Ok(prioritised(server, children))
    }
}

/// How long an idle processor of a guest looks for messages: longer than the gap between questions. One that
/// has halted takes an interrupt, which can be slower than all else; the thesis patched its host for that.
const IDLE_POLL_US: u64 = 12_000;
/// How long the thread that makes a guest's calls waits for the next call of a service, with extended idle.
const CALLS_POLL: Duration = Duration::from_us(200);

fn stopped<'a>(options: &'a LiveOptions<'_>) -> impl Fn(image::Error) -> Error + 'a {
    |error| if (options.stop)() { Error::Interrupted } else { Error::Lab(error.to_string()) }
}

fn server_of(path: Path, address: Ipv4Addr, pid: u32, parts: Parts) -> Server {
    let at = |port| SocketAddrV4::new(address, port).into();
    let client = match address.octets() {
        [127, ..] => Ipv4Addr::LOCALHOST,
        [first, second, network, _] => Ipv4Addr::new(first, second, network, 1),
    };
    Server {
        path,
        echo: at(ECHO_PORT),
        cache: at(CACHE_PORT),
        relay: at(RELAY_PORT),
        client,
        processes: vec![pid as i32],
        _parts: parts,
    }
}

/// Puts the threads of processes under `SCHED_FIFO`.
fn prioritised(mut server: Server, children: Vec<Running>) -> Server {
    // They have started their threads when they answer.
    std::thread::sleep(StdDuration::from_millis(300));
    for child in &children {
        let pid = child.0.id() as i32;
        for thread in proc::threads(pid).unwrap_or_default() {
            // A thread may have ended.
            let _ = sched::set_attributes(thread, &Attributes::fifo(SERVER_PRIORITY));
        }
    }
    server.processes = children.iter().map(|child| child.0.id() as i32).collect();
    server._parts._children = children;
    server
}

impl Server {
    /// Lets it stand still, or go on.
    pub(super) fn pause(&self, pause: bool) {
        use rustix::process::{Pid, Signal, kill_process};
        let signal = if pause { Signal::STOP } else { Signal::CONT };
        for pid in self.processes.iter().filter_map(|pid| Pid::from_raw(*pid)) {
            // One that has ended is noticed when it does not answer.
            let _ = kill_process(pid, signal);
        }
    }
}

/// Waits until a program has ended by itself.
///
/// # Errors
/// It does not in this time, or everything is to end: then it is killed.
pub(super) fn wait_for_end(
    mut running: Running,
    name: &str,
    stop: Stop,
    patience: StdDuration,
) -> Result<(), Error> {
    let give_up = Instant::now() + patience;
    let failed = |error: io::Error| Error::Lab(format!("{name}: {error}"));
    while running.0.try_wait().map_err(failed)?.is_none() {
        if stop() {
            return Err(Error::Interrupted);
        }
        if Instant::now() > give_up {
            return Err(Error::Lab(format!("{name} does not end: its server does not answer")));
        }
        std::thread::sleep(StdDuration::from_millis(20));
    }
    Ok(())
}

fn start(command: Command) -> Result<Running, Error> {
    let program = command.get_program().to_string_lossy().into_owned();
    let mut command = command;
    command.stdout(Stdio::null()).stderr(Stdio::null());
    child::spawn(command, Vec::new())
        .map(Running)
        .map_err(|error| Error::Lab(format!("{program} cannot be started: {error}")))
}

/// Waits until the process has left this network namespace.
fn wait_for_namespace(pid: u32) -> Result<(), Error> {
    let of = |process: &str| std::fs::read_link(FilePath::new("/proc").join(process).join("ns/net"));
    let give_up = Instant::now() + StdDuration::from_secs(5);
    let own = of("self").map_err(|error| Error::Lab(format!("/proc/self/ns/net: {error}")))?;
    while of(&pid.to_string()).is_ok_and(|other| other == own) {
        if Instant::now() > give_up {
            return Err(Error::Lab("unshare makes no network namespace".into()));
        }
        std::thread::sleep(StdDuration::from_millis(20));
    }
    Ok(())
}

/// Runs `ip` of iproute2 in this process's network namespace.
fn ip(arguments: &[&str]) -> Result<(), Error> {
    finish(Command::new("ip").args(arguments), "ip", arguments)
}

fn finish(command: &mut Command, program: &str, arguments: &[&str]) -> Result<(), Error> {
    let what = format!("{program} {}", arguments.join(" "));
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(Error::Lab(format!("{what}: {}", said.trim())))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(Error::Lab(format!("there is no {program} here: apt install iproute2 util-linux")))
        }
        Err(error) => Err(Error::Lab(format!("{what}: {error}"))),
    }
}
