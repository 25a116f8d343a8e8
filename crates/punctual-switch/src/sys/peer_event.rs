//! Eventfds of front-ends: checked when they arrive, and signalled without ever blocking.
//!
//! A front-end keeps its file description of an eventfd that it hands over, and can clear `O_NONBLOCK` and
//! fill the counter at any time. A `write` to it then blocks for as long as the front-end likes. Linux has no
//! write to an eventfd that ignores the flag (`pwritev2` with `RWF_NOWAIT` fails), so the switch lets the
//! kernel signal it: an asynchronous read of no bytes names the eventfd as the one to signal at its
//! completion (`IOCB_FLAG_RESFD`), and `eventfd_signal` in the kernel only counts up to its maximum and never
//! waits. The read completes within the call. A signal costs two to three times a `write`.

#![expect(unsafe_code, reason = "system calls without a safe interface")]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// `struct iocb` (Linux, include/uapi/linux/aio_abi.h). `aio_key` and `aio_rw_flags` are zero, so their
/// order, which depends on the machine, is the same.
#[repr(C)]
struct Iocb {
    data: u64,
    key_and_flags: u64,
    opcode: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    signalled_file: u32,
}

/// `IOCB_CMD_PREAD`.
const PREAD: u16 = 0;
/// `IOCB_FLAG_RESFD`.
const RESFD: u32 = 1;

/// The head of the ring of completions, which the kernel maps at the context's address (`struct aio_ring` in
/// Linux, fs/aio.c).
#[repr(C)]
struct Completions {
    id: u32,
    entries: u32,
    head: AtomicU32,
    tail: AtomicU32,
    magic: u32,
    compatible: u32,
    incompatible: u32,
    header_bytes: u32,
}

/// `AIO_RING_MAGIC`.
const MAGIC: u32 = 0xa10a_10a1;

/// Requests that may be in progress at once: one for each thread that signals.
const REQUESTS_MAX: libc::c_long = 64;

/// How often a request is made that finds no room.
const TRIES: usize = 3;

/// The process's context of asynchronous requests.
struct Context {
    id: usize,
    completions: &'static Completions,
    /// A file that can be read.
    null: File,
}

impl Context {
    fn new() -> io::Result<Context> {
        let null = File::open("/dev/null")?;
        let mut id = 0usize;
        // SAFETY: `io_setup` writes one word, the context's ID, which is as long as a pointer.
        if unsafe { libc::syscall(libc::SYS_io_setup, REQUESTS_MAX, &raw mut id) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the ID is the address of the ring of completions, which the kernel has mapped, readable and
        // writable, until `io_destroy`; no one calls that. The kernel aligns it to a page, and only the two
        // atomic fields change.
        let completions = unsafe { &*std::ptr::with_exposed_provenance::<Completions>(id) };
        if completions.magic != MAGIC {
            return Err(io::Error::from(io::ErrorKind::Unsupported));
        }
        Ok(Context { id, completions, null })
    }

    fn signal(&self, event: &OwnedFd) {
        let request = Iocb {
            data: 0,
            key_and_flags: 0,
            opcode: PREAD,
            priority: 0,
            file: self.null.as_raw_fd().cast_unsigned(),
            buffer: 0,
            bytes: 0,
            offset: 0,
            reserved: 0,
            flags: RESFD,
            signalled_file: event.as_raw_fd().cast_unsigned(),
        };
        let requests = [&raw const request];
        for _ in 0..TRIES {
            // Nobody reads the completions. A thread that stores an older tail than another one frees fewer
            // entries, until the next signal.
            let tail = self.completions.tail.load(Ordering::Acquire);
            self.completions.head.store(tail, Ordering::Release);
            // SAFETY: the kernel reads one pointer and the request behind it, which both live until the call
            // returns, and reads no bytes into the request's buffer.
            if unsafe { libc::syscall(libc::SYS_io_submit, self.id, 1, requests.as_ptr()) } == 1 {
                return;
            }
        }
    }
}

static CONTEXT: OnceLock<Context> = OnceLock::new();

/// Prepares this process to signal the eventfds of others.
///
/// # Errors
/// When the kernel has no asynchronous requests (`CONFIG_AIO`), or no room for one more context
/// (`fs.aio-max-nr`).
pub(crate) fn prepare_signals() -> io::Result<()> {
    if CONTEXT.get().is_none() {
        // If another thread was faster, this context stays unused.
        let _ = CONTEXT.set(Context::new()?);
    }
    Ok(())
}

/// A front-end's file descriptor, if it is an eventfd.
///
/// # Errors
/// When it is anything else, `/proc` is not mounted, or [`prepare_signals`] fails.
pub(crate) fn accept_eventfd(file: OwnedFd) -> io::Result<OwnedFd> {
    prepare_signals()?;
    let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    if link.as_os_str() == "anon_inode:[eventfd]" {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} is not an eventfd", link.display())))
}

/// Adds one to a front-end's eventfd, unless the counter is at its maximum. Never blocks.
pub(crate) fn signal_peer(event: &OwnedFd) {
    // Without a context no eventfd of a front-end was accepted.
    if let Some(context) = CONTEXT.get() {
        context.signal(event);
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::EventfdFlags;

    use super::*;

    fn count(event: &OwnedFd) -> u64 {
        super::super::kick_count(event)
    }

    #[test]
    fn a_full_eventfd_that_blocks_is_signalled_without_blocking() {
        prepare_signals().expect("asynchronous requests");
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
        for expected in 1..=200 {
            signal_peer(&event);
            assert_eq!(count(&event), expected, "each signal counts");
        }
        rustix::io::write(&event, &(u64::MAX - 1 - 200).to_ne_bytes()).expect("filled");
        assert_eq!(count(&event), u64::MAX - 1);
        // A `write` would block here.
        (0..200).for_each(|_| signal_peer(&event));
    }

    #[test]
    fn threads_signal_at_once_and_lose_nothing() {
        prepare_signals().expect("asynchronous requests");
        let events: Vec<_> = (0..4).map(|_| super::super::eventfd().expect("an eventfd")).collect();
        std::thread::scope(|scope| {
            for event in &events {
                scope.spawn(move || (0..5_000).for_each(|_| signal_peer(event)));
            }
        });
        assert_eq!(events.iter().map(count).collect::<Vec<_>>(), [5_000; 4]);
    }

    #[test]
    fn only_eventfds_are_accepted() {
        let event = super::super::eventfd().expect("an eventfd");
        assert!(accept_eventfd(event).is_ok());
        let (_, pipe) = rustix::pipe::pipe().expect("a pipe");
        let memory = rustix::fs::memfd_create("anon_inode:[eventfd]", rustix::fs::MemfdFlags::CLOEXEC);
        let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC);
        for file in [pipe, memory.expect("memory"), epoll.expect("an epoll")] {
            let refused = accept_eventfd(file).expect_err("not an eventfd").to_string();
            assert!(refused.ends_with("is not an eventfd"), "{refused}");
        }
    }
}
