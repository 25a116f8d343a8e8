//! Packets of a run: the flows that a guest sends and answers, and the steps of chains in it.
//!
//! - [`engine`]: what is sent, and what follows when a packet arrives. Pure.
//! - [`frame`]: packets as frames.
//! - [`mailbox`]: how threads of different priorities tell each other.
//! - here: the thread that connects both with a socket and the tasks.
//!
//! The host uses the same for hosts outside a network, which it stands for itself.

pub mod engine;
pub mod frame;
pub mod mailbox;

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use punctual_jobs::Job;

use crate::os;
use crate::protocol::FRAME_BYTES_MAX;
use engine::{Engine, Outgoing};
use frame::Packet;
use mailbox::Mailbox;

/// Packets received, and sent, before the other direction has its turn.
const BATCH: usize = 32;
/// A socket that takes nothing is tried again after this, whatever it says.
const RETRY_NS: u64 = 1_000_000;

/// A socket for frames.
#[derive(Debug)]
pub struct Link {
    socket: Socket,
    /// Bytes in front of each frame: a header of virtio-net, all zeros in what is sent.
    header: usize,
}

/// What carries frames. No call on it blocks.
#[derive(Debug)]
enum Socket {
    /// Reading and writing it is one frame each.
    Frames(File),
    /// Frames are what datagrams of UDP carry. An end's address of six bytes is that of its socket: four of
    /// IPv4 and two of the port.
    Datagrams(UdpSocket),
}

/// Where the module for sockets of the host is, in a guest that has loaded it.
const SOCKETS_MODULE: &str = "/sys/module/punctual_sockets";

/// The six bytes that stand for the address of a socket.
pub fn bytes_of(address: SocketAddrV4) -> [u8; 6] {
    let ([a, b, c, d], [high, low]) = (address.ip().octets(), address.port().to_be_bytes());
    [a, b, c, d, high, low]
}

/// The address of a socket for which these bytes stand.
pub fn address_of([a, b, c, d, high, low]: [u8; 6]) -> SocketAddrV4 {
    SocketAddrV4::new([a, b, c, d].into(), u16::from_be_bytes([high, low]))
}

impl Link {
    /// Over the guest's interface with that address.
    ///
    /// # Errors
    /// There is no such interface, or Linux refuses the socket.
    pub fn of_interface(ethernet: [u8; 6]) -> io::Result<Link> {
        let text = ethernet.map(|byte| format!("{byte:02x}")).join(":");
        let has_address = |path: &std::path::Path| {
            fs::read_to_string(path.join("address")).is_ok_and(|address| address.trim() == text)
        };
        let mut interfaces = fs::read_dir("/sys/class/net")?.flatten().map(|entry| entry.path());
        let found = interfaces.find(|path| has_address(path));
        let found = found.ok_or_else(|| io::Error::other(format!("no interface has the address {text}")))?;
        let number = fs::read_to_string(found.join("ifindex"))?;
        let number = number.trim().parse().map_err(|_| io::Error::other("an interface has no number"))?;
        let socket = os::packet_socket(number, frame::ETHERTYPE)?.into();
        Ok(Link { socket: Socket::Frames(socket), header: 0 })
    }

    /// Over a socket of the host with that address, from inside a guest.
    ///
    /// # Errors
    /// The guest has no module for such sockets, or the host refuses the address.
    pub fn of_host_socket(address: [u8; 6]) -> io::Result<Link> {
        if !Path::new(SOCKETS_MODULE).exists() {
            return Err(io::Error::other("the module for sockets of the host is not loaded"));
        }
        let socket = UdpSocket::bind(address_of(address))?;
        socket.set_nonblocking(true)?;
        Ok(Link::of_datagrams(socket))
    }

    /// Over a socket of UDP that does not block.
    pub fn of_datagrams(socket: UdpSocket) -> Link {
        Link { socket: Socket::Datagrams(socket), header: 0 }
    }

    /// Over a socket that does not block and keeps the bounds of messages, each of which begins with `header`
    /// bytes of virtio-net.
    pub fn of_program(socket: OwnedFd, header: usize) -> Link {
        Link { socket: Socket::Frames(socket.into()), header }
    }

    fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, Option<[u8; 6]>)> {
        match &self.socket {
            Socket::Frames(socket) => Ok(((&*socket).read(buffer)?, None)),
            Socket::Datagrams(socket) => {
                let (received, from) = socket.recv_from(buffer)?;
                let from = match from {
                    SocketAddr::V4(from) => bytes_of(from),
                    SocketAddr::V6(_) => [0; 6],
                };
                Ok((received, Some(from)))
            }
        }
    }

    fn send(&self, to: [u8; 6], message: &[u8]) -> io::Result<usize> {
        match &self.socket {
            Socket::Frames(socket) => (&*socket).write(message),
            Socket::Datagrams(socket) => socket.send_to(message, address_of(to)),
        }
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Frames(socket) => socket.as_fd(),
            Socket::Datagrams(socket) => socket.as_fd(),
        }
    }
}

/// What tasks tell the thread of flows.
#[derive(Debug)]
pub struct Done {
    /// The place of the task whose job is done.
    pub task: usize,
    /// When the job was released.
    pub release_ns: u64,
    /// When it was done.
    pub at_ns: u64,
}

/// A task's end of the way to the thread of flows.
#[derive(Debug)]
pub struct Teller {
    done: Arc<Mailbox<Done>>,
    bell: UnixStream,
}

impl Teller {
    /// A job is done.
    pub fn tell(&self, done: Done) {
        self.done.put(done);
        // At the run's end nobody listens any more. A bell that is full has been rung.
        let _ = (&self.bell).write(&[0]);
    }
}

/// The other end of [`Teller`]s.
#[derive(Debug)]
pub struct Told {
    done: Arc<Mailbox<Done>>,
    bell: UnixStream,
}

/// A way from tasks to the thread of flows.
///
/// # Errors
/// Linux refuses sockets.
pub fn way() -> io::Result<(impl Fn() -> io::Result<Teller>, Told)> {
    let (bell, rung) = UnixStream::pair()?;
    bell.set_nonblocking(true)?;
    rung.set_nonblocking(true)?;
    let done = Arc::<Mailbox<Done>>::default();
    let put = Arc::clone(&done);
    let teller = move || Ok(Teller { done: Arc::clone(&put), bell: bell.try_clone()? });
    Ok((teller, Told { done, bell: rung }))
}

/// Sends and answers from `start_ns` of the monotonic clock for `duration_ns`, or until `stop`. `release`
/// gets the jobs that packets release: the place of the task and the job.
pub fn run(
    mut engine: Engine,
    link: &Link,
    ethernet: [u8; 6],
    told: &Told,
    (start_ns, duration_ns): (u64, u64),
    stop: &AtomicBool,
    release: &mut dyn FnMut(usize, Job),
) -> Engine {
    let mut buffer = vec![0; link.header + FRAME_BYTES_MAX as usize + 1];
    let mut message = Vec::with_capacity(buffer.len());
    let mut carrier = Carrier { link, ethernet, buffer: &mut buffer, message: &mut message };
    // What came before the run is none of it.
    while carrier.receive().is_some() {}
    os::sleep_until(start_ns);
    loop {
        let now_ns = os::now_ns() - start_ns;
        if now_ns >= duration_ns || stop.load(Ordering::Relaxed) {
            return engine;
        }
        let mut is_busy = false;
        while let Some(done) = told.done.take() {
            engine.job_done(done.task, done.release_ns, done.at_ns);
            is_busy = true;
        }
        for _ in 0..BATCH {
            let Some((from, packet, bytes)) = carrier.receive() else { break };
            is_busy = true;
            if let Some(packet) = packet {
                engine.received(from, &packet, bytes, os::now_ns() - start_ns);
                // A socket that is full is seen below.
                carrier.send_batch(&mut engine, Engine::to_answer, start_ns, &mut is_busy);
            }
        }
        engine.advance(os::now_ns() - start_ns);
        while let Some(released) = engine.next_release() {
            release(released.task, released.job);
        }
        let is_full = carrier.send_batch(&mut engine, Engine::to_send, start_ns, &mut is_busy);
        if !is_busy || is_full {
            let now_ns = os::now_ns() - start_ns;
            let most_ns = if is_full { RETRY_NS } else { u64::MAX };
            let next_ns = engine.next_ns().min(duration_ns).saturating_sub(now_ns);
            // A full socket does not keep what is due by time waiting, nor what arrives.
            let limit_ns = if next_ns == 0 && is_full { RETRY_NS } else { next_ns.min(most_ns) };
            carrier.wait(&told.bell, is_full, limit_ns);
        }
    }
}

/// Moves packets between an engine and a link.
struct Carrier<'a> {
    link: &'a Link,
    ethernet: [u8; 6],
    buffer: &'a mut Vec<u8>,
    message: &'a mut Vec<u8>,
}

impl Carrier<'_> {
    /// The next frame: who sent it, what it is if it is a flow's, and its length.
    fn receive(&mut self) -> Option<([u8; 6], Option<Packet>, u64)> {
        // Nothing is there now, or nobody at the other end any more.
        let received = self.link.receive(self.buffer).ok();
        let (received, sender) = received.filter(|(received, _)| *received > 0)?;
        let frame = self.buffer.get(self.link.header..received).unwrap_or_default();
        let is_ours = frame.first_chunk() == Some(&self.ethernet);
        let read = Packet::read(frame).filter(|_| is_ours);
        // Who sent a datagram is what the host says, not what it says itself.
        let from = read.map_or([0; 6], |(from, _)| sender.unwrap_or(from));
        Some((from, read.map(|(_, packet)| packet), frame.len() as u64))
    }

    /// Sends some of what `next` says. Is the socket full?
    fn send_batch(
        &mut self,
        engine: &mut Engine,
        next: fn(&Engine) -> Option<&Outgoing>,
        start_ns: u64,
        is_busy: &mut bool,
    ) -> bool {
        for _ in 0..BATCH {
            let Some(outgoing) = next(engine) else { return false };
            outgoing.packet.write(self.ethernet, outgoing.to, outgoing.bytes, self.message);
            if self.link.header > 0 {
                self.message.splice(0..0, std::iter::repeat_n(0, self.link.header));
            }
            // A frame that an interface refuses for another reason is lost, as on a wire.
            let is_full = |error: io::Error| {
                error.kind() == io::ErrorKind::WouldBlock || error.raw_os_error() == Some(libc::ENOBUFS)
            };
            if self.link.send(outgoing.to, self.message).is_err_and(is_full) {
                return true;
            }
            *is_busy = true;
            let now_ns = os::now_ns() - start_ns;
            engine.sent(now_ns);
            engine.advance(now_ns);
        }
        false
    }

    /// Waits for a packet, a done job, room in the socket, or the time.
    fn wait(&self, bell: &UnixStream, is_full: bool, limit_ns: u64) {
        os::wait([self.link.descriptor(), bell.as_fd()], is_full, limit_ns);
        let mut rings = [0; 64];
        while matches!((&*bell).read(&mut rings), Ok(1..)) {}
    }
}
