//! Signals: those that would end a process, and those that a service reads in its loop.

#![expect(unsafe_code, reason = "signal(2), sigprocmask(2), signalfd(2)")]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// Has a write beyond the limit of file sizes (`RLIMIT_FSIZE`) fail with `EFBIG` instead of ending this
/// process by SIGXFSZ. Programs that this one starts get the signal as before.
pub fn survive_file_size_limit() {
    extern "C" fn ignore(_: libc::c_int) {}
    let handler: extern "C" fn(libc::c_int) = ignore;
    // SAFETY: the handler does nothing, so it may interrupt anything. A handler, unlike SIG_IGN, is not
    // inherited by a program that is executed.
    unsafe {
        libc::signal(libc::SIGXFSZ, handler as *const () as libc::sighandler_t);
    }
}

/// A signal that a service reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// SIGHUP.
    Reload,
    /// SIGTERM or SIGINT.
    End,
}

/// The signals of [`Request`] as a descriptor (signalfd(2)); they interrupt nothing any more.
#[derive(Debug)]
pub struct Requests(OwnedFd);

/// Of `struct signalfd_siginfo`; `ssi_signo` is its first field (signalfd(2)).
const RECORD_BYTES: usize = size_of::<libc::signalfd_siginfo>();

impl Requests {
    /// Blocks the signals in this thread and in those that it starts later; so it is called before any other
    /// thread runs, which would be ended by them.
    ///
    /// # Errors
    /// As `sigprocmask(2)` and `signalfd(2)`.
    pub fn block() -> io::Result<Requests> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigemptyset initialises the set; the other calls read it, and get no other memory.
        let descriptor = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in [libc::SIGHUP, libc::SIGTERM, libc::SIGINT] {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            let code = libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
            if code != 0 {
                return Err(io::Error::from_raw_os_error(code));
            }
            libc::signalfd(-1, set.as_ptr(), libc::SFD_NONBLOCK | libc::SFD_CLOEXEC)
        };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has just made the descriptor, and nobody else has it.
        Ok(Requests(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    /// The next one, if one came.
    ///
    /// # Errors
    /// As `read(2)`.
    pub fn next(&self) -> io::Result<Option<Request>> {
        let mut record = [0u8; RECORD_BYTES];
        match rustix::io::read(&self.0, &mut record) {
            Ok(RECORD_BYTES) => {
                let [a, b, c, d, ..] = record;
                let is_hangup = u32::from_ne_bytes([a, b, c, d]) == libc::SIGHUP.unsigned_abs();
                Ok(Some(if is_hangup { Request::Reload } else { Request::End }))
            }
            Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Requests {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_read_and_do_not_end_the_process() {
        // Directed to this thread: others of the test program do not block them.
        let raise = |signal| {
            let code = {
                // SAFETY: it takes no memory.
                unsafe { libc::raise(signal) }
            };
            assert_eq!(code, 0);
        };
        std::thread::spawn(move || {
            let requests = Requests::block().expect("a descriptor");
            assert_eq!(requests.next().expect("readable"), None);
            raise(libc::SIGTERM);
            assert_eq!(requests.next().expect("readable"), Some(Request::End));
            raise(libc::SIGHUP);
            assert_eq!(requests.next().expect("readable"), Some(Request::Reload));
            assert_eq!(requests.next().expect("readable"), None);
        })
        .join()
        .expect("it lives");
    }
}
