//! The messages of vhost-user (QEMU's `docs/interop/vhost-user.rst`): parses requests and builds replies,
//! without any input or output.
//!
//! A message is a header of three 32-bit words (request, flags, size of the body) and a body, in the byte
//! order of the machine. File descriptors come as ancillary data.
//!
//! The crate `vhost` 0.18 is not used because it rejects `SET_VRING_ENABLE` before `SET_FEATURES`, the order
//! of QEMU 7.2 in Debian 12. A network port needs only a small part of the protocol.

use crate::narrow::to_u32;

pub const HEADER_BYTES: usize = 12;

/// The largest body: room for a memory table and for a `GET_CONFIG`.
pub(crate) const BODY_BYTES_MAX: usize = 512;

/// Memory regions of a VM, and file descriptors of a message.
pub(crate) const REGIONS_MAX: usize = 8;

/// A port has one queue in each direction.
pub(crate) const QUEUES: usize = 2;

/// `VHOST_USER_F_PROTOCOL_FEATURES`: rings start disabled, and protocol features are negotiated.
pub const F_PROTOCOL_FEATURES: u64 = 1 << 30;

/// `VHOST_USER_PROTOCOL_F_REPLY_ACK`.
pub(crate) const PROTOCOL_F_REPLY_ACK: u64 = 1 << 3;

/// `VHOST_USER_PROTOCOL_F_RESET_DEVICE`.
pub(crate) const PROTOCOL_F_RESET_DEVICE: u64 = 1 << 13;

const VERSION: u32 = 1;
const VERSION_MASK: u32 = 3;
const FLAG_REPLY: u32 = 1 << 2;
const FLAG_NEED_REPLY: u32 = 1 << 3;

/// Why a message is invalid; its connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("flags {0:#x} are not those of a vhost-user version 1 request")]
    Flags(u32),
    #[error("a message body of {0} bytes; at most {BODY_BYTES_MAX}")]
    Long(u32),
    #[error("request {request} has a body of the wrong length, {bytes} bytes")]
    Length { request: u32, bytes: usize },
    #[error("request {request} has the wrong number of file descriptors, {count}")]
    Descriptors { request: u32, count: usize },
    #[error("no queue {0}; a port has queues 0 and 1")]
    Queue(u32),
    #[error("a memory table of {0} regions; expected 1 to {REGIONS_MAX}")]
    Regions(u32),
    #[error("unknown request {0}")]
    Unknown(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub request: u32,
    /// The sender asks for an acknowledgement (`REPLY_ACK`).
    pub wants_reply: bool,
    pub body_bytes: usize,
}

impl Header {
    /// # Errors
    /// When it is not a request of this version, or its body is too long.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Header, Error> {
        let [request, flags, size] = words(bytes);
        if flags & VERSION_MASK != VERSION || flags & FLAG_REPLY != 0 {
            return Err(Error::Flags(flags));
        }
        if size as usize > BODY_BYTES_MAX {
            return Err(Error::Long(size));
        }
        let wants_reply = flags & FLAG_NEED_REPLY != 0;
        Ok(Header { request, wants_reply, body_bytes: size as usize })
    }
}

fn words(bytes: &[u8; HEADER_BYTES]) -> [u32; 3] {
    let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    [word(0), word(4), word(8)]
}

/// A region of a memory table. `F` is a file descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region<F> {
    pub guest_address: u64,
    pub bytes: u64,
    /// Its address in the front-end, which is what ring addresses refer to.
    pub user_address: u64,
    /// Its offset in the file.
    pub offset: u64,
    pub file: F,
}

/// The addresses of a ring in the front-end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingAddresses {
    pub descriptors: u64,
    pub used: u64,
    pub avail: u64,
}

/// A request; `F` is a file descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request<F> {
    GetFeatures,
    /// The features that the driver accepted.
    SetFeatures(u64),
    GetProtocolFeatures,
    /// The protocol features that the front-end accepted.
    SetProtocolFeatures(u64),
    /// No effect: a port has one connection at a time.
    SetOwner,
    /// `RESET_OWNER` and `RESET_DEVICE`.
    Reset,
    /// `SET_MEM_TABLE`.
    SetMemory(Vec<Region<F>>),
    /// `SET_VRING_NUM`.
    SetRingSize {
        queue: usize,
        entries: u32,
    },
    /// `SET_VRING_ADDR`.
    SetRingAddresses {
        queue: usize,
        addresses: RingAddresses,
    },
    /// `SET_VRING_BASE`.
    SetRingBase {
        queue: usize,
        base: u32,
    },
    /// `GET_VRING_BASE`: stops the ring; the reply is its base.
    GetRingBase {
        queue: usize,
    },
    /// Without an eventfd the ring would have to be polled.
    SetKick {
        queue: usize,
        event: Option<F>,
    },
    SetCall {
        queue: usize,
        event: Option<F>,
    },
    SetError {
        queue: usize,
        event: Option<F>,
    },
    /// `SET_VRING_ENABLE`.
    EnableRing {
        queue: usize,
        enabled: bool,
    },
    /// `GET_QUEUE_NUM`: the number of queue pairs.
    GetQueueCount,
}

impl<F> Request<F> {
    /// # Errors
    /// When the body or the file descriptors do not fit the request, or the request is unknown.
    pub fn parse(header: Header, body: &[u8], mut files: Vec<F>) -> Result<Request<F>, Error> {
        let request = header.request;
        let count = files.len();
        // Only the memory table and the requests with an eventfd carry file descriptors.
        if count > 0 && !matches!(request, 5 | 12 | 13 | 14) {
            return Err(Error::Descriptors { request, count });
        }
        Ok(match request {
            1 => empty(request, body, Request::GetFeatures)?,
            2 => Request::SetFeatures(number(request, body)?),
            3 => empty(request, body, Request::SetOwner)?,
            4 | 34 => Request::Reset,
            5 => Request::SetMemory(regions(request, body, files)?),
            8 => {
                let (queue, entries) = state(request, body)?;
                Request::SetRingSize { queue, entries }
            }
            9 => ring_addresses(request, body)?,
            10 => {
                let (queue, base) = state(request, body)?;
                Request::SetRingBase { queue, base }
            }
            11 => Request::GetRingBase { queue: state(request, body)?.0 },
            12..=14 => {
                let (queue, event) = event(request, body, &mut files)?;
                match request {
                    12 => Request::SetKick { queue, event },
                    13 => Request::SetCall { queue, event },
                    _ => Request::SetError { queue, event },
                }
            }
            15 => empty(request, body, Request::GetProtocolFeatures)?,
            16 => Request::SetProtocolFeatures(number(request, body)?),
            17 => empty(request, body, Request::GetQueueCount)?,
            18 => {
                let (queue, enabled) = state(request, body)?;
                Request::EnableRing { queue, enabled: enabled != 0 }
            }
            _ => return Err(Error::Unknown(request)),
        })
    }
}

/// A reply with a body of 64 bits.
pub(crate) fn reply(request: u32, value: u64) -> [u8; HEADER_BYTES + 8] {
    let mut bytes = [0; HEADER_BYTES + 8];
    for (place, word) in bytes.chunks_exact_mut(4).zip([request, VERSION | FLAG_REPLY, 8]) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    bytes[HEADER_BYTES..].copy_from_slice(&value.to_ne_bytes());
    bytes
}

/// The body of a reply to `GET_VRING_BASE`.
pub(crate) fn ring_state(queue: usize, base: u16) -> u64 {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&to_u32(queue).to_ne_bytes());
    bytes[4..].copy_from_slice(&u32::from(base).to_ne_bytes());
    u64::from_ne_bytes(bytes)
}

/// The 64-bit words of a body of exactly this length.
fn numbers<const N: usize>(request: u32, body: &[u8]) -> Result<[u64; N], Error> {
    if body.len() != N * 8 {
        return Err(Error::Length { request, bytes: body.len() });
    }
    let mut words = [0; N];
    for (word, bytes) in words.iter_mut().zip(body.chunks_exact(8)) {
        *word = u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
    }
    Ok(words)
}

fn number(request: u32, body: &[u8]) -> Result<u64, Error> {
    numbers::<1>(request, body).map(|[number]| number)
}

/// Old front-ends send a meaningless body with requests that have none.
fn empty<F>(request: u32, body: &[u8], value: Request<F>) -> Result<Request<F>, Error> {
    match body.len() {
        0 | 8 => Ok(value),
        bytes => Err(Error::Length { request, bytes }),
    }
}

fn queue_of(queue: u32) -> Result<usize, Error> {
    if (queue as usize) < QUEUES { Ok(queue as usize) } else { Err(Error::Queue(queue)) }
}

/// The two halves of a 64-bit word in memory order.
fn halves(word: u64) -> [u32; 2] {
    let bytes = word.to_ne_bytes();
    [
        u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
        u32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
    ]
}

/// A queue and a number.
fn state(request: u32, body: &[u8]) -> Result<(usize, u32), Error> {
    let [queue, value] = halves(number(request, body)?);
    Ok((queue_of(queue)?, value))
}

fn ring_addresses<F>(request: u32, body: &[u8]) -> Result<Request<F>, Error> {
    let [head, descriptors, used, avail, _log] = numbers::<5>(request, body)?;
    let [queue, _flags] = halves(head);
    let addresses = RingAddresses { descriptors, used, avail };
    Ok(Request::SetRingAddresses { queue: queue_of(queue)?, addresses })
}

/// A queue in bits 0 to 7, and an eventfd unless bit 8 is set.
fn event<F>(request: u32, body: &[u8], files: &mut Vec<F>) -> Result<(usize, Option<F>), Error> {
    let word = number(request, body)?;
    let queue = queue_of((word & 0xff) as u32)?;
    let expected = usize::from(word & 0x100 == 0);
    if files.len() != expected {
        return Err(Error::Descriptors { request, count: files.len() });
    }
    Ok((queue, files.pop()))
}

/// The memory table: a count and as many regions of four words, with a file for each.
fn regions<F>(request: u32, body: &[u8], files: Vec<F>) -> Result<Vec<Region<F>>, Error> {
    let (head, rest) = body.split_at_checked(8).ok_or(Error::Length { request, bytes: body.len() })?;
    let [count, _padding] = halves(number(request, head)?);
    if count == 0 || count as usize > REGIONS_MAX {
        return Err(Error::Regions(count));
    }
    if files.len() != count as usize {
        return Err(Error::Descriptors { request, count: files.len() });
    }
    // Some front-ends send the whole table, whatever its count.
    let Some(rest) = rest.get(..count as usize * 32) else {
        return Err(Error::Length { request, bytes: body.len() });
    };
    let parse = |(bytes, file): (&[u8], F)| {
        let [guest_address, bytes, user_address, offset] = numbers::<4>(request, bytes)?;
        Ok(Region { guest_address, bytes, user_address, offset, file })
    };
    rest.chunks_exact(32).zip(files).map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(request: u32, body_bytes: usize) -> Header {
        Header { request, wants_reply: false, body_bytes }
    }

    fn body(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn parse(request: u32, words: &[u64], files: Vec<u8>) -> Result<Request<u8>, Error> {
        let body = body(words);
        Request::parse(header(request, body.len()), &body, files)
    }

    #[test]
    fn a_header_of_another_version_a_reply_and_a_long_body_are_refused() {
        let bytes = |words: [u32; 3]| -> [u8; HEADER_BYTES] {
            words.map(u32::to_ne_bytes).concat().try_into().expect("twelve bytes")
        };
        assert_eq!(Header::parse(&bytes([2, 1, 8])), Ok(header(2, 8)));
        let asks = Header { wants_reply: true, ..header(5, 40) };
        assert_eq!(Header::parse(&bytes([5, 9, 40])), Ok(asks));
        assert_eq!(Header::parse(&bytes([2, 2, 8])), Err(Error::Flags(2)));
        assert_eq!(Header::parse(&bytes([2, 5, 8])), Err(Error::Flags(5)));
        assert_eq!(Header::parse(&bytes([2, 1, 513])), Err(Error::Long(513)));
    }

    #[test]
    fn requests_with_numbers_and_queues_are_read() {
        assert_eq!(parse(2, &[7], vec![]), Ok(Request::SetFeatures(7)));
        assert_eq!(parse(18, &[1 | 1 << 32], vec![]), Ok(Request::EnableRing { queue: 1, enabled: true }));
        assert_eq!(parse(8, &[256 << 32], vec![]), Ok(Request::SetRingSize { queue: 0, entries: 256 }));
        assert_eq!(parse(8, &[2], vec![]), Err(Error::Queue(2)));
        assert_eq!(parse(8, &[], vec![]), Err(Error::Length { request: 8, bytes: 0 }));
        let addresses = RingAddresses { descriptors: 16, used: 32, avail: 48 };
        assert_eq!(
            parse(9, &[1, 16, 32, 48, 0], vec![]),
            Ok(Request::SetRingAddresses { queue: 1, addresses })
        );
        assert_eq!(parse(99, &[], vec![]), Err(Error::Unknown(99)));
    }

    #[test]
    fn an_eventfd_is_present_unless_its_bit_says_otherwise() {
        assert_eq!(parse(12, &[1], vec![5]), Ok(Request::SetKick { queue: 1, event: Some(5) }));
        assert_eq!(parse(13, &[0x101], vec![]), Ok(Request::SetCall { queue: 1, event: None }));
        assert_eq!(parse(13, &[1], vec![]), Err(Error::Descriptors { request: 13, count: 0 }));
        assert_eq!(parse(13, &[0x101], vec![5]), Err(Error::Descriptors { request: 13, count: 1 }));
        assert_eq!(parse(2, &[1], vec![5]), Err(Error::Descriptors { request: 2, count: 1 }));
    }

    #[test]
    fn a_memory_table_has_a_file_for_each_region() {
        let region = Region { guest_address: 1, bytes: 2, user_address: 3, offset: 4, file: 9 };
        assert_eq!(parse(5, &[1, 1, 2, 3, 4], vec![9]), Ok(Request::SetMemory(vec![region])));
        assert_eq!(parse(5, &[1, 1, 2, 3, 4], vec![]), Err(Error::Descriptors { request: 5, count: 0 }));
        assert_eq!(parse(5, &[2, 1, 2, 3, 4], vec![9, 9]), Err(Error::Length { request: 5, bytes: 40 }));
        assert_eq!(parse(5, &[0], vec![]), Err(Error::Regions(0)));
        assert_eq!(parse(5, &[9], vec![]), Err(Error::Regions(9)));
    }

    #[test]
    fn a_reply_says_its_request_and_its_value() {
        let bytes = reply(11, ring_state(1, 513));
        assert_eq!(bytes[..4], 11u32.to_ne_bytes());
        assert_eq!(bytes[4..8], 5u32.to_ne_bytes());
        assert_eq!(bytes[8..12], 8u32.to_ne_bytes());
        assert_eq!(bytes[12..], [1u32.to_ne_bytes(), 513u32.to_ne_bytes()].concat());
    }
}
