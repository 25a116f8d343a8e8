//! Questions to an echo: datagrams that come back as they are.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration as StdDuration, Instant};

use punctual_linux::Stop;

use crate::error::Error;

/// How long a server that has booted may take to answer at all.
pub(super) const FIRST: StdDuration = StdDuration::from_secs(30);
/// Bytes of a question and its answer.
const BYTES: usize = 64;

/// Sends a numbered question and waits for its own answer.
pub(super) fn echo_once(socket: &UdpSocket, number: u64) -> io::Result<()> {
    let mut question = [0; BYTES];
    question[..8].copy_from_slice(&number.to_le_bytes());
    socket.send(&question)?;
    let mut answer = [0; BYTES];
    loop {
        let bytes = socket.recv(&mut answer)?;
        // What comes late answers an older one.
        if bytes == BYTES && answer == question {
            return Ok(());
        }
    }
}

/// Waits until an echo answers.
///
/// # Errors
/// It does not.
pub(super) fn wait_for_echo(server: SocketAddr, stop: Stop) -> Result<(), Error> {
    let failed = |error: io::Error| Error::Lab(format!("no socket: {error}"));
    let socket = UdpSocket::bind("0.0.0.0:0").map_err(failed)?;
    socket.connect(server).map_err(failed)?;
    socket.set_read_timeout(Some(StdDuration::from_millis(300))).map_err(failed)?;
    let give_up = Instant::now() + FIRST;
    let mut number = 0;
    while echo_once(&socket, number).is_err() {
        number += 1;
        if stop() {
            return Err(Error::Interrupted);
        }
        if Instant::now() > give_up {
            return Err(Error::Lab(format!("the server at {server} does not answer")));
        }
        std::thread::sleep(StdDuration::from_millis(50));
    }
    Ok(())
}
