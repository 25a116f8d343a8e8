//! What a guest can write into the memory that it shares with the server of its sockets: any call, any
//! words anywhere, at any time. Nothing panics, no socket is beyond the limits, and none has a peer that no
//! rule names.

#![no_main]

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use libfuzzer_sys::arbitrary::{self, Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use punctual_model::sockets::Sockets;
use punctual_sockets::call::{Call, Op, Response};
use punctual_sockets::layout;
use punctual_sockets::memory::Shared;
use punctual_sockets::queue::{Geometry, GuestQueues, HostQueues, Words};
use punctual_sockets::table::Table;
use punctual_sockets::testing::request;
use punctual_sockets::{Counts, Segments};
use rustix::event::epoll;

const SOCKETS_MAX: u32 = 8;
/// Some are allowed, some are not, and some are others' by another name.
const ADDRESSES: [&str; 8] = [
    "127.0.0.1",
    "0.0.0.0",
    "192.0.2.1",
    "::1",
    "::",
    "::ffff:127.0.0.1",
    "::ffff:0.0.0.0",
    "::ffff:127.0.0.3",
];

/// What the guest does.
#[derive(Debug)]
enum Step {
    /// Writes a word, mostly where something stands.
    Write { at: u32, value: u32 },
    /// Writes a request and submits it.
    Call { slot: u32, words: [u32; 10], port: u16, address: &'static str },
    /// The kernel tells the server of a socket.
    Event(u64),
}

impl<'a> Arbitrary<'a> for Step {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        Ok(match u.int_in_range(0..=7)? {
            0 => {
                let place = u.int_in_range(0..=layout::DATA_AT / 4)?;
                Step::Write { at: place * 4, value: u.arbitrary()? }
            }
            1 => Step::Event(u64::from(u.arbitrary::<u8>()?) << 32 | u64::from(u.int_in_range(0..=9u8)?)),
            _ => {
                let mut words: [u32; 10] = u.arbitrary()?;
                words[0] = u.int_in_range(0..=16)?;
                words[1] %= if u.ratio(7, 8)? { SOCKETS_MAX } else { u32::MAX };
                let address = u.choose(&ADDRESSES)?;
                let slot = u.int_in_range(0..=layout::SLOTS - 1)?;
                Step::Call { slot, words, port: u.arbitrary()?, address }
            }
        })
    }
}

fn call(words: [u32; 10], port: u16, address: &'static str) -> Call {
    // A socket's type and a level of options are mostly right, so that what follows is reached.
    let first = if words[5] & 1 == 0 { words[4] % 8 } else { words[4] };
    Call {
        op: Op::ALL.get(words[0] as usize).copied(),
        socket: words[1],
        flags: words[2],
        length: words[3] % (2 * layout::DATA_BYTES),
        first,
        second: if words[6] & 1 == 0 { 6 } else { words[6] },
        options: words[7],
        linger: words[8],
        address: (words[9] & 1 == 0).then(|| (address.parse::<IpAddr>().expect("an address"), port).into()),
    }
}

fuzz_target!(|steps: Vec<Step>| {
    let rules = [
        "bind udp 127.0.0.1:0",
        "bind tcp 127.0.0.1:0",
        "bind udp [::]:0",
        "bind tcp [::1]:0",
        "connect udp 127.0.0.1:9",
        "connect udp [::1]:9",
    ];
    let allow = rules.map(|rule| rule.parse().expect("a rule")).to_vec();
    let policy = Sockets { allow, sockets_max: SOCKETS_MAX, ..Sockets::default() };
    let epoll: Arc<OwnedFd> = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC).expect("epoll"));
    let shared = Shared::new().expect("memory");
    let (mut table, mut host) = (Table::new(policy, epoll), HostQueues::new(Geometry::FULL));
    let mut guest = GuestQueues::new(&shared, Geometry::FULL);
    let (mut counts, mut segments) = (Counts::default(), Segments::default());
    request(Op::Hello, 0).write(&shared, 0);
    table.serve(&shared, &mut host, 0, (&mut counts, &mut segments));
    for step in steps.into_iter().take(200) {
        match step {
            Step::Write { at, value } => shared.store(at, value),
            Step::Event(token) => drop(table.on_event(&shared, &mut host, token, &mut counts)),
            Step::Call { slot, words, port, address } => {
                call(words, port, address).write(&shared, slot);
                guest.submit(&shared, slot);
            }
        }
        loop {
            match host.next_submission(&shared) {
                Ok(Some(slot)) => {
                    table.serve(&shared, &mut host, slot, (&mut counts, &mut segments));
                    let answer = Response::read(&shared, slot);
                    if answer.result == 0 && Call::read(&shared, slot).op == Some(Op::Peer) {
                        let peer = answer.address.expect("an address");
                        let (ip, port) = (peer.ip().to_canonical(), peer.port());
                        assert!(port == 9 && ["127.0.0.1", "::1"].contains(&&*ip.to_string()), "{peer}");
                    }
                    assert!(answer.length <= layout::DATA_BYTES && answer.socket < SOCKETS_MAX);
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
        assert!(table.len() <= SOCKETS_MAX as usize);
    }
});
