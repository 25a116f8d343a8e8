//! What an uplink connects to: a TAP, an interface, programs, files.
//!
//! A wire carries frames with a virtio-net header of 12 bytes in front (virtio 1.2, section 5.1.6), as a TAP
//! with `IFF_VNET_HDR` does. Partial checksums and large segments pass unchanged.

use std::fmt::Debug;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, acceptfrom_with, socket_with};
use vm_memory::{ReadVolatile, VolatileMemoryError, VolatileSlice, WriteVolatile};

use crate::frame::{ETHERNET_BYTES, HEADER_BYTES, TAG_BYTES, is_complete, shift_offsets};
use crate::narrow::to_u16;
use crate::socket::remove_stale_socket;

/// A source and sink of frames. No method blocks.
pub trait Wire: Debug + Send {
    /// Readable when a frame may have arrived.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Reads the next frame with its header into `room`. Returns the bytes of both; `None` if no frame is
    /// there now.
    ///
    /// # Errors
    /// When no frame will arrive any more.
    fn receive(&mut self, room: &mut VolatileSlice<'_>) -> io::Result<Option<usize>>;

    /// Sends a frame with its header, at once or by the next flush. Returns whether it was accepted;
    /// otherwise it is lost.
    fn send(&mut self, frame: &mut VolatileSlice<'_>) -> bool;

    /// Sends the frames that were not sent at once.
    fn flush(&mut self) -> Flushed {
        Flushed::default()
    }
}

/// What became of frames that were not sent at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flushed {
    /// Frames that were accepted and are lost all the same.
    pub lost: u32,
    /// There was no room for some frames: flush again soon.
    pub is_behind: bool,
}

/// The error of the system call underneath.
fn io_error(error: VolatileMemoryError) -> io::Error {
    match error {
        VolatileMemoryError::IOError(error) => error,
        error => io::Error::other(error.to_string()),
    }
}

/// `None` if no frame is there now, or the interface is down.
fn none_if_transient(error: io::Error) -> io::Result<Option<usize>> {
    let now = [Errno::AGAIN, Errno::INTR, Errno::NETDOWN].map(Errno::raw_os_error);
    match error.raw_os_error() {
        Some(code) if now.contains(&code) => Ok(None),
        _ => Err(error),
    }
}

/// Bytes of the header without `num_buffers`.
const LEGACY_BYTES: usize = 10;

/// The virtio-net header of a kernel device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VnetHeader {
    /// 12 bytes: a TAP, or a socket for programs.
    Virtio1,
    /// 10 bytes, without `num_buffers`: packet sockets (`PACKET_VNET_HDR`).
    Legacy,
}

/// A file descriptor on which each read and each write is a frame.
#[derive(Debug)]
pub struct Device<F> {
    descriptor: F,
    header: VnetHeader,
}

impl<F: AsFd + Debug + Send> Device<F> {
    /// `descriptor` must be non-blocking.
    pub fn new(descriptor: F, header: VnetHeader) -> Self {
        Device { descriptor, header }
    }
}

impl<F: AsFd + Debug + Send> Wire for Device<F> {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    fn receive(&mut self, room: &mut VolatileSlice<'_>) -> io::Result<Option<usize>> {
        let missing = if self.header == VnetHeader::Legacy { 2 } else { 0 };
        let mut into = room.offset(missing).map_err(io_error)?;
        let bytes = match self.descriptor.as_fd().read_volatile(&mut into).map_err(io_error) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => bytes + missing,
            // A packet socket has dropped a frame for which it cannot build a header.
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
        let missing = if self.header == VnetHeader::Legacy { 2 } else { 0 };
        if missing > 0 {
            let mut header = [0_u8; HEADER_BYTES];
            frame.copy_to(&mut header);
            let Ok(place) = frame.offset(missing) else { return false };
            place.copy_from(&header[..HEADER_BYTES - missing]);
        }
        let Ok(from) = frame.offset(missing) else { return false };
        let write = || self.descriptor.as_fd().write_volatile(&from).map_err(io_error);
        match write() {
            // An interface that was down reports it once.
            Err(error) if error.raw_os_error() == Some(Errno::NETDOWN.raw_os_error()) => write().is_ok(),
            sent => sent.is_ok(),
        }
    }
}

/// A VLAN tag as in a frame: TPID and TCI.
pub type Tag = [u8; TAG_BYTES];

/// What is next in [`Frames`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<'a> {
    Nothing,
    /// A frame with a legacy header, and the VLAN tag that the kernel has stripped from it.
    Frame(&'a [u8], Option<Tag>),
    /// Read the descriptor; there may be no frame.
    Read,
    /// A frame that was too long for the ring: read the descriptor. Its stripped VLAN tag.
    Long(Option<Tag>),
    /// No frame will arrive any more.
    Gone,
}

/// A device with a ring that the kernel fills, and a descriptor to read frames that do not fit, and to write
/// frames. All frames have a legacy header.
pub trait Frames: AsFd + Debug + Send {
    fn next(&mut self) -> Next<'_>;

    /// Releases what [`Frames::next`] returned.
    fn release(&mut self);

    /// Room for a frame of `bytes` bytes, without a header, that the next flush sends.
    fn room(&mut self, bytes: usize) -> Room<'_>;

    /// Sends the frames in rooms.
    fn flush(&mut self) -> Flushed;
}

/// Room for a frame that a flush sends.
#[derive(Debug, PartialEq, Eq)]
pub enum Room<'a> {
    Here(&'a mut [u8]),
    /// The frames before it are not sent yet.
    Full,
    /// The frame is to be written to the descriptor.
    Unfit,
}

/// A wire to [`Frames`].
#[derive(Debug)]
pub struct Mapped<F> {
    frames: F,
    /// Frames that were lost before a frame that was written.
    lost: u32,
}

impl<F> Mapped<F> {
    pub fn new(frames: F) -> Self {
        Mapped { frames, lost: 0 }
    }
}

impl<F: Frames> Wire for Mapped<F> {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.frames.as_fd()
    }

    fn receive(&mut self, room: &mut VolatileSlice<'_>) -> io::Result<Option<usize>> {
        let bytes = match self.frames.next() {
            Next::Nothing => return Ok(None),
            Next::Gone => return Err(Errno::NODEV.into()),
            Next::Read => return Device::new(self.frames.as_fd(), VnetHeader::Legacy).receive(room),
            Next::Frame(frame, tag) => put(frame, tag, room),
            // If it is not there after all, the next one may be.
            Next::Long(None) => {
                Device::new(self.frames.as_fd(), VnetHeader::Legacy).receive(room)?.unwrap_or(0)
            }
            Next::Long(Some(tag)) => {
                let mut behind = room.offset(TAG_BYTES).map_err(io_error)?;
                match Device::new(self.frames.as_fd(), VnetHeader::Legacy).receive(&mut behind)? {
                    Some(bytes) => put_tag(tag, bytes, room),
                    None => 0,
                }
            }
        };
        self.frames.release();
        Ok(Some(bytes))
    }

    fn send(&mut self, frame: &mut VolatileSlice<'_>) -> bool {
        let mut header = [0; HEADER_BYTES];
        frame.copy_to(&mut header);
        let data = frame.offset(HEADER_BYTES);
        if let Ok(data) = data
            && is_complete(&header)
        {
            match self.frames.room(data.len()) {
                Room::Here(room) => return data.copy_to(room) == room.len(),
                Room::Full => return false,
                Room::Unfit => {}
            }
        }
        // Behind the frames before it.
        let Flushed { lost, is_behind } = self.frames.flush();
        self.lost += lost;
        !is_behind && Device::new(self.frames.as_fd(), VnetHeader::Legacy).send(frame)
    }

    fn flush(&mut self) -> Flushed {
        let flushed = self.frames.flush();
        Flushed { lost: flushed.lost + std::mem::take(&mut self.lost), ..flushed }
    }
}

/// Bytes of both addresses; a tag follows them.
const ADDRESSES_BYTES: usize = ETHERNET_BYTES - 2;

/// Copies a frame with a legacy header into `room` and inserts its tag again. Returns its bytes with a
/// complete header; 0 if it is not a frame.
fn put(frame: &[u8], tag: Option<Tag>, room: &VolatileSlice<'_>) -> usize {
    let Some((header, frame)) = frame.split_first_chunk::<LEGACY_BYTES>() else { return 0 };
    let mut whole = [0; HEADER_BYTES];
    whole[..LEGACY_BYTES].copy_from_slice(header);
    let Some(tag) = tag else { return put_parts(&[&whole, frame], room) };
    let Some((addresses, rest)) = frame.split_at_checked(ADDRESSES_BYTES) else { return 0 };
    shift_offsets(&mut whole, to_u16(TAG_BYTES).cast_signed());
    put_parts(&[&whole, addresses, &tag, rest], room)
}

/// Copies parts one behind the other into `room`, as far as there is room. Returns their bytes.
fn put_parts(parts: &[&[u8]], room: &VolatileSlice<'_>) -> usize {
    let mut bytes = 0;
    for part in parts {
        let Ok(place) = room.offset(bytes) else { return 0 };
        place.copy_from(part);
        bytes += part.len().min(place.len());
    }
    bytes
}

/// Inserts a tag into a frame of `bytes` bytes, header included, that is in `room` behind space for the tag.
/// Returns its new length; 0 if it is not a frame.
fn put_tag(tag: Tag, bytes: usize, room: &VolatileSlice<'_>) -> usize {
    let mut front = [0; HEADER_BYTES + ADDRESSES_BYTES];
    if bytes < front.len() {
        return 0;
    }
    let Ok(place) = room.offset(TAG_BYTES) else { return 0 };
    place.copy_to(&mut front);
    let (header, addresses) = front.split_at(HEADER_BYTES);
    let Ok(mut whole) = <[u8; HEADER_BYTES]>::try_from(header) else { return 0 };
    shift_offsets(&mut whole, to_u16(TAG_BYTES).cast_signed());
    put_parts(&[&whole, addresses, &tag], room);
    bytes + TAG_BYTES
}

/// A `SOCK_SEQPACKET` socket for programs, one at a time. Each message is a frame with its header.
#[derive(Debug)]
pub struct Listener {
    path: PathBuf,
    listener: OwnedFd,
    program: Option<Device<OwnedFd>>,
    /// An epoll set with both.
    both: OwnedFd,
}

impl Listener {
    /// Listens at `path`. A socket that a killed process left behind is replaced.
    ///
    /// # Errors
    /// When `path` is in use or is not a socket, or a system call fails.
    pub fn new(path: &Path) -> io::Result<Listener> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        remove_stale_socket(path)?;
        rustix::net::bind(&listener, &SocketAddrUnix::new(path)?)?;
        // From here on, drop removes the path.
        let both = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let listener = Listener { path: path.to_owned(), listener, program: None, both };
        rustix::net::listen(&listener.listener, 1)?;
        epoll::add(&listener.both, &listener.listener, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        Ok(listener)
    }

    /// Accepts the next program.
    fn accept(&mut self) -> Option<&mut Device<OwnedFd>> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (program, _) = acceptfrom_with(&self.listener, flags).ok()?;
        epoll::add(&self.both, &program, epoll::EventData::new_u64(1), epoll::EventFlags::IN).ok()?;
        Some(self.program.insert(Device::new(program, VnetHeader::Virtio1)))
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
                // The program has disconnected; another one may wait.
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

    /// A device, and its other end.
    fn device(header: VnetHeader) -> (Device<OwnedFd>, OwnedFd) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (ours, theirs) = pair.expect("a pair");
        (Device::new(ours, header), theirs)
    }

    #[test]
    fn a_legacy_header_is_completed_and_cut_again() {
        let (mut device, kernel) = device(VnetHeader::Legacy);
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

    /// A device whose ring has `slots`; `None`: the frame is too long and waits in the socket.
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

        fn room(&mut self, _: usize) -> Room<'_> {
            Room::Unfit
        }

        fn flush(&mut self) -> Flushed {
            Flushed::default()
        }
    }

    #[test]
    fn frames_of_the_ring_and_long_ones_of_the_socket_arrive_in_order() {
        let (device, kernel) = device(VnetHeader::Legacy);
        let header = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
        let frame = |text: &str| [&header[..], text.as_bytes()].concat();
        for text in ["second", "third"] {
            rustix::io::write(&kernel, &frame(text)).expect("written");
        }
        let slots = vec![Some(frame("first")), None, None, Some(vec![7; 9]), None, Some(frame("last"))];
        let mut wire = Mapped::new(Slots { socket: device.descriptor, slots, tag: None });
        let mut memory = [0xee; 24];
        let mut room = VolatileSlice::from(&mut memory[..]);
        let mut came = Vec::new();
        while let Ok(bytes) = wire.receive(&mut room) {
            let mut read = vec![0; bytes.expect("a frame")];
            room.copy_to(&mut read[..]);
            came.push(read);
        }
        let whole = |text: &str| [&header[..], &[0, 0], text.as_bytes()].concat();
        // Too short, and not in the socket after all: not frames.
        let wanted = [whole("first"), whole("second"), whole("third"), vec![], vec![], whole("last")];
        assert_eq!(came, wanted);
    }

    #[test]
    fn a_stripped_tag_is_inserted_behind_the_addresses() {
        let (device, kernel) = device(VnetHeader::Legacy);
        // hdr_len 54, csum_start 34.
        let header = [1, 1, 54, 0, 0xa8, 5, 34, 0, 16, 0];
        let frame = |text: &str| [&header[..], &[6; 6], &[7; 6], text.as_bytes()].concat();
        rustix::io::write(&kernel, &frame("long")).expect("written");
        rustix::io::write(&kernel, &[0; 20]).expect("written");
        let short = vec![9; LEGACY_BYTES + ADDRESSES_BYTES - 1];
        let slots = vec![Some(frame("short")), None, None, None, Some(short)];
        let tag = [0x81, 0, 0x20, 20];
        let mut wire = Mapped::new(Slots { socket: device.descriptor, slots, tag: Some(tag) });
        let mut memory = [0xee; 64];
        let mut room = VolatileSlice::from(&mut memory[..]);
        let moved = [1, 1, 58, 0, 0xa8, 5, 38, 0, 16, 0, 0, 0];
        let whole = |text: &str| [&moved[..], &[6; 6], &[7; 6], &tag, text.as_bytes()].concat();
        // Without addresses it is not a frame.
        for wanted in [whole("short"), whole("long"), vec![], vec![], vec![]] {
            assert_eq!(wire.receive(&mut room).expect("open"), Some(wanted.len()));
            let mut read = vec![0; wanted.len()];
            room.copy_to(&mut read[..]);
            assert_eq!(read, wanted);
        }
    }

    #[test]
    fn a_frame_longer_than_the_room_is_cut_there() {
        let mut memory = [0; 20];
        let room = VolatileSlice::from(&mut memory[..]);
        assert_eq!(put(&[9; 100], None, &room), 20);
        assert_eq!(memory[9..14], [9, 0, 0, 9, 9]);
    }

    /// A device with room for `rooms` frames between two flushes. A written frame is a message of the socket.
    #[derive(Debug)]
    struct Rooms {
        socket: OwnedFd,
        rooms: Vec<Vec<u8>>,
        used: usize,
        flushed: Flushed,
    }

    impl AsFd for Rooms {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.socket.as_fd()
        }
    }

    impl Frames for Rooms {
        fn next(&mut self) -> Next<'_> {
            Next::Gone
        }

        fn release(&mut self) {}

        fn room(&mut self, bytes: usize) -> Room<'_> {
            if bytes > 20 {
                return Room::Unfit;
            }
            let Some(room) = self.rooms.get_mut(self.used) else { return Room::Full };
            self.used += 1;
            *room = vec![0; bytes];
            Room::Here(room)
        }

        fn flush(&mut self) -> Flushed {
            if !self.flushed.is_behind {
                for room in self.rooms.iter().take(std::mem::take(&mut self.used)) {
                    rustix::io::write(&self.socket, room).expect("sent");
                }
            }
            self.flushed
        }
    }

    fn rooms(rooms: usize) -> (Mapped<Rooms>, OwnedFd) {
        let (device, kernel) = device(VnetHeader::Legacy);
        let socket = device.descriptor;
        let rooms = Rooms { socket, rooms: vec![Vec::new(); rooms], used: 0, flushed: Flushed::default() };
        (Mapped::new(rooms), kernel)
    }

    /// Sends a frame with this header's first byte. Returns whether it was accepted.
    fn send(wire: &mut Mapped<Rooms>, flags: u8, text: &str) -> bool {
        let mut frame = [&[flags], &[0; HEADER_BYTES - 1][..], text.as_bytes()].concat();
        wire.send(&mut VolatileSlice::from(&mut frame[..]))
    }

    #[test]
    fn frames_of_a_batch_and_written_ones_are_sent_in_order() {
        let (mut wire, kernel) = rooms(4);
        // The second needs a checksum, and the fourth is too long: they are written with their header.
        assert!(send(&mut wire, 0, "first"));
        assert!(send(&mut wire, 1, "second"));
        assert!(send(&mut wire, 0, "third"));
        assert!(send(&mut wire, 0, "fourth, which is too long"));
        assert!(send(&mut wire, 0, "fifth"));
        assert_eq!(wire.flush(), Flushed::default());
        let (mut came, mut message) = (Vec::new(), [0; 40]);
        while let Ok(bytes) = rustix::io::read(&kernel, &mut message) {
            came.push(String::from_utf8_lossy(&message[..bytes]).into_owned());
        }
        let header = |flags: &str| format!("{flags}{}", "\0".repeat(9));
        let second = header("\u{1}") + "second";
        let fourth = header("\0") + "fourth, which is too long";
        assert_eq!(came, ["first", &second, "third", &fourth, "fifth"]);
    }

    #[test]
    fn frames_without_room_are_lost_and_none_overtakes_another() {
        let (mut wire, kernel) = rooms(2);
        wire.frames.flushed = Flushed { lost: 3, is_behind: true };
        assert!(send(&mut wire, 0, "first"));
        assert!(!send(&mut wire, 1, "written"), "the first is not sent yet");
        assert!(send(&mut wire, 0, "second"));
        assert!(!send(&mut wire, 0, "third"), "there is no room");
        // Those of the flush before the written frame count as well.
        assert_eq!(wire.flush(), Flushed { lost: 6, is_behind: true });
        assert!(rustix::io::read(&kernel, &mut [0; 40]).is_err(), "nothing is sent");
    }
}
