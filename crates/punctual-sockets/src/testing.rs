//! The guest's side in Rust, for tests and measurements without a VM. `guest-module` is the one in C.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::call::{Call, Op, Response};
use crate::ivshmem;
use crate::layout::{self, request};
use crate::memory::Shared;
use crate::queue::{Geometry, GuestQueues, Words, header};

/// A guest that makes one call at a time, in slot 0 and queue 0.
#[derive(Debug)]
pub struct FrontEnd {
    /// Public, so that tests can write invalid values.
    pub shared: Shared,
    queues: GuestQueues,
    monitor: UnixStream,
    doorbell: OwnedFd,
    interrupts: Vec<OwnedFd>,
}

/// Timeout of a call.
const LIMIT: Duration = Duration::from_secs(10);

impl FrontEnd {
    /// Connects to a server as QEMU does, and sends hello as the module does.
    ///
    /// # Errors
    /// The server refuses the connection or violates the protocol.
    pub fn connect(path: &Path) -> io::Result<FrontEnd> {
        let monitor = UnixStream::connect(path)?;
        monitor.set_read_timeout(Some(LIMIT))?;
        let first =
            [ivshmem::PROTOCOL_VERSION, ivshmem::GUEST_PEER, ivshmem::SHARED_MEMORY, ivshmem::HOST_PEER];
        let mut files = Vec::new();
        for number in first.into_iter().chain([ivshmem::GUEST_PEER; layout::QUEUES as usize]) {
            let (received, file) = receive_message(&monitor)?;
            if received != number {
                return Err(io::Error::other(format!("{received} instead of {number}")));
            }
            files.extend(file);
        }
        let mut files = files.into_iter();
        let (Some(memory), Some(doorbell)) = (files.next(), files.next()) else {
            return Err(io::Error::other("too few files"));
        };
        let shared = Shared::map(memory)?;
        shared.store(layout::GUEST_VERSION_AT, layout::VERSION);
        if shared.load(layout::MAGIC_AT) != layout::MAGIC
            || shared.load(layout::VERSION_AT) != layout::VERSION
        {
            return Err(io::Error::other("another layout"));
        }
        let queues = GuestQueues::new(&shared, Geometry::FULL);
        let mut guest = FrontEnd { shared, queues, monitor, doorbell, interrupts: files.collect() };
        guest.call(&request(Op::Hello, 0), &[])?;
        Ok(guest)
    }

    /// Makes a call and waits for the response.
    ///
    /// # Errors
    /// No response comes in time.
    pub fn call(&mut self, call: &Call, data: &[u8]) -> io::Result<(Response, Vec<u8>)> {
        if let Some(space) = self.shared.data(0, length_of(data)) {
            space.copy_from(data);
        }
        call.write(&self.shared, 0);
        if self.queues.submit(&self.shared, 0) {
            self.ring()?;
        }
        let start = Instant::now();
        while self.shared.load(header(0, request::STATE)) != layout::DONE {
            if self.shared.load(layout::STATUS_AT) == layout::STATUS_GONE || start.elapsed() > LIMIT {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            std::thread::yield_now();
        }
        let response = Response::read(&self.shared, 0);
        let mut received = vec![0; response.length as usize];
        let space = self.shared.data(0, response.length).ok_or_else(|| io::Error::other("too much data"))?;
        space.copy_to(&mut received);
        Ok((response, received))
    }

    /// Makes a call on a socket without data. `change` sets its arguments.
    ///
    /// # Errors
    /// The error of the call, or no response.
    pub fn simple(&mut self, op: Op, socket: u32, change: impl FnOnce(&mut Call)) -> io::Result<Response> {
        let mut call = request(op, socket);
        change(&mut call);
        checked(self.call(&call, &[])?.0)
    }

    /// `socket`.
    ///
    /// # Errors
    /// Those of [`FrontEnd::simple`], also for the calls below.
    pub fn socket(&mut self, kind: i32) -> io::Result<u32> {
        Ok(self.simple(Op::Socket, 0, |call| call.first = kind as u32)?.socket)
    }

    /// `bind`.
    pub fn bind(&mut self, socket: u32, address: impl Into<SocketAddr>) -> io::Result<()> {
        self.simple(Op::Bind, socket, |call| call.address = Some(address.into())).map(drop)
    }

    /// `send` or `sendto`.
    pub fn send(&mut self, socket: u32, data: &[u8], to: Option<SocketAddr>) -> io::Result<usize> {
        let call = Call { length: length_of(data), address: to, ..request(Op::Send, socket) };
        Ok(checked(self.call(&call, data)?.0)?.result as usize)
    }

    /// `recvfrom`.
    pub fn receive(&mut self, socket: u32, bytes: u32, flags: i32) -> io::Result<(Vec<u8>, Response)> {
        let call = Call { length: bytes, flags: flags as u32, ..request(Op::Receive, socket) };
        let (response, data) = self.call(&call, &[])?;
        Ok((data, checked(response)?))
    }

    /// What the socket is ready for.
    pub fn ready(&self, socket: u32) -> PollFlags {
        poll_flags(self.shared.load(layout::READY_AT + socket * 4))
    }

    /// The next event of queue 0, if there is one. It may be about a change that the guest has seen already.
    pub fn event(&mut self) -> Option<u32> {
        self.queues.next_event(&self.shared, 0)
    }

    /// Waits on queue 0 until the socket is ready for one of `flags`, and takes events meanwhile.
    ///
    /// # Errors
    /// The socket does not become ready in time.
    pub fn wait(&mut self, socket: u32, flags: PollFlags) -> io::Result<()> {
        self.wait_on(0, socket, flags)
    }

    /// Waits as a guest whose vCPU of `queue` halts: for its interrupt.
    ///
    /// # Errors
    /// Those of [`FrontEnd::wait`].
    pub fn wait_on(&mut self, queue: u32, socket: u32, flags: PollFlags) -> io::Result<()> {
        let interrupt = &self.interrupts[queue as usize];
        let start = Instant::now();
        loop {
            self.queues.disable_interrupt(&self.shared, queue);
            while self.queues.next_event(&self.shared, queue).is_some() {}
            let ready = self.queues.wait_at(&self.shared, socket, queue);
            if poll_flags(ready).intersects(flags) {
                return Ok(());
            }
            if start.elapsed() > LIMIT {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if self.queues.enable_interrupt(&self.shared, queue) {
                continue;
            }
            let limit = Timespec { tv_sec: LIMIT.as_secs() as i64, tv_nsec: 0 };
            poll(&mut [PollFd::new(interrupt, PollFlags::IN)], Some(&limit))?;
            // An empty counter is not an error: the interrupt has been read.
            let _ = rustix::io::read(interrupt, &mut [0; 8]);
        }
    }

    /// Rings the host's doorbell.
    ///
    /// # Errors
    /// Those of `write`.
    pub fn ring(&self) -> io::Result<()> {
        rustix::io::write(&self.doorbell, &1u64.to_ne_bytes())?;
        Ok(())
    }

    /// Waits until the server closes the connection.
    ///
    /// # Errors
    /// The server sends something else, or does not close it in time.
    pub fn wait_disconnected(&self) -> io::Result<()> {
        match rustix::io::read(&self.monitor, &mut [0; 8])? {
            0 => Ok(()),
            _ => Err(io::Error::other("the server sent a message")),
        }
    }
}

fn length_of(data: &[u8]) -> u32 {
    u32::try_from(data.len()).unwrap_or(u32::MAX)
}

/// A word of `ready`; the upper half is unused.
fn poll_flags(ready: u32) -> PollFlags {
    PollFlags::from_bits_retain((ready & 0xffff) as u16)
}

/// A call without arguments.
pub fn request(op: Op, socket: u32) -> Call {
    Call {
        op: Some(op),
        socket,
        flags: 0,
        length: 0,
        first: 0,
        second: 0,
        options: 0,
        linger: 0,
        address: None,
    }
}

/// Turns a response with a negative result into an error.
fn checked(response: Response) -> io::Result<Response> {
    if response.result < 0 { Err(io::Error::from_raw_os_error(-response.result)) } else { Ok(response) }
}

fn receive_message(stream: &UnixStream) -> io::Result<(i64, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; 8];
    let got = recvmsg(stream, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    if got.bytes != bytes.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let file = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    Ok((i64::from_le_bytes(bytes), file))
}
