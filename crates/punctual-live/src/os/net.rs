//! Network devices of the host as descriptors: TAPs (Linux `Documentation/networking/tuntap.rst`) and packet
//! sockets (`packet(7)`).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// Checksums and segments that a TAP takes and gives (`TUN_F_CSUM`, `TUN_F_TSO4`, `TUN_F_TSO6`,
/// `TUN_F_TSO_ECN`).
const TAP_OFFLOADS: usize = 1 | 2 | 4 | 8;

/// Bytes of the virtio-net header in front of each frame of a TAP.
pub const TAP_HEADER_BYTES: i32 = 12;

/// Bytes of that of a packet socket.
pub const INTERFACE_HEADER_BYTES: usize = 10;

/// An open TAP; each read and each write is a frame with a virtio-net header. A TAP that was there before
/// gets the settings back that it had; another one vanishes.
#[derive(Debug)]
pub struct Tap {
    file: File,
    /// Of a TAP that was there before: its length of headers.
    before: Option<i32>,
}

/// A request to set flags of the device `name`.
fn flags_request(name: &str, flags: i32) -> io::Result<libc::ifreq> {
    let mut ifr_name = [0; libc::IF_NAMESIZE];
    // The last byte stays 0.
    if name.is_empty() || name.len() >= ifr_name.len() || name.contains(['/', '%', '\0', ' ', ':']) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a name of a network device"));
    }
    for (to, from) in ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(libc::ifreq { ifr_name, ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: flags as i16 } })
}

fn checked(code: libc::c_int) -> io::Result<()> {
    if code < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Carries out a request of this file: its argument is a number, or points to what the request names.
fn ioctl(descriptor: impl AsFd, request: libc::c_ulong, argument: *mut libc::c_void) -> io::Result<()> {
    let descriptor = descriptor.as_fd().as_raw_fd();
    // SAFETY: the callers, all in this file, pass a value of the request's type that outlives the call.
    checked(unsafe { libc::ioctl(descriptor, request as _, argument) })
}

/// A socket through which requests go that concern no socket.
fn any_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?)
}

/// The index of the device `name`; `None` when there is no such device.
///
/// # Errors
/// When the kernel does not say.
pub fn index(name: &str) -> io::Result<Option<u32>> {
    flags_request(name, 0)?;
    match rustix::net::netdevice::name_to_index(any_socket()?, name) {
        Ok(index) => Ok(Some(index)),
        Err(rustix::io::Errno::NODEV) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Puts this thread, and all threads and processes that it starts from now on, into a network namespace of
/// its own, which ends with them.
///
/// # Errors
/// What Linux says; `EPERM` without `CAP_SYS_ADMIN`.
pub fn own_namespace() -> io::Result<()> {
    // SAFETY: takes a number only. No descriptor and no memory is shared less than before.
    checked(unsafe { libc::unshare(libc::CLONE_NEWNET) })
}

impl Tap {
    /// Opens the TAP `name`, or makes it and brings it up.
    ///
    /// # Errors
    /// When the kernel refuses: another program has it, there are no rights, it is no TAP.
    pub fn open(name: &str) -> io::Result<Tap> {
        let existed = index(name)?.is_some();
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
        let mut request = flags_request(name, libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR)?;
        ioctl(&file, libc::TUNSETIFF as _, (&raw mut request).cast())?;
        let mut bytes = 0_i32;
        ioctl(&file, libc::TUNGETVNETHDRSZ as _, (&raw mut bytes).cast())?;
        let tap = Tap { file, before: existed.then_some(bytes) };
        tap.set(TAP_HEADER_BYTES, TAP_OFFLOADS)?;
        if !existed {
            let mut request = flags_request(name, libc::IFF_UP | libc::IFF_MULTICAST)?;
            ioctl(any_socket()?, libc::SIOCSIFFLAGS as _, (&raw mut request).cast())?;
        }
        Ok(tap)
    }

    /// Sets the length of headers, and what the TAP takes.
    fn set(&self, mut header_bytes: i32, offloads: usize) -> io::Result<()> {
        ioctl(&self.file, libc::TUNSETVNETHDRSZ as _, (&raw mut header_bytes).cast())?;
        ioctl(&self.file, libc::TUNSETOFFLOAD as _, std::ptr::without_provenance_mut(offloads))
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        if let Some(bytes) = self.before {
            // Nobody can be told.
            let _ = self.set(bytes, 0);
        }
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

/// Takes frames without a VLAN tag: the kernel takes the tag out of a frame before a socket sees it, so that
/// a tagged frame would look like one without.
fn take_untagged(socket: &OwnedFd) -> io::Result<()> {
    // `SKF_AD_OFF + SKF_AD_VLAN_TAG_PRESENT` of `linux/filter.h`: a load from there says whether a tag was.
    const TAG_PRESENT: u32 = (-0x1000_i32 + 48) as u32;
    let step = |code: u32, jt, k| libc::sock_filter { code: code as u16, jt, jf: 0, k };
    let mut program = [
        step(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, TAG_PRESENT),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, 0),
        step(libc::BPF_RET | libc::BPF_K, 0, 0),
        step(libc::BPF_RET | libc::BPF_K, 0, u32::MAX),
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// Opens the existing interface `name`: what it receives is read, what is written it sends, each with a
/// virtio-net header of [`INTERFACE_HEADER_BYTES`]. What this host itself sends over the interface is not
/// read. The interface takes frames for everybody until the descriptor is closed.
///
/// # Errors
/// When there is no such interface, or the kernel refuses.
pub fn open_interface(name: &str) -> io::Result<OwnedFd> {
    let index = index(name)?.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // Without a protocol the socket receives nothing until it is bound.
    let socket = rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
    set_option(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1_i32)?;
    set_option(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1_i32)?;
    take_untagged(&socket)?;
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
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_device_can_have_are_refused() {
        for name in ["", "a/b", "sixteen-letters-", "tap%d", "a b", "eth0:1"] {
            assert_eq!(index(name).expect_err("refused").kind(), io::ErrorKind::InvalidInput, "{name}");
        }
    }

    #[test]
    fn devices_have_an_index_or_are_not_there() {
        assert!(index("lo").expect("known").is_some());
        assert_eq!(index("no-such-device").expect("known"), None);
        let error = open_interface("no-such-device").expect_err("not there");
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }
}
