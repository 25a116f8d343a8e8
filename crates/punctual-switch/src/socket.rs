//! Sockets that a program which was killed left behind.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

/// Makes way for a new socket at `path`: removes one that no program has any more.
///
/// # Errors
/// When a program has the socket (`AddrInUse`), or something else stands there (`AlreadyExists`), which both
/// stay; or what the system says.
pub fn remove_stale_socket(path: &Path) -> io::Result<()> {
    let metadata = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        metadata => metadata?,
    };
    if !metadata.file_type().is_socket() {
        let text = "there is something that is not a socket";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
    }
    // A datagram socket: a listener of another kind does not hear that somebody asks (Linux `unix_find_bsd`).
    let asks = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    match rustix::net::connect(&asks, &SocketAddrUnix::new(path)?) {
        Err(Errno::CONNREFUSED) => std::fs::remove_file(path),
        Ok(()) | Err(Errno::PROTOTYPE) => {
            Err(io::Error::new(io::ErrorKind::AddrInUse, "a program listens there"))
        }
        Err(error) => Err(error.into()),
    }
}
