//! Calls and responses as they stand in a slot's header.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::layout::{HEADER_BYTES, request, response};
use crate::queue::{Words, header};

/// The kind of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Op {
    /// The first call of a guest: closes all sockets.
    Hello = 1,
    /// `socket`. Arguments: type; 6 for IPv6, else 4.
    Socket,
    Close,
    /// `bind` to the address.
    Bind,
    /// `listen`. Argument: backlog.
    Listen,
    /// `connect` to the address. Without one, dissolves the association of a datagram socket.
    Connect,
    Accept,
    /// `send` of the data, or `sendto` the address.
    Send,
    /// `recvfrom` into the data.
    Receive,
    /// `shutdown`. Argument: how.
    Shutdown,
    /// `getsockname`.
    Name,
    /// `getpeername`.
    Peer,
    /// `setsockopt`. Arguments: level, option; the data is the value.
    SetOption,
    /// `getsockopt`, with the same arguments.
    GetOption,
    /// `FIONREAD`: bytes that can be received.
    Waiting,
}

impl Op {
    /// All calls in the order of their numbers, from 1.
    pub const ALL: [Op; 15] = [
        Op::Hello,
        Op::Socket,
        Op::Close,
        Op::Bind,
        Op::Listen,
        Op::Connect,
        Op::Accept,
        Op::Send,
        Op::Receive,
        Op::Shutdown,
        Op::Name,
        Op::Peer,
        Op::SetOption,
        Op::GetOption,
        Op::Waiting,
    ];

    fn of(number: u32) -> Option<Op> {
        Op::ALL.get(number.checked_sub(1)? as usize).copied()
    }
}

/// Options of level `SOL_SOCKET`. The guest's kernel keeps them, and every call carries them.
pub mod options {
    /// `SO_REUSEADDR`.
    pub const REUSE_ADDRESS: u32 = 1;
    /// `SO_REUSEPORT`.
    pub const REUSE_PORT: u32 = 2;
    /// `SO_KEEPALIVE`.
    pub const KEEP_ALIVE: u32 = 4;
    /// `SO_BROADCAST`.
    pub const BROADCAST: u32 = 8;
    /// `SO_LINGER`, with its time in `Call::linger`.
    pub const LINGER: u32 = 16;
    pub(crate) const ALL: u32 = 31;
}

/// A call. Each word was read from shared memory once; no value but `op` has been checked.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// `None` for an unknown number.
    pub op: Option<Op>,
    pub socket: u32,
    /// Flags of `send` and `recv`.
    pub flags: u32,
    /// Bytes of data to send, or to receive at most.
    pub length: u32,
    /// First argument.
    pub first: u32,
    /// Second argument.
    pub second: u32,
    /// Bits of [`options`].
    pub options: u32,
    /// Seconds of `SO_LINGER`.
    pub linger: u32,
    pub address: Option<SocketAddr>,
}

impl Call {
    /// Reads the request of a slot.
    pub fn read<W: Words>(words: &W, slot: u32) -> Call {
        let word = |at: u32| words.load(header(slot, at));
        Call {
            op: Op::of(word(request::OP)),
            socket: word(request::SOCKET),
            flags: word(request::FLAGS),
            length: word(request::LENGTH),
            first: word(request::FIRST),
            second: word(request::SECOND),
            options: word(request::OPTIONS),
            linger: word(request::LINGER),
            address: read_address(words, slot, request::ADDRESS),
        }
    }

    /// Writes the request of a slot, as a guest does.
    pub fn write<W: Words>(&self, words: &W, slot: u32) {
        let store = |at: u32, value: u32| words.store(header(slot, at), value);
        store(request::WANT_EVENT, 0);
        store(request::OP, self.op.map_or(0, |op| op as u32));
        store(request::SOCKET, self.socket);
        store(request::FLAGS, self.flags);
        store(request::LENGTH, self.length);
        store(request::FIRST, self.first);
        store(request::SECOND, self.second);
        store(request::OPTIONS, self.options);
        store(request::LINGER, self.linger);
        write_address(words, slot, request::ADDRESS, self.address);
    }
}

fn read_address<W: Words>(words: &W, slot: u32, at: u32) -> Option<SocketAddr> {
    let word = |index: u32| words.load(header(slot, at + index));
    let ip: IpAddr = match word(0) {
        4 => Ipv4Addr::from(word(2).to_le_bytes()).into(),
        6 => {
            let mut octets = [0; 16];
            for (four, index) in octets.chunks_exact_mut(4).zip(2..) {
                four.copy_from_slice(&word(index).to_le_bytes());
            }
            Ipv6Addr::from(octets).into()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, (word(1) & 0xffff) as u16))
}

fn write_address<W: Words>(words: &W, slot: u32, at: u32, address: Option<SocketAddr>) {
    let store = |index: u32, value: u32| words.store(header(slot, at + index), value);
    let Some(address) = address else { return store(0, 0) };
    store(1, address.port().into());
    let mut octets = [0; 16];
    match address.ip() {
        IpAddr::V4(ip) => {
            store(0, 4);
            octets[..4].copy_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            store(0, 6);
            octets = ip.octets();
        }
    }
    for (four, index) in octets.chunks_exact(4).zip(2..) {
        store(index, u32::from_le_bytes([four[0], four[1], four[2], four[3]]));
    }
}

/// The response to a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// The return value, or a negative errno.
    pub result: i32,
    /// Bytes of data in the slot.
    pub length: u32,
    /// Flags of a received message.
    pub flags: u32,
    /// Number of the new socket.
    pub socket: u32,
    pub address: Option<SocketAddr>,
}

impl Response {
    /// Writes the response of a slot.
    pub fn write<W: Words>(&self, words: &W, slot: u32) {
        words.store(header(slot, response::RESULT), self.result as u32);
        words.store(header(slot, response::LENGTH), self.length);
        words.store(header(slot, response::FLAGS), self.flags);
        words.store(header(slot, response::SOCKET), self.socket);
        write_address(words, slot, response::ADDRESS, self.address);
    }

    /// Reads the response of a slot, as a guest does.
    pub fn read<W: Words>(words: &W, slot: u32) -> Response {
        let word = |at: u32| words.load(header(slot, at));
        Response {
            result: word(response::RESULT) as i32,
            length: word(response::LENGTH),
            flags: word(response::FLAGS),
            socket: word(response::SOCKET),
            address: read_address(words, slot, response::ADDRESS),
        }
    }
}

const _: () = assert!((response::ADDRESS + 6) * 4 <= HEADER_BYTES);
