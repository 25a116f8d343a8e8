//! An interface of the host by a packet socket (`packet(7)`), whose frames come in a mapped ring
//! (Linux `Documentation/networking/packet_mmap.rst`).
//!
//! The ring is TPACKET_V2, which shows each frame at once. TPACKET_V3 holds frames back until a block is full
//! or the kernel's block timer fires, and that timer also fires without frames. A frame that is longer than a
//! slot of the ring waits in the socket, and its slot has the flag TP_STATUS_COPY; so segments of 64 KiB need
//! no slots of that length.
//!
//! The kernel strips the VLAN tag from a frame before a socket sees it and reports the tag in the ring. The
//! reader puts it back.
//!
//! Frames are sent in batches ([`XdpSender`]), if the kernel has AF_XDP. Others, and those with a checksum or
//! segmentation to be done, are sent by one system call each. A TX ring is no cheaper where frames go to
//! another socket of the host, and twice as expensive for a segment of 64 KiB: the kernel takes its pages and
//! copies them later.

#![expect(unsafe_code, reason = "a ring that the kernel writes")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use memmap2::{MmapOptions, MmapRaw};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::xdp::{Flushed, XdpSender};
use super::{any_socket, checked, flags_request, index, ioctl};

/// Bytes of the virtio-net header in front of each frame of an interface.
pub const INTERFACE_HEADER_BYTES: usize = 10;

/// Bytes of a slot: a frame of 1,514 bytes with what the kernel says of it.
const SLOT_BYTES: usize = 2048;

/// Slots of the ring.
const SLOTS: usize = 512;

/// An interface that is removed is gone so long after it went down at most. If not, it is seen to be gone
/// when a frame is to be sent to it.
const REMOVAL_MS: u32 = 100;

/// Bytes that the kernel allocates together.
const BLOCK_BYTES: usize = 1 << 16;

/// A VLAN tag as it stands in a frame: its type and what it says.
pub type Tag = [u8; 4];

/// An existing interface: what it receives is read, what is written it sends, each with a virtio-net header
/// of [`INTERFACE_HEADER_BYTES`]. What this host itself sends over the interface is not read. The interface
/// takes frames for everybody until the value is dropped.
#[derive(Debug)]
pub struct Interface {
    socket: OwnedFd,
    index: u32,
    ring: Result<Ring, io::Error>,
    sender: Result<XdpSender, io::Error>,
    /// Was it down when it was last looked at?
    is_down: bool,
}

/// The frames that are taken from an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// Those without a VLAN tag.
    Untagged,
    All,
    /// Those with a tag whose priority code point (PCP) is in this set, in which bit N is PCP N. Such an
    /// interface sends nothing in batches.
    Classes(u8),
    /// All but those.
    AllBut(u8),
}

/// What comes next from an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// Nothing now.
    Nothing,
    /// A frame with its header, in memory of the kernel, and the tag that the kernel took out of it.
    Mapped(&'a [u8], Option<Tag>),
    /// A frame that is longer than a slot: the descriptor is to be read. Its tag.
    Long(Option<Tag>),
    /// There is no ring: the descriptor is to be read.
    NoRing,
    /// Nothing will come any more: the interface was removed.
    Gone,
}

/// Room for a frame that is sent in a batch.
#[derive(Debug, PartialEq, Eq)]
pub enum Room<'a> {
    /// Its bytes go here.
    Here(&'a mut [u8]),
    /// The interface has not sent those before it.
    Full,
    /// Such a frame is not sent in a batch: it is written to the descriptor.
    Unfit,
}

/// The ring that the kernel fills.
#[derive(Debug)]
struct Ring {
    map: MmapRaw,
    /// The slot that is filled next.
    at: usize,
}

impl Ring {
    /// Gives the socket a ring. The socket is as before when that fails.
    fn new(socket: &OwnedFd) -> io::Result<Ring> {
        let set = |name, value: libc::c_int| set_option(socket, libc::SOL_PACKET, name, &value);
        set(libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V2 as libc::c_int)?;
        set(libc::PACKET_COPY_THRESH, 1)?;
        set_slots(socket, SLOTS)?;
        match MmapOptions::new().len(SLOTS * SLOT_BYTES).map_raw(socket) {
            Ok(map) => Ok(Ring { map, at: 0 }),
            Err(error) => {
                set_slots(socket, 0)?;
                Err(error)
            }
        }
    }

    /// The status of the next slot.
    fn status(&self) -> &AtomicU32 {
        let place = self.map.as_mut_ptr().wrapping_add(self.at * SLOT_BYTES);
        // SAFETY: `at` is less than `SLOTS`, so the slot is inside of the mapping, which lives as long as
        // `self`. A slot begins with its status, at a multiple of `SLOT_BYTES` behind the start of a page.
        // The kernel is the only other one that has access to it, and each access is of the whole number.
        unsafe { AtomicU32::from_ptr(place.cast()) }
    }

    fn is_empty(&self) -> bool {
        self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER == 0
    }

    /// What is in the next slot.
    fn next(&mut self) -> Frame<'_> {
        // As many as there are: the kernel may fill slots as fast as they are passed over.
        for _ in 0..SLOTS {
            if self.is_empty() {
                return Frame::Nothing;
            }
            if self.status().load(Ordering::Relaxed) & libc::TP_STATUS_COPY != 0 {
                return Frame::Long(tag(&self.header()));
            }
            let header = self.header();
            if let Some((from, to)) = place(&header) {
                let place = self.map.as_ptr().wrapping_add(self.at * SLOT_BYTES + from);
                // SAFETY: `from` and `to` are at most `SLOT_BYTES`, and `from` is not greater, so the bytes
                // are inside of the mapping. The kernel does not write to a slot whose status has
                // `TP_STATUS_USER` until `release`, which needs the borrow of `self` to be over.
                let frame = unsafe { std::slice::from_raw_parts(place, to - from) };
                return Frame::Mapped(frame, tag(&header));
            }
            // Longer than a slot, and the socket was full: lost, as it is without a ring.
            self.release();
        }
        Frame::Nothing
    }

    /// What the kernel says of the next slot, which it has filled.
    fn header(&self) -> libc::tpacket2_hdr {
        let slot = self.map.as_ptr().wrapping_add(self.at * SLOT_BYTES);
        // SAFETY: a slot begins with this header of plain numbers and is longer. It lies in the mapping and
        // belongs to this program, as in `next`.
        unsafe { slot.cast::<libc::tpacket2_hdr>().read() }
    }

    /// The kernel gets the next slot back.
    fn release(&mut self) {
        self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.at = (self.at + 1) % SLOTS;
    }
}

/// Where in a slot the frame and its header begin and end, if all of it is there.
fn place(header: &libc::tpacket2_hdr) -> Option<(usize, usize)> {
    let start = usize::from(header.tp_mac).checked_sub(INTERFACE_HEADER_BYTES)?;
    let end = usize::from(header.tp_mac).checked_add(header.tp_snaplen as usize)?;
    (header.tp_snaplen == header.tp_len && end <= SLOT_BYTES).then_some((start, end))
}

/// The tag that the kernel took out of a slot's frame.
fn tag(header: &libc::tpacket2_hdr) -> Option<Tag> {
    let has = |flag| header.tp_status & flag != 0;
    // Kernels before 3.14 have tags of one type only.
    let kind =
        if has(libc::TP_STATUS_VLAN_TPID_VALID) { header.tp_vlan_tpid } else { libc::ETH_P_8021Q as u16 };
    let ([a, b], [c, d]) = (kind.to_be_bytes(), header.tp_vlan_tci.to_be_bytes());
    has(libc::TP_STATUS_VLAN_VALID).then_some([a, b, c, d])
}

/// Gives the socket a ring of so many slots, or takes it away.
fn set_slots(socket: &OwnedFd, slots: usize) -> io::Result<()> {
    let request = libc::tpacket_req {
        tp_block_size: if slots == 0 { 0 } else { BLOCK_BYTES as u32 },
        tp_block_nr: (slots * SLOT_BYTES / BLOCK_BYTES) as u32,
        tp_frame_size: if slots == 0 { 0 } else { SLOT_BYTES as u32 },
        tp_frame_nr: slots as u32,
    };
    set_option(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)
}

/// Bytes behind the Ethernet header that the interface sends at most.
fn mtu(name: &str) -> io::Result<usize> {
    let mut request = flags_request(name, 0)?;
    ioctl(any_socket()?, libc::SIOCGIFMTU as _, (&raw mut request).cast())?;
    // SAFETY: the kernel has filled in this field.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    Ok(usize::try_from(mtu).unwrap_or_default())
}

/// Is there no interface with this index any more?
fn has_left(index: u32) -> bool {
    let name = |socket| rustix::net::netdevice::index_to_name(&socket, index).map_err(io::Error::from);
    any_socket().and_then(name).is_err_and(|error| error.raw_os_error() == Some(libc::ENODEV))
}

/// An interface went down. Does it leave? One that is removed goes down a moment before it is gone, and the
/// kernel says nothing of the latter (`packet_notifier`). Nothing else is to be done with it meanwhile.
fn leaves(index: u32) -> bool {
    for _ in 0..REMOVAL_MS {
        if has_left(index) {
            return true;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    has_left(index)
}

impl Interface {
    /// Opens the interface `name` for frames without a VLAN tag.
    ///
    /// # Errors
    /// When there is no such interface, or the kernel refuses.
    pub fn open(name: &str) -> io::Result<Interface> {
        Interface::open_with(name, Take::Untagged, Ring::new)
    }

    /// Opens the interface `name` for some of its frames.
    ///
    /// # Errors
    /// When there is no such interface, or the kernel refuses, or it gives no ring and there are frames with
    /// a tag: only a ring tells it.
    pub fn open_for(name: &str, take: Take) -> io::Result<Interface> {
        let interface = Interface::open_with(name, take, Ring::new)?;
        match interface.ring {
            Err(error) if take != Take::Untagged => {
                let text = format!("frames with VLAN tags need a mapped ring, and there is none: {error}");
                Err(io::Error::new(error.kind(), text))
            }
            _ => Ok(interface),
        }
    }

    fn open_with(
        name: &str,
        take: Take,
        ring: impl Fn(&OwnedFd) -> io::Result<Ring>,
    ) -> io::Result<Interface> {
        let index = index(name)?.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Without a protocol the socket receives nothing until it is bound.
        let socket = rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
        set_option(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1_i32)?;
        set_option(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1_i32)?;
        if let Some(program) = filter(take) {
            attach_filter(&socket, program)?;
        }
        let ring = ring(&socket);
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
            sll_ifindex: index as i32,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        let bytes = size_of_val(&address) as libc::socklen_t;
        // SAFETY: the kernel reads `bytes` bytes from `address`, which is that long.
        checked(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), bytes) })?;
        let kind = libc::PACKET_MR_PROMISC as u16;
        let everything =
            libc::packet_mreq { mr_ifindex: index as i32, mr_type: kind, mr_alen: 0, mr_address: [0; 8] };
        set_option(&socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &everything)?;
        let sender = match take {
            Take::Classes(_) => Err(io::ErrorKind::Unsupported.into()),
            _ => mtu(name).and_then(|mtu| XdpSender::new(index, mtu + libc::ETH_HLEN as usize)),
        };
        Ok(Interface { socket, index, ring, sender, is_down: false })
    }

    /// Why there is no ring, if it could not be set up: each frame is then read by a system call.
    pub fn without_ring(&self) -> Option<&io::Error> {
        self.ring.as_ref().err()
    }

    /// Why frames are not sent in batches, if they are not.
    pub fn without_batches(&self) -> Option<&io::Error> {
        self.sender.as_ref().err()
    }

    /// Room for a frame of this length that [`Interface::flush`] sends, without a header. Frames that need
    /// one are written to the descriptor, after a flush.
    pub fn room(&mut self, bytes: usize) -> Room<'_> {
        match &mut self.sender {
            Ok(sender) if sender.takes(bytes) => sender.room(bytes).map_or(Room::Full, Room::Here),
            _ => Room::Unfit,
        }
    }

    /// Sends what was put into rooms.
    pub fn flush(&mut self) -> Flushed {
        self.sender.as_mut().map(XdpSender::flush).unwrap_or_default()
    }

    /// The next frame. [`Interface::release`] returns its slot to the kernel.
    pub fn next_frame(&mut self) -> Frame<'_> {
        let Ok(ring) = &mut self.ring else { return Frame::NoRing };
        if !ring.is_empty() {
            self.is_down = false;
            return ring.next();
        }
        // The socket has this error once.
        let went_down = matches!(rustix::net::sockopt::socket_error(&self.socket), Ok(Err(_)));
        self.is_down |= went_down;
        let is_gone = self.is_down && if went_down { leaves(self.index) } else { has_left(self.index) };
        if is_gone { Frame::Gone } else { Frame::Nothing }
    }

    /// What was next is done with.
    pub fn release(&mut self) {
        if let Ok(ring) = &mut self.ring {
            ring.release();
        }
    }
}

impl AsFd for Interface {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Sets an option of a socket.
fn set_option<T>(socket: &OwnedFd, level: i32, name: i32, value: &T) -> io::Result<()> {
    let bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `bytes` bytes from `value`, which is that long.
    let code =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const *value).cast(), bytes) };
    checked(code)
}

/// The program of a socket's filter; `None`: it takes all frames.
///
/// Of frames without a tag [`Take::Untagged`] takes no other, since one whose tag is not read looks like
/// another frame.
fn filter(take: Take) -> Option<Vec<libc::sock_filter>> {
    // `SKF_AD_OFF + SKF_AD_VLAN_TAG_PRESENT` and `SKF_AD_OFF + SKF_AD_VLAN_TAG` of `linux/filter.h`: loads
    // from there read whether there was a tag, and its TCI.
    const TAG_PRESENT: u32 = (-0x1000_i32 + 48) as u32;
    const TCI: u32 = (-0x1000_i32 + 44) as u32;
    const PCP_SHIFT: u32 = 13;
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = |from| step(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, from);
    let jump = |kind: u32, jt, jf, k| step(libc::BPF_JMP | kind | libc::BPF_K, jt, jf, k);
    let returns = |bytes| step(libc::BPF_RET | libc::BPF_K, 0, 0, bytes);
    let (set, [inside, outside]) = match take {
        Take::All => return None,
        Take::Untagged => {
            let is_tagged = jump(libc::BPF_JEQ, 1, 0, 0);
            return Some(vec![load(TAG_PRESENT), is_tagged, returns(0), returns(u32::MAX)]);
        }
        Take::Classes(set) => (set, [u32::MAX, 0]),
        Take::AllBut(set) => (set, [0, u32::MAX]),
    };
    // 1 << PCP, and whether that is in the set.
    Some(vec![
        load(TAG_PRESENT),
        jump(libc::BPF_JEQ, 6, 0, 0),
        step(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, 0, 0, TCI),
        step(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, 0, 0, PCP_SHIFT),
        step(libc::BPF_MISC | libc::BPF_TAX, 0, 0, 0),
        step(libc::BPF_LD | libc::BPF_IMM, 0, 0, 1),
        step(libc::BPF_ALU | libc::BPF_LSH | libc::BPF_X, 0, 0, 0),
        jump(libc::BPF_JSET, 1, 0, set.into()),
        returns(outside),
        returns(inside),
    ])
}

fn attach_filter(socket: &OwnedFd, mut program: Vec<libc::sock_filter>) -> io::Result<()> {
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use rustix::event::{PollFd, PollFlags, poll};

    use super::super::{flags_request, ioctl, own_namespace};
    use super::*;

    /// Runs in a thread with a network namespace of its own, whose loopback interface returns frames.
    fn apart(test: impl FnOnce() + Send + 'static) {
        let run = move || {
            if let Err(error) = own_namespace() {
                assert!(std::env::var_os("PUNCTUAL_NO_SKIP").is_none(), "skipped: {error}");
                return eprintln!("skipped, no network namespaces here: {error}");
            }
            let mut up = flags_request("lo", libc::IFF_UP).expect("a name");
            let socket = any_socket().expect("a socket");
            ioctl(socket, libc::SIOCSIFFLAGS as _, (&raw mut up).cast()).expect("up");
            test();
        };
        std::thread::spawn(run).join().expect("the test passes");
    }

    fn refused(_: &OwnedFd) -> io::Result<Ring> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// A frame with a number; a long one is a segment of TCP.
    fn frame(number: u32, bytes: usize) -> Vec<u8> {
        let mut frame = vec![0; INTERFACE_HEADER_BYTES + bytes];
        let (header, data) = frame.split_at_mut(INTERFACE_HEADER_BYTES);
        data[12..14].copy_from_slice(&[0x88, 0xb5]);
        if bytes > 1514 {
            // To be completed and cut: headers of 54 bytes, 1,448 bytes of each frame, a checksum at 34 + 16.
            header.copy_from_slice(&[1, 1, 54, 0, 0xa8, 5, 34, 0, 16, 0]);
            data[12..14].copy_from_slice(&[8, 0]);
            (data[14], data[22], data[23], data[46]) = (0x45, 64, 6, 0x50);
            data[16..18].copy_from_slice(&(bytes as u16 - 14).to_be_bytes());
        }
        data[56..60].copy_from_slice(&number.to_be_bytes());
        frame
    }

    fn send(interface: &Interface, frame: &[u8]) {
        assert_eq!(rustix::io::write(interface, frame).expect("sent"), frame.len());
    }

    /// What came, if it is there at once.
    fn receive(interface: &mut Interface) -> Option<Vec<u8>> {
        let mut bytes = vec![0; 70_000];
        let frame = match interface.next_frame() {
            Frame::Nothing | Frame::Gone => return None,
            Frame::Mapped(frame, _) => frame.to_vec(),
            Frame::Long(_) | Frame::NoRing => {
                let read = rustix::io::read(&*interface, &mut bytes[..]).ok()?;
                bytes[..read].to_vec()
            }
        };
        interface.release();
        Some(frame)
    }

    fn expect(interface: &mut Interface, wanted: &[u8]) {
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some(frame) = receive(interface) {
                return assert!(frame == wanted, "{:?} came instead of {:?}", &frame[..80], &wanted[..80]);
            }
            assert!(Instant::now() < end, "nothing comes");
        }
    }

    #[test]
    fn frames_and_segments_come_in_order_by_a_ring_and_without_one() {
        apart(|| {
            for ring in [Ring::new, refused] {
                let mut interface = Interface::open_with("lo", Take::Untagged, ring).expect("open");
                assert_eq!(interface.without_ring().is_some(), interface.next_frame() == Frame::NoRing);
                // More than once around.
                for burst in 0..40 {
                    let number = |at: u32| burst * 50 + at;
                    let length = |at: u32| if at == 20 { 60_000 } else { 60 + (at as usize * 40) % 1_455 };
                    let frames: Vec<_> = (0..50).map(|at| frame(number(at), length(at))).collect();
                    frames.iter().for_each(|frame| send(&interface, frame));
                    frames.iter().for_each(|frame| expect(&mut interface, frame));
                }
                assert_eq!(receive(&mut interface), None);
            }
        });
    }

    #[test]
    fn a_full_ring_loses_what_comes_last_and_goes_on() {
        apart(|| {
            let mut interface = Interface::open("lo").expect("open");
            if let Some(error) = interface.without_ring() {
                return eprintln!("skipped, no ring here: {error}");
            }
            for number in 0..SLOTS as u32 + 100 {
                send(&interface, &frame(number, 64));
            }
            for number in 0..SLOTS as u32 {
                expect(&mut interface, &frame(number, 64));
            }
            while receive(&mut interface).is_some() {}
            send(&interface, &frame(9_999, 64));
            expect(&mut interface, &frame(9_999, 64));
        });
    }

    #[test]
    fn an_interface_that_is_down_may_come_back_and_one_that_is_removed_is_gone() {
        apart(|| {
            let ip = |words: &str| {
                let status = std::process::Command::new("ip").args(words.split(' ')).status();
                status.is_ok_and(|status| status.success())
            };
            if !ip("link add v0 type veth peer name v1") {
                assert!(std::env::var_os("PUNCTUAL_NO_SKIP").is_none(), "skipped: no ip or no veth");
                return eprintln!("skipped, no ip or no veth here");
            }
            let mut interface = Interface::open("v0").expect("open");
            if let Some(error) = interface.without_ring() {
                return eprintln!("skipped, no ring here: {error}");
            }
            assert!(ip("link set v0 up") && ip("link set v0 down"));
            while receive(&mut interface).is_some() {}
            assert_eq!(interface.next_frame(), Frame::Nothing);
            assert!(interface.is_down);
            assert!(ip("link del v0"));
            assert_eq!(interface.next_frame(), Frame::Gone);
        });
    }

    #[test]
    fn an_interface_that_is_gone_a_moment_after_it_went_down_is_seen_to_be_gone() {
        apart(|| {
            let made = "ip link add v0 type veth peer name v1 && ip link set v0 up";
            let shell = |script: &str| std::process::Command::new("sh").args(["-c", script]).spawn();
            if !shell(made).is_ok_and(|mut made| made.wait().is_ok_and(|status| status.success())) {
                assert!(std::env::var_os("PUNCTUAL_NO_SKIP").is_none(), "skipped: no ip or no veth");
                return eprintln!("skipped, no ip or no veth here");
            }
            let mut interface = Interface::open("v0").expect("open");
            if interface.without_ring().is_none() {
                let mut removal = shell("ip link set v0 down; ip link del v0").expect("it runs");
                loop {
                    let limit = rustix::time::Timespec { tv_sec: 10, tv_nsec: 0 };
                    let mut ready = [PollFd::new(&interface, PollFlags::IN)];
                    let count = poll(&mut ready, Some(&limit)).expect("polled");
                    assert!(count > 0, "nothing says that the interface is gone");
                    match interface.next_frame() {
                        Frame::Gone => break,
                        Frame::Nothing => {}
                        _ => interface.release(),
                    }
                }
                assert!(removal.wait().expect("it ends").success());
            }
        });
    }

    /// Puts a frame into a room. Returns whether there was one.
    fn put(interface: &mut Interface, frame: &[u8]) -> bool {
        let data = &frame[INTERFACE_HEADER_BYTES..];
        match interface.room(data.len()) {
            Room::Here(room) => room.copy_from_slice(data),
            Room::Full => return false,
            Room::Unfit => panic!("a frame of {} bytes has no room", data.len()),
        }
        true
    }

    /// Does the kernel have batches? If not, a test is skipped.
    fn has_batches(interface: &Interface) -> bool {
        let Some(error) = interface.without_batches() else { return true };
        eprintln!("skipped, no AF_XDP here: {error}");
        false
    }

    #[test]
    fn frames_are_told_apart_by_the_priority_in_their_tag() {
        apart(|| {
            let takes =
                [Take::Untagged, Take::All, Take::Classes(1 << 4 | 1 << 7), Take::AllBut(1 << 4 | 1 << 7)];
            let mut interfaces = takes.map(|take| Interface::open_for("lo", take).expect("open"));
            let sender = Interface::open("lo").expect("open");
            // PCP 0 to 7 with a VLAN and the bit for dropping, and none at all.
            let tags = (0..8).map(|pcp: u16| Some(pcp << 13 | 0x1000 | 5)).chain([None]);
            for (number, tci) in (0..).zip(tags.clone()) {
                let mut frame = frame(number, 64);
                if let Some(tci) = tci {
                    let tag = [[0x81, 0], tci.to_be_bytes()].concat();
                    frame.splice(INTERFACE_HEADER_BYTES + 12..INTERFACE_HEADER_BYTES + 12, tag);
                }
                send(&sender, &frame);
            }
            let is_urgent = |pcp: Option<u16>| pcp.is_some_and(|pcp| [4, 7].contains(&pcp));
            let is_wanted = |take, pcp: Option<u16>| match take {
                Take::Untagged => pcp.is_none(),
                Take::All => true,
                Take::Classes(_) => is_urgent(pcp),
                Take::AllBut(_) => !is_urgent(pcp),
            };
            for (interface, take) in interfaces.iter_mut().zip(takes) {
                let all = tags.clone().map(|tci| tci.map(|tci| tci >> 13));
                for pcp in all.filter(|pcp| is_wanted(take, *pcp)) {
                    let end = Instant::now() + Duration::from_secs(10);
                    let tag = loop {
                        match interface.next_frame() {
                            Frame::Mapped(_, tag) => break tag,
                            other => assert!(other == Frame::Nothing && Instant::now() < end, "{other:?}"),
                        }
                    };
                    interface.release();
                    assert_eq!(tag.map(|tag| u16::from(tag[2] >> 5)), pcp);
                }
                assert_eq!(interface.next_frame(), Frame::Nothing);
            }
        });
    }

    #[test]
    fn frames_of_batches_and_written_ones_come_in_order() {
        apart(|| {
            let mut interface = Interface::open("lo").expect("open");
            if !has_batches(&interface) {
                return;
            }
            assert_eq!(interface.room(13), Room::Unfit, "no frame is so short");
            assert_eq!(interface.room(60_000), Room::Unfit, "a segment");
            // More than once around.
            for burst in 0..20 {
                let length = |at: u32| 60 + (at as usize * 40) % 1_455;
                let frames: Vec<_> = (0..50).map(|at| frame(burst * 50 + at, length(at))).collect();
                for (at, frame) in frames.iter().enumerate() {
                    if at == 20 {
                        assert_eq!(interface.flush(), Flushed::default());
                        send(&interface, frame);
                    } else {
                        assert!(put(&mut interface, frame));
                    }
                }
                assert_eq!(interface.flush(), Flushed::default());
                frames.iter().for_each(|frame| expect(&mut interface, frame));
            }
            let frames: Vec<_> = (0..).map(|at| frame(at, 64)).take(100).collect();
            let fitting = frames.iter().take_while(|frame| put(&mut interface, frame)).count();
            assert_eq!(fitting, 64, "as many as may wait");
            assert_eq!(interface.flush(), Flushed::default());
            frames[..fitting].iter().for_each(|frame| expect(&mut interface, frame));
            assert_eq!(receive(&mut interface), None);
        });
    }

    #[test]
    fn frames_for_an_interface_that_is_down_are_lost_and_never_sent_later() {
        apart(|| {
            let ip = |words: &str| {
                let status = std::process::Command::new("ip").args(words.split(' ')).status();
                status.is_ok_and(|status| status.success())
            };
            if !ip("link add v0 type veth peer name v1") || !ip("link set v0 up") || !ip("link set v1 up") {
                assert!(std::env::var_os("PUNCTUAL_NO_SKIP").is_none(), "skipped: no ip or no veth");
                return eprintln!("skipped, no ip or no veth here");
            }
            let mut interface = Interface::open("v0").expect("open");
            let mut other = Interface::open("v1").expect("open");
            if !has_batches(&interface) {
                return;
            }
            // The kernel's own frames (IPv6) are not counted.
            let mut numbers = |wanted: std::ops::Range<u32>| {
                let end = Instant::now() + Duration::from_secs(10);
                let mut came = Vec::new();
                while came.len() < wanted.len() && Instant::now() < end {
                    came.extend(receive(&mut other).filter(|frame| frame[22..24] == [0x88, 0xb5]));
                }
                let wanted: Vec<_> = wanted.map(|number| frame(number, 64)).collect();
                assert!(came == wanted, "{} frames came instead of {}", came.len(), wanted.len());
            };
            for round in 0..3 {
                assert!(ip("link set v0 down"));
                for (batch, count) in [(0, 5), (1, 40)] {
                    assert!((0..count).all(|at| put(&mut interface, &frame(9_000 + at, 64))), "{batch}");
                    assert_eq!(interface.flush(), Flushed { lost: count, is_behind: false });
                }
                assert!(ip("link set v0 up"));
                for first in [round * 100, round * 100 + 40] {
                    assert!((first..first + 40).all(|number| put(&mut interface, &frame(number, 64))));
                    assert_eq!(interface.flush(), Flushed::default());
                    numbers(first..first + 40);
                }
            }
            assert!(ip("link del v0"));
            assert!(put(&mut interface, &frame(1, 64)));
            assert_eq!(interface.flush(), Flushed { lost: 1, is_behind: false });
        });
    }

    #[test]
    fn a_ring_that_is_not_mapped_leaves_the_socket_as_it_was() {
        apart(|| {
            let unmapped = |socket: &OwnedFd| {
                drop(Ring::new(socket)?);
                set_slots(socket, 0)?;
                refused(socket)
            };
            let mut interface = Interface::open_with("lo", Take::Untagged, unmapped).expect("open");
            for (number, bytes) in [(1, 64), (2, 60_000), (3, 1_514)] {
                send(&interface, &frame(number, bytes));
                expect(&mut interface, &frame(number, bytes));
            }
        });
    }
}
