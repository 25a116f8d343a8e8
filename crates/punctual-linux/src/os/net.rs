//! Network devices of the host as descriptors: TAPs (Linux `Documentation/networking/tuntap.rst`) and
//! interfaces.

#![expect(unsafe_code, reason = "ioctl(2), unshare(2)")]

mod interface;
mod xdp;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

pub use interface::{Frame, INTERFACE_HEADER_BYTES, Interface, Room, Tag, Take};
pub use xdp::{Flushed, XDP_BATCH};

/// The directory of this network namespace's devices (Linux `Documentation/ABI/testing/sysfs-class-net`).
pub const DEVICES: &str = "/sys/class/net";
/// The least priority of threads that serve network devices under the second softirq lock of a kernel with
/// the patch of `kernel/`; 0: no thread does.
pub const RTNET_PRIO: &str = "/proc/sys/net/core/rtnet_prio";

/// Checksums and segments that a TAP takes and gives (`TUN_F_CSUM`, `TUN_F_TSO4`, `TUN_F_TSO6`,
/// `TUN_F_TSO_ECN`).
const TAP_OFFLOADS: usize = 1 | 2 | 4 | 8;

/// Bytes of the virtio-net header in front of each frame of a TAP.
pub const TAP_HEADER_BYTES: i32 = 12;

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
        let error = Interface::open("no-such-device").expect_err("not there");
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }
}
