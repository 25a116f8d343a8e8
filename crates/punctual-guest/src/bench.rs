//! Servers for network measurements: a UDP echo, and a TCP sink that discards what it receives.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, UdpSocket};

use crate::os;

/// Longest datagram.
const BYTES_MAX: usize = 65_535;
/// Real-time priority of the echo server.
const PRIORITY: i32 = 40;

/// Sends datagrams to `address` back, one after the other, under `SCHED_FIFO` where that is permitted.
/// Returns only on errors.
///
/// # Errors
/// The address cannot be bound, or the socket fails.
pub fn echo(address: SocketAddr) -> io::Result<()> {
    // Without CAP_SYS_NICE the server runs in the fair class.
    let _ = os::set_fifo(PRIORITY);
    let socket = UdpSocket::bind(address)?;
    let mut buffer = vec![0; BYTES_MAX];
    loop {
        let (bytes, from) = socket.recv_from(&mut buffer)?;
        // A datagram that cannot be sent is lost, as on a wire.
        let _ = socket.send_to(&buffer[..bytes], from);
    }
}

/// Accepts connections to `address`, one after the other, and discards what they send. Returns only on
/// errors.
///
/// # Errors
/// The address cannot be bound, or `accept` fails.
pub fn sink(address: SocketAddr) -> io::Result<()> {
    let listener = TcpListener::bind(address)?;
    let mut buffer = vec![0; 256 << 10];
    loop {
        let (mut connection, _) = listener.accept()?;
        // An error of a connection ends that connection only.
        while connection.read(&mut buffer).is_ok_and(|bytes| bytes > 0) {}
    }
}
