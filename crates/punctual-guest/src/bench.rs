//! Servers for measurements of networks: one that answers each datagram with itself, and one that throws away
//! what it gets.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, UdpSocket};

use crate::os;

/// The longest datagram.
const BYTES_MAX: usize = 65_535;
/// The real-time priority of a server that answers.
const PRIORITY: i32 = 40;

/// Answers datagrams to `address` with themselves, one after the other, under `SCHED_FIFO` where that is
/// allowed; does not return.
///
/// # Errors
/// The address is not to be had, or the socket fails.
pub fn echo(address: SocketAddr) -> io::Result<()> {
    // Without rights it is in the fair class, as its user wants it.
    let _ = os::set_fifo(PRIORITY);
    let socket = UdpSocket::bind(address)?;
    let mut buffer = vec![0; BYTES_MAX];
    loop {
        let (bytes, from) = socket.recv_from(&mut buffer)?;
        // An answer that does not go out is lost, as on a wire.
        let _ = socket.send_to(&buffer[..bytes], from);
    }
}

/// Accepts connections to `address`, one after the other, and reads what they bring; does not return.
///
/// # Errors
/// The address is not to be had.
pub fn sink(address: SocketAddr) -> io::Result<()> {
    let listener = TcpListener::bind(address)?;
    let mut buffer = vec![0; 256 << 10];
    loop {
        let (mut connection, _) = listener.accept()?;
        // It ends as it likes.
        while connection.read(&mut buffer).is_ok_and(|bytes| bytes > 0) {}
    }
}
