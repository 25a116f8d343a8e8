//! What a VM and its monitor can say to the switch: any message in any order, and any contents of rings and
//! memory. Nothing panics, and work is bounded.

#![no_main]

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use libfuzzer_sys::arbitrary::{self, Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use punctual_model::network::Vlans;
use punctual_switch::features;
use punctual_switch::frame::TAGGED;
use punctual_switch::memory::Memory;
use punctual_switch::protocol::{HEADER_BYTES, Header, Region, Request};
use punctual_switch::ring::{Broken, Chain, ReceiveRing, SendRing, Setup, Taken};
use punctual_switch::session::{Rings, Session};
use punctual_switch::vlan::{Filter, Start};

const MEMORY_BYTES: u64 = 0x1_0000;

/// What happens.
#[derive(Debug)]
enum Input {
    Messages(Vec<Message>),
    Rings(RingInput),
}

/// A message; its header is partly right, so that its body is looked at.
#[derive(Debug)]
struct Message {
    request: u8,
    flags: u8,
    is_header_wrong: bool,
    body: Vec<u64>,
    files: u8,
}

/// Two rings in a memory that holds these bytes.
#[derive(Debug)]
struct RingInput {
    features: u64,
    entries: u16,
    places: [u16; 6],
    bases: [u16; 2],
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
            bases: u.arbitrary()?,
            bytes: u.bytes(u.len())?.to_vec(),
        })
    }
}

impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        Ok(if u.arbitrary()? { Input::Messages(u.arbitrary()?) } else { Input::Rings(u.arbitrary()?) })
    }
}

impl<'a> Arbitrary<'a> for Message {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        Ok(Message {
            request: u.arbitrary()?,
            flags: u.arbitrary()?,
            is_header_wrong: u.ratio(1, 16)?,
            body: u.arbitrary()?,
            files: u.arbitrary()?,
        })
    }
}

/// Rings that are started and do nothing.
#[derive(Default)]
struct Stub {
    rings: [Option<SendRing>; 2],
}

impl Rings for Stub {
    fn start(&mut self, queue: usize, setup: Setup) -> Result<(), Broken> {
        self.rings[queue] = Some(SendRing::new(&setup)?);
        Ok(())
    }

    fn stop(&mut self, queue: usize) -> Option<u16> {
        self.rings[queue].take().map(|ring| ring.base())
    }

    fn forgive(&mut self) {}
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

fn messages(messages: Vec<Message>) {
    let (mut session, mut stub) = (Session::new(features::OFFERED | features::MTU), Stub::default());
    for message in messages.into_iter().take(40) {
        let body: Vec<u8> = message.body.iter().take(65).flat_map(|word| word.to_ne_bytes()).collect();
        let flags = if message.is_header_wrong { message.flags } else { 1 | message.flags & 8 };
        let words = [u32::from(message.request % 48), flags.into(), body.len() as u32];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let bytes: [u8; HEADER_BYTES] = bytes.try_into().expect("three words");
        let Ok(header) = Header::parse(&bytes) else { return };
        let files = (0..message.files % 10).map(|_| file()).collect();
        let Ok(request) = Request::parse(header, &body, files) else { return };
        if session.handle(request, &mut stub).is_err() {
            break;
        }
    }
    session.end(&mut stub);
}

/// A port that is in VLAN 7 without a tag and in 8 with one, and one the other way round.
fn filter() -> Filter {
    let vlans = |untagged, tagged| Vlans { untagged: Some(untagged), tagged: vec![tagged] };
    Filter::new(&[vlans(7, 8), vlans(8, 7)]).expect("few VLANs").expect("VLANs")
}

fn rings(input: RingInput) {
    let region = Region { guest_address: 0, bytes: MEMORY_BYTES, user_address: 0, offset: 0, file: file() };
    let memory = Arc::new(Memory::map(vec![region]).expect("mapped"));
    let mut bytes = input.bytes;
    bytes.resize(MEMORY_BYTES as usize, 0);
    std::os::unix::fs::FileExt::write_all_at(&File::from(file()), &bytes, 0).expect("written");
    let kick = Arc::new(file());
    let setup = |half: usize| Setup {
        memory: Arc::clone(&memory),
        entries: input.entries,
        descriptors: u64::from(input.places[half * 3]),
        available: u64::from(input.places[half * 3 + 1]),
        used: u64::from(input.places[half * 3 + 2]),
        base: input.bases[half],
        features: input.features,
        kick: Arc::clone(&kick),
        call: None,
        error: None,
    };
    let (Ok(mut send), Ok(mut receive)) = (SendRing::new(&setup(0)), ReceiveRing::new(&setup(1))) else {
        return;
    };
    let mut chain = Chain::default();
    let filter = filter();
    for _ in 0..32 {
        match send.take(&mut chain) {
            Ok(Taken::Nothing) | Err(_) => break,
            Ok(Taken::Unfit) => {}
            Ok(Taken::Frame { start, bytes }) => {
                let is_tagged = start.ends_with(&TAGGED) && bytes >= 18;
                let tag = if is_tagged { send.tag(&chain).ok() } else { None };
                let vlan = filter.of(0, tag);
                let start = Start { bytes: start, tag };
                let front = vlan.and_then(|vlan| filter.front(bytes as usize % 2, vlan, &start));
                let delivered = receive.deliver(&send, &chain, front.as_ref());
                if receive.free().is_err() || delivered.is_err() || receive.tell().is_err() {
                    break;
                }
            }
        }
        if send.give_back(&chain).is_err() || send.tell().is_err() || send.listen().is_err() {
            break;
        }
    }
}

fuzz_target!(|input: Input| {
    match input {
        Input::Messages(list) => messages(list),
        Input::Rings(input) => rings(input),
    }
});
