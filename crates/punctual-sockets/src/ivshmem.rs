//! The server's side of QEMU's ivshmem client-server protocol (QEMU, `docs/specs/ivshmem-spec.rst`). Each
//! message is a 64-bit little-endian number, with or without a file descriptor.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

pub(crate) const PROTOCOL_VERSION: i64 = 0;
/// The number that announces the shared memory.
pub(crate) const SHARED_MEMORY: i64 = -1;
/// Peer ID of the server. Its vector is the doorbell.
pub(crate) const HOST_PEER: i64 = 0;
/// Peer ID of the guest. Its vectors are the guest's interrupts.
pub(crate) const GUEST_PEER: i64 = 1;

/// Sends a new client its setup messages; `interrupts` are the guest's vectors in order.
///
/// # Errors
/// The socket is closed, or its buffer full.
pub(crate) fn send_setup(
    stream: &UnixStream,
    memory: BorrowedFd<'_>,
    doorbell: BorrowedFd<'_>,
    interrupts: &[OwnedFd],
) -> io::Result<()> {
    send(stream, PROTOCOL_VERSION, None)?;
    send(stream, GUEST_PEER, None)?;
    send(stream, SHARED_MEMORY, Some(memory))?;
    send(stream, HOST_PEER, Some(doorbell))?;
    interrupts.iter().try_for_each(|interrupt| send(stream, GUEST_PEER, Some(interrupt.as_fd())))
}

fn send(stream: &UnixStream, number: i64, file: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let files: Vec<BorrowedFd<'_>> = file.into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(io::Error::other("no room for a file descriptor"));
    }
    let bytes = number.to_le_bytes();
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let sent = sendmsg(stream, &[IoSlice::new(&bytes)], &mut control, flags)?;
    if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}
