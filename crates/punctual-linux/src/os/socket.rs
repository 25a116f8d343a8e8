//! Who is at the other end of a Unix socket: `SO_PEERCRED` of `unix(7)`.

#![expect(unsafe_code, reason = "getsockopt(2)")]

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// The process that listened at the other end, or that made the pair, when it did so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its id; 0 for a process that cannot be seen from here (another pid namespace).
    pub process: i32,
    /// Its user.
    pub user: u32,
}

/// The peer of `socket`.
///
/// # Errors
/// As `getsockopt(2)`.
pub fn peer(socket: &UnixStream) -> io::Result<Peer> {
    // Not rustix's: it has no value for process 0.
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `credentials`, which is that large and plain data,
    // and the descriptor is open for as long as `socket` is.
    let code = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut length,
        )
    };
    match code {
        0 => Ok(Peer { process: credentials.pid, user: credentials.uid }),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_a_pair_are_this_process() {
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        let user = rustix::process::geteuid().as_raw();
        assert_eq!(peer(&ours).expect("known"), Peer { process: std::process::id() as i32, user });
    }
}
