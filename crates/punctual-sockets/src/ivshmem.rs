//! The protocol by which QEMU's `ivshmem-doorbell` device learns of its shared memory and its peers (QEMU,
//! `docs/specs/ivshmem-spec.txt`): each message is a 64-bit little-endian number, with a file or none.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// Version of the protocol.
pub const VERSION: i64 = 0;
/// What stands before the shared memory.
pub const MEMORY: i64 = -1;
/// The server, as a peer of the guest: its doorbell.
pub const HOST: i64 = 0;
/// The guest, as a peer: its interrupt.
pub const GUEST: i64 = 1;

/// Tells a monitor that has just connected all that it needs to know; `interrupts` are the guest's vectors in
/// their order.
///
/// # Errors
/// When the monitor does not take it.
pub fn greet(
    stream: &UnixStream,
    memory: BorrowedFd<'_>,
    doorbell: BorrowedFd<'_>,
    interrupts: &[OwnedFd],
) -> io::Result<()> {
    say(stream, VERSION, None)?;
    say(stream, GUEST, None)?;
    say(stream, MEMORY, Some(memory))?;
    say(stream, HOST, Some(doorbell))?;
    interrupts.iter().try_for_each(|interrupt| say(stream, GUEST, Some(interrupt.as_fd())))
}

fn say(stream: &UnixStream, number: i64, file: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let files: Vec<BorrowedFd<'_>> = file.into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(io::Error::other("no room for a file"));
    }
    let bytes = number.to_le_bytes();
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let sent = sendmsg(stream, &[IoSlice::new(&bytes)], &mut control, flags)?;
    if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}
