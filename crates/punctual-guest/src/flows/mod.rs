//! Packets of a run: the flows that a guest sends and answers, and the steps of its chains.
//!
//! - [`engine`]: which packets are sent, and what follows from an arrival. Pure.
//! - [`frame`]: packets as frames.
//! - `mailbox`: a queue between threads of different priorities.
//! - this file: the thread that connects the engine with a socket and the tasks.
//!
//! The live run uses the same code for the hosts outside a network, whose packets it sends itself.

pub mod engine;
pub mod frame;
pub(crate) mod mailbox;

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

/// Most packets received, or sent, before the other direction has its turn.
const BATCH: usize = 32;
/// A full socket is retried after this time even if it does not become writable.
const RETRY_NS: u64 = 1_000_000;

/// A socket for frames.
#[derive(Debug)]
pub struct Link {
    socket: Socket,
    /// Length of the virtio-net header in front of each frame; it is sent as zeros.
    header: usize,
}

/// The socket below a link. No call on it blocks.
#[derive(Debug)]
enum Socket {
    /// Each read or write is one frame.
    Frames(File),
    /// UDP datagrams carry the frames. The six bytes of an end's address are its socket address: four of IPv4
    /// address, two of port.
    Datagrams(UdpSocket),
}

/// Exists in a guest that has loaded the module for sockets of the host.
const SOCKETS_MODULE: &str = "/sys/module/punctual_sockets";

/// A socket address as six bytes: IPv4 address, then port.
pub fn bytes_of(address: SocketAddrV4) -> [u8; 6] {
    let ([a, b, c, d], [high, low]) = (address.ip().octets(), address.port().to_be_bytes());
    [a, b, c, d, high, low]
}

/// The inverse of [`bytes_of`].
fn address_of([a, b, c, d, high, low]: [u8; 6]) -> SocketAddrV4 {
    SocketAddrV4::new([a, b, c, d].into(), u16::from_be_bytes([high, low]))
}

impl Link {
    /// A link over the guest's interface with that address.
    ///
    /// # Errors
    /// No interface has the address, or the socket cannot be created.
    pub(crate) fn of_interface(ethernet: [u8; 6]) -> io::Result<Link> {
        let text = ethernet.map(|byte| format!("{byte:02x}")).join(":");
        let has_address = |path: &std::path::Path| {
            fs::read_to_string(path.join("address")).is_ok_and(|address| address.trim() == text)
        };
        let mut interfaces = fs::read_dir("/sys/class/net")?.flatten().map(|entry| entry.path());
        let found = interfaces.find(|path| has_address(path));
        let found = found.ok_or_else(|| io::Error::other(format!("no interface has the address {text}")))?;
        let number = fs::read_to_string(found.join("ifindex"))?;
        let number = number.trim().parse().map_err(|_| io::Error::other("an interface has no index"))?;
        let socket = os::packet_socket(number, frame::ETHERTYPE)?.into();
        Ok(Link { socket: Socket::Frames(socket), header: 0 })
    }

    /// A link over a socket of the host with that address, from inside a guest.
    ///
    /// # Errors
    /// The guest has not loaded the module for such sockets, or the host refuses the address.
    pub(crate) fn of_host_socket(address: [u8; 6]) -> io::Result<Link> {
        if !Path::new(SOCKETS_MODULE).exists() {
            return Err(io::Error::other("the module for sockets of the host is not loaded"));
        }
        let socket = UdpSocket::bind(address_of(address))?;
        socket.set_nonblocking(true)?;
        Ok(Link::of_datagrams(socket))
    }

    /// A link over a non-blocking UDP socket.
    pub fn of_datagrams(socket: UdpSocket) -> Link {
        Link { socket: Socket::Datagrams(socket), header: 0 }
    }

    /// A link over a non-blocking socket that preserves message boundaries. Each message begins with a
    /// virtio-net header of `header` bytes.
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

/// A finished job, reported by a task's thread to the thread of flows.
#[derive(Debug)]
pub struct Done {
    /// The task's place in the request.
    pub task: usize,
    pub release_ns: u64,
    /// When the job finished.
    pub at_ns: u64,
}

/// A task's end of a [`done_channel`].
#[derive(Debug)]
pub struct DoneSender {
    done: Arc<Mailbox<Done>>,
    wakeup: UnixStream,
}

impl DoneSender {
    /// Reports a finished job and wakes the thread of flows. Does nothing when that thread has ended.
    pub fn send(&self, done: Done) {
        self.done.put(done);
        // A full socket already holds a wake-up.
        let _ = (&self.wakeup).write(&[0]);
    }
}

/// The end of a [`done_channel`] in the thread of flows.
#[derive(Debug)]
pub struct DoneReceiver {
    done: Arc<Mailbox<Done>>,
    wakeup: UnixStream,
}

/// A channel of finished jobs from tasks to the thread of flows. The first result makes senders.
///
/// # Errors
/// A socket cannot be created.
pub fn done_channel() -> io::Result<(impl Fn() -> io::Result<DoneSender>, DoneReceiver)> {
    let (sender, receiver) = UnixStream::pair()?;
    sender.set_nonblocking(true)?;
    receiver.set_nonblocking(true)?;
    let done = Arc::<Mailbox<Done>>::default();
    let put = Arc::clone(&done);
    let new_sender = move || Ok(DoneSender { done: Arc::clone(&put), wakeup: sender.try_clone()? });
    Ok((new_sender, DoneReceiver { done, wakeup: receiver }))
}

/// Sends and answers packets from `start_ns` of the monotonic clock for `duration_ns`, or until `stop`.
/// `release` is called with each job that a packet releases, and its task's place.
pub fn run(
    mut engine: Engine,
    link: &Link,
    ethernet: [u8; 6],
    finished: &DoneReceiver,
    (start_ns, duration_ns): (u64, u64),
    stop: &AtomicBool,
    release: &mut dyn FnMut(usize, Job),
) -> Engine {
    let mut buffer = vec![0; link.header + FRAME_BYTES_MAX as usize + 1];
    let mut message = Vec::with_capacity(buffer.len());
    let mut carrier = Carrier { link, ethernet, buffer: &mut buffer, message: &mut message };
    // Packets that came before the run do not count. A guest without a processor at the start is late here,
    // and what others have sent it since then counts.
    while os::now_ns() < start_ns && carrier.receive().is_some() {}
    os::sleep_until(start_ns);
    loop {
        let now_ns = os::now_ns() - start_ns;
        if now_ns >= duration_ns || stop.load(Ordering::Relaxed) {
            return engine;
        }
        let mut is_busy = false;
        while let Some(done) = finished.done.take() {
            engine.job_done(done.task, done.release_ns, done.at_ns);
            is_busy = true;
        }
        for _ in 0..BATCH {
            let Some((from, packet, bytes)) = carrier.receive() else { break };
            is_busy = true;
            if let Some(packet) = packet {
                engine.received(from, &packet, bytes, os::now_ns() - start_ns);
                // A full socket shows again when the rest is sent below.
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
            // Timers and arrivals are handled while the socket is full.
            let limit_ns = if next_ns == 0 && is_full { RETRY_NS } else { next_ns.min(most_ns) };
            carrier.wait(&finished.wakeup, is_full, limit_ns);
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
    /// The next frame: its sender, its packet if it belongs to a flow or chain, and its length without a VLAN
    /// tag, which the kernel of a guest has removed.
    fn receive(&mut self) -> Option<([u8; 6], Option<Packet>, u64)> {
        // An error means that nothing is there, or that the other end has closed.
        let received = self.link.receive(self.buffer).ok();
        let (received, sender) = received.filter(|(received, _)| *received > 0)?;
        let frame = self.buffer.get(self.link.header..received).unwrap_or_default();
        let is_ours = frame.first_chunk() == Some(&self.ethernet);
        let read = Packet::read(frame).filter(|_| is_ours);
        // The sender of a datagram is the one that the host reports: a frame can name any.
        let from = read.map_or([0; 6], |(from, _)| sender.unwrap_or(from));
        let bytes = frame.len() - frame::tag_bytes(frame);
        Some((from, read.map(|(_, packet)| packet), bytes as u64))
    }

    /// Sends up to a batch of packets from `next`. Returns whether the socket is full.
    fn send_batch(
        &mut self,
        engine: &mut Engine,
        next: fn(&Engine) -> Option<&Outgoing>,
        start_ns: u64,
        is_busy: &mut bool,
    ) -> bool {
        for _ in 0..BATCH {
            let Some(outgoing) = next(engine) else { return false };
            let ends = (self.ethernet, outgoing.to);
            outgoing.packet.write(ends, outgoing.pcp, outgoing.bytes, self.message);
            if self.link.header > 0 {
                self.message.splice(0..0, std::iter::repeat_n(0, self.link.header));
            }
            // A frame that the interface refuses for another reason is lost, as on a wire.
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

    /// Waits for a packet, a finished job, room in a full socket, or the end of `limit_ns`.
    fn wait(&self, wakeup: &UnixStream, is_full: bool, limit_ns: u64) {
        os::wait([self.link.descriptor(), wakeup.as_fd()], is_full, limit_ns);
        let mut wakeups = [0; 64];
        while matches!((&*wakeup).read(&mut wakeups), Ok(1..)) {}
    }
}
