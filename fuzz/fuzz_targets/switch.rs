//! Everything that a guest and its front-end can send to the switch: any message in any order, over a
//! connection that splits messages anywhere, and any contents of rings and memory, while rings stop and
//! restart. Nothing panics, and work is bounded.

#![no_main]

use std::fs::File;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use libfuzzer_sys::arbitrary::{self, Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use punctual_model::network::Vlans;
use punctual_switch::connection::{Connection, Error};
use punctual_switch::features;
use punctual_switch::frame::TAGGED;
use punctual_switch::memory::Memory;
use punctual_switch::protocol::{HEADER_BYTES, Header, Region, Request};
use punctual_switch::RingError;
use punctual_switch::ring::{Chain, RxRing, TxRing, VringConfig, Popped};
use punctual_switch::session::{Rings, TX, Session};
use punctual_switch::vlan::{Filter, EthernetHeader};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

const MEMORY_BYTES: u64 = 0x1_0000;

#[derive(Debug)]
enum Input {
    /// Messages, how the connection splits them if there is one, and the memory's contents.
    Messages(Vec<Message>, Option<Vec<u8>>, Vec<u8>),
    Rings(RingInput),
}

/// A message.
#[derive(Debug)]
struct Message {
    request: u8,
    flags: u32,
    body: Vec<u64>,
    files: u8,
}

/// Two rings in a memory that holds these bytes.
#[derive(Debug)]
struct RingInput {
    features: u64,
    entries: u16,
    places: [u16; 6],
    bytes: Vec<u8>,
}

impl<'a> Arbitrary<'a> for RingInput {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let all = [features::EVENT_IDX, features::MRG_RXBUF, features::VERSION_1, features::GUEST_CSUM];
        let mut chosen = 0;
        for feature in all {
            chosen |= if u.arbitrary()? { feature } else { 0 };
        }
        let fixed = [0, 0x400, 0x600, 0x800, 0xc00, 0xe00];
        Ok(RingInput {
            features: chosen,
            entries: *u.choose(&[1, 2, 8, 16, 64, 1024, 3])?,
            places: if u.ratio(7, 8)? { fixed } else { u.arbitrary()? },
            bytes: u.bytes(u.len())?.to_vec(),
        })
    }
}

impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        if u.arbitrary()? {
            return Ok(Input::Rings(u.arbitrary()?));
        }
        let mut messages = if u.ratio(3, 4)? { begin(u)? } else { Vec::new() };
        for _ in 0..u.int_in_range(0..=24)? {
            messages.push(u.arbitrary()?);
        }
        let cuts = if u.arbitrary()? { Some(u.arbitrary()?) } else { None };
        Ok(Input::Messages(messages, cuts, u.bytes(u.len())?.to_vec()))
    }
}

/// The first messages of every front-end, after which both rings run.
fn begin(u: &mut Unstructured<'_>) -> arbitrary::Result<Vec<Message>> {
    let mut numbers = vec![2, 5];
    for queue in 0..2 {
        numbers.extend([8, 10, 9, 12, 13, 18].map(|request| request | queue << 8));
    }
    numbers.into_iter().map(|number: u16| Message::usual(number as u8, u64::from(number >> 8), u)).collect()
}

impl Message {
    /// A message as a front-end would send it.
    fn usual(request: u8, queue: u64, u: &mut Unstructured<'_>) -> arbitrary::Result<Message> {
        let place = queue * 0x800;
        let (body, files) = match request {
            2 => (vec![(features::OFFERED | u.arbitrary::<u64>()?) & features::OFFERED], 0),
            5 => (vec![1, 0, MEMORY_BYTES, 0, 0], 1),
            8 => (vec![queue | *u.choose(&[8, 16, 64, 1])? << 32], 0),
            9 => (vec![queue, place, place + 0x600, place + 0x400, 0], 0),
            10 => (vec![queue | u64::from(u.arbitrary::<u16>()?) << 32], 0),
            12..=14 => (vec![queue], 1),
            _ => (vec![queue | 1 << 32], 0),
        };
        Ok(Message { request, flags: 1, body, files })
    }
}

impl<'a> Arbitrary<'a> for Message {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        if u.arbitrary()? {
            let request = *u.choose(&[2, 5, 8, 9, 10, 11, 12, 13, 14, 18, 34])?;
            let queue = u.arbitrary::<bool>()?;
            return Message::usual(request, queue.into(), u);
        }
        Ok(Message {
            request: u.arbitrary::<u8>()? % 48,
            flags: if u.ratio(1, 16)? { u.arbitrary()? } else { 1 | u.arbitrary::<u32>()? & 8 },
            body: u.arbitrary()?,
            files: u.arbitrary()?,
        })
    }
}

/// Rings that move a few frames after each message.
#[derive(Default)]
struct Port {
    send: Option<TxRing>,
    receive: Option<RxRing>,
    chain: Chain,
}

impl Rings for Port {
    fn start(&mut self, queue: usize, setup: VringConfig) -> Result<(), RingError> {
        match queue {
            TX => self.send = Some(TxRing::new(&setup)?),
            _ => self.receive = Some(RxRing::new(&setup)?),
        }
        Ok(())
    }

    fn stop(&mut self, queue: usize) -> Option<u16> {
        match queue {
            TX => self.send.take().map(|ring| ring.vring_base()),
            _ => self.receive.take().map(|ring| ring.vring_base()),
        }
    }

    fn set_call(&mut self, _: usize, _: Option<Arc<OwnedFd>>) {}

    fn set_err(&mut self, _: usize, _: Option<Arc<OwnedFd>>) {}

    fn clear_error(&mut self) {}
}

impl Port {
    /// Frames to the port itself, as far as its rings run; a broken ring stops.
    fn turn(&mut self, filter: &Filter) {
        for _ in 0..4 {
            let (Some(send), Some(receive)) = (&mut self.send, &mut self.receive) else { return };
            if step(send, receive, &mut self.chain, filter).is_none() {
                (self.send, self.receive) = (None, None);
            }
        }
    }
}

fn file() -> OwnedFd {
    thread_local! {
        static FILE: OwnedFd = {
            let file = rustix::fs::memfd_create("fuzz", rustix::fs::MemfdFlags::CLOEXEC).expect("memory");
            rustix::fs::ftruncate(&file, MEMORY_BYTES).expect("memory");
            file
        };
    }
    FILE.with(|file| file.try_clone().expect("a descriptor"))
}

/// The files of a message: memory, or events.
fn files(message: &Message) -> Vec<OwnedFd> {
    thread_local! {
        static EVENT: OwnedFd = {
            let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
            rustix::event::eventfd(0, flags).expect("an event")
        };
    }
    let event = || EVENT.with(|event| event.try_clone().expect("a descriptor"));
    (0..message.files % 10).map(|_| if message.request == 5 { file() } else { event() }).collect()
}

/// Fills the memory.
fn fill(mut bytes: Vec<u8>) {
    bytes.resize(MEMORY_BYTES as usize, 0);
    std::os::unix::fs::FileExt::write_all_at(&File::from(file()), &bytes, 0).expect("written");
}

fn bytes_of(message: &Message) -> ([u8; HEADER_BYTES], Vec<u8>) {
    let body: Vec<u8> = message.body.iter().take(65).flat_map(|word| word.to_ne_bytes()).collect();
    let words = [u32::from(message.request), message.flags, body.len() as u32];
    let header: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    (header.try_into().expect("three words"), body)
}

fn messages(messages: Vec<Message>) {
    let (mut session, mut port) = (Session::new(features::OFFERED | features::MTU), Port::default());
    let filter = filter();
    for message in messages {
        let (header, body) = bytes_of(&message);
        let Ok(header) = Header::parse(&header) else { break };
        let Ok(request) = Request::parse(header, &body, files(&message)) else { break };
        if session.handle(request, &mut port).is_err() {
            break;
        }
        port.turn(&filter);
    }
    session.end(&mut port);
}

/// The same over a connection; each byte of `cuts` is the length of a piece.
fn connection(messages: Vec<Message>, cuts: &[u8]) {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    theirs.set_nonblocking(true).expect("told");
    let mut connection = Connection::new(ours, features::OFFERED | features::MTU).expect("a connection");
    let (mut port, filter) = (Port::default(), filter());
    let mut cuts = cuts.iter();
    for message in messages {
        let (header, body) = bytes_of(&message);
        let bytes = [&header[..], &body].concat();
        let files = files(&message);
        let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        let mut rest = &bytes[..];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(10))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&files));
        }
        while !rest.is_empty() {
            let piece = cuts.next().map_or(rest.len(), |cut| usize::from(*cut % 64).clamp(1, rest.len()));
            let sent = sendmsg(&theirs, &[IoSlice::new(&rest[..piece])], &mut control, SendFlags::NOSIGNAL);
            let Ok(sent) = sent else { break };
            control.clear();
            rest = &rest[sent..];
            if read(&mut connection, &mut port).is_err() {
                return connection.end(&mut port);
            }
        }
        port.turn(&filter);
    }
    drop(theirs);
    assert!(read(&mut connection, &mut port).is_err(), "the end is seen");
    connection.end(&mut port);
}

/// Reads what is there: a message takes two calls at most.
fn read(connection: &mut Connection, port: &mut Port) -> Result<(), Error> {
    (0..3).try_for_each(|_| connection.read(port))
}

/// A port that is in VLAN 7 without a tag and in 8 with one, and one the other way round.
fn filter() -> Filter {
    let vlans = |untagged, tagged| Vlans { untagged: Some(untagged), tagged: vec![tagged] };
    Filter::new(&[vlans(7, 8), vlans(8, 7)]).expect("few VLANs").expect("VLANs")
}

fn rings(input: RingInput) {
    let region = Region { guest_address: 0, bytes: MEMORY_BYTES, user_address: 0, offset: 0, file: file() };
    let memory = Arc::new(Memory::map(vec![region]).expect("mapped"));
    fill(input.bytes);
    let kick = Arc::new(file());
    let setup = |half: usize| VringConfig {
        memory: Arc::clone(&memory),
        size: input.entries,
        desc_table: u64::from(input.places[half * 3]),
        avail_ring: u64::from(input.places[half * 3 + 1]),
        used_ring: u64::from(input.places[half * 3 + 2]),
        features: input.features,
        // The switch offers no feature with this bit.
        features_assumed: input.features >> 63 == 1,
        kick: Arc::clone(&kick),
        call: None,
        err: None,
    };
    let (Ok(mut send), Ok(mut receive)) = (TxRing::new(&setup(0)), RxRing::new(&setup(1))) else {
        return;
    };
    let mut chain = Chain::default();
    let filter = filter();
    for _ in 0..32 {
        if step(&mut send, &mut receive, &mut chain, &filter).is_none() {
            break;
        }
    }
}

/// Moves a frame from one ring to the other; `None` when there is none, or a ring is broken.
fn step(send: &mut TxRing, receive: &mut RxRing, chain: &mut Chain, filter: &Filter) -> Option<()> {
    match send.pop(chain).ok()? {
        Popped::Empty => return None,
        Popped::Malformed => {}
        Popped::Frame { bytes } => {
            let start = chain.ethernet_header();
            let is_tagged = start.ends_with(&TAGGED) && bytes >= 18;
            let tag = if is_tagged { send.vlan_tag(chain).ok() } else { None };
            let vlan = filter.classify(0, tag);
            let start = EthernetHeader { bytes: start, tag };
            let rewrite = vlan.and_then(|vlan| filter.rewrite(bytes as usize % 2, vlan, &start));
            let delivered = receive.deliver(send, chain, rewrite.as_ref());
            receive.avail_len().ok()?;
            delivered.ok()?;
            receive.publish_and_signal();
        }
    }
    send.push_used(chain);
    send.publish_and_signal();
    send.enable_kick().ok()?;
    Some(())
}

fuzz_target!(|input: Input| {
    match input {
        Input::Messages(list, cuts, bytes) => {
            fill(bytes);
            match cuts {
                Some(cuts) => connection(list, &cuts),
                None => messages(list),
            }
        }
        Input::Rings(input) => rings(input),
    }
});
