//! A connection with a front-end: reads messages and writes replies without ever blocking.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags, recvmsg, send,
};

use crate::protocol::{self, BODY_BYTES_MAX, HEADER_BYTES, Header, REGIONS_MAX, Request};
use crate::session::{self, Rings, Session};

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the front-end closed the connection")]
    Closed,
    #[error("cannot read from or write to the connection")]
    Socket(#[source] std::io::Error),
    #[error("the front-end does not read its replies")]
    NotReading,
    #[error("a message has more than {REGIONS_MAX} file descriptors")]
    Descriptors,
    #[error(transparent)]
    Session(#[from] session::Error),
}

impl From<protocol::Error> for Error {
    fn from(error: protocol::Error) -> Self {
        Error::Session(error.into())
    }
}

#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    session: Session,
    /// The message that is being received, and how much of it has arrived.
    bytes: [u8; HEADER_BYTES + BODY_BYTES_MAX],
    received: usize,
    files: Vec<OwnedFd>,
}

impl Connection {
    /// A new connection to a port that offers these features.
    ///
    /// # Errors
    /// When the stream cannot be made non-blocking.
    pub fn new(stream: UnixStream, offered: u64) -> std::io::Result<Self> {
        stream.set_nonblocking(true)?;
        let bytes = [0; HEADER_BYTES + BODY_BYTES_MAX];
        Ok(Connection { stream, session: Session::new(offered), bytes, received: 0, files: Vec::new() })
    }

    /// Reads what has arrived, up to the end of a message, and handles a complete message.
    ///
    /// # Errors
    /// Why the connection ended.
    pub fn read(&mut self, rings: &mut dyn Rings) -> Result<(), Error> {
        let Some(header) = self.header()? else {
            self.receive(HEADER_BYTES)?;
            return match self.header()? {
                Some(header) if header.body_bytes == 0 => self.handle(header, rings),
                _ => Ok(()),
            };
        };
        let end = HEADER_BYTES + header.body_bytes;
        self.receive(end)?;
        if self.received == end { self.handle(header, rings) } else { Ok(()) }
    }

    /// Has the front-end closed it? What it may have sent before serves nobody.
    pub(crate) fn has_hung_up(&self) -> bool {
        let mut stream = [PollFd::new(&self.stream, PollFlags::empty())];
        let looked = poll(&mut stream, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        looked.is_ok() && stream[0].revents().contains(PollFlags::HUP)
    }

    /// The header, once it is complete.
    fn header(&self) -> Result<Option<Header>, Error> {
        match self.bytes.first_chunk() {
            Some(header) if self.received >= HEADER_BYTES => Ok(Some(Header::parse(header)?)),
            _ => Ok(None),
        }
    }

    /// Reads up to byte `end` of the message.
    fn receive(&mut self, end: usize) -> Result<(), Error> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(REGIONS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(&mut self.bytes[self.received..end])];
        let received = match recvmsg(&self.stream, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) => received,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(Error::Socket(error.into())),
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = message {
                self.files.extend(files);
            }
        }
        if received.flags.contains(ReturnFlags::CTRUNC) || self.files.len() > REGIONS_MAX {
            return Err(Error::Descriptors);
        }
        if received.bytes == 0 {
            return Err(Error::Closed);
        }
        self.received += received.bytes;
        Ok(())
    }

    /// Handles a complete message and replies.
    fn handle(&mut self, header: Header, rings: &mut dyn Rings) -> Result<(), Error> {
        let body = &self.bytes[HEADER_BYTES..HEADER_BYTES + header.body_bytes];
        let request = Request::parse(header, body, std::mem::take(&mut self.files))?;
        self.received = 0;
        let answer = self.session.handle(request, rings)?;
        let acknowledgement = (header.wants_reply && self.session.acknowledges()).then_some(0);
        if let Some(value) = answer.or(acknowledgement) {
            let reply = protocol::reply(header.request, value);
            match send(&self.stream, &reply, SendFlags::NOSIGNAL) {
                Ok(sent) if sent == reply.len() => {}
                Ok(_) | Err(rustix::io::Errno::AGAIN) => return Err(Error::NotReading),
                Err(error) => return Err(Error::Socket(error.into())),
            }
        }
        Ok(())
    }

    /// Ends the session: its rings stop.
    pub fn end(&mut self, rings: &mut dyn Rings) {
        self.session.end(rings);
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
