//! A socket whose reads and writes end at an instant, when a user wants them to, and after so many bytes.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// Asked often while something is waited for: should it end early?
pub type Stop = fn() -> bool;

/// How often a wait asks whether it should end.
const SLICE: Duration = Duration::from_millis(50);
/// How often to try again to connect to a program that has no place for another client now.
const RETRY: Duration = Duration::from_millis(10);

/// A socket for one conversation.
#[derive(Debug)]
pub struct Channel {
    socket: UnixStream,
    /// Until when reads and writes wait.
    until: Instant,
    /// How many more bytes may be read.
    bytes_left: u64,
    stop: Stop,
}

impl Channel {
    /// Over a connected socket; nothing may be read or written before [`Channel::allow`].
    pub fn over(socket: UnixStream, stop: Stop) -> Channel {
        Channel { socket, until: Instant::now(), bytes_left: 0, stop }
    }

    /// Connects to a listening socket within `limit`. `connect(2)` itself has no limit: it blocks while the
    /// backlog of the listening socket is full.
    ///
    /// # Errors
    /// As `connect(2)`; `TimedOut` when the time is over or the user wants an end.
    pub fn connect(path: &Path, limit: Duration, stop: Stop) -> io::Result<Channel> {
        let until = Instant::now() + limit;
        let address = SocketAddrUnix::new(path)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        loop {
            match connect(&socket, &address) {
                Ok(()) => break,
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if Instant::now() >= until || stop() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::sleep(RETRY);
        }
        let socket = UnixStream::from(socket);
        socket.set_nonblocking(false)?;
        Ok(Channel::over(socket, stop))
    }

    /// From now on reads and writes may take `limit` together, and `bytes` may be read.
    pub fn allow(&mut self, limit: Duration, bytes: u64) {
        self.until = Instant::now() + limit;
        self.bytes_left = bytes;
    }

    /// The socket.
    pub fn socket(&self) -> &UnixStream {
        &self.socket
    }

    /// How long the next wait may be.
    fn slice(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() || (self.stop)() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(left.min(SLICE))
    }
}

/// Has a wait of [`SLICE`] ended without anything?
fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

impl Read for Channel {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.bytes_left == 0 {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let most = buffer.len().min(usize::try_from(self.bytes_left).unwrap_or(usize::MAX));
        loop {
            self.socket.set_read_timeout(Some(self.slice()?))?;
            match self.socket.read(&mut buffer[..most]) {
                Err(error) if is_pause(&error) => {}
                Ok(read) => {
                    self.bytes_left -= read as u64;
                    return Ok(read);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl Write for Channel {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            self.socket.set_write_timeout(Some(self.slice()?))?;
            match self.socket.write(bytes) {
                Err(error) if is_pause(&error) => {}
                done => return done,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::sync::atomic::{AtomicBool, Ordering};

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(120);

    fn never() -> bool {
        false
    }

    #[test]
    fn a_peer_that_accepts_nobody_is_given_up_in_time() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");
        let _listener = UnixListener::bind(&path).expect("bound");
        let mut waiting = Vec::new();
        // The queue of a listener has room for some clients, not for all.
        let error = loop {
            match Channel::connect(&path, SHORT, never) {
                Ok(channel) => waiting.push(channel),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn waits_end_with_the_time_with_the_bytes_and_with_the_user() {
        static STOPPED: AtomicBool = AtomicBool::new(false);
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let mut channel = Channel::over(ours, || STOPPED.load(Ordering::Relaxed));
        let mut buffer = [0u8; 10];
        channel.allow(SHORT, 3);
        assert_eq!(channel.read(&mut buffer).unwrap_err().kind(), io::ErrorKind::TimedOut);
        theirs.write_all(b"four").expect("written");
        channel.allow(LONG, 3);
        assert_eq!(channel.read(&mut buffer).expect("read"), 3);
        assert_eq!(channel.read(&mut buffer).unwrap_err().kind(), io::ErrorKind::QuotaExceeded);
        channel.allow(SHORT, 3);
        let full = (0..10_000).find_map(|_| channel.write(&[0; 4096]).err()).expect("nobody reads");
        assert_eq!(full.kind(), io::ErrorKind::TimedOut);
        channel.allow(LONG, 3);
        channel.read_exact(&mut buffer[..1]).expect("the fourth");
        let start = Instant::now();
        STOPPED.store(true, Ordering::Relaxed);
        assert_eq!(channel.read(&mut buffer).unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(start.elapsed() < LONG);
    }
}
