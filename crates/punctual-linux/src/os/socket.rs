//! Unix sockets: who is at the other end (`SO_PEERCRED` of `unix(7)`), and the one that systemd made for this
//! process (`sd_listen_fds(3)`).

#![expect(unsafe_code, reason = "getsockopt(2), and a descriptor that was inherited")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};

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

/// The first descriptor that systemd passes.
const LISTEN_FDS_START: i32 = 3;

/// The listening socket that systemd made for this process; `None` where it made none, or it was taken.
///
/// # Errors
/// It made several, or the descriptor is not open.
pub fn inherited_listener() -> io::Result<Option<UnixListener>> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    if number("LISTEN_PID") != Some(std::process::id()) || TAKEN.swap(true, Ordering::Relaxed) {
        return Ok(None);
    }
    match number("LISTEN_FDS") {
        Some(1) => {}
        None | Some(0) => return Ok(None),
        Some(count) => return Err(io::Error::other(format!("systemd passed {count} sockets, expected one"))),
    }
    // SAFETY: systemd passed this descriptor to this process (LISTEN_PID), nothing else here uses its number,
    // and it is taken once.
    let descriptor = unsafe { OwnedFd::from_raw_fd(LISTEN_FDS_START) };
    // Programs that are started must not inherit it. It fails where the descriptor is not open.
    rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::CLOEXEC)?;
    Ok(Some(UnixListener::from(descriptor)))
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
