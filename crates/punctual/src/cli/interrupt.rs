//! Ctrl-C, SIGTERM and SIGHUP: removes half-written files, and lets a command stop halfway if it can.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Files to remove when the program is interrupted.
static HALF_WRITTEN: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
/// Does the running command look at [`stopped`]?
static GRACEFUL: AtomicBool = AtomicBool::new(false);
static STOPPED: AtomicBool = AtomicBool::new(false);
/// What tells a command that waits.
static WAKE: Mutex<Option<Box<dyn Fn() + Send>>> = Mutex::new(None);

/// Installs the handler.
pub(super) fn install() {
    // Fails only where a handler cannot be installed at all; then the default action ends the program.
    let _ = ctrlc::set_handler(|| {
        if GRACEFUL.load(Ordering::SeqCst) && !STOPPED.swap(true, Ordering::SeqCst) {
            if let Some(wake) = &*WAKE.lock().unwrap_or_else(std::sync::PoisonError::into_inner) {
                wake();
            }
            return;
        }
        end(super::exit::INTERRUPTED);
    });
}

/// Ends this process because the guardian of a live run asks for it; the guardian says why.
pub(super) fn end_for_guardian() -> ! {
    end(super::exit::ENDED)
}

/// Ends this process at once; no half-written file stays.
fn end(status: u8) -> ! {
    // A thread that holds the list may be stuck.
    let files = HALF_WRITTEN.try_lock().map(|mut files| std::mem::take(&mut *files));
    for path in files.unwrap_or_default() {
        let _ = std::fs::remove_file(path);
    }
    std::process::exit(status.into());
}

/// From now on the first interruption only makes [`stopped`] true; the second one ends the program.
pub(super) fn be_graceful() {
    GRACEFUL.store(true, Ordering::SeqCst);
}

/// Calls `wake` when [`stopped`] becomes true, for a command that waits instead of looking.
pub(super) fn when_stopped(wake: impl Fn() + Send + 'static) {
    *WAKE.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(Box::new(wake));
}

/// Waits for `time`, or until [`stopped`] becomes true.
pub(super) fn wait(time: std::time::Duration) {
    let (stop, stops) = std::sync::mpsc::channel();
    when_stopped(move || {
        // The command may wait no longer.
        let _ = stop.send(());
    });
    if !stopped() {
        let _ = stops.recv_timeout(time);
    }
}

/// Was the program asked to stop?
pub(super) fn stopped() -> bool {
    STOPPED.load(Ordering::SeqCst)
}

/// Removes `path` when the program is interrupted, until [`release`].
pub(super) fn guard(path: &Path) {
    files().push(path.to_path_buf());
}

/// The file is complete, or gone.
pub(super) fn release(path: &Path) {
    files().retain(|p| p != path);
}

fn files() -> std::sync::MutexGuard<'static, Vec<PathBuf>> {
    // A thread that panicked while holding the list left a list all the same.
    HALF_WRITTEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
