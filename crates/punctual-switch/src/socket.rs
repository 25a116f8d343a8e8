//! Removes socket files that a killed process left behind.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

/// Removes a socket at `path` that no process listens on.
///
/// # Errors
/// A process listens on it (`AddrInUse`), or `path` is not a socket (`AlreadyExists`); then it stays. Or an
/// error of a system call.
pub(crate) fn remove_stale_socket(path: &Path) -> io::Result<()> {
    let metadata = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        metadata => metadata?,
    };
    if !metadata.file_type().is_socket() {
        let text = "not a socket";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
    }
    // A datagram socket: a listener of another type does not notice the attempt (Linux `unix_find_bsd`).
    let probe = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    match rustix::net::connect(&probe, &SocketAddrUnix::new(path)?) {
        Err(Errno::CONNREFUSED) => std::fs::remove_file(path),
        Ok(()) | Err(Errno::PROTOTYPE) => {
            Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens on it"))
        }
        Err(error) => Err(error.into()),
    }
}
