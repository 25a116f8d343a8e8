//! A running VM: a QEMU process, its monitor, its console and the guest program in it.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::confine;
use super::console::Console;
use super::error::{Error, LastWords};
use super::qmp::Qmp;
use super::spec::{Network, Ports, SwitchPort, VmSpec};
use crate::workload::Client;
use punctual_linux::channel::Stop;
use punctual_linux::child;
use punctual_linux::os;
use punctual_linux::vmm::{self, Role, Thread};

/// How long QEMU may take for an answer; it may be starved of its processor.
const QMP_LIMIT: Duration = Duration::from_secs(30);

/// How long QEMU may take to end before it is killed.
const QUIT_LIMIT: Duration = Duration::from_secs(3);

/// How long a QEMU without a monitor may take to end by itself: it refuses its arguments, for example.
const REFUSAL_LIMIT: Duration = Duration::from_millis(500);

/// How long the last lines of a QEMU that ended may take to arrive.
const LAST_WORDS_LIMIT: Duration = Duration::from_secs(2);

/// Lines of the console in a message.
const CONSOLE_LINES: usize = 25;

/// A running VM. It is killed when this is dropped, or when we end in whatever way.
#[derive(Debug)]
pub struct Vm {
    name: String,
    child: Child,
    qmp: Qmp,
    console: Console,
    /// The socket of the guest program's port, until the guest program has announced itself.
    port: Option<UnixStream>,
    client: Option<Client>,
    weaknesses: Vec<String>,
    stop: Stop,
}

impl Vm {
    /// Starts QEMU; the guest boots while the call returns. [`Vm::connect`] waits for it. `stop` ends this
    /// and every later wait early.
    ///
    /// # Errors
    /// When QEMU cannot be started, with what it wrote.
    pub fn start(spec: &VmSpec, stop: Stop) -> Result<Vm, Error> {
        let started = Vm::start_once(spec, stop);
        let has_none = |lines: &[String]| lines.iter().any(|line| line.contains("sandbox"));
        match started {
            Err(Error::NoMonitor { last_words, .. }) if spec.sandbox && has_none(&last_words.lines) => {
                let mut vm = Vm::start_once(&VmSpec { sandbox: false, ..spec.clone() }, stop)?;
                vm.weaknesses.push("QEMU does not filter its system calls: it was built without".into());
                Ok(vm)
            }
            started => started,
        }
    }

    fn start_once(spec: &VmSpec, stop: Stop) -> Result<Vm, Error> {
        spec.check()?;
        let name = || spec.name.clone();
        let pair = || UnixStream::pair().map_err(|source| Error::Socket { vm: name(), source });
        let ((qmp, qmp_end), (serial, serial_end), (port, port_end)) = (pair()?, pair()?, pair()?);
        let (mut child, weaknesses) = spawn(spec, [qmp_end, serial_end, port_end].map(OwnedFd::from))?;
        let console = Console::default();
        let errors = child.stderr.take();
        let followed =
            console.follow(serial).and_then(|()| errors.map_or(Ok(()), |errors| console.follow(errors)));
        if let Err(source) = followed {
            end(&mut child, Duration::ZERO);
            return Err(Error::Start { vm: name(), program: spec.program.clone(), source });
        }
        match Qmp::over(qmp, QMP_LIMIT, stop) {
            Ok(qmp) => {
                let (port, client) = (Some(port), None);
                Ok(Vm { name: name(), child, qmp, console, port, client, weaknesses, stop })
            }
            Err(source) => {
                let status = end(&mut child, REFUSAL_LIMIT);
                console.wait_for_end(LAST_WORDS_LIMIT);
                let last_words = LastWords { status, lines: console.last(CONSOLE_LINES) };
                Err(Error::NoMonitor { vm: name(), source, last_words })
            }
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What of its confinement does not work here, a sentence each.
    pub fn weaknesses(&self) -> &[String] {
        &self.weaknesses
    }

    /// QEMU's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the guest program, for `limit` at most, or returns at once when it was there before.
    ///
    /// # Errors
    /// When it does not come, with the last lines of the console.
    pub fn connect(&mut self, limit: Duration) -> Result<&mut Client, Error> {
        if let Some(port) = self.port.take() {
            match Client::connect(port, limit, self.stop) {
                Ok(client) => self.client = Some(client),
                Err(source) => {
                    let last_words = self.last_words();
                    return Err(Error::NoBoot { vm: self.name.clone(), source, last_words });
                }
            }
        }
        self.client.as_mut().ok_or_else(|| Error::GivenUp { vm: self.name.clone() })
    }

    /// The thread ids of the vCPUs, by number, as they are now.
    ///
    /// # Errors
    /// When QEMU does not tell.
    pub fn vcpu_threads(&mut self) -> Result<Vec<u32>, Error> {
        let vm = || self.name.clone();
        let threads = self.qmp.vcpu_threads().map_err(|source| Error::Monitor { vm: vm(), source })?;
        let threads: Vec<u32> = threads.into_iter().map(|(_, tid)| tid).collect();
        // A QEMU that its guest has taken over could name others.
        let is_own = |tid: &u32| os::proc::process_of(*tid as i32).is_ok_and(|pid| pid == self.pid() as i32);
        match threads.iter().find(|tid| !is_own(tid)) {
            Some(&thread) => Err(Error::ForeignThread { vm: vm(), thread }),
            None => Ok(threads),
        }
    }

    /// QEMU's other threads, and the kernel's that work for it, as they are now.
    ///
    /// # Errors
    /// When QEMU has ended.
    pub fn helper_threads(&mut self) -> Result<Vec<Thread>, Error> {
        let vcpus = self.vcpu_threads()?;
        let proc = Path::new("/proc");
        let mut threads = vmm::threads_of(proc, self.pid())
            .map_err(|source| Error::Threads { vm: self.name.clone(), source })?;
        threads.retain(|thread| !vcpus.contains(&thread.tid) && !matches!(thread.role, Role::Vcpu(_)));
        threads.extend(vmm::vhost_kernel_threads(proc, self.pid()));
        Ok(threads)
    }

    /// The last lines on the console and of QEMU's own messages.
    pub fn console(&self, lines: usize) -> Vec<String> {
        self.console.last(lines)
    }

    /// How QEMU ended, if it did, and the last lines that it and its guest wrote.
    pub fn last_words(&mut self) -> LastWords {
        // The last lines may still be on their way to us.
        std::thread::sleep(Duration::from_millis(50));
        let status = self.child.try_wait().ok().flatten();
        if status.is_some() {
            self.console.wait_for_end(LAST_WORDS_LIMIT);
        }
        LastWords { status, lines: self.console.last(CONSOLE_LINES) }
    }

    /// Ends the VM: QEMU is asked, and killed if it does not comply.
    pub fn quit(mut self) {
        if self.qmp.execute("quit").is_ok() {
            end(&mut self.child, QUIT_LIMIT);
        }
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        end(&mut self.child, Duration::ZERO);
    }
}

/// Starts QEMU with these ends of its channels: monitor, serial console, the guest program's port. Returns
/// what of its confinement does not work.
fn spawn(spec: &VmSpec, ends: [OwnedFd; 3]) -> Result<(Child, Vec<String>), Error> {
    let failed = |source: io::Error| {
        let (vm, program) = (spec.name.clone(), spec.program.clone());
        match source.kind() {
            io::ErrorKind::NotFound => Error::NoQemu { vm, program },
            _ => Error::Start { vm, program, source },
        }
    };
    let channels = ends.each_ref().map(AsRawFd::as_raw_fd);
    let (mut inherited, mut spec_inside) = (Vec::from(ends), spec.clone());
    let mut command = Command::new(&spec.program);
    let mut weaknesses = Vec::new();
    match confine::user_for(spec) {
        Ok(None) => {}
        Ok(Some(user)) => {
            inherited.extend(confine::open_files(&mut spec_inside).map_err(failed)?);
            command.uid(user.id).gid(user.group).current_dir("/");
        }
        Err(why) => weaknesses.push(format!("QEMU runs as root: {why}")),
    }
    let switch = match &spec.network {
        Network::Switch { port, .. } => Some(port),
        _ => None,
    };
    let mut connect = |port: Option<&SwitchPort>| -> Result<Option<i32>, Error> {
        let Some(port) = port else { return Ok(None) };
        let end = port.descriptor().map_err(failed)?;
        let number = end.as_raw_fd();
        inherited.push(end);
        Ok(Some(number))
    };
    let ports = Ports { switch: connect(switch)?, sockets: connect(spec.sockets.as_ref())? };
    command.args(spec_inside.arguments(channels, ports, os::tsc::khz()));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    Ok((child::spawn(command, inherited).map_err(failed)?, weaknesses))
}

/// Gives a process `patience` to end by itself, then kills it. Returns its status if it ended by itself.
fn end(child: &mut Child, patience: Duration) -> Option<ExitStatus> {
    let give_up = Instant::now() + patience;
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if Instant::now() >= give_up {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    // Its threads exit without real-time priority: a real-time thread that waits for them spins.
    os::sched::demote_process(child.id() as i32);
    // Both fail only for a process that has ended already.
    let _ = child.kill();
    let _ = child.wait();
    None
}
