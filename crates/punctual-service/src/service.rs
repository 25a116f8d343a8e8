//! The loop of the service: one thread, one epoll.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use punctual_linux::os::signal::{Request, Requests};
use punctual_linux::os::users::group_id;
use punctual_linux::vmm;
use rustix::fs::inotify;
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit};

use crate::config::{self, ConfigError};
use crate::core::Core;
use crate::descriptors::{Descriptors, Token};
use crate::discovery::Found;
use crate::enforcement::Link;
use crate::last_good::LastGood;
use crate::log::Log;
use crate::notify::Notifier;
use crate::varlink::SOCKET;
use crate::varlink::server::Server;
use crate::view::EventView;
use crate::waits::DRAIN_INTERVAL;
use crate::{hook, libvirt, topology};

/// How often to look whether a process started.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(150);
/// How often counters are read.
pub const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// Datagrams of the hook that are read in a row.
const HOOK_MAX: usize = 64;
/// Descriptors that the service may want: one for each thread of VMs.
const DESCRIPTORS_MAX: u64 = 65_536;
/// The group that may read.
const GROUP: &str = "punctual";

/// Where the service finds what.
#[derive(Clone, Debug)]
pub struct Options {
    /// The directory of the configuration.
    pub config: PathBuf,
    /// The directory `/run`: libvirt's files are below it, and the service's sockets in `punctual`.
    pub run: PathBuf,
    /// The directory for what outlives a reboot, which is there. Without one nothing does.
    pub state: Option<PathBuf>,
}

/// Why the service does not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Another one runs.
    #[error("another `punctual serve` has its sockets in {}", .0.display())]
    Another(PathBuf),
    #[error("cannot {what} {}: {source}", path.display())]
    File { what: &'static str, path: PathBuf, source: io::Error },
    #[error("the service cannot go on: {0}")]
    System(#[from] io::Error),
}

/// The control socket of the service whose runtime directory is below `run` (normally `/run`).
pub fn socket(run: &Path) -> PathBuf {
    run.join("punctual").join(SOCKET)
}

/// A service that is ready to run.
#[derive(Debug)]
pub struct Service {
    core: Core,
    server: Server,
    descriptors: Descriptors,
    signals: Requests,
    notifier: Notifier,
    log: Log,
    hook: Hook,
    libvirt: Watch,
    /// To the process that enforces.
    link: Link,
    /// The ends of the actors' processes.
    processes: BTreeMap<u32, OwnedFd>,
    /// The enforcing process was told what is to be held.
    is_enforcing: bool,
    /// The manager has not been sent the summary as it is now.
    is_status_due: bool,
    /// Held for as long as the service runs.
    _lock: OwnedFd,
}

impl Service {
    /// Reads the configuration, makes the sockets, and finds the VMs and units that run. It blocks SIGHUP,
    /// SIGTERM and SIGINT in this thread.
    ///
    /// # Errors
    /// The configuration is broken and none before was valid, another service runs, or the sockets cannot be
    /// made.
    pub fn open(options: &Options) -> Result<Service, Error> {
        let signals = Requests::block()?;
        let (notifier, log) = (Notifier::from_environment()?, Log::open());
        let topology = topology::read(Path::new("/"))?;
        let last_good = LastGood::new(options.state.as_deref());
        let start = last_good.start(config::load(&options.config, &topology), &topology)?;
        raise_descriptors();
        let directory = options.run.join("punctual");
        let lock = lock(&directory)?;
        let group = group_id(GROUP, Path::new("/etc/group")).ok().flatten();
        let path = directory.join(SOCKET);
        let file = |what, path: &Path| {
            let path = path.to_owned();
            move |source| Error::File { what, path, source }
        };
        let server = Server::open(&path, group).map_err(file("make the socket", &path))?;
        let path = directory.join("hook");
        let hook = Hook::open(&path).map_err(file("make the socket", &path))?;
        let libvirt = Watch::new(&options.run)?;
        let descriptors = Descriptors::new()?;
        descriptors.add(&signals, Token::Signals)?;
        descriptors.add(&hook.socket, Token::Hook)?;
        descriptors.add(&libvirt.inotify, Token::Libvirt)?;
        server.register(&descriptors)?;
        let owners = vmm::trusted_owners(Path::new("/etc/passwd"));
        let core = Core::new(options.config.clone(), &directory, topology, (start, last_good), owners);
        let processes = BTreeMap::new();
        let mut service = Service {
            core,
            server,
            descriptors,
            signals,
            notifier,
            log,
            hook,
            libvirt,
            link: Link::new(&options.run),
            processes,
            is_enforcing: false,
            is_status_due: false,
            _lock: lock,
        };
        service.core.started();
        service.look(Instant::now());
        service.watch_libvirt();
        service.core.sample(Instant::now());
        Ok(service)
    }

    /// Runs until SIGTERM or SIGINT.
    ///
    /// # Errors
    /// The system takes no more orders.
    pub fn run(mut self) -> Result<(), Error> {
        self.settle();
        self.notifier.ready(&self.core.summary());
        let watchdog = self.notifier.watchdog_interval();
        let start = Instant::now();
        let (mut look, mut sample) = (start + LOOK_INTERVAL, start + SAMPLE_INTERVAL);
        let (mut sign, mut drain) = (start, start);
        loop {
            let mut due = look.min(sample).min(watchdog.map_or(look, |_| sign));
            if self.core.waits.is_reading() {
                due = due.min(drain);
            }
            let tokens = self.descriptors.wait(due.saturating_duration_since(Instant::now()))?;
            let mut is_hurry = false;
            for token in tokens {
                match self.handle(token)? {
                    Next::Continue => {}
                    Next::Look => is_hurry = true,
                    Next::End => {
                        self.core.stopping();
                        self.settle();
                        self.notifier.stopping();
                        return Ok(());
                    }
                }
            }
            let now = Instant::now();
            if self.core.waits.is_reading() && now >= drain {
                self.core.waits.drain();
                drain = now + DRAIN_INTERVAL;
            }
            if is_hurry || now >= look {
                self.look(now);
                self.core.watch_waits();
                self.want(now);
                look = now + LOOK_INTERVAL;
            }
            if now >= sample {
                self.watch_libvirt();
                self.core.sample(now);
                // Not with each entry: many VMs may come at once.
                if std::mem::take(&mut self.is_status_due) {
                    self.notifier.status(&self.core.summary());
                }
                self.server.set_listening(&self.descriptors, true);
                sample = now + SAMPLE_INTERVAL;
            }
            if let Some(interval) = watchdog.filter(|_| now >= sign) {
                self.notifier.alive();
                sign = now + interval;
            }
            self.settle();
        }
    }

    fn handle(&mut self, token: Token) -> Result<Next, Error> {
        match token {
            Token::Signals => {
                while let Some(request) = self.signals.next()? {
                    match request {
                        Request::End => return Ok(Next::End),
                        Request::Reload => {
                            self.notifier.reloading();
                            // What is wrong is logged, and in the status.
                            let _ = self.core.reload();
                            self.settle();
                            self.notifier.ready(&self.core.summary());
                        }
                    }
                }
            }
            Token::Libvirt => {
                for path in self.libvirt.changed() {
                    let running = libvirt::read(&path, self.core.registry.owners());
                    running.into_iter().for_each(|running| self.take_libvirt(running));
                }
            }
            Token::Hook => {
                let (announced, counts) = self.hook.read();
                self.core.hook = counts;
                return Ok(if announced { Next::Look } else { Next::Continue });
            }
            Token::Listener => {
                if !self.server.accept(&self.descriptors) {
                    // It is ready all the time; tried again with the next sample.
                    self.server.set_listening(&self.descriptors, false);
                }
            }
            Token::Client(number) => {
                self.core.clients = (self.server.clients(), self.server.dropped());
                self.server.serve(number, &self.descriptors, &mut self.core);
            }
            Token::Process(process) => {
                self.processes.remove(&process);
                self.core.release(process);
            }
            Token::Enforcer => match self.link.serve(&self.descriptors) {
                Ok(reports) => reports.into_iter().for_each(|report| self.core.take_report(report)),
                Err(failure) => self.core.enforcement_failed(failure),
            },
        }
        Ok(Next::Continue)
    }

    /// Tells the enforcing process what is to be held, if that is anything.
    fn want(&mut self, now: Instant) {
        if !self.core.enforces() {
            if std::mem::take(&mut self.is_enforcing) {
                self.link.end();
                self.core.enforcement_ended();
            }
            return;
        }
        self.is_enforcing = true;
        let has_changed = self.core.refresh(now);
        if (has_changed || !self.link.is_connected()) && self.link.is_ready(now) {
            let wanted = self.core.wanted();
            if let Err(failure) = self.link.want(wanted, &self.descriptors, now) {
                self.core.enforcement_failed(failure);
            }
        }
        if self.link.is_silent(now) {
            self.core.enforcement_is_silent();
        }
    }

    /// Finds VMs that started, and cgroups.
    fn look(&mut self, now: Instant) {
        let look = self.core.look(now);
        for process in look.lost {
            self.processes.remove(&process);
            self.core.release(process);
        }
        for Found { process, vm } in look.found {
            self.core.see(Found { process, vm }, now);
            self.hold(process);
        }
        // After the VMs, whose cgroups are theirs.
        let enforcer: Vec<u32> = self.link.process().into_iter().collect();
        self.core.look_for_groups(&enforcer, now);
        let groups = self.core.registry.actors().filter(|actor| actor.is_group());
        let groups: Vec<u32> = groups.map(|actor| actor.process).collect();
        groups.into_iter().for_each(|process| self.hold(process));
    }

    fn take_libvirt(&mut self, running: libvirt::Running) {
        let process = running.process;
        self.core.take_libvirt(running, Instant::now());
        self.hold(process);
    }

    /// Waits for the end of an actor's process. An actor that has ended already, or whose end cannot be
    /// waited for, is released.
    fn hold(&mut self, process: u32) {
        if !self.core.registry.has(process) || self.processes.contains_key(&process) {
            return;
        }
        let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
        let held = pid.and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok());
        match held {
            Some(held) if self.descriptors.add(&held, Token::Process(process)).is_ok() => {
                self.processes.insert(process, held);
            }
            _ => self.core.release(process),
        }
    }

    /// Watches libvirt's directory, which may not have been there, and reads it when it is new.
    fn watch_libvirt(&mut self) {
        if self.libvirt.renew() {
            for running in libvirt::read_all(&self.libvirt.directory, self.core.registry.owners()) {
                self.take_libvirt(running);
            }
        }
    }

    /// Tells everybody what happened.
    fn settle(&mut self) {
        let entries = self.core.take_entries();
        if entries.is_empty() {
            return;
        }
        for entry in &entries {
            self.log.write(entry);
            self.server.publish(&EventView::from(entry), &self.descriptors);
        }
        self.is_status_due = true;
        // An actor that another one replaced has no end to wait for.
        let actors: BTreeSet<u32> = self.core.registry.actors().map(|actor| actor.process).collect();
        self.processes.retain(|process, _| actors.contains(process));
    }
}

/// What follows a descriptor's event.
enum Next {
    Continue,
    /// A VM may have started.
    Look,
    End,
}

/// Makes the runtime directory, and locks it.
fn lock(directory: &Path) -> Result<OwnedFd, Error> {
    let file = |what| move |source| Error::File { what, path: directory.to_owned(), source };
    std::fs::create_dir_all(directory).map_err(file("make the directory"))?;
    let path = directory.join("lock");
    let options = std::fs::File::options().create(true).truncate(false).write(true).open(&path);
    let lock = OwnedFd::from(options.map_err(file("write to"))?);
    match rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::Another(directory.to_owned())),
        Err(error) => Err(file("lock")(error.into())),
    }
}

/// Lets the service have as many descriptors as it may want and is allowed.
fn raise_descriptors() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(DESCRIPTORS_MAX).min(DESCRIPTORS_MAX);
    if limit.current.is_some_and(|current| current < most) {
        let raised = Rlimit { current: Some(most), maximum: limit.maximum };
        // With fewer, threads beyond them are not counted.
        let _ = rustix::process::setrlimit(Resource::Nofile, raised);
    }
}

/// The socket of libvirt's hook.
#[derive(Debug)]
struct Hook {
    socket: UnixDatagram,
    path: PathBuf,
    messages: u64,
    garbage: u64,
}

impl Hook {
    fn open(path: &Path) -> io::Result<Hook> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let socket = UnixDatagram::bind(path)?;
        socket.set_nonblocking(true)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        Ok(Hook { socket, path: path.to_owned(), messages: 0, garbage: 0 })
    }

    /// Reads what came. Does it announce a VM? And how many messages and datagrams of garbage came so far.
    fn read(&mut self) -> (bool, (u64, u64)) {
        let mut announces = false;
        let mut buffer = vec![0; hook::BYTES_MAX + 1];
        for _ in 0..HOOK_MAX {
            let Ok(length) = self.socket.recv(&mut buffer) else { break };
            match hook::Message::parse(&buffer[..length]) {
                Some(message) => {
                    self.messages += 1;
                    announces |= message.announces();
                }
                None => self.garbage += 1,
            }
        }
        (announces, (self.messages, self.garbage))
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Changes in libvirt's directory.
#[derive(Debug)]
struct Watch {
    inotify: OwnedFd,
    directory: PathBuf,
    /// The watch; `None` while there is no directory.
    watch: Option<i32>,
}

impl Watch {
    fn new(run: &Path) -> io::Result<Watch> {
        let flags = inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC;
        Ok(Watch { inotify: inotify::init(flags)?, directory: libvirt::directory(run), watch: None })
    }

    /// Watches the directory as it is now; true when it is another one than before.
    fn renew(&mut self) -> bool {
        let flags = inotify::WatchFlags::MOVED_TO | inotify::WatchFlags::CLOSE_WRITE;
        let watch = inotify::add_watch(&self.inotify, &self.directory, flags).ok();
        let is_new = watch.is_some() && watch != self.watch;
        self.watch = watch;
        is_new
    }

    /// Status files that were written.
    fn changed(&self) -> BTreeSet<PathBuf> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        let mut changed = BTreeSet::new();
        while let Ok(event) = reader.next() {
            let Some(name) = event.file_name() else { continue };
            let path = self.directory.join(std::ffi::OsStr::from_bytes(name.to_bytes()));
            if libvirt::is_status(&path) {
                changed.insert(path);
            }
        }
        changed
    }
}
