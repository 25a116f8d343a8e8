//! What is beyond an uplink: a TAP, an interface, programs, files.
//!
//! A wire carries frames with the virtio-net header of 12 bytes in front (virtio 1.2, section 5.1.6), as a
//! TAP with `IFF_VNET_HDR` does: checksums that are to be completed and segments that are to be cut pass as
//! they are.

use std::fmt::Debug;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, acceptfrom_with, socket_with};
use vm_memory::{ReadVolatile, VolatileMemoryError, VolatileSlice, WriteVolatile};

use crate::frame::{ETHERNET_BYTES, HEADER_BYTES, TAG_BYTES, shift_offsets};
use crate::socket::remove_stale_socket;

/// Frames come from here and go there. Nothing here waits.
pub trait Wire: Debug + Send {
    /// Readable when a frame may be there.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Puts the next frame with its header into `room`. Returns the bytes of both; `None` when nothing is
    /// there now.
    ///
    /// # Errors
    /// When nothing will ever come any more.
    fn receive(&mut self, room: &mut VolatileSlice<'_>) -> io::Result<Option<usize>>;

    /// Sends a frame with its header. Was it taken? If not, it is lost.
    fn send(&mut self, frame: &mut VolatileSlice<'_>) -> bool;
}

/// The error of the system call below.
fn io_error(error: VolatileMemoryError) -> io::Error {
    match error {
        VolatileMemoryError::IOError(error) => error,
        error => io::Error::other(error.to_string()),
    }
}

/// Nothing now, or an interface that is down.
fn none_if_transient(error: io::Error) -> io::Result<Option<usize>> {
    let now = [Errno::AGAIN, Errno::INTR, Errno::NETDOWN].map(Errno::raw_os_error);
    match error.raw_os_error() {
        Some(code) if now.contains(&code) => Ok(None),
        _ => Err(error),
    }
}

/// Bytes of the header without the count of buffers.
const LEGACY_BYTES: usize = 10;

/// How much of the header a device of the kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderOf {
    /// All 12 bytes: a TAP, or a socket of programs.
    Virtio1,
    /// 10 bytes, without the count of buffers: packet sockets (`PACKET_VNET_HDR`).
    Older,
}

/// A descriptor of which each read is a frame, and each write.
#[derive(Debug)]
pub struct Device<F> {
    descriptor: F,
    header: HeaderOf,
}

impl<F: AsFd + Debug + Send> Device<F> {
    /// The descriptor must not block.
    pub fn new(descriptor: F, header: HeaderOf) -> Self {
        Device { descriptor, header }
    }
}

impl<F: AsFd + Debug + Send> Wire for Device<F> {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    fn receive(&mut self, room: &mut VolatileSlice<'_>) -> io::Result<Option<usize>> {
        let missing = if self.header == HeaderOf::Older { 2 } else { 0 };
        let mut into = room.offset(missing).map_err(io_error)?;
        let bytes = match self.descriptor.as_fd().read_volatile(&mut into).map_err(io_error) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => bytes + missing,
            // A packet socket says so of a frame for which there is no header. It is gone, and no frame.
            Err(error) if missing > 0 && error.kind() == io::ErrorKind::InvalidInput => return Ok(Some(0)),
            Err(error) => return none_if_transient(error),
        };
        if missing > 0 {
            let mut header = [0_u8; HEADER_BYTES];
            let read = &mut header[..HEADER_BYTES - missing];
            room.subslice(missing, HEADER_BYTES - missing).map_err(io_error)?.copy_to(read);
            room.copy_from(&header);
        }
        Ok(Some(bytes))
    }

    fn send(&mut self, frame: &mut VolatileSlice<'_>) -> bool {
        let missing = if self.header == HeaderOf::Older { 2 } else { 0 };
        if missing > 0 {
            let mut header = [0_u8; HEADER_BYTES];
            frame.copy_to(&mut header);
            let Ok(place) = frame.offset(missing) else { return false };
            place.copy_from(&header[..HEADER_BYTES - missing]);
        }
        let Ok(from) = frame.offset(missing) else { return false };
        let write = || self.descriptor.as_fd().write_volatile(&from).map_err(io_error);
        match write() {
            // An interface that was down says so once.
            Err(error) if error.raw_os_error() == Some(Errno::NETDOWN.raw_os_error()) => write().is_ok(),
            sent => sent.is_ok(),
        }
    }
}

/// A VLAN tag as it stands in a frame: its type and what it says.
pub type Tag = [u8; TAG_BYTES];

/// What comes next of [`Frames`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<'a> {
    /// Nothing now.
    Nothing,
    /// A frame with the header of [`HeaderOf::Older`], and the VLAN tag that was taken out of it.
    Frame(&'a [u8], Option<Tag>),
    /// What a read of the descriptor gives, which may be nothing.
    Read,
    /// A frame that was too long for that memory: a read of the descriptor gives it. Its tag.
    Long(Option<Tag>),
    /// Nothing will come any more.
    Gone,
}

/// A device whose frames come in memory that the kernel shares, or by reading its descriptor. What is written
/// to the descriptor is sent. Both have the header of [`HeaderOf::Older`].
pub trait Frames: AsFd + Debug + Send {
    /// What comes next.
    fn next(&mut self) -> Next<'_>;

    /// What was next is done with.
    fn release(&mut self);
}

/// A wire to [`Frames`].
#[derive(Debug)]
pub struct Mapped<F>(pub F);

impl<F: Frames> Wire for Mapped<F> {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn receive(&mut self, room: &mut VolatileSlice<'_>) -> io::Result<Option<usize>> {
        let bytes = match self.0.next() {
            Next::Nothing => return Ok(None),
            Next::Gone => return Err(Errno::NODEV.into()),
            Next::Read => return Device::new(self.0.as_fd(), HeaderOf::Older).receive(room),
            Next::Frame(frame, tag) => put(frame, tag, room),
            // If it is not there after all, what is behind it may be.
            Next::Long(None) => Device::new(self.0.as_fd(), HeaderOf::Older).receive(room)?.unwrap_or(0),
            Next::Long(Some(tag)) => {
                let mut behind = room.offset(TAG_BYTES).map_err(io_error)?;
                match Device::new(self.0.as_fd(), HeaderOf::Older).receive(&mut behind)? {
                    Some(bytes) => put_tag(tag, bytes, room),
                    None => 0,
                }
            }
        };
        self.0.release();
        Ok(Some(bytes))
    }

    fn send(&mut self, frame: &mut VolatileSlice<'_>) -> bool {
        Device::new(self.0.as_fd(), HeaderOf::Older).send(frame)
    }
}

/// Bytes of both addresses, behind which a tag stands.
const ADDRESSES_BYTES: usize = ETHERNET_BYTES - 2;

/// Puts a frame with an older header into `room`, and its tag back into it. Returns its bytes with a whole
/// header: 0 for what is none.
fn put(frame: &[u8], tag: Option<Tag>, room: &VolatileSlice<'_>) -> usize {
    let Some((header, frame)) = frame.split_first_chunk::<LEGACY_BYTES>() else { return 0 };
    let mut whole = [0; HEADER_BYTES];
    whole[..LEGACY_BYTES].copy_from_slice(header);
    let Some(tag) = tag else { return put_parts(&[&whole, frame], room) };
    let Some((addresses, rest)) = frame.split_at_checked(ADDRESSES_BYTES) else { return 0 };
    shift_offsets(&mut whole, TAG_BYTES as i16);
    put_parts(&[&whole, addresses, &tag, rest], room)
}

/// Puts parts one behind the other into `room`, as far as there is room. Returns their bytes.
fn put_parts(parts: &[&[u8]], room: &VolatileSlice<'_>) -> usize {
    let mut bytes = 0;
    for part in parts {
        let Ok(place) = room.offset(bytes) else { return 0 };
        place.copy_from(part);
        bytes += part.len().min(place.len());
    }
    bytes
}

/// Puts a tag back into a frame of so many bytes, its whole header included, which stands in `room` behind
/// space for the tag. Returns its bytes: 0 for what is none.
fn put_tag(tag: Tag, bytes: usize, room: &VolatileSlice<'_>) -> usize {
    let mut front = [0; HEADER_BYTES + ADDRESSES_BYTES];
    if bytes < front.len() {
        return 0;
    }
    let Ok(place) = room.offset(TAG_BYTES) else { return 0 };
    place.copy_to(&mut front);
    let (header, addresses) = front.split_at(HEADER_BYTES);
    let Ok(mut whole) = <[u8; HEADER_BYTES]>::try_from(header) else { return 0 };
    shift_offsets(&mut whole, TAG_BYTES as i16);
    put_parts(&[&whole, addresses, &tag], room);
    bytes + TAG_BYTES
}

/// A socket for programs, one at a time. Each message is a frame with its header (`SOCK_SEQPACKET`).
#[derive(Debug)]
pub struct Listener {
    path: PathBuf,
    listener: OwnedFd,
    program: Option<Device<OwnedFd>>,
    /// Readable when one of both is.
    both: OwnedFd,
}

impl Listener {
    /// Listens at `path`. A socket that a program which was killed left there is replaced.
    ///
    /// # Errors
    /// When there is something else at `path` already, or the kernel refuses.
    pub fn new(path: &Path) -> io::Result<Listener> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        remove_stale_socket(path)?;
        rustix::net::bind(&listener, &SocketAddrUnix::new(path)?)?;
        // From here on the path is removed with the value.
        let both = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let listener = Listener { path: path.to_owned(), listener, program: None, both };
        rustix::net::listen(&listener.listener, 1)?;
        epoll::add(&listener.both, &listener.listener, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        Ok(listener)
    }

    /// A program connects: it replaces one before it that left.
    fn accept(&mut self) -> Option<&mut Device<OwnedFd>> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (program, _) = acceptfrom_with(&self.listener, flags).ok()?;
        epoll::add(&self.both, &program, epoll::EventData::new_u64(1), epoll::EventFlags::IN).ok()?;
        Some(self.program.insert(Device::new(program, HeaderOf::Virtio1)))
    }
}

impl Wire for Listener {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.both.as_fd()
    }

    fn receive(&mut self, room: &mut VolatileSlice<'_>) -> io::Result<Option<usize>> {
        loop {
            let received = match &mut self.program {
                Some(program) => program.receive(room),
                None => match self.accept() {
                    Some(program) => program.receive(room),
                    None => return Ok(None),
                },
            };
            match received {
                // The program left; another one may wait.
                Err(_) => self.program = None,
                received => return received,
            }
        }
    }

    fn send(&mut self, frame: &mut VolatileSlice<'_>) -> bool {
        self.program.as_mut().is_some_and(|program| program.send(frame))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device, and what is at its other end.
    fn device(header: HeaderOf) -> (Device<OwnedFd>, OwnedFd) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (ours, theirs) = pair.expect("a pair");
        (Device::new(ours, header), theirs)
    }

    #[test]
    fn a_shorter_header_becomes_a_whole_one_and_back() {
        let (mut device, kernel) = device(HeaderOf::Older);
        let message = [&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10][..], b"frame"].concat();
        rustix::io::write(&kernel, &message).expect("written");
        let mut memory = [0xee; 40];
        let mut room = VolatileSlice::from(&mut memory[..]);
        assert_eq!(device.receive(&mut room).expect("open"), Some(17));
        assert!(device.receive(&mut room).expect("open").is_none());
        let mut frame = room.subslice(0, 17).expect("inside");
        let mut bytes = [0_u8; 17];
        frame.copy_to(&mut bytes);
        assert_eq!(&bytes, &[&message[..10], &[0, 0], b"frame"].concat()[..]);
        assert!(device.send(&mut frame));
        let mut back = [0; 40];
        let read = rustix::io::read(&kernel, &mut back).expect("a message");
        assert_eq!(back[..read], message[..]);
        drop(kernel);
        assert!(device.receive(&mut room).is_err(), "the other end is closed");
    }

    /// A device whose memory has `slots`; one that is too long waits in the socket.
    #[derive(Debug)]
    struct Slots {
        socket: OwnedFd,
        slots: Vec<Option<Vec<u8>>>,
        tag: Option<Tag>,
    }

    impl AsFd for Slots {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.socket.as_fd()
        }
    }

    impl Frames for Slots {
        fn next(&mut self) -> Next<'_> {
            match self.slots.first() {
                None => Next::Gone,
                Some(None) => Next::Long(self.tag),
                Some(Some(frame)) => Next::Frame(frame, self.tag),
            }
        }

        fn release(&mut self) {
            self.slots.remove(0);
        }
    }

    #[test]
    fn frames_in_shared_memory_and_long_ones_of_the_socket_come_in_order() {
        let (device, kernel) = device(HeaderOf::Older);
        let header = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
        let frame = |text: &str| [&header[..], text.as_bytes()].concat();
        for text in ["second", "third"] {
            rustix::io::write(&kernel, &frame(text)).expect("written");
        }
        let slots = vec![Some(frame("first")), None, None, Some(vec![7; 9]), None, Some(frame("last"))];
        let mut wire = Mapped(Slots { socket: device.descriptor, slots, tag: None });
        let mut memory = [0xee; 24];
        let mut room = VolatileSlice::from(&mut memory[..]);
        let mut came = Vec::new();
        while let Ok(bytes) = wire.receive(&mut room) {
            let mut read = vec![0; bytes.expect("a frame")];
            room.copy_to(&mut read[..]);
            came.push(read);
        }
        let whole = |text: &str| [&header[..], &[0, 0], text.as_bytes()].concat();
        // What is too short, and what is not in the socket after all, is no frame.
        let wanted = [whole("first"), whole("second"), whole("third"), vec![], vec![], whole("last")];
        assert_eq!(came, wanted);
    }

    #[test]
    fn a_tag_that_was_taken_out_stands_behind_the_addresses_again() {
        let (device, kernel) = device(HeaderOf::Older);
        // Headers of 54 bytes, a checksum from byte 34 on.
        let header = [1, 1, 54, 0, 0xa8, 5, 34, 0, 16, 0];
        let frame = |text: &str| [&header[..], &[6; 6], &[7; 6], text.as_bytes()].concat();
        rustix::io::write(&kernel, &frame("long")).expect("written");
        rustix::io::write(&kernel, &[0; 20]).expect("written");
        let short = vec![9; LEGACY_BYTES + ADDRESSES_BYTES - 1];
        let slots = vec![Some(frame("short")), None, None, None, Some(short)];
        let tag = [0x81, 0, 0x20, 20];
        let mut wire = Mapped(Slots { socket: device.descriptor, slots, tag: Some(tag) });
        let mut memory = [0xee; 64];
        let mut room = VolatileSlice::from(&mut memory[..]);
        let moved = [1, 1, 58, 0, 0xa8, 5, 38, 0, 16, 0, 0, 0];
        let whole = |text: &str| [&moved[..], &[6; 6], &[7; 6], &tag, text.as_bytes()].concat();
        // What has no addresses is no frame.
        for wanted in [whole("short"), whole("long"), vec![], vec![], vec![]] {
            assert_eq!(wire.receive(&mut room).expect("open"), Some(wanted.len()));
            let mut read = vec![0; wanted.len()];
            room.copy_to(&mut read[..]);
            assert_eq!(read, wanted);
        }
    }

    #[test]
    fn a_frame_that_exceeds_the_room_is_cut_there() {
        let mut memory = [0; 20];
        let room = VolatileSlice::from(&mut memory[..]);
        assert_eq!(put(&[9; 100], None, &room), 20);
        assert_eq!(memory[9..14], [9, 0, 0, 9, 9]);
    }
}
