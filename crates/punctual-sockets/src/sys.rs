//! The system calls that copy between a socket and memory that a guest may write meanwhile.
//!
//! Such memory has no Rust reference. The kernel copies by address, so these calls are made by hand.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::mem::{size_of, zeroed};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{iovec, msghdr, sockaddr_in};
use vm_memory::VolatileSlice;

/// A message that was received.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// What `recvmsg` returns: bytes, or the message's length where `MSG_TRUNC` was asked for.
    pub bytes: usize,
    /// `MSG_TRUNC` and others.
    pub flags: i32,
    /// Who sent it.
    pub from: Option<SocketAddrV4>,
}

/// `sendmsg` of `data`, to `to` if given.
///
/// # Errors
/// Those of `sendmsg`.
pub fn send(
    socket: BorrowedFd<'_>,
    data: &VolatileSlice<'_>,
    flags: i32,
    to: Option<SocketAddrV4>,
) -> io::Result<usize> {
    let mut name = to.map(sockaddr);
    let guard = data.ptr_guard();
    let mut part = iovec { iov_base: guard.as_ptr().cast_mut().cast(), iov_len: data.len() };
    // SAFETY: `msghdr` is plain data; all zero is a valid one. The pointers that are put into it live until
    // `sendmsg` returns: `name` and `part` are locals, and `guard` keeps `data` mapped. `sendmsg` only reads
    // through them, `iov_len` bytes of the slice at most.
    let sent = unsafe {
        let mut message: msghdr = zeroed();
        if let Some(name) = &mut name {
            message.msg_name = std::ptr::from_mut(name).cast();
            message.msg_namelen = size_of::<sockaddr_in>() as u32;
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
pub fn receive(socket: BorrowedFd<'_>, data: &VolatileSlice<'_>, flags: i32) -> io::Result<Received> {
    let guard = data.ptr_guard_mut();
    let mut part = iovec { iov_base: guard.as_ptr().cast(), iov_len: data.len() };
    // SAFETY: `msghdr` and `sockaddr_in` are plain data; all zero is a valid one. The pointers live until
    // `recvmsg` returns: `name` and `part` are locals, and `guard` keeps `data` mapped. `recvmsg` writes
    // `msg_namelen` bytes of `name` at most, and `iov_len` of the slice, to which nothing has a reference.
    let (received, message, name) = unsafe {
        let mut name: sockaddr_in = zeroed();
        let mut message: msghdr = zeroed();
        message.msg_name = std::ptr::from_mut(&mut name).cast();
        message.msg_namelen = size_of::<sockaddr_in>() as u32;
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        (libc::recvmsg(socket.as_raw_fd(), &mut message, flags), message, name)
    };
    let bytes = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    let is_internet = message.msg_namelen as usize >= size_of::<sockaddr_in>()
        && i32::from(name.sin_family) == libc::AF_INET;
    let from = is_internet.then(|| {
        SocketAddrV4::new(Ipv4Addr::from(name.sin_addr.s_addr.to_ne_bytes()), u16::from_be(name.sin_port))
    });
    Ok(Received { bytes, flags: message.msg_flags, from })
}

/// `setsockopt`.
///
/// # Errors
/// Those of `setsockopt`.
pub fn set_option(socket: BorrowedFd<'_>, level: i32, option: i32, value: &[u8]) -> io::Result<()> {
    let pointer: *const c_void = value.as_ptr().cast();
    // SAFETY: the kernel reads `value.len()` bytes of `value`.
    let done = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, pointer, value.len() as u32) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// `getsockopt`; how much of `value` was written.
///
/// # Errors
/// Those of `getsockopt`.
pub fn option(socket: BorrowedFd<'_>, level: i32, option: i32, value: &mut [u8]) -> io::Result<usize> {
    let mut length = value.len() as u32;
    // SAFETY: the kernel writes at most `length` bytes of `value`, and `length` itself.
    let done = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, option, value.as_mut_ptr().cast(), &mut length)
    };
    if done == 0 { Ok(value.len().min(length as usize)) } else { Err(io::Error::last_os_error()) }
}

fn sockaddr(address: SocketAddrV4) -> sockaddr_in {
    sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
        sin_zero: [0; 8],
    }
}
