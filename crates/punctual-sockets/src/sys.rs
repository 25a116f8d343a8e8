//! System calls that copy between a socket and memory that a guest may write at the same time.
//!
//! No Rust reference to such memory may exist, so these calls pass its address to the kernel directly. The
//! only file of this crate with `unsafe`.

#![expect(unsafe_code, reason = "memory that a guest writes")]

use std::ffi::c_void;
use std::io;
use std::mem::{MaybeUninit, size_of, zeroed};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{SystemTime, UNIX_EPOCH};

use libc::{iovec, msghdr, sockaddr_storage};
use punctual_sched::Duration;
use rustix::net::SocketAddrAny;
use rustix::net::addr::{SocketAddrArg, SocketAddrStorage};
use vm_memory::VolatileSlice;

/// `SIOCGSTAMPNS_OLD` (Linux, include/uapi/asm-generic/sockios.h).
const SIOCGSTAMPNS: libc::Ioctl = 0x8907;

/// A received message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received {
    /// Return value of `recvmsg`: bytes received, or with `MSG_TRUNC` the message's length.
    pub(crate) bytes: usize,
    /// `MSG_TRUNC` and others.
    pub(crate) flags: i32,
    pub(crate) from: Option<SocketAddr>,
}

fn length_of(bytes: usize) -> libc::socklen_t {
    libc::socklen_t::try_from(bytes).unwrap_or(libc::socklen_t::MAX)
}

/// `sendmsg` of `data`, to `to` if given.
///
/// # Errors
/// Those of `sendmsg`.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    data: &VolatileSlice<'_>,
    flags: i32,
    to: Option<SocketAddr>,
) -> io::Result<usize> {
    let guard = data.ptr_guard();
    let mut part = iovec { iov_base: guard.as_ptr().cast_mut().cast(), iov_len: data.len() };
    let mut name = MaybeUninit::<SocketAddrStorage>::uninit();
    // SAFETY: an all-zero `msghdr` is valid. `write_sockaddr` writes at most the size of a storage and
    // returns how much. The pointers live until `sendmsg` returns: `name` and `part` are locals, and `guard`
    // keeps `data` mapped. `sendmsg` only reads through them, what was written of `name` and `iov_len` bytes
    // of the slice at most.
    let sent = unsafe {
        let mut message: msghdr = zeroed();
        if let Some(to) = &to {
            message.msg_namelen = to.write_sockaddr(name.as_mut_ptr());
            message.msg_name = name.as_mut_ptr().cast();
        }
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        libc::sendmsg(socket.as_raw_fd(), &message, flags)
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// `recvmsg` into `data`.
///
/// # Errors
/// Those of `recvmsg`.
pub(crate) fn receive(socket: BorrowedFd<'_>, data: &VolatileSlice<'_>, flags: i32) -> io::Result<Received> {
    let guard = data.ptr_guard_mut();
    let mut part = iovec { iov_base: guard.as_ptr().cast(), iov_len: data.len() };
    // SAFETY: all-zero `msghdr` and `sockaddr_storage` are valid. The pointers live until `recvmsg` returns:
    // `name` and `part` are locals, and `guard` keeps `data` mapped. `recvmsg` writes at most `msg_namelen`
    // bytes of `name`, and `iov_len` of the slice, to which no reference exists. At most all of `name` is
    // read, which is initialized.
    let (received, message, from) = unsafe {
        let mut name: sockaddr_storage = zeroed();
        let mut message: msghdr = zeroed();
        message.msg_name = std::ptr::from_mut(&mut name).cast();
        message.msg_namelen = length_of(size_of::<sockaddr_storage>());
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        let received = libc::recvmsg(socket.as_raw_fd(), &mut message, flags);
        let length = message.msg_namelen.min(length_of(size_of::<sockaddr_storage>()));
        let is_named = length as usize >= size_of::<libc::sa_family_t>();
        let from = is_named.then(|| SocketAddrAny::read(std::ptr::from_ref(&name).cast(), length));
        (received, message, from)
    };
    let bytes = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    let from = from.and_then(|from| SocketAddr::try_from(from).ok());
    Ok(Received { bytes, flags: message.msg_flags, from })
}

/// Time since the datagram that was last received from `socket` arrived in the host's network stack. `None`
/// for the first datagram: the call for it makes the kernel timestamp the following ones.
pub(crate) fn age(socket: BorrowedFd<'_>) -> Option<Duration> {
    let mut stamp = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes a timespec at `stamp` (SIOCGSTAMPNS of 64-bit programs, socket(7)).
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCGSTAMPNS, &mut stamp) };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok().filter(|_| done == 0)?;
    let stamp =
        std::time::Duration::new(u64::try_from(stamp.tv_sec).ok()?, u32::try_from(stamp.tv_nsec).ok()?);
    // `None` when the clock was set back meanwhile.
    let age = now.checked_sub(stamp)?;
    Some(Duration::from_ns(u64::try_from(age.as_nanos()).ok()?))
}

/// `setsockopt`.
///
/// # Errors
/// Those of `setsockopt`.
pub(crate) fn set_option(socket: BorrowedFd<'_>, level: i32, option: i32, value: &[u8]) -> io::Result<()> {
    let pointer: *const c_void = value.as_ptr().cast();
    // SAFETY: the kernel reads `value.len()` bytes of `value`.
    let done =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, pointer, length_of(value.len())) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// `getsockopt`; returns the number of bytes written to `value`.
///
/// # Errors
/// Those of `getsockopt`.
pub(crate) fn option(socket: BorrowedFd<'_>, level: i32, option: i32, value: &mut [u8]) -> io::Result<usize> {
    let mut length = length_of(value.len());
    // SAFETY: the kernel writes at most `length` bytes of `value`, and `length` itself.
    let done = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, option, value.as_mut_ptr().cast(), &mut length)
    };
    if done == 0 { Ok(value.len().min(length as usize)) } else { Err(io::Error::last_os_error()) }
}
