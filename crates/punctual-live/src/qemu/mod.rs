//! Virtual machines: QEMU processes that we start, and whose threads are to be scheduled.
//!
//! ```no_run
//! use std::time::Duration;
//! use punctual_live::{cache::Cache, image, qemu::{self, Vm, VmSpec}};
//!
//! # fn main() -> Result<(), String> {
//! let say = |line: &str| eprintln!("{line}");
//! let cache = Cache::of_user()?;
//! let image = image::prepare_in(&cache, &say)?;
//! let (accelerator, why) = qemu::accel::choose(&cache, &image, &say)?;
//! let mut vm = Vm::start(&VmSpec::new("vm1", &image, accelerator))?;
//! let client = vm.connect(Duration::from_secs(60))?;
//! let calibration = client.calibrate(Duration::from_millis(200)).map_err(|error| error.to_string())?;
//! println!("{:?} {:?} {calibration:?}", vm.vcpu_threads()?, vm.helper_threads()?);
//! vm.quit();
//! # Ok(())
//! # }
//! ```
//!
//! Nothing of a VM is left on the machine, however we end: its channels are socket pairs, not files, and QEMU
//! is killed with us.

pub mod accel;
mod console;
mod qmp;
mod spec;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use console::Console;
pub use qmp::Qmp;
pub use spec::{Accelerator, Disk, Network, PROGRAM, VmSpec};

use crate::child;
use crate::os;
use crate::vmm::{self, Role, Thread};
use crate::workload::Client;

/// How long QEMU may take for an answer; it may be starved of its processor.
const QMP_LIMIT: Duration = Duration::from_secs(30);

/// How long QEMU may take to end before it is killed.
const QUIT_LIMIT: Duration = Duration::from_secs(3);

/// Lines of the console in a message.
const CONSOLE_LINES: usize = 25;

/// A running VM. It is killed when this is dropped, or when we end in whatever way.
#[derive(Debug)]
pub struct Vm {
    name: String,
    child: Child,
    qmp: Qmp,
    console: Console,
    /// Until the guest has announced itself.
    port: Option<UnixStream>,
    client: Option<Client>,
}

impl Vm {
    /// Starts QEMU; the guest boots while the call returns. [`Vm::connect`] waits for it.
    ///
    /// # Errors
    /// When QEMU cannot be started, and what it said.
    pub fn start(spec: &VmSpec) -> Result<Vm, String> {
        spec.check()?;
        let in_vm = |what: &str| format!("VM `{}`: {what}", spec.name);
        let pair = || UnixStream::pair().map_err(|error| in_vm(&format!("no socket: {error}")));
        let ((qmp, qmp_end), (serial, serial_end), (port, port_end)) = (pair()?, pair()?, pair()?);
        let ends: Vec<OwnedFd> = [qmp_end, serial_end, port_end].map(OwnedFd::from).into();
        let numbers = [ends[0].as_raw_fd(), ends[1].as_raw_fd(), ends[2].as_raw_fd()];

        let mut command = Command::new(&spec.program);
        command.args(spec.arguments(numbers, os::tsc::khz()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = child::spawn(command, ends).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => in_vm(&format!(
                "there is no {}; install it (Debian: apt install qemu-system-x86)",
                spec.program.display()
            )),
            _ => in_vm(&format!("{} cannot be started: {error}", spec.program.display())),
        })?;
        let console = Console::default();
        console.follow(serial);
        if let Some(errors) = child.stderr.take() {
            console.follow(errors);
        }
        match Qmp::over(qmp, QMP_LIMIT) {
            Ok(qmp) => {
                Ok(Vm { name: spec.name.clone(), child, qmp, console, port: Some(port), client: None })
            }
            Err(error) => {
                let ended = end(&mut child, Duration::from_millis(500));
                Err(in_vm(&format!("{error}{ended}{}", said(&console))))
            }
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// QEMU's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the guest program, for `limit` at most, or returns at once when it was there before.
    ///
    /// # Errors
    /// When it does not come, with the last lines of the console.
    pub fn connect(&mut self, limit: Duration) -> Result<&mut Client, String> {
        if let Some(port) = self.port.take() {
            match Client::connect(port, limit) {
                Ok(client) => self.client = Some(client),
                Err(error) => {
                    let last_words = self.last_words();
                    return Err(format!("VM `{}` did not boot: {error}{last_words}", self.name));
                }
            }
        }
        let name = &self.name;
        self.client.as_mut().ok_or_else(|| format!("VM `{name}` did not boot before and will not now"))
    }

    /// The thread ids of the vCPUs, by number, as they are now.
    ///
    /// # Errors
    /// When QEMU does not tell.
    pub fn vcpu_threads(&mut self) -> Result<Vec<u32>, String> {
        let threads = self.qmp.vcpu_threads().map_err(|error| format!("VM `{}`: {error}", self.name))?;
        Ok(threads.into_iter().map(|(_, tid)| tid).collect())
    }

    /// QEMU's other threads, and the kernel's that work for it, as they are now.
    ///
    /// # Errors
    /// When QEMU has ended.
    pub fn helper_threads(&mut self) -> Result<Vec<Thread>, String> {
        let vcpus = self.vcpu_threads()?;
        let proc = Path::new("/proc");
        let mut threads = vmm::threads_of(proc, self.pid())
            .map_err(|error| format!("VM `{}`: its threads cannot be listed: {error}", self.name))?;
        threads.retain(|thread| !vcpus.contains(&thread.tid) && !matches!(thread.role, Role::Vcpu(_)));
        threads.extend(vmm::vhost_kernel_threads(proc, self.pid()));
        Ok(threads)
    }

    /// The last lines on the console and of QEMU's own messages.
    pub fn console(&self, lines: usize) -> Vec<String> {
        self.console.last(lines)
    }

    /// How QEMU ended, if it did, and what it and its guest said last: for the end of a message.
    pub fn last_words(&mut self) -> String {
        // The last words of a QEMU that ended are still under way.
        std::thread::sleep(Duration::from_millis(50));
        let state = match self.child.try_wait() {
            Ok(Some(status)) => format!("; QEMU ended ({status})"),
            _ => String::new(),
        };
        format!("{state}{}", said(&self.console))
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

/// Gives a process `patience` to end by itself, then kills it. Tells if it ended by itself, for messages.
fn end(child: &mut Child, patience: Duration) -> String {
    let give_up = Instant::now() + patience;
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return format!("; QEMU ended ({status})");
        }
        if Instant::now() >= give_up {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    // Both fail only for a process that has ended already.
    let _ = child.kill();
    let _ = child.wait();
    String::new()
}

/// The last lines of a console, for the end of a message.
fn said(console: &Console) -> String {
    let lines = console.last(CONSOLE_LINES);
    match lines.is_empty() {
        true => "; it said nothing".into(),
        false => format!("; it said last:\n  {}", lines.join("\n  ")),
    }
}
