//! Starts programs that do not outlive us, not even when we are killed with SIGKILL.
//!
//! Linux can send a signal to a process when its parent ends (`prctl(2)`, `PR_SET_PDEATHSIG`). The parent, in
//! this sense, is the *thread* that created the process. So one thread, which lives as long as we do, starts
//! all programs.

#![expect(unsafe_code, reason = "prctl(2) in the child")]

use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::channel::Stop;

/// A program to start, sent to the thread that starts programs.
struct Order {
    command: Command,
    inherited: Vec<OwnedFd>,
    reply: mpsc::Sender<io::Result<Child>>,
}

/// Starts `command`, which may use the descriptors `inherited` under their present numbers. The program gets
/// a process group of its own, so that Ctrl-C in a terminal reaches us alone. It is killed when we end.
///
/// # Errors
/// When it cannot be started.
pub fn spawn(command: Command, inherited: Vec<OwnedFd>) -> io::Result<Child> {
    static SPAWNER: Mutex<Option<mpsc::Sender<Order>>> = Mutex::new(None);
    let gone = || io::Error::other("the thread that starts programs is gone");
    let (reply, outcome) = mpsc::channel();
    let order = Order { command, inherited, reply };
    {
        let mut spawner = SPAWNER.lock().map_err(|_| gone())?;
        let orders = match &mut *spawner {
            Some(orders) => orders,
            none => none.insert(start_spawner()?),
        };
        orders.send(order).map_err(|_| gone())?;
    }
    outcome.recv().map_err(|_| gone())?
}

/// Starts the thread that starts programs.
fn start_spawner() -> io::Result<mpsc::Sender<Order>> {
    let (orders, incoming) = mpsc::channel::<Order>();
    let work = move || {
        for Order { command, inherited, reply } in incoming {
            // The thread that ordered it waits, so this cannot fail and leave the program running.
            let _ = reply.send(start(command, inherited));
        }
    };
    std::thread::Builder::new().name("spawner".into()).spawn(work)?;
    Ok(orders)
}

/// How long a program may be open for writing, and how often that is tried.
const BUSY_MAX: Duration = Duration::from_secs(1);
const BUSY_INTERVAL: Duration = Duration::from_millis(2);

/// How often a wait for a program asks whether it should end.
const INTERVAL: Duration = Duration::from_millis(20);

/// Runs a program until it ends and returns what it printed; `None` if `stop` asked to kill it.
///
/// # Errors
/// When it cannot be started.
pub fn output(command: &mut Command, stop: Stop) -> io::Result<Option<Output>> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let program = command.spawn()?;
    let group = Pid::from_raw(program.id() as i32);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || program.wait_with_output());
        let mut is_stopped = false;
        while !waiting.is_finished() {
            if let (true, Some(group)) = (stop(), group) {
                is_stopped = true;
                // Fails only when it has ended.
                let _ = kill_process_group(group, Signal::KILL);
            }
            std::thread::sleep(INTERVAL);
        }
        let output = waiting.join().unwrap_or_else(|_| Err(io::Error::other("waiting for a program failed")));
        if is_stopped { Ok(None) } else { output.map(Some) }
    })
}

fn start(mut command: Command, inherited: Vec<OwnedFd>) -> io::Result<Child> {
    let us = std::process::id();
    let numbers: Vec<i32> = inherited.iter().map(AsRawFd::as_raw_fd).collect();
    command.process_group(0);
    let prepare = move || {
        // SAFETY: takes integers only, and is async-signal-safe.
        if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong, 0, 0, 0) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // We may have ended before the line above.
        // SAFETY: takes and changes nothing.
        if unsafe { libc::getppid() } != us as libc::pid_t {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        for &number in &numbers {
            // SAFETY: the descriptor is open: `inherited` lives until the child was started.
            if unsafe { libc::fcntl(number, libc::F_SETFD, 0) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: `prepare` only makes async-signal-safe system calls and allocates nothing (an error made from a
    // number does not).
    unsafe { command.pre_exec(prepare) };
    let child = spawn_written(&mut command);
    drop(inherited);
    child
}

/// Starts a program that this process may just have written. Another thread that forked meanwhile has the
/// file open for writing until it executes its own program, and until then this one cannot be executed.
fn spawn_written(command: &mut Command) -> io::Result<Child> {
    let start = Instant::now();
    loop {
        match command.spawn() {
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy && start.elapsed() < BUSY_MAX => {
                std::thread::sleep(BUSY_INTERVAL);
            }
            started => return started,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_program_that_is_still_open_for_writing_starts_when_it_is_closed() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("true");
        fs::copy("/bin/true", &path).expect("copied");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("ours");
        let open = File::options().append(true).open(&path).expect("it is there");
        let closed = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            drop(open);
        });
        let mut child = spawn(Command::new(&path), Vec::new()).expect("started");
        assert!(child.wait().expect("it ends").success());
        closed.join().expect("it does not panic");
    }
}
